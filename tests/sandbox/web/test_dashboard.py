"""What the dashboard shows."""

import base64
import hashlib
import re
from datetime import UTC, datetime
from typing import Final

import aiohttp
import pytest

from payasync import Profile
from payasync.profile.schema import States
from payasync.sandbox import Sandbox
from payasync.sandbox.web.dashboard import MAX_LISTED
from tests.sandbox.admin import Operator
from tests.sandbox.foreign import REFUND, Receiver

EVIL: Final = "\"><script>alert(1)</script>&amp;'onload="
LATER: Final = ("refund", "refunds.create", "payments.status")
MONTHLY: Final = {"billingFrequency": "monthly", "amount": 900, "startDate": "2999-01-01", "customer": {"name": "A"}}


@pytest.fixture
def operator(sandbox: Sandbox, http: aiohttp.ClientSession) -> Operator:
    """An operator who knows the token."""
    return Operator(sandbox, http)


def section(page: str, name: str) -> str:
    """Return a part of the dashboard."""
    found = re.search(rf'<section id="{name}".*?</section>', page, re.DOTALL)
    assert found
    return found[0]


def hashed(text: str) -> str:
    """Return how a policy names a style or a script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


async def test_empty_lists_say_how_to_fill_them(operator: Operator) -> None:
    """Each empty list says what to do next; the first has a whole program, and says where the keys are."""
    page = (await operator.get("/")).document
    hints = {name: section(page, name) for name in ("orders", "refunds", "subscriptions", "notifications", "requests")}

    assert [True] * 5 == ["none yet" in each for each in hints.values()]
    for text in (operator.sandbox.url, "orders.place", "sandbox.credentials", "payasync sandbox", "SANDBOX"):
        assert text in hints["orders"]
    assert ["refunds.create", "subscriptions.create"] == re.findall(
        r"pay\.(\w+\.create)", hints["refunds"] + hints["subscriptions"]
    )


async def test_keys_are_not_shown(operator: Operator) -> None:
    """The dashboard does not contain a key."""
    sandbox = operator.sandbox
    given = sandbox.credentials
    keys = [given.secret_key, given.signing_key, *given.notification_keys, sandbox.admin_token]
    page = (await operator.get("/")).document

    assert [] == [key for key in keys if key and key.reveal() in page]


async def test_policy_allows_its_own_style_and_script_alone(operator: Operator) -> None:
    """The policy allows one style and one script by their hashes, and forms and requests to the sandbox only."""
    answer = await operator.get("/")
    page = answer.document
    styles, scripts = (re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL) for tag in ("style", "script"))
    policy = (
        f"default-src 'none'; style-src {hashed(styles[0])}; script-src {hashed(scripts[0])}; connect-src 'self'; "
        "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )

    assert (1, 1, policy) == (len(styles), len(scripts), answer.headers["Content-Security-Policy"])
    assert not re.search(r"<[^>]+\s(on\w+|style|src)=", page.replace(styles[0], "").replace(scripts[0], ""))
    assert ("nosniff", "no-store") == tuple(
        answer.headers[each] for each in ("X-Content-Type-Options", "Cache-Control")
    )


async def test_texts_are_escaped(operator: Operator) -> None:
    """No text of an order, a request or a search becomes markup."""
    sandbox = operator.sandbox
    await sandbox.given.paid_order(out_trade_no="T1", subject=EVIL, notify_url="http://127.0.0.1:1/?'<script>")
    await sandbox.settle()
    await operator.foreign.send("GET", "/payment/<script>alert(1)")
    pages = [(await operator.get(path)).document for path in ("/", f"/timeline?about={EVIL}", "/timeline?about=T1")]

    assert [1, 0, 0] == [page.count("<script>") for page in pages]
    assert [True, True] == ["&lt;script&gt;" in page for page in pages[:2]]


async def test_state_is_shown_with_the_profiles_value(http: aiohttp.ClientSession) -> None:
    """A state is shown by our name and by the profile's value."""
    profile = Profile(states=States(order={"paid": ("BEZAHLT",)}))
    async with Sandbox(profile) as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1")
        orders = section((await Operator(sandbox, http).get("/")).document, "orders")

    assert re.search(r'<span class="badge good">paid</span> <code class="wire">BEZAHLT</code>', orders)


async def test_buttons_fit_the_state(http: aiohttp.ClientSession) -> None:
    """Only possible actions are offered: a pending order is decided, a processing refund settled."""
    async with Sandbox(refunds="by hand") as sandbox, sandbox.session() as pay:
        operator = Operator(sandbox, http)
        await sandbox.given.pending_order(out_trade_no="T1")
        await sandbox.given.paid_order(out_trade_no="T2")
        await pay.refunds.create(out_trade_no="T2", out_refund_no="R1", total_amt=450, refund_amt=1)
        before = (await operator.get("/")).document
        await operator.do("orders/decide", out_trade_no="T1", decision="decline")
        await operator.do("refunds/settle", out_refund_no="R1", state="succeeded")
        after = (await operator.get("/")).document

    assert 2 == section(before, "orders").count("<form")
    assert (2, 0) == (section(before, "refunds").count("<form"), section(after, "refunds").count("<form"))


async def test_subscription_shows_when_it_begins(operator: Operator) -> None:
    """A subscription shows what it bills, and when it begins."""
    begun = await operator.foreign.send("POST", "/subscriptions/create", json=MONTHLY, headers=operator.foreign.bearer)
    listed = section((await operator.get("/")).document, "subscriptions")

    for text in (begun.document["subscriptionId"], "monthly", "900", "SBX_SCHEDULED", "begins 2999-01-01"):
        assert text in listed


