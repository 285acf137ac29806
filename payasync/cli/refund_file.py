"""The CSV file of refunds, and the CSV file with the result of each row."""

import csv
import io
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, get_args

from attrs import asdict, evolve, field, frozen

from payasync.cli import NEEDS_A_PERSON
from payasync.endpoints import CREATE_REFUND
from payasync.errors import (
    ConfigurationError,
    DuplicateError,
    IntentConflictError,
    InvalidArgumentError,
    ServiceError,
    SessionClosedError,
    clean,
    plain,
)
from payasync.journal.drafts import digest
from payasync.journal.intents import Intent, State, write_state
from payasync.journal.replay import recorded_reply
from payasync.profile.profile import Profile
from payasync.resources.refunds import CreateRefund
from payasync.session import Done, Result, Unknown
from payasync.settings import check_private, lock_file, new_private
from payasync.strict_json import ABSENT
from payasync.wire.response import RefundResponse, scalar_at

REQUIRED: Final = ("out_trade_no", "out_refund_no", "total_amt", "refund_amt")
OPTIONAL: Final = ("refund_desc", "notify_url")
WAIT: Final = "Nothing was sent. Wait until that run has ended, and run this command again"
# No sign, no separators, and no more digits than an amount has: what a spreadsheet has made of it is not guessed.
_AMOUNT: Final = re.compile(r"[0-9]{1,16}")


@frozen(kw_only=True)
class Row:
    """A row of the file.

    Attributes:
        line: The line where it begins, from 1 on.
        cells: The cells by column; missing ones are left out.
        request: The refund, if the row is valid.
        wrong: The defect of the row, if it is invalid.
    """

    line: int
    cells: Mapping[str, str] = field(repr=False)
    request: CreateRefund | None = None
    wrong: str = ""

    @property
    def number(self) -> str:
        """The number of the refund."""
        return self.cells.get("out_refund_no", "")


@contextmanager
def locked(file: Path) -> Generator[None]:
    """Hold the lock of a file of refunds, by whatever path it is named; nothing but a regular file has one.

    Raises:
        InvalidArgumentError: Another run holds it.
    """
    with ExitStack() as stack:
        if file.is_file() and not _hold_lock(file, stack):
            why = f"{str(file)!r} is locked, because another run imports it. {WAIT}"
            raise InvalidArgumentError(why, field="file", rule="no file that another run imports")
        yield


def _hold_lock(path: Path, stack: ExitStack) -> bool:
    """Lock a file until the stack is closed; return whether no other run has locked it, or put another in its place."""
    if sys.platform != "win32":  # which cannot remove an open file
        with suppress(FileNotFoundError, PermissionError):  # whoever reads or makes the file says it
            descriptor = stack.enter_context(path.open("rb")).fileno()
            return lock_file(descriptor) and os.path.samestat(os.fstat(descriptor), path.stat())
    return True


def read_rows(text: str, check: Callable[[CreateRefund], object]) -> tuple[Row, ...]:
    """Return all rows of a file, valid and invalid ones, in their order.

    Args:
        text: The content of the file.
        check: Refuses a refund that cannot be sent, by an `InvalidArgumentError`.

    Raises:
        InvalidArgumentError: The columns are wrong, or the file is not CSV.
    """
    records = _records(text)
    _, columns = next(records, (1, []))
    _check_columns(columns)
    rows = [
        (len(record), Row(line=line, cells=dict(zip(columns, record, strict=False))))
        for line, record in records
        if record
    ]
    lines: dict[str, list[int]] = {}
    for _, row in rows:
        lines.setdefault(row.number, []).append(row.line)
    return tuple(_checked(row, count, len(columns), lines[row.number], check) for count, row in rows)


