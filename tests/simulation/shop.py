"""A process of the merchant's: it calls, reconciles or receives notifications, as users' programs do."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from attrs import define, field

from payasync import (
    CloseOrder,
    CreatePayment,
    CreateRefund,
    Credentials,
    PayasyncError,
    PlaceOrder,
    Profile,
    RetryPolicy,
    Session,
    Timeouts,
)
from payasync.journal import Reconciler, SqliteJournal
from payasync.notifications import Notification, Receiver, SqliteInbox
from tests.simulation import disk, service
from tests.simulation.world import Process

CREDENTIALS: Final = Credentials(
    service.MERCHANT, secret_key="sk_canary", signing_key="sign_canary_key_1", notification_keys=service.SECRET
)
OPEN: Final[frozenset[str]] = frozenset({"new", "sending", "unknown", "accepted"})
GRACE: Final = 10.0
"""Seconds by which a call may end after its time limit, to store what it knows."""
ATTEMPTS: Final = 5
"""Times that a shop calls for one thing at most."""
RECEIVING: Final = 60
"""Runs of the last reconciler, within 16 hours, beside which it receives; polling for longer takes long."""
GENUINE: Final = ("dead", "parked", "held")
"""States of events that a person looks at."""


@define
class Told:
    """What a caller was told.

    Attributes:
        thing: What it called for, such as `refund R1` or `close T1`.
        began: When it called.
        ended: When it was told.
        what: The state, or the name of the error.
    """

    thing: str
    began: float
    ended: float
    what: str


@define
class Handled:
    """What a handler got, and when."""

    number: str
    state: str
    at: float


@define
class Record:
    """What is known of a life beside the service's ledger.

    Attributes:
        told: What callers were told.
        manual: The states of what the journal listed for a person.
        called: What each process called for, by the names of the processes.
        faults: What may never happen in a process, such as a task that it leaves behind.
    """

    told: list[Told] = field(factory=list)
    manual: list[str] = field(factory=list)
    called: dict[str, set[str]] = field(factory=dict)
    faults: list[str] = field(factory=list)


class Shop:
    """A process of the merchant's, with the journal, inbox and database that all of them share.

    Args:
        record: What callers are told is noted there.
        process: The process.
        folder: Where the files are.
        profile: Describes the service.
        habits: What the disk does.

    Attributes:
        process: The process.
        ended: Whether it has ended by itself, and its callers were told everything.
        ends: The journal's state of each thing, after `finish`.
        work: What it does.
        pause: Seconds between two calls for one thing.
    """

    def __init__(self, record: Record, process: Process, folder: Path, profile: Profile, habits: disk.Habits) -> None:
        self.process: Final = process
        self.ended = False
        self.ends = list[tuple[str, str]]()
        self.work: asyncio.Task[Any] | None = None
        self._record, self._folder, self._profile, self._habits = record, folder, profile, habits
        self._world, self._name = process.world, process.name
        self._called = record.called.setdefault(self._name, set())
        self._repeats = self._world.draw(f"whether {self._name} repeats") < 0.5
        self.pause = 0.0

    @property
    def is_over(self) -> bool:
        """Whether it does nothing more: it has ended, was killed, or its files could not be opened or closed."""
        return self.process.killed or (self.work is not None and self.work.done())

    # What callers do

    async def trade(self, things: Sequence[str]) -> None:
        """Make refunds, orders and payments at once, and call again for what is not made."""
        async with self._opened() as (journal, pay):
            if self._world.happens(f"{self._name} sends many", 0.2):
                await self._send_many(pay, [each for each in things if each.startswith("refund")])
            await asyncio.gather(*(self._make(pay, journal, each) for each in things))
        await self._end()

    async def _make(self, pay: Session, journal: SqliteJournal, thing: str) -> None:
        for _ in range(ATTEMPTS):
            told = await self._call(pay, journal, thing)
            if told in {"succeeded", "pending", "paid"} or (told == "failed" and not self._repeats):
                break
            await asyncio.sleep(self.pause)
        number = thing.partition(" ")[2]
        if thing.startswith("order") and self._world.happens(f"{self._name} closes {number}", 0.6):
            await asyncio.sleep(self._world.between(0, 100, f"close of {number}"))
            closed = await self._call(pay, journal, f"close {number}")
            if closed == "closed" and self._world.happens(f"{self._name} places {number} again", 0.5):
                await self._call(pay, journal, thing)

    async def _call(self, pay: Session, journal: SqliteJournal, thing: str) -> str:
        world, name = self._world, self._name
        began, mine = world.now, self.process.loop.time()
        self._called.add(thing)
        world.note(f"{name} calls for {thing}")
        call = asyncio.ensure_future(self._send(pay, journal, thing))
        if world.happens(f"{name} cancels {thing}", 0.1):
            await asyncio.wait({call}, timeout=world.between(0, 8, f"patience of {name}"))
            call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        told = "cancelled" if call.cancelled() else call.result()
        self._tell(thing, told, began)
        taken = self.process.loop.time() - mine
        if taken > Timeouts().total + GRACE and not self.process.was_stopped and not self._habits.slow:
            self._record.faults.append(f"LATE: a call for {thing} took {taken} s")
        return told

    async def _send(self, pay: Session, journal: SqliteJournal, thing: str) -> str:
        request, intent = request_for(thing), thing if thing.startswith("payment") else None
        try:
            if self._world.draw(f"queue of {self._name}") < 0.3:
                queued = await journal.add(request, merchant=service.MERCHANT, intent=intent)
                return str((await pay.execute(queued)).state)
            shield = self._world.draw(f"shield of {self._name}") < 0.2
            return str((await pay.send(request, intent=intent, shield=shield)).state)
        except PayasyncError as error:
            return type(error).__name__

    async def _send_many(self, pay: Session, things: Sequence[str]) -> None:
        began = self._world.now
        self._called.update(things)
        async for result in pay.bulk([request_for(each) for each in things]):
            state = getattr(getattr(result, "response", None), "state", None)
            number = str(getattr(result.request, "out_refund_no", ""))
            self._tell(f"refund {number}", str(state or type(result).__name__), began)

    def _tell(self, thing: str, what: str, began: float) -> None:
        self._world.note(f"{self._name} is told about {thing}: {what}")
        self._record.told.append(Told(thing, began, self._world.now, what))

    # What operators run

    async def reconcile(self, rounds: int, pause: float) -> None:
        """Send what is queued, and reconcile, until nothing is open."""
        async with self._opened() as (journal, pay):
            reconciler = Reconciler(pay, journal)
            for _ in range(rounds):
                with suppress(PayasyncError):
                    await self._work_off(pay, journal)
                    await reconciler.run_once()
                    found = await journal.list()
                    if found and OPEN.isdisjoint(each.state for each in found):
                        break
                await asyncio.sleep(pause)
        await self._end()

    @staticmethod
    async def _work_off(pay: Session, journal: SqliteJournal) -> None:
        for each in await journal.list("new"):
            with suppress(PayasyncError):
                await pay.execute(each.id)

    async def finish(
        self, rounds: int, settled: Callable[[], bool], look_up: Callable[[str], bool], patience: float
    ) -> None:
        """Reconcile and receive until nothing is open; then do what the runbook says about what is left.

        Args:
            rounds: How many times it reconciles at most.
            settled: Returns whether the service sends nothing more.
            look_up: Returns whether the service's back office shows that a thing was done.
            patience: Seconds that a person waits before looking there.
        """
        turns = iter(range(rounds))
        async with self._opened() as (journal, pay):
            reconciler = Reconciler(pay, journal)

            async def reconcile(most: int) -> None:
                for turn in turns:
                    await self._work_off(pay, journal)
                    await reconciler.run_once()
                    found = await journal.list()
                    if settled() and (turn >= most or OPEN.isdisjoint(each.state for each in found)):
                        break
                    await asyncio.sleep(min(20.0 * 1.1**turn, 3600.0))

            async with self._receiving(pay, journal):
                await reconcile(RECEIVING)
            await reconcile(rounds)
            async with self._receiving(pay, journal) as receiver:
                await self._follow_runbook(journal, receiver, look_up, patience)
            self.ends = [(thing_of(each), str(each.state)) for each in await journal.list()]
        await self._end()

    async def _follow_runbook(
        self, journal: SqliteJournal, receiver: Receiver, look_up: Callable[[str], bool], patience: float
    ) -> None:
        await asyncio.sleep(patience)
        for _ in range(RECEIVING):  # hints are asked about for an hour at most
            if not await receiver.events("pending"):
                break
            await asyncio.sleep(200.0)
        for each in await journal.list("manual"):
            self._record.manual.append(str(each.state))
            done = look_up(thing_of(each))
            as_: Any = "succeeded" if done else "rejected"
            self._world.note(f"a person ends {thing_of(each)} as {as_}: {each.reason}")
            await journal.resolve(each.id, as_=as_, reason="the back office shows it", seen="manual")
        for state in GENUINE:
            for event in await receiver.events(state):
                data = json.loads(event.raw)["data"]
                number = str(data.get("outRefundNo", data["outTradeNo"]))
                if not event.of_another and look_up(f"{'refund' if 'outRefundNo' in data else 'order'} {number}"):
                    await receiver.replay(event.id)
        await receiver.settle()

    # What the service calls

    async def receive(self, seconds: float) -> None:
        """Receive notifications for a while."""
        async with self._opened() as (journal, pay), self._receiving(pay, journal):
            await asyncio.sleep(seconds)
        await self._end()

    @asynccontextmanager
    async def _receiving(self, pay: Session, journal: SqliteJournal) -> AsyncGenerator[Receiver]:
        inbox = SqliteInbox(self._folder / "inbox.db", executor=self._executor)
        self.process.on_kill.append(partial(disk.disconnect, inbox))
        receiver = Receiver(inbox=inbox, session=pay)

        @receiver.on("*", transaction=self._begin)
        async def credit(event: Notification, connection: sqlite3.Connection) -> None:
            number = event.out_refund_no or event.out_trade_no
            self._world.note(f"a handler of {self._name} gets {number} {event.state}")
            connection.execute("INSERT INTO handled VALUES (?, ?, ?)", (number, event.state, self._world.now))

        @receiver.on("refund")
        async def tell_journal(event: Notification) -> None:
            number = str(event.out_refund_no)
            await journal.told("refunds.create", number, event.state, event.data, merchant=service.MERCHANT)

        async with receiver:
            app = web.Application()
            app.router.add_post("/notify/{kind}", receiver.aiohttp_handler)
            runner = web.AppRunner(app)
            await runner.setup()
            await web.TCPSite(runner, *service.RECEIVER).start()
            try:
                yield receiver
            finally:
                await runner.cleanup()

    @contextmanager
    def _begin(self) -> Generator[sqlite3.Connection]:
        connection = sqlite3.connect(self._folder / "shop.db")
        try:
            with connection:
                connection.execute("PRAGMA synchronous = OFF")
                connection.execute("CREATE TABLE IF NOT EXISTS handled (number TEXT, state TEXT, at REAL)")
                connection.execute("BEGIN IMMEDIATE")
                yield connection
        finally:
            connection.close()

    def read_handled(self) -> list[Handled]:
        """Return what handlers got, of all processes."""
        database = self._folder / "shop.db"
        if not database.exists():
            return []
        with closing(sqlite3.connect(database)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'handled'").fetchone():
                return []
            return [Handled(*row) for row in connection.execute("SELECT * FROM handled ORDER BY at")]

    # Its parts

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[tuple[SqliteJournal, Session]]:
        host, port = service.ADDRESS
        journal = SqliteJournal(self._folder / "pay.db", executor=self._executor)
        self.process.on_kill.append(partial(disk.disconnect, journal))
        async with (
            journal,
            Session(
                f"http://{host}:{port}",
                credentials=CREDENTIALS,
                profile=self._profile,
                journal=journal,
                retry=RetryPolicy(attempts=3),
            ) as pay,
        ):
            yield journal, pay

    def _executor(self, _: str) -> disk.Executor:
        return disk.Executor(self.process, self._habits)

    async def _end(self) -> None:
        await asyncio.sleep(1.0)  # connections end
        self.ended = True
        loop = self.process.loop
        left = [*(each for each in loop.tasks if each is not asyncio.current_task()), *self.process.connections]
        self._record.faults += [f"LEAK: {each} in {self._name}" for each in left]
        self._record.faults += [f"ERROR: {each} in {self._name}" for each in loop.errors]


def request_for(thing: str) -> Any:
    """Return the request that makes a thing: two requests for one thing are equal."""
    kind, _, number = thing.partition(" ")
    if kind == "refund":
        return CreateRefund(out_trade_no=number.replace("R", "T"), out_refund_no=number, total_amt=450, refund_amt=200)
    if kind == "order":
        return PlaceOrder(out_trade_no=number, total_amt=450, currency="CAD")
    if kind == "close":
        return CloseOrder(out_trade_no=number)
    return CreatePayment(amount=450, currency="CAD", description=number)


def thing_of(intent: Any) -> str:
    """Return the name of the thing that an intent makes."""
    kinds = {"refunds.create": "refund", "orders.place": "order", "orders.close": "close"}
    kind = kinds.get(intent.operation)
    return str(intent.intent) if kind is None else f"{kind} {intent.reference}"
