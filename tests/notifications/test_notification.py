"""Reading a notification without I/O: its fields, its event and its key; and the notification as a value."""

import array
import copy
import hashlib
import json
import pickle
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from operator import or_
from typing import Any, Final

import pytest
from attrs import evolve, frozen
from multidict import CIMultiDict

from payasync import OrderResponse
from payasync.endpoints import QUERY_ORDER
from payasync.errors import ConfigurationError, InvalidArgumentError
from payasync.notifications.notification import (
    MAX_BYTES,
    MAX_COMMAS,
    MAX_CONTAINERS,
    MAX_KEY,
    Notification,
    copy_body,
    digest_document,
    identify,
    parse,
    read_headers,
)
from payasync.profile.profile import Profile
from payasync.profile.schema import AnswerShape, NotificationShape
from payasync.sandbox import PROFILE, Sandbox
from tests.building import bare_call, reply

BOXED_SHAPE: Final = NotificationShape(
    data="head.data",
    kind="head.event",
    kinds={"payment": ["PAID", "SHUT"], "refund": ["BACK"]},
    out_trade_no="no",
    out_refund_no="back.no",
    subscription_id="plan",
    id={"payment": ["no"]},
)
BOXED: Final = Profile(notification=BOXED_SHAPE, answer=AnswerShape(payment_id="pay"))
BARE: Final = Profile()
NOW: Final = datetime(2027, 1, 31, 12, tzinfo=UTC)


def body_of(event: Any = "PAID", **data: Any) -> bytes:
    """Return a body in the envelope."""
    return json.dumps({"head": {"event": event, "data": {"no": "T1", **data}}}).encode()


def read(raw: Any, profile: Profile = BOXED, **options: Any) -> Notification:
    """Return what is read of a body."""
    return parse(raw, {}, profile=profile, **options)


def facts_of(found: Notification, *names: str) -> tuple[Any, ...]:
    """Return attributes of a notification."""
    return tuple(getattr(found, each) for each in names)


PLACES: Final[dict[str, Any]] = {
    "out_trade_no": lambda number: {"no": number},
    "out_refund_no": lambda number: {"back": {"no": number}},
    "subscription_id": lambda number: {"plan": number},
    "payment_id": lambda number: {"pay": number},
}


def test_everything_in_its_place() -> None:
    """Each fact is where the profile says; the bytes and the headers stay as they were received.

    If the profile has no settings, the document is the payload, and the key is weak.
    """
    raw = body_of(back={"no": "R1"}, plan="S1", pay=7)
    found, bare = parse(raw, {"X-A": "1"}, profile=BOXED, received_at=NOW), read(b'{"a":1}', BARE)

    assert ("payment", "PAID", raw, "1", NOW) == (*facts_of(found, "kind", "event", "raw"), found.headers["x-a"], NOW)
    assert {"no": "T1", "back": {"no": "R1"}, "plan": "S1", "pay": 7} == found.data
    assert json.loads(raw) == found.document
    assert ("T1", "R1", "S1", "7") == facts_of(found, *PLACES)
    assert ('payment:["T1"]', False) == (found.dedup_key, found.weak)
    assert (None, None, {"a": 1}) == facts_of(bare, "kind", "event", "data")
    assert (None, None, None, None) == facts_of(bare, *PLACES)
    assert (f"weak:{bare.digest}", True) == (bare.dedup_key, bare.weak)


NUMBERLESS: Final = (None, True, 1.5, "", " ", ["T1"], {"no": "T1"})
UNPRINTABLE: Final = ("T\0", "T1\n", "\x1b[2J", "T\x7f", "T\u2028", "T\u200b1")


@pytest.mark.parametrize("name", PLACES)
def test_number(name: str) -> None:
    """A number is an integer or a text that is not blank. Any other value is read as `None`.

    A text with a control character is refused. The merchant's own numbers must match the profile's pattern.
    """
    own = name in {"out_trade_no", "out_refund_no"}
    refused = ("../refund", "T 1", "é", "R'1", "T" * 65)

    def found(number: Any, profile: Profile = BOXED) -> Any:
        return getattr(read(body_of(**PLACES[name](number)), profile), name)

    assert [None] * len(NUMBERLESS) == [found(each) for each in NUMBERLESS]
    assert ["7", "T-1"] == [found(each) for each in (7, "T-1")]
    assert own or list(refused) == [found(each) for each in refused]
    for number in (*UNPRINTABLE, *(refused if own else ())):
        for profile in (BOXED, *([] if number in refused else [evolve(BOXED, identifier="(?s:.*)")])):
            with pytest.raises(InvalidArgumentError, match=f"{name} must be a number") as error:
                found(number, profile)
            assert name == error.value.field


