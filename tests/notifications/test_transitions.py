"""What becomes of an event: decisions, and hints that the service, which is the sandbox here, confirms."""

import asyncio
import heapq
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import Parameter, Profile, QueryOrder, QueryPayment, QueryRefund, Recovery, SortedPairs, errors
from payasync.notifications import transitions
from payasync.notifications.transitions import BURST, QUERY_PAUSE, RATE, Confirmed, QueryLimiter, Transition
from payasync.sandbox import PROFILE
from payasync.wire.response import OrderResponse, PaymentResponse, RefundResponse, Response
from tests.building import reply
from tests.journal.building import Clock
from tests.notifications.merchant import PAID, RENEWED, UNSIGNED, Hinted, hinted, notification

ORDER: Final = QueryOrder(out_trade_no="T1")
ONLY_PAID: Final = evolve(PROFILE, states=evolve(PROFILE.states, order={"paid": ("SBX_PAID",)}))
NOWHERE: Final = evolve(PROFILE, answer=evolve(PROFILE.answer, order_status=""))


def response(data: Any, kind: type[Response] = OrderResponse, profile: Profile = PROFILE) -> Response:
    """Return a response of the service."""
    return kind(reply(data), profile.answer, profile.states)


def state_of(found: object) -> str:
    """Return the state of a transition."""
    assert isinstance(found, Transition)
    return found.state


def test_response_that_confirms_nothing() -> None:
    """A response about another number, or without a final state, confirms no hint.

    A service that takes `t1` for `T1` would confirm one payment under two names. A hint may come before the service's
    own books have it.
    """
    yet, about = "pending: the service does not confirm it yet: the state is 'SBX_P", "its response is about"
    payment, refund = QueryPayment(identifier="P1"), QueryRefund(identifier="R1")
    stateless: list[Any] = [{}, {"status": None}, {"status": True}, {"status": ["SBX_PAID"]}, [], None]
    cases: tuple[tuple[Any, type[Response], Any, str], ...] = (
        (
            ORDER,
            OrderResponse,
            {"status": "SBX_PAID", "outTradeNo": "t1"},
            f"held: the query was about 'T1', and {about}",
        ),
        (refund, RefundResponse, {"outRefundNo": "R2"}, f"held: the query was about 'R1', and {about}"),
        (payment, PaymentResponse, {"paymentId": "p1"}, f"held: the query was about 'P1', and {about}"),
        (ORDER, OrderResponse, {"status": "SBX_PENDING"}, f"{yet}ENDING'"),
        (payment, PaymentResponse, {"status": "SBX_PENDING"}, f"{yet}ENDING'"),
        (refund, RefundResponse, {"status": "SBX_PROCESSING"}, f"{yet}ROCESSING'"),
        (ORDER, OrderResponse, {"status": "SBX_PROCESSING"}, f"{yet}ROCESSING', which is that of another thing"),
        (payment, PaymentResponse, {"status": "SBX_PROCESSING"}, f"{yet}ROCESSING', which is that of another thing"),
        (refund, RefundResponse, {"status": "SBX_PAID"}, f"{yet}AID', which is that of another thing"),
        *((ORDER, OrderResponse, data, "pending: the response has no 'status'") for data in stateless),
    )
    for query, kind, data, reason in cases:
        found = transitions.judge_response(query, "payment", response(data, kind), PROFILE, 0)

        assert f"{state_of(found)}: {getattr(found, 'reason', '')}".startswith(reason), data


def test_number_of_a_confirmation_stands_where_the_profile_says() -> None:
    """The number is compared at the profile's path, else under the service's name for it; `""`: not compared."""
    renamed = {"fields": {"out_trade_no": "no"}}
    cases: tuple[tuple[dict[str, Any], dict[str, str], bool], ...] = (
        (renamed, {"no": "t1", "outTradeNo": "T1"}, False),
        (renamed, {"no": "T1", "outTradeNo": "its own"}, True),
        ({"answer": evolve(PROFILE.answer, out_trade_no="no")}, {"no": "t1"}, False),
        ({"answer": evolve(PROFILE.answer, out_trade_no="")}, {"outTradeNo": "its own"}, True),
    )
    for changes, number, confirms in cases:
        profile = evolve(PROFILE, **changes)
        paid = response({"status": "SBX_PAID", **number}, profile=profile)

        assert confirms is isinstance(transitions.judge_response(ORDER, "payment", paid, profile, 0), Confirmed), number


