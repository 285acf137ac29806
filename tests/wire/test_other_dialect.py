"""A service unlike the document's samples wherever the document lets it, described by a TOML text alone."""

from collections.abc import Awaitable, Callable, Iterator
from datetime import date
from typing import Any, Final

import pytest

from payasync import (
    Credentials,
    InvalidSignatureError,
    OutcomeUnknownError,
    Profile,
    Response,
    RetryPolicy,
    Session,
)
from tests.foreign import dialect
from tests.foreign.dialect import Dialect, Keys

TOML: Final = """
name = "quay"
bearer = ["payments.create"]
signed = ["orders.place", "orders.query", "orders.close", "refunds.create", "payments.status", "refunds.status",
          "subscriptions.create", "subscriptions.update", "subscriptions.cancel"]
merchant = ["payments.create", "orders.place", "orders.query", "orders.close", "refunds.create", "payments.status",
            "refunds.status", "subscriptions.create", "subscriptions.update", "subscriptions.cancel"]

[signature]
algorithm = "rsa-sha256"
encoding = "base64"
prehash = "sha256-hex"
nested = "json"
allow_delimiters = ["subject", "notifyUrl", "backTo", "payLink", "subscriber"]

[fields]
return_url = "backTo"
frequency = "cycle"
start_date = "beginOn"
subscription_amount = "fee"
customer = "subscriber"
subscription_id = "agreementNo"
[formats]
start_date = "%d/%m/%Y"
[constants."*"]
signType = "RSA2"
version = 3
[constants."orders.close"]
closeReason = "merchant"
[headers]
X-Api-Version = "2027-01"

[status.payment]
name = "orderNo"
place = "path"
[status.refund]
name = "X-Refund-No"
place = "header"

[answer]
data = "data"
code = "code"
ok = [0]
message = "msg"
request_id = "header:x-trace-id"
payment_id = "payNo"
payment_status = "payState"
redirect_url = "payLink"
order_status = "state"
refund_status = "refundState"
subscription_id = "agreementNo"
subscription_status = "phase"
signature = "data.sign"

[states.order]
pending = [0, 1]
paid = [2]
closed = [9]
[states.payment]
paid = [20]
[states.refund]
processing = [7]
succeeded = [8]
[states.subscription]
scheduled = [0]
active = [1]
cancelled = [3]

[codes]
not_executed = [4001, 4002, 4003]
duplicate = [4004]
absent = [4005]
"""

BACK: Final = "https://shop.example/thanks?a=1&b=ü"
LINK: Final = f"https://gate.example/pay?no=T2&back={BACK}"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Keys]:
    """Return the keys of this run: the merchant's, the service's old ones, and its new ones."""
    folder = tmp_path_factory.mktemp("keys")
    return {owner: dialect.keys(folder / owner) for owner in ("merchant", "old", "new")}


def credentials(keys: dict[str, Keys], *known: str) -> Credentials:
    """Return the merchant's credentials, with those of the service's keys that it knows."""
    return Credentials(
        dialect.MERCHANT,
        secret_key="sk_other",
        signing_key=keys["merchant"].private.read_text(),
        service_keys=tuple(keys[each].public.read_text() for each in known),
    )


@pytest.fixture
def service(keys: dict[str, Keys]) -> Iterator[Dialect]:
    """Return the service, which knows a paid order, its payment and refund, and an agreement."""
    with Dialect(keys["merchant"].public, keys["old"].private) as running:
        for number, state in {"T1": 2, "P1": 20, "R1": 8, "A0": 0}.items():
            running.know(number, state)
        yield running


@pytest.fixture
def pay(service: Dialect, keys: dict[str, Keys]) -> Session:
    """Return a session with the service that the text describes, while the service's keys rotate."""
    return session(service, credentials(keys, "old", "new"))


def session(service: Dialect, given: Credentials, text: str = TOML, **settings: Any) -> Session:
    """Return a session with the service that a TOML text describes."""
    return Session(f"{service.url}/gate", credentials=given, profile=Profile.from_toml(text), **settings)


Ask = Callable[[Session], Awaitable[Response]]


def place(pay: Session) -> Awaitable[Response]:
    """Place an order."""
    return pay.orders.place(
        total_amt=450,
        currency="CAD",
        subject="Coffee & cake = 2 ☕",
        body="",
        notify_url="https://shop.example/notify?a=1&b=2",
        return_url=BACK,
        out_trade_no="T2",
    )


def subscribe(pay: Session) -> Awaitable[Response]:
    """Subscribe a customer, whose details are nested."""
    return pay.subscriptions.create(
        frequency="monthly",
        amount=900,
        start_date=date(2027, 1, 31),
        customer={"name": "Zoë & Co", "email": "a@example.com", "tags": ["x", {"vip": True}]},
    )


def refund(pay: Session) -> Awaitable[Response]:
    """Refund a part of the order."""
    return pay.refunds.create(out_trade_no="T1", out_refund_no="R2", total_amt=450, refund_amt=200)


