"""What each endpoint takes, and the sandbox's own limits of it (spec: Resources and their fields)."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from functools import partial
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from attrs import frozen
from yarl import URL

from payasync.endpoints import (
    CANCEL_SUBSCRIPTION,
    CLOSE_ORDER,
    CREATE_PAYMENT,
    CREATE_REFUND,
    CREATE_SUBSCRIPTION,
    PLACE_ORDER,
    QUERY_ORDER,
    QUERY_PAYMENT,
    QUERY_REFUND,
    UPDATE_SUBSCRIPTION,
    Operation,
)
from payasync.profile.profile import Profile
from payasync.profile.schema import Accept
from payasync.sandbox.model import RefusedError
from payasync.sandbox.rules import STEPS
from payasync.sandbox.store import encodable

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
_CURRENCY_CODE: Final = re.compile(r"[A-Za-z]{3}")
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
        "amount": check_amount,
        "text": check_text,
        "currency": check_currency,
        "word": check_word,
        "sign": check_sign,
        "identifier": partial(check_pattern, re.compile(identifier)),
        "url": check_url,
        "date": partial(check_date, date_format),
        "frequency": check_frequency,
        "flag": check_flag,
        "customer": check_customer,
    }


def check_amount(value: object) -> int:
    """Return an amount: an integer, and no boolean."""
    if type(value) is not int or not 1 <= value <= MAX_AMOUNT:
        raise ValueError(f"an integer from 1 to {MAX_AMOUNT}")
    return value


def check_text(value: object) -> str:
    """Return a text for people; it may be empty."""
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise ValueError(f"a text of {MAX_TEXT} characters at most")
    return value


def check_word(value: object) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_WORD or not encodable(value):
        raise ValueError(f"a text of 1 to {MAX_WORD} characters")
    return value


def check_sign(value: object) -> str:
    """Return a signature: one of RSA is long."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_SIGN or not encodable(value):
        raise ValueError(f"a text of 1 to {MAX_SIGN} characters")
    return value


def check_currency(value: object) -> str:
    """Return the code of a currency."""
    if not isinstance(value, str) or not _CURRENCY_CODE.fullmatch(value):
        raise ValueError("a code of three letters")
    return value


def check_pattern(pattern: re.Pattern[str], value: object) -> str:
    """Return a number that the merchant chose."""
    if not isinstance(value, str) or not pattern.fullmatch(value) or not encodable(value):
        raise ValueError(f"a text that matches {pattern.pattern}")
    return value


def check_url(value: object) -> str:
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


def check_date(written: str, value: object) -> date:
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


def check_customer(value: object) -> str:
    """Return a customer's details as JSON."""
    if not isinstance(value, dict) or not value:
        raise ValueError("an object that is not empty")
    return json.dumps(value)


def check_frequency(value: object) -> str:
    """Return how often a subscription is billed, as it was written."""
    if not isinstance(value, str) or value.lower() not in STEPS:
        raise ValueError(f"one of {', '.join(STEPS)}")
    return value


def check_flag(value: object) -> bool:
    """Return a yes or a no; as a text, too, since booleans cannot be signed."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value not in _FLAGS:
        raise ValueError("true or false")
    return _FLAGS[value]


@frozen
class Argument:
    """One argument of an endpoint.

    Attributes:
        name: Ours.
        sort: What it must be.
        required: The document demands it, or the call has no meaning without it.
        point: Its key in the profile's `fields`, where the document does not show its wire name.
    """

    name: str
    sort: Sort
    required: bool = False
    point: str = ""


_NUMBER: Final = Argument("out_trade_no", "identifier", required=True)
_RETURN_URL: Final = Argument("return_url", "url", point="return_url")
_NOTIFY_URL: Final = Argument("notify_url", "url")
_CURRENCY: Final = Argument("currency", "currency", required=True)
_IDENTIFIER: Final = Argument("identifier", "identifier", required=True)
_SUBSCRIPTION_ID: Final = Argument("subscription_id", "identifier", required=True, point="subscription_id")


def _terms(*, required: bool) -> tuple[Argument, ...]:
    return (
        Argument("frequency", "frequency", required, "frequency"),
        Argument("amount", "amount", required, "subscription_amount"),
        Argument("start_date", "date", required, "start_date"),
        Argument("customer", "customer", required, "customer"),
    )


ARGUMENTS: Final[dict[Operation, tuple[Argument, ...]]] = {
    CREATE_PAYMENT: (
        Argument("amount", "amount", required=True),
        _CURRENCY,
        Argument("description", "text"),
        _RETURN_URL,
    ),
    PLACE_ORDER: (
        Argument("out_trade_no", "identifier"),
        Argument("subject", "text"),
        Argument("body", "text"),
        Argument("total_amt", "amount", required=True),
        _CURRENCY,
        _NOTIFY_URL,
        Argument("scene_type", "word"),
        _RETURN_URL,
    ),
    QUERY_ORDER: (_NUMBER,),
    CLOSE_ORDER: (_NUMBER,),
    CREATE_REFUND: (
        _NUMBER,
        Argument("out_refund_no", "identifier", required=True),
        Argument("total_amt", "amount", required=True),
        Argument("refund_amt", "amount", required=True),
        Argument("refund_desc", "text"),
        _NOTIFY_URL,
    ),
    QUERY_PAYMENT: (_IDENTIFIER,),
    QUERY_REFUND: (_IDENTIFIER,),
    CREATE_SUBSCRIPTION: _terms(required=True),
    UPDATE_SUBSCRIPTION: (_SUBSCRIPTION_ID, *_terms(required=False)),
    # The sandbox's own addition: the document shows nothing of when a cancellation counts.
    CANCEL_SUBSCRIPTION: (_SUBSCRIPTION_ID, Argument("at_period_end", "flag")),
}


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


def wire_constants(profile: Profile, operation: Operation) -> dict[str, Any]:
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
