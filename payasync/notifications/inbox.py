"""The inbox: the notifications that it stores, its promises, and its SQL statements; no I/O here."""

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, Final, Literal, TypeVar, get_args

from attrs import evolve, field, fields, frozen

from payasync.clocks import utc_moment
from payasync.notifications.notification import HELD, OF_ANOTHER
from payasync.storage import Backlog, Upgrade, check_moment, check_number, read_queries
from payasync.storage.transactions import Query, Transaction, Work
from payasync.wire.validators import invalid_argument

State = Literal["pending", "leased", "done", "dead", "parked", "held", "superseded"]
StateName = Literal[State, "quarantined"]
STATES: Final[tuple[State, ...]] = get_args(State)
"""The states of an event."""
ENDS: Final[frozenset[State]] = frozenset({"done", "dead", "parked", "held", "superseded"})
"""The states in which an event is no longer dispatched automatically."""
REPLAYABLE: Final = ENDS - {"done", "superseded"}
"""The states from which an event can be replayed."""


def state_of_name(name: StateName) -> State:
    """Return a state by its name, or by the name that *held* had before."""
    return "held" if name == "quarantined" else name


STORED_HEADERS: Final = frozenset(
    {"content-type", "date", "user-agent", "webhook-id", "webhook-timestamp", "x-request-id"}
)
"""The headers that are stored. Any other header may hold a secret, such as a token."""


def _select_stored(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() in STORED_HEADERS}


@frozen(kw_only=True)
class Received:
    """A notification that is about to be stored.

    Attributes:
        key: Identifies the event: notifications with the same key are of one event.
        digest: SHA-256 of the body without its volatile fields, in hexadecimal digits.
        weak: The key is only that digest.
        kind: `payment`, `refund` or `subscription`; `None` if unknown.
        event: The service's own name of the event, if there is one.
        verified: The service signed it, for this merchant.
        lasting: It is verified, but has no signed time, so it can come again at any time. Its key is never deleted.
        held: Why it is held from the start; empty: it is dispatched.
        raw: The body, as it was received, but without gzip.
        headers: Those of `STORED_HEADERS`, as they were received.
        received_at: The time of arrival, an aware datetime.
        event_time: When it happened, as the service says, if the profile locates that.
        sends: How often the journal had sent the write that has ended; 1 for any other event.
        fact: The number and our state of a verified event.
    """

    key: str
    digest: str
    weak: bool = False
    kind: str | None = None
    event: str | None = None
    verified: bool = False
    lasting: bool = False
    held: str = ""
    raw: bytes = field(repr=False)
    headers: Mapping[str, str] = field(factory=dict, converter=_select_stored, repr=False)
    received_at: datetime
    event_time: datetime | None = None
    sends: int = 1
    fact: str | None = None


class Added(Enum):
    """The result of adding a notification; it can be acknowledged in each case."""

    NEW = auto()
    """No other event of its key is dispatched or handled, and it is pending."""
    AGAIN = auto()
    """It is a duplicate, and nothing was added."""
    CONFLICT = auto()
    """An event of its key with another body is dispatched or was handled. It was added, and is held."""
    HELD = auto()
    """It is genuine, and cannot be used as it is. It was added, and is held."""


@frozen(kw_only=True)
class InboxEvent:
    """An event, as the inbox stores it.

    Attributes:
        id: The inbox's number of the event, ascending.
        key: As in `Received`, like all attributes that are not listed here.
        raw: The body, as it was received, but without gzip; empty if only the key is still stored.
        state: `pending`, `leased`, `done`, `dead`, `parked`, `held` or `superseded`.
        attempts: How often it was leased since it arrived or was replayed.
        failures: How many of these attempts failed; the others succeeded or were interrupted.
        reason: Why it is in that state, in one line; may be empty.
        due: When it can be leased, or when its lease ends; `None` in any other state.
        handled: The names of the handlers that have handled it. After a blank, the key under which they did may follow.
    """

    id: int
    key: str
    digest: str = field(default="", repr=False)
    kind: str | None = None
    event: str | None = None
    weak: bool = False
    verified: bool = False
    raw: bytes = field(repr=False)
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    received_at: datetime
    state: State = "pending"
    attempts: int = 0
    failures: int = 0
    reason: str = ""
    due: datetime | None = None
    handled: frozenset[str] = field(default=frozenset(), converter=frozenset)
    event_time: datetime | None = None
    sends: int = 1
    fact: str | None = None

    @property
    def of_another(self) -> bool:
        """Whether it is held because it names another merchant. Nobody need act on it."""
        return self.state == "held" and self.key.startswith(OF_ANOTHER)


