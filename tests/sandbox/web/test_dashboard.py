"""The dashboard: its content, its access control, and its actions."""

import base64
import hashlib
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

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
HERE: Final = {"Host": "127.0.0.1:8000", "Origin": "http://127.0.0.1:8000"}


@pytest.fixture
def operator(sandbox: Sandbox, http: aiohttp.ClientSession) -> Operator:
    """An operator who knows the token."""
    return Operator(sandbox, http)


async def test_link_sets_a_cookie_and_hides_the_token(operator: Operator) -> None:
    """The link with the token sets a cookie that no script and no other site gets, and leads to `/`."""
    token = operator.sandbox.admin_token.reveal()
    answer = await operator.get(f"/?token={token}", {})
    cookie = answer.headers["Set-Cookie"]

    assert (303, "/", "") == (answer.status, answer.headers["Location"], answer.document)
    assert re.fullmatch(r"payasync_sandbox_\d+=[0-9a-f]{64}; HttpOnly; Path=/; SameSite=Strict", cookie)
    assert token not in cookie


async def test_dashboard_opens_by_the_cookie(operator: Operator) -> None:
    """The cookie opens the dashboard, which contains neither the token nor a key."""
    sandbox = operator.sandbox
    await sandbox.given.pending_order(out_trade_no=CANARY)
    page = await operator.get("/", await operator.opened())
    given = sandbox.credentials
    keys = [given.secret_key, given.signing_key, *given.notification_keys, sandbox.admin_token]

    assert (200, True) == (page.status, CANARY in page.document)
    assert [] == [key for key in keys if key and key.reveal() in page.document]


@pytest.mark.parametrize(
    "path", ["/", "/?token=wrong", "/?token=", f"/timeline?about={CANARY}", "/admin/timeline", "/admin/ledger"]
)
async def test_nothing_is_shown_without_the_token(operator: Operator, path: str) -> None:
    """Without the token, a page gets 401 and shows nothing of the sandbox."""
    await operator.sandbox.given.pending_order(out_trade_no=CANARY)
    answer = await operator.get(path, {})
    text = str(answer.document)

    assert 401 == answer.status
    assert CANARY not in text.replace(path, "")
    assert "SANDBOX" not in text
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("action", ACTIONS)
async def test_nothing_is_done_without_the_token(operator: Operator, action: str) -> None:
    """Without the token, each action gets 401, and nothing is done."""
    number = await operator.sandbox.given.pending_order()
    fields = {"out_trade_no": number, "decision": "authorize", "amount": "1", "unit": "days", "kind": "hang"}
    before = operator.sandbox.clock.now()
    answer = await operator.press(action, {"Origin": operator.sandbox.url}, **fields)

    assert (401, ["error"]) == (answer.status, list(answer.document))
    assert ("pending", []) == (operator.sandbox.ledger.order_state(number), operator.sandbox.faults.armed())
    assert operator.sandbox.clock.now() - before < timedelta(hours=1)


async def test_form_of_another_page_is_refused(operator: Operator) -> None:
    """A form of another page is refused, and does nothing."""
    number = await operator.sandbox.given.pending_order()
    headers = {**await operator.opened(), "Origin": "http://evil.example"}
    answer = await operator.press("orders/decide", headers, out_trade_no=number, decision="authorize")

    assert (403, "pending") == (answer.status, operator.sandbox.ledger.order_state(number))


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/"), ("GET", "/gateway/x"), ("POST", "/v1/payments"), ("GET", "/payment/status")]
)
async def test_foreign_host_is_refused(operator: Operator, method: str, path: str) -> None:
    """If the Host header is foreign, no page and no endpoint responds, even with the token."""
    headers = {**operator.token, "Host": "evil.example"}
    answer = await operator.foreign.send(method, path, headers=headers)

    assert 421 == answer.status
    assert [] == operator.sandbox.timeline()


async def test_get_changes_nothing(operator: Operator) -> None:
    """A GET changes nothing: actions need POST."""
    await operator.sandbox.given.pending_order()
    before = operator.sandbox.timeline()
    statuses = [(await operator.get(f"/admin/{action}")).status for action in ACTIONS]
    for path in ("/", "/timeline?about=T1", "/admin/timeline"):
        await operator.get(path)

    assert [405] * len(ACTIONS) == statuses
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


