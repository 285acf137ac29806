import io
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Task, TaskID

from payasync.cli.journal_option import Address
from payasync.cli.refund_file import Again, Row, Verdict, Word, read
from payasync.cli.refund_import_screen import Doing, RefundImportScreen
from tests.journal.building import Clock


def rows(count: int) -> tuple[Row, ...]:
    """Return good rows of 10 each."""
    lines = [f"T1,R{number},450,10" for number in range(count)]
    return read("\n".join(["out_trade_no,out_refund_no,total_amt,refund_amt", *lines]), lambda _: None)


def closed(*verdicts: Verdict, why: str = "", unwritten: str = "") -> str:
    """Return what is shown at the end."""
    terminal = Console(file=io.StringIO(), width=100, record=True)
    address = Address("postgresql://me:secret@db/pay")
    screen = RefundImportScreen(Path("r.csv"), address, service="", result=Path("out.csv"), terminal=terminal)
    screen.closed(verdicts, why=why, unwritten=unwritten)
    return terminal.export_text()


def verdicts(state: Word, count: int, message: str = "") -> list[Verdict]:
    """Return the same end of many rows."""
    return [Verdict(row=row, state=state, message=message) for row in rows(count)]


def test_amounts_are_summed_by_state() -> None:
    """Each state has its count and how much that is."""
    shown = closed(*verdicts("succeeded", 1200), *verdicts("refused", 3, "no such order"))

    assert ["succeeded", "1,200", "12,000"] == shown.splitlines()[0].split()
    assert ["refused", "3", "30", "not", "done"] == shown.splitlines()[1].split()
    assert ["3", "no", "such", "order"] == shown.splitlines()[2].split()
    assert "out.csv" in shown


def test_only_the_most_frequent_reasons_are_shown() -> None:
    """A thousand different words do not hide what matters."""
    shown = closed(*[verdicts("refused", 1, f"reason {number}")[0] for number in range(5)])

    assert 3 == shown.count("1  reason")
    assert "and 2 other reasons" in shown


def test_reasons_of_one_kind_are_one_reason() -> None:
    """They are told without the numbers of each row; a single one with its own."""
    several = [
        Verdict(row=row, state="refused", message=f"{row.number}: 10 before", kind="it was refunded") for row in rows(4)
    ]
    lines, alone = closed(*several).splitlines(), closed(*several[:1])

    assert ["4  it was refunded"] == [line.strip() for line in lines[1:2]]
    assert "R0" not in "".join(lines)
    assert "1  R0: 10 before" in alone


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (1, "1 row is sent again: whoever heard that it was not done may have refunded by other means."),
        (23, "23 rows are sent again: whoever heard that they were not done may have refunded by other means."),
    ],
)
def test_what_is_sent_again_is_counted_and_listed(count: int, words: str) -> None:
    """As far as it fits; where there is nothing of that kind, nothing is said."""
    terminal = Console(file=io.StringIO(), width=100, record=True)
    screen = RefundImportScreen(Path("r.csv"), Address("pay.db"), service="", terminal=terminal)
    screen.again([])
    nothing = terminal.export_text()
    screen.again([Again(row, "declined\x07") for row in rows(count)])
    shown = terminal.export_text()

    assert not nothing
    assert words in shown
    assert min(count, 20) == shown.count("declined?")
    assert (count > 20) == ("and 3 more" in shown)


def waiting(*waits: tuple[int, float], silent: Sequence[tuple[int, float]] = ()) -> str:
    """Return what a file is told of such waits."""
    terminal = Console(file=io.StringIO(), width=100, record=True)
    screen = RefundImportScreen(Path("r.csv"), Address("pay.db"), service="", terminal=terminal)
    with screen.progress(3):
        for count, seconds in waits:
            screen.asking(count, seconds)
        for count, seconds in silent:
            screen.asking(count, seconds, silent=True)
    return terminal.export_text().strip()


def test_long_wait_is_told_once() -> None:
    """A file that stays as it is for a minute looks like a command that hangs."""
    assert "1 row was cut off, or had no answer: it is asked about in 57 s" == waiting((1, 0), (1, 57.0), (1, 30.0))
    assert "2 rows were cut off, or had no answer: they are asked about in 8 s" == waiting((2, 0.2), (2, 8.0))
    assert not waiting((1, 0), (1, 1.0))


def test_service_that_answers_nobody_is_told_once_where_no_bar_is() -> None:
    """Whoever reads the file knows what the command waits for, also where it waited for something else before."""
    words = "The service answers nobody: {} in doubt, and asked about again in 10 s"

    assert words.format("300 rows are") == waiting(silent=[(300, 10.0), (280, 10.0)])
    assert words.format("1 row is") == waiting((3, 57.0), silent=[(1, 10.0)]).splitlines()[-1].strip()
    assert 1 == waiting((3, 57.0), (3, 20.0), silent=[(1, 10.0)]).count("cut off")


def test_wait_is_told_beside_the_bar_that_goes_on() -> None:
    """What is in doubt has not ended: the bar is not full, its clock goes, and a line says what is waited for."""
    seen = io.StringIO()
    terminal = Console(file=seen, width=80, force_terminal=True, color_system=None)
    screen = RefundImportScreen(Path("r.csv"), Address("pay.db"), service="", terminal=terminal)
    with screen.progress(3):
        for each in [*verdicts("succeeded", 3), *verdicts("unknown", 1)]:
            screen.heard(each)
        screen.asking(1, 57.0)

    assert "  1 row was cut off, or had no answer: it is asked about in 57 s" in seen.getvalue()
    assert re.search(r"  Asking about 1 in 57 s[ ━╸]+2/3 0:00:0", seen.getvalue())


