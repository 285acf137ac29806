"""What each endpoint takes, and the sandbox's own limits of it (docs/reference/service.md#values)."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import date
from functools import partial
from typing import Any, Final, Literal

from payasync import endpoints
from payasync.endpoints import Argument
from payasync.profile.dates import read_date
from payasync.profile.schema import Accept
from payasync.sandbox.model import RefusedError
from payasync.sandbox.rules import FREQUENCIES
from payasync.settings import is_number
from payasync.signing.templates import TIMES
from payasync.strict_json import ABSENT, at, encodable

Check = Callable[[object], Any]
Sort = Literal[
    "amount", "text", "currency", "word", "sign", "identifier", "url", "date", "customer", "frequency", "flag"
]

MAX_AMOUNT: Final = 2**53 - 1
MAX_TEXT: Final = 4096
MAX_WORD: Final = 128
MAX_SIGN: Final = 2048
MAX_URL: Final = 2048
FIRST_YEAR: Final = 1000
"""Earlier ones have fewer digits, which platforms write differently."""
_DIGITS: Final = re.compile("[1-9][0-9]{0,15}")
_FLAGS: Final = {"true": True, "false": False}
_BREAKS: Final = r"\u0000-\u0020\u007f-\u009f\u2028\u2029"
_PORT: Final = "0*(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})"
URL: Final = re.compile(
    rf"([Hh][Tt][Tt][Pp][Ss]?)://(?:[^{_BREAKS}/?#]*@)?(\[[^{_BREAKS}/?#@\[\]]+\]|[^{_BREAKS}/?#@:\[\]]+)"
    rf"(?::({_PORT})?)?(/[^{_BREAKS}?#]*)?([?][^{_BREAKS}#]*)?(#[^{_BREAKS}]*)?"
)
"""An absolute URL, in any language: scheme, host, port, path, query, and fragment."""


def make_checks(identifier: str, date_format: str) -> Mapping[Sort, Check]:
    """Return the checks by what they check.

    Each returns the value to go on with, or raises `ValueError` with what the value must be.

    Args:
        identifier: The pattern that numbers must match as a whole.
        date_format: How dates are written, as for `strptime`.
    """
    return {
        "amount": check_amount,
        "text": check_text,
        "currency": _text_check("a code of three letters", re.compile("[A-Za-z]{3}").fullmatch),
        "word": _word_check(MAX_WORD),
        "sign": _word_check(MAX_SIGN),
        "identifier": _text_check(f"a text that matches {identifier}", re.compile(identifier).fullmatch),
        "url": check_url,
        "date": partial(check_date, date_format),
        "frequency": _text_check(f"one of {', '.join(FREQUENCIES)}", lambda text: text.lower() in FREQUENCIES),
        "flag": check_flag,
        "customer": check_customer,
    }


def _text_check(rule: str, is_valid: Callable[[str], object]) -> Callable[[object], str]:
    """Return the check of a text, whose rule the error says."""

    def check(value: object) -> str:
        if not isinstance(value, str) or not is_valid(value) or not encodable(value):
            raise ValueError(rule)
        return value

    return check


def _word_check(most: int) -> Check:
    return _text_check(f"a text of 1 to {most} characters", lambda text: 0 < len(text) <= most)


check_text: Final = _text_check(f"a text of {MAX_TEXT} characters at most", lambda text: len(text) <= MAX_TEXT)
"""Returns a text for people; it may be empty."""

check_url: Final = _text_check(
    f"an absolute http or https URL of {MAX_URL} characters at most",
    lambda text: len(text) <= MAX_URL and URL.fullmatch(text),
)
"""Returns an absolute http or https URL."""


def check_amount(value: object) -> int:
    """Return an amount: an integer, and no boolean. As in JSON Schema, `19.0` is an integer."""
    if not is_number(value) or not 1 <= value <= MAX_AMOUNT or value % 1:
        raise ValueError(f"an integer from 1 to {MAX_AMOUNT}")
    return int(value)


def read_digits(text: str) -> int | str:
    """Return the integer that a text outside a body means; any other text unchanged, for the checks to refuse."""
    return int(text) if _DIGITS.fullmatch(text) else text


def read_url(url: str) -> tuple[str, str, str, str, str, str]:
    """Return the scheme, host, port, path, query and fragment of a URL; what is missing is empty."""
    found = URL.fullmatch(url)
    scheme, host, port, path, query, fragment = found.groups("") if found else ("",) * 6
    return scheme, host, port, path, query, fragment


def check_date(written: str, value: object) -> date:
    """Return the day that a text means; only a text that the format itself would write."""
    if isinstance(value, str):
        read = read_date(value, written)
        if read is not None and read.year >= FIRST_YEAR:
            return read.date()
    raise ValueError(f"a date written as {written}, from the year {FIRST_YEAR} on")


def check_customer(value: object) -> str:
    """Return a customer's details, or the text that stands for the customer, as JSON."""
    if isinstance(value, str):
        check_text(value)
    if not isinstance(value, dict | str) or not value:
        raise ValueError("an object or a text, and not empty")
    return json.dumps(value)


