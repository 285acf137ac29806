"""Python programs in processes of their own that begin behind the imports, which take most of a short one's time.

They are forked by the server that `multiprocessing` keeps for that: a process with one thread and no event loop, in
which the package is imported, and nothing was done with it.
"""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import warnings
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Event, Lock, Timer
from types import TracebackType
from typing import IO, Final, Self

from attrs import frozen

import payasync

SERVER: Final = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        "aiohttp.web",
        "aiosqlite",
        "fastapi.templating",
        "payasync.cli.refund_import",
        "payasync.cli.sandbox",
        "payasync.journal",
        "payasync.notifications.postgres_inbox",
        "payasync.testing",
        "sqlalchemy.ext.asyncio",
        "uvicorn",
    ]
)
SECONDS: Final = 60
_ONE_AT_A_TIME: Final = Lock()
"""Of two threads that ask for one exit code at once, which starting a process does of all, one would be told 255."""
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
        complaints: The file that takes what it writes on standard error.
        package: Where our package is.
    """

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    complaints: str
    package: str | None = payasync.__file__

    def run(self, streams: Mapping[int, Connection]) -> None:
        """Be the program, with these as what it reads and writes; in a process that was made for it.

        It ends without what an interpreter does at its end: whether something is left open then is seen by `started`.
        """
        os.dup2(os.open(self.complaints, os.O_WRONLY | os.O_APPEND), 2)
        for number, stream in streams.items():
            os.dup2(stream.fileno(), number)
            stream.close()
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
        sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace")
        if payasync.__file__ != self.package:
            raise RuntimeError(f"the server has imported {payasync.__file__}, and not {self.package}")
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
    """A program that runs, used as a `subprocess.Popen`; its parent is the server, and it ends with a `with` block.

    Args:
        program: The path of a file, or the name of a package.
        arguments: Its own.
        environment: Its variables; those of this process, where there are none.
        folder: Where it works; where this process does, where there is none.
        streams: Open files in place of what it reads and writes, by number; a terminal is all three.
    """

    def __init__(
        self,
        program: Path | str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        streams: Mapping[int, int] | None = None,
    ) -> None:
        variables = dict(os.environ if environment is None else environment)
        # No pipe: one that nobody empties would stop the program.
        self.stderr = NamedTemporaryFile("r")  # noqa: SIM115 - it is closed with the process
        what = Program(str(program), arguments, variables, folder or Path.cwd(), self.stderr.name)
        reads, given = SERVER.Pipe(duplex=False)
        told, tells = SERVER.Pipe(duplex=False)
        others = {number: Connection(os.dup(file)) for number, file in (streams or {}).items()}
        self._process = SERVER.Process(target=what.run, args=({0: reads, 1: tells, **others},), daemon=True)
        with _unmeasured(), _ONE_AT_A_TIME:
            self._process.start()
        for each in (reads, tells, *others.values()):
            each.close()
        self.stdin, self.stdout = _file(given, "w"), _file(told)
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code; negative where a signal has ended it, and `None` while it runs."""
        with _ONE_AT_A_TIME:
            return self._process.exitcode

    def poll(self) -> int | None:
        """Return its exit code; `None` while it runs."""
        return self.returncode

    def wait(self, timeout: float = SECONDS) -> int:
        """Return its exit code once it has ended.

        Raises:
            subprocess.TimeoutExpired: It runs on.
        """
        connection.wait([self._process.sentinel], timeout)
        code = self.returncode
        if code is None:
            raise subprocess.TimeoutExpired("a forked program", timeout)
        return code

    def communicate(self, given: str = "", timeout: float | None = SECONDS) -> tuple[str, str]:
        """Give it all that it is to read; return what it writes until its end, and what it complains of.

        Args:
            given: What it reads.
            timeout: Seconds after which it is killed; `None`: somebody else bounds it.

        Raises:
            subprocess.TimeoutExpired: It took longer.
        """
        late = Event()
        with ExitStack() as stack:
            if timeout is not None:
                overdue = Timer(timeout, self._end_late, [late])
                overdue.start()
                stack.callback(overdue.cancel)
            with suppress(BrokenPipeError), self.stdin:
                self.stdin.write(given)
            told = self.stdout.read()
            self.wait()
        if timeout is not None and late.is_set():
            raise subprocess.TimeoutExpired("a forked program", timeout)
        return told, self.stderr.read()

    def _end_late(self, late: Event) -> None:
        late.set()
        self.kill()

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):  # the server may know of its end a moment before us
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        with suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()
        self.stderr.close()
        self.wait()


def started(program: Path, *arguments: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end in an interpreter of its own, which complains of what is left open then.

    Raises:
        subprocess.TimeoutExpired: It takes too long.
    """
    command = [sys.executable, "-W", "error", str(program), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)


def _file(pipe: Connection, mode: str = "r") -> IO[str]:
    """Return an end of a pipe as a file; it closes with that."""
    with pipe:
        return os.fdopen(os.dup(pipe.fileno()), mode)
