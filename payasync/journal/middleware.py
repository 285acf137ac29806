"""The middleware that records each write before its first byte, and its outcome later.

It is the outermost layer, because it records the end of the whole call, after all attempts and queries.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from payasync.clocks import Deadlines, boot_time
from payasync.endpoints import CLOSE_ORDER, PLACE_ORDER
from payasync.errors import DuplicateError, InvalidArgumentError, OutcomeUnknownError, PayasyncError, StorageError
from payasync.journal.drafts import Keep, draft_from_call, named_by, request_from_intent
from payasync.journal.intents import (
    BeginResult,
    Intent,
    Intents,
    State,
    Step,
    key_age,
    seconds_since,
    sends_about,
    state_of_error,
    state_of_response,
    state_of_unsent,
)
from payasync.journal.redaction import redact_text
from payasync.journal.replay import TAKEN_OVER, lost_lease_error, recorded_reply, refusal_error
from payasync.middleware.chain import GRACE, out_of_time
from payasync.middleware.observe import Event, Unknown, log
from payasync.middleware.outcome import QUERY_HINT, Recourse, recourse, unknown_error
from payasync.storage.pending import PendingResult
from payasync.wire.call import Call, Layer, Lease, Reply, Send
from payasync.wire.request import Request
from payasync.wire.response import Response
from payasync.wire.validators import invalid_argument

if TYPE_CHECKING:
    from payasync.journal.journal import Journal

logger: Final = logging.getLogger("payasync")

LEASE_MARGIN: Final = 15.0
"""Seconds that a lease lasts beyond the call's own time, so that no busy machine loses one."""
FIRST_PAUSE: Final = 0.1
"""Seconds from a write that failed to the next try; each further pause is twice as long."""
LONGEST_PAUSE: Final = 10.0
CANCELLED: Final = "cancelled before anything was sent"
EARLIER: Final = "its order was placed again, and the response may be about the order before"
CLOSE_AGAIN: Final = "close it again as soon as the outcome of the last place is known"
NOT_READ: Final = "the journal did not say whether its order was placed more than once"
USED: Final = "cancelled after the service said that the number was used before"
NOT_NOTED: Final = "the journal could not store that the number of intent %(intent_id)d was used before"
TOO_LATE: Final = "cancelled, or out of time, before anything was sent"

Notify: TypeAlias = Callable[[Event], None]


