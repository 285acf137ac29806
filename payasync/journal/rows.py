"""Rows of a journal as intents. A damaged row is an intent, too, so that it stops no other; no I/O here."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from attrs import evolve, fields

from payasync.journal.drafts import find_contradiction
from payasync.journal.intents import END_STATES, STATES, Intent
from payasync.journal.redaction import outcome_from_json
from payasync.strict_json import find_flaw

COLUMNS: Final = tuple(each.name for each in fields(Intent) if each.name != "damaged")
"""A later payasync, to which another process was upgraded, may have added others."""
JSON: Final = ("request", "named")
MOMENTS: Final = ("lease", "due", "created", "updated", "sent_at", "silent_since", "key_sent")
TEXTS: Final = (
    *("operation", "merchant", "reference", "number", "intent", "hash", "state", "reason", "outcome"),
    *("idempotency_key", "tick", "key_tick", *JSON),
)

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_UNREAD: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("operation", "merchant", "hash", "reason"), ""),
    # A lease that cannot be read is over: nobody could end the intent otherwise.
    **dict.fromkeys(("created", "updated", "lease"), _EPOCH),
    "request": {},
    "state": "manual",
    "asked": 0,
}
"""What stands in an intent for a column that cannot be read; otherwise `None`."""
_MOST: Final = 10**6
"""No intent is asked about so often. The reconciler would count so far."""
_LATEST: Final = 10**11
"""Seconds of a monotonic clock. A duration between two of them can be added to a moment."""


def with_columns(statement: str, columns: str) -> str:
    """Return a statement that reads these columns in place of all."""
    return re.sub(r"(SELECT|RETURNING) \*(?= FROM payasync_intents|$)", rf"\1 {columns}", statement)


def intent_of_row(row: Mapping[str, Any]) -> Intent:
    """Return the intent that stands in a row. If the row is damaged, `Intent.damaged` says how.

    Args:
        row: By the names of the columns. A text may be its bytes; JSON is a text; a moment is seconds since 1970.
    """
    facts: dict[str, Any] = {}
    wrong: list[str] = []
    for name in COLUMNS:
        value = row[name]
        try:
            facts[name] = value if value is None or name not in _READERS else _READERS[name](value)
        except Exception:  # noqa: BLE001 - whatever stands there, the other rows are read
            facts[name] = _UNREAD.get(name)
            wrong.append(name)
    intent = Intent(**facts)
    why = f"cannot be read: damaged in {', '.join(wrong)}" if wrong else find_contradiction(intent)
    if not why:
        return intent
    damaged = f"row {intent.id} {why}"
    return evolve(intent, damaged=damaged, reason=intent.reason if intent.state in END_STATES else damaged)


def _read_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _read_tick(value: Any) -> str:
    _, seconds = _read_text(value).split(" ")
    _require(abs(float(seconds)) < _LATEST)
    return _read_text(value)


def _read_object(value: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_read_text(value))
    _require(isinstance(document.get("extra", {}), dict) and not find_flaw(document))
    return document


def _read_asked(value: int) -> int:
    _require(0 <= value < _MOST)
    return value


def _require(good: bool) -> None:  # noqa: FBT001 - a condition
    if not good:
        raise ValueError


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(TEXTS, _read_text),
    **dict.fromkeys(JSON, _read_object),
    **dict.fromkeys(MOMENTS, partial(datetime.fromtimestamp, tz=UTC)),
    **dict.fromkeys(("tick", "key_tick"), _read_tick),
    **dict.fromkeys(("queued", "answered"), bool),
    "asked": _read_asked,
    "outcome": lambda value: outcome_from_json(_read_text(value)),
    "state": lambda value: STATES[STATES.index(_read_text(value))],
}
