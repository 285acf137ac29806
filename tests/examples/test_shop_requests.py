"""The example shops over HTTP, without a browser: refusals, outages, duplicates, and notifications."""

import asyncio
import re
import sqlite3
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from attrs import evolve, frozen

from payasync import Profile
from payasync.journal import SqliteJournal
from payasync.notifications import InboxEvent, SqliteInbox
from payasync.profile.sandbox_profile import PROFILE as SANDBOX
from payasync.sandbox import Sandbox
from tests.examples.shops import NAMES, PASSWORD, Place, serving

NUMBER: Final = "0123456789abcdef01234567"
SECONDS: Final = 20


def basic(user: str) -> dict[str, str]:
    """Return the header of a user with the administrator's password."""
    return {"Authorization": f"Basic {b64encode(f'{user}:{PASSWORD}'.encode()).decode()}"}


@frozen
class Client:
    """A customer and an administrator of a shop.

    Attributes:
        place: Where the shop lives.
        http: Their connections.
        sandbox: The service that the shop pays at.
    """

    place: Place
    http: aiohttp.ClientSession
    sandbox: Sandbox

    @asynccontextmanager
    async def serving(self, profile: Profile | None = None, **variables: Any) -> AsyncGenerator[Any]:
        """Run the shop, with the sandbox's profile or another one."""
        if profile is not None:
            file = self.place.folder / "service.toml"
            file.write_text(profile.to_toml(), encoding="utf-8")
            variables["PAYASYNC_PROFILE"] = str(file)
        async with serving(self.place, self.sandbox, **variables) as process:
            yield process

    async def post(self, path: str, **options: Any) -> tuple[int, str]:
        """Send a request, and return the status and the page."""
        async with self.http.post(f"{self.place.url}{path}", allow_redirects=False, **options) as answer:
            return answer.status, await answer.text()

    async def press(self, path: str, **form: str) -> tuple[int, str]:
        """Send a form, and return the status and the page."""
        return await self.post(path, data=form)

    async def buy(self) -> tuple[int, str]:
        """Buy a coffee, up to the gateway."""
        return await self.press("/orders", product="coffee", number=NUMBER)

    async def pay(self) -> None:
        """Buy a coffee, pay it at the gateway, and wait until the shop knows."""
        await self.buy()
        await self.sandbox.customer.authorize(NUMBER)
        await self.see(f"/orders/{NUMBER}", "Thank you")

    async def refund(self, **form: str) -> tuple[int, str]:
        """Press the button of the order's refund, with the fields of its form or others."""
        return await self.press(f"/admin/orders/{NUMBER}/refund", **(form or await self.form()))

    async def form(self) -> dict[str, str]:
        """Return the fields of the refund's form, as the page of orders shows it now."""
        return dict(re.findall(r'<input .*?name="(\w+)".*? value="(.*?)"', await self.page("/admin")))

    async def page(self, path: str = f"/orders/{NUMBER}") -> str:
        """Return a page: by default, the order's."""
        async with self.http.get(f"{self.place.url}{path}") as answer:
            return await answer.text()

    def rows(self, statement: str) -> list[tuple[str | int, ...]]:
        """Execute a statement in the shop's own database, and return its rows."""
        with closing(sqlite3.connect(self.place.folder / "shop.db")) as db, db:
            return db.execute(statement).fetchall()

    def state(self, table: str = "orders") -> str | int:
        """Return the state of the order, or of its refund."""
        ((state,),) = self.rows(f"SELECT state FROM {table}")  # noqa: S608 - a table of the shop
        return state

    def parcels(self) -> tuple[str | int, ...]:
        """Return the state of the order, and the number of parcels."""
        return self.rows("SELECT state, (SELECT count(*) FROM parcels) FROM orders")[0]

    async def see(self, path: str, text: str) -> None:
        """Load a page until it holds a text."""
        async with asyncio.timeout(SECONDS):
            while text not in await self.page(path):
                pass

    async def events(self, state: Any, count: int = 1) -> list[InboxEvent]:
        """Wait until the shop's inbox has so many events of a state."""
        inbox = SqliteInbox(self.place.folder / "inbox.db")
        async with aclosing(inbox), asyncio.timeout(SECONDS):
            while len(found := await inbox.events(state)) < count:
                pass
            return found

    async def placed(self) -> None:
        """Wait until the service has the order."""
        async with asyncio.timeout(SECONDS):
            while not self.sandbox.ledger.orders():
                await self.sandbox.settle()

    def refunds(self) -> tuple[int, int]:
        """Return the refunded amount, and the number of refunds."""
        return self.sandbox.ledger.refunded(NUMBER), self.sandbox.ledger.refunds()


