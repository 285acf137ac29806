"""Idempotency keys in the journal: what keeps one, when it is renewed, and what the reconciler sends again."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import (
    CreatePayment,
    Idempotency,
    OutcomeUnknownError,
    ServiceError,
    Session,
    Timeouts,
)
from payasync.clocks import Pace
from payasync.endpoints import custom_operation
from payasync.journal import Journal, Patience, Reconciler, Report
from payasync.journal.drafts import draft_from_call
from payasync.journal.intents import Intent, Step
from payasync.journal.reconcile_policy import KEY_OVER, NAMELESS, NOT_KEPT, QueryResult, decide
from payasync.sandbox import PROFILE, Sandbox
from payasync.wire.call import Call, Lease, Reply, Send, derive_idempotency_key
from payasync.wire.request import Request
from payasync.wire.response import Response
from tests.building import PROFILE as REQUESTS
from tests.building import codec
from tests.journal.building import LEASE, MERCHANT, PAYMENT, START, Clock, draft, only, refund, unknown
from tests.journal.conftest import both_stores
from tests.sessions import ONE_TRY

LIFETIME: Final = 3600.0
LASTING: Final = Idempotency(header="Idempotency-Key", lifetime=LIFETIME)
INVOICE: Final = "invoice-42"
KEY: Final = "payasync-of-this-call"


def key_of_refund(sends: int) -> str:
    """Return the key of the refund R1 after so many sends that were refused."""
    return derive_idempotency_key(MERCHANT, "refunds.create", "refunds.create:R1", sends)


async def begun(journal: Journal, key: str | None = None) -> Intent:
    """Begin to send the refund R1, and return its intent."""
    begun = await journal.begin(evolve(draft(), idempotency_key=key or key_of_refund(0)), LEASE)
    assert Step.SEND is begun.step
    return begun.intent


@both_stores
async def test_key_after_a_refusal(store: Journal, clock: Clock) -> None:
    """The journal stores the key of a write, and when it was first sent under it.

    After each refusal a write has another key, because a service may repeat its refusal under the old one. If the
    service takes no key, the journal forgets it.
    """
    keys = []
    for _ in range(3):
        intent = await begun(store)
        keys.append((intent.idempotency_key, intent.key_sent))
        assert intent == await only(store)
        await store.settle(intent, "rejected")
        clock.advance(1)
    number = await store.add(refund(), merchant=MERCHANT)
    again = (await store.claim(number, LEASE, key=key_of_refund(0))).intent
    await store.settle(again, "rejected")
    last = (await store.begin(draft(), LEASE)).intent

    assert [(key_of_refund(sends), START + timedelta(seconds=sends)) for sends in range(3)] == keys
    assert key_of_refund(3) == again.idempotency_key
    assert (None, None) == (last.idempotency_key, last.key_sent)


@both_stores
async def test_key_while_in_doubt(store: Journal, clock: Clock) -> None:
    """A write that is sent again after a doubt keeps its key, and the time of its first send."""
    number = await store.add(PAYMENT, merchant=MERCHANT)
    first = (await store.claim(number, LEASE, key=KEY)).intent
    await store.settle(first, "unknown")
    clock.advance(60)
    (asked,) = await store.ask(1, LEASE)
    again = (await store.claim(number, LEASE, fence=asked.fence, key="payasync-another")).intent

    assert [(KEY, START)] * 2 == [(each.idempotency_key, each.key_sent) for each in (first, again)]


@both_stores
async def test_key_of_a_queued_write(store: Journal) -> None:
    """A queued write gets its key when it is claimed: by its number or `intent`, else the key of the call."""
    numbered = await store.add(refund(), merchant=MERCHANT, intent="another invoice")
    named = await store.add(PAYMENT, merchant=MERCHANT, intent=INVOICE)
    unnamed = await store.add(PAYMENT, merchant=MERCHANT)
    keys = [(await store.claim(each, LEASE, key=KEY)).intent.idempotency_key for each in (numbered, named, unnamed)]

    assert [key_of_refund(0), derive_idempotency_key(MERCHANT, "payments.create", INVOICE), KEY] == keys


def test_key_is_no_part_of_the_request() -> None:
    """A write stays the same when its service begins to take a key, whatever the key is."""
    bare, keyed = (codec(evolve(REQUESTS, idempotency=each)) for each in (Idempotency(), Idempotency(field="idem")))
    operation = custom_operation("POST", "/bill", read=False)
    calls = [each.custom(operation, {"a": 1}, bearer=False, signed=False) for each in (bare, keyed, keyed)]
    drafts = [draft_from_call(keyed.with_idempotency_key(each), MERCHANT, None) for each in calls[1:]]
    before = draft_from_call(calls[0], MERCHANT, None)

    assert [before.hash] * 2 == [each.hash for each in drafts]
    assert None is before.idempotency_key
    assert 2 == len({each.idempotency_key for each in drafts})


class Shop:
    """A merchant with a journal, whose reconciler reads the journal's clock, and a sandbox."""

    def __init__(self, sandbox: Sandbox, pay: Session, journal: Journal, clock: Clock) -> None:
        self.sandbox = sandbox
        self.pay = pay
        self.journal = journal
        self.clock = clock
        self.keys: list[str] = []
        self.leases: list[Lease | None] = []

    async def see(self, call: Call, send: Send) -> Reply:
        """Note the key and the lease of each write."""
        if not call.read:
            self.keys.append(call.idempotency_key)
            self.leases.append(call.lease)
        return await send(call)

    async def lose(self, request: Request[Response], *, queued: bool = True, fault: str = "reset_after_commit") -> None:
        """Send a write whose response does not come."""
        getattr(self.sandbox.faults, fault)(request.operation.name)
        with pytest.raises(OutcomeUnknownError):
            await self.send(request, queued=queued)

    async def send(self, request: Request[Response], *, queued: bool = True) -> Response:
        """Send a write, from the journal if it is queued."""
        if not queued:
            return await self.pay.send(request, intent=INVOICE)
        return await self.pay.execute(await self.journal.add(request, merchant=self.pay.merchant_id, intent=INVOICE))

    async def reconcile(self, after: float = 0.0, **settings: Any) -> Report:
        """Let time pass, and run the reconciler."""
        self.clock.advance(after)
        pace = Pace(clock=self.clock, jitter=lambda bound: bound)
        return await Reconciler(self.pay, self.journal, pace=pace, **settings).run_once()


