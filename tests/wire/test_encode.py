"""The codec turns a request into a call by the profile, and a call into bytes."""

from contextlib import nullcontext
from itertools import product
from types import MappingProxyType
from typing import Any, Final

import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from payasync.endpoints import CREATE_PAYMENT, custom_operation
from payasync.errors import InvalidArgumentError
from payasync.profile.profile import Profile
from payasync.profile.schema import Accept, Parameter
from payasync.resources.orders import PlaceOrder, QueryOrder
from payasync.resources.payments import CreatePayment, QueryPayment
from payasync.session import Session
from payasync.wire.call import Call, Reply, Send
from payasync.wire.encode import encode
from payasync.wire.request import Request
from payasync.wire.response import Response
from tests.building import CREDENTIALS, FULL, PROFILE, bare_call, codec
from tests.foreign import signatures
from tests.foreign.recorder import Recorder

ARGUMENT, OWN = "which is an argument: give it as such", "which is set by payasync itself"


FEW: Final = PlaceOrder(total_amt=1, currency="CAD")
INSIDE: Final = evolve(PROFILE, fields={**PROFILE.fields, "orders.place": {"total_amt": "sum.total"}}, signed=())


def test_extra_replaces_nothing() -> None:
    """`extra` must not hold the wire name of an argument or of a field that payasync sets, even if unused.

    The error names every such field. The object around a dotted name belongs to its argument.
    """
    cases: list[tuple[Profile, Request[Any], tuple[str, ...], str]] = [
        *(
            (PROFILE, request, (name,), ARGUMENT if name in {"totalAmt", "outTradeNo", "backTo"} else OWN)
            for request in (FULL["orders.place"], FEW)
            for name in ("totalAmt", "outTradeNo", "backTo", "merchantId", "nonceStr", "sign")
        ),
        (PROFILE, FULL["orders.place"], ("currency", "totalAmt"), ARGUMENT),
        (INSIDE, FULL["orders.place"], ("sum",), ARGUMENT),
        (PROFILE, FULL["payments.status"], ("tradeNo",), ARGUMENT),
        (PROFILE, FULL["refunds.status"], ("refundNo",), ARGUMENT),
    ]
    for (profile, request, names, why), value in product(cases, ("x", {"total": 1}, {"tax": 1}, 1)):
        with pytest.raises(InvalidArgumentError, match=f"extra must not hold {', '.join(names)}, {why}") as caught:
            codec(profile).call(evolve(request, extra={"deviceNo": "7", **dict.fromkeys(names, value)}))

        error = caught.value
        assert ("extra", f"without {', '.join(names)}", [*names]) == (error.field, error.rule, error.value)
        assert (request.operation.name, request.reference) == (error.operation, error.reference)


def test_constants_stand_beside_nested_arguments() -> None:
    """An object, or the one entry of a list, holds constants and arguments with dotted names; each call has its own."""
    constants = {"orders.place": {"sum": {"of": {"scale": 2}}}}
    names = {"orders.place": {"total_amt": "sum.of.value", "currency": "sum.unit"}}
    made = codec(evolve(PROFILE, constants=constants, fields={**PROFILE.fields, **names}, signed=()))
    order = PlaceOrder(total_amt=450, currency="CAD")
    first = made.call(order).fields["sum"]
    first["of"].clear()

    assert {"of": {"scale": 2, "value": 450}, "unit": "CAD"} == made.call(order).fields["sum"]
    assert {"orders.place": {"sum": {"of": {"scale": 2}}}} == constants

    listed, price = {"orders.place": {"items": [{"count": 1}]}}, {"orders.place": {"total_amt": "items.0.price"}}
    profile = evolve(PROFILE, constants=listed, fields={**PROFILE.fields, **price}, signed=())

    assert [{"count": 1, "price": 450}] == codec(profile).call(order).fields["items"]


def test_the_callers_field_wins_over_a_constant() -> None:
    """A field of the caller replaces a constant of the same name."""
    constants = {"*": {"currency": "USD", "v": 1}, "orders.place": {"sceneType": "H5", "w": 1}}
    request = evolve(FULL["orders.place"], extra={"v": 3, "w": 4})
    fields = codec(evolve(PROFILE, constants=constants)).call(request).fields

    assert {**codec().call(FULL["orders.place"]).fields, "v": 3, "w": 4} == fields


