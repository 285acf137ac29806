"""One timer for all deadlines: each ends what it bounds, and nothing else."""

import asyncio
from typing import Final

import pytest

from payasync import Profile, Timeouts
from payasync.endpoints import PLACE_ORDER
from payasync.transport import deadlines as module
from payasync.transport.deadlines import Deadline, Deadlines, running_task
from payasync.wire.call import Call, Lease
from tests.inside import turns

LONG: Final = 20
"""Turns of the loop in which a look has certainly come, where one is to come."""


class Time:
    """A time that stands until it is told."""

    now = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Return the clock of all deadlines, which are looked at in each turn of the loop."""
    monkeypatch.setattr(module, "GRAIN", 0)
    return Time()


def made(clock: Time) -> Deadlines:
    """Return the deadlines of this loop."""
    deadlines = Deadlines(asyncio.get_running_loop())
    deadlines.time = lambda: clock.now
    return deadlines


def call(deadline: float, read: float = 30, connect: float = 30) -> Call:
    """Return a call that must end then."""
    times = Timeouts(read=read, connect=connect)
    return Call(operation=PLACE_ORDER, profile=Profile(), fields={}, deadline=deadline, timeouts=times)


async def bounded(deadlines: Deadlines, deadline: float) -> None:
    """Wait within a deadline, and not for ever."""
    with Deadline(deadlines, call(deadline)):
        await turns(LONG)


async def test_no_look_while_there_is_none(clock: Time) -> None:
    """The timer runs while there are deadlines, and again for a later one."""
    deadlines = made(clock)
    seen: list[bool] = []
    for _ in range(2):
        with Deadline(deadlines, call(clock.now + 1)):
            await turns(LONG)
            seen.append(deadlines.timer is not None)
        await turns(LONG)
        seen.append(deadlines.timer is not None)

    assert [True, False, True, False] == seen


async def test_cancelled_by_others(clock: Time) -> None:
    """A cancellation by anybody else stays one, also where the time is over in the same turn."""
    deadlines = made(clock)
    task = asyncio.ensure_future(bounded(deadlines, clock.now + 1))
    await turns(1)
    (watched,) = deadlines.running
    watched.expire()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert task.cancelled()


async def test_done_as_the_time_was_over(clock: Time) -> None:
    """What is done by then is no error, and the task is not left as one that is cancelled."""
    deadlines = made(clock)
    with Deadline(deadlines, call(clock.now + 1)) as deadline:
        deadline.expire()
        with pytest.raises(asyncio.CancelledError):
            await turns(1)
    await turns(1)

    assert 0 == running_task().cancelling()


@pytest.mark.parametrize("why", ["too late", "given up", "cancelled", "its lease is over"])
async def test_what_must_not_begin(clock: Time, why: str) -> None:
    """What is too late, was given up, or is cancelled and has not heard of it yet, does not begin to write.

    Nor does a journalled write, where another process may have it by now.
    """
    seconds = 0.0 if why == "its lease is over" else 60.0
    attempt = call(clock.now + 1).derived(lease=Lease(clock.now, seconds, lambda: clock.now))
    task = running_task()
    with Deadline(made(clock), attempt) as deadline:
        clock.now += why == "too late"
        attempt.progress.over = why == "given up"
        if why == "cancelled":
            task.cancel()
        with pytest.raises(TimeoutError):
            deadline.begin()
        if why == "cancelled":
            with pytest.raises(asyncio.CancelledError):
                await turns(1)
            task.uncancel()

    assert not attempt.progress.begun


async def test_begins_in_a_task_that_was_cancelled_before(clock: Time) -> None:
    """Who is cancelled and cleans up may call: an earlier cancellation is not of this call."""
    attempt, task = call(clock.now + 1), running_task()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turns(1)
    with Deadline(made(clock), attempt) as deadline:
        deadline.begin()
    task.uncancel()

    assert attempt.progress.begun


async def test_closing(clock: Time) -> None:
    """Who closes ends what others do within their deadlines, but not what it does itself."""
    deadlines = made(clock)
    other = asyncio.ensure_future(bounded(deadlines, clock.now + 1))
    with Deadline(deadlines, call(clock.now + 1)):
        await turns(1)
        deadlines.close()
        (ended,) = await asyncio.gather(other, return_exceptions=True)

    assert isinstance(ended, TimeoutError)
    assert deadlines.timer is None
