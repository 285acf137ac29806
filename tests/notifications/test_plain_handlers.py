"""Plain functions as handlers: each is called in a thread of its own, and runs once at a time."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import define, field
from sqlalchemy.ext.asyncio import create_async_engine

from payasync import ConfigurationError
from payasync.clocks import Clocks, use_clocks
from payasync.notifications import Notification, SqliteInbox
from tests.inside import turns, until
from tests.notifications.databases import EFFECT, IN_A_FILE, Database, by_aiosqlite, by_sqlite3, plainly
from tests.notifications.merchant import PAID, Clock, Shop, opened

LONG: Final = 30
"""Seconds after which a thread goes on in any case, so that a test that fails ends."""


@define
class Blocking:
    """A plain function that blocks its thread until it may go on.

    Attributes:
        go: Lets it go on.
        now: How many calls run.
        most: The most that ran together.
        threads: The thread of each call.
    """

    go: threading.Event = field(factory=threading.Event)
    now: int = 0
    most: int = 0
    threads: list[threading.Thread] = field(factory=list)
    _lock: Any = field(factory=threading.Lock)

    def __call__(self, _: Notification) -> None:
        """Block."""
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.threads.append(threading.current_thread())
        try:
            self.go.wait(LONG)
        finally:
            with self._lock:
                self.now -= 1

    @property
    def calls(self) -> int:
        """How often it was called."""
        return len(self.threads)


def blocking(shop: Shop) -> Blocking:
    """Register such a function."""
    handler = Blocking()
    shop.receiver.on("payment", name="credit")(handler)
    return handler


async def begun(shop: Shop) -> Blocking:
    """Have a plain function called with an event, and block."""
    handler = blocking(shop)
    await shop.take()
    await until(lambda: handler.now)
    return handler


async def test_loop_goes_on_while_it_blocks(shop: Shop) -> None:
    """A plain function does not block the loop, and needs no free thread of the program's own `asyncio.to_thread`."""
    with ThreadPoolExecutor(1) as threads:
        asyncio.get_running_loop().set_default_executor(threads)
        handler = blocking(shop)
        busy = asyncio.ensure_future(asyncio.to_thread(handler.go.wait, LONG))
        await shop.take()
        await until(lambda: handler.now)
        handler.go.set()
        event = await shop.last()
        await busy

    assert ("done", 1, 1) == (event.state, event.attempts, handler.calls)


async def test_threads_are_few_and_end(tmp_path: Path) -> None:
    """At most `concurrency` threads run plain functions, and none is left when the receiver is closed."""
    async with opened(tmp_path, concurrency=2) as shop:
        handler = blocking(shop)
        for number in range(5):
            await shop.take({**PAID, "outTradeNo": f"T{number}"})
        await until(lambda: handler.now == 2)
        await turns(100)
        running = handler.now
        handler.go.set()
        await shop.receiver.settle()
        states = await shop.states()
    await until(lambda: not any(each.is_alive() for each in handler.threads))

    assert (2, 2, 5, ["done"] * 5) == (running, handler.most, handler.calls, states)


