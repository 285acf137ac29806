from typing import Any

import attrs
import pytest

from payasync.errors import InvalidArgumentError
from payasync.operations import OPERATIONS, Auth, Kind, Operation, custom, names

TABLE = [
    ("payments.create", "POST", "/v1/payments", Auth.BEARER, Kind.UNKEYED, None),
    ("orders.place", "POST", "/payment/unifiedorder", Auth.SIGNED, Kind.KEYED, "out_trade_no"),
    ("orders.query", "POST", "/payment/orderquery", Auth.SIGNED, Kind.READ, "out_trade_no"),
    ("orders.close", "POST", "/payment/closeorder", Auth.SIGNED, Kind.KEYED, "out_trade_no"),
    ("refunds.create", "POST", "/payment/refund", Auth.SIGNED, Kind.KEYED, "out_refund_no"),
    ("payments.status", "GET", "/payment/status", Auth.NOT_SHOWN, Kind.READ, "identifier"),
    ("refunds.status", "GET", "/payment/refund/status", Auth.NOT_SHOWN, Kind.READ, "identifier"),
    ("subscriptions.create", "POST", "/subscriptions/create", Auth.NOT_SHOWN, Kind.UNKEYED, None),
    ("subscriptions.update", "POST", "/subscriptions/update", Auth.NOT_SHOWN, Kind.UNKEYED, "subscription_id"),
    ("subscriptions.cancel", "POST", "/subscriptions/cancel", Auth.NOT_SHOWN, Kind.UNKEYED, "subscription_id"),
]


def test_operations_are_the_documents_table() -> None:
    """The ten endpoints are those of the service's document (Endpoints, Authentication), in its order."""
    assert TABLE == [attrs.astuple(operation) for operation in OPERATIONS]


@pytest.mark.parametrize(
    ("auth", "expected"),
    [
        (Auth.BEARER, ("payments.create",)),
        (Auth.SIGNED, ("orders.place", "orders.query", "orders.close", "refunds.create")),
    ],
)
def test_names_by_authentication(auth: Auth, expected: tuple[str, ...]) -> None:
    """Bearer is stated for endpoint 1, a signature for endpoints 2 to 5 (spec: Authentication, 2 and 3)."""
    assert expected == names(auth)


def test_every_operation_is_authenticated_in_one_way() -> None:
    """No operation is in two lists, and none is in no list."""
    assert sorted(operation.name for operation in OPERATIONS) == sorted(name for auth in Auth for name in names(auth))


@pytest.mark.parametrize(
    ("method", "expected"), [("POST", True), ("PUT", True), ("PATCH", True), ("GET", False), ("DELETE", False)]
)
def test_fields_travel_in_the_body_where_there_is_one(method: str, *, expected: bool) -> None:
    """The fields of a GET stand in its query, those of a POST in its body (spec: Endpoints, 7)."""
    assert expected == Operation("x", method, "/x", Auth.NOT_SHOWN, Kind.READ).has_body


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize(("read", "kind"), [(True, Kind.READ), (False, Kind.UNKEYED)])
def test_custom_endpoint_is_a_write_unless_the_caller_says(method: str, *, read: bool, kind: Kind) -> None:
    """Of an endpoint that the document does not show, nothing is known: it is never sent twice unless it reads."""
    expected = Operation(f"{method} /payment/bill", method, "/payment/bill", Auth.NOT_SHOWN, kind)

    assert expected == custom(method, "/payment/bill", read=read)


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