@frozen(kw_only=True)
class Claim:
    """A lease on an event: its holder dispatches the event.

    Attributes:
        event: The event, as it was when it was leased. `handled` also has the handlers that have handled another event
            of its key that is not done.
        fence: The number of this lease. A later lease has a higher number, and this lease is then lost.
        known: The names of the handlers that have got the event's fact; whether they got it from a verified event. An
            empty name stands for all handlers: another event of the fact is done. `None` says that a query has
            confirmed one of two events of the fact, and that the other one is being handled.
    """

    event: InboxEvent
    fence: int
    known: Mapping[str | None, bool] = field(factory=dict)


FORGET_BATCH: Final = 500
"""Events that one transaction deletes, so that other transactions do not wait long."""
MAX_AHEAD: Final = 60.0
"""Seconds by which a stored time may be ahead of now; if it is more, the clock was set back."""

SQL: Final = read_queries("payasync.notifications", "inbox")

T = TypeVar("T")


class Inbox(ABC):
    """Stores notifications durably, and leases each to one dispatcher at a time.

    Several processes can use one inbox. Each method raises `StorageError` if the inbox cannot be read or written;
    nothing has then been changed. `SqliteInbox` and `PostgresInbox` are inboxes.
    """

    _mark_handled: str
    """The statement that records that a handler has handled an event."""
    _compared_at = datetime.min.replace(tzinfo=UTC)
    """When a claim last compared the clock with what is stored."""

    @abstractmethod
    async def _run(self, work: Work[T], *keys: str | None) -> T:
        """Run a transaction, and return its result after the commit.

        Args:
            work: Begins the transaction.
            keys: No other transaction with one of these keys runs at the same time.
        """

    async def add(self, received: Received) -> Added:
        """Store a notification; when this returns, it is on the disk and survives a power failure."""
        return await self._run(partial(_add, _values(received)), received.key, received.fact)

    async def claim(self, limit: int, lease: float) -> list[Claim]:
        """Lease up to `limit` events that are due, for `lease` seconds, the longest due first.

        Each lease counts as an attempt, also if an earlier lease has expired. If the clock was set back, each waiting
        event waits for its full time again. That is looked for when the clock goes back, and once a minute.
        """
        claims, self._compared_at = await self._run(partial(_claim, limit, timedelta(seconds=lease), self._compared_at))
        return claims

    async def extend(self, claim: Claim, lease: float) -> bool:
        """Extend a lease to `lease` seconds from now; return `False` if it is lost."""
        return await self._run(lambda now: _change(claim, SQL["extend"], until=now + timedelta(seconds=lease)))

    async def handled(self, claim: Claim, handler: str, *, as_copy: bool = False) -> bool | None:
        """Record that a handler has handled the event, and has got its fact; return `False` if the lease is lost.

        Args:
            claim: The lease.
            handler: The handler's name. After a blank it may have more, which is recorded with this event alone.
            as_copy: The handler was not called, because it has got the fact from an event that a query confirmed.
                Return `None`, and record nothing, if another verified event was the copy of that.
        """
        return await self._run(lambda _: self._mark(claim, handler, as_copy=as_copy))

    def _mark(self, claim: Claim, handler: str, *, as_copy: bool = False) -> Transaction[bool | None]:
        added = yield from _change(claim, SQL["add_fact"], name=_handler_name(handler), state="leased")
        if as_copy and not added:
            return None if (yield from _change(claim, SQL["is_leased"])) else False
        return (yield from _change(claim, self._mark_handled, handler=handler))

    async def read(self, claim: Claim) -> Claim:
        """Return a lease as it is after the event has got another key or fact."""
        read = await self._run(lambda _: _claims([claim.event.id]))
        return evolve(read[0], fence=claim.fence) if read else claim

    async def own(
        self,
        claim: Claim,
        key: str,
        *,
        fact: str | None = None,
        verified: bool | None = None,
        others: Sequence[str] = (),
    ) -> bool:
        """Give the event another key, such as that of a confirmed state; the former key is then free.

        Return `False`, and change nothing, if another event has the key or the lease is lost.

        Args:
            claim: The lease.
            key: The key.
            fact: The event's fact, as in `Received`.
            verified: Whether the event is verified from now on. `None`: as before.
            others: Keys under which no other event without a fact, of an earlier version, may wait or be done.
        """
        values = {"key": key, "verified": verified, "fact": fact, "others": json.dumps(others, ensure_ascii=False)}
        return await self._run(lambda _: _own(claim, values), key, fact, *others)

    async def is_copy(self, claim: Claim, key: str) -> bool:
        """Return whether another event of a key has the same body, or was handled."""
        return await self._run(lambda _: _is_copy(claim, {"key": key, "digest": claim.event.digest}))

    async def finish(
        self,
        claim: Claim,
        state: State,
        reason: str = "",
        wait: float | None = None,
        *,
        failed: bool = True,
        handler: str = "",
    ) -> bool:
        """End a lease; return `False`, and change nothing, if it is lost.

        Args:
            claim: The lease.
            state: One of `ENDS`, or `pending`.
            reason: Why, in one line.
            wait: Seconds until a pending event can be leased again; this counts as a failure. `None`: it has not
                failed, and can be leased immediately.
            failed: `False` if the event only has to wait: then the lease does not even count as an attempt.
            handler: What to record before, as `handled` does.
        """
        if state not in ENDS and state != "pending":
            raise invalid_argument("state", f"pending, {', '.join(sorted(ENDS))}", state)
        count = {"failed": int(failed and wait is not None), "waited": int(not failed)}
        values = {"state": state, "reason": reason, "pause": timedelta(seconds=wait or 0), **count}
        # While a held event gives way to the next one, no other of its key is added.
        key = claim.event.key if state == "held" else None
        return await self._run(partial(self._finish, claim, handler, values), key)

    def _finish(self, claim: Claim, handler: str, values: Mapping[str, Any], now: datetime) -> Transaction[bool]:
        """End a lease. A handled event supersedes held ones of its key; a held one gives way to the next of its key."""
        state = values["state"]
        is_last = bool(handler) and state == "done"
        if is_last:
            yield from _change(claim, self._mark_handled, handler=handler)
        elif handler:
            yield from self._mark(claim, handler)
        ended = yield Query(SQL["finish"], {"id": claim.event.id, "fence": claim.fence, **values})
        if is_last and ended and ended[0]["is_known"]:
            yield from _change(claim, SQL["add_fact"], name=_handler_name(handler), state=state)
        # A reason says why an event is done that was not handled.
        if ended and ended[0]["others"] and state != "pending" and not (state == "done" and values["reason"]):
            yield Query(SQL["supersede"], {"id": claim.event.id, "now": now})
        if ended and state == "held":
            yield Query(SQL["release"], {"id": claim.event.id, "now": now})
        return bool(ended)

    async def next_due(self) -> float | None:
        """Return the seconds until the next event is due or a lease ends; `None` if there is neither."""
        return await self._run(_next_due)

    async def backlog(self) -> Backlog:
        """Return how many events wait or need a person, by state, and what is late.

        Held events that name another merchant need nobody. Their count has the name `another_merchant`.
        """
        return await self._run(_backlog)

    async def events(self, state: StateName | None = None, *, limit: int = 100, after: int = 0) -> list[InboxEvent]:
        """List events of one state, or all, in the order of their numbers, beginning after the number `after`."""
        named = None if state is None else state_of_name(state)
        if named is not None and named not in STATES:
            raise invalid_argument("state", f"one of {', '.join(STATES)}", state)
        values = {"state": named, "limit": check_number("limit", limit), "after": check_number("after", after)}
        return await self._run(lambda _: _events(values))

    async def replay(self, event_id: int, kept: Received | None = None, *, unless_done: bool = False) -> bool:
        """Make a dead, parked or held event pending again, with all its attempts.

        Handlers that have handled it are not called again. Return `False`, and change nothing, if the event is in
        another state, if another of its key is pending or leased, or if another event has its new key.

        Args:
            event_id: The event's number.
            kept: Holds the event's new kind and key, if they change.
            unless_done: Return `False` also if another event of its key is done.
        """
        values = {"id": check_number("event_id", event_id), "unless_done": unless_done}
        if kept is not None:
            values |= _values(kept)
            return await self._run(lambda _: _rename_and_replay(values), kept.key, kept.fact)
        # While it looks at the others of its key, none of them is added or replayed.
        found = await self.events(limit=1, after=max(event_id - 1, 0))
        return await self._run(lambda _: _replay(values), *((found[0].key, found[0].fact) if found else ()))

    async def forget(self, before: datetime) -> int:
        """Delete events that have been done since before a moment; return how many were deleted.

        Dead, parked and held events are deleted, too, if they were never verified: anybody may have sent them.
        A done event stays while another of its key is dead, parked or held, or another of its fact is not done, because
        that one must not be handled, too.
        A deleted event that comes again is handled again. So confirmed events, whose keys begin with `confirmed:`, and
        lasting ones are never deleted: they can come again at any time. Only their body and headers are deleted.
        """
        values = {"before": check_moment("before", before), "limit": FORGET_BATCH, "nothing": b""}
        total = 0
        while any(numbers := await self._run(lambda _: _forget(values))):
            total += numbers[0]
        return total

    @abstractmethod
    async def upgrade(self, *, dry_run: bool = False) -> Upgrade:
        """Make or migrate the tables, and return what was executed; with `dry_run`, execute nothing."""

    @abstractmethod
    async def aclose(self) -> None:
        """Finish what has begun, and close the inbox; any later call raises `StorageError`."""


