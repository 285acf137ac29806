"""`payasync reconcile`: the command as a process, with a real sandbox, whose ledger is the truth."""

import asyncio
import json
import os
import signal
import sqlite3
import time
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from rich.console import Console

from payasync import OutcomeUnknownError, RetryPolicy
from payasync.cli.commands import payasync
from payasync.cli.options import Address
from payasync.cli.reconcile import ReconcileScreen, Remaining
from payasync.cli.sandbox import environment_of
from payasync.clocks import Clocks, use_clocks, utc_now
from payasync.journal import SqliteJournal
from payasync.journal.intents import State
from payasync.journal.reconcile_policy import End, Report, Result
from payasync.resources.refunds import CreateRefund
from payasync.sandbox import Sandbox
from tests.chaos.forked import Forked
from tests.cli.sandbox_process import Ended, ended, environment, lines
from tests.inside import until
from tests.journal.building import draft, kept

LONG_AGO: Final = 7200.0
"""Seconds; every quarantine is over since then."""
ONCE: Final = RetryPolicy(attempts=1, quota=0)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A sandbox with a paid order, which refuses a repeated refund."""
    async with Sandbox(clock="frozen", repeated_refunds="refused") as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1", total_amt=450)
        yield sandbox


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of the journal."""
    return tmp_path / "pay.db"


async def run(sandbox: Sandbox, path: Path, *arguments: str, **environ: str) -> Ended:
    """Run the command to its end in a thread, while the service runs in this one."""
    variables = {**environment_of(sandbox), "COLUMNS": "100", **environ}
    return await asyncio.to_thread(invoked, variables, "--journal", str(path), *arguments)


