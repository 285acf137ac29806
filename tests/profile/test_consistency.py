"""Contradictions in a profile are refused when the profile or the session is made, before any call."""

import logging
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import attrs
import pytest
from attrs import evolve

from payasync import Credentials, Secret, Session, SortedPairs, Template
from payasync.endpoints import ARGUMENTS
from payasync.notifications import Receiver, SqliteInbox
from payasync.profile.profile import Profile
from payasync.profile.schema import (
    Accept,
    AnswerShape,
    Auth,
    Endpoint,
    HttpCodes,
    Idempotency,
    NotificationShape,
    Parameter,
    ResultCodes,
    SandboxShape,
    SignedHeader,
    States,
)
from tests.foreign import signatures
from tests.profile.refusal import refusal, refused

DOCUMENTED: Final = [(operation, each) for operation, given in ARGUMENTS.items() for each in given if each.wire]
ALWAYS_GIVEN: Final = [(operation, each.name, each.wire) for operation, each in DOCUMENTED if each.required]
MAY_BE_LEFT_OUT: Final = [(operation, each.wire) for operation, each in DOCUMENTED if not each.required]


def never_sent(operation: str, name: str, argument: str) -> tuple[str, str]:
    """Return the key and the error of a constant that no call would send."""
    key = f"constants.{operation}.{name}"
    return key, f"{key} is the argument {argument}, which every call gives: the constant would never be sent"


def test_a_constant_is_no_required_argument() -> None:
    """A constant with the wire name of a required argument is refused, because it would never be sent."""
    for operation, argument, wire in ALWAYS_GIVEN:
        assert never_sent(operation, wire, argument) == refusal(Profile, constants={operation: {"v": 1, wire: "x"}})


NESTED: Final = {"orders.place": {"total_amt": "sum.of.value", "currency": "sum.unit"}}
OF_TWO: Final = "which is also the wire name of"
IN_PATH: Final = {"refund_status": Parameter("no", "path")}
DOTS: Final = "stands beside 'sum.of.value', which nests: write an object, without quotes around the dotted name"
ONE_CURRENCY: Final = "is empty: say in accept.currency which one currency the service has"
PRICES: Final = {"subscriptions.create": {"amount": "plan.amount"}}
READ: Final[dict[str, Any]] = {
    "answer": AnswerShape(code="code", ok=[0], message="meta.text", data="outer.inner", signature="outer.seal"),
    "notification": NotificationShape(verification="body", data="event", signature="event.mac"),
}


def path_of(operation: str, path: str, **more: Any) -> dict[str, Any]:
    """Return a profile's part that gives an operation a path."""
    return {"endpoints": {operation: Endpoint(path=path, **more)}}


def empty(operation: str, argument: str) -> dict[str, Any]:
    """Return a profile's part that gives an argument an empty name."""
    return {"fields": {operation: {argument: ""}}}


def keyed(**given: Any) -> dict[str, Any]:
    """Return a profile's part about an idempotency key."""
    return {"idempotency": Idempotency(**given)}


def same(key: str, other: str) -> tuple[str, str]:
    """Return the key and the error of a header that two keys give."""
    return key, f"{key} and {other} are the same header: keep one"


