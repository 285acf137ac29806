"""The receiver's public interface: its settings, handlers and events, and their replay."""

import inspect
from datetime import timedelta
from functools import partial
from math import inf, nan
from pathlib import Path
from typing import Any, Final, cast

import pytest
from attrs import evolve

import payasync.notifications
from payasync import ConfigurationError, Credentials, InvalidArgumentError, Session, StorageError
from payasync.notifications import InboxEvent, Notification, Receiver, SqliteInbox
from payasync.notifications.receiver import REPLAY_PAGE
from payasync.notifications.transitions import draw_upper_half
from payasync.notifications.verification import Verifier
from payasync.testing import sign_notification
from tests.notifications.merchant import CREDENTIALS, PAID, REFUNDED, SIGNED, UNSIGNED, Shop, hinted, opened, received

SESSION = Session("http://127.0.0.1:1", credentials=CREDENTIALS, profile=SIGNED)
PUBLIC: Final = """
Added Answer Claim Expected Inbox InboxEvent Notification Pace PostgresInbox Received Receiver SqliteInbox parse verify
"""


def test_public_names_are_pinned() -> None:
    """Users' imports hang on these names."""
    public: object = getattr(payasync.notifications, "__all__", None)

    assert PUBLIC.split() == public


def made(folder: Path, **settings: Any) -> Receiver:
    """Return a receiver of these settings."""
    given: dict[str, Any] = {
        "profile": SIGNED,
        "credentials": CREDENTIALS,
        "inbox": SqliteInbox(folder / "inbox.db"),
        **settings,
    }
    return Receiver(**given)


def test_settings_are_checked(tmp_path: Path) -> None:
    """If a setting is invalid, the receiver's constructor raises an error that names it."""
    counts = ("attempts", "concurrency", "max_bytes", "max_waiting")
    seconds, retention = timedelta(seconds=1), (timedelta(0), timedelta(days=-1), timedelta.max, 30, None)
    wrong: dict[str, tuple[Any, ...]] = {
        **dict.fromkeys(counts, (0, -1, True, 1.0, "1", None, 1 << 64)),
        **dict.fromkeys(("lease", "handler_timeout"), (0, -1, True, "1", None, nan, inf, seconds)),
        "retention": retention,
        "session": ("https://pay.example.com",),
        "expect": ({"totalAmt": 450}, lambda: None),
        "on_refused": (lambda: None,),
        "verifier": ("mine",),
        "profile": ("service.toml", None),
        "credentials": ("M1", None),
        "inbox": ("inbox.db", SqliteInbox),
    }
    two: dict[str, Any] = {"credentials": evolve(CREDENTIALS, merchant_id="M2"), "session": SESSION}
    settings = [({name: each}, name) for name, values in wrong.items() for each in values]
    for given, field in (*settings, ({"profile": UNSIGNED}, "session"), (two, "credentials")):
        with pytest.raises(ConfigurationError) as caught:
            made(tmp_path, **given)

        assert field == caught.value.field, given


async def note(*_: object) -> bool:
    """Note something, if somebody awaits this."""
    return True


class Noting:
    """Notes something as an object."""

    async def __call__(self, *_: object) -> bool:
        """Note something, if somebody awaits this."""
        return True


def test_what_nothing_awaits_is_no_coroutine_function(tmp_path: Path) -> None:
    """An `async def` as `on_refused` or `verifier` is refused, because nothing awaits it; the error says what to do."""
    for name, words in (("on_refused", ".*def instead of async def$"), ("verifier", "")):
        for given in (note, partial(note), Noting(), Noting().__call__):
            with pytest.raises(ConfigurationError, match=f"^{name} must be a plain function{words}"):
                made(tmp_path, **{name: given})


async def test_session_says_profile_and_credentials(tmp_path: Path) -> None:
    """Profile and credentials default to the session's; given ones come first."""
    cases: tuple[tuple[dict[str, Any], list[int]], ...] = (
        ({}, [200, 400]),
        ({"profile": UNSIGNED}, [200, 200]),
        ({"credentials": Credentials("M1", notification_keys=f"whsec_{'A' * 32}")}, [400, 400]),
    )
    for own, statuses in cases:
        settings = {"profile": None, "credentials": None, "session": SESSION, **own}
        async with opened(tmp_path, **settings) as shop:
            shop.recording()
            signed = sign_notification(PAID, profile=SIGNED, credentials=CREDENTIALS, time=shop.clock.now)
            answers = [await shop.receiver.receive(raw, signed.headers) for raw in (signed.raw, b"{}")]

        assert statuses == [answer.status for answer in answers], own


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
        await shop.handled(data, kind)
    asked: dict[tuple[Any, ...], list[int]] = {
        (None, 100, 0): [1, 2, 3],
        (None, 100, 1): [2, 3],
        ("parked", 100, 0): [2],
        ("done", 1, 0): [1],
        ("done", 100, 1): [3],
    }
    for (state, limit, after), numbers in asked.items():
        assert numbers == [each.id for each in await shop.receiver.events(state, limit=limit, after=after)]
    with pytest.raises(InvalidArgumentError, match="state"):
        await shop.receiver.events(cast("Any", "lost"))


