"""Refund the rows of a CSV file, each at most once.

After an interruption, run the same command with the same journal again.
"""

import argparse
import asyncio
import csv
import re
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Final, Literal

from attrs import frozen

from payasync import (
    CreateRefund,
    Done,
    InvalidArgumentError,
    PayasyncError,
    Refused,
    ServiceError,
    Session,
    Unknown,
)
from payasync.journal import Reconciler, SqliteJournal

COLUMNS: Final = ("order", "paid", "refund", "reason")
EXIT_CODES: Final = {"done": 0, "refused": 1, "not sent": 1, "unknown": 3}
INVALID: Final = 2
INTERRUPTED: Final = 130
REPEAT: Final = "Run the same command again after a minute."

Outcome = Literal["done", "refused", "not sent", "unknown"]


@frozen
class Row:
    """A row of the file.

    Attributes:
        line: Its line, from 1 on.
        refund: The request, if the row is valid.
        wrong: What is wrong with the row, if it is invalid.
    """

    line: int
    refund: CreateRefund | None = None
    wrong: str = ""


def read_rows(source: Path, pay: Session) -> list[Row]:
    """Return all rows, valid and invalid ones. Nothing is sent."""
    try:
        with source.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, restkey="", restval="", strict=True)
            if tuple(reader.fieldnames or ()) != COLUMNS:
                expected = ",".join(COLUMNS)
                raise InvalidArgumentError(f"line 1 of {source} must be {expected}")
            return list(check_rows(reader, pay))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidArgumentError(f"{source} cannot be read: {error}") from error


def check_rows(reader: "csv.DictReader[str]", pay: Session) -> Iterator[Row]:
    """Yield each row with its request, or with what is wrong."""
    lines: dict[str, int] = {}
    for cells in reader:
        order, line = cells["order"], reader.line_num
        first = lines.setdefault(order, line)
        try:
            refund = refund_of(cells)
            pay.check(refund)  # by the profile's rules, before any row is sent
        except InvalidArgumentError as error:
            yield Row(line, wrong=str(error))
        else:
            again = "" if first == line else f"order {order} is also on line {first}"
            yield Row(line, wrong=again) if again else Row(line, refund)


def refund_of(cells: dict[str, str]) -> CreateRefund:
    """Return the refund of a row. Its number comes from the order, in each run."""
    if "" in cells:
        raise InvalidArgumentError(f"the row has more than {len(COLUMNS)} cells")
    return CreateRefund(
        out_trade_no=cells["order"],
        out_refund_no=f"R-{cells['order']}",
        total_amt=to_cents("paid", cells["paid"]),
        refund_amt=to_cents("refund", cells["refund"]),
        refund_desc=cells["reason"],
    )


def to_cents(column: str, text: str) -> int:
    """Return cents, computed without floats, because 0.29 * 100 is not 29."""
    if not re.fullmatch(r"[0-9]{1,12}\.[0-9]{2}", text):
        rule = "must be an amount with two decimals, such as 4.50"
        raise InvalidArgumentError(f"{column} {rule}; got {text!r}")
    return int(text.replace(".", ""))


async def send_refunds(
    pay: Session, refunds: list[CreateRefund]
) -> AsyncGenerator[tuple[str, Outcome, str]]:
    """Send the refunds. Yield the number, outcome and details of each when known."""
    async with aclosing(pay.bulk(refunds, limit=10)) as results:
        async for result in results:
            number = str(result.request.reference)
            match result:
                case Done(response=response) if response.state == "failed":
                    yield number, "refused", "the service took it, and declined it"
                case Done(response=response):
                    yield number, "done", response.state or ""
                case Refused(error=ServiceError() as error):
                    yield number, "refused", str(error)
                case Refused(error=error):
                    yield number, "not sent", str(error)
                case Unknown():
                    yield number, "unknown", str(result.error)


async def run(
    pay: Session, journal: SqliteJournal, source: Path, target: Path
) -> int:
    """Refund all rows of a file, and return the exit code."""
    rows = read_rows(source, pay)
    wrong = [f"{source}, line {row.line}: {row.wrong}" for row in rows if row.wrong]
    if wrong:
        print(*wrong, "Nothing was sent.", sep="\n", file=sys.stderr)
        return INVALID
    try:
        file = target.open("w", encoding="utf-8", newline="", buffering=1)
    except OSError as error:
        raise InvalidArgumentError(f"{target} cannot be written: {error}") from error
    outcomes: set[Outcome] = set()
    try:
        with file:
            # It asks what became of refunds that an earlier run left unknown.
            await Reconciler(pay, journal).run_once()
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("refund", "result", "details"))
            refunds = [row.refund for row in rows if row.refund]
            async with aclosing(send_refunds(pay, refunds)) as results:
                async for number, outcome, details in results:
                    writer.writerow((number, outcome, details))
                    outcomes.add(outcome)
    except OSError as error:
        doubt = "Some refunds may have been made. Run again."
        print(f"Results cannot be written: {error}. {doubt}", file=sys.stderr)
        return EXIT_CODES["unknown"]
    if "unknown" in outcomes:
        print("Some refunds may have been made.", REPEAT, file=sys.stderr)
    return max((EXIT_CODES[each] for each in outcomes), default=0)


async def main(source: Path, target: Path, database: Path) -> int:
    """Refund with the settings of the environment."""
    async with (
        SqliteJournal(database) as journal,
        Session.from_env(journal=journal) as pay,
    ):
        return await run(pay, journal, source, target)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    columns = ", ".join(COLUMNS)
    parser.add_argument(
        "source", type=Path, help=f"a CSV file with columns {columns}"
    )
    parser.add_argument("target", type=Path, help="the CSV file for the results")
    parser.add_argument("journal", type=Path, help="the journal, such as pay.db")
    given = parser.parse_args()
    if given.target.resolve() == given.source.resolve():
        parser.error("target must be another file than source: it is overwritten")
    try:
        code = asyncio.run(main(given.source, given.target, given.journal))
    except PayasyncError as error:
        print(f"{error}. Nothing was sent.", file=sys.stderr)
        code = INVALID
    except KeyboardInterrupt:
        print("Interrupted.", REPEAT, file=sys.stderr)
        code = INTERRUPTED
    sys.exit(code)
