"""What a person and a script see of `payasync reconcile`."""

import json
from collections import Counter, deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from math import ceil
from typing import Any, Final

from attrs import asdict, evolve
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from payasync import __version__
from payasync.cli.intent_table import STYLES, beside, console, named, now, span, table
from payasync.cli.journal_option import Address
from payasync.cli.terminal import Lines, Part, plain, print_table
from payasync.journal.intents import ENDS as ENDED
from payasync.journal.intents import Intent, State
from payasync.journal.policy import ENDS, End, Report, Result


class Tally:
    """Counts writes, each under what the last question about it came to, and questions.

    What it holds grows with the writes that have not ended, and not with the number of runs. One that had ended, and is
    in doubt anew, counts again.

    Args:
        last: So many of those not done are held, the last ones, where each was shown before; `None`: all.
    """

    def __init__(self, *, last: int | None = None) -> None:
        self.questions = 0
        self.runs = 0
        """In which anything was asked."""
        self.rejected = 0
        self.answered = False
        self.not_done: deque[Result] = deque(maxlen=last)
        self._states: Counter[tuple[End, State]] = Counter()
        self._open: dict[int, tuple[End, State, str]] = {}
        self._running = False

    def heard(self, result: Result) -> None:
        """Count a result, in place of the one before about the same write."""
        self.questions += 1
        self.runs += not self._running
        self._running = True
        self.answered |= result.answered
        self._stands(result)
        if result.rejected:
            self.rejected += 1
            self.not_done.append(result)

    def _stands(self, result: Result) -> None:
        number, end, state = result.intent.id, result.end, result.state
        if before := self._open.pop(number, None):
            self._states[before[:2]] -= 1
        self._states[end, state] += 1
        if state not in ENDED or end not in {"resolved", "sent"}:
            self._open[number] = (end, state, result.reason)

    def ran(self) -> None:
        """Take note that a run has ended."""
        self._running = False

    def told(self) -> None:
        """Let go of what was not done: it has been listed."""
        self.not_done.clear()

    @property
    def asked(self) -> int:
        """How many writes were asked about."""
        return self._states.total()

    @property
    def ends(self) -> Mapping[str, int]:
        """How many ended in which way."""
        return {end: self.states(end).total() for end in ENDS}

    def states(self, end: End) -> Counter[State]:
        """Return in which states those are that ended so."""
        return Counter({state: many for (each, state), many in self._states.items() if each == end and many})

    def reasons(self, end: End) -> Counter[str]:
        """Return why those that wait, or need a person, do so."""
        return Counter(reason for each, _, reason in self._open.values() if each == end)


ROWS: Final = 100
"""So many are listed of what can be listed again, by `payasync journal list`; of what was not done, all are."""
_PIECE: Final = 500
"""So many rows are laid out at once, so that who has many to read sees the first ones soon."""


