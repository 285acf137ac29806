"""What becomes of an event: decisions, without any I/O."""

import asyncio
import weakref
from typing import Any, Final

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from payasync import (
    AuthenticationError,
    ConfigurationError,
    InvalidArgumentError,
    InvalidSignatureError,
    NoAnswerError,
    NotSentError,
    Profile,
    QueryOrder,
    QueryPayment,
    QueryRefund,
    RateLimitedError,
    Recovery,
    ServiceError,
    SortedPairs,
)
from payasync.errors import PayasyncError
from payasync.notifications.transitions import (
    ATTEMPTS,
    LATE,
    LONGEST_REASON,
    LONGEST_WAIT,
    MOST_INTERRUPTIONS,
    MOST_WAITING,
    QUIET,
    UNSAID,
    Confirmed,
    QueryLimiter,
    Transition,
    choose_query,
    compare_expected,
    compare_merchant,
    describe_error,
    draw_upper_half,
    hint_key,
    hold_refund,
    is_same,
    judge_error,
    judge_response,
    limit_interruptions,
    longest_wait,
    release_key,
    shorten,
)
from payasync.sandbox import PROFILE
from payasync.wire.request import Request
from payasync.wire.response import OrderResponse, PaymentResponse, RefundResponse, Response
from tests.building import reply
from tests.journal.building import Clock
from tests.notifications.merchant import PAID, notification

BY_PAYMENT_ID = evolve(PROFILE, notification=evolve(PROFILE.notification, out_trade_no=""))
ORDER = QueryOrder(out_trade_no="T1")


def response(data: Any, kind: type[Response] = OrderResponse, profile: Profile = PROFILE) -> Response:
    """Return an answer of the service."""
    return kind(reply(data), profile.answer, profile.states)


def state_of(ending: object) -> str:
    """Return the state of an ending."""
    assert isinstance(ending, Transition)
    return ending.state


def test_one_payment_is_not_asked_about_under_two_names() -> None:
    """A hint that leaves the order number out is parked: it would be confirmed under another key, and handled twice."""
    hint = notification(payment_id="P1", verified=False)
    ending = choose_query(hint, PROFILE)

    assert "parked" == state_of(ending)
    assert "'outTradeNo'" in str(ending)


@pytest.mark.parametrize("kind", ["payment", "refund", "subscription", None])
def test_hint_without_a_number_is_parked(kind: str | None) -> None:
    """Nobody can be asked about nothing."""
    assert "parked" == state_of(choose_query(notification(kind=kind, verified=False), BY_PAYMENT_ID))


@pytest.mark.parametrize(
    ("asked", "answered", "reason"),
    [
        (ORDER, response({"status": "SBX_PAID", "outTradeNo": "t1"}), "asked about 'T1', and its answer is about"),
        (
            QueryRefund(identifier="R1"),
            response({"status": "SBX_SUCCEEDED", "outRefundNo": "R2"}, RefundResponse),
            "outRefundNo 'R2'",
        ),
        (
            QueryPayment(identifier="P1"),
            response({"status": "SBX_PAID", "paymentId": "p1"}, PaymentResponse),
            "paymentId 'p1'",
        ),
    ],
)
def test_answer_about_another_confirms_nothing(asked: Request[Response], answered: Response, reason: str) -> None:
    """A service that takes `t1` for `T1` would confirm one payment under two names, and its effect come twice."""
    ending = judge_response(asked, "payment", answered, PROFILE, 0)

    assert "quarantined" == state_of(ending)
    assert reason in str(ending)


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        (ORDER, response({"status": "SBX_PENDING"})),
        (QueryPayment(identifier="P1"), response({"status": "SBX_PENDING"}, PaymentResponse)),
        (QueryRefund(identifier="R1"), response({"status": "SBX_PROCESSING"}, RefundResponse)),
    ],
)
def test_what_the_service_does_not_say_yet_is_asked_again(asked: Request[Response], answered: Response) -> None:
    """A hint may come before the service's own books say so; an attacker's, at any time."""
    assert "pending" == state_of(judge_response(asked, "payment", answered, PROFILE, 0))


@pytest.mark.parametrize("data", [{}, {"status": None}, {"status": True}, {"status": ["SBX_PAID"]}, [], None])
def test_answer_without_a_state_confirms_nothing(data: Any) -> None:
    """An answer that tells no state is asked for again."""
    assert "pending" == state_of(judge_response(ORDER, "payment", response(data), PROFILE, 0))


