"""What the service signs itself: answers and notifications, where the profile says so (spec: Events, gaps).

Signed is the object that holds the signature, by the sandbox's own code.
"""

import inspect
import json
import secrets
from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from attrs import evolve, fields_dict

from payasync.credentials import Secret
from payasync.errors import ConfigurationError
from payasync.profile.schema import NONCE, AnswerShape
from payasync.sandbox import signatures
from payasync.sandbox.dialect import NO_PATHS, TELLING, Outgoing, Vocabulary, place, written
from payasync.sandbox.store import join_path, set_at, table_at, under
from payasync.signing.schemes import SortedPairs


class Seal:
    """Signs with the service's key.

    Args:
        words: The profile's.
        key: The service's.
        now: Wall time, which verifiers compare with theirs.

    Raises:
        ConfigurationError: What would be signed holds objects, which the profile's scheme refuses to sign.
    """

    def __init__(self, words: Vocabulary, key: Secret, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now: Final = now
        self._scheme: Final = words.profile.signature
        self._answer: Final = words.answer
        self._notification: Final = words.notification
        self._key: Final = key
        if isinstance(self._scheme, SortedPairs) and self._scheme.nested == "refuse":
            _check_flat("answer.signature", self._answer.signature, _told(words))
            if self._notification.verification == "body":
                _check_flat("notification.signature", self._notification.signature, _notified(words))

    async def answer(self, outgoing: Outgoing, path: str) -> Outgoing:
        """Return an answer with its signature, where the profile says that answers have one.

        A refusal has one, too, unless the profile says that refusals have none.

        Args:
            outgoing: The answer.
            path: The endpoint's path.
        """
        if not self._answer.signature or (outgoing.refused and self._answer.refusals_signed is False):
            return outgoing
        document = deepcopy(dict(outgoing.document))
        above, message = self._answer.signature.rpartition(".")[0], self._answer.message
        if message.rpartition(".")[0] == above:
            self._unsplit(table_at(document, above), message.rpartition(".")[2])
        await self._sign(document, self._answer.signature, path)
        return evolve(outgoing, document=document)

    @property
    def in_headers(self) -> bool:
        """Whether notifications carry their signature in headers, by Standard Webhooks."""
        return self._notification.verification == "standard-webhooks"

    @property
    def timed(self) -> bool:
        """Whether notifications carry a time, in headers or in their body."""
        return self.in_headers or bool(self._notification.time)

    async def notification(self, body: str, age: int = 0) -> str:
        """Return a notification's body as one attempt sends it: what is volatile is fresh, and it is signed.

        Args:
            body: JSON, as the outbox has it.
            age: Seconds by which the time in the body lies back, where a fault wants that.
        """
        shape = self._notification
        if self.in_headers or (shape.verification != "body" and not age):
            return body
        document = json.loads(body)
        if shape.time and (age or {shape.time, shape.time.rpartition(".")[2]} & set(shape.volatile)):
            set_at(document, shape.time, written(self._now() - timedelta(seconds=age)))
        if shape.verification == "body":
            # There is no endpoint: nothing stands for the path.
            await self._sign(document, shape.signature, "")
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False)

    async def _sign(self, document: dict[str, Any], at: str, path: str) -> None:
        above, _, name = at.rpartition(".")
        signed = table_at(document, above)
        signed[NONCE] = secrets.token_hex(16)
        signed.pop(name, None)
        made = signatures.sign(self._scheme, signed, path=path, key=self._key)
        signed[name] = await made if inspect.isawaitable(made) else made

    def _unsplit(self, signed: dict[str, Any], message: str) -> None:
        """Keep what would split the signed text out of the words for people: the client would not believe it."""
        scheme = self._scheme or SortedPairs()
        if message in signed and isinstance(scheme, SortedPairs):
            signed[message] = str(signed[message]).replace("=", " ").replace(scheme.separator, " ")


def _check_flat(point: str, at: str, paths: Iterator[str]) -> None:
    above = at.rpartition(".")[0]
    if not at:
        return
    for path in paths:
        if "." in (under(path, above) or ""):
            raise ConfigurationError(
                f"{point}: the object that holds {at} holds {path}, too, and signature.nested refuses to sign an "
                "object inside it. Set nested to json or omit, or move one of the two",
                field="signature.nested",
            )


def _told(words: Vocabulary) -> Iterator[str]:
    """Yield where things stand in answers."""
    answer = words.answer
    yield from (place(answer, point) for point in fields_dict(AnswerShape) if point not in {"data", *NO_PATHS})
    yield join_path(answer.data, words.about("out_trade_no"))


def _notified(words: Vocabulary) -> Iterator[str]:
    """Yield where things stand in notifications."""
    shape, answer = words.notification, words.answer
    yield from (shape.kind, shape.time)
    paths = [getattr(answer, point) for point in TELLING if point != "redirect_url"]
    for path in (*paths, shape.out_trade_no, shape.out_refund_no, shape.subscription_id, words.about("out_trade_no")):
        yield join_path(shape.data, path)
