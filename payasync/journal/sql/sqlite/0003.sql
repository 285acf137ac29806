-- The same table with cheaper checks: `IN` with more than two values would build a table for each row. And with indexes
-- that hold only the rows that they are used for.
CREATE TABLE payasync_intents_3 (
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
        CHECK (state = 'sending' OR state = 'succeeded' OR state = 'accepted' OR state = 'rejected'
            OR state = 'unknown' OR state = 'new' OR state = 'manual'),
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
    idempotency_key TEXT,
    key_sent REAL,
    key_tick TEXT,
    UNIQUE (number, merchant),
    CHECK ((coalesce(lease, due) IS NOT NULL) = (state = 'sending' OR state = 'accepted' OR state = 'unknown'))
) STRICT;

INSERT INTO payasync_intents_3
SELECT
    id, operation, merchant, reference, number, intent, hash, request, queued, state, attempts, asked, denied, fence,
    lease, due, created, updated, sent_at, silent_since, tick, answered, named, outcome, reason, idempotency_key,
    key_sent, key_tick
FROM payasync_intents;

-- The ids of pruned intents are never given again.
DELETE FROM sqlite_sequence WHERE name = 'payasync_intents_3';
INSERT INTO sqlite_sequence (name, seq)
SELECT 'payasync_intents_3', seq FROM sqlite_sequence WHERE name = 'payasync_intents';

DROP TABLE payasync_intents;
ALTER TABLE payasync_intents_3 RENAME TO payasync_intents;

CREATE UNIQUE INDEX payasync_intents_of_caller ON payasync_intents (merchant, intent) WHERE intent IS NOT NULL;
CREATE INDEX payasync_intents_due ON payasync_intents (coalesce(lease, due)) WHERE coalesce(lease, due) IS NOT NULL;
CREATE INDEX payasync_intents_by_state ON payasync_intents (state, id);
CREATE INDEX payasync_intents_about ON payasync_intents (reference, operation) WHERE number IS NULL;
CREATE INDEX payasync_intents_ended ON payasync_intents (updated) WHERE state IN ('succeeded', 'rejected');
