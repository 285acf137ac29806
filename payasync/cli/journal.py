"""`payasync journal`: lists and shows writes, and lets a person resolve those that the service cannot settle."""

import json
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import methodcaller
from pathlib import Path
from shlex import quote
from typing import Any, Final

import click
from rich.console import Console
from rich.json import JSON
from rich.text import Text

from payasync.cli.intent_table import (
    ENDS,
    STYLES,
    all_intents,
    duration,
    intent_json,
    intent_table,
    number_of,
    reason_beside,
    resolve_commands,
    time_ago,
)
from payasync.cli.journal_status import OPEN_STATES, JournalStatus, StatusScreen, status_of
from payasync.cli.options import (
    FORMS,
    Address,
    existing_journal,
    fail_with_journal,
    journal_option,
    profile_named,
    profile_option,
    run_with_journal,
    run_with_store,
)
from payasync.cli.terminal import Lines, fail, print_error
from payasync.clocks import utc_now
from payasync.endpoints import OPERATIONS
from payasync.errors import PayasyncError, plain
from payasync.journal import STATES, Intent, Journal, State
from payasync.journal.intents import END_STATES, RESOLVABLE_STATES, doubt_since, format_moment, state_now, when_sent
from payasync.journal.reconcile_policy import may_arrive_until, resolve_objection
from payasync.journal.reconciler import PAGE
from payasync.notifications import Inbox, InboxEvent, SqliteInbox
from payasync.notifications.inbox import REPLAYABLE
from payasync.storage import Upgrade

ROWS: Final = 100
"""The greatest number of rows of a table, unless `--limit` is given."""
SHORTEST: Final = timedelta(days=1)
_NOBODY: Final = "nothing changed: without a terminal, nobody can confirm it. Pass --yes"
_UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}
_QUESTIONS: Final[dict[tuple[bool, State], str]] = {
    (False, "succeeded"): "Are you sure that it has succeeded?",
    (False, "rejected"): "Are you sure that it was not done?",
    (True, "succeeded"): "payasync has not sent it. Are you sure that it was done by other means?",
    (True, "rejected"): "payasync has not sent it, and will not send it. Are you sure that it is no longer wanted?",
}
"""By whether the intent is new, and by its end."""
SEARCHED: Final = {
    "number": "Searched: the numbers of orders, refunds and subscriptions, and the orders of refunds.",
    "order": "Searched: orders, and the orders of refunds. For the number of a refund, give --number.",
}


def _positive_id(_context: click.Context, _argument: click.Parameter, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text) or not int(text):
        raise click.BadParameter(
            f"{text!r} is not an intent ID. To find the ID of an order, a refund or a subscription, run "
            "payasync journal list --number NUMBER"
        )
    return int(text)