@pytest.mark.parametrize(
    ("show", "words"),
    [
        ("stopping", "Stopping"),
        ("asking", "Asking about 20,000 in 10 s"),
        ("silent", "Asking about 20,000 in 10 s"),
        ("looking_up", "Looking up 20,000 not begun"),
    ],
)
def test_no_line_is_torn_on_80_columns(show: str, words: str) -> None:
    """However many there are, what goes on stands beside the whole bar, and no line is longer than the terminal."""
    many, seen = 20_000, io.StringIO()
    terminal = Console(file=seen, width=80, force_terminal=True, color_system=None)
    screen = RefundImportScreen(Path("r.csv"), Address("pay.db"), service="", terminal=terminal)
    with screen.progress(many):
        if show == "stopping":
            screen.stopping()
        elif show == "looking_up":
            screen.looking_up(many)
        else:
            screen.asking(many, 10.0, silent=show == "silent")
    lines = re.sub(r"\x1b\[[?0-9]*[A-Za-z]", "\n", seen.getvalue().replace("\r", "\n")).splitlines()

    assert all(len(line) <= 80 for line in lines)
    assert "…" not in seen.getvalue()
    assert re.search(rf"  {words} {' ' * 20} +0/20000 0:00:00", seen.getvalue())


def test_wait_is_counted_down() -> None:
    """A bar that stands still for a minute says how long it does so, and not how long it once was to."""
    clock = Clock()
    task = Task(TaskID(1), "Asking about 3", 3, 3, clock, fields={"until": clock() + 54.0})
    shown = []
    for _ in range(3):
        shown.append(Doing().render(task).plain)
        clock.advance(30)

    assert ["  Asking about 3 in 54 s", "  Asking about 3 in 24 s", "  Asking about 3"] == shown


def test_stopping_is_told_and_leaves_the_terminal_as_it_was() -> None:
    """Whoever presses Ctrl-C is told what a second one does, and has a cursor after it."""
    seen, told = io.StringIO(), io.StringIO()
    terminals = Console(file=seen, width=100, force_terminal=True), Console(file=told, width=100)
    for terminal in terminals:
        screen = RefundImportScreen(Path("r.csv"), Address("pay.db"), service="", terminal=terminal)
        with screen.progress(3):
            screen.stopping()
            cursor = seen.getvalue().rindex("\x1b[?25h") - seen.getvalue().rindex("\x1b[?25l")

            assert cursor > 0
    assert "Stopping after those under way; Ctrl-C again cuts them off." in seen.getvalue()
    assert "Stopping after those under way; a second signal cuts them off." in told.getvalue()


def test_who_stops_by_itself_speaks_of_no_first_signal() -> None:
    """It says why, and what then cuts off those under way; it takes the terminal's columns."""
    seen, told = io.StringIO(), io.StringIO()
    for terminal in (Console(file=seen, width=80, force_terminal=True), Console(file=told, width=80)):
        screen = RefundImportScreen(Path("r.csv"), Address("pay.db"), service="", terminal=terminal)
        with screen.progress(3):
            screen.stopping("the service does not take these keys")

    assert "Ctrl-C twice cuts" in seen.getvalue()
    assert "Stopping: the service does not take these keys.\n  Those under way end; two signals" in told.getvalue()
    assert "again" not in seen.getvalue() + told.getvalue()


@pytest.mark.parametrize(
    ("count", "result", "words"),
    [
        (5, Path("out.csv"), "up to 5 rows may have been done. The results so far stand in out.csv.partial; the same"),
        (1, None, "up to 1 row may have been done. The results so far stand in the journal; the same command goes on."),
        (0, None, "nothing is in doubt."),
    ],
)
def test_last_line_says_what_is_in_doubt_and_where_all_stands(count: int, result: Path | None, words: str) -> None:
    """Whoever has cut it off knows how many may have been done, and that nothing is lost."""
    terminal = Console(file=io.StringIO(), width=120, record=True)
    screen = RefundImportScreen(Path("r.csv"), Address("pay.db"), service="", result=result, terminal=terminal)
    with screen.progress(3):
        screen.cut_off(count)

    assert f"  Cut off: {words}" in terminal.export_text()


def test_doubtful_ones_are_listed_with_what_to_do() -> None:
    """What may have been done is listed, as far as it fits, and no password is shown."""
    shown = closed(*verdicts("unknown", 24), *verdicts("manual", 1))

    assert "and 5 more" in shown
    assert "--state manual" in shown
    assert "payasync reconcile --journal postgresql://db/pay" in shown
    assert "secret" not in shown


def test_result_that_could_not_be_written_is_told() -> None:
    """Nobody looks into a file that is not there."""
    shown = closed(*verdicts("succeeded", 1), unwritten="No space left on device")

    assert "The result file could not be written: No space left on device" in shown
    assert "out.csv" not in shown


def test_words_of_others_do_not_rule_the_terminal() -> None:
    """What the service said is shown without what a terminal would obey."""
    assert "\x1b" not in closed(*verdicts("refused", 1, "\x1b[31mred\x07"))
