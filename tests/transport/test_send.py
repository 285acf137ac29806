"""One attempt over HTTP: what it ends as, and within which bounds."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from yarl import URL

from payasync import Call, NoAnswerError, NoAnswerTimeoutError, NotSentError, Profile, Timeouts
from payasync.endpoints import CREATE_PAYMENT, Operation, custom
from payasync.errors import NotSentTimeoutError, SessionClosedError
from payasync.transport.pools import PoolSettings
from payasync.transport.send import Transport
from tests.foreign.certificates import server_tls, trusting_tls
from tests.foreign.recorder import Answer, Recorder, answer
from tests.inside import turns

BILL = custom("GET", "/bill", read=True)


@asynccontextmanager
async def transport(url: str, **settings: Any) -> AsyncGenerator[Transport]:
    """Give a transport, and close it."""
    pools = PoolSettings(
        tls=settings.pop("tls", None),
        max_connections=settings.pop("connections", 10),
        headers=settings.pop("headers", {}),
    )
    chosen: dict[str, Any] = {"proxy": None, "max_response_bytes": 1000} | settings
    made = Transport(URL(url), pools=pools, **chosen)
    try:
        yield made
    finally:
        await made.aclose()


def call(operation: Operation = CREATE_PAYMENT, **changes: Any) -> Call:
    """Return a call with half a minute to go."""
    deadline = asyncio.get_running_loop().time() + 30
    chosen: dict[str, Any] = {"profile": Profile(), "fields": {"a": 1}, "deadline": deadline} | changes
    return Call(operation=operation, **chosen)


@pytest.mark.parametrize("operation", [CREATE_PAYMENT, BILL], ids=["write", "read"])
@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
async def test_what_is_cancelled_begins_no_more(operation: Operation, secure: bool) -> None:  # noqa: FBT001 - as given
    """From the moment in which its task is cancelled, a call on a kept connection begins to write nothing."""
    settings = {"tls": trusting_tls(), "connections": 1}
    begun: list[tuple[bool, bool]] = []
    with Recorder(tls=server_tls() if secure else None) as service:
        async with transport(service.url, **settings) as way:
            for steps in range(5):
                await way.send(call(operation))
                await way.send(call(operation))
                attempt = call(operation)
                sending = asyncio.ensure_future(way.send(attempt))
                await turns(steps)
                before = attempt.progress.begun
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                begun.append((before, attempt.progress.begun))

    assert [(each, each) for each, _ in begun] == begun
    assert {(False, False), (True, True)} == set(begun)


async def test_what_wakes_too_late_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is stopped before the write, and wakes when the call is over, does not send it any more.

    By then others may have asked, heard that it never came, and made it again. The turned clock stands for the stop.
    """
    loop, ahead = asyncio.get_running_loop(), [0.0]
    time = loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + sum(ahead))
    with Recorder([answer(200, b"{}")]) as service:
        async with transport(service.url) as way:
            late = call()

            def stopped(_: object) -> bool:
                ahead.append(30)
                return False

            monkeypatch.setattr("payasync.transport.request.stray", stopped)
            with pytest.raises(NotSentTimeoutError):
                await way.send(late)

    assert [] == service.requests
    assert not late.progress.begun


async def test_the_rest_of_a_huge_answer_is_not_read() -> None:
    """The connection of an answer beyond the limit is dropped with it: the next call takes another."""
    with Recorder([answer(200, b"x" * 5_000_000)]) as service:
        async with transport(service.url) as way:
            with pytest.raises(NoAnswerError):
                await way.send(call())
            await way.send(call())

    assert [1, 2] == [request.connection for request in service.requests]


async def test_an_answer_in_many_parts_is_read_whole() -> None:
    """An answer that does not arrive at once is put together."""
    large = b"0123456789" * 400_000
    with Recorder([answer(200, large)]) as service:
        async with transport(service.url, max_response_bytes=len(large)) as way:
            reply = await way.send(call())

    assert large == reply.body


async def test_reading_is_bounded_from_the_start_of_the_request() -> None:
    """A service that takes the request and says nothing is left after `Timeouts.read`."""
    with Recorder([Answer(after=(never := threading.Event()))]) as service:
        async with transport(service.url) as way, asyncio.timeout(15):  # the call itself has twice as long
            with pytest.raises(NoAnswerTimeoutError) as caught:
                await way.send(call(timeouts=Timeouts(read=0.05)))
        never.set()

    assert "no answer in time" == caught.value.reason


async def test_a_deadline_that_is_over_sends_nothing() -> None:
    """Where the deadline passed before a connection was there, nothing was sent."""
    with Recorder() as service:
        async with transport(service.url) as way:
            with pytest.raises(NotSentTimeoutError):
                await way.send(call(deadline=0.0))

    assert [] == service.requests


async def test_a_name_that_does_not_resolve_sends_nothing() -> None:
    """DNS failures are provably not sent."""
    async with transport("https://nowhere.invalid") as way:
        with pytest.raises(NotSentError) as caught:
            await way.send(call())

    assert "the host name does not resolve" == caught.value.reason


async def test_a_call_that_waits_to_connect_when_the_session_closes_was_not_sent() -> None:
    """Closing ends what waits for a connection with the error for a closed session."""
    hold = threading.Event()
    with Recorder([Answer(answer().raw, after=hold)]) as service:
        async with transport(service.url, connections=1) as way:
            first = asyncio.create_task(way.send(call()))
            await asyncio.to_thread(service.wait_for_request)
            second = asyncio.create_task(way.send(call()))
            await asyncio.sleep(0)
            await way.aclose()
            ends = await asyncio.gather(first, second, return_exceptions=True)
        hold.set()

    assert [NoAnswerError, SessionClosedError] == [type(each) for each in ends]


async def test_the_profile_adds_its_headers() -> None:
    """Headers of the profile go with every call; what a layer adds goes before them."""
    headers = {"X-Version": "2", "X-Mode": "profile"}
    with Recorder() as service:
        async with transport(service.url, headers=headers) as way:
            await way.send(call(headers={"X-Mode": "layer"}))

    assert (["2"], ["layer"]) == (service.only.header("X-Version"), service.only.header("X-Mode"))
