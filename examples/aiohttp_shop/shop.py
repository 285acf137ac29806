"""A shop in aiohttp. README.md says how to start it."""

import asyncio
import logging
import os
import re
import secrets
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiosqlite
import jinja2
from aiohttp import web
from aiohttp.typedefs import Handler

from payasync import (
    NOT_YET,
    DuplicateError,
    NotConfiguredError,
    NotSentError,
    OrderResponse,
    OutcomeUnknownError,
    PayasyncError,
    RateLimitedError,
    RefundResponse,
    Secret,
    ServiceError,
    Session,
    Timeouts,
)
from payasync.journal import SqliteJournal
from payasync.notifications import Expected, Notification, Receiver, SqliteInbox


class Product(NamedTuple):
    """A product. The price is in cents, and never comes from a form."""

    name: str
    price: int


PRODUCTS: Final = {
    "coffee": Product("Large coffee", 450),
    "tea": Product("Pot of tea", 380),
    "cake": Product("Carrot cake", 525),
}
CURRENCY: Final = "CAD"
PAGES: Final = Path(__file__).parents[1] / "shop_pages"
UNPAID: Final = ("new", "open", "checking")
UNSETTLED: Final = ("open", "checking", "unsent", "refused", "processing")
NOT_MADE: Final = ("refused", "failed")
LATE: Final = timedelta(minutes=1)  # longer than a call takes
TRIES: Final = 4  # the pauses after them last for about a minute
TABLES: Final = """
-- state: new (it is being placed), open (the customer can pay),
-- checking (its outcome is unknown), paid, refunded (before the shop knew of the
-- payment), failed, closed or expired
CREATE TABLE IF NOT EXISTS orders (
    number TEXT PRIMARY KEY, product TEXT NOT NULL, amount INT NOT NULL,
    state TEXT NOT NULL DEFAULT 'new',
    created TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
);
-- state: open (it may have been sent), checking, unsent, refused (see reason),
-- processing, succeeded or failed
CREATE TABLE IF NOT EXISTS refunds (
    number TEXT PRIMARY KEY, order_number TEXT NOT NULL REFERENCES orders,
    amount INT NOT NULL, state TEXT NOT NULL DEFAULT 'open',
    reason TEXT NOT NULL DEFAULT '', created TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP,
    pressed TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
);
-- a parcel to send; each payment stores exactly one
CREATE TABLE IF NOT EXISTS parcels (
    id INTEGER PRIMARY KEY, order_number TEXT NOT NULL REFERENCES orders
);
"""
ADD_ORDER: Final = """
INSERT INTO orders (number, product, amount) VALUES (?, ?, ?) ON CONFLICT DO NOTHING
"""
ADD_REFUND: Final = """
INSERT INTO refunds (number, order_number, amount) VALUES (?, ?, ?)
ON CONFLICT DO NOTHING
"""
STORE_ORDER_STATE: Final = """
UPDATE orders SET state = :new WHERE number = :number
AND (state IN ('new', 'open', 'checking')
     OR state NOT IN ('paid', 'refunded') AND :new != 'checking')
"""
STORE_REFUND_STATE: Final = """
UPDATE refunds SET state = :new, reason = :reason WHERE number = :number
AND (state IN ('open', 'checking', 'unsent', 'refused', 'processing')
     OR state != 'succeeded'
     AND :new NOT IN ('open', 'checking', 'unsent', 'refused', 'processing'))
"""
STORE_PRESSED: Final = """
UPDATE refunds SET pressed = CURRENT_TIMESTAMP WHERE number = ?
"""
STORE_NOT_FOUND: Final = """
UPDATE refunds SET state = 'unsent' WHERE number = ?
AND state IN ('open', 'checking') AND pressed < datetime('now', ?)
"""
STORE_LOST_ORDERS: Final = """
UPDATE orders SET state = 'checking'
WHERE state = 'new' AND created < datetime('now', '-1 minute')
"""
UNSETTLED_ORDERS: Final = """
SELECT * FROM orders
WHERE state IN ('new', 'open', 'checking') AND created > datetime('now', '-1 day')
"""
UNSETTLED_REFUNDS: Final = """
SELECT number FROM refunds
WHERE state IN ('open', 'checking', 'unsent', 'refused', 'processing')
AND created > datetime('now', '-1 day')
"""

# How your service names these fields, in responses and in notifications.
TOTAL_AMOUNT: Final = "totalAmt"
REFUND_AMOUNT: Final = "refundAmt"
CURRENCY_CODE: Final = "currency"
CHANGED: Final = "The refunds of this order have changed: load /admin again"
OTHER_AMOUNT: Final = "%s: the service has another amount: a person must look at it"

