"""SQL statements with values, as Python's sqlite3 executes them fastest."""

import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache, lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, Final

import orjson
from attrs import frozen

_NOTHING: Final = type(None)
_PLAIN: Final = frozenset({str, int, float, _NOTHING})
_NAME: Final = re.compile(r":(\w+)")
_INDEX: Final = re.compile(r"/\* (INDEXED BY \w+|NOT INDEXED) \*/")


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


@cache
def with_indexes(statement: str) -> str:
    """Return a statement with the indexes that its comments name: PostgreSQL does not need them."""
    return _INDEX.sub(r"\1", statement)


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
    rows = cursor.fetchall()
    names = [column[0] for column in cursor.description] if rows else ()
    return [dict(zip(names, row, strict=True)) for row in rows]
