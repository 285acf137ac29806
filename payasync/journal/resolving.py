"""What follows from what the service says of a write that nobody knows the end of: no I/O here.

The service is asked by the number that names the write. An absent answer counts only where it is proven, and where
the quarantine is over since the moment at which something of the write may last have been sent.
"""

from collections.abc import Callable
from datetime import datetime
from enum import Enum, auto
from itertools import islice
from typing import Final

import backoff
from attrs import field, frozen

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
)
from payasync.journal.endings import BY_STATE, may_be_of_an_earlier_attempt, tells_states
from payasync.journal.intents import Intent, Outcome, State, asked_for
from payasync.journal.recorded import reply
from payasync.operations import CLOSE_ORDER, CREATE_PAYMENT
from payasync.profile import Profile
from payasync.recovery import inquiry
from payasync.requests import Request
from payasync.resources.payments import QueryPayment
from payasync.responses import PaymentResponse, Response, holds_nothing
from payasync.sameness import difference
from payasync.settings import a_count, a_wait
from payasync.verdicts import REPEAT

NAMELESS: Final = "nothing names it: the service cannot be asked what became of it"
ABSENT: Final = "the service does not know it"
NO_QUARANTINE: Final = "the profile has no recovery.quarantine, so nobody can say that it will not arrive after all"
QUESTIONS_UNMAPPED: Final = frozenset({"payment_status", "refund_status"})
"""Without these a thing cannot be asked about."""
LONGEST_RETRY_AFTER: Final = 86_400.0
"""Seconds: a service that asks for more is asked again all the same."""


@frozen(kw_only=True)
class Patience:
    """How long the service is asked about a write before a person is.

    Args:
        first: Seconds from a question without a result to the next; they double with each further one.
        longest: The most that they can grow to.
        questions: After so many, answers that say nothing of the write give it to a person; what was accepted is
            shown to one after so many in a row, and asked about further.
        give_up: Seconds since something of the write may last have been sent; who gets no answer at all for so long,
            and to so many questions, gives it to a person. What was accepted is shown to one where no question has had
            a usable answer for so long.
        sends: After so many, a queued write that arrives nowhere is given to a person.

    Raises:
        ConfigurationError: A value of another type, or below what makes sense.
    """

    first: float = field(default=2.0, validator=a_wait)
    longest: float = field(default=3600.0, validator=a_wait)
    questions: int = field(default=8, validator=a_count(1))
    give_up: float = field(default=86_400.0, validator=a_wait)
    sends: int = field(default=5, validator=a_count(1))


class Finding(Enum):
    """What a question came to."""

    TOLD = auto()
    """The service says what became of it."""
    NOT_DONE = auto()
    """The service says, provably, that it was not done so far."""
    UNCLEAR = auto()
    """The service answers, and what became of it does not follow from that."""
    SILENT = auto()
    """There is no usable answer, for reasons that are not of this write: it is asked again."""
    UNASKABLE = auto()
    """There is no such question."""


@frozen(kw_only=True)
class Evidence:
    """What is known after a question.

    Attributes:
        finding: What it came to.
        state: What the service told, where it did.
        reason: In one line.
        outcome: The answer that says so, as far as it may be kept.
        retry_after: Seconds that the service asked to wait.
    """

    finding: Finding
    state: State | None = None
    reason: str = ""
    outcome: Outcome | None = None
    retry_after: float | None = None


class Move(Enum):
    """What is done with a write that was asked about."""

    SETTLE = auto()
    POSTPONE = auto()
    SEND = auto()
    """It was never done, and is queued: it is sent again, under the same number."""


@frozen(kw_only=True)
class Decision:
    """What follows.

    Attributes:
        move: What is done.
        state: Which it has from then on.
        reason: Why, in one line.
        pause: Seconds from this question to the next, where there is one.
        denied: How often in a row nothing that was heard of what was accepted was of use, as `Intent` has it.
        silent_since: Since when nothing at all was heard of it, as `Intent` has it.
    """

    move: Move
    state: State
    reason: str = ""
    pause: float | None = None
    denied: int = 0
    silent_since: datetime | None = None


