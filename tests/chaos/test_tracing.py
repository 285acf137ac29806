from pathlib import Path

import pytest
from attrs import evolve

from tests.chaos.clock import BACK, Clock
from tests.chaos.lives import Life
from tests.chaos.tracing import Trace, lines

pytestmark = pytest.mark.long


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """A process that dies nowhere."""
    return Life(strategy="sqlite", journal="", traces=str(tmp_path), worker=0, first=0, last=9)


def test_cut_off(life: Life) -> None:
    """A line that a kill cut off says nothing: its number might be another."""
    Path(life.trace).write_text("kept R3\nended R", encoding="ascii")

    assert [("kept", "R3")] == lines(Path(life.trace))


def test_jump(life: Life, tmp_path: Path) -> None:
    """The clock jumps once, when so many operations have ended."""
    file = str(tmp_path / "clock")
    seen: list[str] = []
    with Trace(evolve(life, clock=file, jump=BACK, jumping=2)) as trace:
        for moment in ("ended", "kept", "ended", "ended"):
            trace.mark(moment, "R3")
            seen.append(Clock(file).jumps)

    assert ["", "", BACK, BACK] == seen
