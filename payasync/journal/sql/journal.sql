-- The statements of a journal. SQLite takes the names of its indexes from the comments; PostgreSQL ignores them.

-- name: add
-- A write to a service other than the merchant's is not stored. A second statement would make each write slower.
--
-- All moments follow from `:now`, so that a database may put its own time there. `:lease` and `:key_sent` are durations.
INSERT INTO payasync_intents
    (operation, merchant, reference, number, intent, hash, request, queued, named, idempotency_key, key_sent, key_tick,
     state, attempts, fence, lease, tick, created, updated)
SELECT
    :operation, :merchant, :reference, :number, :intent, :hash, :request, :queued, :named, :idempotency_key,
    :now + :key_sent, :key_tick, :state, :attempts, :fence, :now + :lease, :tick, :now, :now
WHERE CAST(:service AS text) IS NULL
    OR EXISTS (SELECT 1 FROM payasync_services WHERE merchant = :merchant AND service = :service)
ON CONFLICT DO NOTHING RETURNING id;

-- name: matching
SELECT * FROM payasync_intents
WHERE (merchant = :merchant AND number = :number) OR (merchant = :merchant AND intent = :intent)
ORDER BY id /* FOR UPDATE */;

-- name: set_intent
UPDATE payasync_intents SET intent = coalesce(intent, :intent) WHERE id = :id RETURNING id;

-- name: queue
UPDATE payasync_intents SET
    intent = coalesce(intent, :intent), queued = TRUE, request = :request,
    updated = CASE state WHEN 'rejected' THEN :now ELSE updated END,
    reason = CASE state WHEN 'rejected' THEN '' ELSE reason END,
    state = CASE state WHEN 'rejected' THEN 'new' ELSE state END
WHERE id = :id RETURNING id;

-- name: send
UPDATE payasync_intents SET
    state = 'sending', attempts = attempts + 1, asked = 0, odd = 0, silent = 0, denied = 0, silent_since = NULL,
    fence = fence + 1, lease = :until, tick = :tick, due = NULL, updated = :now, named = :named,
    idempotency_key = :key, key_sent = :key_sent, key_tick = :key_tick,
    answered = answered AND state <> 'unknown', outcome = NULL, reason = ''
WHERE id = :id RETURNING *;

-- name: settle
UPDATE payasync_intents SET
    state = CASE WHEN queued AND :again THEN 'new' ELSE :state END,
    reason = CASE WHEN queued AND :again THEN '' ELSE :reason END, queued = queued AND :queued,
    lease = NULL, due = CASE WHEN :state IN ('accepted', 'unknown') THEN coalesce(:due, :now) END, updated = :now,
    sent_at = CASE :state WHEN 'unknown' THEN :now ELSE sent_at END,
    tick = CASE WHEN :state IN ('unknown', 'accepted') THEN :tick ELSE tick END,
    answered = :answered OR (answered AND :state = 'unknown'), outcome = coalesce(:outcome, outcome), denied = 0,
    silent_since = NULL, ineffective = ineffective + :ineffective
WHERE id = :id AND fence = :fence AND lease IS NOT NULL RETURNING id;

-- name: note_used
-- This fact does not depend on the lease. A holder who queries the intent loses the lease.
UPDATE payasync_intents SET
    answered = TRUE, fence = CASE state WHEN 'unknown' THEN fence + 1 ELSE fence END,
    lease = CASE state WHEN 'unknown' THEN NULL ELSE lease END,
    due = CASE state WHEN 'unknown' THEN coalesce(due, :now) ELSE due END
WHERE id = :id AND ((attempts = :attempts AND state IN ('new', 'rejected'))
    OR (attempts >= :attempts AND state IN ('sending', 'unknown', 'manual'))) RETURNING id;

-- name: postpone
UPDATE payasync_intents SET
    lease = NULL, due = :due, denied = :denied, silent_since = :silent_since, reason = :reason,
    odd = odd + :odd, silent = silent + :silent
WHERE id = :id AND fence = :fence AND lease IS NOT NULL AND state IN ('accepted', 'unknown') RETURNING id;

-- name: due
SELECT * FROM payasync_intents
WHERE merchant = :merchant AND coalesce(lease, due) <= :by
ORDER BY coalesce(lease, due), id LIMIT :limit /* FOR UPDATE SKIP LOCKED */;

-- name: due_of_all
-- This sorts what is open, because the index begins with the merchant. `NEXT_DUE_OF_ALL` does so, too.
SELECT * FROM payasync_intents
WHERE  coalesce(lease, due) <= :by
ORDER BY coalesce(lease, due), id LIMIT :limit /* FOR UPDATE SKIP LOCKED */;

-- name: ask
UPDATE payasync_intents SET
    sent_at = coalesce(:sent_at, sent_at), tick = CASE state WHEN 'sending' THEN :tick ELSE tick END,
    reason = CASE state WHEN 'sending' THEN :interrupted ELSE reason END,
    state = CASE state WHEN 'accepted' THEN state ELSE 'unknown' END,
    asked = asked + 1, fence = fence + 1, lease = :until, due = NULL, key_sent = coalesce(:key_sent, key_sent)
WHERE id = :id RETURNING *;

-- name: next_due
-- With `IS NOT NULL`, SQLite would read every row.
SELECT * FROM payasync_intents
WHERE merchant = :merchant AND coalesce(lease, due) >= :least
ORDER BY coalesce(lease, due), id LIMIT 1;

