"""Which PostgreSQL database is meant, how it is connected to, and how its tables are brought up to date."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import psycopg
from attrs import frozen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row

from payasync.credentials import Hidden, Secret
from payasync.errors import ConfigurationError, StorageError

Connection: TypeAlias = psycopg.AsyncConnection[DictRow]

CONNECT_SECONDS: Final = 10
"""How long a server may take to answer, unless the DSN says it (`connect_timeout`)."""
ENCODINGS: Final = frozenset({"UTF8", "SQL_ASCII"})
"""What a notification may hold fits into these alone."""
_SHOWN: Final = ("host", "hostaddr", "port", "dbname", "user", "service")
_LOCK: Final = 0x70617961
"""Of the advisory lock that one migration holds; it ends with its transaction."""

_MIGRATIONS: Final = """
CREATE TABLE IF NOT EXISTS payasync_migrations (
    name text NOT NULL,
    version integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (name, version)
)"""
_IS_THERE: Final = "SELECT to_regclass('payasync_migrations') IS NOT NULL AS there"
_VERSION: Final = "SELECT coalesce(max(version), 0) AS version FROM payasync_migrations WHERE name = %s"
_ENCODING: Final = "SELECT current_setting('server_encoding') AS encoding"


@frozen(kw_only=True)
class Schema:
    """Which tables stand in a database.

    Attributes:
        name: What errors call them, such as `inbox`.
        steps: SQL, each leading from one version to the next; a new database takes them all.
    """

    name: str
    steps: Sequence[str]


@frozen(kw_only=True)
class Address:
    """Where a database is.

    Attributes:
        dsn: As it was given.
        shown: The same without what lets somebody in.
        password: It, where it stands in the DSN.
        said: What the DSN says, by name.
    """

    dsn: Secret
    shown: str
    password: Secret | None
    said: frozenset[str]

    def hidden(self, text: str) -> str:
        """Return a text in one line, without the password."""
        line = " ".join(text.split())
        return line.replace(self.password.reveal(), "***") if self.password else line

    def options(self) -> dict[str, Any]:
        """Return what is said about a connection, where the DSN does not say it."""
        return {} if "connect_timeout" in self.said else {"connect_timeout": CONNECT_SECONDS}


def address(dsn: Hidden) -> Address:
    """Return where a database is.

    Args:
        dsn: Holds a text or a `Secret`.

    Raises:
        ConfigurationError: That is no connection string; nothing of it is shown, since what looks like a host may be
            part of a password.
    """
    secret = _secret(dsn)
    parts = None if secret is None else _parts(secret.reveal())
    if secret is None or parts is None:
        raise ConfigurationError(
            "dsn must be a connection string such as 'postgresql://user@host/database'; in a password, write "
            "`@ : / ? # %` as %40 %3A %2F %3F %23 %25",
            field="dsn",
        )
    shown = {name: parts[name] for name in _SHOWN if name in parts}
    password = Secret(parts["password"]) if parts.get("password") else None
    return Address(dsn=secret, shown=make_conninfo("", **shown), password=password, said=frozenset(parts))


def _secret(dsn: Hidden) -> Secret | None:
    if isinstance(dsn.value, Secret):
        return dsn.value
    try:
        return Secret(dsn.value)
    except ConfigurationError:
        return None


def _parts(dsn: str) -> dict[str, str] | None:
    try:
        parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    except psycopg.Error:
        return None
    # Of a password whose `@` or `/` stands there as it is, the rest would be taken for these.
    split = any("@" in parts.get(name, "") for name in ("host", "dbname"))
    ports = parts.get("port", "").replace(",", "")
    return None if split or (ports and not ports.isdecimal()) else parts


async def connected(where: Address) -> Connection:
    """Return a connection, each of whose statements is its own transaction unless one is begun.

    Raises:
        psycopg.Error: The server is not to be reached, or lets nobody in.
    """
    connection = await Connection.connect(
        where.dsn.reveal(),
        autocommit=True,
        # A statement that the server has prepared fails once a newer payasync has changed its table.
        prepare_threshold=None,
        row_factory=dict_row,
        client_encoding="UTF8",
        fallback_application_name="payasync",
        **where.options(),
    )
    try:
        await connection.execute("SET TIME ZONE 'UTC'")
    except BaseException:
        await connection.close()
        raise
    return connection


async def bring_up_to_date(connection: Connection, schema: Schema, where: Address) -> None:
    """Make the tables, or lead them to this version; several processes that begin at once do it one by one.

    Where it raises, the connection is still in the middle of it: close it.

    Raises:
        ConfigurationError: A newer payasync made them, they are another program's, or they may not be made.
        psycopg.Error: It cannot be done now.
    """
    version = await _version(connection, schema, where)
    if version == len(schema.steps):
        return
    try:
        await _migrate(connection, schema, where)
    except psycopg.ProgrammingError as error:
        why = where.hidden(str(error))
    else:
        return
    raise _refused(schema, where, why)


async def _migrate(connection: Connection, schema: Schema, where: Address) -> None:
    await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    await connection.execute(_MIGRATIONS)
    version = await _version(connection, schema, where)
    for number, step in enumerate(schema.steps[version:], version + 1):
        await connection.execute(step.encode())
        await connection.execute(
            "INSERT INTO payasync_migrations (name, version) VALUES (%s, %s)", (schema.name, number)
        )
    await connection.execute("COMMIT")


async def _version(connection: Connection, schema: Schema, where: Address) -> int:
    encoding = (await _row(connection, _ENCODING))["encoding"]
    if encoding not in ENCODINGS:
        raise _refused(schema, where, f"its encoding is {encoding}: make a database with ENCODING 'UTF8'")
    if not (await _row(connection, _IS_THERE))["there"]:
        return 0
    version = int((await _row(connection, _VERSION, schema.name))["version"])
    if version > len(schema.steps):
        why = f"a newer payasync made it (schema {version}, here {len(schema.steps)}): upgrade, or name another one"
        raise _refused(schema, where, why)
    return version


async def _row(connection: Connection, statement: str, *values: object) -> DictRow:
    row = await (await connection.execute(statement.encode(), values or None)).fetchone()
    if row is None:
        raise StorageError("the database gave no row")
    return row


def _refused(schema: Schema, where: Address, why: str) -> ConfigurationError:
    return ConfigurationError(f"dsn: cannot use {where.shown!r} for the {schema.name}: {why}", field="dsn", reason=why)
