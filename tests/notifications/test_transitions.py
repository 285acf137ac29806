"""What becomes of an event: decisions, and hints that the service, which is the sandbox here, confirms."""

import asyncio
import heapq
import json
import weakref
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve, frozen

from payasync import (
    AuthenticationError,
    ConfigurationError,
    InvalidArgumentError,
    InvalidSignatureError,
    NoAnswerError,
    NotSentError,
    Parameter,
    Profile,
    QueryOrder,
    QueryPayment,
    QueryRefund,
    RateLimitedError,
    Recovery,
    ServiceError,
    Session,
    SortedPairs,
)
from payasync.errors import PayasyncError, describe_error
from payasync.notifications import Notification
from payasync.notifications.transitions import (
    ATTEMPTS,
    BURST,
    DEFAULT_QUARANTINE,
    MAX_INTERRUPTIONS,
    MAX_TURNS,
    MAX_UNCONFIRMED,
    MAX_WAITING_EVENTS,
    QUERY_PAUSE,
    RATE,
    Confirmed,
    QueryLimiter,
    Transition,
    compare_expected,
    draw_upper_half,
    hold_another,
    hold_refund,
    is_same,
    judge_error,
    judge_response,
    limit_interruptions,
    longest_wait,
)
from payasync.sandbox import PROFILE, Sandbox
from payasync.wire.request import Request
from payasync.wire.response import OrderResponse, PaymentResponse, RefundResponse, Response
from tests.building import reply
from tests.journal.building import Clock
from tests.notifications.merchant import PAID, RENEWED, UNSIGNED, Shop, notification

ORDER: Final = QueryOrder(out_trade_no="T1")
QUERY_PAID: Final = QueryPayment(identifier="P1")
QUERY_REFUNDED: Final = QueryRefund(identifier="R1")
RESPONSES: Final[dict[type[Any], type[Response]]] = {
    QueryOrder: OrderResponse,
    QueryPayment: PaymentResponse,
    QueryRefund: RefundResponse,
}
ONLY_PAID: Final = evolve(PROFILE, states=evolve(PROFILE.states, order={"paid": ("SBX_PAID",)}))
NOWHERE: Final = evolve(PROFILE, answer=evolve(PROFILE.answer, order_status=""))
STATELESS: Final[list[Any]] = [{}, {"status": None}, {"status": True}, {"status": ["SBX_PAID"]}, [], None]


def response(data: Any, kind: type[Response] = OrderResponse, profile: Profile = PROFILE) -> Response:
    """Return a response of the service."""
    return kind(reply(data), profile.answer, profile.states)


def state_of(found: object) -> str:
    """Return the state of a transition."""
    assert isinstance(found, Transition)
    return found.state


YET: Final = "the service does not confirm it yet: the state is"


@pytest.mark.parametrize(
    ("query", "data", "reason"),
    [
        (
            ORDER,
            {"status": "SBX_PAID", "outTradeNo": "t1"},
            "held: the query was about 'T1', and its response is",
        ),
        (QUERY_REFUNDED, {"outRefundNo": "R2"}, "held: the query was about 'R1', and its response is about"),
        (QUERY_PAID, {"paymentId": "p1"}, "held: the query was about 'P1', and its response is about"),
        (ORDER, {"status": "SBX_PENDING"}, f"pending: {YET} 'SBX_PENDING'"),
        (QUERY_PAID, {"status": "SBX_PENDING"}, f"pending: {YET} 'SBX_PENDING'"),
        (QUERY_REFUNDED, {"status": "SBX_PROCESSING"}, f"pending: {YET} 'SBX_PROCESSING'"),
        (ORDER, {"status": "SBX_SUCCEEDED"}, f"pending: {YET} 'SBX_SUCCEEDED', which is that of another thing"),
        (QUERY_PAID, {"status": "SBX_PROCESSING"}, f"pending: {YET} 'SBX_PROCESSING', which is that of another thing"),
        (QUERY_REFUNDED, {"status": "SBX_PAID"}, f"pending: {YET} 'SBX_PAID', which is that of another thing"),
        *((ORDER, data, "pending: the response has no 'status'") for data in STATELESS),
    ],
)
def test_response_that_confirms_nothing(query: Request[Response], data: Any, reason: str) -> None:
    """A response about another number, or without a final state, confirms no hint.

    A service that takes `t1` for `T1` would confirm one payment under two names. A hint may come before the service's
    own books have it.
    """
    found = judge_response(query, "payment", response(data, RESPONSES[type(query)]), PROFILE, 0)

    assert f"{state_of(found)}: {getattr(found, 'reason', '')}".startswith(reason)


