"""A number that was sent more than once: what the service says of it may be of an earlier send."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from threading import Event
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import CloseOrder, OutcomeUnknownError, PayasyncError, PlaceOrder, Recovery, ServiceError, Session
from payasync.clocks import Pace
from payasync.journal import Journal, Reconciler
from payasync.profile.profile import Profile
from payasync.profile.schema import Idempotency
from tests.foreign.recorder import Answer, Recorder, answer
from tests.inside import until
from tests.journal.building import Clock
from tests.journal.service import ABSENT, LOST, MINE, QUARANTINE, QUICK, SAYS, Service, said, serving
from tests.matrix.cells import session

FAILED: Final = said("REFUND_FAILED")
PROCESSING: Final = said("PROCESSING")
SUCCEEDED: Final = said("SUCCEEDED")
REFUSED: Final = answer(400, b'{"code":"SBX_INVALID"}')
TOO_MANY: Final = answer(429, b'{"code":"SBX_RATE_LIMITED"}')


@pytest.fixture
async def repeated(store: Journal, clock: Clock) -> AsyncIterator[Service]:
    """A refund that was accepted, and failed, so that its caller may repeat it."""
    async with serving(store, clock, PROCESSING, FAILED) as service:
        await service.called()

        assert "rejected" == (await service.reconciled()).state

        yield service


async def test_replica_that_is_behind_rejects_no_repeated_refund(repeated: Service) -> None:
    """A refund that failed is repeated and accepted: "failed" counts again after the quarantine, and not before."""
    await repeated.called()
    early = await repeated.reconciled(QUARANTINE - 1)
    told = await repeated.journal.told("refunds.create", "R1", "failed", {}, merchant="M1")
    late = await repeated.reconciled(1)

    assert ("accepted", [], "rejected") == (early.state, told, late.state)
    assert "perhaps of an earlier send" in early.reason
    assert 2 == repeated.sends


@pytest.mark.parametrize("query", [FAILED, PROCESSING])
async def test_lost_repeat_is_not_ended_by_the_earlier_send(repeated: Service, query: Answer) -> None:
    """If the response to a repeat is lost, "failed" and "processing" decide nothing before the quarantine is over."""
    repeated.say(LOST, query)
    told = await repeated.called()
    early = await repeated.reconciled(QUARANTINE - 1)
    late = await repeated.reconciled(1)

    assert isinstance(told, OutcomeUnknownError)
    assert told.response is not None
    assert "perhaps of an earlier send" in str(told)
    assert ("unknown", "rejected" if query is FAILED else "accepted") == (early.state, late.state)


async def test_success_of_a_repeat_counts_immediately(repeated: Service) -> None:
    """If the response to a repeat is lost, "succeeded" is believed: both sends are one refund."""
    repeated.say(LOST, SUCCEEDED)
    told: Any = await repeated.called()

    assert ("succeeded", True, "succeeded") == (told.state, told.recovered, (await repeated.kept()).state)


async def test_duplicate_of_a_repeat_is_not_ended_by_the_earlier_send(repeated: Service) -> None:
    """If a repeat is called a duplicate, "failed" may be about the first send: the write stays unknown."""
    repeated.say(answer(409, b'{"code":"SBX_DUPLICATE"}'), said("REFUND_FAILED"))
    told = await repeated.called()

    assert (OutcomeUnknownError, "unknown") == (type(told), (await repeated.kept()).state)


@pytest.mark.parametrize("first", [REFUSED, TOO_MANY])
async def test_send_without_effect_is_not_counted(store: Journal, clock: Clock, first: Answer) -> None:
    """After a refusal, or a 429 before execution, there is one send: "failed" is about it, and counts immediately."""
    http = evolve(SAYS.http, rate_limit_precedes_execution=True, uncoded=(*SAYS.http.uncoded, 429))
    says = evolve(SAYS, http=http)
    async with serving(store, clock, first, says=says) as service:
        assert isinstance(await service.called(), ServiceError)

        service.say(PROCESSING, FAILED)
        await service.called()
        ended = await service.reconciled()

    assert (("rejected", 2, 1), "refund's state is failed") == (
        (ended.state, ended.attempts, ended.sends),
        ended.reason.removeprefix("the "),
    )


async def test_without_a_quarantine_a_person_decides_about_a_repeat(store: Journal, clock: Clock) -> None:
    """Without a quarantine, "failed" of a number that was sent twice never counts: the write becomes *manual*."""
    async with serving(store, clock, PROCESSING, FAILED, says=evolve(SAYS, recovery=Recovery())) as service:
        await service.called()
        await service.reconciled()
        await service.called()
        early = await service.reconciled(86_000)
        late = await service.reconciled(401)

    assert ("accepted", "manual") == (early.state, late.state)
    assert "recovery.quarantine" in late.reason


@pytest.mark.parametrize(("age", "state"), [(0, "rejected"), (60, "unknown")])
async def test_cached_absence_is_not_final(store: Journal, clock: Clock, age: int, state: str) -> None:
    """A "not found" out of a cache answers an earlier question: its age delays the end of the quarantine."""
    async with serving(store, clock, LOST) as service:
        await service.called()
        service.say(query=answer(404, b'{"code":"SBX_NOT_FOUND"}', ("Age", str(age))))
        found = await service.reconciled(QUARANTINE + 5)

    assert (state, age > 0) == (found.state, f"from a cache, {age} s old" in found.reason)


@pytest.mark.parametrize(("age", "state"), [(60, "rejected"), (70, "unknown")])
async def test_cached_end_is_of_an_earlier_moment(store: Journal, clock: Clock, age: int, state: str) -> None:
    """A "failed" out of a cache counts only if the service said it after the send."""
    document = json.dumps({"code": "SBX_OK", "status": "SBX_REFUND_FAILED", **MINE}).encode()
    async with serving(store, clock, LOST) as service:
        await service.called()
        service.say(query=answer(200, document, ("Age", str(age))))
        found = await service.reconciled(QUARANTINE + 5)

    assert state == found.state


NUMBER: Final = "T1"
PLACE: Final = PlaceOrder(out_trade_no=NUMBER, total_amt=450, currency="CAD")
CLOSE: Final = CloseOrder(out_trade_no=NUMBER)


def order(state: str, after: Event | None = None) -> Answer:
    """Return a response about the order, which waits for an event if one is given."""
    facts = {"code": "SBX_OK", "status": f"SBX_{state}", "outTradeNo": NUMBER, "totalAmt": 450, "merchantId": "M1"}
    return answer(200, json.dumps(facts).encode(), after=after)


async def outcome_of(called: Awaitable[Any]) -> Any:
    """Return the response of a call, or its error."""
    try:
        return await called
    except PayasyncError as error:
        return error


class Orders:
    """An order that is placed, closed, and placed again, at a service whose responses a test chooses."""

    def __init__(self, says: dict[str, Answer], recorder: Recorder, pay: Session, store: Journal, clock: Clock) -> None:
        self.says = says
        self.recorder = recorder
        self.pay = pay
        self.store = store
        self.clock = clock

    async def called(self, request: PlaceOrder | CloseOrder) -> Any:
        """Send a request, and return its response or its error."""
        return await outcome_of(self.pay.send(request))

    async def reconciled(self, after: float = 0.0) -> dict[str, str]:
        """Let time pass, run the reconciler, and return the states of the intents by their operations."""
        self.clock.advance(after)
        await Reconciler(self.pay, self.store, pace=Pace(clock=self.clock)).run_once()
        return {each.operation: each.state for each in await self.store.list()}

    def received(self, path: str) -> int:
        """Return how many requests came to a path."""
        return sum(each.path == path for each in self.recorder.requests)

    def keys(self, path: str) -> list[tuple[str, ...]]:
        """Return the idempotency keys of the requests that came to a path."""
        return [tuple(each.header("Idempotency-Key")) for each in self.recorder.requests if each.path == path]


KEYED: Final = evolve(SAYS, idempotency=Idempotency(header="Idempotency-Key", lifetime=86_400))


@asynccontextmanager
async def ordering(store: Journal, clock: Clock, profile: Profile = SAYS) -> AsyncGenerator[Orders]:
    """Open a session with a service where orders can be placed, and are closed when they are asked about."""
    says = {"/payment/unifiedorder": order("PENDING"), "/payment/closeorder": order("CLOSED")}
    says["/payment/orderquery"] = order("CLOSED")
    with Recorder(by_path=says) as recorder:
        async with session(recorder, profile, journal=store, retry=QUICK) as pay:
            yield Orders(says, recorder, pay, store, clock)


@pytest.fixture
async def orders(store: Journal, clock: Clock) -> AsyncIterator[Orders]:
    """An order that was placed, and closed."""
    async with ordering(store, clock) as orders:
        await orders.called(PLACE)
        await orders.called(CLOSE)

        assert {"orders.place": "rejected", "orders.close": "succeeded"} == await orders.reconciled(QUARANTINE)

        clock.advance(1)
        yield orders


async def test_close_is_sent_again_after_a_new_place(orders: Orders) -> None:
    """A recorded close is no close of an order that was placed again since. Otherwise the record is the response."""
    recorded = await orders.called(CLOSE)
    before = orders.received("/payment/closeorder")
    await orders.called(PLACE)
    closed = await orders.called(CLOSE)

    assert ("closed", 0, 1) == (recorded.state, recorded.attempts, before)
    assert ("closed", 1, 2) == (closed.state, closed.attempts, orders.received("/payment/closeorder"))


async def test_earlier_close_is_no_close_of_the_order_that_was_placed_again(orders: Orders) -> None:
    """After a second place, "closed" ends a close whose response was lost after the quarantine, and not before."""
    await orders.called(PLACE)
    orders.says["/payment/closeorder"] = answer(409, b'{"code":"SBX_DUPLICATE"}')
    unknown = await orders.called(CLOSE)
    early = await orders.reconciled(QUARANTINE - 1)
    told = await orders.store.told("orders.close", NUMBER, "closed", {}, merchant="M1")
    late = await orders.reconciled(1)

    assert isinstance(unknown, OutcomeUnknownError)
    assert ("unknown", [], "succeeded") == (early["orders.close"], told, late["orders.close"])


async def test_pending_of_an_earlier_place_is_no_acceptance(orders: Orders) -> None:
    """If the response to a second place is lost, "pending" may be the first order's: the write stays unknown."""
    orders.says |= {"/payment/unifiedorder": LOST, "/payment/orderquery": order("PENDING")}
    placed = await orders.called(PLACE)
    orders.says["/payment/orderquery"] = order("CLOSED")
    early = await orders.reconciled(6)

    assert (OutcomeUnknownError, "unknown") == (type(placed), early["orders.place"])


