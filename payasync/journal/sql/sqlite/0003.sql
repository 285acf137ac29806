ALTER TABLE payasync_intents ADD COLUMN silent_since REAL;
ALTER TABLE payasync_intents ADD COLUMN answered INTEGER NOT NULL DEFAULT 0;

CREATE TABLE payasync_services (
    merchant TEXT PRIMARY KEY NOT NULL,
    service TEXT NOT NULL
) STRICT;
