"""Keys are tried when a session or a receiver is made: one that cannot sign or verify is found before any money."""

import logging
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import AnswerShape, ConfigurationError, Credentials, NotificationShape, Profile, Session, SortedPairs
from payasync.notifications import Receiver, SqliteInbox
from tests.foreign import signatures

Keys = Mapping[str, str]

SHARED: Final = "a shared secret of the usual length"
SIGNED: Final = Profile(
    signature=SortedPairs(algorithm="rsa-sha256", encoding="base64"),
    answer=AnswerShape(data="data", signature="data.sign", refund_status="refundStatus"),
)
BODY: Final = evolve(
    SIGNED,
    notification=NotificationShape(
        verification="body", data="data", signature="data.sign", ack_status=200, out_trade_no="no"
    ),
)
HMAC: Final = evolve(SIGNED, signature=SortedPairs(algorithm="hmac-sha256", encoding="hex"))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """Return keys of many kinds, all made by the `openssl` program."""
    folder = tmp_path_factory.mktemp("keys")

    def pair(name: str, make: Callable[..., tuple[Path, Path]], *arguments: int) -> dict[str, str]:
        (folder / name).mkdir()
        private, public = make(folder / name, *arguments)
        return {f"{name} private": private.read_text(), f"{name} public": public.read_text()}

    def openssl(*arguments: str) -> str:
        made = subprocess.run([signatures.OPENSSL, *arguments], cwd=folder, capture_output=True, check=True)
        return made.stdout.decode()

    made = pair("rsa", signatures.rsa_keys) | pair("short", signatures.rsa_keys, 1024)
    made |= pair("ed25519", signatures.ed25519_keys)
    made["certificate"] = openssl("req", "-x509", "-key", "rsa/private.pem", "-subj", "/CN=pay.example")
    made["locked"] = openssl("pkey", "-in", "rsa/private.pem", "-aes256", "-passout", "pass:word")
    made["locked, the older form"] = openssl(
        *("rsa", "-in", "rsa/private.pem", "-traditional", "-aes256", "-passout", "pass:word")
    )
    return {**made, "rubbish": "canary-of-no-key", "cut": made["rsa public"].replace("\n", "\nAAAA", 1)}


def session(credentials: Credentials, profile: Profile = SIGNED) -> Session:
    """Return a session, which opens nothing."""
    return Session("https://pay.example", credentials=credentials, profile=profile)


def refusal(make: Callable[[], object]) -> ConfigurationError:
    """Return the error of settings that are refused."""
    with pytest.raises(ConfigurationError) as caught:
        make()
    return caught.value


def body(key: str) -> str:
    """Return what nobody would write by chance of a key."""
    return "".join(line for line in key.splitlines() if "-" not in line)[-20:] or key


def shown(error: BaseException) -> str:
    """Return a traceback with the local variables of every frame below the test's own."""
    below = error.__traceback__ and error.__traceback__.tb_next and error.__traceback__.tb_next.tb_next
    return "".join(traceback.TracebackException(type(error), error, below, capture_locals=True).format())


BAD_SERVICE_KEYS: Final = {
    "rubbish": "is not a public key for rsa-sha256: it must be PEM, or base64 of SubjectPublicKeyInfo",
    "cut": "is not a public key for rsa-sha256: it must be PEM, or base64 of SubjectPublicKeyInfo",
    "rsa private": "is a private key. Give the public key that the service shows",
    "certificate": "it is a certificate. Give the public key in it: openssl x509 -pubkey -noout -in FILE",
    "short public": "has 1024 bits: an RSA key needs 2048 or more. Use a longer one",
    "locked": "it is locked by a password. Give a copy without one: openssl pkey -in FILE -out COPY",
    "ed25519 public": "it is a key of another algorithm. Give one for rsa-sha256, or correct signature.algorithm",
}
BAD_SIGNING_KEYS: Final = {
    "rubbish": "is not a private key for rsa-sha256: it must be PEM, or base64 of PKCS #8, and without a password",
    "rsa public": "it is a public key. Give the private key that belongs to it",
    "certificate": "it is a certificate",
    "short private": "has 1024 bits: an RSA key needs 2048 or more",
    "locked": "it is locked by a password",
    "locked, the older form": "it is locked by a password",
    "ed25519 private": "it is a key of another algorithm",
}