def _moment_given(_context: click.Context, _option: click.Parameter, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.removesuffix(" UTC"))
    except ValueError:
        raise click.BadParameter(f"it must be a time such as 2026-11-29 or 2026-11-29T08:30, not {text!r}") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _age(_context: click.Context, _option: click.Parameter, text: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if not found:
        raise click.BadParameter("it must be a number of hours, days or weeks, such as 90d")
    age = timedelta(**{_UNITS[found[2]]: int(found[1])})
    if age < SHORTEST:
        raise click.BadParameter("it must be one day or more, because recent requests are often repeated")
    return age


class _StatusGroup(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Show the status if no subcommand is named."""
        named = args and (args[0] in ctx.help_option_names or not args[0].startswith("-"))
        return super().parse_args(ctx, args if named or ctx.resilient_parsing else ["", *args])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a subcommand; without a name, the status, so that errors begin with the words that were typed."""
        return super().get_command(ctx, cmd_name or "status")


@click.group(cls=_StatusGroup)
def journal() -> None:
    """List and show writes; resolve those that need a person.

    \b
    When you are called at night:
      1. payasync journal          shows what is in doubt, since when, and why
      2. payasync reconcile        asks the service about unknown writes
      3. payasync journal show ID  shows a write that needs a person
      4. Look up this write in the service's back office.
      5. payasync journal resolve ID --as succeeded|rejected --reason TEXT
      6. payasync journal --inbox inbox.db
                                   also shows notifications that need a person

    Do not repeat a write that is unknown or manual: it may have been done. The number of a notification is not the ID
    of a write. Step 6 says how to replay a notification.

    \b
    States of a write, which the journal calls an intent:
      new        queued, and not sent yet
      sending    a process is sending it
      accepted   the service has accepted it, and has not finished it yet
      unknown    it may have been done: payasync reconcile asks the service
      manual     it may have been done, and only a person can find out
      succeeded  it was done
      rejected   it was not done

    \b
    Examples, if PAYASYNC_JOURNAL names the journal:
      payasync journal
      payasync journal list --number R1

    Without a command, this is payasync journal status, with its options --journal, --inbox and --json, its messages and
    its exit codes.
    """  # noqa: D301 - click does not wrap a paragraph after this character


@journal.command(short_help="Show what is in doubt, and what to do.")
@existing_journal
@click.option(
    "--inbox",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also show the notifications of this SQLite inbox that need a person.",
)
@click.option("--json", is_flag=True, help="Print one line of JSON.")
def status(address: Address, *, inbox: Path | None, json: bool) -> None:
    """Show which writes are in doubt, since when, why, and what to do.

    It reads the journal, and sends nothing. Use the version of payasync that your processes run, because a newer one
    may change the tables. The JSON has each write with its next command.

    \b
    Examples:
      payasync journal --journal pay.db
      payasync journal --journal pay.db --inbox inbox.db
      payasync journal status --journal pay.db --json

    \b
    Exit codes, also for monitoring:
      0    nothing is in doubt
      1    some outcomes are unknown: payasync reconcile asks the service
      2    the journal cannot be read
      3    a person must look, or a queued write was not sent for 5 minutes
    """  # noqa: D301 - click does not wrap a paragraph after this character

    async def work(journal: Journal) -> JournalStatus:
        intents = [each for state in OPEN_STATES async for each in all_intents(journal, state)]
        return status_of(intents, await _events_for_person(inbox), utc_now())

    typed = "journal status" if click.get_current_context().info_name else "journal"
    found = run_with_journal(address, work, command=typed)
    StatusScreen(address, json=json).shown(found)
    sys.exit(found.exit_code)


async def _events_for_person(inbox: Path | None) -> list[InboxEvent]:
    if inbox is None:
        return []
    events = list[InboxEvent]()
    async with aclosing(SqliteInbox(inbox, migrate=False)) as store:
        for state in sorted(REPLAYABLE):
            last = 0
            while page := await store.events(state, limit=PAGE, after=last):
                events += page
                last = page[-1].id
    return events


@journal.command("list", short_help="List intents.")
@existing_journal
@click.option("--state", type=click.Choice(STATES), help="Only intents in this state.")
@click.option("--order", metavar="NUMBER", help="Only intents for this order: to place or close it, and its refunds.")
@click.option(
    "--number", metavar="NUMBER", help="Only intents for this order, its refunds, a refund or a subscription."
)
@click.option("--since", callback=_moment_given, metavar="TIME", help="Only intents recorded at this time or later.")
@click.option("--until", callback=_moment_given, metavar="TIME", help="Only intents recorded before this time.")
@click.option("--limit", type=click.IntRange(1), help=f"The greatest number of intents. Default: {ROWS} in a table.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="ID", help="Only intents with a higher ID.")
@click.option("--json", is_flag=True, help="Print all, one line of JSON per intent.")
def list_intents(
    address: Address, *, number: str | None, order: str | None, limit: int | None, json: bool, **filters: Any
) -> None:
    """List intents by ID.

    TIME is such as 2026-11-29 or 2026-11-29T08:30+01:00. Without an offset, it is in UTC. --number searches the numbers
    of orders, refunds and subscriptions, and the orders of refunds. It does not search intent= or the service's own
    numbers.

    \b
    Examples:
      payasync journal list --journal pay.db --state manual
      payasync journal list --journal pay.db --order T1
      payasync journal list --journal pay.db --since 2026-11-29 --json

    \b
    Exit codes:
      0    listed
      1    nothing has the number of --number or --order
      2    the journal cannot be read
    """  # noqa: D301 - click does not wrap a paragraph after this character
    if "" in {number, order}:
        raise click.UsageError("The number is empty")
    if number is not None and order is not None:
        raise click.UsageError("Give --number or --order: --number finds the refunds of an order, too")
    screen, shown = JournalScreen(json=json), list[Intent]()
    take, most = (screen.line, limit or sys.maxsize) if json else (shown.append, limit or ROWS)

    async def work(journal: Journal) -> int:
        count = 0
        found = _about(journal, number, **filters) if number else all_intents(journal, order=order, **filters)
        async for each in found:
            if (count := count + 1) > most:
                break
            take(each)
        return count

    count = run_with_journal(address, work, command="journal list")
    if not json:
        given = {"number": number, "order": order, "limit": limit, **filters}
        screen.listed(shown, given, address, more=count > most)
    sys.exit(0 if count or number is order is None else 1)


async def _about(
    journal: Journal, number: str, *, state: State | None, after: int, since: datetime | None, until: datetime | None
) -> AsyncGenerator[Intent]:
    """Yield what is about a number, and the refunds of the order that has it."""
    found = {each.id: each async for each in all_intents(journal, order=number)}
    for operation in OPERATIONS:
        found |= {each.id: each for each in await journal.find(operation.name, number)}
    for intent_id, each in sorted(found.items()):
        in_time = (since is None or since <= each.created) and (until is None or each.created < until)
        if in_time and intent_id > after and state in {None, each.state}:
            yield each


@journal.command(short_help="Show one intent in full.")
@existing_journal
@click.argument("intent_id", callback=_positive_id, metavar="ID")
@click.option("--json", is_flag=True, help="Print one line of JSON.")
def show(address: Address, intent_id: int, *, json: bool) -> None:
    """Show all that the journal records about the intent ID.

    If a person can resolve it, this also shows the command for that.

    \b
    Example:
      payasync journal show 1 --journal pay.db

    \b
    Exit codes:
      0    shown
      1    there is no such intent
      2    the journal cannot be read
    """  # noqa: D301 - click does not wrap a paragraph after this character
    JournalScreen(json=json).shown(_existing(address, intent_id, "journal show"), address)


@journal.command(short_help="Record what happened to an intent.")
@existing_journal
@click.argument("intent_id", callback=_positive_id, metavar="ID")
@click.option("--as", "end", type=click.Choice(sorted(END_STATES, reverse=True)), required=True, help="What happened.")
@click.option("--reason", required=True, metavar="TEXT", help="How you know. The journal records it.")
@profile_option
@click.option("--force", is_flag=True, help="Record it although payasync still asks, or the service may carry it out.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def resolve(
    address: Address, intent_id: int, end: State, reason: str, *, profile: str | None, force: bool, yes: bool
) -> None:
    """Record what happened to the intent ID, as you know it from the service's back office.

    The intent must be new, unknown, accepted or manual. A succeeded intent is never sent again. A rejected intent is
    sent again if a request repeats its number, so make sure that it was not done.

    Without --force, the command refuses an unknown intent that payasync reconcile can settle. It also refuses any sent
    intent until the profile's recovery.quarantine is over, because the service may still carry it out. If no profile
    has a quarantine, ask the service how late it may carry out a request.

    A new intent was never sent. Reject it if it is no longer wanted. Record it as succeeded if it was done by other
    means. A task that still waits for it then sends nothing.

    \b
    Example:
      payasync journal resolve 1 --journal pay.db --as rejected \\
        --reason "back office: no such payment"

    \b
    Exit codes:
      0    recorded
      1    there is no such intent, or you did not confirm
      2    nothing changed: the journal cannot be read, the state forbids it, or
           it is too early without --force
    """  # noqa: D301 - click does not wrap a paragraph after this character
    found = _existing(address, intent_id, "journal resolve")
    try:
        quarantine = profile_named(profile)[0].recovery.quarantine
    except PayasyncError as error:
        fail_with_journal("journal resolve", error)
    seen = state_now(found, utc_now())
    # The journal refuses any other state, so there is nothing to confirm.
    if seen in RESOLVABLE_STATES:
        if not force and (why := resolve_objection(found, utc_now(), quarantine)):
            fail("journal resolve", f"nothing changed: {why}. To record it all the same, pass --force")
        if not yes:
            if not (os.isatty(0) and os.isatty(1)):
                fail("journal resolve", _NOBODY)
            JournalScreen().shown(found, address, hint=False)
            until = may_arrive_until(found, quarantine)
            late = f"until {format_moment(until)}" if until else "at any time, because no quarantine is known"
            about = f"It was sent {when_sent(found) or 'before'}. The service may carry it out {late}. "
            _confirm("journal resolve", f"{'' if seen == 'new' else about}{_QUESTIONS[seen == 'new', end]}")
    resolved = run_with_journal(
        address,
        lambda journal: journal.resolve(intent_id, as_=end, reason=reason, seen=seen, attempts=found.attempts),
        command="journal resolve",
    )
    Lines(strict=True).write(
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

    \b
    Example:
      payasync journal prune --journal pay.db --older-than 90d

    \b
    Exit codes:
      0    deleted, even if there were none
      2    the journal cannot be read or written
    """  # noqa: D301 - click does not wrap a paragraph after this character
    before = utc_now() - age
    count = run_with_journal(address, lambda journal: journal.prune(before), command="journal prune")
    what = "1 intent that ended" if count == 1 else f"{count} intents that ended"
    Lines(strict=True).write(f"Deleted {what} before {format_moment(before)}.")


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

    \b
    Example:
      payasync journal move https://a.example https://b.example --journal pay.db

    \b
    Exit codes:
      0    moved
      1    you did not confirm
      2    nothing changed: no write went to OLD, or the journal cannot be read
    """  # noqa: D301 - click does not wrap a paragraph after this character
    if not yes:
        run_with_journal(address, lambda journal: journal.move(old, new, dry_run=True), command="journal move")
        _confirm("journal move", f"Are you sure that {new} is the same service as {old}, with all its writes?")
    merchants = run_with_journal(address, lambda journal: journal.move(old, new), command="journal move")
    whose = plain(", ".join(merchants)), "bold"
    Lines(strict=True).write("The writes of ", whose, f" go to {plain(new)} from now on.")


@journal.command(short_help="Make or migrate the tables.")
@journal_option(existing=False, required=False, help="The journal; a missing SQLite file is made.")
@click.option("--inbox", metavar="FILE|URL", help="Also upgrade this inbox.")
@click.option("--schema", metavar="SCHEMA", help="In PostgreSQL: the schema of the tables, which must exist.")
@click.option("--dry-run", is_flag=True, help="Only print the SQL.")
def upgrade(address: Address | None, *, inbox: str | None, schema: str | None, dry_run: bool) -> None:
    """Make the tables of a journal, or migrate those of an earlier payasync.

    Your program does this at its first use, too. No other command does. Stop all processes that use the tables before,
    because an earlier payasync refuses the tables of a later one.

    \b
    Examples:
      payasync journal upgrade --journal pay.db --inbox inbox.db --dry-run
      payasync journal upgrade --journal pay.db --inbox inbox.db

    \b
    Exit codes:
      0    the tables are up to date now; with --dry-run, the SQL was printed
      2    nothing changed: it cannot be opened, or a later payasync made it
    """  # noqa: D301 - click does not wrap a paragraph after this character
    if address is None and inbox is None:
        fail("journal upgrade", f"neither --journal nor --inbox is given: {FORMS}")
    stores: list[tuple[str, str, Callable[[], Journal | Inbox]]] = []
    if address is not None:
        stores.append(("journal", "--journal", partial(address.open, schema=schema)))
    if inbox is not None:
        stores.append(("inbox", "--inbox", partial(Address(inbox).open_inbox, schema=schema)))
    # All are looked at before one is changed.
    for looking in (True,) if dry_run else (True, False):
        for name, option, opened in stores:
            work = methodcaller("upgrade", dry_run=looking)
            made: Upgrade = run_with_store(opened, work, command="journal upgrade", option=option)
            if looking is dry_run:
                _show_upgrade(name, made, dry_run=dry_run)


def _show_upgrade(store: str, made: Upgrade, *, dry_run: bool) -> None:
    is_made = "would be" if dry_run else "is"
    if not made.sql:
        words = f"is up to date: version {made.after}."
    elif made.before:
        words = f"{is_made} migrated from version {made.before} to {made.after}."
    else:
        words = f"{is_made} new and empty: version {made.after}. If you have one, check the name."
    Lines(strict=True).write(f"{'-- ' if dry_run else ''}The {store} {plain(made.place)} {words}", hang=3)
    if dry_run:
        click.echo(made.sql, nl=False)


def _confirm(command: str, question: str) -> None:
    try:
        click.confirm(question, abort=True)
    except click.Abort as abort:
        Lines().write()  # the cursor is behind the question
        if isinstance(abort.__context__, EOFError):
            fail(command, _NOBODY)
        if isinstance(abort.__context__, KeyboardInterrupt):
            print_error(command, "interrupted; nothing changed")
        raise


def _existing(address: Address, intent_id: int, command: str) -> Intent:
    found = run_with_journal(address, lambda journal: journal.get(intent_id), command=command)
    if found is None:
        print_error(command, f"there is no intent {intent_id} in {address.shown}")
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
        self._lines = Lines(console, strict=True)
        self._json = json

    def line(self, intent: Intent) -> None:
        """Show an intent as a line of JSON."""
        self._lines.write(intent_json(intent))

    def listed(
        self, intents: Sequence[Intent], given: Mapping[str, Any], address: Address, *, more: bool = False
    ) -> None:
        """Show intents, and how to list the rest if there are more.

        Args:
            intents: In the order of their numbers.
            given: The options of the command.
            address: The journal.
            more: There are others.
        """
        options = {**given, "after": intents[-1].id} if intents else given
        words = "".join(f" --{name} {quote(str(each))}" for name, each in options.items() if each)
        if not intents:
            self._lines.write((plain(f"The journal has no intents{' with' * bool(words)}{words}."), "dim"))
            for searched in filter(given.get, SEARCHED):
                self._lines.write((SEARCHED[searched], "dim"), hang=2)
            return
        self._lines.print(intent_table(intents, width=self._lines.console.width))
        if more:
            self._lines.write()
            self._lines.write("There are more; --json prints all. The next ones:")
            self._lines.write((plain(f"  payasync journal list{address.option}{words}"), "cyan"))

    def shown(self, intent: Intent, address: Address, *, hint: bool = True) -> None:
        """Show all that the journal records about an intent, and the commands for a person."""
        if self._json:
            self._lines.write(intent_json(intent))
            return
        write = self._lines.write
        write()
        self._lines.paragraph((f"{intent.id}  ", "bold"), (plain(f"{intent.operation} {number_of(intent)}"), "bold"))
        for name, value, style in _facts(intent, utc_now()):
            self._lines.row(name, plain(value), style, width=_WIDTH)
        for name, value in _content(intent):
            self._lines.row(name, plain(value), "", width=_WIDTH)
        if intent.outcome and intent.outcome.body:
            self._lines.print(_readable(intent.outcome.body), indent=_WIDTH + 4)
        write()
        # An accepted write is on its way: nobody has to say how it ends.
        if hint and state_now(intent, utc_now()) in RESOLVABLE_STATES - {"accepted"}:
            unsent = intent.state == "new"
            write("  If it is no longer wanted:" if unsent else "  Once you know what happened:")
            for command in resolve_commands(intent.id, address.option, ("rejected",) if unsent else ENDS):
                write((f"  {plain(command)}", "cyan"))
            write()


def _facts(intent: Intent, at: datetime) -> Iterator[tuple[str, str, str]]:
    """Yield a name, a value and a style of each known fact."""
    yield "State", intent.state, STYLES[intent.state]
    if reason := reason_beside(intent.state, intent.reason):
        yield "", reason, ""
    yield "Merchant", intent.merchant, ""
    damage = "" if intent.damaged == intent.reason else intent.damaged
    for name, key in (("Damaged", damage), ("Intent", intent.intent), ("Key", intent.idempotency_key)):
        if key:
            yield name, key, ""
    yield "Recorded", _moment(intent.created, at), ""
    if intent.updated != intent.created:
        yield "Updated", _moment(intent.updated, at), ""
    when = "" if state_now(intent, at) == "sending" else when_sent(intent)
    by_worker = ", by a worker" if intent.queued else ""
    yield "Sent", f"{_times(intent.attempts)}{by_worker}{f', {when}' if when else ''}", ""
    if (intent.sent_at and intent.state in {"sending", "manual"}) or state_now(intent, at) == "unknown":
        yield "In doubt", f"since {_moment(doubt_since(intent), at)}", ""
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
    return f"{format_moment(moment)}, {time_ago(moment, at)}"


def _times(count: int) -> str:
    return {0: "not yet", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _readable(body: bytes) -> Text:
    try:
        document: Any = json.loads(body)
    except ValueError:
        return Text(plain(body.decode(errors="replace")))
    text = JSON.from_data(document, ensure_ascii=True).text
    # rich would cut a long value at the edge of the terminal.
    text.no_wrap, text.overflow = False, "fold"
    return text
