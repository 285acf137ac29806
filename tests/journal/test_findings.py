"""What a question tells of a write that nobody knows the end of."""

from typing import Any, Final

import pytest
from attrs import evolve

from payasync.errors import (
    AuthenticationError,
    ConfigurationError,
    InvalidArgumentError,
    InvalidSignatureError,
    NoAnswerError,
    NotConfiguredError,
    NotSentError,
    PayasyncError,
    RateLimitedError,
    ServiceError,
    SessionClosedError,
    StorageError,
)
from payasync.journal import Outcome
from payasync.journal.intents import State
from payasync.journal.policy import Evidence, Finding, evidence_of_error, evidence_of_response, names_of, query_for
from payasync.profile.profile import Profile
from payasync.profile.schema import AnswerShape, States
from payasync.resources.orders import QueryOrder
from payasync.resources.payments import QueryPayment
from payasync.resources.refunds import QueryRefund
from payasync.wire.call import Objection
from payasync.wire.response import OrderResponse, RefundResponse, Response
from tests.building import ENVELOPE, STATES, call_for, reply
from tests.building import PROFILE as REQUESTS
from tests.journal.building import unknown

PROFILE: Final = evolve(REQUESTS, answer=ENVELOPE, states=STATES)
NOT_DONE: Final = Evidence(finding=Finding.NOT_DONE, reason="the service does not know it")
UNASKABLE: Final = Evidence(finding=Finding.UNASKABLE, reason="nothing names it")
PAID: Final = {
    "operation": "payments.create",
    "reference": None,
    "outcome": Outcome(status=200, body=b'{"result":{"pay":{"no":7}}}'),
}
"""A payment, with the service's own number of it."""


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, QueryRefund(identifier="R1")),
        ({"operation": "orders.place", "reference": "T1"}, QueryOrder(out_trade_no="T1")),
        ({"operation": "orders.close", "reference": "T1"}, QueryOrder(out_trade_no="T1")),
        ({"operation": "orders.place", "reference": None}, None),
        ({"operation": "subscriptions.cancel", "reference": "S1"}, None),
        ({"operation": "payments.create", "reference": None}, None),
        ({"operation": "payments.create", "outcome": Outcome(status=200, body=b"{}")}, None),
        (PAID, QueryPayment(identifier="7")),
    ],
)
def test_question(facts: dict[str, Any], expected: object) -> None:
    """An order is asked about by endpoint 3, a refund by 7, and a payment by 6, with the number of its answer."""
    assert expected == query_for(unknown(**facts), PROFILE)


def test_payment_without_a_known_number_is_no_question() -> None:
    """Where the profile does not say where a payment's number stands, nothing names it."""
    payment = unknown(operation="payments.create", outcome=Outcome(status=200, body=b'{"pay":{"no":7}}'))

    assert query_for(payment, Profile()) is None


def answered(
    kind: type[Response], operation: str, state: object, profile: Profile = PROFILE, **facts: object
) -> Response:
    """Return an answer that tells a state, and more."""
    return kind.of(call_for(operation, profile), reply({"result": {"state": state, **facts}}))


ASKED_FOR: Final = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 450, "refund_amt": 200}
WIRE: Final = {"outTradeNo": "T1", "outRefundNo": "R1", "totalAmt": 450, "refundAmt": 200, "merchantId": "M1"}


@pytest.mark.parametrize(("about_another", "expected"), [(True, None), (False, "manual")])
def test_response_about_another_refund(*, about_another: bool, expected: State | None) -> None:
    """The next one may be its own; where the number stands for another amount, asking again changes nothing."""
    words = "outRefundNo is R9 in the response, and R1 in the request"
    objection = Objection(words, about_another=about_another)
    error = NoAnswerError("HTTP 200; repeating it is harmless", reason=words, objection=objection, retry_after=7.0)
    evidence = Evidence(finding=Finding.UNMATCHED, state=expected, reason=words, retry_after=7.0)

    assert evidence == evidence_of_error(error)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"request": {**ASKED_FOR, "refund_desc": "cold"}, "named": {"merchantId": "M1"}}, WIRE),
        ({"request": {}}, {"outRefundNo": "R1"}),
        ({"operation": "orders.close", "reference": "T1"}, {"outTradeNo": "T1"}),
        ({"operation": "orders.place", "reference": None, "request": {"total_amt": 9}}, {"totalAmt": 9}),
        (
            {"operation": "payments.create", "reference": None, "request": {"amount": 9, "currency": "USD"}},
            {"amount": 9, "currency": "USD"},
        ),
        (PAID, {"payment_id": 7}),
        ({"operation": "subscriptions.cancel", "reference": "S1", "request": {"subscription_id": "S1"}}, {}),
        ({"operation": "POST /payment/split", "reference": None}, {}),
    ],
)
def test_what_a_write_has_named(facts: dict[str, Any], expected: dict[str, object]) -> None:
    """Its numbers and amounts as far as they are kept, and the merchant if it was sent."""
    assert expected == names_of(unknown(**facts), PROFILE)


