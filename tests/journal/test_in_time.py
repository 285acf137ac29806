"""A number that was sent more than once: what the service says of it may be of an earlier send."""

from collections.abc import AsyncIterator
from dataclasses import replace
from threading import Event
from typing import Final

import pytest
from attrs import evolve

from payasync import OutcomeUnknownError, ServiceError
from payasync.clocks import Pace
from payasync.journal import Journal, Reconciler
from payasync.profile.schema import Idempotency
from tests.foreign.recorder import Answer, Recorder, answer
from tests.journal.building import Clock
from tests.journal.conftest import both_stores
from tests.journal.service import (
    ABSENT,
    CLOSE,
    CLOSED,
    LOST,
    PLACE,
    QUARANTINE,
    QUICK,
    SAYS,
    USED,
    Service,
    order,
    said,
    serving,
)
from tests.matrix.cells import session

FAILED: Final = said("REFUND_FAILED")
PROCESSING: Final = said("PROCESSING")
REFUSED: Final = answer(400, b'{"code":"SBX_INVALID"}')
TOO_MANY: Final = answer(429, b'{"code":"SBX_RATE_LIMITED"}')
KEYED: Final = evolve(SAYS, idempotency=Idempotency(header="Idempotency-Key", lifetime=86_400))
CLOSING: Final = "orders.close"


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
    reported = await repeated.journal.told("refunds.create", "R1", "failed", {}, merchant="M1")
    late = await repeated.reconciled(1)

    assert ("accepted", [], "rejected") == (early.state, reported, late.state)
    assert "perhaps of an earlier send" in early.reason
    assert 2 == repeated.sends


@pytest.mark.parametrize(
    ("write", "query", "states"),
    [
        (LOST, FAILED, ["unknown", "unknown", "rejected"]),
        (LOST, PROCESSING, ["unknown", "unknown", "accepted"]),
        (LOST, said("SUCCEEDED"), ["succeeded"] * 3),
        (USED, FAILED, ["unknown", "unknown", "rejected"]),
    ],
)
async def test_lost_repeat_is_not_ended_by_the_earlier_send(
    repeated: Service, write: Answer, query: Answer, states: list[str]
) -> None:
    """If the response to a repeat is lost or "used before", only "succeeded" decides before the quarantine is over."""
    repeated.say(write, query)
    ended = await repeated.called()
    found = [await repeated.kept(), *[await repeated.reconciled(after) for after in (QUARANTINE - 1, 1)]]

    assert states == [each.state for each in found]
    if found[0].state == "succeeded":
        assert ("succeeded", True) == (ended.state, ended.recovered)
    else:
        assert isinstance(ended, OutcomeUnknownError)
        assert ended.response is not None
        assert "perhaps of an earlier send" in str(ended)


@pytest.mark.parametrize("first", [REFUSED, TOO_MANY])
async def test_send_without_effect_is_not_counted(store: Journal, clock: Clock, first: Answer) -> None:
    """After a refusal, or a 429 before execution, there is one send: "failed" is about it, and counts immediately."""
    http = evolve(SAYS.http, rate_limit_precedes_execution=True, uncoded=(*SAYS.http.uncoded, 429))
    async with serving(store, clock, first, says=evolve(SAYS, http=http)) as service:
        assert isinstance(await service.called(), ServiceError)

        service.say(PROCESSING, FAILED)
        await service.called()
        ended = await service.reconciled()

    assert ("rejected", 2, 1) == (ended.state, ended.attempts, ended.sends)
    assert "the refund's state is failed" == ended.reason


async def test_cached_response_is_of_an_earlier_moment(store: Journal, clock: Clock) -> None:
    """The age of "not found" out of a cache delays the end of the quarantine. "Failed" counts only after the send."""
    async with serving(store, clock, LOST) as service:
        await service.called()
        for query, age in ((ABSENT, 60), (FAILED, 140)):
            service.say(query=replace(query, raw=query.raw.replace(b"\r\n", b"\r\nAge: %d\r\n" % age, 1)))
            found = await service.reconciled(QUARANTINE + 5)

            assert ("unknown", True) == (found.state, f"from a cache, {age} s old" in found.reason)


@pytest.fixture
async def orders(store: Journal, clock: Clock) -> AsyncIterator[Service]:
    """An order that was placed, and closed. A query shows that it is closed."""
    async with serving(store, clock, order("PENDING"), order("CLOSED"), close=order("CLOSED")) as service:
        await service.called(PLACE)
        await service.called(CLOSE)
        await service.reconciled(QUARANTINE)

        assert ["rejected", "succeeded"] == [each.state for each in await store.list()]

        clock.advance(1)
        yield service


@pytest.fixture
async def doubted(orders: Service) -> Service:
    """An order whose second place is in doubt: its response is lost, and no query finds it."""
    orders.say(LOST, ABSENT)
    await orders.called(PLACE)
    return orders


