import asyncio
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from payasync import ConfigurationError, InvalidArgumentError, Secret, StorageError
from payasync.credentials import Hidden
from payasync.journal import PostgresJournal
from payasync.notifications import PostgresInbox
from payasync.storage import Schema
from payasync.storage import postgres as module
from payasync.storage.postgres import Database, parse_dsn
from payasync.storage.transactions import Query, Transaction
from payasync.wire.validators import invalid_argument
from tests.inside import turns
from tests.postgres import database
from tests.works import Rows, asking

NOTES: Final = "CREATE TABLE notes (text text UNIQUE);"
SCHEMA: Final = Schema(name="notebook", migrations=(NOTES,))


GROUPED: Final = "INSERT INTO notes VALUES (:text) RETURNING txid_current() AS number"
PATIENT: Final = 500
both_ways = pytest.mark.parametrize("grouped", [False, True])


PROGRAM: Final = Path(__file__).with_name("postgres_forking.py")


@asynccontextmanager
async def opened(dsn: str, schema: Schema = SCHEMA, *, most: int = 8, **settings: str) -> AsyncGenerator[Database]:
    """Return a database whose connection string has further settings."""
    notebook = Database(Hidden(make_conninfo(dsn, **settings)), schema, connections=most)
    try:
        yield notebook
    finally:
        await notebook.aclose()


@pytest.fixture
async def notebook(postgres_dsn: str) -> AsyncGenerator[Database]:
    """A database to write in."""
    async with opened(postgres_dsn) as notebook:
        yield notebook


def note(text: str) -> Callable[[datetime], Transaction[Rows]]:
    """Return work that writes a text."""
    return asking("INSERT INTO notes VALUES (:text)", text=text)


async def run_grouped(notebook: Database, statement: str = GROUPED, **values: Any) -> Rows:
    """Return the rows of a statement, which may share a transaction."""
    return await notebook.run(asking(statement, is_first=True, **values), is_short=True)


async def write(notebook: Database, text: str, *, grouped: bool = False) -> None:
    """Write a text, in a transaction that others may share, if it is grouped."""
    await (run_grouped(notebook, text=text) if grouped else notebook.run(note(text)))


async def notes(notebook: Database) -> list[str]:
    """Return the texts that were written."""
    return [row["text"] for row in await notebook.run(asking("SELECT text FROM notes ORDER BY text"))]


def elsewhere(dsn: str, *statements: str) -> list[Any]:
    """Execute statements on another connection, and return the rows of the last one."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        (*_, last) = [connection.execute(each.encode()) for each in statements]
        return last.fetchall() if last.description else []


def connections(dsn: str, name: str, expected: int = 0) -> int:
    """Return how many connections of a program's name are open, once the server has noticed which were closed."""
    asked = "SELECT count(*), pg_sleep(0.01) FROM pg_stat_activity WHERE application_name = "
    counts = (int(elsewhere(dsn, f"{asked}'{name}'")[0][0]) for _ in range(PATIENT))
    return next((each for each in counts if each == expected), -1)


async def test_error_leaves_nothing(notebook: Database) -> None:
    """If the function raises, nothing of it is written, and its error is raised unchanged."""

    def fail(now: datetime) -> Transaction[None]:
        yield from note("a")(now)
        raise invalid_argument("text", "another", "a")

    with pytest.raises(InvalidArgumentError, match="text must be another"):
        await notebook.run(fail)

    assert [] == await notes(notebook)


async def test_texts_that_it_does_not_take_are_escaped(notebook: Database) -> None:
    """Half a surrogate pair and NUL, which JSON can hold, are stored as their escapes."""
    await notebook.run(note("a\0\ud800"))

    assert ["a\\x00\\ud800"] == await notes(notebook)


async def rows_of(notebook: Database, statement: str, *, grouped: bool) -> Rows:
    """Return the rows of a statement, which may share a transaction."""
    rows = await (run_grouped(notebook, statement) if grouped else notebook.run(asking(statement)))
    return [{name: value for name, value in row.items() if name != "now"} for row in rows]


