"""From the raw body to the answer: verified, and acknowledged only after it is on the disk."""

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from payasync import ConfigurationError, InvalidArgumentError, Profile, Session, StorageError
from payasync.notifications import Added, Answer, Notification, Received, SqliteInbox, ingest, verify
from payasync.notifications.ingest import acknowledge, build_received, refuse
from payasync.sandbox import PROFILE
from tests.inside import turns, until
from tests.notifications.merchant import CREDENTIALS, PAID, SIGNED, UNSIGNED, Clock, Shop, opened

YES = Answer(200, '{"received":true}', {"Content-Type": "application/json"})
NO = Answer(400, '{"received":false}', {"Content-Type": "application/json"})
TOO_LARGE = Answer(413, NO.body, NO.headers)
OVERLOADED = Answer(503, NO.body, {**NO.headers, "Retry-After": "5"})


class Gate(SqliteInbox):
    """An inbox that keeps nothing before it is opened."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "gate.db", clock=Clock())
        self.open = asyncio.Event()
        self.waiting = 0
        self.kept = list[Added]()

    async def add(self, received: Received) -> Added:
        """Keep a notification, later."""
        self.waiting += 1
        await self.open.wait()
        self.kept.append(await super().add(received))
        return self.kept[-1]


class Broken(SqliteInbox):
    """An inbox that cannot be written."""

    def __init__(self, folder: Path, error: Exception) -> None:
        super().__init__(folder / "broken.db", clock=Clock())
        self.error: Exception | None = error

    async def add(self, received: Received) -> Added:
        """Fail, until it is mended."""
        if self.error:
            raise self.error
        return await super().add(received)


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncGenerator[Shop]:
    """A receiver that handles everything, and believes what is signed."""
    async with opened(tmp_path) as shop:
        shop.recording()
        yield shop


async def test_genuine_notification_is_acknowledged(shop: Shop) -> None:
    """The answer is the profile's, and the event is kept."""
    assert YES == await shop.take()
    assert ["done"] == [(await shop.last()).state]


async def test_nothing_is_acknowledged_before_it_is_kept(tmp_path: Path) -> None:
    """Who is told yes may forget it; so it is on the disk by then."""
    gate = Gate(tmp_path)
    async with opened(tmp_path, inbox=gate) as shop:
        taking = asyncio.create_task(shop.take())
        await until(lambda: gate.waiting)

        assert not taking.done()
        gate.open.set()
        assert YES == await taking
        assert [Added.NEW] == gate.kept


async def test_old_notification_is_refused(shop: Shop) -> None:
    """A recording of a genuine notification is worth nothing later: its time is that of the receiver's clock."""
    signed = shop.sign()
    shop.clock.advance(301)

    assert NO == await shop.receiver.receive(signed.raw, signed.headers)


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"{", b'{"a":1,"a":2}', b"\xff", b'{"a":NaN}'])
async def test_what_is_no_notification_is_refused(raw: bytes, tmp_path: Path) -> None:
    """Whoever signed it, it says nothing."""
    async with opened(tmp_path, verifier=lambda _raw, _headers: True) as shop:
        assert NO == await shop.receiver.receive(raw, {})


async def test_too_long_a_body_is_refused(tmp_path: Path) -> None:
    """Whoever sends it, it is not read."""
    async with opened(tmp_path, max_bytes=1000) as shop:
        shop.recording()

        assert TOO_LARGE == await shop.receiver.receive(b" " * 1001, {})
        assert NO == await shop.receiver.receive(b" " * 1000, {})
        assert YES == await shop.take()


async def test_redelivery_is_acknowledged_and_nothing_else(tmp_path: Path) -> None:
    """The same event, however often it comes, is kept once and handled once, whatever may change in a redelivery."""
    profile = evolve(SIGNED, notification=evolve(SIGNED.notification, volatile=("timestamp",)))
    async with opened(tmp_path, profile=profile) as shop:
        got = shop.recording()
        answers = [await shop.take(time=shop.clock.now + later) for later in range(3)]
        await shop.receiver.settle()
        answers.append(await shop.take())
        await shop.receiver.settle()

        assert [YES] * 4 == answers
        assert ["done"] == await shop.states()
        assert 1 == len(got)


