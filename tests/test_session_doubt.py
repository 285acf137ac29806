"""A write that somebody gives up: what is known of it is said, and what is not known is said, too."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from datetime import date
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import (
    Attempted,
    Call,
    Event,
    InvalidArgumentError,
    NoAnswerError,
    NotSentError,
    NotSentTimeoutError,
    OutcomeUnknownError,
    PayasyncError,
    Reply,
    Response,
    RetryPolicy,
    Secret,
    Send,
    Session,
    Unknown,
)
from tests.foreign.recorder import RESET, SILENT, Recorder, answer
from tests.wire.ten import CREDENTIALS, DOCUMENTED, TEN, TenCall

PATIENCE: Final = 30.0
"""Seconds after which what should have ended will not."""
SOON: Final = 1.0
"""Seconds that a call is given to run out of, long enough to be sent on a busy machine."""

BY_NAME: Final = {one.name: one for one in TEN}
WRITE: Final = BY_NAME["subscriptions.cancel"]
"""One that cannot be asked about: the doubt stays."""
READ: Final = BY_NAME["orders.query"]
WRITES: Final = [one for one in TEN if one.name not in {"orders.query", "payments.status", "refunds.status"}]
READS: Final = [one for one in TEN if one not in WRITES]


def session(service: Recorder, **settings: Any) -> Session:
    """Return a session with a recorder, and with no budget to try anything again, or to ask what became of it."""
    once = {"credentials": CREDENTIALS, "profile": DOCUMENTED.profile, "retry": RetryPolicy(quota=0)}
    chosen: dict[str, Any] = {**once, **settings}
    return Session(service.url, **chosen)


async def begun(service: Recorder, call: Awaitable[Response]) -> "asyncio.Task[Response]":
    """Return a call in a task, once the service has read it whole."""
    task = asyncio.ensure_future(call)
    await asyncio.to_thread(service.wait_for_request)
    return task


def unknown(told: list[Event]) -> list[tuple[str, str | None]]:
    """Return which writes were said to be in doubt."""
    return [(event.operation, event.reference) for event in told if isinstance(event, Unknown)]


async def doubts_of_cancelled(service: Recorder, one: TenCall) -> list[str]:
    """Cancel a call once the service has read it, and return which writes were said to be in doubt."""
    told: list[Event] = []
    async with session(service, on_event=told.append) as pay:
        call = await begun(service, one.call(pay))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    return [operation for operation, _ in unknown(told)]


@pytest.mark.parametrize("one", WRITES, ids=lambda one: one.name)
async def test_write_that_is_cancelled_after_the_service_read_it(one: TenCall) -> None:
    """Cancelling does not take a payment back: the caller gets its cancellation, and `on_event` hears of the doubt."""
    with Recorder(otherwise=SILENT) as service:
        doubts = await doubts_of_cancelled(service, one)

    assert [one.name] == doubts
    assert 1 == len(service.requests)


@pytest.mark.parametrize("one", READS, ids=lambda one: one.name)
async def test_read_that_is_cancelled(one: TenCall) -> None:
    """Nothing is in doubt after a read."""
    with Recorder(otherwise=SILENT) as service:
        doubts = await doubts_of_cancelled(service, one)

    assert [] == doubts


@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_write_that_is_cancelled_before_it_was_sent(turns: int) -> None:
    """A write that still waits for a connection left nothing behind, and no doubt."""
    told: list[Event] = []
    with Recorder(otherwise=SILENT) as service:
        async with session(service, on_event=told.append, max_connections=1) as pay:
            first = await begun(service, TEN[0].call(pay))
            second = asyncio.ensure_future(WRITE.call(pay))
            for _ in range(turns):
                await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            before = unknown(told)
            first.cancel()
            await asyncio.wait([first])

    assert [] == before
    assert [(TEN[0].name, None)] == unknown(told)
    assert [TEN[0].path] == [request.path for request in service.requests]


@pytest.mark.long
async def test_wait_for_around_a_write() -> None:
    """`asyncio.wait_for` is the caller's own clock: its `TimeoutError` is the caller's, the doubt is ours to tell."""
    told: list[Event] = []
    with Recorder(otherwise=SILENT) as service:
        async with session(service, on_event=told.append) as pay:
            with pytest.raises(TimeoutError) as caught:
                await asyncio.wait_for(WRITE.call(pay), SOON)

    assert not isinstance(caught.value, PayasyncError)
    assert [("subscriptions.cancel", "S1")] == unknown(told)
    assert 1 == len(service.requests)


@pytest.mark.parametrize(("one", "kind"), [(WRITE, OutcomeUnknownError), (READ, TimeoutError)], ids=["write", "read"])
async def test_layer_with_a_clock_of_its_own(one: TenCall, kind: type[Exception]) -> None:
    """A layer's time-out after a write was sent is no `TimeoutError`: what retries on that would pay twice."""
    timers: list[asyncio.Timeout] = []

    async def hasty(call: Call, send: Send) -> Reply:
        async with asyncio.timeout(None) as timer:
            timers.append(timer)
            return await send(call)

    told: list[Event] = []
    with Recorder(otherwise=SILENT) as service:
        async with session(service, middleware=[hasty], on_event=told.append) as pay:
            call = await begun(service, one.call(pay))
            timers[0].reschedule(asyncio.get_running_loop().time())
            with pytest.raises(kind) as caught:
                await call

    assert (one is READ) == isinstance(caught.value, TimeoutError)
    assert one is READ or isinstance(caught.value.__cause__, TimeoutError)
    assert ([] if one is READ else [("subscriptions.cancel", "S1")]) == unknown(told)
    assert 1 == len(service.requests)


