import re
import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import pytest

from payasync.errors import StorageError
from payasync.notifications.inbox import SQL
from payasync.notifications.sqlite_inbox import SCHEMA, SqliteInbox
from payasync.storage.sqlite_runner import sqlite_statement
from tests.journal.building import LEASE, Clock
from tests.notifications.inbox_building import received


async def test_comparison_with_the_clock_that_is_undone_is_repeated(tmp_path: Path, clock: Clock) -> None:
    """After the clock was set back and a claim has failed, the next claim restarts the waits."""
    path, found = tmp_path / "inbox.db", list[list[int]]()
    inbox = SqliteInbox(path, clock=clock)
    await inbox.add(received("payment:1"))
    (claim,) = await inbox.claim(1, LEASE)
    await inbox.finish(claim, "pending", "later", 30)
    clock.advance(-3600)
    await inbox.add(received("payment:2"))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        leased = "BEFORE UPDATE ON events WHEN new.state = 'leased'"
        db.execute(f"CREATE TRIGGER full {leased} BEGIN SELECT raise(ABORT, 'full'); END")
        with pytest.raises(StorageError):
            await inbox.claim(2, LEASE)
        db.execute("DROP TRIGGER full")
    for seconds in (0, 30):
        clock.advance(seconds)
        found.append([each.event.id for each in await inbox.claim(2, LEASE)])
    await inbox.aclose()

    assert [[2], [1]] == found


async def test_each_statement_finds_its_rows_by_an_index(tmp_path: Path) -> None:
    """SQLite reads all events for no statement, and sorts only those that are not done."""
    inbox = SqliteInbox(tmp_path / "inbox.db")
    await inbox.events()
    await inbox.aclose()
    with closing(sqlite3.connect(tmp_path / "inbox.db")) as db:
        plans = {
            name: [
                step
                for *_, step in db.execute(
                    f"EXPLAIN QUERY PLAN {sqlite_statement(text, SCHEMA.adapt).text}", defaultdict(int)
                )
            ]
            for name, text in SQL.items()
            if name not in {"lock", "mark_in_postgres"}
        }

    assert {"empty", "forget", "next_due", "events_of_state"} < plans.keys()
    scans = {
        name: [each for each in plan if re.match("SCAN (?!CONSTANT ROW|waiting|ended|done)", each)]
        for name, plan in plans.items()
    }
    by_state = {name for name, plan in plans.items() if any("events_by_state (state=?" in step for step in plan)}

    assert {} == {name: steps for name, steps in scans.items() if any("json_each" not in step for step in steps)}
    assert {"counts", "events_of_state"} == by_state
    assert {"oldest", "counts", "events_of_state"} == {
        name for name, plan in plans.items() if any("TEMP B-TREE" in step for step in plan)
    }
