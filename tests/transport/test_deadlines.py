"""One timer for all deadlines, and what `Timeouts.connect` bounds."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Final

import aiohttp
import orjson
import pytest

from payasync import NotSentError, OutcomeUnknownError, Profile, Session, Timeouts
from payasync.clocks import Deadlines, running_task
from payasync.endpoints import PLACE_ORDER
from payasync.errors import NotSentTimeoutError
from payasync.transport.deadlines import Deadline
from payasync.wire.call import Call, Lease, Reply, Send
from tests.foreign.recorder import HEAD_END, SILENT, Answer, Recorder, answer
from tests.inside import Time, busy, turns, until, waiting
from tests.sessions import begin, connect, create

LONG: Final = 20
"""Turns of the loop in which a look has certainly come, where one is to come."""


def call(seconds: float = 60, **facts: Any) -> Call:
    """Return a call whose time is over in so many seconds."""
    deadline = asyncio.get_running_loop().time() + seconds
    return Call(
        operation=PLACE_ORDER, profile=Profile(), fields={}, deadline=deadline, timeouts=Timeouts(total=60), **facts
    )


def bounds(call: Call) -> Deadline:
    """Return the deadline of a call in this loop."""
    return Deadline(Deadlines(asyncio.get_running_loop()), call)


async def test_cancelled_by_others() -> None:
    """Another task's cancellation stays a cancellation, even if the time is over in the same turn."""
    deadline = bounds(call())

    async def bounded() -> None:
        with deadline:
            await turns(LONG)

    task = asyncio.ensure_future(bounded())
    await turns(1)
    deadline.expire()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert task.cancelled()


async def test_calls_end_in_their_order() -> None:
    """If the time of several calls is over at one check, the earliest deadline ends first; equal ones in turn."""
    deadlines, time, ended = Deadlines(asyncio.get_running_loop()), Time(), list[tuple[float, int]]()

    async def one(seconds: float, number: int) -> None:
        try:
            with Deadline(deadlines, call(seconds)):
                await asyncio.get_running_loop().create_future()
        except TimeoutError:
            ended.append((seconds, number))

    moment = asyncio.get_running_loop().time()
    deadlines.time = lambda: moment
    calls = [asyncio.ensure_future(one(seconds, number)) for number in range(20) for seconds in (3.0, 1.0)]
    await turns(1)
    for each in deadlines.running:
        each.when = float(round(each.when - moment))
    moment += 60
    await time.pass_by(1)
    await asyncio.gather(*calls)

    assert sorted(ended) == ended


async def test_done_as_the_time_was_over() -> None:
    """If the work ends as the time is over, there is no error, and the task is not left cancelled."""
    with bounds(call()) as deadline:
        deadline.expire()
        with pytest.raises(asyncio.CancelledError):
            await turns(1)
    await turns(1)

    assert 0 == running_task().cancelling()


async def test_closing() -> None:
    """Closing ends the attempts of other tasks as if their time were over, and not that of its own task."""
    deadlines = Deadlines(asyncio.get_running_loop())

    async def bounded() -> None:
        with Deadline(deadlines, call()):
            await turns(LONG)

    other = asyncio.ensure_future(bounded())
    with Deadline(deadlines, call()):
        await turns(1)
        deadlines.close()
        (ended,) = await asyncio.gather(other, return_exceptions=True)

    assert isinstance(ended, TimeoutError)


async def test_a_connection_that_came_late_is_used(time: Time) -> None:
    """If a connection is there, `Timeouts.connect` no longer bounds the call."""
    attempt = call()
    with bounds(attempt) as deadline:
        deadline.connect()
        time.block(31)
        deadline.begin()

    assert attempt.progress.begun


