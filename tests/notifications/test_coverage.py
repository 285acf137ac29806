"""What a signature in the body of a notification covers: nothing else is read, whoever wrote it."""

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any, Final

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from payasync import Credentials, SortedPairs
from payasync.errors import ConfigurationError, InvalidSignatureError
from payasync.notifications.notification import Notification, coverage_of
from payasync.notifications.verification import check_covered, verification_of, verify
from payasync.profile.profile import Profile
from payasync.profile.schema import AnswerShape, NotificationShape, States
from payasync.profile.signed_fields import SignedFields

NOW: Final = 1_800_000_000
KEYS: Final = Credentials("M1", service_keys="service key number 1")
SHAPE: Final = NotificationShape(
    verification="body",
    data="data",
    signature="data.sign",
    kind="event",
    kinds={"payment": ["PAID", "SHUT"], "refund": ["BACK"]},
    time="data.at",
    out_trade_no="no",
    out_refund_no="back",
    id={"payment": ["no", "state"]},
    ack_status=200,
)
SCHEME: Final = SortedPairs(algorithm="hmac-sha256", encoding="hex", exclude=("sign", "type"))
PROFILE: Final = Profile(
    notification=SHAPE,
    signature=SCHEME,
    answer=AnswerShape(payment_id="pay", order_status="state"),
    states=States(order={"paid": ["PAID"], "closed": ["SHUT"]}),
)
FLAT: Final = evolve(PROFILE, notification=evolve(SHAPE, data="", signature="sign", kind="data.event", time="at"))
DATA: Final = {"no": "7", "state": "SHUT", "amt": 450, "at": NOW, "empty": ""}


def signature(fields: Mapping[str, Any]) -> str:
    """Return the signature of a payload, made by a few lines of this test's own."""
    signed = sorted((name, text) for name, value in fields.items() if (text := str(value)) and name != "type")
    text = "&".join(f"{name}={text}" for name, text in signed)
    return hmac.new(b"service key number 1", text.encode(), hashlib.sha256).hexdigest()


def genuine(data: Mapping[str, Any] = DATA) -> dict[str, Any]:
    """Return a payload as the service signs it."""
    return {**data, "sign": signature(data)}


def told(document: object, profile: Profile = PROFILE, kind: str | None = "payment") -> Notification:
    """Return a notification that is believed."""
    raw = json.dumps(document).encode()
    found = verify(raw, {}, profile=profile, credentials=KEYS, kind=kind, clock=lambda: NOW)
    assert found.verified
    return found


@pytest.mark.parametrize(
    ("path", "flat", "nested", "omitted"),
    [
        ("data.no", True, True, True),
        ("data.back.no", True, True, False),
        ("data.back.0.no", True, True, False),
        ("data.back.sign", True, True, False),
        ("data.sign", False, False, False),
        ("data.type", False, False, False),
        ("data.type.name", False, False, False),
        ("no", False, False, False),
        ("dat.a", False, False, False),
        ("data", True, True, True),
        ("", False, False, False),
    ],
)
def test_what_is_covered(path: str, *, flat: bool, nested: bool, omitted: bool) -> None:
    """The fields of the object that the signature stands in, without it and what the scheme leaves out."""
    own = SignedFields("data", "sign", frozenset({"type"}))
    schemes = [SCHEME, evolve(SCHEME, nested="json"), evolve(SCHEME, nested="omit")]
    found = [coverage_of(evolve(PROFILE, signature=scheme)) for scheme in schemes]

    assert [flat, nested, omitted] == [each.covers(path) for each in found if each]
    assert nested is own.covers(path)


def test_where_nothing_is_signed_in_the_body() -> None:
    """What is signed in its headers is so as a whole; and of a hint, nothing is."""
    for verification in ("", "none", "standard-webhooks"):
        assert coverage_of(evolve(PROFILE, notification=evolve(SHAPE, verification=verification))) is None
    assert coverage_of(evolve(PROFILE, notification=evolve(SHAPE, signature=""))) is None


