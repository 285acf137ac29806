"""Whether the service will take a request, as far as the profile says: decided before any I/O."""

import re
from functools import cache
from typing import Final

from payasync.absent import ABSENT
from payasync.errors import InvalidArgumentError
from payasync.profile import Profile
from payasync.requests import Request, invalid
from payasync.responses import Response
from payasync.shapes import ANYTHING, Accept

IDENTIFIERS: Final = ("out_trade_no", "out_refund_no", "subscription_id", "identifier")
AMOUNTS: Final = ("amount", "total_amt", "refund_amt")


def check(request: Request[Response], profile: Profile) -> None:
    """Refuse what the profile says that the service does not take.

    Raises:
        InvalidArgumentError: The field, the rule and the value.
    """
    for name in IDENTIFIERS:
        value = getattr(request, name, ABSENT)
        if value is not ABSENT and not _pattern(profile.identifier).fullmatch(value):
            raise invalid(name, f"an identifier that matches {profile.identifier} (the profile's `identifier`)", value)
    if profile.accept is not ANYTHING:
        _check_accepted(request, profile.accept)


_pattern: Final = cache(re.compile)


def _check_accepted(request: Request[Response], accept: Accept) -> None:
    for name in accept.required.get(request.operation.name, ()):
        if getattr(request, name, ABSENT) is ABSENT:
            raise InvalidArgumentError(
                f"{name} is missing: this service requires it for {request.operation.name} (accept.required)",
                field=name,
                rule="required by this service",
            )
    for name, allowed in (("currency", accept.currency), ("scene_type", accept.scene_type)):
        value = getattr(request, name, ABSENT)
        if allowed and value is not ABSENT and value not in allowed:
            raise invalid(name, f"one of {', '.join(allowed)} (accept.{name})", value)
    if accept.amount:
        _check_amounts(request, *accept.amount)
    for name, most in accept.length.items():
        value = getattr(request, name, ABSENT)
        if isinstance(value, str) and len(value) > most:
            raise invalid(name, f"at most {most} characters long (accept.length)", value)


def _check_amounts(request: Request[Response], least: int, most: int) -> None:
    for name in AMOUNTS:
        value = getattr(request, name, ABSENT)
        if value is not ABSENT and not least <= value <= most:
            raise invalid(name, f"from {least} to {most} (accept.amount)", value)
