"""If the service says "this number was used before", the journal queries the write and does not send it again."""

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event
from typing import Final

import pytest
from attrs import evolve

from payasync import CloseOrder, DuplicateError, OutcomeUnknownError, PlaceOrder, Recovery, RefundResponse
from payasync.clocks import Pace
from payasync.journal import Journal, Reconciler, SqliteJournal
from payasync.journal.intents import Intent, State
from payasync.session import Unknown
from tests.foreign.recorder import SILENT, Answer, Recorder, answer
from tests.inside import until
from tests.journal.building import LEASE, Clock, draft
from tests.journal.service import ABSENT, LOST, QUARANTINE, QUICK, REFUND, SAYS, USED, Service, said, serving
from tests.matrix.cells import session

HOUR: Final = 3600.0
USED_BODY: Final = b'{"code":"SBX_DUPLICATE"}'
ABSENT_BODY: Final = b'{"code":"SBX_NOT_FOUND"}'
FAILS: Final = """
CREATE TRIGGER fails BEFORE UPDATE OF answered ON payasync_intents WHEN NEW.state = 'sending' AND NEW.answered
BEGIN SELECT RAISE(ABORT, 'disk I/O error'); END"""
FAILS_AT_ANY_END: Final = """
CREATE TRIGGER fails BEFORE UPDATE ON payasync_intents WHEN NEW.state <> 'sending' OR NEW.answered
BEGIN SELECT RAISE(ABORT, 'disk I/O error'); END"""
INVALID: Final = answer(400, b'{"code":"SBX_INVALID"}')


async def asked_in_vain(service: Service) -> list[Intent]:
    """Reconcile for half a day, and return the intent at first and after each run."""
    return [await service.kept(), *[await service.reconciled(HOUR) for _ in range(12)]]


def check_never_believed(found: list[Intent]) -> None:
    """Check that a write with a used number, which the service never finds, becomes *manual* in the end."""
    states = [each.state for each in found]
    unknown = states.count("unknown")

    assert ["unknown"] * unknown + ["manual"] * (len(found) - unknown) == states
    assert 7 <= unknown < len(found)
    assert all(each.answered for each in found[:unknown])
    assert "the service does not know it; and it said before that the number was used" in found[-1].reason


@pytest.mark.parametrize("queued", [False, True])
async def test_first_send(store: Journal, clock: Clock, *, queued: bool) -> None:
    """The caller learns that the number was used. A later "not found" neither rejects the write nor sends it again."""
    async with serving(store, clock, USED) as service:
        told = await service.called(queued=queued)
        found = await asked_in_vain(service)
        again = await service.called(queued=queued)
        sends = service.sends

    check_never_believed(found)
    assert (DuplicateError, OutcomeUnknownError, 1) == (type(told), type(again), sends)


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize(
    ("query", "state", "reason"),
    [
        (said("PROCESSING"), "accepted", ""),
        (said("SUCCEEDED"), "succeeded", ""),
        (said("SUCCEEDED", refundAmt=199), "manual", "refundAmt is 199 in the response, and 200 in the request"),
        (answer(200, b'{"code":"SBX_OK","status":"SBX_SUCCEEDED"}'), "manual", "without a number and an amount"),
    ],
)
async def test_first_send_that_is_found(
    store: Journal, clock: Clock, query: Answer, state: str, reason: str, *, queued: bool
) -> None:
    """If a query finds the refund with its amount, the write ends. If the response says too little, it is *manual*."""
    async with serving(store, clock, USED, query) as service:
        await service.called(queued=queued)
        ended = await store.told("refunds.create", "R1", "succeeded", {"outRefundNo": "R1"}, merchant="M1")
        found = await service.reconciled()
        again = await service.called(queued=queued)
        sends = service.sends

    assert ([], state, 1) == (ended, found.state, sends)
    assert reason in found.reason
    assert (OutcomeUnknownError if state == "manual" else RefundResponse) is type(again)


ORDER: Final = PlaceOrder(out_trade_no="T1", total_amt=450, currency="CAD")
CLOSE: Final = CloseOrder(out_trade_no="T1")


def order(state: str, **others: object) -> Answer:
    """Return a response about the order."""
    return answer(200, json.dumps({"code": "SBX_OK", "status": f"SBX_{state}", "outTradeNo": "T1", **others}).encode())


