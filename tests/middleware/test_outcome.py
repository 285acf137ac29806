"""The failure matrix as plain functions: what the end of an attempt means, and what follows from it."""

from datetime import UTC, datetime
from itertools import product
from typing import Any, Final

from attrs import evolve

from payasync import errors
from payasync.endpoints import OPERATIONS
from payasync.middleware.outcome import (
    Action,
    Outcome,
    classify,
    confirms_absence,
    decide,
    decide_after_absence,
    final_error,
    leaves_doubt,
)
from payasync.profile.profile import Profile
from payasync.profile.schema import AnswerShape, HttpCodes, Idempotency, ResultCodes
from payasync.resources.orders import PlaceOrder
from payasync.signing.schemes import SortedPairs
from payasync.wire.call import Call, Reply
from payasync.wire.response import parse_retry_after
from tests.building import PROFILE, call_for, codec, reply
from tests.matrix.table import KINDS, ROWS

CODED: Final = evolve(
    PROFILE,
    answer=AnswerShape(code="code", ok=("OK",)),
    codes=ResultCodes(not_executed=("PARAM",), retryable=("BUSY",), duplicate=("USED",), absent=("NONE",)),
)
FIRST_429: Final = evolve(CODED, http=HttpCodes(rate_limit_precedes_execution=True))
SIGNED: Final = evolve(CODED, answer=AnswerShape(code="code", ok=("OK",), signature="sign"))


KEYED: Final = Idempotency(header="Idempotency-Key")


def call_of(number: str, profile: Profile = CODED) -> Call:
    """Return the call of an endpoint; "2" is an order without a number, "2n" one with a number, "2k" with a key."""
    if KINDS[number] == "keyed":
        profile = evolve(profile, idempotency=KEYED)
    if number in {"2", "2k"}:
        return codec(profile).call(PlaceOrder(total_amt=1, currency="CAD"))
    return call_for(OPERATIONS[int(number.strip("nk")) - 1].name, profile)


USUAL_4XX: Final = (400, 404, 405, 413, 415, 422)
HTML: Final = Reply(status=200, headers={}, body=b"<html>")
FORGED: Final = evolve(reply({"code": "OK"}), verified=False)
UNSIGNED: Final = reply({"code": "OK"})


def own(status: int) -> Reply:
    """Return a refusal with a code that the profile does not list: no hop writes such a code."""
    return reply({"code": "OTHER"}, status)


Ends = tuple[Reply | errors.PayasyncError, ...]
ENDS: Final[list[tuple[str, Ends, Profile]]] = [
    ("not sent", (errors.NotSentError("refused"),), CODED),
    ("not sent in time", (errors.NotSentTimeoutError("late"),), CODED),
    ("not sendable", (errors.NotSentError("untrusted", permanent=True),), CODED),
    ("no response", (errors.NoAnswerError("cut"),), CODED),
    ("no response in time", (errors.NoAnswerTimeoutError("late"),), CODED),
    ("unrecognised", (HTML, reply(None, 204), reply([]), reply({}), reply({}, 404), evolve(HTML, status=403)), CODED),
    ("unverified", (FORGED, UNSIGNED), SIGNED),
    ("redirect", tuple(reply({}, status) for status in (301, 302, 303, 307, 308)), CODED),
    ("not executed", (*map(own, USUAL_4XX), reply({"code": "PARAM"})), CODED),
    ("not authenticated", (reply({}, 401), own(403)), CODED),
    ("absent", (reply({"code": "NONE"}),), CODED),
    ("unlisted", (*map(own, (402, 410, 418)), reply({"code": "WHAT"})), CODED),
    ("duplicate", (own(409), reply({"code": "USED"})), CODED),
    ("rate limited", (reply({}, 429),), CODED),
    ("rate limited", (reply({}, 429), evolve(HTML, status=429)), FIRST_429),
    ("rate limited before it", (reply({"code": "BUSY"}, 429),), FIRST_429),
    ("server error", (*(reply({}, status) for status in (500, 502, 503, 504)), reply({"code": "BUSY"})), CODED),
]
"""By row of the table, the attempts that end so, and what the service does."""

