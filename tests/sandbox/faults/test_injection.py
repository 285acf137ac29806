"""Faults on a plain socket: each one sends the bytes that its name promises."""

import asyncio
import errno
import gzip
import itertools
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import aiohttp
import pytest
from attrs import evolve, frozen

from payasync import HttpCodes, Profile
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox import sandbox as wiring
from payasync.sandbox.faults.injection import format_retry_after
from tests.inside import turns, until
from tests.sandbox.foreign import NOON, REFUND, Foreign, refuses

PATIENCE: Final = 10


@frozen
class Seen:
    """What a socket received, up to its end.

    Attributes:
        head: The status line and the headers, in small letters.
        body: The bytes after the head.
        reset: Whether a reset ended the connection, instead of an orderly close.
    """

    head: bytes
    body: bytes
    reset: bool

    @property
    def status(self) -> int:
        """The HTTP status; 0 if there was no response."""
        return int(self.head.split()[1]) if self.head else 0

    def header(self, name: str) -> str | None:
        """Return a header, by its name in small letters."""
        lines = (line.partition(b":") for line in self.head.split(b"\r\n")[1:])
        return next((value.strip().decode() for each, _, value in lines if each == name.encode()), None)


class Plain:
    """A client on plain sockets, which keeps every byte of a response. Each request is another refund of 100.

    Attributes:
        sandbox: The service, in which an order is paid.
        streams: The connections; the last one is used.
    """

    def __init__(self, sandbox: Sandbox, http: aiohttp.ClientSession, order: str) -> None:
        self.sandbox = sandbox
        self.streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._foreign = Foreign(sandbox, http)
        self._order = order
        self._sent = itertools.count(1)
        self._before = 0

    async def connect(self, limit: int = 1 << 16) -> None:
        """Open another connection for the next requests, with a receive buffer of `limit` bytes."""
        host, port = self.sandbox.url.removeprefix("http://").split(":")
        self.streams.append(await asyncio.open_connection(host, int(port), limit=limit))

    async def send(self, *, last: bool = True) -> None:
        """Request a refund."""
        if not self.streams:
            await self.connect()
        self._before = self.sandbox.ledger.refunds()
        fields = {
            "outTradeNo": self._order,
            "outRefundNo": f"R{next(self._sent)}",
            "totalAmt": 45_000,
            "refundAmt": 100,
        }
        body = json.dumps(self._foreign.signed(fields)).encode()
        head = f"POST {REFUND} HTTP/1.1\r\nHost: {self.sandbox.url[7:]}\r\nContent-Length: {len(body)}\r\n"
        head += "Content-Type: application/json\r\n"
        head += "Connection: close\r\n\r\n" if last else "\r\n"
        self.streams[-1][1].write(head.encode() + body)

    async def answer(self) -> bytes:
        """Read one response, whose body is a JSON object without another one in it."""
        return await self.streams[-1][0].readuntil(b"}")

    async def end(self) -> Seen:
        """Read until the connection ends."""
        (reader, _), received, reset = self.streams[-1], bytearray(), False
        async with asyncio.timeout(PATIENCE):
            try:
                while part := await reader.read(1 << 16):
                    received += part
            except ConnectionResetError as error:
                reset = error.errno == errno.ECONNRESET
        head, _, body = bytes(received).partition(b"\r\n\r\n")
        return Seen(head.lower(), body, reset)

    async def refund(self) -> Seen:
        """Request a refund over a new connection, and read until it ends."""
        await self.connect()
        await self.send()
        return await self.end()

    async def meet(self, kind: str, **options: Any) -> Seen:
        """Request a refund that is done and meets a fault."""
        self.sandbox.faults.arm(kind, **options)
        seen = await self.refund()
        assert (200, True) == (seen.status, self.done())
        return seen

    def done(self) -> bool:
        """Return whether the last refund was made."""
        made = self.sandbox.ledger.refunds()
        assert 100 * made == self.sandbox.ledger.refunded(self._order)
        return made == self._before + 1

    def close(self) -> None:
        """Close the connections."""
        for _, writer in self.streams:
            writer.transport.abort()