def test_pending_state_is_not_asked_about_for_days() -> None:
    """If the state is pending for `MAX_UNCONFIRMED` seconds, the hint is dead, because anybody may have sent it."""
    for cached in (0.0, 50.0):
        pending = OrderResponse(evolve(reply({"status": "SBX_PENDING"}), age=cached), PROFILE.answer, PROFILE.states)
        bound = transitions.MAX_UNCONFIRMED + cached

        assert ["pending", "dead"] == [
            state_of(transitions.judge_response(ORDER, "payment", pending, PROFILE, age)) for age in (bound - 1, bound)
        ]


def test_state_of_a_payment_may_have_the_name_of_an_order() -> None:
    """A payment and its order share names of states, and a profile may list one of them only."""
    profile = evolve(PROFILE, states=evolve(PROFILE.states, payment={"pending": ("SBX_PENDING",)}))
    paid = response({"status": "SBX_PAID", "paymentId": "P1"}, PaymentResponse, profile=profile)

    assert isinstance(transitions.judge_response(QueryPayment(identifier="P1"), "payment", paid, profile, 0), Confirmed)


def test_final_state_confirms() -> None:
    """A state is final if it has a name of ours, or if the profile says which states are not final.

    If the profile says neither what the state is nor which is not final, the hint is parked.
    """
    for status, profile, missing in (
        ("SBX_ODD", ONLY_PAID, "states.order.pending"),
        ("SBX_PAID", NOWHERE, "answer.order_status"),
        ("SBX_ODD", PROFILE, ""),
        ("SBX_PAID", ONLY_PAID, ""),
    ):
        found = transitions.judge_response(ORDER, "payment", response({"status": status}, profile=profile), profile, 0)

        assert ("parked" if missing else "confirmed") == getattr(found, "state", "confirmed")
        assert missing in str(found)


def test_denial_is_believed_after_the_quarantine() -> None:
    """A hint may be ahead of the service's books, by as much as the profile says. A cache may be behind them.

    If the service refuses the query, and does not say that it knows no such number, the hint waits for an hour.
    """
    cached = OrderResponse(evolve(reply({}), age=50.0), PROFILE.answer, PROFILE.states)
    for quarantine, absent, found, bound in (
        (None, True, None, transitions.DEFAULT_QUARANTINE),
        (5.0, True, None, 5.0),
        (600.0, True, None, 600.0),
        (5.0, True, cached, 55.0),
        (5.0, False, None, transitions.MAX_UNCONFIRMED),
        (9999.0, False, cached, 10049.0),
    ):
        profile = evolve(PROFILE, recovery=Recovery(quarantine=quarantine))
        error = errors.ServiceError("no such order", absent=absent, response=found)

        states = [state_of(transitions.judge_error(error, profile, age)) for age in (0, bound - 1, bound)]
        assert ["pending", "pending", "dead"] == states


def test_query_that_fails() -> None:
    """If a query of a hint fails, the kind of error decides whether the hint is dead, parked or queried again."""
    again = ("NoAnswer", "NotSent", "Authentication", "RateLimited", "InvalidSignature", "Payasync")
    for error, state in (
        (errors.ServiceError("no such order"), "dead"),
        (errors.ServiceError("not here any more", http_status=302), "pending"),
        *((getattr(errors, f"{name}Error")("anything"), "pending") for name in again),
        (OSError("anything"), "pending"),
        (errors.InvalidArgumentError("an invalid number"), "parked"),
        (errors.ConfigurationError("it does not say how to ask"), "parked"),
    ):
        found = transitions.judge_error(error, PROFILE, 10**6)

        assert (state, f"{type(error).__name__}: {error}") == (found.state, found.reason)


