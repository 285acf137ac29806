"""Genuine notifications that must not be acted on as they are: held, and never in the way of a right one."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from attrs import evolve

from payasync import Profile
from payasync.errors import ConfigurationError
from payasync.notifications import Notification, Receiver
from payasync.signing import SortedPairs
from tests.notifications.merchant import (
    CREDENTIALS,
    PAID,
    REFUNDED,
    RENEWED,
    SIGNED,
    Shop,
    hinted,
    opened,
    received,
    shared,
)
from tests.notifications.test_ingest import NO, YES

OTHERS: Final = {**PAID, "merchantId": "M2"}


def shaped(**facts: Any) -> Profile:
    """Return the profile with another form of notifications."""
    return evolve(SIGNED, notification=evolve(SIGNED.notification, **facts))


IN_BODY: Final = shaped(verification="body", signature="data.sign", header=None)


async def test_event_of_another_merchant_is_held_under_a_key_of_its_own(shop: Shop) -> None:
    """An event of another merchant is held once, also after a replay. The merchant's own event is handled once."""
    got = shop.recording()
    answers = [await shop.take(OTHERS), await shop.take(OTHERS), await shop.take(PAID)]
    await shop.receiver.settle()
    replayed = await shop.receiver.replay(1)
    await shop.receiver.settle()
    others, ours = await shop.receiver.events()

    assert [YES] * 3 == answers
    assert ("held", "done", True) == (others.state, ours.state, replayed)
    assert "another merchant" in others.reason
    assert ["T1"] == got.numbers


@pytest.mark.parametrize("merchant", ["M2", "M3"])
async def test_event_is_replayed_after_the_credentials_are_corrected(merchant: str, tmp_path: Path) -> None:
    """If the credentials named the wrong merchant, replaying with the right ones handles the event as verified."""
    async with opened(tmp_path) as shop:
        await shop.take(OTHERS)
    async with opened(tmp_path, credentials=evolve(CREDENTIALS, merchant_id=merchant)) as shop:
        got = shop.recording(fails=1)
        await shop.receiver.replay(1)
        await shop.later(0, 60)
        again = await shop.take(OTHERS)
        states = (await shop.last()).state, await shop.states()

    done = merchant == "M2"
    assert YES == again
    assert (("done", ["done"]) if done else ("held", ["held"])) == states
    assert [True, True] * done == [each.verified for each in got]


