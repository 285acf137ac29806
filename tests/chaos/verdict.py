"""The result of a run, compared with the service's ledger: decided without I/O."""

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from attrs import frozen

from tests.chaos.plan import CONTROLS, ENDED, JOURNALS, KEYED, RESTING, Strategy, moments

KINDS: Final = "RPQ"
"""A refund, an order, a refund that is queued first."""
DONE: Final = frozenset({"accepted", "succeeded"})
UNDONE: Final = frozenset({"new", "rejected", None})
LISTED: Final = frozenset({"manual", "unknown"})
"""Where a person finds what was not resolved."""


def name_of(operation: int) -> str:
    """Return the number of an operation."""
    return f"{KINDS[operation % len(KINDS)]}{operation}"


def operation_of(number: str) -> int:
    """Return the operation that a number was made for."""
    return int(number[1:].partition("-")[0])


@frozen(kw_only=True)
class Result:
    """What is known after a run, and what follows from it: a line of the table.

    Attributes:
        strategy: Which.
        operations: How many there were.
        ended: Those whose caller was told that they are done.
        effects: By operation, how often the service has done it.
        all_effects: All that the service has done, whoever asked for it.
        states: By operation, the journal's state; empty where there is no journal.
        nonces: Nonces that were used twice.
        again: What the service's own rule alone kept from being done twice.
        faults: How many the service met.
        hits: By step, the operations that kills interrupted there.
        kills: How many processes were killed.
        jumps: How often the journal's clock has jumped; `None` where it was not to.
    """

    strategy: Strategy
    operations: int
    ended: AbstractSet[int]
    effects: Mapping[int, int]
    all_effects: int
    states: Mapping[int, str]
    nonces: int
    again: int
    faults: int
    hits: Mapping[str, int]
    kills: int
    jumps: int | None

    @property
    def duplicates(self) -> int:
        """What the service did beyond once for each operation."""
        return self.all_effects - len([each for each in self.effects.values() if each])

    @property
    def unresolved(self) -> dict[int, str]:
        """The operations that a person must look at, all of them listed."""
        return {
            operation: state
            for operation, state in self.states.items()
            if state in LISTED and operation not in self.ended
        }

    @property
    def lost(self) -> dict[int, str]:
        """Return the operations about which the merchant has a wrong belief, with no sign that it is wrong."""
        return {operation: self._describe(operation) for operation in sorted(self._wrong() - self._undone())}

    @property
    def undone(self) -> int:
        """Those that were refused or not sent to the last, as their callers were told: the run was too short."""
        return len(self._undone())

    def counts(self) -> dict[str, int]:
        """Return what there was of everything, by its name."""
        return {
            "operations": self.operations,
            "faults": self.faults,
            "kills": self.kills,
            "jumps": self.jumps or 0,
            "duplicates": self.duplicates,
            "lost": len(self.lost),
            "undone": self.undone,
            "nonces reused": self.nonces,
            "sent again": self.again,
            "unresolved": len(self.unresolved),
        }

    def _wrong(self) -> set[int]:
        """Return the operations that are not done, recorded as done and known to be done."""
        unresolved = self.unresolved
        return {
            operation
            for operation in range(self.operations)
            if operation not in unresolved
            and not (
                self._believed(operation)
                and self.effects.get(operation)
                and (self.strategy not in JOURNALS or self.states.get(operation) in DONE)
            )
        }

    def _undone(self) -> set[int]:
        return {
            operation
            for operation in self._wrong()
            if not (self._believed(operation) or self.effects.get(operation)) and self.states.get(operation) in UNDONE
        }

    def _believed(self, operation: int) -> bool:
        return operation in self.ended or self.states.get(operation) in DONE

    def _describe(self, operation: int) -> str:
        """Return what the journal, the service and its caller know of an operation."""
        state, effects = self.states.get(operation, "nothing"), self.effects.get(operation, 0)
        told = "told" if operation in self.ended else "not told"
        return (
            f"the journal says {state}, the service did it {effects} times, and its caller was {told} that it is done"
        )

    def flaws(self) -> list[str]:
        """Return what is wrong with this line of the table, each in a sentence."""
        missed = [moment for moment in moments(self.strategy) if not self.hits.get(moment)]
        lost = self.lost
        rules = {
            f"no kill hit {', '.join(missed)}": bool(missed),
            "no fault happened": not self.faults,
            "the clock never jumped": self.jumps == 0,
            f"{self.nonces} nonces were used twice": self.nonces > 0,
            f"{len(lost)} were lost": bool(lost),
            f"{self.undone} were never done, as their callers know": self.undone > 0,
            "it shows no duplicate, so that the harness proves nothing": (self.strategy in CONTROLS)
            and not self.duplicates,
            f"{self.duplicates} were done twice": self.strategy not in CONTROLS and self.duplicates > 0,
            # Under a key, "used before" says that the first request is in progress.
            f"{self.again} were sent again, after they had been done": self.strategy in JOURNALS - KEYED
            and self.again > 0,
        }
        return [flaw for flaw, broken in rules.items() if broken]


def hit(steps: Iterable[tuple[str, str]]) -> Counter[str]:
    """Return the steps at which a process was killed, read from its trace."""
    last = {operation_of(number): moment for moment, number in steps}
    return Counter(moment for moment in last.values() if moment not in {ENDED, RESTING})
