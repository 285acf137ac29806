ALTER TABLE payasync_intents ADD COLUMN tick text;
