"""The recipes of docs/how-to/tasks.md, run unchanged by worker processes, some of which are killed."""

import asyncio
import os
import re
import shlex
import signal
import sqlite3
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from attrs import Factory, field, frozen

from payasync.cli.sandbox import environment_of
from payasync.journal import PostgresJournal, SqliteJournal
from payasync.sandbox import Sandbox
from payasync.sandbox.recording_receiver import RecordingReceiver
from tests.redis_server import Server

PAGE: Final = Path(__file__).parents[2].joinpath("docs/how-to/tasks.md").read_text(encoding="utf-8")
SECONDS: Final = 60
INVOICES: Final = ("I1", "I2", "I3")
TABLE: Final = "CREATE TABLE invoices (number, order_no, due, paid, refunded)"
KEEP: Final = "import asyncio, shop; asyncio.run(shop.keep_refund('I3'))"
PROGRAM: Final = """
import asyncio, payasync, shop, sqlite3
from payasync.journal import Result

async def main():{}
    await shop.pay.aclose()
    await shop.journal.aclose()

asyncio.run(main())
"""
NOT_DONE: Final = PROGRAM.format("""
    kept = [await shop.journal.get(await shop.keep_refund(invoice)) for invoice in ("I1", "I2")]
    states = "succeeded", "rejected"
    shop.take_back([Result(intent=each, end="resolved", state=state) for each, state in zip(kept, states)])
""")
DECLINED: Final = PROGRAM.format("""
    number = await shop.keep_refund("I1")
    for attempt in (1, 2):
        try:
            await shop.tried(f"intent {number}", shop.execute(number), attempt)
        except (shop.NotDoneError, payasync.InvalidArgumentError) as error:
            print(error)
""")
LEFT: Final = PROGRAM.format("""
    with sqlite3.connect(shop.DATABASE) as db:
        for number in range(250):
            refund = payasync.CreateRefund(out_trade_no="T1", out_refund_no=f"R{number}", total_amt=450, refund_amt=1)
            await shop.journal.add(refund, merchant="another", connection=db)
    number = await shop.keep_refund("I1")
    shop.forgotten = lambda intent: True
    print(await shop.reconcile() == [number])
""")
REJECTED: Final = """
import asyncio, payments
from payasync.journal import PostgresJournal, Result

async def kept():
    async with PostgresJournal(payments.DATABASE) as journal:
        return await journal.get(1)

payments.told(Result(intent=asyncio.run(kept()), end="resolved", state="rejected"))
"""
CHARGE_TWICE: Final = "from charging import charge; charge.delay('I1'); charge.delay('I1')"
LATE: Final = """
from datetime import timedelta
import time_machine
time_machine.travel(timedelta(hours=2)).start()
"""
"""Makes it two hours later for a process: a lease is over then, and so is all that a queue waits for."""

PYTHON: Final = (
    *(sys.executable, "-W", "error"),
    *("-W", "ignore:You're running the worker with superuser privileges"),
)


@frozen(kw_only=True)
class Engine:
    """A queue, as a section of the page has it.

    Attributes:
        heading: Of the section.
        worker: Options for the worker: one at a time, and no waiting for others.
        clock: Options for what starts tasks by the clock.
        ready: What that says once its schedule is on the disk.
    """

    heading: str
    worker: tuple[str, ...]
    clock: tuple[str, ...] = ()
    ready: str

    @property
    def commands(self) -> list[list[str]]:
        """The section's commands: the worker's, the clock's, and the application's."""
        (commands,) = re.findall(r"^```bash\n(.*?)^```$", section(self.heading), re.DOTALL | re.MULTILINE)
        return [shlex.split(line) for line in commands.splitlines()]


TASKIQ: Final = Engine(heading="taskiq", worker=("--workers", "1"), ready="Startup completed")
CELERY: Final = Engine(
    heading="Celery",
    worker=("--concurrency", "1", "--without-mingle"),
    clock=("--loglevel", "debug"),
    ready="beat: Ticking",
)
SHARED: Final = "What the application and the workers share"
BY_NAME: Final = "A name in place of a number"
declining = pytest.mark.parametrize("shop", ["fail"], indirect=True)
each_engine = pytest.mark.parametrize("engine", [TASKIQ, CELERY], ids=["taskiq", "celery"])


