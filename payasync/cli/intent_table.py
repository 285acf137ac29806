"""Intents as rows of a table, and as JSON."""

import json
import re
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Any, Final

from attrs import asdict
from rich.table import Table
from rich.text import Text

from payasync.cli.terminal import bare_table
from payasync.clocks import utc_now
from payasync.errors import plain
from payasync.journal import Intent, Journal, State
from payasync.journal.reconciler import PAGE

STYLES: Final[dict[State, str]] = {
    "new": "blue",
    "sending": "cyan",
    "accepted": "cyan",
    "succeeded": "green",
    "rejected": "magenta",
    "unknown": "yellow",
    "manual": "bold red",
}
ENDS: Final[tuple[State, ...]] = ("succeeded", "rejected")
"""What a person may record."""
_UNITS: Final = ((1, "s"), (60, "min"), (3600, "h"), (86_400, "days"))
_LONG: Final = 100
"""From this many seconds, minutes or hours on, the next larger unit is used."""
_WIDE: Final = 120
"""Columns of a terminal that has room for each fact beside the others."""
_BELOW: Final = {"Write": "Number", "Amount": "Since"}
"""Columns of a narrow terminal, each with the one that stands below it."""


async def all_intents(
    journal: Journal, state: State | None = None, *, after: int = 0, **filters: Any
) -> AsyncGenerator[Intent]:
    """Yield all intents of a state, or all, by ID; the filters are those of `Journal.list`."""
    while page := await journal.list(state, limit=PAGE, after=after, **filters):
        for each in page:
            yield each
        after = page[-1].id


def intent_table(intents: Sequence[Intent], *, width: int, with_state: bool = True) -> Table:
    """Return intents as a table.

    Args:
        intents: In the order of the rows.
        width: The columns of the terminal; on a narrow one, each row has two lines.
        with_state: Leave out the state if all have the same.
    """
    below = {} if width >= _WIDE else _BELOW
    left_out = {
        *([] if with_state else ["State"]),
        *([] if len({each.merchant for each in intents}) > 1 else ["Merchant"]),
        *below.values(),
    }
    at = utc_now()
    rows = [
        {
            "Id": Text(str(each.id), "bold"),
            "State": Text(each.state, STYLES[each.state]),
            "Merchant": Text(plain(each.merchant)),
            "Write": Text(plain(each.operation)),
            "Number": Text(plain(number_of(each)), "bold"),
            "Amount": Text(amount_of(each)),
            "Since": Text(time_ago(each.updated, at), "dim"),
            "Why": Text(plain(why(each, at, with_state=with_state))),
        }
        for each in intents
    ]
    cells = [[name, below[name]] if name in below else [name] for name in rows[0] if name not in left_out]
    joined = [[Text("\n").join(row[name] for name in names) for names in cells] for row in rows]
    return bare_table(["\n".join(names) for names in cells], joined)


def resolve_commands(intent_id: object, option: str, ends: Sequence[State]) -> list[str]:
    """Return a command for each end that a person may record, so that each can be pasted."""
    return [f"payasync journal resolve {intent_id}{option} --as {end} --reason …" for end in ends]


def number_of(intent: Intent) -> str:
    """Return the number or key by which the merchant knows an intent."""
    return intent.reference or intent.intent or "-"


def amount_of(intent: Intent) -> str:
    """Return the amount of an intent and its currency, as far as the journal stores them."""
    # The narrowest amount that the request has.
    amounts = (intent.request[name] for name in ("refund_amt", "total_amt", "amount") if name in intent.request)
    found: Any = next(amounts, None)
    return "" if found is None else plain(f"{found} {intent.request.get('currency', '')}".strip())


def reason_beside(state: State, reason: str) -> str:
    """Return a reason as it is shown beside the state; empty if it only repeats the state."""
    same = re.fullmatch(r"the \w+'s state is (\w+)", reason)
    return "" if same and same[1] == state else reason


def why(intent: Intent, at: datetime, *, with_state: bool) -> str:
    """Return why an intent is in its state, and when the service is queried again."""
    reason = reason_beside(intent.state, intent.reason) if with_state else intent.reason
    if intent.state not in {"unknown", "accepted"} or intent.due is None:
        return reason
    if intent.due <= at:
        return reason or "due now"
    again = f"again in {duration((intent.due - at).total_seconds())}"
    return f"{reason} ({again})" if reason else again


def time_ago(moment: datetime, at: datetime) -> str:
    """Return how long ago a moment was."""
    seconds = (at - moment).total_seconds()
    return "just now" if seconds < 1 else f"{duration(seconds)} ago"


def duration(seconds: float) -> str:
    """Return a time in the unit that has few digits."""
    size, unit = next((each for each in _UNITS if seconds < _LONG * each[0]), _UNITS[-1])
    return f"{max(1, round(seconds / size))} {unit}"


def identify(intent: Intent, reason: str) -> dict[str, Any]:
    """Return what identifies a write to a script, and why it is listed."""
    names = {"id": intent.id, "operation": intent.operation, "reference": intent.reference, "intent": intent.intent}
    return {**names, "reason": reason}


def intent_json(intent: Intent) -> str:
    """Return an intent as a line of JSON."""
    facts = {**asdict(intent, recurse=False), "key": intent.key}
    if outcome := intent.outcome:
        facts["outcome"] = {**asdict(outcome), "body": outcome.body.decode(errors="backslashreplace")}
    return json.dumps(facts, default=lambda each: each.isoformat() if isinstance(each, datetime) else dict(each))
