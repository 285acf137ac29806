"""What the sandbox takes as an amount, an address or a date; the limits are its own (spec: Limits)."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from functools import partial
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from yarl import URL

from payasync.sandbox.periods import STEPS
from payasync.sandbox.strict import encodable

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
_CURRENCY: Final = re.compile(r"[A-Za-z]{3}")
_FLAGS: Final = {"true": True, "false": False}
_BREAKS: Final = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029]")


def checks(identifier: str, date_format: str) -> Mapping[Sort, Check]:
    """Return the checks by what they check.

    Each returns the value to go on with, or raises `ValueError` with what the value must be.

    Args:
        identifier: The pattern that numbers must match as a whole.
        date_format: How dates are written, as for `strptime`.
    """
    return {
        "amount": amount,
        "text": text,
        "currency": currency,
        "word": word,
        "sign": sign,
        "identifier": partial(matching, re.compile(identifier)),
        "url": url,
        "date": partial(day, date_format),
        "frequency": frequency,
        "flag": flag,
        "customer": customer,
    }


def amount(value: object) -> int:
    """Return an amount: an integer, and no boolean."""
    if type(value) is not int or not 1 <= value <= MAX_AMOUNT:
        raise ValueError(f"an integer from 1 to {MAX_AMOUNT}")
    return value


def text(value: object) -> str:
    """Return a text for people; it may be empty."""
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise ValueError(f"a text of {MAX_TEXT} characters at most")
    return value


def word(value: object) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_WORD or not encodable(value):
        raise ValueError(f"a text of 1 to {MAX_WORD} characters")
    return value


def sign(value: object) -> str:
    """Return a signature: one of RSA is long."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_SIGN or not encodable(value):
        raise ValueError(f"a text of 1 to {MAX_SIGN} characters")
    return value


def currency(value: object) -> str:
    """Return the code of a currency."""
    if not isinstance(value, str) or not _CURRENCY.fullmatch(value):
        raise ValueError("a code of three letters")
    return value


def matching(pattern: re.Pattern[str], value: object) -> str:
    """Return a number that the merchant chose."""
    if not isinstance(value, str) or not pattern.fullmatch(value) or not encodable(value):
        raise ValueError(f"a text that matches {pattern.pattern}")
    return value


def url(value: object) -> str:
    """Return an absolute http or https URL."""
    if not isinstance(value, str) or len(value) > MAX_URL or _BREAKS.search(value) or not _absolute(value):
        raise ValueError(f"an absolute http or https URL of {MAX_URL} characters at most")
    return value


def _absolute(address: str) -> bool:
    try:
        parts = urlsplit(address)
        port, known = parts.port, URL(address).host
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(known) and port != 0


def day(written: str, value: object) -> date:
    """Return the day that a text means; only a text that the format itself would write."""
    if isinstance(value, str):
        try:
            read = datetime.strptime(value, written)  # noqa: DTZ007 - a day has no time zone
        except ValueError:
            pass
        else:
            if read.year >= FIRST_YEAR and read.strftime(written) == value:
                return read.date()
    raise ValueError(f"a date written as {written}, from the year {FIRST_YEAR} on")


def customer(value: object) -> str:
    """Return a customer's details as JSON."""
    if not isinstance(value, dict) or not value:
        raise ValueError("an object that is not empty")
    return json.dumps(value)


def frequency(value: object) -> str:
    """Return how often a subscription is billed, as it was written."""
    if not isinstance(value, str) or value.lower() not in STEPS:
        raise ValueError(f"one of {', '.join(STEPS)}")
    return value


def flag(value: object) -> bool:
    """Return a yes or a no; as a text, too, since booleans cannot be signed."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value not in _FLAGS:
        raise ValueError("true or false")
    return _FLAGS[value]