def invoked(environ: Mapping[str, str | None], *arguments: str) -> Ended:
    """Run the command in this process, without its signal handlers."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("payasync.cli.reconcile.stopped_by_signals", asyncio.Event)
        end = CliRunner(env=environ).invoke(payasync, ["reconcile", *arguments])
    return Ended(end.exit_code, end.stdout, end.stderr)


def cells(out: str, word: str, count: int) -> list[list[str]]:
    """Return the first words of each line that has a word in it."""
    return [line.split()[:count] for line in out.splitlines() if word in line]


def refund(number: str) -> CreateRefund:
    """Return a refund of the paid order."""
    return CreateRefund(out_trade_no="T1", out_refund_no=number, total_amt=450, refund_amt=100)


async def lost(
    sandbox: Sandbox, path: Path, *, done: Sequence[str] = (), absent: Sequence[str] = (), ago: float = LONG_AGO
) -> None:
    """Send refunds from another machine, so many seconds ago. Some were executed, and some never arrived."""
    use_clocks(Clocks(wall=lambda: time.time() - ago, identity=lambda: "another-machine"))
    async with SqliteJournal(path) as journal, sandbox.session(journal=journal, retry=ONCE) as pay:
        for number in (*done, *absent):
            (sandbox.faults.reset_after_commit if number in done else sandbox.faults.reset_before)("refunds.create")
            with pytest.raises(OutcomeUnknownError):
                await pay.send(refund(number))
    use_clocks(Clocks())


async def unnamed(sandbox: Sandbox, path: Path) -> None:
    """Send a payment whose response is lost, and which has no number for a query."""
    async with SqliteJournal(path) as journal, sandbox.session(journal=journal, retry=ONCE) as pay:
        sandbox.faults.reset_after_commit("payments.create")
        with pytest.raises(OutcomeUnknownError):
            await pay.payments.create(amount=1000, currency="USD", intent="invoice-42")


async def states(path: Path) -> list[str]:
    """Return the state of each intent."""
    async with SqliteJournal(path) as journal:
        return [each.state for each in await journal.list()]


async def test_all_is_settled(sandbox: Sandbox, path: Path, tmp_path: Path) -> None:
    """Writes that were executed are found, and writes that never arrived are rejected. The exit code is 0.

    `--profile` and `--base-url` take precedence over the environment.
    """
    await lost(sandbox, path, done=["R1", "R2"], absent=["R3"])
    profile = tmp_path / "service.toml"
    profile.write_text(sandbox.profile.to_toml(), encoding="utf-8")
    wrong = {"PAYASYNC_PROFILE": "/nowhere.toml", "PAYASYNC_BASE_URL": "http://127.0.0.1:1"}
    result = await run(sandbox, path, "--profile", str(profile), "--base-url", sandbox.url, **wrong)

    assert (0, "") == (result.code, result.err)
    assert "Queried 3 writes." in result.out
    assert "resolved            3  2 succeeded, 1 rejected" in result.out
    assert "1 write not done: inform those who believe otherwise, or repeat the write under its number." in result.out
    assert [["3", "refunds.create", "R3"]] == cells(result.out, "never arrived", 3)
    assert ["succeeded", "succeeded", "rejected"] == await states(path)
    assert 200 == sandbox.ledger.refunded("T1")


async def test_what_needs_a_person_is_listed(sandbox: Sandbox, path: Path) -> None:
    """Each run lists an intent that needs a person, with exit code 3, until a person resolves it."""
    await unnamed(sandbox, path)
    first, second = await run(sandbox, path), await run(sandbox, path)
    async with SqliteJournal(path) as journal:
        await journal.resolve(1, as_="rejected", reason="the back office knows nothing of it")
    third = await run(sandbox, path)

    for result in (first, second):
        assert (3, True) == (result.code, "1 write needs a person" in result.out)
        assert "1  payments.create  invoice-42  1000 USD" in result.out
        for end in ("succeeded", "rejected"):
            assert f"  payasync journal resolve ID --journal {path} --as {end} --reason …\n" in result.out
    assert "There was nothing to query." in third.out
    assert (0, False) == (third.code, "needs a person" in third.out)


async def test_accepted_without_an_end_is_listed(path: Path) -> None:
    """If the end of an accepted refund stays unknown, it is listed, because it may have been declined."""
    async with Sandbox(clock="frozen", refunds="by hand") as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1", total_amt=450)
        async with SqliteJournal(path) as journal, sandbox.session(journal=journal) as pay:
            await pay.send(refund("R1"))
        sandbox.faults.redirect("refunds.status", times=None)
        changed(path, DENIED.format(6))
        before = await run(sandbox, path)
        changed(path, DENIED.format(7))
        result = await run(sandbox, path)

    assert (0, 3) == (before.code, result.code)
    assert "1 write needs a person" in result.out
    assert ["1", "accepted", "refunds.create", "R1"] in cells(result.out, "HTTP 302", 4)
    assert ["accepted"] == await states(path)


DENIED: Final = "UPDATE payasync_intents SET due = created, denied = {}"
"""Makes all due that have been queried so many times in vain."""


def changed(path: Path, statement: str) -> None:
    """Execute SQL on the file of a journal."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(statement)


async def test_query_that_fails(sandbox: Sandbox, path: Path) -> None:
    """If a query fails, its reason is shown, and the exit code is 0, because a later run queries again.

    If no query has a usable response, the exit code is 1, and the address is shown.
    """
    await lost(sandbox, path, absent=["R1"])
    nowhere, due = "http://127.0.0.1:9", "UPDATE payasync_intents SET due = created"
    wrong = await run(sandbox, path, PAYASYNC_SECRET_KEY="wrong")
    changed(path, due)
    silent = await run(sandbox, path, PAYASYNC_BASE_URL=nowhere)
    changed(path, due)
    await lost(sandbox, path, done=["R2"])
    sandbox.faults.server_error("refunds.status")
    result, words = await run(sandbox, path), "No query had a usable response: no outcome is known yet."

    assert (0, False) == (result.code, "No query had a usable response" in result.out)
    assert "waiting             1  HTTP 503, the service failed" in result.out
    assert "The next query is in" in result.out
    for each, url in ((wrong, sandbox.url), (silent, nowhere)):
        assert (1, "") == (each.code, each.err)
        assert words in each.out
        assert url in each.out.split("Due")[0]


