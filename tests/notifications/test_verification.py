"""Whether a notification is from the service, in each way that a profile can say it."""

import base64
import hashlib
import hmac
import json
import math
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve
from hypothesis import example, given
from hypothesis import strategies as st
from multidict import CIMultiDict
from standardwebhooks import Webhook

from payasync import Accept, Credentials, PayasyncError, Profile, Secret, Session, SortedPairs
from payasync.errors import (
    ConfigurationError,
    InvalidArgumentError,
    InvalidSignatureError,
    NotConfiguredError,
)
from payasync.notifications import Notification, Receiver, SqliteInbox
from payasync.notifications.verification import (
    MISMATCH,
    check_covered,
    check_secrets,
    check_webhook,
    parse_time,
    sign_webhook,
    verification_of,
    verify,
)
from payasync.profile.schema import AnswerShape, NotificationShape, Parameter, States
from payasync.profile.signed_fields import SignedFields, notification_coverage
from payasync.sandbox import PROFILE
from payasync.testing import sign_notification
from tests.foreign.recorder import Recorder, answer
from tests.foreign.signatures import hmac_sha256, rsa_keys, rsa_sha256
from tests.test_canary import CANARIES, keys, singing, written

NOW: Final = 1_800_000_000
WHSEC: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
CREDENTIALS: Final = Credentials(
    "M1",
    signing_key="own signing key 1",
    service_keys=["service key number 0", "service key number 1"],
    notification_keys=WHSEC,
)
SHAPE: Final = NotificationShape(verification="body", data="data", signature="data.sign", time="data.at", tolerance=60)
SCHEME: Final = SortedPairs(algorithm="hmac-sha256", encoding="hex")
BODY: Final = Profile(notification=SHAPE, signature=SCHEME)
DATA: Final = {"no": "T1", "amt": 450, "empty": ""}


def signature(fields: Mapping[str, Any], key: str = "service key number 1") -> str:
    """Return the signature of a payload, made by a few lines of this test's own."""
    text = "&".join(f"{name}={fields[name]}" for name in sorted(fields) if fields[name] != "")
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def signed(key: str = "service key number 1", *, at: Any = NOW, **fields: Any) -> dict[str, Any]:
    """Return a document that is signed in its payload."""
    told = {**DATA, "at": at, **fields}
    return {"data": {**told, "sign": signature(told, key)}}


def judged(
    document: object, *, profile: Profile = BODY, keys: Credentials = CREDENTIALS, now: float = NOW
) -> Notification:
    """Return a notification that is signed in its body, if it is the service's."""
    return verify(json.dumps(document).encode(), {}, profile=profile, credentials=keys, clock=lambda: now)


def refusal(document: object, **facts: Any) -> InvalidSignatureError:
    """Return the error that a notification is refused with."""
    with pytest.raises(InvalidSignatureError) as error:
        judged(document, **facts)
    return error.value


def webhook(body: bytes, now: int = NOW) -> dict[str, str]:
    """Return the headers that the scheme's own package makes."""
    sent = datetime.fromtimestamp(now, UTC)
    return {
        "webhook-id": "m1",
        "webhook-timestamp": str(now),
        "webhook-signature": Webhook(WHSEC).sign("m1", sent, body.decode()),
    }


def test_signed_in_its_body() -> None:
    """The payload's fields without the signature, by any of the keys, in the window: it is verified and read."""
    told = judged(signed())

    assert (True, "T1", NOW) == (told.verified, told.get("no"), told.received_at.timestamp())
    assert told.trusted == told.data
    assert judged(signed("service key number 0")).verified


@pytest.mark.parametrize(
    "document",
    [
        signed("service key number 2"),
        signed("own signing key 1"),
        {**signed(), "data": {**signed()["data"], "amt": 451}},
        {**signed(), "data": {**signed()["data"], "amt": "450 "}},
        {**signed(), "data": {**signed()["data"], "more": "1"}},
        {**signed(), "data": {**signed()["data"], "sign": signed()["data"]["sign"][:-1]}},
        {**signed(), "data": {**signed()["data"], "sign": "é"}},
        {**signed(), "data": {**signed()["data"], "sign": ""}},
        {**signed(), "data": {**signed()["data"], "amt": 450.0}},
        {**signed(), "data": {**signed()["data"], "amt": None}},
        signed(no="T1&amt=450"),
    ],
)
def test_body_that_is_not_the_services(document: Any) -> None:
    """Another key, another value, one field more, or a value that has no one form: not verified."""
    assert ("data.sign", False) == (refusal(document).field, "service key number 1" in str(refusal(document)))


@pytest.mark.parametrize(
    "document", [{}, {"data": {}}, {"data": []}, {"data": "x"}, {"data": None}, {"sign": "x"}, {"data": {"Sign": "x"}}]
)
def test_body_without_a_signature(document: Any) -> None:
    """What carries none where the profile has it is refused as a forgery is."""
    assert ("data.sign", "is missing") == (refusal(document).field, refusal(document).reason)


@pytest.mark.parametrize("given", [None, 5, True, ["x"], {"x": "y"}])
def test_signature_that_is_no_text(given: object) -> None:
    """Wrong types are refused, and raise nothing of Python's."""
    assert "is not a text" == refusal({"data": {**DATA, "sign": given}}).reason


VALUES: Final = {
    "null": ({}, '"note":null,"vip":1', "vip=1"),
    "null as a text": ({"skip_null": False}, '"note":null,"vip":1', "note=null&vip=1"),
    "true": ({"booleans": "json"}, '"note":1,"vip":true', "note=1&vip=true"),
    "number": ({"numbers": "text"}, '"note":1.10,"vip":-1E+2', "note=1.10&vip=-1E+2"),
    "inside a list": ({"numbers": "text", "nested": "json"}, '"note":[1.10, true],"vip":1', "note=[1.10,true]&vip=1"),
}


@pytest.mark.parametrize(("options", "values", "text"), VALUES.values(), ids=VALUES)
def test_values_that_the_service_signs(options: dict[str, Any], values: str, text: str) -> None:
    """A genuine notification with a null, a bool or a number is verified as the profile says that it is signed."""
    sign = hmac_sha256(f"at={NOW}&{text}", "service key number 1")
    raw = f'{{"data":{{{values},"at":{NOW},"sign":"{sign}"}}}}'.encode()
    profile = evolve(BODY, signature=evolve(SCHEME, **options))
    found = verify(raw, {}, profile=profile, credentials=CREDENTIALS, clock=lambda: NOW)

    assert found.verified
    assert json.loads(raw) == found.document