NEXT: Final = {"repeat": Action.REPEAT, "wait": Action.REPEAT, "query": Action.QUERY}
"""By word of the table, the next action; the other words are the end."""
CELLS: Final = [(name, number, end, profile) for name, ends, profile in ENDS for number, end in product(KINDS, ends)]


def test_first_attempt() -> None:
    """Every cell of the table: the next action, the final error, and whether doubt remains."""
    for name, number, end, profile in CELLS:
        call, error = call_of(number, profile), ROWS[name].error(number)
        outcome = classify(call, end)
        doubt = leaves_doubt(call, outcome, end)
        expected = NEXT.get(ROWS[name].word(number), Action.END), error, error is errors.OutcomeUnknownError

        ended = type(final_error(call, outcome, end, doubt=doubt))

        assert expected == (decide(call, outcome, doubt=doubt), ended, doubt)


def second(name: str, number: str) -> Action:
    """Return the action that must follow a second attempt, if the outcome of the first is unknown."""
    kind, word = KINDS[number], ROWS[name].word(number)
    if kind == "unnamed":
        return Action.END
    if name == "duplicate":
        return Action.REPEAT if kind == "keyed" else Action.QUERY
    if name in {"not executed", "not authenticated", "absent"}:
        return Action.END if kind in {"close", "keyed"} else Action.QUERY
    return Action.QUERY if word == "wait" and kind == "named" else NEXT.get(word, Action.END)


def test_attempt_after_one_in_doubt() -> None:
    """After an attempt in doubt, a refusal is not final, and "used before" leads to a query."""
    for name, number, end, profile in CELLS:
        call = call_of(number, profile)
        outcome = classify(call, end)
        if not call.read:
            assert second(name, number) is decide(call, outcome, doubt=True)
            assert errors.OutcomeUnknownError is type(final_error(call, outcome, end, doubt=True))


def test_key_of_a_call_that_can_be_asked_about() -> None:
    """A key changes nothing for a read, a close, and a write with a number."""
    for number in ["2n", "3", "4", "5"]:
        plain, keyed = (call_of(number, evolve(CODED, idempotency=each)) for each in (Idempotency(), KEYED))

        for outcome, doubt in product(Outcome, (False, True)):
            assert decide(plain, outcome, doubt=doubt) is decide(keyed, outcome, doubt=doubt)


def test_absent_by_a_message_beside_a_signed_code() -> None:
    """A message that nobody signed says "not found" only if the signed fields do not contradict it."""
    profile = evolve(SIGNED, answer=evolve(SIGNED.answer, message="msg"))
    for document, expected in [
        ({"code": "NONE", "totalAmt": 450}, True),
        ({"code": "WHAT", "msg": "NONE", "totalAmt": 450}, False),
    ]:
        assert expected is confirms_absence(call_of("3", profile), evolve(reply(document), verified=True))


def test_after_a_final_absent() -> None:
    """After a final "not found" the write is sent again, unless its last attempt was refused."""
    open_ends: Ends = (errors.NoAnswerError("cut"), HTML, reply({}, 302), own(418), reply({}, 503))
    ends: Ends = (*open_ends, own(400), reply({"code": "NONE"}), own(409))
    for number, end in product(["2n", "5"], ends):
        call, expected = call_of(number), Action.REPEAT if end in open_ends else Action.END

        assert expected is decide_after_absence(call, classify(call, end))


ENVELOPED: Final = evolve(
    PROFILE,
    answer=AnswerShape(data="data", code="code", ok=(0, "OK"), message="msg"),
    codes=ResultCodes(
        not_executed=("PARAM", 7), retryable=("BUSY",), duplicate=("USED", "already paid"), absent=("NONE",)
    ),
    http=HttpCodes(not_executed=(400, 401, 403, 404, 425), absent=(404, 410), duplicate=(423,)),
)


def code(value: object, status: int = 200, **more: object) -> Reply:
    """Return a reply in an envelope with a result code."""
    return reply({"code": value, **more}, status)


BY_STATUS: Final[list[tuple[int, Outcome]]] = [
    *((status, Outcome.REDIRECT) for status in (300, 301, 302, 303, 307, 308, 399)),
    (429, Outcome.RATE_LIMITED),
    *((status, Outcome.SERVER_ERROR) for status in (500, 501, 502, 503, 504, 599)),
]
"""What is judged by status alone."""

