"""`payasync verify-notification`: whether a notification in a file is from the service."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve
from click.testing import CliRunner, Result

from payasync import Credentials
from payasync.cli.commands import payasync
from payasync.cli.verify_notification import LONGEST, HttpMessage
from payasync.errors import InvalidArgumentError
from payasync.notifications.verification import sign_webhook
from payasync.sandbox import PROFILE
from payasync.testing import Signed, sign_notification

WHSEC: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
CREDENTIALS: Final = Credentials("M1", notification_keys=WHSEC)
DATA: Final = {"outTradeNo": "T1", "status": "SBX_PAID"}
SENT: Final = "2027-01-15T08:00:00Z"
KEYS: Final = {"PAYASYNC_MERCHANT_ID": "M1", "PAYASYNC_NOTIFICATION_KEYS": WHSEC, "PAYASYNC_PROFILE": "sandbox"}
TOML: Final = """
[notification]
verification = "{}"
out_trade_no = "outTradeNo"
time = "timestamp"
data = "data"
signature = "sign"
[signature]
algorithm = "hmac-sha256"
encoding = "hex"
nested = "json"
"""


def signed(data: Mapping[str, Any] = DATA, **facts: Any) -> Signed:
    """Return a notification as the sandbox signs it."""
    given: dict[str, Any] = {"profile": PROFILE, "credentials": CREDENTIALS, "time": 1_800_000_000, **facts}
    return sign_notification(data, **given)


def message(notification: Signed, target: str = "/notify/payment") -> bytes:
    """Return a notification as `listen` stores it."""
    return HttpMessage(notification.raw, tuple(notification.headers.items()), target).to_bytes()


def run(*arguments: object, environ: Mapping[str, str | None] = {}, stdin: bytes = b"") -> Result:
    """Run the command, with its keys in the environment."""
    given = ["verify-notification", *map(str, arguments)]
    return CliRunner().invoke(payasync, given, env={**KEYS, **environ}, input=stdin)


def check(raw: bytes, *arguments: object, at: str = SENT, **environ: str | None) -> Result:
    """Check a notification from standard input, by default at the time at which it was sent."""
    return run("-", *(("--at", at) if at else ()), *arguments, environ=environ, stdin=raw)


PAID: Final = signed(kind="payment")
HEADERS: Final = [word for name, value in PAID.headers.items() for word in ("-H", f"{name.title()}:{value}")]


def facts(result: Result) -> dict[str, str]:
    """Return the lines that are shown below the verdict."""
    pairs = (line.strip().partition("  ") for line in result.output.splitlines()[1:])
    return {name: text.strip() for name, _, text in pairs}


def test_genuine() -> None:
    """For a genuine notification, the exit code is 0, and the output shows its facts and what was checked."""
    result = check(message(PAID), at="2027-01-15T08:02:00Z")

    assert (0, "genuine") == (result.exit_code, result.output.splitlines()[0])
    assert {
        "Kind": "payment",
        "Event": "payment.paid",
        "Order": "T1",
        "Key": 'payment:["T1","SBX_PAID"]',
        "Sent": SENT,
        "Age": "120 seconds",
        "Event time": "not found at timestamp",
        "Checked": "webhook-signature over the body, by 1 of your keys; webhook-timestamp within 300 seconds",
    } == facts(result)


def test_changed() -> None:
    """For a changed notification, the exit code is 1, and its facts are still shown."""
    result = check(message(PAID).replace(b'"T1"', b'"T2"'))
    why = "is not valid for the body with any of the keys: the body is not the one that was signed, or the key is wrong"

    assert (1, "T2") == (result.exit_code, facts(result)["Order"])
    assert f"not genuine: webhook-signature {why}" == result.output.splitlines()[0]


def test_late() -> None:
    """Without `--at`, the current time is used. For a late notification, the hint says how to check it."""
    result = check(message(PAID), at="")

    assert (3, 0) == (result.exit_code, check(message(signed(kind="payment", time=time.time())), at="").exit_code)
    assert result.output.startswith("genuine, but held: webhook-timestamp is ")
    assert facts(result)["hint"].endswith(f"add --at {SENT}")


def rewritten(notification: Signed) -> Signed:
    """Return a notification whose JSON was read and written again, with the same content in other bytes."""
    return evolve(notification, raw=json.dumps(json.loads(notification.raw), indent=1).encode())


REWRITTEN: Final = rewritten(PAID)


HINTS: Final[list[tuple[bytes, list[str], str | None]]] = [
    (PAID.raw, HEADERS, None),
    (PAID.raw, [], 'the file holds only the body: give each header with -H "name: value"'),
    (PAID.raw + b"\n", HEADERS, "the file ends with a line break; "),
    (message(PAID) + b"\n", [], None),
    (message(evolve(PAID, raw=b"{}\n")), [], "the signature covers the exact bytes: "),
    (message(REWRITTEN), [], "the signature covers the exact bytes: "),
    (message(REWRITTEN), ["-H", "webhook-signature: v2,AAAA"], ""),
    (message(PAID).replace(PAID.raw, REWRITTEN.raw), [], f"Content-Length is {len(PAID.raw)}, the file has "),
]


def test_hint() -> None:
    """If a notification is not genuine, the hint says what may have changed the body, or what is missing."""
    for raw, headers, hint in HINTS:
        result = check(raw, *headers)
        found = facts(result)

        assert (int(hint is not None), bool(hint)) == (result.exit_code, "hint" in found)
        assert found.get("hint", "").startswith(hint or "")
        assert raw.startswith(b"POST") or "T1" == found["Order"]


def test_several_files(tmp_path: Path) -> None:
    """Each file has a block under its name; the exit code is the highest."""
    kinds = {
        "genuine": (message(PAID), 0),
        "not genuine": (message(REWRITTEN), 1),
        "cannot tell": (b"", 2),
        "genuine, but held": (message(sealed(b"[]")), 3),
    }
    files = {verdict: tmp_path / verdict.replace(", ", "-") for verdict in kinds}
    for verdict, (raw, code) in kinds.items():
        files[verdict].write_bytes(raw)
        result = run(files["genuine"], files[verdict], "--at", SENT)
        blocks = [block.splitlines() for block in result.output.split("\n\n")]

        assert code == result.exit_code
        assert [str(files["genuine"]), str(files[verdict])] == [block[0] for block in blocks]
        assert ["genuine", verdict] == [block[1].partition(":")[0] for block in blocks]


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="there is no file that cannot be read")
def test_file_that_cannot_be_read() -> None:
    """An unreadable file is reported, and the other files are still checked."""
    result = run("/proc/self/mem", "-", "--at", SENT, stdin=message(PAID))

    assert 2 == result.exit_code
    assert "cannot tell: the file cannot be read: Input/output error" in result.output
    assert "-\ngenuine\n" in result.output


def test_kind_of_its_address() -> None:
    """The last part of the path gives the kind, as in a receiver, unless an option gives it."""
    wrong = (
        "/notify/refund",
        "/notify/refund?x=/payment",
        "/notify/refund/",
        "/notify/%72efund",
        "/notify --kind refund",
    )
    for asked in (*wrong, "/notify/refund --kind payment", "/notify/all"):
        target, *options = asked.split()
        result = check(message(PAID, target), *options)

        assert (3 if asked in wrong else 0) == result.exit_code
        assert (asked in wrong) is ("arrived at the address for refunds" in result.output)


def sealed(raw: bytes) -> Signed:
    """Return a notification with a valid signature over any bytes."""
    (key,) = CREDENTIALS.notification_keys
    signature = sign_webhook(raw, number="m1", sent=1_800_000_000, key=key)
    return Signed(raw, {"webhook-id": "m1", "webhook-timestamp": "1800000000", "webhook-signature": signature})


def test_unreadable_notification_is_held() -> None:
    """A genuine notification that is not a JSON object is held, without a traceback."""
    long, deep = b'{"type":"payment.paid","data":{"totalAmt":1e400}}', b'{"a":' * 33 + b"1" + b"}" * 33
    for raw in (b"", b"not JSON", b"[]", b'{"a":1,"a":2}', b"\xff" * 100, b"[" * 5000, long, deep):
        result = check(message(sealed(raw), "/"))

        assert 3 == result.exit_code
        assert result.output.startswith("genuine, but held: raw must be a JSON object")
        assert {"Checked"} == set(facts(result))


PAID_EVENT: Final = {"type": "payment.paid", "data": DATA}


def test_genuine_but_held(tmp_path: Path) -> None:
    """What a receiver holds, on arrival or later, is called genuine and held, with its reason and what can be read."""
    other, lacking = {**PAID_EVENT, "data": {**DATA, "merchantId": "M2"}}, {"type": "refund.failed", "data": DATA}
    number, hidden = ({**PAID_EVENT, "data": {**DATA, "outTradeNo": each}} for each in ("T.1", "T\n"))
    cases: list[tuple[Any, dict[str, Any], str, str | None]] = [
        (other, {}, "merchantId is 'M2', expected 'M1'", "T1"),
        (number, {}, "out_trade_no must be a number that", "T.1"),
        (hidden, {}, "out_trade_no must be a number that", None),
        (lacking, {"tells": {"payment": "status"}}, "kind: the notification holds", None),
        ({"type": "payment.paid", **DATA}, {}, "it lacks data, the payload", "T1"),
        (lacking, {}, "it lacks outRefundNo, the number of the refund", "T1"),
        ({**PAID_EVENT, "data": [DATA, DATA]}, {"data": "data.0"}, "data holds 2 entries", "T1"),
        (PAID_EVENT, {"must": {"livemode": True}}, "livemode is missing in the notification, and must be true", "T1"),
    ]
    for document, shape, why, shown in cases:
        file = tmp_path / "service.toml"
        notification = evolve(PROFILE.notification, **shape)
        file.write_text(evolve(PROFILE, notification=notification).to_toml(), encoding="utf-8")
        result = check(message(sealed(json.dumps(document).encode()), "/notify"), "--profile", file)

        assert (3, shown) == (result.exit_code, facts(result).get("Order"))
        assert result.output.startswith(f"genuine, but held: {why}")
        assert "hint" not in facts(result)


@pytest.fixture
def toml(tmp_path: Path) -> Callable[[str], Path]:
    """Return the file of a profile with this verification."""

    def written(verification: str) -> Path:
        path = tmp_path / "service.toml"
        path.write_text(TOML.format(verification))
        return path

    return written


def test_not_signed_at_all(toml: Callable[[str], Path]) -> None:
    """If the profile does not sign notifications, the exit code is 2, and the facts are still shown."""
    result = check(b'{"data":{"outTradeNo":"T1"},"timestamp":"2027-01-15T08:00:00Z"}', "--profile", toml("none"))
    later = check(b'{"data":{},"timestamp":9999999999999000}', "--profile", toml("none"))

    assert 2 == result.exit_code
    assert result.output.startswith("cannot tell: the profile says that notifications are not signed")
    assert ("T1", SENT, "nothing") == tuple(facts(result)[name] for name in ("Order", "Sent", "Checked"))
    assert facts(result)["Key"].endswith("(weak: a hash of the body)")
    assert "9999999999999 seconds after 1970" == facts(later)["Sent"]


def test_event_time(toml: Callable[[str], Path]) -> None:
    """The event's own time is shown, or why there is none. A profile without its path shows nothing."""
    file, missing = toml("none"), "not found at data.paidAt"
    paths = file.read_text().replace("[signature]", 'event_time = "data.paidAt"\n[signature]')
    with_path = file.with_name("with_path.toml")
    with_path.write_text(paths)
    cases: dict[Any, str] = {1_800_000_000: SENT, "yesterday": "unreadable at data.paidAt", None: missing}
    for moment, shown in cases.items():
        raw = json.dumps({"data": {**DATA, "paidAt": moment}}).encode()
        found = [facts(check(raw, "--profile", each)).get("Event time") for each in (file, with_path)]

        assert [None, shown] == found