def test_what_is_expected() -> None:
    """An event that differs is held; the reason names the field, and shows both values.

    If the service confirms without data, the hint's own data does not stand in for it.
    """
    cases: tuple[tuple[dict[str, Any] | None, str | None], ...] = (
        ({"totalAmt": 450, "currency": "CAD"}, None),
        ({"items": ({"no": 1},)}, None),
        ({}, None),
        ({"totalAmt": 451}, "totalAmt is 450, expected 451"),
        ({"totalAmt": "450"}, "totalAmt is 450, expected '450'"),
        ({"totalAmt": 450.0}, "totalAmt is 450, expected 450.0"),
        ({"currency": "CAD", "refunded": 1}, "refunded is absent, expected 1"),
        ({"totalAmt.inner": 1}, "totalAmt.inner is absent, expected 1"),
        ({"total_amt": 1}, "total_amt is absent, expected 1. expect takes the service's names: totalAmt"),
        (None, "it is unexpected"),
    )
    for expected, reason in cases:
        for verified in (True, False):  # an unsigned subscription is compared as it is
            found = transitions.compare_expected(
                notification({**PAID, "items": [{"no": 1}]}, verified=verified), expected, PROFILE
            )

            assert (reason and Transition("held", reason)) == found
    empty: tuple[Any, ...] = (None, [], "paid")
    for data in empty:
        hint = notification(verified=False, confirmed=response(data))
        held = Transition("held", "totalAmt is absent, expected 450")

        assert held == transitions.compare_expected(hint, {"totalAmt": 450}, PROFILE)


def test_expectation_must_be_a_mapping() -> None:
    """If `expect` returns something else by mistake, the event is tried again."""
    for expected in (450, [("totalAmt", 450)], True, "totalAmt"):
        assert "pending" == state_of(transitions.compare_expected(notification(), expected, PROFILE))


IN_DATA: Final = evolve(
    PROFILE,
    notification=evolve(PROFILE.notification, verification="body", signature="data.sign", time=""),
    signature=SortedPairs(algorithm="hmac-sha256", encoding="hex"),
)
IN_DOCUMENT: Final = evolve(IN_DATA, notification=evolve(IN_DATA.notification, signature="sign"))


def test_merchant_of_an_event() -> None:
    """If an event names another merchant, in its payload or beside it, it is held.

    A hint's own merchant, or an unsigned one, is ignored, because anybody could have an event held with it.
    """
    m9: dict[str, Any] = {"merchantId": "M9"}
    beside = {"document": {**m9, "data": PAID}}
    mine: tuple[Any, ...] = ("7", 7, None)
    others: tuple[Any, ...] = ("M9", "m1", 1, True, ["7"])
    cases: tuple[tuple[dict[str, Any], Profile, bool], ...] = (
        ({}, PROFILE, True),
        *(({"data": {"merchantId": each}}, PROFILE, True) for each in mine),
        *(({"data": {"merchantId": each}}, PROFILE, False) for each in others),
        ({"document": {"merchantId": "7", "data": PAID}}, PROFILE, True),
        (beside, PROFILE, False),
        ({"data": m9, "document": {"data": m9}}, IN_DATA, False),
        (beside, IN_DATA, True),
        (beside, IN_DOCUMENT, False),
        ({"data": m9, "verified": False, "confirmed": response(PAID)}, PROFILE, True),
    )
    for facts, profile, ours in cases:
        found = transitions.hold_another(notification(**facts), "7", profile)

        assert (None if ours else "held") == (found and found.state), facts


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


def test_refund_that_came_as_a_payment() -> None:
    """A payment that names a refund is held: by its number, amount or state, whatever the service calls them."""
    cases: tuple[tuple[dict[str, Any], Profile, str], ...] = (
        ({"outRefundNo": "R1"}, PROFILE, "outRefundNo is 'R1'"),
        ({"outRefundNo": 7}, PROFILE, "outRefundNo is '7'"),
        ({"back": {"no": "R1"}}, REFUND_ELSEWHERE, "back.no is 'R1'"),
        ({"outRefundNo": "R1"}, REFUND_ELSEWHERE, "outRefundNo is 'R1'"),
        ({"refundAmt": 200}, PROFILE, "refundAmt is 200"),
        ({"refundAmt": "0.50"}, PROFILE, "refundAmt is '0.50'"),
        ({"refundStatus": "SBX_SUCCEEDED"}, REFUND_ELSEWHERE, "refundStatus is 'SBX_SUCCEEDED'"),
        ({"refund_no": "R1"}, REFUND_RENAMED, "refund_no is 'R1'"),
        ({"refundFee": 200}, REFUND_RENAMED, "refundFee is 200"),
    )
    for data, profile, why in cases:
        facts = {"data": {**PAID, **data}, "out_refund_no": data.get("back", {}).get("no")}
        held = transitions.hold_refund(notification(**facts), profile)

        assert held
        assert ("held", True) == (held.state, f"names a refund: {why}." in held.reason)
        for kind in ("refund", None):
            assert transitions.hold_refund(notification(**facts, kind=kind), profile) is None


