"""The clock: real, frozen or scaled. `advance` performs all that falls due, in order; `settle` waits for it."""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.sandbox import Sandbox
from payasync.sandbox.clock import FASTEST, LATEST, ClockRate, Report, read_clock_rate
from tests.inside import set_writable, store_of
from tests.sandbox.foreign import CLOSE, NOON, Foreign, Receiver, acknowledged


def happened(report: Report) -> list[tuple[str, str]]:
    """Return what happened, and to which numbers."""
    return [(one.what, one.number) for one in report]


async def test_time_stands_or_goes_on() -> None:
    """A frozen clock stands at the machine's time of the start, or at a given time. By default, time goes on.

    `advance` adds to it, and each event has the exact time at which it fell due.
    """
    before = datetime.now(UTC)
    async with Sandbox(clock="frozen") as sandbox, Sandbox(clock=NOON) as at_noon, Sandbox() as real:
        first, again = sandbox.clock.now(), sandbox.clock.now()
        number, started = await real.given.subscription("daily"), real.clock.now()
        await real.clock.advance(days=3)

        assert before <= first == again == sandbox.clock.now() <= datetime.now(UTC)
        assert NOON == at_noon.clock.now()
        # The two clocks of a machine differ by microseconds.
        assert abs(started - before) < timedelta(minutes=1)
        assert timedelta(days=3) <= real.clock.now() - started < timedelta(days=3, minutes=1)
        assert {time(0)} == {charge.at.time() for charge in real.ledger.charges(number)[1:4]}


async def test_order_expires_by_itself_in_scaled_time(receiver: Receiver) -> None:
    """At 10,000 times real time, an order expires after 180 milliseconds and is notified."""
    arrived = asyncio.Event()

    async def take() -> web.Response:
        arrived.set()
        return acknowledged()

    receiver.answer = take
    async with Sandbox(clock="10000x") as sandbox:
        number = await sandbox.given.pending_order(notify_url=receiver.url)
        async with asyncio.timeout(30):
            await arrived.wait()

        assert "expired" == sandbox.ledger.order_state(number)


async def test_report(receiver: Receiver) -> None:
    """`advance` reports what fell due, oldest first, with times and numbers; a paid order does not expire."""
    async with Sandbox(clock=NOON, webhook_url=receiver.url) as sandbox:
        await sandbox.given.pending_order(out_trade_no="T1")
        paid = await sandbox.given.paid_order(notify_url="http://127.0.0.1:1/")
        await sandbox.clock.advance(minutes=10)
        await sandbox.given.pending_order(out_trade_no="T2")
        report = await sandbox.clock.advance(timedelta(minutes=30))

        assert "paid" == sandbox.ledger.order_state(paid)
    assert [
        ("order expired", "T1"),
        ("payment.expired delivered", "T1"),
        ("order expired", "T2"),
        ("payment.expired delivered", "T2"),
    ] == [each for each in happened(report) if each[1] != paid]
    assert (NOON + timedelta(minutes=10), NOON + timedelta(minutes=40)) == (report.since, report.until)
    assert f"2027-01-31T12:10:00.000Z to 2027-01-31T12:40:00.000Z: {len(report)} fell due" in str(report)
    assert "2027-01-31T12:30:00.000Z  order expired  T1" in str(report).splitlines()
    assert ["2027-01-31T12:30:00.000Z", "2027-01-31T12:40:00.000Z"] == [
        one.document["timestamp"] for one in receiver.received
    ]


