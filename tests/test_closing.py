"""Closing a session, and shielded calls that go on without their caller."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import product
from typing import Any, Final, TypeAlias

import pytest
from attrs import evolve

from payasync import (
    Attempted,
    Call,
    Event,
    Profile,
    Recovery,
    Reply,
    Response,
    Retrying,
    RetryPolicy,
    Send,
    Session,
    Unknown,
    errors,
)
from payasync import session as session_module
from payasync.profile.sandbox_profile import PROFILE
from tests.foreign.recorder import PATIENCE, RESET, SILENT, Answer, Recorder, answer
from tests.inside import turns
from tests.sessions import FAST, KEYS, OK, begin, connect
from tests.wire.ten import CREDENTIALS, DOCUMENTED, TEN

LONG: Final = "40"
"""Seconds that the service asks to be left alone: within the time of a call, and far beyond that of a test."""
AT_ONCE: Final = 15.0
"""Seconds in which what ends at once has ended, on the busiest machine."""
TURNS: Final = 40

BUSY: Final = answer(503, b"{}", ("Retry-After", LONG))
TOO_MANY: Final = answer(429, b'{"code":"SBX_BUSY"}', ("Retry-After", LONG))
NOT_THERE: Final = answer(200, b'{"code":"SBX_NOT_FOUND"}')
QUARANTINED: Final = evolve(PROFILE, recovery=Recovery(quarantine=float(LONG)))

Ask = Callable[..., Awaitable[Response]]


def refund(pay: Session, **options: Any) -> Awaitable[Response]:
    """Make a write that has a number."""
    return pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=2, refund_amt=1, **options)


def close(pay: Session, **options: Any) -> Awaitable[Response]:
    """Make a write that may be repeated."""
    return pay.orders.close("T1", **options)


def query(pay: Session, **options: Any) -> Awaitable[Response]:
    """Make a read."""
    return pay.orders.query("T1", **options)


def shielded(ask: Ask) -> Ask:
    """Return a call with a shield; a read can have one only as `pay.request`."""
    if ask is query:
        return lambda pay: pay.request("POST", "/payment/orderquery", signed=True, read=True, shield=True)
    return lambda pay: ask(pay, shield=True)


async def end(call: Awaitable[Any]) -> Any:
    """Return the response or the error with which a call ends."""
    return (await asyncio.gather(call, return_exceptions=True))[0]


class Listener:
    """An `on_event` that signals when a call has begun a long wait."""

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.waits = asyncio.Event()

    def __call__(self, event: Event) -> None:
        """Record an event."""
        self.told.append(event)
        if isinstance(event, Retrying) and event.delay > float(LONG) / 2:
            self.waits.set()

    @property
    def unknown(self) -> list[str | None]:
        """The numbers of the calls that were reported as unknown."""
        return [event.reference for event in self.told if isinstance(event, Unknown)]


session = partial(connect, profile=PROFILE, retry=FAST)


Pause: TypeAlias = tuple[Ask, list[Answer], Profile, type[errors.PayasyncError], list[str | None]]
PAUSES: Final[dict[str, Pause]] = {
    "a refund before its question": (refund, [BUSY], PROFILE, errors.OutcomeUnknownError, ["R1"]),
    "a refund in quarantine": (refund, [RESET, NOT_THERE], QUARANTINED, errors.OutcomeUnknownError, ["R1"]),
    "a refund that never was taken": (refund, [TOO_MANY], PROFILE, errors.RateLimitedError, []),
    "closing an order": (close, [BUSY], PROFILE, errors.OutcomeUnknownError, ["T1"]),
    "a query": (query, [BUSY], PROFILE, errors.NoAnswerError, []),
    "a query of too many": (query, [TOO_MANY], PROFILE, errors.RateLimitedError, []),
    "a refund that is cut off": (refund, [SILENT], PROFILE, errors.OutcomeUnknownError, ["R1"]),
    "closing an order that is cut off": (close, [SILENT], PROFILE, errors.OutcomeUnknownError, ["T1"]),
    "a query that is cut off": (query, [SILENT], PROFILE, errors.NoAnswerError, []),
}
"""By a call that closing ends: its script and profile, its error, and what is unknown then."""
PATIENT: Final = RetryPolicy(base_delay=float(LONG), max_delay=float(LONG))


@pytest.mark.parametrize("pause", PAUSES.values(), ids=PAUSES)
@pytest.mark.parametrize(
    ("shield", "grace"), [(False, 0), (True, 0), (False, 0.01)], ids=["plain", "shielded", "after a grace"]
)
async def test_call_that_waits_raises_its_last_error(pause: Pause, *, shield: bool, grace: float) -> None:
    """Closing ends the wait before a retry, after the grace: the call raises its final error and sends no more.

    A call whose attempt ends because of closing does not wait for a retry.
    """
    ask, script, profile, error, unknown = pause
    heard = Listener()
    with Recorder(script, otherwise=OK) as service:
        silent = script == [SILENT]
        pay = session(service, profile=profile, on_event=heard, **{"retry": PATIENT} if silent else {})
        call = asyncio.ensure_future((shielded(ask) if shield else ask)(pay))
        await (asyncio.to_thread(service.wait_for_request) if silent else heard.waits.wait())
        async with asyncio.timeout(AT_ONCE):
            await pay.aclose(grace)
            told = heard.unknown
            ended = await end(call)

    assert error is type(ended)
    assert unknown == heard.unknown
    assert not shield or told == unknown
    assert len(script) == len(service.requests) == ended.attempts


@pytest.mark.parametrize(
    ("copied", "of_copy"),
    [(lambda pay: pay.with_options(retry=FAST), True), (lambda pay: pay.for_merchant(KEYS), False)],
)
async def test_closing_a_copy_cuts_nothing(copied: Callable[[Session], Session], *, of_copy: bool) -> None:
    """Closing a copy ends neither waiting calls nor connections; closing its session does."""
    heard = Listener()
    with Recorder([BUSY], otherwise=OK) as service:
        pay = session(service, on_event=heard)
        copy = copied(pay)
        call = asyncio.ensure_future(query(copy if of_copy else pay))
        await heard.waits.wait()
        await copy.aclose()
        await turns(TURNS)
        early = call.done()
        with pytest.raises(errors.SessionClosedError):
            await query(copy)
        found = await query(pay)
        async with asyncio.timeout(AT_ONCE):
            await pay.aclose()
            with pytest.raises(errors.NoAnswerError):
                await call

    assert not early
    assert 200 == found.http_status
    assert [1, 1] == [request.connection for request in service.requests]


async def test_close_waits_for_shielded_calls() -> None:
    """A shielded call has ended when `aclose` returns, even if its layers clean up slowly."""
    landed: list[str] = []

    async def tidy(call: Call, send: Send) -> Reply:
        try:
            return await send(call)
        finally:
            await turns(TURNS)
            landed.append(call.operation.name)

    with Recorder(otherwise=SILENT) as service:
        pay = session(service, middleware=[tidy])
        caller = await begin(refund(pay, shield=True), service)
        caller.cancel()
        await asyncio.wait([caller])
        await pay.aclose()
        at_the_end = list(landed)

    assert ["refunds.create"] == at_the_end
    assert caller.cancelled()


documented = partial(connect, credentials=CREDENTIALS, profile=DOCUMENTED, retry=RetryPolicy(attempts=1, quota=0))
READS: Final = ("orders.query", "payments.status", "refunds.status")
WRITES: Final[dict[str, Callable[..., Awaitable[Response]]]] = {
    **{one.name: one.call for one in TEN if one.name not in READS},
    "POST /bill": lambda pay, **options: pay.request("POST", "/bill", **options),
}


async def cancel(service: Recorder, call: Awaitable[Response]) -> None:
    """Cancel a call once the service has read it whole."""
    task = await begin(call, service)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("name", WRITES)
async def test_shielded_write_goes_on_without_its_caller(name: str) -> None:
    """A shielded write goes on after its caller is cancelled, and `aclose(grace=)` waits for it."""
    go, told = threading.Event(), list[Event]()
    with Recorder(otherwise=answer(after=go)) as service:
        pay = documented(service, on_event=told.append)
        await cancel(service, WRITES[name](pay, shield=True))
        closing = asyncio.create_task(pay.aclose(grace=PATIENCE))
        await asyncio.sleep(0)
        waited = not closing.done()
        go.set()
        await closing

    assert waited
    assert [(name, 200)] == [(event.operation, event.status) for event in told if isinstance(event, Attempted)]
    assert not [event for event in told if isinstance(event, Unknown)]


async def test_shielded_write_is_repeated_and_asked_about() -> None:
    """A shielded write keeps its retries and queries after its caller is cancelled."""
    told: list[Event] = []
    gate = threading.Event()
    with Recorder([Answer(then="reset", after=gate)]) as service:
        pay = documented(service, on_event=told.append, retry=RetryPolicy(base_delay=0))
        await cancel(service, WRITES["refunds.create"](pay, shield=True))
        asyncio.get_running_loop().call_soon(gate.set)
        await pay.aclose(grace=PATIENCE)

    assert ["/payment/refund", "/payment/refund/status"] == [request.path for request in service.requests]
    assert not [event for event in told if isinstance(event, Unknown)]


async def test_shielded_write_returns_to_its_caller() -> None:
    """A shielded call returns or raises as one without a shield does."""
    with Recorder([answer(), answer(400, b'{"code":"SBX_OTHER"}')]) as service:
        async with documented(service) as pay:
            response = await WRITES["orders.place"](pay, shield=True)
            with pytest.raises(errors.PayasyncError) as caught:
                await WRITES["orders.place"](pay, shield=True)

    assert 200 == response.http_status
    assert "orders.place" == caught.value.operation
    assert 2 == len(service.requests)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the time that a closing session waits for layers."""
    # No setting shortens it, and the test would wait for it.
    monkeypatch.setattr(session_module, "CUT_OFF_GRACE", 0.05)


