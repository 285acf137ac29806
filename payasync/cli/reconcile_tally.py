"""What `payasync reconcile` came to so far: numbers, and of all results those alone that are still to be listed."""

from collections import Counter, deque
from collections.abc import Mapping

from payasync.journal import State
from payasync.journal.reconciling import ENDS, End, Result


class Tally:
    """Counts results; what it holds grows with what one run asks about, and not with the number of runs.

    Args:
        last: So many of those not done are held, the last ones, where each was shown before; `None`: all.
    """

    def __init__(self, *, last: int | None = None) -> None:
        self.rejected = 0
        self.answered = False
        self.not_done: deque[Result] = deque(maxlen=last)
        self.reasons: Counter[str] = Counter()
        """Of those that waited, in the last run in which any did."""
        self._states: Counter[tuple[End, State]] = Counter()
        self._ended = False

    def heard(self, result: Result) -> None:
        """Count a result."""
        self._states[result.end, result.state] += 1
        self.answered |= result.answered
        if result.rejected:
            self.rejected += 1
            self.not_done.append(result)
        if result.end == "waiting":
            self._waits(result.reason)

    def _waits(self, reason: str) -> None:
        if self._ended:
            self.reasons.clear()
            self._ended = False
        self.reasons[reason] += 1

    def ran(self) -> None:
        """Take note that a run has ended."""
        self._ended = True

    def told(self) -> None:
        """Let go of what was not done: it has been listed."""
        self.not_done.clear()

    @property
    def asked(self) -> int:
        """How many results there were."""
        return self._states.total()

    @property
    def ends(self) -> Mapping[str, int]:
        """How many ended in which way."""
        return {end: self.states(end).total() for end in ENDS}

    def states(self, end: End) -> Counter[State]:
        """Return in which states those are that ended so."""
        return Counter({state: many for (each, state), many in self._states.items() if each == end})
