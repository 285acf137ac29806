"""Contradictions in a profile are refused when the profile or the session is made, before any call."""

import logging
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

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
    SignedHeader,
    States,
)
from tests.foreign import signatures
from tests.profile.refusal import refusal, refused, shown

DOCUMENTED: Final = [(operation, each) for operation, given in ARGUMENTS.items() for each in given if each.wire]
ALWAYS_GIVEN: Final = [(operation, each.name, each.wire) for operation, each in DOCUMENTED if each.required]


def never_sent(operation: str, name: str, argument: str) -> tuple[str, str]:
    """Return the key and the error of a constant that no call would send."""
    key = f"constants.{operation}.{name}"
    return key, f"{key} is the argument {argument}, which every call gives: the constant would never be sent"


def test_a_constant_is_no_required_argument() -> None:
    """A constant with the wire name of a required argument is refused, because it would never be sent."""
    for operation, argument, wire in ALWAYS_GIVEN:
        assert never_sent(operation, wire, argument) == refusal(Profile, constants={operation: {"v": 1, wire: "x"}})


NESTED: Final = {"orders.place": {"total_amt": "sum.of.value", "currency": "sum.unit"}}


class Later:
    """An object whose call returns a coroutine."""

    async def __call__(self) -> None:
        """Verify nothing."""


LATER: Final = Later().__call__


def pairs(nested: Any) -> SortedPairs:
    """Return a scheme with this option."""
    return SortedPairs(algorithm="hmac-sha256", nested=nested)


IN_HEADER: Final = NotificationShape(verification="header", header=SignedHeader(signature="S"))
OWN_SCHEME: Final[Any] = SimpleNamespace(sign=LATER, verify=bool)


