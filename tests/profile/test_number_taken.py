"""Whose number a query takes: recovery asks with the merchant's own, or not at all."""

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson
import pytest
from click.testing import CliRunner

from payasync import (
    Credentials,
    DuplicateError,
    InvalidArgumentError,
    NoAnswerError,
    NotConfiguredError,
    OutcomeUnknownError,
    Profile,
    QueryPayment,
    Response,
    RetryPolicy,
    ServiceError,
    Session,
)
from payasync.cli.commands import payasync
from payasync.journal import Reconciler, SqliteJournal
from payasync.notifications import parse
from payasync.sandbox import Sandbox
from tests.foreign.recorder import RESET, Answer, Recorder, answer

COMMON: Final = """
signed = []
answer = {code = "code", ok = ["OK"], refund_status = "state", order_status = "state"}
codes = {absent = ["NONE"], duplicate = ["USED"]}
states = {refund = {succeeded = ["DONE"]}, order = {paid = ["PAID"]}}
recovery.quarantine = 0
"""
REFUND: Final = f"""{COMMON}
status.refund.name = "id"
endpoints."refunds.status".path = "/refund/{{identifier}}"
"""
NAMED_ALIKE: Final = f"""{COMMON}
status.refund.name = "outRefundNo"
endpoints."refunds.status".number = "service"
"""
ORDER: Final = f"""{COMMON}
fields."orders.query".out_trade_no = "id"
"""
NONE: Final = answer(404, b'{"code":"NONE"}')
USED: Final = answer(409, b'{"code":"USED"}')
KEYS: Final = {"refunds.create": 'endpoints."refunds.status".number', "orders.place": 'endpoints."orders.query".number'}
Write: TypeAlias = Callable[[Session], Awaitable[Response]]


async def refund(pay: Session) -> Response:
    """Refund 200 of 450."""
    return await pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200)


async def place(pay: Session) -> Response:
    """Place a numbered order."""
    return await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")


WRITES: Final = [(REFUND, refund, "refunds.create"), (ORDER, place, "orders.place")]


def connect(service: Recorder, toml: str, **settings: Any) -> Session:
    """Return a session that waits for nothing."""
    given: dict[str, Any] = {"retry": RetryPolicy(base_delay=0), **settings}
    return Session(
        service.url, credentials=Credentials("M1", secret_key="sk"), profile=Profile.from_toml(toml), **given
    )


def test_which_number_a_query_names() -> None:
    """It is as given; else the merchant's, if the query has no name yet or that of the write, or the path names it."""
    for toml, expected in [
        ("", "merchant"),
        ('status.refund.name = "outRefundNo"', "merchant"),
        ('status.refund.name = "id"', "service"),
        ('status.refund.name = "no"\nfields."refunds.create".out_refund_no = "no"', "merchant"),
        ('status.refund.name = "no"\nfields.out_refund_no = "no"', "merchant"),
        ('status.refund.name = "no"\nfields."refunds.create".out_refund_no = "no2"', "service"),
        ('status.refund.name = "id"\nendpoints."refunds.status".path = "/r/{out_refund_no}"', "merchant"),
        ('status.refund.name = "id"\nendpoints."refunds.status".path = "/r/{identifier}"', "service"),
        ('status.refund.name = "id"\nendpoints."refunds.status".number = "merchant"', "merchant"),
        ('status.refund.name = "outRefundNo"\nendpoints."refunds.status".number = "service"', "service"),
    ]:
        profile = Profile.from_toml(toml)
        (point,) = [each for each in profile.audit() if each.name == "endpoints.refunds.status.number"]

        assert (expected, "answered" if ".number" in toml else "assumed") == (point.value, point.status)
        assert (expected == "service") is ("recovery cannot ask about refunds.create" in point.means)
        assert profile == Profile.from_toml(profile.to_toml())


@pytest.mark.parametrize(("toml", "write", "name"), WRITES)
@pytest.mark.parametrize("first", [RESET, USED], ids=["lost", "used"])
async def test_call_neither_asks_nor_repeats(
    toml: str, write: Write, name: str, first: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    """A query that takes the service's number says "not found" of all others: one send, no advice to ask, a warning."""
    async with Recorder([first], otherwise=NONE) as service, connect(service, toml) as pay:
        with pytest.raises((OutcomeUnknownError, DuplicateError)) as caught:
            await write(pay)
        with pytest.raises(NotConfiguredError) as asked:
            await pay.reconcile(caught.value)
    warnings = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]

    assert 1 == len(service.requests)
    assert ("ask for its state" in str(caught.value), "at the service" in str(caught.value)) == (False, True)
    assert KEYS[name] in str(asked.value)
    assert 1 == sum(KEYS[name] in each for each in warnings)


@pytest.mark.parametrize(("toml", "write", "name"), WRITES)
async def test_reconciler_gives_the_write_to_a_person(toml: str, write: Write, name: str, tmp_path: Path) -> None:
    """The reconciler does not ask by a query that takes the service's number; its reason names the key."""
    with Recorder([RESET], otherwise=NONE) as service:
        async with SqliteJournal(tmp_path / "pay.db") as journal, connect(service, toml, journal=journal) as pay:
            with pytest.raises(OutcomeUnknownError):
                await write(pay)
            await Reconciler(pay, journal).run_once()
            (intent,) = await journal.list()

    assert ("manual", True) == (intent.state, KEYS[name] in intent.reason)
    assert 1 == len(service.requests)


