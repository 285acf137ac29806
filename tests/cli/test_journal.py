"""The commands of `payasync journal`."""

import asyncio
import json
import os
import re
import signal
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import click
import pytest
from attrs import evolve
from click.testing import CliRunner, Result
from psycopg.conninfo import conninfo_to_dict
from rich.console import Console

from payasync.cli import intent_table
from payasync.cli.commands import payasync
from payasync.cli.journal import ROWS, SEARCHED, JournalScreen
from payasync.cli.options import Address
from payasync.clocks import use_clocks
from payasync.errors import ConfigurationError
from payasync.journal import Journal, Outcome, PostgresJournal, SqliteJournal
from payasync.journal.drafts import draft_from_request, keep_all_but_customer
from payasync.journal.intents import Intent, State, format_moment
from payasync.journal.reconciler import PAGE
from payasync.resources.orders import CloseOrder, PlaceOrder
from payasync.resources.payments import CreatePayment
from payasync.wire.request import Request
from tests.cli.conftest import in_journal
from tests.journal.building import START, Clock, refund
from tests.journal.building import kept as keeping
from tests.test_readme import ENVIRONMENT

PAYMENT = CreatePayment(amount=1000, currency="USD", description="Invoice 42")


def run(*arguments: str, given: str | None = None, columns: int = 200) -> Result:
    """Run the command, with a person at a terminal who types what is given, if anything is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "isatty", lambda _: given is not None)
        return CliRunner().invoke(payasync, ["journal", *arguments], input=given, env={"COLUMNS": str(columns)})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a journal: R1 has succeeded, R2 is unknown, R3 is new, and a payment needs a person."""
    found = tmp_path / "pay.db"
    in_journal(found, filled)
    return found


async def filled(journal: SqliteJournal) -> None:
    """Store four intents."""
    await journal.settle(
        await sending(journal, refund("R1")), "succeeded", outcome=Outcome(status=200, body=b'{"state":"DONE"}')
    )
    await journal.settle(await sending(journal, refund("R2")), "unknown", reason="connection reset by peer")
    await journal.add(refund("R3"), merchant="M1")
    await journal.settle(await sending(journal, PAYMENT, "invoice-42"), "unknown", reason="timed out")
    (_, payment) = await journal.ask(2, 60.0)
    await journal.settle(payment, "manual", reason="nothing names it")


async def sending(journal: Journal, request: Request[Any], intent: str | None = None) -> Intent:
    """Store an intent as being sent."""
    return (await journal.begin(draft_from_request(request, "M1", intent, keep_all_but_customer), 60.0)).intent


def shown(intent: Intent, width: int = 200) -> str:
    """Return what `show` prints of an intent."""
    out = StringIO()
    JournalScreen(console=Console(file=out, width=width)).shown(intent, Address("pay.db"))
    return out.getvalue()


def stored(path: Path, intent_id: int) -> Intent:
    """Return an intent of the journal."""
    found = in_journal(path, lambda journal: journal.get(intent_id))
    assert found
    return found


def test_list_shows_each(path: Path, tmp_path: Path) -> None:
    """`list` shows each intent with operation, number, amount and reason. If there are more, it says how to go on.

    Of a long journal a table shows the first 100, and `list --json` prints all. No line ends with a space.
    """
    many = tmp_path / "many.db"

    async def fill(journal: SqliteJournal) -> None:
        await asyncio.gather(*(journal.add(refund(f"R{each}"), merchant="M1") for each in range(PAGE + 1)))

    in_journal(many, fill)
    result, page = run("list", "--journal", str(path)), run("list", "--journal", str(path), "--limit", "2").output
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    *table, hint = run("list", "--journal", str(many), "--state", "new").output.splitlines()
    whole = [*result.output.splitlines(), *shown(stored(path, 1)).splitlines()]

    assert 0 == result.exit_code
    assert "Id State Write Number Amount Since Why" == lines[0]
    assert "1 succeeded refunds.create R1 200 just now" == lines[1]
    assert "4 manual payments.create invoice-42 1000 USD just now nothing names it" == lines[4]
    assert (False, True) == ("There are more" in result.output, "There are more; --json prints all." in page)
    assert f"  payasync journal list --journal {path} --limit 2 --after 2" == page.splitlines()[-1]
    assert (PAGE + 1, 1 + ROWS + 2) == (len(in_json(many)), len(table))
    assert f"  payasync journal list --journal {many} --state new --after 100" == hint
    assert [] == [line for line in whole if line != line.rstrip()]


