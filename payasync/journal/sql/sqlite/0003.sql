ALTER TABLE payasync_intents ADD COLUMN silent_since REAL;

CREATE TABLE payasync_services (
    merchant TEXT PRIMARY KEY NOT NULL,
    service TEXT NOT NULL
) STRICT;