@both_ways
async def test_commit_waits_for_the_disk(postgres_dsn: str, *, grouped: bool) -> None:
    """A transaction has `synchronous_commit` on, can write, and is read committed, whatever the server's defaults."""
    wanted = {"synchronous_commit": "on", "transaction_read_only": "off", "transaction_isolation": "read committed"}
    defaults = "-c synchronous_commit=off -c default_transaction_read_only=on -c default_transaction_isolation="
    async with opened(postgres_dsn, options=f"{defaults}serializable") as notebook:
        columns = ", ".join(f"current_setting('{name}') AS {name}" for name in wanted)
        found = await rows_of(notebook, f"SELECT {columns}", grouped=grouped)

    assert [wanted] == found


@pytest.mark.parametrize("setting", ["on", "remote_apply"])
async def test_stricter_commits_stay_so(postgres_dsn: str, setting: str) -> None:
    """If the server's `synchronous_commit` also waits for replicas, payasync leaves that setting."""
    async with opened(postgres_dsn, options=f"-c synchronous_commit={setting}") as notebook:
        (found,) = await notebook.run(asking("SELECT current_setting('synchronous_commit') AS now"))

    assert setting == found["now"]


async def test_so_many_connections_at_most(postgres_dsn: str) -> None:
    """A hundred callers share what is allowed, and none of them is refused."""
    async with opened(postgres_dsn, most=3, application_name="many") as notebook:
        await asyncio.gather(*(notebook.run(note(str(number))) for number in range(100)))

        assert 3 == connections(postgres_dsn, "many", expected=3)
        assert 100 == len(await notes(notebook))


def test_number_of_connections_is_checked() -> None:
    """If the number of connections is less than 1, making the database raises an error."""
    wrong: list[Any] = [0, -1, True, 1.5, None]
    for each in wrong:
        with pytest.raises(ConfigurationError, match="connections must be an integer of 1 or more"):
            Database(Hidden("host=h"), SCHEMA, connections=each)


def test_each_loop_has_its_own_connections(postgres_dsn: str) -> None:
    """Each `asyncio.run` has connections of its own, which are closed when it ends."""
    notebook = Database(Hidden(make_conninfo(postgres_dsn, application_name="loops")), SCHEMA)
    open_after = list[int]()
    for text in "abc":
        asyncio.run(write(notebook, text))
        open_after.append(connections(postgres_dsn, "loops"))
    kept = asyncio.run(notes(notebook))
    asyncio.run(notebook.aclose())

    assert ["a", "b", "c"] == kept
    assert [0, 0, 0] == open_after


def test_loop_that_ended_badly_leaves_no_connection(postgres_dsn: str) -> None:
    """Connections of a loop that was closed without a shutdown are closed at the next use."""
    notebook = Database(Hidden(make_conninfo(postgres_dsn, application_name="badly")), SCHEMA)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(notebook.run(note("a")))
    loop.close()
    before = connections(postgres_dsn, "badly", expected=1)
    asyncio.run(write(notebook, "b"))
    after = connections(postgres_dsn, "badly")
    asyncio.run(notebook.aclose())

    assert (1, 0) == (before, after)


@pytest.mark.parametrize(
    "what", ["both", *(pytest.param(each, marks=pytest.mark.long) for each in ("closed", "inherited"))]
)
def test_fork_leaves_the_parents_connections_alone(postgres_dsn: str, what: str) -> None:
    """If a process forks, the child makes its own connections. The parent's connections still work."""
    command = [sys.executable, "-W", "error", str(PROGRAM), what, postgres_dsn]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (0, "", "parent child") == (done.returncode, done.stderr, done.stdout.strip())


