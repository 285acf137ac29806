"""Bytes to a server and back, as no HTTP library would send them."""

import asyncio
from contextlib import suppress

from yarl import URL

from tests.inside import turns

ARRIVED = 100
"""Turns of the loop, which is the server's, too, in which bytes arrive."""


async def exchanged(url: str, *parts: bytes, hang_up: bool = False) -> bytes:
    """Send bytes to a server, and return the head of what it answers; nothing where we hang up first."""
    there = URL(url)
    reader, writer = await asyncio.open_connection(there.host, there.port)
    try:
        with suppress(ConnectionError):
            for part in parts:
                writer.write(part)
                await writer.drain()
                await turns(ARRIVED)
        return b"" if hang_up else await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
