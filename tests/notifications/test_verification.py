"""Whether a notification is from the service, in each way that a profile can say it."""

import base64
import gzip
import hashlib
import hmac
import json
import math
import secrets
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Final
from unittest.mock import Mock

import pytest
from attrs import evolve
from hypothesis import example, given
from hypothesis import strategies as st

from payasync import Accept, Credentials, PayasyncError, Profile, Secret, Session, SignedHeader, SortedPairs
from payasync.clocks import Clocks, use_clocks
from payasync.errors import ConfigurationError, InvalidArgumentError, InvalidSignatureError, NotConfiguredError
from payasync.notifications import Notification, parse
from payasync.notifications.notification import read_headers
from payasync.notifications.verification import (
    MISMATCH,
    check_covered,
    check_secrets,
    check_webhook,
    sign_webhook,
    verification_of,
    verify,
)
from payasync.profile.schema import KINDS, AnswerShape, NotificationShape, Parameter, States
from payasync.sandbox import PROFILE
from payasync.signing.templates import parse_time
from payasync.testing import sign_notification
from tests.foreign.recorder import Recorder, answer
from tests.foreign.signatures import hmac_sha256, signed_text
from tests.scrambled import scrambled
from tests.test_canary import CANARIES, keys, singing, written

NOW: Final = 1_800_000_000
KEY: Final = "service key number 1"
WHSEC: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
CREDENTIALS: Final = Credentials(
    "M1", signing_key="own signing key 1", service_keys=["service key number 0", KEY], notification_keys=WHSEC
)
SHAPE: Final = NotificationShape(
    verification="body",
    data="data",
    signature="data.sign",
    kind="event",
    kinds={"payment": ["PAID", "SHUT"], "refund": ["BACK"]},
    time="data.at",
    tolerance=60,
    out_trade_no="no",
    out_refund_no="back",
    id={"payment": ["no", "state"]},
)
SCHEME: Final = SortedPairs(algorithm="hmac-sha256", encoding="hex", exclude=("sign", "type"))
BODY: Final = Profile(
    notification=SHAPE,
    signature=SCHEME,
    answer=AnswerShape(payment_id="pay", order_status="state"),
    states=States(order={"paid": ["PAID"], "closed": ["SHUT"]}),
)


def changed(shape: NotificationShape, **changes: Any) -> Profile:
    """Return the profile with another shape of notifications."""
    return evolve(BODY, notification=evolve(shape, **changes))


WEAK: Final = evolve(BODY, notification=evolve(SHAPE, id={}))
FLAT: Final = evolve(
    BODY,
    notification=evolve(SHAPE, data="", signature="sign", kind="data.event", time="at"),
    signature=evolve(SCHEME, nested="omit"),
)
BARE: Final = evolve(PROFILE, notification=evolve(PROFILE.notification, data=""))
UNSIGNED: Final = evolve(BODY, notification=evolve(SHAPE, verification="none"))
PUBLIC: Final = evolve(BODY, signature=SortedPairs(algorithm="ed25519", encoding="hex"))
SERVICE_KEYS: Final = "credentials.service_keys"
DATA: Final = {"no": "7", "state": "SHUT", "amt": 450, "empty": "", "at": NOW}


def signed(data: Mapping[str, Any] = DATA, key: str = KEY, **more: Any) -> dict[str, Any]:
    """Return a payload with its signature, which this test computes itself."""
    given = {**data, **more}
    return {**given, "sign": hmac.new(key.encode(), signed_text(given).encode(), hashlib.sha256).hexdigest()}


def verified(
    document: object, profile: Profile = BODY, keys: Credentials = CREDENTIALS, kind: str | None = "payment"
) -> Notification:
    """Return a notification that is verified."""
    found = verify(json.dumps(document).encode(), {}, profile=profile, credentials=keys, kind=kind, clock=lambda: NOW)
    assert found.verified
    return found


def refusal(document: object, *facts: Any) -> InvalidSignatureError:
    """Return the error that a notification is refused with."""
    with pytest.raises(InvalidSignatureError) as error:
        verified(document, *facts)
    return error.value


def accept_all(_raw: bytes, _headers: Mapping[str, str]) -> bool:
    """Verify everything, as a verifier of the user's."""
    return True


def test_signature_in_the_body() -> None:
    """A payload signed with any of the keys, and sent now, is verified and read."""
    found = verified({"data": signed()})

    assert ("7", NOW) == (found.get("no"), found.received_at.timestamp())
    assert found.trusted == found.data
    assert verified({"data": signed(key="service key number 0")}).verified


@pytest.mark.parametrize("profile", [BODY, UNSIGNED, PROFILE], ids=["in the body", "none", "header"])
@pytest.mark.parametrize("headers", [{}, {"Content-Encoding": "gzip"}], ids=["unmarked", "marked"])
def test_body_in_gzip(profile: Profile, headers: Mapping[str, str]) -> None:
    """A body in gzip is read without it, however it is verified, and whatever a proxy made of its headers."""
    made = sign_notification(DATA, profile=profile, credentials=CREDENTIALS, kind="payment", time=NOW)
    raw, received = gzip.compress(made.raw), {**made.headers, **headers}
    found = verify(raw, received, profile=profile, credentials=CREDENTIALS, clock=lambda: NOW)

    assert (made.raw, profile is not UNSIGNED) == (found.raw, found.verified)
    assert made.raw == parse(raw, received, profile=profile).raw


def test_verifier_of_a_body_in_gzip() -> None:
    """A verifier of the user's sees the body as it was received, and then without gzip if it has not verified that."""
    plain = json.dumps({"data": DATA}).encode()
    raw, seen = gzip.compress(plain), list[bytes]()

    def is_genuine(body: bytes, _headers: Mapping[str, str], genuine: bytes) -> bool:
        seen.append(body)
        return body == genuine

    for genuine in (raw, plain):
        verifier = partial(is_genuine, genuine=genuine)
        assert plain == verify(raw, {}, profile=BODY, credentials=CREDENTIALS, verifier=verifier).raw

    assert [raw, raw, plain] == seen


