"""The example shops over HTTP, without a browser: refusals, outages, duplicates, and notifications."""

import asyncio
import re
import sqlite3
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Final

import aiohttp
import pytest
from attrs import evolve, frozen

from payasync.journal import SqliteJournal
from payasync.notifications import SqliteInbox
from payasync.profile.sandbox_profile import PROFILE as SANDBOX
from payasync.sandbox import Sandbox
from tests.examples.shops import NAMES, PASSWORD, Place, serving

NUMBER: Final = "0123456789abcdef01234567"
SECONDS: Final = 20


def basic(user: str) -> str:
    """Return the header of a user with the administrator's password."""
    return f"Basic {b64encode(f'{user}:{PASSWORD}'.encode()).decode()}"


@frozen
class Client:
    """A customer and an administrator of a shop.

    Attributes:
        place: Where the shop lives.
        http: Their connections.
    """

    place: Place
    http: aiohttp.ClientSession

    async def press(self, path: str, **form: str) -> tuple[int, str]:
        """Send a form, and return the status and the page."""
        async with self.http.post(f"{self.place.url}{path}", data=form, allow_redirects=False) as answer:
            return answer.status, await answer.text()

    async def buy(self) -> tuple[int, str]:
        """Buy a coffee, up to the gateway."""
        return await self.press("/orders", product="coffee", number=NUMBER)

    async def buy_and_pay(self, sandbox: Sandbox) -> None:
        """Buy a coffee, pay it at the gateway, and wait until the shop knows."""
        await self.buy()
        await sandbox.customer.authorize(NUMBER)
        await self.see(f"/orders/{NUMBER}", "Thank you")

    async def refund(self) -> tuple[int, str]:
        """Press the button of the order's refund."""
        return await self.press(f"/admin/orders/{NUMBER}/refund", **await self.form())

    async def form(self) -> dict[str, str]:
        """Return the fields of the refund's form, as the page of orders shows it now."""
        return dict(re.findall(r'<input .*?name="(\w+)".*? value="(.*?)"', await self.page("/admin")))

    async def page(self, path: str) -> str:
        """Return a page."""
        async with self.http.get(f"{self.place.url}{path}") as answer:
            return await answer.text()

    def rows(self, statement: str) -> list[tuple[str | int, ...]]:
        """Execute a statement in the shop's own database, and return its rows."""
        with closing(sqlite3.connect(self.place.folder / "shop.db")) as db, db:
            return db.execute(statement).fetchall()

    async def see(self, path: str, text: str) -> None:
        """Load a page until it holds a text."""
        async with asyncio.timeout(SECONDS):
            while text not in await self.page(path):
                pass


@pytest.fixture(params=NAMES)
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    """A client of one of the shops, which is not started yet."""
    async with aiohttp.ClientSession(headers={"Authorization": basic("admin")}) as http:
        yield Client(Place.free(request.param, tmp_path), http)


async def test_refused_refund_is_shown_and_can_be_repeated(client: Client) -> None:
    """The administrator reads why the service refuses a refund, and each click sends the same number."""
    async with Sandbox() as sandbox, serving(client.place, sandbox), sandbox.session() as tool:
        await client.buy_and_pay(sandbox)
        await tool.refunds.create(out_trade_no=NUMBER, out_refund_no="X1", total_amt=450, refund_amt=450)
        form = await client.form()
        clicks = [(await client.press(f"/admin/orders/{NUMBER}/refund", **form))[0] for _ in range(2)]
        admin = await client.page("/admin")
        sent = [each.status for each in sandbox.ledger.calls("refunds.create")]
        refunded = sandbox.ledger.refunded(NUMBER), sandbox.ledger.refunds()

    assert ([303, 303], [200, 422, 422], (450, 1)) == (clicks, sent, refunded)
    assert '<span class="state refused">refused</span>' in admin
    assert "HTTP 422, refused before it was done (code &#39;SBX_INVALID&#39;: 0 is left to refund)</small>" in admin
    assert f"Refund: order {NUMBER}" in admin


