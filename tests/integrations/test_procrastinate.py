"""Writes that workers send: queued in a transaction of the business, and sent once."""

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any, Final

import procrastinate
import psycopg
import pytest
from attrs import evolve, frozen
from procrastinate.periodic import PeriodicDeferrer
from psycopg.pq import TransactionStatus

from payasync import RetryPolicy, Session, errors
from payasync.clocks import Pace
from payasync.integrations.procrastinate import PaymentTasks, pause
from payasync.journal import PostgresJournal, Reconciler, Result
from payasync.journal.intents import Intent
from payasync.resources.refunds import CreateRefund
from payasync.sandbox import PROFILE, Sandbox
from tests.journal.building import PAYMENT, draft

SECONDS: Final = 60

ONCE: Final = RetryPolicy(attempts=1, base_delay=0, max_delay=0)
YEARLY: Final = "0 0 1 1 *"


def refund(number: str) -> CreateRefund:
    """Return a small refund of the order."""
    return CreateRefund(out_trade_no="T1", out_refund_no=number, total_amt=45_000, refund_amt=100)


@pytest.fixture
async def sandbox(request: pytest.FixtureRequest) -> AsyncGenerator[Sandbox]:
    """A service with a paid order. A parameter says how its refunds end."""
    async with Sandbox(clock="frozen", refunds=getattr(request, "param", "by hand")) as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1", total_amt=45_000)
        yield sandbox


@frozen
class Shop:
    """A merchant with a queue.

    Attributes:
        app: Of procrastinate.
        tasks: The merchant's.
        journal: In the queue's database.
        pay: The session.
        dsn: Of the database.
        namespace: The tasks'.
    """

    app: procrastinate.App
    tasks: PaymentTasks
    journal: PostgresJournal
    pay: Session
    dsn: str
    namespace: str = "payasync"

    def with_tasks(self, tasks: PaymentTasks) -> "Shop":
        """Return the shop with other tasks in its queue."""
        self.app.add_tasks_from(tasks.blueprint, namespace="other")
        return evolve(self, tasks=tasks, namespace="other")

    def through(self, pay: Session) -> "Shop":
        """Return the shop with tasks that send with another session."""
        return self.with_tasks(PaymentTasks(pay, self.journal, cron=YEARLY))

    async def reconcile(self) -> None:
        """Reconcile as the clock would have it."""
        context: Any = type("Context", (), {"app": self.app})()
        await self.app.tasks[f"{self.namespace}:reconcile"](context, 0)

    async def execute(self, statement: str, *values: object) -> list[Any]:
        """Do something in the database, as somebody else would, and return what that gives."""
        async with await psycopg.AsyncConnection.connect(self.dsn, autocommit=True) as connection:
            found = await connection.execute(statement.encode(), values)
            return await found.fetchall() if found.description else []

    async def wait(self, minutes: int) -> None:
        """Let all that is in the journal be so much older."""
        await self.execute("UPDATE payasync_intents SET updated = updated - interval '1 min' * %s", minutes)

    async def work(self) -> None:
        """Have a worker do what is in the queue."""
        await self.app.run_worker_async(wait=False, listen_notify=False, install_signal_handlers=False)

    async def jobs(self, task: str = "execute_intent") -> list[str]:
        """Return the states and the attempts of a task's jobs."""
        found = await self.app.job_manager.list_jobs_async()
        return [f"{job.status} {job.attempts}" for job in found if job.task_name.endswith(f":{task}")]

    async def results(self) -> tuple[list[tuple[str | None, str]], list[str]]:
        """Return the states of the intents, and those of their jobs."""
        return await self.states(), await self.jobs()

    async def states(self) -> list[tuple[str | None, str]]:
        """Return the numbers and the states of the journal's intents."""
        return [(each.reference, each.state) for each in await self.journal.list()]


