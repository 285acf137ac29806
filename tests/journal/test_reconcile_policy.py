"""What the reconciler decides after a query of an open write."""

from datetime import timedelta
from itertools import product
from typing import Any, Final, cast

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
from payasync.evidence.claims import Claim
from payasync.journal import Outcome, Patience
from payasync.journal.intents import END_STATES, TRANSITIONS, Intent, State
from payasync.journal.reconcile_policy import (
    Decision,
    QueryResult,
    classify_error,
    classify_response,
    decide,
    is_due,
    names_of,
    query_for,
    resolve_objection,
)
from payasync.profile.profile import Profile
from payasync.profile.schema import AnswerShape, States
from payasync.resources.orders import QueryOrder
from payasync.resources.payments import QueryPayment
from payasync.resources.refunds import QueryRefund
from payasync.wire.response import RefundResponse, Response
from tests.building import ENVELOPE, STATES, call_for, reply
from tests.building import PROFILE as REQUESTS
from tests.journal.building import START, kept, unknown

PROFILE: Final = evolve(REQUESTS, answer=ENVELOPE, states=STATES)


NOT_DONE: Final = QueryResult(claim=Claim.ABSENT, reason="the service does not know it")


MINUTE: Final = timedelta(minutes=1)
UNASKABLE: Final = QueryResult(claim=None, reason="nothing names it")


PAID: Final = {
    "operation": "payments.create",
    "reference": None,
    "outcome": Outcome(status=200, body=b'{"result":{"pay":{"no":7}}}'),
}
"""A payment, with the service's own number of it."""


QUESTIONS: Final[list[tuple[dict[str, Any], object]]] = [
    ({}, QueryRefund(identifier="R1")),
    ({"operation": "orders.place", "reference": "T1"}, QueryOrder(out_trade_no="T1")),
    ({"operation": "orders.close", "reference": "T1"}, QueryOrder(out_trade_no="T1")),
    ({"operation": "orders.place", "reference": None}, None),
    ({"operation": "subscriptions.cancel", "reference": "S1"}, None),
    ({"operation": "payments.create", "reference": None}, None),
    ({"operation": "payments.create", "outcome": Outcome(status=200, body=b"{}")}, None),
    (PAID, QueryPayment(identifier="7")),
]


def test_query() -> None:
    """`query_for` names an order or a refund by its number, and a payment by the service's, if the profile has it."""
    for facts, expected in QUESTIONS:
        assert expected == query_for(unknown(**facts), PROFILE)
    assert query_for(unknown(**PAID), Profile()) is None


def answered(
    kind: type[Response], operation: str, state: object, profile: Profile = PROFILE, **facts: object
) -> Response:
    """Return an answer that tells a state, and more."""
    return kind.of(call_for(operation, profile), reply({"result": {"state": state, **facts}}))


ASKED_FOR: Final = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 450, "refund_amt": 200}


WIRE: Final = {"outTradeNo": "T1", "outRefundNo": "R1", "totalAmt": 450, "refundAmt": 200, "merchantId": "M1"}


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
    """`names_of` returns the numbers and amounts that the journal has stored, and the merchant if it was sent."""
    assert expected == names_of(unknown(**facts), PROFILE)


def test_response_that_holds_nothing() -> None:
    """If a response has no payload, or a state that the profile does not map, it ends nothing."""
    odd = classify_response(unknown(), answered(RefundResponse, "refunds.create", "ODD"), PROFILE)
    words = "the service knows the refund, and the profile does not say what its state means"

    assert (Claim.UNCLEAR, None, words) == (odd.claim, odd.state, odd.reason)
    documents: list[object] = [{"result": None}, {"result": []}, {"result": {}}, {"code": "OK"}]
    for state, document in product(("unknown", "accepted"), documents):
        response = RefundResponse.of(call_for("refunds.status", PROFILE), reply(document))
        found = classify_response(unknown(state=state, request=ASKED_FOR), response, PROFILE)

        assert (Claim.UNCLEAR, "the service says nothing about the refund") == (found.claim, found.reason)


