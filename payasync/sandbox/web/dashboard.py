"""The dashboard: it shows what happened in the sandbox, and its forms control the sandbox. It needs the admin token."""

import hmac
import re
from collections import ChainMap, Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import web
from attrs import frozen

from payasync.credentials import Secret
from payasync.errors import PayasyncError
from payasync.sandbox.clock import Clock, ClockRate
from payasync.sandbox.dialect import STATUSES
from payasync.sandbox.exchanges import CUSTOMER, format_curl, format_request, format_response
from payasync.sandbox.faults.armed_faults import CALLS, EVENTS
from payasync.sandbox.faults.arming import Faults
from payasync.sandbox.faults.catalogue import KINDS, TRIGGER_OPTIONS, find_kind
from payasync.sandbox.model import (
    DECISIONS,
    MERCHANT_ID,
    Attempt,
    Entry,
    Notification,
    Order,
    Refund,
    RefusedError,
    Subscription,
)
from payasync.sandbox.rules import SETTLED
from payasync.sandbox.server import Handler, read_body, read_choice, read_form, read_object, require_text
from payasync.sandbox.service import Service
from payasync.sandbox.timeline import RequestRecorder, describe_outcome
from payasync.sandbox.web.pages import TIMELINE, redirect_to, render_page

_COOKIE_TEXT: Final = b"payasync sandbox: the dashboard's cookie"
_HTTP_PORT: Final = 80


class AdminAccess:
    """Decides who may use the dashboard and its controls.

    Args:
        url: Where the sandbox listens.
        token: The admin token.

    Attributes:
        url: As given.
        hosts: What a Host header may say. Port 80 may be left out.
        cookie: The cookie's name. It has the port, because browsers send a host's cookies to all of its ports.
        key: The cookie's value, which gives access to pages of this sandbox and does not reveal the token.
    """

    def __init__(self, url: str, token: Secret) -> None:
        address = urlsplit(url)
        host, port = address.hostname or "", address.port
        names = {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host}
        self._token = token
        self.url: Final = url
        self.hosts: Final = {f"{name}:{port}" for name in names} | (names if port == _HTTP_PORT else set[str]())
        self.cookie: Final = f"payasync_sandbox_{port}"
        self.key: Final = Secret(hmac.new(token.reveal().encode(), _COOKIE_TEXT, "sha256").hexdigest())

    def accepts(self, token: str) -> bool:
        """Return whether a text is the token, in constant time."""
        return _matches_secret(token, self._token)

    def allows_hosts(self, names: list[str]) -> bool:
        """Return whether the Host headers of a request name this sandbox, and no other host."""
        return len(names) == 1 and names[0].lower() in self.hosts

    def check(self, headers: Mapping[str, str], cookies: Mapping[str, str], *, changes: bool) -> None:
        """Check that a request may read, or change something.

        Args:
            headers: The request's.
            cookies: The request's.
            changes: It changes something.

        Raises:
            RefusedError: The token is missing, or the request comes from another page.
        """
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.accepts(token.strip()):
            return
        if not _matches_secret(cookies.get(self.cookie, ""), self.key):
            raise RefusedError("unauthenticated", "The sandbox's admin token is missing or wrong", status=401)
        own, site = f"http://{headers.get('Host', '')}", headers.get("Sec-Fetch-Site", "same-origin")
        if changes and not (site == "same-origin" and headers.get("Origin", "").lower() == own.lower()):
            raise RefusedError("unauthenticated", "The form must be sent from this sandbox's own page", status=403)


def _matches_secret(given: str, expected: Secret) -> bool:
    return hmac.compare_digest(given.encode(errors="surrogateescape"), expected.reveal().encode())


MAX_LISTED: Final = 50
"""How many orders, refunds and so on are listed."""
UNITS: Final = ("days", "hours", "minutes", "seconds")
MAX_ADVANCE: Final = 9_999_999
"""By how many units the clock is advanced at most."""
Fields = Mapping[str, str]
Action = Callable[[Fields], Awaitable[str | Fields]]
"""What a form does: it returns what was done, in a sentence or with further facts."""

_PREFIX: Final = "/admin/"
_JSON: Final = "application/json"
_NOTICE: Final = re.compile(r"[0-9]{1,15}")
_NUMBER: Final = re.compile(r"[0-9]{1,7}")
_LISTED: Final[Mapping[type[Any], tuple[str, tuple[str, ...]]]] = {
    Order: ("orders", ("out_trade_no", "payment_id", "origin", "total_amt", "currency", "state")),
    Refund: ("refunds", ("out_refund_no", "out_trade_no", "refund_amt", "state")),
    Subscription: ("subscriptions", ("subscription_id", "frequency", "amount", "state")),
    Notification: ("notifications", ("notification_id", "event", "reference", "state", "tries")),
}
"""What is listed, by what name, and what `/admin/ledger` shows: numbers, amounts and states, and no customer."""


