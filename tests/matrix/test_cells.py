"""Every cell of the failure matrix over real HTTP, with a server that counts what it received."""

import asyncio
from typing import Any, Final

import pytest

from payasync import Attempted, Event, Profile, Response, RetryPolicy, Timeouts, errors
from tests.foreign import signatures
from tests.foreign.certificates import server_tls
from tests.foreign.recorder import GONE, RESET, SILENT, Answer, Recorder, answer
from tests.matrix.cells import (
    ABSENT_BODY,
    BY_NUMBER,
    COLUMNS,
    KEY,
    ORDER_QUERY,
    REFUNDED,
    SURE,
    UNSURE,
    Column,
    ended,
    received,
    session,
)
from tests.matrix.table import ROWS
from tests.sessions import OK, OK_BODY

ABSENT: Final = answer(200, ABSENT_BODY)
LONG: Final = pytest.mark.long
DAILY: Final = ("1", "3", "5")
"""A write that nothing names, a read, and a write that can be asked about."""
each_column = pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.number)
named = pytest.mark.parametrize("column", [BY_NUMBER["2n"], BY_NUMBER["5"]], ids=["2n", "5"])


def statuses(*given: int, code: str = "SBX_OTHER") -> tuple[Answer, ...]:
    """Return answers with these statuses, and a code; by default the profile does not list it."""
    return tuple(answer(status, b'{"code":"%s"}' % code.encode(), ("Location", "/elsewhere")) for status in given)


def code(value: str) -> Answer:
    """Return an answer that says 200, and something else in its body."""
    return answer(200, b'{"code":"%s"}' % value.encode())


CUT: Final = (Answer(OK.raw[:-1], then="close"), Answer(OK.raw[:-1], then="reset"), Answer(OK.raw[:30], then="close"))
MALFORMED: Final = (answer(200, b"<html>"), answer(200, b""), answer(200, b"[]"), answer(200, b"{}"), *statuses(204))
FOREIGN: Final = (answer(404, b"<html>"), answer(403, b""), answer(400, b'{"code":400,"message":"no Route matched"}'))

ENDS: Final[list[tuple[str, tuple[Answer, ...], Profile]]] = [
    ("no response", (RESET, *CUT, GONE), UNSURE),
    ("no response in time", (SILENT,), UNSURE),
    ("unrecognised", (*MALFORMED, *FOREIGN), UNSURE),
    ("redirect", statuses(301, 302, 303, 307, 308), UNSURE),
    ("not executed", (*statuses(400, 405, 413, 415, 422), code("SBX_INVALID")), UNSURE),
    ("not authenticated", statuses(401, 403), UNSURE),
    ("absent", (*statuses(404), code("SBX_NOT_FOUND")), UNSURE),
    ("unlisted", (*statuses(402, 410, 418), code("SBX_WHO_KNOWS")), UNSURE),
    ("duplicate", (*statuses(409), code("SBX_DUPLICATE")), UNSURE),
    ("rate limited", statuses(429), UNSURE),
    ("rate limited", (answer(429, b"<html>"), *statuses(429)), SURE),
    ("rate limited before it", statuses(429, code="SBX_BUSY"), SURE),
    ("server error", (*statuses(500, 502, 503), code("SBX_BUSY")), UNSURE),
]
"""By row of the table, what the service does, and what its profile says that it does."""


def marks(end: Answer, index: int, number: str) -> list[pytest.MarkDecorator]:
    """Return how a cell is marked: once daily, and silence, which takes its time, for three columns."""
    return [LONG] if index or (end is SILENT and number not in DAILY) else []


def cells(*words: str) -> pytest.MarkDecorator:
    """Run a test for each cell of the table that has one of these words."""
    params = [
        pytest.param(name, end, column, profile, id=f"{name}-{index}-{number}", marks=marks(end, index, number))
        for name, ends, profile in ENDS
        for index, end in enumerate(ends)
        for number, column in BY_NUMBER.items()
        if ROWS[name].word(number) in words
    ]
    return pytest.mark.parametrize(("name", "end", "column", "profile"), params)


@cells("repeat", "wait", "query", "unknown", "definite", "used")
async def test_cell(name: str, end: Answer, column: Column, profile: Profile) -> None:
    """If the service always fails in one way, the call ends as the table says, with that many requests."""
    word, expected = ROWS[name].word(column.number), ROWS[name].error(column.number)
    queries = {column.query: OK, **REFUNDED} if column.query else {}
    with Recorder(otherwise=end, by_path=queries) as service:
        async with session(service, column.under(profile), timeouts=Timeouts(read=0.2 if end is SILENT else 20)) as pay:
            result = await ended(column.call(pay))
    sends = 3 if word in {"repeat", "wait"} else 1

    assert {column.path: sends, **({column.query: 1} if word == "query" else {})} == received(service)
    if word == "query":
        assert (True, 2) == (result.recovered, result.attempts)
        assert result.state in {"paid", "succeeded"}
    else:
        assert (expected, sends) == (type(result), result.attempts)


