"""How the outcome of a write is queried: within a call, and after it by `Session.reconcile`."""

import pickle
from functools import partial
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import OrderResponse, Profile, RefundResponse, RetryPolicy, errors
from payasync.middleware.recovery import query_about
from payasync.profile.sandbox_profile import PROFILE as SANDBOX
from payasync.profile.schema import AnswerShape
from tests.building import PROFILE, call_for, codec
from tests.foreign import signatures
from tests.foreign.recorder import RESET, Answer, Recorder, answer
from tests.sessions import ONE_TRY, connect, ended
from tests.wire.ten import CREDENTIALS


def test_what_nothing_names_is_not_asked_about() -> None:
    """A write without the merchant's own number has no query."""
    for operation in ["payments.create", "subscriptions.cancel"]:
        assert query_about(codec(PROFILE), call_for(operation, PROFILE)) is None


def unknown(operation: str | None, reference: str | None) -> errors.OutcomeUnknownError:
    """Return the error of a call whose outcome is unknown."""
    return errors.OutcomeUnknownError("lost", operation=operation, reference=reference)


pay_with = partial(connect, credentials=CREDENTIALS, profile=SANDBOX)


async def reconciled(error: Any, *answers: Answer, profile: Profile = SANDBOX, **options: Any) -> tuple[Any, int]:
    """Return the response or the error of `reconcile`, and the number of requests."""
    service = Recorder(answers)
    found = await ended(lambda pay: pay.reconcile(error, **options), service, profile, CREDENTIALS, retry=ONE_TRY)
    return found, len(service.requests)


PAID: Final = answer(200, b'{"code":"SBX_OK","status":"SBX_PAID"}')
DONE: Final = answer(200, b'{"code":"SBX_OK","status":"SBX_SUCCEEDED"}')
NONE: Final = answer(200, b'{"code":"SBX_NOT_FOUND"}')


REQUIRED: Final = evolve(SANDBOX, accept=evolve(SANDBOX.accept, required={"refunds.status": ("refund_desc",)}))
OPEN: Final = evolve(SANDBOX, refund_status=None)
USED: Final = answer(200, b'{"code":"SBX_DUPLICATE"}')
LOOK_AT_IT: Final = "it may have been done: look at R1 at the service, and do not repeat it"


async def test_write_without_a_query() -> None:
    """If a write has no query, it is unknown when it is lost, and nothing more is sent.

    While `status.refund` is open, an error about a refund tells the caller to look at the service.
    """
    cases: list[tuple[Profile, Answer, type[errors.PayasyncError], str]] = [
        (REQUIRED, RESET, errors.OutcomeUnknownError, "it may have been done: "),
        (OPEN, RESET, errors.OutcomeUnknownError, LOOK_AT_IT),
        (OPEN, USED, errors.DuplicateError, "; look at R1 at the service"),
    ]
    for profile, response, kind, words in cases:
        with Recorder([response], otherwise=DONE) as service:
            async with pay_with(service, profile=profile, retry=RetryPolicy(attempts=3)) as pay:
                with pytest.raises(kind, match=words) as caught:
                    await pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=100)

        assert ("refunds.create", "R1") == (caught.value.operation, caught.value.reference)
        assert (profile is REQUIRED) == ("ask for its state" in str(caught.value))
        assert 1 == len(service.requests)


ORDER: Final = (PAID, OrderResponse, "paid", "/payment/orderquery", "outTradeNo")
REFUND: Final = (DONE, RefundResponse, "succeeded", "/payment/refund/status", "outRefundNo")


async def test_reconcile_asks_by_the_number() -> None:
    """`reconcile` queries by the write's number and sends `extra`, which cannot hold another number."""
    for operation, expected in [("orders.place", ORDER), ("orders.close", ORDER), ("refunds.create", REFUND)]:
        said, kind, state, path, number = expected
        async with Recorder([said]) as service, pay_with(service) as pay:
            found = await pay.reconcile(unknown(operation, "N9"), extra={"deviceNo": "7"})
            with pytest.raises(errors.InvalidArgumentError) as caught:
                await pay.reconcile(unknown("orders.place", "N9"), extra={"outTradeNo": "N8"})
        sent = signatures.fields(service.only)

        assert (kind, state, path) == (type(found), found.state, service.only.path)
        assert ("7", "N9") == (sent["deviceNo"], sent[number])
        assert "extra" == caught.value.field


async def test_reconcile_what_a_call_raised() -> None:
    """`reconcile` needs only the error that the call raised."""
    for began, queries in [([RESET], 4), ([answer(409, b'{"code":"SBX_OTHER"}')], 1)]:
        with Recorder([*began, *[RESET] * (queries - 1), PAID]) as service:
            async with pay_with(service, retry=RetryPolicy(attempts=1, base_delay=0)) as pay:
                with pytest.raises((errors.OutcomeUnknownError, errors.DuplicateError)) as caught:
                    await pay.orders.place(total_amt=1, currency="CAD", out_trade_no="T1")
                found = await pay.reconcile(caught.value)

        assert ["/payment/unifiedorder", *["/payment/orderquery"] * queries] == [each.path for each in service.requests]
        assert "paid" == found.state


ANOTHER: Final = answer(200, b'{"code":"SBX_OK","status":"SBX_PAID","outTradeNo":"T1","totalAmt":990}')
EMPTY: Final = answer(200, b'{"code":0,"data":null}')
LOST: Final = [RESET, *[RESET] * 3]
"""The write's answer, and those of the questions within the call."""


