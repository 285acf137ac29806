"""The row `statements`: each statement of a journal in a large one, beside a small one, by its plan and its time."""

import asyncio
import random
import sqlite3
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import psycopg
from attrs import frozen

from benchmarks.rows import Figure, Run
from payasync.journal import PostgresJournal, transactions
from payasync.journal.journal import PRUNED_TOGETHER
from payasync.journal.postgres_journal import SCHEMA as POSTGRES
from payasync.journal.sqlite_journal import SCHEMA
from payasync.storage.postgres import to_psycopg
from payasync.storage.sqlite import open_database
from payasync.storage.sqlite_runner import binding, fetch_rows, names_in, picker, sqlite_statement
from tests.plans import Plan, plan
from tests.postgres import postgres

FEW: Final = 1_000
MANY: Final = 1_000_000
MOST: Final = 2.0
EXECUTIONS: Final = 100
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
DUE, HELD, NEW, SENDING, ACCEPTED = range(5)
KINDS: Final = 100
"""The kind of a row is its number modulo this. All other rows have ended, and all after the first `FEW`."""
BESIDE: Final = 10_000
"""Open rows of another merchant, of all kinds."""
FIRST: Final = 10_000_000
"""Numbers of a merchant count from here: they are stored in the order of their time, as those of most programs."""
HASH: Final = "0123456789abcdef" * 4
REQUEST: Final = '{"out_trade_no": "T1", "total_amt": 450}'
REQUESTS: Final = f"""'{{"out_trade_no": "T' || ({FIRST} + n) || '", "total_amt": 450}}'"""
"""Each refund is of an order of its own."""
FILL: Final = f"""
WITH RECURSIVE count (n) AS (SELECT CAST(:first AS integer) UNION ALL SELECT n + 1 FROM count WHERE n < :last)
INSERT INTO payasync_intents
    (operation, merchant, reference, number, intent, hash, request, queued, attempts, fence, state, lease, due,
     created, updated)
SELECT
    'refunds.create', :merchant, 'R' || ({FIRST} + n), 'refunds.create:' || 'R' || ({FIRST} + n),
    'intent ' || ({FIRST} + n), '{HASH}', {REQUESTS}, 1 = 0, 1, 1,
    CASE kind WHEN {DUE} THEN 'unknown' WHEN {HELD} THEN 'unknown' WHEN {NEW} THEN 'new' WHEN {SENDING} THEN 'sending'
        WHEN {ACCEPTED} THEN 'accepted' ELSE 'succeeded' END,
    CASE WHEN kind IN ({HELD}, {SENDING}) THEN moment END, CASE WHEN kind IN ({DUE}, {ACCEPTED}) THEN moment END,
    moment, moment
FROM (
    SELECT n, :start + n * :second AS moment, CASE WHEN n <= :open THEN n % :kinds ELSE :kinds END AS kind FROM count
) AS numbered"""  # noqa: S608 - numbers of ours
SERVICES: Final = """
INSERT INTO payasync_services (merchant, service)
VALUES ('M1', 'https://used.example'), ('M2', 'https://unused.example')"""

STATEMENTS: Final[Mapping[str, str]] = {
    name.upper(): value for name, value in transactions.SQL.items() if "payasync_intents" in value
}
"""The statements that read or change intents, by their names. The merchants' services are one row each."""
UNUSED: Final = "DONE_THERE, unused service"
OF_ONE_MERCHANT: Final = ("DUE", "NEXT_DUE", "COUNT_UNSENT_OF")
"""What a turn of a reconciler executes. These do not read the rows of another merchant."""
CASES: Final[Mapping[str, tuple[str, dict[str, Any]]]] = {
    **{name: (name, {}) for name in STATEMENTS},
    "DUE, merchant without intents": ("DUE", {"merchant": "M2"}),
    "NEXT_DUE, merchant without intents": ("NEXT_DUE", {"merchant": "M2"}),
    UNUSED: ("DONE_THERE", {"old": "https://unused.example"}),
}
"""What is measured: each statement, and some again with other values."""
READING: Final = {UNUSED}
"""This reads all intents of the other services, and has no budget: a person asks for it once."""
STOPPING: Final = {"DONE_THERE"}
"""PostgreSQL reads rows until one fits. Most rows do."""
OF_KIND: Final = {
    "ASK": DUE,
    "NOTE": NEW,
    "NOTE_USED": HELD,
    "POSTPONE": HELD,
    "QUEUE": NEW,
    "SEND": NEW,
    "SETTLE": HELD,
}
"""The kind of row that a statement changes. Any other statement is given any row."""
DRAFT: Final[dict[str, Any]] = {
    "reference": "R0",
    "number": "refunds.create:R0",
    "intent": "intent 0",
    "state": "sending",
    "lease": timedelta(minutes=1),
    "fence": 1,
    "idempotency_key": None,
    "service": None,
    "hash": HASH,
}
"""Of `ADD`, which stores a new row."""
STATES: Final = {"RESOLVE": "succeeded", "COUNT": "manual", "LIST_OF_STATE": "manual", "LIST_OF_ORDER": None}
"""No row is `manual`: a statement that looks for one must not read the others."""


