"""Does whatever can be done to sessions, their journal and the service, and to the model of them."""

from collections.abc import Iterable
from datetime import timedelta
from typing import ClassVar, Final, TypeVar, get_args

from attrs import evolve
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from payasync.journal.intents import State
from tests.journal.model import LEASE, Row
from tests.journal.model_calls import BUSY, FAULTS, LOSSES, NONE, Course, Fault
from tests.journal.model_checks import ACCOUNTS
from tests.journal.model_reconciler import LONG, SHORT, Run, Trouble, Waiting
from tests.journal.model_service import Wanted
from tests.journal.model_sides import Claim, Sides, Write
from tests.journal.model_world import SETTINGS, Death

T = TypeVar("T")

R1: Final = Wanted("refund", "R1", 200)
OTHER: Final = Wanted("refund", "R1", 201)
R2: Final = Wanted("refund", "R2", 200)
ORDER: Final = Wanted("order", "T1", 450)
DEARER: Final = Wanted("order", "T1", 451)
CLOSE: Final = Wanted("close", "T1")
PAYMENT: Final = Wanted("payment", amount=1000)
REST: Final = Wanted("refund", "X1", 450)
"""All that was paid for the order of `R1`."""

Fate = Fault | Death
"""What befalls a write, or who sends it."""

WANTED: Final = st.sampled_from([R1, R1, R1, R2, OTHER, ORDER, ORDER, DEARER, CLOSE, PAYMENT])
INTENTS: Final = st.sampled_from([None, None, None, "a", "b"])
FATES: Final[st.SearchStrategy[Fate]] = st.sampled_from([NONE, *FAULTS, *get_args(Death)])
AGAIN: Final = st.sampled_from([NONE, BUSY, *(each for each in LOSSES if each.name != "hang")])
"""What can befall what a reconciler sends again."""
TROUBLES: Final[st.SearchStrategy[Trouble]] = st.sampled_from(
    [*get_args(Trouble)[:1] * 5, *(each for each in get_args(Trouble) if each != "denied")]
)
"""A service that denies what it has done makes liars of all: programs know where nobody must believe it."""
LATER: Final = st.sampled_from([0, 1, 46, 61, 61])
"""Seconds: before and after the end of a lease, and of a quarantine."""
INDEX: Final = st.integers(0, 7)
MOST: Final = 8
"""Intentions, beyond which there are no new payments; other numbers are few."""


