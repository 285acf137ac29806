"""Whether an answer is signed by the service: over the object that holds the signature."""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from attrs import evolve

from payasync.calls import Call, Reply
from payasync.documents import at
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
    if not isinstance(signed[name], str) or _repeats_a_name(reply.body):
        return False
    fields = {each: value for each, value in signed.items() if each != name}
    if isinstance(scheme, SortedPairs):
        scheme = _for_answers(scheme, call.profile.answer.redirect_url.rpartition(".")[2])
    return any(_verifies(scheme, fields, signed[name], call.operation.path, key) for key in keys)


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


def _repeats_a_name(body: bytes) -> bool:
    """Return whether an object of a document has one name twice: readers differ in which of the two they take."""
    try:
        json.loads(body, object_pairs_hook=_distinct)
    except ValueError:
        return True
    return False


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("a name stands twice")
    return names
