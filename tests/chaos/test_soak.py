import sys

import pytest
from attrs import evolve

from tests.chaos.soak import SHORT, overlooked, run

pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it under /proc")]


async def test_flat() -> None:
    """If a server runs for long under all faults, its memory, objects, descriptors, tasks and threads stay flat."""
    soaked = await run(SHORT)

    assert [] == soaked.flaws()
    assert SHORT.samples == len(soaked.samples)


async def test_control() -> None:
    """If a server leaks responses, even a short soak finds the leak."""
    leaking = await run(evolve(SHORT, leaky=True))

    assert [] == overlooked(leaking)
    assert [] != leaking.flaws()
