import pytest

from payasync.headers import FRAMING, is_header, is_own

FRAMES = [
    "Accept-Encoding",
    "Connection",
    "Content-Encoding",
    "Content-Length",
    "Content-Type",
    "Expect",
    "Host",
    "Keep-Alive",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("X-A", "1", True),
        ("X-A", "1 2", True),
        ("X-A", "1\n", False),
        ("X-A\n", "1", False),
        ("X-A", "", False),
        ("X-A", 1, False),
        (1, "1", False),
        (None, None, False),
    ],
)
def test_what_is_a_header(name: object, value: object, *, expected: bool) -> None:
    """A header is a token and visible ASCII (RFC 9110); what is no text is none."""
    assert expected == is_header(name, value)


def test_headers_that_frame_a_message() -> None:
    """Nobody else says where a message begins and ends, whether its body waits, nor of which kind it is."""
    assert {name.lower() for name in FRAMES} == FRAMING


@pytest.mark.parametrize("name", [*FRAMES, "Authorization", "Cookie", "Proxy-Authorization", "Proxy-Connection"])
def test_own_headers_in_any_case(name: str) -> None:
    """A profile's headers neither frame the message nor say who sends it, however they are written."""
    assert [True] * 3 == [is_own(name), is_own(name.lower()), is_own(name.upper())]


@pytest.mark.parametrize(
    "name", ["Accept", "User-Agent", "X-Host", "X-Proxy-Mode", "Proxy", "Content-Language", "Te-X"]
)
def test_other_headers_are_free(name: str) -> None:
    """A version, a language or a name of the client's own are the profile's to say."""
    assert not is_own(name)