async def test_lost_close_of_before_ends_with_a_new_place(orders: Orders, store: Journal) -> None:
    """If an order is placed again, an unknown close of before counts no more: the next close is sent."""
    await orders.called(PLACE)
    orders.says["/payment/closeorder"] = LOST
    lost = await orders.called(CLOSE)
    orders.says |= {"/payment/closeorder": order("CLOSED"), "/payment/orderquery": order("CLOSED")}
    await orders.reconciled(QUARANTINE)
    await orders.called(PLACE)
    (close,) = await store.find("orders.close", NUMBER)
    closed = await orders.called(CLOSE)

    assert (OutcomeUnknownError, "rejected", 1) == (type(lost), close.state, closed.attempts)


async def test_close_of_the_order_before_is_no_close_of_a_late_place(orders: Orders) -> None:
    """If the response to a second place is lost, "closed" may be of the first order: each close stays unknown.

    A close moves no money, so the next close is sent. If the second order arrives late, the caller is told.
    """
    orders.says["/payment/unifiedorder"] = LOST
    orders.says["/payment/orderquery"] = answer(404, b'{"code":"SBX_NOT_FOUND"}')
    await orders.called(PLACE)
    first, again = await orders.called(CLOSE), await orders.called(CLOSE)
    orders.says["/payment/orderquery"] = order("PENDING")
    late = await orders.reconciled(QUARANTINE + 1)

    assert [(OutcomeUnknownError, 1)] * 2 == [(type(each), each.attempts) for each in (first, again)]
    assert "placed again" in str(first)
    assert 3 == orders.received("/payment/closeorder")
    assert {"orders.place": "accepted", "orders.close": "rejected"} == late