@pytest.fixture
async def shop(postgres_dsn: str, sandbox: Sandbox) -> AsyncGenerator[Shop]:
    """A merchant with an empty queue."""
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=postgres_dsn, min_size=1))
    async with PostgresJournal(postgres_dsn) as journal, sandbox.session(retry=ONCE) as pay, app.open_async():
        await app.schema_manager.apply_schema_async()
        tasks = PaymentTasks(pay, journal, reconciler=Reconciler(pay, journal), cron=YEARLY)
        app.add_tasks_from(tasks.blueprint, namespace="payasync")
        yield Shop(app, tasks, journal, pay, postgres_dsn)


async def test_queued_with_the_business(shop: Shop, sandbox: Sandbox) -> None:
    """The intent and its task are committed with the caller's transaction, or rolled back with it."""
    async with await psycopg.AsyncConnection.connect(shop.dsn) as connection:
        await shop.tasks.add(refund("R1"), connection=connection)
        await connection.rollback()
        rolled_back = await shop.results()
        await shop.tasks.add(refund("R2"), connection=connection)
    committed = await shop.results()
    await shop.work()

    assert ([], []) == rolled_back
    assert ([("R2", "new")], ["todo 0"]) == committed
    assert ([("R2", "accepted")], ["succeeded 1"]) == await shop.results()
    assert "processing" == sandbox.ledger.refund_state("R2")