PHASES: Final[list[tuple[Any, bool]]] = [("before", False), ("after", True)]
"""The phases of a fault, and whether the call is done then."""


@asynccontextmanager
async def opened(http: aiohttp.ClientSession, profile: Profile = PROFILE) -> AsyncGenerator[Plain]:
    """Open a sandbox, and a client on plain sockets."""
    async with Sandbox(profile) as sandbox:
        client = Plain(sandbox, http, await sandbox.given.paid_order(total_amt=45_000))
        yield client
    client.close()


@pytest.fixture
async def plain(http: aiohttp.ClientSession) -> AsyncIterator[Plain]:
    """A client on plain sockets."""
    async with opened(http) as client:
        yield client


def refund_of(body: bytes) -> object:
    """Return the number in a response to a refund."""
    return json.loads(body)["outRefundNo"]


async def test_call_is_done_and_recorded_or_not(plain: Plain, http: aiohttp.ClientSession) -> None:
    """A fault resets the connection or returns a marked response; everything was done and recorded, or nothing.

    If the profile does not say that a 429 precedes execution, it may come after the commit.
    """
    cases: list[tuple[str, dict[str, Any], int, bool]] = [
        ("reset_before", {}, 0, False),
        ("reset_after_commit", {}, 0, True),
        *(("server_error", {"status": 502, "phase": phase}, 502, done) for phase, done in PHASES),
        ("rate_limited", {}, 429, False),
        *((kind, {"phase": "before"}, 200, False) for kind in ("truncated_body", "malformed_json")),
    ]
    for kind, options, status, done in cases:
        plain.sandbox.faults.arm(kind, "refunds.create", **options)
        seen = await plain.refund()

        assert (status, status == 0, done) == (seen.status, seen.reset, plain.done()), kind
        assert (seen.head, seen.body) == (b"", b"") if seen.reset else seen.header("x-payasync-sandbox") == "1"
        assert plain.sandbox.ledger.refunds() == len(plain.sandbox.ledger.calls("refunds.create"))
    async with opened(http, evolve(PROFILE, http=HttpCodes())) as other:
        other.sandbox.faults.rate_limited(phase="after", retry_after=7)
        seen = await other.refund()
        assert (429, "7", True) == (seen.status, seen.header("retry-after"), other.done())


async def test_redirect(plain: Plain) -> None:
    """By default a redirect leads to the same call, so following it repeats the call."""
    elsewhere = "http://127.0.0.1:1/"
    for status in (301, 302, 303, 307, 308):
        plain.sandbox.faults.redirect("refunds.create", status=status)
        plain.sandbox.faults.redirect("refunds.create", status=status, location=elsewhere, phase="after")
        for location, done in ((REFUND, False), (elsewhere, True)):
            seen = await plain.refund()
            assert (status, location, done) == (seen.status, seen.header("location"), plain.done())