class Recorder:
    """The part of a journal that a session uses.

    Args:
        journal: Keeps the intents.
        keep: Returns the arguments that may be stored; `None`: those that move money.
        begin: Begins as `Journal.begin` does.
        settle: Begins as `Journal.settle` does.
    """

    def __init__(
        self,
        journal: "Journal",
        keep: Keep | None,
        *,
        begin: Callable[..., Awaitable[BeginResult]],
        settle: Callable[..., Awaitable[bool]],
    ) -> None:
        self._journal = journal
        self._start_begin = begin
        self._start_settle = settle
        self._keep = keep
        self._settling: set[asyncio.Task[Any]] = set()
        self._not_noted: dict[int, Intent] = {}
        self._deadlines: Deadlines | None = None

    def layer(self, merchant: str, service: str, notify: Notify | None = None) -> Layer:
        """Return the middleware that records one merchant's writes.

        Args:
            merchant: The merchant's number.
            service: `Session.service`.
            notify: Called with an `Unknown` event that the inner layers cannot know of.
        """

        def layer(call: Call, send: Send) -> Awaitable[Reply]:
            return send(call) if call.read else self._record(call, send, merchant, service, notify)

        return layer

    async def queued(self, intent_id: int, merchant: str) -> Request[Response]:
        """Return a request that was queued.

        Raises:
            InvalidArgumentError: There is no such intent, it is another merchant's, or its request cannot be made from
                its row. The journal records that as the reason; if its row is damaged, it becomes *manual*.
            OutcomeUnknownError: It may have been done, and its row is damaged.
        """
        intent = await self._journal.get(intent_id)
        if intent is None:
            raise invalid_argument("intent_id", "the number of an intent in the journal", intent_id)
        if intent.merchant != merchant:
            rule = f"the number of an intent of merchant {merchant!r}"
            why = f"intent_id must be {rule}; {intent_id} is of {intent.merchant!r}"
            raise InvalidArgumentError(why, field="intent_id", rule=rule, value=intent_id)
        if intent.damaged and intent.state != "new":
            raise refusal_error(BeginResult(Step.ASK, intent))
        try:
            return request_from_intent(intent)
        except InvalidArgumentError as error:
            await self._journal.note(intent_id, str(error.reason or error.args[0]), manual=bool(intent.damaged))
            raise

    async def catch_up(self) -> None:
        """Record each "used before" that the storage could not store, so that later queries allow for it.

        Raises:
            StorageError: The storage still cannot store it.
        """
        for intent in tuple(self._not_noted.values()):
            await self._journal.note_used(intent)
            self._not_noted.pop(intent.id, None)

    async def _record(self, call: Call, send: Send, merchant: str, service: str, notify: Notify | None) -> Reply:
        # Read before the journal's own clock is, so that the lease ends here first.
        began, lasts = boot_time(), call.timeouts.total + LEASE_MARGIN
        beginning = self._begin(call, merchant, service, lasts)
        try:
            begun = await self._wait(beginning, call.deadline)
            if begun is None or beginning.get_loop().time() >= call.deadline:
                raise out_of_time(call, "the journal")
        except (asyncio.CancelledError, PayasyncError) as error:
            self._hold(asyncio.ensure_future(self._undo(beginning)))
            _name_call(error, call)
            raise
        step, intent = begun
        if step is Step.ANSWER:
            return recorded_reply(intent)
        if step is not Step.SEND:
            raise refusal_error(begun)
        del beginning, begun  # they hold the draft and more, and many writes may be in flight
        lease, note_used = Lease(began, lasts, boot_time), _NoteUsed(self, intent)
        call = call.derived(lease=lease, earlier_sends=intent.sends - 1, note_used=note_used)
        if call.idempotency_key and intent.idempotency_key:
            call = _under_stored_key(call, intent, lease)
        reply: Reply | Exception
        try:
            reply = await send(call)
        except asyncio.CancelledError:
            self._settle_cancelled(call, intent)
            raise
        except Exception as error:  # noqa: BLE001 - it is raised below
            reply = error
        if isinstance(reply, Exception):
            # Not in the block above, where the journal's own error would get this one as its context.
            try:
                raise await self._settle_failed(call, reply, intent, lease, notify)
            finally:
                del reply  # which refers to this frame
        state, reason = state_of_response(call, reply)
        if state == "succeeded" and call.operation == CLOSE_ORDER and (why := await self._doubt(call, reply, intent)):
            lost = unknown_error(call, why, reply, hint=CLOSE_AGAIN if why == EARLIER else QUERY_HINT)
            lost.add(used_before=call.progress.used_before)
            await self._settle_error(call, lost, intent)
            _report_unknown(notify, call, why)
            raise lost
        await self._settle_in_time(call, intent, state, outcome=self._journal.outcome(call, reply), reason=reason)
        return reply

    async def _doubt(self, call: Call, reply: Reply, close: Intent) -> str:
        """Return why "closed" may be about the order that was closed before its number was placed again.

        A query may show that order. A response to the close itself is about it if the last place arrives later, or has
        ended since the close began.
        """
        places: Intents | None = await self._wait_in_time(call, PendingResult.of(self._places_of(close)))
        if places is None:
            return NOT_READ
        in_doubt = {"sending", "unknown", "manual"}
        ended = [each for each in places if each.state in in_doubt or seconds_since(each, close, close.updated) < 0]
        late = places if reply.recovered else ended
        return EARLIER if any(sends_about(close, each, call.profile.recovery.quarantine) > 1 for each in late) else ""

    async def _places_of(self, close: Intent) -> Intents | None:
        """Return the intents that placed an order, or `None` if the journal fails."""
        with suppress(Exception):
            return await self._journal.find(PLACE_ORDER.name, close.reference or "", merchant=close.merchant)
        return None

    async def _settle_failed(
        self, call: Call, error: Exception, intent: Intent, lease: Lease, notify: Notify | None
    ) -> Exception:
        """Record the end of a call that has failed, and return the error to raise."""
        held = await self._settle_error(call, error, intent)
        taken = held is False or (held is None and lease.over)
        if not taken or not isinstance(error, PayasyncError) or error.sent is not False:
            return error
        _report_unknown(notify, call, TAKEN_OVER)
        return lost_lease_error(intent, error)

    def _begin(self, call: Call, merchant: str, service: str, lease: float) -> PendingResult:
        """Begin a write in the journal, and return the pending decision."""
        try:
            return PendingResult.of(self._begin_in_journal(call, merchant, service, lease))
        except PayasyncError as error:
            _name_call(error, call)
            raise

    def _begin_in_journal(self, call: Call, merchant: str, service: str, lease: float) -> Awaitable[BeginResult]:
        if call.entry is None:
            draft = draft_from_call(call, merchant, self._keep)
            return self._start_begin(draft, lease, service=service)
        entry, named, key = call.entry, named_by(call), call.idempotency_key or None
        return self._journal.claim(entry.id, lease, fence=entry.fence, service=service, named=named, key=key)

    async def _undo(self, beginning: PendingResult) -> None:
        """Wait for a transaction that may still commit, and record that nothing was sent."""
        with suppress(PayasyncError):
            begun: BeginResult = await beginning.final()
            if begun.step is Step.SEND:
                await self._settle(begun.intent, state_of_unsent(begun.intent), reason=TOO_LATE)

    async def _settle_error(self, call: Call, error: Exception, intent: Intent) -> bool | None:
        used, reason = isinstance(error, DuplicateError), f"{type(error).__name__}: {error}"
        if isinstance(error, PayasyncError):
            reason = str(error.args[0])
        if isinstance(error, OutcomeUnknownError):
            error.add(intent_id=intent.id)
            used, reason = used or error.used_before, str(error.reason or reason)
        state = state_of_error(call, error, intent)
        return await self._settle_in_time(call, intent, state, reason=redact_text(call, reason), answered=used)

    def _settle_cancelled(self, call: Call, intent: Intent) -> None:
        """Record, without waiting, that nothing was sent. A write that may have been sent stays *sending*."""
        if not call.progress.begun:
            self._hold(asyncio.ensure_future(self._settle(intent, state_of_unsent(intent), reason=CANCELLED)))
        elif call.progress.used_before:
            # Otherwise a reconciler would believe a later "not found".
            self._hold(asyncio.ensure_future(self._settle(intent, "unknown", reason=USED, answered=True)))

    async def note_used_in_time(self, call: Call, intent: Intent) -> bool:
        """Record that the service said "used before"; return `False` if that may not be on the disk."""
        noting = asyncio.ensure_future(self._note_used(intent))
        self._hold(noting)
        return bool(await self._result_in_time(call, noting))

    def _hold(self, task: asyncio.Task[Any]) -> None:
        """Hold a task until its end, even if nobody waits for it."""
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle_in_time(
        self, call: Call, intent: Intent, state: State, *, answered: bool = False, **facts: Any
    ) -> bool | None:
        """Record a state as long as the call has time. The journal continues if the caller is cancelled or cannot wait.

        Returns:
            Whether the lease was still valid; `None` if the journal has failed, or has not responded in time.
        """
        settling = self._begin_settling(intent, state, answered=answered, **facts)
        del facts  # the journal has them, and many writes may be in flight
        held: bool | None = None
        finishing: asyncio.Task[bool | None] | None = None
        try:
            held = await self._wait_in_time(call, settling)
        except Exception:  # noqa: BLE001 - `_settle` logs it
            held = None
        finally:
            if not held:  # which is rare: each write would pay for a task
                finishing = asyncio.ensure_future(self._settle(intent, state, settling.final(), answered=answered))
                self._hold(finishing)
        if finishing is None:
            return True
        return await self._result_in_time(call, finishing) if settling.final().done() else None

    async def _result_in_time(self, call: Call, task: asyncio.Task[bool | None]) -> bool | None:
        """Return the result of a task, or `None` if the call has no time to wait for it. The task continues then."""
        await self._wait_in_time(call, PendingResult.of(task))
        return task.result() if task.done() else None

    def _wait_in_time(self, call: Call, pending: PendingResult) -> PendingResult:
        """Wait for the journal as long as a call may after its response. If the time is over, awaiting gives `None`."""
        return self._wait(pending, max(call.deadline, pending.get_loop().time() + GRACE))

    def _wait(self, pending: PendingResult, when: float) -> PendingResult:
        loop, deadlines = pending.get_loop(), self._deadlines  # another thread, with another loop, may replace them
        if deadlines is None or deadlines.loop is not loop:
            self._deadlines = deadlines = Deadlines(loop)
        return pending.within(deadlines, when)

    def _begin_settling(self, intent: Intent, state: State, **facts: Any) -> PendingResult:
        try:
            return PendingResult.of(self._start_settle(intent, state, **facts))
        except Exception as error:  # noqa: BLE001 - it is logged
            failed = PendingResult(asyncio.get_running_loop())
            failed.deliver(error)
            return failed

    async def _settle(
        self, intent: Intent, state: State, settling: "asyncio.Future[bool] | None" = None, **facts: Any
    ) -> bool | None:
        """Record a state, and log a failure. If `settling` is given, the state is being recorded with other facts."""
        # If the journal fails, the intent stays *sending*: nothing is lost, because the service will be asked.
        held: bool | None = None
        try:
            held = await (settling or self._start_settle(intent, state, **facts))
        except Exception:  # noqa: BLE001 - it is logged
            words = "intent %(intent_id)d is %(state)s, which the journal could not store"
            log(logger, logging.WARNING, "journal.not_stored", words, intent_id=intent.id, state=state, exc_info=True)
        if held is False:
            words = "intent %(intent_id)d is %(state)s, but its lease was over, and another process leased it"
            log(logger, logging.WARNING, "journal.lease_lost", words, intent_id=intent.id, state=state)
        # "Used before" is true of the number, whoever holds the lease.
        noted = held or not facts.get("answered") or await self._note_used(intent) is not None
        if not noted and intent.id not in self._not_noted:
            self._not_noted[intent.id] = intent
            self._hold(asyncio.ensure_future(self._note_used_later(intent)))
        return held

    async def _note_used(self, intent: Intent) -> bool | None:
        try:
            return await self._journal.note_used(intent)
        except Exception:  # noqa: BLE001 - it is logged
            log(logger, logging.WARNING, "journal.used_not_stored", NOT_NOTED, intent_id=intent.id, exc_info=True)
            return None

    async def _note_used_later(self, intent: Intent) -> None:
        """Record "used before" as soon as the storage is back, as long as the journal is open."""
        pause = FIRST_PAUSE
        try:
            while intent.id in self._not_noted:
                try:
                    await self._journal.note_used(intent)
                except StorageError as error:
                    if error.reason == "closed":
                        return
                else:
                    return
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        except Exception:  # noqa: BLE001 - it is logged
            log(logger, logging.WARNING, "journal.used_not_stored", NOT_NOTED, intent_id=intent.id, exc_info=True)
        finally:
            self._not_noted.pop(intent.id, None)


class _NoteUsed(NamedTuple):
    """Records that the service said "used before" of an intent."""

    # Not a `partial`: many calls may be in flight, and each would hold three objects more.

    recorder: Recorder
    intent: Intent

    def __call__(self, call: Call) -> Awaitable[bool]:
        return self.recorder.note_used_in_time(call, self.intent)


def _name_call(error: BaseException, call: Call) -> None:
    if isinstance(error, PayasyncError):
        error.add(operation=call.operation.name, reference=call.reference)


def _under_stored_key(call: Call, intent: Intent, lease: Lease) -> Call:
    """Return a call with the idempotency key of its intent, and with the time that is left for repeating it."""
    call = call.with_idempotency_key(intent.idempotency_key or "")
    if recourse(call) is not Recourse.KEY:
        return call
    lifetime, age = call.profile.idempotency.lifetime, key_age(intent, intent.updated)
    left = min(lease.seconds, (call.timeouts.total if lifetime is None else lifetime) - age)
    return call.derived(lease=lease._replace(seconds=left) if age else lease._replace(repeat_seconds=left))


def _report_unknown(notify: Notify | None, call: Call, reason: str) -> None:
    if notify:
        notify(Unknown(operation=call.operation.name, reference=call.reference, reason=reason))