@pytest.fixture(params=NAMES)
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    """A client of one of the shops, which is not started yet."""
    async with aiohttp.ClientSession(headers=basic("admin")) as http, Sandbox(clock="frozen") as sandbox:
        yield Client(Place.free(request.param, tmp_path), http, sandbox)


@pytest.fixture
async def shop(client: Client) -> AsyncIterator[Client]:
    """A client of a running shop."""
    async with client.serving():
        yield client


@pytest.fixture
async def slow_shop(client: Client) -> AsyncIterator[Client]:
    """A client of a running shop, whose service ends no refund by itself."""
    async with Sandbox(clock="frozen", refunds="by hand") as sandbox:
        slow = evolve(client, sandbox=sandbox)
        async with slow.serving():
            yield slow


async def test_refused_refund_is_shown_and_can_be_repeated(shop: Client) -> None:
    """The administrator reads why the service refuses a refund, and each click sends the same number."""
    await shop.pay()
    async with shop.sandbox.session() as tool:
        await tool.refunds.create(out_trade_no=NUMBER, out_refund_no="X1", total_amt=450, refund_amt=450)
    form = await shop.form()
    clicks = [(await shop.refund(**form))[0] for _ in range(2)]
    admin = await shop.page("/admin")
    sent = [each.status for each in shop.sandbox.ledger.calls("refunds.create")]

    assert ([303, 303], [200, 422, 422], (450, 1)) == (clicks, sent, shop.refunds())
    assert '<span class="state refused">refused</span>' in admin
    assert "HTTP 422, refused before it was done (code &#39;SBX_INVALID&#39;: 0 is left to refund)</small>" in admin
    assert f"Refund: order {NUMBER}" in admin


async def test_refund_that_takes_a_while(slow_shop: Client) -> None:
    """As long as a refund may have been made and has not ended, the customer's page says that the shop checks it.

    After its notification, nobody need ask the service about it or about the order. A notification of another amount
    than the shop asked for changes nothing, and waits for a person.
    """
    shop = slow_shop
    await shop.pay()
    await shop.refund()
    shown = dict[str, bool]()
    for state in ("open", "checking", "unsent", "refused", "failed", "succeeded", "processing"):
        shop.rows(f"UPDATE refunds SET state = '{state}'")  # noqa: S608 - the states above
        shown[state] = "We are checking your refund of 4.50 CAD." in await shop.page()
    shop.rows("UPDATE refunds SET amount = 449")
    await shop.sandbox.bank.settle_refund(f"{NUMBER}-R1")
    held = await shop.events("held")
    stored = shop.state("refunds")
    shop.rows("UPDATE refunds SET amount = 450")
    async with aclosing(SqliteInbox(shop.place.folder / "inbox.db")) as inbox:
        await inbox.replay(held[0].id)
    await shop.events("done", 2)
    async with SqliteJournal(shop.place.folder / "pay.db") as journal:
        states = {each.operation: each.state for each in await journal.list()}

    assert ["open", "checking", "processing"] == [state for state, found in shown.items() if found]
    assert (["refundAmt is 450, expected 449"], "processing") == ([each.reason for each in held], stored)
    assert {"orders.place": "succeeded", "refunds.create": "succeeded"} == states