OF_TWO: Final = "which is also the wire name of"
REPLACES: Final = "one would replace the other. Give"
NEVER: Final = "which every call gives: the constant would never be sent"
DOTS: Final = "stands beside 'sum.of.value', which nests: write an object, without quotes around the dotted name"
ONE_ENTRY: Final = "in a request, a list has one entry, with the number 0"
ONE_CURRENCY: Final = "is empty: say in accept.currency which one currency the service has"
OUTSIDE: Final = "is 'order.no', which nests, and stands outside the body in orders."
NO_EFFECT: Final = "has no effect unless signature.algorithm is RSA: leave it out"
READ: Final = """
answer = {code = "code", ok = [0], message = "meta.text", data = "outer.inner", signature = "outer.seal"}
notification = {verification = "body", data = "event", signature = "event.mac"}
"""
IN_PATH: Final = 'status.refund = {name = "no", place = "path"}'
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
CONTRADICTIONS: Final[list[tuple[str, str, str]]] = [
    # Two arguments of one request must not share a wire name, because one would replace the other.
    ("", 'fields.return_url = "notifyUrl"', OF_TWO),
    ("", 'fields.return_url = "outTradeNo"', f"{OF_TWO} out_trade_no in "),
    ("", 'fields.frequency = "a"\nfields.start_date = "a"', f"is 'a', {OF_TWO} start_date in "),
    ("", 'fields.subscription_id = "id"\nfields.customer = "id"', f"{OF_TWO} customer"),
    ("", 'fields.subscription_id = "id"\nfields.subscription_amount = "id"', f"{OF_TWO} amount"),
    ("", 'fields.subject = "a"\nfields.body = "a.b"', "in one object with the wire name 'a.b'"),
    (
        "status.refund.name",
        'endpoints."refunds.status".with = ["out_trade_no"]\nstatus.refund.name = "no"\nfields.out_trade_no = "no"',
        f"also the wire name of out_trade_no in refunds.status: {REPLACES} refunds.status",
    ),
    # The error says where one operation has names of its own.
    (
        "",
        'fields.currency = "amount.currency"',
        f"with the wire name 'amount' of amount in payments.create: {REPLACES}",
    ),
    (
        "",
        'fields."subscriptions.create".amount = "b"\nfields.subscription_amount = "a"',
        "and fields.subscription_amount both give the name: keep one",
    ),
    # A name that the document does not have is refused, and the allowed ones are listed.
    ("", 'bearer = ["payments.make"]', "must not hold 'payments.make'; allowed are orders.close, orders.place"),
    ("", 'signed = ["order.query"]', "must not hold 'order.query'; allowed are orders.close"),
    ("", 'merchant = ["*"]', "must not hold '*'; allowed are orders.close"),
    ("", 'sandbox.single_use_keys = ["orders.query"]', "must not hold 'orders.query'; allowed are orders.close, "),
    ("", 'fields.outTradeNo = "no"', "must not hold 'outTradeNo'; allowed are amount, body"),
    ("", 'formats.date = "%Y"', "must not hold 'date'; allowed are start_date"),
    ("", "constants.orders = {}", "must not hold 'orders'; allowed are *, orders.close"),
    ("", 'accept.required."orders.make" = []', "must not hold 'orders.make'; allowed are orders.close"),
    ("", "accept.length.total_amt = 9", "must not hold 'total_amt'; allowed are body, currency, description"),
    ("", 'notification.kinds.payments = ["paid"]', "must not hold 'payments'; allowed are payment, refund, su"),
    ("", 'notification.tells.order = "state"', "must not hold 'order'; allowed are payment, refund, subscription"),
    ("", 'notification.id.order = ["no"]', "must not hold 'order'; allowed are payment, refund, subscription"),
    # What payasync adds has a name of its own, and no dot in it.
    ("", 'fields.nonce = "outTradeNo"', f"{OF_TWO} out_trade_no"),
    ("", 'fields.sign = "totalAmt"', f"{OF_TWO} total_amt"),
    ("", 'fields.nonce = "sign"', f"{OF_TWO} sign"),
    ("", 'fields.merchant_id = "nonceStr"', f"{OF_TWO} nonce"),
    ("", 'fields."refunds.create".nonce = "outRefundNo"', f"{OF_TWO} out_refund_no"),
    ("", 'fields.nonce = "head.nonce"', "must be a name without a dot, not 'head.nonce'"),
    ("", 'fields.nonce = ""', "must not be empty"),
    (
        "",
        'fields."orders.place".subject = "mac"\nfields."refunds.create".sign = "mac"',
        "must not set mac, because payasync sets it",
    ),
    (
        "",
        'fields."orders.close".sign = "totalAmt"\nsignature.algorithm = "hmac-sha256"',
        "'totalAmt', an argument of orders.place, which the signature would leave out",
    ),
    ("", 'signature.exclude = ["signType"]\nfields.sign = "mac"', 'must hold "mac"'),
    ("", 'signature.allow_delimiters = ["no"]\nfields.out_trade_no = "no"', "must not hold no: a delimiter there"),
    # Names are names, of an argument that the operation has.
    ("", 'fields."orders.close".total_amt = "sum"', "is no argument of orders.close"),
    ("", 'fields."orders.close" = "sum"', "must be a table of wire names"),
    ("", 'fields.mount = "sum"', "allowed are amount, body, currency, customer, description, frequency"),
    ("fields.subject", 'fields.subject.x = "sum"', "must be a text"),
    ("", 'fields.subject = "order..title"', "must be a name, or several with a dot between them"),
    ("", 'fields."orders.place".total_amt = "0.value"\nsigned = []', "must be a name, or several with a dot between"),
    # A dotted name can put a value into the one entry of a list, and into no other. A request is no list.
    ("", 'fields."orders.place".out_trade_no = "units.1.no"\nsigned = []', ONE_ENTRY),
    *(
        (
            "",
            f'fields."orders.place".total_amt = "{name}"\nfields."orders.place".out_trade_no = "a.0.no"\nsigned = []',
            ONE_ENTRY,
        )
        for name in ("a.no", "a.1.sum")
    ),
    # It stands in the body.
    ("", 'fields.out_trade_no = "order.no"\nendpoints."orders.query".method = "GET"', f"{OUTSIDE}query"),
    *(
        ("", f'fields."orders.close".out_trade_no = "order.no"\nendpoints."orders.close".{where}', f"{OUTSIDE}close")
        for where in ('path = "/{out_trade_no}"', 'place = "header"')
    ),
    # Only the total of a refund, and the currency of a service that has one, can be left out of a request.
    ("", 'fields."refunds.create".refund_amt = ""', "must not be empty"),
    ("", 'fields."orders.close".out_trade_no = ""', "must not be empty"),
    ("", 'fields.total_amt = ""', 'must not be empty, but in [fields."refunds.create"]'),
    (
        "",
        'fields."refunds.create".total_amt = ""\nendpoints."refunds.create".path = "/{total_amt}"',
        "must not be empty, because the path has {total_amt}",
    ),
    ("", 'fields."orders.place".currency = ""', ONE_CURRENCY),
    ("", 'fields."payments.create".currency = ""\naccept.currency = ["CAD", "USD"]', ONE_CURRENCY),
    # An operation has a method and a path of the document's kind, and a place for its arguments.
    ("endpoints.orders.pay", 'endpoints."orders.pay".method = "GET"', "must not hold 'orders.pay'"),
    ("", 'endpoints."orders.close".method = "GOT"', "must be one of"),
    ("", 'endpoints."orders.close".path = "close"', 'endpoints."orders.close".path must be'),
    ("", 'endpoints."orders.close".path = "/a/../b"', "such as /v2/orders"),
    (
        "",
        'endpoints."orders.close".path = "/o/{order}"',
        "has {order}, which is no argument; allowed are merchant_id, out_trade_no",
    ),
    (
        "",
        'endpoints."refunds.status".path = "/r/{out_trade_no}"',
        'allowed are identifier, merchant_id, out_refund_no. Name it in endpoints."refunds.status".with, too',
    ),
    ("", 'endpoints."orders.place".place = "path"', "write the arguments into"),
    (
        "endpoints.refunds.status.place",
        'endpoints."refunds.status" = {place = "path", with = ["out_trade_no"]}\nstatus.refund.name = "no"',
        "must not be 'path': write the arguments into endpoints.path, in braces",
    ),
    ("", 'endpoints."orders.query".place = "body"\nendpoints."orders.query".method = "GET"', "no body"),
    (
        "",
        'endpoints."refunds.status".place = "body"\nstatus.refund.name = "no"',
        "must not be 'body' with method GET, which has no body: give a method",
    ),
    ("", 'endpoints."orders.query".with = ["body"]', "no further arguments"),
    ("", 'endpoints."refunds.status".with = ["body"]', "allowed are out_trade_no"),
    (
        "",
        f'endpoints."refunds.status".place = "body"\n{IN_PATH}',
        'endpoints."refunds.status".place and status.refund.place both give the place: keep one',
    ),
    ("", 'endpoints."refunds.status".number = "mine"', "must be one of"),
    ("", 'endpoints."orders.place".number = "merchant"', "has no effect"),
    # An argument stands once in a path: in braces, or at the end if there are no braces.
    *(
        (
            "status.refund.place",
            f'endpoints."refunds.status".path = "/r/{name}"\n{IN_PATH}',
            f"status.refund.place must not be 'path' beside {name} in endpoints.\"refunds.status\".path:",
        )
        for name in ("{identifier}", "{merchant_id}")
    ),
    ("", 'endpoints."refunds.status".path = "/r/{identifier}/{identifier}"', "has {identifier} twice"),
    (
        "",
        'endpoints."orders.query".place = "path"\nendpoints."orders.query".path = "/o/{out_trade_no}"',
        """must not be 'path' beside {out_trade_no} in endpoints."orders.query".path""",
    ),
    # A constant must not have a wire name that the profile gives to a required argument.
    *(
        ("", f'constants."{operation}".back = 1\n{name}', f"is the argument {argument}, {NEVER}")
        for operation, name, argument in (
            ("subscriptions.cancel", 'fields.subscription_id = "back"', "subscription_id"),
            ("subscriptions.create", 'fields.customer = "back"', "customer"),
            ("payments.status", 'status.payment = {name = "back", place = "path"}', "identifier"),
            ("refunds.status", 'status.refund = {name = "back", place = "header"}', "identifier"),
        )
    ),
    # It would not stand in the object of dotted names.
    *(
        ("", f'constants."{place}"."sum.kind" = 1\nfields."orders.place".total_amt = "sum.of.value"\nsigned = []', DOTS)
        for place in ("*", "orders.place")
    ),
    # Two names of headers in one table that differ only in case are the same header.
    (
        "headers.x-same",
        'headers.X-Same = "2"\nheaders.x-same = "1"',
        "and headers.X-Same are the same header: keep one",
    ),
    ("", 'auth.headers.AUTHORIZATION = "{basic}"', "and auth.header are the same header: keep one"),
    (
        "",
        'fields.out_refund_no = "x-same"\nfields.out_trade_no = "X-Same"\nendpoints."refunds.create".place = "header"',
        "and fields.out_trade_no are the same header: keep one",
    ),
    # An idempotency key stands in a header or in a field, in which nothing else stands.
    ("", 'idempotency.field = "key"\nidempotency.header = "Key"', "and idempotency.header both carry the key"),
    ("", "idempotency.lifetime = 60", "has no effect without idempotency.header or idempotency.field"),
    ("", 'idempotency.field = "a.b"', "must be a name without a dot, not 'a.b'"),
    *(
        ("", f'idempotency.field = "{name}"\n{further}', "which is another field of a request already: one would repl")
        for name, further in (
            *((name, "") for name in ("totalAmt", "sign", "nonceStr", "merchantId")),
            *(("theirs", f'fields.{each} = "theirs"') for each in ("total_amt", "nonce")),
            ("plan", 'fields."subscriptions.create".amount = "plan.amount"'),
            ("why", 'constants."orders.close".why = 1'),
        )
    ),
    # If requests have amounts in the major unit, all that is received has it, and no table may say it again.
    *(
        ("", f'{table}.amounts = "major"\namount_unit = "major"', 'must be left out where amount_unit is "major"')
        for table in ("answer", "notification")
    ),
    # A status must not be in both lists. The default of `http.not_executed` holds 422.
    (
        "",
        "http.duplicate = [409, 422]",
        "http.not_executed and http.duplicate both hold 422: keep it in the one",
    ),
    # The codes and constants of the sandbox must not change what the rest of the profile reads.
    ("", f'sandbox.codes.0 = "X"{READ}', "allowed are absent, already_paid, "),
    ("", f"sandbox.codes.absent = 0{READ}", "must not be 0, which means su"),
    *(
        ("", f"sandbox.constants.{name} = 1{READ}", f"stands where {place} is read: keep one of the two")
        for name, place in (
            *(("code", "answer.code"), ("text", "answer.message"), ("inner", "answer.data")),
            *(("seal", "answer.signature"), ("event", "notification.data"), ("mac", "notification.signature")),
        )
    ),
    # The time of a delivery is judged, and that of the event is not, so one path cannot be both.
    (
        "",
        'notification.event_time = "at"\nnotification.time = "at"',
        "is 'at', as notification.time is, which is new",
    ),
    # A refusal of notifications must differ from the acknowledgement in its status or body. 204 is no other status.
    *(
        ("notification.nack_status", f"notification = {{{shape}}}", "could not tell")
        for shape in (
            "ack_status = 200, nack_status = 200",
            "ack_status = 200, nack_status = 204",
            'ack_status = 200, nack_status = 200, ack_body = "OK", nack_body = "OK"',
            "ack_status = 400",
        )
    ),
    # A signature in a header needs its place and a key. Without events, no field tells two kinds.
    ("notification.header", 'notification.verification = "header"', ""),
    *(
        ("notification.header", f'notification.header.signature = "S"\n{further}', "")
        for further in (
            *(f'notification.verification = "{word}"' for word in ("", "body", "none")),
            'notification.verification = "header"\nsignature = {algorithm = "md5", key_param = "key"}',
        )
    ),
    *(
        ("notification.tells.refund", f'notification.tells.{further}\nnotification.tells.refund = "a"', "of its own")
        for further in (
            *('payment = "a"', 'payment = "a.b"'),
            'payment = "a"\nnotification.kind = "e"\nnotification.kinds.payment = ["P"]',
            'payment = "a"\nnotification.kinds = {payment = ["P"], refund = ["R"]}',
        )
    ),
    # Sorted pairs must sign the objects of dotted names. They may omit one without an amount or a number inside.
    *(
        (
            f"fields.{operation}.{argument}",
            f'signature.nested = "{nested}"\nsigned = ["{operation}"]\nfields."{operation}".{argument} = "a.b"',
            f"set signature.nested = {forms}, or give",
        )
        for nested, forms, operation, argument in (
            ("refuse", '"json"', "refunds.create", "refund_amt"),
            ("refuse", '"json" or "omit"', "orders.place", "subject"),
            *(("omit", '"json"', "refunds.create", name) for name in ("refund_amt", "out_refund_no")),
            *(("omit", '"json"', "orders.place", name) for name in ("total_amt", "currency")),
            *(("omit", '"json"', *of) for of in (("orders.query", "out_trade_no"), ("payments.create", "amount"))),
            ("omit", '"json"', "subscriptions.update", "subscription_id"),
        )
    ),
    # A signature in a header adds no fields, and has the keys of its own family. Only an RSA key has a length.
    ("signature.text", TEMPLATE.replace("{timestamp}{body}", "v1"), "must hold a name in braces, such as {body}"),
    ("fields.nonce", f'{TEMPLATE}[fields]\nnonce = "n"', 'has no effect with signature.family "template"'),
    ("answer.signature", f'{TEMPLATE}[answer]\nsignature = "sign"', "needs a signature that verifies fields"),
    ("notification.verification", f'{TEMPLATE}[notification]\nverification = "body"', "needs a signature that"),
    ("", 'signature.family = "templat"', "must be sorted-pairs or template, not 'templat'"),
    ("", "signature.family = 1", "must be sorted-pairs or template, not 1"),
    ("signature.text", 'signature = {family = "template", header = "a"}', "is missing"),
    ("signature.separator", TEMPLATE.replace("header =", "separator ="), "is of the family 'sorted-pairs'"),
    ("", 'signature.header = "a"', "is of the family 'template', and signature.family is 'sorted-pairs'; allowed are"),
    *(
        ("", f'signature.min_rsa_bits = {bits}\nsignature.algorithm = "{name}"', why)
        for name, bits, why in (
            *(("rsa-sha256", bits, f"must be an integer from 1024 to 16384, not {bits}") for bits in ("1023", "16385")),
            ("rsa-sha256", "'2048'", "must be"),
            *(("ed25519", "1024", NO_EFFECT), ("hmac-sha256", "1024", NO_EFFECT)),
        )
    ),
]
"""Keys, profiles, and parts of the errors. An empty key is that of the profile's first line."""