async def test_unsent_write_is_listed(sandbox: Sandbox, path: Path) -> None:
    """A write that was queued long ago and never sent is listed with exit code 3. A new one is not."""
    for number, ago in (("R1", 600.0), ("R2", 0.0)):
        async with SqliteJournal(path, clock=lambda ago=ago: time.time() - ago) as journal:  # type: ignore[misc]
            await journal.add(refund(number), merchant=str(sandbox.credentials.merchant_id))
    result, facts = await run(sandbox, path), await run(sandbox, path, "--json")
    async with SqliteJournal(path) as journal:
        await journal.resolve(1, as_="rejected", reason="nobody wants it any more", seen="new")
    last = await run(sandbox, path)

    assert (3, 3, 1) == (result.code, facts.code, json.loads(facts.out)["unsent"])
    assert f"payasync journal resolve ID --journal {path} --as rejected --reason" in result.out
    assert (0, False) == (last.code, "resolve" in last.out)
    assert "1 write queued, and not sent for some minutes: is a worker running?" in result.out
    assert "column Why shows" not in result.out
    assert [["1", "refunds.create", "R1"]] == cells(result.out, "refunds.create", 3)


async def test_writes_of_other_merchants(sandbox: Sandbox, path: Path) -> None:
    """Open writes of other merchants are counted, also with `--json`."""
    await lost(sandbox, path, absent=["R1", "R2", "R3"])
    async with SqliteJournal(path) as journal:
        await journal.resolve(3, as_="rejected", reason="seen")
    result, facts = [await run(sandbox, path, *more, PAYASYNC_MERCHANT_ID="M9") for more in ((), ("--json",))]
    mine = str(sandbox.credentials.merchant_id)

    assert (0, 0) == (result.code, facts.code)
    assert f"2 open writes are of other merchants ({mine})" in result.out
    assert {mine: 2} == json.loads(facts.out)["of_other_merchants"]
    assert "of other merchants" not in (await run(sandbox, path)).out


async def test_interrupted_write(sandbox: Sandbox, path: Path) -> None:
    """After a crash nothing is due yet; `reconcile` says when the interrupted write will be queried."""
    async with SqliteJournal(path) as journal:
        await journal.begin(draft(refund("R1"), merchant=str(sandbox.credentials.merchant_id)), 5 * 3600)
    for result in (await run(sandbox, path), await run(sandbox, path, "--dry-run")):
        assert 0 == result.code
        assert "1 write is being sent, or was interrupted: queried in 5 h" in result.out
        assert "The next query" not in result.out
    told = json.loads((await run(sandbox, path, "--json")).out)

    assert (1, True) == (told["sending"], 4 * 3600 < told["next_in"] <= 5 * 3600)


async def test_writes_that_are_not_due(sandbox: Sandbox, path: Path) -> None:
    """Writes in doubt that are not due are counted, with the time of the next query and the command that lists them.

    A dry run says when the next query is only if nothing is due.
    """
    await lost(sandbox, path, done=["R1"], ago=-7200.0)
    later, one = await run(sandbox, path, "--dry-run"), await run(sandbox, path)
    await lost(sandbox, path, done=["R2"], ago=-7200.0)
    two, facts = await run(sandbox, path), await run(sandbox, path, "--json")
    await lost(sandbox, path, done=["R3"])
    due, settled = await run(sandbox, path, "--dry-run"), await run(sandbox, path)

    for result, words in ((one, "1 write is in doubt"), (two, "2 writes are in doubt")):
        assert (0, True) == (result.code, "There was nothing to query." in result.out)
        assert f"{words} and not due yet. To list what is in doubt:" in result.out
        assert f"payasync journal list --journal {path} --state unknown" in result.out
    assert (0, 2) == (facts.code, json.loads(facts.out)["not_due"])
    said = [" ".join(each.out.split()) for each in (later, due, settled)]
    assert [True, False, True] == ["The next query is in 2 h" in each for each in said]


def content(path: Path) -> list[str]:
    """Return all that a journal stores."""
    with closing(sqlite3.connect(path)) as db:
        return list(db.iterdump())