@frozen
class Dashboard:
    """Shows the dashboard, and does what its forms ask for.

    Attributes:
        access: Decides who may use it.
        service: Holds orders, refunds and notifications.
        recorder: Knows what happened.
        faults: Those that are armed.
        clock: The sandbox's time.
        rate: How the time goes.
    """

    access: AdminAccess
    service: Service
    recorder: RequestRecorder
    faults: Faults
    clock: Clock
    rate: ClockRate

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the dashboard and of its controls."""
        actions: dict[str, Action] = {
            "orders/decide": self._decide_order,
            "refunds/settle": self._settle_refund,
            "notifications/resend": self._resend,
            "clock/advance": self._advance_clock,
            "faults/arm": self._arm_fault,
            "faults/disarm": self._disarm_fault,
        }
        return [
            web.get("/", self._enter, allow_head=False),
            web.get(TIMELINE, self._guard(self._show_timeline), allow_head=False),
            web.get(TIMELINE + "/{seq:[0-9]{1,15}}", self._guard(self._show_request), allow_head=False),
            web.get("/admin/timeline", self._guard(self._list_timeline), allow_head=False),
            web.get("/admin/ledger", self._guard(self._list_ledger), allow_head=False),
            *(web.post(f"{_PREFIX}{name}", self._guard(self._run(name, do))) for name, do in actions.items()),
        ]

    @web.middleware
    async def check_host(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse a request for another host, because any host name can point to this machine."""
        if self.access.allows_hosts(request.headers.getall("Host", [])):
            return await handler(request)
        expected = ", ".join(sorted(self.access.hosts))
        return web.Response(status=421, text=f"this sandbox responds only to requests for these hosts: {expected}\n")

    def _guard(self, handler: Handler) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            try:
                self.access.check(request.headers, request.cookies, changes=request.method == "POST")
            except RefusedError as refused:
                return _refuse_access(request, refused)
            return await handler(request)

        return guarded

    async def _enter(self, request: web.Request) -> web.StreamResponse:
        token, access = request.query.get("token"), self.access
        if token is None:
            return await self._guard(self._show_dashboard)(request)
        if not access.accepts(token):
            refused = RefusedError("unauthenticated", "The token is not this sandbox's", status=401)
            return _refuse_access(request, refused)
        response = redirect_to("/")
        response.set_cookie(access.cookie, access.key.reveal(), httponly=True, samesite="Strict", path="/")
        return response

    async def _show_dashboard(self, request: web.Request) -> web.Response:
        store, words = self.service.store, self.service.dialect.names
        notice = _NOTICE.fullmatch(request.query.get("notice", ""))
        listed: dict[str, Any] = {name: store.newest(kind, MAX_LISTED + 1) for kind, (name, _) in _LISTED.items()}

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
            url=self.access.url,
            merchant_id=MERCHANT_ID,
            profile=words.title,
            now=self.clock.now(),
            rate=_describe_rate(self.rate),
            unit=words.profile.amount_unit,
            wire_state=words.state,
            **listed,
            requests=store.newest(Entry, MAX_LISTED + 1, kind="request"),
            currency_of=currency_of,
            attempts_of=attempts_of,
            armed=[str(fault) for fault in self.faults.armed()],
            notice=notice and store.find(Entry, seq=int(notice[0]), kind="admin"),
            units=UNITS,
            max_advance=MAX_ADVANCE,
            max_listed=MAX_LISTED,
            kinds=KINDS.values(),
            calls=CALLS,
            events=EVENTS,
            trigger_options=list(TRIGGER_OPTIONS.items()),
            # If several faults take an option, the first one says how to enter it.
            own_options=list(ChainMap(*(dict(kind.options) for kind in KINDS.values())).items()),
        )

    async def _show_timeline(self, request: web.Request) -> web.Response:
        about = request.query.get("about", "").strip()
        return render_page(
            "timeline.html",
            style="dashboard.css",
            form_action="'self'",
            referrer="same-origin",
            about=about,
            entries=self.service.store.entries_about(about),
            result_of=describe_outcome,
        )

    async def _show_request(self, request: web.Request) -> web.Response:
        seq, names = int(request.match_info["seq"]), self.service.dialect.names
        entry = self.service.store.find(Entry, seq=seq, kind="request")
        exchange = self.recorder.exchange(seq)
        return render_page(
            "request.html",
            style="dashboard.css",
            script="request.js",
            referrer="same-origin",
            status=404 if entry is None else 200,
            entry=entry,
            result_of=describe_outcome,
            sent=exchange and format_request(exchange, names),
            curl=exchange and format_curl(exchange, names, self.access.url),
            customer=CUSTOMER,
            answered=exchange and format_response(exchange),
            signed=exchange.signed() if exchange and exchange.signed else "",
            response_signed=exchange.response_signed() if exchange else "",
        )

    async def _list_timeline(self, _request: web.Request) -> web.Response:
        return _json_response(200, {"timeline": self.recorder.format_timeline()})

    async def _list_ledger(self, _request: web.Request) -> web.Response:
        store = self.service.store
        listed = {
            things: [{name: getattr(each, name) for name in names} for each in store.find_all(kind, "rowid")]
            for kind, (things, names) in _LISTED.items()
        }
        return _json_response(200, {**listed, "faults": [str(fault) for fault in self.faults.armed()]})

    def _run(self, name: str, do: Action) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            facts: Fields = {"done": ""}
            refused = None
            try:
                said = await do(await _read_fields(request))
                facts = {"done": said} if isinstance(said, str) else said
            except RefusedError as error:
                refused = error
            except PayasyncError as error:
                refused = RefusedError("invalid", str(error), field=getattr(error, "field", None) or "")
            reason = refused.message if refused else ""
            with self.service.store.transaction():
                entry = Entry(kind="admin", name=name, outcome=facts["done"] or "not done", reason=reason)
                notice = self.service.store.add_entry(entry)
            if not _is_script(request):
                return redirect_to(f"/?notice={notice}")
            return _json_refusal(refused) if refused else _json_response(200, facts)

        return handle

    async def _decide_order(self, fields: Fields) -> str:
        number, decision = require_text(fields, "out_trade_no"), read_choice(fields, "decision", DECISIONS)
        with self.service.store.transaction():
            order = self.service.decide(self.service.order(number), decision)
        return f"Order {number} is {order.state}."

    async def _settle_refund(self, fields: Fields) -> str:
        number, state = require_text(fields, "out_refund_no"), read_choice(fields, "state", SETTLED)
        with self.service.store.transaction():
            refund = self.service.settle_refund(self.service.refund(number), state)
        return f"Refund {number} has {refund.state}."

    async def _resend(self, fields: Fields) -> str:
        number = require_text(fields, "notification_id")
        with self.service.store.transaction():
            self.service.resend(number)
        return f"Notification {number} is sent again."

    async def _advance_clock(self, fields: Fields) -> str:
        unit, text = read_choice(fields, "unit", UNITS), require_text(fields, "amount")
        if not (_NUMBER.fullmatch(text) and int(text)):
            raise RefusedError("invalid", f"amount must be a whole number from 1 to {MAX_ADVANCE}", field="amount")
        happened = Counter(each.what for each in await self.clock.advance(**{unit: int(text)}))
        listed = ", ".join(f"{what} ({count})" for what, count in happened.items())
        due = f"Fell due: {listed}." if listed else "Nothing fell due."
        return f"The clock was advanced by {int(text)} {unit}. {due}"

    async def _arm_fault(self, fields: Fields) -> Fields:
        kind, on = require_text(fields, "kind"), fields.get("on", "").strip() or None
        texts = {name: text for name, text in fields.items() if name not in {"kind", "on"}}
        options = find_kind(kind).read(texts)
        if kind == "refuse" and "seconds" not in options:
            rule = "given, such as 60: refuse also closes this dashboard, which then could not disarm it"
            raise RefusedError("invalid", f"seconds must be {rule}. The field is under More options", field="seconds")
        fault = str(self.faults.arm(kind, on, **options))
        return {"done": f"Armed: {fault}. {find_kind(kind).summary}", "fault": fault}

    async def _disarm_fault(self, fields: Fields) -> str:
        text = require_text(fields, "fault")
        fault = next((fault for fault in self.faults.armed() if str(fault) == text), None)
        if fault is None:
            raise RefusedError("absent", "this fault is not armed any more")
        fault.disarm()
        return f"Disarmed: {text}."


