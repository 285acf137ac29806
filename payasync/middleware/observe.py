"""Events and log lines about attempts. They never contain a field of the request."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, runtime_checkable

from attrs import frozen

from payasync.errors import PayasyncError, drop_frames
from payasync.wire.call import Call, Reply, Send


@frozen(kw_only=True)
class Attempted:
    """One attempt ended.

    Attributes:
        operation: The name of the operation, such as `"orders.place"`.
        reference: The order or refund number, if the call has one.
        attempt: 1 for the first attempt.
        elapsed: How long the attempt took, in seconds.
        status: The HTTP status of the response, or `None` if there was no response.
        error: The name of the error's class, if there was no response.
    """

    operation: str
    reference: str | None
    attempt: int
    elapsed: float
    status: int | None = None
    error: str | None = None

    def __str__(self) -> str:
        ended = f"no response ({self.error})" if self.status is None else f"HTTP {self.status}"
        return _log_line(self.operation, self.reference, f"attempt {self.attempt}: {ended} after {self.elapsed:.3f} s")


@frozen(kw_only=True)
class Retrying:
    """A further attempt will start in `delay` seconds, because of `reason`."""

    operation: str
    reference: str | None
    attempt: int
    delay: float
    reason: str

    def __str__(self) -> str:
        words = f"attempt {self.attempt} starts in {self.delay:.2f} s: {self.reason}"
        return _log_line(self.operation, self.reference, words)


@frozen(kw_only=True)
class Unknown:
    """A write ended without a recognised response, so it may have been carried out."""

    operation: str
    reference: str | None
    reason: str

    def __str__(self) -> str:
        return _log_line(self.operation, self.reference, f"outcome unknown: {self.reason}")


Event = Attempted | Retrying | Unknown


def _log_line(operation: str, reference: str | None, words: str) -> str:
    about = f"{operation} {reference}" if reference else operation
    return " ".join(f"{about}: {words}".split())


logger = logging.getLogger("payasync")


_LEVELS: Final = {Attempted: logging.DEBUG, Retrying: logging.INFO, Unknown: logging.WARNING}
"""An unknown outcome is a warning, because a person must look into it."""


@runtime_checkable
class Instrumentation(Protocol):
    """A middleware that also sees whole calls and events, such as `OpenTelemetry` of `payasync.integrations.otel`."""

    async def __call__(self, call: Call, send: Send) -> Reply:
        """Send one attempt."""
        ...

    def around(self, send: Send, base_url: str) -> Send:
        """Return a `send` that stands around all layers of a session."""
        ...

    def on_event(self, event: Event) -> None:
        """Receive an event, within the call that it is about."""
        ...


class EventSink:
    """Logs each event to the logger `payasync`, and passes it to listeners, whose errors stop nothing.

    Args:
        listeners: Called with each event, such as the user's `on_event`; `None` is left out.
    """

    def __init__(self, *listeners: Callable[[Event], None] | None) -> None:
        self.listeners = tuple(each for each in listeners if each is not None)

    def __call__(self, event: Event) -> None:
        """Report one event."""
        logger.log(_LEVELS[type(event)], "%s", event)
        for listener in self.listeners:
            try:
                listener(event)
            except Exception as error:
                drop_frames(error)  # its context may be an error of the attempt
                logger.exception("on_event raised; the call goes on")


def observe(report: EventSink, send: Send) -> Send:
    """Return a `send` that reports each attempt as it ends."""

    def send_observed(call: Call) -> Awaitable[Reply]:
        if not report.listeners and not logger.isEnabledFor(logging.DEBUG):
            return send(call)
        return _send_observed(call, send, report)

    return send_observed


async def _send_observed(call: Call, send: Send, report: EventSink) -> Reply:
    clock = asyncio.get_running_loop().time
    started = clock()
    reply: Reply | None = None
    failed: list[PayasyncError] = []
    try:
        reply = await send(call)
    except PayasyncError as error:
        failed.append(error)
    # Not inside `except`, so that `on_event` cannot see the error with `sys.exception`.
    event = Attempted(
        operation=call.operation.name,
        reference=call.reference,
        attempt=call.attempt,
        elapsed=clock() - started,
        status=None if reply is None else reply.status,
        error=type(failed[0]).__name__ if failed else None,
    )
    report(event)
    if reply is None:
        raise failed.pop()
    return reply