@pytest.mark.parametrize("closed", [order("PAID"), REFUSED])
async def test_refusal_of_a_close_beside_a_late_place_counts(orders: Orders, closed: Answer) -> None:
    """If a close is refused while a second place is in doubt, the refusal is believed: nothing was closed."""
    orders.says |= {"/payment/unifiedorder": LOST, "/payment/orderquery": ABSENT, "/payment/closeorder": closed}
    await orders.called(PLACE)
    await orders.called(CLOSE)
    (close,) = await orders.store.find("orders.close", NUMBER)

    assert "rejected" == close.state


async def test_refused_queued_close_beside_a_late_place_can_be_repeated(orders: Orders) -> None:
    """If a queued close in doubt is sent again and refused, it is rejected, and its caller may send it again."""
    orders.says |= {"/payment/unifiedorder": LOST, "/payment/orderquery": ABSENT}
    await orders.called(PLACE)
    number = await orders.store.add(CLOSE, merchant="M1")
    await outcome_of(orders.pay.execute(number))
    orders.says["/payment/closeorder"] = REFUSED
    await outcome_of(orders.pay.execute(number))
    (close,) = await orders.store.find("orders.close", NUMBER)

    assert "rejected" == close.state


async def test_close_is_of_no_place_that_ended_after_it_began(orders: Orders) -> None:
    """If a second place ends while a close is in flight, "closed" may be of the first order: the close is in doubt."""
    placed, closed = Event(), Event()
    orders.says |= {"/payment/unifiedorder": order("PENDING", placed), "/payment/closeorder": order("CLOSED", closed)}
    placing = asyncio.create_task(orders.called(PLACE))
    await until(lambda: orders.received("/payment/unifiedorder") > 1)
    closing = asyncio.create_task(orders.called(CLOSE))
    await until(lambda: orders.received("/payment/closeorder") > 1)
    orders.clock.advance(1)
    placed.set()
    await placing
    closed.set()

    assert isinstance(await closing, OutcomeUnknownError)


