"""How a receiver behaves: numbers and times, as frozen values."""

import sys
from datetime import timedelta
from typing import Any, Final

from attrs import Attribute, field, frozen

from payasync.errors import ConfigurationError

_LONGEST: Final = timedelta(days=36_500)


def _wrong(attribute: "Attribute[Any]", rule: str, value: object) -> ConfigurationError:
    return ConfigurationError(f"{attribute.name} must be {rule}, not {value!r}", field=attribute.name)


def _count(_: object, attribute: "Attribute[Any]", value: object) -> None:
    if type(value) is not int or not 1 <= value <= sys.maxsize:
        raise _wrong(attribute, "an integer of 1 or more", value)


def _seconds(_: object, attribute: "Attribute[Any]", value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value <= _LONGEST.total_seconds():
        raise _wrong(attribute, "a number of seconds above 0", value)


def _time(_: object, attribute: "Attribute[Any]", value: object) -> None:
    if not isinstance(value, timedelta) or not timedelta(0) < value <= _LONGEST:
        raise _wrong(attribute, "a timedelta above 0, such as timedelta(days=30)", value)


@frozen(kw_only=True)
class ReceptionLimits:
    """How much a receiver takes.

    Args:
        max_bytes: The greatest length of a body.
        max_waiting: So many notifications wait for the disk at once; further ones are to come again.

    Raises:
        ConfigurationError: A value of another type, or below what makes sense.
    """

    max_bytes: int = field(validator=_count)
    max_waiting: int = field(validator=_count)


@frozen(kw_only=True)
class DispatchLimits:
    """How a receiver handles what it has taken.

    Args:
        attempts: How often an event may fail before it is dead.
        concurrency: So many events are handled at once.
        handler_timeout: Seconds after which a handler has failed.
        lease: Seconds for which an event is claimed; it is extended while its handlers run.
        retention: How long what is done is kept, so that it is known when it comes again.

    Raises:
        ConfigurationError: A value of another type, or below what makes sense.
    """

    attempts: int = field(validator=_count)
    concurrency: int = field(validator=_count)
    handler_timeout: float = field(validator=_seconds)
    lease: float = field(validator=_seconds)
    retention: timedelta = field(validator=_time)
