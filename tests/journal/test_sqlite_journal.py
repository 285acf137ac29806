import asyncio
import re
import sqlite3
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import aiosqlite
import pytest
from attrs import evolve

from benchmarks.statements import OF_ONE_MERCHANT, STATEMENTS
from payasync.errors import ConfigurationError, StorageError
from payasync.journal import PostgresJournal, transactions
from payasync.journal.intents import State, Step
from payasync.journal.journal import PRUNED_TOGETHER
from payasync.journal.sqlite_journal import SCHEMA, SqliteJournal
from payasync.storage import Schema
from payasync.storage.sqlite import SqliteFile
from payasync.storage.sqlite_runner import ROWS, shared_statement, sqlite_statement
from tests.inside import turns
from tests.journal.building import LEASE, MERCHANT, Clock, content, draft, move_away, refund
from tests.works import asking


async def references(path: Path) -> list[str | None]:
    """Return the references of the intents in a journal's file."""
    async with SqliteJournal(path) as journal:
        return [each.reference for each in await journal.list()]


async def test_inbox_is_no_journal(path: Path, journal: SqliteJournal) -> None:
    """If the file is an inbox, the journal refuses it and leaves it unchanged."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript("PRAGMA application_id = 0x50617969; CREATE TABLE events (a)")
    before = content(path)
    with pytest.raises(ConfigurationError, match=r"cannot use .* as the journal: it is the file of another program"):
        await journal.begin(draft(), LEASE)

    assert before == content(path)


@asynccontextmanager
async def all_together(path: Path) -> AsyncGenerator[None]:
    """Let all that is begun inside wait for another process, so that most of it shares a transaction."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        await asyncio.sleep(0)


async def test_writes_begun_together_keep_their_own_ids(path: Path, journal: SqliteJournal, clock: Clock) -> None:
    """Of many writes that begin together, each has the id of its own intent, which no other write ever had.

    A repeated number begins once.
    """
    pruned = (await journal.begin(draft(), LEASE)).intent
    await journal.settle(pruned, "rejected")
    await journal.prune(clock.advance(1))
    await journal.begin(draft(refund("R5")), LEASE)
    # Those without a repeated number share their statements: of each kind, there are more of them.
    numbers = [f"R{number}" for number in range(200)] + ["R3", "R7", "R7"]
    async with all_together(path):
        named = [draft(refund(each), f"task {each}" if each.endswith("3") else None) for each in numbers]
        begun = [asyncio.ensure_future(journal.begin(each, LEASE)) for each in named]
    results = await asyncio.gather(*begun)
    sent = {each.intent.reference: each.intent for each in results if each.step is Step.SEND}
    stored = {each.reference: each for each in await journal.list(limit=300)}

    assert {"R5"} == {*numbers} - sent.keys()
    assert 4 == len([each for each in results if each.step is Step.WAIT])
    assert {number: intent for number, intent in stored.items() if number != "R5"} == sent
    assert pruned.id < min(each.id for each in stored.values())


async def test_writes_settled_together_end_their_own_claims(path: Path, journal: SqliteJournal, clock: Clock) -> None:
    """Of many writes that end together, each has its own state, and only a lost claim changes nothing."""
    begun = [(await journal.begin(draft(refund(f"R{number}")), LEASE)).intent for number in range(40)]
    clock.advance(LEASE + 1)
    lost = await journal.ask(3, LEASE)
    states: list[State] = ["succeeded", "rejected", "accepted", "unknown"]
    async with all_together(path):
        settled = [
            asyncio.ensure_future(journal.settle(each, states[each.id % 4], reason=f"{each.reference} ended \ud800"))
            for each in [*begun, begun[-1]]
        ]
    held = await asyncio.gather(*settled)
    after = await journal.list()

    assert [False] * 3 + [True] * 37 + [False] == held
    assert lost == after[:3]
    assert [(states[each.id % 4], f"{each.reference} ended \\ud800") for each in begun[3:]] == [
        (each.state, each.reason) for each in after[3:]
    ]


