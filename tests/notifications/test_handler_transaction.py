"""A handler in the caller's own transaction: the effect and its mark are committed together, once."""

import asyncio
import re
import sqlite3
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import Mock

import aiosqlite
import psycopg
import pytest
from attrs import evolve
from psycopg.conninfo import make_conninfo

from payasync import ConfigurationError
from payasync.notifications import Notification, handler_transaction
from payasync.notifications.handler_transaction import TABLE, Begin, HandlerTransaction, build_insert, hash_mark
from tests.inside import until
from tests.notifications.databases import (
    IN_POSTGRES,
    Database,
    by_psycopg,
    by_sqlite3,
    connected,
    credited_in,
    until_done,
)
from tests.notifications.merchant import CREDENTIALS, NOW, PAID, Clock, Shop, opened

AT: Final = datetime(2027, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("driver", IN_POSTGRES, ids=lambda driver: driver.__name__)
async def test_many_begin_at_once(driver: Callable[[str], Database], postgres_dsn: str) -> None:
    """If the first events run together, the table is made once, and each effect is committed once."""
    database = driver(postgres_dsn)
    handler_transaction = HandlerTransaction(database.begin)
    marks = ["ab", "cd", "ef"] * 3
    done = await asyncio.gather(*(handler_transaction.run_once(each, AT, database.effect) for each in marks))

    assert (3, 3) == (sum(done), database.count())


async def test_receiver_has_the_effect_once(database: Database, shop: Shop) -> None:
    """If the inbox did not record that a handler is done, the handler is not called again for that event."""
    handled = list[int]()

    @shop.receiver.on("payment", transaction=database.begin)
    async def paid(notification: Notification, connection: Any) -> None:
        handled.append(notification.attempt)
        await database.effect(connection)

    @shop.receiver.on("payment")
    async def fail_once(notification: Notification) -> None:
        if notification.attempt == 1:
            with connected(shop.path) as inbox:
                inbox.execute("DELETE FROM handled")
            raise ValueError("the process ends before the inbox has noted what is done")

    first, second = await shop.handled(), await shop.later(1)

    assert ("pending", "done", [1], 1) == (first.state, second.state, handled, database.count())


async def test_mark_is_of_a_handler_an_event_and_a_merchant(tmp_path: Path) -> None:
    """Two handlers of an event in one database both have their effects, and so has order T1 of two merchants."""
    database = by_sqlite3(tmp_path / "shop.db")
    for merchant in ("M1", "M2"):
        async with opened(tmp_path / merchant, credentials=evolve(CREDENTIALS, merchant_id=merchant)) as shop:
            for name in ("one", "two"):
                shop.receiver.on("payment", name=name, transaction=database.begin)(credited_in(database))
            await shop.handled()
            await shop.handled({**PAID, "status": "SBX_CLOSED"})

    assert 8 == database.count()


async def test_effect_is_committed_once_after_a_lost_lease(tmp_path: Path) -> None:
    """If a receiver stalls past its lease, it calls no further handler for that event, and stores nothing."""
    database = by_sqlite3(tmp_path / "shop.db")
    async with (
        opened(tmp_path, lease=30) as first,
        opened(tmp_path, lease=30, clock=Clock(NOW + 31)) as second,
    ):
        going = first.inbox.gates["handled"]
        for shop in (first, second):
            shop.receiver.on("payment", name="credit", transaction=database.begin)(credited_in(database))
        mailed = [shop.recording(name="mail") for shop in (first, second)]
        await first.take()
        await until(lambda: first.inbox.calls["handled"])
        done = await second.last()
        going.set()
        await first.receiver.settle()

        assert (1, [0, 1], "done") == (database.count(), [len(each) for each in mailed], done.state)
        assert [done] == await first.receiver.events()


@pytest.mark.parametrize("result", [None, "DONE", "INSERT", -1, 2])
async def test_connection_must_say_what_it_did(result: Any) -> None:
    """If the driver does not say whether the mark was added, `run_once` raises an error without calling the handler."""
    connection, handle = SimpleNamespace(execute=lambda _: result), Mock()
    with pytest.raises(ConfigurationError, match="does not say whether a row was added"):
        await HandlerTransaction(lambda: nullcontext(connection)).run_once("ab", AT, handle)

    handle.assert_not_called()


async def test_transaction_must_give_a_connection() -> None:
    """If `transaction` gives no connection or no context manager, `check` raises `ConfigurationError`."""
    wrong: dict[str, Any] = {"gives no connection": nullcontext, "context manager, not list": list}
    for says, begin in wrong.items():
        with pytest.raises(ConfigurationError, match=says):
            await HandlerTransaction(begin).check()


async def test_swallowed_error_is_no_success(shop: Shop, tmp_path: Path) -> None:
    """If the context manager swallows the handler's error, the event stays pending with that reason, and is retried."""
    database = by_sqlite3(tmp_path / "shop.db")

    @contextmanager
    def begin() -> Generator[sqlite3.Connection]:
        with suppress(ValueError), connected(tmp_path / "shop.db") as connection:
            yield connection

    @shop.receiver.on("payment", transaction=begin)
    async def paid(notification: Notification, connection: Any) -> None:
        await database.effect(connection)
        if notification.attempt == 1:
            raise ValueError("not now")

    first, second = await shop.handled(), await shop.later(1)

    assert ("pending", "done", 1) == (first.state, second.state, database.count())
    assert "swallowed an error" in first.reason


UNDONE: Final = "a failed statement or a rollback has undone it"


@pytest.mark.parametrize("raises", [True, False])
async def test_transaction_that_the_handler_undoes_has_failed(database: Database, *, raises: bool) -> None:
    """If the handler raises, or returns after a rollback of its own, it has failed, and nothing is committed.

    The next try has the effect.
    """
    handler_transaction = HandlerTransaction(database.begin)

    async def undo(connection: Any) -> None:
        await database.effect(connection)
        if raises:
            raise ValueError("not now")
        await until_done(database.execute(connection, "ROLLBACK"))

    with pytest.raises(ValueError if raises else ConfigurationError, match="not now" if raises else UNDONE):
        await handler_transaction.run_once("ab", AT, undo)
    undone = (database.count(), database.marks())
    done = await handler_transaction.run_once("ab", AT, database.effect)

    assert ((0, 0), True, 1) == (undone, done, database.count())


@pytest.mark.parametrize("driver", IN_POSTGRES, ids=lambda driver: driver.__name__)
async def test_statement_that_fails_in_silence_is_no_success(
    driver: Callable[[str], Database], postgres_dsn: str, shop: Shop
) -> None:
    """If the handler swallows the error of a statement, PostgreSQL undoes all. The event is retried, and says why."""
    database = driver(postgres_dsn)

    @shop.receiver.on("payment", transaction=database.begin)
    async def credit(notification: Notification, connection: Any) -> None:
        await database.effect(connection)
        if notification.attempt == 1:
            with suppress(Exception):
                await until_done(database.execute(connection, "INSERT INTO missing VALUES (1)"))

    first = await shop.handled()
    undone = (database.count(), database.marks())
    second = await shop.later(1)

    assert ("pending", (0, 0), "done", 1) == (first.state, undone, second.state, database.count())
    assert UNDONE in first.reason


def test_mark_is_a_literal() -> None:
    """A mark in the SQL statement is 64 hexadecimal digits, whatever the event's key holds."""
    digits = hash_mark("paid", "M1", 'payment:["T1\'; DROP TABLE orders --"]')
    literals = re.findall("'([^']*)'", build_insert(digits, AT))

    assert [digits, "2027-01-01T00:00:00+00:00"] == literals
    assert re.fullmatch("[0-9a-f]{64}", digits)


LOST: Final = "is not there afterwards: its context manager must commit"
LEFT: Final = "stays after an error, which must undo it"


def autocommit(path: Path) -> Begin:
    """Return what gives a connection of Python's own driver that commits each statement."""

    @contextmanager
    def begin() -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            yield connection

    return begin


def committing_always(path: Path, *undone: type[BaseException]) -> Begin:
    """Return a context manager that commits, even after an error that is not one of these."""

    @contextmanager
    def begin() -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(path)) as connection:
            try:
                yield connection
            except undone:
                connection.rollback()
                raise
            finally:
                connection.commit()

    return begin


