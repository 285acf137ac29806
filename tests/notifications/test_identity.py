"""Which event a notification tells of: what makes two of them one."""

import hashlib
import json
from typing import Any, Final

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from payasync.notifications.notification import MAX_KEY, digest_document, identify
from payasync.profile.schema import NotificationShape
from payasync.sandbox import PROFILE

SHAPE: Final = NotificationShape(
    data="data", id={"payment": ["no", "state.now"], "subscription": ["no", "period"]}, verification="body"
)
HEADERS: Final = {"webhook-id": "msg_1"}
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c", "at", "x"]), inner),
    max_leaves=8,
)


def key_of(data: Any, kind: str | None = "payment", shape: NotificationShape = SHAPE) -> str:
    """Return the key of a payload."""
    return identify(shape, kind, {"data": data}, data, HEADERS)[0]


def digest_of(document: Any, *volatile: str, signature: str = "") -> str:
    """Return the digest of a document."""
    return digest_document(NotificationShape(volatile=volatile, signature=signature), document)


def alike(one: Any, other: Any) -> bool:
    """Return whether two documents say the same, by type and value."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return repr(one) == repr(other)


def test_key_is_of_the_kind_and_its_paths() -> None:
    """The paths of the profile's `id`, relative to the payload, in their order."""
    told = identify(SHAPE, "payment", {}, {"no": "T1", "state": {"now": "PAID"}}, HEADERS)

    assert ('payment:["T1","PAID"]', False) == told[:2]


def test_renewals_are_different_events() -> None:
    """Each month has an event of its own, where the period is among the paths."""
    keys = [key_of({"no": "S1", "period": period}, "subscription") for period in (1, 2, "2")]

    assert ['subscription:["S1",1]', 'subscription:["S1",2]', 'subscription:["S1","2"]'] == keys


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"no": "a", "state": {"now": '","b'}}, {"no": 'a","', "state": {"now": "b"}}),
        ({"no": "1", "state": {"now": "b"}}, {"no": 1, "state": {"now": "b"}}),
        ({"no": " ", "state": {"now": "ab"}}, {"no": "a", "state": {"now": "b"}}),
        ({"no": "a ", "state": {"now": "b"}}, {"no": "a", "state": {"now": " b"}}),
    ],
)
def test_different_values_never_share_a_key(one: Any, other: Any) -> None:
    """Where one value ends and the next begins is in the key, and a text is no number."""
    assert key_of(one) != key_of(other)


@pytest.mark.parametrize("state", [None, True, 1.5, ["PAID"], {"now": "PAID"}, "", " \t"], ids=repr)
def test_values_that_name_nothing(state: Any) -> None:
    """Only texts and integers name an event: with a blank, anything else, or nothing, the key is the weak one."""
    told = identify(SHAPE, "payment", {}, {"no": "T1", "state": {"now": state}}, HEADERS)
    absent = identify(SHAPE, "payment", {}, {"no": "T1"}, HEADERS)

    assert [(f"weak:payment:{each[2]}", True) for each in (told, absent)] == [told[:2], absent[:2]]


def test_long_key_is_shortened() -> None:
    """No key is longer than 200 characters; the hash keeps it apart from others."""
    longest = "x" * (MAX_KEY - len('payment:["","b"]'))
    keys = [key_of({"no": number, "state": {"now": "b"}}) for number in (longest, longest + "x", longest + "y")]
    whole = json.dumps([longest + "x", "b"], separators=(",", ":"))

    assert MAX_KEY == len(keys[0])
    assert f"payment:sha256:{hashlib.sha256(whole.encode()).hexdigest()}" == keys[1]
    assert 3 == len(set(keys))


def test_header_of_standard_webhooks() -> None:
    """Without paths of the kind it names the event, where notifications are signed that way: the header is signed."""
    told = identify(PROFILE.notification, None, {"a": 1}, {}, HEADERS)
    long = identify(PROFILE.notification, None, {"a": 1}, {}, {"webhook-id": "m" * 256})

    assert ("webhook:msg_1", False) == told[:2]
    assert f"webhook:sha256:{hashlib.sha256(b'm' * 256).hexdigest()}" == long[0]


@pytest.mark.parametrize("number", ["", " "])
def test_header_that_is_blank(number: str) -> None:
    """It names nothing: not every event that has none is the same one."""
    assert identify(PROFILE.notification, None, {"a": 1}, {}, {"webhook-id": number})[1]


