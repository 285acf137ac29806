"""The receiver's public interface: its settings, handlers and events, and their replay."""

import inspect
from datetime import timedelta
from functools import partial
from math import inf, nan
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

import payasync.notifications
from payasync import (
    ConfigurationError,
    Credentials,
    InvalidArgumentError,
    Session,
    StorageError,
)
from payasync.notifications import InboxEvent, Notification, Receiver, SqliteInbox
from payasync.notifications.receiver import REPLAY_PAGE
from payasync.notifications.transitions import draw_upper_half
from payasync.notifications.verification import Verifier
from payasync.sandbox import Sandbox
from payasync.testing import sign_notification
from tests.notifications.merchant import CREDENTIALS, PAID, REFUNDED, SIGNED, UNSIGNED, Shop, opened, received

PUBLIC: Final = """
Added Answer Claim Expected Inbox InboxEvent Notification Pace PostgresInbox Received Receiver SqliteInbox parse verify
"""
COUNTS = ("attempts", "concurrency", "max_bytes", "max_waiting")
TIMES = ("lease", "handler_timeout")


def made(folder: Path, **settings: Any) -> Receiver:
    """Return a receiver of these settings."""
    given: dict[str, Any] = {
        "profile": SIGNED,
        "credentials": CREDENTIALS,
        "inbox": SqliteInbox(folder / "inbox.db"),
        **settings,
    }
    return Receiver(**given)


def test_public_names_are_pinned() -> None:
    """Users' imports hang on these names."""
    public: object = getattr(payasync.notifications, "__all__", None)

    assert PUBLIC.split() == public


SESSION = Session("http://127.0.0.1:1", credentials=CREDENTIALS, profile=SIGNED)


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        *(({name: wrong}, name) for name in COUNTS for wrong in (0, -1, True, 1.0, "1", None, 1 << 64)),
        *(
            ({name: wrong}, name)
            for name in TIMES
            for wrong in (0, -1, True, "1", None, nan, inf, timedelta(seconds=1))
        ),
        *(({"retention": wrong}, "retention") for wrong in (timedelta(0), timedelta(days=-1), timedelta.max, 30, None)),
        ({"session": "https://pay.example.com"}, "session"),
        ({"profile": UNSIGNED}, "session"),
        ({"expect": {"totalAmt": 450}}, "expect"),
        ({"expect": lambda: None}, "expect"),
        ({"on_refused": lambda: None}, "on_refused"),
        ({"verifier": "mine"}, "verifier"),
        ({"profile": "service.toml"}, "profile"),
        ({"profile": None}, "profile"),
        ({"credentials": "M1"}, "credentials"),
        ({"credentials": evolve(CREDENTIALS, merchant_id="M2"), "session": SESSION}, "credentials"),
        ({"credentials": None}, "credentials"),
        ({"inbox": "inbox.db"}, "inbox"),
        ({"inbox": SqliteInbox}, "inbox"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], field: str, tmp_path: Path) -> None:
    """If a setting is invalid, the receiver's constructor raises an error that names it."""
    with pytest.raises(ConfigurationError) as caught:
        made(tmp_path, **settings)

    assert field == caught.value.field


async def note(_: str) -> None:
    """Note a refusal, if somebody awaits this."""


class Noting:
    """Notes refusals as an object."""

    async def __call__(self, _: str) -> None:
        """Note a refusal, if somebody awaits this."""


@pytest.mark.parametrize("given", [note, partial(note), Noting()], ids=["function", "partial", "object"])
def test_on_refused_is_no_coroutine_function(given: Any, tmp_path: Path) -> None:
    """An `async def` as `on_refused` is refused, because nothing would await it; the error says what to write."""
    with pytest.raises(ConfigurationError, match=r"^on_refused must be a plain function.*def instead of async def$"):
        made(tmp_path, on_refused=given)


@pytest.mark.parametrize(
    ("own", "statuses"),
    [
        ({}, [200, 400]),
        ({"profile": UNSIGNED}, [200, 200]),
        ({"credentials": Credentials("M1", notification_keys=f"whsec_{'A' * 32}")}, [400, 400]),
    ],
)
async def test_session_says_profile_and_credentials(own: dict[str, Any], statuses: list[int], tmp_path: Path) -> None:
    """Profile and credentials default to the session's; given ones come first."""
    settings = {"profile": None, "credentials": None, "session": SESSION, **own}
    async with opened(tmp_path, **settings) as shop:
        shop.recording()
        signed = sign_notification(PAID, profile=SIGNED, credentials=CREDENTIALS, time=shop.clock.now)
        answers = [await shop.receiver.receive(raw, signed.headers) for raw in (signed.raw, b"{}")]

    assert statuses == [answer.status for answer in answers]


