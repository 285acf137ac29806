"""The dashboard and its controls over HTTP: behind the admin token, and for pages of this sandbox only."""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from aiohttp import web

from payasync.errors import PayasyncError
from payasync.sandbox import dashboard, receiving
from payasync.sandbox.admin_actions import Actions
from payasync.sandbox.admin_door import AdminDoor
from payasync.sandbox.markup import TIMELINE
from payasync.sandbox.page import Page
from payasync.sandbox.strict import read_object
from payasync.sandbox.timeline import Entry, Timeline, line
from payasync.sandbox.values import RefusedError
from payasync.sandbox.vocabulary import STATUSES

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
        view: Callable[[Entry | None], dashboard.View],
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
        return _sent(dashboard.dashboard(self._view(known)))

    async def _history(self, request: web.Request) -> web.Response:
        about = request.query.get("about", "").strip()
        return _sent(dashboard.history(about, self._timeline.entries(about)))

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
        document = read_object(await receiving.body(request, _JSON))
        return {name: _plain(name, value) for name, value in document.items()}
    body = await receiving.body(request, _FORM)
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
    return _sent(dashboard.refusal(refused.status or 401, refused.message))


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
