"""Requests with our headers, a body that is written once, and the check for stray bytes on a connection."""

import select
from collections.abc import Awaitable, Callable, Sized
from ssl import SSLContext
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeAlias, cast
from weakref import ref

import aiohttp
from aiohttp.hdrs import CONTENT_LENGTH, CONTENT_TYPE, HOST
from aiohttp.http import StreamWriter
from aiohttp.payload import Payload
from multidict import CIMultiDict, CIMultiDictProxy, istr
from yarl import URL

from payasync import __version__
from payasync.errors import ConfigurationError
from payasync.settings import check_tls

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, WriteTransport

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ConnectionKey
    from aiohttp.connector import Connection

    from payasync.transport.deadlines import Deadline

ALWAYS: Final = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": f"payasync/{__version__}"}
"""The headers of every request. Not gzip, because 194 kB of it can inflate to 200 MB."""

SHORT: Final = 1 << 15
"""The size of a short request, which aiohttp's writer never holds back: it waits for the socket from 64 KiB on."""

_HEAD: Final = CIMultiDict({"Host": "", **ALWAYS})
"""A copy of these headers takes less time than aiohttp's own way, which adds each to every request."""

_ANY_REQUEST: Final = aiohttp.RequestInfo(URL(), "", CIMultiDictProxy(CIMultiDict()), URL())
"""What aiohttp's errors say about a request. The transport replaces these errors."""


def is_compared(version: str) -> bool:
    """Return whether `OwnRequest.send` was compared with the `send` of this version of aiohttp."""
    return version.startswith("3.14.")


COMPARED: Final = is_compared(aiohttp.__version__)