def _records(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield where each record begins, and its cells."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    begins = 1
    try:
        for record in reader:
            yield begins, record
            begins = reader.line_num + 1
    except csv.Error as error:
        raise InvalidArgumentError(f"line {begins}: not CSV: {error}", field="file", rule="CSV") from None


def _check_columns(columns: Sequence[str]) -> None:
    twice = [name for name, count in Counter(columns).items() if count > 1]
    missing = [name for name in REQUIRED if name not in columns]
    unknown = [name for name in columns if name not in {*REQUIRED, *OPTIONAL}]
    found = (("duplicate", twice), ("missing", missing), ("unknown", unknown))
    if wrong := [
        f"{', '.join(map(repr, names))} {'is' if len(names) == 1 else 'are'} {how}" for how, names in found if names
    ]:
        rule = f"{','.join(REQUIRED)}[,{','.join(OPTIONAL)}]"
        why = f"line 1: the columns must be {rule}, with commas between them: {'; '.join(wrong)}"
        raise InvalidArgumentError(why, field="file", rule=rule)


def _checked(row: Row, count: int, columns: int, lines: Sequence[int], check: Callable[[CreateRefund], object]) -> Row:
    """Return a row with its request, or with its defect."""
    if count != columns:
        return evolve(row, wrong=f"the row has {count} cells, but there are {columns} columns")
    arguments: dict[str, Any] = {name: row.cells[name] for name in REQUIRED}
    arguments |= {name: row.cells.get(name) or ABSENT for name in OPTIONAL}
    for name in ("total_amt", "refund_amt"):
        if _AMOUNT.fullmatch(arguments[name]):
            arguments[name] = int(arguments[name])
    try:
        request = CreateRefund(**arguments)
        check(request)
    except InvalidArgumentError as error:
        return evolve(row, wrong=str(error.args[0]))
    if len(lines) > 1:
        # One of the rows may be a mistake, and the file does not say which.
        where = f"{', '.join(map(str, lines[:-1]))} and {lines[-1]}"
        return evolve(row, wrong=f"out_refund_no must be unique: {row.number!r} is on lines {where}")
    return evolve(row, request=request)


Word = Literal["succeeded", "accepted", "refused", "unsent", "left out", "unknown", "manual"]
QUEUED: Final = "it is queued, and a worker may still send it"
OTHER_RUN: Final = "another import may use this journal, and send it. Wait until no other runs, and run this one again"
NOT_FINISHED: Final = "another run began it, and has not finished it"
WORDS: Final[tuple[Word, ...]] = get_args(Word)
"""The possible results of a row."""
OPEN: Final[frozenset[Word]] = frozenset({"unknown", "manual"})
"""The refund may have been made."""
NOT_DONE: Final[frozenset[Word]] = frozenset({"refused", "unsent"})
"""Somebody may refund it by other means."""

_WORD_OF_STATE: Final[dict[State, Word]] = {
    "new": "unsent",
    "sending": "unknown",
    "accepted": "accepted",
    "succeeded": "succeeded",
    "rejected": "refused",
    "unknown": "unknown",
    "manual": "manual",
}
_TAKEN: Final[frozenset[State]] = frozenset({"accepted", "succeeded"})
_USED_FOR: Final[dict[State, str]] = {
    "accepted": "was already refunded",
    "succeeded": "was already refunded",
    "new": "was used before",
    "rejected": "was used before",
}
"""What happened to the other refund of a number; in any other state it may have been made."""

ALL_WELL: Final = 0
SOME_REFUSED: Final = 1


@frozen(kw_only=True)
class RowResult:
    """The result of a row.

    Attributes:
        row: The row.
        state: One of `WORDS`.
        code: The service's result code, if it gave one.
        message: The service's words, or ours.
        earlier: The journal says that an earlier run made the refund; this run sent nothing.
    """

    row: Row
    state: Word
    code: str = ""
    message: str = ""
    earlier: bool = False


def row_result_of_call(
    row: Row, result: Result[RefundResponse], intent: Intent | None, profile: Profile, *, unread: str = ""
) -> RowResult:
    """Return the result of a row that was given to `Session.bulk`.

    Args:
        row: The row.
        result: The result of its call.
        intent: What the journal says of the refund now.
        profile: Says where code and message stand in a response.
        unread: Why the journal could not be read, if so.
    """
    if isinstance(result, Done):
        return _row_result_of_response(row, result.response, intent, profile)
    error = result.error
    if isinstance(result, Unknown):
        found = row_result_of_intent(row, intent, profile, reason=result.reason)
        # The service's words stay until the journal knows more.
        return _with_error(found, error) if isinstance(error, DuplicateError) and found.state in OPEN else found
    if isinstance(error, ServiceError):
        state = intent.state if intent and intent.state in {"unknown", "manual"} else "rejected"
        return _with_error(RowResult(row=row, state=_WORD_OF_STATE[state]), error)
    if isinstance(error, IntentConflictError) and intent:
        return _row_result_of_conflict(row, intent)
    why = "not begun" if isinstance(error, SessionClosedError) else str(error.args[0])
    return _row_result_of_unsent(row, why, intent, profile, unread)


def _row_result_of_unsent(row: Row, why: str, intent: Intent | None, profile: Profile, unread: str) -> RowResult:
    """Return what the journal says of a row of which this run sent nothing: an earlier run may have."""
    if unread:
        return RowResult(row=row, state="unknown", message=f"{why}; an earlier run may have sent it: {unread}")
    if intent is None or _waits_unsent(intent) or (intent.state == "rejected" and intent.sent_at is None):
        return RowResult(row=row, state="unsent", message=why)
    return evolve(row_result_of_intent(row, intent, profile, reason=NOT_FINISHED), earlier=intent.state in _TAKEN)


def row_result_of_intent(row: Row, intent: Intent | None, profile: Profile, *, reason: str = "") -> RowResult:
    """Return what the journal says of a row.

    Args:
        row: The row.
        intent: What the journal has of it.
        profile: Says where code and message stand in a response.
        reason: Why the row is in doubt, if the journal does not say it.
    """
    if intent is None or intent.state == "sending":
        return RowResult(row=row, state="unknown", message=reason)
    if intent.state == "new" and intent.queued:
        return RowResult(row=row, state="unknown", message=QUEUED)
    if intent.state in _TAKEN and intent.outcome:
        response = RefundResponse(recorded_reply(intent), profile.answer, profile.states)
        return _row_result_of_response(row, response, intent, profile)
    message = intent.reason or ("" if intent.state in _TAKEN else reason)
    return RowResult(row=row, state=_WORD_OF_STATE[intent.state], message=message)


def _waits_unsent(intent: Intent) -> bool:
    """Return whether an intent was not sent, and no worker will send it."""
    return intent.state == "new" and not intent.queued


def row_result_now(known: RowResult, intent: Intent | None, profile: Profile, merchant: str) -> RowResult:
    """Return the result of a row that this run has not refunded, after another run may have done it since.

    Args:
        known: The result as it was.
        intent: What the journal has of it now.
        profile: Says where code and message stand in a response.
        merchant: The merchant's number.
    """
    if (
        intent is None
        or intent.state == "rejected"
        or _waits_unsent(intent)
        or intent.hash != _hash_of(known.row, merchant)
    ):
        return known
    return row_result_of_intent(known.row, intent, profile, reason=NOT_FINISHED)


def never_arrived(intent: Intent | None) -> bool:
    """Return whether a refund in doubt was certainly not made, and no response refused it."""
    return intent is not None and intent.state == "rejected" and intent.outcome is None


def _row_result_of_response(row: Row, response: RefundResponse, intent: Intent | None, profile: Profile) -> RowResult:
    state = intent.state if intent else write_state(CREATE_REFUND.name, response.state) or "accepted"
    if state == "rejected":
        # The code and the message of a declined refund are those of a successful call.
        message = intent.reason if intent else f"the {response.thing}'s state is {response.state}"
        return RowResult(row=row, state="refused", message=message)
    found = (scalar_at(response.document, paths) for paths in (profile.answer.code, profile.answer.message))
    code, message = ("" if value is None else clean(value) for value in found)
    return RowResult(row=row, state=_WORD_OF_STATE[state], code=code, message=message, earlier=not response.attempts)


def _with_error(row_result: RowResult, error: ServiceError) -> RowResult:
    """Return a row's result with the service's code and words."""
    code = "" if error.code is None else str(error.code)
    return evolve(row_result, code=code, message=error.message or str(error.args[0]))


def _row_result_of_conflict(row: Row, intent: Intent) -> RowResult:
    """Return the result of a row whose number stands for another refund: nothing was sent."""
    word = _WORD_OF_STATE[intent.state]
    differences = ", ".join(
        f"{name} was {intent.request.get(name)} and is {getattr(row.request, name)} in this row"
        for name in ("refund_amt", "total_amt", "out_trade_no")
        if intent.request.get(name) != getattr(row.request, name)
    )
    used = _USED_FOR.get(intent.state, "may have been refunded already")
    advice = "Only if both are owed, give this row a new number."
    message = f"{row.number} {used} ({intent.state}): {differences}. {advice}"
    return RowResult(row=row, state=word if word in OPEN else "refused", message=message)


def exit_code(row_results: Iterable[RowResult]) -> int:
    """Return the exit code of the command; doubt goes before refusal."""
    states = {each.state for each in row_results}
    if states & OPEN:
        return NEEDS_A_PERSON
    return SOME_REFUSED if states - {"succeeded", "accepted"} else ALL_WELL


def resubmissions(rows: Iterable[Row], rejected: Iterable[Intent], merchant: str) -> list[RowResult]:
    """Return the earlier results of rows that are sent again, if others than the sender may know these results.

    The service accepted the refund and declined it; or a query, a notification or a person settled a refund in doubt.
    Only the sender knows of a plain refusal. A number of another refund is not sent at all.
    """
    known = {
        intent.hash: intent
        for intent in rejected
        if intent.operation == CREATE_REFUND.name and (intent.outcome is not None or intent.fence > intent.attempts)
    }
    hashed = ((row, _hash_of(row, merchant)) for row in rows if row.request)
    return [RowResult(row=row, state="refused", message=known[key].reason) for row, key in hashed if key in known]


def _hash_of(row: Row, merchant: str) -> str:
    return digest(CREATE_REFUND.name, merchant, asdict(row.request)) if row.request else ""


COLUMNS: Final = ("line", "out_trade_no", "out_refund_no", "refund_amt", "state", "code", "message")
_FORMULA: Final = re.compile("[=+@\uff1d\uff0b\uff20\uff0d]|-(?![0-9]+([.][0-9]+)?$)")
"""How a text begins that a spreadsheet would compute; a negative number is safe."""
_IDENTIFIER: Final = re.compile(r"-[A-Za-z0-9_-]+")
"""An order or refund number that begins with a hyphen, of which a spreadsheet can compute nothing harmful."""


class ResultFile:
    """A CSV file that appears at the end, whole and in the order of the rows; close it.

    Until then each row is appended to a partial file beside it as the row ends. If the process is killed, the partial
    file has whole lines, and the next run begins it anew from the journal.

    Args:
        path: Where the file is to be; `None`: nowhere.

    Attributes:
        failed: Why the file could not be written, if so.

    Raises:
        ConfigurationError: Another file is there, or none can be made there.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._partial: io.FileIO | None = None
        self.failed: str = ""
        if path is None:
            return
        try:
            check_private(path)
            if path.exists() and not _is_result(path):
                self.failed = "it exists, and is not a result of an import. Name another file"
            else:
                self._partial = _begin(partial_file(path))
        except FileExistsError:
            self.failed = f"it is locked, because another run writes it. {WAIT}, or name another file"
        except OSError as error:
            self.failed = error.strerror or str(error)
        if self.failed:
            raise ConfigurationError(f"{str(path)!r} cannot be the result file: {self.failed}", field="result")

    def add(self, row_result: RowResult) -> None:
        """Append a row as it ends."""
        if self._partial is not None and not self.failed:
            with self._failure_noted():
                self._partial.write(_line(_result_cells(row_result)))

    def finish(self, row_results: Iterable[RowResult]) -> None:
        """Put the whole file in its place, atomically."""
        if self._path is not None:
            self.failed = ""
            with self._failure_noted():
                lines = [_line(COLUMNS), *(_line(_result_cells(each)) for each in row_results)]
                replace_file(self._path, b"".join(lines))
                partial_file(self._path).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the partial file."""
        if self._partial is not None:
            self._partial.close()

    @contextmanager
    def _failure_noted(self) -> Generator[None]:
        """Let the import go on if the file cannot be written, because the journal has it all."""
        try:
            yield
        except OSError as error:
            self.failed = error.strerror or str(error)


def partial_file(path: Path) -> Path:
    """Return where the rows that ended so far stand until the result file is whole."""
    return path.with_name(f"{path.name}.partial")


def _begin(path: Path) -> io.FileIO:
    check_private(path)
    with ExitStack() as stack:
        existed = path.exists()  # before it is locked: what another run makes afterwards is not removed
        # Held until the new file is locked, so that no third run removes that one.
        if not _hold_lock(path, stack):
            raise FileExistsError
        if existed:
            # Made anew, and not emptied: a hard link to the old file keeps its content.
            path.unlink()
        file = io.FileIO(new_private(path), "wb")
        try:
            if not lock_file(file.fileno()):
                raise FileExistsError
            file.write(_line(COLUMNS))
        except OSError:
            file.close()
            raise
        return file


def _is_result(path: Path) -> bool:
    with path.open("rb") as file:
        return file.readline(200) in {_line(COLUMNS), b""}


def replace_file(path: Path, content: bytes) -> None:
    """Put a file that only its owner can read in the place of another, or of none, atomically.

    Raises:
        OSError: It cannot be written. The old file is unchanged.
    """
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(number, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(content)
            file.flush()
            os.fsync(number)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _result_cells(row_result: RowResult) -> list[object]:
    cells = row_result.row.cells
    # A number stays as it is if that is safe, so that a search finds it.
    numbers = (cells.get(name, "") for name in ("out_trade_no", "out_refund_no"))
    safe_numbers = (each if _IDENTIFIER.fullmatch(each) else _without_formula(each) for each in numbers)
    words = (cells.get("refund_amt", ""), row_result.state, row_result.code, row_result.message)
    return [row_result.row.line, *safe_numbers, *map(_without_formula, words)]


def _without_formula(text: str) -> str:
    """Return a text in one line that a spreadsheet does not compute."""
    shown = plain(" ".join(text.split()))
    return f"'{shown}" if _FORMULA.match(shown) else shown


def _line(cells: Iterable[object]) -> bytes:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerow(cells)
    return written.getvalue().encode()
