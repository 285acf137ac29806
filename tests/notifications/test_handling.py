"""One claimed event: handled by each of its handlers, retried, and brought to its end."""

import asyncio
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from payasync.notifications import Notification, SqliteInbox
from payasync.notifications.transitions import MOST_INTERRUPTIONS, longest_wait
from payasync.notifications.worker import INTERRUPTED
from tests.notifications.merchant import CREDENTIALS, NOW, PAID, REFUNDED, SIGNED, Clock, Shop, opened, received


class Failing:
    """Handlers that fail so many times."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.calls = list[str]()

    def add(self, name: str, times: int, error: BaseException | None = None) -> None:
        """Register one of them."""

        async def handle(_: Notification) -> None:
            self.calls.append(name)
            if self.calls.count(name) <= times:
                raise error or ValueError(f"{name} fails")

        handle.__qualname__ = name
        self.shop.receiver.on("payment")(handle)


async def test_handler_gets_what_was_verified(shop: Shop) -> None:
    """A handler gets the notification as it came, believed, with the inbox's number of it."""
    got = shop.recording("payment")
    event = await shop.handled()

    assert [(event.id, 1, True, PAID)] == [(each.id, each.attempt, each.verified, each.trusted) for each in got]
    assert [("payment", "payment.paid", "T1")] == [(each.kind, each.event, each.out_trade_no) for each in got]
    assert [datetime.fromtimestamp(NOW, UTC)] == [each.received_at for each in got]
    assert event.raw == got[0].raw


async def test_each_matching_handler_is_called_once(shop: Shop) -> None:
    """All handlers of the kind, and those of every kind, get it; others do not."""
    calls = Failing(shop)
    for name in ("one", "two"):
        calls.add(name, 0)
    every = shop.recording("*")
    refunds = shop.recording("refund")
    event = await shop.handled()

    assert ("done", ["one", "two"], 1, 0) == (event.state, calls.calls, len(every), len(refunds))


async def test_only_what_failed_is_called_again(shop: Shop) -> None:
    """It is remembered which handlers are done; one that fails does not stop those behind it."""
    calls = Failing(shop)
    calls.add("one", 0)
    calls.add("two", 2)
    calls.add("three", 0)
    first = await shop.handled()
    shop.clock.advance(3600)
    await shop.receiver.settle()
    shop.clock.advance(3600)
    last = await shop.last()

    assert ("pending", "done") == (first.state, last.state)
    assert ["one", "two", "three", "two", "two"] == calls.calls


async def test_failure_is_retried_with_growing_waits_until_it_is_dead(tmp_path: Path) -> None:
    """Each wait is bounded by one four times as long, and the last attempt is followed by none; the reason stays."""
    async with opened(tmp_path, attempts=4) as shop:
        calls = Failing(shop)
        calls.add("books", 99)
        event = await shop.handled()
        waits = list[float]()
        while event.due:
            waits.append(event.due.timestamp() - shop.clock.now)
            shop.clock.advance(waits[-1] - 0.001)
            assert "pending" == (await shop.last()).state
            shop.clock.advance(0.001)
            event = await shop.last()

        assert [longest_wait(attempt) for attempt in (1, 2, 3)] == pytest.approx(waits, abs=1e-3)
        assert ("dead", 4) == (event.state, len(calls.calls))
        assert "books: ValueError: books fails" == event.reason


