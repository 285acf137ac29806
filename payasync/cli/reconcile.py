"""`payasync reconcile`: queries the service about writes whose outcome is unknown."""

import asyncio
import json
import sys
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from math import ceil
from typing import Any, Final

import click
from attrs import asdict, evolve, frozen
from rich.console import Console
from rich.progress import Progress, TaskID

from payasync.cli import FAILED, INTERRUPTED, NEEDS_A_PERSON
from payasync.cli.intent_table import (
    ENDS,
    STYLES,
    all_intents,
    duration,
    identify,
    intent_table,
    number_of,
    reason_beside,
    resolve_commands,
)
from payasync.cli.options import Address, asks_service, close_journal, existing_journal, fail_with_journal, session_with
from payasync.cli.signals import run_until, stopped_by_signals
from payasync.cli.terminal import Lines, Part, print_error, stray_logs_dropped
from payasync.clocks import utc_now
from payasync.errors import PayasyncError, plain
from payasync.journal import STATES, Intent, Journal, Reconciler, State
from payasync.journal.intents import END_STATES
from payasync.journal.reconcile_policy import End, Report, Result

NO_RESPONSE: Final = 1
"""The exit code if no query had a usable response."""


@frozen(kw_only=True)
class Remaining:
    """What the journal still holds.

    Attributes:
        due: When the next query is due, or `None`.
        sending: When the lease of each write that a process is sending ends; then the write is queried.
        not_due: How many writes in doubt have their next query later.
        manual: The intents that need a person.
        unsent: The queued intents that no worker has sent.
        interrupted: A signal ended the run early.
    """

    due: datetime | None = None
    sending: Sequence[datetime] = ()
    not_due: int = 0
    manual: Sequence[Intent] = ()
    unsent: Sequence[Intent] = ()
    interrupted: bool = False

    @property
    def next_query(self) -> datetime | None:
        """When the next query is due, unless only a lease ends then."""
        return None if self.due in self.sending else self.due


@click.command()
@existing_journal
@asks_service
@click.option("--watch", is_flag=True, help="Keep running, and query whatever is due, until Ctrl-C or SIGTERM.")
@click.option("--dry-run", is_flag=True, help="Show which writes it would query; send nothing, and change nothing.")
@click.option("--json", is_flag=True, help="Print only JSON, one line per run.")
def reconcile(
    address: Address, *, profile: str | None, base_url: str | None, watch: bool, dry_run: bool, json: bool
) -> None:
    """Query the service about writes with an unknown outcome.

    The journal records the result. If the service still does not know a write after the profile's quarantine, the write
    is rejected. A queued write is sent again under its number instead. You can interrupt this command at any time, and
    run several at the same time. The keys come from the environment, as for `Credentials.from_env`. Only this
    merchant's writes are queried.

    Rejected writes were not done. Only the run that rejects a write lists it: inform those who believe that it was
    done, or repeat it under its number. Rejected writes do not change the exit code.

    \b
    Examples:
      payasync reconcile --journal pay.db
      payasync reconcile --journal pay.db --profile service.toml --watch

    \b
    Exit codes:
      0    all writes are settled, or wait for their next query
      1    no query had a usable response, for example because the keys are wrong
      2    it cannot run or continue; results so far are listed
      3    some writes need a person, or were queued minutes ago and not sent
      130  interrupted
    """  # noqa: D301 - click does not wrap a paragraph after this character
    if watch and dry_run:
        advice = "Leave out --watch to see what is due, or --dry-run to query it"
        raise click.UsageError(f"--dry-run and --watch cannot be combined. {advice}")
    screen = ReconcileScreen(address, service=base_url or "", watch=watch, json=json)
    try:
        code = asyncio.run(run(address, screen, profile=profile, base_url=base_url, dry_run=dry_run))
    except PayasyncError as error:
        fail_with_journal("reconcile", error)
    sys.exit(code)


