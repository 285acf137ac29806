"""Standard Webhooks: what the scheme's own package signs we verify, and the other way round."""

import base64
import json
import secrets
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from standardwebhooks import Webhook, WebhookVerificationError

from payasync.credentials import Secret
from payasync.errors import ConfigurationError, InvalidSignatureError
from payasync.notifications.verification import check_secrets, check_webhook, sign_webhook

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLDER: Final = "whsec_" + base64.b64encode(b"an older key, 24 bytes..").decode()
BODY: Final = b'{"test": 2432232314}'
NUMBER: Final = "msg_p5jXN8AQM9LWM0D4loKWxJek"
SENT: Final = 1614265330
SIGNATURE: Final = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
"""The published vector of the scheme."""
ARABIC: Final = "".join(chr(0x0660 + int(digit)) for digit in str(SENT))
"""The digits of another script, which Python reads as a number, too."""


def headers(signature: str = SIGNATURE, **others: str) -> CIMultiDict[str]:
    """Return the headers of the published vector, with others in their place."""
    given = {"webhook-id": NUMBER, "webhook-timestamp": str(SENT), "webhook-signature": signature}
    return CIMultiDict({**given, **{f"webhook-{name}": value for name, value in others.items()}})


def verify(body: bytes = BODY, given: CIMultiDict[str] | None = None, now: float = SENT, *keys: str) -> None:
    """Check a notification with these keys."""
    held = [Secret(key) for key in keys or (SECRET,)]
    check_webhook(body, headers() if given is None else given, keys=held, tolerance=300, now=now)


def refused(**facts: Any) -> InvalidSignatureError:
    """Return the error with which a notification is refused."""
    with pytest.raises(InvalidSignatureError) as error:
        verify(**facts)
    return error.value


def test_published_vector() -> None:
    """The vector that every implementation of the scheme has in its tests: verified, and signed the same."""
    verify()

    assert SIGNATURE == sign_webhook(BODY, number=NUMBER, sent=SENT, key=Secret(SECRET))


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

    verify(body.encode(), headers(signature, id=number), SENT, secret)
    assert refused(body=body.encode() + b" ", given=headers(signature, id=number)).field == "webhook-signature"


@given(body=st.text(st.characters(codec="utf-8"), max_size=20), key=st.binary(min_size=1, max_size=70))
def test_foreign_verification(body: str, key: bytes) -> None:
    """What we sign the package verifies, and refuses with another body."""
    secret, now = f"whsec_{base64.b64encode(key).decode()}", int(datetime.now(UTC).timestamp())
    signature = sign_webhook(body.encode(), number=NUMBER, sent=now, key=Secret(secret))
    given = dict(headers(signature, timestamp=str(now)))

    Webhook(secret).verify(body, given, json_parse=False)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(f"{body} ", given, json_parse=False)


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
    verify(given=headers(signature))


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
    assert "webhook-signature" == refused(given=headers(signature)).field


def test_several_keys() -> None:
    """While keys rotate, any of them verifies."""
    verify(BODY, None, SENT, OLDER, SECRET)
    verify(BODY, None, SENT, SECRET, OLDER)

    with pytest.raises(InvalidSignatureError, match="is not that of the body, by any of the keys"):
        verify(BODY, None, SENT, OLDER)


@pytest.mark.parametrize("secret", [SECRET.removeprefix("whsec_"), f" {SECRET}\n"])
def test_forms_of_a_key(secret: str) -> None:
    """With or without its prefix, and with the line end of a file."""
    verify(BODY, None, SENT, secret)


def test_key_without_its_padding() -> None:
    """As the package does it: some services cut it off."""
    secret = f"whsec_{base64.b64encode(b'12345').decode().rstrip('=')}"
    signature = Webhook(secret).sign(NUMBER, datetime.fromtimestamp(SENT, UTC), BODY.decode())

    verify(BODY, headers(signature), SENT, secret)


CHANGED: Final = {
    "body": (BODY.replace(b"4", b"5"), headers()),
    "order of names": (b" " + BODY, headers()),
    "id": (BODY, headers(id="msg_2")),
    "timestamp": (BODY, headers(timestamp=str(SENT + 1))),
    "timestamp with a zero": (BODY, headers(timestamp=f"0{SENT}")),
    "signature": (BODY, headers(SIGNATURE.replace("g0", "g1"))),
    "id with the timestamp": (BODY, headers(id=f"{NUMBER}.{SENT}")),
}


@pytest.mark.parametrize(("body", "given"), CHANGED.values(), ids=CHANGED)
def test_everything_is_signed(body: bytes, given: CIMultiDict[str]) -> None:
    """With another id, time or body, nothing verifies."""
    assert "webhook-signature" == refused(body=body, given=given).field


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_missing_headers(name: str) -> None:
    """Each of the three must be there, once, and with something in it."""
    without, twice = headers(), headers()
    del without[name]
    twice.add(name.upper(), twice[name])

    assert (name, "is missing") == (refused(given=without).field, refused(given=without).reason)
    assert (name, "stands there twice") == (refused(given=twice).field, refused(given=twice).reason)
    assert refused(given=headers(**{name.removeprefix("webhook-"): ""})).field == name


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
    assert f"webhook-{name}" == refused(given=headers(**{name: value})).field


@pytest.mark.parametrize(
    ("now", "passes"), [(SENT - 301, False), (SENT - 300, True), (SENT + 300, True), (SENT + 301, False)]
)
def test_window(now: int, *, passes: bool) -> None:
    """Too old and too new are both refused: nothing that somebody kept is played again later."""
    if passes:
        verify(now=now)
    else:
        assert "webhook-timestamp" == refused(now=now).field


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
    check_webhook(BODY, headers(f"{many} {SIGNATURE}"), keys=[key], tolerance=300, now=SENT)

    assert 1 == key.times
