"""The sandbox's database: SQLite, one connection, one thread, one sandbox to a file.

Write-ahead logging with `synchronous = NORMAL`: a committed change survives the end of this process, even by SIGKILL.
Only if the machine itself stops may the last commits be missing; waiting for the disk is not worth it here.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, date, datetime
from functools import partial
from importlib import resources
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeVar

from attrs import AttrsInstance, asdict, evolve, fields_dict

from payasync.errors import ConfigurationError
from payasync.sandbox.model import (
    Answered,
    Attempt,
    Charge,
    Entry,
    Notification,
    Order,
    RecordedResponse,
    Refund,
    RefusedError,
    Subscription,
    Timer,
    TimerKind,
    format_instant,
    to_instant,
    to_micros,
)
from payasync.settings import DATABASE, check_private, new_private
from payasync.storage import read_queries, sqlite

T = TypeVar("T")
MEMORY: Final = ":memory:"
APPLICATION: Final = 0x50617973
"""`Pays`: marks the file as a sandbox's, in its header."""
VERSION: Final = 3
"""Of the schema; a file of another version is refused."""
MAX_TEXT: Final = 4096
"""Characters that one text of the timeline may have: a request may be long."""
MAX_ENTRIES: Final = 10_000
"""The schema's trigger deletes older entries of the timeline."""
LOCKED_SECONDS: Final = 0.25
"""How long the start waits for a sandbox that is just closing the file."""
_TABLES: Final[Mapping[type, str]] = {
    Order: "orders",
    Refund: "refunds",
    Subscription: "subscriptions",
    Charge: "charges",
    Notification: "notifications",
    Attempt: "attempts",
    Answered: "calls",
    RecordedResponse: "idempotency_keys",
    Entry: "timeline",
}
_NAMES: Final[Mapping[type, tuple[str, ...]]] = {kind: tuple(fields_dict(kind)) for kind in (*_TABLES, Timer)}
_INSERTIONS: Final = {
    kind: f"INSERT INTO {table} ({', '.join(names)}) VALUES (:{', :'.join(names)})"  # noqa: S608 - our own names
    for kind, table in _TABLES.items()
    for names in ([name for name in _NAMES[kind] if name != "seq"],)
}


SQL: Final = read_queries("payasync.sandbox", "store")


def _select(kind: type, columns: Iterable[str], by: str = "") -> str:
    """Return the statement that finds rows by the values of columns, in the order of one."""
    where = " AND ".join(f"{name} = :{name}" for name in columns)
    return f"SELECT * FROM {_TABLES[kind]}{where and f' WHERE {where}'}{by and f' ORDER BY {by}'}"  # noqa: S608 - our own names


