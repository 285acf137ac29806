"""The gateway page in a browser."""

import re
from typing import Any, Final

from payasync.sandbox import Sandbox
from tests.sandbox.foreign import CLOSE, Answer, Foreign
from tests.sandbox.web.test_dashboard import hashed

THANKS: Final = "https://shop.example/thanks?a=1#top"
EVIL: Final = '"><script>alert(1)</script>&amp;'


async def opened(foreign: Foreign, number: str = "T1", **fields: Any) -> str:
    """Place an order, and return the path of its page."""
    placed = await foreign.place(number, 129_950, **fields)
    return str(placed.document["redirectUrl"]).removeprefix(foreign.sandbox.url)


async def press(foreign: Foreign, page: str, decision: str) -> Answer:
    """Send the form of a page."""
    return await foreign.send("POST", page, data={"decision": decision})


async def test_page_shows_what_is_paid(foreign: Foreign) -> None:
    """The page shows merchant, title, description and amount, and has one plain form with three buttons, no script."""
    path = await opened(foreign, subject="Coffee", body=EVIL)
    page = await foreign.send("GET", path)

    assert 200 == page.status
    for text in ("SANDBOX", "Coffee", "1,299.50 CAD", "T1", "No money moves here"):
        assert text in page.document
    form = re.findall(r'<form method="(\w+)" action="([^"]+)"', page.document)
    buttons = re.findall(r'<button[^>]* name="decision" value="(\w+)"', page.document)
    assert ([("post", path)], ["authorize", "decline", "cancel"]) == (form, buttons)
    assert not re.search(r"<script|tabindex|\son\w+=", page.document)
    assert 1 == page.document.count("&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;amp;")


async def test_policy_allows_the_form_alone(foreign: Foreign) -> None:
    """The policy allows the page's style, and its form to redirect to the merchant's host, if a policy can name it."""
    sources = {
        THANKS: "'self' https://shop.example",
        "http://127.0.0.1:8000/x": "'self' http://127.0.0.1:8000",
        "http://[::1]:8000/x": "'self' http:",
        "https://a;script-src*.example/": "'self' https:",
        "https://café.example/": "'self' https:",
    }
    for number, (url, source) in enumerate(sources.items()):
        page = await foreign.send("GET", await opened(foreign, f"T{number}", returnUrl=url))
        (style,) = re.findall("<style>(.*?)</style>", page.document, re.DOTALL)
        policy = (
            f"default-src 'none'; style-src {hashed(style)}; img-src data:; "
            f"form-action {source}; base-uri 'none'; frame-ancestors 'none'"
        )
        names = ("Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy", "Cache-Control")

        assert [policy, "nosniff", "no-referrer", "no-store"] == [page.headers[name] for name in names]


async def test_decisions_lead_back(foreign: Foreign, sandbox: Sandbox) -> None:
    """A decision leads back to the merchant, or its outcome is on the page. A second click pays nothing more.

    A customer who cancels returns with `cancelled=1`. Two declines keep the customer at the page.
    """
    page = await opened(foreign, "T0", returnUrl=THANKS)
    answers = [await press(foreign, page, "decline") for _ in range(2)]
    shown = await foreign.send("GET", page)
    answers += [await press(foreign, page, "authorize") for _ in range(2)]
    await sandbox.settle()

    assert [(303, page)] * 2 + [(303, THANKS)] * 2 == [(each.status, each.headers["Location"]) for each in answers]
    assert "The order fails after one more decline." in shown.document
    assert 1 == len(sandbox.ledger.deliveries())
    cancelled = {
        "https://shop.example": "https://shop.example?cancelled=1",
        THANKS: "https://shop.example/thanks?a=1&cancelled=1#top",
        "https://shop.example/?": "https://shop.example/?cancelled=1",
        "https://shop.example/%2F?q=%26": "https://shop.example/%2F?q=%26&cancelled=1",
        "https://shop.example/é": "https://shop.example/%C3%A9?cancelled=1",
    }
    for number, (url, expected) in enumerate(cancelled.items(), 1):
        answer = await press(foreign, await opened(foreign, f"T{number}", returnUrl=url), "cancel")

        assert (303, expected) == (answer.status, answer.headers["Location"])
        assert "pending" == sandbox.ledger.order_state(f"T{number}")
    for decision, title in (("authorize", "Paid"), ("cancel", "Cancelled")):
        answer = await press(foreign, await opened(foreign, decision), decision)

        assert (200, True) == (answer.status, f"<strong>{title}.</strong>" in answer.document)


async def test_decided_order_cannot_be_decided_again(foreign: Foreign, sandbox: Sandbox) -> None:
    """A page that was opened before pays no closed order, and undoes no payment. An unknown token has no page."""
    closed, paid = await opened(foreign, returnUrl=THANKS), await opened(foreign, "T2")
    await foreign.post(CLOSE, outTradeNo="T1")
    await press(foreign, paid, "authorize")
    late = [await press(foreign, closed, each) for each in ("authorize", "decline", "cancel")]
    late += [await press(foreign, paid, each) for each in ("decline", "cancel")]
    page = (await foreign.send("GET", closed)).document
    unknown = "/gateway/unknown"

    assert [409] * 5 == [each.status for each in late]
    ledger = sandbox.ledger
    assert ("closed", 0, "paid") == (ledger.order_state("T1"), ledger.paid("T1"), ledger.order_state("T2"))
    assert ("<strong>Closed.</strong>" in page, "<form" in page) == (True, False)
    assert 'href="https://shop.example/thanks?a=1#top"' in page
    for answer in (await foreign.send("GET", unknown), await press(foreign, unknown, "authorize")):
        assert (404, "text/html; charset=utf-8") == (answer.status, answer.headers["Content-Type"])


async def test_hostile_forms(foreign: Foreign, sandbox: Sandbox) -> None:
    """A body that is not the page's form pays nothing."""
    page, form = await opened(foreign), "application/x-www-form-urlencoded"
    for content_type, body, status in (
        (form, b"decision=steal", 400),
        (form, b"decision=\xff", 400),
        (form, b"x" * 65_537, 413),
        ("application/json", b'{"decision":"authorize"}', 415),
    ):
        answer = await foreign.send("POST", page, data=body, headers={"Content-Type": content_type})

        assert (status, "pending") == (answer.status, sandbox.ledger.order_state("T1"))
