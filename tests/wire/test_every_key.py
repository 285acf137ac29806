"""Every key of a profile has an effect: the same call, with its line and without it, over real HTTP."""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import date
from typing import Any, Final

import pytest
from attrs import Attribute, field, fields, frozen

from payasync import (
    Accept,
    AnswerShape,
    ConfigurationError,
    HttpCodes,
    NotConfiguredError,
    Parameter,
    PayasyncError,
    Profile,
    Recovery,
    Response,
    ResultCodes,
    RetryPolicy,
    Session,
    SortedPairs,
    States,
)
from payasync.profile.schema import OPEN_FIELDS, ORDER_STATES, REFUND_STATES, SUBSCRIPTION_STATES
from tests.foreign import signatures
from tests.foreign.certificates import trusting_tls
from tests.foreign.recorder import RESET, Answer, Recorder, answer
from tests.wire.ten import CREDENTIALS, SIGNING_KEY

FAST: Final = RetryPolicy(base_delay=0.001, max_delay=0.002)
TLS: Final = trusting_tls()
"""Made once: making the default one takes longer than a call."""
BASE_PATH: Final = "/gate"
PAGE: Final = "https://shop.example/thanks"

Ask = Callable[[Session], Awaitable[Response]]
Result = Response | PayasyncError
Look = Callable[[Recorder, Result], Any]


@frozen
class Effect:
    """What one key does.

    Attributes:
        key: As TOML writes it.
        line: The line that gives it.
        ask: The call.
        look: What is seen of it.
        seen: What that is with the line, and what without it.
        base: Lines that both profiles have.
        other: A line in place of the key's, where there must be one.
        script: What the service answers, in turn; afterwards, success.
        by_path: What it always answers at a path.
    """

    key: str
    line: str
    ask: Ask
    look: Look
    seen: tuple[Any, Any]
    base: str = ""
    other: str = ""
    script: tuple[Answer, ...] = ()
    by_path: Mapping[str, Answer] = field(factory=dict)

    async def shown(self, line: str) -> Any:
        """Return what is seen with a profile of these lines."""
        with Recorder(self.script, by_path=self.by_path) as service:
            profile = Profile.from_toml(f"{self.base}\n{line}")
            url = service.url + BASE_PATH
            async with Session(url, credentials=CREDENTIALS, profile=profile, retry=FAST, tls=TLS) as pay:
                result = await ended(self.ask(pay))
        return self.look(service, result)


async def ended(call: Awaitable[Response]) -> Result:
    """Return what a call ends as."""
    try:
        return await call
    except PayasyncError as error:
        return error


def kind(_: Recorder, result: Result) -> str:
    """See what it ended as."""
    return type(result).__name__


def paths(service: Recorder) -> list[str]:
    """Return the last words of the paths that were asked."""
    return [request.path.rpartition("/")[2] for request in service.requests]


def course(service: Recorder, result: Result) -> tuple[str, list[str]]:
    """See what it ended as, and what the service was asked."""
    return kind(service, result), paths(service)


def refused(service: Recorder, result: Result) -> str | None:
    """See which field was refused before anything was sent."""
    name = getattr(result, "field", None)
    assert (name is None) == bool(service.connections)
    return name


def sent(name: str) -> Look:
    """See a field of the request, or which point is open."""

    def look(service: Recorder, result: Result) -> Any:
        if isinstance(result, NotConfiguredError):
            return f"open: {result.field}"
        return signatures.fields(service.only).get(name)

    return look


def header(name: str) -> Look:
    """See a header of the request."""
    return lambda service, _: service.only.header(name)


def target(service: Recorder, result: Result) -> str | None:
    """See the target of the request, or which point is open."""
    return f"open: {result.field}" if isinstance(result, NotConfiguredError) else service.only.target


def signed_as(text: Callable[[Mapping[str, Any]], str]) -> Look:
    """See whether openssl finds the same signature for this text."""

    def look(service: Recorder, _: Result) -> bool:
        fields_ = signatures.fields(service.only)
        found: str = fields_["sign"]
        return signatures.hmac_sha256(text(fields_), SIGNING_KEY) == found

    return look


