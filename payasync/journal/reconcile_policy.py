"""The reconciliation policy: queries about unknown writes, and the decisions after them; no I/O here."""

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from math import inf
from typing import Any, Final, Literal, get_args

import backoff
from attrs import field, frozen

from payasync.endpoints import BY_NAME, CLOSE_ORDER, CREATE_PAYMENT, PLACE_ORDER
from payasync.errors import (
    AuthenticationError,
    ConfigurationError,
    InvalidArgumentError,
    NotConfiguredError,
    PayasyncError,
    RateLimitedError,
    ServiceError,
    SessionClosedError,
    StorageError,
    describe_error,
)
from payasync.evidence.claims import Claim, claim_of_success, counts_after
from payasync.evidence.comparison import PAYMENT, comparison_of, is_empty_envelope, names_number_and_amounts
from payasync.journal.intents import (
    ASKED_STATES,
    Intent,
    Outcome,
    State,
    asked_for,
    format_moment,
    key_age,
    seconds_since,
    sends_about,
    state_now,
    state_of_claim,
    times_placed,
)
from payasync.journal.replay import recorded_reply
from payasync.middleware.outcome import REPEAT_HINT
from payasync.middleware.recovery import status_query
from payasync.profile.profile import Profile
from payasync.profile.wire_names import SOUGHT
from payasync.resources.payments import QueryPayment
from payasync.settings import a_count, a_wait
from payasync.wire.request import Request
from payasync.wire.response import PaymentResponse, Response

NAMELESS: Final = "it has no number: the service cannot be asked what happened to it"
ABSENT: Final = "the service does not know it"
NO_QUARANTINE: Final = "the profile has no recovery.quarantine, so nobody can say that it will not arrive after all"
KEY_OVER: Final = "and the lifetime of its idempotency key is over"
NOT_KEPT: Final = "and too little of the direct call is stored to send it again under its idempotency key"
AGAIN: Final = "it has no number, and the service says that repeating it under its idempotency key changes nothing"
USED_BEFORE: Final = "and it said before that the number was used"
QUERIES_NEED: Final = frozenset({"payment_status", "refund_status", *(f"endpoints.{each}.number" for each in SOUGHT)})
"""The points of the profile without which an order, payment or refund cannot be queried."""
UNSENT: Final = timedelta(minutes=5)
"""After so long, a queued write should have been sent."""


@frozen(kw_only=True)
class QueryResult:
    """The result of a query about a write.

    Attributes:
        claim: What the response claims about the write; `None`: no query about it is possible.
        state: The state that the response gives the write, or `None`.
        reason: In one line.
        outcome: The response, as far as it may be stored.
        retry_after: Seconds that the service asked to wait.
        about_another: The response is about something else.
        age: How many seconds before the query a cache may have had the response.
    """

    claim: Claim | None
    state: State | None = None
    reason: str = ""
    outcome: Outcome | None = None
    retry_after: float | None = None
    about_another: bool = False
    age: float = 0.0

    @property
    def known(self) -> bool:
        """Whether the service knows the write."""
        return self.claim in _KNOWN

    @property
    def usable(self) -> bool:
        """Whether there is a response about this write, or nothing can be asked."""
        return not self.about_another and self.claim is not Claim.BUSY


_KNOWN: Final = frozenset({Claim.DONE, Claim.UNDER_WAY, Claim.ENDED, Claim.REFUSED})


def query_for(intent: Intent, profile: Profile) -> Request[Response] | None:
    """Return the query for the state of an intent, or `None` if it has no number.

    Endpoint 3 queries orders, and endpoint 7 refunds. Endpoint 6 queries payments of endpoint 1, by the number that the
    service gave them (docs/reference/service.md#queries).

    Raises:
        NotConfiguredError: By the profile, the query takes the service's number.
    """
    if intent.operation != CREATE_PAYMENT.name:
        return status_query(intent.operation, intent.reference, asked_for(intent).get("outTradeNo"), profile)
    number = _payment_id(intent, profile)
    return QueryPayment(identifier=str(number)) if number else None


def may_be_settled(doubtful: Intent) -> bool:
    """Return whether a run may settle a write in doubt, because a query names it, or it can be sent again.

    The profile is not known here: it may still refuse the query.
    """
    if doubtful.operation == CREATE_PAYMENT.name:
        named = doubtful.outcome is not None
    else:
        named = status_query(doubtful.operation, doubtful.reference) is not None
    return named or (doubtful.queued and doubtful.idempotency_key is not None)