def test_value_that_the_profile_refuses_is_named() -> None:
    """What cannot be checked is not called forged: the field is named, and what to set."""
    error = refusal(signed(vip=True))

    assert "data.sign" == error.field
    assert error.reason == (
        "cannot be checked: data.vip holds true or false, which the profile's signature refuses: if the service signs "
        'that, set signature.booleans = "json"'
    )
    assert MISMATCH in str(refusal(signed("service key number 2")))


@pytest.mark.parametrize("offset", [-60, 0, 60])
@pytest.mark.parametrize(
    "written", [lambda at: at, lambda at: at * 1000, lambda at: datetime.fromtimestamp(at, UTC).isoformat()]
)
def test_time_in_the_window(offset: int, written: Any) -> None:
    """The time in the body may be off by the tolerance, both ways, in any form."""
    assert judged(signed(at=written(NOW + offset))).verified


@pytest.mark.parametrize("at", [NOW - 61, NOW + 61, "", "soon", "2027-01-15T08:00:00"])
def test_time_outside_the_window(at: Any) -> None:
    """Too old, from the future, or no time at all."""
    assert "data.at" == refusal(signed(at=at)).field


def test_asymmetric(tmp_path: Path) -> None:
    """What the service's private key signed, by another program, its public key verifies; nothing else."""
    private, public = rsa_keys(tmp_path)
    made = rsa_sha256(f"amt=450&at={NOW}&no=T1", private)
    profile = evolve(BODY, signature=SortedPairs(algorithm="rsa-sha256", encoding="hex"))
    keys = Credentials("M1", service_keys=public.read_text())
    data = {**DATA, "at": NOW, "sign": made.hex()}
    changed = {"data": {**data, "amt": 4500}}

    assert judged({"data": data}, profile=profile, keys=keys).verified
    assert "data.sign" == refusal(changed, profile=profile, keys=keys).field


def test_signed_in_its_headers() -> None:
    """What the scheme's package signs is verified over the bytes, white space and all."""
    body = b'{ "type":"payment.paid", "data":{"outTradeNo":"T1","status":"SBX_PAID"} }\n'
    told = verify(body, webhook(body), profile=PROFILE, credentials=CREDENTIALS, clock=lambda: NOW)

    assert (True, "payment", 'payment:["T1","SBX_PAID"]') == (told.verified, told.kind, told.dedup_key)


def test_clock_is_this_machines() -> None:
    """Without another clock, now is now."""
    now = int(time.time())

    assert verify(b"{}", webhook(b"{}", now), profile=PROFILE, credentials=CREDENTIALS).verified
    with pytest.raises(InvalidSignatureError, match="webhook-timestamp"):
        verify(b"{}", webhook(b"{}", now - 10_000), profile=PROFILE, credentials=CREDENTIALS)


def test_time_of_a_body_that_is_signed_in_its_headers() -> None:
    """There the header's time counts: the one in the body is that of the event, however long ago."""
    body = b'{"timestamp":"2020-01-01T00:00:00Z"}'

    assert verify(body, webhook(body), profile=PROFILE, credentials=CREDENTIALS, clock=lambda: NOW).verified


def test_nothing_is_read_before_its_signature() -> None:
    """Who cannot sign has no body of theirs decoded: the signature is what is wrong with it."""
    with pytest.raises(InvalidSignatureError):
        verify(b"not JSON", webhook(b"{}"), profile=PROFILE, credentials=CREDENTIALS, clock=lambda: NOW)
    with pytest.raises(InvalidArgumentError):
        verify(b"not JSON", webhook(b"not JSON"), profile=PROFILE, credentials=CREDENTIALS, clock=lambda: NOW)


def test_nothing_is_made_of_a_body_before_its_signature() -> None:
    """The document must be decoded, and that is all: what else is wrong with it is not looked at."""
    profile = evolve(BODY, notification=evolve(SHAPE, kind="data.event", kinds={"refund": ["BACK"]}))
    wrong = signed(event="BACK")
    given: dict[str, Any] = {"profile": profile, "credentials": CREDENTIALS, "clock": lambda: NOW, "kind": "payment"}

    with pytest.raises(InvalidArgumentError, match="address for payments"):
        verify(json.dumps(wrong).encode(), {}, **given)
    with pytest.raises(InvalidSignatureError):
        verify(json.dumps({"data": {**wrong["data"], "amt": 451}}).encode(), {}, **given)


def test_not_signed_at_all() -> None:
    """Where the profile says so, what arrives is a hint: read, not verified, and not to be trusted."""
    profile = evolve(BODY, notification=evolve(SHAPE, verification="none"))
    told = verify(b'{"data":{"no":"T1"}}', {}, profile=profile, credentials=CREDENTIALS, kind="payment")

    assert (False, None, "payment") == (told.verified, told.trusted, told.kind)


@pytest.mark.parametrize("verification", ["", "none", "body", "standard-webhooks"])
def test_verifier_of_ones_own(verification: Any) -> None:
    """It stands in the profile's place, and gets what was received."""
    seen: list[object] = []

    def verifier(raw: bytes, headers: Mapping[str, str]) -> bool:
        seen.append((raw, headers["X-Signature"]))
        return True

    profile = evolve(PROFILE, notification=evolve(PROFILE.notification, verification=verification))
    told = verify(b"{}", {"x-signature": "s"}, profile=profile, credentials=CREDENTIALS, verifier=verifier)

    assert told.verified
    assert [(b"{}", "s")] == seen


@pytest.mark.parametrize("said", [False, None, 1, "yes", [True]], ids=repr)
def test_verifier_that_does_not_say_true(said: Any) -> None:
    """Anything but `True` is no."""
    with pytest.raises(InvalidSignatureError, match="verifier does not say") as refused:
        verify(b"{}", {}, profile=PROFILE, credentials=CREDENTIALS, verifier=lambda _raw, _headers: said)

    assert "verifier" == refused.value.field


def test_verifier_that_raises() -> None:
    """What raises has verified nothing; its error, which may quote a key, is not passed on."""

    def verifier(_raw: bytes, _headers: Mapping[str, str]) -> bool:
        raise KeyError("canary")

    with pytest.raises(InvalidSignatureError) as refused:
        verify(b"{}", {}, profile=PROFILE, credentials=CREDENTIALS, verifier=verifier)

    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None


async def asynchronous(raw: bytes, headers: Mapping[str, str]) -> bool:
    """Verify nothing: nobody awaits it."""
    raise NotImplementedError(raw, headers)


