"""The ten calls as the service's document shows them, and two services that fill its gaps differently."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final
from urllib.parse import unquote

from payasync import Credentials, Parameter, Profile, Response, Session, SortedPairs
from tests.foreign import signatures
from tests.foreign.recorder import Recorder, Request

BASE_PATH: Final = "/gate/v7"
SIGNING_KEY: Final = "signing key & more"
SECRET_KEY: Final = "sk_wire"
CREDENTIALS: Final = Credentials("M1", secret_key=SECRET_KEY, signing_key=SIGNING_KEY)
NOTIFY: Final = "https://shop.example/notify?a=1&b=2"


@dataclass(frozen=True)
class TenCall:
    """One of the ten.

    Attributes:
        name: Namespace and method.
        method: By the document.
        path: By the document.
        call: With every argument.
        fields: What the document lists of it, but for merchantId, nonceStr and sign. Where the document shows no
            wire name, ours stands: the service's is in `Service.names`.
        least: With the required arguments only.
        least_fields: As `fields`.
    """

    name: str
    method: str
    path: str
    call: Callable[[Session], Awaitable[Response]]
    fields: Mapping[str, object]
    least: Callable[[Session], Awaitable[Response]]
    least_fields: Mapping[str, object]


ORDER: Final = {"totalAmt": 450, "currency": "CAD"}
REFUND: Final = {"outTradeNo": "T1", "outRefundNo": "R1", "totalAmt": 450, "refundAmt": 200}
SUBSCRIPTION: Final = {
    "frequency": "monthly",
    "subscription_amount": 900,
    "start_date": "2027-01-31",
    "customer": {"email": "a@example.com", "name": "Zoë"},
}

TEN: Final = (
    TenCall(
        "payments.create",
        "POST",
        "/v1/payments",
        lambda pay: pay.payments.create(amount=1000, currency="USD", description="Invoice 42 = Ü"),
        {"amount": 1000, "currency": "USD", "description": "Invoice 42 = Ü"},
        lambda pay: pay.payments.create(amount=1, currency="USD"),
        {"amount": 1, "currency": "USD"},
    ),
    TenCall(
        "orders.place",
        "POST",
        "/payment/unifiedorder",
        lambda pay: pay.orders.place(
            total_amt=450,
            currency="CAD",
            subject="Coffee & cake",
            body="Large = coffee",
            notify_url=NOTIFY,
            scene_type="JSAPI",
            return_url="https://shop.example/thanks",
            out_trade_no="T1",
        ),
        {
            **ORDER,
            "subject": "Coffee & cake",
            "body": "Large = coffee",
            "notifyUrl": NOTIFY,
            "sceneType": "JSAPI",
            "return_url": "https://shop.example/thanks",
            "outTradeNo": "T1",
        },
        lambda pay: pay.orders.place(total_amt=450, currency="CAD"),
        ORDER,
    ),
    TenCall(
        "orders.query",
        "POST",
        "/payment/orderquery",
        lambda pay: pay.orders.query("T1"),
        {"outTradeNo": "T1"},
        lambda pay: pay.orders.query("T1"),
        {"outTradeNo": "T1"},
    ),
    TenCall(
        "orders.close",
        "POST",
        "/payment/closeorder",
        lambda pay: pay.orders.close("T1"),
        {"outTradeNo": "T1"},
        lambda pay: pay.orders.close("T1"),
        {"outTradeNo": "T1"},
    ),
    TenCall(
        "refunds.create",
        "POST",
        "/payment/refund",
        lambda pay: pay.refunds.create(
            out_trade_no="T1",
            out_refund_no="R1",
            total_amt=450,
            refund_amt=200,
            refund_desc="",
            notify_url=NOTIFY,
        ),
        {**REFUND, "refundDesc": "", "notifyUrl": NOTIFY},
        lambda pay: pay.refunds.create(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200),
        REFUND,
    ),
    TenCall(
        "payments.status",
        "GET",
        "/payment/status",
        lambda pay: pay.payments.status("T1"),
        {"payment_number": "T1"},
        lambda pay: pay.payments.status("T1"),
        {"payment_number": "T1"},
    ),
    TenCall(
        "refunds.status",
        "GET",
        "/payment/refund/status",
        lambda pay: pay.refunds.status("R1"),
        {"refund_number": "R1"},
        lambda pay: pay.refunds.status("R1"),
        {"refund_number": "R1"},
    ),
    TenCall(
        "subscriptions.create",
        "POST",
        "/subscriptions/create",
        lambda pay: pay.subscriptions.create(
            frequency="monthly",
            amount=900,
            start_date=date(2027, 1, 31),
            customer={"email": "a@example.com", "name": "Zoë"},
        ),
        SUBSCRIPTION,
        lambda pay: pay.subscriptions.create(
            frequency="monthly", amount=900, start_date=date(2027, 1, 31), customer={}
        ),
        {**SUBSCRIPTION, "customer": {}},
    ),
    TenCall(
        "subscriptions.update",
        "POST",
        "/subscriptions/update",
        lambda pay: pay.subscriptions.update(
            "S1",
            frequency="monthly",
            amount=900,
            start_date=date(2027, 1, 31),
            customer={"email": "a@example.com", "name": "Zoë"},
        ),
        {"subscription_id": "S1", **SUBSCRIPTION},
        lambda pay: pay.subscriptions.update("S1"),
        {"subscription_id": "S1"},
    ),
    TenCall(
        "subscriptions.cancel",
        "POST",
        "/subscriptions/cancel",
        lambda pay: pay.subscriptions.cancel("S1"),
        {"subscription_id": "S1"},
        lambda pay: pay.subscriptions.cancel("S1"),
        {"subscription_id": "S1"},
    ),
)
NAMES: Final = frozenset(each.name for each in TEN)
SIGNED_BY_DOCUMENT: Final = frozenset({"orders.place", "orders.query", "orders.close", "refunds.create"})


@dataclass(frozen=True)
class Service:
    """A service that fills the document's gaps in its own way, and what that must look like on the wire.

    Attributes:
        profile: Its description.
        names: Its wire names, by ours.
        bearer: The calls that carry `Authorization: Bearer`.
        signed: Those that carry `nonceStr` and `sign`.
        merchant: Those that carry `merchantId`.
        constants: Fields that a call carries, by its name; by `*`, those that all carry.
        headers: Headers that all calls carry.
        places: Where the identifiers of endpoints 6 and 7 stand, by the calls' names.
    """

    profile: Profile
    names: Mapping[str, str]
    bearer: frozenset[str]
    signed: frozenset[str]
    merchant: frozenset[str]
    constants: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    def fields(self, one: TenCall, *, least: bool = False) -> dict[str, object]:
        """Return what a call must carry, but for nonceStr and sign."""
        own = one.least_fields if least else one.fields
        named = {
            **({"merchantId": "M1"} if one.name in self.merchant else {}),
            **self.constants.get("*", {}),
            **self.constants.get(one.name, {}),
            **{self.names.get(name, name): value for name, value in own.items()},
        }
        return named if one.method == "POST" else {name: str(value) for name, value in named.items()}

    def received(self, one: TenCall, request: Request) -> dict[str, Any]:
        """Return all fields of a request, wherever they stand."""
        sent = signatures.fields(request) if request.body or request.query else {}
        place, name = self.places.get(one.name, ("query", ""))
        if place == "path":
            sent[name] = unquote(request.path.rpartition("/")[2])
        if place == "header":
            (sent[name],) = request.header(name)
        return sent


DOCUMENTED: Final = Service(
    profile=Profile(
        signature=SortedPairs(algorithm="hmac-sha256", encoding="hex"),
        fields={
            "return_url": "returnUrl",
            "frequency": "billingFrequency",
            "start_date": "startDate",
            "subscription_amount": "amount",
            "customer": "customer",
            "subscription_id": "subscriptionId",
        },
        formats={"start_date": "%Y-%m-%d"},
        payment_status=Parameter("outTradeNo", "query"),
        refund_status=Parameter("outRefundNo", "query"),
    ),
    names={
        "return_url": "returnUrl",
        "frequency": "billingFrequency",
        "start_date": "startDate",
        "subscription_amount": "amount",
        "customer": "customer",
        "subscription_id": "subscriptionId",
        "payment_number": "outTradeNo",
        "refund_number": "outRefundNo",
    },
    bearer=frozenset({"payments.create"}),
    signed=SIGNED_BY_DOCUMENT,
    merchant=SIGNED_BY_DOCUMENT,
)
"""A service that does what the document says, and no more."""

OTHER_NAMES: Final = {
    "return_url": "back",
    "frequency": "cycle",
    "start_date": "from",
    "subscription_amount": "price",
    "customer": "payer",
    "subscription_id": "agreement",
}
OTHER: Final = Service(
    profile=Profile(
        bearer=sorted(SIGNED_BY_DOCUMENT),
        signed=sorted(NAMES - {"payments.create"}),
        merchant=sorted(NAMES - {"orders.query", "refunds.status"}),
        signature=SortedPairs(algorithm="hmac-sha256", encoding="hex", nested="json"),
        fields=OTHER_NAMES,
        formats={"start_date": "%Y-%m-%d"},
        constants={"*": {"signType": "HMAC", "version": 2}, "orders.place": {"tradeType": "WEB", "version": 3}},
        headers={"X-Api-Version": "2027-01"},
        payment_status=Parameter("orderNo", "path"),
        refund_status=Parameter("X-Refund-No", "header"),
    ),
    names={**OTHER_NAMES, "payment_number": "orderNo", "refund_number": "X-Refund-No"},
    bearer=SIGNED_BY_DOCUMENT,
    signed=NAMES - {"payments.create"},
    merchant=NAMES - {"orders.query", "refunds.status"},
    constants={"*": {"signType": "HMAC", "version": 2}, "orders.place": {"tradeType": "WEB", "version": 3}},
    headers={"X-Api-Version": "2027-01"},
    places={"payments.status": ("path", "orderNo"), "refunds.status": ("header", "X-Refund-No")},
)
"""A service that signs nearly everything, and differs wherever the document lets it."""


def as_signed(sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields as they stand in the signed text: a nested value as the compact JSON that was sent."""
    return {
        name: json.dumps(value, separators=(",", ":"), ensure_ascii=False) if isinstance(value, dict) else value
        for name, value in sent.items()
    }


async def recorded(
    call: Callable[[Session], Awaitable[object]], profile: Profile, credentials: Credentials = CREDENTIALS
) -> Request:
    """Return the one request that a call makes, as a service with a base path received it."""
    with Recorder() as service:
        async with Session(service.url + BASE_PATH, credentials=credentials, profile=profile) as pay:
            await call(pay)
    return service.only
