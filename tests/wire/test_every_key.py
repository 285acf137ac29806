"""Every key of a profile has an effect: the same call is made with and without its line, over real HTTP."""

import base64
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import date
from typing import Any, Final

from attrs import Attribute, field, fields, frozen

from payasync import Profile, RetryPolicy, Session
from payasync.endpoints import ORDER_STATES, REFUND_STATES, SUBSCRIPTION_STATES
from payasync.errors import NotConfiguredError, PayasyncError
from payasync.profile import Accept, AnswerShape, Auth, HttpCodes, Idempotency, Parameter, Recovery, States
from payasync.profile.schema import CODE_LISTS, OPEN_FIELDS
from payasync.signing import SortedPairs
from payasync.wire.response import Response
from tests.foreign import signatures
from tests.foreign.certificates import trusting_tls
from tests.foreign.recorder import RESET, Answer, Recorder, answer
from tests.wire.ten import CREDENTIALS, SIGNING_KEY

FAST: Final = RetryPolicy(base_delay=0.001, max_delay=0.002)
TLS: Final = trusting_tls()
"""Made once: making the default one takes longer than a call."""
BASE_PATH: Final = "/gate"
ALGORITHM, HEX = 'signature.algorithm = "hmac-sha256"', 'signature.encoding = "hex"'
SIGNED: Final = f"{ALGORITHM}\n{HEX}"
NUMBER: Final = 'fields.subscription_id = "no"'

Ask = Callable[[Session], Awaitable[Response]]
Result = Response | PayasyncError
Look = Callable[[Recorder, Result], Any]


@frozen
class Effect:
    """The effect of one key.

    Attributes:
        line: The line of TOML that gives the key.
        ask: The call to make.
        look: Returns what is compared, from the service and the result of the call.
        seen: The expected values with the line and without it.
        base: Lines that both profiles have.
        other: The line in the second profile, if the key cannot be missing.
        script: The first responses of the service; later ones are successes.
        by_path: Fixed responses by path.
    """

    line: str
    ask: Ask
    look: Look
    seen: tuple[Any, Any]
    base: str = SIGNED
    other: str = ""
    script: tuple[Answer, ...] = ()
    by_path: Mapping[str, Answer] = field(factory=dict)

    @property
    def key(self) -> str:
        """The key, as TOML writes it."""
        return self.line.partition(" = ")[0]

    async def shown(self, line: str) -> Any:
        """Make the call with a profile of these lines, and return what `look` sees."""
        with Recorder(self.script, by_path=self.by_path) as service:
            profile = Profile.from_toml(f"{self.base}\n{line}")
            url = service.url + BASE_PATH
            async with Session(url, credentials=CREDENTIALS, profile=profile, retry=FAST, tls=TLS) as pay:
                try:
                    result: Result = await self.ask(pay)
                except PayasyncError as error:
                    result = error
        return self.look(service, result)


def kind(_: Recorder, result: Result) -> str:
    """Return the type of the result."""
    return type(result).__name__


def course(service: Recorder, result: Result) -> tuple[str, list[str]]:
    """Return the type of the result, and the last segments of the requested paths."""
    return kind(service, result), [request.path.rpartition("/")[2] for request in service.requests]


def refused(service: Recorder, result: Result) -> str | None:
    """Return the field that was refused before anything was sent, or `None`."""
    name = getattr(result, "field", None)
    assert (name is None) == bool(service.connections)
    return name


def sent(name: str) -> Look:
    """Return a function that finds a field of the request, or the open point."""

    def look(service: Recorder, result: Result) -> Any:
        if isinstance(result, NotConfiguredError):
            return f"open: {result.field}"
        return signatures.fields(service.only).get(name)

    return look


def header(name: str) -> Look:
    """Return a function that finds a header of the request."""
    return lambda service, _: service.only.header(name)


def method(service: Recorder, _: Result) -> str:
    """Return the method of the request."""
    return service.only.method


