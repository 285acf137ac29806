"""`[endpoints]` and `[fields]`: what a service calls arguments, and where they stand."""

import json
import pickle
from collections.abc import Awaitable, Callable
from datetime import date
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import asdict, evolve

from payasync import CreateRefund, PlaceOrder, Profile, RetryPolicy, Session
from payasync.endpoints import QUERY_PAYMENT
from payasync.errors import InvalidArgumentError, OutcomeUnknownError
from payasync.evidence.comparison import comparison_of
from payasync.journal import Reconciler, SqliteJournal
from payasync.profile.wire_names import names_of
from payasync.sandbox import Sandbox
from payasync.signing import SortedPairs
from tests.foreign import signatures
from tests.foreign.recorder import RESET, Answer, Recorder, Request, answer
from tests.sessions import ended
from tests.wire.ten import CREDENTIALS, SIGNING_KEY

ELSEWHERE: Final = Path(__file__).with_name("elsewhere.toml").read_text(encoding="utf-8")
"""A service that differs from the document in each way: methods, paths, places and names."""
PLACE: Final = PlaceOrder(out_trade_no="T1", total_amt=450, currency="CAD")
REFUND: Final = CreateRefund(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=20)


def test_options_follow_a_renaming() -> None:
    """The options of a signature follow renamed fields, unless they are given."""
    for scheme in [SortedPairs(), SortedPairs(exclude=("sign", "mac"), allow_delimiters=("topic",))]:
        profile = Profile(signature=scheme, fields={"sign": "mac", "subject": "topic"})
        used = profile.scheme

        assert isinstance(used, SortedPairs)
        assert "mac" in used.exclude
        assert "topic" in used.allow_delimiters
        assert scheme is profile.signature


def test_number_under_the_name_of_a_text() -> None:
    """If a number has a name that the document gives a text, it may not hold delimiters; the renamed text may."""
    profile = Profile(signature=SortedPairs(), fields={"out_trade_no": "body", "body": "text.long"}, signed=())
    used = profile.scheme

    assert isinstance(used, SortedPairs)
    assert {"text", "subject"} == {"text", "subject", "body"}.intersection(used.allow_delimiters)


async def test_names_of_what_payasync_adds() -> None:
    """Nonce, signature and merchant have the profile's names, for one operation or for all; no caller may set them."""
    for table in ["fields", 'fields."refunds.create"']:
        names = {"nonce": "once", "sign": "mac", "merchant_id": "shop"}
        lines = [f'{table}.{each} = "{name}"' for each, name in names.items()]
        profile = Profile.from_toml("\n".join(['signature = {algorithm = "hmac-sha256", encoding = "hex"}', *lines]))
        with Recorder(otherwise=answer(200, b"{}")) as service:
            async with Session(service.url, credentials=CREDENTIALS, profile=profile) as pay:
                await pay.send(REFUND)
                for name in names.values():
                    with pytest.raises(
                        InvalidArgumentError, match=f"extra must not hold {name}, which is set by payasync"
                    ):
                        await pay.send(evolve(REFUND, extra={name: "x"}))
        sent = signatures.fields(service.only)
        text = signatures.signed_text({name: value for name, value in sent.items() if name != "mac"})

        assert {"outTradeNo", "outRefundNo", "totalAmt", "refundAmt", *names.values()} == set(sent)
        assert ("M1", signatures.hmac_sha256(text, SIGNING_KEY)) == (sent["shop"], sent["mac"])


async def test_signed_path_holds_its_arguments() -> None:
    """With `append_path`, requests and responses sign the path with the arguments in the place of their braces."""
    profile = Profile.from_toml(
        'signature = {algorithm = "hmac-sha256", encoding = "hex", append_path = true}\n'
        'endpoints."orders.query".path = "/orders/{out_trade_no}"\n'
        'answer = {signature = "sign", order_status = "status"}\nstates.order.paid = ["OK"]'
    )
    said = {"outTradeNo": "T1", "status": "OK"}
    said["sign"] = signatures.hmac_sha256(f"{signatures.signed_text(said)}/orders/T1", SIGNING_KEY)
    with Recorder(otherwise=answer(200, json.dumps(said).encode())) as service:
        async with Session(service.url, credentials=CREDENTIALS, profile=profile) as pay:
            assert "paid" == (await pay.orders.query("T1")).state
    sent = signatures.fields(service.only)
    text = signatures.signed_text({**sent, "outTradeNo": "T1"})

    assert signatures.hmac_sha256(f"{text}/orders/T1", SIGNING_KEY) == sent["sign"]


EMPTY: Final = answer(200, b"{}")
Ask = Callable[[Session], Awaitable[Any]]


async def asked(text: str, ask: Ask, reply: Answer = EMPTY) -> tuple[Any, list[Request]]:
    """Return the response or the error of a call with a profile, and the requests to a service that always replies."""
    service = Recorder(otherwise=reply)
    return await ended(ask, service, Profile.from_toml(text), CREDENTIALS), service.requests