def test_received_at() -> None:
    """The time of arrival is in UTC; the default is now. One without an offset is refused."""
    there = NOW.astimezone(timezone(timedelta(hours=9)))
    before, found = datetime.now(UTC), read(body_of(), received_at=there).received_at
    wrong: tuple[Any, ...] = (datetime(2027, 1, 31), "2027-01-31", 5)  # noqa: DTZ001 - a bad one

    assert (UTC, NOW) == (found.tzinfo, found)
    assert before <= read(body_of()).received_at <= datetime.now(UTC)
    for moment in wrong:
        with pytest.raises(InvalidArgumentError, match="received_at must be an aware datetime"):
            read(body_of(), received_at=moment)


def test_kind() -> None:
    """The service's own name of the event decides the kind if the profile knows it; otherwise the address does."""
    cases: tuple[tuple[Any, str | None, str | None, str | None], ...] = (
        ("PAID", None, "payment", "PAID"),
        ("SHUT", "payment", "payment", "SHUT"),
        ("BACK", None, "refund", "BACK"),
        ("BACK", "refund", "refund", "BACK"),
        ("OTHER", None, None, "OTHER"),
        ("OTHER", "payment", "payment", "OTHER"),
        ("paid", "refund", "refund", "paid"),
        (7, "payment", "payment", None),
        (None, "refund", "refund", None),
        (None, None, None, None),
    )
    for event, routed, kind, name in cases:
        assert (kind, name) == facts_of(read(body_of(event), kind=routed), "kind", "event"), (event, routed)


def test_wrong_kind() -> None:
    """A payment at the address for refunds is refused, and so is a kind that does not exist."""
    unknown: tuple[Any, ...] = ("", "payments", "*", "PAYMENT", 5)
    astray = "about a payment, but arrived at the address for refunds"
    for kind, words in (("refund", astray), *((each, "payment, refund, subscription") for each in unknown)):
        with pytest.raises(InvalidArgumentError, match=words) as refused:
            read(body_of(), kind=kind)

        assert "kind" == refused.value.field


LONG: Final = b"7" * 5000
HOSTILE: Final[dict[str, tuple[bytes, ...]]] = {
    "other bytes": (b"", b"{", b"\xff", b'{"email":"a@example.com"', '{"a":1}'.encode("utf-16")),
    "a list": (b"[]",),
    "a single value": (b'"a"', b"null"),
    "one with a name twice in an object": (b'{"a":1,"a":1}', b'{"a":[{"b":null,"b":%b}]}' % LONG),
    "one with a number that is not finite, or has more than 5000 digits": (b'{"a":1e400}', b'{"a":-7%b}' % LONG),
    "one nested deeper than 32": (b'{"a":' * 33 + b"1" + b"}" * 33, b'{"a":%b,"b":%b}' % (LONG, b"[" * 32 + b"]" * 32)),
    "one with thousands of brackets or commas": (b"[" * 2000, b'{"a":[1%b]}' % (b",1" * (MAX_COMMAS + 1))),
}


@pytest.mark.parametrize("flaw", HOSTILE)
def test_error_says_why_a_body_cannot_be_read(flaw: str) -> None:
    """A body that is not a strict JSON object is refused, because two readers could take it for two things.

    The error names the rule of JSON that a body breaks, and does not repeat what arrived.
    """
    for raw in HOSTILE[flaw]:
        with pytest.raises(InvalidArgumentError) as refused:
            read(raw)

        assert ("raw", f"raw must be a JSON object in UTF-8, not {flaw}") == (refused.value.field, str(refused.value))
        assert "example" not in f"{refused.value!r}{vars(refused.value)}"