@pytest.mark.parametrize("state", ["unknown", "accepted"])
@pytest.mark.parametrize("document", [{"result": None}, {"result": []}, {"result": {}}, {"code": "OK"}])
def test_answer_that_holds_nothing(state: State, document: object) -> None:
    """An answer without a payload ends nothing: so some services answer about what they do not know."""
    intent = unknown(state=state, request=ASKED_FOR)
    evidence = evidence_of_response(
        intent, RefundResponse.of(call_for("refunds.status", PROFILE), reply(document)), PROFILE
    )

    assert (Finding.UNCLEAR, "the service tells nothing of the refund") == (evidence.finding, evidence.reason)


def test_answer_about_itself() -> None:
    """What the service repeats of the refund is what was asked for."""
    intent = unknown(request=ASKED_FOR)
    found = evidence_of_response(intent, answered(RefundResponse, "refunds.status", "DONE", refundAmt=200), PROFILE)

    assert "succeeded" == found.state


MEANINGLESS: Final = ", and the profile does not say what its state means"


@pytest.mark.parametrize(
    ("operation", "value", "expected"),
    [
        (
            "refunds.create",
            "DONE",
            Evidence(finding=Finding.TOLD, state="succeeded", reason="the refund's state is succeeded"),
        ),
        (
            "refunds.create",
            "NEW WORD",
            Evidence(finding=Finding.UNCLEAR, state="accepted", reason=f"the service knows the refund{MEANINGLESS}"),
        ),
        (
            "orders.place",
            "SUCCESS",
            Evidence(finding=Finding.TOLD, state="succeeded", reason="the order's state is paid"),
        ),
        ("orders.place", 3, Evidence(finding=Finding.TOLD, state="rejected", reason="the order's state is closed")),
        ("orders.close", 3, Evidence(finding=Finding.TOLD, state="succeeded", reason="the order's state is closed")),
        ("orders.close", 2, Evidence(finding=Finding.TOLD, state="rejected", reason="the order's state is paid")),
        ("orders.close", "WAIT", Evidence(finding=Finding.NOT_DONE, reason="the order's state is pending")),
        (
            "orders.close",
            "NEW WORD",
            Evidence(finding=Finding.UNCLEAR, reason="the profile does not say what the order's state means"),
        ),
    ],
)
def test_what_a_state_says_of_a_write(operation: str, value: object, expected: Evidence) -> None:
    """That a thing is there says that it was made; that an order is still pending, that it was not closed."""
    profile = evolve(PROFILE, states=evolve(STATES, order={**STATES.order, "pending": ("WAIT",)}))
    kind = RefundResponse if operation == "refunds.create" else OrderResponse

    assert expected == evidence_of_response(
        unknown(operation=operation), answered(kind, operation, value, profile), profile
    )


def test_what_has_no_states_is_done_when_it_is_there() -> None:
    """Where the profile knows no states, no later answer could say more."""
    profile = evolve(PROFILE, answer=AnswerShape(), states=States())
    answer = answered(RefundResponse, "refunds.create", "DONE", profile)

    assert "succeeded" == evidence_of_response(unknown(), answer, profile).state


@pytest.mark.parametrize(
    ("error", "finding"),
    [
        (ServiceError("HTTP 404, not found", absent=True), Finding.NOT_DONE),
        (ServiceError("HTTP 404, not found", absent=False), Finding.UNCLEAR),
        (ServiceError("HTTP 302"), Finding.UNCLEAR),
        (AuthenticationError("HTTP 401"), Finding.SILENT),
        (RateLimitedError("HTTP 429"), Finding.SILENT),
        (NoAnswerError("HTTP 503"), Finding.SILENT),
        (NotSentError("connection refused"), Finding.SILENT),
        (InvalidSignatureError("forged"), Finding.SILENT),
        (InvalidArgumentError("extra must be given"), Finding.UNASKABLE),
        (NotConfiguredError("refund_status is open", field="refund_status"), Finding.UNASKABLE),
        (NotConfiguredError("payment_status is open", field="payment_status"), Finding.UNASKABLE),
    ],
)
def test_what_an_error_says(error: PayasyncError, finding: Finding) -> None:
    """Only what the service says of this write counts: what is of the keys, the way or the hour is asked again."""
    assert finding is evidence_of_error(error).finding


@pytest.mark.parametrize(
    "error",
    [
        ConfigurationError("signing_key is not set"),
        NotConfiguredError("signature is open", field="signature.algorithm"),
        SessionClosedError("closed"),
        StorageError("full"),
    ],
)
def test_what_is_wrong_here_says_nothing_of_any_write(error: PayasyncError) -> None:
    """It ends the run, and no write is given to a person for it."""
    with pytest.raises(type(error)) as caught:
        evidence_of_error(error)

    assert error is caught.value


def test_words_of_an_error() -> None:
    """A person reads what the service did, without what a program may do next."""
    error = NoAnswerError("HTTP 503, the service failed; repeating it is harmless", retry_after=7.0)
    expected = Evidence(finding=Finding.SILENT, reason="HTTP 503, the service failed", retry_after=7.0)

    assert expected == evidence_of_error(error)