logger = logging.getLogger("shop")
templates = jinja2.Environment(
    loader=jinja2.FileSystemLoader(PAGES), autoescape=True
)


@dataclass(frozen=True)
class Database:
    """The shop's own database."""

    path: Path

    @asynccontextmanager
    async def begin(self) -> AsyncGenerator[aiosqlite.Connection]:
        """Begin a transaction: committed at the end, rolled back on an error."""
        async with aiosqlite.connect(self.path) as db:
            db.row_factory = aiosqlite.Row
            yield db
            await db.commit()

    async def find(self, query: str, *values: object) -> list[dict[str, Any]]:
        """Return the rows of a query."""
        async with self.begin() as db:
            return [dict(row) for row in await db.execute_fetchall(query, values)]


@dataclass(frozen=True)
class Payments:
    """What the shop does at the service, and stores of it."""

    url: str
    pay: Session
    database: Database

    async def place(self, order: dict[str, Any]) -> str | None:
        """Return the gateway's address, or `None` if it is unknown or lost.

        You may repeat this call: the journal sends each number once, and returns its
        address again.
        """
        try:
            placed = await self.pay.orders.place(
                out_trade_no=order["number"],
                subject=PRODUCTS[order["product"]].name,
                total_amt=order["amount"],
                currency=CURRENCY,
                return_url=f"{self.url}/orders/{order['number']}",
                notify_url=f"{self.url}/notify/payment",
            )
            address = placed.redirect_url
        except PayasyncError as error:
            if not may_be_placed(error):
                await self.store_open(order["number"], "new")  # try again
                raise
            logger.warning("%s", error)
            async with self.database.begin() as db:
                await store_order_state(db, order["number"], "checking")
            return None
        is_new = order["state"] == "new"
        if address is None:
            # The response was lost, and a query does not return the address.
            await self.close(order["number"])
        elif is_new and not await self.store_open(order["number"], "new"):
            return None  # cancelled, paid or checking by now: its page asks
        return address

    async def store_open(self, number: str, before: str) -> bool:
        """Let the customer pay. Return `False` if the state is not `before`."""
        opened = "UPDATE orders SET state = 'open' WHERE number = ? AND state = ?"
        async with self.database.begin() as db:
            return (await db.execute(opened, (number, before))).rowcount > 0

    async def close(self, number: str) -> None:
        """Close an order. If somebody has just paid it, it stays paid."""
        with suppress(PayasyncError):
            await self.pay.orders.close(number)
        await self.ask_about_order(number)

    async def ask_about_order(self, number: str) -> str | None:
        """Store and return the service's state. After an error, ask again later."""
        query = "SELECT amount FROM orders WHERE number = ?"
        (order,) = await self.database.find(query, number)
        with suppress(PayasyncError):
            found = await self.pay.orders.query(number, timeout=5)
            state = found.state
            if differs(found, expected_payment(order["amount"])):
                logger.error(OTHER_AMOUNT, number)
                state = "checking"
            async with self.database.begin() as db:
                await store_order_state(db, number, state)
            return state
        return None

    async def refresh_order(self, order: dict[str, Any]) -> None:
        """Find out what became of an unpaid order.

        As long as its outcome is unknown, the journal sends nothing. The customer
        can pay once the service has confirmed the order. A late order without an
        address is closed, because nobody can pay it.
        """
        address = None
        if order["state"] == "checking":
            with suppress(PayasyncError):
                address = await self.place(order)
        state = await self.ask_about_order(order["number"])
        if order["state"] != "checking" or state != "pending":
            return
        if address:
            await self.store_open(order["number"], "checking")
        elif is_late(order):
            await self.close(order["number"])

    async def refund(self, order: dict[str, Any], number: str, amount: int) -> None:
        """Refund an order, or a part of it, and store the state.

        You may repeat this call: it is sent again only if no refund was made.
        """
        reason = ""
        async with self.database.begin() as db:
            await db.execute(STORE_PRESSED, (number,))
        try:
            made = await self.pay.refunds.create(
                out_trade_no=order["number"],
                out_refund_no=number,
                total_amt=order["amount"],
                refund_amt=amount,
                notify_url=f"{self.url}/notify/refund",
            )
            state = made.state
        except (OutcomeUnknownError, DuplicateError):
            state = "checking"
        except (NotSentError, RateLimitedError) as error:
            wait = f"; wait {error.retry_after:.0f} s" if error.retry_after else ""
            state, reason = "unsent", f"{error}{wait}"
        except ServiceError as error:
            state, reason = "refused", str(error)
        async with self.database.begin() as db:
            await store_refund_state(db, number, state, reason)

    async def ask_about_refund(self, number: str) -> bool:
        """Store a refund's state. Return whether to send the refund again."""
        query = "SELECT amount FROM refunds WHERE number = ?"
        (refund,) = await self.database.find(query, number)
        try:
            found = await self.pay.refunds.status(number, timeout=5)
        except PayasyncError as error:
            if isinstance(error, ServiceError) and error.absent:
                await self.store_not_found(number)
            return True
        same = not differs(found, {REFUND_AMOUNT: refund["amount"]})
        if not same:
            logger.error(OTHER_AMOUNT, number)
        async with self.database.begin() as db:
            await store_refund_state(db, number, found.state if same else "checking")
        return same and found.state not in {"succeeded", "failed"}

    async def store_not_found(self, number: str) -> None:
        """Store that a refund was not sent, once "not found" is final."""
        quarantine = self.pay.profile.recovery.quarantine
        if quarantine is None:
            return
        seconds = LATE.total_seconds() + quarantine
        async with self.database.begin() as db:
            await db.execute(STORE_NOT_FOUND, (number, f"-{seconds} seconds"))

    async def ask_about_unsettled(self) -> None:
        """Each minute, ask about what has not ended.

        A notification may be late, and a customer may never return.
        """
        while True:
            try:
                async with self.database.begin() as db:
                    await db.execute(STORE_LOST_ORDERS)  # their process has ended
                for order in await self.database.find(UNSETTLED_ORDERS):
                    await self.refresh_order(order)
                for refund in await self.database.find(UNSETTLED_REFUNDS):
                    await self.ask_about_refund(refund["number"])
            except Exception:
                logger.exception(
                    "cannot ask about unsettled orders; trying again in a minute"
                )
            await asyncio.sleep(60)


