"""Bytes out, bytes in: the only place of the client that knows aiohttp."""

from payasync.transport.pools import PoolSettings
from payasync.transport.send import Transport

__all__ = ["PoolSettings", "Transport"]
