"""Signed responses: which ones verify, and what follows if one does not."""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

import pytest
from attrs import evolve

from payasync import Credentials, Profile, Session
from payasync.credentials import Secret
from payasync.endpoints import PLACE_ORDER
from payasync.errors import ConfigurationError, InvalidSignatureError, OutcomeUnknownError
from payasync.middleware.verify import verify_reply
from payasync.profile import AnswerShape
from payasync.profile.schema import ResultCodes
from payasync.signing import SortedPairs
from payasync.signing.schemes import FREE_TEXT, IDENTIFIERS
from tests.building import bare_call, reply
from tests.foreign.recorder import Recorder, answer
from tests.foreign.signatures import hmac_sha256, signed_text

KEY: Final = "service key number 1"
SCHEME: Final = SortedPairs(algorithm="hmac-sha256", encoding="hex")
SIGNED: Final = Profile(
    signature=SCHEME,
    answer=AnswerShape(data="data", code="code", ok=(0,), order_status="state", signature="data.sign"),
    codes=ResultCodes(not_executed=(7,)),
)
KEYS: Final = Credentials(
    "M1", signing_key="own signing key 1", service_keys=("old service key 1", "new service key 1")
)


def signed_object(fields: Mapping[str, Any], key: str = KEY) -> dict[str, Any]:
    """Return an object with a signature made by `openssl`."""
    return {**fields, "sign": hmac_sha256(signed_text(fields), key)}


def signed(key: str, code: int = 0, **data: Any) -> bytes:
    """Return a response whose payload is signed with a key."""
    return json.dumps({"code": code, "data": signed_object(data, key)}).encode()


async def queried(body: bytes, credentials: Credentials = KEYS, profile: Profile = SIGNED) -> str | int | None:
    """Return the state that a query reads from this response."""
    with Recorder([answer(200, body)]) as service:
        async with Session(service.url, credentials=credentials, profile=profile) as pay:
            return (await pay.orders.query("T1")).order_status


async def test_any_of_the_services_keys_verifies() -> None:
    """Each of several service keys verifies, so that keys can rotate."""
    for key in ["old service key 1", "new service key 1"]:
        assert "PAID" == await queried(signed(key, state="PAID"))


async def test_without_service_keys_a_symmetric_scheme_uses_the_merchants() -> None:
    """With a symmetric scheme and no service keys, the merchant's key verifies."""
    assert "PAID" == await queried(
        signed("own signing key 1", state="PAID"), Credentials("M1", signing_key="own signing key 1")
    )


async def test_a_forged_success_is_believed_by_nobody() -> None:
    """A query whose response does not verify raises, and is not repeated."""
    for body in [
        signed("stolen service key", state="PAID"),
        signed("new service key 1", state="PENDING").replace(b"PENDING", b"PAID"),
        b'{"code":0,"data":{"state":"PAID"}}',
        b'{"code":0,"data":{"state":"PAID","sign":5}}',
        b'{"code":0,"data":"PAID"}',
        signed("new service key 1", state="PAID").replace(b'"state"', b'"state":"PENDING","state"'),
        signed("new service key 1", state="PAID").replace(b'"code":', b'"code":7,"code":'),
    ]:
        with pytest.raises(InvalidSignatureError) as caught:
            await queried(body)

        assert ("orders.query", "T1", 1) == (caught.value.operation, caught.value.reference, caught.value.attempts)


async def test_a_forged_answer_to_a_write_leaves_it_unknown() -> None:
    """If the response to a write does not verify, the outcome is unknown."""
    with Recorder([answer(200, signed("stolen service key", state="PENDING"))]) as service:
        async with Session(service.url, credentials=KEYS, profile=SIGNED) as pay:
            with pytest.raises(OutcomeUnknownError) as caught:
                await pay.orders.place(total_amt=1, currency="CAD")

    assert isinstance(caught.value.reason, InvalidSignatureError)
    assert 1 == len(service.requests)


async def test_without_any_key_nothing_is_sent() -> None:
    """If responses are signed and no key can verify them, nothing is sent."""
    profile = evolve(SIGNED, signed=())
    async with Recorder() as service, Session(service.url, credentials=Credentials("M1"), profile=profile) as pay:
        with pytest.raises(ConfigurationError) as caught:
            await pay.orders.query("T1")

    assert "credentials.service_keys" == caught.value.field
    assert [] == service.requests


