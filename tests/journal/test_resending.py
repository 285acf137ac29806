"""A write that is sent again: its sender is told once there is an end that is being kept, and not before."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from attrs import evolve

from payasync import InvalidArgumentError, RetryPolicy, ServiceError
from payasync.journal import SqliteJournal
from payasync.journal.reconciler import Listening
from payasync.profile.schema import Accept
from payasync.sandbox import PROFILE, Sandbox
from tests.inside import until
from tests.journal.building import refund

ONCE = RetryPolicy(attempts=1, quota=0)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A service with a paid order."""
    async with Sandbox(clock="frozen") as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1", total_amt=450)
        yield sandbox


async def test_end_is_told(sandbox: Sandbox, journal: SqliteJournal) -> None:
    """Of an answer, and of a refusal; the journal keeps both, as it does for any session."""
    ended = list[None]()
    told = Listening(journal, lambda: ended.append(None))
    async with sandbox.session(journal=told, retry=ONCE) as pay:
        for number, amount in (("R1", 200), ("R2", 451)):
            await journal.add(refund(number, total_amt=451, refund_amt=amount), merchant=pay.merchant_id)
        with pytest.raises(ServiceError):
            await pay.execute(2)
        refused = len(ended)
        await journal.add(refund("R3"), merchant=pay.merchant_id)
        await pay.execute(3)

    assert (1, 2) == (refused, len(ended))
    assert ["new", "rejected", "succeeded"] == [each.state for each in await journal.list()]


async def test_nothing_is_told_of_who_is_cut_off(sandbox: Sandbox, journal: SqliteJournal) -> None:
    """Who is cancelled before the answer knows of no end: it stays *sending*."""
    ended = list[None]()
    hanging = sandbox.faults.hang("refunds.create", phase="after")
    async with sandbox.session(journal=Listening(journal, lambda: ended.append(None)), retry=ONCE) as pay:
        await journal.add(refund(), merchant=pay.merchant_id)
        call = asyncio.ensure_future(pay.execute(1))
        await until(lambda: hanging.fired)
        call.cancel()
        await asyncio.wait({call})

    assert ([], ["sending"]) == (ended, [each.state for each in await journal.list()])


async def test_what_cannot_be_sent_is_noted(sandbox: Sandbox, journal: SqliteJournal) -> None:
    """In the journal itself."""
    strict = evolve(PROFILE, accept=Accept(required={"refunds.create": ("refund_desc",)}))
    async with sandbox.session(journal=Listening(journal, lambda: None), profile=strict) as pay:
        await journal.add(refund(), merchant=pay.merchant_id)
        with pytest.raises(InvalidArgumentError, match="refund_desc"):
            await pay.execute(1)

    assert ["refund_desc"] == [each.reason.partition(" ")[0] for each in await journal.list()]
