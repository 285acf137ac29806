import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payasync import (
    Accept,
    AnswerShape,
    ConfigurationError,
    HttpCodes,
    NotificationShape,
    Parameter,
    Profile,
    Recovery,
    ResultCodes,
    SortedPairs,
    States,
)
from payasync.arguments import ARGUMENTS
from payasync.coverage import COMPARED
from payasync.operations import OPERATIONS
from payasync.profile import RESERVED
from payasync.sandbox_profile import PROFILE
from payasync.secret import Secret

WHOLE: Final = """
name = "my-gateway"
bearer = ["payments.create"]
signed = ["orders.place", "orders.query", "orders.close", "refunds.create"]
merchant = ["orders.place", "orders.query", "orders.close", "refunds.create"]
identifier = "[A-Za-z0-9_-]{1,64}"
amount_unit = ""

[signature]
algorithm = "hmac-sha256"
encoding = "hex"
separator = "&"
exclude = ["sign"]
skip_empty = true
key_param = ""
append_path = false
prehash = ""
skip_null = true
booleans = "refuse"
numbers = "refuse"
nested = "refuse"
allow_delimiters = ["subject", "body", "description", "refundDesc", "notifyUrl", "returnUrl"]

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
[headers]
[accept]
currency = []
scene_type = []
amount = []
required = {}
length = {}

[status.payment]
name = "outTradeNo"
place = "query"
[status.refund]
name = "outRefundNo"
place = "query"

[answer]
data = "data"
code = "code"
ok = [0, "0", "SUCCESS"]
message = "msg"
request_id = ""
payment_id = ""
payment_status = ""
redirect_url = "payUrl"
order_status = "tradeStatus"
refund_status = "refundStatus"
subscription_id = "subscriptionId"
subscription_status = "status"
signature = "data.sign"
refusals_signed = false
out_trade_no = "outTradeNo"
out_refund_no = "outRefundNo"
total_amt = "totalAmt"
refund_amt = "refundAmt"
currency = "currency"
merchant_id = "merchantId"

[states.order]
pending = ["NOTPAY", "USERPAYING"]
paid = ["SUCCESS"]
closed = ["CLOSED"]
[states.payment]
[states.refund]
succeeded = ["SUCCESS"]
[states.subscription]

[codes]
not_executed = ["PARAM_ERROR"]
retryable = ["BUSY"]
duplicate = ["OUT_TRADE_NO_USED"]
absent = ["ORDER_NOT_FOUND", "REFUND_NOT_FOUND"]
[http]
duplicate = [409]
not_executed = [400, 401, 403, 404, 405, 413, 415, 422]
absent = []
rate_limit_precedes_execution = false
[recovery]
quarantine = 60.0

[notification]
verification = "body"
data = "data"
signature = "data.sign"
kind = ""
time = ""
tolerance = 300
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
"""The whole form, as the design gives it."""

NAMES: Final = tuple(operation.name for operation in OPERATIONS)


def round_trip(profile: Profile) -> Profile:
    """Return what is read from what was written."""
    return Profile.from_toml(profile.to_toml())


def exactly(profile: Profile) -> str:
    """Return a profile so that `1`, `1.0` and `true` are three things, which `==` takes for one."""
    return json.dumps(attrs.asdict(profile), sort_keys=True)


@pytest.mark.parametrize(
    "profile", [Profile(), PROFILE, Profile.from_toml(WHOLE)], ids=["bare", "sandbox", "whole form"]
)
def test_what_is_written_reads_back(profile: Profile) -> None:
    """A profile is the one that is read from its TOML form."""
    assert exactly(profile) == exactly(round_trip(profile))
    assert profile == round_trip(profile)


def test_a_bare_profile_has_nothing_to_say() -> None:
    """What the document states is not written."""
    assert "" == Profile().to_toml()


def test_what_equals_the_default_is_left_out() -> None:
    """A value that was given, and is the default all the same, is not written."""
    given = Profile(
        bearer=["payments.create"],
        identifier="[A-Za-z0-9_-]{1,64}",
        signature=SortedPairs(algorithm="ed25519", separator="&", exclude=["sign"], skip_empty=True),
        answer=AnswerShape(ok=[]),
        http=HttpCodes(absent=[], rate_limit_precedes_execution=False),
        notification=NotificationShape(tolerance=300),
        payment_status=Parameter("no", "query"),
    )

    assert '[signature]\nalgorithm = "ed25519"\n\n[status.payment]\nname = "no"\n' == given.to_toml()


@pytest.mark.parametrize(
    "profile",
    [
        Profile(bearer=()),
        Profile(signed=(), merchant=()),
        Profile(signature=SortedPairs()),
        Profile(signature=SortedPairs(allow_delimiters=())),
        Profile(http=HttpCodes(not_executed=())),
        Profile(accept=Accept(required={"orders.place": ()})),
        Profile(constants={"*": {}}),
        Profile(constants={"*": {"outer": {"inner": {}}, "empty": {}}}),
        Profile(constants={"*": {"list": [[], {}, [{"a": {}}]]}}),
        Profile(states=States(order={"paid": ()})),
        Profile(fields={"customer": ""}),
        Profile(answer=AnswerShape(refusals_signed=False)),
        Profile(answer=AnswerShape(total_amt="", currency="currency")),
        Profile(http=HttpCodes(duplicate=())),
        Profile(recovery=Recovery(quarantine=0.0)),
        Profile(recovery=Recovery(quarantine=1e-7)),
        Profile(recovery=Recovery(quarantine=1e300)),
    ],
    ids=repr,
)
def test_what_is_empty_or_small_is_something(profile: Profile) -> None:
    """An empty list, table or scheme that differs from the default is written, and so are numbers of any size."""
    assert exactly(profile) == exactly(round_trip(profile))
    assert profile == round_trip(profile)


GOLDEN: Final = """\
name = "q \\"u\\" ü"
bearer = []
merchant = ["orders.place", "payments.status"]
amount_unit = "minor"

