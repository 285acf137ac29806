"""What is not signed is a hint: confirmed with the service, which is the sandbox here, before a handler sees it."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve, frozen

from payasync import ConfigurationError, Parameter, Recovery, Session
from payasync.notifications import InboxEvent, Notification, Receiver, SqliteInbox
from payasync.sandbox import Sandbox
from tests.notifications.merchant import CREDENTIALS, RENEWED, UNSIGNED, Shop, opened

QUIET: Final = 60.0
"""Seconds after an end state in which nobody is asked about the same number."""


class Hinted(Shop):
    """A receiver of unsigned notifications, beside the service that confirms them."""

    sandbox: Sandbox
    pay: Session

    async def hint(self, data: dict[str, Any], kind: str = "payment") -> None:
        """Have the receiver take what anybody may send, and dispatch what is due."""
        raw = json.dumps({"type": self.profile.notification.kinds[kind][0], "data": data}).encode()
        answer = await self.receiver.receive(raw, {})
        await self.receiver.settle()

        assert 200 == answer.status

    async def pass_by(self, *waits: float) -> None:
        """Let time go by, and have dispatched what falls due after each wait."""
        for wait in waits:
            self.clock.advance(wait)
            await self.receiver.settle()

    def asked(self, operation: str = "orders.query") -> int:
        """Return how often the service was asked."""
        return len(self.sandbox.ledger.calls(operation))

    async def all(self) -> list[InboxEvent]:
        """Return all events."""
        return await self.receiver.events(limit=1000)

    async def keys(self) -> list[str]:
        """Return the keys of all events."""
        return [each.key for each in await self.receiver.events()]


@asynccontextmanager
async def hinted(folder: Path, profile: Any = UNSIGNED, **settings: Any) -> AsyncGenerator[Hinted]:
    """Return such a receiver, closed at the end."""
    async with Sandbox(profile) as sandbox, sandbox.session() as pay:
        shop = Hinted(folder, **{"profile": profile, "credentials": sandbox.credentials, "session": pay, **settings})
        shop.sandbox, shop.pay = sandbox, pay
        try:
            yield shop
        finally:
            await shop.receiver.aclose(grace=0)


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncGenerator[Hinted]:
    """Such a receiver, beside a service of its own."""
    async with hinted(tmp_path) as shop:
        yield shop


async def test_hint_is_handed_on_as_the_service_confirms_it(shop: Hinted) -> None:
    """The handler gets the service's answer, not what the hint says, and the key is of what was confirmed."""
    got = shop.recording("payment")
    order = await shop.sandbox.given.paid_order(450)
    await shop.hint({"outTradeNo": order, "totalAmt": 1})
    key = f'confirmed:payment:["{order}","SBX_PAID"]'

    assert [(450, False, key)] == [(each.trusted["totalAmt"], each.verified, each.dedup_key) for each in got]
    assert ["paid"] == [each.confirmed.state for each in got if each.confirmed]
    assert ([key], ["done"]) == (await shop.keys(), await shop.states())


@frozen
class Payment:
    """What a handler wants to know of a payment."""

    outTradeNo: str  # noqa: N815 - as the service writes it
    totalAmt: int  # noqa: N815 - as above
    status: str


async def test_hints_own_words_are_out_of_reach_of_the_easy_names(shop: Hinted) -> None:
    """Whichever way a handler reads what was confirmed, it reads the service's answer; the rest is what arrived."""
    got = shop.recording("payment")
    order = await shop.sandbox.given.pending_order(total_amt=450)
    await shop.pay.orders.close(order)
    lie = {"outTradeNo": order, "totalAmt": 99999999, "status": "SBX_PAID"}
    await shop.hint(lie)
    (told,) = got

    assert (450, Payment(order, 450, "SBX_CLOSED")) == (told.get("totalAmt"), told.to(Payment))
    assert (told.trusted, "closed", None) == (told.data, told.state, told.event)
    assert ("payment.paid", lie) == (told.document["type"], told.document["data"])
    assert b"99999999" in told.raw


