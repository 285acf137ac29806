"""The SQL of a journal, which SQLite and PostgreSQL read alike."""

from typing import Final

ADD: Final = """
INSERT INTO payasync_intents
    (operation, merchant, reference, number, intent, hash, request, queued, named, state, attempts, fence, lease,
     tick, created, updated)
SELECT
    :operation, :merchant, :reference, :number, :intent, :hash, :request, :queued, :named, :state, :attempts, :fence,
    :lease, :tick, :now, :now
WHERE CAST(:service AS text) IS NULL
    OR EXISTS (SELECT * FROM payasync_services WHERE merchant = :merchant AND service = :service)
ON CONFLICT DO NOTHING RETURNING id"""
"""A write to a service other than the merchant's is not kept. A second statement would make each write slower."""
MATCHING: Final = """
SELECT * FROM payasync_intents
WHERE (merchant = :merchant AND number = :number) OR (merchant = :merchant AND intent = :intent)
ORDER BY id"""
ADOPT: Final = "UPDATE payasync_intents SET intent = coalesce(intent, :intent) WHERE id = :id RETURNING id"
QUEUE: Final = """
UPDATE payasync_intents SET
    intent = coalesce(intent, :intent), queued = TRUE, request = :request,
    updated = CASE state WHEN 'rejected' THEN :now ELSE updated END,
    reason = CASE state WHEN 'rejected' THEN '' ELSE reason END,
    state = CASE state WHEN 'rejected' THEN 'new' ELSE state END
WHERE id = :id RETURNING id"""

SEND: Final = """
UPDATE payasync_intents SET
    state = 'sending', attempts = attempts + 1, asked = 0, denied = 0, silent_since = NULL, fence = fence + 1,
    lease = :until, tick = :tick, due = NULL, updated = :now, named = :named,
    answered = answered AND state <> 'unknown', outcome = NULL, reason = ''
WHERE id = :id RETURNING *"""
SETTLE: Final = """
UPDATE payasync_intents SET
    state = CASE WHEN queued AND :again THEN 'new' ELSE :state END,
    reason = CASE WHEN queued AND :again THEN '' ELSE :reason END, queued = queued AND :queued,
    lease = NULL, due = :due, updated = :now, sent_at = coalesce(:sent_at, sent_at),
    tick = CASE :state WHEN 'unknown' THEN :tick ELSE tick END,
    answered = :answered OR (answered AND :state = 'unknown'), outcome = coalesce(:outcome, outcome), denied = 0,
    silent_since = NULL
WHERE id = :id AND fence = :fence AND lease IS NOT NULL RETURNING id"""
NOTE_USED: Final = """
UPDATE payasync_intents SET
    answered = TRUE, fence = CASE state WHEN 'unknown' THEN fence + 1 ELSE fence END,
    lease = CASE state WHEN 'unknown' THEN NULL ELSE lease END,
    due = CASE state WHEN 'unknown' THEN coalesce(due, :now) ELSE due END
WHERE id = :id AND ((attempts = :attempts AND state IN ('new', 'rejected'))
    OR (attempts >= :attempts AND state IN ('sending', 'unknown', 'manual'))) RETURNING id"""
"""True of the number, whoever holds the claim by now. A holder who asks about the intent loses the claim."""
POSTPONE: Final = """
UPDATE payasync_intents SET lease = NULL, due = :due, denied = :denied, silent_since = :silent_since, reason = :reason
WHERE id = :id AND fence = :fence AND lease IS NOT NULL AND state IN ('unknown', 'accepted') RETURNING id"""

DUE: Final = """
SELECT * FROM payasync_intents
WHERE coalesce(lease, due) <= :by AND merchant = coalesce(:merchant, merchant)
ORDER BY coalesce(lease, due), id LIMIT :limit"""
ASK: Final = """
UPDATE payasync_intents SET
    sent_at = coalesce(:sent_at, sent_at), tick = CASE state WHEN 'sending' THEN :tick ELSE tick END,
    updated = CASE state WHEN 'sending' THEN :now ELSE updated END,
    reason = CASE state WHEN 'sending' THEN :interrupted ELSE reason END,
    state = CASE state WHEN 'sending' THEN 'unknown' ELSE state END,
    asked = asked + 1, fence = fence + 1, lease = :until, due = NULL
WHERE id = :id RETURNING *"""
NEXT_DUE: Final = """
SELECT * FROM payasync_intents
WHERE coalesce(lease, due) IS NOT NULL AND merchant = coalesce(:merchant, merchant)
ORDER BY coalesce(lease, due), id LIMIT 1"""

NOTE: Final = """
UPDATE payasync_intents SET reason = :reason
WHERE id = :id AND state = 'new' AND reason <> :reason RETURNING id"""
RESOLVE: Final = """
UPDATE payasync_intents SET
    sent_at = CASE state WHEN 'sending' THEN :now ELSE sent_at END,
    outcome = CASE WHEN :state = 'succeeded' AND state <> 'accepted' THEN NULL ELSE outcome END,
    state = :state, lease = NULL, due = NULL, fence = fence + 1, updated = :now, reason = :reason,
    silent_since = NULL, queued = queued AND :queued, answered = FALSE
WHERE id = :id RETURNING *"""
"""A recorded response that said otherwise is dropped when the intent was done after all."""
PRUNE: Final = """
DELETE FROM payasync_intents WHERE id IN (
    SELECT id FROM payasync_intents WHERE state IN ('succeeded', 'rejected') AND updated < :before
    ORDER BY updated LIMIT :limit)
    AND state IN ('succeeded', 'rejected') AND updated < :before
RETURNING id"""
"""Said twice: PostgreSQL looks again at a row that another transaction has changed, and only at the outer condition."""

BIND: Final = """
INSERT INTO payasync_services (merchant, service) VALUES (:merchant, :service)
ON CONFLICT DO NOTHING RETURNING service"""
SERVICES: Final = """
SELECT service FROM payasync_services WHERE merchant = coalesce(:merchant, merchant) ORDER BY service"""
DONE_THERE: Final = """
SELECT id FROM payasync_intents
WHERE state NOT IN ('new', 'rejected') AND merchant IN (SELECT merchant FROM payasync_services WHERE service = :old)
ORDER BY id LIMIT 1"""
MOVE: Final = "UPDATE payasync_services SET service = :new WHERE service = :old RETURNING merchant"

INTENT: Final = "SELECT * FROM payasync_intents WHERE id = :id"
LIST: Final = "SELECT * FROM payasync_intents WHERE id > :after ORDER BY id LIMIT :limit"
LIST_OF_STATE: Final = "SELECT * FROM payasync_intents WHERE state = :state AND id > :after ORDER BY id LIMIT :limit"
FIND: Final = """
SELECT * FROM payasync_intents
WHERE reference = :reference AND operation = :operation AND merchant = coalesce(:merchant, merchant)
ORDER BY id"""
