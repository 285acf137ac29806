"""What a namespace needs of a session, and waiting for a state: a query, repeated with growing pauses."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from inspect import isawaitable, iscoroutine, iscoroutinefunction
from typing import Final, Protocol, TypeVar

import backoff

from payasync.endpoints import QUERY_ORDER, QUERY_PAYMENT, QUERY_REFUND
from payasync.errors import NoAnswerError, NotSentError, RateLimitedError, WaitTimeoutError
from payasync.profile.profile import Profile, not_configured
from payasync.profile.schema import ORDER_STATES, REFUND_STATES
from payasync.settings import Pace, is_number
from payasync.wire.request import Request, invalid_argument
from payasync.wire.response import Response

R = TypeVar("R", bound=Response)


class SendRequest(Protocol):
    """`Session.send`, as the namespaces see it."""

    async def __call__(
        self, request: Request[R], *, timeout: float | None = None, intent: str | None = None, shield: bool = False
    ) -> R:
        """Send a request, and return its response."""
        ...


class Namespace:
    """One of `pay.payments`, `pay.orders`, `pay.refunds` and `pay.subscriptions`."""

    def __init__(self, send: SendRequest, profile: Profile) -> None:
        self._send = send
        self._profile = profile


R_co = TypeVar("R_co", bound=Response, covariant=True)

PLAIN_FUNCTION: Final = "a plain function of the response, which says whether to wait no more"
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 8.0
_QUERIES: Final = {"order": QUERY_ORDER.name, "payment": QUERY_PAYMENT.name, "refund": QUERY_REFUND.name}
_NAMES: Final = {"order": ORDER_STATES, "payment": ORDER_STATES, "refund": REFUND_STATES}


class Query(Protocol[R_co]):
    """Asks once, within so many seconds."""

    def __call__(self, *, timeout: float) -> Awaitable[R_co]:
        """Ask."""
        ...


async def wait(
    query: Query[R],
    *,
    thing: str,
    reference: str,
    until: str | Callable[[R], bool],
    timeout: float,
    profile: Profile,
    pace: Pace = Pace(),
) -> R:
    """Ask until what is waited for is there, and return the response that says so.

    What a query that got no response leaves is nothing: it is asked again. A response of the service that refuses
    ends the waiting.

    Raises:
        InvalidArgumentError: `until` is no state of ours and no function, or the time is no number above 0.
        NotConfiguredError: The profile does not map the state.
        WaitTimeoutError: The state did not come in time; `response` is the last response.
        ServiceError: The service refused the query, or knows no such number.
    """
    reached = _reached(thing, until, profile)
    end = pace.clock() + _seconds(timeout)
    wanted = repr(until) if isinstance(until, str) else "what was waited for"
    message = f"{wanted} did not come within {timeout} s"
    missed = WaitTimeoutError(message, operation=_QUERIES[thing], reference=reference, reason="out of time")
    pauses = _pauses(pace)
    while (left := end - pace.clock()) > 0:
        try:
            response = await query(timeout=left)
        except (NoAnswerError, NotSentError, RateLimitedError) as error:
            if getattr(error, "permanent", False):
                raise
            missed.add(attempts=missed.attempts + error.attempts, retry_after=error.retry_after)
        else:
            if reached(response):
                return response
            missed.add(attempts=missed.attempts + response.attempts, response=response, retry_after=None)
        left = end - pace.clock()
        if (missed.retry_after or 0.0) > left:
            break  # the service does not want to be asked again within the time
        await pace.sleep(max(0.0, min(max(next(pauses), missed.retry_after or 0.0), left)))
    raise missed


def _pauses(pace: Pace) -> Iterator[float]:
    """Yield the pauses: each of a random length, at least half of a bound that doubles."""
    bounds = backoff.expo(base=2, factor=FIRST_PAUSE, max_value=LONGEST_PAUSE)
    next(bounds)  # backoff's generators begin with an empty step
    yield from (bound / 2 + pace.jitter(bound / 2) for bound in bounds)


def _reached(thing: str, until: str | Callable[[R], bool], profile: Profile) -> Callable[[R], bool]:
    if iscoroutinefunction(until):
        raise invalid_argument("until", PLAIN_FUNCTION, until)
    if callable(until):
        return partial(_said_by, until)
    if until not in _NAMES[thing]:
        raise invalid_argument("until", f"one of {', '.join(_NAMES[thing])}, or a function of the response", until)
    if until not in getattr(profile.states, thing):
        raise not_configured(f"states.{thing}", f"the service's values that mean {until!r}")
    if not getattr(profile.answer, f"{thing}_status"):
        raise not_configured(f"answer.{thing}_status", f"the path of the state of the {thing}")
    return lambda response: response.state == until


def _said_by(until: Callable[[R], bool], response: R) -> bool:
    said = until(response)
    if isawaitable(said):  # it would pass for true, whatever it comes to
        if iscoroutine(said):
            said.close()
        raise invalid_argument("until", PLAIN_FUNCTION, until)
    return bool(said)


def _seconds(timeout: object) -> float:
    if not is_number(timeout) or not 0 < timeout < float("inf"):
        raise invalid_argument("timeout", "a number of seconds above 0", timeout)
    return float(timeout)
