from typing import Any, Final

import pytest
from attrs import evolve

from payasync.endpoints import OPERATIONS, Kind
from payasync.errors import (
    AuthenticationError,
    ConfigurationError,
    DuplicateError,
    InvalidArgumentError,
    InvalidSignatureError,
    NoAnswerError,
    NoAnswerTimeoutError,
    NotSentError,
    NotSentTimeoutError,
    OutcomeUnknownError,
    PayasyncError,
    RateLimitedError,
    ServiceError,
    SessionClosedError,
)
from payasync.middleware.outcome import Outcome, classify, final_error, has_own_number, leaves_doubt
from payasync.profile.profile import Profile
from payasync.profile.schema import AnswerShape, HttpCodes, ResultCodes
from payasync.resources.orders import PlaceOrder
from payasync.wire.call import Call, Reply
from tests.building import PROFILE, call_for, codec, reply

CODED: Final = evolve(
    PROFILE,
    answer=AnswerShape(data="data", code="code", ok=(0, "OK"), message="msg"),
    codes=ResultCodes(
        not_executed=("PARAM", 7), retryable=("BUSY",), duplicate=("USED", "already paid"), absent=("NONE",)
    ),
    http=HttpCodes(not_executed=(400, 401, 403, 404, 422), absent=(404, 410)),
)
READS: Final = [operation.name for operation in OPERATIONS if operation.kind is Kind.READ]
WRITES: Final = [operation.name for operation in OPERATIONS if operation.kind is not Kind.READ]
KEYED: Final = [operation.name for operation in OPERATIONS if operation.kind is Kind.KEYED]
UNKEYED: Final = [operation.name for operation in OPERATIONS if operation.kind is Kind.UNKEYED]
HTML: Final = Reply(status=200, headers={}, body=b"<html>")


def code(value: object, status: int = 200, **more: object) -> Reply:
    """Return a reply in an envelope with a result code."""
    return reply({"code": value, **more}, status)


BY_STATUS: Final[list[tuple[int, Outcome]]] = [
    *((status, Outcome.REDIRECT) for status in (300, 301, 302, 303, 307, 308, 399)),
    (429, Outcome.RATE_LIMITED),
    *((status, Outcome.SERVER_ERROR) for status in (500, 501, 502, 503, 504, 599)),
]
"""What is judged by status alone."""

BY_CODE: Final[list[tuple[Reply, Outcome]]] = [
    (code(0), Outcome.SUCCESS),
    (code("OK"), Outcome.SUCCESS),
    (code("OK", 201), Outcome.SUCCESS),
    (code("OK", data={"a": 1}), Outcome.SUCCESS),
    (code("0"), Outcome.UNLISTED),
    (code(False), Outcome.UNLISTED),  # noqa: FBT003 - a code
    (code(0.0), Outcome.UNLISTED),
    (code(None), Outcome.UNLISTED),
    (code("ok"), Outcome.UNLISTED),
    (code([0]), Outcome.UNLISTED),
    (code("PARAM"), Outcome.NOT_EXECUTED),
    (code(7), Outcome.NOT_EXECUTED),
    (code("7"), Outcome.UNLISTED),
    (code("BUSY"), Outcome.SERVER_ERROR),
    (code("USED"), Outcome.DUPLICATE),
    (code("NONE"), Outcome.ABSENT),
    (code("FAIL", msg="already paid"), Outcome.DUPLICATE),
    (code("FAIL", msg="something else"), Outcome.UNLISTED),
    (code("FAIL", msg=7), Outcome.NOT_EXECUTED),
    (code("PARAM", msg="already paid"), Outcome.NOT_EXECUTED),
    (code("BUSY", msg="PARAM"), Outcome.SERVER_ERROR),
    (code("OK", msg="already paid"), Outcome.SUCCESS),
    (reply({"msg": "already paid"}), Outcome.UNRECOGNISED),
    (reply({}), Outcome.UNRECOGNISED),
    (reply([]), Outcome.UNRECOGNISED),
    (reply("OK"), Outcome.UNRECOGNISED),
    (reply(None), Outcome.UNRECOGNISED),
    (HTML, Outcome.UNRECOGNISED),
    (code("OK", 199), Outcome.UNRECOGNISED),
    (code("OK", 101), Outcome.UNRECOGNISED),
]
"""Answers that say whether it was done, where the profile has a path to a code."""