CONTRADICTIONS: Final[list[tuple[str, str, dict[str, Any]]]] = [
    # Two arguments of one request must not share a wire name, because one would replace the other.
    ("fields.return_url", OF_TWO, {"fields": {"return_url": "notifyUrl"}}),
    ("fields.return_url", f"{OF_TWO} out_trade_no in ", {"fields": {"return_url": "outTradeNo"}}),
    ("fields.frequency", f"is 'a', {OF_TWO} start_date in ", {"fields": {"frequency": "a", "start_date": "a"}}),
    ("fields.subscription_id", f"{OF_TWO} customer", {"fields": {"subscription_id": "id", "customer": "id"}}),
    ("fields.subscription_id", f"{OF_TWO} amount", {"fields": {"subscription_amount": "id", "subscription_id": "id"}}),
    # The error says where one operation has names of its own.
    (
        "fields.currency",
        "in one object with the wire name 'amount' of amount in payments.create: one would replace the other. Give pay",
        {"fields": {"currency": "amount.currency"}},
    ),
    # If requests have amounts in the major unit, all that is received has it, and no table may say it again.
    *(
        (f"{table}.amounts", 'must be left out where amount_unit is "major"', {"amount_unit": "major", table: shape})
        for table, shape in (
            ("answer", AnswerShape(amounts="major")),
            ("notification", NotificationShape(amounts="major")),
        )
    ),
    # The time of a delivery is judged, and that of the event is not, so one path cannot be both.
    (
        "notification.event_time",
        "is 'at', as notification.time is, which is new in each delivery",
        {"notification": NotificationShape(time="at", event_time="at")},
    ),
    # An argument stands once in a path: in braces, or at the end if there are no braces.
    ("refund_status.place", "beside {identifier}", path_of("refunds.status", "/r/{identifier}") | IN_PATH),
    ("refund_status.place", "beside {merchant_id}", path_of("refunds.status", "/{merchant_id}/r") | IN_PATH),
    (
        "endpoints.refunds.status.path",
        "has {identifier} twice",
        path_of("refunds.status", "/r/{identifier}/{identifier}"),
    ),
    (
        "endpoints.orders.query.place",
        "must not be 'path' beside {out_trade_no} in endpoints.orders.query.path",
        path_of("orders.query", "/o/{out_trade_no}", place="path"),
    ),
    # A constant must not have a wire name that the profile gives to a required argument.
    *(
        (*never_sent(operation, "back", argument), {"constants": {operation: {"back": 1}}, **cast("Any", further)})
        for further, argument, operation in (
            ({"fields": {"subscription_id": "back"}}, "subscription_id", "subscriptions.cancel"),
            ({"fields": {"customer": "back"}}, "customer", "subscriptions.create"),
            ({"payment_status": Parameter("back", "path")}, "identifier", "payments.status"),
            ({"refund_status": Parameter("back", "header")}, "identifier", "refunds.status"),
        )
    ),
    # It would not stand in the object of dotted names.
    *(
        (f"constants.{each}.sum.kind", DOTS, {"constants": {each: {"sum.kind": 1}}, "fields": NESTED, "signed": ()})
        for each in ("*", "orders.place")
    ),
    # A dotted name can put a value into the one entry of a list, and into no other. A request is no list.
    *(
        (
            f"fields.orders.place.{argument}",
            "in a request, a list has one entry, with the number 0",
            {"fields": {"orders.place": {"out_trade_no": number, "total_amt": total}}, "signed": ()},
        )
        for number, total, argument in (
            ("units.0.no", "units.no", "total_amt"),
            ("units.1.no", "no", "out_trade_no"),
            ("units.0.no", "units.1.sum", "total_amt"),
        )
    ),
    (
        "fields.orders.place.total_amt",
        "must be a name, or several with a dot between them, not '0.value'",
        {"fields": {"orders.place": {"total_amt": "0.value"}}, "signed": ()},
    ),
    # Only the total of a refund, and the currency of a service that has one, can be left out of a request.
    ("fields.refunds.create.refund_amt", "must not be empty", empty("refunds.create", "refund_amt")),
    ("fields.orders.close.out_trade_no", "must not be empty", empty("orders.close", "out_trade_no")),
    (
        "fields.refunds.create.total_amt",
        "must not be empty, because the path has {total_amt}",
        empty("refunds.create", "total_amt") | path_of("refunds.create", "/{total_amt}"),
    ),
    ("fields.orders.place.currency", ONE_CURRENCY, empty("orders.place", "currency")),
    (
        "fields.payments.create.currency",
        ONE_CURRENCY,
        empty("payments.create", "currency") | {"accept": Accept(currency=("CAD", "USD"))},
    ),
    # Two names of headers in one table that differ only in case are the same header.
    (*same("headers.x-same", "headers.X-Same"), {"headers": {"X-Same": "1", "x-same": "2"}}),
    (*same("auth.headers.AUTHORIZATION", "auth.header"), {"auth": Auth(headers={"AUTHORIZATION": "{basic}"})}),
    (
        *same("fields.out_refund_no", "fields.out_trade_no"),
        {
            "endpoints": {"refunds.create": Endpoint(place="header")},
            "fields": {"out_trade_no": "X-Same", "out_refund_no": "x-same"},
        },
    ),
    # An idempotency key stands in a header or in a field, in which nothing else stands.
    ("idempotency.field", "and idempotency.header both carry the key", keyed(header="Key", field="key")),
    ("idempotency.lifetime", "has no effect without idempotency.header or idempotency.field", keyed(lifetime=60.0)),
    ("idempotency.field", "must be a name without a dot, not 'a.b'", keyed(field="a.b")),
    *(
        (
            "idempotency.field",
            "which is another field of a request already: one would replace the other",
            {**keyed(field=name), **cast("Any", further)},
        )
        for name, further in (
            *((name, {}) for name in ("totalAmt", "sign", "nonceStr", "merchantId")),
            ("theirs", {"fields": {"total_amt": "theirs"}}),
            ("theirs", {"fields": {"nonce": "theirs"}}),
            ("plan", {"fields": PRICES}),
            ("why", {"constants": {"orders.close": {"why": 1}}}),
        )
    ),
    # The codes and constants of the sandbox must not change what the rest of the profile reads.
    ("sandbox.codes.0", "allowed are absent, already_paid, ", READ | {"sandbox": SandboxShape(codes={"0": "X"})}),
    ("sandbox.codes.absent", "must not be 0, which means su", READ | {"sandbox": SandboxShape(codes={"absent": 0})}),
    *(
        (
            f"sandbox.constants.{name}",
            f"stands where {place} is read: keep one of the two",
            READ | {"sandbox": SandboxShape(constants={name: 1})},
        )
        for name, place in (
            *(("code", "answer.code"), ("text", "answer.message"), ("inner", "answer.data")),
            *(("seal", "answer.signature"), ("event", "notification.data"), ("mac", "notification.signature")),
        )
    ),
    # A status must not be in both lists. The default of `http.not_executed` holds 422.
    (
        "http.duplicate",
        "http.not_executed and http.duplicate both hold 422: keep it in the one that it means",
        {"http": HttpCodes(duplicate=(409, 422))},
    ),
]


def test_contradictions() -> None:
    """If two keys of a profile contradict each other, it is refused; the error names the key, and says why."""
    for key, words, parts in CONTRADICTIONS:
        found, error = refusal(Profile, **parts)

        assert (key, True) == (found, words in error), error


def test_neighbours_of_contradictions() -> None:
    """What stands beside a contradiction is accepted."""
    alone = Profile(fields={"total_amt": "0"})
    moved = Profile(http=HttpCodes(duplicate=(409, 422), not_executed=(400,)))
    conflict = Profile(http=HttpCodes(not_executed=(400, 409)))

    assert ({"total_amt": "0"}, (409, 422)) == (alone.fields, moved.http.duplicate)
    assert 409 in conflict.http.not_executed


