"""The dashboard: what the sandbox did, and what it can be made to do; one page that needs no script."""

from collections.abc import Callable, Sequence
from datetime import datetime
from html import escape
from typing import Final, Generic, TypeVar

from attrs import frozen

from payasync.profile.schema import Code
from payasync.sandbox.faults.catalogue import KINDS
from payasync.sandbox.faults.trigger import CALLS, EVENTS
from payasync.sandbox.model import (
    Attempt,
    Entry,
    Notification,
    Order,
    Refund,
    Subscription,
    format_amount,
    format_order_amount,
)
from payasync.sandbox.store import Store
from payasync.sandbox.timeline import Timeline, ended
from payasync.sandbox.web.actions import MOST_DIGITS, UNITS
from payasync.sandbox.web.pages import (
    TIMELINE,
    Page,
    badge,
    buttons,
    instant,
    look,
    moment,
    number,
    options,
    page,
    page_path,
    press,
    row,
    table,
)

REFUNDS: Final = """<p>Give back some of an order that is paid:</p>
<pre tabindex="0">await pay.refunds.create(
    out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200
)</pre>"""

SUBSCRIPTIONS: Final = """<p>Begin one today, then advance the clock by 31 days to see it renewed:</p>
<pre tabindex="0">await pay.subscriptions.create(
    frequency="monthly", amount=900, start_date=date.today(), customer={"email": "a@example.com"}
)</pre>"""

NOTIFICATIONS: Final = """<p>They go to the <code>notifyUrl</code> of an order or a refund, and for all else to the
account's webhook address. Give one that listens on this machine:</p>
<pre tabindex="0">await pay.orders.place(
    total_amt=450, currency="CAD", notify_url="http://127.0.0.1:9000/notify"
)</pre>"""

REQUESTS: Final = (
    "<p>Each request to the service appears here with its answer, and with the reason where it is refused.</p>"
)


def start_hint(url: str, merchant_id: str) -> str:
    """Return how to place the first order.

    Args:
        url: Where the sandbox listens.
        merchant_id: The merchant's number.
    """
    program = f"""import asyncio
from payasync import Credentials, Session
from payasync.sandbox import PROFILE

async def main():
    credentials = Credentials("{merchant_id}", secret_key="sk_sandbox_...", signing_key="...")
    async with Session("{url}", credentials=credentials, profile=PROFILE) as pay:
        order = await pay.orders.place(out_trade_no="T1", subject="Coffee", total_amt=450, currency="CAD")
        print(order.redirect_url)

asyncio.run(main())"""
    return f"""<p>Place the first one: a click selects the program. Its customer pays at the address that it prints.
The two keys stand where the sandbox was started: among the first lines of <code>payasync sandbox</code>, or in
<code>sandbox.credentials</code>. With a profile of your own, give that.</p>
<pre tabindex="0">{escape(program)}</pre>"""


T = TypeVar("T")
MOST: Final = 50
"""How many of each are shown."""


@frozen
class Newest(Generic[T]):
    """The newest of something, newest first.

    Attributes:
        shown: They.
        more: There are older ones.
    """

    shown: Sequence[T]
    more: bool


@frozen
class Refunded:
    """A refund, with the currency of its order."""

    refund: Refund
    currency: str


@frozen
class Told:
    """A notification, with its attempts, oldest first."""

    notification: Notification
    attempts: Sequence[Attempt]


@frozen(kw_only=True)
class Overview:
    """All that the dashboard lists."""

    orders: Newest[Order]
    refunds: Newest[Refunded]
    subscriptions: Newest[Subscription]
    notifications: Newest[Told]
    requests: Newest[Entry]


def overview(store: Store, timeline: Timeline) -> Overview:
    """Return what there is now."""
    refunds = _newest(store, Refund)
    notifications = _newest(store, Notification)
    return Overview(
        orders=_newest(store, Order),
        refunds=Newest([Refunded(refund, _currency(store, refund)) for refund in refunds.shown], refunds.more),
        subscriptions=_newest(store, Subscription),
        notifications=Newest([_told(store, each) for each in notifications.shown], notifications.more),
        requests=_cut(timeline.requests(MOST + 1)),
    )


