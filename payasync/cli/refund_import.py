"""`payasync refund import`: sends the refunds of a file, after all rows are valid."""

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, closing, suppress
from pathlib import Path
from typing import Any, Final

import click
from attrs import Factory, define, evolve
from rich.console import Console
from rich.progress import Progress, TaskID
from rich.text import Text

from payasync.cli import CANNOT, INTERRUPTED
from payasync.cli.intent_table import all_intents, duration
from payasync.cli.options import (
    Address,
    asks_service,
    close_journal,
    fail_unsent,
    fail_with_journal,
    journal_option,
    require_keys,
    session_with,
)
from payasync.cli.refund_file import (
    NOT_DONE,
    OPEN,
    OTHER_RUN,
    WORDS,
    ResultFile,
    Row,
    RowResult,
    Word,
    exit_code,
    locked,
    never_arrived,
    partial_file,
    read_rows,
    resubmissions,
    row_result_now,
    row_result_of_call,
    row_result_of_intent,
)
from payasync.cli.signals import run_until, stopped_by_signals
from payasync.cli.terminal import Lines, bare_table, existing_folder, print_error, stray_logs_dropped
from payasync.clocks import Pace, wall_time
from payasync.endpoints import CREATE_REFUND, QUERY_REFUND
from payasync.errors import (
    AuthenticationError,
    ConfigurationError,
    InvalidArgumentError,
    NotSentError,
    OutcomeUnknownError,
    PayasyncError,
    SessionClosedError,
    StorageError,
    plain,
)
from payasync.journal import Journal, Reconciler
from payasync.journal.intents import Intent
from payasync.journal.reconciler import LONGEST, SILENT
from payasync.profile.wire_names import unaskable
from payasync.session import Done, Result, Session
from payasync.wire.response import RefundResponse

WRONG_KEYS: Final = "the service rejects these keys"
NO_RESPONSE: Final = "the service sends no usable response"
STOPPED_BY_SIGNAL: Final = "interrupted"
UNAUTHORISED: Final = 401
DENIED: Final = 5
"""The number of refused orders in a row, before any other response, that means that the keys are wrong."""
GRACE: Final = 60.0
"""Seconds for calls in flight when the import stops."""
PATIENCE: Final = 180.0
"""Seconds for queries about rows in doubt: longer than a lease and a usual quarantine."""


@click.command("import", short_help="Send the refunds of a CSV file, each at most once.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@journal_option(
    existing=False, help="Records what was sent. Use the same journal for the same refunds. A missing file is created."
)
@click.option("--keep-going", is_flag=True, help="Skip invalid rows. Without it, one invalid row stops the import.")
@click.option(
    "--result",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=existing_folder,
    metavar="FILE",
    help="Write the result of each row to this CSV file.",
)
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="Maximum requests in flight.")
@asks_service
def import_(file: Path, address: Address, *, keep_going: bool, result: Path | None, limit: int, **service: Any) -> None:
    """Send the refunds of the CSV file FILE, each at most once.

    The columns are out_trade_no, out_refund_no, total_amt, refund_amt and optionally refund_desc and notify_url.
    Amounts are whole numbers in the service's unit. All rows are checked before the first is sent.

    You can interrupt it at any time, with Ctrl-C or by killing the process. Run the same command to continue. The
    journal decides what happens to each refund:

    \b
      done              not sent again
      in doubt          queried, as by payasync reconcile; sent again, once per
                        run, only if the service provably never received it
      refused, unsent   tried again

    It lists the rows that an earlier run reported as not done, and sends them again without a pause. Before you run it
    again, remove each row that was refunded by other means since. It stops if the service rejects the keys or does not
    respond. The keys come from the environment, as for `Credentials.from_env`.

    \b
    Example:
      payasync refund import refunds.csv --journal pay.db --result result.csv

    \b
    Exit codes:
      0    the service accepted all refunds
      1    some were refused, not sent, or left out
      2    nothing was sent: a row is invalid, or it cannot start
      3    some may have been done: rows are unknown or manual
      130  interrupted
    """  # noqa: D301 - click does not wrap a paragraph after this character
    screen = RefundImportScreen(file, address, service=service["base_url"] or "", result=result)
    try:
        journal = address.open(make=True)
        session = session_with(journal, **service)
        with locked(file):
            # No event loop runs yet, so that Ctrl-C ends it immediately, however long the file is.
            rows = read_file(file, session)
            if any(row.wrong for row in rows) and not keep_going:
                screen.refused(rows)
                sys.exit(CANNOT)
            code = asyncio.run(run(session, journal, rows, screen, result=result, limit=limit))
    except StorageError as error:
        fail_unsent("refund import", error)
    except PayasyncError as error:
        fail_with_journal("refund import", error)
    except KeyboardInterrupt:
        print_error("refund import", "interrupted; nothing was sent")
        code = INTERRUPTED
    sys.exit(code)


