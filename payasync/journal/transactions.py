"""What a journal does with its intents in one transaction; no I/O here."""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias, TypeVar

from attrs import frozen

from payasync.endpoints import CLOSE_ORDER, Operation
from payasync.errors import (
    AuthenticationError,
    DuplicateError,
    InvalidArgumentError,
    OutcomeUnknownError,
    PayasyncError,
    RateLimitedError,
    ServiceError,
)
from payasync.journal import statements
from payasync.journal.clock import after, between
from payasync.journal.entries import other_service_error
from payasync.journal.intents import (
    ASKED,
    ENDS,
    FOR_A_PERSON,
    Begun,
    Draft,
    Intent,
    Intents,
    State,
    Step,
    asked_for,
    check_queued,
    check_transition,
    follows,
    matched,
    standing,
)
from payasync.profile.profile import Profile
from payasync.wire.call import Call, Comparison, Reply
from payasync.wire.match import mismatch, names_number_and_amounts
from payasync.wire.request import invalid
from payasync.wire.response import OrderResponse, PaymentResponse, RefundResponse, Response

FOR_UPDATE: Final = "FOR UPDATE"
UNLESS_LOCKED: Final = "FOR UPDATE SKIP LOCKED"

T = TypeVar("T")


@frozen
class Asked:
    """What is asked of a database.

    Attributes:
        statement: One of `statements`.
        values: By their names in it.
        lock: How to lock what is found, where not the whole database is locked anyway.
        column: The one column that it gives, in place of whole intentions.
    """

    statement: str
    values: Mapping[str, Any]
    lock: str = ""
    column: str = ""


Transaction: TypeAlias = Generator[Asked, Any, T]
"""Whoever runs it sends it what each statement gives, and commits at its end."""


async def run(transaction: Transaction[T], answer: Callable[[Asked], Awaitable[Any]]) -> T:
    """Run a transaction to its end.

    Args:
        transaction: What is to be done.
        answer: Asks the database.
    """
    try:
        asked = next(transaction)
        while True:
            asked = transaction.send(await answer(asked))
    except StopIteration as end:
        done: T = end.value
        return done


def intents(statement: str, values: Mapping[str, Any], lock: str = "") -> Transaction[Intents]:
    """Return the intentions that a statement gives."""
    found: Intents = yield Asked(statement, values, lock)
    return found


def numbers(statement: str, values: Mapping[str, Any]) -> Transaction[Sequence[int]]:
    """Return the numbers of the intentions that a statement has kept or changed: what most writes come to."""
    found: Sequence[int] = yield Asked(statement, values, column="id")
    return found


@frozen
class Where:
    """Where a write goes to.

    Attributes:
        service: As `Session.service` says it.
        journal: Where its journal is, as a person may see it.
    """

    service: str
    journal: str


def bind_service(merchant: str, where: Where | None) -> Transaction[None]:
    """Keep which service a merchant's writes go to, where none is kept; refuse any other.

    Args:
        merchant: The merchant's number.
        where: Where they go to; `None` as long as nobody sends.
    """
    if where is None:
        return
    known = Asked(statements.SERVICES, {"merchant": merchant}, column="service")
    kept: Sequence[str] = yield known
    if not kept:
        # Of two who come at once, one waits here for the other.
        values = {"merchant": merchant, "service": where.service}
        kept = (yield Asked(statements.BIND, values, column="service")) or (yield known)
    if kept[0] != where.service:
        raise other_service_error(merchant, kept[0], where.service, where.journal)


def move_service(old: str, new: str, *, unused: bool) -> Transaction[tuple[Sequence[str], Sequence[str]]]:
    """Give a service another address; return the merchants that are its own, and all addresses there are then.

    Args:
        old: Its address.
        new: The other one.
        unused: Only where it has done nothing yet, and may not have.
    """
    if unused and (done := (yield from numbers(statements.DONE_THERE, {"old": old}))):
        rule = "a service that has done nothing, where it is the sandbox"
        why = f"old must be {rule}: intention {done[0]} was done there, or may have been"
        raise InvalidArgumentError(why, field="old", rule=rule, value=old)
    merchants: Sequence[str] = yield Asked(statements.MOVE, {"old": old, "new": new}, column="merchant")
    services: Sequence[str] = yield Asked(statements.SERVICES, {"merchant": None}, column="service")
    return merchants, services


