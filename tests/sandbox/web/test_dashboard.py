"""The dashboard: its content, its access control, and its actions."""

import base64
import hashlib
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from unittest.mock import Mock

import aiohttp
import pytest

from payasync import Profile
from payasync.credentials import Secret
from payasync.profile.schema import States
from payasync.sandbox import Sandbox
from payasync.sandbox.faults.catalogue import KINDS
from payasync.sandbox.model import RefusedError
from payasync.sandbox.web.dashboard import MAX_LISTED, AdminAccess
from tests.sandbox.admin import Operator
from tests.sandbox.foreign import Receiver

ACTIONS: Final = (
    "orders/decide",
    "refunds/settle",
    "notifications/resend",
    "clock/advance",
    "faults/arm",
    "faults/disarm",
)
CANARY: Final = "CANARY42"
TOKEN: Final = "the-admin-token"
ACCESS: Final = AdminAccess("http://127.0.0.1:8000", Secret(TOKEN))
COOKIE: Final = {ACCESS.cookie: ACCESS.key.reveal()}
EVIL: Final = "\"><script>alert(1)</script>&amp;'onload="
OWN_SITE: Final = {"Sec-Fetch-Site": "same-origin"}
HERE: Final = {"Host": "127.0.0.1:8000", "Origin": "http://127.0.0.1:8000"}


async def test_link_sets_a_cookie_and_hides_the_token(operator: Operator) -> None:
    """The link with the token sets a cookie, which no script and no other site gets, and which opens the dashboard.

    The dashboard contains neither the token nor a key. With the cookie, a form of another page does nothing.
    """
    sandbox, token = operator.sandbox, operator.sandbox.admin_token.reveal()
    await sandbox.given.pending_order(out_trade_no=CANARY)
    answer = await operator.get(f"/?token={token}", {})
    cookie, headers = answer.headers["Set-Cookie"], await operator.opened()
    page = await operator.get("/", headers)
    evil = {**headers, "Origin": "http://evil.example"}
    refused = await operator.press("orders/decide", evil, out_trade_no=CANARY, decision="authorize")
    given = sandbox.credentials
    keys = [given.secret_key, given.signing_key, *given.notification_keys, sandbox.admin_token]

    assert (303, "/", "") == (answer.status, answer.headers["Location"], answer.document)
    assert re.fullmatch(r"payasync_sandbox_\d+=[0-9a-f]{64}; HttpOnly; Path=/; SameSite=Strict", cookie)
    assert token not in cookie
    assert (200, True) == (page.status, CANARY in page.document)
    assert [] == [key for key in keys if key and key.reveal() in page.document]
    assert (403, "pending") == (refused.status, sandbox.ledger.order_state(CANARY))


async def test_nothing_is_shown_or_done_without_the_token(operator: Operator) -> None:
    """Without the token, a page gets 401 and shows nothing of the sandbox, and no action does anything."""
    sandbox = operator.sandbox
    await sandbox.given.pending_order(out_trade_no=CANARY)
    before = sandbox.clock.now()
    pages = ("/", "/?token=wrong", "/?token=", f"/timeline?about={CANARY}", "/admin/timeline", "/admin/ledger")
    for path in pages:
        answer = await operator.get(path, {})

        assert (401, False) == (answer.status, "Set-Cookie" in answer.headers)
        assert not {CANARY, "SANDBOX"} & set(re.findall(r"\w+", str(answer.document).replace(path, "")))
    fields = {"out_trade_no": CANARY, "decision": "authorize", "amount": "1", "unit": "days", "kind": "hang"}
    for action in ACTIONS:
        answer = await operator.press(action, {"Origin": sandbox.url}, **fields)

        assert (401, ["error"]) == (answer.status, list(answer.document))
    assert ("pending", []) == (sandbox.ledger.order_state(CANARY), sandbox.faults.armed())
    assert sandbox.clock.now() - before < timedelta(hours=1)