@pytest.mark.parametrize("why", ["too late", "given up", "cancelled", "its lease is over"])
async def test_what_must_not_begin(why: str) -> None:
    """A write does not begin if it is too late, aborted or cancelled, or if its lease is over."""
    lease = Lease(0.0, 0.0 if why == "its lease is over" else 60.0, lambda: 0.0)
    attempt, task = call(1 if why == "too late" else 60, lease=lease), running_task()
    with bounds(attempt) as deadline:
        attempt.progress.over = why == "given up"
        if why == "cancelled":
            task.cancel()
        with pytest.raises(TimeoutError):
            deadline.begin()
        if why == "cancelled":
            with pytest.raises(asyncio.CancelledError):
                await turns(1)
            task.uncancel()

    assert not attempt.progress.begun


async def test_begins_in_a_task_that_was_cancelled_before() -> None:
    """A task that was cancelled earlier, and cleans up, may make a call."""
    attempt, task = call(), running_task()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turns(1)
    with bounds(attempt) as deadline:
        deadline.begin()
    task.uncancel()

    assert attempt.progress.begun


session = partial(connect, timeouts=Timeouts(total=45, connect=5, read=20))


@pytest.fixture
async def time() -> Time:
    """The time of the test's loop."""
    return Time()


async def failed(call: Awaitable[object]) -> NotSentError:
    """Return the error with which a call ends; the test gives up before the call's own timeout."""
    async with asyncio.timeout(15):
        with pytest.raises(NotSentError) as caught:
            await call
    return caught.value


def lent(connections: int) -> aiohttp.ClientSession:
    """Return a user's own aiohttp session."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections))


@pytest.fixture(params=[False, True], ids=["own pool", "lent connector"])
async def http(request: pytest.FixtureRequest) -> AsyncIterator[aiohttp.ClientSession | None]:
    """Return an aiohttp session with one connection, or `None`."""
    async with lent(1) as found:
        yield found if request.param else None


async def test_waiting_for_the_pool_is_not_connecting(time: Time, http: aiohttp.ClientSession | None) -> None:
    """A call may wait for a connection of the pool for longer than `Timeouts.connect`."""
    go = threading.Event()
    async with Recorder([answer(after=go)]) as service, session(service, max_connections=1, http=http) as pay:
        calls = [asyncio.ensure_future(create(pay)) for _ in range(4)]
        await until(lambda: waiting(pay) == 3)
        await asyncio.to_thread(service.wait_for_request)
        await time.pass_by(19)
        go.set()
        ends = await asyncio.gather(*calls)

    assert [200] * 4 == [each.http_status for each in ends]
    assert [1] * 4 == [request.connection for request in service.requests]


async def test_waiting_for_the_pool_ends_with_the_call(time: Time) -> None:
    """A call that gets no connection in time was not sent, and the error names the setting."""
    async with Recorder([SILENT]) as service, session(service, max_connections=1) as pay:
        first = await begin(create(pay), service)
        second = asyncio.ensure_future(create(pay.with_options(timeouts=Timeouts(total=8, connect=5))))
        await until(lambda: waiting(pay))
        await time.pass_by(7)
        still_waiting = not second.done()
        await time.pass_by(1)
        error = await failed(second)
        first.cancel()

    assert still_waiting
    assert NotSentTimeoutError is type(error)
    assert (False, False) == (error.sent, error.permanent)
    assert "no connection was free in time: raise max_connections" in str(error)
    assert 1 == len(service.requests)


@pytest.mark.parametrize("ends", ["answered", "cancelled"])
async def test_too_late_to_begin(time: Time, ends: str) -> None:
    """If a connection is freed in a call's last two seconds, the call waits on, and the one behind it is sent."""
    go = threading.Event()
    with Recorder([answer(after=go)]) as service:
        async with session(service, max_connections=1, timeouts=Timeouts(total=45, read=45)) as pay:
            first = await begin(create(pay), service)
            late = asyncio.ensure_future(create(pay.with_options(timeouts=Timeouts(total=20))))
            behind = asyncio.ensure_future(create(pay))
            await until(lambda: waiting(pay) == 2)
            await time.pass_by(18.5)
            go.set() if ends == "answered" else first.cancel()
            async with asyncio.timeout(15):
                await behind
            still_waiting = not late.done()
            await time.pass_by(1.5)
            error = await failed(late)
            await asyncio.gather(first, return_exceptions=True)

    assert still_waiting
    assert NotSentTimeoutError is type(error)
    assert 2 == len(service.requests)


