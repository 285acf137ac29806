"""The recipes of docs/how-to/ for task queues, run unchanged by worker processes, some of which are killed."""

import asyncio
import os
import re
import shlex
import signal
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg
import pytest
from attrs import frozen

from payasync.journal import PostgresJournal, SqliteJournal
from tests.integrations.worker_shop import SECONDS, Shop, open_shop
from tests.redis_server import Server
from tests.test_readme import blocks

PAGES: Final = Path(__file__).parents[2] / "docs" / "how-to"
INVOICES: Final = ("I1", "I2", "I3")
REFUND: Final = ("python", "refund.py", "I1", "I2")
TABLE: Final = "CREATE TABLE invoices (number, order_no, amount, refunded)"
RECORD: Final = "import asyncio, invoices; asyncio.run(invoices.record_refund('I3'))"
PROGRAM: Final = """
import asyncio, payasync, invoices, sqlite3

async def main():{}
    await invoices.pay.aclose()
    await invoices.journal.aclose()

asyncio.run(main())
"""
DECLINED: Final = PROGRAM.format("""
    number, _ = [await invoices.record_refund(each) for each in ("I1", "I2")]
    for attempt in (1, 2):
        try:
            await invoices.try_call(f"intent {number}", invoices.send(number), attempt)
        except (invoices.NotDoneError, payasync.ServiceError) as error:
            print(type(error).__name__, error)
""")
USED_BEFORE: Final = PROGRAM.format("""
    async with payasync.Session.from_env() as pay:
        await pay.refunds.create(out_trade_no=ORDER, out_refund_no="R-I1", total_amt=450, refund_amt=100)
    number = await invoices.record_refund("I1")
    print(await invoices.try_call(f"intent {number}", invoices.send(number), 1))
""")
REJECTED: Final = """
import asyncio, payments
from payasync.journal import PostgresJournal, Result

async def recorded():
    async with PostgresJournal(payments.DATABASE) as journal:
        return await journal.get(1)

payments.unmark(Result(intent=asyncio.run(recorded()), end="resolved", state="rejected"))
"""
CHARGE_TWICE: Final = "from charging import charge; charge.delay('I1'); charge.delay('I1')"


def text_of(name: str) -> str:
    """Return a page, with the parts of README.md files that it includes."""
    text = PAGES.joinpath(f"{name}.md").read_text(encoding="utf-8")
    for whole, path, start, end in re.findall(
        r'^(```{include} (.*)\n:start-after: "(.*)"\n:end-before: "(.*)"\n```)$', text, re.MULTILINE
    ):
        included = (PAGES / path).read_text(encoding="utf-8").partition(start)[2].partition(end)[0]
        text = text.replace(whole, included)
    return text


def files(text: str) -> dict[str, str]:
    """Return the files that a page shows, by their names."""
    shown = dict(re.findall(r'^```python title="(\w+\.py)"\n(.*?)^```$', text, re.DOTALL | re.MULTILINE))
    for path, name in re.findall(r"^```{literalinclude} (.*)\n:caption: (.*)$", text, re.MULTILINE):
        shown[name] = (PAGES / path).read_text(encoding="utf-8")
    return shown


@frozen(kw_only=True)
class Engine:
    """A queue, as a page has it.

    Attributes:
        page: The name of the page.
        worker: Options for the worker: one at a time, and no waiting for others.
        clock: Options for what starts tasks by the clock.
        ready: What that says once its schedule is on the disk.
    """

    page: str
    worker: tuple[str, ...]
    clock: tuple[str, ...] = ()
    ready: str

    @property
    def files(self) -> dict[str, str]:
        """The files of the recipe, by their names."""
        return files(text_of(self.page))

    @property
    def commands(self) -> tuple[list[str], list[str]]:
        """The commands that start the worker and the clock."""
        shown = "".join(text for _, text in blocks(text_of(self.page), "bash"))
        worker, clock, *_ = (shlex.split(line) for line in shown.splitlines() if line.startswith(self.page))
        return worker, clock