async def test_notifications_end_writes_of_the_journal(client: Client) -> None:
    """After a notification, nobody need ask the service about the order or its refund."""
    async with Sandbox(refunds="by hand") as sandbox, serving(client.place, sandbox):
        await client.buy_and_pay(sandbox)
        await client.refund()
        await sandbox.bank.settle_refund(f"{NUMBER}-R1")
        async with aclosing(SqliteInbox(client.place.folder / "inbox.db")) as inbox, asyncio.timeout(SECONDS):
            while len(await inbox.events("done")) < 2:
                pass
    async with SqliteJournal(client.place.folder / "pay.db") as journal:
        states = {each.operation: each.state for each in await journal.list()}

    assert {"orders.place": "succeeded", "refunds.create": "succeeded"} == states


async def test_customer_sees_that_a_refund_is_checked(client: Client) -> None:
    """As long as a refund may have been made and has not ended, the customer's page says that the shop checks it."""
    async with Sandbox(refunds="by hand") as sandbox, serving(client.place, sandbox):
        await client.buy_and_pay(sandbox)
        await client.refund()
        shown = dict[str, bool]()
        for state in ("open", "checking", "unsent", "refused", "processing", "failed", "succeeded"):
            client.rows(f"UPDATE refunds SET state = '{state}'")  # noqa: S608 - the states above
            shown[state] = "We are checking your refund of 4.50 CAD." in await client.page(f"/orders/{NUMBER}")

    assert ["open", "checking", "processing"] == [state for state, found in shown.items() if found]


async def test_refunds_in_part(client: Client) -> None:
    """A double click refunds a part once; the next form has a new number, and no more than is left."""
    path = f"/admin/orders/{NUMBER}/refund"
    async with Sandbox() as sandbox, serving(client.place, sandbox):
        await client.buy_and_pay(sandbox)
        first = await client.form()
        part = {**first, "amount": "200"}
        clicks = [each[0] for each in await asyncio.gather(*(client.press(path, **part) for _ in range(2)))]
        late = (await client.press(path, **part))[0]
        await client.see("/admin", "succeeded")
        second = await client.form()
        others = [
            (await client.press(path, **form))[0]
            for form in (
                {**first, "amount": "100"},
                {**second, "amount": "251"},
                {"refund": f"{NUMBER}-R9", "amount": "1"},
            )
        ]
        between = sandbox.ledger.refunded(NUMBER)
        await client.press(path, **second)
        end, forms = (sandbox.ledger.refunded(NUMBER), sandbox.ledger.refunds()), await client.form()

    assert {"refund": f"{NUMBER}-R1", "amount": "450"} == first
    assert {"refund": f"{NUMBER}-R2", "amount": "250"} == second
    assert ([303, 303], 303, [409] * 3, 200) == (clicks, late, others, between)
    assert ((450, 2), {}) == (end, forms)


async def test_throttled_refund_can_be_pressed_again(client: Client) -> None:
    """A refund that the service had no time for is not refused: the same number is sent again, by a person."""
    async with Sandbox() as sandbox, serving(client.place, sandbox):
        await client.buy_and_pay(sandbox)
        sandbox.faults.rate_limited("refunds.create", retry_after=3600)
        await client.refund()
        page, form = await client.page("/admin"), await client.form()
        await client.refund()
        refunded = sandbox.ledger.refunded(NUMBER), sandbox.ledger.refunds()

    assert "not sent: press again" in page
    assert "wait 3600 s" in page
    assert {"refund": f"{NUMBER}-R1", "amount": "450"} == form
    assert (450, 1) == refunded


async def test_refund_of_a_killed_shop_says_what_to_do(client: Client) -> None:
    """If a shop dies before it refunds, the next one says that nothing was sent, after the quarantine."""
    async with Sandbox() as sandbox:
        async with serving(client.place, sandbox) as process:
            await client.buy_and_pay(sandbox)
            process.kill()
        row = f"'{NUMBER}-R1', '{NUMBER}', 450, 'open', '', datetime('now', '-1 hour')"
        client.rows(f"INSERT INTO refunds SELECT {row}, datetime('now')")
        async with serving(client.place, sandbox):
            await sandbox.settle()
            soon = await client.page("/admin")
        client.rows("UPDATE refunds SET pressed = created")
        async with serving(client.place, sandbox):
            await client.see("/admin", "not sent: press again")
            sent = len(sandbox.ledger.calls("refunds.create"))
            await client.refund()
            await client.see("/admin", "succeeded")
            refunded = sandbox.ledger.refunded(NUMBER)

    assert "not sent" not in soon
    assert (0, 450) == (sent, refunded)


