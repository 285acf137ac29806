-- Sends that had certainly no effect: what the service says is not about them.
ALTER TABLE payasync_intents ADD COLUMN ineffective INTEGER NOT NULL DEFAULT 0;
