"""docs/reference/services/: each example of a document happens, and the sandbox plays each service."""

import ast
import asyncio
import base64
import hashlib
import json
import re
import time
from collections.abc import Awaitable, Iterator
from datetime import date
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import frozen

from payasync import Credentials, PayasyncError, Profile, RetryPolicy, ServiceError, Session
from payasync.journal import Reconciler, SqliteJournal
from payasync.notifications import Notification, Receiver, SqliteInbox
from payasync.profile.readiness import inspect_groups, notification_facts
from payasync.sandbox import PROFILE, Sandbox
from payasync.wire.response import Response
from tests.foreign.recorder import Answer, Recorder, Request, answer
from tests.foreign.signatures import rsa_keys, rsa_sha256
from tests.test_readme import blocks

FOLDER: Final = Path(__file__).parents[1] / "docs" / "reference" / "services"
SERVICES: Final = ("alder", "birch", "cedar", "dogwood", "elm")
ANYTHING: Final = "…"
"""What an example does not show: a nonce, a time, a key or a signature."""
FAST: Final = RetryPolicy(base_delay=0)
KEY: Final = "signing key of M1"


@frozen
class Example:
    """One call, as a page shows it.

    Attributes:
        call: In Python.
        result: The state that it returns, or the name of the error that it raises.
        request: As the service's document shows it.
        response: The same.
    """

    call: str
    result: str
    request: str
    response: str


IF_SHARED: Final = 'If all merchants share the key, set signature.service_key = "shared"'


def page(service: str) -> str:
    """Return the page about a service."""
    return FOLDER.joinpath(f"{service}.md").read_text(encoding="utf-8")


def profile_of(service: str) -> Profile:
    """Return the profile that the page shows."""
    ((_, text),) = blocks(page(service), "toml")
    return Profile.from_toml(text)


def examples(service: str) -> list[Example]:
    """Return the calls of a page, each with its request and its response."""
    found = re.findall(r"^`(pay\..*)` (?:returns|raises) `(\w+)`$", page(service), re.MULTILINE)
    shown = [text for _, text in blocks(page(service), "http")]

    assert len(shown) == 2 * len(found)
    return [Example(*each, *shown[2 * at : 2 * at + 2]) for at, each in enumerate(found)]


def parts(message: str) -> tuple[str, dict[str, str], Any]:
    """Return the first line, the headers and the JSON of a message."""
    head, _, body = message.partition("\n\n")
    first, *lines = head.splitlines()
    return first, dict(line.split(": ", 1) for line in lines), json.loads(body) if body.strip() else None


def matches(shown: Any, sent: Any) -> bool:
    """Return whether what was sent is what a document shows."""
    if isinstance(shown, str) and isinstance(sent, str):
        return bool(re.fullmatch(re.escape(shown).replace(re.escape(ANYTHING), ".+"), sent))
    if isinstance(shown, dict) and isinstance(sent, dict):
        return shown.keys() == sent.keys() and all(matches(shown[name], sent[name]) for name in shown)
    return type(shown) is type(sent) and bool(shown == sent)


def differences(shown: str, request: Request) -> Iterator[str]:
    """Yield how a request differs from what a document shows."""
    first, headers, body = parts(shown)
    if not matches(first.removesuffix(" HTTP/1.1"), f"{request.method} {request.target}"):
        yield f"{request.method} {request.target} is not {first}"
    for name, value in headers.items():
        if [True] != [matches(value, each) for each in request.header(name)]:
            yield f"{name} is {request.header(name)}, not {value}"
    sent = json.loads(request.body) if request.body else None
    if not matches(body, sent):
        yield f"{sent} is not {body}"


