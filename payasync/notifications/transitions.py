"""The next state of an event: retries, contradictions, and the confirmation of unsigned events by a query."""

import asyncio
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Final, TypeAlias

from attrs import Factory, define, evolve, field, frozen

from payasync.clocks import draw_jitter
from payasync.errors import (
    AuthenticationError,
    ConfigurationError,
    InvalidArgumentError,
    RateLimitedError,
    ServiceError,
    clean,
    describe_error,
)
from payasync.evidence.comparison import find_another, find_breach, named_merchants
from payasync.notifications.inbox import Claim, Inbox, InboxEvent, State
from payasync.notifications.notification import (
    CONFIRMED,
    HINT,
    SIGNED,
    Notification,
    build_key,
    is_there,
    kinds_told,
    number_at,
    own_number_paths,
)
from payasync.notifications.sends import Sends, build_fact, suffix
from payasync.profile.profile import Profile
from payasync.profile.wire_names import names_of, shown_names
from payasync.resources.orders import QueryOrder
from payasync.resources.refunds import QueryRefund
from payasync.settings import not_configured
from payasync.strict_json import ABSENT, NOT_YET, at
from payasync.wire.request import Request
from payasync.wire.response import Response

ATTEMPTS: Final = 100
"""They take about three days, because the service does not repeat an acknowledged notification."""
MAX_WAIT: Final = 3600.0
"""Seconds. The waits before it are at most 1, 4, 16, 64, …"""
MAX_INTERRUPTIONS: Final = 32
"""A crash is not a failure, but a handler that ends its process each time must not run for ever."""
MAX_REASON: Final = 300
SAME: Final = "another event about the same was handled, or waits"
"""Why an event that a query has confirmed was not handled."""


def _cut(reason: str) -> str:
    return reason and clean(reason, MAX_REASON)


@frozen
class Transition:
    """The next state of an event.

    Attributes:
        state: The state. If it is `pending`, the event is tried again.
        reason: Why, in one line.
        wait: Seconds until an event is tried that had to wait for a query, which is no attempt. `None`: a pending event
            has failed.
        path: The path of the field for which an event is held, for the log.
        handler: What is recorded of the last handler, if it is stored together with the state.
    """

    state: State
    reason: str = field(default="", converter=_cut)
    wait: float | None = None
    path: str | None = field(default=None, eq=False)
    handler: str = ""


def limit_failures(transition: Transition, failures: int, attempts: int) -> Transition:
    """Return a transition, changed to `dead` if it is the last failure that `attempts` allows."""
    is_last = transition.state == "pending" and transition.wait is None and failures >= attempts
    return Transition("dead", transition.reason) if is_last else transition


def limit_interruptions(attempts: int, failures: int) -> Transition | None:
    """Return a transition to `dead` if an event was interrupted too often.

    Args:
        attempts: How often it was leased, this time included.
        failures: How many of the earlier attempts failed.
    """
    interruptions = attempts - 1 - failures
    if interruptions < MAX_INTERRUPTIONS:
        return None
    return Transition("dead", f"interrupted {interruptions} times: its handler may end the process")


def longest_wait(failures: int) -> float:
    """Return the longest wait after a failure, in seconds: four times as long after each one, up to an hour."""
    return min(4.0 ** min(failures - 1, 6), MAX_WAIT)


def draw_upper_half(bound: float) -> float:
    """Return a random wait of at least half of its bound, so that all attempts together last for days."""
    return bound / 2 + draw_jitter(bound / 2)


def hold_two_kinds(notification: Notification, profile: Profile) -> Transition | None:
    """Hold an event with fields that tell two kinds, because a handler of one would miss the other."""
    tells = profile.notification.tells
    told = [f"{tells[kind]} of a {kind}" for kind in kinds_told(profile.notification, notification.data)]
    return Transition("held", f"it holds {' and '.join(told)}") if len(told) > 1 else None