def written(text: str) -> bytes:
    """Return a response with this JSON as payload, signed by `openssl` over these pairs."""
    payload, _, pairs = text.partition(" as ")
    return f'{{"code":0,"data":{{{payload},"sign":"{hmac_sha256(pairs, "new service key 1")}"}}}}'.encode()


NESTED: Final = '"fee": {"rate": 1.10, "by": null},"state":"PAID" as fee={"rate":1.10,"by":null}&state=PAID'
VALUES: Final = {
    "null as a text": ({"skip_null": False}, '"note":null,"state":"PAID" as note=null&state=PAID'),
    "true": ({"booleans": "json"}, '"state":"PAID","vip":true as state=PAID&vip=true'),
    "number": ({"numbers": "text"}, '"rate":1.10,"state":"PAID" as rate=1.10&state=PAID'),
    "inside an object": ({"numbers": "text", "nested": "json"}, NESTED),
}


@pytest.mark.parametrize(("options", "text"), VALUES.values(), ids=VALUES)
async def test_values_that_the_service_signs(options: dict[str, Any], text: str) -> None:
    """A response with a null, a boolean or a number verifies as the profile says."""
    profile = evolve(SIGNED, signature=evolve(SCHEME, **options))

    assert "PAID" == await queried(written(text), profile=profile)


async def test_other_values_are_forged() -> None:
    """Allowed values are still signed; a number is signed digit by digit."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({"skip_null": False}, '"note":null,"state":"PAID" as state=PAID'),
        ({"booleans": "json"}, '"state":"PAID","vip":true as state=PAID&vip=false'),
        ({"numbers": "text"}, '"rate":1.10,"state":"PAID" as rate=1.1&state=PAID'),
        ({"numbers": "text"}, '"rate":1.1,"state":"PAID" as rate=1.10&state=PAID'),
    ]
    for options, text in cases:
        profile = evolve(SIGNED, signature=evolve(SCHEME, **options))
        with pytest.raises(InvalidSignatureError, match="a response that is not signed by the service"):
            await queried(written(text), profile=profile)


REFUSED: Final = {
    "bool": ('"state":"PAID","vip":true', "data.vip holds true or false", 'signature.booleans = "json"'),
    "number": ('"rate":1.10,"state":"PAID"', "data.rate holds a number with a fraction", 'signature.numbers = "text"'),
    "object": ('"fee":{},"state":"PAID"', "data.fee holds an object or a list", 'signature.nested = "json" or "omit"'),
    "delimiter": (
        '"state":"PAID","url":"/?a=b"',
        "data.url holds a delimiter",
        "its name in signature.allow_delimiters",
    ),
}


async def test_value_that_the_profile_refuses_is_named() -> None:
    """The error of a response that cannot be verified names the field and the setting to change."""
    for payload, what, setting in REFUSED.values():
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


LONG: Final = [str(2**64), f"-{2**63 + 1}", "1234567890" * 3, "7" * 5000]
"""The digits of integers beyond 64 bits, and of one that Python does not convert to a text."""


async def test_integers_are_signed_digit_by_digit() -> None:
    """An integer of any length is verified by its digits, nested or not. Another last digit is forged."""
    for form in ["{}", '[1,{{"a":{}}}]']:
        for digits in LONG:
            profile = evolve(SIGNED, signature=evolve(SCHEME, nested="json"))
            said, other = form.format(digits), form.format(f"{digits[:-1]}5")
            state = await queried(written(f'"no":{said},"state":"PAID" as no={said}&state=PAID'), profile=profile)
            with pytest.raises(InvalidSignatureError):
                await queried(written(f'"no":{other},"state":"PAID" as no={said}&state=PAID'), profile=profile)

            assert "PAID" == state


async def test_number_in_an_object_is_named() -> None:
    """If objects are signed, the error is about the number inside the object."""
    profile = evolve(SIGNED, signature=evolve(SCHEME, nested="json"))
    with pytest.raises(InvalidSignatureError, match=r'data.fee holds .* set signature.numbers = "text"'):
        await queried(written('"fee":{"rate":1.5},"state":"PAID" as nobody knows how'), profile=profile)


async def test_without_a_scheme_answers_cannot_be_verified() -> None:
    """A profile with signed answers and no scheme is incomplete."""
    with pytest.raises(ConfigurationError) as caught:
        await queried(b"{}", profile=evolve(SIGNED, signature=None, signed=()))

    assert "signature" == caught.value.field


ADDRESS: Final = "https://gate.example/pay?no=7&back=https%3A%2F%2Fshop.example&a=b=c"
PAYLOAD: Final = AnswerShape(data="data", signature="data.sign", redirect_url="payUrl")


def verified(document: object, answer: AnswerShape = PAYLOAD, scheme: Any = SCHEME) -> bool | None:
    """Return the `verified` of a document's reply."""
    call = bare_call(PLACE_ORDER, profile=Profile(answer=answer, signature=scheme))
    return verify_reply(call, reply(document), scheme, [Secret(KEY)]).verified