def test_contradictions() -> None:
    """If two keys of a profile contradict each other, it is refused; the error has the key, its line, and why.

    Each key in the words of the error is written as in TOML; the field of the error is dotted.
    """
    for key, text, why in CONTRADICTIONS:
        error = refused(Profile.from_toml, text)

        assert (key or text.partition(" = ")[0].replace('"', ""), True) == (error.field, why in str(error)), str(error)
        assert error.line


ACCEPTED: Final[list[Mapping[str, Any]]] = [
    {"fields": {"total_amt": "0"}},
    {"http": HttpCodes(duplicate=(409, 422), not_executed=(400,))},
    {"http": HttpCodes(not_executed=(400, 409))},
    # A dotted name may stand in an object that is signed, or where nothing needs to be signed.
    *(
        {"fields": {"orders.place": {argument: "a.b"}}, "signature": pairs(nested), "signed": signed}
        for nested, signed, argument in (
            ("json", ("orders.place",), "total_amt"),
            ("omit", ("orders.place",), "subject"),
            ("refuse", (), "total_amt"),
        )
    ),
    # Arguments that never stand in the same request may share a wire name. Empty names do not clash.
    {
        "fields": {
            "return_url": "a",
            "frequency": "a",
            "start_date": "",
            "customer": "",
            "subscription_amount": "amount",
        }
    },
    # A constant may stand in for an optional argument, such as the one scene type of a merchant.
    *({"constants": {operation: {each.wire: "x"}}} for operation, each in DOCUMENTED if not each.required),
    {"constants": {"orders.query": {"totalAmt": 1}}},
    {"constants": {"*": {"currency": "CAD"}}},
    {"constants": {"payments.status": {"outTradeNo": "T1"}}, "payment_status": Parameter("no")},
    {"constants": {"refunds.status": {"no": 1}}, "payment_status": Parameter("no")},
    {"constants": {"orders.query": {"back": 1}}, "fields": {"return_url": "back"}},
    {"constants": {"subscriptions.update": {"back": 1}}, "fields": {"customer": "back"}},
    # An object of constants may hold other members than the arguments with dotted names.
    *(
        {"constants": {place: {"sum": {"of": {"scale": 2}, "kind": "gross"}}}, "fields": NESTED, "signed": ()}
        for place in ("*", "orders.place")
    ),
    # Any argument, and any field that the document does not show, can be required.
    *(
        {
            "accept": Accept(
                required={operation: ["deviceNo", "device_no", "subjectId", "x", *(each.name for each in given)]}
            )
        }
        for operation, given in ARGUMENTS.items()
    ),
    # An incomplete profile may be written piece by piece.
    {"states": States(order={"paid": ("PAID",)})},
    {"codes": ResultCodes(absent=("NONE",))},
    {"answer": AnswerShape(ok=("OK",))},
    {"fields": {"start_date": "from"}},
    {"formats": {"start_date": "%Y"}},
    {"notification": NotificationShape(nack_status=200)},
    {"notification": NotificationShape(ack_body="OK", nack_body="OK")},
    # A refusal of notifications differs in its status or body.
    {"notification": NotificationShape(ack_status=200, nack_status=200, ack_body="OK", nack_body="FAIL")},
    {"notification": NotificationShape(ack_status=200)},
    {"notification": NotificationShape(ack_status=200, nack_status=500, ack_body="OK", nack_body="OK")},
    # A time has the length that the window allows, and the body is a JSON object: neither takes from its neighbour.
    *(
        {"notification": evolve(IN_HEADER, header=SignedHeader(signature="S", timestamp="T", nonce="N", text=text))}
        for text in ("{timestamp}{nonce}{body}", "{nonce}-{timestamp}.{merchant_id}{body}")
    ),
    # What stands in different requests, in the query or in the path may have the name of a header.
    {
        "endpoints": {"orders.query": Endpoint(place="header")},
        "fields": {"out_trade_no": "X-No"},
        "payment_status": Parameter("X-No", "header"),
        "refund_status": Parameter("Host"),
        "signature": Template(text="{body}", header="Authorization"),
    },
    {"endpoints": {"orders.close": Endpoint(path="/{out_trade_no}", place="header")}, "headers": {"outTradeNo": "1"}},
]