def test_so_many_objects() -> None:
    """A body with thousands of nested objects is refused. A long list of simple items is read."""
    row = b'{"name":"tea","no":1,"amount":450}'
    for item, count in ((b"{}", MAX_CONTAINERS), (row, 2 * MAX_CONTAINERS)):
        raw = b'{"a":[' + b",".join([item] * count) + b"]}"
        assert read(raw, BARE, max_bytes=len(raw)).weak
    for item, count in ((b"[]", MAX_CONTAINERS + 200), (b"[[]]", MAX_CONTAINERS)):
        with pytest.raises(InvalidArgumentError, match="thousands of brackets"):
            read(b'{"a":[' + b",".join([item] * count) + b"]}", BARE)


def test_state_is_named_as_in_answers() -> None:
    """A notification's `state` is the profile's name for the state in its payload."""
    shape = evolve(BOXED_SHAPE, kinds={"payment": ["PAID"], "refund": ["BACK"], "subscription": ["PLAN"]})
    answer = evolve(PROFILE.answer, payment_status="trade")
    states = evolve(PROFILE.states, payment={"paid": (7,)})
    profile = evolve(PROFILE, notification=shape, answer=answer, states=states)
    cases: tuple[tuple[str, dict[str, Any], str | None], ...] = (
        ("PAID", {"status": "SBX_PAID"}, "paid"),
        ("PAID", {"status": "SBX_CLOSED"}, "closed"),
        ("PAID", {"trade": 7}, "paid"),
        ("PAID", {"status": "SBX_SUCCEEDED"}, None),
        ("PAID", {"status": ["SBX_PAID"]}, None),
        ("BACK", {"status": "SBX_SUCCEEDED"}, "succeeded"),
        ("PLAN", {"status": "SBX_ACTIVE"}, "active"),
        ("OTHER", {"status": "SBX_PAID"}, None),
    )
    for event, data, state in cases:
        assert state == read(body_of(event, **data), profile).state, (event, data)


SHAPE: Final = NotificationShape(
    data="data", id={"payment": ["no", "state.now"], "subscription": ["no", "period"]}, verification="body"
)
TIMED: Final = NotificationShape(verification="body", signature="data.sign", time="data.at")
WEBHOOK_HEADERS: Final = {"webhook-id": "msg_1"}


def key_of(data: Any, kind: str | None = "payment", shape: NotificationShape = SHAPE) -> str:
    """Return the key of a payload."""
    return identify(shape, kind, {"data": data}, data, WEBHOOK_HEADERS)[0]


def digest_of(document: Any, *volatile: str, signature: str = "") -> str:
    """Return the digest of a document."""
    return digest_document(NotificationShape(volatile=volatile, signature=signature), document)


def test_different_values_never_share_a_key() -> None:
    """Different values have different keys, also a text and a number with the same digits."""
    pairs: list[tuple[Any, Any]] = [('","b', "a"), ("b", 'a","'), ("b", "1"), ("b", 1)]
    pairs += [("ab", " "), ("b", "a"), ("b", "a "), (" b", "a")]

    assert len(pairs) == len({key_of({"no": number, "state": {"now": now}}) for now, number in pairs})


def test_values_that_name_nothing() -> None:
    """If a value of the key is neither a text nor an integer, or is blank or missing, the key is weak."""
    states: tuple[Any, ...] = (None, True, 1.5, ["PAID"], {"now": "PAID"}, "", " \t")
    for data in ({"no": "T1"}, *({"no": "T1", "state": {"now": each}} for each in states)):
        key, weak, digest = identify(SHAPE, "payment", {}, data, WEBHOOK_HEADERS)

        assert (f"weak:payment:{digest}", True) == (key, weak), data


def test_long_key_is_shortened() -> None:
    """No key is longer than 200 characters; the hash keeps it apart from others."""
    longest = "x" * (MAX_KEY - len('payment:["","b"]'))
    keys = [key_of({"no": number, "state": {"now": "b"}}) for number in (longest, longest + "x", longest + "y")]
    whole = json.dumps([longest + "x", "b"], separators=(",", ":"))

    assert MAX_KEY == len(keys[0])
    assert f"payment:sha256:{hashlib.sha256(whole.encode()).hexdigest()}" == keys[1]
    assert 3 == len(set(keys))


