ALTER TABLE payasync_intents ADD COLUMN tick TEXT;
