"""Where the tables of a journal and an inbox are in PostgreSQL, whatever another program has set on the connection."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row, kwargs_row, namedtuple_row, scalar_row, tuple_row

from payasync import ConfigurationError, CreateRefund, StorageError
from payasync.journal import PostgresJournal
from payasync.notifications import PostgresInbox
from payasync.notifications.handler_transaction import HandlerTransaction
from payasync.notifications.inbox import Added, Received
from payasync.storage.home import choose_home, configured_path
from tests.pgbouncer import leave
from tests.storage.test_postgres import elsewhere

MERCHANT: Final = "M1"
NEIGHBOURS: Final = {
    "path": ("SET search_path = other",),
    "path to nothing": ("SET search_path = ''",),
    "temporary table": ("CREATE TEMP TABLE IF NOT EXISTS payasync_intents AS TABLE public.payasync_intents",),
    "dates": ("SET DateStyle = 'German'", "SET TimeZone = 'Asia/Kathmandu'"),
    "commits": ("SET synchronous_commit = off", "SET default_transaction_read_only = on"),
    "numbers": ("SET extra_float_digits = -15", "SET bytea_output = 'escape'", "SET IntervalStyle = 'sql_standard'"),
}
"""What another program may leave on a server connection."""
OF_THE_ROLE: Final = '"$user"'
"""The path to the schema that has the name of the role."""


def refund(number: str = "R1") -> CreateRefund:
    """Return a refund."""
    return CreateRefund(out_trade_no="T1", out_refund_no=number, total_amt=450, refund_amt=200)


def received(key: str = "a") -> Received:
    """Return a notification."""
    digest, now = hashlib.sha256(key.encode()).hexdigest(), datetime.now(UTC)
    return Received(key=key, digest=digest, raw=b"\\x00\xff", verified=True, received_at=now)


def homes(dsn: str, table: str = "payasync_intents") -> list[str]:
    """Return the schemas that have a table."""
    tables = elsewhere(dsn, "SELECT schemaname, tablename FROM pg_tables WHERE schemaname !~ '^pg_' ORDER BY 1")
    return [str(schema) for schema, name in tables if name == table]


@pytest.mark.parametrize("left", NEIGHBOURS.values(), ids=NEIGHBOURS)
async def test_open_journal_stays_in_its_home(pooled_dsn: str, postgres_dsn: str, left: tuple[str, ...]) -> None:
    """A journal and an inbox behind a pooler use their own tables, whatever another program leaves there."""
    leave(pooled_dsn, "CREATE SCHEMA other")
    async with PostgresJournal(pooled_dsn) as journal, aclosing(PostgresInbox(pooled_dsn)) as inbox:
        first = await journal.add(refund(), merchant=MERCHANT)
        added = [await inbox.add(received())]
        leave(pooled_dsn, *left)
        again = await journal.add(refund(), merchant=MERCHANT)
        leave(pooled_dsn, *left)
        (stored,) = await journal.list()
        added.append(await inbox.add(received()))
        (event,) = await inbox.events()

    assert (first, UTC) == (again, stored.created.tzinfo)
    assert abs((datetime.now(UTC) - stored.created).total_seconds()) < 60
    assert [Added.NEW, Added.AGAIN] == added
    assert received().raw == event.raw
    assert (["public"], ["public"]) == (homes(postgres_dsn), homes(postgres_dsn, "payasync_events"))


@pytest.mark.parametrize("options", [None, "-csearch_path=a", "-c search_path=a,public"])
async def test_new_process_finds_the_home(pooled_dsn: str, postgres_dsn: str, options: str | None) -> None:
    """A new process finds the tables on the configured path, or on that of its DSN, which the pooler drops."""
    leave(pooled_dsn, "CREATE SCHEMA other", "CREATE SCHEMA a")
    dsn = make_conninfo(pooled_dsn, options=options) if options else pooled_dsn
    ids = []
    for path in ("other", "public"):
        leave(pooled_dsn, f"SET search_path = {path}")
        async with PostgresJournal(dsn) as journal:
            ids.append(await journal.add(refund(), merchant=MERCHANT))

    assert ([1, 1], ["a" if options else "public"]) == (ids, homes(postgres_dsn))


async def test_callers_transaction_is_left_its_settings(postgres_dsn: str) -> None:
    """In the caller's transaction, `add` uses the journal's own tables and changes no setting of the caller.

    The name of a schema may have quotes.
    """
    elsewhere(postgres_dsn, """CREATE SCHEMA shop; CREATE SCHEMA "o'b ""%" """)
    async with PostgresJournal(postgres_dsn, schema="o'b \"%") as journal:
        options = "-c search_path=shop -c DateStyle=German -c TimeZone=Asia/Kathmandu"
        async with await psycopg.AsyncConnection.connect(postgres_dsn, options=options) as connection:
            await connection.execute("CREATE TEMP TABLE payasync_intents (id integer)")
            stored = await journal.add(refund(), merchant=MERCHANT, connection=connection)
            settings = [
                await (await connection.execute(sql.SQL("SHOW {}").format(sql.Identifier(name)))).fetchone()
                for name in ("search_path", "DateStyle", "TimeZone", "lock_timeout")
            ]
        (found,) = await journal.list()

    assert (stored, "new") == (found.id, found.state)
    assert [("shop",), ("German, DMY",), ("Asia/Kathmandu",), ("0",)] == settings


class Handled:
    """A handler that was called, in transactions of a database.

    Args:
        dsn: The database.
        settings: Of each connection.
        first: What each transaction executes first.
    """

    def __init__(self, dsn: str, first: str = "SELECT 1", **settings: Any) -> None:
        self.calls = 0
        self.transaction = HandlerTransaction(self._begin)
        self._dsn, self._settings, self._first = dsn, settings, first

    @asynccontextmanager
    async def _begin(self) -> AsyncGenerator[Any]:
        async with await psycopg.AsyncConnection.connect(self._dsn, **self._settings) as connection:
            await connection.execute(self._first.encode())
            yield connection

    async def _handle(self, connection: Any) -> None:
        await connection.execute("SELECT 1")
        self.calls += 1

    async def deliver(self) -> bool:
        """Deliver an event, and return whether it was handled now."""
        return await self.transaction.run_once("ab", datetime.now(UTC), self._handle)


@pytest.mark.parametrize(
    "left", ["SET search_path = other", "CREATE TEMP TABLE payasync_handled (event text, at text)"]
)
async def test_marks_of_handlers_stay_in_their_home(pooled_dsn: str, postgres_dsn: str, left: str) -> None:
    """Behind a pooler, a handler's mark is found again, whatever another program leaves, so it is handled once."""
    leave(pooled_dsn, "CREATE SCHEMA other")
    handled = Handled(pooled_dsn, prepare_threshold=None)
    for each in ("SET search_path = public", left):
        leave(pooled_dsn, each)
        await handled.deliver()

    assert (1, ["public"]) == (handled.calls, homes(postgres_dsn, "payasync_handled"))


