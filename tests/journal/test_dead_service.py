"""A dead service gets little more than what was asked of it: from sessions with a journal, bulks, and reconcilers."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from payasync import OutcomeUnknownError, RetryPolicy, Session, Unknown
from payasync.journal import Reconciler, Report, SqliteJournal
from payasync.resources.refunds import CreateRefund
from payasync.settings import Pace, Timeouts
from tests.foreign import signatures
from tests.foreign.recorder import RESET, Answer, Recorder, answer
from tests.journal.building import LEASE, Clock, draft, refund
from tests.matrix.cells import REFUND_QUERY, SURE, session

long = pytest.mark.long

MANY: Final = 1000
IMPATIENT: Final = RetryPolicy(base_delay=0, max_delay=0)
FAILING: Final = answer(500, b"{}")
OPEN: Final = 60
AT_ONCE: Final = 10
IN_VAIN: Final = 20
"""Questions without an answer, one after the other, that end a run; those under way are asked all the same."""
LONG: Final = Timeouts(total=600)
"""A busy machine takes its time for a thousand calls at once; none is to end for want of it."""
PEACE: Final = timedelta(seconds=10)
"""Between two runs, where the first ended as nobody answered."""
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
QUESTIONS: Final = 11
"""At once, and after pauses of 2, 4, 8 seconds and so on, until an hour is over."""

Way = Callable[[Session, list[CreateRefund]], Awaitable[int]]


@pytest.fixture
async def journal(path: Path, clock: Clock) -> AsyncIterator[SqliteJournal]:
    """An empty journal."""
    async with SqliteJournal(path, clock=clock) as journal:
        yield journal


async def all_at_once(pay: Session, requests: list[CreateRefund]) -> int:
    """Send each by a call of its own; return of how many nobody knows what became of them."""
    ends = await asyncio.gather(*(pay.send(request) for request in requests), return_exceptions=True)
    return sum(isinstance(end, OutcomeUnknownError) for end in ends)


async def in_bulk(pay: Session, requests: list[CreateRefund]) -> int:
    """Send them as a list; return of how many nobody knows what became of them."""
    return sum([isinstance(result, Unknown) async for result in pay.bulk(requests, limit=AT_ONCE)])


@pytest.mark.parametrize("dead", [FAILING, pytest.param(RESET, marks=long)], ids=["failing", "silent"])
@pytest.mark.parametrize("way", [all_at_once, pytest.param(in_bulk, marks=long)])
async def test_writes(journal: SqliteJournal, way: Way, dead: Answer) -> None:
    """A tenth more than was asked is the most, questions about lost answers included; each is sent once, and kept."""
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


async def unknown(journal: SqliteJournal, many: int) -> None:
    """Have so many refunds that nobody knows the end of."""

    async def lost(number: int) -> None:
        begun = await journal.begin(draft(refund(f"R{number}")), LEASE)
        await journal.settle(begun.intent, "unknown")

    await asyncio.gather(*(lost(number) for number in range(many)))


async def watching(journal: SqliteJournal, clock: Clock, service: Recorder, span: timedelta) -> list[Report]:
    """Have a reconciler watch for so long, by the clock; return what its runs came to."""

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    end, reports = clock.now + span, list[Report]()
    pace = Pace(clock=clock, sleep=sleep, jitter=lambda bound: bound)
    async with session(service, SURE, journal=journal) as pay:
        reconciler = Reconciler(pay, journal, concurrency=AT_ONCE, pace=pace)
        async with aclosing(reconciler.watch()) as watched:
            async for report in watched:
                reports.append(report)
                if clock.now >= end:
                    break
    return reports


@long
async def test_reconciler(journal: SqliteJournal, clock: Clock) -> None:
    """No run asks more than a few times in vain, and about each write it asks after growing pauses."""
    await unknown(journal, OPEN)
    with Recorder(otherwise=FAILING) as service:
        reports = await watching(journal, clock, service, HOUR)
    asked = Counter(signatures.fields(request)["outRefundNo"] for request in service.requests)

    assert {QUESTIONS: OPEN} == Counter(asked.values())
    assert IN_VAIN + AT_ONCE > max(report.asked for report in reports)
    assert {"unknown": OPEN} == Counter(each.state for each in await journal.list(limit=OPEN))


@long
async def test_reconciler_with_much_to_ask(journal: SqliteJournal, clock: Clock) -> None:
    """However many are due, a dead service gets a few questions in ten seconds: fewer than there are writes."""
    await unknown(journal, MANY)
    with Recorder(otherwise=FAILING) as service:
        reports = await watching(journal, clock, service, MINUTE)

    assert 1 + MINUTE / PEACE == len(reports)
    assert len(service.requests) < len(reports) * (IN_VAIN + AT_ONCE) < MANY
