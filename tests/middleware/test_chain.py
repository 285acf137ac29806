import asyncio
from collections.abc import Awaitable
from typing import Any, Final

import pytest

from payasync.endpoints import CREATE_PAYMENT
from payasync.errors import ConfigurationError, NoAnswerError, NoAnswerTimeoutError, NotSentTimeoutError, PayasyncError
from payasync.middleware.chain import await_in_time, guard
from payasync.wire.call import Call, Progress, Reply, Send
from tests.building import bare_call, reply, way

PATIENCE: Final = 30.0
"""Seconds after which what should have ended will not."""


def on_time(*, begun: bool = False) -> Call:
    """Return a call whose deadline is now, and of which something may have left."""
    progress = Progress()
    progress.begun = begun
    return bare_call(CREATE_PAYMENT, deadline=asyncio.get_running_loop().time(), progress=progress)


async def test_a_layer_may_pass_on_what_can_be_awaited() -> None:
    """A layer may be a plain function that returns an awaitable."""

    def plain(call: Call, send: Send) -> Awaitable[Reply]:
        return send(call)

    assert {"n": 1} == (await guard(plain)(bare_call(CREATE_PAYMENT), way(reply({"n": 1})).send)).document


@pytest.mark.parametrize("returned", [None, {}, "reply"], ids=repr)
async def test_a_layer_that_cannot_be_awaited(returned: Any) -> None:
    """A layer that returns nothing to await is refused by name, and nothing is sent."""

    def forgetful(call: Call, send: Send) -> Any:  # noqa: ARG001 - the shape of a layer
        return returned

    end = way()
    with pytest.raises(ConfigurationError, match="forgetful must be an `async def layer") as caught:
        await guard(forgetful)(bare_call(CREATE_PAYMENT), end.send)

    assert "middleware" == caught.value.field
    assert [] == end.calls


@pytest.mark.parametrize("returned", [None, {}, b"{}"], ids=repr)
async def test_a_layer_that_keeps_the_reply(returned: Any) -> None:
    """If a layer does not return the reply, the call raises `NoAnswerError`, because something may have been sent."""

    async def forgetful(call: Call, send: Send) -> Any:
        await send(call)
        return returned

    end = way()
    with pytest.raises(NoAnswerError, match="forgetful must return what send returns") as caught:
        await guard(forgetful)(bare_call(CREATE_PAYMENT), end.send)

    assert caught.value.sent is None
    assert isinstance(caught.value.reason, str)
    assert 1 == len(end.calls)


async def test_a_layer_that_hangs() -> None:
    """A layer ends at the call's deadline; the error says whether anything may have been sent."""
    cases: list[tuple[bool, type[PayasyncError]]] = [(False, NotSentTimeoutError), (True, NoAnswerTimeoutError)]
    for begun, kind in cases:

        async def hanging(call: Call, send: Send) -> Reply:
            await asyncio.Event().wait()
            return await send(call)

        async with asyncio.timeout(PATIENCE):
            with pytest.raises(kind, match="hanging took longer than the call had") as caught:
                await guard(hanging)(on_time(begun=begun), way().send)

        assert "out of time" == caught.value.reason


async def test_a_time_out_of_its_own_is_not_the_calls() -> None:
    """A `TimeoutError` that a layer raises itself passes unchanged."""

    async def hasty() -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine") as caught:
        await await_in_time(bare_call(CREATE_PAYMENT), hasty(), "it")

    assert TimeoutError is type(caught.value)
