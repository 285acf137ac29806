"""Intentions as lines of a table, and as JSON."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from attrs import asdict, evolve
from rich.console import Console
from rich.table import Table
from rich.text import Text

from payasync.cli.terminal import bare_table, plain
from payasync.journal.intents import Intent, State

STYLES: Final[dict[State, str]] = {
    "new": "blue",
    "sending": "cyan",
    "accepted": "cyan",
    "succeeded": "green",
    "rejected": "magenta",
    "unknown": "yellow",
    "manual": "bold red",
}
AMOUNTS: Final = ("refund_amt", "total_amt", "amount")
"""The argument that says how much it is about, the narrowest first."""
_LONG: Final = 100
"""So many seconds, minutes and hours are told in the next larger unit."""
_UNITS: Final = ((1, "s"), (60, "min"), (3600, "h"), (86_400, "days"))
_WIDE: Final = 100
PIPED: Final = 240
"""Columns, where no terminal says how many it has."""
_SAME: Final = re.compile(r"the \w+'s state is (\w+)")
"""A reason that may say no more than the state."""


def console() -> Console:
    """Return the terminal; what stands in its place gets lines that are not broken."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=PIPED)


def table(intents: Sequence[Intent], *, now: datetime, width: int, state: bool = True) -> Table:
    """Return intentions as a table.

    Args:
        intents: In the order of its rows.
        now: The time, aware.
        width: Columns that there are; where they are few, it does not say since when.
        state: Say it of each: not all have the same.
    """
    left_out = {
        *([] if state else ["State"]),
        *([] if len({each.merchant for each in intents}) > 1 else ["Merchant"]),
        *([] if width >= _WIDE else ["Since"]),
    }
    rows = [
        {name: cell for name, cell in _row(each, now, state=state).items() if name not in left_out} for each in intents
    ]
    return bare_table(list(rows[0]), [list(row.values()) for row in rows])


def _row(intent: Intent, now: datetime, *, state: bool) -> Mapping[str, Text]:
    reason = beside(intent.state, intent.reason) if state else intent.reason
    return {
        "Id": Text(str(intent.id), "bold"),
        "State": Text(intent.state, STYLES[intent.state]),
        "Merchant": Text(plain(intent.merchant)),
        "Write": Text(plain(intent.operation)),
        "Number": Text(plain(named(intent)), "bold"),
        "Amount": Text(amount(intent)),
        "Since": Text(ago(intent.updated, now), "dim"),
        "Why": Text(plain(why(evolve(intent, reason=reason), now))),
    }


def named(intent: Intent) -> str:
    """Return by which number or word the merchant knows an intention."""
    return intent.reference or intent.intent or "-"


def amount(intent: Intent) -> str:
    """Return how much an intention is about, where it says that."""
    found: Any = next((intent.request[name] for name in AMOUNTS if name in intent.request), None)
    currency: Any = intent.request.get("currency", "")
    return "" if found is None else plain(f"{found} {currency}".strip())


def beside(state: State, reason: str) -> str:
    """Return what a reason says beside the state; nothing, where that is the same."""
    same = _SAME.fullmatch(reason)
    return "" if same and same[1] == state else reason


def why(intent: Intent, now: datetime) -> str:
    """Return why an intention is in its state, and when that will be looked at again."""
    if intent.state not in {"unknown", "accepted"} or intent.due is None:
        return intent.reason
    if intent.due <= now:
        return intent.reason or "due now"
    again = f"again in {span((intent.due - now).total_seconds())}"
    return f"{intent.reason} ({again})" if intent.reason else again


def ago(moment: datetime, now: datetime) -> str:
    """Return how long ago a moment was."""
    seconds = (now - moment).total_seconds()
    return "just now" if seconds < 1 else f"{span(seconds)} ago"


def span(seconds: float) -> str:
    """Return a time in the unit that a person would take."""
    size, unit = next((each for each in _UNITS if seconds < _LONG * each[0]), _UNITS[-1])
    return f"{max(1, round(seconds / size))} {unit}"


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def as_json(intent: Intent) -> str:
    """Return all of an intention as one line."""
    facts = asdict(intent, recurse=False)
    outcome = intent.outcome
    if outcome is not None:
        facts["outcome"] = {**asdict(outcome), "body": outcome.body.decode(errors="backslashreplace")}
    return json.dumps({**facts, "key": intent.key}, default=_plain, ensure_ascii=True)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else dict(value)
