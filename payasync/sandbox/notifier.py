"""Attempts to deliver notifications (spec: Events).

Shaped by the Standard Webhooks specification; the service's document does not show its notifications.
"""

import base64
import errno
import hmac
import ipaddress
import json
import socket
import time
from typing import Any, Final, Self

import aiohttp
from attrs import evolve, frozen

from payasync.sandbox.faults.passage import PLAIN, Passage
from payasync.sandbox.outbox import Attempt, Notification
from payasync.sandbox.seal import Seal
from payasync.sandbox_profile import PROFILE
from payasync.secret import Secret
from payasync.shapes import NotificationShape

SECONDS: Final = 5.0
"""How long a receiver may take."""
MAX_ANSWER: Final = 64 * 1024
MOST_KEPT: Final = 1024
"""Characters of an answer that are kept with the attempt."""


@frozen(kw_only=True)
class Acknowledgement:
    """The answer by which a receiver takes a notification.

    Attributes:
        status: The HTTP status; `None`: any 2xx.
        body: The body; empty: any.
        bare: Whether an empty body does, too, which is all that a 204 can have.
    """

    status: int | None
    body: str
    bare: bool = False

    @classmethod
    def of(cls, shape: NotificationShape, given: NotificationShape) -> Self:
        """Return what acknowledges: a status and a body that the profile names, exactly these.

        Where it names no status, or is the sandbox's own, any 2xx does; where the body is the sandbox's own, an
        empty one does, too.

        Args:
            shape: The profile's, with what it leaves open as in the sandbox's own.
            given: The profile's.
        """
        own = given == PROFILE.notification
        status = None if own else given.ack_status
        return cls(status=status, body=shape.ack_body, bare=own or not given.ack_body)

    def missing(self, status: int, body: str) -> str:
        """Return what an answer lacks to acknowledge; nothing where it does."""
        taken = status == self.status if self.status else status // 100 == 2  # noqa: PLR2004 - any 2xx
        if not taken:
            return f"answered {status}, which does not acknowledge"
        if self.body and not (self.bare and not body) and not _same(self.body, body):
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
    """Attempts to deliver notifications; to loopback only, unless allowed.

    Args:
        secret: Signs.
        acknowledgement: What counts as taken.
        seal: Signs what carries its signature in its body.
        allow_remote: Deliver beyond loopback, too.
    """

    def __init__(self, secret: Secret, acknowledgement: Acknowledgement, seal: Seal, *, allow_remote: bool) -> None:
        self._seal = seal
        self._secret = secret
        self._acknowledgement = acknowledgement
        self._http = outgoing_client(allow_remote=allow_remote)

    async def close(self) -> None:
        """Let go of all connections."""
        await self._http.close()

    @property
    def timed(self) -> bool:
        """Whether notifications carry a time."""
        return self._seal.timed

    async def attempt(self, notification: Notification, passage: Passage = PLAIN) -> Attempt:
        """Send a notification once, and return what came of it.

        Args:
            notification: Which.
            passage: What a fault makes of it.
        """
        status, body = None, ""
        try:
            status, body = await self._post(notification, passage)
            error = self._acknowledgement.missing(status, body)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as failure:
            error = str(failure) or type(failure).__name__
        except Exception as failure:  # noqa: BLE001 - the profile's signature may be anybody's code
            error = f"{type(failure).__name__}: {failure}"
        return Attempt(
            notification_id=notification.notification_id,
            url=notification.url,
            status=status,
            error=error,
            answer=body[:MOST_KEPT],
            acknowledged=not error,
        )

    async def _post(self, notification: Notification, passage: Passage) -> tuple[int, str]:
        if passage.lost:
            raise ConnectionAbortedError(f"lost on its way: {passage.fault}")
        body = await self._seal.notification(notification.body, passage.age)
        headers = {"Content-Type": "application/json"}
        if self._seal.in_headers:
            headers = signed_headers(evolve(notification, body=body), self._secret, int(time.time()) - passage.age)
        sending = self._http.post(
            notification.url, data=passage.body(body).encode(), headers=headers, allow_redirects=False
        )
        async with sending as answer:
            received = await _start(answer.content)
            return answer.status, received.decode(errors="replace")


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
