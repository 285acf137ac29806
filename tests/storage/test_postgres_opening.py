import asyncio
import traceback
from typing import Any, Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from payasync import ConfigurationError, Secret, StorageError
from payasync.credentials import Hidden
from payasync.journal import PostgresJournal
from payasync.notifications import PostgresInbox
from payasync.storage.postgres import Database
from payasync.storage.postgres_opening import Schema, address
from tests.postgres import database

PASSWORD: Final = "letmein"
NOTES: Final = "CREATE TABLE notes (text text NOT NULL);"
SCHEMA: Final = Schema(name="notebook", steps=(NOTES,))


async def used(dsn: str, schema: Schema = SCHEMA) -> list[dict[str, Any]]:
    """Use a database, and return which versions stand in it."""
    made = Database(Hidden(dsn), schema)
    try:
        return await made.run(lambda each: each.rows("SELECT name, version FROM payasync_migrations ORDER BY 1, 2"))
    finally:
        await made.aclose()


def execute(dsn: str, *statements: str) -> None:
    """Do something to a database, as somebody else would."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for each in statements:
            connection.execute(each.encode())


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://shop:{PASSWORD}@host:port/pay",
        f"postgresql://shop:{PASSWORD}/x@host/pay",
        f"postgresql://shop:/{PASSWORD}@host/pay",
        f"postgresql://shop:x@{PASSWORD}@host/pay",
        f"postgresql://shop:%zz{PASSWORD}@host/pay",
        f"postgres:shop:{PASSWORD}@host/pay",
        f"host=h password='{PASSWORD}",
        f"{PASSWORD}",
        "",
        "\ud800",
        None,
        3,
    ],
)
def test_no_connection_string_is_refused_unseen(dsn: Any) -> None:
    """What cannot be read may be a password in the wrong place: the error shows what is right, and nothing of it."""
    with pytest.raises(ConfigurationError, match="dsn must be a connection string") as caught:
        address(Hidden(dsn))

    assert PASSWORD not in f"{locals_of(caught.value)} {caught.value}"
    assert "dsn" == caught.value.field
    assert (None, None) == (caught.value.__cause__, caught.value.__context__)


@pytest.mark.parametrize("given", [str, Secret])
def test_password_is_never_shown(given: type[Any]) -> None:
    """What a log shows of a database says which one it is, and lets nobody in."""
    found = address(Hidden(given(f"postgresql://shop:{PASSWORD}@db.example:5433/pay?connect_timeout=3")))

    assert "host=db.example port=5433 dbname=pay user=shop" == found.shown
    assert PASSWORD not in f"{found} {found!r}"
    assert "***, said the server, twice" == found.hidden(f"{PASSWORD}, said\nthe server,  twice")


def test_waiting_for_a_connection_is_bounded_unless_it_is_said() -> None:
    """Libpq waits for minutes for a host that says nothing; who knows better says so in the connection string."""
    assert {"connect_timeout": 10} == address(Hidden("host=h")).options()
    assert {} == address(Hidden("host=h connect_timeout=60")).options()


@pytest.mark.parametrize("kind", [PostgresInbox, PostgresJournal])
def test_password_is_in_no_frame(kind: type[Any]) -> None:
    """Nor does a traceback with local variables show it, of whatever is made with a connection string."""
    with pytest.raises(ConfigurationError) as caught:
        kind(f"host=h password='{PASSWORD}")

    assert PASSWORD not in locals_of(caught.value)


def locals_of(error: Exception) -> str:
    """Return the local variables that a traceback may show of our own code."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    ours = [frame.f_locals for frame in frames if frame.f_globals["__name__"].startswith("payasync.")]

    assert ours
    return repr([{name: value for name, value in each.items() if name != "self"} for each in ours])