def target(service: Recorder, result: Result) -> str | None:
    """Return the target of the request, or the open point."""
    return f"open: {result.field}" if isinstance(result, NotConfiguredError) else service.only.target


def fact(name: str) -> Look:
    """Return a function that finds an attribute of the response or the error, or the open point."""

    def look(_: Recorder, result: Result) -> Any:
        try:
            return getattr(result, name)
        except NotConfiguredError as error:
            return f"open: {error.field}"

    return look


def said(body: bytes, status: int = 200) -> tuple[Answer]:
    """Return a script of one response."""
    return (answer(status, body),)


def reads(line: str, ask: Ask, name: str, seen: tuple[Any, Any], body: bytes, **facts: Any) -> Effect:
    """Return the effect on an attribute of the response or the error to a body."""
    return Effect(line, ask, fact(name), seen, facts.get("base", SIGNED), script=said(body, facts.get("status", 200)))


def create(pay: Session) -> Awaitable[Response]:
    """Make a payment, which has no number of the merchant."""
    return pay.payments.create(amount=15, currency="USD")


def place(**further: Any) -> Ask:
    """Return a function that places an order."""
    return lambda pay: pay.orders.place(total_amt=15, currency="CAD", **further)


def query(pay: Session) -> Awaitable[Response]:
    """Query an order."""
    return pay.orders.query("T1")


def nested(value: object) -> Ask:
    """Return a function that queries an order with a further field."""
    return lambda pay: pay.orders.query("T1", extra={"more": value})


def close(pay: Session) -> Awaitable[Response]:
    """Close an order."""
    return pay.orders.close("T1")


def refund(pay: Session) -> Awaitable[Response]:
    """Refund an order in part."""
    return pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=15, refund_amt=5)


def update(**changes: Any) -> Ask:
    """Return a function that updates a subscription."""
    return lambda pay: pay.subscriptions.update("S1", **changes)


def status(pay: Session) -> Awaitable[Response]:
    """Query a payment."""
    return pay.payments.status("T1")


def refund_status(pay: Session) -> Awaitable[Response]:
    """Query a refund."""
    return pay.refunds.status("R1")


def of_order(pay: Session) -> Awaitable[Response]:
    """Query a refund of an order."""
    return pay.refunds.status("R1", out_trade_no="T1")


def joined(given: Mapping[str, Any], separator: str = "&", without: tuple[str, ...] = ("sign",)) -> str:
    """Return all fields, empty ones included, as sorted pairs."""
    return separator.join(f"{name}={given[name]}" for name in sorted(set(given).difference(without)))


def signs(line: str, ask: Ask, text: Callable[[Mapping[str, Any]], str], **facts: Any) -> Effect:
    """Return the effect that the signature covers this text with the line, and not without it."""

    def look(service: Recorder, _: Result) -> bool:
        given = signatures.fields(service.only)
        found: str = given["sign"]
        return signatures.hmac_sha256(text(given), SIGNING_KEY) == found

    return Effect(line, ask, look, (True, False), **facts)


def length(service: Recorder, _: Result) -> int:
    """Return how long the signature is."""
    return len(signatures.fields(service.only)["sign"])


def in_base64(service: Recorder, _: Result) -> bool:
    """Return whether the signature is that of `openssl`, in base64."""
    given = signatures.fields(service.only)
    raw = bytes.fromhex(signatures.hmac_sha256(signatures.signed_text(given), SIGNING_KEY))
    found: str = given["sign"]
    return base64.b64encode(raw).decode() == found


RATED: Final = b'{"rate":1.10,"sign":"%b"}' % signatures.hmac_sha256("rate=1.10", SIGNING_KEY).encode()
"""A signed answer with a number that has more than one form."""

