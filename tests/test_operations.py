import attrs
import pytest

from payasync.operations import OPERATIONS, Auth, Kind, Operation, names

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
