"""One claimed event: by whom it is handled, when it is tried again, and how it ends."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from payasync import ConfigurationError
from payasync.notifications import Notification, SqliteInbox
from payasync.notifications.transitions import MAX_INTERRUPTIONS, Transition, longest_wait
from payasync.notifications.worker import (
    INTERRUPTED,
    Handler,
    build_handler,
    check_distinct,
    run_within,
    select_handlers,
)
from tests.inside import turns
from tests.notifications.merchant import (
    NOW,
    PAID,
    REFUNDED,
    SIGNED,
    Clock,
    Shop,
    notification,
    opened,
    received,
)


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
    for _ in range(MAX_INTERRUPTIONS):
        await inbox.claim(1, 60)
        shop.clock.advance(60)
    await inbox.aclose()
    event = await shop.last()

    assert ("dead", []) == (event.state, got)
    assert event.reason.startswith(f"interrupted {MAX_INTERRUPTIONS} times")


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

        assert ("quarantined", "it is unexpected", []) == (event.state, event.reason, got)


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


async def paid(notification: Notification) -> None:
    """Handle a notification."""


async def shipped(notification: Notification, *, fast: bool = False) -> None:
    """Handle a notification."""


class Books:
    """What has handlers among its methods, and is one itself."""

    async def enter(self, notification: Notification) -> None:
        """Handle a notification."""

    async def __call__(self, notification: Notification) -> None:
        """Handle a notification."""


def handler(kind: str = "payment", function: Any = paid, **settings: Any) -> Handler:
    """Return a handler."""
    return build_handler(function, kind=kind, **settings)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (paid, "paid"),
        (Books().enter, "Books.enter"),
        (Books(), "Books"),
        (partial(shipped, fast=True), "shipped"),
        (partial(partial(shipped), fast=True), "shipped"),
    ],
)
def test_handler_has_the_name_of_its_function(function: Any, name: str) -> None:
    """What is remembered outlives the process, and is the same where the module is moved, or run as a program."""
    assert name == handler(function=function).name


@pytest.mark.parametrize("name", ["", " ", "two words", "line\n", 7, b"credit"])
def test_name_is_a_word(name: Any) -> None:
    """What is remembered under no name, or under one that ends nowhere, would be another's, too."""
    with pytest.raises(ConfigurationError, match="name must be a word, such as 'credit'") as caught:
        handler(name=name)

    assert "name" == caught.value.field


def plain(notification: Notification) -> None:
    """Be no coroutine function."""


@pytest.mark.parametrize("function", [plain, partial(plain), None, "paid", Books])
def test_handler_is_a_coroutine_function(function: Any) -> None:
    """A plain function would block every other handler: it is refused where it is registered."""
    with pytest.raises(ConfigurationError, match="async def"):
        handler(function=function)


async def none() -> None:
    """Take nothing."""


async def two(notification: Notification, db: object) -> None:
    """Take a connection, too."""


async def named(notification: Notification, *, db: object) -> None:
    """Take a connection by its name alone."""


async def several(*things: object) -> None:
    """Take whatever there is."""


def begin() -> Any:
    """Begin nothing."""


@pytest.mark.parametrize(
    ("function", "transaction"),
    [(none, None), (two, None), (named, None), (Books.enter, None), (none, begin), (paid, begin), (named, begin)],
)
def test_handler_takes_what_it_is_given(function: Any, transaction: Any) -> None:
    """What would fail with every event is found where it is registered, and the words say what a handler takes."""
    with pytest.raises(ConfigurationError, match="a handler takes a notification, and with transaction= a conn") as bad:
        handler(function=function, transaction=transaction)

    assert ("handler", True) == (bad.value.field, function.__qualname__ in str(bad.value))


@pytest.mark.parametrize(
    ("function", "transaction"),
    [(shipped, None), (several, None), (several, begin), (two, begin), (partial(two, db=1), None)],
)
def test_handler_may_take_more(function: Any, transaction: Any) -> None:
    """What has a default, or takes anything, can be called."""
    assert function is handler(function=function, transaction=transaction).function


def test_transaction_is_called_without_arguments() -> None:
    """What nobody could begin is found where it is given, not with the first event."""
    with pytest.raises(ConfigurationError, match=r"transaction is called without arguments: .*lambda> cannot") as bad:
        handler(function=two, transaction=lambda _path: None)

    assert "transaction" == bad.value.field


class Pool(list[object]):
    """Begins transactions, in connections of which none is open yet."""

    def __call__(self) -> None:
        """Begin one."""


def test_transaction_may_be_an_empty_pool() -> None:
    """What is given counts, also where it has a length, which is 0."""
    assert handler(function=two, transaction=Pool()).transaction is not None


@pytest.mark.parametrize("expect", [lambda: None, lambda _one, _two: None])
def test_expectation_takes_a_notification(expect: Any) -> None:
    """What could never say what is expected is found where it is given."""
    with pytest.raises(ConfigurationError, match="expect takes a notification") as bad:
        handler(expect=expect)

    assert "expect" == bad.value.field


@pytest.mark.parametrize("expect", [lambda _: None, lambda _one, _two=2: None, max])
def test_expectation_may_take_more(expect: Any) -> None:
    """What has a default can be called; what does not say what it takes is left alone."""
    assert expect is handler(expect=expect).expect


