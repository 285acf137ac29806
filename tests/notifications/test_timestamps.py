"""When something was sent, by what it says itself."""

import math
from typing import Any, Final

import pytest

from payasync.errors import InvalidSignatureError
from payasync.notifications.verification import check_window, parse_time

NOW: Final = 1_800_000_000


@pytest.mark.parametrize(
    "value",
    [
        NOW,
        float(NOW),
        NOW * 1000,
        f"{NOW}",
        f"{NOW}000",
        f"{NOW}.000",
        "2027-01-15T08:00:00Z",
        "2027-01-15T08:00:00.000Z",
        "2027-01-15T08:00:00+00:00",
        "2027-01-15T03:00:00-05:00",
        "20270115T080000Z",
    ],
)
def test_times(value: Any) -> None:
    """ISO 8601 with an offset, seconds since 1970, or milliseconds, as a number or its digits."""
    assert NOW == parse_time(value)


def test_numbers_from_the_year_5138_on_are_milliparse_time() -> None:
    """No service sends from there; in milliseconds, it is the year 1973."""
    assert [10**11 - 1, 10**8] == [parse_time(10**11 - 1), parse_time(10**11)]


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        "",
        "now",
        "2027-01-15T08:00:00",
        "2027-01-15",
        " 1800000000",
        "1800000000\n",
        "-1800000000",
        "1e9",
        "١٨٠٠٠٠٠٠٠٠",
        "1" * 20,
        10**400,
        math.inf,
        math.nan,
        b"1800000000",
        [NOW],
        {"at": NOW},
    ],
    ids=repr,
)
def test_what_is_no_time(value: Any) -> None:
    """A time without an offset is none: nobody could say when it was."""
    assert parse_time(value) is None


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_times_at_the_ends_of_the_calendar(text: str) -> None:
    """They are times, far away, and no error of Python's."""
    far = parse_time(text)

    assert far is not None
    assert abs(far - NOW) > 10**9


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (NOW - 301, "at is 301 seconds ago: more than notification.tolerance, 300"),
        (NOW + 301, "at is 301 seconds ahead of this machine's clock: more than notification.tolerance, 300"),
        (math.nan, "more than"),
    ],
)
def test_outside_the_window(sent: float, words: str) -> None:
    """Too old and from the future are refused alike, each in words that say which."""
    with pytest.raises(InvalidSignatureError, match=words) as refused:
        check_window("at", sent, NOW, 300)

    assert "at" == refused.value.field
    assert str(refused.value.reason) in str(refused.value)
