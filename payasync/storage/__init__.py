"""SQLite and PostgreSQL for journal and inbox: opening, migrations, durable transactions."""

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from importlib import resources
from typing import Final, TypeAlias

from attrs import field, frozen

from payasync.wire.validators import invalid_argument

Present: TypeAlias = Callable[[], AbstractAsyncContextManager[Callable[[], Awaitable[bool]]]]
"""Lets others know that a program works here, and yields a function that returns whether no other program does."""
LARGEST_INTEGER: Final = 2**63 - 1


@frozen(kw_only=True)
class Backlog:
    """What waits in a journal or an inbox.

    Attributes:
        counts: How many there are by state, 0 included, without those that are at their end. Of an inbox,
            `another_merchant` counts the held events that name another merchant; `held` does not count them.
        oldest: The age in seconds of the oldest unknown intent, or of the oldest undelivered event; 0 if there is none.
        overdue: For how many seconds the next query or delivery has been due; 0 if it is not due.
        needs_person: How many intents need a person by state, 0 included; empty for an inbox. *new* ones were not sent
            for 5 minutes. About *accepted* ones the service gave no usable response for too long. No query and no
            resend can settle *unknown* ones.
    """

    counts: Mapping[str, int]
    oldest: float
    overdue: float
    needs_person: Mapping[str, int] = field(factory=dict)


def with_columns(statement: str, columns: str) -> str:
    """Return a statement that reads these columns in place of all."""
    return re.sub(r"\b(SELECT|RETURNING) \*", rf"\1 {columns}", statement)


def _as_it_is(statement: str) -> str:
    return statement


@frozen(kw_only=True, eq=False)
class Schema:
    """The tables of one kind of store.

    Attributes:
        name: What errors call the store, such as `inbox`.
        table: The table by which a PostgreSQL database shows where the store is.
        migrations: SQL scripts, each leading from one version to the next. A new database takes them all.
        application: The number in the header of an SQLite file that says whose file it is.
        adapt: Returns a statement as these tables need it.
    """

    name: str
    table: str = ""
    migrations: tuple[str, ...]
    application: int = 0
    adapt: Callable[[str], str] = field(default=_as_it_is, repr=False)


@frozen(kw_only=True)
class Upgrade:
    """What makes or migrates the tables of a store.

    Attributes:
        place: Where the store is, without a password.
        before: The version of its tables; 0 if they are missing.
        after: The version that they have afterwards.
        sql: All that is executed; empty if the tables are up to date.
    """

    place: str
    before: int
    after: int
    sql: str


def read_sql(package: str, name: str) -> str:
    """Return the script `sql/<name>.sql` of a package."""
    return resources.files(package).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


def read_queries(package: str, name: str) -> Mapping[str, str]:
    """Return the statements of `sql/<name>.sql` by the names in the lines `-- name: …` before them."""
    _, *parts = re.split(r"^-- name: (\w+)\n", read_sql(package, name), flags=re.MULTILINE)
    statements = (re.sub(r"^--.*\n", "", part, flags=re.MULTILINE).strip().rstrip(";") for part in parts[1::2])
    return dict(zip(parts[::2], statements, strict=True))


def read_migrations(package: str, database: str) -> tuple[str, ...]:
    """Return the scripts `sql/<database>/*.sql` of a package, in the order of their numbers."""
    folder = resources.files(package).joinpath("sql", database)
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(file.read_text(encoding="utf-8") for file in files)


def upgrade_needed(schema: Schema, version: int) -> str:
    """Return why a command cannot use a store whose tables are missing or older, and the next step."""
    option = "" if schema.name == "journal" else " --inbox"
    if not version:
        return f"there are no tables yet. If that is the right place, run payasync journal upgrade{option}"
    return (
        f"the tables have version {version}, and this payasync needs {len(schema.migrations)}. Stop all processes of "
        f"the earlier payasync, which refuse newer tables, and run payasync journal upgrade{option}"
    )


def check_number(name: str, given: object) -> int:
    """Return an integer of 0 or more that a database can hold.

    Raises:
        InvalidArgumentError: The argument is something else.
    """
    if type(given) is not int or not 0 <= given <= LARGEST_INTEGER:
        raise invalid_argument(name, "an integer of 0 or more, below 2**63", given)
    return given


def check_moment(name: str, given: object) -> datetime:
    """Return a `datetime` that has a time zone.

    Raises:
        InvalidArgumentError: The argument is something else.
    """
    if not isinstance(given, datetime) or given.tzinfo is None:
        raise invalid_argument(name, "a moment with its offset from UTC", given)
    return given