def response_of(example: Example, private_key: Path) -> Answer:
    """Return a response as its service signs it: Alder in the body, Cedar in headers, and the others not at all."""
    first, headers, body = parts(example.response)
    if "sign" in body:
        fields = {name: value for name, value in sorted(body.items()) if name != "sign"}
        text = "&".join(f"{name}={value}" for name, value in [*fields.items(), ("key", KEY)])
        body["sign"] = hashlib.md5(text.encode()).hexdigest().upper()  # noqa: S324 - as the service has it
    raw = json.dumps(body, indent=2).encode()
    if "Cedar-Signature" in headers:
        headers["Cedar-Timestamp"] = str(int(time.time()))
        text = f"{headers['Cedar-Timestamp']}\n{headers['Cedar-Nonce']}\n{raw.decode()}\n"
        headers["Cedar-Signature"] = base64.b64encode(rsa_sha256(text, private_key)).decode()
    return answer(int(first.split()[1]), raw, *headers.items())


def credentials_of(profile: Profile, keys: tuple[Path, Path]) -> Credentials:
    """Return the merchant's credentials; of RSA, one pair of keys serves both sides."""
    private, public = (key.read_text(encoding="ascii") for key in keys)
    asymmetric = getattr(profile.signature, "algorithm", "").startswith("rsa")
    return Credentials(
        merchant_id="M1",
        public_key="pk_1",
        secret_key="sk_1",
        signing_key=private if asymmetric else KEY,
        service_keys=(public,) if asymmetric else (),
    )


async def outcome(call: Awaitable[Response]) -> str:
    """Return the state that a call returns, or the name of the error that it raises."""
    try:
        return str((await call).state)
    except PayasyncError as error:
        return type(error).__name__


def called(pay: Session, text: str) -> Awaitable[Response]:
    """Make a call as a page writes it: a method of `pay` with literal arguments."""
    tree = ast.parse(text, mode="eval").body
    assert isinstance(tree, ast.Call)
    assert isinstance(tree.func, ast.Attribute)
    assert isinstance(tree.func.value, ast.Attribute)
    method = getattr(getattr(pay, tree.func.value.attr), tree.func.attr)
    named = {each.arg or "": ast.literal_eval(each.value) for each in tree.keywords}
    made: Awaitable[Response] = method(*map(ast.literal_eval, tree.args), **named)
    return made


@pytest.mark.parametrize(
    ("service", "example"),
    [pytest.param(each, one, id=f"{each}: {one.call}") for each in SERVICES for one in examples(each)],
)
async def test_example_happens(service: str, example: Example, tmp_path: Path) -> None:
    """A call sends the request that the service's document shows, and its response has the outcome of the page."""
    profile, keys = profile_of(service), rsa_keys(tmp_path)
    with Recorder([response_of(example, keys[0])]) as recorder:
        credentials = credentials_of(profile, keys)
        async with Session(recorder.url, credentials=credentials, profile=profile, retry=FAST) as pay:
            found = await outcome(called(pay, example.call))

    assert [] == list(differences(example.request, recorder.requests[0]))
    assert (example.result, 1) == (found, len(recorder.requests))


@pytest.mark.parametrize("service", SERVICES)
def test_profile_is_ready(service: str) -> None:
    """The file of each page leaves nothing open that any group of methods needs."""
    assert [] == [each.thing for group in inspect_groups(profile_of(service)) for each in group.missing]


@pytest.mark.parametrize("service", SERVICES)
def test_signatures_bind_to_the_merchant(service: str) -> None:
    """The signature of each kind of notification binds it to this merchant: by the key, or by a number in it."""
    facts = dict(notification_facts(profile_of(service)))

    by = "bound to this merchant by"
    shared = f"all merchants share its key (assumed): {by} resource.mchid, if the event has it"
    grounds = shared if service == "cedar" else f"{by} its key, which no other merchant has (assumed). {IF_SHARED}"
    kinds = ("payment", "refund", "subscription")
    assert [] == [kind for kind in kinds if not facts[kind].startswith(grounds)]


