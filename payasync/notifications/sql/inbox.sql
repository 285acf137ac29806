-- The statements of an inbox. SQLite takes the row locks for comments, and `to_psycopg` adapts the rest.

-- name: lock
-- In PostgreSQL, two concurrent bodies with one key would both be the first without it; it ends with the transaction.
SELECT pg_advisory_xact_lock(hashtextextended('payasync_events:' || value, 0)) FROM json_each(:keys);

-- name: same_key
-- Also the copies: the same verified events that gave up the key for `key:id`, and wait for a query. The range is for the
-- index: in any collation it has each of them.
SELECT id, digest, state, attempts, TRUE AS has_key FROM payasync_events WHERE key = :key
UNION ALL SELECT id, digest, state, attempts, FALSE FROM payasync_events
WHERE key BETWEEN :key || ':' || '0' AND :key || ':' || '99999999999999999999'
AND key = :key || ':' || id AND digest = :digest AND verified AND due IS NOT NULL;

-- name: add
-- Most events are the only ones of their keys. If `only`, another one is not added: `same_key` finds the others.
INSERT INTO payasync_events
    (key, digest, weak, kind, event, verified, lasting, raw, headers, received_at, event_time, state, reason, due, since,
    sends, fact)
SELECT
    :key, :digest, :weak, :kind, :event, :verified, :lasting, :raw, :headers, :received_at, :event_time, :state,
    :reason, :due, :now, :sends, :fact
WHERE NOT :only OR NOT (
    EXISTS (SELECT 1 FROM payasync_events WHERE key = :key)
    OR EXISTS (
        SELECT 1 FROM payasync_events WHERE key BETWEEN :key || ':' || '0' AND :key || ':' || '99999999999999999999'))
RETURNING id;

-- name: begin_anew
-- After the clock was set back, waiting and leased events wait for their full time again, from now. None is due before
-- it was stored, so that `due` can be looked up for `since`.
UPDATE payasync_events SET due = :now + (due - since), since = :now WHERE id IN (
    SELECT id FROM payasync_events WHERE due > :ahead AND since > :ahead /* FOR UPDATE SKIP LOCKED */)
RETURNING id;

-- name: due
SELECT id FROM payasync_events WHERE due <= :now ORDER BY due, id LIMIT :limit /* FOR UPDATE SKIP LOCKED */;

-- name: lease
-- Few events have others of their key or fact, which have to be read then. In RETURNING, SQLite looks up what is computed,
-- and searches a whole index for a column's value; and a count has PostgreSQL look the fact up.
UPDATE payasync_events SET state = 'leased', attempts = attempts + 1, fence = fence + 1, due = :until, since = :now
WHERE id IN (SELECT CAST(value AS bigint) FROM json_each(:ids))
RETURNING *, EXISTS (
    SELECT 1 FROM payasync_events AS other WHERE other.key = '' || payasync_events.key AND other.id <> payasync_events.id
) OR EXISTS (
    SELECT 1 FROM payasync_events AS other /* INDEXED BY payasync_events_fact */
    WHERE other.fact = '' || payasync_events.fact AND other.id <> payasync_events.id
) OR 0 < (SELECT count(*) FROM payasync_facts AS known WHERE known.fact = '' || payasync_events.fact) AS others;

-- name: not_done
-- Events and the others of their keys, whose handlers are not called again: no person has decided about them yet.
SELECT * FROM payasync_events WHERE state NOT IN ('done', 'superseded') AND key IN (
    SELECT key FROM payasync_events WHERE id IN (SELECT CAST(value AS bigint) FROM json_each(:ids)));

