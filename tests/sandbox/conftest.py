"""A sandbox, a foreign client and a receiver, fresh for each test."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from payasync.sandbox import Sandbox
from tests.sandbox.foreign import Foreign, Receiver


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A merchant's server that acknowledges."""
    server = Receiver()
    await server.start()
    yield server
    await server.close()


@pytest.fixture
async def sandbox(receiver: Receiver) -> AsyncIterator[Sandbox]:
    """A sandbox whose webhook address is the receiver's."""
    async with Sandbox(webhook_url=receiver.url) as running:
        yield running


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """A plain HTTP client."""
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def foreign(sandbox: Sandbox, http: aiohttp.ClientSession) -> Foreign:
    """A client that is not payasync's."""
    return Foreign(sandbox, http)
