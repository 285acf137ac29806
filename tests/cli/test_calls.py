"""`payasync order`, `payment`, `refund` and `subscription` against a real sandbox, whose ledger is the truth."""

import asyncio
import json
import os
import pty
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve, fields
from click.testing import CliRunner

from payasync.cli.call_result import CallResult
from payasync.cli.commands import payasync
from payasync.cli.signals import SIGNALS, stopped_by_signals
from payasync.errors import StorageError
from payasync.journal import SqliteJournal
from payasync.profile.schema import Idempotency
from payasync.sandbox import PROFILE, ThreadedSandbox
from tests.chaos.forked import Forked
from tests.cli.conftest import interrupt, profile_option, variables
from tests.inside import until

pytestmark = pytest.mark.usefixtures("signals")

PLACE: Final = ("order", "place", "--total-amt", "450", "--currency", "CAD")
REFUND: Final = ("refund", "create", "--out-trade-no", "T1", "--total-amt", "450", "--refund-amt", "100")
R1: Final = (*REFUND, "--out-refund-no", "R1")
PAY: Final = ("payment", "create", "--amount", "1000", "--currency", "USD", "--description", "Invoice 42")
SUBSCRIBE: Final = ("subscription", "create", "--frequency", "monthly", "--amount", "900", "--start-date", "2027-01-31")
CUSTOMER: Final = ("--customer", "email=a@example.com")


WAIT: Final = ("order", "wait", "T1", "--until")
WRITES: Final = {
    "orders.place": PLACE,
    "orders.close": ("order", "close", "T1"),
    "refunds.create": REFUND,
    "payments.create": PAY,
    "subscriptions.create": (*SUBSCRIBE, *CUSTOMER),
    "subscriptions.update": ("subscription", "update", "S1", "--amount", "1000"),
    "subscriptions.cancel": ("subscription", "cancel", "S1"),
}
NUMBER: Final = re.compile(r"\b[0-9]{8}-[0-9]{6}-[0-9a-f]{8}\b")
DOUBT: Final = 3
"""The exit code if a write may have been done."""


def journal_at(path: Path) -> str:
    """Make an empty journal, and return its path: no command that sends one write makes it."""
    made = CliRunner().invoke(payasync, ["journal", "upgrade", "--journal", str(path)])
    assert 0 == made.exit_code
    return str(path)


class Shown:
    """The end of a command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def as_json(self) -> dict[str, Any]:
        """What `--json` printed: one line, with the same keys each time."""
        (line,) = self.out.splitlines()
        as_json: dict[str, Any] = json.loads(line)
        return as_json

    @property
    def number(self) -> str:
        """The number that was made."""
        return str(NUMBER.findall(self.err)[0])

    @property
    def facts(self) -> dict[str, str]:
        """The facts that were shown, by name."""
        return dict(line.split(None, 1) for line in self.out.splitlines())


def ran(sandbox: ThreadedSandbox, *arguments: str, given: str | None = None, **changes: str | None) -> Shown:
    """Run a command; no key is in what it prints."""
    environ = variables(sandbox)
    result = CliRunner().invoke(payasync, arguments, input=given, env={**environ, **changes})
    for name, key in environ.items():
        assert not name.endswith(("_KEY", "_KEYS")) or key not in result.output
    return Shown(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all streams be a terminal."""
    monkeypatch.setattr(os, "isatty", lambda _: True)


def sent(sandbox: ThreadedSandbox, *operations: str) -> int:
    """Return how many requests of some operations, or of all, the service has received."""
    return sum(len(sandbox.ledger.calls(each)) for each in operations or WRITES)


def lost(sandbox: ThreadedSandbox, *arguments: str, **changes: str) -> Shown:
    """Run a write whose response is lost."""
    sandbox.faults.reset_after_commit()
    return ran(sandbox, *arguments, "--yes", "--json", **changes)


def unknown(sandbox: ThreadedSandbox, *arguments: str) -> Shown:
    """Run a refund whose response is lost, with a key with which no query about it is answered."""
    return lost(sandbox, *arguments, PAYASYNC_SECRET_KEY="another-secret-key")