def _add(received: Mapping[str, Any], now: datetime) -> Transaction[Added]:
    values: dict[str, Any] = {**received, "only": False, "state": "pending", "reason": "", "due": now}
    if not values["held"] and (yield Query(SQL["add"], {**values, "only": True})):
        return Added.NEW
    same = yield Query(SQL["same_key"], values)
    others = [each for each in same if each["has_key"]]
    # Of those that wait for a query, each may be about another send. Any further one is a copy.
    if any(other["digest"] == values["digest"] for other in others) or len(same) - len(others) >= values["sends"]:
        return Added.AGAIN
    if reason := values["held"]:
        same = yield Query(SQL["same_key"], {**values, "key": values["key"].removeprefix(HELD)})
        if any(other["state"] == "done" and other["digest"] == values["digest"] for other in same):
            return Added.AGAIN
        yield Query(SQL["add"], {**values, "state": "held", "reason": reason, "due": None})
        return Added.HELD
    # An event that a handler or `expect` has seen, and that is held since, does not block a later one.
    blocking = (other["id"] for other in others if other["state"] != "held" or not other["attempts"])
    first = min(blocking, default=None)
    if first is None:
        yield Query(SQL["add"], values)
        return Added.NEW
    reason = f"event {first} came with the same key and another body"
    yield Query(SQL["add"], {**values, "state": "held", "reason": reason, "due": None})
    return Added.CONFLICT