class Asynchronous:
    """An object that is called as a coroutine function is."""

    async def __call__(self, raw: bytes, headers: Mapping[str, str]) -> bool:
        """Verify nothing: nobody awaits it."""
        raise NotImplementedError(raw, headers)


@pytest.mark.parametrize("verifier", [asynchronous, partial(asynchronous, headers={}), Asynchronous(), 5])
def test_verifier_that_nobody_awaits(verifier: Any) -> None:
    """A coroutine is not `True`: nothing would ever verify, so it is refused where it is given."""
    with pytest.raises(ConfigurationError, match="plain function") as refused:
        verification_of(PROFILE, CREDENTIALS, verifier)

    assert "verifier" == refused.value.field


@pytest.mark.parametrize(
    ("profile", "point"),
    [
        (Profile(), "notification.verification"),
        (evolve(BODY, notification=evolve(SHAPE, signature="")), "notification.signature"),
        (evolve(BODY, signature=None), "signature"),
        (evolve(BODY, signature=SortedPairs(encoding="hex")), "signature.algorithm"),
        (evolve(BODY, signature=SortedPairs(algorithm="hmac-sha256")), "signature.encoding"),
    ],
)
def test_open_points(profile: Profile, point: str) -> None:
    """What the profile does not answer is named, before anything is looked at."""
    with pytest.raises(NotConfiguredError) as refused:
        verify(b"{}", {}, profile=profile, credentials=CREDENTIALS)

    assert point == refused.value.field


@pytest.mark.parametrize(
    ("profile", "keys", "field"),
    [
        (PROFILE, Credentials("M1"), "credentials.notification_keys"),
        (PROFILE, Credentials("M1", notification_keys="whsec_!"), "credentials.notification_keys"),
        (BODY, Credentials("M1"), "credentials.service_keys"),
        (
            evolve(BODY, signature=SortedPairs(algorithm="ed25519", encoding="hex")),
            Credentials("M1", signing_key="x"),
            "credentials.service_keys",
        ),
        (
            evolve(BODY, signature=SortedPairs(algorithm="ed25519", encoding="hex")),
            Credentials("M1", service_keys="x"),
            "credentials.service_keys",
        ),
    ],
)
def test_keys_that_verify_nothing(profile: Profile, keys: Credentials, field: str) -> None:
    """A key that is missing, or is none, is the merchant's own mistake, and no forgery."""
    with pytest.raises(ConfigurationError) as refused:
        verify(b"{}", {}, profile=profile, credentials=keys)

    assert field == refused.value.field


class Own:
    """A scheme of a merchant's own."""

    def __init__(self, said: Any) -> None:
        self.said = said

    def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> str:
        """Sign nothing."""
        raise NotImplementedError(fields, path, key)

    def verify(self, fields: Mapping[str, Any], signature: str, *, path: str, key: Secret) -> bool:
        """Say or raise what it was told to, and only for what is right."""
        if isinstance(self.said, Exception):
            raise self.said
        right = (fields, signature, path, key.reveal()) == ({**DATA, "at": NOW}, "s", "", "service key number 0")
        return bool(right) and self.said


@pytest.mark.parametrize(("said", "verified"), [(True, True), (1, False), (ValueError("canary"), False)])
def test_scheme_of_ones_own(said: Any, *, verified: bool) -> None:
    """It gets the object without the signature, an empty path and each key; only `True` from it is true."""
    profile = evolve(BODY, signature=Own(said))
    document = {"data": {**DATA, "at": NOW, "sign": "s"}}
    if verified:
        assert judged(document, profile=profile).verified
    else:
        assert "canary" not in str(refusal(document, profile=profile))


def test_what_is_looked_at_in_words() -> None:
    """People are told what was checked; a key is in none of it."""
    unsigned = evolve(BODY, notification=evolve(SHAPE, verification="none"))
    timeless = evolve(BODY, notification=evolve(SHAPE, time=""))
    routed = evolve(BODY, notification=evolve(SHAPE, time="", kind="event"))

    assert [
        "webhook-signature over the body, by 1 of your keys; webhook-timestamp within 300 seconds",
        "data.sign over the object that holds it, by 2 of your keys; data.at within 60 seconds",
        "data.sign over the object that holds it, by 2 of your keys",
        "data.sign over the object that holds it, by 2 of your keys; not signed: event",
        "nothing",
    ] == [verification_of(profile, CREDENTIALS).checks for profile in (PROFILE, BODY, timeless, routed, unsigned)]
    assert "whatever" in verification_of(PROFILE, CREDENTIALS, lambda _raw, _headers: True).checks
    assert [True, True, False] == [verification_of(each, CREDENTIALS).proves for each in (PROFILE, BODY, unsigned)]


JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["data", "sign", "at", "a"]), inner),
    max_leaves=10,
)
TEXTS: Final = st.text(st.characters(codec=None), max_size=20) | st.binary(max_size=20)
HEADERS: Final = st.fixed_dictionaries(
    {},
    optional={
        "webhook-id": TEXTS,
        "webhook-timestamp": TEXTS | st.just(str(NOW)),
        "webhook-signature": TEXTS | TEXTS.map(lambda each: b"v1," + each if isinstance(each, bytes) else f"v1,{each}"),
    },
)


@given(raw=st.binary(max_size=40) | JSON.map(lambda each: json.dumps(each).encode()), headers=HEADERS)
@example(raw=b"{}", headers={"webhook-id": "a", "webhook-timestamp": str(NOW), "webhook-signature": "v1,\ud800"})
@example(raw=json.dumps({"data": {"sign": "a" * 64}}).encode(), headers={})
def test_only_our_errors(raw: bytes, headers: Any) -> None:
    """Whatever arrives: nobody who has no key gets anything verified, and no error is a foreign one."""
    for profile in (PROFILE, BODY):
        with pytest.raises(PayasyncError) as refused:
            verify(raw, headers, profile=profile, credentials=CREDENTIALS, clock=lambda: NOW)
        assert isinstance(refused.value, InvalidSignatureError | InvalidArgumentError)


@pytest.mark.parametrize(
    "value",
    [
        NOW,
        float(NOW),
        NOW * 1000,
        f"{NOW}",
        f"{NOW}000",
        f"{NOW}.000",
        "2027-01-15T08:00:00Z",
        "2027-01-15T08:00:00.000Z",
        "2027-01-15T08:00:00+00:00",
        "2027-01-15T03:00:00-05:00",
        "20270115T080000Z",
    ],
)
def test_times(value: Any) -> None:
    """ISO 8601 with an offset, seconds since 1970, or milliseconds, as a number or its digits."""
    assert NOW == parse_time(value)