async def test_waiting_calls_get_connections_in_their_order() -> None:
    """The call that has waited the longest gets the next free connection."""
    go = threading.Event()
    async with Recorder([answer(after=go)]) as service, session(service, max_connections=1) as pay:
        calls = [asyncio.ensure_future(create(pay, amount)) for amount in (1, 2, 3, 4)]
        await until(lambda: waiting(pay) == 3)
        go.set()
        await asyncio.gather(*calls)

    assert [1, 2, 3, 4] == [orjson.loads(request.body)["amount"] for request in service.requests]


async def test_connection_of_a_call_that_timed_out_is_freed(time: Time) -> None:
    """If a call gets no response in time, the next one gets a connection."""
    async with Recorder([SILENT]) as service, session(service, max_connections=1) as pay:
        first = await begin(create(pay.with_options(timeouts=Timeouts(total=8, read=5))), service)
        second = asyncio.ensure_future(create(pay))
        await until(lambda: waiting(pay))
        await time.pass_by(5)
        async with asyncio.timeout(15):
            await second
        await asyncio.gather(first, return_exceptions=True)

    assert 2 == len(service.requests)


@pytest.mark.parametrize("connected", [False, True])
async def test_call_that_its_middleware_made_too_late(time: Time, *, connected: bool) -> None:
    """A call whose middleware has left it too little time makes no connection, uses none, and says what was over."""
    slowness = 0.0 if connected else 43.5

    async def slow(call: Call, send: Send) -> Reply:
        await time.pass_by(slowness)
        return await send(call)

    async with Recorder() as service, session(service, middleware=[slow]) as pay:
        if connected:
            await create(pay)
            slowness = 43.5
        with pytest.raises(NotSentTimeoutError) as caught:
            await create(pay)

    words = "too little time was left to send it: the limit of the call, timeout= or Timeouts.total, is 45 s"
    assert words == caught.value.reason
    assert 2 * [int(connected)] == [len(service.connections), len(service.requests)]


async def test_a_free_connection_is_not_forgotten(http: aiohttp.ClientSession | None) -> None:
    """If the next waiting call is cancelled at any step, the one behind it gets the connection."""
    async with Recorder() as service, session(service, max_connections=1, http=http) as pay:
        for steps in range(12):
            first, second, third = (asyncio.ensure_future(create(pay)) for _ in range(3))
            await until(lambda: waiting(pay) == 2)
            first.cancel()
            await turns(steps)
            second.cancel()
            async with asyncio.timeout(15):
                await third
            await asyncio.gather(first, second, return_exceptions=True)


async def test_a_connection_that_others_free_is_not_forgotten() -> None:
    """If a call on a lent connector is cancelled as others free a connection, the call behind it gets it."""
    async with lent(2) as http, Recorder(by_path={"/held": SILENT}) as service, session(service, http=http) as pay:
        for steps in range(12):
            held = [asyncio.ensure_future(http.get(f"{service.url}/held")) for _ in range(2)]
            await until(lambda: len(busy(http)) == 2)
            calls = [asyncio.ensure_future(create(pay)) for _ in range(2)]
            await until(lambda: waiting(http) == 2)
            held[0].cancel()
            await turns(steps)
            calls[0].cancel()
            async with asyncio.timeout(15):
                await calls[1]
            held[1].cancel()
            await asyncio.gather(*held, *calls, return_exceptions=True)


async def test_lent_connector_is_closed_by_its_owner() -> None:
    """If the owner of a lent connector closes it, a call that waits for it raises `NotSentError`."""
    async with lent(1) as http, Recorder([SILENT]) as service, session(service, http=http) as pay:
        held = asyncio.ensure_future(http.get(service.url))
        await until(lambda: busy(http))
        call = asyncio.ensure_future(create(pay))
        await until(lambda: waiting(http))
        await http.close()
        error = await failed(call)
        await asyncio.gather(held, return_exceptions=True)

    assert NotSentError is type(error)