@pytest.mark.parametrize("profile", [PROFILE, REFUND_ELSEWHERE], ids=["own", "elsewhere"])
def test_payment_that_names_no_refund(profile: Profile) -> None:
    """A service may list all fields of a refund in each payment: null, an empty text and 0 name none."""
    payments: tuple[dict[str, Any], ...] = (
        {},
        {"outRefundNo": None, "refundAmt": None, "refundStatus": None},
        {"outRefundNo": "", "refundAmt": "", "refundStatus": ""},
        {"outRefundNo": " ", "refundAmt": 0, "refundStatus": "NO_REFUND"},
        {"outRefundNo": [], "refundAmt": "0.00", "refundStatus": "SBX_PAID"},
        {"outRefundNo": {}, "refundAmt": False, "refundStatus": []},
        {"refundAmt": [1], "refundDesc": "R1", "back": {"no": None}},
    )
    for data in payments:
        assert transitions.hold_refund(notification({**PAID, **data}), profile) is None, data


def test_names_that_payments_have_tell_no_refund() -> None:
    """A payment may have a number and an amount of its own under names that do not say "refund".

    If payments and refunds have their numbers at one path, a number there names a payment.
    """
    shape = evolve(PROFILE.notification, out_trade_no="no", out_refund_no="no")
    profile = evolve(PROFILE, notification=shape, answer=evolve(PROFILE.answer, payment_id="outRefundNo"))

    assert transitions.hold_refund(notification({**PAID, "reference": "P1", "value": 450}), GENERAL_NAMES) is None
    assert transitions.hold_refund(notification({"no": "T1", "outRefundNo": "P1"}), profile) is None


def test_values_of_other_types_differ() -> None:
    """Python thinks some of these equal; money does not."""
    numbers: list[tuple[Any, Any]] = [(1, True), (True, 1), (0, False), (1, 1.0), ("1", 1), (None, False)]
    nested: list[tuple[Any, Any]] = [
        ([1], [True]),
        ([1], [1, 1]),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"a": 1, "b": 1}),
    ]
    for found, expected in (*numbers, *nested, ([], {}), ({}, [])):
        assert not transitions.is_same(found, expected), (found, expected)


def test_waits_grow_up_to_an_hour() -> None:
    """Each wait can be four times as long as the one before, however many there were.

    All attempts together last almost two days at least, and almost three days on average.
    """
    bounds, day = [transitions.longest_wait(failures) for failures in range(1, transitions.ATTEMPTS)], 86400

    assert [1, 4, 16, 64, 256, 1024, 3600, 3600] == [transitions.longest_wait(failures) for failures in range(1, 9)]
    assert 3600 == transitions.longest_wait(1000)
    assert sum(bounds) / 2 > 1.9 * day
    assert 2.9 * day < sum(bounds) * 3 / 4 < 3 * day


def test_wait_is_at_least_half_as_long_as_it_can_be() -> None:
    """A wait is random between half of its bound and the bound."""
    waits = {transitions.draw_upper_half(10) for _ in range(1000)}

    assert all(5 <= each <= 10 for each in waits)
    assert max(waits) - min(waits) > 4


def test_reason_is_one_short_line() -> None:
    """An error is described by its class and its text, whatever that is."""
    unspeakable = type("Unspeakable", (Exception,), {"__str__": lambda _: 1})()
    for error, reason in (
        (ValueError("a\nb\r\n\tc"), "ValueError: a b c"),
        (ValueError(), "ValueError"),
        (ValueError("x" * 10_000), f"ValueError: {'x' * 199}…"),
        (unspeakable, "Unspeakable"),
    ):
        assert reason == errors.describe_error(error)


QUESTION = ("orders.query", "T1")


END_STATE: Final = Confirmed("confirmed:payment:T1", None, OrderResponse(reply(), PROFILE.answer, PROFILE.states))