def hold_several(notification: Notification, profile: Profile) -> Transition | None:
    """Hold an event beside others in one list, because handlers would see one of them."""
    steps = profile.notification.data.split(".")
    for place in (place for place, step in enumerate(steps) if step.isdecimal()):
        path = ".".join(steps[:place])
        entries = at(notification.document, path, None)
        if isinstance(entries, list) and len(entries) > 1:
            return Transition("held", f"{path} holds {len(entries)} entries, and notification.data reads one")
    return None


def hold_refund(notification: Notification, profile: Profile) -> Transition | None:
    """Hold a payment event that names a refund, because a handler would take it for money received."""
    if notification.kind != "payment" or not (named := _find_refund(notification.data, profile)):
        return None
    advice = 'If it is a refund, receiver.replay(id, kind="refund") gives it to the handlers of refunds'
    return Transition("held", f"it came as a payment, but names a refund: {named}. {advice}")


def _find_refund(data: Any, profile: Profile) -> str:
    """Describe the refund that a payload names, or return an empty text. Null, an empty text and 0 name no refund."""
    shape, answer = profile.notification, profile.answer
    for path in (shape.out_refund_no, *_refund_names(profile, "out_refund_no")):
        if path not in {shape.out_trade_no, answer.payment_id} and (number := number_at(data, path)):
            return f"{path} is {clean(repr(number))}"
    for path in _refund_names(profile, "refund_amt"):
        amount = at(data, path, None)
        if isinstance(amount, str | int | float) and any(digit in str(amount) for digit in "123456789"):
            return f"{path} is {clean(repr(amount))}"
    path, others = answer.refund_status, {answer.order_status, answer.payment_status}
    if path and path not in others and profile.states.name("refund", at(data, path)):
        return f"{path} is {clean(repr(at(data, path)))}"
    return ""


def _refund_names(profile: Profile, argument: str) -> list[str]:
    """Return the wire names of an argument of refunds that say "refund"; a payment may have another one, too."""
    return sorted(name for name in names_of(profile, argument) if "refund" in name.lower())


def compare_expected(notification: Notification, expected: object, profile: Profile) -> Transition | None:
    """Hold an event that contradicts what `expect` returned for it.

    Args:
        notification: The event: verified, confirmed, or of a kind that nothing can confirm.
        expected: The values by their dotted paths; `None` if the event is unexpected.
        profile: Has the service's name for an argument that stands in place of a path.
    """
    if expected is None:
        return Transition("held", "it is unexpected")
    if expected is NOT_YET:
        return Transition("pending", "expect returned NOT_YET")
    if not isinstance(expected, Mapping):
        rule = "it must return a mapping of paths to values, None or payasync.NOT_YET"
        return Transition("pending", f"expect returned {type(expected).__name__}: {rule}")
    data = notification.data if notification.confirmed is None else notification.confirmed.data
    for path, value in expected.items():
        found = at(data, path)
        if found is ABSENT:
            names = names_of(profile, path)
            hint = f". expect takes the service's names: {' or '.join(sorted(names))}" if names - {path} else ""
            return _hold(path, f"{path} is absent, expected {value!r}{hint}")
        if not is_same(found, value):
            return _hold(path, f"{path} is {clean(repr(found))}, expected {value!r}")
    return None


def _hold(path: str, reason: str) -> Transition:
    return Transition("held", reason, path=path)


def hold_another(notification: Notification, merchant_id: str, profile: Profile) -> Transition | None:
    """Hold an event of another merchant, or one that lacks what each notification must hold."""
    if notification.confirmed is not None:  # the session has compared it
        return None
    if another := find_another(named_merchants(profile, notification.document), merchant_id):
        return _hold(another[0], " ".join(another))
    breach = find_breach(profile.notification.must, notification.data, "notification.must")
    return _hold("notification.must", breach) if breach else None