def read_file(file: Path, session: Session) -> tuple[Row, ...]:
    """Return the rows of a file, each checked as the session would check it before sending.

    Raises:
        InvalidArgumentError: The file cannot be read as a whole.
        ConfigurationError: The session could send no row.
    """
    try:
        return read_rows(file.read_text(encoding="utf-8-sig"), session.check)
    except ConfigurationError as error:
        error.add(reference=None)  # the setting is wrong, and not this row
        raise
    except UnicodeDecodeError as error:
        why = f"it must be UTF-8, and is not at byte {error.start}"
    except OSError as error:
        why = error.strerror or str(error)
    raise InvalidArgumentError(f"{str(file)!r} cannot be read: {why}", field="file", rule="a readable file")


async def run(
    session: Session,
    journal: Journal,
    rows: Sequence[Row],
    screen: "RefundImportScreen",
    *,
    result: Path | None = None,
    limit: int = 20,
    pace: Pace = Pace(clock=wall_time),
) -> int:
    """Import until all is done or a signal comes, close session and journal, and return the exit code.

    Args:
        session: Sends the refunds.
        journal: The session's journal.
        rows: Good and bad rows; the bad ones are left out.
        screen: Shows the progress.
        result: The path of the result file.
        limit: The greatest number of calls in flight.
        pace: Time, for tests: seconds since 1970, and waiting.

    Raises:
        PayasyncError: The import cannot begin; nothing was sent.
    """
    good = [row for row in rows if not row.wrong]
    try:
        missing = missing_point(session)
        async with session, journal.present() as is_alone:
            await journal.bind(session.merchant_id, session.service)
            empty = not await journal.list(limit=1)
            rejected = [each async for each in all_intents(journal, "rejected")]
            with closing(ResultFile(result)) as results:
                screen.opened(session, rows, new=empty, missing=missing)
                screen.resubmitted(resubmissions(rows, rejected, session.merchant_id))
                sending = RefundSending(session, journal, screen, results, limit, pace, is_alone)
                with screen.progress(len(good)), stray_logs_dropped():
                    await sending.run(good, stopped_by_signals(sending.cut_off))
                row_results = [
                    RowResult(row=row, state="left out", message=row.wrong)
                    if row.wrong
                    else sending.row_results[row.line]
                    for row in rows
                ]
                results.finish(row_results)
    finally:
        await close_journal("refund import", journal)
    screen.closed(row_results, why=sending.stopped, unwritten=results.failed)
    code = exit_code(row_results)
    return INTERRUPTED if sending.stopped == STOPPED_BY_SIGNAL and code < CANNOT else code


def missing_point(session: Session) -> str:
    """Return the point of the profile without which a refund cannot be queried by its number; empty if it can.

    Raises:
        ConfigurationError: It can, but the key that the query carries, or is signed with, is missing.
    """
    if session.profile.refund_status is None:
        return "refund_status"
    if unaskable(session.profile, QUERY_REFUND.name):
        return f'endpoints."{QUERY_REFUND.name}".number'
    require_keys(session, QUERY_REFUND.name, ", and without that query a lost response stays in doubt")
    return ""


