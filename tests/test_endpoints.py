"""The documented endpoints, their arguments, and custom endpoints."""

from typing import Any, Final

import pytest
from attrs import NOTHING, Attribute, fields

from payasync.endpoints import ARGUMENTS, FURTHER, custom_operation
from payasync.errors import InvalidArgumentError
from payasync.profile.schema import OPEN_FIELDS
from payasync.strict_json import Absent
from tests.building import FULL


def as_written(attribute: "Attribute[Any]") -> tuple[str, bool, bool]:
    """Return the name of a request's argument, whether it is a text, and whether it is required."""
    return attribute.name, attribute.type in (str, str | Absent), attribute.default is NOTHING


def test_arguments_are_those_of_the_request() -> None:
    """The table of arguments agrees with the request classes: names, kinds and which are required."""
    for operation, request in FULL.items():
        kind: Any = type(request)
        expected = {as_written(each) for each in fields(kind) if each.name != "extra"}
        arguments = (*ARGUMENTS[operation], *FURTHER.get(operation, ()))

        assert expected == {(each.name, each.text, each.required) for each in arguments}


def test_open_arguments_are_the_profiles_fields() -> None:
    """Each wire name that the document does not show has a key in the profile, and each key has an argument."""
    points = {each.point for arguments in ARGUMENTS.values() for each in arguments}

    assert {"", *OPEN_FIELDS} == points


def test_custom_path_is_accepted_unchanged() -> None:
    """Paths that RFC 3986 allows are accepted unchanged."""
    paths = "/", "/v1/bills/B-1", "/a/", "/a//b", "/a;v=1/b:c@d", "/%C3%A9", "/a%20b", "/.well-known", "/a..b"

    assert paths == tuple(custom_operation("GET", path, read=True).path for path in paths)


def check_refused(method: Any, path: Any, rule: tuple[str, str, object], words: str) -> None:
    """Check that a method or path is refused with its name, its rule and its value."""
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        custom_operation(method, path, read=True)

    assert rule == (caught.value.field, caught.value.rule, caught.value.value)


def test_custom_method_must_be_one_of_five() -> None:
    """A method other than GET, POST, PUT, PATCH and DELETE is refused."""
    words = "method must be one of GET, POST, PUT, PATCH, DELETE"
    for method in ("get", "CONNECT", "TRACE", "", "GET /x", "POST\r\n", None):
        check_refused(method, "/payment/bill", ("method", "an HTTP method in capitals", method), words)


NO_PATHS: Final = ["", "payment/bill", "https://evil.example/", "/a?b=c", "/a#b", "/a b", "/a\r\nX-B: 1", "/a\n", "/é"]
ABOVE: Final = ["/..", "/../admin", "/a/../../b", "/a/./b", "/%2e%2E/admin", "/a/..%2Fb", "/a\\b"]


def test_custom_path_stays_below_the_base_url() -> None:
    """A path must not be an address, leave the base path, or split the request."""
    for path in (*NO_PATHS, *ABOVE, "/\ud800", None, 5):
        rule = ("path", "a path below the base URL", path)
        check_refused("GET", path, rule, "path must be a path below the base URL")
