"""How a transaction asks its database: it yields statements, and takes what those give; no I/O here."""

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from attrs import frozen

from payasync.journal.intents import Intents

FOR_UPDATE: Final = "FOR UPDATE"
UNLESS_LOCKED: Final = "FOR UPDATE SKIP LOCKED"

T = TypeVar("T")


@frozen
class Asked:
    """What is asked of a database.

    Attributes:
        statement: One of `statements`.
        values: By their names in it.
        lock: How to lock what is found, where not the whole database is locked anyway.
        column: The one column that it gives, in place of whole intentions.
    """

    statement: str
    values: Mapping[str, Any]
    lock: str = ""
    column: str = ""


Transaction: TypeAlias = Generator[Asked, Any, T]
"""Whoever runs it sends it what each statement gives, and commits at its end."""


async def run(transaction: Transaction[T], answer: Callable[[Asked], Awaitable[Any]]) -> T:
    """Run a transaction to its end.

    Args:
        transaction: What is to be done.
        answer: Asks the database.
    """
    try:
        asked = next(transaction)
        while True:
            asked = transaction.send(await answer(asked))
    except StopIteration as end:
        done: T = end.value
        return done


def intents(statement: str, values: Mapping[str, Any], lock: str = "") -> Transaction[Intents]:
    """Return the intentions that a statement gives."""
    found: Intents = yield Asked(statement, values, lock)
    return found


def numbers(statement: str, values: Mapping[str, Any]) -> Transaction[Sequence[int]]:
    """Return the numbers of the intentions that a statement has kept or changed: what most writes come to."""
    found: Sequence[int] = yield Asked(statement, values, column="id")
    return found