async def test_on_result_gets_what_was_not_done(shop: Shop, sandbox: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    """`on_result` gets each result, even one that comes days later. If it raises, the reconciliation goes on."""
    heard: list[Result] = []

    def on_result(result: Result) -> None:
        heard.append(result)
        raise ValueError(result.intent.reference)

    for number in ("R1", "R2"):
        await shop.tasks.add(refund(number))
    await shop.work()
    await sandbox.bank.settle_refund("R1", "failed")
    await sandbox.bank.settle_refund("R2")
    async with PostgresJournal(shop.dsn, clock=tomorrow) as journal:
        reconciler = Reconciler(shop.pay, journal, pace=Pace(clock=tomorrow))
        tasks = PaymentTasks(shop.pay, journal, reconciler=reconciler, on_result=on_result, cron=YEARLY)
        await shop.with_tasks(tasks).reconcile()

    assert [("R1", "rejected"), ("R2", "succeeded")] == await shop.states()
    assert [("R1", "the refund's state is failed")] == [(it.intent.reference, it.reason) for it in heard if it.rejected]
    assert ["succeeded"] == [it.state for it in heard if not it.rejected]
    assert 2 == sum("on_result raised" in each.getMessage() for each in caplog.records)


def tomorrow() -> float:
    """Return the time of a day later."""
    return time.time() + 86_400


async def test_on_result_gets_the_end_of_a_task(shop: Shop, sandbox: Sandbox) -> None:
    """`on_result` gets the end of a write once, from the task that sent it. A second task sends and reports nothing."""
    heard: list[Result] = []
    other = shop.with_tasks(PaymentTasks(shop.pay, shop.journal, on_result=heard.append, cron=YEARLY))
    for request in (refund("R1"), refund("R1"), evolve(refund("R2"), total_amt=44_000)):
        await other.tasks.add(request)
    await shop.work()
    await other.tasks.add(refund("R1"))
    await shop.work()
    intents = await shop.journal.list()

    ends = [("resolved", "accepted", False), ("resolved", "rejected", True)]
    assert ends == [(each.end, each.state, each.rejected) for each in heard]
    assert [each.reason for each in intents] == [each.reason for each in heard]
    assert 2 == len(sandbox.ledger.calls("refunds.create"))


async def test_lost_response_is_resolved_by_the_reconciliation(shop: Shop, sandbox: Sandbox) -> None:
    """A task whose response was lost succeeds and reports nothing. The next reconciliation asks, and reports the end.

    The write is not sent again.
    """
    heard: list[Result] = []
    sandbox.faults.reset_after_commit("refunds.create")
    sandbox.faults.reset_before("refunds.status", times=None)
    other = shop.with_tasks(PaymentTasks(shop.pay, shop.journal, on_result=heard.append, cron=YEARLY))
    for number in ("R1", "R2"):
        await other.tasks.add(refund(number))
    await shop.work()
    before, by_tasks = await shop.results(), list(heard)
    sandbox.faults.clear()
    await other.reconcile()

    assert ([("R1", "unknown"), ("R2", "accepted")], ["succeeded 1"] * 2) == before
    assert ["R2"] == [each.intent.reference for each in by_tasks]
    ends = [(each.intent.reference, each.state) for each in heard if each.end != "waiting"]
    assert [("R2", "accepted"), ("R1", "accepted")] == ends
    assert 2 == len(sandbox.ledger.calls("refunds.create"))


async def test_on_result_is_a_plain_function(shop: Shop) -> None:
    """`on_result` must be a plain function, because nobody awaits a coroutine."""
    wrong: list[Any] = [1, asyncio.sleep]
    for each in wrong:
        with pytest.raises(errors.ConfigurationError, match="on_result must be a plain function"):
            PaymentTasks(shop.pay, shop.journal, on_result=each)


def an_error(kind: type[errors.PayasyncError], **facts: Any) -> errors.PayasyncError:
    """Return an error with such facts."""
    error = kind("no")
    error.add(**facts)
    return error


def test_pause() -> None:
    """Pauses grow, last as long as the service asks for. Other errors are not retried."""
    cases: list[tuple[Exception, int, float | None]] = [
        (an_error(errors.NotSentError), 0, 4.0),
        (an_error(errors.StorageError), 1, 16.0),
        (an_error(errors.AuthenticationError), 7, 900.0),
        (an_error(errors.AuthenticationError), 8, None),
        (an_error(errors.RateLimitedError, retry_after=2.5), 0, 4.0),
        (an_error(errors.RateLimitedError, retry_after=3600.0), 0, 3600.0),
        (an_error(errors.NotSentError, retry_after=3600.0), 7, 3600.0),
        (an_error(errors.NotSentError, permanent=True), 0, None),
        (an_error(errors.ServiceError), 0, None),
        (an_error(errors.InvalidArgumentError), 0, None),
        (ValueError("no"), 0, None),
    ]
    for error, attempts, expected in cases:
        assert expected == pause(error, attempts), (error, attempts)


async def test_what_was_not_sent_is_tried_again(shop: Shop, sandbox: Sandbox) -> None:
    """If nothing was sent, the queue runs the task later."""
    sandbox.faults.refuse()
    await shop.tasks.add(refund("R1"))
    await shop.work()
    (job,) = await shop.app.job_manager.list_jobs_async()

    assert ([("R1", "new")], ["todo 1"]) == await shop.results()
    assert job.scheduled_at is not None


@pytest.mark.parametrize("sandbox", ["fail"], indirect=True)
async def test_declined_write_fails(shop: Shop, sandbox: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    """The task of a declined write fails with the reason, also if the response is lost. It is not sent again."""
    sandbox.faults.reset_after_commit("refunds.create")
    for numbers in (("R1",), ("R2", "R2")):
        for number in numbers:
            await shop.tasks.add(refund(number))
        await shop.work()
    errors = [str(each.exc_info[1]) for each in caplog.records if each.exc_info]

    assert ([("R1", "rejected"), ("R2", "rejected")], ["failed 1"] * 3) == await shop.results()
    words = "it was not done: the refund's state is failed"
    assert [f"refunds.create {number}: {words}" for number in ("R1", "R2", "R2")] == errors
    assert 2 == len(sandbox.ledger.calls("refunds.create"))


class Failing(PostgresJournal):
    """A journal that fails at each reading of a rejected write, as long as `fails` is true."""

    fails = True

    async def get(self, intent_id: int) -> Intent | None:
        """Return an intent, or raise."""
        found = await super().get(intent_id)
        if self.fails and found and found.state == "rejected":
            raise errors.StorageError("the server is away")
        return found


@pytest.mark.parametrize("sandbox", ["fail"], indirect=True)
async def test_declined_write_of_a_failing_journal_is_not_sent_again(shop: Shop, sandbox: Sandbox) -> None:
    """If the journal fails after a refund was declined, the task is retried. It reports the end, and sends nothing."""
    heard: list[Result] = []
    async with Failing(shop.dsn) as journal:
        other = shop.with_tasks(PaymentTasks(shop.pay, journal, on_result=heard.append, cron=YEARLY))
        await other.tasks.add(refund("R1"))
        await shop.work()
        waiting, before, journal.fails = await shop.jobs(), list(heard), False
        await shop.execute("UPDATE procrastinate_jobs SET scheduled_at = NULL")
        await shop.work()

    assert (["todo 1"], []) == (waiting, before)
    assert (["failed 2"], [True]) == (await shop.jobs(), [each.rejected for each in heard])
    assert 1 == len(sandbox.ledger.calls("refunds.create"))


async def test_task_ends_as_its_own_response_says(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a notification declines an accepted write before its task ends, the task succeeds."""
    execute = Session.execute

    async def overtaken(self: Session, intent_id: int) -> Any:
        response = await execute(self, intent_id)
        await shop.journal.told("refunds.create", "R1", "failed", {}, merchant=shop.pay.merchant_id)
        return response

    # Only a patch comes between the end of the write and the end of its task.
    monkeypatch.setattr(Session, "execute", overtaken)
    await shop.tasks.add(refund("R1"))
    await shop.work()

    assert ([("R1", "rejected")], ["succeeded 1"]) == await shop.results()


async def test_what_the_service_does_not_take_is_not_added(shop: Shop, sandbox: Sandbox) -> None:
    """A write that the profile does not allow is refused before anything is stored."""
    tasks = shop.through(strict(sandbox)).tasks
    async with await psycopg.AsyncConnection.connect(shop.dsn) as connection:
        with pytest.raises(errors.InvalidArgumentError, match="refund_desc"):
            await tasks.add(evolve(refund("R1"), refund_desc="too long"), connection=connection)
        assert TransactionStatus.IDLE == connection.info.transaction_status

    assert ([], []) == await shop.results()


def strict(sandbox: Sandbox) -> Session:
    """Return a session of a service that takes short descriptions alone."""
    profile = evolve(PROFILE, accept=evolve(PROFILE.accept, length={"refund_desc": 5}))
    return sandbox.session(profile=profile)


async def test_what_cannot_be_sent_is_left_to_a_person(
    shop: Shop, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    """If a write cannot be sent, the reconciliation does not enqueue it, stores the reason and logs it once."""
    merchant = shop.pay.merchant_id
    for number, text in (("R1", "too long"), ("R2", "short"), ("R3", "newer")):
        await shop.journal.add(evolve(refund(number), refund_desc=text), merchant=merchant)
    await shop.execute("UPDATE payasync_intents SET operation = 'refunds.newer' WHERE reference = 'R3'")
    await shop.wait(minutes=2)
    other = shop.through(strict(sandbox))
    await other.reconcile()
    await other.reconcile()
    jobs, left = await shop.jobs(), await shop.journal.list("new")
    await shop.reconcile()

    assert ["todo 0"] == jobs
    assert ["refund_desc", "", "this"] == [each.reason.partition(" ")[0] for each in left]
    assert 2 == sum("is left to a person" in each.getMessage() for each in caplog.records)
    assert ["todo 0"] * 2 == await shop.jobs()


async def test_forgotten_write_is_enqueued(shop: Shop, sandbox: Sandbox) -> None:
    """A write that is stored, or stored again after its refusal, is enqueued once by the reconciliation, and sent."""
    sandbox.faults.rate_limited("refunds.create")
    with pytest.raises(errors.RateLimitedError):
        await shop.pay.with_options(journal=shop.journal).send(refund("R1"))
    refused = await shop.states()
    for number, merchant in (("R1", shop.pay.merchant_id), ("R2", shop.pay.merchant_id), ("R3", "another")):
        await shop.journal.add(refund(number), merchant=merchant)
    enqueued = list[list[str]]()
    for minutes in (0, 2, 0, 29):
        await shop.wait(minutes=minutes)
        await shop.reconcile()
        enqueued.append(await shop.jobs())
    await shop.work()

    assert [("R1", "rejected")] == refused
    assert [[], ["todo 0"], ["todo 0"], ["todo 0"] * 2] == enqueued
    assert [("R1", "accepted"), ("R2", "accepted"), ("R3", "new")] == await shop.states()


async def test_each_merchant_is_reconciled(shop: Shop, sandbox: Sandbox) -> None:
    """Several merchants can share a queue: each one is reconciled by its own task."""
    second = shop.pay.for_merchant(evolve(sandbox.credentials, merchant_id="M2"))
    both = [PaymentTasks(pay, shop.journal) for pay in (shop.pay, second)]
    for number, tasks in enumerate(both, 1):
        shop.app.add_tasks_from(tasks.blueprint, namespace=f"payasync{number}")
    clock = PeriodicDeferrer(shop.app.periodic_registry, max_delay=60)
    for minute in (3600, 3660):
        await clock.defer_jobs(list(clock.get_previous_tasks(at=minute)))
    waiting = [job.task_name for job in await shop.app.job_manager.list_jobs_async()]
    for pay in (shop.pay, second):
        begun = await shop.journal.begin(draft(PAYMENT, "I1", pay.merchant_id), SECONDS)
        await shop.journal.settle(begun.intent, "unknown")
    await shop.work()

    assert ["payasync1:reconcile", "payasync2:reconcile"] == waiting
    assert ["succeeded 1"] * 2 == await shop.jobs("reconcile")
    assert ["manual", "manual"] == [each.state for each in await shop.journal.list()]


async def test_job_of_a_dead_worker_is_delivered_again(shop: Shop, sandbox: Sandbox) -> None:
    """The reconciliation puts the job of a dead worker back into the queue, and no other job.

    If the worker died while it sent the refund, the refund is made once.
    """
    await shop.journal.claim(await shop.tasks.add(refund("R1")), SECONDS)
    await shop.pay.send(refund("R1"))
    states = list[list[str]]()
    for age in (0, 60):
        beat = "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '1 s' * %s) RETURNING id"
        ((worker,),) = await shop.execute(beat, age)
        await shop.execute("UPDATE procrastinate_jobs SET status = 'doing', worker_id = %s", worker)
        await shop.reconcile()
        states.append(await shop.jobs())

    await shop.work()
    left = await shop.results()
    await shop.execute("UPDATE payasync_intents SET lease = updated")
    await shop.reconcile()

    assert [["doing 0"], ["todo 1"]] == states
    assert ([("R1", "sending")], ["succeeded 2"]) == left
    assert ([("R1", "accepted")], 1) == (await shop.states(), len(sandbox.ledger.calls("refunds.create")))


async def test_blueprint_must_be_in_an_application(postgres_dsn: str, sandbox: Sandbox) -> None:
    """If the tasks' blueprint is in no application, or the application is not open, the error says so."""
    async with PostgresJournal(postgres_dsn) as journal, sandbox.session() as pay:
        tasks = PaymentTasks(pay, journal)
        with pytest.raises(
            errors.ConfigurationError, match="blueprint must be in an application that is open"
        ) as caught:
            await tasks.add(refund("R1"))
        app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=postgres_dsn))
        app.add_tasks_from(tasks.blueprint, namespace="payasync")
        with pytest.raises(errors.ConfigurationError, match="AppNotOpen"):
            await tasks.add(refund("R1"))

    assert ("blueprint", None) == (caught.value.field, caught.value.__context__)