def stuck(reached: asyncio.Event, go: asyncio.Event, *, sends: bool, stubborn: bool = False) -> Any:
    """Return a layer that never ends, before or after it has sent."""

    async def layer(call: Call, send: Send) -> Reply:
        reply = await send(call) if sends else None
        reached.set()
        try:
            await go.wait()
        except asyncio.CancelledError:
            if not stubborn:
                raise
            await go.wait()
        return reply or await send(call)

    return layer


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("sends", "stubborn", "unknown"),
    [(False, False, []), (True, False, ["R1"]), (True, True, [])],
    ids=["before", "behind", "stubborn"],
)
async def test_shielded_call_that_is_stuck_is_cancelled(unknown: list[str], *, sends: bool, stubborn: bool) -> None:
    """A stuck layer of a shielded call is cancelled, and its caller gets `SessionClosedError`.

    `aclose` returns even if a layer ignores its cancellation.
    """
    heard, reached, go = Listener(), asyncio.Event(), asyncio.Event()
    with Recorder(otherwise=OK) as service:
        pay = session(service, on_event=heard, middleware=[stuck(reached, go, sends=sends, stubborn=stubborn)])
        caller = asyncio.ensure_future(refund(pay, shield=True))
        await reached.wait()
        async with asyncio.timeout(AT_ONCE):
            await pay.aclose()
            told = heard.unknown
            if not stubborn:
                await asyncio.wait([caller])
        early = caller.done()
        go.set()
        ended = await end(caller)

    assert (stubborn, unknown, int(sends)) == (not early, told, len(service.requests))
    if stubborn:
        assert 200 == ended.http_status
        return
    assert (errors.SessionClosedError, None) == (type(ended), ended.sent)
    assert "waited no longer for this call" in str(ended)
    assert {asyncio.current_task()} == asyncio.all_tasks()


