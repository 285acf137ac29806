"""Which keys of a merchant a profile's scheme uses, and whether it can use them: found out before anything is sent."""

from collections.abc import Iterator
from typing import Final

from payasync.credentials import Credentials, Secret
from payasync.errors import ConfigurationError
from payasync.profile.profile import Profile
from payasync.signing.algorithms import ALGORITHMS, SERVICE_KEYS, SIGNING_KEY
from payasync.signing.schemes import SortedPairs

LONG_ENOUGH: Final = 16
"""Characters of a shared secret; a shorter one is used, and warned of."""


def check_keys(profile: Profile, credentials: Credentials) -> None:
    """Refuse keys that cannot sign or verify.

    Each key that is given, and that the profile's scheme uses, is tried. A missing key is named by the call that needs
    it: a session without keys may queue requests, or be the base of sessions for other merchants. Keys of the
    merchant's own scheme are not tried: only the scheme knows them.

    Raises:
        ConfigurationError: It names the key, and the number of one among several.
    """
    for error in refused_keys(profile, credentials):
        raise error


def refused_keys(profile: Profile, credentials: Credentials) -> Iterator[ConfigurationError]:
    """Yield what is wrong with each key that cannot sign or verify; as `check_keys`."""
    scheme = profile.signature
    if type(scheme) is not SortedPairs or not scheme.algorithm:
        return
    algorithm = ALGORITHMS[scheme.algorithm]
    for field, number, key in _used(profile, credentials, symmetric=algorithm.symmetric):
        try:
            algorithm.check(key, signs=field == SIGNING_KEY)
        except ConfigurationError as error:
            refused = error
        else:
            continue
        if number:
            refused.args = (str(refused).replace(field, f"{field}: key {number}", 1),)
        yield refused


def short_keys(profile: Profile, credentials: Credentials) -> Iterator[str]:
    """Yield a warning about each shared secret that is used, and so short that it could be guessed."""
    scheme = profile.signature
    if type(scheme) is not SortedPairs or not scheme.algorithm or not scheme.symmetric:
        return
    for field, number, key in _used(profile, credentials, symmetric=True):
        if len(key.reveal()) < LONG_ENOUGH:
            name = f"{field}: key {number}" if number else field
            yield f"{name} has fewer than {LONG_ENOUGH} characters, and could be guessed: ask for a longer one"


def _used(profile: Profile, credentials: Credentials, *, symmetric: bool) -> Iterator[tuple[str, int, Secret]]:
    """Yield the keys that the scheme uses, each with its field, and its number where the field holds several."""
    verifies = bool(profile.answer.signature) or profile.notification.verification == "body"
    if credentials.signing_key is not None and (profile.signed or (verifies and symmetric)):
        yield SIGNING_KEY, 0, credentials.signing_key
    if verifies:
        several = len(credentials.service_keys) > 1
        for number, key in enumerate(credentials.service_keys, start=1):
            yield SERVICE_KEYS, number if several else 0, key
