"""Idempotency keys of calls: which calls carry one, what it is made of, and where it stands."""

import re
from typing import Any, Final
from uuid import UUID

import pytest
from attrs import evolve

from payasync import CreatePayment, CreateRefund, Credentials, PlaceOrder, Profile
from payasync.clocks import boot_time
from payasync.endpoints import OPERATIONS
from payasync.errors import InvalidArgumentError
from payasync.profile import Idempotency
from payasync.profile.sandbox_profile import PROFILE as PROFILE_OF_SANDBOX
from payasync.wire.call import Call
from payasync.wire.encode import Codec
from payasync.wire.request import Request
from tests.building import CREDENTIALS, FULL, PROFILE
from tests.foreign import signatures
from tests.foreign.recorder import RESET, Recorder
from tests.matrix.cells import KEY, session
from tests.sessions import KEYS, OK, connect

KEYED: Final = evolve(PROFILE, idempotency=Idempotency(header=KEY))
IN_A_FIELD: Final = evolve(PROFILE, idempotency=Idempotency(field="idem"))
SIGNING_KEY: Final = KEYS.signing_key.reveal() if KEYS.signing_key else ""
REFUND: Final = FULL["refunds.create"]
PAYMENT: Final = FULL["payments.create"]


def call_of(
    request: Request[Any], intent: str | None = None, profile: Profile = KEYED, credentials: Credentials = CREDENTIALS
) -> Call:
    """Return the call of a request."""
    return Codec(profile, credentials).call(request, intent=intent)


def test_every_write_carries_one() -> None:
    """Every write carries a key in its header or its field. No read does."""
    for operation in OPERATIONS:
        in_header, in_field = (call_of(FULL[operation.name], profile=profile) for profile in (KEYED, IN_A_FIELD))

        assert (not operation.read) == (KEY in in_header.headers) == ("idem" in in_field.fields)
        assert ("idem" in in_header.fields, KEY in in_field.headers) == (False, False)


def test_form() -> None:
    """A key is no longer than a UUID, is safe in a URL, and shows no number of the merchant."""
    for request_ in [REFUND, PAYMENT, PlaceOrder(total_amt=1, currency="CAD", out_trade_no="T" * 64)]:
        key = call_of(request_, intent="invoice-42").idempotency_key

        assert re.fullmatch("payasync-[A-Za-z0-9_-]{22}", key)
        assert len(key) <= len(str(UUID(int=0)))
        assert request_.reference is None or request_.reference not in key
        assert "invoice-42" not in key
        assert key not in repr(call_of(request_, intent="invoice-42"))


def test_number_or_intent_names_it() -> None:
    """A write with a number has the same key in every process; else its operation and `intent` name the key.

    Another number, merchant or operation has another key. Without number and `intent`, each call has its own.
    """
    number, intent = call_of(REFUND).idempotency_key, call_of(PAYMENT, "invoice-42").idempotency_key

    assert number == call_of(REFUND).idempotency_key == call_of(REFUND, "invoice-42").idempotency_key
    assert intent == call_of(PAYMENT, "invoice-42").idempotency_key
    others = [
        call_of(CreateRefund(out_trade_no="T1", out_refund_no="R2", total_amt=450, refund_amt=200)),
        call_of(REFUND, credentials=evolve(CREDENTIALS, merchant_id="M2")),
        *(call_of(FULL[name]) for name in ("orders.close", "orders.place")),
        call_of(FULL["subscriptions.create"], "invoice-42"),
        *(call_of(PAYMENT), call_of(PAYMENT)),
    ]
    assert 9 == len({number, intent, *(each.idempotency_key for each in others)})


def test_time_for_repeats() -> None:
    """Only its key names a payment: it is repeated within its call and the lifetime, by a clock that never pauses."""
    for lifetime, seconds in [(None, 45.0), (5.0, 5.0), (86_400.0, 45.0)]:
        profile = evolve(KEYED, idempotency=Idempotency(header=KEY, lifetime=lifetime))
        payment, refund = (call_of(each, profile=profile).lease for each in (PAYMENT, REFUND))

        assert payment
        assert (seconds, boot_time) == (payment.repeat_seconds, payment.clock)
        assert refund is None


async def test_all_attempts_carry_one_key() -> None:
    """All attempts of a call carry the same key. Each has a nonce and a signature of its own, also of the field."""
    for shape in [Idempotency(header="idem"), Idempotency(field="idem")]:
        profile = evolve(PROFILE_OF_SANDBOX, idempotency=shape)
        async with Recorder([RESET, RESET], otherwise=OK) as service, session(service, profile) as pay:
            await pay.orders.place(total_amt=1, currency="CAD")
        sent = [signatures.fields(request) for request in service.requests]
        headers = [request.header("idem") for request in service.requests]
        keys = headers if shape.header else [[each["idem"]] for each in sent]

        assert [keys[0]] * 3 == keys
        assert keys[0]
        assert 3 == len({each["nonceStr"] for each in sent})
        assert [each["sign"] for each in sent] == [
            signatures.hmac_sha256(signatures.signed_text(each), SIGNING_KEY) for each in sent
        ]


async def test_calls_to_other_endpoints() -> None:
    """A write by `request` carries a key, which its `intent` names; a read does not."""
    with Recorder(otherwise=OK) as service:
        async with connect(service, profile=Profile(idempotency=Idempotency(header=KEY))) as pay:
            for intent, read in (("a", False), ("a", False), ("b", False), (None, True)):
                await pay.request("POST", "/bill", fields={"a": 1}, read=read, intent=intent)
    first, again, other, read_ = (request.header(KEY) for request in service.requests)

    assert first == again != other
    assert [] == read_


async def test_caller_does_not_set_the_field() -> None:
    """The field of the key is refused in `extra` and `fields`, because payasync sets it."""
    for custom in [False, True]:
        with Recorder(otherwise=OK) as service:
            async with connect(service, profile=Profile(idempotency=Idempotency(field="idem"))) as pay:
                mine = {"idem": "mine"}
                payment = CreatePayment(amount=1, currency="USD", extra=mine)
                call = pay.request("POST", "/bill", fields=mine) if custom else pay.send(payment)
                with pytest.raises(InvalidArgumentError) as caught:
                    await call

        assert ("fields" if custom else "extra") == caught.value.field
        assert [] == service.requests
