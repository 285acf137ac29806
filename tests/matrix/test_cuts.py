"""A connection that is cut after every byte: of the request, and of the answer."""

from typing import Final

import pytest

from payasync import OutcomeUnknownError, PayasyncError, Response
from tests.foreign.recorder import Answer, Recorder, answer
from tests.matrix.cells import BY_NUMBER, COLUMNS, OK_BODY, Column, session

LAST: Final = answer(200, OK_BODY, ("Connection", "close"))
"""A success, after which the connection is not used again."""
OK: Final = answer(200, OK_BODY)


DAILY: Final = ("1", "5")
"""A write that nothing names, and one that can be asked about."""
each_column = pytest.mark.parametrize(
    "column",
    [pytest.param(each, marks=[] if each.number in DAILY else [pytest.mark.long], id=each.number) for each in COLUMNS],
)


async def size_of(column: Column) -> int:
    """Return how long the request of a call is."""
    with Recorder(otherwise=OK) as service:
        async with session(service) as pay:
            await column.call(pay)
    return len(service.only.raw)


def judged(column: Column, result: Response | PayasyncError) -> bool:
    """Return whether a call whose first attempt was cut ended as the table says."""
    if column.keyless:
        return OutcomeUnknownError is type(result) and result.attempts == 1
    return isinstance(result, Response) and (result.attempts, result.recovered) == (2, bool(column.query))


async def ended(column: Column, pay: object) -> Response | PayasyncError:
    """Return what a call ends as."""
    try:
        return await column.call(pay)  # type: ignore[arg-type] # a session
    except PayasyncError as error:
        return error


@each_column
async def test_request_that_is_cut(column: Column) -> None:
    """After the first byte a write without a number is unknown, and no other begins; others are repeated or asked."""
    offsets = range(1, await size_of(column))
    cuts = [cut for offset in offsets for cut in ((offset,) if column.keyless else (offset, None))]
    with Recorder(otherwise=LAST, cuts=cuts) as service:
        async with session(service) as pay:
            wrong = [offset for offset in offsets if not judged(column, await ended(column, pay))]
    whole = {column.query or column.path} if not column.keyless else set()

    assert [] == wrong
    assert len(cuts) == len(service.connections)
    assert whole == {request.path for request in service.requests}
    assert [cut for cut in cuts if cut] == [len(each.received) for each in service.connections if each.cut]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.number)
async def test_connection_that_is_cut_before_the_first_byte(column: Column) -> None:
    """Whether a byte left decides: what may have left is never sent again where nothing names it."""
    with Recorder(otherwise=LAST, cuts=[0]) as service:
        async with session(service) as pay:
            result = await ended(column, pay)
    sent_once_more = isinstance(result, Response) and not result.recovered

    assert judged(column, result) or (sent_once_more and result.attempts == 2)
    assert len(service.requests) <= 1


@pytest.mark.parametrize("then", ["close", pytest.param("reset", marks=pytest.mark.long)])
@each_column
async def test_answer_that_is_cut(column: Column, then: str) -> None:
    """Up to the last byte of it, an answer is none: nothing is taken for a success that is not whole."""
    offsets = range(len(LAST.raw))
    cut = [Answer(LAST.raw[:offset], then="close" if then == "close" else "reset") for offset in offsets]
    repeated = not column.keyless and not column.query
    script = [each for one in cut for each in ((one, LAST) if repeated else (one,))]
    queries = {column.query: LAST} if column.query else {}
    with Recorder(script, by_path=queries) as service:
        async with session(service) as pay:
            wrong = [offset for offset in offsets if not judged(column, await ended(column, pay))]
    writes = [request for request in service.requests if request.path == column.path]

    assert [] == wrong
    assert len(offsets) * (2 if repeated else 1) == len(writes)


async def test_answer_that_is_whole() -> None:
    """The cut behind the last byte is none."""
    with Recorder([Answer(OK.raw, then="close")]) as service:
        async with session(service) as pay:
            result = await ended(BY_NUMBER["1"], pay)

    assert isinstance(result, Response)
    assert (1, False) == (result.attempts, result.recovered)