async def _read_fields(request: web.Request) -> Fields:
    if request.content_type == _JSON:
        document = read_object(await read_body(request, _JSON))
        for name, value in document.items():
            if not isinstance(value, str | int | float) or isinstance(value, bool):
                raise RefusedError("invalid", f"{name} must be a text or a number", field=name)
        return {name: str(value) for name, value in document.items()}
    return await read_form(request)


def _is_script(request: web.Request) -> bool:
    return request.content_type == _JSON or "Authorization" in request.headers


def _refuse_access(request: web.Request, refused: RefusedError) -> web.Response:
    if _is_script(request) or request.path.startswith(_PREFIX):
        return _json_refusal(refused)
    return render_page("closed.html", style="dashboard.css", status=refused.status or 401, message=refused.message)


def _json_refusal(refused: RefusedError) -> web.Response:
    field = {"field": refused.field} if refused.field else {}
    return _json_response(refused.status or STATUSES[refused.why], {"error": refused.message, **field})


def _json_response(status: int, document: Mapping[str, Any]) -> web.Response:
    return web.json_response(document, status=status, headers={"Cache-Control": "no-store"})


def _describe_rate(rate: ClockRate) -> str:
    if not rate.factor:
        return "standing still"
    return "real" if rate.factor == 1 else f"{rate.factor:g} times as fast"