class ReconcileLists:
    """The terminal, or whatever stands in its place.

    Args:
        journal: Where the journal is.
        console: Written to.
    """

    def __init__(self, journal: Address, console: Console) -> None:
        self._journal = journal
        self._console = console
        self._lines = Lines(console)

    def rejected(self, many: int, listed: Sequence[Result]) -> None:
        """List what was not done: whoever believes that it was, is to hear of it.

        Args:
            many: They are.
            listed: The last of them, or all.
        """
        if not many:
            return
        self._lines.write(
            (f"  {writes(many)} not done", "bold magenta"),
            ": tell whoever believes it was, or make it again, under its own number.",
            hang=2,
        )
        self._lines.write()
        self._rows([evolve(each.intent, state=each.state, reason=each.reason) for each in listed], state=False)
        if many > len(listed):
            self._lines.write(f"  These are the last {len(listed)}; each was shown when that was found out.", hang=2)
        self._lines.write()

    def being_sent(self, ends: Sequence[datetime]) -> None:
        """Say how many are on their way, and when the first is asked about, if that does not end."""
        if not ends:
            return
        one = len(ends) == 1
        are = "is being sent, or was cut off" if one else "are being sent, or were cut off"
        when = f"in {span((min(ends) - now()).total_seconds())}"
        asked = f"asked about {when}" if one else f"the first is asked about {when}"
        self._lines.write((f"  {writes(len(ends))} {are}", "bold yellow"), f": {asked}", hang=2)
        self._lines.write()

    def unsent(self, intents: Sequence[Intent]) -> None:
        """List what was queued and nobody sends, and say how it ends."""
        if not intents:
            return
        waits = f"  {writes(len(intents))} queued, and not sent for some minutes"
        tried = " Why says what came of the last try." if any(each.reason for each in intents) else ""
        write = self._lines.write
        write((waits, "bold yellow"), f": is a worker running?{tried}", hang=2)
        write()
        self.some(intents, state=False)
        write("  What nobody is to send any more ends with:")
        write((f"  {plain(self._ending('rejected'))}", "cyan"))
        write()

    def for_a_person(self, manual: Sequence[Intent]) -> None:
        """List what only a person can say, and how that is said."""
        if not manual:
            return
        write = self._lines.write
        write((f"  {writes(len(manual))} {'needs' if len(manual) == 1 else 'need'} a person", "bold red"))
        write()
        self.some(manual, state=any(each.state != "manual" for each in manual))
        write("  Look into the service's back office what became of each, then:")
        write((f"  {plain(self._ending('succeeded|rejected'))}", "cyan"))
        write()

    def _ending(self, as_: str) -> str:
        return f"payasync journal resolve ID{self._journal.option} --as {as_} --reason …"

    def some(self, intents: Sequence[Intent], *, state: bool) -> None:
        """List the first of them, and say how to list the others."""
        shown, others = intents[:ROWS], intents[ROWS:]
        self._rows(shown, state=state)
        if others:
            self._lines.write((f"  … and {len(others):,} more; to list them:", "dim"))
        for each in dict.fromkeys(intent.state for intent in others):
            after = max((intent.id for intent in shown if intent.state == each), default=0)
            listing = f"payasync journal list{self._journal.option} --state {each} --after {after}"
            self._lines.write((f"  {plain(listing)}", "cyan"))
        self._lines.write()

    def _rows(self, intents: Sequence[Intent], *, state: bool) -> None:
        for start in range(0, len(intents), _PIECE):
            piece = intents[start : start + _PIECE]
            print_table(self._console, table(piece, now=now(), width=self._console.width, state=state), indent=2)


def writes(count: int) -> str:
    """Return how many they are, in words."""
    return "1 write" if count == 1 else f"{count} writes"


def asked_about(tally: Tally) -> str:
    """Return how much was asked: the questions, too, where they are more than the writes."""
    about = f"Asked about {writes(tally.asked)}"
    if tally.questions == tally.asked:
        return f"{about}."
    runs = "1 run" if tally.runs == 1 else f"{tally.runs} runs"
    return f"{about}, by {tally.questions} questions in {runs}. The last one about each came to:"


def run_json(report: Report, tally: Tally) -> str:
    """Return the line of one run.

    Args:
        report: Of it.
        tally: Holds what it found to be not done.
    """
    return json.dumps({"asked": report.asked, **asdict(report), "not_done": _not_done(tally)})


def all_json(
    tally: Tally,
    manual: Sequence[Intent],
    due: datetime | None,
    sending: Sequence[datetime],
    unsent: Sequence[Intent],
    *,
    others: Mapping[str, int],
    silent: bool,
    interrupted: bool,
) -> str:
    """Return the last line.

    Args:
        tally: Of all runs; of what was not done, it holds what no line before has listed.
        manual: Needs a person.
        due: When the next write is due.
        sending: When each write that somebody is sending is asked about, if that does not end.
        unsent: Queued, and nobody sends it.
        others: How many writes of which other merchants are open.
        silent: The service answered nobody in the last run.
        interrupted: A signal ended it before it was through.
    """
    left = _left(manual, due, sending)
    facts = _found(tally, silent=silent, unsent=len(unsent))
    return json.dumps(
        {**facts, "interrupted": interrupted, "cut_short": False, "of_other_merchants": dict(others), **left}
    )


