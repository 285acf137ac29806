"""The sandbox's own check of signatures, against what `openssl` computes."""

import base64
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from payasync import Secret
from payasync.errors import InvalidArgumentError
from payasync.sandbox.asymmetric import new_key
from payasync.sandbox.signatures import verify
from payasync.signing.schemes import SortedPairs

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
NESTED: Final = {**FIELDS, "customer": {"name": "Zoë", "tags": [1, "a"]}}


def pairs(**options: Any) -> SortedPairs:
    """Return a scheme: HMAC-SHA256 in hex but for these options."""
    told: dict[str, Any] = {"algorithm": "hmac-sha256", "encoding": "hex", **options}
    return SortedPairs(**told)


@pytest.mark.parametrize(
    ("scheme", "signature"),
    [
        (pairs(), SHA256),
        (None, SHA256),
        (SortedPairs(), SHA256),
        (pairs(encoding="HEX"), SHA256.upper()),
        (pairs(encoding="base64"), "IM4u1ND2Ma3i0FtIlenSyCcEH46qkqusem5t6hbLkoc="),
        (pairs(algorithm="hmac-md5"), "e9fb99c97f630630a727722526ffe4bd"),
        (
            pairs(algorithm="hmac-sha512", encoding="base64"),
            "kdpjYnXb8vlXqAqO/wi3S9bw5yDCy3ol7JjIZqSmBWyAN36Il1WuxYy3eqYPahsMnuAVKjx8nIDszT/Pcd9DRg==",
        ),
        (pairs(algorithm="md5", key_param="key"), "1337ded9442fdad06b4937079ed3ad59"),
        (pairs(algorithm="md5", key_param="key", append_path=True), "f5b2adcf8afecf191a0bccfd21cfe0b8"),
        (pairs(append_path=True), "54b6423a4399c944aae48c486dbb37f7e028ac413fc07df916849bf6f48a89da"),
        (pairs(prehash="sha256"), "74d74e09880606a2cf3b3b11a6874de96882bb0a47063fc612b8807baa985cf9"),
        (pairs(prehash="sha256-hex"), "40dd836c4b2e5ea3fe6335362e4c2500c7c89786efb1bd134121f7607e1ce464"),
        (pairs(separator="|"), "81e385046fe36dbfb017c0f8340c1adfe41efd532c72f8485def9280727ac2e3"),
        (pairs(skip_empty=False), "0a78936b257d38360db621e2c9f5feb092c635cd790a44791a344e1cd39d13eb"),
    ],
)
def test_vectors(scheme: SortedPairs | None, signature: str) -> None:
    """Each option changes the text or the signature as `openssl` says, and one changed digit is refused."""
    wrong = signature[:5] + ("1" if signature[5] != "1" else "2") + signature[6:]

    assert (True, False) == (
        verify(scheme, FIELDS, signature, path=PATH, key=KEY),
        verify(scheme, FIELDS, wrong, path=PATH, key=KEY),
    )


@pytest.mark.parametrize(
    ("nested", "signature"),
    [("json", "7017a9116cbcab87ff2cf4a6e2106f87f68300113b9fdc8217a17c5fb4fae28d"), ("omit", SHA256)],
)
def test_nested_values(nested: str, signature: str) -> None:
    """A nested value stands in the text as compact JSON, or it is left out."""
    assert verify(pairs(nested=nested), NESTED, signature, path=PATH, key=KEY)


def test_excluded_fields_are_not_signed() -> None:
    """What the profile excludes may change, what it does not may not."""
    scheme = pairs(exclude=("sign", "note"))

    assert verify(scheme, {**FIELDS, "note": "x"}, SHA256, path=PATH, key=KEY)
    assert not verify(scheme, {**FIELDS, "other": "x"}, SHA256, path=PATH, key=KEY)


@pytest.mark.parametrize(
    ("options", "value", "signature"),
    [
        ({}, None, SHA256),
        ({"skip_null": False}, None, "28924c64495e402ccd217daf56ae3c8695ae5aefa7f4c5dd739e715f99140303"),
        ({"booleans": "json"}, True, "c9186a13dd22045ddb3314dd8c12ad1c8d8bf52a32347814aa35591cc0568a16"),
        ({"numbers": "text"}, 1.5, "7e3c4b24dcaff22c60153f4147a6346f86f056e53b69e3004d1773ab97e9a74e"),
        (
            {"nested": "json", "numbers": "text"},
            [1.5, True, None],
            "7073e3ad848f70887de7f3346ffb4b9d52c28c1b28f4a63c682716188eea2817",
        ),
    ],
    ids=str,
)
def test_values_that_a_profile_lets_sign(options: dict[str, Any], value: object, signature: str) -> None:
    """A null, true and a number stand in the text as the profile says; `openssl` made the signatures."""
    assert verify(pairs(**options), {**FIELDS, "other": value}, signature, path=PATH, key=KEY)


def test_case_counts() -> None:
    """A signature is written as the profile says, and not otherwise."""
    assert not verify(pairs(), FIELDS, SHA256.upper(), path=PATH, key=KEY)


@pytest.mark.parametrize("name", ["rsa-sha256", "rsa-sha512", "ed25519"])
@pytest.mark.parametrize("encoding", ["hex", "base64"])
def test_asymmetric(name: str, encoding: str) -> None:
    """RSA and Ed25519 signatures by another hand are taken; other texts and other bytes are not."""
    key = new_key(name)
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
    """A scheme of the merchant's own: the order's number backwards."""

    def sign(self, fields: Any, *, path: str, key: Secret) -> str:  # noqa: ARG002 - the protocol's
        """Sign."""
        return str(fields["outTradeNo"])[::-1]

    def verify(self, fields: Any, signature: str, *, path: str, key: Secret) -> bool:
        """Verify; complain of what is too long, and fail at what is longer."""
        if len(signature) > 10:
            raise InvalidArgumentError("too long") if len(signature) < 20 else KeyError(signature)
        return signature == self.sign(fields, path=path, key=key)


@pytest.mark.parametrize(("signature", "genuine"), [("1T", True), ("T1", False), ("x" * 11, False), ("x" * 20, False)])
def test_scheme_of_ones_own_is_asked(signature: str, *, genuine: bool) -> None:
    """Only its owner knows how a custom scheme signs; what it complains of, or fails at, is not genuine."""
    assert genuine == verify(Reversed(), FIELDS, signature, path=PATH, key=KEY)
