"""The sandbox's own check of signatures, compared with the client; its keys; and its own signatures."""

import json
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import AnswerShape, NotificationShape, Profile, Secret, SignedHeader, SortedPairs
from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.dialect import Dialect, Outgoing, WireNames
from payasync.sandbox.signatures import ASYMMETRIC, ServiceSigner, make_keys, new_private_key, verify
from payasync.sandbox.store import Store
from payasync.signing import UnsignedRequest
from tests.foreign.signatures import hmac_sha256

KEY: Final = Secret("signing key")
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
NESTED: Final = {"customer": {"name": "Zoë", "tags": [1, "a"]}}


def pairs(**options: Any) -> SortedPairs:
    """Return an HMAC-SHA256 scheme in hex with these options changed."""
    return evolve(SCHEME, **options)


def test_client_signs_what_the_sandbox_expects() -> None:
    """The sandbox accepts a signature of the client, whose code `openssl` checks, with each option and algorithm.

    A changed digit, case or field is refused, and so is what is no signature.
    """
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        *(({"encoding": each}, {}) for each in ("hex", "HEX", "base64")),
        *(({"algorithm": each}, {}) for each in ("hmac-md5", "hmac-sha512")),
        *(({"algorithm": "md5", "key_param": "key", "append_path": each}, {}) for each in (False, True)),
        *(({"prehash": each}, {}) for each in ("sha256", "sha256-hex")),
        *(({name: value}, {}) for name, value in (("append_path", True), ("separator", "|"), ("skip_empty", False))),
        *(({"nested": each}, NESTED) for each in ("json", "omit")),
        ({"exclude": ("sign", "note")}, {"note": "x"}),
        *(({"skip_null": each}, {"other": None}) for each in (True, False)),
        ({"booleans": "json"}, {"other": True}),
        ({"nested": "json"}, {"other": [1, True, None]}),
        *(({"algorithm": each, "encoding": "base64"}, {}) for each in ("rsa-sha256", "rsa-sha512", "ed25519")),
        ({"algorithm": "ed25519", "encoding": "hex"}, {}),
    ]
    for options, fields in cases:
        scheme, given = pairs(**options), {**FIELDS, **fields}
        key = Secret(new_private_key(scheme.algorithm)) if scheme.algorithm in ASYMMETRIC else KEY
        signature = scheme.sign(given, path=PATH, key=key)
        wrong = [signature[:5] + ("1" if signature[5] != "1" else "2") + signature[6:], signature[:8], "é!"]
        wrong += [signature.swapcase()] if key is KEY else []

        assert verify(scheme, given, signature, path=PATH, key=key), options
        assert not verify(scheme, {**given, "more": "x"}, signature, path=PATH, key=key), options
        assert not any(verify(scheme, given, text, path=PATH, key=key) for text in wrong), options
    usual = pairs().sign(FIELDS, path=PATH, key=KEY)
    for profile in (Profile(), Profile(signature=SortedPairs())):
        assert verify(WireNames(profile).signature, FIELDS, usual, path=PATH, key=KEY)


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


def test_each_algorithm_has_a_key_of_its_kind(store: Store) -> None:
    """If a database is opened with another profile, it gets a signing key for it, and keeps its other keys."""
    private = Profile(signature=SortedPairs(algorithm="ed25519", encoding="base64"))
    first, other, again = (make_keys(profile, store.stored_key).merchant for profile in (PROFILE, private, PROFILE))

    assert (first, first.secret_key) == (again, other.secret_key)
    assert first.signing_key != other.signing_key
