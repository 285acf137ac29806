CREATE TABLE payasync_intents (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    operation TEXT NOT NULL,
    merchant TEXT NOT NULL,
    reference TEXT,
    number TEXT,
    intent TEXT,
    hash TEXT NOT NULL,
    request TEXT NOT NULL,
    queued INTEGER NOT NULL,
    state TEXT NOT NULL
        CHECK (state IN ('new', 'sending', 'accepted', 'succeeded', 'rejected', 'unknown', 'manual')),
    attempts INTEGER NOT NULL DEFAULT 0,
    asked INTEGER NOT NULL DEFAULT 0,
    denied INTEGER NOT NULL DEFAULT 0,
    fence INTEGER NOT NULL DEFAULT 0,
    lease REAL CHECK (lease IS NOT NULL OR state <> 'sending'),
    due REAL,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    sent_at REAL,
    silent_since REAL,
    tick TEXT,
    answered INTEGER NOT NULL DEFAULT 0,
    named TEXT,
    outcome TEXT,
    reason TEXT NOT NULL DEFAULT '',
    UNIQUE (merchant, number),
    UNIQUE (merchant, intent),
    CHECK ((coalesce(lease, due) IS NOT NULL) = (state IN ('sending', 'accepted', 'unknown')))
) STRICT;

CREATE INDEX payasync_intents_due ON payasync_intents (coalesce(lease, due));
CREATE INDEX payasync_intents_by_state ON payasync_intents (state, id);
CREATE INDEX payasync_intents_about ON payasync_intents (reference, operation);
CREATE INDEX payasync_intents_ended ON payasync_intents (updated) WHERE state IN ('succeeded', 'rejected');

CREATE TABLE payasync_services (
    merchant TEXT PRIMARY KEY NOT NULL,
    service TEXT NOT NULL
) STRICT;
