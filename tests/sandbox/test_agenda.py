"""What falls due in the background, where it cannot be done."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from aiohttp import web

from payasync.errors import ConfigurationError
from payasync.sandbox import Sandbox
from tests.inside import set_writable, store_of, until
from tests.sandbox.foreign import Receiver, acknowledged, as_coroutine

NOON: Final = datetime(2027, 1, 31, 12, tzinfo=UTC)


FULL: Final = "db: the sandbox's database cannot be written"


async def test_database_that_cannot_be_written() -> None:
    """What is due and cannot be kept is not passed over: who waits for it is told; with room again, it is done."""
    async with Sandbox(clock=NOON) as sandbox:
        number = await sandbox.given.pending_order()
        set_writable(store_of(sandbox), writable=False)
        for wait in (lambda: sandbox.clock.advance(minutes=30), sandbox.settle):
            with pytest.raises(ConfigurationError, match=FULL):
                await wait()
        set_writable(store_of(sandbox), writable=True)
        await sandbox.settle()
        await sandbox.clock.advance(minutes=1)

        assert "expired" == sandbox.ledger.order_state(number)
        assert NOON + timedelta(minutes=31) == sandbox.clock.now()


async def test_closed_while_the_database_cannot_be_written() -> None:
    """Who closes is told of what is due and could not be kept."""
    sandbox = await Sandbox(clock=NOON).start()
    await sandbox.given.pending_order()
    set_writable(store_of(sandbox), writable=False)
    with pytest.raises(ConfigurationError, match=FULL):
        await sandbox.clock.advance(minutes=30)

    with pytest.raises(ConfigurationError, match=FULL):
        await sandbox.close()


async def test_what_was_sent_is_not_sent_again_for_a_full_disk(receiver: Receiver) -> None:
    """An attempt that cannot be recorded is recorded by itself later, and not made again; who waits is told."""
    async with Sandbox(webhook_url=receiver.url) as sandbox:
        kept_in = store_of(sandbox)

        def fill() -> web.Response:
            set_writable(kept_in, writable=False)
            return acknowledged()

        receiver.answer = as_coroutine(fill)
        await sandbox.given.paid_order()
        with pytest.raises(ConfigurationError, match=FULL):
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