def may_be_placed(error: PayasyncError) -> bool:
    """Return whether an order may have been placed, although `place` failed."""
    if isinstance(error, NotConfiguredError):
        return bool(error.sent)  # by `redirect_url`, after the order was placed
    return isinstance(error, (OutcomeUnknownError, DuplicateError))


def expected_payment(amount: int) -> dict[str, object]:
    """Return what the service must say of an order."""
    return {TOTAL_AMOUNT: amount, CURRENCY_CODE: CURRENCY}


def differs(
    found: OrderResponse | RefundResponse, expected: dict[str, object]
) -> bool:
    """Return whether a value differs. A missing value is no difference."""
    return any(found.get(name) not in (None, to) for name, to in expected.items())


def is_late(order: dict[str, Any]) -> bool:
    """Return whether the call that placed the order has certainly ended."""
    created = datetime.fromisoformat(order["created"]).replace(tzinfo=UTC)
    return created < datetime.now(UTC) - LATE


def may_refund(order: dict[str, Any], number: str, amount: int) -> bool:
    """Return whether so much is left, and the number is a known or the next one."""
    others = [each for each in order["refunds"] if each["number"] != number]
    made = sum(each["amount"] for each in others if each["state"] not in NOT_MADE)
    known = {each["number"] for each in order["refunds"]}
    following = f"{order['number']}-R{len(known) + 1}"
    fits = 0 < amount <= order["amount"] - made
    return order["state"] == "paid" and fits and number in known | {following}


async def store_order_state(
    db: aiosqlite.Connection, number: str, state: str | None
) -> None:
    """Store a state. Each payment stores one parcel, unless it was refunded before.

    An order that is paid or refunded keeps its state.
    """
    if state is None:
        logger.warning(
            "%s: its state is not in the profile's [states.order]", number
        )
    if state == "pending":
        return
    new = state or "checking"
    changed = await db.execute(STORE_ORDER_STATE, {"new": new, "number": number})
    if changed.rowcount and new == "paid":
        await db.execute("INSERT INTO parcels (order_number) VALUES (?)", (number,))


async def store_refund_state(
    db: aiosqlite.Connection, number: str, state: str | None, reason: str = ""
) -> None:
    """Store a state. A refund that has succeeded stays so."""
    if state is None:
        logger.warning(
            "%s: its state is not in the profile's [states.refund]", number
        )
    row = {"new": state or "checking", "reason": reason, "number": number}
    await db.execute(STORE_REFUND_STATE, row)


