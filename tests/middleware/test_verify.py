"""Signed responses: what verifies, what does not, and what that leads to."""

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any, Final, cast

import orjson
import pytest
from attrs import evolve

from payasync import (
    AnswerShape,
    ConfigurationError,
    Credentials,
    InvalidSignatureError,
    OutcomeUnknownError,
    Profile,
    ServiceError,
    Session,
    SortedPairs,
)
from payasync.credentials import Secret
from payasync.endpoints import PLACE_ORDER
from payasync.middleware.verify import verify_reply
from payasync.profile.schema import ResultCodes
from payasync.signing.schemes import FREE_TEXT, IDENTIFIERS
from payasync.wire.call import Call, Reply
from tests.building import bare_call
from tests.foreign.recorder import Recorder, answer
from tests.foreign.signatures import hmac_sha256

SCHEME: Final = SortedPairs(algorithm="hmac-sha256", encoding="hex")
SIGNED: Final = Profile(
    signature=SCHEME,
    answer=AnswerShape(data="data", code="code", ok=(0,), order_status="state", signature="data.sign"),
    codes=ResultCodes(not_executed=(7,)),
)
KEYS: Final = Credentials(
    "M1", signing_key="own signing key 1", service_keys=("old service key 1", "new service key 1")
)


def signed(key: str, code: int = 0, **data: Any) -> bytes:
    """Return an answer, its payload signed with a key by a few lines of this test's own."""
    text = "&".join(f"{name}={value}" for name, value in sorted(data.items()))
    sign = hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
    return json.dumps({"code": code, "data": {**data, "sign": sign}}).encode()


async def queried(body: bytes, credentials: Credentials = KEYS, profile: Profile = SIGNED) -> str | int | None:
    """Return the state that a query is told by this answer."""
    with Recorder([answer(200, body)]) as service:
        async with Session(service.url, credentials=credentials, profile=profile) as pay:
            return (await pay.orders.query("T1")).order_status


@pytest.mark.parametrize("key", ["old service key 1", "new service key 1"])
async def test_any_of_the_services_keys_verifies(key: str) -> None:
    """Each of several service keys verifies, so that keys can rotate."""
    assert "PAID" == await queried(signed(key, state="PAID"))


async def test_without_service_keys_a_symmetric_scheme_takes_the_merchants() -> None:
    """With a symmetric scheme and no service keys, the merchant's key verifies."""
    assert "PAID" == await queried(
        signed("own signing key 1", state="PAID"), Credentials("M1", signing_key="own signing key 1")
    )


@pytest.mark.parametrize(
    "body",
    [
        signed("stolen service key", state="PAID"),
        signed("new service key 1", state="PENDING").replace(b"PENDING", b"PAID"),
        b'{"code":0,"data":{"state":"PAID"}}',
        b'{"code":0,"data":{"state":"PAID","sign":5}}',
        b'{"code":0,"data":"PAID"}',
        signed("new service key 1", state="PAID").replace(b'"state"', b'"state":"PENDING","state"'),
    ],
    ids=["another key", "changed", "unsigned", "no text", "no object", "one name twice"],
)
async def test_a_forged_success_is_believed_by_nobody(body: bytes) -> None:
    """A query whose answer does not verify raises, and is not asked again."""
    with pytest.raises(InvalidSignatureError) as caught:
        await queried(body)

    assert ("orders.query", "T1", 1) == (caught.value.operation, caught.value.reference, caught.value.attempts)


async def test_a_forged_answer_to_a_write_leaves_it_unknown() -> None:
    """A write whose answer does not verify may have been done; the signature's error is the reason."""
    with Recorder([answer(200, signed("stolen service key", state="PENDING"))]) as service:
        async with Session(service.url, credentials=KEYS, profile=SIGNED) as pay:
            with pytest.raises(OutcomeUnknownError) as caught:
                await pay.orders.place(total_amt=1, currency="CAD")

    assert isinstance(caught.value.reason, InvalidSignatureError)
    assert 1 == len(service.requests)


async def test_a_failure_without_a_signature_is_taken_by_its_code() -> None:
    """A refusal that carries no signed object is a refusal."""
    with pytest.raises(ServiceError) as caught:
        await queried(b'{"code":7}')

    assert 7 == caught.value.code


async def test_a_failure_that_carries_a_forged_signature_is_none() -> None:
    """A refusal whose signature is wrong is not believed."""
    with pytest.raises(InvalidSignatureError):
        await queried(signed("stolen service key", code=7, state="NONE"))