def test_a_dotted_name_that_the_signature_refuses_or_omits() -> None:
    """Sorted pairs must sign the objects of dotted names; without an amount or a number inside, they may omit them."""
    cases: list[tuple[Any, str, str, str]] = [
        ("refuse", "refunds.create", "refund_amt", 'set signature.nested = "json", or give'),
        ("refuse", "orders.place", "subject", 'set signature.nested = "json" or "omit", or give'),
        ("omit", "refunds.create", "refund_amt", 'set signature.nested = "json", or give'),
        ("omit", "orders.query", "out_trade_no", 'set signature.nested = "json", or give'),
        ("omit", "orders.place", "currency", 'set signature.nested = "json", or give'),
        ("omit", "payments.create", "amount", 'set signature.nested = "json", or give'),
        ("omit", "orders.place", "total_amt", 'set signature.nested = "json", or give'),
        ("omit", "refunds.create", "out_refund_no", 'set signature.nested = "json", or give'),
        ("omit", "subscriptions.update", "subscription_id", 'set signature.nested = "json", or give'),
    ]
    for nested, operation, argument, allowed in cases:
        scheme = SortedPairs(algorithm="hmac-sha256", nested=nested)
        key, words = refusal(Profile, fields={operation: {argument: "a.b"}}, signature=scheme, signed=(operation,))

        assert f"fields.{operation}.{argument}" == key
        assert f"is 'a.b', and signature.nested = \"{nested}\" " in words
        assert allowed in words


def test_a_dotted_name_that_can_be_signed() -> None:
    """A dotted name may stand in an object that is signed, or where nothing needs to be signed."""
    cases: list[tuple[Any, tuple[str, ...], str]] = [
        ("json", ("orders.place",), "total_amt"),
        ("omit", ("orders.place",), "subject"),
        ("refuse", (), "total_amt"),
    ]
    for nested, signed, argument in cases:
        fields = {"orders.place": {argument: "a.b"}}
        scheme = SortedPairs(algorithm="hmac-sha256", nested=nested)

        assert fields == Profile(fields=fields, signature=scheme, signed=signed).fields


def test_one_name_in_two_operations() -> None:
    """Arguments that never stand in the same request may share a wire name. Empty names do not clash."""
    fields = {"return_url": "a", "frequency": "a", "start_date": "", "customer": "", "subscription_amount": "amount"}

    assert fields == Profile(fields=fields).fields


def test_a_constant_may_be_named_as_what_is_not_always_there() -> None:
    """A constant may share its name with an optional argument, or with an argument of another operation."""
    cases: list[tuple[Mapping[str, Mapping[str, Any]], Mapping[str, Any]]] = [
        # A constant may stand in for an optional argument, such as the one scene type of a merchant.
        *(({operation: {wire: "x"}}, {}) for operation, wire in MAY_BE_LEFT_OUT),
        ({"orders.query": {"totalAmt": 1}}, {}),
        ({"*": {"currency": "CAD"}}, {}),
        ({"payments.status": {"outTradeNo": "T1"}}, {"payment_status": Parameter("no")}),
        ({"refunds.status": {"no": 1}}, {"payment_status": Parameter("no")}),
        ({"orders.query": {"back": 1}}, {"fields": {"return_url": "back"}}),
        ({"subscriptions.update": {"back": 1}}, {"fields": {"customer": "back"}}),
    ]
    for constants, further in cases:
        assert constants == Profile(constants=constants, **further).constants


def test_a_constant_may_share_an_object_with_arguments() -> None:
    """An object of constants may hold other members than the arguments with dotted names."""
    for everywhere in ["*", "orders.place"]:
        constants = {everywhere: {"sum": {"of": {"scale": 2}, "kind": "gross"}}}

        assert constants == Profile(constants=constants, fields=NESTED, signed=()).constants


IN_PLACE: Final[Mapping[str, tuple[object, ...]]] = {
    "sum.of.value": ("x", {"of": 1}, {"of": {"value": 1}}, {"of": {"value": {"scale": 2}}}),
    "sum.0.value": ("x", {"kind": "gross"}, [], [{}, {}], [1], [{"value": 1}]),
}


def test_a_constant_stands_in_place_of_no_argument() -> None:
    """A constant must not have the place of an argument with a dotted name, or of what is around it."""
    for name, value in [(name, value) for name, values in IN_PLACE.items() for value in values]:
        for everywhere in ["*", "orders.place"]:
            assert never_sent(everywhere, name, "total_amt") == refusal(
                Profile, constants={everywhere: {"sum": value}}, fields={"orders.place": {"total_amt": name}}, signed=()
            )


HEADERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "headers.{}": lambda name: {"headers": {name: "1"}},
    "auth.header": lambda name: {"auth": Auth(header=name)},
    "auth.headers.{}": lambda name: {"auth": Auth(header="X-Key", headers={name: "{basic}"})},
    "signature.header": lambda name: {"signature": Template(text="{body}", header=name)},
    "signature.headers.{}": lambda name: {"signature": Template(text="{body}", header="X-S", headers={name: "v1"})},
    "payment_status.name": lambda name: {"payment_status": Parameter(name, "header")},
    "fields.out_trade_no": lambda name: {
        "endpoints": {"orders.query": Endpoint(place="header")},
        "fields": {"out_trade_no": name},
    },
    "idempotency.header": lambda name: {"idempotency": Idempotency(header=name)},
}
"""The keys that give a header its name, in the order in which they are checked, each with a profile's parts."""
OF_ONE_REQUEST: Final = [
    (one, other)
    for one, other in combinations(HEADERS, 2)
    if one.partition(".")[0] != other.partition(".")[0]
    and (one, other) != ("payment_status.name", "fields.out_trade_no")
]


def test_a_header_carries_one_thing() -> None:
    """Two things in one header of a request are refused, also if the names differ in case."""
    for one, other in OF_ONE_REQUEST:
        parts: dict[str, Any] = {"bearer": ("orders.query",), **HEADERS[one]("X-Same"), **HEADERS[other]("x-same")}
        key = other.format("x-same")

        assert (key, f"{key} and {one.format('X-Same')} are the same header: keep one") == refusal(Profile, **parts)


def test_headers_of_different_requests() -> None:
    """What stands in different requests, in the query or in the path may have the name of a header."""
    parts: dict[str, Any] = HEADERS["fields.out_trade_no"]("X-No") | HEADERS["payment_status.name"]("X-No")
    signed = Profile(
        refund_status=Parameter("Host"), signature=Template(text="{body}", header="Authorization"), **parts
    )
    in_path = {"orders.close": Endpoint(path="/{out_trade_no}", place="header")}
    closing = Profile(endpoints=in_path, headers={"outTradeNo": "1"})

    assert ("X-No", in_path) == (signed.fields["out_trade_no"], closing.endpoints)


