"""The audit of a profile: which open points of the service's document it answers, and which stay open."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

from attrs import fields, frozen

from payasync.endpoints import OPERATIONS, Auth, camel_case, names_with
from payasync.profile.schema import OPEN_FIELDS, Accept, AnswerShape, HttpCodes, States
from payasync.signing.schemes import SortedPairs

if TYPE_CHECKING:
    from payasync.profile.profile import Profile

Status = Literal["answered", "assumed", "open"]


@frozen
class Point:
    """One point that the document leaves open.

    Attributes:
        name: The profile's field, such as `fields.return_url`.
        status: `answered` by the profile, `assumed` by a convention of HTTP or of payasync, or `open`.
        needed_by: The methods that fail without the point, or are less safe, or return less.
        value: The answer, the assumption, or `None`.
        means: The value to give, or what is assumed.
    """

    name: str
    status: Status
    needed_by: tuple[str, ...]
    value: Any
    means: str


_SUBSCRIBING: Final = ("subscriptions.create", "subscriptions.update")
_REFUNDING: Final = ("refunds.create", "refunds.status")
_NEEDED_BY: Final = {
    "return_url": ("orders.place",),
    "frequency": _SUBSCRIBING,
    "start_date": _SUBSCRIBING,
    "subscription_amount": _SUBSCRIBING,
    "customer": _SUBSCRIBING,
    "subscription_id": ("subscriptions.update", "subscriptions.cancel"),
}
_ALL: Final = tuple(operation.name for operation in OPERATIONS)
_WRITES_WITH_A_NUMBER: Final = ("orders.place", "refunds.create")

_ANSWER: Final = {
    "data": (_ALL, "the path of the payload inside an envelope; without it, the whole document is"),
    "message": (_ALL, "the path of the service's words"),
    "request_id": (_ALL, "the path, or `header:` and the name, of the service's number of a request"),
    "payment_id": (("payments.create", "payments.status"), "the path of the service's number of a payment"),
    "payment_status": (("payments.create", "payments.status"), "the path of a payment's state"),
    "redirect_url": (("orders.place",), "the path of the address that the customer goes to"),
    "order_status": (("orders.place", "orders.query", "orders.close"), "the path of an order's state"),
    "refund_status": (_REFUNDING, "the path of a refund's state"),
    "subscription_status": ((*_SUBSCRIBING, "subscriptions.cancel"), "the path of a subscription's state"),
    "signature": (_ALL, "the path of the signature of an answer; without it, answers are not verified"),
}
_VALUES: Final = {
    "skip_null": "whether null is left out of what is signed; else it is the text null",
    "booleans": "what true and false do to the signature: refuse, or json",
    "numbers": "what a received number with a fraction does to the signature: refuse, or text",
}
_COMPARED: Final = {
    "out_trade_no": ("orders.place", "orders.query", "orders.close", *_REFUNDING),
    "out_refund_no": _REFUNDING,
    "total_amt": ("payments.create", "payments.status", "orders.place", "orders.query", *_REFUNDING),
    "refund_amt": _REFUNDING,
    "currency": ("payments.create", "orders.place", "orders.query"),
    "merchant_id": _ALL,
}
"""By point, the methods whose response, or the response to whose query, is compared there."""

_CODES: Final = {
    "not_executed": (_ALL, "result codes that mean that nothing was done"),
    "retryable": (_ALL, "result codes that mean that the service failed, as a 5xx"),
    "duplicate": ((*_WRITES_WITH_A_NUMBER, "orders.close"), "result codes that mean that the number was used before"),
    "absent": (_WRITES_WITH_A_NUMBER, "result codes that mean that there is no such order or refund"),
}
_HTTP: Final = {
    "not_executed": "4xx that mean that nothing was done",
    "absent": "statuses that mean, on a query, that there is no such order or refund",
    "duplicate": "4xx that mean that the number was used before",
    "rate_limit_precedes_execution": "whether a 429 was not executed",
}
_NOTIFICATION: Final = {
    "verification": "how notifications are signed: body, standard-webhooks, or none",
    "data": "the path of the payload; without it, the whole body is",
    "signature": "the path of the signature, where it stands in the body",
    "kind": "the path of an event's name; without it, the receiver's route says the kind",
    "kinds": "the service's names of events, by our kinds",
    "time": "the path of a timestamp",
    "id": "the paths that together identify one event of a kind",
    "out_trade_no": "the path of the order's number, which a confirmation asks about",
    "out_refund_no": "the path of the refund's number, which a confirmation asks about",
    "subscription_id": "the path of the subscription's number",
    "ack_status": "the HTTP status that acknowledges a notification",
    "ack_body": "the body that acknowledges a notification",
    "nack_status": "the HTTP status that refuses a notification",
    "nack_body": "the body that refuses a notification",
}


def audit_points(profile: "Profile") -> tuple[Point, ...]:
    """Return the points that the document leaves open, in the order of a profile's TOML form."""
    parts = (
        _authentication_points,
        _signature_points,
        _request_points,
        _response_points,
        _meaning_points,
        _recovery_points,
        _notification_points,
    )
    return tuple(point for part in parts for point in part(profile))