async def test_script_pays(operator: Operator) -> None:
    """A script with the token pays by JSON, and reads the timeline; a paid order has no buttons any more."""
    number = await operator.sandbox.given.pending_order()
    before = section((await operator.get("/")).document, "orders")
    answer = await operator.do("orders/decide", out_trade_no=number, decision="authorize")
    after = section((await operator.get("/")).document, "orders")

    assert (200, {"done": f"Order {number} is paid."}) == (answer.status, answer.document)
    assert ("paid", 2, 0) == (operator.sandbox.ledger.order_state(number), before.count("<form"), after.count("<form"))
    assert {"timeline": operator.sandbox.timeline()} == (await operator.get("/admin/timeline")).document


async def test_script_settles_a_refund(http: aiohttp.ClientSession) -> None:
    """A processing refund can be settled once; then its page offers no button."""
    async with Sandbox(refunds="by hand") as sandbox, sandbox.session() as pay:
        operator = Operator(sandbox, http)
        order = await sandbox.given.paid_order(total_amt=450)
        await pay.refunds.create(out_trade_no=order, out_refund_no="R1", total_amt=450, refund_amt=200)
        before = section((await operator.get("/")).document, "refunds")
        answers = [await operator.do("refunds/settle", out_refund_no="R1", state="failed") for _ in range(2)]
        after = section((await operator.get("/")).document, "refunds")

        assert ([200, 409], "failed") == ([each.status for each in answers], sandbox.ledger.refund_state("R1"))
        assert (2, 0) == (before.count("<form"), after.count("<form"))


async def test_script_advances_the_clock(http: aiohttp.ClientSession) -> None:
    """The clock is advanced as requested, and the response says what fell due."""
    async with Sandbox(clock="frozen") as sandbox:
        before, operator = sandbox.clock.now(), Operator(sandbox, http)
        await sandbox.given.pending_order()
        answer = await operator.do("clock/advance", amount=31, unit="minutes")
        quiet = await operator.do("clock/advance", amount="1", unit="seconds")
        passed = sandbox.clock.now() - before

    assert timedelta(minutes=31, seconds=1) == passed
    assert "The clock was advanced by 31 minutes. Fell due: order expired (1)." == answer.document["done"]
    assert "The clock was advanced by 1 seconds. Nothing fell due." == quiet.document["done"]


async def test_script_arms_and_disarms_a_fault(operator: Operator) -> None:
    """A fault is armed by its name and options, and disarmed by its text."""
    armed = await operator.do("faults/arm", kind="latency", on="orders.query", seconds=0.5, nth=2)
    texts = [str(fault) for fault in operator.sandbox.faults.armed()]
    listed = (await operator.get("/admin/ledger")).document["faults"]
    disarmed = [await operator.do("faults/disarm", fault=armed.document["fault"]) for _ in range(2)]

    assert (200, [200, 404]) == (armed.status, [each.status for each in disarmed])
    assert (["latency on orders.query (from number 2)"], []) == (texts, operator.sandbox.faults.armed())
    assert texts == listed


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


async def test_script_resends_a_notification(operator: Operator, receiver: Receiver) -> None:
    """A resent notification has the same number."""
    await operator.sandbox.given.paid_order()
    await operator.sandbox.settle()
    number = receiver.received[0].headers["webhook-id"]
    answer = await operator.do("notifications/resend", notification_id=number)
    await operator.sandbox.settle()

    assert (200, [number] * 2) == (answer.status, [each.headers["webhook-id"] for each in receiver.received])


@pytest.mark.parametrize(
    ("action", "fields", "status", "field"),
    [
        ("orders/decide", {}, 422, "out_trade_no"),
        ("orders/decide", {"out_trade_no": "T1", "decision": "steal"}, 422, "decision"),
        ("orders/decide", {"out_trade_no": ["T1"], "decision": "cancel"}, 422, "out_trade_no"),
        ("refunds/settle", {"out_refund_no": "R1", "state": "processing"}, 422, "state"),
        ("clock/advance", {"unit": "days", "amount": "-1"}, 422, "amount"),
        ("clock/advance", {"unit": "days", "amount": 0}, 422, "amount"),
        ("clock/advance", {"unit": "days", "amount": "٣"}, 422, "amount"),
        ("clock/advance", {"unit": "days", "amount": 9_999_999}, 422, "advance"),
        ("clock/advance", {"unit": "centuries", "amount": 1}, 422, "unit"),
        ("faults/arm", {"kind": "meteor"}, 422, "kind"),
        ("faults/arm", {"kind": "latency", "nth": "x"}, 422, "nth"),
        ("faults/arm", {"kind": "refuse"}, 422, "seconds"),
        ("faults/disarm", {}, 422, "fault"),
        ("notifications/resend", {"notification_id": "msg_0"}, 404, None),
    ],
)
async def test_invalid_fields_of_actions(
    operator: Operator, action: str, fields: dict[str, Any], status: int, field: str | None
) -> None:
    """Each invalid field is refused by its name, and nothing is done."""
    answer = await operator.do(action, **fields)

    assert (status, field) == (answer.status, answer.document.get("field"))
    assert [] == operator.sandbox.faults.armed()