WITHOUT_CODE: Final[tuple[object, ...]] = ({"msg": "already paid"}, {}, [], "OK", None)
BY_CODE: Final[list[tuple[Reply, Outcome]]] = [
    *((code(value), Outcome.SUCCESS) for value in (0, "OK")),
    (code("OK", 201, data={"a": 1}), Outcome.SUCCESS),
    (code("OK", msg="already paid"), Outcome.SUCCESS),
    *((code(value), Outcome.UNLISTED) for value in ("0", False, 0.0, None, "ok", [0], "7")),
    (code("FAIL", msg="something else"), Outcome.UNLISTED),
    *((code(value), Outcome.NOT_EXECUTED) for value in ("PARAM", 7)),
    (code("FAIL", msg=7), Outcome.NOT_EXECUTED),
    (code("PARAM", msg="already paid"), Outcome.NOT_EXECUTED),
    (code("BUSY", msg="PARAM"), Outcome.SERVER_ERROR),
    (code("USED"), Outcome.DUPLICATE),
    (code("FAIL", msg="already paid"), Outcome.DUPLICATE),
    (code("NONE"), Outcome.ABSENT),
    *((reply(document), Outcome.UNRECOGNISED) for document in WITHOUT_CODE),
    *((answer, Outcome.UNRECOGNISED) for answer in (HTML, code("OK", 199), code("OK", 101))),
]
"""Answers that say whether it was done, where the profile has a path to a code."""

REFUSALS: Final[list[tuple[Reply, Outcome, Outcome]]] = [
    (own(400), Outcome.NOT_EXECUTED, Outcome.NOT_EXECUTED),
    (evolve(HTML, status=401), Outcome.NOT_EXECUTED, Outcome.NOT_EXECUTED),
    (own(404), Outcome.ABSENT, Outcome.NOT_EXECUTED),
    (own(410), Outcome.ABSENT, Outcome.UNLISTED),
    (own(423), Outcome.DUPLICATE, Outcome.DUPLICATE),
    (own(425), Outcome.NOT_EXECUTED, Outcome.NOT_EXECUTED),
    # The profile's lists take the place of the usual ones.
    *((own(status), Outcome.UNLISTED, Outcome.UNLISTED) for status in (409, 418, 422)),
    (code("USED", 400), Outcome.DUPLICATE, Outcome.DUPLICATE),
    (code("NONE", 400), Outcome.ABSENT, Outcome.ABSENT),
    (code("BUSY", 400), Outcome.SERVER_ERROR, Outcome.SERVER_ERROR),
    (code("PARAM", 409), Outcome.NOT_EXECUTED, Outcome.NOT_EXECUTED),
    (code("OTHER", 404), Outcome.ABSENT, Outcome.NOT_EXECUTED),
    (code("OTHER", 423), Outcome.DUPLICATE, Outcome.DUPLICATE),
    (code("OK", 400), Outcome.NOT_EXECUTED, Outcome.NOT_EXECUTED),
    *((each, Outcome.UNRECOGNISED, Outcome.UNRECOGNISED) for each in (reply({}, 400), code([7], 404), code(403, 403))),
    (code("x", 418, msg="already paid"), Outcome.DUPLICATE, Outcome.DUPLICATE),
]
"""4xx: a listed code or message, then `http.absent` on queries, then `http.not_executed`, then `http.duplicate`."""


def test_outcome_by_status_alone() -> None:
    """The status alone decides 3xx, 429 and 5xx, whatever the body says."""
    for document in [{}, {"code": "OK"}, {"code": "PARAM"}, {"code": "NONE"}, None]:
        for status, expected in BY_STATUS:
            assert expected is classify(call_for("refunds.create", ENVELOPED), reply(document, status))


ONLY_IN_FAILURES: Final = evolve(
    ENVELOPED,
    answer=AnswerShape(code=("error.code", "errors.0.code"), code_optional=True, message=("error.msg", "msg")),
)
"""It has codes in failures only, at one of two places."""