-- name: known
-- The handlers that have got the facts of events. An empty name stands for all handlers of another event that is done.
-- No name says that a query has confirmed one of two events, and that the other is being handled. If both are leased
-- together, the verified one does not wait, unless the confirmed one was interrupted: it may have had its effect.
SELECT event.id, known.handler, known.verified FROM payasync_events AS event
JOIN payasync_facts AS known ON known.fact = event.fact
WHERE event.id IN (SELECT CAST(value AS bigint) FROM json_each(:ids))
UNION ALL SELECT event.id, CASE other.state WHEN 'done' THEN '' END, substr(other.key, 1, 10) <> 'confirmed:'
FROM payasync_events AS event
JOIN payasync_events AS other /* INDEXED BY payasync_events_fact */ ON other.fact = event.fact
WHERE event.id IN (SELECT CAST(value AS bigint) FROM json_each(:ids)) AND other.id <> event.id
AND (
    other.state = 'done'
    OR (
        other.state = 'leased' AND (
            substr(event.key, 1, 10) = 'confirmed:'
            OR (substr(other.key, 1, 10) = 'confirmed:' AND (
                other.attempts > other.failures + 1
                OR other.id NOT IN (SELECT CAST(value AS bigint) FROM json_each(:ids)))))));

-- name: same_fact
-- Other events of a fact. In PostgreSQL this waits until those that are being leased are leased.
SELECT id FROM payasync_events WHERE fact = :fact AND due IS NOT NULL AND id <> :id /* FOR UPDATE */;

-- name: add_fact
INSERT INTO payasync_facts (fact, handler, verified, lasting, since)
SELECT fact, :name, substr(key, 1, 10) <> 'confirmed:', lasting OR substr(key, 1, 10) = 'confirmed:', :now
FROM payasync_events WHERE id = :id AND state = :state AND fence = :fence AND fact IS NOT NULL
ON CONFLICT DO NOTHING RETURNING fact;

-- name: mark_in_sqlite
INSERT INTO handled SELECT id, :handler FROM payasync_events WHERE id = :id AND state = 'leased' AND fence = :fence
ON CONFLICT DO UPDATE SET handler = excluded.handler RETURNING event;

-- name: mark_in_postgres
UPDATE payasync_events SET handled = array_append(array_remove(handled, :handler), :handler)
WHERE id = :id AND state = 'leased' AND fence = :fence RETURNING id;

-- name: is_leased
SELECT id FROM payasync_events WHERE id = :id AND state = 'leased' AND fence = :fence;

-- name: extend
UPDATE payasync_events SET due = :until, since = :now
WHERE id = :id AND state = 'leased' AND fence = :fence RETURNING id;

-- name: own
-- A held event does not stand in the way of another one, unless both are the same. Of those that a query confirms with
-- one fact, the first one waits.
UPDATE payasync_events
SET key = :key, verified = COALESCE(CAST(:verified AS boolean), verified), fact = :fact
WHERE id = :id AND state = 'leased' AND fence = :fence
AND (key = :key OR NOT EXISTS (
    SELECT 1 FROM payasync_events AS other WHERE other.key = :key AND other.id <> :id
    AND (other.state NOT IN ('held', 'superseded') OR other.digest = payasync_events.digest)))
AND NOT EXISTS (
    SELECT 1 FROM payasync_events AS other WHERE other.key IN (SELECT value FROM json_each(:others)) AND other.id <> :id
    AND other.fact IS NULL AND (other.due IS NOT NULL OR other.state = 'done'))
AND NOT (substr(:key, 1, 10) = 'confirmed:' AND EXISTS (
    SELECT 1 FROM payasync_events AS other WHERE other.fact = :fact AND other.id < :id AND other.due IS NOT NULL
    AND substr(other.key, 1, 10) = 'confirmed:'))
RETURNING id;

-- name: finish
-- Others may have to be superseded; see `lease`. One that PostgreSQL stores at the same moment is held, as it would be after
-- the end. The last handler of an event that is done needs no row of the fact, because `known` finds the event: a page
-- less to write. But other rows of the fact may outlive the event, and must not be without that one then.
UPDATE payasync_events
SET state = :state, reason = :reason, since = :now, due = CASE WHEN :state = 'pending' THEN :now + :pause END,
    failures = failures + :failed, attempts = attempts - :waited