SET_BY_PAYASYNC: Final = (
    *("Accept-Encoding", "Authorization", "Connection", "Content-Encoding", "Content-Length", "content-type"),
    *("Cookie", "Expect", "HOST", "Keep-Alive", "Proxy-Authorization", "proxy-connection", "TE", "Trailer"),
    *("Transfer-Encoding", "Upgrade", "Accept", "User-Agent"),
)
MAY_BE_GIVEN: Final = [
    *(("headers.{}", name) for name in ("Accept", "User-Agent")),
    *((key, "Authorization") for key in ("auth.header", "auth.headers.{}", "signature.header", "signature.headers.{}")),
]


def test_a_header_of_payasync_that_a_profile_may_give() -> None:
    """A profile may give what each request accepts and who sends it, and the header of its key."""
    for key, name in MAY_BE_GIVEN:
        parts: dict[str, Any] = {"bearer": (), **HEADERS[key](name)}

        assert parts.items() <= attrs.asdict(Profile(**parts), recurse=False).items()


def test_a_header_of_payasync_carries_nothing_else() -> None:
    """Any other header that payasync sets, because it frames or authenticates the request, is refused."""
    for key in [key for key in HEADERS if not key.startswith("signature")]:
        names = [name for name in SET_BY_PAYASYNC if (key, name) not in MAY_BE_GIVEN]
        expected = [
            (key.format(name), f"{key.format(name)} must not be {name}, because payasync sets it") for name in names
        ]

        assert expected == [refusal(Profile, **HEADERS[key](name)) for name in names]


def test_a_header_has_the_name_of_one() -> None:
    """A name that could split the request is refused."""
    for key in [key for key in HEADERS if not key.startswith(("signature", "headers"))]:
        for name in ["X Key", "Zwölf", "X-A:"]:
            field = key.format(name)

            assert (field, f"{field} must be the name of a header, not {name!r}") == refusal(
                Profile, **HEADERS[key](name)
            )


PLACEHOLDERS: Final = "{secret_key} {public_key} {merchant_id} {basic} {basic_user}"


def test_a_key_is_named_and_never_given() -> None:
    """A value without a placeholder, or with an unknown one, is refused; the error lists all, and does not show it."""
    for key in ["auth.value", "auth.headers.X-Key"]:
        for value in ["", "sk_canary", "Bearer sk_canary", "Bearer {sk_canary}", "{secret}", "{}"]:
            why = "and never a key itself. A header without any of them belongs in headers"
            given: Any = {"value": value} if key == "auth.value" else {"headers": {"X-Key": value}}

            assert (key, f"{key} must hold one of {PLACEHOLDERS}, {why}") == refusal(Auth, **given)


def test_braces_in_a_header_are_those_of_a_placeholder() -> None:
    """A brace that belongs to no placeholder is refused."""
    for value in ["{{secret_key}", "{secret_key}}", "{ {secret_key}", "{secret-key} {basic}"]:
        assert ("auth.value", f"auth.value has a brace without a name; allowed are {PLACEHOLDERS}") == refusal(
            Auth, value=value
        )


def test_headers_with_keys_are_ascii() -> None:
    """A value that could split the request is refused."""
    for value in [" {secret_key}", "{secret_key}\r\nX-Evil: 1", "clé {secret_key}"]:
        assert ("auth.value", "auth.value must be of visible ASCII characters") == refusal(Auth, value=value)


def test_a_required_name_that_is_nearly_an_argument() -> None:
    """If a required name resembles an argument, it is refused; the error suggests the argument and lists all."""
    for operation, name, meant in [
        ("orders.place", "subjct", "subject"),
        ("orders.place", "notifyUrl", "notify_url"),
        ("orders.place", "notifyURL", "notify_url"),
        ("orders.place", "notify_ulr", "notify_url"),
        ("orders.place", "backTo", "return_url"),
        ("payments.create", "curency", "currency"),
        ("refunds.create", "refundDesc", "refund_desc"),
        ("payments.status", "orderNo", "identifier"),
        ("subscriptions.create", "startDate", "start_date"),
    ]:
        profile = {"fields": {"return_url": "backTo"}, "payment_status": Parameter("orderNo")}
        field, words = refusal(Profile, accept=Accept(required={operation: [name]}), **profile)

        assert f"accept.required.{operation}" == field
        assert words.startswith(f"{field} must not hold {name!r}: did you mean {meant}? Arguments are ")
        assert words.endswith("; any other name is that of a field in extra")


def test_any_argument_and_any_other_field_can_be_required() -> None:
    """`accept.required` may hold any argument, and names that the document does not show."""
    for operation in ARGUMENTS:
        others = ["deviceNo", "device_no", "terminal", "subjectId", "bodyType", "notifyMail", "x"]
        accept = Accept(required={operation: [*others, *(each.name for each in ARGUMENTS[operation])]})

        assert accept == Profile(accept=accept).accept


def test_what_no_caller_gives_is_not_required_of_him() -> None:
    """A field that payasync or a constant sets cannot be required of the caller."""
    for name in ["sign", "nonceStr", "merchantId", "version", "tradeType", "key"]:
        constants = {"*": {"version": 2}, "orders.place": {"tradeType": "WEB"}}
        words = f"accept.required.orders.place must not hold {name!r}: payasync sets it, or a constant does"

        assert ("accept.required.orders.place", words) == refusal(
            Profile,
            constants=constants,
            idempotency=Idempotency(field="key"),
            accept=Accept(required={"orders.place": ["subject", name]}),
        )


