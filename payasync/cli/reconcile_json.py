"""What a script reads of `payasync reconcile --json`: a line of each run that watches, and one of all at the end."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import ceil

from attrs import asdict

from payasync.cli.intent_table import now
from payasync.journal import Intent
from payasync.journal.reconciling import Report, Result


def of_run(report: Report, results: Sequence[Result]) -> str:
    """Return the line of one run.

    Args:
        report: Of it.
        results: Of it.
    """
    return json.dumps({"asked": report.asked, **asdict(report), "not_done": _not_done(results)})


def of_all(
    results: Sequence[Result],
    manual: Sequence[Intent],
    due: datetime | None,
    sending: Sequence[datetime],
    unsent: Sequence[Intent],
    *,
    others: Mapping[str, int],
    silent: bool,
    interrupted: bool,
) -> str:
    """Return the last line.

    Args:
        results: Of all runs.
        manual: Needs a person.
        due: When the next write is due.
        sending: When each write that somebody is sending is asked about, if that does not end.
        unsent: Queued, and nobody sends it.
        others: How many writes of which other merchants are open.
        silent: The service answered nobody in the last run.
        interrupted: A signal ended it before it was through.
    """
    not_done = _not_done(results)
    report = Report.of((each.end for each in results), silent=silent, unsent=len(unsent), rejected=len(not_done))
    facts = {"asked": report.asked, **asdict(report), "interrupted": interrupted, "not_done": not_done}
    waiting = {"needs_a_person": [each.id for each in manual], "of_other_merchants": dict(others)}
    # Rounded up: who waits so long finds it due.
    next_in = None if due is None else max(0, ceil((due - now()).total_seconds()))
    return json.dumps({**facts, **waiting, "sending": len(sending), "next_in": next_in})


def _not_done(results: Sequence[Result]) -> list[int]:
    return [each.intent.id for each in results if each.rejected]