def test_list_of_nothing_says_of_what(path: Path) -> None:
    """If no intent matches, a line repeats the filters. If nothing has a number, it says where it was searched."""
    for asked in ("--number R9", "--order R1", "--number R1 --state manual", "--after 4", "--number \x1b[2J"):
        words = "--number '?[2J'" if "\x1b" in asked else asked
        result, scripted = (run("list", "--journal", str(path), *asked.split(), *more) for more in ((), ("--json",)))
        searched = SEARCHED.get(asked.split()[0][2:])
        said = f"The journal has no intents with {words}.\n" + (f"{searched}\n" if searched else "")

        assert (int(bool(searched)), said) == (result.exit_code, result.output)
        assert (result.exit_code, "") == (scripted.exit_code, scripted.output), asked


def test_list_finds_the_refunds_of_an_order(tmp_path: Path) -> None:
    """Support that knows only the number of an order finds the order, its close and its refunds."""
    path = tmp_path / "pay.db"

    async def work(journal: SqliteJournal) -> None:
        for each in ("B20", "T1"):
            await sending(journal, PlaceOrder(out_trade_no=each, subject="Tea", total_amt=450, currency="CAD"))
            await sending(journal, refund(f"Z{each}", out_trade_no=each))
        await sending(journal, CloseOrder(out_trade_no="B20"))

    in_journal(path, work)

    for asked, expected in {
        ("--order", "B20"): [1, 2, 5],
        ("--number", "B20"): [1, 2, 5],
        ("--number", "ZB20"): [2],
    }.items():
        assert expected == [each["id"] for each in in_json(path, *asked)], asked


def in_json(path: Path, *options: str) -> list[dict[str, Any]]:
    """Return the intents that `list --json` prints."""
    return [json.loads(line) for line in run("list", "--journal", str(path), *options, "--json").output.splitlines()]


def test_filters_of_list(path: Path) -> None:
    """Each filter of `list` leaves out the rest. A time is a day, has an offset, or is one that payasync prints."""
    at = datetime(2027, 1, 31, 23, 30, tzinfo=UTC)
    in_journal(path, lambda journal: sending(journal, refund("R5")), clock=at.timestamp)
    within = ("--since", "2027-01-31 23:30:00 UTC", "--until", "2027-02-01T00:31+01:00")
    cases = {
        ("--state", "manual"): [4],
        ("--limit", "2"): [1, 2],
        ("--after", "2"): [3, 4, 5],
        ("--number", "R1"): [1],
        within: [5],
        (*within, "--number", "R5"): [5],
        ("--since", "2027-02-01"): [],
        ("--until", "2027-01-31T23:30"): [1, 2, 3, 4],
    }

    assert cases == {asked: [each["id"] for each in in_json(path, *asked)] for asked in cases}


def test_list_refuses(path: Path) -> None:
    """`list` refuses a time that it cannot read, and two options of which one would have no effect."""
    time = "it must be a time such as 2026-11-29 or 2026-11-29T08:30, not 'yesterday'"
    for options, words in (("--since yesterday", time), ("--number R1 --order T1", "Give --number or --order")):
        result = run("list", "--journal", str(path), *options.split())

        assert (2, True) == (result.exit_code, words in result.stderr)


def test_json_of_an_intent(path: Path) -> None:
    """`list --json` prints one line of JSON for each intent, and `show --json` the same line."""
    first, second, *_ = lines = in_json(path)
    one = run("show", "4", "--journal", str(path), "--json").output.strip()

    assert [1, 2, 3, 4] == [line["id"] for line in lines]
    assert ("refunds.create:R1", "intent:invoice-42") == (first["key"], lines[3]["key"])
    assert {"status": 200, "body": '{"state":"DONE"}'}.items() <= first["outcome"].items()
    assert stored(path, 2).sent_at == datetime.fromisoformat(second["sent_at"])
    assert run("list", "--journal", str(path), "--json").output.splitlines()[3] == one


