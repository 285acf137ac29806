"""`payasync journal upgrade`, and every other command, which changes no table."""

import asyncio
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import psycopg
import pytest
from attrs import evolve
from click.testing import CliRunner, Result
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from payasync.cli.commands import payasync
from payasync.credentials import Hidden
from payasync.journal.postgres_journal import SCHEMA as POSTGRES
from payasync.journal.sqlite_journal import SCHEMA as SQLITE
from payasync.notifications.sqlite_inbox import SCHEMA as INBOX
from payasync.storage import Schema
from payasync.storage.postgres import Database
from payasync.storage.sqlite import SqliteFile
from tests.test_readme import ENVIRONMENT
from tests.works import asking

REFUNDS: Final = "out_trade_no,out_refund_no,total_amt,refund_amt\nT1,R1,450,200\n"
RESOLVING: Final = ("--as", "rejected", "--reason", "looked up", "--yes")
REFUND: Final = ("--out-trade-no", "T1", "--out-refund-no", "R1", "--total-amt", "450", "--refund-amt", "200", "--yes")
COMMANDS: Final = (
    ("journal",),
    ("journal", "list"),
    ("journal", "show", "1"),
    ("journal", "resolve", "1", *RESOLVING),
    ("journal", "prune", "--older-than", "90d"),
    ("journal", "move", "https://a.example", "https://b.example", "--yes"),
    ("reconcile",),
    ("reconcile", "--dry-run"),
    ("refund", "create", *REFUND),
    ("refund", "import", "refunds.csv"),
)
"""Each command that uses a journal, but for `upgrade`."""


COLUMNS: Final = """
SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns
WHERE table_name LIKE 'payasync_%' UNION ALL
SELECT schemaname, tablename, indexname, indexdef FROM pg_indexes WHERE tablename LIKE 'payasync_%' ORDER BY 1, 2, 3, 4
"""
"""All columns and indexes of our tables."""


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run in an empty folder with a file of refunds."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "refunds.csv").write_text(REFUNDS, encoding="utf-8")


def run(*arguments: str, journal: str = "", **environ: str) -> Result:
    """Run a command in the environment of a merchant."""
    given = {name: "" for name in os.environ if name.startswith("PAYASYNC_")}
    return CliRunner().invoke(
        payasync, arguments, env={**given, **ENVIRONMENT, "PAYASYNC_JOURNAL": journal or None, **environ}
    )


def url(dsn: str) -> str:
    """Return a connection string as a URL."""
    return f"postgresql:///?{urlencode(conninfo_to_dict(dsn))}"


def older(schema: Schema) -> Schema:
    """Return the tables as the version before had them."""
    return evolve(schema, migrations=schema.migrations[:-1])


def make_file(path: Path, schema: Schema) -> None:
    """Make an SQLite file."""

    async def made() -> None:
        file: SqliteFile = SqliteFile(path, schema)
        await file.run(asking("SELECT 1"))
        await file.aclose()

    asyncio.run(made())


def make_tables(dsn: str, schema: Schema) -> None:
    """Make the tables in PostgreSQL."""

    async def made() -> None:
        database = Database(Hidden(dsn), schema)
        await database.run(asking("SELECT 1"))
        await database.aclose()

    asyncio.run(made())