@pytest.mark.parametrize(
    ("write", "query", "state"),
    [
        (ORDER, order("PENDING", totalAmt=450), "accepted"),
        (ORDER, order("PAID", totalAmt=450), "succeeded"),
        (ORDER, order("PAID", totalAmt=451), "manual"),
        (ORDER, order("PAID"), "manual"),
        (ORDER, ABSENT, "unknown"),
        (CLOSE, order("CLOSED"), "succeeded"),
        (CLOSE, order("PAID"), "rejected"),
        (CLOSE, order("PENDING"), "unknown"),
        (CLOSE, order("CLOSED", outTradeNo="T9"), "unknown"),
    ],
)
async def test_order(store: Journal, clock: Clock, write: PlaceOrder | CloseOrder, query: Answer, state: str) -> None:
    """An order is this one by its number and amount; its state shows whether it was closed. Nothing is sent again."""
    says = {"/payment/unifiedorder": USED, "/payment/closeorder": USED, "/payment/orderquery": query}
    with Recorder(by_path=says) as recorder:
        async with session(recorder, SAYS, journal=store, retry=QUICK) as pay:
            with pytest.raises(DuplicateError):
                await pay.send(write)
            (before,) = await store.list()
            clock.advance(HOUR)
            await Reconciler(pay, store, pace=Pace(clock=clock)).run_once()
            (found,) = await store.list()

    assert (("unknown", True), state) == ((before.state, before.answered), found.state)
    assert 1 == sum(each.path != "/payment/orderquery" for each in recorder.requests)


async def never_arrived(service: Service) -> None:
    """Lose a first send, and reconcile after the quarantine: the service does not know it."""
    told = await service.called()

    assert isinstance(told, OutcomeUnknownError)
    assert "rejected" == (await service.reconciled(QUARANTINE)).state


async def crashed(service: Service) -> None:
    """Let the process of a first send die, and reconcile after the quarantine: the service does not know it."""
    await service.journal.begin(evolve(draft(REFUND), queued=False), LEASE)

    assert "unknown" == (await service.reconciled(LEASE)).state
    assert "rejected" == (await service.reconciled(QUARANTINE)).state


async def rejected_by_a_person(service: Service) -> None:
    """Lose a first send, and have a person say that it was not done."""
    await service.called()
    await service.journal.resolve((await service.kept()).id, as_="rejected", reason="not on the bank's list")


EARLIER: Final = [never_arrived, crashed, rejected_by_a_person]
Earlier = Callable[[Service], Awaitable[object]]


@pytest.mark.parametrize("earlier", EARLIER)
async def test_second_send(store: Journal, clock: Clock, earlier: Earlier) -> None:
    """If the service calls a resend's number used, the session queries the write, and the caller gets its result."""
    async with serving(store, clock, LOST) as service:
        await earlier(service)
        began = service.sends
        service.say(USED, said("SUCCEEDED"))
        told = await service.called()
        found, sends = await service.kept(), service.sends - began

    assert isinstance(told, RefundResponse)
    assert (True, "succeeded", 1) == (told.recovered, found.state, sends)


@pytest.mark.parametrize(
    ("earlier", "query"),
    [
        *((each, ABSENT) for each in EARLIER),
        (never_arrived, said("REFUND_FAILED")),
        (never_arrived, said("SUCCEEDED", refundAmt=199)),
    ],
)
async def test_second_send_that_is_absent(store: Journal, clock: Clock, earlier: Earlier, query: Answer) -> None:
    """If a resend's number was used before, "not found" and "failed" leave the write unknown, without a third send.

    The failure, or another amount, may be the first send's.
    """
    async with serving(store, clock, LOST) as service:
        await earlier(service)
        began = service.sends
        service.say(USED, query)
        told = await service.called()
        service.say(query=ABSENT)
        found = await asked_in_vain(service)
        again = await service.called()
        sends = service.sends - began

    check_never_believed(found)
    assert isinstance(told, OutcomeUnknownError)
    assert (True, OutcomeUnknownError, 1) == (told.used_before, type(again), sends)


@pytest.mark.parametrize("queued", [False, True])
async def test_second_send_whose_process_dies(store: Journal, clock: Clock, *, queued: bool) -> None:
    """The journal stores "used before" ahead of the query, so that a later reconciler does not believe "not found"."""
    async with serving(store, clock, LOST) as service:
        await never_arrived(service)
        began, before = service.sends, service.questions
        service.say(USED, SILENT)
        sending = asyncio.create_task(service.called(queued=queued))
        await until(lambda: service.questions > before)
        left = await service.kept()
        service.say(query=ABSENT)
        await service.reconciled(HOUR)
        found = await asked_in_vain(service)
        sends = service.sends - began
        sending.cancel()
        await asyncio.wait({sending})

    check_never_believed(found)
    assert ("sending", True, 1) == (left.state, left.answered, sends)


