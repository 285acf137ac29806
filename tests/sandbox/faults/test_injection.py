"""Faults on a plain socket: each one sends the bytes that its name promises."""

import asyncio
import errno
import gzip
import json
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import aiohttp
import pytest
from attrs import evolve, frozen

from payasync.profile.schema import HttpCodes
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox import sandbox as wiring
from payasync.sandbox.faults.injection import format_retry_after
from tests.inside import turns, until
from tests.sandbox.foreign import REFUND, Foreign, refuses

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
    """A client on a plain socket, which keeps every byte of a response."""

    def __init__(self, sandbox: Sandbox, foreign: Foreign, order: str) -> None:
        self.sandbox = sandbox
        self.order = order
        self.foreign = foreign
        self._netloc = self.sandbox.url.removeprefix("http://")
        self.streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def connect(self, limit: int = 1 << 16) -> None:
        """Open another connection for the next requests, with a receive buffer of `limit` bytes."""
        host, port = self._netloc.split(":")
        self.streams.append(await asyncio.open_connection(host, int(port), limit=limit))

    async def send(self, out_refund_no: str = "R1", *, last: bool = True) -> None:
        """Request a refund of 100."""
        if not self.streams:
            await self.connect()
        fields = {"outTradeNo": self.order, "outRefundNo": out_refund_no, "totalAmt": 450, "refundAmt": 100}
        body = json.dumps(self.foreign.signed(fields)).encode()
        head = f"POST {REFUND} HTTP/1.1\r\nHost: {self._netloc}\r\nContent-Length: {len(body)}\r\n"
        head += "Content-Type: application/json\r\n"
        head += "Connection: close\r\n\r\n" if last else "\r\n"
        self.streams[-1][1].write(head.encode() + body)

    async def answer(self) -> Seen:
        """Read one response with a Content-Length."""
        reader = self.streams[-1][0]
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        seen = Seen(head, b"", reset=False)
        return Seen(head, await reader.readexactly(int(seen.header("content-length") or 0)), reset=False)

    async def end(self) -> Seen:
        """Read until the connection ends."""
        reader, received, reset = self.streams[-1][0], bytearray(), False
        async with asyncio.timeout(PATIENCE):
            try:
                while part := await reader.read(1 << 16):
                    received += part
            except ConnectionResetError as error:
                reset = error.errno == errno.ECONNRESET
        head, _, body = bytes(received).partition(b"\r\n\r\n")
        return Seen(head.lower(), body, reset)

    async def refund(self) -> Seen:
        """Request a refund, and read until the connection ends."""
        await self.send()
        return await self.end()

    def done(self) -> tuple[int, int]:
        """Return the amount refunded and the number of refunds."""
        return self.sandbox.ledger.refunded(self.order), self.sandbox.ledger.refunds()

    def close(self) -> None:
        """Close the connections."""
        for _, writer in self.streams:
            writer.transport.abort()


NOTHING: Final = (0, 0)
ALL: Final = (100, 1)
BOTH: Final = pytest.mark.parametrize(("phase", "done"), [("before", NOTHING), ("after", ALL)], ids=["before", "after"])


@pytest.fixture
async def plain(foreign: Foreign, sandbox: Sandbox) -> AsyncIterator[Plain]:
    """A client on a plain socket, with a paid order."""
    client = Plain(sandbox, foreign, await sandbox.given.paid_order())
    yield client
    client.close()


def is_answer(body: bytes) -> bool:
    """Return whether a body is the response to the refund."""
    return bool(json.loads(body)["outRefundNo"] == "R1")


