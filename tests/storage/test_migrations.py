from pathlib import Path
from types import ModuleType

import pytest

from payasync import journal, notifications
from payasync.storage.arguments import steps


@pytest.mark.parametrize(
    ("room", "folder", "table"),
    [
        (journal, "sqlite", "payasync_intents"),
        (journal, "postgres", "payasync_intents"),
        (notifications, "sqlite", "events"),
        (notifications, "postgres", "payasync_events"),
    ],
)
def test_steps_are_numbered_files(room: ModuleType, folder: str, table: str) -> None:
    """Who administers a database may read what is done to it, in which order."""
    found = steps(room.__name__, "sql", folder)
    files = sorted((Path(room.__path__[0]) / "sql" / folder).glob("[0-9][0-9][0-9][0-9].sql"))

    assert [file.read_text(encoding="utf-8") for file in files] == list(found)
    assert f"CREATE TABLE {table} (" in found[0]
