"""What becomes of an event: retries, contradictions, and what the service says when it is asked."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import backoff
from attrs import Factory, define, evolve, frozen

from payasync.errors import (
    AuthenticationError,
    ConfigurationError,
    InvalidArgumentError,
    RateLimitedError,
    ServiceError,
)
from payasync.middleware.recovery import absence_final_after
from payasync.notifications.inbox import Claim, Inbox, State
from payasync.notifications.notification import Notification, build_key, coverage_of, number_at
from payasync.profile.profile import Profile, not_configured
from payasync.profile.schema import MERCHANT
from payasync.resources.orders import QueryOrder
from payasync.resources.refunds import QueryRefund
from payasync.strict_json import ABSENT, at
from payasync.wire.request import Request
from payasync.wire.response import Response

ATTEMPTS: Final = 100
"""With the waits between them, three days: the service does not repeat what was acknowledged."""
LONGEST_WAIT: Final = 3600.0
"""Seconds; the waits before it are 1, 4, 16, 64, … at most."""
MOST_INTERRUPTIONS: Final = 32
"""A crash or a shutdown is no failure, but a handler that ends its process each time must not run for ever."""
LONGEST_REASON: Final = 300


@frozen
class Transition:
    """What becomes of an event.

    Attributes:
        state: `pending`: it is tried again.
        reason: Why, in one line.
        wait: Seconds until a pending event that could not be tried yet is tried. It counts as no failure.
    """

    state: State
    reason: str = ""
    wait: float | None = None


def limit_failures(transition: Transition, failures: int, attempts: int) -> Transition:
    """Return a transition; a failure is the end of an event that has failed so many times as there are attempts."""
    is_last = transition.state == "pending" and transition.wait is None and failures >= attempts
    return Transition("dead", transition.reason) if is_last else transition


def limit_interruptions(attempts: int, failures: int) -> Transition | None:
    """Return the end of an event that was interrupted too often.

    Args:
        attempts: How often it was begun, this time included.
        failures: How many attempts failed before.
    """
    interruptions = attempts - 1 - failures
    if interruptions < MOST_INTERRUPTIONS:
        return None
    return Transition("dead", f"cut off {interruptions} times: its handler may end the process")


def longest_wait(failures: int) -> float:
    """Return how long the wait after a failure can be, in seconds: four times as long after each, up to an hour."""
    return min(4.0 ** min(failures - 1, 6), LONGEST_WAIT)


def draw_upper_half(bound: float) -> float:
    """Return a random wait, at least half as long as it can be: so many of them last for days."""
    return bound / 2 + backoff.full_jitter(bound / 2)


def describe_error(error: BaseException) -> str:
    """Return an error's class and text in one short line."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - anybody's code
        text = ""
    return shorten(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def shorten(reason: str) -> str:
    """Return a reason that can be read in a list."""
    return reason if len(reason) <= LONGEST_REASON else f"{reason[: LONGEST_REASON - 1]}…"


_REFUND_NUMBER: Final = "outRefundNo"
_REFUND_AMOUNT: Final = "refundAmt"
"""The service's own names (docs/service.md#refunds)."""


def hold_refund(notification: Notification, profile: Profile) -> Transition | None:
    """Hold an event that came as a payment and names a refund: a handler would take it for money received."""
    if notification.kind != "payment" or not (named := _find_refund(notification.data, profile)):
        return None
    advice = 'If it is a refund, receiver.replay(id, kind="refund") gives it to the handlers of refunds'
    return Transition("quarantined", shorten(f"it came as a payment, but names a refund: {named}. {advice}"))


def _find_refund(data: Any, profile: Profile) -> str:
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


def compare_expected(notification: Notification, expected: object) -> Transition | None:
    """Return how an event contradicts what was expected; `None` if it does not.

    Args:
        notification: Verified, confirmed, or of a kind that can be neither.
        expected: The values by their dotted paths; `None` if nobody expects the event.
    """
    if expected is None:
        return Transition("quarantined", "nobody expects it")
    if not isinstance(expected, Mapping):
        rule = "it must return a mapping of paths to values, or None"
        return Transition("pending", f"expect returned {type(expected).__name__}: {rule}")
    data = _compared_data(notification)
    for path, value in expected.items():
        found = at(data, path)
        if found is ABSENT:
            return Transition("quarantined", shorten(f"{path} is absent, expected {value!r}"))
        if not is_same(found, value):
            return Transition("quarantined", shorten(f"{path} is {found!r}, expected {value!r}"))
    return None


def compare_merchant(notification: Notification, merchant_id: str, profile: Profile) -> Transition | None:
    """Hold an event of another merchant; the service may write a merchant's number as an integer.

    Where it names none, or null, nothing is compared. Hints and unsigned parts are ignored: anybody could have an
    event held by what they say.
    """
    answer, coverage = notification.confirmed, coverage_of(profile)
    document = notification.document if answer is None else answer.document
    if coverage and answer is None:
        document = coverage.read(document)
    for said in (_compared_data(notification), document):
        named = at(said, MERCHANT, None)
        if named is not None and not (type(named) in {int, str} and str(named) == merchant_id):
            return Transition("quarantined", shorten(f"{MERCHANT} is {named!r}, expected {merchant_id!r}"))
    return None


def _compared_data(notification: Notification) -> Any:
    """Return the trusted data; if nobody can confirm anything, the payload."""
    return notification.data if notification.confirmed is None else notification.confirmed.data


def is_same(found: object, expected: object) -> bool:
    """Return whether two values are the same, by type and value: `450` is not `"450"`, nor `1` `True`."""
    if isinstance(found, dict) and isinstance(expected, Mapping):
        return found.keys() == expected.keys() and all(is_same(found[name], expected[name]) for name in found)
    if isinstance(found, list) and isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(is_same, found, expected))
    alike = isinstance(expected, type(found)) and isinstance(found, bool) == isinstance(expected, bool)
    return alike and found == expected


