"""How far an event can be believed: what the service's response and what was expected say."""

import asyncio
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias

import backoff
from attrs import Factory, define, evolve, frozen

from payasync.documents import ABSENT, at
from payasync.errors import (
    AuthenticationError,
    ConfigurationError,
    InvalidArgumentError,
    RateLimitedError,
    ServiceError,
)
from payasync.notifications.inbox import Claim, Inbox, InboxEvent, State
from payasync.notifications.notification import Notification
from payasync.notifications.reading import coverage_of, key_of, number_at
from payasync.profile.profile import Profile, not_configured
from payasync.profile.schema import MERCHANT
from payasync.resources.orders import QueryOrder
from payasync.resources.refunds import QueryRefund
from payasync.wire.request import Request
from payasync.wire.response import Response

ATTEMPTS: Final = 100
"""With the waits between them, three days: the service does not tell again what was acknowledged."""
LONGEST_WAIT: Final = 3600.0
"""Seconds; the waits before it are 1, 4, 16, 64, … at most."""
CUT_OFF: Final = 32
"""So often what a crash or a shutdown cut off is begun again: that is no failure, but it may end the process."""
LONGEST_REASON: Final = 300


@frozen
class Ending:
    """What becomes of an event.

    Attributes:
        state: `pending`: it is tried again.
        reason: Why, in one line.
        wait: Of a pending event that could not be tried yet, the seconds until it is; however often that happens, it
            is not given up.
    """

    state: State
    reason: str = ""
    wait: float | None = None


DONE: Final = Ending("done")


def again(reason: str) -> Ending:
    """Return that an event is tried again."""
    return Ending("pending", reason)


def later(reason: str, wait: float) -> Ending:
    """Return that an event could not be tried yet, and is tried in so many seconds."""
    return Ending("pending", reason, wait)


def dead(reason: str) -> Ending:
    """Return that an event is given up."""
    return Ending("dead", reason)


def parked(reason: str) -> Ending:
    """Return that nobody can handle an event as things are."""
    return Ending("parked", reason)


def quarantined(reason: str) -> Ending:
    """Return that an event contradicts what is expected."""
    return Ending("quarantined", reason)


def bounded(ending: Ending, failures: int, attempts: int) -> Ending:
    """Return an ending, where the last failure is followed by no other attempt.

    Args:
        ending: What an attempt ended with.
        failures: How many there were, if that is one.
        attempts: How many there may be.
    """
    last = ending.state == "pending" and ending.wait is None and failures >= attempts
    return dead(ending.reason) if last else ending


def worn_out(attempts: int, failures: int) -> Ending | None:
    """Return the end of an event that was cut off too often.

    Args:
        attempts: How often it was begun, this time included.
        failures: How often that came to an end, and failed.
    """
    cut_off = attempts - 1 - failures
    return dead(f"cut off {cut_off} times: its handler may end the process") if cut_off >= CUT_OFF else None


def longest_wait(failures: int) -> float:
    """Return how long the wait after a failure can be, in seconds: four times as long after each, up to an hour."""
    bounds = backoff.expo(base=4, max_value=LONGEST_WAIT)
    next(bounds)  # backoff's generators begin with an empty step
    return float(next(islice(bounds, failures - 1, None)))


def upper_half(bound: float) -> float:
    """Return a wait by chance, at least half as long as it can be: so many of them last for days."""
    return bound / 2 + backoff.full_jitter(bound / 2)


