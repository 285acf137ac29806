"""A profile that answers everything, as TOML writes it and as Python does."""

from typing import Final

from payasync import (
    Accept,
    AnswerShape,
    HttpCodes,
    NotificationShape,
    Parameter,
    Profile,
    Recovery,
    ResultCodes,
    SortedPairs,
    States,
)

WHOLE: Final = """
name = "my-gateway"
bearer = ["payments.status"]
signed = ["orders.place", "refunds.status"]
merchant = ["payments.create"]
identifier = "[A-Za-z0-9_-]{1,32}"
amount_unit = "minor"

[signature]
algorithm = "hmac-sha256"
encoding = "hex"
separator = "|"
exclude = ["sign", "signType"]
skip_empty = false
key_param = "key"
append_path = true
prehash = "sha256"
skip_null = false
booleans = "json"
numbers = "text"
nested = "json"
allow_delimiters = ["subject", "body"]

[fields]
return_url = "returnUrl"
frequency = "billingFrequency"
start_date = "startDate"
subscription_amount = "amount"
customer = "customer"
subscription_id = "subscriptionId"
[formats]
start_date = "%Y-%m-%d"
[constants."*"]
signType = "RSA"
[constants."orders.place"]
v = 2
[headers]
X-Version = "2"
[accept]
currency = ["CAD"]
scene_type = ["JSAPI"]
amount = [1, 500]
required = {"orders.place" = ["subject", "notify_url"]}
length = {subject = 30}

[status.payment]
name = "outTradeNo"
place = "path"
[status.refund]
name = "X-Refund"
place = "header"

[answer]
data = "data"
code = "code"
ok = [0, "0", "SUCCESS"]
message = "msg"
request_id = "header:X-Request-Id"
payment_id = "paymentId"
payment_status = "status"
redirect_url = "payUrl"
order_status = "tradeStatus"
refund_status = "refundStatus"
subscription_id = "subscriptionId"
subscription_status = "status"
signature = "data.sign"
refusals_signed = true
out_trade_no = "no"
out_refund_no = ""
total_amt = "money.total"
refund_amt = "refundAmt"
currency = "currency"
merchant_id = "shop"

[states.order]
pending = ["NOTPAY", "USERPAYING"]
paid = ["SUCCESS"]
closed = ["CLOSED", 3]
[states.payment]
paid = ["SUCCESS"]
[states.refund]
succeeded = ["SUCCESS"]
[states.subscription]
active = [1]

[codes]
not_executed = ["PARAM_ERROR"]
retryable = ["BUSY"]
duplicate = ["OUT_TRADE_NO_USED"]
absent = ["ORDER_NOT_FOUND", "REFUND_NOT_FOUND"]
[http]
not_executed = [400, 401]
duplicate = [409, 422]
absent = [404]
rate_limit_precedes_execution = true
[recovery]
quarantine = 60.0

[notification]
verification = "body"
data = "data"
signature = "data.sign"
kind = "event"
time = "at"
tolerance = 120
out_trade_no = "outTradeNo"
out_refund_no = "outRefundNo"
subscription_id = "subscriptionId"
volatile = ["nonceStr", "sign"]
ack_status = 200
ack_body = '{"return_code":"SUCCESS"}'
nack_status = 400
nack_body = '{"return_code":"FAIL"}'
[notification.kinds]
payment = ["trade.paid"]
[notification.id]
payment = ["outTradeNo", "tradeStatus"]
refund = ["outRefundNo", "refundStatus"]
subscription = ["subscriptionId", "period", "status"]
"""
"""Every key that a profile has, each with a value that is not the default."""

PYTHON: Final = Profile(
    name="my-gateway",
    bearer=("payments.status",),
    signed=("orders.place", "refunds.status"),
    merchant=("payments.create",),
    identifier="[A-Za-z0-9_-]{1,32}",
    amount_unit="minor",
    signature=SortedPairs(
        algorithm="hmac-sha256",
        encoding="hex",
        separator="|",
        exclude=("sign", "signType"),
        skip_empty=False,
        key_param="key",
        append_path=True,
        prehash="sha256",
        skip_null=False,
        booleans="json",
        numbers="text",
        nested="json",
        allow_delimiters=("subject", "body"),
    ),
    fields={
        "return_url": "returnUrl",
        "frequency": "billingFrequency",
        "start_date": "startDate",
        "subscription_amount": "amount",
        "customer": "customer",
        "subscription_id": "subscriptionId",
    },
    formats={"start_date": "%Y-%m-%d"},
    constants={"*": {"signType": "RSA"}, "orders.place": {"v": 2}},
    headers={"X-Version": "2"},
    accept=Accept(
        currency=("CAD",),
        scene_type=("JSAPI",),
        amount=(1, 500),
        required={"orders.place": ("subject", "notify_url")},
        length={"subject": 30},
    ),
    payment_status=Parameter("outTradeNo", "path"),
    refund_status=Parameter("X-Refund", "header"),
    answer=AnswerShape(
        data="data",
        code="code",
        ok=(0, "0", "SUCCESS"),
        message="msg",
        request_id="header:X-Request-Id",
        payment_id="paymentId",
        payment_status="status",
        redirect_url="payUrl",
        order_status="tradeStatus",
        refund_status="refundStatus",
        subscription_id="subscriptionId",
        subscription_status="status",
        signature="data.sign",
        refusals_signed=True,
        out_trade_no="no",
        out_refund_no="",
        total_amt="money.total",
        refund_amt="refundAmt",
        currency="currency",
        merchant_id="shop",
    ),
    states=States(
        order={"pending": ("NOTPAY", "USERPAYING"), "paid": ("SUCCESS",), "closed": ("CLOSED", 3)},
        payment={"paid": ("SUCCESS",)},
        refund={"succeeded": ("SUCCESS",)},
        subscription={"active": (1,)},
    ),
    codes=ResultCodes(
        not_executed=("PARAM_ERROR",),
        retryable=("BUSY",),
        duplicate=("OUT_TRADE_NO_USED",),
        absent=("ORDER_NOT_FOUND", "REFUND_NOT_FOUND"),
    ),
    http=HttpCodes(not_executed=(400, 401), absent=(404,), duplicate=(409, 422), rate_limit_precedes_execution=True),
    recovery=Recovery(quarantine=60.0),
    notification=NotificationShape(
        verification="body",
        data="data",
        signature="data.sign",
        kind="event",
        kinds={"payment": ("trade.paid",)},
        time="at",
        tolerance=120,
        id={
            "payment": ("outTradeNo", "tradeStatus"),
            "refund": ("outRefundNo", "refundStatus"),
            "subscription": ("subscriptionId", "period", "status"),
        },
        out_trade_no="outTradeNo",
        out_refund_no="outRefundNo",
        subscription_id="subscriptionId",
        volatile=("nonceStr", "sign"),
        ack_status=200,
        ack_body='{"return_code":"SUCCESS"}',
        nack_status=400,
        nack_body='{"return_code":"FAIL"}',
    ),
)
"""The same in Python."""
