"""`answer.must`: what each success must hold, and no refusal may contradict."""

import json
from collections.abc import Mapping
from decimal import Decimal
from itertools import product
from typing import Any, Final

import orjson
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from payasync import Profile
from payasync.endpoints import OPERATIONS, QUERY_ORDER
from payasync.errors import ConfigurationError, OutcomeUnknownError, ServiceError
from payasync.evidence.comparison import comparison_of, mismatch
from payasync.profile import AnswerShape, ResultCodes
from payasync.sandbox import PROFILE as PLAYED
from payasync.sandbox import Sandbox
from payasync.signing import SortedPairs
from tests import sessions
from tests.evidence.test_comparison import unclear
from tests.foreign import signatures
from tests.foreign.recorder import RESET, Answer, Recorder, answer
from tests.wire.ten import CREDENTIALS, DOCUMENTED, TEN

MUST: Final[dict[str, Any]] = {"livemode": True, "meta.mode": "live"}
LIVE: Final[dict[str, Any]] = {"livemode": True, "meta": {"mode": "live", "of": 1}}
SHAPE: Final = AnswerShape(data="data", code="code", ok=(0,), must=MUST)
PROFILE: Final = evolve(
    DOCUMENTED, answer=SHAPE, codes=ResultCodes(not_executed=(9,), duplicate=(5,), absent=(4,), retryable=(7,))
)
BREACHES: Final = (
    ({**LIVE, "livemode": None}, "livemode is null in the response, and must be true"),
    ({**LIVE, "livemode": False}, "livemode is false in the response, and must be true"),
    ({**LIVE, "livemode": 1}, "livemode is 1 in the response, and must be true"),
    ({**LIVE, "livemode": "true"}, 'livemode is "true" in the response, and must be true'),
    ({**LIVE, "meta": {"mode": "test"}}, 'meta.mode is "test" in the response, and must be "live"'),
    ({**LIVE, "meta": {"mode": {"a": 1}}}, 'meta.mode is {"a":1} in the response, and must be "live"'),
)
"""Payloads that hold another value, each with what the error says."""
LACKS: Final[tuple[tuple[object, str], ...]] = (
    ({}, "livemode is missing in the response, and must be true"),
    ({"data": LIVE}, "livemode is missing in the response, and must be true"),
    ({**LIVE, "meta": "live"}, 'meta.mode is missing in the response, and must be "live"'),
)
CALLS: Final[dict[str, Any]] = {each.name: each.least for each in TEN}
CALLS["request"] = lambda pay: pay.request("POST", "/v9/other", fields={})


def said(data: object, code: int = 0) -> Answer:
    """Return a response with this payload."""
    return answer(200, orjson.dumps({"code": code, "data": data}))


async def ended(name: str, service: Recorder, profile: Profile = PROFILE) -> Any:
    """Return the response or the error with which a call ends."""
    return await sessions.ended(CALLS[name], service, profile, CREDENTIALS)


async def test_success_that_holds_it() -> None:
    """A success of any operation counts if it holds each value at its path in the payload."""
    for name in CALLS:
        found = await ended(name, Recorder(otherwise=said(LIVE)))

        assert (LIVE, 1) == (found.data, found.attempts)


async def test_response_that_holds_another_value() -> None:
    """A success, refusal, "not found" or duplicate with another value is unclear, as is a success that lacks it.

    The error says what is wrong, and names the key.
    """
    of_one = [("orders.query", 0, wrong) for wrong in (*BREACHES, *LACKS)]
    for name, code, (data, words) in (*of_one, *product(CALLS, (0, 9, 5, 4, 8), (BREACHES[1],))):
        found = await ended(name, Recorder(otherwise=said(data, code)))

        assert (OutcomeUnknownError if name == "request" else unclear(name)) is type(found)
        assert f"{words} (answer.must in the profile)" in str(found)


async def test_refusal_that_lacks_it() -> None:
    """A refusal need not have the path, and may hold the value."""
    for name, data in product(("orders.close", "refunds.status"), [LIVE, *(data for data, _ in LACKS)]):
        found = await ended(name, Recorder(otherwise=said(data, 9)))

        assert isinstance(found, ServiceError)
        assert "refused before it was done" in str(found)


async def test_query_after_a_lost_response() -> None:
    """After a lost response, only a success of the query that holds the values ends the doubt."""
    for data in [{"livemode": False}, {}, LIVE]:
        found = await ended("refunds.create", Recorder([RESET], otherwise=said(data)))

        assert (OutcomeUnknownError if data != LIVE else type(None)) is type(getattr(found, "state", found))