async def test_effect_is_not_repeated_by_other_words(shop: Hinted) -> None:
    """A second hint about what was confirmed before is a duplicate, whatever it says."""
    got = shop.recording("payment")
    order = await shop.sandbox.given.paid_order()
    for data in ({"outTradeNo": order}, {"outTradeNo": order, "x": 1}, {"outTradeNo": order, "x": 2}):
        await shop.hint(data)
    await shop.pass_by(QUIET, 4)

    assert (1, ["done", "done", "done"]) == (len(got), await shop.states())
    assert "another event was confirmed as the same" == (await shop.last()).reason


async def test_effect_is_not_repeated_by_the_same_words(shop: Hinted) -> None:
    """A redelivered hint is asked about again when that is allowed, and is a duplicate."""
    got = shop.recording("payment")
    order = await shop.sandbox.given.paid_order()
    for _ in range(3):
        await shop.hint({"outTradeNo": order})
        await shop.pass_by(QUIET)

    assert (1, 3, {"done"}) == (len(got), shop.asked(), set(await shop.states()))


async def test_effect_is_not_repeated_after_any_time(tmp_path: Path) -> None:
    """Who tells of an old payment, when what was done then is forgotten, has no second effect."""
    async with hinted(tmp_path, retention=timedelta(days=1)) as shop:
        got = shop.recording("payment")
        order = await shop.sandbox.given.paid_order()
        await shop.hint({"outTradeNo": order})
        shop.clock.advance(timedelta(days=400).total_seconds())
        await shop.receiver.settle()
        await shop.hint({"outTradeNo": order})

        assert (1, ["done", "done"]) == (len(got), await shop.states())


async def test_numbers_are_those_of_the_service(shop: Hinted) -> None:
    """A hint about a true refund cannot say of which order it is: only the answer can."""
    got = shop.recording("refund")
    order = await shop.sandbox.given.paid_order(450)
    await shop.pay.refunds.create(out_trade_no=order, out_refund_no="R1", total_amt=450, refund_amt=200)
    lie = {"outRefundNo": "R1", "outTradeNo": "T9", "subscriptionId": "S9", "paymentId": "P9"}
    await shop.hint(lie, "refund")
    (refund,) = got

    assert ("R1", order, None) == (refund.out_refund_no, refund.out_trade_no, refund.subscription_id)
    assert "P9" != refund.payment_id


async def test_hint_of_another_merchant_poisons_nothing(shop: Hinted) -> None:
    """What a hint says of the merchant counts for nothing, beside what the service says."""
    got = shop.recording("payment")
    order = await shop.sandbox.given.paid_order()
    raw = json.dumps({"type": "payment.paid", "merchantId": "M9", "data": {"outTradeNo": order}}).encode()
    await shop.receiver.receive(raw, {})

    assert ("done", 1) == ((await shop.last()).state, len(got))


async def test_lie_is_not_handled(shop: Hinted) -> None:
    """Who says that an order is paid, which is not, gets nothing; when it is paid, that is handled."""
    got = shop.recording("payment")
    order = await shop.sandbox.given.pending_order()
    await shop.hint({"outTradeNo": order, "status": "SBX_PAID"})
    lie = await shop.last()
    await shop.sandbox.customer.authorize(order)
    shop.clock.advance(1)
    await shop.receiver.settle()

    assert ("pending", "the service does not say so yet: it says 'SBX_PENDING'") == (lie.state, lie.reason)
    assert ["SBX_PAID"] == [each.trusted["status"] for each in got]


async def test_lie_is_given_up(tmp_path: Path) -> None:
    """What the service never says is dead after so many attempts, and is listed."""
    async with hinted(tmp_path, attempts=3) as shop:
        got = shop.recording("payment")
        order = await shop.sandbox.given.pending_order()
        await shop.hint({"outTradeNo": order})
        for _ in range(2):
            shop.clock.advance(60)
            await shop.receiver.settle()

        assert ("dead", [], 3) == ((await shop.last()).state, got, shop.asked())


