from random import Random

import pytest

from tests.chaos.clock import WAYS
from tests.chaos.lives import RARE, STRATEGIES, Strategy, deaths, jumps, moments

pytestmark = pytest.mark.long


def chance(seed: int = 1) -> Random:
    """Return what draws the same again."""
    return Random(seed)  # noqa: S311 - no secret


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_deaths(strategy: Strategy) -> None:
    """As many kills as there are steps hit each of them once; what is rare comes last, and uses up nobody's share."""
    steps = moments(strategy)
    drawn = [each["fatal"] for each in deaths(strategy, len(steps), 10, chance())]
    rare = RARE.intersection(steps)

    assert sorted(steps) == sorted(drawn)
    assert rare == {*drawn[len(drawn) - len(rare) :]}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_deaths_at_the_latest(strategy: Strategy) -> None:
    """The first to die at a step dies nowhere else, however many operations end before; later ones do not wait long."""
    steps = moments(strategy)

    drawn = deaths(strategy, 5 * len(steps), 10, chance())

    assert {0} == {each["latest"] for each in drawn[: len(steps)]}
    assert {36} == {each["latest"] for each in drawn[len(steps) :] if each["fatal"] not in RARE}


def test_jumps() -> None:
    """In a share of the lives the clock jumps, once in each: forward or back, and long before they are to end."""
    drawn = jumps(200, 0.5, 20, chance())
    jumping = [each for each in drawn if each]

    assert (200, True) == (len(drawn), len(jumping) in {100, 101})
    assert set(WAYS) == {each["jump"] for each in jumping}
    assert set(range(1, 11)) == {each["jumping"] for each in jumping}


@pytest.mark.parametrize(("share", "expected"), [(0, [False] * 9), (0.01, [False] * 8 + [True])])
def test_jumps_in_the_last_life(share: float, expected: list[bool]) -> None:
    """The last life comes to its end: that the clock jumps there, however seldom it does, is certain."""
    assert expected == [bool(each) for each in jumps(9, share, 10, chance())]
