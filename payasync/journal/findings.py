"""What a question tells of a write that nobody knows the end of: no I/O here.

The service is asked by the number that names the write; an absent answer counts only where it is proven.
"""

from enum import Enum, auto
from typing import Final

from attrs import frozen

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
from payasync.journal.endings import BY_STATE, tells_states
from payasync.journal.intents import Intent, Outcome, State, asked_for
from payasync.journal.recorded import reply
from payasync.match import PAYMENT, compared, names_number_and_amounts
from payasync.operations import CLOSE_ORDER, CREATE_PAYMENT, OPERATIONS
from payasync.profile import Profile
from payasync.recovery import inquiry
from payasync.requests import Request
from payasync.resources.payments import QueryPayment
from payasync.responses import PaymentResponse, Response, holds_nothing
from payasync.verdicts import REPEAT

NAMELESS: Final = "nothing names it: the service cannot be asked what became of it"
ABSENT: Final = "the service does not know it"
QUESTIONS_UNMAPPED: Final = frozenset({"payment_status", "refund_status"})
"""Without these a thing cannot be asked about."""


class Finding(Enum):
    """What a question came to."""

    TOLD = auto()
    """The service says what became of it."""
    NOT_DONE = auto()
    """The service says, provably, that it was not done so far."""
    UNCLEAR = auto()
    """The service answers, and what became of it does not follow from that."""
    UNMATCHED = auto()
    """The response is about something else."""
    SILENT = auto()
    """There is no usable answer, for reasons that are not of this write: it is asked again."""
    UNASKABLE = auto()
    """There is no such question."""


UNUSABLE: Final = frozenset({Finding.SILENT, Finding.UNMATCHED})
"""After these the service is asked again, as if it had not responded."""


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


def question(intent: Intent, profile: Profile) -> Request[Response] | None:
    """Return the query that tells what became of an intention; `None` where nothing names it.

    An order is asked about by endpoint 3, a refund by endpoint 7, a payment of endpoint 1 by endpoint 6, with the
    number that the service gave it (spec: Endpoints, rules 3 and 6).
    """
    if intent.operation != CREATE_PAYMENT.name:
        return inquiry(intent.operation, intent.reference)
    number = _payment(intent, profile)
    return QueryPayment(identifier=str(number)) if number else None


def _payment(intent: Intent, profile: Profile) -> str | int | None:
    """Return the service's own number of a payment, where an answer was kept that has it."""
    shape = profile.answer
    if intent.outcome is None or not shape.payment_id:
        return None
    return PaymentResponse(reply(intent), shape, profile.states).payment_id


def named(intent: Intent, profile: Profile) -> dict[str, object]:
    """Return what a write named, which a response about it must match."""
    found = asked_for(intent, profile)
    number = _payment(intent, profile) if intent.operation == CREATE_PAYMENT.name else None
    return {**found, PAYMENT: number} if number else found


def told(intent: Intent, answer: Response, profile: Profile) -> Evidence:
    """Return what the response to a query says of a write."""
    if holds_nothing(profile.answer, answer.document):
        return Evidence(finding=Finding.UNCLEAR, reason=f"the service tells nothing of the {answer.thing}")
    if intent.answered and not _is_whole(intent, answer, profile):
        reason = f"the number was used before, and {_is(answer)}, without a number and an amount to compare"
        return Evidence(finding=Finding.TOLD, state="manual", reason=reason)
    known = BY_STATE.get(intent.operation, {}).get(answer.state or "")
    if known:
        return Evidence(finding=Finding.TOLD, state=known, reason=_is(answer))
    if intent.operation == CLOSE_ORDER.name:
        return _not_closed(answer)
    return _taken(answer, profile)


def _is_whole(intent: Intent, answer: Response, profile: Profile) -> bool:
    """Return whether a response names what tells this write from another one under its number."""
    write = next(each for each in OPERATIONS if each.name == intent.operation)
    return names_number_and_amounts(write, asked_for(intent, profile), compared(write, profile), answer.data)


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
    if error.objection is not None:
        # Under the same number the service will go on to tell of another amount.
        state: State | None = None if error.objection.about_another else "manual"
        return Evidence(finding=Finding.UNMATCHED, state=state, reason=str(error.reason), retry_after=error.retry_after)
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