def _answered_or_open(name: str, value: Any, needed_by: tuple[str, ...], means: str) -> Point:
    return Point(name, "answered" if value else "open", needed_by, value or None, means)


def _answered_or_assumed(name: str, value: Any, default: Any, needed_by: tuple[str, ...], means: str) -> Point:
    return Point(name, "assumed" if value == default else "answered", needed_by, value, means)


def _answered_if_located(name: str, value: Any, needed_by: tuple[str, ...], means: str, missing: str | None) -> Point:
    """Return the point of a table of values; it is open as long as the path of such values is missing."""
    if value and missing:
        return Point(name, "open", needed_by, None, f"{means}; those given have no effect without {missing}")
    return _answered_or_open(name, value, needed_by, means)


def _authentication_points(profile: "Profile") -> Iterator[Point]:
    given = profile.bearer != names_with(Auth.BEARER) or profile.signed != names_with(Auth.SIGNED)
    for name in names_with(Auth.NOT_SHOWN):
        carried = [table for table in ("bearer", "signed") if name in getattr(profile, table)]
        means = "how it is authenticated: list it in bearer, in signed, or in neither"
        status: Status = "answered" if given else "assumed"
        yield Point(f"authentication of {name}", status, (name,), " and ".join(carried) or "none", means)


def _signature_points(profile: "Profile") -> Iterator[Point]:
    yield _answered_or_open(
        "amount_unit", profile.amount_unit, _ALL, "minor or major: the unit that amounts are counted in"
    )
    scheme = profile.signature
    needed_by = _ALL if profile.answer.signature else profile.signed
    if scheme is not None and not isinstance(scheme, SortedPairs):
        yield Point("signature", "answered", needed_by, type(scheme).__name__, "a scheme of your own")
        return
    scheme = scheme or SortedPairs()
    for option in ("algorithm", "encoding"):
        means = f"the {option} that requests are signed with"
        yield _answered_or_open(f"signature.{option}", getattr(scheme, option), needed_by, means)
    for option, means in _VALUES.items():
        default = getattr(SortedPairs(), option)
        yield _answered_or_assumed(f"signature.{option}", getattr(scheme, option), default, needed_by, means)
    # An address holds `&` and `=`: a signed response with one verifies only where the scheme allows them in it.
    answer = profile.answer
    signed, _, _ = answer.signature.rpartition(".")
    place, _, name = ".".join(filter(None, (answer.data, answer.redirect_url))).rpartition(".")
    if answer.signature and answer.redirect_url and place == signed and name not in scheme.exclude:
        covered = scheme.allow_delimiters if name in scheme.allow_delimiters else ()
        means = f"must hold {name!r}: the address stands in a signed answer, which must not hold '&' or '=' otherwise"
        yield _answered_or_open("signature.allow_delimiters", covered, ("orders.place",), means)


def _request_points(profile: "Profile") -> Iterator[Point]:
    for name, means in OPEN_FIELDS.items():
        yield _answered_or_open(f"fields.{name}", profile.fields.get(name), _NEEDED_BY[name], means)
    written = profile.formats.get("start_date")
    yield _answered_or_open("formats.start_date", written, _SUBSCRIBING, "how the date is written, such as %Y-%m-%d")
    for each in fields(Accept):
        value = getattr(profile.accept, each.name)
        yield _answered_or_open(f"accept.{each.name}", value, _ALL, "what the service takes; empty: not checked here")
    means = "the name and the place of its identifier"
    yield _answered_or_open("payment_status", profile.payment_status, ("payments.status",), means)
    yield _answered_or_open("refund_status", profile.refund_status, ("refunds.status", "refunds.create"), means)


