ALTER TABLE payasync_intents ADD COLUMN silent_since timestamptz;
ALTER TABLE payasync_intents ADD COLUMN answered boolean NOT NULL DEFAULT FALSE;

CREATE TABLE payasync_services (
    merchant text PRIMARY KEY,
    service text NOT NULL
);