REFUSALS: Final[list[tuple[Reply, Outcome, Outcome]]] = [
    (reply({}, 400), Outcome.NOT_EXECUTED, Outcome.NOT_EXECUTED),
    (evolve(HTML, status=401), Outcome.NOT_EXECUTED, Outcome.NOT_EXECUTED),
    (reply({}, 404), Outcome.ABSENT, Outcome.NOT_EXECUTED),
    (reply({}, 410), Outcome.ABSENT, Outcome.UNLISTED),
    (reply({}, 409), Outcome.DUPLICATE, Outcome.DUPLICATE),
    (reply({}, 402), Outcome.UNLISTED, Outcome.UNLISTED),
    (reply({}, 418), Outcome.UNLISTED, Outcome.UNLISTED),
    (code("USED", 400), Outcome.DUPLICATE, Outcome.DUPLICATE),
    (code("NONE", 400), Outcome.ABSENT, Outcome.ABSENT),
    (code("BUSY", 400), Outcome.SERVER_ERROR, Outcome.SERVER_ERROR),
    (code("PARAM", 409), Outcome.NOT_EXECUTED, Outcome.NOT_EXECUTED),
    (code("BUSY", 404), Outcome.SERVER_ERROR, Outcome.SERVER_ERROR),
    (code("OTHER", 404), Outcome.ABSENT, Outcome.NOT_EXECUTED),
    (code("OTHER", 409), Outcome.DUPLICATE, Outcome.DUPLICATE),
    (code("OK", 400), Outcome.NOT_EXECUTED, Outcome.NOT_EXECUTED),
    (code("OK", 418), Outcome.UNLISTED, Outcome.UNLISTED),
    (code("x", 418, msg="already paid"), Outcome.DUPLICATE, Outcome.DUPLICATE),
]
"""4xx: a listed code or message, then `http.absent` on queries, then `http.not_executed`, then 409."""


@pytest.mark.parametrize(("status", "expected"), BY_STATUS)
@pytest.mark.parametrize("document", [{}, {"code": "OK"}, {"code": "PARAM"}, {"code": "NONE"}, None])
def test_row_by_status_alone(status: int, expected: Outcome, document: object) -> None:
    """3xx, 429 and 5xx are what they are: no code in the body makes them anything else."""
    assert expected is classify(call_for("refunds.create", CODED), reply(document, status))


@pytest.mark.parametrize(("answer", "expected"), BY_CODE)
@pytest.mark.parametrize("name", ["refunds.create", "orders.query"])
def test_row_by_code(name: str, answer: Reply, expected: Outcome) -> None:
    """HTTP 200 says nothing where a code does; codes compare by type and value."""
    assert expected is classify(call_for(name, CODED), answer)


@pytest.mark.parametrize(("answer", "read", "write"), REFUSALS)
def test_row_of_a_refusal(answer: Reply, read: Outcome, write: Outcome) -> None:
    """The most exact word counts; that nothing is there is an answer to a query only."""
    assert read is classify(call_for("orders.query", CODED), answer)
    assert write is classify(call_for("refunds.create", CODED), answer)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (reply({}), Outcome.SUCCESS),
        (reply({"code": "PARAM"}, 201), Outcome.SUCCESS),
        (reply([]), Outcome.UNRECOGNISED),
        (reply(None, 204), Outcome.UNRECOGNISED),
        (HTML, Outcome.UNRECOGNISED),
        *((reply({}, status), Outcome.NOT_EXECUTED) for status in (400, 401, 403, 404, 405, 413, 415, 422)),
        *((reply({}, status), Outcome.UNLISTED) for status in (402, 406, 408, 410, 411, 418, 425, 451)),
        (reply({}, 409), Outcome.DUPLICATE),
    ],
)
def test_row_without_a_profile(answer: Reply, expected: Outcome) -> None:
    """Without a path to a code, a JSON object with 2xx is success, and the usual 4xx were not executed."""
    assert expected is classify(call_for("payments.create", Profile()), answer)