def test_header_of_standard_webhooks() -> None:
    """Without paths of the kind, the header names the event, if notifications are signed with their headers."""
    found = identify(PROFILE.notification, None, {"a": 1}, {}, WEBHOOK_HEADERS)
    long = identify(PROFILE.notification, None, {"a": 1}, {}, {"webhook-id": "m" * 256})
    unsigned = [evolve(PROFILE.notification, verification=each, signature="sign") for each in ("", "body", "none")]

    assert ("webhook:msg_1", False) == found[:2]
    assert f"webhook:sha256:{hashlib.sha256(b'm' * 256).hexdigest()}" == long[0]
    assert all(identify(each, None, {"a": 1}, {}, WEBHOOK_HEADERS)[1] for each in unsigned)
    assert all(identify(PROFILE.notification, None, {"a": 1}, {}, {"webhook-id": each})[1] for each in ("", " "))


def test_digest_is_of_what_the_body_says() -> None:
    """The order of names makes no difference, and every value does: a number is no text, and lists keep their order."""
    values = [1, 2, 1.0, 1.5, True, False, None, "1", "true", "null", "", [], {}, [1, 2], [2, 1], [[1], 2], {"b": 1}]

    assert len(values) == len({digest_of({"a": each}) for each in values})
    assert hashlib.sha256(b'{"a":[1,"\xc3\xa9"],"b":{"c":null}}').hexdigest() == digest_of(
        {"b": {"c": None}, "a": [1, "é"]}
    )


def test_volatile_name_makes_no_difference_anywhere() -> None:
    """A name without a dot stands for every field of that name, however deep, and whatever it holds."""
    document = {"a": [{"b": {"c": 1}}, [{"c": 2}]], "b": {"a": {"a": None}}}
    for noise in (None, 1, "x", [1], {"x": {"a": 1}}):
        changed = json.loads(json.dumps(document), object_hook=partial(or_, {"x": noise}))

        assert digest_of(document) == digest_of(document, "x") == digest_of(changed, "x") != digest_of(changed)


def test_volatile_path_is_one_place() -> None:
    """A dotted volatile path is relative to the document, and can name an index of a list."""
    document = {"a": {"at": 1, "b": {"at": 1}}, "at": 1, "l": [{"at": 1}, {"at": 1}]}
    without = {"a": {"b": {"at": 1}}, "at": 1, "l": [{"at": 1}, {}]}

    assert digest_of(without) == digest_of(document, "a.at", "l.1.at")
    assert digest_of(document) == digest_of(document, "at.a", "b.at", "l.at", "l.2.at", "a.at.x")
    assert digest_of({"l": [{"at": 1}]}) == digest_of({"l": [{"at": 1}, 2]}, "l.1")


def test_signature_and_nonce_are_not_in_the_digest() -> None:
    """Each delivery may be signed afresh: its signature, at its place only, and its nonces are left out.

    A nonce that the profile names otherwise is left out under that name, and under no other.
    """
    one, other = ({"data": {"sign": sign, "a": 1}, "sign": 5} for sign in "xy")
    profile = Profile(fields={"nonce": "nonce_str"})
    bodies = [f'{{"a":1,"nonce_str":"{each}","head":{{"nonce":"{each}"}}}}'.encode() for each in "xy"]
    renamed = [parse(each, {}, profile=profile).digest for each in bodies]

    assert digest_of(one) != digest_of(other)
    assert digest_of(one, signature="data.sign") == digest_of(other, signature="data.sign")
    assert digest_of({"data": {"sign": "x"}}, signature="sign") != digest_of({"data": {"sign": "y"}}, signature="sign")
    assert digest_of({"sign": "x"}, signature="sign") == digest_of({"sign": "y"}, signature="sign")
    assert digest_of({"data": {}}) == digest_of({"nonceStr": "x", "data": {"nonceStr": "y"}})
    assert [digest_of({"a": 1, "head": {"nonce": each}}) for each in "xy"] == renamed


def weak_key(shape: NotificationShape = TIMED, **data: object) -> str:
    """Return the key of a renewal that nothing names."""
    return identify(shape, "subscription", {"data": data}, data, {})[0]


