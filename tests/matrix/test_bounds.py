"""What bounds a call: the quota, the deadline, and its caller."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from payasync import (
    Event,
    NoAnswerError,
    OutcomeUnknownError,
    PayasyncError,
    Response,
    RetryPolicy,
    Session,
    Timeouts,
    Unknown,
)
from tests.foreign.recorder import Answer, Recorder, answer
from tests.matrix.cells import OK_BODY, session

OK: Final = answer(200, OK_BODY)
MANY: Final = 1000
DEADLINE: Final = 0.1
"""Seconds, of which a test needs no more."""


async def test_dead_service() -> None:
    """A service that only fails gets at most a tenth more than was asked of it, though each call may try thrice."""
    impatient = RetryPolicy(base_delay=0, max_delay=0)

    async def query(pay: Session) -> type[Exception]:
        with pytest.raises(NoAnswerError) as caught:
            await pay.orders.query("T1")
        return caught.type

    with Recorder(otherwise=answer(500, b"{}")) as service:
        async with session(service, retry=impatient, max_connections=10) as pay:
            ends = await asyncio.gather(*(query(pay) for _ in range(MANY)))

    assert [NoAnswerError] * MANY == ends
    assert MANY < len(service.requests) <= 1.1 * MANY


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda pay: pay.orders.query("T1", timeout=DEADLINE), NoAnswerError),
        (lambda pay: pay.payments.create(amount=1, currency="USD", timeout=DEADLINE), OutcomeUnknownError),
        (lambda pay: pay.orders.close("T1", timeout=DEADLINE), OutcomeUnknownError),
    ],
    ids=["read", "write", "close"],
)
async def test_slow_drip(call: Callable[[Session], Awaitable[Response]], expected: type[PayasyncError]) -> None:
    """An answer that comes byte by byte, each in time, and never ends: the call does, at its deadline."""
    drip = Answer(answer(200, OK_BODY.ljust(5000)).raw, drip=0.01)
    with Recorder(otherwise=drip) as service:
        async with session(service) as pay:
            late = asyncio.ensure_future(asyncio.sleep(10 * DEADLINE))
            with pytest.raises(expected):
                await call(pay)
            overshot = late.done()
            late.cancel()

    assert not overshot


async def test_drip_ends_each_attempt_in_time() -> None:
    """`Timeouts.read` bounds the whole answer, not each byte of it: so a second attempt has time to succeed."""
    drip = Answer(answer(200, OK_BODY.ljust(5000)).raw, drip=0.01)
    with Recorder([drip], otherwise=OK) as service:
        async with session(service, timeouts=Timeouts(read=0.2)) as pay:
            found = await pay.orders.query("T1")

    assert 2 == found.attempts


async def test_shielded_write_is_repeated_and_asked_about() -> None:
    """What goes on without its caller is the whole call, with its attempts and questions."""
    told: list[Event] = []
    gate = threading.Event()
    lost = Answer(then="reset", after=gate)
    with Recorder([lost], otherwise=OK) as service:
        pay = session(service, on_event=told.append)
        task = asyncio.ensure_future(
            pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=1, refund_amt=1, shield=True)
        )
        await asyncio.to_thread(service.wait_for_request)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        asyncio.get_running_loop().call_soon(gate.set)
        await pay.aclose(grace=30)

    assert ["/payment/refund", "/payment/refund/status"] == [request.path for request in service.requests]
    assert not [event for event in told if isinstance(event, Unknown)]