async def test_close_is_sent_again_after_a_new_place(orders: Service) -> None:
    """A recorded close is no close of an order that was placed again since. Otherwise the record is the response."""
    recorded, before = await orders.called(CLOSE), orders.received(CLOSED)
    await orders.called(PLACE)
    closed = await orders.called(CLOSE)

    assert ("closed", 0, 1) == (recorded.state, recorded.attempts, before)
    assert ("closed", 1, 2) == (closed.state, closed.attempts, orders.received(CLOSED))


async def test_earlier_close_is_no_close_of_the_order_that_was_placed_again(orders: Service) -> None:
    """After a second place, "closed" ends a close whose response was lost after the quarantine, and not before."""
    orders.say(close=USED)
    await orders.called(PLACE)
    ended = await orders.called(CLOSE)
    await orders.reconciled(QUARANTINE - 1)
    early = await orders.kept(CLOSING)
    reported = await orders.journal.told(CLOSING, "T1", "closed", {}, merchant="M1")
    await orders.reconciled(1)

    assert isinstance(ended, OutcomeUnknownError)
    assert ("unknown", [], "succeeded") == (early.state, reported, (await orders.kept(CLOSING)).state)


@both_stores
@pytest.mark.parametrize("manual", [False, True])
async def test_close_of_before_ends_with_a_new_place(orders: Service, *, manual: bool) -> None:
    """If an order is placed again, an unknown or manual close of before counts no more: the next close is sent."""
    orders.say(close=LOST)
    await orders.called(PLACE)
    lost = await orders.called(CLOSE)
    for held in await orders.journal.ask(2, 60.0) if manual else ():
        await orders.journal.settle(held, "manual" if held.operation == CLOSING else "rejected")
    before = await orders.kept(CLOSING)
    await orders.reconciled(QUARANTINE)
    orders.say(close=order("CLOSED"))
    await orders.called(PLACE)
    after, closed = await orders.kept(CLOSING), await orders.called(CLOSE)

    assert (OutcomeUnknownError, "manual" if manual else "unknown") == (type(lost), before.state)
    assert ("rejected", 1) == (after.state, closed.attempts)


async def test_close_of_the_order_before_is_no_close_of_a_late_place(doubted: Service) -> None:
    """If the response to a second place is lost, "closed" may be of the first order: each close stays unknown.

    A close moves no money, so the next close is sent, also by a worker. If the second order arrives late, the caller is
    told.
    """
    before = doubted.received(CLOSED)
    ends = [await doubted.called(CLOSE, queued=queued) for queued in (False, False, True, True)]
    unknown = await doubted.kept(CLOSING)
    doubted.say(query=order("PENDING"), close=LOST)
    await doubted.reconciled(QUARANTINE + 1)

    assert [(OutcomeUnknownError, 1)] * 4 == [(type(each), each.attempts) for each in ends]
    assert "placed again" in str(ends[0])
    assert ("unknown", True) == (unknown.state, unknown.queued)
    assert before + 4 <= doubted.received(CLOSED)
    assert "accepted" == (await doubted.kept("orders.place")).state


async def test_close_is_sent_again_after_a_late_place_has_ended(doubted: Service) -> None:
    """If a second place never arrived, a close in doubt is sent again, although no reconciler asked about it."""
    await doubted.called(CLOSE)
    await doubted.journal.resolve((await doubted.kept("orders.place")).id, as_="rejected", reason="it never arrived")
    again = await doubted.called(CLOSE)

    assert ("closed", 1) == (again.state, again.attempts)


@pytest.mark.parametrize("refusal", [order("PAID"), REFUSED])
@pytest.mark.parametrize("queued", [False, True])
async def test_refusal_of_a_close_beside_a_late_place_counts(
    doubted: Service, refusal: Answer, *, queued: bool
) -> None:
    """If a close in doubt is sent again and refused, it is rejected, and its caller may send it again."""
    await doubted.called(CLOSE, queued=queued)
    doubted.say(close=refusal)
    await doubted.called(CLOSE, queued=queued)

    assert "rejected" == (await doubted.kept(CLOSING)).state


@pytest.mark.parametrize("first", [PLACE, CLOSE], ids=["place", "close"])
async def test_close_beside_a_place_in_flight_is_no_close_of_it(orders: Service, first: object) -> None:
    """If a second place is in flight when a close begins, however long, "closed" may be of the first order."""
    placed, closed = Event(), Event()
    orders.say(order("PENDING", placed), ABSENT, close=order("CLOSED", closed))
    placing = await orders.begun(PLACE)
    orders.clock.advance(0 if first is PLACE else QUARANTINE + 1)
    closing = await orders.begun(CLOSE)
    orders.clock.advance(1)
    if first is PLACE:
        placed.set()
        await placing
    closed.set()
    close = await closing
    placed.set()
    await placing

    assert isinstance(close, OutcomeUnknownError)


