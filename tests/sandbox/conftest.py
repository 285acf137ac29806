"""A sandbox, a foreign client and a receiver, new for each test."""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from payasync import Profile
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.store import Store
from tests.sandbox.admin import Operator
from tests.sandbox.foreign import NOON, Foreign, Receiver
from tests.sandbox.world import World
from tests.scrambled import scrambled


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each scenario with the sandbox's own profile, and with a scrambled one, whose seed is in the test's id.

    `PAYASYNC_SCRAMBLED_SEEDS=17,18` sets the seeds. By default the seed is that of pytest-randomly, new each time.
    """
    if not {"world", "slow_world"}.intersection(metafunc.fixturenames):
        return
    drawn = str(metafunc.config.getoption("randomly_seed", 0))
    seeds = os.environ.get("PAYASYNC_SCRAMBLED_SEEDS", drawn).split(",")
    metafunc.parametrize("profile", [PROFILE, *map(scrambled, seeds)], ids=lambda profile: profile.name)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A merchant's server that acknowledges each notification."""
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
def store() -> Iterator[Store]:
    """An empty store."""
    opened = Store(":memory:")
    yield opened
    opened.close()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """A plain HTTP client."""
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def foreign(sandbox: Sandbox, http: aiohttp.ClientSession) -> Foreign:
    """A client that shares no code with payasync."""
    return Foreign(sandbox, http)


@asynccontextmanager
async def opened(
    profile: Profile, receiver: Receiver, http: aiohttp.ClientSession, **settings: Any
) -> AsyncGenerator[World]:
    """Open a sandbox of a profile with a frozen clock, and its clients."""
    running = Sandbox(profile, webhook_url=receiver.url, clock="frozen", **settings)
    async with running, running.session() as pay:
        made = World(running, http, receiver, pay)
        made.acknowledge()
        yield made


@pytest.fixture
async def world(profile: Profile, receiver: Receiver, http: aiohttp.ClientSession) -> AsyncIterator[World]:
    """A sandbox of a profile, and its clients."""
    async with opened(profile, receiver, http) as made:
        yield made


@pytest.fixture
async def slow_world(profile: Profile, receiver: Receiver, http: aiohttp.ClientSession) -> AsyncIterator[World]:
    """A sandbox of a profile, and its clients; the test settles each refund itself."""
    async with opened(profile, receiver, http, refunds="by hand") as made:
        yield made


@pytest.fixture
def operator(sandbox: Sandbox, http: aiohttp.ClientSession) -> Operator:
    """An operator who knows the admin token of the sandbox."""
    return Operator(sandbox, http)


@pytest.fixture
async def frozen(receiver: Receiver) -> AsyncIterator[Sandbox]:
    """A sandbox whose webhook address is the receiver's, and whose time stands at noon of 31 January 2027."""
    async with Sandbox(clock=NOON, webhook_url=receiver.url) as running:
        yield running
