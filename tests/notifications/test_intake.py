"""What arrives: bytes and headers, as any server hands them over."""

import array
from typing import Any, Final

import pytest
from multidict import CIMultiDict

from payasync.errors import InvalidArgumentError
from payasync.notifications.notification import MAX_BYTES, copy_body, read_headers

RELEASED: Final = memoryview(b"{}")
RELEASED.release()


@pytest.mark.parametrize(
    "raw",
    [b"{}", bytearray(b"{}"), memoryview(b"{}"), memoryview(b"{-}-")[::2]],
    ids=["bytes", "bytearray", "memoryview", "every second byte"],
)
def test_body_is_bytes_of_its_own(raw: Any) -> None:
    """Whatever holds them, the bytes are copied: nobody can change what was verified."""
    body = copy_body(raw)

    assert (bytes, b"{}") == (type(body), body)


@pytest.mark.parametrize("raw", ["{}", None, 5, [123, 125], array.array("b", b"{}")], ids=repr)
def test_what_is_no_bytes(raw: Any) -> None:
    """A text is refused, since a signature is made over bytes; the error says so."""
    with pytest.raises(InvalidArgumentError, match="the body's bytes, as they were received") as refused:
        copy_body(raw)

    assert "raw" == refused.value.field


def test_memoryview_that_was_released() -> None:
    """What cannot be read any more is our error, not Python's."""
    with pytest.raises(InvalidArgumentError, match="not a memoryview that was released"):
        copy_body(RELEASED)


def test_length() -> None:
    """The greatest length passes, one byte more does not."""
    longest = b" " * MAX_BYTES

    assert longest == copy_body(longest, MAX_BYTES)
    with pytest.raises(InvalidArgumentError, match="3 bytes long at most, not of 4"):
        copy_body(b"1234", max_bytes=3)
    with pytest.raises(InvalidArgumentError):
        copy_body(longest + b" ", MAX_BYTES)


@pytest.mark.parametrize(
    "headers",
    [
        {"Webhook-Id": "m1"},
        {b"webhook-id": b"m1"},
        [("WEBHOOK-ID", "m1")],
        [(b"webhook-id", b"m1")],
        [["webhook-ID", "m1"]],
        CIMultiDict({"webhook-id": "m1"}),
    ],
    ids=repr,
)
def test_headers_by_names_in_any_case(headers: Any) -> None:
    """A mapping or pairs, texts or bytes, as WSGI, ASGI and aiohttp have them: all are one."""
    taken = read_headers(headers)

    assert "m1" == taken["wEBHOOK-iD"]
    assert 1 == len(taken)


def test_headers_that_come_one_by_one() -> None:
    """Pairs may come from anything that yields them."""
    assert {"a": "1", "b": "2"} == read_headers(pair for pair in [("a", "1"), ("b", "2")])


def test_header_that_stands_twice() -> None:
    """None is dropped: who needs one alone sees that there are two."""
    assert ["a", "b"] == read_headers([("webhook-id", "a"), ("Webhook-Id", "b")]).getall("webhook-id")


def test_bytes_are_latin_1() -> None:
    """Every byte is a character, as in HTTP."""
    assert "".join(map(chr, range(256))) == read_headers({b"x": bytes(range(256))})["x"]


def test_lone_surrogates_become_writable() -> None:
    """A server that cannot decode a header hands over lone surrogates; what is kept can be written anywhere."""
    assert {"x?": "a?b"} == read_headers({"x\udce9": "a\udce9b"})


@pytest.mark.parametrize(
    "headers",
    [
        None,
        5,
        "webhook-id: m1",
        b"webhook-id: m1",
        ["webhook-id"],
        ["ab"],
        [("a",)],
        [("a", "b", "c")],
        [("a", None)],
        [None],
        {"a": 1},
        {1: "a"},
        {"a": ["b"]},
    ],
    ids=repr,
)
def test_what_is_no_headers(headers: Any) -> None:
    """Anything else is refused as an argument, by its name."""
    with pytest.raises(InvalidArgumentError, match="headers must be a mapping") as refused:
        read_headers(headers)

    assert "headers" == refused.value.field


def test_no_headers_at_all() -> None:
    """None are needed where the profile looks at none."""
    assert {} == read_headers({}) == read_headers([])