async def story(profile: Profile, folder: Path) -> list[str]:
    """Return the outcomes of all methods, of a lost response, of notifications, and of a reconciliation."""
    told: list[str] = []
    async with (
        Sandbox(profile, refunds="succeed") as sandbox,
        sandbox.receiver() as recorder,
        SqliteJournal(folder / "pay.db") as journal,
        sandbox.session(journal=journal, retry=FAST) as pay,
        Receiver(
            profile=profile, credentials=sandbox.credentials, inbox=SqliteInbox(folder / "inbox.db"), session=pay
        ) as receiver,
    ):

        @receiver.on("*")
        async def keep(notification: Notification) -> None:
            told.append(f"{notification.kind} {notification.state}")

        placed: Any = {"out_trade_no": "T1", "total_amt": 450, "currency": "CAD"}
        refund: Any = {"out_trade_no": "T1", "total_amt": 450, "notify_url": recorder.url}
        payment = await pay.payments.create(amount=100, currency="CAD", description="Invoice 42")
        found = [await outcome(pay.payments.status(str(payment.payment_id)))]
        order = await pay.orders.place(**placed, subject="Coffee", notify_url=recorder.url)
        await sandbox.customer.authorize(order)
        found += [await outcome(each) for each in (pay.orders.query("T1"), pay.orders.close("T1"))]
        found += [await outcome(each) for each in (pay.orders.query("T9"), pay.refunds.status("R9", out_trade_no="T1"))]
        sandbox.faults.reset_after_commit("refunds.create")
        lost = await pay.refunds.create(**refund, out_refund_no="R1", refund_amt=200)
        found += [str(lost.recovered), str(lost.state), str(sandbox.ledger.refunded("T1"))]
        found.append(await outcome(pay.refunds.create(**refund, out_refund_no="R2", refund_amt=400)))
        found.append(await outcome(pay.refunds.status("R1", out_trade_no="T1")))
        await pay.orders.place(out_trade_no="T2", total_amt=450, currency="CAD")
        found.append(await outcome(pay.orders.close("T2")))
        sandbox.webhook_url = recorder.url  # for what has no address of its own: subscriptions
        plan: Any = {"frequency": "monthly", "start_date": date(2027, 1, 31), "customer": {"name": "Ann"}}
        made = await pay.subscriptions.create(amount=900, **plan)
        number = str(made.subscription_id)
        found += [str(made.state), await outcome(pay.subscriptions.update(number, amount=1000))]
        found += [await outcome(pay.subscriptions.cancel(number)) for _ in range(2)]
        async with sandbox.session(retry=FAST) as other:  # a shop that forgot its journal
            found.append(await outcome(other.orders.place(out_trade_no="T1", total_amt=900, currency="CAD")))
        await sandbox.settle()
        for each in recorder.received:
            answered = await receiver.receive(each.body.encode(), each.headers)
            found.append(f"{answered.status == (profile.notification.ack_status or 200)}")
        await receiver.settle()
        await Reconciler(pay, journal).run_once()
        found += [f"{each.operation} {each.state}" for each in await journal.list()]
    return [*found, *sorted(told)]


async def test_words_of_alder() -> None:
    """As in Alder's document, `return_code` tells a success, and only failures have `err_code` and `err_msg`."""
    async with Sandbox(profile_of("alder")) as sandbox, sandbox.session(retry=FAST) as pay:
        placed = await pay.orders.place(out_trade_no="T1", total_amt=450, currency="CAD")
        with pytest.raises(ServiceError) as caught:
            await pay.orders.query("T9")

    assert caught.value.response is not None
    words = {"return_code", "err_code", "err_msg", "return_msg"}
    assert {"return_code"} == words & placed.document.keys()
    assert ("SUCCESS", "NOTEXIST") == (placed.document["return_code"], caught.value.response.document["err_code"])
    assert {"err_code", "err_msg"} == words & caught.value.response.document.keys()


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The outcomes with the sandbox's own profile."""
    return asyncio.run(story(PROFILE, tmp_path_factory.mktemp("usual")))


@pytest.mark.parametrize("service", SERVICES)
async def test_sandbox_plays_it(service: str, usual: list[str], tmp_path: Path) -> None:
    """All methods, recovery, notifications and the reconciler have the outcomes that they have with any service."""
    assert usual == await story(profile_of(service), tmp_path)
