"""A CSV file of refunds, and the file that says what became of each row."""

import csv
import io
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Literal, Self, get_args

from attrs import evolve, field, frozen

from payasync.cli.signals import NEEDS_A_PERSON
from payasync.cli.terminal import plain
from payasync.documents import ABSENT
from payasync.endpoints import CREATE_REFUND
from payasync.errors import (
    ConfigurationError,
    DuplicateError,
    IntentConflictError,
    InvalidArgumentError,
    ServiceError,
)
from payasync.journal import Journal
from payasync.journal.entries import COUNTED, digest
from payasync.journal.intents import Intent, State
from payasync.journal.reconciler import PAGE
from payasync.journal.transactions import BY_STATE
from payasync.profile.profile import Profile
from payasync.resources.refunds import CreateRefund
from payasync.session import Done, Result, Unknown
from payasync.settings import check_private, new_private
from payasync.wire.response import RefundResponse, Response

REQUIRED: Final = ("out_trade_no", "out_refund_no", "total_amt", "refund_amt")
OPTIONAL: Final = ("refund_desc", "notify_url")
AMOUNTS: Final = ("total_amt", "refund_amt")
# No sign, no separators, and no more digits than an amount has: what a spreadsheet has made of it is not guessed.
_WHOLE: Final = re.compile(r"[0-9]{1,16}")

Cells = Mapping[str, str]
Check = Callable[[CreateRefund], object]


@frozen(kw_only=True)
class Row:
    """A row of the file.

    Attributes:
        line: Where it begins, from 1 on.
        cells: By their columns; those that are missing are not there.
        request: What it asks for, where it is a good one.
        wrong: What is wrong with it, where it is a bad one.
    """

    line: int
    cells: Cells = field(repr=False)
    request: CreateRefund | None = None
    wrong: str = ""

    @property
    def number(self) -> str:
        """The number of the refund."""
        return self.cells.get("out_refund_no", "")


def read(text: str, check: Check) -> tuple[Row, ...]:
    """Return all rows of a file, good and bad ones, in their order.

    Args:
        text: Of the file.
        check: Refuses what cannot be sent.

    Raises:
        InvalidArgumentError: Its columns are others, or it is no CSV.
    """
    lines = _lines(text)
    _, header = next(lines, (1, []))
    columns = _columns(header)
    found = [(line, cells) for line, cells in lines if cells]
    places: dict[str, list[int]] = {}
    for line, cells in found:
        places.setdefault(_cells(columns, cells).get("out_refund_no", ""), []).append(line)
    return tuple(_row(line, columns, cells, places, check) for line, cells in found)


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield where each record begins, and what it holds."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    begins = 1
    try:
        for cells in reader:
            yield begins, cells
            begins = reader.line_num + 1
    except csv.Error as error:
        broken = InvalidArgumentError(f"line {begins}: not CSV: {error}", field="file", rule="CSV")
    else:
        return
    raise broken


def _columns(header: Sequence[str]) -> Sequence[str]:
    """Return the columns, where they are those that a refund has."""
    many = [name for name, count in Counter(header).items() if count > 1]
    missing = [name for name in REQUIRED if name not in header]
    extra = [name for name in header if name not in {*REQUIRED, *OPTIONAL}]
    found = (("twice there", many), ("missing", missing), ("not known here", extra))
    if wrong := [
        f"{', '.join(map(repr, names))} {'is' if len(names) == 1 else 'are'} {how}" for how, names in found if names
    ]:
        rule = f"{','.join(REQUIRED)}[,{','.join(OPTIONAL)}]"
        raise InvalidArgumentError(
            f"line 1: the columns must be {rule}, with commas between them: {'; '.join(wrong)}",
            field="file",
            rule=rule,
        )
    return header


def _cells(columns: Sequence[str], cells: Sequence[str]) -> Cells:
    return dict(zip(columns, cells, strict=False))


def _row(
    line: int, columns: Sequence[str], given: Sequence[str], places: Mapping[str, Sequence[int]], check: Check
) -> Row:
    cells = _cells(columns, given)
    row = Row(line=line, cells=cells)
    if len(given) != len(columns):
        return _bad(row, f"{len(given)} cells, and there are {len(columns)} columns")
    try:
        request = CreateRefund(**_arguments(cells))
        check(request)
    except InvalidArgumentError as error:
        return _bad(row, str(error.args[0]))
    others = places[request.out_refund_no]
    if len(others) > 1:
        # One of them may be a mistake, and nobody here can say which.
        lines = " and ".join(filter(None, (", ".join(map(str, others[:-1])), str(others[-1]))))
        return _bad(row, f"out_refund_no must be unique: {request.out_refund_no!r} stands on lines {lines}")
    return Row(line=line, cells=cells, request=request)