async def test_transactions_in_each_others_way_are_done_again(notebook: Database) -> None:
    """If a transaction conflicts with another, it runs again as a whole. If it fails again, the error says why."""
    await notebook.run(note("a"))
    tried = list[str]()

    def write(now: datetime) -> Transaction[Rows]:
        tried.append("b" if tried else "a")
        return note(tried[-1])(now)

    await notebook.run(write)
    with pytest.raises(StorageError, match="duplicate key value"):
        await notebook.run(note("a"))

    assert (["a", "b"], ["a", "b"]) == (tried, await notes(notebook))


@both_ways
async def test_connection_that_was_cut_is_replaced(notebook: Database, postgres_dsn: str, *, grouped: bool) -> None:
    """A connection that was cut while idle is replaced. If it is cut inside a transaction, the call fails."""
    (row,) = await rows_of(notebook, "SELECT pg_backend_pid() AS id", grouped=grouped)
    elsewhere(postgres_dsn, f"SELECT pg_terminate_backend({row['id']}, 5000)")
    await write(notebook, "a", grouped=grouped)
    with pytest.raises(StorageError, match=r"the notebook '.*' is unavailable: .*terminat"):
        await rows_of(notebook, "SELECT pg_terminate_backend(pg_backend_pid())", grouped=grouped)
    await write(notebook, "b", grouped=grouped)

    assert ["a", "b"] == await notes(notebook)


