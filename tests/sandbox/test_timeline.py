"""The timeline: events in the order in which they happened."""

import asyncio
import json
import re
from contextlib import suppress
from itertools import product
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
from attrs import evolve

from payasync import SortedPairs
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.model import Entry
from payasync.sandbox.store import MAX_ENTRIES, MAX_TEXT, Store
from payasync.sandbox.timeline import format_entry
from tests.inside import until
from tests.sandbox.admin import Operator
from tests.sandbox.foreign import PAY, QUERY, Foreign


def untimed(lines: list[str]) -> list[str]:
    """Return the lines without their times."""
    return [re.sub(r"^\S+Z | \([\d.]+ ms\)", "", each) for each in lines]


async def test_requests_changes_and_deliveries_in_order(sandbox: Sandbox, foreign: Foreign) -> None:
    """Requests with their responses, changes of state and deliveries are listed oldest first."""
    await foreign.place("T1")
    await sandbox.customer.authorize("T1")
    await sandbox.settle()
    await foreign.refund("R1", 200, out_trade_no="T1")
    await sandbox.settle()

    assert [
        "change   order T1 -> pending",
        "request  orders.place T1 -> 200 SBX_OK",
        "change   order T1 -> pending -> paid",
        "request  gateway.authorize T1 -> 200",
        "delivery payment.paid T1 -> 200 acknowledged",
        "change   refund R1 -> processing",
        "change   refund R1 -> processing -> succeeded",
        "request  refunds.create R1 -> 200 SBX_OK",
        "delivery refund.succeeded R1 -> 200 acknowledged",
    ] == untimed(sandbox.timeline())


async def test_request_shows_its_reason_and_its_number(sandbox: Sandbox, foreign: Foreign) -> None:
    """A refused request has its reason, with or without a number, and one without a number has what was made."""
    await foreign.post(QUERY, outTradeNo="T9")
    answer = await foreign.send("POST", QUERY, data=b"{", headers={"Content-Type": "application/json"})
    await foreign.send("GET", "/payment/unknown?a=b")
    paid = await foreign.send("POST", PAY, json={"amount": 450, "currency": "CAD"}, headers=foreign.bearer)
    begun = await foreign.subscribe()

    assert [
        "request  orders.query T9 -> 404 SBX_NOT_FOUND: there is no such order",
        f"request  orders.query -> 400 SBX_INVALID: {answer.document['message']}",
        "request  GET /payment/unknown -> 404",
        f"request  payments.create {paid.document['outTradeNo']} -> 200 SBX_OK",
        f"request  subscriptions.create {begun.document['subscriptionId']} -> 200 SBX_OK",
    ] == [each for each in untimed(sandbox.timeline()) if each.startswith("request")]


async def test_bad_signature_shows_the_text_to_sign(sandbox: Sandbox, foreign: Foreign) -> None:
    """The timeline and the dashboard show the text to sign. The response does not, but leads there.

    The timeline contains no key, no token and no details of a customer.
    """
    fields, secret, given = foreign.signed({"outTradeNo": "T1"}), "a-customers-secret", sandbox.credentials
    answer = await foreign.send("POST", QUERY, json={**fields, "sign": "0" * 64})
    text = f"merchantId=SANDBOX&nonceStr={fields['nonceStr']}&outTradeNo=T1"
    page = await Operator(sandbox, foreign.http).get("/")
    for amount in (1, 0):
        await foreign.subscribe(customer={"name": secret}, amount=amount)
    await foreign.send("POST", "/subscriptions/nothing", json={"customer": secret}, headers=foreign.bearer)
    await foreign.send("GET", f"/?token={sandbox.admin_token.reveal()}")
    lines = sandbox.timeline()
    keys = [given.secret_key, given.signing_key, given.public_key, sandbox.admin_token, *given.notification_keys]

    assert (401, "SBX_BAD_SIGNATURE") == answer.result
    assert untimed(lines)[0].endswith(f"; the text to sign: {text}")
    assert text.replace("&", "&amp;") in page.document
    assert "nonceStr=" not in f"{answer.document}{answer.headers}"
    assert "the sandbox's dashboard shows the text to sign" in answer.document["message"]
    assert 4 < len(lines)
    assert [] == [each for each in (secret, *(key.reveal() for key in keys if key)) if each in "\n".join(lines)]


async def test_customers_details_are_not_in_the_text_to_sign(http: aiohttp.ClientSession) -> None:
    """If a profile signs a customer's details, the text to sign is shown without them."""
    profile = evolve(
        PROFILE,
        signed=("subscriptions.create",),
        signature=SortedPairs(algorithm="hmac-sha256", encoding="hex", nested="json"),
    )
    async with Sandbox(profile) as sandbox:
        wrong = {"nonceStr": "n1", "sign": "0" * 64, "customer": {"name": "Secretive"}}
        answer = await Foreign(sandbox, http).subscribe(**wrong)
        lines = untimed(sandbox.timeline())

    assert (401, 1) == (answer.status, len(lines))
    assert "&customer=<customer details>&" in lines[0]
    assert "Secretive" not in lines[0]