async def test_foreign_host_is_refused(operator: Operator) -> None:
    """If the Host header is foreign, no page and no endpoint responds, even with the token."""
    headers = {**operator.token, "Host": "evil.example"}
    for method, path in (("GET", "/"), ("GET", "/gateway/x"), ("POST", "/v1/payments"), ("GET", "/payment/status")):
        assert 421 == (await operator.foreign.send(method, path, headers=headers)).status
    assert [] == operator.sandbox.timeline()


async def test_get_changes_nothing(operator: Operator) -> None:
    """A GET changes nothing: actions need POST."""
    await operator.sandbox.given.pending_order()
    before = operator.sandbox.timeline()

    assert {405} == {(await operator.get(f"/admin/{action}")).status for action in ACTIONS}
    assert before == operator.sandbox.timeline()


async def test_form_leads_back_with_its_notice(operator: Operator) -> None:
    """After a form, the dashboard shows what was done or why not. A notice with any other number is not shown."""
    await operator.sandbox.given.pending_order(out_trade_no="T1")
    headers, pages = await operator.opened(), []
    for number in ("T1", "T9"):
        answer = await operator.press("orders/decide", headers, out_trade_no=number, decision="authorize")
        pages.append((await operator.get(answer.headers["Location"], headers)).document)
    others = [await operator.get(f"/?notice={given}", headers) for given in ("1", "x", "9" * 40, "-1", "٣")]

    assert '<p class="notice" role="status">Order T1 is paid.</p>' in pages[0]
    assert '<p class="notice bad" role="status">there is no such order</p>' in pages[1]
    assert [(200, False)] * 5 == [(each.status, 'class="notice"' in each.document) for each in others]


async def test_script_does_what_forms_do(http: aiohttp.ClientSession, receiver: Receiver) -> None:
    """A script with the token can do what each button does. An action that is done has no button any more."""
    async with (
        Sandbox(clock="frozen", refunds="by hand", webhook_url=receiver.url) as sandbox,
        sandbox.session() as pay,
    ):
        operator, start = Operator(sandbox, http), sandbox.clock.now()
        await sandbox.given.pending_order(out_trade_no="T1", total_amt=450)
        await sandbox.given.pending_order(out_trade_no="T2")
        forms = [section((await operator.get("/")).document, "orders").count("<form")]
        decided = await operator.do("orders/decide", out_trade_no="T1", decision="authorize")
        await sandbox.settle()
        await pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200)
        forms.append(section((await operator.get("/")).document, "refunds").count("<form"))
        settled = [await operator.do("refunds/settle", out_refund_no="R1", state="failed") for _ in range(2)]
        number = receiver.received[0].headers["webhook-id"]
        resent = await operator.do("notifications/resend", notification_id=number)
        advanced = [await operator.do("clock/advance", amount=31, unit="minutes")]
        advanced.append(await operator.do("clock/advance", amount="1", unit="seconds"))
        page = (await operator.get("/")).document
        forms += [section(page, name).count("<form") for name in ("orders", "refunds")]
        timeline = (await operator.get("/admin/timeline")).document

        assert {"timeline": sandbox.timeline()} == timeline
        assert ("paid", "failed") == (sandbox.ledger.order_state("T1"), sandbox.ledger.refund_state("R1"))
        assert timedelta(minutes=31, seconds=1) == sandbox.clock.now() - start
    assert (200, {"done": "Order T1 is paid."}) == (decided.status, decided.document)
    assert ([200, 409], 200, 2) == (
        [each.status for each in settled],
        resent.status,
        [each.headers["webhook-id"] for each in receiver.received].count(number),
    )
    assert "The clock was advanced by 31 minutes. Fell due: " in advanced[0].document["done"]
    assert "order expired (1)" in advanced[0].document["done"]
    assert "The clock was advanced by 1 seconds. Nothing fell due." == advanced[1].document["done"]
    assert [4, 2, 0, 0] == forms


