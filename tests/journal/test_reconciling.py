"""What a run of the reconciler came to."""

from datetime import timedelta
from typing import Any

import pytest

from payasync.journal import Outcome, Report, Result
from payasync.journal.intents import State
from payasync.journal.policy import End, is_due
from tests.journal.building import START, kept

LATER = START + timedelta(seconds=1)
FAILED = Outcome(status=200, body=b'{"status": "SBX_REFUND_FAILED"}')


def test_report_counts() -> None:
    """Each end has its number, and together they are all that was asked about."""
    ends: list[End] = ["resolved", "waiting", "resolved", "manual", "sent", "lost"]
    report = Report.of(ends, silent=True, unsent=7, rejected=1)

    assert Report(resolved=2, waiting=1, manual=1, sent=1, lost=1, silent=True, unsent=7, rejected=1) == report
    assert 6 == report.asked


@pytest.mark.parametrize(
    ("end", "state", "expected"),
    [
        ("resolved", "rejected", True),
        ("resolved", "succeeded", False),
        ("sent", "rejected", True),
        ("sent", "succeeded", False),
        ("lost", "rejected", False),
        ("manual", "manual", False),
    ],
)
def test_what_was_not_done(end: End, state: State, expected: bool) -> None:  # noqa: FBT001 - what is expected
    """What has ended without being done, by this run and by no other."""
    assert expected is Result(intent=kept(state="unknown"), end=end, state=state).rejected


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"state": "unknown", "due": START}, True),
        ({"state": "accepted", "due": START}, True),
        ({"state": "unknown", "due": LATER}, False),
        ({"state": "unknown", "lease": START}, True),
        ({"state": "unknown", "lease": LATER}, False),
        ({"state": "sending", "lease": START}, True),
        ({"state": "sending", "lease": LATER}, False),
        ({"state": "new"}, False),
        ({"state": "manual"}, False),
        ({"state": "succeeded"}, False),
    ],
)
def test_what_is_due(facts: dict[str, Any], expected: bool) -> None:  # noqa: FBT001 - what is expected
    """What is open, and nobody holds, from its moment on; what somebody holds, from the end of that."""
    assert expected is is_due(kept(**facts), START)