def test_show_shows_all(path: Path) -> None:
    """`show` prints the state, the merchant, the request and the response. A long value is wrapped and not cut."""
    output = run("show", "1", "--journal", str(path)).output
    words = "succeeded", "M1", "once", "out_refund_no = R1", "refund_amt = 200", "HTTP 200", '"state": "DONE"'
    address = f"https://pay.example/{'x' * 90}/end"
    outcome = Outcome(status=200, body=json.dumps({"redirectUrl": address}).encode())

    assert [] == [each for each in words if each not in output]
    assert address in "".join(shown(evolve(stored(path, 1), outcome=outcome), width=60).split())


def test_show_says_what_a_person_can_do(path: Path) -> None:
    """For an intent that needs a person, is in doubt or is queued, `show` prints a command for each end."""
    wanted = "Once you know what happened:", "If it is no longer wanted:"
    for number, words, ends in (("4", wanted[0], ["succeeded", "rejected"]), ("3", wanted[1], ["rejected"])):
        output = run("show", number, "--journal", str(path)).output
        commands = [f"  payasync journal resolve {number} --journal {path} --as {end} --reason …" for end in ends]

        assert words in output
        assert commands == [line for line in output.splitlines() if " resolve " in line]
    states: dict[State, bool] = {"succeeded": False, "accepted": False, "unknown": True}
    assert states == {state: "resolve" in shown(keeping(state=state)) for state in states}


def test_show_says_lease_and_next_query() -> None:
    """`show` prints the lease of an intent that is queried, when the next query is due, and since when none succeeds.

    Control characters are replaced.
    """
    at = datetime.now(UTC)
    times = {
        "lease": at + timedelta(minutes=9),
        "due": at + timedelta(hours=5),
        "silent_since": at - timedelta(hours=30),
    }
    hostile = {"reason": "HTTP 503\x1b[2J", "request": {"refund_desc": "cold\x1b[2J"}}
    outcome = Outcome(status=200, body=b'{"say":"\\u001b[2J"}')
    output = shown(keeping(state="unknown", outcome=outcome, **times, **hostile))

    assert re.search(r"Lease +for .* more\n", output)
    assert re.search(r"No response +since .*, 30 h ago\n", output)
    assert [] == [each for each in ("Next query   in 5 h\n", "HTTP 503?[2J", "cold?[2J") if each not in output]
    assert "\x1b" not in output


A_MINUTE: Final = timedelta(minutes=1)
AN_HOUR: Final = timedelta(hours=1)
HELD: Final = keeping(attempts=1, lease=datetime.now(UTC) + timedelta(days=1))
INTERRUPTED: Final = keeping(attempts=1, created=START - A_MINUTE * 2**20, lease=START - A_MINUTE * (2**20 - 1))
TWICE: Final = keeping(state="unknown", attempts=2, key_sent=START + A_MINUTE, sent_at=START + AN_HOUR)


def test_show_says_when_a_write_was_sent(tmp_path: Path) -> None:
    """`show` prints the moments between which all that may have arrived was sent, or the only one, with the zone.

    Sends under one idempotency key are one write. The end of the lease of an interrupted sender is the last moment.
    """
    path, clock = tmp_path / "pay.db", Clock()

    async def work(journal: SqliteJournal) -> None:
        use_clocks(clock.clocks())
        queued = await journal.add(PAYMENT, merchant="M1", intent="invoice-42")
        clock.advance(3600)
        await journal.claim(queued, 60.0)
        clock.advance(3600)
        (held,) = await journal.ask(1, 60.0)
        clock.advance(3600)
        await journal.settle(held, "manual", reason="nothing names it")

    in_journal(path, work)
    cases = {
        "once, by a worker, between 2027-01-01 00:00:00 and 2027-01-01 02:00:00 UTC": stored(path, 1),
        "once": HELD,
        "once, between 2025-01-02 19:44:00 and 2025-01-02 19:45:00 UTC": INTERRUPTED,
        "once, at 2027-01-01 00:00:00 UTC": keeping(state="unknown", attempts=1, sent_at=START),
        "twice, between 2027-01-01 00:01:00 and 2027-01-01 01:00:00 UTC": evolve(TWICE, idempotency_key="payasync-1"),
    }
    for words, intent in cases.items():
        assert f"Sent         {words}\n" in shown(intent)
    assert "Recorded     2027-01-01 00:00:00 UTC, " in shown(TWICE)


