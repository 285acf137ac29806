"""Helpers for several test modules: profiles, requests, calls, replies, and a `send` without a service."""

from collections.abc import Mapping
from datetime import date
from typing import Any, Final, TypeVar

import orjson
from attrs import evolve, field, mutable
from multidict import CIMultiDict

from payasync.clocks import Pace
from payasync.credentials import Credentials
from payasync.endpoints import Operation
from payasync.profile.profile import Profile
from payasync.profile.schema import AnswerShape, Endpoint, Parameter, States
from payasync.resources.orders import CloseOrder, PlaceOrder, QueryOrder
from payasync.resources.payments import CreatePayment, QueryPayment
from payasync.resources.refunds import CreateRefund, QueryRefund
from payasync.resources.subscriptions import CancelSubscription, CreateSubscription, UpdateSubscription
from payasync.wire.call import Call, Reply
from payasync.wire.encode import Codec
from payasync.wire.request import Request
from payasync.wire.response import Response

R = TypeVar("R", bound=Response)

CREDENTIALS: Final = Credentials("M1", secret_key="sk_canary", signing_key="sign_canary_key_1")

PROFILE: Final = Profile(
    fields={
        "return_url": "backTo",
        "frequency": "every",
        "start_date": "from",
        "subscription_amount": "price",
        "customer": "payer",
        "subscription_id": "planNo",
    },
    formats={"start_date": "%d.%m.%Y"},
    payment_status=Parameter("tradeNo"),
    refund_status=Parameter("refundNo"),
    endpoints={"refunds.status": Endpoint(number="merchant")},
)
"""Answers every point that a request needs, in words that nobody could guess."""

ENVELOPE: Final = AnswerShape(
    data="result",
    code="head.code",
    ok=(0, "OK"),
    message="head.text",
    request_id="head.id",
    payment_id="pay.no",
    payment_status="pay.state",
    redirect_url="goTo",
    order_status="state",
    refund_status="state",
    subscription_id="planNo",
    subscription_status="state",
)
"""An envelope whose payload stands beside a head."""

STATES: Final = States(
    order={"paid": ("SUCCESS", 2), "closed": (3,)},
    payment={"paid": ("SUCCESS",)},
    refund={"succeeded": ("DONE",)},
    subscription={"active": (1,)},
)

FULL: Final[Mapping[str, Request[Response]]] = {
    "payments.create": CreatePayment(amount=1000, currency="USD", description="Invoice 42"),
    "orders.place": PlaceOrder(
        subject="Coffee",
        body="Large coffee",
        total_amt=450,
        currency="CAD",
        notify_url="https://shop.example/notify/payment",
        scene_type="JSAPI",
        return_url="https://shop.example/thanks",
        out_trade_no="T1",
    ),
    "orders.query": QueryOrder(out_trade_no="T1"),
    "orders.close": CloseOrder(out_trade_no="T1"),
    "refunds.create": CreateRefund(
        out_trade_no="T1",
        out_refund_no="R1",
        total_amt=450,
        refund_amt=200,
        refund_desc="cold",
        notify_url="https://shop.example/notify/refund",
    ),
    "payments.status": QueryPayment(identifier="T1"),
    "refunds.status": QueryRefund(identifier="R1"),
    "subscriptions.create": CreateSubscription(
        frequency="monthly", amount=900, start_date=date(2027, 1, 31), customer={"email": "a@example.com"}
    ),
    "subscriptions.update": UpdateSubscription(
        subscription_id="S1",
        frequency="weekly",
        amount=1000,
        start_date=date(2027, 2, 1),
        customer={"email": "b@example.com"},
    ),
    "subscriptions.cancel": CancelSubscription(subscription_id="S1"),
}
"""One request for each operation, with every argument that it takes."""

BARE: Final = Profile()
"""A profile that answers nothing beyond the document."""


def codec(profile: Profile = PROFILE) -> Codec:
    """Return a codec for one merchant."""
    return Codec(profile, CREDENTIALS)


def call_for(operation: str, profile: Profile = PROFILE, **facts: Any) -> Call:
    """Return the call for the full request of an operation."""
    return evolve(codec(profile).call(FULL[operation]), **facts)


def bare_call(operation: Operation, **facts: Any) -> Call:
    """Return a call without fields."""
    given: dict[str, Any] = {"profile": PROFILE, "fields": {}, **facts}
    return Call(operation=operation, **given)


def reply(document: object = None, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """Return a reply with a JSON document; with `None`, with an empty body."""
    body = b"" if document is None else orjson.dumps(document)
    return Reply(status=status, headers=CIMultiDict(headers or {}), body=body)


@mutable
class Way:
    """A `send` without a service: it records the calls, and returns or raises scripted ends.

    Args:
        ends: Replies to return and errors to raise, one for each call; the last one repeats.
    """

    ends: list[Reply | BaseException] = field(factory=lambda: [reply({})])
    calls: list[Call] = field(factory=list)

    async def send(self, call: Call) -> Reply:
        """Record a call, and return or raise its end."""
        self.calls.append(call)
        end = self.ends[min(len(self.calls), len(self.ends)) - 1]
        if isinstance(end, BaseException):
            raise end
        return end


def way(*ends: Reply | BaseException) -> Way:
    """Return a `Way` with these ends."""
    return Way(ends=list(ends)) if ends else Way()


@mutable
class Hours:
    """A clock that only waits move, and jitter that always takes the same share.

    Args:
        now: The time of the clock.
        share: The share of each wait's bound that is waited.
    """

    now: float = 1000.0
    share: float = 1.0
    bounds: list[float] = field(factory=list)
    waits: list[float] = field(factory=list)

    def pace(self) -> Pace:
        """Return the clock, the sleep and the jitter for the retry layer."""
        return Pace(clock=lambda: self.now, sleep=self._sleep, jitter=self._jitter)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def _jitter(self, bound: float) -> float:
        self.bounds.append(bound)
        return self.share * bound
