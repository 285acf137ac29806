"""Which fields of a response the signature must cover.

The payload and states must be signed, because anybody could change them otherwise. If one key signs requests and
responses, the signature must cover a field that no request holds. Otherwise an echoed request would pass as a response.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import Credentials, Profile, RetryPolicy, Session
from payasync.errors import InvalidArgumentError, OutcomeUnknownError
from payasync.profile import Accept, AnswerShape, Idempotency, Parameter
from payasync.profile.signed_fields import SignedFields
from payasync.signing import SortedPairs
from payasync.wire.encode import make_text_check
from tests.foreign import signatures
from tests.foreign.recorder import Recorder, answer
from tests.profile.refusal import refusal

SCHEME: Final[dict[str, Any]] = {"algorithm": "hmac-sha256", "encoding": "hex"}


OWN_SCHEME: Final = SimpleNamespace(sign=str, verify=bool)
"""A scheme of the merchant's own, which may sign any part of an object."""
OWN_KEY: Final = "signing key of the merchant"


def session(profile: Profile, *service_keys: str) -> Session:
    """Return a session that opens no connection."""
    credentials = Credentials("M1", signing_key=OWN_KEY, service_keys=service_keys)
    return Session("https://pay.example", credentials=credentials, profile=profile)


PAIRS: Final = SortedPairs(**SCHEME)
JSON, OMIT = evolve(PAIRS, nested="json"), evolve(PAIRS, nested="omit")
NOT_COVERED: Final[list[tuple[dict[str, Any], SortedPairs, str]]] = [
    ({"data": "data", "signature": "sign"}, OMIT, "data"),
    ({"data": "data", "signature": "other.sign"}, PAIRS, "data"),
    ({"data": "data", "signature": "data.inner.sign"}, PAIRS, "data"),
    ({"data": "data", "signature": "sign"}, evolve(JSON, exclude=("sign", "data")), "data"),
    ({"data": "data", "signature": "data.sign", "order_status": "order.state"}, OMIT, "order_status"),
    ({"signature": "sign", "refund_status": "data.state"}, OMIT, "refund_status"),
    ({"signature": "data.sign", "payment_status": "state"}, PAIRS, "payment_status"),
    ({"signature": "sign", "must": {"meta.mode": "live"}}, OMIT, "must.meta.mode"),
    ({"signature": "sign", "subscription_status": "st"}, evolve(PAIRS, exclude=("sign", "st")), "subscription_status"),
]
COVERED: Final[list[tuple[dict[str, Any], Any]]] = [
    ({"data": "data", "code": "code", "ok": ("0",), "order_status": "state", "signature": "data.sign"}, PAIRS),
    ({"data": "data", "signature": "sign", "order_status": "a.b"}, JSON),
    ({"signature": "sign", "order_status": "state"}, OMIT),
    ({"signature": "data.sign", "order_status": "data.state"}, PAIRS),
    ({"signature": "sign", "redirect_url": "url", "order_status": "state"}, evolve(PAIRS, exclude=("sign", "url"))),
    ({"data": "data", "signature": "sign", "order_status": "a.b"}, OWN_SCHEME),
    ({"data": "data", "signature": "data.sign"}, None),
    ({"data": "data", "order_status": "a.b"}, OMIT),
]


def test_covered() -> None:
    """If the signature does not cover the payload or a state, a session refuses the profile, and names the field.

    The code and the redirect URL may be unsigned.
    """
    for shape, scheme, name in NOT_COVERED:
        field, words = refusal(session, Profile(answer=AnswerShape(**shape), signature=scheme))

        assert f"answer.{name}" == field
        assert words.startswith(f"answer.{name} is ")
        assert f"which the signature at '{shape['signature']}' does not cover" in words
    for shape, scheme in COVERED:
        profile = Profile(answer=AnswerShape(**shape), signature=scheme)

        assert session(profile).profile is profile