def receive(
    payments: Payments, journal: SqliteJournal, inbox: SqliteInbox
) -> Receiver:
    """Store what verified notifications say. Another amount is held for a person."""
    receiver = Receiver(inbox=inbox, session=payments.pay)
    database = payments.database

    async def record(write: str, number: str | None, it: Notification) -> None:
        if number:
            await journal.told(
                write,
                number,
                it.state,
                it.trusted,
                merchant=payments.pay.merchant_id,
                profile=payments.pay.profile,
            )

    def unknown(it: Notification) -> Expected:
        """Ask again for about a minute: a number may be stored in a moment."""
        return NOT_YET if it.attempt <= TRIES else None

    async def expect_payment(it: Notification) -> Expected:
        query = "SELECT amount FROM orders WHERE number = ?"
        found = await database.find(query, it.out_trade_no)
        return expected_payment(found[0]["amount"]) if found else unknown(it)

    async def expect_refund(it: Notification) -> Expected:
        query = "SELECT amount FROM refunds WHERE number = ?"
        found = await database.find(query, it.out_refund_no)
        return {REFUND_AMOUNT: found[0]["amount"]} if found else unknown(it)

    @receiver.on("payment", expect=expect_payment, transaction=database.begin)
    async def payment_changed(it: Notification, db: aiosqlite.Connection) -> None:
        await record("orders.place", it.out_trade_no, it)
        await store_order_state(db, it.out_trade_no or "", it.state)

    @receiver.on("refund", expect=expect_refund, transaction=database.begin)
    async def refund_changed(it: Notification, db: aiosqlite.Connection) -> None:
        await record("refunds.create", it.out_refund_no, it)
        await store_refund_state(db, it.out_refund_no or "", it.state)

    return receiver


