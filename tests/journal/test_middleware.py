import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve, fields_dict

from payasync.clocks import RESOLUTION
from payasync.errors import (
    AuthenticationError,
    InvalidArgumentError,
    NotSentError,
    NotSentTimeoutError,
    OutcomeUnknownError,
    RateLimitedError,
    ServiceError,
    StorageError,
)
from payasync.journal import SqliteJournal
from payasync.journal.intents import BeginResult, Draft, Intent, Outcome, State, Step
from payasync.journal.middleware import LEASE_MARGIN, TOO_LATE
from payasync.profile.schema import AnswerShape, States
from payasync.settings import Timeouts
from payasync.wire.call import Call, Entry, Reply
from tests.building import PROFILE, Way, codec, reply, way
from tests.inside import Time, until
from tests.journal.building import LEASE, MERCHANT, SERVICE, START, Clock, draft, only, refund

pytestmark = pytest.mark.usefixtures("clock")

UNKNOWN: Final = OutcomeUnknownError("HTTP 503, it failed; it may have been done", reason="the service failed")
TELLING: Final = evolve(
    PROFILE, answer=AnswerShape(refund_status="state"), states=States(refund={"failed": ("failed",)})
)
FAILED: Final = reply({"state": "failed"})


def call(**facts: Any) -> Call:
    """Return the call of a refund, as it comes to the layer."""
    loop = asyncio.get_running_loop()
    given = {"timeouts": Timeouts(total=30), "deadline": loop.time() + 30, **facts}
    return codec(evolve(PROFILE, answer=AnswerShape(refund_status="state"))).call(refund()).derived(**given)


async def sent(journal: SqliteJournal, leads: Way, **facts: Any) -> Reply:
    """Send a refund through the layer."""
    return await journal.recorder.layer(MERCHANT, SERVICE)(call(**facts), leads.send)


async def test_it_is_stored_before_it_is_sent(journal: SqliteJournal) -> None:
    """Before the first byte leaves, the journal has the write as *sending*, leased for the call's time and a margin."""
    seen = list[Intent]()

    async def send(_: Call) -> Reply:
        seen.append(await only(journal))
        return reply({})

    await journal.recorder.layer(MERCHANT, SERVICE)(call(intent="a"), send)
    (intent,) = seen

    assert ("sending", "R1", "a", MERCHANT) == (intent.state, intent.reference, intent.intent, intent.merchant)
    assert intent.lease is not None
    assert 30 + LEASE_MARGIN == (intent.lease - START).total_seconds()


@pytest.mark.parametrize(
    ("error", "state", "reason"),
    [
        (ServiceError("HTTP 400, refused", sent=True), "rejected", "HTTP 400, refused"),
        (NotSentError("connection refused"), "rejected", "connection refused"),
        (ValueError("connection refused"), "rejected", "ValueError: connection refused"),
        (UNKNOWN, "unknown", "the service failed"),
    ],
)
async def test_error_is_stored_and_raised(journal: SqliteJournal, error: Exception, state: State, reason: str) -> None:
    """The caller gets each error unchanged. The journal stores the state and the reason that follow from it."""
    with pytest.raises(type(error)) as caught:
        await sent(journal, way(error))
    intent = await only(journal)

    assert error is caught.value
    assert (state, reason, START if state == "unknown" else None) == (intent.state, intent.reason, intent.sent_at)


async def test_nothing_is_sent_that_cannot_be_stored(journal: SqliteJournal) -> None:
    """If the journal cannot store *sending*, the call sends nothing and raises `StorageError`."""
    leads = way()
    await journal.aclose()
    with pytest.raises(StorageError, match="the journal is closed") as caught:
        await sent(journal, leads)

    assert ([], "refunds.create", "R1", False) == (
        leads.calls,
        caught.value.operation,
        caught.value.reference,
        caught.value.sent,
    )


@pytest.mark.parametrize("end", [reply({"state": "DONE"}), ServiceError("no"), UNKNOWN])
async def test_result_that_cannot_be_stored_stops_nobody(
    journal: SqliteJournal, path: Path, caplog: pytest.LogCaptureFixture, end: Any
) -> None:
    """If the journal cannot store a result, the caller still gets it. The intent stays *sending*, with a warning."""

    async def send(_: Call) -> Reply:
        await journal.aclose()
        if isinstance(end, Reply):
            return end
        raise end

    with caplog.at_level(logging.WARNING, "payasync"):
        found: Any
        try:
            found = await journal.recorder.layer(MERCHANT, SERVICE)(call(), send)
        except (ServiceError, OutcomeUnknownError) as error:
            found = error
    async with SqliteJournal(path) as again:
        intent = await only(again)

    assert end is found
    assert "sending" == intent.state
    (record,) = (each for each in caplog.records if each.name == "payasync")
    assert "which the journal could not store" == record.getMessage().partition(", ")[2]
    # The call's own error, which the traceback would show, may hold what the service said.
    assert record.exc_info
    assert isinstance(record.exc_info[1], StorageError)
    assert record.exc_info[1].__context__ is None