async def test_script_arms_and_disarms_a_fault(operator: Operator) -> None:
    """A fault is armed by its name and options, and disarmed by its text. The notice has its summary.

    `refuse` without seconds is refused with its effect on the dashboard.
    """
    faults = operator.sandbox.faults
    armed = await operator.do("faults/arm", kind="latency", on="orders.query", seconds=0.5, nth=2)
    texts = [str(fault) for fault in faults.armed()]
    listed = (await operator.get("/admin/ledger")).document["faults"]
    disarmed = [await operator.do("faults/disarm", fault=armed.document["fault"]) for _ in range(2)]
    refused = await operator.do("faults/arm", kind="refuse")

    assert (200, [200, 404]) == (armed.status, [each.status for each in disarmed])
    text = "latency on orders.query (from number 2)"
    assert ([text], [text], []) == (texts, listed, faults.armed())
    assert f"Armed: {text}. {KINDS['latency'].summary}" == armed.document["done"]
    assert "closes this dashboard" in refused.document["error"]


async def test_script_reads_the_ledger(operator: Operator) -> None:
    """The ledger has the numbers that the forms take, amounts and states; no address, token or customer is in it."""
    sandbox = operator.sandbox
    order = await sandbox.given.paid_order(out_trade_no="T1", total_amt=450)
    subscription = await sandbox.given.subscription(customer={"email": CANARY})
    async with sandbox.session() as pay:
        await pay.refunds.create(out_trade_no=order, out_refund_no="R1", total_amt=450, refund_amt=100)
    ledger = (await operator.get("/admin/ledger")).document
    placed = {"out_trade_no": "T1", "origin": "order", "total_amt": 450, "currency": "CAD", "state": "paid"}

    assert [placed] == [{name: each[name] for name in placed} for each in ledger["orders"]]
    assert [("R1", "T1", 100, "succeeded")] == [tuple(each.values()) for each in ledger["refunds"]]
    assert [subscription] == [each["subscription_id"] for each in ledger["subscriptions"]]
    assert [each.notification_id for each in sandbox.ledger.notifications()] == [
        each["notification_id"] for each in ledger["notifications"]
    ]
    assert CANARY not in str(ledger)


async def test_invalid_fields_of_actions(operator: Operator) -> None:
    """Each invalid field is refused by its name, and nothing is done. A body that is neither form nor JSON gets 4xx."""
    cases: list[tuple[str, dict[str, Any], int, str | None]] = [
        ("orders/decide", {}, 422, "out_trade_no"),
        ("orders/decide", {"out_trade_no": "T1", "decision": "steal"}, 422, "decision"),
        ("orders/decide", {"out_trade_no": ["T1"], "decision": "cancel"}, 422, "out_trade_no"),
        ("refunds/settle", {"out_refund_no": "R1", "state": "processing"}, 422, "state"),
        *(("clock/advance", {"unit": "days", "amount": amount}, 422, "amount") for amount in ("-1", 0, "٣")),
        ("clock/advance", {"unit": "days", "amount": 9_999_999}, 422, "advance"),
        ("clock/advance", {"unit": "centuries", "amount": 1}, 422, "unit"),
        ("faults/arm", {"kind": "meteor"}, 422, "kind"),
        ("faults/arm", {"kind": "latency", "nth": "x"}, 422, "nth"),
        ("faults/arm", {"kind": "refuse"}, 422, "seconds"),
        ("faults/disarm", {}, 422, "fault"),
        ("notifications/resend", {"notification_id": "msg_0"}, 404, None),
    ]
    for action, fields, status, field in cases:
        answer = await operator.do(action, **fields)

        assert (status, field) == (answer.status, answer.document.get("field")), (action, fields)
    for content_type, body, status in (
        ("application/x-www-form-urlencoded", b"a=1&a=1", 400),
        ("application/json", b"[]", 400),
        ("application/json", b'{"a":1,"a":2}', 400),
        ("multipart/form-data", b"", 415),
    ):
        headers = {**operator.token, "Content-Type": content_type}
        answer = await operator.foreign.send("POST", "/admin/orders/decide", data=body, headers=headers)

        assert (status, ["error"]) == (answer.status, list(answer.document))
    assert [] == operator.sandbox.faults.armed()


