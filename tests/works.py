"""Works of one query, for the stores of tests."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from payasync.storage.transactions import Query, Transaction

Rows = list[dict[str, Any]]


def asking(statement: str, *, is_first: bool = False, **values: Any) -> Callable[[datetime], Transaction[Rows]]:
    """Return work that returns the rows of a statement."""

    def work(_: datetime) -> Transaction[Rows]:
        rows: Rows = yield Query(statement, values, is_first=is_first)
        return rows

    return work