@pytest.mark.parametrize("quarantine", [None, 5.0, 600.0])
def test_denial_is_believed_when_the_service_has_had_its_time(quarantine: float | None) -> None:
    """A hint may be ahead of the service's books, by as much as the profile says."""
    profile = evolve(PROFILE, recovery=Recovery(quarantine=quarantine))
    bound = quarantine or LATE
    states = [state_of(judge_error(ServiceError("no such order"), profile, age)) for age in (0, bound - 1, bound)]

    assert ["pending", "pending", "dead"] == states


def test_what_the_service_does_not_say_is_not_asked_about_for_days() -> None:
    """Who tells of what is not so has the service asked for an hour, however long its failures are retried."""
    pending = response({"status": "SBX_PENDING"})
    states = [state_of(judge_response(ORDER, "payment", pending, PROFILE, age)) for age in (UNSAID - 1, UNSAID)]

    assert ["pending", "dead"] == states


def test_state_that_has_no_name_of_ours_is_handed_on() -> None:
    """Where the profile says which state is not final, every other one is."""
    assert isinstance(judge_response(ORDER, "payment", response({"status": "SBX_ODD"}), PROFILE, 0), Confirmed)


def test_final_state_cannot_be_told_without_the_profile() -> None:
    """Where the profile says neither what the state is, nor which is not final, nothing is guessed."""
    only_paid = evolve(PROFILE, states=evolve(PROFILE.states, order={"paid": ("SBX_PAID",)}))
    odd = judge_response(ORDER, "payment", response({"status": "SBX_ODD"}, profile=only_paid), only_paid, 0)

    assert "parked" == state_of(odd)
    assert "states.order.pending" in str(odd)
    assert isinstance(
        judge_response(ORDER, "payment", response({"status": "SBX_PAID"}, profile=only_paid), only_paid, 0), Confirmed
    )


def test_place_of_the_state_must_be_known() -> None:
    """Where the profile does not say where the state stands, the event is parked, and says so."""
    nowhere = evolve(PROFILE, answer=evolve(PROFILE.answer, order_status=""))
    ending = judge_response(ORDER, "payment", response({"status": "SBX_PAID"}, profile=nowhere), nowhere, 0)

    assert "parked" == state_of(ending)
    assert "answer.order_status" in str(ending)


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ServiceError("no such order"), "dead"),
        (ServiceError("not here any more", http_status=302), "pending"),
        (AuthenticationError("our key is wrong"), "pending"),
        (RateLimitedError("later"), "pending"),
        (NoAnswerError("nothing came"), "pending"),
        (NotSentError("no connection"), "pending"),
        (InvalidSignatureError("whose answer is it"), "pending"),
        (InvalidArgumentError("a number that is none"), "parked"),
        (ConfigurationError("it does not say how to ask"), "parked"),
        (PayasyncError("anything"), "pending"),
        (OSError("anything"), "pending"),
    ],
)
def test_what_follows_where_nobody_confirms(error: Exception, state: str) -> None:
    """Only the service's own word ends a hint; what somebody must mend first is parked, all else is asked again."""
    ending = judge_error(error, PROFILE, 10**6)

    assert state == state_of(ending)
    assert f"{type(error).__name__}: {error}" == ending.reason


@pytest.mark.parametrize(
    "expected", [{"totalAmt": 450, "currency": "CAD"}, {"status": "SBX_PAID"}, {"items": ({"no": 1},)}, {}]
)
def test_what_is_expected_passes(expected: dict[str, Any]) -> None:
    """What is as expected goes on; what nobody asked for is not looked at."""
    assert compare_expected(notification({**PAID, "items": [{"no": 1}]}), expected) is None


@pytest.mark.parametrize(
    ("expected", "reason"),
    [
        ({"totalAmt": 451}, "totalAmt is 450, expected 451"),
        ({"totalAmt": "450"}, "totalAmt is 450, expected '450'"),
        ({"totalAmt": 450.0}, "totalAmt is 450, expected 450.0"),
        ({"currency": "CAD", "refunded": 1}, "refunded is absent, expected 1"),
        ({"totalAmt.inner": 1}, "totalAmt.inner is absent, expected 1"),
        (None, "nobody expects it"),
    ],
)
def test_what_differs_is_quarantined(expected: dict[str, Any] | None, reason: str) -> None:
    """The reason names the field, and shows both values."""
    assert Transition("quarantined", reason) == compare_expected(notification(), expected)