async def test_server_that_is_away_is_unavailable(caplog: pytest.LogCaptureFixture) -> None:
    """A server that cannot be reached may be there later: that is no matter of configuration."""
    caplog.set_level("DEBUG")
    with pytest.raises(
        StorageError, match=r"the notebook 'host=127.0.0.1 port=1 dbname=pay user=shop' is unavailable: .*refused"
    ) as caught:
        await used(f"postgresql://shop:{PASSWORD}@127.0.0.1:1/pay")
    shown = "".join(traceback.format_exception(caught.value))

    assert PASSWORD not in shown + caplog.text
    assert (None, None) == (caught.value.__cause__, caught.value.__context__)


async def test_tables_are_made_once(postgres_dsn: str) -> None:
    """Workers that all begin at once make the tables one by one: the first does, the others find them."""
    versions = await asyncio.gather(*(used(postgres_dsn) for _ in range(8)))

    assert [[{"name": "notebook", "version": 1}]] * 8 == versions


async def test_several_schemas_share_a_database(postgres_dsn: str) -> None:
    """A journal and an inbox may stand in one database; each counts its own versions."""
    await used(postgres_dsn)
    versions = await used(
        postgres_dsn, Schema(name="diary", steps=("CREATE TABLE days ();", "CREATE TABLE nights ();"))
    )

    assert [("diary", 1), ("diary", 2), ("notebook", 1)] == [(each["name"], each["version"]) for each in versions]


async def test_older_tables_are_brought_up_to_date(postgres_dsn: str) -> None:
    """A later payasync goes on with what is there; this one refuses what the later one has made."""
    await used(postgres_dsn)
    execute(postgres_dsn, "INSERT INTO notes VALUES ('kept')")
    later = Schema(name="notebook", steps=(NOTES, "ALTER TABLE notes ADD COLUMN more text DEFAULT 'x';"))
    await used(postgres_dsn, later)
    with psycopg.connect(postgres_dsn) as connection:
        found = connection.execute("SELECT text, more FROM notes").fetchall()
    with pytest.raises(ConfigurationError, match=r"for the notebook: a newer payasync made it \(schema 2, here 1\)"):
        await used(postgres_dsn)

    assert [("kept", "x")] == found


async def test_step_that_fails_leaves_nothing(postgres_dsn: str) -> None:
    """Tables are brought to a version wholly, or not at all."""
    half = Schema(name="notebook", steps=(NOTES, "CREATE TABLE more (); CREATE TABLE notes ();"))
    with pytest.raises(ConfigurationError, match='relation "notes" already exists'):
        await used(postgres_dsn, half)

    assert [{"name": "notebook", "version": 1}] == await used(postgres_dsn)


async def test_another_programs_tables_are_refused(postgres_dsn: str) -> None:
    """A table of the same name is not ours to write into."""
    execute(postgres_dsn, "CREATE TABLE notes (amount integer)")
    with pytest.raises(ConfigurationError, match=r"cannot use '.*' for the notebook: .*already exists") as caught:
        await used(postgres_dsn)

    assert "dsn" == caught.value.field


async def test_role_that_may_not_make_tables_is_told(postgres_dsn: str) -> None:
    """Who may not make them is told so, and not that the database is away."""
    execute(postgres_dsn, "CREATE ROLE guest LOGIN", "GRANT USAGE ON SCHEMA public TO guest")
    try:
        with pytest.raises(ConfigurationError, match="permission denied for schema public"):
            await used(make_conninfo(postgres_dsn, user="guest"))
    finally:
        execute(postgres_dsn, "DROP OWNED BY guest", "DROP ROLE guest")


async def test_database_of_another_encoding_is_refused(postgres_database: str) -> None:
    """What it could not hold would be found out by the first notification that has it."""
    with database(postgres_database, "latin") as dsn:
        execute(postgres_database, "DROP DATABASE latin", "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1'")
        with pytest.raises(ConfigurationError, match="its encoding is LATIN1: make a database with ENCODING 'UTF8'"):
            await used(dsn)
