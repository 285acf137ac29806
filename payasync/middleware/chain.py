"""The chain of layers that a call passes, and the rules that a user's own layer must keep.

`Session._build_chain` gives the layers their order.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Iterable
from typing import Final, TypeVar

from payasync.errors import (
    ConfigurationError,
    NoAnswerError,
    NoAnswerTimeoutError,
    NotSentTimeoutError,
    frameless_async,
)
from payasync.wire.call import Call, Layer, Reply, Send

T = TypeVar("T")

GRACE: Final = 0.1
"""Seconds that a user's layer may run beyond the deadline, so that the transport inside it times out first."""


def chain(layers: Iterable[Layer], send: Send) -> Send:
    """Return a `send` that passes a call through all layers, the first of them outermost."""
    for layer in reversed(tuple(layers)):
        send = _bind(layer, send)
    return send


def _bind(layer: Layer, send: Send) -> Send:
    return lambda call: layer(call, send)


def guard(layer: Layer) -> Layer:
    """Return a user's layer with checks: it must be awaitable, end in time, and return what `send` returned.

    Raises:
        ConfigurationError: When the layer is called, if it is not an `async def`.
        NoAnswerError: When the layer is called, if it does not return a `Reply`. The call may have been sent.
    """
    name = getattr(layer, "__qualname__", type(layer).__qualname__)

    async def guarded(call: Call, send: Send) -> Reply:
        pending = layer(call, send)
        if not inspect.isawaitable(pending):
            raise ConfigurationError(
                f"middleware {name} must be an `async def layer(call, send)`; it returned {type(pending).__name__}",
                field="middleware",
            )
        reply = await await_in_time(call, pending, f"middleware {name}", grace=GRACE)
        if not isinstance(reply, Reply):
            reason = f"middleware {name} must return what send returns, not {type(reply).__name__}"
            raise NoAnswerError(reason, reason=reason)
        return reply

    return guarded


@frameless_async
async def hide_frames(call: Call, send: Send) -> Reply:
    """Pass a call on from a user's layer, and remove our frames from the errors that reach the layer."""
    return await send(call)


async def await_in_time(call: Call, work: Awaitable[T], name: str, *, grace: float = 0) -> T:
    """Await foreign work until the call's deadline, or `grace` seconds later.

    Raises:
        NoAnswerTimeoutError: The time was over, and the request may have been sent.
        NotSentTimeoutError: The time was over before the request was sent.
    """
    timer = asyncio.timeout_at(call.deadline + grace)
    try:
        async with timer:
            return await work
    except TimeoutError:
        if not timer.expired():
            raise
    raise out_of_time(call, name)


def out_of_time(call: Call, name: str) -> NoAnswerTimeoutError | NotSentTimeoutError:
    """Return the error of a call whose time is over while foreign work goes on."""
    message = f"{name} took longer than the call had"
    if call.progress.begun:
        return NoAnswerTimeoutError(message, reason="out of time")
    return NotSentTimeoutError(message, reason="out of time")
