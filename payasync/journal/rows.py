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

_TYPES: Final = {each.name: each.type for each in fields(Intent) if each.name != "damaged"}
COLUMNS: Final = tuple(_TYPES)
"""A later payasync, to which another process was upgraded, may have added others."""
JSON: Final = ("request", "named")
MOMENTS: Final = tuple(name for name, kind in _TYPES.items() if kind in {datetime, datetime | None})
TEXTS: Final = tuple(name for name, kind in _TYPES.items() if name not in MOMENTS and kind not in {int, bool})
"""Of these, SQLite may hold bytes that are no text."""

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_UNREAD: Final = Intent(
    id=0, operation="", merchant="", hash="", state="manual", created=_EPOCH, updated=_EPOCH, lease=_EPOCH
)
"""Has what stands in an intent for a column that cannot be read. Its lease is over: nobody could end it otherwise."""
_TICK: Final = re.compile(r"\A\S+ (?:\d{1,10}(?:\.\d+)?|\d{1,19}e-9)\Z")
"""A duration between two of them can be added to a moment."""


def intent_of_row(row: Mapping[str, Any]) -> Intent:
    """Return the intent that stands in a row. If the row is damaged, `Intent.damaged` says how.

    Args:
        row: By the names of the columns. A text may be its bytes; JSON is a text; a moment is seconds since 1970.
    """
    facts: dict[str, Any] = {}
    wrong: list[str] = []
    for name in COLUMNS:
        try:
            value = row[name].decode() if isinstance(row[name], bytes) else row[name]
            facts[name] = value if value is None or name not in _READERS else _READERS[name](value)
        except Exception:  # noqa: BLE001 - whatever stands there, the other rows are read
            facts[name] = getattr(_UNREAD, name)
            wrong.append(name)
    intent = Intent(**facts)
    why = f"cannot be read: damaged in {', '.join(wrong)}" if wrong else find_contradiction(intent)
    if not why:
        return intent
    damaged = f"row {intent.id} {why}"
    return evolve(intent, damaged=damaged, reason=intent.reason if intent.state in END_STATES else damaged)


def _read_object(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    if not isinstance(document.get("extra", {}), dict) or find_flaw(document):
        raise ValueError
    return document


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(JSON, _read_object),
    **dict.fromkeys(MOMENTS, partial(datetime.fromtimestamp, tz=UTC)),
    **dict.fromkeys(("tick", "key_tick"), lambda text: _TICK.findall(text)[0]),
    **dict.fromkeys(("queued", "answered"), bool),
    "outcome": outcome_from_json,
    "state": lambda text: STATES[STATES.index(text)],
}