CONFIRMABLE: Final = frozenset({"payment", "refund"})
"""The kinds that the service answers queries about (docs/service.md#queries)."""
LATE: Final = 60.0
"""Seconds after which the service's denial is believed, where the profile has no `recovery.quarantine`."""
UNSAID: Final = 3600.0
"""Seconds after which a hint that the service does not confirm is dead: else anybody could cause queries for days."""

_REDIRECTS: Final = range(300, 400)
_WAITING: Final = {"order": "pending", "payment": "pending", "refund": "processing"}
"""Our names of the states in which nothing has come of it yet."""
_NAMES: Final[Mapping[type[Any], str]] = {QueryOrder: "outTradeNo", QueryRefund: "outRefundNo"}
"""The service's own names of what is asked about (docs/service.md#responses)."""


@frozen
class Confirmed:
    """The service confirms a hint.

    Attributes:
        key: Names what the service says, whatever the hint said.
        response: What it says.
    """

    key: str
    response: Response


def hint_key(notification: Notification) -> str:
    """Return the key of a hint that waits to be confirmed."""
    return f"hint:{notification.kind or ''}:{notification.digest}"


def release_key(key: str, event_id: int) -> str:
    """Return the key of an event that was not confirmed: the same hint may be true when it comes again."""
    own = f":{event_id}"
    return key if key.endswith(own) or not key.startswith("hint:") else key + own


def choose_query(notification: Notification, profile: Profile) -> Request[Response] | Transition:
    """Return the request that confirms a hint, or why there is none.

    A service that tells order numbers is asked by these alone: were it asked by its own number as well, one payment
    would be confirmed under two names, and its effect could be had twice.
    """
    point = profile.notification.out_trade_no
    if notification.kind == "payment" and point and notification.out_trade_no is None:
        return Transition("parked", f"it holds no order number to ask about: notification.out_trade_no says {point!r}")
    try:
        return notification.inquiry()
    except InvalidArgumentError as error:
        return Transition("parked", describe_error(error))


def judge_response(
    query: Request[Response], kind: str, response: Response, profile: Profile, age: float
) -> Confirmed | Transition:
    """Return what the service's response makes of a hint of a kind that was received `age` seconds ago."""
    number = str(query.reference)
    path = _NAMES.get(type(query), profile.answer.payment_id)
    found = number_at(response.data, path)
    if found not in {None, number}:  # `t1` may find `T1`, whose effect would be had under two names
        reason = f"the service was asked about {number!r}, and its answer is about {path} {found!r}"
        return Transition("quarantined", shorten(reason))
    thing = response.thing
    path, states = getattr(profile.answer, f"{thing}_status"), getattr(profile.states, thing)
    if not path:
        missing = not_configured(f"answer.{thing}_status", f"the path of the state of the {thing}")
        return Transition("parked", describe_error(missing))
    status, waiting = response.get(path), _WAITING[thing]
    if not (isinstance(status, str) or type(status) is int):
        return Transition("pending", f"the service's answer has no {path!r}, which tells the state")
    if response.state is None and waiting not in states:
        missing = not_configured(f"states.{thing}.{waiting}", "the service's values of a state that is not final")
        return Transition("parked", describe_error(missing))
    if response.state == waiting:
        reason = f"the service does not say so yet: it says {status!r}"
        return Transition("pending" if age < UNSAID else "dead", reason)
    return Confirmed(build_key(f"confirmed:{kind}:", [number, status]), response)


