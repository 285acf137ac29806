"""An inbox in one SQLite file, which several processes of one machine can share."""

import os
from collections.abc import Callable
from typing import Final, TypeVar

from payasync.notifications.inbox import COLUMNS, SQL, Inbox
from payasync.storage import Schema, Upgrade, read_migrations, with_columns
from payasync.storage.sqlite import SqliteFile
from payasync.storage.transactions import Work
from payasync.storage.writer_thread import Executor, WriterThread

APPLICATION: Final = 0x50617969
"""`Payi`: the application id in the header of the file."""
_HANDLED: Final = "(SELECT json_group_array(handler) FROM handled WHERE event = 0 + events.id) AS handled"
"""RETURNING would search a whole index for a column's value, and looks up what is computed."""
_READ: Final = ", ".join([*(name for name in COLUMNS if name != "handled"), _HANDLED])

T = TypeVar("T")


def adapt(statement: str) -> str:
    """Return a statement as SQLite's tables need it, whose names have no prefix."""
    return with_columns(statement, _READ).replace("payasync_", "")


SCHEMA: Final = Schema(
    name="inbox",
    application=APPLICATION,
    migrations=read_migrations("payasync.notifications", "sqlite"),
    adapt=adapt,
)


class SqliteInbox(Inbox):
    """Stores notifications in an SQLite file, as `Inbox` promises.

    The file is opened at the first use. Only its owner can read it (mode 0600). Payloads are stored as they were
    received.

    Args:
        path: The path of the file, not on a network file system. The first use creates a missing file. If the file is
            deleted or replaced while in use, calls fail with `StorageError` until it is restored.
        clock: Returns seconds since 1970; due times and leases follow it. Default: the time of day.
        migrate: Make a missing file, and migrate older tables, as for `SqliteJournal`.
        executor: Returns what runs the transactions, given a name. Default: a thread.

    Raises:
        ConfigurationError: `path` is not the path of a file. The first use raises it if the file belongs to another
            program or a newer payasync, or is damaged, as one of 0 bytes is. The file is not changed.
    """

    _mark_handled = SQL["mark_in_sqlite"]

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float] | None = None,
        migrate: bool = True,
        executor: Callable[[str], Executor] = WriterThread,
    ) -> None:
        self._file = SqliteFile(path, SCHEMA, clock=clock, migrate=migrate, executor=executor)

    def __repr__(self) -> str:
        return f"SqliteInbox({self._file.path!r})"

    async def upgrade(self, *, dry_run: bool = False) -> Upgrade:
        """Make or migrate the tables, and return what was executed; with `dry_run`, execute nothing."""
        return await self._file.upgrade(dry_run=dry_run)

    async def aclose(self) -> None:
        """Finish what has begun, and close the file; any later call raises `StorageError`."""
        await self._file.aclose()

    async def _run(self, work: Work[T], *keys: str | None) -> T:  # noqa: ARG002 - one by one
        return await self._file.run(work)
