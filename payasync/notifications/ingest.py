"""From the raw body to the acknowledgement: read in time, verified, kept durably, answered; by aiohttp and by ASGI."""

import asyncio
import logging
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from datetime import timedelta
from typing import Any, Final, Protocol, TypeAlias

from aiohttp import web
from attrs import evolve, field, frozen

from payasync.errors import ConfigurationError, InvalidArgumentError, InvalidSignatureError, frameless_async
from payasync.notifications.inbox import Added, Inbox, Received
from payasync.notifications.notification import MAX_BYTES, Headers, Notification, Raw, copy_body
from payasync.notifications.transitions import ATTEMPTS, hint_key
from payasync.notifications.verification import Verification
from payasync.profile.profile import not_configured
from payasync.profile.schema import KINDS, REFUSED, NotificationShape
from payasync.settings import Pace, check_types, is_number, must_be
from payasync.strict_json import ABSENT, loads

_LONGEST: Final = timedelta(days=36_500)
_a_count: Final = must_be("an integer of 1 or more", lambda value: type(value) is int and 1 <= value <= sys.maxsize)
_seconds: Final = must_be(
    "a number of seconds above 0", lambda value: is_number(value) and 0 < value <= _LONGEST.total_seconds()
)
_a_timedelta: Final = must_be(
    "a timedelta above 0, such as timedelta(days=30)",
    lambda value: isinstance(value, timedelta) and timedelta(0) < value <= _LONGEST,
)


@frozen(kw_only=True, field_transformer=check_types(""))
class Limits:
    """How much a receiver takes, and how it handles that.

    Args:
        max_bytes: The greatest length of a body.
        max_waiting: So many notifications wait for the disk at once; further ones are to come again.
        attempts: How often an event may fail before it is dead.
        concurrency: So many events are handled at once.
        handler_timeout: Seconds after which a handler has failed.
        lease: Seconds for which an event is claimed; it is extended while its handlers run.
        retention: How long what is done is kept, so that it is known when it comes again.

    Raises:
        ConfigurationError: A value of another type, or below what makes sense.
    """

    max_bytes: int = field(default=MAX_BYTES, validator=_a_count)
    max_waiting: int = field(default=1000, validator=_a_count)
    attempts: int = field(default=ATTEMPTS, validator=_a_count)
    concurrency: int = field(default=10, validator=_a_count)
    handler_timeout: float = field(default=300.0, validator=_seconds)
    lease: float = field(default=60.0, validator=_seconds)
    retention: timedelta = field(default=timedelta(days=30), validator=_a_timedelta)


CONTENT_TOO_LARGE: Final = 413
UNAVAILABLE: Final = 503
RETRY_AFTER: Final = 5
"""Seconds."""
BODY_SECONDS: Final = 10.0
"""The time that a whole body may take to arrive."""
BODILESS: Final = frozenset({204, 205, 304})


@frozen
class Answer:
    """The response to a notification.

    Attributes:
        status: The HTTP status.
        body: A text; it may be empty.
        headers: Without those that frame a message.
    """

    status: int
    body: str = ""
    headers: Mapping[str, str] = field(factory=dict)


TOO_SLOW: Final = Answer(408)
"""To a body that did not arrive in time; its connection is closed."""
WRONG_METHOD: Final = Answer(405, headers={"Allow": "POST"})


def acknowledge(shape: NotificationShape) -> Answer:
    """Return the answer to what has been kept.

    Raises:
        NotConfiguredError: The profile does not say which status acknowledges.
        ConfigurationError: It is one that no body goes with.
    """
    if shape.ack_status is None:
        raise not_configured("notification.ack_status", "the HTTP status that acknowledges a notification, such as 200")
    return _build_answer("ack", shape.ack_status, shape.ack_body)


def refuse(shape: NotificationShape, status: int | None = None) -> Answer:
    """Return the answer to what is not kept; always in the refusal's words, since a service may look at these alone.

    Raises:
        ConfigurationError: No body goes with its status.
    """
    usual = REFUSED if shape.nack_status is None else shape.nack_status
    answer = _build_answer("nack", usual if status is None else status, shape.nack_body)
    return (
        evolve(answer, headers={**answer.headers, "Retry-After": str(RETRY_AFTER)}) if status == UNAVAILABLE else answer
    )


def _build_answer(which: str, status: int, body: str) -> Answer:
    if body and status in BODILESS:
        raise ConfigurationError(
            f"notification.{which}_body: no body goes with the HTTP status {status}. Change one of the two",
            field=f"notification.{which}_body",
        )
    is_json = loads(body.encode()) is not ABSENT
    return Answer(
        status, body, {"Content-Type": "application/json" if is_json else "text/plain; charset=utf-8"} if body else {}
    )


