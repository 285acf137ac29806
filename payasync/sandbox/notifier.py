"""Attempts to deliver notifications (spec: Events).

Shaped by the Standard Webhooks specification; the service's document does not show its notifications.
"""

import base64
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
from payasync.sandbox.unanswered import SECONDS, ElsewhereError, why
from payasync.sandbox_profile import PROFILE
from payasync.secret import Secret
from payasync.shapes import NotificationShape

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
        status, answer, error = None, "", f"lost on its way: {passage.fault}"
        if not passage.lost:
            status, answer, error = await self._sent(notification, passage)
        return Attempt(
            notification_id=notification.notification_id,
            url=notification.url,
            status=status,
            error=error,
            answer=answer[:MOST_KEPT],
            acknowledged=not error,
        )

    async def _sent(self, notification: Notification, passage: Passage) -> tuple[int | None, str, str]:
        """Return the status and the body of the answer, and why it does not acknowledge, or why there is none."""
        try:
            body, headers = await self._signed(notification, passage.age)
        except Exception as failure:  # noqa: BLE001 - the profile's signature may be anybody's code
            return None, "", f"{type(failure).__name__}: {failure}"
        try:
            status, answer = await self._post(notification.url, passage.body(body), headers)
        except (aiohttp.ClientError, OSError, ValueError) as failure:
            return None, "", why(failure)
        return status, answer, self._acknowledgement.missing(status, answer)

    async def _signed(self, notification: Notification, age: int) -> tuple[str, dict[str, str]]:
        body = await self._seal.notification(notification.body, age)
        if self._seal.in_headers:
            return body, signed_headers(evolve(notification, body=body), self._secret, int(time.time()) - age)
        return body, {"Content-Type": "application/json"}

    async def _post(self, url: str, body: str, headers: dict[str, str]) -> tuple[int, str]:
        async with self._http.post(url, data=body.encode(), headers=headers, allow_redirects=False) as answer:
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
        ElsewhereError: The address is not a loopback one.
    """
    host = address[4][0]
    if not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        raise ElsewhereError
    return _socket(address)


def _socket(address: Any) -> socket.socket:
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.settimeout(0)
    return made
