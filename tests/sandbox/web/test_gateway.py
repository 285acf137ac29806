"""The gateway page in a browser."""

import base64
import hashlib
import re
from typing import Any, Final

import pytest

from payasync.sandbox import Sandbox
from tests.sandbox.foreign import CLOSE, Answer, Foreign

THANKS: Final = "https://shop.example/thanks?a=1#top"
EVIL: Final = '"><script>alert(1)</script>&amp;'


async def opened(foreign: Foreign, **fields: Any) -> str:
    """Place an order, and return the path of its page."""
    placed = await foreign.place("T1", 129_950, **fields)
    return str(placed.document["redirectUrl"]).removeprefix(foreign.sandbox.url)


async def press(foreign: Foreign, page: str, decision: str) -> Answer:
    """Send the page's form."""
    return await foreign.send("POST", page, data={"decision": decision})


async def test_page_shows_what_is_paid(foreign: Foreign) -> None:
    """The page shows merchant, title, description and amount, and has one plain form with three buttons, no script."""
    path = await opened(foreign, subject="Coffee", body=EVIL)
    page = await foreign.send("GET", path)

    assert 200 == page.status
    for text in ("SANDBOX", "Coffee", "1,299.50 CAD", "T1", "No money moves here"):
        assert text in page.document
    assert [("post", path)] == re.findall(r'<form method="(\w+)" action="([^"]+)"', page.document)
    assert ["authorize", "decline", "cancel"] == re.findall(
        r'<button[^>]* name="decision" value="(\w+)"', page.document
    )
    assert not re.search(r"<script|tabindex|\son\w+=", page.document)
    assert 1 == page.document.count("&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;amp;")


@pytest.mark.parametrize(
    ("return_url", "sources"),
    [
        (THANKS, "'self' https://shop.example"),
        ("http://127.0.0.1:8000/x", "'self' http://127.0.0.1:8000"),
        ("http://[::1]:8000/x", "'self' http:"),
        ("https://a;script-src *.example/", "'self' https:"),
        ("https://café.example/", "'self' https:"),
    ],
)
async def test_policy_allows_the_form_alone(foreign: Foreign, return_url: str, sources: str) -> None:
    """The policy allows the page's style, and its form to redirect to the merchant's host, if a policy can name it."""
    page = await foreign.send("GET", await opened(foreign, returnUrl=return_url.replace(" ", "")))
    style = hashlib.sha256(re.findall("<style>(.*?)</style>", page.document, re.DOTALL)[0].encode()).digest()
    policy = (
        f"default-src 'none'; style-src 'sha256-{base64.b64encode(style).decode()}'; img-src data:; "
        f"form-action {sources}; base-uri 'none'; frame-ancestors 'none'"
    )

    assert policy == page.headers["Content-Security-Policy"]
    assert ("nosniff", "no-referrer", "no-store") == tuple(
        page.headers[name] for name in ("X-Content-Type-Options", "Referrer-Policy", "Cache-Control")
    )


async def test_pressing_twice_pays_once(foreign: Foreign, sandbox: Sandbox) -> None:
    """If the button is pressed twice, both redirect to the merchant, and one payment is notified."""
    path = await opened(foreign, returnUrl=THANKS)
    answers = [await press(foreign, path, "authorize") for _ in range(2)]
    await sandbox.settle()

    assert [(303, THANKS)] * 2 == [(answer.status, answer.headers["Location"]) for answer in answers]
    assert 1 == len(sandbox.ledger.deliveries())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://shop.example", "https://shop.example?cancelled=1"),
        (THANKS, "https://shop.example/thanks?a=1&cancelled=1#top"),
        ("https://shop.example/?", "https://shop.example/?cancelled=1"),
        ("https://shop.example/%2F?q=%26", "https://shop.example/%2F?q=%26&cancelled=1"),
        ("https://shop.example/é", "https://shop.example/%C3%A9?cancelled=1"),
    ],
)
async def test_cancelling_leads_back(foreign: Foreign, sandbox: Sandbox, given: str, expected: str) -> None:
    """A customer who cancels returns with `cancelled=1`; the order stays pending, for the merchant to close."""
    answer = await press(foreign, await opened(foreign, returnUrl=given), "cancel")

    assert (303, expected) == (answer.status, answer.headers["Location"])
    assert "pending" == sandbox.ledger.order_state("T1")


