"""The failure matrix of the design, cell by cell, as its table has it."""

from typing import Final

import pytest
from attrs import evolve, frozen

from payasync.endpoints import custom
from payasync.errors import (
    AuthenticationError,
    DuplicateError,
    InvalidSignatureError,
    NoAnswerError,
    NoAnswerTimeoutError,
    NotSentError,
    NotSentTimeoutError,
    OutcomeUnknownError,
    PayasyncError,
    RateLimitedError,
    ServiceError,
)
from payasync.middleware.outcome import (
    Action,
    Recourse,
    classify,
    confirms_absence,
    decide,
    decide_after_absence,
    final_error,
    leaves_doubt,
    recourse,
)
from payasync.profile.profile import Profile
from payasync.profile.schema import AnswerShape, HttpCodes, ResultCodes
from payasync.resources.orders import PlaceOrder
from payasync.wire.call import Call, Reply
from tests.building import PROFILE, bare_call, call_for, codec, reply

CODED: Final = evolve(
    PROFILE,
    answer=AnswerShape(code="code", ok=("OK",)),
    codes=ResultCodes(not_executed=("PARAM",), retryable=("BUSY",), duplicate=("USED",), absent=("NONE",)),
)
FIRST_429: Final = evolve(CODED, http=HttpCodes(rate_limit_precedes_execution=True))
SIGNED: Final = evolve(CODED, answer=AnswerShape(code="code", ok=("OK",), signature="sign"))

BESIDE: Final = evolve(CODED, answer=AnswerShape(data="data", code="code", ok=("OK",), signature="data.sign"))
"""The code stands beside what is signed: whoever has a genuine success can change it."""
UNSIGNED_REFUSALS: Final = evolve(SIGNED, answer=evolve(SIGNED.answer, refusals_signed=False))

COLUMNS: Final = {
    "1": "payments.create",
    "2": "",
    "2n": "orders.place",
    "3": "orders.query",
    "4": "orders.close",
    "5": "refunds.create",
    "6": "payments.status",
    "7": "refunds.status",
    "8": "subscriptions.create",
    "9": "subscriptions.update",
    "10": "subscriptions.cancel",
}
"""The ten operations; 2 with a number stands beside 2 without one."""

READS: Final = ("3", "6", "7")


def call_of(number: str, profile: Profile = CODED) -> Call:
    """Return the call of a column."""
    if number == "2":
        return codec(profile).call(PlaceOrder(total_amt=1, currency="CAD"))
    return call_for(COLUMNS[number], profile)


@frozen
class Line:
    """One line of the design's table.

    Attributes:
        cells: One letter for each column: R and W repeat, Q ask, O unknown, F definite, D done, U used before.
        read: The class of a read's last word.
        write: The class of a write's; of a cell O or Q it is `OutcomeUnknownError`, of U `DuplicateError`.
        ends: Attempts that end so.
        profile: What the service does.
    """

    cells: str
    read: type[PayasyncError]
    write: type[PayasyncError]
    ends: tuple[Reply | PayasyncError, ...]
    profile: Profile = CODED


UNKNOWN: Final = OutcomeUnknownError
USUAL_4XX: Final = (400, 404, 405, 413, 415, 422)
UNSENT: Final = (NotSentError("refused"), NotSentError("handshake cut"))
LOST: Final = (NoAnswerError("write failed"), NoAnswerError("no response"), NoAnswerError("truncated"))
HTML: Final = Reply(status=200, headers={}, body=b"<html>")
FORGED: Final = evolve(reply({"code": "OK"}), verified=False)
UNSIGNED: Final = reply({"code": "OK"})

