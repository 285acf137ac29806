"""What a question tells of a write that nobody knows the end of."""

from datetime import datetime, timedelta
from itertools import product
from typing import Any, Final

import pytest
from attrs import evolve

from payasync.errors import (
    AuthenticationError,
    ConfigurationError,
    InvalidArgumentError,
    InvalidSignatureError,
    NoAnswerError,
    NotConfiguredError,
    NotSentError,
    PayasyncError,
    RateLimitedError,
    ServiceError,
    SessionClosedError,
    StorageError,
)
from payasync.journal import Outcome, Patience, Report, Result
from payasync.journal.intents import END_STATES, TRANSITIONS, Intent, State
from payasync.journal.reconcile_policy import (
    LONGEST_RETRY_AFTER,
    Decision,
    End,
    Finding,
    QueryResult,
    classify_error,
    classify_response,
    decide,
    is_due,
    is_shown,
    names_of,
    query_for,
)
from payasync.profile.profile import Profile
from payasync.profile.schema import AnswerShape, States
from payasync.resources.orders import QueryOrder
from payasync.resources.payments import QueryPayment
from payasync.resources.refunds import QueryRefund
from payasync.wire.call import Objection
from payasync.wire.response import OrderResponse, RefundResponse, Response
from tests.building import ENVELOPE, STATES, call_for, reply
from tests.building import PROFILE as REQUESTS
from tests.journal.building import START, kept, unknown

PROFILE: Final = evolve(REQUESTS, answer=ENVELOPE, states=STATES)


NOT_DONE: Final = QueryResult(finding=Finding.NOT_DONE, reason="the service does not know it")


UNASKABLE: Final = QueryResult(finding=Finding.UNASKABLE, reason="nothing names it")


PAID: Final = {
    "operation": "payments.create",
    "reference": None,
    "outcome": Outcome(status=200, body=b'{"result":{"pay":{"no":7}}}'),
}
"""A payment, with the service's own number of it."""


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, QueryRefund(identifier="R1")),
        ({"operation": "orders.place", "reference": "T1"}, QueryOrder(out_trade_no="T1")),
        ({"operation": "orders.close", "reference": "T1"}, QueryOrder(out_trade_no="T1")),
        ({"operation": "orders.place", "reference": None}, None),
        ({"operation": "subscriptions.cancel", "reference": "S1"}, None),
        ({"operation": "payments.create", "reference": None}, None),
        ({"operation": "payments.create", "outcome": Outcome(status=200, body=b"{}")}, None),
        (PAID, QueryPayment(identifier="7")),
    ],
)
def test_question(facts: dict[str, Any], expected: object) -> None:
    """An order is asked about by endpoint 3, a refund by 7, and a payment by 6, with the number of its answer."""
    assert expected == query_for(unknown(**facts), PROFILE)


def test_payment_without_a_known_number_is_no_question() -> None:
    """Where the profile does not say where a payment's number stands, nothing names it."""
    payment = unknown(operation="payments.create", outcome=Outcome(status=200, body=b'{"pay":{"no":7}}'))

    assert query_for(payment, Profile()) is None


def answered(
    kind: type[Response], operation: str, state: object, profile: Profile = PROFILE, **facts: object
) -> Response:
    """Return an answer that tells a state, and more."""
    return kind.of(call_for(operation, profile), reply({"result": {"state": state, **facts}}))


ASKED_FOR: Final = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 450, "refund_amt": 200}


WIRE: Final = {"outTradeNo": "T1", "outRefundNo": "R1", "totalAmt": 450, "refundAmt": 200, "merchantId": "M1"}


