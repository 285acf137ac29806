CREATE TABLE payasync_intents (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    operation text NOT NULL,
    merchant text NOT NULL,
    reference text,
    number text,
    intent text,
    hash text NOT NULL,
    request json NOT NULL,
    queued boolean NOT NULL,
    state text NOT NULL
        CHECK (state IN ('new', 'sending', 'accepted', 'succeeded', 'rejected', 'unknown', 'manual')),
    attempts integer NOT NULL DEFAULT 0,
    asked integer NOT NULL DEFAULT 0,
    denied integer NOT NULL DEFAULT 0,
    fence bigint NOT NULL DEFAULT 0,
    lease timestamptz CHECK (lease IS NOT NULL OR state <> 'sending'),
    due timestamptz,
    created timestamptz NOT NULL,
    updated timestamptz NOT NULL,
    sent_at timestamptz,
    silent_since timestamptz,
    tick text,
    answered boolean NOT NULL DEFAULT FALSE,
    named json,
    outcome text,
    reason text NOT NULL DEFAULT '',
    UNIQUE (merchant, number),
    UNIQUE (merchant, intent),
    CHECK ((coalesce(lease, due) IS NOT NULL) = (state IN ('sending', 'accepted', 'unknown')))
);

CREATE INDEX payasync_intents_due ON payasync_intents (coalesce(lease, due), id) WHERE coalesce(lease, due) IS NOT NULL;
CREATE INDEX payasync_intents_by_state ON payasync_intents (state, id);
CREATE INDEX payasync_intents_about ON payasync_intents (reference, operation);
CREATE INDEX payasync_intents_ended ON payasync_intents (updated) WHERE state IN ('succeeded', 'rejected');

CREATE TABLE payasync_services (
    merchant text PRIMARY KEY,
    service text NOT NULL
);
