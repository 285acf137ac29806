"""What goes into an SQLite file and comes out of it: rows, texts and moments."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from typing import Any


def rows(db: sqlite3.Connection, statement: str, values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return what a statement finds, by the names of its columns."""
    with closing(db.execute(statement, values or {})) as cursor:
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def text(given: str) -> str:
    """Return a text that SQLite takes: half a surrogate pair, which JSON can hold, as its escape."""
    return given.encode("utf-8", "backslashreplace").decode("utf-8")


def moment(seconds: float) -> datetime:
    """Return the aware moment that is so many seconds after the beginning of 1970."""
    return datetime.fromtimestamp(seconds, UTC)
