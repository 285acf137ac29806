"""The caller's code, and the time that it has."""

import asyncio
from traceback import format_tb

import pytest

from payasync.notifications.calling import within
from tests.inside import turns, until

LONG = 3600.0
SHORT = 0.01


async def test_what_is_done_in_time_is_returned() -> None:
    """Whatever can be awaited may be called."""
    given: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    given.set_result(1)

    async def called() -> int:
        return 2

    assert (1, 2) == (await within(LONG, given), await within(LONG, called()))


async def test_what_fails_fails() -> None:
    """An error is the caller's own."""

    async def called() -> None:
        raise KeyError("T1")

    with pytest.raises(KeyError, match="T1"):
        await within(LONG, called())


async def test_what_hangs_is_cancelled_and_says_where() -> None:
    """Who mends it sees the line at which it hung."""

    async def called() -> None:
        await asyncio.Event().wait()  # hangs

    with pytest.raises(TimeoutError, match=r"^not done after 0\.01 seconds$") as caught:
        await within(SHORT, called())

    assert "# hangs" in "".join(format_tb(caught.value.__traceback__))


async def test_what_ends_late_has_failed() -> None:
    """What was told to stop may have left out its last step, however it ends."""

    async def called() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    with pytest.raises(TimeoutError):
        await within(SHORT, called())


async def test_what_cannot_be_cancelled_is_left_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for it; when it ends after all, with an error or without, that harms nobody."""
    monkeypatch.setattr("payasync.notifications.calling.LANDING", SHORT)
    going, ended, complaints = asyncio.Event(), asyncio.Event(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    async def called() -> None:
        while not going.is_set():
            try:
                await going.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        raise ValueError("too late")

    with pytest.raises(TimeoutError, match="cannot be cancelled"):
        await within(SHORT, called())
    going.set()
    await until(ended.is_set)
    await turns(10)

    assert [] == complaints


async def test_cancellation_reaches_what_is_called() -> None:
    """Who is cancelled ends only after that has ended, in its own time."""
    steps = list[str]()

    async def called() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await turns(10)
            steps.append("cleaned up")

    task = asyncio.create_task(within(LONG, called()))
    await turns(10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert ["cleaned up"] == steps


async def test_what_is_done_though_cancelled_is_done() -> None:
    """Who is told to stop, and comes to its end nevertheless, has come to its end."""

    async def called() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done"
        return ""

    task = asyncio.create_task(within(LONG, called()))
    await turns(10)
    task.cancel()

    assert "done" == await task


async def test_what_cancels_itself_is_told_from_who_is_cancelled() -> None:
    """A task that the caller's code waits for may be cancelled: nobody has cancelled us."""

    async def called() -> None:
        waiting = asyncio.create_task(asyncio.sleep(LONG))
        waiting.cancel()
        await waiting

    with pytest.raises(asyncio.CancelledError):
        await within(LONG, called())
    task = asyncio.current_task()

    assert task
    assert 0 == task.cancelling()


async def test_cleaning_up_is_not_cut_short() -> None:
    """A loop that ends cancels what is called and who called it: cleaning up is cancelled once, not twice."""
    steps = list[str]()

    async def called() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await turns(10)
            steps.append("cleaned up")

    before = asyncio.all_tasks()
    caller = asyncio.create_task(within(LONG, called()))
    await turns(10)
    (inner,) = asyncio.all_tasks() - before - {caller}
    inner.cancel()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller

    assert ["cleaned up"] == steps