BY_MESSAGE: Final = evolve(CODED, answer=AnswerShape(message="msg"))
"""It says what messages mean, and shows no place of a result code."""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("PARAM", Outcome.NOT_EXECUTED),
        (7, Outcome.NOT_EXECUTED),
        ("BUSY", Outcome.SERVER_ERROR),
        ("USED", Outcome.DUPLICATE),
        ("already paid", Outcome.DUPLICATE),
        ("NONE", Outcome.ABSENT),
        ("all is well", Outcome.SUCCESS),
        ("OK", Outcome.SUCCESS),
        ("", Outcome.SUCCESS),
        ("param", Outcome.SUCCESS),
        ("7", Outcome.SUCCESS),
        (None, Outcome.SUCCESS),
        (["PARAM"], Outcome.SUCCESS),
    ],
)
@pytest.mark.parametrize("name", ["refunds.create", "payments.create", "orders.query"])
def test_row_by_message_alone(name: str, message: object, expected: Outcome) -> None:
    """Where no place of a code is known, a 2xx is what its listed message says, and else success."""
    for status in (200, 201):
        assert expected is classify(call_for(name, BY_MESSAGE), reply({"msg": message, "code": "PARAM"}, status))


def test_row_without_the_message() -> None:
    """An answer without a message has said nothing against its 2xx; what is no object is still none."""
    call = call_for("refunds.create", BY_MESSAGE)

    assert Outcome.SUCCESS is classify(call, reply({}))
    assert Outcome.UNRECOGNISED is classify(call, reply(["PARAM"]))
    assert Outcome.SERVER_ERROR is classify(call, reply({"msg": "PARAM"}, 500))


def test_code_says_more_than_the_message() -> None:
    """Where a code says success, a message that is listed elsewhere takes nothing back."""
    assert Outcome.SUCCESS is classify(call_for("refunds.create", CODED), code("OK", msg="PARAM"))


def test_message_is_asked_only_where_the_profile_says_so() -> None:
    """A listed code that stands at a place which the profile does not name means nothing."""
    profile = evolve(CODED, answer=AnswerShape(message="msg"))

    assert Outcome.NOT_EXECUTED is classify(call_for("refunds.create", profile), code("USED", 400))
    assert Outcome.DUPLICATE is classify(call_for("refunds.create", profile), reply({"msg": "USED"}, 400))


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (NotSentError("refused"), Outcome.NOT_SENT),
        (NotSentTimeoutError("no connection in time"), Outcome.NOT_SENT),
        (NotSentError("bad certificate", permanent=True), Outcome.NOT_SENDABLE),
        (NoAnswerError("reset"), Outcome.NO_RESPONSE),
        (NoAnswerTimeoutError("no answer in time"), Outcome.NO_RESPONSE),
        (ConfigurationError("no key"), Outcome.NOT_SENDABLE),
        (InvalidArgumentError("cannot be signed"), Outcome.NOT_SENDABLE),
        (SessionClosedError("closed"), Outcome.NOT_SENDABLE),
    ],
)
@pytest.mark.parametrize("name", READS + WRITES)
def test_row_without_a_reply(name: str, outcome: PayasyncError, expected: Outcome) -> None:
    """Either nothing was sent, and then repeating helps or does not, or nobody knows."""
    assert expected is classify(call_for(name), outcome)


SIGNED: Final = evolve(CODED, answer=evolve(CODED.answer, signature="data.sign"))


@pytest.mark.parametrize(
    ("answer", "verified", "expected"),
    [
        (code("OK"), True, Outcome.SUCCESS),
        (code("OK"), None, Outcome.UNVERIFIED),
        (code("OK"), False, Outcome.UNVERIFIED),
        (code("NONE"), True, Outcome.ABSENT),
        (code("NONE"), None, Outcome.ABSENT),
        (code("NONE"), False, Outcome.UNVERIFIED),
        (reply({}, 400), None, Outcome.NOT_EXECUTED),
        (reply({}, 400), False, Outcome.UNVERIFIED),
        (reply({}, 302), False, Outcome.REDIRECT),
        (reply({}, 429), False, Outcome.RATE_LIMITED),
        (reply({}, 500), False, Outcome.SERVER_ERROR),
        (HTML, None, Outcome.UNRECOGNISED),
    ],
)
def test_row_where_answers_are_signed(answer: Reply, expected: Outcome, *, verified: bool | None) -> None:
    """A success must verify; a failure only where it carries a signature; 3xx, 429 and 5xx are what they are."""
    assert expected is classify(call_for("refunds.create", SIGNED), evolve(answer, verified=verified))