@pytest.mark.parametrize(
    ("changes", "number", "confirms"),
    [
        ({"fields": {"out_trade_no": "no"}}, {"no": "t1", "outTradeNo": "T1"}, False),
        ({"fields": {"out_trade_no": "no"}}, {"no": "T1", "outTradeNo": "its own"}, True),
        ({"answer": evolve(PROFILE.answer, out_trade_no="no")}, {"no": "t1"}, False),
        ({"answer": evolve(PROFILE.answer, out_trade_no="")}, {"outTradeNo": "its own"}, True),
    ],
)
def test_number_of_a_confirmation_stands_where_the_profile_says(
    changes: dict[str, Any], number: dict[str, str], *, confirms: bool
) -> None:
    """The number is compared at the profile's path, else under the service's name for it; `""`: not compared."""
    profile = evolve(PROFILE, **changes)
    paid = response({"status": "SBX_PAID", **number}, profile=profile)

    assert confirms is isinstance(judge_response(ORDER, "payment", paid, profile, 0), Confirmed)


def test_pending_state_is_not_asked_about_for_days() -> None:
    """If the state is pending for `MAX_UNCONFIRMED` seconds, the hint is dead, because anybody may have sent it."""
    pending = response({"status": "SBX_PENDING"})
    ages = (MAX_UNCONFIRMED - 1, MAX_UNCONFIRMED)

    assert ["pending", "dead"] == [state_of(judge_response(ORDER, "payment", pending, PROFILE, age)) for age in ages]


@pytest.mark.parametrize(
    ("status", "profile", "missing"),
    [("SBX_ODD", ONLY_PAID, "states.order.pending"), ("SBX_PAID", NOWHERE, "answer.order_status")],
)
def test_setting_that_a_confirmation_needs_is_named(status: str, profile: Profile, missing: str) -> None:
    """If the profile says neither what the state is nor which is not final, the hint is parked."""
    found = judge_response(ORDER, "payment", response({"status": status}, profile=profile), profile, 0)

    assert ("parked", True) == (state_of(found), missing in str(found))


@pytest.mark.parametrize(("status", "profile"), [("SBX_ODD", PROFILE), ("SBX_PAID", ONLY_PAID)])
def test_final_state_confirms(status: str, profile: Profile) -> None:
    """A state is final if it has a name of ours, or if the profile says which states are not final."""
    found = judge_response(ORDER, "payment", response({"status": status}, profile=profile), profile, 0)

    assert isinstance(found, Confirmed)


@pytest.mark.parametrize("quarantine", [None, 5.0, 600.0])
def test_denial_is_believed_after_the_quarantine(quarantine: float | None) -> None:
    """A hint may be ahead of the service's books, by as much as the profile says."""
    profile = evolve(PROFILE, recovery=Recovery(quarantine=quarantine))
    bound = quarantine or DEFAULT_QUARANTINE
    states = [state_of(judge_error(ServiceError("no such order"), profile, age)) for age in (0, bound - 1, bound)]

    assert ["pending", "pending", "dead"] == states


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ServiceError("no such order"), "dead"),
        (ServiceError("not here any more", http_status=302), "pending"),
        (AuthenticationError("our key is wrong"), "pending"),
        (RateLimitedError("later"), "pending"),
        (NoAnswerError("nothing came"), "pending"),
        (NotSentError("no connection"), "pending"),
        (InvalidSignatureError("whose response is it"), "pending"),
        (InvalidArgumentError("an invalid number"), "parked"),
        (ConfigurationError("it does not say how to ask"), "parked"),
        (PayasyncError("anything"), "pending"),
        (OSError("anything"), "pending"),
    ],
)
def test_query_that_fails(error: Exception, state: str) -> None:
    """If a query of a hint fails, the kind of error decides whether the hint is dead, parked or queried again."""
    found = judge_error(error, PROFILE, 10**6)

    assert state == state_of(found)
    assert f"{type(error).__name__}: {error}" == found.reason


@pytest.mark.parametrize(
    ("expected", "reason"),
    [
        ({"totalAmt": 450, "currency": "CAD"}, None),
        ({"items": ({"no": 1},)}, None),
        ({}, None),
        ({"totalAmt": 451}, "totalAmt is 450, expected 451"),
        ({"totalAmt": "450"}, "totalAmt is 450, expected '450'"),
        ({"totalAmt": 450.0}, "totalAmt is 450, expected 450.0"),
        ({"currency": "CAD", "refunded": 1}, "refunded is absent, expected 1"),
        ({"totalAmt.inner": 1}, "totalAmt.inner is absent, expected 1"),
        (None, "it is unexpected"),
    ],
)
def test_what_is_expected(expected: dict[str, Any] | None, reason: str | None) -> None:
    """An event that differs is held; the reason names the field, and shows both values."""
    for verified in (True, False):  # an unsigned subscription is compared as it is
        found = compare_expected(notification({**PAID, "items": [{"no": 1}]}, verified=verified), expected, PROFILE)

        assert (reason and Transition("held", reason)) == found


@pytest.mark.parametrize(
    ("path", "fields", "hint"),
    [
        ("total_amt", {}, ". expect takes the service's names: totalAmt"),
        ("total_amt", {"total_amt": "sum"}, ". expect takes the service's names: sum"),
        ("out_refund_no", {}, ". expect takes the service's names: outRefundNo"),
        ("refundAmt", {}, ""),
        ("amount", {}, ""),
    ],
)
def test_name_of_an_argument_is_no_path(path: str, fields: dict[str, str], hint: str) -> None:
    """If `expect` names an argument of ours in place of a path, the reason says the service's own name."""
    held = compare_expected(notification(), {path: 1}, Profile(fields=fields))

    assert Transition("held", f"{path} is absent, expected 1{hint}") == held


