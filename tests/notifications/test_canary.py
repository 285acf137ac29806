"""Keys that verify notifications are searched for wherever an error could have written them down."""

import base64
from collections.abc import Callable
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import Credentials, PayasyncError, Profile, SortedPairs
from payasync.notifications.verification import verification_of, verify
from payasync.profile.schema import NotificationShape
from payasync.sandbox import PROFILE
from payasync.testing import sign_notification
from tests.test_canary import CANARIES, keys, singing, written

SHAPE: Final = NotificationShape(verification="body", signature="sign")
BODY: Final = Profile(notification=SHAPE, signature=SortedPairs(algorithm="hmac-sha256", encoding="hex"))
MD5: Final = evolve(BODY, signature=SortedPairs(algorithm="md5", encoding="hex", key_param="key"))
PUBLIC: Final = evolve(BODY, signature=SortedPairs(algorithm="ed25519", encoding="hex"))
NOW: Final = 1_800_000_000
HEADERS: Final = {"webhook-id": "m1", "webhook-timestamp": str(NOW), "webhook-signature": "v1,AAAA"}


def look(profile: Profile, raw: bytes = b'{"sign":"00"}', credentials: Credentials | None = None) -> Any:
    """Verify what is not the service's."""
    return verify(raw, HEADERS, profile=profile, credentials=credentials or keys(), clock=lambda: NOW)


def sign(profile: Profile, data: Any) -> Any:
    """Sign what cannot be signed."""
    return sign_notification(data, profile=profile, credentials=keys())


FAILING: Final[dict[str, Callable[[], Any]]] = {
    "headers": lambda: look(PROFILE),
    "body": lambda: look(BODY),
    "key in the text": lambda: look(MD5),
    "no signature": lambda: look(MD5, b"{}"),
    "not JSON": lambda: look(MD5, b"{"),
    "no public key": lambda: look(PUBLIC),
    "no webhook key": lambda: look(PROFILE, credentials=keys(notification_keys=f"{CANARIES['notification_keys']}!")),
    "unsignable": lambda: sign(MD5, {"amount": 1.5}),
    "no private key": lambda: sign(PUBLIC, {"amount": 1}),
    "no payload": lambda: sign(PROFILE, None),
}


@pytest.mark.parametrize("failing", FAILING.values(), ids=FAILING)
def test_no_error_shows_a_key(failing: Callable[[], Any]) -> None:
    """Neither a key nor its bytes are in the words, the facts, the pickle or the local variables of an error."""
    with pytest.raises(PayasyncError) as refused:
        failing()
    texts = written(refused.value)
    decoded = base64.b64decode(CANARIES["notification_keys"].removeprefix("whsec_"))

    assert [] == singing(texts)
    assert [] == [name for name, text in texts.items() if repr(decoded)[2:12] in text]


@pytest.mark.parametrize("profile", [PROFILE, BODY, MD5], ids=["headers", "body", "key in the text"])
def test_what_verifies_shows_no_key(profile: Profile) -> None:
    """What a receiver holds is masked, as credentials are."""
    verification = verification_of(profile, keys())

    assert [] == singing({"repr": repr(verification), "words": verification.checks})
