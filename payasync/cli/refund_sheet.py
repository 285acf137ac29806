"""A CSV file of refunds, read as a whole: which rows can be sent, and what is wrong with the others. No I/O here."""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import field, frozen

from payasync.absent import ABSENT
from payasync.errors import InvalidArgumentError
from payasync.resources.refunds import CreateRefund

REQUIRED: Final = ("out_trade_no", "out_refund_no", "total_amt", "refund_amt")
OPTIONAL: Final = ("refund_desc", "notify_url")
AMOUNTS: Final = ("total_amt", "refund_amt")
# No sign, no separators, and no more digits than an amount has: what a spreadsheet has made of it is not guessed.
_WHOLE: Final = re.compile(r"[0-9]{1,16}")

Cells = Mapping[str, str]
Check = Callable[[CreateRefund], object]


@frozen(kw_only=True)
class Row:
    """A row of the file.

    Attributes:
        line: Where it begins, from 1 on.
        cells: By their columns; those that are missing are not there.
        request: What it asks for, where it is a good one.
        wrong: What is wrong with it, where it is a bad one.
    """

    line: int
    cells: Cells = field(repr=False)
    request: CreateRefund | None = None
    wrong: str = ""

    @property
    def number(self) -> str:
        """The number of the refund."""
        return self.cells.get("out_refund_no", "")


def read(text: str, check: Check) -> tuple[Row, ...]:
    """Return all rows of a file, good and bad ones, in their order.

    Args:
        text: Of the file.
        check: Refuses what cannot be sent.

    Raises:
        InvalidArgumentError: Its columns are others, or it is no CSV.
    """
    lines = _lines(text)
    _, header = next(lines, (1, []))
    columns = _columns(header)
    found = [(line, cells) for line, cells in lines if cells]
    places: dict[str, list[int]] = {}
    for line, cells in found:
        places.setdefault(_cells(columns, cells).get("out_refund_no", ""), []).append(line)
    return tuple(_row(line, columns, cells, places, check) for line, cells in found)


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield where each record begins, and what it holds."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    begins = 1
    try:
        for cells in reader:
            yield begins, cells
            begins = reader.line_num + 1
    except csv.Error as error:
        broken = InvalidArgumentError(f"line {begins}: not CSV: {error}", field="file", rule="CSV")
    else:
        return
    raise broken


def _columns(header: Sequence[str]) -> Sequence[str]:
    """Return the columns, where they are those that a refund has."""
    many = [name for name, count in Counter(header).items() if count > 1]
    missing = [name for name in REQUIRED if name not in header]
    extra = [name for name in header if name not in {*REQUIRED, *OPTIONAL}]
    found = (("twice there", many), ("missing", missing), ("not known here", extra))
    if wrong := [
        f"{', '.join(map(repr, names))} {'is' if len(names) == 1 else 'are'} {how}" for how, names in found if names
    ]:
        rule = f"{','.join(REQUIRED)}[,{','.join(OPTIONAL)}]"
        raise InvalidArgumentError(
            f"line 1: the columns must be {rule}, with commas between them: {'; '.join(wrong)}",
            field="file",
            rule=rule,
        )
    return header


def _cells(columns: Sequence[str], cells: Sequence[str]) -> Cells:
    return dict(zip(columns, cells, strict=False))


def _row(
    line: int, columns: Sequence[str], given: Sequence[str], places: Mapping[str, Sequence[int]], check: Check
) -> Row:
    cells = _cells(columns, given)
    row = Row(line=line, cells=cells)
    if len(given) != len(columns):
        return _bad(row, f"{len(given)} cells, and there are {len(columns)} columns")
    try:
        request = CreateRefund(**_arguments(cells))
        check(request)
    except InvalidArgumentError as error:
        return _bad(row, str(error.args[0]))
    others = places[request.out_refund_no]
    if len(others) > 1:
        # One of them may be a mistake, and nobody here can say which.
        lines = " and ".join(filter(None, (", ".join(map(str, others[:-1])), str(others[-1]))))
        return _bad(row, f"out_refund_no must be unique: {request.out_refund_no!r} stands on lines {lines}")
    return Row(line=line, cells=cells, request=request)


def _bad(row: Row, wrong: str) -> Row:
    return Row(line=row.line, cells=row.cells, wrong=wrong)


def _arguments(cells: Cells) -> dict[str, Any]:
    arguments: dict[str, Any] = {name: cells[name] for name in REQUIRED}
    for name in AMOUNTS:
        if _WHOLE.fullmatch(cells[name]):
            arguments[name] = int(cells[name])
    return arguments | {name: cells.get(name) or ABSENT for name in OPTIONAL}
