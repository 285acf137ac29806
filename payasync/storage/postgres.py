"""A PostgreSQL database that is written from asyncio, in durable transactions: extra `[postgres]`.

Connections belong to one process and one event loop. When `asyncio.run` ends a loop, its connections are closed. A
forked child leaves its parent's connections alone, and makes its own.
"""

import asyncio
import json
import os
import re
import socket
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from attrs import frozen
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row

from payasync.clocks import utc_moment, utc_now
from payasync.credentials import Hidden, Secret
from payasync.errors import ConfigurationError, StorageError
from payasync.settings import invalid_setting
from payasync.storage import Schema, Upgrade, read_sql, upgrade_needed
from payasync.storage.home import choose_home, configured_path, find_home, quote_name
from payasync.storage.transactions import Query, Transaction, Work, run_transaction

Connection: TypeAlias = psycopg.AsyncConnection[DictRow]
Result: TypeAlias = list[DictRow] | Exception
Job: TypeAlias = "tuple[bytes, Mapping[str, Any], asyncio.Future[Result]]"
T = TypeVar("T")

ANSWER_SECONDS: Final = 30.0
"""How long a transaction may take, because a server that is cut off never responds."""
CONNECT_SECONDS: Final = 10
"""How long a server may take to respond, unless the DSN has `connect_timeout`."""
IDLE_SECONDS: Final = 30.0
"""After so long without use, a connection is probed, because a firewall or a failover may have cut it silently."""
PROBE_SECONDS: Final = 2.0
"""How long a server may take to respond to a probe."""
TRIES: Final = 3
SENDERS: Final = 2
"""How many groups are under way at most: one is sent while the other waits for the disk."""
GROUP: Final = 100
"""How many statements share a transaction at most."""
CONNECTIONS: Final = 8
ENCODINGS: Final = frozenset({"UTF8", "SQL_ASCII"})
"""The encodings that hold whatever a notification may contain."""
SHOWN_PARTS: Final = ("host", "hostaddr", "port", "dbname", "user", "service")
MIGRATION_LOCK: Final = 0x70617961
"""The advisory lock that one migration holds until its transaction ends."""

START: Final = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_CLOCK: Final = """to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US+00:00') AS now"""
"""The server's time as a text that does not depend on `DateStyle`: ISO 8601."""
_GUARDS: Final = """
    set_config('idle_in_transaction_session_timeout', '30s', true), set_config('statement_timeout', '30s', true),
    set_config('search_path', {path}, true),
    set_config('DateStyle', 'ISO', true), set_config('TimeZone', 'UTC', true),
    CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END"""
BEGIN: Final = f"{START}; SELECT {_CLOCK}, set_config('lock_timeout', '5s', true), {_GUARDS}"
"""A commit is on the disk, and a client that stops half-way blocks nobody, whatever the server's defaults are.

Each transaction has its settings for itself. Behind a pooler, another program may have left its own on the connection.
"""
GROUP_GUARDS: Final = f"SELECT set_config('lock_timeout', '100ms', true), {_GUARDS}"
"""A group waits for a locked row only briefly, because that row is one caller's."""
PATIENT: Final = "SELECT set_config('lock_timeout', '0', true), set_config('statement_timeout', '0', true)"
"""Another process may need minutes to migrate many rows."""
MIGRATING: Final = (
    f"SELECT {_GUARDS}, set_config('lock_timeout', '30s', true), set_config('statement_timeout', '0', true)"
)
"""Who waits for a table makes all others wait, too, so this wait is bounded."""
ALONE: Final = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0)) AS alone"
NOW: Final = "coalesce(CAST(%(now)s AS timestamptz), now())"
"""The present in a statement that shares a transaction: the store's clock, else the server's."""
TIME: Final = "SELECT clock_timestamp() AS now"
MIGRATIONS: Final = read_sql("payasync.storage", "migrations")
MIGRATED: Final = "INSERT INTO payasync_migrations (name, version) VALUES ('{}', {});\n"
VERSION: Final = "SELECT coalesce(max(version), 0) AS version FROM payasync_migrations WHERE name = %s"
_TABLES: Final = re.compile(r"\bpayasync_(?:intents|services|events|facts|migrations)\b")

_UNDONE: Final = (errors.UniqueViolation, errors.DeadlockDetected, errors.SerializationFailure)
"""Another transaction was in the way, and this one was undone as a whole: it is done again."""