def fact(name: str) -> Look:
    """See an attribute of the answer or the error, or which point is open."""

    def look(_: Recorder, result: Result) -> Any:
        try:
            return getattr(result, name)
        except NotConfiguredError as error:
            return f"open: {error.field}"

    return look


def said(body: bytes, status: int = 200) -> tuple[Answer]:
    """Return an answer."""
    return (answer(status, body, ("X-Trace-Id", "t1")),)


def create(pay: Session) -> Awaitable[Response]:
    """Make a payment, which nothing names."""
    return pay.payments.create(amount=15, currency="USD")


def place(pay: Session, **further: Any) -> Awaitable[Response]:
    """Place an order."""
    return pay.orders.place(total_amt=15, currency="CAD", **further)


def query(pay: Session) -> Awaitable[Response]:
    """Ask for an order."""
    return pay.orders.query("T1")


def close(pay: Session) -> Awaitable[Response]:
    """Close an order."""
    return pay.orders.close("T1")


def refund(pay: Session) -> Awaitable[Response]:
    """Refund an order in part."""
    return pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=15, refund_amt=5)


def update(**changes: Any) -> Ask:
    """Return what changes a subscription."""
    return lambda pay: pay.subscriptions.update("S1", **changes)


def joined(given: Mapping[str, Any], separator: str = "&", without: Iterable[str] = ("sign",)) -> str:
    """Return the pairs of all fields, the empty ones too, in the order of their names."""
    return separator.join(f"{name}={given[name]}" for name in sorted(set(given).difference(without)))


def in_base64(service: Recorder, _: Result) -> bool:
    """See whether the signature is openssl's, in base64."""
    given = signatures.fields(service.only)
    raw = bytes.fromhex(signatures.hmac_sha256(signatures.signed_text(given), SIGNING_KEY))
    found: str = given["sign"]
    return base64.b64encode(raw).decode() == found


def by_the_bytes_of_its_digest(service: Recorder, _: Result) -> bool:
    """See whether it is signed over the 32 bytes of the SHA-256 of its text."""
    given = signatures.fields(service.only)
    digest = hashlib.sha256(joined(given).encode()).digest()
    found: str = given["sign"]
    return hmac.new(SIGNING_KEY.encode(), digest, hashlib.sha256).hexdigest() == found


SIGNED: Final = 'signature.algorithm = "hmac-sha256"\nsignature.encoding = "hex"'
DETAILS: Final = {"email": "a@example.com"}
RATED: Final = b'{"rate":1.10,"sign":"%b"}' % signatures.hmac_sha256("rate=1.10", SIGNING_KEY).encode()
"""A signed answer with a number that has more than one form."""

AUTHENTICATION: Final = (
    Effect("bearer", 'bearer = ["orders.query"]', query, header("Authorization"), (["Bearer sk_wire"], []), SIGNED),
    Effect("bearer", "bearer = []", create, header("Authorization"), ([], ["Bearer sk_wire"])),
    Effect(
        "signed",
        'signed = ["payments.create"]',
        create,
        lambda service, _: sorted({"nonceStr", "sign"} & set(signatures.fields(service.only))),
        (["nonceStr", "sign"], []),
        SIGNED,
    ),
    Effect("signed", "signed = []", query, kind, ("OrderResponse", "NotConfiguredError")),
    Effect("merchant", 'merchant = ["payments.create"]', create, sent("merchantId"), ("M1", None)),
    Effect("merchant", "merchant = []", query, sent("merchantId"), (None, "M1"), SIGNED),
    Effect("identifier", 'identifier = "[0-9]+"', query, refused, ("out_trade_no", None), SIGNED),
    Effect(
        "identifier",
        'identifier = ".+"',
        lambda pay: pay.orders.query("T 1/2"),
        refused,
        (None, "out_trade_no"),
        SIGNED,
    ),
)