@pytest.fixture
def questions(clock: Clock) -> QueryLimiter:
    """What a receiver knows that has asked nothing yet."""
    return QueryLimiter(clock, most=BURST)


def asked(questions: QueryLimiter, event: int = 1) -> None:
    """Ask, and have a response."""
    questions.begin(QUESTION, event)
    questions.end(QUESTION, END_STATE)


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
    """At most `MAX_WAITING_EVENTS` events share the response to a query."""
    asked(questions)
    for event in range(2, transitions.MAX_WAITING_EVENTS + 3):
        questions.recall(QUESTION, event)
    clock.advance(QUERY_PAUSE)
    asked(questions, 2)
    last = [questions.recall(QUESTION, transitions.MAX_WAITING_EVENTS + more) is END_STATE for more in (1, 2)]

    assert [True, False] == last


def test_query_of_a_loop_that_has_ended() -> None:
    """A query of a loop that has ended is not in flight: another loop queries again, and keeps its own result."""
    questions = QueryLimiter(Clock(), most=BURST)

    async def begin(event: int) -> Any:
        known = questions.recall(QUESTION, event)
        questions.begin(QUESTION, event)
        return known

    async def end() -> Any:
        questions.end(QUESTION, END_STATE)
        return questions.recall(QUESTION, 3)

    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(begin(1))
        free, late, waits = second.run(begin(2)), first.run(end()), second.run(end())

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


async def test_hint_that_comes_later_does_not_overtake(questions: QueryLimiter, clock: Clock) -> None:
    """A token belongs to the hint whose turn it is, even if another one comes first."""
    waits(questions, *range(BURST + 1))
    clock.advance(1 / RATE)

    assert [2 / RATE, 0.0] == pytest.approx(waits(questions, 1000, BURST))


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
async def test_queries_after_the_clock_was_set(questions: QueryLimiter, clock: Clock, jump: float) -> None:
    """After a jump of the clock, a burst of hints may query again, and no more, however many have waited.

    If events do not come at their turns, because another process has claimed them, others may query instead.
    """
    waits(questions, *range(1000))
    clock.advance(jump)

    assert BURST == waits(questions, *range(100, 1000)).count(0.0)
    clock.advance(1000 / RATE)
    assert [0.0] == waits(questions, 1000)


async def test_turns_are_bounded(questions: QueryLimiter) -> None:
    """Of very many hints, the last ones have no turn: they come again when the others have had theirs."""
    last = waits(questions, *range(BURST + transitions.MAX_TURNS + 2))[-2:]

    assert [(transitions.MAX_TURNS + 1) / RATE] * 2 == pytest.approx(last, abs=0.01)


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncGenerator[Hinted]:
    """A receiver of hints, beside a service of its own."""
    async with hinted(tmp_path) as shop:
        yield shop


async def test_hint_is_handled_as_the_service_confirms_it(shop: Hinted) -> None:
    """A handler of a confirmed hint reads the service's data. `raw` and `document` are what arrived."""
    got = shop.recording("payment")
    order = await shop.sandbox.given.pending_order(total_amt=450)
    await shop.pay.orders.close(order)
    lie = {"outTradeNo": order, "totalAmt": 99999999, "status": "SBX_PAID"}
    await shop.hint(lie)
    (found,) = got
    key = f'confirmed:payment:["{order}","SBX_CLOSED"]'

    assert 450 == found.get("totalAmt")
    assert (found.trusted, "closed", None, False) == (found.data, found.state, found.event, found.verified)
    assert ("payment.paid", lie) == (found.document["type"], found.document["data"])
    assert b"99999999" in found.raw
    assert ([key], ["done"], key) == (await shop.keys(), await shop.states(), found.dedup_key)


@pytest.mark.parametrize("words", [{"x": 1}, {}], ids=["other words", "same words"])
async def test_effect_is_not_repeated(words: dict[str, Any], tmp_path: Path) -> None:
    """A further hint about a confirmed order is queried after the pause, and has no effect, after any time."""
    async with hinted(tmp_path, retention=timedelta(days=1)) as shop:
        got = shop.recording("payment")
        order = await shop.sandbox.given.paid_order()
        for data, wait in (({}, 0), (words, QUERY_PAUSE), (words, 400 * 86400), (words, QUERY_PAUSE)):
            await shop.hint({"outTradeNo": order, **data})
            await shop.later(wait)

        assert (1, {"done"}) == (len(got), set(await shop.states()))
        assert "another event about the same was handled, or waits" == (await shop.last()).reason


