"""The server: its address, how it refuses connections, and which requests it reads."""

import asyncio
import gc
import json
import socket
import warnings
from contextlib import suppress
from typing import Any, Final

import pytest

from payasync.errors import ConfigurationError
from payasync.sandbox import Sandbox
from payasync.sandbox.server import listen, loopback_address
from tests.inside import turns, until
from tests.sandbox.foreign import PLACE, QUERY, Foreign, raw, refuses


async def test_request_in_flight_gets_its_response(sandbox: Sandbox, foreign: Foreign) -> None:
    """A request in flight when the server stops listening gets its response."""
    fault = sandbox.faults.latency("orders.query", seconds=0.05)
    asking = asyncio.create_task(foreign.post(QUERY, outTradeNo="T1"))
    await until(lambda: fault.fired)
    refusing = sandbox.faults.refuse()
    stopped, answer = refuses(sandbox.url), await asking
    refusing.disarm()

    assert (True, 404, False) == (stopped, answer.status, refuses(sandbox.url))


async def test_connection_that_was_just_accepted_is_closed(sandbox: Sandbox) -> None:
    """If the server stops listening, every connection ends, even one that is just being accepted."""
    for count in range(5):
        with socket.create_connection(("127.0.0.1", int(sandbox.url.rpartition(":")[2]))) as client:
            client.settimeout(0)
            await turns(count)
            fault = sandbox.faults.refuse()
            with suppress(ConnectionResetError):
                async with asyncio.timeout(10):
                    assert b"" == await asyncio.get_running_loop().sock_recv(client, 1)
        fault.disarm()