async def test_write_that_has_ended_can_begin_again_immediately(path: Path, journal: SqliteJournal) -> None:
    """If writes are settled, and one is read and begun again without a pause, it has its new state, and is sent."""
    first, second = [(await journal.begin(draft(refund(each)), LEASE)).intent for each in ("R1", "R2")]
    async with all_together(path):
        waiting = asyncio.ensure_future(journal.list())
        settled = [asyncio.ensure_future(journal.settle(each, "rejected")) for each in (first, second)]
        read = asyncio.ensure_future(journal.get(second.id))
        again = asyncio.ensure_future(journal.begin(draft(), LEASE))
    await asyncio.gather(waiting, *settled)
    begun, found = await again, await read

    assert (Step.SEND, first.id, 2) == (begun.step, begun.intent.id, begun.intent.attempts)
    assert found
    assert "rejected" == found.state


OF_AN_EARLIER_VERSION: Final = """
INSERT INTO payasync_intents
    (id, operation, merchant, reference, number, hash, request, queued, state, created, updated)
VALUES (:id, 'refunds.create', 'M1', 'R1', :number, '', '{}', 0, 'succeeded', 1000, 1000)"""


async def test_journal_of_which_another_makes_a_later_one_is_used_on(path: Path, journal: SqliteJournal) -> None:
    """If a newer payasync migrates the file, an open journal of an older one can still settle and begin writes."""
    first = (await journal.begin(draft(), LEASE)).intent
    step = "ALTER TABLE payasync_intents ADD COLUMN later TEXT NOT NULL DEFAULT 'x';\n"
    file = SqliteFile(
        path, Schema(name="journal", application=SCHEMA.application, migrations=(*SCHEMA.migrations, step))
    )
    await file.run(asking("SELECT 1"))
    await file.aclose()
    settled = await journal.settle(first, "succeeded")
    second = (await journal.begin(draft(refund("R2")), LEASE)).intent

    assert settled
    assert ["succeeded", "sending"] == [each.state for each in await journal.list()]
    assert second == await journal.get(second.id)


async def test_journal_of_an_earlier_version_is_migrated(path: Path, journal: SqliteJournal) -> None:
    """A journal that an earlier payasync made keeps its intents, and gives no id of a pruned intent again."""
    earlier = SqliteFile(path, evolve(SCHEMA, migrations=SCHEMA.migrations[:2]))
    await earlier.run(asking(OF_AN_EARLIER_VERSION, number="refunds.create:R1", id=5))
    await earlier.run(asking(OF_AN_EARLIER_VERSION, number="refunds.create:R2", id=9))
    await earlier.run(asking("DELETE FROM payasync_intents WHERE id = 9"))
    await earlier.aclose()
    (stored,) = await journal.find("refunds.create", "R1")
    begun = await journal.begin(draft(refund("R3")), LEASE)

    assert (5, "succeeded", 1_000) == (stored.id, stored.state, stored.created.timestamp())
    assert 10 == begun.intent.id


@pytest.mark.parametrize("used", [False, True])
async def test_connection_to_what_is_not_the_journal_any_more_stores_nothing(
    path: Path, journal: SqliteJournal, *, used: bool
) -> None:
    """If the journal's file was moved or replaced, `add` with a connection raises `StorageError` and stores nothing."""
    async with SqliteJournal(path) as other:
        await (journal if used else other).list()
    with closing(sqlite3.connect(path)) as before:
        before.execute("PRAGMA user_version").fetchone()
        if not used:
            await journal.add(refund(), merchant=MERCHANT, connection=before)
            before.rollback()
        move_away(path)
        with pytest.raises(StorageError, match="its file has vanished"):
            await journal.add(refund(), merchant=MERCHANT, connection=before)
    for log in path.parent.glob("pay.db-*"):
        log.unlink()
    async with SqliteJournal(path) as other:
        await other.list()
    with closing(sqlite3.connect(path)) as after, pytest.raises(StorageError, match="another file has taken"):
        await journal.add(refund(), merchant=MERCHANT, connection=after)

    assert [] == await references(path)