@pytest.mark.parametrize("read", [parse, partial(verify, credentials=CREDENTIALS)], ids=["parse", "verify"])
def test_gzip_within_the_limit(read: Callable[..., Notification]) -> None:
    """The limit of a body holds without gzip, too."""
    plain = json.dumps({"data": DATA}).encode()
    most = 10_000
    raw = [gzip.compress(plain.ljust(length)) for length in (most, most + 1, 10**6)]

    assert most == len(read(raw[0], {}, profile=UNSIGNED, max_bytes=most).raw)
    for each in raw[1:]:
        with pytest.raises(InvalidArgumentError, match=f"raw must be {most} bytes long at most, not longer without"):
            read(each, {}, profile=UNSIGNED, max_bytes=most)


def test_broken_gzip() -> None:
    """Gzip that breaks off, or holds no JSON, is no notification. It is still verified as it was received."""
    packed = gzip.compress(b"{}")
    for broken in (packed[:-1], packed + b"x", gzip.compress(packed), b"\x1f\x8b"):
        verifier = Mock(return_value=True)
        with pytest.raises(InvalidArgumentError, match="raw must be a JSON object"):
            verify(broken, {}, profile=BODY, credentials=CREDENTIALS, verifier=verifier)
        with pytest.raises(InvalidSignatureError) as refused:
            verify(broken, {}, profile=PROFILE, credentials=CREDENTIALS)

        assert (broken, None) == (verifier.call_args.args[0], refused.value.__context__)


WRONG: Final = "is not valid for its object"


def test_body_that_is_not_the_services() -> None:
    """A body with another key, value, field or form of signature, or without a signature, is refused."""
    genuine = signed()
    wrong = [
        signed(key="service key number 2"),
        signed(key="own signing key 1"),
        {**genuine, "sign": genuine["sign"][:-1]},
    ]
    wrong += [{**genuine, **each} for each in ({"amt": 451}, {"amt": "450 "}, {"more": "1"}, {"amt": None})]
    wrong += [{**genuine, "sign": each} for each in ("é", "")]
    absent: list[Any] = [{}, [], "x", None, {"Sign": "x"}]
    no_text: list[Any] = [{**DATA, "sign": each} for each in (None, 5, True, ["x"], {"x": "y"})]
    cases: tuple[tuple[Any, str], ...] = (
        *(({"data": each}, WRONG) for each in wrong),
        ({"data": {**genuine, "amt": 450.0}}, "cannot be checked: data.amt"),
        ({"data": signed(no="7&amt=450")}, "cannot be checked: data.no"),
        *(({"data": each}, "is not a text") for each in no_text),
        *(({"data": each}, "is missing") for each in absent),
        ({}, "is missing"),
        ({"sign": "x"}, "is missing"),
    )
    for document, reason in cases:
        error = refusal(document)

        assert ("data.sign", True) == (error.field, str(error.reason).startswith(reason)), (document, error)
        assert KEY not in str(error)
        assert (MISMATCH in str(error)) is (reason == WRONG)


def test_values_that_the_service_signs() -> None:
    """The profile's scheme verifies a genuine notification with nulls, booleans and numbers as they were written."""
    signed_text = f"at={NOW}&list=[1.10,true]&note=null&rate=-1E+2&vip=true"
    values = '"list":[1.10, true],"note":null,"rate":-1E+2,"vip":true'
    raw = f'{{"data":{{{values},"at":{NOW},"sign":"{hmac_sha256(signed_text, KEY)}"}}}}'.encode()
    scheme = evolve(SCHEME, skip_null=False, booleans="json", numbers="text", nested="json")
    found = verify(
        raw, {}, profile=evolve(BODY, signature=scheme), credentials=CREDENTIALS, kind="payment", clock=lambda: NOW
    )

    assert found.verified
    assert json.loads(raw) == found.document


def test_time_in_the_body() -> None:
    """The time in the body may differ from now by the tolerance in both directions, and by no more."""
    for offset in (-60, 0, 60):
        assert verified({"data": signed(at=NOW + offset)}).verified
    for at in (NOW - 61, NOW + 61, "", "soon", "2027-01-15T08:00:00"):
        assert "data.at" == refusal({"data": signed(at=at)}).field


def test_body_is_not_read_before_its_signature() -> None:
    """If the signature is wrong, the error is about the signature, even if the document has other mistakes."""
    assert "data.sign" == refusal({"event": "BACK", "data": {**signed(), "amt": 451}}).field
    with pytest.raises(InvalidArgumentError, match="address for payments"):
        verified({"event": "BACK", "data": signed()})


def test_nothing_is_returned_that_a_receiver_would_hold() -> None:
    """A genuine notification is refused without its payload, without what `must` says, or as one of two kinds."""
    facts: dict[str, Any] = {"credentials": CREDENTIALS, "verifier": accept_all, "kind": "payment"}
    facts["profile"] = evolve(UNSIGNED, notification=evolve(UNSIGNED.notification, must={"live": True}))
    cases: tuple[tuple[object, str], ...] = (
        ("T1", "data, the payload, must be an object, and is 'T1'"),
        (None, "lacks data, the payload"),
        ([{"no": "T1"}], 'a list. If it always has one entry, set notification.data = "data.0"'),
        ({"no": "T1", "live": False}, "live is false in the notification, and must be true"),
        ({"no": "T1"}, "live is missing in the notification"),
        ({"no": "T1", "live": True, "refundAmt": 5}, "names a refund: refundAmt is 5"),
    )
    for data, words in cases:
        with pytest.raises(InvalidArgumentError, match=words):
            verify(json.dumps({"data": data}).encode(), {}, **facts)
    assert verify(b'{"data":{"no":"T1","live":true}}', {}, **facts).verified


