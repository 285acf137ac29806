"""Events that ended badly, dispatched again because a person says so."""

import asyncio
from typing import Final

from attrs import evolve, frozen

from payasync.errors import InvalidArgumentError
from payasync.notifications.inbox import REPLAYABLE, Inbox, InboxEvent, Received, State
from payasync.notifications.notification import Notification
from payasync.notifications.reading import parse
from payasync.notifications.reception import received
from payasync.notifications.trust import held_as_refund
from payasync.profile import Profile
from payasync.requests import invalid
from payasync.shapes import KINDS, Kind

AT_ONCE: Final = 100
"""Events that are read together; each may be as long as a body."""


@frozen
class Replaying:
    """Dispatches events of an inbox again.

    Attributes:
        inbox: Keeps them.
        profile: Says what names an event of a kind.
    """

    inbox: Inbox
    profile: Profile

    async def one(self, event_id: int, kind: Kind | None) -> bool:
        """Dispatch an event again; `False` where it cannot be.

        Args:
            event_id: Its number.
            kind: Of an event that has none, and has it from now on; `refund` also of a payment that names a refund.

        Raises:
            InvalidArgumentError: That is no number or no kind, or the event is of another kind.
        """
        if not isinstance(event_id, int):
            rule = "the number of an event, as events() tells it"
            raise InvalidArgumentError(f"event_id must be {rule}, not {event_id!r}", field="event_id", rule=rule)
        if kind is None:
            return await self.inbox.replay(event_id)
        if kind not in KINDS:
            raise invalid("kind", f"one of {', '.join(KINDS)}", kind)
        found = await self.inbox.events(limit=1, after=max(event_id - 1, 0))
        if not found or found[0].id != event_id or not found[0].raw:  # of a forgotten event, only the key is there
            return False
        return await self.inbox.replay(event_id, self._of_kind(found[0], kind))

    def _of_kind(self, event: InboxEvent, kind: Kind) -> Received | None:
        """Return what an event is that somebody says the kind of: it has the key that a redelivery would have."""
        if event.kind == kind:
            return None
        if event.kind is not None and not (kind == "refund" and self._names_refund(event)):
            raise invalid("kind", f"{event.kind}, which the event is of", kind)
        told = self._read(event, kind)
        return received(evolve(told, verified=event.verified, received_at=event.received_at), timed=False)

    def _names_refund(self, event: InboxEvent) -> bool:
        return held_as_refund(self._read(event, event.kind), self.profile) is not None

    def _read(self, event: InboxEvent, kind: str | None) -> Notification:
        return parse(event.raw, event.headers, profile=self.profile, kind=kind, max_bytes=len(event.raw))

    async def all(self, state: State) -> int:
        """Dispatch all events of a state again; return how many these were.

        Args:
            state: One of `REPLAYABLE`.

        Raises:
            InvalidArgumentError: Events of that state are not dispatched again.
        """
        if state not in REPLAYABLE:
            raise invalid("state", f"one of {', '.join(sorted(REPLAYABLE))}", state)
        replayed, last = 0, 0
        while found := await self.inbox.events(state, limit=AT_ONCE, after=last):
            last = found[-1].id
            replayed += sum(await asyncio.gather(*(self.inbox.replay(each.id) for each in found)))
        return replayed
