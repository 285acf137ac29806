"""A server that shares no code with payasync, nor with aiohttp: what it says it received, it received.

It speaks just enough of HTTP/1.1 to record each request byte by byte, and to answer as a script says, also in
ways that no HTTP server would: cut short, or with a reset. It lives in threads of its own, so that a test may run
one event loop after another against it, or fork.
"""

import contextlib
import itertools
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Final, Literal, Self

HOST: Final = "127.0.0.1"
HEAD_END: Final = b"\r\n\r\n"
PATIENCE: Final = 30.0
"""Seconds after which what should have happened will not: a mistake in the test."""

_LENGTH: Final = re.compile(rb"(?im)^content-length:[ \t]*(\d+)[ \t]*\r?$")


@dataclass(frozen=True)
class Request:
    """One request, as it was received.

    Attributes:
        connection: The number of its connection, from 1.
        head: The request line and the headers, with the empty line behind them.
        body: The bytes behind the head.
    """

    connection: int
    head: bytes
    body: bytes

    @property
    def raw(self) -> bytes:
        """All its bytes."""
        return self.head + self.body

    @property
    def method(self) -> str:
        """The first word of the request line."""
        return self.head.split(b" ", 2)[0].decode("latin-1")

    @property
    def target(self) -> str:
        """What stands between the method and the version: the path, with the query."""
        return self.head.split(b" ", 2)[1].decode("latin-1")

    @property
    def path(self) -> str:
        """The target without its query, still quoted."""
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        """What follows the first question mark of the target."""
        return self.target.partition("?")[2]

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers in the order and the letters in which they came."""
        lines = self.head.removesuffix(HEAD_END).decode("latin-1").split("\r\n")[1:]
        return [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]

    def header(self, name: str) -> list[str]:
        """Return all values of a header; its name is taken in any case."""
        return [value for each, value in self.headers if each.lower() == name.lower()]


@dataclass(frozen=True)
class Answer:
    """What the server does once it has read a request.

    Attributes:
        raw: Sent as it is.
        then: `keep` the connection for a further request, `close` it, or `reset` it.
        after: Wait for this before anything is sent; the end of the server sets it, too.
        drip: Seconds between two bytes.
    """

    raw: bytes = b""
    then: Literal["keep", "close", "reset"] = "keep"
    after: threading.Event | None = None
    drip: float | None = None


def answer(
    status: int = 200,
    body: bytes = b'{"foreign":true}',
    *headers: tuple[str, str],
    kind: str = "application/json",
    after: threading.Event | None = None,
) -> Answer:
    """Return a whole and correct answer of HTTP/1.1.

    Args:
        status: Of the answer.
        body: Its bytes.
        headers: Beside Content-Type and Content-Length.
        kind: Its Content-Type.
        after: It waits for this.
    """
    phrase = next((known.phrase for known in HTTPStatus if known == status), "Unnamed")
    lines = [
        f"HTTP/1.1 {status} {phrase}",
        *(f"{name}: {value}" for name, value in headers),
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
    ]
    return Answer("\r\n".join(lines).encode() + HEAD_END + body, after=after)


RESET: Final = Answer(then="reset")
"""The request is read, and the connection reset without a word."""
GONE: Final = Answer(then="close")
"""The request is read, and the connection closed without a word."""
SILENT: Final = Answer()
"""The request is read, and never answered; the connection stays open."""


@dataclass
class Connection:
    """One connection, and every byte that came through it.

    Attributes:
        number: From 1, in the order in which they were accepted.
        stream: Its socket.
        received: What came, whole request or not.
        cut: Reset it once so many bytes came.
        ended: The server has ended it.
    """

    number: int
    stream: socket.socket = field(repr=False)
    received: bytearray = field(default_factory=bytearray)
    cut: int | None = None
    ended: threading.Event = field(default_factory=threading.Event, repr=False)

    def requests(self) -> Iterator[Request]:
        """Read one request after the other, up to the end of the stream."""
        start = 0
        while True:
            while (found := self.received.find(HEAD_END, start)) < 0:
                if not self._more():
                    return
            body = found + len(HEAD_END)
            head = bytes(self.received[start:body])
            length = _LENGTH.search(head)
            start = body + int(length[1] if length else 0)
            while len(self.received) < start:
                if not self._more():
                    return
            yield Request(self.number, head, bytes(self.received[body:start]))

    def _more(self) -> bool:
        left = 65536 if self.cut is None else self.cut - len(self.received)
        if not left:
            self._reset()
            return False
        part = self.stream.recv(min(left, 65536))
        self.received += part
        return bool(part)

    def do(self, what: Answer) -> bool:
        """Answer, and return whether the connection is kept."""
        if what.drip is not None:
            self._drip(what.raw, what.drip)
        elif what.raw:
            self.stream.sendall(what.raw)
        if what.then == "reset":
            self._reset()
        if what.then == "close":
            self.end()
        return what.then == "keep"

    def _drip(self, raw: bytes, seconds: float) -> None:
        """Send byte after byte, until the other side or the server ends it."""
        for each in raw:
            self.stream.sendall(bytes([each]))
            if self.ended.wait(seconds):
                return

    def _reset(self) -> None:
        """Let the end of the stream be a reset."""
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def end(self) -> None:
        """End both directions, which wakes whoever reads; a forked child's copy does not keep it open."""
        self.ended.set()
        with contextlib.suppress(OSError):
            # Of the base class: that of an SSLSocket would tear its state away from the thread that reads.
            socket.socket.shutdown(self.stream, socket.SHUT_RDWR)


