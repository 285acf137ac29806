"""What a notification says, read without any I/O: hostile input is refused in our own words."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

import pytest
from attrs import evolve
from hypothesis import example, given
from hypothesis import strategies as st

from payasync.errors import InvalidArgumentError
from payasync.notifications.notification import MOST_CONTAINERS, Notification, parse
from payasync.profile.profile import Profile
from payasync.profile.schema import KINDS, AnswerShape, NotificationShape
from payasync.sandbox import PROFILE
from tests.scrambled import scrambled

SHAPE: Final = NotificationShape(
    data="head.data",
    kind="head.event",
    kinds={"payment": ["PAID", "SHUT"], "refund": ["BACK"]},
    out_trade_no="no",
    out_refund_no="back.no",
    subscription_id="plan",
    id={"payment": ["no"]},
)
BOXED: Final = Profile(notification=SHAPE, answer=AnswerShape(payment_id="pay"))
BARE: Final = Profile()
NOW: Final = datetime(2027, 1, 31, 12, tzinfo=UTC)


def body(event: Any = "PAID", **data: Any) -> bytes:
    """Return a body in the envelope."""
    return json.dumps({"head": {"event": event, "data": {"no": "T1", **data}}}).encode()


def read(raw: Any, profile: Profile = BOXED, **options: Any) -> Notification:
    """Return what is read of a body."""
    return parse(raw, {}, profile=profile, **options)


def test_everything_in_its_place() -> None:
    """Each fact is where the profile says; the bytes and the headers stay as they were received."""
    raw = body(back={"no": "R1"}, plan="S1", pay=7)
    told = parse(raw, {"X-A": "1"}, profile=BOXED, received_at=NOW)

    assert ("payment", "PAID", raw, "1", NOW) == (
        told.kind,
        told.event,
        told.raw,
        told.headers["x-a"],
        told.received_at,
    )
    assert {"no": "T1", "back": {"no": "R1"}, "plan": "S1", "pay": 7} == told.data
    assert json.loads(raw) == told.document
    assert ("T1", "R1", "S1", "7") == (told.out_trade_no, told.out_refund_no, told.subscription_id, told.payment_id)
    assert ('payment:["T1"]', False) == (told.dedup_key, told.weak)


def test_nobody_need_believe_it() -> None:
    """Reading verifies nothing, whatever the headers say, and nothing in it is trusted."""
    told = parse(body(), {"webhook-signature": "v1,abc"}, profile=PROFILE)

    assert not told.verified
    assert told.trusted is None


def test_profile_that_answers_nothing() -> None:
    """Where nothing is known of notifications, the document is the payload, and the key is weak."""
    told = read(b'{"a":1}', BARE)

    assert (None, None, {"a": 1}) == (told.kind, told.event, told.data)
    assert (None, None, None, None) == (told.out_trade_no, told.out_refund_no, told.subscription_id, told.payment_id)
    assert (f"weak:{told.digest}", True) == (told.dedup_key, told.weak)


def test_envelope_without_a_payload() -> None:
    """What has no payload where the profile has it is its own, as with answers."""
    assert {"a": 1} == read(b'{"a":1}').data


@pytest.mark.parametrize("value", [None, True, 1.5, "", " ", ["T1"], {"no": "T1"}], ids=repr)
def test_what_is_no_number(value: Any) -> None:
    """A number that names something is a text that is not blank, or an integer; anything else is none."""
    assert read(body(no=value)).out_trade_no is None


def test_received_at() -> None:
    """It is in UTC, and now where nobody says when."""
    before = datetime.now(UTC)
    there = NOW.astimezone(timezone(timedelta(hours=9)))

    assert UTC == read(body(), received_at=there).received_at.tzinfo
    assert read(body(), received_at=there).received_at == NOW
    assert before <= read(body()).received_at <= datetime.now(UTC)


@pytest.mark.parametrize("moment", [datetime(2027, 1, 31), "2027-01-31", 5], ids=repr)  # noqa: DTZ001 - the bad one
def test_received_at_without_an_offset(moment: Any) -> None:
    """A time that could be any is refused."""
    with pytest.raises(InvalidArgumentError, match="received_at must be an aware datetime"):
        read(body(), received_at=moment)


@pytest.mark.parametrize(
    ("event", "routed", "kind"),
    [
        ("PAID", None, "payment"),
        ("SHUT", "payment", "payment"),
        ("BACK", None, "refund"),
        ("BACK", "refund", "refund"),
        ("OTHER", None, None),
        ("OTHER", "payment", "payment"),
        ("paid", "refund", "refund"),
        (7, "payment", "payment"),
        (None, "refund", "refund"),
        (None, None, None),
    ],
)
def test_kind(event: Any, routed: Any, kind: Any) -> None:
    """The payload says it by the profile's names; of an event that is not among them, the address says it."""
    assert kind == read(body(event), kind=routed).kind


