"""How far an event can be believed: what follows from the service's answer, and from what was expected.

No I/O here. An event that is not signed is only a hint: anybody can send one, again and again, and say anything
in it. So nothing is taken from it but the number to ask about, and what tells two events apart is the answer.
"""

from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from payasync.absent import ABSENT
from payasync.documents import at
from payasync.errors import (
    AuthenticationError,
    ConfigurationError,
    InvalidArgumentError,
    RateLimitedError,
    ServiceError,
)
from payasync.notifications.coverage import coverage_of
from payasync.notifications.endings import Ending, again, dead, in_short, parked, quarantined, told
from payasync.notifications.identity import key_of
from payasync.notifications.notification import Notification
from payasync.notifications.reading import number_at
from payasync.profile import MERCHANT, Profile, not_configured
from payasync.requests import Request
from payasync.resources.orders import QueryOrder
from payasync.resources.refunds import QueryRefund
from payasync.responses import Response

HINT: Final = "hint"
CONFIRMED: Final = "confirmed"
ASKABLE: Final = frozenset({"payment", "refund"})
"""The kinds that the service answers queries about (spec: Endpoints, rules 3 and 6)."""

LATE: Final = 60.0
"""Seconds after which the service's denial is believed, where the profile has no `recovery.quarantine`."""
UNSAID: Final = 3600.0
"""Seconds after which what the service does not say was never so: else anybody could have it asked for days."""

_REDIRECTS: Final = range(300, 400)
_WAITING: Final = {"order": "pending", "payment": "pending", "refund": "processing"}
"""Our names of the states in which nothing has come of it yet."""

_NAMES: Final[Mapping[type[Any], str]] = {QueryOrder: "outTradeNo", QueryRefund: "outRefundNo"}
"""The service's own names of what is asked about (spec: Resources)."""


_REFUND_NUMBER: Final = "outRefundNo"
_REFUND_AMOUNT: Final = "refundAmt"
"""The service's own names (spec: Resources, refund request)."""

AS_REFUND: Final = 'If it is a refund, receiver.replay(id, kind="refund") gives it to the handlers of refunds'
"""What a person can do with it."""


@frozen
class Confirmed:
    """The service says so, too.

    Attributes:
        key: Names what it says, whatever the hint did.
        response: What it says.
    """

    key: str
    response: Response


def held_as_refund(notification: Notification, profile: Profile) -> Ending | None:
    """Return that an event came as a payment and names a refund: a handler would take it for money received.

    Args:
        notification: Verified or a hint.
        profile: Says where a refund is named.
    """
    if notification.kind != "payment":
        return None
    named = _refund_in(notification.data, profile)
    return quarantined(in_short(f"it came as a payment, but names a refund: {named}. {AS_REFUND}")) if named else None


def _refund_in(data: Any, profile: Profile) -> str:
    """Return where a payload names a refund; nothing if it does not. Null, an empty text and 0 name none."""
    shape, answer = profile.notification, profile.answer
    for path in (shape.out_refund_no, _REFUND_NUMBER):
        if path not in {shape.out_trade_no, answer.payment_id} and (number := number_at(data, path)):
            return f"{path} is {number!r}"
    amount = at(data, _REFUND_AMOUNT, None)
    if isinstance(amount, str | int | float) and any(digit in str(amount) for digit in "123456789"):
        return f"{_REFUND_AMOUNT} is {amount!r}"
    path, others = answer.refund_status, {answer.order_status, answer.payment_status}
    if path and path not in others and profile.states.name("refund", at(data, path)):
        return f"{path} is {at(data, path)!r}"
    return ""


def hint_key(notification: Notification) -> str:
    """Return the key of a hint that waits to be confirmed."""
    return f"{HINT}:{notification.kind or ''}:{notification.digest}"


def released(key: str, event_id: int) -> str:
    """Return the key of an event that was not confirmed: the same hint may be true when it comes again."""
    own = f":{event_id}"
    return key if key.endswith(own) or not key.startswith(f"{HINT}:") else key + own


def question(notification: Notification, profile: Profile) -> Request[Response] | Ending:
    """Return the request that confirms a hint, or why there is none.

    A service that tells order numbers is asked by these alone: were it asked by its own number as well, one payment
    would be confirmed under two names, and its effect could be had twice.
    """
    point = profile.notification.out_trade_no
    if notification.kind == "payment" and point and notification.out_trade_no is None:
        return parked(f"it holds no order number to ask about: notification.out_trade_no says {point!r}")
    try:
        return notification.inquiry()
    except InvalidArgumentError as error:
        return parked(told(error))