def profile(folder: Path, **changes: Any) -> tuple[str, str]:
    """Write the sandbox's profile with changes into a file, and return the option that names it."""
    return profile_option(folder / "service.toml", evolve(PROFILE, **changes))


def test_order_from_its_start_to_its_refund(sandbox: ThreadedSandbox) -> None:
    """An order is placed, paid, waited for, refunded and queried; each command shows the state."""
    placed = ran(sandbox, *PLACE, "--yes", "--json")
    number, page = placed.number, placed.as_json["redirect_url"]
    asked = ran(sandbox, "order", "query", number)
    sandbox.customer.authorize(number)
    waited = ran(sandbox, "order", "wait", number, "--until", "paid", "--timeout", "5")
    refunded = ran(sandbox, "refund", "create", "--out-trade-no", number, *REFUND[4:], "--yes")
    status = ran(sandbox, "refund", "status", refunded.number, "--out-trade-no", number)

    assert [0, 0, 0, 0, 0] == [each.code for each in (placed, asked, waited, refunded, status)]
    assert page.startswith(f"{sandbox.url}/gateway/")
    assert ("paid", 100) == (sandbox.ledger.order_state(number), sandbox.ledger.refunded(number))
    for shown, state in ((asked, "pending"), (waited, "paid"), (refunded, "succeeded"), (status, "succeeded")):
        assert f"{state} (SBX_{state.upper()})" == shown.facts["State"]


def test_subscription(sandbox: ThreadedSandbox) -> None:
    """A subscription is created, changed and cancelled."""
    made = ran(sandbox, *SUBSCRIBE, *CUSTOMER, "--yes", "--json").as_json
    changed = ran(sandbox, "subscription", "update", made["id"], "--amount", "1000", "--yes", "--json").as_json
    amount = sandbox.ledger.subscription_amount(made["id"])
    facts = ran(sandbox, "subscription", "update", made["id"], "--amount", "1000", "--yes").facts
    ended = ran(sandbox, "subscription", "cancel", made["id"], "--yes", "--json").as_json

    assert ["scheduled", "scheduled", "cancelled"] == [each["state"] for each in (made, changed, ended)]
    assert (1000, made["id"], False) == (amount, facts["Subscription"], "Id" in facts)


def test_nothing_is_sent_without_a_terminal(sandbox: ThreadedSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """If input or standard error is no terminal, no write is sent without `--yes`: a line says so, with exit code 2."""
    for terminals, arguments in product(((), (0,), (2,)), WRITES.values()):
        monkeypatch.setattr(os, "isatty", terminals.__contains__)
        ended = ran(sandbox, *arguments, given="y\n")

        assert (2, "", 1) == (ended.code, ended.out, len(ended.err.splitlines()))
        assert "Pass --yes" in ended.err
    assert 0 == sent(sandbox)


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1), ("", 1)])
@pytest.mark.usefixtures("at_a_terminal")
def test_confirmation(sandbox: ThreadedSandbox, tmp_path: Path, answer: str, code: int) -> None:
    """A person sees what is sent, how much, where to and for whom, and nothing is sent unless they agree."""
    journal = journal_at(tmp_path / "pay.db")
    ended = ran(sandbox, *PLACE, "--subject", "Coffee", "--extra", "n=7", "--journal", journal, given=f"{answer}\n")
    # From click 8.4 on, its test runner shows the answer, too.
    err = ended.err.replace(f"[y/N]: {answer}\n", "[y/N]:\n")
    shown = [" ".join(line.split()) for line in err.splitlines()]

    assert (code, 1 - code) == (ended.code, sent(sandbox))
    assert [
        "payasync order place",
        "",
        f"Order {ended.number}",
        "Order total 4.50 CAD, sent as 450 in minor units",
        "Subject Coffee",
        "Also n",
        "Merchant SANDBOX",
        f"Service {sandbox.url}, the sandbox: no money moves",
        f"Journal {journal}",
        "",
        "Send it? [y/N]:",
    ] == shown[:11]
    assert (code == 1) == ("payasync order place: nothing was sent" in ended.err)