#                                        1 2 n 3 4 5 6 7 8 9 10
TABLE: Final = {
    "refused":                    Line("R R R R R R R R R R R", NotSentError, NotSentError, UNSENT),
    "no connection in time":      Line("R R R R R R R R R R R", NotSentTimeoutError, NotSentTimeoutError,
                                       (NotSentTimeoutError("late"),)),
    "bad certificate":            Line("F F F F F F F F F F F", NotSentError, NotSentError,
                                       (NotSentError("untrusted", permanent=True),)),
    "lost":                       Line("O O Q R R Q R R O O O", NoAnswerError, UNKNOWN, LOST),
    "no answer in time":          Line("O O Q R R Q R R O O O", NoAnswerTimeoutError, UNKNOWN,
                                       (NoAnswerTimeoutError("late"),)),
    "2xx malformed":              Line("O O Q R R Q R R O O O", NoAnswerError, UNKNOWN,
                                       (HTML, reply(None, 204), reply([]), reply({}))),
    "2xx unverified":             Line("O O Q F R Q F F O O O", InvalidSignatureError, UNKNOWN,
                                       (FORGED, UNSIGNED), SIGNED),
    "3xx":                        Line("O O Q F O Q F F O O O", ServiceError, UNKNOWN,
                                       tuple(reply({}, status) for status in (301, 302, 303, 307, 308))),
    "4xx not executed":           Line("F F F F F F F F F F F", ServiceError, ServiceError,
                                       tuple(reply({}, status) for status in USUAL_4XX)),
    "401, 403":                   Line("F F F F F F F F F F F", AuthenticationError, AuthenticationError,
                                       (reply({}, 401), reply({}, 403))),
    "4xx unlisted":               Line("O O Q F O Q F F O O O", ServiceError, UNKNOWN,
                                       (reply({}, 402), reply({}, 410), reply({}, 418))),
    "409":                        Line("O O U F U U F F O O O", ServiceError, UNKNOWN, (reply({}, 409),)),
    "429":                        Line("O O Q W W Q W W O O O", RateLimitedError, UNKNOWN, (reply({}, 429),)),
    "429 that precedes execution": Line("W W W W W W W W W W W", RateLimitedError, RateLimitedError,
                                       (reply({}, 429),), FIRST_429),
    "5xx":                        Line("O O Q R R Q R R O O O", NoAnswerError, UNKNOWN,
                                       tuple(reply({}, status) for status in (500, 502, 503, 504))),
    "200, code not executed":    Line("F F F F F F F F F F F", ServiceError, ServiceError, (reply({"code": "PARAM"}),)),
    "200, code retryable":        Line("O O Q R R Q R R O O O", NoAnswerError, UNKNOWN, (reply({"code": "BUSY"}),)),
    "200, code duplicate":        Line("O O U F U U F F O O O", ServiceError, UNKNOWN, (reply({"code": "USED"}),)),
    "200, code absent":           Line("F F F F F F F F F F F", ServiceError, ServiceError, (reply({"code": "NONE"}),)),
    "200, code unknown":          Line("O O Q F O Q F F O O O", ServiceError, UNKNOWN, (reply({"code": "WHAT"}),)),
}  # fmt: skip

DECIDED: Final = {
    "R": Action.REPEAT,
    "W": Action.REPEAT,
    "Q": Action.QUERY,
    "O": Action.END,
    "F": Action.END,
    "U": Action.END,
    "D": Action.DONE,
}
CELLS: Final = [
    pytest.param(line, end, number, letter, id=f"{name}-{index}-{number}")
    for name, line in TABLE.items()
    for index, end in enumerate(line.ends)
    for number, letter in zip(COLUMNS, line.cells.split(), strict=True)
]


def word_of(line: Line, number: str, letter: str) -> type[PayasyncError]:
    """Return the class that a cell's call ends with, where no further attempt follows."""
    if number in READS:
        return line.read
    return {"O": OutcomeUnknownError, "Q": OutcomeUnknownError, "U": DuplicateError}.get(letter, line.write)


@pytest.mark.parametrize(("line", "end", "number", "letter"), CELLS)
def test_first_attempt(line: Line, end: Reply | PayasyncError, number: str, letter: str) -> None:
    """Every cell of the table: what follows, which error is the last word, and whether doubt stays."""
    call = call_of(number, line.profile)
    found = classify(call, end)
    doubt = leaves_doubt(call, found)
    expected = word_of(line, number, letter)

    assert (expected is OutcomeUnknownError) == doubt
    assert DECIDED[letter] is decide(call, found, doubt=doubt)
    assert expected is type(final_error(call, found, end, doubt=doubt))


REFUSED: Final = ("4xx not executed", "401, 403", "200, code not executed", "200, code absent")
USED: Final = ("409", "200, code duplicate")


def second(name: str, number: str, letter: str) -> Action:
    """Return what follows a second attempt, after one that nobody knows the end of."""
    if number not in {"2n", "4", "5"}:
        return Action.END
    if name in USED:
        return Action.QUERY
    if name in REFUSED:
        return Action.END if number == "4" else Action.QUERY
    return DECIDED["Q" if letter == "W" and number != "4" else letter]


