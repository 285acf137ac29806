"""A shop in FastAPI. README.md says how to start it."""

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from fastapi import (
    APIRouter,
    Depends,
    FastAPI,
    Form,
    HTTPException,
    Request,
    Response,
)
from fastapi.responses import PlainTextResponse, RedirectResponse
from fastapi.security import HTTPBasic, HTTPBasicCredentials
from fastapi.staticfiles import StaticFiles
from fastapi.templating import Jinja2Templates
from sqlalchemy import ForeignKey, func, select, update
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
from starlette.routing import Route

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
PAID: Final = ("paid", "refunded")
UNSETTLED: Final = ("open", "checking", "unsent", "refused", "processing")
NOT_MADE: Final = ("refused", "failed")
LATE: Final = timedelta(minutes=1)  # longer than a call takes
TRIES: Final = 4  # the pauses after them last for about a minute

# How your service names these fields, in responses and in notifications.
TOTAL_AMOUNT: Final = "totalAmt"
REFUND_AMOUNT: Final = "refundAmt"
CURRENCY_CODE: Final = "currency"
CHANGED: Final = "The refunds of this order have changed: load /admin again"
OTHER_AMOUNT: Final = "%s: the service has another amount: a person must look at it"

logger = logging.getLogger("shop")
router = APIRouter()
templates = Jinja2Templates(PAGES)


class Base(DeclarativeBase):
    """The shop's own tables."""


class Order(Base):
    """An order.

    The state: `new` (it is being placed), `open` (the customer can pay), `checking`
    (the outcome is unknown), `paid`, `refunded` (before the shop knew of the
    payment), `failed`, `closed` or `expired`.
    """

    __tablename__ = "orders"
    number: Mapped[str] = mapped_column(primary_key=True)
    product: Mapped[str]
    amount: Mapped[int]
    state: Mapped[str] = mapped_column(default="new")
    created: Mapped[datetime] = mapped_column(default=lambda: datetime.now(UTC))
    refunds: Mapped[list["Refund"]] = relationship(
        lazy="selectin", order_by="Refund.created"
    )


class Refund(Base):
    """A refund of an order, or of a part of it.

    The state: `open` (it may have been sent), `checking`, `unsent`, `refused` (see
    `reason`), `processing`, `succeeded` or `failed`.
    """

    __tablename__ = "refunds"
    number: Mapped[str] = mapped_column(primary_key=True)
    order_number: Mapped[str] = mapped_column(ForeignKey("orders.number"))
    amount: Mapped[int]
    state: Mapped[str] = mapped_column(default="open")
    reason: Mapped[str] = mapped_column(default="")
    created: Mapped[datetime] = mapped_column(default=lambda: datetime.now(UTC))
    pressed: Mapped[datetime] = mapped_column(default=lambda: datetime.now(UTC))


class Parcel(Base):
    """A parcel to send. Each payment stores exactly one."""

    __tablename__ = "parcels"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_number: Mapped[str]


@dataclass(frozen=True)
class Shop:
    """What the handlers share. `database.begin()` is a transaction."""

    url: str
    password: Secret
    pay: Session
    database: async_sessionmaker[AsyncSession]


def find_shop(request: Request) -> Shop:
    """Return what `create_app` has made."""
    shop: Shop = request.app.state.shop
    return shop


TheShop = Annotated[Shop, Depends(find_shop)]


@router.get("/")
async def show_products(request: Request) -> Response:
    """Show the products.

    Each form has the number of a new order: a second click orders nothing more.
    """
    return show(request, "products.html", new_number=lambda: secrets.token_hex(12))


@router.post("/orders")
async def buy(
    shop: TheShop,
    product: Annotated[str, Form()],
    number: Annotated[str, Form(pattern="^[0-9a-f]{24}$")],
) -> Response:
    """Store the order, and send the customer to the gateway.

    Only the click that stores the order places it.
    """
    if product not in PRODUCTS:
        raise HTTPException(404, "No such product")
    row = {"number": number, "product": product, "amount": PRODUCTS[product].price}
    added = insert(Order).values(row).on_conflict_do_nothing()
    async with shop.database.begin() as db:
        is_new = await db.scalar(added.returning(Order.number))
    if not is_new:
        return await pay_order(shop, number)
    address = await place(shop, await find_order(shop, number))
    return RedirectResponse(address or f"/orders/{number}", 303)