@pytest.mark.parametrize("late", [0, 3600])
async def test_log_says_once_why_an_event_is_held(
    late: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A new held event is logged as held, with the reason; a stored late one as refused. Both late ones are counted."""
    caplog.set_level("INFO", "payasync.notifications")
    refused, data = list[str](), PAID if late else OTHERS
    words = "webhook-timestamp is 3600 seconds ago" if late else "merchantId is 'M2', expected 'M1': it is another"
    async with opened(tmp_path / "other", on_refused=refused.append) as shop:
        for name in ("notification.held", "notification.refused")[: 2 if late else 1]:
            caplog.clear()
            await shop.take(data, time=shop.clock.now - late)
            (record,) = caplog.records
            facts = vars(record)

            assert (name, "WARNING") == (facts["event_name"], record.levelname)
            assert words in facts["reason"]
            assert facts["reason"] in record.getMessage()

    assert ["signature"] * 2 * bool(late) == refused


async def test_each_held_event_of_the_merchant_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of held events that may be another merchant's, only the first is a warning: anybody can cause more of them.

    An event may be another's if it names another, or if it names nobody and all merchants share the key.
    """
    caplog.set_level("INFO", "payasync.notifications")
    cases: tuple[tuple[Literal["shared", "merchant"], dict[str, str], str], ...] = (
        ("merchant", {}, "WARNING"),
        ("merchant", {"merchantId": "M1"}, "WARNING"),
        ("merchant", {"merchantId": "M2"}, "INFO"),
        ("shared", {}, "INFO"),
        ("shared", {"merchantId": "M1"}, "WARNING"),
        ("shared", {"merchantId": "M2"}, "INFO"),
    )
    for case, (whose, data, later) in enumerate(cases):
        caplog.clear()
        async with opened(tmp_path / str(case), profile=shared(IN_BODY, whose)) as shop:
            for number in ("T.1", "T.2", "T.3"):  # the profile's identifier has no dot
                await shop.take({**PAID, **data, "outTradeNo": number})

            assert ["held"] * 3 == await shop.states(), (whose, data)
        held = [each for each in caplog.records if vars(each)["event_name"] == "notification.held"]

        assert ["WARNING", later, later] == [each.levelname for each in held], (whose, data)
        assert data.get("merchantId") != "M2" or "payasync journal with --inbox" in held[0].getMessage()
        assert "identified by the hash" not in caplog.text


async def test_unsigned_part_that_varies_leaves_nothing_for_ever(tmp_path: Path) -> None:
    """Who has one event with a signature in its body can vary the rest: what is held of that is deleted later."""
    async with opened(tmp_path, profile=IN_BODY) as shop:
        raw = shop.sign().raw
        for number in range(3):
            await shop.receiver.receive(b'{"n":1,"n":%d,' % number + raw[1:], {}, "payment")
        stored = await shop.receiver.events("held")
        deleted = await shop.inbox.forget(datetime.fromtimestamp(shop.clock.now + 1, UTC))

    assert (3, 3) == (len(stored), deleted)


@pytest.mark.parametrize("digits", [5001, 1_000_000])
async def test_digits_of_a_long_integer_are_signed(digits: int, tmp_path: Path) -> None:
    """A body with an integer of too many digits is held if these digits are signed in it, and refused if not."""
    async with opened(tmp_path, profile=IN_BODY) as shop:
        got, text = shop.recording(), b"7" * digits
        raw = shop.sign({**PAID, "no": text.decode()}).raw.replace(b'"%b"' % text, text)
        answers = [
            await shop.receiver.receive(each, {}, "payment") for each in (raw.replace(text, text[1:] + b"8"), raw)
        ]
        event = await shop.last()

    assert ([NO, YES], "held", []) == (answers, event.state, got)
    assert "has more than 5000 digits" in event.reason


@pytest.mark.parametrize("values", [["1"] * 30_002, [{}] * 33_769])
async def test_costly_body_is_not_checked(values: list[object], tmp_path: Path) -> None:
    """A body with so many values that a check of its inner signature would block the receiver is refused."""
    scheme = SortedPairs(algorithm="hmac-sha256", encoding="hex", nested="json", numbers="text")
    async with opened(tmp_path, profile=evolve(IN_BODY, signature=scheme)) as shop:
        bodies = [shop.sign({**PAID, "list": some}).raw for some in (values, values[:500])]

        assert [NO, YES] == [await shop.receiver.receive(each, {}, "payment") for each in bodies]


@pytest.mark.parametrize("path", ["shop.id", ""])
async def test_merchant_is_compared_at_the_path_of_the_profile(path: str, tmp_path: Path) -> None:
    """`notification.merchant_id` says where the merchant stands; an empty text compares nothing."""
    async with opened(tmp_path, profile=shaped(merchant_id=path)) as shop:
        shop.recording()
        await shop.handled({**OTHERS, "shop": {"id": "M2"}})

        assert ["held" if path else "done"] == await shop.states()


async def test_event_without_what_each_must_hold_is_held(tmp_path: Path) -> None:
    """`notification.must` holds a test event of the same number, and does not hold the live one after it."""
    async with opened(tmp_path, profile=shaped(must={"livemode": True})) as shop:
        got = shop.recording()
        held = await shop.handled({**PAID, "livemode": False})
        await shop.handled({**PAID, "livemode": True})

        assert "notification.must" in held.reason
        assert ["superseded", "done"] == await shop.states()
        assert [True] == [each.data["livemode"] for each in got]


@pytest.mark.parametrize("together", [True, False])
async def test_event_that_expect_refuses_gives_way(shop: Shop, *, together: bool) -> None:
    """If `expect` refuses the first event of a key, the right one after it is handled, and the first is superseded."""
    got = shop.recording(expect=lambda _: {"totalAmt": 450})
    await (shop.take if together else shop.handled)({**PAID, "totalAmt": 1})
    await shop.handled(PAID)

    assert ["superseded", "done"] == await shop.states()
    assert [450] == [each.data["totalAmt"] for each in got]
    assert not await shop.receiver.replay(1)


async def test_replay_of_all_handles_one_event_of_a_key(shop: Shop) -> None:
    """Of two held bodies of one key, `replay_all` dispatches one. Beside a handled one, only `replay` dispatches."""
    answers = dict[str, Any](values=None)
    got = shop.recording(expect=lambda _: answers["values"])
    for number in (1, 2):
        await shop.handled({**PAID, "node": number})
    answers["values"] = {}
    replayed = [await shop.receiver.replay_all("quarantined")]  # the old name
    await shop.receiver.settle()
    await shop.handled({**PAID, "node": 3})
    replayed.append(await shop.receiver.replay_all("held"))
    states = await shop.states()
    again = await shop.receiver.replay(3)
    await shop.receiver.settle()

    assert ([1, 0], ["done", "superseded", "held"]) == (replayed, states)
    assert (True, [1, 3]) == (again, got.ids)


@pytest.mark.parametrize(
    ("how", "ends"),
    [("later", ("held", "done")), ("released", ("pending", "held")), ("replayed", ("dead", "held"))],
)
async def test_handler_that_is_done_is_not_called_for_another_body(how: str, ends: object, tmp_path: Path) -> None:
    """If an event is held or dead after one of its handlers is done, the next body of its key calls only the others."""
    async with opened(tmp_path, attempts=1 if how == "replayed" else 100) as shop:
        credited = shop.recording()

        def expect(notification: Notification) -> dict[str, Any] | None:
            return None if notification.id == 1 and notification.attempt > 1 else {}

        mailed = shop.recording(fails=1, expect=expect)
        first = await shop.handled()
        if how == "later":
            first = await shop.later(1)
        second = await shop.handled({**PAID, "node": 2})
        await shop.later(1)
        await shop.receiver.replay_all("held")
        last = await shop.last()

    assert ends == (first.state, second.state)
    assert ("done", [1], [1, 2]) == (last.state, credited.ids, mailed.ids)


@pytest.mark.parametrize("hours", [1, -1])
async def test_event_outside_the_window_is_held_until_it_comes_again(shop: Shop, hours: int) -> None:
    """A genuine event with a wrong time is held once, and not acknowledged. A redelivery with a new time is handled.

    Somebody who sends it again after that leaves nothing behind.
    """
    got = shop.recording()
    late = [await shop.take(time=shop.clock.now + hours * 3600, id="msg_1") for _ in range(2)]
    states = await shop.states()
    again = await shop.take(id="msg_1")
    await shop.last()
    late.append(await shop.take(time=shop.clock.now + hours * 3600, id="msg_1"))

    assert ([NO] * 3, ["held"], YES) == (late, states, again)
    assert ["superseded", "done"] == await shop.states()
    assert 1 == len(got)


async def test_wrong_clock_loses_nothing(tmp_path: Path) -> None:
    """If this machine's clock was wrong, a replay handles what is held, and a redelivery after it nothing again."""
    async with opened(tmp_path, profile=shaped(volatile=("timestamp",))) as shop:
        got = shop.recording()
        await shop.take(time=shop.clock.now + 3600, id="msg_1")
        await shop.receiver.replay_all("held")
        await shop.last()
        await shop.handled(id="msg_1")

        assert (["done"], 1) == (await shop.states(), len(got))


async def test_signed_response_is_no_notification(tmp_path: Path) -> None:
    """A genuine document without the event's name or without the payload is held, whatever address it comes to."""
    bodies = (
        b'{"outTradeNo":"T1","status":"SBX_PAID","totalAmt":450,"currency":"CAD"}',
        b'{"type":"payment.paid","outTradeNo":"T1","status":"SBX_PAID"}',
        b'{"type":"payment.paid","data":null}',
        b'{"type":"payment.paid","data":"T1"}',
        b'{"type":"payment.paid","data":[{"outTradeNo":"T1"}]}',
    )
    async with opened(tmp_path, verifier=lambda _raw, _headers: True) as shop:
        shop.recording()
        for body in bodies:
            for kind in ("payment", "refund", None):
                await shop.receiver.receive(body, {}, kind)
        await shop.last()

        assert {"held"} == set(await shop.states())


@pytest.mark.parametrize(
    ("kind", "data", "name"),
    [("payment", PAID, "outTradeNo"), ("refund", REFUNDED, "outRefundNo"), ("subscription", RENEWED, "subscriptionId")],
)
async def test_what_is_no_number_is_held(kind: str, data: dict[str, Any], name: str, shop: Shop) -> None:
    """An event is held if the path of its own number holds neither a text nor an integer."""
    got = shop.recording()
    values: tuple[Any, ...] = (123.0, True, ["T1"], {"no": "T1"}, "", " ")
    for value in values:
        event = await shop.handled({**data, name: value}, kind)

        assert ("held", []) == (event.state, got)
        assert f"{name} is {value!r}: the number must be an integer, or a text that is not blank" == event.reason


async def test_other_number_of_an_event(shop: Shop) -> None:
    """Null and an empty text are no number of another thing. A payment need not have an order."""
    got = shop.recording()
    fine: list[tuple[str, dict[str, Any]]] = [("payment", {**PAID, "outTradeNo": None})]
    fine += [("payment", {**PAID, "outRefundNo": ""}), ("refund", {**REFUNDED, "outTradeNo": ""})]
    odd: list[tuple[str, dict[str, Any]]] = [("payment", {**PAID, "subscriptionId": False})]
    odd += [("refund", {**REFUNDED, "outTradeNo": each}) for each in (1.5, {"no": "T1\x1b"})]
    for number, (kind, data) in enumerate(fine + odd):
        event = await shop.handled({**data, "status": f"S{number}"}, kind)

        assert ("done" if number < len(fine) else "held") == event.state, data
        assert "\x1b" not in event.reason
    assert len(fine) == len(got)


async def test_key_of_all_merchants_proves_no_merchant(tmp_path: Path) -> None:
    """With a key of all merchants, an event that names no merchant is a hint: the service is asked about its number."""
    async with hinted(tmp_path, shared(SIGNED)) as shop:
        got, order = shop.recording(), await shop.sandbox.given.paid_order(total_amt=450)
        await shop.pay.orders.place(out_trade_no="OPEN", total_amt=1, currency="CAD")
        mine = {"outTradeNo": "T9", "merchantId": shop.credentials.merchant_id}
        for data in ({"outTradeNo": order}, {"outTradeNo": "OPEN"}, mine):
            await shop.handled({**PAID, **data})

        assert {order: False, "T9": True} == {each.out_trade_no: each.verified for each in got}
        assert ["done", "pending", "done"] == await shop.states()


async def test_handler_that_is_done_is_not_called_for_another_hint(tmp_path: Path) -> None:
    """If a confirmed event is held after a handler is done, the next hint of that state calls only the others."""
    async with hinted(tmp_path, shared(SIGNED)) as shop:
        credited, order = shop.recording(), await shop.sandbox.given.paid_order(total_amt=450)
        answers = iter([dict[str, Any](), None, dict[str, Any]()])
        mailed = shop.recording(fails=1, expect=lambda _: next(answers))
        for number in range(2):
            await shop.take({**PAID, "outTradeNo": order, "node": number})
            await shop.later(0, 61)

        assert ["superseded", "done"] == await shop.states()
        assert ([1], [1, 2]) == (credited.ids, mailed.ids)


async def test_key_that_becomes_shared(tmp_path: Path) -> None:
    """If the profile then says that the key is shared, the service is asked about what waits: it may be another's."""
    async with hinted(tmp_path, SIGNED) as shop:
        shop.recording(fails=1)
        await shop.handled({**PAID, "outTradeNo": "UNKNOWN"})
        await shop.receiver.aclose()
        facts: dict[str, Any] = {"credentials": shop.credentials, "session": shop.pay, "clock": shop.clock}
        async with opened(tmp_path, profile=shared(SIGNED), **facts) as later:
            got = later.recording()
            event = await later.later(61, 61, 61)

    assert ([], "dead") == (got, event.state)


async def test_key_of_two_receivers_proves_no_merchant(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two merchants' open receivers with one key believe only what names them, also after one closes."""
    data = [{**PAID, "outTradeNo": f"T{number}"} for number in range(5)]
    async with opened(tmp_path / "mine") as shop:
        await shop.take(data[0])
        async with opened(tmp_path / "other", credentials=evolve(CREDENTIALS, merchant_id="M2")) as second:
            warnings = caplog.text.count("signature.service_key")
            for each, name in ((shop, "M1"), (second, "M2")):
                await each.take(data[1])
                await each.take({**data[2], "merchantId": name})
        await shop.take(data[3])

        assert 1 == warnings
        assert [True, False, True, False] == await shop.verified()


@pytest.mark.parametrize("written", ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw= "])
async def test_key_is_the_same_however_it_is_written(written: str, tmp_path: Path) -> None:
    """A key of Standard Webhooks is that of two merchants also if one of them writes it otherwise.

    A late event that was held while the key was shared proves no merchant in a replay after a restart.
    """
    his = evolve(CREDENTIALS, merchant_id="M2", notification_keys=written)
    async with opened(tmp_path) as shop, opened(tmp_path / "other", credentials=his):
        await shop.take(time=shop.clock.now - 3600)
        await shop.take({**PAID, "outTradeNo": "T2"})

        assert [False, False] == await shop.verified()
    async with opened(tmp_path) as shop:
        got = shop.recording()
        await shop.receiver.replay_all("held")
        await shop.last()

        assert (["parked", "parked"], [False, False], []) == (await shop.states(), await shop.verified(), got)


async def test_receiver_that_cannot_be_made_shares_no_key(shop: Shop) -> None:
    """A receiver whose settings are refused does not count as one that has the key."""
    settings: dict[str, Any] = {"credentials": evolve(CREDENTIALS, merchant_id="M2"), "on_refused": "no function"}
    with pytest.raises(ConfigurationError, match="on_refused"):
        Receiver(profile=SIGNED, inbox=shop.inbox, **settings)
    await shop.take()

    assert [True] == await shop.verified()


@pytest.mark.parametrize(("whose", "believed"), [("shared", [False, True]), ("merchant", [True, True])])
async def test_key_of_a_verifier(whose: Literal["shared", "merchant"], believed: list[bool], tmp_path: Path) -> None:
    """If the profile says that all merchants share the key, a verifier's event that names nobody is a hint, too."""
    async with opened(tmp_path, profile=shared(SIGNED, whose), verifier=lambda _raw, _headers: True) as shop:
        await shop.take()
        await shop.take({**PAID, "outTradeNo": "T2", "merchantId": "M1"})

        assert believed == await shop.verified()


async def test_hints_do_not_delay_what_the_service_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While strangers' hints wait for queries, the service is asked about an event that it signed for all merchants."""
    monkeypatch.setattr("payasync.notifications.transitions.BURST", 1)
    async with hinted(tmp_path, shared(SIGNED)) as shop:
        shop.recording()
        order = await shop.sandbox.given.paid_order(total_amt=450)
        for number in range(3):  # from before the service signed
            raw = b'{"type":"payment.paid","data":{"outTradeNo":"X%d"}}' % number
            await shop.inbox.add(received(f"hint:payment:{number}", raw=raw, verified=False))
        event = await shop.handled({**PAID, "outTradeNo": order})
        reasons = [each.reason for each in await shop.receiver.events("pending")]

        assert [False, True, True] == ["waits for its turn" in each for each in reasons]
        assert "done" == event.state


async def test_time_of_the_event_is_shown_and_not_judged(tmp_path: Path) -> None:
    """An event whose own time is long ago, or is no time, is handled. Handlers and the inbox have the time."""
    moments = {"2029-12-30T10:00:00+01:00": datetime(2029, 12, 30, 9, tzinfo=UTC), 1e300: None, "yesterday": None}
    async with opened(tmp_path, profile=shaped(event_time="data.paidAt")) as shop:
        got = shop.recording()
        for number, (paid_at, moment) in enumerate({**moments, None: None}.items()):
            event = await shop.handled({**PAID, "outTradeNo": f"T{number}", "paidAt": paid_at})

            assert ("done", moment, moment) == (event.state, event.event_time, got[-1].event_time)


async def test_held_event_is_not_lost_beside_another_one_of_its_key(tmp_path: Path) -> None:
    """An event whose key is that of an unhandled event with another body is held again after a replay."""
    async with opened(tmp_path, profile=shaped(id={"payment": ("outTradeNo",)}), attempts=1) as shop:
        shop.recording(fails=1)
        dead = await shop.handled({**PAID, "status": "SBX_PENDING"})
        late = await shop.handled(time=shop.clock.now - 3600)
        await shop.receiver.replay(late.id)
        again = await shop.last()
        await shop.receiver.replay(dead.id)
        await shop.last()

        assert ("dead", "held", "held") == (dead.state, late.state, again.state)
        assert ["done", "superseded"] == await shop.states()
