"""What needs no event loop is run to its end without one."""

import asyncio

from payasync.transport.finish import finish


def test_turns_of_a_loop() -> None:
    """What waits for turns of a loop only comes to its end."""
    steps: list[int] = []

    async def work() -> None:
        for step in range(3):
            await asyncio.sleep(0)
            steps.append(step)

    finish(work())

    assert [0, 1, 2] == steps


async def test_something_to_wait_for() -> None:
    """What waits for more goes no further, and is closed there."""
    steps: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
            steps.append("on")
        finally:
            steps.append("closed")

    finish(work())

    assert ["closed"] == steps