def test_signed_for_any_merchant(toml: Callable[[str], Path]) -> None:
    """If the key is that of all merchants, and nothing signed names one, the exit code is 2, and the reason says so."""
    file, key = toml("body"), "service key number 1"
    file.write_text(file.read_text().replace("[signature]", '[signature]\nservice_key = "shared"'))
    facts_of = {"profile": PROFILE.from_file(file), "credentials": Credentials("M1", service_keys=key)}
    unnamed, named = (
        check(signed(data, **facts_of).raw, "--profile", file, PAYASYNC_SERVICE_KEYS=key)
        for data in (DATA, {**DATA, "merchantId": "M1"})
    )

    assert [2, 0] == [unnamed.exit_code, named.exit_code]
    assert unnamed.output.startswith("cannot tell: its signature is right, but any merchant of the service")


IN_A_HEADER: Final = """name = "signs the body in a header"
[signature]
algorithm = "hmac-sha256"
encoding = "hex"
[notification]
verification = "header"
out_trade_no = "no"
[notification.tells]
payment = "state"
[notification.header]
signature = "X-Sign:v1"
timestamp = "X-Sign:t"
text = "{timestamp}.{body}"
"""


def test_signed_in_a_header(tmp_path: Path) -> None:
    """The signature in a header is checked with its time, and the hints know the names of the headers."""
    file, key = tmp_path / "service.toml", "service key number 1"
    file.write_text(IN_A_HEADER)
    facts_of = {"profile": PROFILE.from_file(file), "credentials": Credentials("M1", service_keys=key)}
    sent = signed({"no": "T1", "state": "PAID"}, **facts_of)
    genuine, old, bare, changed = (
        check(raw, "--profile", file, at=at, PAYASYNC_SERVICE_KEYS=key)
        for raw, at in (
            (message(sent, "/notify"), SENT),
            (message(sent), ""),
            (sent.raw, SENT),
            (message(sent).replace(b"T1", b"T2"), SENT),
        )
    )

    assert [0, 3, 1, 1] == [each.exit_code for each in (genuine, old, bare, changed)]
    assert ("payment", "T1", SENT) == tuple(facts(genuine)[name] for name in ("Kind", "Order", "Sent"))
    assert "X-Sign:v1 over the body, by 1 of your keys; X-Sign:t within 300 seconds" == facts(genuine)["Checked"]
    assert facts(old)["hint"].endswith(f"add --at {SENT}")
    assert facts(bare)["hint"].startswith("the file holds only the body")
    assert facts(changed)["hint"].startswith("the signature covers the exact bytes")


