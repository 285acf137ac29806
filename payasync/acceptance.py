"""Whether the service will take a request, as far as the profile says: decided before any I/O."""

import re
from collections.abc import Callable
from functools import cache
from typing import Final

from attrs import fields_dict

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
    kind: type = type(request)
    for name, matches in _identifiers(kind, profile.identifier):
        value = getattr(request, name)
        if value is not ABSENT and not matches(value):
            raise invalid(name, f"an identifier that matches {profile.identifier} (the profile's `identifier`)", value)
    if profile.accept is not ANYTHING:
        _check_accepted(request, profile.accept)


@cache
def _identifiers(kind: type, pattern: str) -> tuple[tuple[str, Callable[[str], object]], ...]:
    return tuple((name, re.compile(pattern).fullmatch) for name in IDENTIFIERS if name in fields_dict(kind))


def _check_accepted(request: Request[Response], accept: Accept) -> None:
    for name in accept.required.get(request.operation.name, ()):
        is_argument = name in fields_dict(type(request))
        if (getattr(request, name) if is_argument else request.extra.get(name, ABSENT)) is ABSENT:
            where = "" if is_argument else " in extra"
            raise InvalidArgumentError(
                f"{name} is missing{where}: this service requires it for {request.operation.name} (accept.required)",
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
