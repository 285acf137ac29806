"""Notes every request in the timeline as it is answered, or ends without an answer."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import web
from attrs import evolve, frozen

from payasync.sandbox import pages
from payasync.sandbox.markup import TIMELINE
from payasync.sandbox.timeline import Entry, Timeline, line
from payasync.sandbox.values import RefusedError

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LOGGER: Final = logging.getLogger("payasync.sandbox")
SILENT: Final = ("/admin/", TIMELINE, "/openapi.json", "/favicon.ico")
"""Paths of what people and tools look at: not the service's."""


@frozen(kw_only=True)
class Facts:
    """What the handler of a request knows of it.

    Attributes:
        name: The operation's, such as `orders.place`.
        reference: The number that the request names, or that was made for it.
        code: The result code.
        refused: Why it was not done.
    """

    name: str
    reference: str = ""
    code: str | int = ""
    refused: RefusedError | None = None


FACTS: Final = web.RequestKey("payasync_sandbox_facts", Facts)
FAULT: Final = web.RequestKey("payasync_sandbox_fault", str)
"""Where the name of a fault stands that was applied to a request."""


class Recorder:
    """Notes requests.

    Args:
        timeline: Where.
        seconds: A clock that only grows.
    """

    def __init__(self, timeline: Timeline, seconds: Callable[[], float] = time.perf_counter) -> None:
        self._timeline = timeline
        self._seconds = seconds

    @web.middleware
    async def note(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Have a request answered, and note what came of it."""
        started, status = self._seconds(), None
        try:
            answer = await handler(request)
            status = answer.status or None  # a fault in place of the answer has none
            return answer
        finally:
            if facts := known(request):
                self._keep(entry(facts, status, (self._seconds() - started) * 1000, request.get(FAULT, "")))

    def _keep(self, seen: Entry) -> None:
        self._timeline.add(seen)
        LOGGER.info("%s", line(seen), extra={"seen": seen})


def note(request: web.Request, **learnt: Any) -> None:
    """Add to what is known of a request.

    Args:
        request: That has its facts.
        learnt: Attributes of `Facts`.
    """
    request[FACTS] = evolve(request[FACTS], **learnt)


def known(request: web.Request) -> Facts | None:
    """Return what is known of a request; nothing where it is no request to the service."""
    if FACTS in request:
        return request[FACTS]
    path = request.path
    if path == "/" or path.startswith((*SILENT, pages.PATH)):
        return None
    return Facts(name=f"{request.method} {path}")


def entry(facts: Facts, status: int | None, milliseconds: float, fault: str) -> Entry:
    """Return the entry of a request."""
    refused = facts.refused
    return Entry(
        kind="request",
        name=facts.name,
        reference=facts.reference,
        status=status,
        outcome=str(facts.code),
        reason=refused.message if refused else "",
        expected=refused.expected if refused else "",
        fault=fault,
        milliseconds=milliseconds,
    )


def reference(arguments: Mapping[str, Any]) -> str:
    """Return the number that a request's arguments name: that of the refund before that of its order."""
    names = ("out_refund_no", "out_trade_no", "subscription_id", "identifier")
    return next((str(arguments[name]) for name in names if arguments.get(name)), "")