def test_numbers_from_the_year_5138_on_are_milliparse_time() -> None:
    """No service sends from there; in milliseconds, it is the year 1973."""
    assert [10**11 - 1, 10**8] == [parse_time(10**11 - 1), parse_time(10**11)]


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        "",
        "now",
        "2027-01-15T08:00:00",
        "2027-01-15",
        " 1800000000",
        "1800000000\n",
        "-1800000000",
        "1e9",
        "١٨٠٠٠٠٠٠٠٠",
        "1" * 20,
        10**400,
        math.inf,
        math.nan,
        b"1800000000",
        [NOW],
        {"at": NOW},
    ],
    ids=repr,
)
def test_what_is_no_time(value: Any) -> None:
    """A time without an offset is none: nobody could say when it was."""
    assert parse_time(value) is None


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_times_at_the_ends_of_the_calendar(text: str) -> None:
    """They are times, far away, and no error of Python's."""
    far = parse_time(text)

    assert far is not None
    assert abs(far - NOW) > 10**9


SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLDER: Final = "whsec_" + base64.b64encode(b"an older key, 24 bytes..").decode()
VECTOR: Final = b'{"test": 2432232314}'
NUMBER: Final = "msg_p5jXN8AQM9LWM0D4loKWxJek"
SENT: Final = 1614265330
SIGNATURE: Final = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
"""The published vector of the scheme."""
ARABIC: Final = "".join(chr(0x0660 + int(digit)) for digit in str(SENT))
"""The digits of another script, which Python reads as a number, too."""


def vector_headers(signature: str = SIGNATURE, **others: str) -> CIMultiDict[str]:
    """Return the headers of the published vector, with others in their place."""
    given = {"webhook-id": NUMBER, "webhook-timestamp": str(SENT), "webhook-signature": signature}
    return CIMultiDict({**given, **{f"webhook-{name}": value for name, value in others.items()}})


def check_vector(body: bytes = VECTOR, given: CIMultiDict[str] | None = None, now: float = SENT, *keys: str) -> None:
    """Check a notification with these keys."""
    held = [Secret(key) for key in keys or (SECRET,)]
    check_webhook(body, vector_headers() if given is None else given, keys=held, tolerance=300, now=now)


def rejection(**facts: Any) -> InvalidSignatureError:
    """Return the error with which a notification is refused."""
    with pytest.raises(InvalidSignatureError) as error:
        check_vector(**facts)
    return error.value


def test_published_vector() -> None:
    """The vector that every implementation of the scheme has in its tests: verified, and signed the same."""
    check_vector()

    assert SIGNATURE == sign_webhook(VECTOR, number=NUMBER, sent=SENT, key=Secret(SECRET))


@given(
    body=st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers()).map(
        lambda each: json.dumps(each, ensure_ascii=False)
    ),
    number=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=40),
    key=st.binary(min_size=1, max_size=70),
)
def test_foreign_signatures(body: str, number: str, key: bytes) -> None:
    """What the package signs is verified, and with any other byte it is not."""
    secret = f"whsec_{base64.b64encode(key).decode()}"
    signature = Webhook(secret).sign(number, datetime.fromtimestamp(SENT, UTC), body)

    check_vector(body.encode(), vector_headers(signature, id=number), SENT, secret)
    assert rejection(body=body.encode() + b" ", given=vector_headers(signature, id=number)).field == "webhook-signature"


@pytest.mark.parametrize(
    "signature",
    [
        f"v1,{'A' * 43}= {SIGNATURE}",
        f"{SIGNATURE} v1,{'A' * 43}=",
        f"v1a,c2lnbmVk {SIGNATURE}",
        f"v2,{SIGNATURE[3:]} {SIGNATURE}",
        f"v1,no-base64! {SIGNATURE}",
        f"v1, v1 , {SIGNATURE} garbage",
        f"v1,c2hvcnQ= {SIGNATURE}",
    ],
)
def test_one_of_several_signatures(signature: str) -> None:
    """The service signs with two keys while it changes them; what is of another version, or none, is passed over."""
    check_vector(given=vector_headers(signature))


RIGHT: Final = base64.b64decode(SIGNATURE[3:])


@pytest.mark.parametrize(
    "signature",
    [
        *(
            f"v1,{base64.b64encode(each).decode()}"
            for each in (RIGHT[:-1], RIGHT + b"\0", RIGHT[:-1] + b"\0", RIGHT[1:])
        ),
        *(f"{version},{SIGNATURE[3:]}" for version in ("v2", "v1a", "V1", "", "v1 v2")),
        SIGNATURE[3:],
    ],
)
def test_nothing_but_the_whole_signature(signature: str) -> None:
    """One byte less, more or other, or the right bytes as those of another version: none of it verifies."""
    assert "webhook-signature" == rejection(given=vector_headers(signature)).field


def test_several_keys() -> None:
    """While keys rotate, any of them verifies."""
    check_vector(VECTOR, None, SENT, OLDER, SECRET)
    check_vector(VECTOR, None, SENT, SECRET, OLDER)

    with pytest.raises(InvalidSignatureError, match="is not that of the body, by any of the keys"):
        check_vector(VECTOR, None, SENT, OLDER)


@pytest.mark.parametrize("secret", [SECRET.removeprefix("whsec_"), f" {SECRET}\n"])
def test_forms_of_a_key(secret: str) -> None:
    """With or without its prefix, and with the line end of a file."""
    check_vector(VECTOR, None, SENT, secret)


CHANGED: Final = {
    "body": (VECTOR.replace(b"4", b"5"), vector_headers()),
    "order of names": (b" " + VECTOR, vector_headers()),
    "id": (VECTOR, vector_headers(id="msg_2")),
    "timestamp": (VECTOR, vector_headers(timestamp=str(SENT + 1))),
    "timestamp with a zero": (VECTOR, vector_headers(timestamp=f"0{SENT}")),
    "signature": (VECTOR, vector_headers(SIGNATURE.replace("g0", "g1"))),
    "id with the timestamp": (VECTOR, vector_headers(id=f"{NUMBER}.{SENT}")),
}