SIGNATURE: Final = (
    Effect(
        "signature.algorithm",
        'signature.algorithm = "hmac-sha512"',
        query,
        lambda service, _: len(signatures.fields(service.only)["sign"]),
        (128, 64),
        'signature.encoding = "hex"',
        'signature.algorithm = "hmac-sha256"',
    ),
    Effect(
        "signature.encoding",
        'signature.encoding = "base64"',
        query,
        in_base64,
        (True, False),
        'signature.algorithm = "hmac-sha256"',
        'signature.encoding = "hex"',
    ),
    Effect(
        "signature.separator",
        'signature.separator = ";"',
        query,
        signed_as(lambda given: joined(given, ";")),
        (True, False),
        SIGNED,
    ),
    Effect(
        "signature.exclude",
        'signature.exclude = ["sign", "nonceStr"]',
        query,
        signed_as(lambda given: joined(given, without=("sign", "nonceStr"))),
        (True, False),
        SIGNED,
    ),
    Effect(
        "signature.skip_empty",
        "signature.skip_empty = false",
        lambda pay: place(pay, subject=""),
        signed_as(joined),
        (True, False),
        SIGNED,
    ),
    Effect(
        "signature.key_param",
        'signature.key_param = "key"',
        query,
        signed_as(lambda given: f"{joined(given)}&key={SIGNING_KEY}"),
        (True, False),
        SIGNED,
    ),
    Effect(
        "signature.append_path",
        "signature.append_path = true",
        query,
        signed_as(lambda given: f"{joined(given)}/payment/orderquery"),
        (True, False),
        SIGNED,
    ),
    Effect(
        "signature.prehash",
        'signature.prehash = "sha256-hex"',
        query,
        signed_as(lambda given: hashlib.sha256(joined(given).encode()).hexdigest()),
        (True, False),
        SIGNED,
    ),
    Effect(
        "signature.prehash",
        'signature.prehash = "sha256"',
        query,
        by_the_bytes_of_its_digest,
        (True, False),
        SIGNED,
    ),
    Effect(
        "signature.skip_null",
        "signature.skip_null = false",
        lambda pay: place(pay, extra={"shop": None}),
        signed_as(lambda given: joined({**given, "shop": "null"})),
        (True, False),
        SIGNED,
    ),
    Effect(
        "signature.booleans",
        'signature.booleans = "json"',
        lambda pay: place(pay, extra={"vip": True}),
        refused,
        (None, "vip"),
        SIGNED,
    ),
    Effect(
        "signature.numbers",
        'signature.numbers = "text"',
        query,
        kind,
        ("OrderResponse", "InvalidSignatureError"),
        f'{SIGNED}\nanswer.signature = "sign"\nanswer.message = "rate"',
        script=said(RATED),
    ),
    Effect(
        "signature.nested",
        'signature.nested = "omit"',
        lambda pay: pay.orders.query("T1", extra={"more": {"a": 1}}),
        signed_as(lambda given: joined(given, without=("sign", "more"))),
        (True, False),
        SIGNED,
        'signature.nested = "json"',
    ),
    Effect(
        "signature.nested",
        'signature.nested = "json"',
        lambda pay: pay.orders.query("T1", extra={"more": {"a": 1}}),
        refused,
        (None, "more"),
        SIGNED,
    ),
    Effect(
        "signature.allow_delimiters",
        'signature.allow_delimiters = ["more"]',
        lambda pay: pay.orders.query("T1", extra={"more": "a&b=c"}),
        refused,
        (None, "more"),
        SIGNED,
    ),
)

NUMBER: Final = 'fields.subscription_id = "no"'


def named(argument: str, ask: Ask, value: object, base: str = NUMBER) -> Effect:
    """Return that a wire name is used, and that without it nothing is sent."""
    line, seen = f'fields.{argument} = "theirs"', (value, f"open: fields.{argument}")
    return Effect(f"fields.{argument}", line, ask, sent("theirs"), seen, base)


