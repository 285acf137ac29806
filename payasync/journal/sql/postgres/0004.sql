ALTER TABLE payasync_intents ADD COLUMN named json;