@frozen(kw_only=True)
class Address:
    """Where a database is.

    Attributes:
        dsn: As it was given.
        shown: The DSN without its secrets.
        password: The password in the DSN, if there is one.
        options: Options of a connection that the DSN leaves open.
    """

    dsn: Secret
    shown: str
    password: Secret | None
    options: Mapping[str, Any]

    def redact(self, text: str) -> str:
        """Return a text in one line, without the password."""
        line = " ".join(text.split())
        return line.replace(self.password.reveal(), "***") if self.password else line


def parse_dsn(dsn: Hidden) -> Address:
    """Return where a database is.

    Args:
        dsn: Holds a text or a `Secret`.

    Raises:
        ConfigurationError: That is no connection string. The error shows nothing of it, because what looks like a host
            may be part of a password.
    """
    with suppress(psycopg.Error, ConfigurationError):
        secret = dsn.value if isinstance(dsn.value, Secret) else Secret(dsn.value)
        if (parts := _parse_parts(secret)) is not None:
            return Address(
                dsn=secret,
                shown=make_conninfo("", **{name: parts[name] for name in SHOWN_PARTS if name in parts}),
                password=Secret(parts["password"]) if parts.get("password") else None,
                options={} if "connect_timeout" in parts else {"connect_timeout": CONNECT_SECONDS},
            )
    rule = "must be a connection string such as 'postgresql://user@host/database'"
    raise invalid_setting("dsn", f"{rule}; in a password, write `@ : / ? # %` as %40 %3A %2F %3F %23 %25")


def _parse_parts(dsn: Secret) -> dict[str, str] | None:
    """Return the parts of a connection string; its own function, because a traceback may show what is local."""
    parts = {name: str(value) for name, value in conninfo_to_dict(dsn.reveal()).items()}
    # If `@` or `/` stands unescaped in a password, libpq takes the rest for one of these.
    split = any("@" in parts.get(name, "") for name in ("host", "dbname"))
    ports = parts.get("port", "").replace(",", "")
    return None if split or (ports and not ports.isdecimal()) else parts


@cache
def _qualify(statement: str, home: str) -> str:
    """Return a statement with the schema of our tables before their names."""
    # psycopg reads a percent sign as a placeholder.
    return _TABLES.sub(lambda found: f"{quote_name(home)}.{found[0]}".replace("%", "%%"), statement)


@cache
def _guard(statement: str, home: str) -> bytes:
    """Return a statement with the `search_path` of its transaction.

    A temporary table that another program left has no priority: `pg_temp` comes last.
    """
    return statement.format(path=sql.Literal(f"{quote_name(home)}, pg_temp").as_string(None)).encode()


@cache
def to_psycopg(statement: str, adapt: Callable[[str], str]) -> str:
    """Return a statement as psycopg reads it, with the row locks that SQLite takes for comments."""
    text = re.sub(r"/\* (FOR [^*]+) \*/", r"\1", re.sub(r":(\w+)", r"%(\1)s", adapt(statement)))
    return text.replace("json_each(", "json_array_elements_text(")


@cache
def _grouped(statement: str, adapt: Callable[[str], str]) -> bytes:
    """Return a statement that takes the time itself, and returns it."""
    return to_psycopg(f"{statement}, :now AS now", adapt).replace("%(now)s", NOW).encode()


@frozen
class Executor:
    """Executes the queries of one transaction.

    Attributes:
        connection: Runs the statements.
        now: The aware moment at which the transaction began.
        home: The schema of the tables.
        adapt: As of the store's `Schema`.
    """

    connection: psycopg.AsyncConnection[Any]
    now: datetime
    home: str
    adapt: Callable[[str], str]

    async def execute(self, query: Query) -> list[dict[str, Any]]:
        """Return the rows of a query, by the names of their columns."""
        given = _escape({"now": self.now, **query.values})
        statement = _qualify(to_psycopg(query.statement, self.adapt), self.home)
        # Binary, because a moment as a text has the form of the connection's `DateStyle`, which may be the caller's.
        async with self.connection.cursor(binary=True, row_factory=dict_row) as cursor:
            await cursor.execute(statement.encode(), given, prepare=False)
            return await cursor.fetchall() if cursor.description else []


