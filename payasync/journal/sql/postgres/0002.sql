ALTER TABLE payasync_intents ADD COLUMN idempotency_key text;
ALTER TABLE payasync_intents ADD COLUMN key_sent timestamptz;
ALTER TABLE payasync_intents ADD COLUMN key_tick text;