SIGNING: Final = (
    Effect('bearer = ["orders.query"]', query, header("Authorization"), (["Bearer sk_wire"], [])),
    Effect('auth.header = "X-Api-Key"', create, header("X-Api-Key"), (["Bearer sk_wire"], [])),
    Effect('auth.value = "{merchant_id}"', create, header("Authorization"), (["M1"], ["Bearer sk_wire"])),
    Effect('auth.headers.X-Merchant = "no {merchant_id}"', create, header("X-Merchant"), (["no M1"], [])),
    Effect("signed = []", query, kind, ("OrderResponse", "NotConfiguredError"), ""),
    Effect('merchant = ["payments.create"]', create, sent("merchantId"), ("M1", None)),
    Effect('identifier = "[0-9]+"', query, refused, ("out_trade_no", None)),
    Effect('signature.algorithm = "hmac-sha512"', query, length, (128, 64), HEX, ALGORITHM),
    Effect('signature.encoding = "base64"', query, in_base64, (True, False), ALGORITHM, HEX),
    signs('signature.separator = ";"', query, lambda given: joined(given, ";")),
    signs('signature.exclude = ["sign", "nonceStr"]', query, lambda given: joined(given, "&", ("sign", "nonceStr"))),
    signs("signature.skip_empty = false", place(subject=""), joined),
    signs('signature.key_param = "key"', query, lambda given: f"{joined(given)}&key={SIGNING_KEY}"),
    signs("signature.append_path = true", query, lambda given: f"{joined(given)}/payment/orderquery"),
    signs('signature.prehash = "sha256-hex"', query, lambda given: hashlib.sha256(joined(given).encode()).hexdigest()),
    signs("signature.skip_null = false", nested(None), lambda given: joined({**given, "more": "null"})),
    signs(
        'signature.nested = "omit"',
        nested({"a": 1}),
        lambda given: joined(given, "&", ("sign", "more")),
        other='signature.nested = "json"',
    ),
    Effect('signature.booleans = "json"', nested(value=True), refused, (None, "more")),
    Effect('signature.allow_delimiters = ["more"]', nested("a&b=c"), refused, (None, "more")),
    Effect(
        'signature.numbers = "text"',
        query,
        kind,
        ("OrderResponse", "InvalidSignatureError"),
        f'{SIGNED}\nanswer.signature = "sign"\nanswer.message = "rate"',
        script=said(RATED),
    ),
)


def named(argument: str, ask: Ask, value: object, base: str = NUMBER) -> Effect:
    """Return the effect that a wire name is used with the line, and that nothing is sent without it."""
    return Effect(f'fields.{argument} = "theirs"', ask, sent("theirs"), (value, f"open: fields.{argument}"), base)


def renamed(argument: str, ask: Ask, value: object, shown: str) -> Effect:
    """Return the effect that a wire name replaces the one that the document shows."""

    def look(service: Recorder, _: Result) -> Any:
        given = signatures.fields(service.only)
        return {name: given[name] for name in ("theirs", shown) if name in given}

    return Effect(f'fields.{argument} = "theirs"', ask, look, ({"theirs": value}, {shown: value}))


KEY_OF_R1: Final = "payasync-" + base64.urlsafe_b64encode(
    hashlib.sha256(b'["M1", "refunds.create", "refunds.create:R1", 0]').digest()[:16]
).decode().rstrip("=")
"""The idempotency key of M1's refund R1: the number itself is not in it."""
DATED: Final = f'{NUMBER}\nfields.start_date = "a"'
URL: Final = f'{SIGNED}\nanswer.redirect_url = "url"'
OF_PAYMENT: Final = 'status.payment.name = "no"'
OF_REFUND: Final = 'status.refund.name = "no"'
PAGE: Final = "https://shop.example/thanks"
DETAILS: Final = {"email": "a@example.com"}
DAY: Final = date(2027, 1, 31)
POSTED: Final = f'{OF_REFUND}\nendpoints."refunds.status".method = "POST"'
ORDER: Final = f"{BASE_PATH}/payment/orderquery"
PAYMENT: Final = f"{BASE_PATH}/payment/status"
REFUND: Final = f"{BASE_PATH}/payment/refund/status"
PAYMENT_T1, REFUND_R1 = f"{PAYMENT}?no=T1", f"{REFUND}?no=R1"
M1_T1: Final = f"{BASE_PATH}/M1/T1"
OF_T1: Final = f"{REFUND_R1}&outTradeNo=T1"
IN_BODY: Final = 'endpoints."refunds.status".place = "body"'

