"""`payasync journal`: what a journal keeps, and a person's word on what nobody can find out."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import click
from rich.console import Console
from rich.json import JSON
from rich.text import Text

from payasync.cli.intent_table import STYLES, ago, as_json, beside, console, named, now, span, table
from payasync.cli.journal_option import Address, option, run_with_journal
from payasync.cli.terminal import Lines, plain, print_table
from payasync.endpoints import OPERATIONS
from payasync.journal import STATES, Journal, Outcome
from payasync.journal.intents import ENDS, FOR_A_PERSON, Intent, State

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
        print_table(self._console, table(intents, now=now(), width=self._console.width))
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
            print_table(self._console, _body(outcome.body), indent=WIDTH + 4)

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


SHORTEST: Final = timedelta(days=1)
_UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}
_QUESTIONS: Final[dict[tuple[bool, State], str]] = {
    (False, "succeeded"): "Has it succeeded, for sure?",
    (False, "rejected"): "Has it not been done, for sure?",
    (True, "succeeded"): "It was not done from here. Was it done by other means, for sure?",
    (True, "rejected"): "It was not done, and nobody will send it. Is it not wanted any more, for sure?",
}
"""By whether it is new, and by its end."""


def _number(_context: click.Context, _argument: click.Parameter, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text) or not int(text):
        raise click.BadParameter(
            f"{text!r} is not the number of an intention, which payasync journal list shows; "
            "of an order, a refund or a subscription it finds it with --number"
        )
    return int(text)


@click.group(short_help="See what a journal keeps, and end what needs a person.")
def journal() -> None:
    """See what a journal keeps of each write, and end what needs a person.

    The exit code is 1 where there is no intention of that number, and 2 where the journal cannot be read.
    """


@journal.command("list", short_help="List intentions.")
@option
@click.option("--state", type=click.Choice(STATES), help="Only those of one state.")
@click.option("--number", metavar="NUMBER", help="Only those about one order, refund or subscription.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="ID", help="Only those of a higher number.")
@click.option("--json", is_flag=True, help="Show a line of JSON for each.")
def show_list(address: Address, *, state: State | None, number: str | None, limit: int, after: int, json: bool) -> None:
    """List intentions in the order of their numbers."""

    async def work(kept: Journal) -> list[Intent]:
        if number is None:
            return await kept.list(state, limit=limit + 1, after=after)
        about = [each for operation in OPERATIONS for each in await kept.find(operation.name, number)]
        found = [each for each in about if each.id > after and state in {None, each.state}]
        return sorted(found, key=lambda each: each.id)[: limit + 1]

    found = run_with_journal(address, work, command="journal list")
    more = len(found) > limit
    JournalScreen(json=json).listed(found[:limit], state=state, number=number, after=after, more=more)


@journal.command(short_help="Show one intention, whole.")
@option
@click.argument("intent_id", callback=_number, metavar="ID")
@click.option("--json", is_flag=True, help="Show it as a line of JSON.")
def show(address: Address, intent_id: int, *, json: bool) -> None:
    """Show all that is kept of the intention ID."""
    JournalScreen(json=json).shown(_existing(address, intent_id), address)


@journal.command(short_help="End an intention by your word.")
@option
@click.argument("intent_id", callback=_number, metavar="ID")
@click.option("--as", "end", type=click.Choice(sorted(ENDS, reverse=True)), required=True, help="What became of it.")
@click.option("--reason", required=True, metavar="TEXT", help="How you know; it is kept.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def resolve(address: Address, intent_id: int, end: State, reason: str, *, yes: bool) -> None:
    """End the new, unknown, accepted or manual intention ID by what you know, as from the service's back office.

    One that has succeeded is never sent again. One that was rejected is, as soon as somebody repeats it under its
    number: be sure that it was not done. A new one was not done from here: it is rejected where nobody wants it any
    more, and has succeeded where it was done by other means. No task that is left of it sends it then.
    """
    screen, seen, attempts = JournalScreen(), None, None
    found = _existing(address, intent_id)
    if not yes:
        screen.shown(found, address, hint=False)
        click.confirm(_QUESTIONS[found.state == "new", end], abort=True)
        seen, attempts = found.state, found.attempts

    async def work(kept: Journal) -> Intent:
        return await kept.resolve(intent_id, as_=end, reason=reason, seen=seen, attempts=attempts)

    screen.resolved(run_with_journal(address, work, command="journal resolve"))


def _age(_context: click.Context, _option: click.Parameter, text: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if not found:
        raise click.BadParameter("it must be a number of hours, days or weeks, such as 90d")
    age = timedelta(**{_UNITS[found[2]]: int(found[1])})
    if age < SHORTEST:
        raise click.BadParameter("it must be a day or more: what ended today may well be repeated")
    return age


@journal.command(short_help="Delete what ended long ago.")
@option
@click.option(
    "--older-than",
    "age",
    required=True,
    callback=_age,
    metavar="AGE",
    help="What ended longer ago, such as 90d or 12w.",
)
def prune(address: Address, age: timedelta) -> None:
    """Delete what has succeeded or was rejected longer ago, and nothing else.

    The journal knows the numbers no more: what comes under them afterwards is sent. Keep what somebody may repeat.
    """
    before: datetime = now() - age

    async def work(kept: Journal) -> int:
        return await kept.prune(before)

    JournalScreen().pruned(run_with_journal(address, work, command="journal prune"), before)


@journal.command(short_help="Follow a service to its new address.")
@option
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--yes", is_flag=True, help="Do not ask.")
def move(address: Address, old: str, new: str, *, yes: bool) -> None:
    """Say that the service whose base URL was OLD is at NEW, so that sessions of the new address use this journal.

    Only for one and the same service. Of any other the journal would believe that what OLD has done is done there, and
    would not send it. Sessions of OLD are refused from then on. It may be `sandbox`, as long as nothing was done there.
    """
    if not yes:
        click.confirm(f"Does {new} know all that {old} has done, for sure?", abort=True)

    async def work(kept: Journal) -> list[str]:
        return await kept.move(old, new)

    JournalScreen().moved(run_with_journal(address, work, command="journal move"), new)


def _existing(address: Address, intent_id: int) -> Intent:
    async def work(kept: Journal) -> Intent | None:
        return await kept.get(intent_id)

    found = run_with_journal(address, work, command="journal show")
    if found is None:
        click.echo(f"payasync journal: there is no intention {intent_id} in {address.shown}", err=True)
        sys.exit(1)
    return found