def check_flag(value: object) -> bool:
    """Return a boolean; a text is accepted, too, because booleans cannot be signed."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value not in _FLAGS:
        raise ValueError("true or false")
    return _FLAGS[value]


_OF_SORT: Final[Mapping[Sort, tuple[str, ...]]] = {
    "amount": ("amount", "total_amt", "refund_amt"),
    "text": ("subject", "body", "description", "refund_desc"),
    "currency": ("currency",),
    "word": ("scene_type",),
    "identifier": ("out_trade_no", "out_refund_no", "identifier", "subscription_id"),
    "url": ("notify_url", "return_url"),
    "date": ("start_date",),
    "customer": ("customer",),
    "frequency": ("frequency",),
    "flag": ("at_period_end",),
}
SORTS: Final[Mapping[str, Sort]] = {name: sort for sort, names in _OF_SORT.items() for name in names}
"""What each argument must be."""

_ADDED: Final[Mapping[str, tuple[Argument, ...]]] = {
    "payments.create": (Argument("return_url", point="return_url"),),
    "subscriptions.cancel": (Argument("at_period_end"),),
}
"""The sandbox's own additions: the document does not show when a cancellation counts, nor where a payment returns."""

ARGUMENTS: Final[Mapping[str, tuple[Argument, ...]]] = {
    name: (*arguments, *_ADDED.get(name, ())) for name, arguments in endpoints.ARGUMENTS.items()
}
"""By the name of the operation."""


def limits_of(accept: Accept, argument: str) -> tuple[tuple[str, ...], tuple[int, ...], int | None]:
    """Return a profile's limits of an argument: the allowed values (empty: any), the amounts, and the length."""
    allowed = {"currency": accept.currency, "scene_type": accept.scene_type}.get(argument, ())
    return allowed, accept.amount or (1, MAX_AMOUNT), accept.length.get(argument)


def check_accepted(accept: Accept, argument: str, name: str, value: object) -> None:
    """Check a value, valid by its sort, against the limits of a profile.

    Args:
        accept: The profile's.
        argument: Its argument.
        name: Its wire name.
        value: As it was received.

    Raises:
        RefusedError: The profile says that the service does not accept it.
    """
    allowed, (least, most), length = limits_of(accept, argument)
    rule = ""
    if allowed and value not in allowed:
        rule = f"one of {', '.join(allowed)}"
    elif SORTS[argument] == "amount" and isinstance(value, int | float) and not least <= value <= most:
        rule = f"from {least} to {most}"
    elif length is not None and isinstance(value, str) and len(value) > length:
        rule = f"a text of {length} characters at most"
    if rule:
        raise RefusedError("invalid", f"{name} must be {rule}", field=name)


def with_integers(value: Any) -> Any:
    """Return JSON with `19` in the place of `19.0`: to JSON Schema, both are the same integer."""
    if isinstance(value, Mapping):
        return {name: with_integers(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [with_integers(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_constants(constants: Mapping[str, object], fields: Mapping[str, Any], *, as_text: bool) -> None:
    """Check that a request carries the constants of the profile.

    Args:
        constants: Their values by their wire names.
        fields: The request's.
        as_text: They are sent in a query, where a number is its digits.

    Raises:
        RefusedError: One is missing, or it has another value.
    """
    for name, expected in constants.items():
        if (found := fields[name] if name in fields else at(fields, name)) is ABSENT:
            raise RefusedError("invalid", f"{name} is missing", field=name)
        if isinstance(expected, str) and isinstance(found, str) and TIMES.search(expected):
            texts = [re.escape(each) for each in TIMES.split(expected)[::2]]
            if re.fullmatch("[0-9]+".join(texts), found):
                continue
        # Compared as JSON: to Python, 1 equals true.
        wanted, given = (
            json.dumps(with_integers(value), sort_keys=True, ensure_ascii=False)
            for value in (str(expected) if as_text else expected, found)
        )
        if given != wanted:
            raise RefusedError("invalid", f"{name} must be {wanted}", field=name)