async def test_without_any_key_nothing_is_sent() -> None:
    """A profile with signed answers needs a key to verify them, before anything is sent."""
    profile = evolve(SIGNED, signed=())
    with Recorder() as service:
        async with Session(service.url, credentials=Credentials("M1"), profile=profile) as pay:
            with pytest.raises(ConfigurationError) as caught:
                await pay.orders.query("T1")

    assert "credentials.service_keys" == caught.value.field
    assert [] == service.requests


def written(text: str) -> bytes:
    """Return an answer whose payload has this JSON, signed by `openssl` over these pairs."""
    payload, _, pairs = text.partition(" as ")
    return f'{{"code":0,"data":{{{payload},"sign":"{hmac_sha256(pairs, "new service key 1")}"}}}}'.encode()


VALUES: Final = {
    "null": ({}, '"note":null,"state":"PAID" as state=PAID'),
    "null as a text": ({"skip_null": False}, '"note":null,"state":"PAID" as note=null&state=PAID'),
    "true": ({"booleans": "json"}, '"state":"PAID","vip":true as state=PAID&vip=true'),
    "false": ({"booleans": "json"}, '"state":"PAID","vip":false as state=PAID&vip=false'),
    "number": ({"numbers": "text"}, '"rate":1.10,"state":"PAID" as rate=1.10&state=PAID'),
    "exponent": ({"numbers": "text"}, '"rate":-1E+2,"state":"PAID" as rate=-1E+2&state=PAID'),
    "inside an object": (
        {"numbers": "text", "nested": "json"},
        (
            '"fee": {"rate": 1.10, "paid": true, "by": null},"state":"PAID" '
            'as fee={"rate":1.10,"paid":true,"by":null}&state=PAID'
        ),
    ),
}


@pytest.mark.parametrize(("options", "text"), VALUES.values(), ids=VALUES)
async def test_values_that_the_service_signs(options: dict[str, Any], text: str) -> None:
    """A genuine answer with a null, a bool or a number is verified as the profile says that it is signed."""
    profile = evolve(SIGNED, signature=evolve(SCHEME, **options))

    assert "PAID" == await queried(written(text), profile=profile)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"skip_null": False}, '"note":null,"state":"PAID" as state=PAID'),
        ({"booleans": "json"}, '"state":"PAID","vip":true as state=PAID&vip=false'),
        ({"numbers": "text"}, '"rate":1.10,"state":"PAID" as rate=1.1&state=PAID'),
        ({"numbers": "text"}, '"rate":1.1,"state":"PAID" as rate=1.10&state=PAID'),
    ],
)
async def test_other_values_are_forged(options: dict[str, Any], text: str) -> None:
    """What is allowed is signed nevertheless, a number digit by digit."""
    profile = evolve(SIGNED, signature=evolve(SCHEME, **options))
    with pytest.raises(InvalidSignatureError, match="a response that is not signed by the service"):
        await queried(written(text), profile=profile)


REFUSED: Final = {
    "bool": ('"state":"PAID","vip":true', "data.vip holds true or false", 'signature.booleans = "json"'),
    "number": ('"rate":1.10,"state":"PAID"', "data.rate holds a number with a fraction", 'signature.numbers = "text"'),
    "object": (
        '"fee":{},"state":"PAID"',
        "data.fee holds an object or a list",
        'signature.nested = "json" or "omit"',
    ),
    "delimiter": (
        '"state":"PAID","url":"/?a=b"',
        "data.url holds a delimiter",
        "its name in signature.allow_delimiters",
    ),
}


@pytest.mark.parametrize(("payload", "what", "setting"), REFUSED.values(), ids=REFUSED)
async def test_value_that_the_profile_refuses_is_named(payload: str, what: str, setting: str) -> None:
    """An answer that the profile cannot verify says which field it is, and what to set, for a read and for a write."""
    body = written(f"{payload} as nobody knows how")
    with pytest.raises(InvalidSignatureError) as read:
        await queried(body)
    with Recorder([answer(200, body)]) as service:
        async with Session(service.url, credentials=KEYS, profile=SIGNED) as pay:
            with pytest.raises(OutcomeUnknownError) as write:
                await pay.orders.place(total_amt=1, currency="CAD")

    why = f"{what}, which the profile's signature refuses: if the service signs that, set {setting}"
    assert f"a response whose signature cannot be checked: {why}" in str(read.value)
    assert isinstance(write.value.reason, InvalidSignatureError)
    assert why in str(write.value)
    assert why in str(write.value.reason)


