import builtins
import subprocess
import sys
from typing import Any, Final

import pytest

from payasync import ConfigurationError, journal, notifications
from payasync.settings import from_extra

WITHOUT: Final = """
import sys
sys.modules["psycopg"] = None
import payasync.journal, payasync.notifications
for room, name in ((payasync.journal, "PostgresJournal"), (payasync.notifications, "PostgresInbox")):
    try:
        getattr(room, name)
    except payasync.ConfigurationError as error:
        print(error)
"""


def test_what_is_there_is_found() -> None:
    """A name that needs an extra is the thing itself."""
    assert builtins.len is from_extra("none", "builtins", "len")


def test_missing_extra_is_named() -> None:
    """Who has not installed an extra reads how to."""
    with pytest.raises(ConfigurationError) as caught:
        from_extra("nice", "no_such_package.inside", "Thing")

    expected = 'Thing needs no_such_package, an extra: python -m pip install "payasync[nice]"'
    assert (expected, None) == (str(caught.value), caught.value.__context__)


def test_rooms_open_without_postgresql() -> None:
    """A journal in a file needs no driver for PostgreSQL; who asks for the other one is told what it needs."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", WITHOUT], capture_output=True, text=True, check=True)

    said = '{} needs psycopg, an extra: python -m pip install "payasync[postgres]"\n'
    assert said.format("PostgresJournal") + said.format("PostgresInbox") == done.stdout


@pytest.mark.parametrize("room", [journal, notifications])
def test_other_names_are_none(room: Any) -> None:
    """A slip in a name is what it is anywhere."""
    with pytest.raises(AttributeError, match="has no attribute 'PostgressJournal'"):
        _ = room.PostgressJournal