async def test_refunds_in_part(shop: Client) -> None:
    """A double click refunds a part once; the next form has a new number, and no more than is left."""
    await shop.pay()
    first = await shop.form()
    part = {**first, "amount": "200"}
    clicks = [each[0] for each in await asyncio.gather(*(shop.refund(**part) for _ in range(2)))]
    clicks.append((await shop.refund(**part))[0])
    await shop.see("/admin", "succeeded")
    second = await shop.form()
    wrong = {**first, "amount": "100"}, {**second, "amount": "251"}, {"refund": f"{NUMBER}-R9", "amount": "1"}
    others, between = [(await shop.refund(**form))[0] for form in wrong], shop.refunds()
    await shop.refund(**second)

    assert {"refund": f"{NUMBER}-R1", "amount": "450"} == first
    assert {"refund": f"{NUMBER}-R2", "amount": "250"} == second
    assert ([303] * 3, [409] * 3, (200, 1)) == (clicks, others, between)
    assert ((450, 2), {}) == (shop.refunds(), await shop.form())


async def test_throttled_refund_can_be_pressed_again(shop: Client) -> None:
    """A refund that the service had no time for is not refused: the same number is sent again, by a person."""
    await shop.pay()
    shop.sandbox.faults.rate_limited("refunds.create", retry_after=3600)
    await shop.refund()
    page, form = await shop.page("/admin"), await shop.form()
    await shop.refund()

    assert ("not sent: press again" in page, "wait 3600 s" in page) == (True, True)
    assert {"refund": f"{NUMBER}-R1", "amount": "450"} == form
    assert (450, 1) == shop.refunds()


async def test_refund_of_a_killed_shop_says_what_to_do(client: Client) -> None:
    """If a shop dies before it refunds, the next one says that nothing was sent, after the quarantine."""
    async with client.serving() as process:
        await client.pay()
        process.kill()
    row = f"'{NUMBER}-R1', '{NUMBER}', 450, 'open', '', datetime('now', '-1 hour')"
    client.rows(f"INSERT INTO refunds SELECT {row}, datetime('now')")
    async with client.serving():
        await client.sandbox.settle()
        soon = await client.page("/admin")
    client.rows("UPDATE refunds SET pressed = created")
    async with client.serving():
        await client.see("/admin", "not sent: press again")
        sent = len(client.sandbox.ledger.calls("refunds.create"))
        await client.refund()
        await client.see("/admin", "succeeded")

    assert ("not sent" in soon, 0, (450, 1)) == (False, sent, client.refunds())


async def test_second_click_waits_for_the_first(client: Client) -> None:
    """A second click on "Buy" places nothing, and shows a page that updates itself until the first has ended."""
    async with client.serving() as process:
        client.sandbox.faults.hang("orders.place", phase="after")
        first = asyncio.create_task(client.buy())
        await client.placed()
        second, page, state = await client.buy(), await client.page(), client.state()
        first.cancel()
        process.kill()

    assert (303, "new", 1) == (second[0], state, len(client.sandbox.ledger.calls("orders.place")))
    assert ("One moment, please" in page, "<button" in page) == (True, False)


async def test_page_says_what_failed(shop: Client) -> None:
    """A page tells a refused order from a service that does not respond; strangers do not become administrators."""
    shop.sandbox.faults.rate_limited("orders.place", retry_after=3600)
    refused = await shop.buy()
    away = shop.sandbox.faults.refuse()
    unreachable = await shop.buy()
    away.disarm()
    async with shop.http.get(f"{shop.place.url}/admin", headers=basic("root")) as answer:
        stranger = answer.status

    assert (503, 503, 401, 0) == (refused[0], unreachable[0], stranger, shop.sandbox.ledger.orders())
    assert "The payment service did not accept this request. Nothing was charged" in refused[1]
    assert "We cannot use the payment service now. Nothing was charged" in unreachable[1]


async def test_order_whose_address_cannot_be_read_is_checked(client: Client) -> None:
    """If only the profile's `redirect_url` is missing, the order was placed: the shop does not say "try again"."""
    async with client.serving(evolve(SANDBOX, answer=evolve(SANDBOX.answer, redirect_url=""))):
        status, _ = await client.buy()

    assert (303, 1, "checking") == (status, client.sandbox.ledger.orders(), client.state())