async def test_long_integer_is_named() -> None:
    """For an integer that no scheme signs there is nothing to set."""
    with pytest.raises(InvalidSignatureError, match=r"data\.no holds what no profile's signature can verify"):
        await queried(written(f'"no":{2**70},"state":"PAID" as no={2**70}&state=PAID'))


async def test_number_in_an_object_is_named() -> None:
    """Where objects are signed it is the number in one that is refused."""
    profile = evolve(SIGNED, signature=evolve(SCHEME, nested="json"))
    with pytest.raises(InvalidSignatureError, match=r'data.fee holds .* set signature.numbers = "text"'):
        await queried(written('"fee":{"rate":1.5},"state":"PAID" as nobody knows how'), profile=profile)


async def test_without_a_scheme_answers_cannot_be_verified() -> None:
    """A profile with signed answers and no scheme is incomplete."""
    with pytest.raises(ConfigurationError) as caught:
        await queried(b"{}", profile=evolve(SIGNED, signature=None, signed=()))

    assert "signature" == caught.value.field


KEY: Final = "service key number 1"
ADDRESS: Final = "https://gate.example/pay?no=7&back=https%3A%2F%2Fshop.example&a=b=c"
SHAPES: Final = {
    "at the top": AnswerShape(signature="sign", redirect_url="payUrl"),
    "in the payload": AnswerShape(data="data", signature="data.sign", redirect_url="payUrl"),
    "deeper": AnswerShape(signature="data.sign", redirect_url="data.payUrl"),
}


def profile(answer: AnswerShape = SHAPES["in the payload"], scheme: Any = SCHEME) -> Profile:
    """Return a profile of a service that signs its answers."""
    return Profile(answer=answer, signature=scheme)


def signed_object(fields: Mapping[str, Any], key: str = KEY) -> dict[str, Any]:
    """Return an object with its signature, made by a few lines of this test's own."""
    text = "&".join(f"{name}={fields[name]}" for name in sorted(fields) if fields[name] != "")
    return {**fields, "sign": hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()}


def reply_of(document: object) -> Reply:
    """Return an answer."""
    return Reply(status=200, headers={}, body=orjson.dumps(document))


def verified_with(
    fields: Mapping[str, Any], about: Profile | None = None, scheme: Any = SCHEME, keys: tuple[str, ...] = (KEY,)
) -> bool | None:
    """Return what is made of a payload that is signed_object."""
    about = about or profile()
    call: Call = bare_call(PLACE_ORDER, profile=about)
    object_ = signed_object(fields)
    document = {"data": object_} if about.answer.signature.startswith("data.") else object_
    return verify_reply(call, reply_of(document), scheme, [Secret(key) for key in keys]).verified


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("address", [ADDRESS, "https://gate.example/?a&b", "https://gate.example/?a=b", "&", "="])
def test_redirect_address_may_hold_delimiters(address: str, shape: AnswerShape) -> None:
    """Addresses hold them: that of an order verifies in any scheme, wherever it stands."""
    fields = {"payUrl": address, "state": 0, "tradeNo": "T1"}

    assert "payUrl" not in SCHEME.allow_delimiters
    assert verified_with(fields, profile(shape)) is True


def test_changed_address_does_not_verify() -> None:
    """A changed address does not verify."""
    object_ = signed_object({"payUrl": ADDRESS, "state": 0})
    forged = {**object_, "payUrl": ADDRESS.replace("gate", "evil")}
    call = bare_call(PLACE_ORDER, profile=profile())

    assert verify_reply(call, reply_of({"data": forged}), SCHEME, [Secret(KEY)]).verified is False


def test_pair_that_moved_out_of_another_field_does_not_verify() -> None:
    """A payload does not verify with a pair moved into another field, though its signed text is equal."""
    whole = signed_object({"note": "a", "state": 1})
    joined = {"note": "a&state=1", "sign": whole["sign"]}
    call = bare_call(PLACE_ORDER, profile=profile())

    assert verify_reply(call, reply_of({"data": whole}), SCHEME, [Secret(KEY)]).verified is True
    assert verify_reply(call, reply_of({"data": joined}), SCHEME, [Secret(KEY)]).verified is False


