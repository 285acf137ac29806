"""`wait` repeats a query until an order, payment or refund has the expected state."""

import asyncio
import gc
import json
from functools import partial
from typing import Any, Final, cast

import pytest
from attrs import evolve, field, mutable

from payasync import Session
from payasync.clocks import Pace
from payasync.endpoints import QUERY_ORDER
from payasync.errors import (
    InvalidArgumentError,
    InvalidSignatureError,
    NoAnswerError,
    NotConfiguredError,
    NotSentError,
    OutcomeUnknownError,
    RateLimitedError,
    ServiceError,
    WaitTimeoutError,
)
from payasync.middleware.observe import Retrying
from payasync.profile.profile import Profile
from payasync.profile.sandbox_profile import PROFILE as SANDBOX
from payasync.profile.schema import AnswerShape, States
from payasync.resources.orders import Orders
from payasync.settings import RetryPolicy
from payasync.wire.request import Request
from payasync.wire.response import OrderResponse, Response
from tests.building import PROFILE, bare_call, reply
from tests.foreign.recorder import Recorder, answer
from tests.wire.ten import CREDENTIALS

MAPPED: Final = evolve(
    PROFILE,
    answer=AnswerShape(order_status="state"),
    states=States(order={"pending": ("WAIT",), "paid": ("PAID",), "closed": ("SHUT",)}),
)


def response_of(state: str, age: float = 0.0) -> OrderResponse:
    """Return the response to a query."""
    return OrderResponse.of(bare_call(QUERY_ORDER, profile=MAPPED), evolve(reply({"state": state}), age=age))


PENDING: Final = response_of("WAIT")
PAID: Final = response_of("PAID")


@mutable
class Asked:
    """A query with scripted responses, on a clock that only its calls and pauses move.

    Args:
        ends: Responses and errors in turn; the last one repeats.
        takes: Seconds that each query takes.
        share: Part of the allowed jitter that is used, from 0 to 1.
    """

    ends: tuple[OrderResponse | BaseException, ...]
    takes: float = 0.0
    share: float = 1.0
    now: float = 1000.0
    times: list[float] = field(factory=list)
    left: list[float] = field(factory=list)
    pauses: list[float] = field(factory=list)

    async def __call__(self, _: Request[Response], *, timeout: float) -> OrderResponse:
        """Respond."""
        self.times.append(self.now - 1000.0)
        self.left.append(timeout)
        self.now += self.takes
        end = self.ends[min(len(self.times), len(self.ends)) - 1]
        if isinstance(end, BaseException):
            raise end
        return end

    async def sleep(self, seconds: float) -> None:
        """Advance the clock."""
        self.pauses.append(seconds)
        self.now += seconds

    async def until(self, until: Any = "paid", timeout: Any = 60.0, profile: Profile = MAPPED) -> OrderResponse:
        """Wait for an order with this query."""
        pace = Pace(clock=lambda: self.now, sleep=self.sleep, jitter=lambda bound: self.share * bound)
        return await Orders(cast("Any", self), profile, pace).wait("T1", until=until, timeout=timeout)


async def test_state_that_comes() -> None:
    """`wait` repeats the query until the state is reached, also after a query without a usable response."""
    for ends, times in [
        ((PAID,), [0.0]),
        ((PENDING, response_of("SHUT"), response_of("WHAT"), PAID), [0.0, 1.0, 3.0, 7.0]),
        *(
            ((PENDING, error, error, PAID), [0.0, 1.0, 3.0, 7.0])
            for error in (NoAnswerError("cut"), NotSentError("refused"), RateLimitedError("too many"))
        ),
    ]:
        query = Asked(ends)
        found = await query.until()

        assert PAID is found
        assert times == query.times


async def test_cached_responses_only() -> None:
    """If only older responses come, the error says that they are from a cache."""
    with pytest.raises(WaitTimeoutError, match="the last query failed: its response is from a cache, 900 s old"):
        await Asked((response_of("SHUT", 900.0),)).until("closed")


async def test_function_of_the_answer() -> None:
    """A function of the response works without mapped states."""
    query = Asked((PENDING, PAID))
    found = await query.until(lambda response: response["state"] == "PAID", profile=PROFILE)

    assert PAID is found
    assert 2 == len(query.times)


