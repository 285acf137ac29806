from typing import Any

import pytest

from payasync.endpoints import custom
from payasync.errors import InvalidArgumentError


@pytest.mark.parametrize(
    "path", ["/", "/v1/bills/B-1", "/a/", "/a//b", "/a;v=1/b:c@d", "/%C3%A9", "/a%20b", "/.well-known", "/a..b"]
)
def test_custom_path_is_taken_as_it_is(path: str) -> None:
    """Whatever RFC 3986 lets stand in a path can be asked for."""
    assert path == custom("GET", path, read=True).path


@pytest.mark.parametrize("method", ["get", "CONNECT", "TRACE", "", "GET /x", "POST\r\n", None])
def test_custom_method_must_be_one_of_five(method: Any) -> None:
    """A method that is none, or that is not about a resource, is refused before any I/O."""
    with pytest.raises(InvalidArgumentError, match="method must be one of GET, POST, PUT, PATCH, DELETE") as caught:
        custom(method, "/payment/bill", read=True)

    assert ("method", "an HTTP method in capitals", method) == (
        caught.value.field,
        caught.value.rule,
        caught.value.value,
    )


@pytest.mark.parametrize(
    "path",
    [
        "",
        "payment/bill",
        "https://evil.example/",
        "/a?b=c",
        "/a#b",
        "/a b",
        "/a\r\nX-B: 1",
        "/a\n",
        "/é",
        "/\ud800",
        "/..",
        "/../admin",
        "/a/../../b",
        "/a/./b",
        "/%2e%2E/admin",
        "/a/..%2Fb",
        "/a\\b",
        None,
        5,
    ],
)
def test_custom_path_stays_below_the_base_url(path: Any) -> None:
    """A path is no address, leaves the base URL's path in no way, and cannot break the request apart."""
    with pytest.raises(InvalidArgumentError, match="path must be a path below the base URL") as caught:
        custom("GET", path, read=True)

    assert ("path", "a path below the base URL", path) == (caught.value.field, caught.value.rule, caught.value.value)