async def test_layer_that_changes_its_call() -> None:
    """If a layer changes the fields of one call in place, the next call is not affected."""
    constants: dict[str, dict[str, object]] = {"*": {"signType": "RSA", "v": 1}, "orders.query": {"v": 2}}
    profile = evolve(PROFILE, constants=constants, merchant=["orders.query"], signed=())

    async def layer(call: Call, send: Send) -> Reply:
        fields: Any = call.fields  # no layer should change them in their place
        if call.reference == "T1":
            fields.update(dict.fromkeys(fields, "spoilt"), more="spoilt")
        return await send(call)

    with Recorder() as service:
        async with Session(service.url, middleware=[layer], credentials=CREDENTIALS, profile=profile) as pay:
            await pay.orders.query("T1")
            await pay.orders.query("T2")
    first, second = map(signatures.fields, service.requests)

    assert {"spoilt"} == set(first.values())
    assert {"merchantId": "M1", "outTradeNo": "T2", "signType": "RSA", "v": 2} == second


def test_custom_copies_its_fields() -> None:
    """`custom` accepts any mapping and copies it, so that later changes of the caller are not sent."""
    inner = {"a": [1]}
    call = codec().custom(
        custom_operation("POST", "/x", read=False),
        MappingProxyType({"in": MappingProxyType(inner)}),
        bearer=False,
        signed=False,
    )
    inner["a"].append(2)

    assert b'{"in":{"a":[1]}}' == encode(call).body


def test_custom_signature_is_the_sessions_or_the_callers() -> None:
    """If the session signs a request, the caller must not give `sign` or `nonceStr`; otherwise the caller may."""
    for name in ["nonceStr", "sign"]:
        operation = custom_operation("POST", "/x", read=False)
        with pytest.raises(InvalidArgumentError, match=f"fields must not hold {name}, which is set by payasync itself"):
            codec().custom(operation, {name: "x"}, bearer=False, signed=True)

        assert {name: "x"} == codec().custom(operation, {name: "x"}, bearer=False, signed=False).fields


def accept(request: Request[Response], profile: Profile) -> None:
    """Encode a request for a service with this profile's `identifier` and `accept`."""
    codec(evolve(PROFILE, identifier=profile.identifier, accept=profile.accept)).call(request)


def order(**facts: Any) -> PlaceOrder:
    """Return an order with its required arguments and these."""
    given: dict[str, Any] = {"total_amt": 450, "currency": "CAD", **facts}
    return PlaceOrder(**given)


def test_a_bare_profile_accepts_what_the_document_shows() -> None:
    """Without a profile, each documented request with all its arguments is accepted."""
    for request in FULL.values():
        accept(request, Profile())


def test_numbers_match_the_pattern_as_a_whole() -> None:
    """A number must match the identifier pattern as a whole: a line end behind it is refused."""
    numbers = ("out_trade_no", "out_refund_no", "identifier", "subscription_id")
    judged = [(each, name) for each, name in product(FULL.values(), numbers) if hasattr(each, name)]
    for request, name in judged:
        with pytest.raises(InvalidArgumentError, match="identifier") as caught:
            accept(evolve(request, **{name: "T1\n"}), Profile())

        assert (name, "T1\n") == (caught.value.field, caught.value.value)
    assert 10 == len(judged)


@given(st.text(min_size=1).filter(str.strip) | st.from_regex(r"[A-Za-z0-9_-]{1,65}", fullmatch=True))
def test_numbers_are_judged_by_the_pattern_alone(number: str) -> None:
    """By default, a number is accepted if it has 1 to 64 letters, digits, `_` or `-`, and refused otherwise."""
    allowed = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
    fits = set(number) <= allowed and len(number) <= 64

    with nullcontext() if fits else pytest.raises(InvalidArgumentError):
        accept(QueryOrder(out_trade_no=number), Profile())


def test_pattern_of_the_profile() -> None:
    """The profile may give another pattern for numbers; the error names the pattern."""
    profile = Profile(identifier="A|AB")
    accept(QueryOrder(out_trade_no="AB"), profile)
    with pytest.raises(InvalidArgumentError, match=r"matches A\|AB") as caught:
        accept(QueryOrder(out_trade_no="ABC"), profile)

    assert ("out_trade_no", "ABC") == (caught.value.field, caught.value.value)


PAID: Final = CreatePayment(amount=5, currency="CAD")


def test_what_the_service_does_not_take_is_refused_here() -> None:
    """A value outside the profile's `accept` is refused; the error has the field, the rule and the value."""
    for limits, good, bad, field, rule in [
        (Accept(currency=("CAD", "USD")), order(), order(currency="EUR"), "currency", "one of CAD, USD"),
        (Accept(scene_type=("JSAPI",)), order(), order(scene_type="H5"), "scene_type", "one of JSAPI"),
        (Accept(amount=(100, 500)), order(total_amt=100), order(total_amt=99), "total_amt", "from 100 to 500"),
        (Accept(amount=(100, 500)), order(total_amt=500), order(total_amt=501), "total_amt", "from 100 to 500"),
        (Accept(amount=(201, 500)), order(), FULL["refunds.create"], "refund_amt", "from 201 to 500"),
        (Accept(length={"subject": 3}), order(subject="tea"), order(subject="milk"), "subject", "at most 3 characters"),
        (Accept(length={"out_trade_no": 1}), order(), order(out_trade_no="T1"), "out_trade_no", "at most 1 characters"),
    ]:
        profile = Profile(accept=limits)
        accept(good, profile)
        with pytest.raises(InvalidArgumentError, match=rule) as caught:
            accept(bad, profile)

        assert field == caught.value.field
        assert rule in str(caught.value.rule)
        assert (getattr(bad, field), bad.operation.name) == (caught.value.value, caught.value.operation)