async def test_reconciler_sends_a_close_again_under_a_new_key(store: Journal, clock: Clock) -> None:
    """A queued close that the reconciler sends again has a new idempotency key, too."""
    async with ordering(store, clock, KEYED) as orders:
        orders.says |= {"/payment/closeorder": LOST, "/payment/orderquery": order("PENDING")}
        await orders.called(PLACE)
        await outcome_of(orders.pay.execute(await store.add(CLOSE, merchant="M1")))
        first = orders.received("/payment/closeorder")
        await orders.reconciled(QUARANTINE + 1)
    keys = orders.keys("/payment/closeorder")

    assert set(keys[:first]).isdisjoint(keys[first:])
    assert first < len(keys)


async def test_queued_close_beside_a_late_place_can_be_sent_again(orders: Orders) -> None:
    """A queued close beside a second place in doubt is sent each time that its worker asks for it."""
    orders.says |= {"/payment/unifiedorder": LOST, "/payment/orderquery": ABSENT}
    await orders.called(PLACE)
    number = await orders.store.add(CLOSE, merchant="M1")
    sent = [await outcome_of(orders.pay.execute(number)) for _ in range(3)]
    (close,) = await orders.store.find("orders.close", NUMBER)

    assert [OutcomeUnknownError] * 3 == [type(each) for each in sent]
    assert (True, 4) == (close.queued, orders.received("/payment/closeorder"))


async def test_close_is_sent_again_after_a_late_place_has_ended(orders: Orders) -> None:
    """If a second place never arrived, a close in doubt is sent again, although no reconciler asked about it."""
    orders.says |= {"/payment/unifiedorder": LOST, "/payment/orderquery": ABSENT}
    await orders.called(PLACE)
    await orders.called(CLOSE)
    (place,) = await orders.store.find("orders.place", NUMBER)
    await orders.store.resolve(place.id, as_="rejected", reason="it never arrived")
    again = await orders.called(CLOSE)

    assert ("closed", 1) == (again.state, again.attempts)


async def test_close_beside_a_place_in_flight_is_no_close_of_it(orders: Orders) -> None:
    """While a second place is being sent, "closed" is of the first order, however long ago that sending began."""
    after = Event()
    orders.says |= {"/payment/unifiedorder": order("PENDING", after), "/payment/orderquery": ABSENT}
    placing = asyncio.create_task(orders.called(PLACE))
    await until(lambda: orders.received("/payment/unifiedorder") > 1)
    orders.clock.advance(QUARANTINE + 1)
    close = await orders.called(CLOSE)
    after.set()
    await placing

    assert isinstance(close, OutcomeUnknownError)