def test_each_date_is_written_in_its_own_way() -> None:
    """A date format that writes two dates alike is refused."""
    for form in ["hello", "Y-m-d", "%%Y-%%m-%%d", "%H:%M", " ", "\ud800%Y", "%Y\0"]:
        words = (
            f"formats.start_date must be a format that writes any two dates differently, as %Y-%m-%d does, not {form!r}"
        )

        assert ("formats.start_date", words) == refusal(Profile, formats={"start_date": form})


def test_dates_in_any_form() -> None:
    """Any format that tells dates apart is accepted; an empty format leaves the point open."""
    for form in ["", "%Y-%m-%d", "%d.%m.%Y", "%x", "on %A", "%j", "%m/%y", "%G", "%Y-%m-%dT00:00:00Z"]:
        assert {"start_date": form} == Profile(formats={"start_date": form}).formats


class Later:
    """An object whose call returns a coroutine."""

    async def __call__(self) -> None:
        """Verify nothing."""


LATER: Final = Later().__call__


OWN_SCHEME: Final[Any] = SimpleNamespace(sign=LATER, verify=bool)


def test_a_scheme_verifies_immediately() -> None:
    """A scheme whose `verify` is a coroutine function is refused; its `sign` may be one."""
    for verify in [LATER, partial(LATER), Later()]:
        field, words = refusal(Profile, signature=SimpleNamespace(sign=LATER, verify=verify))

        assert "signature" == field
        assert words.startswith("signature.verify must be a plain function, not a coroutine function, because nothing")
        assert Profile(signature=OWN_SCHEME).signature is OWN_SCHEME


def test_what_is_not_said_yet_is_no_contradiction() -> None:
    """An incomplete profile is accepted, because it may be written piece by piece."""
    cases: list[Mapping[str, Any]] = [
        {"states": States(order={"paid": ("PAID",)})},
        {"codes": ResultCodes(absent=("NONE",))},
        {"answer": AnswerShape(ok=("OK",))},
        {"fields": {"start_date": "from"}},
        {"formats": {"start_date": "%Y"}},
        {"notification": NotificationShape(nack_status=200)},
        {"notification": NotificationShape(ack_body="OK", nack_body="OK")},
    ]
    for parts in cases:
        profile = Profile(**parts)

        assert parts == {key: getattr(profile, key) for key in parts}


SVIX: Final = {"signature": "svix-signature", "timestamp": "svix-timestamp", "nonce": "svix-id"}
TOGETHER: Final = "belong together: give both, or neither"
SIGNED_HEADERS: Final[list[tuple[str, dict[str, str], str, str]]] = [
    # The signed text of a header has the body, and exactly the values that stand in headers.
    ("header", {"text": "{timestamp}.{body}"}, "timestamp", TOGETHER),
    ("header", {"timestamp": "T"}, "timestamp", TOGETHER),
    ("header", {"nonce": "N"}, "nonce", TOGETHER),
    ("header", {"text": "POST"}, "text", "must hold {body}"),
    ("header", {"text": "{body}{url}"}, "text", "has {url}, which is unknown; allowed are {timestamp} {nonce} {merch"),
    ("header", {"text": "{body}{"}, "text", "has a brace without a name"),
    ("header", {"timestamp": "s", "text": "{timestamp}{body}"}, "signature", "each value has a place of its own"),
    # It separates values. Otherwise the event of M11 with nonce `a` is that of M1 with `1a`.
    *(
        ("header", {"timestamp": "T", "nonce": "N", "text": text}, "text", f"separator, such as a dot, between {pair}")
        for text, pair in (
            ("{nonce}0{timestamp}{body}", "{nonce} and {timestamp}"),
            ("{merchant_id}{nonce}.{timestamp}.{body}", "{merchant_id} and {nonce}"),
            ("{merchant_id}_{nonce}.{timestamp}.{body}", "{merchant_id} and {nonce}"),
            ("{timestamp}{nonce}{merchant_id}{body}", "{nonce} and {merchant_id}"),
            ("{nonce}.{timestamp}v1{merchant_id}.{body}", "{timestamp} and {merchant_id}"),
            ("{nonce}.{merchant_id}{timestamp}.{body}", "{merchant_id} and {timestamp}"),
            ("{body}.{timestamp}.{nonce}x{nonce}", "{nonce} and {nonce}"),
        )
    ),
    # With Standard Webhooks, a profile may give the names of all three headers, and nothing else.
    ("standard-webhooks", {**SVIX, "timestamp": ""}, "timestamp", "must"),
    ("standard-webhooks", {**SVIX, "nonce": ""}, "nonce", "must"),
    ("standard-webhooks", {**SVIX, "nonce": "Svix-Timestamp"}, "timestamp", "must"),
    ("standard-webhooks", {**SVIX, "signature": "svix:v1"}, "signature", "must"),
    ("standard-webhooks", {**SVIX, "text": "{timestamp}.{body}"}, "text", "must"),
    ("standard-webhooks", {**SVIX, "prefix": "v1,"}, "prefix", "must"),
]


def test_signed_headers_of_notifications() -> None:
    """A signature in a header must cover what is believed."""
    for verification, header, key, words in SIGNED_HEADERS:
        signed: Any = SignedHeader(**{"signature": "S", **header})
        shape = NotificationShape(verification=verification, header=signed)  # type: ignore[arg-type] # one of both
        found, error = refusal(Profile, notification=shape)

        assert (f"notification.header.{key}", True) == (found, words in error), error


def test_signed_values_that_end_where_they_must() -> None:
    """A time has the length that the window allows, and the body is a JSON object: neither takes from its neighbour."""
    for text in ["{timestamp}{nonce}{body}", "{nonce}-{timestamp}.{merchant_id}{body}"]:
        header = SignedHeader(signature="S", timestamp="T", nonce="N", text=text)
        profile = Profile(notification=NotificationShape(verification="header", header=header))

        assert header == profile.notification.header


