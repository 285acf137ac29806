"""The store: transactions, conditional changes, indexes, and checks of its file."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import pytest
from attrs import evolve

from payasync.errors import ConfigurationError
from payasync.sandbox.model import Answered, Order, RefusedError
from payasync.sandbox.store import APPLICATION, VERSION, Store
from tests.inside import connection_of, store_of
from tests.sandbox.admin import Operator
from tests.sandbox.test_openapi import answers
from tests.sandbox.world import World

ORDER: Final = Order(out_trade_no="T1", payment_id="P1", token="t", origin="order", total_amt=450, currency="CAD")


async def test_no_statement_scans_a_table(world: World) -> None:
    """Every statement finds its rows by an index, so that a sandbox with a million orders is as fast as a new one.

    Only the addresses with due deliveries are scanned and sorted.
    """
    statements, sandbox, connection = list[str](), world.sandbox, connection_of(store_of(world.sandbox))
    await sandbox.given.paid_order()
    (made,) = sandbox.ledger.notifications()
    connection.set_trace_callback(statements.append)
    await answers(world)
    number = await sandbox.given.subscription()
    await sandbox.clock.advance(days=31)
    await sandbox.resend(made.notification_id)
    await sandbox.settle()
    _ = sandbox.ledger.refunded("T1"), sandbox.ledger.orders(), sandbox.ledger.charges(number)
    _ = sandbox.ledger.calls("orders.place"), sandbox.ledger.refund_state("R1")
    for path in ("/", "/timeline?about=T1"):
        await Operator(sandbox, world.http).get(path)
    connection.set_trace_callback(None)
    looking = {each for each in statements if " WHERE " in each or each.endswith("LIMIT 1")}
    plans = {each: [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {each}")] for each in looking}

    whole = [each for each in statements if each.startswith("SELECT") and " WHERE " not in each and "LIMIT" not in each]
    scans = {step for steps in plans.values() for step in steps if step.startswith(("SCAN", "USE TEMP B-TREE"))}
    assert {
        "SCAN addresses",
        "SCAN json_each VIRTUAL TABLE INDEX 1:",
        "SCAN timers USING INDEX timers_by_due",
        "USE TEMP B-TREE FOR ORDER BY",
    } == scans
    assert ([], True) == (whole, len(plans) > 30)


def test_each_thing_has_one_next_state(store: Store) -> None:
    """Of two changes to the same order, the first wins and the second is refused."""
    store.add(ORDER)
    paid, closed = (evolve(ORDER, state=state) for state in ("paid", "closed"))

    assert [True, False] == [store.move(ORDER, each) for each in (paid, closed)]
    assert paid == store.find(Order, out_trade_no="T1")


PAGES_IN_HEADER: Final = 28
"""Where the header of an SQLite file says how many pages it has."""


def call(name: str) -> Answered:
    """Return a call that can be stored."""
    return Answered(operation=name, status=200, code="OK")


def names(store: Store) -> list[str]:
    """Return the names of the stored calls."""
    return [each.operation for each in store.find_all(Answered)]


def test_transaction_is_all_or_nothing(store: Store) -> None:
    """If a transaction raises, nothing is stored, and `after_commit` is not called. A savepoint undoes itself only."""
    commits = list[str]()
    store.after_commit = lambda: commits.append("committed")
    with suppress(ZeroDivisionError), store.transaction():
        store.add(call("a"))
        raise ZeroDivisionError
    undone = names(store)
    with store.transaction():
        store.add(call("b"))
        with suppress(RefusedError), store.savepoint():
            store.add(call("c"))
            raise RefusedError("wrong_state", "no")

    assert ([], ["b"], ["committed"]) == (undone, names(store), commits)


def test_file_is_its_owners(tmp_path: Path) -> None:
    """Only its owner can read a new file, which contains keys; its header names the program and the schema version.

    An existing empty file is used as a new database.
    """
    path, empty = tmp_path / "sandbox.db", tmp_path / "empty.db"
    empty.touch()
    for file in (path, empty):
        Store(str(file)).close()
        with closing(sqlite3.connect(file)) as found:
            assert [APPLICATION, VERSION] == [
                found.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
            ]
    assert 0 == path.stat().st_mode & 0o077


def test_one_sandbox_to_a_file(tmp_path: Path) -> None:
    """While one sandbox has a file open, another is refused."""
    path = str(tmp_path / "sandbox.db")
    first = Store(path)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="another sandbox has it open") as refused:
            Store(path)
        assert "db" == refused.value.field
    first.add(call("a"))
    first.close()
    with closing(Store(path)) as second:
        assert ["a"] == names(second)


def test_file_of_somebody_else(tmp_path: Path) -> None:
    """A file that is not a sandbox's database of this version is refused with the reason, and not changed."""
    files = [tmp_path / name / "sandbox.db" for name in ("notes", "header", "other", "version", "folder", "missing")]
    notes, header, other, version, folder, missing = files
    for file in files[:-1]:
        file.parent.mkdir()
    notes.write_text("notes\n" * 100, encoding="utf-8")
    header.write_bytes(b"SQLite format 3\0" + b"\0" * 84)
    folder.mkdir()
    Store(str(version)).close()
    for file, statement in ((other, "CREATE TABLE orders (id)"), (version, f"PRAGMA user_version = {VERSION + 1}")):
        with closing(sqlite3.connect(file)) as made:
            made.execute("PRAGMA journal_mode = WAL")
            made.execute(statement)
    for file, words in (
        (notes, "is not a database"),
        (header, "cannot use"),
        (other, "of another program, or of an older payasync"),
        (version, f"its schema is of version {VERSION + 1}, and this payasync's of {VERSION}"),
        (folder, "is not a regular file. Name another file"),
        (missing, "cannot use .* No such file"),
    ):
        before = {each: each.is_file() and each.read_bytes() for each in file.parent.glob("*")}
        with pytest.raises(ConfigurationError, match=words) as refused:
            Store(str(file))

        assert "db" == refused.value.field
        assert before == {each: each.is_file() and each.read_bytes() for each in file.parent.glob("*")}


def test_file_of_an_earlier_payasync_gets_what_it_lacks(tmp_path: Path) -> None:
    """A file that an earlier payasync made gets the tables that are new since, and keeps what it holds."""
    path = tmp_path / "sandbox.db"
    with closing(Store(str(path))) as store:
        store.add(ORDER)
    with closing(sqlite3.connect(path)) as earlier:
        earlier.execute("DROP TABLE idempotency_keys")

    with closing(Store(str(path))) as store:
        assert [] == connection_of(store).execute("SELECT * FROM idempotency_keys").fetchall()
        assert store.order_named("T1")


def test_file_of_a_sandbox_that_was_killed_half_way(tmp_path: Path) -> None:
    """If a sandbox is killed during a checkpoint, so that its header shows a wrong length, nothing is lost."""
    path = tmp_path / "sandbox.db"
    with closing(Store(str(path))) as database:
        with database.transaction():
            database.add(call("so long that the file grows" * 1000))
        files = {file: file.read_bytes() for file in path.parent.iterdir()}
    for file, content in files.items():
        file.write_bytes(content)
    with path.open("r+b") as header:
        header.seek(PAGES_IN_HEADER)
        header.write((1000).to_bytes(4, "big"))
    with closing(Store(str(path))) as again:
        assert 1 == len(names(again))