def test_sandbox_listens_on_loopback_only() -> None:
    """`localhost` is 127.0.0.1. Hosts that others could reach, other spellings and invalid ports are refused."""
    expected = {"127.0.0.1": "127.0.0.1", "127.8.9.1": "127.8.9.1", "localhost": "127.0.0.1", "::1": "::1"}
    assert expected == {host: loopback_address(host) for host in expected}
    others = ("0.0.0.0", "::", "", "192.168.1.1", "example.com", "LOCALHOST", "::ffff:127.0.0.1", "::1%lo")  # noqa: S104 - it must be refused
    wrong: list[Any] = [*others, "0:0:0:0:0:0:0:1", "127.1", "[::1]", "127.0.0.1 ", None, 2130706433]
    for host in wrong:
        with pytest.raises(ConfigurationError, match="host must be this machine alone") as refused:
            loopback_address(host)

        assert repr(host) in str(refused.value)
    ports: list[Any] = [-1, 65536, "80", 80.0, True, None]
    for port in ports:
        with pytest.raises(ConfigurationError, match="port: cannot listen"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize(("host", "url"), [("127.8.9.1", "http://127.8.9.1:"), ("::1", "http://[::1]:")])
async def test_sandbox_listens_on_its_host(host: str, url: str) -> None:
    """URLs and pages have the given host, `::1` in brackets."""
    async with Sandbox(host=host) as sandbox, sandbox.session() as pay:
        order = await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")
        await sandbox.customer.authorize(order)

        assert "paid" == sandbox.ledger.order_state("T1")
        assert (True, True) == (sandbox.url.startswith(url), str(order.redirect_url).startswith(url))


def test_closing_leaves_no_connection_open() -> None:
    """A connection that arrives in any turn of the loop before the end is closed with all others."""

    async def connected_and_closed(count: int) -> socket.socket:
        sandbox = await Sandbox().start()
        client = socket.create_connection(("127.0.0.1", int(sandbox.url.rpartition(":")[2])))
        await turns(count)
        await sandbox.close()
        return client

    with warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always", ResourceWarning)
        for count in range(5):
            client = asyncio.run(connected_and_closed(count))
            gc.collect()
            client.close()

    assert [] == [str(each.message) for each in left]


GOOD: Final = {"outTradeNo": "T1", "totalAmt": 450, "currency": "CAD"}
JSON: Final = {"Content-Type": "application/json"}
INVALID: Final = (422, "SBX_INVALID")
UNSIGNED: Final = (401, "SBX_BAD_SIGNATURE")
BAD: Final[dict[str, list[Any]]] = {
    "totalAmt": [0, -1, 0.0, 2**53, 10**18, 4.5, 1e300, True, "450", None, [450], {}],
    "currency": ["", "CA", "CADX", "C1D", 124, None, "CÄD"],
    "outTradeNo": ["", "a b", "a" * 65, "é", "T1\n", 1, None, "'; DROP TABLE orders; --"],
    "notifyUrl": ["", "/n", "ftp://a.example/", "http://", "http://a:99999/", "http://a:0/", "http:/n"],
    "returnUrl": ["data:text/html,x", "http://a/\r\nSet-Cookie: a=b", "//shop.example", "http://[::1/"],
    "subject": ["x" * 4097, 1, None],
    "sceneType": ["", "x" * 129, 1],
    "nonceStr": ["", "n" * 129, 1, None],
    "sign": ["", 1, None, "x" * 2049],
}
BAD_PLANS: Final[dict[str, list[Any]]] = {
    "billingFrequency": [None, "", 0, [], {}, "2027-02-30", "hourly", "months", "1"],
    "amount": [None, "", 0, [], {}, "2027-02-30"],
    "startDate": [None, "", 0, [], {}, "2027-02-30", "2027-1-1", "\u0662\u0660\u0662\u0667-01-01", "0999-12-31"],
    "customer": [None, "", 0, [], {}, "x" * 4097],
}


async def test_invalid_fields(foreign: Foreign, sandbox: Sandbox) -> None:
    """An invalid field is refused by its name before the signature check.

    A field without one text to sign is named, too, because no signature fits it, and so is any other text in `sign`.
    """
    unsigned = [("other", 1.5), ("other", True), ("other", []), ("other", {"a": 1}), ("totalAmt", 450.0)]
    signatures = [("sign", "é"), ("sign", "0" * 64), ("sign", "\u0000")]
    for name, value, refusal in (
        *((name, value, INVALID) for name, values in BAD.items() for value in values),
        *((name, value, UNSIGNED) for name, value in (*unsigned, *signatures)),
    ):
        response = await foreign.send("POST", PLACE, json={**foreign.signed(GOOD), name: value})
        assert (refusal, name) == (response.result, response.document["field"]), value
    for name, value in ((name, value) for name, values in BAD_PLANS.items() for value in values):
        response = await foreign.subscribe(**{name: value})
        assert (INVALID, name) == (response.result, response.document["field"]), value

    assert 0 == sandbox.ledger.orders()
    for fields in ({"customer": "cus_1"}, {"startDate": "1000-01-01"}):
        assert 200 == (await foreign.subscribe(**fields)).status


async def test_integer_may_have_a_fraction_of_zero(foreign: Foreign) -> None:
    """An amount of `19.0` is 19, as JSON Schema has it, and the response has 19."""
    for amount in ("19.0", "1.9e1", "19"):
        body = f'{{"amount":{amount},"currency":"CAD"}}'
        response = await foreign.send("POST", "/v1/payments", data=body, headers={**foreign.bearer, **JSON})

        assert (200, "19") == (response.status, json.dumps(response.document["amount"]))


async def test_urls_in_any_language(foreign: Foreign, sandbox: Sandbox) -> None:
    """A URL may be in any language. Even one that leads nowhere is accepted: page and notifications go on."""
    urls = ["HTTPS://Shop.example", "http://shop.example:080?a#b", "http://shop.example:/", "http://[::::]/"]
    urls += ["https://me:secret@[::1]:8000/n", "https://müller.example/ä?ö#ü", "https://\u1e9e\u2100\u0301.example/"]
    for number, url in enumerate([*urls, f"http://{'a' * 70}.example/"]):
        placed = await foreign.place(f"T{number}", notifyUrl=url, returnUrl=url)
        page = placed.document["redirectUrl"].removeprefix(sandbox.url)
        shown = await foreign.send("GET", page)
        back = await foreign.send("POST", page, data={"decision": "authorize"})

        assert ("SBX_PENDING", 200, 303) == (placed.document["status"], shown.status, back.status), url
        assert back.headers["Location"].isascii()
    await sandbox.settle()

    assert {None} == {each.status for each in sandbox.ledger.deliveries()}


async def test_bodies_that_are_no_object(foreign: Foreign) -> None:
    """A body is refused that is not `application/json`, no object, or that two readers could read differently.

    A compressed body is refused, too (docs/reference/service.md#overview).
    """
    deep = b'{"a":' + b"[" * 32 + b"]" * 32 + b"}"
    for body in (b"", b"[]", b"\xff", b'{"a":1,"a":1}', b'{"a":NaN}', b'{"a":"\\ud800"}', deep):
        assert (400, "SBX_INVALID") == (await foreign.send("POST", PLACE, data=body, headers=JSON)).result
    good = json.dumps(foreign.signed(GOOD)).encode()
    types: list[dict[str, str]] = [
        *({"Content-Type": each} for each in ("text/plain", "application/json; charset=utf-16", "json")),
        {**JSON, "Content-Encoding": "gzip"},
    ]
    for headers in types:
        assert (415, "SBX_INVALID") == (await foreign.send("POST", PLACE, data=good, headers=headers)).result


async def test_depth_and_unicode_that_are_accepted(foreign: Foreign) -> None:
    """A body may be 32 levels deep. Texts are used as sent, with surrogate pairs joined."""
    deep = await foreign.send("POST", PLACE, data=b'{"a":' + b"[" * 31 + b"]" * 31 + b"}", headers=JSON)
    text = json.dumps(foreign.signed({**GOOD, "\U0001f600": "é\U0001f600"}))
    signed = await foreign.send("POST", PLACE, data=text.encode(), headers=JSON)

    assert "\\ud83d\\ude00" in text
    assert [422, 200] == [deep.status, signed.status]


async def test_size_limit(foreign: Foreign) -> None:
    """65,536 bytes are accepted. A larger body is refused before its type is checked, with or without a length."""

    async def chunks() -> Any:
        for _ in range(20):
            yield b" " * 4096

    largest = json.dumps(foreign.signed(GOOD)).encode().ljust(65_536)
    accepted = await foreign.send("POST", PLACE, data=largest, headers=JSON)
    longer = await foreign.send("POST", PLACE, data=b"x" * 65_537, headers={"Content-Type": "text/plain"})
    chunked = await foreign.send("POST", PLACE, data=chunks(), headers=JSON)

    refused = (413, "SBX_INVALID")
    assert [(200, "SBX_OK"), refused, refused] == [accepted.result, longer.result, chunked.result]


async def test_other_paths_and_methods(foreign: Foreign) -> None:
    """An unknown path is 404, another method 405 with the allowed ones; neither has the code for "absent"."""
    for method, path, status, allow in (
        ("GET", PLACE, 405, "POST"),
        ("OPTIONS", "/payment/status", 405, "GET"),
        ("POST", "/payment/status", 405, "GET"),
        ("GET", "/nothing", 404, None),
        ("POST", "/payment/unifiedorder/", 404, None),
        ("GET", "/gateway", 404, None),
        ("GET", "/%ff%00", 404, None),
    ):
        response = await foreign.send(method, path)

        assert ((status, "SBX_INVALID"), allow) == (response.result, response.headers.get("Allow")), path


async def test_identifiers_of_a_query(foreign: Foreign) -> None:
    """Endpoint 6 accepts exactly one valid identifier."""
    statuses = {"outTradeNo=T1&outTradeNo=T2": 400, "outTradeNo=T1": 404}
    statuses |= dict.fromkeys(["", "outTradeNo=", "outTradeNo=a%20b", "outTradeNo=%ff", "other=T1"], 422)
    for query, status in statuses.items():
        response = await foreign.send("GET", f"/payment/status?{query}", headers=foreign.bearer)

        assert status == response.status, query


async def test_bytes_that_are_hardly_http(sandbox: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    """Invalid HTTP gets a 4xx response, and no traceback is logged."""
    host = b"Host: " + sandbox.url.removeprefix("http://").encode()
    post = b"POST /v1/payments HTTP/1.1\r\n" + host + b"\r\nContent-Type: application/json\r\n"
    end = b" HTTP/1.1\r\n" + host + b"\r\n\r\n"
    for request in (
        post + b"Content-Length: -1\r\n\r\n{}",
        post + b"Content-Length: 99999999999\r\n\r\n",
        post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        post.replace(b"application/json", b"\xff; charset=\xff") + b"Content-Length: 2\r\n\r\n{}",
        post + b'Authorization: Bearer \xff\r\nContent-Length: 31\r\n\r\n{"amount": 1, "currency":"USD"}',
        b"GET /payment/status?outTradeNo=\xff" + end,
        b"GET /gateway/%ff" + end,
        b"GET /" + b"x" * (1 << 20) + end,
        b"nonsense\r\n\r\n",
    ):
        status = int((await raw(sandbox.url, request)).split()[1])

        assert 400 <= status < 500, request[:200]
        assert 421 != status, request[:200]
    assert [] == [record.getMessage() for record in caplog.records if record.exc_info]


async def test_body_that_breaks_off(sandbox: Sandbox, foreign: Foreign) -> None:
    """If a client disconnects in the middle of its body, the sandbox continues, and records no call."""
    host, _, port = sandbox.url.removeprefix("http://").partition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"POST /v1/payments HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 99\r\n\r\n{{".encode())
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    placed = await foreign.place("T1")

    assert (200, ["orders.place"]) == (placed.status, [call.operation for call in sandbox.ledger.calls()])
