"""The timeline: events in the order in which they happened."""

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from attrs import evolve

from payasync import PayasyncError, Secret, SortedPairs
from payasync.sandbox import PROFILE, Sandbox
from payasync.sandbox.faults import Fault, Faults
from payasync.sandbox.model import Entry
from payasync.sandbox.store import MAX_ENTRIES, MAX_TEXT, Store
from payasync.sandbox.timeline import format_entry
from tests.inside import until
from tests.sandbox.admin import Operator
from tests.sandbox.foreign import PAY, QUERY, Answer, Foreign


def told(lines: list[str]) -> list[str]:
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
    ] == told(sandbox.timeline())


async def test_number_that_the_sandbox_made_is_shown(sandbox: Sandbox, foreign: Foreign) -> None:
    """If a request names no number, its entry has the number that the sandbox made."""
    paid = await foreign.send("POST", PAY, json={"amount": 450, "currency": "CAD"}, headers=foreign.bearer)
    begun = await foreign.subscribe()
    requests = [each for each in told(sandbox.timeline()) if each.startswith("request")]

    assert [
        f"request  payments.create {paid.document['outTradeNo']} -> 200 SBX_OK",
        f"request  subscriptions.create {begun.document['subscriptionId']} -> 200 SBX_OK",
    ] == requests


async def test_refusal_shows_its_reason(sandbox: Sandbox, foreign: Foreign) -> None:
    """The entry of a refused request has its reason, with or without a number."""
    await foreign.post(QUERY, outTradeNo="T9")
    answer = await foreign.send("POST", QUERY, data=b"{", headers={"Content-Type": "application/json"})
    await foreign.send("GET", "/payment/unknown?a=b")

    assert [
        "request  orders.query T9 -> 404 SBX_NOT_FOUND: there is no such order",
        f"request  orders.query -> 400 SBX_INVALID: {answer.document['message']}",
        "request  GET /payment/unknown -> 404",
    ] == told(sandbox.timeline())


@pytest.mark.parametrize("failures", ["status", "200"])
async def test_fault_after_a_refusal_shows_the_refusal(failures: Any) -> None:
    """If a fault replaces a refusal, which may be inside HTTP 200, the entry does not say that it was done."""
    async with Sandbox(failures=failures) as sandbox, sandbox.session() as pay:
        sandbox.faults.server_error("orders.query", phase="after", times=9)
        with pytest.raises(PayasyncError):
            await pay.orders.query(out_trade_no="T9")
        line = told(sandbox.timeline())[0]

    assert "-> 503 SBX_BUSY, refused: SBX_NOT_FOUND [fault" in line


async def wrongly_signed(foreign: Foreign) -> tuple[dict[str, Any], Answer]:
    """Send a query whose signature is wrong, and return its fields and the response."""
    fields = {**foreign.signed({"outTradeNo": "T1"}), "sign": "0" * 64}
    return fields, await foreign.send("POST", QUERY, json=fields)


async def test_bad_signature_shows_the_text_to_sign(sandbox: Sandbox, foreign: Foreign) -> None:
    """The timeline and the dashboard show the text to sign; the response does not."""
    fields, answer = await wrongly_signed(foreign)
    text = f"merchantId=SANDBOX&nonceStr={fields['nonceStr']}&outTradeNo=T1"
    page = await Operator(sandbox, foreign.http).get("/")

    assert (401, "SBX_BAD_SIGNATURE") == answer.told
    assert told(sandbox.timeline())[0].endswith(f"; the text to sign: {text}")
    assert text.replace("&", "&amp;") in page.document
    assert "nonceStr=" not in f"{answer.document}{answer.headers}"


async def test_no_secret_is_shown(sandbox: Sandbox, foreign: Foreign) -> None:
    """The timeline contains no key, no token and no details of a customer."""
    await wrongly_signed(foreign)
    secret = "a-customers-secret"
    for amount in (1, 0):
        await foreign.subscribe(customer={"name": secret}, amount=amount)
    await foreign.send("POST", "/subscriptions/nothing", json={"customer": secret}, headers=foreign.bearer)
    await foreign.send("GET", f"/?token={sandbox.admin_token.reveal()}")
    lines = "\n".join(sandbox.timeline())
    given = sandbox.credentials
    keys = [given.secret_key, given.signing_key, given.public_key, sandbox.admin_token, *given.notification_keys]

    assert 4 < len(lines.splitlines())
    assert [] == [key for key in keys if key and key.reveal() in lines]
    assert secret not in lines


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
        lines = told(sandbox.timeline())

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


async def test_fault_is_named(sandbox: Sandbox, foreign: Foreign) -> None:
    """The entry of a request that met a fault names the fault and the order."""
    sandbox.faults.reset_before("orders.query")
    with pytest.raises(aiohttp.ClientError):
        await foreign.post(QUERY, outTradeNo="T1")

    assert ["request  orders.query T1 -> no response [fault: reset_before on orders.query]"] == told(sandbox.timeline())