class Waiting:
    """Runs what it was given when it is told to."""

    def __init__(self, _: str = "") -> None:
        self.works = list[Callable[[], object]]()

    def submit(self, work: Callable[[], object]) -> None:
        """Keep a function."""
        self.works.append(work)

    def close(self) -> None:
        """Run what is left."""
        self.go()

    def go(self) -> None:
        """Run all functions."""
        while self.works:
            self.works.pop(0)()


async def test_leases_end_before_writes_begin(path: Path, clock: Clock) -> None:
    """If a write begins together with the end of the one before it, of the same number, it need not wait."""
    waiting = Waiting()
    async with SqliteJournal(path, clock=clock, executor=lambda _: waiting) as journal:

        async def together(*calls: Awaitable[Any]) -> list[Any]:
            tasks = [asyncio.ensure_future(each) for each in calls]
            await turns(3)
            waiting.go()
            return await asyncio.gather(*tasks)

        numbers = ("R1", "R2")
        begun = await together(*(journal.begin(draft(refund(each)), LEASE) for each in numbers))
        again = (journal.begin(draft(refund(each)), LEASE) for each in numbers)
        ends = (journal.settle(each.intent, "rejected") for each in begun)
        first, second, *settled = await together(*again, *ends)

        assert [True, True] == settled
        assert [Step.SEND, Step.SEND] == [first.step, second.step]


async def test_pruning_much_goes_in_parts(journal: SqliteJournal, clock: Clock) -> None:
    """One call of `prune` deletes all ended intents, even if they are more than one transaction deletes."""
    many = PRUNED_TOGETHER + 1
    begun = await asyncio.gather(*(journal.begin(draft(refund(str(number))), LEASE) for number in range(many)))
    await asyncio.gather(*(journal.settle(each.intent, "succeeded") for each in begun))

    assert many == await journal.prune(clock.advance(1))


async def test_each_statement_finds_its_rows_by_an_index(path: Path, journal: SqliteJournal) -> None:
    """SQLite reads all intents for no statement, and sorts only what has one key, or is open.

    It finds what one merchant waits for by the merchant.
    """
    await journal.list()
    written = {name: sqlite_statement(statement, SCHEMA.adapt).fast for name, statement in STATEMENTS.items()}
    shared = shared_statement(transactions.SQL["settle"], SCHEMA.adapt).replace(ROWS, "(1), (2)")
    written["SETTLE, shared"] = re.sub(r":\w+", "one.column1", shared)
    with closing(sqlite3.connect(path)) as db:
        plans = {
            name: [detail for *_, detail in db.execute(f"EXPLAIN QUERY PLAN {text}", defaultdict(int))]
            for name, text in written.items()
        }

    assert {"DUE", "MATCHING", "FIND", "LIST_OF_ORDER", "NEXT_DUE", "PRUNE"} < plans.keys()
    assert not [name for name, plan in plans.items() if "SCAN payasync_intents" in plan]
    scanning = {step for plan in plans.values() for step in plan if "SCAN payasync_intents" in step}
    assert {"SCAN payasync_intents USING INDEX payasync_intents_due"} == scanning
    sorting = {name for name, plan in plans.items() if any("TEMP B-TREE" in step for step in plan)}
    assert {"MATCHING", "OLDEST", "FIND", "DUE_OF_ALL", "NEXT_DUE_OF_ALL"} == sorting
    assert all("(merchant=? AND <expr>" in plans[name][0] for name in OF_ONE_MERCHANT)


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("library", ["sqlite3", "aiosqlite"])
async def test_added_with_the_callers_own_transaction(
    path: Path, journal: SqliteJournal, end: str, library: str
) -> None:
    """`add` with a connection commits or rolls back together with the caller's transaction."""
    await journal.list()
    if library == "sqlite3":
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE orders (number TEXT)")
            intent_id = await journal.add(refund(), merchant=MERCHANT, connection=db)
            getattr(db, end)()
    else:
        async with aiosqlite.connect(path) as waiting:
            waiting.row_factory = aiosqlite.Row
            intent_id = await journal.add(refund(), merchant=MERCHANT, connection=waiting)
            await getattr(waiting, end)()

    assert ([(intent_id, "new")] if end == "commit" else []) == [(each.id, each.state) for each in await journal.list()]