def test_waits_are_by_chance_but_never_short() -> None:
    """By default, the receiver draws each wait from the upper half of its bound."""
    assert draw_upper_half is inspect.signature(Receiver).parameters["pace"].default.jitter


def test_making_opens_nothing(tmp_path: Path) -> None:
    """The receiver's constructor needs no event loop and creates no file."""
    made(tmp_path)

    assert [] == list(tmp_path.iterdir())


def test_handler_is_left_as_it_is(tmp_path: Path) -> None:
    """`on` returns the function unchanged. It can be registered for several kinds, but only once for an event."""

    async def paid(_: Notification) -> str:
        return "paid"

    receiver = made(tmp_path)

    assert paid is receiver.on("payment")(paid)
    assert paid is receiver.on("refund")(paid)
    for kind in ("payment", "refund", "*"):
        with pytest.raises(ConfigurationError, match="two handlers are named"):
            receiver.on(kind)(paid)


async def test_events_are_listed(shop: Shop) -> None:
    """All events, or those of one state, in pages, in the order in which they came."""
    shop.recording("payment")
    for data, kind in ((PAID, "payment"), (REFUNDED, "refund"), ({**PAID, "outTradeNo": "T2"}, "payment")):
        await shop.take(data, kind)
    await shop.receiver.settle()

    async def numbers(*args: Any, **kwargs: Any) -> list[int]:
        return [event.id for event in await shop.receiver.events(*args, **kwargs)]

    assert [1, 2, 3] == await numbers()
    assert [2] == await numbers("parked")
    assert [1] == await numbers("done", limit=1)
    assert [3] == await numbers("done", after=1)
    with pytest.raises(InvalidArgumentError, match="state"):
        await numbers("lost")


@pytest.mark.parametrize("number", [None, "1", 1.0])
async def test_replay_wants_a_number(number: Any, tmp_path: Path) -> None:
    """If the argument of `replay` is no event's number, the error says to take it from `events()`."""
    async with opened(tmp_path) as shop:
        with pytest.raises(InvalidArgumentError, match=r"event_id must be .* from events\(\)") as refused:
            await shop.receiver.replay(number)

    assert ("event_id", False) == (refused.value.field, "leave it out" in str(refused.value))


async def test_listing_dispatches_nothing(tmp_path: Path) -> None:
    """A receiver that only lists or replays events handles none of them."""
    shop = Shop(tmp_path)
    got = shop.recording("payment")
    inbox = SqliteInbox(shop.path, clock=shop.clock)
    async with opened(tmp_path, inbox=inbox) as other:
        await other.handled()
    looked: list[InboxEvent] = await shop.receiver.events("parked")
    replayed = await shop.receiver.replay(looked[0].id)
    states = await shop.states()
    await shop.receiver.aclose()

    assert (True, ["pending"], []) == (replayed, states, got)


async def test_entered_receiver_is_closed_at_the_end(tmp_path: Path) -> None:
    """After `async with`, the receiver responds with 503, and its inbox is closed."""
    shop = Shop(tmp_path)
    shop.recording()
    async with shop.receiver as entered:
        status = (await shop.take()).status
        await entered.settle()

    assert (200, 503) == (status, (await shop.take()).status)
    with pytest.raises(StorageError, match="closed"):
        await shop.receiver.events()


ROUTED: Final = evolve(SIGNED, notification=evolve(SIGNED.notification, kind="", kinds={}))
"""Only the address says the kind."""


async def astray(shop: Shop) -> InboxEvent:
    """Have the receiver accept a notification at an address without a kind."""
    signed = shop.sign(kind=None)
    await shop.receiver.receive(signed.raw, signed.headers)
    return await shop.last()


async def test_event_without_a_kind_is_handled_as_what_somebody_says(tmp_path: Path) -> None:
    """If a person replays an event with a kind, it is handled, and a redelivery at the right address is a duplicate."""
    async with opened(tmp_path, profile=ROUTED) as shop:
        got = shop.recording("payment")
        parked = await astray(shop)
        replayed = await shop.receiver.replay(parked.id, kind="payment")
        await shop.receiver.settle()
        signed = shop.sign(kind=None)
        await shop.receiver.receive(signed.raw, signed.headers, "payment")
        event = await shop.last()

        assert ("parked", None, True) == (parked.state, parked.kind, replayed)
        assert [("payment", 'payment:["T1","SBX_PAID"]')] == [(each.kind, each.dedup_key) for each in got]
        assert (parked.id, "payment", got[0].dedup_key, "done") == (event.id, event.kind, event.key, event.state)