@define(eq=False)
class RefundSending:
    """One run over the valid rows of a file.

    Attributes:
        session: Sends the rows; it is closed if the run stops early.
        journal: The session's journal.
        screen: Shows the progress.
        result: Stores each result.
        limit: The greatest number of calls in flight.
        pace: Time: seconds since 1970, and waiting.
        is_alone: Returns whether no other import uses the journal.
        row_results: The result of each row so far, by line.
        stopped: Why it stopped early, if it did.
    """

    session: Session
    journal: Journal
    screen: "RefundImportScreen"
    result: ResultFile
    limit: int
    pace: Pace
    is_alone: Callable[[], Awaitable[bool]]
    row_results: dict[int, RowResult] = Factory(dict)
    stopped: str = ""
    # One cause may lose the responses of all calls in flight.
    _stops: "StopConditions" = Factory(lambda self: StopConditions(max(SILENT, 2 * self.limit)), takes_self=True)
    _unended: set[int] = Factory(set)
    _not_begun: list[tuple[Row, Result[RefundResponse]]] = Factory(list)
    _over: bool = False

    async def run(self, rows: Sequence[Row], stop: asyncio.Event) -> None:
        """Send all rows that are not done by the journal, until `stop` is set; calls in flight then end.

        Raises:
            ConfigurationError: The session cannot send at all; nothing was sent.
        """
        ending = asyncio.ensure_future(self._close_on(stop))
        try:
            await self._send(rows, stop)
            # Once in a run: a service that loses a refund twice may lose it for ever.
            if lost := await self._reconcile(stop):
                await self._send(lost, stop)
                await self._reconcile(stop)
            await self._look_up()
        finally:
            self._over = True
            if not stop.is_set():
                ending.cancel()
            await asyncio.wait({ending})

    def cut_off(self) -> bool:
        """Show how many rows may have been done, unless all have ended; return whether any is left."""
        if not self._over:
            doubtful = {line for line, row_result in self.row_results.items() if row_result.state in OPEN}
            self.screen.cut_off(len(doubtful) + min(len(self._unended - doubtful), self.limit))
        return not self._over

    async def _close_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.screen.stopping(self.stopped)
        self.stopped = self.stopped or STOPPED_BY_SIGNAL
        # A closed session refuses the rows that have not begun.
        await self.session.aclose(grace=GRACE)

    async def _send(self, rows: Sequence[Row], stop: asyncio.Event) -> None:
        by_number = {row.number: row for row in rows}
        self._unended = {row.line for row in rows}
        results = self.session.bulk([row.request for row in rows if row.request], limit=self.limit)
        async with aclosing(results):
            async for result in results:
                row = by_number[str(result.request.reference)]
                if isinstance(result, Done) or not isinstance(result.error, SessionClosedError):
                    self._note(await self._row_result(row, result))
                else:
                    self._not_begun.append((row, result))
                self._unended.discard(row.line)
                if (why := self._stops.reason(result)) and not stop.is_set():
                    self.stopped = why
                    stop.set()

    async def _look_up(self) -> None:
        """Look up the rows that were not done, as late as possible: another run may have sent them since.

        While another one goes on, it may still send those that this run did not send, though its file is another one.
        """
        alone = await self.is_alone()  # first: a run that ends now is found in the journal
        with suppress(StorageError):
            for known in [each for each in self.row_results.values() if each.state in NOT_DONE]:
                intent = await self._intent(known.row)
                now = row_result_now(known, intent, self.session.profile, self.session.merchant_id)
                if now is not known:
                    self._note(now)
        for row, result in self._not_begun:
            self._note(await self._row_result(row, result))
        for known in [each for each in self.row_results.values() if each.state == "unsent" and not alone]:
            self._note(evolve(known, state="unknown", message=f"{known.message}; {OTHER_RUN}"))

    async def _row_result(self, row: Row, result: Result[RefundResponse]) -> RowResult:
        profile = self.session.profile
        try:
            return row_result_of_call(row, result, await self._intent(row), profile)
        except StorageError as error:
            return row_result_of_call(row, result, None, profile, unread=str(error.args[0]))

    def _note(self, row_result: RowResult) -> None:
        self.row_results[row_result.row.line] = row_result
        self.result.add(row_result)
        self.screen.noted(row_result)

    async def _intent(self, row: Row) -> Intent | None:
        found = await self.journal.find(CREATE_REFUND.name, row.number, merchant=self.session.merchant_id)
        return found[-1] if found else None

    async def _reconcile(self, stop: asyncio.Event) -> list[Row]:
        """Query the rows in doubt, and return those that the service never received."""
        rows = [each.row for each in self.row_results.values() if each.state == "unknown"]
        if not rows or stop.is_set():
            return []
        lost = []
        # What cannot be queried now stays in doubt, and `payasync reconcile` says why.
        with suppress(PayasyncError):
            await run_until(stop, self._ask(rows))
        with suppress(StorageError):
            for row in rows:
                known, intent = self.row_results[row.line], await self._intent(row)
                found = row_result_of_intent(row, intent, self.session.profile, reason=known.message)
                self._note(evolve(found, code=found.code or known.code, earlier=False))
                if never_arrived(intent):
                    lost.append(row)
        return [] if stop.is_set() else lost

    async def _ask(self, rows: Sequence[Row]) -> None:
        """Reconcile until no row is in doubt, or the next query is too far away."""
        merchant, until = self.session.merchant_id, self.pace.clock() + PATIENCE
        self.screen.asking(len(rows))
        async with aclosing(Reconciler(self.session, self.journal, pace=self.pace).watch()) as reports:
            async for report in reports:
                intents = [await self._intent(row) for row in rows]
                doubtful = sum(each is not None and each.state in {"sending", "unknown"} for each in intents)
                due, now = await self.journal.next_due(merchant), self.pace.clock()
                wait = max(LONGEST if report.silent else 0.0, due.timestamp() - now if due else PATIENCE)
                if not doubtful or now + wait > until:
                    return
                reasons = Counter(each.reason for each in intents if each and each.reason and each.state == "unknown")
                reason = reasons.most_common(1)[0][0] if reasons else ""
                self.screen.asking(doubtful, wait, reason, silent=report.silent)


