"""Answers each request with the same JSON, as cheaply as asyncio allows, so that the clients are what is measured.

Its arguments are the seconds that it waits before each response, and the PEM file of a certificate with its key.
"""

import asyncio
import os
import ssl
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

ANSWER = b'{"code":"OK","redirectUrl":"https://pay.example.com/gateway/1","status":"PENDING"}'
REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)


class Static(asyncio.Protocol):
    """Answers each whole request with the same bytes.

    Args:
        delay: Seconds before each response.
    """

    def __init__(self, delay: float) -> None:
        self._delay = delay

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = bytearray()

    def data_received(self, data: bytes) -> None:
        """Answer as many requests as have come whole."""
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._received[:end]).lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
            if len(self._received) < end + 4 + length:
                return
            del self._received[: end + 4 + length]
            if self._delay:
                asyncio.get_running_loop().call_later(self._delay, self._transport.write, REPLY)
            else:
                self._transport.write(REPLY)


async def serve(delay: float, certificate: str) -> None:
    """Print the port, and serve until the standard input ends."""
    tls = None
    if certificate:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Static(delay), "127.0.0.1", 0, backlog=4096, ssl=tls)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


@contextmanager
def static_server(delay: float = 0, certificate: str = "") -> Generator[str]:
    """Run the static server in a process, and if possible on a core, of its own."""
    # By its path, because the current folder may not be searched for modules.
    command = [sys.executable, __file__, str(delay), certificate]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - ours
        assert server.stdin is not None
        assert server.stdout is not None
        yield f"{'https' if certificate else 'http'}://localhost:{int(server.stdout.readline())}"
        server.stdin.close()


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(range(os.cpu_count() or 1))})
    asyncio.run(serve(float(sys.argv[1]), sys.argv[2]))
