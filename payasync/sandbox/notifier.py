"""Delivers the outbox: each notification once, oldest first (spec: Events).

Shaped by the Standard Webhooks specification; the service's document does not show its notifications.
"""

import asyncio
import base64
import errno
import hmac
import ipaddress
import json
import socket
import time
from typing import Any, Final, Self

import aiohttp
from attrs import frozen

from payasync.sandbox.store import Store
from payasync.sandbox.values import Attempt, Notification
from payasync.secret import Secret
from payasync.shapes import NotificationShape

SECONDS: Final = 5.0
"""How long a receiver may take."""
MAX_ANSWER: Final = 64 * 1024


@frozen(kw_only=True)
class Acknowledgement:
    """The answer by which a receiver takes a notification.

    Attributes:
        status: The HTTP status; `None`: any 2xx.
        body: The body; empty: any.
    """

    status: int | None
    body: str

    @classmethod
    def of(cls, shape: NotificationShape) -> Self:
        """Return what a profile says of it."""
        return cls(status=shape.ack_status, body=shape.ack_body)

    def missing(self, status: int, body: str) -> str:
        """Return what an answer lacks to acknowledge; nothing where it does."""
        taken = status == self.status if self.status else status // 100 == 2  # noqa: PLR2004 - any 2xx
        if not taken:
            return f"answered {status}, which does not acknowledge"
        if self.body and not _same(self.body, body):
            return f"answered a body that does not acknowledge: it must be {self.body}"
        return ""


def _same(expected: str, body: str) -> bool:
    if expected.strip() == body.strip():
        return True
    try:
        return bool(json.loads(expected) == json.loads(body))
    except (ValueError, RecursionError):
        return False


def signed_headers(notification: Notification, secret: Secret, timestamp: int) -> dict[str, str]:
    """Return a notification's headers by Standard Webhooks.

    Args:
        notification: Whose body is signed as it is sent.
        secret: `whsec_` and the key in base64.
        timestamp: Seconds of wall time, which verifiers compare with theirs.
    """
    key = base64.b64decode(secret.reveal().removeprefix("whsec_"))
    text = f"{notification.notification_id}.{timestamp}.{notification.body}"
    signature = base64.b64encode(hmac.digest(key, text.encode(), "sha256")).decode()
    return {
        "Content-Type": "application/json",
        "webhook-id": notification.notification_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{signature}",
    }


class Notifier:
    """Delivers what is due, in the background; loopback only, unless allowed.

    Args:
        store: Holds the outbox.
        secret: Signs.
        acknowledgement: What counts as taken.
        allow_remote: Deliver beyond loopback, too.
    """

    def __init__(self, store: Store, secret: Secret, acknowledgement: Acknowledgement, *, allow_remote: bool) -> None:
        self._store = store
        self._secret = secret
        self._acknowledgement = acknowledgement
        self._woken = asyncio.Event()
        self._idle = asyncio.Event()
        self._http = outgoing_client(allow_remote=allow_remote)
        self._task = asyncio.create_task(self._run(), name="payasync sandbox notifier")

    def wake(self) -> None:
        """Say that something may be due."""
        self._idle.clear()
        self._woken.set()

    async def settle(self) -> None:
        """Return when everything that is due has been attempted."""
        idle = asyncio.create_task(self._idle.wait())
        try:
            await asyncio.wait({idle, self._task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            idle.cancel()
        if self._task.done():
            self._task.result()

    async def close(self) -> None:
        """Stop; what is still due stays in the outbox."""
        self._task.cancel()
        try:
            await asyncio.wait({self._task})
        finally:
            await self._http.close()

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            while notification := self._store.due():
                self._store.add_attempt(await self._attempt(notification))
            self._idle.set()
            await self._woken.wait()

    async def _attempt(self, notification: Notification) -> Attempt:
        status = None
        try:
            status, body = await self._post(notification)
            error = self._acknowledgement.missing(status, body)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as failure:
            error = str(failure) or type(failure).__name__
        return Attempt(
            notification_id=notification.notification_id,
            url=notification.url,
            status=status,
            error=error,
            acknowledged=not error,
        )

    async def _post(self, notification: Notification) -> tuple[int, str]:
        headers = signed_headers(notification, self._secret, int(time.time()))
        sending = self._http.post(
            notification.url, data=notification.body.encode(), headers=headers, allow_redirects=False
        )
        async with sending as answer:
            body = await _start(answer.content)
            return answer.status, body.decode(errors="replace")


async def _start(content: aiohttp.StreamReader) -> bytes:
    received = bytearray()
    async for chunk in content.iter_any():
        received += chunk
        if len(received) > MAX_ANSWER:
            break
    return bytes(received[:MAX_ANSWER])


def outgoing_client(*, allow_remote: bool) -> aiohttp.ClientSession:
    """Return a client that sends no cookies, uses no proxy, and connects to loopback only, unless allowed."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(socket_factory=_socket if allow_remote else loopback_socket, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=SECONDS),
        auto_decompress=False,
    )


def loopback_socket(address: Any) -> socket.socket:
    """Return a socket for an address that a name has been resolved to.

    Here, and not before the resolution: a name may change its address in between.

    Raises:
        OSError: The address is not a loopback one.
    """
    host = address[4][0]
    if not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        raise OSError(errno.EACCES, f"{host} is not on this machine: the sandbox notifies loopback addresses only")
    return _socket(address)


def _socket(address: Any) -> socket.socket:
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.settimeout(0)
    return made