@router.post("/orders/{number}/pay")
async def pay_order(shop: TheShop, number: str) -> Response:
    """Send the customer to the gateway, or to the order if nothing is to pay."""
    order = await find_order(shop, number)
    address = await place(shop, order) if order.state == "open" else None
    return RedirectResponse(address or f"/orders/{number}", 303)


@router.post("/orders/{number}/cancel")
async def cancel_order(shop: TheShop, number: str) -> Response:
    """Close an order that the customer does not want any more."""
    order = await find_order(shop, number)
    if order.state in UNPAID:
        await close(shop, number)
    return RedirectResponse(f"/orders/{number}", 303)


@router.get("/orders/{number}")
async def show_order(request: Request, shop: TheShop, number: str) -> Response:
    """Show an order.

    A customer who returns from the gateway proves nothing: ask the service.
    """
    order = await find_order(shop, number)
    if order.state in UNPAID:
        await refresh_order(shop, order)
        order = await find_order(shop, number)
    return show(request, "order.html", order=order)


async def find_order(shop: Shop, number: str) -> Order:
    """Return an order of the database."""
    async with shop.database() as db:
        if order := await db.get(Order, number):
            return order
    raise HTTPException(404, "No such order")


def check_admin(
    shop: TheShop, given: Annotated[HTTPBasicCredentials, Depends(HTTPBasic())]
) -> None:
    """Let in only the user `admin`, with the password."""
    expected = f"admin:{shop.password.reveal()}".encode()
    said = f"{given.username}:{given.password}".encode()
    if not secrets.compare_digest(said, expected):
        raise HTTPException(
            401, "Wrong user or password", {"WWW-Authenticate": "Basic"}
        )


@router.get("/admin", dependencies=[Depends(check_admin)])
async def show_orders(request: Request, shop: TheShop) -> Response:
    """Show the newest orders, and a button for each refund."""
    async with shop.database() as db:
        newest = select(Order).order_by(Order.created.desc()).limit(100)
        orders = (await db.scalars(newest)).all()
        parcels = await db.scalar(select(func.count(Parcel.id)))
    return show(request, "admin.html", orders=orders, parcels=parcels)


@router.post("/admin/orders/{number}/refund", dependencies=[Depends(check_admin)])
async def refund_order(
    shop: TheShop,
    number: str,
    refund: Annotated[str, Form()],
    amount: Annotated[int, Form(gt=0)],
) -> Response:
    """Refund an order, or a part of it.

    The form has the refund's number: a second click refunds nothing more.
    """
    order = await find_order(shop, number)
    if not may_refund(order, refund, amount):
        raise HTTPException(409, CHANGED)
    row = {"number": refund, "order_number": number, "amount": amount}
    added = insert(Refund).values(row).on_conflict_do_nothing()
    async with shop.database.begin() as db:
        is_new = await db.scalar(added.returning(Refund.number))
        stored = await db.get_one(Refund, refund)
    if stored.amount != amount:
        raise HTTPException(409, CHANGED)
    is_open = stored.state in UNSETTLED
    if is_new or (is_open and await ask_about_refund(shop, refund)):
        await create_refund(shop, order, stored)
    return RedirectResponse("/admin", 303)


def may_refund(order: Order, number: str, amount: int) -> bool:
    """Return whether so much is left, and the number is a known or the next one."""
    others = [each for each in order.refunds if each.number != number]
    made = sum(each.amount for each in others if each.state not in NOT_MADE)
    known = {each.number for each in order.refunds}
    following = f"{order.number}-R{len(known) + 1}"
    fits = amount <= order.amount - made
    return order.state == "paid" and fits and number in known | {following}


