import traceback
from typing import Final

import pytest

from payasync.credentials import Secret
from payasync.signing.algorithms import ALGORITHMS

KEY: Final = Secret("signing key of M1")
ASYMMETRIC: Final = ("rsa-sha256", "rsa-sha512", "ed25519")


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {*ASYMMETRIC}))
def test_signer_signs_each_message_by_itself(name: str) -> None:
    """What is prepared for a key signs one message after another, and keeps nothing of any."""
    algorithm, key = ALGORITHMS[name], KEY
    sign = algorithm.signer(key)
    messages = [b"message", b"massage", b"", b"message"]

    assert [algorithm.signer(key)(each) for each in messages] == [sign(each) for each in messages]


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {*ASYMMETRIC}))
def test_signer_shows_no_key(name: str) -> None:
    """What is prepared holds the key in no form that a traceback with local variables shows."""
    sign = ALGORITHMS[name].signer(Secret("canary of a key"))
    with pytest.raises(TypeError) as caught:
        sign("no bytes")  # type: ignore[arg-type] # so that it fails
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())

    assert "canary" not in f"{shown} {sign!r}"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_kind_of_algorithm(name: str) -> None:
    """A symmetric key both signs and verifies; RSA takes so long that it is done off the event loop."""
    algorithm = ALGORITHMS[name]

    assert (name not in ASYMMETRIC, name.startswith("rsa-")) == (algorithm.symmetric, algorithm.blocking)
