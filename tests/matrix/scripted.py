"""A service that does what a script says to each request, and the judge, who counts what the service received."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal

from attrs import frozen

from tests.building import Hours
from tests.foreign.recorder import Answer, Connection
from tests.matrix.cells import Column

Says = Literal["done", "refused", "throttled", "absent", "nothing"]
"""What an answer says of the request; `nothing` is no answer, or one that nobody can act upon."""


@frozen
class Step:
    """What the service does to one request.

    Attributes:
        says: In a word.
        answer: In bytes.
        takes: Seconds that it takes for it.
    """

    says: Says
    answer: Answer
    takes: float = 0.0


@frozen(eq=False)
class Arrival:
    """A request as the service counts it, from its first byte on.

    Attributes:
        path: Its endpoint.
        begun: When it came.
        ended: When it was answered, or its connection reset.
        says: What it was answered.
    """

    path: str
    begun: float
    ended: float
    says: Says = "nothing"


class Script(Mapping[str, Answer]):
    """What the service says next at each of its paths, and how it keeps count.

    Args:
        steps: By path, what it does to the requests in their order.
        afterwards: What it does to each further one.
        hours: What time it is; nobody else moves it on while the service is at work.
        cuts: For the first connections, after how many bytes each is reset.
    """

    def __init__(
        self, steps: Mapping[str, Sequence[Step]], afterwards: Step, hours: Hours, cuts: Sequence[int | None] = ()
    ) -> None:
        self._steps: Final = {path: list(each) for path, each in steps.items()}
        self._afterwards: Final = afterwards
        self._hours: Final = hours
        self._cuts: Final = cuts
        self._log: Final[list[Arrival | tuple[int, float]]] = []

    def __getitem__(self, path: str) -> Answer:
        left = self._steps[path]
        step = left.pop(0) if left else self._afterwards
        begun = self._hours.now
        self._hours.now += step.takes
        self._log.append(Arrival(path, begun, self._hours.now, step.says))
        return step.answer

    def __iter__(self) -> Iterator[str]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)

    def cuts(self) -> Iterator[int | None]:
        """Say of each connection, as it is accepted, after how many bytes it is reset."""
        for number, cut in enumerate(self._cuts):
            if cut is not None:
                self._log.append((number, self._hours.now))
            yield cut

    def arrivals(self, connections: Sequence[Connection]) -> list[Arrival]:
        """Return all requests in the order in which they came, also those that were cut before they were whole.

        Args:
            connections: All that there were.
        """
        found = [each if isinstance(each, Arrival) else _cut(connections[each[0]], each[1]) for each in self._log]
        return [each for each in found if each]


def _cut(connection: Connection, when: float) -> Arrival | None:
    """Return a request that was cut; `None` where not a byte of it came."""
    if not connection.received:
        return None
    target = bytes(connection.received).split(b" ")[1].decode()
    return Arrival(target.partition("?")[0], when, when)


def doubled(
    arrivals: Sequence[Arrival], column: Column, *, sure: bool, quarantine: float | None
) -> list[tuple[Arrival, Arrival]]:
    """Return the sends of a write, each with the one before, that must not have been.

    Args:
        arrivals: All that came, in their order.
        column: Which write it is.
        sure: A 429 says that it was not done.
        quarantine: Seconds after which an absent answer is final; `None`: never.
    """
    sends = [each for each in arrivals if each.path == column.path]
    return [
        (first, second)
        for first, second in pairwise(sends)
        if not (first.says == "throttled" and sure)
        and not (column.query and quarantine is not None and _absent(arrivals, column, first, second, quarantine))
    ]


def _absent(arrivals: Sequence[Arrival], column: Column, first: Arrival, second: Arrival, quarantine: float) -> bool:
    """Return whether, once the quarantine was over, the service was asked between two sends, and knew of none."""
    between = arrivals[arrivals.index(first) : arrivals.index(second)]
    return any(
        (column.query, "absent") == (each.path, each.says) and each.begun >= first.ended + quarantine
        for each in between
    )
