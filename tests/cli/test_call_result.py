"""What a command says of an error that a sandbox seldom shows; `test_calls.py` shows the others over HTTP."""

from datetime import date
from typing import Any

import pytest
from attrs import evolve

from payasync import (
    CloseOrder,
    CreateRefund,
    CreateSubscription,
    Credentials,
    DuplicateError,
    InvalidSignatureError,
    NoAnswerError,
    NotSentError,
    OutcomeUnknownError,
    PayasyncError,
    Profile,
    QueryOrder,
    QueryPayment,
    RateLimitedError,
    Request,
    ServiceError,
    Session,
    SessionClosedError,
)
from payasync.cli.call_result import Caller, result_of_error, result_of_response
from payasync.cli.options import Address
from payasync.endpoints import CREATE_SUBSCRIPTION
from payasync.journal.replay import BEING_SENT
from payasync.profile.schema import Recovery
from payasync.sandbox import PROFILE
from payasync.wire.response import SubscriptionResponse
from tests.building import bare_call, reply

REFUND = CreateRefund(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200)
CLOSE = CloseOrder(out_trade_no="T1")
SUBSCRIBE = CreateSubscription(frequency="monthly", amount=900, start_date=date(2027, 1, 31), customer="C1")
SILENT = evolve(PROFILE, name="silent", refund_status=None)
"""A profile that does not say how to ask about a refund."""


def caller(request: Request[Any], profile: Profile = PROFILE, journal: str = "") -> Caller:
    """Return the caller of a command that has sent a request."""
    keys = Credentials("M1", secret_key="a secret key", signing_key="a signing key")
    session = Session("http://127.0.0.1:1", credentials=keys, profile=profile)
    return Caller(session, request, Address(journal) if journal else None, " --profile p.toml")


@pytest.mark.parametrize(
    ("asked", "error", "outcome", "advice", "commands"),
    [
        (
            caller(CLOSE),
            OutcomeUnknownError("lost"),
            "unknown",
            "To ask the service what happened:",
            ["payasync order query T1 --profile p.toml"],
        ),
        (
            caller(CLOSE, journal="pay.db"),
            OutcomeUnknownError("lost"),
            "unknown",
            "To ask the service what happened:",
            ["payasync reconcile --journal pay.db --profile p.toml", "payasync order query T1 --profile p.toml"],
        ),
        (
            caller(REFUND, SILENT),
            OutcomeUnknownError("lost"),
            "unknown",
            "No journal has recorded it, so keep what is shown above.",
            [],
        ),
        (
            caller(SUBSCRIBE, journal="pay.db"),
            OutcomeUnknownError("lost", intent_id=7),
            "unknown",
            "Once you know what happened, record it:",
            [
                "payasync journal resolve 7 --journal pay.db --as succeeded --reason …",
                "payasync journal resolve 7 --journal pay.db --as rejected --reason …",
            ],
        ),
        (
            caller(SUBSCRIBE, journal="pay.db"),
            OutcomeUnknownError("sending", intent_id=7, reason=BEING_SENT),
            "unknown",
            "From that time on, this command asks the service:",
            ["payasync reconcile --journal pay.db --profile p.toml"],
        ),
        (
            caller(QueryPayment(identifier="P1"), evolve(PROFILE, recovery=Recovery(quarantine=60.0))),
            ServiceError("none", absent=True),
            "refused",
            '"Not found" is final only 60 seconds after a write was sent, because the service may still carry it out.',
            [],
        ),
        (
            caller(REFUND, SILENT),
            DuplicateError("used"),
            "duplicate",
            "Use another number only if this one belongs to another write.",
            [],
        ),
        (
            caller(REFUND),
            NotSentError("bad certificate", permanent=True),
            "not sent",
            "Remove the cause, and run the command again.",
            [],
        ),
        (
            caller(REFUND),
            SessionClosedError("closed"),
            "not sent",
            "To try again, run the same command.",
            [],
        ),
        (caller(REFUND), RateLimitedError("429"), "refused", "Wait, and run the command again.", []),
        (
            caller(QueryOrder(out_trade_no="T1")),
            InvalidSignatureError("forged"),
            "no response",
            "To check the keys:",
            ["payasync doctor --profile p.toml"],
        ),
        (caller(QueryOrder(out_trade_no="T1")), NoAnswerError("silence"), "no response", "", []),
    ],
)
def test_advice(asked: Caller, error: PayasyncError, outcome: str, advice: str, commands: list[str]) -> None:
    """What is advised can be done: a command that asks is shown only if the service can be asked."""
    result = result_of_error(asked, error)

    assert (outcome, error.args[0]) == (result.outcome, result.reason)
    assert (advice, commands) == (result.advice, list(result.next))


@pytest.mark.parametrize("customer", ["customer", "payer.customer", "customer.0"])
def test_secrets_at_any_depth_are_not_shown(customer: str) -> None:
    """The payload is shown without signatures, nonces and a customer's details, however deep they stand."""
    named = evolve(PROFILE, name="nested", fields={**PROFILE.fields, "customer": customer})
    secret = {"sign": "canary", "nonceStr": "canary", "customer": {"email": "canary"}, "amount": 900}
    document = {**secret, "status": "SBX_SCHEDULED", "plan": {**secret, "parts": [secret, "kept"]}}
    asked = caller(SUBSCRIBE, named)
    response = SubscriptionResponse.of(bare_call(CREATE_SUBSCRIPTION, profile=named), reply(document))

    shown = {"amount": 900}
    expected = {**shown, "status": "SBX_SCHEDULED", "plan": {**shown, "parts": [shown, "kept"]}}
    assert expected == result_of_response(asked, response).data


def test_dotted_name_of_the_customer_hides_no_other_field() -> None:
    """If the customer is `payer.id`, the payload is shown without `payer`, and with each other `id`."""
    named = evolve(PROFILE, name="dotted", fields={**PROFILE.fields, "customer": "payer.id"})
    shown = {"id": "S1", "status": "SBX_SCHEDULED", "plan": {"id": 7, "parts": [{"id": 8}]}}
    response = SubscriptionResponse.of(
        bare_call(CREATE_SUBSCRIPTION, profile=named), reply({**shown, "payer": {"id": "C1", "email": "canary"}})
    )

    assert shown == result_of_response(caller(SUBSCRIBE, named), response).data


@pytest.mark.parametrize("data", [None, "canary", ["canary"]])
def test_payload_without_names_is_not_shown(data: object) -> None:
    """A payload that is no object has no names that tell what is secret in it, so none of it is shown."""
    enveloped = evolve(PROFILE, name="enveloped", answer=evolve(PROFILE.answer, data="data"))
    document = {"data": data, "status": "SBX_SCHEDULED"}
    response = SubscriptionResponse.of(bare_call(CREATE_SUBSCRIPTION, profile=enveloped), reply(document))

    assert None is result_of_response(caller(SUBSCRIBE, enveloped), response).data