def test_event_is_the_services_own_name() -> None:
    """It is told as it stands, also where the profile does not know it; what is no text is no name."""
    assert ["OTHER", None, None] == [read(body(event)).event for event in ("OTHER", 7, None)]


def test_kind_that_is_not_of_its_address() -> None:
    """A payment at the address for refunds was sent there by somebody else, or the profile is wrong."""
    with pytest.raises(InvalidArgumentError, match="of a payment, but arrived at the address for refunds") as refused:
        read(body(), kind="refund")

    assert "kind" == refused.value.field


@pytest.mark.parametrize("kind", ["", "payments", "*", "PAYMENT", 5])
def test_kinds_that_do_not_exist(kind: Any) -> None:
    """There are three; the error names them."""
    with pytest.raises(InvalidArgumentError, match="payment, refund, subscription") as refused:
        read(body(), kind=kind)

    assert "kind" == refused.value.field


HOSTILE: Final = {
    "empty": b"",
    "not JSON": b"T1=paid",
    "two documents": b"{}{}",
    "cut": b'{"a":1',
    "a list": b"[]",
    "a text": b'"a"',
    "a number": b"5",
    "null": b"null",
    "byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "UTF-16 without a mark": '{"a":1}'.encode("utf-16-le"),
    "UTF-32": '{"a":1}'.encode("utf-32"),
    "not UTF-8": b'{"a":"\xff"}',
    "overlong UTF-8": b'{"a":"\xc0\xaf"}',
    "a raw surrogate": b'{"a":"\xed\xa0\x80"}',
    "a lone surrogate": b'{"a":"\\ud800"}',
    "a surrogate as a name": b'{"\\udc00":1}',
    "a control character": b'{"a":"\n"}',
    "NaN": b'{"a":NaN}',
    "Infinity": b'{"a":Infinity}',
    "-Infinity": b'{"a":-Infinity}',
    "beyond doubles": b'{"a":1e999}',
    "endless integer": b'{"a":' + b"9" * 100_000 + b"}",
    "a name twice": b'{"a":1,"a":1}',
    "a name twice, escaped": b'{"a":1,"\\u0061":2}',
    "a name twice, inside": b'{"b":[{"c":{"a":1,"a":2}}]}',
    "33 deep": b'{"a":' * 33 + b"1" + b"}" * 33,
    "33 lists": b'{"a":' + b"[" * 32 + b"]" * 32 + b"}",
    "10,000 deep": b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
    "deep and cut": b'{"a":' * 100_000,
    "21,000 lists": b'{"a":[' + b"[]," * 21_000 + b"[]]}",
    "10 MB": b'{"a":"' + b"x" * 10_000_000 + b'"}',
    "single quotes": b"{'a':1}",
    "a comment": b'{"a":1}//',
    "a trailing comma": b'{"a":1,}',
    "a nul": b'{"a":1}\0',
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bodies(raw: bytes) -> None:
    """Two readers must never take one body for two things: whatever is not strict JSON of an object is refused."""
    with pytest.raises(InvalidArgumentError) as refused:
        read(raw)

    assert "raw" == refused.value.field
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("item", "count", "taken"),
    [
        (b"{}", MOST_CONTAINERS, True),
        (b"[]", MOST_CONTAINERS + 200, False),
        (b'{"name":"tea","no":1,"amount":450}', 2 * MOST_CONTAINERS, True),
        (b"[[]]", MOST_CONTAINERS, False),
    ],
)
def test_so_many_objects(item: bytes, count: int, *, taken: bool) -> None:
    """A body that is nothing but brackets is costly, and is not decoded; a long list of items is."""
    raw = b'{"a":[' + b",".join([item] * count) + b"]}"
    if taken:
        assert read(raw, BARE, max_bytes=len(raw)).weak
    else:
        with pytest.raises(InvalidArgumentError, match="thousands of objects"):
            read(raw, BARE, max_bytes=len(raw))


