import re
import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path

from payasync.notifications.inbox import SQL
from payasync.notifications.sqlite_inbox import SqliteInbox, sqlite_statement


async def test_each_statement_finds_its_rows_by_an_index(tmp_path: Path) -> None:
    """SQLite reads all events for no statement, and sorts only those that are not done."""
    inbox = SqliteInbox(tmp_path / "inbox.db")
    await inbox.events()
    await inbox.aclose()
    with closing(sqlite3.connect(tmp_path / "inbox.db")) as db:
        plans = {
            name: [step for *_, step in db.execute(f"EXPLAIN QUERY PLAN {sqlite_statement(text)}", defaultdict(int))]
            for name, text in SQL.items()
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
