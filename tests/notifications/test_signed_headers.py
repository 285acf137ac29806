"""Services that sign the exact body in a header, tell the kind by a field, or write times without an offset."""

import hashlib
import hmac
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

import pytest
from attrs import evolve
from standardwebhooks import Webhook

from payasync import ABSENT, Credentials, Profile, QueryRefund, Session
from payasync.errors import ConfigurationError, InvalidArgumentError, InvalidSignatureError
from payasync.notifications import Notification, parse
from payasync.notifications.ingest import build_received
from payasync.notifications.verification import verification_of, verify
from payasync.profile.schema import MOST_SIGNATURES, AnswerShape, Endpoint, NotificationShape, SignedHeader, States
from payasync.sandbox import PROFILE
from payasync.signing import SortedPairs, Template
from payasync.signing.templates import parse_time
from payasync.testing import sign_notification
from tests.foreign.recorder import Recorder, answer
from tests.foreign.signatures import rsa_keys
from tests.notifications.merchant import CREDENTIALS as WITH_WEBHOOK_KEY
from tests.notifications.merchant import PAID, opened

NOW: Final = 1_800_000_000
KEY: Final = "service key number 1"
OWN: Final = "own signing key 1"
CREDENTIALS: Final = Credentials("M1", signing_key=OWN, service_keys=["service key number 0", KEY])
PLAIN: Final = SignedHeader(signature="X-Signature", prefix="sha256=")
TIMED: Final = SignedHeader(
    signature="X-Sign:v1", timestamp="X-Sign:t", nonce="X-Nonce", text="{timestamp}.{nonce}.{body}"
)
SHAPE: Final = NotificationShape(
    verification="header",
    header=PLAIN,
    data="data",
    out_trade_no="no",
    kind="event",
    kinds={"payment": ["PAID"], "refund": ["BACK"]},
    id={"payment": ["no", "state"]},
    ack_status=200,
)
PROFILE_OF_HEADER: Final = Profile(
    notification=SHAPE,
    signature=SortedPairs(algorithm="hmac-sha256", encoding="hex"),
    answer=AnswerShape(order_status="state"),
    states=States(order={"paid": ["PAID"]}),
)
BODY: Final = b'{ "event": "PAID", "data": {"no": "T1", "state": "PAID", "vip": true, "rate": 1.10} }'


def shaped(**changes: Any) -> Profile:
    """Return the profile with another shape of notifications."""
    return evolve(PROFILE_OF_HEADER, notification=evolve(SHAPE, **changes))


def mac(text: bytes, key: str = KEY) -> str:
    """Return the HMAC of a text in hex, which this test computes itself."""
    return hmac.new(key.encode(), text, hashlib.sha256).hexdigest()


def plain(body: bytes = BODY, key: str = KEY) -> dict[str, str]:
    """Return the header of a signature over a body alone."""
    return {"x-signature": f"sha256={mac(body, key)}"}


def timed(body: bytes = BODY, sent: object = NOW, nonce: str = "n1", key: str = KEY) -> dict[str, str]:
    """Return the headers of a signature over a time, a nonce and a body."""
    return {"x-nonce": nonce, "x-sign": f't={sent}, v1="{mac(f"{sent}.{nonce}.".encode() + body, key)}"'}


def verified(
    headers: Any, body: bytes = BODY, profile: Profile = PROFILE_OF_HEADER, keys: Credentials = CREDENTIALS
) -> Notification:
    """Return a notification that is verified."""
    found = verify(body, headers, profile=profile, credentials=keys, clock=lambda: NOW)
    assert found.verified
    return found


def refusal(*facts: Any, **named: Any) -> tuple[str | None, str]:
    """Return the place and the reason with which a notification is refused."""
    with pytest.raises(InvalidSignatureError) as refused:
        verified(*facts, **named)
    assert refused.value.__context__ is None
    return refused.value.field, str(refused.value.reason)


def test_body_that_is_signed_in_a_header() -> None:
    """A signature over the exact bytes verifies all that the body holds, by any of the keys."""
    found = verified(plain())

    assert ("payment", "PAID", "T1", "paid") == (found.kind, found.event, found.out_trade_no, found.state)
    assert {"no": "T1", "state": "PAID", "vip": True, "rate": 1.10} == found.trusted
    assert verified(plain(key="service key number 0")).verified


