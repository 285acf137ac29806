"""If the service says "this number was used before", the journal queries the write and does not send it again."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Final

import pytest
from attrs import evolve

from payasync import DuplicateError, OutcomeUnknownError, Recovery, RefundResponse, Response
from payasync.journal import Journal, SqliteJournal
from payasync.journal.intents import Intent, State
from payasync.wire.request import Request
from tests.foreign.recorder import SILENT, Answer, answer
from tests.inside import until
from tests.journal.building import LEASE, Clock, draft
from tests.journal.conftest import both_stores
from tests.journal.service import (
    ABSENT,
    CLOSE,
    LOST,
    PLACE,
    QUARANTINE,
    REFUND,
    SAYS,
    USED,
    Service,
    order,
    said,
    serving,
)

HOUR: Final = 3600.0
USED_BODY: Final = b'{"code":"SBX_DUPLICATE"}'
ABSENT_BODY: Final = b'{"code":"SBX_NOT_FOUND"}'
AT_ANY_END: Final = "NEW.state <> 'sending' OR NEW.answered"
NOT_STORED: Final = "the journal could not store that the number of intent 1 was used before"
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


@both_stores
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


@pytest.mark.parametrize(
    ("write", "query", "state", "reason"),
    [
        (REFUND, said("PROCESSING"), "accepted", ""),
        (REFUND, said("SUCCEEDED"), "succeeded", ""),
        (REFUND, said("SUCCEEDED", refundAmt=199), "manual", "refundAmt is 199 in the response, and 200 in the"),
        (REFUND, answer(200, b'{"code":"SBX_OK","status":"SBX_SUCCEEDED"}'), "manual", "without a number and an"),
        (PLACE, order("PENDING"), "accepted", ""),
        (PLACE, order("PAID", totalAmt=451), "manual", "totalAmt is 451 in the response, and 450 in the request"),
        (CLOSE, order("CLOSED"), "succeeded", ""),
        (CLOSE, order("PAID"), "rejected", ""),
        (CLOSE, order("PENDING"), "unknown", ""),
        (CLOSE, order("CLOSED", outTradeNo="T9"), "unknown", ""),
    ],
)
async def test_first_send_that_is_found(
    store: Journal, clock: Clock, write: Request[Any], *, query: Answer, state: str, reason: str
) -> None:
    """If a query finds the write with its amount, the write ends. If the response says too little, it is *manual*."""
    async with serving(store, clock, USED, query, request=write) as service:
        used = await service.called()
        before = await service.kept()
        ended = await store.told("refunds.create", "R1", "succeeded", {"outRefundNo": "R1"}, merchant="M1")
        found = await service.reconciled(HOUR)
        again = await service.called()

    assert (DuplicateError, "unknown", True) == (type(used), before.state, before.answered)
    assert ([], state) == (ended, found.state)
    assert reason in found.reason
    # The service refused a close of an order that was paid. It may be sent again, unlike all that may have been done.
    assert (2 if state == "rejected" else 1) == service.sends
    assert (state in {"accepted", "succeeded"}) is isinstance(again, Response)


async def never_arrived(service: Service) -> None:
    """Lose a first send, and reconcile after the quarantine: the service does not know it."""
    told = await service.called()

    assert isinstance(told, OutcomeUnknownError)
    assert "rejected" == (await service.reconciled(QUARANTINE)).state


async def crashed(service: Service) -> None:
    """Let the process of a first send die, and have a person say that it was not done."""
    begun = await service.journal.begin(evolve(draft(REFUND), queued=False), LEASE)
    service.clock.advance(LEASE)
    await service.journal.resolve(begun.intent.id, as_="rejected", reason="not on the bank's list")


EARLIER: Final = [never_arrived, crashed]
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


@pytest.mark.parametrize("end", ["dies", "dies queued", "is cancelled"])
async def test_second_send_whose_query_is_never_responded_to(store: Journal, clock: Clock, end: str) -> None:
    """The journal stores "used before" ahead of the query, so that a later reconciler does not believe "not found"."""
    async with serving(store, clock, LOST) as service:
        await never_arrived(service)
        began, before = service.sends, service.questions
        service.say(USED, SILENT)
        sending = await service.begun(queued=end == "dies queued")
        await until(lambda: service.questions > before)
        left = [await service.kept()]
        if end == "is cancelled":
            sending.cancel()
            await asyncio.wait({sending})
            left = [await service.kept() for _ in range(100)]
        service.say(query=ABSENT)
        await service.reconciled(HOUR)
        found = await asked_in_vain(service)
        sends = service.sends - began
        sending.cancel()
        await asyncio.wait({sending})

    check_never_believed(found)
    assert ("unknown" if end == "is cancelled" else "sending", True) == (left[-1].state, left[-1].answered)
    assert 1 == sends


async def test_second_send_that_is_lost_within_the_call(store: Journal, clock: Clock) -> None:
    """If one call's retry gets "used before", the call does not believe "not found", even after the quarantine."""
    says = evolve(SAYS, recovery=Recovery(quarantine=0.0))
    async with serving(store, clock, LOST, says=says) as service:
        first, second = Event(), Event()
        service.say(query=answer(404, ABSENT_BODY, after=first))
        sending = await service.begun()
        await until(lambda: service.questions == 1)
        service.say(USED, answer(404, ABSENT_BODY, after=second))
        first.set()
        await until(lambda: service.questions == 2)
        before = await service.kept()
        second.set()
        ended, found = await sending, await service.kept()

    assert ("sending", True) == (before.state, before.answered)
    assert (OutcomeUnknownError, "unknown", True, 2) == (type(ended), found.state, found.answered, service.sends)


