from datetime import UTC, datetime
from typing import Any, Final

import pytest

from payasync import ConfigurationError, InvalidArgumentError
from payasync.storage.arguments import aware, check_function, number, seconds

NOW: Final = datetime(2027, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("given", [0, 1, 2**63 - 1])
def test_numbers_are_those_that_a_database_holds(given: int) -> None:
    """What a database can hold is taken as it is."""
    assert given == number("limit", given)


@pytest.mark.parametrize("wrong", [-1, 2**63, True, 1.0, "1", None])
def test_other_numbers_are_refused_by_name(wrong: Any) -> None:
    """A number that is none is refused before the database sees it."""
    with pytest.raises(InvalidArgumentError, match="limit must be an integer of 0 or more") as caught:
        number("limit", wrong)

    assert ("limit", wrong) == (caught.value.field, caught.value.value)


@pytest.mark.parametrize("wrong", [NOW.replace(tzinfo=None), NOW.timestamp(), "2027-01-01", None])
def test_moments_say_their_zone(wrong: Any) -> None:
    """A moment without its zone means another moment elsewhere."""
    with pytest.raises(InvalidArgumentError, match="before must be a moment with its offset from UTC") as caught:
        aware("before", wrong)

    assert "before" == caught.value.field
    assert NOW == aware("before", NOW)


@pytest.mark.parametrize("given", [0, 0.5, 45, 10**9])
def test_seconds_are_those_that_a_lease_can_last(given: float) -> None:
    """What a moment can be moved by is taken as it is."""
    assert given == seconds("lease", given)


@pytest.mark.parametrize("wrong", [-1, True, "5", None, float("nan"), float("inf"), 10**9 + 1, 10**400])
def test_other_seconds_are_refused_by_name(wrong: Any) -> None:
    """A lease that is none is refused before a moment is reckoned with it."""
    with pytest.raises(InvalidArgumentError, match="lease must be a number of seconds, 0 or more") as caught:
        seconds("lease", wrong)

    assert "lease" == caught.value.field


async def wait() -> None:
    """Be awaited."""


@pytest.mark.parametrize("wrong", [5, "clock", None, wait])
def test_functions_can_be_called(wrong: Any) -> None:
    """What is called later, and cannot be, is refused at once; so is what would have to be awaited."""
    with pytest.raises(ConfigurationError, match="clock must be a plain function, not ") as caught:
        check_function("clock", wrong)
    check_function("clock", NOW.timestamp)

    assert "clock" == caught.value.field
