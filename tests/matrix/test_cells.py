"""Every cell of the failure matrix over real HTTP, with a server that counts what it received."""

import asyncio
from collections import Counter, UserDict
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import (
    Attempted,
    DuplicateError,
    Event,
    HttpCodes,
    NoAnswerTimeoutError,
    NotSentError,
    NotSentTimeoutError,
    OutcomeUnknownError,
    PayasyncError,
    Profile,
    Response,
    ServiceError,
    Session,
    Timeouts,
)
from tests.building import Hours
from tests.foreign import signatures
from tests.foreign.certificates import server_tls
from tests.foreign.recorder import GONE, RESET, SILENT, Answer, Recorder, answer
from tests.inside import set_pace
from tests.matrix.cells import (
    ABSENT_BODY,
    BY_NUMBER,
    COLUMNS,
    FAST,
    KEYS,
    OK_BODY,
    ORDER_QUERY,
    REFUND_QUERY,
    SURE,
    UNSURE,
    Column,
    session,
)
from tests.matrix.table import ROWS

OK: Final = answer(200, OK_BODY)
ABSENT: Final = answer(200, ABSENT_BODY)
QUERIES: Final = {ORDER_QUERY: OK, REFUND_QUERY: OK}
DAILY: Final = ("1", "3", "5")
"""A write that nothing names, a read, and a write that can be asked about."""


def statuses(*given: int) -> tuple[Answer, ...]:
    """Return answers with these statuses that say nothing else."""
    return tuple(answer(status, b"{}", ("Location", "/elsewhere")) for status in given)


def code(value: str) -> tuple[Answer, ...]:
    """Return an answer that says 200, and something else in its body."""
    return (answer(200, b'{"code":"%s"}' % value.encode()),)


CUT: Final = (Answer(OK.raw[:-1], then="close"), Answer(OK.raw[:-1], then="reset"), Answer(OK.raw[:30], then="close"))
MALFORMED: Final = (answer(200, b"<html>"), answer(200, b""), answer(200, b"[]"), answer(200, b"{}"), *statuses(204))

ENDS: Final[list[tuple[str, tuple[Answer, ...], Profile]]] = [
    ("no response", (RESET, GONE), UNSURE),
    ("no response", CUT, UNSURE),
    ("unrecognised", MALFORMED, UNSURE),
    ("redirect", statuses(301, 302, 303, 307, 308), UNSURE),
    ("not executed", statuses(400, 405, 413, 415, 422), UNSURE),
    ("not executed", code("SBX_INVALID"), UNSURE),
    ("not authenticated", statuses(401, 403), UNSURE),
    ("absent", statuses(404), UNSURE),
    ("absent", code("SBX_NOT_FOUND"), UNSURE),
    ("unlisted", statuses(402, 410, 418), UNSURE),
    ("unlisted", code("SBX_WHO_KNOWS"), UNSURE),
    ("duplicate", statuses(409), UNSURE),
    ("duplicate", code("SBX_DUPLICATE"), UNSURE),
    ("rate limited", statuses(429), UNSURE),
    ("rate limited before it", statuses(429), SURE),
    ("server error", statuses(500, 502, 503), UNSURE),
    ("server error", code("SBX_BUSY"), UNSURE),
]
"""By row of the table, what the service does, and what its profile says that it does."""

LONG: Final = pytest.mark.long
"""Each cell is shown once daily; what else is of the same row, that of the pure function has daily."""


def cells(*words: str) -> pytest.MarkDecorator:
    """Run a test for each cell of the table that has one of these words."""
    params = [
        pytest.param(name, end, column, profile, id=f"{name}-{place}-{index}-{column.number}", marks=[LONG][:index])
        for place, (name, ends, profile) in enumerate(ENDS)
        for index, end in enumerate(ends)
        for column in COLUMNS
        if ROWS[name].word(column.number) in words
    ]
    return pytest.mark.parametrize(("name", "end", "column", "profile"), params)


async def ended(call: Awaitable[Response]) -> Response | PayasyncError:
    """Return what a call ends as."""
    try:
        return await call
    except PayasyncError as error:
        return error


def received(service: Recorder) -> dict[str, int]:
    """Return how many whole requests each endpoint received."""
    return dict(Counter(request.path for request in service.requests))