def test_what_has_no_states_is_done_when_it_is_there() -> None:
    """If the profile maps no states, a response that finds the refund means that it succeeded."""
    profile = evolve(PROFILE, answer=AnswerShape(), states=States())
    answer = answered(RefundResponse, "refunds.create", "DONE", profile)

    assert "succeeded" == classify_response(unknown(), answer, profile).state


OF_AN_ERROR: Final[dict[Claim | None, list[PayasyncError]]] = {
    Claim.ABSENT: [ServiceError("HTTP 404, not found", absent=True)],
    Claim.UNCLEAR: [ServiceError("HTTP 404, not found", absent=False), ServiceError("HTTP 302")],
    Claim.BUSY: [
        *(AuthenticationError("HTTP 401"), RateLimitedError("HTTP 429"), NoAnswerError("HTTP 503")),
        *(NotSentError("connection refused"), InvalidSignatureError("forged")),
    ],
    None: [
        InvalidArgumentError("extra must be given"),
        *(NotConfiguredError(f"{field} is open", field=field) for field in ("refund_status", "payment_status")),
    ],
}
OURS: Final = [
    ConfigurationError("signing_key is not set"),
    NotConfiguredError("signature is open", field="signature.algorithm"),
    SessionClosedError("closed"),
    StorageError("full"),
]


def test_what_an_error_says() -> None:
    """Only the service's word about this write counts. If keys, network or rate limits fail, it is queried again.

    An error of the merchant's own, such as a missing key, is raised.
    """
    for claim, errors in OF_AN_ERROR.items():
        assert {claim} == {classify_error(each).claim for each in errors}
    for error in OURS:
        with pytest.raises(type(error)) as caught:
            classify_error(error)

        assert error is caught.value


def test_words_of_an_error() -> None:
    """The reason of a failed query has the error's first part, without the advice to programs."""
    error = NoAnswerError("HTTP 503, the service failed; repeating it is harmless", retry_after=7.0)
    expected = QueryResult(claim=Claim.BUSY, reason="HTTP 503, the service failed", retry_after=7.0)

    assert expected == classify_error(error)


QUARANTINE: Final = 60.0


PATIENCE: Final = Patience(first=2.0, longest=100.0, questions=4, give_up=1000.0, sends=3)


SILENT: Final = QueryResult(claim=Claim.BUSY, reason="connection refused", retry_after=None)


UNCLEAR: Final = QueryResult(claim=Claim.UNCLEAR, reason="HTTP 302")


UNMATCHED: Final = QueryResult(claim=Claim.UNCLEAR, about_another=True, reason="it is about R9")


UNMATCHED_FOR_GOOD: Final = evolve(UNMATCHED, state="manual")
"""The number stands for another amount."""


def decided(
    intent: Intent,
    evidence: QueryResult,
    after: float = 0.0,
    quarantine: float | None = QUARANTINE,
    place: Intent | None = None,
) -> Decision:
    """Return what follows from a question so many seconds after the start, with all of the jitter."""
    return decide(
        intent,
        evidence,
        asked_at=START + timedelta(seconds=after),
        quarantine=quarantine,
        patience=PATIENCE,
        jitter=lambda bound: bound,
        place=place,
    )


CLAIMS: Final = {"succeeded": Claim.DONE, "accepted": Claim.UNDER_WAY, "rejected": Claim.ENDED}
REFUSED: Final = QueryResult(claim=Claim.REFUSED, state="rejected", reason="the order's state is paid")


def said(state: State) -> QueryResult:
    """Return that the service reported a state."""
    return QueryResult(claim=CLAIMS[state], state=state, reason="the refund is so")


DAY: Final = timedelta(seconds=PATIENCE.give_up)
ALMOST_A_DAY_AGO: Final = START - DAY + timedelta(seconds=0.001)
LATER: Final = START + timedelta(seconds=30)
LONG: Final = 10.0**6
"""Seconds."""
ACCEPTED: Final[dict[str, Any]] = {"state": "accepted", "denied": 3, "silent_since": START - DAY / 2}
QUEUED: Final[dict[str, Any]] = {"queued": True}
TWICE: Final[dict[str, Any]] = {"attempts": 2}
SINCE: Final = "no usable response since 2026-12-31: "
CACHED: Final = "the service does not know it (from a cache, 19 s old) yet, and it may still arrive"
YET: Final = "the service does not know it yet, and it may still arrive"
USED: Final = "the service does not know it; and it said before that the number was used"
EARLIER: Final = "the refund is so, perhaps of an earlier send, and the last one may still arrive"
NEVER: Final = "never arrived: the service does not know it"