SENDING: Final = (
    named("return_url", place(return_url=PAGE), PAGE, SIGNED),
    named("subscription_id", lambda pay: pay.subscriptions.cancel("S1"), "S1", ""),
    named("frequency", update(frequency="weekly"), "weekly"),
    named("subscription_amount", update(amount=9), 9),
    named("customer", update(customer=DETAILS), DETAILS),
    named("start_date", update(start_date=DAY), "2027-01-31", f'{NUMBER}\nformats.start_date = "%Y-%m-%d"'),
    Effect('formats.start_date = "%Y"', update(start_date=DAY), sent("a"), ("2027", "open: formats.start_date"), DATED),
    Effect('constants."*".signType = "RSA"', create, sent("signType"), ("RSA", None)),
    Effect('constants."orders.close".why = 7', close, sent("why"), (7, 1), f'{SIGNED}\nconstants."*".why = 1'),
    Effect('headers.X-Api-Version = "2027-01"', create, header("X-Api-Version"), (["2027-01"], [])),
    Effect('accept.currency = ["CAD", "EUR"]', create, refused, ("currency", None)),
    Effect('accept.scene_type = ["H5"]', place(scene_type="JSAPI"), refused, ("scene_type", None)),
    Effect("accept.amount = [6, 15]", refund, refused, ("refund_amt", None)),
    Effect('accept.required."orders.place" = ["subject"]', place(), refused, ("subject", None)),
    Effect("accept.length.subject = 3", place(subject="four"), refused, ("subject", None)),
    reads(
        'accept.redirect_schemes = ["upi"]', place(), "redirect_url", ("upi://a", None), b'{"url":"upi://a"}', base=URL
    ),
    Effect(OF_PAYMENT, status, target, (PAYMENT_T1, "open: payment_status")),
    Effect(OF_REFUND, refund_status, target, (REFUND_R1, "open: refund_status")),
    Effect('status.payment.place = "path"', status, target, (f"{PAYMENT}/T1", PAYMENT_T1), OF_PAYMENT),
    Effect('status.refund.place = "header"', refund_status, header("no"), (["R1"], []), OF_REFUND),
    Effect('status.refund.place = "query"', refund_status, target, (REFUND_R1, REFUND), POSTED),
    Effect('endpoints."orders.close".method = "DELETE"', close, method, ("DELETE", "POST")),
    Effect('endpoints."orders.query".path = "/{merchant_id}/{out_trade_no}"', query, target, (M1_T1, ORDER)),
    Effect('endpoints."orders.query".path = "/orders/{out_trade_no}"', query, sent("outTradeNo"), (None, "T1")),
    Effect(IN_BODY, refund_status, target, (REFUND, REFUND_R1), POSTED, IN_BODY.replace("body", "query")),
    Effect('endpoints."refunds.status".with = ["out_trade_no"]', of_order, target, (OF_T1, REFUND_R1), OF_REFUND),
    renamed("total_amt", refund, 15, "totalAmt"),
    renamed("subject", place(subject="x"), "x", "subject"),
    renamed("merchant_id", query, "M1", "merchantId"),
    Effect('fields."payments.create".amount = "sum"', create, sent("sum"), (15, None)),
)


def located(name: str, ask: Ask, base: str = SIGNED, found: str = "found") -> Effect:
    """Return the effect that a value is found at a path in the payload, and that it is open without the line."""
    line, seen = f'answer.{name} = "here.0"', (found, f"open: answer.{name}")
    body = said(b'{"here":["outside"],"data":{"here":["%b"]}}' % found.encode())
    return Effect(line, ask, fact(name), seen, f'{base}\nanswer.data = "data"', script=body)


