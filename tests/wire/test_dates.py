"""Dates with a zone: the zone is written, converted to UTC, or refused, and never lost."""

from datetime import UTC, date, datetime, timedelta, timezone
from functools import cache
from typing import Any, Final

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from payasync import InvalidArgumentError, Session
from payasync.profile.wire_names import wire_name
from payasync.resources.subscriptions import UpdateSubscription
from tests.building import CREDENTIALS, PROFILE, codec
from tests.foreign.recorder import Recorder

MOMENT: Final = datetime(2027, 1, 31, 1, 30, tzinfo=timezone(timedelta(hours=2), "EET"))
TIME: Final = "%Y-%m-%dT%H:%M:%S"
NAME: Final = wire_name(PROFILE, "subscriptions.update", "start_date")
LOSING: Final = ["%Y-%m-%d", "%d/%m/%Y", TIME, f"{TIME}+00:00", "%s000", f"{TIME}%%z", "Z%Y%m%d"]
"""Formats that write no zone, and do not say that they are in UTC."""


DATED: Final = cache(lambda form: codec(evolve(PROFILE, formats={"start_date": form})))


def written(form: str, start: date) -> Any:
    """Return a start date as it is sent."""
    call = DATED(form).call(UpdateSubscription(subscription_id="S1", start_date=start))
    return call.fields[NAME]


def test_a_zone_is_converted_or_written() -> None:
    """A datetime with a zone is written in UTC if the format ends in `Z` or is `%s`, or with its zone."""
    for form, expected in [
        (f"{TIME}Z", "2027-01-30T23:30:00Z"),
        ("%Y-%m-%dZ", "2027-01-30Z"),
        (f"{TIME}%%Z", "2027-01-30T23:30:00%Z"),
        ("%s", "1801351800"),
        (f"{TIME}%z", "2027-01-31T01:30:00+0200"),
        (f"{TIME} %Z", "2027-01-31T01:30:00 EET"),
    ]:
        assert expected == written(form, MOMENT)


@given(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.timezones()))  # noqa: DTZ001 - bounds
def test_a_moment_is_the_same_in_each_zone(moment: datetime) -> None:
    """The zone of a datetime does not change the moment that is sent."""
    in_utc = moment.astimezone(UTC)

    assert [in_utc.strftime(f"{TIME}Z"), str(int(in_utc.timestamp()))] == [
        written(f"{TIME}Z", moment),
        written("%s", moment),
    ]


def test_dates_without_a_zone_stay() -> None:
    """A date, or a datetime without a zone, is written as it is."""
    for form in [*LOSING, f"{TIME}Z", f"{TIME}%z", "%s"]:
        naive = MOMENT.replace(tzinfo=None)

        assert [naive.strftime(form), naive.date().strftime(form)] == [
            written(form, naive),
            written(form, naive.date()),
        ]


async def test_a_zone_that_would_be_lost_is_refused() -> None:
    """A datetime with a zone that the format would lose is refused before anything is sent."""
    for form in LOSING:
        profile = evolve(PROFILE, formats={"start_date": form})
        async with Recorder() as service, Session(service.url, credentials=CREDENTIALS, profile=profile) as pay:
            with pytest.raises(InvalidArgumentError) as caught:
                await pay.subscriptions.update("S1", start_date=MOMENT)

        assert ("start_date", MOMENT, b"") == (caught.value.field, caught.value.value, service.received)
        assert f"because {form!r}, the profile's formats.start_date, writes no zone" in str(caught.value)
