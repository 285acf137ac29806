"""The sandbox's pages: Jinja2 templates that work without script, and the headers that protect them."""

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from payasync.profile.schema import format_amount
from payasync.sandbox.model import Order, format_instant

if TYPE_CHECKING:
    from jinja2 import Environment

GATEWAY: Final = "/gateway"
TIMELINE: Final = "/timeline"
_HERE: Final = "payasync.sandbox.web"
_MISSING: Final = "The sandbox's pages need Jinja2: python -m pip install 'payasync[sandbox]'\n"


def gateway_path(order: Order) -> str:
    """Return the path of an order's gateway page."""
    return f"{GATEWAY}/{order.token}"


_GLOBALS: Final[dict[str, Any]] = {
    "format_amount": format_amount,
    "format_instant": format_instant,
    "gateway_path": gateway_path,
    "timeline_path": TIMELINE,
}


def render_page(
    template: str,
    *,
    style: str,
    script: str = "",
    status: int = 200,
    form_action: str = "'none'",
    referrer: str = "no-referrer",
    **values: Any,
) -> web.Response:
    """Return a page; 501 with the command to install it, if Jinja2 is missing.

    Args:
        template: The name of its template.
        style: The name of its CSS file, added to the colours that all pages share.
        script: The name of its script; empty for none.
        status: The HTTP status.
        form_action: Where its forms may lead, in the words of Content-Security-Policy.
        referrer: The policy for `Referer`. With `no-referrer` browsers send forms with `Origin: null`.
        values: What the template shows.
    """
    try:
        environment = _load_environment()
    except ModuleNotFoundError as error:
        if error.name != "jinja2":
            raise
        return web.Response(status=501, text=_MISSING, headers={"Cache-Control": "no-store"})
    css, code = _read("palette.css") + _read(style), _read(script) if script else ""
    html = environment.get_template(template, globals=_GLOBALS).render(style=css, script=code, **values)
    allowed = f"script-src {_hash(code)}; connect-src 'self'; " if code else ""
    policy = (
        f"default-src 'none'; style-src {_hash(css)}; {allowed}img-src data:; form-action {form_action}; "
        "base-uri 'none'; frame-ancestors 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": referrer,
        "Cache-Control": "no-store",
    }
    return web.Response(text=html, status=status, headers=headers, content_type="text/html")


def redirect_to(location: str) -> web.Response:
    """Return a redirect after a form, whose target does not learn the address that was left."""
    headers = {"Location": location, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
    return web.Response(status=303, headers=headers)


@cache
def _load_environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - the extra may be missing

    return Environment(
        loader=PackageLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )


@cache
def _read(name: str) -> str:
    return resources.files(_HERE).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