@pytest.mark.parametrize("expected", [450, [("totalAmt", 450)], True, "totalAmt"])
def test_expectation_must_be_a_mapping(expected: object) -> None:
    """What an expect function returns by mistake is neither met nor missed: it is tried again."""
    assert "pending" == state_of(compare_expected(notification(), expected))


@pytest.mark.parametrize("answered", [None, [], "paid"])
def test_confirmed_answer_without_data_meets_nothing(answered: Any) -> None:
    """Where the service confirms without a word, a hint's own words do not stand in for it."""
    hint = notification(verified=False, confirmed=response(answered))

    assert Transition("quarantined", "totalAmt is absent, expected 450") == compare_expected(hint, {"totalAmt": 450})


def test_what_nobody_can_confirm_is_compared_as_it_stands() -> None:
    """An expectation of an event that is neither signed nor confirmed holds for what it says."""
    assert compare_expected(notification(verified=False), {"totalAmt": 450}) is None
    assert "quarantined" == state_of(compare_expected(notification(verified=False), {"totalAmt": 451}))


@pytest.mark.parametrize(
    ("named", "ours", "merchant"),
    [
        ({}, True, "M1"),
        ({"merchantId": "M1"}, True, "M1"),
        ({"merchantId": "M2"}, False, "M1"),
        ({"merchantId": "m1"}, False, "M1"),
        ({"merchantId": 7}, True, "7"),
        ({"merchantId": True}, False, "True"),
        ({"merchantId": None}, True, "M1"),
        ({"merchantId": ["M1"]}, False, "M1"),
    ],
)
def test_event_of_another_merchant_is_quarantined(named: dict[str, Any], ours: bool, merchant: str) -> None:  # noqa: FBT001 - what is expected
    """A notification that names a merchant must name this one; a service may write the number as an integer."""
    assert ours == (compare_merchant(notification({**PAID, **named}), merchant, PROFILE) is None)


REFUND_ELSEWHERE: Final = evolve(
    PROFILE,
    answer=evolve(PROFILE.answer, refund_status="refundStatus"),
    notification=evolve(PROFILE.notification, out_refund_no="back.no"),
)
"""Of a refund, the number and the state stand where no payment has any."""


@pytest.mark.parametrize(
    ("data", "profile", "why"),
    [
        ({"outRefundNo": "R1"}, PROFILE, "outRefundNo is 'R1'"),
        ({"outRefundNo": 7}, PROFILE, "outRefundNo is '7'"),
        ({"back": {"no": "R1"}}, REFUND_ELSEWHERE, "back.no is 'R1'"),
        ({"outRefundNo": "R1"}, REFUND_ELSEWHERE, "outRefundNo is 'R1'"),
        ({"refundAmt": 200}, PROFILE, "refundAmt is 200"),
        ({"refundAmt": "0.50"}, PROFILE, "refundAmt is '0.50'"),
        ({"refundStatus": "SBX_SUCCEEDED"}, REFUND_ELSEWHERE, "refundStatus is 'SBX_SUCCEEDED'"),
    ],
)
def test_refund_that_came_as_a_payment(data: dict[str, Any], profile: Profile, why: str) -> None:
    """By its number, its amount or its state: no handler of payments takes it for money received."""
    told = {"data": {**PAID, **data}, "out_refund_no": data.get("back", {}).get("no")}
    held = hold_refund(notification(**told), profile)

    assert held
    assert ("quarantined", True) == (held.state, f"names a refund: {why}." in held.reason)
    assert all(hold_refund(notification(**told, kind=kind), profile) is None for kind in ("refund", None))


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"outRefundNo": None, "refundAmt": None, "refundStatus": None},
        {"outRefundNo": "", "refundAmt": "", "refundStatus": ""},
        {"outRefundNo": " ", "refundAmt": 0, "refundStatus": "NO_REFUND"},
        {"outRefundNo": [], "refundAmt": "0.00", "refundStatus": "SBX_PAID"},
        {"outRefundNo": {}, "refundAmt": False, "refundStatus": []},
        {"refundAmt": [1], "refundDesc": "R1", "back": {"no": None}},
    ],
)
@pytest.mark.parametrize("profile", [PROFILE, REFUND_ELSEWHERE], ids=["own", "elsewhere"])
def test_payment_that_names_no_refund(data: dict[str, Any], profile: Profile) -> None:
    """A service may list all fields of a refund in each payment: null, an empty text and 0 name none."""
    assert hold_refund(notification({**PAID, **data}), profile) is None


