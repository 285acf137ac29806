"""Which state a response or an error gives an intent."""

from typing import Any, Final

import pytest
from attrs import evolve

from payasync.endpoints import custom_operation
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
from payasync.journal.intents import WRITE_STATES, State, state_of_error, state_of_response, state_of_unsent
from payasync.profile.profile import Profile
from payasync.profile.schema import ORDER_STATES, REFUND_STATES, AnswerShape, States
from payasync.wire.call import Call, Progress
from tests.building import PROFILE, call_for, codec, reply
from tests.journal.building import START, kept

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
    "paid": "succeeded",
    "refunded": "succeeded",
    "closed": "rejected",
    "expired": "rejected",
    "failed": "rejected",
}


@pytest.mark.parametrize("operation", ["orders.place", "payments.create"])
@pytest.mark.parametrize("state", ORDER_STATES)
def test_order_succeeds_when_it_is_paid(operation: str, state: str) -> None:
    """Until then it is under way; one that will not be paid any more may be tried again."""
    assert PAID[state] == state_of_response(call_for(operation, TELLING), reply({"s": state, "no": "P1"}))[0]


@pytest.mark.parametrize(
    ("state", "expected"), [("processing", "accepted"), ("succeeded", "succeeded"), ("failed", "rejected")]
)
def test_refund_is_what_its_state_says(state: str, expected: State) -> None:
    """That the service took it does not mean that the money went back."""
    found, reason = state_of_response(call_for("refunds.create", TELLING), reply({"s": state}))

    assert (expected, "the refund's state is failed" if state == "failed" else "") == (found, reason)


@pytest.mark.parametrize("document", [{}, {"s": "IN_REVIEW"}, {"s": None}])
def test_state_that_is_not_mapped_is_no_end(document: Any) -> None:
    """A word that the profile does not know may mean that it is still under way: it is asked about."""
    assert "accepted" == state_of_response(call_for("refunds.create", TELLING), reply(document))[0]


@pytest.mark.parametrize("operation", ["orders.close", "subscriptions.cancel"])
def test_write_that_ends_with_its_answer_succeeds(operation: str) -> None:
    """A closing or a change of a subscription is done when the service says so, whatever state it shows."""
    assert "succeeded" == state_of_response(call_for(operation), reply({"s": "pending"}))[0]


def test_unknown_endpoint_ends_with_its_answer() -> None:
    """Nobody knows how to ask for more."""
    call = codec(TELLING).custom(custom_operation("POST", "/x", read=False), {}, bearer=False, signed=False)

    assert "succeeded" == state_of_response(call, reply({}))[0]


@pytest.mark.parametrize(
    "profile",
    [evolve(TELLING, states=States()), evolve(TELLING, answer=AnswerShape())],
    ids=["no states", "no paths"],
)
@pytest.mark.parametrize("operation", ["payments.create", "orders.place", "refunds.create"])
def test_success_is_the_end_where_no_query_tells_more(operation: str, profile: Profile) -> None:
    """With a profile that maps no states, asking again for ever would teach nothing."""
    assert "succeeded" == state_of_response(call_for(operation, profile), reply({"s": "pending", "no": "P1"}))[0]


def test_success_is_the_end_where_nothing_can_be_asked_about() -> None:
    """An order without a number, or a payment whose number is not in its answer, cannot be asked about."""
    order = evolve(call_for("orders.place", TELLING), reference=None)
    ends = [
        state_of_response(order, reply({"s": "pending"})),
        state_of_response(call_for("payments.create", TELLING), reply({"s": "pending"})),
        state_of_response(
            call_for("payments.create", evolve(TELLING, answer=evolve(TELLING.answer, payment_id=""))),
            reply({"s": "pending"}),
        ),
    ]

    assert [("succeeded", "")] * 3 == ends


def test_every_state_of_ours_is_judged() -> None:
    """A state that is added to ours is either an end here, or under way by decision."""
    under_way = {"pending", "processing"}

    assert set(ORDER_STATES) - under_way == set(WRITE_STATES["orders.place"]) == set(WRITE_STATES["orders.close"])
    assert set(REFUND_STATES) - under_way == set(WRITE_STATES["refunds.create"])