@pytest.fixture
def idempotency() -> Idempotency:
    """What the profile says of keys."""
    return LASTING


@pytest.fixture
async def shop(store: Journal, clock: Clock, idempotency: Idempotency) -> AsyncIterator[Shop]:
    """A shop whose calls make one attempt, so that the rest is left to the reconciler."""
    shops = list[Shop]()

    async def see(call: Call, send: Send) -> Reply:
        return await shops[0].see(call, send)

    async with (
        Sandbox(evolve(PROFILE, idempotency=idempotency)) as sandbox,
        sandbox.session(journal=store, retry=ONE_TRY, middleware=[see]) as pay,
    ):
        shops.append(Shop(sandbox, pay, store, clock))
        yield shops[0]


@pytest.mark.parametrize("fault", ["reset_after_commit", "reset_before"])
async def test_lost_payment_is_sent_again(shop: Shop, fault: str) -> None:
    """The reconciler sends a queued payment again under its key, and the service has it once."""
    await shop.lose(PAYMENT, fault=fault)
    early, late = await shop.reconcile(), await shop.reconcile(after=10)

    assert (0, 1) == (early.sent, late.sent)
    assert "accepted" == (await only(shop.journal)).state
    assert 1 == shop.sandbox.ledger.payments()
    assert [shop.keys[0]] * 2 == shop.keys


async def test_no_more_sends_than_the_patience_allows(shop: Shop) -> None:
    """A payment that stays lost is sent as often as `Patience.sends` says, with growing pauses. Then a person looks."""
    shop.sandbox.faults.arm("reset_after_commit", "payments.create", times=3)
    with pytest.raises(OutcomeUnknownError):
        await shop.send(PAYMENT)
    patience = Patience(first=2.0, sends=3)
    reports = [await shop.reconcile(after=each, patience=patience) for each in (1.9, 0.1, 3.9, 0.1)]
    shop.sandbox.faults.clear()

    assert [(0, 0), (1, 0), (0, 0), (1, 1)] == [(report.sent, report.manual) for report in reports]
    assert 3 == len(shop.keys)
    assert 1 == shop.sandbox.ledger.payments()


@pytest.mark.parametrize(
    ("idempotency", "seconds", "queued", "why"),
    [
        (LASTING, LIFETIME, True, f"{NAMELESS}, {KEY_OVER}"),
        (Idempotency(header="Idempotency-Key"), 10.0, True, NAMELESS),
        (LASTING, 10.0, False, f"{NAMELESS}, {NOT_KEPT}"),
    ],
)
async def test_nothing_is_sent_that_only_a_key_names(shop: Shop, seconds: float, *, queued: bool, why: str) -> None:
    """If the lifetime of the key is over or open, or the call was a direct one, nothing is sent: a person looks.

    Of a direct call too little is stored to send it again.
    """
    await shop.lose(PAYMENT, queued=queued)

    assert Report(manual=1) == await shop.reconcile(after=seconds)
    assert why == (await only(shop.journal)).reason
    assert 1 == len(shop.keys)


