"""When the service may be asked about a hint: no I/O here.

Anybody can send hints about one number, in any number of different bodies. So there is one query in flight per number,
and none soon after an end state. No hint is dropped because of that: it waits for a query that begins after it came.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from attrs import Factory, define

from payasync.notifications.endings import Ending, later, longest_wait
from payasync.notifications.trust import Confirmed

QUIET: Final = 60.0
"""Seconds after an end state in which nobody asks about the same number again."""
MOST_WAITING: Final = 10_000
"""Events that one query can speak for; further ones wait for the query after it."""

Question: TypeAlias = tuple[str, str]
"""The name of the operation, and the number."""


@define
class _Asked:
    """What this process knows of one question.

    Attributes:
        waiting: The numbers of events that wait: the next query speaks for them, since they came before it.
        spoken_for: The numbers of events that the last query spoke for.
        confirmed: The end state that it brought.
        until: Seconds since 1970, when the question may be asked again.
        loop: The loop in which a query is in flight. A loop that has ended, or a parent's, is another one.
    """

    waiting: set[int] = Factory(set)
    spoken_for: frozenset[int] = frozenset()
    confirmed: Confirmed | None = None
    until: float = 0.0
    loop: asyncio.AbstractEventLoop | None = None

    def wait(self, event: int, seconds: float, why: str) -> Ending:
        """Return that an event waits."""
        if len(self.waiting) < MOST_WAITING:
            self.waiting.add(event)
        return later(why, seconds)


class Questions:
    """Bounds the queries of one receiver; each process has a bound of its own.

    Args:
        clock: Returns seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock: Final = clock
        self._asked: Final = dict[Question, _Asked]()

    def known(self, question: Question, event: int, failures: int) -> Confirmed | Ending | None:
        """Return what the last query says of an event, or that the event waits; `None`: ask now.

        Args:
            question: What would be asked.
            event: The inbox's number of the event.
            failures: How often it has failed or waited, with this time.
        """
        asked, now = self._asked.get(question), self._clock()
        if asked is None:
            return None
        if asked.loop is asyncio.get_running_loop():
            return asked.wait(event, min(longest_wait(failures), QUIET), "a query about the same number is in flight")
        if asked.confirmed is None or not now < asked.until <= now + QUIET:  # later still: the clock was set back
            return None
        if event in asked.spoken_for:
            return asked.confirmed
        return asked.wait(event, asked.until - now, "the service was asked about the same number just now")

    def begin(self, question: Question, event: int) -> None:
        """Note that a query begins: it speaks for an event, and for all that waited for it."""
        self._forget()
        before = self._asked.pop(question, _Asked())
        speaks_for = frozenset({event, *before.waiting})
        self._asked[question] = _Asked(spoken_for=speaks_for, loop=asyncio.get_running_loop())

    def end(self, question: Question, confirmed: Confirmed | None) -> None:
        """Note that a query has ended, and which end state it brought, if it did."""
        asked = self._asked.get(question)
        if asked is None or asked.loop is not asyncio.get_running_loop():  # another loop has begun anew
            return
        asked.loop, asked.confirmed, asked.until = None, confirmed, self._clock() + QUIET
        if confirmed is None and not asked.waiting:
            del self._asked[question]

    def _forget(self) -> None:
        """Forget the oldest questions, long after they may be asked again: what waited for them has asked by then."""
        now = self._clock()
        while self._asked:
            question, asked = next(iter(self._asked.items()))
            if asked.loop is asyncio.get_running_loop() or now - QUIET < asked.until <= now + QUIET:
                return
            del self._asked[question]