@pytest.mark.parametrize("expected", [450, [("totalAmt", 450)], True, "totalAmt"])
def test_expectation_must_be_a_mapping(expected: object) -> None:
    """If `expect` returns something else by mistake, the event is tried again."""
    assert "pending" == state_of(compare_expected(notification(), expected, PROFILE))


@pytest.mark.parametrize("data", [None, [], "paid"])
def test_confirmed_response_without_data_meets_nothing(data: Any) -> None:
    """If the service confirms without data, the hint's own data does not stand in for it."""
    hint = notification(verified=False, confirmed=response(data))

    held = compare_expected(hint, {"totalAmt": 450}, PROFILE)

    assert Transition("held", "totalAmt is absent, expected 450") == held


M9: Final = {"merchantId": "M9"}
IN_DATA: Final = evolve(
    PROFILE,
    notification=evolve(PROFILE.notification, verification="body", signature="data.sign", time=""),
    signature=SortedPairs(algorithm="hmac-sha256", encoding="hex"),
)
IN_DOCUMENT: Final = evolve(IN_DATA, notification=evolve(IN_DATA.notification, signature="sign"))


@pytest.mark.parametrize(
    ("facts", "profile", "ours"),
    [
        ({}, PROFILE, True),
        *(({"data": {"merchantId": each}}, PROFILE, True) for each in ("7", 7, None)),
        *(({"data": {"merchantId": each}}, PROFILE, False) for each in ("M9", "m1", 1, True, ["7"])),
        ({"document": {"merchantId": "7", "data": PAID}}, PROFILE, True),
        ({"document": {**M9, "data": PAID}}, PROFILE, False),
        ({"data": M9, "document": {"data": M9}}, IN_DATA, False),
        ({"document": {**M9, "data": PAID}}, IN_DATA, True),
        ({"document": {**M9, "data": PAID}}, IN_DOCUMENT, False),
        ({"data": M9, "verified": False, "confirmed": response(PAID)}, PROFILE, True),
    ],
)
def test_merchant_of_an_event(facts: dict[str, Any], profile: Profile, *, ours: bool) -> None:
    """If an event names another merchant, in its payload or beside it, it is held.

    A hint's own merchant, or an unsigned one, is ignored, because anybody could have an event held with it.
    """
    found = hold_another(notification(**facts), "7", profile)

    assert ours or "held" == state_of(found)
    assert ours is (found is None)


REFUND_ELSEWHERE: Final = evolve(
    PROFILE,
    answer=evolve(PROFILE.answer, refund_status="refundStatus"),
    notification=evolve(PROFILE.notification, out_refund_no="back.no"),
)
"""Of a refund, the number and the state stand where no payment has any."""
REFUND_RENAMED: Final = evolve(
    PROFILE, fields={**PROFILE.fields, "out_refund_no": "refund_no", "refund_amt": "refundFee"}
)
"""The service calls the number and the amount of a refund otherwise than the document."""
GENERAL_NAMES: Final = evolve(PROFILE, fields={**PROFILE.fields, "out_refund_no": "reference", "refund_amt": "value"})
"""The names of a refund's number and amount may be those of a payment's, too."""


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
        ({"refund_no": "R1"}, REFUND_RENAMED, "refund_no is 'R1'"),
        ({"refundFee": 200}, REFUND_RENAMED, "refundFee is 200"),
    ],
)
def test_refund_that_came_as_a_payment(data: dict[str, Any], profile: Profile, why: str) -> None:
    """A payment that names a refund is held: by its number, amount or state, whatever the service calls them."""
    told = {"data": {**PAID, **data}, "out_refund_no": data.get("back", {}).get("no")}
    held = hold_refund(notification(**told), profile)

    assert held
    assert ("held", True) == (held.state, f"names a refund: {why}." in held.reason)
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


def test_general_names_tell_no_refund() -> None:
    """A payment may have a number and an amount of its own under names that do not say "refund"."""
    assert hold_refund(notification({**PAID, "reference": "P1", "value": 450}), GENERAL_NAMES) is None


def test_one_path_for_the_numbers_of_both() -> None:
    """If payments and refunds have their numbers at one path, a number there names a payment."""
    shape = evolve(PROFILE.notification, out_trade_no="no", out_refund_no="no")
    profile = evolve(PROFILE, notification=shape, answer=evolve(PROFILE.answer, payment_id="outRefundNo"))

    assert hold_refund(notification({"no": "T1", "outRefundNo": "P1"}), profile) is None


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


def test_waits_grow_up_to_an_hour() -> None:
    """Each wait can be four times as long as the one before, however many there were."""
    assert [1, 4, 16, 64, 256, 1024, 3600, 3600] == [longest_wait(failures) for failures in range(1, 9)]
    assert 3600 == longest_wait(1000)