@pytest.mark.parametrize("kind", ["payments", "", None, 7, ["payment"]])
def test_kind_must_exist(kind: Any) -> None:
    """A kind that there is not would never be handled."""
    with pytest.raises(ConfigurationError, match="payment, refund, subscription and \\*"):
        handler(kind)


@pytest.mark.parametrize("kind", ["payment", "refund"])
def test_what_can_be_confirmed_is_not_taken_unconfirmed(kind: str) -> None:
    """A payment can be asked about: no handler may wish to believe it unseen."""
    with pytest.raises(ConfigurationError, match="Leave it out"):
        handler(kind, unverified=True)


@pytest.mark.parametrize(
    ("settings", "field"),
    [({"unverified": 1}, "unverified"), ({"transaction": 1}, "transaction"), ({"expect": {"a": 1}}, "expect")],
)
def test_settings_are_checked(settings: dict[str, Any], field: str) -> None:
    """A wrong setting is found where it is given, not when money has come."""
    with pytest.raises(ConfigurationError) as caught:
        handler("subscription", **settings)

    assert field == caught.value.field


async def other(notification: Notification) -> None:
    """Handle a notification."""


other.__qualname__ = "paid"


@pytest.mark.parametrize(
    ("one", "another"),
    [
        (handler("payment"), handler("refund")),
        (handler("payment"), handler("payment", shipped)),
        (handler("payment"), handler("payment", other, name="credit")),
    ],
)
def test_handlers_that_are_distinct(one: Handler, another: Handler) -> None:
    """A function may handle several kinds, and two functions one event under different names."""
    check_distinct(another, [one])

    assert (one.name, one.kind) != (another.name, another.kind)


@pytest.mark.parametrize(
    ("one", "another"),
    [
        (handler("payment"), handler("payment")),
        (handler("payment"), handler("*")),
        (handler("*"), handler("refund")),
        (handler("payment"), handler("payment", other)),
        (handler("payment"), handler("refund", other)),
        (handler("payment", name="shipped"), handler("payment", shipped)),
    ],
)
def test_two_of_one_name_are_refused(one: Handler, another: Handler) -> None:
    """What one has done would count as done by the other; the error says how to tell them apart."""
    with pytest.raises(ConfigurationError, match=r"two handlers are named \w+: .*Give one another name: on\(.*name="):
        check_distinct(another, [one])


PAYMENT = handler("payment")
ANY = handler("*", shipped)
UNCONFIRMED = handler("subscription", Books().enter, unverified=True)
SUBSCRIPTION = handler("subscription")


@pytest.mark.parametrize(
    ("facts", "taking"),
    [
        ({"kind": "payment"}, (PAYMENT, ANY)),
        ({"kind": "payment", "verified": False}, (PAYMENT, ANY)),
        ({"kind": "refund"}, (ANY,)),
        ({"kind": None}, (ANY,)),
        ({"kind": "subscription"}, (ANY, UNCONFIRMED, SUBSCRIPTION)),
        ({"kind": "subscription", "verified": False}, (UNCONFIRMED,)),
    ],
)
def test_handlers_take_their_kind(facts: dict[str, Any], taking: tuple[Handler, ...]) -> None:
    """Each matching handler takes it, in their order; what nobody can confirm, only who wants it so."""
    assert taking == select_handlers([PAYMENT, ANY, UNCONFIRMED, SUBSCRIPTION], notification(**facts))


@pytest.mark.parametrize(
    ("handlers", "facts", "reason"),
    [
        ([PAYMENT], {"kind": "refund"}, "no handler for refunds"),
        ([], {"kind": "payment", "verified": False}, "no handler for payments"),
        ([PAYMENT], {"kind": None}, "no handler for events of an unknown kind"),
        ([PAYMENT], {"kind": "subscription", "verified": False}, "no handler for subscriptions"),
        ([SUBSCRIPTION], {"kind": "subscription", "verified": False}, "nothing can confirm subscriptions"),
        ([ANY], {"kind": None, "verified": False}, "nothing can confirm events of an unknown kind"),
    ],
)
def test_what_nobody_takes_is_parked(handlers: list[Handler], facts: dict[str, Any], reason: str) -> None:
    """The reason says whether a handler is missing, or anybody who could say that it is true."""
    ending = select_handlers(handlers, notification(**facts))

    assert isinstance(ending, Transition)
    assert ("parked", True) == (ending.state, ending.reason.startswith(reason))


LONG = 3600.0
SHORT = 0.01


async def test_what_ends_late_has_failed() -> None:
    """What was told to stop may have left out its last step, however it ends."""

    async def called() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    with pytest.raises(TimeoutError):
        await run_within(SHORT, called())


async def test_what_is_done_though_cancelled_is_done() -> None:
    """Who is told to stop, and comes to its end nevertheless, has come to its end."""

    async def called() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done"
        return ""

    task = asyncio.create_task(run_within(LONG, called()))
    await turns(10)
    task.cancel()

    assert "done" == await task


async def test_cleaning_up_is_not_cut_short() -> None:
    """A loop that ends cancels what is called and who called it: cleaning up is cancelled once, not twice."""
    steps = list[str]()

    async def called() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await turns(10)
            steps.append("cleaned up")

    before = asyncio.all_tasks()
    caller = asyncio.create_task(run_within(LONG, called()))
    await turns(10)
    (inner,) = asyncio.all_tasks() - before - {caller}
    inner.cancel()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller

    assert ["cleaned up"] == steps