def ended_as(line: str, ask: Ask, seen: tuple[str, str], body: bytes, base: str, *, other: str = "") -> Effect:
    """Return the effect on the type with which a call ends."""
    return Effect(line, ask, kind, seen, f"{SIGNED}\n{base}", other, said(body))


def compared(name: str, ask: Ask, path: str, ends: tuple[str, str], other: object) -> Effect:
    """Return the effect that a success about another thing, as named at this path, is refused."""
    by_path = {f"{BASE_PATH}{path}": answer(200, json.dumps({"its": {"name": other}}).encode())}
    return Effect(f'answer.{name} = "its.name"', ask, kind, ends, by_path=by_path)


CODED_IN_FAILURES: Final = 'answer.code = "error.code"\nanswer.ok = ["OK"]'
TAKEN, REJECTED, FORGED = "OrderResponse", "ServiceError", "InvalidSignatureError"
OLD: Final = b'{"data":{"state":"PAID"}}'
STATED: Final = 'answer.order_status = "data.state"'
READ: Final = ("NoAnswerError", "OrderResponse")
REFUNDED: Final = ("OutcomeUnknownError", "RefundResponse")
PLACED: Final = ("OutcomeUnknownError", "OrderResponse")

UNDERSTANDING: Final = (
    reads('answer.data = "a.0"', create, "data", ({"b": 1}, {"a": [{"b": 1}]}), b'{"a":[{"b":1}]}'),
    ended_as('answer.code = "h.code"', query, (REJECTED, TAKEN), b'{"h":{"code":"NO"}}', 'answer.ok = ["OK"]'),
    ended_as(
        "answer.ok = [0]", query, (TAKEN, REJECTED), b'{"code":0}', 'answer.code = "code"', other='answer.ok = ["0"]'
    ),
    ended_as("answer.code_optional = true", query, (TAKEN, "NoAnswerError"), b'{"a":1}', CODED_IN_FAILURES),
    reads(
        'answer.redirect_template = "https://pay.example/{gate.no}?amount={totalAmt}"',
        place(),
        "redirect_url",
        ("https://pay.example/G%201?amount=15", "open: answer.redirect_url"),
        b'{"gate":{"no":"G 1"}}',
    ),
    reads('answer.message = ["why", "a.0"]', create, "message", ("late", None), b'{"a":["late"]}', status=400),
    reads('answer.request_id = "m.id"', create, "request_id", ("r1", None), b'{"m":{"id":"r1"}}'),
    located("payment_id", create),
    located("payment_status", create),
    located("redirect_url", place(), found="https://pay.example/1"),
    located("order_status", query),
    located("refund_status", refund),
    located("subscription_id", update(), NUMBER, found="S1"),
    located("subscription_status", update(), NUMBER),
    ended_as('answer.signature = "data.sign"', query, (FORGED, TAKEN), b'{"data":{"sign":"00"}}', STATED),
    ended_as('answer.header.signature = "X-Sign"', query, (FORGED, TAKEN), b"{}", STATED),
    Effect(
        "answer.tolerance = 9999999999",
        query,
        kind,
        (TAKEN, FORGED),
        f'{SIGNED}\n{STATED}\nanswer.header = {{signature = "X", timestamp = "T", text = "{{timestamp}}{{body}}"}}',
        script=(answer(200, OLD, ("X", signatures.hmac_sha256(f"1{OLD.decode()}", SIGNING_KEY)), ("T", "1")),),
    ),
    Effect(
        'answer.amounts = "major"',
        refund,
        kind,
        (REFUNDED[1], REFUNDED[0]),
        by_path={f"{BASE_PATH}/payment/refund": answer(200, b'{"totalAmt":"0.15"}')},
    ),
    ended_as("answer.must = {live = true}", query, READ, b'{"live":false}', ""),
    compared("out_trade_no", query, "/payment/orderquery", READ, "T2"),
    compared("merchant_id", query, "/payment/orderquery", READ, "M2"),
    compared("out_refund_no", refund, "/payment/refund", REFUNDED, "R2"),
    compared("total_amt", refund, "/payment/refund", REFUNDED, 14),
    compared("refund_amt", refund, "/payment/refund", REFUNDED, "4"),
    compared("currency", place(), "/payment/unifiedorder", PLACED, "USD"),
)