async def test_layer_that_fails_over_the_answer() -> None:
    """A layer that raises once the answer is there does not make a payment undone, even in our own words."""

    async def reading(call: Call, send: Send) -> Reply:
        Response.of(call, await send(call)).to(dict[str, int])
        raise AssertionError

    with Recorder() as service:
        async with session(service, middleware=[reading]) as pay:
            with pytest.raises(OutcomeUnknownError) as caught:
                await WRITE.call(pay)
            with pytest.raises(InvalidArgumentError):
                await READ.call(pay)

    assert isinstance(caught.value.__cause__, InvalidArgumentError)
    assert [WRITE.path, READ.path] == [request.path for request in service.requests]


async def test_layer_that_sends_again_by_itself() -> None:
    """A layer with a retry of its own may not turn doubt into proof: the first attempt may have been done."""

    async def stubborn(call: Call, send: Send) -> Reply:
        try:
            return await send(call)
        except NoAnswerError:
            raise NotSentError("nothing was sent the second time") from None

    with Recorder(otherwise=RESET) as service:
        async with session(service, middleware=[stubborn], retry=RetryPolicy(quota=0)) as pay:
            with pytest.raises(OutcomeUnknownError):
                await WRITE.call(pay)

    assert 1 == len(service.requests)


class Hanging:
    """A merchant's own scheme whose key lives in a machine that does not answer."""

    async def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> str:
        """Wait for ever."""
        await asyncio.Event().wait()
        return f"{path} {key!r} {fields}"

    def verify(self, fields: Mapping[str, Any], signature: str, *, path: str, key: Secret) -> bool:
        """Nothing is verified here."""
        raise NotImplementedError


async def test_scheme_that_hangs() -> None:
    """A signature that does not come is bounded by the call's time, too."""
    unsigned: Any = Hanging()
    with Recorder() as service:
        async with (
            session(service, profile=evolve(DOCUMENTED.profile, signature=unsigned)) as pay,
            asyncio.timeout(PATIENCE),
        ):
            with pytest.raises(NotSentTimeoutError, match="the signature scheme took longer than the call had"):
                await pay.orders.query("T1", timeout=0.05)

    assert [] == service.connections


SHIELDED: Final[dict[str, Callable[[Session], Awaitable[Response]]]] = {
    "payments.create": lambda pay: pay.payments.create(amount=1, currency="USD", shield=True),
    "orders.place": lambda pay: pay.orders.place(total_amt=1, currency="CAD", shield=True),
    "orders.close": lambda pay: pay.orders.close("T1", shield=True),
    "refunds.create": lambda pay: pay.refunds.create(
        out_trade_no="T1", out_refund_no="R1", total_amt=2, refund_amt=1, shield=True
    ),
    "subscriptions.create": lambda pay: pay.subscriptions.create(
        frequency="monthly", amount=1, start_date=date(2027, 1, 31), customer={}, shield=True
    ),
    "subscriptions.update": lambda pay: pay.subscriptions.update("S1", shield=True),
    "subscriptions.cancel": lambda pay: pay.subscriptions.cancel("S1", shield=True),
    "POST /payment/bill": lambda pay: pay.request("POST", "/payment/bill", shield=True),
}


