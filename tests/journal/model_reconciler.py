"""The model's reconciler: what it must find out, and what follows; no code under test is called."""

from datetime import timedelta
from typing import Final, Literal

from attrs import frozen

from tests.journal.model import MEANS, Book, Row, heard, of_another_attempt
from tests.journal.model_calls import Course
from tests.journal.model_service import Thing

Trouble = Literal["none", "failing", "busy", "unclear", "refusal", "nobody", "stray", "denied"]
"""What befalls the questions; to fail, to be too busy, to take no keys and not to listen is to be silent. Stray: each
answer is about another number; denied: each says that there is no such thing, though there may be."""

QUARANTINE: Final = 60.0
"""Seconds after which an absent answer is final."""
RETRY_AFTER: Final = 7
"""Seconds that a busy service asks for."""


@frozen
class Waiting:
    """How patient a reconciler is: seconds from a first question to the next, and so on as `Patience` has it."""

    first: float = 2.0
    longest: float = 3600.0
    questions: int = 8
    give_up: float = 86_400.0
    sends: int = 5


LONG: Final = Waiting()
SHORT: Final = Waiting(questions=1, give_up=0.0, sends=2)


@frozen
class Result:
    """What became of an intention in a run."""

    id: int
    end: str
    state: str


@frozen
class Run:
    """A run.

    Attributes:
        book: The journal.
        course: What is met by what is sent again.
        trouble: What befalls the questions.
        waiting: The reconciler's patience.
    """

    book: Book
    course: Course
    trouble: Trouble = "none"
    waiting: Waiting = LONG

    def results(self) -> list[Result]:
        """Do it, and return what became of each, in the order in which they are due."""
        started = self.book.now
        results = list[Result]()
        while row := self.book.ask(started):
            results.append(self._asked(row))
        return results

    def _asked(self, row: Row) -> Result:
        """Ask about an intention."""
        if row.wanted.kind == "payment" and not row.thing:
            return self._unaskable(row)
        if self.trouble == "stray":
            return self._unmatched(row, for_good=False)
        if self.trouble == "denied":
            return self._not_done(row, told=None)
        if self.trouble == "unclear":
            return self._unresolved(row, told=True)
        if self.trouble != "none":
            return self._unresolved(row, told=False)
        thing = self.course.service.things.get(row.thing or row.wanted.number or "")
        return self._found(row, thing) if thing else self._not_done(row, told=None)

    def _found(self, row: Row, thing: Thing) -> Result:
        """Take the service's word."""
        kind = row.wanted.kind
        if thing.wanted != row.wanted and kind != "close":
            return self._unmatched(row, for_good=True)
        state = MEANS[kind].get(thing.state)
        if state is None:
            return self._not_done(row, told=thing.state)
        if state == row.state:
            return self._later(row, self._pause(row))
        left = QUARANTINE - self._in_doubt(row)
        on_its_way = row.state == "unknown" and not row.answered
        if on_its_way and of_another_attempt(row, state) and left > 0:
            return self._later(row, min(self._pause(row), left))
        return self._settled(row, state, told=thing.state)

    def _not_done(self, row: Row, told: str | None) -> Result:
        """Conclude from what stands there, or is absent, that it was not done so far."""
        if row.state == "accepted":
            return self._later(row, self._pause(row), denied=row.denied + 1)
        if row.answered:
            return self._unresolved(row, told=True)
        left = QUARANTINE - self._in_doubt(row)
        if left > 0:
            return self._later(row, min(self._pause(row), left))
        if not row.queued:
            return self._settled(row, "rejected", told)
        if row.attempts >= self.waiting.sends:
            return self._settled(row, "manual", told)
        self.book.resend(row)
        self.book.judge(row, heard(row, self.course.run(row.wanted, row.id, again=True)))
        return Result(row.id, "manual" if row.state == "manual" else "sent", row.state)

    def _unmatched(self, row: Row, *, for_good: bool) -> Result:
        """Learn nothing; a person is asked where the number stands for another amount, or what was taken is silent."""
        if row.state == "accepted":
            silent = (self.book.now - (row.silent_since or self.book.now)).total_seconds()
            if silent < self.waiting.give_up:
                return self._later(row, self._pause(row), denied=row.denied, silent=True)
        elif not for_good:
            return self._unresolved(row, told=True)
        return self._settled(row, "manual", told=None)

    def _unaskable(self, row: Row) -> Result:
        if row.state == "accepted":
            return self._later(row, self._pause(row), denied=row.denied + 1)
        return self._settled(row, "manual", told=None)

    def _unresolved(self, row: Row, *, told: bool) -> Result:
        """Give up, or ask again later; who is silent is asked for longer than who answers something else."""
        long_enough = told or self._in_doubt(row) >= self.waiting.give_up
        if row.state == "unknown" and long_enough and row.asked >= self.waiting.questions:
            return self._settled(row, "manual", told=None)
        if row.state == "unknown":
            return self._later(row, self._pause(row))
        return self._later(row, self._pause(row), denied=row.denied + told, silent=not told)

    def _settled(self, row: Row, state: str, told: str | None) -> Result:
        self.book.settle(row, state, due=self.book.now + timedelta(seconds=self._pause(row)))
        row.told = told or row.told
        return Result(row.id, "manual" if state == "manual" else "resolved", state)

    def _later(self, row: Row, pause: float, denied: int = 0, *, silent: bool = False) -> Result:
        self.book.postpone(row, self.book.now + timedelta(seconds=pause), denied, silent=silent)
        return Result(row.id, "waiting", row.state)

    def _in_doubt(self, row: Row) -> float:
        return (self.book.now - (row.doubted or row.updated)).total_seconds()

    def _pause(self, row: Row) -> float:
        """Return the wait until the next question: it doubles, and the service may ask for more."""
        bound = min(self.waiting.first * 2.0 ** (row.asked - 1), self.waiting.longest)
        return max(bound, RETRY_AFTER if self.trouble == "busy" else 0.0)
