"""`payasync refund import`: refunds of a file, checked as a whole before the first is sent."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import aclosing, suppress
from functools import partial
from math import inf
from pathlib import Path
from typing import Final, Protocol

from attrs import evolve, frozen

from payasync.cli.journal_option import Address, session_with
from payasync.cli.refund_file import (
    OPEN,
    ResultFile,
    Row,
    Verdict,
    exit_code,
    left_out,
    never_arrived,
    not_begun,
    of_kept,
    of_result,
    read,
    sent_again,
)
from payasync.cli.refund_import_screen import RefundImportScreen
from payasync.cli.signals import CANNOT, INTERRUPTED, import_ended_by_signals, interruptible
from payasync.cli.terminal import quiet
from payasync.endpoints import CREATE_REFUND, QUERY_REFUND
from payasync.errors import (
    AuthenticationError,
    ConfigurationError,
    InvalidArgumentError,
    NotSentError,
    OutcomeUnknownError,
    SessionClosedError,
    StorageError,
)
from payasync.journal import Journal, Reconciler
from payasync.journal.intents import Intent
from payasync.journal.reconciler import LONGEST, SILENT
from payasync.resources.refunds import CreateRefund
from payasync.session import Done, Refused, Result, Session
from payasync.settings import Pace
from payasync.wire.response import RefundResponse

WRONG_KEYS: Final = "the service does not take these keys"
NO_ANSWER: Final = "the service gives no answer that says what was done"
UNAUTHORISED: Final = 401
DENIED: Final = 5
"""So many orders that may not be refunded are no accident, where none could be."""


class Stops:
    """Hears of each row. What is wrong with one order, or one answer, stops nothing.

    Args:
        unanswered: So many rows without an answer, one after the other, stop it.
    """

    def __init__(self, unanswered: int) -> None:
        self._most = unanswered
        self._unanswered = 0
        self._denied = 0
        self._known = False

    def why(self, result: Result[RefundResponse]) -> str:
        """Return why nothing more is to be sent after this result; nothing, where it may go on."""
        error = None if isinstance(result, Done) else result.error
        if not (result.response.attempts if isinstance(result, Done) else result.error.attempts):
            return ""  # the journal has answered, and says nothing of the service
        if isinstance(error, OutcomeUnknownError | NotSentError):
            self._unanswered += 1
            return NO_ANSWER if self._unanswered >= self._most else ""
        self._unanswered = 0
        if not isinstance(error, AuthenticationError):
            self._known = True
            return ""
        self._denied += 1
        denied = error.http_status == UNAUTHORISED or (self._denied >= DENIED and not self._known)
        return WRONG_KEYS if denied else ""


def check_askable(session: Session) -> bool:
    """Return whether the profile says how to ask; without that, a lost answer needs a person.

    Raises:
        ConfigurationError: It does, and the key is missing that the question carries, or is signed with.
    """
    profile, keys = session.profile, session.credentials
    if profile.refund_status is None:
        return False
    for name, listed in (("secret_key", profile.bearer), ("signing_key", profile.signed)):
        if QUERY_REFUND.name in listed and getattr(keys, name) is None:
            raise ConfigurationError(
                f"credentials.{name} is not set (PAYASYNC_{name.upper()} in the environment): {QUERY_REFUND.name} "
                "needs it, and without that nobody could ask about a lost answer. Nothing was sent",
                field=f"credentials.{name}",
            )
    return True


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


@frozen(kw_only=True)
class Options:
    """What the command was given.

    Attributes:
        file: The refunds.
        address: Of the journal; a file is made where there is none.
        keep_going: Leave out bad rows, in place of all.
        result: Where to write what became of each row.
        profile: A TOML file; `None`: what `PAYASYNC_PROFILE` names.
        base_url: The service's address; `None`: what `PAYASYNC_BASE_URL` says.
        limit: At most so many at once.
    """

    file: Path
    address: Address
    keep_going: bool = False
    result: Path | None = None
    profile: str | None = None
    base_url: str | None = None
    limit: int = 20


async def run(
    options: Options, screen: RefundImportScreen, journal: Journal | None = None, pace: Pace = Pace(clock=time.time)
) -> int:
    """Import, until all is done or a signal comes, and return the exit code.

    Args:
        options: What the command was given.
        screen: Shows it.
        journal: In place of the file's.
        pace: Time, for tests: seconds since 1970, and waiting.

    Raises:
        PayasyncError: It cannot begin; nothing was sent.
    """
    kept = journal or options.address.open()
    try:
        async with session_with(kept, profile=options.profile, base_url=options.base_url) as session:
            with interruptible():
                rows = read(_text(options.file), partial(_check, session))
            if any(row.wrong for row in rows) and not options.keep_going:
                screen.refused(rows)
                return CANNOT
            askable = check_askable(session)
            await kept.bind(session.merchant_id, session.service)
            empty = not await kept.list(limit=1)
            again = await sent_again(kept, session.merchant_id, rows)
            with ResultFile(options.result) as result:
                screen.opened(session.merchant_id, rows, new=empty, unit=session.profile.amount_unit)
                if not askable:
                    screen.unaskable()
                screen.again(again)
                sending = RefundSending(session, kept, _Watcher(screen, result), limit=options.limit, pace=pace)
                verdicts = await _sent(sending, rows, screen)
                result.finish(verdicts)
    finally:
        await kept.aclose()
    screen.closed(verdicts, why=sending.stopped, unwritten=result.failed)
    code = exit_code(verdicts)
    return INTERRUPTED if sending.stopped == BROKEN_OFF and code < CANNOT else code


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        why = f"it must be UTF-8, and is not at byte {error.start}"
    except OSError as error:
        why = str(error.strerror or error)
    raise InvalidArgumentError(f"{str(file)!r} cannot be read: {why}", field="file", rule="a readable file")


def _check(session: Session, request: CreateRefund) -> None:
    try:
        session.check(request)
    except ConfigurationError as error:
        error.add(reference=None)  # the setting is wrong, and not this row
        raise


async def _sent(sending: RefundSending, rows: Sequence[Row], screen: RefundImportScreen) -> Sequence[Verdict]:
    """Send the good rows, and return what became of all."""
    good = [row for row in rows if not row.wrong]
    with (
        screen.progress(len(good)),
        quiet(),
        import_ended_by_signals(lambda: screen.cut_off(sending.in_doubt)) as stop,
    ):
        await sending.run(good, stop)
    return [sending.verdicts.get(row.line) or left_out(row) for row in rows]


class _Watcher:
    """Tells the screen, and the result file."""

    def __init__(self, screen: RefundImportScreen, result: ResultFile) -> None:
        self.asking = screen.asking
        self.stopping = screen.stopping
        self.looking_up = screen.looking_up
        self._screen = screen
        self._result = result

    def heard(self, verdict: Verdict) -> None:
        """Hear what became of a row."""
        self._result.add(verdict)
        self._screen.heard(verdict)