@pytest.mark.parametrize("name", WRITES)
def test_the_profiles_own_list_says_which_statuses_mean_not_executed(name: str) -> None:
    """A status counts as "not executed" where the profile lists it, in place of the assumed list, not beside it."""
    own = evolve(CODED, http=HttpCodes(not_executed=(418,)))
    call = call_for(name, own)

    assert Outcome.NOT_EXECUTED is classify(call, reply({}, 418))
    assert Outcome.UNLISTED is classify(call, reply({}, 400))


def word(call: Call, outcome: Reply | PayasyncError, *, earlier: bool = False) -> PayasyncError:
    """Return the error of a call whose last attempt ended so, and whose earlier one nobody knows the end of."""
    found = classify(call, outcome)
    return final_error(call, found, outcome, doubt=earlier or leaves_doubt(call, found))


LOST: Final = [NoAnswerError("cut", reason="cut"), NoAnswerTimeoutError("late", reason="cut")]
UNCLEAR: Final = [reply({}, 502), reply(None, 500), HTML, code("BUSY"), reply([])]


@pytest.mark.parametrize("answer", UNCLEAR)
@pytest.mark.parametrize("name", WRITES)
def test_unclear_answer_to_a_write_is_unknown(name: str, answer: Reply) -> None:
    """Whatever does not clearly say that nothing was done may have been done: ask, do not repeat."""
    error = word(call_for(name, CODED), answer)

    assert type(error) is OutcomeUnknownError
    assert not isinstance(error, OSError)
    assert error.sent is True
    assert "do not repeat it" in str(error)


@pytest.mark.parametrize("answer", UNCLEAR)
@pytest.mark.parametrize("name", READS)
def test_unclear_answer_to_a_read_is_none(name: str, answer: Reply) -> None:
    """Asking again is harmless."""
    error = word(call_for(name, CODED), answer)

    assert type(error) is NoAnswerError
    assert error.sent is True
    assert error.response is not None


@pytest.mark.parametrize("answer", [reply({}, 302), reply({}, 418), code("OTHER"), code("OTHER", 402)])
@pytest.mark.parametrize("name", READS + WRITES)
def test_unlisted_refusal(name: str, answer: Reply) -> None:
    """A redirect and a refusal that nobody listed end a read; to a write they prove nothing."""
    expected = ServiceError if name in READS else OutcomeUnknownError

    assert expected is type(word(call_for(name, CODED), answer))


@pytest.mark.parametrize("answer", [reply({}, 400), code("PARAM"), code("PARAM", 418), code("NONE"), code(7)])
@pytest.mark.parametrize("name", READS + WRITES)
def test_listed_refusal_is_definite(name: str, answer: Reply) -> None:
    """What the profile lists as not executed, or as absent, was not done."""
    error = word(call_for(name, CODED), answer)

    assert type(error) is ServiceError
    assert error.sent is True


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("name", READS + WRITES)
def test_keys_that_the_service_does_not_take(name: str, status: int) -> None:
    """401 and 403 are about the keys, or the signature."""
    assert AuthenticationError is type(word(call_for(name), reply({}, status)))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(code("NONE", 401), ServiceError), (code("USED", 403), DuplicateError), (code("PARAM", 401), AuthenticationError)],
)
def test_a_code_says_more_than_401(answer: Reply, expected: type[PayasyncError]) -> None:
    """A listed code that is about the number is not about the keys."""
    assert expected is type(word(call_for("refunds.create", CODED), answer))


@pytest.mark.parametrize("answer", [reply({}, 409), code("USED"), code("FAIL", msg="already paid")])
@pytest.mark.parametrize("name", READS + WRITES)
def test_duplicate(name: str, answer: Reply) -> None:
    """A number that was used before is named by the call; who names nothing cannot have used it."""
    expected = {**dict.fromkeys(READS, ServiceError), **dict.fromkeys(KEYED, DuplicateError)}

    assert expected.get(name, OutcomeUnknownError) is type(word(call_for(name, CODED), answer))


def test_duplicate_order_without_a_number() -> None:
    """Endpoint 2 names its order only where `out_trade_no` is given: without it 409 proves nothing."""
    call = codec(CODED).call(PlaceOrder(total_amt=1, currency="CAD"))

    assert not has_own_number(call)
    assert has_own_number(call_for("orders.place"))
    assert OutcomeUnknownError is type(word(call, reply({}, 409)))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", READS + WRITES)