async def test_hint_of_what_does_not_exist_is_dead_when_the_service_has_had_its_time(tmp_path: Path) -> None:
    """The service knows no such order, and says so still when it cannot be late any more: that is its last word."""
    profile = evolve(UNSIGNED, recovery=Recovery(quarantine=20.0))
    async with hinted(tmp_path, profile) as shop:
        shop.recording("payment")
        await shop.hint({"outTradeNo": "T1"})
        states = await shop.states()
        for wait in (1, 4, 16):
            shop.clock.advance(wait)
            states += [(await shop.last()).state]
        event = await shop.last()

        assert (["pending", "pending", "pending", "dead"], 4) == (states, shop.asked())
        assert event.reason.startswith("ServiceError")


@pytest.mark.parametrize("made", [True, False], ids=["pending", "absent"])
async def test_nobody_can_poison_a_hint(made: bool, shop: Hinted) -> None:  # noqa: FBT001 - a case
    """Who sends the genuine words before they are true changes nothing: they are handled as soon as they come."""
    got = shop.recording("payment")
    if made:
        await shop.sandbox.given.pending_order(out_trade_no="T1")
    await shop.hint({"outTradeNo": "T1"})
    if not made:
        await shop.sandbox.given.pending_order(out_trade_no="T1")
    await shop.sandbox.customer.authorize("T1")
    before = len(got)
    await shop.hint({"outTradeNo": "T1"})
    shop.clock.advance(3600)
    await shop.receiver.settle()

    assert (0, 1) == (before, len(got))


async def test_same_words_tell_of_another_state(shop: Hinted) -> None:
    """A hint that names only the order comes again when its state changes: both states are handled."""
    got = shop.recording("payment")
    order = await shop.sandbox.given.pending_order()
    for _ in range(3):
        await shop.sandbox.customer.decline(order)
    await shop.hint({"outTradeNo": order})
    await shop.pay.orders.close(order)
    await shop.hint({"outTradeNo": order})
    before = len(got)
    await shop.pass_by(QUIET)

    assert (1, ["SBX_FAILED", "SBX_CLOSED"]) == (before, [each.trusted["status"] for each in got])


async def test_retry_tells_what_the_service_says_by_then(shop: Hinted) -> None:
    """Where the state has changed before a retry, every handler is told of the new one, also who was done."""
    fine, failing = shop.recording("payment"), list[str]()

    @shop.receiver.on("payment")
    async def fail_once(notification: Notification) -> None:
        failing.append(notification.trusted["status"])
        if len(failing) == 1:
            raise ValueError("not now")

    order = await shop.sandbox.given.pending_order()
    for _ in range(3):
        await shop.sandbox.customer.decline(order)
    await shop.hint({"outTradeNo": order})
    await shop.pay.orders.close(order)
    await shop.pass_by(QUIET)

    assert ["SBX_FAILED", "SBX_CLOSED"] == [each.trusted["status"] for each in fine] == failing
    assert [f'confirmed:payment:["{order}","SBX_CLOSED"]'] == await shop.keys()


async def test_retry_asks_again_and_owns_its_key_still(shop: Hinted) -> None:
    """A handler that fails after the confirmation is called again without a query; who was done is not called."""
    fine, failing = shop.recording("payment"), list[int]()

    @shop.receiver.on("payment")
    async def fail_once(notification: Notification) -> None:
        failing.append(notification.attempt)
        if notification.attempt == 1:
            raise ValueError("not now")

    order = await shop.sandbox.given.paid_order()
    await shop.hint({"outTradeNo": order})
    await shop.hint({"outTradeNo": order, "x": 1})
    await shop.pass_by(1)
    asked = shop.asked()
    await shop.pass_by(QUIET)

    assert (1, [1, 2], ["done", "done"]) == (len(fine), failing, await shop.states())
    assert (1, 2) == (asked, shop.asked())


