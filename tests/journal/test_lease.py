"""If a sender's machine was suspended past its lease, the sender sends nothing, because another may have sent.

The event loop's clock stands still while a machine is suspended, and the journal's clock does not.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from payasync import Call, NotSentError, OutcomeUnknownError, PayasyncError, Reply, Send, Session, Unknown
from payasync.clocks import Pace
from payasync.journal import Reconciler, SqliteJournal
from payasync.journal.intents import BeginResult, Draft
from payasync.journal.middleware import LEASE_MARGIN
from payasync.settings import Timeouts
from payasync.wire.call import Layer
from tests.foreign.recorder import RESET, Recorder, answer
from tests.journal.building import Clock, move_away, refund
from tests.matrix.cells import ABSENT_BODY, REFUND_QUERY, SURE, session
from tests.sessions import FAST, KEYS

LEASE_OVER: Final = "the journal's lease on this write, or the life of its idempotency key, is over"
LEASE: Final = Timeouts().total + LEASE_MARGIN
QUARANTINE: Final = 60.0
ABSENT: Final = answer(404, ABSENT_BODY)
TAKEN: Final = answer(200, b'{"code":"SBX_OK","status":"SBX_PROCESSING"}')
DONE: Final = answer(200, b'{"code":"SBX_OK","status":"SBX_SUCCEEDED"}')

Sleep = Callable[[], Awaitable[None]]


def sleeping(sleep: Sleep, *, attempt: int = 1) -> Layer:
    """Return a layer that sleeps before an attempt leaves."""

    async def layer(call: Call, send: Send) -> Reply:
        if call.attempt == attempt:
            await sleep()
        return await send(call)

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


class World:
    """A service that does the same refund as often as it is asked to, a journal, and another process beside us."""

    def __init__(self, service: Recorder, journal: SqliteJournal, other: Session, clock: Clock) -> None:
        self.service = service
        self.journal = journal
        self.clock = clock
        self._other = other
        self._reconciler = Reconciler(other, journal, quarantine=QUARANTINE, pace=Pace(clock=clock))

    @property
    def sent(self) -> int:
        """How often the service has received a write."""
        return sum(request.path != REFUND_QUERY for request in self.service.requests)

    async def reconciled(self) -> None:
        """Sleep, while another process asks until "absent" is final, and sends again what was queued."""
        self.clock.advance(LEASE)
        await self._reconciler.run_once()
        self.clock.advance(QUARANTINE)
        await self._reconciler.run_once()

    async def repeated(self) -> None:
        """Sleep, while another process asks until "absent" is final, and its caller makes the refund again."""
        await self.reconciled()
        await self._other.send(refund())

    async def alone(self) -> None:
        """Sleep past the lease, while no other process runs."""
        self.clock.advance(LEASE)

    def session(self, *layers: Layer, **settings: Any) -> Session:
        """Return a session with the journal, by the service's name: a connection has to look that up."""
        url = f"http://localhost:{self.service.port}"
        chosen: dict[str, Any] = {"credentials": KEYS, "retry": FAST, "journal": self.journal, **settings}
        return Session(url, profile=SURE, middleware=layers, **chosen)


@pytest.fixture
async def world(path: Path, clock: Clock) -> AsyncIterator[World]:
    """The world, in which no refund is known to the service."""
    with Recorder(otherwise=TAKEN, by_path={REFUND_QUERY: ABSENT}) as service:
        async with (
            SqliteJournal(path, clock=clock) as journal,
            SqliteJournal(path, clock=clock) as others,
            session(service, SURE, journal=others) as other,
        ):
            yield World(service, journal, other, clock)


async def failed(call: Awaitable[object]) -> PayasyncError:
    """Return the error that a call ends with."""
    with pytest.raises(PayasyncError) as caught:
        await call
    return caught.value


async def made(world: World, pay: Session, how: str) -> PayasyncError:
    """Make a refund, queued, shielded or directly; return the error that it ends with."""
    if how == "queued":
        return await failed(pay.execute(await world.journal.add(refund(), merchant=pay.merchant_id)))
    return await failed(pay.send(refund(), shield=how == "shielded"))


@pytest.mark.parametrize("how", ["queued", "direct", "shielded"])
async def test_suspended_sender_sends_nothing(world: World, how: str) -> None:
    """If another process has sent the write, a sender that wakes sends nothing and raises `OutcomeUnknownError`."""
    heard = list[object]()
    sleep = world.reconciled if how == "queued" else world.repeated
    async with world.session(sleeping(sleep), on_event=heard.append) as pay:
        error = await made(world, pay, how)
        (intent,) = await world.journal.list()
        again = await pay.send(refund())

    assert 1 == world.sent
    assert isinstance(error, OutcomeUnknownError)
    assert (intent.id, "refunds.create", "R1", 1) == (error.intent_id, error.operation, error.reference, error.attempts)
    assert [error.reason] == [each.reason for each in heard if isinstance(each, Unknown)]
    assert ("accepted", 0) == (intent.state, again.attempts)


