"""Writes that workers send: queued with the business that they belong to, sent once, whatever happens to a worker."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import procrastinate
import psycopg
import pytest
from attrs import evolve, frozen
from procrastinate.periodic import PeriodicDeferrer
from psycopg.pq import TransactionStatus

from payasync import (
    AuthenticationError,
    Call,
    ConfigurationError,
    InvalidArgumentError,
    NotSentError,
    PayasyncError,
    RateLimitedError,
    Reply,
    RetryPolicy,
    Send,
    ServiceError,
    Session,
    StorageError,
)
from payasync.cli.sandbox import environment_of
from payasync.integrations.procrastinate import PaymentTasks, pause
from payasync.journal import PostgresJournal, Reconciler, Result
from payasync.journal.entries import draft_from_request, keep_all_but_customer
from payasync.journal.intents import Intent
from payasync.resources.payments import CreatePayment
from payasync.resources.refunds import CreateRefund
from payasync.sandbox import PROFILE, Sandbox
from payasync.settings import Pace

PROGRAM: Final = Path(__file__).with_name("refunding_worker.py")
SECONDS: Final = 60
MANY: Final = 30
LATER: Final = 3600
"""Seconds, after which any lease is over, and any quarantine."""

ONCE: Final = RetryPolicy(attempts=1, base_delay=0, max_delay=0)
YEARLY: Final = "0 0 1 1 *"
NOT_DONE: Final = """
import asyncio, payments
from payasync.journal import PostgresJournal, Result

async def kept():
    async with PostgresJournal(payments.DATABASE) as journal:
        return await journal.get(1)

