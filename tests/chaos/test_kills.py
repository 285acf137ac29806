import io

import pytest
from rich.console import Console

from chaos.kills import CHOICES, killed, scaled
from chaos.lives import Strategy
from chaos.run import Scale

LONG = Scale(operations=100_000, kills=200)


@pytest.mark.parametrize(
    ("strategy", "scale", "expected"),
    [
        ("sqlite", LONG, (100_000, 200)),
        ("postgres", LONG, (100_000, 200)),
        ("naive", LONG, (5_000, 10)),
        ("stable", Scale(operations=400, kills=20), (200, 8)),
        ("naive", Scale(operations=60, kills=4), (60, 4)),
    ],
)
def test_scaled(strategy: Strategy, scale: Scale, expected: tuple[int, int]) -> None:
    """A journal does all; a control does far less, yet enough to show what it lacks, and never more than all."""
    part = scaled(strategy, scale)

    assert expected == (part.operations, part.kills)


def test_choices() -> None:
    """Whatever is chosen, the controls are no part of it: they always run."""
    assert {"sqlite", "postgres"} == {each for chosen in CHOICES.values() for each in chosen}


@pytest.mark.long
def test_too_long() -> None:
    """What takes too long has failed, and it is told how to repeat it."""
    said = io.StringIO()
    flaws = killed(Scale(operations=60, kills=4, seed=9, seconds=0.01), "none", Console(file=said))

    assert ["a strategy took more than 0 s"] == flaws
    assert "python -m chaos kills --seed 9 --operations 60 --kills 4 --faults 0.2 --journal none\n" == said.getvalue()