async def test_close_that_was_stored_before_its_order_is_of_an_order_before(store: Journal, clock: Clock) -> None:
    """A close of an order that the journal never stored is no close of the order that is placed after it."""
    async with serving(store, clock, order("PENDING"), order("CLOSED"), close=order("CLOSED")) as orders:
        ends = [await orders.called(request) for request in (CLOSE, PLACE, CLOSE)]
        orders.say(query=order("PENDING"), close=LOST)
        await orders.called(PLACE)
        await orders.called(CLOSE)
        reported = await store.told(CLOSING, "T1", "closed", {}, merchant="M1")

    assert [("closed", 1), ("closed", 1)] == [(each.state, each.attempts) for each in ends[::2]]
    assert ([], "unknown") == (reported, (await orders.kept(CLOSING)).state)


async def test_notification_ends_no_queued_close_of_an_order_that_was_placed_again(orders: Service) -> None:
    """A notification may be about the first order: it does not end a queued close of the second one, which is *new*."""
    await orders.called(PLACE)
    await orders.journal.add(CLOSE, merchant="M1")
    reported = await orders.journal.told(CLOSING, "T1", "closed", {}, merchant="M1")
    close = await orders.kept(CLOSING)

    assert ([], "new", True) == (reported, close.state, close.queued)


async def test_place_that_payasync_repeats_is_closed_afterwards(store: Journal, clock: Clock) -> None:
    """If place and close were lost and the place is sent again, a queued close is sent again, too."""
    async with serving(store, clock, LOST) as orders:
        for request in (PLACE, CLOSE):
            await orders.called(request, queued=True)
        before = orders.received(CLOSED)
        orders.say(order("PENDING"), close=order("CLOSED"))
        reconciler = Reconciler(orders.pay, store, concurrency=1, pace=Pace(clock=clock))  # the place comes first
        for _ in range(3):
            clock.advance(QUARANTINE + 1)
            await reconciler.run_once()

    assert "succeeded" == (await orders.kept(CLOSING)).state
    assert before < orders.received(CLOSED)


async def test_close_is_in_doubt_if_the_journal_does_not_say_what_was_placed(orders: Service) -> None:
    """If the journal fails after a close, the caller is told that the outcome is unknown, and gets the response."""
    after = Event()
    orders.say(close=order("CLOSED", after))
    await orders.called(PLACE)
    closing = await orders.begun(CLOSE)
    await orders.journal.aclose()
    after.set()
    close = await closing

    assert isinstance(close, OutcomeUnknownError)
    assert close.response is not None


async def test_close_that_is_sent_again_has_a_new_key(store: Journal, clock: Clock) -> None:
    """A close that is sent again beside a late place has a new idempotency key, or it would get the old response."""
    answers = (order("PENDING"), order("CLOSED"))
    async with serving(store, clock, *answers, close=order("CLOSED"), says=KEYED) as orders:
        await orders.called(PLACE)
        await orders.called(CLOSE)
        await orders.reconciled(QUARANTINE)
        orders.say(LOST, ABSENT)
        await orders.called(PLACE)
        for _ in range(3):
            await orders.called(CLOSE)
        keys = [tuple(each.header("Idempotency-Key")) for each in orders.recorder.requests if each.path == CLOSED]

    assert 4 == len(set(keys))


async def test_place_during_a_close_ends_the_record_of_that_close(orders: Service) -> None:
    """If an order is placed again while a close is in flight, the next close is sent, too."""
    await orders.called(PLACE)
    await orders.reconciled(QUARANTINE)
    after = Event()
    orders.say(close=order("CLOSED", after))
    closing = await orders.begun(CLOSE)
    await orders.called(PLACE)
    after.set()
    ends = [await closing, await orders.called(CLOSE)]

    assert ("accepted", [1, 1]) == ((await orders.kept("orders.place")).state, [each.attempts for each in ends])


async def test_quarantine_of_a_lost_close_begins_when_a_slow_place_ends(orders: Service) -> None:
    """If a second place ends later than a lost close, "closed" counts after the quarantine since that place."""
    after, states = Event(), list[str]()
    orders.say(replace(LOST, after=after), close=LOST)
    placing = await orders.begun(PLACE)
    await orders.called(CLOSE)
    orders.clock.advance(QUARANTINE - 20)
    after.set()
    await placing
    for seconds in (20, QUARANTINE - 20):
        await orders.reconciled(seconds)
        states.append((await orders.kept(CLOSING)).state)

    assert ["unknown", "succeeded"] == states


async def test_payment_that_is_repeated_is_asked_about_by_its_own_number(store: Journal, clock: Clock) -> None:
    """A payment that is repeated under `intent=` has a number of its own, so that "failed" is about this payment."""
    states, says = list[str](), {"/v1/payments": LOST}
    with Recorder(by_path=says) as recorder:
        async with session(recorder, SAYS, journal=store, retry=QUICK) as pay:
            for number in (1, 2):
                for path, state in (("/v1/payments", "PENDING"), ("/payment/status", "FAILED")):
                    says[path] = answer(
                        200, b'{"code":"SBX_OK","paymentId":"P%d","status":"SBX_%b"}' % (number, state.encode())
                    )
                await pay.payments.create(amount=450, currency="CAD", intent="invoice-42")
                await Reconciler(pay, store, pace=Pace(clock=clock)).run_once()
                states += [each.state for each in await store.list()]

    assert ["rejected", "rejected"] == states
