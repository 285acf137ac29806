"""A merchant's server for notifications, on this machine: it verifies, keeps and answers what it gets."""

import asyncio
import json
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from aiohttp import web
from attrs import field, frozen

from payasync.errors import WaitTimeoutError
from payasync.profile.profile import Profile
from payasync.sandbox import signatures
from payasync.sandbox.dialect import Vocabulary, table_at
from payasync.sandbox.server import listen, url_of
from payasync.sandbox.signatures import Keys
from payasync.sandbox.webhooks import signed_headers

PATH: Final = "/notify"
CLOSING_SECONDS: Final = 0.1


@frozen
class Received:
    """A notification as it arrived.

    Attributes:
        headers: Its headers.
        body: Its body.
        wrong: Why it was not believed; empty where it was verified.
    """

    headers: Mapping[str, str] = field(repr=False)
    body: str
    wrong: str = ""

    @property
    def document(self) -> Any:
        """The body, read."""
        return json.loads(self.body)


@frozen
class Answer:
    """What a notification is answered with."""

    status: int
    body: str


class Verifier:
    """Tells what the service sent from what somebody else did, by the sandbox's own code.

    Args:
        profile: The service's.
        keys: The sandbox's.
    """

    def __init__(self, profile: Profile, keys: Keys) -> None:
        words = Vocabulary(profile)
        self._scheme: Final = words.signature
        self._keys: Final = keys
        self.shape: Final = words.notification

    def wrong(self, headers: Mapping[str, str], body: str) -> str:
        """Return why a notification is not believed; nothing where it is."""
        if self.shape.verification == "standard-webhooks":
            return self._wrong_headers(headers, body)
        if self.shape.verification == "body":
            return self._wrong_body(body)
        return ""

    def _wrong_headers(self, headers: Mapping[str, str], body: str) -> str:
        number, sent = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if not (sent.isascii() and sent.isdigit()):
            return "webhook-timestamp is no number of seconds"
        if abs(time.time() - int(sent)) > self.shape.tolerance:
            return f"webhook-timestamp is more than {self.shape.tolerance} seconds away"
        signed = signed_headers(number, body, self._keys.merchant.notification_keys[0], int(sent))
        genuine = signed["webhook-signature"] in headers.get("webhook-signature", "").split()
        return "" if genuine else "webhook-signature is not that of its body"

    def _wrong_body(self, body: str) -> str:
        above, _, name = self.shape.signature.rpartition(".")
        try:
            signed = table_at(json.loads(body), above)
            given = str(signed.pop(name))
            genuine = signatures.verify(self._scheme, signed, given, path="", key=self._keys.service)
        except (ValueError, LookupError, TypeError, AttributeError, signatures.UnsignableError):
            return "it is no document with a signature"
        return "" if genuine else f"{self.shape.signature} is not that of its body"


class RecordingReceiver:
    """A server that takes a sandbox's notifications at `url`, on a free port of this machine.

    What is genuine it acknowledges as the profile says, and hands out with `next`; what is not, it refuses.

    Args:
        verifier: Tells them apart.
    """

    def __init__(self, verifier: Verifier) -> None:
        shape = verifier.shape
        self._verifier: Final = verifier
        self._yes: Final = Answer(shape.ack_status or 200, shape.ack_body)
        self._no: Final = Answer(shape.nack_status or 400, shape.nack_body)
        self._bad: list[Answer] = []
        self._received: list[Received] = []
        self._coming: asyncio.Queue[Received] = asyncio.Queue()
        self._url = ""
        self._runner = _runner(self._take)

    @property
    def url(self) -> str:
        """Where it takes notifications: an order's `notify_url`."""
        return self._url

    @property
    def received(self) -> tuple[Received, ...]:
        """All that came, oldest first, redeliveries and what was not believed included."""
        return tuple(self._received)

    async def next(self, *, timeout: float = 5.0) -> Received:
        """Return the oldest genuine notification that was not handed out yet; wait for it where there is none.

        Args:
            timeout: Seconds to wait.

        Raises:
            WaitTimeoutError: None came.
        """
        try:
            async with asyncio.timeout(timeout):
                return await self._coming.get()
        except TimeoutError:
            pass
        refused = [each.wrong for each in self._received if each.wrong]
        seen = f"; refused were {len(refused)}, the last since {refused[-1]}" if refused else ""
        raise WaitTimeoutError(f"no notification came to {self._url} within {timeout} seconds{seen}")

    def answer_badly(self, status: int = 500, body: str = "", *, times: int = 1) -> None:
        """Answer the next notifications so, genuine or not; they are kept and handed out all the same.

        Args:
            status: The HTTP status.
            body: The body.
            times: So many of them.
        """
        self._bad.extend([Answer(status, body)] * times)

    async def start(self) -> Self:
        """Listen."""
        await self._runner.setup()
        listening = listen("127.0.0.1", 0)
        self._url = url_of(listening) + PATH
        await web.SockSite(self._runner, listening).start()
        return self

    async def close(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _take(self, request: web.Request) -> web.Response:
        body = (await request.read()).decode(errors="replace")
        received = Received(request.headers.copy(), body, self._verifier.wrong(request.headers, body))
        self._received.append(received)
        if not received.wrong:
            self._coming.put_nowait(received)
        answer = self._bad.pop(0) if self._bad else self._no if received.wrong else self._yes
        return web.Response(status=answer.status, text=answer.body, content_type="application/json")


def _runner(take: Any) -> web.AppRunner:
    application = web.Application()
    application.router.add_post(PATH, take)
    return web.AppRunner(application, access_log=None, shutdown_timeout=CLOSING_SECONDS)
