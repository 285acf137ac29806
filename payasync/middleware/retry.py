"""Retry: how often a call is tried, and which error it ends with.

What an attempt's end means is decided in `verdicts`, without I/O; here is only the loop around it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, cast

import backoff
from attrs import evolve, frozen

from payasync.calls import Call, Layer, Reply, Send
from payasync.errors import NoAnswerError, OutcomeUnknownError, PayasyncError
from payasync.events import Retrying, Unknown
from payasync.middleware.observe import Teller
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


def retry(policy: RetryPolicy, quota: Quota, tell: Teller, pace: Pace = Pace()) -> Layer:
    """Return the layer that repeats what may be repeated, within the call's deadline."""

    async def layer(call: Call, send: Send) -> Reply:
        started, bounds, taken = pace.clock(), _bounds(policy), 0
        while True:
            outcome = await _attempt(call, send, tell)
            if not may_repeat(outcome) or call.attempt >= policy.attempts:
                break
            delay, cost = pace.jitter(next(bounds)), _cost(outcome)
            if not _time_left(call, pace.clock() + delay) or not quota.take(cost):
                break
            taken += cost
            tell(_retrying(call, delay, outcome))
            await pace.sleep(delay)
            call = evolve(call, attempt=call.attempt + 1)
        if isinstance(outcome, Reply):
            outcome = evolve(outcome, attempts=call.attempt, elapsed=pace.clock() - started)
        reply = _concluded(call, outcome, tell)
        quota.pay_back(taken)
        return reply

    return layer


async def _attempt(call: Call, send: Send, tell: Teller) -> Reply | PayasyncError:
    try:
        return await send(call)
    except PayasyncError as error:
        return _lost(error) if error.sent is False and _in_doubt(call) else error
    except asyncio.CancelledError:
        if _in_doubt(call):
            tell(_unknown(call, "cancelled after it was sent"))
        raise
    except Exception as error:
        if not _in_doubt(call):
            raise
        return _lost(error)


def _lost(error: Exception) -> NoAnswerError:
    """Return what an error means that says nothing of a request, or denies it, where that may have left."""
    reason = f"middleware raised {type(error).__name__}"
    lost = NoAnswerError(f"{reason} after it was sent", reason=reason)
    lost.__cause__ = error
    return lost


def _in_doubt(call: Call) -> bool:
    """Return whether a write may have been done, so that no foreign error may hide it."""
    return call.progress.begun and not call.read


def _bounds(policy: RetryPolicy) -> Iterator[float]:
    """Yield the greatest wait before each further attempt: it doubles, up to the policy's limit."""
    bounds = backoff.expo(base=2, factor=policy.base_delay, max_value=policy.max_delay)
    next(bounds)  # backoff's generators begin with an empty step
    yield from bounds


def _time_left(call: Call, start: float) -> bool:
    return call.deadline - start >= min(LEAST_TIME, call.timeouts.total / 10)


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


def _concluded(call: Call, outcome: Reply | PayasyncError, tell: Teller) -> Reply:
    """Return the reply of a call that succeeded; raise the error of any other."""
    error = last_word(call, outcome)
    if error is None:
        return cast("Reply", outcome)  # only a reply can be a success
    error.add(operation=call.operation.name, reference=call.reference, attempts=call.attempt)
    if isinstance(error, OutcomeUnknownError):
        tell(_unknown(call, _reason(error)))
    raise error


def _unknown(call: Call, reason: str) -> Unknown:
    return Unknown(operation=call.operation.name, reference=call.reference, reason=reason)


def _reason(outcome: Reply | PayasyncError) -> str:
    return str(outcome.reason or outcome.args[0]) if isinstance(outcome, PayasyncError) else f"HTTP {outcome.status}"