def test_outcome_where_only_failures_have_codes() -> None:
    """If codes are optional, a 2xx without a code is success; the first code that is there decides."""
    for document, expected in [
        ({}, Outcome.SUCCESS),
        ({"code": "PARAM", "error": None, "errors": []}, Outcome.SUCCESS),
        ({"error": {"code": None}}, Outcome.SUCCESS),
        ({"error": {"code": "PARAM"}}, Outcome.NOT_EXECUTED),
        ({"error": {"code": "BUSY"}, "errors": [{"code": "PARAM"}]}, Outcome.SERVER_ERROR),
        ({"error": {"code": None}, "errors": [{"code": "NONE"}]}, Outcome.ABSENT),
        ({"error": {"code": "", "msg": "already paid"}}, Outcome.DUPLICATE),
        ({"error": {"code": ["PARAM"]}}, Outcome.UNLISTED),
        ({"msg": "already paid"}, Outcome.DUPLICATE),
        ([], Outcome.UNRECOGNISED),
    ]:
        assert expected is classify(call_for("refunds.create", ONLY_IN_FAILURES), reply(document))


ENDING: Final = ("orders.close", "subscriptions.update", "subscriptions.cancel")


def test_success_without_a_body() -> None:
    """A 204 is success if it ends or changes something, and a success needs no code. It names nothing."""
    for profile in [PROFILE, ONLY_IN_FAILURES, CODED]:
        for operation in [each.name for each in OPERATIONS]:
            named = evolve(profile, answer=evolve(profile.answer, out_trade_no="no", subscription_id="id"))
            answer, success = call_for(operation, named), operation in ENDING and profile is not CODED

            assert (Outcome.SUCCESS if success else Outcome.UNRECOGNISED) is classify(answer, reply(None, 204))
            assert Outcome.UNRECOGNISED is classify(answer, reply(None, 200))  # it may have been cut off


def test_success_without_a_code_that_is_relabelled() -> None:
    """If codes are optional, a signed response without one may be a success with another status: no refusal."""
    shape = AnswerShape(code="error.code", code_optional=True, refund_status="state", signature="sign")
    pairs, success = SortedPairs(nested="json"), {"outRefundNo": "R1", "state": "X"}
    profile = evolve(ENVELOPED, answer=shape, signature=pairs, http=HttpCodes(uncoded=(404,)))
    for document, expected in [
        (success, Outcome.UNRECOGNISED),
        ({**success, "error": {"code": None}}, Outcome.UNRECOGNISED),
        ({"error": {"code": "NONE"}}, Outcome.ABSENT),
    ]:
        assert expected is classify(call_for("refunds.create", profile), evolve(reply(document, 404), verified=True))


def test_codes_of_one_operation() -> None:
    """The codes of an operation go before the general ones, which count for all that it does not list."""
    own_codes = {"refunds.create": {"absent": ["PARAM"], "retryable": ["no money"]}}
    profile = evolve(ENVELOPED, codes=evolve(ENVELOPED.codes, by_operation=own_codes))
    for answer, refund, other in [
        (code("PARAM", 400), Outcome.ABSENT, Outcome.NOT_EXECUTED),
        (code("USED"), Outcome.DUPLICATE, Outcome.DUPLICATE),
        (code("USED", msg="no money"), Outcome.SERVER_ERROR, Outcome.DUPLICATE),
    ]:
        assert refund is classify(call_for("refunds.create", profile), answer)
        assert other is classify(call_for("orders.place", profile), answer)


def test_outcome_by_code() -> None:
    """If the profile names a code, it decides a 200; codes compare by type and value."""
    for name in ["refunds.create", "orders.query"]:
        for answer, expected in BY_CODE:
            assert expected is classify(call_for(name, ENVELOPED), answer)


def test_outcome_of_a_refusal() -> None:
    """A listed code counts more than the status; "not found" by status is for queries only."""
    for answer, read, write in REFUSALS:
        assert read is classify(call_for("orders.query", ENVELOPED), answer)
        assert write is classify(call_for("refunds.create", ENVELOPED), answer)


