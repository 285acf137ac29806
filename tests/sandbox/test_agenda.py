"""What falls due in the background, where it cannot be done."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from aiohttp import web

from payasync.errors import ConfigurationError
from payasync.sandbox import Sandbox
from payasync.sandbox.agenda import Agenda
from payasync.sandbox.pace import Pace
from payasync.sandbox.store import Store
from payasync.sandbox.timepiece import Timepiece
from payasync.sandbox.timers import Alarm, Timers
from tests.sandbox.foreign import Receiver, acknowledged

NOON: Final = datetime(2027, 1, 31, 12, tzinfo=UTC)


class Nobody:
    """Deliveries where there are none."""

    under_way = False

    def next(self, _after: datetime) -> None:
        """Return when the next is due."""

    def begin(self, *_given: Any) -> None:
        """Begin none."""


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    """A store whose file cannot grow."""
    opened = Store(":memory:")
    with opened.transaction():
        Timers(opened).set("expire", "T1", NOON)
    opened.number("PRAGMA max_page_count = 1")
    yield opened
    opened.close()


async def test_database_that_cannot_be_written(store: Store) -> None:
    """What is due and cannot be kept is not passed over: who waits for it is told, and so is who closes."""

    def fill(number: str) -> str:
        for count in range(1000):
            store.changed("INSERT INTO keys VALUES (:name, :name)", {"name": f"{number}{count:01000}"})
        return "filled"

    timepiece = Timepiece(Pace(0.0), NOON)
    alarm = Alarm(store, Timers(store), timepiece, {"expire": fill})
    agenda = Agenda(timepiece, alarm, Nobody(), lambda: None)  # type: ignore[arg-type] # nothing is delivered

    with pytest.raises(ConfigurationError, match="db: the sandbox's database cannot be written"):
        await agenda.settle()
    with pytest.raises(ConfigurationError, match="db: the sandbox's database cannot be written"):
        await agenda.close()


async def test_closed_while_somebody_waits(receiver: Receiver) -> None:
    """Who waits for what is due when the sandbox is closed is told so, and not taken for cancelled."""
    asked, answered = asyncio.Event(), asyncio.Event()

    async def wait() -> web.Response:
        asked.set()
        await answered.wait()
        return acknowledged()

    receiver.answer = wait
    async with Sandbox(webhook_url=receiver.url) as sandbox:
        await sandbox.given.paid_order()
        waiting = asyncio.create_task(sandbox.settle())
        await asked.wait()
    answered.set()

    with pytest.raises(ConfigurationError, match="was closed meanwhile"):
        await waiting