def after_answer(
    asked: Request[Response], kind: str, response: Response, profile: Profile, age: float
) -> Confirmed | Ending:
    """Return what the service's answer makes of a hint.

    Args:
        asked: The request that it answers.
        kind: Of the hint.
        response: The answer.
        profile: Says where the state stands, and what it means.
        age: Seconds since the hint was received.
    """
    if contradiction := _about_another(asked, response, profile):
        return contradiction
    thing = response.thing
    path, states = getattr(profile.answer, f"{thing}_status"), getattr(profile.states, thing)
    if not path:
        return parked(told(not_configured(f"answer.{thing}_status", f"the path of the state of the {thing}")))
    status = response.get(path)
    if not (isinstance(status, str) or type(status) is int):
        return again(f"the service's answer has no {path!r}, which tells the state")
    waiting = _WAITING[thing]
    if response.state is None and waiting not in states:
        point = f"states.{thing}.{waiting}"
        return parked(told(not_configured(point, "the service's values of a state that is not final")))
    if response.state == waiting:
        return _until(UNSAID, age, f"the service does not say so yet: it says {status!r}")
    return Confirmed(key_of(f"{CONFIRMED}:{kind}:", [_number(asked), status]), response)


def _about_another(asked: Request[Response], response: Response, profile: Profile) -> Ending | None:
    """Return that an answer names another thing: `t1` may find `T1`, whose effect would be had under two names."""
    number, path = _number(asked), _NAMES.get(type(asked), profile.answer.payment_id)
    found = number_at(response.data, path)
    if found is None or found == number:
        return None
    return quarantined(in_short(f"the service was asked about {number!r}, and its answer is about {path} {found!r}"))


def numbers(hint: Notification, response: Response, profile: Profile) -> dict[str, Any]:
    """Return the numbers of a confirmed event: the one that was asked about, the others by the answer alone."""
    shape = profile.notification
    paths = {
        "out_trade_no": shape.out_trade_no,
        "out_refund_no": shape.out_refund_no,
        "subscription_id": shape.subscription_id,
        "payment_id": profile.answer.payment_id,
    }
    asked = "out_refund_no" if hint.kind == "refund" else "out_trade_no" if hint.out_trade_no else "payment_id"
    return {each: number_at(response.data, path) for each, path in paths.items() if each != asked}


def _number(asked: Request[Response]) -> str:
    """Return the number that was asked about."""
    return str(asked.reference)


def after_error(error: Exception, profile: Profile, age: float) -> Ending:
    """Return what becomes of a hint where the service could not be asked, or denies it: it may merely be late.

    Args:
        error: What came of asking.
        profile: Says how late it may be.
        age: Seconds since the hint was received.
    """
    if isinstance(error, ConfigurationError | InvalidArgumentError):
        return parked(told(error))
    if _denies(error):
        quarantine = profile.recovery.quarantine
        return _until(LATE if quarantine is None else quarantine, age, told(error))
    return again(told(error))


def _denies(error: Exception) -> bool:
    """Return whether the service says no: not that it does not know us, is busy, or is elsewhere."""
    undecided = isinstance(error, AuthenticationError | RateLimitedError)
    return isinstance(error, ServiceError) and not undecided and error.http_status not in _REDIRECTS


def _until(bound: float, age: float, reason: str) -> Ending:
    """Return that a hint is asked about again, and that it is dead, once it is so old."""
    return again(reason) if age < bound else dead(reason)


def difference(notification: Notification, expected: object) -> Ending | None:
    """Return how an event contradicts what was expected; `None` where it does not.

    Args:
        notification: Verified, confirmed, or of a kind that can be neither.
        expected: By dotted path into what is trusted of it, the value; `None` where nobody expects it.
    """
    if expected is None:
        return quarantined("nobody expects it")
    if not isinstance(expected, Mapping):
        return again(f"expect returned {type(expected).__name__}: it must return a mapping of paths to values, or None")
    found = _told_by(notification)
    for path, value in expected.items():
        there = at(found, path)
        if there is ABSENT:
            return quarantined(in_short(f"{path} is absent, expected {value!r}"))
        if not same(there, value):
            return quarantined(in_short(f"{path} is {there!r}, expected {value!r}"))
    return None


def foreign(notification: Notification, merchant_id: str, profile: Profile) -> Ending | None:
    """Return that an event is another merchant's; the service may write a merchant's number as an integer.

    Where it names none, or null, nothing is compared. Anybody could have it quarantined by what a hint says, or by
    what no signature covers: neither is looked at.
    """
    answer, coverage = notification.confirmed, coverage_of(profile)
    document = notification.document if answer is None else answer.document
    for found in (_told_by(notification), coverage.read(document) if coverage and answer is None else document):
        named = at(found, MERCHANT, None)
        if named is not None and not (type(named) in {int, str} and str(named) == merchant_id):
            return quarantined(in_short(f"{MERCHANT} is {named!r}, expected {merchant_id!r}"))
    return None


def _told_by(notification: Notification) -> Any:
    """Return what is compared: what is trusted, and where nobody can confirm anything, what is said."""
    confirmed = notification.confirmed
    return notification.data if confirmed is None else confirmed.data


def same(found: object, expected: object) -> bool:
    """Return whether two values are the same, by type and value: `450` is not `"450"`, nor `1` `True`."""
    if isinstance(found, dict) and isinstance(expected, Mapping):
        return found.keys() == expected.keys() and all(same(found[name], expected[name]) for name in found)
    if isinstance(found, list) and isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(same, found, expected))
    alike = isinstance(expected, type(found)) and isinstance(found, bool) == isinstance(expected, bool)
    return alike and found == expected
