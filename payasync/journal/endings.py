"""Which state the end of a call gives to its intention."""

from collections.abc import Mapping
from typing import Final

from payasync.calls import Call, Reply
from payasync.errors import (
    AuthenticationError,
    DuplicateError,
    OutcomeUnknownError,
    PayasyncError,
    RateLimitedError,
    ServiceError,
)
from payasync.journal.intents import Intent, State
from payasync.operations import CLOSE_ORDER
from payasync.profile import Profile
from payasync.responses import OrderResponse, PaymentResponse, RefundResponse, Response

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


def of_answer(call: Call, reply: Reply) -> State:
    """Return the state that the service's success gives to a write.

    It is *accepted* only where the service can be asked for more: what nobody will hear of again has succeeded.
    """
    kind = _ANSWERS.get(call.operation.name)
    if kind is None:
        return "succeeded"
    response = kind.of(call, reply)
    told = BY_STATE[call.operation.name].get(response.state or "")
    return told or ("accepted" if _can_be_asked(call, response) else "succeeded")


def why(call: Call, reply: Reply, state: State) -> str:
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


def of_error(call: Call, error: Exception, intent: Intent) -> State:
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
    return of_unsent(intent) if _is_unsent(call, error) else "unknown"


def may_be_of_an_earlier_attempt(intent: Intent, state: State | None) -> bool:
    """Return whether the word that a thing was not done may be about an attempt before the one that is in doubt.

    What was sent more than once may have several that the service can speak of, and the last may still arrive. An order
    that is paid is never closed, whichever attempt that is said of.

    Args:
        intent: The intention, as it was when it was sent, or asked about.
        state: What the service's word says of it.
    """
    return state == "rejected" and intent.attempts > 1 and intent.operation != CLOSE_ORDER.name


def of_unsent(intent: Intent) -> State:
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