async def place(shop: Shop, order: Order) -> str | None:
    """Return the gateway's address, or `None` if it is unknown or lost.

    You may repeat this call: the journal sends each number once, and returns its
    address again.
    """
    try:
        placed = await shop.pay.orders.place(
            out_trade_no=order.number,
            subject=PRODUCTS[order.product].name,
            total_amt=order.amount,
            currency=CURRENCY,
            return_url=f"{shop.url}/orders/{order.number}",
            notify_url=f"{shop.url}/notify/payment",
        )
        address = placed.redirect_url
    except PayasyncError as error:
        if not may_be_placed(error):
            await store_open(shop, order.number, "new")  # the customer may try again
            raise
        logger.warning("%s", error)
        async with shop.database.begin() as db:
            await store_order_state(db, order.number, "checking")
        return None
    if address is None:
        # The response was lost, and a query does not return the address.
        await close(shop, order.number)
    elif order.state == "new" and not await store_open(shop, order.number, "new"):
        return None  # cancelled, paid or checking by now: its page asks the service
    return address


def may_be_placed(error: PayasyncError) -> bool:
    """Return whether an order may have been placed, although `place` failed."""
    if isinstance(error, NotConfiguredError):
        return bool(error.sent)  # by `redirect_url`, after the order was placed
    return isinstance(error, (OutcomeUnknownError, DuplicateError))


async def store_open(shop: Shop, number: str, before: str) -> bool:
    """Let the customer pay. Return `False` if the state is not `before`."""
    opened = (
        update(Order)
        .where(Order.number == number, Order.state == before)
        .values(state="open")
        .returning(Order.number)
    )
    async with shop.database.begin() as db:
        return await db.scalar(opened) is not None


async def close(shop: Shop, number: str) -> None:
    """Close an order. If somebody has just paid it, it stays paid."""
    with suppress(PayasyncError):
        await shop.pay.orders.close(number)
    await ask_about_order(shop, number)


async def ask_about_order(shop: Shop, number: str) -> str | None:
    """Store and return the service's state. After an error, ask again later."""
    order = await find_order(shop, number)
    with suppress(PayasyncError):
        found = await shop.pay.orders.query(number, timeout=5)
        state = found.state
        if differs(found, expected_payment(order)):
            logger.error(OTHER_AMOUNT, number)
            state = "checking"
        async with shop.database.begin() as db:
            await store_order_state(db, number, state)
        return state
    return None


def expected_payment(order: Order) -> dict[str, object]:
    """Return what the service must say of an order."""
    return {TOTAL_AMOUNT: order.amount, CURRENCY_CODE: CURRENCY}


def differs(
    found: OrderResponse | RefundResponse, expected: dict[str, object]
) -> bool:
    """Return whether a value differs. A missing value is no difference."""
    return any(found.get(name) not in (None, to) for name, to in expected.items())


async def refresh_order(shop: Shop, order: Order) -> None:
    """Find out what became of an unpaid order.

    As long as its outcome is unknown, the journal sends nothing. The customer can
    pay once the service has confirmed the order. A late order without an address is
    closed, because nobody can pay it.
    """
    address = None
    if order.state == "checking":
        with suppress(PayasyncError):
            address = await place(shop, order)
    state = await ask_about_order(shop, order.number)
    if order.state != "checking" or state != "pending":
        return
    if address:
        await store_open(shop, order.number, "checking")
    elif is_late(order):
        await close(shop, order.number)


def is_late(order: Order) -> bool:
    """Return whether the call that placed the order has certainly ended."""
    return order.created.replace(tzinfo=UTC) < datetime.now(UTC) - LATE


