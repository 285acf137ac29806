"""For each change of a state the steps that lead to it, by the machine's own rules: the rare ones, too, every time."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tests.journal.model_calls import NEVER, NOBODY, UNHEARD
from tests.journal.model_machine import CLOSE, ORDER, PAYMENT, R1, REST, JournalMachine

Program = Callable[[JournalMachine], Iterator[None]]
"""Yields after each step."""


def queued(machine: JournalMachine) -> Iterator[None]:
    """A write waits for a worker."""
    yield machine.queue(R1)


def executed(machine: JournalMachine) -> Iterator[None]:
    """A worker takes it."""
    yield from queued(machine)
    yield machine.execute()


def executed_in_vain(machine: JournalMachine) -> Iterator[None]:
    """Nobody listens to a worker: it waits for another."""
    yield from queued(machine)
    yield machine.execute(0, NOBODY)


def queued_and_withdrawn(machine: JournalMachine) -> Iterator[None]:
    """A person says that nobody wants it any more; who adds it again does."""
    yield from queued(machine)
    yield machine.resolve("rejected")
    yield machine.queue(R1)
    yield machine.execute()


def queued_and_done_elsewhere(machine: JournalMachine) -> Iterator[None]:
    """A person says that it was done by other means: neither a worker nor its caller sends it."""
    yield from queued(machine)
    yield machine.resolve("succeeded")
    yield machine.execute()
    yield machine.queue(R1)
    yield machine.send(R1)


def accepted(machine: JournalMachine) -> Iterator[None]:
    """The service takes a refund, and has not ended it."""
    yield machine.send(R1)


def accepted_and_done(machine: JournalMachine) -> Iterator[None]:
    """The service ends it, and the reconciler asks."""
    yield from accepted(machine)
    yield machine.end()
    yield machine.reconcile()


def accepted_and_failed(machine: JournalMachine) -> Iterator[None]:
    """The service ends it the other way, and tells so."""
    yield from accepted(machine)
    yield machine.end(well=False)
    yield machine.notify(R1)


def accepted_and_strayed(machine: JournalMachine) -> Iterator[None]:
    """For a day each answer is about another number: a person is asked, and nothing is sent again."""
    yield from accepted(machine)
    yield machine.end()
    yield machine.reconcile(0, "stray")
    yield machine.notify(R1, stray=True)
    yield machine.reconcile(3600, "stray")
    yield machine.reconcile(86_400, "stray")
    yield machine.send(R1)
    yield machine.notify(R1)


def done_at_once(machine: JournalMachine) -> Iterator[None]:
    """An order is closed: nothing is to come."""
    yield machine.send(ORDER)
    yield machine.send(CLOSE)


def done_and_forgotten(machine: JournalMachine) -> Iterator[None]:
    """What was done is pruned."""
    yield from done_at_once(machine)
    yield machine.wait(1)
    yield machine.prune()


def refused(machine: JournalMachine) -> Iterator[None]:
    """Nobody listens."""
    yield machine.send(R1, NOBODY)


def refused_and_sent(machine: JournalMachine) -> Iterator[None]:
    """The caller tries again."""
    yield from refused(machine)
    yield machine.send(R1)


def refused_and_queued(machine: JournalMachine) -> Iterator[None]:
    """The caller leaves it to a worker."""
    yield from refused(machine)
    yield machine.queue(R1)


def refused_and_forgotten(machine: JournalMachine) -> Iterator[None]:
    """What was not done is pruned."""
    yield from refused(machine)
    yield machine.wait(1)
    yield machine.prune()


def unheard(machine: JournalMachine) -> Iterator[None]:
    """The service takes a refund, and its answer is lost."""
    yield machine.send(R1, UNHEARD)


def unheard_and_found(machine: JournalMachine) -> Iterator[None]:
    """The reconciler asks what became of it."""
    yield from unheard(machine)
    yield machine.reconcile()


def unheard_and_done(machine: JournalMachine) -> Iterator[None]:
    """The service has ended it when the reconciler asks."""
    yield from unheard(machine)
    yield machine.end()
    yield machine.reconcile()


def never_arrived(machine: JournalMachine) -> Iterator[None]:
    """Absent within the quarantine, and at its end."""
    yield machine.send(R1, NEVER)
    yield machine.reconcile()
    yield machine.reconcile(61)


def never_arrived_and_sent(machine: JournalMachine) -> Iterator[None]:
    """What was queued is sent again by the reconciler."""
    yield machine.queue(R1, NEVER)
    yield machine.reconcile(61)


def never_arrived_and_refused(machine: JournalMachine) -> Iterator[None]:
    """Of the order nothing is left, when it is sent again."""
    yield machine.queue(R1, NEVER)
    yield machine.somebody_else(REST)
    yield machine.reconcile(61)


def unaskable(machine: JournalMachine) -> Iterator[None]:
    """Nothing names a payment whose answer is lost."""
    yield machine.send(PAYMENT, UNHEARD)
    yield machine.reconcile()


def unaskable_and_done(machine: JournalMachine) -> Iterator[None]:
    """A person says that it was done."""
    yield from unaskable(machine)
    yield machine.resolve("succeeded")


def unaskable_and_undone(machine: JournalMachine) -> Iterator[None]:
    """A person says that it was not."""
    yield from unaskable(machine)
    yield machine.resolve("rejected")


def rejected_and_told(machine: JournalMachine) -> Iterator[None]:
    """What a person took for undone, and the service tells to be done, is for a person again."""
    yield machine.send(R1, "cut after")
    yield machine.wait(46)
    yield machine.resolve("rejected")
    yield machine.end()
    yield machine.notify(R1)


PROGRAMS: Final[Mapping[tuple[str, str], Program]] = {
    ("", "new"): queued,
    ("", "sending"): accepted,
    ("new", "sending"): executed,
    ("new", "succeeded"): queued_and_done_elsewhere,
    ("new", "rejected"): queued_and_withdrawn,
    ("sending", "new"): executed_in_vain,
    ("sending", "accepted"): accepted,
    ("sending", "succeeded"): done_at_once,
    ("sending", "rejected"): refused,
    ("sending", "unknown"): unheard,
    ("sending", "manual"): never_arrived_and_refused,
    ("unknown", "accepted"): unheard_and_found,
    ("unknown", "succeeded"): unheard_and_done,
    ("unknown", "rejected"): never_arrived,
    ("unknown", "sending"): never_arrived_and_sent,
    ("unknown", "manual"): unaskable,
    ("accepted", "succeeded"): accepted_and_done,
    ("accepted", "rejected"): accepted_and_failed,
    ("accepted", "manual"): accepted_and_strayed,
    ("rejected", "sending"): refused_and_sent,
    ("rejected", "new"): refused_and_queued,
    ("rejected", "manual"): rejected_and_told,
    ("manual", "succeeded"): unaskable_and_done,
    ("manual", "rejected"): unaskable_and_undone,
    ("succeeded", ""): done_and_forgotten,
    ("rejected", ""): refused_and_forgotten,
}
"""By the change, from what to what: empty, there is no intention."""