logger: Final = logging.getLogger("payasync.notifications")

MOST_WAITING: Final = 16 << 20
"""Bytes of bodies that wait for the disk at once, however few they are; of one alone, any length."""
_NUMBERS: Final = re.compile(r"\d+")


@frozen
class Arrival:
    """What became of what arrived.

    Attributes:
        answer: The response to it.
        notification: It, if it could be read, and its signature did not speak against it.
        added: What the inbox said, if it was kept.
        error: What was wrong with it, or with the inbox.
    """

    answer: Answer
    notification: Notification | None = None
    added: Added | None = None
    error: Exception | None = None


class Ingest:
    """Verifies notifications, keeps them, and answers them.

    Args:
        verification: Says which are from the service.
        inbox: Keeps them.
        limits: How long one may be, and how many wait for the disk.
        pace: Its clock counts seconds since 1970.
        notify: Called when there is something to dispatch: what comes again may have been left by a process that ended.

    Raises:
        NotConfiguredError: The profile does not say how notifications are acknowledged.
        ConfigurationError: Its answers contradict HTTP.
    """

    def __init__(
        self, verification: Verification, inbox: Inbox, limits: Limits, pace: Pace, *, notify: Callable[[], None]
    ) -> None:
        shape = verification.profile.notification
        self._acknowledgement: Final = acknowledge(shape)
        self._refusal: Final = refuse(shape)
        self._too_large: Final = refuse(shape, CONTENT_TOO_LARGE)
        self._overloaded: Final = refuse(shape, UNAVAILABLE)
        self._verification: Final = verification
        self._inbox: Final = inbox
        self._limits: Final = limits
        self._clock: Final = pace.clock
        self._notify: Final = notify
        self._waiting = 0
        self._waiting_bytes = 0
        self._warned = False
        self._refused_for: Final = set[str]()
        self.closed = False

    async def receive(self, raw: Raw, headers: Headers, kind: str | None) -> Answer:
        """Return the answer to a notification, after it is on the disk."""
        found = self._verify(raw, headers, kind)
        if isinstance(found, Arrival):
            return found.answer
        storing = self._store(build_received(found, timed=self._verification.timed))
        del found  # much was made of its bytes, and nothing but these waits for the disk
        return (await storing).answer

    async def arrive(self, raw: Raw, headers: Headers, kind: str | None) -> Arrival:
        """Return what became of a notification, after it is on the disk."""
        found = self._verify(raw, headers, kind)
        if isinstance(found, Arrival):
            return found
        return evolve(await self._store(build_received(found, timed=self._verification.timed)), notification=found)

    def _verify(self, raw: Raw, headers: Headers, kind: str | None) -> Notification | Arrival:
        """Return a notification that is not to be refused, or its refusal."""
        body, most = copy_body(raw), self._limits.max_bytes
        if len(body) > most:
            self._log_refusal(f"its body is longer than max_bytes, {most}")
            return Arrival(self._too_large)
        try:
            return self._verification.verify(body, headers, now=self._clock(), kind=kind, max_bytes=most)
        except InvalidSignatureError as error:
            self._log_refusal(f"{error.field} {error.reason}")
            return Arrival(self._refusal, error=error)
        except InvalidArgumentError as error:
            self._log_refusal(str(error))
            return Arrival(self._refusal, error=error)

    def _log_refusal(self, why: str) -> None:
        """Log why a notification is refused, each reason once as a warning: anybody may send anything, and often."""
        reason = _NUMBERS.sub("", why)
        logger.log(logging.INFO if reason in self._refused_for else logging.WARNING, "refused a notification: %s", why)
        self._refused_for.add(reason)

    async def _store(self, received: Received) -> Arrival:
        size = len(received.raw)
        too_many = self._waiting >= self._limits.max_waiting
        if self.closed or too_many or (self._waiting and self._waiting_bytes + size > MOST_WAITING):
            return Arrival(self._overloaded)
        self._warn_of_weak_key(received)
        self._waiting += 1
        self._waiting_bytes += size
        try:
            added = await self._inbox.add(received)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was kept, and it must come again
            logger.warning("a notification could not be kept: %s", type(error).__name__)
            return Arrival(self._overloaded, error=error)
        finally:
            self._waiting -= 1
            self._waiting_bytes -= size
        if added is Added.CONFLICT:
            logger.warning("a notification has the key of another, and is quarantined: receiver.events() says which")
        elif not self.closed:
            self._notify()
        return Arrival(self._acknowledgement, added=added)

    def _warn_of_weak_key(self, received: Received) -> None:
        """Log once that events are known by no more than their words: a redelivery in others is handled again."""
        if received.verified and received.weak and received.kind and not self._warned:
            self._warned = True
            logger.warning(
                "an event about a %s is known by the hash of its body alone: told again in other words, it is handled "
                "again, and two that say the same are taken for one. Put the paths that identify it into "
                "notification.id.%s",
                received.kind,
                received.kind,
            )