class StopConditions:
    """Decides after each row whether the import stops; an error of one order does not stop it.

    Args:
        unanswered: The number of rows in succession without a response that stops it.
    """

    def __init__(self, unanswered: int) -> None:
        self._most = unanswered
        self._unanswered = 0
        self._denied = 0
        self._known = False

    def reason(self, result: Result[RefundResponse]) -> str:
        """Return why nothing more is to be sent after this result; empty if the import goes on."""
        error = None if isinstance(result, Done) else result.error
        if isinstance(error, ConfigurationError):
            return str(error.args[0])
        if not (result.response.attempts if isinstance(result, Done) else result.error.attempts):
            return ""  # the result is the journal's, which says nothing about the service
        if isinstance(error, OutcomeUnknownError | NotSentError):
            self._unanswered += 1
            return NO_RESPONSE if self._unanswered >= self._most else ""
        self._unanswered = 0
        if not isinstance(error, AuthenticationError):
            self._known = True
            return ""
        self._denied += 1
        wrong = error.http_status == UNAUTHORISED or (self._denied >= DENIED and not self._known)
        return WRONG_KEYS if wrong else ""


ROWS: Final = 20
"""The greatest number of rows that are listed."""
_REASONS: Final = 3
"""The greatest number of reasons that are shown for a state, the most frequent first."""
_NOTED: Final = 5.0
"""Seconds from which on a wait is announced, once for each cause."""
_WIDTH: Final = 11
_STATES: Final[dict[Word, tuple[str, str]]] = {
    "succeeded": ("bold green", ""),
    "accepted": ("bold cyan", "accepted by the service, not final yet"),
    "refused": ("bold magenta", "not done"),
    "unsent": ("bold yellow", "not done; this run did not send them"),
    "left out": ("bold yellow", "invalid rows"),
    "unknown": ("bold yellow", "they may have been done"),
    "manual": ("bold red", "only a person can find out what happened"),
}
"""The style and the meaning of each state."""