async def run(
    address: Address, screen: "ReconcileScreen", *, profile: str | None, base_url: str | None, dry_run: bool
) -> int:
    """Reconcile, once or until a signal comes, and return the exit code.

    Raises:
        ConfigurationError: A setting is invalid or missing.
        StorageError: The journal can be neither read nor written now.
    """
    stop = stopped_by_signals()
    journal = address.open()
    try:
        async with session_with(journal, profile=profile, base_url=base_url) as session:
            merchant = session.merchant_id
            if not dry_run:
                await journal.bind(merchant, session.service)
            reconciler = Reconciler(session, journal)
            with stray_logs_dropped():
                stopped = await run_until(stop, _show_runs(reconciler, journal, merchant, screen, dry_run=dry_run))
            remaining = evolve(
                await _find_upcoming(journal, merchant),
                manual=await reconciler.manual(),
                unsent=await reconciler.unsent(),
                interrupted=stopped and not screen.watch,
            )
    except Exception:
        # No other run lists what was not done.
        screen.cut_short()
        raise
    finally:
        await close_journal("reconcile", journal)
    screen.closed(remaining)
    if screen.unwritten:
        print_error("reconcile", "done, but the result could not be written: payasync journal list shows the writes")
    if remaining.manual or remaining.unsent:
        return NEEDS_A_PERSON
    if remaining.interrupted:
        return INTERRUPTED
    if screen.unanswered and not screen.watch:
        return NO_RESPONSE
    return FAILED if screen.unwritten else 0


async def _show_runs(
    reconciler: Reconciler, journal: Journal, merchant: str, screen: "ReconcileScreen", *, dry_run: bool
) -> None:
    due = await reconciler.due()
    open_states: list[State] = [state for state in STATES if state not in END_STATES]
    merchants = Counter([each.merchant for state in open_states async for each in all_intents(journal, state)])
    del merchants[merchant]
    screen.opened(merchant, due, others=merchants, remaining=await _find_upcoming(journal, merchant))
    if dry_run:
        screen.planned(due)
    elif screen.watch:
        async with aclosing(reconciler.watch(screen.noted)) as reports:
            async for report in reports:
                screen.ran(report)
    else:
        with screen.progress(len(due)):
            screen.ran(await reconciler.run_once(screen.noted))


async def _find_upcoming(journal: Journal, merchant: str) -> Remaining:
    leases = [each.lease async for each in all_intents(journal, "sending", merchant=merchant)]
    sending = [lease for lease in leases if lease and lease > utc_now()]
    doubtful = [each.due async for each in all_intents(journal, "unknown", merchant=merchant)]
    not_due = sum(due is not None and due > utc_now() for due in doubtful)
    return Remaining(due=await journal.next_due(merchant), sending=sending, not_due=not_due)


class QueryCounts:
    """Counts queries, and writes by the latest result of each.

    It grows with the writes that have not ended, and not with the number of runs. A write that had ended, and is in
    doubt again, counts again.

    Args:
        last: How many of the latest writes not done it stores; `None`: all.
    """

    def __init__(self, *, last: int | None = None) -> None:
        self.queries: int = 0
        self.runs: int = 0
        """Runs that queried anything."""
        self.rejected: int = 0
        self.answered: bool = False
        self.not_done: deque[Result] = deque(maxlen=last)
        self.running: bool = False
        self._ended: Counter[tuple[End, State]] = Counter()
        self._open: dict[int, tuple[End, State, str]] = {}

    def add(self, result: Result) -> None:
        """Count a result, which replaces the previous one of the same write."""
        self.queries += 1
        self.runs += not self.running
        self.running = True
        self.answered |= result.answered
        self._open.pop(result.intent.id, None)
        if result.state in END_STATES and result.end in {"resolved", "sent"}:
            self._ended[result.end, result.state] += 1
        else:
            self._open[result.intent.id] = (result.end, result.state, result.reason)
        if result.rejected:
            self.rejected += 1
            self.not_done.append(result)

    @property
    def asked(self) -> int:
        """How many writes were queried."""
        return self._ended.total() + len(self._open)

    def states(self, end: End) -> Counter[State]:
        """Return how many writes with this result are in which state."""
        states: Counter[State] = Counter({state: many for (each, state), many in self._ended.items() if each == end})
        states.update(state for each, state, _ in self._open.values() if each == end)
        return states

    def reasons(self, end: End) -> Counter[str]:
        """Return why those that wait, or need a person, do so."""
        return Counter(reason for each, _, reason in self._open.values() if each == end)


_NOT_DONE: Final = {
    False: ": inform those who believe otherwise, or repeat the write under its number.",
    True: ", says the service: an unpaid order needs nothing; inform the customer of a failed refund.",
}
"""What to do about writes that were not done, by whether the service knows them."""
ROWS: Final = 100
"""The greatest number of rows of what `payasync journal list` can list again; writes not done are all listed."""
_RESULTS: Final[dict[End, tuple[str, str]]] = {
    "resolved": ("resolved", "bold green"),
    "sent": ("sent again", "bold cyan"),
    "waiting": ("waiting", "bold yellow"),
    "manual": ("manual", "bold red"),
    "lost": ("other process", "dim"),
}
"""The words and the style of each result, in the order of the summary."""
_WIDTH: Final = 15
_REASON: Final = _WIDTH + 10
"""The column of a reason in the summary."""
_WRITE: Final = 26
"""The column of the write in a line of `--watch`."""
_REASONS: Final = 3
"""The greatest number of reasons that are shown, the most frequent first."""


