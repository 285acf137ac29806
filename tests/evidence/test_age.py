"""Responses out of caches, which answer a question that was asked earlier."""

import time
from collections import deque
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl

import pytest
from attrs import evolve
from multidict import CIMultiDict

from payasync import CreateRefund, Endpoint, OutcomeUnknownError, States
from payasync.clocks import Clocks, use_clocks
from payasync.evidence.age import Posted, age_of
from payasync.sandbox import PROFILE, Sandbox
from payasync.session import Session
from tests.evidence.test_origin import CODED, KEYS, REFUND, refunded
from tests.foreign.recorder import RESET, Answer, Recorder, answer

NOT_FOUND: Final = b'{"code": "NONE"}'
DONE: Final = answer(200, b'{"code": "OK", "state": "DONE"}')
FAILED: Final = b'{"code": "OK", "state": "FAILED"}'
STATED: Final = evolve(
    CODED,
    answer=evolve(CODED.answer, refund_status="state"),
    states=States(refund={"processing": ("RUNS",), "succeeded": ("DONE",), "failed": ("FAILED",)}),
)
NOON: Final = datetime(2026, 11, 29, 12, tzinfo=UTC)


def old(status: int, body: bytes, *ages: object) -> Answer:
    """Return a response out of caches that say how old it is."""
    return answer(status, body, *(("Age", str(each)) for each in ages))


def dated(status: int, body: bytes, seconds: float = 0) -> Answer:
    """Return a response with the date of so many seconds after noon."""
    return answer(status, body, ("Date", format_datetime(NOON + timedelta(seconds=seconds), usegmt=True)))


async def test_cached_absence_sends_nothing_again() -> None:
    """After a lost response, "not found" out of a cache is not final: the refund is sent once, and queried once."""
    cases: list[list[object]] = [[900], ["0, 900"], ["900,0"], [0, 900], ["999999999999"]]
    for ages in cases:
        found, sends = await refunded(Recorder([RESET], otherwise=old(404, NOT_FOUND, *ages)))

        assert (OutcomeUnknownError, 1, 2) == (type(found), sends, found.attempts)
        assert "from a cache" in str(found)


async def test_no_age_is_no_cache() -> None:
    """An `Age` of 0, which some CDNs always add, or one that is no number, delays nothing."""
    for age in [0, "", "-900", "900s", "soon"]:
        answers = [RESET, old(404, NOT_FOUND, age)]
        found, sends = await refunded(Recorder(answers, otherwise=answer(200, b'{"code": "OK"}')))

        assert (None, 2) == (found.state, sends)


async def test_cached_success_counts_at_any_age() -> None:
    """What was done stays done: a cached success ends the doubt."""
    found, sends = await refunded(
        Recorder([RESET], otherwise=old(200, b'{"code": "OK", "state": "DONE"}', 900)), STATED
    )

    assert ("succeeded", True, 900.0, 1) == (found.state, found.recovered, found.age, sends)


async def asked(answers: list[Answer]) -> list[float]:
    """Return the ages of the responses to queries. POSTs are refunds, which show the difference of the clocks."""
    ages = list[float]()
    with Recorder(answers, otherwise=answer(500)) as service:
        async with Session(service.url, credentials=KEYS, profile=STATED) as pay:
            for each in answers:
                if b"DONE" in each.raw:
                    ages.append((await pay.refunds.status("R1")).age)
                else:
                    await pay.send(CreateRefund(**REFUND))
    return [round(age) for age in ages]


POST: Final = partial(dated, 200, b'{"code": "OK"}')
GET: Final = partial(dated, 200, b'{"code": "OK", "state": "DONE"}')


async def test_age_by_date() -> None:
    """A `Date` shows the age, beyond the largest difference of the clocks that the last POSTs have shown."""
    for answers, ages in [
        ([GET(-900)], [0]),
        ([POST(0), GET(0), GET(-30)], [0, 28]),
        ([POST(0), POST(-60), GET(-60)], [0]),
        ([POST(-900), GET(-900), GET(0)], [0, 0]),
        ([answer(200, b'{"code": "OK"}'), GET(-900)], [0]),
        ([POST(0), DONE], [0]),
        ([POST(0), answer(200, b'{"code": "OK", "state": "DONE"}', ("Date", "yesterday"))], [0]),
        ([POST(0), answer(200, b'{"code": "OK", "state": "DONE"}', ("Date", "29 Nov 99999999999 12:00:00 GMT"))], [0]),
        ([POST(0), GET(-900), GET(-30)], [898, 28]),
        ([POST(-900), *[POST(0)] * 19, GET(-900)], [0]),
        ([POST(-900), *[POST(0)] * 20, GET(-900)], [898]),
    ]:
        assert ages == await asked(answers)


