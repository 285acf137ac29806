from typing import Any

import pytest

from tests.chaos.lives import MOMENTS, Strategy
from tests.chaos.truth import Evidence, Result, hit, judged

pytestmark = pytest.mark.long


def evidence(**facts: Any) -> Evidence:
    """Return what is known after a run of two operations in which all went well."""
    given: dict[str, Any] = {
        "operations": 2,
        "ended": {0, 1},
        "effects": {0: 1, 1: 1},
        "all_effects": 2,
        "states": {0: "succeeded", 1: "accepted"},
        "faults": 1,
        "kills": 1,
        "jumps": 1,
        "hits": dict.fromkeys(MOMENTS, 1),
    }
    return Evidence(**(given | facts))


def result(strategy: Strategy = "sqlite", **facts: Any) -> Result:
    """Return what such a run came to."""
    return judged(strategy, evidence(**facts))


@pytest.mark.parametrize("jumps", [1, None])
def test_well(jumps: int | None) -> None:
    """Where all went well there is nothing to say; nor where the clock was not to jump."""
    assert [] == result(jumps=jumps).flaws()


@pytest.mark.parametrize(
    ("facts", "flaw"),
    [
        ({"all_effects": 3, "effects": {0: 2, 1: 1}}, "1 were done twice"),
        ({"all_effects": 3}, "1 were done twice"),
        ({"effects": {0: 1}, "all_effects": 1}, "1 were lost"),
        ({"states": {0: "succeeded"}}, "1 were lost"),
        ({"states": {0: "succeeded", 1: "rejected"}, "ended": {0}}, "1 were lost"),
        ({"states": {0: "succeeded", 1: "sending"}, "ended": {0}}, "1 were lost"),
        ({"states": {0: "succeeded", 1: "unknown"}}, "1 were lost"),
        (
            {"states": {0: "succeeded"}, "ended": {0}, "effects": {0: 1}, "all_effects": 1},
            "1 were never done, as their callers know",
        ),
        (
            {"states": {0: "succeeded", 1: "rejected"}, "ended": {0}, "effects": {0: 1}, "all_effects": 1},
            "1 were never done, as their callers know",
        ),
        ({"states": {0: "succeeded", 1: "sending"}, "ended": {0}, "effects": {0: 1}, "all_effects": 1}, "1 were lost"),
        ({"codes": {"nonce": 2}}, "2 nonces were used twice"),
        ({"codes": {"duplicate": 2}}, "2 were sent again, after they had been done"),
        ({"faults": 0}, "no fault happened"),
        ({"jumps": 0}, "the clock never jumped"),
        ({"hits": dict.fromkeys(MOMENTS[1:], 1)}, "no kill hit asking"),
    ],
)
def test_flaws(facts: dict[str, Any], flaw: str) -> None:
    """Whatever the ledger does not bear out is a flaw; what a caller was told, and the journal does not know, too."""
    assert [flaw] == result(**facts).flaws()


def test_what_was_lost_is_told() -> None:
    """Of a lost operation is told what each side knows: so a long run that fails need not be repeated to learn that."""
    found = result(states={0: "succeeded", 1: "rejected"}, ended={0})

    known = "the journal says rejected, the service did it 1 times, and its caller was not told that it is done"
    assert {1: known} == found.lost


@pytest.mark.parametrize("state", ["unknown", "manual"])
@pytest.mark.parametrize("effects", [{0: 1}, {0: 1, 1: 1}])
def test_unresolved(state: str, effects: dict[int, int]) -> None:
    """What a person finds in the journal is not lost, whether it was done or not."""
    found = result(ended={0}, states={0: "succeeded", 1: state}, effects=effects, all_effects=len(effects), faults=1)

    assert ({1: state}, []) == (found.unresolved, found.flaws())


def test_control() -> None:
    """New numbers must show what they do: a harness that finds no duplicate there would find none anywhere."""
    twice = result("naive", states={}, effects={0: 2, 1: 1}, all_effects=3)
    once = result("naive", states={})

    assert (1, []) == (twice.duplicates, twice.flaws())
    assert ["it shows no duplicate, so that the harness proves nothing"] == once.flaws()


def test_hit() -> None:
    """A kill hits each operation that was under way, where it was by then; what was at rest it does not hit."""
    steps = [("kept", "R0"), ("leaving", "R0"), ("kept", "P1"), ("ended", "P1"), ("kept", "Q2"), ("resting", "Q2")]

    assert {"leaving": 1} == hit(steps)
