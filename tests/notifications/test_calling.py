"""The caller's code, and the time that it has."""

import asyncio

import pytest

from payasync.notifications.worker import run_within
from tests.inside import turns

LONG = 3600.0
SHORT = 0.01


async def test_what_ends_late_has_failed() -> None:
    """What was told to stop may have left out its last step, however it ends."""

    async def called() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    with pytest.raises(TimeoutError):
        await run_within(SHORT, called())


async def test_what_is_done_though_cancelled_is_done() -> None:
    """Who is told to stop, and comes to its end nevertheless, has come to its end."""

    async def called() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done"
        return ""

    task = asyncio.create_task(run_within(LONG, called()))
    await turns(10)
    task.cancel()

    assert "done" == await task


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
    caller = asyncio.create_task(run_within(LONG, called()))
    await turns(10)
    (inner,) = asyncio.all_tasks() - before - {caller}
    inner.cancel()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller

    assert ["cleaned up"] == steps