def _newest(store: Store, kind: type[T]) -> Newest[T]:
    return _cut(store.newest(kind, MOST + 1))


def _cut(found: list[T]) -> Newest[T]:
    return Newest(found[:MOST], len(found) > MOST)


def _currency(store: Store, refund: Refund) -> str:
    order = store.order(refund.out_trade_no)
    return order.currency if order else ""


def _told(store: Store, notification: Notification) -> Told:
    return Told(notification, store.attempts_of(notification.notification_id))


@frozen
class Lists:
    """Writes the lists.

    Attributes:
        unit: What amounts count: `minor` or `major`.
        wire: Returns the profile's value for one of our states.
    """

    unit: str
    wire: Callable[[str, str], Code]

    def html(self, told: Overview, start: str) -> str:
        """Return all lists.

        Args:
            told: What they hold.
            start: The HTML of how to begin, where there is no order yet.
        """
        return "\n".join(
            (
                _section("orders", "Orders", told.orders, self._orders, start),
                _section("refunds", "Refunds", told.refunds, self._refunds, REFUNDS),
                _section("subscriptions", "Subscriptions", told.subscriptions, self._subscriptions, SUBSCRIPTIONS),
                _section("notifications", "Notifications", told.notifications, _notifications, NOTIFICATIONS),
                _section("requests", "Requests", told.requests, _requests, REQUESTS),
            )
        )

    def _orders(self, orders: Sequence[Order]) -> str:
        columns = ("Number", "What for", "Amount", "State", "Made", "")
        return table("Orders, newest first", columns, [self._order(order) for order in orders])

    def _order(self, order: Order) -> str:
        thing = "payment" if order.origin == "payment" else "order"
        cells = {
            "What for": escape(_short(order.subject)),
            "Amount": escape(format_order_amount(order, self.unit)),
            "State": badge(order.state, self.wire(thing, order.state)),
            "Made": moment(order.created),
            "": _order_buttons(order),
        }
        return row(number(order.out_trade_no), cells)

    def _refunds(self, refunds: Sequence[Refunded]) -> str:
        columns = ("Number", "Order", "Amount", "State", "Made", "")
        return table("Refunds, newest first", columns, [self._refund(each) for each in refunds])

    def _refund(self, refunded: Refunded) -> str:
        refund = refunded.refund
        cells = {
            "Order": number(refund.out_trade_no),
            "Amount": escape(format_amount(refund.refund_amt, refunded.currency, self.unit)),
            "State": badge(refund.state, self.wire("refund", refund.state)),
            "Made": moment(refund.created),
            "": _refund_buttons(refund.out_refund_no) if refund.state == "processing" else "",
        }
        return row(number(refund.out_refund_no), cells)

    def _subscriptions(self, subscriptions: Sequence[Subscription]) -> str:
        columns = ("Number", "Billed", "Amount", "State", "Period", "Next")
        return table("Subscriptions, newest first", columns, [self._subscription(each) for each in subscriptions])

    def _subscription(self, subscription: Subscription) -> str:
        cells = {
            "Billed": escape(_short(subscription.frequency)),
            "Amount": f"{subscription.amount:,}",
            "State": badge(subscription.state, self.wire("subscription", subscription.state)),
            "Period": str(subscription.period),
            "Next": _next(subscription),
        }
        return row(number(subscription.subscription_id), cells)


def _section(name: str, title: str, listed: Newest[T], written: Callable[[Sequence[T]], str], hint: str) -> str:
    count = f"the newest {MOST}; there are older ones" if listed.more else f"{len(listed.shown) or 'none yet'}"
    content = written(listed.shown) if listed.shown else f'<div class="nothing">{hint}</div>'
    return f"""<section id="{name}" data-live aria-labelledby="{name}-title">
<div class="heading"><h2 id="{name}-title">{title}</h2><p class="count">{count}</p></div>
{content}
</section>"""


