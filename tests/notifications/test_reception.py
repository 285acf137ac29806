"""What arrives: answered by what became of it, and acknowledged only after it is on the disk."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from payasync import InvalidArgumentError, StorageError
from payasync.notifications import Added, Answer, Received, SqliteInbox, verify
from payasync.notifications.answers import OVERLOADED, TOO_LARGE
from payasync.notifications.reception import received
from tests.inside import until
from tests.notifications.merchant import PAID, REFUNDED, SIGNED, Clock, Shop, opened

YES = Answer(200, '{"received":true}', {"Content-Type": "application/json"})
NO = Answer(400, '{"received":false}', {"Content-Type": "application/json"})


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


async def test_changed_notification_is_refused(shop: Shop) -> None:
    """What somebody changed on the way gets the profile's refusal, and is not kept."""
    signed = shop.sign()
    answer = await shop.receiver.receive(signed.raw.replace(b"450", b"451"), signed.headers)

    assert NO == answer
    assert [] == await shop.states()


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


async def test_wrong_address_is_refused(shop: Shop) -> None:
    """A payment that arrives at the address for refunds is not taken for one."""
    signed = shop.sign()

    assert NO == await shop.receiver.receive(signed.raw, signed.headers, "refund")
    assert YES == await shop.receiver.receive(signed.raw, signed.headers, "payment")


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


async def test_what_comes_again_is_dispatched(tmp_path: Path) -> None:
    """A process ended before it had acknowledged; the next one dispatches what was kept, when that comes again."""
    async with opened(tmp_path) as ended:
        signed = ended.sign()
        kept = verify(
            signed.raw, signed.headers, profile=SIGNED, credentials=ended.credentials, clock=lambda: ended.clock.now
        )
        await SqliteInbox(ended.path, clock=ended.clock).add(received(kept))
    async with opened(tmp_path) as shop:
        got = shop.recording()

        assert YES == await shop.receiver.receive(signed.raw, signed.headers)
        await until(lambda: got)


async def test_same_key_with_another_body_is_quarantined(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two genuine notifications contradict each other: the second is kept, and never handled by itself."""
    async with opened(tmp_path) as shop:
        got = shop.recording()
        answers = [await shop.take(), await shop.take({**PAID, "totalAmt": 1})]
        await shop.receiver.settle()

        assert [YES, YES] == answers
        assert ["done", "quarantined"] == await shop.states()
        assert [450] == [each.data["totalAmt"] for each in got]
        assert "quarantined" in caplog.text


async def test_events_of_one_order_are_different(tmp_path: Path) -> None:
    """An order that is paid, and then refunded, is two events; their keys say so."""
    async with opened(tmp_path) as shop:
        got = shop.recording()
        await shop.take()
        await shop.take(REFUNDED, "refund")
        await shop.receiver.settle()

        assert ['payment:["T1","SBX_PAID"]', 'refund:["R1","SBX_SUCCEEDED"]'] == [each.dedup_key for each in got]


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


async def test_closed_receiver_keeps_nothing(shop: Shop) -> None:
    """What arrives while a server ends is for the next one."""
    await shop.receiver.aclose()

    assert OVERLOADED == await shop.take()


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


HEADERS = st.dictionaries(
    st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "X-Any"]), st.text(max_size=20), max_size=4
)


@given(
    raw=st.binary(max_size=200) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")),
    headers=HEADERS | st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9)), max_size=4),
    kind=st.sampled_from([None, "payment", "refund", "no kind"]),
    believing=st.booleans(),
)
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_hostile_input_is_refused(
    raw: bytes,
    headers: Any,
    kind: str | None,
    believing: bool,  # noqa: FBT001 - drawn
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Whatever anybody sends, and even where a verifier believes it, nothing foreign is raised."""

    async def taken() -> Answer:
        verifier = (lambda _raw, _headers: True) if believing else None
        async with opened(tmp_path_factory.getbasetemp(), verifier=verifier) as shop:
            shop.recording()
            return await shop.receiver.receive(raw, headers, kind)

    assert asyncio.run(taken()) in (YES, NO)