def refused(headers: dict[str, str], cookies: dict[str, str], *, changes: bool) -> int | None:
    """Return the status with which a request is refused, or `None` if it is accepted."""
    try:
        ACCESS.check(headers, cookies, changes=changes)
    except RefusedError as error:
        return error.status
    return None


def test_only_hosts_of_this_machine_are_allowed() -> None:
    """A Host header must name this machine and the sandbox's port once; browsers leave out port 80."""
    allowed = [
        *(("http://127.0.0.1:8000", f"{name}:8000") for name in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]")),
        ("http://[::1]:9", "[::1]:9"),
        ("http://127.0.0.5:9", "127.0.0.5:9"),
        *(("http://127.0.0.1:80", host) for host in ("localhost", "localhost:80")),
    ]
    others = ["", "127.0.0.1", "127.0.0.1:8001", "evil.example:8000", "localhost.evil.example:8000", "localhost.:8000"]

    for url, host in allowed:
        assert AdminAccess(url, Secret(TOKEN)).allows_hosts([host]), host
    for hosts in ([], ["127.0.0.1:8000"] * 2, *([host] for host in [*others, "127.0.0.1:8000@evil.example"])):
        assert not ACCESS.allows_hosts(hosts), hosts


def test_access_needs_the_token_or_the_cookie_from_this_sandboxs_page() -> None:
    """A token that is nearly right, a token sent as a cookie, and another cookie give no access.

    The cookie is enough to read. A form must also come from a page of this sandbox, or it is refused.
    """
    words = (TOKEN, "Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer \udcff")
    cookies: list[dict[str, str]] = [{}, {ACCESS.cookie: ""}, {ACCESS.cookie: TOKEN}, {"other": ACCESS.key.reveal()}]
    sites = ("null", "http://evil.example", *(f"http://{each}" for each in ("127.0.0.1:8001", "localhost:8000")))
    others = [{"Host": HERE["Host"]}, *({**HERE, "Origin": each} for each in (*sites, f"https://{HERE['Host']}"))]
    others += [{**HERE, "Sec-Fetch-Site": each} for each in ("same-site", "none")]
    refusals = [
        refused({"Authorization": word}, {}, changes=False) for word in (*words, f"Bearer {ACCESS.key.reveal()}")
    ]

    assert [401] * 11 == [*refusals, *(refused(HERE, each, changes=False) for each in cookies)]
    assert refused({}, COOKIE, changes=False) is None
    assert [None] * 2 == [refused({**HERE, **each}, COOKIE, changes=True) for each in ({}, OWN_SITE)]
    assert [403] * 8 == [refused(each, COOKIE, changes=True) for each in others]


def section(page: str, name: str) -> str:
    """Return a section of the dashboard."""
    found = re.search(rf'<section id="{name}".*?</section>', page, re.DOTALL)
    assert found
    return found[0]


def hashed(text: str) -> str:
    """Return the hash of a style or script, as a policy writes it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


async def test_pages_need_jinja(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Jinja2, a page returns 501 with the command to install it, and actions work."""
    missing = Mock(side_effect=ModuleNotFoundError(name="jinja2"))
    monkeypatch.setattr("payasync.sandbox.web.pages._load_environment", missing)
    placed = await operator.foreign.place("T1")
    gateway = placed.document["redirectUrl"].removeprefix(operator.sandbox.url)
    pages = [await operator.get(path) for path in ("/", "/timeline?about=T1", gateway)]
    said = "The sandbox's pages need Jinja2: python -m pip install 'payasync[sandbox]'\n"

    assert [(501, said)] * 3 == [(each.status, each.document) for each in pages]
    assert 200 == (await operator.do("clock/advance", amount=1, unit="days")).status


async def test_policy_allows_its_own_style_and_script_alone(operator: Operator) -> None:
    """The policy allows only the page's own style and script, and forms and requests to the sandbox."""
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