async def test_open_point_before_the_call_says_that_nothing_was_sent(client: Client) -> None:
    """If a call lacks a key of the profile, nothing was sent: the shop says so, and checks nothing."""
    async with client.serving(evolve(SANDBOX, signature=None)):
        bought, order = await client.buy(), client.state()
        client.rows("UPDATE orders SET state = 'paid'")
        refund, stored = await client.refund(), client.state("refunds")

    assert (503, "open", 503, "open") == (bought[0], order, refund[0], stored)
    assert 0 == len(client.sandbox.ledger.calls())
    for _, page in (bought, refund):
        assert "Nothing was charged or refunded" in page


async def test_shop_believes_no_stranger(client: Client) -> None:
    """Several clicks send one request, a form decides no amount, and neither other sites nor strangers refund.

    If the profile does not have the service's word, the page does not say that the order is unpaid.
    """
    form = {"product": "coffee", "number": NUMBER, "amount": "1", "price": "1"}
    notice, whole = (
        {"type": "payment.paid", "data": {"outTradeNo": NUMBER}},
        {"refund": f"{NUMBER}-R1", "amount": "450"},
    )
    refund, ledger = f"/admin/orders/{NUMBER}/refund", client.sandbox.ledger
    async with client.serving(Profile.from_toml(SANDBOX.to_toml().replace("SBX_PENDING", "OTHER"))):
        clicks = await asyncio.gather(*(client.press("/orders", **form) for _ in range(5)))
        unknown = await client.page()
        await client.sandbox.customer.authorize(NUMBER)
        await client.sandbox.settle()
        invalid, _ = await client.press("/orders", **{**form, "number": "../admin"})
        strangers = [
            await client.post("/notify/payment", json=notice),
            await client.post("/notify", json=notice),
            await client.post(refund, data=whole, headers={"Origin": "https://elsewhere.example"}),
            await client.post(refund, data=whole, headers={"Authorization": "Basic YWRtaW46Z3Vlc3M="}),
        ]
        before = client.refunds()
        await client.see(f"/orders/{NUMBER}", "Thank you")
        await asyncio.gather(*(client.refund(**whole) for _ in range(5)))

    assert ([303] * 5, True) == ([status for status, _ in clicks], invalid in {400, 422})
    assert [400, 400, 403, 401] == [status for status, _ in strangers]
    assert ((0, 0), 450, (450, 1)) == (before, ledger.paid(NUMBER), client.refunds())
    assert [1, 1] == [len(ledger.calls(name)) for name in ("orders.place", "refunds.create")]
    assert ("We are checking your payment" in unknown, "Continue to payment" in unknown) == (True, False)


async def test_cancelled_order_is_closed(shop: Client) -> None:
    """A customer who cancels closes the order at the service; no other site may frame the button."""
    await shop.buy()
    cancelled, _ = await shop.press(f"/orders/{NUMBER}/cancel")
    async with shop.http.get(f"{shop.place.url}/orders/{NUMBER}") as answer:
        page, policy = await answer.text(), answer.headers["Content-Security-Policy"]

    assert (303, "closed") == (cancelled, shop.sandbox.ledger.order_state(NUMBER))
    assert "The order is closed" in page
    assert "frame-ancestors 'none'" in policy


async def test_payment_that_the_shop_does_not_expect(shop: Client) -> None:
    """The shop believes no payment of another amount, in a notification or a response: no parcel, and a person looks.

    If a notification arrives before the shop has stored the order, it is handled soon, without a person.
    """
    await shop.buy()
    shop.rows("UPDATE orders SET number = 'not yet', amount = 451")
    await shop.sandbox.customer.authorize(NUMBER)
    inbox = SqliteInbox(shop.place.folder / "inbox.db")
    async with aclosing(inbox), asyncio.timeout(SECONDS):
        while not any(each.failures for each in await inbox.events()):
            pass
        shop.rows(f"UPDATE orders SET number = '{NUMBER}'")  # noqa: S608 - ours
        (held,) = await shop.events("held")
        before = shop.parcels()
        page, asked = await shop.page(), shop.parcels()
        shop.rows("UPDATE orders SET amount = 450")
        await inbox.replay(held.id)
        await shop.events("done")

    assert (("open", 0), ("checking", 0), ("paid", 1)) == (before, asked, shop.parcels())
    assert "We are checking your payment" in page
    assert 2 == held.attempts


