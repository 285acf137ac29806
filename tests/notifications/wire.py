"""Bytes to a server and back, as no HTTP library would send them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from yarl import URL

from tests.inside import turns

ARRIVED = 100
"""Turns of the loop, which is the server's, too, in which bytes arrive."""


def pass_by(seconds: float) -> None:
    """Let time go by for the running loop, and all that waits in it."""
    loop = asyncio.get_running_loop()
    before = loop.time
    loop.__dict__["time"] = lambda: before() + seconds


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Connect to a server, and close the connection at the end."""
    there = URL(url)
    reader, writer = await asyncio.open_connection(there.host, there.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def dripped(url: str, head: bytes, *, pause: float, drops: int) -> tuple[bytes, bytes, bool]:
    """Send a head, and of its body a byte after each pause, of the loop's time.

    Returns:
        What is answered after the last drop but one; after the last; and whether the connection is closed then.
    """
    async with connected(url) as (reader, writer):
        writer.write(head)
        before = b""
        for _ in range(drops):
            await turns(ARRIVED)
            before = bytes(getattr(reader, "_buffer"))  # noqa: B009 - what has arrived, without a wait for more
            pass_by(pause)
            writer.write(b" ")
        async with asyncio.timeout(5):
            answer = await reader.readuntil(b"\r\n\r\n")
        pass_by(3600)
        return before, answer, b"" == await reader.read()


async def exchanged(url: str, *parts: bytes, hang_up: bool = False) -> bytes:
    """Send bytes to a server, and return the head of what it answers; nothing where we hang up first."""
    async with connected(url) as (reader, writer):
        with suppress(ConnectionError):
            for part in parts:
                writer.write(part)
                await writer.drain()
                await turns(ARRIVED)
        return b"" if hang_up else await reader.readuntil(b"\r\n\r\n")
