"""The one-shot body: the proof of what was not sent, and the end of aiohttp's own second sends."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final

import aiohttp
import pytest

from payasync.transport.request import OneShotBody, OwnRequest
from tests.foreign.certificates import server_tls, trusting_tls
from tests.foreign.recorder import RESET, Recorder, answer

KINDS: Final = {"ours": OwnRequest, "aiohttp's": aiohttp.ClientRequest}
"""Who writes a request: short ones we do, long and traced ones aiohttp."""


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_aiohttp_sends_a_begun_body_once(method: str, kind: type[aiohttp.ClientRequest]) -> None:
    """After a reset on a reused connection nothing is sent again, whatever the method."""
    with Recorder([answer(), RESET]) as service:
        async with aiohttp.ClientSession(request_class=kind) as http:
            async with http.request(method, service.url, data=OneShotBody(b"")) as first:
                await first.read()
            with pytest.raises(aiohttp.ClientOSError):
                await http.request(method, service.url, data=OneShotBody(b""))

    assert 2 == len(service.requests)


async def test_aiohttp_sends_any_other_body_again() -> None:
    """The negative control: with a plain request aiohttp itself repeats a GET, which would repeat a nonce."""
    with Recorder([answer(), RESET]) as service:
        async with aiohttp.ClientSession() as http:
            for _ in range(2):
                async with http.get(service.url) as response:
                    await response.read()

    assert 3 == len(service.requests)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(("scheme", "turns"), [("http", range(0, 300, 2)), ("https", range(0, 9000, 150))])
async def test_a_body_that_did_not_begin_left_no_byte(
    scheme: str, turns: range, kind: type[aiohttp.ClientRequest]
) -> None:
    """Cancelled at any step of the event loop, a body that had not begun left no byte of the request."""
    server, client = (server_tls(), trusting_tls()) if scheme == "https" else (None, None)
    trials: list[OneShotBody] = []
    with Recorder(tls=server) as service:
        connector = aiohttp.TCPConnector(ssl=client or True, force_close=True)
        made = kind.verified_by(client) if issubclass(kind, OwnRequest) else kind
        async with aiohttp.ClientSession(connector=connector, request_class=made) as http:
            for steps in turns:
                body = OneShotBody(b"%04d" % steps)
                trials.append(body)
                await cancelled_after(steps, partial(http.post, service.url, data=body))

    received = {request.body.decode() for request in service.requests}
    begun = {body.decode() for body in trials if body.begun}

    assert received <= begun
    assert received
    assert len(begun) < len(trials)


async def cancelled_after(
    steps: int, request: Callable[[], AbstractAsyncContextManager[aiohttp.ClientResponse]]
) -> None:
    """Begin a request, and cancel it after so many turns of the loop."""

    async def whole() -> None:
        async with request() as response:
            await response.read()

    task = asyncio.ensure_future(whole())
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