def test_header_that_verifies_nothing() -> None:
    """A missing or wrong signature, or one of another body or key, is refused, and the error shows no key."""
    none, wrong = "holds no signature after 'sha256='", "is not valid for the body"
    lines = {"sha256=": none, mac(BODY): none, f"SHA256={mac(BODY)}": none, f"sha256={mac(BODY)[:-1]}": wrong}
    headers: list[tuple[dict[str, str], str]] = [({"X-Signature": line}, why) for line, why in lines.items()]
    others = (plain(key="service key number 2"), plain(key=OWN), plain(BODY + b" "), {"X-Signature": "sha256=é"})
    for given_headers, reason in (({}, "is missing"), *headers, *((each, wrong) for each in others)):
        field, why = refusal(given_headers)

        assert ("X-Signature", True) == (field, why.startswith(reason)), (given_headers, why)
        assert KEY not in why


def test_several_signatures() -> None:
    """While keys rotate, a service sends several signatures. Only a few are checked: anybody may send many."""
    forged, right = ("X-Signature", f"sha256={mac(b'')}"), ("X-Signature", f"sha256={mac(BODY)}")

    assert verified([forged] * (MOST_SIGNATURES - 1) + [right]).verified
    assert "X-Signature" == refusal([forged] * MOST_SIGNATURES + [right])[0]


def test_time_and_nonce_in_headers() -> None:
    """The text may hold a time and a nonce, which stand in headers; the time lies within the tolerance.

    A signed value that is missing, or there twice, is named. Only the same time may stand beside each signature.
    """
    profile = shaped(header=TIMED)
    for sent in (NOW, NOW - 300, NOW + 300, NOW * 1000, "2027-01-15T08:00:00Z"):
        assert verified(timed(sent=sent), profile=profile).verified
    changed = timed() | {"x-nonce": "n2"}
    refused = [timed(sent=NOW - 301), timed(sent=NOW + 301), timed(sent="soon"), changed]
    lines = [("X-Nonce", "n1"), *(("X-Sign", timed(key=key)["x-sign"]) for key in ("service key number 2", KEY))]

    assert ["X-Sign:t", "X-Sign:t", "X-Sign:t", "X-Sign:v1"] == [refusal(each, profile=profile)[0] for each in refused]
    assert verified(lines, profile=profile).verified
    for headers, why in (
        ([("X-Sign", "v1=00")], ("X-Sign:t", "is missing")),
        ([("X-Sign", "t=1,t=2,v1=00")], ("X-Sign:t", "is there twice")),
        ([*lines, ("X-Sign", "t=1")], ("X-Sign:t", "is there twice")),
        ([("X-Sign", f"t={NOW},v1=00")], ("X-Nonce", "is missing")),
        ([*timed().items(), ("X-NONCE", "n2")], ("X-Nonce", "is there twice")),
        ([("X-Sign", f"t={NOW}"), ("X-Nonce", "n1")], ("X-Sign:v1", "is missing")),
    ):
        assert why == refusal(headers, profile=profile)