def test_show_says_what_is_in_doubt() -> None:
    """A write is shown as in doubt only until a response settles it; its idempotency key is shown for the service."""
    states: tuple[State, ...] = ("succeeded", "rejected", "accepted")
    ended = [keeping(state=state, sent_at=START) for state in states]
    counts = [shown(each).count("In doubt     since ") for each in (*ended, HELD, INTERRUPTED, TWICE)]

    assert [0, 0, 0, 0, 1, 1] == counts
    assert "In doubt     since 2025-01-02 19:44:00 UTC" in shown(INTERRUPTED)
    assert "Key          payasync-1\n" in shown(keeping(state="manual", idempotency_key="payasync-1"))
    assert "Key " not in shown(keeping(state="manual"))


def test_signal_at_a_question(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C at a question, a line says that nothing is changed."""

    def interrupted(*_: object, **__: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:  # as click does
            raise click.Abort from None

    in_journal(path, bound)
    monkeypatch.setattr("click.confirm", interrupted)
    for arguments in ("resolve 4 --as rejected --reason seen --force", f"move {OLD} https://b.example"):
        result = run(*arguments.split(), "--journal", str(path), given="")
        line = f"payasync journal {arguments.partition(' ')[0]}: interrupted; nothing changed"

        assert (130, line) == (result.exit_code, result.stderr.strip())
    assert "manual" == stored(path, 4).state
    in_journal(path, bound)


def test_damaged_rows_hide_no_other(path: Path) -> None:
    """A row that cannot be read has its line in each command, with its id and why; the others are shown as usual."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE payasync_intents SET request = '{bad' WHERE id < 3")
    listed, status = run("list", "--journal", str(path)), run("--journal", str(path))
    lines = [" ".join(line.split()) for line in listed.output.splitlines()]
    shown = [run("show", each, "--journal", str(path)) for each in ("1", "2")]
    (first, *_) = map(json.loads, run("list", "--json", "--journal", str(path)).output.splitlines())

    assert (0, 3, [0, 0]) == (listed.exit_code, status.exit_code, [each.exit_code for each in shown])
    assert "2 unknown refunds.create R2 just now row 2 cannot be read: damaged in request" in lines[2]
    assert lines[4].startswith("4 manual payments.create invoice-42 1000 USD")
    assert "row 2 cannot be read" in status.output
    assert ["row 1 cannot be read", "row 2 cannot be read"] == [
        found[0] for each in shown if (found := re.findall(r"row \d cannot be read", each.output))
    ]
    assert "row 1 cannot be read: damaged in request" == first["damaged"]


RESOLVE: Final = ("resolve", "--as", "rejected", "--reason", "seen")


def test_missing_intent(path: Path) -> None:
    """A missing intent ends with exit code 1, and the message names the command and the journal."""
    for command in (("show",), RESOLVE, (*RESOLVE, "--yes")):
        result = run(*command, "--journal", str(path), "99")
        said = f"payasync journal {command[0]}: there is no intent 99 in {path}\n"

        assert (1, said) == (result.exit_code, result.output)


def test_invalid_intent_id(path: Path) -> None:
    """For an invalid ID, the error says how to find the right one."""
    for text, command in product(("R-1", "0", "\u0661", "9" * 19, ""), (("show",), (*RESOLVE, "--yes"))):
        result = run(*command, "--journal", str(path), text)
        (why,) = result.stderr.splitlines()

        assert 2 == result.exit_code
        assert f"'ID': {text!r} is not an intent ID. To find the ID of an order" in why


def test_resolve_ends(path: Path) -> None:
    """A person can resolve an intent that is manual, unknown or new; the reason is stored."""
    for number, end in ((2, "rejected"), (3, "rejected"), (4, "succeeded")):
        result = resolving(path, number, end, "--yes", "--force")
        intent = stored(path, number)

        assert (0, True) == (result.exit_code, f"is now {end}." in result.output)
        assert (end, "seen") == (intent.state, intent.reason)


