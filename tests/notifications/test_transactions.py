"""A handler inside a transaction of the caller's own: its effect and its mark are committed together, once."""

import asyncio
import re
import sqlite3
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import aiosqlite
import asyncpg  # type: ignore[import-untyped] # pyright: ignore[reportMissingTypeStubs]
import psycopg
import pytest
from attrs import frozen
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from payasync import ConfigurationError
from payasync.notifications import Notification
from payasync.notifications.transactions import Begin, Transactions, mark, marking
from tests.notifications.merchant import PAID, opened
from tests.postgres import USER, postgres

AT: Final = datetime(2027, 1, 1, tzinfo=UTC)
EFFECTS: Final = "CREATE TABLE IF NOT EXISTS effects (what TEXT)"
EFFECT: Final = "INSERT INTO effects VALUES ('paid')"
COUNT: Final = "SELECT count(*) FROM effects"


@frozen
class Database:
    """A merchant's database, by one driver.

    Attributes:
        begin: Begins a transaction.
        execute: Executes a statement on the connection that it gives.
        count: Returns how many effects are committed.
    """

    begin: Begin
    execute: Callable[[Any, str], Any]
    count: Callable[[], int]

    async def effect(self, connection: Any) -> None:
        """Have an effect."""
        done = self.execute(connection, EFFECT)
        if asyncio.iscoroutine(done) or hasattr(done, "__await__"):
            await done


def plainly(connection: Any, statement: str) -> Any:
    """Execute a statement as most drivers do."""
    return connection.execute(statement)


def as_text(connection: Any, statement: str) -> Any:
    """Execute a statement as SQLAlchemy does."""
    return connection.execute(text(statement))


def counting(path: Path) -> Callable[[], int]:
    """Return what counts the effects in an SQLite file, which it makes."""
    with connected(path) as connection:
        connection.execute(EFFECTS)

    def count() -> int:
        with connected(path) as connection:
            number: int = connection.execute(COUNT).fetchone()[0]
        return number

    return count


@contextmanager
def connected(path: Path) -> Generator[sqlite3.Connection]:
    """Return a connection, whose transaction is committed at the end."""
    connection = sqlite3.connect(path)
    try:
        with connection:
            yield connection
    finally:
        connection.close()


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


def by_sqlalchemy_session(path: Path) -> Database:
    """Return a database by SQLAlchemy's sessions."""
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)

    @contextmanager
    def begin() -> Generator[Session]:
        with Session(engine) as session, session.begin():
            yield session

    return Database(begin, as_text, counting(path))


def counting_in(host: Path) -> Callable[[], int]:
    """Return what counts the effects in a PostgreSQL database, which it empties."""
    with psycopg.connect(host=str(host), user=USER, dbname="postgres") as connection:
        connection.execute("DROP TABLE IF EXISTS effects, payasync_handled")
        connection.execute(EFFECTS)

    def count() -> int:
        with psycopg.connect(host=str(host), user=USER, dbname="postgres") as connection:
            row = connection.execute(COUNT).fetchone()
        return 0 if row is None else int(row[0])

    return count


def by_psycopg(host: Path) -> Database:
    """Return a database by psycopg, whose connection commits at its end."""

    @asynccontextmanager
    async def begin() -> AsyncGenerator[Any]:
        async with await psycopg.AsyncConnection.connect(host=str(host), user=USER, dbname="postgres") as connection:
            yield connection

    return Database(begin, plainly, counting_in(host))


def by_psycopg_cursor(host: Path) -> Database:
    """Return a database by a cursor of psycopg's."""

    @asynccontextmanager
    async def begin() -> AsyncGenerator[Any]:
        async with (
            await psycopg.AsyncConnection.connect(host=str(host), user=USER, dbname="postgres") as connection,
            connection.cursor() as cursor,
        ):
            yield cursor

    return Database(begin, plainly, counting_in(host))


