"""Genuine notifications that must not be acted on as they are: held, and never in the way of a right one."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from attrs import evolve

from payasync import Credentials, Profile, Secret
from payasync.errors import ConfigurationError
from payasync.notifications import Notification, Receiver, SqliteInbox
from payasync.notifications.verification import sign_webhook
from payasync.sandbox import Sandbox
from payasync.signing import SortedPairs
from payasync.testing import sign_notification
from tests.notifications.merchant import CREDENTIALS, PAID, REFUNDED, RENEWED, SIGNED, Shop, opened, received
from tests.notifications.test_ingest import NO, YES

KEYS: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHERS: Final = {**PAID, "merchantId": "M2"}


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncGenerator[Shop]:
    """A receiver that handles everything, and believes what is signed."""
    async with opened(tmp_path) as shop:
        yield shop


def failing_first(shop: Shop, **settings: Any) -> list[Notification]:
    """Register a handler that fails at its first call, and return the list of those that it has handled."""
    got, calls = list[Notification](), itertools.count()

    @shop.receiver.on("payment", **settings)
    async def handle(notification: Notification) -> None:
        if not next(calls):
            raise OSError
        got.append(notification)

    return got


def shaped(**facts: Any) -> Profile:
    """Return the profile with another form of notifications."""
    return evolve(SIGNED, notification=evolve(SIGNED.notification, **facts))


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
    assert ["T1"] == [each.out_trade_no for each in got]


@pytest.mark.parametrize("merchant", ["M2", "M3"])
async def test_event_is_replayed_after_the_credentials_are_corrected(merchant: str, tmp_path: Path) -> None:
    """If the credentials named the wrong merchant, replaying with the right ones handles the event as verified."""
    async with opened(tmp_path) as shop:
        shop.recording()
        await shop.take(OTHERS)
    right = Credentials(merchant, notification_keys=KEYS)
    async with opened(tmp_path, credentials=right) as shop:
        got = failing_first(shop)
        await shop.receiver.replay(1)
        await shop.receiver.settle()
        shop.clock.advance(60)
        await shop.receiver.settle()
        again = await shop.take(OTHERS)
        await shop.receiver.settle()
        states = await shop.states()

    assert YES == again
    assert ((["done"], [True]) if merchant == "M2" else (["held"], [])) == (states, [each.verified for each in got])


async def test_late_event_is_replayed_beside_a_wrong_one(shop: Shop) -> None:
    """A late event is handled in a replay although `expect` holds another event of its key, which gives way."""
    got = shop.recording(expect=lambda _: {"totalAmt": 450})
    await shop.handled({**PAID, "totalAmt": 1})
    await shop.take(time=shop.clock.now - 3600)
    await shop.receiver.replay(2)
    await shop.receiver.settle()

    assert ["superseded", "done"] == await shop.states()
    assert [450] == [each.data["totalAmt"] for each in got]


async def test_late_copy_of_a_handled_event_is_not_stored(shop: Shop) -> None:
    """Somebody who sends an old genuine notification again leaves nothing behind: its event was handled."""
    shop.recording()
    await shop.handled()
    late = await shop.take(time=shop.clock.now - 3600)

    assert (NO, ["done"]) == (late, await shop.states())


@pytest.mark.parametrize(
    ("late", "data", "name", "level", "words"),
    [
        (0, OTHERS, "notification.held", "WARNING", "merchantId is 'M2', expected 'M1': it is another merchant's"),
        (3600, PAID, "notification.held", "WARNING", "webhook-timestamp is 3600 seconds ago"),
        (3600, PAID, "notification.refused", "WARNING", "webhook-timestamp is 3600 seconds ago"),
    ],
    ids=["of another merchant", "late", "late again"],
)
async def test_log_says_once_why_an_event_is_held(
    late: float, data: Any, name: str, level: str, words: str, *, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A new held event is logged as held, with the reason; a stored late one as refused. Both late ones are counted."""
    caplog.set_level("INFO", "payasync.notifications")
    refused = list[str]()
    async with opened(tmp_path, on_refused=refused.append) as shop:
        times = 2 if name.endswith("refused") else 1
        for _ in range(times):
            caplog.clear()
            await shop.take(data, time=shop.clock.now - late)
    (record,) = caplog.records
    facts = vars(record)

    assert (name, level) == (facts["event_name"], record.levelname)
    assert words in facts["reason"]
    assert facts["reason"] in record.getMessage()
    assert ["signature"] * times * bool(late) == refused


