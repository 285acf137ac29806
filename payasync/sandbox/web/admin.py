"""The dashboard and its controls over HTTP: behind the admin token, and for pages of this sandbox only."""

import hmac
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from aiohttp import web
from attrs import frozen
from multidict import MultiMapping
from yarl import URL

from payasync.credentials import Secret
from payasync.errors import PayasyncError
from payasync.sandbox.clock import Clock, Pace
from payasync.sandbox.dialect import STATUSES, Vocabulary
from payasync.sandbox.faults.arming import Faults
from payasync.sandbox.model import Entry, RefusedError
from payasync.sandbox.server import read_body, read_object
from payasync.sandbox.service import Service
from payasync.sandbox.signatures import Keys
from payasync.sandbox.store import Store
from payasync.sandbox.timeline import Timeline, line
from payasync.sandbox.web.actions import Actions
from payasync.sandbox.web.dashboard import Lists, View, dashboard, history, overview, refused_page
from payasync.sandbox.web.pages import TIMELINE, Page

_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_COOKIE_TEXT: Final = b"payasync sandbox: the dashboard's cookie"


def hosts(bound: str, port: int) -> frozenset[str]:
    """Return what a Host header may say.

    Args:
        bound: The address that the sandbox listens on.
        port: Its port; 80 may be left out, as it is in `http` addresses.
    """
    names = {*_LOOPBACK, f"[{bound}]" if ":" in bound else bound.lower()}
    return frozenset(f"{name}:{port}" for name in names) | (frozenset(names) if port == 80 else frozenset())  # noqa: PLR2004


@frozen(kw_only=True)
class AdminDoor:
    """The way to the dashboard and its controls.

    Attributes:
        token: Opens it.
        hosts: What a Host header may say.
        port: Names the cookie: browsers give a host's cookies to all of its ports.
    """

    token: Secret
    hosts: Collection[str]
    port: int

    @property
    def cookie(self) -> str:
        """The cookie's name."""
        return f"payasync_sandbox_{self.port}"

    @property
    def key(self) -> Secret:
        """The cookie's value: it opens the door from a page of this sandbox, and tells nobody the token."""
        return Secret(hmac.new(self.token.reveal().encode(), _COOKIE_TEXT, "sha256").hexdigest())

    def opened_by(self, token: str) -> bool:
        """Return whether a text is the token; it takes as long wherever they differ."""
        return _equal(token, self.token)

    def check_host(self, headers: MultiMapping[str]) -> None:
        """Check that a request is for this sandbox.

        Raises:
            RefusedError: It names another host, several, or none.
        """
        given = headers.getall("Host", [])
        if len(given) != 1 or given[0].lower() not in self.hosts:
            expected = ", ".join(sorted(self.hosts))
            raise RefusedError("invalid", f"this sandbox answers to these hosts only: {expected}", status=421)

    def check(self, headers: Mapping[str, str], cookies: Mapping[str, str], *, changes: bool) -> None:
        """Check that a request may look, or change something.

        Args:
            headers: The request's.
            cookies: Its cookies.
            changes: It is not only to look.

        Raises:
            RefusedError: It knows no token, or it comes from a page of somebody else.
        """
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.opened_by(token.strip()):
            return
        if not _equal(cookies.get(self.cookie, ""), self.key):
            raise RefusedError("unauthenticated", "The sandbox's admin token is missing or wrong", status=401)
        if changes and not _from_here(headers):
            raise RefusedError("unauthenticated", "The form must be sent from this sandbox's own page", status=403)


def _from_here(headers: Mapping[str, str]) -> bool:
    origin, site = headers.get("Origin", ""), headers.get("Sec-Fetch-Site", "same-origin")
    return site == "same-origin" and origin.lower() == f"http://{headers.get('Host', '')}".lower()


def _equal(given: str, expected: Secret) -> bool:
    return hmac.compare_digest(given.encode(errors="surrogateescape"), expected.reveal().encode())


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_PREFIX: Final = "/admin/"
_FORM: Final = "application/x-www-form-urlencoded"
_JSON: Final = "application/json"
_MOST_FIELDS: Final = 32
_NOTICE: Final = re.compile(r"[0-9]{1,15}")