@pytest.mark.parametrize(("about_another", "expected"), [(True, None), (False, "manual")])
def test_response_about_another_refund(*, about_another: bool, expected: State | None) -> None:
    """The next one may be its own; where the number stands for another amount, asking again changes nothing."""
    words = "outRefundNo is R9 in the response, and R1 in the request"
    objection = Objection(words, about_another=about_another)
    error = NoAnswerError("HTTP 200; repeating it is harmless", reason=words, objection=objection, retry_after=7.0)
    evidence = QueryResult(finding=Finding.UNMATCHED, state=expected, reason=words, retry_after=7.0)

    assert evidence == classify_error(error)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"request": {**ASKED_FOR, "refund_desc": "cold"}, "named": {"merchantId": "M1"}}, WIRE),
        ({"request": {}}, {"outRefundNo": "R1"}),
        ({"operation": "orders.close", "reference": "T1"}, {"outTradeNo": "T1"}),
        ({"operation": "orders.place", "reference": None, "request": {"total_amt": 9}}, {"totalAmt": 9}),
        (
            {"operation": "payments.create", "reference": None, "request": {"amount": 9, "currency": "USD"}},
            {"amount": 9, "currency": "USD"},
        ),
        (PAID, {"payment_id": 7}),
        ({"operation": "subscriptions.cancel", "reference": "S1", "request": {"subscription_id": "S1"}}, {}),
        ({"operation": "POST /payment/split", "reference": None}, {}),
    ],
)
def test_what_a_write_has_named(facts: dict[str, Any], expected: dict[str, object]) -> None:
    """Its numbers and amounts as far as they are kept, and the merchant if it was sent."""
    assert expected == names_of(unknown(**facts), PROFILE)


@pytest.mark.parametrize("state", ["unknown", "accepted"])
@pytest.mark.parametrize("document", [{"result": None}, {"result": []}, {"result": {}}, {"code": "OK"}])
def test_answer_that_holds_nothing(state: State, document: object) -> None:
    """An answer without a payload ends nothing: so some services answer about what they do not know."""
    intent = unknown(state=state, request=ASKED_FOR)
    evidence = classify_response(
        intent, RefundResponse.of(call_for("refunds.status", PROFILE), reply(document)), PROFILE
    )

    assert (Finding.UNCLEAR, "the service tells nothing of the refund") == (evidence.finding, evidence.reason)


def test_answer_about_itself() -> None:
    """What the service repeats of the refund is what was asked for."""
    intent = unknown(request=ASKED_FOR)
    found = classify_response(intent, answered(RefundResponse, "refunds.status", "DONE", refundAmt=200), PROFILE)

    assert "succeeded" == found.state


MEANINGLESS: Final = ", and the profile does not say what its state means"


@pytest.mark.parametrize(
    ("operation", "value", "expected"),
    [
        (
            "refunds.create",
            "DONE",
            QueryResult(finding=Finding.KNOWN, state="succeeded", reason="the refund's state is succeeded"),
        ),
        (
            "refunds.create",
            "NEW WORD",
            QueryResult(finding=Finding.UNCLEAR, state="accepted", reason=f"the service knows the refund{MEANINGLESS}"),
        ),
        (
            "orders.place",
            "SUCCESS",
            QueryResult(finding=Finding.KNOWN, state="succeeded", reason="the order's state is paid"),
        ),
        ("orders.place", 3, QueryResult(finding=Finding.KNOWN, state="rejected", reason="the order's state is closed")),
        (
            "orders.close",
            3,
            QueryResult(finding=Finding.KNOWN, state="succeeded", reason="the order's state is closed"),
        ),
        ("orders.close", 2, QueryResult(finding=Finding.KNOWN, state="rejected", reason="the order's state is paid")),
        ("orders.close", "WAIT", QueryResult(finding=Finding.NOT_DONE, reason="the order's state is pending")),
        (
            "orders.close",
            "NEW WORD",
            QueryResult(finding=Finding.UNCLEAR, reason="the profile does not say what the order's state means"),
        ),
    ],
)
def test_what_a_state_says_of_a_write(operation: str, value: object, expected: QueryResult) -> None:
    """That a thing is there says that it was made; that an order is still pending, that it was not closed."""
    profile = evolve(PROFILE, states=evolve(STATES, order={**STATES.order, "pending": ("WAIT",)}))
    kind = RefundResponse if operation == "refunds.create" else OrderResponse

    assert expected == classify_response(
        unknown(operation=operation), answered(kind, operation, value, profile), profile
    )


