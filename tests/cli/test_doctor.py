"""`payasync doctor`: what is configured, what is open, and whether the service can be reached."""

import asyncio
import json
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
import trustme
from attrs import evolve
from click.testing import CliRunner, Result

from payasync.cli import doctor
from payasync.cli.commands import payasync
from payasync.profile.profile import Profile
from payasync.profile.readiness import inspect_groups, optional_points
from payasync.profile.schema import Auth, Recovery
from payasync.sandbox import PROFILE, Sandbox, ThreadedSandbox
from tests.foreign.signatures import rsa_keys

CANARY: Final = "canary-of-a-key-that-is-long"
KEYS: Final = {
    "PAYASYNC_MERCHANT_ID": "M1",
    "PAYASYNC_SECRET_KEY": CANARY,
    "PAYASYNC_SIGNING_KEY": CANARY,
    "PAYASYNC_NOTIFICATION_KEYS": "whsec_Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5",
}


READY: Final = {**KEYS, "PAYASYNC_PROFILE": "sandbox"}
TOML: Final = """
name = "my-gateway"
[signature]
algorithm = "hmac-sha256"
encoding = "HEX"
"""
KEYS_OF_POINTS: Final = {"payment_status": "status.payment.name", "refund_status": "status.refund.name"}
"""Points that TOML names otherwise than Python."""


def lines(result: Result) -> list[str]:
    """Return the lines that are shown, with single spaces."""
    return [" ".join(line.split()) for line in result.output.splitlines()]


def run(*arguments: str, environ: Mapping[str, str] = {}, columns: int = 200) -> Result:
    """Run the command in an environment of its own."""
    unset = dict.fromkeys(("PAYASYNC_PROFILE", "PAYASYNC_BASE_URL", *KEYS))
    return CliRunner().invoke(payasync, ["doctor", *arguments], env={**unset, **environ, "COLUMNS": str(columns)})


@pytest.fixture
def toml(tmp_path: Path) -> str:
    """Return the path of a merchant's profile."""
    path = tmp_path / "service.toml"
    path.write_text(TOML)
    return str(path)


def test_it_shows_every_point(toml: str) -> None:
    """`doctor --all` lists each point with its status, optional ones apart. Open points are no failure."""
    result = run("--profile", toml, "--all")
    profile = Profile.from_file(toml)
    optional = [point.name for point in optional_points(profile)]
    points = [
        f"{'optional' if point.name in optional else point.status} {KEYS_OF_POINTS.get(point.name, point.name)}"
        for point in profile.audit()
    ]

    assert 0 == result.exit_code
    assert [] == [point for point in points if not any(line.startswith(point) for line in lines(result))]


def test_verdict_of_each_group(toml: str) -> None:
    """Each group is "ready", or lists what is missing with the keys to give. Other open points are counted."""
    shown = lines(run("--profile", toml))
    ready = lines(run(environ={"PAYASYNC_PROFILE": "sandbox"}))
    groups = [each.group for each in inspect_groups(Profile())]

    assert {
        "open payments how to query it status.payment.name",
        "its states answer.payment_status, states.payment",
        "open orders its payment page answer.redirect_url",
    } <= set(shown)
    assert [f"ok {group} ready" for group in groups] == [line for line in ready if line.endswith(" ready")]
    assert "Open, but optional: 9. payasync doctor --all shows every point." in ready
    assert not [line for line in shown if "answered" in line or "assumed" in line]


def test_json(toml: str) -> None:
    """`--json` prints one line with the same facts: findings, groups with their keys, and every point."""
    result = run("--profile", toml, "--json", environ=KEYS)
    document = json.loads(result.output)
    whole = Path(__file__).parents[1] / "profile" / "whole_profile.toml"
    points = json.loads(run("--profile", str(whole), "--json").output)["points"]

    assert (0, "my-gateway", toml) == (result.exit_code, document["profile"], document["source"])
    assert [each.group for each in inspect_groups(Profile())] == [each["group"] for each in document["groups"]]
    assert {"thing": "how to query it", "keys": ["status.payment.name"]} in document["groups"][0]["missing"]
    assert (False, False) == (document["groups"][0]["ready"], document["groups"][0]["begun"])
    assert ("PAYASYNC_MERCHANT_ID", "fine") == tuple(document["findings"][0].values())[:2]
    assert [each.name for each in Profile.from_file(toml).audit()] == [each["name"] for each in document["points"]]
    assert CANARY not in result.output
    assert {"name": "outTradeNo", "place": "path"} == {each["name"]: each["value"] for each in points}["payment_status"]


