"""The store: transactions, conditional changes, indexes, and whose file it is."""

import ast
import inspect
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from attrs import evolve, fields

from payasync.errors import ConfigurationError
from payasync.sandbox import model
from payasync.sandbox import store as module
from payasync.sandbox.model import Answered, Notification, Order, Refund, RefusedError, Subscription
from payasync.sandbox.store import APPLICATION, VERSION, Store, select
from tests.inside import set_writable

ORDER: Final = Order(out_trade_no="T1", payment_id="P1", token="t", origin="order", total_amt=450, currency="CAD")
SUBSCRIPTION: Final = Subscription(
    subscription_id="S1", frequency="monthly", amount=9, start_date="2027-01-31", customer="{}"
)
LOOKUPS: Final = [
    select(getattr(model, kind.id), [name.arg or "" for name in node.keywords], "seq" * (method == "find_all"))
    for file in Path(module.__file__).parent.rglob("*.py")
    for node in ast.walk(ast.parse(file.read_text()))
    if isinstance(node, ast.Call)
    and isinstance(node.func, ast.Attribute)
    and (method := node.func.attr) in {"find", "find_all", "count"}
    and node.keywords
    and isinstance(kind := node.args[0], ast.Name)
    and len(node.args) == 1
]
"""The statements of all places that look for rows by the values of columns."""
MOVES: Final = [
    f"UPDATE {table} SET state = 1 WHERE {' AND '.join(f'{each.name} IS :{each.name}' for each in fields(kind))}"  # noqa: S608 - our own names
    for table, kind in {
        "orders": Order,
        "refunds": Refund,
        "subscriptions": Subscription,
        "notifications": Notification,
    }.items()
]
"""How `Store.move` finds the row that it changes."""
STATEMENTS: Final = sorted(
    node.value.strip()
    for node in ast.walk(ast.parse(inspect.getsource(module)))
    if isinstance(node, ast.Constant)
    and isinstance(node.value, str)
    and node.value.lstrip().startswith(("SELECT ", "INSERT INTO ", "UPDATE ", "DELETE ", "WITH "))
    and (" WHERE " in node.value or "\n" in node.value)
)
"""Every statement that looks for rows."""
(DUE_NOTIFICATION,) = (each for each in STATEMENTS if each.startswith("WITH"))


def plan(statement: str, tmp_path: Path) -> list[str]:
    """Return how SQLite finds the rows of a statement."""
    path = str(tmp_path / "plans.db")
    Store(path).close()
    with closing(sqlite3.connect(path)) as database:
        database.create_function("sandbox_now", 0, str)
        values: dict[str, None] = defaultdict(lambda: None)
        return [step[3] for step in database.execute(f"EXPLAIN QUERY PLAN {statement}", values)]


@pytest.mark.parametrize("statement", sorted({*LOOKUPS, *MOVES, *STATEMENTS} - {DUE_NOTIFICATION}))
def test_no_lookup_scans_a_table(statement: str, tmp_path: Path) -> None:
    """Every statement that looks for rows finds them by an index, and sorts none of them."""
    assert [] == [step for step in plan(statement, tmp_path) if step.startswith(("SCAN", "USE TEMP B-TREE"))]


def test_what_is_due_is_found_address_by_address(tmp_path: Path) -> None:
    """Only the list of addresses is scanned and sorted; notifications are found by an index of what is due."""
    steps = plan(DUE_NOTIFICATION, tmp_path)
    found = {step.partition(" (")[0] for step in steps if "notifications" in step}
    scanned = {step for step in steps if step.startswith("SCAN")}

    assert {
        "SEARCH notifications USING COVERING INDEX notifications_by_url",
        "SEARCH notifications USING INTEGER PRIMARY KEY",
    } == found
    assert {"SCAN addresses", "SCAN json_each VIRTUAL TABLE INDEX 1:"} == scanned


def test_what_waits_behind_a_delivery_costs_nothing(tmp_path: Path) -> None:
    """To look for what is due takes as many steps with two notifications at a slow address as with hundreds."""
    path, steps = str(tmp_path / "sandbox.db"), list[int]()
    for count in (2, 500):
        store = Store(path)
        for number in range(count):
            store.add(Notification(notification_id=f"{count}/{number}", url="http://slow", body="{}"))
        store.close()
        with closing(sqlite3.connect(path)) as database:
            taken = list[None]()
            database.set_progress_handler(partial(taken.append, None), 1)
            found = database.execute(DUE_NOTIFICATION, {"now": 0, "busy": '["http://slow"]'}).fetchall()
            steps.append(len(taken))

        assert [] == found
    assert steps[0] == steps[1] > 0


def test_each_thing_has_one_next_state(store: Store) -> None:
    """Of two changes to the same order, refund or subscription, the first wins and the second is refused."""
    refund = Refund(out_refund_no="R1", out_trade_no="T1", total_amt=450, refund_amt=200, fingerprint="f")
    store.add(ORDER)
    store.add(refund)
    store.add(SUBSCRIPTION)
    declined = evolve(ORDER, declines=1)
    begun = evolve(SUBSCRIPTION, state="active")
    moved = [
        *(store.move(ORDER, each) for each in (declined, declined)),
        *(store.move(declined, evolve(declined, state=state)) for state in ("paid", "closed")),
        *(store.move(refund, evolve(refund, state=state)) for state in ("succeeded", "failed")),
        *(store.move(SUBSCRIPTION, each) for each in (begun, begun)),
        *(store.move(begun, evolve(begun, period=1)) for _ in range(2)),
    ]

    assert [True, False] * 5 == moved
    assert (evolve(declined, state="paid"), 200) == (store.find(Order, out_trade_no="T1"), store.refunded("T1"))