DELIMITERS: Final = (ADDRESS, "https://gate.example/?a&b", "https://gate.example/?a=b", "&", "=")
SHAPES: Final = {
    "at the top": AnswerShape(signature="sign", redirect_url="payUrl"),
    "in the payload": PAYLOAD,
    "deeper": AnswerShape(signature="data.sign", redirect_url="data.payUrl"),
    "elsewhere": evolve(PAYLOAD, redirect_url="goTo"),
    "nowhere": evolve(PAYLOAD, redirect_url=""),
}
"""By where the profile says that the redirect address stands."""
FIELDS: Final[list[tuple[str, dict[str, Any], bool]]] = [
    *((shape, {"payUrl": text, "state": 0}, True) for shape in [*SHAPES][:3] for text in DELIMITERS),
    *((shape, {"payUrl": ADDRESS}, False) for shape in ("elsewhere", "nowhere")),
    *(("in the payload", {"payUrl": ADDRESS, name: "a&b=c"}, True) for name in FREE_TEXT),
    *(
        ("in the payload", {"payUrl": ADDRESS, name: text}, text == "ab")
        for name in ("note", "state", "redirectUrl", "data.payUrl", "goTo", *sorted(IDENTIFIERS))
        for text in ("a&b", "a=b", "ab")
    ),
    ("elsewhere", {"goTo": ADDRESS}, True),
    ("nowhere", {"": "a&b"}, False),
]


def test_fields_that_may_hold_delimiters() -> None:
    """Only texts that the scheme allows and the redirect address may hold delimiters, but never an identifier."""
    for shape, fields, expected in FIELDS:
        document = signed_object(fields)

        assert expected is verified(document if shape == "at the top" else {"data": document}, SHAPES[shape])


class Own:
    """A merchant's own scheme."""

    def __init__(self, said: object = True) -> None:  # noqa: FBT002 - it may say anything
        self.said = said
        self.seen: list[tuple[Mapping[str, Any], str, str, str]] = []

    def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> str:
        """Sign nothing."""
        raise AssertionError(fields, path, key)

    def verify(self, fields: Mapping[str, Any], signature: str, *, path: str, key: Secret) -> bool:
        """Return or raise what the test chose."""
        self.seen.append((fields, signature, path, key.reveal()))
        if isinstance(self.said, Exception):
            raise self.said
        return cast("bool", self.said)


def test_scheme_of_ones_own() -> None:
    """A merchant's own scheme receives the fields without the signature."""
    own = Own()
    fields = {"payUrl": ADDRESS, "note": "a&b"}

    assert verified({"data": signed_object(fields)}, scheme=own) is True
    assert [(fields, signed_object(fields)["sign"], "/payment/unifiedorder", KEY)] == own.seen


def test_scheme_that_does_not_say_true() -> None:
    """Only `True` from a merchant's own scheme verifies; one that raises verifies nothing."""
    for said in [False, None, 1, "yes", RuntimeError("no key store")]:
        assert verified({"data": signed_object({"payUrl": ADDRESS})}, scheme=Own(said)) is False