async def test_suspended_as_it_connects(world: World) -> None:
    """The lease is checked just before the first byte, even if the request is signed already."""
    connector = aiohttp.TCPConnector(resolver=SleepyResolver(world.reconciled))
    async with aiohttp.ClientSession(connector=connector) as http, world.session(http=http) as pay:
        error = await made(world, pay, "queued")

    assert (1, OutcomeUnknownError) == (world.sent, type(error))


async def test_suspended_while_the_journal_commits(world: World, path: Path, clock: Clock) -> None:
    """The lease counts from before the journal's call. If it ends during that call, nothing is sent."""

    class Slow(SqliteJournal):
        async def begin(self, draft: Draft, lease: float, *, service: str | None = None) -> BeginResult:
            begun = await super().begin(draft, lease, service=service)
            await world.repeated()
            return begun

    async with Slow(path, clock=clock) as slow, world.session(journal=slow) as pay:
        error = await made(world, pay, "direct")

    assert (1, OutcomeUnknownError) == (world.sent, type(error))


async def test_clock_of_the_lease(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, a lease counts the machine's sleep, although the event loop's clock stands still then."""
    awake = time.clock_gettime

    async def sleep() -> None:
        monkeypatch.setattr(time, "clock_gettime", lambda clock: awake(clock) + LEASE * (clock == time.CLOCK_BOOTTIME))

    with Recorder(otherwise=TAKEN) as service:
        async with (
            SqliteJournal(path) as journal,
            session(service, SURE, journal=journal, middleware=[sleeping(sleep)]) as pay,
        ):
            error = await failed(pay.send(refund()))

    assert ([], False, LEASE_OVER) == (service.requests, error.sent, error.reason)


@pytest.mark.parametrize(("how", "state"), [("queued", "new"), ("direct", "rejected")])
async def test_nobody_else_was_there(world: World, how: str, state: str) -> None:
    """If the lease is over and nobody else claimed the write, the call raises `NotSentError`. It can be repeated."""
    async with world.session(sleeping(world.alone)) as pay:
        error = await made(world, pay, how)
        (intent,) = await world.journal.list()
        unsent = world.sent
    async with world.session() as pay:
        again = await pay.send(refund())

    assert (0, 1) == (unsent, world.sent)
    assert isinstance(error, NotSentError)
    assert (False, 1, LEASE_OVER) == (error.sent, error.attempts, error.reason)
    assert (state, 1) == (intent.state, again.attempts)


async def test_journal_that_cannot_say(world: World, path: Path) -> None:
    """If the lease is over and the journal fails, the call sends nothing and raises `OutcomeUnknownError`."""

    async def sleep() -> None:
        await world.alone()
        move_away(path)

    async with world.session(sleeping(sleep)) as pay:
        error = await made(world, pay, "direct")

    assert (0, OutcomeUnknownError) == (world.sent, type(error))


@pytest.mark.parametrize("attempt", [1, 2])
async def test_no_further_attempt_begins(path: Path, clock: Clock, attempt: int) -> None:
    """If the lease is over, even an idempotent write is not retried. The first attempt stays in doubt."""

    async def layer(call: Call, send: Send) -> Reply:
        if (call.attempt, attempt) == (2, 2):
            clock.advance(LEASE)
        try:
            return await send(call)
        finally:
            if attempt == 1:
                clock.advance(LEASE)

    with Recorder(otherwise=RESET) as service:
        async with SqliteJournal(path, clock=clock) as journal:
            async with session(service, SURE, journal=journal, middleware=[layer]) as pay:
                error = await failed(pay.orders.close("T1"))
            (intent,) = await journal.list()

    assert (1, OutcomeUnknownError, attempt) == (len(service.requests), type(error), error.attempts)
    assert "unknown" == intent.state


async def test_question_needs_no_lease(path: Path, clock: Clock) -> None:
    """If the lease is over, the session still queries the write's outcome, because a query changes nothing."""

    async def layer(call: Call, send: Send) -> Reply:
        try:
            return await send(call)
        finally:
            clock.advance(LEASE)

    with Recorder(otherwise=RESET, by_path={REFUND_QUERY: DONE}) as service:
        async with (
            SqliteJournal(path, clock=clock) as journal,
            session(service, SURE, journal=journal, middleware=[layer]) as pay,
        ):
            found = await pay.send(refund())

    assert ("succeeded", 2) == (found.state, len(service.requests))