@cells("repeat", "wait", "query", "unknown", "definite", "used")
async def test_cell(name: str, end: Answer, column: Column, profile: Profile) -> None:
    """A service that always fails in one way: what the call ends as, and how often each endpoint was asked."""
    word, expected = ROWS[name].word(column.number), ROWS[name].error(column.number)
    queries = {path: said for path, said in QUERIES.items() if path == column.query}
    with Recorder(otherwise=end, by_path=queries) as service:
        async with session(service, profile) as pay:
            result = await ended(column.call(pay))
    sends = 3 if word in {"repeat", "wait"} else 1

    assert {column.path: sends, **({column.query: 1} if word == "query" else {})} == received(service)
    if word == "query":
        assert isinstance(result, Response)
        assert (True, 2, "SBX_PAID") == (result.recovered, result.attempts, result["status"])
        return
    assert isinstance(result, PayasyncError)
    assert (expected, sends) == (type(result), result.attempts)


@cells("repeat", "wait")
async def test_cell_that_is_repeated(name: str, end: Answer, column: Column, profile: Profile) -> None:
    """A service that fails once: the second attempt succeeds, with a nonce and a signature of its own."""
    with Recorder([end], otherwise=OK) as service:
        async with session(service, profile) as pay:
            result = await column.call(pay)
    nonces = [signatures.fields(request).get("nonceStr") for request in service.requests if request.body]

    assert {column.path: 2} == received(service), name
    assert (2, False) == (result.attempts, result.recovered)
    assert len(nonces) == len(set(nonces)) or {None} == set(nonces)


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.number)
async def test_refused(column: Column) -> None:
    """Nobody listens: nothing was sent, and every call is tried three times."""
    with Recorder(listening=False) as service:
        async with session(service) as pay:
            result = await ended(column.call(pay))

    assert isinstance(result, NotSentError)
    assert (3, False) == (result.attempts, result.sent)


@pytest.mark.parametrize("cut", [100, *(pytest.param(cut, marks=LONG) for cut in (0, 1))])
@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.number)
async def test_handshake_cut(column: Column, cut: int) -> None:
    """A TLS handshake that is cut: no byte of the request left, and every call is tried again."""
    with Recorder(cuts=[cut] * 3) as service:
        url = service.url.replace("http:", "https:")
        async with Session(url, credentials=KEYS, profile=UNSURE, retry=FAST) as pay:
            result = await ended(column.call(pay))

    assert isinstance(result, NotSentError)
    assert (3, False, 3) == (result.attempts, result.sent, len(service.connections))
    assert [] == service.requests


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.number)
async def test_bad_certificate(column: Column) -> None:
    """Who cannot prove to be the service gets nothing, and is not asked again."""
    with Recorder(tls=server_tls("elsewhere.example")) as service:
        async with session(service) as pay:
            result = await ended(column.call(pay))

    assert isinstance(result, NotSentError)
    assert (1, False, True) == (result.attempts, result.sent, result.permanent)
    assert b"" == service.received


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.number)
async def test_no_connection_in_time(column: Column) -> None:
    """A handshake that never ends is provably nothing sent; the error is a time-out, which is harmless to repeat."""
    with Recorder(otherwise=SILENT) as service:
        url = service.url.replace("http:", "https:")
        times = Timeouts(connect=0.02)
        async with Session(url, credentials=KEYS, profile=UNSURE, retry=FAST, timeouts=times) as pay:
            result = await ended(column.call(pay))

    assert NotSentTimeoutError is type(result)
    assert isinstance(result, NotSentError)
    assert 3 == result.attempts


@pytest.mark.parametrize(
    "number", [*DAILY, *(pytest.param(each, marks=LONG) for each in BY_NUMBER if each not in DAILY)]
)
async def test_no_answer_in_time(number: str) -> None:
    """A service that is silent: a write is unknown or asked about, and its error is never a time-out."""
    column = BY_NUMBER[number]
    queries = {path: said for path, said in QUERIES.items() if path == column.query}
    with Recorder(otherwise=SILENT, by_path=queries) as service:
        async with session(service, timeouts=Timeouts(read=0.2)) as pay:
            result = await ended(column.call(pay))
    sends = 3 if column.read or column.number == "4" else 1

    assert {column.path: sends, **({column.query: 1} if column.query else {})} == received(service)
    if column.query:
        assert isinstance(result, Response)
        assert result.recovered
        return
    assert isinstance(result, PayasyncError)
    assert (NoAnswerTimeoutError if column.read else OutcomeUnknownError, sends) == (type(result), result.attempts)
    assert column.read == isinstance(result, TimeoutError)