async def test_damaged_bodies(plain: Plain) -> None:
    """A truncated body is shorter than its Content-Length, a malformed one is no JSON, or only its type is wrong."""
    truncated, malformed, wrong = [
        await plain.meet(kind) for kind in ("truncated_body", "malformed_json", "wrong_content_type")
    ]
    lengths = [int(each.header("content-length") or 0) for each in (truncated, malformed)]

    assert (False, [lengths[0] // 2, lengths[1]]) == (truncated.reset, [len(truncated.body), len(malformed.body)])
    assert truncated.body.startswith(b"{")
    assert malformed.header("content-type") == "application/json"
    with pytest.raises(json.JSONDecodeError):
        json.loads(malformed.body)
    assert ["R2", "R3"] == [refund_of(body) for body in (malformed.body + b"}", wrong.body)]
    assert "text/html" == (wrong.header("content-type") or "").partition(";")[0]


async def test_huge_body(plain: Plain) -> None:
    """A huge body is JSON, and has the requested size, or that of the response if it is larger."""
    for number, size in enumerate((1, 100_000, 3_000_000), 1):
        seen = await plain.meet("huge_body", size=size)

        assert len(seen.body) == int(seen.header("content-length") or 0) >= size
        assert size in {1, len(seen.body)}
        assert f"R{number}" == refund_of(seen.body)


async def test_gzip_bomb(plain: Plain) -> None:
    """A gzip bomb unpacks to more than 500 times its size, and contains the response."""
    seen = await plain.meet("gzip_bomb", size=20 << 20)
    # The standard library checks the checksum and the length, too.
    unpacked = gzip.decompress(dechunked(seen.body))

    assert "gzip" == seen.header("content-encoding")
    assert 20 << 20 <= len(unpacked) < 22 << 20
    assert len(seen.body) < len(unpacked) // 500
    assert "R1" == refund_of(unpacked)


def dechunked(body: bytes) -> bytes:
    """Return a chunked body without the chunk sizes."""
    whole = bytearray()
    while body:
        size, _, body = body.partition(b"\r\n")
        whole += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return bytes(whole)


async def test_slow_drip(plain: Plain) -> None:
    """With `slow_drip`, the response arrives in single bytes, complete and right."""
    plain.sandbox.faults.slow_drip(seconds=0.0001)
    # So small that no two bytes can be read at once where they were not sent at once.
    await plain.connect(limit=1)
    reader, writer = plain.streams[-1]
    await plain.send()
    parts = []
    async with asyncio.timeout(PATIENCE):
        while part := await reader.read(1 << 16):
            parts.append(part)
    head, _, body = b"".join(parts).partition(b"\r\n\r\n")

    assert ("R1", True) == (refund_of(body), plain.done())
    assert len(parts) > len(body) // 2
    assert not writer.is_closing()
    assert b"200 OK" in head
    assert b"X-Payasync-Sandbox: 1" in head


async def test_stale_keep_alive(plain: Plain) -> None:
    """On a reused connection, `stale_keep_alive` closes it without a response, and nothing is done."""
    fault = plain.sandbox.faults.stale_keep_alive("refunds.create")
    await plain.send(last=False)
    first = await plain.answer()
    await plain.send()
    second = await plain.end()

    assert (True, b"", b"") == (b" 200 OK" in first, second.head, second.body)
    assert (1, 1, False) == (fault.fired, plain.sandbox.ledger.refunds(), plain.done())


async def test_latency(plain: Plain) -> None:
    """With `latency`, the response is late. The work is done before or after the delay, as the phase says."""
    loop = asyncio.get_running_loop()
    for phase, done in PHASES:
        fault, started = plain.sandbox.faults.latency("refunds.create", seconds=0.05, phase=phase), loop.time()
        await plain.connect()
        await plain.send()
        await until(lambda fault=fault: fault.fired)  # type: ignore[misc] # of this turn
        await turns(1)
        early = plain.done()
        seen = await plain.end()

        assert (200, done, True) == (seen.status, early, plain.done())
        assert loop.time() - started >= 0.05


async def test_closing_ends_slow_faults(http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sandbox closes without waiting for a fault or a client: late responses are resets, and no task is left."""
    # A server that waits for its requests when it closes: one that never ended would make it hang.
    monkeypatch.setattr(wiring, "SHUTDOWN_SECONDS", 3000)
    cases: list[tuple[str, dict[str, Any], bool]] = [
        *(("hang", {"phase": phase}, done) for phase, done in PHASES),
        *(("latency", {"phase": phase, "seconds": 3000}, done) for phase, done in PHASES),
        ("slow_drip", {"seconds": 3000}, True),
        *((kind, {"size": 1 << 30}, True) for kind in ("huge_body", "gzip_bomb")),
    ]
    before = asyncio.all_tasks()
    for kind, options, done in cases:
        async with asyncio.timeout(PATIENCE), opened(http) as client:
            fault = client.sandbox.faults.arm(kind, **options)
            await client.send()
            await until(lambda fault=fault: fault.fired)  # type: ignore[misc] # of this turn
            await turns(1)
            assert done == client.done(), kind
            await client.sandbox.close()
            seen = await client.end()

        assert kind not in {"hang", "latency"} or (seen.head, seen.reset) == (b"", True)
        assert set() == asyncio.all_tasks() - before


async def test_fault_ends_when_the_client_hangs_up(plain: Plain) -> None:
    """If the client hangs up, the fault ends."""
    before = asyncio.all_tasks()
    for kind, done in (("slow_drip", True), ("hang", False)):
        fault = plain.sandbox.faults.arm(kind)
        await plain.connect()
        await plain.send()
        await until(lambda fault=fault: fault.fired)  # type: ignore[misc] # of this turn
        plain.close()
        await until(lambda: asyncio.all_tasks() <= before)

        assert done == plain.done()


async def test_refuse_until_disarmed(plain: Plain) -> None:
    """During `refuse`, connections are refused and idle ones closed; the port stays reserved. Then it listens again."""
    url = plain.sandbox.url
    await plain.send(last=False)
    await plain.answer()
    before = refuses(url)
    fault = plain.sandbox.faults.refuse()
    during = refuses(url)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", int(url.rpartition(":")[2])))
    idle = await plain.end()
    fault.disarm()
    after = refuses(url)
    again = await plain.refund()

    assert (False, True, False) == (before, during, after)
    assert (b"", 1, 200) == (idle.head, fault.fired, again.status)


async def test_refuse_for_some_seconds() -> None:
    """After the seconds of `refuse`, the sandbox listens again on the same port. It can be closed before that."""
    async with Sandbox() as sandbox:
        port = int(sandbox.url.rpartition(":")[2])
        sandbox.faults.refuse(seconds=3000)
    async with Sandbox(port=port) as again:
        listens = [not refuses(again.url)]
        again.faults.refuse(seconds=0.05)
        listens.append(not refuses(again.url))
        await until(lambda: not refuses(again.url))
        again.faults.refuse()

    assert [True, False] == listens


async def test_refuse_at_a_call(plain: Plain) -> None:
    """With an operation, `refuse` resets the call that triggers it, and refuses later connections.

    If two `refuse` faults overlap, the sandbox listens again when both are over.
    """
    url, faults = plain.sandbox.url, plain.sandbox.faults
    for phase, done in PHASES:
        fault, listens = faults.refuse("refunds.create", phase=phase), [not refuses(url)]
        seen = await plain.refund()
        listens.append(not refuses(url))
        faults.refuse(seconds=3000)
        fault.disarm()
        listens.append(not refuses(url))
        faults.clear()
        listens.append(not refuses(url))

        assert [True, False, False, True] == listens
        assert (True, b"", done) == (seen.reset, seen.head, plain.done())


async def test_faults_come_before_the_checks(foreign: Foreign, sandbox: Sandbox) -> None:
    """An invalid request meets a fault, too, and needs no number."""
    headers = {"Content-Type": "application/json"}
    for body, status in ((b"{}", 422), (b"no JSON", 400), (b'{"outRefundNo": ["R1"]}', 422)):
        sandbox.faults.server_error("refunds.create", nth=2)
        sandbox.faults.server_error("refunds.create", order="R1").disarm()
        responses = [await foreign.send("POST", REFUND, data=body, headers=headers) for _ in range(2)]

        assert [status, 503] == [each.status for each in responses]


def test_retry_after() -> None:
    """`Retry-After` can be missing, seconds, a date, a past date, nonsense or huge."""
    soon, own = "Sun, 31 Jan 2027 12:00:02 GMT", "Sun, 31 Jan 2027 12:00:00 GMT"
    cases: list[tuple[Any, str | None]] = [
        *((missing, None) for missing in (None, "absent")),
        *((seconds, str(seconds)) for seconds in (0, 7, "-1")),
        *((late, soon) for late in (timedelta(seconds=2), "date")),
        ("past", "Sat, 30 Jan 2027 12:00:00 GMT"),
        (NOON, own),
        ("nonsense", "soon"),
        ("huge", "9" * 30),
    ]
    for given, expected in cases:
        assert expected == format_retry_after(given, NOON)