def _bad(row: Row, wrong: str) -> Row:
    return Row(line=row.line, cells=row.cells, wrong=wrong)


def _arguments(cells: Cells) -> dict[str, Any]:
    arguments: dict[str, Any] = {name: cells[name] for name in REQUIRED}
    for name in AMOUNTS:
        if _WHOLE.fullmatch(cells[name]):
            arguments[name] = int(cells[name])
    return arguments | {name: cells.get(name) or ABSENT for name in OPTIONAL}


Word = Literal["succeeded", "accepted", "refused", "unsent", "left out", "unknown", "manual"]
WORDS: Final[tuple[Word, ...]] = get_args(Word)
"""What can become of a row."""
OPEN: Final[frozenset[Word]] = frozenset({"unknown", "manual"})
"""It may have been done."""
NOT_DONE: Final[frozenset[Word]] = frozenset({"refused", "unsent", "left out"})

_OF_STATE: Final[dict[State, Word]] = {
    "new": "unsent",
    "sending": "unknown",
    "accepted": "accepted",
    "succeeded": "succeeded",
    "rejected": "refused",
    "unknown": "unknown",
    "manual": "manual",
}

_TAKEN: Final[frozenset[State]] = frozenset({"accepted", "succeeded"})

NOT_BEGUN: Final = "not begun"
BEGUN: Final = "begun by an earlier run, which has not ended it"

_ALREADY: Final[dict[State, str]] = {
    "accepted": "was already refunded",
    "succeeded": "was already refunded",
    "new": "was used before",
    "rejected": "was used before",
}
"""What became of the refund that a number stands for; of any other state, it may have been done."""
_MAYBE: Final = "may have been refunded already"
_OWED: Final = "Only if both are owed, give this one a number of its own."
_ALSO: Final = {"out_trade_no": "order {}", "total_amt": "{} in all"}
"""What else than its amount makes it another refund."""

ALL_WELL: Final = 0
SOME_REFUSED: Final = 1


@frozen(kw_only=True)
class Verdict:
    """What became of a row.

    Attributes:
        row: Of the file.
        state: One of `WORDS`.
        code: The service's result code, where it gave one.
        message: The service's words, or ours.
        kind: The same without this row's numbers, where it has some: many rows may have it.
        earlier: An earlier run has done it: the journal says so, and this one sent nothing.
    """

    row: Row
    state: Word
    code: str = ""
    message: str = ""
    kind: str = ""
    earlier: bool = False


def left_out(row: Row) -> Verdict:
    """Return what becomes of a bad row."""
    return Verdict(row=row, state="left out", message=row.wrong)


def of_result(
    row: Row, result: Result[RefundResponse], kept: Intent | None, profile: Profile, *, unread: str = ""
) -> Verdict:
    """Return what became of a row that was sent, or that the journal has answered.

    Args:
        row: Of the file.
        result: Of its call.
        kept: What the journal has of it by now.
        profile: Says where codes and messages stand.
        unread: Why the journal could not be read, where that is so.
    """
    if isinstance(result, Done):
        return _answered(row, result.response, kept, profile)
    if isinstance(result, Unknown):
        found = of_kept(row, kept, result.reason)
        if isinstance(result.error, DuplicateError) and found.state in OPEN:
            return _said(row, found.state, result.error)
        return found
    if isinstance(result.error, ServiceError):
        return _refused(row, result.error, kept)
    if isinstance(result.error, IntentConflictError) and kept:
        return _conflicting(row, kept)
    return _not_sent(row, str(result.error.args[0]), kept, unread)


def of_kept(row: Row, kept: Intent | None, reason: str = "") -> Verdict:
    """Return what the journal says of a row that was in doubt."""
    if kept is None or kept.state == "sending":
        return Verdict(row=row, state="unknown", message=reason)
    message = kept.reason or ("" if kept.state in _TAKEN else reason)
    return Verdict(row=row, state=_OF_STATE[kept.state], message=message)


def not_begun(row: Row, kept: Intent | None, *, unread: str = "") -> Verdict:
    """Return what is known of a row that this run has not begun: a former one may have done it."""
    return _not_sent(row, NOT_BEGUN, kept, unread)