def names_of(intent: Intent, profile: Profile) -> dict[str, object]:
    """Return the values of a write that a response about it must match."""
    number = _payment_id(intent, profile) if intent.operation == CREATE_PAYMENT.name else None
    return {**asked_for(intent), PAYMENT: number} if number else asked_for(intent)


def _payment_id(intent: Intent, profile: Profile) -> str | int | None:
    """Return the service's own number of a payment, or `None` if no recorded response has it."""
    if intent.outcome is None or not profile.answer.payment_id:
        return None
    return PaymentResponse(recorded_reply(intent), profile.answer, profile.states).payment_id


def classify_response(intent: Intent, response: Response, profile: Profile, age: float = 0.0) -> QueryResult:
    """Return the result of a query that got a response, which a cache may have had for `age` seconds."""
    thing, state = response.thing, response.state
    if is_empty_envelope(profile.answer, response.document):
        return QueryResult(claim=Claim.UNCLEAR, reason=f"the service says nothing about the {thing}")
    is_so = f"the service knows the {thing}" if state is None else f"the {thing}'s state is {state}"
    if intent.answered:
        write = BY_NAME[intent.operation]
        # Without these, the response may be about another write under the number.
        if not names_number_and_amounts(write, asked_for(intent), comparison_of(write, profile), response.data):
            reason = f"the number was used before, and {is_so}, without a number and an amount to compare"
            return QueryResult(claim=Claim.UNCLEAR, state="manual", reason=reason)
    claim = claim_of_success(profile, intent.operation, thing, state, asked=True)
    if claim is Claim.UNCLEAR:
        is_so = f"{is_so}, and the profile does not say what its state means"
    return QueryResult(claim=claim, state=state_of_claim(claim), reason=is_so, age=age)


def classify_error(error: Exception) -> QueryResult:
    """Return what a query says that ended with an error, which may be one of a user's middleware.

    Raises:
        PayasyncError: The error itself, if it comes from this process and says nothing of the write.
    """
    if not isinstance(error, PayasyncError):
        return QueryResult(claim=Claim.BUSY, reason=describe_error(error))
    words = str(error.args[0] if error.args else error).removesuffix(f"; {REPEAT_HINT}")
    if error.objection is not None:
        # If the number stands for another amount, further responses will say the same.
        state: State | None = None if error.objection.about_another else "manual"
        facts: dict[str, Any] = {"about_another": True, "retry_after": error.retry_after}
        return QueryResult(claim=Claim.UNCLEAR, state=state, reason=str(error.reason), **facts)
    unmapped = isinstance(error, NotConfiguredError) and error.field in QUERIES_NEED
    if isinstance(error, InvalidArgumentError) or unmapped:
        return QueryResult(claim=None, reason=f"the service cannot be asked: {words}")
    if isinstance(error, ConfigurationError | SessionClosedError | StorageError):
        raise error
    if isinstance(error, ServiceError) and error.absent:
        age = 0.0 if error.response is None else error.response.age
        return QueryResult(claim=Claim.ABSENT, reason=ABSENT, age=age)
    refused = isinstance(error, ServiceError) and not isinstance(error, AuthenticationError | RateLimitedError)
    claim = Claim.UNCLEAR if refused else Claim.BUSY
    return QueryResult(claim=claim, reason=words, retry_after=error.retry_after)


@frozen(kw_only=True)
class Patience:
    """How long the reconciler asks the service about a write before it asks a person.

    Args:
        first: Seconds from a query without a result to the next; each further pause is twice as long.
        longest: The longest pause, in seconds.
        questions: The number of responses without news after which a write becomes `manual`. Silence, such as HTTP 503,
            does not count. An accepted write is only shown to a person, and the queries continue.
        give_up: Seconds since the last moment at which part of the write may have been sent. After this time and as
            many queries as `questions`, a write without a usable response becomes `manual`. An accepted write is shown
            to a person after this time without a usable response. It becomes `manual` if the last response is about
            something else.
        sends: The number of sends after which a queued write that never arrives becomes `manual`.

    Raises:
        ConfigurationError: A value has another type, or is too small.
    """

    first: float = field(default=2.0, validator=a_wait)
    longest: float = field(default=3600.0, validator=a_wait)
    questions: int = field(default=8, validator=a_count(1))
    give_up: float = field(default=86_400.0, validator=a_wait)
    sends: int = field(default=5, validator=a_count(1))


