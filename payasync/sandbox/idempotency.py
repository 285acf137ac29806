"""Idempotency keys: the responses that the sandbox repeats, and the requests that are still in progress."""

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from aiohttp import web
from attrs import asdict

from payasync.endpoints import Operation
from payasync.profile.schema import Idempotency
from payasync.sandbox.dialect import Outgoing
from payasync.sandbox.model import RecordedResponse, RefusedError, Why
from payasync.sandbox.store import Store


class IdempotencyKeys:
    """Repeats the response to a write whose idempotency key was used before.

    A write is carried out without a key, too. What is refused before it is carried out, such as a wrong signature, is
    not recorded.

    Args:
        store: Where responses are stored.
        shape: Says where the key stands, and how long it counts.
    """

    def __init__(self, store: Store, shape: Idempotency) -> None:
        self._store: Final = store
        self._shape: Final = shape
        self._in_progress: Final = dict[str, web.Request]()

    def find(self, operation: Operation, fields: Mapping[str, Any], request: web.Request) -> str:
        """Return the key of a request, or an empty text."""
        if operation.read or not self._shape.used:
            return ""
        key = request.headers.get(self._shape.header) if self._shape.header else fields.get(self._shape.field)
        return key if isinstance(key, str) else ""

    @contextmanager
    def hold(self, key: str, request: web.Request) -> Generator[None]:
        """Hold a key for a request. Until the block ends, no other request is carried out under the key."""
        self._in_progress.setdefault(key, request)
        try:
            yield
        finally:
            if self._in_progress.get(key) is request:
                del self._in_progress[key]

    def recall(
        self, key: str, fingerprint: str, request: web.Request, *, numbered: bool, once: bool
    ) -> Outgoing | None:
        """Return the recorded response to the request, or `None` if the request is to be carried out.

        Args:
            key: The key.
            fingerprint: Equal for equal requests.
            request: The request.
            numbered: The request has the merchant's own number, so that its key follows from the number.
            once: A used key is refused for the same request, too.

        Raises:
            RefusedError: The key was used for another request, or at all if `once`; or the first is in progress.
        """
        before, lifetime = self._store.find(RecordedResponse, key=key), self._shape.lifetime
        if before and (lifetime is None or (self._store.now() - before.at).total_seconds() < lifetime):
            name = self._shape.header or self._shape.field
            if once:
                raise RefusedError("duplicate", f"{name} was used before", field=name)
            if before.fingerprint != fingerprint:
                why: Why = "duplicate" if numbered else "invalid"
                raise RefusedError(why, f"{name} was used for another request", field=name)
            return Outgoing(**json.loads(before.outgoing))
        if self._in_progress.get(key, request) is not request:
            raise RefusedError("duplicate", "a request with the same idempotency key is in progress")
        return None

    def record(self, key: str, fingerprint: str, outgoing: Outgoing) -> None:
        """Record the response to a request, in place of one under the same key whose lifetime is over."""
        before, now = self._store.find(RecordedResponse, key=key), self._store.now()
        after = RecordedResponse(key=key, fingerprint=fingerprint, at=now, outgoing=json.dumps(asdict(outgoing)))
        if before is None:
            self._store.add(after)
        else:
            self._store.move(before, after)