async def test_result_that_comes_too_late_is_reported(
    journal: SqliteJournal, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """If another process has leased the write, the caller gets the response, and a warning says it was not stored."""

    async def send(_: Call) -> Reply:
        clock.advance(1000)
        await journal.ask(1, LEASE)
        return reply({"state": "DONE"})

    with caplog.at_level(logging.WARNING, "payasync"):
        given = await journal.recorder.layer(MERCHANT, SERVICE)(call(), send)

    assert ("DONE", "unknown") == (given.document["state"], (await only(journal)).state)
    assert "another process leased it" in caplog.text


async def test_lost_claim_is_reported_at_the_end_of_the_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another process has the claim, the caller learns it, even if the time is over in the same turn of the loop."""
    monkeypatch.setattr("payasync.journal.middleware.GRACE", 0)
    monkeypatch.setattr("payasync.clocks.RESOLUTION", 0)
    time = Time()

    class Lost(SqliteJournal):
        async def settle(self, *_: Any, **__: Any) -> bool:
            time.block(100)
            return False

    async def send(_: Call) -> Reply:
        raise NotSentError("refused")

    async with Lost(path) as journal:
        with pytest.raises(OutcomeUnknownError, match="another process may have sent it"):
            await journal.recorder.layer(MERCHANT, SERVICE)(call(), send)


async def all_stored() -> None:
    """Wait until the journal has stored the ends of all calls, which it does in tasks."""
    await until(lambda: len(asyncio.all_tasks()) == 1)


class Gated(SqliteJournal):
    """A journal that waits for a gate: before it settles an intent, or after it has made one *sending*.

    Args:
        path: Of its file.
        settles: It waits before it settles.
    """

    def __init__(self, path: Path, *, settles: bool) -> None:
        super().__init__(path)
        self.reached, self.gate = asyncio.Event(), asyncio.Event()
        self._settles = settles

    async def settle(self, *args: Any, **given: Any) -> bool:
        """Settle an intent."""
        await self._wait(settles=True)
        return await super().settle(*args, **given)

    async def begin(self, *args: Any, **given: Any) -> BeginResult:
        """Store an intent as *sending*."""
        begun = await super().begin(*args, **given)
        await self._wait(settles=False)
        return begun

    async def claim(self, *args: Any, **given: Any) -> BeginResult:
        """Make an intent *sending*."""
        begun = await super().claim(*args, **given)
        await self._wait(settles=False)
        return begun

    async def _wait(self, *, settles: bool) -> None:
        if settles is self._settles:
            self.reached.set()
            await self.gate.wait()

    async def open_gate(self) -> None:
        """Open the gate, and wait until all is stored."""
        self.gate.set()
        await all_stored()


@pytest.mark.parametrize(
    "end", [asyncio.CancelledError(), NotSentError("no network"), ServiceError("no"), FAILED], ids=type
)
async def test_what_is_added_while_it_is_sent_directly_is_not_lost(
    journal: SqliteJournal, end: BaseException | Reply
) -> None:
    """If a write is queued during a direct call that fails, the write becomes *new*, and a worker can claim it."""

    async def send(_: Call) -> Reply:
        await journal.add(refund(), merchant=MERCHANT)
        if isinstance(end, BaseException):
            raise end
        return end

    with suppress(asyncio.CancelledError, NotSentError, ServiceError):
        await journal.recorder.layer(MERCHANT, SERVICE)(call(profile=TELLING), send)
    await all_stored()
    kept = await only(journal)

    assert ("new", True, "") == (kept.state, kept.queued, kept.reason)
    assert Step.SEND is (await journal.claim(kept.id, LEASE)).step


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("late", [False, True])
async def test_who_is_gone_while_the_journal_commits_leaves_nothing_in_doubt(
    path: Path, *, late: bool, queued: bool
) -> None:
    """If a call ends while the journal stores *sending*, nothing is sent, and the journal records that it was not."""
    leads = way(reply({}))
    async with Gated(path, settles=False) as journal:
        facts: dict[str, Any] = {"entry": Entry(await journal.add(refund(), merchant=MERCHANT))} if queued else {}
        if late:
            facts["deadline"] = asyncio.get_running_loop().time() + 0.1
        task = asyncio.ensure_future(sent(journal, leads, **facts))
        await journal.reached.wait()
        if not late:
            task.cancel()
        await asyncio.wait([task])
        during = (await only(journal)).state
        await journal.open_gate()
        after = await only(journal)
        before = len(leads.calls)
        await sent(journal, leads, **{name: facts[name] for name in facts if name == "entry"})

    assert task.cancelled() != late
    assert not late or isinstance(task.exception(), NotSentTimeoutError)
    assert ("sending", "new" if queued else "rejected", TOO_LATE) == (during, after.state, after.reason)
    assert (None, 0, 1) == (after.sent_at, before, len(leads.calls))


async def test_who_is_gone_while_the_journal_says_no_changes_nothing(path: Path) -> None:
    """If a second call is cancelled while the journal responds, the write that the first one sends stays as it was."""
    async with Gated(path, settles=False) as journal:
        journal.gate.set()
        await journal.begin(draft(), LEASE)
        before = await only(journal)
        journal.gate.clear()
        journal.reached.clear()
        task = asyncio.ensure_future(sent(journal, way()))
        await journal.reached.wait()
        task.cancel()
        await asyncio.wait([task])
        await journal.open_gate()

        assert before == await only(journal)


async def test_response_waits_for_the_journal_within_the_call_only(path: Path) -> None:
    """If the journal is slow, the response waits for it at most until the call's timeout. The journal then goes on."""
    async with Gated(path, settles=True) as journal:
        time = Time()
        task = asyncio.ensure_future(sent(journal, way(reply({"a": 1}))))
        await journal.reached.wait()
        await time.pass_by(30 + RESOLUTION)
        ended = task.done()
        given, during = await task, (await only(journal)).state
        await journal.open_gate()
        after = (await only(journal)).state

    assert {"a": 1} == given.document
    assert (True, "sending", "succeeded") == (ended, during, after)


async def test_class_of_a_user_sees_what_is_recorded(path: Path) -> None:
    """A session calls the `begin` and the `settle` of a journal whose class overrides them, with whole records."""
    seen: list[Draft | Intent | Outcome] = []

    class Seeing(SqliteJournal):
        async def begin(self, draft: Draft, lease: float, *, service: str | None = None) -> BeginResult:
            begun = await super().begin(draft, lease, service=service)
            seen.extend((draft, begun.intent))
            return begun

        async def settle(self, intent: Intent, state: State, **facts: Any) -> bool:
            seen.append(facts["outcome"])
            return await super().settle(intent, state, **facts)

    async with Seeing(path) as journal:
        await sent(journal, way(reply({})))

    assert [Draft, Intent, Outcome] == list(map(type, seen))
    assert [fields_dict(type(each)).keys() for each in seen] == [vars(each).keys() for each in seen]


@pytest.mark.parametrize("responded", [True, False])
async def test_cancelled_does_not_wait_for_the_journal(path: Path, *, responded: bool) -> None:
    """A cancelled call ends without waiting for the journal, which stores its result, or that nothing was sent."""
    inside = asyncio.Event()

    async def send(_: Call) -> Reply:
        inside.set()
        await (asyncio.sleep(0) if responded else asyncio.Event().wait())
        return reply({})

    async with Gated(path, settles=True) as journal:
        task = asyncio.ensure_future(journal.recorder.layer(MERCHANT, SERVICE)(call(), send))
        await (journal.reached if responded else inside).wait()
        task.cancel()
        await asyncio.wait([task])
        await until(journal.reached.is_set)
        during = (await only(journal)).state
        await journal.open_gate()
        after = (await only(journal)).state

    assert task.cancelled()
    assert ("sending", "succeeded" if responded else "rejected") == (during, after)


@pytest.mark.parametrize(
    "error", [NotSentError("connection refused"), AuthenticationError("unknown key"), RateLimitedError("slow down")]
)
async def test_queued_that_was_not_done_waits_for_a_worker(
    journal: SqliteJournal, clock: Clock, error: Exception
) -> None:
    """If a queued write was not done, it becomes *new* with the reason, and the next worker can send it."""
    intent_id = await journal.add(refund(), merchant=MERCHANT)
    tried = clock.advance(5)
    with pytest.raises(type(error)):
        await sent(journal, way(error), entry=Entry(intent_id))
    intent = await only(journal)
    await sent(journal, way(reply({})), entry=Entry(intent_id))
    after = await only(journal)

    assert ("new", tried, str(error)) == (intent.state, intent.updated, intent.reason)
    assert (1, None, None) == (intent.attempts, intent.lease, intent.sent_at)
    assert ("succeeded", 2) == (after.state, after.attempts)


async def test_queued_is_ones_own(journal: SqliteJournal) -> None:
    """A worker can send only an intent that exists and belongs to its own merchant."""
    await journal.add(refund(), merchant=MERCHANT)
    for number, merchant, more in ((7, MERCHANT, ""), (1, "M2", " of merchant 'M2'; 1 is of 'M1'")):
        with pytest.raises(InvalidArgumentError, match=f"intent_id must be the number of an intent{more}"):
            await journal.recorder.queued(number, merchant)