def test_unsigned_notification_is_a_hint() -> None:
    """If the profile says that notifications are not signed, one is read, but neither verified nor trusted."""
    found = verify(b'{"data":{"no":"7"}}', {}, profile=UNSIGNED, credentials=CREDENTIALS, kind="payment")

    assert (False, None, "payment") == (found.verified, found.trusted, found.kind)


def test_verifier_of_ones_own() -> None:
    """A verifier replaces the profile's verification. It gets headers and body, and nothing of that is left out."""
    seen: list[object] = []

    def verifier(raw: bytes, headers: Mapping[str, str]) -> bool:
        seen.append((raw, headers["X-Signature"]))
        return True

    ways: tuple[Any, ...] = ("", "none", "body", "standard-webhooks")
    for each in ways:
        profile = evolve(BARE, notification=evolve(BARE.notification, verification=each))
        assert verify(b"{}", {"x-signature": "s"}, profile=profile, credentials=CREDENTIALS, verifier=verifier).verified

    raw = b'{"event":"PAID","data":{"no":"7","type":"x"}}'
    found = verify(raw, {}, profile=BODY, credentials=CREDENTIALS, verifier=accept_all)

    assert [(b"{}", "s")] * len(ways) == seen
    assert ("payment", "PAID", {"no": "7", "type": "x"}) == (found.kind, found.event, found.data)


def test_verifier_that_does_not_say_true() -> None:
    """If a verifier returns anything but `True`, or raises an error, the notification is refused without that error."""
    said: tuple[Any, ...] = (False, None, 1, "yes", [True], KeyError("canary"))
    for each in said:
        verifier: Any = Mock(side_effect=[each])
        with pytest.raises(InvalidSignatureError, match="verifier does not say") as refused:
            verify(b"{}", {}, profile=PROFILE, credentials=CREDENTIALS, verifier=verifier)

        assert ("verifier", None, None) == (refused.value.field, refused.value.__cause__, refused.value.__context__)


HEADER: Final = evolve(
    SHAPE, verification="header", signature="", time="", header=SignedHeader(signature="X-Signature")
)
TIMED: Final = SignedHeader(
    signature="X-Sign:v1", timestamp="X-Sign:t", nonce="X-Nonce", text="{timestamp}.{nonce}.{body}", prefix="a="
)


def test_what_is_missing_is_named() -> None:
    """A setting or a key that is missing is the merchant's own mistake, and named before anything is looked at."""
    cases: list[tuple[Profile, Credentials, type[Exception], str]] = [
        (Profile(), CREDENTIALS, NotConfiguredError, "notification.verification"),
        (changed(SHAPE, signature=""), CREDENTIALS, NotConfiguredError, "notification.signature"),
        (PROFILE, Credentials("M1"), ConfigurationError, "credentials.notification_keys"),
        (changed(HEADER), Credentials("M1", service_keys="short"), ConfigurationError, SERVICE_KEYS),
        (PUBLIC, Credentials("M1", signing_key="x"), ConfigurationError, SERVICE_KEYS),
        (PUBLIC, Credentials("M1", service_keys="x"), ConfigurationError, SERVICE_KEYS),
    ]
    for shape in (SHAPE, HEADER):
        cases.append((changed(shape), Credentials("M1"), ConfigurationError, SERVICE_KEYS))
        for scheme, field in (
            (None, "signature"),
            (evolve(SCHEME, algorithm=""), "signature.algorithm"),
            (evolve(SCHEME, encoding=""), "signature.encoding"),
        ):
            cases.append((evolve(changed(shape), signature=scheme), CREDENTIALS, NotConfiguredError, field))
    for profile, credentials, error, field in cases:
        with pytest.raises(error) as refused:
            verify(b"{}", {}, profile=profile, credentials=credentials)

        assert field == getattr(refused.value, "field", None)


class Own:
    """A scheme of the merchant's own.

    Args:
        said: What `verify` returns or raises for what is right.
        facts: Its other attributes.
    """

    def __init__(self, said: Any = None, **facts: Any) -> None:
        self.said = said
        vars(self).update(facts)

    def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> str:
        """Sign nothing."""
        raise NotImplementedError(fields, path, key)

    def verify(self, fields: Mapping[str, Any], signature: str, *, path: str, key: Secret) -> bool:
        """Say or raise it."""
        if isinstance(self.said, Exception):
            raise self.said
        right = (fields, signature, path, key.reveal()) == (DATA, "s", "", "service key number 0")
        return bool(right) and self.said


@pytest.mark.parametrize(("said", "accepted"), [(True, True), (1, False), (ValueError("canary"), False)])
def test_scheme_of_ones_own(said: Any, *, accepted: bool) -> None:
    """A scheme gets the object without the signature, an empty path and each key, and must return `True`."""
    profile, document = evolve(BODY, signature=Own(said)), {"data": {**DATA, "sign": "s"}}
    if accepted:
        assert verified(document, profile).verified
    else:
        assert "canary" not in str(refusal(document, profile))


def test_checks_in_words() -> None:
    """`checks` describes in words what is verified, within which time, and what is not signed."""
    body = "data.sign over the object that holds it, by 2 of your keys"
    checks = {
        "webhook-signature over the body, by 1 of your keys; webhook-timestamp within 300 seconds": PROFILE,
        body: changed(SHAPE, time="", kind=""),
        f"{body}; data.at within 60 seconds; not signed: event": BODY,
        f"{body}; not signed: event, paid": changed(SHAPE, time="", event_time="paid"),
        "X-Signature over the body, by 2 of your keys; data.at within 60 seconds": changed(HEADER, time="data.at"),
        "X-Sign:v1 over the body, by 2 of your keys; X-Sign:t within 60 seconds": changed(HEADER, header=TIMED),
        "nothing": UNSIGNED,
    }

    assert list(checks) == [verification_of(profile, CREDENTIALS).checks for profile in checks.values()]
    assert "whatever" in verification_of(PROFILE, CREDENTIALS, accept_all).checks


