"""Whatever a service answers, a call ends with a recognised answer or with an error of ours."""

import asyncio
import itertools
import json
import logging
from collections.abc import Awaitable, Iterator
from typing import Any, Final

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from payasync import CreateRefund, PayasyncError, Response, RetryPolicy, Session, Timeouts
from payasync.journal import SqliteJournal
from payasync.profile.sandbox_profile import PROFILE
from payasync.profile.schema import AnswerShape
from payasync.strict_json import at
from tests.foreign.recorder import Answer, Recorder
from tests.matrix.cells import session
from tests.wire.ten import TEN, TenCall

NUMBERS: Final = itertools.count()
CODES: Final = ("SBX_OK", "SBX_NOT_FOUND", "SBX_DUPLICATE", "SBX_BUSY", "SBX_INVALID")
BARE: Final = evolve(PROFILE, answer=AnswerShape())
"""It says nothing of how answers look: any object is one."""
ONCE: Final = RetryPolicy(attempts=1, quota=0)

TEXTS: Final = st.text(st.characters(codec=None), max_size=20)
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
NAMES: Final = st.sampled_from(["code", "message", "requestId", "status", "paymentId", "redirectUrl", "sign", "a"])
DOCUMENTS: Final = st.dictionaries(NAMES, JSON | st.sampled_from([*CODES, "SBX_PAID", "SBX_SUCCEEDED"]), max_size=6)
BODIES: Final = st.one_of(
    (DOCUMENTS | JSON).map(lambda each: json.dumps(each).encode()),
    st.binary(max_size=60),
    st.integers(1, 2000).map(lambda depth: b'{"code":' * depth),
    st.integers(1, 5000).map(lambda digits: b'{"code":"SBX_OK","paymentId":' + b"9" * digits + b"}"),
    st.sampled_from([b'{"code":"SBX_OK","code":1}', b'{"code":NaN}', b"\xef\xbb\xbf{}", b"null", b""]),
)
LINES: Final = st.lists(st.binary(max_size=20).map(lambda line: b"".join(line.splitlines())), max_size=3)
STATUSES: Final = (
    st.just(200) | st.sampled_from([200, 201, 204, 302, 304, 400, 404, 409, 422, 429, 500, 503]) | st.integers(200, 599)
)


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """Draw the bytes of an answer: mostly HTTP, with headers and a body that may be anything."""
    body = draw(BODIES)
    head = b"HTTP/1.1 %d Any\r\n" % draw(STATUSES)
    headers = [b"Content-Length: %d" % len(body), *draw(LINES)]
    return draw(st.sampled_from([head, head, head, b""])) + b"\r\n".join(headers) + b"\r\n\r\n" + body


SAID: Final = [b""]
"""The bytes that the service sends, always the same until they are set."""


@pytest.fixture(scope="module")
def service() -> Iterator[Recorder]:
    """A service that sends what is set."""
    with Recorder(iter(lambda: Answer(SAID[0], then="close"), None)) as service:
        yield service


def brief(service: Recorder, **settings: Any) -> Session:
    """Return a session that tries once, and waits for little."""
    return session(service, retry=ONCE, timeouts=Timeouts(total=5), **settings)


def everything(response: Response) -> list[Any]:
    """Return all that an answer says of itself."""
    names = ("document", "data", "request_id", "state", "headers", "body", "attempts", "recovered")
    return [repr(response), response.get("a.0.b"), *(getattr(response, name) for name in names)]


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteJournal]:
    """A journal that stays open, and is used from one loop after the other."""
    journal = SqliteJournal(tmp_path_factory.mktemp("journals") / "pay.db")
    yield journal
    asyncio.run(journal.aclose())


async def ended(call: Awaitable[Response]) -> Response | None:
    """Return an answer; `None` where an error of ours says, in words, that there is none."""
    try:
        return await call
    except PayasyncError as error:
        if str(error):
            return None
        raise


@given(one=st.sampled_from(TEN), raw=answers(), bare=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_answer(
    service: Recorder,
    journal: SqliteJournal,
    caplog: pytest.LogCaptureFixture,
    *,
    one: TenCall,
    raw: bytes,
    bare: bool,
) -> None:
    """Whatever the service sends, no foreign error is raised, and an unrecognised response is no success.

    The journal stores the result, and answers a second call from it.
    """
    number = f"R{next(NUMBERS)}"
    request = CreateRefund(out_trade_no="T1", out_refund_no=number, total_amt=1, refund_amt=1)

    async def called() -> tuple[Response | None, list[bool], list[str]]:
        async with brief(service, profile=BARE if bare else PROFILE) as pay:
            response = await ended(one.call(pay))
        async with brief(service, journal=journal) as pay:
            done = [await ended(pay.send(request)) is not None for _ in range(2)]
        return response, done, [each.state for each in await journal.find("refunds.create", number)]

    SAID[0] = raw
    with caplog.at_level(logging.WARNING, "payasync"):
        response, done, (state,) = asyncio.run(called())

    assert response is None or everything(response)
    assert response is None or 200 <= response.http_status < 300
    assert response is None or bare or at(response.document, "code") == "SBX_OK"
    assert [state in {"accepted", "succeeded"}] * 2 == done
    assert state in {"accepted", "succeeded", "rejected", "unknown"}
    assert "could not store" not in caplog.text