@pytest.mark.parametrize("event", ["PAID", "BACK", "OTHER", None])
def test_event_that_nobody_signed(event: str | None) -> None:
    """Anybody could name another one beside a genuine payload: like an address it says the kind, and no more."""
    found = told({"event": event, "data": genuine()}, kind=None)

    assert ({"PAID": "payment", "BACK": "refund"}.get(str(event)), None) == (found.kind, found.event)
    assert ("closed" if event == "PAID" else None) == found.state


def test_event_that_is_signed() -> None:
    """In the payload it says the kind, whatever the address leaves out."""
    inside = evolve(PROFILE, notification=evolve(SHAPE, kind="data.event"))
    found = told({"data": genuine({**DATA, "event": "SHUT"})}, inside, kind=None)

    assert ("payment", "SHUT") == (found.kind, found.event)


def test_object_that_is_left_out_of_what_is_signed() -> None:
    """Where objects are omitted, or a name is excluded, a forged one is no part of the payload; the bytes have it."""
    omit = evolve(FLAT, signature=evolve(SCHEME, nested="omit"))
    found = told({**genuine(), "order": {"no": "8"}, "list": [1], "type": "x"}, omit)

    assert genuine() == found.data == found.trusted
    assert ("7", 'payment:["7","SHUT"]') == (found.out_trade_no, found.dedup_key)
    assert found.document == json.loads(found.raw) == {**found.data, "order": {"no": "8"}, "list": [1], "type": "x"}


def test_numbers_are_read_of_what_is_signed() -> None:
    """Answers' paths lead into it, too: what the service calls a payment may stand in an object that nobody signed."""
    omit = evolve(FLAT, signature=evolve(SCHEME, nested="omit"))
    deep = evolve(omit, answer=AnswerShape(payment_id="order.pay", order_status="order.state"))
    found = told({**genuine(), "order": {"pay": "P1", "state": "PAID"}}, deep)

    assert (None, None) == (found.payment_id, found.state)


@pytest.mark.parametrize("identified", [True, False])
@given(
    beside=st.dictionaries(st.sampled_from(["at", "no", "more", "nonceStr"]), st.text() | st.integers()),
    retyped=st.sets(st.sampled_from([("no", 7), ("amt", "450"), ("at", str(NOW))])),
    emptied=st.dictionaries(st.sampled_from(["empty", "back", "more"]), st.sampled_from(["", None])),
    kind=st.text(),
)
def test_whatever_verifies_is_one_event(
    beside: dict[str, Any], retyped: set[tuple[str, Any]], emptied: dict[str, Any], kind: str, *, identified: bool
) -> None:
    """Nobody can make a second event, or another one, of a genuine notification without the key."""
    profile = PROFILE if identified else evolve(PROFILE, notification=evolve(SHAPE, id={}))
    first, data = told({"data": genuine()}, profile), genuine()
    forged = {**data, **dict(retyped), **emptied, "type": kind}
    again = told({**beside, "data": forged}, profile)

    def facts(each: Notification) -> tuple[object, ...]:
        return each.dedup_key, each.digest, each.kind, each.event, each.out_trade_no, each.out_refund_no, each.state

    assert facts(first) == facts(again)
    assert identified is not first.weak


@pytest.mark.parametrize("skip_null", [True, False])
def test_values_of_other_types_are_one_event(*, skip_null: bool) -> None:
    """Who writes the text of a null, of true or of a number in its place makes no second event: it is signed alike."""
    scheme = evolve(SCHEME, skip_null=skip_null, booleans="json", numbers="text")
    weak = evolve(PROFILE, notification=evolve(SHAPE, id={}), signature=scheme)
    plain = {**DATA, "vip": "true", "new": "false", "rate": "1.10"} | ({} if skip_null else {"note": "null"})
    signed = json.dumps({"data": genuine(plain)})
    typed = signed.replace('"true"', "true").replace('"false"', "false").replace('"1.10"', "1.10")
    typed = typed.replace('{"no"', '{"note": null, "no"') if skip_null else typed.replace('"null"', "null")
    events = [
        verify(each.encode(), {}, profile=weak, credentials=KEYS, kind="payment", clock=lambda: NOW)
        for each in (signed, typed, typed.replace("1.10", '"1.10"'))
    ]

    assert typed != signed
    assert 1 == len({each.dedup_key for each in events})
    assert (True, 1.1, float) == (events[1].data["vip"], events[1].data["rate"], type(events[1].data["rate"]))


