"""Why no answer came, in plain words."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import pytest
import trustme

from payasync.sandbox.webhooks import explain_failure, outgoing_client

WORDS: Final = {
    b"": "the connection was closed before the answer",
    b"hello\r\n\r\n": "the answer is not HTTP",
    b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{": "the answer was cut short",
}


async def reason(url: str) -> str:
    """Return why a request gets no answer."""
    async with outgoing_client(allow_remote=False) as http:
        try:
            async with http.post(url, data=b"{}") as answer:
                await answer.read()
        except Exception as error:  # noqa: BLE001 - whichever it is
            return explain_failure(error)
    return ""


@asynccontextmanager
async def server(answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncGenerator[int]:
    """Listen, and answer one thing."""

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(answered, "127.0.0.1", 0, ssl=tls) as listening:
        yield listening.sockets[0].getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_closed_port(host: str) -> None:
    """Nobody listens there."""
    assert "connection refused" == await reason(f"http://{host}:1/?canary")


@pytest.mark.parametrize("host", ["192.0.2.1", "0.0.0.0"])  # noqa: S104 - it is refused
async def test_another_machine(host: str) -> None:
    """The sandbox itself keeps it from being sent, and says so."""
    expected = "the address is not on this machine: the sandbox notifies loopback addresses only"

    assert expected == await reason(f"http://{host}/")


@pytest.mark.parametrize("answer", WORDS)
async def test_what_is_no_answer(answer: bytes) -> None:
    """It was closed, is no HTTP, or was cut: in words, without the address."""
    async with server(answer) as port:
        assert WORDS[answer] == await reason(f"http://127.0.0.1:{port}/?canary")


async def test_certificate() -> None:
    """One that nobody vouches for."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    async with server(b"", context) as port:
        assert "its certificate cannot be trusted" == await reason(f"https://127.0.0.1:{port}/")


async def test_https_where_there_is_none() -> None:
    """A receiver that speaks HTTP alone does not shake hands."""
    async with server(b"hello") as port:
        assert "the TLS handshake failed" == await reason(f"https://127.0.0.1:{port}/")


def test_no_answer_in_time() -> None:
    """The time that a receiver has is told."""
    assert "no answer within 5 seconds" == explain_failure(TimeoutError())


async def test_address_that_cannot_be_used() -> None:
    """A name that no host can have is no lack of an answer."""
    assert "the address cannot be used" == await reason(f"http://{'a' * 70}.example/")
