"""A process that forks with an SQLite file open: parent and child go on, each with a connection of its own."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

PROGRAM: Final = Path(__file__).with_name("sqlite_forking.py")
SECONDS: Final = 60


@pytest.mark.parametrize("journal", ["journal", pytest.param("log", marks=pytest.mark.long)])
@pytest.mark.parametrize("what", ["both", *(pytest.param(each, marks=pytest.mark.long) for each in ("closed", "load"))])
def test_nothing_is_lost_by_a_fork(tmp_path: Path, what: str, journal: str) -> None:
    """What parent or child was told of stands in the file, once, and the child inherits no handle of the file.

    SQLite forbids to carry a connection through a fork: the child would believe in locks that only the parent has.
    """
    path = tmp_path / "inbox.db"
    # Later Pythons warn of every fork beside a thread.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(PROGRAM), what, journal, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    with closing(sqlite3.connect(path)) as db:
        found = [text for (text,) in db.execute("SELECT text FROM notes ORDER BY text")]
        whole = db.execute("PRAGMA integrity_check").fetchone()[0]

    assert (0, "", "ok") == (done.returncode, done.stderr, whole)
    assert sorted(done.stdout.splitlines()) == found
