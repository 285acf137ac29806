"""Far more calls at once than there are connections."""

import asyncio
import resource
from collections import Counter
from collections.abc import Iterator

import pytest

from benchmarks.server import static_server
from payasync import Session, Timeouts
from tests.sessions import connect, create


@pytest.fixture
def files() -> Iterator[None]:
    """Allow as many open files as the system does."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.long
@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(("calls", "connections", "delay"), [(1500, 100, 0.5), (10_000, 2000, 0)])
async def test_all_are_answered_in_their_order(calls: int, connections: int, delay: float) -> None:
    """All calls wait for their turn and are answered, however long the others keep the connections and the loop."""
    ended: list[int] = []

    async def one(number: int, pay: Session) -> str:
        try:
            await create(pay, number + 1)
        except Exception as error:  # noqa: BLE001 - counted
            return repr(error)
        ended.append(number)
        return "answered"

    timeouts = Timeouts(total=300, connect=2)
    with static_server(delay=delay) as address:
        async with connect(address, timeouts=timeouts, max_connections=connections) as pay:
            found = await asyncio.gather(*(one(number, pay) for number in range(calls)))

    assert {"answered": calls} == Counter(found)
    assert connections > max(abs(place - number) for place, number in enumerate(ended))