async def test_what_is_left_of_the_lifetime(shop: Shop) -> None:
    """A write that is sent again shortly before its key ends has only that time to leave this machine."""
    await shop.lose(PAYMENT)
    report = await shop.reconcile(after=LIFETIME - 10)
    first, again = shop.leases

    assert 1 == report.sent
    assert first
    assert again
    assert first.seconds > 10
    assert (10.0, None) == (again.seconds, again.repeat_seconds)


@pytest.mark.parametrize("idempotency", [evolve(LASTING, lifetime=5.0), evolve(LASTING, lifetime=None)])
async def test_short_lifetime(shop: Shop, idempotency: Idempotency) -> None:
    """If a key ends before its call does, the call repeats nothing after that; without a lifetime, after the call."""
    await shop.lose(PAYMENT)
    (first,) = shop.leases

    assert first
    assert (idempotency.lifetime or Timeouts().total) == first.repeat_seconds


async def test_another_request_under_the_key(shop: Shop) -> None:
    """If the service refuses what is sent again, the first send may have been done all the same: a person looks."""
    await shop.lose(PAYMENT)
    shop.sandbox.faults.clear()
    fields = {"profile": evolve(shop.pay.profile, constants={"*": {"version": 2}})}
    changed = shop.sandbox.session(journal=shop.journal, retry=ONE_TRY, **fields)
    async with changed:
        shop.clock.advance(10)
        report = await Reconciler(changed, shop.journal, pace=Pace(clock=shop.clock)).run_once()

    assert Report(manual=1) == report
    assert 1 == shop.sandbox.ledger.payments()


@pytest.mark.parametrize("idempotency", [Idempotency(field="requestKey")])
async def test_new_key_in_a_field_is_signed(shop: Shop) -> None:
    """If the journal gives a write a new key, the write is signed with that key, and not with its first one."""
    order = await shop.sandbox.given.pending_order(out_trade_no="T1", total_amt=450)
    async with shop.sandbox.session(journal=shop.journal, retry=ONE_TRY) as pay:
        for _ in range(2):  # each under a key of its own, which the service refuses
            with pytest.raises(ServiceError):
                await pay.send(refund())
        await shop.sandbox.customer.authorize(order)
        done = await pay.send(refund())

    assert ("succeeded", 1) == (done.state, shop.sandbox.ledger.refunds())


async def test_calls_in_two_processes_have_one_key(shop: Shop) -> None:
    """A write has the same key in each process and session, with a journal or without one."""
    await shop.send(CreatePayment(amount=5, currency="CAD"), queued=False)
    async with shop.sandbox.session() as pay:
        await pay.payments.create(amount=5, currency="CAD", intent=INVOICE)

    assert 1 == shop.sandbox.ledger.payments()


NOTHING_NAMES_IT: Final = QueryResult(claim=None, reason=NAMELESS)


@pytest.mark.parametrize(
    ("facts", "lifetime", "seconds", "expected"),
    [
        ({}, LIFETIME, 2.0, "sending"),
        ({}, LIFETIME, 1.9, "unknown"),
        ({}, 1.5, 1.0, "manual"),
        ({"attempts": 5}, LIFETIME, 60.0, "manual"),
        ({"idempotency_key": None}, LIFETIME, 2.0, "manual"),
        ({"key_sent": None}, LIFETIME, 2.0, "manual"),
        ({"key_sent": START + timedelta(seconds=10)}, LIFETIME, 2.0, "manual"),
        ({"number": "refunds.create:R1"}, LIFETIME, 2.0, "manual"),
    ],
)
def test_decision(facts: dict[str, Any], lifetime: float | None, seconds: float, expected: str) -> None:
    """A queued write that only its key names is sent again within the key's lifetime, after a pause that grows."""
    named = {"number": None, "queued": True, "idempotency_key": KEY, "key_sent": START, **facts}
    decision = decide(
        unknown(operation="payments.create", reference=None, **named),
        NOTHING_NAMES_IT,
        asked_at=START + timedelta(seconds=seconds),
        quarantine=None,
        patience=Patience(),
        jitter=lambda bound: bound,
        lifetime=lifetime,
    )

    assert expected == decision.state
    assert (decision.pause is not None) == (expected == "unknown")