[signature]
algorithm = "rsa-sha256"
encoding = "base64"
skip_empty = false

[constants."*"]
signType = "RSA"
version = 2
ratio = 0.5
test = true
tags = ["a", {"b.c" = [1, false]}]

[constants."*".device]
os = "x"

[constants."orders.place"]

[accept]
amount = [1, 500]

[accept.required]
"orders.place" = ["subject"]

[answer]
code = "code"
ok = [0, "0"]

[states.order]
paid = [2, "PAID"]

[recovery]
quarantine = 60.0

[status.refund]
name = "no"
place = "path"
"""


def test_written_text() -> None:
    """It reads as somebody would write it: the tables in their order, one line for each key, nothing twice."""
    profile = Profile(
        name='q "u" ü',
        bearer=[],
        merchant=["orders.place", "payments.status"],
        amount_unit="minor",
        signature=SortedPairs(algorithm="rsa-sha256", encoding="base64", skip_empty=False),
        constants={
            "*": {
                "signType": "RSA",
                "version": 2,
                "ratio": 0.5,
                "test": True,
                "device": {"os": "x"},
                "tags": ["a", {"b.c": [1, False]}],
            },
            "orders.place": {},
        },
        accept=Accept(amount=[1, 500], required={"orders.place": ["subject"]}),
        refund_status=Parameter("no", "path"),
        answer=AnswerShape(code="code", ok=[0, "0"]),
        states=States(order={"paid": [2, "PAID"]}),
        recovery=Recovery(quarantine=60.0),
    )

    assert GOLDEN == profile.to_toml()
    assert GOLDEN == round_trip(profile).to_toml()


class Named(str, Enum):  # noqa: UP042 - one whose name is not its text
    """A text that has a name, too."""

    ONE = "one"
    DOTTED = "o.n.e"


class Numbered(int, Enum):
    """A number that has a name."""

    TWO = 2


def test_a_named_value_is_written_as_what_it_is() -> None:
    """A `str` or an `int` that is an Enum stands there as the text or the number."""
    profile = Profile(
        name=Named.ONE, constants={"*": {Named.ONE: Numbered.TWO, Named.DOTTED: [Named.ONE]}}, fields={"customer": "c"}
    )

    assert {"*": {"one": 2, "o.n.e": ["one"]}} == round_trip(profile).constants
    assert "one" == tomllib.loads(profile.to_toml())["name"]


class Own(SortedPairs):
    """A family that signs in another way."""


class Scheme:
    """A scheme outside the families."""

    def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> str:
        """Return the same for all."""
        return f"{len(fields)}{path}{key}"

    def verify(self, fields: Mapping[str, Any], signature: str, *, path: str, key: Secret) -> bool:
        """Return whether it is that."""
        return signature == self.sign(fields, path=path, key=key)


@pytest.mark.parametrize(
    ("profile", "field"),
    [
        (Profile(signature=Scheme()), "signature"),
        (Profile(signature=Own(algorithm="ed25519")), "signature"),
        (Profile(constants={"*": {"note": None}}), "constants.*.note"),
        (Profile(constants={"orders.place": {"a": {"b": [1, None]}}}), "constants.orders.place.a.b"),
        (Profile(constants={"*": {"a": [{"b": None}]}}), "constants.*.a"),
        (Profile(name="\ud800"), "name"),
        (Profile(fields={"customer": "a\udfffb"}), "fields.customer"),
        (Profile(payment_status=Parameter("\ud800")), "status.payment.name"),
        (Profile(codes=ResultCodes(absent=[1, "\ud800"])), "codes.absent"),
        (Profile(accept=Accept(amount=(1, 10**5000))), "accept.amount"),
    ],
    ids=[
        "scheme",
        "kind of SortedPairs",
        "null",
        "null in a list",
        "null in a table in a list",
        "surrogate",
        "surrogate in a table",
        "surrogate of endpoint 6",
        "surrogate in a list",
        "integer without end",
    ],
)
def test_what_toml_cannot_hold_is_refused(profile: Profile, field: str) -> None:
    """It is said which key holds it; nothing is left out silently, nor written so that no file can hold it."""
    with pytest.raises(ConfigurationError, match="TOML cannot hold") as caught:
        profile.to_toml()

    assert field == caught.value.field
    assert str(caught.value).startswith(field)
    assert str(caught.value).isprintable()


TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        '"',
        "\\",
        "\n",
        "\r\n",
        "\t",
        "\x00",
        "\x1f",
        "\x7f",
        "\x85",
        "\u2028",
        "a.b",
        "é",
        "🙂",
        '"' * 3,
        "'" * 3,
        "#",
        "[x]",
        "=",
    ]
)
PATHS: Final = st.lists(TEXTS.filter(lambda text: text and "." not in text), max_size=2).map(".".join)
WHOLES: Final = st.integers(-(2**63), 2**63 - 1)
CODES: Final = TEXTS | WHOLES
JSON: Final[st.SearchStrategy[Any]] = st.recursive(
    st.booleans() | CODES | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OPERATION_LISTS: Final = st.lists(st.sampled_from(NAMES), max_size=3)
ALGORITHMS: Final = st.sampled_from(["", "hmac-sha256", "rsa-sha512", "ed25519"])
TAKEN: Final = RESERVED | {argument.wire for arguments in ARGUMENTS.values() for argument in arguments}
CONSTANTS: Final = st.dictionaries(TEXTS, JSON, max_size=3).filter(TAKEN.isdisjoint)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Return a profile that holds anything in the places that can hold it."""
    compared: dict[str, Any] = {name: draw(st.none() | PATHS) for name in draw(st.sets(st.sampled_from([*COMPARED])))}
    several = draw(st.lists(CODES, unique_by=lambda code: (type(code), code), max_size=6))
    return Profile(
        name=draw(TEXTS),
        bearer=draw(OPERATION_LISTS),
        signed=draw(OPERATION_LISTS),
        amount_unit=draw(st.sampled_from(["", "minor", "major"])),
        identifier=re.escape(draw(TEXTS)),
        signature=draw(
            st.none()
            | st.builds(
                SortedPairs,
                algorithm=ALGORITHMS,
                separator=TEXTS.filter(lambda text: text and "=" not in text),
                exclude=st.lists(TEXTS, max_size=2).map(lambda names: ["sign", *names]),
                skip_empty=st.booleans(),
                prehash=st.sampled_from(["", "sha256", "sha256-hex"]),
                skip_null=st.booleans(),
                booleans=st.sampled_from(["refuse", "json"]),
                numbers=st.sampled_from(["refuse", "text"]),
                nested=st.sampled_from(["refuse", "json", "omit"]),
            )
        ),
        fields={name: f"{name} {draw(TEXTS)}" for name in draw(st.sets(st.sampled_from(["customer", "frequency"])))},
        constants=draw(st.dictionaries(st.sampled_from(["*", *NAMES]), CONSTANTS, max_size=3)),
        headers=draw(st.dictionaries(st.sampled_from(["X-A", "x.b", "Y!#"]), st.just('v "1" \\ x'))),
        accept=Accept(
            currency=draw(st.lists(TEXTS, max_size=2)),
            amount=draw(st.just(()) | st.tuples(WHOLES, WHOLES).map(lambda bounds: tuple(sorted(bounds)))),
            length=draw(st.dictionaries(st.sampled_from(["subject", "body"]), st.integers(1, 2**63 - 1))),
        ),
        payment_status=draw(st.none() | st.builds(Parameter, TEXTS.map("no {}".format))),
        answer=AnswerShape(
            data=draw(PATHS),
            message=draw(PATHS),
            refusals_signed=draw(st.none() | st.booleans()),
            **compared,
        ),
        states=States(order={"paid": several[:2], "closed": several[2:]}),
        codes=ResultCodes(not_executed=several[:3], duplicate=several[3:]),
        http=HttpCodes(
            absent=draw(st.lists(st.sampled_from([400, 404]))),
            duplicate=draw(st.lists(st.sampled_from([409, 410]))),
            rate_limit_precedes_execution=draw(st.booleans()),
        ),
        recovery=Recovery(quarantine=draw(st.none() | st.floats(0, 1e300) | st.integers(0, 10**9))),
        notification=NotificationShape(
            ack_body=draw(TEXTS), id={"payment": draw(st.lists(PATHS.filter(bool), max_size=2))}
        ),
    )