@pytest.mark.parametrize(
    ("kind", "options", "status", "done"),
    [
        ("reset_before", {}, 0, NOTHING),
        ("reset_after_commit", {}, 0, ALL),
        ("server_error", {"status": 502, "phase": "before"}, 502, NOTHING),
        ("server_error", {"status": 502, "phase": "after"}, 502, ALL),
        ("rate_limited", {}, 429, NOTHING),
        ("truncated_body", {"phase": "before"}, 200, NOTHING),
        ("malformed_json", {"phase": "before"}, 200, NOTHING),
    ],
    ids=str,
)
async def test_call_is_done_and_recorded_or_not(
    plain: Plain, kind: str, options: dict[str, Any], status: int, done: tuple[int, int]
) -> None:
    """A fault resets the connection or returns a marked response; everything was done and recorded, or nothing."""
    plain.sandbox.faults.arm(kind, "refunds.create", **options)
    seen = await plain.refund()

    assert (status, status == 0) == (seen.status, seen.reset)
    assert (seen.head, seen.body) == (b"", b"") if seen.reset else seen.header("x-payasync-sandbox") == "1"
    assert (done, done[1]) == (plain.done(), len(plain.sandbox.ledger.calls("refunds.create")))


async def test_rate_limited_after_the_commit(http: aiohttp.ClientSession) -> None:
    """If the profile does not say that a 429 precedes execution, it may come after the commit."""
    async with Sandbox(evolve(PROFILE, http=HttpCodes())) as sandbox:
        client = Plain(sandbox, Foreign(sandbox, http), await sandbox.given.paid_order())
        sandbox.faults.rate_limited(phase="after", retry_after=7)
        seen = await client.refund()
        client.close()

        assert (429, "7", ALL) == (seen.status, seen.header("retry-after"), client.done())


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect(plain: Plain, status: int) -> None:
    """By default a redirect leads to the same call, so following it repeats the call."""
    plain.sandbox.faults.redirect("refunds.create", status=status)
    plain.sandbox.faults.redirect("refunds.create", status=status, location="http://127.0.0.1:1/", phase="after")
    seen = await plain.refund()
    first = plain.done()
    await plain.connect()
    away = await plain.refund()

    assert (status, REFUND, NOTHING) == (seen.status, seen.header("location"), first)
    assert (status, "http://127.0.0.1:1/", ALL) == (away.status, away.header("location"), plain.done())