@pytest.mark.parametrize(
    ("name", "end", "number", "letter"),
    [
        pytest.param(name, end, number, letter, id=f"{name}-{index}-{number}")
        for name, line in TABLE.items()
        for index, end in enumerate(line.ends)
        for number, letter in zip(COLUMNS, line.cells.split(), strict=True)
        if number not in READS
    ],
)
def test_attempt_after_one_in_doubt(name: str, end: Reply | PayasyncError, number: str, letter: str) -> None:
    """Doubt is sticky: a refusal says nothing of an attempt before it, and "used before" leads to a query."""
    call = call_of(number, TABLE[name].profile)
    found = classify(call, end)

    assert second(name, number, letter) is decide(call, found, doubt=True)
    assert OutcomeUnknownError is type(final_error(call, found, end, doubt=True))


@pytest.mark.parametrize("number", COLUMNS)
@pytest.mark.parametrize("doubt", [False, True])
def test_success_is_the_end(number: str, *, doubt: bool) -> None:
    """A recognised answer is the answer, whatever was before it."""
    call = call_of(number)
    found = classify(call, reply({"code": "OK"}))

    assert Action.DONE is decide(call, found, doubt=doubt)
    assert not leaves_doubt(call, found)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        *((number, Recourse.NONE) for number in ("1", "2", "8", "9", "10")),
        *((number, Recourse.REPEAT) for number in READS),
        ("4", Recourse.CLOSE),
        *((number, Recourse.QUERY) for number in ("2n", "5")),
    ],
)
def test_column(number: str, expected: Recourse) -> None:
    """What can be asked about, what may be repeated, and what neither."""
    assert expected is recourse(call_of(number))


@pytest.mark.parametrize(("read", "expected"), [(True, Recourse.REPEAT), (False, Recourse.NONE)])
def test_column_of_an_endpoint_of_ones_own(expected: Recourse, *, read: bool) -> None:
    """A call to an unknown endpoint is a write that nothing names, unless the caller says that it reads."""
    assert expected is recourse(bare_call(custom("POST", "/bill", read=read)))


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (NoAnswerError("cut"), Action.REPEAT),
        (reply({}, 503), Action.REPEAT),
        (HTML, Action.REPEAT),
        (reply({}, 302), Action.REPEAT),
        (reply({}, 418), Action.REPEAT),
        (reply({}, 400), Action.END),
        (reply({"code": "NONE"}), Action.END),
        (reply({}, 409), Action.END),
    ],
)
@pytest.mark.parametrize("number", ["2n", "5"])
def test_after_a_final_absent(number: str, end: Reply | PayasyncError, expected: Action) -> None:
    """What was in doubt was not done: it is sent again; a refusal that came meanwhile is definite."""
    call = call_of(number)

    assert expected is decide_after_absence(call, classify(call, end))


@pytest.mark.parametrize("number", READS)
@pytest.mark.parametrize(
    ("answer", "profile", "expected"),
    [
        (reply({"code": "NONE"}), CODED, True),
        (reply({"code": "NONE"}, 404), CODED, True),
        (reply({}, 404), CODED, False),
        (reply({}, 404), evolve(CODED, http=HttpCodes(absent=(404,))), True),
        (reply({"code": "PARAM"}, 404), evolve(CODED, http=HttpCodes(absent=(404,))), False),
        (reply({"code": "OK"}), CODED, False),
        (reply({"code": "NONE"}, 500), CODED, False),
        (NoAnswerError("cut"), CODED, False),
        (NotSentError("refused"), CODED, False),
        (reply({"code": "NONE"}), SIGNED, False),
        (evolve(reply({"code": "NONE"}), verified=False), SIGNED, False),
        (evolve(reply({"code": "NONE"}), verified=True), SIGNED, True),
        (evolve(reply({"code": "NONE", "totalAmt": 450}), verified=True), SIGNED, True),
        (evolve(reply({"code": "NONE", "data": {"totalAmt": 450}}), verified=True), BESIDE, False),
        (evolve(reply({"code": "NONE", "data": {"amount": 450}}), verified=True), BESIDE, False),
        (evolve(reply({"code": "NONE", "data": {"text": "none"}}), verified=True), BESIDE, True),
        (reply({"code": "NONE", "totalAmt": 450}), CODED, True),
        (reply({"code": "NONE"}), UNSIGNED_REFUSALS, True),
        (evolve(reply({"code": "NONE"}), verified=False), UNSIGNED_REFUSALS, False),
    ],
)
def test_absent_in_the_profiles_words(
    number: str, answer: Reply | PayasyncError, profile: Profile, *, expected: bool
) -> None:
    """Only what the profile calls absent is, and where responses are signed, only what their signature can prove."""
    assert expected == confirms_absence(call_of(number, profile), answer)
