"""The attempts of one call, the waits between them, and the queries after a lost response."""

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple, cast

import backoff
from attrs import evolve

from payasync.clocks import Pace
from payasync.endpoints import CLOSE_ORDER
from payasync.errors import NoAnswerError, OutcomeUnknownError, PayasyncError, ServiceError
from payasync.evidence.claims import Claim, counts_after
from payasync.evidence.comparison import by_document_names, compared_fields
from payasync.middleware.observe import EventSink, Retrying, Unknown
from payasync.middleware.outcome import (
    SUCCESS,
    Action,
    AttemptResult,
    Outcome,
    claim_about,
    classify,
    confirms_absence,
    decide,
    decide_after_absence,
    describe_claim,
    final_error,
    is_in_progress,
    leaves_doubt,
    objection_to,
    result_of_query,
    unknown_error,
)
from payasync.settings import RetryPolicy
from payasync.wire.call import Call, Layer, Progress, Reply, Send
from payasync.wire.response import parse_retry_after

RETRY_COST: Final = 5
TIMEOUT_COST: Final = 10
QUERIES: Final = 3
"""The most queries about a write, not counting the one after the quarantine."""
RATE_LIMITED: Final = 429
QUERY_REASON: Final = "ask what happened to it"


class Quota:
    """The retry budget: a bucket of tokens that all calls of a session share.

    Successes also fill a small reserve for queries about writes that may have been carried out. As long as the service
    works at all, failing reads cannot use up the queries about a refund.

    Args:
        capacity: The tokens at the start, and the most tokens; 0 allows no retry.

    Attributes:
        tokens: The tokens that are left.
        held_until: When the service accepts requests again after a 429, on the event loop's clock.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._reserve = 0
        self._reserve_capacity = capacity // 10
        self.tokens: float = capacity
        self.held_until: float = -inf

    def take(self, cost: int, *, asking: bool = False) -> bool:
        """Take the tokens of a retry or a query, or return `False` if there are not enough."""
        if cost <= self.tokens:
            self.tokens -= cost
            return True
        if asking and cost <= self._reserve:
            self._reserve -= cost
            return True
        return False

    def pay_back(self, spent: int) -> None:
        """Return the tokens that a successful call spent, at least one, and add one to the reserve."""
        if self.tokens < self._capacity:
            self.tokens = min(self._capacity, self.tokens + max(1, spent))
        if self._reserve < self._reserve_capacity:
            self._reserve += 1


class RetryContext(NamedTuple):
    """What all calls of a session share.

    Attributes:
        policy: How often a call is tried, and how long it waits in between.
        quota: The session's retry budget.
        report: Receives retries and unknown outcomes.
        ask: Returns the query about a write, or `None` if no query is possible.
        mask: Returns a reply without the merchant's keys.
        pace: Clock, sleep and jitter. If the sleep returns `False`, the session closes, and no attempt follows.
    """

    policy: RetryPolicy
    quota: Quota
    report: EventSink
    ask: Callable[[Call], Call | None]
    mask: Callable[[Reply], Reply]
    pace: Pace


def retry(context: RetryContext) -> Layer:
    """Return the layer that repeats calls, and asks about writes whose response was lost."""

    async def layer(call: Call, send: Send) -> Reply:
        # The fast path: most calls succeed at their first attempt.
        result: Reply | BaseException
        try:
            reply = result = context.mask(await send(call))
            if reply.attempts == 1 and classify(call, reply) is SUCCESS:
                context.quota.pay_back(0)
                return reply
        except BaseException as error:  # noqa: BLE001 - judged below
            result = error
        return await Attempts(call, send, context).finish(result)

    return layer


class Attempts:
    """The attempts of a call whose first attempt did not succeed."""

    def __init__(self, call: Call, send: Send, context: RetryContext) -> None:
        self._call = call
        self._send = send
        self._context = context
        self._now = context.pace.clock
        self._bounds = backoff.expo(base=2, factor=context.policy.base_delay, max_value=context.policy.max_delay)
        next(self._bounds)  # backoff's generators begin with an empty step
        self._begun = 1
        self._spent = 0
        self._in_doubt_since = inf
        self._sends = call.earlier_sends or 0
        self._write_begun = False
        self._not_before = -inf

    async def finish(self, first: Reply | BaseException) -> Reply:
        """Return the reply of a call that succeeds after all, or raise its final error.

        Args:
            first: How the first attempt ended.
        """
        try:
            result = await self._settle(self._judge(self._call, first))
        except asyncio.CancelledError:
            if self._may_be_done():
                self._call.progress.begun = True  # maybe of a later attempt, but the journal reads it here
                self._report_unknown("cancelled after it was sent")
            raise
        if isinstance(result, Reply):
            self._context.quota.pay_back(self._spent)
            return result
        if not self._call.read:
            result.add(asked=compared_fields(by_document_names(self._call)))
        if isinstance(result, OutcomeUnknownError):
            result.add(used_before=self._call.progress.used_before)
            self._report_unknown(_reason_of(self._call, result))
        raise result

    async def _settle(self, result: AttemptResult) -> AttemptResult:
        """Return how the call ends, given how its first attempt ended."""
        call, policy = self._call, self._context.policy
        sends = 1
        while True:
            outcome = classify(call, result)
            self._note_doubt(outcome, result)
            action = decide(call, outcome, doubt=self._is_in_doubt())
            if action is Action.DONE:
                return result
            if action is Action.QUERY:
                # Without a durable note of "used before", the reconciler would believe a later "not found".
                if outcome is Outcome.DUPLICATE and call.note_used is not None and not await call.note_used(call):
                    return self._final_error(outcome, result)
                recovered = await self._query_outcome(result)
                if recovered is not None:
                    return recovered
                action = Action.END if self._is_in_doubt() else decide_after_absence(call, outcome)
            if call.lease is not None:
                call = call.derived(lease=call.lease.for_repeats())
            lease_over = call.lease is not None and call.lease.over
            may_send = action is Action.REPEAT and sends < policy.attempts and not lease_over
            if not may_send or not await self._wait(result):
                return self._final_error(outcome, result)
            sends += 1
            result = await self._attempt(call)

    def _is_in_doubt(self) -> bool:
        """Return whether an attempt may have carried out the write, and no query has shown otherwise."""
        return self._in_doubt_since < inf

    def _note_doubt(self, outcome: Outcome, result: AttemptResult) -> None:
        """Note whether this attempt may have carried out the write."""
        if outcome is Outcome.DUPLICATE and not is_in_progress(self._call, outcome):
            self._call.progress.used_before = True
        if leaves_doubt(self._call, outcome, result) or (outcome is Outcome.DUPLICATE and self._sends):
            self._in_doubt_since = self._now()
            self._sends += 1

    async def _query_outcome(self, lost: AttemptResult) -> AttemptResult | None:
        """Ask what became of the write. Return how it ends, or `None` if that is open or "not found" is final."""
        call = self._call
        query = self._context.ask(call) if self._has_time(self._now()) else None
        result, left, earliest = lost, QUERIES, -inf
        unknown: OutcomeUnknownError | None = None
        while query is not None and left and await self._wait(result, QUERY_REASON, earliest):
            left -= 1
            asked_at = self._now()
            result = await self._attempt(query)
            outcome, unknown = classify(query, result), None
            claim = claim_about(call, query, result)
            if claim is None:
                objection = objection_to(query, cast("Reply", result)) if outcome is Outcome.UNRECOGNISED else None
                if objection:
                    reason = f"the response to a query cannot be believed: {objection.words}"
                    unknown = unknown_error(call, reason, cast("Reply", result), objection=objection)
                if decide(query, outcome, doubt=False) is Action.END or (objection and not objection.about_another):
                    break
                continue
            reply, counts_at = cast("Reply", result), self._in_doubt_since + self._counts_after(claim)
            if asked_at - reply.age >= counts_at:
                if claim is not Claim.ABSENT:
                    return result_of_query(call, query, reply, claim)
                self._in_doubt_since = inf
                return None
            left += earliest == -inf
            earliest = counts_at + reply.age
            if outcome is SUCCESS or reply.age:
                unknown = unknown_error(call, describe_claim(query, reply, claim), reply)
        return unknown

    def _counts_after(self, claim: Claim) -> float:
        """Return how many seconds after the last attempt a query must be asked for its claim to count."""
        call = self._call
        return counts_after(
            claim,
            call.operation.name,
            call.profile.recovery.quarantine,
            sends=1 if call.operation == CLOSE_ORDER else self._sends,
            recorded=call.earlier_sends is not None,
            used_before=call.progress.used_before,
        )

    async def _attempt(self, call: Call) -> AttemptResult:
        self._begun += 1
        call = call.derived(attempt=self._begun, progress=Progress())
        try:
            ended: Reply | BaseException = self._context.mask(await self._send(call))
        except BaseException as error:  # noqa: BLE001 - judged below
            ended = error
        return self._judge(call, ended)

    def _judge(self, call: Call, ended: Reply | BaseException) -> AttemptResult:
        """Return how an attempt ended. Raise a cancellation, and a foreign error if no write was sent."""
        if isinstance(ended, Reply):
            if header := ended.headers.get("Retry-After"):
                self._note_retry_after(parse_retry_after(header), ended.status)
            return ended if ended.attempts == call.attempt else evolve(ended, attempts=call.attempt)
        call.progress.over = True
        begun = call.progress.begun and not call.read
        if isinstance(ended, PayasyncError):
            # This call's own refusal would be a reply. A `ServiceError` is from another call that a user's layer made.
            denies = ended.sent is False or isinstance(ended, ServiceError)
            return _lost_error(ended) if begun and denies else ended
        self._write_begun = self._write_begun or begun
        if isinstance(ended, Exception) and self._may_be_done():
            return _lost_error(ended)
        raise ended

    def _note_retry_after(self, seconds: float | None, status: int) -> None:
        """Remember `Retry-After` for this call, and after a 429 for the whole session."""
        if seconds is None:
            return
        now, quota = self._now(), self._context.quota
        self._not_before = now + seconds
        if status == RATE_LIMITED:
            quota.held_until = max(quota.held_until, now + seconds)

    def _may_be_done(self) -> bool:
        """Return whether the write may have been carried out, so that no foreign error may hide it."""
        return self._is_in_doubt() or self._write_begun

    def _has_time(self, start: float) -> bool:
        """Return whether an attempt that starts then has enough time."""
        return self._call.deadline - start >= self._call.timeouts.least

    async def _wait(self, result: AttemptResult, reason: str = "", earliest: float = -inf) -> bool:
        """Wait before the next attempt. Return `False` if the deadline or the quota does not allow one."""
        call, context = self._call, self._context
        now = self._now()
        delay = max(context.pace.jitter(next(self._bounds)), max(self._not_before, earliest) - now)
        cost = TIMEOUT_COST if isinstance(result, TimeoutError) else RETRY_COST
        if not self._has_time(now + delay) or not context.quota.take(cost, asking=reason == QUERY_REASON):
            return False
        self._spent += cost
        context.report(
            Retrying(
                operation=call.operation.name,
                reference=call.reference,
                attempt=self._begun + 1,
                delay=delay,
                reason=reason or _reason_of(call, result),
            )
        )
        return await context.pace.sleep(delay) is not False

    def _final_error(self, outcome: Outcome, result: AttemptResult) -> PayasyncError:
        call = self._call
        error = final_error(call, outcome, result, doubt=self._is_in_doubt())
        error.add(operation=call.operation.name, reference=call.reference, attempts=self._begun)
        if isinstance(error, ServiceError):
            error.add(absent=confirms_absence(call, result))
        left = self._not_before - self._now()
        if error.retry_after is None and left > 0:
            error.add(retry_after=left)
        return error

    def _report_unknown(self, reason: str) -> None:
        call = self._call
        self._context.report(Unknown(operation=call.operation.name, reference=call.reference, reason=reason))


def _lost_error(error: Exception) -> NoAnswerError:
    """Return the error for a request that was sent, if a user's layer raised one that does not say so."""
    reason = f"middleware raised {type(error).__name__}"
    lost = NoAnswerError(f"{reason} after it was sent", reason=reason)
    lost.__cause__ = error
    return lost


def _reason_of(call: Call, result: AttemptResult) -> str:
    if isinstance(result, PayasyncError):
        return str(result.reason or result.args[0])
    objection = objection_to(call, result) if classify(call, result) is Outcome.UNRECOGNISED else None
    return f"HTTP {result.status}, {objection.words}" if objection else f"HTTP {result.status}"
