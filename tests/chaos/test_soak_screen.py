import io

import pytest
from rich.console import Console

from chaos.soak import WANTED
from chaos.soak_screen import show
from chaos.steady import Sample, Soaked

pytestmark = pytest.mark.long

WIDTH = 80


def soaked(count: int = 40, *, leak: int = 0) -> Soaked:
    """Return what a long run came to that leaks so many bytes with each errand."""
    samples = [
        Sample(
            operations=100_000 * number,
            resident=123_456_789,
            blocks=12_345_678 + 100_000 * leak * number,
            objects=1_234_567,
            ours=12_345,
            sockets=32,
            files=6,
            tasks=12,
            threads=3,
        )
        for number in range(1, count + 1)
    ]
    more = ["client.py:1: list[int]"]
    return Soaked(samples=samples, done=dict.fromkeys(WANTED, 1_000_000), faults={"hang": 1_000_000}, more=more)


def shown(soaked: Soaked, *, color: bool = False) -> str:
    """Return what a terminal of the usual width shows."""
    said = io.StringIO()
    show(Console(file=said, width=WIDTH, force_terminal=color, color_system="standard" if color else None), soaked)
    return said.getvalue()


def test_it_fits() -> None:
    """The table fits a terminal of 80 columns, however long the run was."""
    lines = shown(soaked()).splitlines()

    assert [] == [line for line in lines if len(line.rstrip()) > WIDTH]
    assert [] == [line for line in lines if "…" in line]
    assert [] != [line for line in lines if line.split()[:3] == ["1,000,000", "123.5", "12,345,678"]]


def test_leak_is_red() -> None:
    """What grows by more than it may stands out, and where it comes from is told."""
    leaking = shown(soaked(leak=1), color=True)

    assert "\x1b[31m1,900,000\x1b[0m" in leaking
    assert "client.py:1: list[int]" in leaking


def test_no_leak_is_not() -> None:
    """Where nothing grows, nothing is red, and nothing is searched for."""
    flat = shown(soaked(), color=True)

    assert "\x1b[31m" not in flat
    assert "client.py" not in flat
