"""The requests of our own sessions: on the wire they are aiohttp's, and they need no task to be written.

With an aiohttp that nobody has compared yet they are sent as that does it, which costs more and promises the same.
"""

import asyncio
from functools import partial
from typing import Any, Final

import aiohttp
import pytest

from payasync.transport import request
from payasync.transport.request import COMPARED, SHORT, OneShotBody, OwnRequest
from tests.foreign.recorder import Recorder

CONTENT: Final = b'{"totalAmt":450}'
OF_AIOHTTP: Final = aiohttp.ClientRequest.send


class Theirs(OwnRequest):
    """A request with our headers that is sent as aiohttp does it."""

    send = OF_AIOHTTP


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the paths of what is sent as aiohttp does it; it is still sent."""
    seen: list[str] = []

    async def noted(self: aiohttp.ClientRequest, conn: Any) -> aiohttp.ClientResponse:
        seen.append(self.url.path)
        return await OF_AIOHTTP(self, conn)

    monkeypatch.setattr(aiohttp.ClientRequest, "send", noted)
    return seen


async def post(http: aiohttp.ClientSession, url: str, body: OneShotBody | None = None, **settings: Any) -> bytes:
    """Send a body, and return what is answered."""
    async with http.post(url, data=body or OneShotBody(CONTENT), **settings) as response:
        return await response.read()


@pytest.mark.parametrize(
    ("method", "content"), [("GET", b""), ("POST", CONTENT), ("PUT", CONTENT), ("PATCH", CONTENT), ("DELETE", b"")]
)
async def test_it_is_what_aiohttp_writes(method: str, content: bytes) -> None:
    """Head and body are byte by byte those of aiohttp's own way: its further versions must be compared, too."""
    with Recorder() as service:
        for kind in (Theirs, OwnRequest):
            async with (
                aiohttp.ClientSession(request_class=kind, headers={"X-Api-Version": "3"}) as http,
                http.request(
                    method, f"{service.url}/a%20b?c=d&e=%26", data=OneShotBody(content), headers={"Authorization": "B"}
                ) as response,
            ):
                await response.read()

    first, second = service.requests
    assert first.raw == second.raw
    assert content == second.body


async def test_the_answer_is_made_as_aiohttp_makes_it() -> None:
    """What aiohttp gives to its answers is given: all but the task, and what that still writes."""
    given: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    class Noted(aiohttp.ClientResponse):
        """An answer that notes what it is made with."""

        def __init__(self, *positions: Any, **names: Any) -> None:
            super().__init__(*positions, **names)
            same = {"session": names["session"] is http, "timer": type(names["timer"])}
            given.append((positions, {**names, **same, "writer": None, "stream_writer": None}))

    with Recorder() as service:
        for kind in (Theirs, OwnRequest):
            async with aiohttp.ClientSession(request_class=kind, response_class=Noted) as http:
                await post(http, f"{service.url}/a?b=c")

    assert given[0] == given[1]


async def test_a_call_makes_no_task(theirs: list[str]) -> None:
    """A request on a kept connection makes no task, with a body or without."""
    made: list[object] = []

    def factory(loop: asyncio.AbstractEventLoop, work: Any, **settings: Any) -> "asyncio.Task[Any]":
        made.append(work)
        return asyncio.Task(work, loop=loop, **settings)

    with Recorder() as service:
        async with aiohttp.ClientSession(request_class=OwnRequest) as http:
            await post(http, service.url)
            asyncio.get_running_loop().set_task_factory(factory)
            await post(http, service.url)
            await post(http, service.url, OneShotBody(b""))
            asyncio.get_running_loop().set_task_factory(None)

    assert 3 == len(service.requests)
    assert not COMPARED or ([], []) == (made, theirs)


@pytest.mark.parametrize(
    "large",
    [
        {"body": OneShotBody(b"x" * SHORT)},
        {"headers": {"X-Large": "x" * SHORT}},
        {"params": {"large": "x" * SHORT}},
    ],
    ids=["body", "headers", "query"],
)
async def test_a_large_request(large: dict[str, Any], theirs: list[str]) -> None:
    """One for which the socket may have to be waited for is sent as aiohttp does it, whole."""
    with Recorder() as service:
        async with aiohttp.ClientSession(request_class=OwnRequest) as http:
            await post(http, f"{service.url}/large", **large)

    assert ["/large"] == theirs
    assert SHORT < len(service.only.raw)
    assert b"x" * SHORT in service.only.raw


async def test_another_aiohttp(monkeypatch: pytest.MonkeyPatch, theirs: list[str]) -> None:
    """Of an aiohttp that nobody has compared with this one, its own way is taken."""
    monkeypatch.setattr(request, "COMPARED", False)
    with Recorder() as service:
        async with aiohttp.ClientSession(request_class=OwnRequest) as http:
            await post(http, f"{service.url}/unknown")

    assert ["/unknown"] == theirs


async def test_what_begins_in_one_turn_leaves_together() -> None:
    """The bodies of several calls are written one after the other, once all of them are ready."""
    steps: list[str] = []

    class Noted(aiohttp.ClientResponse):
        """Made when a request is ready to be written."""

        def __init__(self, *positions: Any, **names: Any) -> None:
            steps.append("ready")
            super().__init__(*positions, **names)

    async def sent() -> None:
        body = OneShotBody(CONTENT)
        body.on_start = partial(steps.append, "written")
        await post(http, service.url, body)

    with Recorder() as service:
        async with aiohttp.ClientSession(request_class=OwnRequest, response_class=Noted) as http:
            await asyncio.gather(sent(), sent(), sent())
            steps.clear()
            await asyncio.gather(sent(), sent(), sent())

    assert not COMPARED or ["ready"] * 3 + ["written"] * 3 == steps