ELSEWHERE: Final = """
status.payment.name = "charge"
[endpoints."payments.status"]
path = "/charges/{identifier}"
[endpoints."refunds.status"]
method = "POST"
path = "/refunds/find"
place = "body"
with = ["out_trade_no"]
[answer]
currency = ""
refund_status = "state"
[states.refund]
succeeded = ["P", "Q"]
failed = ["C"]
[signature]
encoding = "hex"
"""


def test_values_are_shown_in_words(tmp_path: Path) -> None:
    """Values are written for people: an endpoint by method, path and place, a table with its names.

    An empty path means that a field is not compared. An open algorithm is a point, and no failure.
    """
    path = tmp_path / "service.toml"
    path.write_text(ELSEWHERE)
    result = run("--profile", str(path), "--all")
    shown = "\n".join(lines(result))
    words = (
        "answered endpoints.payments.status GET /charges/{identifier} payments.status\n",
        "answered endpoints.refunds.status POST /refunds/find, in the body, with out_trade_no refunds.status\n",
        "answered status.payment.name charge, in the path payments.status\n",
        "answered answer.currency currency is not compared",
        "answered states.refund succeeded: P, Q; failed: C ",
        "open signature.algorithm",
    )

    assert (0, []) == (result.exit_code, [each for each in words if f"\n{each}" not in shown])


def summary(result: Result) -> list[str]:
    """Return the first section of the output, without its title, each line with single spaces."""
    title, *found = "\n".join(lines(result)).strip().split("\n\n")[0].splitlines()
    assert "In short" == title
    return found


def marks(result: Result, mark: str) -> list[str]:
    """Return the lines below the summary that begin with a mark."""
    return [line for line in lines(result)[len(summary(result)) + 2 :] if line.split()[:1] == [mark]]


def test_what_is_left_to_do_stands_first(toml: str) -> None:
    """The output begins with errors, then missing variables, and the number of groups that are not ready.

    Without a profile, the summary says how to give one.
    """
    missing, unanswered = summary(run("--profile", toml, columns=1000))
    wrong, fewer, bare = summary(run("--base-url", "http://127.0.0.1:1", environ={"PAYASYNC_MERCHANT_ID": "M1"}))

    unset = "PAYASYNC_MERCHANT_ID, PAYASYNC_SECRET_KEY, PAYASYNC_SIGNING_KEY, PAYASYNC_BASE_URL"
    given = " no profile is given. Give --profile FILE, or set PAYASYNC_PROFILE; for the sandbox, the word sandbox"
    assert f"missing 4 set {unset}" == missing
    assert f"open 6 set in {toml} what your calls need: see below" == unanswered
    assert "wrong 1 correct Connection: see below" == wrong
    assert "missing 2 set PAYASYNC_SECRET_KEY, PAYASYNC_SIGNING_KEY" == fewer
    assert given in bare
    assert bare.endswith(". To write a file: payasync profile init")


def test_nothing_is_left_to_do(tmp_path: Path) -> None:
    """If nothing is missing or wrong, the summary says so. The service gets a connection, and no request.

    The summary counts the lines below it. Without a profile, it does not say that nothing is missing.
    """
    toml = tmp_path / "service.toml"
    toml.write_text(evolve(PROFILE, recovery=Recovery()).to_toml())
    with ThreadedSandbox() as sandbox:
        there = ("--base-url", sandbox.url)
        result, bare = run(*there, environ=READY, columns=80), run(*there, environ=KEYS)
        opened, seen = run(*there, "--profile", str(toml), environ=KEYS), list(sandbox.timeline())
    counts = [line.split()[:2] for line in summary(opened)]

    assert (0, []) == (result.exit_code, seen)
    assert [f"ok {len(marks(result, 'ok'))} nothing is missing or wrong"] == summary(result)
    assert [[each, str(len(marks(opened, each)))] for each in ("ok", "open")] == counts
    assert ["open"] == [line.split()[0] for line in summary(bare)]
    assert re.search(r"accepted a connection in \d+ ms:", result.output)