def choose_key(notification: Notification) -> str:
    """Return the key under which a notification is kept; an unsigned one is known by its words, whatever it claims."""
    return notification.dedup_key if notification.verified else hint_key(notification)


def build_received(notification: Notification, *, timed: bool) -> Received:
    """Return what is kept of a notification.

    Args:
        notification: Not refused.
        timed: If it is verified, a signed time bounds how late it can come again.
    """
    return Received(
        key=choose_key(notification),
        digest=notification.digest,
        weak=notification.weak or not notification.verified,
        kind=notification.kind,
        event=notification.event,
        verified=notification.verified,
        lasting=notification.verified and not timed,
        raw=notification.raw,
        headers=dict(notification.headers),
        received_at=notification.received_at,
    )


class Take(Protocol):
    """`Receiver.receive`, as the adapters see it."""

    async def __call__(self, raw: Raw, headers: Headers, kind: str | None = None) -> Answer:
        """Return the answer to a body with its headers."""
        ...


def kind_of_path(path: str) -> str | None:
    """Return the kind that an address is for: its last part, where that names one."""
    last = path.rstrip("/").rpartition("/")[2]
    return last if last in KINDS else None


@frameless_async
async def answer_aiohttp(take: Take, request: web.Request, *, kind: str | None, max_bytes: int) -> web.Response:
    """Return the answer to a request.

    Args:
        take: The receiver's: returns the answer to a body with its headers.
        request: aiohttp's.
        kind: In place of what its route or its path says.
        max_bytes: No more of its body is read than shows that it is longer.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await _read_aiohttp(request, max_bytes)
    except TimeoutError:
        slow = web.Response(status=TOO_SLOW.status)
        slow.force_close()
        return slow
    answer = await take(body, request.headers, kind or kind_of_path(request.match_info.get("kind", request.path)))
    return web.Response(status=answer.status, body=answer.body.encode(), headers=answer.headers)


async def _read_aiohttp(request: web.Request, max_bytes: int) -> bytes:
    """Return a body, or as much of it as shows that it is too long; nothing, where it broke off or is not decoded."""
    body = bytearray()
    try:
        if request.content.at_eof():  # a middleware has read it before: aiohttp has kept what it gave
            return await request.read()
        async for part in request.content.iter_any():
            body += part
            if len(body) > max_bytes:
                break
    except (web.RequestPayloadError, ConnectionError):
        return b""
    return bytes(body)


Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


@frozen
class Application:
    """An ASGI application, mounted in another one or served by itself.

    Attributes:
        take: The receiver's: returns the answer to a body with its headers.
        max_bytes: No more of a body is read than shows that it is longer.
        start: Called where it is served by itself, before the first request.
        stop: Called after the last.
    """

    take: Take
    max_bytes: int
    start: Callable[[], Awaitable[object]]
    stop: Callable[[], Awaitable[None]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send, kind: str | None = None) -> None:
        """Serve one request, or the application's life."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            answer = await self._answer(scope, receive, kind)
            if answer is not None:
                await _send(answer, send)
        else:
            await send({"type": "websocket.close"})

    @frameless_async
    async def _answer(self, scope: Scope, receive: Receive, kind: str | None) -> Answer | None:
        """Return the answer to a request; nothing where nobody waits for one any more."""
        if scope["method"] != "POST":
            return WRONG_METHOD
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _read_asgi(receive, self.max_bytes)
        except TimeoutError:
            closing = {"Connection": "close"} if scope["http_version"].startswith("1") else {}
            return evolve(TOO_SLOW, headers=closing)  # from HTTP/2 on, no such header may be sent
        return None if body is None else await self.take(body, scope["headers"], kind or kind_of_path(scope["path"]))

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except Exception as error:  # noqa: BLE001 - the server says it, and ends
            await send({"type": "lifespan.startup.failed", "message": f"{type(error).__name__}: {error}"})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})


async def _read_asgi(receive: Receive, max_bytes: int) -> bytes | None:
    """Return a body, or the beginning of one that is too long; `None` where its sender has gone."""
    body = bytearray()
    more = True
    while more and len(body) <= max_bytes:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body)


async def _send(answer: Answer, send: Send) -> None:
    body = answer.body.encode()
    framed = {**answer.headers, "Content-Length": str(len(body))}
    headers = [(name.lower().encode(), value.encode()) for name, value in framed.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