def test_rate_limit(name: str, *, first: bool) -> None:
    """429 to a write proves something only where the profile says that it precedes execution."""
    profile = evolve(PROFILE, http=HttpCodes(rate_limit_precedes_execution=first))
    error = word(call_for(name, profile), reply({}, 429, {"Retry-After": "7"}))

    assert (RateLimitedError if first or name in READS else OutcomeUnknownError) is type(error)
    assert 7.0 == error.retry_after


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("name", WRITES)
def test_write_without_an_answer_is_unknown(name: str, lost: NoAnswerError) -> None:
    """It may have been done, and what retries on time-outs must not pay twice."""
    error = word(call_for(name), lost)

    assert type(error) is OutcomeUnknownError
    assert not isinstance(error, TimeoutError)
    assert ("cut", None) == (error.reason, error.sent)
    assert lost.args[0] in str(error)
    assert "do not repeat it" in str(error)
    assert ("ask for its state" in str(error)) == (name in {"orders.place", "orders.close", "refunds.create"})


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("name", READS)
def test_read_without_an_answer_is_what_it_is(name: str, lost: NoAnswerError) -> None:
    """A read that got no answer says so, as a time-out where it was one."""
    assert lost is word(call_for(name), lost)


@pytest.mark.parametrize(
    "outcome",
    [NotSentError("refused"), ConfigurationError("no key"), InvalidArgumentError("no"), OutcomeUnknownError("?")],
)
@pytest.mark.parametrize("name", ["payments.create", "orders.query"])
def test_an_error_of_ours_is_its_own_last_word(name: str, outcome: PayasyncError) -> None:
    """What already says what to do next is not said anew."""
    assert outcome is word(call_for(name), outcome)


def test_refusal_tells_what_the_service_said() -> None:
    """The error has the service's code and words, the answer, and what the call was about."""
    answer = evolve(code("PARAM", 418, msg="no such currency"), attempts=2)
    error: Any = word(call_for("refunds.create", CODED), answer)

    assert ("PARAM", "no such currency", 418) == (error.code, error.message, error.http_status)
    assert ("refunds.create", "R1", 2, None) == (error.operation, error.reference, error.attempts, error.retry_after)
    assert {"code": "PARAM", "msg": "no such currency"} == error.response.document
    assert Outcome.NOT_EXECUTED.value == error.reason
    assert (
        "refunds.create R1: HTTP 418, refused before it was done (code 'PARAM': no such currency) (after 2 attempts)"
        == str(error)
    )


@pytest.mark.parametrize(
    ("answer", "code_", "message", "shown"),
    [
        (code(7), 7, None, "(code 7)"),
        (code(7, msg=5), 7, "5", "(code 7: 5)"),
        (code("PARAM", msg=None), "PARAM", None, "(code 'PARAM')"),
        (code("PARAM", msg=["x"]), "PARAM", None, "(code 'PARAM')"),
        (reply({"msg": "PARAM"}, 400), None, "PARAM", "(PARAM)"),
        (reply(None, 400), None, None, "done"),
    ],
)
def test_refusal_shows_what_is_there(answer: Reply, code_: object, message: str | None, shown: str) -> None:
    """A code is a text or an integer; what is neither, or missing, is `None` and leaves no trace."""
    error: Any = word(call_for("refunds.create", CODED), answer)

    assert (code_, message) == (error.code, error.message)
    assert str(error).endswith(shown)


LONG: Final = "no such currency\n" * 50_000


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 199 + "…"),
        (LONG, ("no such currency " * 12)[:199] + "…"),
        ("one\r\nINFO two", "one INFO two"),
        (" a \t\x0b\x00\x1b[31m\x7f\x85\x9f\u2028\u2029 b ", "a [31m b"),
        ("a\u00a0b", "a b"),
        ("Größe 😀 日本", "Größe 😀 日本"),
        ("\n" * 900_000 + "late", "late"),
    ],
    ids=["limit", "beyond", "long", "log line", "control", "space", "unicode", "blank"],
)
@pytest.mark.parametrize("earlier", [False, True], ids=["refused", "in doubt"])
def test_error_shows_a_line_of_the_message(message: str, shown: str, *, earlier: bool) -> None:
    """A log gets one line, and no more of it than a person reads; the error keeps what the service said."""
    error: Any = word(call_for("refunds.create", CODED), code("PARAM", 400, msg=message), earlier=earlier)

    assert f"(code 'PARAM': {shown})" in str(error)
    assert 500 > len(str(error))
    assert str(error).isprintable()
    assert {"code": "PARAM", "msg": message} == error.response.document
    assert earlier or message == error.message