def test_invalid_profile(tmp_path: Path) -> None:
    """A file with an unknown key ends with exit code 2, and one line that names the key and its line."""
    path = tmp_path / "wrong.toml"
    path.write_text('name = "x"\nsignatur = 1\n')

    result = run("--profile", str(path))

    assert (2, 1) == (result.exit_code, len(result.stderr.splitlines()))
    assert (True, True) == ("signatur" in result.stderr, "line 2" in result.stderr)


def test_no_key_is_shown() -> None:
    """The output says whether a key is set, and shows no part of it. A notification key that is refused is "wrong"."""
    result, short = (
        run(environ=READY),
        run(environ={**READY, "PAYASYNC_NOTIFICATION_KEYS": "whsec_Y2FuYXJ5"}, columns=999),
    )
    wrong = "wrong PAYASYNC_NOTIFICATION_KEYS credentials.notification_keys: key 1 must be whsec_"

    assert {"ok PAYASYNC_SIGNING_KEY set", "ok PAYASYNC_NOTIFICATION_KEYS set"} <= set(lines(result))
    assert (1, True) == (short.exit_code, any(line.startswith(wrong) for line in lines(short)))
    assert not [key for key in ("canary", "Y2FuYXJ5") if key in result.output + short.output]


def with_keys(toml: str, **keys: str) -> tuple[Result, list[str]]:
    """Run the command with further keys, and return its lines about them."""
    named = {f"PAYASYNC_{name.upper()}": key for name, key in keys.items()}
    result = run("--profile", toml, environ={**KEYS, **named}, columns=1000)
    return result, [line for line in lines(result) if "credentials." in line]


SIGNED_ANSWERS: Final = """
signature.algorithm = "rsa-sha256"
signature.encoding = "base64"
answer.signature = "sign"
"""


def test_every_key_is_tried(tmp_path: Path) -> None:
    """Each key that a session would refuse is "wrong", with its position. The exit code is 1."""
    toml = tmp_path / "service.toml"
    toml.write_text(SIGNED_ANSWERS)
    private, public = (each.read_text() for each in rsa_keys(tmp_path))
    keys = f"{public}\n{private}\n{CANARY}"
    result, told = with_keys(str(toml), signing_key=public, service_keys=keys)
    mended, _ = with_keys(str(toml), signing_key=private, service_keys=public)

    assert [1, 0] == [result.exit_code, mended.exit_code]
    signing = "credentials.signing_key is not a private key for rsa-sha256: it is a public key. Give the private key"
    assert [signing in told[0], "key 2 is not a public key" in told[1], "key 3 is not a public key" in told[1]] == [
        True
    ] * 3
    assert ["PAYASYNC_SIGNING_KEY", "PAYASYNC_SERVICE_KEYS"] == [line.split()[1] for line in told]
    assert "wrong 2 correct PAYASYNC_SIGNING_KEY, PAYASYNC_SERVICE_KEYS: see below" in summary(result)
    assert "canary" not in result.output


def test_what_anybody_could_write(tmp_path: Path) -> None:
    """If a profile would believe an echoed request, it is "wrong", unless the service has a key of its own."""
    toml, signed = tmp_path / "service.toml", 'signature = {algorithm = "hmac-sha256", encoding = "hex"}\n'
    cases = {
        "answer.signature": 'answer = {data = "d", signature = "d.s"}',
        "notification.kind": 'notification = {verification = "body", signature = "sign"}',
    }
    for field, more in cases.items():
        toml.write_text(signed + more)
        echoed, _ = with_keys(str(toml))
        keys = {"service_keys": f"{CANARY}-of-the-service", "notification_keys": f"{CANARY}-of-events"}

        assert (1, 0) == (echoed.exit_code, with_keys(str(toml), **keys)[0].exit_code)
        assert any(line.startswith(f"wrong {field} ") for line in lines(echoed))


