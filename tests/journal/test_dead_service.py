"""A dead service receives few extra requests, from sessions with a journal and from bulks."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from payasync import OutcomeUnknownError, RetryPolicy, Session, Unknown
from payasync.journal import SqliteJournal
from payasync.resources.refunds import CreateRefund
from payasync.settings import Timeouts
from tests.foreign.recorder import RESET, Answer, Recorder, answer
from tests.journal.building import Clock, refund
from tests.matrix.cells import REFUND_QUERY, SURE, session

long = pytest.mark.long

MANY: Final = 1000
IMPATIENT: Final = RetryPolicy(base_delay=0, max_delay=0)
FAILING: Final = answer(500, b"{}")
AT_ONCE: Final = 10
LONG: Final = Timeouts(total=600)
"""A busy machine takes its time for a thousand calls at once; none is to end for want of it."""

Way = Callable[[Session, list[CreateRefund]], Awaitable[int]]


@pytest.fixture
async def journal(path: Path, clock: Clock) -> AsyncIterator[SqliteJournal]:
    """An empty journal."""
    async with SqliteJournal(path, clock=clock) as journal:
        yield journal


async def all_at_once(pay: Session, requests: list[CreateRefund]) -> int:
    """Send each request in a call of its own, and return how many ended with an unknown outcome."""
    ends = await asyncio.gather(*(pay.send(request) for request in requests), return_exceptions=True)
    return sum(isinstance(end, OutcomeUnknownError) for end in ends)


async def in_bulk(pay: Session, requests: list[CreateRefund]) -> int:
    """Send the requests as a bulk, and return how many ended with an unknown outcome."""
    return sum([isinstance(result, Unknown) async for result in pay.bulk(requests, limit=AT_ONCE)])


@pytest.mark.parametrize("dead", [FAILING, pytest.param(RESET, marks=long)], ids=["failing", "silent"])
@pytest.mark.parametrize("way", [all_at_once, pytest.param(in_bulk, marks=long)])
async def test_writes(journal: SqliteJournal, way: Way, dead: Answer) -> None:
    """If the service is dead, queries add at most a tenth more requests. The journal stores each write, sent once."""
    requests = [refund(f"R{number}") for number in range(MANY)]
    with Recorder(otherwise=dead) as service:
        async with session(
            service, SURE, retry=IMPATIENT, journal=journal, max_connections=AT_ONCE, timeouts=LONG
        ) as pay:
            unknown = await way(pay, requests)
    states = Counter(each.state for each in await journal.list(limit=MANY))

    assert (MANY, {"unknown": MANY}) == (unknown, states)
    assert MANY < len(service.requests) <= 1.1 * MANY
    assert MANY == sum(request.path != REFUND_QUERY for request in service.requests)
