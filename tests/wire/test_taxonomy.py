"""Which error a call ends with, over real HTTP: what may be done next must be true."""

import gzip
import pickle
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import (
    AuthenticationError,
    DuplicateError,
    HttpCodes,
    NoAnswerError,
    OutcomeUnknownError,
    PayasyncError,
    Response,
    RetryPolicy,
    ServiceError,
    Session,
)
from payasync.profile.sandbox_profile import PROFILE
from tests.foreign.certificates import server_tls, trusting_tls
from tests.foreign.recorder import GONE, RESET, Answer, Recorder, answer
from tests.wire.ten import CREDENTIALS, DOCUMENTED, TEN

Ask = Callable[[Session], Awaitable[Response]]

ONE_TRY: Final = RetryPolicy(attempts=1, base_delay=0.001)
GOOD: Final = b'{"code":"SBX_OK"}'
BAD: Final = b'{"code":"SBX_INVALID","message":"no such currency"}'
ODD: Final = b'{"code":"SBX_WHO_KNOWS"}'
CUT: Final = answer(200, GOOD).raw
NAMES: Final = {
    "payments.create": ("payments.create", None),
    "orders.query": ("orders.query", "T1"),
    "payments.status": ("payments.status", "T1"),
    "refunds.create": ("refunds.create", "R1"),
}
ASKS: Final[dict[str, Ask]] = {one.name: one.call for one in TEN if one.name in NAMES}
WRITE, READ, GET, KEYED = "payments.create", "orders.query", "payments.status", "refunds.create"


async def ended(service: Recorder, ask: Ask, **settings: Any) -> PayasyncError:
    """Return the error that a call ends with."""
    chosen: dict[str, Any] = {"credentials": CREDENTIALS, "profile": PROFILE, "retry": ONE_TRY, **settings}
    async with Session(service.url, **chosen) as pay:
        with pytest.raises(PayasyncError) as caught:
            await ask(pay)
    return caught.value


LOST: Final = {
    "reset": RESET,
    "closed": GONE,
    "not HTTP": Answer(b"SSH-2.0-OpenSSH_9.9\r\n", then="close"),
    "cut in the head": Answer(CUT[:20], then="close"),
    "cut in the body": Answer(CUT[:-1], then="close"),
    "reset in the body": Answer(CUT[:-1], then="reset"),
    "cut chunk": Answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11\r\n" + GOOD, then="close"),
}


REASONS: Final = {
    "the answer is not HTTP",
    "the answer was cut short",
    "the connection was closed before the answer",
    "the connection failed",
    "connection reset by peer",
}


@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
@pytest.mark.parametrize(
    ("name", "kind"), [(WRITE, OutcomeUnknownError), (READ, NoAnswerError), (GET, NoAnswerError)], ids=str
)
async def test_answer_that_is_lost(
    lost: Answer,
    name: str,
    kind: type[PayasyncError],
    secure: bool,  # noqa: FBT001 - pytest gives it by name
) -> None:
    """A write whose answer is lost may have been done; a read may be repeated; neither was sent twice meanwhile."""
    with Recorder([lost], tls=server_tls() if secure else None) as service:
        error = await ended(service, ASKS[name], tls=trusting_tls() if secure else None)

    assert kind is type(error)
    assert (*NAMES[name], 1) == (error.operation, error.reference, error.attempts)
    assert error.sent is not False
    assert error.response is None
    assert error.reason in REASONS
    assert str(error.reason) in str(error)
    assert 1 == len(service.requests)


UNREADABLE: Final = {
    "not JSON": answer(200, b"<html>"),
    "half of it": answer(200, GOOD[:-1]),
    "nothing": answer(200, b""),
    "no object": answer(200, b"[1]"),
    "no code": answer(200, b"{}"),
    "204": Answer(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "gzip": answer(200, gzip.compress(GOOD), ("Content-Encoding", "gzip")),
    "500": answer(500, GOOD),
    "502": answer(502, b"<html>"),
    "599": answer(599),
}


@pytest.mark.parametrize("unreadable", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize(("name", "kind"), [(WRITE, OutcomeUnknownError), (READ, NoAnswerError)], ids=str)
async def test_answer_that_says_nothing(unreadable: Answer, name: str, kind: type[PayasyncError]) -> None:
    """An answer that the profile does not recognise, or a broken service, leaves a write unknown; it is on the error.

    A body that is compressed against our word is one of these: it is not inflated.
    """
    with Recorder([unreadable]) as service:
        error = await ended(service, ASKS[name])

    assert kind is type(error)
    assert (*NAMES[name], 1, True) == (error.operation, error.reference, error.attempts, error.sent)
    assert error.response is not None
    assert unreadable.raw.partition(b"\r\n\r\n")[2] == error.response.body
    assert 1 == len(service.requests)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, b"", ServiceError),
        (401, b"<html>", AuthenticationError),
        (403, b"{}", AuthenticationError),
        (404, b"{}", ServiceError),
        (405, b"{}", ServiceError),
        (413, b"{}", ServiceError),
        (415, b"{}", ServiceError),
        (422, BAD, ServiceError),
        (200, BAD, ServiceError),
        (418, BAD, ServiceError),
    ],
)
@pytest.mark.parametrize("name", NAMES)
async def test_answer_that_is_a_refusal(name: str, status: int, body: bytes, kind: type[PayasyncError]) -> None:
    """What the profile lists as not executed is a definite error for every call: code, message and status tell why."""
    with Recorder([answer(status, body)]) as service:
        error = await ended(service, ASKS[name])
    code, words = ("SBX_INVALID", "no such currency") if body == BAD else (None, None)

    assert isinstance(error, ServiceError)
    assert kind is type(error)
    assert (status, code, words) == (error.http_status, error.code, error.message)
    assert (*NAMES[name], 1, True) == (error.operation, error.reference, error.attempts, error.sent)
    assert error.response is not None
    assert (status, body) == (error.response.http_status, error.response.body)


