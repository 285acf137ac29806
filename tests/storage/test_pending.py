"""A result for which a caller waits as long as it has time."""

import asyncio
import gc
import weakref
from contextvars import ContextVar
from typing import Any, Final

import pytest

from payasync import clocks as module
from payasync.clocks import Deadlines
from payasync.storage.pending import PendingResult
from tests.inside import turns

LONG: Final = 20
"""Turns of the loop in which a look at the deadlines has certainly come."""


class StandingTime:
    """A clock that only the test moves."""

    now = 100.0


@pytest.fixture
def clock() -> StandingTime:
    """Return the clock of all deadlines."""
    return StandingTime()


@pytest.fixture
async def deadlines(clock: StandingTime, monkeypatch: pytest.MonkeyPatch) -> Deadlines:
    """Return the deadlines of the test's loop, which are checked in each of its turns."""
    monkeypatch.setattr(module, "RESOLUTION", 0)
    made = Deadlines(asyncio.get_running_loop())
    made.time = lambda: clock.now
    return made


async def awaited(pending: "asyncio.Future[Any]") -> object:
    """Return the result, or the error with which waiting ends."""
    return (await asyncio.gather(pending, return_exceptions=True))[0]


@pytest.mark.parametrize("result", ["stored", ValueError("not stored")])
@pytest.mark.parametrize("seconds", [1, 60, 0])
async def test_waiter_that_leaves(
    deadlines: Deadlines, clock: StandingTime, seconds: int, result: str | ValueError
) -> None:
    """If the time is over, also because the loop was blocked, or the waiter is cancelled, the result comes later."""
    pending = PendingResult(asyncio.get_running_loop())
    waiting = asyncio.ensure_future(awaited(pending.within(deadlines, clock.now + 1)))
    await turns(LONG)
    early = waiting.done()
    clock.now += seconds
    if not seconds:
        waiting.cancel()
    await turns(LONG)
    ended = None if waiting.cancelled() else waiting.result()
    final = pending.final()
    before, abandoned = final.done(), pending.abandoned
    pending.deliver(result)

    assert (False, None, False, bool(seconds)) == (early, ended, before, not waiting.cancelled())
    assert seconds or not abandoned
    assert result is await awaited(final)
    assert not deadlines.running


@pytest.mark.parametrize("left", [False, True])
async def test_work_that_is_cancelled(deadlines: Deadlines, clock: StandingTime, *, left: bool) -> None:
    """If the work itself is cancelled, so is whoever waits for it. Nothing is logged if nobody waits."""
    said = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
    work = asyncio.ensure_future(asyncio.Event().wait())
    pending = PendingResult.of(work).within(deadlines, clock.now + 1)
    if left:
        pending.cancel()
    work.cancel()
    await turns(LONG)
    cancelled, watched = pending.final().cancelled(), pending in deadlines.running
    del pending
    gc.collect()

    assert (True, False) == (cancelled, watched)
    assert [] == said


async def test_work_is_held() -> None:
    """A task of which nobody else holds a reference is not collected."""
    held = weakref.WeakSet[asyncio.Event]()

    async def work() -> str:
        event = asyncio.Event()
        held.add(event)
        await event.wait()
        return "stored"

    pending = PendingResult.of(work())
    await turns(1)
    gc.collect()
    for event in held:
        event.set()

    assert 1 == len(held)
    assert "stored" == await pending


async def test_waiter_goes_on_immediately(deadlines: Deadlines, clock: StandingTime) -> None:
    """A waiter goes on when its result is delivered, in its own context."""
    seen, mine = list[object](), ContextVar("mine", default="nobody's")
    pending = PendingResult(asyncio.get_running_loop()).within(deadlines, clock.now + 1)

    async def wait() -> None:
        mine.set("its own")
        seen.extend((await pending, mine.get(), asyncio.current_task() is waiting))

    waiting = asyncio.ensure_future(wait())
    await turns(1)
    asyncio.get_running_loop().call_soon(pending.deliver, "stored")
    await turns(1)

    assert ["stored", "its own", True] == seen


async def test_result_that_nobody_wants() -> None:
    """If a waiter with no deadline is cancelled, its result is dropped."""
    pending = PendingResult(asyncio.get_running_loop())
    waiting = asyncio.ensure_future(awaited(pending))
    await turns(1)
    waiting.cancel()
    await asyncio.wait([waiting])
    pending.deliver("late")

    assert pending.abandoned
    assert pending.cancelled()
