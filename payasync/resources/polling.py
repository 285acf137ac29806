"""What a namespace needs of a session, and how it waits for a state: a query, repeated with growing pauses."""

from collections.abc import Callable, Iterator
from inspect import isawaitable, iscoroutine, iscoroutinefunction
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import backoff

from payasync.clocks import Pace
from payasync.endpoints import CREATE_REFUND, ORDER_STATES, PLACE_ORDER, REFUND_STATES
from payasync.errors import (
    NoAnswerError,
    NotSentError,
    RateLimitedError,
    ServiceError,
    WaitTimeoutError,
    frameless_async,
)
from payasync.evidence.claims import STATE_CLAIMS, Claim
from payasync.settings import is_number, not_configured
from payasync.wire.request import Request
from payasync.wire.response import Response
from payasync.wire.validators import invalid_argument

if TYPE_CHECKING:
    from payasync.profile import Profile

R = TypeVar("R", bound=Response)

PLAIN_FUNCTION: Final = "a plain function of the response, which says whether to wait no more"
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 8.0


class SendRequest(Protocol):
    """How the namespaces send. They give a function that makes the request, so no frame of theirs holds its texts."""

    async def __call__(
        self,
        make: Callable[[], Request[R]],
        *,
        timeout: float | None = None,
        intent: str | None = None,
        shield: bool = False,
    ) -> R:
        """Make a request, send it, and return its response."""
        ...


class Namespace:
    """One of `pay.payments`, `pay.orders`, `pay.refunds` and `pay.subscriptions`.

    Args:
        send: Makes a request and sends it. Its errors show no frame of payasync.
        profile: Maps the states.
        pace: Time and chance between the queries of a wait.
    """

    def __init__(self, send: SendRequest, profile: "Profile", pace: Pace = Pace()) -> None:
        self._send = send
        self._profile = profile
        self._pace = pace

    @frameless_async
    async def _wait(self, make: Callable[[], Request[R]], until: str | Callable[[R], bool], timeout: float) -> R:
        """Repeat a query until its response has a state, or a function says so; the session's refusals end it."""
        query = make()
        pace, reached = self._pace, _condition(query.answer.thing, until, self._profile)
        if not is_number(timeout) or not 0 < timeout < float("inf"):
            raise invalid_argument("timeout", "a number of seconds above 0", timeout)
        began = pace.clock()
        end = began + timeout
        wanted, failure = repr(until) if isinstance(until, str) else "what was waited for", ""
        message = f"{wanted} did not come within {timeout:g} s"
        missed = WaitTimeoutError(
            message, operation=query.operation.name, reference=query.reference, reason="out of time"
        )
        pauses = _pauses(pace)
        while (left := end - pace.clock()) > 0:
            asked_at = pace.clock()
            try:
                response = await self._send(lambda: query, timeout=left)
            except (NoAnswerError, NotSentError, ServiceError) as error:
                temporary = not isinstance(error, ServiceError) or isinstance(error, RateLimitedError)
                if getattr(error, "permanent", False) or not (temporary or _is_older(error.response, asked_at - began)):
                    raise
                missed.add(attempts=missed.attempts + error.attempts, retry_after=error.retry_after)
                failure = str(error.args[0])
            else:
                failure = ""
                if _is_older(response, asked_at - began):
                    failure = f"its response is from a cache, {response.age:.0f} s old"
                elif reached(response):
                    return response
                missed.add(attempts=missed.attempts + response.attempts, response=response, retry_after=None, sent=True)
            left = end - pace.clock()
            if (missed.retry_after or 0.0) > left:
                break  # the service does not want to be asked again within the time
            await pace.sleep(max(0.0, min(max(next(pauses), missed.retry_after or 0.0), left)))
        if failure:
            missed.args = (f"{message}; the last query failed: {failure}",)
        raise missed


_DONE: Final = frozenset(
    state
    for write in (PLACE_ORDER, CREATE_REFUND)
    for state, claim in STATE_CLAIMS[write.name].items()
    if claim is Claim.DONE
)
"""The states that count at any age."""


def _is_older(response: Response | None, seconds: float) -> bool:
    """Return whether a cache may have had a response for longer than so many seconds, and its state may have ended."""
    return response is not None and response.age > seconds and response.state not in _DONE


def _pauses(pace: Pace) -> Iterator[float]:
    """Yield the pauses: each of a random length, at least half of a bound that doubles."""
    bounds = backoff.expo(base=2, factor=FIRST_PAUSE, max_value=LONGEST_PAUSE)
    next(bounds)  # backoff's generators begin with an empty step
    yield from (bound / 2 + pace.jitter(bound / 2) for bound in bounds)


def _condition(thing: str, until: str | Callable[[R], bool], profile: "Profile") -> Callable[[R], bool]:
    """Return the function that says whether a response ends the wait.

    Raises:
        InvalidArgumentError: `until` is no state of ours and no plain function.
        NotConfiguredError: The profile's `states` does not list the state `until`.
    """
    if iscoroutinefunction(until):
        raise invalid_argument("until", PLAIN_FUNCTION, until)
    if not callable(until):
        names = REFUND_STATES if thing == "refund" else ORDER_STATES
        if until not in names:
            raise invalid_argument("until", f"one of {', '.join(names)}, or a function of the response", until)
        if until not in getattr(profile.states, thing):
            raise not_configured(f"states.{thing}", f"the service's values that mean {until!r}")
        if not getattr(profile.answer, f"{thing}_status"):
            raise not_configured(f"answer.{thing}_status", f"the path of the state of the {thing}")
        return lambda response: response.state == until

    def ask(response: R) -> bool:
        said = until(response)
        if isawaitable(said):  # it would pass for true, whatever it comes to
            if iscoroutine(said):
                said.close()
            error = invalid_argument("until", PLAIN_FUNCTION, until)
            error.add(sent=True, response=response)
            raise error
        return bool(said)

    return ask
