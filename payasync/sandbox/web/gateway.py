"""The payment gateway, where the customer decides (docs/reference/service.md#orders)."""

import string
from contextlib import suppress
from typing import Final
from urllib.parse import quote

from aiohttp import web
from yarl import URL

from payasync.profile.schema import format_amount
from payasync.sandbox.arguments import read_url
from payasync.sandbox.model import DECISIONS, MERCHANT_ID, Order, RefusedError
from payasync.sandbox.rules import MAX_DECLINES
from payasync.sandbox.server import read_choice, read_form
from payasync.sandbox.service import Service
from payasync.sandbox.timeline import add_facts
from payasync.sandbox.web.pages import GATEWAY, gateway_path, redirect_to, render_page

_TITLES: Final = {"absent": "No such page", "busy": "Busy"}


class Gateway:
    """Shows an order's page, and carries out what its customer decides.

    Args:
        service: Decides orders.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[web.RouteDef]:
        """Return the page's routes."""
        path = GATEWAY + "/{token}"
        return [web.get(path, self._show, allow_head=False), web.post(path, self._decide)]

    async def _show(self, request: web.Request) -> web.Response:
        try:
            order = self._service.at_gateway(request.match_info["token"])
        except RefusedError as refused:
            return _render_refusal(404, "No such page", refused.message)
        return self._render(order, pending=order.state == "pending")

    async def _decide(self, request: web.Request) -> web.Response:
        add_facts(request, name="gateway")
        token = request.match_info["token"]
        try:
            decision = read_choice(await read_form(request), "decision", DECISIONS)
            add_facts(request, name=f"gateway.{decision}")
            with self._service.store.transaction():
                order = self._service.decide(self._service.at_gateway(token), decision)
        except RefusedError as refused:
            add_facts(request, reason=refused.message)
            if refused.why in {"wrong_state", "already_paid"}:
                return self._render(self._service.at_gateway(token), status=409)
            status = refused.status or {"absent": 404, "busy": 503}.get(refused.why, 400)
            return _render_refusal(status, _TITLES.get(refused.why, "Not understood"), refused.message)
        add_facts(request, reference=order.out_trade_no)
        if order.state == "pending" and decision == "decline":
            return redirect_to(gateway_path(order))
        if order.return_url is None:
            return self._render(order)
        return redirect_to(build_return_url(order.return_url, cancelled=decision == "cancel"))

    def _render(self, order: Order, *, pending: bool = False, status: int = 200) -> web.Response:
        unit = self._service.dialect.names.profile.amount_unit
        amount, _, currency = format_amount(order.total_amt, order.currency, unit).rpartition(" ")
        return render_page(
            "gateway.html",
            style="gateway.css",
            status=status,
            form_action=_form_action(order.return_url) if pending else "'none'",
            order=order,
            merchant=MERCHANT_ID,
            amount=amount,
            currency=currency,
            pending=pending,
            declines_left=MAX_DECLINES - order.declines,
        )


def build_return_url(return_url: str, *, cancelled: bool) -> str:
    """Return where the customer is sent: the order's return URL, with `cancelled=1` if they cancelled."""
    url = return_url
    if not url.isascii():
        with suppress(ValueError):  # a host that is no name in any language: a browser may know better
            url = str(URL(url))
        url = quote(url, safe=string.punctuation)
    if not cancelled:
        return url
    # By text: a parser would rewrite the merchant's own query.
    address, hash_sign, fragment = url.partition("#")
    joint = "" if address.endswith(("?", "&")) else "&" if "?" in address else "?"
    return f"{address}{joint}cancelled=1{hash_sign}{fragment}"


def _form_action(return_url: str | None) -> str:
    """Return where the form may lead: browsers apply this policy to the redirect after it too."""
    if return_url is None:
        return "'self'"
    scheme, host, port, *_ = read_url(return_url)
    if not host.isascii() or not host.replace("-", "").replace(".", "").isalnum():
        return f"'self' {scheme.lower()}:"
    return f"'self' {scheme.lower()}://{host.lower()}{port and f':{port}'}"


def _render_refusal(status: int, title: str, message: str) -> web.Response:
    return render_page("refusal.html", style="gateway.css", status=status, title=title, message=message)
