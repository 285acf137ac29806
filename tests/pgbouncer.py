"""A real PgBouncer in transaction mode, with one server connection for all clients; without the program, tests skip."""

import os
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Final

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.postgres import NOBODY, await_line

PORT: Final = 6432
"""The number in the name of its socket; it listens on no port."""
SETTINGS: Final = """
[databases]
* = host={host} user={user}
[pgbouncer]
unix_socket_dir = {folder}
listen_port = {port}
auth_type = any
pool_mode = transaction
default_pool_size = 1
ignore_startup_parameters = options, extra_float_digits
logfile = {folder}/log
"""
"""A pooler that drops the `options` of its clients, as many do, since they would be another client's, too."""
STARTED: Final = "process up"


def program() -> str | None:
    """Return the path of PgBouncer; Debian's folder for servers is not on each user's path."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@pytest.fixture
def pooled_dsn(postgres_dsn: str) -> Generator[str]:
    """The connection string of an empty database behind PgBouncer."""
    path = program()
    if path is None:
        pytest.skip("there is no pgbouncer on this machine")
    server = conninfo_to_dict(postgres_dsn)
    root = os.geteuid() == 0
    with TemporaryDirectory(prefix="pgb-") as folder:
        settings = Path(folder) / "pgbouncer.ini"
        settings.write_text(SETTINGS.format(**server, folder=folder, port=PORT), encoding="utf-8")
        if root:  # it refuses to run as root
            os.chown(folder, NOBODY, NOBODY)
        user: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if root else {}
        with subprocess.Popen([path, str(settings)], stderr=subprocess.PIPE, text=True, **user) as process:
            assert process.stderr is not None
            await_line(process.stderr, STARTED, path)
            # Otherwise it would wait at some moment until somebody reads what it says.
            Thread(target=process.stderr.read, daemon=True).start()
            yield make_conninfo(postgres_dsn, host=folder, port=PORT)
            process.terminate()
            process.wait()


def leave(dsn: str, *statements: str) -> None:
    """Be another program behind the pooler: execute statements, and leave what they set on the server's connection."""
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
        for each in statements:
            connection.execute(each.encode())
