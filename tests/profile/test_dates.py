"""Formats of dates: each Python accepts, writes and reads the same."""

from datetime import date, datetime, timedelta
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from payasync.profile.dates import read_date
from payasync.profile.profile import Profile
from tests.profile.refusal import refusal

DAYS: Final = st.dates(date(1000, 1, 1), date(9999, 12, 31))


def test_formats_that_tell_dates_apart() -> None:
    """A format that writes unlike dates differently is accepted, and so is an empty one."""
    for form in ["", "%Y-%m-%d", "%d.%m.%Y", "%-d/%m", "%s", "%Y\n%j", "on %A", "%Y年", "%x", "%m/%y", "%G"]:
        assert {"start_date": form} == Profile(formats={"start_date": form}).formats


def test_formats_that_do_not_write_the_same_on_each_python() -> None:
    """A format that writes dates alike, or holds a zero or a lone surrogate, is refused."""
    words = "formats.start_date must be a format that writes any two dates differently, as %Y-%m-%d does, not"
    for form in ["hello", " ", "%%Y", "%H:%M", "\ud800%Y", "%Y\udfff", "%Y%\ud800", "%Y\0", "\0%Y", "%Y%\0m"]:
        assert ("formats.start_date", f"{words} {form!r}") == refusal(Profile, formats={"start_date": form})


@given(day=DAYS, form=st.sampled_from(["%Y-%m-%d", "%d.%m.%Y", "%Y%m%d", "%G-W%V-%u", "%b %d, %Y", "%Y.%j", "%%%c"]))
def test_a_day_is_read_back(day: date, form: str) -> None:
    """What a format with a year writes is read back as the same day."""
    assert datetime.combine(day, datetime.min.time()) == read_date(day.strftime(form), form)


def test_a_day_without_a_year() -> None:
    """A date without a year is of a leap year, and no Python warns of it."""
    for text, form, expected in [
        ("29/02", "%d/%m", date(2000, 2, 29)),
        ("5", "%d", None),
        ("05", "%d", date(2000, 1, 5)),
        ("%Y 05", "%%Y %d", date(2000, 1, 5)),
        ("Dec", "%b", date(2000, 12, 1)),
    ]:
        found = read_date(text, form)

        assert expected == (found and found.date())


def test_what_is_not_read() -> None:
    """A text that the format would not write so, or that only some Pythons could read, is not read."""
    for text, form in [
        *(("5.1.2026", "%-d.%-m.%Y"), ("2026-01-05", "%F"), ("2026", "%4Y"), ("5/2026", "%e/%Y")),
        *(("20262026", "%Y%Y"), ("2026-1-5", "%Y-%m-%d"), ("on Monday", "on %A"), ("2026%", "%Y%")),
        *(("2026-01-05 EET", "%Y-%m-%d %Z"), ("2026-01-32", "%Y-%m-%d")),
    ]:
        assert read_date(text, form) is None


def test_zone() -> None:
    """A time zone is read as an offset, or as the name of UTC, which all machines know."""
    offset = read_date("2026-01-05 +0800", "%Y-%m-%d %z")

    assert timedelta(hours=8) == (offset and offset.utcoffset())
    assert datetime(2026, 1, 5) == read_date("2026-01-05 UTC", "%Y-%m-%d %Z")  # noqa: DTZ001 - `strptime` drops the name