def test_required_by_this_service() -> None:
    """A profile may require, for one operation, an optional argument or a field of `extra`."""
    for required, good, bad, where in [
        (("subject", "notify_url"), order(subject="", notify_url="https://a.example"), order(subject="tea"), ""),
        # `extra` has wire names: what stands there under the name of an argument is another field.
        (("notify_url",), PAID, order(extra={"notify_url": "https://a.example"}), ""),
        # A field that the document does not show is given where it stands in `extra`, whatever it holds.
        (("deviceNo",), order(extra={"deviceNo": None}), order(extra={"device": "7"}), " in extra"),
        # A wire name is that of a field, and of nothing else that a request has.
        (("reference",), order(extra={"reference": "x"}), order(out_trade_no="T1"), " in extra"),
        (("answer",), order(extra={"answer": "x"}), order(out_trade_no="T1"), " in extra"),
    ]:
        profile, missing = Profile(accept=Accept(required={"orders.place": required})), required[-1]
        accept(good, profile)
        accept(PAID, profile)
        with pytest.raises(
            InvalidArgumentError, match=f"{missing} is missing{where}: this service requires it"
        ) as caught:
            accept(bad, profile)

        assert (missing, "required by this service") == (caught.value.field, caught.value.rule)


def test_identifier_in_the_path_is_quoted() -> None:
    """An identifier in a path is percent-encoded, so that it stays one segment."""
    for identifier, expected in [
        ("a/b", "a%2Fb"),
        ("a?b#c", "a%3Fb%23c"),
        ("a b", "a%20b"),
        ("é", "%C3%A9"),
        ("..a", "..a"),
    ]:
        profile = Profile(payment_status=Parameter("no", "path"), identifier=".*")
        call = codec(profile).call(QueryPayment(identifier=identifier))

        assert f"/payment/status/{expected}" == encode(call).path


def test_identifier_cannot_leave_its_place() -> None:
    """An identifier such as `..`, or with a line end in a header, is refused even if the pattern allows it."""
    cases: list[tuple[Any, str, str]] = [
        ("path", ".", "no step between folders"),
        ("path", "..", "no step between folders"),
        ("header", "a\r\nX-B: c", "visible ASCII"),
        ("header", "é", "visible ASCII"),
    ]
    for place, identifier, why in cases:
        profile = Profile(payment_status=Parameter("no", place), identifier="(?s:.*)")
        with pytest.raises(InvalidArgumentError, match=why) as caught:
            encode(codec(profile).call(QueryPayment(identifier=identifier)))

        assert ("identifier", identifier) == (caught.value.field, caught.value.value)


def test_query_holds_texts_and_integers() -> None:
    """A query may hold only texts and integers; any other value is refused, not converted."""
    for value in [None, True, 1.5, [1], {"a": 1}]:
        call = bare_call(custom_operation("GET", "/payment/bill", read=True), fields={"a": value})
        with pytest.raises(InvalidArgumentError, match="a must be a text or an integer") as caught:
            encode(call)

        assert "a" == caught.value.field


def test_body_is_an_object_even_without_fields() -> None:
    """A POST without fields sends `{}`."""
    assert b"{}" == encode(bare_call(CREATE_PAYMENT)).body


def test_amounts_are_sent_exactly() -> None:
    """The largest amount is sent with all its digits."""
    call = codec().call(CreatePayment(amount=2**53 - 1, currency="USD"))

    assert b'{"amount":9007199254740991,"currency":"USD"}' == encode(call).body


@frozen(kw_only=True)
class OrderInDollars(PlaceOrder):
    """A merchant's own request, with slots and a default of its own."""

    currency: str = "CAD"


def test_request_of_ones_own() -> None:
    """A user's subclass of a request class is encoded like its base, also with slots."""

    class Query(QueryOrder):
        """As ours."""

    assert codec().call(FULL["orders.query"]).fields == codec().call(Query(out_trade_no="T1")).fields
    assert codec().call(FEW).fields == codec().call(OrderInDollars(total_amt=1)).fields
