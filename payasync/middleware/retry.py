"""Deadline and retry: how often a call is tried, and which error it ends with.

What an attempt's end means is decided in `verdicts`, without I/O; here is only the loop around it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import backoff
from attrs import evolve, frozen

from payasync.calls import Call, Layer, Reply, Send
from payasync.errors import OutcomeUnknownError, PayasyncError
from payasync.events import Retrying, Unknown
from payasync.middleware.observe import Tell
from payasync.middleware.quota import RETRY_COST, TIMEOUT_COST, Quota
from payasync.settings import RetryPolicy
from payasync.verdicts import last_word, may_repeat

LEAST_TIME: Final = 2.0
"""No retry starts with fewer seconds left, or less than a tenth of the call's total."""


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


@frozen(kw_only=True)
class Pace:
    """Time and chance, so that tests can bring their own."""

    clock: Callable[[], float] = _loop_time
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
    jitter: Callable[[float], float] = backoff.full_jitter


def retry(policy: RetryPolicy, quota: Quota, tell: Tell, pace: Pace = Pace()) -> Layer:  # noqa: B008 - frozen
    """Return the layer that bounds a call by its deadline, and repeats what may be repeated."""

    async def layer(call: Call, send: Send) -> Reply:
        started = pace.clock()
        call = evolve(call, deadline=started + call.timeouts.total)
        delays, taken = _delays(policy, pace), 0
        while True:
            outcome = await _attempt(call, send)
            delay = next(delays)
            cost = _cost(outcome)
            if not may_repeat(outcome) or not _in_time(call, policy, pace.clock() + delay) or not quota.take(cost):
                break
            taken += cost
            tell(_retrying(call, delay, outcome))
            await pace.sleep(delay)
            call = evolve(call, attempt=call.attempt + 1)
        reply = _concluded(call, outcome, tell)
        quota.pay_back(taken)
        return evolve(reply, attempts=call.attempt, elapsed=pace.clock() - started)

    return layer


async def _attempt(call: Call, send: Send) -> Reply | PayasyncError:
    try:
        return await send(call)
    except PayasyncError as error:
        error.add(operation=call.operation.name, reference=call.reference, attempts=call.attempt)
        return error


def _delays(policy: RetryPolicy, pace: Pace) -> Iterator[float]:
    """Full jitter: from 0 to a bound that doubles up to the policy's greatest."""
    bounds = backoff.expo(base=2, factor=policy.base_delay, max_value=policy.max_delay)
    next(bounds)  # backoff's generators start with an empty step
    return (pace.jitter(bound) for bound in bounds)


def _in_time(call: Call, policy: RetryPolicy, start: float) -> bool:
    left = call.deadline - start
    return call.attempt < policy.attempts and left >= min(LEAST_TIME, call.timeouts.total / 10)


def _cost(outcome: Reply | PayasyncError) -> int:
    return TIMEOUT_COST if isinstance(outcome, TimeoutError) else RETRY_COST


def _retrying(call: Call, delay: float, outcome: Reply | PayasyncError) -> Retrying:
    return Retrying(
        operation=call.operation.name,
        reference=call.reference,
        attempt=call.attempt + 1,
        delay=delay,
        reason=_reason(outcome),
    )


def _concluded(call: Call, outcome: Reply | PayasyncError, tell: Tell) -> Reply:
    """Return the reply of a call that succeeded; raise the error of any other."""
    if isinstance(outcome, Reply):
        outcome = evolve(outcome, attempts=call.attempt)
    error = last_word(call, outcome)
    if error is None:
        assert isinstance(outcome, Reply)
        return outcome
    error.add(operation=call.operation.name, reference=call.reference, attempts=call.attempt)
    if isinstance(error, OutcomeUnknownError):
        tell(Unknown(operation=call.operation.name, reference=call.reference, reason=_reason(error)))
    raise error


def _reason(outcome: Reply | PayasyncError) -> str:
    return str(outcome.reason or outcome) if isinstance(outcome, PayasyncError) else f"HTTP {outcome.status}"