INSIDE: Final = {"data": "data", "signature": "data.sign"}
NOTHING_OF_ITS_OWN: Final[dict[str, dict[str, Any]]] = {
    "nothing": INSIDE,
    "code outside": {**INSIDE, "code": "code", "ok": ("0",)},
    "code in another object": {**INSIDE, "code": "head.code", "ok": ("0",)},
    "message outside": {**INSIDE, "message": "msg"},
    "left out": {"signature": "sign", "redirect_url": "payUrl"},
    "header": {"signature": "sign", "request_id": "header:X-Request-Id"},
    "what is compared": {**INSIDE, "out_trade_no": "no", "total_amt": "amount", "merchant_id": "shop"},
    "what is signed itself": {"signature": "data.sign", "payment_id": "data"},
    "argument": {**INSIDE, "order_status": "subject"},
    "amount": {**INSIDE, "payment_status": "amount"},
    "inside an argument": {"signature": "sign", "order_status": "customer.state"},
    "beside an argument": {"signature": "sign", "order_status": "sum.state"},
    "field": {**INSIDE, "order_status": "agreementNo"},
    "constant": {**INSIDE, "order_status": "signType"},
    "parameter": {**INSIDE, "order_status": "orderNo"},
    "demanded in extra": {**INSIDE, "order_status": "shopNo"},
    "nonce": {**INSIDE, "payment_id": "nonceStr"},
    "signature": {**INSIDE, "payment_id": "sign"},
    "merchant": {**INSIDE, "payment_id": "merchantId"},
    "a code outside": {**INSIDE, "code": ["data.code", "code"], "ok": ("0",)},
    "a message outside": {**INSIDE, "message": ["msg", "data.msg"]},
    "no code in a success": {**INSIDE, "code": "data.code", "message": "data.msg", "code_optional": True},
    "parts of the address": {**INSIDE, "redirect_template": "https://pay.example/{amount}?for={orderNo}"},
}
"""Answers in whose signature nothing stands that a request by the profile below does not say, too."""
NESTED: Final = evolve(PAIRS, nested="json", exclude=("sign", "payUrl"))
SAYING: Final = Profile(
    signature=NESTED,
    fields={"subscription_id": "agreementNo", "customer": "customer", "orders.place": {"total_amt": "sum.total"}},
    constants={"orders.place": {"signType": "HMAC"}},
    payment_status=Parameter("orderNo"),
    accept=Accept(required={"orders.place": ("shopNo", "subject")}),
)


def saying(shape: dict[str, Any]) -> Profile:
    """Return a profile with many request fields, and with this response shape."""
    return evolve(SAYING, answer=AnswerShape(**shape))


def test_request_that_is_sent_back_would_pass() -> None:
    """If one key signs both ways, a session needs a signed response field that no request holds. Else it needs none."""
    for keys in [(), (OWN_KEY,), ("key of the service", OWN_KEY)]:
        for shape in NOTHING_OF_ITS_OWN.values():
            field, words = refusal(session, saying(shape), *keys)

            assert "answer.signature" == field
            assert "covers nothing that only a response says" in words
            assert "credentials.service_keys" in words
            assert "M1" == session(saying(shape), "key of the service").merchant_id


def test_idempotency_key_is_no_proof() -> None:
    """A field that carries an idempotency key proves nothing, because a write that is sent back has it, too."""
    profile = saying({"signature": "sign", "request_id": "requestKey"})

    assert profile is session(profile).profile
    assert "answer.signature" == refusal(session, evolve(profile, idempotency=Idempotency(field="requestKey")))[0]


def test_what_only_a_response_says() -> None:
    """One signed path that no request holds is enough: also each path of the code or the message, or of the address."""
    points = ("message", "request_id", "payment_id", "payment_status", "redirect_url", "order_status")
    shapes: list[dict[str, Any]] = [
        *({"signature": "sign", point: at} for at in ("own", "own.inner") for point in points),
        {"signature": "sign", "code": "own", "ok": ("0",)},
        {"signature": "sign", "code": ["own.code", "code"], "ok": ("0",)},
        {**INSIDE, "message": ["data.msg"]},
        {**INSIDE, "message": ["data.msg", "data.words"], "code": "code", "code_optional": True, "payment_id": "no"},
        {**INSIDE, "redirect_template": "https://pay.example/{gatewayNo}?amount={amount}"},
    ]
    for shape in shapes:
        profile = saying(shape)

        assert session(profile).profile is profile