@pytest.mark.parametrize(("body", "given"), CHANGED.values(), ids=CHANGED)
def test_everything_is_signed(body: bytes, given: CIMultiDict[str]) -> None:
    """With another id, time or body, nothing verifies."""
    assert "webhook-signature" == rejection(body=body, given=given).field


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_missing_headers(name: str) -> None:
    """Each of the three must be there, once, and with something in it."""
    without, twice = vector_headers(), vector_headers()
    del without[name]
    twice.add(name.upper(), twice[name])

    assert (name, "is missing") == (rejection(given=without).field, rejection(given=without).reason)
    assert (name, "is there twice") == (rejection(given=twice).field, rejection(given=twice).reason)
    assert rejection(given=vector_headers(**{name.removeprefix("webhook-"): ""})).field == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("timestamp", each)
            for each in ("now", "-1", "1e9", "1.5", "0x5", " 1", "1\n", "9" * 12, "9" * 5000, str(SENT * 1000), ARABIC)
        ),
        *(("id", each) for each in ("a b", "é", "a\n", "\ud800", "x" * 257)),
        *(
            ("signature", each)
            for each in ("v1,", "v1", ",", "é", "v1,é", "v1,\ud800", "v1,=", "v1,A", "v1a,AAAA", "v1;AAAA", "V1,AAAA")
        ),
    ],
)
def test_hostile_headers(name: str, value: str) -> None:
    """Non-ASCII, bad base64 and numbers that are none are no error of Python's; the header is named."""
    assert f"webhook-{name}" == rejection(given=vector_headers(**{name: value})).field


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (SENT + 301, "webhook-timestamp is 301 seconds ago: more than notification.tolerance, 300"),
        (SENT - 301, "webhook-timestamp is 301 seconds ahead of this machine's clock: more than"),
    ],
)
def test_window(now: int, words: str) -> None:
    """Too old and too new are both refused, and the error says which: a recorded notification is worthless later."""
    check_vector(now=SENT - 300)
    check_vector(now=SENT + 300)

    assert words in str(rejection(now=now))


@pytest.mark.parametrize("length", [24, 25, 32, 64, 65, 200])
def test_whole_keys(length: int) -> None:
    """The scheme's keys have 24 bytes or more; with and without prefix and padding all of them are taken."""
    key = base64.b64encode(bytes(length)).decode()

    check_secrets([Secret(f"whsec_{key}"), Secret(key), Secret(key.rstrip("="))])


@pytest.mark.parametrize(
    "key",
    [
        *("whsec_", "whsec_é", "whsec_a b c", "not base64!", "whsk_AAAA", "="),
        *("foo", SECRET[:-1], SECRET[:-2], SECRET[6:-1], f"whsec_{base64.b64encode(bytes(23)).decode()}"),
    ],
)
def test_what_is_no_key(key: str) -> None:
    """A key that is none, or not whole, is refused before anything is looked at, and not shown."""
    with pytest.raises(
        ConfigurationError, match=r"credentials.notification_keys: key 2 must be whsec_ and base64"
    ) as bad:
        check_secrets([Secret(SECRET), Secret(key)])

    assert "credentials.notification_keys" == bad.value.field
    assert key not in str(bad.value).replace("whsec_ and", "") or key == "="


def test_no_key() -> None:
    """Without a key nothing could verify; the error names the variable that holds it."""
    with pytest.raises(ConfigurationError, match="PAYASYNC_NOTIFICATION_KEYS"):
        check_secrets([])


class Counted(Secret):
    """A key that counts how often somebody computes with it."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.times = 0

    def reveal(self) -> str:
        """Return the text, and count."""
        self.times += 1
        return super().reveal()


def test_many_signatures_cost_no_more_than_one() -> None:
    """A header full of them makes nobody compute more: a body is signed once by each key."""
    key = Counted(SECRET)
    many = " ".join(f"v1,{base64.b64encode(secrets.token_bytes(32)).decode()}" for _ in range(150))
    check_webhook(VECTOR, vector_headers(f"{many} {SIGNATURE}"), keys=[key], tolerance=300, now=SENT)

    assert 1 == key.times


EVENTS_KEYS: Final = Credentials("M1", service_keys="service key number 1")
EVENTS_SHAPE: Final = NotificationShape(
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
EVENTS_SCHEME: Final = SortedPairs(algorithm="hmac-sha256", encoding="hex", exclude=("sign", "type"))
EVENTS: Final = Profile(
    notification=EVENTS_SHAPE,
    signature=EVENTS_SCHEME,
    answer=AnswerShape(payment_id="pay", order_status="state"),
    states=States(order={"paid": ["PAID"], "closed": ["SHUT"]}),
)
FLAT_EVENTS: Final = evolve(
    EVENTS, notification=evolve(EVENTS_SHAPE, data="", signature="sign", kind="data.event", time="at")
)
EVENT: Final = {"no": "7", "state": "SHUT", "amt": 450, "at": NOW, "empty": ""}


def event_signature(fields: Mapping[str, Any]) -> str:
    """Return the signature of a payload, made by a few lines of this test's own."""
    signed = sorted((name, text) for name, value in fields.items() if (text := str(value)) and name != "type")
    text = "&".join(f"{name}={text}" for name, text in signed)
    return hmac.new(b"service key number 1", text.encode(), hashlib.sha256).hexdigest()


def genuine(data: Mapping[str, Any] = EVENT) -> dict[str, Any]:
    """Return a payload as the service signs it."""
    return {**data, "sign": event_signature(data)}


def believed(document: object, profile: Profile = EVENTS, kind: str | None = "payment") -> Notification:
    """Return a notification that is believed."""
    raw = json.dumps(document).encode()
    found = verify(raw, {}, profile=profile, credentials=EVENTS_KEYS, kind=kind, clock=lambda: NOW)
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
    own = SignedFields("data", "sign", SortedPairs(exclude=("sign", "type"), nested="json"))
    schemes = [EVENTS_SCHEME, evolve(EVENTS_SCHEME, nested="json"), evolve(EVENTS_SCHEME, nested="omit")]
    found = [notification_coverage(evolve(EVENTS, signature=scheme)) for scheme in schemes]

    assert [flat, nested, omitted] == [each.covers(path) for each in found if each]
    assert nested is own.covers(path)


@pytest.mark.parametrize("event", ["PAID", "BACK", "OTHER", None])
def test_event_that_nobody_signed(event: str | None) -> None:
    """Anybody could name another one beside a genuine payload: like an address it says the kind, and no more."""
    found = believed({"event": event, "data": genuine()}, kind=None)

    assert ({"PAID": "payment", "BACK": "refund"}.get(str(event)), None) == (found.kind, found.event)
    assert ("closed" if event == "PAID" else None) == found.state


def test_event_that_is_signed() -> None:
    """A signed event decides the kind, and `notification.event` has its name."""
    inside = evolve(EVENTS, notification=evolve(EVENTS_SHAPE, kind="data.event"))
    found = believed({"data": genuine({**EVENT, "event": "SHUT"})}, inside, kind=None)

    assert ("payment", "SHUT") == (found.kind, found.event)


