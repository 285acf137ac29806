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
from payasync.signing import UnsignedRequest
from payasync.signing.schemes import SignatureScheme
from tests.foreign.signatures import hmac_sha256

KEY: Final = Secret("key-1")
SCHEME: Final = SortedPairs(algorithm="hmac-sha256", encoding="hex")
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
    return evolve(SCHEME, **options)


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


def test_asymmetric() -> None:
    """RSA and Ed25519 signatures of another library are accepted; changed texts and bytes are refused."""
    changed = {**FIELDS, "totalAmt": 451}
    for name in ("rsa-sha256", "rsa-sha512", "ed25519"):
        key = new_private_key(name)
        raw = _signed(name, key)
        for encoding, signature in (("hex", raw.hex()), ("base64", base64.b64encode(raw).decode())):
            scheme = pairs(algorithm=name, encoding=encoding)

            assert [True, False, False, False] == [
                verify(scheme, fields, text, path=PATH, key=Secret(key))
                for fields, text in [(FIELDS, signature), (changed, signature), (FIELDS, "é!"), (FIELDS, signature[:8])]
            ], (name, encoding)


def _signed(name: str, pem: str) -> bytes:
    key = serialization.load_pem_private_key(pem.encode(), password=None)
    if isinstance(key, Ed25519PrivateKey):
        return key.sign(TEXT.encode())
    assert isinstance(key, RSAPrivateKey)
    digest = hashes.SHA256() if name == "rsa-sha256" else hashes.SHA512()
    return key.sign(TEXT.encode(), padding.PKCS1v15(), digest)


class Reversed:
    """A merchant's own scheme: the signature is the order's number backwards."""

    async def sign(self, fields: Any, *, path: str, key: Secret) -> str:
        """Sign."""
        return f"{fields['outTradeNo']}{path}{key.reveal()}"[::-1]

    def verify(self, fields: Any, signature: str, *, path: str, key: Secret) -> bool:
        """Verify a signature; if it is too long, raise an error of payasync, or another one."""
        if len(signature) > 50:
            raise InvalidArgumentError("too long") if len(signature) < 60 else KeyError(signature)
        return signature == f"{fields['outTradeNo']}{path}{key.reveal()}"[::-1]


class Signing:
    """A scheme of the merchant's own that only makes signatures."""

    def sign_request(self, request: UnsignedRequest, *, key: Secret) -> dict[str, str]:
        """Return one header."""
        return {"X-Sign": f"{request.nonce}{len(key.reveal())}"}