class Admin:
    """Shows the dashboard, and does what its forms ask for.

    Args:
        door: Says who may.
        actions: What can be done.
        timeline: Holds what was done.
        view: Returns what the dashboard shows now, with the notice of what was just done.
    """

    def __init__(
        self,
        door: AdminDoor,
        actions: Actions,
        timeline: Timeline,
        view: Callable[[Entry | None], View],
    ) -> None:
        self._door = door
        self._actions = actions.by_name()
        self._timeline = timeline
        self._view = view

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the dashboard and of what it can do."""
        return [
            web.get("/", self._enter, allow_head=False),
            web.get(TIMELINE, self._guarded(self._history), allow_head=False),
            web.get("/admin/timeline", self._guarded(self._lines), allow_head=False),
            *(web.post(f"{_PREFIX}{name}", self._guarded(self._do)) for name in self._actions),
        ]

    @web.middleware
    async def check_host(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse a request that is not for this sandbox: a name of somebody else may lead here."""
        try:
            self._door.check_host(request.headers)
        except RefusedError as refused:
            return web.Response(status=421, text=f"{refused.message}\n")
        return await handler(request)

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: web.Request) -> web.StreamResponse:
            try:
                self._door.check(request.headers, request.cookies, changes=request.method == "POST")
            except RefusedError as refused:
                return _closed(request, refused)
            return await handler(request)

        return guarded

    async def _enter(self, request: web.Request) -> web.StreamResponse:
        token = request.query.get("token")
        if token is None:
            return await self._guarded(self._dashboard)(request)
        if not self._door.opened_by(token):
            return _closed(request, RefusedError("unauthenticated", "The token is not this sandbox's", status=401))
        answer = _see("/")
        answer.set_cookie(self._door.cookie, self._door.key.reveal(), httponly=True, samesite="Strict", path="/")
        return answer

    async def _dashboard(self, request: web.Request) -> web.Response:
        notice = request.query.get("notice", "")
        known = self._timeline.done(int(notice)) if _NOTICE.fullmatch(notice) else None
        return _sent(dashboard(self._view(known)))

    async def _history(self, request: web.Request) -> web.Response:
        about = request.query.get("about", "").strip()
        return _sent(history(about, self._timeline.entries(about)))

    async def _lines(self, _request: web.Request) -> web.Response:
        return _told(200, {"timeline": [line(entry) for entry in self._timeline.entries()]})

    async def _do(self, request: web.Request) -> web.Response:
        name = request.path.removeprefix(_PREFIX)
        try:
            done, refused = await self._actions[name](await _fields(request)), None
        except (RefusedError, PayasyncError) as error:
            done, refused = "", _as_refusal(error)
        notice = self._timeline.add(
            Entry(kind="admin", name=name, outcome=done or "not done", reason=refused.message if refused else "")
        )
        if not _by_script(request):
            return _see(f"/?notice={notice}")
        return _not_done(refused) if refused else _told(200, {"done": done})


async def _fields(request: web.Request) -> dict[str, str]:
    if request.content_type == _JSON:
        document = read_object(await read_body(request, _JSON))
        return {name: _plain(name, value) for name, value in document.items()}
    body = await read_body(request, _FORM)
    try:
        return dict(parse_qsl(body.decode("ascii"), max_num_fields=_MOST_FIELDS, errors="strict"))
    except ValueError:
        pass
    raise RefusedError("invalid", "the form cannot be read", status=400)


def _plain(name: str, value: object) -> str:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)
    raise RefusedError("invalid", f"{name} must be a text or a number", field=name)


def _as_refusal(error: RefusedError | PayasyncError) -> RefusedError:
    if isinstance(error, RefusedError):
        return error
    return RefusedError("invalid", str(error), field=getattr(error, "field", None) or "")


def _by_script(request: web.Request) -> bool:
    return request.content_type == _JSON or "Authorization" in request.headers


def _closed(request: web.Request, refused: RefusedError) -> web.Response:
    if _by_script(request) or request.path.startswith(_PREFIX):
        return _not_done(refused)
    return _sent(refused_page(refused.status or 401, refused.message))


def _not_done(refused: RefusedError) -> web.Response:
    field = {"field": refused.field} if refused.field else {}
    return _told(refused.status or STATUSES[refused.why], {"error": refused.message, **field})


def _told(status: int, document: Mapping[str, Any]) -> web.Response:
    return web.json_response(document, status=status, headers={"Cache-Control": "no-store"})


def _sent(page: Page) -> web.Response:
    return web.Response(text=page.html, status=page.status, headers=page.headers, content_type="text/html")


def _see(location: str) -> web.Response:
    return web.Response(
        status=303, headers={"Location": location, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    )


@frozen(kw_only=True)
class Shown:
    """What the dashboard shows, and works.

    Attributes:
        url: Where the sandbox listens.
        keys: With the admin token.
        words: The profile's.
        store: Holds all of it.
        timeline: Tells what happened.
        service: Does what is asked.
        faults: Those that are armed.
        clock: Tells and advances the time.
        pace: How the time goes.
    """

    url: str
    keys: Keys
    words: Vocabulary
    store: Store
    timeline: Timeline
    service: Service
    faults: Faults
    clock: Clock
    pace: Pace

    def admin(self) -> Admin:
        """Return the dashboard with its controls."""
        return Admin(self._door(), self._actions(), self.timeline, self._view)

    def _door(self) -> AdminDoor:
        address = URL(self.url)
        port = address.port or 0
        return AdminDoor(token=self.keys.admin, hosts=hosts(address.host or "", port), port=port)

    def _actions(self) -> Actions:
        return Actions(
            service=self.service,
            store=self.store,
            faults=self.faults,
            advance=self.clock.advance,
            resend=self.service.resend,
        )

    def _view(self, notice: Entry | None) -> View:
        profile = self.words.profile
        return View(
            url=self.url,
            merchant_id=self.keys.merchant.merchant_id,
            profile=self.words.title,
            now=self.clock.now(),
            clock=_going(self.pace),
            lists=Lists(profile.amount_unit, self.words.state),
            told=overview(self.store, self.timeline),
            armed=[str(fault) for fault in self.faults.armed()],
            notice=notice,
        )


def _going(pace: Pace) -> str:
    if not pace.rate:
        return "standing still"
    return "real" if pace.rate == 1 else f"{pace.rate:g} times as fast"