def resolving(path: Path, number: int, end: str, *options: str, given: str | None = None) -> Result:
    """Run `resolve` with a reason."""
    return run("resolve", str(number), "--journal", str(path), "--as", end, "--reason", "seen", *options, given=given)


def test_resolve_asks_first(path: Path) -> None:
    """`resolve` shows the intent, explains a yes, and says until when the service may carry it out.

    Without a clear yes, nothing changes. Without a terminal it refuses in one line, and asks nothing.
    """
    (path.parent / "p.toml").write_text(SLOW)
    profile, sent = ("--profile", str(path.parent / "p.toml")), stored(path, 2).sent_at
    assert sent
    until = f"may carry it out until {format_moment(sent + timedelta(seconds=900))}. Are you sure"
    cases: list[tuple[int, str, tuple[str, ...], tuple[str, ...]]] = [
        (4, "succeeded", (), ("amount = 1000", "Are you sure")),
        (3, "rejected", (), ("refund_amt = 200", "will not send it. Are you sure that it is no longer wanted?")),
        (3, "succeeded", (), ("payasync has not sent it. Are you sure that it was done by other means?",)),
        (2, "rejected", profile, ("It was sent ", until)),
        (2, "rejected", (), ("may carry it out at any time, because no quarantine is known. Are you sure",)),
        # Its sender was interrupted, so that it is unknown.
        (5, "rejected", (), ("Are you sure that it was not done?",)),
    ]
    in_journal(path, lambda journal: sending(journal, refund("R5")), clock=(datetime.now(UTC) - AN_HOUR).timestamp)
    for number, end, options, words in cases:
        before = stored(path, number)
        silent = resolving(path, number, end, "--force", *options)
        refused = resolving(path, number, end, "--force", *options, given="n\n")
        lacking = resolving(path, number, end, "--force", *options, given="")
        line = "payasync journal resolve: nothing changed: without a terminal, nobody can confirm it. Pass --yes\n"

        assert (2, "", line) == (silent.exit_code, silent.stdout, silent.stderr)
        assert (1, []) == (refused.exit_code, [each for each in words if each not in refused.output])
        assert (2, True) == (lacking.exit_code, "Pass --yes" in lacking.stderr)
        assert before == stored(path, number)
    for number, end in ((4, "succeeded"), (5, "rejected")):
        assert 0 == resolving(path, number, end, "--force", given="y\n").exit_code
        assert end == stored(path, number).state


