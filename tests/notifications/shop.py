"""A shop: a merchant's server with the receiver in it, notified by a sandbox over real HTTP, with books in SQLite."""

import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from attrs import define, evolve

from payasync import Profile, Session, SignedHeader, SortedPairs
from payasync.clocks import Pace
from payasync.notifications import Notification, Receiver, SqliteInbox
from payasync.resources.orders import PlaceOrder
from payasync.resources.refunds import CreateRefund
from payasync.sandbox import PROFILE, Sandbox
from payasync.wire.response import OrderResponse
from tests.scrambled import scrambled

AT_ONCE: Final = Pace(clock=time.time, jitter=lambda _: 0.0)
"""What failed is due again at once: `settle` waits for its retries, too."""
ORDER: Final = "ORDER"
"""Without a digit: a fault that corrupts a body of which nothing is signed leaves the number as it is."""
TOTAL: Final = 450
GIVEN_BACK: Final = 100
WAYS: Final = ("standard-webhooks", "body", "none", "header")
"""How notifications can be verified."""


def verified_by(profile: Profile, verification: str) -> Profile:
    """Return a profile that verifies notifications in another way."""
    shape = profile.notification
    volatile, signature, time, header = shape.volatile, "", shape.time, None
    if verification == "body":
        signature = shape.signature or f"{shape.data}.sealed".lstrip(".")
        place = signature.rpartition(".")[0]
        if time:
            time = f"{place}.{time.rpartition('.')[2]}".lstrip(".")  # beside what is signed it would say nothing
        volatile = ("nonceStr", signature.rpartition(".")[2], *([time] if time else []))
    scheme = profile.signature
    if verification == "header":
        header = SignedHeader(signature="X-Seal", timestamp="X-Sent", text="{timestamp}{body}")
        if isinstance(scheme, SortedPairs) and scheme.algorithm == "md5":  # it has no key for a text
            scheme = evolve(scheme, algorithm="hmac-md5")
    changed: dict[str, Any] = {
        "verification": verification,
        "signature": signature,
        "volatile": volatile,
        "time": time,
        "header": header,
    }
    if verification == "body" and isinstance(scheme, SortedPairs):
        # A nested event or state that the signature leaves out would be believed of nobody.
        scheme = evolve(scheme, nested="json")
    name = f"{profile.name} by {verification}"
    return evolve(profile, notification=evolve(shape, **changed), signature=scheme, name=name)


def profiles(seed: str) -> list[Profile]:
    """Return the sandbox's own profile and one that nobody knows, each verified in every way."""
    return [verified_by(each, how) for each in (PROFILE, scrambled(seed)) for how in WAYS]