async def test_hint_of_what_does_not_exist_is_dead_when_the_service_has_had_its_time(tmp_path: Path) -> None:
    """A hint is dead if the service still denies it after the quarantine."""
    async with hinted(tmp_path, evolve(UNSIGNED, recovery=Recovery(quarantine=20.0))) as shop:
        shop.recording("payment")
        events = [await shop.hint({"outTradeNo": "T1"}), *[await shop.later(wait) for wait in (1, 4, 16)]]

        assert (["pending", "pending", "pending", "dead"], 4) == ([each.state for each in events], shop.asked())
        assert events[-1].reason.startswith("ServiceError")


@pytest.mark.parametrize("made", [True, False], ids=["pending", "absent"])
async def test_nobody_can_poison_a_hint(made: bool, shop: Hinted) -> None:  # noqa: FBT001 - a case
    """A hint that was sent before the payment has no effect until then; the same hint is still handled afterwards."""
    got = shop.recording("payment")
    if made:
        await shop.sandbox.given.pending_order(out_trade_no="T1")
    lie = await shop.hint({"outTradeNo": "T1", "status": "SBX_PAID"})
    if not made:
        await shop.sandbox.given.pending_order(out_trade_no="T1")
    await shop.sandbox.customer.authorize("T1")
    before = len(got)
    await shop.hint({"outTradeNo": "T1", "status": "SBX_PAID"})
    await shop.later(3600)

    assert ("pending", 0, ["SBX_PAID"]) == (lie.state, before, [each.trusted["status"] for each in got])
    assert not made or "the service does not confirm it yet: the state is 'SBX_PENDING'" == lie.reason


async def test_same_words_tell_of_another_state(shop: Hinted) -> None:
    """A hint that names only the order comes again when its state changes: both states are handled."""
    got = shop.recording("payment")
    order = await shop.failed_order()
    await shop.hint({"outTradeNo": order})
    await shop.pay.orders.close(order)
    await shop.hint({"outTradeNo": order})
    before = len(got)
    await shop.later(QUERY_PAUSE)

    assert (1, ["SBX_FAILED", "SBX_CLOSED"]) == (before, [each.trusted["status"] for each in got])


async def test_retry_has_the_state_that_the_service_has_by_then(shop: Hinted) -> None:
    """If the state changes before a retry, every handler is called with the new one, even one that was done."""
    got = [shop.recording("payment"), shop.recording("payment", fails=1)]
    order = await shop.failed_order()
    await shop.hint({"outTradeNo": order})
    await shop.pay.orders.close(order)
    await shop.later(QUERY_PAUSE)

    assert [["SBX_FAILED", "SBX_CLOSED"]] * 2 == [[each.trusted["status"] for each in one] for one in got]
    assert [f'confirmed:payment:["{order}","SBX_CLOSED"]'] == await shop.keys()


async def test_retry_queries_nothing_and_keeps_its_key(shop: Hinted) -> None:
    """If a handler fails after the confirmation, only that handler is called again, without another query."""
    fine, failing = shop.recording("payment"), shop.recording("payment", fails=1)
    order = await shop.sandbox.given.paid_order()
    await shop.hint({"outTradeNo": order})
    await shop.hint({"outTradeNo": order, "x": 1})
    await shop.later(1)
    asked = shop.asked()
    await shop.later(QUERY_PAUSE)

    assert (1, [1, 2], ["done", "done"]) == (len(fine), [each.attempt for each in failing], await shop.states())
    assert (1, 2) == (asked, shop.asked())


async def test_many_hints_about_one_order_are_a_few_queries(shop: Hinted) -> None:
    """30 hints about one confirmed order cause two queries: one for the first, one a pause later for the others."""
    got = shop.recording("payment")
    order = await shop.sandbox.given.paid_order()
    for number in range(30):
        await shop.send({"outTradeNo": order, "x": number})
    await shop.receiver.settle()
    asked = [shop.asked()]
    for wait in (QUERY_PAUSE - 1, 1, 4, 16, 60, 60):
        await shop.later(wait)
        asked.append(shop.asked())

    assert (1, [1, 1, 2, 2, 2, 2, 2], {"done"}) == (len(got), asked, set(await shop.states()))