_PAID: Final[Mapping[str, State]] = {
    "paid": "succeeded",
    "refunded": "succeeded",
    "closed": "rejected",
    "expired": "rejected",
    "failed": "rejected",
}
"""What was ordered and will not be paid any more, was not done: it may be tried again."""

BY_STATE: Final[Mapping[str, Mapping[str, State]]] = {
    "payments.create": _PAID,
    "orders.place": _PAID,
    # A target state: an order that cannot be paid any more has reached it, one that was paid never will.
    "orders.close": {
        "closed": "succeeded",
        "expired": "succeeded",
        "failed": "succeeded",
        "paid": "rejected",
        "refunded": "rejected",
    },
    "refunds.create": {"succeeded": "succeeded", "failed": "rejected"},
}
"""By operation, and by our name of a thing's state, what that says of the write; of all others it says nothing yet."""

_ANSWERS: Final[Mapping[str, type[Response]]] = {
    "payments.create": PaymentResponse,
    "orders.place": OrderResponse,
    "refunds.create": RefundResponse,
}
"""The writes that are not at their end with their answer."""

_PASSING: Final = (AuthenticationError, RateLimitedError)
"""Refusals that say nothing of the write itself: too many at once, or a key that is being changed."""


def state_of_response(call: Call, reply: Reply) -> State:
    """Return the state that the service's success gives to a write.

    It is *accepted* only where the service can be asked for more: what nobody will hear of again has succeeded.
    """
    kind = _ANSWERS.get(call.operation.name)
    if kind is None:
        return "succeeded"
    response = kind.of(call, reply)
    told = BY_STATE[call.operation.name].get(response.state or "")
    return told or ("accepted" if _can_be_asked(call, response) else "succeeded")


def reason_of(call: Call, reply: Reply, state: State) -> str:
    """Return, in one line, why the service's success gives that state: of what it took, and declines, what it says."""
    if state != "rejected":
        return ""
    response = _ANSWERS[call.operation.name].of(call, reply)
    return f"the {response.thing}'s state is {response.state}"


def _can_be_asked(call: Call, response: Response) -> bool:
    shape = call.profile.answer
    number = response.payment_id if isinstance(response, PaymentResponse) and shape.payment_id else call.reference
    return number is not None and tells_states(call.profile, response.thing)


def tells_states(profile: Profile, thing: str) -> bool:
    """Return whether a profile says where a thing's state stands, and what it means."""
    return bool(getattr(profile.answer, f"{thing}_status") and getattr(profile.states, thing))


def state_of_error(call: Call, error: Exception, intent: Intent) -> State:
    """Return the state that an error gives to a write.

    Who queued it may be gone when it is sent again after a doubt: what was refused then is given to a person.

    Args:
        call: Which write.
        error: Of ours, or of a layer of the user's.
        intent: The intention, as it was when it was sent.
    """
    if isinstance(error, OutcomeUnknownError | DuplicateError):
        # The number was used before, by whomever: the service is asked what stands under it.
        return "unknown"
    if isinstance(error, ServiceError) and not isinstance(error, _PASSING):
        return "manual" if intent.queued and intent.sent_at is not None else "rejected"
    return state_of_unsent(intent) if _is_unsent(call, error) else "unknown"


def may_be_of_an_earlier_attempt(intent: Intent, state: State | None) -> bool:
    """Return whether the word that a thing was not done may be about an attempt before the one that is in doubt.

    What was sent more than once may have several that the service can speak of, and the last may still arrive. An order
    that is paid is never closed, whichever attempt that is said of.

    Args:
        intent: The intention, as it was when it was sent, or asked about.
        state: What the service's word says of it.
    """
    return state == "rejected" and intent.attempts > 1 and intent.operation != CLOSE_ORDER.name