@frozen(kw_only=True)
class Decision:
    """The decision after a query.

    Attributes:
        state: The new state. *sending*: the write is sent again, under the same number or idempotency key. If the
            intent has this state already, the reconciler asks again after `pause`.
        reason: Why, in one line.
        pause: Seconds from this query to the next, or `None` if no query follows.
        denied: As `Intent.denied`.
        silent_since: As `Intent.silent_since`.
    """

    state: State
    reason: str = ""
    pause: float | None = None
    denied: int = 0
    silent_since: datetime | None = None


def decide(
    intent: Intent,
    result: QueryResult,
    *,
    asked_at: datetime,
    quarantine: float | None,
    patience: Patience,
    jitter: Callable[[float], float],
    lifetime: float | None = None,
    place: Intent | None = None,
) -> Decision:
    """Return the decision about an intent after a query.

    Args:
        intent: As it was leased: unknown or accepted.
        result: The result of the query.
        asked_at: The journal's time before that query, aware.
        quarantine: Seconds after which "not found" is final; `None`: it never is.
        patience: How long to ask.
        jitter: Draws a number of seconds up to a bound.
        lifetime: Seconds that the service keeps an idempotency key; `None`: unknown.
        place: Of a close: the intent that placed its order, if it is known.
    """
    pause, accepted = _draw_pause(intent, result, patience, jitter), intent.state == "accepted"
    in_doubt = since = (asked_at - intent.last_send).total_seconds()
    if place and times_placed(place, intent) > 1 and place.state != "rejected":
        # The tick of a close is of its last send, and not of this query.
        in_doubt += min(0.0, seconds_since(place, intent, intent.last_send))
    final = counts_after(
        result.claim,
        intent.operation,
        quarantine,
        sends=sends_about(intent, place, quarantine),
        used_before=intent.answered,
    )
    early = final - (in_doubt - result.age)
    # A response about something else ends no accepted write, unless nothing else comes for long.
    says_nothing = accepted and result.about_another
    if result.state not in {None, intent.state} and early <= 0 and not says_nothing:
        after = result.state or "accepted"
        return Decision(state=after, reason=result.reason, pause=pause if after == "accepted" else None)
    if early > 0 and result.claim is not Claim.ABSENT:
        given_up = early == inf and since >= patience.give_up
        return _leave_as_it_is(intent, result, early, pause=None if given_up else pause)
    if accepted:
        return _wait_for_end(intent, result, pause, asked_at, patience)
    if result.claim is None and intent.number is None and intent.idempotency_key and lifetime is not None:
        return _repeat_under_key(intent, asked_at, in_doubt, lifetime, patience)
    if result.claim is not Claim.ABSENT or early == inf:
        return _ask_again_or_give_up(intent, result, in_doubt, pause, patience)
    return _decide_absent(intent, result, early, pause, patience)


def _leave_as_it_is(intent: Intent, result: QueryResult, early: float, *, pause: float | None) -> Decision:
    """Return the decision after a claim that is too old, or may be of an earlier send: it changes nothing.

    Args:
        intent: The intent.
        result: The result of the query.
        early: Seconds after which the claim would count.
        pause: Seconds to the next query; `None`: a person must find out.
    """
    reason = f"{result.reason}{_cached(result) or ', perhaps of an earlier send'}, and the last one may still arrive"
    if early == inf:
        reason = f"{reason}; {NO_QUARANTINE}"
    if pause is None:
        return Decision(state="manual", reason=reason)
    return Decision(state=intent.state, reason=reason, pause=min(pause, early), denied=intent.denied)


def _cached(result: QueryResult) -> str:
    return f" (from a cache, {result.age:.0f} s old)" if result.age >= 1 else ""


def _repeat_under_key(
    intent: Intent, asked_at: datetime, in_doubt: float, lifetime: float, patience: Patience
) -> Decision:
    """Return the decision about a write that nothing names, and that carried an idempotency key.

    Only a queued write is stored whole, so that it can be repeated byte by byte. The pauses grow with the sends.
    """
    if not intent.queued:
        return Decision(state="manual", reason=f"{NAMELESS}, {NOT_KEPT}")
    if intent.attempts >= patience.sends:
        return Decision(state="manual", reason=f"{NAMELESS}, and {intent.attempts} sends had no usable response")
    left = min(patience.first * 2 ** (intent.attempts - 1), patience.longest) - in_doubt
    if key_age(intent, asked_at) + max(left, 0.0) >= lifetime:
        return Decision(state="manual", reason=f"{NAMELESS}, {KEY_OVER}")
    return Decision(state="unknown", reason=AGAIN, pause=left) if left > 0 else Decision(state="sending", reason=AGAIN)