def _response_points(profile: "Profile") -> Iterator[Point]:
    answer = profile.answer
    means = "the path of a result code; without it, HTTP 2xx is success"
    if answer.ok and not answer.code:
        means += ", and answer.ok has no effect"
    yield Point("answer.code", "answered" if answer.code else "assumed", _ALL, answer.code or None, means)
    for name, (needed_by, means) in _ANSWER.items():
        yield _answered_or_open(f"answer.{name}", getattr(answer, name), needed_by, means)
        if name == "refund_status":
            yield _subscription_point(answer.subscription_id)
    yield from _refusals_signed_points(answer)
    for name, needed_by in _COMPARED.items():
        yield _compared_point(name, getattr(answer, name), needed_by)


def _subscription_point(path: str | None) -> Point:
    """Return the point of a subscription's number: endpoint 8 reads it, 9 and 10 compare it."""
    means = "the path of the service's number of a subscription; in subscriptions.update and subscriptions.cancel "
    if path:
        means += "a success that lacks it, or names another number, is unrecognised"
    else:
        means += "it is not compared" if path == "" else "it is compared under its wire name, if it is there"
    needed_by = (*_SUBSCRIBING, "subscriptions.cancel")
    return Point("answer.subscription_id", "open" if path is None else "answered", needed_by, path, means)


def _refusals_signed_points(answer: AnswerShape) -> Iterator[Point]:
    """Yield the point of signed failures, if successes are signed or the profile gives it all the same."""
    given, name = answer.refusals_signed, "answer.refusals_signed"
    means = "true or false: whether a failure is signed, too"
    if answer.signature:
        if given is None:
            means += '; until then an unsigned "not found" is never final, and recovery.quarantine has no effect'
        yield Point(name, "open" if given is None else "answered", _ALL, given, means)
    elif given is not None:
        yield Point(name, "open", _ALL, None, f"{means}; the one given has no effect without answer.signature")


def _compared_point(name: str, path: str | None, needed_by: tuple[str, ...]) -> Point:
    """Return the point of a compared value; payments.create and payments.status call the total `amount`."""
    wire, total = camel_case(name), name == "total_amt"
    if path is None:
        means = f"a response that names another {wire}{' (payments.create: amount)' if total else ''} is refused"
        return Point(f"answer.{name}", "assumed", needed_by, wire, means)
    if path == "":
        means = "totalAmt and amount are not compared" if total else f"{wire} is not compared"
    else:
        means = f"a success that lacks it, or names another {wire}, is refused"
        if total:
            means += "; of payments.create, one that names another amount, here or as amount"
    return Point(f"answer.{name}", "answered", needed_by, path, means)


def _meaning_points(profile: "Profile") -> Iterator[Point]:
    """Yield the points of states, codes and statuses."""
    answer = profile.answer
    for each in fields(States):
        path = f"{each.name}_status"
        needed_by = tuple(name for name in _ALL if name.startswith(f"{each.name}s."))
        missing = None if getattr(answer, path) else f"answer.{path}"
        means = "the service's values of our states"
        yield _answered_if_located(f"states.{each.name}", getattr(profile.states, each.name), needed_by, means, missing)
    missing = None if answer.code or answer.message else "answer.code or answer.message"
    for name, (needed_by, means) in _CODES.items():
        yield _answered_if_located(f"codes.{name}", getattr(profile.codes, name), needed_by, means, missing)
    for name, means in _HTTP.items():
        yield _answered_or_assumed(f"http.{name}", getattr(profile.http, name), getattr(HttpCodes(), name), _ALL, means)


def _recovery_points(profile: "Profile") -> Iterator[Point]:
    quarantine, answer = profile.recovery.quarantine, profile.answer
    means = "seconds after which an absent answer is final; without it, nothing is ever sent a second time"
    if quarantine is not None and answer.signature and answer.refusals_signed is None:
        means = (
            f"{quarantine:g} is given, but has no effect until answer.refusals_signed is given: put true there if the "
            "service signs every refusal, else false"
        )
        quarantine = None
    status: Status = "open" if quarantine is None else "answered"
    yield Point("recovery.quarantine", status, _WRITES_WITH_A_NUMBER, quarantine, means)


def _notification_points(profile: "Profile") -> Iterator[Point]:
    for name, means in _NOTIFICATION.items():
        yield _answered_or_open(f"notification.{name}", getattr(profile.notification, name), (), means)
