from pathlib import Path
from typing import Any

import pytest

from payasync import ConfigurationError
from payasync.cli.refund_results import ResultFile
from payasync.cli.refund_sheet import Row
from payasync.cli.refund_verdicts import Verdict

HEADER = "line,out_trade_no,out_refund_no,refund_amt,state,code,message"


def verdict(line: int = 2, *, number: str = "R1", **facts: Any) -> Verdict:
    """Return what became of a row."""
    row = Row(line=line, cells={"out_trade_no": "T1", "out_refund_no": number, "refund_amt": "200"})
    given: dict[str, Any] = {"state": "succeeded", **facts}
    return Verdict(row=row, **given)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the result is to be."""
    return tmp_path / "out.csv"


def beside(path: Path) -> Path:
    """Return what grows while the import runs."""
    return path.with_name("out.csv.partial")


def test_rows_are_there_as_they_end(path: Path) -> None:
    """Each row is on the disk, whole, as soon as it has ended; the file itself comes at the end, in order."""
    with ResultFile(path) as result:
        result.add(verdict(3, number="R2", state="refused", code="E1", message="no such order"))
        partial = beside(path).read_text()
        early = path.exists()
        result.finish([verdict(), verdict(3, number="R2")])

    assert [HEADER, "3,T1,R2,200,refused,E1,no such order", ""] == partial.split("\n")
    assert not early
    assert [HEADER, "2,T1,R1,200,succeeded,,", "3,T1,R2,200,succeeded,,", ""] == path.read_text().split("\n")
    assert not beside(path).exists()


def test_result_of_a_former_run_is_replaced_at_once(path: Path) -> None:
    """Until the end, the former result stands."""
    path.write_text(f"{HEADER}\nold\n")
    with ResultFile(path) as result:
        before = path.read_text()
        result.finish([])

    assert f"{HEADER}\nold\n" == before
    assert f"{HEADER}\n" == path.read_text()


def test_another_file_is_left_alone(path: Path) -> None:
    """A result never goes over the refunds, the journal, or whatever else is there."""
    path.write_text("out_trade_no,out_refund_no\n")

    with pytest.raises(ConfigurationError, match=r"no result of an import"):
        ResultFile(path)

    assert "out_trade_no,out_refund_no\n" == path.read_text()
    assert [path] == list(path.parent.iterdir())


def test_place_that_is_none_is_told(tmp_path: Path) -> None:
    """What cannot be written is told before anything is sent."""
    with pytest.raises(ConfigurationError, match="No such file"):
        ResultFile(tmp_path / "none" / "out.csv")


def test_import_goes_on_where_it_cannot_be_written(path: Path) -> None:
    """The journal has it all: a full disk stops no refund, and is told."""
    beside(path).symlink_to("/dev/full")
    with pytest.raises(ConfigurationError, match="No space left"):
        ResultFile(path)
    beside(path).unlink()
    with ResultFile(path) as result:
        path.mkdir()
        result.finish([verdict()])

    assert "Is a directory" == result.failed
    assert {path, beside(path)} == set(path.parent.iterdir())


def test_without_a_path_nothing_is_written(tmp_path: Path) -> None:
    """No result is wanted: none is made."""
    with ResultFile(None) as result:
        result.add(verdict())
        result.finish([verdict()])

    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("message", "written"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("+1+1", "'+1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-2+3", "'-2+3"),
        ("-R1", "-R1"),
        ("a\nb\x1b[31m", "a b?[31m"),
        ('a,"b"', '"a,""b"""'),
    ],
)
def test_words_of_others_are_harmless(path: Path, message: str, written: str) -> None:
    """A spreadsheet reckons with nothing that the service said, and each row is one line."""
    with ResultFile(path) as result:
        result.finish([verdict(message=message)])

    assert [HEADER, f"2,T1,R1,200,succeeded,,{written}", ""] == path.read_text().split("\n")
