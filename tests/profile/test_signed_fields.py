"""What the signature of an answer covers: a payload and a state beside it would be anybody's.

And what in it no request says: where one key signs both, a request that is sent back would pass for an answer.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import (
    Accept,
    AnswerShape,
    Credentials,
    InvalidArgumentError,
    OutcomeUnknownError,
    Parameter,
    Profile,
    RetryPolicy,
    Session,
    SortedPairs,
)
from payasync.profile.signed_fields import SignedFields
from tests.foreign import signatures
from tests.foreign.recorder import Recorder, answer
from tests.profile.refusal import refusal

SCHEME: Final[dict[str, Any]] = {"algorithm": "hmac-sha256", "encoding": "hex"}


OWN_SCHEME: Final = SimpleNamespace(sign=str, verify=bool)
"""A scheme of the merchant's own, which may sign any part of an object."""
OWN_KEY: Final = "signing key of the merchant"


def session(profile: Profile, *service_keys: str) -> Session:
    """Return a session, which opens nothing."""
    credentials = Credentials("M1", signing_key=OWN_KEY, service_keys=service_keys)
    return Session("https://pay.example", credentials=credentials, profile=profile)


@pytest.mark.parametrize(
    ("answer", "options", "point"),
    [
        ({"data": "data", "signature": "sign"}, {"nested": "omit"}, "answer.data"),
        ({"data": "data", "signature": "other.sign"}, {}, "answer.data"),
        ({"data": "data", "signature": "data.inner.sign"}, {}, "answer.data"),
        ({"data": "data", "signature": "sign"}, {"nested": "json", "exclude": ("sign", "data")}, "answer.data"),
        (
            {"data": "data", "signature": "data.sign", "order_status": "order.state"},
            {"nested": "omit"},
            "answer.order_status",
        ),
        ({"signature": "sign", "refund_status": "data.state"}, {"nested": "omit"}, "answer.refund_status"),
        ({"signature": "data.sign", "payment_status": "state"}, {}, "answer.payment_status"),
        ({"signature": "sign", "subscription_status": "st"}, {"exclude": ("sign", "st")}, "answer.subscription_status"),
    ],
)
def test_believed_and_not_covered(answer: dict[str, Any], options: dict[str, Any], point: str) -> None:
    """A payload or a state that no signature covers is refused by a session, as it is made, by its name."""
    profile = Profile(answer=AnswerShape(**answer), signature=SortedPairs(**SCHEME, **options))
    field, words = refusal(session, profile)

    assert point == field
    assert words.startswith(f"{point} is ")
    assert f"which the signature at '{answer['signature']}' does not cover" in words


@pytest.mark.parametrize(
    ("answer", "scheme"),
    [
        (
            {"data": "data", "code": "code", "ok": ("0",), "order_status": "state", "signature": "data.sign"},
            SortedPairs(**SCHEME),
        ),
        ({"data": "data", "signature": "sign", "order_status": "a.b"}, SortedPairs(**SCHEME, nested="json")),
        ({"signature": "sign", "order_status": "state"}, SortedPairs(**SCHEME, nested="omit")),
        ({"signature": "data.sign", "order_status": "data.state"}, SortedPairs(**SCHEME)),
        (
            {"signature": "sign", "redirect_url": "payUrl", "order_status": "state"},
            SortedPairs(**SCHEME, exclude=("sign", "payUrl")),
        ),
        ({"data": "data", "signature": "sign", "order_status": "a.b"}, OWN_SCHEME),
        ({"data": "data", "signature": "data.sign"}, None),
        ({"data": "data", "order_status": "a.b"}, SortedPairs(**SCHEME, nested="omit")),
    ],
    ids=["envelope", "nested", "flat", "by paths", "address", "own scheme", "no scheme yet", "not signed"],
)
def test_covered(answer: dict[str, Any], scheme: Any) -> None:
    """What the signature's object holds is; a code beside it and an address that a service leaves out may be."""
    profile = Profile(answer=AnswerShape(**answer), signature=scheme)

    assert session(profile).profile is profile