def test_other_values_are_other_events() -> None:
    """What the signature tells apart stays apart."""
    weak = evolve(PROFILE, notification=evolve(SHAPE, id={}))
    changes: list[dict[str, Any]] = [{}, {"amt": 451}, {"amt": "0450"}, {"empty": " "}, {"more": "0"}]

    assert 5 == len({told({"data": genuine({**DATA, **change})}, weak).dedup_key for change in changes})


@pytest.mark.parametrize(
    ("shape", "scheme", "point"),
    [
        (evolve(SHAPE, signature="seal.sign"), SCHEME, "notification.data"),
        (evolve(SHAPE, data=""), SCHEME, "notification.data"),
        (evolve(SHAPE, signature="sign", time=""), evolve(SCHEME, nested="omit"), "notification.data"),
        (evolve(SHAPE, signature="sign"), evolve(SCHEME, exclude=("sign", "data")), "notification.data"),
        (evolve(SHAPE, out_trade_no="order.no"), evolve(SCHEME, nested="omit"), "notification.out_trade_no"),
        (evolve(SHAPE, out_refund_no="sign"), SCHEME, "notification.out_refund_no"),
        (evolve(SHAPE, subscription_id="type"), SCHEME, "notification.subscription_id"),
        (evolve(SHAPE, id={"refund": ["back", "type"]}), SCHEME, "notification.id.refund"),
    ],
)
def test_what_would_be_believed_unsigned(shape: NotificationShape, scheme: SortedPairs, point: str) -> None:
    """Anybody could write his own beside a genuine signature: who would believe it is refused as it is made."""
    profile = evolve(PROFILE, notification=shape, signature=scheme)
    with pytest.raises(ConfigurationError, match="does not cover") as refused:
        verification_of(profile, KEYS)

    assert point == refused.value.field
    check_covered(evolve(profile, notification=evolve(shape, verification="none")))
    assert verification_of(profile, KEYS, lambda _raw, _headers: True).proves


def test_time_that_nobody_signed() -> None:
    """It is better than none: what comes late by itself is refused. It names no event, so that a new one makes none."""
    beside = evolve(PROFILE, notification=evolve(SHAPE, time="at", id={}))
    found = [told({"at": at, "data": genuine()}, beside) for at in (NOW, NOW - 9)]

    assert found[0].dedup_key == found[1].dedup_key
    with pytest.raises(InvalidSignatureError, match="at "):
        told({"at": NOW - 301, "data": genuine()}, beside)


def test_verifier_covers_all() -> None:
    """A function gets every byte: nothing of what it calls true is left out."""
    found = verify(
        b'{"event":"PAID","data":{"no":"7","type":"x"}}',
        {},
        profile=PROFILE,
        credentials=KEYS,
        verifier=lambda _raw, _headers: True,
    )

    assert ("payment", "PAID", {"no": "7", "type": "x"}) == (found.kind, found.event, found.data)


@pytest.mark.parametrize("document", [{}, {"data": []}, {"data": "x"}, {"data": None}, [{"no": "1"}]])
def test_where_nothing_is_signed_nothing_is_read(document: Any) -> None:
    """What has no such object says nothing."""
    coverage = SignedFields("data", "sign")

    assert {"data": {}} == coverage.read({"head": document, **(document if isinstance(document, dict) else {})})