async def test_subscription_shows_its_next_period(http: aiohttp.ClientSession) -> None:
    """A subscription shows what it bills, and when it begins or renews; a cancelled one has no next period."""
    async with Sandbox(clock=datetime(2027, 1, 1, tzinfo=UTC)) as sandbox, sandbox.session() as pay:
        operator, seen = Operator(sandbox, http), list[str]()
        number = await sandbox.given.subscription(start_date=date(2027, 1, 2))
        for step in (sandbox.clock.advance(days=0), sandbox.clock.advance(days=1), pay.subscriptions.cancel(number)):
            await step
            seen.append(section((await operator.get("/")).document, "subscriptions"))

    for text in (number, "monthly", "900", "SBX_SCHEDULED", "begins 2027-01-02"):
        assert text in seen[0]
    assert ("renews 2027-02-02" in seen[1], "renews" in seen[2], "SBX_CANCELLED" in seen[2]) == (True, False, True)


async def test_page_shows_clock_states_and_attempts(http: aiohttp.ClientSession, receiver: Receiver) -> None:
    """The page shows how fast time moves, states by our name and the profile's, and notifications with attempts.

    A notification shows its address, its state, and when the next attempt is due; many attempts are folded.
    """
    profile = Profile(states=States(order={"paid": ("BEZAHLT",)}))
    for clock, shown in (("real", "real"), ("frozen", "standing still"), ("60x", "60 times as fast")):
        async with Sandbox(profile, clock=clock) as sandbox:
            operator = Operator(sandbox, http)
            await sandbox.given.paid_order(notify_url=receiver.url)
            await sandbox.given.paid_order(notify_url="http://127.0.0.1:1/gone")
            await sandbox.settle()
            page = (await operator.get("/")).document
            await sandbox.clock.advance(days=2)
            late = section((await operator.get("/")).document, "notifications")

        assert f"<dt>Sandbox time, {shown}</dt>" in page
        states = r'<span class="badge good">paid</span> <code class="wire">BEZAHLT</code>'
        assert re.search(states, section(page, "orders"))
        early = section(page, "notifications")
        for text in (receiver.url, "delivered", "http://127.0.0.1:1/gone", "waiting", "no response", "due "):
            assert text in early
        assert (1, 7) == (early.count("connection refused"), late.count("connection refused"))
        assert ["dead"] == re.findall(r'class="badge bad">(\w+)', late)[:1]
        assert "<summary>7 attempts</summary>" in late


async def test_only_the_newest_are_listed(operator: Operator) -> None:
    """Each list shows the newest fifty, newest first, with a hint that there are more."""
    numbers = [f"N{count:04}" for count in range(MAX_LISTED + 2)]
    for number in numbers:
        await operator.sandbox.given.pending_order(out_trade_no=number)
    listed = section((await operator.get("/")).document, "orders")

    assert numbers[:1:-1] == re.findall(r'class="number"[^>]*><code>(\w+)</code>', listed)
    assert f"the newest {MAX_LISTED}; there are older ones" in listed


@pytest.mark.parametrize("named_by", ["outTradeNo", "paymentId"])
async def test_timeline_of_an_order(operator: Operator, named_by: str) -> None:
    """An order's page lists its entries and its refunds', oldest first, by its number and by its payment's."""
    placed = {number: await operator.foreign.place(f"T{number}") for number in (2, 1)}
    for number in placed:
        await operator.sandbox.customer.authorize(f"T{number}")
        await operator.foreign.refund(f"R{number}", 1, out_trade_no=f"T{number}")
    order = placed[1].document
    await operator.foreign.send(
        "GET", f"/payment/status?outTradeNo={order['paymentId']}", headers=operator.foreign.bearer
    )
    page = (await operator.get(f"/timeline?about={order[named_by]}")).document
    names = [name for name in re.findall(r"<div><code>([\w.]+)</code>", page) if name != "payment.paid"]

    # Deliveries may come at any place.
    assert ["order", "orders.place", "order", "gateway.authorize", "refund", "refund", "refunds.create"] == [
        name for name in names if not name.startswith("refund.")
    ][:7]
    assert "payments.status" == names[-1]
    assert "<code>R1</code></a> <strong>200 SBX_OK" in page
    assert not re.search(r"\b[RT]2\b", page)
    assert "No entry names it." in (await operator.get("/timeline?about=T9")).document