def test_time_in_a_weak_key() -> None:
    """If only the time differs, two events have different weak keys, unless the profile calls the time volatile.

    If an event has a time of its own, the key has this one in place of the delivery's, which a redelivery changes.
    """
    own = evolve(TIMED, event_time="data.paid")
    lacking: tuple[dict[str, object], ...] = ({}, {"paid": None}, {"paid": ""}, {"paid": "soon"})

    assert weak_key(at=1) != weak_key(at=2)
    assert weak_key(evolve(TIMED, volatile=("at",)), at=1) == weak_key(evolve(TIMED, volatile=("at",)), at=2)
    assert weak_key(own, at=1, paid=7) == weak_key(own, at=2, paid=7) != weak_key(own, at=1, paid=8)
    for each in lacking:
        assert weak_key(own, at=1, **each) != weak_key(own, at=2, **each)


@pytest.mark.parametrize("verification", ["body", "", "none", "standard-webhooks"])
def test_time_of_the_delivery_is_no_part_of_what_is_said(verification: Any) -> None:
    """If the body is signed with a time, the digest leaves that time out. Otherwise the digest has it."""
    shape = NotificationShape(verification=verification, signature="data.sign", time="data.at", id={"payment": ["no"]})
    one, other = (identify(shape, "payment", {"data": {"at": at}, "no": 7}, {"no": 7}, {})[2] for at in (1, 2))

    assert (verification in {"body", ""}) is (one == other)


PAID_BODY: Final = (
    b'{"type":"payment.paid","data":{"outTradeNo":"T1","status":"SBX_PAID","totalAmt":450,"tags":["a","b"]}}'
)


def notification_of(**facts: Any) -> Notification:
    """Return a notification with other facts."""
    return evolve(parse(PAID_BODY, {"X-A": "1"}, profile=PROFILE, received_at=NOW), **facts)


def answered(document: object) -> OrderResponse:
    """Return what the service says when it is asked."""
    return OrderResponse.of(bare_call(QUERY_ORDER), reply(document))


def test_what_may_be_acted_upon() -> None:
    """`trusted` is the confirmed response, otherwise the data of a verified notification, otherwise `None`.

    If the service has confirmed a hint, `state` is that of the service's response.
    """
    confirmed = answered({"status": "SBX_CLOSED"})

    assert notification_of().trusted is None
    assert notification_of(verified=True).trusted == notification_of().data
    for each in (notification_of(confirmed=confirmed), notification_of(verified=True, confirmed=confirmed)):
        assert {"status": "SBX_CLOSED"} == each.trusted
    assert ("paid", None) == (notification_of().state, each.state)  # by a profile without names


def test_fields_of_the_payload() -> None:
    """`get` reads a field of the payload by a dotted path, and returns the default if it is missing."""
    found = notification_of()

    assert ["T1", "b", None, 0] == [*map(found.get, ("outTradeNo", "tags.1", "type")), found.get("x", 0)]


async def test_confirming() -> None:
    """A payment is confirmed by a query of its order; without a session, the error says where to give one."""
    async with Sandbox() as sandbox, sandbox.session() as pay:
        await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1")
        answer = await notification_of(session=pay).confirm()
        again = await notification_of().confirm(session=pay)
    with pytest.raises(ConfigurationError, match=r"Receiver\(session=...\), or confirm\(session=...\)") as refused:
        await notification_of().confirm()

    assert ("pending", 450, "T1") == (answer.state, answer["totalAmt"], answer["outTradeNo"])
    assert (OrderResponse, answer["paymentId"]) == (type(answer), again["paymentId"])
    assert "session" == refused.value.field


def test_body_is_bytes_of_its_own() -> None:
    """A body given as any bytes-like object becomes `bytes`, if it has the maximal length at most."""
    longest, released = b" " * MAX_BYTES, memoryview(b"{}")
    released.release()
    for raw in (b"{}", bytearray(b"{}"), memoryview(b"{}"), memoryview(b"{-}-")[::2]):
        assert (bytes, b"{}") == (type(copy_body(raw)), copy_body(raw))
    no_bytes: tuple[Any, ...] = ("{}", None, 5, [123, 125], array.array("b", b"{}"), released)
    for raw in no_bytes:
        with pytest.raises(InvalidArgumentError, match=r"the body's bytes, as they were received|was released") as bad:
            copy_body(raw)

        assert "raw" == bad.value.field
    assert longest == copy_body(longest, MAX_BYTES)
    with pytest.raises(InvalidArgumentError, match="3 bytes long at most, not of 4"):
        copy_body(b"1234", max_bytes=3)
    with pytest.raises(InvalidArgumentError):
        read(longest + b" ")