def test_service_with_a_pair_of_keys(tmp_path: Path) -> None:
    """If the service signs with its own key pair, no such field is needed either."""
    for whose in ("merchant", "service"):
        (tmp_path / whose).mkdir()
    (own, _), (_, public) = (signatures.ed25519_keys(tmp_path / whose) for whose in ("merchant", "service"))
    profile = evolve(saying(INSIDE), signature=evolve(NESTED, algorithm="ed25519", encoding="base64"))
    credentials = Credentials("M1", signing_key=own.read_text(), service_keys=(public.read_text(),))

    assert profile is Session("https://pay.example", credentials=credentials, profile=profile).profile


def test_another_merchant_is_held_to_it_too() -> None:
    """`for_merchant` makes the same check: without a service key of its own, the copy is refused."""
    pay = session(saying(INSIDE), "key of the service")
    _, words = refusal(pay.for_merchant, Credentials("M2", signing_key=OWN_KEY))

    assert "covers nothing that only a response says" in words


PROVEN: Final = {"signature": "sign", "code": "code", "ok": ("OK",), "order_status": "state.name"}
DELIMITED: Final = evolve(PAIRS, nested="json", allow_delimiters=(*PAIRS.allow_delimiters, "customer", "memo"))
BELIEVED: Final = evolve(
    saying(PROVEN),
    signature=DELIMITED,
    accept=Accept(),
    fields={"customer": "customer", "frequency": "cycle", "start_date": "from", "subscription_amount": "fee"},
    formats={"start_date": "%Y"},
    signed=["orders.place", "refunds.create", "subscriptions.create"],
)
FAST: Final = RetryPolicy(base_delay=0.001, max_delay=0.002)


def paying(service: Recorder, profile: Profile, *service_keys: str) -> Session:
    """Return a session for a server of the test."""
    credentials = Credentials("M1", secret_key="sk", signing_key=OWN_KEY, service_keys=service_keys)
    return Session(service.url, credentials=credentials, profile=profile, retry=FAST)


async def refused(profile: Profile, name: str, **arguments: Any) -> InvalidArgumentError:
    """Return the error with which a call is refused, and check that nothing was sent."""
    with Recorder() as service:
        async with paying(service, profile) as pay:
            method = pay.request if name == "request" else pay.orders.place
            with pytest.raises(InvalidArgumentError) as caught:
                await method(**arguments)
        assert [] == service.requests
    return caught.value


@pytest.mark.parametrize("name", ["code", "state"])
async def test_no_request_says_what_a_response_is_recognised_by(name: str) -> None:
    """A signed request must not hold a field by which a response is recognised, in `extra=` or `fields=`."""
    extra = await refused(BELIEVED, "place", total_amt=450, currency="CAD", extra={name: "OK"})
    fields = await refused(BELIEVED, "request", method="POST", path="/x", fields={name: "OK"}, signed=True)

    assert ["extra", "fields"] == [extra.field, fields.field]
    assert [f"without {name}"] * 2 == [extra.rule, fields.rule]
    for error in (extra, fields):
        assert (
            f"must not hold {name}, which no request may say, because a response or a notification is recognised by it"
            in str(error)
        )


async def test_text_that_could_be_split_into_it() -> None:
    """A signed request, also one of `pay.request`, must not hold a text that has such a field after a separator."""
    cases: list[dict[str, Any]] = [
        {"body": "a&code=OK"},
        {"subject": "&state=", "body": "a=b & code=1"},
        {"notify_url": "https://shop.example/?a=1&code=2"},
        {"extra": {"memo": "a&code=OK"}},
        {"extra": {"memo": [{"a": "x&state=1"}]}},
    ]
    for given in cases:
        error = await refused(BELIEVED, "place", total_amt=450, currency="CAD", **given)

        assert error.rule in {"free of '&code='", "free of '&state='"}
        assert error.field in {"body", "subject", "notifyUrl", "memo"}
    error = await refused(BELIEVED, "request", method="POST", path="/x", fields={"body": "a&code=OK"}, signed=True)

    assert ("body", "free of '&code='", "&code=") == (error.field, error.rule, error.value)