payments.told(Result(intent=asyncio.run(kept()), end="resolved", state="rejected"))
"""

Start = Callable[..., subprocess.Popen[bytes]]


def refund(number: str) -> CreateRefund:
    """Return a small refund of the order."""
    return CreateRefund(out_trade_no="T1", out_refund_no=number, total_amt=45_000, refund_amt=100)


@pytest.fixture
async def sandbox() -> AsyncGenerator[Sandbox]:
    """A service with a paid order."""
    async with Sandbox(clock="frozen", refunds="by hand") as sandbox:
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

    def having(self, tasks: PaymentTasks) -> "Shop":
        """Return the shop with other tasks in its queue."""
        self.app.add_tasks_from(tasks.blueprint, namespace="other")
        return evolve(self, tasks=tasks, namespace="other")

    def through(self, pay: Session) -> "Shop":
        """Return the shop with tasks that send by another session."""
        return self.having(PaymentTasks(pay, self.journal, cron=YEARLY))

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

    async def jobs(self) -> list[tuple[str, str, int]]:
        """Return the jobs: task, state, attempts."""
        found = [(job.task_name, job.status, job.attempts) for job in await self.app.job_manager.list_jobs_async()]
        return [(name.rpartition(":")[2], str(status), attempts) for name, status, attempts in found]

    async def states(self) -> list[tuple[str | None, str]]:
        """Return what the journal holds: numbers and states."""
        return [(each.reference, each.state) for each in await self.journal.list()]


@asynccontextmanager
async def opened(dsn: str, sandbox: Sandbox) -> AsyncGenerator[Shop]:
    """Return a shop whose queue is there."""
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn, min_size=1))
    async with AsyncExitStack() as stack:
        journal = await stack.enter_async_context(PostgresJournal(dsn))
        pay = await stack.enter_async_context(sandbox.session(retry=ONCE))
        await stack.enter_async_context(app.open_async())
        await app.schema_manager.apply_schema_async()
        tasks = PaymentTasks(pay, journal, reconciler=Reconciler(pay, journal), cron=YEARLY)
        app.add_tasks_from(tasks.blueprint, namespace="payasync")
        yield Shop(app, tasks, journal, pay, dsn)


@pytest.fixture
async def shop(postgres_dsn: str, sandbox: Sandbox) -> AsyncGenerator[Shop]:
    """A merchant with an empty queue."""
    async with opened(postgres_dsn, sandbox) as shop:
        yield shop


async def test_queued_with_the_business(shop: Shop, sandbox: Sandbox) -> None:
    """An invoice, the intent to pay it back, and the task that does it commit together, or none of them is there."""
    async with await psycopg.AsyncConnection.connect(shop.dsn) as connection:
        await shop.tasks.add(refund("R1"), connection=connection)
        await connection.rollback()
        rolled_back = await shop.states(), await shop.jobs()
        await shop.tasks.add(refund("R2"), connection=connection)
    committed = await shop.states(), await shop.jobs()
    await shop.work()

    assert ([], []) == rolled_back
    assert ([("R2", "new")], [("execute_intent", "todo", 0)]) == committed
    assert ([("R2", "accepted")], [("execute_intent", "succeeded", 1)]) == (await shop.states(), await shop.jobs())
    assert "processing" == sandbox.ledger.refund_state("R2")


async def test_delivered_twice_is_sent_once(shop: Shop, sandbox: Sandbox) -> None:
    """A queue delivers at least once: the journal sees to it that each is sent once."""
    first = await shop.tasks.add(refund("R1"))
    second = await shop.tasks.add(refund("R1"))
    await shop.work()
    third = await shop.tasks.add(refund("R1"))
    await shop.work()

    assert first == second == third
    assert [("execute_intent", "succeeded", 1)] * 3 == await shop.jobs()
    assert 1 == len(sandbox.ledger.calls("refunds.create"))


async def test_unknown_is_asked_about_and_not_repeated(shop: Shop, sandbox: Sandbox) -> None:
    """A lost answer is no failure of the task, which would be repeated: the next reconciliation asks about it."""
    sandbox.faults.reset_after_commit("refunds.create")
    sandbox.faults.reset_before("refunds.status", times=None)
    await shop.tasks.add(refund("R1"))
    await shop.work()
    before = await shop.states(), await shop.jobs()
    sandbox.faults.clear()
    await shop.reconcile()

    assert ([("R1", "unknown")], [("execute_intent", "succeeded", 1)]) == before
    assert [("R1", "accepted")] == await shop.states()
    assert 1 == len(sandbox.ledger.calls("refunds.create"))


async def test_what_was_not_done_is_told(shop: Shop, sandbox: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    """A refund that the bank declines days after the task has ended reaches who queued it; its errors stop nothing."""
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
        await shop.having(tasks).reconcile()

    assert [("R1", "rejected"), ("R2", "succeeded")] == await shop.states()
    assert [("R1", "the refund's state is failed")] == [(it.intent.reference, it.reason) for it in heard if it.rejected]
    assert ["succeeded"] == [it.state for it in heard if not it.rejected]
    assert 2 == sum("on_result raised" in each.getMessage() for each in caplog.records)


def tomorrow() -> float:
    """Return what time it is for who comes a day later."""
    return time.time() + 86_400


@pytest.mark.parametrize("wrong", [1, asyncio.sleep])
async def test_on_result_is_a_plain_function(shop: Shop, wrong: Any) -> None:
    """Anything else is refused as it is given: a coroutine that nobody awaits would tell nothing."""
    with pytest.raises(ConfigurationError, match="on_result must be a plain function"):
        PaymentTasks(shop.pay, shop.journal, on_result=wrong)


async def test_what_did_not_leave_is_tried_again(shop: Shop, sandbox: Sandbox) -> None:
    """Where nothing was sent, the queue tries again later, with growing pauses."""
    fault = sandbox.faults.refuse()
    await shop.tasks.add(refund("R1"))
    await shop.work()
    fault.disarm()
    (job,) = await shop.app.job_manager.list_jobs_async()

    assert [("execute_intent", "todo", 1)] == await shop.jobs()
    assert job.scheduled_at is not None
    assert [("R1", "new")] == await shop.states()


async def test_what_repeating_cannot_mend_is_not_repeated(shop: Shop, sandbox: Sandbox) -> None:
    """Such as a certificate that is not trusted: the task has failed, where whoever looks after the queue sees it."""

    async def untrusted(call: Call, send: Send) -> Reply:
        del call, send
        error = NotSentError("the certificate is not trusted")
        error.add(permanent=True)
        raise error

    await shop.through(sandbox.session(middleware=[untrusted], retry=ONCE)).tasks.add(refund("R1"))
    await shop.work()

    assert ([("R1", "new")], [("execute_intent", "failed", 1)]) == (await shop.states(), await shop.jobs())


def an_error(kind: type[PayasyncError], **facts: Any) -> PayasyncError:
    """Return an error with such facts."""
    error = kind("no")
    error.add(**facts)
    return error


@pytest.mark.parametrize(
    ("error", "attempts", "expected"),
    [
        (an_error(NotSentError), 0, 4.0),
        (an_error(StorageError), 1, 16.0),
        (an_error(AuthenticationError), 7, 900.0),
        (an_error(AuthenticationError), 8, None),
        (an_error(RateLimitedError, retry_after=2.5), 0, 4.0),
        (an_error(RateLimitedError, retry_after=3600.0), 0, 3600.0),
        (an_error(NotSentError, retry_after=3600.0), 7, 3600.0),
        (an_error(RateLimitedError, retry_after=1e9), 0, 86_400.0),
        (an_error(NotSentError, permanent=True), 0, None),
        (an_error(ServiceError), 0, None),
        (an_error(InvalidArgumentError), 0, None),
        (ValueError("no"), 0, None),
    ],
)
def test_pause(error: Exception, attempts: int, expected: float | None) -> None:
    """Longer each time, not before the service lets it, though within a day; and only what is worth another attempt."""
    assert expected == pause(error, attempts)


async def test_what_the_queue_has_given_up_is_enqueued_again(shop: Shop, sandbox: Sandbox) -> None:
    """A task that has failed for good is no end of what it should have sent: half an hour later there is another."""
    fault = sandbox.faults.refuse()
    await shop.tasks.add(refund("R1"))
    await shop.work()
    fault.disarm()
    await shop.execute("UPDATE procrastinate_jobs SET status = 'failed'")
    await shop.wait(minutes=29)
    await shop.reconcile()
    young = await shop.jobs()
    await shop.wait(minutes=2)
    await shop.reconcile()
    await shop.work()

    assert [("execute_intent", "failed", 1)] == young
    assert [("execute_intent", "failed", 1), ("execute_intent", "succeeded", 1)] == await shop.jobs()
    assert [("R1", "accepted")] == await shop.states()


@pytest.fixture
async def declining(postgres_dsn: str) -> AsyncGenerator[tuple[Shop, Sandbox]]:
    """A merchant whose service takes each refund, and says at once that it has failed."""
    async with Sandbox(clock="frozen", refunds="fail") as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1", total_amt=45_000)
        async with opened(postgres_dsn, sandbox) as shop:
            yield shop, sandbox


@pytest.mark.parametrize("lost", [False, True])
async def test_what_is_declined_at_once_fails(
    declining: tuple[Shop, Sandbox], caplog: pytest.LogCaptureFixture, *, lost: bool
) -> None:
    """As what is refused, with the reason, also where the answer came to a question alone; it is not sent again."""
    shop, sandbox = declining
    if lost:
        sandbox.faults.reset_after_commit("refunds.create")
    await shop.tasks.add(refund("R1"))
    await shop.work()
    first = await shop.jobs()
    await shop.tasks.add(refund("R2"))
    await shop.tasks.add(refund("R2"))
    await shop.work()
    errors = [str(each.exc_info[1]) for each in caplog.records if each.exc_info]

    assert [("execute_intent", "failed", 1)] == first
    assert [("execute_intent", "failed", 1)] * 3 == await shop.jobs()
    assert [("R1", "rejected"), ("R2", "rejected")] == await shop.states()
    expected = [
        f"refunds.create {number}: it was not done: the refund's state is failed" for number in ("R1", "R2", "R2")
    ]
    assert expected == errors
    assert 2 == len(sandbox.ledger.calls("refunds.create"))


async def test_what_is_declined_as_the_journal_fails_is_not_sent_again(
    declining: tuple[Shop, Sandbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the journal cannot say what it holds after the answer, the task comes again, and fails without a send."""
    shop, sandbox = declining
    get = shop.journal.get

    async def failing(intent_id: int) -> Intent | None:
        kept = await get(intent_id)
        if kept and kept.state == "rejected":
            raise StorageError("the server is away")
        return kept

    await shop.tasks.add(refund("R1"))
    with monkeypatch.context() as patch:
        patch.setattr(shop.journal, "get", failing)
        await shop.work()
    waiting = await shop.jobs()
    await shop.execute("UPDATE procrastinate_jobs SET scheduled_at = NULL")
    await shop.work()

    assert [("execute_intent", "todo", 1)] == waiting
    assert [("execute_intent", "failed", 2)] == await shop.jobs()
    assert 1 == len(sandbox.ledger.calls("refunds.create"))