def test_neighbours_of_contradictions() -> None:
    """What stands beside a contradiction is accepted."""
    for parts in ACCEPTED:
        profile = Profile(**parts)

        assert parts == {key: getattr(profile, key) for key in parts}


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


SET_BY_PAYASYNC: Final = (
    *("Accept-Encoding", "Authorization", "Connection", "Content-Encoding", "Content-Length", "content-type"),
    *("Cookie", "Expect", "HOST", "Keep-Alive", "Proxy-Authorization", "proxy-connection", "TE", "Trailer"),
    *("Transfer-Encoding", "Upgrade", "Accept", "User-Agent"),
)
MAY_BE_GIVEN: Final = [
    *(("headers.{}", name) for name in ("Accept", "User-Agent")),
    *((key, "Authorization") for key in ("auth.header", "auth.headers.{}", "signature.header", "signature.headers.{}")),
]


def test_headers_of_payasync() -> None:
    """Payasync sets what frames or authenticates a request; a profile may give what it accepts, and its key's header.

    A name that could split the request is refused, too.
    """
    for key, header in HEADERS.items():
        for name in () if key.startswith("signature") else SET_BY_PAYASYNC:
            if (key, name) not in MAY_BE_GIVEN:
                field = key.format(name)

                assert (field, f"{field} must not be {name}, because payasync sets it") == refusal(
                    Profile, **header(name)
                )
        for name in () if key.startswith(("signature", "headers")) else ("X Key", "Zwölf", "X-A:"):
            field = key.format(name)

            assert (field, f"{field} must be the name of a header, not {name!r}") == refusal(Profile, **header(name))
    for key, name in MAY_BE_GIVEN:
        parts: dict[str, Any] = {"bearer": (), **HEADERS[key](name)}

        assert parts.items() <= attrs.asdict(Profile(**parts), recurse=False).items()


