"""Bytes out, bytes in: the only place of the client that knows aiohttp."""

from payasync.transport.http import Transport
from payasync.transport.pools import PoolSettings

__all__ = ["PoolSettings", "Transport"]
