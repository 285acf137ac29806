"""What became of the operations, by the service's own ledger: decided without I/O."""

from collections import Counter
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from attrs import field, frozen

from tests.chaos.plan import ENDED, JOURNALS, RESTING, Strategy, moments

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
class Evidence:
    """What is known after a run.

    Attributes:
        operations: How many there were.
        ended: Those whose caller was told that they are done.
        effects: By operation, how often the service has done it.
        all_effects: All that the service has done, whoever asked for it.
        states: By operation, the journal's state; empty where there is no journal.
        codes: The service's answers to writes, by what they mean: `duplicate`, `nonce`.
        faults: How many the service met.
        hits: By step, the operations that kills interrupted there.
        kills: How many processes were killed.
        jumps: How often the journal's clock has jumped; `None` where it was not to.
    """

    operations: int
    ended: AbstractSet[int]
    effects: Mapping[int, int]
    all_effects: int
    states: Mapping[int, str] = field(factory=dict)
    codes: Mapping[str, int] = field(factory=dict)
    faults: int = 0
    hits: Mapping[str, int] = field(factory=dict)
    kills: int = 0
    jumps: int | None = None


@frozen(kw_only=True)
class Result:
    """A line of the table.

    Attributes:
        strategy: Which.
        operations: How many there were.
        faults: How many the service met.
        kills: How many processes were killed.
        jumps: How often the journal's clock has jumped; `None` where it was not to.
        hits: By step, the operations that kills interrupted there.
        duplicates: What the service did beyond once for each operation.
        lost: Operations of which the merchant believes what is not so, and nothing says so; with what is known of each.
        undone: Those that were refused or not sent to the last, as their callers were told: the run was too short.
        nonces: Nonces that were used twice.
        again: What the service's own rule alone kept from being done twice.
        unresolved: The operations that a person must look at, all of them listed.
    """

    strategy: Strategy
    operations: int
    faults: int
    kills: int
    jumps: int | None
    hits: Mapping[str, int]
    duplicates: int
    lost: Mapping[int, str]
    undone: int
    nonces: int
    again: int
    unresolved: Mapping[int, str]

    def flaws(self) -> list[str]:
        """Return in what this line is not as it must be, each in a sentence."""
        missed = [moment for moment in moments(self.strategy) if not self.hits.get(moment)]
        rules = {
            f"no kill hit {', '.join(missed)}": bool(missed),
            "no fault happened": not self.faults,
            "the clock never jumped": self.jumps == 0,
            f"{self.nonces} nonces were used twice": self.nonces > 0,
            f"{len(self.lost)} were lost": bool(self.lost),
            f"{self.undone} were never done, as their callers know": self.undone > 0,
            "it shows no duplicate, so that the harness proves nothing": (self.strategy == "naive")
            and not self.duplicates,
            f"{self.duplicates} were done twice": self.strategy != "naive" and self.duplicates > 0,
            f"{self.again} were sent again, after they had been done": self.strategy in JOURNALS and self.again > 0,
        }
        return [flaw for flaw, broken in rules.items() if broken]


def judged(strategy: Strategy, evidence: Evidence) -> Result:
    """Return what a run came to."""
    known = {operation: state for operation, state in evidence.states.items() if state in DONE}
    unresolved = {
        operation: state
        for operation, state in evidence.states.items()
        if state in LISTED and operation not in evidence.ended
    }
    believed = set(evidence.ended) | set(known)
    wrong = [
        operation
        for operation in range(evidence.operations)
        if operation not in unresolved
        and not (operation in believed and evidence.effects.get(operation, 0) and _recorded(strategy, operation, known))
    ]
    undone = {
        operation
        for operation in wrong
        if not (operation in believed or evidence.effects.get(operation, 0))
        and evidence.states.get(operation) in UNDONE
    }
    return Result(
        strategy=strategy,
        operations=evidence.operations,
        faults=evidence.faults,
        kills=evidence.kills,
        jumps=evidence.jumps,
        hits=evidence.hits,
        duplicates=evidence.all_effects - len([each for each in evidence.effects.values() if each]),
        lost={operation: _known(evidence, operation) for operation in wrong if operation not in undone},
        undone=len(undone),
        nonces=evidence.codes.get("nonce", 0),
        again=evidence.codes.get("duplicate", 0),
        unresolved=unresolved,
    )


def _known(evidence: Evidence, operation: int) -> str:
    """Return what the journal, the service and its caller know of an operation."""
    state, effects = evidence.states.get(operation, "nothing"), evidence.effects.get(operation, 0)
    told = "told" if operation in evidence.ended else "not told"
    return f"the journal says {state}, the service did it {effects} times, and its caller was {told} that it is done"


def _recorded(strategy: Strategy, operation: int, known: Mapping[int, str]) -> bool:
    return strategy not in JOURNALS or operation in known


def hit(steps: Iterable[tuple[str, str]]) -> Counter[str]:
    """Return at which steps a killed process was, by its trace."""
    last = {operation_of(number): moment for moment, number in steps}
    return Counter(moment for moment in last.values() if moment not in {ENDED, RESTING})
