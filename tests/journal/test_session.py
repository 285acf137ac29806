"""A session with a journal against the sandbox, whose ledger has the truth."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import (
    AuthenticationError,
    ConfigurationError,
    Credentials,
    InvalidArgumentError,
    NotSentError,
    OutcomeUnknownError,
    RetryPolicy,
    Session,
    SortedPairs,
    Timeouts,
)
from payasync.journal import SqliteJournal
from payasync.journal.middleware import CANCELLED
from payasync.profile.schema import Recovery
from payasync.sandbox import PROFILE, Sandbox
from payasync.wire.call import Call, Reply, Send
from tests.inside import turns
from tests.journal.building import only, refund

REAL: Final = evolve(PROFILE, name="real", recovery=Recovery(quarantine=9.0))
"""A profile that is not the sandbox's own: its service is one by its address."""
ONE_TRY: Final = RetryPolicy(attempts=1)
REFUND: Final[dict[str, Any]] = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 450, "refund_amt": 200}


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A service with a paid order."""
    async with Sandbox(clock="frozen", refunds="by hand") as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1")
        yield sandbox


@pytest.fixture
async def pay(sandbox: Sandbox, journal: SqliteJournal) -> AsyncIterator[Session]:
    """A session with a journal."""
    async with sandbox.session(journal=journal, retry=ONE_TRY) as pay:
        yield pay


def sent(sandbox: Sandbox, operation: str = "refunds.create") -> int:
    """Return how many calls of an operation the service has answered."""
    return len(sandbox.ledger.calls(operation))


async def test_refund_is_sent_once(sandbox: Sandbox, pay: Session, journal: SqliteJournal) -> None:
    """If a refund is repeated, the session returns the journal's response, and sends nothing."""
    first, again = await pay.refunds.create(**REFUND), await pay.refunds.create(**REFUND)

    assert (1, 1, 0) == (sent(sandbox), first.attempts, again.attempts)
    assert (first.refund_status, first.state) == (again.refund_status, again.state)
    assert ("accepted", pay.merchant_id) == ((await only(journal)).state, (await only(journal)).merchant)


async def test_given_up_before_it_left_is_rejected(sandbox: Sandbox, journal: SqliteJournal) -> None:
    """If a call is cancelled before its first byte, the write is rejected, and nothing is sent later."""
    ready, go = asyncio.Event(), asyncio.Event()
    ends: list[asyncio.Future[Reply]] = []

    async def slow(call: Call, send: Send) -> Reply:
        await go.wait()
        return await send(call)

    async def shielding(call: Call, send: Send) -> Reply:
        ends.append(asyncio.ensure_future(slow(call, send)))
        ready.set()
        return await asyncio.shield(ends[0])

    async with sandbox.session(journal=journal, middleware=[shielding]) as pay:
        task = asyncio.ensure_future(pay.payments.create(amount=100, currency="USD"))
        await ready.wait()
        task.cancel()
        await asyncio.wait([task])
        await turns(20)  # the journal begins to store the end
        go.set()
        await asyncio.wait(ends)

    assert ("rejected", CANCELLED) == ((await only(journal)).state, (await only(journal)).reason)
    assert isinstance(ends[0].exception(), NotSentError)
    assert 0 == sandbox.ledger.payments()


@pytest.mark.parametrize(
    ("changes", "given", "field"),
    [
        ({"signature": None}, {}, "signature"),
        ({"signature": SortedPairs()}, {}, "signature.algorithm"),
        ({}, {"signing_key": None}, "credentials.signing_key"),
    ],
)
async def test_what_is_not_configured_is_not_stored(
    sandbox: Sandbox, journal: SqliteJournal, changes: Any, given: Any, field: str
) -> None:
    """If the profile or the credentials lack a setting, the call raises an error, and the journal stores nothing.

    A write that is not signed needs no signing key.
    """
    profile = evolve(sandbox.profile, name="p", answer=evolve(sandbox.profile.answer, signature=""), **changes)
    keys = Credentials("M1", secret_key="s", **{"signing_key": "signing key of M1", **given})
    async with Session(sandbox.url, credentials=keys, profile=profile, journal=journal) as pay:
        with pytest.raises(ConfigurationError) as caught:
            await pay.refunds.create(**REFUND)
        stored = await journal.list()
        with pytest.raises(AuthenticationError):
            await pay.payments.create(amount=1, currency="USD")

    assert (field, "refunds.create", []) == (caught.value.field, caught.value.operation, stored)
    assert ["payments.create"] == [each.operation for each in await journal.list()]


