"""Rules of the sandbox: billing periods, subscriptions, and settings of refunds."""

from calendar import monthrange
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.sandbox import Sandbox
from payasync.sandbox.model import Subscription
from payasync.sandbox.rules import FREQUENCIES, current_period, next_period, renew
from tests.sandbox.foreign import Answer, Foreign, Receiver


def walked(start: date, frequency: str, count: int) -> list[date]:
    """Return the start of each following period."""
    begun = list[date]()
    day: date | None = start
    while day and len(begun) < count:
        day = next_period(day, frequency, start)
        begun += [day] if day else []
    return begun


def test_frequencies() -> None:
    """Billing periods follow the calendar, with leap years and short months, up to the last year.

    A service may name the unit of time, such as `month`. If a period began on another day, later ones do, too.
    """
    for start, frequency, expected in (
        (date(2027, 1, 31), "monthly", ["2027-02-28", "2027-03-31", "2027-04-30", "2027-05-31"]),
        (date(2028, 2, 29), "yearly", ["2029-02-28", "2030-02-28", "2031-02-28", "2032-02-29"]),
        (date(2027, 11, 30), "quarterly", ["2028-02-29", "2028-05-30"]),
        (date(2027, 2, 26), "weekly", ["2027-03-05", "2027-03-12"]),
        (date(2028, 2, 28), "daily", ["2028-02-29", "2028-03-01"]),
        (date(2027, 1, 31), "MONTHLY", ["2027-02-28"]),
    ):
        assert expected == [day.isoformat() for day in walked(start, frequency, len(expected))]
    start, begun, last = date(2027, 1, 31), date(2027, 4, 30), date(9999, 12, 31)
    for one, other in {"daily": "day", "weekly": "week", "monthly": "month", "quarterly": "quarter"}.items() | {
        ("yearly", "YEAR")
    }:
        assert next_period(begun, one, start) == next_period(begun, other, start)
        assert current_period(start, one, begun) == current_period(start, other, begun)
    assert {None} == {next_period(last, frequency, last) for frequency in FREQUENCIES}
    assert [date(2027, 3, 7), date(2027, 4, 7)] == [
        next_period(date(2027, month, 7), "monthly", start) for month in (2, 3)
    ]


@given(
    start=st.dates(date(1, 1, 1), date(2100, 12, 31)),
    days=st.integers(0, 5000),
    frequency=st.sampled_from(FREQUENCIES),
)
def test_current_period_is_one_that_was_walked_to(start: date, days: int, frequency: str) -> None:
    """The current period begins at the last period start that is not after today."""
    today = start + timedelta(days=days)
    begun = current_period(start, frequency, today)
    following = next_period(begun, frequency, start)

    assert start <= begun <= today
    assert following is None or today < following
    if days < 400:
        assert begun in {start, *walked(start, frequency, days + 1)}


@given(
    start=st.dates(date(1, 1, 1), date(9000, 1, 1)),
    period=st.sampled_from([("monthly", 1), ("quarterly", 3), ("yearly", 12)]),
)
def test_no_month_is_left_out(start: date, period: tuple[str, int]) -> None:
    """Monthly periods skip no month, and begin on the start date's day or the month's last day."""
    frequency, length = period
    days = [start, *walked(start, frequency, 30)]
    months = [day.year * 12 + day.month for day in days]

    assert {length} == {after - before for before, after in pairwise(months)}
    assert [min(start.day, monthrange(day.year, day.month)[1]) for day in days] == [day.day for day in days]


def test_what_is_cancelled_is_not_renewed() -> None:
    """A late timer does not renew a cancelled subscription."""
    cancelled = Subscription(
        subscription_id="S1", frequency="daily", amount=9, start_date="2027-01-31", customer="{}", state="cancelled"
    )

    assert cancelled is renew(cancelled)


def notified(receiver: Receiver) -> list[tuple[str, int]]:
    """Return the event names and periods of the notifications."""
    return [(one.document["type"].partition(".")[2], one.document["data"]["period"]) for one in receiver.received]


def billed(sandbox: Sandbox, number: str) -> list[tuple[str, int]]:
    """Return the days and amounts of a subscription's charges."""
    return [(one.at.date().isoformat(), one.amount) for one in sandbox.ledger.charges(number)]


@pytest.fixture
def foreign(frozen: Sandbox, http: aiohttp.ClientSession) -> Foreign:
    """A merchant whose sandbox stands at noon of 31 January 2027."""
    return Foreign(frozen, http)


async def created(foreign: Foreign, start: str = "2027-01-31") -> str:
    """Create a subscription through the API, and return its number."""
    return str((await foreign.subscribe(startDate=start)).document["subscriptionId"])


async def sent(foreign: Foreign, action: str, number: str, **fields: object) -> Answer:
    """Update or cancel a subscription."""
    given = {"subscriptionId": number, **fields}
    return await foreign.send("POST", f"/subscriptions/{action}", json=given, headers=foreign.bearer)