def test_outcome_without_a_profile() -> None:
    """Without a path to a code, a JSON object with 2xx is success, and the usual 4xx were not executed."""
    for answer, expected in [
        (reply({}), Outcome.SUCCESS),
        (reply({"code": "PARAM"}, 201), Outcome.SUCCESS),
        (reply([]), Outcome.UNRECOGNISED),
        (reply(None, 204), Outcome.UNRECOGNISED),
        (HTML, Outcome.UNRECOGNISED),
        *((reply({}, status), Outcome.NOT_EXECUTED) for status in (400, 401, 403, 404, 405, 413, 415, 422)),
        *((reply({}, status), Outcome.UNLISTED) for status in (402, 406, 408, 410, 411, 418, 425, 451)),
        (reply({}, 409), Outcome.DUPLICATE),
    ]:
        assert expected is classify(call_for("payments.create", Profile()), answer)


BY_MESSAGE: Final = evolve(ENVELOPED, answer=AnswerShape(message="msg"))
"""It says what messages mean, and shows no place of a result code."""


def test_outcome_by_message_alone() -> None:
    """Without a path to a code, a listed message decides a 2xx, and any other message means success."""
    for name in ["refunds.create", "payments.create", "orders.query"]:
        for expected, messages in [
            (Outcome.NOT_EXECUTED, ("PARAM", 7)),
            (Outcome.SERVER_ERROR, ("BUSY",)),
            (Outcome.DUPLICATE, ("USED", "already paid")),
            (Outcome.ABSENT, ("NONE",)),
            (Outcome.SUCCESS, ("all is well", "OK", "", "param", "7", None, ["PARAM"])),
        ]:
            call = call_for(name, BY_MESSAGE)
            for message, status in product(messages, (200, 201)):
                assert expected is classify(call, reply({"msg": message, "code": "PARAM"}, status))


def test_outcome_without_a_reply() -> None:
    """An attempt that ended with another error of payasync cannot be sent, and its error is raised unchanged."""
    kinds: list[type[errors.PayasyncError]] = [errors.ConfigurationError, errors.SessionClosedError]
    for name, kind in product(["orders.query", "refunds.create"], [*kinds, errors.InvalidArgumentError]):
        error = kind("no")

        assert Outcome.NOT_SENDABLE is classify(call_for(name), error)
        assert error is final_error_of(call_for(name), error)


SIGNED_ENVELOPE: Final = evolve(ENVELOPED, answer=evolve(ENVELOPED.answer, signature="data.sign"))


def test_outcome_where_answers_are_signed() -> None:
    """A success must verify; a refusal must verify if it is signed. 3xx, 429 and 5xx need no signature."""
    for answer, verified, expected in [
        (code("OK"), True, Outcome.SUCCESS),
        (code("OK"), None, Outcome.UNVERIFIED),
        (code("OK"), False, Outcome.UNVERIFIED),
        (code("NONE"), True, Outcome.ABSENT),
        (code("NONE"), None, Outcome.ABSENT),
        (code("NONE"), False, Outcome.UNVERIFIED),
        (own(400), None, Outcome.NOT_EXECUTED),
        (own(400), False, Outcome.UNVERIFIED),
        *((reply({}, status), False, outcome) for status, outcome in BY_STATUS),
        (HTML, None, Outcome.UNRECOGNISED),
    ]:
        assert expected is classify(call_for("refunds.create", SIGNED_ENVELOPE), evolve(answer, verified=verified))


def final_error_of(call: Call, outcome: Reply | errors.PayasyncError, *, earlier: bool = False) -> errors.PayasyncError:
    """Return the final error of a call whose last attempt ended so; `earlier` says that an earlier one is in doubt."""
    found = classify(call, outcome)
    return final_error(call, found, outcome, doubt=earlier or leaves_doubt(call, found, outcome))


def test_a_code_says_more_than_401() -> None:
    """A listed code decides the class of the error before the status 401 or 403 does."""
    for answer, expected in [
        (code("NONE", 401), errors.ServiceError),
        (code("USED", 403), errors.DuplicateError),
        (code("PARAM", 401), errors.AuthenticationError),
    ]:
        assert expected is type(final_error_of(call_for("refunds.create", ENVELOPED), answer))


