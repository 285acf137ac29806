"""An intent to move money, its states, and which state a response or an error gives it; no I/O here."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum, auto
from math import inf
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from attrs import field, frozen

from payasync.endpoints import CLOSE_ORDER, CREATE_PAYMENT, OPERATIONS, camel_case
from payasync.errors import (
    AuthenticationError,
    DuplicateError,
    InvalidArgumentError,
    OutcomeUnknownError,
    PayasyncError,
    RateLimitedError,
    ServiceError,
)
from payasync.evidence.claims import STATE_CLAIMS, Claim, claim_of_success
from payasync.evidence.comparison import compared_fields
from payasync.profile.wire_names import MERCHANT
from payasync.wire.call import Call, Reply, derive_idempotency_key
from payasync.wire.response import OrderResponse, PaymentResponse, RefundResponse, Response

State = Literal["new", "sending", "accepted", "succeeded", "rejected", "unknown", "manual"]
STATES: Final[tuple[State, ...]] = get_args(State)
"""The states of an intent."""

TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    "new": frozenset({"sending", "succeeded", "rejected", "manual"}),
    "sending": frozenset({"new", "accepted", "succeeded", "rejected", "unknown", "manual"}),
    "unknown": frozenset({"accepted", "succeeded", "rejected", "sending", "manual"}),
    "accepted": frozenset({"succeeded", "rejected", "manual"}),
    "succeeded": frozenset({"rejected"}),
    "rejected": frozenset({"sending", "new", "manual"}),
    "manual": frozenset({"succeeded", "rejected"}),
}
"""By state, the states that may follow.

- *rejected* to *new*: it is queued again.
- *sending* to *new*: an attempt at a queued intent has certainly done nothing, and a worker will find it again.
- *new* to *succeeded* or *rejected*: a person records that it was done by other means, or is no longer wanted;
  or the service reports that the first attempt was carried out after all.
