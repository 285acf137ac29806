"""What services send, read over HTTP: compressed, with long headers, or nothing that payasync can use."""

import gzip
import hashlib
import hmac
import zlib
from typing import Any, Final

import aiohttp
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from payasync import AnswerShape, Profile, SortedPairs, errors
from payasync.transport.send import ResponseTooLargeError, unpack
from payasync.wire.call import Reply
from tests.foreign.recorder import Answer, Recorder, answer
from tests.sessions import call_once, connect, create, query

CODED: Final = Profile(signed=(), answer=AnswerShape(code="code", ok=("OK",)))
BODY: Final = b'{"code":"OK","note":"' + b"x" * 300 + b'"}'
LIMIT: Final = 10_000
HTML: Final = b"<html><body>502 Bad Gateway</body></html>"


def packed(body: bytes = BODY, coding: str = "gzip", **plan: Any) -> Answer:
    """Return a response whose header says that it is compressed."""
    return answer(200, body, ("Content-Encoding", coding), **plan)


async def test_gzip_is_unpacked() -> None:
    """A response in gzip, which nobody asked for, is read as if it were not compressed. Its signature verifies."""
    sign = hmac.new(b"signing key of M1", b"code=OK", hashlib.sha256).hexdigest()
    signed = b'{"code":"OK","sign":"%b"}' % sign.encode()
    scheme = SortedPairs(algorithm="hmac-sha256", encoding="hex")
    verified = evolve(CODED, signature=scheme, answer=evolve(CODED.answer, signature="sign"))
    cases = [(CODED, BODY, coding) for coding in ("gzip", "x-gzip", " GZIP ")]
    for profile, body, coding in [*cases, (verified, signed, "gzip")]:
        response = packed(gzip.compress(body), coding)
        found = await call_once(query, response, profile=profile, max_response_bytes=len(body))

        assert (body, "OK") == (found.body, found["code"])
        assert "Content-Encoding" not in found.headers


@given(body=st.binary(min_size=1, max_size=300))
def test_the_limit_is_that_of_the_unpacked_body(body: bytes) -> None:
    """A body in gzip may be as long as the limit when it is unpacked, but not longer."""
    coded, most = CIMultiDict({"Content-Encoding": "gzip"}), len(body)
    headers, found = unpack(coded, gzip.compress(body), most)
    with pytest.raises(ResponseTooLargeError):
        unpack(coded, gzip.compress(body), most - 1)

    assert ({}, body) == (dict(headers), found)


async def test_a_gzip_bomb_is_too_large() -> None:
    """A small response that unpacks to more than `max_response_bytes` ends as a long one does."""
    bomb = gzip.compress(b" " * 5_000_000)
    with pytest.raises(errors.NoAnswerError) as caught:
        await call_once(query, packed(bomb), profile=CODED, max_response_bytes=LIMIT)

    assert len(bomb) < LIMIT
    assert "the response is longer than max_response_bytes" == caught.value.reason


async def test_another_amount_is_not_believed() -> None:
    """An amount of any length is compared digit by digit, and the reason shows its first digits."""
    for digits in (str(2**64), "7" * 28, "7" * 5000):
        body = b'{"code":"OK","outTradeNo":"T1","totalAmt":%b}' % digits.encode()
        with Recorder(otherwise=answer(200, body)) as service:
            async with connect(service, profile=CODED) as pay:
                with pytest.raises(errors.OutcomeUnknownError) as caught:
                    await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")

        assert f"totalAmt is {digits[:20]}" in str(caught.value.reason)


UNUSABLE: Final = {
    "empty": (answer(200, b" \r\n"), "an empty response"),
    "HTML": (answer(200, HTML, kind="text/html"), "an HTML page"),
    "text": (answer(200, b"default backend"), "a response that is not JSON of at most 32 levels"),
    "cut": (answer(200, BODY[:-1]), "a response that is not JSON of at most 32 levels"),
    "too deep": (answer(200, b"[" * 40 + b"]" * 40), "not JSON of at most 32 levels"),
    "latin-1": (answer(200, b'{"code":"OK","name":"\xe9"}'), "not UTF-8"),
    "UTF-16": (answer(200, BODY.decode().encode("utf-16")), "not UTF-8"),
    "list": (answer(200, b"[]"), "JSON without a known code"),
    "no code": (answer(200, b'{"status":"OK"}'), "JSON without a known code (answer.code in the profile: code)"),
    "brotli": (packed(BODY, "br"), "compressed"),
    "deflate": (packed(zlib.compress(BODY), "deflate"), "compressed"),
    "twice": (packed(gzip.compress(gzip.compress(BODY)), "gzip, gzip"), "compressed"),
    "no gzip": (packed(BODY), "compressed"),
    "gzip, cut": (packed(gzip.compress(BODY)[:-9]), "compressed"),
    "gzip, no deflate": (packed(gzip.compress(BODY)[:10] + b"\xff" * 30), "compressed"),
    "gzip, damaged": (packed(gzip.compress(BODY)[:-8] + b"\0" * 8), "compressed"),
}
"""Responses with status 200 that say nothing, and what the errors say of them."""


async def test_what_cannot_be_used_is_named() -> None:
    """The reason names what makes a response unusable. A read may be repeated, and a write is in doubt.

    The status of a response counts even if its body cannot be unpacked.
    """
    for unusable, words in UNUSABLE.values():
        with pytest.raises(errors.NoAnswerError) as read:
            await call_once(query, unusable, profile=CODED)
        with pytest.raises(errors.OutcomeUnknownError) as write:
            await call_once(create, unusable, profile=CODED)

        assert words in str(read.value.reason)
        assert read.value.reason == write.value.reason
        assert f"HTTP 200, {read.value.reason}" in str(write.value)
        assert ("JSON without" in words) == ("profile" in str(read.value))
    with pytest.raises(errors.NoAnswerError, match="HTTP 503, the service failed") as caught:
        await call_once(query, answer(503, BODY, ("Content-Encoding", "br")), profile=CODED)
    assert caught.value.response is not None
    assert caught.value.response.document is None


async def test_long_and_many_headers_are_read() -> None:
    """A header may be 64 KiB long, and a response may have 256 of them, also on a lent connector."""
    long, many = ("X-Long", "x" * (64 << 10)), [(f"X-{number}", "y") for number in range(253)]
    with Recorder([answer(200, BODY, long, *many)] * 2) as service:
        async with (
            aiohttp.ClientSession() as http,
            connect(service, profile=CODED) as own,
            connect(service, profile=CODED, http=http) as lent,
        ):
            for found in (await query(own), await query(lent)):
                assert long in found.headers.items()
                assert 256 == len(found.headers)


async def test_too_long_or_too_many_headers() -> None:
    """The reason says that a header is too long, or that there are too many. A write is in doubt."""
    reason = "a header is too long, or there are too many: the limits are 64 KiB and 256 headers"
    many = [(f"X-{number}", "y") for number in range(255)]
    for headers in ([("X-Long", "x" * (65 << 10))], [("X" * (65 << 10), "x")], many):
        with pytest.raises(errors.NoAnswerError) as read:
            await call_once(query, answer(200, BODY, *headers), profile=CODED)
        with pytest.raises(errors.OutcomeUnknownError) as write:
            await call_once(create, answer(200, BODY, *headers), profile=CODED)

        assert [reason, reason] == [read.value.reason, write.value.reason]


def test_identity_is_no_compression() -> None:
    """`Content-Encoding: identity` says that a body is not compressed."""
    documents = [Reply(200, {"Content-Encoding": coding}, b"{}").document for coding in ("identity", " Identity", "")]

    assert [{}, {}, {}] == documents
