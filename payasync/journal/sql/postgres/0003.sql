ALTER TABLE payasync_intents ADD COLUMN silent_since timestamptz;