def test_nested_value_is_searched_as_it_is_signed() -> None:
    """A nested value is searched in its signed form, compact JSON, whatever the separator is."""
    scheme = SortedPairs(separator=',"', nested="json", allow_delimiters=("memo",))
    check = make_text_check(scheme, frozenset({"state"}))
    assert check

    check({"memo": ["a", "status=1"]})
    with pytest.raises(InvalidArgumentError, match="memo must be free of"):
        check({"memo": ["a", "state=1"]})


async def test_requests_say_what_they_like_elsewhere() -> None:
    """If an echoed request could not pass as a response, such fields and texts are sent."""
    for profile, keys in [
        (BELIEVED, ("key of the service",)),
        (evolve(BELIEVED, answer=evolve(BELIEVED.answer, signature="")), ()),
        (evolve(BELIEVED, signed=[]), ()),
    ]:
        async with Recorder() as service, paying(service, profile, *keys) as pay:
            with pytest.raises(OutcomeUnknownError):
                await pay.orders.place(total_amt=450, currency="CAD", body="a&code=OK", extra={"code": "OK"})
            with pytest.raises(OutcomeUnknownError):
                await pay.request("POST", "/x", fields={"code": "OK", "body": "a&code=OK"}, signed=bool(keys))

        assert ["OK", "OK"] == [signatures.fields(each)["code"] for each in service.requests]


async def test_texts_that_could_not_be_split() -> None:
    """A text may hold other delimiters, and the name of such a field without a separator."""
    text = "code=OK, a=b & c, encode=1 &barcode=2"
    async with Recorder() as service, paying(service, BELIEVED) as pay:
        with pytest.raises(OutcomeUnknownError):
            await pay.orders.place(total_amt=450, currency="CAD", body=text, extra={"memo": {"code": "OK"}})

    assert text == signatures.fields(service.only)["body"]


SENT_BACK: Final = "it may be a request that was sent back"


async def test_what_leaves_no_trace_in_the_signature_proves_nothing() -> None:
    """A field that the signature skips, such as an object or an empty text, does not make an echo a response.

    The outcome of the write stays unknown.
    """
    for state, why in [
        ({}, SENT_BACK),
        ({"paid": True}, SENT_BACK),
        ([], SENT_BACK),
        (["PAID"], SENT_BACK),
        ("", SENT_BACK),
        (None, "cannot be believed|not signed by the service"),
        ("PAID", "not signed by the service"),
    ]:
        shape = AnswerShape(signature="sign", order_status="state")
        profile = Profile(signature=SortedPairs(**SCHEME, nested="omit"), answer=shape)
        async with Recorder() as first, paying(first, profile) as pay:
            with pytest.raises(OutcomeUnknownError):
                await pay.orders.close("T1")
        sent_back = {**signatures.fields(first.requests[0]), "state": state}
        with Recorder(by_path={"/payment/closeorder": answer(body=json.dumps(sent_back).encode())}) as service:
            async with paying(service, profile) as pay:
                with pytest.raises(OutcomeUnknownError, match=why):
                    await pay.orders.close("T1")


def test_where_nothing_is_signed_nothing_is_read() -> None:
    """If the signed object is missing or no object, nothing is read."""
    for document in [{}, {"data": []}, {"data": "x"}, {"data": None}, [{"no": "1"}]]:
        signed = SignedFields("data", "sign")

        assert {"data": {}} == signed.read({"head": document, **(document if isinstance(document, dict) else {})})


def test_names_in_the_signed_object() -> None:
    """Only fields that the signature covers count, neither paths outside the object nor excluded fields."""
    signed = SignedFields("data", "sign", SortedPairs(exclude=("sign", "type")))

    assert {"state", "sum"} == signed.names_of(["data.state", "data.sum.total", "data.type", "data.sign", "code.x", ""])