def test_signed_in_its_body(toml: Callable[[str], Path]) -> None:
    """The signature in the body is checked by the profile's scheme; no header is needed."""
    file, key = toml("body"), "service key number 1"
    credentials = Credentials("M1", service_keys=key)
    raw = signed(profile=PROFILE.from_file(file), credentials=credentials).raw
    genuine, other, old = (
        check(raw, "--profile", file, at=at, PAYASYNC_SERVICE_KEYS=keys)
        for keys, at in ((f"service key number 0,{key}", SENT), ("service key number 2", SENT), (key, ""))
    )

    assert [0, 1, 3] == [genuine.exit_code, other.exit_code, old.exit_code]
    assert facts(old)["hint"].endswith(f"--at {SENT}")


def test_what_is_not_configured() -> None:
    """If a key or the profile is missing, the exit code is 2, and no key is shown."""
    cases: list[tuple[str, str | None, str]] = [
        ("NOTIFICATION_KEYS", None, "credentials.notification_keys is empty"),
        ("NOTIFICATION_KEYS", "canary!", "credentials.notification_keys: key 1 must be"),
        ("MERCHANT_ID", None, "PAYASYNC_MERCHANT_ID is not set"),
        ("PROFILE", None, "how notifications are signed (notification.verification)"),
        ("PROFILE", None, "no profile is given, so nothing says how notifications are signed"),
        ("PROFILE", "/nowhere.toml", "/nowhere.toml"),
    ]
    for name, value, words in cases:
        result = run("-", environ={f"PAYASYNC_{name}": value}, stdin=message(PAID))

        assert (2, True) == (result.exit_code, words in result.stderr)
        assert "payasync verify-notification: cannot tell: " in result.stderr
        assert "canary" not in result.output


