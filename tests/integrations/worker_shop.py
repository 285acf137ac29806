"""A shop whose refunds are sent by workers of a task queue, each program a process of its own."""

import asyncio
import os
import re
import signal
import sqlite3
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import Factory, field, frozen

from payasync.cli.sandbox import environment_of
from payasync.journal import SqliteJournal
from payasync.sandbox import Sandbox
from payasync.sandbox.recording_receiver import RecordingReceiver

SECONDS: Final = 60
LATE: Final = """
from datetime import timedelta
import time_machine
time_machine.travel(timedelta(hours=2)).start()
"""
"""Makes it two hours later for a process: a lease is over then, and so is all that a queue waits for."""

PYTHON: Final = (
    *(sys.executable, "-W", "error"),
    *("-W", "ignore:You're running the worker with superuser privileges"),
)


@frozen
class Program:
    """A program of a recipe, and all the processes that it starts."""

    process: Process
    lines: list[str] = Factory(list)

    async def says(self, *texts: str, times: int = 1) -> None:
        """Wait until each of these regular expressions has matched the output so often."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                while not all(times <= len(re.findall(text, "".join(self.lines))) for text in texts):
                    if not (line := await self._line()):
                        break
                    self.lines.append(line)
                else:
                    return
        pytest.fail(f"it did not say {texts}, but:\n{''.join(self.lines)}")

    async def _line(self) -> str:
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode()

    def children(self) -> list[int]:
        """Return its children's ids."""
        own = self.process.pid
        return [int(each) for each in Path(f"/proc/{own}/task/{own}/children").read_text(encoding="ascii").split()]

    async def end(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes, and wait for their end."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        await self.process.communicate()


@frozen
class Shop:
    """A shop whose programs and database are in a folder of its own.

    Attributes:
        folder: The folder.
        environment: The environment of the programs.
        sandbox: The service.
        notified: Receives notifications once it is the sandbox's `webhook_url`.
    """

    folder: Path
    environment: dict[str, str]
    sandbox: Sandbox
    notified: RecordingReceiver
    _stack: AsyncExitStack = field(repr=False)

    def write(self, files: Mapping[str, str]) -> None:
        """Write the files of a recipe, by their names."""
        for name, code in files.items():
            (self.folder / name).write_text(code, encoding="utf-8")

    async def start(self, command: list[str], *options: str, late: bool = False) -> Program:
        """Start a program, which is killed at the end of the test."""
        python = command[0] == "python"
        words = command[1:] if python else ["-m", *command, *options]
        late_folder = [str(self.folder / "late")] if late else []
        path = os.pathsep.join([str(self.folder), *late_folder, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        process = await asyncio.create_subprocess_exec(
            *PYTHON,
            *words,
            cwd=self.folder,
            env={**self.environment, "PYTHONPATH": path},
            stdout=PIPE,
            stderr=STDOUT,
            start_new_session=True,
        )
        program = Program(process)
        self._stack.push_async_callback(program.end, signal.SIGKILL)
        return program

    async def run(self, *command: str) -> str:
        """Run a program to its end, and return what it says."""
        program = await self.start(list(command))
        said, _ = await program.process.communicate()

        assert 0 == program.process.returncode, said.decode()
        return said.decode()

    async def states(self) -> list[tuple[str | None, str]]:
        """Return the numbers and the states of the journal's intents."""
        async with SqliteJournal(self.folder / "shop.db") as journal:
            return [(each.reference, each.state) for each in await journal.list()]

    def rows(self, question: str) -> list[tuple[Any, ...]]:
        """Ask the shop's own database."""
        with closing(sqlite3.connect(self.folder / "shop.db")) as db:
            return db.execute(question).fetchall()

    def answers(self, operation: str = "refunds.create") -> list[int]:
        """Return the statuses of the service's responses."""
        return [each.status for each in self.sandbox.ledger.calls(operation)]


@asynccontextmanager
async def open_shop(folder: Path, refunds: Any = "succeed") -> AsyncGenerator[Shop]:
    """Open a shop without a recipe, whose refunds end as `refunds` says."""
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox(clock="frozen", refunds=refunds))
        notified = await stack.enter_async_context(sandbox.receiver())
        (folder / "late").mkdir()
        (folder / "late" / "sitecustomize.py").write_text(LATE, encoding="utf-8")
        yield Shop(folder, {**os.environ, **environment_of(sandbox)}, sandbox, notified, stack)