def _decide_absent(intent: Intent, result: QueryResult, early: float, pause: float, patience: Patience) -> Decision:
    """Return the decision about a write that has not arrived. Only a queued write is sent again."""
    if early > 0:
        reason = f"{result.reason}{_cached(result)} yet, and it may still arrive"
        return Decision(state="unknown", reason=reason, pause=min(pause, early))
    reason = f"never arrived: {result.reason}"
    if not intent.queued or intent.attempts < patience.sends:
        return Decision(state="sending" if intent.queued else "rejected", reason=reason)
    # A close moves no money, so that its caller may repeat it.
    state: State = "rejected" if intent.operation == CLOSE_ORDER.name else "manual"
    return Decision(state=state, reason=f"sent {intent.attempts} times, and {reason}")


def needs_person(sent: Intent, now: datetime, patience: Patience) -> bool:
    """Return whether a person must find out how a write ended that may have been sent.

    It is *manual*; or *unknown*, and nothing can settle it; or *accepted*, and no response was usable for too long.
    `Backlog.needs_person` counts the same in SQL.
    """
    state = state_now(sent, now)
    if state == "accepted":
        return sent.denied >= patience.questions or _is_too_long(sent.silent_since, now, patience)
    return state == "manual" or (state == "unknown" and not may_be_settled(sent))


def may_arrive_until(sent: Intent, quarantine: float | None) -> datetime | None:
    """Return until when the service may carry out a write that may have been sent; `None` if nobody can say.

    Args:
        sent: The intent.
        quarantine: `recovery.quarantine` of the profile.
    """
    latest = {"sending": sent.lease, "accepted": sent.updated}.get(sent.state, sent.sent_at)
    with suppress(OverflowError):
        return (latest or sent.updated) + timedelta(seconds=inf if quarantine is None else quarantine)
    return None


def resolve_objection(seen: Intent, now: datetime, quarantine: float | None) -> str:
    """Return why a person should not record yet how a write ended, and what to do; an empty text if nothing is wrong.

    Args:
        seen: An intent that a person may end.
        now: An aware moment.
        quarantine: `recovery.quarantine` of the profile.
    """
    until = may_arrive_until(seen, quarantine)
    if seen.state == "new":
        return ""
    late = f"may carry it out until {format_moment(until)}" if until and until > now else ""
    if state_now(seen, now) == "unknown" and may_be_settled(seen):
        return f"payasync reconcile still asks the service{late and f', which {late}'}: run payasync reconcile"
    if until is None:
        return "no recovery.quarantine says until when the service may carry it out: give --profile FILE that has it"
    return late and f"the service {late}: wait until then"


def _is_too_long(since: datetime | None, now: datetime, patience: Patience) -> bool:
    return since is not None and (now - since).total_seconds() >= patience.give_up


def _wait_for_end(
    intent: Intent, result: QueryResult, pause: float, asked_at: datetime, patience: Patience
) -> Decision:
    """Return the decision about an accepted intent that has not ended: the reconciler asks again.

    If no response was usable for too long, and the last one is about something else, the intent becomes `manual`.
    """
    denied = intent.denied if not result.usable else 0 if result.known else intent.denied + 1
    since = None if result.usable else intent.silent_since or asked_at
    reason = result.reason
    if result.claim is Claim.ABSENT:
        reason = f"accepted before, and now {result.reason}"
    if since and _is_too_long(since, asked_at, patience):
        reason = f"no usable response since {since:%Y-%m-%d}: {result.reason}"
        if result.about_another:
            return Decision(state="manual", reason=reason)
    return Decision(state="accepted", reason=reason, pause=pause, denied=denied, silent_since=since)


def _ask_again_or_give_up(
    intent: Intent, result: QueryResult, in_doubt: float, pause: float, patience: Patience
) -> Decision:
    if result.claim is None:
        return Decision(state="manual", reason=result.reason)
    reason = result.reason
    if result.claim is Claim.ABSENT:
        reason = f"{reason}; {USED_BEFORE if intent.answered else NO_QUARANTINE}"
    if result.claim is Claim.BUSY:
        counted = intent.asked if in_doubt >= patience.give_up else 0
    else:
        counted = intent.odd + 1 if result.claim is Claim.UNCLEAR else intent.asked - intent.silent
    if counted >= patience.questions:
        return Decision(state="manual", reason=f"asked {intent.asked} times: {reason}")
    return Decision(state="unknown", reason=reason, pause=pause)


