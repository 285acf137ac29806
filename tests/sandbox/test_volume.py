"""A sandbox that has seen much is as quick as a new one."""

import sqlite3
import time
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Final

import aiohttp
import pytest

from payasync.sandbox import Sandbox
from payasync.sandbox.store import Store
from tests.sandbox.foreign import CLOSE, QUERY, Foreign

MANY: Final = 1_000_000
FEW: Final = 1_000
CALLS: Final = 60
ROUNDS: Final = 5
MOST: Final = 2.0
"""How much longer the same calls may take: a scan would take a thousand times as long."""

ORDERS: Final = """
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
INSERT INTO orders SELECT
    'T' || n, 'P' || n, 'token' || n, 'order', 450, 'CAD', 'Coffee', '', NULL, NULL,
    CASE n % 2 WHEN 0 THEN 'pending' ELSE 'paid' END, 0, 0, 1800000000000000 + n
FROM numbers"""
TIMERS: Final = """
INSERT INTO timers (due, kind, reference)
SELECT 9000000000000000 + created, 'expire', out_trade_no FROM orders WHERE state = 'pending'"""
REFUNDS: Final = """
INSERT INTO refunds SELECT 'R' || out_trade_no, out_trade_no, 450, 1, NULL, '', 'succeeded', created
FROM orders WHERE state = 'paid'"""
NOTIFICATIONS: Final = """
INSERT INTO notifications (notification_id, event, reference, url, body, created, state, due, tries, resends)
SELECT
    'msg_' || out_trade_no, 'payment.paid', out_trade_no, 'http://127.0.0.1:1/', '{}', created, 'delivered', NULL, 1, 0
FROM orders WHERE state = 'paid'"""


def filled(path: Path, count: int) -> str:
    """Make a database with so many orders, half of them paid and refunded in part, half of them pending."""
    Store(str(path)).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        # What the timeline keeps is bounded: it is left out, since it would take most of the time.
        for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        for statement in ("PRAGMA synchronous = OFF", "BEGIN"):
            database.execute(statement)
        database.execute(ORDERS, {"count": count})
        for statement in (TIMERS, REFUNDS, NOTIFICATIONS, "COMMIT"):
            database.execute(statement)
    return str(path)


async def seconds(foreign: Foreign, turn: int) -> float:
    """Return the seconds of the processor that some calls take: others that use it are not what is measured."""
    started = time.process_time()
    for count in range(CALLS // 3):
        number = f"N{turn}-{count}"
        statuses = [
            (await foreign.place(number)).status,
            (await foreign.post(QUERY, outTradeNo=f"T{1 + turn * CALLS + count}")).status,
            (await foreign.post(CLOSE, outTradeNo=number)).status,
        ]
        assert [200, 200, 200] == statuses
    return time.process_time() - started


@pytest.mark.long
async def test_a_million_orders_slow_nothing_down(tmp_path: Path, http: aiohttp.ClientSession) -> None:
    """Calls on a million orders take as long as on a thousand."""
    taken: dict[int, list[float]] = {FEW: [], MANY: []}
    async with (
        Sandbox(db=filled(tmp_path / "few.db", FEW), clock="frozen") as few,
        Sandbox(db=filled(tmp_path / "many.db", MANY), clock="frozen") as many,
    ):
        clients = {FEW: Foreign(few, http), MANY: Foreign(many, http)}
        for turn, count in product(range(ROUNDS), clients):
            taken[count].append(await seconds(clients[count], turn))

    assert min(taken[MANY]) < min(taken[FEW]) * MOST, f"{CALLS} calls: {taken}"