@pytest.mark.parametrize("name", ["note", "state", "redirectUrl", "data.payUrl", *sorted(IDENTIFIERS)])
@pytest.mark.parametrize("value", ["a&b", "a=b"])
def test_other_fields_hold_no_delimiter(name: str, value: str) -> None:
    """A delimiter in any other field is refused, because it could end the field."""
    assert verified_with({"payUrl": ADDRESS, name: value}) is False
    assert verified_with({"payUrl": ADDRESS, name: "ab"}) is True


@pytest.mark.parametrize("name", FREE_TEXT)
def test_fields_of_the_scheme_hold_theirs(name: str) -> None:
    """What the scheme itself allows stays allowed beside the address."""
    assert verified_with({"payUrl": ADDRESS, name: "a&b=c"}) is True


@pytest.mark.parametrize("name", sorted(IDENTIFIERS))
def test_identifiers_never_hold_delimiters(name: str) -> None:
    """Not even where a profile takes one for the address: what it identifies must not be shifted."""
    about = profile(AnswerShape(data="data", signature="data.sign", redirect_url=name))

    assert verified_with({name: "T1&a=b"}, about) is False
    assert verified_with({name: "T1"}, about) is True


def test_without_an_address_nothing_is_allowed() -> None:
    """Without a redirect address in the profile, no field may hold delimiters."""
    about = profile(AnswerShape(data="data", signature="data.sign"))

    assert verified_with({"payUrl": ADDRESS}, about) is False
    assert verified_with({"": "a&b"}, about) is False


def test_two_services_are_kept_apart() -> None:
    """The address of one profile is not that of another."""
    other = profile(AnswerShape(data="data", signature="data.sign", redirect_url="goTo"))

    assert [True, False] == [verified_with({"payUrl": ADDRESS}), verified_with({"payUrl": ADDRESS}, other)]
    assert [False, True] == [verified_with({"goTo": ADDRESS}), verified_with({"goTo": ADDRESS}, other)]


@pytest.mark.parametrize("options", [{"separator": "|"}, {"exclude": ("sign", "payUrl")}], ids=str)
def test_any_scheme_of_pairs(options: dict[str, Any]) -> None:
    """The address stands in a text of any form, or is left out of it."""
    scheme = evolve(SCHEME, **options)
    fields = {"payUrl": "https://gate.example/?a|b=c", "state": 0}
    object_ = {**fields, "sign": ""}
    pairs = [f"{name}={fields[name]}" for name in sorted(fields) if name not in scheme.exclude]
    object_["sign"] = hmac.new(KEY.encode(), scheme.separator.join(pairs).encode(), hashlib.sha256).hexdigest()
    call = bare_call(PLACE_ORDER, profile=profile(scheme=scheme))

    assert verify_reply(call, reply_of({"data": object_}), scheme, [Secret(KEY)]).verified is True


class Own:
    """A scheme of a merchant's own, which is equal to others, and so has no hash."""

    def __init__(self, said: object = True) -> None:  # noqa: FBT002 - it may say anything
        self.said = said
        self.seen: list[tuple[Mapping[str, Any], str, str, str]] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own)

    __hash__ = None  # type: ignore[assignment] # as Python itself does it beside `__eq__`

    def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> str:
        """Sign nothing."""
        raise AssertionError(fields, path, key)

    def verify(self, fields: Mapping[str, Any], signature: str, *, path: str, key: Secret) -> bool:
        """Say what it was told to, or raise it."""
        self.seen.append((fields, signature, path, key.reveal()))
        if isinstance(self.said, Exception):
            raise self.said
        return cast("bool", self.said)


def test_scheme_of_ones_own() -> None:
    """It gets the fields as they came, without the signature, and decides alone; it need not be hashable."""
    own = Own()
    fields = {"payUrl": ADDRESS, "note": "a&b"}

    assert verified_with(fields, scheme=own) is True
    assert [(fields, signed_object(fields)["sign"], "/payment/unifiedorder", KEY)] == own.seen


@pytest.mark.parametrize("said", [False, None, 1, "yes", RuntimeError("no key store")], ids=repr)
def test_scheme_that_does_not_say_true(said: object) -> None:
    """Only `True` from a merchant's own scheme verifies; one that raises verifies nothing."""
    assert verified_with({"payUrl": ADDRESS}, scheme=Own(said)) is False
