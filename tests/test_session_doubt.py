"""A write that somebody gives up, and what a call carries for whoever asks about it: options of every write."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import (
    Attempted,
    Call,
    Event,
    InvalidArgumentError,
    NotSentTimeoutError,
    PayasyncError,
    Reply,
    Response,
    RetryPolicy,
    Secret,
    Send,
    Unknown,
)
from tests.foreign.recorder import PATIENCE, SILENT, Answer, Recorder, answer
from tests.sessions import connect
from tests.wire.ten import CREDENTIALS, DOCUMENTED, TEN, TenCall

READS: Final = ("orders.query", "payments.status", "refunds.status")
WRITES: Final[dict[str, Callable[..., Awaitable[Response]]]] = {
    **{one.name: one.call for one in TEN if one.name not in READS},
    "POST /payment/bill": lambda pay, **options: pay.request("POST", "/payment/bill", **options),
}
each_write = pytest.mark.parametrize("name", WRITES)


session = partial(connect, credentials=CREDENTIALS, profile=DOCUMENTED, retry=RetryPolicy(quota=0))
"""It has no budget to try anything again, or to ask what became of it."""


async def cancelled(service: Recorder, call: Awaitable[Response]) -> None:
    """Cancel a call once the service has read it whole."""
    task = asyncio.ensure_future(call)
    await asyncio.to_thread(service.wait_for_request)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("one", TEN, ids=lambda one: one.name)
async def test_call_that_is_cancelled_after_the_service_read_it(one: TenCall) -> None:
    """A write that is cancelled after it was sent is reported as unknown; a read is not."""
    told: list[Event] = []
    with Recorder(otherwise=SILENT) as service:
        async with session(service, on_event=told.append) as pay:
            await cancelled(service, one.call(pay))

    assert ([] if one.name in READS else [one.name]) == [each.operation for each in told if isinstance(each, Unknown)]
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
    """A signature scheme that hangs ends at the call's deadline."""
    hanging: Any = Hanging()
    with Recorder() as service:
        async with session(service, profile=evolve(DOCUMENTED, signature=hanging)) as pay:
            with pytest.raises(NotSentTimeoutError, match="the signature scheme took longer than the call had"):
                await asyncio.wait_for(pay.orders.query("T1", timeout=0.05), PATIENCE)

    assert [] == service.connections


@each_write
async def test_shielded_write_goes_on_without_its_caller(name: str) -> None:
    """A shielded write goes on after its caller is cancelled, and `aclose(grace=)` waits for it."""
    go, told = threading.Event(), list[Event]()
    with Recorder(otherwise=answer(after=go)) as service:
        pay = session(service, on_event=told.append)
        await cancelled(service, WRITES[name](pay, shield=True))
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
        pay = session(service, on_event=told.append, retry=RetryPolicy(base_delay=0))
        await cancelled(service, WRITES["refunds.create"](pay, shield=True))
        asyncio.get_running_loop().call_soon(gate.set)
        await pay.aclose(grace=PATIENCE)

    assert ["/payment/refund", "/payment/refund/status"] == [request.path for request in service.requests]
    assert not [event for event in told if isinstance(event, Unknown)]


async def test_shielded_write_answers_its_caller() -> None:
    """A shielded call returns or raises as one without a shield does."""
    with Recorder([answer(), answer(400, b"{}")]) as service:
        async with session(service) as pay:
            response = await WRITES["orders.place"](pay, shield=True)
            with pytest.raises(PayasyncError) as caught:
                await WRITES["orders.place"](pay, shield=True)

    assert 200 == response.http_status
    assert "orders.place" == caught.value.operation
    assert 2 == len(service.requests)


@each_write
async def test_intent_travels_with_the_call_and_not_on_the_wire(name: str) -> None:
    """Layers see `intent`; the service does not."""
    seen: list[str | None] = []

    async def layer(call: Call, send: Send) -> Reply:
        seen.append(call.intent)
        return await send(call)

    with Recorder() as service:
        async with session(service, middleware=[layer]) as pay:
            await WRITES[name](pay, intent="invoice-42")
            await WRITES[name](pay, intent=None)

    assert ["invoice-42", None] == seen
    assert b"invoice-42" not in service.received


@pytest.mark.parametrize("intent", ["", " ", 42, True, "\ud800"], ids=repr)
@each_write
async def test_intent_is_a_text(name: str, intent: Any) -> None:
    """An `intent` that is not a text is refused, and the error names the call."""
    with Recorder() as service:
        async with session(service) as pay:
            with pytest.raises(InvalidArgumentError, match="intent must be a text that is not empty") as caught:
                await WRITES[name](pay, intent=intent)

    assert ("intent", name) == (caught.value.field, caught.value.operation)
    assert [] == service.connections
