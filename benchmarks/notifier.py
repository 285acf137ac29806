"""Posts notifications over many connections, as cheaply as asyncio allows, so that the receiver is what is measured."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from benchmarks.receiver import CREDENTIALS
from payasync.profile.sandbox_profile import PROFILE
from payasync.testing import sign_notification

OK: Final = b"HTTP/1.1 200 "


def posts(path: str, numbers: range) -> list[bytes]:
    """Return requests that notify of one payment each, signed now."""
    return [_post(path, f"T{number}") for number in numbers]


def _post(path: str, out_trade_no: str) -> bytes:
    data = {"outTradeNo": out_trade_no, "totalAmt": 450, "currency": "CAD", "status": "SBX_PAID"}
    signed = sign_notification(data, profile=PROFILE, credentials=CREDENTIALS, kind="payment")
    headers = {"Host": "127.0.0.1", "Content-Length": str(len(signed.raw)), **signed.headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + signed.raw


class Connection(asyncio.Protocol):
    """Posts one request after the other, each after the answer to the one before.

    Args:
        requests: Shared by all connections.
    """

    def __init__(self, requests: Iterator[bytes]) -> None:
        self._requests = requests
        self._received = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way out."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def go(self) -> None:
        """Post the next request, if there is one."""
        if request := next(self._requests, b""):
            self._transport.write(request)
        else:
            self._transport.close()
            self.done.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Go on as soon as the answer has come whole."""
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]):
            return
        assert head.startswith(OK), head
        self._received = b""
        self.go()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail where the receiver hangs up before the end."""
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the receiver hung up"))


async def post_all(port: int, requests: Sequence[bytes], connections: int = 64) -> float:
    """Return the seconds until all of some requests were acknowledged, over several connections."""
    loop, left = asyncio.get_running_loop(), iter(requests)
    made = [await loop.create_connection(lambda: Connection(left), "127.0.0.1", port) for _ in range(connections)]
    started = loop.time()
    for _, connection in made:
        connection.go()
    await asyncio.gather(*(connection.done for _, connection in made))
    return loop.time() - started