STRICT: Final = SortedPairs(algorithm="hmac-sha256", encoding="hex", allow_delimiters=())


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"signature": STRICT}, "'refundDesc' cannot be signed"),
        ({"accept": evolve(PROFILE.accept, length={"refund_desc": 5})}, "refund_desc must be"),
    ],
    ids=["cannot be signed", "is not accepted"],
)
async def test_what_cannot_be_sent_says_so_before_and_after_it_is_queued(
    sandbox: Sandbox, pay: Session, journal: SqliteJournal, *, change: dict[str, Any], field: str
) -> None:
    """`check` refuses an invalid request. If it is queued anyway, `execute` sends nothing and stores the reason.

    A direct call sends and stores nothing.
    """
    odd = refund(refund_desc="size=L&colour=red")
    queued = await journal.add(odd, merchant=pay.merchant_id)
    before = await only(journal)
    async with sandbox.session(journal=journal, profile=evolve(PROFILE, **change)) as strict:
        strict.for_merchant(Credentials(pay.merchant_id)).check(refund())
        with pytest.raises(InvalidArgumentError, match=field) as direct:
            await strict.send(evolve(odd, out_refund_no="R2"))
        with pytest.raises(InvalidArgumentError) as checked:
            strict.check(odd)
        with pytest.raises(InvalidArgumentError):
            await strict.execute(queued)
    after, unsent = await only(journal), sent(sandbox)
    await pay.execute(queued)

    assert (evolve(before, reason=checked.value.args[0]), 0) == (after, unsent)
    assert field in after.reason
    assert ("refunds.create", "R2") == (direct.value.operation, direct.value.reference)
    assert ("accepted", "") == ((await only(journal)).state, (await only(journal)).reason)


async def test_other_service_is_refused(sandbox: Sandbox, pay: Session, journal: SqliteJournal) -> None:
    """If the journal is bound to the sandbox, calls to another service raise `ConfigurationError` and send nothing."""
    await pay.refunds.create(**REFUND)
    async with Sandbox(REAL) as other, other.session(journal=journal) as real:
        await other.given.paid_order(out_trade_no="T1")
        queued = await journal.add(refund("R2"), merchant=real.merchant_id)
        for call in (real.refunds.create(**REFUND), real.execute(queued)):
            with pytest.raises(ConfigurationError, match=f"sent to the sandbox, and this session's .* {other.url}:"):
                await call

        assert not other.ledger.calls("refunds.create")
    assert 1 == sent(sandbox)
    assert ["accepted", "new"] == [each.state for each in await journal.list()]


async def test_sandboxes_are_one_service(sandbox: Sandbox, pay: Session, journal: SqliteJournal) -> None:
    """A second sandbox at another port can use the journal of the first one."""
    await pay.refunds.create(**REFUND)
    async with Sandbox(evolve(PROFILE, recovery=Recovery(quarantine=9.0))) as anew:
        again = await anew.session(journal=journal).refunds.create(**REFUND)

    assert (0, 1) == (again.attempts, sent(sandbox))


async def test_layer_with_a_call_of_its_own_says_nothing(sandbox: Sandbox, journal: SqliteJournal) -> None:
    """If a middleware's own call raises `ServiceError`, the write is unknown, not rejected, and is not sent again."""
    async with sandbox.session() as other:

        async def audit(call: Call, send: Send) -> Reply:
            reply = await send(call)
            await other.orders.query("NONE")
            return reply

        async with sandbox.session(journal=journal, middleware=[audit]) as pay:
            for _ in range(2):
                with pytest.raises(OutcomeUnknownError, match="middleware raised ServiceError"):
                    await pay.payments.create(amount=100, currency="USD", intent="invoice-1")

    assert ("unknown", 1) == ((await only(journal)).state, sent(sandbox, "payments.create"))


async def test_copy_with_another_journal(sandbox: Sandbox, pay: Session, path: Path) -> None:
    """A copy made by `with_options(journal=...)` records its writes in that journal."""
    async with SqliteJournal(path.with_name("other.db")) as other:
        await pay.with_options(journal=other).refunds.create(**REFUND)
        kept = [each.reference for each in await other.list()]
    with pytest.raises(ConfigurationError, match="journal"):
        pay.with_options(journal="pay.db")  # type: ignore[arg-type] # that is the test

    assert ["R1"] == kept
    assert 1 == sent(sandbox)


async def test_workers_send_a_queued_request_once(sandbox: Sandbox, pay: Session, journal: SqliteJournal) -> None:
    """If workers execute an intent together, it is sent once. A later one gets the response, a `RefundResponse`."""
    intent_id = await journal.add(refund(extra={"deviceNo": "7"}), merchant=pay.merchant_id)
    ends = await asyncio.gather(*(pay.execute(intent_id) for _ in range(20)), return_exceptions=True)
    again = await pay.execute(intent_id)

    assert {"RefundResponse", "OutcomeUnknownError"} >= {type(end).__name__ for end in ends}
    assert (1, "RefundResponse", 0) == (sent(sandbox), type(again).__name__, again.attempts)
    assert "accepted" == (await only(journal)).state


async def test_executing_needs_a_journal(sandbox: Sandbox) -> None:
    """If the session has no journal, `execute` raises `ConfigurationError`."""
    async with sandbox.session() as pay:
        with pytest.raises(ConfigurationError, match="journal is not set") as caught:
            await pay.execute(1)

    assert "journal" == caught.value.field


async def test_call_is_no_longer_than_somebody_would_wait(
    sandbox: Sandbox, pay: Session, journal: SqliteJournal
) -> None:
    """With a journal, a call's timeout can be at most an hour."""
    with pytest.raises(ConfigurationError, match=r"Timeouts\.total must be at most 3600 seconds with a journal"):
        sandbox.session(journal=journal, timeouts=Timeouts(total=3601))
    with pytest.raises(InvalidArgumentError, match="timeout must be at most 3600 seconds with a journal"):
        await pay.send(refund(), timeout=1e300)
    async with sandbox.session(timeouts=Timeouts(total=1e300)) as patient:
        await patient.orders.query("T1")
    await pay.send(refund(), timeout=3600)

    assert 1 == sent(sandbox)