def test_resolve_is_about_what_it_has_shown(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a worker sends the intent while `resolve` waits for the answer, the answer changes nothing."""

    async def worked(journal: SqliteJournal) -> bool:
        begun = await journal.claim(3, 60.0)
        return await journal.settle(begun.intent, "accepted")

    monkeypatch.setattr("click.confirm", lambda *_, **__: in_journal(path, worked))
    result = resolving(path, 3, "rejected", given="")

    assert (2, "accepted") == (result.exit_code, stored(path, 3).state)
    assert "seen must be the state of intent 3, which is now accepted: look at it again" in result.stderr


def test_resolve_refuses(path: Path) -> None:
    """`resolve` refuses an ended intent, or an empty reason, in one line without a question. Nothing changes."""
    ended, reason = "intent 1 is succeeded already; only new, accepted, unknown or manual", "reason must be a text that"
    before = [stored(path, number) for number in (1, 4)]
    cases = ((1, (), ended), (1, ("--yes",), ended), (4, ("--reason", " ", "--yes", "--force"), reason))
    for number, options, words in cases:
        result = resolving(path, number, "rejected", *options, given="y\n")

        assert (2, "", 1, True) == (result.exit_code, result.stdout, result.stderr.count("\n"), words in result.stderr)
    assert before == [stored(path, number) for number in (1, 4)]


SLOW: Final = "[recovery]\nquarantine = 900\n"


def test_resolve_waits_for_the_service(tmp_path: Path) -> None:
    """Without --force, and also with --yes, `resolve` records nothing that the service may still contradict."""
    asks, until = "payasync reconcile still asks the service", "the service may carry it out until "
    never = "no recovery.quarantine says until when the service may carry it out"
    cases = [
        ("unknown", 9, SLOW, f"{asks}, which may carry it out until "),
        ("unknown", 901, SLOW, f"{asks}: run payasync reconcile"),
        ("manual", 9, SLOW, until),
        ("manual", 9999, "", never),
        ("manual", 901, SLOW, ""),
    ]
    (toml := tmp_path / "p.toml").touch()
    for place, ((state, age, profile, words), end) in enumerate(product(cases, ("succeeded", "rejected"))):
        toml.write_text(profile)

        async def work(journal: SqliteJournal, state: Any = state) -> None:
            await journal.settle(await sending(journal, refund()), state)

        path, given = tmp_path / f"{place}.db", ("--yes", "--profile", str(toml))
        in_journal(path, work, clock=(datetime.now(UTC) - timedelta(seconds=age)).timestamp)
        result = resolving(path, 1, end, *given)
        if words:
            assert (2, True) == (result.exit_code, f"nothing changed: {words}" in result.stderr)
            assert result.stderr.endswith("To record it all the same, pass --force\n")
            assert state == stored(path, 1).state
            assert 0 == resolving(path, 1, end, *given, "--force").exit_code
        assert end == stored(path, 1).state


def test_prune_deletes_what_ended_long_ago(path: Path) -> None:
    """`prune` deletes only intents that ended long ago, however old the others are."""

    async def long_ago(journal: SqliteJournal) -> None:
        await journal.settle(await sending(journal, refund("R5")), "rejected")
        await journal.settle(await sending(journal, refund("R6")), "unknown")

    in_journal(path, long_ago, clock=(datetime.now(UTC) - timedelta(days=91)).timestamp)
    result = run("prune", "--journal", str(path), "--older-than", "90d")
    left = [line.split()[0] for line in run("list", "--journal", str(path)).output.splitlines()[1:]]

    assert 0 == result.exit_code
    assert result.output.startswith("Deleted 1 intent that ended before ")
    assert ["1", "2", "3", "4", "6"] == left


def test_prune_needs_an_age(path: Path) -> None:
    """`prune` needs an age in hours, days or weeks, of at least one day, because pruned numbers are sent again."""
    wrong = dict.fromkeys(("90", "d", "-1d", "1y", "1.5d", ""), "such as 90d")
    for age, words in {**wrong, **dict.fromkeys(("0d", "0w", "23h"), "it must be one day or more")}.items():
        result = run("prune", "--journal", str(path), f"--older-than={age}")

        assert (2, True) == (result.exit_code, words in result.output), age
    for age, hours in (("30h", 30), ("2d", 48), ("1w", 168)):
        before = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=hours)
        result = run("prune", "--journal", str(path), "--older-than", age)

        said = re.fullmatch(r"Deleted 0 intents that ended before (.*) UTC\.\n", result.output)
        assert said
        assert before <= datetime.fromisoformat(f"{said[1]}+00:00") <= datetime.now(UTC) - timedelta(hours=hours)
    assert 4 == len(in_json(path))


OLD: Final = "https://pay.example"
NEW: Final = "https://api.pay.example/v2"


async def bound(journal: SqliteJournal) -> None:
    """Bind two merchants to a service."""
    for merchant in ("M2", "M1"):
        await journal.bind(merchant, OLD)


def test_move_follows_a_service(path: Path) -> None:
    """After a yes, the journal is bound to the new address, and the merchants are named. After a no, nothing changes.

    If it must refuse, it does not ask.
    """
    in_journal(path, bound)
    wrong_old = f"OLD must be the address of one of its services: {OLD}"
    cases: list[tuple[tuple[str, ...], str, int, str]] = [
        ((NEW, OLD), "n\n", 2, wrong_old),
        ((OLD, "api", "--yes"), "n\n", 2, "NEW must be an absolute URL"),
        (("api", NEW), "n\n", 2, "OLD must be an absolute URL"),
        ((OLD, NEW), "n\n", 1, f"Are you sure that {NEW} is the same service as {OLD}, with all its writes?"),
        ((OLD, NEW), "y\n", 0, f"The writes of M1, M2 go to {NEW} from now on."),
        ((NEW, OLD, "--yes"), "n\n", 0, f"The writes of M1, M2 go to {OLD} from now on."),
    ]
    for arguments, given, code, words in cases:
        result = run("move", "--journal", str(path), *arguments, given=given)

        assert (code, True) == (result.exit_code, words in result.output)
        assert code < 2 or result.output.count("\n") == 1
    in_journal(path, bound)


SHEET: Final = "out_trade_no,out_refund_no,total_amt,refund_amt\nT1,R1,450,200\n"


def test_file_that_is_no_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the file is empty or of another program, every command refuses it, and does not change it."""
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("new.csv").write_text(SHEET)
    path = tmp_path / "pay.db"
    plain = dict.fromkeys(("journal", "journal status", "journal list", "reconcile"), "")
    commands = {**plain, "journal show": "1", "journal prune": "--older-than 1d", "refund import": "new.csv"}
    for content in (b"", b"no database, but longer than the header of one\n" * 40):
        path.write_bytes(content)
        mode = path.stat().st_mode
        with pytest.raises(ConfigurationError) as raised:
            in_journal(path, lambda journal: journal.list())
        for name, more in commands.items():
            words = [*name.split(), *more.split(), "--journal", "pay.db"]
            result = CliRunner().invoke(payasync, words, env=ENVIRONMENT)

            assert f"payasync {name}: --journal{str(raised.value).removeprefix('path')}\n" == result.stderr
            assert (2, content, mode) == (result.exit_code, path.read_bytes(), path.stat().st_mode)


COMMANDS: Final = (("journal", "list"), ("reconcile",), ("refund", "import", os.devnull))
NOT_SHOWN: Final = "its name is not shown because it may hold a password: give the path of a file, or a PostgreSQL"
FORMS: Final = "the path of a file, or a PostgreSQL connection string, which is postgresql://… or host=… dbname=…"
SCHEMES: Final = ("postgre://", "postgress://", "mysql://", "sqlite://", "POSTGRESQL://", " postgres://")


PASSWORDS: Final = (
    *("postgresql:/shop:canary@db", "postgresql:/shop:canary@db/pay", "postgresql//shop:canary@db/pay"),
    *("postgresql:canary", "Postgres:shop:canary", "/shop:canary@db/pay", "//shop:canary@db/pay"),
    *("shop:canary@db", "canary@db/pay", "host db password canary", "'host=db password=canary'"),
    "jdbc:postgresql://db/pay?user=shop&password=canary",
)


def test_address_that_no_journal_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command refuses an invalid address in one line, makes no file, and shows no possible password."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept").mkdir()
    cases = {
        **{f"{each}shop:canary@db/pay": f"no journal's address begins with {each!r}: give {FORMS}" for each in SCHEMES},
        **dict.fromkeys(PASSWORDS, NOT_SHOWN),
        "/none/ann@shop/pay.db": "there is no folder '/none/ann@shop'",
        "": "it is empty: give the path of a file, or",
        "kept": "'kept' is a directory",
        f"kept/{'a' * 300}": "a' cannot be used: File name too long. Name another file",
        **{each: f"there is no file {each!r}" for each in ("./password: ann@shop.db", "../ann@shop.db", "compass.db")},
    }
    for (journal, words), command in product(cases.items(), COMMANDS):
        if "no file" in words and command[0] == "refund":
            continue  # it makes the file
        result = CliRunner().invoke(payasync, [*command, "--journal", journal])
        (why,) = result.stderr.splitlines()

        assert (2, [tmp_path / "kept"]) == (result.exit_code, list(tmp_path.rglob("*"))), journal
        assert (True, False) == (words in why, "canary" in result.output), journal