def test_wait_is_at_least_half_as_long_as_it_can_be() -> None:
    """A wait is random between half of its bound and the bound."""
    waits = {draw_upper_half(10) for _ in range(1000)}

    assert all(5 <= each <= 10 for each in waits)
    assert max(waits) - min(waits) > 4


def test_attempts_last_for_days() -> None:
    """All attempts together last almost two days at least, and almost three days on average."""
    bounds = [longest_wait(failures) for failures in range(1, ATTEMPTS)]
    day = 86400

    assert sum(bounds) / 2 > 1.9 * day
    assert 2.9 * day < sum(bounds) * 3 / 4 < 3 * day


@pytest.mark.parametrize(
    ("attempts", "failures"), [(1, 0), (MAX_INTERRUPTIONS, 0), (MAX_INTERRUPTIONS + 1, 1), (100, 99)]
)
def test_what_failed_was_not_cut_off(attempts: int, failures: int) -> None:
    """An attempt that failed does not count as an interruption."""
    assert limit_interruptions(attempts, failures) is None


class Unspeakable(Exception):  # noqa: N818 - it is one
    """An error whose text raises an error."""

    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("a\nb\r\n\tc"), "ValueError: a b c"),
        (ValueError(), "ValueError"),
        (ValueError("x" * 10_000), f"ValueError: {'x' * 199}…"),
        (Unspeakable(), "Unspeakable"),
    ],
    ids=["lines", "empty", "long", "unspeakable"],
)
def test_reason_is_one_short_line(error: Exception, reason: str) -> None:
    """An error is described by its class and its text, whatever that is."""
    assert reason == describe_error(error)


QUESTION = ("orders.query", "T1")


def paid() -> Confirmed:
    """Return an end state."""
    return Confirmed("confirmed:payment:T1", None, OrderResponse(reply(), PROFILE.answer, PROFILE.states))


END_STATE = paid()


@pytest.fixture
def questions(clock: Clock) -> QueryLimiter:
    """What a receiver knows that has asked nothing yet."""
    return QueryLimiter(clock, most=BURST)


def asked(questions: QueryLimiter, event: int = 1, confirmed: Confirmed | None = END_STATE) -> None:
    """Ask, and have a response."""
    questions.begin(QUESTION, event)
    questions.end(QUESTION, confirmed)


async def test_response_that_is_not_final_holds_up_no_event(questions: QueryLimiter) -> None:
    """If nothing is final yet, or the query failed, the next event queries for itself."""
    questions.begin(QUESTION, 1)
    waiting = questions.recall(QUESTION, 2)
    questions.end(QUESTION, None)

    assert "pending" == state_of(waiting)
    assert questions.recall(QUESTION, 2) is None


@pytest.mark.parametrize("jump", [QUERY_PAUSE, -3600.0])
async def test_quiet_ends(questions: QueryLimiter, clock: Clock, jump: float) -> None:
    """A number may be queried again after a minute, or if the clock was set back."""
    asked(questions)
    clock.advance(jump)

    assert questions.recall(QUESTION, 1) is None


async def test_memory_is_bounded(questions: QueryLimiter, clock: Clock) -> None:
    """The query limiter forgets old queries with their responses, and at most `MAX_WAITING_EVENTS` events share one."""
    asked(questions)
    for event in range(2, MAX_WAITING_EVENTS + 3):
        questions.recall(QUESTION, event)
    clock.advance(QUERY_PAUSE)
    last = paid()
    held = weakref.ref(last.response)
    asked(questions, 2, last)
    spoken_for = [
        questions.recall(QUESTION, event) is last for event in (MAX_WAITING_EVENTS + 1, MAX_WAITING_EVENTS + 2)
    ]
    del last
    clock.advance(2 * QUERY_PAUSE)
    before = held()
    questions.begin(("orders.query", "T2"), 1)

    assert [True, False] == spoken_for
    assert before
    del before
    assert held() is None


def test_query_of_a_loop_that_has_ended() -> None:
    """A query of a loop that has ended is not in flight: another loop queries again, and keeps its own result."""
    questions = QueryLimiter(Clock(), most=BURST)
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()

    async def begin(event: int) -> Any:
        known = questions.recall(QUESTION, event)
        questions.begin(QUESTION, event)
        return known

    async def end() -> Any:
        questions.end(QUESTION, END_STATE)
        return questions.recall(QUESTION, 3)

    try:
        first.run_until_complete(begin(1))
        free = second.run_until_complete(begin(2))
        late = first.run_until_complete(end())
        waits = second.run_until_complete(end())
    finally:
        first.close()
        second.close()

    assert (None, None) == (free, late)
    assert isinstance(waits, Transition)


def waits(questions: QueryLimiter, *events: int, signed: bool = False) -> list[float]:
    """Have events ask about numbers of their own; return how long each has to wait for its turn, 0 if it asked."""
    found = list[float]()
    for event in events:
        query = ("orders.query", f"T{event}")
        known = questions.recall(query, event, signed=signed)
        if known is None:
            questions.begin(query, event)
            questions.end(query, None)
        found.append(known.wait or 0 if isinstance(known, Transition) else 0)
    return found