async def test_many_hints_about_one_order_are_a_few_queries(shop: Hinted) -> None:
    """200 bodies about one confirmed order: one query for the first, and one a minute later for all the others."""
    got = shop.recording("payment")
    order = await shop.sandbox.given.paid_order()
    for number in range(200):
        raw = json.dumps({"type": "payment.paid", "data": {"outTradeNo": order, "x": number}}).encode()
        await shop.receiver.receive(raw, {})
    await shop.receiver.settle()
    asked = [shop.asked()]
    for wait in (QUIET - 1, 1, 4, 16, 60, 60):
        await shop.pass_by(wait)
        asked.append(shop.asked())

    assert (1, [1, 1, 2, 2, 2, 2, 2], {"done"}) == (len(got), asked, {each.state for each in await shop.all()})


async def test_event_that_follows_soon_is_late_and_not_lost(tmp_path: Path) -> None:
    """An order that is paid, and refunded in the same minute: the second hint waits, and then is asked about."""
    async with hinted(tmp_path, attempts=1) as shop:
        got = shop.recording("payment")
        order = await shop.sandbox.given.pending_order()
        for _ in range(3):
            await shop.sandbox.customer.decline(order)
        await shop.hint({"outTradeNo": order, "x": 1})
        await shop.pay.orders.close(order)
        await shop.pass_by(30)
        await shop.hint({"outTradeNo": order, "x": 2})
        waiting = await shop.last()
        await shop.pass_by(QUIET - 30)

        assert ("pending", "the service was asked about the same number just now") == (waiting.state, waiting.reason)
        assert ["failed", "closed"] == [each.state for each in got]


async def test_one_query_is_in_flight_about_one_number(tmp_path: Path) -> None:
    """While the service is slow, further hints wait without a query, and are not given up, whatever `attempts` says.

    Each is told what a query has brought that began after it came.
    """
    async with hinted(tmp_path, attempts=1) as shop:
        got = shop.recording("payment")
        order = await shop.sandbox.given.paid_order()
        other = await shop.sandbox.given.paid_order()
        shop.sandbox.faults.latency("orders.query", seconds=0.2, times=None)
        raws = [{"outTradeNo": order, "x": number} for number in range(3)]
        for data in (*raws, {"outTradeNo": other}):
            await shop.receiver.receive(json.dumps({"type": "payment.paid", "data": data}).encode(), {})
        await shop.receiver.settle()
        waiting = await shop.receiver.events("pending")
        asked = [shop.asked()]
        for wait in (1, QUIET, 16):
            await shop.pass_by(wait)
            asked.append(shop.asked())

        assert ["a query about the same number is in flight"] * 2 == [each.reason for each in waiting]
        assert (2, [2, 2, 3, 3], {"done"}) == (len(got), asked, set(await shop.states()))


@pytest.mark.parametrize("data", [{}, {"outTradeNo": ""}, {"paymentId": "P1"}])
async def test_hint_that_names_nothing_is_parked(data: dict[str, Any], shop: Hinted) -> None:
    """Where there is no order number, nobody is asked."""
    got = shop.recording("payment")
    await shop.hint(data)

    assert ("parked", [], 0) == ((await shop.last()).state, got, len(shop.sandbox.ledger.calls()))


async def test_payment_is_confirmed_by_its_own_number(tmp_path: Path) -> None:
    """Endpoint 6 is asked where the profile knows no order number in notifications."""
    shape = evolve(UNSIGNED.notification, out_trade_no="")
    profile = evolve(UNSIGNED, notification=shape, payment_status=Parameter("paymentId"))
    async with hinted(tmp_path, profile) as shop:
        got = shop.recording("payment")
        created = await shop.pay.payments.create(amount=100, currency="USD")
        await shop.sandbox.customer.authorize(created)
        await shop.hint({"paymentId": created.payment_id})

        assert [100] == [each.trusted["amount"] for each in got]
        assert [f'confirmed:payment:["{created.payment_id}","SBX_PAID"]'] == await shop.keys()


