import sys
import traceback
from typing import Final

import pytest

from payasync.credentials import Secret
from payasync.errors import ConfigurationError
from payasync.signing.algorithms import ALGORITHMS

KEY: Final = Secret("signing key of M1")
ASYMMETRIC: Final = ("rsa-sha256", "rsa-sha512", "ed25519")


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
    monkeypatch.setitem(sys.modules, "payasync.signing.asymmetric", None)
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
    monkeypatch.setitem(sys.modules, "payasync.signing.asymmetric", None)

    assert isinstance(ALGORITHMS[name].symmetric, bool)
    assert isinstance(ALGORITHMS[name].blocking, bool)
