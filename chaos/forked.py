"""Python programs in processes of their own that begin behind the imports, which take most of a short one's time.

They are forked by the server that `multiprocessing` keeps for that: a process with one thread and no event loop, in
which the package is imported, and nothing was done with it.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from attrs import frozen

SERVER: Final = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    ["payasync.cli.commands", "payasync.journal", "payasync.notifications.postgres_inbox", "payasync.testing"]
)
SECONDS: Final = 60
TRACED: Final = "COVERAGE_PROCESS_CONFIG"
"""Where this is set, coverage measures, also the processes that are started."""


@frozen
class Program:
    """What is run, and where.

    Attributes:
        name: The path of a file, or the name of a package.
        arguments: Its own.
        environment: Its variables.
        folder: Where it works.
    """

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path

    def run(self, *pipes: Connection) -> None:
        """Be the program, with these as what it reads, writes and complains on; in a process that was made for it."""
        for number, pipe in enumerate(pipes):
            os.dup2(pipe.fileno(), number)
            pipe.close()
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.folder)
        sys.argv = [self.name, *self.arguments]
        warnings.simplefilter("error")
        run = runpy.run_path if self.name.endswith(".py") else runpy.run_module
        with _measured():
            run(self.name, run_name="__main__")


@contextmanager
def _measured() -> Generator[None]:
    """Let coverage see what is done, where it is to: by itself it begins as an interpreter starts."""
    if TRACED not in os.environ:
        yield
        return
    import coverage  # noqa: PLC0415 - whoever measures has it

    measuring = coverage.process_startup()
    try:
        yield
    finally:
        if measuring:
            measuring.stop()
            measuring.save()


@contextmanager
def _unmeasured() -> Generator[None]:
    """Let no server be measured, from which each process would have that."""
    config = os.environ.pop(TRACED, None)
    try:
        yield
    finally:
        if config is not None:
            os.environ[TRACED] = config


class Forked:
    """A program that runs, with pipes to it, and used as a `subprocess.Popen`; its parent is the server.

    Args:
        program: The path of a file, or the name of a package.
        arguments: Its own.
        environment: Its variables; those of this process, where there are none.
        folder: Where it works; where this process does, where there is none.
    """

    def __init__(
        self,
        program: Path | str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        variables = dict(os.environ if environment is None else environment)
        what = Program(str(program), arguments, variables, folder or Path.cwd())
        reads, given = SERVER.Pipe(duplex=False)
        told, tells = SERVER.Pipe(duplex=False)
        errors, complains = SERVER.Pipe(duplex=False)
        self._process = SERVER.Process(target=what.run, args=(reads, tells, complains), daemon=True)
        with _unmeasured():
            self._process.start()
        for theirs in (reads, tells, complains):
            theirs.close()
        self.stdin, self.stdout, self.stderr = _file(given, "w"), _file(told), _file(errors)
        self.pid = int(self._process.pid or 0)

    @property
    def returncode(self) -> int | None:
        """Its exit code; negative where a signal has ended it, and `None` while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float = SECONDS) -> int:
        """Return its exit code once it has ended.

        Raises:
            subprocess.TimeoutExpired: It runs on.
        """
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("a forked program", timeout)
        return self._process.exitcode

    def communicate(self, given: str = "", timeout: float = SECONDS) -> tuple[str, str]:
        """Give it all that it is to read; return what it writes until its end, and what it complains of."""
        with suppress(BrokenPipeError), self.stdin:
            self.stdin.write(given)
        told, errors = self.stdout.read(), self.stderr.read()
        self.wait(timeout)
        return told, errors

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Let it end at once."""
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()
        self.stderr.close()
        self.wait()


def _file(pipe: Connection, mode: str = "r") -> IO[str]:
    """Return an end of a pipe as a file; it closes with that."""
    with pipe:
        return os.fdopen(os.dup(pipe.fileno()), mode)
