ALTER TABLE payasync_intents ADD COLUMN idempotency_key TEXT;
ALTER TABLE payasync_intents ADD COLUMN key_sent REAL;
ALTER TABLE payasync_intents ADD COLUMN key_tick TEXT;