async def store_order_state(
    db: AsyncSession, number: str, state: str | None
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
    is_open = new == "checking"
    before = Order.state.in_(UNPAID) if is_open else Order.state.not_in(PAID)
    changed = (
        update(Order)
        .where(Order.number == number, before)
        .values(state=new)
        .returning(Order.number)
    )
    if await db.scalar(changed) and new == "paid":
        db.add(Parcel(order_number=number))


async def create_refund(shop: Shop, order: Order, refund: Refund) -> None:
    """Refund an order, and store the state.

    You may repeat this call: it is sent again only if no refund was made.
    """
    number, reason = refund.number, ""
    pressed = update(Refund).where(Refund.number == number)
    async with shop.database.begin() as db:
        await db.execute(pressed.values(pressed=datetime.now(UTC)))
    try:
        made = await shop.pay.refunds.create(
            out_trade_no=order.number,
            out_refund_no=number,
            total_amt=order.amount,
            refund_amt=refund.amount,
            notify_url=f"{shop.url}/notify/refund",
        )
        state = made.state
    except (OutcomeUnknownError, DuplicateError):
        state = "checking"
    except (NotSentError, RateLimitedError) as error:
        wait = f"; wait {error.retry_after:.0f} s" if error.retry_after else ""
        state, reason = "unsent", f"{error}{wait}"
    except ServiceError as error:
        state, reason = "refused", str(error)
    async with shop.database.begin() as db:
        await store_refund_state(db, number, state, reason)


async def ask_about_refund(shop: Shop, number: str) -> bool:
    """Store a refund's state. Return whether to send the refund again."""
    try:
        found = await shop.pay.refunds.status(number, timeout=5)
    except PayasyncError as error:
        if isinstance(error, ServiceError) and error.absent:
            await store_not_found(shop, number)
        return True
    async with shop.database.begin() as db:
        refund = await db.get_one(Refund, number)
        same = not differs(found, {REFUND_AMOUNT: refund.amount})
        if not same:
            logger.error(OTHER_AMOUNT, number)
        await store_refund_state(db, number, found.state if same else "checking")
    return same and found.state not in {"succeeded", "failed"}


async def store_not_found(shop: Shop, number: str) -> None:
    """Store that a refund was not sent, once "not found" is final."""
    quarantine = shop.pay.profile.recovery.quarantine
    if quarantine is None:
        return
    before = datetime.now(UTC) - LATE - timedelta(seconds=quarantine)
    lost = Refund.state.in_(("open", "checking")), Refund.pressed < before
    async with shop.database.begin() as db:
        statement = update(Refund).where(Refund.number == number, *lost)
        await db.execute(statement.values(state="unsent"))


async def store_refund_state(
    db: AsyncSession, number: str, state: str | None, reason: str = ""
) -> None:
    """Store a state. A refund that has succeeded stays so."""
    if state is None:
        logger.warning(
            "%s: its state is not in the profile's [states.refund]", number
        )
    new = state or "checking"
    before = (
        Refund.state.in_(UNSETTLED)
        if new in UNSETTLED
        else Refund.state != "succeeded"
    )
    await db.execute(
        update(Refund)
        .where(Refund.number == number, before)
        .values(state=new, reason=reason)
    )


async def ask_about_unsettled(shop: Shop) -> None:
    """Each minute, ask about what has not ended.

    A notification may be late, and a customer may never return.
    """
    while True:
        since = datetime.now(UTC) - timedelta(days=1)
        try:
            async with shop.database.begin() as db:
                # The process that placed these orders has ended.
                lost = Order.state == "new", Order.created < datetime.now(UTC) - LATE
                await db.execute(update(Order).where(*lost).values(state="checking"))
                orders = select(Order).where(
                    Order.state.in_(UNPAID), Order.created > since
                )
                refunds = select(Refund.number).where(
                    Refund.state.in_(UNSETTLED), Refund.created > since
                )
                open_orders = (await db.scalars(orders)).all()
                open_refunds = (await db.scalars(refunds)).all()
            for order in open_orders:
                await refresh_order(shop, order)
            for number in open_refunds:
                await ask_about_refund(shop, number)
        except Exception:
            logger.exception(
                "cannot ask about unsettled orders; trying again in a minute"
            )
        await asyncio.sleep(60)


def register_handlers(
    receiver: Receiver, shop: Shop, journal: SqliteJournal
) -> None:
    """Store what verified notifications say. Another amount is held for a person."""

    async def record(write: str, number: str | None, it: Notification) -> None:
        if number:
            await journal.told(
                write,
                number,
                it.state,
                it.trusted,
                merchant=shop.pay.merchant_id,
                profile=shop.pay.profile,
            )

    def unknown(it: Notification) -> Expected:
        """Ask again for about a minute: a number may be stored in a moment."""
        return NOT_YET if it.attempt <= TRIES else None

    async def expect_payment(it: Notification) -> Expected:
        async with shop.database() as db:
            order = await db.get(Order, it.out_trade_no or "")
        return expected_payment(order) if order else unknown(it)

    async def expect_refund(it: Notification) -> Expected:
        async with shop.database() as db:
            refund = await db.get(Refund, it.out_refund_no or "")
        return {REFUND_AMOUNT: refund.amount} if refund else unknown(it)

    @receiver.on("payment", expect=expect_payment, transaction=shop.database.begin)
    async def payment_changed(it: Notification, db: AsyncSession) -> None:
        await record("orders.place", it.out_trade_no, it)
        await store_order_state(db, it.out_trade_no or "", it.state)

    @receiver.on("refund", expect=expect_refund, transaction=shop.database.begin)
    async def refund_changed(it: Notification, db: AsyncSession) -> None:
        await record("refunds.create", it.out_refund_no, it)
        await store_refund_state(db, it.out_refund_no or "", it.state)


def create_app() -> FastAPI:
    """Build the application from the environment. This opens nothing."""
    folder = Path(os.environ.get("SHOP_FOLDER", ".")).absolute()
    engine = create_async_engine(f"sqlite+aiosqlite:///{folder / 'shop.db'}")
    journal = SqliteJournal(folder / "pay.db")
    times = Timeouts(total=15)  # a customer waits
    pay = Session.from_env(journal=journal, timeouts=times)
    database = async_sessionmaker(engine, expire_on_commit=False)
    password = Secret(os.environ["SHOP_ADMIN_PASSWORD"])
    shop = Shop(os.environ["SHOP_URL"].rstrip("/"), password, pay, database)
    receiver = Receiver(inbox=SqliteInbox(folder / "inbox.db"), session=pay)
    register_handlers(receiver, shop, journal)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        async with engine.begin() as db:
            await db.run_sync(Base.metadata.create_all)
        async with journal, pay, receiver:
            await journal.list()  # makes the file, for `payasync reconcile`
            asking = asyncio.create_task(ask_about_unsettled(shop))
            yield
            asking.cancel()
            await asyncio.wait([asking])
        await engine.dispose()

    app = FastAPI(lifespan=lifespan, openapi_url=None)
    app.state.shop = shop
    app.include_router(router)
    app.mount("/notify", receiver.asgi)
    app.router.routes.append(Route("/notify", receiver.asgi))
    app.mount("/static", StaticFiles(directory=PAGES / "static"))
    app.middleware("http")(protect)
    app.add_exception_handler(PayasyncError, show_failure)
    return app


async def protect(
    request: Request, call_next: Callable[[Request], Awaitable[Response]]
) -> Response:
    """Refuse forms of other sites, and forbid other sites to frame these pages."""
    shop = find_shop(request)
    if request.headers.get("Origin", shop.url) != shop.url:
        return PlainTextResponse(f"This form is not from {shop.url}", 403)
    response = await call_next(request)
    policy = "default-src 'none'; style-src 'self'; frame-ancestors 'none'"
    response.headers["Content-Security-Policy"] = policy
    response.headers["Cache-Control"] = "no-store"
    return response


async def show_failure(request: Request, error: Exception) -> Response:
    """Show whether nothing was done. The handlers catch unknown outcomes."""
    logger.warning("%s", error)
    refused = isinstance(error, ServiceError)
    sent = not refused and getattr(error, "sent", None) is not False
    return show(request, "failure.html", status=503, refused=refused, sent=sent)


def money(cents: int) -> str:
    """Return an amount as the pages show it."""
    return f"{cents // 100}.{cents % 100:02} {CURRENCY}"


def show(
    request: Request, page: str, *, status: int = 200, **values: object
) -> Response:
    """Return a page."""
    known = {"products": PRODUCTS, "money": money}
    return templates.TemplateResponse(request, page, {**known, **values}, status)