def told(error: BaseException) -> str:
    """Return an error's class and text, cut, in one line."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - anybody's code
        text = ""
    return in_short(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def in_short(reason: str) -> str:
    """Return a reason that is not too long to be read in a list."""
    return reason if len(reason) <= LONGEST_REASON else f"{reason[: LONGEST_REASON - 1]}…"


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


QUIET: Final = 60.0
"""Seconds after an end state in which nobody asks about the same number again."""
MOST_WAITING: Final = 10_000
"""Events that one query can speak for; further ones wait for the query after it."""

Question: TypeAlias = tuple[str, str]
"""The name of the operation, and the number."""


@define
class _Asked:
    """What this process knows of one question.

    Attributes:
        waiting: The numbers of events that wait: the next query speaks for them, since they came before it.
        spoken_for: The numbers of events that the last query spoke for.
        confirmed: The end state that it brought.
        until: Seconds since 1970, when the question may be asked again.
        loop: The loop in which a query is in flight. A loop that has ended, or a parent's, is another one.
    """

    waiting: set[int] = Factory(set)
    spoken_for: frozenset[int] = frozenset()
    confirmed: Confirmed | None = None
    until: float = 0.0
    loop: asyncio.AbstractEventLoop | None = None

    def wait(self, event: int, seconds: float, why: str) -> Ending:
        """Return that an event waits."""
        if len(self.waiting) < MOST_WAITING:
            self.waiting.add(event)
        return later(why, seconds)


class Questions:
    """Bounds the queries of one receiver; each process has a bound of its own.

    Args:
        clock: Returns seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        self._asked: Final = dict[Question, _Asked]()

    def known(self, question: Question, event: int, failures: int) -> Confirmed | Ending | None:
        """Return what the last query says of an event, or that the event waits; `None`: ask now.

        Args:
            question: What would be asked.
            event: The inbox's number of the event.
            failures: How often it has failed or waited, with this time.
        """
        asked, now = self._asked.get(question), self._clock()
        if asked is None:
            return None
        if asked.loop is asyncio.get_running_loop():
            return asked.wait(event, min(longest_wait(failures), QUIET), "a query about the same number is in flight")
        if asked.confirmed is None or not now < asked.until <= now + QUIET:  # later still: the clock was set back
            return None
        if event in asked.spoken_for:
            return asked.confirmed
        return asked.wait(event, asked.until - now, "the service was asked about the same number just now")

    def begin(self, question: Question, event: int) -> None:
        """Note that a query begins: it speaks for an event, and for all that waited for it."""
        self._forget()
        before = self._asked.pop(question, _Asked())
        speaks_for = frozenset({event, *before.waiting})
        self._asked[question] = _Asked(spoken_for=speaks_for, loop=asyncio.get_running_loop())

    def end(self, question: Question, confirmed: Confirmed | None) -> None:
        """Note that a query has ended, and which end state it brought, if it did."""
        asked = self._asked.get(question)
        if asked is None or asked.loop is not asyncio.get_running_loop():  # another loop has begun anew
            return
        asked.loop, asked.confirmed, asked.until = None, confirmed, self._clock() + QUIET
        if confirmed is None and not asked.waiting:
            del self._asked[question]

    def _forget(self) -> None:
        """Forget the oldest questions, long after they may be asked again: what waited for them has asked by then."""
        now = self._clock()
        while self._asked:
            question, asked = next(iter(self._asked.items()))
            if asked.loop is asyncio.get_running_loop() or now - QUIET < asked.until <= now + QUIET:
                return
            del self._asked[question]


TWICE: Final = Ending("done", "another event was confirmed as the same")


async def confirmed(
    hint: Notification,
    claim: Claim,
    *,
    inbox: Inbox,
    profile: Profile,
    questions: Questions,
    attempts: int,
    age: float,
) -> Notification | Ending:
    """Return what a hint tells, with the service's answer to whether it is so; or what becomes of it.

    Args:
        hint: Not signed.
        claim: The inbox's, on it.
        inbox: Tells whether the same has been confirmed before, whatever the hint said.
        profile: What the service does.
        questions: When the service may be asked about it.
        attempts: How often it may fail.
        age: Seconds since it was received.
    """
    found = await _asked(hint, claim.event, profile, questions, age)
    if isinstance(found, Ending):
        ending = bounded(found, claim.event.failures + 1, attempts)
    elif await inbox.own(claim, found.key):
        answer = found.response  # what anybody may have said stands in `raw` and `document`, and nowhere else
        told = {"data": answer.data, "event": None, **numbers(hint, answer, profile)}
        return evolve(hint, confirmed=answer, dedup_key=found.key, weak=False, **told)
    else:
        ending = TWICE
    if ending.state != "parked":  # the same words may come again, and be true then
        await inbox.own(claim, released(claim.event.key, claim.event.id))
    return ending


async def _asked(
    hint: Notification, event: InboxEvent, profile: Profile, questions: Questions, age: float
) -> Confirmed | Ending:
    asking = question(hint, profile)
    if isinstance(asking, Ending):
        return asking
    about = asking.operation.name, str(asking.reference)
    if known := questions.known(about, event.id, event.failures + 1):
        return known
    questions.begin(about, event.id)
    end_state: Confirmed | None = None
    try:
        found = await _answered(hint, asking, profile, age)
        end_state = found if isinstance(found, Confirmed) else None
    finally:
        questions.end(about, end_state)
    return found


async def _answered(hint: Notification, asking: Request[Response], profile: Profile, age: float) -> Confirmed | Ending:
    try:
        response = await hint.confirm()
    except Exception as error:  # noqa: BLE001 - whatever it is, it confirms nothing
        return after_error(error, profile, age)
    return after_answer(asking, hint.kind or "", response, profile, age)
