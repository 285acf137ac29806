"""The timeline: each request, change of state and delivery, oldest first, for people to read."""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from aiohttp import web
from attrs import asdict, evolve

from payasync.errors import ConfigurationError
from payasync.sandbox.exchanges import Exchange
from payasync.sandbox.model import Entry
from payasync.sandbox.server import BODY, Handler
from payasync.sandbox.store import Store
from payasync.sandbox.web.pages import GATEWAY, TIMELINE

LOGGER: Final = logging.getLogger("payasync.sandbox")
SILENT: Final = ("/admin/", TIMELINE, "/openapi.json", "/favicon.ico")
"""Paths for people and tools, which are not the service's."""


def format_entry(entry: Entry, unanswered: str = "no response") -> str:
    """Return an entry as one printable line.

    Args:
        entry: The entry.
        unanswered: What a request or delivery without a status shows instead.
    """
    words = [entry.at, entry.kind.ljust(8), entry.name, entry.reference, "->", describe_outcome(entry, unanswered)]
    text = " ".join(word for word in words if word)
    text += f" [fault: {entry.fault}]" if entry.fault else ""
    text += f": {entry.reason}" if entry.reason else ""
    text += f"; the text to sign: {entry.expected}" if entry.expected else ""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "backslashreplace").decode() for each in text
    )


def describe_outcome(entry: Entry, unanswered: str = "no response") -> str:
    """Return how an entry ended: status, outcome and duration."""
    status = str(entry.status or (unanswered if entry.kind in {"request", "delivery"} else ""))
    took = "" if entry.milliseconds is None else f"({entry.milliseconds:.1f} ms)"
    return " ".join(word for word in (status, entry.outcome, took) if word)


_FACTS: Final = web.RequestKey("payasync_sandbox_facts", dict[str, Any])
"""The known facts of a request so far: attributes of its entry."""
_STARTED: Final = web.RequestKey("payasync_sandbox_started", float)
_RECORDED: Final = web.RequestKey("payasync_sandbox_recorded", Entry)
_SIGNED: Final[web.RequestKey[Callable[[], str]]] = web.RequestKey("payasync_sandbox_signed")
_RESPONSE_SIGNED: Final[web.RequestKey[Callable[[], str]]] = web.RequestKey("payasync_sandbox_response_signed")
MAX_EXCHANGES: Final = 200
"""How many of the newest requests are kept with what was sent and answered, in memory only."""


class RequestRecorder:
    """Records requests.

    Args:
        store: Where.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._in_progress: list[web.Request] = []
        self._exchanges: dict[int, Exchange] = {}

    @web.middleware
    async def record_request(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Handle a request, record it unless its own transaction has, and log it."""
        status, answer, request[_STARTED] = None, None, time.perf_counter()
        self._in_progress.append(request)
        try:
            answer = await handler(request)
            status = answer.status or None  # a fault in place of the answer has none
            return answer
        finally:
            self._in_progress.remove(request)
            entry = request.get(_RECORDED)
            if (entry is None or entry.status != status) and (entry := self._entry(request, status)):
                # The response is sent even if the database cannot be written.
                with suppress(ConfigurationError), self._store.transaction():
                    entry = evolve(entry, seq=self._store.add_entry(entry))
            self._keep_exchange(request, entry, answer)
            if entry:
                seen = asdict(entry)
                LOGGER.info("%s", format_entry(entry), extra={"event_name": "sandbox.request", "seen": seen})

    def record_in_transaction(self, request: web.Request, status: int) -> None:
        """Record a request in the open transaction, unless a fault may change how it ends."""
        entry = self._entry(request, status)
        if entry and not entry.fault:
            request[_RECORDED] = evolve(entry, seq=self._store.add_entry(entry))

    def _keep_exchange(self, request: web.Request, entry: Entry | None, answer: web.StreamResponse | None) -> None:
        """Keep what was sent and answered, if the request is one of the service's, and recorded."""
        if entry is None or not entry.seq or request.path.startswith(GATEWAY):
            return
        body = getattr(answer, "body", None)
        self._exchanges[entry.seq] = Exchange(
            operation=request.get(_FACTS, {}).get("name", ""),
            method=request.method,
            target=request.raw_path,
            headers=request.headers.items(),
            body=request.get(BODY),
            signed=request.get(_SIGNED),
            response_signed=request.get(_RESPONSE_SIGNED, str),
            status=entry.status,
            response_headers=answer.headers if answer else {},
            response_body=body if isinstance(body, bytes) else None,
        )
        if len(self._exchanges) > MAX_EXCHANGES:
            del self._exchanges[next(iter(self._exchanges))]

    def exchange(self, seq: int) -> Exchange | None:
        """Return what the request of an entry sent, and what was answered; `None` if it is no longer kept."""
        return self._exchanges.get(seq)

    def format_timeline(self) -> list[str]:
        """Return the entries as printable lines, and after them the requests that are still in progress."""
        unrecorded = [self._entry(request, None) for request in self._in_progress if not request.get(_RECORDED)]
        return [
            *(format_entry(entry) for entry in self._store.find_all(Entry)),
            *(format_entry(entry, "in progress") for entry in unrecorded if entry),
        ]

    def _entry(self, request: web.Request, status: int | None) -> Entry | None:
        """Return the entry of a request; `None` if it is not for the service."""
        facts, path = request.get(_FACTS), request.path
        if facts is None:
            if path == "/" or path.startswith((*SILENT, GATEWAY)):
                return None
            facts = dict[str, Any](name=f"{request.method} {path}")
        milliseconds = (time.perf_counter() - request[_STARTED]) * 1000
        return Entry(kind="request", status=status, milliseconds=milliseconds, **facts)


def add_facts(request: web.Request, **known: Any) -> None:
    """Add the known facts of a request to its entry.

    Args:
        request: A request to the service.
        known: Attributes of `Entry`; the first time the `name`.
    """
    request[_FACTS] = {**request.get(_FACTS, {}), **known}


def known_facts(request: web.Request) -> dict[str, Any]:
    """Return the known facts of a request to the service."""
    return request[_FACTS]


def keep_signed_text(request: web.Request, text: Callable[[], str], *, of_response: bool = False) -> None:
    """Keep how to write the text that a genuine signature covers, for the request's page."""
    request[_RESPONSE_SIGNED if of_response else _SIGNED] = text


def find_reference(arguments: Mapping[str, Any]) -> str:
    """Return the number that a request's arguments name: that of the refund before that of its order."""
    names = ("out_refund_no", "identifier", "out_trade_no", "subscription_id")
    return next((str(arguments[name]) for name in names if arguments.get(name)), "")