PLACEHOLDERS: Final = "{secret_key} {public_key} {merchant_id} {basic} {basic_user}"
NEVER_A_KEY: Final = f"must hold one of {PLACEHOLDERS}, and never a key itself. A header without any of them belongs in"
NO_NAME: Final = f"has a brace without a name; allowed are {PLACEHOLDERS}"


def test_a_key_is_named_and_never_given() -> None:
    """A value without a placeholder, or with an unknown one, is refused, as is one that could split the request."""
    for words, values in {
        f"{NEVER_A_KEY} headers": ("", "sk_canary", "Bearer sk_canary", "Bearer {sk_canary}", "{secret}", "{}"),
        NO_NAME: ("{{secret_key}", "{secret_key}}", "{ {secret_key}", "{secret-key} {basic}"),
        "must be of visible ASCII characters": (" {secret_key}", "{secret_key}\r\nX-Evil: 1", "clé {secret_key}"),
    }.items():
        for value in values:
            assert ("auth.value", f"auth.value {words}") == refusal(Auth, value=value)
            assert ("auth.headers.X-Key", f"auth.headers.X-Key {words}") == refusal(Auth, headers={"X-Key": value})


def test_a_required_name_that_is_nearly_an_argument() -> None:
    """If a required name resembles an argument, it is refused; the error suggests the argument and lists all."""
    for operation, name, meant in [
        ("orders.place", "subjct", "subject"),
        ("orders.place", "notifyUrl", "notify_url"),
        ("orders.place", "notify_ulr", "notify_url"),
        ("orders.place", "backTo", "return_url"),
        ("payments.status", "orderNo", "identifier"),
        ("subscriptions.create", "startDate", "start_date"),
    ]:
        profile = {"fields": {"return_url": "backTo"}, "payment_status": Parameter("orderNo")}
        field, words = refusal(Profile, accept=Accept(required={operation: [name]}), **profile)

        assert f"accept.required.{operation}" == field
        assert words.startswith(f"{field} must not hold {name!r}: did you mean {meant}? Arguments are ")
        assert words.endswith("; any other name is that of a field in extra")


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