def question(intent: Intent, profile: Profile) -> Request[Response] | None:
    """Return the query that tells what became of an intention; `None` where nothing names it.

    An order is asked about by endpoint 3, a refund by endpoint 7, a payment of endpoint 1 by endpoint 6, with the
    number that the service gave it (spec: Endpoints, rules 3 and 6).
    """
    if intent.operation != CREATE_PAYMENT.name:
        return inquiry(intent.operation, intent.reference)
    shape = profile.answer
    if intent.outcome is None or not shape.payment_id:
        return None
    number = PaymentResponse(reply(intent), shape, profile.states).payment_id
    return QueryPayment(identifier=str(number)) if number else None


def told(intent: Intent, answer: Response, profile: Profile) -> Evidence:
    """Return what an answer about its thing says of a write; one about another thing gives it to a person."""
    if holds_nothing(profile.answer, answer.document):
        return Evidence(finding=Finding.UNCLEAR, reason=f"the service tells nothing of the {answer.thing}")
    if intent.state == "unknown" and (other := difference(asked_for(intent), answer.data)):
        reason = f"its number stands at the service for another {answer.thing}: {other}"
        return Evidence(finding=Finding.TOLD, state="manual", reason=reason)
    known = BY_STATE.get(intent.operation, {}).get(answer.state or "")
    if known:
        return Evidence(finding=Finding.TOLD, state=known, reason=_is(answer))
    if intent.operation == CLOSE_ORDER.name:
        return _not_closed(answer)
    return _taken(answer, profile)


def _not_closed(answer: Response) -> Evidence:
    if answer.state is None:
        return Evidence(finding=Finding.UNCLEAR, reason="the profile does not say what the order's state means")
    return Evidence(finding=Finding.NOT_DONE, reason=_is(answer))


def _taken(answer: Response, profile: Profile) -> Evidence:
    if not tells_states(profile, answer.thing):
        return Evidence(finding=Finding.TOLD, state="succeeded", reason=_is(answer))
    if answer.state is None:
        reason = f"{_is(answer)}, and the profile does not say what its state means"
        return Evidence(finding=Finding.UNCLEAR, state="accepted", reason=reason)
    return Evidence(finding=Finding.TOLD, state="accepted", reason=_is(answer))


def _is(answer: Response) -> str:
    if answer.state is None:
        return f"the service knows the {answer.thing}"
    return f"the {answer.thing}'s state is {answer.state}"


def refused(error: PayasyncError) -> Evidence:
    """Return what a question says that ended with an error.

    Raises:
        PayasyncError: The error itself, where it is of this process and says nothing of the write.
    """
    words = str(error.args[0] if error.args else error).removesuffix(f"; {REPEAT}")
    if isinstance(error, InvalidArgumentError) or _unmapped(error):
        return Evidence(finding=Finding.UNASKABLE, reason=f"the service cannot be asked: {words}")
    if isinstance(error, ConfigurationError | SessionClosedError | StorageError):
        raise error
    if isinstance(error, ServiceError) and error.absent:
        return Evidence(finding=Finding.NOT_DONE, reason=ABSENT)
    heard = isinstance(error, ServiceError) and not isinstance(error, AuthenticationError | RateLimitedError)
    finding = Finding.UNCLEAR if heard else Finding.SILENT
    return Evidence(finding=finding, reason=words, retry_after=error.retry_after)


def failed(error: Exception) -> Evidence:
    """Return what a question says that ended with an error that is none of ours, such as that of a user's layer."""
    return Evidence(finding=Finding.SILENT, reason=f"{type(error).__name__}: {error}")


def _unmapped(error: PayasyncError) -> bool:
    return isinstance(error, NotConfiguredError) and error.field in QUESTIONS_UNMAPPED


