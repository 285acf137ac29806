"""The parts that pages are made of: plain HTML that works without script, every text escaped."""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from html import escape
from importlib import resources
from typing import Final
from urllib.parse import urlencode, urlsplit

from attrs import frozen

from payasync.sandbox.model import Order, format_instant, format_order_amount
from payasync.sandbox.rules import MOST_DECLINES

TIMELINE: Final = "/timeline"

_MOODS: Final = {
    **dict.fromkeys(("paid", "succeeded", "active", "delivered"), "good"),
    **dict.fromkeys(("failed", "past_due", "dead"), "bad"),
    **dict.fromkeys(("pending", "processing", "scheduled", "waiting"), "wait"),
}
_ACTIONS: Final = '<span class="hidden">Actions</span>'


def table(caption: str, columns: Iterable[str], rows: Iterable[str]) -> str:
    """Return a table; on a phone its rows become cards, and stay rows for who does not see them.

    Args:
        caption: What it lists, for who does not see it.
        columns: Their headings; an empty one is that of the actions.
        rows: As `row` makes them.
    """
    heads = "".join(f'<th scope="col" role="columnheader">{escape(name) or _ACTIONS}</th>' for name in columns)
    return f"""<div class="scroll"><table role="table"><caption class="hidden">{escape(caption)}</caption>
<thead role="rowgroup"><tr role="row">{heads}</tr></thead>
<tbody role="rowgroup">
{"".join(rows)}</tbody></table></div>"""


def row(key: str, cells: Mapping[str, str]) -> str:
    """Return a row of a table.

    Args:
        key: The HTML of the cell that names the row.
        cells: The HTML of the others, by the heading of their column.
    """
    inner = "".join(_cell(label, html) for label, html in cells.items())
    return f'<tr role="row"><th scope="row" role="rowheader">{key}</th>{inner}</tr>\n'


def _cell(label: str, html: str) -> str:
    empty = "" if html else ' class="empty"'
    return f'<td role="cell" data-label="{escape(label)}"{empty}><div>{html}</div></td>'


def badge(state: str, wire: str | int = "") -> str:
    """Return a state by our name, and by the profile's value where it has one."""
    value = f' <code class="wire">{escape(str(wire))}</code>' if wire != "" else ""
    return f'<span class="badge {_MOODS.get(state, "still")}">{escape(state.replace("_", " "))}</span>{value}'


def press(action: str, label: str, about: str, fields: Mapping[str, str]) -> str:
    """Return a form that is one button.

    Args:
        action: Where it goes, below `/admin`.
        label: What the button says.
        about: What it is done to, for who does not see the row around it.
        fields: What it sends.
    """
    hidden = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in fields.items()
    )
    about = f'<span class="hidden"> {escape(about)}</span>' if about else ""
    return f'<form method="post" action="/admin/{action}">{hidden}<button>{escape(label)}{about}</button></form>'


def buttons(*forms: str) -> str:
    """Return the buttons of a row side by side."""
    return f'<div class="actions">{"".join(forms)}</div>' if any(forms) else ""


def number(text: str) -> str:
    """Return the number of something, with a link to all that happened to it."""
    address = f"{TIMELINE}?{urlencode({'about': text})}"
    if not text:
        return ""
    return f'<a class="number" href="{escape(address)}" title="{escape(text)}"><code>{escape(text)}</code></a>'


def moment(at: datetime) -> str:
    """Return a moment, to the second."""
    return instant(format_instant(at))


def instant(iso: str) -> str:
    """Return a moment in ISO 8601 to the second, and the whole of it where it is pointed at."""
    day, _, time = iso.partition("T")
    return f'<time datetime="{escape(iso)}" title="{escape(iso)}">{escape(day)} {escape(time[:8])}</time>'


def options(values: Iterable[str], chosen: str = "") -> str:
    """Return the options of a choice."""
    return "".join(
        f'<option value="{escape(value)}"{" selected" if value == chosen else ""}>{escape(_said(value))}</option>'
        for value in values
    )


def _said(value: str) -> str:
    return "any" if value == "*" else value.removeprefix("notification.").replace("_", " ")


_HERE: Final = resources.files("payasync.sandbox.web")
_ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect width='16' height='16' rx='4' fill='%231f4fd8'/%3E"
    "%3Cpath d='M5 12V4h4a2.5 2.5 0 0 1 0 5H5' fill='none' stroke='%23fff' stroke-width='2'/%3E%3C/svg%3E"
)


