"""Events that a person has dispatched again: one, all of a state, or one whose kind was not told."""

from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import InvalidArgumentError
from payasync.notifications import InboxEvent, Notification, SqliteInbox
from payasync.notifications.receiver import REPLAYED_TOGETHER
from payasync.sandbox import Sandbox
from tests.notifications.merchant import PAID, REFUNDED, SIGNED, UNSIGNED, Shop, opened, received

ROUTED: Final = evolve(SIGNED, notification=evolve(SIGNED.notification, kind="", kinds={}))
"""Only the address says the kind."""


async def astray(shop: Shop) -> InboxEvent:
    """Have the receiver take a notification at an address that says no kind."""
    signed = shop.sign(kind=None)
    await shop.receiver.receive(signed.raw, signed.headers)
    return await shop.last()


async def told(shop: Shop) -> list[tuple[str | None, str, str]]:
    """Return the kind, the key and the state of each event."""
    return [(each.kind, each.key, each.state) for each in await shop.receiver.events()]


async def test_event_without_a_kind_is_handled_as_what_somebody_says(tmp_path: Path) -> None:
    """Where the address was wrong, what came to it is not lost: it is of the kind that a person gives it."""
    async with opened(tmp_path, profile=ROUTED) as shop:
        got = shop.recording("payment")
        parked = await astray(shop)
        replayed = await shop.receiver.replay(parked.id, kind="payment")
        await shop.receiver.settle()

        assert ("parked", None, True) == (parked.state, parked.kind, replayed)
        assert [("payment", 'payment:["T1","SBX_PAID"]')] == [(each.kind, each.dedup_key) for each in got]


async def test_event_that_was_given_its_kind_is_known_when_it_comes_again(tmp_path: Path) -> None:
    """The service tells it again at the right address: that is the same event, and has no second effect."""
    async with opened(tmp_path, profile=ROUTED) as shop:
        got = shop.recording("payment")
        await shop.receiver.replay((await astray(shop)).id, kind="payment")
        signed = shop.sign(kind=None)
        await shop.receiver.receive(signed.raw, signed.headers, "payment")
        await shop.receiver.settle()

        assert ([("payment", 'payment:["T1","SBX_PAID"]', "done")], 1) == (await told(shop), len(got))


async def test_event_that_has_come_again_is_not_replayed(tmp_path: Path) -> None:
    """What was handled at the right address is not handled once more by giving its kind to the one that went astray."""
    async with opened(tmp_path, profile=ROUTED) as shop:
        got = shop.recording("payment")
        parked = await astray(shop)
        signed = shop.sign(kind=None)
        await shop.receiver.receive(signed.raw, signed.headers, "payment")
        replayed = await shop.receiver.replay(parked.id, kind="payment")
        await shop.receiver.settle()

        assert (False, ["parked", "done"], 1) == (replayed, await shop.states(), len(got))


async def test_hint_without_a_kind_is_still_a_hint(tmp_path: Path) -> None:
    """Who says of what kind it is does not say that it is true: the key is a hint's, and it is confirmed, or dead."""
    profile = evolve(UNSIGNED, notification=evolve(UNSIGNED.notification, kind="", kinds={}))
    inbox = SqliteInbox(tmp_path / "inbox.db")
    await inbox.add(received("hint::a", kind=None, verified=False, raw=b'{"data":{"outTradeNo":"T1"}}'))
    (claim,) = await inbox.claim(1, 60)
    await inbox.finish(claim, "parked")
    shop = Shop(tmp_path, profile=profile, inbox=inbox, verifier=lambda _raw, _headers: True)
    replayed = await shop.receiver.replay(1, kind="payment")
    (event,) = await shop.receiver.events()
    await shop.receiver.aclose()

    assert (True, "payment", False, "hint:payment") == (
        replayed,
        event.kind,
        event.verified,
        event.key.rpartition(":")[0],
    )


async def test_known_kind_may_be_said_and_no_other(shop: Shop) -> None:
    """A refund is never handled as a payment; there is no kind beside the three, and no event beside those kept."""
    parked = await shop.handled(REFUNDED, "refund")
    wrong: tuple[Any, ...] = ("payment", "Refund", "*", 1)
    for kind in wrong:
        with pytest.raises(InvalidArgumentError) as caught:
            await shop.receiver.replay(parked.id, kind=kind)
        assert "kind" == caught.value.field
    unknown = [await shop.receiver.replay(number, kind="refund") for number in (0, parked.id + 1)]

    assert (["parked"], [False, False]) == (await shop.states(), unknown)
    assert await shop.receiver.replay(parked.id, kind="refund")