def _escape(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values that PostgreSQL takes: a mapping as JSON; half a surrogate pair, or a zero, as its escape."""
    given = {name: json.dumps(dict(each)) if isinstance(each, Mapping) else each for name, each in values.items()}
    # One look at all texts together: a look at each would take more than twice as many instructions.
    texts = "".join([value for value in given.values() if isinstance(value, str)])
    if texts.isascii() and texts.isprintable():
        return given
    return {name: escape_text(value) if isinstance(value, str) else value for name, value in given.items()}


def _do_nothing(_: datetime) -> Transaction[None]:
    """Be a transaction that only connects."""
    yield from ()


def escape_text(text: str) -> str:
    """Return a text that PostgreSQL takes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


async def _probe(connection: Connection) -> None:
    """Raise `psycopg.OperationalError` if the server does not respond soon."""
    # Not by a cancellation: then psycopg itself asks the server, and waits for it.
    timer = asyncio.get_running_loop().call_later(PROBE_SECONDS, _shut_down, connection)
    try:
        await connection.execute("SELECT 1", prepare=False)
    finally:
        timer.cancel()


def _shut_down(connection: Connection) -> None:
    """Let whoever waits for a connection find it closed."""
    end = socket.socket(fileno=connection.fileno())
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.detach()


class _Pool:
    """The connections of one event loop."""

    def __init__(self, database: "Database", most: int) -> None:
        self._database = database
        self._most = most
        self._room = asyncio.Semaphore(most)
        self._open: set[Connection] = set()
        self._idle: list[tuple[Connection, float]] = []
        self._jobs: list[Job] = []
        self._senders: set[asyncio.Task[None]] = set()
        self.closed = False
        self._guard = self._close_with_loop()
        with suppress(StopIteration):  # begun here, without a wait
            anext(self._guard).__await__().send(None)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Executor]:
        """Commit all changes made inside, or none of them after an exception."""
        async with self._room:
            connection, now = await self._begin()
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    yield self._database.executor(connection, now)
                    await connection.execute("COMMIT", prepare=False)
            except BaseException:
                self._drop(connection)
                raise
            self._put_idle(connection)

    async def execute(self, statement: bytes, values: Mapping[str, Any]) -> Result:
        """Return the rows of a statement that shares a transaction with others, or what prevented them all.

        Statements that come while groups are under way are the next group: one round trip, and one commit.
        """
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._jobs.append((statement, values, done))
        self._begin_sender()
        return await done

    def _begin_sender(self, _ended: asyncio.Task[None] | None = None) -> None:
        # Also called after a sender has ended, because a job that came just before began none. A signal's exception may
        # have left one that has ended.
        self._senders = {each for each in self._senders if not each.done()}
        if len(self._senders) < SENDERS and any(not done.cancelled() for *_, done in self._jobs):
            sender = asyncio.ensure_future(self._send())
            self._senders.add(sender)
            sender.add_done_callback(self._begin_sender)

    async def _send(self) -> None:
        while self._jobs:
            async with self._room:  # for one group only, because transactions wait for it too
                group = [job for job in self._jobs[:GROUP] if not job[-1].cancelled()]
                del self._jobs[:GROUP]
                results = await self._execute(group) if group else ()
            for (*_, done), result in zip(group, results, strict=True):
                if not done.done():
                    done.set_result(result)

    async def _execute(self, group: Sequence[Job]) -> Sequence[Result]:
        try:
            connection = await self._take_idle() or await self._open_another()
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    # A pipeline sends a Flush after its Sync. If it reaches PgBouncer after the end of the transaction,
                    # it holds a server connection, for which others then wait.
                    async with nullcontext() if connection.prepare_threshold is None else connection.pipeline():
                        await connection.execute(START)
                        await connection.execute(_guard(GROUP_GUARDS, self._database.home))
                        cursors = [
                            None if done.cancelled() else await connection.execute(statement, values, binary=True)
                            for statement, values, done in group
                        ]
                        await connection.execute("COMMIT")
                    results = [await each.fetchall() if each else [] for each in cursors]
            except BaseException:
                self._drop(connection)
                raise
        except asyncio.CancelledError:  # of this task: the group may be committed
            return [psycopg.OperationalError("its background task was cancelled")] * len(group)
        except Exception as error:  # noqa: BLE001 - it is each caller's
            return [error] * len(group)
        self._put_idle(connection)
        return results

    def _put_idle(self, connection: Connection) -> None:
        self._idle.append((connection, asyncio.get_running_loop().time()))

    async def _take_idle(self) -> Connection | None:
        """Return an idle connection that seems alive, because the statements of a group may be sent only once."""
        while self._idle:
            connection, used = self._idle.pop()
            with suppress(psycopg.Error):
                try:
                    connection.pgconn.consume_input()  # why the server closes
                    connection.pgconn.consume_input()  # that it has closed
                    if asyncio.get_running_loop().time() - used >= IDLE_SECONDS:
                        await _probe(connection)
                except BaseException:
                    self._drop(connection)
                    raise
                return connection
        return None

    async def _open_another(self) -> Connection:
        connection = await self._database.connect()
        self._open.add(connection)
        return connection

    async def _begin(self) -> tuple[Connection, datetime]:
        while connection := await self._take_idle():
            # An idle connection may be dead; that shows before anything is done.
            with suppress(psycopg.Error, TimeoutError):
                return await self._begin_on(connection)
        return await self._begin_on(await self._open_another())

    async def _begin_on(self, connection: Connection) -> tuple[Connection, datetime]:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                cursor = await connection.execute(_guard(BEGIN, self._database.home), prepare=False)
                cursor.nextset()
                row = await cursor.fetchone()
        except BaseException:
            self._drop(connection)
            raise
        return connection, datetime.fromisoformat(row["now"]) if row else utc_now()

    def _drop(self, connection: Connection) -> None:
        self._open.discard(connection)
        connection.pgconn.finish()

    async def _close_with_loop(self) -> AsyncGenerator[None]:
        """Close with the loop: `asyncio.run` ends the async generators that were begun in its loop."""
        try:
            yield
        finally:
            self.dispose()

    async def aclose(self) -> None:
        """Finish what was begun, and close all connections, from within their own loop."""
        while self._senders:
            await asyncio.wait(self._senders)
        for _ in range(self._most):
            await self._room.acquire()
        await self._guard.aclose()

    def close_soon(self) -> None:
        """Close all connections, in a task of their own loop."""
        self._closing = asyncio.ensure_future(self.aclose())

    def dispose(self) -> None:
        """Close all connections immediately."""
        self.closed = True
        for connection in tuple(self._open):
            self._drop(connection)
        self._idle.clear()