NAMES: Final = (
    named("return_url", lambda pay: place(pay, return_url=PAGE), PAGE, SIGNED),
    named("subscription_id", lambda pay: pay.subscriptions.cancel("S1"), "S1", ""),
    named("frequency", update(frequency="weekly"), "weekly"),
    named("subscription_amount", update(amount=9), 9),
    named("customer", update(customer=DETAILS), DETAILS),
    named(
        "start_date", update(start_date=date(2027, 1, 31)), "2027-01-31", f'{NUMBER}\nformats.start_date = "%Y-%m-%d"'
    ),
    Effect(
        "formats.start_date",
        'formats.start_date = "%d/%m/%y"',
        update(start_date=date(2027, 1, 31)),
        sent("from"),
        ("31/01/27", "open: formats.start_date"),
        f'{NUMBER}\nfields.start_date = "from"',
    ),
    Effect('constants."*"', 'constants."*".signType = "RSA"', create, sent("signType"), ("RSA", None)),
    Effect('constants."*"', 'constants."*".signType = "RSA"', close, sent("signType"), ("RSA", None), SIGNED),
    Effect("constants.<operation>", 'constants."orders.close".why = 7', close, sent("why"), (7, None), SIGNED),
    Effect("constants.<operation>", 'constants."orders.close".why = 7', query, sent("why"), (None, None), SIGNED),
    Effect(
        "constants.<operation>",
        'constants."orders.close".why = 7',
        close,
        sent("why"),
        (7, 1),
        f'{SIGNED}\nconstants."*".why = 1',
    ),
    Effect("headers", 'headers.X-Api-Version = "2027-01"', create, header("X-Api-Version"), (["2027-01"], [])),
)

ACCEPT: Final = (
    Effect("accept.currency", 'accept.currency = ["CAD", "EUR"]', create, refused, ("currency", None)),
    Effect(
        "accept.scene_type",
        'accept.scene_type = ["H5"]',
        lambda pay: place(pay, scene_type="JSAPI"),
        refused,
        ("scene_type", None),
        SIGNED,
    ),
    Effect("accept.amount", "accept.amount = [16, 99]", create, refused, ("amount", None)),
    Effect("accept.amount", "accept.amount = [1, 14]", place, refused, ("total_amt", None), SIGNED),
    Effect("accept.amount", "accept.amount = [6, 15]", refund, refused, ("refund_amt", None), SIGNED),
    Effect(
        "accept.required", 'accept.required."orders.place" = ["subject"]', place, refused, ("subject", None), SIGNED
    ),
    Effect(
        "accept.length",
        "accept.length.subject = 3",
        lambda pay: place(pay, subject="four"),
        refused,
        ("subject", None),
        SIGNED,
    ),
)


def status(pay: Session) -> Awaitable[Response]:
    """Ask for a payment."""
    return pay.payments.status("T1")


def refund_status(pay: Session) -> Awaitable[Response]:
    """Ask for a refund."""
    return pay.refunds.status("R1")


PAYMENT: Final = f"{BASE_PATH}/payment/status"
REFUND: Final = f"{BASE_PATH}/payment/refund/status"
STATUS: Final = (
    Effect(
        "status.payment.name",
        'status.payment.name = "no"',
        status,
        target,
        (f"{PAYMENT}?no=T1", "open: payment_status"),
    ),
    Effect(
        "status.payment.place",
        'status.payment.place = "path"',
        status,
        target,
        (f"{PAYMENT}/T1", f"{PAYMENT}?no=T1"),
        'status.payment.name = "no"',
    ),
    Effect(
        "status.payment.place",
        'status.payment.place = "header"',
        status,
        header("no"),
        (["T1"], []),
        'status.payment.name = "no"',
    ),
    Effect(
        "status.refund.name",
        'status.refund.name = "no"',
        refund_status,
        target,
        (f"{REFUND}?no=R1", "open: refund_status"),
    ),
    Effect(
        "status.refund.place",
        'status.refund.place = "path"',
        refund_status,
        target,
        (f"{REFUND}/R1", f"{REFUND}?no=R1"),
        'status.refund.name = "no"',
    ),
    Effect(
        "status.refund.place",
        'status.refund.place = "header"',
        refund_status,
        header("no"),
        (["R1"], []),
        'status.refund.name = "no"',
    ),
)

CODED: Final = f'{SIGNED}\nanswer.code = "code"\nanswer.ok = ["OK"]\nstatus.refund.name = "no"'


def located(name: str, ask: Ask, base: str = SIGNED, found: str = "found") -> Effect:
    """Return that a path leads to what stands there, inside the payload, and that without it nobody looks."""
    line, seen = f'answer.{name} = "here.0"', (found, f"open: answer.{name}")
    body = said(b'{"here":["outside"],"data":{"here":["%b"]}}' % found.encode())
    return Effect(f"answer.{name}", line, ask, fact(name), seen, f'{base}\nanswer.data = "data"', script=body)


