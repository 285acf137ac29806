"""The dashboard: what the sandbox did, and what it can be made to do; one page that needs no script."""

from collections.abc import Sequence
from datetime import datetime
from html import escape
from typing import Final

from attrs import frozen

from payasync.sandbox import hints
from payasync.sandbox.admin_actions import MOST_DIGITS, UNITS
from payasync.sandbox.dashboard_tables import Lists, remarks
from payasync.sandbox.faults.aim import CALLS, EVENTS
from payasync.sandbox.faults.effects import KINDS
from payasync.sandbox.markup import TIMELINE, instant, moment, number, options, press
from payasync.sandbox.overview import Overview
from payasync.sandbox.page import Page, look, page
from payasync.sandbox.timeline import Entry, ended

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
{view.lists.html(view.told, hints.start(view.url, view.merchant_id))}
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


def refusal(status: int, words: str) -> Page:
    """Return the page for who may not look: nothing of the sandbox stands in it."""
    body = f"""<p class="sandbox"><strong>Sandbox.</strong> No money moves here.</p>
<main><section class="closed" aria-label="Not opened"><h1>Not opened</h1><p>{escape(words)}.</p>
<p>Open the dashboard by the link that the sandbox printed as it started: it holds a token.
If you just did, <a href="/">go on to the dashboard</a>.</p></section></main>"""
    return page(_STILL, "Not opened", body, status=status)