class JournalMachine(RuleBasedStateMachine):
    """Does whatever can be done.

    Attributes:
        seen: All that became of anything, in all runs: from which state to which.
    """

    seen: ClassVar[set[tuple[str, str]]] = set()

    _sides: Sides | None = None

    @initialize(
        first=st.lists(st.tuples(WANTED, FATES, st.booleans()), min_size=1, max_size=4),
        ends=st.sampled_from(["processing", *SETTINGS]),
        once=st.booleans(),
        paid=st.booleans(),
    )
    def begin(
        self,
        first: Iterable[tuple[Wanted, Fate, bool]] = (),
        ends: str = "processing",
        *,
        once: bool = False,
        paid: bool = True,
    ) -> None:
        """The service opens, with two orders that can be refunded once they are paid, and something happens.

        Of the rules each run leaves out some, and often all that send: so it begins with some writes.
        """
        self._sides = Sides(ends=ends, once=once)
        for account in ACCOUNTS if paid else ():
            self.sides.pay(account)
        for wanted, fate, queued in first:
            (self.queue if queued else self.send)(wanted, fate)

    def teardown(self) -> None:
        """Leave nothing behind."""
        if self._sides:
            self._sides.close()

    @property
    def sides(self) -> Sides:
        """The world and the model of it."""
        assert self._sides
        return self._sides

    @rule(wanted=WANTED, fate=FATES, intent=INTENTS, patient=st.booleans())
    def send(self, wanted: Wanted, fate: Fate = NONE, intent: str | None = None, *, patient: bool = False) -> None:
        """Somebody wants a write done, for the first time or again."""
        if self._room(wanted, intent):
            says, row = self.sides.book.begin(wanted, intent)
            self._met(Write(says, row, wanted, intent), fate, patient=patient)

    @rule(wanted=WANTED, fate=st.none() | FATES, intent=INTENTS, patient=st.booleans())
    def queue(
        self, wanted: Wanted, fate: Fate | None = None, intent: str | None = None, *, patient: bool = False
    ) -> None:
        """Somebody wants a write done by a worker, who perhaps begins at once."""
        if not self._room(wanted, intent):
            return
        row = self.sides.book.add(wanted, intent)
        added = self.sides.done(self.sides.world.queued(wanted, intent))

        assert (self.sides.world.observer.number(row.id) if row else None) == added, row
        if row and fate:
            self.execute(self._queued().index(row), fate, patient=patient)

    @precondition(lambda self: self._queued())
    @rule(index=INDEX, fate=FATES, patient=st.booleans())
    def execute(self, index: int = 0, fate: Fate = NONE, *, patient: bool = False) -> None:
        """A worker is given the number of what was queued."""
        row = _one(self._queued(), index)
        says = self.sides.book.claim(row)
        self._met(Write(says, row, self.sides.world.observer.number(row.id)), fate, patient=patient)

    @rule(seconds=LATER, limit=st.integers(1, 3))
    def die_asking(self, seconds: int = 0, limit: int = 1) -> None:
        """A reconciler dies, after some time, with what it was about to ask about."""
        self.wait(seconds)
        book, world = self.sides.book, self.sides.world
        rows = [row for _ in range(limit) if (row := book.ask(book.now))]
        held = self.sides.done(world.journal.ask(limit, LEASE))
        self.sides.claims += [Claim(evolve(row), each) for row, each in zip(rows, held, strict=True)]
        self.sides.done(world.restart())

    @precondition(lambda self: self.sides.claims)
    @rule(index=INDEX)
    def come_back(self, index: int = 0) -> None:
        """Who held an intention was not dead, and keeps what it knows by now, perhaps too late."""
        claim = _one(self.sides.claims, index)
        if self.sides.never_done(claim):
            self.sides.send_again(claim)
        else:
            self.sides.keep(claim)

    @rule(seconds=st.sampled_from([1, 46, 61, 3601, -1, -30, -3600]))
    def wait(self, seconds: int) -> None:
        """Time passes, and what is late arrives within its quarantine; or somebody sets the clock back."""
        self.sides.elapsed += max(seconds, 0)
        while self.sides.late and self.sides.late[0].until <= self.sides.elapsed:
            self.arrive()
        self.sides.book.now = self.sides.world.clock.advance(seconds)

    @precondition(lambda self: self.sides.late)
    @rule()
    def arrive(self) -> None:
        """What its caller has given up is done after all."""
        late = self.sides.late.pop(0)
        said = self.sides.service.do(late.wanted, late.by)

        assert said.refusal == self.sides.done(self.sides.world.elsewhere(late.wanted)), late

    @rule(seconds=LATER, trouble=TROUBLES, fault=AGAIN, waiting=st.sampled_from([LONG, SHORT]), patient=st.booleans())
    def reconcile(
        self,
        seconds: int = 0,
        trouble: Trouble = "none",
        fault: Fault = NONE,
        *,
        waiting: Waiting = LONG,
        patient: bool = False,
    ) -> None:
        """A reconciler runs, after some time."""
        self.wait(seconds)
        done, began = self.sides.begun()
        course = Course(self.sides.service, fault, patient, always=True, denied=trouble == "denied")
        expected = Run(self.sides.book, course, trouble, waiting).results()
        results = self.sides.done(self.sides.world.reconciled(fault, trouble, waiting, patient=patient))
        found = [(self.sides.world.observer.row(each.intent), each.end, each.state) for each in results]

        assert [(each.id, each.end, each.state) for each in expected] == found, (expected, found)
        self.sides.check_attempts(done, began)

    @precondition(lambda self: self._under_way())
    @rule(index=INDEX, well=st.booleans())
    def end(self, index: int = 0, *, well: bool = True) -> None:
        """The service, or the customer, ends what is under way."""
        name = _one(self._under_way(), index)
        kind = self.sides.service.things[name].wanted.kind
        self.sides.service.end(name, well=well)
        self.sides.done(self.sides.world.ended(self.sides.payments.get(name, name), kind, well=well))

    @precondition(lambda self: self._unpaid())
    @rule()
    def pay(self) -> None:
        """A customer pays an order, so that it can be refunded."""
        self.sides.pay(self._unpaid()[0])

    @rule(wanted=st.sampled_from([R1, OTHER, ORDER, CLOSE, REST]))
    def somebody_else(self, wanted: Wanted) -> None:
        """Somebody without the journal does a write, perhaps under a number that it has, or will have."""
        said = self.sides.service.do(wanted, None)

        assert said.refusal == self.sides.done(self.sides.world.elsewhere(wanted)), said

    @precondition(lambda self: self.sides.service.things)
    @rule(about=st.sampled_from([R1, R2, ORDER, CLOSE]), stray=st.booleans())
    def notify(self, about: Wanted, *, stray: bool = False) -> None:
        """The service tells how a thing stands, or, under its number, how another does."""
        thing = self.sides.service.about(about)
        if thing:
            expected = [] if stray else self.sides.book.told(about.kind, thing)

            assert expected == self.sides.done(self.sides.world.told(about.kind, thing, stray=stray)), expected

    @precondition(lambda self: self.sides.book.rows)
    @rule(index=INDEX, state=st.sampled_from(["succeeded", "rejected"]))
    def resolve(self, state: State, index: int = 0) -> None:
        """A person says what became of an intention, whether or not they know."""
        row = _one(list(self.sides.book.rows.values()), index)
        expected = self.sides.book.resolve(row, state)
        if expected and state == "rejected":
            self.sides.deny(row)

        assert expected == self.sides.done(self.sides.world.resolved(row.id, state)), row

    @rule(seconds=st.sampled_from([0, 100]))
    def prune(self, seconds: int = 0) -> None:
        """What ended some time ago is forgotten."""
        before = self.sides.book.now - timedelta(seconds=seconds)

        assert self.sides.book.prune(before) == self.sides.done(self.sides.world.journal.prune(before))

    @invariant()
    def holds(self) -> None:
        """What must be so is so."""
        if self._sides:
            self._sides.check()
            self.seen.update(self._sides.moves)

    def _met(self, write: Write, fate: Fate, *, patient: bool) -> None:
        if isinstance(fate, Fault):
            self.sides.send(write, fate, patient=patient)
        else:
            self.sides.die(write, fate)

    def _room(self, wanted: Wanted, intent: str | None) -> bool:
        return wanted.number is not None or intent is not None or len(self.sides.book.rows) < MOST

    def _queued(self) -> list[Row]:
        return [row for row in self.sides.book.rows.values() if row.queued]

    def _unpaid(self) -> list[str]:
        return [account for account in ACCOUNTS if account not in self.sides.service.left]

    def _under_way(self) -> list[str]:
        """Return what can end; of a payment whose answer nobody has, nobody knows the address."""
        things = self.sides.service.things.items()
        open_ones = [(name, thing) for name, thing in things if thing.state in {"pending", "processing"}]
        return [name for name, thing in open_ones if thing.wanted.kind != "payment" or name in self.sides.payments]


def _one(those: list[T], index: int) -> T:
    return those[index % len(those)]