def _short(text: str, most: int = 80) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _order_buttons(order: Order) -> str:
    if order.state != "pending":
        return ""
    about, what = f"order {order.out_trade_no}", {"out_trade_no": order.out_trade_no}
    return buttons(
        press("orders/decide", "Authorise", about, {**what, "decision": "authorize"}),
        press("orders/decide", "Decline", about, {**what, "decision": "decline"}),
        f'<a class="button" href="{escape(page_path(order))}" target="_blank" rel="noopener">Open'
        f'<span class="hidden"> the gateway page of {escape(about)} in a new tab</span></a>',
    )


def _refund_buttons(out_refund_no: str) -> str:
    about, what = f"refund {out_refund_no}", {"out_refund_no": out_refund_no}
    return buttons(
        press("refunds/settle", "Succeed", about, {**what, "state": "succeeded"}),
        press("refunds/settle", "Fail", about, {**what, "state": "failed"}),
    )


def _next(subscription: Subscription) -> str:
    if subscription.state == "scheduled":
        return f"begins {subscription.start_date}"
    if subscription.state == "cancelled" or subscription.renews is None:
        return ""
    return f"{'ends' if subscription.ends else 'renews'} {subscription.renews}"


def _notifications(told: Sequence[Told]) -> str:
    columns = ("About", "What", "State", "To", "Attempts", "")
    return table("Notifications, newest first", columns, [_notification(each) for each in told])


def _notification(told: Told) -> str:
    notification = told.notification
    cells = {
        "What": f'<code class="event">{escape(notification.event)}</code>',
        "State": badge(notification.state),
        "To": f'<span class="url" title="{escape(notification.url)}">{escape(notification.url)}</span>',
        "Attempts": _attempts(told),
        "": buttons(
            press(
                "notifications/resend",
                "Resend",
                f"{notification.event} of {notification.reference}",
                {"notification_id": notification.notification_id},
            )
        ),
    }
    return row(number(notification.reference), cells)


def _attempts(told: Told) -> str:
    due = told.notification.due
    ahead = f'<li class="dim">due {moment(due)}</li>' if due else ""
    lines = "".join(f"<li>{moment(each.at)} {_ended(each.status)} {_reason(each.error)}</li>" for each in told.attempts)
    if len(told.attempts) < 2:  # noqa: PLR2004 - one needs no folding
        return f'<ul class="attempts">{lines}{ahead}</ul>'
    name = f"attempts-{escape(told.notification.notification_id)}"
    return (
        f'<details id="{name}"><summary>{len(told.attempts)} attempts</summary>'
        f'<ul class="attempts">{lines}{ahead}</ul></details>'
    )


def _requests(entries: Sequence[Entry]) -> str:
    columns = ("Operation", "About", "Answer", "Took", "At", "Remarks")
    return table("Requests, newest first", columns, [_request(entry) for entry in entries])


def _request(entry: Entry) -> str:
    cells = {
        "About": number(entry.reference),
        "Answer": f"{_ended(entry.status)} <code class='wire'>{escape(entry.outcome)}</code>",
        "Took": "" if entry.milliseconds is None else f"{entry.milliseconds:.1f} ms",
        "At": instant(entry.at),
        "Remarks": remarks(entry),
    }
    return row(f"<code>{escape(_short(entry.name))}</code>", cells)


def remarks(entry: Entry) -> str:
    """Return what there is to say about an entry: its fault, its reason, and the text that was to be signed."""
    fault = f'<span class="fault">fault: {escape(entry.fault)}</span> ' if entry.fault else ""
    expected = ""
    if entry.expected:
        expected = (
            f'<details id="expected-{entry.seq}"><summary>The text to sign</summary>'
            f'<pre class="expected" tabindex="0">{escape(entry.expected)}</pre></details>'
        )
    return f"{fault}{_reason(entry.reason)}{expected}"


