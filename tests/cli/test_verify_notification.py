"""`payasync verify-notification`: whether a notification in a file is from the service."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from payasync import Credentials
from payasync.cli.commands import payasync
from payasync.cli.verify_notification import LONGEST, HttpMessage
from payasync.errors import InvalidArgumentError
from payasync.notifications.verification import sign_webhook
from payasync.sandbox import PROFILE, Sandbox
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
    """Return a notification of the sandbox's dialect."""
    given: dict[str, Any] = {"profile": PROFILE, "credentials": CREDENTIALS, "time": 1_800_000_000, **facts}
    return sign_notification(data, **given)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file that holds a whole message, as it came to the address for payments."""
    path = tmp_path / "paid.http"
    path.write_bytes(message(signed(kind="payment")))
    return path


def message(notification: Signed, target: str = "/notify/payment") -> bytes:
    """Return a notification as `listen` stores it."""
    return HttpMessage(notification.raw, tuple(notification.headers.items()), target).to_bytes()


def run(*arguments: object, environ: Mapping[str, str | None] = {}, stdin: bytes = b"") -> Result:
    """Run the command, with its keys in the environment."""
    given = ["verify-notification", *map(str, arguments)]
    return CliRunner().invoke(payasync, given, env={**KEYS, **environ}, input=stdin)


def facts(result: Result) -> dict[str, str]:
    """Return the lines that are shown below the verdict."""
    pairs = (line.strip().partition("  ") for line in result.output.splitlines()[1:])
    return {name: text.strip() for name, _, text in pairs}


def test_genuine(file: Path) -> None:
    """The exit code is 0; the output says what it is, when it was sent, and what was checked."""
    result = run(file, "--at", "2027-01-15T08:02:00Z")

    assert (0, "genuine") == (result.exit_code, result.output.splitlines()[0])
    assert {
        "Kind": "payment",
        "Event": "payment.paid",
        "Order": "T1",
        "Key": 'payment:["T1","SBX_PAID"]',
        "Sent": SENT,
        "Age": "120 seconds",
        "Checked": "webhook-signature over the body, by 1 of your keys; webhook-timestamp within 300 seconds",
    } == facts(result)


def test_changed(file: Path) -> None:
    """A changed digit gives exit code 1, and the facts are shown all the same."""
    file.write_bytes(file.read_bytes().replace(b'"T1"', b'"T2"'))
    result = run(file, "--at", SENT)

    assert 1 == result.exit_code
    why = "is not that of the body, by any of the keys: the body is not the one that was signed, or the key is another"
    assert f"not genuine: webhook-signature {why}" == result.output.splitlines()[0]
    assert "T2" == facts(result)["Order"]


def test_too_old(file: Path) -> None:
    """An old notification is refused as by a receiver; the hint says how to check it as of then."""
    result = run(file)

    assert 1 == result.exit_code
    assert "not genuine: webhook-timestamp is " in result.output
    assert facts(result)["hint"].endswith(f"add --at {SENT}")
    assert 0 == run(file, "--at", SENT).exit_code


def test_now(tmp_path: Path) -> None:
    """Without `--at` the current time is used."""
    file = tmp_path / "now.http"
    file.write_bytes(message(signed(time=time.time())))

    assert 0 == run(file).exit_code


def test_body_alone(tmp_path: Path) -> None:
    """A file with only the body needs the headers; without them the hint says how to give them."""
    notification, file = signed(kind="payment"), tmp_path / "paid.json"
    file.write_bytes(notification.raw)
    headers = [option for name, value in notification.headers.items() for option in ("-H", f"{name.title()}:{value}")]

    assert 0 == run(file, *headers, "--at", SENT).exit_code
    assert '-H "name: value"' in facts(run(file, "--at", SENT))["hint"]


def test_line_end_of_an_editor(tmp_path: Path) -> None:
    """A line end that an editor added breaks the signature of a body, and the hint says so."""
    notification, file = signed(), tmp_path / "paid"
    file.write_bytes(notification.raw + b"\n")
    headers = [option for name, value in notification.headers.items() for option in ("-H", f"{name}: {value}")]

    assert "line break" in facts(run(file, *headers, "--at", SENT))["hint"]
    file.write_bytes(message(notification) + b"\n")
    assert 0 == run(file, "--at", SENT).exit_code
    file.write_bytes(message(evolve(notification, raw=b"{}\n")))
    assert "line end" not in facts(run(file, "--at", SENT))["hint"]


def rewritten(notification: Signed) -> Signed:
    """Return a notification whose JSON was read and written again: it says the same, in other bytes."""
    return evolve(notification, raw=json.dumps(json.loads(notification.raw), indent=1).encode())


def test_json_that_was_written_again(tmp_path: Path) -> None:
    """If the JSON was parsed and written again, the hint says so."""
    file = tmp_path / "paid.http"
    file.write_bytes(message(rewritten(signed())))

    assert facts(run(file, "--at", SENT))["hint"].startswith("the signature covers the exact bytes")
    assert "hint" not in facts(run(file, "--at", SENT, "-H", "webhook-signature: v2,AAAA"))


def test_body_that_is_longer_than_its_header_says(tmp_path: Path) -> None:
    """The hint names both lengths, and the facts are shown all the same."""
    before, file = signed(kind="payment"), tmp_path / "paid.http"
    after = rewritten(before)
    file.write_bytes(message(before).replace(before.raw, after.raw))
    result = run(file, "--at", SENT)
    lengths = f"Content-Length is {len(before.raw)}, the file has {len(after.raw)}"

    assert 1 == result.exit_code
    assert facts(result)["hint"].startswith(lengths)
    assert ("payment", "T1") == (facts(result)["Kind"], facts(result)["Order"])


@pytest.mark.parametrize(("second", "code"), [("genuine", 0), ("changed", 1), ("empty", 2)])
def test_several_files(tmp_path: Path, second: str, code: int) -> None:
    """Each file has a block under its name; the exit code is the highest."""
    contents = {"genuine": message(signed()), "changed": message(rewritten(signed())), "empty": b""}
    verdicts = {"genuine": "genuine", "changed": "not genuine", "empty": "cannot tell"}
    names = ["genuine", second, "genuine"]
    files = [tmp_path / f"{number}-{name}" for number, name in enumerate(names)]
    for file, name in zip(files, names, strict=True):
        file.write_bytes(contents[name])
    result = run(*files, "--at", SENT)
    blocks = [block.splitlines() for block in result.output.split("\n\n")]

    assert code == result.exit_code
    assert [str(file) for file in files] == [block[0] for block in blocks]
    assert [verdicts[name] for name in names] == [block[1].partition(":")[0] for block in blocks]


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="there is no file that cannot be read")
def test_file_that_cannot_be_read(file: Path) -> None:
    """An unreadable file is reported, and the others are checked all the same."""
    result = run("/proc/self/mem", file, "--at", SENT)

    assert 2 == result.exit_code
    assert "cannot tell: the file cannot be read: Input/output error" in result.output
    assert "paid.http\ngenuine\n" in result.output


def test_standard_input(file: Path) -> None:
    """`-` reads standard input."""
    assert 0 == run("-", "--at", SENT, stdin=file.read_bytes()).exit_code


@pytest.mark.parametrize(
    ("target", "options", "code"),
    [
        ("/notify/refund", [], 1),
        ("/notify/refund?x=/payment", [], 1),
        ("/notify/refund/", [], 1),
        ("/notify/%72efund", [], 1),
        ("/notify/refund", ["--kind", "payment"], 0),
        ("/notify", ["--kind", "refund"], 1),
        ("/notify/all", [], 0),
    ],
)
def test_kind_of_its_address(tmp_path: Path, target: str, options: list[str], code: int) -> None:
    """The last part of the path says the kind, as in a receiver, unless an option does."""
    file = tmp_path / "paid.http"
    file.write_bytes(message(signed(kind="payment"), target))
    result = run(file, "--at", SENT, *options)

    assert code == result.exit_code
    assert ("arrived at the address for refunds" in result.output) is (code == 1)


@pytest.mark.parametrize("raw", [b"", b"not JSON", b'{"a":1,"a":2}', b"[]", b"\xff" * 100, b"[" * 5000], ids=len)
def test_invalid_notification(tmp_path: Path, raw: bytes) -> None:
    """Any file gets a verdict, and never a traceback."""
    file = tmp_path / "any"
    notification = HttpMessage(raw, tuple(webhook_headers(raw).items()), "/")
    file.write_bytes(notification.to_bytes())
    result = run(file, "--at", SENT)

    assert 1 == result.exit_code
    assert result.output.startswith("not genuine: raw must be a JSON object")
    assert {"Checked"} == set(facts(result))


def webhook_headers(raw: bytes) -> dict[str, str]:
    """Return the headers that a service would sign anything with."""
    (key,) = CREDENTIALS.notification_keys
    signature = sign_webhook(raw, number="m1", sent=1_800_000_000, key=key)
    return {"webhook-id": "m1", "webhook-timestamp": "1800000000", "webhook-signature": signature}


def test_not_signed_at_all(tmp_path: Path) -> None:
    """If notifications are not signed, the exit code is 2, and the facts are shown."""
    toml, file = tmp_path / "service.toml", tmp_path / "hint.json"
    toml.write_text(TOML.format("none"))
    file.write_text('{"data":{"outTradeNo":"T1"},"timestamp":"2027-01-15T08:00:00Z"}')
    result = run(file, "--profile", toml, "--at", SENT)

    assert 2 == result.exit_code
    assert result.output.startswith("cannot tell: the profile says that notifications are not signed")
    assert ("T1", SENT, "nothing") == tuple(facts(result)[name] for name in ("Order", "Sent", "Checked"))
    assert facts(result)["Key"].endswith("(weak: a hash of the body)")


def test_signed_in_its_body(tmp_path: Path) -> None:
    """The signature in the body is checked by the profile's scheme; no header is needed."""
    toml, file = tmp_path / "service.toml", tmp_path / "paid.json"
    toml.write_text(TOML.format("body"))
    profile = PROFILE.from_file(toml)
    data = {"outTradeNo": "T1", "amount": 450}
    notification = sign_notification(
        data, profile=profile, credentials=Credentials("M1", service_keys="service key number 1"), time=1_800_000_000
    )
    file.write_bytes(notification.raw)
    environ = {"PAYASYNC_SERVICE_KEYS": "service key number 0,service key number 1"}

    assert 0 == run(file, "--profile", toml, "--at", SENT, environ=environ).exit_code
    assert (
        1
        == run(
            file, "--profile", toml, "--at", SENT, environ={"PAYASYNC_SERVICE_KEYS": "service key number 2"}
        ).exit_code
    )
    assert facts(run(file, "--profile", toml, environ=environ))["hint"].endswith(f"--at {SENT}")


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"PAYASYNC_NOTIFICATION_KEYS": None}, "credentials.notification_keys is empty"),
        ({"PAYASYNC_NOTIFICATION_KEYS": "canary!"}, "credentials.notification_keys: key 1 must be"),
        ({"PAYASYNC_MERCHANT_ID": None}, "PAYASYNC_MERCHANT_ID is not set"),
        ({"PAYASYNC_PROFILE": None}, "how notifications are signed (notification.verification)"),
        ({"PAYASYNC_PROFILE": None}, "no profile is given, so nothing says how notifications are signed"),
        ({"PAYASYNC_PROFILE": "/nowhere.toml"}, "/nowhere.toml"),
    ],
)
def test_what_is_not_configured(file: Path, environ: dict[str, str | None], words: str) -> None:
    """A missing key or profile gives exit code 2, and one line without any key."""
    result = run(file, environ=environ)

    assert 2 == result.exit_code
    assert "payasync verify-notification: cannot tell: " in result.stderr
    assert words in result.stderr
    assert "canary" not in result.output


