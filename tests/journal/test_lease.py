"""If a sender's machine was suspended past its lease, the sender sends nothing, because another may have sent.

The event loop's clock stands still while a machine is suspended, and the journal's clock does not.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from payasync import Call, NotSentError, OutcomeUnknownError, PayasyncError, Reply, Send, Session, Unknown
from payasync.journal import SqliteJournal
from payasync.journal.intents import BeginResult, Draft
from payasync.journal.middleware import LEASE_MARGIN
from payasync.settings import Timeouts
from payasync.wire.call import Layer
from tests.foreign.recorder import RESET
from tests.journal.building import Clock, move_away, refund
from tests.journal.service import CLOSE, QUARANTINE, SAYS, Service, said, serving
from tests.sessions import FAST, KEYS

LEASE_OVER: Final = "the journal's lease on this write, or the life of its idempotency key, is over"
LEASE: Final = Timeouts().total + LEASE_MARGIN
TAKEN: Final = said("PROCESSING")

Sleep = Callable[[], Awaitable[object]]


def sleeping(sleep: Sleep, *, attempt: int = 1, after: bool = False) -> Layer:
    """Return a layer that sleeps before an attempt leaves, or after it."""

    async def layer(call: Call, send: Send) -> Reply:
        if call.attempt == attempt and not after:
            await sleep()
        try:
            return await send(call)
        finally:
            if after:
                await sleep()

    return layer


class SleepyResolver(AbstractResolver):
    """Sleeps while the connection is made, when the request is signed already."""

    def __init__(self, sleep: Sleep) -> None:
        self._sleep = sleep
        self._inner = ThreadedResolver()

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        """Return where the host is, afterwards."""
        await self._sleep()
        return await self._inner.resolve(host, port, family)

    async def close(self) -> None:
        """Close nothing."""


class Slow(SqliteJournal):
    """A journal during whose `begin` the machine sleeps."""

    sleep: Sleep

    async def begin(self, draft: Draft, lease: float, *, service: str | None = None) -> BeginResult:
        """Store an intent as *sending*."""
        begun = await super().begin(draft, lease, service=service)
        await self.sleep()
        return begun


class World:
    """A process that may sleep, beside another one, whose service does a refund as often as it is asked to."""

    def __init__(self, other: Service, journal: SqliteJournal) -> None:
        self.other = other
        self.journal = journal

    async def reconciled(self) -> None:
        """Sleep, while another process asks until "absent" is final, and sends again what was queued."""
        await self.other.reconciled(LEASE)
        await self.other.reconciled(QUARANTINE)

    async def repeated(self) -> None:
        """Sleep, while another process asks until "absent" is final, and its caller makes the refund again."""
        await self.reconciled()
        await self.other.called()

    async def alone(self) -> None:
        """Sleep past the lease, while no other process runs."""
        self.other.clock.advance(LEASE)

    async def made(self, how: str, *layers: Layer, request: Any = None, **settings: Any) -> Any:
        """Make a refund, queued, shielded or directly; return its response or its error.

        The service is called by its name, because a connection has to look that up.
        """
        chosen: dict[str, Any] = {"credentials": KEYS, "retry": FAST, "journal": self.journal, **settings}
        url = f"http://localhost:{self.other.recorder.port}"
        async with Session(url, profile=SAYS, middleware=layers, **chosen) as pay:
            try:
                if how == "queued":
                    return await pay.execute(await self.journal.add(refund(), merchant="M1"))
                return await pay.send(request or refund(), shield=how == "shielded")
            except PayasyncError as error:
                return error


@pytest.fixture
async def world(path: Path, clock: Clock) -> AsyncIterator[World]:
    """The world, in which no refund is known to the service."""
    async with SqliteJournal(path) as journal, SqliteJournal(path) as others, serving(others, clock, TAKEN) as other:
        yield World(other, journal)


@pytest.mark.parametrize("how", ["queued", "direct", "shielded"])
async def test_suspended_sender_sends_nothing(world: World, how: str) -> None:
    """If another process has sent the write, a sender that wakes sends nothing and raises `OutcomeUnknownError`."""
    heard = list[object]()
    sleep = world.reconciled if how == "queued" else world.repeated
    error = await world.made(how, sleeping(sleep), on_event=heard.append)
    (intent,) = await world.journal.list()
    again = await world.made("direct")

    assert 1 == world.other.sends
    assert isinstance(error, OutcomeUnknownError)
    assert (intent.id, "refunds.create", "R1", 1) == (error.intent_id, error.operation, error.reference, error.attempts)
    assert [error.reason] == [each.reason for each in heard if isinstance(each, Unknown)]
    assert ("accepted", 0) == (intent.state, again.attempts)


async def test_suspended_as_it_connects(world: World) -> None:
    """The lease is checked just before the first byte, even if the request is signed already."""
    connector = aiohttp.TCPConnector(resolver=SleepyResolver(world.reconciled))
    async with aiohttp.ClientSession(connector=connector) as http:
        error = await world.made("queued", http=http)

    assert (1, OutcomeUnknownError) == (world.other.sends, type(error))


async def test_suspended_while_the_journal_commits(world: World, path: Path) -> None:
    """The lease counts from before the journal's call. If it ends during that call, nothing is sent."""
    async with Slow(path) as slow:
        slow.sleep = world.repeated
        error = await world.made("direct", journal=slow)

    assert (1, OutcomeUnknownError) == (world.other.sends, type(error))


@pytest.mark.parametrize(("how", "state"), [("queued", "new"), ("direct", "rejected")])
async def test_nobody_else_was_there(world: World, how: str, state: str) -> None:
    """If the lease is over and nobody else claimed the write, the call raises `NotSentError`. It can be repeated."""
    error = await world.made(how, sleeping(world.alone))
    (intent,) = await world.journal.list()
    unsent, again = world.other.sends, await world.made("direct")

    assert (0, 1) == (unsent, world.other.sends)
    assert isinstance(error, NotSentError)
    assert (False, 1, LEASE_OVER) == (error.sent, error.attempts, error.reason)
    assert (state, 1) == (intent.state, again.attempts)


async def test_journal_that_cannot_say(world: World, path: Path) -> None:
    """If the lease is over and the journal fails, the call sends nothing and raises `OutcomeUnknownError`."""

    async def sleep() -> None:
        await world.alone()
        move_away(path)

    error = await world.made("direct", sleeping(sleep))

    assert (0, OutcomeUnknownError) == (world.other.sends, type(error))


@pytest.mark.parametrize(("attempt", "after"), [(1, True), (2, False)])
async def test_no_further_attempt_begins(world: World, attempt: int, *, after: bool) -> None:
    """If the lease is over, even an idempotent write is not retried. The first attempt stays in doubt."""
    world.other.say(RESET, RESET, close=RESET)
    error = await world.made("direct", sleeping(world.alone, attempt=attempt, after=after), request=CLOSE)
    (intent,) = await world.journal.list()

    assert (1, OutcomeUnknownError, attempt) == (world.other.sends, type(error), error.attempts)
    assert "unknown" == intent.state


async def test_query_needs_no_lease(world: World) -> None:
    """If the lease is over, the session still queries the write's outcome, because a query changes nothing."""
    world.other.say(RESET, said("SUCCEEDED"))
    found = await world.made("direct", sleeping(world.alone, after=True))

    assert ("succeeded", 1, 1) == (found.state, world.other.sends, world.other.questions)