def test_what_has_no_states_is_done_when_it_is_there() -> None:
    """Where the profile knows no states, no later answer could say more."""
    profile = evolve(PROFILE, answer=AnswerShape(), states=States())
    answer = answered(RefundResponse, "refunds.create", "DONE", profile)

    assert "succeeded" == classify_response(unknown(), answer, profile).state


@pytest.mark.parametrize(
    ("error", "finding"),
    [
        (ServiceError("HTTP 404, not found", absent=True), Finding.NOT_DONE),
        (ServiceError("HTTP 404, not found", absent=False), Finding.UNCLEAR),
        (ServiceError("HTTP 302"), Finding.UNCLEAR),
        (AuthenticationError("HTTP 401"), Finding.SILENT),
        (RateLimitedError("HTTP 429"), Finding.SILENT),
        (NoAnswerError("HTTP 503"), Finding.SILENT),
        (NotSentError("connection refused"), Finding.SILENT),
        (InvalidSignatureError("forged"), Finding.SILENT),
        (InvalidArgumentError("extra must be given"), Finding.UNASKABLE),
        (NotConfiguredError("refund_status is open", field="refund_status"), Finding.UNASKABLE),
        (NotConfiguredError("payment_status is open", field="payment_status"), Finding.UNASKABLE),
    ],
)
def test_what_an_error_says(error: PayasyncError, finding: Finding) -> None:
    """Only what the service says of this write counts: what is of the keys, the way or the hour is asked again."""
    assert finding is classify_error(error).finding


@pytest.mark.parametrize(
    "error",
    [
        ConfigurationError("signing_key is not set"),
        NotConfiguredError("signature is open", field="signature.algorithm"),
        SessionClosedError("closed"),
        StorageError("full"),
    ],
)
def test_what_is_wrong_here_says_nothing_of_any_write(error: PayasyncError) -> None:
    """It ends the run, and no write is given to a person for it."""
    with pytest.raises(type(error)) as caught:
        classify_error(error)

    assert error is caught.value


def test_words_of_an_error() -> None:
    """A person reads what the service did, without what a program may do next."""
    error = NoAnswerError("HTTP 503, the service failed; repeating it is harmless", retry_after=7.0)
    expected = QueryResult(finding=Finding.SILENT, reason="HTTP 503, the service failed", retry_after=7.0)

    assert expected == classify_error(error)


QUARANTINE: Final = 60.0


PATIENCE: Final = Patience(first=2.0, longest=100.0, questions=4, give_up=1000.0, sends=3)


SILENT: Final = QueryResult(finding=Finding.SILENT, reason="connection refused", retry_after=None)


UNCLEAR: Final = QueryResult(finding=Finding.UNCLEAR, reason="HTTP 302")


UNMATCHED: Final = QueryResult(finding=Finding.UNMATCHED, reason="it is about R9")


UNMATCHED_FOR_GOOD: Final = evolve(UNMATCHED, state="manual")
"""The number stands for another amount."""


def decided(
    intent: Intent, evidence: QueryResult, after: float = 0.0, quarantine: float | None = QUARANTINE
) -> Decision:
    """Return what follows from a question so many seconds after the start, with all of the jitter."""
    return decide(
        intent,
        evidence,
        asked_at=START + timedelta(seconds=after),
        quarantine=quarantine,
        patience=PATIENCE,
        jitter=lambda bound: bound,
    )


def said(state: State) -> QueryResult:
    """Return that the service told a state."""
    return QueryResult(finding=Finding.KNOWN, state=state, reason="the refund is so")


@pytest.mark.parametrize("state", ["accepted", "succeeded", "rejected"])
def test_what_is_told_is_kept(state: State) -> None:
    """An accepted one is asked about again; an end is one."""
    pause = 2.0 if state == "accepted" else None

    assert Decision(state=state, reason="the refund is so", pause=pause) == decided(unknown(), said(state))


