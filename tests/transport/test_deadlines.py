"""One timer for all deadlines: each ends what it bounds, and nothing else."""

import asyncio
from typing import Final

import pytest

from payasync import Profile, Timeouts
from payasync.calls import Call, Lease
from payasync.operations import PLACE_ORDER
from payasync.transport import deadlines as module
from payasync.transport.deadlines import Deadline, Deadlines, running_task
from payasync.transport.failures import NoFreeConnectionError
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


async def test_time_that_is_over(clock: Time) -> None:
    """What takes longer ends with `TimeoutError`, whoever else is watched."""
    deadlines = made(clock)
    short, long = (asyncio.ensure_future(bounded(deadlines, clock.now + seconds)) for seconds in (1, 3))
    await turns(1)
    clock.now += 2
    ended = await asyncio.gather(short, long, return_exceptions=True)

    assert [NoFreeConnectionError, type(None)] == [type(each) for each in ended]
    assert 0 == short.cancelling()


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        ([], NoFreeConnectionError),
        (["connect"], TimeoutError),
        (["begin"], TimeoutError),
        (["connect", "begin"], TimeoutError),
    ],
)
async def test_only_a_call_that_does_neither_connect_nor_send_waits_for_the_pool(
    clock: Time, steps: list[str], error: type[TimeoutError]
) -> None:
    """A timeout tells whether the pool was too small, or the service too slow."""

    async def waits() -> None:
        with Deadline(made(clock), call(clock.now + 1)) as deadline:
            for step in steps:
                getattr(deadline, step)()
            clock.now += 1
            await turns(LONG)

    with pytest.raises(TimeoutError) as caught:
        await waits()

    assert error is caught.type


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


async def test_deadline_that_is_over_already(clock: Time) -> None:
    """Nothing is begun, and nothing watched."""
    deadlines = made(clock)
    with pytest.raises(TimeoutError), Deadline(deadlines, call(clock.now)):
        raise AssertionError("it was begun")  # pragma: no cover - what the rule forbids

    assert (set(), None) == (deadlines.running, deadlines.timer)


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


@pytest.mark.parametrize(("total", "read", "end"), [(10, 3, 105), (4, 3, 104)], ids=["the answer's", "the call's"])
async def test_answer_is_bounded_from_the_begin_of_the_request(
    clock: Time, total: float, read: float, end: float
) -> None:
    """From the first byte on the answer has `Timeouts.read`, and never more than the call."""
    attempt = call(clock.now + total, read)
    with Deadline(made(clock), attempt) as deadline:
        clock.now += 2
        deadline.begin()

    assert (end, True) == (deadline.when, attempt.progress.begun)


@pytest.mark.parametrize(("total", "connect", "end"), [(10, 3, 105), (4, 3, 104)], ids=["connecting's", "the call's"])
async def test_connecting_is_bounded_from_its_begin(clock: Time, total: float, connect: float, end: float) -> None:
    """Waiting for the pool takes nothing of `Timeouts.connect`; a second step of connecting adds nothing to it."""
    with Deadline(made(clock), call(clock.now + total, connect=connect)) as deadline:
        clock.now += 2
        deadline.connect()
        clock.now += 1
        deadline.connect()

    assert end == deadline.when


async def test_answer_has_its_own_time_after_connecting(clock: Time) -> None:
    """A connection that took nearly all of `Timeouts.connect` leaves the answer its whole `Timeouts.read`."""
    with Deadline(made(clock), call(clock.now + 30, read=20, connect=5)) as deadline:
        deadline.connect()
        clock.now += 4
        deadline.begin()

    assert 124 == deadline.when


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
