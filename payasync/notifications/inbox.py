"""What a receiver keeps of notifications, and what it asks of the place that keeps them: no I/O here."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum, auto
from typing import Any, Final, Literal, Protocol, get_args

from attrs import field, frozen

from payasync.wire.request import invalid

State = Literal["pending", "leased", "done", "dead", "parked", "quarantined"]
STATES: Final[tuple[State, ...]] = get_args(State)
"""What an event can be."""
ENDS: Final[frozenset[State]] = frozenset({"done", "dead", "parked", "quarantined"})
"""What is not dispatched by itself any more."""
REPLAYABLE: Final = ENDS - {"done"}
"""What can be dispatched again."""

KEPT_HEADERS: Final = frozenset(
    {"content-type", "date", "user-agent", "webhook-id", "webhook-timestamp", "x-request-id"}
)
"""What names a notification, or helps to find it at the service. Any other header may let somebody in."""


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() in KEPT_HEADERS}


@frozen(kw_only=True)
class Received:
    """A notification that is about to be kept.

    Attributes:
        key: What says that two notifications are of one event.
        digest: SHA-256 of the body without its volatile fields, in hexadecimal digits.
        weak: The key is no more than that digest.
        kind: `payment`, `refund`, `subscription`, or `None` where nothing says it.
        event: The service's own name of the event, where there is one.
        verified: Its signature is the service's.
        lasting: It is verified, and no signed time bounds how late it can come again: its key is kept for ever.
        raw: The body as it came.
        headers: Those of `KEPT_HEADERS`, as they came.
        received_at: An aware moment.
    """

    key: str
    digest: str
    weak: bool = False
    kind: str | None = None
    event: str | None = None
    verified: bool = False
    lasting: bool = False
    raw: bytes = field(repr=False)
    headers: Mapping[str, str] = field(factory=dict, converter=_kept, repr=False)
    received_at: datetime


class Added(Enum):
    """What became of a notification that was to be kept; whichever it is, it can be acknowledged."""

    NEW = auto()
    """It is the first of its key, and pending."""
    AGAIN = auto()
    """The same has been kept before: nothing was added."""
    CONFLICT = auto()
    """Another body has been kept under its key before: it is quarantined."""


@frozen(kw_only=True)
class InboxEvent:
    """An event as the inbox has it.

    Attributes:
        id: The inbox's number of it, ascending.
        key: As in `Received`, like all that is not named here.
        raw: The body as it came; empty if it was forgotten, and only its key is kept.
        state: One of `STATES`.
        attempts: How often it was claimed since it came, or was replayed.
        failures: How many of these attempts failed; the others ended well, or were cut off.
        reason: Why it is in that state, in one line, where there is something to say.
        due: When it is to be claimed; of a leased one, when the lease ends; `None` where it is neither.
        handled: The names of the handlers that are done with it.
    """

    id: int
    key: str
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
    handled: frozenset[str] = frozenset()


@frozen(kw_only=True)
class Claim:
    """A lease on an event; who holds it dispatches.

    Attributes:
        event: As it was when it was claimed.
        fence: The number of this lease; a later lease has a higher one, and this one is lost then.
    """

    event: InboxEvent
    fence: int


class Inbox(Protocol):
    """Keeps notifications durably, and lends them to one dispatcher at a time.

    All of it is safe with several processes on one inbox. Each method raises `StorageError` where the inbox can be
    neither read nor written now, and then nothing was done.
    """

    async def add(self, received: Received) -> Added:
        """Keep a notification: when this returns, it is on the disk and outlives a loss of power."""
        ...

    async def claim(self, limit: int, lease: float) -> list[Claim]:
        """Lease up to `limit` events that are due, for `lease` seconds, the longest due first.

        Each counts an attempt, one whose former lease has ended, too. Where the clock was set back, what waits does
        so for as long as before, from now: nothing hangs until the clock has come so far again.
        """
        ...

    async def extend(self, claim: Claim, lease: float) -> bool:
        """Let a lease end in `lease` seconds from now; `False` where it is lost."""
        ...

    async def handled(self, claim: Claim, handler: str) -> bool:
        """Remember that a handler is done with the event; `False` where the lease is lost."""
        ...

    async def own(self, claim: Claim, key: str) -> bool:
        """Give the event another key, such as one of what was confirmed; what comes under the former key is new then.

        `False`, and nothing changes, where another event has the key, or the lease is lost.
        """
        ...

    async def finish(self, claim: Claim, state: State, reason: str = "", wait: float | None = None) -> bool:
        """End a lease; `False`, and nothing changes, where it is lost.

        Args:
            claim: The lease.
            state: One of `ENDS`, or `pending`.
            reason: Why, in one line.
            wait: Of a pending one, which has failed, the seconds until it may be claimed. `None`: it has not
                failed, and may be claimed at once.
        """
        ...

    async def next_due(self) -> float | None:
        """Return in how many seconds the next event is due, or a lease ends; `None` where nothing is to come."""
        ...

    async def events(self, state: State | None = None, *, limit: int = 100, after: int = 0) -> list[InboxEvent]:
        """List events, those of one state or all, in the order of their numbers, `after` one of them."""
        ...

    async def replay(self, event_id: int, kept: Received | None = None) -> bool:
        """Make a dead, parked or quarantined event pending, with all attempts before it.

        The handlers that are done with it stay done. `False`, and nothing changes, where it is none of these, or
        another event has the key that it is to have.

        Args:
            event_id: Its number.
            kept: Has the kind and the key that are the event's from now on, where these change.
        """
        ...

    async def forget(self, before: datetime) -> int:
        """Delete what has been done since before a moment; return how many events that were.

        What is dead, parked or quarantined is deleted, too, where it was never verified: anybody may have sent it.
        A deleted event that comes again is new. So two kinds of events are never deleted: confirmed ones, whose keys
        begin with `confirmed:`, and the lasting ones. Both can come again at any time, and would be handled anew.
        Once they are done since before that moment, only their key and digest stay; body and headers are deleted.
        """
        ...

    async def aclose(self) -> None:
        """Finish what was begun, and let go of the inbox; whatever is asked of it afterwards is a `StorageError`."""
        ...


FORGOTTEN_AT_ONCE: Final = 500
"""Events that one transaction deletes, so that nobody waits long behind it."""
AHEAD: Final = 60.0
"""Seconds by which a moment in the past may be ahead of now: by more, and the clock was set back."""


def beside(others: Sequence[Mapping[str, Any]], digest: str) -> tuple[Added, dict[str, Any]]:
    """Return what becomes of a notification, and its state and reason; of one that is there already, nothing.

    Args:
        others: Those that have its key, oldest first.
        digest: Its own.
    """
    if any(other["digest"] == digest for other in others):
        return Added.AGAIN, {}
    if not others:
        return Added.NEW, {"state": "pending", "reason": ""}
    reason = f"event {others[0]['id']} came with the same key and another body"
    return Added.CONFLICT, {"state": "quarantined", "reason": reason}


def a_state(state: State | None) -> State | None:
    """Return a state that events can be listed by.

    Raises:
        InvalidArgumentError: There is none such.
    """
    if state is not None and state not in STATES:
        raise invalid("state", f"one of {', '.join(STATES)}", state)
    return state


def an_end(state: State) -> State:
    """Return a state that a lease can end in.

    Raises:
        InvalidArgumentError: None does.
    """
    if state not in ENDS and state != "pending":
        raise invalid("state", f"pending, {', '.join(sorted(ENDS))}", state)
    return state