def test_message_that_was_cut(file: Path) -> None:
    """A file that is shorter than its Content-Length cannot be checked."""
    file.write_bytes(file.read_bytes()[:-1])
    result = run(file)

    assert 2 == result.exit_code
    assert result.output.startswith("cannot tell: the HTTP message must have a body of ")
    assert "as its Content-Length says" in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.http"], "nowhere.http"),
        (["-", "--at", "yesterday"], "ISO 8601 with an offset"),
        (["-", "-H", "webhook-id"], "a colon between them"),
        (["-", "--kind", "order"], "'payment', 'refund', 'subscription'"),
    ],
)
def test_wrong_options(arguments: list[str], words: str) -> None:
    """A wrong option is refused before anything is checked."""
    result = run(*arguments)

    assert 2 == result.exit_code
    assert words in result.stderr


def test_control_characters_are_replaced(tmp_path: Path) -> None:
    """Control characters and lookalike letters are shown as `?`."""
    file = tmp_path / "hostile.http"
    hostile = "T\x1b[2J\u202eP\u0430y"
    file.write_bytes(message(signed({"outTradeNo": "T1", "status": "x"}, event=hostile)))
    result = run(file, "--at", SENT)

    assert 0 == result.exit_code
    assert "T?[2J?P?y" == facts(result)["Event"]
    assert result.output.isascii()
    assert "\x1b" not in result.output