async def test_pauses_grow() -> None:
    """The pauses double up to a bound, and jitter shortens each by at most half."""
    for share, expected in [(1.0, [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]), (0.0, [0.5, 1.0, 2.0, 4.0, 4.0, 4.0])]:
        query = Asked((*[PENDING] * 6, PAID), share=share)
        await query.until()

        assert expected == query.pauses


async def test_question_has_the_time_that_is_left() -> None:
    """The timeout of each query is the time that `wait` has left."""
    query = Asked((PENDING, PENDING, PAID), takes=0.5)
    await query.until(timeout=10)

    assert [10.0, 8.5, 6.0] == query.left


async def test_time_that_runs_out() -> None:
    """After its timeout, `wait` raises `WaitTimeoutError` with the last response, the operation and the number."""
    for timeout in [5.0, 7, 0.25]:
        query = Asked((PENDING, response_of("SHUT"), response_of("WHAT")))
        with pytest.raises(WaitTimeoutError) as caught:
            await query.until(timeout=timeout)
        error, (*_, last) = caught.value, query.times

        assert query.ends[min(len(query.times), 3) - 1] is error.response
        assert timeout == query.now - 1000.0
        assert last < timeout
        assert (len(query.times), "out of time") == (error.attempts, error.reason)
        assert f"'paid' did not come within {timeout:g} s" in str(error)


async def test_timeout_after_a_failed_query() -> None:
    """If the last query of a `wait` failed, `WaitTimeoutError` says why; an earlier failure is over."""
    cases: list[tuple[Any, str]] = [
        ((PENDING, NoAnswerError("cut")), "the last query failed: cut"),
        ((NoAnswerError("cut"), PENDING), ""),
    ]
    for ends, words in cases:
        query = Asked(ends)
        with pytest.raises(WaitTimeoutError) as caught:
            await query.until(timeout=5.0)

        assert ["'paid' did not come within 5 s", *filter(None, [words])] == str(caught.value.args[0]).split("; ")
        assert caught.value.response in ends
        assert caught.value.sent is True


async def test_time_that_runs_out_before_any_answer() -> None:
    """If no query got a response, the error has none; its attempts are those of all queries."""
    query = Asked((NoAnswerError("cut", attempts=3),))
    with pytest.raises(WaitTimeoutError) as caught:
        await query.until(timeout=4.0)

    assert (None, None) == (caught.value.response, caught.value.sent)
    assert (9, 3) == (caught.value.attempts, len(query.times))


async def test_errors_that_end_the_waiting() -> None:
    """`wait` raises an error that another query would not resolve, unchanged."""
    for error in [
        ServiceError("refused"),
        InvalidSignatureError("forged"),
        NotConfiguredError("open"),
        NotSentError("bad certificate", permanent=True),
        OutcomeUnknownError("?"),
        ZeroDivisionError("mine"),
        asyncio.CancelledError(),
    ]:
        query = Asked((PENDING, error, PAID))
        with pytest.raises(type(error)) as caught:
            await query.until()

        assert error is caught.value
        assert 2 == len(query.times)


async def test_error_of_the_function_is_the_callers() -> None:
    """An error of the caller's function is raised unchanged, whatever its class."""
    error = NoAnswerError("mine")

    def until(_: Response) -> bool:
        raise error

    query = Asked((PENDING,))
    with pytest.raises(NoAnswerError) as caught:
        await query.until(until)

    assert error is caught.value
    assert 1 == len(query.times)


async def test_retry_after_is_a_floor() -> None:
    """If the service sends `Retry-After`, the next query waits at least that long."""
    query = Asked((RateLimitedError("too many", retry_after=20.0), PENDING, PAID))
    await query.until()

    assert [20.0, 2.0] == query.pauses


async def test_retry_after_beyond_the_time() -> None:
    """If `Retry-After` exceeds the remaining time, `wait` fails immediately, and the error has `retry_after`."""
    query = Asked((PENDING, RateLimitedError("too many", retry_after=90.0)))
    with pytest.raises(WaitTimeoutError) as caught:
        await query.until()

    assert ([1.0], 90.0) == (query.pauses, caught.value.retry_after)
    assert PENDING is caught.value.response