async def test_one_query_is_in_flight_about_one_number(tmp_path: Path) -> None:
    """While a query is in flight, hints about the same number wait, which is no attempt and no failure.

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
            await shop.later(wait)
            asked.append(shop.asked())

        found = [(each.attempts, each.failures, each.reason) for each in waiting]
        assert [(0, 0, "a query about the same number is in flight")] * 2 == found
        assert (2, [2, 2, 3, 3], {"done"}) == (len(got), asked, set(await shop.states()))


async def test_half_of_the_concurrency_waits_for_the_service(tmp_path: Path) -> None:
    """Half of the events that may be handled at the same time may wait for responses; a further hint waits."""
    async with hinted(tmp_path, concurrency=2) as shop:
        shop.recording("payment")
        shop.sandbox.faults.latency("orders.query", seconds=0.5, times=None)
        for number in range(2):
            await shop.send({"outTradeNo": f"X{number}"})
        await shop.receiver.settle()

        assert 1 == shop.asked()


async def test_hint_that_nothing_can_confirm_is_parked(shop: Hinted) -> None:
    """Without a number, or for a subscription, there is nothing to query: the hint is listed, and nothing else."""
    got = shop.recording("*")
    payments: list[dict[str, Any]] = [{}, {"outTradeNo": ""}, {"paymentId": "P1"}]
    for data, kind in (*((each, "payment") for each in payments), ({}, "refund"), (RENEWED, "subscription")):
        assert "parked" == (await shop.hint(data, kind)).state

    assert ([], 0) == (got, len(shop.sandbox.ledger.calls()))
    assert "nothing can confirm subscriptions" in (await shop.last()).reason


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
    """Endpoint 7 says what became of a refund; while it is processed, nothing is handled.

    A confirmed refund has the numbers of the service's response, not those of the hint.
    """
    got = shop.recording("refund")
    order = await shop.sandbox.given.paid_order(450)
    await shop.pay.refunds.create(out_trade_no=order, out_refund_no="R1", total_amt=450, refund_amt=200)
    lie = {"outRefundNo": "R1", "outTradeNo": "T9", "subscriptionId": "S9", "paymentId": "P9", "status": "anything"}
    await shop.hint(lie, "refund")
    (refund,) = got

    assert ("SBX_SUCCEEDED", "succeeded") == (refund.trusted["status"], (await shop.pay.refunds.status("R1")).state)
    assert ("R1", order, None) == (refund.out_refund_no, refund.out_trade_no, refund.subscription_id)
    assert "P9" != refund.payment_id
    assert ['confirmed:refund:["R1","SBX_SUCCEEDED"]'] == await shop.keys()


async def test_expectation_is_of_the_service(tmp_path: Path) -> None:
    """`expect` is compared with the service's amount, not with the hint's."""
    async with hinted(tmp_path, expect=lambda _: {"totalAmt": 450, "currency": "CAD"}) as shop:
        got = shop.recording("payment")
        for amount in (450, 1):
            order = await shop.sandbox.given.paid_order(amount)
            await shop.hint({"outTradeNo": order, "totalAmt": 451 - amount})
        event = await shop.last()

        assert [450] == [each.trusted["totalAmt"] for each in got]
        assert ("held", "totalAmt is 1, expected 450") == (event.state, event.reason)


async def test_subscription_is_handled_unverified_where_the_handler_says_so(shop: Hinted) -> None:
    """An `unverified` handler gets an unsigned subscription event once, as untrusted, and payments if confirmed."""
    got = shop.recording("*", unverified=True)
    order = await shop.sandbox.given.paid_order()
    for data, kind in ((RENEWED, "subscription"), (RENEWED, "subscription"), ({"outTradeNo": order}, "payment")):
        await shop.hint(data, kind)
    await shop.hint({"outTradeNo": "T2"})

    assert (RENEWED, None, False) == (got[0].data, got[0].trusted, got[0].verified)
    assert [order] == [each.trusted["outTradeNo"] for each in got[1:]]
