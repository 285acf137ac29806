"""What `payasync sandbox` shows of notifications."""

import io
import logging
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from attrs import evolve
from rich.console import Console

from payasync.cli.sandbox import NEWS, SandboxScreen, Watching
from payasync.sandbox.model import Entry
from payasync.sandbox.webhooks import Delivery

REFUSED: Final = Delivery(
    event="payment.paid",
    reference="L5",
    status=None,
    where="http://127.0.0.1:9999/notify/payment",
    error="connection refused",
    state="waiting",
    tries=1,
    wait=5.0,
)
TAKEN: Final = evolve(REFUSED, status=200, error="", state="delivered", wait=None)


def screen(width: int | None = None) -> tuple[SandboxScreen, io.StringIO]:
    """Return a screen of so many columns, or one that is redirected, and what is written to it."""
    written = io.StringIO()
    console = Console(file=written, width=width, force_terminal=width is not None, color_system=None, highlight=False)
    return SandboxScreen(console=console), written


def shown(delivery: Delivery) -> str:
    """Return the line of a delivery, without its time."""
    told, written = screen()
    told.notification(delivery)
    return written.getvalue().rstrip("\n").partition("  ")[2]


def test_one_that_failed() -> None:
    """It says what went wrong, where, and when it comes again."""
    told, written = screen()
    before = datetime.now().astimezone()
    told.notification(REFUSED)
    after = datetime.now().astimezone()
    again = {f"{moment + timedelta(seconds=5):%H:%M:%S}" for moment in (before, after)}

    assert written.getvalue().partition("  ")[2] in {
        f"-   notify payment.paid L5: connection refused; again at {at}  http://127.0.0.1:9999/notify/payment\n"
        for at in again
    }


def test_one_that_was_taken() -> None:
    """It stands in the columns of the requests, shortly."""
    told, written = screen()
    told.notification(TAKEN)
    told.request(Entry(kind="request", name="orders.place", reference="L5", status=200, milliseconds=1.0))
    lines = written.getvalue().splitlines()

    assert "200 notify payment.paid                L5" == lines[0].partition("  ")[2]
    assert lines[1].index("L5") == lines[0].index("L5")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"state": "dead", "tries": 7, "wait": None}, "given up after 7 attempts"),
        ({"wait": None}, "again when the clock is advanced"),
        ({"state": "delivered", "wait": None}, "connection refused  http"),
    ],
    ids=["dead letter", "the clock stands", "taken before"],
)
def test_what_comes_next(facts: dict[str, Any], words: str) -> None:
    """A dead letter is given up; a clock that stands must be advanced; a copy of what was taken is not sent again."""
    assert words in shown(evolve(REFUSED, **facts))


def test_nothing_that_a_terminal_would_obey() -> None:
    """Numbers and addresses are a merchant's own, and may hold anything."""
    told = shown(evolve(REFUSED, reference="\x1b[2J", where="http://a/\x1b]0;", error="no \x07"))

    assert "\x1b" not in told
    assert "?[2J: no ?;" in told


@pytest.mark.parametrize("width", [80, 120])
def test_lines_fit(width: int) -> None:
    """No word is broken, and the time stands alone at the left."""
    told, written = screen(width)
    told.notification(evolve(REFUSED, status=400, error="answered 400, which does not acknowledge"))
    lines = written.getvalue().splitlines()

    assert 2 == len(lines)
    assert all(len(line) <= width for line in lines)
    assert lines[1].startswith(" " * 14)
    assert "http://127.0.0.1:9999/notify/payment" in lines[1].split()


def test_what_happens_before_the_beginning_is_shown_after_it() -> None:
    """What a database has due at the start is told below the words of the start, and not lost."""
    told, written = screen()
    watching = Watching(told)
    watching.begin()
    try:
        NEWS.info("early", extra={"delivery": TAKEN})
        before = written.getvalue()
        watching.show()
        NEWS.info("late", extra={"delivery": REFUSED})
    finally:
        watching.end()
    NEWS.info("over", extra={"delivery": TAKEN})

    assert "" == before
    assert ["200", "-"] == [line.split()[1] for line in written.getvalue().splitlines()]


def test_defect_of_our_own_is_shown_as_python_would(capsys: pytest.CaptureFixture[str]) -> None:
    """What is neither a request nor a notification goes to standard error, and breaks nothing."""
    told, written = screen()
    watching = Watching(told)
    watching.begin()
    try:
        watching.show()
        logging.getLogger("payasync.sandbox.http").error("Error handling request")
    finally:
        watching.end()

    assert ("", "Error handling request\n") == (written.getvalue(), capsys.readouterr().err)
