"""What an argument may be: amounts, texts, URLs, dates and objects, checked before anything is sent."""

import re
import reprlib
from collections.abc import Mapping
from datetime import date
from functools import lru_cache
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final

from attrs import fields_dict

from payasync.endpoints import Operation
from payasync.errors import InvalidArgumentError
from payasync.strict_json import ABSENT, copy_plain, encodable, find_flaw

if TYPE_CHECKING:
    from attrs import Attribute

    from payasync.profile import Accept
    from payasync.wire.request import Request
    from payasync.wire.response import Response

NOTHING: Final[Mapping[str, Any]] = {}
"""The default of `extra`: no further fields."""

AMOUNTS: Final = ("amount", "total_amt", "refund_amt")
MAX_AMOUNT: Final = 2**53 - 1
"""The greatest integer that every JSON reader keeps exact."""

WORD_RULE: Final = "a text that is not empty"

OBJECT_RULE: Final = "a mapping of names to JSON values"

_URL: Final = r"(?i:https?)://(?:[^\s/?#@]*@)?(?:\[[0-9A-Fa-f:.]+\]|[^\s/?#@:\[\]]+)(?::\d{1,5})?(?:[/?#]\S*)?"


def invalid_argument(
    name: str, rule: str, value: object, operation: Operation | None = None, *, instead: str = "leave it out"
) -> InvalidArgumentError:
    """Return the error for a bad argument: it names the field, the rule and the value, and what to do with `None`."""
    hint = f": {instead}" if value is None else "; was an await forgotten?" if isawaitable(value) else ""
    message = f"{name} must be {rule}, not {_shown(value)}{hint}"
    about = operation.name if operation else None
    return InvalidArgumentError(message, field=name, rule=rule, value=value, operation=about)


def _shown(value: object) -> str:
    try:
        return reprlib.repr(value)
    except ValueError:  # it holds an integer of more digits than Python writes
        return f"this {type(value).__name__}, which is too long to show"


def _refuse(request: Any, attribute: "Attribute[Any]", rule: str, value: object) -> None:
    """Raise, but where an argument that may be left out was: its default is `ABSENT`, and `None` is another value."""
    if value is not ABSENT or attribute.default is not ABSENT:
        instead = "leave it out" if attribute.default is ABSENT else "it is required"
        raise invalid_argument(attribute.name, rule, value, request.operation, instead=instead)


def validate_amount(request: Any, attribute: "Attribute[Any]", value: object) -> None:
    """Check an amount: an `int`, in the unit that the service counts in."""
    if type(value) is not int or not 1 <= value <= MAX_AMOUNT:
        rule = f"an int from 1 to {MAX_AMOUNT}, in the unit that the service counts in"
        _refuse(request, attribute, rule, value)


def validate_refund_amount(request: Any, attribute: "Attribute[Any]", value: Any) -> None:
    """Check the amount of a refund: an amount that is not above `total_amt`, which is checked before it."""
    validate_amount(request, attribute, value)
    if value > request.total_amt:
        rule = f"at most total_amt, which is {request.total_amt}"
        step = "total_amt is the amount of the whole order. Correct the one that is wrong"
        message = f"{attribute.name} must be {rule}, not {value}: {step}"
        about = request.operation.name
        raise InvalidArgumentError(message, field=attribute.name, rule=rule, value=value, operation=about)


def validate_text(request: Any, attribute: "Attribute[Any]", value: object) -> None:
    """Check a text; it may be empty."""
    if not isinstance(value, str) or not (value.isascii() or encodable(value)):
        _refuse(request, attribute, "a text of valid Unicode", value)


def validate_word(request: Any, attribute: "Attribute[Any]", value: object) -> None:
    """Check a code or a number that names something: a text that is not empty."""
    if not isinstance(value, str) or not value.strip() or not (value.isascii() or encodable(value)):
        _refuse(request, attribute, WORD_RULE, value)


