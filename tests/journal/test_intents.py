"""Which state a response or an error gives an intent."""

from typing import Any, Final

import pytest
from attrs import evolve

from payasync.endpoints import ORDER_STATES, REFUND_STATES, custom_operation
from payasync.errors import (
    AuthenticationError,
    DuplicateError,
    InvalidArgumentError,
    InvalidSignatureError,
    NoAnswerError,
    NotConfiguredError,
    NotSentError,
    NotSentTimeoutError,
    OutcomeUnknownError,
    RateLimitedError,
    ServiceError,
    SessionClosedError,
)
from payasync.evidence.claims import STATE_CLAIMS
from payasync.journal.intents import (
    TRANSITIONS,
    Draft,
    State,
    Step,
    match_draft,
    state_of_error,
    state_of_response,
    state_of_unsent,
)
from payasync.profile.profile import Profile
from payasync.profile.schema import AnswerShape, States
from payasync.wire.call import Call, Progress
from tests.building import PROFILE, call_for, codec, reply
from tests.journal.building import START, draft, kept, refund

TELLING: Final = evolve(
    PROFILE,
    answer=AnswerShape(payment_id="no", payment_status="s", order_status="s", refund_status="s"),
    states=States(
        order={each: (each,) for each in ORDER_STATES},
        payment={each: (each,) for each in ORDER_STATES},
        refund={each: (each,) for each in REFUND_STATES},
    ),
)
"""Maps every state to itself."""


PAID: Final = {
    "pending": "accepted",
    **dict.fromkeys(("paid", "refunded"), "succeeded"),
    **dict.fromkeys(("closed", "expired", "failed"), "rejected"),
}


def test_state_of_a_response_is_that_of_its_order_or_refund() -> None:
    """A paid order succeeded and a pending one is accepted. A closed, expired or failed one is rejected.

    A refund is accepted as long as it is processing, or its state is missing or not mapped.
    """
    for operation in ("orders.place", "payments.create"):
        assert PAID == {each: state_of(operation, {"s": each, "no": "P1"})[0] for each in ORDER_STATES}
    refunds = {"processing": "accepted", "succeeded": "succeeded", "failed": "rejected", "IN_REVIEW": "accepted"}
    assert refunds == {each: state_of("refunds.create", {"s": each})[0] for each in refunds}
    assert ["accepted"] * 2 == [state_of("refunds.create", each)[0] for each in ({}, {"s": None})]
    assert "the refund's state is failed" == state_of("refunds.create", {"s": "failed"})[1]


def state_of(operation: str, document: object, profile: Profile = TELLING) -> tuple[State, str]:
    """Return the state that a response gives to a write, and why."""
    return state_of_response(call_for(operation, profile), reply(document))


def test_success_is_the_end_where_no_query_tells_more() -> None:
    """A successful response ends a write about which no query tells more.

    It is a close, a cancelled subscription, one of a custom endpoint, or one that no number names; or the profile maps
    no states, or does not locate them.
    """
    custom = custom_operation("POST", "/x", read=False)
    without = [evolve(TELLING, states=States()), evolve(TELLING, answer=AnswerShape())]
    nameless = evolve(call_for("orders.place", TELLING), reference=None)
    ends = [
        *(state_of(each, {"s": "pending"}, PROFILE) for each in ("orders.close", "subscriptions.cancel")),
        state_of_response(codec(TELLING).custom(custom, {}, bearer=False, signed=False), reply({})),
        *(
            state_of(each, {"s": "pending", "no": "P1"}, profile)
            for each in ("payments.create", "orders.place", "refunds.create")
            for profile in without
        ),
        state_of_response(nameless, reply({"s": "pending"})),
        state_of("payments.create", {"s": "pending"}),
        state_of("payments.create", {"s": "pending"}, evolve(TELLING, answer=evolve(TELLING.answer, payment_id=""))),
    ]

    assert {("succeeded", "")} == {*ends}


DESIGN: Final[dict[str, str]] = {
    "new": "sending succeeded rejected manual",
    "sending": "new accepted succeeded rejected unknown manual",
    "unknown": "accepted succeeded rejected sending manual",
    "accepted": "succeeded rejected manual",
    "rejected": "sending new manual",
    "manual": "succeeded rejected",
    "succeeded": "rejected",
}
"""Section 3 of the design: `NEW → SENDING → ACCEPTED | SUCCEEDED | REJECTED | UNKNOWN | MANUAL`, and so on."""