async def test_updates_count_from_the_next_period_on(frozen: Sandbox, foreign: Foreign, receiver: Receiver) -> None:
    """An updated amount or frequency takes effect with the next period. Of past periods, only the current is billed.

    A scheduled subscription that is updated to start today becomes active and is billed.
    """
    number, later = await created(foreign), await created(foreign, "2027-03-01")
    old = await frozen.given.subscription(start_date=date(2000, 1, 15))
    updated = await sent(foreign, "update", number, amount=1000, billingFrequency="yearly")
    forward = await sent(foreign, "update", later, startDate="2027-01-31", amount=1000)
    await frozen.settle()
    started = notified(receiver), billed(frozen, later)
    await frozen.clock.advance(days=20)
    current = billed(frozen, old)
    await frozen.clock.advance(days=8 + 366)

    terms = updated.document["amount"], updated.document["billingFrequency"]
    assert (200, 1000, "yearly") == (updated.status, *terms)
    assert (200, "SBX_ACTIVE") == (forward.status, forward.document["status"])
    assert ([("started", 1)], [("2027-01-31", 1000)]) == started
    assert ["2027-01-31", "2027-02-15"] == [day for day, _ in current]
    assert [("2027-01-31", 900), ("2027-02-28", 1000), ("2028-02-29", 1000)] == billed(frozen, number)


async def test_third_failure_in_a_row_cancels(frozen: Sandbox, receiver: Receiver) -> None:
    """A success resets the count of failed charges. Three failures in a row cancel the subscription.

    `fail_renewals` with `times=0` lets charges succeed again. A cancelled subscription has no charges to fail.
    """
    number, spared = await frozen.given.subscription("daily"), await frozen.given.subscription()
    for times in (3, 0):
        await frozen.bank.fail_renewals(spared, times)
    await frozen.bank.fail_renewals(number, 2)
    await frozen.clock.advance(days=3)
    await frozen.bank.fail_renewals(number, 100)
    report = await frozen.clock.advance(days=100)
    with pytest.raises(InvalidArgumentError, match="the subscription is cancelled") as refused:
        await frozen.bank.fail_renewals(number)
    events = [each for each in notified(receiver) if each[0] != "renewed" or each[1] == 4]

    assert ("cancelled", "active") == tuple(frozen.ledger.subscription_state(each) for each in (number, spared))
    assert [("past_due", 2), ("past_due", 3), ("renewed", 4), ("past_due", 5), ("past_due", 6), ("cancelled", 7)] == (
        events[:6]
    )
    assert ["subscription past_due", "subscription past_due", "subscription cancelled"] == [
        one.what for one in report if one.what.startswith("subscription ") and one.number == number
    ]
    assert "subscription_id" == refused.value.field


@pytest.mark.parametrize("flag", [True, "true"])
async def test_cancel_at_period_end(frozen: Sandbox, foreign: Foreign, receiver: Receiver, flag: object) -> None:
    """With `atPeriodEnd`, a cancelled subscription stays active until its period ends, and is not billed again."""
    number = await created(foreign)
    answers = [await sent(foreign, "cancel", number, atPeriodEnd=flag) for _ in range(2)]
    await frozen.clock.advance(days=27)
    before = frozen.ledger.subscription_state(number), notified(receiver)
    await frozen.clock.advance(days=365)

    assert [(200, "SBX_ACTIVE")] * 2 == [(one.status, one.document["status"]) for one in answers]
    assert (("active", []), "cancelled") == (before, frozen.ledger.subscription_state(number))
    assert ([("cancelled", 1)], 1) == (notified(receiver), len(billed(frozen, number)))


async def test_cancel_immediately(frozen: Sandbox, foreign: Foreign) -> None:
    """Without `atPeriodEnd`, or before its start, a subscription is cancelled immediately, and never billed again.

    A flag that is neither true nor false is refused.
    """
    number = await created(foreign)
    flags: list[object] = [1, "yes", None, [], {}]
    for flag in flags:
        answer = await sent(foreign, "cancel", number, atPeriodEnd=flag)

        assert (422, "atPeriodEnd") == (answer.status, answer.document["field"])
        assert "active" == frozen.ledger.subscription_state(number)
    cases: list[tuple[str, dict[str, object], int]] = [
        ("2027-01-31", {}, 1),
        ("2027-01-31", {"atPeriodEnd": False}, 1),
        ("2027-01-31", {"atPeriodEnd": "false"}, 1),
        ("2027-03-01", {"atPeriodEnd": True}, 0),
    ]
    cancelled = list[tuple[str, int]]()
    for start, fields, charges in cases:
        cancelled.append((await created(foreign, start), charges))
        answer = await sent(foreign, "cancel", cancelled[-1][0], **fields)

        assert (200, "SBX_CANCELLED") == (answer.status, answer.document["status"])
    await frozen.clock.advance(days=365)

    for each, charges in cancelled:
        assert ("cancelled", charges) == (frozen.ledger.subscription_state(each), len(billed(frozen, each)))


def test_invalid_setting_is_refused() -> None:
    """An invalid value of a sandbox's setting is refused with the setting's name and the rule."""
    wrong: dict[str, tuple[str, list[Any]]] = {
        "refunds": ("", ["", "succeeded", "hand", None, 5, timedelta(), timedelta(days=-1), []]),
        "repeated_refunds": ("", ["", "once", None, True]),
        "failures": ('.*"status" or "200"', ["202"]),
        "db": (" the path of a file, or ':memory:', not 5", [5]),
        "profile": (r" a Profile, such as Profile\.from_file gives", ["service.toml", None]),
        "webhook_url": (" an absolute http or https URL", ["nonsense", "ftp://x", "http://", "", 7]),
    }
    for setting, (rule, values) in wrong.items():
        for value in values:
            with pytest.raises(ConfigurationError, match=f"^{setting} must be{rule}") as refused:
                Sandbox(**{setting: value})

            assert setting == refused.value.field