THINGS: Final[dict[str, tuple[Ask, tuple[str, ...]]]] = {
    "order": (query, ORDER_STATES),
    "payment": (create, ORDER_STATES),
    "refund": (refund, REFUND_STATES),
    "subscription": (update(), SUBSCRIPTION_STATES),
}
STATED_BY: Final = f'{SIGNED}\n{NUMBER}\nanswer.{{}}_status = "is"'
STATES: Final = tuple(
    reads(f'states.{thing}.{state} = ["A"]', ask, "state", (state, None), b'{"is":"A"}', base=STATED_BY.format(thing))
    for thing, (ask, states) in THINGS.items()
    for state in states
)

CODED: Final = f'{SIGNED}\nanswer.code = "code"\nanswer.ok = ["OK"]\nstatus.refund.name = "outRefundNo"'
ODD: Final = b'{"code":"ODD"}'
OTHER: Final = b'{"code":"OTHER"}'
DONE: Final = answer(200, b'{"code":"OK"}')

DECLINED: Final = "refused before it was done"
REFUSED: Final = ("ServiceError", ["refund"])
USED: Final = ("DuplicateError", ["refund"])
LOST: Final = ("OutcomeUnknownError", ["refund", "status"])
FOUND: Final = ("RefundResponse", ["refund", "status"])
LATE: Final = ("ServiceError", ["refund", "status", "refund"])
AGAIN: Final = ("RefundResponse", ["refund", "status", "refund"])
NOT_PAID: Final = ("ServiceError", ["payments"])
BARRED: Final = ("AuthenticationError", NOT_PAID[1])
PERHAPS_PAID: Final = ("OutcomeUnknownError", ["payments"])
PAID: Final = ("PaymentResponse", ["payments"] * 2)
QUERIED: Final = ("OrderResponse", ["orderquery"] * 2)


def means(
    line: str, ask: Ask, with_it: object, without_it: object, *script: Answer, base: str = CODED, **facts: Any
) -> Effect:
    """Return the effect on the type of the result and the requests that follow a response."""
    return Effect(line, ask, course, (with_it, without_it), base=base, script=script, **facts)


BY_SIGNATURE: Final = f'{CODED}\nanswer.signature = "sign"\ncodes.not_executed = ["NO"]'
UNCODED: Final = f"{SIGNED}\nhttp.uncoded = [429]"
ABSENT: Final = f'{CODED}\ncodes.absent = ["ODD"]'
UNVOUCHED: Final = f'{ABSENT}\nanswer.signature = "sign"\nrecovery.quarantine = 0\nhttp.not_executed = [418]'
AT_ONCE: Final = f"{CODED}\nrecovery.quarantine = 0"
UNSIGNED_NO: Final = (*said(b'{"code":"NO"}'), *said(b'{"code":"NO"}'))