async def test_hints_query_in_order_and_not_too_often(questions: QueryLimiter, clock: Clock) -> None:
    """Hints about different numbers cause 100 queries, then 20 a second, in order. None waits for its turn twice."""
    began = clock()
    due, asked, claims = [(began, event) for event in range(300)], dict[int, float](), 0
    while due:
        moment, event = heapq.heappop(due)
        clock.advance(max(moment - clock(), 0))
        claims += 1
        (wait,) = waits(questions, event)
        if wait:
            heapq.heappush(due, (clock() + wait, event))
        else:
            asked[event] = clock() - began

    assert list(range(300)) == list(asked)
    assert [0.0] * BURST + [(event + 1) / RATE for event in range(200)] == pytest.approx(list(asked.values()), abs=0.01)
    assert BURST + 2 * 200 == claims


async def test_hints_delay_nothing_that_is_signed(questions: QueryLimiter) -> None:
    """Notifications that the service signed have a bucket of their own."""
    waits(questions, *range(1000))

    assert [0.0] * BURST == waits(questions, *range(1000, 1000 + BURST), signed=True)
    assert waits(questions, 2000, signed=True) > [0.0]


async def test_hint_that_comes_later_does_not_overtake(questions: QueryLimiter, clock: Clock) -> None:
    """A token belongs to the hint whose turn it is, even if another one comes first."""
    waits(questions, *range(BURST + 1))
    clock.advance(1 / RATE)

    assert [2 / RATE, 0.0] == pytest.approx(waits(questions, 1000, BURST))


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
async def test_queries_after_the_clock_was_set(questions: QueryLimiter, clock: Clock, jump: float) -> None:
    """After a jump of the clock, a burst of hints may query again, and no more, however many have waited."""
    waits(questions, *range(1000))
    clock.advance(jump)

    assert BURST == waits(questions, *range(100, 1000)).count(0.0)


async def test_turn_that_nobody_takes_is_free_again(questions: QueryLimiter, clock: Clock) -> None:
    """If events do not come at their turns, because another process has claimed them, others may query instead."""
    waits(questions, *range(2 * BURST))
    clock.advance(2 * BURST / RATE + 1)

    assert [0.0] == waits(questions, 1000)


async def test_turns_are_bounded(questions: QueryLimiter) -> None:
    """Of very many hints, the last ones have no turn: they come again when the others have had theirs."""
    last = waits(questions, *range(BURST + MAX_TURNS + 2))[-2:]

    assert [(MAX_TURNS + 1) / RATE] * 2 == pytest.approx(last, abs=0.01)


async def test_few_queries_are_in_flight(clock: Clock) -> None:
    """If the service is slow, hints wait, so that they do not take the place of events that need no query."""
    questions = QueryLimiter(clock, most=2)
    for event in (1, 2):
        questions.begin(("orders.query", f"T{event}"), event)
    (wait,) = waits(questions, 3)
    clock.advance(wait)
    (again,) = waits(questions, 3)
    questions.end(("orders.query", "T1"), None)
    clock.advance(again)

    assert (1 / RATE, 1 / RATE) == pytest.approx((wait, again))
    assert [0.0] == waits(questions, 3)


class Hinted(Shop):
    """A receiver of unsigned notifications, beside the service that confirms them."""

    sandbox: Sandbox
    pay: Session

    async def send(self, data: dict[str, Any], kind: str = "payment") -> None:
        """Have the receiver accept a hint, which anybody may send."""
        raw = json.dumps({"type": self.profile.notification.kinds[kind][0], "data": data}).encode()
        assert 200 == (await self.receiver.receive(raw, {})).status

    async def hint(self, data: dict[str, Any], kind: str = "payment") -> None:
        """Have the receiver accept a hint, and dispatch what is due."""
        await self.send(data, kind)
        await self.receiver.settle()

    async def failed_order(self) -> str:
        """Return the number of an order that was declined three times, and can still be closed."""
        order = await self.sandbox.given.pending_order()
        for _ in range(3):
            await self.sandbox.customer.decline(order)
        return order

    async def pass_by(self, *waits: float) -> None:
        """Let time go by, and have dispatched what falls due after each wait."""
        for wait in waits:
            self.clock.advance(wait)
            await self.receiver.settle()

    def asked(self, operation: str = "orders.query") -> int:
        """Return how often the service was asked."""
        return len(self.sandbox.ledger.calls(operation))

    async def keys(self) -> list[str]:
        """Return the keys of all events."""
        return [each.key for each in await self.receiver.events()]


@asynccontextmanager
async def hinted(folder: Path, profile: Any = UNSIGNED, **settings: Any) -> AsyncGenerator[Hinted]:
    """Return such a receiver, closed at the end."""
    async with Sandbox(profile) as sandbox, sandbox.session() as pay:
        shop = Hinted(folder, **{"profile": profile, "credentials": sandbox.credentials, "session": pay, **settings})
        shop.sandbox, shop.pay = sandbox, pay
        try:
            yield shop
        finally:
            await shop.receiver.aclose(grace=0)


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncGenerator[Hinted]:
    """Such a receiver, beside a service of its own."""
    async with hinted(tmp_path) as shop:
        yield shop