@pytest.mark.parametrize(("whose", "warnings"), [("", 1), ("shared", 0), ("merchant", 0)])
async def test_receiver_warns_of_a_key_that_may_be_shared(
    whose: Literal["", "shared", "merchant"], warnings: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If the profile does not say whose an asymmetric key is, making a receiver logs one warning that names the key."""
    _, public = rsa_keys(tmp_path)
    scheme = SortedPairs(algorithm="rsa-sha256", encoding="base64", service_key=whose)
    profile = evolve(PROFILE_OF_HEADER, signature=scheme)
    async with opened(tmp_path, profile=profile, credentials=Credentials("M1", service_keys=public.read_text())):
        pass

    assert warnings == caplog.text.count("signature.service_key")


def test_time_in_the_body() -> None:
    """A time in the body is checked if no header has one. Otherwise it is that of the event, and may be old."""
    old = b'{"event":"PAID","data":{"no":"T1","state":"PAID","at":1}}'
    new = old.replace(b'"at":1', b'"at":%d' % NOW)
    in_header = shaped(time="data.at", header=TIMED)

    assert verified(plain(new), new, shaped(time="data.at")).verified
    assert "data.at" == refusal(plain(old), old, shaped(time="data.at"))[0]
    assert verified(timed(old), old, in_header).verified
    assert ("data.at", True) == (
        refusal(plain(BODY), BODY, shaped(time="data.at"))[0],
        parse(old, {}, profile=in_header).digest != parse(new, {}, profile=in_header).digest,
    )


@pytest.mark.parametrize("at", [b"", b',"at":null', b',"at":"soon"'])
@pytest.mark.parametrize("header", [PLAIN, TIMED], ids=["in the body", "in a header"])
async def test_notification_without_a_readable_time(at: bytes, header: SignedHeader, tmp_path: Path) -> None:
    """A genuine notification whose time nobody can read is held and acknowledged: it would come again like that."""
    body = b'{"event":"PAID","data":{"no":"T1","state":"PAID"%s}}' % at
    headers = timed(body, sent="soon") if header is TIMED else plain(body)
    profile = shaped(header=header, time="data.at")
    async with opened(tmp_path, profile=profile, credentials=CREDENTIALS) as shop:
        reasons = [(await shop.received(body, headers)).reason for _ in range(2)]

        assert ["held"] == await shop.states()
    for reason in (*reasons, refusal(headers, body, profile)[1]):
        assert "is not a time" in reason


async def test_what_is_no_object_is_no_request(tmp_path: Path) -> None:
    """If one key signs both sides, a genuine list or text is held: a request is an object."""
    async with opened(tmp_path, profile=shaped(time="at"), credentials=SHARED) as shop:
        for body in (b'[{"event":"PAID","data":{"no":"T1"}}]', b"outTradeNo=T1", b"", b"7"):
            assert "held" == (await shop.received(body, plain(body, OWN))).state
        back = await shop.receiver.receive(REQUEST, plain(REQUEST, OWN))

        assert (400, ["held"] * 4) == (back.status, await shop.states())


BESIDE: Final[dict[str, Any]] = {"verification": "body", "header": None, "signature": "data.sign"}
IN_HEADER: Final = {"kind": "header:X-Event"}


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("name", ["unknown", ""])
async def test_copy_under_an_unknown_name_is_not_handled_again(name: str, tmp_path: Path, *, ids: bool) -> None:
    """Where only a name that nobody signed could tell the kind, a copy of an event with an unknown name is held.

    A name beside the object that is signed is not signed either.
    """
    more: dict[str, Any] = {} if ids else {"id": {}}
    async with opened(tmp_path / "header", profile=shaped(**IN_HEADER, **more), credentials=CREDENTIALS) as shop:
        got = shop.recording()
        await shop.received(BODY, {**plain(), "X-Event": "PAID"})
        copy = await shop.received(BODY, {**plain(), "X-Event": name})

        assert (["done", "held"], ["payment"]) == (await shop.states(), [each.kind for each in got])
        assert "X-Event, which is not signed" in copy.reason
    body = b'{"event":"PAID","data":{"no":"T1","state":"PAID","sign":"%s"}}' % mac(b"no=T1&state=PAID").encode()
    async with opened(tmp_path / "body", profile=shaped(**BESIDE, **more), credentials=CREDENTIALS) as shop:
        got = shop.recording()
        for each in (body, body.replace(b"PAID", name.encode(), 1)):
            await shop.received(each)

        assert (["done", "held"], 1) == (await shop.states(), len(got))


@pytest.mark.parametrize(("changes", "kind"), [({}, None), ({**IN_HEADER, "kinds": {}}, None), (IN_HEADER, "payment")])
async def test_unknown_name_that_is_signed_or_tells_no_kind(
    changes: dict[str, Any], kind: str | None, tmp_path: Path
) -> None:
    """An event of an unknown name is handled if its name is signed, if names tell no kind, or if the address does."""
    body = BODY.replace(b"PAID", b"OTHER", 1)
    async with opened(tmp_path, profile=shaped(**changes), credentials=CREDENTIALS) as shop:
        got = shop.recording()
        await shop.received(body, {**plain(body), "X-Event": "OTHER"}, kind)

        assert [kind] == [each.kind for each in got]


async def test_number_of_any_length_identifies(tmp_path: Path) -> None:
    """An integer of any number of digits, and no boolean, identifies the event."""
    async with opened(tmp_path, profile=shaped(id={"payment": ["n"]}), credentials=CREDENTIALS) as shop:
        got = shop.recording()
        for number in (b"7" * 5000, b"true"):
            raw = b'{"event":"PAID","data":{"no":"T1","n":%s}}' % number
            await shop.received(raw, plain(raw))

        assert [False, True] == [each.weak for each in got]
        assert got[0].dedup_key.startswith("payment:sha256:")


SHARED: Final = Credentials("M1", signing_key=OWN)
REQUEST: Final = b'{"outTradeNo":"T1","totalAmt":450,"currency":"CAD","no":"T1"}'
ALIKE: Final = Template(
    algorithm="hmac-sha256",
    encoding="hex",
    text="{timestamp}.{body}",
    header="X-Sign",
    value="t={timestamp},v1={signature}",
)


async def test_request_that_is_signed_as_notifications_are() -> None:
    """A request whose header has the very form of a notification's is refused as one, and may not have its state."""
    header = SignedHeader(signature="X-Sign:v1", timestamp="X-Sign:t", text="{timestamp}.{body}")
    profile = evolve(shaped(data="", kind="", header=header, out_trade_no="outTradeNo"), signature=ALIKE)
    refund: Any = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 450, "refund_amt": 200}
    with Recorder([answer(200, b"{}")]) as service:
        async with Session(service.url, credentials=SHARED, profile=profile) as pay:
            await pay.refunds.create(**refund)
            with pytest.raises(InvalidArgumentError, match="no request may say"):
                await pay.refunds.create(**refund, extra={"state": "PAID"})
    request = service.only

    with pytest.raises(InvalidSignatureError, match="sent back"):
        verify(request.body, request.headers, profile=profile, credentials=SHARED)
    with pytest.raises(InvalidSignatureError, match="is not valid for the body"):
        verify(request.body + b" ", request.headers, profile=profile, credentials=SHARED)


