"""What every store checks of its arguments, and the `.sql` files that make its tables."""

from datetime import datetime
from importlib import resources
from inspect import iscoroutinefunction
from typing import Final

from payasync.errors import ConfigurationError
from payasync.wire.request import invalid

_MOST: Final = 2**63 - 1
_LONGEST: Final = 10**9
"""Seconds that a moment can be moved by."""


def number(name: str, given: object) -> int:
    """Return an integer that a database can hold.

    Raises:
        InvalidArgumentError: It is none, or below 0.
    """
    if type(given) is not int or not 0 <= given <= _MOST:
        raise invalid(name, "an integer of 0 or more, below 2**63", given)
    return given


def aware(name: str, given: object) -> datetime:
    """Return a moment that means the same everywhere.

    Raises:
        InvalidArgumentError: It does not say its offset from UTC, or is no moment.
    """
    if not isinstance(given, datetime) or given.tzinfo is None:
        raise invalid(name, "a moment with its offset from UTC", given)
    return given


def seconds(name: str, given: object) -> float:
    """Return a number of seconds that a lease can last.

    Raises:
        InvalidArgumentError: It is none, below 0, or longer than decades.
    """
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 <= given <= _LONGEST:
        raise invalid(name, "a number of seconds, 0 or more, and no more than a billion", given)
    return given


def check_function(name: str, given: object) -> None:
    """Refuse, as a thing is made, what it could not call later.

    Raises:
        ConfigurationError: It is no function, or an `async` one.
    """
    if not callable(given) or iscoroutinefunction(given):
        raise ConfigurationError(f"{name} must be a plain function, not {given!r}", field=name)


def steps(package: str, *folders: str) -> tuple[str, ...]:
    """Return the files of a folder in a package, in the order of their numbers.

    Args:
        package: Its name.
        folders: The way to them from there.
    """
    folder = resources.files(package).joinpath(*folders)
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(file.read_text(encoding="utf-8") for file in files)