class ReconcileScreen:
    """What a person or a script sees of the command.

    Args:
        journal: Where the journal is.
        service: The service's address.
        watch: It goes on until a signal comes.
        json: Show lines of JSON, and no others.
        console: Written to in place of the terminal.
    """

    def __init__(
        self,
        journal: Address,
        *,
        service: str = "",
        watch: bool = False,
        json: bool = False,
        console: Console | None = None,
    ) -> None:
        self.watch = watch
        self._journal = journal
        self._service = service
        self._json = json
        self._lines = Lines(console)
        self._bar = self._lines.progress("Querying", hidden=json)
        # Whoever watches has seen each in a line of its own.
        self._counts = QueryCounts(last=ROWS if watch and not json else None)
        self._others: Mapping[str, int] = {}
        self._silent = False
        self._planned: Sequence[Intent] | None = None

    @property
    def unwritten(self) -> bool:
        """Whether a line could not be written, for example because the disk is full."""
        return self._lines.full

    @property
    def unanswered(self) -> bool:
        """Whether there were queries, and none had a usable response."""
        return self._counts.asked > 0 and not self._counts.answered

    def opened(
        self, merchant: str, due: Sequence[Intent], *, others: Mapping[str, int], remaining: Remaining = Remaining()
    ) -> None:
        """Show the planned queries; with `--watch`, also those still to come, because the end may be far.

        Args:
            merchant: Whose writes are queried.
            due: The writes that are queried now.
            others: How many writes of which other merchants are open.
            remaining: The queries still to come.
        """
        self._others = others
        if self._json:
            return
        write, row = self._lines.write, self._lines.row
        nothing = "nothing"
        if self.watch and remaining.next_query:
            nothing = (
                f"nothing now; the next query is in {duration((remaining.next_query - utc_now()).total_seconds())}"
            )
        write()
        self._lines.title("reconcile", "queries the service about unknown writes")
        row("Journal", plain(self._journal.shown), "bold")
        row("Service", plain(self._service), "bold")
        row("Merchant", plain(merchant), "bold")
        row("Due", _writes(len(due)) if due else nothing, "bold")
        if others:
            many = sum(others.values())
            whose = "is of another merchant" if many == 1 else "are of other merchants"
            write()
            write(
                (f"  {many} open {'write' if many == 1 else 'writes'} {whose}", "bold yellow"),
                f" ({plain(', '.join(sorted(others)))})",
                hang=2,
            )
        if self.watch:
            write()
            self._list_sending(remaining.sending)
            write(("  Press Ctrl-C to stop.", "dim"))
        write()

    def planned(self, due: Sequence[Intent]) -> None:
        """Show which writes would be queried."""
        self._planned = due
        if self._json:
            return
        if due:
            self._lines.paragraph("  It would query:")
            self._list_some(due, with_state=True)
        self._lines.paragraph(("  This was a dry run: nothing was sent, and nothing has changed.", "dim"))

    def progress(self, total: int) -> Progress:
        """Return the progress bar; enter it to show it."""
        self._bar.update(TaskID(0), total=total)
        return self._bar

    def noted(self, result: Result) -> None:
        """Count the result of a query; with `--watch`, show it."""
        self._counts.add(result)
        self._bar.advance(TaskID(0))
        if not self.watch or self._json or result.end in {"waiting", "lost"}:
            return
        intent, reason = result.intent, plain(reason_beside(result.state, result.reason))
        words, style = _RESULTS[result.end]
        self._lines.write(
            (f"  {utc_now().astimezone():%H:%M:%S}  ", "dim"),
            (f"{words:12}  ", style),
            f"{plain(intent.operation):20}  ",
            (f"{plain(number_of(intent)):14}  ", "bold"),
            (f"{result.state:9}  ", STYLES[result.state]),
            (reason, "dim"),
            hang=_WRITE,
        )

    def ran(self, report: Report) -> None:
        """Record that a run has ended."""
        self._silent = report.silent
        self._counts.running = False
        if self._json and self.watch and report.asked:
            self._lines.write(json.dumps({"asked": report.asked, **asdict(report), "not_done": self._not_done_facts()}))
            self._counts.not_done.clear()

    def closed(self, remaining: Remaining) -> None:
        """Show the results, and the intents that need a person."""
        if self._json:
            self._lines.write(self._final_json(remaining) if self._planned is None else self._plan_json(remaining))
            return
        if self.watch:
            self._lines.write()
        if remaining.interrupted:
            self._ended_early("Interrupted.")
        due = remaining.next_query
        if self._planned is None:
            self._summary()
        if due and (self._planned is None or due > utc_now()):
            seconds = (due - utc_now()).total_seconds()
            when = "is due now: run the command again" if seconds <= 0 else f"is in {duration(seconds)}"
            self._lines.paragraph(("  The next query ", "dim"), (when, "bold"))
        self._count_not_due(remaining.not_due)
        self._list_sending(remaining.sending)
        self._list_unsent(remaining.unsent)
        self._list_manual(remaining.manual)

    def cut_short(self) -> None:
        """Show the results before an error, if any, because the journal may be unreadable now."""
        if not self._counts.asked:
            return
        if self._json:
            self._lines.write(self._final_json(None))
            return
        if self.watch:
            self._lines.write()
        self._ended_early("Stopped by an error.")
        self._summary()

    def _final_json(self, remaining: Remaining | None) -> str:
        """Return the last line; after an error, what only the journal could say is `null`."""
        counts = self._counts
        results = {end: counts.states(end).total() for end in _RESULTS}
        report = Report(silent=self._silent, rejected=counts.rejected, **results)
        facts = {
            "asked": report.asked,
            "questions": counts.queries,
            "runs": counts.runs,
            **asdict(report),
            "not_done": self._not_done_facts(),
            "interrupted": bool(remaining and remaining.interrupted),
            "cut_short": remaining is None,
            "of_other_merchants": dict(self._others),
        }
        if remaining:
            return json.dumps({**facts, **_remaining_facts(remaining)})
        return json.dumps({**facts, **dict.fromkeys(("unsent", "needs_a_person", "sending", "not_due", "next_in"))})

    def _plan_json(self, remaining: Remaining) -> str:
        due = [
            {
                **identify(each, each.reason),
                "state": each.state,
                "created": each.created.isoformat(),
                "sent_at": each.sent_at and each.sent_at.isoformat(),
                # A write that was cut off became due at the end of its lease.
                "due": (moment := each.lease or each.due) and moment.isoformat(),
            }
            for each in self._planned or ()
        ]
        facts = {"dry_run": True, "due": due, "of_other_merchants": dict(self._others)}
        return json.dumps({**facts, **_remaining_facts(remaining)})

    def _not_done_facts(self) -> list[dict[str, Any]]:
        return [identify(each.intent, each.reason) for each in self._counts.not_done]

    def _ended_early(self, how: str) -> None:
        self._lines.paragraph((f"  {how} ", "bold yellow"), "Settled writes stay settled; the next run continues.")

    def _summary(self) -> None:
        write, counts = self._lines.write, self._counts
        if not counts.asked:
            words = "There was nothing to query."
        elif counts.queries == counts.asked:
            words = f"Queried {_writes(counts.asked)}."
        else:
            runs = "1 run" if counts.runs == 1 else f"{counts.runs} runs"
            words = f"Queried {_writes(counts.asked)} with {counts.queries} queries in {runs}. The latest results:"
        self._lines.paragraph(f"  {words}", hang=2)
        for end in _RESULTS:
            if states := counts.states(end):
                self._summarise(end, states)
        if counts.asked:
            write()
        if self._silent:
            words = "  The service does not respond. The other writes wait for the next run."
            self._lines.paragraph((words, "yellow"), hang=2)
        elif self.unanswered:
            self._lines.paragraph(("  No query had a usable response: no outcome is known yet.", "bold yellow"))
        self._list_rejected()

    def _summarise(self, end: End, states: Counter[State]) -> None:
        """Show how many writes had this result, and why, if they wait or need a person."""
        words, style = _RESULTS[end]
        parts: list[Part] = [(f"  {words:{_WIDTH}}", style), (f"{states.total():>6}  ", "bold")]
        if end in {"resolved", "sent"}:
            for place, (state, many) in enumerate(states.most_common()):
                parts += [", " if place else "", f"{many} ", (state, STYLES[state])]
        reasons = self._counts.reasons(end) if end in {"waiting", "manual"} else Counter[str]()
        if len(reasons) == 1:
            parts.append((plain(next(iter(reasons))), "dim"))
        self._lines.write(*parts, hang=_REASON)
        if len(reasons) > 1:
            for reason, many in reasons.most_common(_REASONS):
                counted = f"{'':{_REASON}}{many}: "
                self._lines.write((f"{counted}{plain(reason)}", "dim"), hang=len(counted))

    def _list_rejected(self) -> None:
        """List the writes that were not done, so that a person informs those who believe otherwise."""
        many, listed = self._counts.rejected, self._counts.not_done
        for known, words in _NOT_DONE.items():
            if some := [each for each in listed if each.known is known]:
                self._lines.paragraph((f"  {_writes(len(some))} not done", "bold magenta"), words, hang=2)
                rows = [evolve(each.intent, state=each.state, reason=each.reason) for each in some]
                self._list(rows, with_state=False)
        if many > len(listed):
            words = f"  These are the last {len(listed)} of {many}; the others were shown above."
            self._lines.write(words, hang=2)
        if many:
            self._lines.write()

    def _count_not_due(self, count: int) -> None:
        """Show how many writes in doubt are not due yet, and how to list them."""
        if count:
            are = "is" if count == 1 else "are"
            self._lines.write(
                (f"  {_writes(count)} {are} in doubt and not due yet", "bold yellow"),
                ". To list what is in doubt:",
                hang=2,
            )
            command = f"payasync journal list{self._journal.option} --state unknown"
            self._lines.paragraph((f"  {plain(command)}", "cyan"))

    def _list_sending(self, leases: Sequence[datetime]) -> None:
        """Show how many writes are being sent, and when the first is queried if it stays so."""
        if not leases:
            return
        one = len(leases) == 1
        are = "is being sent, or was interrupted" if one else "are being sent, or were interrupted"
        when = f"{'' if one else 'the first is '}queried in {duration((min(leases) - utc_now()).total_seconds())}"
        self._lines.paragraph((f"  {_writes(len(leases))} {are}", "bold yellow"), f": {when}", hang=2)

    def _list_unsent(self, intents: Sequence[Intent]) -> None:
        if intents:
            waits = f"  {_writes(len(intents))} queued, and not sent for some minutes"
            tried = " The column Why shows the last error." if any(each.reason for each in intents) else ""
            self._lines.write((waits, "bold yellow"), f": is a worker running?{tried}", hang=2)
            self._list_with_command(intents, "To reject a write that is no longer wanted:", ("rejected",))

    def _list_manual(self, manual: Sequence[Intent]) -> None:
        if manual:
            need = "needs" if len(manual) == 1 else "need"
            self._lines.write((f"  {_writes(len(manual))} {need} a person", "bold red"))
            advice = "Look up each in the service's back office, then record what happened:"
            self._list_with_command(manual, advice, ENDS)

    def _list_with_command(self, intents: Sequence[Intent], advice: str, ends: Sequence[State]) -> None:
        """List intents, and the commands that end one."""
        self._lines.write()
        self._list_some(intents, with_state=any(each.state not in {"manual", "new"} for each in intents))
        self._lines.write(f"  {advice}")
        for command in resolve_commands("ID", self._journal.option, ends):
            self._lines.write((f"  {plain(command)}", "cyan"))
        self._lines.write()

    def _list_some(self, intents: Sequence[Intent], *, with_state: bool) -> None:
        """List the first intents, and show how to list the others."""
        shown, others = intents[:ROWS], intents[ROWS:]
        self._list(shown, with_state=with_state)
        if others:
            self._lines.write((f"  … and {len(others):,} more; to list them:", "dim"))
        for state in dict.fromkeys(each.state for each in others):
            after = max((each.id for each in shown if each.state == state), default=0)
            listing = f"payasync journal list{self._journal.option} --state {state} --after {after}"
            self._lines.write((f"  {plain(listing)}", "cyan"))
        self._lines.write()

    def _list(self, intents: Sequence[Intent], *, with_state: bool) -> None:
        self._lines.print(intent_table(intents, width=self._lines.console.width, with_state=with_state), indent=2)


def _writes(count: int) -> str:
    return "1 write" if count == 1 else f"{count} writes"


def _remaining_facts(remaining: Remaining) -> dict[str, Any]:
    due = remaining.due
    return {
        "unsent": len(remaining.unsent),
        "needs_a_person": [identify(each, each.reason) for each in remaining.manual],
        "sending": len(remaining.sending),
        "not_due": remaining.not_due,
        # Rounded up, so that a script which waits so long finds it due.
        "next_in": None if due is None else max(0, ceil((due - utc_now()).total_seconds())),
    }
