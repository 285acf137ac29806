"""One object holds all clocks of a process, so that nothing has to wait for real time."""

import asyncio
import time

from payasync.clocks import Clocks, Pace, boot_tick, boot_time, monotonic_time, use_clocks, wall_time


def later(hours: float) -> Clocks:
    """Return clocks that are ahead."""
    seconds = hours * 3600
    return Clocks(
        wall=lambda: time.time() + seconds,
        boot=lambda: 7 + seconds,
        monotonic=lambda: 7 + seconds,
        tick=lambda: round((7 + seconds) * 1e9),
        identity=lambda: "other machine",
        jitter=lambda longest: longest / 2,
    )


async def test_clocks_are_those_of_a_task_and_its_children() -> None:
    """Another task keeps its own clocks, so that several processes can be simulated in one."""

    async def read() -> tuple[float, float, float, str, float]:
        await asyncio.sleep(0)
        return wall_time() - time.time(), boot_time(), monotonic_time(), boot_tick(), Pace().jitter(8)

    async def read_later() -> tuple[float, float, float, str, float]:
        use_clocks(later(2))
        return await asyncio.create_task(read())

    other = asyncio.create_task(read())
    found = await asyncio.create_task(read_later())

    assert {0, 7} < {int(Pace().jitter(8)) for _ in range(300)} <= {*range(9)}  # by default all up to the bound
    assert (7207, 7207, "other machine 7207000000000e-9", 4) == found[1:]
    assert 7199 < found[0] < 7201
    assert abs((await other)[0]) < 1
