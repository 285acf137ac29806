"""A request as it travelled, kept in a file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payasync.cli.verify_notification import HttpMessage
from payasync.errors import InvalidArgumentError

NAMES = st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyz-"), min_size=1, max_size=12).filter(
    lambda name: name != "content-length"
)
VALUES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0xFF, exclude_categories=["Cc", "Zs"]), max_size=20)


@given(
    body=st.binary(max_size=60),
    headers=st.lists(st.tuples(NAMES, VALUES), max_size=4),
    target=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20),
)
def test_what_is_written_is_read(body: bytes, headers: list[tuple[str, str]], target: str) -> None:
    """Body, headers and path come back as they were, with the length beside them."""
    message = HttpMessage(body, tuple(headers), target)
    length = ("content-length", str(len(body)))

    assert HttpMessage(body, (*headers, length), target) == HttpMessage.read(message.written())


@pytest.mark.parametrize(
    "raw", [b"{}", b'{"a": "POST / HTTP/1.1"}', b"GET / HTTP/1.1\r\n\r\n{}", b"POST \xff HTTP/1.1\n\n"]
)
def test_file_of_a_body_alone(raw: bytes) -> None:
    """What does not begin as a POST request is the body, byte by byte."""
    assert HttpMessage(raw) == HttpMessage.read(raw)


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_line_ends(end: bytes) -> None:
    """A file that was edited may have the line ends of its system; the body's own stay."""
    raw = end.join([b"POST /notify/refund HTTP/1.1", b"X-A:  1 ", b"x-a: caf\xe9: 2", b"", b"{\r\n\n}"])
    message = HttpMessage.read(raw)

    assert (b"{\r\n\n}", "/notify/refund") == (message.body, message.target)
    assert (("x-a", "1"), ("x-a", "café: 2")) == message.headers


@pytest.mark.parametrize(
    ("length", "body"),
    [("2", b"{}"), ("2", b"{}\n"), ("2", b"{}\r\n\n"), ("many", b"{}\n"), ("\xb2", b"{}\n"), ("", b"{}\n")],
)
def test_body_is_as_long_as_its_header_says(length: str, body: bytes) -> None:
    """An editor adds a line end, which goes; what is no length says nothing."""
    message = HttpMessage.read(f"POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode("latin-1") + body)
    expected = (2, b"{}") if length == "2" else (None, body)

    assert expected == (message.length, message.body)


def test_more_than_its_header_says_is_kept() -> None:
    """Nothing but line ends is cut off in silence: what is longer was changed, and its length tells."""
    message = HttpMessage.read(b"POST / HTTP/1.1\r\nContent-Length: 7\r\n\r\n" + b'{"a": 1}')

    assert (7, b'{"a": 1}') == (message.length, message.body)


@pytest.mark.parametrize("raw", [b"", b" \r\n"])
def test_empty_file(raw: bytes) -> None:
    """It is no body of anything."""
    with pytest.raises(InvalidArgumentError, match="the file is empty"):
        HttpMessage.read(raw)


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (b"POST / HTTP/1.1\r\nx: 1\r\n", "an empty line"),
        (b"POST / HTTP/1.1\r\n{}\r\n\r\n", "a colon in each"),
        (
            b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n{}",
            "a body of 3 bytes, as its Content-Length says: the file has 2",
        ),
        (b"POST / HTTP/1.1\r\nContent-Length: %b\r\n\r\n{}" % (b"9" * 5000), "a body of 9+ bytes"),
    ],
)
def test_broken_messages(raw: bytes, wanted: str) -> None:
    """What begins as a request and does not go on as one is refused: it was cut, or is something else."""
    with pytest.raises(InvalidArgumentError, match=wanted) as refused:
        HttpMessage.read(raw)

    assert "file" == refused.value.field


def test_other_headers() -> None:
    """They replace those of the same name, in any case, and the others stay."""
    message = HttpMessage(b"", (("Webhook-Id", "a"), ("X", "1"), ("webhook-id", "b")), "/")

    assert (("x", "1"), ("webhook-id", "c")) == message.with_headers({"webhook-id": "c"}).headers
