"""Notifications for users' own tests, signed as the service would sign them."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve
from standardwebhooks import Webhook

from payasync import Credentials, Secret, SignedHeader, SortedPairs
from payasync.errors import ConfigurationError, InvalidArgumentError, InvalidSignatureError, NotConfiguredError
from payasync.notifications.verification import verify
from payasync.profile.profile import Profile
from payasync.profile.schema import NotificationShape
from payasync.sandbox import PROFILE
from payasync.sandbox.dialect import set_at
from payasync.testing import Signed, sign_notification
from tests.foreign.signatures import ed25519_keys, hmac_sha256, rsa_keys, signed_text
from tests.scrambled import scrambled

WHSEC: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
CREDENTIALS: Final = Credentials("M1", signing_key="own signing key 1", notification_keys=WHSEC)
NOW: Final = datetime(2027, 1, 15, 8, tzinfo=UTC)
SHAPE: Final = NotificationShape(
    verification="body",
    data="head.data",
    signature="head.data.sign",
    time="head.data.at",
    kind="event",
    kinds={"payment": ["PAID", "SHUT"]},
)
BODY: Final = Profile(notification=SHAPE, signature=SortedPairs(algorithm="hmac-sha256", encoding="hex"))
DATA: Final = {"no": "T1", "amt": 450}


def sign(data: Any = DATA, *, profile: Profile = BODY, credentials: Credentials = CREDENTIALS, **facts: Any) -> Signed:
    """Return a notification that is sent at a fixed time."""
    given: dict[str, Any] = {"time": NOW, **facts}
    return sign_notification(data, profile=profile, credentials=credentials, **given)


def document(**facts: Any) -> Any:
    """Return the JSON of a notification."""
    return json.loads(sign(**facts).raw)


def believed(signed: Signed, profile: Profile, credentials: Credentials = CREDENTIALS, **facts: Any) -> Any:
    """Verify a notification at that time, and return it."""
    now = NOW.timestamp()
    return verify(signed.raw, signed.headers, profile=profile, credentials=credentials, clock=lambda: now, **facts)


def test_signed_in_its_body() -> None:
    """Envelope, event, time and signature stand where the profile says; OpenSSL makes the same signature."""
    told = document(kind="payment")
    data = {**DATA, "at": "2027-01-15T08:00:00.000Z"}
    signature = hmac_sha256(signed_text(data), "own signing key 1")

    assert {"event": "PAID", "head": {"data": {**data, "sign": signature}}} == told


def test_signed_in_its_headers() -> None:
    """The Standard Webhooks package verifies the notification. A given id is used, and the time in whole seconds."""
    signed = sign(profile=PROFILE, kind="refund", time=None)
    again = sign(profile=PROFILE, kind="refund", time=None)
    given = sign(profile=PROFILE, id="msg_7", time=1_800_000_000.9).headers
    told = Webhook(WHSEC).verify(signed.raw, dict(signed.headers))

    assert (DATA, "refund.succeeded") == (told["data"], told["type"])
    assert "application/json" == signed.headers["Content-Type"]
    assert again.headers["webhook-id"] != signed.headers["webhook-id"]
    assert ("msg_7", "1800000000") == (given["webhook-id"], given["webhook-timestamp"])


def in_header(**changes: Any) -> Profile:
    """Return a profile whose notifications are signed in a header."""
    shape = evolve(SHAPE, **{"verification": "header", "signature": "", "time": "", **changes})
    return evolve(BODY, notification=shape)


ALL_IN_ONE: Final = SignedHeader(
    signature="X-Sign:v1", timestamp="X-Sign:t", nonce="X-Sign:n", text="{timestamp}\n{nonce}\n{body}", prefix="sha256="
)


def test_signed_in_a_header() -> None:
    """The signature stands in its header, with time, number and the event's name where the profile wants them."""
    bare = sign(profile=in_header(header=SignedHeader(signature="X-Signature")))
    signed = sign(profile=in_header(header=ALL_IN_ONE), id="n1", kind="payment")
    hexadecimal = hmac_sha256(f"{int(NOW.timestamp())}\nn1\n{signed.raw.decode()}", "own signing key 1")

    assert b'{"head":{"data":{"no":"T1","amt":450}}}' == bare.raw
    assert {
        "Content-Type": "application/json",
        "X-Signature": hmac_sha256(bare.raw.decode(), "own signing key 1"),
    } == bare.headers
    assert f"t=1800000000,n=n1,v1=sha256={hexadecimal}" == signed.headers["X-Sign"]
    assert believed(signed, in_header(header=ALL_IN_ONE)).verified
    named = sign(profile=in_header(header=ALL_IN_ONE, kind="header:X-Event"), kind="payment")
    assert ("PAID", {"head"}) == (named.headers["X-Event"], set(json.loads(named.raw)))


