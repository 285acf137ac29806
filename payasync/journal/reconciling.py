"""What a run of the reconciler came to: plain values, no I/O here."""

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, Literal, get_args

from attrs import frozen

from payasync.journal.findings import Finding
from payasync.journal.intents import ASKED, Intent, State, standing

End = Literal["resolved", "sent", "waiting", "manual", "lost"]
ENDS: Final[tuple[End, ...]] = get_args(End)
"""What can become of an intention in a run."""
SILENT: Final = 20
"""After so many questions without any answer, one after the other, a run leaves the service in peace."""


@frozen(kw_only=True)
class Result:
    """What became of one intention in a run.

    Attributes:
        intent: As it was before.
        end: `resolved`: the service told, or it never arrived; `sent`: it never arrived, and was sent again; `waiting`:
            it is asked about again later; `manual`: a person must say; `lost`: somebody else took it meanwhile.
        state: Which it has now, as far as this run knows.
        reason: Why, in one line.
        answered: Whether the service gave a usable answer, where it was asked; one about something else is none.
    """

    intent: Intent
    end: End
    state: State
    reason: str = ""
    answered: bool = True

    @property
    def rejected(self) -> bool:
        """Whether it was not done, and is not sent again: whoever believes that it was should hear of it."""
        return self.state == "rejected" and self.end in {"resolved", "sent"}


@frozen(kw_only=True)
class Report:
    """What a run came to, as numbers of intentions.

    Attributes:
        resolved: The service told what became of them, or they never arrived; those that were rejected are among them.
        sent: They had never arrived, and were sent again.
        waiting: They are asked about again later.
        manual: A person must say what became of them.
        lost: Somebody else took them meanwhile.
        silent: The run ended early: the service answers nobody.
        unsent: Queued, and not sent for minutes: no worker may be running, or none can send them. None of the above.
        rejected: Of those resolved or sent again, how many were not done: whoever believes that they were should hear
            of it.
    """

    resolved: int = 0
    sent: int = 0
    waiting: int = 0
    manual: int = 0
    lost: int = 0
    silent: bool = False
    unsent: int = 0
    rejected: int = 0

    @property
    def asked(self) -> int:
        """All that it asked about."""
        return self.resolved + self.sent + self.waiting + self.manual + self.lost

    @classmethod
    def of(cls, ends: Iterable[End], *, silent: bool = False, unsent: int = 0, rejected: int = 0) -> "Report":
        """Count what became of each."""
        counted = Counter(ends)
        return cls(silent=silent, unsent=unsent, rejected=rejected, **{end: counted[end] for end in ENDS})


Heard = Callable[[Result], None]


class Run:
    """One run: since when, what it came to so far, and how long the service has been silent."""

    def __init__(self, started: datetime, on_result: Heard | None) -> None:
        self.started = started
        self.silent = False
        self._tell = on_result
        self._ends: list[End] = []
        self._rejected = 0
        self._unheard = 0

    def heard(self, result: Result, finding: Finding) -> None:
        """Count a result."""
        if finding is Finding.SILENT:
            self._unheard += 1
        elif finding is not Finding.UNASKABLE:
            self._unheard = 0
        self.silent = self._unheard >= SILENT
        self._ends.append(result.end)
        self._rejected += result.rejected
        if self._tell:
            self._tell(result)

    def report(self, *, unsent: int) -> Report:
        """Return what it came to."""
        return Report.of(self._ends, silent=self.silent, unsent=unsent, rejected=self._rejected)


class Turn:
    """One intention's turn in a run.

    Attributes:
        held: The intention, as it was claimed.
        asked_at: The journal's time before the question.
        ending: What became of it is being kept: whoever is interrupted from then on ends that, and tells it.
    """

    def __init__(self, held: Intent, asked_at: datetime) -> None:
        self.held = held
        self.asked_at = asked_at
        self.ending = False

    def end(self) -> None:
        """From now on it is being kept."""
        self.ending = True


def notice(result: Result) -> str:
    """Return, in one line, what somebody must hear of, as whoever has called or queued it may be gone; else nothing."""
    if not result.rejected and result.end != "manual":
        return ""
    intent, what = result.intent, "was not done" if result.rejected else "needs a person"
    name, why = intent.reference or intent.intent or "-", " ".join(result.reason.split())
    return f"intention {intent.id} ({intent.operation}, {name}) {what}: {why}"


def is_due(intent: Intent, now: datetime) -> bool:
    """Return whether a run would ask about an intention by now."""
    if standing(intent, now) not in ASKED:
        return False
    moment = intent.due if intent.lease is None else intent.lease
    return moment is not None and moment <= now
