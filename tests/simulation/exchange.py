"""HTTP as the service and the senders of notifications speak it, and the hops before the service."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

from attrs import define, evolve, frozen

from tests.simulation.network import Address
from tests.simulation.world import EPOCH, Process, World

GATEWAY: Final = (
    (404, "text/html", b"<h1>404 Not Found</h1>"),
    (404, "application/json", b'{"code":404,"message":"no Route matched with those values"}'),
    (403, "application/json", b'{"code":"403","message":"Forbidden"}'),
    (429, "text/plain", b"Too Many Requests"),
    (502, "text/html", b"<h1>502 Bad Gateway</h1>"),
    (503, "application/json", b"{}"),
)
"""Pages that hops write themselves, before a request reaches the service, or after the service carried it out."""


@frozen
class Request:
    """A request, as a service reads it: the fields are those of its body, or of its query."""

    method: str
    target: str
    headers: Mapping[str, str]
    fields: Mapping[str, Any]

    @property
    def path(self) -> str:
        """The path, without the query."""
        return self.target.partition("?")[0]


@frozen
class Response:
    """A response, as its sender writes it."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)


Serve: TypeAlias = Callable[[Request], Awaitable[Response | None]]


def say(status: int, fields: Mapping[str, Any]) -> Response:
    """Return a response with a JSON object."""
    return Response(status, json.dumps(fields).encode())


@define
class Habits:
    """What the hops before a service do.

    Attributes:
        cache: Seconds for which a response to a query may be sent again, with its age.
        pages: How probable a page of a hop's own is.
        doubles: How probable it is that a request is sent on twice.
        mixes: How probable it is that the response to another request is returned.
    """

    cache: float = 0.0
    pages: float = 0.0
    doubles: float = 0.0
    mixes: float = 0.0


class Hop:
    """A gateway before the service, with a cache that ignores what a request says about caches.

    Args:
        world: The world.
        habits: What it does.
        serve: The service.
        foreign: Returns what the service would say to another merchant.
    """

    def __init__(
        self, world: World, habits: Habits, serve: Serve, foreign: Callable[[Request], Response | None]
    ) -> None:
        self.habits = habits
        self._world, self._serve, self._foreign = world, serve, foreign
        self._cached = dict[str, tuple[float, Response]]()
        self._seen = dict[str, Response]()

    async def serve(self, request: Request) -> Response | None:
        """Return the response to a request."""
        place, (seen, cached) = request.path, self._cached.get(request.target, (0.0, None))
        age = self._world.now - seen
        if cached and age < self.habits.cache and self._happens(f"the cache responds at {place}", 0.7):
            return evolve(cached, headers=(*cached.headers, ("Age", str(int(age)))))
        if self._happens(f"a hop has a page of its own at {place}", self.habits.pages):
            return self._page(place)
        doubled = None
        if request.method == "POST" and self._happens(f"a hop sends twice at {place}", self.habits.doubles):
            doubled = asyncio.ensure_future(self._serve(request))
        response = await self._serve(request)
        if doubled is not None:
            response = response if self._world.draw("which of two responses") < 0.5 else await doubled
        if response is None:
            return None
        if self._happens(f"a hop hides a response at {place}", self.habits.pages):
            return self._page(place)
        return self._remember(request, response)

    def _remember(self, request: Request, response: Response) -> Response:
        """Store a response, and return it, or one to another request."""
        number = str(request.fields.get("outRefundNo", request.fields.get("outTradeNo", "")))
        others = [each for about, each in self._seen.items() if about != number]
        foreign = self._foreign(request)
        if foreign is not None:
            others.append(foreign)
        if b"merchantId" in response.body:  # nothing shows whose refusal it is that names nobody
            self._seen[number] = response
        if request.method == "GET":
            self._cached[request.target] = self._world.now, response
        if others and self._happens(f"a hop mixes responses at {request.path}", self.habits.mixes):
            return self._world.choose(others, "response of another")
        return response

    def _page(self, place: str) -> Response:
        status, kind, body = self._world.choose(GATEWAY, f"page at {place}")
        return Response(status, body, (("Content-Type", kind), ("Retry-After", "3")))

    def _happens(self, what: str, probability: float) -> bool:
        return self._world.network.fails(what, probability)


class Reader(asyncio.Protocol):
    """Reads messages with a length, one after the other.

    Args:
        receive: Gets the first line, the headers and the body of each.
    """

    def __init__(self, receive: Callable[[str, Mapping[str, str], bytes], object]) -> None:
        self._receive = receive
        self._received = b""
        self.transport: Any = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits for it."""
        del exc
        if not self.lost.done():
            self.lost.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Read a message as soon as it is whole."""
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if len(body) >= int(headers.get("content-length", "0")):
            self._received = b""
            self._receive(first, headers, body)


class Connection(Reader):
    """A connection of a client with a service.

    Args:
        world: The world.
        serve: Returns the response to a request, or `None` if the connection is reset.
    """

    def __init__(self, world: World, serve: Serve) -> None:
        super().__init__(self._begin)
        self._world, self._serve = world, serve

    def _begin(self, first: str, headers: Mapping[str, str], body: bytes) -> None:
        method, target, _ = first.split(" ")
        fields = json.loads(body) if body else dict(parse_qsl(target.partition("?")[2]))
        asking = self._respond(Request(method, target, headers, fields))
        self._responding = asyncio.get_running_loop().create_task(asking)

    async def _respond(self, request: Request) -> None:
        response = await self._serve(request)
        if response is None:
            # A connection may also stay open for ever, as behind a firewall that forgets it.
            if not self._world.happens(f"nobody ends the connection of {request.path}", 0.3):
                self.transport.abort()
            return
        date = formatdate(EPOCH + self._world.now, usegmt=True)
        headers = (*response.headers, ("Date", date), ("Content-Length", len(response.body)))
        head = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self.transport.write(f"HTTP/1.1 {response.status} .\r\n{head}\r\n".encode() + response.body)


async def post(process: Process, address: Address, path: str, headers: Mapping[str, str], body: bytes) -> int:
    """Send a notification, and return the status of the response, or 0 without a response."""
    network, found = process.world.network, asyncio.get_running_loop().create_future()

    def receive(first: str, *_: object) -> None:
        if not found.done():
            found.set_result(int(first.split(" ")[1]))

    await asyncio.sleep(network.delay(process.name))
    if not network.serves(address):
        return 0
    _, reader = network.join(process, lambda: Reader(receive), address)
    lines = {"Host": "shop", "Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    reader.transport.write(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
    await asyncio.wait([found, reader.lost], timeout=30, return_when=asyncio.FIRST_COMPLETED)
    reader.transport.close()
    return found.result() if found.done() else 0
