"""A claimed event: which handlers get it, when it is retried, and how it ends."""

import asyncio
import re
from collections import Counter
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import NOT_YET, ConfigurationError
from payasync.notifications import Notification
from payasync.notifications.transitions import MAX_INTERRUPTIONS, longest_wait
from payasync.notifications.worker import (
    INTERRUPTED,
    Handler,
    build_handler,
    check_distinct,
    run_within,
)
from tests.inside import turns
from tests.notifications.merchant import NOW, PAID, REFUNDED, SIGNED, Shop, opened, received


async def test_handler_gets_what_was_verified(shop: Shop) -> None:
    """A handler gets the verified notification with its data, its bytes, and the inbox's id and attempt."""
    got = shop.recording("payment")
    event = await shop.handled()

    assert [(event.id, 1, True, PAID)] == [(each.id, each.attempt, each.verified, each.trusted) for each in got]
    assert [("payment", "payment.paid", "T1")] == [(each.kind, each.event, each.out_trade_no) for each in got]
    assert [datetime.fromtimestamp(NOW, UTC)] == [each.received_at for each in got]
    assert event.raw == got[0].raw


async def test_only_what_failed_is_called_again(shop: Shop) -> None:
    """If a handler fails, only that handler is called again. Handlers after it are called all the same."""
    got = [shop.recording("payment", fails=times) for times in (0, 2, 0)]
    first = await shop.handled()
    last = await shop.later(3600, 3600)

    assert ("pending", "done") == (first.state, last.state)
    assert [[1], [1, 2, 3], [1]] == [[each.attempt for each in one] for one in got]


async def test_failure_is_retried_with_growing_waits_until_it_is_dead(tmp_path: Path) -> None:
    """If a handler fails every time, each wait is longer, and after `attempts` the event is dead, with the reason."""
    async with opened(tmp_path, attempts=MAX_INTERRUPTIONS + 2) as shop:
        got = shop.recording("payment", fails=99, name="books")
        event = await shop.handled()
        waits = list[float]()
        while event.due:
            waits.append(event.due.timestamp() - shop.clock.now)
            assert "pending" == (await shop.later(waits[-1] - 0.001)).state
            event = await shop.later(0.001)

        assert [longest_wait(attempt) for attempt in range(1, MAX_INTERRUPTIONS + 2)] == pytest.approx(waits, abs=1e-3)
        assert ("dead", MAX_INTERRUPTIONS + 2, "books: OSError: not now") == (event.state, len(got), event.reason)


