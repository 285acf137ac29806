"""The journal: a write-ahead record of every write, so that a crash is recovered by asking, not by repeating."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from payasync.journal.intents import STATES, Intent, Outcome, State
from payasync.journal.journal import Journal
from payasync.journal.reconcile_policy import Patience, Report, Result
from payasync.journal.reconciler import Reconciler
from payasync.journal.sqlite_journal import SqliteJournal
from payasync.settings import from_extra

if TYPE_CHECKING:
    from payasync.journal.postgres_journal import PostgresJournal

__all__ = [
    "STATES",
    "Intent",
    "Journal",
    "Outcome",
    "Patience",
    "PostgresJournal",
    "Reconciler",
    "Report",
    "Result",
    "SqliteJournal",
    "State",
]

if not TYPE_CHECKING and find_spec("psycopg") is None:  # `import *` would fail
    __all__ = [each for each in __all__ if each != "PostgresJournal"]


def __getattr__(name: str) -> Any:
    if name == "PostgresJournal":
        return from_extra("postgres", "payasync.journal.postgres_journal", name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
