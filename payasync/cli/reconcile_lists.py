"""What `payasync reconcile` lists: what was not done, what nobody sends, and what only a person can say."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from attrs import evolve
from rich.console import Console

from payasync.cli.intent_table import now, span, table
from payasync.cli.journal_at import Address
from payasync.cli.reconcile_tally import Tally
from payasync.cli.tables import show
from payasync.cli.terminal import Lines, plain
from payasync.journal import Intent
from payasync.journal.reconciling import Result

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
            show(self._console, table(piece, now=now(), width=self._console.width, state=state), indent=2)


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