TELLS: Final = {"payment": "state", "refund": "back.state"}


def test_field_tells_the_kind() -> None:
    """A field that only one kind has tells it; a null or empty one is not there. Otherwise the address says it.

    If no state is where responses have it, the field that tells the kind is read as the state.
    """
    answer, states = AnswerShape(refund_status="refund"), States(refund={"succeeded": ["A"], "processing": ["OPEN"]})
    profile = evolve(shaped(kind="", kinds={}, tells=TELLS), answer=answer, states=states)
    for data, routed, kind, state in (
        ({"state": "A"}, None, "payment", None),
        ({"back": {"state": "A"}}, None, "refund", "succeeded"),
        ({"back": {"state": "A"}}, "refund", "refund", "succeeded"),
        ({"back": {"state": 0}, "state": None}, None, "refund", None),
        ({"back": {"state": ""}, "state": "A"}, None, "payment", None),
        ({"back": {"state": "A"}, "refund": "OPEN"}, None, "refund", "processing"),
        ({"back": {"state": "WHAT"}, "refund": "WHAT"}, None, "refund", None),
        ({"back": {}}, "refund", "refund", None),
        ({}, None, None, None),
        ({"state": "A", "back": {"state": "A"}}, None, None, None),
        ({"state": "A", "back": {"state": "A"}}, "refund", "refund", "succeeded"),
    ):
        read = parse(json.dumps({"data": data}).encode(), {}, profile=profile, kind=routed)

        assert (kind, state) == (read.kind, read.state), (data, routed)


def test_field_that_contradicts() -> None:
    """A notification whose field, event and address say different kinds is refused."""
    for document, routed, words in (
        ({"data": {"state": "A"}}, "refund", "is about a payment, but arrived at the address for refunds"),
        ({"event": "BACK", "data": {"state": "A"}}, None, "holds state, .* but its event is about a refund"),
    ):
        with pytest.raises(InvalidArgumentError, match=words) as refused:
            parse(json.dumps(document).encode(), {}, profile=shaped(tells=TELLS), kind=routed)

        assert "kind" == refused.value.field