@dataclass(frozen=True)
class Pages:
    """The pages of customers and of the administrator."""

    payments: Payments
    password: Secret

    async def show_products(self, _request: web.Request) -> web.Response:
        """Show the products.

        Each form has the number of a new order: a second click orders nothing more.
        """
        return show("products.html", new_number=lambda: secrets.token_hex(12))

    async def buy(self, request: web.Request) -> web.Response:
        """Store the order, and send the customer to the gateway.

        Only the click that stores the order places it.
        """
        form = await request.post()
        product, number = str(form.get("product")), str(form.get("number"))
        if product not in PRODUCTS or not re.fullmatch("[0-9a-f]{24}", number):
            raise web.HTTPBadRequest(text="No such product")
        row = number, product, PRODUCTS[product].price
        async with self.payments.database.begin() as db:
            is_new = (await db.execute(ADD_ORDER, row)).rowcount > 0
        return await self._send_to_gateway(number, "new" if is_new else "open")

    async def pay_order(self, request: web.Request) -> web.Response:
        """Send the customer to the gateway again."""
        return await self._send_to_gateway(request.match_info["number"], "open")

    async def _send_to_gateway(self, number: str, state: str) -> web.Response:
        order = await self._find_order(number)
        address = (
            await self.payments.place(order) if order["state"] == state else None
        )
        raise web.HTTPSeeOther(address or f"/orders/{number}")

    async def cancel_order(self, request: web.Request) -> web.Response:
        """Close an order that the customer does not want any more."""
        order = await self._find_order(request.match_info["number"])
        if order["state"] in UNPAID:
            await self.payments.close(order["number"])
        raise web.HTTPSeeOther(f"/orders/{order['number']}")

    async def show_order(self, request: web.Request) -> web.Response:
        """Show an order.

        A customer who returns from the gateway proves nothing: ask the service.
        """
        order = await self._find_order(request.match_info["number"])
        if order["state"] in UNPAID:
            await self.payments.refresh_order(order)
            order = await self._find_order(order["number"])
        return show("order.html", order=order)

    async def _find_order(self, number: str) -> dict[str, Any]:
        query = "SELECT * FROM orders WHERE number = ?"
        found = await self.payments.database.find(query, number)
        if not found:
            raise web.HTTPNotFound(text="No such order")
        refunds = (
            "SELECT * FROM refunds WHERE order_number = ? ORDER BY created, number"
        )
        return {
            **found[0],
            "refunds": await self.payments.database.find(refunds, number),
        }

    def _check_admin(self, request: web.Request) -> None:
        expected = b64encode(f"admin:{self.password.reveal()}".encode())
        given = request.headers.get("Authorization", "").encode()
        if not secrets.compare_digest(given, b"Basic " + expected):
            raise web.HTTPUnauthorized(headers={"WWW-Authenticate": "Basic"})

    async def show_orders(self, request: web.Request) -> web.Response:
        """Show the newest orders, and a button for each refund."""
        self._check_admin(request)
        find = self.payments.database.find
        newest = await find(
            "SELECT number FROM orders ORDER BY created DESC LIMIT 100"
        )
        parcels = await find("SELECT count(*) AS count FROM parcels")
        orders = [await self._find_order(order["number"]) for order in newest]
        return show("admin.html", orders=orders, parcels=parcels[0]["count"])

    async def refund_order(self, request: web.Request) -> web.Response:
        """Refund an order, or a part of it.

        The form has the refund's number: a second click refunds nothing more.
        """
        self._check_admin(request)
        order, form = (
            await self._find_order(request.match_info["number"]),
            await request.post(),
        )
        number, amount = str(form.get("refund")), str(form.get("amount"))
        if not amount.isdecimal() or not may_refund(order, number, int(amount)):
            raise web.HTTPConflict(text=CHANGED)
        row = number, order["number"], int(amount)
        async with self.payments.database.begin() as db:
            is_new = (await db.execute(ADD_REFUND, row)).rowcount > 0
        query = "SELECT * FROM refunds WHERE number = ?"
        (stored,) = await self.payments.database.find(query, number)
        if stored["amount"] != int(amount):
            raise web.HTTPConflict(text=CHANGED)
        is_open = stored["state"] in UNSETTLED
        if is_new or (is_open and await self.payments.ask_about_refund(number)):
            await self.payments.refund(order, number, stored["amount"])
        raise web.HTTPSeeOther("/admin")

    @web.middleware
    async def protect(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        """Refuse forms of other sites, and say if a call was not carried out."""
        if request.headers.get("Origin", self.payments.url) != self.payments.url:
            raise web.HTTPForbidden(
                text=f"This form is not from {self.payments.url}"
            )
        try:
            return await handler(request)
        except PayasyncError as error:
            # What may have been carried out is an OutcomeUnknownError.
            logger.warning("%s", error)
            refused = isinstance(error, ServiceError)
            sent = not refused and error.sent is not False
            return show("failure.html", status=503, refused=refused, sent=sent)


def money(cents: int) -> str:
    """Return an amount as the pages show it."""
    return f"{cents // 100}.{cents % 100:02} {CURRENCY}"


def show(page: str, *, status: int = 200, **values: object) -> web.Response:
    """Return a page. No other site may frame it."""
    known = {"products": PRODUCTS, "money": money}
    html = templates.get_template(page).render({**known, **values})
    policy = "default-src 'none'; style-src 'self'; frame-ancestors 'none'"
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-store"}
    return web.Response(
        text=html, content_type="text/html", status=status, headers=headers
    )


def create_app(_arguments: list[str] | None = None) -> web.Application:
    """Build the application from the environment. This opens nothing."""
    logging.getLogger().setLevel(logging.INFO)  # aiohttp.web sets DEBUG
    folder = Path(os.environ.get("SHOP_FOLDER", ".")).absolute()
    journal = SqliteJournal(folder / "pay.db")
    database = Database(folder / "shop.db")
    times = Timeouts(total=15)  # a customer waits
    pay = Session.from_env(journal=journal, timeouts=times)
    payments = Payments(os.environ["SHOP_URL"].rstrip("/"), pay, database)
    receiver = receive(payments, journal, SqliteInbox(folder / "inbox.db"))
    pages = Pages(payments, Secret(os.environ["SHOP_ADMIN_PASSWORD"]))

    async def lifetime(_app: web.Application) -> AsyncIterator[None]:
        async with database.begin() as db:
            await db.executescript(TABLES)
        async with journal, pay, receiver:
            await journal.list()  # makes the file, for `payasync reconcile`
            asking = asyncio.create_task(payments.ask_about_unsettled())
            yield
            asking.cancel()
            await asyncio.wait([asking])

    # A service may sign the compressed bytes of a notification.
    packed = {"auto_decompress": False}
    app = web.Application(middlewares=[pages.protect], handler_args=packed)
    app.cleanup_ctx.append(lifetime)
    app.router.add_get("/", pages.show_products)
    app.router.add_post("/orders", pages.buy)
    app.router.add_get("/orders/{number}", pages.show_order)
    app.router.add_post("/orders/{number}/pay", pages.pay_order)
    app.router.add_post("/orders/{number}/cancel", pages.cancel_order)
    app.router.add_get("/admin", pages.show_orders)
    app.router.add_post("/admin/orders/{number}/refund", pages.refund_order)
    app.router.add_post("/notify", receiver.aiohttp_handler)
    app.router.add_post("/notify/{kind}", receiver.aiohttp_handler)
    app.router.add_static("/static", PAGES / "static")
    return app
