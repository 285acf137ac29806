"""What the parts of a profile demand of their values beyond the type: each rule is said in the words of its error."""

import math
from typing import Any, Final

from attrs import field

from payasync.headers import is_header
from payasync.typed import rule, rule_of_each

_PATH: Final = "a dotted path, such as data.sign, without an empty step"
_IN_THE_DOCUMENT: Final = f"{_PATH}; a header cannot stand here"
_HEADER: Final = "header"


def a_path(section: str) -> Any:
    """Return the field of a dotted path, which is open until it is given."""
    return field(default="", validator=rule(section, _IN_THE_DOCUMENT, _is_path))


def a_compared_path(section: str) -> Any:
    """Return the field of a dotted path that has a default of its own until it is given."""
    return field(default=None, validator=rule(section, f"{_IN_THE_DOCUMENT}; or empty, to compare nothing", _is_path))


def _is_path(value: str | None) -> bool:
    return not value or ("" not in value.split(".") and not value.lower().startswith(f"{_HEADER}:"))


def _are_paths(value: tuple[str, ...]) -> bool:
    return all(path and _is_path(path) for path in value)


def _is_request_id(value: str) -> bool:
    place, colon, name = value.partition(":")
    return (place == _HEADER and is_header(name, "-")) if colon else _is_path(value)


def _is_bounds(value: tuple[int, ...]) -> bool:
    return len(value) in {0, 2} and sorted(value) == list(value)


def _are_refusals(value: tuple[int, ...]) -> bool:
    return all(400 <= status < 500 and status != 429 for status in value)  # noqa: PLR2004 - as in `verdicts`


def _is_final(value: int | None) -> bool:
    return value is None or 200 <= value < 600  # noqa: PLR2004 - as above


PATHS: Final = rule_of_each("notification", f"a list, each of it {_IN_THE_DOCUMENT}", _are_paths)
REQUEST_ID: Final = rule("answer", f"{_PATH} and without a colon, or header: and the name of a header", _is_request_id)
BOUNDS: Final = rule("accept", "[least, greatest], two integers", _is_bounds)
LENGTHS: Final = rule_of_each("accept", "1 or more", lambda value: value > 0)
REFUSALS: Final = rule(
    "http", "a list of statuses from 400 to 499 without 429: what the others mean is settled", _are_refusals
)
SECONDS: Final = rule(
    "recovery", "a number of seconds, 0 or more", lambda value: value is None or 0 <= value < math.inf
)
TOLERANCE: Final = rule("notification", "a number of seconds above 0", lambda value: value > 0)
FINAL: Final = rule("notification", "an HTTP status from 200 to 599", _is_final)
