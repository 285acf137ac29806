import os
import resource
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from payasync import ConfigurationError
from payasync.cli.refund_file import ResultFile, Row, Verdict

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


@contextmanager
def full() -> Generator[None]:
    """Let this process write nothing more into files, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_import_goes_on_where_it_cannot_be_written(path: Path) -> None:
    """The journal has it all: a full disk stops no refund, and is told."""
    with full(), pytest.raises(ConfigurationError, match="File too large"):
        ResultFile(path)
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


def test_rows_that_ended_are_of_this_run_and_private(path: Path) -> None:
    """What an interrupted run has left is begun anew, and nobody else reads it; another name of it keeps the old."""
    with ResultFile(path) as result:
        result.add(verdict())
    former = beside(path).read_text()
    os.link(beside(path), path.with_name("copy"))
    with ResultFile(path):
        pass

    assert f"{HEADER}\n" == beside(path).read_text()
    assert former == path.with_name("copy").read_text()
    assert 0o600 == stat.S_IMODE(beside(path).stat().st_mode)


@pytest.mark.parametrize("name", ["out.csv", "out.csv.partial"])
def test_symlink_costs_nobody_a_file(path: Path, name: str) -> None:
    """Whoever can make a link beside the result must not choose the file that is emptied."""
    target = path.with_name("target")
    target.write_text(f"{HEADER}\n2,T1,R1,200,succeeded,,\n")
    path.with_name(name).symlink_to(target)
    before = target.read_text()

    with pytest.raises(ConfigurationError, match=f"'{name}' is a symbolic link, and links are not followed"):
        ResultFile(path)

    assert before == target.read_text()
    assert {path.with_name(name), target} == set(path.parent.iterdir())


@pytest.mark.parametrize("name", ["out.csv", "out.csv.partial"])
def test_file_that_others_can_write_is_no_result(path: Path, name: str) -> None:
    """Others could write into it that a refund was made."""
    path.with_name(name).write_text(f"{HEADER}\n")
    path.with_name(name).chmod(0o664)

    with pytest.raises(ConfigurationError, match=f"Run: chmod 600 {path.with_name(name)}"):
        ResultFile(path)


def test_numbers_are_found_again(path: Path) -> None:
    """A number that begins with a hyphen is one that the default pattern allows: it is written as it is."""
    with ResultFile(path) as result:
        result.finish([verdict(number="-R1"), verdict(3, number="-A1+1"), verdict(4, number="=A1")])

    assert ["2,T1,-R1,200,succeeded,,", "3,T1,'-A1+1,200,succeeded,,", "4,T1,'=A1,200,succeeded,,"] == (
        path.read_text().splitlines()[1:]
    )


@pytest.mark.parametrize(
    ("message", "written"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("=A1", "'=A1"),
        ("+A1", "'+A1"),
        ("@A1", "'@A1"),
        ("-A1", "'-A1"),
        ("\t=A1", "'=A1"),
        ("\r+A1", "'+A1"),
        ("\x1b@A1", "?@A1"),
        ("\uff1dA1", "'\uff1dA1"),
        ("+1+1", "'+1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-2+3", "'-2+3"),
        ("-32000", "-32000"),
        ("-", "'-"),
        ("a=A1", "a=A1"),
        ("a\nb\x1b[31m", "a b?[31m"),
        ('a,"b"', '"a,""b"""'),
    ],
)
def test_words_of_others_are_harmless(path: Path, message: str, written: str) -> None:
    """A spreadsheet reckons with nothing that the service said, and each row is one line."""
    with ResultFile(path) as result:
        result.finish([verdict(message=message)])

    assert [HEADER, f"2,T1,R1,200,succeeded,,{written}", ""] == path.read_text().split("\n")