@pytest.mark.parametrize(
    ("status", "body", "name", "kind"),
    [
        (409, b"{}", WRITE, OutcomeUnknownError),
        (409, b"{}", KEYED, DuplicateError),
        (200, b'{"code":"SBX_DUPLICATE"}', KEYED, DuplicateError),
        (409, b"{}", READ, ServiceError),
        (410, b"{}", WRITE, OutcomeUnknownError),
        (410, b"{}", READ, ServiceError),
        (200, ODD, WRITE, OutcomeUnknownError),
        (200, ODD, READ, ServiceError),
    ],
)
async def test_answer_that_depends_on_the_call(status: int, body: bytes, name: str, kind: type[PayasyncError]) -> None:
    """An unlisted refusal proves nothing about a write; a number that was used before is a definite answer."""
    with Recorder([answer(status, body)]) as service:
        error = await ended(service, ASKS[name])

    assert kind is type(error)
    assert (*NAMES[name], 1, True) == (error.operation, error.reference, error.attempts, error.sent)
    assert 1 == len(service.requests)


UNKNOWN: Final = LOST | UNREADABLE | {str(status): answer(status, b"{}") for status in (302, 307, 409, 410, 429)}
UNKEYED: Final[dict[str, Ask]] = {
    "payments.create": ASKS[WRITE],
    "orders.place": lambda pay: pay.orders.place(total_amt=450, currency="CAD"),
    "subscriptions.create": next(one.call for one in TEN if one.name == "subscriptions.create"),
    "subscriptions.update": next(one.call for one in TEN if one.name == "subscriptions.update"),
    "subscriptions.cancel": next(one.call for one in TEN if one.name == "subscriptions.cancel"),
}


@pytest.mark.parametrize("unknown", UNKNOWN.values(), ids=UNKNOWN)
@pytest.mark.parametrize("name", UNKEYED)
async def test_write_that_nothing_names_is_sent_once(name: str, unknown: Answer) -> None:
    """Whatever becomes of its answer, a write that cannot be asked about is never sent a second time.

    The error is no `TimeoutError` and no `OSError`: what retries on those must not pay twice.
    """
    profile = evolve(PROFILE, http=HttpCodes())
    with Recorder([unknown]) as service:
        error = await ended(service, UNKEYED[name], profile=profile, retry=RetryPolicy(base_delay=0.001))

    assert OutcomeUnknownError is type(error)
    assert not isinstance(error, OSError)
    assert (name, 1) == (error.operation, error.attempts)
    assert 1 == len(service.requests)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("name", "kind"), [(WRITE, OutcomeUnknownError), (READ, ServiceError), (GET, ServiceError)], ids=str
)
async def test_redirect_is_never_followed(status: int, name: str, kind: type[PayasyncError]) -> None:
    """A redirect would turn a payment into a GET, or send it elsewhere: the service sees one request, nobody two."""
    with Recorder() as elsewhere, Recorder([answer(status, b"{}", ("Location", f"{elsewhere.url}/next"))]) as service:
        error = await ended(service, ASKS[name])

    assert kind is type(error)
    assert error.response is not None
    assert status == error.response.http_status
    assert 1 == len(service.requests)
    assert [] == elsewhere.connections


@pytest.mark.parametrize(("given", "seconds"), [("7", 7.0), ("soon", None), ("-1", None), (None, None)])
@pytest.mark.parametrize("name", [WRITE, READ])
async def test_too_many_requests(name: str, given: str | None, seconds: float | None) -> None:
    """A 429 tells how long to wait, if the service did; whether a write was done depends on the profile."""
    headers = [("Retry-After", given)] if given else []
    unsure = DOCUMENTED.profile
    with Recorder([answer(429, b"{}", *headers), answer(429, b"{}", *headers)]) as service:
        sure_error = await ended(service, ASKS[name])
        unsure_error = await ended(service, ASKS[name], profile=unsure)

    assert ["RateLimitedError", "RateLimitedError" if name == READ else "OutcomeUnknownError"] == [
        type(sure_error).__name__,
        type(unsure_error).__name__,
    ]
    assert [seconds] * 2 == [sure_error.retry_after, unsure_error.retry_after]
    assert 2 == len(service.requests)


@pytest.mark.parametrize(
    "failing",
    [RESET, answer(400, BAD), answer(500, BAD), answer(401, b"{}"), answer(200, b"<html>")],
    ids=["reset", "400", "500", "401", "not JSON"],
)
@pytest.mark.parametrize("name", NAMES)
async def test_errors_cross_processes(name: str, failing: Answer) -> None:
    """An error of a task worker arrives with all that it knew, the service's answer included."""
    with Recorder([failing]) as service:
        error = await ended(service, ASKS[name])
    twin = pickle.loads(pickle.dumps(error))  # noqa: S301 - made in the same line
    facts = ("operation", "reference", "attempts", "sent", "retry_after", "reason")

    assert (type(error), str(error)) == (type(twin), str(twin))
    assert [getattr(error, fact) for fact in facts] == [getattr(twin, fact) for fact in facts]
    assert (error.response and error.response.body) == (twin.response and twin.response.body)
    assert (error.response and dict(error.response.headers)) == (twin.response and dict(twin.response.headers))
