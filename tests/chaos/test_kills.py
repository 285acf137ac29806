import pytest

from chaos.kills import scaled
from chaos.lives import Strategy
from chaos.run import Scale

pytestmark = pytest.mark.long

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
