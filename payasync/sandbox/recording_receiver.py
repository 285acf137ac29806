"""A merchant's server for tests: it verifies, records and acknowledges notifications."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any, Final, Self

from aiohttp import web
from attrs import field, frozen

from payasync.errors import WaitTimeoutError
from payasync.sandbox.dialect import WireNames, table_at
from payasync.sandbox.server import listen, url_of
from payasync.sandbox.signatures import Keys, UnsignableError, fill_text, sign_headers, value_at, verify, verify_message
from payasync.signing.schemes import Keyed

PATH: Final = "/notify"
CLOSING_SECONDS: Final = 0.1


@frozen
class Received:
    """A notification as it arrived.

    Attributes:
        headers: Its headers.
        body: Its body.
        wrong: Why it was refused; empty if it was verified.
    """

    headers: Mapping[str, str] = field(repr=False)
    body: str
    wrong: str = ""

    @property
    def document(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def explain_forgery(words: WireNames, keys: Keys, headers: Mapping[str, str], body: str) -> str:
    """Return why a notification is not genuine, by the sandbox's own code; empty if it is.

    Args:
        words: The profile's.
        keys: The sandbox's.
        headers: The notification's.
        body: The notification's.
    """
    shape = words.notification
    if shape.verification in {"header", "standard-webhooks"}:
        places = shape.headers
        sent, nonce, given = (value_at(headers, each) for each in (places.timestamp, places.nonce, places.signature))
        if places.timestamp and not (sent.isascii() and sent.isdigit()):
            return f"{places.timestamp} is not a number of seconds"
        if places.timestamp and abs(time.time() - int(sent)) > shape.tolerance:
            return f"{places.timestamp} is more than {shape.tolerance} seconds away"
        if shape.verification == "header":
            said = {"timestamp": sent, "nonce": nonce, "merchant_id": keys.merchant.merchant_id}
            message = fill_text(places.text, {**said, "body": body}).encode()
            bare, scheme = given.removeprefix(places.prefix), words.signature
            genuine = (
                isinstance(scheme, Keyed)
                and given.startswith(places.prefix)
                and verify_message(scheme, message, bare, keys.service)
            )
        else:
            signed = sign_headers(nonce, body, keys.merchant.notification_keys[0], int(sent), places)
            genuine = signed[places.signature] in given.split()
        return "" if genuine else f"{places.signature} is not that of its body"
    if shape.verification != "body":
        return ""
    above, _, name = shape.signature.rpartition(".")
    try:
        fields = table_at(json.loads(body), above)
        given = str(fields.pop(name))
        genuine = verify(words.signature, fields, given, path="", key=keys.service)
    except (ValueError, LookupError, TypeError, AttributeError, UnsignableError):
        return "it is not a document with a signature"
    return "" if genuine else f"{shape.signature} is not that of its body"


class RecordingReceiver:
    """A server that receives a sandbox's notifications at `url`, on a free port of this machine.

    It acknowledges genuine ones as the profile says, and returns them from `next`. It refuses all others.

    Args:
        words: The profile's.
        keys: The sandbox's.
    """

    def __init__(self, words: WireNames, keys: Keys) -> None:
        shape = words.notification
        self._words: Final = words
        self._keys: Final = keys
        self._acknowledge: Final = (shape.ack_status or 200, shape.ack_body)
        self._refuse: Final = (shape.refusal_status, shape.nack_body)
        self._bad: list[tuple[int, str]] = []
        self._received: list[Received] = []
        self._genuine: asyncio.Queue[Received] = asyncio.Queue()
        self._url = ""
        application = web.Application()
        application.router.add_post(PATH, self._receive)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=CLOSING_SECONDS)

    @property
    def url(self) -> str:
        """Where it receives notifications: an order's `notify_url`."""
        return self._url

    @property
    def received(self) -> tuple[Received, ...]:
        """All that arrived, oldest first, with redeliveries and refused ones."""
        return tuple(self._received)

    async def next(self, *, timeout: float = 5.0) -> Received:
        """Return the oldest genuine notification that was not returned yet, or wait for one.

        Args:
            timeout: Seconds to wait.

        Raises:
            WaitTimeoutError: None arrived.
        """
        try:
            async with asyncio.timeout(timeout):
                return await self._genuine.get()
        except TimeoutError:
            pass
        refused = [each.wrong for each in self._received if each.wrong]
        seen = f"; {len(refused)} were refused, the last because {refused[-1]}" if refused else ""
        raise WaitTimeoutError(f"no notification came to {self._url} within {timeout} seconds{seen}")

    def answer_badly(self, status: int = 500, body: str = "", *, times: int = 1) -> None:
        """Respond to the next notifications with this; `next` still returns the genuine ones.

        Args:
            status: The HTTP status.
            body: The body.
            times: How many.
        """
        self._bad.extend([(status, body)] * times)

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

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def _receive(self, request: web.Request) -> web.Response:
        body = (await request.read()).decode(errors="replace")
        wrong = explain_forgery(self._words, self._keys, request.headers, body)
        received = Received(request.headers.copy(), body, wrong)
        self._received.append(received)
        if not wrong:
            self._genuine.put_nowait(received)
        status, text = self._bad.pop(0) if self._bad else self._refuse if wrong else self._acknowledge
        return web.Response(status=status, text=text, content_type="application/json")
