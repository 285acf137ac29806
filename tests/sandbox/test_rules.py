"""Rules of the sandbox: billing periods, subscriptions, and settings of refunds."""

from calendar import monthrange
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payasync.errors import ConfigurationError
from payasync.sandbox import Sandbox, rules
from payasync.sandbox.model import Subscription
from payasync.sandbox.rules import FREQUENCIES, current_period, next_period
from tests.sandbox.foreign import Foreign, Receiver


def walked(start: date, frequency: str, count: int) -> list[date]:
    """Return the start of each following period."""
    begun = list[date]()
    day: date | None = start
    while day and len(begun) < count:
        day = next_period(day, frequency, start)
        begun += [day] if day else []
    return begun


@pytest.mark.parametrize(
    ("start", "frequency", "expected"),
    [
        (date(2027, 1, 31), "monthly", ["2027-02-28", "2027-03-31", "2027-04-30", "2027-05-31"]),
        (date(2028, 1, 31), "monthly", ["2028-02-29", "2028-03-31"]),
        (date(2028, 2, 29), "yearly", ["2029-02-28", "2030-02-28", "2031-02-28", "2032-02-29"]),
        (date(2027, 11, 30), "quarterly", ["2028-02-29", "2028-05-30"]),
        (date(2027, 12, 15), "monthly", ["2028-01-15", "2028-02-15"]),
        (date(2027, 2, 26), "weekly", ["2027-03-05", "2027-03-12"]),
        (date(2028, 2, 28), "daily", ["2028-02-29", "2028-03-01"]),
        (date(2027, 1, 31), "MONTHLY", ["2027-02-28"]),
    ],
)
def test_frequencies(start: date, frequency: str, expected: list[str]) -> None:
    """Billing periods follow the calendar, with leap years and short months."""
    assert expected == [day.isoformat() for day in walked(start, frequency, len(expected))]


def test_frequency_that_has_changed() -> None:
    """If a period began on another day than the start date's, later periods begin on that day, too."""
    start, begun = date(2027, 1, 31), date(2027, 2, 7)
    days = [begun]
    for _ in range(2):
        days.append(next_period(days[-1], "monthly", start) or begun)

    assert [date(2027, 2, 7), date(2027, 3, 7), date(2027, 4, 7)] == days


@pytest.mark.parametrize(
    ("one", "other"),
    [("daily", "day"), ("weekly", "week"), ("monthly", "month"), ("quarterly", "quarter"), ("yearly", "YEAR")],
)
def test_units_of_time_are_frequencies(one: str, other: str) -> None:
    """A service may name the unit of time, such as `month`, in place of the frequency."""
    start, begun = date(2027, 1, 31), date(2027, 4, 30)

    assert next_period(begun, one, start) == next_period(begun, other, start)
    assert current_period(start, one, begun) == current_period(start, other, begun)


@pytest.mark.parametrize("frequency", FREQUENCIES)
def test_calendar_ends(frequency: str) -> None:
    """After the last year there is no period."""
    assert next_period(date(9999, 12, 31), frequency, date(9999, 12, 31)) is None


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
        subscription_id="S1",
        frequency="daily",
        amount=9,
        start_date=date(2027, 1, 31),
        customer="{}",
        state="cancelled",
    )

    assert cancelled is rules.renew(cancelled)


START: Final = datetime(2027, 1, 31, 12, tzinfo=UTC)
MONTH: Final = timedelta(days=31)
UPDATE: Final = "/subscriptions/update"
CANCEL: Final = "/subscriptions/cancel"


@pytest.fixture
async def sandbox(receiver: Receiver) -> AsyncIterator[Sandbox]:
    """A sandbox whose time stands at noon of 31 January 2027."""
    async with Sandbox(clock=START, webhook_url=receiver.url) as running:
        yield running


@pytest.fixture
def foreign(sandbox: Sandbox, http: aiohttp.ClientSession) -> Foreign:
    """A client that is not payasync's."""
    return Foreign(sandbox, http)


def told(receiver: Receiver) -> list[tuple[str, int]]:
    """Return the event names and periods of the notifications."""
    return [(one.document["type"].partition(".")[2], one.document["data"]["period"]) for one in receiver.received]


async def created(foreign: Foreign, **changes: Any) -> str:
    """Create a subscription through the API, and return its number."""
    answer = await foreign.subscribe(**{"startDate": "2027-01-31", **changes})
    return str(answer.document["subscriptionId"])


async def test_created_in_the_past_is_billed_for_this_period_only(sandbox: Sandbox) -> None:
    """With a start date years ago, only the current period is billed, and then each next one."""
    number = await sandbox.given.subscription(start_date=date(2000, 1, 15))
    await sandbox.clock.advance(days=20)

    assert ["2027-01-31", "2027-02-15"] == [one.at.date().isoformat() for one in sandbox.ledger.charges(number)]


async def test_update_counts_from_the_next_period_on(sandbox: Sandbox, foreign: Foreign) -> None:
    """An updated amount or frequency takes effect with the next period."""
    number = await created(foreign)
    changes = {"subscriptionId": number, "amount": 1000, "billingFrequency": "yearly"}
    updated = await foreign.send("POST", UPDATE, json=changes, headers=foreign.bearer)
    await sandbox.clock.advance(days=28 + 366)

    assert (200, 1000, "yearly") == (
        updated.status,
        updated.document["amount"],
        updated.document["billingFrequency"],
    )
    assert [("2027-01-31", 900), ("2027-02-28", 1000), ("2028-02-29", 1000)] == [
        (one.at.date().isoformat(), one.amount) for one in sandbox.ledger.charges(number)
    ]