@cells("repeat", "wait")
async def test_cell_that_is_repeated(name: str, end: Answer, column: Column, profile: Profile) -> None:
    """If the service fails once, the second attempt succeeds, with a new nonce and signature, under the same key."""
    with Recorder([end], otherwise=OK) as service:
        async with session(service, column.under(profile), timeouts=Timeouts(read=0.2 if end is SILENT else 20)) as pay:
            result = await column.call(pay)
    nonces = [signatures.fields(request).get("nonceStr") for request in service.requests if request.body]

    keys = [request.header(KEY) for request in service.requests]

    assert {column.path: 2} == received(service), name
    assert keys[0] == keys[1]
    assert (1 if column.kind == "keyed" else 0) == len(keys[0])
    assert (2, False) == (result.attempts, result.recovered)
    assert len(nonces) == len(set(nonces)) or {None} == set(nonces)


@each_column
@pytest.mark.parametrize(
    ("server", "times", "kind", "attempts"),
    [
        pytest.param({"listening": False}, Timeouts(), errors.NotSentError, 3, id="refused"),
        pytest.param({"cuts": [100] * 3}, Timeouts(), errors.NotSentError, 3, id="handshake cut"),
        pytest.param(
            {"otherwise": SILENT}, Timeouts(connect=0.02), errors.NotSentTimeoutError, 3, id="no connection in time"
        ),
        pytest.param({"tls": "elsewhere.example"}, Timeouts(), errors.NotSentError, 1, id="bad certificate"),
    ],
)
async def test_nothing_is_sent(
    column: Column, server: dict[str, Any], times: Timeouts, kind: type[errors.PayasyncError], attempts: int
) -> None:
    """Without a TLS connection no byte of a request leaves. Only a certificate error is not retried."""
    settings: dict[str, Any] = {**server, "tls": server_tls(server["tls"]) if "tls" in server else None}
    with Recorder(**settings) as service:
        async with session(service, column.under(UNSURE), scheme="https:", timeouts=times) as pay:
            result = await ended(column.call(pay))

    assert (kind, attempts, False, attempts == 1) == (type(result), result.attempts, result.sent, result.permanent)
    assert [] == service.requests
    assert column.path.encode() not in service.received


LARGE: Final = {"padding": "x" * 8_000_000}
"""More than the buffers of two sockets hold: its writing fails before it ends."""


async def test_write_that_failed_midway() -> None:
    """A request that broke off in the middle has begun, so that a write without a key is never sent again."""
    for number in ["1", "1k", "3", "5"]:
        column = BY_NUMBER[number]
        told: list[Event] = []
        with Recorder(otherwise=OK, cuts=[1000], by_path=REFUNDED if column.query else {}) as service:
            async with session(service, column.under(UNSURE), on_event=told.append) as pay:
                result = await ended(column.call(pay, extra=LARGE))
        starts = tuple(f"{method} {column.path}{end}".encode() for method, end in (("GET", "?"), ("POST", " ")))
        begun = [each for each in service.connections if each.received.startswith(starts)]
        unnamed = column.kind == "unnamed"

        assert (2 if column.kind in {"read", "close", "keyed"} else 1) == len(begun)
        assert (1 if unnamed else 2) == len(service.connections) == result.attempts
        assert "NoAnswerError" == next(event.error for event in told if isinstance(event, Attempted))
        assert (errors.OutcomeUnknownError is type(result)) == unnamed
        assert bool(column.query) == getattr(result, "recovered", False)


LAST: Final = answer(200, OK_BODY, ("Connection", "close"))
"""A success, after which the connection is not used again."""
cut_column = pytest.mark.parametrize(
    "column",
    [pytest.param(each, id=each.number, marks=[] if each.number in {"1", "5", "1k"} else LONG) for each in COLUMNS],
)
"""Daily a write that nothing names, one that can be asked about, and one with an idempotency key."""


def is_as_told(column: Column, result: Any) -> bool:
    """Return whether a call whose first attempt was cut ended as the table says."""
    if column.kind == "unnamed":
        return errors.OutcomeUnknownError is type(result) and result.attempts == 1
    return isinstance(result, Response) and (result.attempts, result.recovered) == (2, bool(column.query))