@pytest.mark.parametrize(
    ("expected", "path"),
    [({"totalAmt": 451}, "totalAmt"), ({"missing.totalAmt": 450}, "missing.totalAmt"), (None, None)],
)
async def test_log_names_the_field_of_a_held_event(
    expected: Any, path: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The record of a held event has the path of the field that differs, and no other fact of the notification."""
    async with opened(tmp_path, expect=lambda _: expected) as shop:
        shop.recording()
        await shop.handled({**PAID, "merchantId": "M1"})
    (record,) = [vars(each) for each in caplog.records if vars(each).get("event_name") == "notification.stopped"]

    assert ("payment", "held", path) == (record["kind"], record["state"], record["field"])
    assert [] == [fact for fact in ("450", "451", "M1", "M2") if fact in record["message"]]


async def test_what_nobody_handles_is_parked_until_somebody_does(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    """An event without a handler is parked with its reason, and can be replayed after a handler was added."""
    shop.recording("payment")
    parked = await shop.handled(REFUNDED, "refund")
    got = shop.recording("refund")
    await shop.receiver.replay(parked.id)

    assert ("parked", "no handler for refunds") == (parked.state, parked.reason)
    assert "done" == (await shop.last()).state
    assert 1 == len(got)
    assert "is parked" in caplog.text


async def test_what_cuts_off_every_attempt_is_given_up(shop: Shop) -> None:
    """If an event was interrupted `MAX_INTERRUPTIONS` times, it is dead."""
    got = shop.recording()
    await shop.inbox.add(received())
    for _ in range(MAX_INTERRUPTIONS):
        await shop.inbox.claim(1, 60)
        shop.clock.advance(60)
    event = await shop.last()

    assert ("dead", []) == (event.state, got)
    assert event.reason.startswith(f"interrupted {MAX_INTERRUPTIONS} times")


async def test_shutdowns_use_up_no_attempts(tmp_path: Path) -> None:
    """A handler that deployments interrupt has not failed: its first failure is retried after the first wait."""
    async with opened(tmp_path, attempts=2) as shop:
        await shop.inbox.add(received())
        for _ in range(9):
            (claim,) = await shop.inbox.claim(1, 60)
            await shop.inbox.finish(claim, "pending", INTERRUPTED)
        shop.recording("payment", fails=1)
        failed, done = await shop.last(), await shop.later(1)

        assert ("pending", 10, 1) == (failed.state, failed.attempts, failed.failures)
        assert ("done", 11, 1) == (done.state, done.attempts, done.failures)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("450 CAD"), "ValueError: 450 CAD"),
        (asyncio.CancelledError(), "CancelledError"),
        (None, "TimeoutError: not done after 0.01 seconds"),
    ],
    ids=["raises", "is cancelled", "hangs"],
)
@pytest.mark.parametrize("what", ["books", "expect"])
async def test_failure_is_tried_again(
    what: str, error: BaseException | None, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler or an `expect` that raises, cancels itself or hangs has failed, and is called again later.

    The log says where, but not what the error says, which may be of the payload.
    """
    calls = Counter[str]()

    async def fail_once(name: str) -> None:
        calls[name] += 1
        if name == what and calls[name] == 1:
            if error:
                raise error
            await asyncio.Event().wait()

    async def expect(_: Notification) -> dict[str, Any]:
        await fail_once("expect")
        return {"totalAmt": 450}

    async with opened(tmp_path, handler_timeout=0.01) as shop:

        @shop.receiver.on("payment", name="books", expect=expect)
        async def books(_: Notification) -> None:
            await fail_once("books")

        failed, done = await shop.handled(), await shop.later(1)

    assert ("pending", 1, f"{what}: {reason}") == (failed.state, failed.failures, failed.reason)
    assert ("done", {"expect": 2, "books": 1 + (what == "books")}) == (done.state, calls)
    assert ("450 CAD" in caplog.text, f"in {what}" in caplog.text) == (False, True)


class Orders(dict[str, int]):
    """The amounts that a shop expects; it is not hashable, and false if it expects nothing."""

    def __call__(self, notification: Notification) -> dict[str, Any] | None:
        """Return what is expected."""
        amount = self.get(notification.out_trade_no or "")
        return None if amount is None else {"totalAmt": amount}


@pytest.mark.parametrize(
    ("receivers", "handlers", "state"),
    [
        (lambda _: {"totalAmt": 450}, None, "done"),
        (None, lambda _: {"totalAmt": 450}, "done"),
        (lambda _: {"totalAmt": 1}, lambda _: {"totalAmt": 450}, "done"),
        (Orders({}), None, "held"),
        (None, Orders({}), "held"),
    ],
)
async def test_what_is_expected_is_handled(receivers: Any, handlers: Any, state: str, tmp_path: Path) -> None:
    """A handler's `expect` replaces the receiver's; it can be any callable, also one that is false or not hashable."""
    async with opened(tmp_path, expect=receivers) as shop:
        got = shop.recording("payment", expect=handlers)

        assert (state, state == "done") == ((await shop.handled()).state, bool(got))


@pytest.mark.parametrize(
    ("answers", "state", "reason"),
    [
        ([NOT_YET, NOT_YET, {"totalAmt": 450}], "done", ""),
        ([NOT_YET, NOT_YET, None], "held", "it is unexpected"),
        ([NOT_YET, NOT_YET, NOT_YET], "dead", "expect returned NOT_YET"),
    ],
)
async def test_expect_is_asked_again(answers: list[Any], state: str, reason: str, tmp_path: Path) -> None:
    """If `expect` returns `NOT_YET`, the event has failed, and `expect` is asked again after the usual waits."""
    left, waits = [*answers], list[float]()
    async with opened(tmp_path, attempts=3, expect=lambda _: left.pop(0)) as shop:
        got = shop.recording()
        event = await shop.handled()
        while event.due:
            waits.append(event.due.timestamp() - shop.clock.now)
            shop.clock.advance(waits[-1])
            event = await shop.last()

    assert (state, reason, state == "done") == (event.state, event.reason, bool(got))
    assert [longest_wait(1), longest_wait(2)] == pytest.approx(waits, abs=1e-3)


async def test_notification_has_the_identity_that_is_stored(shop: Shop) -> None:
    """What identifies an event is found once, as it arrives: a handler's notification has the same key and digest."""
    got = shop.recording()
    await shop.inbox.add(received())
    event = await shop.last()

    assert [("payment:1", "digest of payment:1")] == [(each.dedup_key, each.digest) for each in got]
    assert "digest of payment:1" == event.digest


async def test_event_that_the_profile_no_longer_reads_is_dead(tmp_path: Path) -> None:
    """A stored event that a changed profile refuses is dead, and does not stop the receiver."""
    renamed = evolve(SIGNED, notification=evolve(SIGNED.notification, kinds={"refund": ("payment.paid",)}))
    async with opened(tmp_path, profile=renamed) as shop:
        shop.recording()
        await shop.inbox.add(received())
        event = await shop.last()

        assert ("dead", "kind:") == (event.state, event.reason.split()[0])


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


def two(notification: Notification, db: object) -> None:
    """Take a connection, too."""


def named(notification: Notification, *, db: object) -> None:
    """Take a connection by its name alone."""


def generating(notification: Notification) -> Any:
    """Do nothing when it is called."""
    yield notification


async def streaming(notification: Notification) -> Any:
    """Do nothing when it is called."""
    yield notification


def handler(kind: Any = "payment", function: Any = paid, **settings: Any) -> Handler:
    """Return a handler."""
    return build_handler(function, kind=kind, **settings)


class OnlyForTypeCheckers:
    """A class whose name the program removes below: no annotation can be evaluated afterwards."""


async def annotated(notification: OnlyForTypeCheckers) -> None:
    """Take a notification of a class whose name is unknown while the program runs."""


del OnlyForTypeCheckers

NAMELESS: Final = ("", " ", "two words", "line\n", 7, b"credit")
TAKES: Final = "a handler takes a notification, and with transaction= a connection: "


def test_handler_has_the_name_of_its_function() -> None:
    """A handler's default name has no module, so that it stays when the module is moved or run as a program."""
    fast = partial(partial(shipped), fast=True)
    functions = (paid, Books().enter, Books(), partial(shipped, fast=True), fast, annotated)

    assert ["paid", "Books.enter", "Books", "shipped", "shipped", "annotated"] == [
        handler(function=each).name for each in functions
    ]


def test_wrong_handler_is_refused() -> None:
    """If a handler could not be called with an event, registering it raises an error that names the argument."""
    awaits_nothing = (generating, streaming, partial(generating), "paid", Books, partial(Books))
    cases: tuple[tuple[dict[str, Any], str, str], ...] = (
        *(({"name": each}, "name", "a word, such as 'credit'") for each in NAMELESS),
        *(({"kind": each}, "kind", "payment, refund, subscription and *") for each in ("payments", "", None, 7)),
        *(({"function": each}, "handler", "a function without yield, plain or async def") for each in awaits_nothing),
        *(({"function": each}, "handler", TAKES) for each in (lambda: None, two, named, Books.enter)),
        *(({"function": each, "transaction": nullcontext}, "handler", TAKES) for each in (lambda: None, paid, named)),
        ({"transaction": lambda _path: None, "function": two}, "transaction", "is called without arguments"),
        ({"transaction": 1}, "transaction", "must be a function"),
        *(({"expect": each}, "expect", "takes a notification") for each in (lambda: None, lambda _one, _two: None)),
        ({"expect": {"a": 1}}, "expect", "must be a function"),
        ({"unverified": 1}, "unverified", "must be True or False"),
        *(({"kind": each, "unverified": True}, "unverified", "Leave unverified out") for each in ("payment", "refund")),
    )
    for settings, field, words in cases:
        with pytest.raises(ConfigurationError, match=re.escape(words)) as bad:
            handler(**{"kind": "subscription", **settings})

        assert field == bad.value.field, settings


def test_handler_may_take_more() -> None:
    """A function with defaults, or with any arguments, can be called; one without a signature is left alone."""
    accepted: tuple[dict[str, Any], ...] = (
        {"function": shipped},
        {"function": lambda *_: None},
        {"function": lambda *_: None, "transaction": nullcontext},
        {"function": two, "transaction": nullcontext},
        {"function": partial(two, db=1)},
        *({"expect": each} for each in (lambda _: None, lambda _one, _two=2: None, max)),
    )
    for settings in accepted:
        made = handler(**settings)

        assert (settings.get("function", paid), settings.get("expect")) == (made.function, made.expect)
        assert ("transaction" in settings) is (made.transaction is not None)


def test_names_of_handlers_are_distinct() -> None:
    """If two handlers have one name, registering the second raises an error."""
    one, every, credit = handler("payment"), handler("*"), handler("payment", shipped, name="credit")
    for another in (handler("refund"), handler("payment", shipped), credit):
        check_distinct(another, [one])
    others = (handler(kind, shipped, name="paid") for kind in ("payment", "refund"))
    for first, second in ((one, one), (one, every), (every, handler("refund")), *((one, each) for each in others)):
        with pytest.raises(ConfigurationError, match=r"two handlers are named \w+: .*another name: on"):
            check_distinct(second, [first])


LONG = 3600.0


def never() -> None:
    """Warn of what does not happen."""
    raise AssertionError


async def test_what_is_done_though_cancelled_is_done() -> None:
    """If a call returns although its caller was cancelled, it has succeeded."""

    async def called() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done"
        return ""

    task = asyncio.create_task(run_within(LONG, called(), never))
    await turns(10)
    task.cancel()

    assert "done" == await task


async def test_call_that_is_cancelled_before_it_begins_has_ended() -> None:
    """If the task of a call is cancelled before it begins, its caller learns that in the next turns of the loop."""
    called = asyncio.get_running_loop().create_future()
    before, caller = asyncio.all_tasks(), asyncio.create_task(run_within(LONG, called, never))
    await asyncio.sleep(0)
    (inner,) = asyncio.all_tasks() - before - {caller}
    inner.cancel()
    await turns(5)

    assert caller.done()
    assert caller.cancelled()


async def test_cleaning_up_is_not_cut_short() -> None:
    """If a loop's end cancels both a call and its caller, the call's cleanup is not cancelled a second time."""
    steps = list[str]()

    async def called() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await turns(10)
            steps.append("cleaned up")

    before = asyncio.all_tasks()
    caller = asyncio.create_task(run_within(LONG, called(), never))
    await turns(10)
    (inner,) = asyncio.all_tasks() - before - {caller}
    inner.cancel()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller

    assert ["cleaned up"] == steps
