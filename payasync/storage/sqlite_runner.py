"""Runs transactions on an SQLite connection, with statements and values as Python's sqlite3 executes them fastest."""

import re
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache, lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
from attrs import frozen

from payasync.storage import Schema
from payasync.storage.transactions import Query, Transaction, Work

_NOTHING: Final = type(None)
_PLAIN: Final = frozenset({str, int, float, _NOTHING})
_NAME: Final = re.compile(r":(\w+)")
_INDEX: Final = re.compile(r"/\* (INDEXED BY \w+|NOT INDEXED) \*/")
_ID: Final = re.compile(r"\s+RETURNING id$")
_INSERT: Final = re.compile(r"INSERT INTO (\w+)\s+\(")
SHARED: Final = (32, 16, 8, 4, 2)
"""How many transactions share a statement."""
ROWS: Final = "/* rows */"


def to_sqlite(value: Any) -> Any:
    """Return a value as SQLite takes it, whatever its type."""
    convert = _converter(type(value))
    return _escape_text(convert(value) if convert else value)


def _escape_text(value: Any) -> Any:
    """Return a text that SQLite takes: half a surrogate pair, which JSON can hold, becomes its escape."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8") if isinstance(value, str) else value


def _converter(kind: type) -> Callable[[Any], Any] | None:
    """Return what makes a value of a type one that SQLite takes; `None` if SQLite takes it as it is."""
    if kind in _PLAIN:
        return None
    if kind in _OF_EXACT_TYPE:
        return _OF_EXACT_TYPE[kind]
    if issubclass(kind, datetime):
        return datetime.timestamp
    if issubclass(kind, timedelta):
        return timedelta.total_seconds
    return (lambda value: orjson.dumps(dict(value)).decode()) if issubclass(kind, Mapping) else None


_OF_EXACT_TYPE: Final[Mapping[type, Callable[[Any], Any]]] = {bool: int, bytes: bytearray}
"""sqlite3 would look for an adapter of each such value, which takes longer than to bind it."""


class Statement(NamedTuple):
    """A statement as SQLite executes it.

    Attributes:
        text: The statement.
        fast: The same without `RETURNING id`, which would take a quarter of the time, if it changes one known row.
    """

    text: str
    fast: str


@cache
def sqlite_statement(statement: str, adapt: Callable[[str], str]) -> Statement:
    """Return a statement as SQLite executes it: with the indexes that its comments name."""
    text = adapt(_INDEX.sub(r"\1", statement))
    fast = _ID.sub("", text)
    return Statement(text, fast if "INSERT" in text or "WHERE id = :id" in text else text)


@cache
def names_in(statement: str) -> tuple[str, ...]:
    """Return the names of a statement's values, each once."""
    return tuple(dict.fromkeys(_NAME.findall(statement)))


