"""What may never happen in a life, judged by what the service has really done."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Final

from tests.simulation.service import LIVE, Ledger
from tests.simulation.shop import OPEN, Handled, Record, Told

VIOLATIONS: Final = (
    *("TWICE", "LOST", "UNTRUE", "HIDDEN", "HANDLED", "BELIEVED"),
    *("OPEN", "LATE", "LEAK", "ERROR", "STUCK"),
)
"""How a violation begins, the worst first. The first six are about money."""
NOT_MADE: Final = {"failed", "NotSentError", "NotSentTimeoutError", "ServiceError", "RateLimitedError"}
"""What a caller is told of a call that made nothing."""
MADE: Final = {"succeeded", "pending", "paid", "processing"}
"""What a caller is told of a call that made something."""
DONE: Final = {"succeeded", "paid"}
"""States of which a handler is told exactly once."""
LATEST: Final = 60.0
"""Seconds by which a handler may still be told what was true before."""


def find_violations(
    ledger: Ledger, record: Record, states: Mapping[str, str], cut_off: Iterable[str], handled: Iterable[Handled]
) -> Iterator[str]:
    """Yield what happened in a life that may never happen.

    Args:
        ledger: What the service has done.
        record: What callers were told.
        states: The journal's state of each thing at the end.
        cut_off: The names of processes that did not end by themselves: their callers were not told everything.
        handled: What handlers got.
    """
    yield from record.faults
    yield from (f"TWICE: {thing} was made again at {at}" for thing, at in ledger.doubles)
    yield from _judge_callers(ledger, record, {*cut_off})
    for thing, state in states.items():
        yield from _judge_journal(ledger, thing, state)
    yield from _judge_handlers(ledger, record, [*handled])


def is_done(ledger: Ledger, thing: str, at: float = inf) -> bool:
    """Return whether a thing was made and is not undone: a closed order may as well never have been placed."""
    kind, _, number = thing.partition(" ")
    state = ledger.state(f"order {number}" if kind == "close" else thing, at)
    if kind == "close":
        return state not in LIVE
    return thing in ledger.effects and (kind != "order" or state in LIVE)


def _judge_callers(ledger: Ledger, record: Record, cut_off: set[str]) -> Iterator[str]:
    for told in record.told:
        if told.thing.startswith("close "):
            yield from _judge_close(ledger, told)
        elif told.what in MADE and told.thing not in ledger.effects:
            yield f"LOST: a caller was told at {told.ended} that {told.thing} was made"
    for thing in ledger.effects:
        callers = {process for process, things in record.called.items() if thing in things}
        heard = {each.what for each in record.told if each.thing == thing}
        if heard <= NOT_MADE and callers and callers.isdisjoint(cut_off):
            yield f"UNTRUE: {thing} was made, and its callers were told {sorted(heard)}"


def _judge_close(ledger: Ledger, told: Told) -> Iterator[str]:
    number = told.thing.partition(" ")[2]
    states = ledger.states.get(f"order {number}", [])
    if told.what == "closed" and not any(at <= told.ended and state not in LIVE for at, state in states):
        yield f"UNTRUE: a caller was told at {told.ended} that {number} is closed"


def _judge_journal(ledger: Ledger, thing: str, state: str) -> Iterator[str]:
    made = is_done(ledger, thing) if thing.startswith("close ") else thing in ledger.effects
    if state == "succeeded" and not made:
        yield f"LOST: the journal says that {thing} was made"
    if state == "rejected" and not thing.startswith("close ") and is_done(ledger, thing):
        yield f"HIDDEN: the journal says that {thing} was not made"
    if state in OPEN or state == "manual":
        yield f"OPEN: {thing} is {state} for ever"


def _judge_handlers(ledger: Ledger, record: Record, handled: list[Handled]) -> Iterator[str]:
    events = Counter((each.number, each.state.removeprefix("REFUND_").lower()) for each in ledger.events)
    # A call that was cut off told nobody anything, but may have sent.
    calls = Counter(each.thing.partition(" ")[2] for each in record.told)
    calls.update(thing.partition(" ")[2] for things in record.called.values() for thing in things)
    moments: dict[tuple[str, str], list[float]] = {}
    for each in handled:
        moments.setdefault((each.number, each.state), []).append(each.at)
    for (number, state), at in moments.items():
        if (number, state) not in events:
            yield f"BELIEVED: a handler was told at {at} that {number} is {state}"
        # Each send may end without effect, and a redelivery may be about any of them.
        if len(at) > (1 if state in DONE else max(events[number, state], calls[number])):
            yield f"HANDLED: a handler was told {len(at)} times that {number} is {state}"
        made = ledger.effects.get(f"refund {number}", [])
        if state == "failed" and any(each + LATEST < max(at) for each in made):
            yield f"BELIEVED: a handler was told at {at} that {number} failed, made at {made}"
    for number, state in events:
        if state in DONE and (number, state) not in moments:
            yield f"HANDLED: no handler was told that {number} is {state}"