@pytest.mark.parametrize("signed", [True, False], ids=["verified", "hint"])
async def test_refund_at_the_address_of_payments(signed: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a case
    """No handler of payments is told of it, and nobody is asked about the order; a person gives it to those of refunds.

    A service that calls all ends alike would have the order shipped: "succeeded" is "paid" there.
    """
    shape = evolve(ROUTED.notification, verification="standard-webhooks" if signed else "none")
    async with Sandbox(evolve(ROUTED, notification=shape)) as sandbox, sandbox.session() as pay:
        facts: dict[str, Any] = {"profile": sandbox.profile, "credentials": sandbox.credentials, "session": pay}
        async with opened(tmp_path, **facts) as shop:
            payments, refunds = shop.recording("payment"), shop.recording("refund")
            order = await sandbox.given.paid_order(450)
            await pay.refunds.create(out_trade_no=order, out_refund_no="R1", total_amt=450, refund_amt=200)
            told = shop.sign({"outTradeNo": order, "outRefundNo": "R1", "refundAmt": 200, "status": "SBX_PAID"}, None)
            answer = await shop.receiver.receive(told.raw, told.headers, "payment")
            held = await shop.last()
            before, asked = (len(payments), len(refunds)), len(sandbox.ledger.calls("orders.query"))
            with pytest.raises(InvalidArgumentError, match="kind must be payment"):
                await shop.receiver.replay(held.id, kind="subscription")
            replayed = await shop.receiver.replay(held.id, kind="refund")
            await shop.receiver.settle()

            assert (200, "quarantined", (0, 0), 0) == (answer.status, held.state, before, asked)
            assert "names a refund: outRefundNo is 'R1'. If it is a refund, receiver.replay(id, kind=\"refund\")" in (
                held.reason
            )
            assert (True, [], ["R1"]) == (replayed, payments, [each.out_refund_no for each in refunds])


async def test_all_events_of_a_state_are_replayed(tmp_path: Path) -> None:
    """After an outage nobody goes through a list: what is dead is handled, and what is parked stays so."""
    async with opened(tmp_path, attempts=1) as shop:
        mended, got = list[bool](), list[str | None]()

        @shop.receiver.on("payment")
        async def book(notification: Notification) -> None:
            if not mended:
                raise ConnectionError("the shop's database is away")
            got.append(notification.out_trade_no)

        await shop.handled(REFUNDED, "refund")
        for number in range(3):
            await shop.handled({**PAID, "outTradeNo": f"T{number}"})
        before = await shop.states()
        mended.append(True)
        replayed = await shop.receiver.replay_all("dead")
        await shop.receiver.settle()

        assert (["parked", *["dead"] * 3], 3) == (before, replayed)
        assert (["parked", *["done"] * 3], ["T0", "T1", "T2"]) == (await shop.states(), sorted(map(str, got)))
        assert 0 == await shop.receiver.replay_all("dead")


@pytest.mark.long
async def test_many_events_are_replayed_once_each(tmp_path: Path) -> None:
    """However many there are, and also where they are dead again at once: it comes to an end."""
    inbox = SqliteInbox(tmp_path / "many.db")
    many = 2 * REPLAYED_TOGETHER + 1
    for number in range(many):
        await inbox.add(received(str(number)))
    for claim in await inbox.claim(many, 60):
        await inbox.finish(claim, "dead")
    async with opened(tmp_path, inbox=inbox, attempts=1) as shop:

        @shop.receiver.on("payment")
        async def fail(_: Notification) -> None:
            raise ValueError("not yet")

        async with shop.receiver:
            replayed = await shop.receiver.replay_all("dead")
            await shop.receiver.settle()

            assert (many, many) == (replayed, len(await shop.receiver.events("dead", limit=2 * many)))


@pytest.mark.parametrize("state", ["done", "pending", "leased", "lost", None])
async def test_only_what_ended_badly_is_replayed(state: Any, shop: Shop) -> None:
    """What is done is not done again by a slip of the pen."""
    with pytest.raises(InvalidArgumentError, match="one of dead, parked, quarantined"):
        await shop.receiver.replay_all(state)