def values_to_fill(first: int, last: int, merchant: str = "M1") -> dict[str, Any]:
    """Return the values of `FILL`. Merchant `M1` has few open rows; all rows of any other merchant are open."""
    values = {"first": first, "last": last, "merchant": merchant}
    return values | ({"open": FEW, "kinds": KINDS} if merchant == "M1" else {"open": last, "kinds": ACCEPTED + 1})


def values_for(name: str, number: int) -> dict[str, Any]:
    """Return the values with which a statement is executed.

    Args:
        name: The statement's.
        number: Of the row that the statement is about.
    """
    moment = START + timedelta(seconds=number)
    nothing = dict.fromkeys(("key", "key_sent", "key_tick", "named", "outcome", "silent_since", "tick"))
    values = {
        **nothing,
        "after": 0 if name in {"LIST_OF_STATE", "LIST_OF_ORDER"} else number,
        "again": False,
        "answered": False,
        "attempts": 1,
        "before": START + timedelta(days=1000),
        "order": f"T{FIRST + number}",
        "since": None,
        "by": START + timedelta(days=1000),
        "denied": 0,
        "due": moment,
        "fence": 1,
        "id": number,
        "intent": f"intent {FIRST + number}",
        "interrupted": "",
        "least": START,
        "manual": False,
        "limit": PRUNED_TOGETHER if name == "PRUNE" else 5,
        "merchant": "M1",
        "now": moment,
        "number": f"refunds.create:R{FIRST + number}",
        "odd": 1,
        "ineffective": 1,
        "old": "https://used.example",
        "operation": "refunds.create",
        "questions": 8,
        "queued": False,
        "reason": "noted",
        "reference": f"R{FIRST + number}",
        "request": REQUEST,
        "sent_at": moment,
        "silent": 0,
        "state": STATES.get(name, "unknown"),
        "until": None if name.startswith("LIST") else moment,
    }
    return values | DRAFT if name == "ADD" else values


