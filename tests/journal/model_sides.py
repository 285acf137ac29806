"""The world and the model of it: what is done to one is done to the other, and what comes of it is compared."""

import asyncio
import tempfile
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from attrs import evolve, frozen

from payasync.journal import Outcome
from payasync.journal.intents import Intent
from tests.journal.model import MEANS, Book, Row, Says, heard, verdict
from tests.journal.model_calls import NEVER, NONE, UNHEARD, UNKNOWN, Course, Ended, Fault
from tests.journal.model_checks import (
    ACCOUNTS,
    LAWFUL,
    check_attempts,
    check_done,
    check_journal,
    check_nonces,
    check_open,
    check_service,
    check_told,
    done_for,
    thing_of,
)
from tests.journal.model_reconciler import QUARANTINE
from tests.journal.model_service import PAID, Service, Wanted
from tests.journal.model_world import Death, SkippingLoop, World

T = TypeVar("T")

REFUSED: Final = {"conflict": "IntentConflictError", "withdrawn": "InvalidArgumentError"}
"""What is raised to who may not send."""


@frozen
class Write:
    """A write on its way.

    Attributes:
        says: What the journal must say to it.
        row: The intention that it is about.
        what: It, or the journal's number of what was queued.
        intent: The caller's own key.
        fence: Of who has found out that it was never done.
    """

    says: Says
    row: Row
    what: Wanted | int
    intent: str | None = None
    fence: int | None = None


@frozen
class Claim:
    """Who held an intention and is gone, perhaps only for a while.

    Attributes:
        row: As the model had it then.
        held: As the journal gave it.
        ended: How its call ended, where it sent something.
        outcome: What it would have kept with that.
    """

    row: Row
    held: Intent
    ended: Ended | None = None
    outcome: Outcome | None = None


@frozen
class Late:
    """A write that its caller has given up, and that arrives all the same.

    Attributes:
        until: When it has arrived, in seconds from the beginning.
        wanted: The write.
        by: For which intention; `None`: a person has said that it was not done.
    """

    until: float
    wanted: Wanted
    by: int | None