async def test_refund_is_confirmed(shop: Hinted) -> None:
    """Endpoint 7 says what became of a refund; while it is processed, nothing is handled."""
    got = shop.recording("refund")
    order = await shop.sandbox.given.paid_order(450)
    await shop.pay.refunds.create(out_trade_no=order, out_refund_no="R1", total_amt=450, refund_amt=200)
    await shop.hint({"outRefundNo": "R1", "status": "anything"}, "refund")
    state = (await shop.pay.refunds.status("R1")).state

    assert (["SBX_SUCCEEDED"], "succeeded") == ([each.trusted["status"] for each in got], state)
    assert ['confirmed:refund:["R1","SBX_SUCCEEDED"]'] == await shop.keys()


async def test_expectation_is_of_the_service(tmp_path: Path) -> None:
    """An attacker's amount neither meets an expectation nor fails one: the service's is compared."""
    async with hinted(tmp_path, expect=lambda _: {"totalAmt": 450, "currency": "CAD"}) as shop:
        got = shop.recording("payment")
        for amount in (450, 1):
            order = await shop.sandbox.given.paid_order(amount)
            await shop.hint({"outTradeNo": order, "totalAmt": 451 - amount})

        assert [450] == [each.trusted["totalAmt"] for each in got]
        assert ("quarantined", "totalAmt is 1, expected 450") == (
            (await shop.last()).state,
            (await shop.last()).reason,
        )


async def test_subscription_that_nobody_confirms_is_parked(shop: Hinted) -> None:
    """No query tells of subscriptions: without a signature they are listed, and nothing else."""
    got = shop.recording("*")
    await shop.hint(RENEWED, "subscription")

    assert ("parked", []) == ((await shop.last()).state, got)


async def test_subscription_is_handled_unverified_where_the_handler_says_so(shop: Hinted) -> None:
    """It is handed on as what it is: believed by nobody. Its redeliveries are known by their words."""
    got = shop.recording("subscription", unverified=True)
    for _ in range(2):
        await shop.hint(RENEWED, "subscription")

    assert [(RENEWED, None, False)] == [(each.data, each.trusted, each.verified) for each in got]


async def test_payments_are_confirmed_for_who_takes_everything(shop: Hinted) -> None:
    """A handler of every kind that takes what is unverified still gets payments confirmed only."""
    got = shop.recording("*", unverified=True)
    order = await shop.sandbox.given.paid_order()
    await shop.hint({"outTradeNo": order})
    await shop.hint({"outTradeNo": "T2"})

    assert [order] == [each.trusted["outTradeNo"] for each in got]


async def test_handler_can_ask_by_hand(tmp_path: Path) -> None:
    """A signed notification can be confirmed, too: by the receiver's session, or by another."""
    async with hinted(tmp_path) as shop, opened(tmp_path / "..", session=shop.pay) as signed:
        states = list[str | None]()

        @signed.receiver.on("payment")
        async def paid(notification: Notification) -> None:
            states.append((await notification.confirm()).state)
            states.append((await notification.confirm(session=shop.pay)).state)

        order = await shop.sandbox.given.paid_order()
        await signed.handled({"outTradeNo": order, "status": "SBX_PAID"})

        assert ["paid", "paid"] == states


def test_hints_need_somebody_to_ask(tmp_path: Path) -> None:
    """Without a session nothing could ever be confirmed: the receiver is not made."""
    with pytest.raises(ConfigurationError) as caught:
        Receiver(profile=UNSIGNED, credentials=CREDENTIALS, inbox=SqliteInbox(tmp_path / "inbox.db"))

    assert "session" == caught.value.field