def plan_json(
    planned: Sequence[Intent],
    manual: Sequence[Intent],
    due: datetime | None,
    sending: Sequence[datetime],
    unsent: Sequence[Intent],
    *,
    others: Mapping[str, int],
) -> str:
    """Return the one line of a dry run.

    Args:
        planned: What would be asked about.
        manual: As all that follow, as for `of_all`.
        due: When the next write is due; now, where there is something planned.
        sending: When each write that somebody is sending is asked about.
        unsent: Queued, and nobody sends it.
        others: How many writes of which other merchants are open.
    """
    facts = {"dry_run": True, "due": [_due(each) for each in planned], "unsent": len(unsent)}
    return json.dumps({**facts, "of_other_merchants": dict(others), **_left(manual, due, sending)})


def heard_json(tally: Tally, *, others: Mapping[str, int], silent: bool) -> str:
    """Return the last line where an error has cut it short: what only the journal could say, is `null`.

    Args:
        tally: Of what came, as for `of_all`.
        others: How many writes of which other merchants are open.
        silent: The service answered nobody in the last run.
    """
    unread = dict.fromkeys(("unsent", "needs_a_person", "sending", "next_in"))
    facts = _found(tally, silent=silent, unsent=0)
    return json.dumps({**facts, "interrupted": False, "cut_short": True, "of_other_merchants": dict(others), **unread})


def _found(tally: Tally, *, silent: bool, unsent: int) -> dict[str, Any]:
    report = Report(silent=silent, unsent=unsent, rejected=tally.rejected, **tally.ends)
    asked = {"asked": report.asked, "questions": tally.questions, "runs": tally.runs}
    return {**asked, **asdict(report), "not_done": _not_done(tally)}


def _left(manual: Sequence[Intent], due: datetime | None, sending: Sequence[datetime]) -> dict[str, Any]:
    # Rounded up: who waits so long finds it due.
    next_in = None if due is None else max(0, ceil((due - now()).total_seconds()))
    people = [_named(each, each.reason) for each in manual]
    return {"needs_a_person": people, "sending": len(sending), "next_in": next_in}


def _not_done(tally: Tally) -> list[dict[str, Any]]:
    return [_named(each.intent, each.reason) for each in tally.not_done]


def _named(intent: Intent, reason: str) -> dict[str, Any]:
    """Return by what a script finds a write among its own, and why it is told of it."""
    names = {"id": intent.id, "operation": intent.operation, "reference": intent.reference, "intent": intent.intent}
    return {**names, "reason": reason}


def _due(intent: Intent) -> dict[str, Any]:
    # Of what was cut off, the end of the lease is when it became due.
    moments = {"created": intent.created, "sent_at": intent.sent_at, "due": intent.lease or intent.due}
    told = {name: moment and moment.isoformat() for name, moment in moments.items()}
    return {**_named(intent, intent.reason), "state": intent.state, **told}


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
        write(("payasync reconcile", "bold"), f" {__version__}: asks the service what became of unknown writes")
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
            self._lines.write(run_json(report, self._tally))
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
            return plan_json(self._planned, manual, due, sending, unsent, others=others)
        return all_json(tally, manual, due, sending, unsent, others=others, silent=silent, interrupted=interrupted)

    def cut_short(self) -> None:
        """Show what was heard before an error, if anything: the journal may be unable to say any more."""
        if not self._tally.asked:
            return
        if self._json:
            self._lines.write(heard_json(self._tally, others=self._others, silent=self._silent))
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