async def test_argument_that_is_missing() -> None:
    """If an argument is missing that stands in the path, or that the service wants in a query, nothing is sent."""
    cases: list[tuple[str, str, Ask]] = [
        ("orders.place", 'path = "/{out_trade_no}"', lambda pay: pay.orders.place(total_amt=1, currency="CAD")),
        ("refunds.status", 'with = ["out_trade_no"]', lambda pay: pay.refunds.status("R1")),
    ]
    for operation, line, ask in cases:
        text = f'signed = []\nstatus.refund.name = "no"\nendpoints."{operation}".{line}'
        error, requests = await asked(text, ask)

        assert ("out_trade_no", []) == (error.field, requests)
        assert f'out_trade_no must be given, because the profile\'s endpoints."{operation}"' in str(error)


async def test_number_in_the_path_of_a_status() -> None:
    """A query about a payment or a refund may have the merchant's number in its path, which then has a name."""
    text = (
        'endpoints."payments.status".path = "/pay/{out_trade_no}"\n'
        'endpoints."refunds.status".path = "/orders/{out_trade_no}/refunds/{out_refund_no}"\n'
        'endpoints."refunds.status".with = ["out_trade_no"]\n'
        'fields = {out_trade_no = "order_no", out_refund_no = "refund_no"}'
    )
    reply = answer(200, b'{"order_no": "T1", "refund_no": "R2"}')
    payment, (paid, *_) = await asked(text, lambda pay: pay.payments.status("T1"), reply)
    error, (asks, *_) = await asked(text, lambda pay: pay.refunds.status("R1", out_trade_no="T1"), reply)
    profile = Profile.from_toml(text)
    points = {point.name: point.status for point in profile.audit()}

    assert (200, "/pay/T1", "/orders/T1/refunds/R1") == (payment.http_status, paid.path, asks.path)
    assert "refund_no is R2 in the response, and R1 in the request" in str(error)
    assert ("answered", "answered") == (points["payment_status"], points["refund_status"])
    assert profile == Profile.from_toml(profile.to_toml())


async def test_number_in_the_path_under_a_name_of_its_own() -> None:
    """A name in `[status]` stays that of the identifier, if the path has the merchant's number."""
    text = 'endpoints."refunds.status".path = "/{out_refund_no}"\nstatus.refund.name = "no"'
    error, requests = await asked(text, lambda pay: pay.refunds.status("R1"), answer(200, b'{"no": "R2"}'))

    assert "no is R2 in the response, and R1 in the request" in str(error)
    assert {"/R1"} == {each.path for each in requests}


async def test_merchant_in_the_path() -> None:
    """The merchant in a path is the session's, even if `merchant` lacks the operation; `extra` cannot replace it."""
    text = 'endpoints."orders.place".path = "/{merchant_id}/orders"\nsigned = []\nmerchant = []'
    _, (request,) = await asked(text, lambda pay: pay.send(PLACE))
    error, requests = await asked(text, lambda pay: pay.send(evolve(PLACE, extra={"merchantId": "M2"})))

    assert ("/M1/orders", []) == (request.path, requests)
    assert "extra must not hold merchantId, which is set by payasync" in str(error)


async def test_every_question_about_a_refund_names_its_order(tmp_path: Path) -> None:
    """If a service wants the order's number in a query about a refund, recovery, `reconcile` and reconciler give it."""
    profile = Profile.from_toml(
        'signed = []\nstatus.refund.name = "no"\nendpoints."refunds.status".with = ["out_trade_no"]\n'
        'endpoints."refunds.status".number = "merchant"\n'
        'answer.refund_status = "status"\nstates.refund.succeeded = ["OK"]'
    )
    silent, done = [RESET, RESET, RESET, RESET], answer(200, b'{"status":"OK"}')
    with Recorder(silent, otherwise=done) as service:
        async with (
            SqliteJournal(tmp_path / "pay.db") as journal,
            Session(
                service.url, credentials=CREDENTIALS, profile=profile, journal=journal, retry=RetryPolicy(base_delay=0)
            ) as pay,
        ):
            with pytest.raises(OutcomeUnknownError) as caught:
                await pay.send(REFUND)
            assert "succeeded" == (await pay.reconcile(caught.value)).state
            assert 1 == (await Reconciler(pay, journal).run_once()).resolved
    questions = [request.target for request in service.requests if request.method == "GET"]

    assert ["/payment/refund/status?no=R1&outTradeNo=T1"] * 5 == questions


async def test_absent_argument_has_no_header() -> None:
    """Of arguments that stand in headers, those that were not given are left out."""
    text = 'endpoints."subscriptions.update".place = "header"\n[fields]\nsubscription_id = "X-Plan"\n'
    names = 'subscription_amount = "X-Amount"\nfrequency = "X-Every"\nstart_date = "X-From"\ncustomer = "X-Who"'
    _, (request,) = await asked(text + names, lambda pay: pay.subscriptions.update("S1", amount=5))

    assert {"X-Plan": "S1", "X-Amount": "5"} == {name: value for name, value in request.headers if name[:2] == "X-"}