def test_weak_keys_are_a_warning(toml: str, tmp_path: Path) -> None:
    """A shared secret of 8 to 15 characters is a warning; a shorter one is "wrong".

    A profile that allows RSA keys of fewer than 2048 bits is a warning.
    """
    warned, told = with_keys(toml, signing_key="canary-123")
    wrong, _ = with_keys(toml, signing_key="canary1")
    rsa = tmp_path / "rsa.toml"
    rsa.write_text('signature = {algorithm = "rsa-sha256", encoding = "hex", min_rsa_bits = 1024}')
    short = "credentials.signing_key has fewer than 16 characters, and could be guessed: ask for a longer one"
    assert [f"warning PAYASYNC_SIGNING_KEY {short}"] == told
    assert "warning 1 correct PAYASYNC_SIGNING_KEY: see below" in summary(warned)
    assert (0, 1) == (warned.exit_code, wrong.exit_code)
    words = "is 1024: keys of fewer than 2048 bits could be broken. Ask the service for longer ones"
    assert f"warning signature.min_rsa_bits {words}" in lines(with_keys(str(rsa))[0])


def test_value_that_is_odd(toml: str, tmp_path: Path) -> None:
    """A line end after a value is removed; quotes around it are "wrong".

    A secret of Standard Webhooks is "not used" if notifications are verified otherwise.
    """
    variable, given = "PAYASYNC_SECRET_KEY", ("--profile", toml)
    ended, quoted = (
        run(*given, environ={**KEYS, variable: each}, columns=1000) for each in (f"{CANARY}\r\n", f'"{CANARY}"')
    )
    why = f"{variable} has quotes around it, which would be part of the value: remove them"
    unsigned = tmp_path / "unsigned.toml"
    unsigned.write_text('notification.verification = "none"')
    unused = 'ok PAYASYNC_NOTIFICATION_KEYS set, and not used: notification.verification is "none"'

    assert (0, True) == (ended.exit_code, f"ok {variable} set" in lines(ended))
    assert [f"wrong {variable} {why}"] == marks(quoted, "wrong")
    assert (1, False) == (quoted.exit_code, CANARY in quoted.output)
    assert unused in lines(run("--profile", str(unsigned), environ=KEYS))


def test_keys_of_headers_are_missing() -> None:
    """A key is missing only if a header of the profile holds it; the finding names the methods that need it."""
    needed = {"Basic {basic}": ["SECRET_KEY", "PUBLIC_KEY"], "{public_key}": ["PUBLIC_KEY"], "{merchant_id}": []}
    for value, missing in needed.items():
        profile = Profile(auth=Auth(value=value), signed=())
        found = list(doctor.inspect_credentials(profile, {"PAYASYNC_MERCHANT_ID": "M1"}))[1:]

        expected = [(f"PAYASYNC_{name}", "missing", "not set: needed by payments.create") for name in missing]
        assert expected == [(each.name, each.verdict, each.words) for each in found]


def test_either_key_verifies() -> None:
    """A service that signs notifications alone, with a shared secret, needs one of two keys; either is enough."""
    signing = 'signature = {algorithm = "hmac-sha256", encoding = "hex"}\n'
    header = 'notification = {verification = "header", header = {signature = "X-Signature"}}\n'
    profile = Profile.from_toml(f"signed = []\nbearer = []\n{signing}{header}")
    neither = {"PAYASYNC_SERVICE_KEYS": "not set: needed by notifications. PAYASYNC_SIGNING_KEY serves, too"}
    for key in ("", "PAYASYNC_SERVICE_KEYS", "PAYASYNC_SIGNING_KEY"):
        environ = {"PAYASYNC_MERCHANT_ID": "M1", **({key: CANARY} if key else {})}
        found = [each for each in doctor.inspect_credentials(profile, environ) if each.name.startswith("PAYASYNC_")]

        assert ({key: "set"} if key else neither) == {each.name: each.words for each in found[1:]}


