"""The server that listens on this machine alone, and the strict reading of requests."""

import asyncio
import errno
import ipaddress
import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager, suppress
from ipaddress import IPv4Address
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from payasync.errors import ConfigurationError
from payasync.sandbox.model import RefusedError
from payasync.strict_json import MAX_DEPTH, encodable, loads_exact
from payasync.transport.pools import foreign_loop

T = TypeVar("T", bound=str)


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def check_loop(home: asyncio.AbstractEventLoop) -> None:
    """Check that the running loop is the one in which a part of a sandbox was started.

    Raises:
        ConfigurationError: It is another.
    """
    if running_loop() is not home:
        raise foreign_loop()


_MOST: Final = 0xFFFF
_KEYS: Final = "the sandbox's keys are for everybody who can reach it"


def listen(host: str, port: int, *, because: str = _KEYS) -> socket.socket:
    """Return a socket that listens.

    Args:
        host: A loopback address: `localhost` (127.0.0.1), one in 127.0.0.0/8, or `::1`.
        port: The port; 0: a free one.
        because: Why only this machine may reach it, for the error.

    Raises:
        ConfigurationError: The host is not this machine alone, or the port is not free.
    """
    address = loopback_address(host, because)
    if type(port) is not int or not 0 <= port <= _MOST:
        raise ConfigurationError(f"port: cannot listen on {port!r}: it must be 0 to {_MOST}", field="port")
    try:
        return socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    except OSError as error:
        in_use = "it is in use: stop what listens there, or choose another with --port or port=; 0 picks a free one"
        why = in_use if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise ConfigurationError(f"port: cannot listen on {_netloc(address, port)}: {why}", field="port") from None


def url_of(listening: socket.socket) -> str:
    """Return the URL of a listening socket; an IPv6 address is in brackets."""
    host, port, *_ = listening.getsockname()
    return f"http://{_netloc(host, port)}"


_TURNS: Final = 3
"""Turns of the loop after which the server knows a connection that the loop accepted."""