class Store:
    """Reads and writes what the sandbox stores; make all related changes in one `transaction`.

    Args:
        path: The database's file, or `:memory:`.

    Attributes:
        now: The time that the timeline shows: the machine's, until a clock takes its place.
        before_commit: Called at the end of each transaction, inside it.
        after_commit: Called after each transaction that was committed.

    Raises:
        ConfigurationError: The file cannot be opened, another sandbox uses it, or it is not a sandbox's of this
            version; then it is not changed.
    """

    def __init__(self, path: str) -> None:
        self._db = _open_database(path)
        self._db.create_function("sandbox_now", 0, lambda: format_instant(self.now()))
        self.now: Callable[[], datetime] = partial(datetime.now, UTC)
        self.before_commit: Callable[[], object] = bool
        self.after_commit: Callable[[], object] = bool

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Commit all that is done inside, or nothing if an exception is raised.

        Raises:
            ConfigurationError: The file cannot be written.
        """
        try:
            with sqlite.transaction(self._db):
                yield
                self.before_commit()
        except sqlite3.OperationalError as error:
            raise ConfigurationError(f"db: the sandbox's database cannot be written: {error}", field="db") from error
        self.after_commit()

    @contextmanager
    def savepoint(self) -> Generator[None]:
        """Undo the changes inside if they are refused. The transaction around them continues."""
        self._db.execute("SAVEPOINT inner")
        try:
            yield
        except RefusedError:
            self._db.execute("ROLLBACK TO inner")
            raise

    def add(self, value: AttrsInstance) -> int:
        """Insert a value into its table, and return the row's number."""
        return self._execute(_INSERTIONS[type(value)], asdict(value)).lastrowid or 0

    def find(self, kind: type[T], /, **values: Any) -> T | None:
        """Return what has these values, or `None`."""
        return self._first(kind, _select(kind, values), **values)

    def find_all(self, kind: type[T], by: str = "seq", /, **values: Any) -> list[T]:
        """Return all that have these values, in the order of a column."""
        return self._read(kind, _select(kind, values, by), **values)

    def count(self, kind: type, /, **values: Any) -> int:
        """Count those that have these values."""
        return int(self._fetch(_select(kind, values).replace("*", "count(*)"), **values)[0][0])

    def newest(self, kind: type[T], limit: int, /, **values: Any) -> list[T]:
        """Return the newest that have these values, newest first."""
        return self._read(kind, f"{_select(kind, values, 'rowid')} DESC LIMIT {limit}", **values)

    def move(self, before: AttrsInstance, after: AttrsInstance) -> bool:
        """Store a changed value; `False` if the row has changed since it was read."""
        old, new = asdict(before), asdict(after)
        changes = ", ".join(f"{name} = :{name}" for name in new if new[name] != old[name])
        unchanged = " AND ".join(f"{name} IS :old_{name}" for name in old)
        statement = f"UPDATE {_TABLES[type(after)]} SET {changes} WHERE {unchanged}"  # noqa: S608 - our own names
        return not changes or self._change(statement, **new, **{f"old_{name}": old[name] for name in old})

    def order_named(self, number: str) -> Order | None:
        """Return the order with this number, or else the one with this payment number."""
        return self.find(Order, out_trade_no=number) or self.find(Order, payment_id=number)

    def refunded(self, out_trade_no: str) -> int:
        """Return the sum of an order's refunds that have succeeded."""
        return int(self._fetch(SQL["refunded"], out_trade_no=out_trade_no)[0][0])

    def set_timer(self, kind: TimerKind, reference: str, due: datetime | None) -> None:
        """Set the one timer of this kind, in place of what it was set to; `None` stops it."""
        if due is None:
            self._change(SQL["stop_timer"], kind=kind, reference=reference)
        else:
            self._change(SQL["set_timer"], due=due, kind=kind, reference=reference)

    def next_timer(self) -> Timer | None:
        """Return the timer that falls due first."""
        return self._first(Timer, SQL["next_timer"])

    def time(self) -> tuple[datetime, datetime] | None:
        """Return the sandbox's time and the machine's at the last commit; `None` in a new database."""
        found = self._fetch(SQL["time"])
        return (to_instant(found[0]["latest"]), to_instant(found[0]["wall"])) if found else None

    def set_time(self, latest: datetime, wall: datetime) -> None:
        """Store the sandbox's time and the machine's."""
        self._change(SQL["set_time"], latest=latest, wall=wall)

    def stored_key(self, name: str, draw: Callable[[], str]) -> str:
        """Return the key that is stored under a name, and draw and store one if necessary."""
        with self.transaction():
            if found := self._fetch(SQL["key"], name=name):
                return str(found[0]["text"])
            drawn = draw()
            self._change(SQL["add_key"], name=name, text=drawn)
            return drawn

    def use_nonce(self, merchant_id: str, nonce: str) -> bool:
        """Use up a nonce; `False` if it was used before (docs/reference/service.md#authentication)."""
        return self._change(SQL["use_nonce"], merchant_id=merchant_id, nonce=nonce)

    def next_notification(self, after: datetime) -> Notification | None:
        """Return the notification whose attempt falls due first after this time."""
        return self._first(Notification, SQL["next_notification"], after=after)

    def due_notification(self, now: datetime, busy: Collection[str]) -> Notification | None:
        """Return the notification that has been due for longest, except for those to busy addresses."""
        return self._first(Notification, SQL["due_notification"], now=now, busy=json.dumps([*busy]))

    def add_entry(self, entry: Entry) -> int:
        """Insert an entry of the timeline, with its time and with long texts cut, and return its number."""
        changes: dict[str, Any] = {"at": format_instant(self.now())}
        for name, text in asdict(entry).items():
            if isinstance(text, str) and len(text) > MAX_TEXT:
                changes[name] = f"{text[:MAX_TEXT]}… ({len(text):,} characters)"
        return self.add(evolve(entry, **changes))

    def entries_about(self, reference: str) -> list[Entry]:
        """Return the entries about an order, refund or subscription, oldest first.

        The number of an order or of its payment includes both, and the order's refunds.
        """
        numbers, order = {reference}, self.order_named(reference)
        if order:
            refunds = self._read(Refund, _select(Refund, ("out_trade_no",)), out_trade_no=order.out_trade_no)
            numbers |= {order.out_trade_no, order.payment_id, *(refund.out_refund_no for refund in refunds)}
        found = (self.find_all(Entry, reference=number) for number in numbers)
        return sorted(chain.from_iterable(found), key=attrgetter("seq"))

    def _change(self, statement: str, /, **values: Any) -> bool:
        """Run a statement that changes one row; `False` if it found none to change."""
        return self._execute(statement, values).rowcount == 1

    def _first(self, kind: type[T], statement: str, /, **values: Any) -> T | None:
        return next(iter(self._read(kind, statement, **values)), None)

    def _read(self, kind: type[T], statement: str, /, **values: Any) -> list[T]:
        return [kind(**{name: row[name] for name in _NAMES[kind]}) for row in self._fetch(statement, **values)]

    def _fetch(self, statement: str, /, **values: Any) -> list[sqlite3.Row]:
        return self._execute(statement, values).fetchall()

    def _execute(self, statement: str, values: Mapping[str, Any]) -> sqlite3.Cursor:
        return self._db.execute(statement, {name: _to_column(value) for name, value in values.items()})