def hold_incomplete(notification: Notification, profile: Profile) -> Transition | None:
    """Hold a signed event without its envelope or the number that its kind has, or with another value in its place.

    It may be a response of the service, which anybody can post who got one. A payment may have no order, but
    then an empty text stands in its place only beside the service's number of the payment.
    """
    shape, kind = profile.notification, notification.kind
    if not isinstance(payload := at(notification.document, shape.data, None), dict):
        one = f'a list. If it always has one entry, set notification.data = "{shape.data}.0"'
        what = one if isinstance(payload, list) else clean(repr(payload))
        lacks = f"it lacks {shape.data}, the payload: it may be a response of the service"
        is_other = f"{shape.data}, the payload, must be an object, and is {what}"
        return _hold("notification.data", lacks if payload is None else is_other)
    own = {"payment": "out_trade_no", "refund": "out_refund_no", "subscription": "subscription_id"}.get(kind or "")
    for name, path in own_number_paths(shape, kind).items():
        if not path or getattr(notification, name) is not None:
            continue
        value = at(notification.data, path, None)
        is_only = name == own and not (kind == "payment" and notification.payment_id)
        if value is not None if is_only else is_there(value):
            rule = "the number must be an integer, or a text that is not blank"
            return _hold(f"notification.{name}", f"{path} is {clean(repr(value))}: {rule}")
        if value is None and name == own != "out_trade_no":
            return _hold(f"notification.{name}", f"it lacks {path}, the number of the {kind}")
    return None


def is_same(found: object, expected: object) -> bool:
    """Return whether two values are the same, by type and value: `450` is not `"450"`, nor `1` `True`."""
    if isinstance(found, dict) and isinstance(expected, Mapping):
        return found.keys() == expected.keys() and all(is_same(found[name], expected[name]) for name in found)
    if isinstance(found, list) and isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(is_same, found, expected))
    alike = isinstance(expected, type(found)) and isinstance(found, bool) == isinstance(expected, bool)
    return alike and found == expected


def hold_unclear(notification: Notification, profile: Profile, *, signed: bool) -> Transition | None:
    """Hold an event of which nobody could say what it is about; a signed one also if it is incomplete."""
    holds = (hold_several, hold_two_kinds, hold_refund, *((hold_incomplete,) if signed else ()))
    return next(filter(None, (hold(notification, profile) for hold in holds)), None)


CONFIRMABLE: Final = frozenset({"payment", "refund"})
"""The kinds that a query can confirm (docs/reference/service.md#queries)."""
DEFAULT_QUARANTINE: Final = 60.0
"""Seconds after which "not found" is believed if the profile has no `recovery.quarantine`."""
MAX_UNCONFIRMED: Final = 3600.0
"""Seconds after which an unconfirmed hint is dead. Otherwise anybody could cause queries for days."""

_REDIRECTS: Final = range(300, 400)
_WAITING: Final = {"order": "pending", "payment": "pending", "refund": "processing"}
"""Our names of the states that are not final."""
_NUMBERS: Final[Mapping[type[Any], str]] = {QueryOrder: "out_trade_no", QueryRefund: "out_refund_no"}
"""By query, the argument whose value it asks about."""


@frozen
class Confirmed:
    """The final state with which the service confirms a hint.

    Attributes:
        key: The event's key from now on. It names the number and the state, whatever the hint said.
        fact: The same in our words, which a verified event has, too.
        response: The service's response.
        known: When the service knew this, in seconds since 1970: a cache may have had the response.
    """

    key: str
    fact: str | None
    response: Response
    known: float = 0.0


def hint_key(notification: Notification, *, signed: bool = False) -> str:
    """Return the key of a hint that is not confirmed yet."""
    return f"{SIGNED if signed else HINT}{notification.kind or ''}:{notification.digest}"


def choose_query(notification: Notification, profile: Profile) -> Request[Response] | Transition:
    """Return the query that confirms a hint, or a transition with the reason why no query can confirm it.

    If notifications have order numbers, payments are queried by these only. With the service's own number as well, one
    payment would be confirmed under two keys, and could have its effect twice.
    """
    point = profile.notification.out_trade_no
    if notification.kind == "payment" and point and notification.out_trade_no is None:
        return Transition("parked", f"it holds no order number to ask about: notification.out_trade_no says {point!r}")
    try:
        return notification.inquiry()
    except InvalidArgumentError as error:
        return Transition("parked", describe_error(error))


