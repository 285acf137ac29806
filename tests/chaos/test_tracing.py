from pathlib import Path

import pytest

from chaos.lives import Life
from chaos.tracing import Trace, lines


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """A process that dies nowhere."""
    return Life(strategy="sqlite", journal="", traces=str(tmp_path), worker=0, first=0, last=9)


def test_lines(life: Life) -> None:
    """A trace is read as it was written."""
    with Trace(life) as trace:
        trace.mark("kept", "R3")
        trace.mark("ended", "R3")

    assert [("kept", "R3"), ("ended", "R3")] == lines(Path(life.trace))


def test_cut_off(life: Life) -> None:
    """A line that a kill cut off says nothing: its number might be another."""
    Path(life.trace).write_text("kept R3\nended R", encoding="ascii")

    assert [("kept", "R3")] == lines(Path(life.trace))


def test_no_trace(life: Life) -> None:
    """A process that was killed before it wrote anything has done nothing."""
    assert [] == lines(Path(life.trace))