@pytest.mark.parametrize("evidence", [said("accepted"), SILENT, UNCLEAR, NOT_DONE, UNASKABLE])
def test_accepted_waits_whatever_is_said(evidence: QueryResult) -> None:
    """What the service took is neither sent again nor given up: it waits for its end, for as long as that takes."""
    decision = decided(unknown(state="accepted", asked=50, queued=True), evidence, after=10**6)

    assert ("accepted", 100.0) == (decision.state, decision.pause)
    assert decision.reason.endswith(evidence.reason)


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [(NOT_DONE, 4), (SILENT, 3), (UNMATCHED, 3), (UNCLEAR, 4), (said("accepted"), 0), (UNASKABLE, 4)],
)
def test_what_is_of_no_use_of_what_was_accepted_is_counted(evidence: QueryResult, expected: int) -> None:
    """As long as nothing is told of it: silence neither adds to that nor ends it."""
    assert expected == decided(unknown(state="accepted", denied=3), evidence).denied


DAY: Final = timedelta(seconds=PATIENCE.give_up)


@pytest.mark.parametrize("since", [None, START - timedelta(seconds=7)])
@pytest.mark.parametrize("evidence", [SILENT, UNMATCHED, said("accepted"), UNCLEAR, NOT_DONE, UNASKABLE])
def test_silence_about_what_was_accepted_counts_from_its_first_question(
    evidence: QueryResult, since: datetime | None
) -> None:
    """Any answer about it ends that, of use or not: those are counted. One about something else does not."""
    expected = (since or START) if evidence in {SILENT, UNMATCHED} else None

    assert expected == decided(unknown(state="accepted", silent_since=since), evidence).silent_since
    assert decided(unknown(silent_since=since), evidence).silent_since is None


@pytest.mark.parametrize(
    ("seconds", "reason"), [(0.001, SILENT.reason), (0.0, f"no usable response since 2026-12-31: {SILENT.reason}")]
)
def test_silence_of_a_day_is_told(seconds: float, reason: str) -> None:
    """A person reads since when nobody has answered, and what came in place of an answer."""
    since = START - DAY + timedelta(seconds=seconds)

    assert reason == decided(unknown(state="accepted", silent_since=since), SILENT).reason


@pytest.mark.parametrize("evidence", [UNMATCHED, UNMATCHED_FOR_GOOD])
@pytest.mark.parametrize(
    ("seconds", "expected", "reason"),
    [
        (0.001, "accepted", UNMATCHED.reason),
        (0.0, "manual", f"no usable response since 2026-12-31: {UNMATCHED.reason}"),
    ],
)
def test_responses_about_something_else_for_a_day(
    evidence: QueryResult, seconds: float, expected: State, reason: str
) -> None:
    """What was accepted is asked about for so long, also where the number seems to stand for another amount."""
    decision = decided(unknown(state="accepted", silent_since=START - DAY + timedelta(seconds=seconds)), evidence)

    assert (expected, reason) == (decision.state, decision.reason)


@pytest.mark.parametrize(
    ("evidence", "asked", "expected"),
    [
        (UNMATCHED, 3, "unknown"),
        (UNMATCHED, 4, "manual"),
        (UNMATCHED_FOR_GOOD, 1, "manual"),
    ],
)
@pytest.mark.parametrize("facts", [{}, {"queued": True}, {"attempts": 2}, {"answered": True}])
def test_unknown_that_is_answered_about_something_else(
    facts: dict[str, Any], evidence: QueryResult, asked: int, expected: State
) -> None:
    """It is asked about some times more, however long the quarantine is over, and is then for a person."""
    assert expected == decided(unknown(asked=asked, **facts), evidence, after=10**6).state