class Recorder:
    """The server: `with Recorder(...) as service`; behind it, it has stopped, and its threads have ended.

    Args:
        script: Answers in their order; afterwards all requests get `otherwise`.
        otherwise: The answer to a request beyond the script.
        by_path: Answers to requests with these paths, whatever the script says.
        cuts: For the first connections, in their order, after how many bytes each is reset.
        tls: Speak TLS, with this server's context.
        listening: Without it, connections are refused until `listen` is called.

    Attributes:
        port: Where it listens, or will.
    """

    def __init__(
        self,
        script: Iterable[Answer] = (),
        *,
        otherwise: Answer | None = None,
        by_path: Mapping[str, Answer] | None = None,
        cuts: Iterable[int | None] = (),
        tls: ssl.SSLContext | None = None,
        listening: bool = True,
    ) -> None:
        self._script = itertools.chain(script, itertools.repeat(otherwise or answer()))
        self._by_path = by_path or {}
        self._cuts = itertools.chain(cuts, itertools.repeat(None))
        self._tls = tls
        self._listening = listening
        self._door = socket.socket()
        self.port = 0
        self._lock = threading.Lock()
        self._seen = threading.Semaphore(0)
        self._met = threading.Semaphore(0)
        self._stopping = False
        self._knock: tuple[str, int] | None = None
        self._acceptor: threading.Thread | None = None
        self._servants: list[threading.Thread] = []
        self._awaited: list[threading.Event] = []
        self._requests: list[Request] = []
        self._connections: list[Connection] = []

    @property
    def url(self) -> str:
        """Its address, without a path."""
        return f"{'https' if self._tls else 'http'}://{HOST}:{self.port}"

    @property
    def requests(self) -> list[Request]:
        """All whole requests, in the order in which they ended."""
        with self._lock:
            return list(self._requests)

    @property
    def only(self) -> Request:
        """The one request that there was."""
        (request,) = self.requests
        return request

    @property
    def connections(self) -> list[Connection]:
        """All connections, in the order in which they were accepted; complete once the server has stopped."""
        with self._lock:
            return list(self._connections)

    @property
    def received(self) -> bytes:
        """Every byte that came, whole request or not, of one connection after the other; within TLS, decrypted."""
        return b"".join(bytes(each.received) for each in self.connections)

    def wait_for_request(self) -> None:
        """Block until the next request was read whole; from an event loop, call it in a thread.

        Raises:
            TimeoutError: None came.
        """
        if not self._seen.acquire(timeout=PATIENCE):
            raise TimeoutError("no request came")

    def wait_for_connection(self) -> None:
        """Block until the next connection was accepted.

        Raises:
            TimeoutError: None was.
        """
        if not self._met.acquire(timeout=PATIENCE):
            raise TimeoutError("nobody connected")

    def wait_for_ends(self) -> None:
        """Block until the other side has closed every connection that there is.

        Raises:
            TimeoutError: It has not.
        """
        for servant in tuple(self._servants):
            servant.join(PATIENCE)
            if servant.is_alive():
                raise TimeoutError("a connection is still open")

    def listen(self) -> None:
        """Open the door; until then, connections are refused."""
        self._door.listen()
        self._acceptor = self._thread(self._accept)

    def __enter__(self) -> Self:
        self._door.bind((HOST, 0))
        self.port = self._door.getsockname()[1]
        if self._listening:
            self.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        if self._acceptor:
            self._call_last()
            self._acceptor.join(PATIENCE)
        for event in self._awaited:
            event.set()
        for connection in self.connections:
            connection.end()
        for servant in self._servants:
            servant.join(PATIENCE)
        self._door.close()

    async def __aenter__(self) -> Self:
        """Serve, so that a session may follow in the same statement."""
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__(None, None, None)

    def _call_last(self) -> None:
        """Wake the acceptor for its last time: whoever connected earlier is in line before this."""
        with socket.socket() as caller:
            caller.bind((HOST, 0))
            self._knock = caller.getsockname()
            caller.connect((HOST, self.port))

    @staticmethod
    def _thread(target: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=target, args=arguments, name="recorder", daemon=True)
        thread.start()
        return thread

    def _accept(self) -> None:
        for number in itertools.count(1):
            stream, address = self._door.accept()
            if address == self._knock:
                stream.close()
                return
            if self._tls:
                stream = self._tls.wrap_socket(stream, server_side=True, do_handshake_on_connect=False)
            connection = Connection(number, stream, cut=next(self._cuts))
            with self._lock:
                self._connections.append(connection)
            self._servants.append(self._thread(self._serve, connection))
            self._met.release()

    def _serve(self, connection: Connection) -> None:
        with connection.stream, contextlib.suppress(OSError):
            if isinstance(connection.stream, ssl.SSLSocket):
                connection.stream.do_handshake()
            for request in connection.requests():
                if not connection.do(self._recorded(request)):
                    return

    def _recorded(self, request: Request) -> Answer:
        """Record a request, and return its answer once it may be given."""
        with self._lock:
            self._requests.append(request)
            what = self._by_path.get(request.path) or next(self._script)
        self._seen.release()
        if what.after:
            self._awaited.append(what.after)
            if not self._stopping:
                what.after.wait(PATIENCE)
        return what