async def test_task_says_what_its_own_answer_says(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is accepted, and declined before the task has ended, is told by who finds that out, and by no second one."""
    execute = Session.execute

    async def overtaken(self: Session, intent_id: int) -> Any:
        answer = await execute(self, intent_id)
        await shop.journal.told("refunds.create", "R1", "failed", {}, merchant=shop.pay.merchant_id)
        return answer

    monkeypatch.setattr(Session, "execute", overtaken)
    await shop.tasks.add(refund("R1"))
    await shop.work()

    assert ([("R1", "rejected")], [("execute_intent", "succeeded", 1)]) == (await shop.states(), await shop.jobs())


async def test_forgotten_is_enqueued(shop: Shop) -> None:
    """What was kept and is in no queue is sent all the same, and enqueued once, however often it is looked for."""
    await shop.journal.add(refund("R1"), merchant=shop.pay.merchant_id)
    await shop.journal.add(refund("R2"), merchant="another")
    await shop.reconcile()
    young = await shop.jobs()
    await shop.wait(minutes=2)
    await shop.reconcile()
    await shop.reconcile()
    enqueued = await shop.jobs()
    await shop.work()

    assert ([], [("execute_intent", "todo", 0)]) == (young, enqueued)
    assert [("R1", "accepted"), ("R2", "new")] == await shop.states()


async def test_what_the_service_does_not_take_is_not_added(shop: Shop, sandbox: Sandbox) -> None:
    """It is refused as sending it would be, before anything is kept: the caller's transaction is as it was."""
    tasks = shop.through(strict(sandbox)).tasks
    async with await psycopg.AsyncConnection.connect(shop.dsn) as connection:
        with pytest.raises(InvalidArgumentError, match="refund_desc"):
            await tasks.add(evolve(refund("R1"), refund_desc="too long"), connection=connection)
        assert TransactionStatus.IDLE == connection.info.transaction_status

    assert ([], []) == (await shop.states(), await shop.jobs())


def strict(sandbox: Sandbox) -> Session:
    """Return a session of a service that takes short descriptions alone."""
    profile = evolve(PROFILE, accept=evolve(PROFILE.accept, length={"refund_desc": 5}))
    return sandbox.session(profile=profile)


async def test_what_cannot_be_sent_is_left_to_a_person(
    shop: Shop, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    """No task is made that would only fail; why is kept, and logged once, and others are not kept waiting."""
    merchant = shop.pay.merchant_id
    for number, text in (("R1", "too long"), ("R2", "short"), ("R3", "newer")):
        await shop.journal.add(evolve(refund(number), refund_desc=text), merchant=merchant)
    await shop.execute("UPDATE payasync_intents SET operation = 'refunds.newer' WHERE reference = 'R3'")
    await shop.wait(minutes=2)
    other = shop.through(strict(sandbox))
    await other.reconcile()
    await other.reconcile()
    jobs, kept = await shop.jobs(), await shop.journal.list("new")
    await shop.reconcile()

    assert [("execute_intent", "todo", 0)] == jobs
    assert ["refund_desc", "", "this"] == [each.reason.partition(" ")[0] for each in kept]
    assert 2 == sum("is left to a person" in each.getMessage() for each in caplog.records)
    assert [("execute_intent", "todo", 0)] * 2 == await shop.jobs()


async def test_rejected_that_is_kept_again_is_enqueued(shop: Shop, sandbox: Sandbox) -> None:
    """What a direct call could not do, and was then left to a worker, reaches one: it is not `rejected` any more."""
    sandbox.faults.rate_limited("refunds.create")
    with pytest.raises(RateLimitedError):
        await shop.pay.with_options(journal=shop.journal).send(refund("R1"))
    refused = await shop.states()
    await shop.journal.add(refund("R1"), merchant=shop.pay.merchant_id)
    await shop.wait(minutes=31)
    await shop.reconcile()
    await shop.work()

    assert [("R1", "rejected")] == refused
    assert [("R1", "accepted")] == await shop.states()


async def test_each_merchant_is_reconciled(shop: Shop, sandbox: Sandbox) -> None:
    """Of several in one queue, however busy that is: none keeps another's reconciliation out, and each asks its own."""
    second = shop.pay.for_merchant(evolve(sandbox.credentials, merchant_id="M2"))
    both = [PaymentTasks(pay, shop.journal) for pay in (shop.pay, second)]
    for number, tasks in enumerate(both, 1):
        shop.app.add_tasks_from(tasks.blueprint, namespace=f"payasync{number}")
    clock = PeriodicDeferrer(shop.app.periodic_registry, max_delay=60)
    for minute in (3600, 3660):
        await clock.defer_jobs(list(clock.get_previous_tasks(at=minute)))
    waiting = [job.task_name for job in await shop.app.job_manager.list_jobs_async()]
    for pay in (shop.pay, second):
        draft = draft_from_request(
            CreatePayment(amount=100, currency="USD"), pay.merchant_id, "I1", keep_all_but_customer
        )
        await shop.journal.settle((await shop.journal.begin(draft, SECONDS)).intent, "unknown")
    await shop.work()

    assert ["payasync1:reconcile", "payasync2:reconcile"] == waiting
    assert [("reconcile", "succeeded", 1)] * 2 == await shop.jobs()
    assert ["manual", "manual"] == [each.state for each in await shop.journal.list()]


async def test_job_of_a_dead_worker_is_delivered_again(shop: Shop) -> None:
    """What a worker had taken when it died is back in the queue with the next reconciliation, and not before."""
    await shop.tasks.add(refund("R1"))
    taken = list[list[tuple[str, str, int]]]()
    for age in (0, 60):
        beat = "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '1 s' * %s) RETURNING id"
        ((worker,),) = await shop.execute(beat, age)
        await shop.execute("UPDATE procrastinate_jobs SET status = 'doing', worker_id = %s", worker)
        await shop.reconcile()
        taken.append(await shop.jobs())

    assert [[("execute_intent", "doing", 0)], [("execute_intent", "todo", 1)]] == taken


async def test_blueprint_must_be_in_an_application(postgres_dsn: str, sandbox: Sandbox) -> None:
    """Who has forgotten to add it, or to open the application, is told so; nothing is sent."""
    async with PostgresJournal(postgres_dsn) as journal, sandbox.session() as pay:
        tasks = PaymentTasks(pay, journal)
        with pytest.raises(ConfigurationError, match="blueprint must be in an application that is open") as caught:
            await tasks.add(refund("R1"))
        app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=postgres_dsn))
        app.add_tasks_from(tasks.blueprint, namespace="payasync")
        with pytest.raises(ConfigurationError, match="AppNotOpen"):
            await tasks.add(refund("R1"))

    assert ("blueprint", None) == (caught.value.field, caught.value.__context__)


