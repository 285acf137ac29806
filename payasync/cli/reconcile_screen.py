"""What a person sees of `payasync reconcile`: how far it is, what it came to, and what only a person can say."""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from payasync.cli import reconcile_json
from payasync.cli.intent_table import STYLES, beside, console, named, now, span
from payasync.cli.journal_at import Address
from payasync.cli.reconcile_lists import ROWS, ReconcileLists, asked_about, writes
from payasync.cli.reconcile_tally import Tally
from payasync.cli.terminal import Lines, Part, plain
from payasync.journal import Intent, State
from payasync.journal.reconciling import ENDS, End, Report, Result
from payasync.version import VERSION

_NAMES: Final[dict[End, str]] = {
    "resolved": "resolved",
    "sent": "sent again",
    "waiting": "waiting",
    "manual": "for a person",
    "lost": "taken by others",
}
_STYLES: Final[dict[End, str]] = {
    "resolved": "bold green",
    "sent": "bold cyan",
    "waiting": "bold yellow",
    "manual": "bold red",
    "lost": "dim",
}
_WIDTH: Final = 15
_REASON: Final = _WIDTH + 10
"""The column of a reason, where a line goes on below."""
_WRITE: Final = 26
"""The same of what is shown while it watches: the column of the write; a reason that has no room behind it is there."""
_REASONS: Final = 3
"""So many reasons of what waits, or needs a person, are shown, the most frequent first."""