async def _yield_to_loop() -> None:
    """Let the loop finish what it has begun: connections that it has just accepted, or is closing."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def loopback_address(host: str, because: str = _KEYS) -> str:
    """Return the address of a host that is this machine alone.

    Raises:
        ConfigurationError: It is another host, or a name that a resolver decides.
    """
    if host == "localhost":
        return "127.0.0.1"
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        if host == "::1" or (str(address) == host and isinstance(address, IPv4Address) and address.is_loopback):
            return host
    rule = "this machine alone: 127.0.0.1, another of 127.0.0.0/8, ::1 or localhost"
    raise ConfigurationError(f"host must be {rule}, not {host!r}; {because}", field="host")


def _netloc(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Accepts connections, and can refuse them for a while.

    Args:
        listening: A socket that listens; the server owns it.
    """

    def __init__(self, listening: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._server: web.Server | None = None
        self._socket = listening
        self._address = listening.getsockname()
        self._busy = set[object]()
        self._stopped_by = dict[object, asyncio.TimerHandle | None]()
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def serve(self, application: web.Application, **options: Any) -> AsyncGenerator[None]:
        """Serve an application until the end of the block; then end all connections and close the socket.

        Args:
            application: What is served.
            options: Those of `web.AppRunner`.
        """
        runner = web.AppRunner(application, access_log=None, auto_decompress=False, **options)
        await runner.setup()
        try:
            self._server = runner.server
            await self._open()
            yield
        finally:
            # If asyncio's server closed while it accepts a connection, the connection would be left open.
            self._rest()
            await _yield_to_loop()
            self.close()
            await runner.cleanup()
            await _yield_to_loop()

    async def _open(self) -> None:
        assert self._server is not None  # noqa: S101 - it was set up
        # asyncio's server itself is never closed, for the same reason.
        await self._loop.create_server(self._server, sock=self._socket)

    def stop_listening(self, seconds: float | None, *, by: object) -> None:
        """Refuse new connections, close the idle ones, and let the others end with their response.

        Args:
            seconds: Real seconds until it opens again; `None`: until `reopen`.
            by: The caller. The server opens again when all callers have reopened it.

        Raises:
            ConfigurationError: The server was made in another event loop.
        """
        check_loop(self._loop)
        already = bool(self._stopped_by)
        self._release(by)
        self._stopped_by[by] = None if seconds is None else self._loop.call_later(seconds, self.reopen, by)
        if already:
            return
        self._stop()
        # Bound, to keep the port; not listening, so that the kernel resets new connections.
        bound = socket.socket(self._socket.family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(self._address)
        self._socket = bound
        known = frozenset(self._connections())
        self._close_connections(known)
        self._task = self._loop.create_task(self._close_late_connections(known), name="payasync sandbox server")

    @web.middleware
    async def mark_busy(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Have a request answered, with its connection marked as busy."""
        self._busy.add(request.protocol)
        try:
            return await handler(request)
        finally:
            self._busy.discard(request.protocol)

    def reopen(self, by: object) -> None:
        """Accept connections again, unless another caller has stopped it, too.

        Args:
            by: The caller.
        """
        stopped = self._server and by in self._stopped_by
        self._release(by)
        if self._server and stopped and not self._stopped_by:
            if self._task:
                self._task.cancel()
            self._socket.listen()
            self._task = self._loop.create_task(self._open(), name="payasync sandbox server")

    def close(self) -> None:
        """Close the server for good."""
        for each in tuple(self._stopped_by):
            self._release(each)
        self._server = None
        self._stop()

    def _rest(self) -> None:
        """Accept no further connection, and change nothing else."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())

    def _stop(self) -> None:
        if self._task:
            self._task.cancel()
        self._rest()
        self._socket.close()

    async def _close_late_connections(self, known: AbstractSet[web.RequestHandler]) -> None:
        """Close the connections that the loop had accepted before the server knew them."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
            self._close_connections(each for each in self._connections() if each not in known)

    def _connections(self) -> list[web.RequestHandler]:
        return self._server.connections if self._server else []

    def _close_connections(self, connections: Iterable[web.RequestHandler]) -> None:
        for connection in connections:
            if connection in self._busy:
                connection.close()
            else:
                connection.force_close()

    def _release(self, by: object) -> None:
        if timer := self._stopped_by.pop(by, None):
            timer.cancel()


BODY: Final = web.RequestKey("payasync_sandbox_body", bytes)
"""The body of a request, once it is read."""
MAX_BODY: Final = 64 * 1024
"""Bytes of a body; the sandbox's own limit."""


access_logger: Final = logging.getLogger("payasync.sandbox.http")
"""The logger of aiohttp's server, without tracebacks of invalid HTTP, which is the client's error."""
access_logger.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))


async def read_body(request: web.Request, content_type: str) -> bytes:
    """Return a request's body.

    Args:
        request: Whose body has not been read yet.
        content_type: What it must be.

    Raises:
        RefusedError: It is too large, or of another type.
    """
    received = None
    if (request.content_length or 0) <= MAX_BODY:
        with suppress(web.HTTPRequestEntityTooLarge):
            received = await request.read()
    if received is not None:
        request[BODY] = received
    else:
        raise RefusedError("invalid", f"the body has more than {MAX_BODY} bytes", status=413)
    if "Content-Encoding" in request.headers:
        raise RefusedError("invalid", "the body must not be compressed", status=415)
    if request.content_type != content_type or (request.charset or "").lower() not in {"", "utf-8"}:
        raise RefusedError("invalid", f"Content-Type must be {content_type}", status=415)
    return received


async def read_form(request: web.Request) -> dict[str, str]:
    """Return the fields of a form.

    Raises:
        RefusedError: The body is no form, or has a name twice.
    """
    body = await read_body(request, "application/x-www-form-urlencoded")
    with suppress(ValueError):
        pairs = parse_qsl(body.decode("ascii"), errors="strict")
        if len(fields := dict(pairs)) == len(pairs):
            return fields
    raise RefusedError("invalid", "the form cannot be read, or a name stands twice in it", status=400)


def require_text(fields: Mapping[str, str], name: str) -> str:
    """Return a field that must not be empty.

    Raises:
        RefusedError: It is missing.
    """
    if text := fields.get(name, ""):
        return text
    raise RefusedError("invalid", f"{name} is missing", field=name)


def read_choice(fields: Mapping[str, str], name: str, values: Sequence[T]) -> T:
    """Return the value that a field chooses.

    Raises:
        RefusedError: The field is missing, or is none of these.
    """
    text = require_text(fields, name)
    for value in values:
        if value == text:
            return value
    raise RefusedError("invalid", f"{name} must be {' or '.join(values)}", field=name)


def read_query(request: web.Request) -> dict[str, str]:
    """Return the fields in a request's query.

    Raises:
        RefusedError: A name is there twice, or a text is not Unicode.
    """
    fields = dict(request.query)
    if len(fields) != len(request.query):
        raise RefusedError("invalid", "a name stands twice in the query", status=400)
    if not all(encodable(name + value) for name, value in fields.items()):
        raise RefusedError("invalid", "the query is not UTF-8", status=400)
    return fields


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object that a request's body holds.

    Raises:
        RefusedError: It is not a JSON object that all readers read alike.
    """
    document = loads_exact(body, received=False)
    if not isinstance(document, dict):
        rule = f"a JSON object in UTF-8, with each name once and {MAX_DEPTH} levels at most"
        raise RefusedError("invalid", f"the body must be {rule}", status=400)
    return document