class RefundImportScreen:
    """What a person sees of the import.

    Args:
        file: The file of the refunds.
        journal: Where the journal is.
        service: The service's address.
        result: The result file, if there is one.
        console: Written to in place of the terminal.
    """

    def __init__(
        self, file: Path, journal: Address, *, service: str, result: Path | None = None, console: Console | None = None
    ) -> None:
        self._file = file
        self._journal = journal
        self._service = service
        self._result = result
        self._lines = Lines(console)
        self._bar = self._lines.progress("Refunding")
        self._ended: set[int] = set()
        self._announced: set[bool] = set()

    def refused(self, rows: Sequence[Row]) -> None:
        """Show the invalid rows of a file that is not sent."""
        bad = [row for row in rows if row.wrong]
        write = self._lines.write
        self._title()
        write((f"  {_rows(len(bad))} of {len(rows):,} cannot be sent.", "bold red"), " Nothing was sent.")
        self._bad(bad)
        self._lines.paragraph("  Correct these rows, or skip them with --keep-going.")

    def opened(self, session: Session, rows: Sequence[Row], *, new: bool, missing: str) -> None:
        """Show the planned refunds, and the rows that are left out.

        Args:
            session: The session that sends.
            rows: Good and bad rows.
            new: Whether the journal is empty.
            missing: The point of the profile without which no refund can be queried; empty if it can.
        """
        good = [row.request for row in rows if row.request]
        bad = [row for row in rows if row.wrong]
        unit = session.profile.amount_unit
        self._title()
        for name, value in (
            ("Service", self._service),
            ("Merchant", session.merchant_id),
            ("Journal", self._journal.shown + (", which is empty" if new else "")),
            ("Refunds", f"{len(good):,}"),
            ("Amount", f"{sum(each.refund_amt for each in good):,}{f' {unit} units' if unit else ''} in all"),
        ):
            self._lines.row(name, plain(value), "bold")
        self._lines.write()
        if bad:
            self._lines.write((f"  {_rows(len(bad))} left out", "bold yellow"))
            self._bad(bad)
        if missing:
            self._lines.paragraph(
                ("  A lost response will need a person", "bold yellow"),
                f": the profile does not say how to query a refund by your number ({missing}).",
                hang=2,
            )

    def resubmitted(self, found: Sequence[RowResult]) -> None:
        """List the rows that are sent again, and may have been refunded by other means since they were rejected."""
        if not found:
            return
        are, they = ("is", "it was") if len(found) == 1 else ("are", "they were")
        self._lines.paragraph(
            (f"  {_rows(len(found))} {are} sent again", "bold yellow"),
            f": {they} reported as not done, so somebody may have refunded by other means.",
            hang=2,
        )
        self._table(
            ("Line", "Refund", "Amount", "Why it was not done"),
            ((str(each.row.line), each.row.number, each.row.cells["refund_amt"], each.message) for each in found),
        )
        self._lines.paragraph(
            ("  Ctrl-C stops only rows that have not begun.", "bold"),
            " Remove the rows that were refunded by other means before the next run.",
            hang=2,
        )

    def progress(self, total: int) -> Progress:
        """Return the progress bar; enter it to show it."""
        self._bar.update(TaskID(0), total=total)
        return self._bar

    def noted(self, row_result: RowResult) -> None:
        """Count a row that has ended; a row in doubt has not."""
        (self._ended.discard if row_result.state == "unknown" else self._ended.add)(row_result.row.line)
        self._bar.update(TaskID(0), completed=len(self._ended))

    def asking(self, count: int, seconds: float = 0, reason: str = "", *, silent: bool = False) -> None:
        """Show how many rows are in doubt, when the next query is, and the most frequent reason of the doubt."""
        self._bar.update(TaskID(0), description=f"Querying {count:,}")
        if seconds > _NOTED and silent not in self._announced:
            self._announced.add(silent)
            why = "The service does not respond: " if silent else ""
            words = f"{_rows(count)} in doubt; the next query is in {duration(seconds)}."
            self._lines.paragraph(f"  {why}{words}", (f" Reason: {plain(reason)}" if reason else "", "dim"), hang=2)

    def stopping(self, why: str = "") -> None:
        """Show that no further row begins, and how to interrupt the calls in flight.

        Args:
            why: Why the import stops by itself; empty if a first signal came.
        """
        # The second signal ends the process, and the cursor would stay hidden.
        self._lines.console.show_cursor()
        self._bar.update(TaskID(0), description="Stopping")
        self._lines.write((f"  Stopping{f': {why}' if why else ''}.", "bold yellow"), hang=2)
        pressed = "twice" if why else "again"
        self._lines.paragraph(f"  Waiting for the calls in flight; Ctrl-C {pressed} interrupts them.")

    def cut_off(self, count: int) -> None:
        """Show how many rows may have been done when calls are interrupted, and where the results are."""
        self._bar.stop()
        where = "the journal" if self._result is None else plain(str(partial_file(self._result)))
        doubt = f"up to {_rows(count)} may have been done" if count else "nothing is in doubt"
        self._lines.write(
            ("  Interrupted: ", "bold yellow"),
            f"{doubt}. The results so far are in {where}. Run the same command to continue.",
            hang=2,
        )

    def closed(self, row_results: Sequence[RowResult], *, why: str, unwritten: str) -> None:
        """Show the result of all rows, and the next steps.

        Args:
            row_results: The results of all rows, in their order.
            why: Why the import stopped early, if it did.
            unwritten: Why the result file could not be written, if so.
        """
        write = self._lines.write
        if why:
            self._lines.paragraph((f"  Stopped: {why}.", "bold yellow"), " Run the same command to continue.", hang=2)
        if not row_results:
            write("  There was nothing to refund.")
        for word in WORDS:
            if mine := [each for each in row_results if each.state == word]:
                self._summary(word, mine)
        write()
        self._doubtful([each for each in row_results if each.state in OPEN])
        if unwritten:
            self._lines.paragraph(("  The result file could not be written: ", "bold red"), plain(unwritten))
        elif self._result is not None:
            self._lines.paragraph(("  Result of each row: ", "dim"), (plain(str(self._result)), "cyan"))

    def _summary(self, word: Word, mine: Sequence[RowResult]) -> None:
        write, indent = self._lines.write, " " * (2 + _WIDTH)
        style, meaning = _STATES[word]
        amount = sum(each.row.request.refund_amt for each in mine if each.row.request)
        write(
            (f"  {word:{_WIDTH}}", style),
            (f"{len(mine):>7,}", "bold"),
            f"{f'{amount:,}' if amount else '':>16}",
            (f"  {meaning}".rstrip(), "dim"),
        )
        if earlier := sum(each.earlier for each in mine):
            write((f"{indent}{earlier:>7,}  of them done by an earlier run, not sent again", "dim"))
        if word in {"succeeded", "accepted", "left out"}:
            return
        reasons = Counter(f"{each.code} {each.message}".strip() or "-" for each in mine)
        for reason, many in reasons.most_common(_REASONS):
            write((f"{indent}{many:>7,}  {plain(reason)}", "dim"), hang=len(indent) + 9)
        if (others := len(reasons) - _REASONS) > 0:
            write((f"{indent}{'':>7}  and {others} other reasons", "dim"))

    def _doubtful(self, row_results: Sequence[RowResult]) -> None:
        if not row_results:
            return
        write, journal = self._lines.write, plain(self._journal.option)
        cells = ("out_refund_no", "out_trade_no", "refund_amt")
        self._table(
            ("Line", "Refund", "Order", "Amount", "State"),
            ((str(each.row.line), *(each.row.cells[name] for name in cells), each.state) for each in row_results),
        )
        write(
            ("  Do not send them by other means.", "bold"),
            " To query the unknown ones, run the same command, or",
            hang=2,
        )
        self._lines.paragraph((f"  payasync reconcile{journal}", "cyan"))
        if any(each.state == "manual" for each in row_results):
            write("  Look up the manual ones in the service's back office. To list their intent IDs:")
            self._lines.paragraph((f"  payasync journal list{journal} --state manual", "cyan"))

    def _bad(self, rows: Sequence[Row]) -> None:
        self._lines.write()
        cells = ((str(each.line), each.number or "-", each.wrong) for each in rows)
        self._table(("Line", "Refund", "What is wrong"), cells)

    def _table(self, names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Show the first rows, each with its line and its refund, and say how many more there are."""
        cells = [[Text(plain(each), "bold" if place == 1 else "") for place, each in enumerate(row)] for row in rows]
        self._lines.print(bare_table(names, cells[:ROWS]), indent=2)
        if (more := len(cells) - ROWS) > 0:
            self._lines.write((f"  … and {more:,} more", "dim"))
        self._lines.write()

    def _title(self) -> None:
        self._lines.write()
        self._lines.title("refund import", (plain(str(self._file)), "bold"))


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
