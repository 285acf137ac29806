from datetime import UTC, datetime
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payasync.middleware.outcome import parse_retry_after

NOW: Final = datetime(2027, 1, 31, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(("value", "expected"), [("0", 0.0), ("120", 120.0), (" 5 ", 5.0), ("999999999", 999999999.0)])
def test_seconds(value: str, expected: float) -> None:
    """A whole number is so many seconds."""
    assert expected == parse_retry_after(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Sun, 31 Jan 2027 12:00:30 GMT", 30.0),
        ("Sun, 31 Jan 2027 13:00:30 +0100", 30.0),
        ("Sun, 31 Jan 2027 12:00:30", 30.0),
        ("Sunday, 31-Jan-27 12:01:00 GMT", 60.0),
        ("Sun, 31 Jan 2027 11:00:00 GMT", 0.0),
    ],
)
def test_date(value: str, expected: float) -> None:
    """A date is measured against the clock, in UTC where it names no zone; one that has passed is now."""
    assert expected == parse_retry_after(value, lambda: NOW)


def test_date_without_a_clock_of_our_own() -> None:
    """The wall clock is the default: a date long past asks for no wait."""
    assert 0.0 == parse_retry_after("Thu, 01 Jan 1970 00:00:00 GMT")


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "soon",
        "-5",
        "1.5",
        "1e3",
        "5 s",
        "1000000000",
        "٣",
        "Sun",
        "Sun, 99 Jan 2027 12:00:30 GMT",
        "Sun, 31 Jan 99999 12:00:30 GMT",
        "Sun, 31 Jan 99999999999999999999 12:00:30 GMT",
        "Sun, 31 Jan 2027 12:00:30 +9999999",
    ],
)
def test_nonsense_is_ignored(value: str | None) -> None:
    """A header that does not say how long asks for nothing."""
    assert parse_retry_after(value) is None


@given(st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d{1,3} [A-Z][a-z]{2} \d{1,6} \d{1,2}:\d{1,2}:\d{1,2} [+-]?\w{0,8}"))
def test_nothing_that_a_service_sends_raises(value: str) -> None:
    """Whatever stands there, it is seconds from 0 on, or nothing."""
    seconds = parse_retry_after(value, lambda: NOW)

    assert seconds is None or seconds >= 0
