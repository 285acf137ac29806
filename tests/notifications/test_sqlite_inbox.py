import inspect
import time
from pathlib import Path

from payasync.notifications.sqlite_inbox import SqliteInbox


def test_inbox_says_where_it_is(tmp_path: Path) -> None:
    """The `repr` of an inbox shows its path."""
    assert f"SqliteInbox('{tmp_path}/inbox.db')" == repr(SqliteInbox(tmp_path / "inbox.db"))


def test_clock_is_that_of_the_machine() -> None:
    """By default, due times follow the time of day, which all processes share."""
    assert time.time is inspect.signature(SqliteInbox).parameters["clock"].default