def test_no_key_is_shown(file: Path) -> None:
    """Neither a key nor the right signature is shown."""
    right = dict(HttpMessage.read(file.read_bytes()).headers)["webhook-signature"]
    result = run(file, "--at", SENT, "-H", "webhook-signature: v1,AAAA")

    assert 1 == result.exit_code
    assert not [word for word in (WHSEC[6:], right[3:]) if word in result.output]


async def test_what_the_sandbox_sends(tmp_path: Path) -> None:
    """A notification of the sandbox is genuine by the sandbox's own credentials."""
    async with Sandbox() as sandbox, sandbox.receiver() as shop, sandbox.session() as pay:
        await pay.orders.place(total_amt=450, currency="CAD", out_trade_no="T1", notify_url=shop.url)
        await sandbox.customer.authorize("T1")
        sent = await shop.next()
    (key,) = sandbox.credentials.notification_keys
    file = tmp_path / "sent.http"
    file.write_bytes(HttpMessage(sent.body.encode(), tuple(sent.headers.items()), "/notify").to_bytes())

    assert 0 == run(file, environ={"PAYASYNC_NOTIFICATION_KEYS": key.reveal()}).exit_code


def test_time_beyond_the_calendar(tmp_path: Path) -> None:
    """A time beyond the calendar is shown as a number."""
    toml, file = tmp_path / "service.toml", tmp_path / "hint.json"
    toml.write_text(TOML.format("none"))
    file.write_text('{"data":{},"timestamp":9999999999999000}')

    assert "9999999999999 seconds after 1970" == facts(run(file, "--profile", toml))["Sent"]


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no file without an end")
def test_file_without_an_end() -> None:
    """No more is read than the longest possible notification."""
    result = run("/dev/zero")

    assert 2 == result.exit_code
    assert f"the file must be {LONGEST} bytes long at most" in " ".join(result.output.split())


