"""When the service may be asked about a hint; that its hints wait meanwhile is tested with a receiver."""

import asyncio
import weakref
from typing import Any

import pytest

from payasync import OrderResponse
from payasync.notifications.transitions import MOST_WAITING, QUIET, Confirmed, QueryLimiter, Transition
from payasync.sandbox import PROFILE
from tests.building import reply
from tests.journal.building import Clock

ORDER = ("orders.query", "T1")


def paid() -> Confirmed:
    """Return an end state."""
    return Confirmed("confirmed:payment:T1", OrderResponse(reply(), PROFILE.answer, PROFILE.states))


PAID = paid()


@pytest.fixture
def questions(clock: Clock) -> QueryLimiter:
    """What a receiver knows that has asked nothing yet."""
    return QueryLimiter(clock)


def asked(questions: QueryLimiter, event: int = 1, confirmed: Confirmed | None = PAID) -> None:
    """Ask, and have a response."""
    questions.begin(ORDER, event)
    questions.end(ORDER, confirmed)


async def test_query_speaks_for_all_that_waited(questions: QueryLimiter, clock: Clock) -> None:
    """They came before it began; whoever comes then waits for the next one."""
    asked(questions)
    questions.recall(ORDER, 2, 1)
    questions.recall(ORDER, 3, 1)
    clock.advance(QUIET)
    free = questions.recall(ORDER, 2, 2)
    asked(questions, 2)
    found = [questions.recall(ORDER, event, 1) for event in (2, 3, 4)]

    assert (None, [PAID, PAID]) == (free, found[:2])
    assert isinstance(found[2], Transition)


async def test_response_that_is_no_end_state_holds_up_nobody(questions: QueryLimiter) -> None:
    """Where nothing is decided yet, or the service cannot be asked, the next event asks for itself."""
    asked(questions, confirmed=None)

    assert questions.recall(ORDER, 2, 1) is None


@pytest.mark.parametrize("jump", [QUIET, -3600.0])
async def test_quiet_ends(questions: QueryLimiter, clock: Clock, jump: float) -> None:
    """After a minute, and where the clock was set back."""
    asked(questions)
    clock.advance(jump)

    assert questions.recall(ORDER, 1, 1) is None


async def test_memory_is_bounded(questions: QueryLimiter, clock: Clock) -> None:
    """What is over is forgotten, its response included; what waits beyond the bound is asked about by a later query."""
    asked(questions)
    for event in range(2, MOST_WAITING + 3):
        questions.recall(ORDER, event, 1)
    clock.advance(QUIET)
    last = paid()
    held = weakref.ref(last.response)
    asked(questions, 2, last)
    spoken_for = [questions.recall(ORDER, event, 1) is last for event in (MOST_WAITING + 1, MOST_WAITING + 2)]
    del last
    clock.advance(2 * QUIET)
    before = held()
    questions.begin(("orders.query", "T2"), 1)

    assert [True, False] == spoken_for
    assert before
    del before
    assert held() is None


def test_query_of_a_loop_that_has_ended() -> None:
    """It is in flight no more: another loop, or a child process, asks again, and its end is nobody else's."""
    questions = QueryLimiter(Clock())
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()

    async def begin(event: int) -> Any:
        known = questions.recall(ORDER, event, 1)
        questions.begin(ORDER, event)
        return known

    async def end() -> Any:
        questions.end(ORDER, PAID)
        return questions.recall(ORDER, 3, 1)

    try:
        first.run_until_complete(begin(1))
        free = second.run_until_complete(begin(2))
        first.run_until_complete(end())
        waits = second.run_until_complete(end())
    finally:
        first.close()
        second.close()

    assert free is None
    assert isinstance(waits, Transition)