class Sides:
    """Both sides.

    Args:
        ends: The state of a new refund.
        once: A number of a refund is taken once only, the same request included.

    Attributes:
        book: The model's journal.
        service: The model's service.
        world: The real thing.
        claims: Of those who died.
        late: What is on its way still, in the order in which it was sent.
        payments: By the model's name, the service's number of each payment that was answered.
        elapsed: Seconds that have passed, whatever a clock says.
        moves: All that became of anything so far: from which state to which.
    """

    def __init__(self, *, ends: str, once: bool) -> None:
        self.book = Book()
        self.service = Service(ends, once)
        self.claims = list[Claim]()
        self.late = list[Late]()
        self.payments = dict[str, str]()
        self.elapsed = 0.0
        self.moves = set[tuple[str, str]]()
        self._moved = 0
        self._folder = tempfile.TemporaryDirectory()
        self._runner = asyncio.Runner(loop_factory=SkippingLoop)
        loop: Any = self._runner.get_loop()
        self.world = World(loop, Path(self._folder.name) / "pay.db", ends=ends, once=once)
        self.done(self.world.open())
        for account in ACCOUNTS:
            self.done(self.world.sandbox.given.pending_order(total_amt=PAID, out_trade_no=account))

    def close(self) -> None:
        """Leave nothing behind."""
        self.done(self.world.close())
        self._runner.close()
        self._folder.cleanup()

    def done(self, asked: Coroutine[Any, Any, T]) -> T:
        """Return what comes of a coroutine."""
        return self._runner.run(asked)

    def pay(self, account: str) -> None:
        """Have a customer pay an order, so that it can be refunded."""
        self.done(self.world.ended(account, "order", well=True))
        self.service.left.setdefault(account, PAID)

    def send(self, write: Write, fault: Fault, *, patient: bool) -> None:
        """Send a write, and compare how that ends."""
        done, began = self.begun()
        expected = self._course(write, Course(self.service, fault, patient))
        found = self.done(self.world.sent(write.what, fault, intent=write.intent, fence=write.fence, patient=patient))
        if write.row.wanted.kind == "payment" and expected.thing:
            self.payments[expected.thing] = found.thing

        assert evolve(expected, thing="") == evolve(found, thing=""), (expected, found)
        check_told(write.row, found, self.service)
        self.check_attempts(done, began)

    def die(self, write: Write, death: Death) -> None:
        """Die while a write is sent, if it comes to that; nobody keeps what became of it."""
        done, began = self.begun()
        came, outcome = self.done(self.world.died(write.what, death, intent=write.intent))

        assert (write.says == "send") == came, write
        self.check_attempts(done, began)
        if came:
            row, fault = write.row, {"answered": NONE, "cut before": NEVER, "cut after": UNHEARD}.get(death)
            again = row.doubted is not None
            ended = Course(self.service, fault).run(row.wanted, row.id, again=again) if fault else Ended("NotSentError")
            held = self.done(self.world.journal.get(self.world.observer.number(row.id)))
            assert held, row
            self.claims.append(Claim(evolve(row), held, ended, None if ended.error else outcome))

    def deny(self, row: Row) -> None:
        """Take note that a person has said of an intention that it was not done."""
        for thing in self.service.things.values():
            thing.excused = thing.excused or thing.by == row.id
        self.late = [evolve(each, by=None) if each.by == row.id else each for each in self.late]

    def keep(self, claim: Claim) -> None:
        """Have a holder keep what it knows by now, if it still is one."""
        row, state, later = self.book.held(claim.row), self._known(claim), self.book.now + timedelta(seconds=10)
        journal = self.world.journal
        if state is None:
            kept = self.done(journal.postpone(claim.held, later))
        else:
            kept = self.done(journal.settle(claim.held, state, outcome=claim.outcome))

        assert (row is not None) == kept, (claim, row)
        if row and state is None:
            self.book.postpone(row, later, denied=0)
        elif row and state:
            again = state == "rejected" and row.queued and claim.row.state == "sending" and not claim.row.queued
            self.book.settle(row, "new" if again else state)
            if claim.ended and claim.outcome:
                row.told, row.thing = claim.ended.state, claim.ended.thing

    def never_done(self, claim: Claim) -> bool:
        """Return whether a holder finds by now that what was queued was never done."""
        row = claim.row
        quiet = row.doubted and row.doubted + timedelta(seconds=QUARANTINE) <= self.book.now
        asked = row.id in self.book.rows and row.queued and row.state == "unknown" and claim.ended is None
        return bool(asked and quiet and row.wanted.number and self.service.about(row.wanted) is None)

    def send_again(self, claim: Claim) -> None:
        """Have a holder send what was never done, if nobody else is at it."""
        row = self.book.rows[claim.row.id]
        # Who has let go of it may do so, too, as long as nobody has taken it since.
        held = row.state == "unknown" and row.fence == claim.row.fence
        if held:
            self.book.resend(row)
        number = self.world.observer.number(row.id)
        says: Says = "send" if held else "unknown"
        write = Write(says if row.queued else "withdrawn", row, number, fence=claim.held.fence)
        self.send(write, NONE, patient=False)

    def begun(self) -> tuple[set[Wanted], int]:
        """Return what must not be sent again, and how much was sent so far."""
        return done_for(self.book, self.service), len(self.world.observer.attempts)

    def check_attempts(self, done: set[Wanted], began: int) -> None:
        """Check what was sent since something began, and note what of it is late."""
        self.late += [Late(self.elapsed + QUARANTINE, *each) for each in self.service.late]
        self.service.late.clear()
        check_attempts(self.world.observer.attempts[began:], done)

    def check(self) -> None:
        """Check that what must be so is so: the model is right in all, and each change of a state may be."""
        moves = self.world.observer.moves(self._moved)
        expected = self.book.moves[self._moved :]
        self._moved += len(moves)
        steps = {(before, after) for _, before, after in moves}
        self.moves |= steps
        ledger = self.world.sandbox.ledger

        assert steps <= LAWFUL, steps - LAWFUL
        assert expected == moves, (expected, moves)
        check_journal(self.book, self.done(self.world.journal.list()), self.world.observer)
        check_service(self.service, ledger)
        check_nonces(self.world.witness.nonces, ledger)
        check_done(self.book, self.service)
        check_open(self.book, self.service)

    def _known(self, claim: Claim) -> Any:
        """Return the state that a holder would keep by now: that of its answer, or what it hears when it asks."""
        if claim.ended:
            return verdict(claim.row, claim.ended)
        thing, wanted = thing_of(claim.row, self.service), claim.row.wanted
        if thing is None or (thing.wanted != wanted and wanted.kind != "close"):
            return None
        state = MEANS[wanted.kind].get(thing.state)
        return None if state == claim.row.state else state

    def _course(self, write: Write, course: Course) -> Ended:
        """Return how a call must end, as the journal says that it must be answered."""
        if write.says == "answer":
            return Ended(state=write.row.told)
        if write.says != "send":
            error = REFUSED.get(write.says, UNKNOWN)
            return Ended(error, used=write.row.answered and error == UNKNOWN)
        row = write.row
        ended = heard(row, course.run(row.wanted, row.id, again=row.doubted is not None))
        self.book.judge(write.row, ended)
        return ended
