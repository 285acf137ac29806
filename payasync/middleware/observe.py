"""What is seen of each attempt: one log line and one event, with no field of the request in them."""

import asyncio
import logging
from collections.abc import Callable

from payasync.calls import Call, Layer, Reply, Send
from payasync.errors import PayasyncError
from payasync.events import Attempted, Event

logger = logging.getLogger("payasync")

Tell = Callable[[Event], None]


def teller(on_event: Tell | None) -> Tell:
    """Return a function that logs an event and tells the user's `on_event`, whose errors stop nothing."""

    def tell(event: Event) -> None:
        logger.debug("%s", event)
        if on_event is None:
            return
        try:
            on_event(event)
        except Exception:
            logger.exception("on_event raised; the call goes on")

    return tell


def observe(tell: Tell) -> Layer:
    """Return the layer that tells of each attempt as it ends."""

    async def layer(call: Call, send: Send) -> Reply:
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            reply = await send(call)
        except PayasyncError as error:
            tell(_attempted(call, clock() - started, error=type(error).__name__))
            raise
        tell(_attempted(call, clock() - started, status=reply.status))
        return reply

    return layer


def _attempted(call: Call, elapsed: float, *, status: int | None = None, error: str | None = None) -> Attempted:
    return Attempted(
        operation=call.operation.name,
        reference=call.reference,
        attempt=call.attempt,
        elapsed=elapsed,
        status=status,
        error=error,
    )