async def test_call_that_closes_its_session() -> None:
    """A layer may close its own session: neither the grace nor `aclose` waits for its call."""

    async def closing(call: Call, send: Send) -> Reply:
        reply = await send(call)
        await sessions[-1].aclose(grace=60)
        return reply

    sessions = list[Session]()
    for shield in (False, True):
        with Recorder(otherwise=OK) as service:
            sessions.append(session(service, middleware=[closing]))
            async with asyncio.timeout(AT_ONCE):
                found = await refund(sessions[-1], shield=shield)
            with pytest.raises(errors.SessionClosedError):
                await refund(sessions[-1])

        assert (200, 1) == (found.http_status, len(service.requests))


async def test_grace_that_is_none() -> None:
    """An invalid `grace` is refused by name, and the session stays open."""
    wrong: list[Any] = ["1", None, True, -0.1, float("nan"), 1j]
    with Recorder(otherwise=OK) as service:
        async with session(service) as pay:
            for each, grace in product((pay, pay.with_options(retry=FAST)), wrong):
                with pytest.raises(errors.InvalidArgumentError) as caught:
                    await each.aclose(grace=grace)

                assert ("grace", "a number of seconds, 0 or more") == (caught.value.field, caught.value.rule)
                assert 200 == (await query(each)).http_status


@pytest.mark.parametrize(
    ("ask", "error"), [(refund, errors.OutcomeUnknownError), (query, errors.NoAnswerError)], ids=["refund", "query"]
)
async def test_closing_wakes_the_waits_of_other_loops(ask: Ask, error: type[errors.PayasyncError]) -> None:
    """Closing a session in one thread immediately ends calls that wait in another thread's loop."""
    ends: list[Any] = []
    waits, ended, over = threading.Event(), threading.Event(), threading.Event()

    def on_event(event: Event) -> None:
        if isinstance(event, Retrying):
            waits.set()

    async def call() -> None:
        ends.append(await end(ask(pay)))
        ended.set()
        await asyncio.to_thread(over.wait, PATIENCE)

    with Recorder([BUSY], otherwise=OK) as service:
        pay = session(service, on_event=on_event)
        thread = threading.Thread(target=lambda: asyncio.run(call()))
        thread.start()
        await asyncio.to_thread(waits.wait, PATIENCE)
        here = await query(pay)
        await pay.aclose()
        in_time = await asyncio.to_thread(ended.wait, AT_ONCE)
        await asyncio.to_thread(service.wait_for_ends)
        over.set()
        await asyncio.to_thread(thread.join, PATIENCE)

    assert in_time
    assert [error] == [type(each) for each in ends]
    assert 200 == here.http_status
    assert 2 == len(service.requests)


async def test_grace_is_not_for_calls_of_other_loops() -> None:
    """The grace does not wait for calls of another loop; they are cut off."""
    ends: list[Any] = []

    async def call() -> None:
        ends.append(await end(refund(pay)))

    with Recorder(otherwise=SILENT) as service:
        pay = session(service, retry=RetryPolicy(attempts=1, quota=0))
        thread = threading.Thread(target=lambda: asyncio.run(call()))
        thread.start()
        await asyncio.to_thread(service.wait_for_request)
        async with asyncio.timeout(AT_ONCE):
            await pay.aclose(grace=PATIENCE)
        await asyncio.to_thread(thread.join, PATIENCE)

    assert [errors.OutcomeUnknownError] == [type(each) for each in ends]
