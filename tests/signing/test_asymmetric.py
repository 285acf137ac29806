import base64
from typing import Final

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from payasync.credentials import Secret
from payasync.errors import ConfigurationError
from payasync.signing import asymmetric

Pair = rsa.RSAPrivateKey | Ed25519PrivateKey | Ed448PrivateKey | ec.EllipticCurvePrivateKey | dsa.DSAPrivateKey

RSA: Final = rsa.generate_private_key(65537, 2048)
ED25519: Final = Ed25519PrivateKey.generate()
FITTING: Final[dict[str, Pair]] = {"rsa-sha256": RSA, "rsa-sha512": RSA, "ed25519": ED25519}

# RFC 8032, section 7.1, test 3: secret key, public key, message, signature.
RFC_8032: Final = (
    "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
    "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
    "af82",
    (
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
    ),
)
# RFC 8410, sections 4 and 7: what stands before a raw Ed25519 key in SubjectPublicKeyInfo and PKCS #8.
SPKI_PREFIX: Final = bytes.fromhex("302a300506032b6570032100")
PKCS8_PREFIX: Final = bytes.fromhex("302e020100300506032b657004220420")


def private_pem(pair: Pair) -> str:
    """Return a private key as PEM."""
    return pair.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def private_base64(pair: Pair) -> str:
    """Return a private key as base64 of PKCS #8."""
    return base64.b64encode(pair.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())).decode()


def public_pem(pair: Pair) -> str:
    """Return a public key as PEM."""
    return pair.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def public_base64(pair: Pair) -> str:
    """Return a public key as base64 of SubjectPublicKeyInfo."""
    return base64.b64encode(pair.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).decode()


def in_lines(text: str) -> str:
    """Return a text broken into lines, as keys are often copied."""
    return "\r\n".join(text[start : start + 64] for start in range(0, len(text), 64)) + "\n"


def test_ed25519_vector() -> None:
    """Ed25519 signs and verifies the test vector of RFC 8032."""
    secret, public, message, signature = RFC_8032
    private_key = Secret(base64.b64encode(PKCS8_PREFIX + bytes.fromhex(secret)).decode())
    public_key = Secret(base64.b64encode(SPKI_PREFIX + bytes.fromhex(public)).decode())

    assert signature == asymmetric.sign("ed25519", private_key, bytes.fromhex(message)).hex()
    assert asymmetric.verify("ed25519", bytes.fromhex(message), bytes.fromhex(signature), public_key)


def test_reads_pem_and_base64() -> None:
    """Keys are accepted as PEM and as base64, also if line breaks divide the base64."""
    for name, pair in FITTING.items():
        private, public = private_base64(pair), public_base64(pair)
        for key in (private_pem(pair), private, in_lines(private)):
            signature = asymmetric.sign(name, Secret(key), b"message")

            for other in (public_pem(pair), public, in_lines(public)):
                assert asymmetric.verify(name, b"message", signature, Secret(other))


def test_reads_a_traditional_rsa_key() -> None:
    """A key in PKCS #1 PEM, whose first line says RSA, as older tools write it, is accepted."""
    traditional = RSA.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()
    signature = asymmetric.sign("rsa-sha256", Secret(traditional), b"message")

    assert traditional.startswith("-----BEGIN RSA PRIVATE KEY-----")  # pragma: allowlist secret
    assert asymmetric.verify("rsa-sha256", b"message", signature, Secret(public_pem(RSA)))


def test_key_of_another_algorithm_is_refused() -> None:
    """An algorithm refuses a key of another algorithm, to sign and to verify."""
    cases: list[tuple[str, Pair]] = [
        ("rsa-sha256", ED25519),
        ("ed25519", RSA),
        ("ed25519", Ed448PrivateKey.generate()),
        ("rsa-sha512", ec.generate_private_key(ec.SECP256R1())),
    ]
    for name, pair in cases:
        with pytest.raises(ConfigurationError, match=f"signing_key is not a private key for {name}"):
            asymmetric.sign(name, Secret(private_pem(pair)), b"message")
        with pytest.raises(ConfigurationError, match=f"service_keys is not a public key for {name}"):
            asymmetric.verify(name, b"message", b"signature", Secret(public_base64(pair)))