async def test_second_click_waits_for_the_first(client: Client) -> None:
    """A second click on "Buy" places nothing, and shows a page that updates itself until the first has ended."""
    async with Sandbox() as sandbox, serving(client.place, sandbox) as process:
        sandbox.faults.hang("orders.place", phase="after")
        first = asyncio.create_task(client.buy())
        async with asyncio.timeout(SECONDS):
            while not sandbox.ledger.orders():
                await sandbox.settle()
        second = await client.buy()
        page = await client.page(f"/orders/{NUMBER}")
        state = client.rows("SELECT state FROM orders")
        sent = len(sandbox.ledger.calls("orders.place"))
        first.cancel()
        process.kill()

    assert (303, [("new",)], 1) == (second[0], state, sent)
    assert "One moment, please" in page
    assert "<button" not in page


async def test_page_says_what_failed(client: Client) -> None:
    """A page tells a refused order from a service that does not respond; strangers do not become administrators."""
    async with Sandbox() as sandbox, serving(client.place, sandbox):
        sandbox.faults.rate_limited("orders.place", retry_after=3600)
        refused = await client.buy()
        away = sandbox.faults.refuse()
        unreachable = await client.buy()
        away.disarm()
        async with client.http.get(f"{client.place.url}/admin", headers={"Authorization": basic("root")}) as answer:
            stranger = answer.status
        orders = sandbox.ledger.orders()

    assert (503, 503, 401, 0) == (refused[0], unreachable[0], stranger, orders)
    assert "The payment service did not accept this request. Nothing was charged" in refused[1]
    assert "We cannot use the payment service now. Nothing was charged" in unreachable[1]


async def test_order_whose_address_cannot_be_read_is_checked(client: Client, tmp_path: Path) -> None:
    """If only the profile's `redirect_url` is missing, the order was placed: the shop does not say "try again"."""
    profile = evolve(SANDBOX, answer=evolve(SANDBOX.answer, redirect_url=""))
    (tmp_path / "open.toml").write_text(profile.to_toml(), encoding="utf-8")
    async with (
        Sandbox() as sandbox,
        serving(client.place, sandbox, PAYASYNC_PROFILE=str(tmp_path / "open.toml")),
    ):
        status, _ = await client.buy()
        placed = sandbox.ledger.orders()

    assert (303, 1) == (status, placed)
    assert [("checking",)] == client.rows("SELECT state FROM orders")


async def test_open_point_before_the_call_says_that_nothing_was_sent(client: Client, tmp_path: Path) -> None:
    """If a call lacks a key of the profile, nothing was sent: the shop says so, and checks nothing."""
    (tmp_path / "open.toml").write_text(evolve(SANDBOX, signature=None).to_toml(), encoding="utf-8")
    async with (
        Sandbox() as sandbox,
        serving(client.place, sandbox, PAYASYNC_PROFILE=str(tmp_path / "open.toml")),
    ):
        bought = await client.buy()
        order = client.rows("SELECT state FROM orders")
        client.rows("UPDATE orders SET state = 'paid'")
        refund = await client.refund()
        stored = client.rows("SELECT state FROM refunds")
        sent = len(sandbox.ledger.calls())

    assert (503, [("open",)], 503, [("open",)], 0) == (bought[0], order, refund[0], stored, sent)
    assert "Nothing was charged or refunded" in bought[1]
    assert "Nothing was charged or refunded" in refund[1]


async def test_cancelled_order_is_closed(client: Client) -> None:
    """A customer who cancels closes the order at the service; no other site may frame the button."""
    async with Sandbox() as sandbox, serving(client.place, sandbox):
        await client.buy()
        cancelled, _ = await client.press(f"/orders/{NUMBER}/cancel")
        async with client.http.get(f"{client.place.url}/orders/{NUMBER}") as answer:
            page, policy = await answer.text(), answer.headers["Content-Security-Policy"]
        state = sandbox.ledger.order_state(NUMBER)

    assert (303, "closed") == (cancelled, state)
    assert "The order is closed" in page
    assert "frame-ancestors 'none'" in policy