def test_time() -> None:
    """A time may be a datetime of any zone, or a number. Without one the payload's own stays.

    In a zone it is written as the service writes it: without an offset, but for an hour that comes a second time.
    """
    data = {**DATA, "at": 5}
    times: list[Any] = [NOW, NOW.astimezone(timezone(timedelta(hours=-5))), NOW.timestamp(), int(NOW.timestamp())]
    profile = evolve(BODY, notification=evolve(SHAPE, timezone="America/Toronto"))
    zoned = {
        "2027-01-15T08:00:00Z": "2027-01-15T03:00:00.000",
        "2026-11-01T05:30:00Z": "2026-11-01T01:30:00.000",
        "2026-11-01T06:30:00Z": "2026-11-01T01:30:00.000-05:00",
    }

    assert ["2027-01-15T08:00:00.000Z"] * 4 == [document(data=data, time=time)["head"]["data"]["at"] for time in times]
    assert 5 == document(data=data, time=None)["head"]["data"]["at"]
    for moment, written in zoned.items():
        given = {"profile": profile, "time": datetime.fromisoformat(moment)}

        assert written == document(**given)["head"]["data"]["at"]


def test_event() -> None:
    """`event` sets the event name; `kind` alone sets its first name; without both there is none."""
    assert ["SHUT", "SHUT", "PAID"] == [
        document(**facts)["event"]
        for facts in ({"event": "SHUT"}, {"event": "SHUT", "kind": "payment"}, {"kind": "payment"})
    ]
    assert {"head"} == set(document())


@pytest.mark.parametrize("seed", [None, *range(12)])
def test_in_any_dialect(seed: int | None, tmp_path: Path) -> None:
    """A receiver with the same profile and credentials accepts the notification, and refuses a changed one."""
    profile = PROFILE if seed is None else scrambled(seed)
    scheme = profile.signature
    key, keys = None, CREDENTIALS
    if profile.notification.verification == "body" and isinstance(scheme, SortedPairs) and not scheme.symmetric:
        private, public = (ed25519_keys if scheme.algorithm == "ed25519" else rsa_keys)(tmp_path)
        key, keys = Secret(private.read_text()), Credentials("M1", service_keys=public.read_text())
        profile = evolve(profile, signature=evolve(scheme, service_key="merchant"))
    data = dict[str, Any](DATA)
    # Where one key signs both ways, the state is what no request says.
    set_at(data, profile.answer.order_status, profile.states.order["paid"][0])
    signed = sign(data, profile=profile, credentials=keys, kind="payment", key=key)

    assert believed(signed, profile, keys).verified
    with pytest.raises(InvalidSignatureError):
        believed(evolve(signed, raw=signed.raw.replace(b"450", b"451")), profile, keys)


def test_not_signed_at_all() -> None:
    """If notifications are not signed, the notification is unsigned, too."""
    profile = evolve(BODY, notification=evolve(SHAPE, verification="none"))
    signed = sign(profile=profile)

    assert {"Content-Type": "application/json"} == signed.headers
    assert not believed(signed, profile).verified


def test_first_of_several_keys_signs() -> None:
    """If there are several keys, the first one signs, because it is the newest."""
    first, second = WHSEC, "whsec_" + "A" * 32
    keys = Credentials("M1", notification_keys=[first, second])
    signed = sign(profile=PROFILE, credentials=keys, id="m1")

    assert signed == sign(profile=PROFILE, credentials=keys, id="m1", key=first)
    assert signed != sign(profile=PROFILE, credentials=keys, id="m1", key=second)