- *new* to *manual*: its row is damaged, so that it cannot be sent.
- *sending* to *manual*: a queued intent was sent again after a doubt, and was refused. Its caller has gone.
- *succeeded* to *rejected*: it closed an order that is placed again.
- *rejected* to *manual*: the service reports that it was done after all.
- *accepted* to *manual*: no response was usable for too long, and the last one was about something else.
"""

END_STATES: Final[frozenset[State]] = frozenset({"succeeded", "rejected"})
"""Only intents in these states are ever deleted."""
ASKED_STATES: Final[frozenset[State]] = frozenset({"unknown", "accepted"})
"""The reconciler repeatedly queries intents in these states."""
RESOLVABLE_STATES: Final[frozenset[State]] = frozenset({"manual", "unknown", "accepted", "new"})
"""A person may end intents in these states."""


@frozen(kw_only=True, slots=False)
class Outcome:
    """A response of the service, as far as it may be stored.

    Attributes:
        status: The HTTP status.
        body: JSON, without signatures, nonces and the customer's details.
        headers: Only the one that the profile names for the request's number.
        verified: Whether its signature was the service's; `None` if it had none, or none was checked.
        recovered: It is the response to a query that was made after the first response was lost.
    """

    status: int
    body: bytes = field(default=b"", repr=False)
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    verified: bool | None = None
    recovered: bool = False


@frozen(kw_only=True, slots=False)
class Draft:
    """An intent before the journal stores it.

    Attributes:
        operation: Its name, such as `refunds.create`.
        merchant: The merchant's number; keys are one merchant's.
        reference: The order, refund or subscription number that it is about.
        number: The key that follows from the merchant's own number, such as `refunds.create:R1`, if there is one.
        intent: The caller's own key.
        hash: SHA-256 of what moves money, in hexadecimal digits.
        request: The arguments that may be stored, by their names in Python, as JSON values.
        queued: A worker may send it from the journal, because it was added. False after a person rejects it, or after
            it turns out not to be done.
        named: Values that responses are compared with and no argument holds, such as a currency of the profile's
            constants. By wire names, as they were last sent; `None`: it was not sent yet.
        idempotency_key: The key that all sends carry, until the service refuses the write; `None` without one.
    """

    operation: str
    merchant: str
    reference: str | None = None
    number: str | None = None
    intent: str | None = None
    hash: str
    request: Mapping[str, Any] = field(factory=dict, repr=False)
    queued: bool = False
    named: Mapping[str, object] | None = field(default=None, repr=False)
    idempotency_key: str | None = field(default=None, repr=False)


@frozen(kw_only=True, slots=False)
class Intent(Draft):
    """An intent in the journal. A lease gives it to a holder, until a later lease has a newer fence.

    Attributes:
        id: The intent's number in the journal; a later intent has a higher number.
        state: One of `STATES`.
        attempts: How often a process began to send it.
        ineffective: How many of the attempts had certainly no effect: nothing was sent, or the service refused it.
        asked: The number of leases for a query since it was last sent.
        odd: How many queries since the last send had a response that says nothing about this write, or is about
            something else. The query that ends the intent is not counted.
        silent: How many queries since the last send had no usable response, such as HTTP 503.
        denied: For an accepted intent, how many responses in a row said "not found", or did not say how it ended. A
            missing response does not count.
        silent_since: For an accepted intent, the time of the first query without a usable response, if none came since.
        fence: The number of the latest lease. An earlier holder cannot change the intent any more.
        lease: When the lease ends; `None` if nobody holds the intent. All moments are aware datetimes.
        due: When the next query is due, if nobody holds it, or `None`.
        created: When it was stored.
        updated: When its state was last set. If its sender was interrupted: when the sender began.
        sent_at: The latest moment at which something of it may have been sent without a recognised response.
        key_sent: When the write was first sent under its idempotency key.
        key_tick: The same moment as a monotonic timestamp.
        tick: A monotonic timestamp of the moment at which sending began, and later of `sent_at`.
        answered: The service said that its number was used before. Nothing of that attempt can still arrive, and "not
            found" is not believed.
        outcome: The last response that counts, if there is one.
        reason: Why it is in that state, in one line.
        damaged: How its row in the journal is damaged; empty if it is not. Nothing is sent or believed about a damaged
            intent. What cannot be read of it is left out.
    """

    id: int
    state: State
    attempts: int = 0
    ineffective: int = 0
    asked: int = 0
    odd: int = 0
    silent: int = 0
    denied: int = 0
    silent_since: datetime | None = None
    fence: int = 0
    lease: datetime | None = None
    due: datetime | None = None
    created: datetime
    updated: datetime
    sent_at: datetime | None = None
    key_sent: datetime | None = None
    key_tick: str | None = None
    tick: str | None = None
    answered: bool = False
    outcome: Outcome | None = None
    reason: str = ""
    damaged: str = ""

    @property
    def key(self) -> str | None:
        """The key of the intent: the caller's own, else the number. Two calls with one key are one intent."""
        return self.number if self.intent is None else f"intent:{self.intent}"

    @property
    def sends(self) -> int:
        """How many sends may have had an effect. A response may be about any of these."""
        return self.attempts - self.ineffective

    @property
    def last_send(self) -> datetime:
        """The end of the last send, or a later moment."""
        leased = self.lease if self.state == "sending" else None
        return max(self.updated, self.sent_at or self.updated, leased or self.updated)


Intents: TypeAlias = list[Intent]
"""A list of intents. `Journal` has a method of the name `list`."""


class Step(Enum):
    """What the journal says to a caller that wants to send."""

    SEND = auto()
    """The intent is stored as *sending*, and the caller holds it: send it."""
    ANSWER = auto()
    """It was done: the recorded response is returned, and nothing is sent."""
    WAIT = auto()
    """Another caller is sending it."""
    ASK = auto()
    """It may have been done: nothing is sent before the service was asked."""
    CONFLICT = auto()
    """Its key stands for another request."""