def test_slow_post_shows_the_clocks_if_no_quick_one_does() -> None:
    """The dates of slow POSTs are used only without a quick one, because they can show too small an age."""
    for took, age in [((0.5, 5.0), 28), ((5.0, 5.0), 18)]:

        def date(seconds: float) -> CIMultiDict[str]:
            return CIMultiDict(Date=format_datetime(NOON + timedelta(seconds=seconds), usegmt=True))

        noon = NOON.timestamp()
        posted: Posted = deque([(noon, date(0), took[0]), (noon, date(-10), took[1])])

        assert age == age_of(noon, date(-30), posted)


def test_date_without_a_zone_is_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """A date of an unknown zone, `-0000`, is in UTC, wherever the machine is."""
    noon = NOON.timestamp()
    posted: Posted = deque([(noon, CIMultiDict(Date=format_datetime(NOON, usegmt=True)), 0.5)])
    unknown = CIMultiDict(Date=format_datetime(NOON.replace(tzinfo=None) - timedelta(seconds=30)))
    with monkeypatch.context() as zone:
        zone.setenv("TZ", "America/Toronto")
        time.tzset()
        found = age_of(noon, unknown, posted)
    time.tzset()

    assert 28 == found


async def test_response_to_a_write_has_no_age() -> None:
    """The response to a write is of that send, whatever its `Age` and `Date` say."""
    refunds = [POST(0), answer(200, b'{"code": "OK"}', ("Age", "900"), ("Date", "Sun, 29 Nov 2026 11:00:00 GMT"))]
    async with Recorder(refunds) as service, Session(service.url, credentials=KEYS, profile=STATED) as pay:
        ages = [(await pay.send(CreateRefund(**REFUND))).age for _ in refunds]

    assert [0.0, 0.0] == ages


async def test_queries_ask_caches_to_stay_out() -> None:
    """Each query asks for an uncached response, and a write has no such header."""
    with Recorder(otherwise=DONE) as service:
        async with Session(service.url, credentials=KEYS, profile=STATED) as pay:
            await pay.payments.create(amount=450, currency="CAD")
            await pay.refunds.status("R1")
        write, query = service.requests

    assert ([], []) == (write.header("Cache-Control"), write.header("Pragma"))
    assert (["no-cache, no-store"], ["no-cache"]) == (query.header("Cache-Control"), query.header("Pragma"))


async def waited(answers: list[Answer], until: Any) -> Any:
    """Return how a wait for a refund ends, whose polls come at once."""
    use_clocks(Clocks(jitter=lambda _: 0.0))
    with Recorder(answers, otherwise=DONE) as service:
        async with Session(service.url, credentials=KEYS, profile=STATED) as pay:
            return await pay.refunds.wait("R1", until=until, timeout=5)


async def test_wait_does_not_end_by_an_older_response() -> None:
    """A poll of `wait` goes on after a response that was asked for before `wait` began."""
    for cached in [old(200, FAILED, 900), old(404, NOT_FOUND, 900)]:
        found = await waited([cached], lambda response: response.state in {"failed", "succeeded"})

        assert ("succeeded", 0.0) == (found.state, found.age)


async def test_wait_ends_by_a_cached_success() -> None:
    """A success ends a wait at any age."""
    assert 900.0 == (await waited([old(200, b'{"code": "OK", "state": "DONE"}', 900)], "succeeded")).age


async def test_constant_gives_each_query_an_address_of_its_own() -> None:
    """`{milliseconds}` in a constant is the time of the attempt, so that no cache knows the address of a query."""
    constants = {"refunds.status": {"t": "{milliseconds}", "at": "s{timestamp}"}}
    profile = evolve(STATED, signed=("refunds.create",), constants=constants)
    with Recorder(otherwise=DONE) as service:
        async with Session(service.url, credentials=KEYS, profile=profile) as pay:
            await pay.refunds.status("R1")
        sent = dict(parse_qsl(service.only.query))
    async with Sandbox(profile=evolve(PROFILE, constants=constants)) as sandbox, sandbox.session() as pay:
        order = await sandbox.given.paid_order(total_amt=450)
        await pay.send(evolve(CreateRefund(**REFUND), out_trade_no=order))
        played = await pay.refunds.status("R1")

    assert sent["t"][:10] == sent["at"][1:]
    assert (13, "R1", "succeeded") == (len(sent["t"]), sent["outRefundNo"], played.state)


def test_audit_lists_queries_that_a_cache_could_repeat() -> None:
    """The audit lists each unsigned GET query without a time in its address."""
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"signed": ("refunds.create",)}, ["constants.refunds.status"]),
        ({"signed": ("refunds.create",), "constants": {"*": {"t": "{timestamp}"}}}, []),
        ({"signed": ("refunds.create",), "endpoints": {"refunds.status": Endpoint(method="POST")}}, []),
        ({}, []),
    ]
    for changes, listed in cases:
        assert listed == [each.name for each in evolve(STATED, **changes).audit() if each.name.startswith("constants.")]