async def test_event_that_has_come_again_is_not_replayed(tmp_path: Path) -> None:
    """If an event was delivered again at the right address and handled, the one without a kind is not replayed."""
    async with opened(tmp_path, profile=ROUTED) as shop:
        got = shop.recording("payment")
        parked = await astray(shop)
        signed = shop.sign(kind=None)
        await shop.receiver.receive(signed.raw, signed.headers, "payment")
        replayed = await shop.receiver.replay(parked.id, kind="payment")
        await shop.receiver.settle()

        assert (False, ["parked", "done"], 1) == (replayed, await shop.states(), len(got))


@pytest.mark.parametrize("replays", [0, 2], ids=["replayed first", "delivered first"])
@pytest.mark.parametrize("verifier", [None, lambda _raw, _headers: True], ids=["webhook", "hash of the body"])
async def test_event_whose_name_the_profile_learns_is_handled_once(
    verifier: Verifier | None, replays: int, tmp_path: Path
) -> None:
    """An event with an unknown name has the key of a redelivery after the profile knows the name."""
    shape = evolve(SIGNED.notification, volatile=("timestamp",))
    known = evolve(SIGNED, notification=shape)
    async with opened(tmp_path, profile=known) as shop:
        signed = shop.sign(id="msg_1")
    unknown = evolve(known, notification=evolve(shape, kinds={**shape.kinds, "payment": ("payment.new",)}))
    async with opened(tmp_path, profile=unknown, verifier=verifier) as shop:
        shop.recording("payment")
        await shop.receiver.receive(signed.raw, signed.headers)
        parked = await shop.last()
    async with opened(tmp_path, profile=known, verifier=verifier) as shop:
        got = shop.recording("payment")
        for step in range(3):
            if step == replays:
                await shop.receiver.replay_all("parked")
            else:
                await shop.receiver.receive(signed.raw, signed.headers)
            await shop.receiver.settle()
        states = await shop.states()

    assert ("parked", None) == (parked.state, parked.kind)
    assert (1, ["superseded", "done"] if replays else ["done"]) == (len(got), states)


async def test_hint_without_a_kind_is_still_a_hint(tmp_path: Path) -> None:
    """A hint that is replayed with a kind stays a hint, which must be confirmed."""
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


async def test_hint_whose_name_the_profile_learns_is_still_a_hint(tmp_path: Path) -> None:
    """A hint with an unknown name has the key of a hint about a payment after the profile knows the name."""
    inbox = SqliteInbox(tmp_path / "inbox.db")
    await inbox.add(received("hint::a", kind=None, verified=False, raw=b'{"type":"payment.paid","data":{}}'))
    async with opened(tmp_path, profile=UNSIGNED, inbox=inbox, verifier=lambda _raw, _headers: True) as shop:
        shop.recording()
        event = await shop.last()

    assert (False, "hint:payment", "parked") == (event.verified, event.key.rpartition(":")[0], event.state)


async def test_known_kind_may_be_said_and_no_other(shop: Shop) -> None:
    """`replay` refuses a kind that contradicts the event or does not exist. It returns `False` for an unknown event."""
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
    """A refund that comes as a payment is held until a person replays it as a refund.

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

            assert (200, "held", (0, 0), 0) == (answer.status, held.state, before, asked)
            assert "names a refund: outRefundNo is 'R1'. If it is a refund, receiver.replay(id, kind=\"refund\")" in (
                held.reason
            )
            assert (True, [], ["R1"]) == (replayed, payments, [each.out_refund_no for each in refunds])


async def test_all_events_of_a_state_are_replayed(tmp_path: Path) -> None:
    """`replay_all` replays all events of one state, and no others."""
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
    """`replay_all` replays each event once, even if there are several pages and the events fail again immediately."""
    inbox = SqliteInbox(tmp_path / "many.db")
    many = 2 * REPLAY_PAGE + 1
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


@pytest.mark.parametrize("state", ["done", "superseded", "pending", "leased", "lost", None])
async def test_only_what_ended_badly_is_replayed(state: Any, shop: Shop) -> None:
    """`replay_all` refuses states that must not be replayed."""
    with pytest.raises(InvalidArgumentError, match="one of dead, held, parked"):
        await shop.receiver.replay_all(state)