@frozen
class Payment:
    """What a handler wants to know of a payment."""

    outTradeNo: str  # noqa: N815 - as the service writes it
    totalAmt: int  # noqa: N815 - as above
    status: str


async def test_hint_is_handled_as_the_service_confirms_it(shop: Hinted) -> None:
    """A handler of a confirmed hint reads the service's data. `raw` and `document` are what arrived."""
    got = shop.recording("payment")
    order = await shop.sandbox.given.pending_order(total_amt=450)
    await shop.pay.orders.close(order)
    lie = {"outTradeNo": order, "totalAmt": 99999999, "status": "SBX_PAID"}
    await shop.hint(lie)
    (found,) = got
    key = f'confirmed:payment:["{order}","SBX_CLOSED"]'

    assert (450, Payment(order, 450, "SBX_CLOSED")) == (found.get("totalAmt"), found.to(Payment))
    assert (found.trusted, "closed", None, False) == (found.data, found.state, found.event, found.verified)
    assert ("payment.paid", lie) == (found.document["type"], found.document["data"])
    assert b"99999999" in found.raw
    assert ([key], ["done"], key) == (await shop.keys(), await shop.states(), found.dedup_key)


@pytest.mark.parametrize("words", [{"x": 1}, {}], ids=["other words", "same words"])
async def test_effect_is_not_repeated(words: dict[str, Any], shop: Hinted) -> None:
    """A second hint about a confirmed order is queried after the pause, and has no second effect."""
    got = shop.recording("payment")
    order = await shop.sandbox.given.paid_order()
    for data in ({}, words, words):
        await shop.hint({"outTradeNo": order, **data})
        await shop.pass_by(QUERY_PAUSE)

    assert (1, 3, {"done"}) == (len(got), shop.asked(), set(await shop.states()))
    assert "another event about the same was handled, or waits" == (await shop.last()).reason


async def test_effect_is_not_repeated_after_any_time(tmp_path: Path) -> None:
    """A hint about an old payment has no second effect, even after the retention."""
    async with hinted(tmp_path, retention=timedelta(days=1)) as shop:
        got = shop.recording("payment")
        order = await shop.sandbox.given.paid_order()
        await shop.hint({"outTradeNo": order})
        shop.clock.advance(timedelta(days=400).total_seconds())
        await shop.receiver.settle()
        await shop.hint({"outTradeNo": order})

        assert (1, ["done", "done"]) == (len(got), await shop.states())


async def test_numbers_are_those_of_the_service(shop: Hinted) -> None:
    """A confirmed refund has the numbers of the service's response, not those of the hint."""
    got = shop.recording("refund")
    order = await shop.sandbox.given.paid_order(450)
    await shop.pay.refunds.create(out_trade_no=order, out_refund_no="R1", total_amt=450, refund_amt=200)
    lie = {"outRefundNo": "R1", "outTradeNo": "T9", "subscriptionId": "S9", "paymentId": "P9"}
    await shop.hint(lie, "refund")
    (refund,) = got

    assert ("R1", order, None) == (refund.out_refund_no, refund.out_trade_no, refund.subscription_id)
    assert "P9" != refund.payment_id


async def test_lie_is_not_handled(shop: Hinted) -> None:
    """A hint that an order is paid has no effect until the order is paid."""
    got = shop.recording("payment")
    order = await shop.sandbox.given.pending_order()
    await shop.hint({"outTradeNo": order, "status": "SBX_PAID"})
    lie = await shop.last()
    await shop.sandbox.customer.authorize(order)
    shop.clock.advance(1)
    await shop.receiver.settle()

    assert ("pending", "the service does not confirm it yet: the state is 'SBX_PENDING'") == (lie.state, lie.reason)
    assert ["SBX_PAID"] == [each.trusted["status"] for each in got]


async def test_hint_of_what_does_not_exist_is_dead_when_the_service_has_had_its_time(tmp_path: Path) -> None:
    """A hint is dead if the service still denies it after the quarantine."""
    profile = evolve(UNSIGNED, recovery=Recovery(quarantine=20.0))
    async with hinted(tmp_path, profile) as shop:
        shop.recording("payment")
        await shop.hint({"outTradeNo": "T1"})
        states = await shop.states()
        for wait in (1, 4, 16):
            shop.clock.advance(wait)
            states += [(await shop.last()).state]
        event = await shop.last()

        assert (["pending", "pending", "pending", "dead"], 4) == (states, shop.asked())
        assert event.reason.startswith("ServiceError")


