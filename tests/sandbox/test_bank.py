"""The bank: refunds that end by hand or after a time, and charges that fail."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from payasync.errors import InvalidArgumentError
from payasync.sandbox import Sandbox
from tests.sandbox.foreign import Foreign, Receiver

NOON: Final = datetime(2027, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("refunds", "state", "code"), [("succeed", "succeeded", "SUCCEEDED"), ("fail", "failed", "REFUND_FAILED")]
)
async def test_refunds_that_end_at_once(
    http: aiohttp.ClientSession, receiver: Receiver, refunds: Any, state: str, code: str
) -> None:
    """The answer tells the end already; the notification comes all the same."""
    async with Sandbox(refunds=refunds, webhook_url=receiver.url) as sandbox:
        number = await sandbox.given.paid_order(notify_url="http://127.0.0.1:1/")
        answer = await Foreign(sandbox, http).refund("R1", 100, out_trade_no=number)
        await sandbox.settle()

        assert (f"SBX_{code}", state) == (answer.document["status"], sandbox.ledger.refund_state("R1"))
    assert [f"refund.{state}"] == [one.document["type"] for one in receiver.received]


@pytest.mark.parametrize(("state", "refunded", "left"), [("succeeded", 400, 409), ("failed", 0, 200)])
async def test_refund_by_hand(
    http: aiohttp.ClientSession, receiver: Receiver, state: Any, refunded: int, left: int
) -> None:
    """It is processing, and its amount set aside, until the bank says how it ended; a failed one is free again."""
    async with Sandbox(refunds="by hand", webhook_url=receiver.url) as sandbox:
        foreign = Foreign(sandbox, http)
        number = await sandbox.given.paid_order(notify_url="http://127.0.0.1:1/")
        first = await foreign.refund("R1", 400, out_trade_no=number)
        second = await foreign.refund("R2", 400, out_trade_no=number)
        await sandbox.bank.settle_refund("R1", state)
        third = await foreign.refund("R3", 400, out_trade_no=number)
        await sandbox.settle()

        assert ("SBX_PROCESSING", 409, left) == (first.document["status"], second.status, third.status)
        assert refunded == sandbox.ledger.refunded(number)
    assert [f"refund.{state}"] == [one.document["type"] for one in receiver.received]


async def test_refund_after_a_time(http: aiohttp.ClientSession, tmp_path: Path) -> None:
    """After so much of the sandbox's time it succeeds, over a restart, too; ended by hand before, it stays so."""
    path = str(tmp_path / "sandbox.db")
    async with Sandbox(refunds=timedelta(days=2), clock=NOON, db=path) as first:
        foreign = Foreign(first, http)
        number = await first.given.paid_order()
        await foreign.refund("R1", 100, out_trade_no=number)
        await foreign.refund("R2", 100, out_trade_no=number)
        await first.bank.settle_refund("R2", "failed")
        early = await first.clock.advance(days=1)
    async with Sandbox(clock="frozen", db=path) as second:
        report = await second.clock.advance(days=1)

        assert ([], ["2027-02-02T12:00:00.000Z  refund succeeded  R1"]) == (list(early), [str(one) for one in report])
        assert ("succeeded", "failed", 100) == (
            second.ledger.refund_state("R1"),
            second.ledger.refund_state("R2"),
            second.ledger.refunded(number),
        )


@pytest.mark.parametrize(("repeated", "status"), [("same", 200), ("refused", 409)])
async def test_same_refund_again(http: aiohttp.ClientSession, repeated: Any, status: int) -> None:
    """By a switch the same request is the same refund, or a number that was used before; another one never is."""
    async with Sandbox(repeated_refunds=repeated) as sandbox:
        foreign = Foreign(sandbox, http)
        number = await sandbox.given.paid_order()
        answers = [await foreign.refund("R1", amount, out_trade_no=number) for amount in (100, 100, 101)]

        assert [200, status, 409] == [answer.status for answer in answers]
        assert (100, 1) == (sandbox.ledger.refunded(number), sandbox.ledger.refunds())


@pytest.mark.parametrize(
    ("act", "field"),
    [
        (lambda bank: bank.settle_refund("R9"), "out_refund_no"),
        (lambda bank: bank.settle_refund("R1", "processing"), "state"),
        (lambda bank: bank.settle_refund("R1", "lost"), "state"),
        (lambda bank: bank.fail_renewals("S9"), "subscription_id"),
        (lambda bank: bank.fail_renewals("S1", -1), "times"),
        (lambda bank: bank.fail_renewals("S1", times=True), "times"),
        (lambda bank: bank.fail_renewals("S1", 10**20), "times"),
    ],
)
async def test_what_the_bank_refuses(http: aiohttp.ClientSession, act: Callable[[Any], Any], field: str) -> None:
    """What is not there, or cannot be, is refused, and names the argument at fault."""
    async with Sandbox(refunds="by hand") as sandbox:
        number = await sandbox.given.paid_order()
        await Foreign(sandbox, http).refund("R1", 100, out_trade_no=number)
        with pytest.raises(InvalidArgumentError) as refused:
            await act(sandbox.bank)

        assert (field, "processing") == (refused.value.field, sandbox.ledger.refund_state("R1"))


async def test_refund_ends_once(http: aiohttp.ClientSession) -> None:
    """What has ended does not end again."""
    async with Sandbox() as sandbox:
        number = await sandbox.given.paid_order()
        await Foreign(sandbox, http).refund("R1", 100, out_trade_no=number)
        with pytest.raises(InvalidArgumentError, match="does not go from succeeded to failed"):
            await sandbox.bank.settle_refund("R1", "failed")


async def test_cancelled_subscription_has_no_charges_to_fail() -> None:
    """What is cancelled is not billed any more."""
    async with Sandbox(clock=NOON) as sandbox:
        number = await sandbox.given.subscription("daily")
        await sandbox.bank.fail_renewals(number, 3)
        await sandbox.clock.advance(days=3)
        with pytest.raises(InvalidArgumentError, match="the subscription is cancelled") as refused:
            await sandbox.bank.fail_renewals(number)

    assert "subscription_id" == refused.value.field