def fail(path: Path, condition: str) -> None:
    """Let each update of an intent fail in which a condition is true."""
    with closing(sqlite3.connect(path, timeout=5)) as db:
        db.execute(
            f"CREATE TRIGGER fails BEFORE UPDATE ON payasync_intents WHEN {condition} "
            "BEGIN SELECT RAISE(ABORT, 'disk I/O error'); END"
        )


async def test_disk_that_fails_as_the_number_is_called_used(
    journal: SqliteJournal, clock: Clock, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the journal cannot store "used before", the call ends. It neither sends nor queries anything more."""
    async with serving(journal, clock, LOST) as service:
        await never_arrived(service)
        began, before = service.sends, service.questions
        fail(path, "NEW.state = 'sending' AND NEW.answered")
        service.say(USED, said("SUCCEEDED"))
        ended, found = await service.called(), await service.kept()

    assert (OutcomeUnknownError, True) == (type(ended), ended.used_before)
    assert (1, 0) == (service.sends - began, service.questions - before)
    assert ("unknown", True) == (found.state, found.answered)
    assert NOT_STORED in caplog.text


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("at_once", [True, False])
async def test_disk_that_fails_for_a_while(
    journal: SqliteJournal, clock: Clock, path: Path, *, first: bool, at_once: bool
) -> None:
    """If the disk fails for a while, the journal stores "used before" later. "Not found" never rejects the write."""
    async with serving(journal, clock, LOST) as service:
        await (journal.list() if first else never_arrived(service))
        fail(path, AT_ANY_END)
        service.say(USED)
        await service.called()
        before = await service.kept()
        with closing(sqlite3.connect(path, timeout=5)) as db:
            db.execute("DROP TRIGGER fails")
        async with asyncio.timeout(30):
            while not at_once and not (await service.kept()).answered:
                pass
        found = await asked_in_vain(service)

    assert ("sending", False) == (before.state, before.answered)
    assert "rejected" not in {each.state for each in found}
    assert ("manual", 1 if first else 2) == (found[-1].state, service.sends)


async def test_journal_that_is_closed_before_it_can_store(
    journal: SqliteJournal, clock: Clock, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the journal is closed before it can store "used before", no task is left, and a warning is logged."""
    async with serving(journal, clock, USED) as service:
        await journal.list()
        fail(path, AT_ANY_END)
        await service.called()
    await journal.aclose()
    await until(lambda: len(asyncio.all_tasks()) == 1)

    assert NOT_STORED in caplog.text


@pytest.mark.parametrize(
    ("before", "how", "expected"),
    [
        (None, Service.called, DuplicateError),
        (None, partial(Service.called, queued=True), DuplicateError),
        (never_arrived, Service.called, OutcomeUnknownError),
        (partial(Service.called, queued=True), partial(Service.reconciled, after=QUARANTINE), Intent),
    ],
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
        sending = await service.begun(queued=queued)
        await service.reconciled(HOUR)
        service.say(query=answer(404, ABSENT_BODY, after=absent))
        asking = asyncio.create_task(service.reconciled(HOUR))
        await until(lambda: service.questions == 2)
        used.set()
        await sending
        absent.set()
        before, found = await asking, await asked_in_vain(service)

    assert ("unknown", True, 1) == (before.state, before.answered, service.sends)
    assert {"unknown", "manual"} == {each.state for each in found}


@pytest.mark.parametrize(
    ("end", "noted"), [("accepted", False), ("succeeded", False), ("rejected", True), ("new", True), ("manual", True)]
)
@both_stores
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
@both_stores
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


async def test_send_after_one_that_was_refused(store: Journal, clock: Clock) -> None:
    """If the service refused the first send, "used before" on the second one raises `DuplicateError`."""
    async with serving(store, clock, INVALID) as service:
        await service.called()
        before = await service.kept()
        service.say(USED)
        told = await service.called()
        found = await service.kept()

    assert ("rejected", DuplicateError, "unknown") == (before.state, type(told), found.state)
