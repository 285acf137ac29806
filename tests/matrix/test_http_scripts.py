"""Random scripts of failures over real HTTP: what a server that counts is never sent, whatever it does."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any, Final

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from payasync import PayasyncError, Recovery, RetryPolicy
from tests.building import Hours
from tests.foreign.recorder import GONE, RESET, Answer, Recorder, answer
from tests.inside import set_pace
from tests.matrix.cells import ABSENT_BODY, COLUMNS, OK_BODY, SURE, UNSURE, Column, session
from tests.matrix.scripted import Arrival, Says, Script, Step, doubled

pytestmark = pytest.mark.long

EXAMPLES: Final = max(300, min(settings().max_examples, 10_000))
"""As many as the profile says, within bounds: each has a server and a session of its own."""
OK: Final = answer(200, OK_BODY)


def code(value: str) -> Answer:
    """Return a whole answer with a result code."""
    return answer(200, b'{"code":"%s"}' % value.encode())


LOST: Final = (
    *(RESET, GONE, Answer(OK.raw[:-1], then="close"), Answer(OK.raw[:-1], then="reset"), Answer(OK.raw[:30], "close")),
    *(answer(500, b"{}"), answer(502, b"<html>", kind="text/html"), answer(503, b"{}", ("Retry-After", "1"))),
    *(answer(200, b"<html>"), answer(200, b"[]"), answer(200, b"{}"), answer(204, b""), answer(418, b"{}")),
    *(answer(302, b"{}", ("Location", "/elsewhere")), code("SBX_BUSY"), code("SBX_WHO_KNOWS")),
)
THROTTLED: Final = (answer(429, b"{}"), answer(429, b"{}", ("Retry-After", "1")))
REFUSED: Final = (
    *(answer(status, b"{}") for status in (400, 401, 409, 415)),
    code("SBX_INVALID"),
    code("SBX_DUPLICATE"),
)
ABSENT: Final = (answer(200, ABSENT_BODY), answer(404, b"{}"))


def steps(says: Says, *answers: Answer) -> st.SearchStrategy[Step]:
    """Draw what the service does, at once or later; behind a whole answer it may close without having said so."""
    ends = [*answers, *(replace(each, then="close") for each in answers if each.then == "keep")]
    return st.sampled_from([Step(says, end, takes) for end, takes in product(ends, (0.0, 3.0))])


DONE: Final = Step("done", OK)
UNANSWERED: Final = steps("nothing", *LOST)
ANSWERED: Final = steps("done", OK) | steps("throttled", *THROTTLED) | steps("refused", *REFUSED)
# What goes wrong in most of the drawn requests is what a second send could follow.
WRITES: Final = st.lists(
    st.sampled_from([UNANSWERED] * 3 + [ANSWERED]).flatmap(lambda each: each), min_size=1, max_size=5
)
KNOWN: Final = [steps("absent", *ABSENT)] * 3 + [UNANSWERED, ANSWERED]
QUERIES: Final = st.lists(st.sampled_from(KNOWN).flatmap(lambda each: each), min_size=1, max_size=8)
CUTS: Final = st.lists(st.sampled_from([None, None, None, None, 0, 100]), max_size=3)
"""No request is so short: one that is cut has come in part, or not at all."""


def sent_to(
    script: Script, hours: Hours, column: Column, *, sure: bool, quarantine: float | None, **options: Any
) -> list[Arrival]:
    """Return what a service counts that plays this script for one call."""

    async def called() -> None:
        hours.now += asyncio.get_running_loop().time()
        async with session(service, profile, **options) as pay:
            set_pace(pay, hours.pace())
            with suppress(PayasyncError):  # what it ends as is told by other tests
                await column.call(pay)

    profile = evolve(SURE if sure else UNSURE, recovery=Recovery(quarantine=quarantine))
    with Recorder(by_path=script, cuts=script.cuts()) as service:
        asyncio.run(called())
    return script.arrivals(service.connections)


KEYLESS: Final = [column for column in COLUMNS if column.keyless]
NAMED: Final = [column for column in COLUMNS if column.query]
FACTS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "writes": WRITES,
    "cuts": CUTS,
    "attempts": st.sampled_from([3, 1, 2, 4, 5]),
    "share": st.sampled_from([0.0, 0.3, 1.0]),
    "sure": st.booleans(),
}


@pytest.mark.long
@given(column=st.sampled_from(KEYLESS), **FACTS)
@settings(max_examples=EXAMPLES)
def test_keyless_write(
    *, column: Column, writes: Sequence[Step], cuts: Sequence[int | None], attempts: int, share: float, sure: bool
) -> None:
    """Never are there two sends of a write that nothing names, unless the service said that it did not do the first."""
    hours = Hours(now=0.0, share=share)
    script = Script({column.path: writes}, DONE, hours, cuts)
    arrivals = sent_to(script, hours, column, sure=sure, quarantine=0.0, retry=RetryPolicy(attempts=attempts))

    assert [] == doubled(arrivals, column, sure=sure, quarantine=0.0)
    assert {column.path} >= {each.path for each in arrivals}
    assert len(arrivals) <= attempts


@pytest.mark.long
@given(column=st.sampled_from(NAMED), queries=QUERIES, quarantine=st.sampled_from([None, 0.0, 2.0, 60.0]), **FACTS)
@settings(max_examples=EXAMPLES)
def test_named_write(
    *,
    column: Column,
    writes: Sequence[Step],
    queries: Sequence[Step],
    cuts: Sequence[int | None],
    quarantine: float | None,
    attempts: int,
    share: float,
    sure: bool,
) -> None:
    """Never are there two sends of a refund in doubt without an absent answer, and the quarantine, between the two."""
    hours = Hours(now=0.0, share=share)
    script = Script({column.path: writes, column.query: queries}, DONE, hours, cuts)
    arrivals = sent_to(script, hours, column, sure=sure, quarantine=quarantine, retry=RetryPolicy(attempts=attempts))

    assert [] == doubled(arrivals, column, sure=sure, quarantine=quarantine)
    assert {column.path, column.query} >= {each.path for each in arrivals}
    assert attempts >= sum(each.path == column.path for each in arrivals)
