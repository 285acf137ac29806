"""One call's attempts, the waits between them, and the questions after a lost response."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from math import inf
from typing import Any, Final, cast

import backoff
from attrs import evolve, frozen

from payasync.endpoints import CLOSE_ORDER
from payasync.errors import NoAnswerError, OutcomeUnknownError, PayasyncError, ServiceError
from payasync.middleware.observe import Retrying, Teller, Unknown
from payasync.middleware.outcome import (
    SUCCESS,
    Action,
    Row,
    confirms_absence,
    decide,
    decide_afresh,
    last_word,
    leaves_doubt,
    objection,
    of_close,
    retry_after,
    row,
    still_unknown,
)
from payasync.settings import RetryPolicy
from payasync.wire.call import Call, Objection, Progress, Reply, Send
from payasync.wire.match import named, tells_nothing

RETRY_COST: Final = 5
TIMEOUT_COST: Final = 10
KEPT: Final = 10
"""For questions alone one token is kept for so many of the capacity."""


class Quota:
    """A bucket of tokens, shared by all calls of a session.

    Beside it stands a small one that successes fill, for questions about writes that may have been done: while
    the service works at all, failing reads cannot keep a refund from being asked about.

    Args:
        capacity: The tokens that it starts with, and never exceeds; 0 allows no retry.

    Attributes:
        tokens: How many are left.
        held_until: When the service wants further requests after a 429, by the event loop's clock.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._most_kept = capacity // KEPT
        self._kept = 0
        self.tokens = capacity
        self.held_until = -inf

    def take(self, cost: int, *, asking: bool = False) -> bool:
        """Take the tokens of one retry, or of one question; `False` where there are not enough."""
        if cost <= self.tokens:
            self.tokens -= cost
            return True
        if asking and cost <= self._kept:
            self._kept -= cost
            return True
        return False

    def pay_back(self, taken: int) -> None:
        """Give back what a call took that succeeded; one token where it took none, and one for questions."""
        if self.tokens < self._capacity:
            self.tokens = min(self._capacity, self.tokens + max(1, taken))
        if self._kept < self._most_kept:
            self._kept += 1


LEAST_TIME: Final = 2.0
"""No retry starts with fewer seconds left, or less than a tenth of the call's total."""
QUESTIONS: Final = 3
"""How often a lost answer is asked about; the one after a quarantine comes on top."""
RATE_LIMITED: Final = 429
LONGEST_HOLD: Final = 86_400.0
"""Seconds that a 429 keeps further requests of `pay.bulk` back, at most."""
ASKING: Final = "ask what became of it"

Ask = Callable[[Call], Call | None]
"""Returns the query that tells what became of a write, or `None` where there is none."""


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


@frozen(kw_only=True)
class Pace:
    """Time and chance, so that tests can bring their own; a sleep that returns `False` was cut short for good."""

    clock: Callable[[], float] = _loop_time
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep
    jitter: Callable[[float], float] = backoff.full_jitter


def _no_question(_: Call) -> None:
    return None


@frozen(kw_only=True)
class Rules:
    """What all calls of a session have in common.

    Attributes:
        policy: How often and how patiently a call is tried.
        quota: The session's retry budget.
        tell: Hears of retries and of unknown outcomes.
        ask: Gives the query that tells what became of a write.
        pace: Time and chance.
    """

    policy: RetryPolicy
    quota: Quota
    tell: Teller
    ask: Ask = _no_question
    pace: Pace = Pace()


def retry(rules: Rules, send: Send) -> Send:
    """Return the way that repeats, and asks about, what may be repeated and asked about."""

    async def way(call: Call) -> Reply:
        # Most calls are settled by their first attempt, and need no more than this.
        ended: Reply | BaseException
        try:
            reply = ended = await send(call)
            if reply.attempts == 1 and row(call, reply) is SUCCESS:
                rules.quota.pay_back(0)
                return reply
        except BaseException as error:  # noqa: BLE001 - judged below
            ended = error
        return await Course(call, send, rules).run(ended)

    return way


