"""One object holds all clocks of a process, so that nothing has to wait for real time."""

import asyncio
import time
from contextlib import aclosing
from contextvars import copy_context
from pathlib import Path

from payasync.clocks import Clocks, Pace, boot_tick, boot_time, monotonic_time, use_clocks, wall_time
from payasync.journal import SqliteJournal
from payasync.notifications import SqliteInbox
from tests.journal.building import refund
from tests.notifications.inbox_building import received


def later(hours: float) -> Clocks:
    """Return clocks that are ahead."""
    seconds = hours * 3600
    return Clocks(
        wall=lambda: time.time() + seconds,
        boot=lambda: 7 + seconds,
        monotonic=lambda: 7 + seconds,
        tick=lambda: round((7 + seconds) * 1e9),
        identity=lambda: "other machine",
        jitter=lambda longest: longest / 2,
    )


async def test_clocks_are_those_of_a_task_and_its_children() -> None:
    """Another task keeps its own clocks, so that several processes can be simulated in one."""

    async def read() -> tuple[float, float, float, str, float]:
        await asyncio.sleep(0)
        return wall_time() - time.time(), boot_time(), monotonic_time(), boot_tick(), Pace().jitter(8)

    async def read_later() -> tuple[float, float, float, str, float]:
        use_clocks(later(2))
        return await asyncio.create_task(read())

    other = asyncio.create_task(read())
    found = await asyncio.create_task(read_later())

    assert (7207, 7207, "other machine 7207000000000e-9", 4) == found[1:]
    assert 7199 < found[0] < 7201
    assert abs((await other)[0]) < 1


async def test_journal_and_inbox_follow_the_clocks(tmp_path: Path) -> None:
    """What a task stores without `clock=` has the times of its clocks."""
    async with SqliteJournal(tmp_path / "pay.db") as journal, aclosing(SqliteInbox(tmp_path / "inbox.db")) as inbox:
        context = copy_context()
        context.run(use_clocks, later(24))
        for adding in (journal.add(refund(), merchant="M1"), inbox.add(received())):
            await asyncio.create_task(adding, context=context)
        (stored,), (event,) = await journal.list(), await inbox.events()

    assert event.due
    assert all(each.timestamp() > time.time() + 86000 for each in (stored.created, event.due))