async def test_cancelled_subscription_has_no_next_period(http: aiohttp.ClientSession) -> None:
    """An active subscription shows its renewal; a cancelled one does not."""
    async with Sandbox(clock=datetime(2027, 1, 1, tzinfo=UTC)) as sandbox:
        operator = Operator(sandbox, http)
        bearer, plan = operator.foreign.bearer, {**MONTHLY, "startDate": "2027-01-01"}
        begun = await operator.foreign.send("POST", "/subscriptions/create", json=plan, headers=bearer)
        before = section((await operator.get("/")).document, "subscriptions")
        number = {"subscriptionId": begun.document["subscriptionId"]}
        await operator.foreign.send("POST", "/subscriptions/cancel", json=number, headers=bearer)
        after = section((await operator.get("/")).document, "subscriptions")

    assert ("renews 2027-02-01" in before, "renews" in after, "SBX_CANCELLED" in after) == (True, False, True)


@pytest.mark.parametrize(
    ("clock", "said"), [("real", "real"), ("frozen", "standing still"), ("60x", "60 times as fast")]
)
async def test_header_says_how_fast_time_moves(http: aiohttp.ClientSession, clock: str, said: str) -> None:
    """The header says whether the sandbox's time moves, and how fast."""
    async with Sandbox(clock=clock) as sandbox:
        page = (await Operator(sandbox, http).get("/")).document

    assert f"<dt>Sandbox time, {said}</dt>" in page


async def test_many_attempts_are_folded(http: aiohttp.ClientSession) -> None:
    """All attempts of a notification are shown; several are folded."""
    async with Sandbox(clock="frozen") as sandbox:
        await sandbox.given.paid_order(notify_url="http://127.0.0.1:1/gone")
        await sandbox.clock.advance(days=2)
        listed = section((await Operator(sandbox, http).get("/")).document, "notifications")

    assert ("dead", 7) == (re.findall(r'class="badge bad">(\w+)', listed)[0], listed.count("connection refused"))
    assert "<summary>7 attempts</summary>" in listed


async def test_notification_shows_its_attempts(operator: Operator, receiver: Receiver) -> None:
    """A notification shows its address, each attempt with its response, and when the next one is due."""
    sandbox = operator.sandbox
    await sandbox.given.paid_order(out_trade_no="T1")
    await sandbox.given.paid_order(out_trade_no="T2", notify_url="http://127.0.0.1:1/gone")
    await sandbox.settle()
    listed = section((await operator.get("/")).document, "notifications")

    for text in (
        receiver.url,
        "delivered",
        "http://127.0.0.1:1/gone",
        "waiting",
        "no response",
        "connection refused",
        "due ",
    ):
        assert text in listed


async def test_only_the_newest_are_listed(operator: Operator) -> None:
    """Only the newest fifty are listed, newest first, with a hint that there are more."""
    numbers = [f"N{count:04}" for count in range(MAX_LISTED + 2)]
    for number in numbers:
        await operator.sandbox.given.pending_order(out_trade_no=number)
    listed = section((await operator.get("/")).document, "orders")

    assert numbers[:1:-1] == re.findall(r'class="number"[^>]*><code>(\w+)</code>', listed)
    assert f"the newest {MAX_LISTED}; there are older ones" in listed


async def test_bad_signature_shows_the_text_to_sign(operator: Operator) -> None:
    """A request with a wrong signature shows the text that should have been signed."""
    fields = {**operator.foreign.signed({"outTradeNo": "T1"}), "sign": "0" * 64}
    await operator.foreign.send("POST", "/payment/orderquery", json=fields)
    listed = section((await operator.get("/")).document, "requests")

    assert f"merchantId=SANDBOX&amp;nonceStr={fields['nonceStr']}&amp;outTradeNo=T1" in listed


async def test_timeline_of_one_number(operator: Operator) -> None:
    """The page of a number lists all its entries, oldest first, and no others."""
    await operator.foreign.place("T1")
    await operator.foreign.place("T2")
    await operator.sandbox.customer.authorize("T1")
    page = (await operator.get("/timeline?about=T1")).document
    nothing = (await operator.get("/timeline?about=T9")).document

    assert ["order", "orders.place", "order", "gateway.authorize"] == re.findall(r"<div><code>([\w.]+)</code>", page)[
        :4
    ]
    assert not re.search(r"\bT2\b", page)
    assert "No entry names it." in nothing


@pytest.mark.parametrize("named_by", ["outTradeNo", "paymentId"])
async def test_timeline_of_an_order_includes_its_refunds(operator: Operator, named_by: str) -> None:
    """An order's page includes its refunds, whether it is found by its number or by its payment's."""
    await operator.foreign.place("T2")
    await operator.sandbox.customer.authorize("T2")
    await operator.foreign.post(REFUND, outTradeNo="T2", outRefundNo="R2", totalAmt=450, refundAmt=1)
    order = await operator.foreign.place("T1")
    await operator.sandbox.customer.authorize("T1")
    await operator.foreign.post(REFUND, outTradeNo="T1", outRefundNo="R1", totalAmt=450, refundAmt=1)
    await operator.foreign.send("GET", f"/payment/status?outTradeNo={order.document['paymentId']}")
    page = (await operator.get(f"/timeline?about={order.document[named_by]}")).document
    names = re.findall(r"<div><code>([\w.]+)</code>", page)

    # Deliveries come when they come.
    assert ["refund", "refund", "refunds.create", "payments.status"] == [name for name in names if name in LATER]
    assert "<code>R1</code></a> <strong>200 SBX_OK" in page
    assert not re.search(r"\bR2\b", page)