def by_asyncpg(host: Path) -> Database:
    """Return a database by asyncpg."""

    @asynccontextmanager
    async def begin() -> AsyncGenerator[Any]:
        connection = await asyncpg.connect(host=str(host), user=USER, database="postgres")
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()

    return Database(begin, plainly, counting_in(host))


def by_sqlalchemy_asyncpg(host: Path) -> Database:
    """Return a database by SQLAlchemy's asynchronous connections."""
    engine = create_async_engine(f"postgresql+asyncpg://{USER}@/postgres?host={host}", poolclass=NullPool)
    return Database(engine.begin, as_text, counting_in(host))


def by_sqlalchemy_asyncpg_session(host: Path) -> Database:
    """Return a database by SQLAlchemy's asynchronous sessions."""
    engine = create_async_engine(f"postgresql+asyncpg://{USER}@/postgres?host={host}", poolclass=NullPool)

    @asynccontextmanager
    async def begin() -> AsyncGenerator[AsyncSession]:
        async with AsyncSession(engine) as session, session.begin():
            yield session

    return Database(begin, as_text, counting_in(host))


IN_A_FILE: Final = [by_sqlite3, by_aiosqlite, by_sqlalchemy, by_sqlalchemy_session]
IN_POSTGRES: Final = [by_psycopg, by_psycopg_cursor, by_asyncpg, by_sqlalchemy_asyncpg, by_sqlalchemy_asyncpg_session]


@pytest.fixture(scope="module")
def host() -> Generator[Path]:
    """A PostgreSQL server."""
    with postgres() as server:
        yield server.folder


@pytest.fixture(params=[*IN_A_FILE, *IN_POSTGRES], ids=lambda driver: driver.__name__)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A merchant's database, by each driver."""
    in_a_file = request.param in IN_A_FILE
    made: Database = request.param(tmp_path / "shop.db" if in_a_file else request.getfixturevalue("host"))
    return made


async def test_effect_is_committed_once(database: Database) -> None:
    """The first time it is done; the next time its mark says so, and it is left undone."""
    transactions = Transactions(database.begin)
    done = [await transactions.once("ab", AT, database.effect) for _ in range(2)]
    other = await transactions.once("cd", AT, database.effect)

    assert ([True, False], True, 2) == (done, other, database.count())


async def test_mark_outlives_the_process(database: Database) -> None:
    """Whoever dispatches it again finds the mark in the database, and the table as it is."""
    for _ in range(2):
        await Transactions(database.begin).once("ab", AT, database.effect)

    assert 1 == database.count()


async def test_failure_undoes_effect_and_mark(database: Database) -> None:
    """Where the handler fails after its effect, neither is committed: the next try has the effect."""
    transactions = Transactions(database.begin)

    async def fail(connection: Any) -> None:
        await database.effect(connection)
        raise ValueError("not now")

    with pytest.raises(ValueError, match="not now"):
        await transactions.once("ab", AT, fail)
    undone = database.count()
    done = await transactions.once("ab", AT, database.effect)

    assert (0, True, 1) == (undone, done, database.count())


@pytest.mark.parametrize("driver", IN_POSTGRES, ids=lambda driver: driver.__name__)
async def test_many_begin_at_once(driver: Callable[[Path], Database], host: Path) -> None:
    """The first events of all come together: the table is made once, and each effect is had once."""
    database = driver(host)
    transactions = Transactions(database.begin)
    marks = ["ab", "cd", "ef"] * 3
    done = await asyncio.gather(*(transactions.once(each, AT, database.effect) for each in marks))

    assert (3, 3) == (sum(done), database.count())


async def test_receiver_has_the_effect_once(database: Database, tmp_path: Path) -> None:
    """A handler whose end the inbox did not note is dispatched again, and its effect stays one."""
    async with opened(tmp_path) as shop:
        handled = list[int]()

        @shop.receiver.on("payment", transaction=database.begin)
        async def paid(notification: Notification, connection: Any) -> None:
            handled.append(notification.attempt)
            await database.effect(connection)

        @shop.receiver.on("payment")
        async def fail_once(notification: Notification) -> None:
            if notification.attempt == 1:
                with sqlite3.connect(shop.path, isolation_level=None) as inbox:
                    inbox.execute("DELETE FROM handled")
                inbox.close()
                raise ValueError("the process ends before the inbox has noted what is done")

        first = await shop.handled()
        shop.clock.advance(1)
        second = await shop.last()

        assert ("pending", "done", [1], 1) == (first.state, second.state, handled, database.count())


