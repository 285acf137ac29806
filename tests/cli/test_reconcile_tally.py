"""What `payasync reconcile` counts, and what it holds."""

from payasync.cli.reconcile_tally import Tally
from payasync.journal import State
from payasync.journal.reconciling import End, Result
from tests.journal.building import kept


def result(end: End, state: State, reason: str = "", *, number: int = 1, answered: bool = True) -> Result:
    """Return what became of one."""
    return Result(intent=kept(id=number), end=end, state=state, reason=reason, answered=answered)


def test_numbers() -> None:
    """Each result counts once, under its end and its state."""
    tally = Tally()
    for each in (
        result("resolved", "succeeded"),
        result("resolved", "rejected"),
        result("resolved", "rejected"),
        result("sent", "rejected"),
        result("lost", "rejected"),
    ):
        tally.heard(each)

    assert (5, 3) == (tally.asked, tally.rejected)
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


def test_reasons_are_those_of_one_run() -> None:
    """However many there were before: a reason may name a moment, and be another each time."""
    tally = Tally()
    for run in range(100):
        for each in range(3):
            tally.heard(result("waiting", "unknown", f"no usable answer since {run}:{each}"))
        tally.ran()
    tally.heard(result("resolved", "succeeded", "it is done"))
    tally.ran()

    assert [f"no usable answer since 99:{each}" for each in range(3)] == list(tally.reasons)
    assert {"unknown": 300} == tally.states("waiting")
