"""What a profile says that its service takes, as the service itself checks it (spec: Limits, gaps)."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from payasync.operations import Operation
from payasync.profile import Profile
from payasync.sandbox.arguments import Argument
from payasync.sandbox.values import RefusedError
from payasync.shapes import Accept


def check_value(accept: Accept, argument: Argument, name: str, value: object) -> None:
    """Check a value that has passed the checks of its sort.

    Args:
        accept: The profile's.
        argument: Which.
        name: Its wire name.
        value: As it was received.

    Raises:
        RefusedError: The profile says that the service does not take it.
    """
    for rule in _broken(accept, argument, value):
        raise RefusedError("invalid", f"{name} must be {rule}", field=name)


def _broken(accept: Accept, argument: Argument, value: object) -> Iterator[str]:
    allowed = {"currency": accept.currency, "scene_type": accept.scene_type}.get(argument.name, ())
    if allowed and value not in allowed:
        yield f"one of {', '.join(allowed)}"
    if argument.sort == "amount" and accept.amount:
        least, most = accept.amount
        if isinstance(value, int) and not least <= value <= most:
            yield f"from {least} to {most}"
    length = accept.length.get(argument.name)
    if length is not None and isinstance(value, str) and len(value) > length:
        yield f"a text of {length} characters at most"


def constants(profile: Profile, operation: Operation) -> dict[str, Any]:
    """Return the fields that a profile has every request of an operation carry."""
    return {**profile.constants.get("*", {}), **profile.constants.get(operation.name, {})}


def check_constant(name: str, expected: object, fields: Mapping[str, Any], *, as_text: bool) -> None:
    """Check that a request carries a constant of the profile.

    Args:
        name: Its wire name.
        expected: Its value.
        fields: The request's.
        as_text: It travels in a query, where a number is its digits.

    Raises:
        RefusedError: It is missing, or it has another value.
    """
    if name not in fields:
        raise RefusedError("invalid", f"{name} is missing", field=name)
    wanted = str(expected) if as_text else expected
    if _canonical(fields[name]) != _canonical(wanted):
        raise RefusedError("invalid", f"{name} must be {_canonical(wanted)}", field=name)


def check_headers(expected: Mapping[str, str], headers: Mapping[str, str]) -> None:
    """Check that a request carries the headers of the profile.

    Args:
        expected: The profile's.
        headers: The request's, found by names in any case.

    Raises:
        RefusedError: One is missing, or it has another value.
    """
    for name, value in expected.items():
        if headers.get(name) != value:
            raise RefusedError("invalid", f"the header {name} must be {value}", field=name)


def _canonical(value: object) -> str:
    # By the text: to Python, 1 equals 1.0 and true.
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