def test_a_refusal_is_no_acknowledgement() -> None:
    """A refusal of notifications must differ from the acknowledgement in its status or body. 204 is no other status."""
    cases: list[tuple[int, int | None, str, str, bool]] = [
        (200, 200, "", "", False),
        (200, 204, "", "", False),
        (200, 200, "OK", "OK", False),
        (400, None, "", "", False),
        (200, 200, "OK", "FAIL", True),
        (200, None, "", "", True),
        (200, 500, "OK", "OK", True),
    ]
    for yes, no, ack_body, nack_body, differs in cases:
        shape = NotificationShape(ack_status=yes, nack_status=no, ack_body=ack_body, nack_body=nack_body)
        if differs:
            assert shape == Profile(notification=shape).notification
        else:
            field, words = refusal(Profile, notification=shape)
            assert ("notification.nack_status", True) == (field, "could not tell" in words)


def test_contradictions_of_notifications() -> None:
    """A signature in a header needs its place and a key. Without events, no field tells two kinds."""
    signed, alike = SignedHeader(signature="S"), {"payment": "a", "refund": "a"}
    in_header: dict[str, Any] = {"verification": "header", "header": signed}
    cases: list[tuple[str, dict[str, Any], Any]] = [
        ("header", {"verification": "header"}, None),
        *(("header", {"header": signed, "verification": word}, None) for word in ("", "body", "none")),
        *(("header", in_header, each) for each in (SortedPairs(algorithm="md5", key_param="key"), OWN_SCHEME)),
        ("tells.refund", {"tells": alike}, None),
        ("tells.refund", {"tells": {"payment": "a.b", "refund": "a"}}, None),
        ("tells.refund", {"kind": "e", "kinds": {"payment": ["P"]}, "tells": alike}, None),
        ("tells.refund", {"kinds": {"payment": ["P"], "refund": ["R"]}, "tells": alike}, None),
    ]
    for field, shape, signature in cases:
        found = refusal(Profile, notification=NotificationShape(**shape), signature=signature)[0]

        assert f"notification.{field}" == found


Keys = Mapping[str, str]

SHARED: Final = "a shared secret of the usual length"
SIGNED: Final = Profile(
    signature=SortedPairs(algorithm="rsa-sha256", encoding="base64"),
    answer=AnswerShape(data="data", signature="data.sign", refund_status="refundStatus"),
)
BODY: Final = evolve(
    SIGNED,
    notification=NotificationShape(
        verification="body", data="data", signature="data.sign", ack_status=200, out_trade_no="no"
    ),
)
HMAC: Final = evolve(SIGNED, signature=SortedPairs(algorithm="hmac-sha256", encoding="hex"))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """Return keys of many kinds, all made by `openssl`."""
    folder = tmp_path_factory.mktemp("keys")

    def pair(name: str, make: Callable[..., tuple[Path, Path]], *arguments: int) -> dict[str, str]:
        (folder / name).mkdir()
        private, public = make(folder / name, *arguments)
        return {f"{name} private": private.read_text(), f"{name} public": public.read_text()}

    def openssl(*arguments: str) -> str:
        made = subprocess.run([signatures.OPENSSL, *arguments], cwd=folder, capture_output=True, check=True)
        return made.stdout.decode()

    made = pair("rsa", signatures.rsa_keys) | pair("short", signatures.rsa_keys, 1024)
    made |= pair("ed25519", signatures.ed25519_keys)
    made["certificate"] = openssl("req", "-x509", "-key", "rsa/private.pem", "-subj", "/CN=pay.example")
    made["locked"] = openssl("pkey", "-in", "rsa/private.pem", "-aes256", "-passout", "pass:word")
    made["locked, the older form"] = openssl(
        *("rsa", "-in", "rsa/private.pem", "-traditional", "-aes256", "-passout", "pass:word")
    )
    return {**made, "rubbish": "canary-of-no-key", "cut": made["rsa public"].replace("\n", "\nAAAA", 1)}


def session(credentials: Credentials, profile: Profile = SIGNED) -> Session:
    """Return a session that opens no connection."""
    return Session("https://pay.example", credentials=credentials, profile=profile)


def body(key: str) -> str:
    """Return a part of a key that nobody would write by chance."""
    return "".join(line for line in key.splitlines() if "-" not in line)[-20:] or key


def shown(error: BaseException) -> str:
    """Return a traceback with the local variables of every frame below the test's own."""
    below = error.__traceback__ and error.__traceback__.tb_next
    return "".join(traceback.TracebackException(type(error), error, below, capture_locals=True).format())


BAD_SERVICE_KEYS: Final = {
    "rubbish": "is not a public key for rsa-sha256: it must be PEM, or base64 of SubjectPublicKeyInfo",
    "cut": "is not a public key for rsa-sha256: it must be PEM, or base64 of SubjectPublicKeyInfo",
    "rsa private": "is a private key. Give the public key that the service shows",
    "certificate": "it is a certificate. Give the public key in it: openssl x509 -pubkey -noout -in FILE",
    "short public": (
        "has 1024 bits: an RSA key needs 2048 or more. Use a longer one, or, if the service has nothing better, "
        "set signature.min_rsa_bits"
    ),
    "locked": "it is locked by a password. Give a copy without one: openssl pkey -in FILE -out COPY",
    "ed25519 public": "it is a key of another algorithm. Give one for rsa-sha256, or correct signature.algorithm",
}
BAD_SIGNING_KEYS: Final = {
    "rubbish": "is not a private key for rsa-sha256: it must be PEM, or base64 of PKCS #8, and without a password",
    "rsa public": "it is a public key. Give the private key that belongs to it",
    "certificate": "it is a certificate",
    "short private": "has 1024 bits: an RSA key needs 2048 or more",
    "locked": "it is locked by a password",
    "locked, the older form": "it is locked by a password",
    "ed25519 private": "it is a key of another algorithm",
}