def test_field_of_several_kinds() -> None:
    """If events tell the kind, all kinds may have their state in one field, and their number in another."""
    shape = evolve(SHAPE, tells={"payment": "is", "refund": "is"}, out_refund_no="no")
    states = States(order={"paid": ["A"]}, refund={"succeeded": ["A"]})
    profile = evolve(PROFILE_OF_HEADER, notification=shape, states=states)
    for event, routed, expected in (
        ("PAID", None, ("payment", "paid", "N1", None)),
        ("BACK", "refund", ("refund", "succeeded", None, "N1")),
        ("NEW", "refund", ("refund", "succeeded", None, "N1")),
        ("NEW", None, (None, None, "N1", "N1")),
    ):
        raw = json.dumps({"event": event, "data": {"is": "A", "no": "N1"}}).encode()
        read = parse(raw, {}, profile=profile, kind=routed)

        assert expected == (read.kind, read.state, read.out_trade_no, read.out_refund_no)


def test_unsigned_field_tells_nothing() -> None:
    """If the signature stands in the body, only a field that it covers may tell the kind."""
    scheme = SortedPairs(algorithm="hmac-sha256", encoding="hex", exclude=("sign", "state"))
    shape = NotificationShape(verification="body", data="data", signature="data.sign", tells={"payment": "state"})

    with pytest.raises(ConfigurationError) as refused:
        verification_of(Profile(notification=shape, signature=scheme), CREDENTIALS)
    assert "notification.tells.payment" == refused.value.field
    raw = b'{"data":{"state":"A"}}'
    assert parse(raw, {}, profile=Profile(notification=shape, signature=scheme)).kind is None


async def test_notification_of_two_kinds_is_held(tmp_path: Path) -> None:
    """A notification with the fields of two kinds is acknowledged, and held for a person."""
    profile = evolve(PROFILE, notification=evolve(PROFILE.notification, tells={"payment": "a", "refund": "b"}))
    async with opened(tmp_path, profile=profile) as merchant:
        got = merchant.recording()
        event = await merchant.handled({**PAID, "a": 1, "b": 2})
        other = await merchant.handled({**PAID, "a": 1, "outTradeNo": "T2"})

    assert ("held", "it holds a of a payment and b of a refund") == (event.state, event.reason)
    assert ("done", ["T2"]) == (other.state, [each.out_trade_no for each in got])


async def test_one_of_several_events_is_held(tmp_path: Path) -> None:
    """If a list holds more events than the profile reads, the notification is held: nobody would handle the others."""
    profile = shaped(data="events.0.object", kind="events.0.event")
    paid = [{"event": "PAID", "object": {"no": number, "state": "PAID"}} for number in ("T1", "T2", "T3")]
    async with opened(tmp_path, profile=profile, credentials=CREDENTIALS) as merchant:
        got, found = merchant.recording(), list[tuple[str, str]]()
        for events in (paid[:1], paid[1:]):
            raw = json.dumps({"events": events}).encode()
            last = await merchant.received(raw, plain(raw))
            found.append((last.state, last.reason))

    assert [("done", ""), ("held", "events holds 2 entries, and notification.data reads one")] == found
    assert ["T1"] == got.numbers


def test_kind_in_a_header() -> None:
    """The event's name may stand in a header. It chooses the kind, and is not believed where a signature is."""
    profile = shaped(kind="header:X-Event")
    found = verified({**plain(), "x-event": "BACK"}, profile=profile)
    hint = parse(BODY, {"X-Event": "PAID"}, profile=shaped(kind="header:X-Event", verification="none", header=None))

    assert ("refund", None) == (found.kind, found.event)
    assert ("payment", "PAID") == (hint.kind, hint.event)
    assert verified(plain(), profile=profile).kind is None


async def test_event_in_a_header_reaches_the_handler(tmp_path: Path) -> None:
    """The name of an unsigned event is stored with the event, because its header is not."""
    profile = shaped(kind="header:X-Event", kinds={"subscription": ["ENDED"]}, verification="none", header=None)
    session = Session("http://127.0.0.1:9", credentials=CREDENTIALS, profile=profile)
    async with session, opened(tmp_path, session=session, profile=profile, credentials=CREDENTIALS) as merchant:
        got = merchant.recording("subscription", unverified=True)
        await merchant.received(BODY, {"X-Event": "ENDED"})

    assert [("subscription", "ENDED")] == [(each.kind, each.event) for each in got]


