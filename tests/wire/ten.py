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
        required: How many of its arguments are; these come first.
        arguments: By name, the wire name and the value. Where the document shows no wire name, ours stands: the
            service's is in `Service.names`.
    """

    name: str
    method: str
    path: str
    required: int
    arguments: Mapping[str, tuple[str, object]]

    def call(self, pay: Session, **options: Any) -> Awaitable[Response]:
        """Make the call with every argument."""
        return self._made(pay, len(self.arguments), **options)

    def least(self, pay: Session) -> Awaitable[Response]:
        """Make the call with the required arguments only."""
        return self._made(pay, self.required)

    def fields(self, *, least: bool) -> dict[str, object]:
        """Return what the document lists of it, but for merchantId, nonceStr and sign."""
        pairs = list(self.arguments.values())[: self.required if least else None]
        return {wire: value.isoformat() if isinstance(value, date) else value for wire, value in pairs}

    def _made(self, pay: Session, count: int, **options: Any) -> Awaitable[Response]:
        namespace, method = self.name.split(".")
        given = {name: value for name, (_, value) in list(self.arguments.items())[:count]}
        made: Awaitable[Response] = getattr(getattr(pay, namespace), method)(**given, **options)
        return made


TRADE: Final = {"out_trade_no": ("outTradeNo", "T1")}
NUMBER: Final = {"subscription_id": ("subscription_id", "S1")}
SUBSCRIPTION: Final = {
    "frequency": ("frequency", "monthly"),
    "amount": ("subscription_amount", 900),
    "start_date": ("start_date", date(2027, 1, 31)),
    "customer": ("customer", {"email": "a@example.com", "name": "Zoë"}),
}
PAYMENT: Final = {
    "amount": ("amount", 1000),
    "currency": ("currency", "USD"),
    "description": ("description", "Invoice 42 = Ü"),
}
ORDER: Final = {
    "total_amt": ("totalAmt", 450),
    "currency": ("currency", "CAD"),
    "subject": ("subject", "Coffee & cake"),
    "body": ("body", "Large = coffee"),
    "notify_url": ("notifyUrl", NOTIFY),
    "scene_type": ("sceneType", "JSAPI"),
    "return_url": ("return_url", "https://shop.example/thanks"),
    **TRADE,
}
REFUND: Final = {
    **TRADE,
    "out_refund_no": ("outRefundNo", "R1"),
    "total_amt": ("totalAmt", 450),
    "refund_amt": ("refundAmt", 200),
    "refund_desc": ("refundDesc", ""),
    "notify_url": ("notifyUrl", NOTIFY),
}

TEN: Final = (
    TenCall("payments.create", "POST", "/v1/payments", 2, PAYMENT),
    TenCall("orders.place", "POST", "/payment/unifiedorder", 2, ORDER),
    TenCall("orders.query", "POST", "/payment/orderquery", 1, TRADE),
    TenCall("orders.close", "POST", "/payment/closeorder", 1, TRADE),
    TenCall("refunds.create", "POST", "/payment/refund", 4, REFUND),
    TenCall("payments.status", "GET", "/payment/status", 1, {"identifier": ("payment_number", "T1")}),
    TenCall("refunds.status", "GET", "/payment/refund/status", 1, {"identifier": ("refund_number", "R1")}),
    TenCall("subscriptions.create", "POST", "/subscriptions/create", 4, SUBSCRIPTION),
    TenCall("subscriptions.update", "POST", "/subscriptions/update", 1, {**NUMBER, **SUBSCRIPTION}),
    TenCall("subscriptions.cancel", "POST", "/subscriptions/cancel", 1, NUMBER),
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
        named = {
            **({"merchantId": "M1"} if one.name in self.merchant else {}),
            **self.constants.get("*", {}),
            **self.constants.get(one.name, {}),
            **{self.names.get(name, name): value for name, value in one.fields(least=least).items()},
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


DOCUMENTED_NAMES: Final = {
    "return_url": "returnUrl",
    "frequency": "billingFrequency",
    "start_date": "startDate",
    "subscription_amount": "amount",
    "customer": "customer",
    "subscription_id": "subscriptionId",
}
DOCUMENTED: Final = Service(
    profile=Profile(
        signature=SortedPairs(algorithm="hmac-sha256", encoding="hex"),
        fields=DOCUMENTED_NAMES,
        formats={"start_date": "%Y-%m-%d"},
        payment_status=Parameter("outTradeNo", "query"),
        refund_status=Parameter("outRefundNo", "query"),
    ),
    names={**DOCUMENTED_NAMES, "payment_number": "outTradeNo", "refund_number": "outRefundNo"},
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
