"""The layer that keeps each write: before its first byte that it is being sent, and after its end what became of it.

It is the outermost: what it keeps is the end of the whole call, after all its attempts and questions.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final

from payasync.errors import (
    DuplicateError,
    InvalidArgumentError,
    OutcomeUnknownError,
    PayasyncError,
    StorageError,
)
from payasync.journal.entries import (
    TAKEN,
    Keep,
    beyond_arguments,
    entry_of_call,
    kept_words,
    lost_lease_error,
    recorded_reply,
    refusal_of,
    request_of,
)
from payasync.journal.intents import Begun, Intent, State, Step
from payasync.journal.journal import Journal
from payasync.journal.transactions import (
    may_be_of_an_earlier_attempt,
    reason_of,
    state_of_error,
    state_of_response,
    state_of_unsent,
)
from payasync.middleware.chain import GRACE, await_in_time
from payasync.middleware.observe import Event, Unknown
from payasync.middleware.outcome import unknown_error
from payasync.wire.call import Call, Layer, Lease, Reply, Send
from payasync.wire.request import Request, invalid
from payasync.wire.response import Response

logger = logging.getLogger("payasync")

MARGIN: Final = 15.0
"""Seconds that a lease lasts beyond the call's own time, so that no busy machine loses one."""
FIRST_PAUSE: Final = 0.1
"""Seconds from a write that failed to the next try; they double with each further one."""
LONGEST_PAUSE: Final = 10.0
CANCELLED: Final = "cancelled before anything was sent"
EARLIER: Final = "the service says that it was not done, perhaps of an earlier attempt, and this one may still arrive"
USED: Final = "cancelled after the service said that the number was used before"
TOO_LATE: Final = "cancelled, or out of time, before anything was sent"


