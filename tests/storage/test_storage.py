from datetime import UTC, datetime
from typing import Any, Final

import pytest

from payasync import InvalidArgumentError
from payasync.storage import check_moment, check_number

NOW: Final = datetime(2027, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("given", [0, 1, 2**63 - 1])
def test_numbers_are_those_that_a_database_holds(given: int) -> None:
    """What a database can hold is taken as it is."""
    assert given == check_number("limit", given)


@pytest.mark.parametrize("wrong", [-1, 2**63, True, 1.0, "1", None])
def test_other_numbers_are_refused_by_name(wrong: Any) -> None:
    """A number that is none is refused before the database sees it."""
    with pytest.raises(InvalidArgumentError, match="limit must be an integer of 0 or more") as caught:
        check_number("limit", wrong)

    assert ("limit", wrong) == (caught.value.field, caught.value.value)


@pytest.mark.parametrize("wrong", [NOW.replace(tzinfo=None), NOW.timestamp(), "2027-01-01", None])
def test_moments_say_their_zone(wrong: Any) -> None:
    """A moment without its zone means another moment elsewhere."""
    with pytest.raises(InvalidArgumentError, match="before must be a moment with its offset from UTC") as caught:
        check_moment("before", wrong)

    assert "before" == caught.value.field
    assert NOW == check_moment("before", NOW)
