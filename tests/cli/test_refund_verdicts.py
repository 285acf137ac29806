from typing import Any, Final

import pytest

from payasync import (
    CreateRefund,
    Done,
    DuplicateError,
    IntentConflictError,
    NotSentError,
    OutcomeUnknownError,
    PayasyncError,
    Profile,
    RefundResponse,
    Refused,
    ServiceError,
    StorageError,
)
from payasync.cli.refund_file import (
    Row,
    Verdict,
    Word,
    exit_code,
    left_out,
    never_arrived,
    not_begun,
    of_kept,
    of_result,
)
from payasync.journal import Outcome
from payasync.journal.intents import Intent, State
from payasync.profile.sandbox_profile import PROFILE
from payasync.session import Unknown
from payasync.wire.call import Reply
from tests.journal.building import START, kept

REFUND = CreateRefund(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200)
ROW = Row(line=2, cells={"out_refund_no": "R1"}, request=REFUND)


def done(profile: Profile = PROFILE, body: bytes = b'{"code":"SBX_OK","message":"done"}') -> Done[RefundResponse]:
    """Return what a refund that was taken comes to."""
    reply = Reply(status=200, headers={}, body=body)
    return Done(REFUND, RefundResponse(reply, profile.answer, profile.states))


@pytest.mark.parametrize(("state", "word"), [("accepted", "accepted"), ("succeeded", "succeeded")])
def test_journal_says_what_an_answer_means(state: State, word: Word) -> None:
    """The state is the journal's; the code and the words are the service's."""
    expected = Verdict(row=ROW, state=word, code="SBX_OK", message="done")

    assert expected == of_result(ROW, done(), kept(state=state), PROFILE)


DECLINED: Final = b'{"code":"SBX_OK","message":"done","status":"SBX_REFUND_FAILED"}'


@pytest.mark.parametrize(
    "intent",
    [
        kept(state="rejected", outcome=Outcome(status=200), reason="the refund's state is failed"),
        None,
    ],
)
def test_what_was_taken_and_declined_says_its_state(intent: Intent | None) -> None:
    """It was refused, and the code and the words of the answer that tells it are those of a success: it has none."""
    expected = Verdict(row=ROW, state="refused", message="the refund's state is failed")

    assert expected == of_result(ROW, done(body=DECLINED), intent, PROFILE)


def test_answer_without_a_journal_that_can_be_read_was_taken() -> None:
    """What was answered is not in doubt, and where the profile says nothing of codes there are none."""
    assert Verdict(row=ROW, state="accepted") == of_result(ROW, done(Profile()), None, Profile())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ServiceError("HTTP 400", code=7, message="no such order"), ("refused", "7", "no such order")),
        (ServiceError("HTTP 400, refused"), ("refused", "", "HTTP 400, refused")),
        (NotSentError("no connection"), ("unsent", "", "no connection")),
    ],
)
def test_refused_or_not_sent(error: PayasyncError, expected: tuple[str, str, str]) -> None:
    """What the service refused is one thing, what never left another."""
    found = of_result(ROW, Refused(REFUND, error), kept(state="rejected"), PROFILE)

    assert expected == (found.state, found.code, found.message)


JOURNAL: Final[list[tuple[Intent | None, Word]]] = [
    (None, "unsent"),
    (kept(state="new"), "unsent"),
    (kept(state="rejected"), "unsent"),
    (kept(state="rejected", sent_at=START, reason="never arrived"), "refused"),
    (kept(state="sending"), "unknown"),
    (kept(state="unknown"), "unknown"),
    (kept(state="manual"), "manual"),
    (kept(state="accepted"), "accepted"),
    (kept(state="succeeded"), "succeeded"),
]


@pytest.mark.parametrize(("intent", "word"), JOURNAL)
def test_what_this_run_did_not_send_an_earlier_one_may_have(intent: Intent | None, word: Word) -> None:
    """Only what the journal does not have, or has as not done, is unsent: who pays it otherwise pays it once."""
    cut = of_result(ROW, Refused(REFUND, StorageError("the journal is closed")), intent, PROFILE)

    assert (word, word) == (not_begun(ROW, intent).state, cut.state)


def test_journal_that_cannot_be_read_leaves_doubt() -> None:
    """Nobody knows then what an earlier run has sent, and nobody says that it was nothing."""
    error = NotSentError("no connection")
    found = (
        of_result(ROW, Refused(REFUND, error), None, PROFILE, unread="it is locked"),
        not_begun(ROW, None, unread="it is locked"),
    )

    assert ["unknown", "unknown"] == [each.state for each in found]
    assert "no connection; an earlier run may have sent it: it is locked" == found[0].message
    assert "not begun; an earlier run may have sent it: it is locked" == found[1].message


@pytest.mark.parametrize(
    ("intent", "expected"),
    [
        (None, ("unknown", "E9", "used before")),
        (kept(state="unknown", reason="HTTP 409"), ("unknown", "E9", "used before")),
        (kept(state="manual", reason="refundAmt is 1"), ("manual", "E9", "used before")),
        (kept(state="accepted"), ("accepted", "", "")),
    ],
)
def test_number_that_was_used_before_is_in_doubt(intent: Intent | None, expected: tuple[Word, str, str]) -> None:
    """The service may have had this very refund under it: the row shows its words until the journal knows more."""
    error = DuplicateError("HTTP 409", code="E9", message="used before")
    found = of_result(ROW, Unknown(REFUND, error), intent, PROFILE)

    assert expected == (found.state, found.code, found.message)


def test_refusal_of_what_was_in_doubt_is_the_journals() -> None:
    """What the journal gives to a person in spite of a refusal is a person's here, too."""
    found = of_result(ROW, Refused(REFUND, ServiceError("HTTP 400")), kept(state="manual"), PROFILE)

    assert "manual" == found.state


@pytest.mark.parametrize(
    ("state", "word", "already"),
    [
        ("succeeded", "refused", "was already refunded"),
        ("accepted", "refused", "was already refunded"),
        ("rejected", "refused", "was used before"),
        ("sending", "unknown", "may have been refunded already"),
        ("manual", "manual", "may have been refunded already"),
    ],
)
def test_number_of_another_refund(state: State, word: Word, already: str) -> None:
    """Who reads of a number that stands for another refund is not told to refund a second time."""
    owed = "Only if both are owed, give this one a number of its own."
    found = conflicting(state, refund_amt="20")

    assert (word, f"R1 {already}: 10 ({state}); this row says 20. {owed}") == (found.state, found.message)
    assert "R1" not in found.kind
    assert owed in found.kind


def conflicting(state: State, **changes: str) -> Verdict:
    """Return what becomes of a row whose number stands for a refund of 10 of T1."""
    before = kept(state=state, request={"out_trade_no": "T1", "total_amt": 450, "refund_amt": 10})
    cells = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": "450", "refund_amt": "10", **changes}
    row = Row(line=2, cells=cells, request=REFUND)
    return of_result(row, Refused(REFUND, IntentConflictError("another request")), before, PROFILE)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"out_trade_no": "T2"}, "10, order T1 (succeeded); this row says 10, order T2."),
        ({"total_amt": "500"}, "10, 450 in all (succeeded); this row says 10, 500 in all."),
    ],
)
def test_what_makes_it_another_refund_is_told(changes: dict[str, str], words: str) -> None:
    """Two refunds of the same amount may be of two orders."""
    assert words in conflicting("succeeded", **changes).message


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
    result = Unknown(REFUND, OutcomeUnknownError("it may be", reason="another process is at it"))
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