TASKIQ: Final = Engine(page="taskiq", worker=("--workers", "1"), ready="Startup completed")
CELERY: Final = Engine(
    page="celery",
    worker=("--concurrency", "1", "--without-mingle"),
    clock=("--loglevel", "debug"),
    ready="beat: Ticking",
)
declining = pytest.mark.parametrize("shop", ["fail"], indirect=True)
each_engine = pytest.mark.parametrize("engine", [TASKIQ, CELERY], ids=["taskiq", "celery"])


def begin(shop: Shop, engine: Engine, redis: Server) -> None:
    """Write down a recipe, and say where its Redis is."""
    shop.environment["REDIS_URL"] = redis.celery_url if engine is CELERY else redis.url
    shop.write(engine.files)


@pytest.fixture
async def shop(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncGenerator[Shop]:
    """A shop with three paid orders; a parameter says how its refunds end."""
    async with open_shop(tmp_path, getattr(request, "param", "succeed")) as opened:
        async with SqliteJournal(tmp_path / "shop.db") as journal:
            await journal.list()
        with closing(sqlite3.connect(tmp_path / "shop.db")) as db, db:
            db.execute(TABLE)
            for number in INVOICES:
                order = await opened.sandbox.given.paid_order(total_amt=450)
                db.execute("INSERT INTO invoices VALUES (?, ?, 450, 0)", (number, order))
        opened.sandbox.webhook_url = opened.notified.url  # of refunds, and not of these orders
        yield opened


def test_no_block_is_left_out() -> None:
    """Each Python block of a page is a file of its recipe."""
    for text in map(text_of, ("celery", "procrastinate", "taskiq")):
        opened = re.findall(r"^```(?:python|{literalinclude}).*$", text, re.MULTILINE)

        assert len(opened) == len(files(text)) > 0


@declining
async def test_declined_refund_is_not_sent_again(shop: Shop) -> None:
    """The task of a declined refund fails, also if it is delivered again, and nothing is sent again.

    The recipe unmarks its invoice, and no other invoice.
    """
    shop.write({"invoices.py": CELERY.files["invoices.py"]})
    first, again = (await shop.run("python", "-c", DECLINED)).splitlines()

    assert "NotDoneError intent 1 was not done: the refund's state is failed" == first == again
    assert ([200], [("R-I1", "rejected"), ("R-I2", "new")]) == (shop.answers(), await shop.states())
    assert [("I1", 0), ("I2", 1), ("I3", 0)] == shop.rows("SELECT number, refunded FROM invoices")


async def test_used_number_is_left_to_the_reconciler(shop: Shop) -> None:
    """If the number was used before, the task ends, and the invoice stays marked until the reconciler knows more."""
    shop.write({"invoices.py": CELERY.files["invoices.py"]})
    ((order,),) = shop.rows("SELECT order_no FROM invoices WHERE number = 'I1'")
    said = await shop.run("python", "-c", USED_BEFORE.replace("ORDER", repr(order)))

    assert "None" == said.splitlines()[-1]
    assert [("R-I1", "unknown")] == await shop.states()
    assert [("I1", 1)] == shop.rows("SELECT number, refunded FROM invoices WHERE number = 'I1'")


@pytest.mark.long
@each_engine
async def test_a_night(shop: Shop, redis_server: Server, engine: Engine) -> None:
    """A delayed refund, an interrupted one and one that was never queued are each made once."""
    begin(shop, engine, redis_server)
    orders = [order for (order,) in shop.rows("SELECT order_no FROM invoices")]
    shop.sandbox.faults.rate_limited("refunds.create", retry_after=1800, order=orders[0])
    shop.sandbox.faults.hang("refunds.create", phase="after", order=orders[1])
    command, ticking = engine.commands
    await shop.run("python", "-c", RECORD)
    worker, clock = await shop.start(command, *engine.worker), await shop.start(ticking, *engine.clock)
    await clock.says(engine.ready)
    await clock.end(signal.SIGTERM)
    await shop.run(*REFUND)
    await worker.says("intent 2 is tried again in 1800 s")
    await shop.notified.next(timeout=SECONDS)
    await worker.end(signal.SIGKILL)
    evening = shop.answers(), await shop.states()
    pass_hours(redis_server)

    worker = await shop.start(command, *engine.worker, late=True)
    await shop.start(ticking, *engine.clock, late=True)
    await worker.says("intent 1 is done", "intent 2 is done", "asked about 1", "intent 3 (is done|may)")

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


@pytest.mark.long
async def test_child_of_celery_is_killed(shop: Shop, redis_server: Server) -> None:
    """If a worker's child is killed during a send, its task is delivered again, and not sent again."""
    begin(shop, CELERY, redis_server)
    shop.sandbox.faults.hang("refunds.create", phase="after")
    command, _ = CELERY.commands
    worker = await shop.start(command, *CELERY.worker)
    await shop.run(*REFUND)
    await shop.notified.next(timeout=SECONDS)
    (child,) = worker.children()
    os.kill(child, signal.SIGKILL)
    await worker.says("intent 1 (is done|may)", "intent 2 is done")

    assert [200, 200] == shop.answers()
    assert [("R-I1", "sending"), ("R-I2", "succeeded")] == await shop.states()


@pytest.mark.long
async def test_name_is_charged_once(shop: Shop, redis_server: Server) -> None:
    """A payment whose task carries a name is not sent again after a lost response."""
    begin(shop, CELERY, redis_server)
    shop.sandbox.faults.reset_after_commit("payments.create")
    (command,) = [line.split() for line in re.findall(r"^celery -A charging .*$", text_of("celery"), re.MULTILINE)]
    worker = await shop.start(command, *CELERY.worker)
    await shop.run("python", "-c", CHARGE_TWICE)
    await worker.says("charge of I1 may be done", times=2)

    assert 1 == shop.sandbox.ledger.payments() == len(shop.answers("payments.create"))


async def test_recipe_of_procrastinate(postgres_dsn: str, tmp_path: Path) -> None:
    """The files refund an invoice in one transaction. If the refund is refused, or fails later, it is unmarked."""
    recipe, in_order = text_of("procrastinate"), "SELECT number, refunded FROM invoices ORDER BY number"
    schema, work, refund = (line.split() for line in re.findall(r"^python .*$", recipe, re.MULTILINE))
    (table,) = re.findall(r"^```sql\n(.*?)^```$", recipe, re.DOTALL | re.MULTILINE)
    async with open_shop(tmp_path) as shop, await psycopg.AsyncConnection.connect(postgres_dsn, autocommit=True) as db:
        shop.write(files(recipe))
        shop.environment["DATABASE_URL"] = postgres_dsn
        order = await shop.sandbox.given.paid_order(total_amt=450)
        await db.execute(table.encode())
        # The service refuses a refund of an order that it does not know.
        await db.execute("INSERT INTO invoices VALUES ('I1', %s, 450), ('I2', 'T0', 450)", (order,))
        await shop.run(*schema)
        worker = await shop.start(work)
        await shop.run(*refund)
        await shop.run(*refund[:-1], "I2")
        async with asyncio.timeout(SECONDS), PostgresJournal(postgres_dsn) as journal:
            while [each.state for each in await journal.list()] != ["succeeded", "rejected"]:
                await db.execute("SELECT pg_sleep(0.05)")
        worker.process.terminate()
        ended = await worker.process.wait()
        marked = await (await db.execute(in_order)).fetchall()
        await shop.run("python", "-c", REJECTED)
        unmarked = await (await db.execute(in_order)).fetchall()

        assert (450, 0) == (shop.sandbox.ledger.refunded(order), ended)
    assert ([("I1", True), ("I2", False)], [("I1", False), ("I2", False)]) == (marked, unmarked)