@pytest.mark.parametrize("made", [True, False], ids=["pending", "absent"])
async def test_nobody_can_poison_a_hint(made: bool, shop: Hinted) -> None:  # noqa: FBT001 - a case
    """If a hint was sent before the payment, the same hint is still handled when the payment is made."""
    got = shop.recording("payment")
    if made:
        await shop.sandbox.given.pending_order(out_trade_no="T1")
    await shop.hint({"outTradeNo": "T1"})
    if not made:
        await shop.sandbox.given.pending_order(out_trade_no="T1")
    await shop.sandbox.customer.authorize("T1")
    before = len(got)
    await shop.hint({"outTradeNo": "T1"})
    shop.clock.advance(3600)
    await shop.receiver.settle()

    assert (0, 1) == (before, len(got))


async def test_same_words_tell_of_another_state(shop: Hinted) -> None:
    """A hint that names only the order comes again when its state changes: both states are handled."""
    got = shop.recording("payment")
    order = await shop.failed_order()
    await shop.hint({"outTradeNo": order})
    await shop.pay.orders.close(order)
    await shop.hint({"outTradeNo": order})
    before = len(got)
    await shop.pass_by(QUERY_PAUSE)

    assert (1, ["SBX_FAILED", "SBX_CLOSED"]) == (before, [each.trusted["status"] for each in got])


async def test_retry_tells_what_the_service_says_by_then(shop: Hinted) -> None:
    """If the state changes before a retry, every handler is called with the new one, even one that was done."""
    fine, failing = shop.recording("payment"), list[str]()

    @shop.receiver.on("payment")
    async def fail_once(notification: Notification) -> None:
        failing.append(notification.trusted["status"])
        if len(failing) == 1:
            raise ValueError("not now")

    order = await shop.failed_order()
    await shop.hint({"outTradeNo": order})
    await shop.pay.orders.close(order)
    await shop.pass_by(QUERY_PAUSE)

    assert ["SBX_FAILED", "SBX_CLOSED"] == [each.trusted["status"] for each in fine] == failing
    assert [f'confirmed:payment:["{order}","SBX_CLOSED"]'] == await shop.keys()


async def test_retry_asks_again_and_owns_its_key_still(shop: Hinted) -> None:
    """If a handler fails after the confirmation, only that handler is called again, without another query."""
    fine, failing = shop.recording("payment"), list[int]()

    @shop.receiver.on("payment")
    async def fail_once(notification: Notification) -> None:
        failing.append(notification.attempt)
        if notification.attempt == 1:
            raise ValueError("not now")

    order = await shop.sandbox.given.paid_order()
    await shop.hint({"outTradeNo": order})
    await shop.hint({"outTradeNo": order, "x": 1})
    await shop.pass_by(1)
    asked = shop.asked()
    await shop.pass_by(QUERY_PAUSE)

    assert (1, [1, 2], ["done", "done"]) == (len(fine), failing, await shop.states())
    assert (1, 2) == (asked, shop.asked())


async def test_many_hints_about_one_order_are_a_few_queries(shop: Hinted) -> None:
    """100 hints about one confirmed order cause two queries: one for the first, one a pause later for the others."""
    got = shop.recording("payment")
    order = await shop.sandbox.given.paid_order()
    for number in range(100):
        await shop.send({"outTradeNo": order, "x": number})
    await shop.receiver.settle()
    asked = [shop.asked()]
    for wait in (QUERY_PAUSE - 1, 1, 4, 16, 60, 60):
        await shop.pass_by(wait)
        asked.append(shop.asked())

    assert (1, [1, 1, 2, 2, 2, 2, 2], {"done"}) == (len(got), asked, set(await shop.states()))


async def test_event_that_follows_soon_is_late_and_not_lost(tmp_path: Path) -> None:
    """A second hint within a minute waits. It is queried after the pause, and handled with its own state."""
    async with hinted(tmp_path, attempts=1) as shop:
        got = shop.recording("payment")
        order = await shop.failed_order()
        await shop.hint({"outTradeNo": order, "x": 1})
        await shop.pay.orders.close(order)
        await shop.pass_by(30)
        await shop.hint({"outTradeNo": order, "x": 2})
        waiting = await shop.last()
        await shop.pass_by(QUERY_PAUSE - 30)

        assert ("pending", "the same number was queried just now") == (waiting.state, waiting.reason)
        assert ["failed", "closed"] == [each.state for each in got]


async def test_one_query_is_in_flight_about_one_number(tmp_path: Path) -> None:
    """While a query is in flight, hints about the same number wait, and `attempts` does not limit them.

    Each is handled with a response whose query began after the hint arrived.
    """
    async with hinted(tmp_path, attempts=1) as shop:
        got = shop.recording("payment")
        order = await shop.sandbox.given.paid_order()
        other = await shop.sandbox.given.paid_order()
        shop.sandbox.faults.latency("orders.query", seconds=0.5, times=None)
        for number in range(3):
            await shop.send({"outTradeNo": order, "x": number})
        await shop.send({"outTradeNo": other})
        await shop.receiver.settle()
        waiting = await shop.receiver.events("pending")
        asked = [shop.asked()]
        for wait in (1, QUERY_PAUSE, 16):
            await shop.pass_by(wait)
            asked.append(shop.asked())

        assert ["a query about the same number is in flight"] * 2 == [each.reason for each in waiting]
        assert (2, [2, 2, 3, 3], {"done"}) == (len(got), asked, set(await shop.states()))