async def connecting(pay: Session, time: Time, far: Callable[[], object]) -> NotSentError:
    """Return the error of a call that gets this far and no farther within `Timeouts.connect`."""
    call = asyncio.ensure_future(create(pay))
    await until(far)
    await time.pass_by(4)
    still_connecting = not call.done()
    await time.pass_by(1)
    error = await failed(call)

    assert still_connecting
    assert NotSentTimeoutError is type(error)
    assert "no connection in time: Timeouts.connect is 5 s" == error.reason
    return error


async def test_a_name_server_that_is_silent(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Timeouts.connect` includes DNS."""
    asked: list[object] = []

    never = threading.Event()

    def silent(*given: object, **_: object) -> object:
        asked.append(given)
        return never.wait() and []

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    async with session("https://pay.example") as pay:
        await connecting(pay, time, lambda: asked)
    never.set()


async def test_a_handshake_that_never_ends(time: Time, http: aiohttp.ClientSession | None) -> None:
    """`Timeouts.connect` includes the TLS handshake."""
    async with Recorder() as service, session(service.url.replace("http:", "https:"), http=http) as pay:
        await connecting(pay, time, lambda: service.received)

    assert b"payments" not in service.received


async def test_a_proxy_that_is_silent(time: Time) -> None:
    """`Timeouts.connect` includes the CONNECT request to a proxy."""
    async with Recorder([SILENT]) as proxy, session("https://pay.example", proxy=proxy.url) as pay:
        await connecting(pay, time, lambda: proxy.requests)

    assert "CONNECT" == proxy.only.method


async def test_a_slow_proxy(time: Time) -> None:
    """`Timeouts.connect` starts once: its time in the CONNECT request is not given again to the TLS handshake."""
    go = threading.Event()
    with Recorder([Answer(b"HTTP/1.1 200 OK\r\n\r\n", after=go)]) as proxy:
        async with session("https://pay.example", proxy=proxy.url) as pay:
            call = asyncio.ensure_future(create(pay))
            await until(lambda: proxy.requests)
            await time.pass_by(3)
            go.set()
            await until(lambda: b"pay.example" in proxy.received.partition(HEAD_END)[2])
            await time.pass_by(1)
            still_connecting = not call.done()
            await time.pass_by(1)
            ended = call.done()
            error = await failed(call)

    assert (True, True) == (still_connecting, ended)
    assert (NotSentTimeoutError, "no connection in time: Timeouts.connect is 5 s") == (type(error), error.reason)


async def test_a_blocked_loop_does_not_end_a_response(time: Time) -> None:
    """If the loop was blocked for longer than `Timeouts.read`, a response is still read."""
    go = threading.Event()
    async with Recorder([answer(after=go)]) as service, session(service) as pay:
        call = await begin(create(pay), service)
        time.block(25)
        await turns(LONG)
        go.set()
        response = await call

    assert 200 == response.http_status


async def test_a_blocked_loop_does_not_end_a_connect(time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the loop was blocked for longer than `Timeouts.connect`, a new connection is still used."""
    asked, go, resolve = threading.Event(), threading.Event(), socket.getaddrinfo

    def late(*given: Any, **named: Any) -> Any:
        asked.set()
        go.wait()
        return resolve(*given, **named)

    monkeypatch.setattr(socket, "getaddrinfo", late)
    async with Recorder() as service, session(service.url.replace("127.0.0.1", "localhost")) as pay:
        call = asyncio.ensure_future(create(pay))
        await until(asked.is_set)
        time.block(6)
        await turns(LONG)
        go.set()
        response = await call

    assert 200 == response.http_status


async def test_a_blocked_loop_does_not_prolong_a_call(time: Time) -> None:
    """If the loop was blocked until `Timeouts.total` was over, the call ends."""
    async with Recorder([SILENT]) as service, session(service) as pay:
        call = await begin(create(pay), service)
        time.block(46)
        await turns(LONG)
        ended = call.done()
        call.cancel()

    assert ended
    assert isinstance(call.exception(), OutcomeUnknownError)
