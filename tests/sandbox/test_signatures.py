"""The sandbox's own check of signatures, compared with `openssl`; its keys; and its own signatures."""

import base64
import json
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from attrs import evolve
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from payasync import AnswerShape, NotificationShape, Profile, Secret, SignedHeader, SortedPairs
from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.dialect import Dialect, Outgoing, WireNames
from payasync.sandbox.signatures import ServiceSigner, make_keys, new_private_key, verify
from payasync.sandbox.store import Store
from payasync.signing.schemes import SignatureScheme
from tests.foreign.signatures import hmac_sha256

KEY: Final = Secret("key-1")
PATH: Final = "/payment/unifiedorder"
FIELDS: Final[dict[str, Any]] = {
    "totalAmt": 450,
    "subject": "Café",
    "outTradeNo": "T1",
    "nonceStr": "n1",
    "merchantId": "SANDBOX",
    "currency": "CAD",
    "body": "",
    "sign": "itself",
}
TEXT: Final = "currency=CAD&merchantId=SANDBOX&nonceStr=n1&outTradeNo=T1&subject=Café&totalAmt=450"
SHA256: Final = "20ce2ed4d0f631ade2d05b4895e9d2c827041f8eaa92abac7a6e6dea16cb9287"
NESTED: Final = {"customer": {"name": "Zoë", "tags": [1, "a"]}}


def pairs(**options: Any) -> SortedPairs:
    """Return an HMAC-SHA256 scheme in hex with these options changed."""
    told: dict[str, Any] = {"algorithm": "hmac-sha256", "encoding": "hex", **options}
    return SortedPairs(**told)


@pytest.mark.parametrize(
    ("scheme", "fields", "signature"),
    [
        (pairs(), {}, SHA256),
        (WireNames(Profile()).signature, {}, SHA256),
        (WireNames(Profile(signature=SortedPairs())).signature, {}, SHA256),
        (pairs(encoding="HEX"), {}, SHA256.upper()),
        (pairs(encoding="base64"), {}, "IM4u1ND2Ma3i0FtIlenSyCcEH46qkqusem5t6hbLkoc="),
        (pairs(algorithm="hmac-md5"), {}, "e9fb99c97f630630a727722526ffe4bd"),
        (
            pairs(algorithm="hmac-sha512", encoding="base64"),
            {},
            "kdpjYnXb8vlXqAqO/wi3S9bw5yDCy3ol7JjIZqSmBWyAN36Il1WuxYy3eqYPahsMnuAVKjx8nIDszT/Pcd9DRg==",
        ),
        (pairs(algorithm="md5", key_param="key"), {}, "1337ded9442fdad06b4937079ed3ad59"),
        (pairs(algorithm="md5", key_param="key", append_path=True), {}, "f5b2adcf8afecf191a0bccfd21cfe0b8"),
        (pairs(append_path=True), {}, "54b6423a4399c944aae48c486dbb37f7e028ac413fc07df916849bf6f48a89da"),
        (pairs(prehash="sha256"), {}, "74d74e09880606a2cf3b3b11a6874de96882bb0a47063fc612b8807baa985cf9"),
        (pairs(prehash="sha256-hex"), {}, "40dd836c4b2e5ea3fe6335362e4c2500c7c89786efb1bd134121f7607e1ce464"),
        (pairs(separator="|"), {}, "81e385046fe36dbfb017c0f8340c1adfe41efd532c72f8485def9280727ac2e3"),
        (pairs(skip_empty=False), {}, "0a78936b257d38360db621e2c9f5feb092c635cd790a44791a344e1cd39d13eb"),
        (pairs(nested="json"), NESTED, "7017a9116cbcab87ff2cf4a6e2106f87f68300113b9fdc8217a17c5fb4fae28d"),
        (pairs(nested="omit"), NESTED, SHA256),
        (pairs(exclude=("sign", "note")), {"note": "x"}, SHA256),
        (pairs(), {"other": None}, SHA256),
        (
            pairs(skip_null=False),
            {"other": None},
            "28924c64495e402ccd217daf56ae3c8695ae5aefa7f4c5dd739e715f99140303",
        ),
        (
            pairs(booleans="json"),
            {"other": True},
            "c9186a13dd22045ddb3314dd8c12ad1c8d8bf52a32347814aa35591cc0568a16",
        ),
        (pairs(numbers="text"), {"other": 1.5}, "7e3c4b24dcaff22c60153f4147a6346f86f056e53b69e3004d1773ab97e9a74e"),
        (
            pairs(nested="json", numbers="text"),
            {"other": [1.5, True, None]},
            "7073e3ad848f70887de7f3346ffb4b9d52c28c1b28f4a63c682716188eea2817",
        ),
    ],
)
def test_vectors(scheme: SignatureScheme, fields: dict[str, Any], signature: str) -> None:
    """Signatures of `openssl` are accepted with each option; a changed digit, case or field is refused."""
    wrong = signature[:5] + ("1" if signature[5] != "1" else "2") + signature[6:]
    given = {**FIELDS, **fields}

    assert [True, False, False, False] == [
        verify(scheme, signed, text, path=PATH, key=KEY)
        for signed, text in [
            (given, signature),
            (given, wrong),
            (given, signature.swapcase()),
            ({**given, "more": "x"}, signature),
        ]
    ]