class BeginResult(NamedTuple):
    """What a journal returns to a caller that wants to send.

    Attributes:
        step: What follows.
        intent: As it is stored now. In a conflict: the other one.
    """

    step: Step
    intent: Intent


def asked_for(intent: Intent) -> dict[str, object]:
    """Return what the write of an intent named, by wire names. A response about the intent must match it."""
    stored = {camel_case(name): value for name, value in intent.request.items()}
    number = next((each.reference for each in OPERATIONS if each.name == intent.operation and each.reference), None)
    if number is not None and intent.reference is not None:
        stored[camel_case(number)] = intent.reference
    return compared_fields({**stored, **(intent.named or {})})


def next_idempotency_key(intent: Intent, drawn: str | None) -> str | None:
    """Return the idempotency key of an intent's next send, if nothing of an earlier send may have been done.

    A service may repeat its refusal under the old key.

    Args:
        intent: The intent.
        drawn: The key that the call has; `None`: the service takes none. It stays if nothing names the intent.
    """
    name = intent.number or intent.intent
    if drawn is None or name is None:
        return drawn
    return derive_idempotency_key(intent.merchant, intent.operation, name, intent.attempts)


def key_age(intent: Intent, now: datetime) -> float:
    """Return the seconds since the first send under an idempotency key; `inf` if that is unknown."""
    age = inf if intent.key_sent is None else (now - intent.key_sent).total_seconds()
    return age if age >= 0 else inf  # the clock was set back


def check_transition(before: State, after: State) -> None:
    """Refuse a change of a state that `TRANSITIONS` does not have.

    Raises:
        InvalidArgumentError: The state may not follow.
    """
    if after not in TRANSITIONS[before]:
        allowed = sorted(TRANSITIONS[before])
        rule = f"one of {', '.join(allowed)}, which may follow {before}" if allowed else f"{before}, which is final"
        raise InvalidArgumentError(f"state must be {rule}, not {after!r}", field="state", rule=rule, value=after)


def check_queued(intent: Intent) -> None:
    """Refuse to send an intent by its number, unless it is queued.

    Raises:
        InvalidArgumentError: It was a direct call, of which too little is stored. Or a person has rejected it, or it
            turned out not to be done: then only a caller who repeats it may send it, and no queue that has its number.
    """
    if not intent.queued:
        rule = "the number of an intent that `journal.add` has kept"
        raise InvalidArgumentError(
            f"intent_id must be {rule}; {intent.id} was a direct call, or has been rejected since it was added: "
            "repeat the call under the same number or intent",
            field="intent_id",
            rule=rule,
            value=intent.id,
        )


def state_now(intent: Intent, now: datetime) -> State:
    """Return the state that counts now: *sending* means *unknown* once the lease is over."""
    interrupted = intent.state == "sending" and intent.lease is not None and intent.lease <= now
    return "unknown" if interrupted else intent.state


def doubt_since(intent: Intent) -> datetime:
    """Return since when an intent may have been sent; of a queued one, since when it is queued."""
    if intent.attempts == 1 and not intent.queued:
        return intent.created  # a reconciler that finds its sender interrupted sets `sent_at` to now
    if intent.state in {"sending", "unknown"}:
        return intent.updated  # `sent_at` is later, if its sender was interrupted
    return intent.sent_at or (intent.created if intent.state == "new" else intent.updated)