@pytest.mark.parametrize("facts", [{}, {"queued": True}, {"attempts": 2}])
def test_absent_is_not_believed_after_used_before(facts: dict[str, Any]) -> None:
    """It is neither sent nor rejected by that, however long the quarantine is over."""
    waiting = decided(unknown(answered=True, asked=3, **facts), NOT_DONE, after=10**6)
    given_up = decided(unknown(answered=True, asked=4, **facts), NOT_DONE, after=10**6)

    assert ["unknown", "manual"] == [waiting.state, given_up.state]
    assert "the service does not know it; and it said before that the number was used" == waiting.reason


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, False),
        ({"denied": 3}, False),
        ({"denied": 4}, True),
        ({"asked": 500, "updated": START - 9 * DAY}, False),
        ({"silent_since": START - DAY + timedelta(seconds=1)}, False),
        ({"silent_since": START - DAY}, True),
        ({"silent_since": START - DAY, "denied": 4}, True),
    ],
)
def test_accepted_that_a_person_is_shown(facts: dict[str, Any], *, expected: bool) -> None:
    """Some answers that say nothing of its end, one after the other, or a day without any; not how long it takes."""
    assert expected is is_shown(unknown(state="accepted", **facts), START, PATIENCE)


@pytest.mark.parametrize(
    ("after", "pause"),
    [(0.0, 2.0), (57.9, 2.0), (58.5, 1.5), (59.999, 0.001)],
)
def test_absent_is_asked_again_until_it_is_final(after: float, pause: float) -> None:
    """The last question comes exactly when the quarantine is over."""
    decision = decided(unknown(queued=True), NOT_DONE, after)

    assert "unknown" == decision.state
    assert pause == pytest.approx(decision.pause)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, "rejected"),
        ({"queued": True}, "sending"),
        ({"queued": True, "attempts": 2}, "sending"),
        ({"queued": True, "attempts": 3}, "manual"),
        ({"attempts": 3}, "rejected"),
    ],
)
def test_absent_for_good(facts: dict[str, Any], expected: State) -> None:
    """A direct call never arrived, and its caller may repeat it; a queued one is sent again, a few times."""
    assert expected == decided(unknown(**facts), NOT_DONE, QUARANTINE).state


def test_quarantine_counts_from_the_last_moment_of_doubt() -> None:
    """And not from when it was first sent, or kept."""
    later = START + timedelta(seconds=30)

    assert "unknown" == decided(unknown(sent_at=later), NOT_DONE, QUARANTINE + 29).state
    assert "rejected" == decided(unknown(sent_at=later), NOT_DONE, QUARANTINE + 30).state
    assert "unknown" == decided(unknown(sent_at=None, updated=later), NOT_DONE, QUARANTINE).state


def test_without_a_quarantine_absent_is_never_final() -> None:
    """It is asked about some times, however long ago it was, and then a person says."""
    assert "unknown" == decided(unknown(asked=3), NOT_DONE, 10**6, None).state
    assert "manual" == decided(unknown(asked=4), NOT_DONE, 0.0, None).state


@pytest.mark.parametrize(
    ("facts", "after", "quarantine", "expected"),
    [
        ({}, 59.0, QUARANTINE, "unknown"),
        ({}, 60.0, QUARANTINE, "rejected"),
        ({"queued": True}, 60.0, QUARANTINE, "rejected"),
        ({"asked": 3}, 10**6, None, "unknown"),
        ({"asked": 4}, 0.0, None, "manual"),
        ({"state": "accepted"}, 0.0, QUARANTINE, "rejected"),
        ({"operation": "orders.close"}, 0.0, QUARANTINE, "rejected"),
        ({"attempts": 1}, 0.0, QUARANTINE, "rejected"),
        ({"answered": True}, 0.0, None, "rejected"),
    ],
)
def test_refusal_may_be_of_an_earlier_attempt(
    facts: dict[str, Any], after: float, quarantine: float | None, expected: State
) -> None:
    """What failed and was sent again may still arrive: its state is that of the first until the quarantine is over."""
    assert expected == decided(unknown(**{"attempts": 2, **facts}), said("rejected"), after, quarantine).state