def _values_of(case: str, rows: int) -> dict[str, Any]:
    """Return the values of a case, for one row of a journal."""
    name, others = CASES[case]
    kind = OF_KIND.get(name)
    row = random.randrange(rows) if kind is None else random.randrange(FEW // KINDS) * KINDS + kind  # noqa: S311
    return values_for(name, row or KINDS) | others


@frozen
class Measured:
    """What the cases cost in a journal of some size.

    Attributes:
        seconds: The median time of an execution, by case.
        scans: The cases that read all rows.
        beside: As `seconds`, of `OF_ONE_MERCHANT`, when the journal has many open rows of another merchant, too.
    """

    seconds: Mapping[str, float]
    scans: frozenset[str]
    beside: Mapping[str, float]


def statements(run: Run) -> Iterator[Figure]:
    """Each statement of a journal, by plan and time, in a large journal beside a small one."""
    large = MANY // 10 if run.quick else MANY
    few, many = (_on_sqlite(run.folder / f"statements-{rows}.db", rows) for rows in (FEW, large))
    yield from _compare("SQLite", few, many, "CPU time")
    few, many = (asyncio.run(_on_postgres(rows)) for rows in (FEW, large))
    yield from _compare("PostgreSQL", few, many, "wall time")


def _compare(database: str, few: Measured, many: Measured, measured: str) -> Iterator[Figure]:
    scans = many.scans - READING
    yield Figure(f"{database}, statements that read all rows", len(scans), "", most=0, measured="plan")
    for case in sorted(scans):
        yield Figure(f"{database}, {case}: reads all rows", 1, "", most=0, measured="plan")
    for case, seconds in many.seconds.items():
        most = None if case in READING else MOST
        yield Figure(f"{database}, {case}", seconds / few.seconds[case], most=most, measured=measured)
    for case, seconds in few.beside.items():
        name = f"{database}, {case}, beside {BESIDE:,} open rows of another merchant"
        yield Figure(name, seconds / few.seconds[case], most=MOST, measured=measured)


def _on_sqlite(path: Path, rows: int) -> Measured:
    with closing(open_database(str(path), SCHEMA)) as db:
        fill_sqlite(db, **values_to_fill(1, rows))
        db.execute(SERVICES)
        scans = {case for case in CASES if _reads_all(db, case)}
        seconds = {case: statistics.median(_seconds(db, case, rows) for _ in range(_times(case))) for case in CASES}
        fill_sqlite(db, **values_to_fill(1, BESIDE, "M3"))
        beside = {
            case: statistics.median(_seconds(db, case, rows) for _ in range(EXECUTIONS)) for case in OF_ONE_MERCHANT
        }
        return Measured(seconds, frozenset(scans), beside)


def fill_sqlite(db: sqlite3.Connection, **values: Any) -> None:
    """Store intents, as `values_to_fill` says."""
    db.execute(FILL, {**values, "start": START.timestamp(), "second": 1.0})


def _reads_all(db: sqlite3.Connection, case: str) -> bool:
    text = _of_sqlite(case)
    row = picker(names_in(text))(_values_of(case, FEW))
    bound = binding(text, tuple(map(type, row)))
    steps = db.execute(f"EXPLAIN QUERY PLAN {bound.text}", bound.bind(row))
    return any(step == "SCAN payasync_intents" for *_, step in steps)


def _seconds(db: sqlite3.Connection, case: str, rows: int) -> float:
    """Return the CPU time of a second execution for the same row.

    How long pages take to come into memory depends on the machine, and not on the statement.
    """
    values = _values_of(case, rows)
    _execute(db, case, values)
    return _execute(db, case, values)


def _execute(db: sqlite3.Connection, case: str, values: Mapping[str, Any]) -> float:
    text = _of_sqlite(case)
    db.execute("BEGIN IMMEDIATE")
    before, started = db.total_changes, time.thread_time()
    fetch_rows(db, text, values)
    taken = time.thread_time() - started
    _check_changes(case, db.total_changes - before)
    db.execute("ROLLBACK")
    return taken


def _of_sqlite(case: str) -> str:
    return sqlite_statement(STATEMENTS[CASES[case][0]], SCHEMA.adapt).fast


def _check_changes(case: str, changed: int) -> None:
    """Refuse to measure a statement that should change a row and does not."""
    if not changed and _changes(case):
        raise RuntimeError(f"{case} changes nothing")


def _changes(case: str) -> bool:
    return not STATEMENTS[CASES[case][0]].lstrip().startswith("SELECT")


async def _on_postgres(rows: int) -> Measured:
    seconds, scans = dict[str, float](), set[str]()
    with postgres() as server:
        async with PostgresJournal(server.dsn) as journal:
            await journal.next_due()
        async with await psycopg.AsyncConnection.connect(server.dsn, autocommit=True) as connection:
            await connection.execute(SERVICES)
            await fill_postgres(connection, **values_to_fill(1, rows))
            # Statements that change rows come last: their rolled-back rows would slow down the others for a while.
            for case in sorted(CASES, key=_changes):
                plans = await _plans(connection, case, rows)
                seconds[case] = statistics.median(each.seconds for each in plans)
                if CASES[case][0] not in STOPPING and any("Seq Scan" in each.steps for each in plans):
                    scans.add(case)
            await fill_postgres(connection, **values_to_fill(1, BESIDE, "M3"))
            beside = {
                case: statistics.median(each.seconds for each in await _plans(connection, case, rows))
                for case in OF_ONE_MERCHANT
            }
    return Measured(seconds, frozenset(scans), beside)


async def _plans(connection: psycopg.AsyncConnection[Any], case: str, rows: int) -> list[Plan]:
    """Return the plans of second executions, each for one row."""
    name, plans = CASES[case][0], []
    for _ in range(_times(case)):
        values = _values_of(case, rows)
        await plan(connection, of_postgres(name), values)
        plans.append(await plan(connection, of_postgres(name), values))
        _check_changes(case, plans[-1].rows)
    return plans


def _times(case: str) -> int:
    return EXECUTIONS // 10 if case in READING else EXECUTIONS


async def fill_postgres(connection: psycopg.AsyncConnection[Any], **values: Any) -> None:
    """Store intents, as `values_to_fill` says, and let the planner see them."""
    filling = FILL.replace("% ", "%% ").replace(REQUESTS, f"CAST({REQUESTS} AS json)")
    text = to_psycopg(filling, POSTGRES.adapt).encode()
    await connection.execute(text, {**values, "start": START, "second": timedelta(seconds=1)})
    await connection.execute("VACUUM ANALYZE payasync_intents")


@cache
def of_postgres(name: str) -> str:
    """Return a statement as PostgreSQL executes it."""
    return to_psycopg(STATEMENTS[name], POSTGRES.adapt)