@pytest.mark.parametrize(("bad", "why"), BAD_SERVICE_KEYS.items(), ids=BAD_SERVICE_KEYS)
def test_service_key_that_cannot_verify(bad: str, why: str, keys: Keys, tmp_path: Path) -> None:
    """An order must not be made whose answer nobody could verify: session, copy and receiver refuse the key."""
    good = Credentials("M1", signing_key=keys["rsa private"], service_keys=keys["rsa public"])
    given = Credentials("M2", signing_key=keys["rsa private"], service_keys=keys[bad])
    errors = [
        refusal(lambda: session(given)),
        refusal(lambda: session(good).for_merchant(given)),
        refusal(lambda: Receiver(profile=BODY, credentials=given, inbox=SqliteInbox(tmp_path / "inbox.db"))),
    ]

    assert {"credentials.service_keys"} == {each.field for each in errors}
    assert all(str(each).startswith("credentials.service_keys ") and why in str(each) for each in errors)
    assert not any(body(keys[bad]) in shown(each) for each in errors)


@pytest.mark.parametrize(("bad", "why"), BAD_SIGNING_KEYS.items(), ids=BAD_SIGNING_KEYS)
def test_signing_key_that_cannot_sign(bad: str, why: str, keys: Keys, tmp_path: Path) -> None:
    """A key that cannot sign is refused as the session is made, and is not shown."""
    good = Credentials("M1", signing_key=keys["rsa private"], service_keys=keys["rsa public"])
    given = evolve(good, signing_key=keys[bad])
    errors = [
        refusal(lambda: session(given)),
        refusal(lambda: session(good).for_merchant(given)),
        refusal(lambda: Receiver(profile=BODY, credentials=given, inbox=SqliteInbox(tmp_path / "inbox.db"))),
    ]

    assert {"credentials.signing_key"} == {each.field for each in errors}
    assert all(str(each).startswith("credentials.signing_key ") and why in str(each) for each in errors)
    assert not any(body(keys[bad]) in shown(each) for each in errors)


def test_second_of_two(keys: Keys) -> None:
    """While keys rotate each of them is tried, and the one that is refused is named by its place."""
    given = Credentials("M1", signing_key=keys["rsa private"], service_keys=[keys["rsa public"], keys["rsa private"]])
    error = refusal(lambda: session(given))

    assert str(error).startswith("credentials.service_keys: key 2 is not a public key for rsa-sha256: it is a private")
    assert "credentials.service_keys" == error.field


@pytest.mark.parametrize("algorithm", ["rsa-sha256", "rsa-sha512", "ed25519"])
def test_good_keys(algorithm: Any, keys: Keys) -> None:
    """Keys of the algorithm are taken, one or several."""
    pair = "ed25519" if algorithm == "ed25519" else "rsa"
    profile = evolve(SIGNED, signature=SortedPairs(algorithm=algorithm, encoding="hex"))
    public = keys[f"{pair} public"]

    pay = session(Credentials("M1", signing_key=keys[f"{pair} private"], service_keys=[public, public]), profile)

    assert profile is pay.profile