def test_object_that_is_left_out_of_what_is_signed() -> None:
    """Where objects are omitted, or a name is excluded, a forged one is no part of the payload; the bytes have it."""
    omit = evolve(FLAT_EVENTS, signature=evolve(EVENTS_SCHEME, nested="omit"))
    found = believed({**genuine(), "order": {"no": "8"}, "list": [1], "type": "x"}, omit)

    assert genuine() == found.data == found.trusted
    assert ("7", 'payment:["7","SHUT"]') == (found.out_trade_no, found.dedup_key)
    assert found.document == json.loads(found.raw) == {**found.data, "order": {"no": "8"}, "list": [1], "type": "x"}


def test_numbers_are_read_of_what_is_signed() -> None:
    """Answers' paths lead into it, too: what the service calls a payment may stand in an object that nobody signed."""
    omit = evolve(FLAT_EVENTS, signature=evolve(EVENTS_SCHEME, nested="omit"))
    deep = evolve(omit, answer=AnswerShape(payment_id="order.pay", order_status="order.state"))
    found = believed({**genuine(), "order": {"pay": "P1", "state": "PAID"}}, deep)

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
    profile = EVENTS if identified else evolve(EVENTS, notification=evolve(EVENTS_SHAPE, id={}))
    first, data = believed({"data": genuine()}, profile), genuine()
    forged = {**data, **dict(retyped), **emptied, "type": kind}
    again = believed({**beside, "data": forged}, profile)

    def facts(each: Notification) -> tuple[object, ...]:
        return each.dedup_key, each.digest, each.kind, each.event, each.out_trade_no, each.out_refund_no, each.state

    assert facts(first) == facts(again)
    assert identified is not first.weak


@pytest.mark.parametrize("skip_null", [True, False])
def test_values_of_other_types_are_one_event(*, skip_null: bool) -> None:
    """Who writes the text of a null, of true or of a number in its place makes no second event: it is signed alike."""
    scheme = evolve(EVENTS_SCHEME, skip_null=skip_null, booleans="json", numbers="text")
    weak = evolve(EVENTS, notification=evolve(EVENTS_SHAPE, id={}), signature=scheme)
    plain = {**EVENT, "vip": "true", "new": "false", "rate": "1.10"} | ({} if skip_null else {"note": "null"})
    signed = json.dumps({"data": genuine(plain)})
    typed = signed.replace('"true"', "true").replace('"false"', "false").replace('"1.10"', "1.10")
    typed = typed.replace('{"no"', '{"note": null, "no"') if skip_null else typed.replace('"null"', "null")
    events = [
        verify(each.encode(), {}, profile=weak, credentials=EVENTS_KEYS, kind="payment", clock=lambda: NOW)
        for each in (signed, typed, typed.replace("1.10", '"1.10"'))
    ]

    assert typed != signed
    assert 1 == len({each.dedup_key for each in events})
    assert (True, 1.1, float) == (events[1].data["vip"], events[1].data["rate"], type(events[1].data["rate"]))


def test_other_values_are_other_events() -> None:
    """What the signature tells apart stays apart."""
    weak = evolve(EVENTS, notification=evolve(EVENTS_SHAPE, id={}))
    changes: list[dict[str, Any]] = [{}, {"amt": 451}, {"amt": "0450"}, {"empty": " "}, {"more": "0"}]

    assert 5 == len({believed({"data": genuine({**EVENT, **change})}, weak).dedup_key for change in changes})


@pytest.mark.parametrize(
    ("shape", "scheme", "point"),
    [
        (evolve(EVENTS_SHAPE, signature="seal.sign"), EVENTS_SCHEME, "notification.data"),
        (evolve(EVENTS_SHAPE, data=""), EVENTS_SCHEME, "notification.data"),
        (evolve(EVENTS_SHAPE, signature="sign", time=""), evolve(EVENTS_SCHEME, nested="omit"), "notification.data"),
        (evolve(EVENTS_SHAPE, signature="sign"), evolve(EVENTS_SCHEME, exclude=("sign", "data")), "notification.data"),
        (
            evolve(EVENTS_SHAPE, out_trade_no="order.no"),
            evolve(EVENTS_SCHEME, nested="omit"),
            "notification.out_trade_no",
        ),
        (evolve(EVENTS_SHAPE, out_refund_no="sign"), EVENTS_SCHEME, "notification.out_refund_no"),
        (evolve(EVENTS_SHAPE, subscription_id="type"), EVENTS_SCHEME, "notification.subscription_id"),
        (evolve(EVENTS_SHAPE, id={"refund": ["back", "type"]}), EVENTS_SCHEME, "notification.id.refund"),
    ],
)
def test_what_would_be_believed_unsigned(shape: NotificationShape, scheme: SortedPairs, point: str) -> None:
    """Anybody could write his own beside a genuine signature: who would believe it is refused as it is made."""
    profile = evolve(EVENTS, notification=shape, signature=scheme)
    with pytest.raises(ConfigurationError, match="does not cover") as refused:
        verification_of(profile, EVENTS_KEYS)

    assert point == refused.value.field
    check_covered(evolve(profile, notification=evolve(shape, verification="none")))
    assert verification_of(profile, EVENTS_KEYS, lambda _raw, _headers: True).proves


def test_time_that_nobody_signed() -> None:
    """It is better than none: what comes late by itself is refused. It names no event, so that a new one makes none."""
    beside = evolve(EVENTS, notification=evolve(EVENTS_SHAPE, time="at", id={}))
    found = [believed({"at": at, "data": genuine()}, beside) for at in (NOW, NOW - 9)]

    assert found[0].dedup_key == found[1].dedup_key
    with pytest.raises(InvalidSignatureError, match="at "):
        believed({"at": NOW - 301, "data": genuine()}, beside)


def test_verifier_covers_all() -> None:
    """A function gets every byte: nothing of what it calls true is left out."""
    found = verify(
        b'{"event":"PAID","data":{"no":"7","type":"x"}}',
        {},
        profile=EVENTS,
        credentials=EVENTS_KEYS,
        verifier=lambda _raw, _headers: True,
    )

    assert ("payment", "PAID", {"no": "7", "type": "x"}) == (found.kind, found.event, found.data)