class Recorder:
    """The half of a journal that a session uses; it stands on the other half.

    Args:
        journal: Keeps the intentions.
        keep: Says what may be kept of a request.
        clock: Returns seconds, and counts them while the machine is suspended: a lease ends by it for its holder.
    """

    def __init__(self, journal: Journal, keep: Keep, clock: Callable[[], float]) -> None:
        self._journal = journal
        self._keep = keep
        self._clock = clock
        self._settling: set[asyncio.Task[Any]] = set()
        self._noting: dict[int, Intent] = {}

    def layer(self, merchant: str, service: str, tell: Callable[[Event], None] | None = None) -> Layer:
        """Return the layer that keeps one merchant's writes.

        Args:
            merchant: The merchant's number.
            service: Where they go, as `Session.service` says it.
            tell: Hears of a doubt that the layers below cannot know of.
        """
        whose = merchant, service

        def layer(call: Call, send: Send) -> Awaitable[Reply]:
            return send(call) if call.read else self._recorded(call, send, whose, tell)

        return layer

    async def queued(self, intent_id: int, merchant: str) -> Request[Response]:
        """Return a request that was queued.

        Raises:
            InvalidArgumentError: There is none of this number, or it is another merchant's.
        """
        intent = await self._journal.get(intent_id)
        if intent is None:
            raise invalid("intent_id", "the number of an intention in the journal", intent_id)
        if intent.merchant != merchant:
            rule = f"the number of an intention of merchant {merchant!r}"
            why = f"intent_id must be {rule}; {intent_id} is of {intent.merchant!r}"
            raise InvalidArgumentError(why, field="intent_id", rule=rule, value=intent_id)
        return request_of(intent)

    async def catch_up(self) -> None:
        """Write down what the storage could not take before, so that nobody asks without knowing it.

        Raises:
            StorageError: It still cannot.
        """
        for intent in tuple(self._noting.values()):
            await self._journal.note_used(intent)
            self._noting.pop(intent.id, None)

    async def _recorded(
        self, call: Call, send: Send, whose: tuple[str, str], tell: Callable[[Event], None] | None
    ) -> Reply:
        # Read before the journal's own clock is, so that the lease ends here first.
        lease = Lease(self._clock(), call.timeouts.total + MARGIN, self._clock)
        begun = await self._begun(call, whose)
        if begun.step is Step.ANSWER:
            return recorded_reply(begun.intent)
        if begun.step is not Step.SEND:
            raise refusal_of(begun, call.profile)
        sent_before, note_used = begun.intent.sent_at is not None, partial(self._note_used, call, begun.intent)
        call = call.derived(lease=lease, sent_before=sent_before, note_used=note_used)
        try:
            reply = await send(call)
        except asyncio.CancelledError:
            self._keep_cancelled(call, begun.intent)
            raise
        except Exception as error:
            still = await self._keep_error(call, error, begun.intent)
            taken = still is False or (still is None and lease.over)
            if taken and isinstance(error, PayasyncError) and error.sent is False:
                _tell(tell, call, TAKEN)
                raise lost_lease_error(begun.intent, error, call.profile) from None
            raise
        state = state_of_response(call, reply)
        if reply.recovered and may_be_of_an_earlier_attempt(begun.intent, state):
            lost = unknown_error(call, EARLIER, reply)
            lost.add(used_before=call.progress.used_before)
            await self._keep_error(call, lost, begun.intent)
            _tell(tell, call, EARLIER)
            raise lost
        facts = {"outcome": self._journal.outcome(call, reply), "reason": reason_of(call, reply, state)}
        await self._kept(call, begun.intent, state, **facts)
        return reply

    async def _begun(self, call: Call, whose: tuple[str, str]) -> Begun:
        try:
            return await await_in_time(call, self._beginning(call, *whose), "the journal")
        except PayasyncError as error:
            error.add(operation=call.operation.name, reference=call.reference)
            raise

    async def _beginning(self, call: Call, merchant: str, service: str) -> Begun:
        lease, entry = call.timeouts.total + MARGIN, call.entry
        if entry is not None:
            facts: dict[str, Any] = {"fence": entry.fence, "service": service, "named": beyond_arguments(call)}
            return await self._firmly(self._journal.claim(entry.id, lease, **facts))
        draft = entry_of_call(call, merchant, self._keep)
        return await self._firmly(self._journal.begin(draft, lease, service=service))

    async def _firmly(self, beginning: Coroutine[Any, Any, Begun]) -> Begun:
        """Return what the journal says; what it has begun for who is cancelled meanwhile, or out of time, is undone."""
        task = asyncio.ensure_future(beginning)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._hold(asyncio.ensure_future(self._undone(task)))
            raise

    async def _undone(self, beginning: asyncio.Task[Begun]) -> None:
        """Wait for what may be committed still, and keep that nothing was sent."""
        with suppress(PayasyncError):
            begun = await beginning
            if begun.step is Step.SEND:
                await self._unsent(begun.intent, TOO_LATE)

    async def _keep_error(self, call: Call, error: Exception, intent: Intent) -> bool | None:
        if isinstance(error, OutcomeUnknownError):
            error.add(intent_id=intent.id)
        used = isinstance(error, DuplicateError) or (isinstance(error, OutcomeUnknownError) and error.used_before)
        state = state_of_error(call, error, intent)
        return await self._kept(call, intent, state, reason=kept_words(call, _reason(error)), answered=used)

    def _keep_cancelled(self, call: Call, intent: Intent) -> None:
        """Keep that nothing has left, and have nobody wait for that; all else stays *sending*, and is asked about."""
        if not call.progress.begun:
            self._hold(asyncio.ensure_future(self._unsent(intent, CANCELLED)))
        elif call.progress.used_before:
            # Nothing else would tell whoever asks that "not found" must not be believed.
            self._hold(asyncio.ensure_future(self._settled(intent, "unknown", reason=USED, answered=True)))

    async def _note_used(self, call: Call, intent: Intent) -> bool:
        """Write down that the service said "used before"; `False` if that may not be durable."""
        return bool(await self._finished(call, self._noted(intent)))

    async def _noted(self, intent: Intent) -> bool | None:
        try:
            return await self._journal.note_used(intent)
        except Exception:
            logger.warning("the journal could not keep that intention %d was used before", intent.id, exc_info=True)
            return None

    async def _kept(self, call: Call, intent: Intent, state: State, **facts: Any) -> bool | None:
        return await self._finished(call, self._settled(intent, state, **facts))

    async def _finished(self, call: Call, pending: Coroutine[Any, Any, bool | None]) -> bool | None:
        """Keep something, as long as the call has time; a caller that is cancelled, or cannot wait, stops nothing.

        Returns:
            Whether the claim still counted; `None` while the journal has not said so.
        """
        task = asyncio.ensure_future(pending)
        self._hold(task)
        left = call.deadline - asyncio.get_running_loop().time()
        await asyncio.wait({task}, timeout=max(GRACE, left))
        return task.result() if task.done() else None

    def _hold(self, task: asyncio.Task[Any]) -> None:
        """Let something be kept to its end, whoever waits for it."""
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _unsent(self, intent: Intent, reason: str) -> None:
        await self._settled(intent, state_of_unsent(intent), reason=reason)

    async def _settled(self, intent: Intent, state: State, **facts: Any) -> bool | None:
        held = await self._tried(intent, state, **facts)
        # What is true of the number does not depend on the claim.
        if not held and facts.get("answered") and await self._noted(intent) is None:
            self._note_later(intent)
        return held

    async def _tried(self, intent: Intent, state: State, **facts: Any) -> bool | None:
        # What cannot be kept stays as it is, *sending*: nothing is lost, it will be asked about.
        try:
            held = await self._journal.settle(intent, state, **facts)
        except Exception:
            logger.warning("intention %d is %s, which the journal could not keep", intent.id, state, exc_info=True)
            return None
        if not held:
            logger.warning("intention %d is %s, but its lease was over, and somebody took it", intent.id, state)
        return held

    def _note_later(self, intent: Intent) -> None:
        if intent.id not in self._noting:
            self._noting[intent.id] = intent
            self._hold(asyncio.ensure_future(self._noted_at_last(intent)))

    async def _noted_at_last(self, intent: Intent) -> None:
        """Write down "used before" as soon as the storage is back, for as long as the journal is open."""
        pause = FIRST_PAUSE
        try:
            while intent.id in self._noting and await self._fails(intent):
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
        except Exception:
            logger.warning("the journal cannot keep that intention %d was used before", intent.id, exc_info=True)
        finally:
            self._noting.pop(intent.id, None)

    async def _fails(self, intent: Intent) -> bool:
        """Return whether the storage is still away, though the journal is open."""
        try:
            await self._journal.note_used(intent)
        except StorageError as error:
            return error.reason != "closed"
        return False


def _tell(tell: Callable[[Event], None] | None, call: Call, reason: str) -> None:
    if tell:
        tell(Unknown(operation=call.operation.name, reference=call.reference, reason=reason))


def _reason(error: Exception) -> str:
    if isinstance(error, OutcomeUnknownError) and error.reason:
        return str(error.reason)
    return str(error.args[0]) if isinstance(error, PayasyncError) else f"{type(error).__name__}: {error}"
