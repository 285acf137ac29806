"""The page of a request: what was sent, what was answered, and what was signed; keys are masked."""

import asyncio
import base64
import html
import json
import os
import re
import shutil
from asyncio.subprocess import PIPE
from datetime import date
from itertools import pairwise
from typing import Any, Final

import aiohttp
import pytest
from attrs import evolve

from payasync import AnswerShape, Auth, Profile, SignedHeader, SortedPairs, Template
from payasync.endpoints import OPERATIONS
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.dialect import WireNames
from payasync.sandbox.exchanges import MAX_SHOWN, Exchange, format_curl, format_request
from payasync.sandbox.timeline import MAX_EXCHANGES
from tests.sandbox.admin import Operator
from tests.sandbox.foreign import PAY, QUERY, Foreign

ALIEN: Final = "sk_live_of_somebody_else"
SECTION: Final = re.compile(
    r'<h2 id="(\w+)">([^<]*)</h2>(?:(?!<pre).)*<pre [^>]*class="message" tabindex="0">(.*?)</pre>', re.DOTALL
)


async def links(operator: Operator, path: str = "/") -> list[str]:
    """Return the addresses of the pages of requests, the newest first."""
    return re.findall(r'href="(/timeline/\d+)"', (await operator.get(path)).document)


async def page_of(operator: Operator, number: int = 0) -> dict[str, tuple[str, str]]:
    """Return the sections of the page of the newest request, or of an older one: titles and texts by their names."""
    page = (await operator.get((await links(operator))[number])).document
    return {name: (title, html.unescape(text)) for name, title, text in SECTION.findall(page)}


async def test_page_shows_what_was_sent_and_answered(operator: Operator, foreign: Foreign) -> None:
    """The page of a request has both messages with their headers, as they were on the wire, and the signed text.

    If the signature is wrong, it is masked, and the page has the text to sign.
    """
    fields = foreign.signed({"outTradeNo": "T1", "totalAmt": 450, "currency": "CAD"})
    wrong = {**foreign.signed({"outTradeNo": "T1"}), "sign": ALIEN}
    body, headers = json.dumps(fields), {"Content-Type": "application/json", "X-Shop": "9"}
    answer = await foreign.send("POST", "/payment/unifiedorder", data=body, headers=headers)
    await foreign.send("POST", QUERY, json=wrong)
    refused, page = await page_of(operator), await page_of(operator, 1)
    sent, answered = page["sent"][1], page["answered"][1]

    assert sent.startswith("POST /payment/unifiedorder\nHost: 127.0.0.1:")
    assert "\nX-Shop: 9\n" in sent
    assert sent.endswith(f"\n\n{body}")
    assert answered.startswith("200\n")
    assert f"\nDate: {answer.headers['Date']}\n" in answered
    assert answer.document == json.loads(answered.partition("\n\n")[2])
    text = f"currency=CAD&merchantId=SANDBOX&nonceStr={fields['nonceStr']}&outTradeNo=T1&totalAmt=450"
    assert ("The text that was signed", text) == page["signed"]
    text = f"merchantId=SANDBOX&nonceStr={wrong['nonceStr']}&outTradeNo=T1"
    assert ("The text that should have been signed", text) == refused["signed"]
    assert ALIEN not in str(refused)
    assert {**wrong, "sign": "<masked, 24 characters>"} == json.loads(refused["sent"][1].partition("\n\n")[2])


async def test_no_key_and_no_customer_is_on_a_page(operator: Operator, foreign: Foreign) -> None:
    """Keys are masked, also those of others, and so are the customer's details."""
    given = operator.sandbox.credentials
    headers = {"X-Api-Key": ALIEN, "Cookie": ALIEN}
    await foreign.send("POST", PAY, json={"amount": 1, "currency": "CAD"}, headers={**foreign.bearer, **headers})
    await foreign.send("POST", PAY, json={}, headers={"Authorization": f"Basic {ALIEN}"})
    await foreign.subscribe(customer={"name": ALIEN})
    await foreign.send("GET", f"/payment/unknown?sign={ALIEN}&a=b")
    pages = [await page_of(operator, number) for number in range(4)]
    keys = [given.secret_key, given.signing_key, given.public_key, *given.notification_keys]

    assert [] == [key for key in keys if key and key.reveal() in str(pages)]
    assert ALIEN not in str(pages)
    sent = [page["sent"][1] for page in pages]
    assert "GET /payment/unknown?sign=<masked, 24 characters>&a=b" in sent[0]
    assert '"customer": "<customer details>"' in sent[1]
    assert "\nAuthorization: Basic <masked, 24 characters>\n" in sent[2]


