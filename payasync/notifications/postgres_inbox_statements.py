"""What the PostgreSQL inbox asks of its database."""

from typing import Final

ONE_BY_ONE: Final = "SELECT pg_advisory_xact_lock(hashtextextended('payasync_events:' || %(key)s, 0))"
"""Two bodies under one key, at once, would both be the first; the lock ends with the transaction."""
SAME_KEY: Final = "SELECT id, digest FROM payasync_events WHERE key = %(key)s ORDER BY id"
ADD: Final = """
INSERT INTO payasync_events
    (key, digest, weak, kind, event, verified, lasting, raw, headers, received_at, state, reason, due, since)
VALUES (
    %(key)s, %(digest)s, %(weak)s, %(kind)s, %(event)s, %(verified)s, %(lasting)s, %(raw)s, %(headers)s,
    %(received_at)s, %(state)s, %(reason)s, %(due)s, %(now)s)"""

BEGIN_ANEW: Final = """
UPDATE payasync_events SET due = %(now)s + (due - since), since = %(now)s WHERE id IN (
    SELECT id FROM payasync_events WHERE due IS NOT NULL AND since > %(ahead)s FOR UPDATE SKIP LOCKED)
RETURNING id"""
"""The clock was set back: what waits, or is leased, does so for as long as before, from now."""
CLAIM: Final = """
WITH free AS MATERIALIZED (
    SELECT id, due FROM payasync_events WHERE due <= %(now)s
    ORDER BY due, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE payasync_events AS event
SET state = 'leased', attempts = attempts + 1, fence = fence + 1, due = %(until)s, since = %(now)s
FROM free WHERE event.id = free.id
RETURNING event.*, free.due AS waited_until"""
EXTEND: Final = """
UPDATE payasync_events SET due = %(until)s, since = %(now)s
WHERE id = %(id)s AND state = 'leased' AND fence = %(fence)s RETURNING id"""
HANDLED: Final = """
UPDATE payasync_events SET handled = array_append(array_remove(handled, %(handler)s), %(handler)s)
WHERE id = %(id)s AND state = 'leased' AND fence = %(fence)s RETURNING id"""
OWN: Final = """
UPDATE payasync_events SET key = %(key)s
WHERE id = %(id)s AND state = 'leased' AND fence = %(fence)s RETURNING id"""
FINISH: Final = """
UPDATE payasync_events
SET state = %(state)s, reason = %(reason)s, due = %(due)s, since = %(now)s, failures = failures + %(failed)s
WHERE id = %(id)s AND state = 'leased' AND fence = %(fence)s RETURNING id"""
REPLAY: Final = """
UPDATE payasync_events
SET state = 'pending', attempts = 0, failures = 0, reason = '', due = %(now)s, since = %(now)s
WHERE id = %(id)s AND state IN ('dead', 'parked', 'quarantined') RETURNING id"""
RENAME: Final = """
UPDATE payasync_events SET kind = %(kind)s, key = %(key)s, weak = %(weak)s
WHERE id = %(id)s AND state IN ('dead', 'parked', 'quarantined') RETURNING id"""

NEXT_DUE: Final = """
SELECT extract(epoch FROM min(due) - %(now)s)::float8 AS wait FROM payasync_events WHERE due IS NOT NULL"""
EVENTS: Final = "SELECT * FROM payasync_events WHERE id > %(after)s ORDER BY id LIMIT %(limit)s"
EVENTS_OF_STATE: Final = """
SELECT * FROM payasync_events WHERE state = %(state)s AND id > %(after)s ORDER BY id LIMIT %(limit)s"""
FORGET: Final = """
DELETE FROM payasync_events WHERE id IN (
    SELECT id FROM payasync_events
    WHERE (state = 'done' OR (due IS NULL AND NOT verified)) AND NOT lasting AND substr(key, 1, 10) <> 'confirmed:'
    AND since < %(before)s ORDER BY since LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING id"""
EMPTY: Final = """
UPDATE payasync_events SET raw = '', headers = '{}' WHERE id IN (
    SELECT id FROM payasync_events
    WHERE state = 'done' AND (lasting OR substr(key, 1, 10) = 'confirmed:') AND length(raw) > 0
    AND since < %(before)s ORDER BY since LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
RETURNING id"""
"""An event that can come again after any time is known by its key, which needs no payload."""
