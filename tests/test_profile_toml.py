from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payasync.errors import ConfigurationError
from payasync.profile import Profile
from payasync.shapes import (
    Accept,
    AnswerShape,
    HttpCodes,
    NotificationShape,
    Parameter,
    Recovery,
    ResultCodes,
    States,
)
from payasync.signing import SortedPairs

WHOLE: Final = """
name = "my-gateway"
bearer = ["payments.create"]
signed = ["orders.place", "orders.query", "orders.close", "refunds.create"]
merchant = ["orders.place", "orders.query", "orders.close", "refunds.create"]
identifier = "[A-Za-z0-9_-]{1,32}"
amount_unit = "minor"

[signature]
algorithm = "hmac-sha256"
encoding = "hex"
separator = "&"
exclude = ["sign"]
skip_empty = true
key_param = "key"
append_path = true
prehash = "sha256"
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
name = "outRefundNo"

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
"""Every key that a profile has."""

PYTHON: Final = Profile(
    name="my-gateway",
    bearer=("payments.create",),
    signed=("orders.place", "orders.query", "orders.close", "refunds.create"),
    merchant=("orders.place", "orders.query", "orders.close", "refunds.create"),
    identifier="[A-Za-z0-9_-]{1,32}",
    amount_unit="minor",
    signature=SortedPairs(
        algorithm="hmac-sha256",
        encoding="hex",
        separator="&",
        exclude=("sign",),
        skip_empty=True,
        key_param="key",
        append_path=True,
        prehash="sha256",
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
    refund_status=Parameter("outRefundNo"),
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
    http=HttpCodes(not_executed=(400, 401), absent=(404,), rate_limit_precedes_execution=True),
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


def test_whole_form_equals_the_python_form() -> None:
    """Every key has its argument, and TOML says exactly what Python says."""
    assert PYTHON == Profile.from_toml(WHOLE)


def test_file_says_what_its_text_says(tmp_path: Path) -> None:
    """A file is read as UTF-8, by a path or its text."""
    file = tmp_path / "service.toml"
    file.write_text(f"# für den Dienst\n{WHOLE}", encoding="utf-8")

    assert PYTHON == Profile.from_file(file)
    assert PYTHON == Profile.from_file(str(file))


def test_every_key_is_optional() -> None:
    """What is left out is what the document states, or open."""
    assert Profile() == Profile.from_toml("")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[status.payment]\nname = "no"', Profile(payment_status=Parameter("no", "query"))),
        ('[status.refund]\nname = "no"\nplace = "header"', Profile(refund_status=Parameter("no", "header"))),
        ("[status]", Profile()),
        ("[signature]", Profile(signature=SortedPairs())),
        ("[recovery]\nquarantine = 60", Profile(recovery=Recovery(quarantine=60))),
    ],
)
def test_parts(text: str, expected: Profile) -> None:
    """`[status.payment]` and `[status.refund]` are endpoints 6 and 7; an int is a number of seconds, too."""
    assert expected == Profile.from_toml(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('nam = "x"', "knows no nam; allowed are name, bearer,"),
        ("[answer]\ncodes = []", r"knows no codes; allowed are data, code, .* @ profile\.answer"),
        ("[signature]\nhash = 1", r"knows no hash; .* @ profile\.signature"),
        ("[signatures]", "knows no signatures"),
        ("[accept]\nlengths = {}", r"knows no lengths; .* @ profile\.accept"),
        ('[status.payment]\nname = "x"\nwhere = "query"', r"knows no where; .* @ profile\.payment_status"),
        ("[notification]\nack = 1", r"knows no ack; .* @ profile\.notification"),
    ],
)
def test_unknown_key(text: str, why: str) -> None:
    """A misspelt key would leave a point open in silence: it is refused, with what is allowed there."""
    with pytest.raises(ConfigurationError, match=why):
        Profile.from_toml(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name = 1", r"expected str, got int @ profile\.name"),
        ('bearer = "payments.create"', r"expected a list, got str @ profile\.bearer"),
        ("signed = [1]", r"expected str, got int @ profile\.signed\[0\]"),
        ('amount_unit = "cents"', r"profile\.amount_unit"),
        ("signature = 'md5'", r"profile\.signature"),
        ('[signature]\nalgorithm = "crc"', r"profile\.signature\.algorithm"),
        ('[signature]\nskip_empty = "false"', r"expected bool, got str @ profile\.signature\.skip_empty"),
        ('[signature]\nexclude = "sign"', r"expected a list, got str @ profile\.signature\.exclude"),
        ("[fields]\nreturn_url = 5", r"expected str, got int @ profile\.fields\['return_url'\]"),
        ("constants = 1", r"profile\.constants"),
        ("[headers]\nX-Version = 2", r"expected str, got int @ profile\.headers\['X-Version'\]"),
        ("accept = 1", r"profile\.accept"),
        ('[accept]\ncurrency = "CAD"', r"expected a list, got str @ profile\.accept\.currency"),
        ('[accept]\namount = ["1", "2"]', r"expected int, got str @ profile\.accept\.amount\[0\]"),
        ('[accept]\nlength = {subject = "30"}', r"expected int, got str @ profile\.accept\.length\['subject'\]"),
        ('[accept]\nrequired = {"orders.place" = "subject"}', r"profile\.accept\.required\['orders\.place'\]"),
        ('[status.payment]\nname = "x"\nplace = "body"', r"profile\.payment_status\.place"),
        ('[status.payment]\nplace = "path"', r"is missing @ profile\.payment_status\.name"),
        ('[answer]\ncode = "code"\nok = "SUCCESS"', r"expected a list, got str @ profile\.answer\.ok"),
        ("[answer]\nok = [true]", r"profile\.answer\.ok\[0\]"),
        ("[answer]\nok = [1.0]", r"profile\.answer\.ok\[0\]"),
        ('[states.order]\npaid = "SUCCESS"', r"expected a list, got str @ profile\.states\.order\['paid'\]"),
        ('[codes]\nabsent = "NONE"', r"expected a list, got str @ profile\.codes\.absent"),
        ('[http]\nabsent = ["404"]', r"expected int, got str @ profile\.http\.absent\[0\]"),
        ("[http]\nrate_limit_precedes_execution = 1", r"expected bool, got int"),
        ('[recovery]\nquarantine = "60"', r"expected a number, got str @ profile\.recovery\.quarantine"),
        ("[notification]\ntolerance = true", r"expected int, got bool @ profile\.notification\.tolerance"),
        ("name = 1\nidentifier = 2", r"profile\.name; .*profile\.identifier"),
    ],
)
def test_wrong_type(text: str, why: str) -> None:
    """Nothing is converted, no text is a list of its letters, and the error names the place."""
    with pytest.raises(ConfigurationError, match=why) as caught:
        Profile.from_toml(text)

    assert "profile" == caught.value.field


@pytest.mark.parametrize(
    ("text", "field", "why"),
    [
        ('bearer = ["payments.creat"]', "bearer", "knows no 'payments.creat'; allowed are"),
        ('identifier = "("', "identifier", "no regular expression"),
        ('[signature]\nalgorithm = "md5"', "signature.key_param", "must be given with algorithm"),
        ('[fields]\nnotify_url = "x"', "fields", "knows no 'notify_url'"),
        ('[constants."*"]\nsign = "x"', "constants.*", "must not set sign"),
        ('[headers]\n"X Y" = "x"', "headers", "visible ASCII"),
        ("[accept]\namount = [5, 1]", "accept.amount", r"must be \[least, greatest\]"),
        ('[accept.required]\n"orders.plac" = []', "accept.required", "knows no 'orders.plac'"),
        ('[status.payment]\nname = ""', "status", "needs the name"),
        ('[status.refund]\nname = "sign"', "refund_status", "must not set sign"),
        ('[answer]\ncode = "code"', "answer.ok", "must list the codes"),
        ('[states.order]\npayed = ["X"]', "states.order", "knows no payed; allowed are pending, paid"),
        ('[states.order]\npaid = ["X"]\nclosed = ["X"]', "states.order", "two meanings"),
        ("[recovery]\nquarantine = -1", "recovery.quarantine", "0 or more"),
        ("[recovery]\nquarantine = nan", "recovery.quarantine", "0 or more"),
        ("[notification.id]\norder = []", "notification.id", "knows no 'order'"),
    ],
)
def test_contradiction(text: str, field: str, why: str) -> None:
    """What a part refuses about itself comes out as it is, with its own field."""
    with pytest.raises(ConfigurationError, match=why) as caught:
        Profile.from_toml(text)

    assert field == caught.value.field


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("status = 1", "status"),
        ('[status.order]\nname = "x"', "status"),
        ('status.name = "x"', "status"),
        ('[payment_status]\nname = "x"', "payment_status"),
        ('[refund_status]\nname = "x"', "refund_status"),
    ],
)
def test_status_has_one_place(text: str, field: str) -> None:
    """Endpoints 6 and 7 are written `[status.payment]` and `[status.refund]`, and in no other way."""
    with pytest.raises(ConfigurationError, match=r"\[status\.(payment|refund)\]") as caught:
        Profile.from_toml(text)

    assert field == caught.value.field


@pytest.mark.parametrize(
    ("text", "line"), [('name = "x"\nbearer = ', None), ('name = "x"\nbearer == []', 2), ("a\x00", 1)]
)
def test_not_toml(text: str, line: int | None) -> None:
    """A text that is no TOML is told where, as far as TOML says."""
    with pytest.raises(ConfigurationError, match="profile is not TOML") as caught:
        Profile.from_toml(text)

    assert ("profile", line) == (caught.value.field, caught.value.line)


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "cannot read '.*service.toml': No such file or directory"), (b"name = '\xff'", "not UTF-8 text")],
)
def test_unreadable_file(tmp_path: Path, content: bytes | None, why: str) -> None:
    """A file that cannot be read is named, with what is wrong with it."""
    file = tmp_path / "service.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=why) as caught:
        Profile.from_file(file)

    assert "profile" == caught.value.field
    assert caught.value.__context__ is None


def test_path_that_is_none() -> None:
    """A path that no file can have is as unreadable as any."""
    with pytest.raises(ConfigurationError, match="cannot read"):
        Profile.from_file("a\x00b")


@pytest.mark.parametrize("text", ["name = ", "name = 1"])
def test_errors_name_the_file(tmp_path: Path, text: str) -> None:
    """Who reads several profiles learns which of them is wrong."""
    file = tmp_path / "service.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"service\.toml"):
        Profile.from_file(file)


@given(st.text() | st.lists(st.sampled_from(WHOLE.split("\n"))).map("\n".join))
def test_nothing_foreign_escapes(text: str) -> None:
    """Any text is a profile, or our own error."""
    try:
        profile = Profile.from_toml(text)
    except ConfigurationError:
        return

    assert isinstance(profile, Profile)