NAMES = st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyz-"), min_size=1, max_size=12).filter(
    lambda name: name != "content-length"
)
VALUES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0xFF, exclude_categories=["Cc", "Zs"]), max_size=20)


@given(
    body=st.binary(max_size=60),
    headers=st.lists(st.tuples(NAMES, VALUES), max_size=4),
    target=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20),
)
def test_what_is_written_is_read(body: bytes, headers: list[tuple[str, str]], target: str) -> None:
    """Body, headers and path are read as they were written, with the length."""
    message = HttpMessage(body, tuple(headers), target)
    length = ("content-length", str(len(body)))

    assert HttpMessage(body, (*headers, length), target) == HttpMessage.read(message.to_bytes())


@pytest.mark.parametrize(
    "raw", [b"{}", b'{"a": "POST / HTTP/1.1"}', b"GET / HTTP/1.1\r\n\r\n{}", b"POST \xff HTTP/1.1\n\n"]
)
def test_file_of_a_body_alone(raw: bytes) -> None:
    """A file that does not begin as a POST request is a body, byte by byte."""
    assert HttpMessage(raw) == HttpMessage.read(raw)


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_line_ends(end: bytes) -> None:
    """Line ends of any system are accepted in the head; those of the body stay."""
    raw = end.join([b"POST /notify/refund HTTP/1.1", b"X-A:  1 ", b"x-a: caf\xe9: 2", b"", b"{\r\n\n}"])
    message = HttpMessage.read(raw)

    assert (b"{\r\n\n}", "/notify/refund") == (message.body, message.target)
    assert (("x-a", "1"), ("x-a", "café: 2")) == message.headers


@pytest.mark.parametrize(
    ("length", "body", "expected"),
    [
        *(("2", body, (2, b"{}")) for body in (b"{}", b"{}\n", b"{}\r\n\n")),
        ("2", b"{}1", (2, b"{}1")),
        *((length, b"{}\n", (None, b"{}\n")) for length in ("many", "\xb2", "")),
    ],
)
def test_length_of_the_body(length: str, body: bytes, expected: tuple[int | None, bytes]) -> None:
    """Only line ends beyond the Content-Length are removed. An invalid length says nothing."""
    message = HttpMessage.read(f"POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode("latin-1") + body)

    assert expected == (message.length, message.body)


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (b"", "the file is empty"),
        (b" \r\n", "the file is empty"),
        (b"POST / HTTP/1.1\r\nx: 1\r\n", "an empty line"),
        (b"POST / HTTP/1.1\r\n{}\r\n\r\n", "a colon in each"),
        (
            b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n{}",
            "a body of 3 bytes, as its Content-Length says: the file has 2",
        ),
        (b"POST / HTTP/1.1\r\nContent-Length: %b\r\n\r\n{}" % (b"9" * 5000), "a body of 9+ bytes"),
    ],
)
def test_broken_messages(raw: bytes, wanted: str) -> None:
    """A broken HTTP message is refused."""
    with pytest.raises(InvalidArgumentError, match=wanted) as refused:
        HttpMessage.read(raw)

    assert "file" == refused.value.field


def test_other_headers() -> None:
    """Given headers replace those of the same name, in any case."""
    message = HttpMessage(b"", (("Webhook-Id", "a"), ("X", "1"), ("webhook-id", "b")), "/")

    assert (("x", "1"), ("webhook-id", "c")) == message.with_headers({"webhook-id": "c"}).headers