def compared(name: str, ask: Ask, path: str, ends: tuple[str, str], values: tuple[object, object]) -> Iterator[Effect]:
    """Yield what a path does to a success about another thing, and to one that does not say what it is about.

    Args:
        name: Of the key.
        ask: The call.
        path: Of its endpoint.
        ends: What it ends as where the answer is believed, and where it is not.
        values: The call's, and another one.
    """
    key, (believed, lost), (mine, other) = f"answer.{name}", ends, values
    wire = re.sub("_(.)", lambda found: found[1].upper(), name)  # where the thing is looked for without the key
    for line, told, with_it, without_it in (
        (f'{key} = "its.name"', {"its": {"name": other}}, lost, believed),
        (f'{key} = "its.name"', {"its": {"name": mine}, wire: other}, believed, lost),
        (f'{key} = "its.name"', {"its": {}}, lost, believed),
        (f'{key} = "its.name"', {"its": {"name": ""}}, lost, believed),
        (f'{key} = ""', {wire: other}, believed, lost),
        (f'{key} = "{wire}"', {}, lost, believed),
    ):
        by_path = {f"{BASE_PATH}{path}": answer(200, json.dumps({"data": told, **told}).encode())}
        base = f'{SIGNED}\nanswer.data = "data"'
        yield Effect(key, line, ask, kind, (with_it, without_it), base, by_path=by_path)


READ: Final = ("OrderResponse", "NoAnswerError")
REFUNDED: Final = ("RefundResponse", "OutcomeUnknownError")

ANSWER: Final = (
    Effect(
        "answer.data",
        'answer.data = "result.0"',
        create,
        fact("data"),
        ({"a": 1}, {"result": [{"a": 1}]}),
        script=said(b'{"result":[{"a":1}]}'),
    ),
    Effect(
        "answer.code",
        'answer.code = "head.code"',
        query,
        kind,
        ("ServiceError", "OrderResponse"),
        f'{SIGNED}\nanswer.ok = ["OK"]',
        script=said(b'{"head":{"code":"NO"}}'),
    ),
    Effect(
        "answer.ok",
        "answer.ok = [0]",
        query,
        kind,
        ("OrderResponse", "ServiceError"),
        f'{SIGNED}\nanswer.code = "code"',
        'answer.ok = ["0"]',
        script=said(b'{"code":0}'),
    ),
    Effect(
        "answer.message",
        'answer.message = "why"',
        create,
        fact("message"),
        ("too late", None),
        script=said(b'{"why":"too late"}', 400),
    ),
    Effect(
        "answer.request_id",
        'answer.request_id = "meta.id"',
        create,
        fact("request_id"),
        ("r1", None),
        script=said(b'{"meta":{"id":"r1"}}'),
    ),
    Effect(
        "answer.request_id",
        'answer.request_id = "header:x-trace-id"',
        create,
        fact("request_id"),
        ("t1", None),
        script=said(b"{}"),
    ),
    located("payment_id", create),
    located("payment_status", create),
    located("redirect_url", place),
    located("order_status", query),
    located("refund_status", refund),
    located("subscription_id", update(), NUMBER, found="S1"),
    located("subscription_status", update(), NUMBER),
    Effect(
        "answer.signature",
        'answer.signature = "data.sign"',
        query,
        kind,
        ("InvalidSignatureError", "OrderResponse"),
        f'{SIGNED}\nanswer.order_status = "data.state"',
        script=said(b'{"data":{"sign":"00"}}'),
    ),
    *compared("out_trade_no", query, "/payment/orderquery", READ, ("T1", "T2")),
    *compared("out_refund_no", refund, "/payment/refund", REFUNDED, ("R1", "R2")),
    *compared("total_amt", refund, "/payment/refund", REFUNDED, (15, 14)),
    *compared("refund_amt", refund, "/payment/refund", REFUNDED, ("5", "4")),
    *compared("currency", place, "/payment/unifiedorder", ("OrderResponse", "OutcomeUnknownError"), ("cad", "USD")),
    *compared("merchant_id", query, "/payment/orderquery", READ, ("M1", "M2")),
)