async def test_listing_dispatches_nothing(tmp_path: Path) -> None:
    """A receiver that only lists or replays events handles none of them. After `async with`, it is closed."""
    async with opened(tmp_path) as other:
        await other.handled()
    shop = Shop(tmp_path)
    got = shop.recording("payment")
    looked: list[InboxEvent] = await shop.receiver.events("parked")
    replayed = await shop.receiver.replay(looked[0].id)

    assert (True, ["pending"], []) == (replayed, await shop.states(), got)
    async with shop.receiver as entered:
        status = (await shop.take()).status
        await entered.settle()
    assert (200, 503) == (status, (await shop.take()).status)
    with pytest.raises(StorageError, match="closed"):
        await shop.receiver.events()


ROUTED: Final = evolve(SIGNED, notification=evolve(SIGNED.notification, kind="", kinds={}))
"""Only the address says the kind."""


async def test_event_without_a_kind_is_handled_as_what_somebody_says(tmp_path: Path) -> None:
    """If a person replays an event with a kind, it is handled, and a redelivery at the right address is a duplicate."""
    async with opened(tmp_path, profile=ROUTED) as shop:
        got, signed = shop.recording("payment"), shop.sign(kind=None)
        parked = await shop.received(signed.raw, signed.headers)
        replayed = await shop.receiver.replay(parked.id, kind="payment")
        await shop.last()
        event = await shop.received(signed.raw, signed.headers, "payment")

        assert ("parked", None, True) == (parked.state, parked.kind, replayed)
        assert [("payment", 'payment:["T1","SBX_PAID"]')] == [(each.kind, each.dedup_key) for each in got]
        assert (parked.id, "payment", got[0].dedup_key, "done") == (event.id, event.kind, event.key, event.state)


async def test_event_that_has_come_again_is_not_replayed(tmp_path: Path) -> None:
    """If an event was delivered again at the right address and handled, the one without a kind is not replayed."""
    async with opened(tmp_path, profile=ROUTED) as shop:
        got, signed = shop.recording("payment"), shop.sign(kind=None)
        parked = await shop.received(signed.raw, signed.headers)
        await shop.receiver.receive(signed.raw, signed.headers, "payment")
        replayed = await shop.receiver.replay(parked.id, kind="payment")
        await shop.last()

        assert (False, ["parked", "done"], 1) == (replayed, await shop.states(), len(got))


@pytest.mark.parametrize("replays", [0, 2], ids=["replayed first", "delivered first"])
@pytest.mark.parametrize("verifier", [None, lambda _raw, _headers: True], ids=["webhook", "hash of the body"])
async def test_event_whose_name_the_profile_learns_is_handled_once(
    verifier: Verifier | None, replays: int, tmp_path: Path
) -> None:
    """An event with an unknown name has the key of a redelivery after the profile knows the name."""
    shape = evolve(SIGNED.notification, volatile=("timestamp",))
    known = evolve(SIGNED, notification=shape)
    unknown = evolve(known, notification=evolve(shape, kinds={**shape.kinds, "payment": ("payment.new",)}))
    async with opened(tmp_path, profile=unknown, verifier=verifier) as shop:
        shop.recording("payment")
        signed = sign_notification(PAID, profile=known, credentials=CREDENTIALS, kind="payment", time=shop.clock.now)
        parked = await shop.received(signed.raw, signed.headers)
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


@pytest.mark.parametrize("learns", [False, True])
async def test_hint_without_a_kind_is_still_a_hint(tmp_path: Path, *, learns: bool) -> None:
    """A hint that is replayed with a kind stays a hint, which must be confirmed, and so does one of an unknown name."""
    shape = evolve(UNSIGNED.notification, kind="", kinds={})
    raw = b'{"type":"payment.paid","data":{%s}}' % (b"" if learns else b'"outTradeNo":"T1"')
    facts: dict[str, Any] = {"profile": UNSIGNED if learns else evolve(UNSIGNED, notification=shape)}
    async with opened(tmp_path, verifier=lambda _raw, _headers: True, **facts) as shop:
        await shop.inbox.add(received("hint::a", kind=None, verified=False, raw=raw))
        if learns:
            shop.recording()
            event = await shop.last()
        else:
            (claim,) = await shop.inbox.claim(1, 60)
            await shop.inbox.finish(claim, "parked")
            assert await shop.receiver.replay(1, kind="payment")
            (event,) = await shop.receiver.events()

    state = "parked" if learns else "pending"
    assert learns or "payment" == event.kind
    assert (False, state) == (event.verified, event.state)
    assert "hint:payment" == event.key.rpartition(":")[0]


