"""Idempotency keys in the sandbox, which keeps them as the profile says."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import Call, CreateRefund, Idempotency, Profile, Reply, Send, Session, errors
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.dialect import Dialect
from payasync.sandbox.openapi import describe_service
from tests.sessions import FAST

LIFETIME: Final = 3600.0
HEADER: Final = evolve(PROFILE, idempotency=Idempotency(header="Idempotency-Key", lifetime=LIFETIME))
FIELD: Final = evolve(PROFILE, idempotency=Idempotency(field="idem", lifetime=LIFETIME))
OPEN: Final = evolve(PROFILE, idempotency=Idempotency(header="Idempotency-Key"))
each_place = pytest.mark.parametrize("profile", [HEADER, FIELD], ids=["header", "field"])


@asynccontextmanager
async def open_sandbox(profile: Profile, keys: str = "") -> AsyncGenerator[tuple[Sandbox, Session]]:
    """Open a sandbox, and a session whose writes have these keys, one after the other; the last one repeats."""

    async def keyed(call: Call, send: Send) -> Reply:
        key = next(given, keys[-1:])
        return await send(call.with_idempotency_key(key) if key and not call.read else call)

    given = iter(keys)
    async with Sandbox(profile, clock="frozen") as sandbox, sandbox.session(retry=FAST, middleware=[keyed]) as pay:
        yield sandbox, pay


@pytest.mark.parametrize("profile", [HEADER, FIELD, OPEN], ids=["header", "field", "open lifetime"])
async def test_lost_write_is_done_once(profile: Profile) -> None:
    """If the response to an unnamed write is lost, its second attempt gets the response to the first.

    About a refund, the service is asked by its number, although the refund has a key.
    """
    after: Any = {"phase": "after"}
    faults: dict[str, Any] = {"reset_after_commit": {}, "truncated_body": after, "server_error": after}
    async with open_sandbox(profile) as (sandbox, pay):
        for count, (fault, options) in enumerate(faults.items(), 1):
            sandbox.faults.arm(fault, "payments.create", times=1, **options)
            payment = await pay.payments.create(amount=5, currency="CAD")

            assert (2, False, count) == (payment.attempts, payment.recovered, sandbox.ledger.payments())
        order = await sandbox.given.paid_order(total_amt=450)
        sandbox.faults.reset_after_commit("refunds.create")
        refund = await pay.refunds.create(out_trade_no=order, out_refund_no="R1", total_amt=450, refund_amt=200)

        assert (2, True) == (refund.attempts, refund.recovered)
        assert ["refunds.create", "refunds.status"] == [call.operation for call in sandbox.ledger.calls()[-2:]]


async def test_forgotten_key() -> None:
    """A service that forgets its keys carries a repeated write out twice. The sandbox shows it."""
    forgets = evolve(HEADER, idempotency=evolve(HEADER.idempotency, lifetime=0.0))
    async with Sandbox(forgets) as sandbox, sandbox.session(profile=HEADER, retry=FAST) as pay:
        sandbox.faults.reset_after_commit("payments.create")
        await pay.payments.create(amount=5, currency="CAD")

        assert 2 == sandbox.ledger.payments()


@each_place
async def test_response_is_repeated(profile: Profile) -> None:
    """The same key and request get the first response again, until the lifetime of the key is over.

    A write without a key is carried out each time. The key of another request is refused, and nothing is carried out.
    """
    async with open_sandbox(profile, "a") as (sandbox, pay):
        first, again = [await pay.payments.create(amount=5, currency="CAD") for _ in range(2)]
        for call in (pay.payments.create(amount=6, currency="CAD"), pay.orders.place(total_amt=5, currency="CAD")):
            with pytest.raises(errors.ServiceError) as caught:
                await call
            assert (422, 1) == (caught.value.http_status, sandbox.ledger.payments())
        await sandbox.clock.advance(seconds=LIFETIME)
        later = await pay.payments.create(amount=5, currency="CAD")
        async with sandbox.session(profile=PROFILE, retry=FAST) as other:
            for _ in range(2):
                await other.payments.create(amount=5, currency="CAD")

        assert (first.document, True) == (again.document, first.payment_id != later.payment_id)
        assert (4, 0) == (sandbox.ledger.payments(), sandbox.ledger.orders())


@each_place
async def test_refund_under_another_key(profile: Profile) -> None:
    """The same refund under another key is the first refund. Another refund with its number is a duplicate."""
    async with open_sandbox(profile, "abb") as (sandbox, pay):
        order = await sandbox.given.paid_order(total_amt=450)
        refund = CreateRefund(out_trade_no=order, out_refund_no="R1", total_amt=450, refund_amt=200)
        first, again = [await pay.send(refund) for _ in range(2)]
        with pytest.raises(errors.DuplicateError):
            await pay.send(evolve(refund, refund_amt=201))

        assert first["outRefundNo"] == again["outRefundNo"]
        assert 200 == sandbox.ledger.refunded(order)


async def test_first_request_is_in_progress() -> None:
    """While the first request is in progress, another under its key must wait, and gets its response later."""
    async with open_sandbox(HEADER, "a") as (sandbox, pay):
        sandbox.faults.arm("latency", "payments.create", times=1, phase="before", seconds=0.2)
        patient = pay.with_options(retry=evolve(FAST, attempts=50, base_delay=0.01, max_delay=0.01))
        first, second = await asyncio.gather(*(patient.payments.create(amount=5, currency="CAD") for _ in range(2)))
        codes = [call.status for call in sandbox.ledger.calls()]

        assert first.document == second.document
        assert 1 == sandbox.ledger.payments()
        assert 409 in codes


async def test_refusal_is_repeated(tmp_path: Path) -> None:
    """The sandbox repeats a refusal that the state caused, also once the state has changed, and after a restart.

    A request with a wrong signature does not use its key up: the key carries out the next request.
    """
    texts = list[tuple[object, object]]()
    for _ in range(2):
        async with Sandbox(HEADER, db=tmp_path / "sandbox.db") as sandbox, sandbox.session() as pay:
            stranger = evolve(sandbox.credentials, signing_key="another signing key")
            with pytest.raises(errors.AuthenticationError):
                await pay.for_merchant(stranger).orders.place(
                    total_amt=9, currency="CAD", out_trade_no="T1", intent="a"
                )
            order = await pay.orders.place(total_amt=9, currency="CAD", out_trade_no="T1", intent="a")
            with pytest.raises(errors.ServiceError) as caught:
                await pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=9, refund_amt=9, intent="b")
            texts.append((caught.value.code, caught.value.message))
            await sandbox.customer.authorize(order)

            assert (1, 0) == (sandbox.ledger.orders(), sandbox.ledger.refunds())
    assert texts[0] == texts[1]


@each_place
async def test_key_for_one_use(profile: Profile) -> None:
    """Some services refuse a used key for the same request, too. A refused request has not used its key."""
    shape = evolve(profile.sandbox, single_use_keys=["payments.create", "refunds.create"])
    async with open_sandbox(evolve(profile, sandbox=shape)) as (sandbox, pay):
        sandbox.faults.reset_after_commit("payments.create")
        with pytest.raises(errors.OutcomeUnknownError):
            await pay.payments.create(amount=5, currency="CAD")
        order = await pay.orders.place(total_amt=9, currency="CAD", out_trade_no="T1")
        found = list[str]()
        for _ in range(3):
            try:
                refund = await pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=9, refund_amt=9)
            except errors.ServiceError as error:
                found.append(type(error).__name__)
                await sandbox.customer.authorize(order)
            else:
                found.append(str(refund.state))

        assert (1, ["ServiceError", "succeeded", "DuplicateError"]) == (sandbox.ledger.payments(), found)


async def test_read_under_a_key() -> None:
    """A read is answered anew each time, even if a client sends a key with it."""

    async def keyed(call: Call, send: Send) -> Reply:
        return await send(call.with_headers({"Idempotency-Key": "one-key"}))

    async with Sandbox(HEADER) as sandbox, sandbox.session(middleware=[keyed]) as pay:
        order = await sandbox.given.pending_order(out_trade_no="T1")
        before = await pay.orders.query("T1")
        await sandbox.customer.authorize(order)

        assert ("pending", "paid") == (before.state, (await pay.orders.query("T1")).state)


def test_description() -> None:
    """The sandbox's OpenAPI document shows the key at writes, as optional."""
    for profile, headers in ((HEADER, [("header", False)]), (FIELD, [])):
        paths = describe_service(Dialect(profile))["paths"]
        for path, shown in (("/v1/payments", headers), ("/payment/orderquery", [])):
            described = paths[path]["post"]
            keys = [each for each in described["parameters"] if each["name"] == "Idempotency-Key"]
            body = described["requestBody"]["content"]["application/json"]["schema"]

            assert shown == [(each["in"], each["required"]) for each in keys]
            assert ("idem" in body["properties"]) == (profile is FIELD and path == "/v1/payments")
            assert "idem" not in body["required"]
