-- The same table with two further states. `quarantined` is the old name of `held`: only an older payasync writes it.
CREATE TABLE events_2 (
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
    state TEXT NOT NULL CHECK (
        state IN ('pending', 'leased', 'done', 'dead', 'parked', 'held', 'superseded', 'quarantined')
    ),
    attempts INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '',
    due REAL CHECK ((due IS NOT NULL) = (state IN ('pending', 'leased'))),
    fence INTEGER NOT NULL DEFAULT 0,
    since REAL NOT NULL,
    -- The event's own time, and how often the journal had sent its write when the event came: a part of its key.
    event_time REAL,
    sends INTEGER NOT NULL DEFAULT 1,
    UNIQUE (key, digest)
) STRICT;

INSERT INTO events_2
SELECT
    id, key, digest, weak, kind, event, verified, lasting, raw, headers, received_at,
    CASE state WHEN 'quarantined' THEN 'held' ELSE state END,
    attempts, failures, reason, due, fence, since, NULL, 1
FROM events;

-- The ids of deleted events are never given again.
DELETE FROM sqlite_sequence WHERE name = 'events_2';
INSERT INTO sqlite_sequence (name, seq) SELECT 'events_2', seq FROM sqlite_sequence WHERE name = 'events';

DROP TABLE events;
ALTER TABLE events_2 RENAME TO events;

CREATE INDEX events_due ON events (due) WHERE due IS NOT NULL;
CREATE INDEX events_waiting ON events (since) WHERE due IS NOT NULL;
CREATE INDEX events_by_state ON events (state, id);
CREATE INDEX events_forgettable ON events (since)
WHERE (state = 'done' OR state = 'superseded' OR (due IS NULL AND NOT verified))
AND NOT lasting AND substr(key, 1, 10) <> 'confirmed:';
CREATE INDEX events_to_empty ON events (since)
WHERE (state = 'done' OR state = 'superseded') AND (lasting OR substr(key, 1, 10) = 'confirmed:') AND length(raw) > 0;