def state_of_unsent(intent: Intent) -> State:
    """Return the state of a write that was not done by this call, and that nothing speaks against.

    A direct one is its caller's to repeat. One that was queued waits for a worker again, unless an earlier attempt may
    have arrived: it is asked about then, until it is done.

    Args:
        intent: The intention, as it was when it was sent.
    """
    if not intent.queued:
        return "rejected"
    return "new" if intent.sent_at is None else "unknown"


def _is_unsent(call: Call, error: Exception) -> bool:
    """Return whether an error proves that this call has done nothing: that of a user's layer says nothing of that."""
    if not isinstance(error, PayasyncError):
        return not call.progress.begun
    return error.sent is False or isinstance(error, _PASSING)


INTERRUPTED: Final = "whoever was sending it was interrupted"


def begin(
    draft: Draft, where: Where | None, now: datetime, lease: float, *, tick: str | None = None
) -> Transaction[Begun]:
    """Keep an intention as *sending*, unless its key says that it must not be sent."""
    until = now + timedelta(seconds=lease)
    first = {"state": "sending", "attempts": 1, "fence": 1, "lease": until, "tick": tick}
    added, kept = yield from _added(draft, where, first, now)
    if added:
        return Begun(Step.SEND, kept[0])
    begun = matched(draft, kept, now)
    if begun.step is not Step.CONFLICT and draft.intent is not None:
        yield from numbers(statements.ADOPT, {"id": begun.intent.id, "intent": draft.intent})
    return (yield from _sent(begun, now, until, tick, draft.named))


def add(draft: Draft, now: datetime) -> Transaction[Begun]:
    """Keep an intention as *new*.

    One that is there already is queued from now on, and keeps its state; only what was rejected is *new* again, so
    that whoever looks for what nobody sends finds it.
    """
    first = {"state": "new", "attempts": 0, "fence": 0, "lease": None, "tick": None}
    added, kept = yield from _added(draft, None, first, now)
    begun = matched(draft, kept, now)
    if not added and begun.step is not Step.CONFLICT:
        queued = {"id": begun.intent.id, "intent": draft.intent, "request": draft.request, "now": now}
        yield from numbers(statements.QUEUE, queued)
    return begun


def _added(
    draft: Draft, where: Where | None, first: Mapping[str, Any], now: datetime
) -> Transaction[tuple[bool, Intents]]:
    """Keep a draft, or return what has one of its keys already."""
    values: dict[str, Any] = {
        "operation": draft.operation,
        "merchant": draft.merchant,
        "reference": draft.reference,
        "number": draft.number,
        "intent": draft.intent,
        "hash": draft.hash,
        "request": draft.request,
        "queued": draft.queued,
        "named": draft.named,
    }
    service = where.service if where else None
    while True:
        # Written before anything is read: of two who come at once, one waits here for the other.
        if added := (yield from numbers(statements.ADD, {**values, **first, "now": now, "service": service})):
            return True, [Intent(**values, **first, id=added[0], created=now, updated=now)]
        yield from bind_service(draft.merchant, where)
        if kept := (yield from intents(statements.MATCHING, values, FOR_UPDATE)):
            return False, kept


def claim(
    intent_id: int,
    fence: int | None,
    where: Where | None,
    now: datetime,
    lease: float,
    *,
    tick: str | None = None,
    named: Mapping[str, object] | None = None,
) -> Transaction[Begun]:
    """Make an intention *sending*, unless its state forbids it."""
    kept = yield from _existing(intent_id)
    yield from bind_service(kept.merchant, where)
    begun = Begun(follows(kept, now, fence=fence), kept)
    if begun.step is Step.SEND:
        # Looked at by its sender before, and perhaps rejected by a person since.
        check_queued(kept)
    return (yield from _sent(begun, now, now + timedelta(seconds=lease), tick, named))


def _sent(
    begun: Begun, now: datetime, until: datetime, tick: str | None, named: Mapping[str, object] | None
) -> Transaction[Begun]:
    if begun.step is not Step.SEND:
        return begun
    values = {"id": begun.intent.id, "now": now, "until": until, "tick": tick, "named": named}
    (sent,) = yield from intents(statements.SEND, values)
    return Begun(Step.SEND, sent)


