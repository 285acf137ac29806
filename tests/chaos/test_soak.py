import sys

import pytest
from attrs import evolve

from tests.chaos.soak import SHORT, overlooked, run

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it under /proc"),
]


async def test_flat() -> None:
    """Whatever is done, and whatever fails: memory, objects, descriptors, tasks and threads stay flat."""
    soaked = await run(SHORT)

    assert [] == soaked.flaws()
    assert SHORT.samples == len(soaked.samples)


async def test_control() -> None:
    """What is made to leak is seen, as short as the run is, and told by its name."""
    leaking = await run(evolve(SHORT, leaky=True))

    assert [] == overlooked(leaking)
    assert [] != leaking.flaws()
    assert [] != [line for line in leaking.more if line.startswith("payasync.wire.call.Reply: +")]
