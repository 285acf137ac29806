"""`payasync journal`: what a journal keeps, and how a person ends what nobody can find out."""

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

from payasync.cli.intent_table import (
    STYLES,
    duration,
    intent_json,
    intent_table,
    now,
    number_of,
    reason_beside,
    time_ago,
)
from payasync.cli.options import Address, existing_journal, run_with_journal
from payasync.cli.terminal import Lines, plain
from payasync.endpoints import OPERATIONS
from payasync.journal import STATES, Intent, Journal, State
from payasync.journal.intents import ENDS, FOR_A_PERSON

SHORTEST: Final = timedelta(days=1)
_UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}
_QUESTIONS: Final[dict[tuple[bool, State], str]] = {
    (False, "succeeded"): "Has it succeeded, for sure?",
    (False, "rejected"): "Has it not been done, for sure?",
    (True, "succeeded"): "It was not done from here. Was it done by other means, for sure?",
    (True, "rejected"): "It was not done, and nobody will send it. Is it not wanted any more, for sure?",
}
"""By whether the intent is new, and by its end."""


def _positive_id(_context: click.Context, _argument: click.Parameter, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text) or not int(text):
        raise click.BadParameter(
            f"{text!r} is not the number of an intent, which payasync journal list shows; "
            "of an order, a refund or a subscription it finds it with --number"
        )
    return int(text)