async def test_known_kind_may_be_said_and_no_other(shop: Shop) -> None:
    """`replay` refuses a kind that contradicts the event or does not exist. It returns `False` for an unknown event."""
    parked = await shop.handled(REFUNDED, "refund")
    wrong: tuple[Any, ...] = ("payment", "Refund", "*", 1)
    for kind in wrong:
        with pytest.raises(InvalidArgumentError) as caught:
            await shop.receiver.replay(parked.id, kind=kind)
        assert "kind" == caught.value.field
    with pytest.raises(InvalidArgumentError, match=r"event_id must be .* from events\(\)"):
        await shop.receiver.replay(cast("Any", "1"))
    unknown = [await shop.receiver.replay(number, kind="refund") for number in (0, parked.id + 1)]

    assert (["parked"], [False, False]) == (await shop.states(), unknown)
    assert await shop.receiver.replay(parked.id, kind="refund")


@pytest.mark.parametrize("signed", [True, False], ids=["verified", "hint"])
async def test_refund_at_the_address_of_payments(tmp_path: Path, *, signed: bool) -> None:
    """A refund that comes as a payment is held until a person replays it as a refund.

    A service that calls all ends alike would have the order shipped: "succeeded" is "paid" there.
    """
    shape = evolve(ROUTED.notification, verification="standard-webhooks" if signed else "none")
    async with hinted(tmp_path, evolve(ROUTED, notification=shape)) as shop:
        payments, refunds = shop.recording("payment"), shop.recording("refund")
        order = await shop.sandbox.given.paid_order(450)
        await shop.pay.refunds.create(out_trade_no=order, out_refund_no="R1", total_amt=450, refund_amt=200)
        made = shop.sign({"outTradeNo": order, "outRefundNo": "R1", "refundAmt": 200, "status": "SBX_PAID"}, None)
        held = await shop.received(made.raw, made.headers, "payment")
        before = (len(payments), len(refunds)), shop.asked()
        with pytest.raises(InvalidArgumentError, match="kind must be payment"):
            await shop.receiver.replay(held.id, kind="subscription")
        replayed = await shop.receiver.replay(held.id, kind="refund")
        await shop.last()

        assert ("held", ((0, 0), 0)) == (held.state, before)
        assert "names a refund: outRefundNo is 'R1'. If it is a refund, receiver.replay(id, kind=\"refund\")" in (
            held.reason
        )
        assert (True, [], ["R1"]) == (replayed, payments, [each.out_refund_no for each in refunds])


async def test_all_events_of_a_state_are_replayed(tmp_path: Path) -> None:
    """`replay_all` replays all events of one state, and no others. It refuses states that must not be replayed."""
    async with opened(tmp_path, attempts=1) as shop:
        got = shop.recording("payment", fails=3)
        await shop.handled(REFUNDED, "refund")
        for number in range(3):
            await shop.handled({**PAID, "outTradeNo": f"T{number}"})
        before = await shop.states()
        replayed = await shop.receiver.replay_all("dead")
        await shop.last()

        assert (["parked", *["dead"] * 3], 3) == (before, replayed)
        assert (["parked", *["done"] * 3], ["T0", "T1", "T2"]) == (
            await shop.states(),
            sorted(map(str, got.numbers[3:])),
        )
        assert 0 == await shop.receiver.replay_all("dead")
        wrong: tuple[Any, ...] = ("done", "superseded", "pending", "leased", "lost", None)
        for state in wrong:
            with pytest.raises(InvalidArgumentError, match="one of dead, held, parked"):
                await shop.receiver.replay_all(state)


@pytest.mark.long
async def test_many_events_are_replayed_once_each(tmp_path: Path) -> None:
    """`replay_all` replays each event once, even if there are several pages and the events fail again immediately."""
    many = 2 * REPLAY_PAGE + 1
    async with opened(tmp_path, attempts=1) as shop:
        for number in range(many):
            await shop.inbox.add(received(str(number)))
        for claim in await shop.inbox.claim(many, 60):
            await shop.inbox.finish(claim, "dead")
        shop.recording("payment", fails=many)
        async with shop.receiver:
            replayed = await shop.receiver.replay_all("dead")
            await shop.receiver.settle()

            assert (many, many) == (replayed, len(await shop.receiver.events("dead", limit=2 * many)))