async def test_payment_of_another_amount_is_held(client: Client) -> None:
    """A genuine notification of an amount that the shop did not ask for stores no parcel, and waits for a person."""
    async with Sandbox() as sandbox, serving(client.place, sandbox):
        await client.buy()
        client.rows("UPDATE orders SET amount = 451")
        await sandbox.customer.authorize(NUMBER)
        await sandbox.settle()
        async with aclosing(SqliteInbox(client.place.folder / "inbox.db")) as inbox, asyncio.timeout(SECONDS):
            while not (held := await inbox.events("held")):
                pass

    assert 1 == len(held)
    assert [("open", 0)] == client.rows("SELECT state, (SELECT count(*) FROM parcels) FROM orders")


async def test_notification_before_the_shops_own_commit_is_handled(client: Client) -> None:
    """If a genuine notification arrives before the shop has stored the order, it is handled soon, without a person."""
    async with Sandbox() as sandbox, serving(client.place, sandbox):
        await client.buy()
        client.rows("UPDATE orders SET number = 'not yet'")
        await sandbox.customer.authorize(NUMBER)
        await sandbox.settle()
        async with aclosing(SqliteInbox(client.place.folder / "inbox.db")) as inbox, asyncio.timeout(SECONDS):
            while not any(each.failures for each in await inbox.events()):
                pass
            client.rows(f"UPDATE orders SET number = '{NUMBER}'")  # noqa: S608 - ours
            while not (done := await inbox.events("done")):
                pass

    assert [2] == [each.attempts for each in done]
    assert [("paid", 1)] == client.rows("SELECT state, (SELECT count(*) FROM parcels) FROM orders")


async def test_refund_of_another_amount_is_held(client: Client) -> None:
    """A genuine notification of a refund that the shop did not ask for changes nothing, and waits for a person."""
    async with Sandbox(refunds="by hand") as sandbox, serving(client.place, sandbox):
        await client.buy_and_pay(sandbox)
        await client.refund()
        client.rows("UPDATE refunds SET amount = 449")
        await sandbox.bank.settle_refund(f"{NUMBER}-R1")
        await sandbox.settle()
        async with aclosing(SqliteInbox(client.place.folder / "inbox.db")) as inbox, asyncio.timeout(SECONDS):
            while not (held := await inbox.events("held")):
                pass

    assert ["refundAmt is 450, expected 449"] == [each.reason for each in held]
    assert [("processing",)] == client.rows("SELECT state FROM refunds")


async def test_another_amount_at_the_service_is_checked(client: Client) -> None:
    """The return page believes no payment of an amount that the shop did not ask for, and stores no parcel."""
    async with Sandbox() as sandbox, serving(client.place, sandbox):
        sandbox.faults.notifications.drop("payment", times=None)
        await client.buy()
        client.rows("UPDATE orders SET amount = 451")
        await sandbox.customer.authorize(NUMBER)
        page = await client.page(f"/orders/{NUMBER}")

    assert "We are checking your payment" in page
    assert [("checking", 0)] == client.rows("SELECT state, (SELECT count(*) FROM parcels) FROM orders")


async def test_checked_order_is_open_again_only_if_the_service_confirms_it(client: Client) -> None:
    """The recorded address does not open an order whose amount differed, as long as the service does not respond."""
    async with Sandbox() as sandbox, serving(client.place, sandbox):
        await client.buy()
        client.rows("UPDATE orders SET state = 'checking'")
        outage = sandbox.faults.server_error("orders.query", times=None)
        page = await client.page(f"/orders/{NUMBER}")
        unconfirmed = client.rows("SELECT state FROM orders")
        outage.disarm()
        confirmed = await client.page(f"/orders/{NUMBER}")

    assert "We are checking your payment" in page
    assert [("checking",)] == unconfirmed
    assert "Continue to payment" in confirmed


async def test_late_response_does_not_open_an_order(client: Client) -> None:
    """If another state was stored while the order was being placed, the response does not store `open` over it."""
    async with Sandbox() as sandbox, serving(client.place, sandbox):
        sandbox.faults.latency("orders.place", seconds=0.5, phase="after")
        first = asyncio.create_task(client.buy())
        async with asyncio.timeout(SECONDS):
            while not sandbox.ledger.orders():
                await sandbox.settle()
        client.rows("UPDATE orders SET state = 'checking'")
        await first
        stored = client.rows("SELECT state FROM orders")

    assert [("checking",)] == stored