@frozen
class Paid:
    """A merchant's own class."""

    outTradeNo: str  # noqa: N815 - the wire's name
    totalAmt: int  # noqa: N815 - the wire's name


@frozen
class Wrong:
    """A class that the payload does not fit."""

    totalAmt: str  # noqa: N815 - the wire's name


def test_payload_as_a_class() -> None:
    """`to` converts the payload without changing types. If it does not fit, the error says where."""
    assert Paid("T1", 450) == notification_of().to(Paid)
    with pytest.raises(
        InvalidArgumentError, match=r"the notification does not fit Wrong: expected str, got int @ data\.tot"
    ):
        notification_of().to(Wrong)


def test_shown_without_the_payload() -> None:
    """The `repr` of a notification shows its key, but neither payload, headers nor session."""
    shown = repr(notification_of(headers={"cookie": "canary"}, session=object()))

    assert 'payment:["T1","SBX_PAID"]' in shown
    assert not [word for word in ("450", "cookie", "canary", "session", "object") if word in shown]


def test_copies_are_plain() -> None:
    """A copy or pickle of a notification has everything but the session."""
    session = object()
    first = notification_of(session=session, confirmed=answered({"a": 1}), id=7, attempt=2)
    assert session is vars(first)["_session"]
    for other in (copy.copy(first), copy.deepcopy(first), pickle.loads(pickle.dumps(first))):  # noqa: S301 - made here
        assert vars(other)["_session"] is None
        assert (first, first.document, "1") == (other, other.document, other.headers["x-A"])


def test_nothing_to_ask_about() -> None:
    """A subscription, or a notification without a number, cannot be confirmed (docs/reference/service.md#queries)."""
    alone = {"kind": "refund", "out_refund_no": "R1", "out_trade_no": None, "asks_with_order": True}
    cases: dict[str, dict[str, Any]] = {
        "no number to query: notification.out_trade_no is its path": {"out_trade_no": None},
        "no number to query: notification.out_refund_no is its path": {"kind": "refund"},
        "not name its order, which the query needs, too: notification.out_trade_no is the path": alone,
        "no query about subscription": {"kind": "subscription", "subscription_id": "S1"},
        "no query about an unknown event": {"kind": None},
    }
    for words, facts in cases.items():
        with pytest.raises(InvalidArgumentError, match=words):
            notification_of(**facts).inquiry()


def test_headers_by_names_in_any_case() -> None:
    """Headers can be a mapping or pairs, of texts or bytes, with names in any case. Any other type is refused."""
    right: tuple[Any, ...] = (
        *({"Webhook-Id": "m1"}, {b"webhook-id": b"m1"}, [("WEBHOOK-ID", "m1")], [(b"webhook-id", b"m1")]),
        *([["webhook-ID", "m1"]], CIMultiDict({"webhook-id": "m1"}), iter([("webhook-id", "m1")])),
    )
    wrong: tuple[Any, ...] = (
        *(None, 5, "webhook-id: m1", b"webhook-id: m1", ["webhook-id"], ["ab"], [("a",)], [("a", "b", "c")]),
        *([("a", None)], [None], {"a": 1}, {1: "a"}, {"a": ["b"]}),
    )
    for headers in right:
        found = read_headers(headers)

        assert ("m1", 1) == (found["wEBHOOK-iD"], len(found))
    for headers in wrong:
        with pytest.raises(InvalidArgumentError, match="headers must be a mapping") as refused:
            read_headers(headers)

        assert "headers" == refused.value.field


def test_texts_of_headers() -> None:
    """Bytes in headers are latin-1, lone surrogates become "?", and a repeated header keeps both values."""
    assert ["a", "b"] == read_headers([("webhook-id", "a"), ("Webhook-Id", "b")]).getall("webhook-id")
    assert "".join(map(chr, range(256))) == read_headers({b"x": bytes(range(256))})["x"]
    assert {"x?": "a?b"} == read_headers({"x\udce9": "a\udce9b"})
