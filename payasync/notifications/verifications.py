"""The ways in which a notification is shown to be from the service."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from inspect import iscoroutinefunction
from typing import Any, ClassVar, Final, TypeAlias

from attrs import evolve, field, frozen
from multidict import CIMultiDict, CIMultiDictProxy

from payasync.answer_signature import as_signed, refused_field, signs
from payasync.documents import at
from payasync.errors import ConfigurationError
from payasync.notifications import standard_webhooks
from payasync.notifications.coverage import coverage_of, made_by_service
from payasync.notifications.intake import MAX_BYTES, Headers, Raw, body_of, headers_of
from payasync.notifications.notification import Notification
from payasync.notifications.reading import document_of, read
from payasync.notifications.timestamps import MISMATCH, check_window, seconds, unverified
from payasync.profile import Profile
from payasync.secret import Secret
from payasync.signing import SignatureScheme, SortedPairs

SENT_BACK: Final = (
    "is right, but covers no event, time or state that the profile knows: it may be a request of yours, sent back"
)

Verifier: TypeAlias = Callable[[bytes, Mapping[str, str]], bool]
"""A check of one's own: the body and the headers in, whether the service sent them out; a plain function."""


@frozen
class Verification:
    """How notifications are verified: here not at all, since the profile says that they are not signed.

    Attributes:
        profile: What the service does.
        proves: What passes is from the service.
    """

    profile: Profile = field(repr=False)
    proves: ClassVar[bool] = False

    @property
    def timed(self) -> bool:
        """Whether what passes is signed with the time when it was sent, so that it does not pass later."""
        return False

    @property
    def checks(self) -> str:
        """What is looked at, in words."""
        return "nothing"

    def notification(
        self, raw: Raw, headers: Headers, *, now: float, kind: str | None = None, max_bytes: int = MAX_BYTES
    ) -> Notification:
        """Return a notification that passed; as `verify`.

        Args:
            raw: The body's bytes.
            headers: A mapping, or pairs.
            now: Seconds since 1970.
            kind: Where its address says so.
            max_bytes: The greatest length of the body.
        """
        body, received = body_of(raw, max_bytes), headers_of(headers)
        self.check_bytes(body, received, now)  # first: who cannot sign has nothing read
        arrived = datetime.fromtimestamp(now, UTC)
        document = document_of(body)
        self.check_document(body, document, now)  # before more is made of it, for the same reason
        notification = read(body, document, received, profile=self.profile, kind=kind, received_at=arrived)
        return evolve(notification, verified=self.proves)

    def check_bytes(self, body: bytes, headers: CIMultiDict[str], now: float) -> None:
        """Refuse a body and headers that are not the service's."""

    def check_document(self, body: bytes, document: Mapping[str, Any], now: float) -> None:
        """Refuse a document that is not the service's."""


@frozen
class ByVerifier(Verification):
    """By a function of the merchant's own."""

    verifier: Verifier
    proves = True

    def __attrs_post_init__(self) -> None:
        called = getattr(type(self.verifier), "__call__", None)  # noqa: B004 - of an object with such a method
        if not callable(self.verifier) or iscoroutinefunction(self.verifier) or iscoroutinefunction(called):
            raise ConfigurationError(
                "verifier must be a plain function of the body and the headers, not a coroutine function: "
                "what it returns is not awaited, and nothing would ever verify",
                field="verifier",
            )

    @property
    def checks(self) -> str:
        """What is looked at, in words."""
        return "whatever the verifier looks at"

    def check_bytes(self, body: bytes, headers: CIMultiDict[str], now: float) -> None:  # noqa: ARG002 - it has its own
        """Refuse what the function does not call true."""
        if not self._says_true(body, headers):
            raise unverified("verifier", "does not say that it is from the service")

    def _says_true(self, body: bytes, headers: CIMultiDict[str]) -> bool:
        try:
            return self.verifier(body, CIMultiDictProxy(headers)) is True
        except Exception:  # noqa: BLE001 - anybody's code; what raises has verified nothing
            return False


@frozen
class InHeaders(Verification):
    """By Standard Webhooks."""

    keys: tuple[Secret, ...]
    proves = True

    def __attrs_post_init__(self) -> None:
        standard_webhooks.check_keys(self.keys)

    @property
    def timed(self) -> bool:
        """Whether what passes is signed with the time when it was sent: it always is."""
        return True

    @property
    def checks(self) -> str:
        """What is looked at, in words."""
        window = f"{standard_webhooks.TIMESTAMP} within {self.profile.notification.tolerance} seconds"
        return f"{standard_webhooks.SIGNATURE} over the body, by {len(self.keys)} of your keys; {window}"

    def check_bytes(self, body: bytes, headers: CIMultiDict[str], now: float) -> None:
        """Refuse what the service has not signed, or too long ago."""
        tolerance = self.profile.notification.tolerance
        standard_webhooks.check(body, headers, keys=self.keys, tolerance=tolerance, now=now)


@frozen
class InBody(Verification):
    """By the profile's scheme, over the object that holds the signature.

    Attributes:
        scheme: The profile's.
        keys: Several while they rotate.
        telling: If one of the keys signs requests, the paths of which one must show that the service made it.
    """

    scheme: SignatureScheme
    keys: tuple[Secret, ...]
    telling: frozenset[str] | None = None
    proves = True

    def __attrs_post_init__(self) -> None:
        if isinstance(self.scheme, SortedPairs):
            for key in self.keys:
                self.scheme.verify({}, "", path="", key=key)  # raises for a key that it cannot use

    @property
    def timed(self) -> bool:
        """Whether what passes is signed with the time when it was sent: the profile says where it stands."""
        coverage, time = coverage_of(self.profile), self.profile.notification.time
        return bool(time and coverage and coverage.covers(time))

    @property
    def checks(self) -> str:
        """What is looked at, in words."""
        shape, coverage = self.profile.notification, coverage_of(self.profile)
        window = f"; {shape.time} within {shape.tolerance} seconds" if shape.time else ""
        unsigned = [path for path in (shape.kind, shape.time) if path and coverage and not coverage.covers(path)]
        warning = f"; not signed: {', '.join(unsigned)}" if unsigned else ""
        return f"{shape.signature} over the object that holds it, by {len(self.keys)} of your keys{window}{warning}"

    def check_document(self, body: bytes, document: Mapping[str, Any], now: float) -> None:
        """Refuse what the service has not signed; or too long ago, where the profile says where a time stands."""
        field = self.profile.notification.signature
        above, _, name = field.rpartition(".")
        signed = at(as_signed(body, document, self.scheme), above)
        if not isinstance(signed, dict) or name not in signed:
            raise unverified(field, "is missing")
        if not isinstance(signed[name], str):
            raise unverified(field, "is no text")
        if not signs(self.scheme, signed, name, path="", keys=self.keys):
            why = refused_field(self.scheme, signed, above, name)
            raise unverified(
                field,
                f"cannot be checked: {why}"
                if why
                else f"is not that of the object it stands in, by any of the keys: {MISMATCH}",
            )
        if self.telling is not None and not made_by_service(self.profile, self.telling, document):
            raise unverified(field, SENT_BACK)
        self._check_time(document, now)

    def _check_time(self, document: Mapping[str, Any], now: float) -> None:
        shape = self.profile.notification
        if not shape.time:
            return
        sent = seconds(at(document, shape.time))
        if sent is None:
            raise unverified(shape.time, "is no time: neither ISO 8601 with an offset, nor a number")
        check_window(shape.time, sent, now, shape.tolerance)