def _ended(status: int | None) -> str:
    if status is None:
        return '<strong class="reason">no answer</strong>'
    good = 200 <= status < 400  # noqa: PLR2004 - done, or sent on
    return f"<strong>{status}</strong>" if good else f'<strong class="reason">{status}</strong>'


def _reason(text: str) -> str:
    return f'<span class="reason">{escape(text)}</span>' if text else ""


_LIVE: Final = look("dashboard.css", "dashboard.js")
_STILL: Final = look("dashboard.css")
_SECTIONS: Final = ("orders", "refunds", "subscriptions", "notifications", "requests")
_PRESETS: Final = (("minutes", 31, "31 minutes"), ("days", 1, "1 day"), ("days", 31, "31 days"))
_BAND: Final = """<p class="sandbox"><strong>Sandbox.</strong> No money moves here.
All answers are the sandbox's own choice, not those of a payment service.</p>"""
_LOST: Final = """<p id="lost" class="notice bad" role="status" hidden>The sandbox does not answer.
What stands here is old.</p>"""


@frozen(kw_only=True)
class View:
    """What the dashboard is made of.

    Attributes:
        url: Where the sandbox listens.
        merchant_id: The merchant's number.
        profile: The profile's name.
        now: The sandbox's time.
        clock: How its time goes.
        lists: Writes the lists.
        told: What they hold.
        armed: The faults that may still happen.
        notice: What was just done here.
    """

    url: str
    merchant_id: str
    profile: str
    now: datetime
    clock: str
    lists: Lists
    told: Overview
    armed: Sequence[str]
    notice: Entry | None


def dashboard(view: View) -> Page:
    """Return the page."""
    body = f"""{_BAND}
<a class="skip" href="#orders">To the orders</a>
{_header(view)}
<main>
{_notice(view.notice)}{_LOST}
<noscript><p class="dim">Without script this page stays as it is: <a href="/">show what is new</a>.</p></noscript>
<div class="controls">
{_clock()}
{_faults(view.armed)}
{_search()}
</div>
{view.lists.html(view.told, start_hint(view.url, view.merchant_id))}
</main>"""
    return page(_LIVE, "Dashboard", body, form_action="'self'", referrer="same-origin")


def _header(view: View) -> str:
    links = "".join(f'<a href="#{name}">{name.capitalize()}</a>' for name in _SECTIONS)
    return f"""<header>
<div><h1>payasync sandbox</h1><p><code>{escape(view.url)}</code></p></div>
<dl id="facts" data-live>
<div><dt>Profile</dt><dd>{escape(view.profile or "unnamed")}</dd></div>
<div><dt>Merchant</dt><dd>{escape(view.merchant_id)}</dd></div>
<div><dt>Sandbox time, {escape(view.clock)}</dt><dd>{moment(view.now)} UTC</dd></div>
</dl>
<nav aria-label="Lists">{links}</nav>
</header>"""


def _notice(entry: Entry | None) -> str:
    if entry is None:
        return ""
    mood = " bad" if entry.failed else ""
    return f'<p class="notice{mood}" role="status">{escape(entry.reason or entry.outcome)}</p>\n'


def _clock() -> str:
    presets = "".join(
        press("clock/advance", label, "ahead", {"amount": str(count), "unit": unit}) for unit, count, label in _PRESETS
    )
    return f"""<section id="clock" aria-labelledby="clock-title"><h2 id="clock-title">Advance the clock</h2>
<div class="presets">{presets}</div>
<form method="post" action="/admin/clock/advance" class="fields">
<label>By <input name="amount" type="number" min="1" max="{10**MOST_DIGITS - 1}" step="1" value="1" required></label>
<label>Unit <select name="unit">{options(UNITS)}</select></label>
<button class="main wide">Advance</button>
</form></section>"""