@pytest.mark.parametrize("in_body", [False, True])
@pytest.mark.parametrize(
    ("whose", "data", "later"),
    [
        ("merchant", {}, "WARNING"),
        ("merchant", {"merchantId": "M1"}, "WARNING"),
        ("merchant", {"merchantId": "M2"}, "INFO"),
        ("shared", {}, "INFO"),
        ("shared", {"merchantId": "M1"}, "WARNING"),
        ("shared", {"merchantId": "M2"}, "INFO"),
    ],
)
async def test_each_held_event_of_the_merchant_is_a_warning(
    whose: Literal["shared", "merchant"],
    data: dict[str, str],
    later: str,
    *,
    in_body: bool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of held events that may be another merchant's, only the first is a warning: anybody can cause more of them.

    An event may be another's if it names another, or if it names nobody and all merchants share the key.
    """
    caplog.set_level("INFO", "payasync.notifications")
    profile = shaped(verification="body", signature="data.sign", header=None) if in_body else SIGNED
    assert isinstance(profile.scheme, SortedPairs)
    profile = evolve(profile, signature=evolve(profile.scheme, service_key=whose))
    async with opened(tmp_path, profile=profile) as shop:
        for number in ("T.1", "T.2", "T.3"):  # the profile's identifier has no dot
            await shop.take({**PAID, **data, "outTradeNo": number})

        assert ["held"] * 3 == await shop.states()
    held = [each.levelname for each in caplog.records if vars(each)["event_name"] == "notification.held"]

    assert ["WARNING", later, later] == held


async def test_first_event_of_another_merchant_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If the credentials have another form of the number, each event is another merchant's: the first one warns."""
    caplog.set_level("INFO", "payasync.notifications")
    async with opened(tmp_path, credentials=Credentials("1", notification_keys=KEYS)) as shop:
        for number in ("T1", "T2"):
            await shop.take({**PAID, "outTradeNo": number, "merchantId": "0001"})

    assert ["WARNING", "INFO"] == [each.levelname for each in caplog.records]
    assert "merchantId is '0001', expected '1'" in caplog.records[0].getMessage()
    assert "payasync journal with --inbox" in caplog.records[0].getMessage()


async def test_unreadable_event_warns_of_no_weak_key(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """An event that is held because it cannot be read says nothing about how events are identified."""
    raw = sign_notification(PAID, profile=SIGNED, credentials=CREDENTIALS, kind="payment", time=shop.clock.now)
    body = raw.raw.replace(b'"T1"', b'"T1","outTradeNo":"T1"')
    number, key = raw.headers["webhook-id"], Secret(KEYS)
    headers = {**raw.headers, "webhook-signature": sign_webhook(body, number=number, sent=int(shop.clock.now), key=key)}
    await shop.receiver.receive(body, headers, "payment")

    assert ["held"] == await shop.states()
    assert "identified by the hash" not in caplog.text


async def test_unsigned_part_that_varies_leaves_nothing_for_ever(tmp_path: Path) -> None:
    """Who has one event with a signature in its body can vary the rest: what is held of that is deleted later."""
    shape = evolve(SIGNED.notification, verification="body", signature="data.sign", header=None)
    async with opened(tmp_path, profile=evolve(SIGNED, notification=shape)) as shop:
        raw = sign_notification(PAID, profile=shop.profile, credentials=CREDENTIALS, kind="payment").raw
        for number in range(3):
            await shop.receiver.receive(b'{"n":1,"n":%d,' % number + raw[1:], {}, "payment")
        stored = await shop.receiver.events("held")
        later = datetime.fromtimestamp(shop.clock.now + 1, UTC)
        inbox = SqliteInbox(shop.path, clock=shop.clock)
        deleted = await inbox.forget(later)
        await inbox.aclose()

    assert (3, 3) == (len(stored), deleted)


@pytest.mark.parametrize("digits", [5001, 1_000_000])
async def test_digits_of_a_long_integer_are_signed(digits: int, tmp_path: Path) -> None:
    """A body with an integer of too many digits is held if these digits are signed in it, and refused if not."""
    shape = evolve(SIGNED.notification, verification="body", signature="data.sign", header=None)
    async with opened(tmp_path, profile=evolve(SIGNED, notification=shape)) as shop:
        got, text = shop.recording(), "7" * digits
        raw = shop.sign({**PAID, "no": text}).raw.replace(b'"%b"' % text.encode(), text.encode())
        forged = raw.replace(text.encode(), text.encode()[1:] + b"8")
        answers = [await shop.receiver.receive(each, {}, "payment") for each in (forged, raw)]
        await shop.receiver.settle()
        (event,) = await shop.receiver.events()

    assert ([NO, YES], "held", []) == (answers, event.state, got)
    assert "has more than 5000 digits" in event.reason


@pytest.mark.parametrize("values", [["1"] * 30_002, [{}] * 33_769])
async def test_costly_body_is_not_checked(values: list[object], tmp_path: Path) -> None:
    """A body with so many values that a check of its inner signature would block the receiver is refused."""
    scheme = SortedPairs(algorithm="hmac-sha256", encoding="hex", nested="json", numbers="text")
    shape = evolve(SIGNED.notification, verification="body", signature="data.sign", header=None)
    async with opened(tmp_path, profile=evolve(SIGNED, signature=scheme, notification=shape)) as shop:
        answers = [
            await shop.receiver.receive(shop.sign({**PAID, "list": some}).raw, {}, "payment")
            for some in (values, values[:500])
        ]

    assert [NO, YES] == answers


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
    await shop.take({**PAID, "totalAmt": 1})
    if not together:
        await shop.receiver.settle()
    await shop.take(PAID)
    await shop.receiver.settle()

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
    by_a_person = await shop.receiver.replay(3)
    await shop.receiver.settle()

    assert ([1, 0], ["done", "superseded", "held"]) == (replayed, states)
    assert (True, [1, 3]) == (by_a_person, [each.id for each in got])


@pytest.mark.parametrize("way", ["later", "released", "replayed"])
async def test_handler_that_is_done_is_not_called_for_another_body(way: str, tmp_path: Path) -> None:
    """If an event is held or dead after one of its handlers is done, the next body of its key calls only the others."""
    async with opened(tmp_path, attempts=1 if way == "replayed" else 100) as shop:
        credited, mailed = shop.recording(), list[int | None]()

        def expect(notification: Notification) -> dict[str, Any] | None:
            return None if notification.id == 1 and notification.attempt > 1 else {}

        @shop.receiver.on("payment", name="mail", expect=expect)
        async def mail(notification: Notification) -> None:
            if notification.id == 1:
                raise OSError
            mailed.append(notification.id)

        first = (await shop.handled()).state
        if way == "later":
            shop.clock.advance(1)
            first = (await shop.last()).state
        second = (await shop.handled({**PAID, "node": 2})).state
        shop.clock.advance(1)
        await shop.receiver.settle()
        await shop.receiver.replay_all("held")
        last = await shop.last()

    assert {"later": ("held", "done"), "released": ("pending", "held"), "replayed": ("dead", "held")}[way] == (
        first,
        second,
    )
    assert ("done", [1], [2]) == (last.state, [each.id for each in credited], mailed)


@pytest.mark.parametrize("hours", [1, -1])
async def test_event_outside_the_window_is_held_until_it_comes_again(shop: Shop, hours: int) -> None:
    """A genuine event with a wrong time is held once, and not acknowledged. A redelivery with a new time is handled."""
    got = shop.recording()
    late = [await shop.take(time=shop.clock.now + hours * 3600, id="msg_1") for _ in range(2)]
    states = await shop.states()
    again = await shop.take(id="msg_1")
    await shop.receiver.settle()

    assert ([NO, NO], ["held"], YES) == (late, states, again)
    assert ["superseded", "done"] == await shop.states()
    assert 1 == len(got)


async def test_wrong_clock_loses_nothing(tmp_path: Path) -> None:
    """If this machine's clock was wrong, a replay handles what is held, and a redelivery after it nothing again."""
    async with opened(tmp_path, profile=shaped(volatile=("timestamp",))) as shop:
        got = shop.recording()
        await shop.take(time=shop.clock.now + 3600, id="msg_1")
        await shop.receiver.replay_all("held")
        await shop.receiver.settle()
        await shop.take(id="msg_1")
        await shop.receiver.settle()

        assert ["done"] == await shop.states()
        assert 1 == len(got)


RESPONSE: Final = b'{"outTradeNo":"T1","status":"SBX_PAID","totalAmt":450,"currency":"CAD"}'


@pytest.mark.parametrize(
    "body",
    [
        RESPONSE,
        b'{"type":"payment.paid","outTradeNo":"T1","status":"SBX_PAID"}',
        *(b'{"type":"payment.paid","data":%s}' % payload for payload in (b"null", b'"T1"', b'[{"outTradeNo":"T1"}]')),
    ],
)
async def test_signed_response_is_no_notification(body: bytes, tmp_path: Path) -> None:
    """A genuine document without the event's name or without the payload is held, whatever address it comes to."""
    async with opened(tmp_path, verifier=lambda _raw, _headers: True) as shop:
        shop.recording()
        answers = [await shop.receiver.receive(body, {}, kind) for kind in ("payment", "refund", None)]
        await shop.receiver.settle()

        assert YES == answers[0]
        assert {"held"} == set(await shop.states())


async def test_person_says_the_kind_of_an_event_without_a_name(tmp_path: Path) -> None:
    """A genuine event without a name is handled after a person has replayed it with its kind."""
    async with opened(tmp_path, verifier=lambda _raw, _headers: True) as shop:
        got = shop.recording()
        await shop.receiver.receive(b'{"data":{"outTradeNo":"T1","status":"SBX_PAID"}}', {}, "payment")
        (held,) = await shop.receiver.events("held")
        await shop.receiver.replay_all("held")
        await shop.receiver.settle()
        states = await shop.states()
        await shop.receiver.replay(held.id, kind="payment")
        await shop.receiver.settle()

        assert ["held"] == states
        assert "kind" in held.reason
        assert ["payment"] == [each.kind for each in got]


@pytest.mark.parametrize(("kind", "data"), [("refund", REFUNDED), ("subscription", RENEWED)])
async def test_event_without_its_number_is_held(kind: str, data: dict[str, str], shop: Shop) -> None:
    """An event of a refund or a subscription without its number is held: another event came under its name."""
    got = shop.recording()
    held = await shop.handled({name: value for name, value in data.items() if not name.endswith(("No", "Id"))}, kind)
    await shop.handled(data, kind)

    assert "number" in held.reason
    assert ["held", "done"] == await shop.states()
    assert 1 == len(got)


@pytest.mark.parametrize("value", [123.0, True, ["T1"], {"no": "T1"}, "", " "], ids=repr)
@pytest.mark.parametrize(
    ("kind", "data", "name"),
    [("payment", PAID, "outTradeNo"), ("refund", REFUNDED, "outRefundNo"), ("subscription", RENEWED, "subscriptionId")],
)
async def test_what_is_no_number_is_held(kind: str, data: dict[str, Any], name: str, value: object, shop: Shop) -> None:
    """An event is held if the path of its own number holds neither a text nor an integer."""
    got = shop.recording()
    event = await shop.handled({**data, name: value}, kind)

    assert ("held", []) == (event.state, got)
    assert f"{name} is {value!r}: the number must be an integer, or a text that is not blank" == event.reason


@pytest.mark.parametrize(
    ("kind", "data", "held"),
    [
        ("payment", {**PAID, "outTradeNo": None}, False),
        ("payment", {**PAID, "outRefundNo": ""}, False),
        ("payment", {**PAID, "subscriptionId": False}, True),
        ("refund", {**REFUNDED, "outTradeNo": ""}, False),
        ("refund", {**REFUNDED, "outTradeNo": 1.5}, True),
        ("refund", {**REFUNDED, "outTradeNo": {"no": "T1\x1b"}}, True),
    ],
)
async def test_other_number_of_an_event(kind: str, data: dict[str, Any], shop: Shop, *, held: bool) -> None:
    """Null and an empty text are no number of another thing. A payment need not have an order."""
    got = shop.recording()
    event = await shop.handled(data, kind)

    assert (["held"], 0) if held else (["done"], 1) == ([event.state], len(got))
    assert "\x1b" not in event.reason


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        ([PAID], 'is a list. If it always has one entry, set notification.data = "data.0"'),
        ("T1", "is 'T1'"),
    ],
)
async def test_payload_that_is_no_object_is_described(payload: object, what: str, tmp_path: Path) -> None:
    """The reason says what stands in the place of the payload, and how to read a list of one."""
    async with opened(tmp_path, verifier=lambda _raw, _headers: True) as shop:
        await shop.receiver.receive(json.dumps({"type": "payment.paid", "data": payload}).encode(), {}, "payment")
        event = await shop.last()

    assert f"data, the payload, must be an object, and {what}" == event.reason