@pytest.mark.parametrize(
    ("field", "bad", "why"),
    [
        *(("service_keys", bad, why) for bad, why in BAD_SERVICE_KEYS.items()),
        *(("signing_key", bad, why) for bad, why in BAD_SIGNING_KEYS.items()),
    ],
)
def test_key_that_cannot_sign_or_verify(field: str, bad: str, why: str, keys: Keys, tmp_path: Path) -> None:
    """Session, copy and receiver refuse a key that cannot sign or verify. No error shows the key."""
    good: dict[str, Any] = {"signing_key": keys["rsa private"], "service_keys": keys["rsa public"]}
    given = Credentials("M2", **good | {field: keys[bad]})
    errors = [
        refused(session, given),
        refused(session(Credentials("M1", **good)).for_merchant, given),
        refused(Receiver, profile=BODY, credentials=given, inbox=SqliteInbox(tmp_path / "inbox.db")),
    ]

    assert {f"credentials.{field}"} == {each.field for each in errors}
    assert all(str(each).startswith(f"credentials.{field} ") and why in str(each) for each in errors)
    assert not any(body(keys[bad]) in shown(each) for each in errors)


def test_shorter_rsa_keys(keys: Keys, caplog: pytest.LogCaptureFixture) -> None:
    """With `min_rsa_bits = 1024`, RSA keys of 1024 bits sign and verify, and each gives a warning."""
    caplog.set_level(logging.WARNING, "payasync")
    scheme = SortedPairs(algorithm="rsa-sha256", encoding="base64", min_rsa_bits=1024)
    given = Credentials(
        "M1", signing_key=keys["short private"], service_keys=[keys["rsa public"], keys["short public"]]
    )
    session(given, evolve(SIGNED, signature=scheme))
    signature = scheme.sign({"totalAmt": 450}, path="/", key=Secret(keys["short private"]))
    longer = evolve(SIGNED, signature=evolve(scheme, min_rsa_bits=1025))

    assert [
        "credentials.signing_key has 1024 bits, and could be broken: use a longer one",
        "credentials.service_keys: key 2 has 1024 bits, and could be broken: use a longer one",
    ] == [record.getMessage() for record in caplog.records]
    assert scheme.verify({"totalAmt": 450}, signature, path="/", key=Secret(keys["short public"]))
    assert "has 1024 bits: an RSA key needs 1025 or more. Use a longer one" in str(refused(session, given, longer))


@pytest.mark.parametrize(
    ("algorithm", "bits", "words"),
    [
        ("rsa-sha256", 1023, "must be an integer from 1024 to 16384, not 1023"),
        ("rsa-sha256", 16_385, "must be an integer from 1024 to 16384, not 16385"),
        ("rsa-sha256", "2048", "must be"),
        ("ed25519", 1024, "has no effect unless signature.algorithm is RSA: leave it out"),
        ("hmac-sha256", 1024, "has no effect unless signature.algorithm is RSA: leave it out"),
    ],
)
def test_bits_of_keys_that_are_refused(algorithm: Any, bits: Any, words: str) -> None:
    """`signature.min_rsa_bits` is from 1024 to 16384, and is given for RSA only."""
    field, said = refusal(lambda: Profile(signature=SortedPairs(algorithm=algorithm, min_rsa_bits=bits)))

    assert "signature.min_rsa_bits" == field
    assert words in said


def test_second_of_two(keys: Keys) -> None:
    """If one of several service keys is invalid, the error names its position."""
    given = Credentials("M1", signing_key=keys["rsa private"], service_keys=[keys["rsa public"], keys["rsa private"]])
    error = refused(session, given)

    assert str(error).startswith("credentials.service_keys: key 2 is not a public key for rsa-sha256: it is a private")
    assert "credentials.service_keys" == error.field


def test_shared_secret_that_is_none(keys: Keys) -> None:
    """A shared secret that is shorter than 8 characters, or a PEM text, is refused to sign and to verify."""
    cases = (
        ("k", "must be a shared secret of 8 characters or more: a shorter one is guessed"),
        ("1234567", "must be a shared secret of 8 characters or more"),
        ("rsa public", "must be a shared secret, not a PEM text or another form of a public key: anybody who"),
        ("rsa private", "must be a shared secret, not a PEM text"),
        ("certificate", "must be a shared secret, not a PEM text"),
    )
    algorithms: tuple[Any, ...] = ("md5", "hmac-md5", "hmac-sha256", "hmac-sha512")
    for (bad, why), algorithm in product(cases, algorithms):
        scheme = SortedPairs(algorithm=algorithm, encoding="hex", key_param="key")
        key = keys.get(bad, bad)
        signing = refused(session, Credentials("M1", signing_key=key), evolve(SIGNED, signature=scheme))
        both = Credentials("M1", signing_key=SHARED, service_keys=[SHARED, key])
        verifying = refused(session, both, evolve(SIGNED, signature=scheme))

        assert ("credentials.signing_key", "credentials.service_keys") == (signing.field, verifying.field)
        assert str(signing).startswith(f"credentials.signing_key {why}")
        assert str(verifying).startswith(f"credentials.service_keys: key 2 {why}")


def test_keys_that_nothing_uses_are_not_tried() -> None:
    """Keys are checked only if a built-in signature scheme with a given algorithm uses them."""
    for profile in [
        Profile(),
        Profile(signature=SortedPairs(encoding="hex"), answer=AnswerShape(signature="sign")),
        Profile(signature=OWN_SCHEME, answer=AnswerShape(signature="sign")),
        evolve(SIGNED, signed=(), answer=AnswerShape()),
    ]:
        assert (
            profile is session(Credentials("M1", signing_key="rubbish", service_keys="other rubbish"), profile).profile
        )


def test_missing_keys_are_asked_for_by_the_call() -> None:
    """A session can be made without keys, and copied for another merchant without keys."""
    for profile in [SIGNED, HMAC, BODY]:
        assert "M2" == session(Credentials("M1"), profile).for_merchant(Credentials("M2")).merchant_id