PAIRS: Final = SortedPairs(**SCHEME)
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
    "field": {**INSIDE, "order_status": "agreementNo"},
    "constant": {**INSIDE, "order_status": "signType"},
    "parameter": {**INSIDE, "order_status": "orderNo"},
    "demanded in extra": {**INSIDE, "order_status": "shopNo"},
    "nonce": {**INSIDE, "payment_id": "nonceStr"},
    "signature": {**INSIDE, "payment_id": "sign"},
    "merchant": {**INSIDE, "payment_id": "merchantId"},
}
"""Answers in whose signature nothing stands that a request by the profile below does not say, too."""
NESTED: Final = evolve(PAIRS, nested="json", exclude=("sign", "payUrl"))
SAYING: Final = Profile(
    signature=NESTED,
    fields={"subscription_id": "agreementNo", "customer": "customer"},
    constants={"orders.place": {"signType": "HMAC"}},
    payment_status=Parameter("orderNo"),
    accept=Accept(required={"orders.place": ("shopNo", "subject")}),
)


def saying(shape: dict[str, Any]) -> Profile:
    """Return a profile whose requests say much, and whose answers are like this."""
    return evolve(SAYING, answer=AnswerShape(**shape))


@pytest.mark.parametrize("shape", NOTHING_OF_ITS_OWN.values(), ids=NOTHING_OF_ITS_OWN)
@pytest.mark.parametrize(
    "keys", [(), (OWN_KEY,), ("key of the service", OWN_KEY)], ids=["none", "same", "among others"]
)
def test_request_that_is_sent_back_would_pass(shape: dict[str, Any], keys: tuple[str, ...]) -> None:
    """Where a key signs requests and verifies answers, a session needs something signed that no request says."""
    field, words = refusal(session, saying(shape), *keys)

    assert "answer.signature" == field
    assert "covers nothing that only a response says" in words
    assert "credentials.service_keys" in words


@pytest.mark.parametrize(
    "point", ["code", "message", "request_id", "payment_id", "payment_status", "redirect_url", "order_status"]
)
@pytest.mark.parametrize("at", ["own", "own.inner"])
def test_what_only_a_response_says(point: str, at: str) -> None:
    """One such path inside the signature is enough."""
    ok = {"ok": ("0",)} if point == "code" else {}
    profile = saying({"signature": "sign", point: at, **ok})

    assert session(profile).profile is profile


@pytest.mark.parametrize("shape", NOTHING_OF_ITS_OWN.values(), ids=NOTHING_OF_ITS_OWN)
def test_service_with_a_key_of_its_own(shape: dict[str, Any]) -> None:
    """Nobody can send back what a key of the service's own has not signed."""
    profile = saying(shape)

    assert profile is session(profile, "key of the service").profile


def test_service_with_a_pair_of_keys(tmp_path: Path) -> None:
    """The service's public key verifies nothing that the merchant's private key has signed."""
    for whose in ("merchant", "service"):
        (tmp_path / whose).mkdir()
    (own, _), (_, public) = (signatures.ed25519_keys(tmp_path / whose) for whose in ("merchant", "service"))
    profile = evolve(saying(INSIDE), signature=evolve(NESTED, algorithm="ed25519", encoding="base64"))
    credentials = Credentials("M1", signing_key=own.read_text(), service_keys=(public.read_text(),))

    assert profile is Session("https://pay.example", credentials=credentials, profile=profile).profile


def test_another_merchant_is_held_to_it_too() -> None:
    """A copy for a merchant without a key of the service's own is refused as a session is."""
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
    """Return a session with a server of the test."""
    credentials = Credentials("M1", secret_key="sk", signing_key=OWN_KEY, service_keys=service_keys)
    return Session(service.url, credentials=credentials, profile=profile, retry=FAST)


async def refused(profile: Profile, name: str, **arguments: Any) -> InvalidArgumentError:
    """Return the error that a call is refused with, before anything is sent."""
    with Recorder() as service:
        async with paying(service, profile) as pay:
            method = pay.request if name == "request" else pay.orders.place
            with pytest.raises(InvalidArgumentError) as caught:
                await method(**arguments)
        assert [] == service.requests
    return caught.value


@pytest.mark.parametrize("name", ["code", "state"])
async def test_no_request_says_what_a_response_is_recognised_by(name: str) -> None:
    """`extra=` of a signed call, and `fields=` of a signed `pay.request`, must not hold such a name."""
    extra = await refused(BELIEVED, "place", total_amt=450, currency="CAD", extra={name: "OK"})
    fields = await refused(BELIEVED, "request", method="POST", path="/x", fields={name: "OK"}, signed=True)

    assert ["extra", "fields"] == [extra.field, fields.field]
    assert [f"without {name}"] * 2 == [extra.rule, fields.rule]
    for error in (extra, fields):
        assert (
            f"must not hold {name}, which no request may say, because a response or a notification is recognised by it"
            in str(error)
        )


