ALTER TABLE payasync_intents ADD COLUMN silent_since timestamptz;

CREATE TABLE payasync_services (
    merchant text PRIMARY KEY,
    service text NOT NULL
);