def never_arrived(kept: Intent | None) -> bool:
    """Return whether it is certain, by now, that a write which was in doubt was not done: no answer refused it."""
    return kept is not None and kept.state == "rejected" and kept.outcome is None


def _answered(row: Row, response: RefundResponse, kept: Intent | None, profile: Profile) -> Verdict:
    """Return what an answer comes to; of a refund that was declined, its code and its words are those of a success."""
    state = kept.state if kept else BY_STATE[CREATE_REFUND.name].get(response.state or "", "accepted")
    if state == "rejected":
        message = kept.reason if kept else f"the {response.thing}'s state is {response.state}"
        return Verdict(row=row, state="refused", message=message)
    return Verdict(row=row, state=_OF_STATE[state], earlier=not response.attempts, **_words(response, profile))


def _refused(row: Row, error: ServiceError, kept: Intent | None) -> Verdict:
    """Return what a refusal says, or the journal in spite of it."""
    state: Word = "refused"
    if kept and kept.state in {"unknown", "manual"}:
        state = _OF_STATE[kept.state]
    return _said(row, state, error)


def _said(row: Row, state: Word, error: ServiceError) -> Verdict:
    """Return a verdict with the service's code and words."""
    code = "" if error.code is None else str(error.code)
    return Verdict(row=row, state=state, code=code, message=error.message or str(error.args[0]))


def _conflicting(row: Row, kept: Intent) -> Verdict:
    """Return what becomes of a row whose number stands for another refund: it was not done, but that may have been."""
    word = _OF_STATE[kept.state]
    before, now = _told_apart(kept.request, row.cells)
    already = _ALREADY.get(kept.state, _MAYBE)
    return Verdict(
        row=row,
        state=word if word in OPEN else "refused",
        message=f"{row.number} {already}: {before} ({kept.state}); this row says {now}. {_OWED}",
        kind=f"the number {already} ({kept.state}), and the row says another refund. {_OWED}",
    )


def _told_apart(before: Mapping[str, Any], now: Mapping[str, str]) -> tuple[str, str]:
    """Return how much each of two refunds is, with whatever else is not the same."""
    words = {"refund_amt": "{}"} | {
        name: word for name, word in _ALSO.items() if str(before.get(name)) != now.get(name)
    }
    first, second = (
        ", ".join(word.format(each.get(name, "-")) for name, word in words.items()) for each in (before, now)
    )
    return first, second


def _not_sent(row: Row, why: str, kept: Intent | None, unread: str) -> Verdict:
    """Return what the journal says of a row of which this run has sent nothing."""
    if unread:
        return Verdict(row=row, state="unknown", message=f"{why}; an earlier run may have sent it: {unread}")
    if kept is None or kept.state == "new" or (kept.state == "rejected" and kept.sent_at is None):
        return Verdict(row=row, state="unsent", message=why)
    return evolve(of_kept(row, kept, BEGUN), earlier=kept.state in _TAKEN)


def _words(response: Response, profile: Profile) -> dict[str, str]:
    places = {"code": profile.answer.code, "message": profile.answer.message}
    return {name: str(response.get(path, "")) if path else "" for name, path in places.items()}


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Return what the command ends with."""
    states = {each.state for each in verdicts}
    if states & OPEN:
        return NEEDS_A_PERSON
    return SOME_REFUSED if states & NOT_DONE else ALL_WELL


COLUMNS: Final = ("line", "out_trade_no", "out_refund_no", "refund_amt", "state", "code", "message")
PARTIAL: Final = ".partial"
_FORMULA: Final = re.compile("[=+@\uff1d\uff0b\uff20\uff0d]|-(?![0-9]+([.][0-9]+)?$)")
"""How a text begins that a spreadsheet would compute; a negative number is none."""
_IDENTIFIER: Final = re.compile(r"-[A-Za-z0-9_-]+")
"""An order or refund number that begins with a hyphen: a spreadsheet can compute nothing harmful of it."""


class ResultFile:
    """A CSV file, whole and in the order of the rows once it is there.

    Use it with `with`. Until then each row is added to another one beside it, as it ends: whole lines, if the process
    is killed. The next run begins that anew, from the journal.

    Args:
        path: Where it is to be; `None`: nowhere.

    Attributes:
        failed: Why it could not be written, where that is so.

    Raises:
        ConfigurationError: There is another file, or none can be made there.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._partial: IO[bytes] | None = None
        self.failed = ""
        if path is None:
            return
        try:
            check_private(path)
            ours = not path.exists() or _is_ours(path)
            if ours:
                self._partial = _begun(beside(path))
        except OSError as error:
            ours, self.failed = False, _why(error)
        if not ours:
            why = self.failed or "it is there already, and no result of an import: name another"
            raise ConfigurationError(f"{str(path)!r} cannot be the result file: {why}", field="result")

    def add(self, verdict: Verdict) -> None:
        """Add a row as it ends."""
        if self._partial is not None and not self.failed:
            with self._noted():
                self._partial.write(_line(_result_cells(verdict)))

    def finish(self, verdicts: Iterable[Verdict]) -> None:
        """Put the whole file in its place, at once."""
        if self._path is None:
            return
        self.failed = ""
        with self._noted():
            _replace(self._path, b"".join([_line(COLUMNS), *(_line(_result_cells(each)) for each in verdicts)]))
            beside(self._path).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._partial is not None:
            self._partial.close()

    @contextmanager
    def _noted(self) -> Generator[None]:
        """Let the import go on where the file cannot be written: the journal has it all."""
        try:
            yield
        except OSError as error:
            self.failed = _why(error)