@pytest.mark.parametrize("name", SHIELDED)
async def test_shielded_write_goes_on_without_its_caller(name: str) -> None:
    """Who is cancelled goes; the write comes to its end, and closing with grace waits for it."""
    go, told = threading.Event(), list[Event]()
    with Recorder(otherwise=answer(after=go)) as service:
        pay = session(service, on_event=told.append)
        caller = await begun(service, SHIELDED[name](pay))
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        closing = asyncio.create_task(pay.aclose(grace=PATIENCE))
        await asyncio.sleep(0)
        waited = not closing.done()
        go.set()
        await closing

    assert waited
    assert [(name, 200)] == [(event.operation, event.status) for event in told if isinstance(event, Attempted)]
    assert [] == unknown(told)


async def test_shielded_write_answers_its_caller() -> None:
    """Who stays gets the answer, or the error, as without a shield."""
    with Recorder([answer(), answer(400, b"{}")]) as service:
        async with session(service) as pay:
            response = await SHIELDED["orders.place"](pay)
            with pytest.raises(PayasyncError) as caught:
                await SHIELDED["orders.place"](pay)

    assert 200 == response.http_status
    assert "orders.place" == caught.value.operation
    assert 2 == len(service.requests)


async def test_write_without_a_shield_ends_with_its_caller() -> None:
    """The negative control: a cancelled write leaves nothing that closing would wait for."""
    with Recorder(otherwise=SILENT) as service:
        pay = session(service)
        caller = await begun(service, TEN[0].call(pay))
        caller.cancel()
        await asyncio.wait([caller])
        async with asyncio.timeout(PATIENCE):
            await pay.aclose(grace=10 * PATIENCE)

    assert caller.cancelled()


INTENDED: Final[dict[str, Callable[[Session, Any], Awaitable[Response]]]] = {
    "payments.create": lambda pay, intent: pay.payments.create(amount=1, currency="USD", intent=intent),
    "orders.place": lambda pay, intent: pay.orders.place(total_amt=1, currency="CAD", intent=intent),
    "orders.close": lambda pay, intent: pay.orders.close("T1", intent=intent),
    "refunds.create": lambda pay, intent: pay.refunds.create(
        out_trade_no="T1", out_refund_no="R1", total_amt=2, refund_amt=1, intent=intent
    ),
    "subscriptions.create": lambda pay, intent: pay.subscriptions.create(
        frequency="monthly", amount=1, start_date=date(2027, 1, 31), customer={}, intent=intent
    ),
    "subscriptions.update": lambda pay, intent: pay.subscriptions.update("S1", intent=intent),
    "subscriptions.cancel": lambda pay, intent: pay.subscriptions.cancel("S1", intent=intent),
    "POST /payment/bill": lambda pay, intent: pay.request("POST", "/payment/bill", intent=intent),
}


@pytest.mark.parametrize("name", INTENDED)
async def test_intent_travels_with_the_call_and_not_on_the_wire(name: str) -> None:
    """What a write is for is seen by every layer, and by no service."""
    seen: list[str | None] = []

    async def layer(call: Call, send: Send) -> Reply:
        seen.append(call.intent)
        return await send(call)

    with Recorder() as service:
        async with session(service, middleware=[layer]) as pay:
            await INTENDED[name](pay, "invoice-42")
            await INTENDED[name](pay, None)

    assert ["invoice-42", None] == seen
    assert b"invoice-42" not in service.received


@pytest.mark.parametrize("intent", ["", " ", 42, True, "\ud800"], ids=repr)
@pytest.mark.parametrize("name", INTENDED)
async def test_intent_is_a_text(name: str, intent: Any) -> None:
    """A name that is none is refused, with the call that it was meant for."""
    with Recorder() as service:
        async with session(service) as pay:
            with pytest.raises(InvalidArgumentError, match="intent must be a text that is not empty") as caught:
                await INTENDED[name](pay, intent)

    assert ("intent", name) == (caught.value.field, caught.value.operation)
    assert [] == service.connections