async def test_timeout_waits_for_its_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A plain function beyond `handler_timeout` is not called again: one warning is logged, and its end counts."""
    async with opened(tmp_path, handler_timeout=0.01) as shop:
        handler = await begun(shop)
        await until(lambda: "credit has not ended for event 1" in caplog.text)
        shop.clock.advance(4000)
        await until(lambda: shop.clock.sleeping(20))
        handler.go.set()
        event = await shop.last()

    assert ("done", 1, 0, 1) == (event.state, event.attempts, event.failures, handler.calls)
    assert 1 == caplog.text.count("has not ended")


async def test_coroutine_that_cannot_be_cancelled_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A coroutine that swallows its cancellation is not called again before it has ended. Then it has failed.

    Other events are handled, and an error that it raises so late is only the log's.
    """
    monkeypatch.setattr("payasync.notifications.worker.CANCELLATION_SECONDS", 0.01)
    async with opened(tmp_path, concurrency=2, handler_timeout=0.01) as shop:
        calls, let_go = list[str | None](), asyncio.Event()

        @shop.receiver.on("payment")
        async def ship(notification: Notification) -> None:
            calls.append(notification.out_trade_no)
            while notification.out_trade_no == "H1" and not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue
            if notification.out_trade_no == "H1":
                raise ValueError("too late")

        for number in ("H1", "T1", "T2"):
            await shop.take({**PAID, "outTradeNo": number})
        try:
            await until(lambda: "has not ended for event 1" in caplog.text)
            shop.clock.advance(4000)
            await until(lambda: len(calls) == 3)
        finally:
            let_go.set()
        await shop.receiver.settle()
        first, *others = await shop.receiver.events()

    assert (["H1", "T1", "T2"], ["done", "done"]) == (calls, [each.state for each in others])
    assert ("pending", 1) == (first.state, first.failures)
    assert "TimeoutError: not done after 0.01 seconds" in first.reason


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("new", [lambda handler: handler.__call__, partial], ids=["method", "partial"])
async def test_thread_that_outlives_its_receiver_is_waited_for(
    new: Callable[[Blocking], Any],  # a new object for each receiver
    tmp_path: Path,
    *,
    is_lost: bool,
) -> None:
    """A new receiver calls a plain function only after the call of the closed one has ended, and with a lease."""
    clock, handler, boot = Clock(), Blocking(), [0.0]
    use_clocks(Clocks(boot=lambda: boot[-1]))
    async with opened(tmp_path, clock=clock, lease=30) as shop:
        shop.receiver.on("payment", name="credit")(new(handler))
        await shop.take()
        await until(lambda: handler.now)
    async with opened(tmp_path, clock=clock, lease=30) as shop:
        shop.receiver.on("payment", name="credit")(new(handler))
        async with shop.receiver:
            while (await shop.receiver.events())[0].attempts < 2:
                clock.advance(31)
            await turns(1000)
            if is_lost:
                async with aclosing(SqliteInbox(shop.path, clock=lambda: clock() + 31)) as other:
                    await other.claim(1, 30)
                boot.append(1e12)  # a suspension: the receiver must look whether it has the lease
            handler.go.set()
            event = await shop.last()

    assert (("leased", 1, 1) if is_lost else ("done", 2, 1)) == (event.state, handler.calls, handler.most)


@pytest.mark.parametrize("case", ["inbox", "handler"])
async def test_thread_of_another_event_is_not_waited_for(case: str, tmp_path: Path) -> None:
    """A thread that outlives its receiver delays neither an event of another inbox with the same key, nor a handler."""
    async with opened(tmp_path, lease=30) as shop:
        handler = await begun(shop)
    folder = tmp_path / "other" if case == "inbox" else tmp_path
    async with opened(folder, lease=30, clock=Clock(shop.clock() + 31)) as shop:
        shop.receiver.on("payment", name="credit" if case == "inbox" else "mail")(handler)
        await shop.take()
        await until(lambda: handler.now == 2)
        handler.go.set()
        event = await shop.last()

    assert ("done", 2) == (event.state, handler.calls)


@pytest.mark.parametrize(("grace", "state"), [(0, "leased"), (60, "done")])
async def test_closing_waits_within_the_grace(grace: float, state: str, tmp_path: Path) -> None:
    """Within the grace, a plain function ends. After it, the function goes on, and its event is left to the lease."""
    clock = Clock()
    async with opened(tmp_path, clock=clock, lease=30) as shop:
        handler = await begun(shop)
        closing_now = asyncio.create_task(shop.receiver.aclose(grace=grace))
        await turns(100)
        if grace:
            handler.go.set()
        await closing_now
    async with opened(tmp_path, clock=clock, lease=30) as next_one:
        got = next_one.recording(name="credit")
        early = (await next_one.last()).state, len(got)
        handler.go.set()
        event = await next_one.later(31)

    assert ((state, 0), "done") == (early, event.state)
    assert (1, int(not grace)) == (handler.calls, len(got))


def test_loop_that_ends_leaves_a_thread_to_its_lease(tmp_path: Path) -> None:
    """If a script ends without closing its receiver, an event whose thread still runs is not due before its lease."""
    shop = Shop(tmp_path)

    async def look() -> list[str]:
        async with asyncio.timeout(LONG), aclosing(SqliteInbox(shop.path, clock=shop.clock)) as inbox:
            states: list[str] = [each.state for each in await inbox.events()]
        await shop.receiver.aclose()
        return states

    handler = asyncio.run(begun(shop))
    states = asyncio.run(look())
    handler.go.set()

    assert ["leased"] == states


