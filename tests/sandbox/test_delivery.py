"""What people are told of an attempt to deliver a notification."""

import logging
import subprocess
import sys
from datetime import UTC, datetime
from typing import Final

import pytest
from aiohttp import web

from payasync.sandbox import Sandbox
from payasync.sandbox.webhooks import MOST, Delivery, address
from tests.sandbox.foreign import Receiver, acknowledged, as_coroutine

NOON: Final = datetime(2027, 1, 31, 12, tzinfo=UTC)
PROGRAM: Final = """
import asyncio
from payasync.sandbox import Sandbox

async def main():
    async with Sandbox() as sandbox:
        await sandbox.given.paid_order(notify_url="http://127.0.0.1:1/")
        await sandbox.settle()
        print(len(sandbox.ledger.deliveries()))

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://127.0.0.1:9999/notify/payment", "http://127.0.0.1:9999/notify/payment"),
        ("http://127.0.0.1:9999", "http://127.0.0.1:9999"),
        ("http://[::1]:80/a?token=canary", "http://[::1]:80/a?…"),
        ("http://me:canary@localhost/a#canary", "http://localhost/a"),
        ("http://canary@localhost/a@b", "http://localhost/a@b"),
        (f"http://a/{'x' * 100}", f"http://a/{'x' * (MOST - 10)}…"),
    ],
)
def test_address(url: str, told: str) -> None:
    """Its password and its query may open something, and are not told; a long one is cut."""
    assert told == address(url)


async def deliveries(caplog: pytest.LogCaptureFixture, receiver: Receiver, *, clock: datetime | str) -> list[Delivery]:
    """Return what is told of a notification that is taken, and of one that is sent to a closed port."""
    caplog.set_level(logging.INFO, "payasync.sandbox")
    async with Sandbox(clock=clock) as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1", notify_url=receiver.url)
        await sandbox.settle()
        await sandbox.given.paid_order(out_trade_no="T2", notify_url="http://127.0.0.1:1/?canary")
        await sandbox.settle()
    return [record.__dict__["delivery"] for record in caplog.records if "delivery" in record.__dict__]


async def test_each_attempt_is_told(caplog: pytest.LogCaptureFixture, receiver: Receiver) -> None:
    """With its event, its number, how it ended, and how long it is until the next."""
    taken, refused = await deliveries(caplog, receiver, clock="real")

    assert ("payment.paid", "T1", 200, "", "delivered", None) == (
        *(taken.event, taken.reference, taken.status),
        *(taken.error, taken.state, taken.wait),
    )
    assert ("T2", None, "connection refused", "waiting", 1) == (
        *(refused.reference, refused.status),
        *(refused.error, refused.state, refused.tries),
    )
    assert refused.wait is not None
    assert 0 < refused.wait <= 5


async def test_clock_that_stands(caplog: pytest.LogCaptureFixture, receiver: Receiver) -> None:
    """Then nobody knows when the next one comes."""
    _, refused = await deliveries(caplog, receiver, clock=NOON)

    assert ("waiting", None) == (refused.state, refused.wait)


async def test_asked_for_again_while_it_is_under_way(caplog: pytest.LogCaptureFixture, receiver: Receiver) -> None:
    """What is told is the notification as it is now: sent again by hand meanwhile, it is due at once."""
    caplog.set_level(logging.INFO, "payasync.sandbox")
    async with Sandbox(clock=NOON, webhook_url=receiver.url) as sandbox:

        async def again() -> web.Response:
            receiver.answer = as_coroutine(acknowledged)
            await sandbox.resend(sandbox.ledger.notifications()[0].notification_id)
            return web.Response(status=503)

        receiver.answer = again
        await sandbox.given.paid_order()
        await sandbox.settle()
    told = [record.__dict__["delivery"] for record in caplog.records]

    assert [(503, "waiting", 0.0), (200, "delivered", None)] == [(one.status, one.state, one.wait) for one in told]


async def test_no_secret_is_told(caplog: pytest.LogCaptureFixture, receiver: Receiver) -> None:
    """Neither the query of an address, nor a body, nor a signature."""
    told = await deliveries(caplog, receiver, clock="real")
    (came,) = receiver.received
    text = caplog.text + repr(told)

    assert "delivery payment.paid T2 -> no answer: connection refused" in text
    assert not [each for each in ("canary", "SBX_PAID", came.headers["webhook-signature"][3:]) if each in text]


def test_library_prints_nothing() -> None:
    """In somebody's program, which has not asked for logs, it is silent whatever becomes of notifications."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, timeout=30, check=False)

    assert (b"1\n", b"") == (done.stdout, done.stderr)