def format_moment(moment: datetime) -> str:
    """Return a moment as people read it: in UTC, as in errors, so that they can compare it with logs."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def when_sent(intent: Intent) -> str:
    """Return the moments between which what is in doubt may have been sent; an empty text without a doubt.

    If its sender was interrupted, the last moment is the end of its lease.
    """
    latest = intent.lease if intent.state == "sending" else intent.sent_at
    if latest is None or intent.state not in {"sending", "unknown", "manual"}:
        return ""
    # A lease and a worker's queue move the other moments; all sends under one idempotency key are one write.
    first, last = format_moment(intent.key_sent or intent.created), format_moment(latest)
    return f"at {last}" if first == last else f"between {first.removesuffix(' UTC')} and {last}"


def next_step(stored: Intent, now: datetime, *, fence: int | None = None) -> Step:
    """Return what follows for a caller that wants to send an intent that is stored already.

    Args:
        stored: The intent.
        now: An aware moment.
        fence: The fence of a holder who has found out that it was never done.
    """
    if stored.damaged:
        return Step.ASK
    if fence is not None:
        return Step.SEND if stored.state == "unknown" and stored.fence == fence else Step.WAIT
    state = state_now(stored, now)
    if state in {"new", "rejected"}:
        return Step.SEND
    if state in {"accepted", "succeeded"}:
        return Step.ANSWER
    return Step.WAIT if state == "sending" else Step.ASK


def match_draft(draft: Draft, stored: Sequence[Intent], now: datetime) -> BeginResult:
    """Return what follows for a draft from the intents that have one of its keys.

    If the number and the caller's own key stand for two intents, one of them stands for another request.
    """
    if damaged := next((each for each in stored if each.damaged), None):
        return BeginResult(Step.ASK, damaged)
    other = next((each for each in stored if _is_another(draft, each)), None)
    return BeginResult(next_step(stored[0], now), stored[0]) if other is None else BeginResult(Step.CONFLICT, other)


def _is_another(draft: Draft, stored: Intent) -> bool:
    for_another = None not in {draft.intent, stored.intent} and draft.intent != stored.intent
    return for_another or draft.hash != stored.hash or _names_another(draft, stored)


def _names_another(draft: Draft, stored: Intent) -> bool:
    """Return whether two requests name, for example, two currencies beyond their arguments.

    Of a request that was never sent, only `extra` is known: the constants come with the profile that sends it.
    """
    mine, theirs = _named_by(draft), _named_by(stored)
    names = {*mine, *theirs}
    if (draft.named is None) != (stored.named is None):
        names = set(mine if draft.named is None else theirs)
    return any(_values_differ(name, mine.get(name), theirs.get(name)) for name in names)


def _values_differ(name: str, mine: object, theirs: object) -> bool:
    if name == MERCHANT and (mine is None or theirs is None):
        return False  # the key is one merchant's already, and a deployment may begin to send its number
    return str(mine).casefold() != str(theirs).casefold() if name == "currency" else str(mine) != str(theirs)


def _named_by(draft: Draft) -> Mapping[str, object]:
    return compared_fields(draft.request.get("extra", {})) if draft.named is None else draft.named


_STATE_OF: Final[Mapping[Claim, State]] = {
    Claim.DONE: "succeeded",
    Claim.UNDER_WAY: "accepted",
    Claim.ENDED: "rejected",
    Claim.REFUSED: "rejected",
}
"""By claim, the state of a write about which it is believed. An ended write may be tried again."""

_RESPONSES: Final[Mapping[str, type[Response]]] = {
    "payments.create": PaymentResponse,
    "orders.place": OrderResponse,
    "orders.close": OrderResponse,
    "refunds.create": RefundResponse,
}
"""The writes that may go on after their response."""

_TEMPORARY: Final = (AuthenticationError, RateLimitedError)
"""Refusals that say nothing of the write itself: too many requests, or a key that is being changed."""


def state_of_claim(claim: Claim | None) -> State | None:
    """Return the state that a believed claim gives to a write; `None` if it gives none."""
    return _STATE_OF.get(claim or Claim.UNCLEAR)


def write_state(operation: str, state: str | None) -> State | None:
    """Return the state of a write, by our name of the state of its order or refund; `None` if that is not final."""
    claim = STATE_CLAIMS.get(operation, {}).get(state or "")
    return None if claim is Claim.UNDER_WAY else state_of_claim(claim)


def state_of_response(call: Call, reply: Reply) -> tuple[State, str]:
    """Return the state that the service's success gives to a write, and why in one line if that is *rejected*.

    The state is *accepted* only if the service can be asked for more. Otherwise the write has succeeded.
    """
    kind = _RESPONSES.get(call.operation.name, Response)
    response, shape, profile = kind.of(call, reply), call.profile.answer, call.profile
    claim = claim_of_success(profile, call.operation.name, kind.thing, response.state, asked=reply.recovered)
    number = response.payment_id if isinstance(response, PaymentResponse) and shape.payment_id else call.reference
    if claim is Claim.UNDER_WAY and number is None:
        return "succeeded", ""
    state = state_of_claim(claim) or "accepted"
    return state, f"the {response.thing}'s state is {response.state}" if state == "rejected" else ""


def state_of_error(call: Call, error: Exception, intent: Intent) -> State:
    """Return the state that an error gives to a write.

    If a queued write is sent again after a doubt, its caller may be gone. A warning then reports a refusal.

    Args:
        call: The write.
        error: One of ours, or of a user's middleware.
        intent: The intent, as it was when it was sent.
    """
    if isinstance(error, OutcomeUnknownError | DuplicateError):
        # The number was used before, by whomever: the service is asked what stands under it.
        return "unknown"
    temporary = isinstance(error, _TEMPORARY)
    if isinstance(error, ServiceError) and not temporary:
        # A close moves no money, so that its caller may repeat it.
        repeated = intent.queued and intent.sent_at is not None and call.operation != CLOSE_ORDER
        return "manual" if repeated else "rejected"
    # An error of a user's middleware proves nothing.
    unsent = error.sent is False or temporary if isinstance(error, PayasyncError) else not call.progress.begun
    return state_of_unsent(intent) if unsent else "unknown"


def seconds_between(earlier: str | None, later: str | None) -> float | None:
    """Return the seconds between two ticks, or `None` if the ticks are of different clocks."""
    if earlier is None or later is None:
        return None
    (clock, then), (same, now) = earlier.split(" "), later.split(" ")
    return float(now) - float(then) if clock == same else None


def seconds_since(place: Intent, close: Intent, moment: datetime) -> float:
    """Return the seconds from the end of a place to a moment at which the tick of a close was taken.

    If the wall clock was set since, the smaller number counts.
    """
    ticked = seconds_between(place.tick, close.tick)
    return min((moment - place.last_send).total_seconds(), inf if ticked is None else ticked)


def times_placed(place: Intent, close: Intent) -> int:
    """Return how often an order was placed. A close that was stored before the place was of an order before it."""
    return place.sends + (place.id > close.id)


def sends_about(intent: Intent, place: Intent | None, quarantine: float | None) -> int:
    """Return how many sends a response about an intent may be of.

    Args:
        intent: The intent.
        place: Of a close: the intent that placed its order, if it is known. A query soon after a second place may still
            show the first order as closed.
        quarantine: `recovery.quarantine` of the profile.
    """
    if intent.operation == CREATE_PAYMENT.name:
        return 1  # the query names the service's own number, which the last send got
    if intent.operation != CLOSE_ORDER.name:
        return intent.sends
    final = inf if quarantine is None else quarantine
    is_last = place is None or seconds_since(place, intent, intent.updated) >= final
    return 1 if place is None or is_last else times_placed(place, intent)


def state_of_unsent(intent: Intent) -> State:
    """Return the state of a write that this call has not sent, and that the service has not refused.

    The caller repeats a direct call. A queued write waits for a worker again, unless an earlier attempt may have
    arrived: then the service is asked about it.

    Args:
        intent: The intent, as it was when it was sent.
    """
    if not intent.queued:
        return "rejected"
    return "new" if intent.sent_at is None else "unknown"
