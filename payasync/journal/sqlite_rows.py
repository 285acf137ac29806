"""Intentions as rows of the SQLite journal."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import orjson
from attrs import fields

from payasync.journal.asking import Asked
from payasync.journal.intents import Intent
from payasync.journal.recorded import read
from payasync.sqlite_values import moment, text

# A later payasync, to which another process was upgraded, may have added some.
_COLUMNS: Final = tuple(each.name for each in fields(Intent))


def written(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a statement as SQLite takes them."""
    return {name: _written(value) for name, value in values.items()}


def _written(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.timestamp()
    if isinstance(value, Mapping):
        return orjson.dumps(dict(value)).decode()
    return text(value) if isinstance(value, str) else value


def given(asked: Asked, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the intentions that stand in rows, or one column of them, whichever was asked for."""
    return [row[asked.column] if asked.column else _intent(row) for row in rows]


def _intent(row: Mapping[str, Any]) -> Intent:
    moments = ("lease", "due", "created", "updated", "sent_at", "silent_since")
    facts: dict[str, Any] = {
        **{name: row[name] for name in _COLUMNS},
        **{name: None if row[name] is None else moment(row[name]) for name in moments},
        "request": json.loads(row["request"]),
        "named": None if row["named"] is None else json.loads(row["named"]),
        "queued": bool(row["queued"]),
        "answered": bool(row["answered"]),
        "outcome": None if row["outcome"] is None else read(row["outcome"]),
    }
    return Intent(**facts)