async def test_order_of_a_refund_is_compared() -> None:
    """A response to a refund query about another order is not believed, even if the order's number is not sent."""
    text, reply = 'status.refund.name = "outRefundNo"', answer(200, b'{"outTradeNo":"T0","outRefundNo":"R1"}')
    alone, _ = await asked(text, lambda pay: pay.refunds.status("R1"), reply)
    error, _ = await asked(text, lambda pay: pay.refunds.status("R1", out_trade_no="T1"), reply)

    assert "T0" == alone["outTradeNo"]
    assert "outTradeNo is T0 in the response, and T1 in the request" in str(error)


NESTED: Final = """
signed = []
status.refund.name = "ref"
endpoints."refunds.status".number = "merchant"
fields.currency = "cur"
fields."orders.place" = {out_trade_no = "order.no", total_amt = "sum.total", currency = "sum.cur"}
endpoints."orders.query".number = "merchant"
fields."refunds.create" = {refund_amt = "sum.back", out_refund_no = "refund.no", out_trade_no = "order.no"}
"""


async def test_query_names_what_the_write_named() -> None:
    """The response to a query after a lost write is compared under the write's own names and under the general ones."""
    cases: list[Any] = [
        (PLACE, {"sum": {"total": 1}}, "sum.total is 1 in the response, and 450 in the request"),
        (PLACE, {"totalAmt": 1}, "sum.total is 1"),
        (PLACE, {"sum": {"cur": "USD"}}, "sum.cur is USD"),
        (PLACE, {"cur": "USD"}, "sum.cur is USD"),
        (PLACE, {"order": {"no": "T2"}}, "outTradeNo is T2"),
        (REFUND, {"sum": {"back": 1}}, "sum.back is 1"),
        (REFUND, {"refundAmt": 1}, "sum.back is 1"),
        (REFUND, {"refund": {"no": "R2"}}, "refund.no is R2"),
        (REFUND, {"order": {"no": "T2"}}, "order.no is T2"),
    ]
    for write, body, why in cases:
        good = {"ref": "R1"} if write is REFUND else {"outTradeNo": "T1"}
        replies = answer(200, json.dumps({**good, **body}).encode())
        profile = Profile.from_toml(NESTED)
        lost = await ended(lambda pay: pay.send(write), Recorder([RESET], otherwise=replies), profile, CREDENTIALS)  # noqa: B023 - awaited here
        again = await ended(lambda pay: pay.reconcile(lost), Recorder(otherwise=replies), profile, CREDENTIALS)  # noqa: B023 - as above

        assert OutcomeUnknownError is type(lost) is type(again)
        assert why in str(again.reason)


async def test_payment_names_its_amount() -> None:
    """The response to a query about a payment is compared under the name that the amount has when it is made."""
    for amount in ["charge.sum", "amount"]:
        profile = Profile.from_toml(f'status.payment.name = "no"\nfields."payments.create".amount = "{amount}"')

        assert amount in {each.path for each in comparison_of(QUERY_PAYMENT, profile).fields}


async def test_sandbox_plays_such_a_service(tmp_path: Path) -> None:
    """All ten methods, a recovery and a reconciliation work with a service that differs in each way."""
    profile = Profile.from_toml(ELSEWHERE)
    async with (
        Sandbox(profile=profile, refunds="succeed") as sandbox,
        SqliteJournal(tmp_path / "pay.db") as journal,
        sandbox.session(journal=journal) as pay,
    ):
        payment = await pay.payments.create(amount=100, currency="CAD")
        seen: list[Any] = [(await pay.payments.status(str(payment.payment_id))).state]
        order = await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD", subject="Coffee")
        await sandbox.customer.authorize(order)
        seen.append((await pay.orders.query("T1")).state)
        sandbox.faults.reset_after_commit("refunds.create")
        refund = await pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200)
        seen += [refund.recovered, refund.state, (await pay.refunds.status("R1", out_trade_no="T1")).state]
        await pay.orders.place(out_trade_no="T2", total_amt=450, currency="CAD")
        seen.append((await pay.orders.close("T2")).state)
        plan: dict[str, Any] = {"frequency": "monthly", "start_date": date(2027, 1, 31), "customer": {"id": 7}}
        made = await pay.subscriptions.create(amount=900, **plan)
        number = str(made.subscription_id)
        seen += [(await pay.subscriptions.update(number, amount=1000)).state, made.get("plan.amount")]
        seen.append((await pay.subscriptions.cancel(number)).state)
        await Reconciler(pay, journal).run_once()
        seen.append(sandbox.ledger.refunded("T1"))
        states = {(each.operation, each.reference): each.state for each in await journal.list()}

    assert ["pending", "paid", True, "succeeded", "succeeded", "closed", "scheduled", 900, "cancelled", 200] == seen
    assert ("succeeded", "succeeded") == (states["refunds.create", "R1"], states["orders.close", "T2"])


def test_names_that_were_found_are_no_part_of_the_profile() -> None:
    """A pickle of a profile, and its fields, stay the same after the names of an argument were looked up."""
    profile = Profile.from_toml('fields.merchant_id = "shop"')
    before = pickle.dumps(profile), asdict(profile)
    names_of(profile, "customer")

    assert before == (pickle.dumps(profile), asdict(profile))