async def test_flood_of_hints_is_asked_about_slowly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hints about many numbers wait for a query, which counts neither as an attempt nor as a failure."""
    monkeypatch.setattr("payasync.notifications.transitions.BURST", 10)
    async with hinted(tmp_path, concurrency=50) as shop:
        shop.recording("payment")
        for number in range(40):
            await shop.send({"outTradeNo": f"X{number}"})
        await shop.receiver.settle()
        waiting = (await shop.receiver.events("pending"))[10:]
        asked = [shop.asked()]
        for _ in range(2):
            await shop.pass_by(0.5)
            asked.append(shop.asked())

    assert [10, 20, 30] == asked
    assert {(0, 0, "it waits for its turn, because many hints wait for a query")} == {
        (each.attempts, each.failures, each.reason) for each in waiting
    }


async def test_half_of_the_concurrency_waits_for_the_service(tmp_path: Path) -> None:
    """Half of the events that may be handled at the same time may wait for responses; a further hint waits."""
    async with hinted(tmp_path, concurrency=2) as shop:
        shop.recording("payment")
        shop.sandbox.faults.latency("orders.query", seconds=0.5, times=None)
        for number in range(2):
            await shop.send({"outTradeNo": f"X{number}"})
        await shop.receiver.settle()

        assert 1 == shop.asked()


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({}, "payment"),
        ({"outTradeNo": ""}, "payment"),
        ({"paymentId": "P1"}, "payment"),
        ({}, "refund"),
        (RENEWED, "subscription"),
    ],
)
async def test_hint_that_nothing_can_confirm_is_parked(data: dict[str, Any], kind: str, shop: Hinted) -> None:
    """Without a number, or for a subscription, there is nothing to query: the hint is listed, and nothing else."""
    got = shop.recording("*")
    await shop.hint(data, kind)

    assert ("parked", [], 0) == ((await shop.last()).state, got, len(shop.sandbox.ledger.calls()))


async def test_payment_is_confirmed_by_its_own_number(tmp_path: Path) -> None:
    """Endpoint 6 is asked where the profile knows no order number in notifications."""
    shape = evolve(UNSIGNED.notification, out_trade_no="")
    profile = evolve(UNSIGNED, notification=shape, payment_status=Parameter("paymentId"))
    async with hinted(tmp_path, profile) as shop:
        got = shop.recording("payment")
        created = await shop.pay.payments.create(amount=100, currency="USD")
        await shop.sandbox.customer.authorize(created)
        await shop.hint({"paymentId": created.payment_id})

        assert [100] == [each.trusted["amount"] for each in got]
        assert [f'confirmed:payment:["{created.payment_id}","SBX_PAID"]'] == await shop.keys()


async def test_refund_is_confirmed(shop: Hinted) -> None:
    """Endpoint 7 says what became of a refund; while it is processed, nothing is handled."""
    got = shop.recording("refund")
    order = await shop.sandbox.given.paid_order(450)
    await shop.pay.refunds.create(out_trade_no=order, out_refund_no="R1", total_amt=450, refund_amt=200)
    await shop.hint({"outRefundNo": "R1", "status": "anything"}, "refund")
    state = (await shop.pay.refunds.status("R1")).state

    assert (["SBX_SUCCEEDED"], "succeeded") == ([each.trusted["status"] for each in got], state)
    assert ['confirmed:refund:["R1","SBX_SUCCEEDED"]'] == await shop.keys()


async def test_expectation_is_of_the_service(tmp_path: Path) -> None:
    """`expect` is compared with the service's amount, not with the hint's."""
    async with hinted(tmp_path, expect=lambda _: {"totalAmt": 450, "currency": "CAD"}) as shop:
        got = shop.recording("payment")
        for amount in (450, 1):
            order = await shop.sandbox.given.paid_order(amount)
            await shop.hint({"outTradeNo": order, "totalAmt": 451 - amount})

        assert [450] == [each.trusted["totalAmt"] for each in got]
        assert ("held", "totalAmt is 1, expected 450") == (
            (await shop.last()).state,
            (await shop.last()).reason,
        )


async def test_subscription_is_handled_unverified_where_the_handler_says_so(shop: Hinted) -> None:
    """An `unverified` handler gets an unsigned subscription event once, as untrusted."""
    got = shop.recording("subscription", unverified=True)
    for _ in range(2):
        await shop.hint(RENEWED, "subscription")

    assert [(RENEWED, None, False)] == [(each.data, each.trusted, each.verified) for each in got]


async def test_payments_are_confirmed_for_who_takes_everything(shop: Hinted) -> None:
    """An `unverified` handler of every kind gets payments only if they are confirmed."""
    got = shop.recording("*", unverified=True)
    order = await shop.sandbox.given.paid_order()
    await shop.hint({"outTradeNo": order})
    await shop.hint({"outTradeNo": "T2"})

    assert [order] == [each.trusted["outTradeNo"] for each in got]
