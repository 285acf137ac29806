import pytest

from payasync import ABSENT, CreateRefund, InvalidArgumentError
from payasync.cli.refund_file import Row, read
from payasync.wire.request import invalid_argument

HEADER = "out_trade_no,out_refund_no,total_amt,refund_amt"


def rows(*lines: str, header: str = HEADER) -> tuple[Row, ...]:
    """Read a file of these lines, which the service takes."""
    return read("\n".join([header, *lines]), lambda _: None)


def wrong(*lines: str, header: str = HEADER) -> list[tuple[int, str]]:
    """Return the bad rows of a file of these lines."""
    return [(row.line, row.wrong) for row in rows(*lines, header=header) if row.wrong]


def test_row_is_a_refund() -> None:
    """Each row is one request, and an amount is the number that stands there."""
    (row,) = rows("T1,R1,450,200")

    assert (2, "R1", "") == (row.line, row.number, row.wrong)
    assert CreateRefund(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200) == row.request


def test_columns_come_in_any_order() -> None:
    """Columns are known by their names; a cell that is empty was not given, where it need not be."""
    (row, other) = rows(
        "cold,200,https://a.example/r,R1,450,T1",
        ",200,,R2,450,T1",
        header="refund_desc,refund_amt,notify_url,out_refund_no,total_amt,out_trade_no",
    )

    assert row.request
    assert ("cold", "https://a.example/r") == (row.request.refund_desc, row.request.notify_url)
    assert other.request
    assert (ABSENT, ABSENT) == (other.request.refund_desc, other.request.notify_url)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("", "'out_trade_no', 'out_refund_no', 'total_amt', 'refund_amt' are missing"),
        ("out_trade_no,out_refund_no,total_amt", "'refund_amt' is missing"),
        (f"{HEADER},currency", "'currency' is not known here"),
        (f"{HEADER},refund_amt", "'refund_amt' is twice there"),
        (HEADER.replace(",", ";"), "with commas between them"),
        (HEADER.replace("refund_amt", " refund_amt"), "' refund_amt' is not known here"),
    ],
)
def test_other_columns_are_refused(header: str, words: str) -> None:
    """Nothing in the file is passed over: a column that nobody reads may have been meant."""
    with pytest.raises(InvalidArgumentError, match=r"^line 1: the columns must be ") as caught:
        read(header, lambda _: None)

    assert words in str(caught.value)


@pytest.mark.parametrize("amount", ["4.5", "4,5", "-1", "+1", " 1", "1e3", "1_000", "٤", "0", "", "1" * 17])
def test_amount_is_digits(amount: str) -> None:
    """What a spreadsheet has made of an amount is not guessed at."""
    ((line, words),) = wrong(f'T1,R1,450,"{amount}"')

    assert 2 == line
    assert words.startswith("refund_amt must be an int from 1 to ")
    assert amount[:10] in words


@pytest.mark.parametrize("line", ["T1,R1,450", "T1,R1,450,200,", "T1"])
def test_cells_are_as_many_as_columns(line: str) -> None:
    """A row that is short or long has its cells under other columns than was meant."""
    assert [(2, f"{line.count(',') + 1} cells, and there are 4 columns")] == wrong(line)


def test_all_rows_of_one_number_are_bad() -> None:
    """Nobody can say which of them is meant, a bad one among them included."""
    found = wrong("T1,R1,450,1", "T1,R2,450,1", "T1,R1,450,1", "T1,R2,450,x", "T1,R3,450,1")

    assert [2, 3, 4, 5] == [line for line, _ in found]
    assert "out_refund_no must be unique: 'R1' stands on lines 2 and 4" == found[0][1]
    assert "out_refund_no must be unique: 'R2' stands on lines 3 and 5" == found[1][1]


def test_line_is_where_a_row_begins() -> None:
    """Empty lines, and cells of several lines, are counted as an editor counts them."""
    found = rows("", 'T1,R1,450,1,"cold\nand late"', "", "T1,R2,450,x,", header=f"{HEADER},refund_desc")

    assert [(3, ""), (6, "x")] == [(row.line, "x" if row.wrong else "") for row in found]


@pytest.mark.parametrize("letter", ["\u2028", "\u0085", "\x0b"])
def test_only_line_ends_end_a_row(letter: str) -> None:
    """Other separators that Unicode has stand in words, as when they were copied from a page."""
    (row,) = rows(f"T1,R1,450,1,cold{letter}late", header=f"{HEADER},refund_desc")

    assert ("", f"cold{letter}late") == (row.wrong, row.cells["refund_desc"])


def test_broken_quotes_are_told_with_their_line() -> None:
    """What is no CSV is refused as a whole, and where it begins is told."""
    with pytest.raises(InvalidArgumentError, match="line 3: not CSV"):
        rows("T1,R1,450,1", 'T1,"R2"x,450,1')


def test_what_the_service_does_not_take_is_bad() -> None:
    """The profile's rules count, as for any other refund."""

    def check(request: CreateRefund) -> None:
        if request.out_trade_no == "T 1":
            raise invalid_argument("out_trade_no", "a word", request.out_trade_no)

    found = read(f"{HEADER}\nT 1,R1,450,1\nT1,R2,450,1", check)

    assert ["out_trade_no must be a word, not 'T 1'", ""] == [row.wrong for row in found]
