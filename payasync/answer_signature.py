"""Whether the service signed what it sent: over the object that holds the signature."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from attrs import evolve

from payasync.absent import ABSENT
from payasync.calls import Call, Reply
from payasync.credentials import Credentials
from payasync.documents import at, exactly
from payasync.errors import ConfigurationError
from payasync.secret import Secret
from payasync.signing import IDENTIFIERS, SignatureScheme, SortedPairs


def verified(call: Call, reply: Reply, scheme: SignatureScheme, keys: Iterable[Secret]) -> bool | None:
    """Return whether one of the keys verifies an answer; `None` where it carries no signature.

    Args:
        call: Its profile says where the signature stands.
        reply: Not yet believed.
        scheme: That of the profile.
        keys: Those of the service, several while they rotate.
    """
    place, _, name = call.profile.answer.signature.rpartition(".")
    signed = at(reply.document, place)
    if not isinstance(signed, dict) or name not in signed:
        return None
    if not isinstance(signed[name], str) or exactly(reply.body) is ABSENT:
        return False
    if isinstance(scheme, SortedPairs):
        scheme = _for_answers(scheme, call.profile.answer.redirect_url.rpartition(".")[2])
    return signs(scheme, signed, name, path=call.operation.path, keys=keys)


def signs(scheme: SignatureScheme, signed: Mapping[str, Any], name: str, *, path: str, keys: Iterable[Secret]) -> bool:
    """Return whether the signature that an object holds is that of its other fields, by one of the keys.

    Args:
        scheme: Makes no difference between an answer and a notification.
        signed: The object.
        name: Of the field that holds the signature, which is a text.
        path: The endpoint's path; empty where there is none.
        keys: Several while they rotate.
    """
    fields = {each: value for each, value in signed.items() if each != name}
    return any(_verifies(scheme, fields, signed[name], path, key) for key in keys)


def service_keys(credentials: Credentials, scheme: SignatureScheme, *, signed: str, point: str) -> tuple[Secret, ...]:
    """Return the service's keys, or the merchant's own where the scheme is symmetric.

    Args:
        credentials: The merchant's.
        scheme: That of the profile.
        signed: What is, in words.
        point: Where the profile says so.

    Raises:
        ConfigurationError: There is none.
    """
    if credentials.service_keys:
        return credentials.service_keys
    if credentials.signing_key is not None and getattr(scheme, "symmetric", False):
        return (credentials.signing_key,)
    raise ConfigurationError(
        f"credentials.service_keys is empty (PAYASYNC_SERVICE_KEYS in the environment): the profile says that {signed} "
        f"are signed ({point}), and they are verified with it",
        field="credentials.service_keys",
    )


@lru_cache(maxsize=64)
def _for_answers(scheme: SortedPairs, address: str) -> SortedPairs:
    """Return a scheme that lets the delimiters stand in the redirect address, too: no request has that field."""
    if not address or address in IDENTIFIERS:
        return scheme
    return evolve(scheme, allow_delimiters=(*scheme.allow_delimiters, address))


def _verifies(scheme: SignatureScheme, fields: Mapping[str, Any], signature: str, path: str, key: Secret) -> bool:
    try:
        return scheme.verify(fields, signature, path=path, key=key) is True
    except Exception:  # noqa: BLE001 - a merchant's own scheme may raise anything, and what raises verifies nothing
        return False
