"""What a refund needs of each part that can be saturated: a client's core, a database's core, and its disk."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
from attrs import frozen

from benchmarks.clients import Refund, refunding
from benchmarks.journal import durable_postgres, rate
from benchmarks.rows import Figure, Run
from benchmarks.server import static_server
from payasync.journal import Journal, PostgresJournal, SqliteJournal

CONCURRENT: Final = 64
REFUNDS: Final = 4_000
TICK: Final = 1e6 / os.sysconf("SC_CLK_TCK")


@frozen
class Server:
    """A running PostgreSQL server.

    Attributes:
        dsn: Its connection string.
    """

    dsn: str

    def cpu_time(self) -> float:
        """Return the CPU time of all its processes, in µs."""
        with psycopg.connect(self.dsn) as db:
            file = db.execute("SHOW data_directory").fetchone()
        assert file
        main = (Path(file[0]) / "postmaster.pid").read_text(encoding="ascii").split(maxsplit=1)[0]
        running = [each for each in map(_stat, Path("/proc").glob("[0-9]*/stat")) if each[1:2] == [main]]
        # Of the main process also what its ended children took.
        ticks = sum(int(each[11]) + int(each[12]) for each in running)
        ticks += sum(map(int, _stat(Path(f"/proc/{main}/stat"))[11:15]))
        return ticks * TICK

    def log_bytes(self) -> int:
        """Return how many bytes of its write-ahead log it has written."""
        with psycopg.connect(self.dsn) as db:
            found = db.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone()
        assert found
        return int(found[0])


def _stat(path: Path) -> list[str]:
    """Return what the system says of a process, behind its name; nothing if it has ended."""
    try:
        return path.read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []


async def _refunds(base: str, journal: Journal | None, count: int, name: str) -> float:
    """Return the CPU time of this process for one of many refunds, in µs."""
    async with refunding(base, journal) as refund:
        await _make(refund, count // 10, f"{name}-W")
        started = time.process_time()
        await _make(refund, count, name)
        return (time.process_time() - started) / count * 1e6


async def _make(refund: Refund, count: int, name: str) -> None:
    await rate(refund, [f"{name}-{number}" for number in range(count)], CONCURRENT)


def capacity(run: Run) -> Iterator[Figure]:
    """What one refund takes of a client, of SQLite's file and of a PostgreSQL server."""
    count = run.times(REFUNDS)

    async def on_sqlite(base: str) -> float:
        async with SqliteJournal(run.folder / "capacity.db") as journal:
            return await _refunds(base, journal, count, "R")

    async def on_postgres(base: str, server: Server) -> tuple[float, float, float]:
        async with PostgresJournal(server.dsn) as journal:
            await _refunds(base, journal, count // 10, "W")
            cpu, log = server.cpu_time(), server.log_bytes()
            client = await _refunds(base, journal, count, "R")
            made = count * 1.1  # with those that warm up
            return client, (server.cpu_time() - cpu) / made, (server.log_bytes() - log) / made

    with static_server() as base:
        alone = asyncio.run(_refunds(base, None, count, "R"))
        with_file = asyncio.run(on_sqlite(base))
        with durable_postgres() as dsn:
            client, server, log = asyncio.run(on_postgres(base, Server(dsn)))
    cpu = "CPU time"
    yield Figure("refund without a journal, client", alone, "µs", measured=cpu)
    yield Figure("refund with SQLite, client and writer thread", with_file, "µs", measured=cpu)
    yield Figure("refund with PostgreSQL, client", client, "µs", measured=cpu)
    yield Figure("refund with PostgreSQL, server", server, "µs", measured=cpu)
    yield Figure("refund with PostgreSQL, write-ahead log", log, "bytes", measured="count")
