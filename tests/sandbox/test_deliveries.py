"""The outbox at work: redelivery, dead letters, sending again, and one slow receiver among others."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web
from attrs import evolve

from payasync.errors import InvalidArgumentError
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.webhooks import MOST_AT_ONCE, MOST_KEPT
from tests.inside import turns, until
from tests.sandbox.foreign import Receiver, acknowledged, as_coroutine

NOON: Final = datetime(2027, 1, 31, 12, tzinfo=UTC)
LIFE: Final = timedelta(hours=18)
"""Longer than all redeliveries of one notification take."""


@pytest.fixture
async def frozen(receiver: Receiver) -> AsyncIterator[Sandbox]:
    """A sandbox whose time stands at noon."""
    async with Sandbox(clock=NOON, webhook_url=receiver.url) as running:
        yield running


def refusing() -> web.Response:
    """Answer as a server that is broken."""
    return web.Response(status=503, text="try later")


async def test_dead_letter(frozen: Sandbox, receiver: Receiver) -> None:
    """Again after 5 seconds, 5 and 30 minutes, 2, 5 and 10 hours; then it is given up. Sent again, all that again."""
    receiver.answer = as_coroutine(refusing)
    await frozen.given.paid_order()
    await frozen.clock.advance(LIFE)
    given_up = len(receiver.received)
    await frozen.clock.advance(days=365)

    at = [one.at for one in frozen.ledger.deliveries()]
    assert [5, 300, 1800, 7200, 18_000, 36_000] == [(then - before).total_seconds() for before, then in pairwise(at)]
    assert (7, 7) == (given_up, len(receiver.received))
    assert ["dead"] == [one.state for one in frozen.ledger.notifications()]
    assert ["try later"] * 7 == [one.answer for one in frozen.ledger.deliveries()]
    await frozen.resend(frozen.ledger.notifications()[0].notification_id)
    await frozen.clock.advance(LIFE)
    assert 14 == len(receiver.received)


async def test_resend(frozen: Sandbox, receiver: Receiver) -> None:
    """By hand a notification is sent again that was delivered."""
    await frozen.given.paid_order()
    await frozen.settle()
    (notification,) = frozen.ledger.notifications()
    await frozen.resend(notification.notification_id)
    await frozen.settle()

    assert [notification.notification_id] * 2 == [one.headers["webhook-id"] for one in receiver.received]
    assert ["delivered"] == [one.state for one in frozen.ledger.notifications()]


async def test_resend_of_nothing(frozen: Sandbox) -> None:
    """A number that names no notification is refused."""
    with pytest.raises(InvalidArgumentError, match="notification_id: 'msg_1' is refused") as refused:
        await frozen.resend("msg_1")

    assert "notification_id" == refused.value.field


async def test_asked_for_again_while_it_is_under_way(frozen: Sandbox, receiver: Receiver) -> None:
    """Sent again after its time had moved on, while an attempt was under way, it is attempted once more."""
    asked, answered = asyncio.Event(), asyncio.Event()

    async def wait() -> web.Response:
        asked.set()
        await answered.wait()
        return acknowledged()

    receiver.answer = as_coroutine(refusing)
    await frozen.given.paid_order()
    await frozen.settle()
    receiver.answer = wait
    advancing = asyncio.create_task(frozen.clock.advance(seconds=5))
    await asked.wait()
    (notification,) = frozen.ledger.notifications()
    await frozen.resend(notification.notification_id)
    answered.set()
    await advancing

    assert [503, 200, 200] == [one.status for one in frozen.ledger.deliveries()]


async def test_asked_for_again_in_the_same_moment(frozen: Sandbox, receiver: Receiver) -> None:
    """Sent again while its first attempt is under way, with no time gone by, it is attempted once more."""
    asked, answered = asyncio.Event(), asyncio.Event()

    async def wait() -> web.Response:
        asked.set()
        await answered.wait()
        return acknowledged()

    receiver.answer = wait
    await frozen.given.paid_order()
    await asked.wait()
    (notification,) = frozen.ledger.notifications()
    await frozen.resend(notification.notification_id)
    answered.set()
    await frozen.settle()

    assert [200, 200] == [one.status for one in frozen.ledger.deliveries()]
    assert [("delivered", 1)] == [(one.state, one.tries) for one in frozen.ledger.notifications()]


async def test_slow_receiver_holds_up_nobody(frozen: Sandbox, receiver: Receiver) -> None:
    """While one address takes its time, another one is told all that is due there; its own order is kept."""
    slow = Receiver()
    await slow.start()
    answered = asyncio.Event()

    async def wait() -> web.Response:
        await answered.wait()
        return acknowledged()

    slow.answer = wait
    for count in range(3):
        await frozen.given.paid_order(out_trade_no=f"S{count}", notify_url=slow.url)
        await frozen.given.paid_order(out_trade_no=f"T{count}")
    async with asyncio.timeout(20):
        await until(lambda: len(receiver.received) == 3)
    await turns(50)
    meanwhile = len(slow.received)
    answered.set()
    await frozen.settle()
    await slow.close()

    assert 1 == meanwhile
    assert ["S0", "S1", "S2"] == [one.document["data"]["outTradeNo"] for one in slow.received]


async def test_deliveries_at_once_are_bounded(frozen: Sandbox, receiver: Receiver) -> None:
    """However many addresses are slow, so many deliveries are under way at most; all are told in the end."""
    answered = asyncio.Event()

    async def wait() -> web.Response:
        await answered.wait()
        return acknowledged()

    receiver.answer = wait
    for count in range(MOST_AT_ONCE * 2):
        await frozen.given.paid_order(notify_url=f"{receiver.url}?{count}")
    await until(lambda: len(receiver.received) >= MOST_AT_ONCE)
    await turns(500)
    at_once = len(receiver.received)
    answered.set()
    await frozen.settle()

    assert (MOST_AT_ONCE, MOST_AT_ONCE * 2) == (at_once, len(receiver.received))


class Raising:
    """A scheme of somebody's own, with a mistake in it."""

    def sign(self, _fields: object, *, path: str, key: object) -> str:
        """Fail."""
        raise KeyError(f"boom{path and key}")

    def verify(self, *_given: object, **_others: object) -> bool:
        """Take anything."""
        return True