async def paid_yet(answer: Response) -> bool:
    """Be an `async` condition, which a user may pass by mistake."""
    raise AssertionError(answer)


def promised(_: Response) -> Any:
    """Return a future that has no result."""
    return asyncio.get_running_loop().create_future()


PLAIN: Final = "until must be a plain function of the response, which says whether to wait no more, not "


async def test_arguments_that_are_refused() -> None:
    """An unknown state, an `async` condition or an invalid timeout is refused, and no query is sent."""
    cases: list[tuple[dict[str, Any], str]] = [
        *(
            ({"until": bad}, "until must be one of pending, paid, clo")
            for bad in cast("tuple[Any, ...]", ("", "PAID", None, 1, []))
        ),
        # An `async` condition is refused, because its result would pass for true.
        *(({"until": bad}, PLAIN) for bad in (paid_yet, partial(paid_yet))),
        *(
            ({"timeout": bad}, "timeout must be a number of seconds above 0")
            for bad in (0, -1, None, "5", True, float("nan"), float("inf"))
        ),
    ]
    for arguments, words in cases:
        query = Asked((PAID,))
        with pytest.raises(InvalidArgumentError) as caught:
            await query.until(**arguments)

        assert str(caught.value).startswith(words)
        assert ([*arguments], []) == ([caught.value.field], query.times)


@pytest.mark.parametrize(
    "until",
    [lambda answer: paid_yet(answer), promised],  # noqa: PLW0108 - its kind matters
    ids=["coroutine", "future"],
)
async def test_condition_that_must_be_awaited(until: Any) -> None:
    """A condition that returns an awaitable is refused, without a warning from Python."""
    query = Asked((PENDING,))
    with pytest.raises(InvalidArgumentError) as caught:
        await query.until(until)
    gc.collect()

    assert str(caught.value).startswith(PLAIN)
    assert ("until", [0.0]) == (caught.value.field, query.times)
    assert (True, "WAIT") == (caught.value.sent, caught.value.response and caught.value.response.get("state"))


async def test_state_that_the_profile_does_not_map() -> None:
    """If the profile does not map the state, the error names the missing key, and no query is sent."""
    for until, profile, expected in [
        ("expired", MAPPED, "states.order"),
        ("paid", PROFILE, "states.order"),
        ("paid", evolve(MAPPED, answer=AnswerShape()), "answer.order_status"),
    ]:
        query = Asked((PAID,))
        with pytest.raises(NotConfiguredError) as caught:
            await query.until(until, profile=profile)

        assert (expected, []) == (caught.value.field, query.times)


WAITS: Final = (
    ("orders", "T1", "paid", "/payment/orderquery"),
    ("payments", "T1", "paid", "/payment/status"),
    ("refunds", "R1", "succeeded", "/payment/refund/status"),
)


async def test_response_about_another_ends_no_wait() -> None:
    """A response about another order, payment or refund does not end `wait`: the query is sent again, and says why."""
    settings: dict[str, Any] = {"credentials": CREDENTIALS, "profile": SANDBOX, "retry": RetryPolicy(base_delay=0)}
    for name, number, state, path in WAITS:
        retries: list[Any] = []
        other, right = (
            answer(200, json.dumps({"code": "SBX_OK", "status": f"SBX_{state.upper()}", **numbers}).encode())
            for numbers in ({"outTradeNo": "T0", "outRefundNo": "R0"}, {"outTradeNo": "T1", "outRefundNo": "R1"})
        )
        with Recorder([other, other, right]) as service:
            async with Session(service.url, on_event=retries.append, **settings) as pay:
                found = await getattr(pay, name).wait(number, until=state, timeout=5)

        assert [True] * 2 == ["0 in the response" in each.reason for each in retries if isinstance(each, Retrying)]
        assert ("T1", "R1", state, 3) == (found["outTradeNo"], found["outRefundNo"], found.state, found.attempts)
        assert [path] * 3 == [each.path for each in service.requests]