VALUES_OF_JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["data", "sign", "at", "a"]), inner),
    max_leaves=12,
)
NAMES_OF_HEADERS: Final = [f"webhook-{each}" for each in ("id", "timestamp", "signature")]
HEADERS: Final = st.dictionaries(
    st.sampled_from([*NAMES_OF_HEADERS, "X-Sign", "X-Nonce", "X-Signature"]) | st.text() | st.binary(),
    st.text(st.characters(codec=None)) | st.binary() | st.sampled_from([str(NOW), f"t={NOW},v1=a=00", "v1,00", "00"]),
)


@given(
    raw=st.binary(max_size=60) | VALUES_OF_JSON.map(lambda each: json.dumps(each).encode()),
    headers=HEADERS,
    seed=st.integers(0, 20),
    kind=st.sampled_from([*KINDS, None]),
)
@example(
    raw=b"{}",
    headers={"webhook-id": "a", "webhook-timestamp": str(NOW), "webhook-signature": "v1,\ud800"},
    seed=0,
    kind=None,
)
@example(raw=b"{}", headers={"X-Sign": f"t={NOW},v1=a=\ud800", "X-Nonce": "\ud800"}, seed=0, kind=None)
@example(raw=json.dumps({"data": {"sign": "a" * 64}}).encode(), headers={}, seed=0, kind=None)
def test_only_our_errors(raw: bytes, headers: Any, seed: int, kind: Any) -> None:
    """A body that is not signed with the key is never verified, and the error is one of two of payasync's."""
    facts: dict[str, Any] = {"credentials": CREDENTIALS, "clock": lambda: NOW, "kind": kind}
    for profile in (PROFILE, BODY, changed(HEADER), changed(HEADER, header=TIMED)):
        with pytest.raises((InvalidSignatureError, InvalidArgumentError)) as refused:
            verify(raw, headers, profile=profile, **facts)
        assert refused.value.__context__ is None or profile.notification.verification != "header"
    for profile in (UNSIGNED, scrambled(seed)):
        with suppress(InvalidArgumentError):
            assert raw == parse(raw, headers, profile=profile, kind=kind).raw


def test_time() -> None:
    """A time is ISO 8601 with an offset, or seconds or milliseconds since 1970; anything else is not a time."""
    texts = ("2027-01-15T08:00:00Z", "2027-01-15T08:00:00.000Z", "2027-01-15T08:00:00+00:00", "20270115T080000Z")
    times: tuple[Any, ...] = (NOW, float(NOW), NOW * 1000, f"{NOW}", f"{NOW}000", f"{NOW}.000", *texts)
    bounds = {10**11 - 1: 10**11 - 1, 10**11: 10**8, "0001-01-01T00:00:00+23:59": -62_135_683_140}
    none: tuple[Any, ...] = (
        *("2027-01-15T08:00:00", "2027-01-15", " 1800000000", "1800000000\n", "-1800000000", "", "now", "1e9"),
        *("١٨٠٠٠٠٠٠٠٠", "1" * 20, b"1800000000", [NOW], {"at": NOW}, None, True, 10**400, math.inf, math.nan),
    )

    assert {NOW} == {parse_time(each) for each in (*times, "2027-01-15T03:00:00-05:00")}
    assert [*bounds.values(), 253_402_387_139] == [parse_time(each) for each in (*bounds, "9999-12-31T23:59:59-23:59")]
    assert [None] * len(none) == [parse_time(each) for each in none]


OLDER: Final = "whsec_" + base64.b64encode(b"an older key, 24 bytes..").decode()
VECTOR: Final = b'{"test": 2432232314}'
NUMBER: Final = "msg_p5jXN8AQM9LWM0D4loKWxJek"
SENT: Final = 1614265330
SIGNATURE: Final = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
"""The published vector of Standard Webhooks."""
RIGHT: Final = base64.b64decode(SIGNATURE[3:])
ARABIC: Final = "".join(chr(0x0660 + int(digit)) for digit in str(SENT))
"""Digits of another script, which Python reads as a number, too."""


def headers_of(signature: str = SIGNATURE, **others: str) -> dict[str, str]:
    """Return the headers of the published vector, with others in their place."""
    given = {"id": NUMBER, "timestamp": str(SENT), "signature": signature, **others}
    return {f"webhook-{name}": value for name, value in given.items()}


def check(headers: Any = None, *keys: str, body: bytes = VECTOR, now: float = SENT) -> None:
    """Check a notification with some keys."""
    credentials = Credentials("M1", notification_keys=keys or WHSEC)
    given = headers_of() if headers is None else headers
    assert verify(body, given, profile=BARE, credentials=credentials, clock=lambda: now).verified


def rejection(headers: Any = None, *keys: str, **facts: Any) -> InvalidSignatureError:
    """Return the error with which a notification is refused."""
    with pytest.raises(InvalidSignatureError) as error:
        check(headers, *keys, **facts)
    return error.value


def test_published_vector() -> None:
    """The vector that every implementation of Standard Webhooks tests is verified, and signed alike."""
    check()

    assert SIGNATURE == sign_webhook(VECTOR, number=NUMBER, sent=SENT, key=Secret(WHSEC))


async def test_clock_is_this_machines() -> None:
    """Without another clock, the time is that of this machine, and a time in a body signed by headers is not one."""
    raw = b'{"timestamp":"2020-01-01T00:00:00Z"}'
    headers = headers_of(sign_webhook(raw, number=NUMBER, sent=SENT, key=Secret(WHSEC)))
    for now in (SENT, SENT + 10_000):
        use_clocks(Clocks(wall=partial(float, now)))
        with nullcontext() if now == SENT else pytest.raises(InvalidSignatureError, match="webhook-timestamp"):
            assert verify(raw, headers, profile=BARE, credentials=CREDENTIALS).verified


