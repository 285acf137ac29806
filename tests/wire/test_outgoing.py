from typing import Any

import pytest

from payasync.endpoints import CREATE_PAYMENT, custom
from payasync.errors import InvalidArgumentError
from payasync.profile.profile import Profile
from payasync.profile.schema import Parameter
from payasync.resources.payments import CreatePayment, QueryPayment
from payasync.wire.encode import encode
from tests.building import bare_call, codec


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [("a/b", "a%2Fb"), ("a?b#c", "a%3Fb%23c"), ("a b", "a%20b"), ("é", "%C3%A9"), ("..a", "..a")],
)
def test_identifier_in_the_path_is_quoted(identifier: str, expected: str) -> None:
    """An identifier stays one step of the path, whatever the profile's pattern lets through."""
    profile = Profile(payment_status=Parameter("no", "path"), identifier=".*")
    call = codec(profile).call(QueryPayment(identifier=identifier))

    assert f"/payment/status/{expected}" == encode(call).path


@pytest.mark.parametrize(
    ("place", "identifier", "why"),
    [
        ("path", ".", "no step between folders"),
        ("path", "..", "no step between folders"),
        ("header", "a\r\nX-B: c", "visible ASCII"),
        ("header", "é", "visible ASCII"),
    ],
)
def test_identifier_cannot_leave_its_place(place: Any, identifier: str, why: str) -> None:
    """A pattern that lets too much through cannot turn an identifier into another path or header."""
    profile = Profile(payment_status=Parameter("no", place), identifier="(?s:.*)")
    with pytest.raises(InvalidArgumentError, match=why) as caught:
        encode(codec(profile).call(QueryPayment(identifier=identifier)))

    assert ("identifier", identifier) == (caught.value.field, caught.value.value)


@pytest.mark.parametrize("value", [None, True, 1.5, [1], {"a": 1}])
def test_query_holds_texts_and_integers(value: object) -> None:
    """Nothing else has one form in a query: it is refused, not converted."""
    call = bare_call(custom("GET", "/payment/bill", read=True), fields={"a": value})
    with pytest.raises(InvalidArgumentError, match="a must be a text or an integer") as caught:
        encode(call)

    assert "a" == caught.value.field


def test_body_is_an_object_even_without_fields() -> None:
    """A POST without fields sends an empty object, which is JSON."""
    assert b"{}" == encode(bare_call(CREATE_PAYMENT)).body


def test_amounts_are_sent_exactly() -> None:
    """The greatest amount arrives digit by digit."""
    call = codec().call(CreatePayment(amount=2**53 - 1, currency="USD"))

    assert b'{"amount":9007199254740991,"currency":"USD"}' == encode(call).body