def test_refusal_of_perhaps_an_earlier_attempt_says_so() -> None:
    """Who looks at it meanwhile is not told that it failed."""
    early = decided(unknown(attempts=2), said("rejected"))
    in_vain = decided(unknown(attempts=2, asked=4), said("rejected"), quarantine=None)

    assert "the refund is so, perhaps of an earlier attempt, and it may still arrive" == early.reason
    assert in_vain.reason.startswith("asked 4 times: the refund is so; the profile has no recovery.quarantine")


@pytest.mark.parametrize(
    ("evidence", "asked", "after", "expected"),
    [
        (UNASKABLE, 1, 0.0, "manual"),
        (UNCLEAR, 3, 10**6, "unknown"),
        (UNCLEAR, 4, 0.0, "manual"),
        (SILENT, 3, 10**6, "unknown"),
        (SILENT, 4, 999.0, "unknown"),
        (SILENT, 4, 1000.0, "manual"),
    ],
)
def test_who_is_asked_in_vain_gives_up(evidence: QueryResult, asked: int, after: float, expected: State) -> None:
    """Refusals count by their number; silence by its time as well, as it tells nothing of the write."""
    decision = decided(unknown(asked=asked), evidence, after)

    assert expected == decision.state
    assert evidence.reason in decision.reason


@pytest.mark.parametrize(("asked", "pause"), [(1, 2.0), (2, 4.0), (3, 8.0), (6, 64.0), (7, 100.0), (500, 100.0)])
def test_pauses_double(asked: int, pause: float) -> None:
    """Up to the longest."""
    assert pause == decided(unknown(state="accepted", asked=asked), SILENT).pause


def test_half_of_a_pause_is_chance() -> None:
    """So that what was lost together is not asked about together again and again."""
    bounds: list[float] = []

    def none(bound: float) -> float:
        bounds.append(bound)
        return 0.0

    decision = decide(unknown(asked=3), SILENT, asked_at=START, quarantine=None, patience=PATIENCE, jitter=none)

    assert ([4.0], 4.0) == (bounds, decision.pause)


@pytest.mark.parametrize(("asked_for", "pause"), [(1.0, 2.0), (500.0, 500.0), (1e300, LONGEST_RETRY_AFTER)])
def test_retry_after_is_a_floor(asked_for: float, pause: float) -> None:
    """The service is not asked earlier than it wants; who wants it never again is asked after a day."""
    assert pause == decided(unknown(), evolve(SILENT, retry_after=asked_for)).pause


EVIDENCE: Final = [*map(said, END_STATES), said("accepted"), SILENT, UNCLEAR, NOT_DONE, UNMATCHED, UNMATCHED_FOR_GOOD]


@pytest.mark.parametrize("evidence", EVIDENCE)
@pytest.mark.parametrize("state", ["unknown", "accepted"])
def test_only_transitions_of_the_table(evidence: QueryResult, state: State) -> None:
    """Whatever is said, nothing follows that the design does not have; and what waits keeps its state."""
    for queued, asked, after in product((False, True), (1, 9), (0.0, 10.0**6)):
        decision = decided(unknown(state=state, queued=queued, asked=asked), evidence, after)

        if decision.state == state:
            assert (decision.pause or 0) > 0
        else:
            assert decision.state in TRANSITIONS[state]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("first", -1.0),
        ("first", True),
        ("longest", float("inf")),
        ("give_up", "a day"),
        ("questions", 0),
        ("questions", True),
        ("sends", 1.5),
    ],
)
def test_wrong_patience_is_named(name: str, value: object) -> None:
    """A value that makes no sense is refused at once."""
    with pytest.raises(ConfigurationError, match=rf"^Patience\.{name} must be") as caught:
        Patience(**{name: value})  # type: ignore[arg-type] # that is the test

    assert f"Patience.{name}" == caught.value.field


LATER = START + timedelta(seconds=1)


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
