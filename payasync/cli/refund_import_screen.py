"""What a person sees of `payasync refund import`."""

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from payasync import __version__
from payasync.cli.intent_table import console, span
from payasync.cli.journal_option import Address
from payasync.cli.refund_file import OPEN, WORDS, Again, Row, Verdict, Word, beside
from payasync.cli.terminal import Lines, bare_table, plain, print_table


class Doing(ProgressColumn):
    """What goes on, and how long it waits still."""

    def render(self, task: Task) -> Text:
        """Return it, as it is now."""
        left = task.fields["until"] - task.get_time()
        return Text(f"  {task.description}{f' in {span(left)}' if left > 0 else ''}")


ROWS: Final = 20
"""So many are listed."""


def invalid_rows_table(rows: Sequence[Row]) -> Table:
    """List what cannot be sent, and why."""
    found = [
        (Text(str(each.line)), Text(plain(each.number) or "-", "bold"), Text(plain(each.wrong))) for each in rows[:ROWS]
    ]
    return bare_table(("Line", "Refund", "What is wrong"), found)


def sent_again_table(found: Sequence[Again]) -> Table:
    """List what is sent again, and why it was not done."""
    rows = [(*_named(each.row), _amount(each.row), Text(plain(each.why))) for each in found[:ROWS]]
    return bare_table(("Line", "Refund", "Amount", "Why it was not done"), rows)


def doubtful_table(verdicts: Sequence[Verdict], styles: dict[str, str]) -> Table:
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
    return bare_table(("Line", "Refund", "Order", "Amount", "State"), rows)


def _named(row: Row) -> tuple[Text, Text]:
    return Text(str(row.line)), Text(plain(row.number), "bold")


def _amount(row: Row) -> Text:
    return Text(plain(row.cells["refund_amt"]))


_STYLES: Final[dict[str, str]] = {
    "succeeded": "bold green",
    "accepted": "bold cyan",
    "refused": "bold magenta",
    "unsent": "bold yellow",
    "left out": "bold yellow",
    "unknown": "bold yellow",
    "manual": "bold red",
}
_MEANINGS: Final[dict[Word, str]] = {
    "succeeded": "",
    "accepted": "the service took them, and has not ended them yet",
    "refused": "not done",
    "unsent": "not done; this run sent nothing of them",
    "left out": "bad rows",
    "unknown": "they may have been done",
    "manual": "only a person can say what became of them",
}
Unit = Literal["", "minor", "major"]
_UNITS: Final[dict[Unit, str]] = {"": "", "minor": " minor units", "major": " major units"}
_WIDTH: Final = 11
_BAR: Final = 20
"""Columns of the bar: on 80 there is room beside it for what goes on."""
_REASONS: Final = 3
"""So many reasons of one word are shown, the most frequent first."""
_NOTED: Final = 5.0
"""Seconds; of a longer wait a line tells, too, once of each reason."""
_SILENT: Final = "The service answers nobody"
_CUTS: Final = {
    (True, False): "Ctrl-C again cuts",
    (True, True): "Ctrl-C twice cuts",
    (False, False): "a second signal cuts",
    (False, True): "two signals cut",
}
"""What ends those under way: on a terminal or not, and whether the import stops by itself; else a signal came."""


