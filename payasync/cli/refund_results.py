"""The file that says what became of each row of an import."""

import csv
import io
import os
import re
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from payasync.cli.refund_verdicts import Verdict
from payasync.cli.terminal import plain
from payasync.errors import ConfigurationError
from payasync.files import check_private, new_private

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
                self._partial.write(_line(_cells(verdict)))

    def finish(self, verdicts: Iterable[Verdict]) -> None:
        """Put the whole file in its place, at once."""
        if self._path is None:
            return
        self.failed = ""
        with self._noted():
            _replace(self._path, b"".join([_line(COLUMNS), *(_line(_cells(each)) for each in verdicts)]))
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


def _cells(verdict: Verdict) -> Iterable[object]:
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