async def test_third_decline_fails(foreign: Foreign, sandbox: Sandbox) -> None:
    """Two declines keep the customer at the page; the third fails the order and leads back."""
    path = await opened(foreign, returnUrl=THANKS)
    answers = [await press(foreign, path, "decline") for _ in range(2)]
    page = await foreign.send("GET", path)
    last = await press(foreign, path, "decline")

    assert [(303, path)] * 2 == [(answer.status, answer.headers["Location"]) for answer in answers]
    assert "The order fails after one more decline." in page.document
    assert (THANKS, "failed") == (last.headers["Location"], sandbox.ledger.order_state("T1"))


@pytest.mark.parametrize(("decision", "title"), [("authorize", "Paid"), ("cancel", "Cancelled")])
async def test_without_return_url_the_page_says_it(foreign: Foreign, decision: str, title: str) -> None:
    """Without a return URL the page shows the order's outcome."""
    answer = await press(foreign, await opened(foreign), decision)

    assert (200, True) == (answer.status, f"<strong>{title}.</strong>" in answer.document)


@pytest.mark.parametrize("decision", ["authorize", "decline", "cancel"])
async def test_closed_order(foreign: Foreign, sandbox: Sandbox, decision: str) -> None:
    """An order that the merchant has closed cannot be paid from a page that was opened before."""
    path = await opened(foreign, returnUrl=THANKS)
    await foreign.post(CLOSE, outTradeNo="T1")
    answer = await press(foreign, path, decision)
    page = await foreign.send("GET", path)

    assert (409, "closed", 0) == (answer.status, sandbox.ledger.order_state("T1"), sandbox.ledger.paid("T1"))
    assert "<strong>Closed.</strong>" in page.document
    assert "<form" not in page.document
    assert 'href="https://shop.example/thanks?a=1#top"' in page.document


@pytest.mark.parametrize("decision", ["decline", "cancel"])
async def test_paid_order_stays_paid(foreign: Foreign, sandbox: Sandbox, decision: str) -> None:
    """A paid order cannot be undone from a page that was opened before."""
    path = await opened(foreign)
    await press(foreign, path, "authorize")
    answer = await press(foreign, path, decision)

    assert (409, "paid") == (answer.status, sandbox.ledger.order_state("T1"))


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("application/x-www-form-urlencoded", b"", 400),
        ("application/x-www-form-urlencoded", b"decision=steal", 400),
        ("application/x-www-form-urlencoded", b"decision=\xff", 400),
        ("application/x-www-form-urlencoded", b"decision=authorize&decision=authorize", 400),
        ("application/x-www-form-urlencoded", b"x" * 65_537, 413),
        ("application/json", b'{"decision":"authorize"}', 415),
    ],
)
async def test_hostile_forms(foreign: Foreign, sandbox: Sandbox, content_type: str, body: bytes, status: int) -> None:
    """A body that is not the page's form pays nothing."""
    path = await opened(foreign)
    answer = await foreign.send("POST", path, data=body, headers={"Content-Type": content_type})

    assert (status, "pending") == (answer.status, sandbox.ledger.order_state("T1"))


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_unknown_page(foreign: Foreign, method: str) -> None:
    """An unknown token has no page."""
    answer = await foreign.send(method, "/gateway/unknown", data={"decision": "authorize"})

    assert (404, "text/html; charset=utf-8") == (answer.status, answer.headers["Content-Type"])
