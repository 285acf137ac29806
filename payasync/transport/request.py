"""The requests of our own sessions: our headers, and a short body that needs no task to be written."""

from ssl import SSLContext
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import aiohttp
from aiohttp.http import StreamWriter
from multidict import istr

from payasync import __version__
from payasync.errors import ConfigurationError
from payasync.settings import check_tls
from payasync.transport.body import OneShotBody
from payasync.transport.failures import finish

if TYPE_CHECKING:
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.client_reqrep import ConnectionKey
    from aiohttp.connector import Connection

ALWAYS: Final = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": f"payasync/{__version__}",
}
"""Identity: 194 kB of gzip can inflate to 200 MB."""

SHORT: Final = 1 << 15
"""Bytes of a request, without the names of its headers: aiohttp's writer waits for the socket from 64 KiB on."""

COMPARED: Final = aiohttp.__version__.startswith("3.14.")
"""Whether this is the aiohttp whose own `send` the one below was compared with."""


class OwnRequest(aiohttp.ClientRequest):
    """A request with our headers where aiohttp would add its own, written in a turn of the loop of its own.

    aiohttp makes a task for each body, which up to Python 3.11 costs a tenth of the whole call.
    """

    DEFAULT_HEADERS = {istr(name): value for name, value in ALWAYS.items()}  # noqa: RUF012 - aiohttp's own name

    tls: ClassVar[SSLContext | None] = None
    """Verifies new connections. aiohttp makes the requests, so each pool has a class with its own context."""

    _unverified = False
    """Whether it is the first request of ours on its connection."""

    @classmethod
    def verified_by(cls, tls: SSLContext | None) -> type[Self]:
        """Return a class of requests whose connections this context verifies; for plain http it is `None`."""
        made: Any = type(cls.__name__, (cls,), {"tls": tls})
        return made  # type: ignore[no-any-return] # pyright takes `type` with three arguments for something else

    @property
    def ssl(self) -> SSLContext | bool:
        """The TLS context for a new connection. aiohttp reads it when it makes one, so the time to connect starts here.

        Raises:
            ConfigurationError: The context was weakened after the session was made.
        """
        self._unverified = True
        if isinstance(self.body, OneShotBody) and self.body.on_connect is not None:
            self.body.on_connect()
        return True if self.tls is None else check_tls(self.tls)

    async def send(self, conn: "Connection") -> aiohttp.ClientResponse:
        """Return the answer to be read, once head and body are about to be written to a connection.

        They are not written at once: what many calls send in one turn of the loop leaves together, and a service on
        the same machine is woken once.

        Raises:
            ConfigurationError: The other end of a new connection was not verified.
        """
        if self._unverified and self.is_ssl():
            self._check_verified(conn)
        path = self.url.raw_path_qs
        if not (COMPARED and self._is_plain(conn.protocol, len(path))):
            return await super().send(conn)
        writer = StreamWriter(conn.protocol, self.loop)  # type: ignore[arg-type] # a connection that was just taken
        await writer.write_headers(f"{self.method} {path} HTTP/1.1", self.headers)
        answer = self.response_class(
            self.method,
            self.original_url,
            writer=None,
            continue100=None,
            timer=self._timer,
            request_info=self.request_info,
            traces=[],
            loop=self.loop,
            session=self.session,
            stream_writer=writer,
        )
        self.loop.call_soon(lambda: finish(self.write_bytes(writer, conn)))
        return answer

    def _check_verified(self, conn: "Connection") -> None:
        """Refuse a connection that another context made, or that showed no certificate.

        `ssl.CERT_REQUIRED` alone proves nothing. A lent connector may ignore the context, the context may have been
        weakened during the handshake, and anonymous ciphers need no certificate.
        """
        tls, transport = check_tls(self.tls), conn.transport
        if transport is None:  # the connection is lost, so nothing can be written
            return
        if transport.get_extra_info("sslcontext") is not tls or not transport.get_extra_info("peercert"):
            raise ConfigurationError(
                "the connection was not verified: tls must not allow anonymous ciphers, and the connector of http must "
                "use the TLS context of each request",
                field="tls",
            )

    def _is_plain(self, protocol: "ResponseHandler | None", length: int) -> bool:
        """Whether it is short, has no proxy to name, and finds nothing to be read: an answer that nobody asked for.

        Args:
            protocol: Of its connection.
            length: Of its path.
        """
        if protocol is None or protocol.should_close or self.proxy is not None:
            return False
        length += getattr(self.body, "size", SHORT) + sum(map(len, self.headers.values()))
        return length < SHORT


class LentRequest(OwnRequest):
    """A request on a lent connector. Others may have opened its connection, and trace configs see each step."""

    _unverified = True

    @property
    def connection_key(self) -> "ConnectionKey":
        """Tells connections apart: those that others opened with another context are not taken."""
        key = super().connection_key
        return key if self.tls is None else key._replace(ssl=self.tls)

    def _is_plain(self, protocol: "ResponseHandler | None", length: int) -> bool:  # noqa: ARG002 - as above
        return False