def swallowing(path: Path) -> Begin:
    """Return a context manager that swallows every error."""

    @contextmanager
    def begin() -> Generator[sqlite3.Connection]:
        with suppress(Exception), connected(path) as connection:
            yield connection

    return begin


WRONG: Final[dict[str, tuple[Callable[[Path], Any], str]]] = {
    "aiosqlite's connections": (lambda path: lambda: aiosqlite.connect(path), LOST),
    "each statement is committed": (autocommit, LEFT),
    "errors are committed": (committing_always, LEFT),
    "cancellations are committed": (lambda path: committing_always(path, Exception), LEFT),
    "errors are swallowed": (swallowing, "swallowed an error"),
}
"""What is no transaction, and what is said of it. Connections of aiosqlite's, for example, do not commit."""


@pytest.mark.parametrize(("wrong", "says"), WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("statement", [TABLE, ""], ids=["table is there", "table is missing"])
async def test_what_is_no_transaction_is_refused(
    wrong: Callable[[Path], Any], says: str, statement: str, tmp_path: Path
) -> None:
    """If `transaction` fails to commit or to roll back, `check` raises `ConfigurationError` and leaves no mark."""
    path = tmp_path / "shop.db"
    with connected(path) as connection:
        connection.execute(statement)
    with pytest.raises(ConfigurationError, match=says) as caught:
        await HandlerTransaction(wrong(path)).check()

    assert ("transaction", 0) == (caught.value.field, marked(path))


def marked(path: Path) -> int:
    """Return how many marks are in a file."""
    with connected(path) as connection, suppress(sqlite3.OperationalError):  # there is no table
        return int(connection.execute("SELECT count(*) FROM payasync_handled").fetchone()[0])
    return 0


async def test_context_manager_may_raise_another_error(tmp_path: Path) -> None:
    """If the context manager rolls back and raises an error of its own, `check` accepts it."""
    path = tmp_path / "shop.db"

    @contextmanager
    def begin() -> Generator[sqlite3.Connection]:
        try:
            with connected(path) as connection:
                yield connection
        except Exception:  # noqa: BLE001 - the rule
            raise RuntimeError("the books are as they were") from None

    await HandlerTransaction(begin).check()

    assert 0 == marked(path)


@pytest.fixture
def role(postgres_dsn: str) -> Generator[str]:
    """A PostgreSQL role that cannot make tables."""
    with psycopg.connect(postgres_dsn, autocommit=True) as owner:
        name = f"shop_of_{owner.info.dbname}"
        owner.execute(f'CREATE ROLE "{name}" LOGIN'.encode())
        owner.execute(f'GRANT USAGE ON SCHEMA public TO "{name}"'.encode())
        try:
            yield name
        finally:
            owner.execute(f'DROP OWNED BY "{name}"'.encode())
            owner.execute(f'DROP ROLE "{name}"'.encode())


def granted(dsn: str, *statements: str) -> None:
    """Execute statements as the database's owner."""
    with psycopg.connect(dsn, autocommit=True) as owner:
        for statement in statements:
            owner.execute(statement.encode())


@pytest.mark.parametrize("driver", IN_POSTGRES, ids=lambda driver: driver.__name__)
async def test_role_that_may_make_nothing_has_effects(
    driver: Callable[[str], Database], postgres_dsn: str, role: str
) -> None:
    """If the table exists, the role needs only SELECT, INSERT and DELETE on it."""
    owners = by_psycopg(postgres_dsn)
    granted(postgres_dsn, TABLE, f'GRANT SELECT, INSERT, DELETE ON payasync_handled, effects TO "{role}"')
    database = driver(make_conninfo(postgres_dsn, user=role))
    done = await handler_transaction.HandlerTransaction(database.begin).run_once("ab", AT, database.effect)

    assert (True, 1, 1) == (done, owners.count(), owners.marks())


@pytest.mark.parametrize("driver", IN_POSTGRES, ids=lambda driver: driver.__name__)
@pytest.mark.parametrize("statement", ["", TABLE], ids=["no table", "no right"])
async def test_error_says_what_the_owner_must_execute(
    driver: Callable[[str], Database], statement: str, postgres_dsn: str, role: str
) -> None:
    """If the table is missing, or the role has no right on it, the error has the SQL for the database's owner."""
    granted(postgres_dsn, statement)
    database = driver(make_conninfo(postgres_dsn, user=role))
    with pytest.raises(ConfigurationError) as caught:
        await HandlerTransaction(database.begin).check()

    assert "transaction" == caught.value.field
    assert f"execute: {TABLE}; GRANT SELECT, INSERT, DELETE ON payasync_handled TO" in str(caught.value)


async def test_wrong_transaction_calls_no_handler(tmp_path: Path) -> None:
    """If `transaction` is wrong, entering the receiver raises `ConfigurationError`, and notifications get 503.

    If nobody enters the receiver, no handler is called, and the event ends as dead.
    """
    called = list[Notification]()

    async def credited(notification: Notification, _: Any) -> None:
        called.append(notification)

    async with opened(tmp_path) as shop:
        shop.receiver.on("payment", transaction=autocommit(tmp_path / "shop.db"))(credited)
        with pytest.raises(ConfigurationError, match=LEFT):
            await shop.receiver.__aenter__()
        answer = await shop.take()
    async with opened(tmp_path, attempts=2) as shop:
        shop.receiver.on("payment", transaction=autocommit(tmp_path / "shop.db"))(credited)
        first, second = await shop.handled(), await shop.later(1)

    assert (503, "pending", "dead", []) == (answer.status, first.state, second.state, called)
    assert LEFT in second.reason


@pytest.mark.parametrize("error", [ConnectionRefusedError("no server"), sqlite3.OperationalError("database is locked")])
async def test_database_that_is_away_proves_nothing(
    error: Exception, shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the database is down, the receiver starts and stores events. It handles them when the database is back."""
    database, away, tried = by_sqlite3(tmp_path / "shop.db"), [error], list[int]()

    def begin() -> Any:
        if away:
            raise away[0]
        return database.begin()

    @shop.receiver.on("payment", transaction=begin)
    async def credited(notification: Notification, connection: Any) -> None:
        tried.append(notification.attempt)
        await database.effect(connection)

    await shop.receiver.__aenter__()
    first = await shop.handled()
    away.clear()
    second = await shop.later(1)

    assert ("pending", "done", [2], 1) == (first.state, second.state, tried, database.count())
    assert f"a handler's transaction cannot be checked yet: {type(error).__name__}" in caplog.text


async def test_database_that_hangs_holds_up_no_start(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the database hangs, the receiver starts without checking it, and stores notifications."""
    monkeypatch.setattr(handler_transaction, "PATIENCE", 0.0)

    @asynccontextmanager
    async def begin() -> AsyncGenerator[None]:
        await asyncio.Event().wait()
        yield

    @shop.receiver.on("payment", transaction=begin)
    async def credited(_: Notification, __: Any) -> None: ...

    await shop.receiver.__aenter__()

    assert 200 == (await shop.take()).status


async def test_transaction_is_checked_once(shop: Shop, tmp_path: Path) -> None:
    """After the check at the start, each event begins only one transaction."""
    database, begun = by_sqlite3(tmp_path / "shop.db"), list[object]()

    def begin() -> Any:
        begun.append(database)
        return database.begin()

    shop.receiver.on("payment", transaction=begin)(credited_in(database))
    await shop.receiver.__aenter__()
    proven = len(begun)
    await shop.handled()
    await shop.handled({"outTradeNo": "T2", "status": "SBX_PAID"})

    assert (2, 2) == (len(begun) - proven, database.count())
