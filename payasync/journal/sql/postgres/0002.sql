ALTER TABLE payasync_intents ADD COLUMN tick text;

CREATE TABLE payasync_services (
    merchant text PRIMARY KEY,
    service text NOT NULL
);