@given(profiles())
def test_any_profile_reads_back(profile: Profile) -> None:
    """Whatever characters, numbers and tables a profile holds, its TOML form holds them; and as a file's bytes."""
    written = profile.to_toml()

    assert exactly(profile) == exactly(Profile.from_toml(written.encode().decode()))
    assert profile == Profile.from_toml(written)
    assert written == round_trip(profile).to_toml()


@given(profiles())
def test_only_what_an_editor_shows_is_written(profile: Profile) -> None:
    """No control character stands in the text as itself: none is lost where a file is shown or copied."""
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", profile.to_toml())


KEYS: Final = (
    ("", "name", '"quay"'),
    ("", "bearer", '["payments.status"]'),
    ("", "signed", '["refunds.status"]'),
    ("", "merchant", '["payments.create"]'),
    ("", "identifier", '"[0-9]+"'),
    ("", "amount_unit", '"major"'),
    ("signature", "algorithm", '"hmac-sha512"'),
    ("signature", "encoding", '"base64"'),
    ("signature", "separator", '"|"'),
    ("signature", "exclude", '["sign", "signType"]'),
    ("signature", "skip_empty", "false"),
    ("signature", "key_param", '"key"'),
    ("signature", "append_path", "true"),
    ("signature", "prehash", '"sha256"'),
    ("signature", "skip_null", "false"),
    ("signature", "booleans", '"json"'),
    ("signature", "numbers", '"text"'),
    ("signature", "nested", '"json"'),
    ("signature", "allow_delimiters", '["payUrl"]'),
    ("fields", "return_url", '"back"'),
    ("fields", "frequency", '"cycle"'),
    ("fields", "start_date", '"from"'),
    ("fields", "subscription_amount", '"price"'),
    ("fields", "customer", '"payer"'),
    ("fields", "subscription_id", '"agreement"'),
    ("formats", "start_date", '"%d.%m.%Y"'),
    ('constants."*"', "signType", '"RSA2"'),
    ("headers", "X-Api-Version", '"7"'),
    ("accept", "currency", '["CAD"]'),
    ("accept", "scene_type", '["JSAPI"]'),
    ("accept", "amount", "[1, 500]"),
    ("accept", "required", '{"orders.place" = ["subject"]}'),
    ("accept", "length", "{subject = 30}"),
    ("status.payment", "name", '"orderNo"'),
    ("status.payment", "place", '"path"'),
    ("status.refund", "name", '"X-Refund"'),
    ("status.refund", "place", '"header"'),
    ("answer", "data", '"result"'),
    ("answer", "code", '"ret"'),
    ("answer", "ok", '["FINE", 7]'),
    ("answer", "message", '"text"'),
    ("answer", "request_id", '"header:X-Request-Id"'),
    ("answer", "payment_id", '"payId"'),
    ("answer", "payment_status", '"payState"'),
    ("answer", "redirect_url", '"go"'),
    ("answer", "order_status", '"state"'),
    ("answer", "refund_status", '"state"'),
    ("answer", "subscription_id", '"agreement"'),
    ("answer", "subscription_status", '"phase"'),
    ("answer", "signature", '"sign"'),
    ("answer", "refusals_signed", "true"),
    ("answer", "out_trade_no", '"orderNo"'),
    ("answer", "out_refund_no", '""'),
    ("answer", "total_amt", '"money.total"'),
    ("answer", "refund_amt", '""'),
    ("answer", "currency", '"money.unit"'),
    ("answer", "merchant_id", '"shop"'),
    ("states.order", "pending", "[0, 1]"),
    ("states.order", "paid", '["PAID"]'),
    ("states.order", "closed", '["GONE"]'),
    ("states.order", "failed", '["FAILED"]'),
    ("states.order", "expired", '["LATE"]'),
    ("states.order", "refunded", '["BACK"]'),
    ("states.payment", "paid", "[20]"),
    ("states.refund", "processing", '["RUNNING"]'),
    ("states.refund", "succeeded", '["DONE"]'),
    ("states.refund", "failed", '["FAILED"]'),
    ("states.subscription", "scheduled", "[0]"),
    ("states.subscription", "active", "[1]"),
    ("states.subscription", "past_due", "[2]"),
    ("states.subscription", "cancelled", "[3]"),
    ("codes", "not_executed", '["BAD"]'),
    ("codes", "retryable", '["LATER"]'),
    ("codes", "duplicate", "[77]"),
    ("codes", "absent", '["NOTHING"]'),
    ("http", "not_executed", "[400]"),
    ("http", "absent", "[404]"),
    ("http", "duplicate", "[410]"),
    ("http", "rate_limit_precedes_execution", "true"),
    ("recovery", "quarantine", "5.5"),
    ("notification", "verification", '"none"'),
    ("notification", "data", '"event"'),
    ("notification", "signature", '"sign"'),
    ("notification", "kind", '"type"'),
    ("notification", "time", '"at"'),
    ("notification", "tolerance", "60"),
    ("notification", "out_trade_no", '"orderNo"'),
    ("notification", "out_refund_no", '"refundNo"'),
    ("notification", "subscription_id", '"agreement"'),
    ("notification", "volatile", '["sentAt"]'),
    ("notification", "ack_status", "202"),
    ("notification", "ack_body", '"OK"'),
    ("notification", "nack_status", "500"),
    ("notification", "nack_body", '"NO"'),
    ("notification.kinds", "payment", '["paid"]'),
    ("notification.id", "payment", '["event.id"]'),
    ("notification.id", "refund", '["event.id"]'),
    ("notification.id", "subscription", '["event.id"]'),
)
"""Every key of the whole form: its table, its name, and a value that is neither the form's nor the default."""