def section(heading: str) -> str:
    """Return the section of the page under a heading."""
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def files(text: str) -> dict[str, str]:
    """Return the files that a part of the page shows, by their names."""
    return dict(re.findall(r'^```python title="(\w+\.py)"\n(.*?)^```$', text, re.DOTALL | re.MULTILINE))


@frozen
class Program:
    """A program of a recipe, and all the processes that it starts."""

    process: Process
    lines: list[str] = Factory(list)

    async def says(self, *texts: str, times: int = 1) -> None:
        """Wait until each of these regular expressions has matched the output so often."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                while not all(times <= len(re.findall(text, "".join(self.lines))) for text in texts):
                    if not (line := await self._line()):
                        break
                    self.lines.append(line)
                else:
                    return
        pytest.fail(f"it did not say {texts}, but:\n{''.join(self.lines)}")

    async def _line(self) -> str:
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode()

    def children(self) -> list[int]:
        """Return its children's ids."""
        own = self.process.pid
        return [int(each) for each in Path(f"/proc/{own}/task/{own}/children").read_text(encoding="ascii").split()]

    async def end(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes, and wait for their end."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        await self.process.communicate()


@frozen
class Shop:
    """A shop that has three paid orders, with the recipe's files in a folder of its own.

    Attributes:
        folder: Its own.
        environment: Of its programs.
        sandbox: The service.
        told: Of refunds that the service has made.
    """

    folder: Path
    environment: dict[str, str]
    sandbox: Sandbox
    told: RecordingReceiver
    _stack: AsyncExitStack = field(repr=False)

    def open(self, engine: Engine, redis: Server) -> None:
        """Write down a recipe."""
        self.environment["REDIS_URL"] = redis.celery_url if engine is CELERY else redis.url
        parts = (SHARED, engine.heading, BY_NAME)
        for name, code in files("".join(map(section, parts))).items():
            (self.folder / name).write_text(code, encoding="utf-8")

    async def start(self, command: list[str], *options: str, late: bool = False) -> Program:
        """Start a program, which is killed at the end of the test."""
        python = command[0] == "python"
        words = command[1:] if python else ["-m", *command, *options]
        path = f"{self.folder}:{self.folder / 'late'}" if late else str(self.folder)
        process = await asyncio.create_subprocess_exec(
            *PYTHON,
            *words,
            cwd=self.folder,
            env={**self.environment, "PYTHONPATH": path},
            stdout=PIPE,
            stderr=STDOUT,
            start_new_session=True,
        )
        program = Program(process)
        self._stack.push_async_callback(program.end, signal.SIGKILL)
        return program

    async def run(self, *command: str) -> str:
        """Run a program to its end, and return what it says."""
        program = await self.start(list(command))
        said, _ = await program.process.communicate()

        assert 0 == program.process.returncode, said.decode()
        return said.decode()

    async def states(self) -> list[tuple[str | None, str]]:
        """Return the numbers and the states of the journal's intents."""
        async with SqliteJournal(self.folder / "shop.db") as journal:
            return [(each.reference, each.state) for each in await journal.list()]

    def answers(self, operation: str = "refunds.create") -> list[int]:
        """Return the statuses of the service's responses."""
        return [each.status for each in self.sandbox.ledger.calls(operation)]


@pytest.fixture
async def shop(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncGenerator[Shop]:
    """A shop without a recipe; a parameter says how its refunds end."""
    async with AsyncExitStack() as stack:
        refunds: Any = getattr(request, "param", "succeed")
        sandbox = await stack.enter_async_context(Sandbox(clock="frozen", refunds=refunds))
        told = await stack.enter_async_context(sandbox.receiver())
        async with SqliteJournal(tmp_path / "shop.db") as journal:
            await journal.list()
        with closing(sqlite3.connect(tmp_path / "shop.db")) as db, db:
            db.execute(TABLE)
            for number in INVOICES:
                order = await sandbox.given.paid_order(total_amt=450)
                db.execute("INSERT INTO invoices VALUES (?, ?, 450, 450, 0)", (number, order))
        sandbox.webhook_url = told.url
        (tmp_path / "late").mkdir()
        (tmp_path / "late" / "sitecustomize.py").write_text(LATE, encoding="utf-8")
        environment = environment_of(sandbox)
        yield Shop(tmp_path, {**os.environ, **environment}, sandbox, told, stack)


def test_no_block_is_left_out() -> None:
    """Each Python block of the page is a file of a recipe, or a whole program, which tests/test_readme.py runs."""
    opened = re.findall(r"^```python.*$", PAGE, re.MULTILINE)
    recipes = [files(section(each)) for each in re.findall(r"^## (.*)$", PAGE, re.MULTILINE)]

    assert len(opened) == opened.count("```python") + sum(map(len, recipes))


@pytest.mark.long
async def test_what_was_not_done_is_taken_back(shop: Shop) -> None:
    """If a refund was not done, the recipe unmarks its invoice, and no other invoice."""
    (shop.folder / "shop.py").write_text(files(section(SHARED))["shop.py"], encoding="utf-8")
    await shop.run("python", "-c", NOT_DONE)

    assert [("I1", 1), ("I2", 0), ("I3", 0)] == rows(shop, "SELECT number, refunded FROM invoices")


@declining
async def test_what_is_declined_at_once_is_not_sent_again(shop: Shop) -> None:
    """The task of a declined refund fails, also if it is delivered again, and nothing is sent again."""
    (shop.folder / "shop.py").write_text(files(section(SHARED))["shop.py"], encoding="utf-8")
    said = await shop.run("python", "-c", DECLINED)

    first, again = said.splitlines()

    assert "intent 1 was not done: the refund's state is failed" == first
    assert "has been rejected since it was added" in again
    assert ([200], [("R-I1", "rejected")]) == (shop.answers(), await shop.states())


@pytest.mark.long
async def test_what_waits_behind_others_is_queued_again(shop: Shop) -> None:
    """The reconciliation enqueues a forgotten write, even if many writes of another merchant are before it."""
    (shop.folder / "shop.py").write_text(files(section(SHARED))["shop.py"], encoding="utf-8")

    assert "True\n" == await shop.run("python", "-c", LEFT)


@pytest.mark.long
@declining
@each_engine
async def test_what_is_declined_at_once_fails(shop: Shop, redis_server: Server, engine: Engine) -> None:
    """The worker logs the reason of a declined refund, and goes on to the next task."""
    shop.open(engine, redis_server)
    command, _, refund = engine.commands
    worker = await shop.start(command, *engine.worker)
    await shop.run(*refund)
    await worker.says("NotDoneError.*intent 1 was not done", "NotDoneError.*intent 2 was not done")

    assert ([200, 200], [("R-I1", "rejected"), ("R-I2", "rejected")]) == (shop.answers(), await shop.states())


@pytest.mark.long
@each_engine
async def test_delivered_twice_is_sent_once(shop: Shop, redis_server: Server, engine: Engine) -> None:
    """If the queue delivers a task twice, its write is sent once, and the worker goes on to the next task."""
    shop.open(engine, redis_server)
    command, _, refund = engine.commands
    worker = await shop.start(command, *engine.worker)
    await shop.run(*refund, "I1")
    await worker.says("intent 2 is done")
    await worker.says("intent 1 is (done|left)", times=2)

    assert [200, 200] == shop.answers()
    assert [("R-I1", "succeeded"), ("R-I2", "succeeded")] == await shop.states()


@pytest.mark.long
@each_engine
async def test_a_night(shop: Shop, redis_server: Server, engine: Engine) -> None:
    """A delayed refund, an interrupted one and one that was never queued are each made once."""
    shop.open(engine, redis_server)
    orders = [order for (order,) in rows(shop, "SELECT order_no FROM invoices")]
    shop.sandbox.faults.rate_limited("refunds.create", retry_after=1800, order=orders[0])
    shop.sandbox.faults.hang("refunds.create", phase="after", order=orders[1])
    command, ticking, refund = engine.commands
    await shop.run("python", "-c", KEEP)
    worker, clock = await shop.start(command, *engine.worker), await shop.start(ticking, *engine.clock)
    await clock.says(engine.ready)
    await clock.end(signal.SIGTERM)
    await shop.run(*refund)
    await worker.says("intent 2 is tried again in 1800 s")
    await shop.told.next(timeout=SECONDS)
    await worker.end(signal.SIGKILL)
    evening = shop.answers(), await shop.states()
    pass_hours(redis_server)

    worker = await shop.start(command, *engine.worker, late=True)
    await shop.start(ticking, *engine.clock, late=True)
    await worker.says("intent 1 is done", "intent 2 is done", "asked about 1", "intent 3 is (left|done)")

    assert [200, 200, 200] == shop.answers()
    assert [450, 450, 450] == [shop.sandbox.ledger.refunded(order) for order in orders]
    assert ([200], [("R-I3", "new"), ("R-I1", "new"), ("R-I2", "sending")]) == evening
    assert {"succeeded"} == {state for _, state in await shop.states()}


def pass_hours(redis: Server) -> None:
    """Let two hours pass for the messages of taskiq's workers, because Redis has a clock of its own."""
    with redis.client() as client:
        held = client.xpending_range("taskiq", "taskiq", "-", "+", 10) if client.exists("taskiq") else []
        for each in held:
            client.xclaim("taskiq", "taskiq", "nobody", 0, [each["message_id"]], idle=7_200_000)


def rows(shop: Shop, question: str) -> list[tuple[Any, ...]]:
    """Ask the shop's own database."""
    with closing(sqlite3.connect(shop.folder / "shop.db")) as db:
        return db.execute(question).fetchall()


@pytest.mark.long
async def test_child_of_celery_is_killed(shop: Shop, redis_server: Server) -> None:
    """If a worker's child is killed during a send, its task is delivered again, and not sent again."""
    shop.open(CELERY, redis_server)
    shop.sandbox.faults.hang("refunds.create", phase="after")
    command, _, refund = CELERY.commands
    worker = await shop.start(command, *CELERY.worker)
    await shop.run(*refund)
    await shop.told.next(timeout=SECONDS)
    (child,) = worker.children()
    os.kill(child, signal.SIGKILL)
    await worker.says("intent 1 is (left|done)", "intent 2 is done")

    assert [200, 200] == shop.answers()
    assert [("R-I1", "sending"), ("R-I2", "succeeded")] == await shop.states()


@pytest.mark.long
async def test_name_is_charged_once(shop: Shop, redis_server: Server) -> None:
    """A payment whose task carries a name is not sent again after a lost response."""
    shop.open(CELERY, redis_server)
    shop.sandbox.faults.reset_after_commit("payments.create")
    (command,) = [line.split() for line in re.findall(r"^celery .*$", section(BY_NAME), re.MULTILINE)]
    worker = await shop.start(command, *CELERY.worker)
    await shop.run("python", "-c", CHARGE_TWICE)
    await worker.says("charge of I1 is left to be asked about", times=2)

    assert 1 == shop.sandbox.ledger.payments() == len(shop.answers("payments.create"))


async def test_recipe_of_procrastinate(postgres_dsn: str, tmp_path: Path) -> None:
    """The files refund an invoice in one transaction. If the refund was not done, the invoice is unmarked."""
    recipe = section("procrastinate")
    for name, program in files(recipe).items():
        (tmp_path / name).write_text(program, encoding="utf-8")
    commands = [line.split() for line in re.findall(r"^python (.*)$", recipe, re.MULTILINE)]
    (table,) = re.findall(r"^```sql\n(.*?)^```$", recipe, re.DOTALL | re.MULTILINE)
    async with Sandbox() as sandbox, await psycopg.AsyncConnection.connect(postgres_dsn) as db:
        order = await sandbox.given.paid_order(total_amt=450)
        await db.execute(table.encode())
        await db.execute("INSERT INTO invoices VALUES ('I1', %s, 450)", (order,))
        await db.commit()
        own = {"DATABASE_URL": postgres_dsn, "PYTHONSAFEPATH": ""}  # the files find each other in their folder
        environment = {**os.environ, **environment_of(sandbox), **own}

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
        assert 0 == await (await start("-c", REJECTED)).wait()
        taken_back = await (await db.execute("SELECT number, refunded FROM invoices")).fetchall()

        assert (450, 0) == (sandbox.ledger.refunded(order), ended)
    assert ([("I1", True)], [("I1", False)]) == (invoices, taken_back)
