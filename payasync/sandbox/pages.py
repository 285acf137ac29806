"""The gateway's pages: plain HTML that works without script, and its own policy against any."""

from html import escape
from typing import Final
from urllib.parse import urlsplit

from payasync.sandbox.money import shown
from payasync.sandbox.page import Page, look, page
from payasync.sandbox.rules import MOST_DECLINES
from payasync.sandbox.values import Order

LOOK: Final = look("gateway.css")

_OUTCOMES: Final = {
    "pending": ("Cancelled", "Nothing was paid. The merchant may close the order now.", "still"),
    "paid": ("Paid", "The payment is authorised.", "good"),
    "failed": ("Failed", "The payment was declined too often.", "bad"),
    "expired": ("Expired", "The time to pay is over.", "bad"),
    "closed": ("Closed", "The merchant has closed this order.", "still"),
}

PATH: Final = "/gateway"
_LONG_AMOUNT: Final = 12
"""Characters that stand in one line of a phone at full size."""


def address(order: Order) -> str:
    """Return the path of an order's page."""
    return f"{PATH}/{order.token}"


def decision(order: Order, merchant: str, unit: str) -> Page:
    """Return the page where a customer authorises, declines or cancels."""
    declined = ""
    if order.declines:
        left = MOST_DECLINES - order.declines
        times = "One more time" if left == 1 else f"{left} more times"
        declined = f'<p class="note bad" role="status"><strong>Declined.</strong> {times}, and the order fails.</p>'
    content = f"""{_summary(order, merchant, unit)}{declined}
<form method="post" action="{address(order)}">
<button class="main" name="decision" value="authorize">Authorise {shown(order, unit)}</button>
<button name="decision" value="decline">Decline</button>
<button class="quiet" name="decision" value="cancel">Cancel and go back</button>
</form>"""
    return _page(200, f"Pay {merchant}", content, form_action=_form_action(order.return_url))


def outcome(order: Order, merchant: str, unit: str, *, status: int = 200) -> Page:
    """Return the page that shows what became of an order; a pending one was cancelled at the gateway."""
    title, words, mood = _OUTCOMES[order.state]
    back = ""
    if order.return_url:
        back = f'<a class="button" href="{escape(order.return_url)}" rel="noreferrer">Back to {escape(merchant)}</a>'
    content = f"""{_summary(order, merchant, unit)}
<p class="note {mood}" role="status"><strong>{title}.</strong> {words}</p>{back}"""
    return _page(status, title, content)


def refusal(status: int, title: str, words: str) -> Page:
    """Return the page for what the gateway does not take."""
    return _page(status, title, f"<h1>{escape(title)}</h1><p>{escape(words)}</p>")


def _summary(order: Order, merchant: str, unit: str) -> str:
    subject = f"<h1>{escape(order.subject)}</h1>" if order.subject else "<h1>Payment</h1>"
    body = f'<p class="body">{escape(order.body)}</p>' if order.body else ""
    amount, _, currency = shown(order, unit).rpartition(" ")
    size = "amount long" if len(amount) > _LONG_AMOUNT else "amount"
    return f"""<p class="merchant">{escape(merchant)}</p>{subject}{body}
<p class="{size}">{amount} <small>{currency}</small></p>
<dl><dt>Order</dt><dd><code>{escape(order.out_trade_no)}</code></dd></dl>"""


def _page(status: int, title: str, content: str, *, form_action: str = "'none'") -> Page:
    body = f"""<p class="sandbox"><strong>Sandbox.</strong> No money moves here.</p>
<main>
{content}
</main>
<footer>This page is the payasync sandbox's own, and not that of any payment service.</footer>"""
    return page(LOOK, title, body, status=status, form_action=form_action)


def _form_action(return_url: str | None) -> str:
    """Return where the form may lead: browsers hold the redirect after it to the same policy."""
    if return_url is None:
        return "'self'"
    parts = urlsplit(return_url)
    host = parts.hostname or ""
    if not host.isascii() or not host.replace("-", "").replace(".", "").isalnum():
        return f"'self' {parts.scheme}:"
    port = f":{parts.port}" if parts.port else ""
    return f"'self' {parts.scheme}://{host}{port}"
