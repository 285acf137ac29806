"""The mask over keys that a service repeats in a response, so that no error, log or journal shows them."""

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from attrs import evolve
from multidict import CIMultiDict

from payasync.credentials import Credentials, Secret
from payasync.middleware.sign import reveal
from payasync.signing.templates import names_in
from payasync.strict_json import ABSENT, dumps
from payasync.wire.call import Reply

if TYPE_CHECKING:
    from payasync.profile import Auth

MASK: Final = "***"
SHORTEST_KEY: Final = 8
"""Characters from which a key is masked. A shorter text may stand in a response by chance."""
SHORTEST_DIGITS: Final = 16
"""Characters from which a key of digits only is masked. A shorter one may be an order number or an amount."""


class KeyMask:
    r"""Replaces the merchant's keys in replies. A reply without them stays the same object.

    A key is also found percent-encoded, with `\/` for `/`, and as an integer in JSON. It is not found in another
    form: with lowercase percent codes, encoded twice, hashed, or as a number with an exponent.

    The merchant's number and the public key are no secrets. They stay, because a response may name them: an order
    number or an address may hold them.

    Args:
        auth: The headers that hold keys: the base64 of HTTP Basic is masked, too.
        credentials: The merchant's keys.
    """

    def __init__(self, auth: "Auth", credentials: Credentials) -> None:
        texts = {form for text in _find_texts(auth, credentials) for form in _forms_of(text)}
        # The longest comes first, because it may hold a shorter one. A traceback may show attributes: they are secrets.
        self._keys: tuple[Secret, ...] = tuple(map(Secret, sorted(texts, key=len, reverse=True)))
        # The method alone, because the pattern's `repr` shows the keys.
        self._find_key: Callable[[str], object] = re.compile(
            "|".join(re.escape(key.reveal()) for key in self._keys) or "(?!)"
        ).search

    def __call__(self, reply: Reply) -> Reply:
        """Return a reply without the merchant's keys."""
        text = "\n".join((reply.body.decode(errors="surrogateescape"), *reply.headers.values()))
        if "\\" in text:  # a part of a key may be escaped
            text += dumps(reply.document).decode()
        if not self._find_key(text):
            return reply
        headers = CIMultiDict((name, self._mask(value)) for name, value in reply.headers.items())
        masked = evolve(reply, headers=headers, body=self._mask_body(reply))
        return reply if masked == reply else masked

    def _mask_body(self, reply: Reply) -> bytes:
        document = reply.document
        if document is ABSENT:
            body = reply.body
            for key in self._keys:
                body = body.replace(key.reveal().encode(), MASK.encode())
            return body
        masked = self._mask(document)
        return reply.body if masked == document else dumps(masked)

    def _mask(self, value: Any) -> Any:
        """Return a JSON value whose texts and names hold no key."""
        if isinstance(value, dict):
            return {self._mask(name): self._mask(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._mask(inner) for inner in value]
        if isinstance(value, str):
            for key in self._keys:
                value = value.replace(key.reveal(), MASK)
        elif isinstance(value, int) and MASK in (text := self._mask(str(value))):
            return text
        return value


def _find_texts(auth: "Auth", credentials: Credentials) -> Iterator[str]:
    """Yield the keys, and the forms in which headers hold them."""
    several = (*credentials.service_keys, *credentials.notification_keys)
    yield from (each.reveal() for each in (credentials.secret_key, credentials.signing_key, *several) if each)
    if all(getattr(credentials, name) for name in auth.needs):
        named = {name for value in auth.all_headers.values() for name in names_in(value)}
        yield from (reveal(credentials, name) for name in named & {"basic", "basic_user"})


def _forms_of(key: str) -> set[str]:
    """Return a key as it stands in a text, in an address, and in JSON whose reader does not know it as JSON."""
    if len(key) < (SHORTEST_DIGITS if key.isdecimal() else SHORTEST_KEY):
        return set()
    return {key, quote(key, safe=""), key.replace("/", "\\/"), dumps(key).decode()[1:-1]}