def judge_response(
    query: Request[Response], kind: str, response: Response, profile: Profile, age: float, *, signed: str | None = None
) -> Confirmed | Transition:
    """Return whether a response confirms a hint that was received `age` seconds ago, or the hint's next state.

    Args:
        query: What the service was asked.
        kind: The hint's.
        response: The service's.
        profile: What the service does.
        age: In seconds.
        signed: The state that a verified event names. It need not be final.
    """
    number = str(query.reference)
    path = _number_path(query, profile)
    found = number_at(response.data, path)
    if found not in {None, number}:  # a query for `t1` may find `T1`, whose effect would then come under two keys
        reason = f"the query was about {number!r}, and its response is about {path} {clean(repr(found))}"
        return Transition("held", reason)
    thing = response.thing
    path, states = getattr(profile.answer, f"{thing}_status"), getattr(profile.states, thing)
    if not path:
        missing = not_configured(f"answer.{thing}_status", f"the path of the state of the {thing}")
        return Transition("parked", describe_error(missing))
    status, waiting = response.get(path), _WAITING[thing]
    if not (isinstance(status, str) or type(status) is int):
        return Transition("pending", f"the response has no {path!r}, which holds the state")
    if response.state is None and waiting not in states:
        missing = not_configured(f"states.{thing}.{waiting}", "the service's values of a state that is not final")
        return Transition("parked", describe_error(missing))
    others = ("order", "payment") if thing == "refund" else ("refund",)
    of_another = response.state is None and any(profile.states.name(each, status) for each in others)
    if of_another or (response.state == waiting and waiting != signed):
        reason = f"the service does not confirm it yet: the state is {clean(repr(status))}"
        reason += ", which is that of another thing" if of_another else ""
        return Transition("pending" if age - response.age < MAX_UNCONFIRMED else "dead", reason)
    key = build_key(f"{CONFIRMED}{kind}:", [number, status])
    return Confirmed(key, build_fact(kind, number, response.state), response)


def hold_early(early: float) -> Transition:
    """Return the next state of an event that may be of an earlier send, until a query made in `early` seconds."""
    reason = "the number was sent again, and this may be about an earlier send"
    if early < inf:
        return Transition("pending", reason, early)
    advice = "Compare it with what the service shows, or set recovery.quarantine in the profile and replay the event"
    return Transition("held", f"{reason}. {advice}")


def _number_path(query: Request[Response], profile: Profile) -> str:
    """Return the path at which a response names the number of its query; empty if it is not compared."""
    argument = _NUMBERS.get(type(query), "payment_id")
    path: str | None = getattr(profile.answer, argument)
    return shown_names(profile, query.operation.name, argument)[0] if path is None else path


def judge_error(error: Exception, profile: Profile, age: float) -> Transition:
    """Return the next state of a hint that is `age` seconds old, if its query failed or the service denies it."""
    if isinstance(error, ConfigurationError | InvalidArgumentError):
        return Transition("parked", describe_error(error))
    if isinstance(error, AuthenticationError | RateLimitedError) or not isinstance(error, ServiceError):
        return Transition("pending", describe_error(error))
    quarantine = DEFAULT_QUARANTINE if profile.recovery.quarantine is None else profile.recovery.quarantine
    # Any other refusal may be about the query itself, or a gateway's.
    bound = quarantine if error.absent else max(quarantine, MAX_UNCONFIRMED)
    known = age - (error.response.age if error.response else 0.0)
    is_final = known >= bound and error.http_status not in _REDIRECTS
    return Transition("dead" if is_final else "pending", describe_error(error))


QUERY_PAUSE: Final = 60.0
"""Seconds after a final state in which the same number is not queried again."""
MAX_WAITING_EVENTS: Final = 10_000
"""Events that one query can answer for; further ones wait for the query after it."""