async def test_success_without_a_body() -> None:
    """A 204 holds nothing: it is unclear if a success must hold a value, and a success otherwise."""
    for must in [{}, MUST]:
        profile = evolve(DOCUMENTED, answer=AnswerShape(must=must))
        found = await ended("subscriptions.cancel", Recorder(otherwise=answer(204, b"")), profile)

        assert (OutcomeUnknownError if must else 204) == (type(found) if must else found.http_status)
        assert not must or "livemode is missing" in str(found)


SCALARS: Final = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=3),
    st.integers(-3, 3),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([0.0, 1.0, 1.5, -2.0, 1e300]),
    st.booleans(),
)


def as_json(value: object) -> tuple[str, object]:
    """Return the JSON type of a value, and the value exactly."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return type(value).__name__, value
    return "number", Decimal(value)


@given(
    operation=st.sampled_from(OPERATIONS), mine=SCALARS, theirs=SCALARS | st.none() | st.just([]), success=st.booleans()
)
def test_equal_by_type_and_value(operation: Any, mine: Any, theirs: object, *, success: bool) -> None:
    """For all values of a profile and of a response: only the same JSON type and value is no objection."""
    comparison = comparison_of(operation, Profile(answer=AnswerShape(must={"a.0": mine})))
    received = orjson.loads(orjson.dumps({"a": [theirs]}))

    found = mismatch({}, comparison, received, success=success)

    assert (as_json(theirs) == as_json(mine)) is (found is None)


def test_another_environment_comes_before_another_amount() -> None:
    """A response of another environment with another amount does not show that the number has that amount."""
    found = mismatch({"totalAmt": 450}, comparison_of(QUERY_ORDER, PROFILE), {"totalAmt": 9, "livemode": False})

    assert found is not None
    assert found.about_another


def test_toml() -> None:
    """A path of several steps stands in quotes in TOML, and the TOML form reads back equal."""
    profile = Profile.from_toml('answer.must = {"meta.mode" = "live", n = 1.5, b = false}')

    assert {"meta.mode": "live", "n": 1.5, "b": False} == profile.answer.must
    assert profile == Profile.from_toml(profile.to_toml())


def signed_response(data: Mapping[str, object]) -> Answer:
    """Return a response that `openssl` signed."""
    sign = signatures.hmac_sha256(signatures.signed_text(data), "a key of the service")
    return answer(200, json.dumps({**data, "sign": sign}).encode())


SIGNED: Final = evolve(
    DOCUMENTED,
    signature=SortedPairs(algorithm="hmac-sha256", encoding="hex", allow_delimiters=("body",)),
    answer=AnswerShape(signature="sign", order_status="state", must={"live": "yes"}),
)


async def test_signed_response() -> None:
    """The value counts as it was signed. A text that may hide another one is not believed."""
    for data, expected in [
        ({"outTradeNo": "T1", "live": "yes"}, "OrderResponse"),
        ({"outTradeNo": "T1", "live": "no"}, "NoAnswerError"),
        ({"body": "a&live=no", "outTradeNo": "T1"}, "InvalidSignatureError"),
    ]:
        keys = evolve(CREDENTIALS, service_keys=("a key of the service",))
        found = await sessions.ended(sessions.query, Recorder(otherwise=signed_response(data)), SIGNED, keys)

        assert expected == type(found).__name__


async def test_sandbox_plays_it() -> None:
    """The sandbox's successes hold the values, also without an envelope, and a session that wants others says so."""
    profile = evolve(PLAYED, answer=evolve(PLAYED.answer, must=MUST))
    async with Sandbox(profile) as sandbox, sandbox.session() as pay:
        order = await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")
        queried = await pay.orders.query("T1")
        other = evolve(profile, answer=evolve(profile.answer, must={"livemode": False}))
        async with sessions.connect(sandbox.url, credentials=sandbox.credentials, profile=other) as wrong:
            with pytest.raises(OutcomeUnknownError, match="livemode is true in the response, and must be false"):
                await wrong.orders.place(out_trade_no="T2", total_amt=450, currency="CAD")

    assert [(True, "live")] * 2 == [(each.get("livemode"), each.get("meta.mode")) for each in (order, queried)]


async def test_sandbox_cannot_sign_it() -> None:
    """A value that the sandbox's signature refuses is refused by its key when the sandbox starts."""
    profile = evolve(SIGNED, answer=evolve(SIGNED.answer, must={"live": True}))
    with pytest.raises(ConfigurationError) as caught:
        await Sandbox(profile).start()

    assert "answer.must.live" == caught.value.field