@cut_column
async def test_request_that_is_cut(column: Column) -> None:
    """After the first byte, a write without number and key is unknown and not repeated; other calls recover."""
    async with Recorder(otherwise=OK) as service, session(service, column.under(UNSURE)) as pay:
        await column.call(pay)
    offsets, once = range(1, len(service.only.raw), 4), column.kind == "unnamed"
    cuts = [cut for offset in offsets for cut in ((offset,) if once else (offset, None))]
    with Recorder(otherwise=LAST, cuts=cuts, by_path=REFUNDED if column.query else {}) as service:
        async with session(service, column.under(UNSURE)) as pay:
            wrong = [offset for offset in offsets if not is_as_told(column, await ended(column.call(pay)))]
    whole = set() if once else {column.query or column.path}

    assert [] == wrong
    assert len(cuts) == len(service.connections)
    assert whole == received(service).keys()
    assert [cut for cut in cuts if cut] == [len(each.received) for each in service.connections if each.cut]


@pytest.mark.parametrize("end", [GONE, pytest.param(RESET, marks=LONG)], ids=["close", "reset"])
@cut_column
async def test_answer_that_is_cut(column: Column, end: Answer) -> None:
    """A response that is cut anywhere, even before its last byte, is no response."""
    offsets = range(len(LAST.raw) - 1, -1, -4)
    repeated = column.kind in {"read", "close", "keyed"}
    cut = [Answer(LAST.raw[:offset], then=end.then) for offset in offsets]
    script = [each for one in cut for each in ((one, LAST) if repeated else (one,))]
    with Recorder(script, by_path={column.query: LAST, **REFUNDED} if column.query else {}) as service:
        async with session(service, column.under(UNSURE)) as pay:
            wrong = [offset for offset in offsets if not is_as_told(column, await ended(column.call(pay)))]

    assert [] == wrong
    assert len(offsets) * (2 if repeated else 1) == received(service)[column.path]


@named
@pytest.mark.parametrize("profile", [SURE, UNSURE], ids=["with a quarantine", "without"])
async def test_absent_is_sent_again(column: Column, profile: Profile) -> None:
    """A final "not found" leads to a send with a new nonce and signature. Without a quarantine it is never final."""
    with Recorder([RESET], otherwise=OK, by_path={column.query: ABSENT}) as service:
        async with session(service, profile) as pay:
            result = await ended(column.call(pay))
    sends = [signatures.fields(request) for request in service.requests if request.path == column.path]
    changed = {name for name in sends[0] if sends[0][name] != sends[-1][name]}

    assert 1 == received(service)[column.query]
    if profile is SURE:
        assert (2, {"nonceStr", "sign"}, 3, False) == (len(sends), changed, result.attempts, result.recovered)
    else:
        assert (1, errors.OutcomeUnknownError) == (len(sends), type(result))


async def test_duplicate_after_a_lost_close_is_asked_about() -> None:
    """After a lost close, "used before" leads to a query, and the state of the order decides."""
    for state, expected in [
        ("CLOSED", Response),
        ("PAID", errors.ServiceError),
        ("PENDING", errors.OutcomeUnknownError),
        ("WHO_KNOWS", errors.OutcomeUnknownError),
    ]:
        order = answer(200, b'{"code":"SBX_OK","outTradeNo":"T1","status":"SBX_%s"}' % state.encode())
        async with Recorder([RESET, *statuses(409)], by_path={ORDER_QUERY: order}) as service, session(service) as pay:
            result = await ended(pay.orders.close("T1"))

        assert expected is type(result) or (expected is Response and isinstance(result, Response))
        assert {"/payment/closeorder": 2, ORDER_QUERY: 1} == received(service)
        assert expected is not errors.ServiceError or "the order's state is paid" in str(result)


@named
@pytest.mark.parametrize("second", [OK, ABSENT], ids=["found", "absent"])
async def test_duplicate_after_an_absent_answer_is_asked_about(column: Column, second: Answer) -> None:
    """A "used before" after "not found" leads to a query. If that says "not found", nothing is sent again."""
    found = second if second is ABSENT else REFUNDED.get(column.query, OK)
    with Recorder([RESET, ABSENT, *statuses(409), found]) as service:
        async with session(service, SURE) as pay:
            result = await ended(column.call(pay))

    assert {column.path: 2, column.query: 2} == received(service)
    if second is OK:
        assert (True, 4) == (result.recovered, result.attempts)
    else:
        assert (errors.OutcomeUnknownError, True) == (type(result), result.used_before)


async def test_dead_service() -> None:
    """A service that always fails gets at most a hundred further requests, though each call may try thrice."""
    many, impatient = 200, RetryPolicy(base_delay=0, max_delay=0)
    with Recorder(otherwise=answer(500, b"{}")) as service:
        async with session(service, retry=impatient, max_connections=10) as pay:
            ends = await asyncio.gather(*(ended(pay.orders.query("T1")) for _ in range(many)))

    assert {errors.NoAnswerError} == {type(end) for end in ends}
    assert many < len(service.requests) <= many + 100
