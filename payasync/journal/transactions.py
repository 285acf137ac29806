"""The transactions of a journal, and their SQL statements; no I/O here."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from math import inf
from operator import attrgetter
from typing import Any, Final

from attrs import NOTHING, evolve, fields, frozen

from payasync.endpoints import BY_NAME, CLOSE_ORDER, PLACE_ORDER, Operation
from payasync.errors import InvalidArgumentError
from payasync.evidence.claims import Claim, counts_after
from payasync.evidence.comparison import Comparison, mismatch, names_number_and_amounts
from payasync.journal.intents import (
    ASKED_STATES,
    END_STATES,
    RESOLVABLE_STATES,
    STATES,
    BeginResult,
    Draft,
    Intent,
    Intents,
    State,
    Step,
    asked_for,
    check_queued,
    check_transition,
    doubt_since,
    format_moment,
    match_draft,
    next_idempotency_key,
    next_step,
    seconds_between,
    state_now,
    state_of_claim,
    times_placed,
)
from payasync.journal.reconcile_policy import UNSENT, Patience
from payasync.journal.replay import other_service_error
from payasync.journal.rows import intent_of_row
from payasync.profile.wire_names import MERCHANT
from payasync.storage import Backlog, read_queries
from payasync.storage.transactions import Query, Transaction, Work
from payasync.wire.call import number_key
from payasync.wire.validators import invalid_argument

SQL: Final = read_queries("payasync.journal", "journal")
ADD: Final = SQL["add"]
ORDER_OF: Final = "CASE WHEN json_valid(request) THEN json_extract(request, '$.out_trade_no') END"
"""The order of a refund, as the index has it in SQLite."""
FOR_UPDATE: Final = " /* FOR UPDATE */"
PLACED_AGAIN: Final = "its order was placed again"
INTERRUPTED: Final = "its sender was interrupted"

_LEAST: Final = datetime.min.replace(tzinfo=UTC)
_OF_DRAFT: Final = tuple(each.name for each in fields(Draft))
_attributes: Final = attrgetter(*_OF_DRAFT)
_FIRST_IN_QUEUE: Final[dict[str, Any]] = {
    **{each.name: each.default for each in fields(Intent) if each.default is not NOTHING},
    **dict.fromkeys(("operation", "merchant", "hash", "request", "service", "now")),
    "state": "new",
}
_FIRST_SEND: Final[dict[str, Any]] = {**_FIRST_IN_QUEUE, "state": "sending", "attempts": 1, "fence": 1}
"""The values of `ADD` for a draft that is queued or sent, and the other attributes of the intent that it stores.