async def test_truncated_body(plain: Plain) -> None:
    """A truncated body is shorter than its Content-Length; the connection closes normally."""
    plain.sandbox.faults.truncated_body()
    seen = await plain.refund()
    length = int(seen.header("content-length") or 0)

    assert (200, False, length // 2, ALL) == (seen.status, seen.reset, len(seen.body), plain.done())
    assert seen.body.startswith(b"{")


async def test_malformed_json(plain: Plain) -> None:
    """A malformed body has its Content-Length, and is not JSON."""
    plain.sandbox.faults.malformed_json()
    seen = await plain.refund()

    assert (200, len(seen.body), ALL) == (seen.status, int(seen.header("content-length") or 0), plain.done())
    assert seen.header("content-type") == "application/json"
    with pytest.raises(json.JSONDecodeError):
        json.loads(seen.body)
    assert is_answer(seen.body + b"}")


async def test_wrong_content_type(plain: Plain) -> None:
    """The body is right, but its Content-Type is `text/html`."""
    plain.sandbox.faults.wrong_content_type()
    seen = await plain.refund()

    assert "text/html" == (seen.header("content-type") or "").partition(";")[0]
    assert (True, ALL) == (is_answer(seen.body), plain.done())


@pytest.mark.parametrize("size", [1, 100_000, 3_000_000])
async def test_huge_body(plain: Plain, size: int) -> None:
    """A huge body is JSON, and has the requested size, or that of the response if it is larger."""
    plain.sandbox.faults.huge_body(size=size)
    seen = await plain.refund()

    assert len(seen.body) == int(seen.header("content-length") or 0) >= size
    assert size in {1, len(seen.body)}
    assert (True, ALL) == (is_answer(seen.body), plain.done())


async def test_gzip_bomb(plain: Plain) -> None:
    """A gzip bomb unpacks to more than 500 times its size, and contains the response."""
    plain.sandbox.faults.gzip_bomb(size=20 << 20)
    seen = await plain.refund()
    # The standard library checks the checksum and the length, too.
    unpacked = gzip.decompress(dechunked(seen.body))

    assert ("gzip", ALL) == (seen.header("content-encoding"), plain.done())
    assert 20 << 20 <= len(unpacked) < 22 << 20
    assert len(seen.body) < len(unpacked) // 500
    assert is_answer(unpacked)


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

    assert (True, ALL) == (is_answer(body), plain.done())
    assert len(parts) > len(body) // 2
    assert not writer.is_closing()
    assert b"200 OK" in head
    assert b"X-Payasync-Sandbox: 1" in head


async def test_stale_keep_alive(plain: Plain) -> None:
    """On a reused connection, `stale_keep_alive` closes it without a response, and nothing is done."""
    fault = plain.sandbox.faults.stale_keep_alive("refunds.create")
    await plain.send("R1", last=False)
    first = await plain.answer()
    await plain.send("R2")
    second = await plain.end()

    assert (200, b"", b"") == (first.status, second.head, second.body)
    assert (1, ALL) == (fault.fired, plain.done())


@BOTH
async def test_latency(plain: Plain, phase: str, done: tuple[int, int]) -> None:
    """With `latency`, the response is late. The work is done before or after the delay, as the phase says."""
    fault = plain.sandbox.faults.latency("refunds.create", seconds=0.05, phase=phase)  # type: ignore[arg-type] # one of the two
    loop = asyncio.get_running_loop()
    started = loop.time()
    await plain.send()
    await until(lambda: fault.fired)
    await turns(1)
    meanwhile = plain.done()
    seen = await plain.end()

    assert (200, done, ALL) == (seen.status, meanwhile, plain.done())
    assert loop.time() - started >= 0.05


@pytest.fixture
def patient_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that waits for its requests when it closes, so that a request that never ends makes it hang."""
    monkeypatch.setattr(wiring, "SHUTDOWN_SECONDS", 3000)


@pytest.mark.usefixtures("patient_server")
@pytest.mark.parametrize(
    ("kind", "options", "done"),
    [
        ("hang", {"phase": "before"}, NOTHING),
        ("hang", {"phase": "after"}, ALL),
        ("latency", {"seconds": 3000}, NOTHING),
        ("latency", {"seconds": 3000, "phase": "after"}, ALL),
        ("slow_drip", {"seconds": 3000}, ALL),
        ("huge_body", {"size": 1 << 30}, ALL),
        ("gzip_bomb", {"size": 1 << 30}, ALL),
    ],
    ids=str,
)
async def test_closing_ends_slow_faults(
    plain: Plain, kind: str, options: dict[str, Any], done: tuple[int, int]
) -> None:
    """The sandbox closes without waiting for a fault or a client: late responses are resets, and no task is left."""
    before = asyncio.all_tasks()
    async with asyncio.timeout(PATIENCE), Sandbox() as sandbox:
        client = Plain(sandbox, Foreign(sandbox, plain.foreign.http), await sandbox.given.paid_order())
        fault = sandbox.faults.arm(kind, **options)
        await client.send()
        await until(lambda: fault.fired)
        await turns(1)
        meanwhile = client.done()
    seen = await client.end()
    client.close()

    assert done == meanwhile
    assert kind not in {"hang", "latency"} or (seen.head, seen.reset) == (b"", True)
    assert set() == asyncio.all_tasks() - before


@pytest.mark.parametrize(("kind", "done"), [("slow_drip", ALL), ("hang", NOTHING)])
async def test_fault_ends_when_the_client_hangs_up(plain: Plain, kind: str, done: tuple[int, int]) -> None:
    """If the client hangs up, the fault ends."""
    before = asyncio.all_tasks()
    fault = plain.sandbox.faults.arm(kind)
    await plain.send()
    await until(lambda: fault.fired)
    plain.close()
    await until(lambda: asyncio.all_tasks() <= before)

    assert done == plain.done()


async def test_refuse_until_disarmed(plain: Plain) -> None:
    """During `refuse`, connections are refused and idle ones closed; the port stays reserved. Then it listens again."""
    await plain.send(last=False)
    await plain.answer()
    before = refuses(plain.sandbox.url)
    fault = plain.sandbox.faults.refuse()
    during = refuses(plain.sandbox.url)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", int(plain.sandbox.url.rpartition(":")[2])))
    kept = await plain.end()
    fault.disarm()
    after = refuses(plain.sandbox.url)
    await plain.connect()
    again = await plain.refund()

    assert (False, True, False) == (before, during, after)
    assert (b"", 1, 200) == (kept.head, fault.fired, again.status)


async def test_refuse_until_both_are_disarmed(plain: Plain) -> None:
    """If two `refuse` faults overlap, the sandbox listens again when both are over."""
    later = plain.sandbox.faults.refuse("refunds.create")
    await plain.refund()
    plain.sandbox.faults.refuse(seconds=3000)
    later.disarm()
    during = refuses(plain.sandbox.url)
    plain.sandbox.faults.clear()

    assert (True, False) == (during, refuses(plain.sandbox.url))


async def test_refuse_for_some_seconds(plain: Plain) -> None:
    """After the seconds of `refuse`, the sandbox listens again on the same port."""
    plain.sandbox.faults.refuse(seconds=0.05)
    during = refuses(plain.sandbox.url)
    await until(lambda: not refuses(plain.sandbox.url))
    seen = await plain.refund()

    assert (True, 200) == (during, seen.status)


@BOTH
async def test_refuse_at_a_call(plain: Plain, phase: str, done: tuple[int, int]) -> None:
    """With an operation, `refuse` resets the call that triggers it, and refuses later connections."""
    fault = plain.sandbox.faults.refuse("refunds.create", phase=phase)  # type: ignore[arg-type] # one of the two
    before = refuses(plain.sandbox.url)
    seen = await plain.refund()
    during = refuses(plain.sandbox.url)
    fault.disarm()

    assert (False, True, False) == (before, during, refuses(plain.sandbox.url))
    assert (True, b"", done) == (seen.reset, seen.head, plain.done())


async def test_sandbox_that_refuses_can_be_closed() -> None:
    """A sandbox that refuses can be closed, and its port is free then."""
    async with Sandbox() as sandbox:
        port = int(sandbox.url.rpartition(":")[2])
        sandbox.faults.refuse(seconds=3000)
    async with Sandbox(port=port) as again:
        assert not refuses(again.url)
        again.faults.refuse().disarm()
        again.faults.refuse()


@pytest.mark.parametrize("request_", [b"{}", b"no JSON", b'{"outRefundNo": ["R1"]}'], ids=str)
async def test_faults_come_before_the_checks(foreign: Foreign, sandbox: Sandbox, request_: bytes) -> None:
    """An invalid request meets a fault, too, and needs no number."""
    sandbox.faults.server_error("refunds.create", nth=2)
    sandbox.faults.server_error("refunds.create", order="R1").disarm()
    headers = {"Content-Type": "application/json"}
    first = await foreign.send("POST", REFUND, data=request_, headers=headers)
    second = await foreign.send("POST", REFUND, data=request_, headers=headers)

    assert first.status in {400, 422}
    assert 503 == second.status


NOON: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ("absent", None),
        (0, "0"),
        (7, "7"),
        (timedelta(seconds=2), "Sat, 31 Jan 2026 12:00:02 GMT"),
        ("date", "Sat, 31 Jan 2026 12:00:02 GMT"),
        ("past", "Fri, 30 Jan 2026 12:00:00 GMT"),
        (NOON, "Sat, 31 Jan 2026 12:00:00 GMT"),
        ("nonsense", "soon"),
        ("huge", "9" * 30),
        ("-1", "-1"),
    ],
    ids=str,
)
def test_retry_after(given: Any, expected: str | None) -> None:
    """`Retry-After` can be missing, seconds, a date, a past date, nonsense or huge."""
    assert expected == format_retry_after(given, NOON)