@pytest.mark.parametrize("rows", [dict_row, tuple_row, scalar_row, namedtuple_row, kwargs_row(lambda **row: row)])
async def test_marks_are_found_by_rows_of_any_kind(postgres_dsn: str, rows: Any) -> None:
    """A handler's transaction works, whatever its connection makes of rows."""
    handled = Handled(postgres_dsn, row_factory=rows)

    assert [True, False] == [await handled.deliver() for _ in range(2)]


async def test_marks_are_where_the_caller_says(postgres_dsn: str) -> None:
    """If the caller's transaction sets a path of its own, its marks are there; marks elsewhere do not matter."""
    elsewhere(postgres_dsn, "CREATE SCHEMA shop; CREATE SCHEMA other; REVOKE CREATE ON SCHEMA public FROM public")
    elsewhere(postgres_dsn, "CREATE TABLE other.payasync_handled (event text PRIMARY KEY, at text)")
    role = f"shop_{conninfo_to_dict(postgres_dsn)['dbname']}"
    elsewhere(postgres_dsn, f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN; GRANT ALL ON SCHEMA shop TO {role}")
    handled = Handled(postgres_dsn, "SET LOCAL search_path = shop", user=role)
    try:
        done = [await handled.deliver() for _ in range(2)]
        made = homes(postgres_dsn, "payasync_handled")
    finally:
        elsewhere(postgres_dsn, f"DROP OWNED BY {role}; DROP ROLE {role}")

    assert ([True, False], ["other", "shop"]) == (done, made)


@pytest.fixture
def stranger(postgres_dsn: str) -> Generator[str]:
    """The role of another program, and a database whose configured path is reset afterwards."""
    name = conninfo_to_dict(postgres_dsn)["dbname"]
    role = f"report_{name}"
    elsewhere(postgres_dsn, f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role}")
    yield role
    elsewhere(postgres_dsn, f"ALTER DATABASE {name} RESET search_path")
    elsewhere(postgres_dsn, f"DROP OWNED BY {role}; DROP ROLE {role}")


def share_database(dsn: str, path: str, stranger: str) -> tuple[str, str]:
    """Configure a path. Return its schema that the other role may not use, and the one where it may do everything."""
    server = conninfo_to_dict(dsn)
    own, others = (str(server["user"]), stranger) if path == OF_THE_ROLE else ("pay", "old")
    elsewhere(dsn, f"CREATE SCHEMA {own}; CREATE SCHEMA {others}; GRANT ALL ON SCHEMA {others} TO {stranger}")
    elsewhere(dsn, f"ALTER DATABASE {server['dbname']} SET search_path = {path}")
    return own, others


@pytest.mark.parametrize("path", ["pay, old", OF_THE_ROLE])
async def test_role_that_another_program_left_moves_nothing(
    pooled_dsn: str, postgres_dsn: str, stranger: str, path: str
) -> None:
    """If a role that may not use the journal's schema is left, the journal and handlers fail, and use no other one."""
    own, others = share_database(postgres_dsn, path, stranger)
    for schema in (own, others):
        async with PostgresJournal(postgres_dsn, schema=schema) as journal:
            await journal.next_due()
    elsewhere(postgres_dsn, f"GRANT ALL ON ALL TABLES IN SCHEMA {others} TO {stranger}")
    leave(pooled_dsn, f"SET ROLE {stranger}")
    assert [(stranger,)] == elsewhere(pooled_dsn, "SELECT current_user")
    async with PostgresJournal(pooled_dsn) as journal:
        with pytest.raises((StorageError, ConfigurationError), match=f"permission denied for schema {own}"):
            await journal.add(refund(), merchant=MERCHANT)
    leave(pooled_dsn, f"SET ROLE {stranger}")
    with pytest.raises(ConfigurationError, match="it may not store its marks"):
        await Handled(pooled_dsn, prepare_threshold=None).transaction.check()
    async with PostgresJournal(postgres_dsn, schema=others) as journal:
        stored = await journal.list()

    assert ([], []) == (stored, homes(postgres_dsn, "payasync_handled"))


async def test_tables_that_vanish_are_not_made_again(postgres_dsn: str) -> None:
    """If the tables of an open journal vanish, it fails: an empty journal would send finished writes again."""
    async with PostgresJournal(postgres_dsn) as journal:
        await journal.add(refund(), merchant=MERCHANT)
        elsewhere(postgres_dsn, "ALTER SCHEMA public RENAME TO moved; CREATE SCHEMA public")
        # One uses the open connection, and the others open more.
        ends = await asyncio.gather(*(journal.list() for _ in range(3)), return_exceptions=True)

    assert [StorageError] * 3 == [type(each) for each in ends]
    assert any("its tables have vanished from the schema 'public'" in str(each) for each in ends)
    assert ["moved"] == homes(postgres_dsn)


@pytest.mark.parametrize("kind", [PostgresJournal, PostgresInbox])
async def test_schema_is_named(postgres_dsn: str, kind: type[Any]) -> None:
    """With `schema=`, the tables are made and found there, so that each inbox of one database has its own."""
    elsewhere(postgres_dsn, 'CREATE SCHEMA "Café 5%"')
    for schema in ("public", "Café 5%", "Café 5%"):
        async with aclosing(kind(postgres_dsn, schema=schema)) as store:
            await store.next_due()
    table = "payasync_intents" if kind is PostgresJournal else "payasync_events"

    assert ["Café 5%", "public"] == homes(postgres_dsn, table)


@pytest.mark.parametrize("options", [None, "-csearch_path=b"])
async def test_tables_elsewhere_are_not_made_again(postgres_dsn: str, options: str | None) -> None:
    """If the tables are in a schema that the path does not have, the error names `schema=`, and no table is made."""
    elsewhere(postgres_dsn, "CREATE SCHEMA a; CREATE SCHEMA b")
    async with PostgresJournal(postgres_dsn, schema="a") as journal:
        await journal.add(refund(), merchant=MERCHANT)
    dsn = make_conninfo(postgres_dsn, options=options) if options else postgres_dsn
    async with PostgresJournal(dsn) as journal:
        with pytest.raises(StorageError, match=r"its tables are in the schema a,.* Give schema='a'"):
            await journal.add(refund(), merchant=MERCHANT)

    assert ["a"] == homes(postgres_dsn)


async def test_role_has_a_path_of_its_own(postgres_dsn: str) -> None:
    """Tables are found on the path that is configured for the role or its database, as the role itself finds them."""
    name = conninfo_to_dict(postgres_dsn)["dbname"]
    elsewhere(postgres_dsn, "CREATE SCHEMA a")
    elsewhere(postgres_dsn, f"ALTER DATABASE {name} SET search_path = missing, a")
    try:
        async with PostgresJournal(postgres_dsn) as journal:
            await journal.next_due()
    finally:
        elsewhere(postgres_dsn, f"ALTER DATABASE {name} RESET search_path")

    assert ["a"] == homes(postgres_dsn)


async def test_schema_must_be_a_name(postgres_dsn: str) -> None:
    """A `schema` that is no name is refused, and a missing one is never made: a mistyped name would be empty."""
    wrong: list[Any] = ["", 5, "a\0b"]
    for schema in wrong:
        with pytest.raises(ConfigurationError, match="schema must be the name of a schema"):
            PostgresJournal(postgres_dsn, schema=schema)
    async with PostgresJournal(postgres_dsn, schema="misspelt") as journal:
        with pytest.raises(StorageError, match="the role has no schema 'misspelt': run CREATE SCHEMA"):
            await journal.next_due()


PATHS: Final[dict[str, list[str]]] = {
    "": ["me", "public"],
    "-c search_path=a": ["a"],
    "-csearch_path=a,b": ["a", "b"],
    "--search-path=a": ["a"],
    "-c work_mem=1MB -c SEARCH_PATH=a\\ ,\\ b -c geqo=off": ["a", "b"],
    "-c search_path=a -c search_path=b": ["b"],
    '-c search_path="A""b",C': ['A"b', "c"],
    "-c default_text_search_config=a": ["me", "public"],
}


def test_path_is_read_as_postgres_reads_it() -> None:
    """The options of a DSN replace the role's path; names are read as PostgreSQL reads them."""
    assert PATHS == {options: configured_path('"$user", public', options, "me") for options in PATHS}


CHOICES: Final[list[tuple[str | None, list[str], list[str], str]]] = [
    (None, ["a", "b"], [], "a"),
    (None, ["missing", "b"], [], "b"),
    (None, ["a", "b"], ["b"], "b"),
    (None, ["a", "b"], ["c", "b"], "b"),
    (None, ["a", "b"], ["b", "a"], "a"),
    ("b", ["a"], ["a"], "b"),
    ("b", ["a"], ["a", "b"], "b"),
    (None, ["a"], ["b"], "its tables are in the schema b, and the search_path is a. Give schema='b', or"),
    (None, ["a"], ["b", "c"], "its tables are in the schema b and c, and the search_path is a. Give schema='b' or"),
    (None, ["missing"], [], "no schema of the search_path missing exists"),
    (None, [], [], "no schema of the search_path"),
    ("missing", ["a"], [], "the role has no schema 'missing'"),
]


@pytest.mark.parametrize(("given", "path", "found", "expected"), CHOICES)
def test_home_is_chosen(given: str | None, path: list[str], found: list[str], expected: str) -> None:
    """The tables' home is `schema=`, else the first schema of the path that has them, else the path's first schema."""
    try:
        chosen = choose_home(given, path, found, ["a", "b", "c"])
    except LookupError as error:
        chosen = str(error)

    assert expected == chosen[: len(expected)]
