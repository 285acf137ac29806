"""Sends refunds, each at most once however often it is interrupted: the journal knows which were begun.

What a former run has left in doubt is asked about, as `payasync reconcile` does, and sent only where it provably never
arrived.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing, suppress
from math import inf
from typing import Final, Protocol

from attrs import evolve

from payasync.bulk import Refused, Result
from payasync.cli.refund_sheet import Row
from payasync.cli.refund_stops import Stops
from payasync.cli.refund_verdicts import OPEN, Verdict, never_arrived, not_begun, of_kept, of_result
from payasync.errors import ConfigurationError, SessionClosedError, StorageError
from payasync.journal import Intent, Journal, Reconciler
from payasync.journal.reconciler import LONGEST
from payasync.journal.reconciling import SILENT
from payasync.middleware.retry import Pace
from payasync.operations import CREATE_REFUND
from payasync.responses import RefundResponse
from payasync.session import Session

GRACE: Final = 60.0
"""Seconds for those under way, where it is to end."""
PATIENCE: Final = 180.0
"""Seconds in which the service is asked about what is in doubt: longer than a lease and a usual quarantine."""
SHORTEST: Final = 0.2
"""Seconds between two rounds of questions, at least."""

PART: Final = 2000
"""Rows that are begun one after the other; what comes behind them costs nothing, where it is to end early."""
AT_ONCE: Final = 500
"""Rows that are looked up in the journal together."""

BROKEN_OFF: Final = "interrupted"


class Watcher(Protocol):
    """Who is told how far it is."""

    def heard(self, verdict: Verdict) -> None:
        """Hear what became of a row; later news of the same row go before."""
        ...

    def asking(self, count: int, seconds: float, *, silent: bool = False) -> None:
        """Hear that so many are in doubt, and in how many seconds the service is asked; or that it answers nobody."""
        ...

    def stopping(self, why: str) -> None:
        """Hear that no further one begins, and why; nothing, where a signal came."""
        ...

    def looking_up(self, count: int) -> None:
        """Hear that so many were not begun, and are looked up in the journal."""
        ...


class RefundSending:
    """One run over the good rows of a file.

    Args:
        session: Sends them; it is closed where the run is to end early.
        journal: The session's.
        watcher: Is told how far it is.
        limit: At most so many at once.
        pace: Time: seconds since 1970, and waiting.

    Attributes:
        verdicts: By line, what became of each row so far.
        stopped: Why it ended early, where it did.
    """

    def __init__(self, session: Session, journal: Journal, watcher: Watcher, *, limit: int, pace: Pace) -> None:
        self.verdicts: dict[int, Verdict] = {}
        self.stopped = ""
        self._session = session
        self._journal = journal
        self._watcher = watcher
        self._limit = limit
        self._pace = pace
        # All that are under way at once may fail of one and the same thing.
        self._stops = Stops(max(SILENT, 2 * limit))
        self._repeated: set[int] = set()
        self._open: set[int] = set()

    @property
    def in_doubt(self) -> int:
        """How many may have been done by now, at most, and nobody knows: those in doubt, and those under way."""
        doubtful = {line for line, verdict in self.verdicts.items() if verdict.state in OPEN}
        return len(doubtful) + min(len(self._open - doubtful), self._limit)

    async def run(self, rows: Sequence[Row], stop: asyncio.Event) -> None:
        """Send all that the journal does not know to be done, until `stop` is set; those under way come to their end.

        Raises:
            ConfigurationError: The session cannot send at all; nothing was sent.
        """
        ending = asyncio.ensure_future(self._end_on(stop))
        try:
            await self._send(rows, stop)
            with suppress(SessionClosedError, StorageError):
                await self._ask(rows, stop)
        except ConfigurationError as error:
            if not self.verdicts:
                raise
            self._stop(str(error.args[0]), stop)
        finally:
            if not stop.is_set():
                ending.cancel()
            await asyncio.wait({ending})
        await self._look_up([row for row in rows if row.line not in self.verdicts])

    async def _end_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._watcher.stopping(self.stopped)
        self.stopped = self.stopped or BROKEN_OFF
        # What has not begun is refused by a session that is closed.
        await self._session.aclose(grace=GRACE)

    def _stop(self, why: str, stop: asyncio.Event) -> None:
        self.stopped = self.stopped or why
        stop.set()

    async def _send(self, rows: Sequence[Row], stop: asyncio.Event) -> None:
        for part in _parts(rows, PART):
            if stop.is_set():
                return
            await self._send_part(part, stop)

    async def _send_part(self, rows: Sequence[Row], stop: asyncio.Event) -> None:
        by_number = {row.number: row for row in rows}
        requests = [row.request for row in rows if row.request is not None]
        self._open = {row.line for row in rows}
        async with aclosing(self._session.bulk(requests, limit=self._limit)) as results:
            async for result in results:
                row = by_number[str(result.request.reference)]
                await self._note(row, result, stop)
                self._open.discard(row.line)

    async def _note(self, row: Row, result: Result[RefundResponse], stop: asyncio.Event) -> None:
        error = result.error if isinstance(result, Refused) else None
        if isinstance(error, SessionClosedError):
            return  # it was not begun, and is looked up with the others
        if isinstance(error, ConfigurationError) and not self.verdicts:
            raise error
        verdict = await self._verdict(row, result)
        # What this run has begun is answered from the journal, too, once it was asked about.
        self._hear(evolve(verdict, earlier=False) if row.line in self.verdicts else verdict)
        why = str(error.args[0]) if isinstance(error, ConfigurationError) else self._stops.why(result)
        if why:
            self._stop(why, stop)

    async def _verdict(self, row: Row, result: Result[RefundResponse]) -> Verdict:
        profile = self._session.profile
        try:
            return of_result(row, result, await self._kept(row), profile)
        except StorageError as error:
            return of_result(row, result, None, profile, unread=str(error.args[0]))

    async def _look_up(self, rows: Sequence[Row]) -> None:
        """Say of what was not begun what the journal has of it: a former run may have done it."""
        if rows:
            self._watcher.looking_up(len(rows))
        for part in _parts(rows, AT_ONCE):
            for verdict in await asyncio.gather(*map(self._not_begun, part)):
                self._hear(verdict)

    async def _not_begun(self, row: Row) -> Verdict:
        try:
            return not_begun(row, await self._kept(row))
        except StorageError as error:
            return not_begun(row, None, unread=str(error.args[0]))

    def _hear(self, verdict: Verdict) -> None:
        self.verdicts[verdict.row.line] = verdict
        self._watcher.heard(verdict)

    async def _kept(self, row: Row) -> Intent | None:
        found = await self._journal.find(CREATE_REFUND.name, row.number, merchant=self._session.merchant_id)
        return found[-1] if found else None

    async def _ask(self, rows: Sequence[Row], stop: asyncio.Event) -> None:
        """Ask about what is in doubt, as long as that leads on within a few minutes.

        A service that answers nobody is left in peace for as long as a reconciler that watches leaves it.
        """
        reconciler = Reconciler(self._session, self._journal, pace=self._pace)
        until = self._pace.clock() + PATIENCE
        while not stop.is_set() and (doubtful := self._in_doubt(rows)):
            self._watcher.asking(len(doubtful), 0)
            silent = (await reconciler.run_once()).silent
            await self._told(doubtful, stop)
            due = [await self._due(row) for row in self._in_doubt(rows)]
            now = self._pace.clock()
            moment = max(min(due, default=inf), now + (LONGEST if silent else SHORTEST))
            if stop.is_set() or moment > until:
                return
            self._watcher.asking(len(due), moment - now, silent=silent)
            await self._pause(moment - now, stop)

    def _in_doubt(self, rows: Sequence[Row]) -> list[Row]:
        known = self.verdicts
        return [row for row in rows if row.line in known and known[row.line].state == "unknown"]

    async def _told(self, doubtful: Sequence[Row], stop: asyncio.Event) -> None:
        """Take the journal's word on what was in doubt; send what it answers by now, or what never arrived."""
        ready = []
        for row in doubtful:
            kept = await self._kept(row)
            if kept and (kept.state in {"accepted", "succeeded"} or self._may_repeat(row, kept)):
                ready.append(row)
            else:
                known = self.verdicts[row.line]
                self._hear(evolve(of_kept(row, kept, known.message), code=known.code))
        if ready:
            await self._send(ready, stop)

    def _may_repeat(self, row: Row, kept: Intent) -> bool:
        """Return whether a row is sent again, once: a service that loses it twice may lose it for ever."""
        repeats = never_arrived(kept) and row.line not in self._repeated
        if repeats:
            self._repeated.add(row.line)
        return repeats

    async def _due(self, row: Row) -> float:
        kept = await self._kept(row)
        moment = (kept.lease or kept.due) if kept else None
        return inf if moment is None else moment.timestamp()

    async def _pause(self, seconds: float, stop: asyncio.Event) -> None:
        waits = {asyncio.ensure_future(stop.wait()), asyncio.ensure_future(self._pace.sleep(seconds))}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.wait(waits)


def _parts(rows: Sequence[Row], size: int) -> Iterator[Sequence[Row]]:
    """Yield rows, so many at a time."""
    for begin in range(0, len(rows), size):
        yield rows[begin : begin + size]