def test_transitions_are_the_designs() -> None:
    """`TRANSITIONS` has exactly the state changes of the design's table."""
    assert {state: set(after.split()) for state, after in DESIGN.items()} == TRANSITIONS


def test_every_state_of_ours_is_judged() -> None:
    """`STATE_CLAIMS` has every state of an order for each write about orders, and every state of a refund."""
    of_orders = [set(STATE_CLAIMS[write]) for write in ("payments.create", "orders.place", "orders.close")]

    assert [set(ORDER_STATES)] * 3 == of_orders
    assert set(REFUND_STATES) == set(STATE_CLAIMS["refunds.create"])


def begun(value: bool = True) -> Call:  # noqa: FBT001, FBT002 - the progress
    """Return a call of which something has left."""
    progress = Progress()
    progress.begun = value
    return call_for("refunds.create", progress=progress)


QUEUED: Final = {"queued": True}
AGAIN: Final = {"queued": True, "sent_at": START}
TEMPORARY: Final = [AuthenticationError("no"), RateLimitedError("no")]
UNSENT: Final = [NotSentError("no"), NotSentTimeoutError("no"), NotConfiguredError("no"), InvalidArgumentError("no")]
DOUBTFUL: Final = [
    OutcomeUnknownError("no"),
    OutcomeUnknownError("no", sent=False),
    NoAnswerError("no"),
    InvalidSignatureError("no"),
    SessionClosedError("no", sent=None),
    DuplicateError("used before"),
    ValueError("no"),
]
"""Of these the last may come from a user's middleware: it says nothing of what was sent."""


@pytest.mark.parametrize(
    ("errors", "direct", "queued", "again"),
    [
        (DOUBTFUL, "unknown", "unknown", "unknown"),
        ([*TEMPORARY, *UNSENT, SessionClosedError("no", sent=False)], "rejected", "new", "unknown"),
        ([ServiceError("too much")], "rejected", "rejected", "manual"),
    ],
    ids=["doubtful", "not done", "refused"],
)
def test_error_is_a_refusal_only_if_it_proves_one(
    errors: list[Exception], direct: State, queued: State, again: State
) -> None:
    """An error rejects a write only if it proves that the write was not done; a queued write may become *new*.

    If a queued write was sent before, it stays unknown, and a refusal makes it *manual*.
    """
    for error in errors:
        assert [direct, queued, again] == [state_of_error(begun(), error, kept(**each)) for each in ({}, QUEUED, AGAIN)]


@pytest.mark.parametrize(("facts", "expected"), [({}, "rejected"), (QUEUED, "new"), (AGAIN, "unknown")])
def test_unsent_is_new_only_where_nothing_arrived_before(facts: dict[str, Any], expected: State) -> None:
    """If no byte has left, a direct call is rejected, a queued write is new, and one sent before is unknown."""
    call = begun(value=False)

    assert [expected] * 2 == [state_of_unsent(kept(**facts)), state_of_error(call, ValueError("no"), kept(**facts))]


def direct(**named: object) -> Draft:
    """Return what is stored of a call that was sent: the profile's constants and `extra` are among what it names."""
    return evolve(draft(), queued=False, named=named)


def queued(**extra: object) -> Draft:
    """Return what is stored of a request that is queued: the constants come with the profile that sends it."""
    return draft(refund(extra=extra))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (direct(currency="CAD"), direct(currency="cad"), Step.ANSWER),
        (direct(currency="CAD"), direct(currency="USD"), Step.CONFLICT),
        (direct(currency="CAD"), direct(), Step.CONFLICT),
        (queued(currency="CAD"), queued(currency="CAD"), Step.ANSWER),
        (queued(currency="CAD"), queued(currency="USD"), Step.CONFLICT),
        (queued(currency="CAD"), direct(currency="CAD"), Step.ANSWER),
        (queued(currency="CAD"), direct(currency="USD"), Step.CONFLICT),
        (queued(), direct(currency="CAD"), Step.ANSWER),
        (direct(), direct(merchantId="M1"), Step.ANSWER),
        (direct(merchantId="M8"), direct(merchantId="M9"), Step.CONFLICT),
    ],
)
def test_another_currency_or_merchant_is_another_request(one: Draft, other: Draft, expected: Step) -> None:
    """A key stands for one currency and one merchant number. A deployment may begin to send the merchant's number."""
    for mine, theirs in ((one, other), (other, one)):
        stored = kept(state="succeeded", hash=theirs.hash, request=theirs.request, named=theirs.named)

        assert expected is match_draft(mine, [stored], START).step