async def test_thirteen_renewals_in_one_advance(frozen: Sandbox, receiver: Receiver) -> None:
    """A monthly subscription from 31 January renews on the last day of each month, once per period, in order."""
    number = await frozen.given.subscription(start_date=date(2027, 1, 31))
    report = await frozen.clock.advance(days=396)
    charges = frozen.ledger.charges(number)

    assert 13 == happened(report).count(("subscription renewed", number))
    assert [
        *("27-01-31", "27-02-28", "27-03-31", "27-04-30", "27-05-31", "27-06-30", "27-07-31", "27-08-31"),
        *("27-09-30", "27-10-31", "27-11-30", "27-12-31", "28-01-31", "28-02-29"),
    ] == [f"{charge.at:%y-%m-%d}" for charge in charges]
    assert list(range(1, 15)) == [charge.period for charge in charges]
    assert list(range(2, 15)) == [one.document["data"]["period"] for one in receiver.received]
    assert sorted(report.happened, key=lambda one: one.at) == list(report)


async def test_receiver_sees_the_moment_and_may_call_back(http: aiohttp.ClientSession, receiver: Receiver) -> None:
    """While the clock is advanced, a receiver that calls the sandbox sees the time of the event."""
    async with Sandbox(clock=NOON, webhook_url=receiver.url) as sandbox:
        foreign = Foreign(sandbox, http)
        await foreign.place("T1")
        await sandbox.clock.advance(minutes=10)
        await foreign.place("T2")
        seen = list[tuple[datetime, int]]()

        async def close_the_other() -> web.Response:
            answer = await foreign.post(CLOSE, outTradeNo="T2")
            seen.append((sandbox.clock.now(), answer.status))
            return acknowledged()

        receiver.answer = close_the_other
        await sandbox.clock.advance(minutes=25)

        assert (NOON + timedelta(minutes=30), 200) == seen[0]
        assert ("expired", "closed") == (sandbox.ledger.order_state("T1"), sandbox.ledger.order_state("T2"))
    assert ["payment.expired", "payment.closed"] == [one.document["type"] for one in receiver.received]


async def test_many_timers_leave_room_for_requests(http: aiohttp.ClientSession) -> None:
    """A request gets its response while a thousand orders expire. Concurrent calls of `advance` add up."""
    async with Sandbox(clock=NOON) as sandbox:
        for count in range(1000):
            await sandbox.given.pending_order(out_trade_no=f"T{count}")
        advancing = asyncio.gather(*(sandbox.clock.advance(hours=1) for _ in range(3)))
        answer = await Foreign(sandbox, http).place("X1")
        early = not advancing.done()
        reports = await advancing

        assert NOON + timedelta(hours=3) == sandbox.clock.now()
    assert (200, True) == (answer.status, early)
    assert [NOON + timedelta(hours=hours) for hours in (1, 2, 3)] == [report.until for report in reports]
    assert 1000 == [one.what for one in reports[0] if one.number != "X1"].count("order expired")


async def test_invalid_span(frozen: Sandbox) -> None:
    """`advance` refuses invalid spans, to go back, or beyond the calendar; the time does not change."""
    spans: list[tuple[Any, dict[str, Any]]] = [
        *(((), {"days": days}) for days in (-1, "1", 1e12, 4_000_000)),
        ((), {"months": 1}),
        *(((span,), {}) for span in (timedelta(seconds=-1), 5)),
        ((timedelta(1),), {"days": 1}),
    ]
    for span, given in spans:
        with pytest.raises(InvalidArgumentError, match="advance must be given"):
            await frozen.clock.advance(*span, **given)

    assert NOON == frozen.clock.now()


def leave(folder: Path, to: Path) -> None:
    """Copy a database with its log, as a kill would leave them now."""
    to.mkdir()
    for file in folder.glob("sandbox.db*"):
        shutil.copy(file, to)