@pytest.mark.parametrize(
    "given",
    [
        {"body": "a&code=OK"},
        {"subject": "&state=", "body": "a=b & code=1"},
        {"notify_url": "https://shop.example/?a=1&code=2"},
        {"extra": {"memo": "a&code=OK"}},
        {"extra": {"memo": [{"a": "x&state=1"}]}},
    ],
    ids=["body", "subject", "address", "extra", "nested"],
)
async def test_text_that_could_be_split_into_it(given: dict[str, Any]) -> None:
    """A text with such a field in it would be signed as if the field stood in the request."""
    error = await refused(BELIEVED, "place", total_amt=450, currency="CAD", **given)

    assert error.rule in {"free of '&code='", "free of '&state='"}
    assert error.field in {"body", "subject", "notifyUrl", "memo"}


async def test_text_of_a_request_of_ones_own_that_could_be_split() -> None:
    """`pay.request` is held to it, too, where it is signed."""
    error = await refused(BELIEVED, "request", method="POST", path="/x", fields={"body": "a&code=OK"}, signed=True)

    assert ("body", "free of '&code='", "&code=") == (error.field, error.rule, error.value)


@pytest.mark.parametrize(
    ("profile", "keys"),
    [
        (BELIEVED, ("key of the service",)),
        (evolve(BELIEVED, answer=evolve(BELIEVED.answer, signature="")), ()),
        (evolve(BELIEVED, signed=[]), ()),
    ],
    ids=["key of its own", "not signed", "requests not signed"],
)
async def test_requests_say_what_they_like_elsewhere(profile: Profile, keys: tuple[str, ...]) -> None:
    """Where no request could be sent back, none is refused."""
    with Recorder() as service:
        async with paying(service, profile, *keys) as pay:
            with pytest.raises(OutcomeUnknownError):
                await pay.orders.place(total_amt=450, currency="CAD", body="a&code=OK", extra={"code": "OK"})
            with pytest.raises(OutcomeUnknownError):
                await pay.request("POST", "/x", fields={"code": "OK", "body": "a&code=OK"}, signed=bool(keys))

    assert ["OK", "OK"] == [signatures.fields(each)["code"] for each in service.requests]


async def test_texts_that_could_not_be_split() -> None:
    """Other delimiters, and such a name without them, stand in a text as they always may."""
    text = "code=OK, a=b & c, encode=1 &barcode=2"
    with Recorder() as service:
        async with paying(service, BELIEVED) as pay:
            with pytest.raises(OutcomeUnknownError):
                await pay.orders.place(total_amt=450, currency="CAD", body=text, extra={"memo": {"code": "OK"}})

    assert text == signatures.fields(service.only)["body"]


SENT_BACK: Final = "it may be a request that was sent back"


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({}, SENT_BACK),
        ({"paid": True}, SENT_BACK),
        ([], SENT_BACK),
        (["PAID"], SENT_BACK),
        ("", SENT_BACK),
        (None, "cannot be believed|not signed by the service"),
        ("PAID", "not signed by the service"),
    ],
    ids=repr,
)
async def test_what_leaves_no_trace_in_the_signature_proves_nothing(state: object, why: str) -> None:
    """A request that is sent back with an object, a list, a null or an empty text beside its fields verifies as before.

    Nobody signed what the scheme leaves out, so no answer is recognised by it.
    """
    shape = AnswerShape(signature="sign", order_status="state")
    profile = Profile(signature=SortedPairs(**SCHEME, nested="omit"), answer=shape)
    with Recorder() as first:
        async with paying(first, profile) as pay:
            with pytest.raises(OutcomeUnknownError):
                await pay.orders.close("T1")
    sent_back = {**signatures.fields(first.requests[0]), "state": state}
    with Recorder(by_path={"/payment/closeorder": answer(body=json.dumps(sent_back).encode())}) as service:
        async with paying(service, profile) as pay:
            with pytest.raises(OutcomeUnknownError, match=why):
                await pay.orders.close("T1")


@pytest.mark.parametrize("document", [{}, {"data": []}, {"data": "x"}, {"data": None}, [{"no": "1"}]])
def test_where_nothing_is_signed_nothing_is_read(document: Any) -> None:
    """A document without a signed object says nothing."""
    signed = SignedFields("data", "sign")

    assert {"data": {}} == signed.read({"head": document, **(document if isinstance(document, dict) else {})})
