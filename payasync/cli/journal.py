"""`payasync journal`: what a journal keeps, and a person's word on what nobody can find out."""

import re
import sys
from datetime import datetime, timedelta
from typing import Final

import click

from payasync.cli import journal_at
from payasync.cli.intent_table import now
from payasync.cli.journal_at import Address
from payasync.cli.journal_screen import JournalScreen
from payasync.journal import STATES, Intent, Journal, State
from payasync.journal.intents import ENDS
from payasync.operations import OPERATIONS

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
@journal_at.option
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

    found = journal_at.asked(address, work, command="journal list")
    more = len(found) > limit
    JournalScreen(json=json).listed(found[:limit], state=state, number=number, after=after, more=more)


@journal.command(short_help="Show one intention, whole.")
@journal_at.option
@click.argument("intent_id", callback=_number, metavar="ID")
@click.option("--json", is_flag=True, help="Show it as a line of JSON.")
def show(address: Address, intent_id: int, *, json: bool) -> None:
    """Show all that is kept of the intention ID."""
    JournalScreen(json=json).shown(_existing(address, intent_id), address)


@journal.command(short_help="End an intention by your word.")
@journal_at.option
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

    screen.resolved(journal_at.asked(address, work, command="journal resolve"))


def _age(_context: click.Context, _option: click.Parameter, text: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if not found:
        raise click.BadParameter("it must be a number of hours, days or weeks, such as 90d")
    age = timedelta(**{_UNITS[found[2]]: int(found[1])})
    if age < SHORTEST:
        raise click.BadParameter("it must be a day or more: what ended today may well be repeated")
    return age


@journal.command(short_help="Delete what ended long ago.")
@journal_at.option
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

    JournalScreen().pruned(journal_at.asked(address, work, command="journal prune"), before)


@journal.command(short_help="Follow a service to its new address.")
@journal_at.option
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

    JournalScreen().moved(journal_at.asked(address, work, command="journal move"), new)


def _existing(address: Address, intent_id: int) -> Intent:
    async def work(kept: Journal) -> Intent | None:
        return await kept.get(intent_id)

    found = journal_at.asked(address, work, command="journal show")
    if found is None:
        click.echo(f"payasync journal: there is no intention {intent_id} in {address.shown}", err=True)
        sys.exit(1)
    return found