def test_file_of_such_a_name_that_exists_is_a_journal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An existing file is a journal, even if its name looks like an address."""
    monkeypatch.chdir(path.parent)
    path.rename(path.with_name("postgres:ann@shop.db"))

    assert 0 == run("list", "--journal", "postgres:ann@shop.db").exit_code


KEYWORDS: Final = "host=/nowhere dbname=pay user=shop password=canary connect_timeout=2"


def test_connection_string_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A libpq connection string is a database: no file is created, and no password is shown."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.csv").write_text(SHEET)
    service = {**ENVIRONMENT, "PAYASYNC_BASE_URL": "http://127.0.0.1:1"}
    for keywords, command in product((KEYWORDS, "host=/nowhere canary"), ("journal list", "refund import r.csv")):
        result = CliRunner().invoke(payasync, [*command.split(), "--journal", keywords], env=service)

        assert (2, False, False) == (result.exit_code, "canary" in result.output, "dsn" in result.output)
    assert [tmp_path / "r.csv"] == list(tmp_path.iterdir())


SHOWN: Final = {
    KEYWORDS: "host=/nowhere dbname=pay user=shop",
    "pasword=canary": "postgresql://",
    "pay.db": "pay.db",
    "postgresql://shop:canary@db:5433/pay?password=canary": "host=db port=5433 dbname=pay user=shop",
    "postgres://shop:canary@db.example/pay": "host=db.example dbname=pay user=shop",
    "postgresql://shop:@/pay?host=/tmp/a%20b&sslpassword=canary": "host='/tmp/a b' dbname=pay user=shop",
    "postgresql:///pay?host=one,two&port=1,2": "host=one,two port=1,2 dbname=pay",
    "postgresql://shop:canary@one:99999,two:2/pay": "host=one,two port=99999,2 dbname=pay user=shop",
    "postgresql://shop:1/canary@db/pay": "postgresql://",
    "postgresql://shop:1?host=canary@db/pay": "host=db dbname=pay user=shop",
}


def test_no_password_is_shown() -> None:
    """The address of a database is shown without its password."""
    assert SHOWN == {address: Address(address).shown for address in SHOWN}
    assert [] == [address for address in SHOWN if "canary" in repr(Address(address))]


def test_command_to_be_typed_names_the_same_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Suggested commands name the journal, unless `PAYASYNC_JOURNAL` names it."""
    database = "postgresql://shop:@/pay?host=/tmp"
    cases = {("my pay.db", "other.db"): " --journal 'my pay.db'", ("my pay.db", "my pay.db"): ""}
    for (text, variable), option in {**cases, (database, ""): " --journal 'host=/tmp dbname=pay user=shop'"}.items():
        monkeypatch.setenv("PAYASYNC_JOURNAL", variable)

        assert option == Address(text).option


