-- Sends that had certainly no effect: what the service says is not about them.
ALTER TABLE payasync_intents ADD COLUMN ineffective integer NOT NULL DEFAULT 0;