def test_wrong_options() -> None:
    """A wrong option is refused with its reason, and the exit code is 2."""
    cases = {
        "nowhere.http": "nowhere.http",
        "- --at yesterday": "ISO 8601 with an offset",
        "- --at 9999999999999000": "ISO 8601 with an offset",
        "- -H webhook-id": "a colon between them",
        "- --kind order": "'payment', 'refund', 'subscription'",
    }
    for arguments, words in cases.items():
        result = run(*arguments.split())

        assert (2, True) == (result.exit_code, words in result.stderr)


def test_what_is_not_shown() -> None:
    """Control characters and lookalike letters are shown as `?`, and neither a key nor the right signature is shown."""
    result = check(message(signed(event="T\x1b[2J\u202eP\u0430y")))
    wrong = check(message(PAID), "-H", "webhook-signature: v1,AAAA")

    assert (0, "T?[2J?P?y") == (result.exit_code, facts(result)["Event"])
    assert result.output.isascii()
    assert "\x1b" not in result.output
    assert 1 == wrong.exit_code
    assert not [word for word in (WHSEC[6:], PAID.headers["webhook-signature"][3:]) if word in wrong.output]


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no file without an end")
def test_file_without_an_end() -> None:
    """A file that is longer than any notification is refused."""
    result = run("/dev/zero")

    assert 2 == result.exit_code
    assert f"the file must be {LONGEST} bytes long at most" in " ".join(result.output.split())