@frozen(kw_only=True)
class Page:
    """A page, with the headers that belong to it."""

    status: int
    html: str
    headers: Mapping[str, str]


@frozen(kw_only=True)
class Look:
    """Styles and script that stand in a page, and may run there because its policy names their hashes.

    Attributes:
        style: CSS.
        script: JavaScript; empty: the page has none.
    """

    style: str
    script: str = ""

    def sources(self) -> str:
        """Return what a policy says of them."""
        script = f"script-src {_hash(self.script)}; connect-src 'self'; " if self.script else ""
        return f"style-src {_hash(self.style)}; {script}"


def look(style: str, script: str = "") -> Look:
    """Return the look that files of this package describe, in the colours that all pages share.

    Args:
        style: The name of a CSS file.
        script: The name of a script; empty: none.
    """
    return Look(style=_text("palette.css") + _text(style), script=_text(script) if script else "")


def _text(name: str) -> str:
    return _HERE.joinpath(name).read_text(encoding="utf-8")


def page(
    look: Look,
    title: str,
    body: str,
    *,
    status: int = 200,
    head: str = "",
    form_action: str = "'none'",
    referrer: str = "no-referrer",
) -> Page:
    """Return a page.

    Args:
        look: How it looks.
        title: Its title, as text.
        body: What stands in it, as HTML.
        status: The HTTP status.
        head: What else stands in its head, as HTML.
        form_action: Where its forms may lead, as a policy has it.
        referrer: The policy for `Referer`; with `no-referrer` browsers send forms with `Origin: null`.
    """
    script = f"<script>{look.script}</script>\n" if look.script else ""
    html = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>{escape(title)} - payasync sandbox</title>
<link rel="icon" href="{_ICON}">
<style>{look.style}</style>
{head}</head>
<body>
{body}
{script}</body>
</html>
"""
    return Page(status=status, html=html, headers=_headers(look, form_action, referrer))


def _headers(look: Look, form_action: str, referrer: str) -> dict[str, str]:
    policy = (
        f"default-src 'none'; {look.sources()}img-src data:; form-action {form_action}; "
        "base-uri 'none'; frame-ancestors 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": referrer,
        "Cache-Control": "no-store",
    }


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


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


def page_path(order: Order) -> str:
    """Return the path of an order's page."""
    return f"{PATH}/{order.token}"


def decision_page(order: Order, merchant: str, unit: str) -> Page:
    """Return the page where a customer authorises, declines or cancels."""
    declined = ""
    if order.declines:
        left = MOST_DECLINES - order.declines
        times = "One more time" if left == 1 else f"{left} more times"
        declined = f'<p class="note bad" role="status"><strong>Declined.</strong> {times}, and the order fails.</p>'
    content = f"""{_summary(order, merchant, unit)}{declined}
<form method="post" action="{page_path(order)}">
<button class="main" name="decision" value="authorize">Authorise {format_order_amount(order, unit)}</button>
<button name="decision" value="decline">Decline</button>
<button class="quiet" name="decision" value="cancel">Cancel and go back</button>
</form>"""
    return _page(200, f"Pay {merchant}", content, form_action=_form_action(order.return_url))


def outcome_page(order: Order, merchant: str, unit: str, *, status: int = 200) -> Page:
    """Return the page that shows what became of an order; a pending one was cancelled at the gateway."""
    title, words, mood = _OUTCOMES[order.state]
    back = ""
    if order.return_url:
        back = f'<a class="button" href="{escape(order.return_url)}" rel="noreferrer">Back to {escape(merchant)}</a>'
    content = f"""{_summary(order, merchant, unit)}
<p class="note {mood}" role="status"><strong>{title}.</strong> {words}</p>{back}"""
    return _page(status, title, content)


def refusal_page(status: int, title: str, words: str) -> Page:
    """Return the page for what the gateway does not take."""
    return _page(status, title, f"<h1>{escape(title)}</h1><p>{escape(words)}</p>")


def _summary(order: Order, merchant: str, unit: str) -> str:
    subject = f"<h1>{escape(order.subject)}</h1>" if order.subject else "<h1>Payment</h1>"
    body = f'<p class="body">{escape(order.body)}</p>' if order.body else ""
    amount, _, currency = format_order_amount(order, unit).rpartition(" ")
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