UNKNOWN_ONES: Final[dict[str, list[tuple[dict[str, Any], QueryResult, float, dict[str, Any]]]]] = {
    "What the service reports is recorded; an accepted write is asked about again.": [
        ({}, said("succeeded"), 0, {"state": "succeeded", "reason": "the refund is so", "pause": None}),
        ({}, said("rejected"), 0, {"state": "rejected", "pause": None}),
        ({}, said("accepted"), 0, {"state": "accepted", "pause": 2.0}),
    ],
    '"Not found" is final after the quarantine, counted from the last moment of doubt; the last query comes then.': [
        (QUEUED, NOT_DONE, 0, {"state": "unknown", "pause": 2.0, "reason": YET}),
        (QUEUED, NOT_DONE, 59, {"state": "unknown", "pause": 1.0}),
        ({"sent_at": LATER}, NOT_DONE, 89, {"state": "unknown"}),
        ({"sent_at": LATER}, NOT_DONE, 90, {"state": "rejected"}),
        ({"sent_at": None, "updated": LATER}, NOT_DONE, 60, {"state": "unknown"}),
    ],
    "The caller repeats a direct call that never arrived. A queued write is sent again, but not for ever.": [
        ({}, NOT_DONE, 60, {"state": "rejected", "reason": NEVER}),
        ({"attempts": 3}, NOT_DONE, 60, {"state": "rejected"}),
        (QUEUED, NOT_DONE, 60, {"state": "sending", "reason": NEVER}),
        (QUEUED | TWICE, NOT_DONE, 60, {"state": "sending"}),
        (QUEUED | {"attempts": 3}, NOT_DONE, 60, {"state": "manual", "reason": f"sent 3 times, and {NEVER}"}),
    ],
    'After "used before", "not found" neither sends nor rejects a write.': [
        *(
            ({"answered": True, "asked": asked, **facts}, NOT_DONE, LONG, {"state": state, "reason": reason})
            for facts in ({}, QUEUED, TWICE)
            for asked, state, reason in ((3, "unknown", USED), (4, "manual", f"asked 4 times: {USED}"))
        ),
        ({"answered": True, "asked": 9, "silent": 6}, NOT_DONE, LONG, {"state": "unknown"}),
        ({"answered": True, "asked": 9, "silent": 5}, NOT_DONE, LONG, {"state": "manual"}),
    ],
    "If a number was sent more than once, what did not succeed may be an earlier send, until the quarantine is over.": [
        (TWICE, said("rejected"), 59, {"state": "unknown", "reason": EARLIER, "pause": 1.0}),
        (TWICE, said("accepted"), 59, {"state": "unknown", "reason": EARLIER}),
        (TWICE, said("accepted"), 60, {"state": "accepted"}),
        (TWICE, said("succeeded"), 0, {"state": "succeeded"}),
        (TWICE | {"ineffective": 1}, said("rejected"), 0, {"state": "rejected"}),
        (TWICE | {"ineffective": 1}, said("accepted"), 0, {"state": "accepted"}),
        (TWICE, said("rejected"), 60, {"state": "rejected", "reason": "the refund is so"}),
        (TWICE | QUEUED, said("rejected"), 60, {"state": "rejected"}),
        (TWICE | {"state": "accepted"}, said("rejected"), 59, {"state": "accepted", "reason": EARLIER, "denied": 0}),
        (TWICE | {"state": "accepted"}, said("rejected"), 60, {"state": "rejected"}),
        (TWICE | {"operation": "orders.close"}, REFUSED, 0, {"state": "rejected"}),
        (TWICE | {"operation": "orders.close"}, said("succeeded"), 0, {"state": "succeeded"}),
        (TWICE | {"answered": True}, said("rejected"), 59, {"state": "unknown"}),
        (TWICE | {"answered": True}, said("rejected"), 60, {"state": "rejected"}),
    ],
    "A response out of a cache answers a question of an earlier moment. What was done stays done.": [
        ({}, evolve(NOT_DONE, age=19.0), 78, {"state": "unknown", "reason": CACHED, "pause": 1.0}),
        ({}, evolve(NOT_DONE, age=19.0), 79, {"state": "rejected"}),
        ({}, evolve(said("rejected"), age=19.0), 18, {"state": "unknown"}),
        ({}, evolve(said("rejected"), age=19.0), 19, {"state": "rejected"}),
        ({}, evolve(said("accepted"), age=19.0), 0, {"state": "accepted"}),
        ({}, evolve(said("succeeded"), age=19.0), 0, {"state": "succeeded"}),
        ({"operation": "orders.close"}, evolve(said("succeeded"), age=19.0), 18, {"state": "unknown"}),
        ({"operation": "orders.close"}, evolve(REFUSED, age=19.0), 0, {"state": "rejected"}),
    ],
    "After some responses about something else, a person must find out; a response for good is believed at once.": [
        *(
            ({"asked": 50, "odd": odd, **facts}, result, LONG, {"state": state})
            for facts in ({}, QUEUED, TWICE, {"answered": True})
            for result, odd, state in (
                (UNMATCHED, 2, "unknown"),
                (UNMATCHED, 3, "manual"),
                (UNMATCHED_FOR_GOOD, 0, "manual"),
            )
        )
    ],
    "Odd responses count by their number. Silence counts by its time as well, and is never odd.": [
        ({}, UNASKABLE, 0, {"state": "manual", "reason": "nothing names it"}),
        ({"asked": 50, "odd": 2, "silent": 47}, UNCLEAR, LONG, {"state": "unknown"}),
        ({"asked": 4, "odd": 3}, UNCLEAR, 0, {"state": "manual", "reason": "asked 4 times: HTTP 302"}),
        ({"asked": 3}, SILENT, LONG, {"state": "unknown"}),
        ({"asked": 4}, SILENT, 999, {"state": "unknown", "reason": SILENT.reason, "silent_since": None}),
        ({"asked": 4}, SILENT, 1000, {"state": "manual"}),
    ],
    "Pauses double up to the longest, and are not shorter than the service asks for.": [
        *(
            ({"asked": asked}, SILENT, 0, {"pause": pause})
            for asked, pause in ((1, 2.0), (2, 4.0), (3, 8.0), (6, 64.0), (7, 100.0), (500, 100.0))
        ),
        *(
            ({}, evolve(SILENT, retry_after=after), 0, {"pause": pause})
            for after, pause in ((1.0, 2.0), (500.0, 500.0))
        ),
    ],
}
ACCEPTED_ONES: Final[list[tuple[dict[str, Any], QueryResult, dict[str, Any]]]] = [
    (ACCEPTED, said("accepted"), {"denied": 0, "silent_since": None, "reason": "the refund is so"}),
    (ACCEPTED, NOT_DONE, {"denied": 4, "silent_since": None, "reason": f"accepted before, and now {NOT_DONE.reason}"}),
    (ACCEPTED, UNCLEAR, {"denied": 4, "silent_since": None, "reason": UNCLEAR.reason}),
    (ACCEPTED, UNASKABLE, {"denied": 4, "silent_since": None, "reason": UNASKABLE.reason}),
    (ACCEPTED, SILENT, {"denied": 3, "silent_since": START - DAY / 2, "reason": SILENT.reason}),
    (ACCEPTED, UNMATCHED, {"denied": 3, "silent_since": START - DAY / 2, "reason": UNMATCHED.reason}),
    ({}, SILENT, {"silent_since": START}),
    ({}, UNMATCHED, {"silent_since": START}),
    ({"silent_since": ALMOST_A_DAY_AGO}, SILENT, {"reason": SILENT.reason}),
    ({"silent_since": START - DAY}, SILENT, {"reason": SINCE + SILENT.reason}),
    *(
        ({"silent_since": since}, result, {"state": state, "reason": reason + UNMATCHED.reason})
        for result in (UNMATCHED, UNMATCHED_FOR_GOOD)
        for since, state, reason in ((ALMOST_A_DAY_AGO, "accepted", ""), (START - DAY, "manual", SINCE))
    ),
]