def test_journal_in_postgresql(postgres_dsn: str) -> None:
    """The commands work with PostgreSQL; the environment may name the database."""

    async def work() -> None:
        async with PostgresJournal(postgres_dsn) as journal:
            await journal.settle(await sending(journal, refund("R1")), "unknown")

    asyncio.run(work())
    url = f"postgresql:///?{urlencode(conninfo_to_dict(postgres_dsn))}"
    listed = CliRunner().invoke(payasync, ["journal", "list"], env={"PAYASYNC_JOURNAL": url})
    resolved = run("resolve", "1", "--journal", url, "--as", "rejected", "--reason", "seen", "--yes", "--force")

    assert (0, 0) == (listed.exit_code, resolved.exit_code)
    assert "R1" in listed.output
    assert "is now rejected." in resolved.output


def test_long_numbers_hide_nothing() -> None:
    """IDs and states are never broken; long numbers and reasons continue on the next lines. Each has its merchant."""
    number, reason = "R-" + "0123456789abcdef" * 4, "the service does not know it yet, and it may still arrive"
    facts: dict[str, Any] = {"reference": number, "reason": reason, "request": {"amount": 123456789, "currency": "USD"}}
    intents = [keeping(id=9998, state="unknown", **facts), keeping(id=9999, state="succeeded", merchant="M2", **facts)]
    for width in (80, 120):
        out = StringIO()
        JournalScreen(console=Console(file=out, width=width, highlight=False)).listed(intents, {}, Address("pay.db"))
        lines = out.getvalue().splitlines()

        assert width >= max(map(len, lines))
        assert ["9998 unknown M1", "9999 succeeded M2"] == [
            " ".join(line.split()[:3]) for line in lines if line.startswith("999")
        ]
        assert number * 2 == "".join(re.findall("(?:R-)?[0-9a-f]{15,}", out.getvalue()))
        assert {*reason.split()} <= {*out.getvalue().split()}


def test_durations() -> None:
    """A duration is shown in the unit that needs few digits."""
    expected = {0.2: "1 s", 99.0: "99 s", 100.0: "2 min", 3600: "60 min", 7260: "2 h", 10**6: "12 days"}

    assert expected == {seconds: intent_table.duration(seconds) for seconds in expected}
