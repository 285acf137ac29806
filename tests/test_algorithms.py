import sys
import traceback
from typing import Final, get_args

import pytest

from payasync.algorithms import ALGORITHMS, AlgorithmName
from payasync.errors import ConfigurationError
from payasync.secret import Secret

KEY: Final = Secret("signing key of M1")
ASYMMETRIC: Final = ("rsa-sha256", "rsa-sha512", "ed25519")

# RFC 4231, test case 1 (HMAC-SHA-256, HMAC-SHA-512); RFC 2202, section 2, the same (HMAC-MD5).
HMAC_VECTORS: Final = [
    ("hmac-md5", "\x0b" * 16, "Hi There", "9294727a3638bb1c13f48ef8158bfc9d"),
    (
        "hmac-sha256",
        "\x0b" * 20,
        "Hi There",
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
    ),
    (
        "hmac-sha512",
        "\x0b" * 20,
        "Hi There",
        (
            "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cde"
            "daa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854"
        ),
    ),
]

# RFC 1321, appendix A.5.
MD5_VECTORS: Final = [
    ("", "d41d8cd98f00b204e9800998ecf8427e"),
    ("abc", "900150983cd24fb0d6963f7d28e17f72"),
    ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
]


def test_every_name_has_an_algorithm() -> None:
    """What a profile can name can be computed, and the other way round."""
    assert set(get_args(AlgorithmName)) == set(ALGORITHMS)


@pytest.mark.parametrize(("name", "key", "message", "digest"), HMAC_VECTORS)
def test_hmac_vectors(name: str, key: str, message: str, digest: str) -> None:
    """The HMACs are those of RFC 2202 and RFC 4231."""
    assert digest == ALGORITHMS[name].sign(message.encode(), Secret(key)).hex()
    assert ALGORITHMS[name].verify(message.encode(), bytes.fromhex(digest), Secret(key))


@pytest.mark.parametrize(("message", "digest"), MD5_VECTORS)
def test_md5_vectors(message: str, digest: str) -> None:
    """md5 is that of RFC 1321; the key is in the message, and not used apart from it."""
    assert digest == ALGORITHMS["md5"].sign(message.encode(), KEY).hex()
    assert ALGORITHMS["md5"].verify(message.encode(), bytes.fromhex(digest), KEY)


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {*ASYMMETRIC}))
def test_signer_signs_each_message_by_itself(name: str) -> None:
    """What is prepared for a key signs one message after another, and keeps nothing of any."""
    algorithm, key = ALGORITHMS[name], KEY
    sign = algorithm.signer(key)
    messages = [b"message", b"massage", b"", b"message"]

    assert [algorithm.sign(each, key) for each in messages] == [sign(each) for each in messages]


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {*ASYMMETRIC}))
def test_signer_shows_no_key(name: str) -> None:
    """What is prepared holds the key in no form that a traceback with local variables shows."""
    sign = ALGORITHMS[name].signer(Secret("canary of a key"))
    with pytest.raises(TypeError) as caught:
        sign("no bytes")  # type: ignore[arg-type] # so that it fails
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())

    assert "canary" not in f"{shown} {sign!r}"


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {*ASYMMETRIC}))
def test_other_message_or_signature_fails(name: str) -> None:
    """A changed message, a cut signature and an empty one do not verify."""
    algorithm, key = ALGORITHMS[name], KEY
    signature = algorithm.sign(b"message", key)

    assert not algorithm.verify(b"massage", signature, key)
    assert not algorithm.verify(b"message", signature[:-1], key)
    assert not algorithm.verify(b"message", b"", key)


@pytest.mark.parametrize("name", ["hmac-md5", "hmac-sha256", "hmac-sha512"])
def test_other_key_fails(name: str) -> None:
    """Only the key that signed verifies."""
    assert not ALGORITHMS[name].verify(b"message", ALGORITHMS[name].sign(b"message", KEY), Secret("Signing key of M1"))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_symmetric_says_whether_one_key_does_both(name: str) -> None:
    """Without service keys the signing key verifies, but only where the algorithm is symmetric."""
    assert (name not in ASYMMETRIC) == ALGORITHMS[name].symmetric


@pytest.mark.parametrize("name", ALGORITHMS)
def test_only_rsa_blocks(name: str) -> None:
    """An RSA signature takes so long that it is made off the event loop; the others are made in place."""
    assert name.startswith("rsa-") == ALGORITHMS[name].blocking


@pytest.mark.parametrize("name", ASYMMETRIC)
def test_missing_cryptography_says_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra the error names the setting and the command, and hides the key."""
    # The tests' own environment has the package: `None` makes this import fail as if it had not.
    monkeypatch.setitem(sys.modules, "payasync.asymmetric", None)
    algorithm, key = ALGORITHMS[name], Secret("canary of a key")
    with pytest.raises(ConfigurationError, match=r'pip install "payasync\[rsa\]"') as signing:
        algorithm.sign(b"message", key)
    with pytest.raises(ConfigurationError, match=r'pip install "payasync\[rsa\]"') as verifying:
        algorithm.verify(b"message", b"signature", key)

    for caught in (signing, verifying):
        shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
        assert "signature.algorithm" == caught.value.field
        assert name in str(caught.value)
        assert caught.value.__context__ is None
        assert "Secret('canary')" not in shown
        assert "'canary'" not in shown


@pytest.mark.parametrize("name", ALGORITHMS)
def test_kind_of_algorithm_is_known_without_cryptography(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile can be read, audited and shown where the extra is missing."""
    # As above: the package is there, and must seem not to be.
    monkeypatch.setitem(sys.modules, "payasync.asymmetric", None)

    assert isinstance(ALGORITHMS[name].symmetric, bool)
    assert isinstance(ALGORITHMS[name].blocking, bool)