def check_decision(decision: Decision, expected: dict[str, Any]) -> None:
    """Check those attributes of a decision that are expected."""
    assert expected == {name: getattr(decision, name) for name in expected}


@pytest.mark.parametrize("rule", UNKNOWN_ONES)
def test_what_follows_for_an_unknown_write(rule: str) -> None:
    """Each key of `UNKNOWN_ONES` states a rule. `decide` follows it in each case listed under that key."""
    for facts, result, after, expected in UNKNOWN_ONES[rule]:
        check_decision(decided(unknown(**facts), result, after), expected)


@pytest.mark.parametrize(("facts", "result", "expected"), ACCEPTED_ONES)
def test_what_follows_for_an_accepted_write(
    facts: dict[str, Any], result: QueryResult, expected: dict[str, Any]
) -> None:
    """An accepted write is never sent again. It becomes *manual* only after a day of responses about something else."""
    accepted = unknown(**{"state": "accepted", "asked": 50, "queued": True, **facts})

    check_decision(decided(accepted, result), {"state": "accepted", **expected})


CLOSE: Final = unknown(operation="orders.close", reference="T1", number="orders.close:T1", tick="a 100.0")


@pytest.mark.parametrize(
    ("facts", "expected"), [({"attempts": 1}, 10), ({"attempts": 2}, 80), ({"id": 2}, 80), ({"id": 0}, 10)], ids=str
)
def test_only_a_second_place_delays_the_end_of_a_close(facts: dict[str, Any], expected: int) -> None:
    """If an order was placed once, "closed" ends its close. A place that was stored after its close is a second one."""
    facts = {"attempts": 1, "state": "accepted", "updated": START + timedelta(seconds=20), **facts}
    close = [
        decided(CLOSE, said("succeeded"), after, place=kept(operation="orders.place", **facts))
        for after in (10, 79, 80)
    ]
    early = "succeeded" if expected == 10 else "unknown"

    assert [early, early, "succeeded"] == [each.state for each in close]


