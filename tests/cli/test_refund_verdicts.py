from typing import Any

import pytest

from payasync import (
    CreateRefund,
    Done,
    NotSentError,
    OutcomeUnknownError,
    PayasyncError,
    Profile,
    RefundResponse,
    Refused,
    ServiceError,
    SessionClosedError,
    bulk,
)
from payasync.calls import Reply
from payasync.cli.refund_sheet import Row
from payasync.cli.refund_verdicts import Verdict, Word, exit_code, left_out, never_arrived, of_kept, of_result
from payasync.journal import Outcome, State
from payasync.sandbox_profile import PROFILE
from tests.journal.building import kept

REFUND = CreateRefund(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200)
ROW = Row(line=2, cells={"out_refund_no": "R1"}, request=REFUND)


def done(profile: Profile = PROFILE) -> Done[RefundResponse]:
    """Return what a refund that was taken comes to."""
    reply = Reply(status=200, headers={}, body=b'{"code":"SBX_OK","message":"done"}')
    return Done(REFUND, RefundResponse(reply, profile.answer, profile.states))


@pytest.mark.parametrize(
    ("state", "word"), [("accepted", "accepted"), ("succeeded", "succeeded"), ("rejected", "refused")]
)
def test_journal_says_what_an_answer_means(state: State, word: Word) -> None:
    """A refund that the service took and that failed was refused; the code and the words are the service's."""
    expected = Verdict(row=ROW, state=word, code="SBX_OK", message="done")

    assert expected == of_result(ROW, done(), kept(state=state), PROFILE)


def test_answer_without_a_journal_that_can_be_read_was_taken() -> None:
    """What was answered is not in doubt, and where the profile says nothing of codes there are none."""
    assert Verdict(row=ROW, state="accepted") == of_result(ROW, done(Profile()), None, Profile())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ServiceError("HTTP 400", code=7, message="no such order"), ("refused", "7", "no such order")),
        (ServiceError("HTTP 400, refused"), ("refused", "", "HTTP 400, refused")),
        (NotSentError("no connection"), ("unsent", "", "no connection")),
        (SessionClosedError("the session is closed"), ("unsent", "", "not begun")),
    ],
)
def test_refused_or_not_sent(error: PayasyncError, expected: tuple[str, str, str]) -> None:
    """What the service refused is one thing, what never left another."""
    found = of_result(ROW, Refused(REFUND, error), kept(state="rejected"), PROFILE)

    assert expected == (found.state, found.code, found.message)


@pytest.mark.parametrize(
    ("intent", "expected"),
    [
        (kept(state="sending"), ("unknown", "another process is at it")),
        (kept(state="unknown", reason="no answer"), ("unknown", "no answer")),
        (kept(state="manual", reason="asked 8 times"), ("manual", "asked 8 times")),
        (None, ("unknown", "another process is at it")),
    ],
)
def test_doubt_is_the_journals(intent: Any, expected: tuple[str, str]) -> None:
    """What may have been done is unknown, or a person's; it is never called refused."""
    result = bulk.Unknown(REFUND, OutcomeUnknownError("it may be", reason="another process is at it"))
    found = of_result(ROW, result, intent, PROFILE)

    assert expected == (found.state, found.message)


def test_failed_after_doubt_was_refused() -> None:
    """A refund that failed in the end is not done."""
    assert "refused" == of_kept(ROW, kept(state="rejected", outcome=Outcome(status=200))).state


def test_only_what_no_answer_refused_never_arrived() -> None:
    """It is sent again without a person only where the service never had it."""
    assert never_arrived(kept(state="rejected"))
    assert not never_arrived(kept(state="rejected", outcome=Outcome(status=200)))
    assert not never_arrived(kept(state="unknown"))
    assert not never_arrived(None)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 0),
        (("succeeded", "accepted"), 0),
        (("succeeded", "refused"), 1),
        (("unsent",), 1),
        (("left out", "succeeded"), 1),
        (("refused", "unknown"), 3),
        (("manual", "succeeded"), 3),
    ],
)
def test_exit_code(words: tuple[Word, ...], code: int) -> None:
    """The worst counts: what may have been done goes before what was not."""
    assert code == exit_code(Verdict(row=ROW, state=word) for word in words)


def test_left_out_says_why() -> None:
    """A bad row has its reason in the result."""
    row = Row(line=2, cells={}, wrong="3 cells")

    assert Verdict(row=row, state="left out", message="3 cells") == left_out(row)
