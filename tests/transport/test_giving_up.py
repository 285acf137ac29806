"""An attempt that is given up cuts its connection, but not one that has become another call's by then."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from payasync import Call, Credentials, NoAnswerError, OutcomeUnknownError, Reply, Response, RetryPolicy, Send, Session
from payasync.profile.sandbox_profile import PROFILE
from tests.foreign.recorder import Answer, Recorder, answer
from tests.inside import busy, turns, until, waiting

KEYS: Final = Credentials("M1", secret_key="sk_1", signing_key="signing key of M1")
LIMIT: Final = 200
"""Bytes that an answer may have in these tests."""
OK: Final = answer(200, b'{"code":"SBX_OK"}').raw
LONG: Final = answer(200, b'{"code":"SBX_OK"}'.ljust(LIMIT + 1)).raw
"""Too long an answer, which comes in one part: when it is looked at, its connection is in the pool again."""

CALLS: Final[dict[str, Callable[[Session, int], Awaitable[Response]]]] = {
    "write": lambda pay, number: pay.payments.create(amount=number, currency="USD"),
    "read": lambda pay, number: pay.orders.query(f"T{number}"),
}


def session(service: Recorder, **settings: Any) -> Session:
    """Return a session with one connection of a kind, and no second try."""
    once = RetryPolicy(attempts=1)
    chosen: dict[str, Any] = {"max_connections": 1, "max_response_bytes": LIMIT, "retry": once, **settings}
    return Session(service.url, credentials=KEYS, profile=PROFILE, **chosen)


@pytest.mark.parametrize("name", CALLS)
async def test_long_answer_that_came_whole(name: str) -> None:
    """The connection of an answer that is refused for its length, but has ended, carries the call that waits for it."""
    ask, first_may, second_may = CALLS[name], threading.Event(), threading.Event()
    with Recorder([Answer(LONG, after=first_may), Answer(OK, after=second_may)]) as service:
        async with session(service) as pay:
            first = asyncio.ensure_future(ask(pay, 1))
            await asyncio.to_thread(service.wait_for_request)
            second = asyncio.ensure_future(ask(pay, 2))
            await until(lambda: waiting(pay) == 1)
            first_may.set()
            with pytest.raises(NoAnswerError if name == "read" else OutcomeUnknownError) as caught:
                await first
            await asyncio.to_thread(service.wait_for_request)
            early = second.done()
            second_may.set()
            found = await second

    assert "the answer is longer than max_response_bytes" == caught.value.reason
    assert not early
    assert (200, 1) == (found.http_status, found.attempts)
    assert [1, 1] == [request.connection for request in service.requests]


@pytest.mark.parametrize("name", CALLS)
async def test_cancelled_as_the_answer_ended(name: str) -> None:
    """Nor is it cut where the caller gave up in the very moment in which the answer's last byte came."""
    ask, first_may, second_may = CALLS[name], threading.Event(), threading.Event()
    half, received = len(OK) - 5, bytearray()
    with Recorder([Answer(OK[:half], after=first_may), Answer(OK, after=second_may)]) as service:
        async with session(service) as pay:
            first = asyncio.ensure_future(ask(pay, 1))
            await asyncio.to_thread(service.wait_for_request)
            second = asyncio.ensure_future(ask(pay, 2))
            (held,) = busy(pay)
            await until(lambda: waiting(pay) == 1)
            came = held.data_received

            def last_byte(data: bytes) -> None:
                received.extend(data)
                came(data)
                if bytes(received) == OK:
                    first.cancel()

            held.data_received = last_byte
            first_may.set()
            await until(lambda: bytes(received) == OK[:half])
            await turns(20)  # it has read the head, and waits for the rest
            service.connections[0].stream.sendall(OK[half:])
            (ended,) = await asyncio.gather(first, return_exceptions=True)
            await asyncio.to_thread(service.wait_for_request)
            held.data_received = came
            second_may.set()
            found = await second

    assert isinstance(ended, asyncio.CancelledError)
    assert (200, 1) == (found.http_status, found.attempts)
    assert [1, 1] == [request.connection for request in service.requests]


@pytest.mark.parametrize("name", CALLS)
async def test_cancelled_behind_its_answer(name: str) -> None:
    """What a call that has its answer does with it is its own affair: ending it ends no connection."""
    ask, has_answer, second_may = CALLS[name], asyncio.Event(), threading.Event()

    async def slow(call: Call, send: Send) -> Reply:
        reply = await send(call)
        if not has_answer.is_set():
            has_answer.set()
            await asyncio.Event().wait()
        return reply

    with Recorder([Answer(OK), Answer(OK, after=second_may)]) as service:
        async with session(service, middleware=[slow]) as pay:
            first = asyncio.ensure_future(ask(pay, 1))
            await has_answer.wait()
            second = asyncio.ensure_future(ask(pay, 2))
            await asyncio.to_thread(service.wait_for_request)
            await asyncio.to_thread(service.wait_for_request)
            first.cancel()
            (ended,) = await asyncio.gather(first, return_exceptions=True)
            second_may.set()
            found = await second

    assert isinstance(ended, asyncio.CancelledError)
    assert (200, 1) == (found.http_status, found.attempts)
    assert [1, 1] == [request.connection for request in service.requests]


@pytest.mark.parametrize("name", CALLS)
async def test_answer_that_has_not_ended(name: str) -> None:
    """The connection of an answer that is refused before its end is cut: the call that waits for one takes another."""
    ask = CALLS[name]
    endless = Answer(answer(200, b"x" * 10_000).raw[:-1])
    with Recorder([endless, Answer(OK)]) as service:
        async with session(service) as pay:
            first = asyncio.ensure_future(ask(pay, 1))
            await asyncio.to_thread(service.wait_for_request)
            found = await ask(pay, 2)
            (ended,) = await asyncio.gather(first, return_exceptions=True)

    assert isinstance(ended, NoAnswerError if name == "read" else OutcomeUnknownError)
    assert 200 == found.http_status
    assert [1, 2] == [request.connection for request in service.requests]