@pytest.mark.parametrize("name", ["rsa-sha256", "rsa-sha512", "ed25519"])
@pytest.mark.parametrize("encoding", ["hex", "base64"])
def test_asymmetric(name: str, encoding: str) -> None:
    """RSA and Ed25519 signatures of another library are accepted; changed texts and bytes are refused."""
    key = new_private_key(name)
    raw = _signed(name, key)
    signature = raw.hex() if encoding == "hex" else base64.b64encode(raw).decode()
    scheme = pairs(algorithm=name, encoding=encoding)
    changed = {**FIELDS, "totalAmt": 451}

    assert [True, False, False, False] == [
        verify(scheme, fields, text, path=PATH, key=Secret(key))
        for fields, text in [(FIELDS, signature), (changed, signature), (FIELDS, "é!"), (FIELDS, signature[:8])]
    ]


def _signed(name: str, pem: str) -> bytes:
    key = serialization.load_pem_private_key(pem.encode(), password=None)
    if isinstance(key, Ed25519PrivateKey):
        return key.sign(TEXT.encode())
    assert isinstance(key, RSAPrivateKey)
    digest = hashes.SHA256() if name == "rsa-sha256" else hashes.SHA512()
    return key.sign(TEXT.encode(), padding.PKCS1v15(), digest)


class Reversed:
    """A merchant's own scheme: the signature is the order's number backwards."""

    def sign(self, fields: Any, *, path: str, key: Secret) -> str:  # noqa: ARG002 - the protocol's
        """Sign."""
        return str(fields["outTradeNo"])[::-1]

    def verify(self, fields: Any, signature: str, *, path: str, key: Secret) -> bool:
        """Verify a signature; if it is too long, raise an error of payasync, or another one."""
        if len(signature) > 10:
            raise InvalidArgumentError("too long") if len(signature) < 20 else KeyError(signature)
        return signature == self.sign(fields, path=path, key=key)


@pytest.mark.parametrize(("signature", "genuine"), [("1T", True), ("T1", False), ("x" * 11, False), ("x" * 20, False)])
def test_scheme_of_ones_own_is_asked(signature: str, *, genuine: bool) -> None:
    """A custom scheme verifies its own signatures; if it raises an error, the signature is invalid."""
    assert genuine == verify(Reversed(), FIELDS, signature, path=PATH, key=KEY)


SERVICE_KEY: Final = Secret("service key")
KEYS: Final = evolve(make_keys(PROFILE), service=SERVICE_KEY)
SCHEME: Final = SortedPairs(algorithm="hmac-sha256", encoding="hex")
QUERY: Final = "/payment/orderquery"


def signer_of(**parts: Any) -> ServiceSigner:
    """Return the signer of a profile with these parts."""
    now = datetime(2027, 1, 31, tzinfo=UTC)
    told: dict[str, Any] = {"signature": SCHEME, **parts}
    return ServiceSigner(Dialect(Profile(**told)), KEYS, now=lambda: now)


async def notified(signer: ServiceSigner, body: str) -> Any:
    """Return the document that one attempt sends."""
    signed, _ = await signer.sign_notification("msg_1", body)
    return json.loads(signed)


def outgoing(document: dict[str, Any]) -> Outgoing:
    """Return an unsigned response."""
    return Outgoing(status=200, code="OK", headers={}, document=document)


async def test_answer_is_signed_over_the_object_that_holds_the_signature() -> None:
    """A response is signed over all fields of the object that holds the signature, with a nonce of its own."""
    signer = signer_of(answer=AnswerShape(data="data", signature="data.seal"))
    sent = await signer.sign_answer(outgoing({"code": "OK", "data": {"a": "1"}}), QUERY)
    fields = dict(sent.document["data"])
    signature = fields.pop("seal")

    assert {"a", "nonceStr"} == set(fields)
    assert SCHEME.verify(fields, signature, path=QUERY, key=SERVICE_KEY)


async def test_words_for_people_do_not_split_the_text() -> None:
    """A message in a signed object contains no delimiter, because the client would refuse the response."""
    signer = signer_of(answer=AnswerShape(message="text", signature="seal"))
    sent = await signer.sign_answer(outgoing({"text": "a=b & c"}), QUERY)
    fields = dict(sent.document)
    signature = fields.pop("seal")

    assert "a b   c" == fields["text"]
    assert SCHEME.verify(fields, signature, path=QUERY, key=SERVICE_KEY)


