"""The model's journal: what it must keep of each write, and which state follows; no code under test is called."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final, Literal

from attrs import define, evolve, field

from tests.journal.building import START
from tests.journal.model_calls import UNKNOWN, Ended
from tests.journal.model_service import Kind, Thing, Wanted

Says = Literal["send", "answer", "unknown", "conflict", "withdrawn"]
"""What the journal says to who wants to send; unknown: somebody else may be at it, or have done it; withdrawn: a person
has rejected it, and no worker sends it any more."""

PAYABLE: Final = {"paid": "succeeded", "pending": "accepted", "closed": "rejected", "failed": "rejected"}
MEANS: Final[dict[Kind, dict[str, str]]] = {
    "refund": {"processing": "accepted", "succeeded": "succeeded", "failed": "rejected"},
    "order": PAYABLE,
    "payment": PAYABLE,
    "close": {"closed": "succeeded", "failed": "succeeded", "paid": "rejected"},
}
"""What a thing's state says of the write, where it says anything."""

TIME: Final = 30.0
"""Seconds that a call has."""
LEASE: Final = TIME + 15
"""Seconds for which a sender, or an asker, holds an intention."""
ENDED: Final = frozenset({"succeeded", "rejected"})
OPEN: Final = frozenset({"unknown", "accepted"})


@define
class Row:
    """An intention."""

    id: int
    wanted: Wanted
    intent: str | None
    queued: bool
    updated: datetime
    state: str = ""
    attempts: int = 0
    asked: int = 0
    denied: int = 0
    silent_since: datetime | None = None
    fence: int = 0
    lease: datetime | None = None
    due: datetime | None = None
    doubted: datetime | None = None
    """When something of it may last have been sent without a recognised answer."""
    told: str | None = None
    """The state of the thing, as the answer has it that was kept."""
    thing: str = ""
    """Of a payment: the thing that its answer is about."""
    by_person: bool = False
    """Its end is a person's word."""

    answered: bool = False
    """Unknown, as its number was used before: nothing of it is on its way, and no denial is believed."""

    @property
    def moment(self) -> datetime | None:
        """From when the service is to be asked about it."""
        return self.lease or self.due


