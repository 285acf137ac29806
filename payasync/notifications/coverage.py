"""What of a notification its signature covers, where that stands in the body: nothing else of it is read."""

from collections.abc import Iterator

from payasync import coverage
from payasync.coverage import Coverage, joined
from payasync.profile import Profile
from payasync.shapes import NotificationShape


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
