"""The dashboard: what the sandbox did, and the controls for what it should do."""

from collections import ChainMap
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from aiohttp import web
from attrs import frozen

from payasync.sandbox.clock import Pace
from payasync.sandbox.dialect import Vocabulary
from payasync.sandbox.faults.armed_faults import CALLS, EVENTS
from payasync.sandbox.faults.arming import Faults
from payasync.sandbox.faults.catalogue import KINDS, TRIGGER_OPTIONS
from payasync.sandbox.model import Attempt, Entry, Notification, Order, Refund, Subscription
from payasync.sandbox.store import Store
from payasync.sandbox.timeline import describe_outcome
from payasync.sandbox.web.pages import render_page

T = TypeVar("T")
MAX_LISTED: Final = 50
"""How many orders, refunds and so on are listed."""
UNITS: Final = ("days", "hours", "minutes", "seconds")
MAX_ADVANCE: Final = 9_999_999
"""By how many units the clock is advanced at most."""


@frozen
class Newest(Generic[T]):
    """The newest of something, newest first.

    Attributes:
        shown: At most `MAX_LISTED` of them.
        more: There are older ones.
    """

    shown: list[T]
    more: bool


def render_dashboard(
    *,
    url: str,
    merchant_id: str,
    words: Vocabulary,
    store: Store,
    faults: Faults,
    now: datetime,
    pace: Pace,
    notice: Entry | None,
) -> web.Response:
    """Return the dashboard.

    Args:
        url: Where the sandbox listens.
        merchant_id: The merchant's number.
        words: The profile's.
        store: Holds what is shown.
        faults: Those that are armed.
        now: The sandbox's time.
        pace: How its time goes.
        notice: What was just done here.
    """

    def newest(kind: type[T]) -> Newest[T]:
        return _cut(store.newest(kind, MAX_LISTED + 1))

    def currency_of(refund: Refund) -> str:
        order = store.find(Order, out_trade_no=refund.out_trade_no)
        return order.currency if order else ""

    def attempts_of(notification: Notification) -> list[Attempt]:
        return store.find_all(Attempt, notification_id=notification.notification_id)

    return render_page(
        "dashboard.html",
        style="dashboard.css",
        script="dashboard.js",
        form_action="'self'",
        referrer="same-origin",
        url=url,
        merchant_id=merchant_id,
        profile=words.title or "unnamed",
        now=now,
        pace=_describe_pace(pace),
        unit=words.profile.amount_unit,
        wire_state=words.state,
        orders=newest(Order),
        refunds=newest(Refund),
        subscriptions=newest(Subscription),
        notifications=newest(Notification),
        requests=_cut(store.newest(Entry, MAX_LISTED + 1, kind="request")),
        currency_of=currency_of,
        attempts_of=attempts_of,
        armed=[str(fault) for fault in faults.armed()],
        notice=notice,
        units=UNITS,
        max_advance=MAX_ADVANCE,
        max_listed=MAX_LISTED,
        **_FAULT_FORM,
    )


def render_timeline(about: str, entries: list[Entry]) -> web.Response:
    """Return the page of everything that happened to one order, refund or subscription, oldest first."""
    return render_page(
        "timeline.html",
        style="dashboard.css",
        form_action="'self'",
        referrer="same-origin",
        about=about,
        entries=entries,
        result_of=describe_outcome,
    )


def _cut(found: list[T]) -> Newest[T]:
    return Newest(found[:MAX_LISTED], len(found) > MAX_LISTED)


def _describe_pace(pace: Pace) -> str:
    if not pace.rate:
        return "standing still"
    return "real" if pace.rate == 1 else f"{pace.rate:g} times as fast"


_FAULT_FORM: Final[Mapping[str, Any]] = {
    "kinds": list(KINDS.values()),
    "calls": [name for name in CALLS if name != "*"],
    "events": [name for name in EVENTS if name != "*"],
    "trigger_options": list(TRIGGER_OPTIONS.items()),
    # If several faults take an option, the first one says how to enter it.
    "own_options": list(ChainMap(*(dict(kind.options) for kind in KINDS.values())).items()),
}