async def test_plain_function_may_close_its_receiver(shop: Shop) -> None:
    """If a plain function closes its receiver, `aclose` does not wait for that function."""
    loop, closed = asyncio.get_running_loop(), threading.Event()

    @shop.receiver.on("payment")
    def stop(_: Notification) -> None:
        asyncio.run_coroutine_threadsafe(shop.receiver.aclose(grace=3600), loop).result(LONG)
        closed.set()

    await shop.take()
    await until(closed.is_set)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError(450), "ValueError: 450"),
        (StopIteration(), "RuntimeError: coroutine raised StopIteration"),
        (asyncio.CancelledError(), "CancelledError"),
        (TimeoutError("the bank"), "TimeoutError: the bank"),
    ],
)
async def test_plain_function_that_raises_is_called_again(
    error: BaseException, reason: str, shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a plain function raises, it has failed, and is called again. The log says where it was."""
    attempts = list[int]()

    @shop.receiver.on("payment", name="credit")
    def fail_once(notification: Notification) -> None:
        attempts.append(notification.attempt)
        if notification.attempt == 1:
            raise error

    failed, done = await shop.handled(), await shop.later(1)

    assert ("pending", 1, f"credit: {reason}") == (failed.state, failed.failures, failed.reason)
    assert ("done", [1, 2]) == (done.state, attempts)
    assert isinstance(error, StopIteration) or "in fail_once" in caplog.text


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a plain function that calls another one, as decorators do."""

    def wrapper(*given: Any) -> Any:
        return function(*given)

    return wrapper


class Credit(list[threading.Thread]):
    """Needs the loop, and fails once; it has the thread of each call."""

    async def __call__(self, notification: Notification) -> None:
        """Credit."""
        await asyncio.sleep(0)
        self.append(threading.current_thread())
        if notification.attempt == 1:
            raise ValueError("not now")


@pytest.mark.parametrize("made", [wrapped, lambda credit: credit, partial], ids=["wrapped", "itself", "partial"])
async def test_coroutine_of_a_plain_function_is_awaited(made: Callable[[Credit], Any], shop: Shop) -> None:
    """If a plain function returns a coroutine, as a decorator's may, the coroutine is awaited in the loop."""
    credit = Credit()
    shop.receiver.on("payment", name="credit")(made(credit))
    failed, done = await shop.handled(), await shop.later(1)

    assert ("pending", "credit: ValueError: not now", "done") == (failed.state, failed.reason, done.state)
    assert [threading.current_thread()] * 2 == credit


@pytest.mark.parametrize("driver", [each for each in IN_A_FILE if each is not by_aiosqlite])
async def test_whole_transaction_has_one_thread(driver: Callable[[Path], Database], tmp_path: Path) -> None:
    """With `transaction=`, a plain function is called in the thread that begins and ends its transaction.

    Its effect is committed once, and undone if it fails.
    """
    database, threads, called = driver(tmp_path / "shop.db"), list[threading.Thread](), list[threading.Thread]()

    def begin() -> Any:
        threads.append(threading.current_thread())
        return database.begin()

    async with opened(tmp_path) as shop:

        @shop.receiver.on("payment", transaction=begin)
        def credit(notification: Notification, connection: Any) -> None:
            called.extend([threading.current_thread(), threads[-1]])
            database.execute(connection, EFFECT)
            if notification.attempt == 1:
                raise ValueError("not now")

        async with shop.receiver:
            await shop.handled()
            undone = database.count()
            event = await shop.later(1)

        assert ("done", 0, 1, 1) == (event.state, undone, database.count(), database.marks())
        assert called[::2] == called[1::2]
        assert threading.current_thread() not in threads


@asynccontextmanager
async def awaiting() -> AsyncGenerator[None]:
    """Begin nothing."""
    yield None


@pytest.mark.parametrize(
    ("begin", "says"),
    [
        (awaiting, "a plain function needs a plain context manager"),
        (create_async_engine("sqlite+aiosqlite://").begin, "a plain function needs a plain context manager"),
        (list, "must return a context manager, not list"),
    ],
)
async def test_transaction_that_a_plain_function_cannot_use_is_refused(begin: Any, says: str, shop: Shop) -> None:
    """If a plain function's transaction can only be awaited, the receiver does not start, and says what to give."""

    @shop.receiver.on("payment", transaction=begin)
    def credit(_: Notification, connection: Any) -> None:
        raise AssertionError(connection)

    with pytest.raises(ConfigurationError, match=says):
        await shop.receiver.__aenter__()


async def test_transaction_awaits_nothing_in_a_thread(shop: Shop, tmp_path: Path) -> None:
    """If a plain function with `transaction=` returns a coroutine that waits, it has failed: its effect is undone."""
    database = by_sqlite3(tmp_path / "shop.db")

    async def credit(_: Notification, connection: sqlite3.Connection) -> None:
        plainly(connection, EFFECT)
        await asyncio.sleep(0)

    shop.receiver.on("payment", transaction=database.begin, name="credit")(wrapped(credit))
    event = await shop.handled()

    assert ("pending", 0, 0) == (event.state, database.count(), database.marks())
    assert "credit: RuntimeError: a coroutine cannot wait" in event.reason
