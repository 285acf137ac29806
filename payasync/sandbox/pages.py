"""The gateway's pages: plain HTML that works without script, and its own policy against any."""

import base64
import hashlib
from collections.abc import Mapping
from html import escape
from importlib import resources
from typing import Final
from urllib.parse import urlsplit

from attrs import frozen

from payasync.sandbox.money import shown
from payasync.sandbox.rules import MOST_DECLINES
from payasync.sandbox.values import Order

STYLE: Final = resources.files("payasync.sandbox").joinpath("gateway.css").read_text(encoding="utf-8")
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

_OUTCOMES: Final = {
    "pending": ("Cancelled", "Nothing was paid. The merchant may close the order now.", "still"),
    "paid": ("Paid", "The payment is authorised.", "good"),
    "failed": ("Failed", "The payment was declined too often.", "bad"),
    "expired": ("Expired", "The time to pay is over.", "bad"),
    "closed": ("Closed", "The merchant has closed this order.", "still"),
}


PATH: Final = "/gateway"


@frozen(kw_only=True)
class Page:
    """A page, with the headers that belong to it."""

    status: int
    html: str
    headers: Mapping[str, str]


def address(order: Order) -> str:
    """Return the path of an order's page."""
    return f"{PATH}/{order.token}"


def decision(order: Order, merchant: str, unit: str) -> Page:
    """Return the page where a customer authorises, declines or cancels."""
    declined = ""
    if order.declines:
        left = MOST_DECLINES - order.declines
        declined = f'<p class="note bad" role="status">The payment was declined. {left} more, and it fails.</p>'
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
    return f"""<p class="merchant">{escape(merchant)}</p>{subject}{body}
<p class="amount">{shown(order, unit)}</p>
<p class="number">Order <code>{escape(order.out_trade_no)}</code></p>"""


def _page(status: int, title: str, content: str, *, form_action: str = "'none'") -> Page:
    html = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>{escape(title)} - payasync sandbox</title>
<style>{STYLE}</style>
</head>
<body>
<p class="sandbox"><strong>Sandbox.</strong> No money moves here.</p>
<main>
{content}
</main>
<footer>This page is the payasync sandbox's own, and not that of any payment service.</footer>
</body>
</html>
"""
    return Page(status=status, html=html, headers=_headers(form_action))


def _headers(form_action: str) -> dict[str, str]:
    policy = (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action {form_action}; "
        "base-uri 'none'; frame-ancestors 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }


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
