"""`payasync reconcile`: asks the service what became of the writes that nobody knows the end of."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final

import click
from attrs import frozen

from payasync.cli.intent_table import now
from payasync.cli.journal_option import Address, fail_command, option, session_with
from payasync.cli.reconcile_screen import ReconcileScreen
from payasync.cli.signals import INTERRUPTED, NEEDS_A_PERSON, stopped_by_signals
from payasync.cli.terminal import quiet
from payasync.errors import PayasyncError
from payasync.journal import STATES, Journal
from payasync.journal.intents import ENDS, Intent, Intents, State
from payasync.journal.reconciler import PAGE, Reconciler

NO_ANSWER: Final = 1
"""Nothing was found out."""


@frozen(kw_only=True)
class Options:
    """What the command was given.

    Attributes:
        address: The journal's.
        profile: A TOML file; `None`: what `PAYASYNC_PROFILE` names.
        base_url: The service's address; `None`: what `PAYASYNC_BASE_URL` says.
        watch: Go on until a signal comes.
        dry_run: Ask nobody, and change nothing.
    """

    address: Address
    profile: str | None
    base_url: str | None
    watch: bool
    dry_run: bool


@click.command(short_help="Ask the service what became of unknown writes.")
@option
@click.option(
    "--profile", metavar="FILE", help="The TOML file of the service; without it, what PAYASYNC_PROFILE names."
)
@click.option("--base-url", metavar="URL", help="The service's address; without it, PAYASYNC_BASE_URL.")
@click.option("--watch", is_flag=True, help="Go on, whenever something is due, until Ctrl-C or SIGTERM.")
@click.option("--dry-run", is_flag=True, help="Show what it would ask about; ask nobody, and change nothing.")
@click.option("--json", is_flag=True, help="Show a line of JSON for each run, and no more; a dry run has one.")
def reconcile(*, json: bool, **options: Any) -> None:
    """Ask the service what became of each write in the journal that nobody knows the end of.

    What the service says is kept. What it does not know, once the profile's quarantine is over, is sent again under
    its number where it was queued, and rejected where it was not. It may be interrupted at any time, and several may
    run at once. The keys are those that `Credentials.from_env` reads; only their merchant's writes are asked about.

    What was not done is listed by the run that finds it out, and by no other: tell whoever believes that it was, or
    make it again. It is settled, and the exit code says nothing of it.

    The exit code is 0 where all is settled, or waits to be asked about again; 1 where the service answered no question,
    as it does not take the keys, for example; 3 where something needs a person, or was queued and is not sent for
    minutes, and is listed; 2 where it cannot run, or go on: what it has heard by then is listed; 130 where it was
    interrupted.
    """
    chosen = Options(**options)
    if chosen.watch and chosen.dry_run:
        raise click.UsageError(
            "a dry run ends by itself: leave out --watch to see what is due, or --dry-run to ask about it, and go on"
        )
    service = chosen.base_url or os.environ.get("PAYASYNC_BASE_URL", "")
    try:
        code = asyncio.run(run(chosen, ReconcileScreen(chosen.address, service=service, json=json)))
    except PayasyncError as error:
        fail_command("reconcile", error)
    sys.exit(code)


async def run(options: Options, screen: ReconcileScreen) -> int:
    """Reconcile, once or until a signal comes, and return the exit code.

    Raises:
        ConfigurationError: A setting is wrong or missing.
        StorageError: The journal can be neither read nor written now.
    """
    try:
        left = await _reconciled(options, screen)
    except Exception:
        # No other run hears of what was not done.
        screen.cut_short()
        raise
    broken_off = left.interrupted and not options.watch
    screen.closed(left.manual, left.due, sending=left.sending, unsent=left.unsent, interrupted=broken_off)
    if left.manual or left.unsent:
        return NEEDS_A_PERSON
    if broken_off:
        return INTERRUPTED
    return NO_ANSWER if screen.unanswered and not options.watch else 0


@frozen(kw_only=True)
class _Left:
    """What stands in the journal at the end, and whether a signal has brought that about."""

    manual: Intents
    unsent: Intents
    due: datetime | None
    sending: list[datetime]
    interrupted: bool


async def _reconciled(options: Options, screen: ReconcileScreen) -> _Left:
    stop = stopped_by_signals()
    journal = options.address.open()
    try:
        async with session_with(journal, profile=options.profile, base_url=options.base_url) as session:
            if not options.dry_run:
                await journal.bind(session.merchant_id, session.service)
            reconciler = Reconciler(session, journal)
            with quiet():
                interrupted = await _until(stop, _worked(options, reconciler, journal, session.merchant_id, screen))
            due, sending = await _ahead(journal, session.merchant_id)
            return _Left(
                manual=await reconciler.manual(),
                unsent=await reconciler.unsent(),
                due=due,
                sending=sending,
                interrupted=interrupted,
            )
    finally:
        await journal.aclose()


async def _worked(
    options: Options, reconciler: Reconciler, journal: Journal, merchant: str, screen: ReconcileScreen
) -> None:
    due = await reconciler.due()
    others, later, sending = await _of_others(journal, merchant), *await _ahead(journal, merchant)
    screen.opened(merchant, due, others=others, watch=options.watch, later=later, sending=sending)
    if options.dry_run:
        screen.planned(due)
    elif options.watch:
        async with aclosing(reconciler.watch(screen.heard)) as reports:
            async for report in reports:
                screen.ran(report)
    else:
        with screen.progress(len(due)):
            screen.ran(await reconciler.run_once(screen.heard))


async def _of_others(journal: Journal, merchant: str) -> Counter[str]:
    """Return how many writes of each other merchant have not ended."""
    states: list[State] = [state for state in STATES if state not in ENDS]
    return Counter(
        [each.merchant for state in states async for each in _all(journal, state) if each.merchant != merchant]
    )


async def _ahead(journal: Journal, merchant: str) -> tuple[datetime | None, list[datetime]]:
    """Return when the next write is due, and when each lease ends that somebody sends by, who may be there no more."""
    leases = [each.lease async for each in _all(journal, "sending") if each.merchant == merchant]
    return await journal.next_due(merchant), [lease for lease in leases if lease and lease > now()]


async def _all(journal: Journal, state: State) -> AsyncGenerator[Intent]:
    after = 0
    while page := await journal.list(state, limit=PAGE, after=after):
        for each in page:
            yield each
        after = page[-1].id


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Wait for work, or for a signal that cancels it; return whether one came."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    interrupted = not working.done()
    working.cancel()
    stopping.cancel()
    await asyncio.wait({working, stopping})
    if not working.cancelled():
        working.result()
    return interrupted