BURST: Final = 100
"""Queries about hints that may follow each other without a pause."""
RATE: Final = 20.0
"""Queries about hints per second, after a burst."""
IN_FLIGHT_PAUSE: Final = 5.0
"""Seconds that an event waits while a query about its number is in flight."""
MAX_TURNS: Final = 10_000
"""Events whose turn to query is remembered."""
_TINY: Final = 0.001
"""Seconds by which an event may come before its turn, because stored times are rounded."""

QueryKey: TypeAlias = tuple[str, str]
"""The name of the operation, and the number."""


@define
class _LastQuery:
    """The last query about one number.

    Attributes:
        waiting: The ids of events that wait for the next query, and for which it answers.
        answers_for: The ids of events that this query answers for.
        confirmed: The final state that it returned.
        until: The time, in seconds since 1970, before which the number is not queried again.
        loop: The loop in which the query is in flight. It may be a loop that has ended, or that of a parent process.
    """

    waiting: set[int] = Factory(set)
    answers_for: frozenset[int] = frozenset()
    confirmed: Confirmed | None = None
    until: float = 0.0
    loop: asyncio.AbstractEventLoop | None = None

    def wait(self, event: int, seconds: float, why: str) -> Transition:
        """Have an event wait for the next query."""
        if len(self.waiting) < MAX_WAITING_EVENTS:
            self.waiting.add(event)
        return Transition("pending", why, seconds)


@define
class _Bucket:
    """Limits queries about all numbers together: a token bucket. Who finds no token gets a turn, in order.

    Attributes:
        full_at: When the bucket has all its tokens again, in seconds since 1970.
        turns: The times of the turns, by event, the next one first.
    """

    full_at: float = 0.0
    turns: dict[int, float] = Factory(dict)

    def take(self, event: int, now: float, is_free: Callable[[], bool]) -> float:
        """Take a token for an event, and return 0; or return the seconds until its turn."""
        filling = BURST / RATE
        if self.full_at > now + filling + _TINY:  # the clock was set back
            self.full_at, self.turns = now, {}
        while self.turns and next(iter(self.turns.values())) < now - filling:  # it did not come: the token is free
            del self.turns[next(iter(self.turns))]
        turn = self.turns.get(event)
        if turn is not None and turn > now + _TINY:
            return turn - now
        self.turns.pop(event, None)
        missing = 1 - BURST + (self.full_at - now) * RATE
        if missing + (len(self.turns) if turn is None else 0) <= RATE * _TINY and is_free():
            self.full_at = max(self.full_at, now) + 1 / RATE
            return 0.0
        wait = (max(missing, 1) + len(self.turns)) / RATE
        if len(self.turns) < MAX_TURNS:
            self.turns[event] = now + wait
        return wait


