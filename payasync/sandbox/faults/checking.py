"""What the options of faults must be; each rule is said in the words of its error."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from payasync.errors import InvalidArgumentError

if TYPE_CHECKING:
    from attrs import Attribute

RetryAfter: TypeAlias = int | timedelta | datetime | str | None

RETRY_AFTER: Final[Mapping[str, RetryAfter]] = MappingProxyType(
    {
        "absent": None,
        "date": timedelta(seconds=2),
        "past": timedelta(days=-1),
        "nonsense": "soon",
        "huge": "9" * 30,
    }
)
"""Kinds of Retry-After that have a name; a date is reckoned from the moment at which the fault fires."""

MOST_BYTES: Final = 1 << 30
"""What the sandbox itself sends at most, or has a bomb become: larger ones prove no more."""

LONGEST: Final = 300 * 86_400
"""Seconds by the sandbox's clock that a notification may be held back."""


def wrong(name: str, rule: str, value: object) -> InvalidArgumentError:
    """Return the error about an argument of a fault."""
    return InvalidArgumentError(f"{name} must be {rule}, not {value!r}", field=name, rule=rule, value=value)


def must(rule: str, holds: Callable[[Any], bool]) -> Callable[[object, "Attribute[Any]", Any], None]:
    """Return a field's check.

    Args:
        rule: What the value must be, in words.
        holds: Whether it is.
    """

    def check(_: object, attribute: "Attribute[Any]", value: Any) -> None:
        if not holds(value):
            raise wrong(attribute.name, rule, value)

    return check


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_retry_after(value: object) -> bool:
    if isinstance(value, str):
        return value.isascii() and value.isprintable()
    if isinstance(value, datetime):
        return value.tzinfo is not None
    return value is None or isinstance(value, timedelta) or (type(value) is int and value >= 0)


def _is_address(value: object) -> bool:
    return value is None or (isinstance(value, str) and value.isascii() and value.isprintable() and " " not in value)


SECONDS: Final = must("a number of seconds above 0", lambda value: _number(value) and 0 < value < inf)
SPAN: Final = must(
    f"a number of seconds above 0, {LONGEST} at most", lambda value: _number(value) and 0 < value <= LONGEST
)
UNTIL: Final = must(
    "a number of seconds above 0, or none", lambda value: value is None or (_number(value) and 0 < value < inf)
)
AGE: Final = must(
    f"an integer of seconds from 1 to {LONGEST}", lambda value: type(value) is int and 1 <= value <= LONGEST
)
BYTES: Final = must(f"an integer from 1 to {MOST_BYTES}", lambda value: type(value) is int and 1 <= value <= MOST_BYTES)
ERROR: Final = must("a status from 500 to 599", lambda value: type(value) is int and 500 <= value < 600)  # noqa: PLR2004 - 5xx
REDIRECTION: Final = must("301, 302, 303, 307 or 308", lambda value: value in (301, 302, 303, 307, 308))
RETRIES: Final = must(
    f"seconds, a timedelta, a datetime with a time zone, none, one of {', '.join(RETRY_AFTER)}, or a header's text",
    _is_retry_after,
)
ADDRESS: Final = must("an address in ASCII without blanks", _is_address)
