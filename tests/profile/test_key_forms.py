"""A key of a key pair is no shared secret, in whatever form it is given."""

import base64
import subprocess
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payasync import Credentials, Profile, Session, SortedPairs
from tests.foreign import signatures
from tests.profile.refusal import refused, shown

PROFILE: Final = Profile(signature=SortedPairs(algorithm="hmac-sha256", encoding="hex"))


def signing(credentials: Credentials) -> Session:
    """Return a session that signs by HMAC, and opens no connection."""
    return Session("https://pay.example", credentials=credentials, profile=PROFILE)


OPENSSL: Final = {
    "SubjectPublicKeyInfo": ("pkey", "-pubin", "-in", "rsa/public.pem", "-outform", "DER"),
    "PKCS #1": ("rsa", "-pubin", "-in", "rsa/public.pem", "-RSAPublicKey_out", "-outform", "DER"),
    "short": ("rsa", "-pubin", "-in", "short/public.pem", "-RSAPublicKey_out", "-outform", "DER"),
    "Ed25519": ("pkey", "-pubin", "-in", "ed25519/public.pem", "-outform", "DER"),
    "P-256": ("ec", "-in", "p256.pem", "-pubout", "-outform", "DER"),
    "P-384": ("ec", "-in", "p384.pem", "-pubout", "-outform", "DER"),
    "certificate": ("req", "-x509", "-key", "rsa/private.pem", "-subj", "/CN=pay.example", "-outform", "DER"),
    "PKCS #8": ("pkcs8", "-topk8", "-nocrypt", "-in", "rsa/private.pem", "-outform", "DER"),
}
"""For each form of a key, the arguments of `openssl` that write it in DER."""
SPELLINGS: Final[dict[str, Callable[[bytes], str]]] = {
    "base64": lambda der: base64.b64encode(der).decode(),
    "lines": lambda der: base64.encodebytes(der).decode(),
    "windows": lambda der: "\ufeff" + base64.encodebytes(der).decode().replace("\n", "\r\n"),
    "quoted": lambda der: f'"{base64.b64encode(der).decode()}"',
    "url": lambda der: base64.urlsafe_b64encode(der).decode().rstrip("="),
    "hex": bytes.hex,
    "HEX": lambda der: der.hex(":").upper(),
}


@pytest.fixture(scope="module")
def ders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return keys in DER, by their form, all made by `openssl`."""
    folder = tmp_path_factory.mktemp("ders")

    def openssl(*arguments: str) -> bytes:
        return subprocess.run([signatures.OPENSSL, *arguments], cwd=folder, capture_output=True, check=True).stdout

    for name in ("rsa", "short", "ed25519"):
        (folder / name).mkdir()
    signatures.rsa_keys(folder / "rsa")
    signatures.rsa_keys(folder / "short", 1024)
    signatures.ed25519_keys(folder / "ed25519")
    for curve, name in (("P-256", "p256"), ("P-384", "p384")):
        (folder / f"{name}.pem").write_bytes(openssl("ecparam", "-name", curve, "-genkey", "-noout"))
    return {form: openssl(*arguments) for form, arguments in OPENSSL.items()}


@pytest.mark.parametrize("form", OPENSSL)
def test_key_of_a_pair_is_no_shared_secret(form: str, ders: dict[str, bytes]) -> None:
    """A key of a key pair without PEM lines is refused as a shared secret, whatever its form, and not shown."""
    why = "credentials.signing_key must be a shared secret, not a PEM text or another form of a public key: "
    for spell in SPELLINGS.values():
        key = spell(ders[form])
        error = refused(signing, Credentials("M1", signing_key=key))

        assert str(error).startswith(why)
        assert key.split()[-1] not in shown(error)


def test_key_that_says_what_it_is_is_no_shared_secret() -> None:
    """PEM behind other text, an OpenSSH key and a JSON Web Key are refused as shared secrets."""
    for key in [
        "MERCHANT KEY\n-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4/o8Xc shop@example.com",
        "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTY=",
        '{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}',
    ]:
        error = refused(signing, Credentials("M1", signing_key=key))

        assert "must be a shared secret, not a PEM text or another form of a public key" in str(error)


@given(st.binary(min_size=16, max_size=80), st.sampled_from(["", "0", "0*", "0F0D"]))
def test_random_secrets_are_accepted(secret: bytes, before: str) -> None:
    """Random bytes as base64 or hexadecimal digits are a shared secret, also if they begin as a key of a pair."""
    raw = before.encode() + secret
    for text in (base64.b64encode(raw).decode(), raw.hex(), f"MII{secret.hex()}"):
        assert "M1" == signing(Credentials("M1", signing_key=text)).merchant_id
