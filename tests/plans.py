"""Query plans of PostgreSQL."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

if TYPE_CHECKING:
    import psycopg


@frozen
class Plan:
    """The plan and the cost of a statement.

    Attributes:
        steps: Kinds of its steps, such as `Seq Scan`.
        read: Number of blocks of tables and indexes that it read.
        seconds: The time that it took, without its planning.
        rows: Number of rows that it returned.
    """

    steps: frozenset[str]
    read: int
    seconds: float
    rows: int


async def plan(connection: "psycopg.AsyncConnection[Any]", statement: str, values: Mapping[str, Any]) -> Plan:
    """Execute a statement and return its plan; its changes are rolled back."""
    async with connection.transaction(force_rollback=True):
        explained = await connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}".encode(), values)
        ((whole,),) = (await explained.fetchall())[0]
    found = whole["Plan"]
    read = found["Shared Hit Blocks"] + found["Shared Read Blocks"]
    return Plan(frozenset(_steps(found)), read, whole["Execution Time"] / 1000, found["Actual Rows"])


def _steps(found: dict[str, Any]) -> list[str]:
    return [found["Node Type"], *(kind for each in found.get("Plans", []) for kind in _steps(each))]


LOOKUP: Final = 8
"""Pages that a lookup reads at most, whichever of two indexes the planner takes; the tables have thousands."""


GAUGES: Final = {
    *("COUNT", "COUNT_INTERRUPTED", "COUNT_UNSENT", "COUNT_UNSETTLED", "COUNT_WITHOUT_NEWS"),
    *("COUNTS", "EVENTS_OF_STATE", "OLDEST"),
}
"""Statements that read each row that is open, but none that has ended."""


def dearer(before: Mapping[str, Plan], after: Mapping[str, Plan]) -> dict[str, tuple[Plan, Plan]]:
    """Return the statements that scan a table, or read over twice as much as before and more than a lookup does."""
    return {
        name: (before[name], now)
        for name, now in after.items()
        if "Seq Scan" in now.steps or (name not in GAUGES and now.read > max(LOOKUP, 2 * before[name].read))
    }