class QueryLimiter:
    """Limits the queries of one receiver in one process.

    Notifications that the service signed have a bucket of their own, so that strangers' hints do not delay them.

    Args:
        clock: Returns seconds since 1970.
        most: The most queries in flight, so that a slow service does not delay events that need no query.
    """

    def __init__(self, clock: Callable[[], float], most: int) -> None:
        self._clock: Final = clock
        self._most: Final = most
        self._queries: Final = dict[QueryKey, _LastQuery]()
        self._buckets: Final = _Bucket(), _Bucket()

    def recall(self, query_key: QueryKey, event: int, *, signed: bool = False) -> Confirmed | Transition | None:
        """Return the last query's result for an event, or a transition that makes it wait; `None` if it queries now.

        Args:
            query_key: What the event would query.
            event: The event's id.
            signed: Whether its notification has a valid signature.
        """
        if known := self._recall_number(query_key, event):
            return known
        if wait := self._buckets[signed].take(event, self._clock(), self._is_free):
            return Transition("pending", "it waits for its turn, because many hints wait for a query", wait)
        return None

    def _is_free(self) -> bool:
        """Return whether one more query may be in flight."""
        loop = asyncio.get_running_loop()
        return sum(each.loop is loop for each in self._queries.values()) < self._most

    def _recall_number(self, query_key: QueryKey, event: int) -> Confirmed | Transition | None:
        last, now = self._queries.get(query_key), self._clock()
        if last is None:
            return None
        if last.loop is asyncio.get_running_loop():
            return last.wait(event, IN_FLIGHT_PAUSE, "a query about the same number is in flight")
        # If `until` is later, the clock was set back.
        if last.confirmed is None or not now < last.until <= now + QUERY_PAUSE:
            return None
        if event in last.answers_for:
            return last.confirmed
        return last.wait(event, last.until - now, "the same number was queried just now")

    def begin(self, query_key: QueryKey, event: int) -> None:
        """Note that a query begins. It answers for an event, and for all events that waited for it."""
        self._forget()
        before = self._queries.pop(query_key, _LastQuery())
        answers_for = frozenset({event, *before.waiting})
        self._queries[query_key] = _LastQuery(answers_for=answers_for, loop=asyncio.get_running_loop())

    def end(self, query_key: QueryKey, confirmed: Confirmed | None) -> None:
        """Note that a query has ended, and the final state that it returned, if any."""
        last = self._queries.get(query_key)
        if last is None or last.loop is not asyncio.get_running_loop():  # another loop has begun anew
            return
        last.loop, last.confirmed, last.until = None, confirmed, self._clock() + QUERY_PAUSE
        if confirmed is None and not last.waiting:
            del self._queries[query_key]

    def _forget(self) -> None:
        """Forget the oldest queries, a while after their numbers may be queried again."""
        now = self._clock()
        while self._queries:
            query_key, last = next(iter(self._queries.items()))
            if last.loop is asyncio.get_running_loop() or now - QUERY_PAUSE < last.until <= now + QUERY_PAUSE:
                return
            del self._queries[query_key]