@pytest.mark.parametrize("verification", ["", "body", "none"])
def test_header_that_nobody_signed(verification: Any) -> None:
    """Where the signature does not cover it, anybody could write it, and it names nothing."""
    shape = evolve(PROFILE.notification, verification=verification, signature="sign")

    assert identify(shape, None, {"a": 1}, {}, HEADERS)[1]


def test_one_body_at_two_addresses() -> None:
    """A weak key is of its kind: what two addresses are told is two events."""
    assert 3 == len({key_of({}, kind) for kind in ("payment", "refund", None)})


def test_digest_is_of_what_the_body_says() -> None:
    """The order of names makes no difference, and every value does."""
    assert hashlib.sha256(b'{"a":[1,"\xc3\xa9"],"b":{"c":null}}').hexdigest() == digest_of(
        {"b": {"c": None}, "a": [1, "é"]}
    )


@given(document=JSON, other=JSON)
def test_digests_are_equal_only_where_bodies_are(document: Any, other: Any) -> None:
    """A number is no text, true is not 1, and lists keep their order."""
    assert alike(document, other) == (digest_of(document) == digest_of(other))
    assert digest_of(document) == digest_of(json.loads(json.dumps(document, indent=1)))


@given(document=st.dictionaries(st.sampled_from("abc"), JSON), noise=JSON, more=JSON)
def test_volatile_name_makes_no_difference_anywhere(document: Any, noise: Any, more: Any) -> None:
    """A name without a dot stands for every field of that name, however deep."""
    changed = {"x": more, **json.loads(json.dumps(document), object_hook=lambda each: {**each, "x": noise})}

    assert digest_of(document, "x") == digest_of(changed, "x")


def test_volatile_path_is_one_place() -> None:
    """A dotted path is relative to the document, and of lists it takes a place."""
    document = {"a": {"at": 1, "b": {"at": 1}}, "at": 1, "l": [{"at": 1}, {"at": 1}]}
    without = {"a": {"b": {"at": 1}}, "at": 1, "l": [{"at": 1}, {}]}

    assert digest_of(without) == digest_of(document, "a.at", "l.1.at")
    assert digest_of(document) == digest_of(document, "at.a", "b.at", "l.at", "l.2.at", "a.at.x")
    assert digest_of({"l": [{"at": 1}]}) == digest_of({"l": [{"at": 1}, 2]}, "l.1")


def test_signature_is_no_part_of_what_is_said() -> None:
    """Each delivery may be signed afresh: its place is left out without being called volatile, and no other."""
    one, other = ({"data": {"sign": sign, "a": 1}, "sign": 5} for sign in "xy")

    assert digest_of(one) != digest_of(other)
    assert digest_of(one, signature="data.sign") == digest_of(other, signature="data.sign")
    assert digest_of({"data": {"sign": "x"}}, signature="sign") != digest_of({"data": {"sign": "y"}}, signature="sign")
    assert digest_of({"sign": "x"}, signature="sign") == digest_of({"sign": "y"}, signature="sign")


def test_nonce_is_no_part_of_what_is_said() -> None:
    """It is drawn for each delivery, wherever it stands."""
    one, other = ({"a": 1, "nonceStr": nonce, "data": {"nonceStr": nonce}} for nonce in "xy")

    assert digest_of({"a": 1, "data": {}}) == digest_of(one) == digest_of(other)


@pytest.mark.parametrize("verification", ["body", "", "none", "standard-webhooks"])
def test_time_of_the_delivery_is_no_part_of_what_is_said(verification: Any) -> None:
    """Signed in the body it must lie in a window, and each delivery has its own; elsewhere it is that of the event."""
    shape = NotificationShape(verification=verification, signature="data.sign", time="data.at", id={"payment": ["no"]})
    one, other = (identify(shape, "payment", {"data": {"at": at}, "no": 7}, {"no": 7}, {})[2] for at in (1, 2))

    assert (verification in {"body", ""}) is (one == other)


def test_time_tells_events_apart_that_nothing_names() -> None:
    """A renewal that says the same a month later is another event: to lose it would be worse than to tell it twice."""
    shape = NotificationShape(verification="body", signature="data.sign", time="data.at")
    named = evolve(shape, volatile=("at",))

    def key(shape: NotificationShape, at: int) -> str:
        return identify(shape, "subscription", {"data": {"at": at}}, {"at": at}, {})[0]

    assert key(shape, 1) != key(shape, 2)
    assert key(named, 1) == key(named, 2)