def test_one_path_for_the_numbers_of_both() -> None:
    """Where payments and refunds have their numbers at one path, a number there names a payment."""
    shape = evolve(PROFILE.notification, out_trade_no="no", out_refund_no="no")
    profile = evolve(PROFILE, notification=shape, answer=evolve(PROFILE.answer, payment_id="outRefundNo"))

    assert hold_refund(notification({"no": "T1", "outRefundNo": "P1"}), profile) is None


def test_merchant_is_read_where_it_is_signed() -> None:
    """Who got hold of a genuine notification cannot have it quarantined by writing beside what is signed."""
    shape = evolve(PROFILE.notification, verification="body", signature="data.sign", time="")
    scheme = SortedPairs(algorithm="hmac-sha256", encoding="hex")
    profile = evolve(PROFILE, notification=shape, signature=scheme)
    beside = notification(PAID, document={"merchantId": "M9", "data": PAID})
    whole = evolve(profile, notification=evolve(shape, signature="sign"))

    assert compare_merchant(beside, "M1", profile) is None
    assert "quarantined" == state_of(compare_merchant(beside, "M1", whole))
    assert "quarantined" == state_of(compare_merchant(notification({**PAID, "merchantId": "M9"}), "M1", profile))


def test_hint_is_known_by_its_words_while_it_waits() -> None:
    """A hint that came to nothing gives its key back, once; a confirmed key stays."""
    key = hint_key(notification(digest="d1"))

    assert "hint:payment:d1" == key
    assert "hint:payment:d1:5" == release_key(key, 5) == release_key(release_key(key, 5), 5)
    assert 'confirmed:payment:["T1","PAID"]' == release_key('confirmed:payment:["T1","PAID"]', 5)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (1, True),
        (True, 1),
        (0, False),
        (1, 1.0),
        ("1", 1),
        (None, False),
        ([1], [True]),
        ([1], [1, 1]),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": 1, "b": 1}),
        ([], {}),
        ({}, []),
    ],
)
def test_values_of_other_types_differ(found: Any, expected: Any) -> None:
    """Python thinks some of these equal; money does not."""
    assert not is_same(found, expected)


def test_merchant_may_stand_beside_the_payload() -> None:
    """Keys of the service sign for all its merchants: one that is named in the envelope counts, too."""
    beside = notification(document={"merchantId": "M9", "data": PAID})

    assert "quarantined" == state_of(compare_merchant(beside, "M1", PROFILE))
    assert compare_merchant(notification(document={"merchantId": "M1", "data": PAID}), "M1", PROFILE) is None


def test_waits_grow_up_to_an_hour() -> None:
    """Each wait can be four times as long as the one before, however many there were."""
    assert [1, 4, 16, 64, 256, 1024, 3600, 3600] == [longest_wait(failures) for failures in range(1, 9)]
    assert 3600 == longest_wait(1000)


@given(st.floats(0.1, LONGEST_WAIT))
def test_wait_is_at_least_half_as_long_as_it_can_be(bound: float) -> None:
    """Those who failed together do not come again together, and none of them runs out of attempts by chance."""
    assert bound / 2 <= draw_upper_half(bound) <= bound


def test_attempts_last_for_days() -> None:
    """An outage of a day, of the shop or of the service, costs no event; the usual time is three days."""
    bounds = [longest_wait(failures) for failures in range(1, ATTEMPTS)]
    day = 86400

    assert sum(bounds) / 2 > 1.9 * day
    assert 2.9 * day < sum(bounds) * 3 / 4 < 3 * day


@pytest.mark.parametrize(
    ("attempts", "failures"), [(1, 0), (MOST_INTERRUPTIONS, 0), (MOST_INTERRUPTIONS + 1, 1), (100, 99)]
)
def test_what_failed_was_not_cut_off(attempts: int, failures: int) -> None:
    """What came to an end counts as a failure, and not as an attempt that ended the process."""
    assert limit_interruptions(attempts, failures) is None