def beside(path: Path) -> Path:
    """Return where the rows that ended so far stand, as long as a result file is not whole."""
    return path.with_name(path.name + PARTIAL)


def _begun(path: Path) -> IO[bytes]:
    check_private(path)
    # Made anew, and not emptied: another name of the same file keeps what stands in it.
    path.unlink(missing_ok=True)
    file = os.fdopen(new_private(path), "wb", buffering=0)
    try:
        file.write(_line(COLUMNS))
    except OSError:
        file.close()
        raise
    return file


def _is_ours(path: Path) -> bool:
    with path.open("rb") as file:
        return file.readline(200) in {_line(COLUMNS), b""}


def _replace(path: Path, content: bytes) -> None:
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


def _result_cells(verdict: Verdict) -> Iterable[object]:
    row = verdict.row
    numbers = (_number(row.cells.get(name, "")) for name in ("out_trade_no", "out_refund_no"))
    words = (row.cells.get("refund_amt", ""), verdict.state, verdict.code, verdict.message)
    return row.line, *numbers, *map(_safe, words)


def _number(text: str) -> str:
    """Return an order or refund number: as it is, so that it is found again by it."""
    return text if _IDENTIFIER.fullmatch(text) else _safe(text)


def _safe(text: str) -> str:
    """Return a text as a spreadsheet may have it, in one line."""
    shown = plain(" ".join(text.split()))
    return f"'{shown}" if _FORMULA.match(shown) else shown


def _line(cells: Iterable[object]) -> bytes:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerow(cells)
    return written.getvalue().encode()


def _why(error: OSError) -> str:
    return str(error.strerror or error)


@frozen
class Again:
    """A row that is sent again.

    Attributes:
        row: Of the file.
        why: It was not done, in one line.
    """

    row: Row
    why: str


def was_told(kept: Intent) -> bool:
    """Return whether somebody may have heard, from others than its call, that a refund was not done.

    The service took it and declined it; or a question, a notification or a person has ended what was in doubt, or
    waited. What the service refused, or what never left, has no answer, and was claimed by those alone who sent it.
    """
    return kept.state == "rejected" and (kept.outcome is not None or kept.fence > kept.attempts)


async def sent_again(journal: Journal, merchant: str, rows: Sequence[Row]) -> Sequence[Again]:
    """Return the rows that the journal has as such; one whose number stands for another refund is not sent.

    Args:
        journal: Is read only.
        merchant: The merchant's number.
        rows: Good and bad ones.

    Raises:
        StorageError: The journal cannot be read now.
    """
    wanted = {row.number: row for row in rows if row.request}
    found: list[Again] = []
    after = 0
    while page := await journal.list("rejected", limit=PAGE, after=after):
        for each in page:
            row = wanted.get(each.reference or "") if each.operation == CREATE_REFUND.name else None
            if row and was_told(each) and each.hash == _hash(row, merchant):
                found.append(Again(row, each.reason))
        after = page[-1].id
    return sorted(found, key=lambda each: each.row.line)


def _hash(row: Row, merchant: str) -> str:
    """Return what a journal tells this refund from others by; the merchant is in it."""
    counted = {name: getattr(row.request, name) for name in COUNTED[CREATE_REFUND.name]}
    return digest(CREATE_REFUND.name, merchant, counted)
