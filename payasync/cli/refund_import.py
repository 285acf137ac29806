"""`payasync refund import`: refunds of a file, checked as a whole before the first is sent."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from attrs import frozen

from payasync.cli import journal_at
from payasync.cli.exit_codes import CANNOT, INTERRUPTED
from payasync.cli.quiet import quiet
from payasync.cli.refund_again import sent_again
from payasync.cli.refund_import_screen import RefundImportScreen
from payasync.cli.refund_questions import check_askable
from payasync.cli.refund_results import ResultFile
from payasync.cli.refund_sending import BROKEN_OFF, RefundSending
from payasync.cli.refund_sheet import Row, read
from payasync.cli.refund_signals import stopped_by_signals
from payasync.cli.refund_verdicts import Verdict, exit_code, left_out
from payasync.cli.stopping import interruptible
from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.journal import Journal
from payasync.middleware.retry import Pace
from payasync.resources.refunds import CreateRefund
from payasync.session import Session


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
    address: journal_at.Address
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
        async with journal_at.session_with(kept, profile=options.profile, base_url=options.base_url) as session:
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
        stopped_by_signals(lambda: screen.cut_off(sending.in_doubt)) as stop,
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