WHERE id = :id AND state = 'leased' AND fence = :fence
RETURNING substr(key, 1, 10) = 'confirmed:' OR EXISTS (
    SELECT 1 FROM payasync_events AS other WHERE other.key = '' || payasync_events.key AND other.id <> payasync_events.id
) OR EXISTS (SELECT 1 FROM payasync_events AS other WHERE other.key = 'held:' || payasync_events.key) AS others,
    0 < (SELECT count(*) FROM payasync_facts AS known WHERE known.fact = '' || payasync_events.fact) AS is_known;

-- name: supersede
-- What was held before its key was known has `held:` before the key. Of events of one fact that a query has confirmed,
-- the newest one supersedes others also if a person must act, and these can be deleted. SQLite would read all that is
-- held if it were not told the indexes; PostgreSQL takes them for comments.
UPDATE payasync_events SET
    state = 'superseded', since = :now,
    key = CASE WHEN substr(key, 1, 10) = 'confirmed:' THEN 'hint:' || key || ':' || id ELSE key END
WHERE id IN (
    SELECT other.id FROM payasync_events AS event
    JOIN payasync_events AS other /* INDEXED BY sqlite_autoindex_payasync_events_1 */
    ON other.key IN (event.key, 'held:' || event.key)
    WHERE event.id = :id AND other.id <> :id AND (
        (event.state = 'done' AND other.state = 'held')
        OR (substr(event.key, 1, 10) = 'confirmed:' AND other.state IN ('held', 'dead', 'parked')))
    UNION ALL SELECT other.id FROM payasync_events AS event
    JOIN payasync_events AS other /* INDEXED BY payasync_events_fact */ ON other.fact = event.fact
    WHERE event.id = :id AND other.id <> :id AND other.state IN ('held', 'dead', 'parked')
    AND substr(event.key, 1, 10) = 'confirmed:' AND substr(other.key, 1, 10) = 'confirmed:')
RETURNING id;

-- name: release
-- The next event of the same key, which nobody has seen because the event that is held now came before it.
UPDATE payasync_events SET state = 'pending', reason = '', due = :now, since = :now WHERE id = (
    SELECT min(other.id) FROM payasync_events AS event
    JOIN payasync_events AS other /* INDEXED BY sqlite_autoindex_payasync_events_1 */ ON other.key = event.key
    WHERE event.id = :id AND other.id <> :id AND other.state = 'held' AND other.attempts = 0
    AND substr(other.key, 1, 5) <> 'held:'
    AND NOT EXISTS (
        SELECT 1 FROM payasync_events AS third
        WHERE third.key = event.key AND third.state IN ('pending', 'leased', 'done')))
RETURNING id;

-- name: rename
UPDATE payasync_events SET kind = :kind, key = :key, weak = :weak, fact = :fact
WHERE id = :id AND state IN ('dead', 'parked', 'held')
AND NOT EXISTS (
    SELECT 1 FROM payasync_events AS other WHERE other.key = :key AND other.id <> :id
    AND (other.state NOT IN ('held', 'superseded') OR other.digest = payasync_events.digest))
RETURNING id;

-- name: replay
UPDATE payasync_events
SET state = 'pending', attempts = 0, failures = 0, reason = '', due = :now, since = :now
WHERE id = :id AND state IN ('dead', 'parked', 'held')
AND NOT EXISTS (
    SELECT 1 FROM payasync_events AS other WHERE other.key = payasync_events.key
    AND (other.state IN ('pending', 'leased') OR (:unless_done AND other.state = 'done')))
RETURNING id;

-- name: next_due
SELECT min(due) AS due FROM payasync_events WHERE due IS NOT NULL;