class RefundImportScreen:
    """The terminal, or whatever stands in its place.

    Args:
        file: The refunds'.
        journal: Where the journal is.
        service: Its address.
        result: The result's file, where there is one.
        terminal: Written to in place of the terminal.
    """

    def __init__(
        self, file: Path, journal: Address, *, service: str, result: Path | None = None, terminal: Console | None = None
    ) -> None:
        self._file = file
        self._journal = journal
        self._service = service
        self._result = result
        self._console = terminal or console()
        self._lines = Lines(self._console)
        self._heard: set[int] = set()
        self._bar: Progress | None = None
        self._noted: set[bool] = set()

    def refused(self, rows: Sequence[Row]) -> None:
        """Show the bad rows of a file of which nothing is sent."""
        bad = [row for row in rows if row.wrong]
        self._title()
        self._lines.write((f"  {_rows(len(bad))} of {len(rows):,} cannot be sent.", "bold red"), " Nothing was sent.")
        self._lines.write()
        self._print(invalid_rows_table(bad), len(bad))
        self._lines.write("  Mend them, or leave them out with --keep-going.")
        self._lines.write()

    def opened(self, merchant: str, rows: Sequence[Row], *, new: bool, unit: Unit = "") -> None:
        """Say what is about to be done, and which rows are left out.

        Args:
            merchant: The merchant's number.
            rows: Good and bad ones.
            new: The journal is empty.
            unit: Of the amounts, as the profile says it.
        """
        good = [row.request for row in rows if row.request]
        bad = [row for row in rows if row.wrong]
        row = self._lines.row
        self._title()
        row("Service", plain(self._service), "bold")
        row("Merchant", plain(merchant), "bold")
        row("Journal", plain(self._journal.shown) + (", which is empty" if new else ""), "bold")
        row("Refunds", f"{len(good):,}", "bold")
        row("Amount", f"{sum(each.refund_amt for each in good):,}{_UNITS[unit]} in all", "bold")
        self._lines.write()
        if bad:
            self._lines.write((f"  {_rows(len(bad))} left out", "bold yellow"))
            self._lines.write()
            self._print(invalid_rows_table(bad), len(bad))

    def unaskable(self) -> None:
        """Say that nobody can be asked what became of a refund."""
        self._lines.write(
            ("  A lost answer will need a person", "bold yellow"),
            ": the profile does not say how to ask about a refund (refund_status).",
            hang=2,
        )
        self._lines.write()

    def again(self, found: Sequence[Again]) -> None:
        """List what is sent again, and may have been refunded by other means since somebody heard that it was not."""
        if not found:
            return
        are, they = ("is", "it was") if len(found) == 1 else ("are", "they were")
        self._lines.write(
            (f"  {_rows(len(found))} {are} sent again", "bold yellow"),
            f": whoever heard that {they} not done may have refunded by other means.",
            hang=2,
        )
        self._lines.write()
        self._print(sent_again_table(found), len(found))
        self._lines.write(
            ("  Take out the rows that were refunded by other means", "bold"), "; Ctrl-C stops those not begun.", hang=2
        )
        self._lines.write()

    @contextmanager
    def progress(self, total: int) -> Generator[None]:
        """Show how far it is, on a terminal."""
        if not total or not self._console.is_terminal:
            yield
            return
        columns = Doing(), BarColumn(_BAR), MofNCompleteColumn(), TimeElapsedColumn()
        with Progress(*columns, console=self._console, transient=True) as self._bar:
            self._bar.add_task("Refunding", total=total, until=0.0)
            yield

    def heard(self, verdict: Verdict) -> None:
        """Count a row; one that is in doubt has not ended, and the bar goes on."""
        if verdict.state == "unknown":
            self._heard.discard(verdict.row.line)
        else:
            self._heard.add(verdict.row.line)
        self._show(completed=len(self._heard))

    def asking(self, count: int, seconds: float, *, silent: bool = False) -> None:
        """Say that so many are in doubt, and when the service is asked about them; or that it answers nobody."""
        until = self._bar.get_time() + seconds if self._bar and seconds else 0.0
        self._show(description=f"Asking about {count:,}", until=until)
        if seconds > _NOTED and silent not in self._noted:
            self._noted.add(silent)
            self._lines.write(f"  {(_unanswered if silent else _cut_off)(count)} in {span(seconds)}", hang=2)
            self._lines.write()

    def stopping(self, why: str = "") -> None:
        """Say that no further one begins, and what cuts off those under way.

        Args:
            why: It stops by itself, where it does; else a first signal came.
        """
        # The last signal ends the process where it stands.
        self._console.show_cursor()
        self._show(description="Stopping", until=0.0)
        last = _CUTS[self._bar is not None, bool(why)]
        if why:
            self._lines.write((f"  Stopping: {why}.", "bold yellow"), hang=2)
        self._lines.write(f"  {'Those under way end' if why else 'Stopping after those under way'}; {last} them off.")
        self._lines.write()

    def cut_off(self, count: int) -> None:
        """Say at the last, where those under way are cut off, how many may have been done, and where all stands."""
        if self._bar:
            self._bar.stop()
        where = "the journal" if self._result is None else plain(str(beside(self._result)))
        doubt = f"up to {_rows(count)} may have been done" if count else "nothing is in doubt"
        self._lines.write(
            ("  Cut off: ", "bold yellow"),
            f"{doubt}. The results so far stand in {where}; the same command goes on.",
            hang=2,
        )

    def looking_up(self, count: int) -> None:
        """Say that the journal is asked about so many that were not begun."""
        self._show(description=f"Looking up {count:,} not begun", until=0.0)

    def _show(self, **facts: object) -> None:
        if self._bar:
            self._bar.update(self._bar.task_ids[0], **facts)  # type: ignore[arg-type] # its own

    def closed(self, verdicts: Sequence[Verdict], *, why: str, unwritten: str) -> None:
        """Show what became of all, and what is left to do.

        Args:
            verdicts: Of all rows, in their order.
            why: It ended early, where it did.
            unwritten: Why the result file could not be written, where that is so.
        """
        write = self._lines.write
        if why:
            write((f"  Stopped: {why}.", "bold yellow"), " The same command goes on from here.")
            write()
        if not verdicts:
            write("  There was nothing to refund.")
        for word in WORDS:
            if mine := [each for each in verdicts if each.state == word]:
                self._ended(word, mine)
        write()
        self._doubtful([each for each in verdicts if each.state in OPEN])
        if unwritten:
            write(("  The result file could not be written: ", "bold red"), plain(unwritten))
            write()
        elif self._result is not None:
            write(("  What became of each row: ", "dim"), (plain(str(self._result)), "cyan"))
            write()

    def _ended(self, word: Word, mine: Sequence[Verdict]) -> None:
        amount = sum(each.row.request.refund_amt for each in mine if each.row.request)
        worth = f"{amount:,}" if amount else ""
        self._lines.write(
            (f"  {word:{_WIDTH}}", _STYLES[word]),
            (f"{len(mine):>7,}", "bold"),
            f"{worth:>16}",
            (f"  {_MEANINGS[word]}".rstrip(), "dim"),
        )
        if earlier := sum(each.earlier for each in mine):
            self._lines.write((f"  {'':{_WIDTH}}{earlier:>7,}  of them by an earlier run, and not sent again", "dim"))
        if word in {"succeeded", "accepted", "left out"}:
            return
        kinds = Counter(each.kind for each in mine)
        reasons = Counter(each.kind if kinds[each.kind] > 1 and each.kind else _why(each) for each in mine)
        for reason, many in reasons.most_common(_REASONS):
            self._lines.write((f"  {'':{_WIDTH}}{many:>7,}  {plain(reason)}", "dim"), hang=_WIDTH + 11)
        if (others := len(reasons) - _REASONS) > 0:
            self._lines.write((f"  {'':{_WIDTH}}{'':>7}  and {others} other reasons", "dim"))

    def _doubtful(self, verdicts: Sequence[Verdict]) -> None:
        if not verdicts:
            return
        self._print(doubtful_table(verdicts, _STYLES), len(verdicts))
        write, journal = self._lines.write, plain(self._journal.option)
        write(
            ("  Do not send them by other means.", "bold"),
            " What is unknown is asked about by the same command, or",
            hang=2,
        )
        write((f"  payasync reconcile{journal}", "cyan"))
        write()
        if any(each.state == "manual" for each in verdicts):
            write("  What is manual you end yourself, once you know what became of it:")
            write((f"  payasync journal list{journal} --state manual", "cyan"))
            write()

    def _print(self, table: Table, count: int) -> None:
        print_table(self._console, table, indent=2)
        if (more := count - ROWS) > 0:
            self._lines.write((f"  … and {more:,} more", "dim"))
        self._lines.write()

    def _title(self) -> None:
        self._lines.write()
        self._lines.write(("payasync refund import", "bold"), f" {__version__}: ", (plain(str(self._file)), "bold"))
        self._lines.write()


def _why(verdict: Verdict) -> str:
    return " ".join(filter(None, (verdict.code, verdict.message))) or "-"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _cut_off(count: int) -> str:
    was, it_is = ("was", "it is") if count == 1 else ("were", "they are")
    return f"{_rows(count)} {was} cut off, or had no answer: {it_is} asked about"


def _unanswered(count: int) -> str:
    return f"{_SILENT}: {_rows(count)} {'is' if count == 1 else 'are'} in doubt, and asked about again"