def test_unknown_outcome_says_why() -> None:
    """The error says whether the last response or an earlier attempt is the reason for the doubt."""
    for status, words in [
        (429, "too many requests, which may have been executed (see http.rate_limit_precedes_execution in the"),
        (302, "a redirect, which is never followed"),
        (400, "refused before it was done, after an attempt whose outcome is unknown"),
    ]:
        error = final_error_of(call_for("payments.create"), reply({}, status), earlier=status == 400)

        assert f"HTTP {status}, {words}" in str(error)


def test_unknown_outcome_if_the_last_attempt_was_not_sent() -> None:
    """The advice of an attempt that was not sent does not stand in the error of a write that may have been done."""
    unsent = errors.NotSentError("nothing was sent to X: refused; repeating is harmless", reason="refused", sent=False)
    error = final_error(call_of("5"), Outcome.NOT_SENT, unsent, doubt=True)

    assert "not sent: refused, after an attempt whose outcome is unknown; " in str(error)
    assert "harmless" not in str(error)


def test_refusal_tells_what_the_service_said() -> None:
    """The error holds the service's code, message and response, and names the call."""
    answer = evolve(code("PARAM", 418, msg="no such currency"), attempts=2)
    error: Any = final_error_of(call_for("refunds.create", ENVELOPED), answer)

    assert ("PARAM", "no such currency", 418) == (error.code, error.message, error.http_status)
    assert ("refunds.create", "R1", 2, None) == (error.operation, error.reference, error.attempts, error.retry_after)
    assert {"code": "PARAM", "msg": "no such currency"} == error.response.document
    assert "HTTP 418, refused before it was done (code 'PARAM': no such currency) (after 2 attempts)" in str(error)


def test_refusal_shows_what_is_there() -> None:
    """A code or message that is missing, or of another type, is `None` and not shown."""
    for answer, code_, message, shown in [
        (code(7), 7, None, "(code 7)"),
        (code(7, msg=5), 7, "5", "(code 7: 5)"),
        (code("PARAM", msg=["x"]), "PARAM", None, "(code 'PARAM')"),
        (reply({"msg": "PARAM"}, 400), None, "PARAM", "(PARAM)"),
        (reply(None, 401), None, None, "done"),
    ]:
        error: Any = final_error_of(call_for("refunds.create", ENVELOPED), answer)

        assert (code_, message) == (error.code, error.message)
        assert str(error).endswith(shown)


def test_unknown_outcome_has_the_answer() -> None:
    """`OutcomeUnknownError` holds the response."""
    error: Any = final_error_of(call_for("refunds.create"), reply({"odd": 1}, 503, {"retry-after": "3"}))

    assert {"odd": 1} == error.response.data
    assert (3.0, Outcome.SERVER_ERROR.value, "R1") == (error.retry_after, error.reason, error.reference)


NOW: Final = datetime(2027, 1, 31, 12, 0, 0, tzinfo=UTC)


def test_retry_after() -> None:
    """`Retry-After` may be seconds or a date. A date without a zone is UTC, a past date is 0 s, nonsense is `None`.

    More than a day counts as a day.
    """
    for value, expected in [
        ("0", 0.0),
        (" 5 ", 5.0),
        ("86400", 86_400.0),
        *((f"{'9' * digits}", 86_400.0) for digits in (5, 9, 10, 400, 5_000)),
        ("Sun, 31 Jan 2027 12:00:30 GMT", 30.0),
        ("Sun, 31 Jan 2027 13:00:30 +0100", 30.0),
        ("Sun, 31 Jan 2027 12:00:30", 30.0),
        ("Sunday, 31-Jan-27 12:01:00 GMT", 60.0),
        ("Sun, 31 Jan 2027 11:00:00 GMT", 0.0),
        ("Tue, 02 Feb 2027 12:00:30 GMT", 86_400.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400.0),
        *((value, None) for value in (None, "", "soon", "-5", "1.5", "1e3", "5 s", "٣", "Sun")),
        *((f"Sun, {day} Jan {year} 12:00:30 GMT", None) for day, year in ((99, 2027), (31, 99999), (31, 10**19))),
        ("Sun, 31 Jan 2027 12:00:30 +9999999", None),
    ]:
        assert expected == parse_retry_after(value, lambda: NOW)