def note_used(held: Intent, now: datetime) -> Transaction[bool]:
    """Keep that the service said "used before" of what was sent, unless its end is known."""
    values = {"id": held.id, "attempts": held.attempts, "now": now}
    return bool((yield from numbers(statements.NOTE_USED, values)))


def settle(
    held: Intent,
    state: State,
    due: datetime | None,
    now: datetime,
    facts: Mapping[str, Any],
    *,
    tick: str | None = None,
    answered: bool = False,
) -> Transaction[bool]:
    """Keep what became of an intention, where the claim still counts.

    While it counts, the state is the one that the holder was given: whoever changes it takes the claim away. What was
    added while it was sent directly, and is rejected, is as what is added right after that: its worker was told that
    somebody is at it, and hears of the end from nobody.
    """
    check_transition(held.state, state)
    if state == "sending":
        raise invalid("state", "an end of the claim: who holds an unknown one claims it with its fence", state)
    moments = {
        "now": now,
        "due": (due or now) if state in ASKED else None,
        "sent_at": now if state == "unknown" else None,
        "tick": tick,
    }
    # Whoever believed in it is told that it was not done, or what was taken and declined has said so: no task that is
    # left of it sends it after that.
    queued = not (state == "rejected" and (held.state in ASKED or facts["outcome"] is not None))
    again = state == "rejected" and held.state == "sending" and not held.queued
    end = {"state": state, "queued": queued or again, "again": again, "answered": answered}
    settled = {"id": held.id, "fence": held.fence, **end, **moments, **facts}
    return bool((yield from numbers(statements.SETTLE, settled)))


def postpone(held: Intent, due: datetime, facts: Mapping[str, Any]) -> Transaction[bool]:
    """End a claim without news, where it still counts."""
    values = {"id": held.id, "fence": held.fence, "due": due, **facts}
    return bool((yield from numbers(statements.POSTPONE, values)))


@frozen
class Whose:
    """Whose intentions are asked about: one merchant's, at one service, or everybody's."""

    merchant: str | None = None
    where: Where | None = None


def ask(
    limit: int, whose: Whose, before: datetime | None, now: datetime, lease: float, *, tick: str | None = None
) -> Transaction[Intents]:
    """Claim what the service is to be asked about."""
    if whose.merchant is not None:
        yield from bind_service(whose.merchant, whose.where)
    due = {"by": now if before is None else min(now, before), "merchant": whose.merchant, "limit": limit}
    values = {"now": now, "until": now + timedelta(seconds=lease), "interrupted": INTERRUPTED}
    claimed: Intents = []
    for each in (yield from intents(statements.DUE, due, UNLESS_LOCKED)):
        sent_at, since = _doubt(each, now, tick)
        claimed += yield from intents(statements.ASK, {**values, "id": each.id, "sent_at": sent_at, "tick": since})
    return claimed


def _doubt(kept: Intent, now: datetime, tick: str | None) -> tuple[datetime | None, str | None]:
    """Return since when an intention is in doubt, by what time it is now: the clock may have been set meanwhile.

    Who was sending where the clock has ended its lease, and not time, may still be at it: the doubt is yet to begin.
    """
    gone = between(kept.tick, tick)
    if kept.state == "sending":
        lasts = ((kept.lease or kept.updated) - kept.updated).total_seconds()
        left = 0.0 if gone is None else max(0.0, lasts - gone)
        return now + timedelta(seconds=left), after(tick, left)
    if gone is None or kept.sent_at is None:
        return kept.sent_at, tick
    # Never earlier than what is kept: the tick may be of an attempt before, where another sent without one.
    return max(kept.sent_at, now - timedelta(seconds=gone)), tick


def next_due(merchant: str | None) -> Transaction[datetime | None]:
    """Return when the first intention is to be asked about, or a lease ends."""
    found = yield from intents(statements.NEXT_DUE, {"merchant": merchant})
    return (found[0].lease or found[0].due) if found else None