LARGE: Final = {"padding": "x" * 8_000_000}
"""More than the buffers of two sockets hold: its writing fails before it ends."""

TOO_LARGE: Final[dict[str, Callable[[Session], Awaitable[Response]]]] = {
    "1": lambda pay: pay.payments.create(amount=1, currency="USD", extra=LARGE),
    "2": lambda pay: pay.orders.place(total_amt=1, currency="CAD", extra=LARGE),
    "2n": lambda pay: pay.orders.place(total_amt=1, currency="CAD", out_trade_no="T1", extra=LARGE),
    "3": lambda pay: pay.orders.query("T1", extra=LARGE),
    "4": lambda pay: pay.orders.close("T1", extra=LARGE),
    "5": lambda pay: pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=2, refund_amt=1, extra=LARGE),
    "6": lambda pay: pay.payments.status("T1", extra=LARGE),
    "7": lambda pay: pay.refunds.status("R1", extra=LARGE),
    "8": lambda pay: pay.request("POST", "/subscriptions/create", fields=LARGE),
    "9": lambda pay: pay.subscriptions.update("S1", extra=LARGE),
    "10": lambda pay: pay.subscriptions.cancel("S1", extra=LARGE),
}


@pytest.mark.parametrize("number", TOO_LARGE)
async def test_write_that_failed_midway(number: str) -> None:
    """A request that breaks off in the middle was begun: a write is never begun again, but asked about or unknown.

    Of a GET it is the head that is too large: its fields stand there. Nobody but us repeats it, not aiohttp either.
    """
    column = BY_NUMBER[number]
    told: list[Event] = []
    with Recorder(otherwise=OK, cuts=[1000]) as service:
        async with session(service, on_event=told.append) as pay:
            result = await ended(TOO_LARGE[number](pay))
    starts = tuple(f"{method} {column.path}{end}".encode() for method, end in (("GET", "?"), ("POST", " ")))
    begun = [each for each in service.connections if each.received.startswith(starts)]

    assert (2 if column.read or number == "4" else 1) == len(begun)
    assert (1 if column.keyless else 2) == len(service.connections)
    assert "NoAnswerError" == next(event.error for event in told if isinstance(event, Attempted))
    assert (OutcomeUnknownError is type(result)) == column.keyless
    assert (1 if column.keyless else 2) == getattr(result, "attempts", None)
    assert bool(column.query) == getattr(result, "recovered", False)


@pytest.mark.parametrize("number", ["2n", "5"])
async def test_429_is_asked_about_after_its_retry_after(number: str) -> None:
    """A 429 may have been executed: the query waits for the Retry-After, and the write is not sent again."""
    column, hours = BY_NUMBER[number], Hours(now=asyncio.get_running_loop().time(), share=0.0)
    with Recorder([answer(429, b"{}", ("Retry-After", "7"))], otherwise=OK) as service:
        async with session(service) as pay:
            set_pace(pay, hours.pace())
            result = await column.call(pay)

    assert {column.path: 1, column.query: 1} == received(service)
    assert ([7.0], True) == ([round(wait, 3) for wait in hours.waits], result.recovered)


@pytest.mark.parametrize("number", ["2n", "5"])
@pytest.mark.parametrize("lost", [RESET, *statuses(503, 302, 418), answer(200, b"<html>")], ids=range(5))
async def test_absent_with_a_quarantine_is_sent_again(number: str, lost: Answer) -> None:
    """Once the absent answer is final, the same goes out again: the same number, a new nonce, a new signature."""
    column = BY_NUMBER[number]
    with Recorder([lost], otherwise=OK, by_path={column.query: ABSENT}) as service:
        async with session(service, SURE) as pay:
            result = await column.call(pay)
    first, second = (signatures.fields(request) for request in service.requests if request.path == column.path)
    changed = {name for name in first if first[name] != second[name]}

    assert {column.path: 2, column.query: 1} == received(service)
    assert (3, False) == (result.attempts, result.recovered)
    assert {"nonceStr", "sign"} == changed


