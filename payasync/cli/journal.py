"""`payasync journal`: lists and shows writes, and lets a person resolve those that the service cannot settle."""

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
from payasync.journal.intents import END_STATES, RESOLVABLE_STATES

SHORTEST: Final = timedelta(days=1)
_UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}
_QUESTIONS: Final[dict[tuple[bool, State], str]] = {
    (False, "succeeded"): "Are you sure that it has succeeded?",
    (False, "rejected"): "Are you sure that it was not done?",
    (True, "succeeded"): "payasync has not sent it. Are you sure that it was done by other means?",
    (True, "rejected"): "payasync has not sent it, and will not send it. Are you sure that it is no longer wanted?",
}
"""By whether the intent is new, and by its end."""


def _positive_id(_context: click.Context, _argument: click.Parameter, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text) or not int(text):
        raise click.BadParameter(
            f"{text!r} is not an intent ID. To find the ID of an order, a refund or a subscription, run "
            "payasync journal list --number NUMBER"
        )
    return int(text)


def _age(_context: click.Context, _option: click.Parameter, text: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if not found:
        raise click.BadParameter("it must be a number of hours, days or weeks, such as 90d")
    age = timedelta(**{_UNITS[found[2]]: int(found[1])})
    if age < SHORTEST:
        raise click.BadParameter("it must be one day or more, because recent requests are often repeated")
    return age


@click.group()
def journal() -> None:
    """Show the writes that a journal records, and resolve those that need a person.

    An intent is one write in the journal. If its state is unknown, the service may have carried it out: run payasync
    reconcile. If its state is manual, the service cannot settle it:

    \b
      1. payasync journal list --state manual    lists these intents, with the reason
      2. payasync journal show ID                shows since when, and the whole request
      3. Look up the order or refund in the service's back office.
      4. payasync journal resolve ID …           records what happened

    The exit code is 1 if there is no such intent, and 2 if the journal cannot be read.
    """  # noqa: D301 - click does not wrap a paragraph after this character


@journal.command("list", short_help="List intents.")
@existing_journal
@click.option("--state", type=click.Choice(STATES), help="Only intents in this state.")
@click.option("--number", metavar="NUMBER", help="Only intents for this order, refund or subscription.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="The greatest number of intents.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="ID", help="Only intents with a higher ID.")
@click.option("--json", is_flag=True, help="Print one line of JSON per intent.")
def list_intents(
    address: Address, *, state: State | None, number: str | None, limit: int, after: int, json: bool
) -> None:
    """List intents by ID."""

    async def work(journal: Journal) -> list[Intent]:
        if number is None:
            return await journal.list(state, limit=limit + 1, after=after)
        about = [each for operation in OPERATIONS for each in await journal.find(operation.name, number)]
        found = [each for each in about if each.id > after and state in {None, each.state}]
        return sorted(found, key=lambda each: each.id)[: limit + 1]

    found = run_with_journal(address, work, command="journal list")
    more = len(found) > limit
    JournalScreen(json=json).listed(found[:limit], state=state, number=number, after=after, more=more)


@journal.command(short_help="Show one intent in full.")
@existing_journal
@click.argument("intent_id", callback=_positive_id, metavar="ID")
@click.option("--json", is_flag=True, help="Print one line of JSON.")
def show(address: Address, intent_id: int, *, json: bool) -> None:
    """Show all that the journal records about the intent ID."""
    JournalScreen(json=json).shown(_existing(address, intent_id), address)


@journal.command(short_help="Record what happened to an intent.")
@existing_journal
@click.argument("intent_id", callback=_positive_id, metavar="ID")
@click.option("--as", "end", type=click.Choice(sorted(END_STATES, reverse=True)), required=True, help="What happened.")
@click.option("--reason", required=True, metavar="TEXT", help="How you know. The journal records it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def resolve(address: Address, intent_id: int, end: State, reason: str, *, yes: bool) -> None:
    """Record what happened to the intent ID, as you know it from the service's back office.

    The intent must be new, unknown, accepted or manual. A succeeded intent is never sent again. A rejected intent is
    sent again if a request repeats its number, so make sure that it was not done.

    A new intent was never sent. Reject it if it is no longer wanted. Record it as succeeded if it was done by other
    means. A task that still waits for it then sends nothing.
    """
    seen = attempts = None
    found = _existing(address, intent_id)
    if not yes:
        seen, attempts = found.state, found.attempts
        # The journal refuses any other state, so there is nothing to confirm.
        if found.state in RESOLVABLE_STATES:
            JournalScreen().shown(found, address, hint=False)
            click.confirm(_QUESTIONS[found.state == "new", end], abort=True)
    resolved = run_with_journal(
        address,
        lambda journal: journal.resolve(intent_id, as_=end, reason=reason, seen=seen, attempts=attempts),
        command="journal resolve",
    )
    Lines().write(
        f"Intent {resolved.id}, {plain(resolved.operation)} {plain(number_of(resolved))}, is now ",
        (resolved.state, STYLES[resolved.state]),
        ".",
    )


@journal.command(short_help="Delete intents that ended long ago.")
@existing_journal
@click.option(
    "--older-than",
    "age",
    required=True,
    callback=_age,
    metavar="AGE",
    help="The age in hours, days or weeks, such as 90d; one day or more.",
)
def prune(address: Address, age: timedelta) -> None:
    """Delete intents that succeeded or were rejected more than AGE ago.

    Pruned numbers are forgotten. A request that repeats one is sent again, so choose an age after which nobody repeats
    a request.
    """
    before = now() - age
    count = run_with_journal(address, lambda journal: journal.prune(before), command="journal prune")
    what = "1 intent that ended" if count == 1 else f"{count} intents that ended"
    Lines().write(f"Deleted {what} before {before.astimezone():%Y-%m-%d %H:%M}.")


@journal.command(short_help="Bind the journal to a service's new address.")
@existing_journal
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option("--yes", is_flag=True, help="Do not ask.")
def move(address: Address, old: str, new: str, *, yes: bool) -> None:
    """Bind the journal to the base URL NEW, because the service at OLD has moved there.

    Use this only if NEW is the same service. Otherwise the journal treats writes that OLD has done as done at NEW, and
    does not send them. Sessions with the address OLD are refused afterwards. OLD may be `sandbox` if no write was done
    there.
    """
    if not yes:
        click.confirm(f"Are you sure that {new} is the same service as {old}, with all its writes?", abort=True)
    merchants = run_with_journal(address, lambda journal: journal.move(old, new), command="journal move")
    Lines().write("The writes of ", (plain(", ".join(merchants)), "bold"), f" go to {plain(new)} from now on.")


def _existing(address: Address, intent_id: int) -> Intent:
    found = run_with_journal(address, lambda journal: journal.get(intent_id), command="journal show")
    if found is None:
        click.echo(f"payasync journal: there is no intent {intent_id} in {address.shown}", err=True)
        sys.exit(1)
    return found


_WIDTH: Final = 11
"""The width of the names of facts."""


class JournalScreen:
    """What a person or a script sees of intents.

    Args:
        json: Show lines of JSON, and no others.
        console: Written to in place of the terminal.
    """

    def __init__(self, *, json: bool = False, console: Console | None = None) -> None:
        self._lines = Lines(console)
        self._json = json

    def listed(
        self, intents: Sequence[Intent], *, state: State | None, number: str | None = None, after: int = 0, more: bool
    ) -> None:
        """Show intents, and how to list the rest if there are more.

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
            under = f" for {plain(number)}" if number is not None else ""
            later = f" after intent {after}" if after else ""
            self._lines.write((f"The journal has no {f'{state} ' if state else ''}intents{under}{later}.", "dim"))
            return
        self._lines.print(intent_table(intents, width=self._lines.console.width))
        if more:
            self._lines.write()
            self._lines.write((f"There are more: --after {intents[-1].id}", "dim"))

    def shown(self, intent: Intent, address: Address, *, hint: bool = True) -> None:
        """Show all that the journal records about an intent, and the commands for a person."""
        if self._json:
            self._lines.write(intent_json(intent))
            return
        write = self._lines.write
        write()
        self._lines.paragraph((f"{intent.id}  ", "bold"), (plain(f"{intent.operation} {number_of(intent)}"), "bold"))
        for name, value, style in _facts(intent, now()):
            self._lines.row(name, plain(value), style, width=_WIDTH)
        for name, value in _content(intent):
            self._lines.row(name, plain(value), "", width=_WIDTH)
        if intent.outcome and intent.outcome.body:
            self._lines.print(_readable(intent.outcome.body), indent=_WIDTH + 4)
        write()
        if hint and intent.state in RESOLVABLE_STATES:
            unsent = intent.state == "new"
            end = "rejected" if unsent else "succeeded|rejected"
            command = f"payasync journal resolve {intent.id}{address.option} --as {end} --reason …"
            write("  If it is no longer wanted:" if unsent else "  Once you know what happened:")
            self._lines.paragraph((f"  {plain(command)}", "cyan"))


def _facts(intent: Intent, at: datetime) -> Iterator[tuple[str, str, str]]:
    """Yield a name, a value and a style of each known fact."""
    yield "State", intent.state, STYLES[intent.state]
    if reason := reason_beside(intent.state, intent.reason):
        yield "", reason, ""
    yield "Merchant", intent.merchant, ""
    for name, key in (("Intent", intent.intent), ("Key", intent.idempotency_key)):
        if key:
            yield name, key, ""
    yield "Recorded", _moment(intent.created, at), ""
    if intent.updated != intent.created:
        yield "Updated", _moment(intent.updated, at), ""
    yield "Sent", _times(intent.attempts) + (", by a worker" if intent.queued else ""), ""
    if intent.sent_at and intent.state in {"sending", "unknown", "manual"}:
        yield "In doubt", f"since {_moment(intent.sent_at, at)}", ""
    if intent.asked:
        yield "Queried", _times(intent.asked), ""
    if intent.silent_since:
        yield "No response", f"since {_moment(intent.silent_since, at)}", ""
    if intent.due:
        yield "Next query", "now" if intent.due <= at else f"in {duration((intent.due - at).total_seconds())}", ""
    if intent.lease:
        seconds = (intent.lease - at).total_seconds()
        yield "Lease", "expired" if seconds <= 0 else f"for {duration(seconds)} more", ""


def _content(intent: Intent) -> Iterator[tuple[str, str]]:
    """Yield a name and a value of each argument of the request, and of the response."""
    for place, (name, value) in enumerate(intent.request.items()):
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield "" if place else "Request", f"{name} = {shown}"
    if outcome := intent.outcome:
        signed = {True: ", signed by the service", False: ", not signed by the service", None: ""}[outcome.verified]
        yield "Response", f"HTTP {outcome.status}{', to a later query' if outcome.recovered else ''}{signed}"


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