async def test_page_of_a_fault_says_how_it_ended(operator: Operator, foreign: Foreign) -> None:
    """If a fault cuts the connection, the page has the request and says that there was no response."""
    operator.sandbox.faults.reset_before("orders.query")
    with pytest.raises(aiohttp.ClientError):
        await foreign.post(QUERY, outTradeNo="T1")
    operator.sandbox.faults.slow_drip("orders.query", seconds=0.001)
    await foreign.post(QUERY, outTradeNo="T1")
    slow, reset = await page_of(operator), await page_of(operator, 1)

    assert ("Response", "There was no response.") == reset["answered"]
    assert '"outTradeNo": "T1"' in reset["sent"][1]
    assert slow["answered"][1].endswith("\n\n<A fault sent the body in pieces.>")


async def test_only_the_newest_pages_have_messages(operator: Operator, foreign: Foreign) -> None:
    """The messages of the newest requests are kept, for those with the token. An older page says so.

    What a browser sends to the gateway page is not kept.
    """
    await foreign.place("T1")
    await operator.sandbox.customer.authorize("T1")
    link, gateway = await links(operator, "/timeline?about=T1")
    newest, stranger = await operator.get(link), await operator.get(link, {})
    browser = (await operator.get(gateway)).document
    for _ in range(MAX_EXCHANGES):
        await foreign.send("GET", "/payment/unknown")
    gone, unknown = await operator.get(link), await operator.get("/timeline/999999")
    pages = (newest, gone, unknown)

    assert [True, False, False] == ['<pre class="message"' in each.document for each in pages]
    assert [200, 200, 404, 401] == [each.status for each in (*pages, stranger)]
    assert "for the newest requests only" in gone.document
    assert "No request has this number" in unknown.document
    assert "T1" not in str(stranger.document)
    assert "does not keep what a browser sends" in browser


def exchanged(body: str, operation: str = "orders.query", **parts: Any) -> Exchange:
    """Return a request of which nothing but its body matters."""
    return Exchange(operation=operation, method="POST", target="/x", headers=(), body=body.encode(), **parts)


ODD: Final = WireNames(
    evolve(
        PROFILE,
        fields={**PROFILE.fields, "sign": "mac", "customer": "who.is"},
        signature=SortedPairs(algorithm="hmac-sha256", encoding="hex", exclude=("mac",), nested="json"),
        auth=Auth(header="X-Shop", value="{public_key}"),
    )
)


def test_body_is_as_it_was_sent_but_for_what_is_masked() -> None:
    """A body is shown as it was sent; if something in it is masked, as JSON. A genuine signature is shown."""
    query, masked = "orders.query", "<masked, {} characters>"
    for operation, body, shown in (
        (query, '{"a":  1.50}', '{"a":  1.50}'),
        (query, '{"mac": "12", "v": 1}', '{"mac": "<masked, 2 characters>", "v": 1}'),
        (query, '{"head": "mac"}', '{"head": "mac"}'),
        (query, '{"who": 1}', '{"who": 1}'),
        ("subscriptions.create", '{"who": {"is": {}}, "b": "é"}', '{"who": "<customer details>", "b": "é"}'),
        ("", '{"who": 1, "mac": null}', '{"who": "<customer details>", "mac": "<masked, 4 characters>"}'),
        # If it is not JSON, nobody knows where the signature begins.
        (query, '{"a": 1', '{"a": 1'),
        (query, '{"mac": "12"', masked.format(12)),
        (query, '["mac"]', masked.format(7)),
        (query, "x" * (MAX_SHOWN + 1), f"{'x' * MAX_SHOWN}… (16,385 characters)"),
    ):
        assert f"POST /x\n\n{shown}" == format_request(exchanged(body, operation), ODD)
    for each in OPERATIONS:
        assert "POST /x\n\n{}" == format_request(exchanged("{}", each.name), WireNames(Profile()))
    assert 'POST /x\n\n{"mac": "12"}' == format_request(exchanged('{"mac": "12"}', signed=str), ODD)