@pytest.mark.parametrize("algorithm", ["md5", "hmac-md5", "hmac-sha256", "hmac-sha512"])
@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("k", "must be a shared secret of 8 characters or more: a shorter one is guessed"),
        ("1234567", "must be a shared secret of 8 characters or more"),
        ("rsa public", "must be a shared secret, not a PEM text: anybody who has a public key could sign with it"),
        ("rsa private", "must be a shared secret, not a PEM text"),
        ("certificate", "must be a shared secret, not a PEM text"),
    ],
)
def test_shared_secret_that_is_none(algorithm: Any, bad: str, why: str, keys: Keys) -> None:
    """A secret that is guessed, or that everybody has, protects nothing: it is refused on both sides."""
    scheme = SortedPairs(algorithm=algorithm, encoding="hex", key_param="key")
    key = keys.get(bad, bad)
    signing = refusal(lambda: session(Credentials("M1", signing_key=key), evolve(SIGNED, signature=scheme)))
    verifying = refusal(
        lambda: session(
            Credentials("M1", signing_key=SHARED, service_keys=[SHARED, key]), evolve(SIGNED, signature=scheme)
        )
    )

    assert ("credentials.signing_key", "credentials.service_keys") == (signing.field, verifying.field)
    assert str(signing).startswith(f"credentials.signing_key {why}")
    assert str(verifying).startswith(f"credentials.service_keys: key 2 {why}")


class Own:
    """A scheme of the merchant's own, whose keys are names in a vault."""

    def sign(self, *_: object, **__: object) -> str:
        """Sign nothing."""
        raise NotImplementedError

    def verify(self, *_: object, **__: object) -> bool:
        """Verify nothing."""
        raise NotImplementedError


@pytest.mark.parametrize(
    "profile",
    [
        Profile(),
        Profile(signature=SortedPairs(encoding="hex"), answer=AnswerShape(signature="sign")),
        Profile(signature=Own(), answer=AnswerShape(signature="sign")),
        evolve(SIGNED, signed=(), answer=AnswerShape()),
    ],
    ids=["no scheme", "the algorithm is open", "own scheme", "nothing is signed"],
)
def test_keys_that_nothing_uses_are_not_tried(profile: Profile) -> None:
    """Only what the profile's own scheme uses can be tried; a scheme of the merchant's own knows its keys alone."""
    assert profile is session(Credentials("M1", signing_key="rubbish", service_keys="other rubbish"), profile).profile


@pytest.mark.parametrize("profile", [SIGNED, HMAC, BODY])
def test_missing_keys_are_asked_for_by_the_call(profile: Profile) -> None:
    """A session without keys may be the base of others that have them, or queue requests for them."""
    assert "M2" == session(Credentials("M1"), profile).for_merchant(Credentials("M2")).merchant_id


def test_without_the_cryptography_package(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra that is missing is named as the session is made."""
    # The tests' own environment has the package: `None` makes this import fail as if it had not.
    monkeypatch.setitem(sys.modules, "payasync.signing.asymmetric", None)
    error = refusal(lambda: session(Credentials("M1", signing_key=keys["rsa private"], service_keys=["a", "b"])))

    assert 'pip install "payasync[rsa]"' in str(error)
    assert "signature.algorithm" == error.field


def test_short_secret_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """From 8 to 15 characters a secret is used, and warned of with each merchant's session; a copy says no more."""
    caplog.set_level(logging.WARNING, "payasync")
    short = Credentials("M1", signing_key="canary 12345678", service_keys=[SHARED, "canary1" + "8"])
    session(short, HMAC).with_options()
    first = [record.getMessage() for record in caplog.records]
    session(Credentials("M1", signing_key=SHARED), HMAC).for_merchant(short)

    assert [
        "credentials.signing_key has fewer than 16 characters, and could be guessed: ask for a longer one",
        "credentials.service_keys: key 2 has fewer than 16 characters, and could be guessed: ask for a longer one",
    ] == first
    assert [*first, *first] == [record.getMessage() for record in caplog.records]


def test_secret_of_16_characters_is_long_enough(keys: Keys, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody is warned of a secret of the usual length, nor of keys that no length protects."""
    session(Credentials("M1", signing_key="0123456789abcdef"), HMAC)
    session(Credentials("M1", signing_key=keys["rsa private"], service_keys=keys["rsa public"]))

    assert [] == caplog.records
