"""Events and log lines about attempts. They never contain a field of the request."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, runtime_checkable

from attrs import asdict, frozen

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
    """A further attempt, or a query about a lost response, will start after a wait.

    Attributes:
        operation: The name of the operation, such as `"orders.place"`.
        reference: The order or refund number, if the call has one.
        attempt: The number of the attempt that will start.
        delay: The seconds until it starts.
        reason: Why, in one line.
    """

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
    """A write ended without a recognised response, so it may have been carried out.

    Attributes:
        operation: The name of the operation, such as `"orders.place"`.
        reference: The order or refund number, if the call has one.
        reason: Why, in one line.
    """

    operation: str
    reference: str | None
    reason: str

    def __str__(self) -> str:
        return _log_line(self.operation, self.reference, f"outcome unknown: {self.reason}")


Event = Attempted | Retrying | Unknown


def _log_line(operation: str, reference: str | None, words: str) -> str:
    about = f"{operation} {reference}" if reference else operation
    return " ".join(f"{about}: {words}".split())


logger: Final = logging.getLogger("payasync")


_RECORDS: Final = {
    Attempted: (logging.DEBUG, "attempt"),
    Retrying: (logging.INFO, "retry"),
    Unknown: (logging.WARNING, "outcome_unknown"),
}
"""The level and the name of the record of each event. A person must look into an unknown outcome: it is a warning."""
_FIELDS: Final = {"status": "http_status", "error": "error_type"}
"""The attributes of events that records call otherwise."""


def log(logger: logging.Logger, level: int, name: str, message: str, *, exc_info: Any = None, **values: Any) -> None:
    """Log a record whose values are also attributes of it, for programs that read logs.

    `docs/reference/events.md` lists the records.

    Args:
        logger: The logger.
        level: The level.
        name: The attribute `event_name` of the record.
        message: Shows values as `%(reference)s`.
        exc_info: As `logging` takes it.
        values: The further attributes of the record.
    """
    extra = {"event_name": name, **values}
    logger.log(level, message, extra, exc_info=exc_info, extra=extra, stacklevel=2)


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
        self.listeners: tuple[Callable[[Event], None], ...] = tuple(each for each in listeners if each is not None)

    def __call__(self, event: Event) -> None:
        """Report one event."""
        level, name = _RECORDS[type(event)]
        if logger.isEnabledFor(level):
            values = {_FIELDS.get(key, key): value for key, value in asdict(event).items()}
            logger.log(level, "%s", event, extra={"event_name": name, **values})
        for listener in self.listeners:
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - it is logged
                drop_frames(error)  # its context may be an error of the attempt
                words, name = "on_event raised; the call goes on", type(error).__name__
                log(logger, logging.ERROR, "on_event_failed", words, error_type=name, exc_info=error)


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