async def test_json(sandbox: Sandbox, path: Path) -> None:
    """`--json` prints one line with the counts, the writes not done, and those that need a person."""
    await lost(sandbox, path, done=["R1"], absent=["R2"])
    await unnamed(sandbox, path)
    result = await run(sandbox, path, "--json")
    refund = {"id": 2, "operation": "refunds.create", "reference": "R2", "intent": None}
    payment = {"id": 3, "operation": "payments.create", "reference": None, "intent": "invoice-42"}
    counts = {"asked": 3, "questions": 3, "runs": 1, "resolved": 2, "manual": 1, "rejected": 1}
    expected: dict[str, Any] = {
        **counts,
        **dict.fromkeys(("sent", "waiting", "lost", "unsent", "sending", "not_due"), 0),
        **dict.fromkeys(("silent", "interrupted", "cut_short"), False),
        "not_done": [{**refund, "reason": "never arrived: the service does not know it"}],
        "needs_a_person": [
            {**payment, "reason": "it has no number: the service cannot be asked what happened to it"},
        ],
        "of_other_merchants": {},
        "next_in": None,
    }

    assert (3, expected) == (result.code, json.loads(result.out))


async def test_dry_run_changes_nothing(sandbox: Sandbox, path: Path) -> None:
    """`--dry-run` lists what is due, and what needs a person. It sends nothing, and does not change the journal.

    `--json` prints the writes that are due in one line, also if there are none.
    """
    async with SqliteJournal(path) as journal:
        await journal.list()
        before = content(path)
        nothing = await run(sandbox, path, "--json", "--dry-run")
        assert before == content(path)
        await lost(sandbox, path, done=["R1"])
        (kept_,) = await journal.list()
    before = content(path)
    result = await run(sandbox, path, "--json", "--dry-run")
    assert before == content(path)
    await unnamed(sandbox, path)
    before = content(path)
    plain = await run(sandbox, path, "--dry-run")
    rest = {"dry_run": True, "unsent": 0, "of_other_merchants": {}, "needs_a_person": [], "sending": 0, "not_due": 0}
    moments = {name: getattr(kept_, name).isoformat() for name in ("created", "sent_at", "due")}
    due = {"id": 1, "operation": "refunds.create", "reference": "R1", "intent": None, "state": "unknown"}

    assert (0, 0, 3) == (nothing.code, result.code, plain.code)
    assert {**rest, "due": [], "next_in": None} == json.loads(nothing.out)
    assert {**rest, "due": [{**due, "reason": kept_.reason, **moments}], "next_in": 0} == json.loads(result.out)
    assert "1 write needs a person" in plain.out
    assert [["1", "unknown", "refunds.create", "R1", "100", "2", "h", "ago"]] == cells(plain.out, "R1", 8)
    assert "nothing was sent, and nothing has changed" in plain.out
    assert before == content(path)
    assert [] == sandbox.ledger.calls("refunds.status")


def started(sandbox: Sandbox, path: Path, *arguments: str, **streams: Any) -> Forked:
    """Start the command in a process of its own."""
    command = ("payasync", "reconcile", "--journal", str(path), *arguments)
    return Forked(*command, environment={**environment(sandbox), "COLUMNS": "100"}, **streams)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
async def test_interrupted(sandbox: Sandbox, path: Path, number: signal.Signals) -> None:
    """A signal ends `reconcile` with exit code 130, and the next run continues."""
    await lost(sandbox, path, done=["R1"])
    hanging = sandbox.faults.hang("refunds.status")
    with started(sandbox, path) as process:
        await until(lambda: hanging.fired)
        process.send_signal(number)
        result = await asyncio.to_thread(ended, process)
    again = await run(sandbox, path)

    assert (130, "") == (result.code, result.err)
    assert "Interrupted. Settled writes stay settled; the next run continues." in result.out
    assert "Queried 1 write." in again.out
    assert ["succeeded"] == await states(path)


async def test_watch(sandbox: Sandbox, path: Path) -> None:
    """`--watch` shows each settled write as it happens, and runs until a signal. The exit code is 0."""
    await lost(sandbox, path, done=["R1"])
    await lost(sandbox, path, done=["R2"], ago=-1.0)
    with started(sandbox, path, "--watch") as process:
        shown = [(await asyncio.to_thread(lines, process, number))[-1] for number in ("R1", "R2")]
        process.send_signal(signal.SIGTERM)
        result = await asyncio.to_thread(ended, process)

    words = (f"resolved      refunds.create        {number}              succeeded" for number in ("R1", "R2"))
    assert [True, True] == [line.endswith(each) for line, each in zip(shown, words, strict=True)]
    assert (0, "") == (result.code, result.err)
    assert "Queried 2 writes." in result.out
    assert ["succeeded", "succeeded"] == await states(path)