async def test_custom_scheme() -> None:
    """A custom scheme verifies and makes signatures; if it raises an error, the signature is invalid.

    The title warns that only this scheme checks signatures, or that nobody checks them.
    """
    genuine = f"T1{PATH}{KEY.reveal()}"[::-1]
    signer = signer_of(signature=Reversed(), answer=AnswerShape(signature="seal"))
    sent = await signer.sign_answer(outgoing({"outTradeNo": "1"}), QUERY)
    titles = [WireNames(Profile(name="shop", signature=each)).title for each in (None, Reversed(), Signing())]
    async with Sandbox(Profile(signature=Signing())) as running, running.session() as pay:
        assert (await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")).data

    assert [True, False, False, False] == [
        verify(Reversed(), FIELDS, text, path=PATH, key=KEY) for text in (genuine, "T1", "x" * 51, "x" * 60)
    ]
    assert f"1{QUERY}service key"[::-1] == sent.document["seal"]
    assert "shop" == titles[0]
    assert "shop: signatures are made and checked by its own Reversed, by nothing else" == titles[1]
    assert "shop: signatures are not checked, because Signing only makes them" == titles[2]


SERVICE_KEY: Final = Secret("service key")
KEYS: Final = evolve(make_keys(PROFILE), service=SERVICE_KEY)
QUERY: Final = "/payment/orderquery"


def signer_of(**parts: Any) -> ServiceSigner:
    """Return the signer of a profile with these parts."""
    now = datetime(2027, 1, 31, tzinfo=UTC)
    given: dict[str, Any] = {"signature": SCHEME, **parts}
    return ServiceSigner(Dialect(Profile(**given)), KEYS, now=lambda: now)


async def notified(signer: ServiceSigner, body: str) -> Any:
    """Return the document that one attempt sends."""
    signed, _ = await signer.sign_notification("msg_1", body)
    return json.loads(signed)


def outgoing(document: dict[str, Any]) -> Outgoing:
    """Return an unsigned response."""
    return Outgoing(status=200, code="OK", headers={}, document=document)


async def test_response_is_signed_over_the_object_that_holds_the_signature() -> None:
    """A response is signed over all fields of the object that holds the signature, with a nonce of its own.

    Null, true and a number are signed as the body shows them. A message has no delimiter, because the client would
    refuse the response.
    """
    scheme = pairs(skip_null=False, booleans="json", numbers="text")
    signer = signer_of(signature=scheme, answer=AnswerShape(message="data.text", data="data", signature="data.seal"))
    payload = {"a": None, "b": True, "c": 1e-7, "text": "a=b & c"}
    sent = await signer.sign_answer(outgoing({"code": "OK", "data": payload}), QUERY)
    fields = dict(sent.document["data"])
    text = f"a=null&b=true&c=1e-07&nonceStr={fields['nonceStr']}&text=a b   c"

    assert hmac_sha256(text, SERVICE_KEY.reveal()) == fields.pop("seal")
    assert {"a", "b", "c", "text", "nonceStr"} == set(fields)


async def test_objects_that_the_scheme_refuses() -> None:
    """A profile whose objects can never be signed is refused at the start; the error names the part to change."""
    answers = {"data": "data", "signature": "seal"}, {"data": "data", "payment_id": "pay.id", "signature": "data.seal"}
    notified = {"data": "data", "signature": "seal"}, {"signature": "seal", "out_trade_no": "order.no"}
    wrong: list[dict[str, Any]] = [
        *({"answer": AnswerShape(**each)} for each in answers),  # type: ignore[arg-type] # paths
        *({"notification": NotificationShape(verification="body", **each)} for each in notified),  # type: ignore[arg-type]
    ]
    for parts in wrong:
        with pytest.raises(ConfigurationError, match="refuses to sign an object") as refused:
            await Sandbox(Profile(signature=SCHEME, **parts)).start()

        assert "signature.nested" == refused.value.field


async def test_each_attempt_has_a_nonce_of_its_own() -> None:
    """A redelivery has its own nonce, signature and time of delivery, and the event's own time stays as it was.

    If the profile does not place the body's signature, it is `sign` in the payload.
    """
    shape = NotificationShape(verification="body", signature="seal", time="at", event_time="paid")
    signer = signer_of(notification=shape)
    first, second = [await notified(signer, '{"a":"1","at":"before","paid":"before"}') for _ in range(2)]
    unplaced = signer_of(notification=NotificationShape(verification="body", data="data"))

    assert {"nonceStr", "seal"} == {name for name in first if first[name] != second[name]}
    assert ("2027-01-31T00:00:00.000Z", "before") == (first["at"], first["paid"])
    assert {"a", "nonceStr", "sign"} == set((await notified(unplaced, '{"data":{"a":"1"}}'))["data"])


async def test_time_that_is_not_judged_stays() -> None:
    """A time in the body that no window judges is the same in each delivery."""
    header = SignedHeader(signature="X-Sign", timestamp="X-Time", text="{timestamp}{body}")
    for shape in (
        NotificationShape(verification="none", time="at"),
        NotificationShape(verification="header", time="at", header=header),
    ):
        assert "before" == (await notified(signer_of(notification=shape), '{"at":"before"}'))["at"]


async def test_client_and_sandbox_agree_on_values() -> None:
    """The sandbox accepts the client's signature over null, booleans and objects."""
    hashes: list[tuple[Any, bool]] = [("", True), ("sha256", False), ("sha256-hex", False)]
    answer = AnswerShape(data="data", signature="data.seal", order_status="state")
    extra = {"note": None, "vip": True, "new": False, "more": {"a": [None, True]}}
    for prehash, skip_null in hashes:
        scheme = pairs(prehash=prehash, skip_null=skip_null, booleans="json", numbers="text", nested="json")
        async with Sandbox(Profile(signature=scheme, answer=answer)) as sandbox, sandbox.session() as pay:
            placed = await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1", extra=extra)

        assert placed.document["data"]["seal"]


def test_each_algorithm_has_a_key_of_its_kind(store: Store) -> None:
    """If a database is opened with another profile, it gets a signing key for it, and keeps its other keys."""
    private = Profile(signature=SortedPairs(algorithm="ed25519", encoding="base64"))
    first, other, again = (make_keys(profile, store.stored_key).merchant for profile in (PROFILE, private, PROFILE))

    assert (first, first.secret_key) == (again, other.secret_key)
    assert first.signing_key != other.signing_key
