from random import Random

import pytest

from chaos.clock import WAYS
from chaos.lives import RARE, STRATEGIES, Life, Strategy, deaths, jumps, moments, pace


def chance(seed: int = 1) -> Random:
    """Return what draws the same again."""
    return Random(seed)  # noqa: S311 - no secret


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_deaths(strategy: Strategy) -> None:
    """As many kills as there are steps hit each of them once."""
    steps = moments(strategy)

    drawn = deaths(strategy, len(steps), 10, chance())

    assert sorted(steps) == sorted(each["fatal"] for each in drawn)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_deaths_at_the_latest(strategy: Strategy) -> None:
    """The first to die at a step dies nowhere else, however many operations end before; later ones do not wait long."""
    steps = moments(strategy)

    drawn = deaths(strategy, 5 * len(steps), 10, chance())

    assert {0} == {each["latest"] for each in drawn[: len(steps)]}
    assert {36} == {each["latest"] for each in drawn[len(steps) :] if each["fatal"] not in RARE}


def test_deaths_anywhere() -> None:
    """Of many kills half are at no step in particular."""
    drawn = deaths("sqlite", 200, 10, chance())

    assert 200 == len(drawn)
    assert 80 < len([each for each in drawn if each["fatal"] == "any"]) < 120


def test_deaths_repeat() -> None:
    """A seed draws the same deaths again, and another one others."""
    drawn = [deaths("sqlite", 40, 10, chance(seed)) for seed in (1, 1, 2)]

    assert drawn[0] == drawn[1] != drawn[2]


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


def test_jumps_repeat() -> None:
    """A seed draws the same jumps again, and another one others."""
    drawn = [jumps(40, 0.5, 10, chance(seed)) for seed in (1, 1, 2)]

    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(("kills", "operations"), [(0, 100), (13, 150), (200, 100_000)])
def test_pace(kills: int, operations: int) -> None:
    """All lives together do not use up the operations before the last kill, those that each interrupts included."""
    lives = kills // 2 + 1

    assert 1 <= pace(kills, operations, 2)
    assert pace(kills, operations, 2) == 1 or lives * pace(kills, operations, 2) <= operations // 2


def test_life() -> None:
    """What a process is told arrives as it was sent."""
    life = Life(strategy="sqlite", journal="pay.db", traces="t", worker=1, first=0, last=9, fatal="kept", nth=3)

    assert life == Life.read(life.json())