async def test_full_disk(sandbox: Sandbox, path: Path) -> None:
    """If the results cannot be written, the exit code says so: no other run lists the refund that was not done."""
    await lost(sandbox, path, absent=["R1"])
    full = os.open("/dev/full", os.O_WRONLY)
    with started(sandbox, path, streams={1: full}) as process:
        end = await asyncio.to_thread(ended, process)
    os.close(full)

    line = "payasync reconcile: done, but the result could not be written: payasync journal list shows the writes\n"
    assert (["rejected"], 70, line) == (await states(path), end.code, end.err)


async def test_results_before_an_error(sandbox: Sandbox, path: Path) -> None:
    """If the journal fails half-way, the results so far are listed, because no later run lists them."""
    await lost(sandbox, path, absent=[f"R{number}" for number in range(11)])
    hanging = sandbox.faults.hang("refunds.status", times=9)
    changed(path, FAILING.format(11))
    first, second = await run(sandbox, path), await run(sandbox, path, "--json")
    hanging.disarm()
    changed(path, "DROP TRIGGER fails")
    rest = json.loads((await run(sandbox, path, "--json")).out)
    told = [listed(first.out), ids(json.loads(second.out)) if second.out else [], ids(rest)]

    assert [2, 2] == [first.code, second.code]
    assert ["payasync reconcile: the journal"] * 2 == [line[:31] for line in (first.err + second.err).splitlines()]
    assert 1 == len(told[0])
    assert list(range(1, 12)) == sorted(number for each in told for number in each)
    assert "Stopped by an error. Settled writes stay settled; the next run continues." in first.out


def ids(line: dict[str, Any]) -> list[int]:
    """Return the IDs of the writes that a line of JSON lists as not done."""
    return [each["id"] for each in line["not_done"]]


FAILING: Final = (
    "CREATE TRIGGER fails BEFORE UPDATE ON payasync_intents WHEN OLD.id = {} BEGIN SELECT RAISE(ABORT, 'it fails'); END"
)


def listed(out: str) -> list[int]:
    """Return the ids of the refunds in a table."""
    return [int(number) for (number,) in cells(out, "  refunds.create  ", 1)]


async def test_wrong_settings_end_with_2(sandbox: Sandbox, path: Path) -> None:
    """A wrong setting is reported in one line, with exit code 2, before any query."""
    await lost(sandbox, path, done=["R1"])
    cases: list[tuple[str, str | None, str]] = [
        ("PROFILE", None, "no profile is given, so nothing says how to query the service. Give --profile FILE"),
        ("PROFILE", "/nowhere.toml", "reconcile: PAYASYNC_PROFILE: cannot read '/nowhere.toml'"),
        ("MERCHANT_ID", None, "PAYASYNC_MERCHANT_ID is not set"),
        ("BASE_URL", None, "PAYASYNC_BASE_URL is not set"),
    ]
    for name, value, words in cases:
        environ = {**environment_of(sandbox), f"PAYASYNC_{name}": value}
        result = await asyncio.to_thread(invoked, environ, "--journal", str(path))

        assert (2, 1, True) == (result.code, len(result.err.splitlines()), words in result.err), result.err
    assert ([], ["unknown"]) == (sandbox.ledger.calls("refunds.status"), await states(path))
    both = invoked({}, "--journal", str(path), "--watch", "--dry-run")
    assert (2, "") == (both.code, both.out)
    assert "Leave out --watch to see what is due, or --dry-run to query it" in both.err


NOTHING: Final = Remaining()


