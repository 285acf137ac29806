from pathlib import Path

import pytest
import time_machine

from chaos.clock import BACK, FORWARD, HOUR, Clock

NOW = 1_800_000_000.0


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Where the jumps stand."""
    return str(tmp_path / "clock")


@pytest.mark.parametrize(
    ("jumps", "hours"), [([], 0), ([FORWARD], 1), ([BACK], -1), ([FORWARD, BACK], 0), ([BACK, BACK, FORWARD], -1)]
)
def test_jumps(file: str, jumps: list[str], hours: int) -> None:
    """Each jump is an hour, for every process that goes by this clock; what one is ahead comes on top."""
    here, there = Clock(file), Clock(file, ahead=5.0)
    for each in jumps:
        here.jump(each)
    with time_machine.travel(NOW, tick=False):
        told = here(), there()

    assert "".join(jumps) == there.jumps
    assert (NOW + hours * HOUR, NOW + hours * HOUR + 5) == told