async def test_order_is_open_only_if_the_service_confirms_it(shop: Client) -> None:
    """A late response does not open an order that is checked by then, nor its address without the service."""
    shop.sandbox.faults.latency("orders.place", seconds=0.5, phase="after")
    first = asyncio.create_task(shop.buy())
    await shop.placed()
    shop.rows("UPDATE orders SET state = 'checking'")
    await first
    late = shop.state()
    outage = shop.sandbox.faults.server_error("orders.query", times=None)
    page, unconfirmed = await shop.page(), shop.state()
    outage.disarm()

    assert ("checking", "checking") == (late, unconfirmed)
    assert "We are checking your payment" in page
    assert "Continue to payment" in await shop.page()


async def test_refunded_order_stores_no_parcel(client: Client) -> None:
    """An order that was refunded before the shop knew of its payment is not sent, even if it is called paid later."""
    profile = Profile.from_toml(SANDBOX.to_toml().replace('paid = ["SBX_PAID"]', 'refunded = ["SBX_PAID"]', 1))
    client.sandbox.faults.notifications.drop("payment")
    async with client.serving(profile):
        await client.buy()
        await client.sandbox.customer.authorize(NUMBER)
        page = await client.page()
    async with client.serving():
        await client.sandbox.clock.advance(hours=1)
        await client.events("done")

    assert "We have returned your money" in page
    assert ("refunded", 0) == client.parcels()


async def test_service_with_other_names_is_believed(client: Client) -> None:
    """If the service names amounts and currency otherwise, an order is not stored as if they differed."""
    names = {"total_amt": "order_cents", "refund_amt": "back_cents", "currency": "money"}
    profile = evolve(SANDBOX, fields={**SANDBOX.fields, **names})
    async with Sandbox(profile) as sandbox, (shop := evolve(client, sandbox=sandbox)).serving(profile):
        await shop.buy()
        state, before = shop.state(), await shop.page()
        sandbox.faults.notifications.drop("payment", times=None)
        await sandbox.customer.authorize(NUMBER)
        after = await shop.page()

    assert ("open", True, True) == (state, "Continue to payment" in before, "Thank you" in after)


async def test_another_refund_at_the_service_is_checked(slow_shop: Client) -> None:
    """A refund of an amount that the shop did not ask for does not count as made, and is not sent again."""
    shop = slow_shop
    await shop.pay()
    await shop.refund()
    shop.rows("UPDATE refunds SET amount = 449")
    await shop.refund()
    processing = shop.state("refunds")
    shop.sandbox.faults.notifications.drop("refund", times=None)
    await shop.sandbox.bank.settle_refund(f"{NUMBER}-R1")
    await shop.refund()

    assert ("checking", "checking") == (processing, shop.state("refunds"))
    assert 1 == len(shop.sandbox.ledger.calls("refunds.create"))


@pytest.mark.long
async def test_duplicate_numbers_are_checked(slow_shop: Client) -> None:
    """If the service knows a number already, the shop does not say that nothing happened."""
    shop = slow_shop
    async with shop.sandbox.session() as tool:
        await tool.orders.place(out_trade_no=NUMBER, total_amt=999, currency="CAD")
        bought, order = await shop.buy(), shop.state()
        shop.rows("UPDATE orders SET state = 'paid'")
        await shop.sandbox.customer.authorize(NUMBER)
        await tool.refunds.create(out_trade_no=NUMBER, out_refund_no=f"{NUMBER}-R1", total_amt=999, refund_amt=1)
    await shop.refund()

    assert (303, "checking", "checking") == (bought[0], order, shop.state("refunds"))
    assert 1 == shop.sandbox.ledger.refunds()


