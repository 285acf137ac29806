"""What a command says of an error that a sandbox seldom shows; `test_calls.py` shows the others over HTTP."""

from datetime import date
from typing import Any, Final

from attrs import evolve

from payasync import (
    CloseOrder,
    CreateRefund,
    CreateSubscription,
    Credentials,
    Profile,
    QueryOrder,
    QueryPayment,
    Request,
    Session,
    errors,
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


LOST: Final = errors.OutcomeUnknownError("lost", intent_id=7)
SENDING: Final = errors.OutcomeUnknownError("sending", intent_id=7, reason=BEING_SENT)
PERMANENT: Final = errors.NotSentError("bad certificate", permanent=True)
QUERY: Final = QueryOrder(out_trade_no="T1")
QUARANTINED: Final = evolve(PROFILE, recovery=Recovery(quarantine=60.0))
ASK: Final = "To ask the service what happened:"
QUERIED: Final = "payasync order query T1 --profile p.toml"
RECONCILED: Final = "payasync reconcile --journal pay.db --profile p.toml"
RESOLVED: Final = (
    "payasync journal resolve 7 --journal pay.db --as succeeded --reason …",
    "payasync journal resolve 7 --journal pay.db --as rejected --reason …",
)
FINAL: Final = (
    '"Not found" is final only 60 seconds after a write was sent, because the service may still carry it out.'
)


NEVER_FINAL: Final = (
    '"Not found" is not final without recovery.quarantine in the profile, because the service may still carry it out. '
    "To send it again, use the same number."
)
USED: Final = "Use another number only if this one belongs to another write."
DOCTOR: Final = ("payasync doctor --profile p.toml",)
ABSENT: Final = errors.ServiceError("none", absent=True)
LIMITED: Final = errors.RateLimitedError("429", retry_after=90.0)
OPEN: Final = evolve(PROFILE, recovery=Recovery())
LATER: Final = "From that time on, this command asks the service:"
IN_JOURNAL: Final = caller(SUBSCRIBE, journal="pay.db")
ADVICE: Final[list[tuple[Caller, errors.PayasyncError, str, str, tuple[str, ...]]]] = [
    (caller(CLOSE), LOST, "unknown", ASK, (QUERIED,)),
    (caller(CLOSE, journal="pay.db"), LOST, "unknown", ASK, (RECONCILED, QUERIED)),
    (caller(REFUND, SILENT), LOST, "unknown", "No journal has recorded it, so keep what is shown above.", ()),
    (IN_JOURNAL, LOST, "unknown", "Once you know what happened, record it:", RESOLVED),
    (IN_JOURNAL, SENDING, "unknown", LATER, (RECONCILED,)),
    (caller(QueryPayment(identifier="P1"), QUARANTINED), ABSENT, "refused", FINAL, ()),
    (caller(QUERY, OPEN), ABSENT, "refused", NEVER_FINAL, ()),
    (caller(REFUND, SILENT), errors.DuplicateError("used"), "duplicate", USED, ()),
    (caller(REFUND), PERMANENT, "not sent", "Remove the cause, and run the command again.", ()),
    (caller(REFUND), errors.SessionClosedError("closed"), "not sent", "To try again, run the same command.", ()),
    (caller(REFUND), errors.RateLimitedError("429"), "refused", "Wait, and run the command again.", ()),
    (caller(REFUND), LIMITED, "refused", "Wait 90 seconds, and run the command again.", ()),
    (caller(QUERY), errors.AuthenticationError("denied"), "refused", "To check the keys:", DOCTOR),
    (caller(QUERY), errors.InvalidSignatureError("forged"), "no response", "To check the keys:", DOCTOR),
    (caller(QUERY), errors.NoAnswerError("silence"), "no response", "", ()),
]


def test_advice() -> None:
    """What is advised can be done: a command that asks is shown only if the service can be asked."""
    for asked, error, outcome, advice, commands in ADVICE:
        result = result_of_error(asked, error)

        assert (outcome, error.args[0]) == (result.outcome, result.reason)
        assert (advice, commands) == (result.advice, result.next), error


def data_of(document: object, **changes: Any) -> Any:
    """Return the payload that is shown of a response with this document."""
    named = evolve(PROFILE, name="changed", **changes)
    response = SubscriptionResponse.of(bare_call(CREATE_SUBSCRIPTION, profile=named), reply(document))
    return result_of_response(caller(SUBSCRIBE, named), response).data


def test_secrets_at_any_depth_are_not_shown() -> None:
    """The payload is shown without signatures, nonces and a customer's details, however deep they stand.

    If the customer is `payer.id`, it is shown without `payer`, and with each other `id`.
    """
    secret = {"sign": "canary", "nonceStr": "canary", "customer": {"email": "canary"}, "amount": 900}
    document = {**secret, "status": "SBX_SCHEDULED", "plan": {**secret, "parts": [secret, "kept"]}}
    shown = {"amount": 900}
    expected = {**shown, "status": "SBX_SCHEDULED", "plan": {**shown, "parts": [shown, "kept"]}}
    dotted = {"id": "S1", "status": "SBX_SCHEDULED", "plan": {"id": 7, "parts": [{"id": 8}]}}

    for customer in ("customer", "payer.customer", "customer.0"):
        assert expected == data_of(document, fields={**PROFILE.fields, "customer": customer})
    payer = {"id": "C1", "email": "canary"}
    assert dotted == data_of({**dotted, "payer": payer}, fields={**PROFILE.fields, "customer": "payer.id"})


def test_payload_without_names_is_not_shown() -> None:
    """A payload that is no object has no names that tell what is secret in it, so none of it is shown."""
    for data in (None, "canary", ["canary"]):
        document = {"data": data, "status": "SBX_SCHEDULED"}

        assert None is data_of(document, answer=evolve(PROFILE.answer, data="data"))