async def test_restart_goes_on_from_the_time_of_the_file(tmp_path: Path) -> None:
    """If a sandbox is killed after `advance`, its file continues from the advanced time.

    A restarted sandbox first performs what fell due: orders have expired.
    """
    path, left = tmp_path / "sandbox.db", tmp_path / "left"
    async with Sandbox(clock=NOON, db=path) as killed:
        await killed.clock.advance(days=100)
        leave(tmp_path, left)
    async with Sandbox(clock="frozen", db=left / "sandbox.db") as sandbox:
        assert NOON + timedelta(days=100) == sandbox.clock.now()
    async with Sandbox(db=tmp_path / "real.db") as sandbox:
        numbers = [await sandbox.given.pending_order() for _ in range(100)]
    with closing(sqlite3.connect(tmp_path / "real.db", isolation_level=None)) as file:
        # As if the sandbox had not run for an hour.
        file.execute("UPDATE clock SET wall = wall - 3600 * 1000000")
    async with Sandbox(db=tmp_path / "real.db") as sandbox:
        assert {"expired"} == {sandbox.ledger.order_state(number) for number in numbers}


async def test_closed_while_somebody_waits(receiver: Receiver) -> None:
    """If the sandbox is closed, a waiting `settle` raises `ConfigurationError`."""
    held = receiver.hold()
    async with Sandbox(webhook_url=receiver.url) as sandbox:
        await sandbox.given.paid_order()
        waiting = asyncio.create_task(sandbox.settle())
        await held.asked.wait()
    held.released.set()

    with pytest.raises(ConfigurationError, match="was closed before"):
        await waiting


async def test_database_that_cannot_be_written(http: aiohttp.ClientSession) -> None:
    """If the database cannot be written, requests are refused, all else raises an error, and nothing is done."""
    sandbox = await Sandbox(clock=NOON).start()
    store, foreign = store_of(sandbox), Foreign(sandbox, http)
    number = await sandbox.given.pending_order()
    set_writable(store, writable=False)
    failed = await foreign.place("T1")
    for act in (sandbox.given.paid_order, partial(sandbox.clock.advance, minutes=30), sandbox.settle):
        with pytest.raises(ConfigurationError, match="db: the sandbox's database cannot be written"):
            await act()
    set_writable(store, writable=True)
    placed, state = await foreign.place("T1"), sandbox.ledger.order_state(number)
    set_writable(store, writable=False)
    with pytest.raises(ConfigurationError, match="db: the sandbox's database cannot be written"):
        await sandbox.close()

    assert [(500, "SBX_BUSY"), (200, "SBX_OK")] == [failed.result, placed.result]
    assert "pending" == state


def test_settings() -> None:
    """A clock is set by a word, a factor, or the time at which it stands; another value is refused with these."""
    words: dict[Any, float] = {
        "real": 1.0,
        "frozen": 0.0,
        60: 60.0,
        0.5: 0.5,
        "60x": 60.0,
        "1.5": 1.5,
        FASTEST: FASTEST,
    }
    wrong: list[Any] = [
        *("", "fast", "x", "-1x", "60 x", "0x", "1e5", "infx"),
        *(0, -1, float("nan"), float("inf"), FASTEST + 1, True, None, [60]),
        *(datetime(2027, 1, 31), LATEST, datetime(1969, 12, 31, tzinfo=UTC)),  # noqa: DTZ001 - it is to be refused
    ]

    assert [ClockRate(rate) for rate in words.values()] == [read_clock_rate(word) for word in words]
    assert ClockRate(0.0, NOON) == read_clock_rate(NOON.astimezone(timezone(timedelta(hours=9))))
    for setting in wrong:
        with pytest.raises(ConfigurationError, match='clock must be "real", "frozen"') as refused:
            read_clock_rate(setting)

        assert "clock" == refused.value.field


def test_restart() -> None:
    """After a restart, a real clock includes the time in between, other clocks do not, and none goes backwards."""
    for rate, away, expected in (
        (1.0, timedelta(hours=1), NOON + timedelta(hours=1)),
        (1.0, timedelta(hours=-1), NOON),
        (1.0, timedelta(days=4_000_000), LATEST),
        (0.0, timedelta(hours=1), NOON),
        (60.0, timedelta(hours=1), NOON),
    ):
        assert expected == ClockRate(rate).resume(NOON, away)