def begun(value: bool = True) -> Call:  # noqa: FBT001, FBT002 - the progress
    """Return a call of which something has left."""
    progress = Progress()
    progress.begun = value
    return call_for("refunds.create", progress=progress)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ServiceError("no"), "rejected"),
        (AuthenticationError("no"), "rejected"),
        (RateLimitedError("no"), "rejected"),
        (NotSentError("no"), "rejected"),
        (NotSentTimeoutError("no"), "rejected"),
        (NotConfiguredError("no"), "rejected"),
        (InvalidArgumentError("no"), "rejected"),
        (OutcomeUnknownError("no"), "unknown"),
        (OutcomeUnknownError("no", sent=False), "unknown"),
        (NoAnswerError("no"), "unknown"),
        (InvalidSignatureError("no"), "unknown"),
        (SessionClosedError("no", sent=None), "unknown"),
    ],
)
def test_error_is_a_refusal_only_where_it_proves_one(error: Exception, expected: State) -> None:
    """The service's refusal and what never left are rejected; of all else nobody knows."""
    assert expected == state_of_error(begun(), error, kept())


@pytest.mark.parametrize("sent_at", [None, START])
@pytest.mark.parametrize("queued", [False, True])
def test_number_that_was_used_may_be_our_own(sent_at: Any, queued: bool) -> None:  # noqa: FBT001 - who sends it
    """That it was used may mean that it was done, by a process without this journal, too: it is asked about."""
    assert "unknown" == state_of_error(begun(), DuplicateError("used before"), kept(sent_at=sent_at, queued=queued))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RateLimitedError("slow down"), "unknown"),
        (AuthenticationError("unknown key"), "unknown"),
        (NotSentError("no"), "unknown"),
        (ServiceError("too much"), "manual"),
    ],
)
def test_second_send_of_a_queued_one_is_nobodys_to_repeat(error: Exception, expected: State) -> None:
    """Who queued it has gone: what says nothing of it leaves it open, and a refusal is shown to a person."""
    assert expected == state_of_error(begun(), error, kept(queued=True, sent_at=START))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (NotSentError("no"), "new"),
        (NotSentTimeoutError("no"), "new"),
        (SessionClosedError("no", sent=False), "new"),
        (NotConfiguredError("no"), "new"),
        (RateLimitedError("slow down"), "new"),
        (AuthenticationError("unknown key"), "new"),
        (ServiceError("too much"), "rejected"),
        (DuplicateError("used before"), "unknown"),
        (OutcomeUnknownError("no", sent=False), "unknown"),
        (NoAnswerError("no"), "unknown"),
    ],
)
def test_queued_waits_again_unless_the_service_said_no(error: Exception, expected: State) -> None:
    """What was queued, and was certainly not done, is still to be sent; only the service's own word rejects it."""
    assert expected == state_of_error(begun(), error, kept(queued=True))


@pytest.mark.parametrize(
    ("facts", "expected"),
    [({}, "rejected"), ({"queued": True}, "new"), ({"queued": True, "sent_at": START}, "unknown")],
)
def test_unsent_is_new_only_where_nothing_arrived_before(facts: dict[str, Any], expected: State) -> None:
    """A direct call is its caller's to repeat, and what an earlier attempt may have done is asked about."""
    call = begun(value=False)

    assert [expected] * 2 == [state_of_unsent(kept(**facts)), state_of_error(call, ValueError("no"), kept(**facts))]


@pytest.mark.parametrize(("value", "expected"), [(True, "unknown"), (False, "rejected")])
def test_foreign_error_says_nothing_of_what_was_sent(value: bool, expected: State) -> None:  # noqa: FBT001 - the progress
    """Of what a layer of the user's raises, only that nothing had left proves that nothing was done."""
    assert expected == state_of_error(begun(value), ValueError("no"), kept())