class Course:
    """A call whose first attempt did not settle it: how often it was tried, and since when it is in doubt."""

    def __init__(self, call: Call, send: Send, rules: Rules) -> None:
        self._call = call
        self._send = send
        self._rules = rules
        self._clock = rules.pace.clock
        self._bounds = _bounds(rules.policy)
        self._attempts = 1
        self._taken = 0
        self._doubt: float | None = None
        self._sent_before = call.sent_before
        self._begun = False
        self._not_before = -inf

    async def run(self, ended: Reply | BaseException) -> Reply:
        """Return the reply of a call that succeeds after all; raise the error of any other."""
        try:
            outcome = await self._settled(self._outcome(self._call, ended))
        except asyncio.CancelledError:
            if self._in_doubt():
                self._call.progress.begun = True  # of a later attempt, perhaps: whoever keeps the call looks there
                self._tell_unknown("cancelled after it was sent")
            raise
        if isinstance(outcome, Reply):
            self._rules.quota.pay_back(self._taken)
            return outcome
        if not self._call.read:
            outcome.add(asked=named(self._call.fields))
        if isinstance(outcome, OutcomeUnknownError):
            outcome.add(used_before=self._call.progress.used_before)
            self._tell_unknown(_reason(outcome))
        raise outcome

    async def _settled(self, outcome: Reply | PayasyncError) -> Reply | PayasyncError:
        """Return what a call comes to whose first attempt ended so."""
        sends = 1
        while True:
            found = row(self._call, outcome)
            self._weigh(found)
            action = decide(self._call, found, doubt=self._doubt is not None)
            if action is Action.DONE:
                return outcome
            if action is Action.QUERY:
                if found is Row.DUPLICATE and not await self._note_used():
                    return self._last_word(found, outcome)
                recovered = await self._asked(outcome)
                if recovered is not None:
                    return recovered
                action = Action.END if self._doubt is not None else decide_afresh(self._call, found)
            may_send = action is Action.REPEAT and sends < self._rules.policy.attempts and not self._lease_over()
            if not may_send or not await self._paused(outcome):
                return self._last_word(found, outcome)
            sends += 1
            outcome = await self._attempt(self._call)

    def _weigh(self, found: Row) -> None:
        """Note what an attempt's end says of whether the write may have been done."""
        if found is Row.DUPLICATE:
            self._call.progress.used_before = True
        if leaves_doubt(self._call, found) or (found is Row.DUPLICATE and self._sent_before):
            self._doubt = self._clock()
            self._sent_before = True

    async def _note_used(self) -> bool:
        """Return whether "used before" outlives this process: else a later "absent" would be believed."""
        return self._call.note_used is None or await self._call.note_used()

    async def _asked(self, lost: Reply | PayasyncError) -> Reply | PayasyncError | None:
        """Ask what became of the write: what it comes to, or `None`; a final "absent" clears the doubt."""
        question = self._rules.ask(self._call)
        before, left, earliest = lost, QUESTIONS, -inf
        unmatched: Objection | None = None
        while question is not None and left and await self._paused(before, ASKING, earliest):
            left -= 1
            asked = self._clock()
            before = await self._attempt(question)
            if confirms_absence(question, before):
                if asked >= self._final_at():
                    self._doubt = None
                    return None
                left += earliest == -inf
                earliest = self._final_at()
                continue
            found = row(question, before)
            action = decide(question, found, doubt=False)
            if action is Action.DONE:
                return self._recovered(cast("Reply", before))
            unmatched = objection(question, cast("Reply", before)) if found is Row.UNRECOGNISED else None
            if action is Action.END or (unmatched and not unmatched.about_another):
                break
        if unmatched is None:
            return None
        why = f"the response to a query cannot be believed: {unmatched.words}"
        return still_unknown(self._call, why, cast("Reply", before), objection=unmatched)

    def _recovered(self, answer: Reply) -> Reply | PayasyncError:
        """Return what the write comes to by the response to a query, which may also say nothing of it."""
        call = self._call
        if why := tells_nothing(call.reference, call.profile.answer, answer.document):
            return still_unknown(call, why, answer)
        outcome = of_close(call, answer) if call.operation is CLOSE_ORDER else answer
        return evolve(outcome, recovered=True) if isinstance(outcome, Reply) else outcome

    def _final_at(self) -> float:
        """Return when "absent" becomes final: never where the service has said that the number was used before."""
        quarantine = self._call.profile.recovery.quarantine
        used_before = self._call.progress.used_before
        return inf if quarantine is None or self._doubt is None or used_before else self._doubt + quarantine

    async def _attempt(self, call: Call) -> Reply | PayasyncError:
        self._attempts += 1
        call = call.derived(attempt=self._attempts, progress=Progress())
        try:
            ended: Reply | BaseException = await self._send(call)
        except BaseException as error:  # noqa: BLE001 - judged below
            ended = error
        return self._outcome(call, ended)

    def _outcome(self, call: Call, ended: Reply | BaseException) -> Reply | PayasyncError:
        """Return what an attempt's end says of the call; raise what is not ours to judge."""
        if isinstance(ended, Reply):
            if asked := ended.headers.get("Retry-After"):
                self._heed(retry_after(asked), ended.status)
            return ended if ended.attempts == call.attempt else evolve(ended, attempts=call.attempt)
        call.progress.over = True
        begun = call.progress.begun and not call.read
        if isinstance(ended, PayasyncError):
            # A refusal comes as a reply: an error that is one is of another call, which a layer of the user's has made.
            denies = ended.sent is False or isinstance(ended, ServiceError)
            return _lost(ended) if begun and denies else ended
        self._begun = self._begun or begun
        if isinstance(ended, Exception) and self._in_doubt():
            return _lost(ended)
        raise ended

    def _heed(self, seconds: float | None, status: int) -> None:
        """Remember how long the service asked to be left alone, by a 429 all calls of the session."""
        if seconds is None:
            return
        self._not_before = self._clock() + seconds
        if status == RATE_LIMITED:
            until = self._clock() + min(seconds, LONGEST_HOLD)
            self._rules.quota.held_until = max(self._rules.quota.held_until, until)

    def _in_doubt(self) -> bool:
        """Return whether the write may have been done, so that neither a foreign error nor silence may hide it."""
        return self._doubt is not None or self._begun

    async def _paused(self, outcome: Reply | PayasyncError, why: str = "", earliest: float = -inf) -> bool:
        """Wait before a further attempt; `False` where the call's time or the session's quota does not allow one."""
        floor = max(self._not_before, earliest) - self._clock()
        delay = max(self._rules.pace.jitter(next(self._bounds)), floor)
        cost = TIMEOUT_COST if isinstance(outcome, TimeoutError) else RETRY_COST
        if not self._time_for(delay) or not self._rules.quota.take(cost, asking=why == ASKING):
            return False
        self._taken += cost
        self._rules.tell(self._retrying(delay, why or _reason(outcome)))
        return await self._rules.pace.sleep(delay) is not False

    def _lease_over(self) -> bool:
        return self._call.lease is not None and self._call.lease.over

    def _time_for(self, delay: float) -> bool:
        left = self._call.deadline - self._clock() - delay
        return left >= min(LEAST_TIME, self._call.timeouts.total / 10)

    def _last_word(self, found: Row, outcome: Reply | PayasyncError) -> PayasyncError:
        error = last_word(self._call, found, outcome, doubt=self._doubt is not None)
        error.add(operation=self._call.operation.name, reference=self._call.reference, attempts=self._attempts)
        if isinstance(error, ServiceError):
            error.add(absent=confirms_absence(self._call, outcome))
        left = self._not_before - self._clock()
        if error.retry_after is None and left > 0:
            error.add(retry_after=left)
        return error

    def _retrying(self, delay: float, reason: str) -> Retrying:
        return Retrying(
            operation=self._call.operation.name,
            reference=self._call.reference,
            attempt=self._attempts + 1,
            delay=delay,
            reason=reason,
        )

    def _tell_unknown(self, reason: str) -> None:
        self._rules.tell(Unknown(operation=self._call.operation.name, reference=self._call.reference, reason=reason))


def _lost(error: Exception) -> NoAnswerError:
    """Return what an error means that says nothing of a request, or denies it, where that may have left."""
    reason = f"middleware raised {type(error).__name__}"
    lost = NoAnswerError(f"{reason} after it was sent", reason=reason)
    lost.__cause__ = error
    return lost


def _bounds(policy: RetryPolicy) -> Iterator[float]:
    """Yield the greatest wait before each further attempt: it doubles, up to the policy's limit."""
    bounds = backoff.expo(base=2, factor=policy.base_delay, max_value=policy.max_delay)
    next(bounds)  # backoff's generators begin with an empty step
    yield from bounds


def _reason(outcome: Reply | PayasyncError) -> str:
    return str(outcome.reason or outcome.args[0]) if isinstance(outcome, PayasyncError) else f"HTTP {outcome.status}"
