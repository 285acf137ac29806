"""Transactions as generators of queries, which run on any database; no I/O here."""

from collections.abc import Awaitable, Callable, Generator, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")


class Query(NamedTuple):
    """One statement for a database.

    Attributes:
        statement: As it stands in a file of statements: values by their names, such as `:id`; row locks and SQLite's
            indexes in comments; `*` for all columns of the store's rows.
        values: By their names. Each statement may use `now`, too, the moment at which its transaction began.
        is_first: It begins its transaction, and stores or changes one row, and returns its `id`. Transactions that
            begin with the same statement may execute it together.
    """

    statement: str
    values: Mapping[str, Any]
    is_first: bool = False


Transaction: TypeAlias = Generator[Query, Any, T]
"""Yields queries, is sent the rows that each returns, and is committed at its end.

A row is a mapping by the names of its columns, with the values that the database's driver gives.
"""
Work: TypeAlias = Callable[[datetime], Transaction[T]]
"""Begins a transaction at a moment. It is called again if the transaction has to be done again."""


async def run_transaction(transaction: Transaction[T], execute: Callable[[Query], Awaitable[Any]]) -> T:
    """Run a transaction to its end, and return its result.

    Args:
        transaction: The transaction.
        execute: Returns the rows of one query.
    """
    try:
        query = next(transaction)
        while True:
            query = transaction.send(await execute(query))
    except StopIteration as end:
        result: T = end.value
        return result