def run(*arguments: str, **environment: str) -> tuple[int, str]:
    """Return the exit code of a command, and its output with single spaces."""
    ended = CliRunner().invoke(payasync, arguments, env={"COLUMNS": "200", **environment})
    return ended.exit_code, " ".join(ended.output.split())


def test_import_does_not_refund_again(tmp_path: Path) -> None:
    """`refund import` says that a person is needed, sends a lost refund once, and does not exit with 0."""
    (tmp_path / "service.toml").write_text(REFUND)
    (tmp_path / "refunds.csv").write_text("out_trade_no,out_refund_no,total_amt,refund_amt\nT1,R1,450,200\n")
    files = [f"{tmp_path}/refunds.csv", "--journal", f"{tmp_path}/pay.db", "--profile", f"{tmp_path}/service.toml"]
    keys = {"PAYASYNC_MERCHANT_ID": "M1", "PAYASYNC_SECRET_KEY": "sk"}
    with Recorder([RESET], otherwise=NONE) as service:
        code, shown = run("refund", "import", *files, "--base-url", service.url, **keys)

    assert (3, 1) == (code, len(service.requests))
    assert f"by your number ({KEYS['refunds.create']})" in shown


@pytest.mark.parametrize(
    ("toml", "name"), [(REFUND, "refunds.create"), (f"{REFUND}{ORDER[len(COMMON) :]}", "orders.place")]
)
def test_profile_is_not_ready_for_recovery(toml: str, name: str, tmp_path: Path) -> None:
    """`profile check` names each write that recovery cannot find, and the key."""
    (tmp_path / "service.toml").write_text(toml)
    code, shown = run("profile", "check", f"{tmp_path}/service.toml")

    assert (1, True) == (code, f"how to find {name} {KEYS[name]}" in shown)
    assert "recovery" in shown.rpartition("Begun, and not ready:")[2]


def test_confirmation_of_a_hint() -> None:
    """No query confirms an unsigned notification by a number that it does not take. A payment's own number does."""
    for toml, data, kind in [(REFUND, b'{"r":"R1"}', "refund"), (ORDER, b'{"o":"T1"}', "payment")]:
        hints = 'notification = {verification = "none", out_trade_no = "o", out_refund_no = "r"}'
        with pytest.raises(InvalidArgumentError, match=r'endpoints."\w+.\w+".number is "service"'):
            parse(data, {}, profile=Profile.from_toml(toml + hints), kind=kind).inquiry()
    toml = ORDER.replace("answer = {", 'answer = {payment_id = "p", ')
    profile = Profile.from_toml(f'{toml}notification.verification = "none"')

    assert QueryPayment(identifier="P1") == parse(b'{"p":"P1"}', {}, profile=profile, kind="payment").inquiry()


async def test_response_to_a_query_by_the_services_number() -> None:
    """It is compared in the number that the query takes, unless the merchant's number has the same name."""
    for toml, document, words in [
        (REFUND, {"id": "G1", "outRefundNo": "R1"}, ""),
        (REFUND, {"id": "G2", "outRefundNo": "R1"}, "id is G2 in the response, and G1 in the request"),
        (NAMED_ALIKE, {"outRefundNo": "R1"}, ""),
    ]:
        with Recorder(otherwise=answer(200, orjson.dumps({"code": "OK", **document}))) as service:
            async with connect(service, toml) as pay:
                try:
                    found = (await pay.refunds.status("G1")).get("outRefundNo")
                except NoAnswerError as error:
                    found = str(error)

        assert (words in found) if words else ("R1" == found)


async def test_sandbox_finds_by_its_own_number_only() -> None:
    """The sandbox shows its own numbers where the queries name them, and finds nothing by the merchant's."""
    for located in ["", 'answer.out_refund_no = "outRefundNo"\nanswer.out_trade_no = "outTradeNo"\n']:
        own = 'status.refund.name = "id"\nfields."orders.query".out_trade_no = "tradeId"\nsigned = []\n'
        async with (
            Sandbox(profile=Profile.from_toml(own + located), refunds="succeed") as sandbox,
            sandbox.session() as pay,
        ):
            order = await place(pay)
            await sandbox.customer.authorize(order)
            sandbox.faults.reset_after_commit("refunds.create")
            with pytest.raises(OutcomeUnknownError):
                await refund(pay)
            assert 200 == sandbox.ledger.refunded("T1")
            made = await pay.refunds.create(out_trade_no="T1", out_refund_no="R2", total_amt=450, refund_amt=50)
            assert "R2" == (await pay.refunds.status(made["id"]))["outRefundNo"]
            assert "T1" == (await pay.orders.query(order["tradeId"]))["outTradeNo"]
            for ask, mine in ((pay.refunds.status, "R2"), (pay.orders.query, "T1")):
                with pytest.raises(ServiceError, match="404"):
                    await ask(mine)