async def test_start_that_is_brought_forward_begins_it(sandbox: Sandbox, foreign: Foreign, receiver: Receiver) -> None:
    """If a scheduled subscription is updated to start today, it becomes active and is billed."""
    number = await created(foreign, startDate="2027-03-01")
    changes = {"subscriptionId": number, "startDate": "2027-01-31", "amount": 1000}
    updated = await foreign.send("POST", UPDATE, json=changes, headers=foreign.bearer)
    await sandbox.settle()

    assert (200, "SBX_ACTIVE") == (updated.status, updated.document["status"])
    assert ([("started", 1)], [1000]) == (told(receiver), [one.amount for one in sandbox.ledger.charges(number)])


async def test_third_failure_in_a_row_cancels(sandbox: Sandbox, receiver: Receiver) -> None:
    """A success resets the count of failed charges. Three failures in a row cancel the subscription."""
    number = await sandbox.given.subscription("daily")
    await sandbox.bank.fail_renewals(number, 2)
    await sandbox.clock.advance(days=3)
    await sandbox.bank.fail_renewals(number, 100)
    report = await sandbox.clock.advance(days=100)

    assert "cancelled" == sandbox.ledger.subscription_state(number)
    assert [("past_due", 2), ("past_due", 3), ("renewed", 4), ("past_due", 5), ("past_due", 6), ("cancelled", 7)] == (
        told(receiver)
    )
    assert ["subscription past_due", "subscription past_due", "subscription cancelled"] == [
        one.what for one in report if one.what.startswith("subscription ")
    ]


async def test_failing_can_be_taken_back(sandbox: Sandbox) -> None:
    """`fail_renewals` with `times=0` lets charges succeed again."""
    number = await sandbox.given.subscription()
    await sandbox.bank.fail_renewals(number, 3)
    await sandbox.bank.fail_renewals(number, 0)
    await sandbox.clock.advance(MONTH)

    assert "active" == sandbox.ledger.subscription_state(number)


@pytest.mark.parametrize("flag", [True, "true"])
async def test_cancel_at_period_end(sandbox: Sandbox, foreign: Foreign, receiver: Receiver, flag: object) -> None:
    """With `atPeriodEnd`, a cancelled subscription stays active until its period ends, and is not billed again."""
    number = await created(foreign)
    fields = {"subscriptionId": number, "atPeriodEnd": flag}
    answers = [await foreign.send("POST", CANCEL, json=fields, headers=foreign.bearer) for _ in range(2)]
    await sandbox.clock.advance(days=27)
    before = sandbox.ledger.subscription_state(number), told(receiver)
    await sandbox.clock.advance(days=365)

    assert [(200, "SBX_ACTIVE")] * 2 == [(one.status, one.document["status"]) for one in answers]
    assert (("active", []), "cancelled") == (before, sandbox.ledger.subscription_state(number))
    assert ([("cancelled", 1)], 1) == (told(receiver), len(sandbox.ledger.charges(number)))


@pytest.mark.parametrize(
    ("start", "fields"),
    [
        ("2027-01-31", {}),
        ("2027-01-31", {"atPeriodEnd": False}),
        ("2027-01-31", {"atPeriodEnd": "false"}),
        ("2027-03-01", {"atPeriodEnd": True}),
    ],
    ids=str,
)
async def test_cancel_immediately(sandbox: Sandbox, foreign: Foreign, start: str, fields: dict[str, object]) -> None:
    """Without `atPeriodEnd`, or before its start, a subscription is cancelled immediately, and never billed again."""
    number = await created(foreign, startDate=start)
    before = sandbox.ledger.charges(number)
    answer = await foreign.send("POST", CANCEL, json={"subscriptionId": number, **fields}, headers=foreign.bearer)
    await sandbox.clock.advance(days=365)

    assert (200, "SBX_CANCELLED") == (answer.status, answer.document["status"])
    assert ("cancelled", before) == (sandbox.ledger.subscription_state(number), sandbox.ledger.charges(number))


@pytest.mark.parametrize("flag", [1, "yes", None, [], {}])
async def test_neither_yes_nor_no(sandbox: Sandbox, foreign: Foreign, flag: object) -> None:
    """An `atPeriodEnd` that is neither true nor false is refused, and nothing is cancelled."""
    number = await created(foreign)
    fields = {"subscriptionId": number, "atPeriodEnd": flag}
    answer = await foreign.send("POST", CANCEL, json=fields, headers=foreign.bearer)

    assert (422, "atPeriodEnd") == (answer.status, answer.document["field"])
    assert "active" == sandbox.ledger.subscription_state(number)


@pytest.mark.parametrize("word", ["hourly", "months", "", "1"])
async def test_unknown_frequency(foreign: Foreign, word: str) -> None:
    """An unknown frequency is refused, and the message lists the known ones."""
    answer = await foreign.subscribe(billingFrequency=word)

    assert ((422, "SBX_INVALID"), "billingFrequency") == (answer.told, answer.document["field"])
    assert (
        "one of daily, day, weekly, week, monthly, month, quarterly, quarter, yearly, year"
        in answer.document["message"]
    )


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("refunds", ["", "succeeded", "hand", None, 5, timedelta(), timedelta(days=-1), []]),
        ("repeated_refunds", ["", "once", None, True]),
    ],
)
def test_invalid_setting_is_refused(setting: str, values: list[Any]) -> None:
    """An invalid value for how refunds end, or for repeated numbers, is refused with the name of the setting."""
    for value in values:
        with pytest.raises(ConfigurationError, match=f"^{setting} must be") as refused:
            Sandbox(**{setting: value})

        assert setting == refused.value.field