async def test_refunded_order_stores_no_parcel(client: Client, tmp_path: Path) -> None:
    """An order that was refunded before the shop knew of its payment is not sent, even if it is called paid later."""
    refunded = SANDBOX.to_toml().replace('paid = ["SBX_PAID"]', 'refunded = ["SBX_PAID"]', 1)
    (tmp_path / "refunded.toml").write_text(refunded, encoding="utf-8")
    async with Sandbox(clock="frozen") as sandbox:
        sandbox.faults.notifications.drop("payment")
        async with serving(client.place, sandbox, PAYASYNC_PROFILE=str(tmp_path / "refunded.toml")):
            await client.buy()
            await sandbox.customer.authorize(NUMBER)
            page = await client.page(f"/orders/{NUMBER}")
        async with serving(client.place, sandbox):
            await sandbox.clock.advance(hours=1)
            await sandbox.settle()
            async with aclosing(SqliteInbox(client.place.folder / "inbox.db")) as inbox, asyncio.timeout(SECONDS):
                while not await inbox.events("done"):
                    pass

    assert "We have returned your money" in page
    assert [("refunded", 0)] == client.rows("SELECT state, (SELECT count(*) FROM parcels) FROM orders")


async def test_service_with_other_names_is_believed(client: Client) -> None:
    """If the service names amounts and currency otherwise, an order is not stored as if they differed."""
    names = {"total_amt": "order_cents", "refund_amt": "back_cents", "currency": "money"}
    profile = evolve(SANDBOX, fields={**SANDBOX.fields, **names})
    file = client.place.folder / "service.toml"
    file.write_text(profile.to_toml(), encoding="utf-8")
    async with Sandbox(profile=profile) as sandbox, serving(client.place, sandbox, PAYASYNC_PROFILE=str(file)):
        await client.buy()
        before = client.rows("SELECT state FROM orders"), await client.page(f"/orders/{NUMBER}")
        sandbox.faults.notifications.drop("payment", times=None)
        await sandbox.customer.authorize(NUMBER)
        after = await client.page(f"/orders/{NUMBER}")

    assert [("open",)] == before[0]
    assert "Continue to payment" in before[1]
    assert "Thank you" in after


async def test_another_refund_at_the_service_is_checked(client: Client) -> None:
    """A refund of an amount that the shop did not ask for does not count as made, and is not sent again."""
    async with Sandbox(refunds="by hand") as sandbox, serving(client.place, sandbox):
        await client.buy_and_pay(sandbox)
        await client.refund()
        client.rows("UPDATE refunds SET amount = 449")
        await client.refund()
        processing = client.rows("SELECT state FROM refunds")
        sandbox.faults.notifications.drop("refund", times=None)
        await sandbox.bank.settle_refund(f"{NUMBER}-R1")
        await client.refund()
        sent = [call.operation for call in sandbox.ledger.calls()].count("refunds.create")

    assert [("checking",)] == processing == client.rows("SELECT state FROM refunds")
    assert 1 == sent


@pytest.mark.long
async def test_duplicate_numbers_are_checked(client: Client) -> None:
    """If the service knows a number already, the shop does not say that nothing happened."""
    async with Sandbox(refunds="by hand") as sandbox, serving(client.place, sandbox), sandbox.session() as tool:
        await tool.orders.place(out_trade_no=NUMBER, total_amt=999, currency="CAD")
        bought = await client.buy()
        order = client.rows("SELECT state FROM orders")
        client.rows("UPDATE orders SET state = 'paid'")
        await sandbox.customer.authorize(NUMBER)
        await tool.refunds.create(out_trade_no=NUMBER, out_refund_no=f"{NUMBER}-R1", total_amt=999, refund_amt=1)
        await client.refund()
        refund = client.rows("SELECT state FROM refunds")
        refunds = sandbox.ledger.refunds()

    assert (303, [("checking",)], [("checking",)], 1) == (bought[0], order, refund, refunds)


@pytest.mark.long
async def test_shop_asks_about_refunds_each_minute(client: Client) -> None:
    """A refund whose notification is lost ends in the shop, too, without a click."""
    async with (
        Sandbox(clock="frozen", refunds="by hand") as sandbox,
        serving(client.place, sandbox, MINUTE="0.1"),
    ):
        sandbox.faults.notifications.drop("refund", times=None)
        await client.buy_and_pay(sandbox)
        await client.refund()
        await client.see("/admin", "processing")
        await sandbox.bank.settle_refund(f"{NUMBER}-R1")
        await client.see("/admin", "succeeded")
        refunded = sandbox.ledger.refunded(NUMBER)

    assert 450 == refunded
