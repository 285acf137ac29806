"""What a person sees of `payasync journal`."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.json import JSON
from rich.text import Text

from payasync.cli.intent_table import STYLES, ago, as_json, beside, console, named, now, span, table
from payasync.cli.journal_at import Address
from payasync.cli.tables import show
from payasync.cli.terminal import Lines, plain
from payasync.journal import Intent, Outcome, State
from payasync.journal.intents import FOR_A_PERSON

WIDTH: Final = 10
"""Of the names of facts."""
_IN_DOUBT: Final[frozenset[State]] = frozenset({"sending", "unknown", "manual"})
"""What was in doubt before, and has an answer since, keeps the moment."""


class JournalScreen:
    """The terminal, or whatever stands in its place.

    Args:
        json: Show lines of JSON, and no others.
        terminal: Written to in place of the terminal.
    """

    def __init__(self, *, json: bool = False, terminal: Console | None = None) -> None:
        self._console = terminal or console()
        self._lines = Lines(self._console)
        self._json = json

    def listed(
        self, intents: Sequence[Intent], *, state: State | None, number: str | None = None, after: int = 0, more: bool
    ) -> None:
        """Show intentions, and how to see the next ones, if there are more.

        Args:
            intents: In the order of their numbers.
            state: All of them are in it; `None`: in any.
            number: All of them are about it; `None`: about any.
            after: All of them have a higher number.
            more: There are others.
        """
        if self._json:
            for each in intents:
                self._lines.write(as_json(each))
            return
        if not intents:
            under = f" under {plain(number)}" if number is not None else ""
            later = f" after intention {after}" if after else ""
            self._lines.write((f"Nothing is {state or 'kept'}{under}{later}.", "dim"))
            return
        show(self._console, table(intents, now=now(), width=self._console.width))
        if more:
            self._lines.write()
            self._lines.write((f"There are more: --after {intents[-1].id}", "dim"))

    def shown(self, intent: Intent, address: Address, *, hint: bool = True) -> None:
        """Show all that is kept of an intention, and what a person can do about it."""
        if self._json:
            self._lines.write(as_json(intent))
            return
        write = self._lines.write
        write()
        write((f"{intent.id}  ", "bold"), (plain(f"{intent.operation} {named(intent)}"), "bold"))
        write()
        for name, value, style in _facts(intent, now()):
            self._lines.row(name, plain(value), style, width=WIDTH)
        self._request(intent)
        if intent.outcome is not None:
            self._answer(intent.outcome)
        write()
        if hint and intent.state in FOR_A_PERSON:
            unsent = intent.state == "new"
            end = "rejected" if unsent else "succeeded|rejected"
            command = f"payasync journal resolve {intent.id}{address.option} --as {end} --reason …"
            write("  If nobody is to send it any more:" if unsent else "  If you know what became of it:")
            write((f"  {plain(command)}", "cyan"))
            write()

    def _request(self, intent: Intent) -> None:
        for number, (name, value) in enumerate(intent.request.items()):
            shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            self._lines.row("" if number else "Request", f"{plain(name)} = {plain(shown)}", "", width=WIDTH)

    def _answer(self, outcome: Outcome) -> None:
        told = {True: ", signed by the service", False: ", not signed by the service", None: ""}[outcome.verified]
        asked = ", to a question afterwards" if outcome.recovered else ""
        self._lines.row("Answer", f"HTTP {outcome.status}{asked}{told}", "", width=WIDTH)
        if outcome.body:
            show(self._console, _body(outcome.body), indent=WIDTH + 4)

    def resolved(self, intent: Intent) -> None:
        """Say that a person has ended an intention."""
        self._lines.write(
            f"Intention {intent.id}, {plain(intent.operation)} {plain(named(intent))}, is now ",
            (intent.state, STYLES[intent.state]),
            ".",
        )

    def moved(self, merchants: Sequence[str], service: str) -> None:
        """Say whose writes go to the new address."""
        whose = plain(", ".join(merchants))
        self._lines.write("The writes of ", (whose, "bold"), f" go to {plain(service)} from now on.")

    def pruned(self, count: int, before: datetime) -> None:
        """Say how much was deleted."""
        what = "1 intention that ended" if count == 1 else f"{count} intentions that ended"
        self._lines.write(f"Deleted {what} before {before.astimezone():%Y-%m-%d %H:%M}.")


def _facts(intent: Intent, at: datetime) -> Iterator[tuple[str, str, str]]:
    """Yield a name, a value and a style of each thing that is known."""
    yield "State", intent.state, STYLES[intent.state]
    if reason := beside(intent.state, intent.reason):
        yield "", reason, ""
    yield "Merchant", intent.merchant, ""
    if intent.intent:
        yield "Intent", intent.intent, ""
    yield "Kept", _moment(intent.created, at), ""
    if intent.updated != intent.created:
        yield "Changed", _moment(intent.updated, at), ""
    yield "Sent", _times(intent.attempts) + (", by a worker" if intent.queued else ""), ""
    if intent.sent_at and intent.state in _IN_DOUBT:
        yield "In doubt", f"since {_moment(intent.sent_at, at)}", ""
    if intent.asked:
        yield "Asked", _times(intent.asked), ""
    if intent.silent_since:
        yield "Silence", f"since {_moment(intent.silent_since, at)}", ""
    if intent.due:
        yield "Due", "now" if intent.due <= at else f"in {span((intent.due - at).total_seconds())}", ""
    if intent.lease:
        over = intent.lease <= at
        yield "Held", "by nobody any more" if over else f"for {span((intent.lease - at).total_seconds())} more", ""


def _moment(moment: datetime, at: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}, {ago(moment, at)}"


def _times(count: int) -> str:
    return {0: "not yet", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _body(body: bytes) -> JSON | Text:
    try:
        document: Any = json.loads(body)
    except ValueError:
        return Text(plain(body.decode(errors="replace")))
    return JSON.from_data(document, ensure_ascii=True)