def test_jump_of_the_clock_ends_no_quarantine_of_a_place() -> None:
    """If a second place ended after its close, but by the wall clock before it, "closed" counts as late as it must."""
    place = kept(operation="orders.place", attempts=2, tick="a 111.0", state="unknown", updated=START - 60 * MINUTE)

    assert ["unknown", "succeeded"] == [
        decided(CLOSE, said("succeeded"), after, place=place).state for after in (QUARANTINE + 10, QUARANTINE + 11)
    ]


def test_place_that_becomes_manual_gives_its_close_no_further_day() -> None:
    """Without a quarantine, a close beside a second place becomes *manual* a day after its own send."""
    place = kept(operation="orders.place", state="manual", attempts=2, updated=START + DAY - MINUTE)
    day = DAY.total_seconds()

    assert ["unknown", "manual"] == [
        decided(CLOSE, said("succeeded"), after, None, place).state for after in (day - 1, day)
    ]


def test_close_that_was_sent_often_and_never_arrived_may_be_repeated() -> None:
    """A queued close of an order that is still open becomes *rejected*: a close moves no money."""
    assert "rejected" == decided(evolve(CLOSE, queued=True, attempts=9), NOT_DONE, 100).state


def test_without_a_quarantine_not_found_is_never_final() -> None:
    """Without a quarantine, "not found" leads to *manual* after some queries, and the end of a resend after a day."""
    states = [decided(unknown(asked=asked), NOT_DONE, LONG, None).state for asked in (3, 4)]
    twice = [unknown(state=state, asked=50, **TWICE) for state in ("unknown", "accepted")]
    ended = [decided(each, said("rejected"), after, None) for each in twice for after in (999, 1000)]

    assert ["unknown", "manual"] == states
    assert ["unknown", "manual", "accepted", "manual"] == [each.state for each in ended]
    assert f"{EARLIER}; the profile has no recovery.quarantine" in ended[1].reason


