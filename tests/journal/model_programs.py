"""For each change of a state the steps that lead to it, by the machine's own rules: the rare ones, too, every time."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tests.journal.model_calls import BUSY, LATE, NEVER, NOBODY, NONE, STRAY, UNHEARD
from tests.journal.model_machine import CLOSE, DEARER, ORDER, OTHER, PAYMENT, R1, R2, REST, JournalMachine

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


def accepted_and_unheard(machine: JournalMachine) -> Iterator[None]:
    """Nobody answers what is asked about it, until somebody does; since when is kept as long as that lasts."""
    yield from accepted(machine)
    yield machine.reconcile(0, "failing")
    yield machine.reconcile(46, "busy")
    yield machine.reconcile(61, "unclear")
    yield machine.reconcile(61, "refusal")
    yield machine.reconcile(61)
    yield machine.reconcile(61, "nobody")
    yield machine.end()
    yield machine.reconcile(61)


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


def overtaken_with_an_answer(machine: JournalMachine) -> Iterator[None]:
    """Who has the answer comes back when the lease is over, and another holds the intention."""
    yield machine.send(R1, "answered")
    yield machine.die_asking(46)
    yield machine.come_back()


def overtaken_while_asking(machine: JournalMachine) -> Iterator[None]:
    """So does who asked, and heard nothing."""
    yield machine.send(R1, NEVER)
    yield machine.die_asking()
    yield machine.die_asking(46)
    yield machine.come_back()


def overtaken_before_sending(machine: JournalMachine) -> Iterator[None]:
    """So does who has found that it was never done, and would send it again: another is at it."""
    yield machine.queue(R1, NEVER)
    yield machine.die_asking(61)
    yield machine.die_asking(46)
    yield machine.come_back()
    yield machine.come_back(1)


def overtaken_by_a_person(machine: JournalMachine) -> Iterator[None]:
    """So does who would send again what a person has rejected since."""
    yield machine.queue(R1, NEVER)
    yield machine.die_asking(61)
    yield machine.resolve("rejected")
    yield machine.come_back()


def late(machine: JournalMachine) -> Iterator[None]:
    """What is absent first arrives within the quarantine: it is not sent again."""
    yield machine.queue(R1, LATE)
    yield machine.reconcile(46)
    yield machine.reconcile(61)


def interrupted(machine: JournalMachine) -> Iterator[None]:
    """The quarantine of who died while it sent counts from when that is found."""
    yield machine.send(R1, "cut before")
    yield machine.reconcile(46)
    yield machine.reconcile(46)
    yield machine.reconcile(46)


def interrupted_and_told(machine: JournalMachine) -> Iterator[None]:
    """Nobody has asked since the lease of who died was over, and the service tells that it is done."""
    yield machine.send(R1, "cut after")
    yield machine.end()
    yield machine.notify(R1)
    yield machine.wait(46)
    yield machine.notify(R1)


def interrupted_and_resolved(machine: JournalMachine) -> Iterator[None]:
    """A person may say so, too, and not before that."""
    yield machine.send(R1, "cut after")
    yield machine.resolve("succeeded")
    yield machine.wait(46)
    yield machine.resolve("succeeded")


def set_back(machine: JournalMachine) -> Iterator[None]:
    """A clock that is set back ends no quarantine."""
    yield machine.send(R1, NEVER)
    yield machine.wait(-30)
    yield machine.reconcile(61)
    yield machine.reconcile(46)


def denied_and_not_sent(machine: JournalMachine) -> Iterator[None]:
    """What a worker cannot send, which may have been done before that, is asked about, and not rejected."""
    yield machine.queue(R1, NEVER)
    yield machine.resolve("rejected")
    yield machine.queue(R1)
    yield machine.execute(0, NOBODY)


def failed_after_two(machine: JournalMachine) -> Iterator[None]:
    """Of what was sent twice, a refusal that is told may be of the first attempt: asking ends it."""
    yield from never_arrived_and_sent(machine)
    yield machine.end(well=False)
    yield machine.notify(R1)
    yield machine.reconcile(61)


def rejected_and_told(machine: JournalMachine) -> Iterator[None]:
    """What a person took for undone, and the service tells to be done, is for a person again."""
    yield machine.send(R1, "cut after")
    yield machine.wait(46)
    yield machine.resolve("rejected")
    yield machine.end()
    yield machine.notify(R1)


def used_by_somebody_else(machine: JournalMachine) -> Iterator[None]:
    """The number stands at the service for another amount: that is for a person."""
    yield machine.somebody_else(OTHER)
    yield machine.send(R1)
    yield machine.reconcile()


def asked_about_somebody_else_s(machine: JournalMachine) -> Iterator[None]:
    """Who asks after a lost answer hears of the other amount: that is no answer."""
    yield machine.somebody_else(OTHER)
    yield machine.send(R1, NEVER, patient=True)
    yield machine.reconcile()


def told_of_somebody_else_s(machine: JournalMachine) -> Iterator[None]:
    """Who is told of the other amount's end has not heard of this one."""
    yield machine.somebody_else(ORDER)
    yield machine.send(DEARER)
    yield machine.end()
    yield machine.notify(DEARER)