class ReconcileScreen:
    """The terminal, or whatever stands in its place.

    Args:
        journal: Where the journal is.
        service: Its address.
        json: Show lines of JSON, and no others.
        terminal: Written to in place of the terminal.
    """

    def __init__(
        self, journal: Address, *, service: str = "", json: bool = False, terminal: Console | None = None
    ) -> None:
        self._journal = journal
        self._service = service
        self._json = json
        self._console = terminal or console()
        self._lines = Lines(self._console)
        self._lists = ReconcileLists(journal, self._console)
        self._tally = Tally()
        self._others: Mapping[str, int] = {}
        self._silent = False
        self._watch = False
        self._planned: Sequence[Intent] | None = None
        self._bar: Progress | None = None

    @property
    def unanswered(self) -> bool:
        """Whether the service was asked, and answered no question."""
        return self._tally.asked > 0 and not self._tally.answered

    def opened(
        self,
        merchant: str,
        due: Sequence[Intent],
        *,
        others: Mapping[str, int],
        watch: bool,
        later: datetime | None = None,
        sending: Sequence[datetime] = (),
    ) -> None:
        """Say what is about to be done; who watches hears what is not due yet, too, as no end says it soon.

        Args:
            merchant: Whose writes these are.
            due: What is asked about now.
            others: How many writes of which other merchants are left open.
            watch: It goes on until a signal comes.
            later: When the service is to be asked next, if at all.
            sending: When each write that somebody is sending is asked about, if that does not end.
        """
        self._watch = watch
        self._others = others
        # Who watches has seen each in a line of its own.
        self._tally = Tally(last=ROWS if watch and not self._json else None)
        if self._json:
            return
        write, row = self._lines.write, self._lines.row
        write()
        write(("payasync reconcile", "bold"), f" {VERSION}: asks the service what became of unknown writes")
        write()
        row("Journal", plain(self._journal.shown), "bold")
        row("Service", plain(self._service), "bold")
        row("Merchant", plain(merchant), "bold")
        row("Due", writes(len(due)) if due else self._nothing(None if later in sending else later), "bold")
        if others:
            many = sum(others.values())
            is_, of = ("is", "another merchant") if many == 1 else ("are", "other merchants")
            write()
            write(
                (f"  {many} open {'write' if many == 1 else 'writes'} {is_} of {of}", "bold yellow"),
                f" ({plain(', '.join(sorted(others)))})",
                hang=2,
            )
        if watch:
            write()
            self._lists.being_sent(sending)
            write(("  Ctrl-C ends it.", "dim"))
        write()

    def _nothing(self, later: datetime | None) -> str:
        if not self._watch or later is None:
            return "nothing"
        return f"nothing now; the next question in {span((later - now()).total_seconds())}"

    def planned(self, due: Sequence[Intent]) -> None:
        """Show what would be asked about."""
        self._planned = due
        if self._json:
            return
        if due:
            self._lines.write("  It would ask about:")
            self._lines.write()
            self._lists.some(due, state=True)
        self._lines.write(("  A dry run: nobody was asked, and nothing has changed.", "dim"))
        self._lines.write()

    @contextmanager
    def progress(self, total: int) -> Generator[None]:
        """Show how far it is, on a terminal."""
        if self._json or not total or not self._console.is_terminal:
            yield
            return
        columns = (
            TextColumn("  Asking"),
            BarColumn(30, complete_style="cyan", finished_style="green"),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console, transient=True) as self._bar:
            self._bar.add_task("", total=total)
            yield

    def heard(self, result: Result) -> None:
        """Count what became of one; while it watches, show it."""
        self._tally.heard(result)
        if self._bar:
            self._bar.advance(self._bar.task_ids[0])
        if self._watch and not self._json and result.end not in {"waiting", "lost"}:
            self._watched(result)

    def _watched(self, result: Result) -> None:
        intent, reason = result.intent, plain(beside(result.state, result.reason))
        parts: list[Part] = [
            (f"  {now().astimezone():%H:%M:%S}  ", "dim"),
            (f"{_NAMES[result.end]:12}  ", _STYLES[result.end]),
            f"{plain(intent.operation):20}  ",
            (f"{plain(named(intent)):14}  ", "bold"),
            (f"{result.state:9}  ", STYLES[result.state]),
        ]
        if reason and Text.assemble(*parts, reason).cell_len > self._lines.width:
            self._lines.write(*parts, hang=_WRITE)
            parts = [" " * _WRITE]
        self._lines.write(*parts, (reason, "dim"), hang=_WRITE)

    def ran(self, report: Report) -> None:
        """Take note of a run that has ended."""
        self._silent = report.silent
        self._tally.ran()
        if self._json and self._watch and report.asked:
            self._lines.write(reconcile_json.of_run(report, self._tally))
            self._tally.told()

    def closed(
        self,
        manual: Sequence[Intent],
        due: datetime | None,
        *,
        sending: Sequence[datetime] = (),
        unsent: Sequence[Intent] = (),
        interrupted: bool,
    ) -> None:
        """Show what it came to, and what needs a person.

        Args:
            manual: Needs a person.
            due: When the service is to be asked again, if at all.
            sending: When each write that somebody is sending is asked about, if that does not end.
            unsent: Queued, and nobody sends it.
            interrupted: A signal ended it before it was through.
        """
        if self._json:
            self._lines.write(self._line(manual, due, sending, unsent, interrupted=interrupted))
            return
        if self._watch:
            self._lines.write()
        if interrupted:
            self._ended_early("Interrupted.")
        later = None if due in sending else due
        if self._planned is None:
            self._summary(later)
        elif later is not None and later > now():
            self._next(later)
        self._lists.being_sent(sending)
        self._lists.unsent(unsent)
        self._lists.for_a_person(manual)

    def _line(
        self,
        manual: Sequence[Intent],
        due: datetime | None,
        sending: Sequence[datetime],
        unsent: Sequence[Intent],
        *,
        interrupted: bool,
    ) -> str:
        tally, others, silent = self._tally, self._others, self._silent
        if self._planned is not None:
            return reconcile_json.of_plan(self._planned, manual, due, sending, unsent, others=others)
        return reconcile_json.of_all(
            tally, manual, due, sending, unsent, others=others, silent=silent, interrupted=interrupted
        )

    def cut_short(self) -> None:
        """Show what was heard before an error, if anything: the journal may be unable to say any more."""
        if not self._tally.asked:
            return
        if self._json:
            self._lines.write(reconcile_json.of_heard(self._tally, others=self._others, silent=self._silent))
            return
        if self._watch:
            self._lines.write()
        self._ended_early("Cut short by an error.")
        self._summary(None)

    def _ended_early(self, how: str) -> None:
        self._lines.write((f"  {how} ", "bold yellow"), "What was settled stays so; the next run goes on.")
        self._lines.write()

    def _summary(self, due: datetime | None) -> None:
        write = self._lines.write
        asked = self._tally.asked
        write(f"  {asked_about(self._tally)}" if asked else "  There was nothing to ask.", hang=2)
        write()
        for end in ENDS:
            if states := self._tally.states(end):
                self._ended(end, states)
        if asked:
            write()
        if self._silent:
            write(("  The service answers nobody: the others were left for the next run.", "yellow"))
            write()
        elif self.unanswered:
            write(("  No question had a usable response: nothing was found out.", "bold yellow"))
            write()
        self._lists.rejected(self._tally.rejected, self._tally.not_done)
        if due is not None:
            self._next(due)

    def _next(self, due: datetime) -> None:
        left = (due - now()).total_seconds()
        when = "is due now: run it again" if left <= 0 else f"in {span(left)}"
        self._lines.write(("  The next question ", "dim"), (when, "bold"))
        self._lines.write()

    def _ended(self, end: End, states: Counter[State]) -> None:
        many = states.total()
        parts: list[Part] = [(f"  {_NAMES[end]:{_WIDTH}}", _STYLES[end]), (f"{many:>6}  ", "bold")]
        if end in {"resolved", "sent"}:
            for number, (state, of_it) in enumerate(states.most_common()):
                parts += [", " if number else "", f"{of_it} ", (state, STYLES[state])]
        reasons = self._tally.reasons(end) if end in {"waiting", "manual"} else Counter[str]()
        if len(reasons) == 1:
            parts.append((plain(next(iter(reasons))), "dim"))
        self._lines.write(*parts, hang=_REASON)
        if len(reasons) > 1:
            self._reasons(reasons)

    def _reasons(self, reasons: Counter[str]) -> None:
        for reason, of_it in reasons.most_common(_REASONS):
            counted = f"{'':{_REASON}}{of_it}: "
            self._lines.write((f"{counted}{plain(reason)}", "dim"), hang=len(counted))