`lease` and `key_sent` are durations, or not known. A copy that has all names is filled faster than a dict that grows.
"""
_OPEN: Final[frozenset[State]] = frozenset({"sending", *ASKED_STATES})
"""The states of a close whose outcome is not known yet."""


def find_intents(statement: str, values: Mapping[str, Any]) -> Transaction[Intents]:
    """Return the intents that a statement finds."""
    return [intent_of_row(row) for row in (yield Query(statement, values))]


def change_intents(statement: str, values: Mapping[str, Any]) -> Transaction[int]:
    """Return how many intents a statement has changed or deleted."""
    return len((yield Query(statement, values)))


def _read_column(name: str, statement: str, values: Mapping[str, Any]) -> Transaction[list[Any]]:
    """Return one column of the rows that a statement finds."""
    return [row[name] for row in (yield Query(SQL[statement], values))]


def count_intents(statement: str, values: Mapping[str, Any]) -> Transaction[int]:
    """Return how many intents a statement counts."""
    (count,) = yield from _read_column("count", statement, values)
    return int(count)


@frozen
class ServiceBinding:
    """The service that receives a merchant's writes.

    Attributes:
        service: `Session.service`.
        journal: The place of the journal, for errors.
    """

    service: str
    journal: str


def bind_service(merchant: str, binding: ServiceBinding | None) -> Transaction[None]:
    """Store the service of a merchant's writes, unless one is stored. Refuse any other service.

    Args:
        merchant: The merchant's number.
        binding: The service, or `None` if nothing is sent.
    """
    if binding is None:
        return
    values = {"merchant": merchant, "service": binding.service}
    stored = yield from _read_column("service", "service", values)
    if not stored:
        # Of two processes that come together, one waits here for the other.
        stored = yield from _read_column("service", "bind", values)
    if not stored:
        stored = yield from _read_column("service", "service", values)
    if stored[0] != binding.service:
        raise other_service_error(merchant, stored[0], binding.service, binding.journal)


def move_service(old: str, new: str, *, unused: bool) -> Transaction[tuple[Sequence[str], Sequence[str]]]:
    """Change a service's address. Return its merchants, and all addresses in the journal after the change.

    Args:
        old: Its address.
        new: The new address.
        unused: Move the service only if it has done nothing yet.
    """
    if unused and (done := (yield from _read_column("id", "done_there", {"old": old}))):
        rule = "a real service, or a sandbox that has done no write"
        why = f"intent {done[0]} was done there, or may have been. Use a new journal for the real service"
        raise InvalidArgumentError(f"old must be {rule}: {why}", field="old", rule=rule, value=old)
    merchants = yield from _read_column("merchant", "move", {"old": old, "new": new})
    return merchants, (yield from _read_column("service", "services", {}))


def _store_draft(
    draft: Draft, binding: ServiceBinding | None, values: dict[str, Any], now: datetime
) -> Transaction[tuple[BeginResult, bool]]:
    """Store a draft as an intent, unless intents that have one of its keys are stored already.

    Return what follows, and whether the draft only repeats a stored intent that can be used.
    """
    values |= zip(_OF_DRAFT, _attributes(draft), strict=True)
    values["service"], values["now"] = binding.service if binding else None, now
    while True:
        # Written before anything is read: of two processes that come together, one waits here for the other.
        if stored := (yield Query(ADD, values, is_first=True)):
            return BeginResult(Step.SEND, _intent_of(values, stored[0]["id"], stored[0].get("now", now))), False
        yield from bind_service(draft.merchant, binding)
        if found := (yield from find_intents(SQL["matching"], values)):
            begun = yield from _recheck_close(match_draft(draft, found, now), now)
            return begun, not (begun.step is Step.CONFLICT or begun.intent.damaged)
        # The stored intent was deleted in the meantime, or the merchant had no service yet.


def _intent_of(values: Mapping[str, Any], intent_id: int, began: datetime) -> Intent:
    """Return the intent that `ADD` has stored with these values."""
    now = began.astimezone(UTC)
    facts: dict[str, Any] = {**values, "id": intent_id, "created": now, "updated": now}
    del facts["service"], facts["now"]
    for name in ("lease", "key_sent"):
        facts[name] = None if values[name] is None else now + values[name]
    return Intent(**facts)


def begin(
    draft: Draft, binding: ServiceBinding | None, lease: float, tick: str | None, now: datetime
) -> Transaction[BeginResult]:
    """Store an intent as *sending*, unless a stored intent with one of its keys forbids it."""
    lasts, key = timedelta(seconds=lease), draft.idempotency_key
    values = _FIRST_SEND.copy()
    values["lease"], values["tick"] = lasts, tick
    if key is not None:
        values["key_sent"], values["key_tick"] = timedelta(), tick
    begun, repeats = yield from _store_draft(draft, binding, values, now)
    if not repeats:
        return begun
    if draft.intent is not None:
        yield from change_intents(SQL["set_intent"], {"id": begun.intent.id, "intent": draft.intent})
    facts = {"now": now, "until": now + lasts, "tick": tick, "named": draft.named}
    return (yield from _send(begun, facts, key))


def add(draft: Draft, now: datetime) -> Transaction[BeginResult]:
    """Store an intent as *new*.

    An intent that is stored already is queued from now on, and keeps its state. Only a rejected intent becomes *new*
    again, so that a search for unsent intents finds it.
    """
    begun, repeats = yield from _store_draft(draft, None, _FIRST_IN_QUEUE.copy(), now)
    if repeats:
        queued = {"id": begun.intent.id, "intent": draft.intent, "request": draft.request, "now": now}
        yield from change_intents(SQL["queue"], queued)
    return begun


def claim(
    intent_id: int,
    fence: int | None,
    binding: ServiceBinding | None,
    now: datetime,
    lease: float,
    *,
    tick: str | None = None,
    named: Mapping[str, object] | None = None,
    key: str | None = None,
) -> Transaction[BeginResult]:
    """Lease a stored intent, and make it *sending*, unless its state forbids it."""
    stored = yield from _lock_intent(intent_id)
    yield from bind_service(stored.merchant, binding)
    begun = yield from _recheck_close(BeginResult(next_step(stored, now, fence=fence), stored), now)
    if begun.step is Step.SEND:
        # A person may have rejected the intent after the sender read it.
        check_queued(stored)
    facts = {"now": now, "until": now + timedelta(seconds=lease), "tick": tick, "named": named}
    return (yield from _send(begun, facts, key))


def _place_of(close: Intent) -> Transaction[Intent | None]:
    """Return the intent that placed the order of a close, or `None`."""
    about = values_to_find(PLACE_ORDER.name, close.reference or "", close.merchant)
    found = yield from find_intents(SQL["find"], about)
    return found[0] if found else None


def _recheck_close(begun: BeginResult, now: datetime) -> Transaction[BeginResult]:
    """Return what follows for a caller of a close: it is sent again if its order may be open, placed more than once.

    The response to it may be about the order before, which was closed when the last place arrived.
    """
    close, step = begun.intent, begun.step
    if step not in {Step.ANSWER, Step.ASK} or close.operation != CLOSE_ORDER.name or close.state == "manual":
        return begun
    settled = {"new", "rejected"} if step is Step.ANSWER else {"new"}
    place = None if close.damaged else (yield from _place_of(close))
    if place is None or times_placed(place, close) < 2 or place.state in settled:  # noqa: PLR2004 - twice
        return begun
    ended = yield from _end_close(place, now, queued=close.queued)
    return next((BeginResult(Step.SEND, each) for each in ended if each.id == close.id), begun)


def _end_close(
    placed: Intent, now: datetime, states: Collection[State] = _OPEN, *, queued: bool = False
) -> Transaction[Intents]:
    """Reject the recorded close of an order that is placed again: the next close is sent, under a new key."""
    ended: Intents = []
    about = values_to_find(CLOSE_ORDER.name, placed.reference or "", placed.merchant)
    for each in (yield from find_intents(SQL["find"] + FOR_UPDATE, about)):
        if each.state in {"succeeded", *states}:
            values = {"id": each.id, "state": "rejected", "reason": PLACED_AGAIN, "now": now, "queued": queued}
            ended += yield from find_intents(SQL["resolve"], values)
    return ended


def _send(begun: BeginResult, facts: Mapping[str, Any], key: str | None) -> Transaction[BeginResult]:
    if begun.step is not Step.SEND:
        return begun
    stored = begun.intent
    # A service may repeat its response under the old key, and a close of the order before closes nothing.
    if stored.state == "unknown" and stored.idempotency_key is not None and stored.operation != CLOSE_ORDER.name:
        key, key_sent, key_tick = stored.idempotency_key, stored.key_sent, stored.key_tick
    else:
        key = next_idempotency_key(stored, key)
        key_sent, key_tick = (None, None) if key is None else (facts["now"], facts["tick"])
    values = {"id": stored.id, **facts, "key": key, "key_sent": key_sent, "key_tick": key_tick}
    (sent,) = yield from find_intents(SQL["send"], values)
    if sent.operation == PLACE_ORDER.name:
        # If the same place is repeated after a doubt, a close that came later is still wanted.
        yield from _end_close(sent, facts["now"], () if stored.state == "unknown" else {"manual", *_OPEN})
    return BeginResult(Step.SEND, sent)


def note_used(held: Intent, now: datetime) -> Transaction[bool]:
    """Record that the service called the number used before, unless the end of the intent is known."""
    values = {"id": held.id, "attempts": held.attempts, "now": now}
    return bool((yield from change_intents(SQL["note_used"], values)))


def settle(
    held: Intent,
    state: State,
    *,
    outcome: str | None = None,
    reason: str = "",
    due: datetime | None = None,
    tick: str | None = None,
    answered: bool = False,
) -> Work[bool]:
    """Return a transaction that records the new state of an intent, and returns whether the lease was still valid.

    While the lease is valid, the state is the one that the holder read, because each change of state ends the lease. If
    an intent was queued during its direct call, and is then rejected, it becomes *new*, because its worker had to wait.

    Raises:
        InvalidArgumentError: That state cannot follow.
    """
    check_transition(held.state, state)
    if state == "sending":
        rule = "a state that ends the lease: to send an unknown intent again, call claim() with its fence"
        raise invalid_argument("state", rule, state)
    # The caller knows that it was not done, and may have paid in another way: a task that is left sends nothing.
    queued = not (state == "rejected" and (held.state in ASKED_STATES or outcome is not None))
    again = state == "rejected" and held.state == "sending" and not held.queued
    values = {
        "id": held.id,
        "fence": held.fence,
        "state": state,
        "queued": queued or again,
        "again": again,
        "answered": answered,
        # The end of a send that had an effect comes with a response, or by a query.
        "ineffective": int(held.state == "sending" and state in {"rejected", "new"} and outcome is None),
        "outcome": outcome,
        "reason": reason,
        "due": due,
        "tick": tick,
    }
    return partial(_settle, values)


def _settle(values: Mapping[str, Any], _: datetime) -> Transaction[bool]:
    return bool((yield Query(SQL["settle"], values, is_first=True)))


def postpone(held: Intent, due: datetime, facts: Mapping[str, Any]) -> Transaction[bool]:
    """End a lease without news, if it is still valid."""
    values = {"id": held.id, "fence": held.fence, "due": due, **facts}
    return bool((yield from change_intents(SQL["postpone"], values)))


def ask(
    limit: int,
    now: datetime,
    lease: float,
    *,
    merchant: str | None,
    binding: ServiceBinding | None,
    before: datetime | None,
    tick: str | None = None,
) -> Transaction[Intents]:
    """Lease the intents to query."""
    if merchant is not None:
        yield from bind_service(merchant, binding)
    due = {"by": now if before is None else min(now, before), "merchant": merchant, "limit": limit}
    values = {"now": now, "until": now + timedelta(seconds=lease), "interrupted": INTERRUPTED}
    leased: Intents = []
    for each in (yield from find_intents(SQL["due_of_all" if merchant is None else "due"], due)):
        sent_at, since = _in_doubt_since(each, now, tick)
        known = each.sent_at if each.state == "accepted" else sent_at
        changes = {"sent_at": known, "tick": since, "key_sent": _key_sent(each, now, tick)}
        found = yield from find_intents(SQL["ask"], {**values, "id": each.id, **changes})
        leased += [evolve(one, sent_at=sent_at) for one in found]
    return leased


def _key_sent(stored: Intent, now: datetime, tick: str | None) -> datetime | None:
    """Return when the key of an intent was first sent, by the present clock. If that was set back, the key is older."""
    gone = seconds_between(stored.key_tick, tick)
    if gone is None or stored.key_sent is None:
        return stored.key_sent
    return min(stored.key_sent, now - timedelta(seconds=gone))


def _in_doubt_since(stored: Intent, now: datetime, tick: str | None) -> tuple[datetime | None, str | None]:
    """Return when the doubt about an intent began, by the present clock, which may have been set since.

    If a change of the clock has ended a lease, the holder may still be sending. Then the doubt begins later.
    """
    gone = seconds_between(stored.tick, tick)
    if stored.state == "sending":
        lasts = ((stored.lease or stored.updated) - stored.updated).total_seconds()
        left = 0.0 if gone is None else max(0.0, lasts - gone)
        return now + timedelta(seconds=left), _tick_after(tick, left)
    if gone is None or (stored.sent_at is None and stored.state != "accepted"):
        return stored.sent_at, tick
    # Never earlier than the stored time: if the last attempt has no tick, the tick is of an earlier attempt.
    return max(stored.sent_at or stored.updated, now - timedelta(seconds=gone)), tick


def _tick_after(tick: str | None, seconds: float) -> str | None:
    if tick is None or not seconds:
        return tick
    clock, then = tick.split(" ")
    return f"{clock} {float(then) + seconds}"


def count_sends(about: Mapping[str, Any], now: datetime, tick: str | None) -> Transaction[tuple[int, float]]:
    """Return how often a number was sent, and the seconds since the end of the last send, by the present clock."""
    found = [each for each in (yield from find_intents(SQL["find"], about)) if each.sends]
    ended = max((_end_of_send(each, now, tick) for each in found), default=None)
    return sum(each.sends for each in found), inf if ended is None else (now - ended).total_seconds()


def _end_of_send(stored: Intent, now: datetime, tick: str | None) -> datetime:
    """Return when the last send of an intent ended; soon, while it is in progress."""
    if stored.state == "sending":
        return min(stored.lease or now, now + timedelta(seconds=1))
    return max(stored.last_send, _in_doubt_since(stored, now, tick)[0] or stored.last_send)


def next_due(merchant: str | None) -> Transaction[datetime | None]:
    """Return when the first query is due or the first lease ends, or `None`."""
    statement = SQL["next_due_of_all"] if merchant is None else SQL["next_due"]
    found = yield from find_intents(statement, {"merchant": merchant, "least": _LEAST})
    return (found[0].lease or found[0].due) if found else None


def backlog(now: datetime) -> Transaction[Backlog]:
    """Return what is not at its end, as `payasync journal` shows it."""
    counts: dict[str, int] = {}
    for state in STATES:
        if state not in END_STATES:
            counts[state] = yield from count_intents("count", {"state": state})
    interrupted = yield from count_intents("count_interrupted", {"now": now})
    counts["sending"] -= interrupted
    counts["unknown"] += interrupted
    unsent = yield from count_intents("count_unsent", {"before": now - UNSENT})
    patience = Patience()
    silent = {"questions": patience.questions, "before": now - timedelta(seconds=patience.give_up)}
    accepted = yield from count_intents("count_without_news", silent)
    unsettled = yield from count_intents("count_unsettled", {"now": now})
    unknown = yield from find_intents(SQL["oldest"], {"now": now})
    due = yield from next_due(None)
    return Backlog(
        counts=counts,
        needs_person={"new": unsent, "accepted": accepted, "unknown": unsettled, "manual": counts["manual"]},
        oldest=max((now - doubt_since(unknown[0])).total_seconds(), 0.0) if unknown else 0.0,
        overdue=max((now - due).total_seconds(), 0.0) if due else 0.0,
    )


def resolve(
    intent_id: int, state: State, reason: str, seen: tuple[State | None, int | None], now: datetime
) -> Transaction[Intent]:
    """End an intent as a person decided. If it is rejected, a queue that still has its number does not send it."""
    stored = yield from _lock_intent(intent_id)
    before = state_now(stored, now)
    if before not in RESOLVABLE_STATES:
        raise _not_resolvable_error(stored, state)
    shown, attempts = seen
    if shown not in {None, stored.state, before}:
        rule = f"the state of intent {intent_id}, which is now {before}: look at it again"
        raise invalid_argument("seen", rule, shown)
    if attempts not in {None, stored.attempts}:
        rule = f"the number of sends of intent {intent_id}, which is now {stored.attempts}: look at it again"
        raise invalid_argument("attempts", rule, attempts)
    check_transition(before, state)
    values = {"id": intent_id, "state": state, "reason": reason, "now": now, "queued": state != "rejected"}
    (resolved,) = yield from find_intents(SQL["resolve"], values)
    return resolved


def _not_resolvable_error(stored: Intent, wanted: State) -> InvalidArgumentError:
    rule = "only new, accepted, unknown or manual ones can be ended"
    stands = f"{stored.state} already" if stored.state in END_STATES else stored.state
    if stored.lease is not None:
        stands += f", and held by a process until {format_moment(stored.lease)} at the latest"
    done = ""
    if stored.state == wanted:
        done = f". Nothing is left to do: payasync journal show {stored.id} shows it"
    elif stored.state in END_STATES:
        done = (
            f". An end cannot be changed: if it is wrong, let nobody repeat {stored.reference or stored.intent or 'it'}"
        )
    return InvalidArgumentError(
        f"intent {stored.id} is {stands}; {rule}{done}", field="intent_id", rule=rule, value=stored.id
    )


def values_to_find(operation: str, reference: str, merchant: str | None) -> dict[str, Any]:
    """Return the values of `FIND`."""
    number = number_key(BY_NAME[operation], reference) if operation in BY_NAME else None
    return {"number": number, "operation": operation, "reference": reference, "merchant": merchant}


@frozen
class StateReport:
    """A report of the service about a write, such as a notification.

    Attributes:
        write: The operation.
        reference: The number of the order or refund.
        merchant: The merchant's number.
        claim: What the report claims about the write.
        reason: In one line.
        data: The data that the service sent, such as the notification's `data`.
        things: Where `data` may name the number, amounts, currency and merchant.
    """

    write: Operation
    reference: str
    merchant: str
    claim: Claim
    reason: str
    data: object
    things: Comparison


def apply_state_report(report: StateReport, now: datetime) -> Transaction[tuple[Intents, Sequence[tuple[Intent, str]]]]:
    """End the open intents that a report is about. A rejected intent that it contradicts becomes `manual`.

    Returns:
        The intents whose state changed. Then the intents with the same number that the report is not about, each with
        the reason.
    """
    changed: Intents = []
    others: list[tuple[Intent, str]] = []
    about = values_to_find(report.write.name, report.reference, report.merchant)
    for each in (yield from find_intents(SQL["find"] + FOR_UPDATE, about)):
        stands = state_now(each, now)
        placed = (yield from _place_of(each)) if report.write == CLOSE_ORDER else None
        after = _state_by_report(each, stands, report.claim, times_placed(placed, each) if placed else each.sends)
        if after is None:
            continue
        asked = {MERCHANT: report.merchant, **asked_for(each)}
        if each.damaged:
            others.append((each, each.damaged))
        elif objection := mismatch(asked, report.things, report.data):
            others.append((each, objection.words))
        elif each.answered and not names_number_and_amounts(report.write, asked, report.things, report.data):
            others.append((each, "its number was used before, and the number or an amount is missing"))
        else:
            why = f"rejected, and {report.reason}" if stands == "rejected" else report.reason
            values = {"id": each.id, "state": after, "reason": why, "now": now, "queued": after != "rejected"}
            changed += yield from find_intents(SQL["resolve"], values)
    return changed, others


def _state_by_report(stored: Intent, stands: State, claim: Claim, sends: int) -> State | None:
    """Return the state that a report gives an intent, or `None` if the report changes nothing.

    Nobody knows when the service knew what it reports. About a number that was sent several times, only a query decides
    that it ended. If the intent waits for another send, but the report says that it was done, it is not sent.
    """
    end = state_of_claim(claim)
    again = stands == "new" and stored.attempts > 0 and end == "succeeded"
    again &= stored.operation != CLOSE_ORDER.name or sends == 1
    if again or (stands in ASKED_STATES and counts_after(claim, stored.operation, None, sends=sends) <= 0):
        return end
    # An order that nobody closed may end by itself: that moves no money.
    contradicted = stands == "rejected" and end == "succeeded" and stored.operation != CLOSE_ORDER.name
    return "manual" if contradicted else None


def _lock_intent(intent_id: int) -> Transaction[Intent]:
    found = yield from find_intents(SQL["intent"] + FOR_UPDATE, {"id": intent_id})
    if not found:
        raise invalid_argument("intent_id", "the number of an intent in the journal", intent_id)
    return found[0]