def _claim(
    limit: int, lease: timedelta, compared_at: datetime, now: datetime
) -> Transaction[tuple[list[Claim], datetime]]:
    if not 0 <= (now - compared_at).total_seconds() <= MAX_AHEAD:  # else no clock was set back by much more
        yield Query(SQL["begin_anew"], {"ahead": now + timedelta(seconds=MAX_AHEAD)})
        compared_at = now
    ids = [row["id"] for row in (yield Query(SQL["due"], {"limit": limit}))]
    rows = (yield Query(SQL["lease"], {"ids": json.dumps(ids), "until": now + lease})) if ids else ()
    return ((yield from _claims(ids, rows)) if ids else []), compared_at


def _claims(ids: list[int], rows: Sequence[dict[str, Any]] = ()) -> Transaction[list[Claim]]:
    """Return the leases on leased events, with what others of their keys and facts say; `rows` say if there are any."""
    handled, known = defaultdict[str, set[str]](set), defaultdict[int, dict[str | None, bool]](dict)
    if not rows or any(row["others"] for row in rows):
        rows = yield Query(SQL["not_done"], {"ids": json.dumps(ids)})
        for mark in (yield Query(SQL["known"], {"ids": json.dumps(ids)})):
            known[mark["id"]][mark["handler"]] = bool(mark["verified"]) or known[mark["id"]].get(mark["handler"], False)
    events = {row["id"]: _event(row) for row in rows}
    fences = {row["id"]: row["fence"] for row in rows}
    for event in events.values():
        handled[event.key] |= event.handled
    for each, event in events.items():
        changed: dict[str, Any] = {"handled": handled[event.key]}
        if changed["handled"] != event.handled:  # few have others of their key
            events[each] = evolve(event, **changed)
    return [Claim(event=events[each], fence=fences[each], known=known[each]) for each in ids if each in events]