class Books:
    """The merchant's own database: what was credited, and what was mailed; nothing in it keeps a second row away.

    Args:
        path: Its file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self.begin() as db:
            db.execute("CREATE TABLE IF NOT EXISTS credited (number TEXT)")
            db.execute("CREATE TABLE IF NOT EXISTS mailed (number TEXT)")

    @contextmanager
    def begin(self) -> Generator[sqlite3.Connection]:
        """Begin a transaction."""
        with closing(sqlite3.connect(self._path)) as db, db:
            yield db

    def of(self, table: str) -> list[str]:
        """Return the numbers in a table, sorted."""
        with self.begin() as db:
            return sorted(number for (number,) in db.execute(f"SELECT number FROM {table}"))  # noqa: S608 - ours


def number(notification: Notification) -> str:
    """Return what names an event to the merchant: a number, and of a subscription its period, too."""
    if notification.subscription_id:
        return f"{notification.subscription_id} {notification.get('period')}"
    return str(notification.out_refund_no or notification.out_trade_no)


def keep_books(receiver: Receiver, books: Books, step: Callable[[str], object] = bool) -> None:
    """Have a receiver credit each event in a transaction, and mail it without one.

    Args:
        receiver: Dispatches.
        books: Hold what comes of it.
        step: Called in the midst of both, before what they write is committed.
    """

    @receiver.on("*", transaction=books.begin, unverified=True)
    async def credited(notification: Notification, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO credited VALUES (?)", (number(notification),))
        step("crediting")

    @receiver.on("*", unverified=True)
    async def mailed(notification: Notification) -> None:
        with books.begin() as db:
            db.execute("INSERT INTO mailed VALUES (?)", (number(notification),))
            step("mailing")


@define(kw_only=True)
class Shop:
    """A merchant, and the service that tells it what happens.

    Attributes:
        sandbox: The service; its time stands still.
        pay: The merchant's session.
        receiver: Takes notifications.
        books: What has come of them.
        url: Below it stand the addresses for notifications, one for each kind.
    """

    sandbox: Sandbox
    pay: Session
    receiver: Receiver
    books: Books
    url: str = ""

    async def place(self, out_trade_no: str = ORDER) -> OrderResponse:
        """Place an order."""
        return await self.pay.send(order(out_trade_no, f"{self.url}/payment"))

    async def paid(self, *numbers: str) -> None:
        """Have orders placed and paid on the gateway's page, one after the other."""
        for each in numbers or (ORDER,):
            await self.sandbox.customer.authorize(await self.place(each))
            await self.settle()

    async def refund(self, out_refund_no: str, out_trade_no: str = ORDER) -> None:
        """Give a part of an order back."""
        await self.pay.send(refund(out_refund_no, out_trade_no, f"{self.url}/refund"))
        await self.settle()

    async def settle(self) -> None:
        """Wait until the service has sent all notifications that are due, and the receiver has handled them."""
        await self.sandbox.settle()
        await self.receiver.settle()

    async def pass_time(self) -> None:
        """Let the time of all redeliveries pass, one after the other."""
        for wait in self.sandbox.profile.sandbox.redelivery:
            await self.sandbox.clock.advance(seconds=wait)
            await self.settle()


def order(out_trade_no: str, notify_url: str) -> PlaceOrder:
    """Return a request for an order that any service takes."""
    return PlaceOrder(
        out_trade_no=out_trade_no,
        total_amt=TOTAL,
        currency="CAD",
        subject="Coffee",
        scene_type="JSAPI",
        notify_url=notify_url,
    )


def refund(out_refund_no: str, out_trade_no: str, notify_url: str) -> CreateRefund:
    """Return a request for a refund that any service takes."""
    return CreateRefund(
        out_trade_no=out_trade_no,
        out_refund_no=out_refund_no,
        total_amt=TOTAL,
        refund_amt=GIVEN_BACK,
        refund_desc="cold",
        notify_url=notify_url,
    )


@asynccontextmanager
async def opened(profile: Profile, folder: Path) -> AsyncGenerator[Shop]:
    """Open a shop with its books.

    Args:
        profile: What the service does.
        folder: Its inbox and its books stand there.
    """
    async with Sandbox(profile, clock="frozen") as sandbox, sandbox.session() as pay:
        shop = Shop(
            sandbox=sandbox,
            pay=pay,
            receiver=Receiver(
                profile=profile,
                credentials=sandbox.credentials,
                inbox=SqliteInbox(folder / "inbox.db"),
                session=pay,
                pace=AT_ONCE,
            ),
            books=Books(folder / "books.db"),
        )
        keep_books(shop.receiver, shop.books)
        async with served(shop), shop.receiver:
            yield shop


@asynccontextmanager
async def served(shop: Shop) -> AsyncGenerator[None]:
    """Serve a shop's addresses for notifications."""
    application = web.Application()
    application.router.add_post("/notify/{kind}", shop.receiver.aiohttp_handler)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        shop.url = f"http://127.0.0.1:{runner.addresses[0][1]}/notify"
        shop.sandbox.webhook_url = f"{shop.url}/subscription"
        yield
    finally:
        await runner.cleanup()
