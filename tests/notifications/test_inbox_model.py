"""After any sequence of calls, an inbox in SQLite or PostgreSQL holds what a model of it holds."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from attrs import define, field
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from payasync.notifications.inbox import ENDS, MAX_AHEAD, REPLAYABLE, Added, Claim, Inbox, InboxEvent, State
from payasync.notifications.postgres_inbox import PostgresInbox
from payasync.notifications.sqlite_inbox import SqliteInbox
from tests.journal.building import START, Clock
from tests.notifications.inbox_building import received

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
    failures: int = 0
    fence: int = 0
    reason: str = ""
    handled: frozenset[str] = field(factory=frozenset)
    since: datetime = START

    def end(self, state: State, reason: str, now: datetime, wait: int = 0) -> None:
        """Leave the lease for another state."""
        self.state, self.reason, self.since = state, reason, now
        self.due = None if state in ENDS else now + timedelta(seconds=wait)

    def lease(self, now: datetime, seconds: int) -> None:
        """Be leased from now on."""
        self.state, self.since, self.due = "leased", now, now + timedelta(seconds=seconds)


def facts(event: Modelled | InboxEvent) -> tuple[object, ...]:
    """Return what the model has of an event."""
    return event.id, event.key, event.state, event.due, event.attempts, event.failures, event.reason, event.handled


class InboxMachine(RuleBasedStateMachine):
    """Does to an inbox, and to the model, whatever can be done."""

    def __init__(self, make: Callable[[Clock], Inbox], runner: asyncio.Runner) -> None:
        super().__init__()
        self._clock, self._runner = Clock(), runner
        self._inbox = make(self._clock)
        self._model = list[Modelled]()
        self._compared_at = START + timedelta(days=1)
        self._claims = list[Claim]()
        self._next = 1

    def teardown(self) -> None:
        """Leave nothing behind."""
        self._done(self._inbox.aclose())

    @rule(key=KEYS, digest=st.sampled_from(["x", "y"]))
    def add(self, key: str, digest: str) -> None:
        """A notification comes."""
        same = [event for event in self._model if event.key == key]
        again = any(event.digest == digest for event in same)
        first = next((event for event in same if event.state != "held" or not event.attempts), None)
        expected = Added.AGAIN if again else Added.CONFLICT if first else Added.NEW
        if not again:
            now = self._clock.now
            event = Modelled(self._next, key, digest, "pending", now, since=now)
            if first:
                event.end("held", f"event {first.id} came with the same key and another body", now)
            self._model.append(event)
            self._next += 1

        assert expected == self._done(self._inbox.add(received(key, digest)))

    @rule(seconds=SECONDS)
    def wait(self, seconds: int) -> None:
        """Time passes."""
        self._clock.advance(seconds)

    @rule(seconds=st.sampled_from([1, MAX_AHEAD, MAX_AHEAD + 1, 86400]))
    def set_back(self, seconds: int) -> None:
        """Somebody sets the clock."""
        self._clock.advance(-seconds)

    @rule(limit=st.integers(1, 3), lease=SECONDS)
    def claim(self, limit: int, lease: int) -> None:
        """A dispatcher wants work."""
        now = self._clock.now
        if not 0 <= (now - self._compared_at).total_seconds() <= MAX_AHEAD:
            self._compared_at = now
            for event in self._model:
                if event.due and event.since > now + timedelta(seconds=MAX_AHEAD):
                    event.due, event.since = now + (event.due - event.since), now
        due = sorted((event.due, event.id, event) for event in self._model if event.due and event.due <= now)[:limit]
        for *_, event in due:
            event.lease(now, lease)
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
            event.lease(self._clock.now, lease)

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
        free = event and not any(
            other.state not in {"held", "superseded"} or other.digest == event.digest
            for other in self._model
            if other.key == key and other is not event
        )
        if event and free:
            event.key = key

        assert bool(free) == self._done(self._inbox.own(claim, key))

    @precondition(lambda self: self._claims)
    @rule(
        data=st.data(),
        state=st.sampled_from(["pending", *sorted(ENDS)]),
        reason=st.sampled_from(["", "why"]),
        seconds=st.none() | SECONDS,
        failed=st.booleans(),
    )
    def finish(self, data: st.DataObject, state: State, reason: str, seconds: int | None, *, failed: bool) -> None:
        """A dispatcher ends its lease, if it still has it."""
        claim = self._one_of(data)
        if event := self._held(claim):
            event.end(state, reason, self._clock.now, seconds or 0)
            event.failures += seconds is not None and failed
            event.attempts -= not failed
            held = [each for each in self._model if each.key == event.key and each.state == "held" and each != event]
            if state == "done" and not reason:
                for each in held:
                    each.end("superseded", each.reason, self._clock.now)
            unseen = [each for each in held if not each.attempts]
            if state == "held" and unseen and not self._others(event, {"pending", "leased", "done"}):
                unseen[0].end("pending", "", self._clock.now)

        assert bool(event) == self._done(self._inbox.finish(claim, state, reason, seconds, failed=failed))

    @rule(number=st.integers(1, 5), unless_done=st.booleans())
    def replay(self, number: int, *, unless_done: bool) -> None:
        """A person wants an event dispatched again, or all events of a state."""
        barring: set[State] = {"pending", "leased", "done"} if unless_done else {"pending", "leased"}
        found = [event for event in self._model if event.id == number and event.state in REPLAYABLE]
        found = [event for event in found if not self._others(event, barring)]
        for event in found:
            event.end("pending", "", self._clock.now)
            event.attempts = event.failures = 0

        assert bool(found) == self._done(self._inbox.replay(number, unless_done=unless_done))

    @rule(seconds=SECONDS)
    def forget(self, seconds: int) -> None:
        """What ended long ago goes: nobody has verified anything here."""
        before = self._clock.now - timedelta(seconds=seconds)
        old = [
            event
            for event in self._model
            if event.state in ENDS and event.since < before
            if event.state != "done" or not self._others(event, {"dead", "parked", "held"})
        ]
        self._model = [event for event in self._model if event not in old]

        assert len(old) == self._done(self._inbox.forget(before))

    @invariant()
    def same(self) -> None:
        """The inbox holds what the model holds."""
        found = self._done(self._inbox.events())
        due = [(e.due - self._clock.now).total_seconds() for e in self._model if e.due]

        assert [facts(e) for e in self._model] == [facts(e) for e in found]
        assert min(due, default=None) == self._done(self._inbox.next_due())

    def _others(self, event: Modelled, states: set[State]) -> list[Modelled]:
        """Return the other events of its key that have one of the states."""
        return [each for each in self._model if each.key == event.key and each.state in states and each != event]

    def _one_of(self, data: st.DataObject) -> Claim:
        return data.draw(st.sampled_from(self._claims))

    def _held(self, claim: Claim) -> Modelled | None:
        """Return the event, if the lease on it is not lost."""
        return next(
            (e for e in self._model if (e.id, e.fence, e.state) == (claim.event.id, claim.fence, "leased")), None
        )

    def _done(self, asked: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(asked)


def check(make: Callable[[Clock], Inbox], examples: int) -> None:
    """Let the machine run, with a new inbox each time."""
    with asyncio.Runner() as runner:
        machine: Any = partial(InboxMachine, make, runner)
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples, stateful_step_count=30, suppress_health_check=[HealthCheck.too_slow]
            ),
        )


def test_sqlite_inbox_is_as_its_model(tmp_path: Path) -> None:
    """The inbox in SQLite has the events that its model has, whatever is done to both."""
    numbers = itertools.count()

    check(
        lambda clock: SqliteInbox(tmp_path / f"{next(numbers)}.db", clock=clock), max(40, settings().max_examples // 2)
    )


def test_postgres_inbox_is_as_its_model(postgres_dsn: str) -> None:
    """The inbox in PostgreSQL has the events that its model has, whatever is done to both."""

    def make(clock: Clock) -> PostgresInbox:
        with psycopg.connect(postgres_dsn) as db:
            db.execute("DROP TABLE IF EXISTS payasync_events, payasync_facts, payasync_migrations")
        return PostgresInbox(postgres_dsn, clock=clock)

    check(make, max(10, settings().max_examples // 20))
