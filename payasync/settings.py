"""How a session behaves: times and retries, as frozen values."""

import sys
from typing import Any

from attrs import Attribute, field, frozen

from payasync.errors import ConfigurationError


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _seconds(instance: object, attribute: "Attribute[Any]", value: Any) -> None:
    if not _is_number(value) or not 0 < value <= sys.float_info.max:
        raise _wrong(instance, attribute, "a number of seconds above 0", value)


def a_wait(instance: object, attribute: "Attribute[Any]", value: Any) -> None:
    """Check a number of seconds, 0 or more."""
    if not _is_number(value) or not 0 <= value <= sys.float_info.max:
        raise _wrong(instance, attribute, "a number of seconds, 0 or more", value)


def a_count(least: int) -> Any:
    """Return the check of an integer of so many or more."""

    def check(instance: object, attribute: "Attribute[Any]", value: object) -> None:
        if type(value) is not int or value < least:
            raise _wrong(instance, attribute, f"an integer of {least} or more", value)

    return check


def _wrong(instance: object, attribute: "Attribute[Any]", rule: str, value: object) -> ConfigurationError:
    name = f"{type(instance).__name__}.{attribute.name}"
    return ConfigurationError(f"{name} must be {rule}, not {value!r}", field=name)


@frozen
class Timeouts:
    """How long a call may take, in seconds.

    Args:
        total: Bounds a call with all its attempts, and the waits between them.
        connect: Bounds DNS, TCP and TLS of a new connection. Waiting for a free connection of the session's pool
            is bounded by `total` only.
        read: From the moment the request is sent to the whole answer.

    Raises:
        ConfigurationError: A value that is no number above 0.
    """

    total: float = field(default=45.0, validator=_seconds)
    connect: float = field(default=5.0, validator=_seconds)
    read: float = field(default=20.0, validator=_seconds)


@frozen
class RetryPolicy:
    """How often and how patiently a call is tried.

    Args:
        attempts: At most so many, the first included.
        base_delay: Before the second attempt, a random time from 0 to this many seconds; it doubles with
            each further one.
        max_delay: The most that a wait can grow to, in seconds.
        quota: Tokens of the session's retry budget: a retry takes 5, or 10 after a time-out, and a success
            pays back; without tokens a failure is final, so that a dead service is left in peace.

    Raises:
        ConfigurationError: A value of another type, or below what makes sense.
    """

    attempts: int = field(default=3, validator=a_count(1))
    base_delay: float = field(default=0.5, validator=a_wait)
    max_delay: float = field(default=8.0, validator=a_wait)
    quota: int = field(default=500, validator=a_count(0))
