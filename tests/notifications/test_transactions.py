"""A handler inside a transaction of the caller's own: its effect and its mark are committed together, once."""

import asyncio
import re
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import frozen

from payasync import ConfigurationError, Credentials
from payasync.notifications import Notification
from payasync.notifications.transactions import HandlerTransaction, build_insert, hash_mark
from tests.notifications.databases import IN_POSTGRES, Database, by_sqlite3
from tests.notifications.merchant import PAID, Shop, opened

AT: Final = datetime(2027, 1, 1, tzinfo=UTC)


async def test_effect_is_committed_once(database: Database) -> None:
    """The first time it is done; the next time its mark says so, and it is left undone."""
    transactions = HandlerTransaction(database.begin)
    done = [await transactions.run_once("ab", AT, database.effect) for _ in range(2)]
    other = await transactions.run_once("cd", AT, database.effect)

    assert ([True, False], True, 2) == (done, other, database.count())


async def test_failure_undoes_effect_and_mark(database: Database) -> None:
    """Where the handler fails after its effect, neither is committed: the next try has the effect."""
    transactions = HandlerTransaction(database.begin)

    async def fail(connection: Any) -> None:
        await database.effect(connection)
        raise ValueError("not now")

    with pytest.raises(ValueError, match="not now"):
        await transactions.run_once("ab", AT, fail)
    undone = database.count()
    done = await transactions.run_once("ab", AT, database.effect)

    assert (0, True, 1) == (undone, done, database.count())


@pytest.mark.parametrize("driver", IN_POSTGRES, ids=lambda driver: driver.__name__)
async def test_many_begin_at_once(driver: Callable[[str], Database], postgres_dsn: str) -> None:
    """The first events of all come together: the table is made once, and each effect is had once."""
    database = driver(postgres_dsn)
    transactions = HandlerTransaction(database.begin)
    marks = ["ab", "cd", "ef"] * 3
    done = await asyncio.gather(*(transactions.run_once(each, AT, database.effect) for each in marks))

    assert (3, 3) == (sum(done), database.count())


async def test_receiver_has_the_effect_once(database: Database, shop: Shop) -> None:
    """A handler whose end the inbox did not note is dispatched again, and its effect stays one."""
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


def credited_in(database: Database) -> Any:
    """Return a handler that has an effect in a database."""

    async def credited(_: Notification, connection: Any) -> None:
        await database.effect(connection)

    return credited


async def handled_anew(
    folder: Path, database: Database, handler: Any, name: str | None = None, **settings: Any
) -> None:
    """Have the same event handled by a process that knows nothing of the last one but what is in the database."""
    async with opened(folder, **settings) as shop:
        shop.receiver.on("payment", name=name, transaction=database.begin)(handler)
        await shop.handled()
    shop.path.unlink()


async def test_function_may_be_moved(tmp_path: Path) -> None:
    """It is the same handler where its module is another, or the program itself: its mark is found."""
    database = by_sqlite3(tmp_path / "shop.db")
    for module in ("shop", "__main__"):
        handler = credited_in(database)
        handler.__module__ = module
        await handled_anew(tmp_path, database, handler)

    assert 1 == database.count()


async def test_renamed_function_keeps_the_name_that_it_is_given(tmp_path: Path) -> None:
    """What it did under its old name, it has done."""
    database = by_sqlite3(tmp_path / "shop.db")
    for name in ("credited", "add_credit"):
        handler = credited_in(database)
        handler.__qualname__ = name
        await handled_anew(tmp_path, database, handler, name="credited")

    assert 1 == database.count()


async def test_two_merchants_share_a_database(tmp_path: Path) -> None:
    """Order T1 of one is not T1 of the other: both effects are had."""
    database = by_sqlite3(tmp_path / "shop.db")
    for merchant in ("M1", "M2"):
        credentials = Credentials(merchant, notification_keys="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        await handled_anew(tmp_path, database, credited_in(database), credentials=credentials)

    assert 2 == database.count()


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
        await HandlerTransaction(begin).run_once("ab", AT, handle)

    assert [] == done


@contextmanager
def nothing() -> Generator[None]:
    """Give no connection."""
    yield None


@pytest.mark.parametrize(("begin", "says"), [(nothing, "gives no connection"), (list, "context manager, not list")])
async def test_transaction_must_give_a_connection(begin: Any, says: str) -> None:
    """A mistake in the caller's function is named, as the reason of the event."""
    with pytest.raises(ConfigurationError, match=says):
        await HandlerTransaction(begin).run_once("ab", AT, lambda _: asyncio.sleep(0))


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
    transactions = HandlerTransaction(database.begin)
    done = [asyncio.run(transactions.run_once(each, AT, database.effect)) for each in ("ab", "cd", "ab")]

    assert ([True, True, False], 2) == (done, database.count())


def test_mark_is_a_literal() -> None:
    """Whatever a key holds, the statement has nothing of it but hexadecimal digits."""
    digits = hash_mark("paid", "M1", 'payment:["T1\'; DROP TABLE orders --"]')
    literals = re.findall("'([^']*)'", build_insert(digits, AT))

    assert [digits, "2027-01-01T00:00:00+00:00"] == literals
    assert re.fullmatch("[0-9a-f]{64}", digits)


def test_mark_is_of_one_handler_one_merchant_and_one_event() -> None:
    """Two merchants may have orders of the same number, and keep their books in one database."""
    marks = {hash_mark("a", "M1", "b"), hash_mark("a", "M1", "c"), hash_mark("b", "M1", "b"), hash_mark("a", "M2", "b")}

    assert 4 == len(marks)