def test_many_signatures_cost_no_more_than_one() -> None:
    """A header full of signatures causes no more work: a body is signed once by each key."""
    key: Any = Mock(wraps=Secret(WHSEC))
    many = " ".join(f"v1,{base64.b64encode(secrets.token_bytes(32)).decode()}" for _ in range(150))
    check_webhook(VECTOR, read_headers(headers_of(f"{many} {SIGNATURE}")), keys=[key], tolerance=300, now=SENT)

    assert 1 == key.reveal.call_count


def test_one_of_several_signatures() -> None:
    """While the service rotates its keys, it sends two signatures; other versions and rubbish are skipped.

    The header may stand there twice, and a server may have joined the two by a comma.
    """
    other = f"v1,{'A' * 43}="
    for signature in (
        *(f"{beside} {SIGNATURE}" for beside in (other, "v1a,c2lnbmVk", f"v2,{SIGNATURE[3:]}", "v1,no-base64!")),
        *(f"{beside} {SIGNATURE}" for beside in ("v1,c2hvcnQ=", f"{other},")),
        f"{SIGNATURE} {other}",
        f"v1, v1 , {SIGNATURE} garbage",
        f"{SIGNATURE},{other}",
    ):
        check(headers_of(signature))
        check([*headers_of(signature).items(), ("Webhook-Signature", other)])


def test_headers_that_verify_nothing() -> None:
    """A header that was changed or is malformed verifies nothing, and the error names the header."""
    times = ("now", "-1", "1e9", "1.5", "0x5", " 1", "1\n", "9" * 12, "9" * 5000, str(SENT * 1000), ARABIC)
    bodies = (RIGHT[:-1], RIGHT + b"\0", RIGHT[:-1] + b"\0", RIGHT[1:])
    signatures = [f"v1,{base64.b64encode(each).decode()}" for each in bodies]
    signatures += [f"{each},{SIGNATURE[3:]}" for each in ("v2", "v1a", "V1", "", "v1 v2")]
    signatures += [SIGNATURE[3:], "v1", "v1,", "v1,é", "v1,\ud800", "v1,=", "v1,A"]
    signatures += [",", "é", "v1a,AAAA", "v1;AAAA", "V1,AAAA"]
    for refused, name, value in (
        *(("signature", "id", each) for each in ("msg_2", f"{NUMBER}.{SENT}")),
        *(("signature", "timestamp", each) for each in (str(SENT + 1), f"0{SENT}")),
        *(("signature", "signature", each) for each in signatures),
        *(("timestamp", "timestamp", each) for each in times),
        *(("id", "id", each) for each in ("a b", "é", "a\n", "x" * 257)),
    ):
        assert f"webhook-{refused}" == rejection(headers_of(**{name: value})).field, (name, value)


def test_missing_headers() -> None:
    """Each of the three headers must be there, and must not be empty. Only the signature may be there twice."""
    given = headers_of()
    for name, empty in (
        ("webhook-id", "is not a text"),
        ("webhook-timestamp", "is not a number"),
        ("webhook-signature", "holds no signature after 'v1,'"),
    ):
        found = {
            "is missing": rejection({each: value for each, value in given.items() if each != name}),
            empty: rejection({**given, name: ""}),
        }
        if name != "webhook-signature":
            found["is there twice"] = rejection([*given.items(), (name.upper(), given[name])])

        for reason, error in found.items():
            assert (name, True) == (error.field, str(error.reason).startswith(reason))


def test_several_keys() -> None:
    """While keys rotate, any of them verifies, with or without its prefix, and with the line end of a file."""
    for known in ([OLDER, WHSEC], [WHSEC, OLDER], [WHSEC.removeprefix("whsec_")], [f" {WHSEC}\n"]):
        check(None, *known)

    assert "is not valid for the body with any of the keys" in str(rejection(None, OLDER))


def test_window() -> None:
    """A notification that is too old, or from the future, is refused, so that a recorded one is worthless later."""
    check(now=SENT - 300)
    check(now=SENT + 300)

    late, early = rejection(now=SENT + 301), rejection(now=SENT - 301)
    assert "webhook-timestamp is 301 seconds ago: more than notification.tolerance, 300" in str(late)
    assert "webhook-timestamp is 301 seconds ahead of this machine's clock: more than" in str(early)


def test_whole_keys() -> None:
    """A key has 24 bytes or more, with or without prefix and padding. One that is malformed or cut off is not shown."""
    for length in (24, 25, 32, 64, 65, 200):
        whole = base64.b64encode(bytes(length)).decode()
        check_secrets([Secret(f"whsec_{whole}"), Secret(whole), Secret(whole.rstrip("="))])
    short = f"whsec_{base64.b64encode(bytes(23)).decode()}"
    broken = ("whsec_", "whsec_é", "whsec_a b c", "not base64!", "whsk_AAAA", "=", "foo", short)
    for key in (*broken, f"{WHSEC[:9]}!{WHSEC[9:]}", WHSEC[:-1], WHSEC[:-2], WHSEC[6:-1]):
        with pytest.raises(ConfigurationError, match=r"notification_keys: key 2 must be whsec_ and base64") as bad:
            verification_of(PROFILE, Credentials("M1", notification_keys=[WHSEC, key]))

        assert "credentials.notification_keys" == bad.value.field
        assert key not in str(bad.value).replace("whsec_ and", "") or key == "="
    with pytest.raises(ConfigurationError, match="PAYASYNC_NOTIFICATION_KEYS"):
        check_secrets([])