def judge_error(error: Exception, profile: Profile, age: float) -> Transition:
    """Return what becomes of a hint of so many seconds if the query failed, or the service denies it."""
    if isinstance(error, ConfigurationError | InvalidArgumentError):
        return Transition("parked", describe_error(error))
    undecided = isinstance(error, AuthenticationError | RateLimitedError)
    denied = isinstance(error, ServiceError) and not undecided and error.http_status not in _REDIRECTS
    quarantine = LATE if profile.recovery.quarantine is None else profile.recovery.quarantine
    is_final = denied and age >= absence_final_after(quarantine)
    return Transition("dead" if is_final else "pending", describe_error(error))


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

    def wait(self, event: int, seconds: float, why: str) -> Transition:
        """Return that an event waits."""
        if len(self.waiting) < MOST_WAITING:
            self.waiting.add(event)
        return Transition("pending", why, seconds)


class QueryLimiter:
    """Bounds the queries of one receiver; each process has a bound of its own.

    Args:
        clock: Returns seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        self._asked: Final = dict[Question, _Asked]()

    def recall(self, question: Question, event: int, failures: int) -> Confirmed | Transition | None:
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


@frozen
class Confirmer:
    """Asks the service whether hints are true.

    Attributes:
        inbox: Tells whether the same has been confirmed before, whatever the hint said.
        profile: What the service does.
        limiter: When the service may be asked.
    """

    inbox: Inbox
    profile: Profile
    limiter: QueryLimiter

    async def confirm(self, hint: Notification, claim: Claim, age: float) -> Notification | Transition:
        """Return what a claimed hint tells, with the service's response; or what becomes of it.

        Args:
            hint: Not signed.
            claim: The inbox's, on it.
            age: Seconds since it was received.
        """
        event = claim.event
        found = await self._ask(hint, claim, age)
        if isinstance(found, Transition):
            transition = found
        elif await self.inbox.own(claim, found.key):
            return self._adopt(hint, found)
        else:
            transition = Transition("done", "another event was confirmed as the same")
        if transition.state != "parked":  # the same words may come again, and be true then
            await self.inbox.own(claim, release_key(event.key, event.id))
        return transition

    async def _ask(self, hint: Notification, claim: Claim, age: float) -> Confirmed | Transition:
        query = choose_query(hint, self.profile)
        if isinstance(query, Transition):
            return query
        event, question = claim.event, (query.operation.name, str(query.reference))
        if known := self.limiter.recall(question, event.id, event.failures + 1):
            return known
        self.limiter.begin(question, event.id)
        end_state: Confirmed | None = None
        try:
            response = await hint.confirm()
        except Exception as error:  # noqa: BLE001 - whatever it is, it confirms nothing
            found: Confirmed | Transition = judge_error(error, self.profile, age)
        else:
            found = judge_response(query, hint.kind or "", response, self.profile, age)
            end_state = found if isinstance(found, Confirmed) else None
        finally:
            self.limiter.end(question, end_state)
        return found

    def _adopt(self, hint: Notification, confirmed: Confirmed) -> Notification:
        """Return a hint with the facts of the response: its own words stay in `raw` and `document` alone."""
        shape, response = self.profile.notification, confirmed.response
        paths = {
            "out_trade_no": shape.out_trade_no,
            "out_refund_no": shape.out_refund_no,
            "subscription_id": shape.subscription_id,
            "payment_id": self.profile.answer.payment_id,
        }
        asked = "out_refund_no" if hint.kind == "refund" else "out_trade_no" if hint.out_trade_no else "payment_id"
        facts: dict[str, Any] = {name: number_at(response.data, path) for name, path in paths.items() if name != asked}
        facts |= {"data": response.data, "event": None, "dedup_key": confirmed.key, "weak": False}
        return evolve(hint, confirmed=response, **facts)