@pytest.mark.parametrize("number", ["2n", "5"])
@pytest.mark.parametrize(
    "said", [ABSENT, *statuses(400, 401, 404, 410), answer(200, b'{"code":"SBX_WHO_KNOWS"}')], ids=range(6)
)
async def test_absent_without_a_quarantine_is_unknown(number: str, said: Answer) -> None:
    """Nobody says when absent is final, or the query says something else: one send, one question, unknown."""
    column = BY_NUMBER[number]
    with Recorder([RESET], otherwise=OK, by_path={column.query: said}) as service:
        async with session(service) as pay:
            result = await ended(column.call(pay))

    assert {column.path: 1, column.query: 1} == received(service)
    assert OutcomeUnknownError is type(result)


@pytest.mark.parametrize("number", ["2n", "5"])
async def test_questions_that_fail_are_few(number: str) -> None:
    """A service that loses the questions, too, is asked three times."""
    column = BY_NUMBER[number]
    with Recorder([RESET], otherwise=RESET) as service:
        async with session(service, SURE) as pay:
            result = await ended(column.call(pay))

    assert {column.path: 1, column.query: 3} == received(service)
    assert isinstance(result, OutcomeUnknownError)
    assert 4 == result.attempts


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("SBX_CLOSED", Response),
        ("SBX_EXPIRED", Response),
        ("SBX_FAILED", Response),
        ("SBX_PAID", ServiceError),
        ("SBX_PENDING", OutcomeUnknownError),
        ("SBX_WHO_KNOWS", OutcomeUnknownError),
    ],
)
async def test_duplicate_after_a_lost_close_is_asked_about(
    state: str, expected: type[Response | PayasyncError]
) -> None:
    """It may have been done, or the order is paid: it is asked about, and its state decides."""
    order = answer(200, b'{"code":"SBX_OK","outTradeNo":"T1","status":"%s"}' % state.encode())
    with Recorder([RESET, *statuses(409)], by_path={ORDER_QUERY: order}) as service:
        async with session(service) as pay:
            result = await ended(pay.orders.close("T1"))

    assert isinstance(result, expected)
    assert isinstance(result, DuplicateError) is False
    assert {"/payment/closeorder": 2, ORDER_QUERY: 1} == received(service)
    assert ServiceError is not type(result) or "the order's state is paid" in str(result)


class Answers(UserDict[str, Any]):
    """By path, what a service answers: the next each time, and the last for ever."""

    def __getitem__(self, path: str) -> Any:
        left = self.data[path]
        return left.pop(0) if len(left) > 1 else left[0]


def sent_again(column: Column, *queries: Answer) -> Answers:
    """Return a service that loses a write, is asked about it, and says of the second send that it was used before."""
    return Answers({column.path: [RESET, *statuses(409)], column.query: list(queries)})


@pytest.mark.parametrize("number", ["2n", "5"])
async def test_duplicate_after_an_absent_answer_is_asked_about(number: str) -> None:
    """The number may be used by the send that the service denied: the query's answer is the write's."""
    column = BY_NUMBER[number]
    with Recorder(by_path=sent_again(column, ABSENT, OK)) as service:
        async with session(service, SURE) as pay:
            result = await column.call(pay)

    assert {column.path: 2, column.query: 2} == received(service)
    assert (True, 4) == (result.recovered, result.attempts)


@pytest.mark.parametrize("number", ["2n", "5"])
async def test_duplicate_that_is_absent_is_unknown(number: str) -> None:
    """Who says "used before", and then "not found", is believed in neither: nothing is sent a third time."""
    column = BY_NUMBER[number]
    with Recorder(by_path=sent_again(column, ABSENT)) as service:
        async with session(service, SURE) as pay:
            result = await ended(column.call(pay))

    assert {column.path: 2, column.query: 2} == received(service)
    assert isinstance(result, OutcomeUnknownError)
    assert result.used_before


@pytest.mark.parametrize(("status", "expected"), [(410, DuplicateError), (409, OutcomeUnknownError)])
async def test_status_of_a_duplicate_is_the_profiles(status: int, expected: type[PayasyncError]) -> None:
    """`http.duplicate` takes the place of 409, which then says nothing that anybody knows."""
    profile = evolve(UNSURE, http=HttpCodes(absent=(404,), duplicate=(410,)))
    with Recorder(statuses(status), by_path={REFUND_QUERY: ABSENT}) as service:
        async with session(service, profile) as pay:
            result = await ended(BY_NUMBER["5"].call(pay))

    assert expected is type(result)
