"""Whether a notification is from the service, in each way that a profile can say it."""

import hashlib
import hmac
import json
import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve
from hypothesis import example, given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from payasync import Credentials, Secret, SortedPairs
from payasync.errors import (
    ConfigurationError,
    InvalidArgumentError,
    InvalidSignatureError,
    NotConfiguredError,
    PayasyncError,
)
from payasync.notifications.notification import Notification
from payasync.notifications.verification import MISMATCH, check_window, parse_time, verification_of, verify
from payasync.profile.profile import Profile
from payasync.profile.schema import NotificationShape
from payasync.sandbox import PROFILE, Sandbox
from tests.foreign.signatures import hmac_sha256, rsa_keys, rsa_sha256
from tests.scrambled import scrambled

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
    assert "is no text" == refusal({"data": {**DATA, "sign": given}}).reason


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


def test_name_that_stands_twice() -> None:
    """A signed field and another of the same name: nobody could say which of the two was signed."""
    good = json.dumps(signed()).encode()
    twice = good.replace(b'"amt"', b'"amt": 1, "amt"')
    verify(good, {}, profile=BODY, credentials=CREDENTIALS, clock=lambda: NOW)

    with pytest.raises(InvalidArgumentError):
        verify(twice, {}, profile=BODY, credentials=CREDENTIALS, clock=lambda: NOW)


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


def test_merchants_own_key() -> None:
    """A symmetric scheme needs no key of the service's: it is the merchant's own, where no other is given."""
    own = Credentials("M1", signing_key="own signing key 1")

    assert judged(signed("own signing key 1"), keys=own).verified


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


def test_longest_body() -> None:
    """A body is measured before anything else."""
    with pytest.raises(InvalidArgumentError, match="3 bytes long at most"):
        verify(b"{  }", {}, profile=PROFILE, credentials=CREDENTIALS, max_bytes=3)


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


@pytest.mark.parametrize("seed", [None, 0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))])
async def test_what_the_sandbox_sends(seed: int | None) -> None:
    """In any dialect, what the sandbox signs with its own code we verify; with one byte more we do not."""
    profile = PROFILE if seed is None else scrambled(seed)
    async with Sandbox(profile, clock="frozen") as sandbox, sandbox.receiver() as shop, sandbox.session() as pay:
        await pay.orders.place(
            total_amt=450,
            currency="CAD",
            subject="Tea",
            scene_type="JSAPI",
            notify_url=shop.url,
            out_trade_no="TRADE1",
        )
        await sandbox.customer.authorize("TRADE1")
        sent = await shop.next()
    body, keys = sent.body.encode(), sandbox.credentials
    told = verify(body, sent.headers, profile=profile, credentials=keys)

    assert (True, "TRADE1") == (told.verified, told.out_trade_no)
    with pytest.raises(InvalidSignatureError):
        verify(body.replace(b"TRADE1", b"TRADE2"), sent.headers, profile=profile, credentials=keys)


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


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (NOW - 301, "at is 301 seconds ago: more than notification.tolerance, 300"),
        (NOW + 301, "at is 301 seconds ahead of this machine's clock: more than notification.tolerance, 300"),
        (math.nan, "more than"),
    ],
)
def test_outside_the_window(sent: float, words: str) -> None:
    """Too old and from the future are refused alike, each in words that say which."""
    with pytest.raises(InvalidSignatureError, match=words) as refused:
        check_window("at", sent, NOW, 300)

    assert "at" == refused.value.field
    assert str(refused.value.reason) in str(refused.value)