async def test_log_record_of_a_request_is_plain_json(
    sandbox: Sandbox, foreign: Foreign, caplog: pytest.LogCaptureFixture
) -> None:
    """The record of a request has its entry as a dictionary, so that a log in JSON shows its fields."""
    caplog.set_level("INFO", "payasync.sandbox")
    await foreign.place("T1")
    (seen,) = (vars(each)["seen"] for each in caplog.records if "seen" in vars(each))
    (entry,) = (each for each in sandbox.timeline() if " request " in each)

    assert entry.endswith(f" {format_entry(Entry(**json.loads(json.dumps(seen))))}")
    assert ("orders.place", "T1", 200) == (seen["name"], seen["reference"], seen["status"])


async def test_fault_shows_what_was_sent() -> None:
    """A call's entry shows the fault, the code that was sent, and what was done if a fault replaced the response.

    A refusal, which may be inside HTTP 200, does not look as if it were done.
    """
    after: Any = {"phase": "after"}
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("reset_before", {}, "no response"),
        ("server_error", {}, "503 SBX_BUSY"),
        ("server_error", after, "503 SBX_BUSY, done: SBX_OK"),
        ("redirect", {"location": "/", **after}, "302 done: SBX_OK"),
        ("reset_after_commit", {}, "no response done: SBX_OK"),
        ("latency", {"seconds": 0.01}, "200 SBX_OK"),
        ("server_error", {"nth": 2, **after}, "503 SBX_BUSY, refused: SBX_DUPLICATE"),
    ]
    settings: list[Any] = ["status", "200"]
    for (kind, options, outcome), failures in product(cases, settings):
        async with Sandbox(failures=failures) as sandbox, aiohttp.ClientSession() as http:
            foreign, fault = Foreign(sandbox, http), sandbox.faults.arm(kind, "orders.place", **options)
            for amount in (450, 451)[: options.get("nth", 1)]:
                with suppress(aiohttp.ClientError):
                    await foreign.place("T1", amount)
            requests = [each for each in untimed(sandbox.timeline()) if each.startswith("request")]

        assert f"request  orders.place T1 -> {outcome} [fault: {fault}]" == requests[-1].partition(": the number")[0]


async def test_requests_in_progress_are_the_last_lines(sandbox: Sandbox, foreign: Foreign) -> None:
    """The timeline ends with the requests in progress; each gets one entry when it ends."""
    fault = sandbox.faults.hang("orders.query")
    asking = asyncio.create_task(foreign.post(QUERY, outTradeNo="T1"))
    await until(lambda: fault.fired)
    await foreign.place("T2")
    during, listed = untimed(sandbox.timeline()), await Operator(sandbox, foreign.http).get("/admin/timeline")
    asking.cancel()
    await asyncio.wait([asking])
    await until(lambda: "in progress" not in sandbox.timeline()[-1])

    placed = ["change   order T2 -> pending", "request  orders.place T2 -> 200 SBX_OK"]
    hanging = "request  orders.query T1 -> {} [fault: hang on orders.query]"
    assert [*placed, hanging.format("in progress")] == during == untimed(listed.document["timeline"])
    assert [*placed, hanging.format("no response")] == untimed(sandbox.timeline())


async def test_request_whose_response_is_being_signed_is_listed_once(http: aiohttp.ClientSession) -> None:
    """A request that was carried out, and whose response a scheme of one's own still signs, has one line."""
    signing, go_on = asyncio.Event(), asyncio.Event()

    async def sign(*_: object, **__: object) -> str:
        signing.set()
        await go_on.wait()
        return "signed"

    slow = Mock(sign=sign, verify=Mock(return_value=True))
    profile = evolve(PROFILE, signature=slow, answer=evolve(PROFILE.answer, signature="sign"))
    async with Sandbox(profile) as sandbox:
        placing = asyncio.create_task(Foreign(sandbox, http).place("T1"))
        await signing.wait()
        during = untimed(sandbox.timeline())
        go_on.set()
        await placing

        lines = ["change   order T1 -> pending", "request  orders.place T1 -> 200 SBX_OK"]
        assert lines == during == untimed(sandbox.timeline())


def test_only_the_newest_are_kept(store: Store) -> None:
    """Only the newest ten thousand entries are stored. Long texts of an entry are cut."""
    with store.transaction():
        for number in range(MAX_ENTRIES + 3):
            store.add_entry(Entry(kind="request", name=str(number)))
    store.add_entry(Entry(kind="request", name="long", expected="x" * (MAX_TEXT + 1)))
    entries = store.find_all(Entry)

    assert (MAX_ENTRIES, "4", "long") == (len(entries), entries[0].name, entries[-1].name)
    assert f"{'x' * MAX_TEXT}… ({MAX_TEXT + 1:,} characters)" == entries[-1].expected


def test_line_is_one_line() -> None:
    """Control characters in an entry are escaped, so that it stays one line."""
    entry = Entry(kind="request", name="GET /\n\x1b[2J", reference="\u2028é", reason="a\tb\ud800")

    assert r"request  GET /\n\x1b[2J \u2028é -> no response: a\tb\ud800" == format_entry(entry)
