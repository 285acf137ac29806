"""The fields that a signature covers. Only these fields may be believed.

An attacker who holds a genuine response or notification can change the fields that its signature does not cover, and
the signature still verifies.
"""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from payasync import signing
from payasync.endpoints import ARGUMENTS
from payasync.errors import ConfigurationError
from payasync.profile.wire_names import COMPARED, all_names, names_of
from payasync.settings import invalid_setting
from payasync.signing.templates import parts_of
from payasync.strict_json import ABSENT, ExactNumber, at, paths_of

if TYPE_CHECKING:
    from payasync.credentials import Credentials
    from payasync.profile.profile import Profile
    from payasync.profile.schema import AnswerShape, NotificationShape
    from payasync.signing.schemes import Scheme

STATE_KEYS: Final = ("payment_status", "order_status", "refund_status", "subscription_status")
"""The keys of `[answer]` that locate states, which decide whether money has moved."""

OWN_KEYS: Final = ("redirect_url", "payment_id", "subscription_id")
"""The keys of `[answer]` that locate values that only the service makes."""


class SignedFields(NamedTuple):
    """The fields that a signature covers: those of the object that holds the signature.

    Attributes:
        place: The path of that object.
        name: The name of the signature in the object.
        scheme: The scheme, or `None` for a scheme of your own.
    """

    place: str
    name: str
    scheme: "signing.SortedPairs | None" = None

    @classmethod
    def under(cls, path: str, scheme: "Scheme | None") -> "SignedFields":
        """Return the fields that the signature at a path covers under a scheme."""
        place, _, name = path.rpartition(".")
        return cls(place, name, scheme if isinstance(scheme, signing.SortedPairs) else None)

    @classmethod
    def of_answers(cls, profile: "Profile") -> "SignedFields":
        """Return the fields that the signature of responses covers: all, if it stands in a header."""
        answer = profile.answer
        return cls("", "") if answer.header else cls.under(answer.signature, profile.scheme)

    @property
    def left_out(self) -> frozenset[str]:
        """Other names in the object that are not signed."""
        return frozenset(self.scheme.exclude if self.scheme else ()) - {self.name}

    @property
    def nested(self) -> bool:
        """Whether objects and lists in the object are signed too."""
        return self.scheme is None or self.scheme.nested != "omit"

    def covers(self, path: str) -> bool:
        """Return whether the signature covers the value at a path of the document."""
        above, steps = _steps(self.place), _steps(path)
        inside, inner = steps[: len(above)] == above, steps[len(above) :]
        signed = not inner or inner[0] not in {self.name, *self.left_out}
        return inside and signed and (self.nested or len(inner) <= 1)

    def names_of(self, paths: Iterable[str]) -> frozenset[str]:
        """Return the names of the fields of the signed object that paths lead to or through."""
        return frozenset(self.first_step(path) for path in paths if path and self.covers(path))

    def first_step(self, path: str) -> str:
        """Return the name of the field of the signed object that a path leads to or through."""
        inner = _steps(path)[len(_steps(self.place)) :]
        return inner[0] if inner else ""

    def read(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the covered part of a document in its place, with the signature."""
        left_out, nested = self.left_out, self.nested
        signed = {
            name: value
            for name, value in self._object(document).items()
            if name not in left_out and (nested or not isinstance(value, dict | list))
        }
        return self._in_place(signed)

    def normalize(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the covered part in a form that is equal for all documents with the same signature."""
        signed, scheme = self._object(self.read(document)), self.scheme
        if scheme is None:
            return self._in_place(signed)
        texts = {name: _text(value) for name, value in signed.items() if value is not None or not scheme.skip_null}
        return self._in_place({name: text for name, text in texts.items() if text != "" or not scheme.skip_empty})

    def _object(self, document: Mapping[str, Any]) -> dict[str, Any]:
        found = at(document, self.place)
        return found if isinstance(found, dict) else {}

    def _in_place(self, signed: dict[str, Any]) -> dict[str, Any]:
        for step in reversed(_steps(self.place)):
            signed = {step: signed}
        return signed


def _text(value: Any) -> Any:
    """Return a number, a boolean or null as the text that is signed: `1` and `"1"` have one signature."""
    if value is None or type(value) in {bool, int}:
        return json.dumps(value)
    return value.text if type(value) is ExactNumber else value


def check_answers_covered(profile: "Profile") -> None:
    """Refuse a profile whose signature of responses does not cover the payload, a state or a compared value.

    The result code and the redirect address need not be covered, because some services leave them out.

    Raises:
        ConfigurationError: A path is not covered; the error names it.
    """
    shape = profile.answer
    if not shape.signature:
        return
    believed = [("answer.data", shape.data, join_path(shape.data, "any field of it"))] if shape.data else []
    given = {name: path for name in (*STATE_KEYS, *COMPARED) if (path := getattr(shape, name))}
    given |= {f"must.{path}": path for path in shape.must}
    believed += [(f"answer.{name}", path, join_path(shape.data, path)) for name, path in given.items()]
    check_covered(SignedFields.under(shape.signature, profile.scheme), shape.signature, believed)


def check_covered(signed: SignedFields, signature: str, believed: Iterable[tuple[str, str, str]]) -> None:
    """Refuse a path to a value that is believed, if the signature does not cover it.

    Args:
        signed: The fields that the signature covers.
        signature: The path of the signature.
        believed: Points of the profile, each with its path and the same path from the root of the document.

    Raises:
        ConfigurationError: A path is not covered; the error names the point.
    """
    for point, path, place in believed:
        if not signed.covers(place):
            raise invalid_setting(
                point,
                f"is {path!r}, which the signature at {signature!r} does not cover: it covers the object that it "
                "stands in, and anybody could change the rest. Correct one of the two paths, or signature.nested and "
                f"signature.exclude, or leave {point} out",
            )


def response_only_paths(profile: "Profile", credentials: "Credentials") -> tuple[str, ...]:
    """Return the paths that prove a success: it must have one of them, because no request has.

    If one key signs requests and verifies responses, a request that is sent back verifies as a response. So a response
    must have a signed field that the profile locates and that no request has.

    Returns:
        The paths; empty if the service has a key of its own, or does not sign its responses.

    Raises:
        ConfigurationError: The profile locates no such field.
    """
    shape = profile.answer
    if not shape.signed or not shares_key(profile, credentials):
        return ()
    signed = SignedFields.of_answers(profile)
    # An attacker could add a path that is not signed, and that is looked at first.
    several = map(paths_of, (shape.code, shape.message))
    words = [path for paths in several if all(map(signed.covers, paths)) for path in paths]
    # Compared fields prove nothing, because the request holds them too.
    paths = [path for name in (*STATE_KEYS, *OWN_KEYS) if (path := getattr(shape, name))]
    located = [join_path(shape.data, path) for path in (*paths, *service_parts(profile))]
    located = [*words, "" if ":" in shape.request_id else shape.request_id, *located]
    found = only_from_the_service(profile, signed, located)
    # If codes stand only in failures, they prove no success, and neither does a message.
    if not set(found).difference(words if shape.code_optional else ()):
        where = f"in {shape.header.signature!r}" if shape.header else f"at {shape.signature!r}"
        raise ConfigurationError(
            f"the signature {where} covers nothing that only a response says, and the key that signs "
            "requests verifies it: a request that is sent back would pass for a success. Add the path of a code, a "
            "state, an address or the service's own number inside the signed object to the profile's [answer], or give "
            "a key of the service's own as credentials.service_keys",
            field="answer.header" if shape.header else "answer.signature",
        )
    return found


def response_only_names(profile: "Profile", credentials: "Credentials") -> frozenset[str]:
    """Return the fields by which responses and notifications differ from requests. No signed request may have one.

    Returns:
        The names; empty if the key that signs requests verifies nothing.
    """
    if not shares_key(profile, credentials):
        return frozenset()
    answers = SignedFields.of_answers(profile)
    names = answers.names_of(response_only_paths(profile, credentials))
    if signed := signed_in_notifications(profile):
        names |= signed.names_of(notification_only_paths(profile))
    return names


def names_read(profile: "Profile", compared: Iterable[str], document: object) -> frozenset[str]:
    """Return the fields of a signed response that payasync reads.

    Args:
        profile: Locates them.
        compared: The paths in the payload that are compared with the request.
        document: The response; without an envelope it is the payload.
    """
    shape = profile.answer
    paths = [*compared, *shape.must, *(getattr(shape, name) for name in (*STATE_KEYS, *OWN_KEYS))]
    paths += parts_of(shape.redirect_template)
    return _signed_names(profile, shape, [*paths_of(shape.code), *paths_of(shape.message)], paths, document)


def names_read_in_notifications(profile: "Profile", compared: Iterable[str], document: object) -> frozenset[str]:
    """Return the fields of the signed object of a notification that payasync reads.

    Args:
        profile: Locates them.
        compared: The paths in the payload that are compared with a write.
        document: The notification; without an envelope it is the payload.
    """
    shape = profile.notification
    paths = [*compared, shape.out_trade_no, shape.out_refund_no, shape.subscription_id, profile.answer.payment_id]
    paths += [*shape.must, *merchant_paths(profile), *(path for several in shape.id.values() for path in several)]
    located = [shape.kind_path, *merchant_places(profile), *_own_paths(profile)]
    return _signed_names(profile, shape, located, paths, document)


def _signed_names(
    profile: "Profile",
    shape: "AnswerShape | NotificationShape",
    located: Iterable[str],
    paths: Iterable[str],
    document: object,
) -> frozenset[str]:
    """Return the signed fields that are read, given paths from the root of the document and paths in the payload."""
    given = [path for path in paths if path]
    from_root = [join_path(shape.data, path) for path in given]
    if at(document, shape.data) is ABSENT:
        from_root += given
    return SignedFields.under(shape.signature, profile.scheme).names_of([*located, *from_root])


def notification_coverage(profile: "Profile") -> SignedFields | None:
    """Return the fields that a signature in the body of notifications covers, or `None` without such a signature."""
    shape = profile.notification
    if shape.verification != "body" or not shape.signature:
        return None
    return SignedFields.under(shape.signature, profile.scheme)


def signed_in_notifications(profile: "Profile") -> SignedFields | None:
    """Return the fields of notifications that the profile's scheme signs: those of the body, or all for a header."""
    return SignedFields("", "") if profile.notification.verification == "header" else notification_coverage(profile)


def notification_only_paths(profile: "Profile") -> tuple[str, ...]:
    """Return the signed paths of events, times, telling fields and states, which notifications alone have."""
    shape, signed = profile.notification, signed_in_notifications(profile)
    event = shape.kind_path if any(shape.kinds.values()) else ""
    return only_from_the_service(profile, signed, (event, *_own_paths(profile))) if signed else ()


def _own_paths(profile: "Profile") -> tuple[str, ...]:
    """Return the paths of times, telling fields and states of notifications; empty ones are among them."""
    shape = profile.notification
    return (shape.time, shape.event_time, *tell_paths(shape), *(path for _, path in state_paths(profile)))


def merchant_paths(profile: "Profile") -> tuple[str, ...]:
    """Return the paths in the payload at which a notification may name the merchant; none if it is not compared."""
    given = profile.notification.merchant_id
    return tuple(sorted(names_of(profile, "merchant_id"))) if given is None else tuple(filter(None, (given,)))


def merchant_places(profile: "Profile") -> list[str]:
    """Return the same paths from the root. If none is given, a notification may name the merchant at the root, too."""
    shape = profile.notification
    places = [shape.data, ""] if shape.merchant_id is None else [shape.data]
    return [join_path(place, path) for place in dict.fromkeys(places) for path in merchant_paths(profile)]


def signs_merchant(shape: "NotificationShape") -> bool:
    """Return whether the text that a header signs has the merchant's number, so that a signature names the merchant."""
    return shape.verification == "header" and "{merchant_id}" in shape.headers.text


def key_owner(profile: "Profile") -> tuple[str, bool]:
    """Return whose the key is that verifies notifications, and whether the profile says so.

    Returns:
        `shared` by all merchants, this `merchant`'s, or empty if the algorithm is open; and `True` if it is given.
    """
    scheme: Any = profile.scheme
    given, is_webhook = getattr(scheme, "service_key", ""), profile.notification.verification == "standard-webhooks"
    if given or not (is_webhook or getattr(scheme, "algorithm", scheme)):
        return given, bool(given)
    # The keys of Standard Webhooks are symmetric, whatever signs requests.
    return "merchant" if is_webhook or getattr(scheme, "symmetric", True) else "shared", False


def tell_paths(shape: "NotificationShape") -> list[str]:
    """Return the paths of fields that tell the kind. Each is also tried from the root, as those of states are."""
    return [join_path(place, path) for place in (shape.data, "") for path in shape.tells.values()]


def state_paths(profile: "Profile") -> list[tuple[str, str]]:
    """Return the paths of states in a notification, each with its kind, if the profile names the states.

    Each path is also tried from the root, because a document without an envelope is the payload.
    """
    things = ("order", "payment", "refund", "subscription")
    paths = {thing: getattr(profile.answer, f"{thing}_status") for thing in things}
    known = {thing: path for thing, path in paths.items() if path and getattr(profile.states, thing)}
    places = profile.notification.data, ""
    return [(thing, join_path(place, path)) for place in places for thing, path in known.items()]


def shares_key(profile: "Profile", credentials: "Credentials") -> bool:
    """Return whether a key that signs requests also verifies the signatures of the service."""
    scheme, own = profile.scheme, credentials.signing_key
    if scheme is None or own is None:
        return False
    if isinstance(scheme, signing.SortedPairs | signing.Template) and not scheme.algorithm:
        return False
    if credentials.service_keys:
        return own in credentials.service_keys and getattr(scheme, "symmetric", True) is not False
    return getattr(scheme, "symmetric", False) is True


def names_in_requests(profile: "Profile") -> frozenset[str]:
    """Return the wire names that a request may have: also constants, an idempotency key, and required `extra`."""
    ours = {each.name for arguments in ARGUMENTS.values() for each in arguments}
    demanded = (name for names in profile.accept.required.values() for name in names if name not in ours)
    constants = (name for table in profile.constants.values() for name in table)
    shown = (name.partition(".")[0] for name in all_names(profile))
    return frozenset({*shown, *demanded, *constants, profile.idempotency.field})


def service_parts(profile: "Profile") -> tuple[str, ...]:
    """Return the paths of those parts of the customer's address that only the service gives."""
    parts = parts_of(profile.answer.redirect_template)
    said = names_in_requests(profile) if parts else ()
    return tuple(path for path in parts if path.partition(".")[0] not in said)


def only_from_the_service(profile: "Profile", signed: SignedFields, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that a signature covers and that no request has.

    Args:
        profile: Gives the fields of requests.
        signed: The fields that the signature covers.
        paths: Paths from the root of the document; empty ones are left out.
    """
    said = {"", *names_in_requests(profile)}  # "" is the signed object itself, which a request has, too
    return tuple(path for path in paths if path and signed.covers(path) and signed.first_step(path) not in said)


def join_path(place: str, path: str) -> str:
    """Return the path of a value from the root, given its path below a place."""
    return f"{place}.{path}" if place and path else place or path


def _steps(path: str) -> list[str]:
    return path.split(".") if path else []
