"""`payasync journal status`: the writes in doubt, and what to do."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any, Final

from attrs import evolve
from click.testing import CliRunner, Result
from rich.console import Console

from payasync import DOCUMENTATION
from payasync.cli.commands import payasync
from payasync.cli.journal_status import ROWS, StatusScreen, status_of
from payasync.cli.options import Address
from payasync.journal import SqliteJournal
from payasync.journal.intents import Intent, State
from payasync.notifications import InboxEvent, SqliteInbox
from tests.cli.conftest import in_journal
from tests.journal.building import START, draft, kept
from tests.notifications.inbox_building import received

HOUR: Final = timedelta(hours=1)
REQUEST: Final = {"total_amt": 450, "refund_amt": 200}
MANUAL: Final = kept(id=7, state="manual", reference="R7", sent_at=START, reason="nothing names it")
QUEUED: Final = kept(id=8, state="new", reference="R8", queued=True)


def unknown(**given: Any) -> Intent:
    """Return a refund that may have been done at the start."""
    return kept(**{"state": "unknown", "sent_at": START, "request": REQUEST, **given})


def run(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(payasync, ["journal", *arguments], env={"PAYASYNC_JOURNAL": "", "COLUMNS": "80"})


def shown(*intents: Intent, after: timedelta = HOUR, events: Sequence[InboxEvent] = ()) -> str:
    """Return what the command prints about intents on a terminal of 80 columns."""
    out = StringIO()
    console = Console(file=out, width=80, force_terminal=True, color_system=None)
    StatusScreen(Address("pay.db"), console=console).shown(status_of(intents, events, START + after))
    return out.getvalue()


def facts(*intents: Intent, after: timedelta = HOUR) -> dict[str, Any]:
    """Return the JSON that the command prints about intents."""
    out = StringIO()
    StatusScreen(Address("pay.db"), json=True, console=Console(file=out)).shown(status_of(intents, [], START + after))
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def test_writes_in_doubt() -> None:
    """Writes in doubt are shown, the oldest first, with time and reason, and the command that asks the service."""
    later = unknown(id=1, reference="R1", updated=START + HOUR / 2, reason="reset", due=START + 2 * HOUR)
    lines = shown(later, unknown(id=2, reference="R2", reason="HTTP 502", due=START + HOUR)).splitlines()

    assert " of M2  unknown, " in shown(later, unknown(id=2, merchant="M2"))
    assert "  2 writes are in doubt" in lines
    assert "  payasync reconcile --journal pay.db" in lines
    assert [
        "  2     refunds.create R2  200  unknown, 60 min ago",
        "        HTTP 502",
        "  1     refunds.create R1  200  unknown, 30 min ago",
        "        reset (again in 60 min)",
    ] == [line for line in lines if line.startswith(("  1 ", "  2  ", "        "))]


def test_writes_that_need_a_person() -> None:
    """A write that needs a person is shown with what to do, and with its own command."""
    for intent, advice in ((MANUAL, "back office"), (QUEUED, "Is a worker running?")):
        out = shown(intent)

        assert (True, True) == (advice in out, f"\n        payasync journal show {intent.id} --journal pay.db\n" in out)
        assert "A person   must look at 1\n" in out
    assert "\x1b" not in shown(kept(state="manual", reference="R\x1b", reason="\x1b[2J"))


PAYMENT: Final = unknown(id=9, operation="payments.create", number=None, reference=None, intent="i42")


def test_write_that_nobody_can_query() -> None:
    """A write in doubt that no query can name needs a person, because the next command would ask nothing.

    A queued payment that carries an idempotency key needs none: the reconciler sends it again.
    """
    queued = evolve(PAYMENT, queued=True)
    cancelled = evolve(PAYMENT, operation="subscriptions.cancel", reference="S1")
    for intent in (PAYMENT, cancelled, evolve(PAYMENT, state="sending", lease=START), queued):
        out, found = shown(intent), facts(intent)

        assert "\n        payasync journal show 9 --journal pay.db\n" in out
        assert ("A person   must look at 1\n" in out, "reconcile" in out) == (True, False)
        assert ([], ["payasync journal show 9 --journal pay.db"]) == (
            found["in_doubt"],
            [each["next"] for each in found["needs_a_person"]],
        )
    assert "payasync reconcile" in shown(evolve(queued, idempotency_key="k"))


def test_interrupted_write_is_in_doubt() -> None:
    """A write whose sender did not finish it within its lease is in doubt, and the reason says so.

    While it may still be sent, the command says when to look again, because its sender may have died.
    """
    sending, early = kept(lease=START + HOUR / 2), HOUR / 4
    line = "1 write is being sent, or was interrupted: look again at 2027-01-01 00:30:00 UTC."
    oldest = {"state": "unknown", "reason": "its sender was interrupted"}

    assert "its sender was interrupted" in shown(sending)
    assert oldest.items() <= facts(sending)["oldest_in_doubt"].items()
    assert {"unknown": 0, "sending": 1}.items() <= facts(sending, after=early)["counts"].items()
    assert line in " ".join(shown(sending, after=early).split())
    assert "look again" not in shown(sending)


def test_facts() -> None:
    """The JSON has the number in each open state, the oldest write in doubt, and what needs somebody."""
    found = facts(unknown(due=START + HOUR / 2), MANUAL, QUEUED, kept(id=9, state="accepted"))

    assert {"new": 1, "sending": 0, "accepted": 1, "unknown": 1, "manual": 1} == found["counts"]
    assert {"reference": "R1", "seconds": 3600.0, "next": "payasync reconcile --journal pay.db"}.items() <= found[
        "oldest_in_doubt"
    ].items()
    assert ([1], [7], [8]) == tuple(
        [each["id"] for each in found[name]] for name in ("in_doubt", "needs_a_person", "unsent")
    )
    assert 1800.0 == found["overdue"]


ACCEPTED: Final = kept(state="accepted", due=START)


def test_overdue_query() -> None:
    """If a query is overdue for five minutes, the command asks whether a reconciler runs."""
    asked = evolve(ACCEPTED, due=None, lease=START)
    for late in (ACCEPTED, asked, unknown(due=START), kept(lease=START)):
        for minutes, warned in ((4, False), (5, True)):
            after = timedelta(minutes=minutes)

            assert warned == ("does payasync reconcile --watch run" in shown(late, after=after))
            assert after.total_seconds() == facts(late, after=after)["overdue"]
    assert 0.0 == facts(unknown(due=START + 2 * HOUR))["overdue"] == facts(MANUAL)["overdue"]


def test_exit_code() -> None:
    """The exit code says whether anything is in doubt, and whether a person must look."""
    fine = [kept(state="accepted")], [kept(lease=START + 2 * HOUR)], [kept(state="new", updated=START + HOUR)]
    silent = kept(state="accepted", silent_since=START - timedelta(days=1))
    for code, cases in {0: ([], *fine), 1: ([unknown()],), 3: ([MANUAL, unknown()], [QUEUED], [silent])}.items():
        assert [code] * len(cases) == [status_of(intents, [], START + HOUR).exit_code for intents in cases]


def test_status_of_a_file(tmp_path: Path) -> None:
    """The command reads the journal, and changes nothing; without a subcommand, `journal` shows the status."""
    states: dict[State, int] = {"rejected": 0, "unknown": 1}
    for state, code in states.items():
        path = tmp_path / f"{state}.db"

        async def work(journal: SqliteJournal, state: State = state) -> None:
            begun = await journal.begin(draft(), 60.0)
            await journal.settle(begun.intent, state, reason="HTTP 502")

        in_journal(path, work, clock=START.timestamp)
        named, alone = run("status", "--journal", str(path), "--json"), run("--journal", str(path), "--json")
        counts = [json.loads(each.stdout)["counts"] for each in (named, alone)]

        assert [code, code] == [named.exit_code, alone.exit_code]
        assert (counts[0], code) == (counts[1], counts[0]["unknown"])


def test_journal_that_is_missing() -> None:
    """If no journal is given, the exit code is 2, and one line says so."""
    missing = run()

    assert (2, "", 1) == (missing.exit_code, missing.stdout, missing.stderr.count("\n"))
    assert missing.stderr.startswith("payasync journal: Missing option '--journal' (env var: 'PAYASYNC_JOURNAL')")
    assert missing.stderr.endswith("See payasync journal --help\n")


def test_help_and_mistakes_are_not_the_status() -> None:
    """`journal --help` shows the help of the group, and a mistyped subcommand is refused."""
    helped, mistyped = run("--help"), run("lsit")

    assert (0, True) == (helped.exit_code, "When you are called at night:" in helped.stdout)
    assert (2, True) == (mistyped.exit_code, "No such command 'lsit'" in mistyped.stderr)


def with_inbox(folder: Path, work: Callable[[SqliteInbox], Awaitable[object]]) -> tuple[Result, dict[str, Any]]:
    """Return what the command shows and its JSON, with an empty journal and an inbox of which a function made use."""
    in_journal(folder / "pay.db", lambda journal: journal.list())

    async def used() -> None:
        async with aclosing(SqliteInbox(folder / "inbox.db", clock=START.timestamp)) as inbox:
            await work(inbox)

    asyncio.run(used())
    arguments = ("--journal", str(folder / "pay.db"), "--inbox", str(folder / "inbox.db"))
    ended, scripted = run(*arguments), run(*arguments, "--json")
    assert ended.exit_code == scripted.exit_code
    return ended, json.loads(scripted.stdout)


def test_notifications_that_need_a_person(tmp_path: Path) -> None:
    """With `--inbox`, notifications that no handler could take are shown, and the exit code is 3.

    Those of other merchants need nobody, so that they are only counted.
    """

    async def park(inbox: SqliteInbox) -> None:
        await inbox.add(received("payment:1", kind="payment", event="payment.paid"))
        await inbox.add(received("payment:2"))
        await hold(inbox)
        (claim, other) = await inbox.claim(2, 60.0)
        await inbox.finish(claim, "dead", "no coffee\x1b left")
        await inbox.finish(other, "done")

    async def hold(inbox: SqliteInbox) -> None:
        await inbox.add(received("merchant:payment:3", held="it is another merchant's"))

    (tmp_path / "other").mkdir()
    ended, told = with_inbox(tmp_path, park)
    quiet, _ = with_inbox(tmp_path / "other", hold)
    found = told["notifications"]

    assert (3, True, 1) == (
        ended.exit_code,
        "  Held       1 of other merchants" in ended.stdout,
        told["of_other_merchants"],
    )
    assert "  1 notification needs a person" in ended.stdout.splitlines()
    assert "payment.paid payment:1  dead, " in ended.stdout
    assert "no coffee? left" in ended.stdout
    assert f"{DOCUMENTATION}how-to/notifications.html#what-needs-a-person" in ended.stdout
    assert "\n### Handle a held event\n" in Path("docs/how-to/notifications.md").read_text(encoding="utf-8")
    assert [("payment:1", "payment", "dead")] == [(each["key"], each["kind"], each["state"]) for each in found]
    assert (0, True) == (quiet.exit_code, "A person   is not needed" in quiet.stdout)


def test_nothing_is_cut_off(tmp_path: Path) -> None:
    """However many notifications need a person, all are counted, and `--json` prints all.

    Of many writes the first are shown, and how to list the others.
    """
    many = 1001

    async def park(inbox: SqliteInbox) -> None:
        await asyncio.gather(*(inbox.add(received(f"payment:{each}")) for each in range(many)))
        await asyncio.gather(*(inbox.finish(each, "dead") for each in await inbox.claim(many, 60.0)))

    ended, told = with_inbox(tmp_path, park)
    writes = shown(*(unknown(id=number) for number in range(1, ROWS + 3))).splitlines()

    assert many == len(told["notifications"])
    assert {f"  {many} notifications need a person", "  --json prints all."} <= {*ended.stdout.splitlines()}
    assert ["  … and 2 more", "  payasync journal list --journal pay.db --state unknown"] == writes[-3:-1]


def test_nothing_to_do() -> None:
    """If nothing is in doubt, the summary says so, and no section follows."""
    lines = [line.strip() for line in shown().splitlines() if line]

    assert ["In doubt   nothing", "A person   is not needed", "States     all ended"] == lines[1:4]
    assert 5 == len(lines)