TEMPLATE: Final = Template(
    algorithm="hmac-sha256",
    encoding="hex",
    text="{method} {path} {body}",
    header="X-Mac",
    headers={"X-Mac-Again": "v1={signature}", "X-Shop": "{merchant_id}"},
)


def test_headers_are_shown_without_keys_and_false_signatures() -> None:
    """A header that carries a key by the profile is masked, whatever its name, and so is a false signature."""
    headers = [("x-shop", "pk_1"), ("Shop", "pk"), ("Idempotency-Key", "k"), ("X-Raw", "a\udcff")]
    shown = "GET /x\nx-shop: <masked, 4 characters>\nShop: pk\nIdempotency-Key: k\nX-Raw: a\ufffd\n\n"
    for body, text in ((None, "<The body was not read.>"), (b"\xffb", "\ufffdb")):
        sent = Exchange(method="GET", target="/x", headers=headers, body=body)

        assert f"{shown}{text}" == format_request(sent, ODD)
    signatures, names = [("x-mac", "f0"), ("X-Mac-Again", "v1=f0")], WireNames(evolve(PROFILE, signature=TEMPLATE))
    for genuine, first, again in ((str, "f0", "v1=f0"), (None, "<masked, 2 characters>", "<masked, 5 characters>")):
        sent = Exchange(method="GET", target="/x", headers=signatures, body=b"", signed=genuine)

        assert f"GET /x\nx-mac: {first}\nX-Mac-Again: {again}" == format_request(sent, names)


async def test_page_of_a_signed_text_shows_it() -> None:
    """If the profile signs a text of the request, its page shows that text, without the customer's details."""
    everything = tuple(each.name for each in OPERATIONS)
    profile = evolve(PROFILE, signature=TEMPLATE, signed=everything, bearer=())
    async with Sandbox(profile) as sandbox, sandbox.session() as pay, aiohttp.ClientSession() as http:
        await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")
        await pay.subscriptions.create(
            frequency="monthly", amount=1, start_date=date(2999, 1, 31), customer={"name": ALIEN}
        )
        operator = Operator(sandbox, http)
        subscribed, placed = await page_of(operator), await page_of(operator, 1)

    body = placed["sent"][1].partition("\n\n")[2]
    assert f"POST /payment/unifiedorder {body}" == placed["signed"][1]
    assert "POST /subscriptions/create <customer details>" == subscribed["signed"][1]
    assert ALIEN not in str(subscribed)


IN_THE_BODY: Final = evolve(PROFILE.answer, signature="seal", refusals_signed=True)
IN_A_HEADER: Final = evolve(
    PROFILE.answer,
    header=SignedHeader(signature="Mac:v1", timestamp="Mac:t", nonce="Id", text="{timestamp}.{nonce}.{body}"),
    refusals_signed=True,
)


@pytest.mark.parametrize(("answer", "form"), [(IN_THE_BODY, "code={code}&"), (IN_A_HEADER, "{time}.{nonce}.{body}")])
async def test_page_shows_what_the_service_signed(answer: AnswerShape, form: str) -> None:
    """If responses are signed, the page shows the text that the response's signature covers."""
    async with Sandbox(evolve(PROFILE, answer=answer)) as sandbox, aiohttp.ClientSession() as http:
        operator = Operator(sandbox, http)
        responses = [await operator.foreign.place("T1"), await operator.foreign.place("T1")]
        responses.append(await operator.foreign.send("GET", "/payment/unknown"))
        pages = [await page_of(operator, number) for number in (2, 1, 0)]

    for response, page in zip(responses, pages, strict=True):
        time, nonce = response.headers.get("Mac", "")[2:12], response.headers.get("Id", "")
        text = form.format(code=response.code, time=time, nonce=nonce, body=page["answered"][1].partition("\n\n")[2])
        title, shown = page["confirmed"]
        assert ("The text that the service signed", True) == (title, shown.startswith(text))


async def run_bash(program: str, **variables: str) -> bytes:
    """Return what a program prints in bash, which has these variables."""
    bash = shutil.which("bash") or pytest.skip("no bash here")
    started = await asyncio.create_subprocess_exec(
        bash, "-c", program, stdout=PIPE, env={"PATH": os.environ["PATH"], **variables}
    )
    async with asyncio.timeout(30):
        printed, _ = await started.communicate()
    return printed