class OneShotBody(Payload):
    """A body that marks the start of its own write: the only proof of whether anything left this machine.

    The head is written together with the body, so no byte reaches a socket before `begin`. The body always counts as
    consumed, and aiohttp does not send a consumed body again. This stops its automatic re-send of GET, PUT and
    DELETE after a dropped connection, which has no public switch.

    Args:
        content: The bytes. If empty, the request has no body and no Content-Type, such as a GET.
    """

    begun: bool = False
    length: int = 0
    deadline: "Deadline | None" = None
    _transport: "WriteTransport | None" = None
    _encoding = _filename = None

    def __init__(self, content: bytes) -> None:
        # Not with aiohttp's `__init__`, which makes headers for each body, though `OwnRequest` reads none.
        self._content = content
        self._size = self.length = len(content)

    @property
    def headers(self) -> CIMultiDict[str]:
        """Its content type. aiohttp wants a payload to have a header, so an empty one has what all requests have."""
        return CIMultiDict({"Content-Type" if self.length else "Accept": "application/json"})

    @property
    def consumed(self) -> bool:
        """Always true, so that aiohttp does not send the body again: each attempt needs a new nonce."""
        return True

    @property
    def autoclose(self) -> bool:
        """Always true, because there is nothing to close."""
        return True

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as text; empty once it is written."""
        return self._content.decode(encoding, errors)

    async def write(self, writer: "AbstractStreamWriter") -> None:
        """Write the body, as `write_with_length` does."""
        await self.write_with_length(writer)

    async def write_with_length(
        self,
        writer: "AbstractStreamWriter",
        content_length: int | None = None,  # noqa: ARG002 - aiohttp gives the length of what is here
    ) -> None:
        """Begin, then write."""
        content = self.begin(cast("Any", writer).protocol)
        await writer.write(content)

    def begin(self, protocol: "ResponseHandler") -> bytes:
        """Mark the start of the write, and return what to write, unless the connection already holds other bytes.

        Raises:
            ConnectionResetError: The connection holds unsolicited bytes.
            TimeoutError: It is too late to begin.
        """
        if has_stray_bytes(protocol):
            raise ConnectionResetError("the connection holds unsolicited bytes")
        self._transport = protocol.transport
        if self.deadline is not None:
            self.deadline.begin()
        self.begun = True
        content, self._content = self._content, b""  # it is never sent again
        return content

    def abort(self) -> None:
        """Write no more. aiohttp only closes a transport, which still sends what it has buffered."""
        if self._transport is None:
            return
        try:
            connection = self._transport.get_extra_info("socket")
        except AttributeError:  # a TLS transport that was closed twice
            return
        if connection is None or connection.fileno() >= 0:  # asyncio cannot abort a lost connection
            self._transport.abort()


_readable: Final[dict["ref[Any]", Callable[[int], object]]] = {}
"""For each live connection that carried a request, a function of a time: does the kernel hold bytes to read by then?"""


def has_stray_bytes(protocol: Any) -> bool:
    """Return whether a connection holds bytes to read, in its parser or in the kernel, before a request begins.

    Args:
        protocol: aiohttp's protocol of the connection.
    """
    if protocol.should_close or protocol.transport is None:
        return True
    readable = _readable.get(ref(protocol))
    if readable is None:
        readable = _readable[ref(protocol, _readable.pop)] = _make_check(protocol.transport)
        if protocol.transport.get_extra_info("ssl_object") is not None:
            return False  # a new TLS connection may still hold unread session tickets
    return bool(readable(0))


def _make_check(transport: Any) -> Callable[[int], object]:
    connection = transport.get_extra_info("socket")
    if connection is None:
        return bool
    if not hasattr(select, "poll"):
        return lambda seconds: select.select([connection.fileno()], [], [], seconds)[0]
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return poll.poll


def run_to_end(awaitable: Awaitable[object]) -> None:
    """Run an awaitable that waits only for turns of the loop; if it waits for more, close it there."""
    steps = awaitable.__await__()
    try:  # not `suppress`, whose frames each call would pay
        while steps.send(None) is None:
            pass
    except StopIteration:
        pass


Write: TypeAlias = Callable[[OneShotBody, bytes, "Connection"], None]
"""Writes a head and a body to a connection, now or soon."""


def write_request(body: OneShotBody, head: bytes, connection: "Connection") -> None:
    """Write a short request. If it cannot begin, whoever waits for its response gets the error."""
    protocol: Any = connection.protocol
    if protocol is None:  # the call has ended
        return
    try:
        content = body.begin(protocol)
        protocol.transport.write(head + content)
    except Exception as error:  # noqa: BLE001 - passed on
        protocol.set_exception(error)


class Writes:
    """Writes the requests of one turn of a loop together in the next turn, and a single one immediately.

    Responses to requests that leave together arrive together, so that the loop looks at its sockets less often.

    Args:
        loop: The loop.
        running: The attempts in flight.
    """

    def __init__(self, loop: "AbstractEventLoop", running: Sized) -> None:
        self._loop = loop
        self._running = running
        self._waiting: list[tuple[OneShotBody, bytes, Connection]] = []

    def add(self, body: OneShotBody, head: bytes, connection: "Connection") -> None:
        """Write a request in this turn or the next, as `write_request` does."""
        if len(self._running) == 1:
            write_request(body, head, connection)
            return
        if not self._waiting:
            self._loop.call_soon(self._write_all)
        self._waiting.append((body, head, connection))

    def _write_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            write_request(*each)


class OwnRequest(aiohttp.ClientRequest):
    """A request with our headers in place of aiohttp's, which writes a short body without a task.

    aiohttp makes a task for each body, which up to Python 3.11 costs a tenth of the whole call.
    """

    DEFAULT_HEADERS = {istr(name): value for name, value in ALWAYS.items()}  # noqa: RUF012 - aiohttp's own name

    tls: ClassVar[SSLContext | None] = None
    """The TLS context of new connections. aiohttp creates the requests, so each pool has a class of its own."""

    write: Write = staticmethod(write_request)
    """What writes a short request."""

    _unverified = False
    """Whether this is our first request on its connection."""

    _shared = False
    """Whether others use its connector, too."""

    @classmethod
    def verified_by(cls, tls: SSLContext | None, write: Write = write_request) -> type[Self]:
        """Return a class of requests whose connections this context verifies; `None` stands for plain http."""
        made: Any = type(cls.__name__, (cls,), {"tls": tls, "write": staticmethod(write)})
        return made  # type: ignore[no-any-return] # pyright takes `type` with three arguments for something else

    @property
    def ssl(self) -> SSLContext | bool:
        """The TLS context of a new connection. aiohttp reads it to connect, so the time to connect starts here.

        Raises:
            ConfigurationError: The context no longer verifies; it did when the session was made.
        """
        self._unverified = True
        if isinstance(self.body, OneShotBody) and self.body.deadline is not None:
            self.body.deadline.connect()
        return True if self.tls is None else check_tls(self.tls)

    def update_headers(self, headers: Any) -> None:
        """Take the headers of every request, and those of this one."""
        if COMPARED:
            self.headers: CIMultiDict[str] = _HEAD.copy()
            self.headers[HOST] = self.url.host_port_subcomponent or ""
            if headers:
                self.headers.update(headers)
        else:
            super().update_headers(headers)

    def update_auto_headers(self, skip_auto_headers: Any) -> None:
        """Add nothing: `update_headers` did."""
        if not COMPARED:
            super().update_auto_headers(skip_auto_headers)

    def update_transfer_encoding(self) -> None:
        """Add nothing: a `OneShotBody` has a length."""
        if not COMPARED:
            super().update_transfer_encoding()

    def update_body_from_data(self, body: Any, _stacklevel: int = 3) -> None:
        """Take a body, and say how long it is. aiohttp's own way asks a registry what the body may be."""
        if not COMPARED or type(body) is not OneShotBody:
            super().update_body_from_data(body, _stacklevel)
            return
        self._body, headers = body, self.headers
        headers[CONTENT_LENGTH] = str(body.length)
        if body.length and CONTENT_TYPE not in headers:
            headers[CONTENT_TYPE] = "application/json"

    async def send(self, conn: "Connection") -> aiohttp.ClientResponse:
        """Write head and body, and return the response to read.

        Raises:
            ConfigurationError: The peer of a new connection was not verified.
        """
        if self._unverified and self.is_ssl():
            self._check_verified(conn)
        body, protocol = self._body, conn.protocol
        if protocol is None or not (COMPARED and type(body) is OneShotBody and self.proxy is None) or self._shared:
            return await super().send(conn)
        writer = StreamWriter(protocol, self.loop)
        await writer.write_headers(f"{self.method} {self.url.raw_path_qs} HTTP/1.1", self.headers)
        # The writer has no public name for the head that it holds.
        head: bytes = getattr(writer, "_headers_buf", b"")
        if not head or len(head) + body.length >= SHORT:
            return await super().send(conn)
        response = self.response_class(
            self.method,
            self.original_url,
            writer=None,
            continue100=None,
            timer=self._timer,
            request_info=_ANY_REQUEST,
            traces=[],
            loop=self.loop,
            session=self.session,
            stream_writer=writer,
        )
        self.write(body, head, conn)
        return response

    def _check_verified(self, conn: "Connection") -> None:
        """Refuse a connection that another context opened, or whose peer showed no certificate.

        `ssl.CERT_REQUIRED` alone proves nothing. A lent connector may ignore the context, the context may have changed
        during the handshake, anonymous ciphers need no certificate, and others do not encrypt.
        """
        tls, transport = check_tls(self.tls), conn.transport
        if transport is None:  # the connection is lost, so nothing can be written
            return
        _, _, bits = transport.get_extra_info("cipher") or ("", "", 0)
        if transport.get_extra_info("sslcontext") is not tls or not transport.get_extra_info("peercert") or not bits:
            raise ConfigurationError(
                "the connection was not verified: tls must not allow anonymous ciphers or NULL ciphers, and the "
                "connector of http must use the TLS context of each request",
                field="tls",
            )


class SharedConnectorRequest(OwnRequest):
    """A request on a lent connector, whose connections others may have opened, and whose traces see each step."""

    _unverified = _shared = True

    @property
    def connection_key(self) -> "ConnectionKey":
        """The key of the connection. It excludes connections that others opened with another context."""
        key = super().connection_key
        return key if self.tls is None else key._replace(ssl=self.tls)