def strayed(machine: JournalMachine) -> Iterator[None]:
    """An answer about another number ends nothing, in whatever state: the first that is its own does."""
    yield machine.send(R1, STRAY)
    yield machine.notify(R1, stray=True)
    yield machine.reconcile(0, "stray")
    yield machine.reconcile(61, "stray")
    yield machine.reconcile(61)
    yield machine.end()
    yield machine.notify(R1, stray=True)
    yield machine.reconcile(3600, "stray")
    yield machine.reconcile(3600)


def strayed_and_asked(machine: JournalMachine) -> Iterator[None]:
    """Who asks after such an answer finds what was done; of a payment nothing can be asked."""
    yield machine.send(R1, STRAY, patient=True)
    yield machine.send(ORDER, STRAY, patient=True)
    yield machine.send(CLOSE, STRAY, patient=True)
    yield machine.send(PAYMENT, STRAY, patient=True)


def strayed_for_ever(machine: JournalMachine) -> Iterator[None]:
    """What nobody knows is asked about some times, and is then for a person."""
    yield machine.queue(R1, NEVER)
    for _ in range(8):
        yield machine.reconcile(3600, "stray")
    yield machine.execute()


def rejected_and_told_of_another(machine: JournalMachine) -> Iterator[None]:
    """What was rejected, or waits to be sent again, is not changed by what became of another."""
    yield machine.send(R1, "cut after")
    yield machine.wait(46)
    yield machine.resolve("rejected")
    yield machine.end()
    yield machine.notify(R1, stray=True)
    yield machine.queue(R1)
    yield machine.notify(R1, stray=True)


def denied_for_ever(machine: JournalMachine) -> Iterator[None]:
    """Have the service deny it until a person is asked, and see that nobody sends it."""
    for _ in range(9):
        yield machine.reconcile(3600, "denied")
    yield machine.send(ORDER)
    yield machine.resolve("rejected")


def used_and_denied(machine: JournalMachine) -> Iterator[None]:
    """Used before, on the first send, and then denied: it is not rejected by that."""
    yield machine.somebody_else(ORDER)
    yield machine.send(ORDER)
    yield from denied_for_ever(machine)


def queued_used_and_denied(machine: JournalMachine) -> Iterator[None]:
    """Nor is it sent again where it was queued."""
    yield machine.somebody_else(ORDER)
    yield machine.queue(ORDER, NONE)
    yield from denied_for_ever(machine)


def used_after_a_denial(machine: JournalMachine) -> Iterator[None]:
    """Used before, on a second send: the first may have used it, and who asks finds that."""
    yield machine.send(ORDER, NEVER)
    yield machine.reconcile(61)
    yield machine.somebody_else(ORDER)
    yield machine.send(ORDER)
    yield from denied_for_ever(machine)
    yield machine.send(ORDER, patient=True)


def queued_and_used_after_a_denial(machine: JournalMachine) -> Iterator[None]:
    """The reconciler sends again what was denied, hears that it was used, and is denied again: nobody sends it more."""
    yield machine.queue(ORDER, NEVER)
    yield machine.somebody_else(ORDER)
    yield machine.reconcile(61, "denied", patient=True)
    yield from denied_for_ever(machine)


def used_after_a_denial_for_another(machine: JournalMachine) -> Iterator[None]:
    """What is found under the number is another amount's: that is for a person."""
    yield machine.queue(DEARER, NEVER)
    yield machine.somebody_else(ORDER)
    yield machine.reconcile(61, "denied", patient=True)
    yield machine.notify(ORDER)
    yield machine.reconcile(3600)


def repeated(machine: JournalMachine) -> Iterator[None]:
    """Within one call only what cannot be done twice is sent again: each time with a nonce of its own."""
    yield machine.send(ORDER, BUSY, patient=True)
    yield machine.send(CLOSE, UNHEARD, patient=True)


def keys_that_conflict(machine: JournalMachine) -> Iterator[None]:
    """A caller's own key is taken over by the number it comes with, and means no other from then on."""
    yield machine.send(R1, UNHEARD)
    yield machine.send(R1, intent="a")
    yield machine.send(R1, intent="b")
    yield machine.queue(R2, intent="a")
    yield machine.send(OTHER)


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

SAFEGUARDS: Final[tuple[Program, ...]] = (
    accepted_and_unheard,
    overtaken_with_an_answer,
    overtaken_while_asking,
    overtaken_before_sending,
    overtaken_by_a_person,
    late,
    interrupted,
    interrupted_and_told,
    interrupted_and_resolved,
    set_back,
    denied_and_not_sent,
    failed_after_two,
    used_by_somebody_else,
    asked_about_somebody_else_s,
    told_of_somebody_else_s,
    strayed,
    strayed_and_asked,
    strayed_for_ever,
    rejected_and_told_of_another,
    used_and_denied,
    queued_used_and_denied,
    used_after_a_denial,
    queued_and_used_after_a_denial,
    used_after_a_denial_for_another,
    repeated,
    keys_that_conflict,
)
"""What the search meets by chance, and must go well every time."""