def test_time_without_an_offset() -> None:
    """A time without an offset is in the profile's zone. In a changing hour, it has the offset from before."""
    for local, instant in {
        "2027-01-15T03:00:00": "2027-01-15T08:00:00Z",
        "2027-07-15 04:00:00.500": "2027-07-15T08:00:00.500Z",
        "2027-01-15T03:00:00+01:00": "2027-01-15T02:00:00Z",
        "2026-11-01T01:30:00": "2026-11-01T05:30:00Z",  # it comes twice: at -04:00 before -05:00
        "2027-03-14T02:30:00": "2027-03-14T07:30:00Z",  # it never comes: read as at -05:00
    }.items():
        expected = datetime.fromisoformat(instant).timestamp()

        assert expected == parse_time(local, ZoneInfo("America/Toronto"))
        assert (None if local[-6:-3] != "+01" else expected) == parse_time(local)


def test_time_zone_of_a_profile() -> None:
    """A signed time without an offset is checked in the profile's zone. Without a zone it is refused."""
    body = b'{"event":"PAID","data":{"no":"T1","state":"PAID","at":"2027-01-15T03:00:00"}}'

    assert verified(plain(body), body, shaped(time="data.at", timezone="America/Toronto")).verified
    assert "data.at" == refusal(plain(body), body, shaped(time="data.at", timezone="America/Vancouver"))[0]
    assert "data.at" == refusal(plain(body), body, shaped(time="data.at"))[0]


SVIX: Final = evolve(
    PROFILE,
    notification=evolve(
        PROFILE.notification,
        id={},
        header=SignedHeader(signature="svix-signature", timestamp="svix-timestamp", nonce="svix-id"),
    ),
)


def svix(number: str = "msg_1", body: bytes = BODY) -> dict[str, str]:
    """Return the headers of Svix, signed by the package `standardwebhooks`."""
    secret = WITH_WEBHOOK_KEY.notification_keys[0].reveal()
    signature = Webhook(secret).sign(number, datetime.fromtimestamp(NOW, UTC), body.decode())
    return {"svix-id": number, "svix-timestamp": str(NOW), "svix-signature": signature}


@pytest.mark.parametrize("name", ["webhook-id", "Webhook-Id"])
def test_number_is_stored_under_the_standards_name(name: str) -> None:
    """An event keeps its key if it is read again: the inbox stores its number, and not one that nobody signed."""
    found = verified({name: "forged", **svix()}, profile=SVIX, keys=WITH_WEBHOOK_KEY)
    stored = build_received(found, SVIX, timed=True)

    assert "webhook:msg_1" == parse(stored.raw, stored.headers, profile=SVIX).dedup_key
    assert ["msg_1"] == [value for key, value in stored.headers.items() if key.lower() == "webhook-id"]


def test_refund_is_asked_about_with_its_order_if_the_service_wants_that() -> None:
    """A confirmation names the order only if the endpoint wants it: a hint may lie about it."""
    cases: tuple[tuple[Any, Any], ...] = (((), ABSENT), (("out_trade_no",), "T1"))
    for wanted, named in cases:
        profile = Profile(
            endpoints={"refunds.status": Endpoint(with_=wanted)},
            notification=NotificationShape(out_trade_no="no", out_refund_no="back"),
        )
        hint = parse(b'{"no":"T1","back":"R1"}', {}, profile=profile, kind="refund")

        assert QueryRefund(identifier="R1", out_trade_no=named) == hint.inquiry()


def test_merchants_number_may_be_signed() -> None:
    """A notification that signs the number of its merchant is genuine for no other merchant of one key."""
    profile = shaped(header=evolve(PLAIN, text="POST /notify\n{merchant_id}.{body}"))
    made = sign_notification({"no": "T1", "state": "PAID"}, profile=profile, credentials=CREDENTIALS, kind="payment")
    other = Credentials("M2", signing_key=OWN, service_keys=CREDENTIALS.service_keys)

    assert verify(made.raw, made.headers, profile=profile, credentials=CREDENTIALS).verified
    with pytest.raises(InvalidSignatureError):
        verify(made.raw, made.headers, profile=profile, credentials=other)
