"""Middleware is a fold: each layer gets the rest of the way as its `send`."""

import asyncio
import inspect
from collections.abc import Awaitable, Iterable
from functools import reduce
from typing import Final, TypeVar

from payasync.errors import (
    ConfigurationError,
    NoAnswerError,
    NoAnswerTimeoutError,
    NotSentTimeoutError,
    frameless_async,
)
from payasync.wire.call import Call, Layer, Reply, Send, Wiring

T = TypeVar("T")

GRACE: Final = 0.1
"""Seconds that a user's layer has beyond the deadline, so that what it waits for, such as the transport, ends first."""


def chain(layers: Iterable[Wiring], send: Send) -> Send:
    """Return the way through all layers, the first of them outermost."""
    return reduce(lambda inner, layer: layer(inner), reversed(tuple(layers)), send)


def wired(layer: Layer) -> Wiring:
    """Return a layer that is given the rest of the way with each call as one that is given it once."""
    return lambda send: lambda call: layer(call, send)


def users(layer: Layer) -> Wiring:
    """Return a user's layer, held to its promise; the errors that its `send` raises show no frame of ours."""
    checked = held(layer)
    return lambda send: wired(checked)(frameless_async(send))


def held(layer: Layer) -> Layer:
    """Return a user's layer, held to its promise: it is awaited, and returns what `send` returned.

    Raises:
        ConfigurationError: By the layer, where it is no `async def`.
        NoAnswerError: By the layer, where it keeps the reply to itself: what it may have sent is without an answer.
    """
    name = getattr(layer, "__qualname__", type(layer).__qualname__)

    async def checked(call: Call, send: Send) -> Reply:
        passed = layer(call, send)
        if not inspect.isawaitable(passed):
            raise ConfigurationError(
                f"middleware {name} must be an `async def layer(call, send)`; it returned {type(passed).__name__}",
                field="middleware",
            )
        reply = await in_time(call, passed, f"middleware {name}", grace=GRACE)
        if not isinstance(reply, Reply):
            reason = f"middleware {name} must return what send returns, not {type(reply).__name__}"
            raise NoAnswerError(reason, reason=reason)
        return reply

    return checked


async def in_time(call: Call, work: Awaitable[T], whose: str, *, grace: float = 0) -> T:
    """Await what is not ours within the call's deadline, or so many seconds later.

    Raises:
        NoAnswerTimeoutError: The time was over after something may have left this machine.
        NotSentTimeoutError: The time was over before.
    """
    timer = asyncio.timeout_at(call.deadline + grace)
    try:
        async with timer:
            return await work
    except TimeoutError:
        if not timer.expired():
            raise
    message = f"{whose} took longer than the call had"
    if call.progress.begun:
        raise NoAnswerTimeoutError(message, reason="out of time")
    raise NotSentTimeoutError(message, reason="out of time")
