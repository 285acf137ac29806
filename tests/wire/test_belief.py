"""What a session believes, against a server that shares no code with it: it replays, mixes up and sends back."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import orjson
import pytest
from attrs import evolve

from payasync import (
    AnswerShape,
    ConfigurationError,
    Credentials,
    NoAnswerError,
    OutcomeUnknownError,
    Parameter,
    PayasyncError,
    Profile,
    Recovery,
    ResultCodes,
    RetryPolicy,
    Session,
    SortedPairs,
    States,
)
from tests.foreign import signatures
from tests.foreign.recorder import RESET, Answer, Recorder, Request, answer

WRITES: Final = ("payments.create", "orders.place", "orders.close", "refunds.create")
KEY: Final = "a key that signs requests"
SERVICE_KEY: Final = "a key of the service alone"
OWN_KEY: Final = Credentials("1001", secret_key="sk", signing_key=KEY, service_keys=SERVICE_KEY)
SAME_KEY: Final = Credentials("1001", secret_key="sk", signing_key=KEY)

UNSIGNED: Final = Profile(
    signature=SortedPairs(algorithm="hmac-sha256", encoding="hex"),
    signed=("orders.place", "orders.query", "orders.close", "refunds.create", "refunds.status"),
    fields={"subscription_id": "subscriptionId"},
    payment_status=Parameter("outTradeNo"),
    refund_status=Parameter("outRefundNo"),
    answer=AnswerShape(
        data="data",
        code="code",
        ok=(0,),
        order_status="tradeStatus",
        payment_status="tradeStatus",
        refund_status="refundStatus",
        payment_id="paymentNo",
        redirect_url="payUrl",
    ),
    states=States(
        order={"pending": ("WAIT",), "paid": ("PAID",), "closed": ("CLOSED",)},
        payment={"pending": ("WAIT",), "paid": ("PAID",)},
        refund={"processing": ("BUSY",), "succeeded": ("DONE",), "failed": ("NO",)},
    ),
    codes=ResultCodes(not_executed=(9,), absent=(4,)),
    recovery=Recovery(quarantine=60.0),
)
SIGNED: Final = evolve(UNSIGNED, answer=evolve(UNSIGNED.answer, signature="data.sign", refusals_signed=False))

REFUND: Final[dict[str, Any]] = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 450, "refund_amt": 200}
ORDER: Final[dict[str, Any]] = {"out_trade_no": "T1", "total_amt": 450, "currency": "CAD"}

Ask = Callable[[Session], Awaitable[Any]]

CALLS: Final[Mapping[str, Ask]] = {
    "payments.create": lambda pay: pay.payments.create(amount=1000, currency="USD"),
    "orders.place": lambda pay: pay.orders.place(**ORDER),
    "orders.query": lambda pay: pay.orders.query("T1"),
    "orders.close": lambda pay: pay.orders.close("T1"),
    "refunds.create": lambda pay: pay.refunds.create(**REFUND),
    "payments.status": lambda pay: pay.payments.status("T1"),
    "refunds.status": lambda pay: pay.refunds.status("R1"),
}
RIGHT: Final[Mapping[str, dict[str, Any]]] = {
    "payments.create": {"paymentNo": "P1", "amount": 1000, "currency": "USD", "tradeStatus": "WAIT"},
    "orders.place": {"outTradeNo": "T1", "tradeStatus": "WAIT", "payUrl": "https://pay.example/1"},
    "orders.query": {"outTradeNo": "T1", "tradeStatus": "PAID", "totalAmt": 450},
    "orders.close": {"outTradeNo": "T1", "tradeStatus": "CLOSED"},
    "refunds.create": {"outTradeNo": "T1", "outRefundNo": "R1", "refundAmt": 200, "refundStatus": "DONE"},
    "payments.status": {"outTradeNo": "T1", "tradeStatus": "PAID", "paymentNo": "P1"},
    "refunds.status": {"outRefundNo": "R1", "outTradeNo": "T1", "refundStatus": "DONE"},
}
ABOUT_ANOTHER: Final = (
    ("payments.create", "amount", 1),
    ("payments.create", "currency", "CAD"),
    ("orders.place", "outTradeNo", "T2"),
    ("orders.place", "totalAmt", 990),
    ("orders.place", "currency", "USD"),
    ("orders.query", "outTradeNo", "T2"),
    ("orders.query", "merchantId", "1002"),
    ("orders.close", "outTradeNo", "T2"),
    ("refunds.create", "outRefundNo", "R0"),
    ("refunds.create", "refundAmt", "0201"),
    ("refunds.create", "merchantId", "1002"),
    ("payments.status", "outTradeNo", "T2"),
    ("refunds.status", "outRefundNo", "R0"),
)
each_profile = pytest.mark.parametrize("profile", [UNSIGNED, SIGNED], ids=["unsigned", "signed"])


def response(data: Mapping[str, Any], code: int = 0, *, key: str = SERVICE_KEY, status: int = 200) -> Answer:
    """Return what the service says, signed by another program; an unsigned profile ignores the signature."""
    signed = {**data, "sign": signatures.hmac_sha256(signatures.signed_text(data), key)}
    return answer(status, orjson.dumps({"code": code, "data": signed}))


async def ended(ask: Ask, service: Recorder, profile: Profile, credentials: Credentials = OWN_KEY) -> Any:
    """Return the response or the error that a call ends with, after as many questions as any, without the pauses."""
    again = RetryPolicy(base_delay=0)
    with service:
        async with Session(service.url, credentials=credentials, profile=profile, retry=again) as pay:
            try:
                return await ask(pay)
            except PayasyncError as error:
                return error


@each_profile
@pytest.mark.parametrize(("name", "field", "other"), ABOUT_ANOTHER)
async def test_genuine_response_about_another_thing(name: str, field: str, other: object, profile: Profile) -> None:
    """A replayed response about another order, refund, amount or merchant is never believed, and never a refusal."""
    service = Recorder(otherwise=response({**RIGHT[name], field: other}))
    found = await ended(CALLS[name], service, profile)

    assert (OutcomeUnknownError if name in WRITES else NoAnswerError) is type(found)
    assert f"{field} is " in str(found.reason)


@each_profile
@pytest.mark.parametrize("name", RIGHT)
async def test_right_response(name: str, profile: Profile) -> None:
    """What either side lacks is not compared, nor the order of fields."""
    service = Recorder(otherwise=response(dict(reversed(RIGHT[name].items()))))
    found = await ended(CALLS[name], service, profile)

    assert RIGHT[name].items() <= found.data.items()
    assert 1 == found.attempts


@each_profile
async def test_right_response_after_a_replayed_one(profile: Profile) -> None:
    """A read is asked again, and a write asked about: the response about this refund counts."""
    other, right = response({"outRefundNo": "R0", "refundStatus": "DONE"}), response(RIGHT["refunds.status"])
    refund = await ended(CALLS["refunds.create"], Recorder([other, other, right]), profile)
    status = await ended(CALLS["refunds.status"], Recorder([other, right]), profile)

    assert ("succeeded", True, 3) == (refund.state, refund.recovered, refund.attempts)
    assert ("succeeded", False, 2) == (status.state, status.recovered, status.attempts)


@each_profile
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("refunds.create", {"outRefundNo": "R999", "message": "too much"}),
        ("refunds.create", {**RIGHT["refunds.create"]}),
        ("orders.place", {"outTradeNo": "T1", "tradeStatus": "CLOSED"}),
        ("orders.close", {"outTradeNo": "T1", "tradeStatus": "CLOSED"}),
        ("orders.close", {"outTradeNo": "T2"}),
    ],
)
async def test_refusal_that_is_about_another_or_contradicts_itself(
    name: str, data: dict[str, Any], profile: Profile
) -> None:
    """A code that refuses, beside another number or a success of this very write, is no definite refusal."""
    found = await ended(CALLS[name], Recorder(otherwise=response(data, code=9)), profile)

    assert OutcomeUnknownError is type(found)


@each_profile
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("refunds.create", {"outRefundNo": "R1", "refundAmt": 7, "totalAmt": 1}),
        ("refunds.create", {"outRefundNo": "R1", "refundStatus": "NO"}),
        ("refunds.create", {}),
    ],
)
async def test_definite_refusal(name: str, data: dict[str, Any], profile: Profile) -> None:
    """A refusal may name an amount, such as the one that is left, and a state that is no success of the write."""
    found = await ended(CALLS[name], Recorder(otherwise=response(data, code=9)), profile)

    assert "ServiceError" == type(found).__name__
    assert (9, 1) == (found.code, found.attempts)


UNMAPPED: Final = evolve(SIGNED, answer=evolve(SIGNED.answer, refund_status=""), states=States())


@pytest.mark.parametrize(
    ("profile", "data", "refusal"),
    [
        (UNMAPPED, {"outRefundNo": "R1", "refundAmt": 200}, {"code": 9}),
        (SIGNED, {"outRefundNo": "R1", "refundStatus": "ODD"}, {"status": 400}),
    ],
)
async def test_refusal_beside_what_may_be_a_signed_success(
    profile: Profile, data: dict[str, Any], refusal: dict[str, Any]
) -> None:
    """A code or status that no signature covers refuses nothing beside a signed payload that may be a success."""
    found = await ended(CALLS["refunds.create"], Recorder(otherwise=response(data, **refusal)), profile)

    assert OutcomeUnknownError is type(found)


@pytest.mark.parametrize("refusals_signed", [True, False, None])
async def test_absent_beside_a_signed_state(*, refusals_signed: bool | None) -> None:
    """A state that the profile does not know is still one of something that is there: nothing is sent again."""
    answers = evolve(SIGNED.answer, refusals_signed=refusals_signed)
    profile = evolve(SIGNED, answer=answers, recovery=Recovery(quarantine=0.0))
    odd = response({"outRefundNo": "R1", "outTradeNo": "T1", "refundStatus": "ODD"}, code=4)
    service = Recorder(by_path={"/payment/refund": RESET, "/payment/refund/status": odd})
    found = await ended(CALLS["refunds.create"], service, profile)

    assert OutcomeUnknownError is type(found)
    assert 1 == [request.path for request in service.requests].count("/payment/refund")


def sent_back(request: Request) -> Answer:
    """Return a request as a response: its own fields with their own signature, by who knows no key."""
    return answer(200, orjson.dumps({"code": 0, "data": signatures.fields(request)}))


@pytest.mark.parametrize("name", ["orders.place", "orders.query", "orders.close", "refunds.create", "refunds.status"])
async def test_request_that_is_sent_back(name: str) -> None:
    """Where the same key signs both, the body of this or of an earlier request is no response."""
    recorded = Recorder([RESET])
    await ended(CALLS[name], recorded, SIGNED, SAME_KEY)
    echo = sent_back(recorded.requests[0])
    found = await ended(CALLS[name], Recorder(otherwise=echo), SIGNED, SAME_KEY)

    assert (OutcomeUnknownError if name in WRITES else NoAnswerError) is type(found)
    assert "sent back" in str(found.reason)


@pytest.mark.parametrize("code", [9, 4])
async def test_request_that_is_sent_back_as_a_refusal(code: int) -> None:
    """Beside a code that refuses, a request that is sent back is no signed refusal, and no signed "absent"."""
    profile = evolve(SIGNED, answer=evolve(SIGNED.answer, refusals_signed=True), recovery=Recovery(quarantine=0.0))
    recorded = Recorder([RESET])
    await ended(CALLS["refunds.create"], recorded, profile, SAME_KEY)
    echoes = {request.path: signatures.fields(request) for request in recorded.requests}
    by_path = {path: answer(200, orjson.dumps({"code": code, "data": echo})) for path, echo in echoes.items()}
    service = Recorder(by_path=by_path)
    found = await ended(CALLS["refunds.create"], service, profile, SAME_KEY)

    assert OutcomeUnknownError is type(found)
    assert 1 == [request.path for request in service.requests].count("/payment/refund")


@pytest.mark.parametrize("name", ["payments.create", "refunds.create"])
async def test_service_that_sends_the_nonce_back(name: str) -> None:
    """A service with the same key may echo the nonce: its state shows that it is a response."""
    data = {**RIGHT[name], "nonceStr": "1" * 32}
    found = await ended(CALLS[name], Recorder(otherwise=response(data, key=KEY)), SIGNED, SAME_KEY)

    assert data.items() <= found.data.items()


def test_profile_by_which_a_request_passes_for_a_response() -> None:
    """A session with the same key for both is refused if nothing inside the signature is the service's alone."""
    bare = evolve(SIGNED, answer=AnswerShape(data="data", code="code", ok=(0,), signature="data.sign"))
    with pytest.raises(ConfigurationError, match="sent back") as refused:
        Session("https://pay.example", credentials=SAME_KEY, profile=bare)

    assert "answer.signature" == refused.value.field
    assert Session("https://pay.example", credentials=OWN_KEY, profile=bare).profile is bare
