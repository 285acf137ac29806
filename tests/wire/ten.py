"""The ten calls as the service's document shows them, and two services that fill its gaps differently."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
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
    """One of the ten documented calls.

    Attributes:
        name: Namespace and method.
        method: HTTP method in the document.
        path: Path in the document.
        required: Number of required arguments; these come first.
        arguments: For each argument, its wire name and a value. If the document shows no wire name, payasync's name
            stands here, and the profile has the service's.
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

    def fields(self, form: str, *, least: bool) -> dict[str, object]:
        """Return the documented fields except merchantId, nonceStr and sign, with dates in this format."""
        pairs = list(self.arguments.values())[: self.required if least else None]
        return {wire: value.strftime(form) if isinstance(value, date) else value for wire, value in pairs}

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
DOCUMENTED: Final = Profile(
    bearer=["payments.create"],
    signed=["orders.place", "orders.query", "orders.close", "refunds.create"],
    merchant=["orders.place", "orders.query", "orders.close", "refunds.create"],
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
)
"""A service that does what the document says, and no more."""

NAMES: Final = frozenset(each.name for each in TEN)
OTHER: Final = Profile(
    bearer=DOCUMENTED.signed,
    signed=sorted(NAMES - {"payments.create"}),
    merchant=sorted(NAMES - {"orders.query", "refunds.status"}),
    signature=SortedPairs(algorithm="hmac-sha256", encoding="hex", nested="json"),
    fields={
        "return_url": "back",
        "frequency": "cycle",
        "start_date": "from",
        "subscription_amount": "price",
        "customer": "payer",
        "subscription_id": "agreement",
    },
    formats={"start_date": "%d/%m/%y"},
    constants={"*": {"signType": "HMAC", "version": 2}, "orders.place": {"tradeType": "WEB", "version": 3}},
    headers={"X-Api-Version": "2027-01"},
    payment_status=Parameter("orderNo", "path"),
    refund_status=Parameter("X-Refund-No", "header"),
)
"""A service that signs nearly everything, and differs wherever the document lets it."""


def parameter(one: TenCall, profile: Profile) -> Parameter:
    """Return the parameter in which a call sends its identifier."""
    given = {"payments.status": profile.payment_status, "refunds.status": profile.refund_status}.get(one.name)
    return given or Parameter("none")


def expected_fields(one: TenCall, profile: Profile, *, least: bool = False) -> dict[str, object]:
    """Return the fields that document and profile demand of a call, except nonceStr and sign."""
    names: dict[str, Any] = {
        **profile.fields,
        "payment_number": parameter(one, profile).name,
        "refund_number": parameter(one, profile).name,
    }
    named = {
        **({"merchantId": "M1"} if one.name in profile.merchant else {}),
        **profile.constants.get("*", {}),
        **profile.constants.get(one.name, {}),
        **{
            names.get(name, name): value
            for name, value in one.fields(profile.formats["start_date"], least=least).items()
        },
    }
    return named if one.method == "POST" else {name: str(value) for name, value in named.items()}


def received_fields(one: TenCall, profile: Profile, request: Request) -> dict[str, Any]:
    """Return all fields of a request, from its body, query, path and headers."""
    sent = signatures.fields(request) if request.body or request.query else {}
    taken = parameter(one, profile)
    if taken.place == "path":
        sent[taken.name] = unquote(request.path.rpartition("/")[2])
    if taken.place == "header":
        (sent[taken.name],) = request.header(taken.name)
    return sent


def as_signed(sent: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields as the signed text shows them: a nested value is compact JSON."""
    return {
        name: json.dumps(value, separators=(",", ":"), ensure_ascii=False) if isinstance(value, dict) else value
        for name, value in sent.items()
    }


async def recorded(
    call: Callable[[Session], Awaitable[object]], profile: Profile, credentials: Credentials = CREDENTIALS
) -> Request:
    """Return the one request that a call sends to a service with a base path."""
    async with Recorder() as service, Session(service.url + BASE_PATH, credentials=credentials, profile=profile) as pay:
        await call(pay)
    return service.only
