ALTER TABLE payasync_intents ADD COLUMN named TEXT;