async def test_arming_says_what_the_fault_does(operator: Operator) -> None:
    """The notice has the fault's summary; `refuse` without seconds is refused with its effect on the dashboard."""
    armed = await operator.do("faults/arm", kind="refuse", on="orders.query", seconds=60)
    refused = await operator.do("faults/arm", kind="refuse")
    operator.sandbox.faults.armed()[0].disarm()

    assert f"Armed: refuse on orders.query. {KINDS['refuse'].summary}" == armed.document["done"]
    assert "closes this dashboard" in refused.document["error"]


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("application/x-www-form-urlencoded", b"a=1&a=1", 400),
        ("application/json", b"[]", 400),
        ("application/json", b'{"a":1,"a":2}', 400),
        ("multipart/form-data", b"", 415),
    ],
)
async def test_hostile_bodies(operator: Operator, content_type: str, body: bytes, status: int) -> None:
    """A body that is neither a form nor JSON gets a 4xx."""
    headers = {**operator.token, "Content-Type": content_type}
    answer = await operator.foreign.send("POST", "/admin/orders/decide", data=body, headers=headers)

    assert (status, ["error"]) == (answer.status, list(answer.document))


def refused(headers: dict[str, str], cookies: dict[str, str], *, changes: bool) -> int | None:
    """Return the status with which a request is refused, or `None` if it is accepted."""
    try:
        ACCESS.check(headers, cookies, changes=changes)
    except RefusedError as error:
        return error.status
    return None


@pytest.mark.parametrize(
    ("url", "host"),
    [
        *(("http://127.0.0.1:8000", f"{name}:8000") for name in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]")),
        ("http://[::1]:9", "[::1]:9"),
        ("http://127.0.0.5:9", "127.0.0.5:9"),
        ("http://127.0.0.1:80", "localhost"),
        ("http://127.0.0.1:80", "localhost:80"),
    ],
)
def test_hosts_of_this_machine_are_allowed(url: str, host: str) -> None:
    """A Host header may name this machine and the sandbox's port; browsers leave out port 80."""
    assert AdminAccess(url, Secret(TOKEN)).allows_hosts([host])


@pytest.mark.parametrize(
    "hosts",
    [
        [],
        [""],
        ["127.0.0.1"],
        ["127.0.0.1:8001"],
        ["evil.example:8000"],
        ["localhost.evil.example:8000"],
        ["localhost.:8000"],
        ["127.0.0.1:8000@evil.example"],
        ["127.0.0.1:8000", "127.0.0.1:8000"],
    ],
)
def test_other_hosts_are_refused(hosts: list[str]) -> None:
    """A foreign host, another port, no host and two hosts are refused."""
    assert not ACCESS.allows_hosts(hosts)


@pytest.mark.parametrize(
    ("headers", "cookies"),
    [
        ({}, {}),
        ({"Authorization": TOKEN}, {}),
        ({"Authorization": "Bearer"}, {}),
        ({"Authorization": f"Basic {TOKEN}"}, {}),
        ({"Authorization": f"Bearer {TOKEN}x"}, {}),
        ({"Authorization": f"Bearer {TOKEN[:-1]}"}, {}),
        ({"Authorization": "Bearer \udcff"}, {}),
        ({"Authorization": f"Bearer {ACCESS.key.reveal()}"}, {}),
        (HERE, {ACCESS.cookie: ""}),
        (HERE, {ACCESS.cookie: TOKEN}),
        (HERE, {"other": ACCESS.key.reveal()}),
    ],
)
def test_only_token_or_cookie_give_access(headers: dict[str, str], cookies: dict[str, str]) -> None:
    """A token that is nearly right, a token sent as a cookie, and another cookie give no access."""
    assert 401 == refused(headers, cookies, changes=False)


def test_cookie_gives_access_from_this_sandboxs_page() -> None:
    """The cookie is enough to read; a form must also come from a page of this sandbox."""
    assert refused({}, COOKIE, changes=False) is None
    assert refused(HERE, COOKIE, changes=True) is None
    assert refused({**HERE, "Sec-Fetch-Site": "same-origin"}, COOKIE, changes=True) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "127.0.0.1:8000"},
        {**HERE, "Origin": "null"},
        {**HERE, "Origin": "http://evil.example"},
        {**HERE, "Origin": "http://127.0.0.1:8001"},
        {**HERE, "Origin": "https://127.0.0.1:8000"},
        {**HERE, "Origin": "http://localhost:8000"},
        {**HERE, "Sec-Fetch-Site": "same-site"},
        {**HERE, "Sec-Fetch-Site": "none"},
    ],
)
def test_cross_origin_forms_are_refused(headers: dict[str, str]) -> None:
    """A form of another page is refused although the browser sends the cookie with it."""
    assert 403 == refused(headers, COOKIE, changes=True)


