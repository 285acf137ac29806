"""What the SQLite inbox asks of its file."""

from typing import Final

SAME_KEY: Final = "SELECT id, digest FROM events WHERE key = :key ORDER BY id"
ADD: Final = """
INSERT INTO events
    (key, digest, weak, kind, event, verified, lasting, raw, headers, received_at, state, reason, due, since)
VALUES (
    :key, :digest, :weak, :kind, :event, :verified, :lasting, :raw, :headers, :received_at, :state, :reason, :due,
    :now)"""

BEGIN_ANEW: Final = "UPDATE events SET due = :now + due - since, since = :now WHERE due IS NOT NULL AND since > :ahead"
"""The clock was set back: what waits, or is leased, does so for as long as before, from now."""
DUE: Final = "SELECT id FROM events WHERE due <= :now ORDER BY due, id LIMIT :limit"
LEASE: Final = """
UPDATE events SET state = 'leased', attempts = attempts + 1, fence = fence + 1, due = :until, since = :now
WHERE id = :id"""
EXTEND: Final = "UPDATE events SET due = :until, since = :now WHERE id = :id AND state = 'leased' AND fence = :fence"
HANDLED: Final = """
INSERT INTO handled SELECT id, :handler FROM events WHERE id = :id AND state = 'leased' AND fence = :fence
ON CONFLICT DO UPDATE SET handler = excluded.handler"""
OWN: Final = """
UPDATE events SET key = :key WHERE id = :id AND state = 'leased' AND fence = :fence
AND NOT EXISTS (SELECT 1 FROM events AS other WHERE other.key = :key AND other.id <> :id)"""
FINISH: Final = """
UPDATE events SET state = :state, reason = :reason, due = :due, since = :now, failures = failures + :failed
WHERE id = :id AND state = 'leased' AND fence = :fence"""
REPLAY: Final = """
UPDATE events SET state = 'pending', attempts = 0, failures = 0, reason = '', due = :now, since = :now
WHERE id = :id AND state IN ('dead', 'parked', 'quarantined')"""
RENAME: Final = """
UPDATE events SET kind = :kind, key = :key, weak = :weak
WHERE id = :id AND state IN ('dead', 'parked', 'quarantined')
AND NOT EXISTS (SELECT 1 FROM events AS other WHERE other.key = :key AND other.id <> :id)"""

NEXT_DUE: Final = "SELECT min(due) - :now AS wait FROM events WHERE due IS NOT NULL"
EVENT: Final = "SELECT * FROM events WHERE id = :id"
EVENTS: Final = "SELECT * FROM events WHERE id > :after ORDER BY id LIMIT :limit"
EVENTS_OF_STATE: Final = "SELECT * FROM events WHERE state = :state AND id > :after ORDER BY id LIMIT :limit"
HANDLERS: Final = "SELECT handler FROM handled WHERE event = :id"
FORGET: Final = """
DELETE FROM events WHERE id IN (
    SELECT id FROM events
    WHERE (state = 'done' OR (due IS NULL AND NOT verified)) AND NOT lasting AND substr(key, 1, 10) <> 'confirmed:'
    AND since < :before ORDER BY since LIMIT :limit)"""
EMPTY: Final = """
UPDATE events SET raw = x'', headers = '{}' WHERE id IN (
    SELECT id FROM events
    WHERE state = 'done' AND (lasting OR substr(key, 1, 10) = 'confirmed:') AND length(raw) > 0
    AND since < :before ORDER BY since LIMIT :limit)"""
"""An event that can come again after any time is known by its key, which needs no payload."""