class Shown(ReconcileScreen):
    """A screen that records its output."""

    def __init__(
        self,
        *,
        watch: bool = False,
        json: bool = False,
        others: Mapping[str, int] = {},
        remaining: Remaining = NOTHING,
    ) -> None:
        self._out = StringIO()
        console = Console(file=self._out, width=1000 if json else 200, highlight=False)
        super().__init__(Address("pay.db"), watch=watch, json=json, console=console)
        self.opened("M1", [], others=others, remaining=remaining)

    def note(self, number: int, end: End, state: State, reason: str = "", *, known: bool = False) -> None:
        """Show the result of a query."""
        intent = kept(id=number, state="unknown")
        self.noted(Result(intent=intent, end=end, state=state, reason=reason, known=known))

    @property
    def text(self) -> str:
        """The whole output."""
        return self._out.getvalue()

    @property
    def lines(self) -> list[str]:
        """All lines that are not empty, with single spaces."""
        return [" ".join(line.split()) for line in self.text.splitlines() if line.strip()]

    @property
    def facts(self) -> list[Any]:
        """All lines of JSON."""
        return [json.loads(line) for line in self.text.splitlines()]


def closed(remaining: Remaining, *, json: bool = False) -> Shown:
    """Return the screen of a run that queried nothing."""
    screen = Shown(json=json)
    screen.closed(remaining)
    return screen


def test_each_run_says_what_was_not_done() -> None:
    """With `--watch --json`, each write not done is listed once: in the line of its run, or in the last line."""
    for ending in ("a signal", "an error"):
        screen = Shown(watch=True, json=True)
        states: list[State] = ["rejected", "succeeded", "rejected"]
        for number, state in enumerate(states, 1):
            screen.note(number, "resolved", state)
            screen.ran(Report(resolved=1, rejected=state == "rejected"))
        screen.ran(Report())
        screen.note(4, "resolved", "rejected")
        screen.cut_short() if ending == "an error" else screen.closed(NOTHING)

        assert [[1], [], [3], [4]] == [ids(each) for each in screen.facts]
        assert (4, 4, 3) == tuple(screen.facts[-1][name] for name in ("asked", "resolved", "rejected"))


def test_summary_of_watching() -> None:
    """The summary counts writes by their latest result, and queries separately. It shows the latest reasons."""
    screen = Shown(watch=True)
    for reason in ("HTTP 500", "HTTP 503"):
        for number in (1, 2, 3):
            screen.note(number, "waiting", "unknown", f"{reason} {number}")
        screen.ran(Report(waiting=3))
    screen.note(2, "manual", "manual", "nothing names it")
    screen.note(3, "resolved", "succeeded")
    screen.ran(Report(manual=1))
    screen.closed(NOTHING)

    assert [
        "Queried 3 writes with 8 queries in 3 runs. The latest results:",
        "resolved 1 1 succeeded",
        "waiting 1 HTTP 503 1",
        "manual 1 nothing names it",
    ] == screen.lines[-4:]


def noted(screen: ReconcileScreen, number: int) -> weakref.ref[Result]:
    """Show in one run that a write was not done, and return what says whether the screen remembers it."""
    result = Result(intent=kept(id=number, state="unknown"), end="resolved", state="rejected")
    screen.noted(result)
    screen.ran(Report(resolved=1, rejected=1))
    return weakref.ref(result)


def test_memory_of_watching_is_bounded() -> None:
    """`--watch` remembers the last hundred writes not done; with `--json` it remembers none."""
    plain, scripted = Shown(watch=True), Shown(watch=True, json=True)
    for screen, remembered in ((plain, 100), (scripted, 0)):
        results = [noted(screen, number) for number in range(1, 301)]

        assert remembered == sum(each() is not None for each in results)
    plain.closed(NOTHING)
    _, _, last = plain.text.partition("Queried 300 writes.")

    assert list(range(201, 301)) == listed(last)
    assert "These are the last 100 of 300; the others were shown above." in last