def test_reason_is_one_line() -> None:
    """An error is told by its class and its text, whatever that holds."""
    assert "ValueError: a b c" == describe_error(ValueError("a\nb\r\n\tc"))
    assert "ValueError" == describe_error(ValueError())


def test_reason_is_short() -> None:
    """A reason is cut where nobody reads on."""
    long = describe_error(ValueError("x" * 10_000))

    assert LONGEST_REASON == len(long)
    assert long.endswith("x…")
    assert "x" * LONGEST_REASON == shorten("x" * LONGEST_REASON)


def test_error_that_cannot_be_told_has_its_class() -> None:
    """An error whose text raises is an error all the same."""

    class Unspeakable(Exception):  # noqa: N818 - it is one
        def __str__(self) -> str:
            raise ValueError("no text")

    assert "Unspeakable" == describe_error(Unspeakable())


QUESTION = ("orders.query", "T1")


def paid() -> Confirmed:
    """Return an end state."""
    return Confirmed("confirmed:payment:T1", OrderResponse(reply(), PROFILE.answer, PROFILE.states))


END_STATE = paid()


@pytest.fixture
def questions(clock: Clock) -> QueryLimiter:
    """What a receiver knows that has asked nothing yet."""
    return QueryLimiter(clock)


def asked(questions: QueryLimiter, event: int = 1, confirmed: Confirmed | None = END_STATE) -> None:
    """Ask, and have a response."""
    questions.begin(QUESTION, event)
    questions.end(QUESTION, confirmed)


async def test_query_speaks_for_all_that_waited(questions: QueryLimiter, clock: Clock) -> None:
    """They came before it began; whoever comes then waits for the next one."""
    asked(questions)
    questions.recall(QUESTION, 2, 1)
    questions.recall(QUESTION, 3, 1)
    clock.advance(QUIET)
    free = questions.recall(QUESTION, 2, 2)
    asked(questions, 2)
    found = [questions.recall(QUESTION, event, 1) for event in (2, 3, 4)]

    assert (None, [END_STATE, END_STATE]) == (free, found[:2])
    assert isinstance(found[2], Transition)


async def test_response_that_is_no_end_state_holds_up_nobody(questions: QueryLimiter) -> None:
    """Where nothing is decided yet, or the service cannot be asked, the next event asks for itself."""
    asked(questions, confirmed=None)

    assert questions.recall(QUESTION, 2, 1) is None


@pytest.mark.parametrize("jump", [QUIET, -3600.0])
async def test_quiet_ends(questions: QueryLimiter, clock: Clock, jump: float) -> None:
    """After a minute, and where the clock was set back."""
    asked(questions)
    clock.advance(jump)

    assert questions.recall(QUESTION, 1, 1) is None


async def test_memory_is_bounded(questions: QueryLimiter, clock: Clock) -> None:
    """What is over is forgotten, its response included; what waits beyond the bound is asked about by a later query."""
    asked(questions)
    for event in range(2, MOST_WAITING + 3):
        questions.recall(QUESTION, event, 1)
    clock.advance(QUIET)
    last = paid()
    held = weakref.ref(last.response)
    asked(questions, 2, last)
    spoken_for = [questions.recall(QUESTION, event, 1) is last for event in (MOST_WAITING + 1, MOST_WAITING + 2)]
    del last
    clock.advance(2 * QUIET)
    before = held()
    questions.begin(("orders.query", "T2"), 1)

    assert [True, False] == spoken_for
    assert before
    del before
    assert held() is None


def test_query_of_a_loop_that_has_ended() -> None:
    """It is in flight no more: another loop, or a child process, asks again, and its end is nobody else's."""
    questions = QueryLimiter(Clock())
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()

    async def begin(event: int) -> Any:
        known = questions.recall(QUESTION, event, 1)
        questions.begin(QUESTION, event)
        return known

    async def end() -> Any:
        questions.end(QUESTION, END_STATE)
        return questions.recall(QUESTION, 3, 1)

    try:
        first.run_until_complete(begin(1))
        free = second.run_until_complete(begin(2))
        first.run_until_complete(end())
        waits = second.run_until_complete(end())
    finally:
        first.close()
        second.close()

    assert free is None
    assert isinstance(waits, Transition)