AT_START: Final = {"reference": None, "number": None}
"""No query names it, so that nothing but a person settles it."""
MANUAL: Final = {"state": "manual"}


@pytest.mark.parametrize(
    ("facts", "seconds", "quarantine", "expected"),
    [
        ({"state": "new"}, 0, 900.0, ""),
        ({}, 900, None, "still asks the service: run payasync reconcile"),
        ({"state": "sending", "lease": START}, 9, 900.0, "still asks the service, which may"),
        (AT_START, 899, 900.0, "the service may carry it out until 2027-01-01 00:15:00 UTC: wait until then"),
        (AT_START, 900, 900.0, ""),
        ({**AT_START, "state": "sending", "sent_at": None, "lease": START + MINUTE}, 901, 900.0, "00:16:00 UTC"),
        (MANUAL, 899, 900.0, "until 2027-01-01 00:15:00 UTC"),
        ({**MANUAL, "answered": True}, 899, 900.0, "until 2027-01-01 00:15:00 UTC"),
        ({**MANUAL, "sent_at": None, "updated": START + MINUTE}, 901, 900.0, "00:16:00 UTC"),
        (MANUAL, 10**9, 1e300, "no recovery.quarantine says"),
        ({"state": "accepted", "updated": START + MINUTE}, 901, 900.0, "00:16:00 UTC"),
        ({"state": "accepted"}, 900, 900.0, ""),
    ],
)
def test_what_a_person_should_not_end_yet(
    facts: dict[str, Any], seconds: float, quarantine: float | None, expected: str
) -> None:
    """A person waits for the reconciler, if it can settle a write, and for the end of the quarantine."""
    objection = resolve_objection(unknown(**facts), START + timedelta(seconds=seconds), quarantine)

    assert (bool(expected), True) == (bool(objection), expected in objection)


def test_many_queries_take_no_time() -> None:
    """A pause is drawn without counting the queries, because a damaged row may have any number of them."""
    assert PATIENCE.longest == decided(unknown(asked=10**15), NOT_DONE, 1, LONG).pause


def test_half_of_a_pause_is_chance() -> None:
    """Half of a pause is random, so that writes lost together are not queried together again."""
    bounds: list[float] = []

    def none(bound: float) -> float:
        bounds.append(bound)
        return 0.0

    decision = decide(unknown(asked=3), SILENT, asked_at=START, quarantine=None, patience=PATIENCE, jitter=none)

    assert ([4.0], 4.0) == (bounds, decision.pause)


def test_only_transitions_of_the_table() -> None:
    """Every decision either leaves the state and waits, or follows a transition of the design's table."""
    evidence = [*map(said, END_STATES), said("accepted"), SILENT, UNCLEAR, NOT_DONE, UNMATCHED, UNMATCHED_FOR_GOOD]
    states: tuple[State, ...] = ("unknown", "accepted")
    for state, each, queued, asked, after in product(states, evidence, (False, True), (1, 9), (0.0, 10.0**6)):
        decision = decided(unknown(state=state, queued=queued, asked=asked), each, after)

        assert decision.state in TRANSITIONS[state] or (decision.state == state and (decision.pause or 0) > 0)


def test_wrong_patience_is_named() -> None:
    """If a setting of `Patience` is invalid, its constructor raises `ConfigurationError`, which names it."""
    wrong: list[tuple[str, Any]] = [("first", -1.0), ("first", True), ("longest", float("inf")), ("give_up", "a day")]
    for name, value in [*wrong, ("questions", 0), ("questions", True), ("sends", 1.5)]:
        with pytest.raises(ConfigurationError, match=rf"^Patience\.{name} must be") as caught:
            cast("Any", Patience)(**{name: value})

        assert f"Patience.{name}" == caught.value.field


def test_what_is_due() -> None:
    """An open intent is due from its next query on; a leased one when its lease ends."""
    moments = [("due", "unknown"), ("due", "accepted"), ("lease", "unknown"), ("lease", "sending")]
    for name, state in moments:
        assert [True, False] == [is_due(kept(**{"state": state, name: moment}), START) for moment in (START, LATER)]
    assert not any(is_due(kept(state=state), START) for state in ("new", "manual", "succeeded"))