@pytest.mark.parametrize(
    ("arm", "outcome"),
    [
        (lambda faults: faults.server_error("orders.place"), "503 SBX_BUSY"),
        (lambda faults: faults.server_error("orders.place", phase="after"), "503 SBX_BUSY, done: SBX_OK"),
        (lambda faults: faults.redirect("orders.place", location="/", phase="after"), "302 done: SBX_OK"),
        (lambda faults: faults.reset_after_commit("orders.place"), "no response done: SBX_OK"),
        (lambda faults: faults.latency("orders.place", seconds=0.01), "200 SBX_OK"),
    ],
    ids=["before", "after", "redirect", "reset", "latency"],
)
async def test_fault_shows_what_was_sent(
    arm: Callable[[Faults], Fault], outcome: str, sandbox: Sandbox, foreign: Foreign
) -> None:
    """A call's entry shows the code that was sent, and what was done if a fault replaced the response."""
    fault = arm(sandbox.faults)
    with suppress(aiohttp.ClientError):
        await foreign.place("T1")

    (line,) = (line for line in told(sandbox.timeline()) if line.startswith("request  orders.place"))
    assert f"request  orders.place T1 -> {outcome} [fault: {fault}]" == line


async def test_requests_in_progress_are_the_last_lines(sandbox: Sandbox, foreign: Foreign) -> None:
    """The timeline ends with the requests in progress; each gets one entry when it ends."""
    fault = sandbox.faults.hang("orders.query")
    asking = asyncio.create_task(foreign.post(QUERY, outTradeNo="T1"))
    await until(lambda: fault.fired)
    await foreign.place("T2")
    during, listed = told(sandbox.timeline()), await Operator(sandbox, foreign.http).get("/admin/timeline")
    asking.cancel()
    await asyncio.wait([asking])
    await until(lambda: "in progress" not in sandbox.timeline()[-1])

    placed = ["change   order T2 -> pending", "request  orders.place T2 -> 200 SBX_OK"]
    hanging = "request  orders.query T1 -> {} [fault: hang on orders.query]"
    assert [*placed, hanging.format("in progress")] == during == told(listed.document["timeline"])
    assert [*placed, hanging.format("no response")] == told(sandbox.timeline())


async def test_request_whose_response_is_being_signed_is_listed_once(http: aiohttp.ClientSession) -> None:
    """A request that was carried out, and whose response a scheme of one's own still signs, has one line."""
    signing, go_on = asyncio.Event(), asyncio.Event()

    class Slow:
        async def sign(self, _: object, *, path: str, key: Secret) -> str:  # noqa: ARG002 - the profile calls it so
            signing.set()
            await go_on.wait()
            return "signed"

        def verify(self, *_: object, **__: object) -> bool:
            return True

    profile = evolve(PROFILE, signature=Slow(), answer=evolve(PROFILE.answer, signature="sign"))
    async with Sandbox(profile) as sandbox:
        placing = asyncio.create_task(Foreign(sandbox, http).place("T1"))
        await signing.wait()
        during = told(sandbox.timeline())
        go_on.set()
        await placing

        lines = ["change   order T1 -> pending", "request  orders.place T1 -> 200 SBX_OK"]
        assert lines == during == told(sandbox.timeline())


async def test_file_keeps_the_timeline(tmp_path: Path) -> None:
    """After a restart, the file still has the timeline, with times of the sandbox's clock."""
    path = str(tmp_path / "sandbox.db")
    noon = datetime(2027, 1, 31, 12, tzinfo=UTC)
    async with Sandbox(db=path, clock=noon) as sandbox, sandbox.session() as pay:
        await pay.orders.place(total_amt=450, currency="CAD")
        before = sandbox.timeline()
    async with Sandbox(db=path) as sandbox:
        assert before == sandbox.timeline()
    assert ["2027-01-31T12:00:00.000Z"] * 2 == [line.partition(" ")[0] for line in before]


def test_only_the_newest_are_kept(store: Store) -> None:
    """Only the newest ten thousand entries are stored."""
    for number in range(MAX_ENTRIES + 3):
        store.add_entry(Entry(kind="request", name=str(number)))
    entries = store.find_all(Entry)

    assert (MAX_ENTRIES, "3", str(MAX_ENTRIES + 2)) == (len(entries), entries[0].name, entries[-1].name)


def test_texts_are_cut(store: Store) -> None:
    """Long texts of an entry are cut."""
    store.add_entry(Entry(kind="request", name="orders.place", expected="x" * (MAX_TEXT + 1)))

    assert f"{'x' * MAX_TEXT}… ({MAX_TEXT + 1:,} characters)" == store.find_all(Entry)[0].expected


def test_line_is_one_line() -> None:
    """Control characters in an entry are escaped, so that it stays one line."""
    entry = Entry(kind="request", name="GET /\n\x1b[2J", reference="\u2028é", reason="a\tb\ud800")

    assert r"request  GET /\n\x1b[2J \u2028é -> no response: a\tb\ud800" == format_entry(entry)