async def test_reconcile_what_stands_for_another() -> None:
    """If the response is about another amount, `reconcile` does not report this order as paid."""
    for began in [LOST, [answer(409, b'{"code":"SBX_OTHER"}')], [answer(400, b'{"code":"SBX_OTHER"}')]]:
        with Recorder([*began, ANOTHER]) as service:
            async with pay_with(service, retry=RetryPolicy(attempts=1, base_delay=0)) as pay:
                with pytest.raises((errors.OutcomeUnknownError, errors.ServiceError)) as lost:
                    await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")
                with pytest.raises(errors.OutcomeUnknownError) as caught:
                    await pay.reconcile(pickle.loads(pickle.dumps(lost.value)))  # noqa: S301 - made in the same line

        assert "totalAmt is 990 in the response, and 450 in the request" in str(caught.value.reason)
        assert "repeat this one under a new number" in str(caught.value)
        assert ("orders.place", "T1") == (caught.value.operation, caught.value.reference)
        assert caught.value.response is not None
        asked = {"outTradeNo": "T1", "totalAmt": 450, "currency": "CAD", "merchantId": "M1"}
        assert asked == lost.value.asked == caught.value.asked
        assert "450" not in f"{lost.value} {lost.value!r}".replace(service.url, "")  # its port may be 4501


async def test_reconcile_what_is_about_another() -> None:
    """If the response names another order, `reconcile` says to ask again, and where to look."""
    other = answer(200, b'{"code":"SBX_OK","status":"SBX_PAID","outTradeNo":"T0"}')
    found, _ = await reconciled(unknown("orders.close", "T1"), other)

    assert "; ask again; if that does not help, check the paths in [answer]" in str(found)
    assert "outTradeNo is T0 in the response, and T1 in the request" in str(found)


async def test_reconcile_an_error_of_ones_own() -> None:
    """If an error has no `asked`, `reconcile` returns the response without a comparison."""
    found, _ = await reconciled(errors.NoAnswerError("lost", operation="orders.query", reference="T1"), ANOTHER)

    assert ("paid", 990) == (found.state, found.data["totalAmt"])


async def test_reconcile_an_empty_answer() -> None:
    """If the query returns an empty envelope, the outcome stays unknown."""
    profile = evolve(SANDBOX, answer=AnswerShape(code="code", ok=(0,), data="data"))
    found, _ = await reconciled(unknown("orders.place", "T1"), EMPTY, profile=profile)

    assert errors.OutcomeUnknownError is type(found)
    assert ("the service says nothing about T1", "orders.place") == (found.reason, found.operation)


async def test_reconcile_without_an_answer() -> None:
    """`reconcile` raises for "not found", a refusal and a lost response, as any query does."""
    for said, expected in [
        (NONE, errors.ServiceError),
        (answer(400, b'{"code":"SBX_OTHER"}'), errors.ServiceError),
        (RESET, errors.NoAnswerError),
    ]:
        found, _ = await reconciled(unknown("orders.place", "T1"), said)

        assert (expected, "orders.query", "T1") == (type(found), found.operation, found.reference)


async def test_reconcile_what_nothing_names() -> None:
    """If an error has no number, or one of another request, `reconcile` raises it again, and sends nothing."""
    for error in [
        unknown("payments.create", None),
        unknown("subscriptions.update", "S1"),
        errors.IntentConflictError("another", operation="refunds.create", reference="R1"),
    ]:
        assert (error, 0) == await reconciled(error)


async def test_reconcile_where_the_profile_does_not_say_how() -> None:
    """If the profile does not map the query, `reconcile` names the open point and its table, and sends nothing."""
    found, sent = await reconciled(unknown("refunds.create", "R1"), profile=evolve(SANDBOX, refund_status=None))

    assert (errors.NotConfiguredError, "refund_status") == (type(found), found.field)
    assert ("refunds.status", 0) == (found.operation, sent)
    assert "as 'refund_status' (TOML: [status.refund])" in str(found)


async def test_reconcile_accepts_only_our_errors() -> None:
    """An argument that is not a `PayasyncError`, and an invalid timeout, are refused by name."""
    for error, timeout, field in [
        (unknown("orders.place", "T1"), 0, "timeout"),
        *((error, None, "error") for error in (None, "R1", ValueError("lost"))),
    ]:
        found, sent = await reconciled(error, timeout=timeout)

        assert (errors.InvalidArgumentError, field, 0) == (type(found), found.field, sent)


NUMBER_HINT: Final = "With an out_trade_no of your own"
LOOK: Final = "look for it at the service (450 EUR, 'Tea', at about 20"


async def test_advice_where_nothing_can_be_asked() -> None:
    """If nothing can be asked about a lost write, its error says what to look for, and to repeat nothing."""
    cases: list[Any] = [
        (lambda pay: pay.payments.create(amount=450, currency="EUR", description="Tea"), LOOK, False),
        (lambda pay: pay.orders.place(total_amt=450, currency="EUR", subject="Tea"), LOOK, True),
        (lambda pay: pay.subscriptions.cancel("S1"), "look at S1 at the service", False),
    ]
    for write, words, hinted in cases:
        async with Recorder(otherwise=RESET) as service, pay_with(service) as pay:
            with pytest.raises(errors.OutcomeUnknownError) as caught:
                await write(pay)
            with pytest.raises(errors.OutcomeUnknownError) as again:
                await pay.reconcile(caught.value)
        told = str(caught.value)

        assert caught.value is again.value
        assert (1, True, True, False) == (
            len(service.requests),
            words in told,
            "do not repeat it" in told,
            "ask for its state" in told,
        )
        assert hinted == (NUMBER_HINT in told)
