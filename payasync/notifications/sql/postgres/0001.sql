CREATE TABLE payasync_events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text NOT NULL,
    digest text NOT NULL,
    weak boolean NOT NULL,
    kind text,
    event text,
    verified boolean NOT NULL,
    lasting boolean NOT NULL DEFAULT false,
    raw bytea NOT NULL,
    headers json NOT NULL,
    received_at timestamptz NOT NULL,
    state text NOT NULL CHECK (state IN ('pending', 'leased', 'done', 'dead', 'parked', 'quarantined')),
    attempts integer NOT NULL DEFAULT 0,
    failures integer NOT NULL DEFAULT 0,
    reason text NOT NULL DEFAULT '',
    due timestamptz CHECK ((due IS NOT NULL) = (state IN ('pending', 'leased'))),
    fence bigint NOT NULL DEFAULT 0,
    since timestamptz NOT NULL,
    handled text[] NOT NULL DEFAULT '{}',
    UNIQUE (key, digest)
);

CREATE INDEX payasync_events_due ON payasync_events (due, id) WHERE due IS NOT NULL;
CREATE INDEX payasync_events_waiting ON payasync_events (since) WHERE due IS NOT NULL;
CREATE INDEX payasync_events_by_state ON payasync_events (state, id);
CREATE INDEX payasync_events_forgettable ON payasync_events (since)
WHERE (state = 'done' OR (due IS NULL AND NOT verified)) AND NOT lasting AND substr(key, 1, 10) <> 'confirmed:';
CREATE INDEX payasync_events_to_empty ON payasync_events (since)
WHERE state = 'done' AND (lasting OR substr(key, 1, 10) = 'confirmed:') AND length(raw) > 0;