-- name: next_due_of_all
SELECT * FROM payasync_intents
WHERE  coalesce(lease, due) >= :least
ORDER BY coalesce(lease, due), id LIMIT 1;

-- name: note
UPDATE payasync_intents SET
    reason = :reason, state = CASE WHEN :manual THEN 'manual' ELSE state END,
    updated = CASE WHEN :manual THEN :now ELSE updated END
WHERE id = :id AND state = 'new' AND (reason <> :reason OR :manual) RETURNING id;

-- name: resolve
-- If the intent was done after all, a recorded response that contradicts this is dropped.
UPDATE payasync_intents SET
    sent_at = CASE state WHEN 'sending' THEN :now ELSE sent_at END,
    outcome = CASE WHEN :state = 'succeeded' AND state <> 'accepted' THEN NULL ELSE outcome END,
    state = :state, lease = NULL, due = NULL, fence = fence + 1, updated = :now, reason = :reason,
    silent_since = NULL, queued = queued AND :queued, answered = FALSE
WHERE id = :id RETURNING *;

-- name: prune
-- The condition stands twice. For a row that another transaction has changed, PostgreSQL repeats only the outer one.
-- SQLite would sort all ended rows for each batch if it were not told its indexes; PostgreSQL takes this for comments.
DELETE FROM payasync_intents /* NOT INDEXED */ WHERE id IN (
    SELECT id FROM payasync_intents /* INDEXED BY payasync_intents_ended */
    WHERE state IN ('succeeded', 'rejected') AND updated < :before
    ORDER BY updated LIMIT :limit)
    AND state IN ('succeeded', 'rejected') AND updated < :before
RETURNING id;

-- name: bind
INSERT INTO payasync_services (merchant, service) VALUES (:merchant, :service)
ON CONFLICT DO NOTHING RETURNING service;

-- name: service
SELECT service FROM payasync_services WHERE merchant = :merchant;

-- name: services
SELECT service FROM payasync_services ORDER BY service;

-- name: done_there
SELECT id FROM payasync_intents
WHERE state IN ('sending', 'accepted', 'succeeded', 'unknown', 'manual')
    AND merchant IN (SELECT merchant FROM payasync_services WHERE service = :old)
LIMIT 1;

-- name: move
UPDATE payasync_services SET service = :new WHERE service = :old RETURNING merchant;

-- name: intent
SELECT * FROM payasync_intents WHERE id = :id;

-- name: count
SELECT count(*) AS count FROM payasync_intents WHERE state = :state;

-- name: count_interrupted
SELECT count(*) AS count FROM payasync_intents WHERE state = 'sending' AND lease <= :now;

-- name: count_unsent
SELECT count(*) AS count FROM payasync_intents
WHERE state = 'new' AND CASE reason WHEN '' THEN updated ELSE created END <= :before;

-- name: count_unsent_of
SELECT count(*) AS count FROM payasync_intents
WHERE state = 'new' AND CASE reason WHEN '' THEN updated ELSE created END <= :before AND merchant = :merchant;

-- name: count_without_news
SELECT count(*) AS count FROM payasync_intents
WHERE state = 'accepted' AND (denied >= :questions OR silent_since <= :before);

-- name: count_unsettled
-- These count what `state_now`, `is_unsent` and `needs_person` find. A journal may have too many rows to read all.
SELECT count(*) AS count FROM payasync_intents
WHERE (state = 'unknown' OR (state = 'sending' AND lease <= :now))
    AND NOT (queued AND idempotency_key IS NOT NULL)
    AND CASE WHEN operation = 'payments.create' THEN outcome IS NULL
        ELSE reference IS NULL OR operation NOT IN ('orders.place', 'orders.close', 'refunds.create') END;

-- name: oldest
SELECT * FROM payasync_intents
WHERE state = 'unknown' OR (state = 'sending' AND lease <= :now)
ORDER BY updated LIMIT 1;

-- name: list
SELECT * FROM payasync_intents WHERE id > :after AND merchant = coalesce(:merchant, merchant)
    AND NOT coalesce(created < :since OR created >= :until, FALSE) ORDER BY id LIMIT :limit;

-- name: list_of_state
SELECT * FROM payasync_intents WHERE state = :state AND id > :after AND merchant = coalesce(:merchant, merchant)
    AND NOT coalesce(created < :since OR created >= :until, FALSE) ORDER BY id LIMIT :limit;

-- name: list_of_order
-- With `id` alone, SQLite would read each intent after the one that is given.
SELECT * FROM payasync_intents
WHERE id IN (
    SELECT id FROM payasync_intents WHERE operation = 'refunds.create' AND CASE WHEN json_valid(request) THEN json_extract(request, '$.out_trade_no') END = :order
    UNION ALL SELECT id FROM payasync_intents
    WHERE number IN ('orders.place:' || CAST(:order AS text), 'orders.close:' || CAST(:order AS text)))
    AND state = coalesce(:state, state) AND 0 + id > :after AND merchant = coalesce(:merchant, merchant)
    AND NOT coalesce(created < :since OR created >= :until, FALSE) ORDER BY id LIMIT :limit;

-- name: find
-- The number of an order or a refund has an index already, and a second one would make each write slower.
SELECT * FROM payasync_intents
WHERE (number = :number OR (number IS NULL AND reference = :reference AND operation = :operation))
    AND merchant = coalesce(:merchant, merchant)
ORDER BY id;