class Database:
    """Runs functions in transactions of a PostgreSQL database. Nothing is opened before the first use.

    Args:
        dsn: Holds a connection string of libpq, or a `Secret` with one.
        schema: The tables.
        connections: The most connections, for each process and event loop.
        clock: Returns seconds since 1970. Without it, time is the server's, and so the same for all its clients.
        home: The schema of the tables. Default: the one on the role's configured path, or on that of the DSN's options.
        migrate: Make missing tables, and migrate older ones. Otherwise they are refused.

    Attributes:
        address: Where it is.
        home: The schema of the tables, for the life of this object; empty until the first use.

    Raises:
        ConfigurationError: `dsn` is no connection string, or `home` is no name.
    """

    def __init__(
        self,
        dsn: Hidden,
        schema: Schema,
        *,
        connections: int = CONNECTIONS,
        clock: Callable[[], float] | None = None,
        home: str | None = None,
        migrate: bool = True,
    ) -> None:
        if type(connections) is not int or connections < 1:
            raise invalid_setting("connections", f"must be an integer of 1 or more, not {connections!r}")
        if home is not None and (not isinstance(home, str) or not home or "\0" in home):
            raise invalid_setting("schema", f"must be the name of a schema, or None, not {home!r}")
        self.address: Final = parse_dsn(dsn)
        self._schema = schema
        self.home: str = ""
        self._given = home
        self._migrates = migrate
        self._most = connections
        self._clock = clock
        self._closed = False
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}
        _DATABASES.add(self)

    async def run(self, work: Work[T], *, is_short: bool = False) -> T:
        """Return the result of a transaction that begins now, after it was committed.

        Args:
            work: Begins the transaction. It is called again if another transaction was in the way. If it raises,
                nothing that it wrote is kept.
            is_short: Its first query has `is_first`, and is usually all. Share a commit with those of other callers.

        Raises:
            ConfigurationError: The tables belong to another program or to a newer payasync, or may not be made.
            StorageError: The database cannot be used now. If the connection breaks at the commit, the work may have
                been done.
        """
        if is_short and (done := await self._run_short(work)):
            return done[0]
        failure: Exception | None = None
        for _ in range(TRIES):
            try:
                async with self._pool().transaction() as executor:
                    return await run_transaction(work(executor.now), executor.execute)
            except _UNDONE as error:
                failure = error
            except (psycopg.Error, OSError) as error:
                failure = error
                break
        raise self._convert(failure)

    async def _run_short(self, work: Work[T]) -> tuple[T] | None:
        """Return the result of a transaction of one query; `None` if the query did nothing: it has to run alone."""
        transaction = work(utc_now())  # the row has the moment
        query = next(transaction)
        given = _escape(query.values)
        given["now"] = None if self._clock is None else utc_moment(self._clock())
        result = await self._pool().execute(_grouped(query.statement, self._schema.adapt), given)
        if not isinstance(result, Exception):
            # Without a row, a number is repeated, or a lease is lost.
            if not result:
                return None
            try:
                transaction.send(result)
            except StopIteration as end:
                return (end.value,)
            raise RuntimeError("a transaction goes on after its only query: it is committed, and must not run again")
        # If the connection has ended, something may be committed. Any other error proves that nothing was.
        refused = isinstance(result, (*_UNDONE, errors.LockNotAvailable))
        if refused or not isinstance(result, psycopg.OperationalError | OSError):
            return None
        raise self._convert(result) from None

    async def within(self, connection: psycopg.AsyncConnection[Any], work: Work[T]) -> T:
        """Return the result of work in the transaction of a caller, who commits it.

        Raises:
            StorageError: The work cannot be done now; the transaction has failed then.
        """
        if not self.home:
            await self.run(_do_nothing)
        try:
            (row,) = await self.executor(connection, utc_now()).execute(Query(TIME, {}))
            executor = self.executor(connection, row["now"].astimezone(UTC))
            return await run_transaction(work(executor.now), executor.execute)
        except (psycopg.Error, OSError) as error:
            failure = error
        raise self._convert(failure)

    def executor(self, connection: psycopg.AsyncConnection[Any], now: datetime) -> Executor:
        """Return what executes the queries of a transaction, which began at a moment of the server's clock."""
        moment = now if self._clock is None else utc_moment(self._clock())
        return Executor(connection, moment, self.home, self._schema.adapt)

    def _convert(self, error: Exception | None) -> StorageError:
        why = "the server does not respond" if isinstance(error, TimeoutError) else self.address.redact(str(error))
        return StorageError(f"the {self._schema.name} {self.address.shown!r} is unavailable: {why}", reason=why)

    def _pool(self) -> _Pool:
        if self._closed:
            raise StorageError(f"the {self._schema.name} is closed", reason="closed")
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None or pool.closed:
            self._drop_closed_loops()
            pool = self._pools[loop] = _Pool(self, self._most)
        return pool

    async def connect(self) -> Connection:
        """Return a connection to a database whose tables are up to date.

        Outside of a transaction, each statement of the connection is committed by itself.
        """
        connection = await self._open()
        try:
            used = self.home  # by a connection that is open already, while this one finds out
            home, version = await self._find(connection)
            if version < len(self._schema.migrations):
                self._check_may_make(home, version, used=bool(used))
                home = (await self._migrate(connection))[0]
            self.home = self.home or home
            (row,) = await (await connection.execute("SELECT pg_backend_pid() AS id")).fetchall()
            if row["id"] == connection.info.backend_pid:
                # Behind a pooler, which has ids of its own, the next statement may reach another server process.
                connection.prepare_threshold = 0
        except BaseException:
            connection.pgconn.finish()
            raise
        return connection

    def _check_may_make(self, home: str, version: int, *, used: bool) -> None:
        if used and not version:
            raise self._convert(LookupError(f"its tables have vanished from the schema {home!r}: restore them"))
        if not self._migrates:
            raise self._refuse(f"in the schema {home!r}, {upgrade_needed(self._schema, version)}")

    async def _open(self) -> Connection:
        return await Connection.connect(
            self.address.dsn.reveal(),
            autocommit=True,
            prepare_threshold=None,
            row_factory=dict_row,
            client_encoding="UTF8",
            fallback_application_name="payasync",
            **self.address.options,
        )

    @asynccontextmanager
    async def present(self) -> AsyncGenerator[Callable[[], Awaitable[bool]]]:
        """Hold a lock together with others that do so, and yield a function that returns whether there are none.

        Behind a pooler no lock is held, because it would stay on a connection of the server.
        """

        async def is_alone() -> bool:
            with suppress(psycopg.Error, TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    return bool((await (await connection.execute(ALONE, name)).fetchall())[0]["alone"])
            return False

        try:
            connection = await self.connect()
            name = (f"{self._schema.table} {self.home}",)
            if connection.prepare_threshold is not None:
                await connection.execute("SELECT pg_advisory_lock_shared(hashtextextended(%s, 0))", name)
        except (psycopg.Error, OSError) as error:
            failure = error
        else:
            try:
                yield is_alone
            finally:
                connection.pgconn.finish()
            return
        raise self._convert(failure)

    async def upgrade(self, *, dry_run: bool) -> Upgrade:
        """Make or migrate the tables, and return what was executed.

        Args:
            dry_run: Execute nothing.

        Raises:
            ConfigurationError: The tables belong to another program or to a newer payasync, or may not be made.
            StorageError: The database cannot be used now, or the tables are in another schema.
        """
        try:
            connection = await self._open()
            try:
                home, before = await (self._find if dry_run else self._migrate)(connection)
            finally:
                connection.pgconn.finish()
        except (psycopg.Error, OSError) as error:
            failure = error
        else:
            place, after = f"{self.address.shown}, schema {home}", len(self._schema.migrations)
            return Upgrade(place=place, before=before, after=after, sql=self._script(before))
        raise self._convert(failure)

    def _script(self, version: int) -> str:
        """Return what makes or migrates tables of a version; an empty text if they are up to date."""
        scripts = enumerate(self._schema.migrations[version:], version + 1)
        steps = [script + MIGRATED.format(self._schema.name, number) for number, script in scripts]
        return "\n".join([MIGRATIONS, *steps]) if steps else ""

    async def _migrate(self, connection: Connection) -> tuple[str, int]:
        """Make or migrate the tables. Return their schema, and the version that they had.

        Processes that begin together do it one by one.
        """
        try:
            await connection.execute(START)
            await connection.execute(PATIENT)
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
            home, version = await self._find(connection)
            await connection.execute(_guard(MIGRATING, home))
            await connection.execute(self._script(version).encode())
            await connection.execute("COMMIT")
        except psycopg.ProgrammingError as error:
            why = self.address.redact(str(error))
        else:
            return home, version
        raise self._refuse(why)

    async def _find(self, connection: Connection) -> tuple[str, int]:
        """Return the schema of the tables, and their version; 0 if they are missing."""
        (row,) = await (await connection.execute(find_home(self._schema.table).encode())).fetchall()
        found = json.loads(row["found"])
        if found["encoding"] not in ENCODINGS:
            raise self._refuse(f"its encoding is {found['encoding']}: make a database with ENCODING 'UTF8'")
        options = next((each.val for each in connection.pgconn.info if each.keyword == b"options"), None) or b""
        path = configured_path(found["path"], options.decode(), found["role"])
        try:
            home = self.home or choose_home(self._given, path, found["homes"], found["schemas"])
        except LookupError as error:
            failure = error
        else:
            return home, await self._version(connection, home) if home in found["migrated"] else 0
        raise self._convert(failure)

    async def _version(self, connection: Connection, home: str) -> int:
        (row,) = await (await connection.execute(_qualify(VERSION, home).encode(), (self._schema.name,))).fetchall()
        version, known = int(row["version"]), len(self._schema.migrations)
        if version > known:
            why = f"a newer payasync made it (schema {version}, here {known}): upgrade, or name another one"
            raise self._refuse(why)
        return version

    def _refuse(self, why: str) -> ConfigurationError:
        words = f"dsn: cannot use {self.address.shown!r} for the {self._schema.name}: {why}"
        return ConfigurationError(words, field="dsn", reason=why)

    def _drop_closed_loops(self) -> None:
        for loop in tuple(self._pools):
            if loop.is_closed() and (pool := self._pools.pop(loop, None)):  # unless another thread is faster
                pool.dispose()

    async def aclose(self) -> None:
        """Finish what was begun in this loop, and close all connections; a second call does nothing."""
        self._closed = True
        self._drop_closed_loops()
        here = asyncio.get_running_loop()
        pools, self._pools = self._pools, {}
        for loop, pool in pools.items():
            if loop is here:
                await pool.aclose()
            elif loop.is_running():
                with suppress(RuntimeError):  # the loop was closed since, and its connections with it
                    loop.call_soon_threadsafe(pool.close_soon)
            else:
                pool.dispose()

    def abandon_after_fork(self) -> None:
        """In a forked child: forget the parent's connections, and send nothing to the server."""
        _INHERITED.append(self._pools)
        self._pools = {}


_DATABASES: Final[weakref.WeakSet[Database]] = weakref.WeakSet()
_INHERITED: Final[list[object]] = []
"""Kept until the child ends, because a connection is closed when it is collected."""


def _disown_all() -> None:
    for each in tuple(_DATABASES):
        each.abandon_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
