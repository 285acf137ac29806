"""The dashboard's lists: one table for each thing that the sandbox keeps."""

from collections.abc import Callable, Sequence
from html import escape
from typing import TypeVar

from attrs import frozen

from payasync.sandbox import hints, money, pages
from payasync.sandbox.markup import badge, buttons, instant, moment, number, press, row, table
from payasync.sandbox.overview import MOST, Newest, Overview, Refunded, Told
from payasync.sandbox.timeline import Entry
from payasync.sandbox.values import Order, Subscription
from payasync.shapes import Code

T = TypeVar("T")


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
                _section("refunds", "Refunds", told.refunds, self._refunds, hints.REFUNDS),
                _section(
                    "subscriptions", "Subscriptions", told.subscriptions, self._subscriptions, hints.SUBSCRIPTIONS
                ),
                _section("notifications", "Notifications", told.notifications, _notifications, hints.NOTIFICATIONS),
                _section("requests", "Requests", told.requests, _requests, hints.REQUESTS),
            )
        )

    def _orders(self, orders: Sequence[Order]) -> str:
        columns = ("Number", "What for", "Amount", "State", "Made", "")
        return table("Orders, newest first", columns, [self._order(order) for order in orders])

    def _order(self, order: Order) -> str:
        thing = "payment" if order.origin == "payment" else "order"
        cells = {
            "What for": escape(_short(order.subject)),
            "Amount": escape(money.shown(order, self.unit)),
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
            "Amount": escape(money.amount(refund.refund_amt, refunded.currency, self.unit)),
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
        f'<a class="button" href="{escape(pages.address(order))}" target="_blank" rel="noopener">Open'
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
