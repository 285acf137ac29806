"""The rows of an import that a person looks at, as tables."""

from collections.abc import Sequence
from typing import Final

from rich.table import Table
from rich.text import Text

from payasync.cli.refund_again import Again
from payasync.cli.refund_sheet import Row
from payasync.cli.refund_verdicts import Verdict
from payasync.cli.tables import table
from payasync.cli.terminal import plain

ROWS: Final = 20
"""So many are listed."""


def bad(rows: Sequence[Row]) -> Table:
    """List what cannot be sent, and why."""
    found = [
        (Text(str(each.line)), Text(plain(each.number) or "-", "bold"), Text(plain(each.wrong))) for each in rows[:ROWS]
    ]
    return table(("Line", "Refund", "What is wrong"), found)


def again(found: Sequence[Again]) -> Table:
    """List what is sent again, and why it was not done."""
    rows = [(*_named(each.row), _amount(each.row), Text(plain(each.why))) for each in found[:ROWS]]
    return table(("Line", "Refund", "Amount", "Why it was not done"), rows)


def doubtful(verdicts: Sequence[Verdict], styles: dict[str, str]) -> Table:
    """List what may have been done, each in the style of its state."""
    rows = [
        (
            *_named(each.row),
            Text(plain(each.row.cells["out_trade_no"])),
            _amount(each.row),
            Text(each.state, styles[each.state]),
        )
        for each in verdicts[:ROWS]
    ]
    return table(("Line", "Refund", "Order", "Amount", "State"), rows)


def _named(row: Row) -> tuple[Text, Text]:
    return Text(str(row.line)), Text(plain(row.number), "bold")


def _amount(row: Row) -> Text:
    return Text(plain(row.cells["refund_amt"]))
