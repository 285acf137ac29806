"""The SQLite inbox beside a model of it: whatever is done in whatever order, both say the same."""

import asyncio
import tempfile
from collections.abc import Coroutine
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from attrs import define, field
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from payasync.notifications.inbox import ENDS, REPLAYABLE, Added, Claim, State
from payasync.notifications.sqlite_inbox import SqliteInbox
from tests.notifications.inbox_building import Clock, received

T = TypeVar("T")
KEYS = st.sampled_from(["a", "b", "c"])
SECONDS = st.sampled_from([0, 1, 30])


@define
class Modelled:
    """An event, as the model has it."""

    id: int
    key: str
    digest: str
    state: State
    due: datetime | None
    attempts: int = 0
    fence: int = 0
    reason: str = ""
    handled: frozenset[str] = field(factory=frozenset)
    ended: datetime | None = None

    def end(self, state: State, reason: str, due: datetime | None, now: datetime) -> None:
        """Leave the lease for another state."""
        self.state, self.reason = state, reason
        self.due = None if state in ENDS else due or now
        self.ended = now if state in ENDS else None


class InboxMachine(RuleBasedStateMachine):
    """Does to an inbox, and to the model, whatever can be done."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._runner = asyncio.Runner()
        self._clock = Clock()
        self._inbox = SqliteInbox(Path(self._folder.name) / "inbox.db", clock=self._clock)
        self._model = list[Modelled]()
        self._claims = list[Claim]()
        self._next = 1

    def teardown(self) -> None:
        """Leave nothing behind."""
        self._done(self._inbox.aclose())
        self._runner.close()
        self._folder.cleanup()

    @rule(key=KEYS, digest=st.sampled_from(["x", "y"]))
    def add(self, key: str, digest: str) -> None:
        """A notification comes."""
        same = [event for event in self._model if event.key == key]
        again = any(event.digest == digest for event in same)
        expected = Added.AGAIN if again else Added.CONFLICT if same else Added.NEW
        if not again:
            event = Modelled(self._next, key, digest, "pending", self._clock.now)
            if same:
                reason = f"event {same[0].id} came with the same key and another body"
                event.end("quarantined", reason, None, self._clock.now)
            self._model.append(event)
            self._next += 1

        assert expected == self._done(self._inbox.add(received(key, digest)))

    @rule(seconds=SECONDS)
    def wait(self, seconds: int) -> None:
        """Time passes."""
        self._clock.advance(seconds)

    @rule(limit=st.integers(1, 3), lease=SECONDS)
    def claim(self, limit: int, lease: int) -> None:
        """A dispatcher wants work."""
        now = self._clock.now
        due = sorted((event.due, event.id, event) for event in self._model if event.due and event.due <= now)[:limit]
        for *_, event in due:
            event.state, event.due = "leased", now + timedelta(seconds=lease)
            event.attempts += 1
            event.fence += 1
        claims = self._done(self._inbox.claim(limit, lease))
        self._claims += claims

        assert [(number, event.fence) for _, number, event in due] == [(each.event.id, each.fence) for each in claims]

    @precondition(lambda self: self._claims)
    @rule(data=st.data(), lease=SECONDS)
    def extend(self, data: st.DataObject, lease: int) -> None:
        """A dispatcher, perhaps a late one, is still at it."""
        claim = self._one_of(data)
        if event := self._held(claim):
            event.due = self._clock.now + timedelta(seconds=lease)

        assert bool(event) == self._done(self._inbox.extend(claim, lease))

    @precondition(lambda self: self._claims)
    @rule(data=st.data(), handler=st.sampled_from(["h", "i"]))
    def handled(self, data: st.DataObject, handler: str) -> None:
        """A handler is done."""
        claim = self._one_of(data)
        if event := self._held(claim):
            event.handled |= {handler}

        assert bool(event) == self._done(self._inbox.handled(claim, handler))

    @precondition(lambda self: self._claims)
    @rule(data=st.data(), key=KEYS)
    def own(self, data: st.DataObject, key: str) -> None:
        """What was confirmed has a key of its own."""
        claim = self._one_of(data)
        event = self._held(claim)
        free = event and not any(other.key == key for other in self._model if other is not event)
        if event and free:
            event.key = key

        assert bool(free) == self._done(self._inbox.own(claim, key))

    @precondition(lambda self: self._claims)
    @rule(data=st.data(), state=st.sampled_from(["pending", *sorted(ENDS)]), seconds=st.none() | SECONDS)
    def finish(self, data: st.DataObject, state: State, seconds: int | None) -> None:
        """A dispatcher ends its lease, if it still has it."""
        claim = self._one_of(data)
        due = None if seconds is None else self._clock.now + timedelta(seconds=seconds)
        if event := self._held(claim):
            event.end(state, "why", due, self._clock.now)

        assert bool(event) == self._done(self._inbox.finish(claim, state, "why", due))

    @rule(number=st.integers(1, 5))
    def replay(self, number: int) -> None:
        """A person wants an event dispatched again."""
        found = [event for event in self._model if event.id == number and event.state in REPLAYABLE]
        for event in found:
            event.end("pending", "", None, self._clock.now)
            event.attempts = 0

        assert bool(found) == self._done(self._inbox.replay(number))

    @rule(seconds=SECONDS)
    def forget(self, seconds: int) -> None:
        """What has been done for long goes."""
        before = self._clock.now - timedelta(seconds=seconds)
        old = [event for event in self._model if event.state == "done" and event.ended and event.ended < before]
        self._model = [event for event in self._model if event not in old]

        assert len(old) == self._done(self._inbox.forget(before))

    @invariant()
    def same(self) -> None:
        """The inbox holds what the model holds."""
        found = self._done(self._inbox.events())
        facts = [(e.id, e.key, e.state, e.due, e.attempts, e.reason, e.handled) for e in found]

        assert [(e.id, e.key, e.state, e.due, e.attempts, e.reason, e.handled) for e in self._model] == facts
        assert min((e.due for e in self._model if e.due), default=None) == self._done(self._inbox.next_due())

    def _one_of(self, data: st.DataObject) -> Claim:
        return data.draw(st.sampled_from(self._claims))

    def _held(self, claim: Claim) -> Modelled | None:
        """Return the event, if the lease on it is not lost."""
        return next(
            (e for e in self._model if (e.id, e.fence, e.state) == (claim.event.id, claim.fence, "leased")), None
        )

    def _done(self, asked: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(asked)


TestInbox = InboxMachine.TestCase
TestInbox.settings = settings(
    max_examples=100, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
