"""What a test does by hand, where it is refused."""

from contextlib import closing

import pytest

from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.sandbox.by_hand import by_hand
from payasync.sandbox.database import Database
from payasync.sandbox.values import RefusedError, Why


@pytest.mark.parametrize(
    ("why", "argument", "field"),
    [
        ("absent", "identifier", "number"),
        ("wrong_state", "", "state"),
        ("duplicate", "number", "number"),
        ("invalid", "state", "state"),
    ],
)
def test_refused(why: Why, argument: str, field: str) -> None:
    """The argument at fault is named: the number where it names nothing, else what was to become of it."""
    with closing(Database(":memory:")) as database:
        with (
            pytest.raises(InvalidArgumentError, match=f"{field}: '.' is refused: no") as refused,
            by_hand(database, number="N", state="S"),
        ):
            raise RefusedError(why, "no", argument=argument)

        assert (field, "no") == (refused.value.field, refused.value.rule)


def test_database_that_cannot_be_written() -> None:
    """A full disk is no mistake of the argument."""
    with (
        closing(Database(":memory:")) as database,
        pytest.raises(ConfigurationError, match="db: full"),
        by_hand(database, number="N"),
    ):
        raise RefusedError("busy", "full")