@pytest.mark.parametrize("event", ["PAID", "BACK", "OTHER", None])
def test_event_that_nobody_signed(event: str | None) -> None:
    """An unsigned event beside a genuine payload only chooses the kind, as an address does. A signed event is named."""
    found = verified({"event": event, "data": signed(back="R1" if event == "BACK" else "")}, kind=None)
    inside = verified({"data": signed(event="SHUT")}, changed(SHAPE, kind="data.event"), kind=None)

    assert ({"PAID": "payment", "BACK": "refund"}.get(str(event)), None) == (found.kind, found.event)
    assert ("closed" if event == "PAID" else None) == found.state
    assert ("payment", "SHUT") == (inside.kind, inside.event)


def test_object_that_is_not_signed_is_not_read() -> None:
    """If the scheme omits objects or excludes a name, a forged one is no part of the payload, nor of its numbers."""
    deep = evolve(FLAT, answer=AnswerShape(payment_id="order.pay", order_status="order.state"))
    beside = {"order": {"no": "8", "pay": "P1", "state": "PAID"}, "list": [1], "type": "x"}
    found = verified({**signed(), **beside}, deep)

    assert signed() == found.data == found.trusted
    assert ("7", 'payment:["7","SHUT"]', None, None) == (
        found.out_trade_no,
        found.dedup_key,
        found.payment_id,
        found.state,
    )
    assert found.document == json.loads(found.raw) == {**found.data, **beside}


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
    """Without the key, nobody can change a genuine notification so that it becomes a second event."""
    profile = BODY if identified else WEAK
    first = verified({"data": signed()}, profile)
    again = verified({**beside, "data": {**signed(), **dict(retyped), **emptied, "type": kind}}, profile)

    def facts(each: Notification) -> tuple[object, ...]:
        return each.dedup_key, each.digest, each.kind, each.event, each.out_trade_no, each.out_refund_no, each.state

    assert facts(first) == facts(again)
    assert identified is not first.weak


@pytest.mark.parametrize("skip_null", [True, False])
def test_values_of_other_types_are_one_event(*, skip_null: bool) -> None:
    """A null, a boolean or a number written as its text, which has the same signature, makes no second event."""
    profile = evolve(WEAK, signature=evolve(SCHEME, skip_null=skip_null, booleans="json", numbers="text"))
    plain = {"vip": "true", "new": "false", "rate": "1.10"} | ({} if skip_null else {"note": "null"})
    texts = json.dumps({"data": signed({**DATA, **plain})})
    typed = texts.replace('"true"', "true").replace('"false"', "false").replace('"1.10"', "1.10")
    typed = typed.replace('{"no"', '{"note": null, "no"') if skip_null else typed.replace('"null"', "null")
    events = [
        verify(each.encode(), {}, profile=profile, credentials=CREDENTIALS, kind="payment", clock=lambda: NOW)
        for each in (texts, typed, typed.replace("1.10", '"1.10"'))
    ]

    assert typed != texts
    assert 1 == len({each.dedup_key for each in events})
    assert (True, 1.1, float) == (events[1].data["vip"], events[1].data["rate"], type(events[1].data["rate"]))


def test_other_values_are_other_events() -> None:
    """Values that have different signatures are different events."""
    changes: list[dict[str, Any]] = [{}, {"amt": 451}, {"amt": "0450"}, {"empty": " "}, {"more": "0"}]

    assert 5 == len({verified({"data": signed(**change)}, WEAK).dedup_key for change in changes})


OMIT: Final = evolve(SCHEME, nested="omit")


def test_what_would_be_believed_unsigned() -> None:
    """If a profile would believe an unsigned field, it is refused, because anybody could write that field."""
    for shape, scheme, point in (
        (evolve(SHAPE, signature="seal.sign"), SCHEME, "data"),
        (evolve(SHAPE, data=""), SCHEME, "data"),
        (evolve(SHAPE, signature="sign", time=""), OMIT, "data"),
        (evolve(SHAPE, signature="sign"), evolve(SCHEME, exclude=("sign", "data")), "data"),
        (evolve(SHAPE, out_trade_no="order.no"), OMIT, "out_trade_no"),
        (evolve(SHAPE, out_refund_no="sign"), SCHEME, "out_refund_no"),
        (evolve(SHAPE, subscription_id="type"), SCHEME, "subscription_id"),
        (evolve(SHAPE, id={"refund": ["back", "type"]}), SCHEME, "id.refund"),
    ):
        profile = evolve(BODY, notification=shape, signature=scheme)
        with pytest.raises(ConfigurationError, match="does not cover") as refused:
            verification_of(profile, CREDENTIALS)

        assert f"notification.{point}" == refused.value.field
        check_covered(evolve(profile, notification=evolve(shape, verification="none")))
        assert verification_of(profile, CREDENTIALS, accept_all).proves


def test_time_that_nobody_signed() -> None:
    """An unsigned time does not change the event's key. If it is too old, the notification is refused."""
    beside = evolve(BODY, notification=evolve(SHAPE, time="at", id={}))
    found = [verified({"at": at, "data": signed()}, beside) for at in (NOW, NOW - 9)]

    assert found[0].dedup_key == found[1].dedup_key
    assert "at" == refusal({"at": NOW - 61, "data": signed()}, beside).field


SHARED_KEY: Final = "a key that both sides have"
SHARED_KEYS: Final = Credentials("M1", signing_key=SHARED_KEY)
SHARED_SHAPE: Final = NotificationShape(
    verification="body", signature="sign", out_trade_no="outTradeNo", out_refund_no="outRefundNo"
)
SHARED_BARE: Final = Profile(signature=SortedPairs(algorithm="hmac-sha256", encoding="hex"), notification=SHARED_SHAPE)
"""Nothing inside the signature is the service's alone."""
SHARED: Final = evolve(
    SHARED_BARE, answer=AnswerShape(refund_status="refundStatus"), states=States(refund={"succeeded": ("SUCCESS",)})
)
REFUND: Final = {"outRefundNo": "R1", "outTradeNo": "T1", "refundAmt": 200, "refundStatus": "SUCCESS"}


