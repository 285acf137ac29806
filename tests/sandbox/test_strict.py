"""JSON, read strictly."""

import pytest

from payasync.sandbox.strict import read_object
from payasync.sandbox.values import RefusedError


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"{} {}",
        b"\xff",
        b"\xef\xbb\xbf{}",
        b'{"a":1,"a":1}',
        b'{"a":{"b":1,"b":2}}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":"\\ud800"}',
        b'{"\\ud800":1}',
        b'{"a":"\n"}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":' + b"[" * 32 + b"]" * 32 + b"}",
        b"[" * 60_000,
        b'{"a":' * 10_000,
    ],
)
def test_what_can_be_misread_is_refused(body: bytes) -> None:
    """Broken, ambiguous, endless and deep documents are malformed: 400."""
    with pytest.raises(RefusedError) as refused:
        read_object(body)

    assert ("invalid", 400) == (refused.value.why, refused.value.status)


def test_depth_of_32_is_taken() -> None:
    """32 levels are allowed."""
    body = b'{"a":' + b"[" * 31 + b"]" * 31 + b"}"

    assert ["a"] == list(read_object(body))


def test_unicode_is_taken() -> None:
    """Texts are as they were sent, with surrogate pairs joined."""
    assert {"é": "😀"} == read_object('{"é":"\\ud83d\\ude00"}'.encode())
