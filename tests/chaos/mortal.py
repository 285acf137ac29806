"""Journals whose process may die around each of their transactions, and within it, before its commit."""

from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final, TypeVar

from payasync.journal import Journal, PostgresJournal, SqliteJournal
from payasync.journal.intents import Begun, Draft, Intent, Intents, State, Step
from payasync.journal.transactions import Transaction
from tests.chaos.tracing import Trace

T = TypeVar("T")

WITHIN: Final[ContextVar[tuple[str, str | None] | None]] = ContextVar("within", default=None)


class Mortal(Journal):
    """A journal that leaves a trace; each has its own `trace`."""

    trace: Trace

    def ticks(self) -> None:
        """Measure quarantines as where the system's own clock jumps, and not one that was given."""
        self._has_system_clock = True

    async def begin(self, draft: Draft, lease: float, *, service: str | None = None) -> Begun:
        """Keep an intention."""
        self.trace.mark("asking", draft.reference)
        token = WITHIN.set(("writing", draft.reference))
        try:
            return self._kept(await super().begin(draft, lease, service=service))
        finally:
            WITHIN.reset(token)

    async def claim(self, intent_id: int, lease: float, **facts: Any) -> Begun:
        """Claim what was queued."""
        return self._kept(await super().claim(intent_id, lease, **facts))

    def _kept(self, begun: Begun) -> Begun:
        if begun.step is Step.SEND:
            self.trace.mark("kept", begun.intent.reference)
        return begun

    async def settle(self, intent: Intent, state: State, **facts: Any) -> bool:
        """Keep a verdict."""
        self.trace.mark("judged", intent.reference)
        token = WITHIN.set(("settling", intent.reference))
        try:
            held = await super().settle(intent, state, **facts)
        finally:
            WITHIN.reset(token)
        self.trace.mark("settled", intent.reference)
        return held

    async def ask(self, limit: int, lease: float, **facts: Any) -> Intents:
        """Claim what is to be asked about."""
        found = await super().ask(limit, lease, **facts)
        for each in found:
            self.trace.mark("claimed", each.reference)
        return found

    async def _run(self, work: Callable[[datetime], Transaction[T]]) -> T:
        # Read here: the transaction itself runs elsewhere.
        within = WITHIN.get()

        def mortal(now: datetime) -> Transaction[T]:
            result = yield from work(now)
            if within:
                self.trace.mark(*within)
            return result

        return await super()._run(mortal)  # type: ignore[safe-super] # one of the journals below


class MortalSqlite(Mortal, SqliteJournal):
    """In a file."""


class MortalPostgres(Mortal, PostgresJournal):
    """In a database."""
