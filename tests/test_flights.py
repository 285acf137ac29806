import asyncio
import gc
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest

from payasync.flights import Flights

PATIENCE = 30.0
"""Seconds after which what should have ended will not."""


@contextmanager
def flight(flights: Flights) -> Generator[None]:
    """Be a call in flight, which ends whatever becomes of it."""
    call = object()
    flights.begin(call)
    try:
        yield
    finally:
        flights.end(call)


async def until(go: asyncio.Event, flights: Flights) -> str:
    """Be a call that ends when it may."""
    with flight(flights):
        await go.wait()
        return "landed"


def test_flights_are_open_at_first() -> None:
    """A session that was just made takes calls; no event loop is needed to make it."""
    assert not Flights().closed


@pytest.mark.parametrize("grace", [0, PATIENCE])
async def test_nothing_in_flight(grace: float) -> None:
    """Where nothing flies any more there is nothing to wait for, whichever task it was in."""
    flights, go = Flights(), asyncio.Event()
    go.set()
    with flight(flights):
        pass
    await asyncio.create_task(until(go, flights))
    async with asyncio.timeout(PATIENCE / 2):
        await flights.drain(grace)


async def test_drain_waits_for_what_is_in_flight() -> None:
    """A call that has begun is waited for."""
    flights, go = Flights(), asyncio.Event()
    call = asyncio.create_task(until(go, flights))
    await asyncio.sleep(0)
    drained = asyncio.create_task(flights.drain(PATIENCE))
    await asyncio.sleep(0)
    early = drained.done()
    go.set()
    await drained

    assert not early
    assert "landed" == await call


@pytest.mark.parametrize("grace", [0, 0.01])
async def test_grace_ends(grace: float) -> None:
    """What does not end in time is left to others; without grace nobody waits at all."""
    flights, go = Flights(), asyncio.Event()
    call = asyncio.create_task(until(go, flights))
    await asyncio.sleep(0)
    await flights.drain(grace)
    early = call.done()
    go.set()
    await call

    assert not early


async def test_grace_that_is_over_does_not_end_a_flight_twice() -> None:
    """A call that is cancelled while somebody drains ends like any other."""
    flights, go = Flights(), asyncio.Event()
    call = asyncio.create_task(until(go, flights))
    await asyncio.sleep(0)
    drained = asyncio.create_task(flights.drain(PATIENCE))
    await asyncio.sleep(0)
    call.cancel()
    await drained

    assert call.cancelled()


async def test_whoever_drains_does_not_wait_for_itself() -> None:
    """A call may close its own session."""
    flights = Flights()
    with flight(flights):
        async with asyncio.timeout(PATIENCE / 2):
            await flights.drain(PATIENCE)


async def test_flight_ends_once() -> None:
    """Two that drain wait for the same end, and one of them may give up before it."""
    flights = Flights()
    go = asyncio.Event()
    call = asyncio.create_task(until(go, flights))
    await asyncio.sleep(0)
    drained = [asyncio.create_task(flights.drain(PATIENCE)) for _ in range(2)]
    await asyncio.sleep(0)
    drained[0].cancel()
    await asyncio.sleep(0)
    early = drained[1].done()
    go.set()
    await call
    async with asyncio.timeout(PATIENCE / 2):
        await drained[1]

    assert not early


async def test_calls_of_other_loops_are_theirs() -> None:
    """A future of another loop cannot be awaited here: its call is left to its own loop."""
    flights, flying, land = Flights(), threading.Event(), threading.Event()

    async def elsewhere() -> None:
        with flight(flights):
            flying.set()
            await asyncio.to_thread(land.wait, PATIENCE)

    thread = threading.Thread(target=lambda: asyncio.run(elsewhere()))
    thread.start()
    await asyncio.to_thread(flying.wait, PATIENCE)
    async with asyncio.timeout(PATIENCE / 2):
        await flights.drain(PATIENCE)
    alive = thread.is_alive()
    land.set()
    await asyncio.to_thread(thread.join, PATIENCE)

    assert alive


async def test_shielded_call_gives_its_result() -> None:
    """Who waits for a shielded call gets what it returns."""
    flights, go = Flights(), asyncio.Event()
    go.set()

    assert "landed" == await flights.shielded(until(go, flights))


async def test_shielded_call_raises_its_error() -> None:
    """And what it raises."""

    async def failing() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Flights().shielded(failing())


async def test_shielded_call_outlives_its_caller() -> None:
    """A cancelled caller leaves the call alone, which is drained like any other, and is not collected on its way."""
    flights, go, landed = Flights(), asyncio.Event(), list[str]()

    async def call() -> None:
        landed.append(await until(go, flights))

    caller = asyncio.create_task(flights.shielded(call()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    del caller
    gc.collect()
    go.set()
    await flights.drain(PATIENCE)
    await asyncio.sleep(0)

    assert ["landed"] == landed


@pytest.mark.parametrize("ends", [ZeroDivisionError(), asyncio.CancelledError()], ids=repr)
async def test_shielded_call_that_ends_alone(ends: BaseException) -> None:
    """What nobody waits for any more is no reason for asyncio to complain."""
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    flights, go = Flights(), asyncio.Event()

    async def call() -> None:
        await until(go, flights)
        raise ends

    caller = asyncio.create_task(flights.shielded(call()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    go.set()
    await flights.drain(PATIENCE)
    await asyncio.sleep(0)
    del caller
    gc.collect()

    assert [] == complaints