def refunds_of(profile: Profile, *documents: object) -> list[str | None]:
    """Return the refund's number of each document that is verified, and `None` for each other one."""
    numbers = list[str | None]()
    for document in documents:
        try:
            numbers.append(verified(document, profile, SHARED_KEYS, "refund").out_refund_no)
        except InvalidSignatureError:
            numbers.append(None)
    return numbers


@pytest.mark.parametrize("place", ["", "data"])
async def test_request_sent_back_is_no_notification(place: str) -> None:
    """A request, whose signature may stand in a log, is refused as a notification; a genuine one is verified."""
    shape = evolve(SHARED_SHAPE, data=place, signature="data.sign" if place else "sign")
    with Recorder([answer(200, b"{}")] * 2) as service:
        async with Session(service.url, credentials=SHARED_KEYS, profile=SHARED) as pay:
            await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1", notify_url="https://a.example/n")
            await pay.refunds.create(
                out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200, refund_desc="late"
            )
        requests = [json.loads(each.body) for each in service.requests]
    genuine = [signed(REFUND, SHARED_KEY), signed(REFUND, SHARED_KEY, nonceStr="a nonce of a request")]
    documents = [{"data": body} if place else body for body in (*requests, *genuine)]

    assert [None, None, "R1", "R1"] == refunds_of(evolve(SHARED, notification=shape), *documents)


def test_what_shows_that_the_service_made_it() -> None:
    """A known event, a time, a telling field or a known state that is signed shows that the service made it."""
    kinds: dict[str, Any] = {"kind": "what", "kinds": {"refund": ["refund.done"]}}
    cases: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
        (kinds, {"what": "refund.done"}, {"what": "refund.else"}),
        ({"time": "at", "tolerance": 10**9}, {"at": NOW}, {"at": "soon"}),
        ({"event_time": "at"}, {"at": NOW - 10**8}, {"at": "soon"}),
        ({"tells": {"refund": "tradeStatus"}}, {"tradeStatus": "X"}, {"tradeStatus": ""}),
        ({}, {"refundStatus": "SUCCESS"}, {"refundStatus": "LATE"}),
    ]
    for changes, genuine, other in cases:
        profile = evolve(SHARED if not changes else SHARED_BARE, notification=evolve(SHARED_SHAPE, **changes))
        documents = [signed({"outRefundNo": "R1"}, SHARED_KEY, **more) for more in (genuine, other, {})]

        assert ["R1", None, None] == refunds_of(profile, *documents), changes


async def test_request_that_could_be_posted_as_a_notification_is_not_sent() -> None:
    """If one key signs requests and notifications, a request that could pass as a notification is not sent.

    If the service signs with a key of its own, the request is sent.
    """
    refund: dict[str, Any] = {"out_trade_no": "T1", "out_refund_no": "R1", "total_amt": 450, "refund_amt": 200}
    cases: tuple[tuple[dict[str, Any], dict[str, Any]], ...] = (
        ({}, {"refund_desc": "late&refundStatus=SUCCESS"}),
        ({}, {"extra": {"refundStatus": "SUCCESS"}}),
        ({"time": "time", "tolerance": 10**9}, {"refund_desc": "late&time=1800000000"}),
    )
    for changes, more in cases:
        profile = evolve(SHARED, notification=evolve(SHARED_SHAPE, **changes))
        with Recorder(otherwise=answer(200, b"{}")) as service:
            async with Session(service.url, credentials=SHARED_KEYS, profile=profile) as pay:
                with pytest.raises(InvalidArgumentError, match=r"sent back|no request may say"):
                    await pay.refunds.create(**refund, **more)
            before = len(service.requests)
            async with Session(service.url, credentials=evolve(SHARED_KEYS, service_keys=KEY), profile=profile) as pay:
                await pay.refunds.create(**refund, **more)

        assert (0, 1) == (before, len(service.requests)), more


NAMES: Final = ("env", "mch", "money", "outRefundNo", "outTradeNo", "paid", "payNo", "period", "refundStatus")
TOLD: Final[dict[str, Any]] = dict.fromkeys((*NAMES, "subNo", "time", "totalAmt", "what"), NOW) | {
    "env": "live",
    "mch": "M1",
    "outRefundNo": "R1",
    "refundStatus": "SUCCESS",
    "what": "refund.done",
}
"""All that may be read of a notification, in the order in which it is signed."""


@pytest.mark.parametrize("place", ["", "data"])
def test_field_that_is_hidden_in_a_text_of_a_notification(place: str) -> None:
    """If a text of the payload could hide a moved field, such as the refund's number, the notification is refused."""
    root = f"{place}." if place else ""
    shape = evolve(
        SHARED_SHAPE,
        data=place,
        signature=f"{root}sign",
        kind=f"{root}what",
        time=f"{root}time",
        kinds={"refund": ["refund.done"]},
        event_time=f"{root}paid",
        merchant_id="mch",
        must={"env": "live"},
        subscription_id="subNo",
        id={"refund": ["period"]},
    )
    profile = evolve(SHARED, notification=shape, answer=evolve(SHARED.answer, payment_id="payNo", refund_amt="money"))
    for name, value in TOLD.items():
        text = {"body": f"Coffee&{name}={value}"}
        genuine = signed(text | TOLD, SHARED_KEY)
        hidden = signed(text | {each: value for each, value in TOLD.items() if each > name}, SHARED_KEY)

        assert ["R1"] == refunds_of(profile, {place: genuine} if place else genuine)
        error = refusal({place: hidden} if place else hidden, profile, SHARED_KEYS, None)
        assert f"could have hidden {name} there" in str(error)


@pytest.mark.parametrize("fields", [{"refund_amt": "cents"}, {"refunds.create": {"refund_amt": "cents"}}])
def test_field_with_another_name_that_is_hidden_in_a_text(fields: dict[str, Any]) -> None:
    """A text of a notification must not hide what is compared, under the name that the profile gives it, either."""
    profile = evolve(SHARED, fields=fields)
    hidden = signed({"body": "Coffee&cents=20", **REFUND}, SHARED_KEY)

    assert "could have hidden cents there" in str(refusal(hidden, profile, SHARED_KEYS, None))