def shared(profile: Profile) -> Profile:
    """Return a profile whose service signs for all merchants with one key."""
    assert isinstance(profile.scheme, SortedPairs)
    return evolve(profile, signature=evolve(profile.scheme, service_key="shared"))


async def test_key_of_all_merchants_proves_no_merchant(tmp_path: Path) -> None:
    """With a key of all merchants, an event that names no merchant is a hint: the service is asked about its number."""
    async with Sandbox() as sandbox, sandbox.session() as pay:
        profile = shared(sandbox.profile)
        facts: dict[str, Any] = {"profile": profile, "credentials": sandbox.credentials, "session": pay}
        order = await sandbox.given.paid_order(total_amt=450)
        open_order = (await pay.orders.place(out_trade_no="OPEN", total_amt=1, currency="CAD")).data["outTradeNo"]
        async with opened(tmp_path, **facts) as shop:
            got = shop.recording()
            for number in (order, open_order):
                data = {**PAID, "outTradeNo": number}
                signed = sign_notification(
                    data, profile=profile, credentials=sandbox.credentials, kind="payment", time=shop.clock.now
                )
                await shop.receiver.receive(signed.raw, signed.headers, "payment")
            named = sign_notification(
                {**PAID, "outTradeNo": "T9", "merchantId": sandbox.credentials.merchant_id},
                profile=profile,
                credentials=sandbox.credentials,
                kind="payment",
                time=shop.clock.now,
            )
            await shop.receiver.receive(named.raw, named.headers, "payment")
            await asyncio.wait_for(shop.receiver.settle(), 20)

            assert {order: False, "T9": True} == {each.out_trade_no: each.verified for each in got}
            assert ["done", "pending", "done"] == await shop.states()