THINGS: Final[dict[str, tuple[Ask, tuple[str, ...]]]] = {
    "order": (query, ORDER_STATES),
    "payment": (create, ORDER_STATES),
    "refund": (refund, REFUND_STATES),
    "subscription": (update(), SUBSCRIPTION_STATES),
}
STATES: Final = tuple(
    Effect(
        f"states.{thing}.{state}",
        f'states.{thing}.{state} = ["A", 7]',
        ask,
        fact("state"),
        (state, None),
        f'{SIGNED}\n{NUMBER}\nanswer.{thing}_status = "is"',
        script=said(body),
    )
    for thing, (ask, states) in THINGS.items()
    for state in states
    for body in (b'{"is":"A"}', b'{"is":7}')
)

ODD: Final = b'{"code":"ODD"}'
LOST: Final = ("OutcomeUnknownError", ["refund", "status"])
AGAIN: Final = ("RefundResponse", ["refund", "status", "refund"])
DONE: Final = answer(200, b'{"code":"OK"}')

NONE: Final = b'{"code":"NONE"}'
BY_SIGNATURE: Final = (
    f'{CODED}\nanswer.signature = "sign"\ncodes.not_executed = ["ODD"]\ncodes.absent = ["NONE"]\n'
    "recovery.quarantine = 0"
)
REFUSED: Final = ("ServiceError", ["refund"])
SENT_AGAIN: Final = ("ServiceError", ["refund", "status", "refund"])
"""What was refused the second time was sent a second time."""

MEANINGS: Final = (
    # A refusal that nobody signed: not taken where refusals are signed, and taken else.
    Effect(
        "answer.refusals_signed",
        "answer.refusals_signed = true",
        refund,
        course,
        (LOST, REFUSED),
        BY_SIGNATURE,
        script=(*said(ODD), *said(ODD)),
    ),
    Effect(
        "answer.refusals_signed",
        "answer.refusals_signed = false",
        refund,
        course,
        (REFUSED, LOST),
        BY_SIGNATURE,
        "answer.refusals_signed = true",
        script=(*said(ODD), *said(ODD)),
    ),
    # A "not found" that nobody signed is final only where refusals are said not to be signed.
    Effect(
        "answer.refusals_signed",
        "answer.refusals_signed = false",
        refund,
        course,
        (SENT_AGAIN, LOST),
        BY_SIGNATURE,
        script=(RESET, *said(NONE), *said(ODD)),
    ),
    Effect(
        "answer.refusals_signed",
        "answer.refusals_signed = true",
        refund,
        course,
        (LOST, SENT_AGAIN),
        BY_SIGNATURE,
        "answer.refusals_signed = false",
        script=(RESET, *said(NONE), *said(ODD)),
    ),
    Effect(
        "http.duplicate",
        "http.duplicate = [410]",
        refund,
        course,
        (("DuplicateError", ["refund"]), ("RefundResponse", ["refund", "status"])),
        CODED,
        script=(*said(b"{}", 410), DONE),
    ),
    Effect(
        "http.duplicate",
        "http.duplicate = [410]",
        refund,
        course,
        (("RefundResponse", ["refund", "status"]), ("DuplicateError", ["refund"])),
        CODED,
        script=(*said(b"{}", 409), DONE),
    ),
    Effect(
        "codes.not_executed",
        'codes.not_executed = ["ODD"]',
        create,
        course,
        (("ServiceError", ["payments"]), ("OutcomeUnknownError", ["payments"])),
        CODED,
        script=said(ODD),
    ),
    Effect(
        "codes.retryable",
        'codes.retryable = ["ODD"]',
        query,
        course,
        (("OrderResponse", ["orderquery"] * 2), ("ServiceError", ["orderquery"])),
        CODED,
        script=(*said(ODD), DONE),
    ),
    Effect(
        "codes.duplicate",
        'codes.duplicate = ["ODD"]',
        refund,
        course,
        (("DuplicateError", ["refund"]), ("RefundResponse", ["refund", "status"])),
        CODED,
        script=(*said(ODD), DONE),
    ),
    Effect(
        "codes.absent",
        'codes.absent = ["ODD"]',
        refund,
        course,
        (AGAIN, LOST),
        f"{CODED}\nrecovery.quarantine = 0",
        script=(RESET, *said(ODD), DONE),
    ),
    Effect(
        "http.not_executed",
        "http.not_executed = [418]",
        create,
        course,
        (("ServiceError", ["payments"]), ("OutcomeUnknownError", ["payments"])),
        script=said(b"{}", 418),
    ),
    Effect(
        "http.not_executed",
        "http.not_executed = [418]",
        create,
        course,
        (("OutcomeUnknownError", ["payments"]), ("ServiceError", ["payments"])),
        script=said(b"{}", 400),
    ),
    Effect(
        "http.absent",
        "http.absent = [404]",
        refund,
        course,
        (AGAIN, LOST),
        f"{CODED}\nrecovery.quarantine = 0",
        script=(RESET, *said(b"{}", 404), DONE),
    ),
    Effect(
        "http.rate_limit_precedes_execution",
        "http.rate_limit_precedes_execution = true",
        create,
        course,
        (("PaymentResponse", ["payments"] * 2), ("OutcomeUnknownError", ["payments"])),
        script=said(b"{}", 429),
    ),
    Effect(
        "recovery.quarantine",
        "recovery.quarantine = 0",
        refund,
        course,
        (AGAIN, LOST),
        f'{CODED}\ncodes.absent = ["ODD"]',
        script=(RESET, *said(ODD), DONE),
    ),
    Effect(
        "recovery.quarantine",
        "recovery.quarantine = 60.0",
        refund,
        course,
        (LOST, AGAIN),
        f'{CODED}\ncodes.absent = ["ODD"]',
        "recovery.quarantine = 0",
        script=(RESET, *said(ODD), DONE),
    ),
)