def _faults(armed: Sequence[str]) -> str:
    calls = options(kind for kind in KINDS if not kind.startswith("notification."))
    notifications = options(kind for kind in KINDS if kind.startswith("notification."))
    on_calls = options(("*", *(name for name in CALLS if name != "*")))
    return f"""<section id="faults" aria-labelledby="faults-title"><h2 id="faults-title">Arm a fault</h2>
<form method="post" action="/admin/faults/arm" class="fields">
<label>What goes wrong <select name="kind">
<optgroup label="With a call">{calls}</optgroup><optgroup label="With a notification">{notifications}</optgroup>
</select></label>
<label>On which <select name="on">{on_calls}{options(name for name in EVENTS if name != "*")}</select></label>
<label>Only this number <input name="order" placeholder="any" autocomplete="off" spellcheck="false"></label>
<label>From the nth one <input name="nth" type="number" min="1" step="1" placeholder="1"></label>
<details class="wide" id="more-fault"><summary>More</summary><div class="fields">{_more()}</div></details>
<button class="main wide">Arm</button>
</form>
{_armed(armed)}</section>"""


def _more() -> str:
    return """<label>How often <input name="times" placeholder="1, or always"></label>
<label>When <select name="phase"><option value="">as usual</option>
<option value="before">before the commit</option><option value="after">after the commit</option></select></label>
<label>Probability <input name="probability" inputmode="decimal" placeholder="0 to 1"></label>
<label>Seed <input name="seed" inputmode="numeric"></label>
<label>Seconds <input name="seconds" inputmode="decimal"></label>
<label>HTTP status <input name="status" inputmode="numeric"></label>
<label>Retry-After <input name="retry_after"></label>
<label>Bytes <input name="size" inputmode="numeric"></label>
<label class="wide">Location <input name="location"></label>"""


def _armed(armed: Sequence[str]) -> str:
    lines = "".join(
        f"<li><span>{escape(fault)}</span> {press('faults/disarm', 'Disarm', fault, {'fault': fault})}</li>"
        for fault in armed
    )
    return f'<ul id="armed" class="armed" data-live aria-label="Armed faults">{lines}</ul>'


def _search() -> str:
    return f"""<section id="search" aria-labelledby="search-title"><h2 id="search-title">Find a number</h2>
<form method="get" action="{TIMELINE}" class="search">
<label>Order, payment, refund or subscription
<input name="about" required autocomplete="off" spellcheck="false"></label>
<button>Show</button>
</form></section>"""


def history(about: str, entries: Sequence[Entry]) -> Page:
    """Return the page of all that happened to one order, refund or subscription, oldest first."""
    lines = "".join(_line(entry, about) for entry in entries)
    content = (
        f'<ol class="lines">{lines}</ol>' if entries else '<div class="nothing"><p>Nothing is known of it.</p></div>'
    )
    body = f"""{_BAND}
<header><div><h1><code>{escape(about)}</code></h1><p>All that happened, oldest first</p></div>
<nav aria-label="Dashboard"><a href="/">Back to the dashboard</a></nav></header>
<main><section aria-label="Timeline">{content}</section></main>"""
    return page(_STILL, about, body, form_action="'self'", referrer="same-origin")


def _line(entry: Entry, about: str) -> str:
    other = number(entry.reference) if entry.reference != about else ""
    what = f"<code>{escape(entry.name)}</code> {other} <strong>{escape(ended(entry))}</strong>"
    return f"<li>{instant(entry.at)} <span class='dim'>{entry.kind}</span> <div>{what} {remarks(entry)}</div></li>"


def refused_page(status: int, words: str) -> Page:
    """Return the page for who may not look: nothing of the sandbox stands in it."""
    body = f"""<p class="sandbox"><strong>Sandbox.</strong> No money moves here.</p>
<main><section class="closed" aria-label="Not opened"><h1>Not opened</h1><p>{escape(words)}.</p>
<p>Open the dashboard by the link that the sandbox printed as it started: it holds a token.
If you just did, <a href="/">go on to the dashboard</a>.</p></section></main>"""
    return page(_STILL, "Not opened", body, status=status)
