from datetime import timedelta
from typing import Any, Final

import pytest
from attrs import evolve
from multidict import CIMultiDict

from payasync.errors import IntentConflictError, OutcomeUnknownError
from payasync.journal.intents import BeginResult, Outcome, Step
from payasync.journal.redaction import outcome_from_json, outcome_to_json
from payasync.journal.replay import recorded_reply, refusal_error
from payasync.wire.call import Reply
from tests.journal.building import START, kept

BETWEEN = "(sent between 2027-01-01 00:00:00 and 2027-01-01 00:00:45 UTC)"

OUTCOME = Outcome(status=201, body='{"é":1}'.encode(), headers={"X-Request-Id": "7"}, verified=True, recovered=True)


@pytest.mark.parametrize("outcome", [OUTCOME, Outcome(status=204), Outcome(status=200, body=b"\xff", verified=False)])
def test_outcome_comes_back_as_it_was_written(outcome: Outcome) -> None:
    """An outcome read from its JSON equals the outcome written. Bytes that are not UTF-8 come back escaped."""
    body = outcome.body.decode(errors="backslashreplace").encode()

    assert evolve(outcome, body=body) == outcome_from_json(outcome_to_json(outcome))


def test_response_is_the_services_own() -> None:
    """A recorded reply has the stored status, headers and body, and `attempts` is 0."""
    expected = Reply(
        status=201,
        headers=CIMultiDict({"X-Request-Id": "7"}),
        body='{"é":1}'.encode(),
        attempts=0,
        recovered=True,
        verified=True,
    )
    found = recorded_reply(kept(state="succeeded", outcome=OUTCOME))

    assert expected == found
    assert "7" == found.headers["x-request-id"]


def test_decision_of_a_person_has_no_body() -> None:
    """If a person has resolved the write, its recorded reply is a 204 without a body."""
    found = recorded_reply(kept(state="succeeded"))

    assert (204, b"", 0, True, None) == (found.status, found.body, found.attempts, found.recovered, found.verified)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"intent": "a"}, "intent 'a' and number R1 belongs to another request: intent 7 in the journal"),
        ({"intent": "a", "number": None}, "intent 'a' belongs to another request"),
        ({}, "number R1 belongs to another request"),
    ],
)
def test_conflict_names_the_other(facts: dict[str, str | None], words: str) -> None:
    """`IntentConflictError` names the intent that has the key, and says which key it is."""
    error = refusal_error(BeginResult(Step.CONFLICT, kept(id=7, **facts)))

    assert isinstance(error, IntentConflictError)
    assert words in str(error)
    assert ("refunds.create", "R1", 7, False) == (error.operation, error.reference, error.intent_id, error.sent)


NOTHING: Final = "an earlier attempt has no recognised response"
TAKEN: Final = "another process has leased it, or ended it"
RESOLVE: Final = "and record it: payasync journal resolve 7"
SENT: Final[dict[str, Any]] = {"sent_at": START + timedelta(seconds=45)}
NAMELESS: Final[dict[str, Any]] = {"number": None}
UNKNOWN: Final[list[tuple[Step, dict[str, Any], str, str]]] = [
    (Step.WAIT, {"state": "sending"}, "it is being sent, or its sender was interrupted", ""),
    (Step.WAIT, {"state": "succeeded"}, TAKEN, ""),
    (Step.WAIT, {"reason": "no answer"}, TAKEN, ""),
    (Step.ASK, {"reason": "no answer"}, "no answer", ""),
    (Step.ASK, {"state": "manual"}, NOTHING, f"find out, {RESOLVE}"),
    (Step.ASK, {"state": "manual", **SENT}, NOTHING, f"find out {BETWEEN}, {RESOLVE}"),
    (Step.ASK, NAMELESS, NOTHING, f"look for it at the service, {RESOLVE}"),
    (Step.ASK, NAMELESS | SENT, NOTHING, f"look for it at the service {BETWEEN}, {RESOLVE}"),
]


@pytest.mark.parametrize(("step", "facts", "reason", "advice"), UNKNOWN)
def test_unknown_says_what_to_do(step: Step, facts: dict[str, Any], reason: str, advice: str) -> None:
    """If a write may have been done, `OutcomeUnknownError` has its number, its intent, the reason, and the next step.

    If no number names the write, or it is *manual*, a person must look and record the result.
    """
    intent = kept(id=7, **{"state": "unknown", **facts})
    error = refusal_error(BeginResult(step, intent))
    words = f"intent 7 in the journal is {intent.state}: {reason}; it may have been done: "
    next_step = advice or "ask for its state, do not repeat it"

    assert isinstance(error, OutcomeUnknownError)
    assert (reason, "refunds.create", "R1") == (error.reason, error.operation, error.reference)
    assert (7, None, 0) == (error.intent_id, error.sent, error.attempts)
    assert str(error).endswith(f"{words}{next_step}")


ARGUMENTS = {"out_trade_no": "T1", "total_amt": 450, "refund_amt": 200}


def test_what_was_sent_goes_with_the_error() -> None:
    """The error says what was sent, so that `pay.reconcile(error)` can compare responses, and "used before"."""
    cases: list[tuple[dict[str, object] | None, bool]] = [({"merchantId": "M9", "currency": "CAD"}, True), ({}, False)]
    for named, answered in [*cases, (None, False)]:
        intent = kept(state="unknown", request=ARGUMENTS, named=named, answered=answered)
        error = refusal_error(BeginResult(Step.ASK, intent))
        asked = {"outTradeNo": "T1", "outRefundNo": "R1", "totalAmt": 450, "refundAmt": 200, **(named or {})}

        assert isinstance(error, OutcomeUnknownError)
        assert (asked, answered) == (error.asked, error.used_before)