PAGES_IN_HEADER: Final = 28
"""Where the header of an SQLite file says how many pages it has."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a file may be."""
    return tmp_path / "sandbox.db"


def call(name: str) -> Answered:
    """Return a call that can be stored."""
    return Answered(operation=name, status=200, code="OK")


def names(store: Store) -> list[str]:
    """Return the names of the stored calls."""
    return [each.operation for each in store.find_all(Answered)]


def test_transaction_is_all_or_nothing(store: Store) -> None:
    """After an exception nothing is stored, and `after` is not called."""
    told = list[str]()
    store.after_commit = lambda: told.append("committed")
    with suppress(ZeroDivisionError), store.transaction():
        store.add(call("a"))
        raise ZeroDivisionError
    undone = names(store)
    with store.transaction():
        store.add(call("b"))

    assert ([], ["b"], ["committed"]) == (undone, names(store), told)


def test_last_words_of_a_transaction(store: Store) -> None:
    """What is stored with each commit is undone with its transaction, too."""
    last = iter("abc")

    def fail_on_b() -> None:
        name = next(last)
        store.add(call(name))
        if name == "b":
            raise ZeroDivisionError

    store.before_commit = fail_on_b
    for number in range(3):
        with suppress(ZeroDivisionError), store.transaction():
            store.add(call(str(number)))

    assert ["0", "a", "2", "c"] == names(store)


def test_savepoint_undoes_itself_only(store: Store) -> None:
    """What is refused is undone; what was done before it in the same transaction stays."""
    with store.transaction():
        store.add(call("a"))
        with suppress(RefusedError), store.savepoint():
            store.add(call("b"))
            raise RefusedError("wrong_state", "no")

    assert ["a"] == names(store)


def test_file_that_cannot_be_written(store: Store) -> None:
    """A full disk or a lost file is an error of ours that names the setting; nothing of the change is stored."""
    set_writable(store, writable=False)
    with pytest.raises(ConfigurationError, match="cannot be written") as failed, store.transaction():
        store.add(call("a"))
    set_writable(store, writable=True)

    assert ("db", []) == (failed.value.field, names(store))


def test_file_is_its_owners(path: Path) -> None:
    """Only its owner can read the file, which contains keys; its header names the program and the schema version."""
    Store(str(path)).close()

    with closing(sqlite3.connect(path)) as found:
        assert (APPLICATION, VERSION) == tuple(
            found.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
    assert 0 == path.stat().st_mode & 0o077


def test_one_sandbox_to_a_file(path: Path) -> None:
    """A second one is refused as often as it tries, in this process and in others, until the first has closed."""
    first, fields = Store(str(path)), list[str | None]()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="another sandbox has it open") as refused:
            Store(str(path))
        fields.append(refused.value.field)
    code = f"from payasync.sandbox.store import Store; Store({str(path)!r})"
    elsewhere = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    with first.transaction():
        first.add(call("a"))
    first.close()
    with closing(Store(str(path))) as second:
        kept = len(names(second))

    assert (["db", "db"], 1) == (fields, kept)
    assert "another sandbox has it open" in elsewhere.stderr


def another_programs(path: Path) -> None:
    """Make a database that is none of the sandbox's."""
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("CREATE TABLE orders (id)")


def of_another_version(path: Path) -> None:
    """Make a sandbox's file of another schema."""
    Store(str(path)).close()
    with closing(sqlite3.connect(path)) as made:
        made.execute(f"PRAGMA user_version = {VERSION + 1}")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_text("notes\n" * 100), "is not a database"),
        (lambda path: path.write_bytes(b"SQLite format 3\0" + b"\0" * 84), "cannot use"),
        (another_programs, "of another program, or of an older payasync"),
        (of_another_version, f"its schema is of version {VERSION + 1}, and this payasync's of {VERSION}"),
        (lambda path: path.mkdir(), "is not a regular file. Name another file"),
    ],
)
def test_file_of_somebody_else(path: Path, make: Callable[[Path], object], words: str) -> None:
    """What is no sandbox's database of this version is refused with a clear word, and left as it is."""
    make(path)
    before = {file.name: file.is_file() and file.read_bytes() for file in path.parent.iterdir()}
    with pytest.raises(ConfigurationError, match=words) as refused:
        Store(str(path))

    assert "db" == refused.value.field
    assert before == {file.name: file.is_file() and file.read_bytes() for file in path.parent.iterdir()}


def test_file_that_cannot_be_made(path: Path) -> None:
    """A folder that is not there is a mistake in the configuration, in our words."""
    with pytest.raises(ConfigurationError, match=r"db: cannot use .* No such file"):
        Store(str(path / "below"))


def test_empty_file_is_filled(path: Path) -> None:
    """A file that is there and empty becomes a sandbox's."""
    path.touch()
    Store(str(path)).close()
    with closing(Store(str(path))) as again:
        assert 0 == len(names(again))


def test_file_of_a_sandbox_that_was_killed_half_way(path: Path) -> None:
    """Killed while the log is copied into the file, which then says that it is longer than it is, nothing is lost."""
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