@frozen
class Confirmer:
    """Confirms hints by queries.

    Attributes:
        inbox: Knows the keys that were confirmed before.
        profile: What the service does.
        limiter: Limits the queries.
        sends: Counts the sends of writes.
        clock: Returns seconds since 1970.
    """

    inbox: Inbox
    profile: Profile
    limiter: QueryLimiter
    sends: Sends
    clock: Callable[[], float]

    async def confirm(self, hint: Notification, claim: Claim) -> Notification | Transition:
        """Return a hint with the service's response, or the next state of its event.

        A verified event may be of an earlier send, if its number was sent more than once. Then it is a hint, too.

        Args:
            hint: The notification.
            claim: The lease on its event.

        Raises:
            StorageError: The journal or the inbox cannot be read.
        """
        event = claim.event
        sends, early = await self.sends.count(hint, hint.state) if hint.verified else (1, 0.0)
        if hint.verified and sends == 1:
            return await self._rename(claim, hint) if "#" in (event.fact or hint.dedup_key) else hint
        found = hold_early(early) if early > 0 else await self._query(hint, claim)
        if isinstance(found, Transition):
            transition = found
        elif await self._own(claim, hint, found):
            return evolve(hint, dedup_key=found.key) if hint.verified else self._with_response(hint, found)
        else:
            transition = Transition("done", SAME)
        if hint.verified and transition.state in {"parked", "held"}:
            return evolve(transition, state="held")
        if transition.state != "parked":
            await self.release(claim, event, hint, ended=transition.state == "done")
        return transition

    async def release(self, claim: Claim, event: InboxEvent, hint: Notification, *, ended: bool) -> None:
        """Give an event another key if it was not confirmed: the same hint may come again, and be true then.

        Args:
            claim: The lease.
            event: The event, as it was when it was leased.
            hint: Its notification.
            ended: No handler is called for it any more. Then it has no fact.
        """
        key = hint_key(hint) if ended and event.key.startswith(CONFIRMED) else event.key
        own = f":{event.id}" if key.startswith((HINT, SIGNED)) or (hint.verified and self.sends.may_recur(hint)) else ""
        await self.inbox.own(claim, key.removesuffix(own) + own, fact=None if ended else event.fact)

    async def _rename(self, claim: Claim, hint: Notification) -> Notification | Transition:
        """Give an event its key and its fact without the sends, if those after the first one were refused since."""
        key, fact, _ = await self.sends.name(evolve(hint, dedup_key=self.sends.key(hint, hint.state, 1)))
        if (key, fact) == (hint.dedup_key, claim.event.fact) or await self.inbox.own(claim, key, fact=fact):
            return evolve(hint, dedup_key=key)
        return Transition("superseded", "another event has its key")

    async def _own(self, claim: Claim, hint: Notification, found: Confirmed) -> bool:
        """Give an event the key and the fact that confirm it, unless another one with these waits."""
        event = claim.event
        own = [(await self.sends.name(hint)).key] if event.key.startswith(SIGNED) else []  # before its key was shared
        fact = (event.fact if found.key == event.key else None) or found.fact  # of the send before which it came
        owned = await self.inbox.own(claim, found.key, fact=fact, others=own)
        if owned or fact is None or hint.verified:
            return owned
        # What has the key may have ended before all handlers had the fact. Its marks say which ones have it.
        return await self.inbox.own(claim, f"{found.key}:{event.id}", fact=fact, others=[found.key, *own])

    async def _query(self, hint: Notification, claim: Claim) -> Confirmed | Transition:
        query = choose_query(hint, self.profile)
        if isinstance(query, Transition):
            return query
        event, query_key = claim.event, (query.operation.name, str(query.reference))
        # Only a hint that nobody has signed, and that no query has confirmed yet, has such a key.
        signed = not event.key.startswith(HINT)
        if known := self.limiter.recall(query_key, event.id, signed=signed):
            return known if isinstance(known, Transition) else await self._judge_time(hint, known)
        self.limiter.begin(query_key, event.id)
        end_state: Confirmed | None = None
        asked_at = self.clock()
        age = 0.0 if hint.verified else asked_at - hint.received_at.timestamp()
        try:
            response = await hint.confirm()
        except Exception as error:  # noqa: BLE001 - no error confirms a hint
            return judge_error(error, self.profile, age)
        else:
            named = hint.state if hint.verified else None
            found = judge_response(query, hint.kind or "", response, self.profile, age, signed=named)
            if isinstance(found, Transition):
                return found
            found = evolve(found, known=asked_at - response.age)
            judged = await self._judge_time(hint, found)
            if isinstance(judged, Confirmed) and not hint.verified:  # else it need not be final
                end_state = found
            return judged
        finally:
            self.limiter.end(query_key, end_state)

    async def _judge_time(self, hint: Notification, found: Confirmed) -> Confirmed | Transition:
        """Return what confirms an event, or its next state if the response may be of an earlier send, or refutes it."""
        state = found.response.state
        sends, early = await self.sends.count(hint, state)
        if (early := early + self.clock() - found.known) > 0:
            return hold_early(early)
        added = suffix(hint, state, sends)
        found = evolve(found, key=found.key + added, fact=found.fact and found.fact + added)
        if not hint.verified:
            return found
        if state == hint.state:
            return evolve(found, key=self.sends.key(hint, state, sends))
        if state is None:
            return Transition("pending", "the service names a state that the profile does not list")
        return Transition("done", f"the service says {state}: it was about an earlier send")

    def _with_response(self, hint: Notification, confirmed: Confirmed) -> Notification:
        """Return a hint with the facts of the response. Its own facts remain only in `raw` and `document`."""
        shape, response = self.profile.notification, confirmed.response
        paths = own_number_paths(shape, hint.kind) | {"payment_id": self.profile.answer.payment_id}
        queried = "out_refund_no" if hint.kind == "refund" else "out_trade_no" if hint.out_trade_no else "payment_id"
        del paths[queried]
        facts: dict[str, Any] = {name: number_at(response.data, path) for name, path in paths.items()}
        facts |= {"data": response.data, "event": None, "event_time": None, "dedup_key": confirmed.key, "weak": False}
        return evolve(hint, confirmed=response, **facts)