AUTOCOMMIT: Final = [{"isolation_level": None}, *([{"autocommit": True}] if sys.version_info >= (3, 12) else [])]


@pytest.mark.parametrize("by_itself", AUTOCOMMIT)
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
async def test_connection_that_commits_by_itself_needs_a_transaction(
    path: Path, journal: SqliteJournal, by_itself: dict[str, Any], end: str
) -> None:
    """If the connection commits by itself, `add` raises `ConfigurationError`, and begins nothing.

    If the caller executes `BEGIN`, `add` works on it, and ends with that transaction.
    """
    await journal.list()
    async with aiosqlite.connect(path, **by_itself) as waiting:
        with pytest.raises(ConfigurationError, match="must be in a transaction"):
            await journal.add(refund(), merchant=MERCHANT, connection=waiting)
    with closing(sqlite3.connect(path, **by_itself)) as db:
        with pytest.raises(ConfigurationError, match=r"must be in a transaction, .* execute BEGIN first") as caught:
            await journal.add(refund(), merchant=MERCHANT, connection=db)
        before = db.in_transaction, await journal.list()
        db.execute("BEGIN")
        intent_id = await journal.add(refund(), merchant=MERCHANT, connection=db)
        db.execute(end)

    assert ("connection", (False, [])) == (caught.value.field, before)
    assert ([intent_id] if end == "COMMIT" else []) == [each.id for each in await journal.list()]


async def test_connection_must_be_to_the_journal(path: Path, journal: SqliteJournal) -> None:
    """If the connection is to another file, or none of sqlite3 or aiosqlite, `add` raises `ConfigurationError`."""
    with closing(sqlite3.connect(":memory:")) as db, closing(sqlite3.connect(path.with_name("other.db"))) as other:
        wrong: list[Any] = [db, other, object(), "pay.db", 7]
        rule = f"connection must be one of sqlite3 or aiosqlite to the journal's own file, '{path}', not "
        for connection in wrong:
            with pytest.raises(ConfigurationError, match=f"^{rule}") as caught:
                await journal.add(refund(), merchant=MERCHANT, connection=connection)

            assert "connection" == caught.value.field


async def test_connection_that_is_locked_stores_nothing(path: Path, journal: SqliteJournal) -> None:
    """If the file is locked, `add` with a connection raises `StorageError`."""
    await journal.list()
    with closing(sqlite3.connect(path)) as other, closing(sqlite3.connect(path, timeout=0)) as db:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match=f"the journal '{path}' is unavailable: database is locked"):
            await journal.add(refund(), merchant=MERCHANT, connection=db)


def test_path_is_checked() -> None:
    """If the path is empty, invalid or `:memory:`, the journal's constructor raises `ConfigurationError`."""
    wrong: list[Any] = ["", ":memory:", "a\0b", b"pay.db", None, 7]
    for path in wrong:
        with pytest.raises(ConfigurationError, match="path must be that of the journal's file") as caught:
            SqliteJournal(path)

        assert "path" == caught.value.field


@pytest.mark.parametrize("name", ["keep", "clock"])
def test_functions_are_checked(path: Path, name: str) -> None:
    """If `keep` or `clock` is not a function, the journal's constructor raises `ConfigurationError`."""
    for make in (partial(SqliteJournal, path), partial(PostgresJournal, "postgresql://127.0.0.1:9/pay")):
        with pytest.raises(ConfigurationError, match=f"{name} must be a plain function, not 5") as caught:
            cast("Any", make)(**{name: 5})

        assert name == caught.value.field