async def test_close_that_was_stored_before_its_order_is_sent_again(store: Journal, clock: Clock) -> None:
    """A recorded close of an order that the journal never stored is no close of the order that is placed after it."""
    async with ordering(store, clock) as orders:
        first = await orders.called(CLOSE)
        await orders.called(PLACE)
        again = await orders.called(CLOSE)

    assert [("closed", 1), ("closed", 1)] == [(each.state, each.attempts) for each in (first, again)]


async def test_notification_ends_no_close_that_was_stored_before_its_order(store: Journal, clock: Clock) -> None:
    """A close in doubt that was stored before its order is ended by no notification: that may be of an order before."""
    async with ordering(store, clock) as orders:
        orders.says |= {"/payment/closeorder": LOST, "/payment/orderquery": order("PENDING")}
        await orders.called(CLOSE)
        (close,) = await store.find("orders.close", NUMBER)
        await orders.called(PLACE)
        await orders.called(CLOSE)
        told = await store.told("orders.close", NUMBER, "closed", {}, merchant="M1")
        (after,) = await store.find("orders.close", NUMBER)

    assert ("unknown", [], "unknown") == (close.state, told, after.state)


async def test_notification_ends_no_queued_close_of_an_order_that_was_placed_again(orders: Orders) -> None:
    """A notification may be about the first order: it does not end a queued close of the second one."""
    await orders.called(PLACE)
    await orders.store.add(CLOSE, merchant="M1")
    told = await orders.store.told("orders.close", NUMBER, "closed", {}, merchant="M1")
    (close,) = await orders.store.find("orders.close", NUMBER)

    assert ([], "new") == (told, close.state)


async def test_place_that_payasync_repeats_keeps_the_close_after_it(store: Journal, clock: Clock) -> None:
    """If place and close were lost and the place is sent again, a queued close is sent again, too."""
    async with ordering(store, clock) as orders:
        orders.says |= {"/payment/unifiedorder": LOST, "/payment/closeorder": LOST, "/payment/orderquery": ABSENT}
        for request in (PLACE, CLOSE):
            await outcome_of(orders.pay.execute(await store.add(request, merchant="M1")))
        before = orders.received("/payment/closeorder")
        orders.says |= {"/payment/unifiedorder": order("PENDING"), "/payment/closeorder": order("CLOSED")}
        reconciler = Reconciler(orders.pay, store, concurrency=1, pace=Pace(clock=clock))  # the place comes first
        for _ in range(3):
            clock.advance(QUARANTINE + 1)
            await reconciler.run_once()
        (close,) = await store.find("orders.close", NUMBER)

    assert "succeeded" == close.state
    assert before < orders.received("/payment/closeorder")


async def test_new_place_ends_a_manual_close_of_before(store: Journal, clock: Clock) -> None:
    """If a person had to end a close, and its order is placed again, the next close is sent."""
    async with ordering(store, clock, evolve(SAYS, recovery=Recovery())) as orders:
        await orders.called(PLACE)
        await orders.reconciled()
        orders.says["/payment/unifiedorder"] = LOST
        await orders.called(PLACE)
        await orders.called(CLOSE)
        manual = [await orders.reconciled(86_401) for _ in range(2)][-1]
        (place,) = await store.find("orders.place", NUMBER)
        await store.resolve(place.id, as_="rejected", reason="it never arrived")
        orders.says["/payment/unifiedorder"] = order("PENDING")
        await orders.called(PLACE)
        again = await orders.called(CLOSE)

    assert {"orders.place": "manual", "orders.close": "manual"} == manual
    assert ("closed", 1) == (again.state, again.attempts)


async def test_close_is_in_doubt_if_the_journal_does_not_say_what_was_placed(orders: Orders) -> None:
    """If the journal fails after a close, the caller is told that the outcome is unknown, and gets the response."""
    after = Event()
    orders.says["/payment/closeorder"] = order("CLOSED", after)
    await orders.called(PLACE)
    closing = asyncio.create_task(orders.called(CLOSE))
    await until(lambda: orders.received("/payment/closeorder") > 1)
    await orders.store.aclose()
    after.set()
    close = await closing

    assert isinstance(close, OutcomeUnknownError)
    assert close.response is not None


