"""Writes that workers send, on procrastinate: journal and queue in one PostgreSQL. Extra `[procrastinate]`.

The queue carries nothing but the number of an intention, and may deliver it twice: the journal sends it once.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import procrastinate
from procrastinate import RetryDecision, exceptions
from procrastinate.jobs import Job

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
from payasync.journal.entries import request_of
from payasync.journal.intents import Intent
from payasync.journal.policy import LONGEST_RETRY_AFTER
from payasync.journal.postgres_journal import PostgresJournal
from payasync.journal.transactions import BY_STATE
from payasync.session import Session
from payasync.settings import check_function
from payasync.wire.request import Request
from payasync.wire.response import Response

logger: Final = logging.getLogger("payasync")

AGAIN: Final = (NotSentError, RateLimitedError, AuthenticationError, StorageError)
"""Nothing was done, and nothing speaks against the write itself."""
ATTEMPTS: Final = 8
GROWTH: Final = 4
"""Seconds until the first retry; each further one waits so many times longer."""
LONGEST: Final = 900.0
"""Seconds that a pause may grow to, where the service does not ask for more."""
AGE: Final = timedelta(minutes=1)
"""Of what waits to be sent: by then whoever kept it has enqueued it, or will not any more."""
REST: Final = timedelta(minutes=30)
"""Of what was tried in vain: for so long it is left in peace once no task tries it any more."""
STALLED: Final = 30.0
"""Seconds without a sign of life, after which a worker is taken for dead."""
PAGE: Final = 100
WAITING: Final = """
SELECT DISTINCT (args ->> 'intent_id')::bigint AS id FROM procrastinate_jobs
WHERE status = 'todo' AND task_name = %(name)s AND (args ->> 'intent_id')::bigint = ANY(%(ids)s)
"""
ANSWERED: Final = frozenset({"rejected", "sending"})
"""What it is that an answer has declined; *sending* where the journal is slow, or could not keep that."""
UNREADABLE: Final = "this version of payasync cannot read it"


def pause(error: BaseException, attempts: int) -> float | None:
    """Return the seconds after which a task is worth another attempt; `None` where it is not.

    Args:
        error: What it has ended with.
        attempts: How many there were before.
    """
    if not isinstance(error, AGAIN) or attempts >= ATTEMPTS or getattr(error, "permanent", False):
        return None
    asked = min(error.retry_after or 0.0, LONGEST_RETRY_AFTER)
    return max(asked, min(float(GROWTH ** (attempts + 1)), LONGEST))


def _declines(intent: Intent, answer: Response) -> bool:
    """Return whether an answer that is no refusal says all the same that it was not done."""
    return BY_STATE.get(intent.operation, {}).get(answer.state or "") == "rejected"


def _not_done(intent: Intent, reason: str, **facts: Any) -> ServiceError:
    about = {"operation": intent.operation, "reference": intent.reference}
    return ServiceError(f"it was not done: {reason}", reason=reason, **about, **facts)


class Retries(procrastinate.BaseRetryStrategy):
    """Tries again what was certainly not done: later each time, and not before the service lets it."""

    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision | None:
        """Say when to try again, if at all."""
        seconds = pause(exception, job.attempts)
        return None if seconds is None else RetryDecision(retry_at=datetime.now(UTC) + timedelta(seconds=seconds))


class PaymentTasks:
    """One merchant's tasks: `execute_intent`, which sends what was queued, and, by the clock, `reconcile`.

    Add them to your own application, and queue a write in the transaction of the business that it belongs to:

        tasks = PaymentTasks(session, journal)
        app.add_tasks_from(tasks.blueprint, namespace="payasync")

        async with connection.transaction():
            await connection.execute("UPDATE invoices SET refunded = true WHERE number = 'I1'")
            await tasks.add(CreateRefund(...), connection=connection)

    What the service refuses, or takes and declines at once, fails its task with the reason, and is not tried again.
    What a worker was at when it died is delivered again; what nobody knows the outcome of is asked about, and what
    `journal.add` alone has kept is enqueued within two minutes, and what was tried and no task tries any more after
    half an hour; not what cannot be made into a call, of which `Reconciler.unsent` tells with the reason.

    Several merchants share an application, a queue and a journal, each with tasks under a namespace of its own.

    Args:
        session: The merchant's; workers send by it.
        journal: In the same database as the queue.
        reconciler: Resolves what is unknown; left out: one with its defaults.
        queue: Of procrastinate.
        cron: When to reconcile.
        on_result: A plain function, called with what became of each write that was asked about: of one that was not
            done, `result.rejected`, whoever believes that it was hears so. What it raises is logged, and stops nothing.
        stalled: Seconds without a sign of life, after which a worker is taken for dead.

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
        self._age, self._rest = AGE, REST
        self.blueprint: Final = procrastinate.Blueprint()
        executing = self.blueprint.task(name="execute_intent", queue=queue, retry=Retries())
        # Of this merchant alone: of several in one queue, each is reconciled.
        waiting = f"{queue}:reconcile:{session.merchant_id}"
        reconciling = self.blueprint.task(name="reconcile", queue=queue, queueing_lock=waiting, pass_context=True)
        self._execute_intent = executing(self._execute)
        self.blueprint.periodic(cron=cron)(reconciling(self._reconcile))

    async def add(self, request: Request[Response], *, intent: str | None = None, connection: Any = None) -> int:
        """Keep a request, enqueue it, and return its intention's number; the same again is the same number.

        Args:
            request: Such as `CreateRefund(...)`.
            intent: The caller's own key.
            connection: Of psycopg, to the journal's database: it is kept, and enqueued, when that commits.

        Raises:
            InvalidArgumentError: As `journal.add`; or the service does not take it, as the profile says.
            NotConfiguredError: It needs a point that the profile leaves open.
            IntentConflictError: Its key stands for another request.
            ConfigurationError: The blueprint is in no application, or that is not open.
            StorageError: It cannot be kept now; a transaction of the caller's has failed then.
        """
        self._session.check(request)
        kept = await self._journal.add(
            request, merchant=self._session.merchant_id, intent=intent, connection=connection
        )
        # Without a lock of the queue: one that is taken would end the caller's transaction.
        await self._enqueue(kept, connection=connection)
        return kept

    async def _enqueue(self, intent_id: int, **options: Any) -> None:
        try:
            await self._execute_intent.configure(**options).defer_async(intent_id=intent_id)
        except exceptions.AlreadyEnqueued:
            return
        except (exceptions.UnboundTaskError, exceptions.AppNotOpen) as error:
            failure: ConfigurationError | StorageError = ConfigurationError(
                "blueprint must be in an application that is open: `app.add_tasks_from(tasks.blueprint, "
                f'namespace="payasync")`, `async with app.open_async()` ({type(error).__name__})',
                field="blueprint",
            )
        except exceptions.ConnectorException as error:
            why = str(error.__cause__ or error)
            failure = StorageError(f"the queue is unavailable: {why}", reason=why)
        else:
            return
        raise failure

    async def _execute(self, intent_id: int) -> None:
        before = await self._journal.get(intent_id)
        if before is not None and before.state == "rejected" and before.outcome is not None:
            # Delivered again: somebody may have paid it back by other means since this was told.
            raise _not_done(before, before.reason)
        try:
            answer = await self._session.execute(intent_id)
        except OutcomeUnknownError as error:
            # Asked about by `reconcile`: to repeat it is the one thing that must not happen.
            logger.info("intention %d is left to be asked about: %s", intent_id, error.reason)
            return
        now = await self._journal.get(intent_id)
        if now is not None and now.state in ANSWERED and _declines(now, answer):
            raise _not_done(now, f"the {answer.thing}'s state is {answer.state}", response=answer)

    async def _reconcile(self, context: procrastinate.JobContext, timestamp: int) -> None:
        del timestamp  # of the minute that it was due in
        await self._deliver_again(context.app.job_manager)
        await self._reconciler.run_once(self._heard)
        await self._enqueue_forgotten()

    def _heard(self, result: Result) -> None:
        if self._on_result is None:
            return
        try:
            self._on_result(result)
        except Exception:
            logger.exception("on_result raised about intention %d; reconciling goes on", result.intent.id)

    async def _deliver_again(self, jobs: Any) -> None:
        """Give back to the queue what workers held that have died."""
        names = self._execute_intent.name
        for job in await jobs.get_stalled_jobs(task_name=names, seconds_since_heartbeat=self._stalled):
            await jobs.retry_job(job)

    async def _enqueue_forgotten(self) -> None:
        """Enqueue what waits for a worker, and may be in no queue: nobody put it there, or its task has given up."""
        now, after = datetime.now(UTC), 0
        while page := await self._journal.list("new", limit=PAGE, after=after):
            forgotten = [each for each in page if self._is_forgotten(each, now)]
            waiting = await self._waiting(forgotten)
            for intent in forgotten:
                if intent.id not in waiting and await self._is_sendable(intent):
                    await self._enqueue(intent.id, queueing_lock=f"payasync:{intent.id}")
            after = page[-1].id

    def _is_forgotten(self, intent: Intent, now: datetime) -> bool:
        age = self._rest if intent.attempts else self._age
        return intent.merchant == self._session.merchant_id and now - intent.updated > age

    async def _waiting(self, intents: Sequence[Intent]) -> set[int]:
        """Return the numbers of those that a task has still to try: perhaps later, as the service has asked for."""
        if not intents:
            return set()
        task = self._execute_intent
        queue = task.configure().job_manager.connector
        found = await queue.execute_query_all_async(WAITING, name=task.name, ids=[each.id for each in intents])
        return {row["id"] for row in found}

    async def _is_sendable(self, intent: Intent) -> bool:
        """Return whether it can be made into a call by now; where not, each task would only fail: keep why, instead."""
        why = self._flaw(intent)
        if why and await self._journal.note(intent.id, why):
            logger.warning("intention %d cannot be sent, and is left to a person: %s", intent.id, why)
        return not why

    def _flaw(self, intent: Intent) -> str:
        try:
            self._session.check(request_of(intent))
        except (InvalidArgumentError, NotConfiguredError) as error:
            return str(error.args[0])
        except (KeyError, TypeError, ValueError):  # an operation or an argument that a newer one knows
            return UNREADABLE
        return ""