async def test_scheme_of_ones_own_makes_its_own_signature() -> None:
    """A custom scheme signs responses; its `sign` may be a coroutine function."""

    class AsyncReversed:
        async def sign(self, fields: Any, *, path: str, key: Secret) -> str:
            return f"{fields['a']}{path}{key.reveal()}"[::-1]

        def verify(self, fields: Any, signature: str, *, path: str, key: Secret) -> bool:
            raise NotImplementedError

    signer = signer_of(signature=AsyncReversed(), answer=AnswerShape(signature="seal"))
    sent = await signer.sign_answer(outgoing({"a": "1"}), QUERY)

    assert f"1{QUERY}service key"[::-1] == sent.document["seal"]


@pytest.mark.parametrize(
    "parts",
    [
        {"answer": AnswerShape(data="data", signature="seal")},
        {"answer": AnswerShape(data="data", payment_id="pay.id", signature="data.seal")},
        {"notification": NotificationShape(verification="body", data="data", signature="seal")},
        {"notification": NotificationShape(verification="body", signature="seal", out_trade_no="order.no")},
    ],
)
async def test_objects_that_the_scheme_refuses(parts: dict[str, Any]) -> None:
    """A profile whose objects can never be signed is refused at the start; the error names the part to change."""
    sandbox = Sandbox(Profile(signature=SCHEME, **parts))
    with pytest.raises(ConfigurationError, match="refuses to sign an object") as refused:
        await sandbox.start()

    assert "signature.nested" == refused.value.field


async def test_each_attempt_has_a_nonce_of_its_own() -> None:
    """A redelivery has its own nonce, signature and time of delivery, and the event's own time stays as it was."""
    shape = NotificationShape(verification="body", signature="seal", time="at", event_time="paid")
    signer = signer_of(notification=shape)
    first, second = [await notified(signer, '{"a":"1","at":"before","paid":"before"}') for _ in range(2)]
    differing = {name for name in first if first[name] != second[name]}

    assert {"nonceStr", "seal"} == differing
    assert ("2027-01-31T00:00:00.000Z", "before") == (first["at"], first["paid"])


@pytest.mark.parametrize("verification", ["none", "header"])
async def test_time_that_is_not_judged_stays(verification: Any) -> None:
    """A time in the body that no window judges is the same in each delivery."""
    header = SignedHeader(signature="X-Sign", timestamp="X-Time", text="{timestamp}{body}")
    shape = NotificationShape(verification=verification, time="at", header=header if verification == "header" else None)

    assert "before" == (await notified(signer_of(notification=shape), '{"at":"before"}'))["at"]


async def test_signature_without_a_place_stands_in_the_payload() -> None:
    """If the profile does not place the body's signature, it is `sign` in the payload."""
    signer = signer_of(notification=NotificationShape(verification="body", data="data"))

    assert {"a", "nonceStr", "sign"} == set((await notified(signer, '{"data":{"a":"1"}}'))["data"])


@pytest.mark.parametrize(("prehash", "skip_null"), [("", True), ("sha256", False), ("sha256-hex", False)])
async def test_client_and_sandbox_agree_on_values(prehash: Any, *, skip_null: bool) -> None:
    """The sandbox accepts the client's signature over null, booleans and objects."""
    scheme = SortedPairs(
        algorithm="hmac-sha256",
        encoding="hex",
        prehash=prehash,
        skip_null=skip_null,
        booleans="json",
        numbers="text",
        nested="json",
    )
    profile = Profile(signature=scheme, answer=AnswerShape(data="data", signature="data.seal", order_status="state"))
    extra = {"note": None, "vip": True, "new": False, "more": {"a": [None, True]}}
    async with Sandbox(profile) as sandbox, sandbox.session() as pay:
        placed = await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1", extra=extra)

    assert placed.document["data"]["seal"]


async def test_sandbox_signs_the_values_that_it_sends() -> None:
    """The sandbox signs null, true and a number as the body shows them."""
    scheme = SortedPairs(algorithm="hmac-sha256", encoding="hex", skip_null=False, booleans="json", numbers="text")
    signer = signer_of(signature=scheme, answer=AnswerShape(signature="seal"))
    sent = await signer.sign_answer(outgoing({"a": None, "b": True, "c": 1e-7}), QUERY)
    text = f"a=null&b=true&c=1e-07&nonceStr={sent.document['nonceStr']}"

    assert hmac_sha256(text, SERVICE_KEY.reveal()) == sent.document["seal"]


PRIVATE: Final = Profile(signature=SortedPairs(algorithm="ed25519", encoding="base64"))


def test_each_algorithm_has_a_key_of_its_kind() -> None:
    """If a database is opened with another profile, it gets a signing key for it, and keeps its other keys."""
    store = Store(":memory:")
    shared, private, again = (make_keys(profile, store.stored_key).merchant for profile in (PROFILE, PRIVATE, PROFILE))
    store.close()

    assert (shared, shared.secret_key) == (again, private.secret_key)
    assert shared.signing_key != private.signing_key