@pytest.mark.long
async def test_shop_asks_about_refunds_each_minute(client: Client) -> None:
    """A refund whose notification is lost ends in the shop, too, without a click."""
    async with Sandbox(clock="frozen", refunds="by hand") as sandbox:
        shop = evolve(client, sandbox=sandbox)
        async with shop.serving(MINUTE="0.1"):
            sandbox.faults.notifications.drop("refund", times=None)
            await shop.pay()
            await shop.refund()
            await shop.see("/admin", "processing")
            await sandbox.bank.settle_refund(f"{NUMBER}-R1")
            await shop.see("/admin", "succeeded")

        assert (450, 1) == shop.refunds()


@pytest.mark.long
@pytest.mark.parametrize("killed", [False, True])
async def test_unknown_order_is_checked_and_closed(client: Client, *, killed: bool) -> None:
    """If it is unknown whether an order was placed, the customer waits. The order is sent only once, and then closed.

    The next shop does the same if a shop dies before it gets the response.
    """
    sandbox = client.sandbox
    (sandbox.faults.hang if killed else sandbox.faults.reset_after_commit)("orders.place", phase="after")
    outage = sandbox.faults.server_error("orders.query", times=None)
    async with client.serving() as process:
        clicking = asyncio.create_task(client.buy())
        await client.placed()
        if killed:
            process.kill()
        await asyncio.wait({clicking})
        assert killed is isinstance(clicking.exception(), aiohttp.ClientError)
    client.rows("UPDATE orders SET created = datetime('now', '-2 minutes')")
    async with client.serving():
        page = await client.page()
        outage.disarm()
        await client.see(f"/orders/{NUMBER}", "The order is closed")

    assert ("We are checking your payment" in page, "<button" in page) == (True, False)
    assert (1, "closed") == (len(sandbox.ledger.calls("orders.place")), sandbox.ledger.order_state(NUMBER))


@pytest.mark.long
async def test_unknown_refund_is_not_repeated(slow_shop: Client) -> None:
    """If it is unknown whether a refund was made, the administrator asks again, and it is sent only once."""
    shop, faults = slow_shop, slow_shop.sandbox.faults
    await shop.pay()
    faults.reset_after_commit("refunds.create")
    faults.notifications.drop("refund")
    outage = faults.server_error("refunds.status", times=None)
    await shop.refund()
    await shop.see("/admin", "checking")
    await shop.sandbox.bank.settle_refund(f"{NUMBER}-R1")
    outage.disarm()
    await shop.refund()
    await shop.see("/admin", "succeeded")

    assert (1, (450, 1)) == (len(shop.sandbox.ledger.calls("refunds.create")), shop.refunds())


@pytest.mark.long
async def test_failed_refund_can_be_made_again(slow_shop: Client) -> None:
    """If a notification says that a refund has failed, the administrator makes another one, under a new number."""
    await slow_shop.pay()
    ends: list[tuple[str, Any]] = [("R1", "failed"), ("R2", "succeeded")]
    for refund, state in ends:
        await slow_shop.refund()
        await slow_shop.see("/admin", "processing")
        await slow_shop.sandbox.bank.settle_refund(f"{NUMBER}-{refund}", state)
        await slow_shop.see("/admin", state)

    assert ({}, 450) == (await slow_shop.form(), slow_shop.refunds()[0])


@pytest.mark.long
async def test_killed_shop_loses_no_payment(client: Client) -> None:
    """A payment that comes while the shop is dead is stored as it starts; its late notification changes nothing."""
    async with client.serving() as process:
        await client.buy()
        process.kill()
    await client.sandbox.customer.authorize(NUMBER)
    await client.sandbox.settle()
    async with client.serving():
        await client.see("/admin", "paid")
        await client.sandbox.clock.advance(hours=1)
        await client.events("done")

    assert (("paid", 1), ["delivered"]) == (
        client.parcels(),
        [it.state for it in client.sandbox.ledger.notifications()],
    )
