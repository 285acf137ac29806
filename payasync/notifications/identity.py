"""Which event a notification tells of: a redelivery has the same key (spec: Events, 4, which shows none)."""

import hashlib
import json
from collections.abc import Collection, Mapping
from itertools import count
from typing import Any, Final

from attrs import frozen

from payasync.documents import at
from payasync.profile import NONCE
from payasync.shapes import NotificationShape

MAX_KEY: Final = 200
"""Characters of a key; of a longer one there is a hash."""

WEBHOOK_ID: Final = "webhook-id"

OF_THE_EVENT: Final = frozenset({"standard-webhooks", "none"})
"""Ways of verification by which a time in the payload is that of the event, and stays; else a redelivery has a new one.
"""

Path = tuple[str, ...]


@frozen
class Identity:
    """Names an event.

    Attributes:
        key: The same in each redelivery.
        weak: It is but the digest: two events that say the same are taken for one.
        digest: SHA-256 of the body without what a redelivery may change.
    """

    key: str
    weak: bool
    digest: str


def identity(
    shape: NotificationShape, kind: str | None, document: Any, data: Any, headers: Mapping[str, str]
) -> Identity:
    """Return which event a notification tells of.

    By the profile's paths of its kind, else by the header of Standard Webhooks, else by what the body says.

    Args:
        shape: The profile's.
        kind: Of the notification.
        document: Its body, decoded.
        data: The payload in it.
        headers: Its headers.
    """
    digested = digest(shape, document, sent="" if shape.verification in OF_THE_EVENT else shape.time)
    named = [at(data, path) for path in shape.id.get(kind or "", ())]
    if named and all(map(names, named)):
        return Identity(key_of(f"{kind}:", named), weak=False, digest=digested)
    if shape.verification == "standard-webhooks" and names(headers.get(WEBHOOK_ID)):
        return Identity(_key("webhook:", headers[WEBHOOK_ID]), weak=False, digest=digested)
    # With its time: a renewal that says the same a month later is another event, and must not be lost.
    return Identity(":".join(filter(None, ("weak", kind, digest(shape, document)))), weak=True, digest=digested)


def names(value: object) -> bool:
    """Return whether a value can name something: a number, or a text that is not blank."""
    return bool(value.strip()) if isinstance(value, str) else type(value) is int


def key_of(of: str, values: list[str | int]) -> str:
    """Return the key that values make, which together name something, behind what it is a key of."""
    return _key(of, _json(values))


def _key(of: str, name: str) -> str:
    key = of + name
    return key if len(key) <= MAX_KEY else f"{of}sha256:{_sha256(name)}"


def digest(shape: NotificationShape, document: Any, *, sent: str = "") -> str:
    """Return the SHA-256, in hexadecimal, of a document without what a redelivery may change.

    That is its signature and its nonce, which are made afresh; and the profile's `volatile` fields: a name stands for
    every field of it, a dotted path for one. The order of names, and what stands between them, makes no difference.

    Args:
        shape: The profile's.
        document: A body, decoded.
        sent: The path of a time that is new in each delivery, too.
    """
    fresh = {NONCE, *(each for each in shape.volatile if "." not in each)}
    dotted = [each for each in shape.volatile if "." in each]
    paths = [tuple(each.split(".")) for each in (*dotted, shape.signature, sent) if each]
    return _sha256(_json(_without(document, frozenset(fresh), paths)))


def _without(value: Any, names: frozenset[str], paths: Collection[Path]) -> Any:
    if not isinstance(value, dict | list):
        return value
    if isinstance(value, dict):
        kept = [name for name in value if name not in names and (name,) not in paths]
        return {name: _without(value[name], names, _below(paths, name)) for name in kept}
    meant = {path[0] for path in paths}  # a stranger's list may be very long, and few of its places are meant
    return [
        _without(each, names, _below(paths, place) if place in meant else ()) if isinstance(each, dict | list) else each
        for place, each in zip(map(str, count()), value, strict=False)
        if place not in meant or (place,) not in paths
    ]


def _below(paths: Collection[Path], step: str) -> list[Path]:
    return [path[1:] for path in paths if path[0] == step and len(path) > 1]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
