"""What of a notification its signature covers, where that stands in the body: nothing else of it is read."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from payasync import coverage
from payasync.coverage import Coverage, joined
from payasync.credentials import Credentials
from payasync.documents import at
from payasync.errors import ConfigurationError
from payasync.notifications.timestamps import seconds
from payasync.profile import Profile
from payasync.shapes import NotificationShape

_THINGS: Final = ("order", "payment", "refund", "subscription")


def coverage_of(profile: Profile) -> Coverage | None:
    """Return what the signatures of notifications cover; `None` where none stands in the body."""
    shape = profile.notification
    if shape.verification != "body" or not shape.signature:
        return None
    return coverage.coverage(shape.signature, profile.signature)


def check_covered(profile: Profile) -> None:
    """Refuse a profile that would have something believed that no signature covers.

    Where the name of an event stands is no matter: like the address, one that nobody signed says the kind, and no more.
    Nor where its time stands: one that nobody signed is better than none, which may be left out.

    Raises:
        ConfigurationError: It names the point.
    """
    if signed := coverage_of(profile):
        coverage.check_covered(signed, profile.notification.signature, _believed(profile.notification))


def _believed(shape: NotificationShape) -> Iterator[tuple[str, str, str]]:
    """Yield the points that name what is acted upon, with their paths, and where in the document that stands."""
    yield "notification.data", shape.data, joined(shape.data, "any field of it")
    for name in ("out_trade_no", "out_refund_no", "subscription_id"):
        if path := getattr(shape, name):
            yield f"notification.{name}", path, joined(shape.data, path)
    for kind, paths in shape.id.items():
        for path in paths:
            yield f"notification.id.{kind}", path, joined(shape.data, path)


def telling_paths(profile: Profile) -> frozenset[str]:
    """Return the paths that show that the service made a notification: of an event name, a time or a state.

    Each is covered by the signature, and requests have no such field.
    """
    signed, shape = coverage_of(profile), profile.notification
    if signed is None:
        return frozenset()
    named = shape.kind if any(shape.kinds.values()) else ""
    paths = (named, shape.time, *(path for _, path in _state_paths(profile)))
    return frozenset(coverage.only_from_the_service(profile, signed, paths))


def made_by_service(profile: Profile, telling: frozenset[str], document: Mapping[str, Any]) -> bool:
    """Return whether a document holds something that no request says: a known event, a time, or a known state.

    Args:
        profile: Says which events and states there are.
        telling: The paths that count, as `telling_paths` returns them.
        document: A notification whose signature is right.
    """
    shape = profile.notification
    events = [name for names in shape.kinds.values() for name in names]
    if shape.kind in telling and at(document, shape.kind) in events:
        return True
    if shape.time in telling and seconds(at(document, shape.time)) is not None:
        return True
    states = [(thing, path) for thing, path in _state_paths(profile) if path in telling]
    return any(profile.states.name(thing, at(document, path)) for thing, path in states)


def check_sent_back(profile: Profile, credentials: Credentials) -> frozenset[str] | None:
    """Refuse a profile by which a request that is sent back could not be told from a notification.

    Returns:
        The paths that tell the two apart; `None` if no key that signs requests verifies notifications.

    Raises:
        ConfigurationError: No event name, time or state stands inside the signature.
    """
    if coverage_of(profile) is None or not coverage.same_key(profile, credentials):
        return None
    if not (telling := telling_paths(profile)):
        raise ConfigurationError(
            "notification.kind, notification.time and answer.*_status name nothing inside the signature that your "
            "requests do not have. The same key signs requests and verifies notifications, so a request of yours that "
            "is sent back would be believed. Add a path inside the signature: of an event name (notification.kind, "
            "with notification.kinds), of a time (notification.time) or of a state (such as answer.order_status, with "
            "states.order). If the service signs with a key of its own, give credentials.service_keys instead",
            field="notification.kind",
        )
    return telling


def _state_paths(profile: Profile) -> list[tuple[str, str]]:
    """Return the things and the paths of their states, if the profile knows values of these.

    A document without the payload's path is a payload itself.
    """
    paths = {thing: getattr(profile.answer, f"{thing}_status") for thing in _THINGS}
    known = {thing: path for thing, path in paths.items() if path and getattr(profile.states, thing)}
    return [(thing, joined(place, path)) for place in (profile.notification.data, "") for thing, path in known.items()]
