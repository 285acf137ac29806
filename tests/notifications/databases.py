"""A merchant's own database, by each driver that a transaction may be of."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiosqlite
import asyncpg  # type: ignore[import-untyped] # pyright: ignore[reportMissingTypeStubs]
import psycopg
from attrs import frozen
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.pool import NullPool

from payasync.notifications import Notification
from payasync.notifications.handler_transaction import Begin

EFFECTS: Final = "CREATE TABLE IF NOT EXISTS effects (what TEXT)"
EFFECT: Final = "INSERT INTO effects VALUES ('paid')"
COUNT: Final = "SELECT count(*) FROM effects"
MARKS: Final = "SELECT count(*) FROM payasync_handled"


async def until_done(done: Any) -> None:
    """Wait until a statement is done, if its driver is asynchronous."""
    if asyncio.iscoroutine(done) or hasattr(done, "__await__"):
        await done


@frozen
class Database:
    """A merchant's database, by one driver.

    Attributes:
        begin: Begins a transaction.
        execute: Executes a statement on the connection that it gives.
        number: Returns what a statement counts, of what is committed.
    """

    begin: Begin
    execute: Callable[[Any, str], Any]
    number: Callable[[str], int]

    async def effect(self, connection: Any) -> None:
        """Have an effect."""
        await until_done(self.execute(connection, EFFECT))

    def count(self) -> int:
        """Return how many effects are committed."""
        return self.number(COUNT)

    def marks(self) -> int:
        """Return how many marks are committed."""
        return self.number(MARKS)


def plainly(connection: Any, statement: str) -> Any:
    """Execute a statement as most drivers do."""
    return connection.execute(statement)


def as_text(connection: Any, statement: str) -> Any:
    """Execute a statement as SQLAlchemy does."""
    return connection.execute(text(statement))


def counting(path: Path) -> Callable[[str], int]:
    """Return what counts in an SQLite file, which it makes."""
    with connected(path) as connection:
        connection.execute(EFFECTS)

    def number(statement: str) -> int:
        with connected(path) as connection:
            found: int = connection.execute(statement).fetchone()[0]
        return found

    return number


@contextmanager
def connected(path: Path) -> Generator[sqlite3.Connection]:
    """Return a connection, whose transaction is committed at the end."""
    with closing(sqlite3.connect(path)) as connection, connection:
        yield connection


def by_sqlite3(path: Path) -> Database:
    """Return a database by Python's own driver, whose context manager is a plain one."""
    return Database(lambda: connected(path), plainly, counting(path))


def by_aiosqlite(path: Path) -> Database:
    """Return a database by aiosqlite."""

    @asynccontextmanager
    async def begin() -> AsyncGenerator[Any]:
        async with aiosqlite.connect(path) as connection:
            try:
                yield connection
            except BaseException:
                await connection.rollback()
                raise
            await connection.commit()

    return Database(begin, plainly, counting(path))


def by_sqlalchemy(path: Path) -> Database:
    """Return a database by SQLAlchemy's connections."""
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    return Database(engine.begin, as_text, counting(path))


def counting_in(dsn: str) -> Callable[[str], int]:
    """Return what counts in a PostgreSQL database, whose table of effects it makes, where it may."""
    with psycopg.connect(dsn) as connection, suppress(errors.InsufficientPrivilege):
        connection.execute(EFFECTS)

    def number(statement: str) -> int:
        with psycopg.connect(dsn) as connection:
            row = connection.execute(statement.encode()).fetchone()
        return 0 if row is None else int(row[0])

    return number


def by_psycopg(dsn: str) -> Database:
    """Return a database by psycopg, whose connection commits at its end."""

    @asynccontextmanager
    async def begin() -> AsyncGenerator[Any]:
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            yield connection

    return Database(begin, plainly, counting_in(dsn))


async def asyncpg_connection(dsn: str) -> Any:
    """Return a connection of asyncpg's, which reads no connection string as PostgreSQL's own library does."""
    given: dict[str, Any] = conninfo_to_dict(dsn)
    return await asyncpg.connect(database=given.pop("dbname"), **given)


def by_asyncpg(dsn: str) -> Database:
    """Return a database by asyncpg."""

    @asynccontextmanager
    async def begin() -> AsyncGenerator[Any]:
        connection = await asyncpg_connection(dsn)
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()

    return Database(begin, plainly, counting_in(dsn))


def asyncpg_engine(dsn: str) -> AsyncEngine:
    """Return an engine of SQLAlchemy's on asyncpg."""
    creator = partial(asyncpg_connection, dsn)
    return create_async_engine("postgresql+asyncpg://", async_creator=creator, poolclass=NullPool)


def by_async_sessionmaker(dsn: str) -> Database:
    """Return a database by the sessions that SQLAlchemy's factory begins."""
    return Database(async_sessionmaker(asyncpg_engine(dsn)).begin, as_text, counting_in(dsn))


IN_A_FILE: Final = [by_sqlite3, by_aiosqlite, by_sqlalchemy]
IN_POSTGRES: Final = [by_psycopg, by_asyncpg, by_async_sessionmaker]


def credited_in(database: Database) -> Any:
    """Return a handler that has an effect in a database."""

    async def credited(_: Notification, connection: Any) -> None:
        await database.effect(connection)

    return credited