TEN: Final[tuple[tuple[Ask, str, dict[str, Any]], ...]] = (
    (
        lambda pay: pay.payments.create(amount=1000, currency="USD"),
        "paid",
        {"payment_id": 70001, "payment_status": 20},
    ),
    (place, "pending", {"redirect_url": LINK, "order_status": 0}),
    (lambda pay: pay.orders.query("T1"), "paid", {"redirect_url": None, "order_status": 2}),
    (lambda pay: pay.orders.close("T1"), "closed", {"order_status": 9}),
    (refund, "processing", {"refund_status": 7}),
    (lambda pay: pay.payments.status("P1"), "paid", {"payment_id": "P1", "payment_status": 20}),
    (lambda pay: pay.refunds.status("R1"), "succeeded", {"refund_status": 8}),
    (subscribe, "scheduled", {"subscription_id": "A1", "subscription_status": 0}),
    (lambda pay: pay.subscriptions.update("A0", amount=1000), "active", {"subscription_status": 1}),
    (lambda pay: pay.subscriptions.cancel("A0"), "cancelled", {"subscription_id": "A0", "subscription_status": 3}),
)


@pytest.mark.parametrize("text", [TOML, Profile.from_toml(TOML).to_toml()], ids=["given", "written"])
async def test_all_ten_are_understood_by_both(service: Dialect, keys: dict[str, Keys], text: str) -> None:
    """The service takes each of the ten as the text describes them, and its answer means what the text says.

    What `to_toml` writes of the description drives the service just as well.
    """
    async with session(service, credentials(keys, "old", "new"), text) as pay:
        for number, (ask, state, located) in enumerate(TEN, start=1):
            response = await ask(pay)

            assert (state, f"trace-{number}", 200) == (response.state, response.request_id, response.http_status)
            assert located == {name: getattr(response, name) for name in located}
    assert len(TEN) == len(service.requests)


def replaced(what: bytes, by: bytes) -> Callable[[bytes], bytes]:
    """Return what happens to an answer on its way."""
    return lambda raw: raw.replace(what, by)


FORGERIES: Final = {
    "changed": replaced(b'State":', b'State":1'),
    "added": replaced(b'"data":{', b'"data":{"gift":1,'),
    "emptied": replaced(b'"data":{', b'"data":{},"was":{'),
    "one name twice": replaced(b'"data":{', b'"data":{"payState":2,"refundState":2,"payState":2,'),
    "twice in the envelope": replaced(b'{"code":0', b'{"code":4001,"code":0'),
    "another signature": replaced(b'"sign":"', b'"sign":"AAAA'),
    "no signature": replaced(b'"sign":', b'"sing":'),
}


@pytest.mark.parametrize("tamper", FORGERIES.values(), ids=FORGERIES)
async def test_a_forged_answer_is_no_answer(service: Dialect, pay: Session, tamper: Callable[[bytes], bytes]) -> None:
    """A read refuses it, and a write, which may have been done, is unknown; neither is sent a second time."""
    service.tamper = tamper
    async with pay:
        with pytest.raises(InvalidSignatureError):
            await pay.payments.status("P1")
        with pytest.raises(OutcomeUnknownError) as caught:
            await pay.payments.create(amount=1, currency="USD")

    assert isinstance(caught.value.reason, InvalidSignatureError)
    assert 2 == len(service.requests)


async def test_absent_beside_what_is_signed(service: Dialect, keys: dict[str, Keys]) -> None:
    """A code that no signature covers, changed to "absent" beside signed data, leads to no second refund.

    The answer contradicts itself: the next one may be right, and it is asked for a few times.
    """

    def tampered(raw: bytes) -> bytes:
        write = service.requests[-1].method == "POST"
        return FORGERIES["another signature"](raw) if write else raw.replace(b'"code":0', b'"code":4005')

    service.tamper = tampered
    text = TOML.replace('signature = "data.sign"', 'signature = "data.sign"\nrefusals_signed = false')
    text += "[recovery]\nquarantine = 0\n"
    hasty = RetryPolicy(base_delay=0.001, max_delay=0.002)
    async with session(service, credentials(keys, "old", "new"), text, retry=hasty) as pay:
        with pytest.raises(OutcomeUnknownError, match="no such refund, and that it is processing"):
            await refund(pay)

    assert ["POST", "GET", "GET", "GET"] == [request.method for request in service.requests]


async def test_the_services_keys_rotate(service: Dialect, pay: Session, keys: dict[str, Keys]) -> None:
    """While both keys are given, either's answers are taken; with the old one alone, the new one's are not.

    Nobody else's key will do, not even the merchant's own.
    """
    async with pay, session(service, credentials(keys, "old")) as late:
        before = [(await each.orders.query("T1")).state for each in (pay, late)]
        service.own = keys["new"].private
        after = (await pay.orders.query("T1")).state
        with pytest.raises(InvalidSignatureError):
            await late.orders.query("T1")
        service.own = keys["merchant"].private
        with pytest.raises(InvalidSignatureError):
            await pay.orders.query("T1")

    assert ["paid"] * 3 == [*before, after]