def _to_column(value: Any) -> Any:
    """Return a value as the database has it: a time as microseconds, a day in ISO 8601."""
    if isinstance(value, datetime):
        return to_micros(value)
    return value.isoformat() if isinstance(value, date) else value


def read_location(db: object) -> str:
    """Return where a database is, as a text.

    Raises:
        ConfigurationError: It is neither a path nor `:memory:`.
    """
    path = os.fspath(db) if isinstance(db, os.PathLike) else db
    if isinstance(path, str):
        return path
    raise ConfigurationError(f"db must be the path of a file, or {MEMORY!r}, not {db!r}", field="db")


def _open_database(path: str) -> sqlite3.Connection:
    try:
        _check_header(path)
        database = sqlite3.connect(path, timeout=LOCKED_SECONDS, isolation_level=None)
        try:
            _prepare_database(database)
        except BaseException:
            database.close()
            raise
    except (sqlite3.Error, OSError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or str(error)
        if isinstance(error, sqlite3.Error) and "locked" in why:
            why = "another sandbox has it open: close that one first, or use another file"
    else:
        return database
    raise ConfigurationError(f"db: cannot use {path!r} as the sandbox's database: {why}", field="db")


def _check_header(path: str) -> None:
    """Check the file before SQLite may change it.

    SQLite itself reads it: opening and closing the file beside SQLite would release the locks that another sandbox of
    this process holds. A killed sandbox may have copied only a part of its log into the file. If the header cannot be
    read without the log, it is checked again when the file is open.
    """
    if path == MEMORY:
        return
    with suppress(FileExistsError):
        os.close(new_private(Path(path)))
    for suffix in DATABASE:
        check_private(f"{path}{suffix}")
    if Path(path).stat().st_size == 0:
        return
    uri = f"{Path(path).absolute().as_uri()}?mode=ro&immutable=1"
    with suppress(sqlite3.Error), closing(sqlite3.connect(uri, uri=True)) as database:
        _check_marks(database)


def _check_marks(database: sqlite3.Connection) -> None:
    application, version = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in sqlite.MARKS)
    if application != APPLICATION:
        raise OSError("it is the database of another program, or of an older payasync: name another file")
    if version != VERSION:
        raise OSError(f"its schema is of version {version}, and this payasync's of {VERSION}: name another file")


def _prepare_database(database: sqlite3.Connection) -> None:
    database.row_factory = sqlite3.Row
    # Held until the end, so that there is one sandbox to a file.
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    if database.execute("PRAGMA page_count").fetchone()[0]:
        _check_marks(database)
    # All missing tables or none; in a new file before there is a log: the header must say whose file it is.
    schema = resources.files("payasync.sandbox").joinpath("schema.sql").read_text(encoding="utf-8")
    marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
    database.executescript(f"BEGIN EXCLUSIVE; {marks} {schema} COMMIT;")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute("PRAGMA foreign_keys = ON")
    database.execute("BEGIN EXCLUSIVE")
    database.execute("COMMIT")
