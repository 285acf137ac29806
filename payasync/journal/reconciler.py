"""The reconciler: asks the service what became of unknown writes, and records what it says."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from inspect import iscoroutinefunction
from math import isfinite
from typing import Any, Final, TypeAlias, cast

from attrs import Factory, define, evolve

from payasync.clocks import Pace, utc_moment, wall_time
from payasync.endpoints import CLOSE_ORDER, PLACE_ORDER
from payasync.errors import (
    ConfigurationError,
    InvalidArgumentError,
    PayasyncError,
    SessionClosedError,
    StorageError,
    frameless_async,
)
from payasync.evidence.claims import Claim
from payasync.journal.intents import Intent, Intents, State
from payasync.journal.journal import Journal
from payasync.journal.reconcile_policy import (
    NAMELESS,
    UNSENT,
    Decision,
    End,
    Patience,
    QueryResult,
    Report,
    Result,
    classify_error,
    classify_response,
    decide,
    describe_end,
    is_due,
    is_unpaid_order,
    is_unsent,
    names_of,
    needs_person,
    query_for,
)
from payasync.middleware.observe import log
from payasync.session import Session
from payasync.settings import RetryPolicy, is_number
from payasync.wire.validators import invalid_argument

logger: Final = logging.getLogger("payasync")

QUESTION_SECONDS: Final = 30.0
"""A query takes no longer."""
LEASE: Final = QUESTION_SECONDS + 15.0
"""Seconds that a lease lasts, beyond its query, so that no busy machine loses one."""
INTERRUPTED_SECONDS: Final = 5.0
"""How long an interrupted run waits for what must not be cut: a lease, a write, and what became of it."""
SILENT: Final = 20
"""After so many queries in a row without a response, a run ends early."""
PAGE: Final = 500
SHORTEST: Final = 1.0
"""Seconds between two runs, at least."""
LONGEST: Final = 10.0
"""Seconds between two runs, at most, because another process may add something at any time."""

OnResult: TypeAlias = Callable[[Result], None]


@define
class _Run:
    """What one run has done so far.

    Attributes:
        started: When it began.
        on_result: Called with each result.
        ends: What became of the intents, counted.
        rejected: How many were not done.
        unanswered: How many queries in a row had no response.
    """

    started: datetime
    on_result: OnResult | None
    ends: list[End] = Factory(list)
    rejected: int = 0
    unanswered: int = 0

    @property
    def silent(self) -> bool:
        """Whether the service responds to nobody."""
        return self.unanswered >= SILENT

    def add(self, result: Result, claim: Claim | None) -> None:
        """Count a result, and report it."""
        if claim is Claim.BUSY:
            self.unanswered += 1
        elif claim is not None:
            self.unanswered = 0
        self.ends.append(result.end)
        self.rejected += result.rejected
        if self.on_result:
            self.on_result(result)


@define
class _LeasedIntent:
    """An intent that this run holds.

    Attributes:
        held: The intent, as it was leased.
        uncut: From now on an interruption waits until the result is recorded and reported.
    """

    held: Intent
    uncut: bool = False

    @property
    def asked_at(self) -> datetime:
        """The journal's time of the lease, before the query."""
        return cast("datetime", self.held.lease) - timedelta(seconds=LEASE)