def test_without_the_cryptography_package(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the `rsa` extra is missing, making a session for RSA fails with the command that installs it."""
    # The tests' own environment has the package: `None` makes this import fail as if it had not.
    monkeypatch.setitem(sys.modules, "payasync.signing.asymmetric", None)
    error = refused(session, Credentials("M1", signing_key=keys["rsa private"], service_keys=["a", "b"]))

    assert 'pip install "payasync[rsa]"' in str(error)
    assert "signature.algorithm" == error.field


def test_name_of_the_sandbox_stays_on_this_machine() -> None:
    """A session for another machine refuses a profile that has the sandbox's name."""
    assert "profile" == refused(session, Credentials("M1"), Profile(name="payasync-sandbox")).field
    assert "M1" == session(Credentials("M1"), Profile(name="quay")).merchant_id


def test_short_secret_is_warned_of_once(keys: Keys, caplog: pytest.LogCaptureFixture) -> None:
    """A shared secret of 8 to 15 characters gives one warning for each merchant; a copy does not repeat it."""
    caplog.set_level(logging.WARNING, "payasync")
    short = Credentials("M1", signing_key="canary 12345678", service_keys=[SHARED, "canary1" + "8"])
    session(short, HMAC).with_options()
    first = [record.getMessage() for record in caplog.records]
    session(Credentials("M1", signing_key="0123456789abcdef"), HMAC).for_merchant(short)
    session(Credentials("M1", signing_key=keys["rsa private"], service_keys=keys["rsa public"]))

    assert [
        "credentials.signing_key has fewer than 16 characters, and could be guessed: ask for a longer one",
        "credentials.service_keys: key 2 has fewer than 16 characters, and could be guessed: ask for a longer one",
    ] == first
    assert [*first, *first] == [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    "key",
    [
        f"{SHARED}\n",
        f"{SHARED}\r",
        f"\ufeff{SHARED}",
        f" {SHARED}",
        f"{SHARED}'",
        f'"{SHARED}',
        f"{SHARED}\u200b{SHARED}",
    ],
    ids=ascii,
)
def test_secret_with_a_line_end_is_warned_of(key: str, caplog: pytest.LogCaptureFixture) -> None:
    """A shared secret given in Python is used as it is; what nobody sees in it, or is at its ends, is warned of."""
    caplog.set_level(logging.WARNING, "payasync")
    session(Credentials("M1", signing_key=key, service_keys=[SHARED, key]), HMAC)

    odd = next((each for each in key if not each.isprintable()), "")
    why = "has white space or a quote at an end, which changes each signature: remove it if it is not of the key"
    if odd:
        why = f"holds U+{ord(odd):04X}, which nobody sees and which changes each signature: copy the key again"
    assert [f"credentials.signing_key {why}", f"credentials.service_keys: key 2 {why}"] == [
        record.getMessage() for record in caplog.records
    ]


TEMPLATE: Final = """
[signature]
family = "template"
algorithm = "hmac-sha256"
encoding = "hex"
text = "{timestamp}{body}"
header = "X-Sign"
value = "{timestamp} {signature}"
[signature.headers]
X-Merchant = "{merchant_id}"
"""


def test_a_template_contradicts_nothing() -> None:
    """A signature in a header adds no fields, and has the keys of its own family."""
    for text, key, why in [
        (TEMPLATE.replace("{timestamp}{body}", "v1"), "signature.text", "must hold a name in braces, such as {body}"),
        (f'{TEMPLATE}[fields]\nnonce = "n"', "fields.nonce", 'has no effect with signature.family "template"'),
        (f'{TEMPLATE}[answer]\nsignature = "sign"', "answer.signature", "needs a signature that verifies fields"),
        (f'{TEMPLATE}[notification]\nverification = "body"', "notification.verification", "needs a signature that"),
        ('[signature]\nfamily = "templat"', "signature.family", "must be sorted-pairs or template, not 'templat'"),
        ("[signature]\nfamily = 1", "signature.family", "must be sorted-pairs or template, not 1"),
        ('[signature]\nfamily = "template"\nheader = "a"', "signature.text", "is missing"),
        (TEMPLATE.replace("header =", "separator ="), "signature.separator", "is of the family 'sorted-pairs'"),
        (
            '[signature]\nheader = "a"',
            "signature.header",
            "is of the family 'template', and signature.family is 'sorted-pairs'; allowed are",
        ),
    ]:
        field, words = refusal(Profile.from_toml, text)

        assert key == field
        assert why in words


def test_family_of_sorted_pairs_may_be_named() -> None:
    """The usual family may be named, and is not written."""
    profile = Profile.from_toml('[signature]\nfamily = "sorted-pairs"\nseparator = ";"')

    assert Profile(signature=SortedPairs(separator=";")) == profile
    assert "family" not in profile.to_toml()


def test_keys_of_a_template_are_tried() -> None:
    """A key that a template cannot sign with is refused as a session is made; a short one is warned of."""
    signed = Profile.from_toml(TEMPLATE)
    rsa = Profile.from_toml(TEMPLATE.replace("hmac-sha256", "rsa-sha256"))

    assert "a shared secret of 8 characters or more" in refusal(session, Credentials("M1", signing_key="k"), signed)[1]
    assert "is not a private key" in refusal(session, Credentials("M1", signing_key="rubbish-key"), rsa)[1]


def test_audit_of_a_template() -> None:
    """The audit shows the algorithm, the encoding and the text of a template, and no options of sorted pairs."""
    points = {each.name: each for each in Profile.from_toml(TEMPLATE.replace('"hex"', '""')).audit()}

    assert ["algorithm", "encoding", "service_key", "text"] == [
        name.partition(".")[2] for name in points if name.startswith("signature")
    ]
    assert ("answered", "open") == (points["signature.algorithm"].status, points["signature.encoding"].status)
