from random import Random

import pytest

from chaos.lives import STRATEGIES, Life, Strategy, deaths, moments, pace


def chance(seed: int = 1) -> Random:
    """Return what draws the same again."""
    return Random(seed)  # noqa: S311 - no secret


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_deaths(strategy: Strategy) -> None:
    """As many kills as there are steps hit each of them once."""
    steps = moments(strategy)

    drawn = deaths(strategy, len(steps), 10, chance())

    assert sorted(steps) == sorted(each["fatal"] for each in drawn)


def test_deaths_anywhere() -> None:
    """Of many kills half are at no step in particular."""
    drawn = deaths("sqlite", 200, 10, chance())

    assert 200 == len(drawn)
    assert 80 < len([each for each in drawn if each["fatal"] == "any"]) < 120


def test_deaths_repeat() -> None:
    """A seed draws the same deaths again, and another one others."""
    drawn = [deaths("sqlite", 40, 10, chance(seed)) for seed in (1, 1, 2)]

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