MEANINGS: Final = (
    # A refusal that nobody signed counts unless refusals are signed; a "not found" only where they are not.
    means("answer.refusals_signed = true", refund, LOST, REFUSED, *UNSIGNED_NO, base=BY_SIGNATURE),
    means("answer.refusals_signed = false", refund, LATE, LOST, RESET, *said(ODD), *said(ODD, 418), base=UNVOUCHED),
    means("http.duplicate = [410]", refund, USED, FOUND, *said(OTHER, 410), DONE),
    means("http.not_executed = [418]", create, NOT_PAID, PERHAPS_PAID, *said(OTHER, 418)),
    means("http.not_executed = [418]", create, PERHAPS_PAID, NOT_PAID, *said(OTHER, 400)),
    means("http.unauthenticated = [401]", create, NOT_PAID, BARRED, *said(OTHER, 403)),
    reads("http.absent = [404]", query, "reason", ("not found", DECLINED), OTHER, base=CODED, status=404),
    means("http.uncoded = [400]", create, NOT_PAID, PERHAPS_PAID, *said(b"<html>", 400)),
    means("http.rate_limit_precedes_execution = true", create, PAID, PERHAPS_PAID, *said(b"{}", 429), base=UNCODED),
    means('codes.not_executed = ["ODD"]', create, NOT_PAID, PERHAPS_PAID, *said(ODD)),
    means('codes.unauthenticated = ["ODD"]', create, BARRED, PERHAPS_PAID, *said(ODD)),
    means('codes.retryable = ["ODD"]', query, QUERIED, ("ServiceError", ["orderquery"]), *said(ODD), DONE),
    means('codes.duplicate = ["ODD"]', refund, USED, FOUND, *said(ODD), DONE),
    means('codes.absent = ["ODD"]', refund, AGAIN, LOST, RESET, *said(ODD), DONE, base=AT_ONCE),
    means('codes."refunds.create".not_executed = ["ODD"]', refund, REFUSED, FOUND, *said(ODD), DONE),
    means('codes."refunds.create".not_executed = ["ODD"]', create, PERHAPS_PAID, PERHAPS_PAID, *said(ODD)),
    Effect('idempotency.header = "Idempotency-Key"', refund, header("Idempotency-Key"), ([KEY_OF_R1], [])),
    Effect('idempotency.field = "key"', refund, sent("key"), (KEY_OF_R1, None)),
    means("idempotency.lifetime = 0", create, PERHAPS_PAID, PAID, RESET, base='idempotency.header = "Key"'),
    means("recovery.quarantine = 0", refund, AGAIN, LOST, RESET, *said(ODD), DONE, base=ABSENT),
)

EFFECTS: Final = (*SIGNING, *SENDING, *UNDERSTANDING, *STATES, *MEANINGS)


async def test_effect() -> None:
    """A call behaves as the table of effects says, with the line of the key and without it."""
    for effect in EFFECTS:
        with_it, without_it = await effect.shown(effect.line), await effect.shown(effect.other)

        assert effect.seen == (with_it, without_it)


PARTS: Final[Mapping[str, type[Any]]] = {
    "signature": SortedPairs,
    "auth": Auth,
    "accept": Accept,
    "answer": AnswerShape,
    "http": HttpCodes,
    "recovery": Recovery,
    "idempotency": Idempotency,
}
ELSEWHERE: Final = {"name", "amount_unit", "notification", "sandbox"}
"""Two are for people, so no service sees them; a session ignores the sandbox's; tests/notifications tests the rest."""
OF_KEYS: Final = {"signature.min_rsa_bits", "signature.service_key"}
"""What a key must be, and whose it is, which no service sees: tests/profile tests both."""


def keys_of(each: "Attribute[Any]") -> Iterator[str]:
    """Yield the TOML keys of one argument of a profile."""
    match each.name:
        case "payment_status" | "refund_status":
            thing = each.name.removesuffix("_status")
            yield from (f"status.{thing}.{inner.name}" for inner in fields(Parameter))
        case "fields":
            yield from (f"fields.{name}" for name in OPEN_FIELDS)
        case "states":
            yield from (f"states.{part.name}.{state}" for part in fields(States) for state in THINGS[part.name][1])
        case "codes":
            yield from (f"codes.{name}" for name in (*CODE_LISTS, '"refunds.create"'))
        case name if name in PARTS:
            yield from (f"{name}.{inner.name}" for inner in fields(PARTS[name]))
        case name:
            yield name


def test_no_key_is_forgotten() -> None:
    """The table of effects has each key of a profile, or a key below it."""
    known = {key for each in fields(Profile) if each.init and each.name not in ELSEWHERE for key in keys_of(each)}
    shown = {effect.key for effect in EFFECTS}

    assert [] == sorted(key for key in known - OF_KEYS if not any(f"{each}.".startswith(f"{key}.") for each in shown))