@pytest.fixture
def start(postgres_dsn: str, sandbox: Sandbox, tmp_path: Path) -> Generator[Start]:
    """Start a worker in a process of its own; it is gone with the test."""
    file = tmp_path / "service.toml"
    file.write_text(sandbox.profile.to_toml(), encoding="utf-8")
    environment = {**os.environ, **environment_of(sandbox, file)}
    with ExitStack() as stack:

        def started(late: int = 0, fatal: str = "") -> "subprocess.Popen[bytes]":
            command = [sys.executable, "-W", "error", str(PROGRAM), postgres_dsn, str(late), fatal]
            process = stack.enter_context(subprocess.Popen(command, env=environment))
            stack.callback(process.kill)
            return process

        yield started


@pytest.mark.long
@pytest.mark.parametrize("fatal", ["leaving", "answered"])
async def test_worker_is_killed(postgres_dsn: str, sandbox: Sandbox, start: Start, fatal: str) -> None:
    """Workers die in the middle of a refund, and others go on: in the end each refund was made, and made once."""
    numbers = [f"R{number}" for number in range(MANY)]
    async with opened(postgres_dsn, sandbox) as shop:
        for number in numbers:
            await shop.tasks.add(refund(number))
        dying = start(fatal=fatal)
        died = await asyncio.to_thread(dying.wait, SECONDS)
        start()
        late = start(LATER)
        await all_accepted(shop)
        late.terminate()
        await asyncio.to_thread(late.wait, SECONDS)

    assert -signal.SIGKILL == died
    assert ["processing"] * MANY == [sandbox.ledger.refund_state(number) for number in numbers]
    assert {each.code for each in sandbox.ledger.calls("refunds.create")} <= set(sandbox.profile.answer.ok)