async def test_second_send_that_is_lost_within_the_call(store: Journal, clock: Clock) -> None:
    """If one call's retry gets "used before", the call does not believe "not found", even after the quarantine."""
    says = evolve(SAYS, recovery=Recovery(quarantine=0.0))
    async with serving(store, clock, LOST, says=says) as service:
        first, second = Event(), Event()
        service.say(query=answer(404, ABSENT_BODY, after=first))
        sending = asyncio.create_task(service.called())
        await until(lambda: service.questions == 1)
        service.say(USED, answer(404, ABSENT_BODY, after=second))
        first.set()
        await until(lambda: service.questions == 2)
        before = await service.kept()
        second.set()
        told = await sending
        found, sends = await service.kept(), service.sends

    assert ("sending", True) == (before.state, before.answered)
    assert (OutcomeUnknownError, "unknown", True, 2) == (type(told), found.state, found.answered, sends)


async def test_disk_that_fails_as_the_number_is_called_used(
    journal: SqliteJournal, clock: Clock, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the journal cannot store "used before", the call ends. It neither sends nor queries anything more."""
    async with serving(journal, clock, LOST) as service:
        await never_arrived(service)
        began, before = service.sends, service.questions
        with closing(sqlite3.connect(path)) as db:
            db.execute(FAILS)
        service.say(USED, said("SUCCEEDED"))
        told = await service.called()
        found = await service.kept()
        sends, questions = service.sends - began, service.questions - before

    assert isinstance(told, OutcomeUnknownError)
    assert (True, 1, 0) == (told.used_before, sends, questions)
    assert ("unknown", True) == (found.state, found.answered)
    assert "the journal could not store that the number of intent 1 was used before" in caplog.text


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("at_once", [True, False])
async def test_disk_that_fails_for_a_while(
    journal: SqliteJournal, clock: Clock, path: Path, *, first: bool, at_once: bool
) -> None:
    """If the disk fails for a while, the journal stores "used before" later. "Not found" never rejects the write."""
    async with serving(journal, clock, LOST) as service:
        if not first:
            await never_arrived(service)
        await journal.list()
        with closing(sqlite3.connect(path, timeout=5)) as db:
            db.execute(FAILS_AT_ANY_END)
            service.say(USED)
            await service.called()
            before = await service.kept()
            db.execute("DROP TRIGGER fails")
        async with asyncio.timeout(30):
            while not at_once and not (await service.kept()).answered:
                pass
        found = await asked_in_vain(service)
        sends = service.sends

    assert ("sending", False) == (before.state, before.answered)
    assert "rejected" not in {each.state for each in found}
    assert ("manual", 1 if first else 2) == (found[-1].state, sends)


async def test_journal_that_is_closed_meanwhile(
    journal: SqliteJournal, clock: Clock, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the journal is closed before it can store "used before", no task is left, and a warning is logged."""
    async with serving(journal, clock, USED) as service:
        await journal.list()
        with closing(sqlite3.connect(path, timeout=5)) as db:
            db.execute(FAILS_AT_ANY_END)
        await service.called()
    await journal.aclose()
    await until(lambda: len(asyncio.all_tasks()) == 1)

    assert "the journal could not store that the number of intent 1 was used before" in caplog.text


@pytest.mark.parametrize(
    ("before", "how", "expected"),
    [
        (None, Service.called, DuplicateError),
        (None, partial(Service.called, queued=True), DuplicateError),
        (never_arrived, Service.called, OutcomeUnknownError),
        (partial(Service.called, queued=True), partial(Service.reconciled, after=QUARANTINE), Intent),
    ],
    ids=["first", "queued", "second", "sent again"],
)
async def test_sender_that_is_too_late(
    store: Journal, clock: Clock, before: Earlier | None, how: Earlier, expected: type[object]
) -> None:
    """If another process has leased the write, "used before" is recorded all the same."""
    used = Event()
    async with serving(store, clock, LOST) as service:
        if before:
            await before(service)
        began = service.sends
        service.say(answer(409, USED_BODY, after=used))
        sending = asyncio.ensure_future(how(service))
        await until(lambda: service.sends > began)
        assert "unknown" == (await service.reconciled(HOUR)).state
        used.set()
        told = await sending
        found = await asked_in_vain(service)
        sends = service.sends - began

    check_never_believed(found)
    assert (expected, 1) == (type(told), sends)
    assert not isinstance(told, OutcomeUnknownError) or told.used_before


@pytest.mark.parametrize("queued", [False, True])
async def test_who_asked_before_the_number_was_called_used(store: Journal, clock: Clock, *, queued: bool) -> None:
    """If "used before" arrives during a reconciler's query, its "not found" neither rejects nor resends the write."""
    used, absent = Event(), Event()
    async with serving(store, clock, answer(409, USED_BODY, after=used)) as service:
        sending = asyncio.create_task(service.called(queued=queued))
        await until(lambda: service.sends == 1)
        clock.advance(HOUR)
        await service.reconciled()
        service.say(query=answer(404, ABSENT_BODY, after=absent))
        asking = asyncio.create_task(service.reconciled(HOUR))
        await until(lambda: service.questions == 2)
        used.set()
        await sending
        absent.set()
        before = await asking
        found, sends = await asked_in_vain(service), service.sends

    assert ("unknown", True, 1) == (before.state, before.answered, sends)
    assert {"unknown", "manual"} == {each.state for each in found}


@pytest.mark.parametrize(
    ("end", "noted"), [("accepted", False), ("succeeded", False), ("rejected", True), ("new", True), ("manual", True)]
)
async def test_used_after_the_end_is_known(store: Journal, clock: Clock, end: State, *, noted: bool) -> None:
    """If a write was accepted or succeeded, `note_used` changes nothing. Otherwise the journal stores it."""
    begun = await store.begin(draft(REFUND), LEASE)
    clock.advance(LEASE)
    (held,) = await store.ask(1, LEASE)
    await store.settle(held, "rejected" if end == "new" else end)
    if end == "new":
        await store.add(REFUND, merchant=held.merchant)

    assert noted == await store.note_used(begun.intent)
    (found,) = await store.list()
    again = await store.begin(draft(REFUND), LEASE)
    assert (end, noted, noted) == (found.state, found.answered, again.intent.answered)


@pytest.mark.parametrize("state", ["unknown", "rejected"])
async def test_used_while_it_is_sent_again(store: Journal, state: State) -> None:
    """If a resend is unknown, "used before" about the earlier send stays stored. A refusal of the resend clears it."""
    begun = await store.begin(draft(REFUND), LEASE)
    await store.settle(begun.intent, "rejected")
    again = await store.begin(draft(REFUND), LEASE)

    noted = await store.note_used(begun.intent)
    held = await store.settle(again.intent, state)
    (found,) = await store.list()

    assert (True, True) == (noted, held)
    assert (state, state == "unknown") == (found.state, found.answered)


async def test_queued_send(store: Journal, clock: Clock) -> None:
    """If the reconciler's resend gets "used before", the reconciler queries the write, and a match ends it."""
    async with serving(store, clock, LOST) as service:
        await service.called(queued=True)
        service.say(USED)
        before = await service.reconciled(QUARANTINE)
        service.say(query=said("SUCCEEDED"))
        found = await service.reconciled(HOUR)
        sends = service.sends

    assert ("unknown", True, "succeeded", 2) == (before.state, before.answered, found.state, sends)


async def test_send_after_one_that_was_refused(store: Journal, clock: Clock) -> None:
    """If the service refused the first send, "used before" on the second one raises `DuplicateError`."""
    async with serving(store, clock, INVALID) as service:
        await service.called()
        before = await service.kept()
        service.say(USED)
        told = await service.called()
        found = await service.kept()

    assert ("rejected", DuplicateError, "unknown") == (before.state, type(told), found.state)


async def test_bulk_calls_it_unknown(store: Journal, clock: Clock) -> None:
    """If a bulk's write gets "used before", its result is `Unknown`, because an earlier run may have done it."""
    async with serving(store, clock, USED, ABSENT) as service:
        (result,) = [each async for each in service.pay.bulk([REFUND])]
        found = await service.kept()

    assert isinstance(result, Unknown)
    assert isinstance(result.error, DuplicateError)
    assert ("the number was used before", "unknown") == (result.reason, found.state)


async def test_second_send_that_is_cancelled(store: Journal, clock: Clock) -> None:
    """If a call is cancelled after "used before", the journal has that stored."""
    async with serving(store, clock, LOST) as service:
        await never_arrived(service)
        before = service.questions
        service.say(USED, SILENT)
        sending = asyncio.create_task(service.called())
        await until(lambda: service.questions > before)
        sending.cancel()
        await asyncio.wait({sending})
        kept = [await service.kept() for _ in range(100)]

    assert ("unknown", True) == (kept[-1].state, kept[-1].answered)