def section(page: str, name: str) -> str:
    """Return a section of the dashboard."""
    found = re.search(rf'<section id="{name}".*?</section>', page, re.DOTALL)
    assert found
    return found[0]


def hashed(text: str) -> str:
    """Return the hash of a style or script, as a policy writes it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


async def test_empty_lists_say_how_to_fill_them(operator: Operator) -> None:
    """Each empty list says what to do next; the first has a whole program, and says where the keys are.

    Each order that a hint places has a number of its own.
    """
    page = (await operator.get("/")).document
    hints = {name: section(page, name) for name in ("orders", "refunds", "subscriptions", "notifications", "requests")}

    assert [True] * 5 == ["none yet" in each for each in hints.values()]
    for text in (operator.sandbox.url, "orders.place", "sandbox.credentials", "payasync sandbox", "SANDBOX"):
        assert text in hints["orders"]
    assert ["refunds.create", "subscriptions.create"] == re.findall(
        r"pay\.(\w+\.create)", hints["refunds"] + hints["subscriptions"]
    )
    places = re.findall(r'orders\.place\(\s*(?:out_trade_no="(\w+)")?', hints["orders"] + hints["notifications"])
    assert ["T1", "T2"] == places


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


async def test_state_is_shown_with_the_profiles_value(http: aiohttp.ClientSession) -> None:
    """A state is shown by payasync's name and by the profile's value."""
    profile = Profile(states=States(order={"paid": ("BEZAHLT",)}))
    async with Sandbox(profile) as sandbox:
        await sandbox.given.paid_order(out_trade_no="T1")
        orders = section((await Operator(sandbox, http).get("/")).document, "orders")

    assert re.search(r'<span class="badge good">paid</span> <code class="wire">BEZAHLT</code>', orders)


async def test_subscription_shows_its_next_period(http: aiohttp.ClientSession) -> None:
    """A subscription shows what it bills, and when it begins or renews; a cancelled one has no next period."""
    async with Sandbox(clock=datetime(2027, 1, 1, tzinfo=UTC)) as sandbox, sandbox.session() as pay:
        operator = Operator(sandbox, http)
        number = await sandbox.given.subscription(start_date=date(2027, 1, 2))
        seen = [section((await operator.get("/")).document, "subscriptions")]
        await sandbox.clock.advance(days=1)
        seen.append(section((await operator.get("/")).document, "subscriptions"))
        await pay.subscriptions.cancel(number)
        seen.append(section((await operator.get("/")).document, "subscriptions"))

    for text in (number, "monthly", "900", "SBX_SCHEDULED", "begins 2027-01-02"):
        assert text in seen[0]
    assert ("renews 2027-02-02" in seen[1], "renews" in seen[2], "SBX_CANCELLED" in seen[2]) == (True, False, True)


@pytest.mark.parametrize(
    ("clock", "shown"), [("real", "real"), ("frozen", "standing still"), ("60x", "60 times as fast")]
)
async def test_header_says_how_fast_time_moves(http: aiohttp.ClientSession, clock: str, shown: str) -> None:
    """The header says whether the sandbox's time moves, and how fast."""
    async with Sandbox(clock=clock) as sandbox:
        page = (await Operator(sandbox, http).get("/")).document

    assert f"<dt>Sandbox time, {shown}</dt>" in page


async def test_notification_shows_its_attempts(http: aiohttp.ClientSession, receiver: Receiver) -> None:
    """A notification shows its address, its state, each attempt, and when the next one is due; many are folded."""
    async with Sandbox(clock="frozen") as sandbox:
        operator = Operator(sandbox, http)
        await sandbox.given.paid_order(notify_url=receiver.url)
        await sandbox.given.paid_order(notify_url="http://127.0.0.1:1/gone")
        await sandbox.settle()
        early = section((await operator.get("/")).document, "notifications")
        await sandbox.clock.advance(days=2)
        late = section((await operator.get("/")).document, "notifications")

    for text in (receiver.url, "delivered", "http://127.0.0.1:1/gone", "waiting", "no response", "due "):
        assert text in early
    assert (1, 7) == (early.count("connection refused"), late.count("connection refused"))
    assert ("dead", True) == (re.findall(r'class="badge bad">(\w+)', late)[0], "<summary>7 attempts</summary>" in late)


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
