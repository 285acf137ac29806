"""What every page of the sandbox is made of: one document, its own styles, and a policy against all else."""

import base64
import hashlib
from collections.abc import Mapping
from html import escape
from importlib import resources
from typing import Final

from attrs import frozen

_HERE: Final = resources.files("payasync.sandbox")
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