SHARED_KEY: Final = "a key that both sides have"
SHARED_KEYS: Final = Credentials("M1", signing_key=SHARED_KEY)
SHARED_SHAPE: Final = NotificationShape(
    verification="body", signature="sign", out_trade_no="outTradeNo", out_refund_no="outRefundNo", ack_status=200
)
SHARED_BARE: Final = Profile(signature=SortedPairs(algorithm="hmac-sha256", encoding="hex"), notification=SHARED_SHAPE)
"""Nothing inside the signature is the service's alone."""
SHARED: Final = evolve(
    SHARED_BARE, answer=AnswerShape(refund_status="refundStatus"), states=States(refund={"succeeded": ("SUCCESS",)})
)
REFUND: Final = {"outRefundNo": "R1", "outTradeNo": "T1", "refundAmt": 200, "refundStatus": "SUCCESS"}


def share_signed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields with their signature, made by a few lines of this test's own."""
    text = "&".join(f"{name}={fields[name]}" for name in sorted(fields))
    return {**fields, "sign": hmac.new(SHARED_KEY.encode(), text.encode(), hashlib.sha256).hexdigest()}


async def requests_of(profile: Profile) -> list[dict[str, Any]]:
    """Return the bodies of signed requests, as a server has seen them that knows no key."""
    with Recorder([answer(200, b"{}")] * 2) as service:
        async with Session(service.url, credentials=SHARED_KEYS, profile=profile) as pay:
            await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1", notify_url="https://a.example/n")
            await pay.refunds.create(
                out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200, refund_desc="late"
            )
        return [json.loads(each.body) for each in service.requests]


async def received(profile: Profile, folder: Path, *documents: Any) -> tuple[list[int], list[Notification]]:
    """Return a receiver's responses to bodies at the address for refunds, and what its handlers get."""
    got = list[Notification]()
    async with Receiver(inbox=SqliteInbox(folder / "inbox.db"), profile=profile, credentials=SHARED_KEYS) as receiver:

        @receiver.on("*")
        async def handle(notification: Notification) -> None:
            got.append(notification)

        answers = [await receiver.receive(json.dumps(document).encode(), {}, "refund") for document in documents]
        await receiver.settle()
    return [each.status for each in answers], got


@pytest.mark.parametrize("place", ["", "data"])
async def test_request_sent_back_is_no_notification(place: str, tmp_path: Path) -> None:
    """Who saw a request, or the log that holds it, has the signature of a body; a genuine one is still handled."""
    shape = evolve(SHARED_SHAPE, data=place, signature="data.sign" if place else "sign")
    bodies = [
        *await requests_of(SHARED),
        share_signed(REFUND),
        share_signed({**REFUND, "nonceStr": "a nonce of a request"}),
    ]
    documents = [{"data": body} if place else body for body in bodies]
    statuses, got = await received(evolve(SHARED, notification=shape), tmp_path, *documents)

    assert [400, 400, 200, 200] == statuses
    assert {("R1", "succeeded", True)} == {(each.out_refund_no, each.state, each.verified) for each in got}


@pytest.mark.parametrize(
    ("changes", "genuine", "other"),
    [
        ({"kind": "what", "kinds": {"refund": ["refund.done"]}}, {"what": "refund.done"}, {"what": "refund.else"}),
        ({"time": "at", "tolerance": 10**9}, {"at": 1_800_000_000}, {"at": "soon"}),
        ({}, {"refundStatus": "SUCCESS"}, {"refundStatus": "LATE"}),
    ],
)
async def test_what_shows_that_the_service_made_it(
    changes: dict[str, Any], genuine: dict[str, Any], other: dict[str, Any], tmp_path: Path
) -> None:
    """An event that the profile knows, or a time, inside the signature; another event, or no time, shows nothing."""
    profile = evolve(SHARED if not changes else SHARED_BARE, notification=evolve(SHARED_SHAPE, **changes))
    bodies = [share_signed({"outRefundNo": "R1", **more}) for more in (genuine, other, {})]
    statuses, got = await received(profile, tmp_path, *bodies)

    assert ([200, 400, 400], ["R1"]) == (statuses, [each.out_refund_no for each in got])