async def test_failure_is_logged_with_its_place(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who mends the handler sees where it failed; what the error says, which may be of the payload, is not logged."""

    def expect(notification: Notification) -> None:
        raise KeyError(notification.data["totalAmt"])

    async with opened(tmp_path) as shop:

        @shop.receiver.on("payment")
        async def books(notification: Notification) -> None:
            raise ValueError(notification.data["totalAmt"])

        failed = await shop.handled()
        shop.recording("refund", expect=expect)
        await shop.take({**REFUNDED, "totalAmt": 450}, "refund")
        await shop.receiver.settle()

        assert failed.reason.endswith("books: ValueError: 450")
        assert "450" not in caplog.text
        assert [] == [each for each in ("ValueError", "KeyError", "in books", "in expect") if each not in caplog.text]


async def test_dead_event_can_be_dispatched_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After somebody has mended the handler, a replay gives it all its attempts; what was done stays done."""
    async with opened(tmp_path, attempts=1) as shop:
        calls = Failing(shop)
        calls.add("fine", 0)
        calls.add("broken", 1)
        dead = await shop.handled()
        replayed = await shop.receiver.replay(dead.id)
        done = await shop.last()

        assert ("dead", True, "done") == (dead.state, replayed, done.state)
        assert ["fine", "broken", "broken"] == calls.calls
        assert not await shop.receiver.replay(dead.id)
        assert "is dead" in caplog.text


async def test_handler_whose_own_task_was_cancelled_has_failed(shop: Shop) -> None:
    """A cancellation that the handler brings upon itself is not that of the receiver."""
    calls = Failing(shop)
    calls.add("cancelled", 1, asyncio.CancelledError())
    event = await shop.handled()
    shop.clock.advance(1)

    assert ("pending", "CancelledError") == (event.state, event.reason.rpartition(" ")[2])
    assert "done" == (await shop.last()).state


async def test_what_nobody_handles_is_parked_until_somebody_does(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """It is listed with its reason, and can be dispatched after a handler was added."""
    shop.recording("payment")
    parked = await shop.handled(REFUNDED, "refund")
    got = shop.recording("refund")
    await shop.receiver.replay(parked.id)

    assert ("parked", "no handler for refunds") == (parked.state, parked.reason)
    assert "done" == (await shop.last()).state
    assert 1 == len(got)
    assert "is parked" in caplog.text


async def test_what_cuts_off_every_attempt_is_given_up(shop: Shop) -> None:
    """An event at which the process ends each time is not begun for ever: it is dead before its handler is called."""
    got = shop.recording()
    inbox = SqliteInbox(shop.path, clock=shop.clock)
    await inbox.add(received())
    for _ in range(MOST_INTERRUPTIONS):
        await inbox.claim(1, 60)
        shop.clock.advance(60)
    await inbox.aclose()
    event = await shop.last()

    assert ("dead", []) == (event.state, got)
    assert event.reason.startswith(f"cut off {MOST_INTERRUPTIONS} times")


async def test_shutdowns_use_up_no_attempts(tmp_path: Path) -> None:
    """A handler that deployments cut off has not failed: its first failure is tried again, after the first wait."""
    inbox = SqliteInbox(tmp_path / "inbox.db", clock=Clock())
    await inbox.add(received())
    for _ in range(9):
        (claim,) = await inbox.claim(1, 60)
        await inbox.finish(claim, "pending", INTERRUPTED)
    await inbox.aclose()
    async with opened(tmp_path, attempts=2) as shop:
        Failing(shop).add("late", 1)
        failed = await shop.last()
        shop.clock.advance(1)
        done = await shop.last()

        assert ("pending", 10, 1) == (failed.state, failed.attempts, failed.failures)
        assert ("done", 11, 1) == (done.state, done.attempts, done.failures)


async def test_handler_that_hangs_has_failed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is cancelled when its time is over, and tried again; the log says where it hung."""
    async with opened(tmp_path, handler_timeout=0.01) as shop:
        ended = asyncio.Event()

        @shop.receiver.on("payment")
        async def books(notification: Notification) -> None:
            if notification.attempt == 1:
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.set()

        event = await shop.handled()
        shop.clock.advance(1)

        assert (True, "pending", 1) == (ended.is_set(), event.state, event.failures)
        assert event.reason.endswith("books: TimeoutError: not done after 0.01 seconds")
        assert "asyncio.Event().wait()" in caplog.text
        assert "done" == (await shop.last()).state


async def test_expectation_that_hangs_has_failed(tmp_path: Path) -> None:
    """Nor is an event held by who is asked what to expect."""

    async def expect(_: Notification) -> None:
        await asyncio.Event().wait()

    async with opened(tmp_path, handler_timeout=0.01, expect=expect) as shop:
        got = shop.recording()
        event = await shop.handled()

        assert ("pending", [], "expect: TimeoutError: not done after 0.01 seconds") == (event.state, got, event.reason)


async def test_transaction_that_hangs_is_undone(tmp_path: Path) -> None:
    """What a handler that is cancelled has done in its transaction is not committed, and is done again."""
    ends = list[str]()

    @contextmanager
    def begin() -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(tmp_path / "shop.db")) as db, db:
            try:
                yield db
            except BaseException as error:
                ends.append(type(error).__name__)
                raise

    async with opened(tmp_path, handler_timeout=0.01) as shop:
        db: sqlite3.Connection
        with begin() as db:
            db.execute("CREATE TABLE credits (number TEXT)")

        @shop.receiver.on("payment", transaction=begin)
        async def credit(notification: Notification, db: sqlite3.Connection) -> None:
            db.execute("INSERT INTO credits VALUES (?)", (notification.out_trade_no,))
            if notification.attempt == 1:
                await asyncio.Event().wait()

        first = await shop.handled()
        shop.clock.advance(1)
        last = await shop.last()
        with begin() as db:
            credits_ = db.execute("SELECT * FROM credits").fetchall()

        assert ("pending", "done", [("T1",)]) == (first.state, last.state, credits_)
        assert "CancelledError" in ends


EXPECTED = {"totalAmt": 450, "currency": "CAD"}


async def later(_: Notification) -> dict[str, Any]:
    """Look it up somewhere."""
    await asyncio.sleep(0)
    return EXPECTED


@pytest.mark.parametrize("expect", [lambda _: EXPECTED, later])
@pytest.mark.parametrize("where", ["receiver", "handler"])
async def test_what_is_as_expected_is_handled(expect: Any, where: str, tmp_path: Path) -> None:
    """What the caller expects may be looked up; for all handlers, or for one."""
    settings = {where: {"expect": expect}}
    async with opened(tmp_path, **settings.get("receiver", {})) as shop:
        got = shop.recording("payment", **settings.get("handler", {}))

        assert ("done", 1) == ((await shop.handled()).state, len(got))


@pytest.mark.parametrize(
    ("expected", "reason"),
    [
        ({"totalAmt": 451}, "totalAmt is 450, expected 451"),
        ({"totalAmt": 450, "currency": "USD"}, "currency is 'CAD', expected 'USD'"),
        (None, "nobody expects it"),
    ],
)
async def test_what_is_not_as_expected_is_quarantined(expected: Any, reason: str, shop: Shop) -> None:
    """Another amount, another currency, or an order that nobody placed: no handler sees it, and the list says why."""
    got = shop.recording("payment", expect=lambda _: expected)
    unasked = shop.recording("payment")
    event = await shop.handled()

    assert ("quarantined", reason, [], []) == (event.state, event.reason, got, unasked)


async def test_expectation_whose_own_task_was_cancelled_has_failed(tmp_path: Path) -> None:
    """It is asked again after a wait, as after any failure, and not at once, again and again."""

    async def expect(_: Notification) -> None:
        raise asyncio.CancelledError

    async with opened(tmp_path, expect=expect) as shop:
        shop.recording()
        event = await shop.handled()

        assert ("pending", 1, "expect: CancelledError") == (event.state, event.attempts, event.reason)


@dataclass
class Orders:
    """What a shop expects; equal to another where it expects the same, and so not hashable."""

    amounts: dict[str, int]
    asked: int = 0

    def __len__(self) -> int:
        return len(self.amounts)

    def __call__(self, notification: Notification) -> dict[str, Any] | None:
        """Return what is expected."""
        self.asked += 1
        amount = self.amounts.get(notification.out_trade_no or "")
        return None if amount is None else {"totalAmt": amount}


async def test_expectation_may_be_any_object_that_is_called(tmp_path: Path) -> None:
    """It need not be hashable; one that several handlers share is asked once."""
    orders = Orders({"T1": 450})
    async with opened(tmp_path, expect=orders) as shop:
        got = [shop.recording("payment"), shop.recording("*")]
        event = await shop.handled()

        assert ("done", [1, 1], 1) == (event.state, [len(each) for each in got], orders.asked)


@pytest.mark.parametrize("where", ["receiver", "handler"])
async def test_expectation_that_is_empty_expects_nothing(where: str, tmp_path: Path) -> None:
    """A list of orders without any is no missing one: what nobody expects is not handled."""
    settings = {where: {"expect": Orders({})}}
    async with opened(tmp_path, **settings.get("receiver", {})) as shop:
        got = shop.recording("payment", **settings.get("handler", {}))
        event = await shop.handled()

        assert ("quarantined", "nobody expects it", []) == (event.state, event.reason, got)


async def test_handlers_expectation_replaces_the_receivers(tmp_path: Path) -> None:
    """A handler that says what it expects is not asked about what others do."""
    async with opened(tmp_path, expect=lambda _: {"totalAmt": 1}) as shop:
        shop.recording("payment", expect=lambda _: EXPECTED)

        assert "done" == (await shop.handled()).state


async def test_expectation_that_fails_is_retried(tmp_path: Path) -> None:
    """Where what is expected cannot be looked up now, nothing is handled, and nothing is lost."""
    answers: list[Any] = [OSError("no database"), EXPECTED]

    def expect(_: Notification) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with opened(tmp_path, expect=expect) as shop:
        got = shop.recording()
        event = await shop.handled()
        shop.clock.advance(1)

        assert ("pending", "expect: OSError: no database") == (event.state, event.reason)
        assert ("done", 1) == ((await shop.last()).state, len(got))


@pytest.mark.parametrize(("named", "state"), [("M1", "done"), ("M2", "quarantined")])
async def test_another_merchants_event_is_quarantined(named: str, state: str, shop: Shop) -> None:
    """The service's key may sign for other merchants, too: their money is not ours."""
    shop.recording()

    assert state == (await shop.handled({**PAID, "merchantId": named})).state


async def test_event_that_the_profile_no_longer_reads_is_dead(tmp_path: Path) -> None:
    """A profile that has changed since cannot make a receiver stumble over an old event."""
    renamed = evolve(SIGNED, notification=evolve(SIGNED.notification, kinds={"refund": ("payment.paid",)}))
    async with opened(tmp_path, profile=renamed) as shop:
        shop.recording()
        inbox = SqliteInbox(shop.path, clock=shop.clock)
        await inbox.add(received())
        await inbox.aclose()
        event = await shop.last()

        assert ("dead", "InvalidArgumentError") == (event.state, event.reason.partition(":")[0])


async def test_keys_of_the_merchant_are_not_in_a_notification(shop: Shop) -> None:
    """What a handler gets, and may log or keep, holds no key."""
    recorded = shop.recording()
    await shop.handled()

    assert CREDENTIALS.notification_keys[0].reveal() not in repr(recorded)