def test_reading_a_message() -> None:
    """In the head, line ends of any system are accepted; those in the body stay, unless beyond the Content-Length.

    An invalid length is ignored. If a file does not begin as a POST request, all its bytes are the body.
    """
    for end in (b"\r\n", b"\n"):
        raw = end.join([b"POST /notify/refund HTTP/1.1", b"X-A:  1 ", b"x-a: caf\xe9: 2", b"", b"{\r\n\n}"])
        message = HttpMessage.read(raw)

        assert (b"{\r\n\n}", "/notify/refund") == (message.body, message.target)
        assert (("x-a", "1"), ("x-a", "café: 2")) == message.headers
    for raw in (b"{}", b'{"a": "POST / HTTP/1.1"}', b"GET / HTTP/1.1\r\n\r\n{}", b"POST \xff HTTP/1.1\n\n"):
        assert HttpMessage(raw) == HttpMessage.read(raw)
    bodies = {b"{}": b"{}", b"{}\n": b"{}", b"{}\r\n\n": b"{}", b"{}1": b"{}1"}
    assert [(2, read) for read in bodies.values()] == [read_length("2", body) for body in bodies]
    assert [(None, b"{}\n")] * 3 == [read_length(length, b"{}\n") for length in ("many", "\xb2", "")]


def read_length(length: str, body: bytes) -> tuple[int | None, bytes]:
    """Return the length and the body of a message that is read."""
    message = HttpMessage.read(f"POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode("latin-1") + body)
    return message.length, message.body


def test_broken_messages() -> None:
    """A broken HTTP message is refused."""
    start = b"POST / HTTP/1.1\r\n"
    broken = {
        b"": "the file is empty",
        b" \r\n": "the file is empty",
        start + b"x: 1\r\n": "an empty line",
        start + b"{}\r\n\r\n": "a colon in each",
        start + b"Content-Length: 3\r\n\r\n{}": "of 3 bytes, as its Content-Length says: the file has 2",
        start + b"Content-Length: %b\r\n\r\n{}" % (b"9" * 5000): "a body of 9+ bytes",
    }
    for raw, wanted in broken.items():
        with pytest.raises(InvalidArgumentError, match=wanted) as refused:
            HttpMessage.read(raw)

        assert "file" == refused.value.field