@pytest.mark.parametrize(
    ("changes", "arguments"),
    [
        ({}, {"refund_desc": "late&refundStatus=SUCCESS"}),
        ({}, {"extra": {"refundStatus": "SUCCESS"}}),
        ({"time": "time", "tolerance": 10**9}, {"refund_desc": "late&time=1800000000"}),
    ],
)
async def test_request_that_could_be_posted_as_a_notification_is_not_sent(
    changes: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """One key signs both, so no signed request may say, even inside a text, what shows that the service made it."""
    profile = evolve(SHARED, notification=evolve(SHARED_SHAPE, **changes))
    with Recorder() as service:
        async with Session(service.url, credentials=SHARED_KEYS, profile=profile) as pay:
            with pytest.raises(InvalidArgumentError, match=r"sent back|no request may say"):
                await pay.refunds.create(
                    out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200, **arguments
                )

    assert [] == service.requests


TOLD: Final[dict[str, Any]] = {
    "money": 200,
    "outRefundNo": "R1",
    "outTradeNo": "T1",
    "payNo": "P1",
    "period": 7,
    "refundStatus": "SUCCESS",
    "subNo": "S1",
    "time": 1_800_000_000,
    "totalAmt": 450,
    "what": "refund.done",
}
"""All that may be read of a notification, in the order in which it is signed."""


@pytest.mark.parametrize("place", ["", "data"])
@pytest.mark.parametrize("name", TOLD)
def test_field_that_is_hidden_in_a_text_of_a_notification(name: str, place: str) -> None:
    """A refund's number that is moved into a text would make the refund's notification one of the order, and so on."""
    root = f"{place}." if place else ""
    shape = evolve(
        SHARED_SHAPE,
        data=place,
        signature=f"{root}sign",
        kind=f"{root}what",
        kinds={"refund": ["refund.done"]},
        time=f"{root}time",
        tolerance=10**9,
        subscription_id="subNo",
        id={"refund": ["period"]},
    )
    profile = evolve(SHARED, notification=shape, answer=evolve(SHARED.answer, payment_id="payNo", refund_amt="money"))
    text = {"body": f"Coffee&{name}={TOLD[name]}"}
    hidden = share_signed(text | {each: told for each, told in TOLD.items() if each > name})
    genuine = share_signed(text | TOLD)

    def verified(fields: dict[str, Any]) -> Notification:
        body = json.dumps({place: fields} if place else fields)
        return verify(body.encode(), {}, profile=profile, credentials=SHARED_KEYS)

    assert "R1" == verified(genuine).out_refund_no
    with pytest.raises(InvalidSignatureError, match=f"could have hidden {name} there"):
        verified(hidden)


async def test_object_that_is_hidden_in_a_text_of_a_notification(tmp_path: Path) -> None:
    """If nested values are signed as JSON, the payload as a text has the same signature, and payasync reads nothing."""
    scheme = SortedPairs(algorithm="hmac-sha256", encoding="hex", nested="json")
    shape = evolve(SHARED_SHAPE, data="data", kind="what", kinds={"refund": ["refund.done"]})
    told = {"data": '{"outRefundNo":"R1"}', "what": "refund.done"}
    text = share_signed(told)
    profile = evolve(SHARED, signature=scheme, notification=shape)
    statuses, got = await received(profile, tmp_path, {**text, "data": {"outRefundNo": "R1"}}, text)

    assert ([200, 400], ["R1"]) == (statuses, [each.out_refund_no for each in got])


@pytest.mark.parametrize(
    "profile",
    [
        SHARED_BARE,
        evolve(SHARED_BARE, notification=evolve(SHARED_SHAPE, kind="what")),
        evolve(SHARED_BARE, answer=AnswerShape(refund_status="refundStatus")),
        evolve(SHARED, constants={"refunds.create": {"refundStatus": "SUCCESS"}}),
        evolve(SHARED, accept=Accept(required={"refunds.create": ["refundStatus"]})),
        evolve(SHARED, refund_status=Parameter("refundStatus")),
        evolve(SHARED, answer=AnswerShape(refund_status="refundDesc")),
        evolve(SHARED_BARE, notification=evolve(SHARED_SHAPE, time="nonceStr")),
        evolve(SHARED_BARE, notification=evolve(SHARED_SHAPE, data="data", signature="data.sign", time="at")),
    ],
)
def test_profile_by_which_nobody_could_tell(profile: Profile, tmp_path: Path) -> None:
    """Where requests have each such field, or no signature covers it, no receiver is made; it says what to add."""
    with pytest.raises(ConfigurationError, match="name nothing inside the signature") as refused:
        Receiver(inbox=SqliteInbox(tmp_path / "inbox.db"), profile=profile, credentials=SHARED_KEYS)

    assert "credentials.service_keys" in str(refused.value)
    for service in ([SHARED_KEY], ["another key", SHARED_KEY]):
        with pytest.raises(ConfigurationError):
            verification_of(profile, Credentials("M1", signing_key=SHARED_KEY, service_keys=service))
    assert verification_of(profile, Credentials("M1", signing_key=SHARED_KEY, service_keys="another key")).proves
    assert verification_of(profile, SHARED_KEYS, lambda _raw, _headers: True).proves


class OneKey:
    """A scheme of the merchant's own."""

    def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> str:  # noqa: ARG002 - the shape of a scheme
        """Return a signature."""
        return key.reveal()

    def verify(self, fields: Mapping[str, Any], signature: str, *, path: str, key: Secret) -> bool:  # noqa: ARG002
        """Return whether it is right."""
        return signature == key.reveal()


class Symmetric(OneKey):
    """It says that one key does both."""

    symmetric = True


class Named(OneKey):
    """What it calls a key is the name of a pair."""

    symmetric = False


@pytest.mark.parametrize(("scheme", "refused"), [(OneKey(), True), (Symmetric(), True), (Named(), False)])
def test_scheme_of_ones_own_with_one_key(scheme: OneKey, *, refused: bool) -> None:
    """One key on both sides signs on both, unless the scheme says that it does not."""
    keys = Credentials("M1", signing_key=SHARED_KEY, service_keys=SHARED_KEY)
    if refused:
        with pytest.raises(ConfigurationError):
            verification_of(evolve(SHARED_BARE, signature=scheme), keys)
    else:
        assert verification_of(evolve(SHARED_BARE, signature=scheme), keys).proves


CANARY_SHAPE: Final = NotificationShape(verification="body", signature="sign")
CANARY_BODY: Final = Profile(notification=CANARY_SHAPE, signature=SortedPairs(algorithm="hmac-sha256", encoding="hex"))
MD5: Final = evolve(CANARY_BODY, signature=SortedPairs(algorithm="md5", encoding="hex", key_param="key"))
PUBLIC: Final = evolve(CANARY_BODY, signature=SortedPairs(algorithm="ed25519", encoding="hex"))
CANARY_HEADERS: Final = {"webhook-id": "m1", "webhook-timestamp": str(NOW), "webhook-signature": "v1,AAAA"}


def look(profile: Profile, raw: bytes = b'{"sign":"00"}', credentials: Credentials | None = None) -> Any:
    """Verify what is not the service's."""
    return verify(raw, CANARY_HEADERS, profile=profile, credentials=credentials or keys(), clock=lambda: NOW)


def sign(profile: Profile, data: Any) -> Any:
    """Sign what cannot be signed."""
    return sign_notification(data, profile=profile, credentials=keys())


FAILING: Final[dict[str, Callable[[], Any]]] = {
    "headers": lambda: look(PROFILE),
    "body": lambda: look(CANARY_BODY),
    "key in the text": lambda: look(MD5),
    "no signature": lambda: look(MD5, b"{}"),
    "not JSON": lambda: look(MD5, b"{"),
    "no public key": lambda: look(PUBLIC),
    "no webhook key": lambda: look(PROFILE, credentials=keys(notification_keys=f"{CANARIES['notification_keys']}!")),
    "unsignable": lambda: sign(MD5, {"amount": 1.5}),
    "no private key": lambda: sign(PUBLIC, {"amount": 1}),
    "no payload": lambda: sign(PROFILE, None),
}


@pytest.mark.parametrize("failing", FAILING.values(), ids=FAILING)
def test_no_error_shows_a_key(failing: Callable[[], Any]) -> None:
    """Neither a key nor its bytes are in the words, the facts, the pickle or the local variables of an error."""
    with pytest.raises(PayasyncError) as refused:
        failing()
    texts = written(refused.value)
    decoded = base64.b64decode(CANARIES["notification_keys"].removeprefix("whsec_"))

    assert [] == singing(texts)
    assert [] == [name for name, text in texts.items() if repr(decoded)[2:12] in text]


@pytest.mark.parametrize("profile", [PROFILE, CANARY_BODY, MD5], ids=["headers", "body", "key in the text"])
def test_what_verifies_shows_no_key(profile: Profile) -> None:
    """What a receiver holds is masked, as credentials are."""
    verification = verification_of(profile, keys())

    assert [] == singing({"repr": repr(verification), "words": verification.checks})