async def all_accepted(shop: Shop) -> None:
    """Wait until nothing is left to do."""
    async with asyncio.timeout(SECONDS):
        while {"accepted"} != {state for _, state in await shop.states()}:
            await shop.execute("SELECT pg_sleep(0.1)")


async def test_recipe_of_the_page(postgres_dsn: str, tmp_path: Path) -> None:
    """The files of docs/tasks.md refund an invoice: marked, kept, queued together; not done, it is marked no more."""
    page = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
    recipe = page.partition("\n## procrastinate\n")[2].partition("\n## ")[0]
    for name, program in re.findall(r'^```python title="(\w+\.py)"\n(.*?)^```$', recipe, re.DOTALL | re.MULTILINE):
        (tmp_path / name).write_text(program, encoding="utf-8")
    commands = [line.split() for line in re.findall(r"^python (.*)$", recipe, re.MULTILINE)]
    (table,) = re.findall(r"^```sql\n(.*?)^```$", recipe, re.DOTALL | re.MULTILINE)
    async with Sandbox() as sandbox, await psycopg.AsyncConnection.connect(postgres_dsn) as db:
        order = await sandbox.given.paid_order(total_amt=450)
        await db.execute(table.encode())
        await db.execute("INSERT INTO invoices VALUES ('I1', %s, 450)", (order,))
        await db.commit()
        served = environment_of(sandbox)
        # Empty: the recipe's files find each other in their folder, as they do for who copies them.
        environment = {**os.environ, **served, "DATABASE_URL": postgres_dsn, "PYTHONSAFEPATH": ""}

        async def start(*arguments: str) -> asyncio.subprocess.Process:
            return await asyncio.create_subprocess_exec(sys.executable, *arguments, env=environment, cwd=tmp_path)

        schema, work, refund = commands
        assert 0 == await (await start(*schema)).wait()
        worker = await start(*work)
        try:
            assert 0 == await (await start(*refund)).wait()
            async with asyncio.timeout(SECONDS), PostgresJournal(postgres_dsn) as journal:
                while [each.state for each in await journal.list()] != ["succeeded"]:
                    await db.execute("SELECT pg_sleep(0.05)")
        finally:
            worker.terminate()
            ended = await worker.wait()
        invoices = await (await db.execute("SELECT number, refunded FROM invoices")).fetchall()
        await db.commit()
        assert 0 == await (await start("-c", NOT_DONE)).wait()
        taken_back = await (await db.execute("SELECT number, refunded FROM invoices")).fetchall()

        assert (450, 0) == (sandbox.ledger.refunded(order), ended)
    assert ([("I1", True)], [("I1", False)]) == (invoices, taken_back)