def in_the_body(**facts: Any) -> Profile:
    """Return the profile of a service that signs each delivery afresh, with a time and a nonce, in the payload."""
    given: dict[str, Any] = {
        "verification": "body",
        "signature": "data.sign",
        "kind": "",
        "time": "data.at",
        "volatile": (),
        **facts,
    }
    return evolve(SIGNED, notification=evolve(SIGNED.notification, **given))


@pytest.mark.parametrize(
    "facts",
    [{"id": {}, "volatile": ("at",)}, {"id": {"payment": ["outTradeNo", "status"]}}],
    ids=["no paths", "paths"],
)
async def test_redelivery_is_signed_afresh(facts: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where the body is signed with its time, each delivery has another one, and is the same event nevertheless."""
    async with opened(tmp_path, profile=in_the_body(**facts)) as shop:
        got = shop.recording()
        for number in range(3):
            shop.clock.advance(1000)
            signed = shop.sign({**PAID, "nonceStr": f"n{number}"})
            assert YES == await shop.receiver.receive(signed.raw, signed.headers, "payment")
            await shop.receiver.settle()

        assert ["done"] == await shop.states()
        assert [450] == [each.trusted["totalAmt"] for each in got]
        assert ("notification.id.payment" in caplog.text) is not bool(facts["id"])


async def test_weak_keys_are_a_warning_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who has named no paths hears of it with the first event that is believed, and of no other."""
    async with opened(tmp_path, profile=in_the_body(id={})) as shop:
        shop.recording()
        forged = shop.sign().raw.replace(b"450", b"451")
        await shop.receiver.receive(forged, {}, "payment")
        await shop.receiver.receive(shop.sign().raw, {})
        before = caplog.text.count("hash of its body")
        for kind in ("refund", "payment", "refund"):
            await shop.receiver.receive(shop.sign({**PAID, "totalAmt": len(kind)}).raw, {}, kind)

        assert [0, 1] == [before, caplog.text.count("hash of its body")]
        assert "notification.id.refund" in caplog.text


async def test_payments_without_a_number_are_several(shop: Shop) -> None:
    """An empty text identifies nothing: each genuine notification is an event, and none is quarantined."""
    got = shop.recording()
    for number in ("P1", "P2", "P3"):
        await shop.take({**PAID, "outTradeNo": "", "paymentId": number})
    await shop.receiver.settle()

    assert ["P1", "P2", "P3"] == [each.payment_id for each in got]
    assert ["done"] * 3 == await shop.states()


async def test_what_comes_again_is_dispatched(tmp_path: Path) -> None:
    """A process ended before it had acknowledged; the next one dispatches what was kept, when that comes again."""
    async with opened(tmp_path) as ended:
        signed = ended.sign()
        kept = verify(
            signed.raw, signed.headers, profile=SIGNED, credentials=ended.credentials, clock=lambda: ended.clock.now
        )
        await SqliteInbox(ended.path, clock=ended.clock).add(build_received(kept, timed=True))
    async with opened(tmp_path) as shop:
        got = shop.recording()

        assert YES == await shop.receiver.receive(signed.raw, signed.headers)
        await until(lambda: got)


NUMBERS = {"outTradeNo": "payment", "outRefundNo": "refund", "subscriptionId": "subscription", "paymentId": "payment"}


@pytest.mark.parametrize("profile", [SIGNED, UNSIGNED], ids=["verified", "hint"])
async def test_number_that_is_none_is_refused(profile: Profile, tmp_path: Path) -> None:
    """What nobody sees in a log, and no database takes, reaches neither an inbox nor a handler, whoever signed it."""
    anything = evolve(profile, identifier="(?s:.*)")
    nobody = Session("http://127.0.0.1:1", credentials=CREDENTIALS, profile=anything)
    async with nobody, opened(tmp_path, profile=anything, session=nobody) as shop:
        got = shop.recording()
        for name, number in product(NUMBERS, ["T\0", "T1\n", "\x1b[2J", "T\x7f", "T\u2028", "T\u200b1"]):
            assert NO == await shop.take({**PAID, name: number}, NUMBERS[name])

        assert ([], []) == (await shop.states(), got)


async def test_numbers_of_ones_own_have_a_form(shop: Shop) -> None:
    """Those of orders and refunds match the profile's pattern; those that the service makes may have any other form."""
    shop.recording()
    refused = [await shop.take({**PAID, "outTradeNo": wrong}) for wrong in ("../refund", "T 1", "é", "T" * 65)]
    refused.append(await shop.take({"outRefundNo": "R'1"}, "refund"))
    taken = [await shop.take({**PAID, "paymentId": "pay:1/é 2"}), await shop.take({**PAID, "outTradeNo": 7})]
    taken.append(await shop.take({"subscriptionId": "sub.1/2", "period": "1", "status": "x"}, "subscription"))

    assert ([NO] * 5, [YES] * 3) == (refused, taken)


async def test_same_key_with_another_body_is_quarantined(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """Two genuine notifications contradict each other: the second is kept, and never handled by itself."""
    got = shop.recording()
    answers = [await shop.take(), await shop.take({**PAID, "totalAmt": 1})]
    await shop.receiver.settle()

    assert [YES, YES] == answers
    assert ["done", "quarantined"] == await shop.states()
    assert [450] == [each.data["totalAmt"] for each in got]
    assert "quarantined" in caplog.text


@pytest.mark.parametrize("error", [StorageError("the disk is full"), RuntimeError("anything")])
async def test_what_cannot_be_kept_must_come_again(
    error: Exception, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A full or locked inbox acknowledges nothing: the service sends it again, and then it is kept."""
    inbox = Broken(tmp_path, error)
    async with opened(tmp_path, inbox=inbox) as shop:
        shop.recording()
        lost = await shop.take()
        inbox.error = None

        assert (OVERLOADED, "5") == (lost, lost.headers["Retry-After"])
        assert type(error).__name__ in caplog.text
        assert YES == await shop.take()


async def test_so_many_wait_for_the_disk_and_no_more(tmp_path: Path) -> None:
    """Where the disk is too slow, further ones are told when to come again, and nothing piles up."""
    gate = Gate(tmp_path)
    async with opened(tmp_path, inbox=gate, max_waiting=2) as shop:
        shop.recording()
        taking = [asyncio.create_task(shop.take({**PAID, "outTradeNo": name})) for name in ("T1", "T2")]
        await until(lambda: gate.waiting == 2)

        assert OVERLOADED == await shop.take({**PAID, "outTradeNo": "T3"})
        assert NO == await shop.receiver.receive(b"{}", {})
        gate.open.set()
        assert [YES, YES] == await asyncio.gather(*taking)
        assert YES == await shop.take({**PAID, "outTradeNo": "T3"})


async def test_so_many_bytes_wait_for_the_disk_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few long notifications fill the memory as many short ones do; one alone is taken, however long."""
    gate = Gate(tmp_path)
    length = len(Shop(tmp_path).sign().raw)
    monkeypatch.setattr(ingest, "MOST_WAITING", 2 * length)
    async with opened(tmp_path, inbox=gate) as shop:
        shop.recording()
        taking = [asyncio.create_task(shop.take({**PAID, "outTradeNo": name})) for name in ("T1", "T2")]
        await until(lambda: gate.waiting == 2)
        third = asyncio.create_task(shop.take({**PAID, "outTradeNo": "T3"}))
        await turns(5)
        gate.open.set()

        assert [YES, YES, OVERLOADED] == await asyncio.gather(*taking, third)
        assert YES == await shop.take({**PAID, "outTradeNo": "T4", "note": "x" * 3 * length})
        again = [shop.take({**PAID, "outTradeNo": name}) for name in ("T5", "T6")]
        assert [YES, YES] == await asyncio.gather(*again)


async def test_what_waits_for_the_disk_is_its_bytes(tmp_path: Path) -> None:
    """A decoded document is many times as large as its bytes; none is held while the inbox is slow."""
    gate = Gate(tmp_path)
    async with opened(tmp_path, inbox=gate) as shop:
        shop.recording()
        taking = asyncio.create_task(shop.take({**PAID, "outTradeNo": "WAITING"}))
        await until(lambda: gate.waiting)
        told = [each for each in gc.get_objects() if type(each) is Notification]
        held = [each for each in told if each.out_trade_no == "WAITING"]
        gate.open.set()

        assert [] == held
        assert YES == await taking


async def test_cancelled_caller_waits_no_more(tmp_path: Path) -> None:
    """A client that goes away does not count among those that wait."""
    gate = Gate(tmp_path)
    async with opened(tmp_path, inbox=gate, max_waiting=1) as shop:
        shop.recording()
        taking = asyncio.create_task(shop.take())
        await until(lambda: gate.waiting)
        taking.cancel()
        await asyncio.wait([taking])
        gate.open.set()

        assert YES == await shop.take()


@pytest.mark.parametrize("raw", ["{}", None, {}])
async def test_body_must_be_bytes(raw: Any, shop: Shop) -> None:
    """A text is a mistake of who calls it, not of who sent it: it is told so."""
    with pytest.raises(InvalidArgumentError, match="raw must be"):
        await shop.receiver.receive(raw, {})


def refusals(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return what was told of refusals, each with its level."""
    told = [(each.levelname, each.getMessage()) for each in caplog.records]
    return [(level, text.removeprefix("refused a notification: ")) for level, text in told if "refused" in text]


async def test_refusal_is_explained_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever wonders why nothing arrives finds the reason there, at the level that a log shows by itself."""
    async with opened(tmp_path, max_bytes=1000) as shop:
        signed = shop.sign()
        await shop.receiver.receive(signed.raw + b" ", signed.headers)
        await shop.receiver.receive(signed.raw, {})
        await shop.receiver.receive(signed.raw, signed.headers, "refund")
        await shop.receiver.receive(b" " * 1001, {})

    changed = "the body is not the one that was signed, or the key is another"
    assert [
        ("WARNING", f"webhook-signature is not that of the body, by any of the keys: {changed}"),
        ("WARNING", "webhook-id is missing"),
        ("WARNING", "kind: the notification tells of a payment, but arrived at the address for refunds"),
        ("WARNING", "its body is longer than max_bytes, 1000"),
    ] == refusals(caplog)


async def test_each_reason_is_a_warning_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody fills a log with warnings by sending rubbish, not even rubbish of many ages; another reason is told."""
    caplog.set_level(logging.INFO, "payasync.notifications")
    async with opened(tmp_path) as shop:
        for age in (301, 302, 40_000):
            old = shop.sign(time=shop.clock.now - age)
            await shop.receiver.receive(old.raw, old.headers)
        await shop.receiver.receive(b"{}", {})
    async with opened(tmp_path) as other:
        await other.receiver.receive(b"{}", {})

    assert ["WARNING", "INFO", "INFO", "WARNING", "WARNING"] == [level for level, _ in refusals(caplog)]


async def test_log_holds_nothing_of_a_notification(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither what it says, nor its headers, nor a key of ours is logged, whatever becomes of it."""
    caplog.set_level(logging.DEBUG, "payasync")
    async with opened(tmp_path) as shop:

        @shop.receiver.on("payment", expect=lambda _: {"totalAmt": 1})
        async def paid(_: object) -> None: ...

        for data in (PAID, {**PAID, "totalAmt": 451}, {"outTradeNo": "canary", "status": "canary"}):
            signed = shop.sign(data, id="msg_canary")
            await shop.receiver.receive(signed.raw, {**signed.headers, "X-Canary": "canary"})
            await shop.receiver.receive(signed.raw + b"canary", {**signed.headers, "X-Canary": "canary"})
        await shop.take({"outRefundNo": "canary"}, "refund")
        await shop.receiver.settle()

        assert ["quarantined", "quarantined", "quarantined", "parked"] == await shop.states()
        assert caplog.records
        assert [] == [word for word in ("canary", "T1", "450", "451", "CAD", "whsec") if word in caplog.text]


SHAPE = PROFILE.notification
JSON = {"Content-Type": "application/json"}
TEXT = {"Content-Type": "text/plain; charset=utf-8"}


@pytest.mark.parametrize(("body", "headers"), [('{"received":false}', JSON), ("FAIL", TEXT), ("", {})])
def test_what_is_not_kept_is_refused_in_the_profiles_words(body: str, headers: dict[str, str]) -> None:
    """A service may look at the body alone: whatever is not an acknowledgement says so there."""
    shape = evolve(SHAPE, nack_status=204, nack_body=body)

    assert Answer(413, body, headers) == refuse(shape, 413)
    assert Answer(503, body, {**headers, "Retry-After": "5"}) == refuse(shape, 503)


@pytest.mark.parametrize("status", [204, 205, 304])
def test_bodiless_status_has_no_body(status: int) -> None:
    """A server would refuse to send it, after the notification was kept."""
    with pytest.raises(ConfigurationError, match="no body goes with"):
        acknowledge(evolve(SHAPE, ack_status=status))
    with pytest.raises(ConfigurationError, match="nack_body"):
        refuse(evolve(SHAPE, nack_status=status))