@pytest.mark.parametrize("key", [("status",), ("note",), ()])
async def test_confirmed_state_is_one_event_with_a_key_of_all_merchants(key: tuple[str, ...], tmp_path: Path) -> None:
    """With a key of all merchants, all events about one order that the service confirms as paid are one event.

    The first one is handled twice, because its handler fails. Another merchant may have caused the others.
    """
    async with Sandbox() as sandbox, sandbox.session() as pay:
        profile = shared(sandbox.profile)
        profile = evolve(profile, notification=evolve(profile.notification, id={"payment": key}))
        order = await sandbox.given.paid_order(total_amt=450)
        async with opened(tmp_path, profile=profile, credentials=sandbox.credentials, session=pay) as shop:
            got = failing_first(shop)
            for number, status in enumerate(["SBX_PAID", "SBX_PAID", "SBX_CLOSED", "SBX_PENDING"]):
                await shop.take({**PAID, "outTradeNo": order, "status": status, "note": f"N{number}"})
                for _ in range(3):
                    await shop.receiver.settle()
                    shop.clock.advance(61)
            await shop.receiver.settle()

            assert {"done"} == set(await shop.states())
            assert [f'confirmed:payment:["{order}","SBX_PAID"]'] == [each.dedup_key for each in got]


async def test_handler_that_is_done_is_not_called_for_another_hint(tmp_path: Path) -> None:
    """If a confirmed event is held after a handler is done, the next hint of that state calls only the others."""
    async with Sandbox() as sandbox, sandbox.session() as pay:
        order = await sandbox.given.paid_order(total_amt=450)
        facts: dict[str, Any] = {"profile": shared(sandbox.profile), "credentials": sandbox.credentials}
        async with opened(tmp_path, session=pay, **facts) as shop:
            credited = shop.recording()
            answers = iter([dict[str, Any](), None, dict[str, Any]()])
            mailed = failing_first(shop, expect=lambda _: next(answers))
            for number in range(2):
                await shop.take({**PAID, "outTradeNo": order, "node": number})
                for _ in range(2):
                    await shop.receiver.settle()
                    shop.clock.advance(61)

            assert ["superseded", "done"] == await shop.states()
            assert ([1], [2]) == ([each.id for each in credited], [each.id for each in mailed])


