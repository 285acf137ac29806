"""The sandbox's own answers to every open point; nobody else's.

The service's document shows none of this. Do not build on these names for the real service: a session
refuses this profile with any address beyond loopback.
"""

from typing import Final

from payasync.endpoints import OPERATIONS, Auth
from payasync.profile.profile import Profile
from payasync.profile.schema import (
    AnswerShape,
    HttpCodes,
    NotificationShape,
    Parameter,
    Recovery,
    ResultCodes,
    States,
)
from payasync.signing.schemes import SortedPairs

_ORDER_STATES: Final = {
    "pending": ("SBX_PENDING",),
    "paid": ("SBX_PAID",),
    "closed": ("SBX_CLOSED",),
    "failed": ("SBX_FAILED",),
    "expired": ("SBX_EXPIRED",),
}

PROFILE: Final = Profile(
    name="payasync-sandbox",
    bearer=tuple(operation.name for operation in OPERATIONS if operation.auth is not Auth.SIGNED),
    amount_unit="minor",
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
    answer=AnswerShape(
        code="code",
        ok=("SBX_OK",),
        message="message",
        request_id="requestId",
        payment_id="paymentId",
        payment_status="status",
        redirect_url="redirectUrl",
        order_status="status",
        refund_status="status",
        subscription_id="subscriptionId",
        subscription_status="status",
    ),
    states=States(
        order=_ORDER_STATES,
        payment=_ORDER_STATES,
        refund={
            "processing": ("SBX_PROCESSING",),
            "succeeded": ("SBX_SUCCEEDED",),
            "failed": ("SBX_REFUND_FAILED",),
        },
        subscription={
            "scheduled": ("SBX_SCHEDULED",),
            "active": ("SBX_ACTIVE",),
            "past_due": ("SBX_PAST_DUE",),
            "cancelled": ("SBX_CANCELLED",),
        },
    ),
    codes=ResultCodes(
        not_executed=("SBX_INVALID", "SBX_UNAUTHENTICATED", "SBX_BAD_SIGNATURE", "SBX_NONCE_USED", "SBX_WRONG_STATE"),
        retryable=("SBX_BUSY",),
        duplicate=("SBX_DUPLICATE",),
        absent=("SBX_NOT_FOUND",),
    ),
    http=HttpCodes(absent=(404,), rate_limit_precedes_execution=True),
    recovery=Recovery(quarantine=2.0),
    notification=NotificationShape(
        verification="standard-webhooks",
        data="data",
        kind="type",
        kinds={
            "payment": ("payment.paid", "payment.failed", "payment.closed", "payment.expired"),
            "refund": ("refund.succeeded", "refund.failed"),
            "subscription": (
                "subscription.renewed",
                "subscription.past_due",
                "subscription.cancelled",
                "subscription.started",
            ),
        },
        time="timestamp",
        id={
            "payment": ("outTradeNo", "status"),
            "refund": ("outRefundNo", "status"),
            "subscription": ("subscriptionId", "period", "status"),
        },
        out_trade_no="outTradeNo",
        out_refund_no="outRefundNo",
        subscription_id="subscriptionId",
        ack_status=200,
        ack_body='{"received":true}',
        nack_status=400,
        nack_body='{"received":false}',
    ),
)
