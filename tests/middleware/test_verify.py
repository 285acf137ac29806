"""Answers that the profile says are signed: a forged one is believed by nobody."""

import hashlib
import hmac
import json
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import (
    AnswerShape,
    ConfigurationError,
    Credentials,
    InvalidSignatureError,
    OutcomeUnknownError,
    Profile,
    ServiceError,
    Session,
    SortedPairs,
)
from payasync.shapes import ResultCodes
from tests.foreign.recorder import Recorder, answer

SIGNED: Final = Profile(
    signature=SortedPairs(algorithm="hmac-sha256", encoding="hex"),
    answer=AnswerShape(data="data", code="code", ok=(0,), order_status="state", signature="data.sign"),
    codes=ResultCodes(not_executed=(7,)),
)
KEYS: Final = Credentials("M1", signing_key="k1", service_keys=("old", "new"))


def signed(key: str, code: int = 0, **data: Any) -> bytes:
    """Return an answer, its payload signed with a key by a few lines of this test's own."""
    text = "&".join(f"{name}={value}" for name, value in sorted(data.items()))
    sign = hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()
    return json.dumps({"code": code, "data": {**data, "sign": sign}}).encode()


async def queried(body: bytes, credentials: Credentials = KEYS, profile: Profile = SIGNED) -> str | int | None:
    """Return the state that a query is told by this answer."""
    with Recorder([answer(200, body)]) as service:
        async with Session(service.url, credentials=credentials, profile=profile) as pay:
            return (await pay.orders.query("T1")).order_status


@pytest.mark.parametrize("key", ["old", "new"])
async def test_any_of_the_services_keys_verifies(key: str) -> None:
    """While keys rotate, an answer signed with any of them is taken."""
    assert "PAID" == await queried(signed(key, state="PAID"))


async def test_without_service_keys_a_symmetric_scheme_takes_the_merchants() -> None:
    """Where the key that signs also verifies, it need not be given twice."""
    assert "PAID" == await queried(signed("k1", state="PAID"), Credentials("M1", signing_key="k1"))


@pytest.mark.parametrize(
    "body",
    [
        signed("stolen", state="PAID"),
        signed("new", state="PENDING").replace(b"PENDING", b"PAID"),
        b'{"code":0,"data":{"state":"PAID"}}',
        b'{"code":0,"data":{"state":"PAID","sign":5}}',
        b'{"code":0,"data":"PAID"}',
        signed("new", state="PAID").replace(b'"state"', b'"state":"PENDING","state"'),
    ],
    ids=["another key", "changed", "unsigned", "no text", "no object", "one name twice"],
)
async def test_a_forged_success_is_believed_by_nobody(body: bytes) -> None:
    """A query whose answer does not verify raises, and is not asked again."""
    with pytest.raises(InvalidSignatureError) as caught:
        await queried(body)

    assert ("orders.query", "T1", 1) == (caught.value.operation, caught.value.reference, caught.value.attempts)


async def test_a_forged_answer_to_a_write_leaves_it_unknown() -> None:
    """A write whose answer does not verify may have been done; the signature's error is the reason."""
    with Recorder([answer(200, signed("stolen", state="PENDING"))]) as service:
        async with Session(service.url, credentials=KEYS, profile=SIGNED) as pay:
            with pytest.raises(OutcomeUnknownError) as caught:
                await pay.orders.place(total_amt=1, currency="CAD")

    assert isinstance(caught.value.reason, InvalidSignatureError)
    assert 1 == len(service.requests)


async def test_a_failure_without_a_signature_is_taken_by_its_code() -> None:
    """A refusal that carries no signed object is a refusal."""
    with pytest.raises(ServiceError) as caught:
        await queried(b'{"code":7}')

    assert 7 == caught.value.code


async def test_a_failure_that_carries_a_forged_signature_is_none() -> None:
    """A refusal that carries the signed object must verify."""
    with pytest.raises(InvalidSignatureError):
        await queried(signed("stolen", code=7, state="NONE"))


async def test_without_any_key_nothing_is_sent() -> None:
    """A profile with signed answers needs a key to verify them, before anything is sent."""
    profile = evolve(SIGNED, signed=())
    with Recorder() as service:
        async with Session(service.url, credentials=Credentials("M1"), profile=profile) as pay:
            with pytest.raises(ConfigurationError) as caught:
                await pay.orders.query("T1")

    assert "credentials.service_keys" == caught.value.field
    assert [] == service.requests


class Broken:
    """A scheme of a merchant's own, whose check fails."""

    def sign(self, *_: object, **__: object) -> str:
        """Sign anything."""
        return "signed"

    def verify(self, *_: object, **__: object) -> bool:
        """Fail."""
        raise RuntimeError("no key store")


async def test_a_scheme_that_cannot_check_verifies_nothing() -> None:
    """What a merchant's own scheme raises is no proof."""
    with pytest.raises(InvalidSignatureError):
        await queried(signed("new", state="PAID"), profile=evolve(SIGNED, signature=Broken()))


async def test_without_a_scheme_answers_cannot_be_verified() -> None:
    """A profile with signed answers and no scheme is incomplete."""
    with pytest.raises(ConfigurationError) as caught:
        await queried(b"{}", profile=evolve(SIGNED, signature=None, signed=()))

    assert "signature" == caught.value.field
