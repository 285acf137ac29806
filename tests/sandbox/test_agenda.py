"""What falls due in the background, where it cannot be done."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
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
from tests.inside import set_writable, store_of, until
from tests.sandbox.foreign import Receiver, acknowledged, as_coroutine

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
    """A store with a timer that is due, which cannot be written."""
    opened = Store(":memory:")
    with opened.transaction():
        Timers(opened).set("expire", "T1", NOON)
    set_writable(opened, writable=False)
    yield opened
    opened.close()


def agenda_of(store: Store) -> Agenda:
    """Return an agenda of timers alone, each of which leaves a key by its number."""

    def expire(number: str) -> str:
        store.changed("INSERT INTO keys VALUES (:name, 'x')", {"name": number})
        return "expired"

    timepiece = Timepiece(Pace(0.0), NOON)
    alarm = Alarm(store, Timers(store), timepiece, {"expire": expire})
    return Agenda(timepiece, alarm, Nobody(), lambda: None)  # type: ignore[arg-type] # nothing is delivered


async def test_database_that_cannot_be_written(store: Store) -> None:
    """What is due and cannot be kept is not passed over: who waits for it is told, and so is who closes."""
    agenda = agenda_of(store)

    for wait in (agenda.settle, agenda.settle, agenda.close):
        with pytest.raises(ConfigurationError, match="db: the sandbox's database cannot be written"):
            await wait()


async def test_database_that_can_be_written_again(store: Store) -> None:
    """Once there is room on the disk again, what was due is done, and time goes on."""
    agenda = agenda_of(store)
    with pytest.raises(ConfigurationError):
        await agenda.settle()
    set_writable(store, writable=True)
    await agenda.settle()
    with store.transaction():
        Timers(store).set("expire", "T2", NOON + timedelta(seconds=1))
    report = await agenda.advance(timedelta(seconds=1))
    await agenda.close()

    assert ["T2"] == [each.number for each in report]
    assert ["T1", "T2"] == [kept["name"] for kept in store.read(dict[str, str], "SELECT name FROM keys ORDER BY name")]


async def test_what_was_sent_is_not_sent_again_for_a_full_disk(receiver: Receiver) -> None:
    """An attempt that cannot be recorded is recorded by itself later, and not made again; who waits is told."""
    async with Sandbox(webhook_url=receiver.url) as sandbox:
        kept_in = store_of(sandbox)

        def fill() -> web.Response:
            set_writable(kept_in, writable=False)
            return acknowledged()

        receiver.answer = as_coroutine(fill)
        await sandbox.given.paid_order()
        with pytest.raises(ConfigurationError, match="db: the sandbox's database cannot be written"):
            await sandbox.settle()
        set_writable(kept_in, writable=True)
        receiver.answer = as_coroutine(acknowledged)
        await until(lambda: "delivered" == sandbox.ledger.notifications()[0].state)
        await sandbox.given.paid_order()
        await sandbox.settle()

        assert ["delivered"] * 2 == [each.state for each in sandbox.ledger.notifications()]
        assert 2 == len(receiver.received) == len(sandbox.ledger.deliveries())


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