def with_key(table: str, key: str, value: str) -> str:
    """Return the whole form with another value of one key; where the key is not in its table, it is added."""
    before, header, after = WHOLE.rpartition(f"\n[{table}]\n") if table else ("", "", WHOLE)
    own, rest = re.fullmatch(r"(.*?)((?:^\[.*)?)", after, re.DOTALL | re.MULTILINE).groups()  # type: ignore[union-attr]
    others = "".join(line for line in own.splitlines(keepends=True) if not line.startswith(f"{key} ="))
    return f"{before}{header}{key} = {value}\n{others}{rest}"


def steps(table: str, key: str) -> list[str]:
    """Return the names that lead to a key."""
    return [*(name.strip('"') for name in table.split(".") if name), key]


def at(tables: Any, path: list[str]) -> Any:
    """Return what stands there."""
    for name in path:
        tables = tables[name]
    return tables


@pytest.mark.parametrize(("table", "key", "value"), KEYS, ids=lambda part: part or "top")
def test_every_key_has_an_effect_on_the_profile(table: str, key: str, value: str) -> None:
    """A key that is set to another value makes another profile, which differs in this key alone and is written so."""
    form = with_key(table, key, value)
    given = at(tomllib.loads(form), steps(table, key))
    profile, before = Profile.from_toml(form), Profile.from_toml(WHOLE)
    written = tomllib.loads(profile.to_toml())

    assert given == at(written, steps(table, key))
    assert profile != before
    assert profile == round_trip(profile)
    assert without(written, steps(table, key)) == without(tomllib.loads(before.to_toml()), steps(table, key))


def without(tables: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """Return tables without a key, and without the tables that hold nothing then."""
    first, *rest = path
    inner = {**tables, first: without(tables.get(first, {}), rest)} if rest else {**tables, first: {}}
    return {name: value for name, value in inner.items() if value != {}}


def leaves(part: type | None, path: str = "") -> Iterator[str]:
    """Yield the dotted keys of a profile by its classes, as TOML writes them; tables of free names as such."""
    for each in attrs.fields(part) if part else ():
        name = re.sub(r"^(payment|refund)_status$", r"status.\1", each.name) if part is Profile else each.name
        kind = SortedPairs if name == "signature" and part is Profile else Parameter if "status." in name else each.type
        if kind is not None and attrs.has(kind):
            yield from leaves(kind, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def test_no_key_is_missing_above() -> None:
    """The keys above are all that a profile has: each, or some within a table of free names."""
    named = {".".join(steps(table, key)) for table, key, _ in KEYS}
    tables = {name.rpartition(".")[0] for name in named} | {"constants"}

    assert [] == [each for each in leaves(Profile) if each not in named | tables]