async def test_lock_is_not_waited_for_long(
    notebook: Database, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another program locks a table for too long, the call fails."""
    monkeypatch.setattr(module, "BEGIN", module.BEGIN.replace("'5s'", "'50ms'"))
    await notes(notebook)
    with psycopg.connect(postgres_dsn) as other:
        other.execute("LOCK TABLE notes")
        with pytest.raises(StorageError, match="lock timeout"):
            await notebook.run(note("a"))

    assert [] == await notes(notebook)


async def test_who_stops_in_the_middle_holds_nobody_up(
    notebook: Database, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a process stops within a transaction, the server ends the transaction, and nothing of it is written."""
    monkeypatch.setattr(module, "BEGIN", module.BEGIN.replace("'30s'", "'100ms'"))
    await notebook.run(note("a"))

    def stop(_: datetime) -> Transaction[None]:
        yield Query("UPDATE notes SET text = 'b'", {})
        # The other waits for the row until the server has given it back.
        elsewhere(postgres_dsn, "UPDATE notes SET text = 'c' RETURNING text")

    with pytest.raises(StorageError, match="idle-in-transaction timeout"):
        await notebook.run(stop)

    assert ["c"] == await notes(notebook)


async def test_server_that_says_nothing_is_given_up(notebook: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the server does not respond in time, the call fails. The next call gets another connection."""
    await notes(notebook)
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    with pytest.raises(StorageError, match="is unavailable: the server does not respond"):
        await notebook.run(asking("SELECT pg_sleep(60)"))

    assert [] == await notes(notebook)


async def test_who_is_cancelled_holds_nobody_up(postgres_dsn: str) -> None:
    """A cancelled call has written nothing, and its connection is free for others."""
    inside = asyncio.Event()

    def hang(now: datetime) -> Transaction[None]:
        yield from note("a")(now)
        inside.set()
        yield Query("SELECT pg_sleep(60)", {})

    async with opened(postgres_dsn, most=1, application_name="cancelled") as notebook:
        hanging = asyncio.create_task(notebook.run(hang))
        await inside.wait()
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging

        assert [] == await notes(notebook)
        assert 1 == connections(postgres_dsn, "cancelled", expected=1)


@both_ways
async def test_closing_waits_for_what_was_begun(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch, *, grouped: bool
) -> None:
    """Closing finishes what is in flight and what waits. Later calls fail, and a second closing does nothing."""
    monkeypatch.setattr(module, "GROUP", 1)
    async with opened(postgres_dsn, application_name="closing") as notebook:
        begun = [asyncio.create_task(write(notebook, str(number), grouped=grouped)) for number in range(20)]
        await turns(2)  # the first one begins the task, the second one its statements
        await notebook.aclose()
        with pytest.raises(StorageError, match="the notebook is closed"):
            await write(notebook, "late", grouped=grouped)
    await asyncio.gather(*begun)

    assert [(20,)] == elsewhere(postgres_dsn, "SELECT count(*) FROM notes")
    assert 0 == connections(postgres_dsn, "closing")


async def write_grouped(notebook: Database, *texts: str) -> list[Any]:
    """Write texts concurrently, in transactions that they may share. Return the rows, or the error, of each."""
    return await asyncio.gather(*(run_grouped(notebook, text=text) for text in texts), return_exceptions=True)


async def test_group_shares_a_transaction(notebook: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statements of concurrent callers share a transaction, and a group has a limit. Each caller gets its own rows."""
    shared = await write_grouped(notebook, *"abc")
    monkeypatch.setattr(module, "GROUP", 2)
    limited = await write_grouped(notebook, *"defgh")
    numbers = [[row["number"] for row in rows or []] for rows in (*shared, *limited)]

    assert list("abcdefgh") == await notes(notebook)
    assert [1] * 8 == [len(each) for each in numbers]
    assert (1, 3) == (len({each for (each,) in numbers[:3]}), len({each for (each,) in numbers[3:]}))


@pytest.mark.parametrize("wrong", ["a", object()])
async def test_group_that_fails_has_done_nothing(notebook: Database, wrong: Any) -> None:
    """If the server or psycopg refuses a statement, its group is undone, and the others are executed alone."""
    await notebook.run(note("a"))
    first, second, third = await write_grouped(notebook, "b", wrong, "c")

    assert isinstance(second, StorageError)
    assert first[0]["number"] != third[0]["number"]
    assert ["a", "b", "c"] == await notes(notebook)


async def test_group_that_fails_at_its_commit_has_done_nothing(notebook: Database, postgres_dsn: str) -> None:
    """If the commit of a group fails, no caller takes its statement for done."""
    await notes(notebook)
    elsewhere(
        postgres_dsn,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE check_violation; END'",
        "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON notes DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION refuse()",
    )

    assert [StorageError] * 2 == [type(each) for each in await write_grouped(notebook, "a", "b")]
    assert [] == await notes(notebook)


async def test_short_work_is_never_done_twice(notebook: Database) -> None:
    """If short work goes on after its only query, which is committed, that is an error, and it is not begun again."""

    def work(_: datetime) -> Transaction[None]:
        yield Query(GROUPED, {"text": "a"}, is_first=True)
        yield Query("INSERT INTO notes VALUES ('b')", {})

    with pytest.raises(RuntimeError, match="must not run again"):
        await notebook.run(work, is_short=True)

    assert ["a"] == await notes(notebook)


@both_ways
async def test_connection_that_was_cut_silently_is_replaced(
    notebook: Database, monkeypatch: pytest.MonkeyPatch, *, grouped: bool
) -> None:
    """If a connection was idle for long, and the server does not respond on it, another one is used soon."""
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(module, "PROBE_SECONDS", 0.1)
    ours, silent = socket.socketpair()
    ours.settimeout(0)

    connect, made = psycopg.AsyncConnection.connect, list[psycopg.AsyncConnection[Any]]()

    async def note_connection(*given: Any, **named: Any) -> psycopg.AsyncConnection[Any]:
        made.append(await connect(*given, **named))
        return made[-1]

    monkeypatch.setattr(psycopg.AsyncConnection, "connect", note_connection)
    with ours, silent:
        await notes(notebook)
        os.dup2(ours.fileno(), made[0].fileno())
        async with asyncio.timeout(20):
            await write(notebook, "a", grouped=grouped)
        assert b"SELECT 1" in silent.recv(100)

    assert ["a"] == await notes(notebook)


async def test_cancelled_caller_leaves_its_group_alone(notebook: Database) -> None:
    """If a caller is cancelled, the others of its group get their rows."""
    cancelled = asyncio.ensure_future(write_grouped(notebook, "a"))
    others = asyncio.ensure_future(write_grouped(notebook, "b", "c"))
    await turns(3)  # until all three wait for their group
    cancelled.cancel()
    async with asyncio.timeout(30):
        found = await others

    assert [1, 1] == [len(each) for each in found]
    assert {"b", "c"} <= set(await notes(notebook))


@pytest.mark.parametrize("size", [1, 100])
async def test_caller_that_is_cancelled_early_has_written_nothing(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """If a caller is cancelled before its statement is sent, the statement is not executed."""
    monkeypatch.setattr(module, "GROUP", size)
    async with opened(postgres_dsn, most=1) as notebook:
        first, cancelled = (asyncio.create_task(run_grouped(notebook, text=text)) for text in "ab")
        await turns(2)  # until the first group waits for a connection
        cancelled.cancel()
        await asyncio.gather(first, write_grouped(notebook, "c"))

        assert ["a", "c"] == await notes(notebook)


async def test_cancelled_background_task_fails_its_group(notebook: Database) -> None:
    """If a program cancels all background tasks, the callers of a group get an error. Later groups are sent."""
    caller = asyncio.create_task(run_grouped(notebook, text="a"))
    before = asyncio.all_tasks()
    await turns(2)  # until its group waits for a connection
    for task in asyncio.all_tasks() - before:
        task.cancel()
    async with asyncio.timeout(30):
        with pytest.raises(StorageError, match="its background task was cancelled"):
            await caller
        await write_grouped(notebook, "b")

    assert ["b"] == await notes(notebook)


async def test_group_that_comes_as_all_others_end_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement is sent even if it comes in the moment in which all other groups end."""
    monkeypatch.setattr(module, "GROUP", 1)

    async def call_twice(notebook: Database) -> None:
        for _ in range(2):  # both groups fail in the same turn of the loop
            with pytest.raises(StorageError, match="is unavailable"):
                await run_grouped(notebook, text="a")

    async with opened("host=/nowhere") as notebook, asyncio.timeout(30):
        await asyncio.gather(call_twice(notebook), call_twice(notebook))


async def test_groups_leave_room_for_transactions(postgres_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While groups follow each other without a pause on the only connection, a transaction gets its turn."""
    monkeypatch.setattr(module, "GROUP", 1)
    slow = "SELECT CAST(pg_sleep(0.002) AS text) AS slept"  # the other writers call again before the response

    async def keep_writing(notebook: Database) -> None:
        while True:
            await run_grouped(notebook, slow)

    async with opened(postgres_dsn, most=1) as notebook:
        writers = [asyncio.create_task(keep_writing(notebook)) for _ in range(3)]
        await run_grouped(notebook, slow)
        try:
            async with asyncio.timeout(30):
                assert [] == await notes(notebook)
        finally:
            for each in writers:
                each.cancel()


@pytest.mark.parametrize("pooled", [False, True])
async def test_nothing_is_prepared_behind_a_pooler(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch, *, pooled: bool
) -> None:
    """Statements of groups are prepared, unless the process that responds is not the one that was connected to."""
    if pooled:
        monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", -1)
    async with opened(postgres_dsn, most=1) as notebook:
        await write_grouped(notebook, "a")
        await write_grouped(notebook, "b")
        prepared = await notebook.run(
            asking("SELECT name FROM pg_prepared_statements WHERE statement LIKE 'INSERT %%'")
        )

    assert (0 if pooled else 1) == len(prepared)


PASSWORD: Final = "letmein"


async def versions(dsn: str, schema: Schema = SCHEMA) -> list[tuple[str, int]]:
    """Use a database, and return the versions of its tables."""
    async with opened(dsn, schema) as notebook:
        rows = await notebook.run(asking("SELECT name, version FROM payasync_migrations ORDER BY 1, 2"))
        return [(row["name"], row["version"]) for row in rows]


def test_no_connection_string_is_refused_unseen() -> None:
    """An invalid connection string may hold a password, so the error shows the valid form, and nothing of it."""
    invalid: list[Any] = [
        *(f"postgresql://shop:{PASSWORD}{end}/pay" for end in ("@host:port", "/x@host")),
        *(f"postgresql://shop:{begin}{PASSWORD}@host/pay" for begin in ("/", "x@", "%zz")),
        f"postgres:shop:{PASSWORD}@host/pay",
        f"host=h password='{PASSWORD}",
        *(PASSWORD, "", "\ud800", None, 3),
    ]
    for dsn in invalid:
        with pytest.raises(ConfigurationError, match="dsn must be a connection string") as caught:
            parse_dsn(Hidden(dsn))

        assert PASSWORD not in f"{locals_of(caught.value)} {caught.value}"
        assert "dsn" == caught.value.field
        assert (None, None) == (caught.value.__cause__, caught.value.__context__)


@pytest.mark.parametrize("given", [str, Secret])
def test_password_is_never_shown(given: type[Any]) -> None:
    """Logs and errors show which database it is, without its password."""
    found = parse_dsn(Hidden(given(f"postgresql://shop:{PASSWORD}@db.example:5433/pay?connect_timeout=3")))

    assert "host=db.example port=5433 dbname=pay user=shop" == found.shown
    assert PASSWORD not in f"{found} {found!r}"
    assert "***, said the server, twice" == found.redact(f"{PASSWORD}, said\nthe server,  twice")


def test_waiting_for_a_connection_is_bounded_unless_it_is_said() -> None:
    """Connecting takes ten seconds at most, unless the connection string sets `connect_timeout`."""
    assert {"connect_timeout": 10} == parse_dsn(Hidden("host=h")).options
    assert {} == parse_dsn(Hidden("host=h connect_timeout=60")).options


@pytest.mark.parametrize("kind", [PostgresInbox, PostgresJournal])
def test_password_is_in_no_frame(kind: type[Any]) -> None:
    """If a connection string is invalid, a traceback with local variables does not show its password."""
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
    """If the server cannot be reached, the call fails with `StorageError`, and no password is shown or logged."""
    caplog.set_level("DEBUG")
    with pytest.raises(
        StorageError, match=r"the notebook 'host=127.0.0.1 port=1 dbname=pay user=shop' is unavailable: .*refused"
    ) as caught:
        await versions(f"postgresql://shop:{PASSWORD}@127.0.0.1:1/pay")
    shown = "".join(traceback.format_exception(caught.value))

    assert PASSWORD not in shown + caplog.text
    assert (None, None) == (caught.value.__cause__, caught.value.__context__)


async def test_tables_are_made_once(postgres_dsn: str) -> None:
    """If several workers begin together, each of them finds one version of the tables."""
    found = await asyncio.gather(*(versions(postgres_dsn) for _ in range(8)))

    assert [[("notebook", 1)]] * 8 == found


async def test_step_that_fails_leaves_nothing(postgres_dsn: str) -> None:
    """If one step of a migration fails, the whole migration is rolled back."""
    half = Schema(name="notebook", migrations=(NOTES, "CREATE TABLE more (); CREATE TABLE notes ();"))
    with pytest.raises(ConfigurationError, match='relation "notes" already exists'):
        await versions(postgres_dsn, half)

    assert [("notebook", 1)] == await versions(postgres_dsn)


async def test_another_programs_tables_are_refused(postgres_dsn: str) -> None:
    """A table of another program that has the same name is refused."""
    elsewhere(postgres_dsn, "CREATE TABLE notes (amount integer)")
    with pytest.raises(ConfigurationError, match=r"cannot use '.*' for the notebook: .*already exists") as caught:
        await versions(postgres_dsn)

    assert "dsn" == caught.value.field


async def test_database_of_another_encoding_is_refused(postgres_database: str) -> None:
    """A database whose encoding cannot hold all notifications is refused at the first use."""
    with database(postgres_database, "latin") as dsn:
        elsewhere(
            postgres_database, "DROP DATABASE latin", "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1'"
        )
        with pytest.raises(ConfigurationError, match="its encoding is LATIN1: make a database with ENCODING 'UTF8'"):
            await versions(dsn)