async def test_two_handlers_of_one_event_have_both_effects(tmp_path: Path) -> None:
    """A mark is of one handler: another one in the same database is not done by it."""
    database = by_sqlite3(tmp_path / "shop.db")
    async with opened(tmp_path) as shop:
        for name in ("one", "two"):

            async def handle(_: Notification, connection: Any) -> None:
                await database.effect(connection)

            handle.__qualname__ = name
            shop.receiver.on("payment", transaction=database.begin)(handle)
        await shop.handled()
        await shop.handled({**PAID, "status": "SBX_CLOSED"})

        assert 4 == database.count()


@frozen
class Odd:
    """A connection that does not say what it did."""

    result: Any

    async def execute(self, _: str) -> Any:
        """Do it, and say something else."""
        return self.result


@pytest.mark.parametrize("result", [None, "DONE", "INSERT", -1, 2])
async def test_connection_must_say_what_it_did(result: Any) -> None:
    """Where it cannot be told whether the mark was new, nothing is done: it might be the second time."""

    @contextmanager
    def begin() -> Generator[Odd]:
        yield Odd(result)

    done = list[Any]()

    async def handle(connection: Any) -> None:
        done.append(connection)

    with pytest.raises(ConfigurationError, match="does not say whether a row was added"):
        await Transactions(begin).once("ab", AT, handle)

    assert [] == done


@contextmanager
def nothing() -> Generator[None]:
    """Give no connection."""
    yield None


@pytest.mark.parametrize(("begin", "says"), [(nothing, "gives no connection"), (list, "context manager, not list")])
async def test_transaction_must_give_a_connection(begin: Any, says: str) -> None:
    """A mistake in the caller's function is named, as the reason of the event."""
    with pytest.raises(ConfigurationError, match=says):
        await Transactions(begin).once("ab", AT, lambda _: asyncio.sleep(0))


async def test_swallowed_error_is_no_success(tmp_path: Path) -> None:
    """A context manager that undoes the effect and keeps the error to itself would lose the event: it is told so."""
    database = by_sqlite3(tmp_path / "shop.db")

    @contextmanager
    def begin() -> Generator[sqlite3.Connection]:
        with suppress(ValueError), closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
            yield connection

    async with opened(tmp_path) as shop:

        @shop.receiver.on("payment", transaction=begin)
        async def paid(notification: Notification, connection: Any) -> None:
            await database.effect(connection)
            if notification.attempt == 1:
                raise ValueError("not now")

        first = await shop.handled()
        shop.clock.advance(1)
        second = await shop.last()

        assert ("pending", "done", 1) == (first.state, second.state, database.count())
        assert "swallowed an error" in first.reason


def test_transactions_outlive_their_loop(tmp_path: Path) -> None:
    """As a script may call `asyncio.run` several times."""
    database = by_sqlite3(tmp_path / "shop.db")
    transactions = Transactions(database.begin)
    done = [asyncio.run(transactions.once(each, AT, database.effect)) for each in ("ab", "cd", "ab")]

    assert ([True, True, False], 2) == (done, database.count())


def test_mark_is_a_literal() -> None:
    """Whatever a key holds, the statement has nothing of it but hexadecimal digits."""
    digits = mark("shop:paid", 'payment:["T1\'; DROP TABLE orders --"]')
    literals = re.findall("'([^']*)'", marking(digits, AT))

    assert [digits, "2027-01-01T00:00:00+00:00"] == literals
    assert re.fullmatch("[0-9a-f]{64}", digits)
    assert 3 == len({mark("a", "b"), mark("a", "c"), mark("b", "b")})