def test_what_is_strict() -> None:
    """As deep as allowed, white space, escapes, and characters of any plane."""
    deepest = b'{"a":' * 32 + b"1" + b"}" * 32
    told = read(b' {"a" : "\\ud83d\\ude00\xf0\x9f\x98\x80" , "b":[1.5,-0,true,null]}\n', BARE)

    assert {"a": "😀😀", "b": [1.5, 0, True, None]} == told.document
    assert read(deepest, BARE).weak


@pytest.mark.parametrize("number", [2**53 + 1, 2**64, -(2**64), 10**300 + 1])
def test_integers_are_exact(number: int) -> None:
    """Money is never rounded, however many digits it has."""
    assert number == read(f'{{"head":{{"data":{{"amount":{number}}}}}}}'.encode()).data["amount"]


def test_refusal_does_not_repeat_what_arrived() -> None:
    """An error goes into logs, and a payload does not."""
    with pytest.raises(InvalidArgumentError) as refused:
        read(b'{"email":"a@example.com"', BARE)

    assert "example" not in f"{refused.value!r}{vars(refused.value)}"


JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)
BODIES: Final = st.binary(max_size=60) | JSON.map(lambda each: json.dumps(each).encode())
HEADERS: Final = st.lists(st.tuples(st.text() | st.binary(), st.text() | st.binary()), max_size=4)


@given(raw=BODIES, headers=HEADERS, seed=st.integers(0, 20), kind=st.sampled_from([*KINDS, None]))
@example(raw=body(), headers=[], seed=0, kind=None)
def test_only_our_errors(raw: bytes, headers: Any, seed: int, kind: Any) -> None:
    """Whatever arrives, by any profile, it is read, or refused as an argument: never anything foreign."""
    for profile in (PROFILE, BOXED, scrambled(seed)):
        try:
            told = parse(raw, headers, profile=profile, kind=kind)
        except InvalidArgumentError:
            continue
        assert told.raw == raw
        assert told.dedup_key


@pytest.mark.parametrize(
    ("event", "data", "state"),
    [
        ("PAID", {"status": "SBX_PAID"}, "paid"),
        ("PAID", {"status": "SBX_CLOSED"}, "closed"),
        ("PAID", {"trade": 7}, "paid"),
        ("PAID", {"status": "SBX_SUCCEEDED"}, None),
        ("PAID", {"status": ["SBX_PAID"]}, None),
        ("BACK", {"status": "SBX_SUCCEEDED"}, "succeeded"),
        ("PLAN", {"status": "SBX_ACTIVE"}, "active"),
        ("OTHER", {"status": "SBX_PAID"}, None),
    ],
)
def test_state_is_named_as_in_answers(event: str, data: dict[str, Any], state: str | None) -> None:
    """A kind says not yet what happened: of an order, it may have been paid or closed, by the profile's names."""
    shape = evolve(SHAPE, kinds={"payment": ["PAID"], "refund": ["BACK"], "subscription": ["PLAN"]})
    answer = evolve(PROFILE.answer, payment_status="trade")
    states = evolve(PROFILE.states, payment={"paid": (7,)})

    assert state == read(body(event, **data), evolve(PROFILE, notification=shape, answer=answer, states=states)).state
