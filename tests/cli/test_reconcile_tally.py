"""What `payasync reconcile` counts, and what it holds."""

from typing import Final

from payasync.cli.reconcile_tally import Tally
from payasync.journal import State
from payasync.journal.reconciling import End, Result
from tests.journal.building import kept


def result(end: End, state: State, reason: str = "", *, number: int = 1, answered: bool = True) -> Result:
    """Return what became of one."""
    return Result(intent=kept(id=number), end=end, state=state, reason=reason, answered=answered)


FIVE: Final[list[tuple[End, State]]] = [
    ("resolved", "succeeded"),
    ("resolved", "rejected"),
    ("resolved", "rejected"),
    ("sent", "rejected"),
    ("lost", "rejected"),
]


def test_numbers() -> None:
    """Each write counts once, under its end and its state."""
    tally = Tally()
    for number, (end, state) in enumerate(FIVE):
        tally.heard(result(end, state, number=number))
    tally.ran()

    assert (5, 5, 1, 3) == (tally.asked, tally.questions, tally.runs, tally.rejected)
    assert {"resolved": 3, "sent": 1, "waiting": 0, "manual": 0, "lost": 1} == tally.ends
    assert {"rejected": 2, "succeeded": 1} == tally.states("resolved")


def test_answered() -> None:
    """One answer is enough."""
    tally = Tally()
    tally.heard(result("waiting", "unknown", answered=False))
    before = tally.answered
    tally.heard(result("waiting", "unknown"))
    tally.heard(result("waiting", "unknown", answered=False))

    assert (False, True) == (before, tally.answered)


def test_not_done() -> None:
    """All of them are held, or so many of the last ones, until they were told."""
    all_, last = Tally(), Tally(last=2)
    for tally in (all_, last):
        for number in range(1, 6):
            tally.heard(result("resolved", "rejected", number=number))
            tally.heard(result("resolved", "succeeded", number=number))
    held = [[each.intent.id for each in tally.not_done] for tally in (all_, last)]
    all_.told()

    assert [[1, 2, 3, 4, 5], [4, 5]] == held
    assert (5, 5) == (all_.rejected, last.rejected)
    assert not all_.not_done


def test_write_stands_as_its_last_question_left_it() -> None:
    """However often it was asked about, it counts once, and so does its reason; questions are counted by themselves."""
    tally = Tally()
    for run in range(100):
        for each in range(3):
            tally.heard(result("waiting", "unknown", f"no usable answer since {run}:{each}", number=each))
        tally.ran()
    tally.ran()
    waiting = tally.reasons("waiting")
    tally.heard(result("resolved", "accepted", number=0))
    tally.heard(result("manual", "manual", "nothing names it", number=1))
    tally.ran()
    tally.heard(result("resolved", "succeeded", number=0))

    assert [f"no usable answer since 99:{each}" for each in range(3)] == list(waiting)
    assert (3, 303, 102) == (tally.asked, tally.questions, tally.runs)
    assert {"resolved": 1, "sent": 0, "waiting": 1, "manual": 1, "lost": 0} == tally.ends
    assert [{"succeeded": 1}, {"unknown": 1}] == [tally.states("resolved"), tally.states("waiting")]
    assert [["no usable answer since 99:2"], ["nothing names it"]] == [
        list(tally.reasons(end)) for end in ("waiting", "manual")
    ]