def test_key_file_that_others_can_read(tmp_path: Path) -> None:
    """A key file that others can read is a warning with a command; a public key may be read by all."""
    files = {"PAYASYNC_SIGNING_KEY": 0o440, "PAYASYNC_SECRET_KEY": 0o400, "PAYASYNC_PUBLIC_KEY": 0o444}
    for name, mode in files.items():
        (tmp_path / name).write_text(CANARY)
        (tmp_path / name).chmod(mode)
    environ = {"PAYASYNC_MERCHANT_ID": "M1", **{f"{name}_FILE": str(tmp_path / name) for name in files}}
    with ThreadedSandbox() as sandbox:
        result = run("--base-url", sandbox.url, environ=environ, columns=1000)
    warning, *_ = summary(result)

    said = f"set; other users can read its file. Run: chmod go-r {tmp_path / 'PAYASYNC_SIGNING_KEY'}"
    fine = {"ok PAYASYNC_SECRET_KEY set", "ok PAYASYNC_PUBLIC_KEY set"}

    assert 0 == result.exit_code
    assert {f"warning PAYASYNC_SIGNING_KEY {said}", *fine} < set(lines(result))
    assert "warning 1 correct PAYASYNC_SIGNING_KEY: see below" == warning


def test_service_that_cannot_be_reached() -> None:
    """If the host refuses the connection, or a session would refuse its address, the exit code is 1."""
    refused = "http://127.0.0.1:1: connection refused"
    for url, why in (("http://127.0.0.1:1", refused), ("http://pay.example.com", "must be https")):
        result = run("--base-url", url)
        (found,) = (line for line in lines(result) if line.startswith("wrong Connection "))

        assert (1, True) == (result.exit_code, why in found)
        advice = "and that the service runs. To start the sandbox, run: payasync sandbox"
        assert (why == refused) == (advice in found)


async def greeted(tls: ssl.SSLContext | None, address: str = "127.0.0.1") -> doctor.Finding:
    """Return the result of a connection to a server that sends nothing."""
    hung_up: list[asyncio.Event] = []

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hung_up.append(asyncio.Event())
        with suppress(OSError):
            await reader.read()
        writer.transport.abort()
        hung_up[-1].set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0, ssl=tls)
    async with server:
        port = server.sockets[0].getsockname()[1]
        found = await doctor.inspect_connection(f"https://{address}:{port}", seconds=0.05 if tls is None else 5.0)
        for each in hung_up:
            await each.wait()
    return found


async def test_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An untrusted certificate is "wrong"; for a trusted one the protocol is shown.

    If the service hangs up after the handshake, as without a client certificate, the doctor warns.
    """
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    distrusted = await greeted(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    trusted = await greeted(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    unknown = await greeted(context)

    assert ["wrong", "fine", "warning"] == [each.verdict for each in (distrusted, trusted, unknown)]
    assert "the certificate of the service cannot be trusted (" in distrusted.words
    assert distrusted.words.endswith("trust this CA by tls= or SSL_CERT_FILE")
    assert "TLSv1.3" in trusted.words
    assert unknown.words.startswith("accepted a connection, and closed it after the TLS handshake: https://127.0.0.1:")
    assert ". If the service demands a client certificate, load it into the tls= of your program's" in unknown.words


async def test_host_that_does_not_respond() -> None:
    """The doctor says in words that a host name does not resolve, and that a TLS handshake gets no response in time."""
    found, silent = await doctor.inspect_connection("https://no-such-host.invalid"), await greeted(None)

    assert ("wrong", "https://no-such-host.invalid: the host name does not resolve") == (found.verdict, found.words)
    assert ("wrong", True) == (silent.verdict, "no connection within 0.05 s" in silent.words)


async def test_proxy_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment is mentioned, because a session does not use it by default."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with Sandbox() as sandbox:
        found = await doctor.inspect_connection(sandbox.url)

    assert "fine" == found.verdict
    assert "the environment names a proxy" in found.words