@pytest.mark.parametrize("message", ["", " ", "\n\t\x00"], ids=repr)
def test_message_of_nothing_is_not_shown(message: str) -> None:
    """What has nothing to read leaves no trace in the text."""
    error: Any = word(call_for("refunds.create", CODED), code("PARAM", 400, msg=message))

    assert str(error).endswith("(code 'PARAM')")
    assert message == error.message


def test_error_shows_a_line_of_the_code() -> None:
    """A code may be as long as its service likes, too."""
    said = code("a\n" * 300, 418)
    error: Any = word(call_for("orders.query", CODED), said)

    assert f"(code {('a ' * 100)[:199] + '…'!r})" in str(error)
    assert "a\n" * 300 == error.code


def test_unknown_outcome_has_the_answer() -> None:
    """An answer that was not understood is kept for a person to read."""
    error: Any = word(call_for("refunds.create"), reply({"odd": 1}, 503, {"retry-after": "3"}))

    assert {"odd": 1} == error.response.data
    assert (3.0, Outcome.SERVER_ERROR.value, "R1") == (error.retry_after, error.reason, error.reference)


@pytest.mark.parametrize("name", UNKEYED)
def test_unkeyed_writes_name_nothing(name: str) -> None:
    """A subscription's number is the service's own: it does not make a second change harmless."""
    assert not has_own_number(call_for(name))


@pytest.mark.parametrize("name", READS + WRITES)
def test_success_that_does_not_verify(name: str) -> None:
    """A read says so at once; a write may have been done, and says why nobody believes it."""
    error = word(call_for(name, SIGNED), evolve(code("OK"), verified=False))
    forged = error if name in READS else error.reason

    assert (InvalidSignatureError if name in READS else OutcomeUnknownError) is type(error)
    assert isinstance(forged, InvalidSignatureError)
    assert (True, {"code": "OK"}) == (error.sent, error.response and error.response.document)


REFUSALS_OF_A_SECOND_ATTEMPT: Final = [
    (reply({}, 400), "refused before it was done"),
    (reply({}, 401), "refused before it was done"),
    (code("NONE"), "not found"),
    (reply({}, 409), "the number was used before"),
]


@pytest.mark.parametrize(("answer", "said"), REFUSALS_OF_A_SECOND_ATTEMPT)
@pytest.mark.parametrize("name", KEYED)
def test_doubt_is_sticky(name: str, answer: Reply, said: str) -> None:
    """A refusal of attempt 2 says nothing of attempt 1: the outcome stays unknown, and the error says why."""
    error = word(call_for(name, CODED), answer, earlier=True)

    assert OutcomeUnknownError is type(error)
    assert f"{said}, after an attempt that nobody knows the end of" == error.reason
    assert error.response is not None


@pytest.mark.parametrize("outcome", [NotSentError("refused", reason="refused"), ConfigurationError("refused")])
def test_doubt_outlives_what_was_not_sent(outcome: PayasyncError) -> None:
    """That attempt 2 never left says nothing of attempt 1, either."""
    error = word(call_for("refunds.create"), outcome, earlier=True)

    assert OutcomeUnknownError is type(error)
    assert ("refused", None) == (error.reason, error.sent)


def test_doubt_is_not_told_twice() -> None:
    """What already says that the outcome is unknown is not said anew."""
    outcome = OutcomeUnknownError("?")

    assert outcome is word(call_for("refunds.create"), outcome, earlier=True)


@pytest.mark.parametrize("name", WRITES)
def test_write_is_never_called_a_read(name: str) -> None:
    """A write that got no answer, though a query said later that it was not done, is no `NoAnswerError`."""
    error = final_error(call_for(name), Outcome.NO_RESPONSE, NoAnswerError("cut"), doubt=False)

    assert OutcomeUnknownError is type(error)