def resolve(
    intent_id: int, state: State, reason: str, seen: tuple[State | None, int | None], now: datetime
) -> Transaction[Intent]:
    """End an intention by a person's word; what is rejected so, no queue that has its number still sends."""
    kept = yield from _existing(intent_id)
    before = standing(kept, now)
    if before not in FOR_A_PERSON:
        raise _not_a_persons(kept)
    shown, attempts = seen
    if shown not in {None, kept.state, before}:
        raise invalid("seen", f"what intention {intent_id} is by now, {before}: look at it again", shown)
    if attempts not in {None, kept.attempts}:
        rule = f"how often intention {intent_id} was sent by now, {kept.attempts}: look at it again"
        raise invalid("attempts", rule, attempts)
    check_transition(before, state)
    values = {"id": intent_id, "state": state, "reason": reason, "now": now, "queued": state != "rejected"}
    (resolved,) = yield from intents(statements.RESOLVE, values)
    return resolved


def _not_a_persons(kept: Intent) -> InvalidArgumentError:
    rule = "only new, accepted, unknown or manual ones can be ended"
    stands = f"{kept.state} already" if kept.state in ENDS else kept.state
    if kept.lease is not None:
        stands += f", and somebody's until {kept.lease.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC at the latest"
    return InvalidArgumentError(f"intention {kept.id} is {stands}; {rule}", field="intent_id", rule=rule, value=kept.id)


@frozen
class Said:
    """What the service has said, and in what it is compared with a write.

    Attributes:
        write: The operation that it is about.
        data: Such as the data of a notification.
        compared: Where it may name what it is about.
        profile: Says whether the merchant was sent, if an earlier version kept the write.
    """

    write: Operation
    data: object
    compared: Comparison
    profile: Profile


@frozen
class Word:
    """What the service's own word comes to.

    Attributes:
        changed: The intentions that have another state by it.
        others: Those that it is not about, though it is under their number, and in what it is about something else.
    """

    changed: Intents
    others: Sequence[tuple[Intent, str]]


def told(about: Mapping[str, str], said: Said, state: State, reason: str, now: datetime) -> Transaction[Word]:
    """End, by the service's own word, what is about a thing and is open; what it contradicts is for a person.

    No word about something else under its number changes anything.
    """
    changed: Intents = []
    others: list[tuple[Intent, str]] = []
    for each in (yield from intents(statements.FIND, about, FOR_UPDATE)):
        stands = standing(each, now)
        after = _by_word(each, stands, state)
        if after is None:
            continue
        asked = asked_for(each, said.profile)
        if objection := mismatch(asked, said.compared, said.data):
            others.append((each, objection.words))
        elif each.answered and not names_number_and_amounts(said.write, asked, said.compared, said.data):
            others.append((each, "its number was used before, and the number or an amount is missing"))
        else:
            why = f"rejected, and {reason}" if stands == "rejected" else reason
            values = {"id": each.id, "state": after, "reason": why, "now": now, "queued": after != "rejected"}
            changed += yield from intents(statements.RESOLVE, values)
    return Word(changed, others)


def _by_word(kept: Intent, stands: State, end: State) -> State | None:
    """Return what becomes of an intention by the service's word about its end; `None`: nothing.

    Of what was sent several times, that word may be of an earlier attempt: it rejects nothing then, and asking does.
    What waits to be sent again, and was done the first time after all, is not sent.
    """
    again = stands == "new" and kept.attempts > 0 and end == "succeeded"
    if again or (stands in ASKED and not may_be_of_an_earlier_attempt(kept, end)):
        return end
    # An order that nobody closed may end by itself: that moves no money.
    contradicted = stands == "rejected" and end == "succeeded" and kept.operation != CLOSE_ORDER.name
    return "manual" if contradicted else None


def _existing(intent_id: int) -> Transaction[Intent]:
    found = yield from intents(statements.INTENT, {"id": intent_id}, FOR_UPDATE)
    if not found:
        raise invalid("intent_id", "the number of an intention in the journal", intent_id)
    return found[0]