def tables(dsn: str) -> list[tuple[Any, ...]]:
    """Return all columns and indexes, and the versions of the tables."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = connection.execute(COLUMNS).fetchall()
        if any("payasync_migrations" in row for row in found):
            found += connection.execute("SELECT name, version FROM payasync_migrations ORDER BY 1, 2").fetchall()
        return found


def schema_of(path: Path) -> list[Any]:
    """Return what stands in the header of an SQLite file, and its tables and indexes."""
    with closing(sqlite3.connect(path)) as db:
        marks = [db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")]
        return [*marks, *db.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2")]


def check_refused(command: Sequence[str], journal: str, words: str = "payasync journal upgrade") -> None:
    """Check that a command uses no journal, and names the next step."""
    result = run(*command, journal=journal)

    assert (2, "", True) == (result.exit_code, result.stdout, words in result.stderr), command


def test_no_command_changes_tables(tmp_path: Path, postgres_dsn: str) -> None:
    """On an empty database, or on tables of an earlier payasync, a command makes and migrates nothing.

    If the file is missing, only the import makes one: a mistyped name would be an empty journal.
    """
    for command in COMMANDS:
        if "import" not in command:
            check_refused(command, "pay.db", "journal upgrade")
        check_refused(command, url(postgres_dsn))
    assert (["refunds.csv"], []) == ([each.name for each in tmp_path.iterdir()], tables(postgres_dsn))
    make_file(tmp_path / "pay.db", older(SQLITE))
    make_tables(postgres_dsn, older(POSTGRES))
    before = schema_of(tmp_path / "pay.db"), tables(postgres_dsn)
    for words, journal in product(COMMANDS, ("pay.db", url(postgres_dsn))):
        check_refused(words, journal)

    assert before == (schema_of(tmp_path / "pay.db"), tables(postgres_dsn))


def test_inbox_that_cannot_be_used(tmp_path: Path) -> None:
    """The status shows an inbox of this version only. If an inbox cannot be upgraded, its journal is not, either."""
    make_file(tmp_path / "pay.db", SQLITE)
    make_file(tmp_path / "inbox.db", older(INBOX))
    make_file(tmp_path / "old.db", older(SQLITE))
    (tmp_path / "empty.db").write_bytes(b"")
    before = schema_of(tmp_path / "inbox.db"), schema_of(tmp_path / "old.db")
    check_refused(("journal", "--inbox", "inbox.db"), "pay.db", "payasync journal upgrade --inbox")
    check_refused(("journal", "upgrade", "--inbox", "empty.db"), "old.db", "--inbox")
    check_refused(("journal", "upgrade"), "", "neither --journal nor --inbox is given")

    assert before == (schema_of(tmp_path / "inbox.db"), schema_of(tmp_path / "old.db"))


def test_journal_is_upgraded(tmp_path: Path, postgres_dsn: str) -> None:
    """`journal upgrade` makes or migrates a file, as `SqliteJournal` does, or the tables of a schema, which it names.

    A second run changes nothing.
    """
    path, good = tmp_path / "pay.db", tmp_path / "good.db"
    make_file(good, SQLITE)
    make_file(path, older(SQLITE))
    make_tables(postgres_dsn, older(POSTGRES))
    known = len(SQLITE.migrations)
    new = f"new and empty: version {known}. If you have one, check the name."
    migrated, same = f"migrated from version {known - 1} to {known}.", f"up to date: version {known}."
    cases = (("new.db", str(tmp_path / "new.db"), new), ("pay.db", str(path), migrated))
    for journal, where, words in (*cases, (url(postgres_dsn), "schema public", migrated)):
        said = [run("journal", "upgrade", journal=journal).stdout.splitlines()[0] for _ in range(2)]

        assert [f"{where} is {each}" for each in (words, same)] == [line[line.index(where) :] for line in said]
        assert 0 == run("journal", journal=journal).exit_code
    for file in (path, tmp_path / "new.db"):
        assert sorted(map(str, schema_of(good))) == sorted(map(str, schema_of(file)))
        assert 0o600 == file.stat().st_mode & 0o777


def test_dry_run_prints_the_sql(tmp_path: Path, postgres_dsn: str) -> None:
    """`--dry-run` changes nothing, and prints the SQL: executed as it is, it makes tables that payasync takes."""
    file, server = (run("journal", "upgrade", "--dry-run", journal=each) for each in ("pay.db", url(postgres_dsn)))
    assert (["refunds.csv"], []) == ([each.name for each in tmp_path.iterdir()], tables(postgres_dsn))

    with closing(sqlite3.connect(tmp_path / "pay.db")) as db:
        db.executescript(file.stdout)
    (tmp_path / "pay.db").chmod(0o600)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(server.stdout.encode())

    assert [0, 0] == [run("journal", journal=each).exit_code for each in ("pay.db", url(postgres_dsn))]


def test_inbox_is_upgraded(tmp_path: Path, postgres_dsn: str) -> None:
    """`journal upgrade --inbox` makes or migrates an inbox, in a file or in PostgreSQL, with or without a journal."""
    make_file(tmp_path / "inbox.db", older(INBOX))
    both = run("journal", "upgrade", "--inbox", "inbox.db", journal="pay.db").stdout.splitlines()
    alone = run("journal", "upgrade", "--inbox", url(postgres_dsn)).stdout.splitlines()

    assert ["The journal", "The inbox"] == [" ".join(each.split()[:2]) for each in both]
    assert both[1].endswith("is migrated from version 3 to 4.")
    assert (1, True) == (len(alone), "schema public is new and empty: version 4." in alone[0])


def test_tables_in_another_schema(postgres_dsn: str) -> None:
    """For a role whose path leads elsewhere, the status fails and names the schema, instead of "In doubt nothing".

    With `--schema`, a second merchant's tables are made there; none is made by mistake.
    """
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA cafe")
    make_tables(postgres_dsn, POSTGRES)
    mine, upgrade = url(make_conninfo(postgres_dsn, options="-csearch_path=cafe")), ("journal", "upgrade")
    elsewhere, *others = (
        run(*words, journal=mine) for words in (("journal",), upgrade, (*upgrade, "--schema", "cafe"), ("journal",))
    )

    assert (2, "") == (elsewhere.exit_code, elsewhere.stdout)
    assert "its tables are in the schema public" in elsewhere.stderr
    assert [2, 0, 0] == [each.exit_code for each in others]


def test_journal_of_the_environment_is_trimmed(tmp_path: Path) -> None:
    """White space and a byte order mark around the name are no part of it: another name is an empty journal.

    Quotes around the name, which a file of variables may leave, are refused by the import, too.
    """
    make_file(tmp_path / "pay.db", SQLITE)
    for around in (" {}\n", "\ufeff{}", "{}\r\n"):
        assert 0 == run("journal", "list", journal=around.format("pay.db")).exit_code
    check_refused(("refund", "import", "refunds.csv"), "'pay.db'", "it has quotes around it")

    assert ["pay.db", "refunds.csv"] == sorted(each.name for each in tmp_path.iterdir())