def test_a_scheme_verifies_immediately() -> None:
    """A scheme whose `verify` is a coroutine function is refused; its `sign` may be one."""
    for verify in [LATER, partial(LATER), Later()]:
        field, words = refusal(Profile, signature=SimpleNamespace(sign=LATER, verify=verify))

        assert "signature" == field
        assert words.startswith("signature.verify must be a plain function, not a coroutine function, because nothing")
        assert Profile(signature=OWN_SCHEME).signature is OWN_SCHEME
        assert "notification.header" == refusal(Profile, notification=IN_HEADER, signature=OWN_SCHEME)[0]


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


ODD: Final = "has white space or a quote at an end, which changes each signature: remove it if it is not of the key"
UNSEEN: Final = "which nobody sees and which changes each signature: copy the key again"


def test_secret_with_a_line_end_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """A shared secret from Python is used unchanged. A warning names invisible characters and outer blanks."""
    caplog.set_level(logging.WARNING, "payasync")
    for key, why in {
        f"{SHARED}\n": f"holds U+000A, {UNSEEN}",
        f"{SHARED}\r": f"holds U+000D, {UNSEEN}",
        f"\ufeff{SHARED}": f"holds U+FEFF, {UNSEEN}",
        f"{SHARED}\u200b{SHARED}": f"holds U+200B, {UNSEEN}",
        **dict.fromkeys((f" {SHARED}", f"{SHARED}'", f'"{SHARED}'), ODD),
    }.items():
        caplog.clear()
        session(Credentials("M1", signing_key=key, service_keys=[SHARED, key]), HMAC)

        assert [f"credentials.signing_key {why}", f"credentials.service_keys: key 2 {why}"] == [
            record.getMessage() for record in caplog.records
        ]


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