def _change(claim: Claim, statement: str, **values: Any) -> Transaction[bool]:
    """Change a leased event; return whether the lease was still held."""
    return bool((yield Query(statement, {"id": claim.event.id, "fence": claim.fence, **values})))


def _handler_name(handler: str) -> str:
    """Return the name of a handler, which may be recorded with more."""
    return handler.partition(" ")[0]


def _own(claim: Claim, values: Mapping[str, Any]) -> Transaction[bool]:
    yield Query(
        SQL["same_fact"], {"id": claim.event.id, **values}
    )  # so that none of them is leased until this is stored
    return (yield from _change(claim, SQL["own"], **values))


def _is_copy(claim: Claim, values: Mapping[str, Any]) -> Transaction[bool]:
    others = [
        each for each in (yield Query(SQL["same_key"], values)) if each["has_key"] and each["id"] != claim.event.id
    ]
    return any(each["state"] == "done" or each["digest"] == claim.event.digest for each in others)


def _next_due(now: datetime) -> Transaction[float | None]:
    (row,) = yield Query(SQL["next_due"], {})
    return None if row["due"] is None else (_moment(row["due"]) - now).total_seconds()


def _backlog(now: datetime) -> Transaction[Backlog]:
    counts = {each: 0 for each in (*STATES, "another_merchant") if each not in ENDS - REPLAYABLE}
    counts |= {row["state"]: row["count"] for row in (yield Query(SQL["counts"], {}))}
    oldest = [_event(row).received_at for row in (yield Query(SQL["oldest"], {}))]
    wait = yield from _next_due(now)
    age = (now - oldest[0]).total_seconds() if oldest else 0.0
    return Backlog(counts=counts, oldest=max(0.0, age), overdue=max(0.0, -(wait or 0.0)))


def _events(values: Mapping[str, Any]) -> Transaction[list[InboxEvent]]:
    rows = yield Query(SQL["events" if values["state"] is None else "events_of_state"], values)
    return [_event(row) for row in rows]


def _replay(values: Mapping[str, Any]) -> Transaction[bool]:
    return bool((yield Query(SQL["replay"], values)))


def _rename_and_replay(values: Mapping[str, Any]) -> Transaction[bool]:
    return bool((yield Query(SQL["rename"], values))) and (yield from _replay(values))


def _forget(values: Mapping[str, Any]) -> Transaction[tuple[int, int]]:
    """Return how many events were deleted, with their facts, and of how many others only the key is left."""
    deleted = yield Query(SQL["forget"], values)
    if facts := sorted({each["fact"] for each in deleted} - {None}):
        yield Query(SQL["forget_facts"], {**values, "facts": json.dumps(facts, ensure_ascii=False)})
    return len(deleted), len((yield Query(SQL["empty"], values)))


_RECEIVED, _ATTRIBUTES = (tuple(each.name for each in fields(kind)) for kind in (Received, InboxEvent))
_pick: Final = itemgetter(*_ATTRIBUTES)
COLUMNS: Final = (*_ATTRIBUTES, "fence")
"""The columns that are read."""


def _event(row: Mapping[str, Any]) -> InboxEvent:
    """Return the event that stands in a row. SQLite has numbers for moments and truth, and texts for JSON."""
    facts = dict(zip(_ATTRIBUTES, _pick(row), strict=True))
    for name in ("received_at", "due", "event_time"):
        facts[name] = _moment(facts[name])
    if isinstance(facts["headers"], str):
        facts["weak"], facts["verified"] = bool(facts["weak"]), bool(facts["verified"])
        facts["headers"], facts["handled"] = json.loads(facts["headers"]), json.loads(facts["handled"])
    return InboxEvent(**facts)


def _moment(value: Any) -> Any:
    return utc_moment(value) if isinstance(value, int | float) else value


def _values(received: Received) -> dict[str, Any]:
    check_moment("received_at", received.received_at)
    values = dict(zip(_RECEIVED, attrgetter(*_RECEIVED)(received), strict=True))
    return {**values, "headers": json.dumps(received.headers)}