@define
class Book:
    """The journal.

    Attributes:
        now: What time it is.
        rows: By number.
        moves: Each change of a state: of which row, from what, and to what; empty where there is no row.
    """

    now: datetime = START
    rows: dict[int, Row] = field(factory=dict)
    moves: list[tuple[int, str, str]] = field(factory=list)
    _last: int = 0

    def begin(self, wanted: Wanted, intent: str | None) -> tuple[Says, Row]:
        """Return what is said to a direct call, and the intention that it is about."""
        row, conflict = self._matching(wanted, intent)
        if row is None:
            row = self._new(wanted, intent, queued=False)
            return self._send(row), row
        if conflict:
            return "conflict", row
        row.intent = row.intent or intent
        return self.claim(row), row

    def claim(self, row: Row) -> Says:
        """Return what is said to who wants to send what is kept already."""
        if row.state in {"new", "rejected"}:
            return self._send(row)
        return "answer" if row.state in {"accepted", "succeeded"} else "unknown"

    def resend(self, row: Row) -> None:
        """Send, by who holds it and has found out that it was never done."""
        self._send(row)

    def add(self, wanted: Wanted, intent: str | None) -> Row | None:
        """Queue a write; `None` where its key stands for another."""
        row, conflict = self._matching(wanted, intent)
        if conflict:
            return None
        if row is None:
            row = self._new(wanted, intent, queued=True)
            self.move(row, "new")
            return row
        row.intent, row.queued = row.intent or intent, True
        if row.state == "rejected":
            row.updated = self.now
            self.move(row, "new")
        return row

    def judge(self, row: Row, ended: Ended) -> None:
        """Keep how a call ended."""
        self.settle(row, verdict(row, ended), answered=ended.used or ended.error == "DuplicateError")
        if not ended.error:
            row.told, row.thing = ended.state, ended.thing
            row.queued = row.queued and row.state != "rejected"

    def settle(self, row: Row, state: str, due: datetime | None = None, *, answered: bool = False) -> None:
        """Keep what became of an intention, and let go of it; what was answered is not on its way any more."""
        row.lease, row.updated, row.denied, row.silent_since = None, self.now, 0, None
        row.due = (due or self.now) if state in OPEN else None
        row.doubted = self.now if state == "unknown" else row.doubted
        row.answered = answered or (row.answered and state == "unknown")
        self.move(row, state)

    def postpone(self, row: Row, due: datetime, denied: int, *, silent: bool = False) -> None:
        """Let go of an intention without news."""
        row.lease, row.due, row.denied = None, due, denied
        row.silent_since = (row.silent_since or self.now) if silent else None

    def held(self, before: Row) -> Row | None:
        """Return an intention, where who held it when it was so still does."""
        row = self.rows.get(before.id)
        return row if row and row.lease and row.fence == before.fence else None

    def ask(self, started: datetime) -> Row | None:
        """Claim the intention that the service is to be asked about first; `None` where none is due."""
        by = min(started, self.now)
        due = [(row.moment, row.id, row) for row in self.rows.values() if row.moment and row.moment <= by]
        if not due:
            return None
        row = min(due)[-1]
        if row.state == "sending":
            row.doubted = row.updated = self.now
            self.move(row, "unknown")
        row.asked += 1
        row.fence += 1
        row.lease, row.due = self.now + timedelta(seconds=LEASE), None
        return row

    def standing(self, row: Row) -> str:
        """Return what a state means by now."""
        over = row.state == "sending" and row.lease is not None and row.lease <= self.now
        return "unknown" if over else row.state

    def resolve(self, row: Row, state: str) -> bool:
        """End an intention by a person's word, where that is a person's to say."""
        if self.standing(row) not in OPEN | {"manual", "new"}:
            return False
        self._end(row, state)
        row.by_person = True
        return True

    def told(self, kind: Kind, thing: Thing) -> list[int]:
        """End what is open by the service's word about a thing, and return what that ended."""
        keys, end = (kind, thing.wanted.number), MEANS[kind].get(thing.state, "")
        about = [row for row in self.rows.values() if (row.wanted.kind, row.wanted.number) == keys]
        ended = [(row, after) for row in about if end in ENDED and (after := self._by_word(thing, end, row))]
        for row, after in ended:
            self._end(row, after)
        return [row.id for row, _ in ended]

    def _by_word(self, thing: Thing, end: str, row: Row) -> str:
        """Return what follows from the end of a thing: nothing where it is another, or may be of an earlier attempt."""
        standing, close = self.standing(row), row.wanted.kind == "close"
        if row.wanted != thing.wanted and not close:
            return ""
        if standing == "rejected" and end == "succeeded" and not close:
            return "manual"
        if standing == "new" and row.attempts and end == "succeeded":
            return end
        return end if standing in OPEN and not of_another_attempt(row, end) else ""

    def prune(self, before: datetime) -> int:
        """Forget what ended before a moment; return how many."""
        old = [row for row in self.rows.values() if row.state in ENDED and row.updated < before]
        for row in old:
            self.moves.append((row.id, row.state, ""))
            del self.rows[row.id]
        return len(old)

    def move(self, row: Row, state: str) -> None:
        """Change a state; what turned out not to be done leaves the queue."""
        if row.state != state:
            row.queued = row.queued and not (state == "rejected" and row.state in OPEN)
            self.moves.append((row.id, row.state, state))
            row.state = state

    def _end(self, row: Row, state: str) -> None:
        if row.state == "sending":
            row.doubted = self.now
        if state == "succeeded" and row.state != "accepted":
            row.told = None
        row.lease = row.due = row.silent_since = None
        row.answered = False
        row.fence += 1
        row.updated = self.now
        row.queued = row.queued and state != "rejected"
        self.move(row, state)

    def _new(self, wanted: Wanted, intent: str | None, *, queued: bool) -> Row:
        self._last += 1
        row = self.rows[self._last] = Row(self._last, wanted, intent, queued, self.now)
        return row

    def _send(self, row: Row) -> Says:
        row.attempts += 1
        row.fence += 1
        row.asked = row.denied = 0
        row.silent_since, row.answered = None, row.answered and row.state != "unknown"
        row.told, row.thing, row.by_person = None, "", False
        row.lease, row.due, row.updated = self.now + timedelta(seconds=LEASE), None, self.now
        self.move(row, "sending")
        return "send"

    def _matching(self, wanted: Wanted, intent: str | None) -> tuple[Row | None, bool]:
        """Return the first intention that has a key of a write, and whether one of them is another's."""
        same = list(self._keyed(wanted, intent))
        conflict = any(
            row.wanted != wanted or (row.intent is not None and intent is not None and row.intent != intent)
            for row in same
        )
        return (same[0] if same else None), conflict

    def _keyed(self, wanted: Wanted, intent: str | None) -> Iterator[Row]:
        for row in self.rows.values():
            by_number = wanted.number is not None and (row.wanted.kind, row.wanted.number) == (
                wanted.kind,
                wanted.number,
            )
            if by_number or (intent is not None and row.intent == intent):
                yield row


def of_another_attempt(row: Row, end: str | None) -> bool:
    """Return whether the word that a thing was not done may be about an attempt before the one that is in doubt."""
    return end == "rejected" and row.attempts > 1 and row.wanted.kind != "close"


def heard(row: Row, ended: Ended) -> Ended:
    """Return what a caller is told of how a call ended, where it had to ask for that."""
    doubtful = ended.recovered and of_another_attempt(row, MEANS[row.wanted.kind].get(ended.state or ""))
    return (
        Ended(UNKNOWN, sends=ended.sends, used=ended.used)
        if doubtful
        else evolve(ended, used=ended.used and bool(ended.error))
    )


def verdict(row: Row, ended: Ended) -> str:
    """Return the state that the end of a call gives to an intention.

    What a worker sent again after a doubt has no caller any more: refused, it is for a person, and otherwise it is
    asked about. Wrong keys and haste refuse whoever comes, and not the write: queued, it waits for a worker again.
    """
    if not ended.error:
        return MEANS[row.wanted.kind][ended.state or ""]
    if ended.error in {UNKNOWN, "DuplicateError"}:
        return "unknown"
    if row.queued and row.doubted is not None:
        return "manual" if ended.error == "ServiceError" else "unknown"
    return "new" if row.queued and ended.error != "ServiceError" else "rejected"
