"""What a script reads of `payasync reconcile --json`: a line of each run that watches, and one of all at the end.

Of a dry run it is one line, of what would be asked about.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import ceil
from typing import Any

from attrs import asdict

from payasync.cli.intent_table import now
from payasync.cli.reconcile_tally import Tally
from payasync.journal import Intent
from payasync.journal.reconciling import Report


def of_run(report: Report, tally: Tally) -> str:
    """Return the line of one run.

    Args:
        report: Of it.
        tally: Holds what it found to be not done.
    """
    return json.dumps({"asked": report.asked, **asdict(report), "not_done": _not_done(tally)})


def of_all(
    tally: Tally,
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
        tally: Of all runs; of what was not done, it holds what no line before has listed.
        manual: Needs a person.
        due: When the next write is due.
        sending: When each write that somebody is sending is asked about, if that does not end.
        unsent: Queued, and nobody sends it.
        others: How many writes of which other merchants are open.
        silent: The service answered nobody in the last run.
        interrupted: A signal ended it before it was through.
    """
    left = _left(manual, due, sending)
    facts = _found(tally, silent=silent, unsent=len(unsent))
    return json.dumps(
        {**facts, "interrupted": interrupted, "cut_short": False, "of_other_merchants": dict(others), **left}
    )


def of_plan(
    planned: Sequence[Intent],
    manual: Sequence[Intent],
    due: datetime | None,
    sending: Sequence[datetime],
    unsent: Sequence[Intent],
    *,
    others: Mapping[str, int],
) -> str:
    """Return the one line of a dry run.

    Args:
        planned: What would be asked about.
        manual: As all that follow, as for `of_all`.
        due: When the next write is due; now, where there is something planned.
        sending: When each write that somebody is sending is asked about.
        unsent: Queued, and nobody sends it.
        others: How many writes of which other merchants are open.
    """
    facts = {"dry_run": True, "due": [_due(each) for each in planned], "unsent": len(unsent)}
    return json.dumps({**facts, "of_other_merchants": dict(others), **_left(manual, due, sending)})


def of_heard(tally: Tally, *, others: Mapping[str, int], silent: bool) -> str:
    """Return the last line where an error has cut it short: what only the journal could say, is `null`.

    Args:
        tally: Of what came, as for `of_all`.
        others: How many writes of which other merchants are open.
        silent: The service answered nobody in the last run.
    """
    unread = dict.fromkeys(("unsent", "needs_a_person", "sending", "next_in"))
    facts = _found(tally, silent=silent, unsent=0)
    return json.dumps({**facts, "interrupted": False, "cut_short": True, "of_other_merchants": dict(others), **unread})


def _found(tally: Tally, *, silent: bool, unsent: int) -> dict[str, Any]:
    report = Report(silent=silent, unsent=unsent, rejected=tally.rejected, **tally.ends)
    asked = {"asked": report.asked, "questions": tally.questions, "runs": tally.runs}
    return {**asked, **asdict(report), "not_done": _not_done(tally)}


def _left(manual: Sequence[Intent], due: datetime | None, sending: Sequence[datetime]) -> dict[str, Any]:
    # Rounded up: who waits so long finds it due.
    next_in = None if due is None else max(0, ceil((due - now()).total_seconds()))
    people = [_named(each, each.reason) for each in manual]
    return {"needs_a_person": people, "sending": len(sending), "next_in": next_in}


def _not_done(tally: Tally) -> list[dict[str, Any]]:
    return [_named(each.intent, each.reason) for each in tally.not_done]


def _named(intent: Intent, reason: str) -> dict[str, Any]:
    """Return by what a script finds a write among its own, and why it is told of it."""
    names = {"id": intent.id, "operation": intent.operation, "reference": intent.reference, "intent": intent.intent}
    return {**names, "reason": reason}


def _due(intent: Intent) -> dict[str, Any]:
    # Of what was cut off, the end of the lease is when it became due.
    moments = {"created": intent.created, "sent_at": intent.sent_at, "due": intent.lease or intent.due}
    told = {name: moment and moment.isoformat() for name, moment in moments.items()}
    return {**_named(intent, intent.reason), "state": intent.state, **told}