EFFECTS: Final = (
    *AUTHENTICATION,
    *SIGNATURE,
    *NAMES,
    *ACCEPT,
    *STATUS,
    *ANSWER,
    *STATES,
    *MEANINGS,
)


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: effect.key)
async def test_effect(effect: Effect) -> None:
    """With its line the key has its effect, and without it none: nobody ignores what a profile says."""
    with_it, without_it = await effect.shown(effect.line), await effect.shown(effect.other)

    assert effect.seen == (with_it, without_it)


PARTS: Final[Mapping[str, type[Any]]] = {
    "signature": SortedPairs,
    "accept": Accept,
    "answer": AnswerShape,
    "codes": ResultCodes,
    "http": HttpCodes,
    "recovery": Recovery,
}
ELSEWHERE: Final = {"name", "amount_unit", "notification"}
"""Two are for people, so no service sees them; the keys of notifications are all in tests/notifications."""


def keys_of(each: "Attribute[Any]") -> Iterator[str]:
    """Yield the keys of one argument of a profile, as TOML writes them."""
    match each.name:
        case "payment_status" | "refund_status":
            thing = each.name.removesuffix("_status")
            yield from (f"status.{thing}.{inner.name}" for inner in fields(Parameter))
        case "fields":
            yield from (f"fields.{name}" for name in OPEN_FIELDS)
        case "formats":
            yield "formats.start_date"
        case "constants":
            yield from ('constants."*"', "constants.<operation>")
        case "states":
            yield from (f"states.{part.name}.{state}" for part in fields(States) for state in THINGS[part.name][1])
        case name if name in PARTS:
            yield from (f"{name}.{inner.name}" for inner in fields(PARTS[name]))
        case name:
            yield name


def test_no_key_is_forgotten() -> None:
    """Each key that a profile knows is in the table above."""
    known = {key for each in fields(Profile) if each.name not in ELSEWHERE for key in keys_of(each)}

    assert sorted(known) == sorted({effect.key for effect in EFFECTS})


def test_name_of_the_sandbox_stays_on_this_machine() -> None:
    """A name is for people, but one: what calls itself the sandbox is sent to nobody else."""
    line = 'name = "payasync-sandbox"'
    Session("https://pay.example", credentials=CREDENTIALS, profile=Profile.from_toml('name = "quay"'))

    with pytest.raises(ConfigurationError) as caught:
        Session("https://pay.example", credentials=CREDENTIALS, profile=Profile.from_toml(line))

    assert "profile" == caught.value.field
