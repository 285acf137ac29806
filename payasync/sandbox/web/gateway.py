"""The payment gateway, where the customer decides (spec: Endpoints, rule 2)."""

from typing import Final, get_args
from urllib.parse import parse_qsl

from aiohttp import web
from yarl import URL

from payasync.sandbox.model import Decision, Order, RefusedError
from payasync.sandbox.server import read_body
from payasync.sandbox.service import Service
from payasync.sandbox.store import Store
from payasync.sandbox.timeline import note
from payasync.sandbox.web.pages import PATH, Page, decision_page, outcome_page, page_path, refusal_page

_DECISIONS: Final[dict[str, Decision]] = {decision: decision for decision in get_args(Decision)}


class Gateway:
    """Shows an order's page, and does what its customer decides.

    Args:
        service: Does it.
        store: Holds the transaction around it.
        merchant: The merchant's name, as the customer reads it.
        unit: What amounts count: `minor` or `major`.
    """

    def __init__(self, *, service: Service, store: Store, merchant: str, unit: str) -> None:
        self._service = service
        self._store = store
        self._merchant = merchant
        self._unit = unit

    def routes(self) -> list[web.RouteDef]:
        """Return the page's routes."""
        path = PATH + "/{token}"
        return [web.get(path, self._show, allow_head=False), web.post(path, self._decide)]

    async def _show(self, request: web.Request) -> web.Response:
        try:
            order = self._service.at_gateway(request.match_info["token"])
        except RefusedError as refused:
            return _sent(refusal_page(404, "No such page", refused.message))
        return _sent(self._page(order))

    async def _decide(self, request: web.Request) -> web.Response:
        note(request, name="gateway")
        try:
            decision = _decision(await read_body(request, "application/x-www-form-urlencoded"))
            note(request, name=f"gateway.{decision}")
            after = self._decided(request.match_info["token"], decision)
        except RefusedError as refused:
            note(request, reason=refused.message)
            return self._refused(request.match_info["token"], refused)
        note(request, reference=after.out_trade_no)
        if after.state == "pending" and decision == "decline":
            return _see(page_path(after))
        if after.return_url is None:
            return _sent(outcome_page(after, self._merchant, self._unit))
        return _see(back(after.return_url, cancelled=decision == "cancel"))

    def _decided(self, token: str, decision: Decision) -> Order:
        with self._store.transaction():
            return self._service.decide(self._service.at_gateway(token), decision)

    def _refused(self, token: str, refused: RefusedError) -> web.Response:
        if refused.why != "wrong_state":
            title = {"absent": "No such page", "busy": "Busy"}.get(refused.why, "Not understood")
            status = refused.status or {"absent": 404, "busy": 503}.get(refused.why, 400)
            return _sent(refusal_page(status, title, refused.message))
        order = self._service.at_gateway(token)
        return _sent(outcome_page(order, self._merchant, self._unit, status=409))

    def _page(self, order: Order) -> Page:
        if order.state == "pending":
            return decision_page(order, self._merchant, self._unit)
        return outcome_page(order, self._merchant, self._unit)


def back(return_url: str, *, cancelled: bool) -> str:
    """Return where the customer is sent back to: the order's return URL, with `cancelled=1` where they cancelled."""
    url = return_url if return_url.isascii() else str(URL(return_url))
    if not cancelled:
        return url
    address, hash_sign, fragment = url.partition("#")
    joint = "" if address.endswith(("?", "&")) else "&" if "?" in address else "?"
    return f"{address}{joint}cancelled=1{hash_sign}{fragment}"


def _decision(body: bytes) -> Decision:
    try:
        fields = dict(parse_qsl(body.decode("ascii"), max_num_fields=8))
    except ValueError:
        fields = {}
    decision = _DECISIONS.get(fields.get("decision", ""))
    if decision is None:
        raise RefusedError("invalid", "The form must say authorize, decline or cancel.")
    return decision


def _sent(page: Page) -> web.Response:
    return web.Response(text=page.html, status=page.status, headers=page.headers, content_type="text/html")


def _see(location: str) -> web.Response:
    return web.Response(status=303, headers={"Location": location, "Cache-Control": "no-store"})
