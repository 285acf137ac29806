"""The result of a run, compared with the service's ledger: decided without I/O."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from attrs import frozen

from tests.chaos.plan import JOURNALS, Strategy

KINDS: Final = "RPQ"
"""A refund, an order, a refund that is queued first."""
DONE: Final = frozenset({"accepted", "succeeded"})
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
    """What is known after a run, and what follows from it.

    Attributes:
        strategy: Which.
        operations: How many there were.
        ended: Those whose caller learned that they are done.
        done: Those that the service has done.
        effects: How much the service has done in all.
        states: By operation, the journal's state; empty where there is no journal.
        nonces: Nonces that were used twice.
        again: Requests that the service refused because it had done them.
        faults: How many the service met.
        kills: How many processes were killed.
    """

    strategy: Strategy
    operations: int
    ended: AbstractSet[int]
    done: AbstractSet[int]
    effects: int
    states: Mapping[int, str]
    nonces: int
    again: int
    faults: int
    kills: int

    @property
    def duplicates(self) -> int:
        """What the service did beyond once for each operation."""
        return self.effects - len(self.done)

    @property
    def unresolved(self) -> dict[int, str]:
        """The operations that a person must look at, all of them listed."""
        return {each: state for each, state in self.states.items() if state in LISTED and each not in self.ended}

    @property
    def lost(self) -> dict[int, str]:
        """The operations that are not done, or not known to be done, each with what is known of it."""
        stored = {each for each, state in self.states.items() if state in DONE}
        right = self.done & (stored if self.strategy in JOURNALS else self.ended)
        return {
            each: f"state {self.states.get(each)}, done {each in self.done}, caller knows {each in self.ended}"
            for each in range(self.operations)
            if each not in right and each not in self.unresolved
        }

    def counts(self) -> dict[str, int]:
        """Return what there was of everything, by its name."""
        return {
            **{name: getattr(self, name) for name in ("operations", "faults", "kills", "duplicates")},
            "lost": len(self.lost),
            "sent again": self.again,
            "unresolved": len(self.unresolved),
        }

    def flaws(self) -> list[str]:
        """Return what is wrong with this run, each in a sentence."""
        naive = self.strategy == "naive"
        rules = {
            "no process was killed": not self.kills,
            "no fault happened": not self.faults,
            f"{self.nonces} nonces were used twice": self.nonces > 0,
            f"{len(self.lost)} were lost": bool(self.lost),
            "it shows no duplicate, so that the harness proves nothing": naive and not self.duplicates,
            f"{self.duplicates} were done twice": not naive and self.duplicates > 0,
            f"{self.again} were sent again, after they had been done": self.strategy in JOURNALS and self.again > 0,
        }
        return [flaw for flaw, broken in rules.items() if broken]