@cache
def picker(names: tuple[Any, ...]) -> Callable[[Any], Sequence[Any]]:
    """Return a function that returns the values at some names or places."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda values: [values[name] for name in names]


@frozen
class Binding:
    """How values of certain types are bound to a statement.

    Attributes:
        text: The statement, with NULL for each `None`, because sqlite3 would look for an adapter of each. Its values
            have places: sqlite3 finds a value faster by its place than by its name.
        pick: Returns the values that are not `None`, as often as they stand in the statement.
        conversions: Which values are converted, and how.
    """

    text: str
    pick: Callable[[Sequence[Any]], Sequence[Any]]
    conversions: Sequence[tuple[int, Callable[[Any], Any]]]

    def bind(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return values as SQLite takes them, but for half surrogate pairs."""
        given = list(values)
        for place, convert in self.conversions:
            given[place] = convert(given[place])
        return self.pick(given)

    def bind_all(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """Return what `bind` returns for each row, one after the other; for many rows it is faster."""
        columns: list[Iterable[Any]] = [*zip(*rows, strict=True)]
        for place, convert in self.conversions:
            columns[place] = [*map(convert, columns[place])]
        return [*chain.from_iterable(zip(*self.pick(columns), strict=True))]


@lru_cache(maxsize=512)
def binding(statement: str, kinds: tuple[type, ...], column: str = "") -> Binding:
    """Return how values of these types are bound; a statement has few combinations of types.

    Args:
        statement: The statement, with names such as `:id`.
        kinds: The types of the values, in the order of `names_in`.
        column: What stands in the statement for a value, before its number. Default: a question mark for each name, and
            a value for each question mark. Python 3.12.0 to 3.12.3 warns of a mark with a number.
    """
    names = names_in(statement)
    given = [name for name, kind in zip(names, kinds, strict=True) if kind is not _NOTHING]
    marks = {name: f"{column}{number}" if column else "?" for number, name in enumerate(given, 1)}
    bound = given if column else [name for name in _NAME.findall(statement) if name in marks]
    places = tuple(map(names.index, bound))
    conversions = [
        (place, convert) for place in dict.fromkeys(places) if (convert := _converter(kinds[place])) is not None
    ]
    text = _NAME.sub(lambda found: marks.get(found[1], "NULL"), statement)
    return Binding(text, picker(places), conversions)


def execute(db: sqlite3.Connection, statement: str, values: Mapping[str, Any]) -> sqlite3.Cursor:
    """Execute a statement with values by their names."""
    row = picker(names_in(statement))(values)
    bound = binding(statement, tuple(map(type, row)))
    return execute_bound(db, bound.text, bound.bind(row))


def execute_bound(db: sqlite3.Connection, text: str, given: Sequence[Any]) -> sqlite3.Cursor:
    """Execute a statement with values as `Binding.bind` returns them."""
    try:
        return db.execute(text, given)
    except UnicodeEncodeError:
        return db.execute(text, [_escape_text(each) for each in given])


def fetch_rows(db: sqlite3.Connection, statement: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows that a statement finds, by the names of their columns."""
    cursor = execute(db, statement, values)
    return to_rows(cursor.description, cursor.fetchall())


def to_rows(description: Sequence[Sequence[Any]] | None, rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return rows by the names of their columns."""
    names = [column[0] for column in description or ()] if rows else ()
    return [dict(zip(names, row, strict=True)) for row in rows]


class _Begun(NamedTuple):
    """A transaction that has come to its first query, whose statement others share.

    Attributes:
        place: Its place among those that run together.
        transaction: The transaction.
        query: The query.
        now: When the transaction began.
        row: The values of the statement.
    """

    place: int
    transaction: Transaction[Any]
    query: Query
    now: datetime
    row: Sequence[Any]


_Groups: TypeAlias = "defaultdict[tuple[str, tuple[type, ...]], list[_Begun]]"


def _with_now(values: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    return values if "now" in values else {"now": now, **values}


class SqliteRunner:
    """Runs transactions on a connection.

    Args:
        db: The connection.
        schema: Its tables.
    """

    def __init__(self, db: sqlite3.Connection, schema: Schema) -> None:
        self._db = db
        self._adapt = schema.adapt

    def run_all(self, works: Sequence[tuple[Work[Any], datetime]]) -> list[Any]:
        """Run transactions that begin at their moments to their ends, and return their results.

        First queries share statements. Between two statements, this thread waits for the event loop's thread, which
        takes longer than a statement.
        """
        results: list[Any] = [None] * len(works)
        groups: _Groups = defaultdict(list)
        for place, (work, now) in enumerate(works):
            transaction = work(now)
            if len(works) == 1:
                return [self._finish(transaction, now)]
            try:
                query = next(transaction)
            except StopIteration as end:
                results[place] = end.value
                continue
            if query.is_first:
                names = names_in(sqlite_statement(query.statement, self._adapt).fast)
                row = picker(names)(_with_now(query.values, now))
                begun = _Begun(place, transaction, query, now, row)
                groups[query.statement, tuple(map(type, row))].append(begun)
            else:
                self._run_groups(groups, results)
                results[place] = self._finish(transaction, now, query)
        self._run_groups(groups, results)
        return results

    def _finish(
        self, transaction: Transaction[Any], now: datetime, query: Query | None = None, rows: Any = None
    ) -> Any:
        """Run a transaction to its end, and return its result.

        Args:
            transaction: The transaction.
            now: When it began.
            query: The query that it has come to.
            rows: The rows of the query before.
        """
        try:
            while True:
                query = query or transaction.send(rows)
                rows, query = self._execute(query, now), None
        except StopIteration as end:
            return end.value

    def _execute(self, query: Query, now: datetime) -> list[dict[str, Any]]:
        statement, values = sqlite_statement(query.statement, self._adapt), _with_now(query.values, now)
        if statement.fast == statement.text:
            return fetch_rows(self._db, statement.text, values)
        cursor = execute(self._db, statement.fast, values)
        return [{"id": values.get("id", cursor.lastrowid)}] * cursor.rowcount

    def _run_groups(self, groups: _Groups, results: list[Any]) -> None:
        """Run transactions by statement and types of values, and put each result at its place.

        Leases end before rows are stored. The groups are empty then.
        """
        for statement, kinds in sorted(groups, key=lambda group: "INSERT" in group[0]):
            for part in _split(groups.pop((statement, kinds))):
                changed = self._execute_together(statement, kinds, part) if len(part) > 1 else None
                for number, begun in enumerate(part):
                    rows = None if changed is None else [{"id": changed[number]}]
                    query = begun.query if rows is None else None
                    results[begun.place] = self._finish(begun.transaction, begun.now, query, rows)

    def _execute_together(
        self, statement: str, kinds: tuple[type, ...], part: Sequence[_Begun]
    ) -> Sequence[int] | None:
        """Return the rows that several have changed by one statement, or `None` if one of them would change nothing.

        Then a key is stored already, or a lease is lost. Nothing was changed, and each must run alone.
        """
        ids: Sequence[int]
        rows = [begun.row for begun in part]
        if table := _INSERT.match(sqlite_statement(statement, self._adapt).fast):
            # The next numbers, none of which was given before: SQLite does not say which new row has which.
            found = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table[1],)).fetchone()
            last = found[0] if found else 0
            ids = range(last + 1, last + 1 + len(rows))
            kinds, rows = (int, *kinds), [(own_id, *row) for own_id, row in zip(ids, rows, strict=True)]
        else:
            ids = [begun.query.values["id"] for begun in part]
        bound = binding(shared_statement(statement, self._adapt), kinds, "one.column")
        given = bound.bind_all(rows)
        text = _with_rows(bound.text, len(given) // len(rows), len(rows))
        self._db.execute("SAVEPOINT together")
        done = execute_bound(self._db, text, given).rowcount == len(rows)
        if not done:
            self._db.execute("ROLLBACK TO together")
        self._db.execute("RELEASE together")
        return ids if done else None


@cache
def shared_statement(statement: str, adapt: Callable[[str], str]) -> str:
    """Return a statement as several transactions share it: `ROWS` stands for their values."""
    text = sqlite_statement(statement, adapt).fast
    if _INSERT.match(text):
        text = _INSERT.sub(r"INSERT INTO \1 (id, ", text).replace("SELECT\n", "SELECT\n    :id,", 1)
    return text.replace("\nWHERE", f"\nFROM (VALUES {ROWS}) AS one\nWHERE", 1)


@lru_cache(maxsize=256)
def _with_rows(text: str, columns: int, rows: int) -> str:
    row = f"({', '.join('?' * columns)})"
    return text.replace(ROWS, ", ".join([row] * rows))


def _split(group: Sequence[_Begun]) -> Iterator[Sequence[_Begun]]:
    """Yield parts of a group, of few sizes, so that SQLite keeps their statements."""
    first = 0
    while first < len(group):
        size = next((size for size in SHARED if size <= len(group) - first), 1)
        yield group[first : first + size]
        first += size
