"""What `payasync reconcile` came to so far: how the writes stand, and what is still to be listed."""

from collections import Counter, deque
from collections.abc import Mapping

from payasync.journal import State
from payasync.journal.intents import ENDS as ENDED
from payasync.journal.reconciling import ENDS, End, Result


class Tally:
    """Counts writes, each under what the last question about it came to, and questions.

    What it holds grows with the writes that have not ended, and not with the number of runs. One that had ended, and is
    in doubt anew, counts again.

    Args:
        last: So many of those not done are held, the last ones, where each was shown before; `None`: all.
    """

    def __init__(self, *, last: int | None = None) -> None:
        self.questions = 0
        self.runs = 0
        """In which anything was asked."""
        self.rejected = 0
        self.answered = False
        self.not_done: deque[Result] = deque(maxlen=last)
        self._states: Counter[tuple[End, State]] = Counter()
        self._open: dict[int, tuple[End, State, str]] = {}
        self._running = False

    def heard(self, result: Result) -> None:
        """Count a result, in place of the one before about the same write."""
        self.questions += 1
        self.runs += not self._running
        self._running = True
        self.answered |= result.answered
        self._stands(result)
        if result.rejected:
            self.rejected += 1
            self.not_done.append(result)

    def _stands(self, result: Result) -> None:
        number, end, state = result.intent.id, result.end, result.state
        if before := self._open.pop(number, None):
            self._states[before[:2]] -= 1
        self._states[end, state] += 1
        if state not in ENDED or end not in {"resolved", "sent"}:
            self._open[number] = (end, state, result.reason)

    def ran(self) -> None:
        """Take note that a run has ended."""
        self._running = False

    def told(self) -> None:
        """Let go of what was not done: it has been listed."""
        self.not_done.clear()

    @property
    def asked(self) -> int:
        """How many writes were asked about."""
        return self._states.total()

    @property
    def ends(self) -> Mapping[str, int]:
        """How many ended in which way."""
        return {end: self.states(end).total() for end in ENDS}

    def states(self, end: End) -> Counter[State]:
        """Return in which states those are that ended so."""
        return Counter({state: many for (each, state), many in self._states.items() if each == end and many})

    def reasons(self, end: End) -> Counter[str]:
        """Return why those that wait, or need a person, do so."""
        return Counter(reason for each, _, reason in self._open.values() if each == end)