class Reconciler:
    """Resolves one merchant's unknown writes by asking the service about them.

    The reconciler asks about each write by the number that names it, with growing pauses. If the service does not know
    the number after the quarantine, a direct write is rejected. A queued write is then sent again under that number. A
    queued write that cannot be queried is sent again under its idempotency key, within the key's lifetime. Any other
    write that cannot be queried, or is never resolved, becomes `manual`: a person ends it by `journal.resolve`. An
    accepted write is queried until it ends. It becomes `manual` if no response was usable for a day, and the last one
    is about something else.

    You may interrupt a reconciler at any time, and run several in several processes. Each reconciler holds the writes
    that it asks about by a lease and a fence. The journal's clock counts, so that a machine whose clock is wrong ends
    no quarantine early.

    Args:
        session: The merchant's session.
        journal: Stores the writes.
        quarantine: Seconds after which "not found" is final. It must exceed the longest time from the service's receipt
            of a request to its commit. Default: the profile's; if the profile has none, "not found" is never final.
        patience: How long the service is asked before a person is.
        concurrency: The most queries in flight.
        pace: Clock, waiting and jitter, for tests.

    Raises:
        ConfigurationError: A value has another type, or is too small.
    """

    def __init__(
        self,
        session: Session,
        journal: Journal,
        *,
        quarantine: float | None = None,
        patience: Patience = Patience(),
        concurrency: int = 10,
        pace: Pace = Pace(clock=wall_time),
    ) -> None:
        if type(concurrency) is not int or concurrency < 1:
            raise ConfigurationError(
                f"concurrency must be an integer of 1 or more, not {concurrency!r}", field="concurrency"
            )
        if not hasattr(journal, "recorder"):
            raise ConfigurationError(
                f'journal must be a journal, such as SqliteJournal("pay.db"), not {journal!r}', field="journal"
            )
        kinds = {"session": (session, Session), "patience": (patience, Patience), "pace": (pace, Pace)}
        for name, (value, kind) in kinds.items():
            if not isinstance(value, kind):
                raise ConfigurationError(f"{name} must be a {kind.__name__}, not {value!r}", field=name)
        self._session = session
        # Writes are sent again under the journal that holds them, whatever journal the session has.
        self._resending = session.with_options(journal=journal)
        # The journal keeps the pauses between queries, so the session adds none.
        self._asking = session.with_options(retry=RetryPolicy(attempts=1))
        self._journal = journal
        self._quarantine = session.profile.recovery.quarantine if quarantine is None else _check_quarantine(quarantine)
        self._patience = patience
        self._concurrency = concurrency
        self._pace = pace
        self._left_running: set[asyncio.Task[None]] = set()

    @frameless_async
    async def run_once(self, on_result: OnResult | None = None) -> Report:
        """Ask once about each write that is due, and return how many ended in which way.

        Args:
            on_result: A plain function, called with the result for each write.

        Raises:
            InvalidArgumentError: `on_result` is no plain function.
            StorageError: The journal cannot be read or written now. What was settled stays so.
            ConfigurationError: The session cannot ask at all: a key or a point of the profile is missing, or the
                writes went to another service. After any other error, such as one of a user's middleware, its write
                waits, and the run goes on.
        """
        if on_result is not None and (not callable(on_result) or iscoroutinefunction(on_result)):
            raise invalid_argument("on_result", "a plain function of a result, or None", on_result)
        run, errors = _Run(self._now(), on_result), list[BaseException]()
        workers = [asyncio.ensure_future(self._work(run)) for _ in range(self._concurrency)]

        def end_all(worker: asyncio.Task[None]) -> None:
            if not worker.cancelled() and (error := worker.exception()):
                errors.append(error)
                for each in workers:
                    each.cancel()

        for worker in workers:
            worker.add_done_callback(end_all)
        # Not a task group, in which a cancellation is lost if a worker fails.
        await asyncio.gather(*workers, return_exceptions=True)
        if errors:
            raise errors[0]
        unsent = await self._journal.count_unsent(self._session.merchant_id, self._now() - UNSENT)
        return Report.of(run.ends, silent=run.silent, unsent=unsent, rejected=run.rejected)

    async def watch(self, on_result: OnResult | None = None) -> AsyncGenerator[Report]:
        """Run whenever something is due, and yield the report of each run.

        If the service responds to no query, the pause is longer, even if something is due.
        """
        while True:
            report = await self.run_once(on_result)
            yield report
            await self._pace.sleep(LONGEST if report.silent else await self._until_next_due())

    async def _until_next_due(self) -> float:
        due = await self._journal.next_due(self._session.merchant_id)
        return LONGEST if due is None else min(max((due - self._now()).total_seconds(), SHORTEST), LONGEST)

    async def due(self) -> Intents:
        """Return the intents that a run would ask about now, and change nothing."""
        states: tuple[State, ...] = ("sending", "unknown", "accepted")
        found = [each for state in states for each in await self._list_own(state)]
        return [each for each in found if is_due(each, self._now())]

    async def unsent(self) -> Intents:
        """Return queued intents that were not sent for five minutes: no worker may be running, or none can send them.

        For an intent that was tried in vain, the five minutes begin when it was stored; its `reason` says why it
        failed.
        """
        return [each for each in await self._list_own("new") if is_unsent(each, self._now())]

    async def manual(self) -> Intents:
        """Return the intents that need a person.

        These are *manual* intents, and *accepted* intents that the service does not know, or about which no response
        was usable for a day (`Patience.give_up`). *Unknown* intents are among them if neither a query nor another send
        can settle them; they become *manual* in the run in which they are due.
        """
        # Another process may change states meanwhile: each state is read after those that lead to it.
        states: tuple[State, ...] = ("sending", "unknown", "accepted", "manual")
        found = {each.id: each for state in states for each in await self._list_own(state)}
        return [each for each in found.values() if needs_person(each, self._now(), self._patience)]

    async def _list_own(self, state: State) -> Intents:
        mine: Intents = []
        after, merchant = 0, self._session.merchant_id
        while page := await self._journal.list(state, limit=PAGE, after=after, merchant=merchant):
            mine += page
            after = page[-1].id
        return mine

    async def _work(self, run: _Run) -> None:
        while not run.silent and (leased := await self._lease(run)):
            task = asyncio.ensure_future(self._process(run, leased))
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError:
                if not leased.uncut:
                    task.cancel()
                await self._wait_briefly(task)
                raise
            task.result()

    async def _lease(self, run: _Run) -> _LeasedIntent | None:
        """Lease an intent that is due. If that is interrupted, end the lease that may have been made."""
        mine, service = self._session.merchant_id, self._session.service
        asking = asyncio.ensure_future(self._journal.ask(1, LEASE, merchant=mine, before=run.started, service=service))
        try:
            await asyncio.wait({asking})
        except asyncio.CancelledError:
            await self._wait_briefly(asyncio.ensure_future(self._release_when_leased(asking)))
            raise
        return next(map(_LeasedIntent, asking.result()), None)

    async def _release_when_leased(self, asking: Awaitable[Intents]) -> None:
        with suppress(PayasyncError):  # a lease that failed has nothing to give back
            for held in await asking:
                await self._release(_LeasedIntent(held))

    async def _wait_briefly(self, task: asyncio.Task[None]) -> None:
        """Wait some seconds for a task. After that it goes on by itself, and its failure is logged."""

        def finish(task: asyncio.Task[None]) -> None:
            self._left_running.discard(task)
            if not task.cancelled() and (error := task.exception()):
                words = "what an interrupted run had begun has failed: %(error_type)s"
                name = type(error).__name__
                log(logger, logging.WARNING, "reconciler.interrupted", words, error_type=name, exc_info=error)

        self._left_running.add(task)
        task.add_done_callback(finish)
        await asyncio.wait({task}, timeout=INTERRUPTED_SECONDS)

    async def _process(self, run: _Run, leased: _LeasedIntent) -> None:
        try:
            try:
                result, claim = await self._resolve(leased)
            except PayasyncError:
                raise
            except Exception as error:  # noqa: BLE001 - it is logged
                # Of a user's middleware, for example: this intent waits, and the run goes on.
                words = "intent %(intent_id)d cannot be asked about now"
                log(logger, logging.WARNING, "reconciler.query_failed", words, intent_id=leased.held.id, exc_info=True)
                queried = classify_error(error)
                # The error says nothing of whether the service responds.
                result, claim = await self._record(leased, self._decide(leased, queried), queried), None
            _log_end(result)
            run.add(result, claim)
        except BaseException:
            await self._release(leased)
            raise

    async def _resolve(self, leased: _LeasedIntent) -> tuple[Result, Claim | None]:
        queried, held = await self._ask(leased.held), leased.held
        places: Intents = []
        if held.operation == CLOSE_ORDER.name and held.reference is not None and queried.claim is Claim.DONE:
            places = await self._journal.find(PLACE_ORDER.name, held.reference, merchant=held.merchant)
        decision = self._decide(leased, queried, *places)
        if decision.state == "sending":
            refused = await self._resend(leased)
            if refused is None:
                return await self._result_of_resending(held), queried.claim
            queried, decision = refused, self._decide(leased, refused)
        return await self._record(leased, decision, queried), queried.claim

    async def _ask(self, intent: Intent) -> QueryResult:
        profile = self._session.profile
        if intent.damaged:
            return QueryResult(claim=None, state="manual", reason=intent.damaged)
        try:
            query = query_for(intent, profile)
            if query is None:
                return QueryResult(claim=None, reason=NAMELESS)
            call, reply = await self._asking.inquire(query, timeout=QUESTION_SECONDS, asked=names_of(intent, profile))
        except PayasyncError as error:
            return classify_error(error)
        known = classify_response(intent, query.answer.of(call, reply), call.profile, reply.age)
        return evolve(known, outcome=self._journal.outcome(call, evolve(reply, recovered=True)))

    def _decide(self, leased: _LeasedIntent, queried: QueryResult, place: Intent | None = None) -> Decision:
        return decide(
            leased.held,
            queried,
            asked_at=leased.asked_at,
            quarantine=self._quarantine,
            patience=self._patience,
            jitter=self._pace.jitter,
            lifetime=self._session.profile.idempotency.lifetime,
            place=place,
        )

    async def _resend(self, leased: _LeasedIntent) -> QueryResult | None:
        """Send a queued write again; its session keeps what becomes of it. Return why it could not be sent, if so."""
        leased.uncut, held = True, leased.held
        try:
            await self._resending.execute(held.id, fence=held.fence)
        except (ConfigurationError, InvalidArgumentError) as error:
            return QueryResult(claim=Claim.UNCLEAR, reason=f"cannot be sent again: {error.args[0]}")
        except (SessionClosedError, StorageError):
            raise
        except PayasyncError as error:
            words = "intent %(intent_id)d was sent again: %(reason)s"
            log(logger, logging.DEBUG, "reconciler.resent", words, intent_id=held.id, reason=str(error))
        except Exception as error:  # noqa: BLE001 - it is logged
            words = "intent %(intent_id)d was sent again, if at all, with an error"
            log(logger, logging.WARNING, "reconciler.resend_failed", words, intent_id=held.id, exc_info=True)
            now = await self._journal.get(held.id)
            # With another fence it was begun, and the session has stored what became of it.
            return None if now is None or now.fence != held.fence else classify_error(error)
        return None

    async def _result_of_resending(self, held: Intent) -> Result:
        now = await self._journal.get(held.id)
        if now is None or now.attempts == held.attempts:
            return Result(intent=held, end="lost", state=held.state)
        if now.fence != held.fence + 1:
            # Another process, or a notification, has changed it since, and reports the result.
            return Result(intent=held, end="sent", state="sending")
        return Result(
            intent=held, end="manual" if now.state == "manual" else "sent", state=now.state, reason=now.reason
        )

    async def _record(self, leased: _LeasedIntent, decision: Decision, queried: QueryResult) -> Result:
        leased.uncut = True
        held, state, reason = leased.held, decision.state, decision.reason
        # Counted from the query, and not from its response, because the quarantine is counted from there, too.
        due = None if decision.pause is None else leased.asked_at + timedelta(seconds=decision.pause)
        end: End
        if state == held.state and due is not None:
            facts: dict[str, Any] = {"denied": decision.denied, "silent_since": decision.silent_since}
            facts |= {"odd": int(queried.claim is Claim.UNCLEAR), "silent": int(queried.claim is Claim.BUSY)}
            still, end = await self._journal.postpone(held, due, reason, **facts), "waiting"
        else:
            still = await self._journal.settle(held, state, outcome=queried.outcome, reason=reason, due=due)
            end = "manual" if state == "manual" else "resolved"
        return Result(
            intent=held,
            end=end if still else "lost",
            state=state,
            reason=reason,
            answered=queried.usable or queried.state is not None,
            known=queried.known,
        )

    async def _release(self, leased: _LeasedIntent) -> None:
        """Let another run ask immediately, instead of when the lease ends."""
        held = leased.held
        facts: dict[str, Any] = {"denied": held.denied, "silent_since": held.silent_since}
        with suppress(PayasyncError):
            await self._journal.postpone(held, leased.asked_at, held.reason, **facts)

    def _now(self) -> datetime:
        return utc_moment(self._pace.clock())


def _log_end(result: Result) -> None:
    """Log a result that somebody may have to know."""
    held, words = result.intent, describe_end(result)
    if is_unpaid_order(result):
        log(
            logger,
            logging.INFO,
            "reconciler.order_unpaid",
            "%(reason)s",
            intent_id=held.id,
            reference=held.reference,
            reason=words,
        )
    elif words:
        log(
            logger,
            logging.WARNING,
            "reconciler.person_needed",
            "%(reason)s",
            intent_id=held.id,
            operation=held.operation,
            reference=held.reference,
            state=result.state,
            reason=words,
        )


def _check_quarantine(quarantine: float) -> float:
    if not is_number(quarantine) or not isfinite(quarantine) or quarantine < 0:
        raise ConfigurationError(
            f"quarantine must be a number of seconds, 0 or more, not {quarantine!r}", field="quarantine"
        )
    return float(quarantine)
