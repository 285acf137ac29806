"""`payasync journal status`: the writes in doubt, since when, why, and what to do."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from attrs import frozen
from rich.console import Console

from payasync import DOCUMENTATION
from payasync.cli import NEEDS_A_PERSON
from payasync.cli.intent_table import STYLES, amount_of, duration, identify, number_of, time_ago, why
from payasync.cli.options import Address
from payasync.cli.terminal import Lines, Part
from payasync.errors import plain
from payasync.journal import STATES, Intent, State
from payasync.journal.intents import END_STATES, doubt_since, format_moment, state_now
from payasync.journal.reconcile_policy import UNSENT, Patience, is_unsent, needs_person
from payasync.journal.transactions import INTERRUPTED
from payasync.notifications.inbox import InboxEvent

IN_DOUBT: Final = 1
"""The exit code if outcomes are unknown, and nothing needs a person."""
ROWS: Final = 10
"""The greatest number of items of a section."""
OPEN_STATES: Final[tuple[State, ...]] = tuple(state for state in STATES if state not in END_STATES)
_PATIENCE: Final = Patience()


@frozen(kw_only=True)
class JournalStatus:
    """The writes of a journal that have not ended, by who must act.

    Attributes:
        at: The time of the status.
        counts: The number of intents in each state but *succeeded* and *rejected*.
        doubtful: The intents whose outcome is unknown, the oldest first. The reconciler queries the service about them.
        manual: The intents that need a person, those in doubt included that the service cannot be asked about.
        unsent: The queued intents that a worker should have sent.
        events: The notifications that no handler could take, and that need a person.
        others: The number of held notifications that name another merchant, and need nobody.
        leases: When the lease of each write that is *sending* ends. If its sender was interrupted, it is in doubt then.
        overdue: How long the service should have been queried already; zero if no query is late.
    """

    at: datetime
    counts: Mapping[State, int]
    doubtful: Sequence[Intent] = ()
    manual: Sequence[Intent] = ()
    unsent: Sequence[Intent] = ()
    events: Sequence[InboxEvent] = ()
    others: int = 0
    leases: Sequence[datetime] = ()
    overdue: timedelta = timedelta()

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return NEEDS_A_PERSON if self.manual or self.unsent or self.events else IN_DOUBT if self.doubtful else 0


def status_of(intents: Iterable[Intent], events: Sequence[InboxEvent], at: datetime) -> JournalStatus:
    """Return the status of a journal.

    Args:
        intents: Those that have not ended.
        events: The notifications that no handler could take.
        at: The time.
    """
    states = [(state_now(each, at), each) for each in intents]
    counts = Counter(state for state, _ in states)
    mine = [each for each in events if not each.of_another]
    asked = [(state, each) for state, each in states if not needs_person(each, at, _PATIENCE)]
    return JournalStatus(
        at=at,
        counts={state: counts[state] for state in OPEN_STATES},
        doubtful=sorted((each for state, each in asked if state == "unknown"), key=doubt_since),
        manual=[each for _, each in states if needs_person(each, at, _PATIENCE)],
        unsent=[each for state, each in states if state == "new" and is_unsent(each, at)],
        events=mine,
        others=len(events) - len(mine),
        leases=[each.lease for state, each in states if state == "sending" and each.lease],
        overdue=at - min([at, *(moment for _, each in asked if (moment := each.lease or each.due))]),
    )


class StatusScreen:
    """What a person or a script sees of the status.

    Args:
        address: The journal.
        json: Show one line of JSON.
        console: Written to in place of the terminal.
    """

    def __init__(self, address: Address, *, json: bool = False, console: Console | None = None) -> None:
        self._lines = Lines(console, strict=True)
        self._address = address
        self._json = json

    def shown(self, status: JournalStatus) -> None:
        """Show the status, the most urgent part first."""
        if self._json:
            self._lines.write(json.dumps(self._facts(status)))
            return
        self._lines.write()
        self._lines.title("journal", "the writes in doubt, and what to do")
        for name, value, style in _summary(status):
            self._lines.row(name, plain(value), style)
        self._lines.row("Journal", plain(self._address.shown), "")
        self._lines.write()
        if status.leases:
            many = len(status.leases)
            are = "1 write is being sent, or was" if many == 1 else f"{many} writes are being sent, or were"
            self._say(f"{are} interrupted: look again at {format_moment(max(status.leases))}.")
        if status.overdue >= UNSENT:
            late = duration(status.overdue.total_seconds())
            self._say(f"A query is overdue for {late}: does payasync reconcile --watch run, and reach the service?")
        if status.manual:
            self._heading(status.manual, ("needs a person", "need a person"), "bold red")
            self._say("Look up each in the service's back office. Its command shows how to record what happened.")
            self._list(status.manual, status, commands=True)
        if status.unsent:
            words = "was queued, and is not sent", "were queued, and are not sent"
            self._heading(status.unsent, words, "bold yellow")
            self._say("Is a worker running? If a write is no longer wanted, its command shows how to reject it.")
            self._list(status.unsent, status, commands=True)
        if status.events:
            self._show_events(status)
        if status.doubtful:
            self._show_doubtful(status)

    def _show_doubtful(self, status: JournalStatus) -> None:
        self._heading(status.doubtful, ("is in doubt", "are in doubt"), "bold yellow")
        self._say("Each may have been done. Do not repeat it: the next command asks the service.")
        self._lines.paragraph((f"  {self._command('payasync reconcile')}", "cyan"))
        self._list(status.doubtful, status, commands=False)

    def _show_events(self, status: JournalStatus) -> None:
        """Show notifications; they have no commands, because only a Receiver has their handlers."""
        many = len(status.events)
        needs = "notification needs" if many == 1 else "notifications need"
        self._lines.write((f"  {many} {needs} a person", "bold red"))
        self._say("After you have removed the cause, call receiver.replay(ID), or receiver.replay_all(STATE).")
        self._say(f"A program that does this: {DOCUMENTATION}how-to/notifications.html#what-needs-a-person")
        for each in status.events[:ROWS]:
            what = f"{each.event or each.kind or 'unknown kind'} {each.key}"
            since = time_ago(each.received_at, status.at)
            self._item(each.id, f"{plain(what)}  ", (each.state, "bold red"), since=since, reason=each.reason)
        if self._count_others(many):
            self._say("--json prints all.")
        self._lines.write()

    def _heading(self, intents: Sequence[Intent], words: tuple[str, str], style: str) -> None:
        one = len(intents) == 1
        self._lines.write((f"  {'1 write' if one else f'{len(intents)} writes'} {words[0 if one else 1]}", style))

    def _say(self, words: str) -> None:
        self._lines.paragraph(f"  {words}", hang=2)

    def _list(self, intents: Sequence[Intent], status: JournalStatus, *, commands: bool) -> None:
        several = len({each.merchant for each in intents}) > 1
        for each in intents[:ROWS]:
            state, since = state_now(each, status.at), time_ago(doubt_since(each), status.at)
            reason = INTERRUPTED if state != each.state else why(each, status.at, with_state=True)
            number, amount = (plain(number_of(each)), "bold"), f"  {amount_of(each)}".rstrip()
            whose = plain(f"  of {each.merchant}") if several else ""
            what = f"{plain(each.operation)} ", number, f"{amount}{whose}  ", (state, STYLES[state])
            self._item(each.id, *what, since=since, reason=reason)
            if commands:
                self._lines.write((f"{'':8}{self._command(f'payasync journal show {each.id}')}", "cyan"))
        if others := self._count_others(len(intents)):
            for state in dict.fromkeys(each.state for each in intents[-others:]):
                self._lines.write((f"  {self._command('payasync journal list')} --state {state}", "cyan"))
        self._lines.write()

    def _item(self, number: int, *what: Part, since: str, reason: str) -> None:
        self._lines.write((f"  {number:<5} ", "bold"), *what, f", {since}", hang=8)
        if reason:
            self._lines.write((f"{'':8}{plain(reason)}", "dim"), hang=8)

    def _count_others(self, many: int) -> int:
        others = max(many - ROWS, 0)
        if others:
            self._lines.write((f"  … and {others:,} more", "dim"))
        return others

    def _command(self, command: str) -> str:
        return plain(f"{command}{self._address.option}")

    def _facts(self, status: JournalStatus) -> dict[str, Any]:
        in_doubt = [self._fact(each, status.at) for each in status.doubtful]
        return {
            "journal": self._address.shown,
            "counts": dict(status.counts),
            "oldest_in_doubt": next(iter(in_doubt), None),
            "overdue": status.overdue.total_seconds(),
            "in_doubt": in_doubt,
            "needs_a_person": [self._fact(each, status.at) for each in status.manual],
            "unsent": [self._fact(each, status.at) for each in status.unsent],
            "notifications": [
                {"id": each.id, "key": each.key, "kind": each.kind, "state": each.state, "reason": each.reason}
                for each in status.events
            ],
            "of_other_merchants": status.others,
        }

    def _fact(self, intent: Intent, at: datetime) -> dict[str, Any]:
        state, since = state_now(intent, at), doubt_since(intent)
        asked = state == "unknown" and not needs_person(intent, at, _PATIENCE)
        command = "payasync reconcile" if asked else f"payasync journal show {intent.id}"
        facts = identify(intent, intent.reason if state == intent.state else INTERRUPTED)
        times = {"since": since.isoformat(), "seconds": (at - since).total_seconds()}
        return {**facts, "merchant": intent.merchant, "state": state, **times, "next": self._command(command)}


def _summary(status: JournalStatus) -> Iterator[tuple[str, str, str]]:
    """Yield a name, a value and a style of each line of the summary."""
    if status.doubtful:
        since = doubt_since(status.doubtful[0])
        words = f"{len(status.doubtful)}; the oldest since {format_moment(since)}"
        yield "In doubt", f"{words}, {time_ago(since, status.at)}", "bold yellow"
    else:
        yield "In doubt", "nothing", "green"
    needs = len(status.manual) + len(status.unsent) + len(status.events)
    yield "A person", f"must look at {needs}" if needs else "is not needed", "bold red" if needs else "green"
    if status.others:
        yield "Held", f"{status.others:,} of other merchants: you need not do anything", ""
    yield "States", ", ".join(f"{many:,} {state}" for state, many in status.counts.items() if many) or "all ended", ""