@pytest.mark.usefixtures("at_a_terminal")
def test_facts_of_the_question(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """The question shows a currency only with a unit, no value of a customer, and whether a profile is given.

    A missing key is an error before the question.
    """
    plain, major = (ran(sandbox, *PAY, *profile(tmp_path, amount_unit=unit), given="n\n").err for unit in ("", "major"))
    customer = ran(sandbox, *SUBSCRIBE, "--customer", '{"email": "a@example.com", "age": 7}', given="n\n").err
    bare = ran(sandbox, *PAY, given="n\n", PAYASYNC_PROFILE=None).err
    keyless = ran(sandbox, *PAY, PAYASYNC_SECRET_KEY=None)

    assert "  Amount        1000, in the service's unit\n" in plain
    assert "  Amount        1,000 USD, sent as 1000 in major units\n" in major
    assert [True, False] == ["  Currency      USD\n" in each for each in (plain, major)]
    assert (True, False) == ("Customer      email, age" in customer, "a@example.com" in customer)
    assert (True, False) == ("Profile       none is given" in bare, "no money moves" in bare)
    assert (2, 1) == (keyless.code, len(keyless.err.splitlines()))
    assert "is not set (PAYASYNC_SECRET_KEY in the environment)" in keyless.err
    assert 0 == sent(sandbox)


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_at_the_question(sandbox: ThreadedSandbox, number: signal.Signals) -> None:
    """Ctrl-C or SIGTERM at the question of a real terminal sends nothing, says so, and the exit code is 130."""
    ours, its = pty.openpty()
    environ = {**os.environ, **variables(sandbox)}
    with (
        os.fdopen(ours, "rb", 0) as screen,
        Forked("payasync", *R1, environment=environ, streams=dict.fromkeys(range(3), its)) as process,
    ):
        shown = b""
        while b"Send it?" not in shown:
            shown += screen.read(1024)
        os.close(its)
        interrupt(process, number)
        with suppress(OSError):  # the end of a terminal that nobody holds any more
            while more := screen.read(1024):
                shown += more
        process.wait()

    assert (130, 0) == (process.returncode, sent(sandbox))
    assert b"payasync refund create: interrupted; nothing was sent" == shown.splitlines()[-1]


def test_ctrl_c_immediately_before_the_write(
    sandbox: ThreadedSandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ctrl-C after the question, and before the command waits for signals, sends and records nothing, and says so."""

    def late() -> asyncio.Event:
        signal.raise_signal(signal.SIGINT)
        return stopped_by_signals()

    journal = journal_at(tmp_path / "pay.db")
    monkeypatch.setattr("payasync.cli.calls.stopped_by_signals", late)
    ended = ran(sandbox, *R1, "--yes", "--journal", journal)
    found = ran(sandbox, "journal", "list", "--json", "--journal", journal)

    assert (130, 0, "") == (ended.code, sent(sandbox), found.out)
    assert "payasync refund create: interrupted; nothing was sent" == ended.err.splitlines()[-1]


@pytest.mark.parametrize("number", SIGNALS)
def test_interrupted_query(sandbox: ThreadedSandbox, tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C or SIGTERM ends a query silently with exit code 130: a query changes nothing."""
    fault = sandbox.faults.hang("orders.query", phase="after")
    with Forked("payasync", "order", "query", "T1", environment=variables(sandbox), folder=tmp_path) as process:
        sandbox.call(until, lambda: fault.fired)
        process.send_signal(number)
        said = process.communicate()

    assert (130, ("", "")) == (process.wait(), said)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted(sandbox: ThreadedSandbox, tmp_path: Path, number: signal.Signals) -> None:
    """A signal while a refund is under way: it may have been done. A killed command, too, has shown its number."""
    fault = sandbox.faults.hang("refunds.create", phase="after")
    journal_at(tmp_path / "pay.db")
    arguments = (*REFUND, "--yes", "--json", "--journal", "pay.db")
    with Forked("payasync", *arguments, environment=variables(sandbox), folder=tmp_path) as process:
        sandbox.call(until, lambda: fault.fired)
        process.send_signal(number)
        out, err = process.communicate()
    shown = Shown(process.wait(), out, err)

    assert "succeeded" == sandbox.ledger.refund_state(shown.number)
    if number == signal.SIGKILL:
        return
    assert (130, "unknown", shown.number) == (shown.code, shown.as_json["outcome"], shown.as_json["number"])
    assert [
        "payasync reconcile --journal pay.db",
        f"payasync refund status {shown.number} --out-trade-no T1",
    ] == shown.as_json["next"]
    assert "payasync refund create: interrupted\n" in shown.err


def followed(sandbox: ThreadedSandbox, command: str) -> Shown:
    """Run a command that was shown."""
    name, *arguments = shlex.split(command)
    assert "payasync" == name
    return ran(sandbox, *arguments)


def test_unknown_outcome(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """If a refund may have been done, the exit code is 3, and the command that is shown tells what happened.

    With a journal, the first command that is shown settles the refund; the same refund again sends nothing.
    """
    ended = unknown(sandbox, *R1)
    (command,) = ended.as_json["next"]

    assert (DOUBT, "unknown", "R1") == (ended.code, ended.as_json["outcome"], ended.as_json["number"])
    assert ended.err.splitlines()[-1].startswith("payasync refund create: outcome unknown: no usable response from ")
    assert "payasync refund status R1 --out-trade-no T1" == command
    assert "succeeded (SBX_SUCCEEDED)" == followed(sandbox, command).facts["State"]
    for number, name in (("R2", "pay.db"), ("R3", "my 'pay' $HOME.db")):
        refund, journal = (*R1[:-1], number), journal_at(tmp_path / name)
        recorded = unknown(sandbox, *refund, "--journal", journal)
        settle, look = recorded.as_json["next"]
        settled = followed(sandbox, settle)
        again = ran(sandbox, *refund, "--yes", PAYASYNC_JOURNAL=journal)

        assert (DOUBT, f"payasync reconcile --journal {shlex.quote(journal)}") == (recorded.code, settle)
        assert f"payasync refund status {number} --out-trade-no T1" == look
        assert (0, 0) == (settled.code, again.code)
        assert "The journal has this write already, so nothing was sent now." in again.err
    assert 300 == sandbox.ledger.refunded("T1")


def test_unknown_payment(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """A payment has no number: the words say what to look for, and with a journal how to record what was found."""
    journal = journal_at(tmp_path / "pay.db")
    alone, recorded = lost(sandbox, *PAY), lost(sandbox, *PAY, "--journal", journal, "--intent", "i42")
    again = ran(sandbox, *PAY, "--journal", journal, "--intent", "i42", "--yes", "--json")
    resolve = [
        f"payasync journal resolve 1 --journal {journal} --as {end} --reason …" for end in ("succeeded", "rejected")
    ]

    assert [DOUBT, DOUBT, DOUBT] == [alone.code, recorded.code, again.code]
    assert "look for it at the service (1000 USD, 'Invoice 42', at about" in alone.as_json["reason"]
    shown = ran(sandbox, "journal", "show", "1", "--journal", journal).out
    sent_when = re.search(r"Sent +once, (.* UTC)\n", shown)
    assert sent_when
    assert f"look for it at the service (sent {sent_when[1]}), and" in again.as_json["reason"]
    assert "No journal has recorded it, so keep what is shown above." == alone.as_json["advice"]
    assert [[], resolve, resolve] == [each.as_json["next"] for each in (alone, recorded, again)]
    assert 2 == sandbox.ledger.payments()


def test_used_number(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """A number that was used before is a case for a person: the command that is shown tells what it stands for.

    If the journal has another refund under the number, nothing is sent, and a command shows the earlier one.
    """
    ran(sandbox, *R1, "--yes")
    ended = ran(sandbox, *R1, "--yes", "--json")
    journal = ("--journal", journal_at(tmp_path / "pay.db"))
    other = ran(sandbox, *R1, "--yes", "--json", *journal)
    (command,), before = ended.as_json["next"], sent(sandbox)
    another = ran(sandbox, *R1[:-3], "50", *R1[-2:], "--yes", "--json", *journal)
    (show,) = another.as_json["next"]

    assert [(DOUBT, "duplicate")] * 2 == [(each.code, each.as_json["outcome"]) for each in (ended, other)]
    assert "succeeded (SBX_SUCCEEDED)" == followed(sandbox, command).facts["State"]
    assert ["payasync", "reconcile"] == other.as_json["next"][0].split()[:2]
    assert (1, "not sent", before) == (another.code, another.as_json["outcome"], sent(sandbox))
    assert "refunds.create R1" in followed(sandbox, show).out


def test_not_sent(sandbox: ThreadedSandbox) -> None:
    """If nothing was sent, the advice is to run the same command again, with the number that was made."""
    ended = ran(sandbox, *REFUND, "--yes", "--json", "--base-url", "http://127.0.0.1:1")
    asked = ran(sandbox, "order", "query", "T1", "--base-url", "http://127.0.0.1:1")
    untrusted = ran(sandbox, *R1, "--yes", "--json", "--base-url", sandbox.url.replace("http:", "https:"))

    assert [(1, "not sent")] * 2 == [(each.code, each.as_json["outcome"]) for each in (ended, untrusted)]
    assert f"To try again, run the same command with --out-refund-no {ended.number}." == ended.as_json["advice"]
    assert (1, True) == (asked.code, "  To try again, run the same command.\n" in asked.err)


def test_refused(sandbox: ThreadedSandbox) -> None:
    """If the service refuses a write, the exit code is 1, and its own words are shown."""
    ended = ran(sandbox, "order", "close", "T1", "--yes")
    as_json = ran(sandbox, "order", "close", "T1", "--yes", "--json").as_json

    assert (1, "") == (ended.code, ended.out)
    assert "payasync order close: HTTP 409, " in ended.err
    assert ("refused", "SBX_WRONG_STATE", 409) == (as_json["outcome"], as_json["code"], as_json["http_status"])
    assert (1, "T1") == (as_json["attempts"], as_json["number"])
    # The response may be about another order.
    assert [None] * 5 == [as_json[name] for name in ("id", "state", "status", "redirect_url", "data")]
    assert as_json["message"] in ended.err
    assert as_json["request_id"]


def test_refund_that_is_not_made_at_once() -> None:
    """A refund that the service declines was not done. Of one that is not final, a command shows the end."""
    with ThreadedSandbox(refunds="fail") as failing, ThreadedSandbox(refunds="by hand") as slow:
        for each in (failing, slow):
            each.given.paid_order(out_trade_no="T1", total_amt=450)
        declined, as_json = ran(failing, *R1, "--yes"), ran(slow, *R1, "--yes", "--json").as_json

    assert (1, "failed (SBX_REFUND_FAILED)") == (declined.code, declined.facts["State"])
    assert "accepted the request, but the refund's state is failed" in declined.err
    assert ("done", "processing") == (as_json["outcome"], as_json["state"])
    assert ["payasync refund status R1 --out-trade-no T1"] == as_json["next"]


def test_order_without_an_address(sandbox: ThreadedSandbox) -> None:
    """If the address of an order was lost, the advice is to close the order."""
    ended = lost(sandbox, *PLACE)

    assert (0, True, None) == (ended.code, ended.as_json["recovered"], ended.as_json["redirect_url"])
    assert 0 == followed(sandbox, f"{ended.as_json['next'][0]} --yes").code
    assert "closed" == sandbox.ledger.order_state(ended.number)


def test_wait_that_is_too_short(sandbox: ThreadedSandbox) -> None:
    """If the state does not come in time, the exit code is 1, and the last state is shown."""
    number = sandbox.given.pending_order()
    ended = ran(sandbox, "order", "wait", number, "--until", "paid", "--timeout", "1")

    assert (1, "pending (SBX_PENDING)") == (ended.code, ended.facts["State"])
    assert "payasync order wait: 'paid' did not come within 1 s" in ended.err


def test_next_command_names_the_same_service(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """The commands that are shown have the options of this one, and quote what a shell would read otherwise."""
    (folder := tmp_path / "a b").mkdir()
    given = profile(folder)
    as_json = ran(sandbox, *PLACE, "--out-trade-no", "T2", *given, "--yes", "--json").as_json
    hyphen = ran(sandbox, *PLACE, "--out-trade-no=-x", "--base-url", f"{sandbox.url}/", "--yes", "--json").as_json

    assert [f"payasync order wait T2 --until paid --timeout 60 --profile '{given[1]}'"] == as_json["next"]
    assert [f"payasync order wait --until paid --timeout 60 --base-url {sandbox.url}/ -- -x"] == hyphen["next"]
    for number in ("T2", "-x"):
        sandbox.customer.authorize(number)
    assert [0, 0] == [followed(sandbox, each["next"][0]).code for each in (as_json, hyphen)]


def test_numbers_that_are_made(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """A number that is made follows the profile's pattern, and is shown before the order is sent.

    If the profile allows no number that is made here, the error names the option that gives one.
    """
    for pattern, made in (("[A-Za-z0-9_-]{1,64}", NUMBER.pattern), ("[0-9]{20}", r"\b[0-9]{20}\b")):
        given = profile(tmp_path, identifier=pattern)
        first, second = (ran(sandbox, *PLACE, *given, "--yes", "--json") for _ in range(2))
        numbers = {first.as_json["number"], second.as_json["number"]}

        assert [True, True] == [bool(re.fullmatch(made, number)) for number in numbers]
        assert f"payasync order place: order {first.as_json['number']}\n" == first.err
    before, ended = sent(sandbox), ran(sandbox, *PLACE, *profile(tmp_path, identifier="T[0-9]{4}"), "--yes")

    assert (2, before) == (ended.code, sent(sandbox))
    assert "payasync order place: --out-trade-no must be given, because the profile allows none" in ended.err


BAD: Final = {
    "'--refund-amt': it must be an integer": (*R1[:-3], "1_000"),
    "an integer of at most 16 digits, in the unit that the service counts in; got '4.5'": (*R1[:-3], "4.5"),
    "payasync refund create: --refund-amt must be an int from 1 to": (*R1[:-3], "0"),
    "refund create: --refund-amt must be at most total_amt, which is 450, not 451": (*R1[:-3], "451"),
    "payasync order query: NUMBER must be an identifier that matches": ("order", "query", "a b"),
    "order place: --return-url must be an absolute http or https URL": (*PLACE, "--return-url", "shop"),
    "'--extra': it must be NAME=VALUE, or a JSON object": (*PLACE, "--extra", "x"),
    "'--extra': it must be a JSON object such as": (*PLACE, "--extra", "{x}"),
    "order place: --extra must not hold sign, which is set by payasync": (*PLACE, "--extra", "sign=x"),
    "'--start-date': it must be a date such as 2027-01-31": (*SUBSCRIBE[:-1], "31.1.2027", *CUSTOMER),
    "'--customer': it must be NAME=VALUE, or": (*SUBSCRIBE, "--customer", "C1", "--customer", "C2"),
    "'--until': 'payed' is not one of 'pending', 'paid'": (*WAIT, "payed"),
    "--timeout must be a number of seconds above 0": (*WAIT, "paid", "--timeout", "0"),
    "payasync payment create: --intent has no effect without a journal": (*PAY, "--intent", "i42"),
    "payasync payment create: --profile: ": (*PAY, "--profile", "none.toml"),
}


def test_bad_argument(sandbox: ThreadedSandbox) -> None:
    """A bad argument is refused with its option, its rule and its value, and nothing is sent."""
    for words, arguments in BAD.items():
        ended = ran(sandbox, *arguments, *([] if arguments[1] in {"query", "wait"} else ["--yes"]))

        assert (2, "", 0) == (ended.code, ended.out, sent(sandbox)), words
        assert (1, True) == (len(ended.err.splitlines()), words in ended.err), ended.err


def test_forms_of_a_customer(sandbox: ThreadedSandbox) -> None:
    """A customer is given by details, as a JSON object, or by a number."""
    details, nested = ("email=a@example.com", "name=A=B"), '{"email": "a@example.com", "address": {"city": "X"}}'
    for customer in (details, (nested,), ("C-1",)):
        given = [word for each in customer for word in ("--customer", each)]

        assert 0 == ran(sandbox, *SUBSCRIBE, *given, "--yes").code


def test_intent_is_sent_once(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """With a journal, a payment with the same intent is sent once. With idempotency keys, it needs no journal."""
    given = ("--journal", journal_at(tmp_path / "pay.db"), "--intent", "i42", "--yes", "--json")
    first, again = ran(sandbox, *PAY, *given).as_json, ran(sandbox, *PAY, *given).as_json
    keyed = profile(tmp_path, idempotency=Idempotency(header="Idempotency-Key", lifetime=60))

    assert (first["id"], 1, 0) == (again["id"], first["attempts"], again["attempts"])
    assert 1 == sandbox.ledger.payments()
    assert 0 == ran(sandbox, *PAY, *keyed, "--intent", "i42", "--yes").code


def test_address_of_a_payment(sandbox: ThreadedSandbox) -> None:
    """A payment shows the service's number once, and the address where the customer pays, if the profile locates it."""
    as_json, result = ran(sandbox, *PAY, "--yes", "--json").as_json, ran(sandbox, *PAY, "--yes")

    assert as_json["data"][PROFILE.answer.redirect_url] == as_json["redirect_url"]
    assert result.facts["Pay"].split()[1].startswith(f"{sandbox.url}/gateway/")
    assert 1 == result.out.count(result.facts["Payment"])


def test_service_without_a_profile(sandbox: ThreadedSandbox) -> None:
    """A payment needs no profile. The response is shown with the service's own names.

    If an operation needs one, the error names the option and the variable, and not a class of Python.
    """
    ended = ran(sandbox, *PAY, "--yes", PAYASYNC_PROFILE=None)
    order = ran(sandbox, "order", "query", "T1", PAYASYNC_PROFILE=None)
    said = " ".join(ended.err.split())
    needs = "no profile is given, and orders.query needs one (signature). Give --profile FILE, or set PAYASYNC_PROFILE"

    assert (0, 1) == (ended.code, sandbox.ledger.payments())
    assert ("1000", "SBX_PENDING") == (ended.facts["amount"], ended.facts["status"])
    assert "so the number and the state in the response are not read" in said
    assert "set PAYASYNC_PROFILE" in said
    assert (2, True, False) == (order.code, needs in order.err, "SortedPairs" in order.err)


def command_line(sandbox: ThreadedSandbox, shell: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in bash, which replaces `payasync` by the command."""
    # On a full disk without a measurement of coverage, which would need room there, too.
    measured = "ulimit" not in shell
    ours = {name: value for name, value in os.environ.items() if measured or not name.startswith("COVERAGE_")}
    words = shlex.join([sys.executable, "-m", "payasync", *arguments])
    command = ["/bin/bash", "-o", "pipefail", "-c", shell.replace("payasync", words)]
    environ = {**ours, **variables(sandbox)}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)


SHELLS: Final = [
    ("payasync 2>&1 | head -0", (*PAY, "--yes"), (DOUBT, 1)),
    ("payasync 2>/dev/full", (*PLACE, "--yes"), (2, 0)),
    ("payasync 2>&-", (*PAY, "--yes"), (0, 1)),
    ("payasync >/dev/full", (*PAY, "--json", "--yes"), (70, 1)),
    ("payasync >&-", (*R1, "--yes"), (2, 0)),
    ("payasync >&-", ("order", "query", "T1"), (70, 0)),
    ("payasync <&-", (*REFUND, "--yes"), (0, 1)),
]
"""By how a shell runs a command, and the command: its exit code, and the number of writes that are sent."""
RARE: Final = [
    ("payasync 2>/dev/full", (*PAY, "--yes"), (DOUBT, 1)),
    ("payasync >/dev/full", (*PAY, "--json", "--yes"), (DOUBT, 1)),
    ("payasync 2>/dev/full", (*PAY, "--yes"), (0, 1)),
    ("payasync 2>&1 | head -1", (*PLACE, "--yes"), (0, 1)),
    ("payasync 2>&-", (*REFUND, "--yes"), (2, 0)),
    ("payasync >&- 2>&-", (*REFUND, "--yes"), (2, 0)),
    ("payasync 2>&-", (*R1, "--yes"), (0, 1)),
]


@pytest.mark.parametrize(
    ("shell", "arguments", "expected"), [*SHELLS, *(pytest.param(*each, marks=pytest.mark.long) for each in RARE)]
)
def test_stream_of_a_shell(
    sandbox: ThreadedSandbox, shell: str, arguments: tuple[str, ...], expected: tuple[int, int]
) -> None:
    """A write is sent only if its number is known to somebody, and its result can be shown; otherwise the code is 2.

    If a line cannot be written, the exit code still says what happened; a result that is lost is an error.
    Standard output is for results only: a refusal leaves it empty, so that no script reads it as one.
    """
    code, _ = expected
    if code == DOUBT:
        sandbox.faults.reset_after_commit("payments.create")
    ended = command_line(sandbox, shell, *arguments)
    line = "nothing was sent: standard output is closed, so its result could not be shown\n"

    assert expected == (ended.returncode, sent(sandbox))
    assert (code == 70) == ("done, but the result could not be written" in ended.stderr)
    assert code != 2 or ended.stdout == ""
    assert ((shell, code) == ("payasync >&-", 2)) == ended.stderr.endswith(line)


def test_end_that_the_journal_cannot_record(
    sandbox: ThreadedSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the journal cannot record that a payment was done, a line and the JSON say so, and name the payment.

    If closing the journal fails after a payment, the exit code and the result are those of the payment.
    """
    journal, close = journal_at(tmp_path / "pay.db"), SqliteJournal.aclose

    async def fail(journal: SqliteJournal) -> None:
        await close(journal)
        raise StorageError("disk I/O error")

    given = (*PAY, "--journal", journal, "--yes", "--json", "--intent")
    first = ran(sandbox, *given, "i1")
    with closing(sqlite3.connect(journal)) as database:
        database.execute(
            "CREATE TRIGGER full BEFORE UPDATE ON payasync_intents BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
        )
    second = ran(sandbox, *given, "i2")
    with closing(sqlite3.connect(journal)) as database:
        database.execute("DROP TRIGGER full")
    monkeypatch.setattr(SqliteJournal, "aclose", fail)
    third = ran(sandbox, *given, "i3")

    recorded = [(each.code, each.as_json["outcome"], each.as_json["recorded"]) for each in (first, second, third)]
    assert [(0, "done", True), (0, "done", False), (0, "done", True)] == recorded
    line = f"payasync payment create: done, but the journal could not record it: keep payment {second.as_json['id']}\n"
    closed = "payasync payment create: the journal could not be closed: disk I/O error\n"
    assert ["", line, closed] == [first.err, second.err, third.err]


@pytest.mark.parametrize("arguments", [REFUND, *(pytest.param(each, marks=pytest.mark.long) for each in (R1, PAY))])
def test_full_disk(sandbox: ThreadedSandbox, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """If the disk has no room for the record of a write, one line says that nothing was sent, and what to do."""
    journal = journal_at(tmp_path / "pay.db")
    full = command_line(sandbox, "ulimit -f 4; payasync", *arguments, "--yes", "--journal", journal)
    *number, line = full.stderr.splitlines()

    assert (2, "", 0) == (full.returncode, full.stdout, sent(sandbox))
    command = f"payasync {arguments[0]} create"
    assert line.startswith(f"{command}: nothing was sent: the journal '{journal}' is unavailable: ")
    again = f" with --out-refund-no {NUMBER.findall(number[0])[0]}" if arguments == REFUND else ""
    assert line.endswith(f". Remove the cause, and run the same command again{again}")


def test_keys_of_json() -> None:
    """The page about the commands lists the keys of `--json`."""
    page = Path(__file__).parents[2] / "docs" / "how-to" / "command-line.md"
    table = page.read_text(encoding="utf-8").partition("| Key |")[2].partition("\n\n")[0]
    listed = [key for line in table.splitlines() for key in re.findall(r"`(\w+)`", line.split("|")[1])]

    assert [each.name for each in fields(CallResult)] == listed