async def test_close_that_is_sent_again_has_a_new_key(store: Journal, clock: Clock) -> None:
    """A close that is sent again beside a late place has a new idempotency key, or it would get the old response."""
    async with ordering(store, clock, KEYED) as orders:
        await orders.called(PLACE)
        await orders.called(CLOSE)
        await orders.reconciled(QUARANTINE)
        orders.says |= {"/payment/unifiedorder": LOST, "/payment/orderquery": ABSENT}
        await orders.called(PLACE)
        for _ in range(3):
            await orders.called(CLOSE)

    assert 4 == len(set(orders.keys("/payment/closeorder")))


async def test_place_during_a_close_ends_the_record_of_that_close(orders: Orders, store: Journal) -> None:
    """If an order is placed again while a close is in flight, the next close is sent, too."""
    await orders.called(PLACE)
    orders.says["/payment/orderquery"] = order("CLOSED")
    await orders.reconciled(QUARANTINE)
    after = Event()
    orders.says["/payment/closeorder"] = order("CLOSED", after)
    closing = asyncio.create_task(orders.called(CLOSE))
    await until(lambda: orders.received("/payment/closeorder") > 1)
    await orders.called(PLACE)
    after.set()
    first, again = await closing, await orders.called(CLOSE)
    (place,) = await store.find("orders.place", NUMBER)

    assert ("accepted", [1, 1]) == (place.state, [each.attempts for each in (first, again)])


async def test_quarantine_of_a_lost_close_begins_when_a_slow_place_ends(orders: Orders, clock: Clock) -> None:
    """If a second place ends later than a lost close, "closed" counts after the quarantine since that place."""
    after = Event()
    orders.says |= {"/payment/unifiedorder": replace(LOST, after=after), "/payment/closeorder": LOST}
    placing = asyncio.create_task(orders.called(PLACE))
    await until(lambda: orders.received("/payment/unifiedorder") > 1)
    await orders.called(CLOSE)
    clock.advance(QUARANTINE - 20)
    after.set()
    await placing
    early, late = await orders.reconciled(20), await orders.reconciled(QUARANTINE - 20)

    assert ["unknown", "succeeded"] == [each["orders.close"] for each in (early, late)]


async def test_refused_close_stays_refused_after_a_new_place(orders: Orders) -> None:
    """If an order is placed again, a close that was refused changes nothing: the next close is sent anyway."""
    await orders.called(PLACE)
    orders.says |= {"/payment/closeorder": REFUSED, "/payment/orderquery": order("CLOSED")}
    await orders.called(CLOSE)
    (refused,) = await orders.store.find("orders.close", NUMBER)
    await orders.reconciled(QUARANTINE)
    await orders.called(PLACE)

    assert [refused] == await orders.store.find("orders.close", NUMBER)


async def test_close_that_is_queued_after_a_new_place_waits_for_a_worker(orders: Orders) -> None:
    """If an order is placed again, a close that is added then is *new*, so that a search for unsent writes finds it."""
    await orders.called(PLACE)
    await orders.store.add(CLOSE, merchant="M1")
    (close,) = await orders.store.find("orders.close", NUMBER)

    assert ("new", True) == (close.state, close.queued)


async def test_payment_that_is_repeated_is_asked_about_by_its_own_number(store: Journal, clock: Clock) -> None:
    """A payment that is repeated under `intent=` has a number of its own, so that "failed" is about this payment."""
    payments = [answer(200, b'{"code":"SBX_OK","paymentId":"P%d","status":"SBX_PENDING"}' % each) for each in (1, 2)]
    failed = [answer(200, b'{"code":"SBX_OK","paymentId":"P%d","status":"SBX_FAILED"}' % each) for each in (1, 2)]
    states = list[str]()
    says = {"/v1/payments": payments[0]}
    with Recorder(by_path=says) as recorder:
        async with session(recorder, SAYS, journal=store, retry=QUICK) as pay:
            for says["/v1/payments"], says["/payment/status"] in zip(payments, failed, strict=True):
                await pay.payments.create(amount=450, currency="CAD", intent="invoice-42")
                await Reconciler(pay, store, pace=Pace(clock=clock)).run_once()
                states += [each.state for each in await store.list()]

    assert ["rejected", "rejected"] == states