async def test_command_repeats_a_request(operator: Operator, foreign: Foreign) -> None:
    """The command of a read holds no key. In bash, with the key in its variable, it gets the same response."""
    if not shutil.which("curl"):
        pytest.skip("no curl here: install it (Debian: apt-get install curl)")
    await foreign.place("T1")
    read = await foreign.send("GET", "/payment/status?outTradeNo=T1&a[1]={'b'}", headers=foreign.bearer)
    page = await page_of(operator)
    key = foreign.bearer["Authorization"].removeprefix("Bearer ")
    printed = await run_bash(f"{page['curl'][1]} --silent", PAYASYNC_SECRET_KEY=key)
    again = await page_of(operator)

    assert {**read.document, "requestId": ""} == {**json.loads(printed), "requestId": ""}
    assert (200, page["sent"][1].splitlines()[0]) == (read.status, again["sent"][1].splitlines()[0])
    assert key not in page["curl"][1]


HOSTILE: Final = 'a\'b "c" $HOME `id` \\ !x ${1} \n\té'


@pytest.mark.parametrize("body", [HOSTILE.encode(), b"\xff'\\\r\x1b[0m12", b""])
async def test_command_is_quoted(body: bytes) -> None:
    """Bash passes each word of a command to curl as it was sent, and expands nothing but our variables."""
    sent = [
        *(("Host", "x"), ("X-Empty", ""), ("X-Odd", HOSTILE.replace("\n", "")), ("X-Raw", "\udcff'\\")),
        *(("x-SHOP", "a'b\"$`\\!-the key"), ("X-Basic", "Basic abc="), ("Authorization", "Basic abc=")),
    ]
    auth = {"X-Shop": "a'b\"$`\\!-{merchant_id}", "X-Basic": "Basic {basic}", "X-User": "{basic_user}"}
    names = WireNames(evolve(PROFILE, auth=Auth(headers=auth)))
    exchange = Exchange(method="P$T", target="/a/../b?c=[1]&d='$x'", headers=sent, body=body)
    program = "curl() { printf '%s\\0' \"$@\"; }\n" + format_curl(exchange, names, "http://h")
    keys = {"PAYASYNC_SECRET_KEY": "sk$1", "PAYASYNC_PUBLIC_KEY": "pk" * 40, "PAYASYNC_MERCHANT_ID": "M 1"}
    words = (await run_bash(program, **keys)).split(b"\0")[:-1]
    basic = base64.b64encode(f"{'pk' * 40}:sk$1".encode())

    assert [b"--request", b"P$T", b"--globoff", b"--path-as-is", b"http://h/a/../b?c=[1]&d='$x'"] == words[:5]
    assert [
        *(b"X-Empty;", f"X-Odd: {HOSTILE.replace(chr(10), '')}".encode(), b"X-Raw: \xff'\\"),
        *(b"x-SHOP: a'b\"$`\\!-M 1", b"X-Basic: Basic " + basic, b"Authorization: Basic <masked, 4 characters>"),
        *([b"Content-Type:"] if body else []),
    ] == [word for option, word in pairwise(words) if option == b"--header"]
    assert ([b"--data-raw", body] if body else [b"--header", words[-1]]) == words[-2:]


def test_command_without_its_variable_is_not_sent() -> None:
    """If a key's variable is not set, bash names it instead of sending a request without a key."""
    bearer = Exchange(method="HEAD", target="/x", headers=[("Authorization", "bearer 1"), ("Content-Type", "a")])

    assert (
        'curl --head http://h/x \\\n  --header "Authorization: Bearer ${PAYASYNC_SECRET_KEY:?}" \\\n'
        "  --header 'Content-Type: a'" == format_curl(bearer, WireNames(PROFILE), "http://h")
    )


def test_command_that_would_be_another_request_is_left_out() -> None:
    """A body that was not read, is too long to show, or has a NUL byte gets no command."""
    for other in (evolve(exchanged(""), body=None), exchanged("a\0b"), exchanged("x" * (MAX_SHOWN + 1))):
        assert not format_curl(other, ODD, "http://h")
    assert format_curl(exchanged("x" * MAX_SHOWN), ODD, "http://h").endswith("x")