@pytest.mark.parametrize("fails", [False, True])
async def test_key_that_becomes_shared(tmp_path: Path, *, fails: bool) -> None:
    """If the profile then says that the key is shared, what was handled stays so, and the service is asked of the rest.

    An event that was stored as verified may be another merchant's.
    """
    async with Sandbox() as sandbox, sandbox.session() as pay:
        facts: dict[str, Any] = {"credentials": sandbox.credentials, "session": pay}
        number = "UNKNOWN" if fails else await sandbox.given.paid_order(total_amt=450)
        data = {**PAID, "outTradeNo": number}
        async with opened(tmp_path, profile=sandbox.profile, **facts) as shop:
            before = failing_first(shop) if fails else shop.recording()
            await shop.handled(data)
            clock = shop.clock
        async with opened(tmp_path, profile=shared(sandbox.profile), clock=clock, **facts) as shop:
            after = shop.recording()
            await shop.take(data)
            for _ in range(3):
                clock.advance(61)
                await shop.receiver.settle()

        assert ([] if fails else [number]) == [each.out_trade_no for each in (*before, *after)]


async def test_key_of_two_receivers_proves_no_merchant(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two merchants' open receivers with one key believe only what names them, also after one closes."""
    mine, other = (tmp_path / name for name in ("mine", "other"))
    mine.mkdir()
    other.mkdir()
    data = [{**PAID, "outTradeNo": f"T{number}"} for number in range(5)]
    async with opened(mine) as shop:
        await shop.take(data[0])
        async with opened(other, credentials=evolve(CREDENTIALS, merchant_id="M2")) as second:
            warnings = caplog.text.count("signature.service_key")
            for each, name in ((shop, "M1"), (second, "M2")):
                await each.take(data[1])
                await each.take({**data[2], "merchantId": name})
        await shop.take(data[3])
        found = [each.verified for each in await shop.receiver.events()]

    assert 1 == warnings
    assert [True, False, True, False] == found


@pytest.mark.parametrize("written", ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw= "])
async def test_key_is_the_same_however_it_is_written(written: str, tmp_path: Path) -> None:
    """A key of Standard Webhooks is that of two merchants also if one of them writes it otherwise."""
    other = tmp_path / "other"
    other.mkdir()
    his = evolve(CREDENTIALS, merchant_id="M2", notification_keys=written)
    async with opened(tmp_path) as shop, opened(other, credentials=his):
        await shop.take()

        assert [False] == [each.verified for each in await shop.receiver.events()]


async def test_held_event_of_a_shared_key_stays_a_hint(tmp_path: Path) -> None:
    """A late event that was held while the key was shared proves no merchant in a replay after a restart."""
    other = tmp_path / "other"
    other.mkdir()
    async with opened(tmp_path) as shop, opened(other, credentials=evolve(CREDENTIALS, merchant_id="M2")):
        await shop.take(time=shop.clock.now - 3600)
    async with opened(tmp_path) as shop:
        got = shop.recording()
        await shop.receiver.replay_all("held")
        event = await shop.last()

    assert ("parked", False, []) == (event.state, event.verified, got)


async def test_receiver_that_cannot_be_made_shares_no_key(tmp_path: Path) -> None:
    """A receiver whose settings are refused does not count as one that has the key."""
    others = evolve(CREDENTIALS, merchant_id="M2")
    async with opened(tmp_path) as shop:
        settings: dict[str, Any] = {"inbox": SqliteInbox(tmp_path / "other.db"), "on_refused": "no function"}
        with pytest.raises(ConfigurationError) as refused:
            Receiver(profile=SIGNED, credentials=others, **settings)
        await settings["inbox"].aclose()
        await shop.take()

        assert "on_refused" == refused.value.field
        assert [True] == [each.verified for each in await shop.receiver.events()]


@pytest.mark.parametrize(("whose", "believed"), [("shared", [False, True]), ("merchant", [True, True])])
async def test_key_of_a_verifier(whose: Literal["shared", "merchant"], believed: list[bool], tmp_path: Path) -> None:
    """If the profile says that all merchants share the key, a verifier's event that names nobody is a hint, too."""
    assert isinstance(SIGNED.scheme, SortedPairs)
    profile = evolve(SIGNED, signature=evolve(SIGNED.scheme, service_key=whose))
    async with opened(tmp_path, profile=profile, verifier=lambda _raw, _headers: True) as shop:
        await shop.take()
        await shop.take({**PAID, "outTradeNo": "T2", "merchantId": "M1"})

        assert believed == [each.verified for each in await shop.receiver.events()]


async def test_open_algorithm_matters_to_no_webhook(tmp_path: Path) -> None:
    """Standard Webhooks has its own algorithm: a receiver is made, also while that of requests is open."""
    async with opened(tmp_path, profile=evolve(SIGNED, signature=SortedPairs())) as shop:
        await shop.take()

        assert [True] == [each.verified for each in await shop.receiver.events()]


async def test_hints_do_not_delay_what_the_service_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While strangers' hints wait for queries, the service is asked about an event that it signed for all merchants."""
    monkeypatch.setattr("payasync.notifications.transitions.BURST", 1)
    async with Sandbox() as sandbox, sandbox.session() as pay:
        order = await sandbox.given.paid_order(total_amt=450)
        facts: dict[str, Any] = {"credentials": sandbox.credentials, "session": pay}
        async with opened(tmp_path, profile=shared(sandbox.profile), **facts) as shop:
            shop.recording()
            inbox = SqliteInbox(shop.path, clock=shop.clock)
            for number in range(3):  # from before the service signed
                raw = b'{"type":"payment.paid","data":{"outTradeNo":"X%d"}}' % number
                await inbox.add(received(f"hint:payment:{number}", raw=raw, verified=False))
            await inbox.aclose()
            await shop.take({**PAID, "outTradeNo": order})
            await shop.receiver.settle()
            reasons = [each.reason for each in await shop.receiver.events("pending")]

            assert [False, True, True] == ["waits for its turn" in each for each in reasons]
            assert "done" == (await shop.states())[-1]


@pytest.mark.parametrize(
    ("paid_at", "moment"),
    [
        ("2029-12-30T10:00:00+01:00", datetime(2029, 12, 30, 9, tzinfo=UTC)),
        (1e300, None),
        ("yesterday", None),
        (None, None),
    ],
)
async def test_time_of_the_event_is_shown_and_not_judged(
    paid_at: object, moment: datetime | None, tmp_path: Path
) -> None:
    """An event whose own time is long ago, or is no time, is handled. Handlers and the inbox have the time."""
    async with opened(tmp_path, profile=shaped(event_time="data.paidAt")) as shop:
        got = shop.recording()
        event = await shop.handled({**PAID, "paidAt": paid_at})

        assert ("done", moment) == (event.state, event.event_time)
        assert [moment] == [each.event_time for each in got]


async def test_held_event_is_not_lost_beside_another_one_of_its_key(tmp_path: Path) -> None:
    """An event whose key is that of an unhandled event with another body is held again after a replay."""
    coarse = evolve(SIGNED, notification=evolve(SIGNED.notification, id={"payment": ("outTradeNo",)}))
    async with opened(tmp_path, profile=coarse, attempts=1) as shop:
        fails = [True]

        @shop.receiver.on("payment")
        async def pay(_: Notification) -> None:
            if fails[0]:
                raise OSError

        dead = await shop.handled({**PAID, "status": "SBX_PENDING"})
        late = await shop.handled(time=shop.clock.now - 3600)
        await shop.receiver.replay(late.id)
        again = await shop.last()
        fails[0] = False
        await shop.receiver.replay(dead.id)
        await shop.receiver.settle()

        assert ("dead", "held", "held") == (dead.state, late.state, again.state)
        assert ["done", "superseded"] == await shop.states()