def test_what_is_to_come() -> None:
    """If nothing is due, `--watch` says when the next query is, and which writes may have been interrupted.

    In JSON, `next_in` is rounded up, so that the write is due after that wait. A silent service is named.
    """
    later = utc_now() + timedelta(hours=5)
    watched = Shown(watch=True, remaining=Remaining(due=later)).lines
    interrupted = Shown(watch=True, remaining=Remaining(due=later, sending=[later])).lines

    assert "Due nothing now; the next query is in 5 h" in watched
    assert {"Due nothing", "1 write is being sent, or was interrupted: queried in 5 h"} <= {*interrupted}
    for seconds, next_in in ((-5.0, 0), (3599.9, 3600)):
        (facts,) = closed(Remaining(due=utc_now() + timedelta(seconds=seconds), sending=[later] * 2), json=True).facts

        assert (2, next_in) == (facts["sending"], facts["next_in"])
    for silent in (False, True):
        screen = Shown()
        screen.note(1, "waiting", "unknown")
        screen.ran(Report(waiting=1, silent=silent))
        screen.closed(NOTHING)

        assert silent is ("The service does not respond" in screen.text)


def test_all_writes_not_done_are_listed() -> None:
    """All writes not done are listed, also before an error, because no later run lists them.

    Of the reasons why others wait, the three most frequent are shown.
    """
    for cut in (False, True):
        screen = Shown()
        for number in range(1, 152):
            screen.note(number, "resolved", "rejected")
        for number in range(12):
            screen.note(200 + number, "waiting", "unknown", f"reason {number % 5}")
        screen.cut_short() if cut else screen.closed(NOTHING)

        assert list(range(1, 152)) == listed(screen.text)
        assert "151 writes not done" in screen.text
        assert ["3: reason 0", "3: reason 1", "2: reason 2"] == [line for line in screen.lines if ": reason" in line]


async def test_what_the_service_ended_is_no_alarm(sandbox: Sandbox, path: Path) -> None:
    """An order that nobody paid is listed apart from writes that never arrived."""
    async with SqliteJournal(path) as journal, sandbox.session(journal=journal) as pay:
        await pay.orders.place(out_trade_no="T9", total_amt=450, currency="CAD")
    async with sandbox.session() as pay:
        await pay.orders.close("T9")
    await sandbox.clock.advance(hours=1)
    result = await run(sandbox, path)

    assert "1 write not done, says the service: an unpaid order needs nothing" in " ".join(result.out.split())
    assert "inform those who believe otherwise" not in result.out


def test_how_to_list_the_others() -> None:
    """If there are more than a hundred intents, the output has the commands that list the others.

    If a worker has failed to send a queued write, its last error is listed.
    """
    manual = [kept(id=number, state="manual") for number in range(1, 151)]
    accepted = [kept(id=number, state="accepted") for number in range(31, 40)]
    unsent = [kept(id=number, state="new", reason="connection refused") for number in range(1, 102)]
    cases: tuple[tuple[Remaining, list[str], list[str]], ...] = (
        (Remaining(manual=manual[:100]), [], []),
        (Remaining(manual=manual + accepted), ["59"], ["manual --after 100", "accepted --after 0"]),
        (Remaining(manual=manual[:95] + accepted), ["4"], ["accepted --after 35"]),
        (Remaining(unsent=unsent), ["1"], ["new --after 100"]),
    )
    for remaining, more, commands in cases:
        lines = closed(remaining).lines
        shown = [line for line in lines if line.startswith("payasync journal list")]

        assert more == [line.split()[2] for line in lines if line.endswith("more; to list them:")]
        assert [f"payasync journal list --journal pay.db --state {each}" for each in commands] == shown
        assert bool(remaining.unsent) == any(line.endswith("connection refused") for line in lines)


def test_json_after_an_error() -> None:
    """After an error, JSON has the same names, with `null` for what only the journal knows.

    If nothing was queried, there is no line.
    """
    screen = Shown(json=True, others={"M2": 1})
    screen.cut_short()
    before = screen.text
    screen.note(7, "resolved", "rejected")
    screen.cut_short()
    (facts,), (whole,) = screen.facts, closed(NOTHING, json=True).facts

    assert ("", False, True) == (before, whole["cut_short"], facts["cut_short"])
    assert list(whole) == list(facts)
    assert (1, 1, {"M2": 1}) == tuple(facts[name] for name in ("asked", "rejected", "of_other_merchants"))
    assert [7] == ids(facts)
    assert {"unsent", "needs_a_person", "sending", "not_due", "next_in"} == {
        name for name, each in facts.items() if each is None
    }