_STEPS: Final = 64
"""No pause grows after so many."""


def _draw_pause(intent: Intent, result: QueryResult, patience: Patience, jitter: Callable[[float], float]) -> float:
    """Return a pause with jitter, whose bound doubles with each query, and not below the service's `Retry-After`."""
    bounds = backoff.expo(base=2, factor=patience.first, max_value=patience.longest)
    # backoff's generators begin with an empty step.
    bound = next(islice(bounds, min(max(1, intent.asked), _STEPS), None))
    return max(bound / 2 + jitter(bound / 2), result.retry_after or 0.0)


End = Literal["resolved", "sent", "waiting", "manual", "lost"]
ENDS: Final[tuple[End, ...]] = get_args(End)
"""How a run can end for an intent."""


@frozen(kw_only=True)
class Result:
    """How a run ended for one intent.

    Attributes:
        intent: The intent before the run.
        end: `resolved`: its end is known, or it never arrived. `sent`: it never arrived, and was sent again; or it was
            sent again under its idempotency key. `waiting`: the service will be asked again. `manual`: a person must
            find out what happened. `lost`: another process has leased it.
        state: Its state now, as far as this run knows.
        reason: Why, in one line.
        answered: Whether the service gave a usable response, if it was asked. One about something else is not usable.
        known: Whether the service knows the write, such as an order that it has closed.
    """

    intent: Intent
    end: End
    state: State
    reason: str = ""
    answered: bool = True
    known: bool = False

    @property
    def rejected(self) -> bool:
        """Whether it was not done, and is not sent again. Inform the people who believe that it was done."""
        return self.state == "rejected" and self.end in {"resolved", "sent"}


@frozen(kw_only=True)
class Report:
    """How a run ended, in numbers of intents.

    Attributes:
        resolved: Intents whose end is known, or that never arrived, including rejected ones.
        sent: Intents that were sent again, because they never arrived, or under their idempotency keys.
        waiting: Intents about which the service will be asked again.
        manual: Intents that a person must look into.
        lost: Intents that another process has leased.
        silent: Whether the run ended early, because the service responded to no query.
        unsent: Queued intents that were not sent for minutes: no worker may be running, or none can send them. They are
            not counted above.
        rejected: Intents, of those resolved or sent again, that were not done. Inform the people who believe that they
            were done.
    """

    resolved: int = 0
    sent: int = 0
    waiting: int = 0
    manual: int = 0
    lost: int = 0
    silent: bool = False
    unsent: int = 0
    rejected: int = 0

    @property
    def asked(self) -> int:
        """The number of intents that the run queried."""
        return self.resolved + self.sent + self.waiting + self.manual + self.lost

    @classmethod
    def of(cls, ends: Iterable[End], *, silent: bool = False, unsent: int = 0, rejected: int = 0) -> "Report":
        """Count the intents by how the run ended for them."""
        counted = Counter(ends)
        return cls(silent=silent, unsent=unsent, rejected=rejected, **{end: counted[end] for end in ENDS})


def is_unpaid_order(result: Result) -> bool:
    """Return whether an order was placed, and ended without a payment: it was closed, it expired or it failed."""
    return result.rejected and result.known and result.intent.operation == PLACE_ORDER.name


def describe_end(result: Result) -> str:
    """Return the log line for a result that somebody may have to know, or an empty text. The caller may have ended."""
    if not result.rejected and result.end != "manual":
        return ""
    intent, what = result.intent, "was not done" if result.rejected else "needs a person"
    if is_unpaid_order(result):
        what = "ended without a payment"
    name, why = intent.reference or intent.intent or "-", " ".join(result.reason.split())
    return f"intent {intent.id} ({intent.operation}, {name}) {what}: {why}"


def is_unsent(queued: Intent, now: datetime) -> bool:
    """Return whether a *new* intent should have been sent: one that was tried in vain counts from its first record."""
    return now - (queued.created if queued.reason else queued.updated) >= UNSENT


def is_due(intent: Intent, now: datetime) -> bool:
    """Return whether a run would query an intent now."""
    if state_now(intent, now) not in ASKED_STATES:
        return False
    moment = intent.due if intent.lease is None else intent.lease
    return moment is not None and moment <= now