-- name: counts
-- Held events of other merchants have a name of their own, as in `InboxEvent.of_another`: nobody need act on them.
SELECT state, count(*) AS count FROM payasync_events WHERE due IS NOT NULL GROUP BY state
UNION ALL SELECT
    CASE WHEN state = 'held' AND substr(key, 1, 9) = 'merchant:' THEN 'another_merchant' ELSE state END, count(*)
FROM payasync_events WHERE due IS NULL AND state <> 'done' AND state IN ('dead', 'parked', 'held') GROUP BY 1;

-- name: oldest
SELECT * FROM payasync_events WHERE due IS NOT NULL ORDER BY received_at LIMIT 1;

-- name: events
SELECT * FROM payasync_events WHERE id > :after ORDER BY id LIMIT :limit;

-- name: events_of_state
-- Of those that ended, an index has all that are not done. SQLite would look for those that wait among all events.
SELECT * FROM payasync_events WHERE id IN (
    SELECT id FROM (
        SELECT id FROM payasync_events /* INDEXED BY payasync_events_due */
        WHERE :state IN ('pending', 'leased') AND due IS NOT NULL AND state = :state AND id > :after
        ORDER BY id LIMIT :limit) AS waiting
    UNION ALL SELECT id FROM (
        SELECT id FROM payasync_events WHERE due IS NULL AND state <> 'done' AND state = :state AND id > :after
        ORDER BY id LIMIT :limit) AS ended
    UNION ALL SELECT id FROM (
        SELECT id FROM payasync_events WHERE :state = 'done' AND state = 'done' AND id > :after
        ORDER BY id LIMIT :limit) AS done)
ORDER BY id;

-- name: forget
-- A done event stays while another of its key can be replayed, so that a replay of all still leaves that one, and while
-- another of its fact is not done. A count has PostgreSQL look each fact up.
DELETE FROM payasync_events WHERE id IN (
    SELECT id FROM payasync_events
    WHERE (state = 'done' OR state = 'superseded' OR (due IS NULL AND NOT verified))
    AND NOT lasting AND substr(key, 1, 10) <> 'confirmed:'
    AND (state <> 'done' OR NOT EXISTS (
        SELECT 1 FROM payasync_events AS other
        WHERE other.key IN (payasync_events.key, 'held:' || payasync_events.key)
        AND other.state IN ('dead', 'parked', 'held')))
    AND 0 = (
        SELECT count(*) FROM payasync_events AS other
        WHERE other.fact = payasync_events.fact AND other.state NOT IN ('done', 'superseded')
        AND payasync_events.state = 'done')
    AND since < :before ORDER BY since LIMIT :limit /* FOR UPDATE SKIP LOCKED */)
RETURNING id, fact;

-- name: empty
-- An event that can come again at any time is recognised by its key, without a payload.
-- SQLite would sort all events that are done if it were not told its index; PostgreSQL takes this for a comment.
UPDATE payasync_events SET raw = :nothing, headers = '{}' WHERE id IN (
    SELECT id FROM payasync_events /* INDEXED BY payasync_events_to_empty */
    WHERE (state = 'done' OR state = 'superseded')
    AND (lasting OR substr(key, 1, 10) = 'confirmed:') AND length(raw) > 0
    AND since < :before ORDER BY since LIMIT :limit /* FOR UPDATE SKIP LOCKED */)
RETURNING id;

-- name: forget_facts
-- These are the facts of events that were just deleted, so that no index finds them by age: each event would pay for it.
-- Another event of the fact can still be handled, or be one that a query has confirmed, which can always have a copy.
-- Counts have PostgreSQL look each fact up.
DELETE FROM payasync_facts WHERE fact IN (SELECT value FROM json_each(:facts)) AND NOT lasting AND since < :before
AND 0 = (SELECT count(*) FROM payasync_events AS event WHERE event.fact = payasync_facts.fact)
AND 0 = (SELECT count(*) FROM payasync_facts AS other WHERE other.fact = payasync_facts.fact AND other.lasting)
RETURNING fact;