def decide(
    intent: Intent,
    evidence: Evidence,
    *,
    asked_at: datetime,
    quarantine: float | None,
    patience: Patience,
    jitter: Callable[[float], float],
) -> Decision:
    """Return what follows for an intention from what is known of it.

    Args:
        intent: As it was claimed: unknown or accepted.
        evidence: What a question came to.
        asked_at: The journal's time before that question, aware.
        quarantine: Seconds after which an absent answer is final; `None`: it never is.
        patience: How long to ask.
        jitter: Draws a number of seconds up to a bound.
    """
    pause = _pause(intent, evidence, patience, jitter)
    earlier = intent.state == "unknown" and may_be_of_an_earlier_attempt(intent, evidence.state)
    if evidence.state not in {None, intent.state} and not earlier:
        return _settled(evidence.state or "accepted", evidence.reason, pause)
    if intent.state == "accepted":
        return _accepted(intent, evidence, pause, asked_at, patience)
    in_doubt = (asked_at - (intent.sent_at or intent.updated)).total_seconds()
    if not (earlier or evidence.finding is Finding.NOT_DONE) or quarantine is None:
        return _unresolved(intent, evidence, in_doubt, pause, patience)
    if in_doubt < quarantine:
        reason = f"{evidence.reason}{', perhaps of an earlier attempt' if earlier else ' yet'}, and it may still arrive"
        return Decision(move=Move.POSTPONE, state="unknown", reason=reason, pause=min(pause, quarantine - in_doubt))
    return _settled("rejected", evidence.reason) if earlier else _never_done(intent, evidence, patience)


def is_shown(accepted: Intent, now: datetime, patience: Patience) -> bool:
    """Return whether a person is shown what was accepted, as nothing of use is heard of it again and again, or long."""
    return accepted.denied >= patience.questions or _too_long(accepted.silent_since, now, patience)


def _too_long(since: datetime | None, now: datetime, patience: Patience) -> bool:
    return since is not None and (now - since).total_seconds() >= patience.give_up


def _accepted(intent: Intent, evidence: Evidence, pause: float, asked_at: datetime, patience: Patience) -> Decision:
    """Only its end is still to be learnt. Who denies it, or says nothing of use, changes nothing; a person is shown."""
    denied = {Finding.TOLD: 0, Finding.SILENT: intent.denied}.get(evidence.finding, intent.denied + 1)
    since = (intent.silent_since or asked_at) if evidence.finding is Finding.SILENT else None
    reason = evidence.reason
    if evidence.finding is Finding.NOT_DONE:
        reason = f"accepted before, and now {evidence.reason}"
    if since and _too_long(since, asked_at, patience):
        reason = f"no usable answer since {since:%Y-%m-%d}: {evidence.reason}"
    return Decision(move=Move.POSTPONE, state="accepted", reason=reason, pause=pause, denied=denied, silent_since=since)


def _settled(state: State, reason: str, pause: float | None = None) -> Decision:
    return Decision(move=Move.SETTLE, state=state, reason=reason, pause=pause if state == "accepted" else None)


def _never_done(intent: Intent, evidence: Evidence, patience: Patience) -> Decision:
    """What was called directly is its caller's to repeat; what was queued has nobody else who would."""
    if not intent.queued:
        return _settled("rejected", f"never arrived: {evidence.reason}")
    if intent.attempts >= patience.sends:
        return _settled("manual", f"sent {intent.attempts} times, and never arrived: {evidence.reason}")
    return Decision(move=Move.SEND, state="sending", reason=f"never arrived: {evidence.reason}")


def _unresolved(intent: Intent, evidence: Evidence, in_doubt: float, pause: float, patience: Patience) -> Decision:
    if evidence.finding is Finding.UNASKABLE:
        return _settled("manual", evidence.reason)
    late = evidence.finding is Finding.NOT_DONE or evidence.state == "rejected"
    reason = f"{evidence.reason}; {NO_QUARANTINE}" if late else evidence.reason
    too_long = evidence.finding is not Finding.SILENT or in_doubt >= patience.give_up
    if too_long and intent.asked >= patience.questions:
        return _settled("manual", f"asked {intent.asked} times: {reason}")
    return Decision(move=Move.POSTPONE, state="unknown", reason=reason, pause=pause)


def _pause(intent: Intent, evidence: Evidence, patience: Patience, jitter: Callable[[float], float]) -> float:
    """Return half of a bound that doubles, the other half by chance; and no less than the service asked for."""
    bounds = backoff.expo(base=2, factor=patience.first, max_value=patience.longest)
    # backoff's generators begin with an empty step.
    bound = next(islice(bounds, max(1, intent.asked), None))
    floor = min(evidence.retry_after or 0.0, LONGEST_RETRY_AFTER)
    return max(bound / 2 + jitter(bound / 2), floor)