async def test_notification_that_cannot_be_signed(receiver: Receiver) -> None:
    """A mistake in the profile's signature is the attempt's error: the next attempt is due, and the sandbox goes on."""
    shape = evolve(PROFILE.notification, verification="body", signature="sign")
    profile = evolve(PROFILE, signature=Raising(), notification=shape)
    async with Sandbox(profile, clock="frozen", webhook_url=receiver.url) as sandbox:
        await sandbox.given.paid_order()
        await sandbox.settle()
        await sandbox.clock.advance(seconds=5)

        assert ["KeyError: 'boom'"] * 2 == [one.error for one in sandbox.ledger.deliveries()]
        assert ["waiting"] == [one.state for one in sandbox.ledger.notifications()]


async def test_answers_are_kept_in_short(frozen: Sandbox, receiver: Receiver) -> None:
    """Of a long answer the beginning is kept with the attempt."""
    receiver.answer = as_coroutine(lambda: web.Response(text="x" * 10_000))
    await frozen.given.paid_order()
    await frozen.settle()

    assert ["x" * MOST_KEPT] == [one.answer for one in frozen.ledger.deliveries()]


async def test_schedule_survives_a_restart(tmp_path: Path, receiver: Receiver) -> None:
    """What was due at the fifth minute before a restart is due then after it, with the attempts counted on."""
    path = str(tmp_path / "sandbox.db")
    receiver.answer = as_coroutine(refusing)
    async with Sandbox(clock=NOON, db=path) as first:
        await first.given.paid_order(notify_url=receiver.url)
        await first.clock.advance(seconds=5)
    async with Sandbox(clock="frozen", db=path) as second:
        await second.settle()
        before = len(second.ledger.deliveries())
        await second.clock.advance(minutes=5)

        assert (2, 3) == (before, len(second.ledger.deliveries()))
        assert [3] == [one.tries for one in second.ledger.notifications()]