def _age(_context: click.Context, _option: click.Parameter, text: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if not found:
        raise click.BadParameter("it must be a number of hours, days or weeks, such as 90d")
    age = timedelta(**{_UNITS[found[2]]: int(found[1])})
    if age < SHORTEST:
        raise click.BadParameter("it must be a day or more: what ended today may well be repeated")
    return age


@click.group()
def journal() -> None:
    """See what a journal keeps of each write, and end what needs a person.

    The exit code is 1 if there is no intent of that number, and 2 if the journal cannot be read.
    """


@journal.command("list", short_help="List intents.")
@existing_journal
@click.option("--state", type=click.Choice(STATES), help="Only those of one state.")
@click.option("--number", metavar="NUMBER", help="Only those about one order, refund or subscription.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="ID", help="Only those of a higher number.")
@click.option("--json", is_flag=True, help="Show a line of JSON for each.")
def list_intents(
    address: Address, *, state: State | None, number: str | None, limit: int, after: int, json: bool
) -> None:
    """List intents in the order of their numbers."""

    async def work(journal: Journal) -> list[Intent]:
        if number is None:
            return await journal.list(state, limit=limit + 1, after=after)
        about = [each for operation in OPERATIONS for each in await journal.find(operation.name, number)]
        found = [each for each in about if each.id > after and state in {None, each.state}]
        return sorted(found, key=lambda each: each.id)[: limit + 1]

    found = run_with_journal(address, work, command="journal list")
    more = len(found) > limit
    JournalScreen(json=json).listed(found[:limit], state=state, number=number, after=after, more=more)


@journal.command(short_help="Show one intent, whole.")
@existing_journal
@click.argument("intent_id", callback=_positive_id, metavar="ID")
@click.option("--json", is_flag=True, help="Show it as a line of JSON.")
def show(address: Address, intent_id: int, *, json: bool) -> None:
    """Show all that is kept of the intent ID."""
    JournalScreen(json=json).shown(_existing(address, intent_id), address)


@journal.command(short_help="End an intent by your word.")
@existing_journal
@click.argument("intent_id", callback=_positive_id, metavar="ID")
@click.option("--as", "end", type=click.Choice(sorted(ENDS, reverse=True)), required=True, help="What became of it.")
@click.option("--reason", required=True, metavar="TEXT", help="How you know; it is kept.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def resolve(address: Address, intent_id: int, end: State, reason: str, *, yes: bool) -> None:
    """End the new, unknown, accepted or manual intent ID by what you know, as from the service's back office.

    An intent that has succeeded is never sent again. A rejected one is sent as soon as somebody repeats it under its
    number: be sure that it was not done. A new one was not done from here. Reject it if nobody wants it any more; end
    it as succeeded if it was done by other means. No task that is left of it sends it then.
    """
    screen, seen, attempts = JournalScreen(), None, None
    found = _existing(address, intent_id)
    if not yes:
        seen, attempts = found.state, found.attempts
        # The journal refuses any other state, so there is nothing to confirm.
        if found.state in FOR_A_PERSON:
            screen.shown(found, address, hint=False)
            click.confirm(_QUESTIONS[found.state == "new", end], abort=True)

    async def work(journal: Journal) -> Intent:
        return await journal.resolve(intent_id, as_=end, reason=reason, seen=seen, attempts=attempts)

    screen.resolved(run_with_journal(address, work, command="journal resolve"))


@journal.command(short_help="Delete what ended long ago.")
@existing_journal
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

    Pruned numbers are forgotten: a request that repeats one is sent again. Keep what somebody may repeat.
    """
    before: datetime = now() - age

    async def work(journal: Journal) -> int:
        return await journal.prune(before)

    JournalScreen().pruned(run_with_journal(address, work, command="journal prune"), before)


@journal.command(short_help="Follow a service to its new address.")
@existing_journal
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--yes", is_flag=True, help="Do not ask.")
def move(address: Address, old: str, new: str, *, yes: bool) -> None:
    """Say that the service whose base URL was OLD is at NEW, so that sessions of the new address use this journal.

    Use it only for one and the same service. Of any other the journal would believe that what OLD has done is done
    there, and would not send it. Sessions of OLD are refused from then on. OLD may be `sandbox`, as long as nothing was
    done there.
    """
    if not yes:
        click.confirm(f"Does {new} know all that {old} has done, for sure?", abort=True)

    async def work(journal: Journal) -> list[str]:
        return await journal.move(old, new)

    JournalScreen().moved(run_with_journal(address, work, command="journal move"), new)


def _existing(address: Address, intent_id: int) -> Intent:
    async def work(journal: Journal) -> Intent | None:
        return await journal.get(intent_id)

    found = run_with_journal(address, work, command="journal show")
    if found is None:
        click.echo(f"payasync journal: there is no intent {intent_id} in {address.shown}", err=True)
        sys.exit(1)
    return found


_WIDTH: Final = 10
"""The width of the names of facts."""


class JournalScreen:
    """What a person or a script sees of the commands.

    Args:
        json: Show lines of JSON, and no others.
        terminal: Written to in place of the terminal.
    """

    def __init__(self, *, json: bool = False, terminal: Console | None = None) -> None:
        self._lines = Lines(terminal)
        self._json = json

    def listed(
        self, intents: Sequence[Intent], *, state: State | None, number: str | None = None, after: int = 0, more: bool
    ) -> None:
        """Show intents, and how to see the next ones, if there are more.

        Args:
            intents: In the order of their numbers.
            state: The state of all of them; `None`: any.
            number: The number that all of them are about; `None`: any.
            after: All of them have a higher id.
            more: There are others.
        """
        if self._json:
            for each in intents:
                self._lines.write(intent_json(each))
            return
        if not intents:
            under = f" under {plain(number)}" if number is not None else ""
            later = f" after intent {after}" if after else ""
            self._lines.write((f"Nothing is {state or 'kept'}{under}{later}.", "dim"))
            return
        self._lines.print(intent_table(intents, width=self._lines.console.width))
        if more:
            self._lines.write()
            self._lines.write((f"There are more: --after {intents[-1].id}", "dim"))

    def shown(self, intent: Intent, address: Address, *, hint: bool = True) -> None:
        """Show all that is kept of an intent, and what a person can do about it."""
        if self._json:
            self._lines.write(intent_json(intent))
            return
        write = self._lines.write
        write()
        write((f"{intent.id}  ", "bold"), (plain(f"{intent.operation} {number_of(intent)}"), "bold"))
        write()
        for name, value, style in _facts(intent, now()):
            self._lines.row(name, plain(value), style, width=_WIDTH)
        for name, value in _content(intent):
            self._lines.row(name, plain(value), "", width=_WIDTH)
        if intent.outcome and intent.outcome.body:
            self._lines.print(_readable(intent.outcome.body), indent=_WIDTH + 4)
        write()
        if hint and intent.state in FOR_A_PERSON:
            unsent = intent.state == "new"
            end = "rejected" if unsent else "succeeded|rejected"
            command = f"payasync journal resolve {intent.id}{address.option} --as {end} --reason …"
            write("  If nobody is to send it any more:" if unsent else "  If you know what became of it:")
            write((f"  {plain(command)}", "cyan"))
            write()

    def resolved(self, intent: Intent) -> None:
        """Say that a person has ended an intent."""
        self._lines.write(
            f"Intent {intent.id}, {plain(intent.operation)} {plain(number_of(intent))}, is now ",
            (intent.state, STYLES[intent.state]),
            ".",
        )

    def moved(self, merchants: Sequence[str], service: str) -> None:
        """Say whose writes go to the new address."""
        whose = plain(", ".join(merchants))
        self._lines.write("The writes of ", (whose, "bold"), f" go to {plain(service)} from now on.")

    def pruned(self, count: int, before: datetime) -> None:
        """Say how much was deleted."""
        what = "1 intent that ended" if count == 1 else f"{count} intents that ended"
        self._lines.write(f"Deleted {what} before {before.astimezone():%Y-%m-%d %H:%M}.")


def _facts(intent: Intent, at: datetime) -> Iterator[tuple[str, str, str]]:
    """Yield a name, a value and a style of each known fact."""
    yield "State", intent.state, STYLES[intent.state]
    if reason := reason_beside(intent.state, intent.reason):
        yield "", reason, ""
    yield "Merchant", intent.merchant, ""
    if intent.intent:
        yield "Intent", intent.intent, ""
    yield "Kept", _moment(intent.created, at), ""
    if intent.updated != intent.created:
        yield "Changed", _moment(intent.updated, at), ""
    yield "Sent", _times(intent.attempts) + (", by a worker" if intent.queued else ""), ""
    if intent.sent_at and intent.state in {"sending", "unknown", "manual"}:
        yield "In doubt", f"since {_moment(intent.sent_at, at)}", ""
    if intent.asked:
        yield "Asked", _times(intent.asked), ""
    if intent.silent_since:
        yield "Silence", f"since {_moment(intent.silent_since, at)}", ""
    if intent.due:
        yield "Due", "now" if intent.due <= at else f"in {duration((intent.due - at).total_seconds())}", ""
    if intent.lease:
        seconds = (intent.lease - at).total_seconds()
        yield "Held", "by nobody any more" if seconds <= 0 else f"for {duration(seconds)} more", ""


def _content(intent: Intent) -> Iterator[tuple[str, str]]:
    """Yield a name and a value of each argument of the request, and of the answer."""
    for place, (name, value) in enumerate(intent.request.items()):
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield "" if place else "Request", f"{name} = {shown}"
    if outcome := intent.outcome:
        signed = {True: ", signed by the service", False: ", not signed by the service", None: ""}[outcome.verified]
        yield "Answer", f"HTTP {outcome.status}{', to a question afterwards' if outcome.recovered else ''}{signed}"


def _moment(moment: datetime, at: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}, {time_ago(moment, at)}"


def _times(count: int) -> str:
    return {0: "not yet", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _readable(body: bytes) -> JSON | Text:
    try:
        document: Any = json.loads(body)
    except ValueError:
        return Text(plain(body.decode(errors="replace")))
    return JSON.from_data(document, ensure_ascii=True)
