CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    weak INTEGER NOT NULL,
    kind TEXT,
    event TEXT,
    verified INTEGER NOT NULL,
    lasting INTEGER NOT NULL DEFAULT 0,
    raw BLOB NOT NULL,
    headers TEXT NOT NULL,
    received_at REAL NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'leased', 'done', 'dead', 'parked', 'quarantined')),
    attempts INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '',
    due REAL CHECK ((due IS NOT NULL) = (state IN ('pending', 'leased'))),
    fence INTEGER NOT NULL DEFAULT 0,
    since REAL NOT NULL,
    UNIQUE (key, digest)
) STRICT;

CREATE INDEX events_due ON events (due) WHERE due IS NOT NULL;
CREATE INDEX events_waiting ON events (since) WHERE due IS NOT NULL;
CREATE INDEX events_by_state ON events (state, id);
CREATE INDEX events_forgettable ON events (since)
WHERE (state = 'done' OR (due IS NULL AND NOT verified)) AND NOT lasting AND substr(key, 1, 10) <> 'confirmed:';
CREATE INDEX events_to_empty ON events (since)
WHERE state = 'done' AND (lasting OR substr(key, 1, 10) = 'confirmed:') AND length(raw) > 0;

CREATE TABLE handled (
    event INTEGER NOT NULL REFERENCES events ON DELETE CASCADE,
    handler TEXT NOT NULL,
    PRIMARY KEY (event, handler)
) STRICT, WITHOUT ROWID;