def check_word(name: str, value: object, operation: Operation) -> str:
    """Return a text that is not empty.

    Raises:
        InvalidArgumentError: It is something else.
    """
    if not isinstance(value, str) or not value.strip() or not encodable(value):
        raise invalid_argument(name, WORD_RULE, value, operation)
    return value


@lru_cache(maxsize=256)
def _is_url(text: str) -> bool:
    """A merchant has few addresses, and gives them with every order."""
    return bool(re.fullmatch(_URL, text)) and encodable(text)


def validate_url(request: Any, attribute: "Attribute[Any]", value: object) -> None:
    """Check an absolute http(s) URL."""
    if value is ABSENT and attribute.default is ABSENT:  # most calls give none: it saves a function call
        return
    if not isinstance(value, str) or not _is_url(value):
        _refuse(request, attribute, "an absolute http or https URL", value)


def validate_date(request: Any, attribute: "Attribute[Any]", value: object) -> None:
    """Check a date; a `datetime` is one, too."""
    if not isinstance(value, date):
        _refuse(request, attribute, "a datetime.date", value)


def check_object(name: str, value: object, operation: Operation) -> None:
    """Refuse what cannot be sent as a JSON object.

    Raises:
        InvalidArgumentError: The argument, the rule and the value.
    """
    if not isinstance(value, Mapping):
        raise invalid_argument(name, OBJECT_RULE, _kind(value), operation)
    if found := find_flaw(value):
        raise invalid_argument(name, f"{OBJECT_RULE}, without {found}", _kind(value), operation)


def _kind(value: object) -> type | None:
    """Return the type of an object, which may hold a customer's details; `None` stays, and gets its hint."""
    return None if value is None else type(value)


def validate_customer(request: Any, attribute: "Attribute[Any]", value: object) -> None:
    """Check a customer's details, or the text by which the service knows the customer; the error shows neither."""
    if isinstance(value, Mapping):
        check_object(attribute.name, value, request.operation)
    elif not isinstance(value, str) or not value.strip() or not encodable(value):
        _refuse(request, attribute, f"{OBJECT_RULE}, or {WORD_RULE}", value if value is ABSENT else _kind(value))


def copy_extra(value: Any, request: Any, attribute: "Attribute[Any]") -> Any:
    """Return a copy of further fields, if they can be sent as a JSON object."""
    if value is NOTHING:
        return value
    check_object(attribute.name, value, request.operation)
    return copy_plain(value)


def copy_object(value: Any) -> Any:
    """Return a copy of a mapping, unless it cannot be sent: `validate_customer` refuses that."""
    return copy_plain(value) if isinstance(value, Mapping) and not find_flaw(value) else value


def check_accepted(request: "Request[Response]", accept: "Accept") -> None:
    """Refuse what the profile says that the service does not take.

    Raises:
        InvalidArgumentError: The field, the rule and the value.
    """
    for name in accept.required.get(request.operation.name, ()):
        is_argument = name in fields_dict(type(request))
        if (getattr(request, name) if is_argument else request.extra.get(name, ABSENT)) is ABSENT:
            where = "" if is_argument else " in extra"
            words = f"{name} is missing{where}: this service requires it for {request.operation.name} (accept.required)"
            raise InvalidArgumentError(words, field=name, rule="required by this service")
    for name, allowed in (("currency", accept.currency), ("scene_type", accept.scene_type)):
        value = getattr(request, name, ABSENT)
        if allowed and value is not ABSENT and value not in allowed:
            raise invalid_argument(name, f"one of {', '.join(allowed)} (accept.{name})", value)
    for name in AMOUNTS if accept.amount else ():
        least, most = accept.amount
        value = getattr(request, name, ABSENT)
        if value is not ABSENT and not least <= value <= most:
            raise invalid_argument(name, f"from {least} to {most} (accept.amount)", value)
    for name, longest in accept.length.items():
        value = getattr(request, name, ABSENT)
        if isinstance(value, str) and len(value) > longest:
            raise invalid_argument(name, f"at most {longest} characters long (accept.length)", value)
