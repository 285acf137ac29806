"""Programs that work through one journal know whether they are the only one."""

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import pytest

from payasync.journal import Journal, PostgresJournal, SqliteJournal
from payasync.settings import lock_file, open_folder


@pytest.mark.parametrize("kind", [SqliteJournal, pytest.param(PostgresJournal, marks=pytest.mark.long)])
async def test_programs_know_of_each_other(kind: Callable[[str], Journal], path: Path, postgres_dsn: str) -> None:
    """A program is alone until another one is present, and again when that one has ended."""
    place = str(path) if kind is SqliteJournal else postgres_dsn
    async with kind(place) as first, kind(place) as other, first.present() as is_alone:
        before = await is_alone(), await is_alone()
        async with AsyncExitStack() as stack:
            other_is_alone = await stack.enter_async_context(other.present())
            during = await is_alone(), await other_is_alone()
        async with asyncio.timeout(30):  # a server frees the lock of a connection that is closed a moment later
            while not await is_alone():
                pass

    assert ((True, True), (False, False)) == (before, during)


async def test_pooler_leaves_no_lock(pooled_dsn: str, postgres_dsn: str) -> None:
    """Behind a pooler, a program sees those that have direct connections, and leaves nothing on the server."""
    async with PostgresJournal(pooled_dsn) as pooled, PostgresJournal(postgres_dsn) as direct:
        async with pooled.present() as is_alone, direct.present() as direct_is_alone:
            found = await is_alone(), await direct_is_alone()
        async with direct.present() as direct_is_alone:
            after = await direct_is_alone()

    assert (False, True, True) == (*found, after)


async def test_folder_that_another_program_locks_is_not_waited_for(tmp_path: Path) -> None:
    """If another program has locked the folder, nobody waits for it, and it counts as one that is present."""
    folder = open_folder(tmp_path / "pay.db")
    assert lock_file(folder)
    async with SqliteJournal(tmp_path / "pay.db") as journal, journal.present() as is_alone:
        during = await is_alone()
        os.close(folder)
        after = await is_alone()

    assert (False, True) == (during, after)


async def test_connection_that_is_lost_knows_nothing(postgres_dsn: str) -> None:
    """If its connection to the server is lost, a program does not know whether it is alone."""
    async with PostgresJournal(postgres_dsn) as journal, journal.present() as is_alone:
        with psycopg.connect(postgres_dsn, autocommit=True) as server:
            server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        alone = await is_alone()

    assert not alone
