"""The trace of a process, which outlives a SIGKILL: a line for each step; and journals that die at each step."""

import os
import signal
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from payasync.journal import Journal, PostgresJournal, SqliteJournal
from payasync.journal.intents import BeginResult, Draft, Intent, Intents, State, Step
from payasync.journal.transactions import Transaction, Write
from payasync.storage.postgres import Connection
from tests.chaos.plan import ENDED, Life

SOON: Final = 0.02
"""Seconds, within which a process dies that dies wherever it is."""


class Trace:
    """Writes what a process is about to do, and kills it where it is to die.

    Args:
        life: The process's.
    """

    def __init__(self, life: Life) -> None:
        self._file: Final = os.open(life.trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._life = life
        self._count = 0
        self._lock = threading.Lock()

    def mark(self, moment: str, number: str | None) -> None:
        """Note that an operation comes to a step; this may be the end."""
        with self._lock:
            os.write(self._file, f"{moment} {number}\n".encode())
            self._count += moment == self._life.fatal
            fatal = moment == self._life.fatal and self._count == self._life.nth
        if fatal and moment == ENDED:
            timer = threading.Timer(Random(self._life.trace).random() * SOON, die)  # noqa: S311 - no secret
            timer.daemon = True
            timer.start()
        elif fatal:
            die()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)


def die() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def lines(trace: Path) -> list[tuple[str, str]]:
    """Return the steps of a process, and the numbers they were about; a line that was cut off counts not."""
    text = trace.read_text(encoding="ascii") if trace.exists() else ""
    whole = text[: text.rfind("\n") + 1].splitlines()
    return [(moment, number) for moment, _, number in (line.partition(" ") for line in whole)]


T = TypeVar("T")


WITHIN: Final[ContextVar[tuple[str, str | None] | None]] = ContextVar("within", default=None)


def number_of(draft: Draft) -> str | None:
    """Return the number of a write, or the caller's own key for it."""
    return draft.reference or draft.intent


class KillableJournal(Journal):
    """A journal that says what it is about to do, by `mark`, which may be the end of its process."""

    mark: Callable[[str, str | None], None]

    async def begin(self, draft: Draft, lease: float, *, service: str | None = None) -> BeginResult:
        """Store an intent."""
        self.mark("asking", number_of(draft))
        token = WITHIN.set(("writing", number_of(draft)))
        try:
            return self._kept(await super().begin(draft, lease, service=service))
        finally:
            WITHIN.reset(token)

    async def claim(self, intent_id: int, lease: float, **facts: Any) -> BeginResult:
        """Claim what was queued."""
        return self._kept(await super().claim(intent_id, lease, **facts))

    def _kept(self, begun: BeginResult) -> BeginResult:
        if begun.step is Step.SEND:
            self.mark("kept", number_of(begun.intent))
        return begun

    async def settle(self, intent: Intent, state: State, **facts: Any) -> bool:
        """Store a result."""
        self.mark("judged", number_of(intent))
        token = WITHIN.set(("settling", number_of(intent)))
        try:
            held = await super().settle(intent, state, **facts)
        finally:
            WITHIN.reset(token)
        self.mark("settled", number_of(intent))
        return held

    async def ask(self, limit: int, lease: float, **facts: Any) -> Intents:
        """Claim the intents that are due for a query."""
        found = await super().ask(limit, lease, **facts)
        for each in found:
            self.mark("claimed", number_of(each))
        return found


class MortalWrite(Write[T]):
    """A write that marks its step when its statement was executed, before the commit."""

    def __init__(self, write: Write[T], step: tuple[str, str | None], mark: Callable[[str, str | None], None]) -> None:
        self.values = write.values
        self.statement = write.statement  # type: ignore[misc] # each is that of another class
        self._write = write
        self._mark = partial(mark, *step)

    def complete(self, intent_id: int) -> T:
        """Mark the step."""
        self._mark()
        return self._write.complete(intent_id)

    def otherwise(self) -> Transaction[T]:
        """Mark the step at the end."""
        result = yield from self._write.otherwise()
        self._mark()
        return result


class KillableSqlite(KillableJournal, SqliteJournal):
    """In a file."""

    async def _write(self, write: Write[T]) -> T:
        within = WITHIN.get()
        return await super()._write(MortalWrite(write, within, self.mark) if within else write)


class KillablePostgres(KillableJournal, PostgresJournal):
    """In a database. Whatever shares a transaction, it may die before the commit is sent."""

    def __init__(self, dsn: str, *, clock: Callable[[], float] | None = None) -> None:
        super().__init__(dsn, clock=clock)
        self._marked: tuple[str, str | None] | None = None
        database: Any = self._database
        self._connect: Callable[[], Awaitable[Connection]] = database.connect
        database.connect = self._connect_mortal

    async def _connect_mortal(self) -> Connection:
        connection = await self._connect()
        execute = connection.execute

        async def mortal(query: Any, *values: Any, **options: Any) -> Any:
            within = WITHIN.get()
            if query == "COMMIT" and within and within is not self._marked:  # the first write of a merchant has two
                self._marked = within
                self.mark(*within)
            return await execute(query, *values, **options)

        connection.execute = mortal  # type: ignore[method-assign]
        return connection