def test_merchant_that_is_hidden_beside_the_envelope() -> None:
    """A merchant may be named beside the envelope, so a text there must not hide one."""
    shape = evolve(SHAPE, data="payload", signature="sign", time="time", kind="name", merchant_id=None)
    profile = evolve(BODY, notification=shape, signature=evolve(SCHEME, nested="json"))
    text = f'body=x&merchantId=M2&name=SHUT&payload={{"no":"7","state":"SHUT"}}&time={NOW}'
    payload = {"no": "7", "state": "SHUT"}
    hidden = {"body": "x&merchantId=M2", "name": "SHUT", "payload": payload, "time": NOW}

    assert "could have hidden merchantId there" in str(refusal({**hidden, "sign": hmac_sha256(text, KEY)}, profile))


def test_object_that_is_hidden_in_a_text_of_a_notification() -> None:
    """If nested values are signed as JSON, the payload as a text has the same signature, and is refused."""
    scheme = SortedPairs(algorithm="hmac-sha256", encoding="hex", nested="json")
    shape = evolve(SHARED_SHAPE, data="data", kind="what", kinds={"refund": ["refund.done"]})
    text = signed({"data": '{"outRefundNo":"R1"}', "what": "refund.done"}, SHARED_KEY)
    profile = evolve(SHARED, signature=scheme, notification=shape)

    assert ["R1"] == refunds_of(profile, {**text, "data": {"outRefundNo": "R1"}})
    assert "data is a text that holds JSON" in str(refusal(text, profile, SHARED_KEYS, "refund"))


def test_profile_by_which_nobody_could_tell() -> None:
    """If nothing signed tells requests from notifications, one key for both is refused. The error says what to add."""
    shapes: tuple[dict[str, Any], ...] = (
        {},
        {"kind": "what"},
        {"time": "nonceStr"},
        {"data": "data", "signature": "data.sign", "time": "at"},
        {"signature": "", "verification": "header", "header": HEADER.header, "kind": "header:X-Event"},
    )
    own = partial(Credentials, "M1", signing_key=SHARED_KEY)
    for profile in (
        *(evolve(SHARED_BARE, notification=evolve(SHARED_SHAPE, **each)) for each in shapes),
        evolve(SHARED_BARE, answer=AnswerShape(refund_status="refundStatus")),
        evolve(SHARED, constants={"refunds.create": {"refundStatus": "SUCCESS"}}),
        evolve(SHARED, accept=Accept(required={"refunds.create": ["refundStatus"]})),
        evolve(SHARED, refund_status=Parameter("refundStatus")),
        evolve(SHARED, answer=AnswerShape(refund_status="refundDesc")),
    ):
        for one in (SHARED_KEYS, own(service_keys=SHARED_KEY), own(service_keys=["another key", SHARED_KEY])):
            with pytest.raises(ConfigurationError, match=r"nothing inside the signature.*notification.tells.* service"):
                verification_of(profile, one)
        assert verification_of(profile, own(service_keys="another key")).proves
        assert verification_of(profile, SHARED_KEYS, accept_all).proves


def test_scheme_of_ones_own_with_one_key() -> None:
    """One key on both sides signs on both, unless the scheme says that it does not."""
    keys = Credentials("M1", signing_key=SHARED_KEY, service_keys=SHARED_KEY)
    for scheme in (Own(), Own(symmetric=True)):
        with pytest.raises(ConfigurationError):
            verification_of(evolve(SHARED_BARE, signature=scheme), keys)

    assert verification_of(evolve(SHARED_BARE, signature=Own(symmetric=False)), keys).proves


MD5: Final = evolve(SHARED_BARE, signature=SortedPairs(algorithm="md5", encoding="hex", key_param="key"))
CANARY_PUBLIC: Final = evolve(SHARED_BARE, signature=PUBLIC.signature)


def look(profile: Profile, raw: bytes = b'{"sign":"00"}', credentials: Credentials | None = None) -> Any:
    """Verify what is not the service's."""
    return verify(raw, headers_of(), profile=profile, credentials=credentials or keys(), clock=lambda: SENT)


def sign(profile: Profile, data: Any) -> Any:
    """Sign what cannot be signed."""
    return sign_notification(data, profile=profile, credentials=keys())


FAILING: Final[dict[str, Callable[[], Any]]] = {
    "headers": lambda: look(PROFILE),
    "body": lambda: look(SHARED_BARE),
    "key in the text": lambda: look(MD5),
    "no public key": lambda: look(CANARY_PUBLIC),
    "no webhook key": lambda: look(PROFILE, credentials=keys(notification_keys=f"{CANARIES['notification_keys']}!")),
    "unsignable": lambda: sign(MD5, {"amount": 1.5}),
    "no private key": lambda: sign(CANARY_PUBLIC, {"amount": 1}),
}


@pytest.mark.parametrize("failing", FAILING.values(), ids=FAILING)
def test_no_error_shows_a_key(failing: Callable[[], Any]) -> None:
    """Neither a key nor its bytes are in the words, the facts, the pickle or the local variables of an error.

    Neither the `repr` of a verification nor its `checks` show a key.
    """
    with pytest.raises(PayasyncError) as refused:
        failing()
    texts = written(refused.value)
    decoded = base64.b64decode(CANARIES["notification_keys"].removeprefix("whsec_"))

    assert [] == singing(texts)
    assert [] == [name for name, text in texts.items() if repr(decoded)[2:12] in text]
    for profile in (PROFILE, SHARED_BARE, MD5):
        verification = verification_of(profile, keys())
        assert [] == singing({"repr": repr(verification), "words": verification.checks})
