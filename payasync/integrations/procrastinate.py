"""Workers that send queued writes, on procrastinate: journal and queue in one PostgreSQL. Extra `[procrastinate]`.

The queue carries only the number of an intent, and may deliver it twice. The journal sends it once.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import procrastinate
from procrastinate import RetryDecision, exceptions
from procrastinate.jobs import Job

from payasync.clocks import utc_now
from payasync.errors import (
    AuthenticationError,
    ConfigurationError,
    InvalidArgumentError,
    NotConfiguredError,
    NotSentError,
    OutcomeUnknownError,
    RateLimitedError,
    ServiceError,
    StorageError,
)
from payasync.journal import Reconciler, Result
from payasync.journal.drafts import request_from_intent
from payasync.journal.intents import Intent, write_state
from payasync.journal.postgres_journal import PostgresJournal
from payasync.middleware.observe import log
from payasync.session import Session
from payasync.settings import check_function, invalid_setting
from payasync.wire.request import Request
from payasync.wire.response import Response

__all__ = ["PaymentTasks", "Retries"]

logger: Final = logging.getLogger("payasync")

RETRIED: Final = (NotSentError, RateLimitedError, AuthenticationError, StorageError)
"""After these errors nothing was done, and nothing speaks against the write itself."""
ATTEMPTS: Final = 8
GROWTH: Final = 4
"""Seconds until the first retry. Each further pause is so many times longer."""
LONGEST: Final = 900.0
"""Seconds that a pause may grow to, unless the service asks for more."""
FORGOTTEN_AFTER: Final = timedelta(minutes=1)
"""After so long, a write that was only added to the journal is enqueued."""
TRIED_AGAIN_AFTER: Final = timedelta(minutes=30)
"""After so long, a write is enqueued again if its task has given up."""
STALLED: Final = 30.0
"""Seconds without a heartbeat, after which a worker is taken for dead."""
PAGE: Final = 100
WAITING: Final = """
SELECT DISTINCT (args ->> 'intent_id')::bigint AS id FROM procrastinate_jobs
WHERE status = 'todo' AND task_name = %(name)s AND (args ->> 'intent_id')::bigint = ANY(%(ids)s)
"""
DECLINED: Final = frozenset({"rejected", "sending"})
"""The states of an intent that a response has declined; *sending* if the journal is slow, or could not keep that."""
ENDED: Final = frozenset({"accepted", "succeeded", "rejected", "manual"})
"""The states of an intent whose task has nothing left to send or to ask."""


def pause(error: BaseException, attempts: int) -> float | None:
    """Return the seconds after which a task is tried again; `None` if it is not.

    Args:
        error: The error that the task has ended with.
        attempts: How many attempts there were before.
    """
    if not isinstance(error, RETRIED) or attempts >= ATTEMPTS or getattr(error, "permanent", False):
        return None
    return max(error.retry_after or 0.0, min(float(GROWTH ** (attempts + 1)), LONGEST))


def _not_done_error(intent: Intent, reason: str, **facts: Any) -> ServiceError:
    about = {"operation": intent.operation, "reference": intent.reference}
    return ServiceError(f"it was not done: {reason}", reason=reason, **about, **facts)


class Retries(procrastinate.BaseRetryStrategy):
    """Retries writes that were certainly not done: later each time, and not before the service allows it."""

    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision | None:
        """Return when to try again, or `None` for never."""
        seconds = pause(exception, job.attempts)
        return None if seconds is None else RetryDecision(retry_at=utc_now() + timedelta(seconds=seconds))


class PaymentTasks:
    """One merchant's tasks: `execute_intent` sends a queued write, and `reconcile` runs regularly.

    Add them to your own application, and queue a write in the same transaction as your own rows:

        tasks = PaymentTasks(session, journal)
        app.add_tasks_from(tasks.blueprint, namespace="payasync")

        async with connection.transaction():
            await connection.execute("UPDATE invoices SET refunded = true WHERE number = 'I1'")
            await tasks.add(CreateRefund(...), connection=connection)

    If the service refuses a write, or accepts and then declines it, the task fails with the reason and is not tried
    again. `reconcile` queues the tasks of dead workers again, and asks about writes whose outcome is unknown. If
    only `journal.add` has stored a write, `reconcile` enqueues the write within two minutes. If no task tries a write
    any more, `reconcile` enqueues the write after half an hour. A write that cannot be made into a call is not
    enqueued; `Reconciler.unsent` lists it with the reason.

    Several merchants can share an application, a queue and a journal, each with tasks under its own namespace.

    Args:
        session: The merchant's, by which workers send.
        journal: In the same database as the queue.
        reconciler: Resolves unknown writes; default: one with its defaults.
        queue: The name of procrastinate's queue.
        cron: When to reconcile.
        on_result: A plain function, called with the result of each write that a task has sent or that was queried. If
            `result.rejected` is true, inform the people who believe that the write was done. An exception of the
            function is logged, and stops nothing.
        stalled: Seconds without a heartbeat after which a worker counts as dead.

    Attributes:
        blueprint: The tasks, for your application.

    Raises:
        ConfigurationError: `on_result` is no plain function.
    """

    def __init__(
        self,
        session: Session,
        journal: PostgresJournal,
        *,
        reconciler: Reconciler | None = None,
        queue: str = "payasync",
        cron: str = "* * * * *",
        on_result: Callable[[Result], object] | None = None,
        stalled: float = STALLED,
    ) -> None:
        if on_result is not None:
            check_function("on_result", on_result)
        self._session = session.with_options(journal=journal)
        self._journal = journal
        self._reconciler = reconciler or Reconciler(session, journal)
        self._on_result = on_result
        self._stalled = stalled
        self.blueprint: Final = procrastinate.Blueprint()
        executing = self.blueprint.task(name="execute_intent", queue=queue, retry=Retries(), pass_context=True)
        # Of this merchant alone: of several in one queue, each is reconciled.
        waiting = f"{queue}:reconcile:{session.merchant_id}"
        reconciling = self.blueprint.task(name="reconcile", queue=queue, queueing_lock=waiting, pass_context=True)
        self._execute_intent = executing(self._execute)
        self.blueprint.periodic(cron=cron)(reconciling(self._reconcile))

    async def add(self, request: Request[Response], *, intent: str | None = None, connection: Any = None) -> int:
        """Store a request, enqueue it, and return the number of its intent. The same request has the same number.

        Args:
            request: Such as `CreateRefund(...)`.
            intent: Your own name of the write, its key in the journal.
            connection: A connection of psycopg to the journal's database. The request is stored, and enqueued, when its
                transaction commits.

        Raises:
            InvalidArgumentError: As `journal.add`; or the service does not take the request, as the profile says.
            NotConfiguredError: The request needs a point that the profile leaves open.
            IntentConflictError: The key belongs to another request.
            ConfigurationError: The blueprint is in no application, or the application is not open.
            StorageError: The request cannot be stored now. If you gave a connection, its transaction has failed.
        """
        self._session.check(request)
        merchant = self._session.merchant_id
        stored = await self._journal.add(request, merchant=merchant, intent=intent, connection=connection)
        # Without a lock of the queue: one that is taken would end the caller's transaction.
        await self._enqueue(stored, connection=connection)
        return stored

    async def _enqueue(self, intent_id: int, **options: Any) -> None:
        try:
            await self._execute_intent.configure(**options).defer_async(intent_id=intent_id)
        except exceptions.AlreadyEnqueued:
            return
        except (exceptions.UnboundTaskError, exceptions.AppNotOpen) as error:
            calls = '`app.add_tasks_from(tasks.blueprint, namespace="payasync")`, `async with app.open_async()`'
            why = f"must be in an application that is open: {calls} ({type(error).__name__})"
            failure: ConfigurationError | StorageError = invalid_setting("blueprint", why)
        except exceptions.ConnectorException as error:
            why = str(error.__cause__ or error)
            failure = StorageError(f"the queue is unavailable: {why}", reason=why)
        else:
            return
        raise failure

    async def _execute(self, context: procrastinate.JobContext, intent_id: int) -> None:
        before = await self._journal.get(intent_id)
        try:
            if before is not None and before.state == "rejected":
                # Delivered again: somebody may have paid it back by other means since the task failed.
                raise _not_done_error(before, before.reason)
            response = await self._session.execute(intent_id)
        except OutcomeUnknownError as error:
            # `reconcile` asks about it. It must not be repeated.
            words = "intent %(intent_id)d is left to be asked about: %(reason)s"
            log(logger, logging.INFO, "tasks.outcome_unknown", words, intent_id=intent_id, reason=error.reason)
            return
        except ServiceError:
            self._notify_end(before, await self._journal.get(intent_id), context.job)
            raise
        now = await self._journal.get(intent_id)
        self._notify_end(before, now, context.job)
        if now is not None and now.state in DECLINED and write_state(now.operation, response.state) == "rejected":
            raise _not_done_error(now, f"the {response.thing}'s state is {response.state}", response=response)

    def _notify_end(self, before: Intent | None, now: Intent | None, job: Job) -> None:
        """Report how a task ended a write. Another task has reported a write that had ended before this one began."""
        if before is None or now is None or now.state not in ENDED:
            return
        # If this job has made all attempts, its worker may have died, or lost the journal, before it reported the end.
        if before.state not in ENDED or 0 < before.attempts <= job.attempts:
            end: Final = "manual" if now.state == "manual" else "resolved"
            self._notify(Result(intent=before, end=end, state=now.state, reason=now.reason))

    async def _reconcile(self, context: procrastinate.JobContext, timestamp: int) -> None:
        del timestamp  # of the minute that it was due in
        # The jobs of dead workers go back to the queue.
        jobs, name = context.app.job_manager, self._execute_intent.name
        for job in await jobs.get_stalled_jobs(task_name=name, seconds_since_heartbeat=self._stalled):
            await jobs.retry_job(job)
        await self._reconciler.run_once(self._notify)
        await self._enqueue_forgotten()

    def _notify(self, result: Result) -> None:
        if self._on_result is None:
            return
        try:
            self._on_result(result)
        except Exception:  # noqa: BLE001 - it is logged
            words = "on_result raised about intent %(intent_id)d; the work goes on"
            log(logger, logging.ERROR, "tasks.on_result_failed", words, intent_id=result.intent.id, exc_info=True)

    async def _enqueue_forgotten(self) -> None:
        """Enqueue new intents that are in no queue: nobody put them there, or their tasks have given up."""
        now, after, merchant = utc_now(), 0, self._session.merchant_id
        while page := await self._journal.list("new", limit=PAGE, after=after, merchant=merchant):
            waits = ((each, TRIED_AGAIN_AFTER if each.attempts else FORGOTTEN_AFTER) for each in page)
            forgotten = [each for each, wait in waits if now - each.updated > wait]
            waiting = await self._waiting(forgotten)
            for intent in forgotten:
                if intent.id not in waiting and await self._is_sendable(intent):
                    await self._enqueue(intent.id, queueing_lock=f"payasync:{intent.id}")
            after = page[-1].id

    async def _waiting(self, intents: Sequence[Intent]) -> set[int]:
        """Return the numbers of the intents that a task has still to try."""
        if not intents:
            return set()
        task = self._execute_intent
        queue = task.configure().job_manager.connector
        found = await queue.execute_query_all_async(WAITING, name=task.name, ids=[each.id for each in intents])
        return {row["id"] for row in found}

    async def _is_sendable(self, intent: Intent) -> bool:
        """Return whether an intent can be made into a call. If not, record the reason, because each task would fail."""
        try:
            self._session.check(request_from_intent(intent))
        except (InvalidArgumentError, NotConfiguredError) as error:
            why = str(error.reason or error.args[0])
        else:
            return True
        if await self._journal.note(intent.id, why, manual=bool(intent.damaged)):
            words = "intent %(intent_id)d cannot be sent, and is left to a person: %(reason)s"
            log(logger, logging.WARNING, "tasks.not_sendable", words, intent_id=intent.id, reason=why)
        return False