class Own:
    """A merchant's own scheme."""

    def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> Any:
        """Return the fields' names, the path and the key as the signature."""
        return f"{sorted(fields)}{path}{key.reveal()}"

    def verify(self, fields: Mapping[str, Any], signature: str, *, path: str, key: Secret) -> bool:
        """Return whether a signature is correct."""
        return bool(signature == self.sign(fields, path=path, key=key))


def test_scheme_of_ones_own() -> None:
    """A merchant's own scheme signs the object without its signature, and an empty path."""
    keys = Credentials("M1", service_keys="service key number 0")
    profile = evolve(BODY, signature=Own())
    signed = sign({**DATA, "sign": "old"}, profile=profile, credentials=keys)

    assert "['amt', 'at', 'no']service key number 0" == json.loads(signed.raw)["head"]["data"]["sign"]
    assert believed(signed, profile, keys).verified


class Asynchronous(Own):
    """A scheme whose `sign` is a coroutine function."""

    async def sign(self, fields: Mapping[str, Any], *, path: str, key: Secret) -> str:
        """Sign nothing: nobody awaits it."""
        raise NotImplementedError(fields, path, key)


def test_scheme_must_be_a_plain_function() -> None:
    """A scheme that does not return a text is refused, and no coroutine is left behind."""
    scheme: Any = Asynchronous()
    with pytest.raises(ConfigurationError, match="plain function that returns a text") as refused:
        sign(profile=evolve(BODY, signature=scheme), credentials=Credentials("M1", service_keys="service key number 0"))

    assert "signature" == refused.value.field


NO_TIMES: Final = ("2027-01-15T08:00:00Z", True, -1, float("nan"), 1_800_000_000_000, datetime(2027, 1, 15))  # noqa: DTZ001 - bad
ED25519: Final = SortedPairs(algorithm="ed25519", encoding="hex")


def shaped(**changes: Any) -> dict[str, Any]:
    """Return a profile whose shape of notifications is changed."""
    return {"profile": evolve(BODY, notification=evolve(SHAPE, **changes))}


REFUSED: Final[list[tuple[dict[str, Any], type[ConfigurationError | InvalidArgumentError], str]]] = [
    *(({"data": data}, InvalidArgumentError, "data") for data in ([1], None, {"a": float("nan")}, {1: "a"})),
    ({"kind": "payments"}, InvalidArgumentError, "kind"),
    *(({"time": time}, InvalidArgumentError, "time") for time in NO_TIMES),
    *(({"profile": PROFILE, "id": name}, InvalidArgumentError, "id") for name in ("a b", "", "a\r\nb")),
    ({"data": {"amt": 4.5}}, InvalidArgumentError, "amt"),
    (shaped(time="head.data.no.at"), InvalidArgumentError, "data"),
    ({"profile": Profile()}, NotConfiguredError, "notification.verification"),
    (shaped(signature=""), NotConfiguredError, "notification.signature"),
    ({"profile": evolve(BODY, signature=None)}, NotConfiguredError, "signature"),
    ({"profile": evolve(BODY, signature=SortedPairs(encoding="hex"))}, NotConfiguredError, "signature.algorithm"),
    ({**shaped(kind=""), "event": "PAID"}, NotConfiguredError, "notification.kind"),
    ({"kind": "refund"}, NotConfiguredError, "notification.kinds.refund"),
    ({"credentials": Credentials("M1")}, ConfigurationError, "credentials.service_keys"),
    ({"credentials": Credentials("M1"), "profile": PROFILE}, ConfigurationError, "credentials.notification_keys"),
    ({"profile": evolve(BODY, signature=ED25519)}, ConfigurationError, "key"),
    ({"key": Secret("canary!"), "profile": PROFILE}, ConfigurationError, "credentials.notification_keys"),
]


def test_wrong_arguments() -> None:
    """An argument that could never be sent, a point that the profile leaves open, and a bad key are refused by name."""
    for facts, kind, field in REFUSED:
        with pytest.raises(kind) as refused:
            sign(**facts)

        error: Any = refused.value

        assert (kind, field) == (type(error), error.field)
        assert "canary" not in str(error)
