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
TOML: Final = """
name = "my-gateway"
[signature]
algorithm = "hmac-sha256"
encoding = "HEX"
"""
KEYS_OF_POINTS: Final = {"payment_status": "status.payment.name", "refund_status": "status.refund.name"}
"""Points that TOML names otherwise than Python."""
TEMPLATE: Final = """
[signature]
family = "template"
text = "{body}"
header = "X-Signature"
[answer.header]
signature = "X-Signature"
"""


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
    assert "my-gateway" in result.output
    assert "answered  signature.encoding" in result.output
    assert "orders.place, .query, .close, refunds.create" in result.output
    assert "missing  PAYASYNC_MERCHANT_ID" in result.output
    assert "missing  Connection" in result.output


@pytest.mark.parametrize("columns", [80, 99, 100, 200])
@pytest.mark.parametrize("environ", [{}, {"PAYASYNC_PROFILE": "sandbox"}], ids=["no profile", "the sandbox's"])
def test_no_name_is_broken(environ: dict[str, str], columns: int) -> None:
    """From 80 columns on, names of points, methods and values are never broken."""
    output = run("--all", environ=environ, columns=columns).output
    profile = PROFILE if environ else Profile()
    values = [each.value for each in profile.audit() if isinstance(each.value, str) and each.status == "answered"]
    names = [
        *(KEYS_OF_POINTS.get(point.name, point.name) for point in profile.audit()),
        *(doctor.list_methods(each.needed_by) or "notifications" for each in profile.audit()),
        *values,
    ]

    assert [] == [word for name in names for word in name.split() if word not in output.split()]
    assert not [line for line in output.splitlines() if len(line.rstrip()) > columns]


def test_empty_profile_fits_a_screen() -> None:
    """Without a profile and keys, `doctor` needs at most 80 columns and 40 lines, with the line of the next prompt."""
    shown = run(columns=80).output.splitlines()

    assert len(shown) < 40
    assert max(len(line.rstrip()) for line in shown) <= 80


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

    assert (0, "my-gateway", toml) == (result.exit_code, document["profile"], document["source"])
    assert [each.group for each in inspect_groups(Profile())] == [each["group"] for each in document["groups"]]
    assert {"thing": "how to query it", "keys": ["status.payment.name"]} in document["groups"][0]["missing"]
    assert (False, False) == (document["groups"][0]["ready"], document["groups"][0]["begun"])
    assert ("PAYASYNC_MERCHANT_ID", "fine") == tuple(document["findings"][0].values())[:2]
    assert [each.name for each in Profile.from_file(toml).audit()] == [each["name"] for each in document["points"]]
    assert CANARY not in result.output


def test_json_of_every_value() -> None:
    """Each value of a profile is JSON, parts of it too."""
    whole = Path(__file__).parents[1] / "profile" / "whole_profile.toml"
    points = {
        each["name"]: each["value"] for each in json.loads(run("--profile", str(whole), "--json").output)["points"]
    }

    assert {"name": "outTradeNo", "place": "path"} == points["payment_status"]


def test_values_are_shown_in_words() -> None:
    """Tables, lists and parameters are written for people, not as Python writes them."""
    output = " ".join(lines(run("--all", environ={"PAYASYNC_PROFILE": "sandbox"})))

    assert "pending: SBX_PENDING; paid: SBX_PAID; " in output
    assert "payment: outTradeNo, status; refund: outRefundNo, status; " in output
    assert "status.payment.name outTradeNo, in the query" in output


ELSEWHERE: Final = """
status.payment.name = "charge"
status.refund.name = "refund_no"
[endpoints."payments.status"]
path = "/charges/{identifier}"
[endpoints."refunds.status"]
method = "POST"
path = "/refunds/find"
place = "body"
with = ["out_trade_no"]
[endpoints."orders.query"]
method = "GET"
"""


def test_endpoints_are_shown_in_words(tmp_path: Path) -> None:
    """An endpoint is shown by its method, path and place. So is an identifier, by its key, at its place."""
    path = tmp_path / "service.toml"
    path.write_text(ELSEWHERE)

    assert {
        "answered endpoints.payments.status GET /charges/{identifier} payments.status",
        "answered endpoints.refunds.status POST /refunds/find, in the body, with out_trade_no refunds.status",
        "answered endpoints.orders.query GET /payment/orderquery orders.query",
        "answered status.payment.name charge, in the path payments.status",
        "answered status.refund.name refund_no, in the body refunds.status, .create",
    } <= set(lines(run("--profile", str(path), "--all")))


def test_compared_fields_have_one_line() -> None:
    """Each assumed point about responses has its name and its value on one line."""
    wires = ("out_trade_no outTradeNo", "total_amt totalAmt", "merchant_id merchantId")

    assert {f"assumed answer.{each}" for each in wires} <= set(lines(run("--all", columns=80)))


def test_empty_path_is_explained(tmp_path: Path) -> None:
    """An empty path means that a field is not compared, and the table says so."""
    path = tmp_path / "service.toml"
    path.write_text('answer.currency = ""\nanswer.total_amt = "money.total"\n')
    shown = "\n".join(lines(run("--profile", str(path), "--all")))

    assert "\nanswered answer.currency currency is not compared" in shown
    assert "\nanswered answer.total_amt money.total " in shown


def summary(result: Result) -> list[str]:
    """Return the first section of the output, without its title, each line with single spaces."""
    title, *found = "\n".join(lines(result)).strip().split("\n\n")[0].splitlines()
    assert "In short" == title
    return found


def marks(result: Result, mark: str) -> list[str]:
    """Return the lines below the summary that begin with a mark."""
    return [line for line in lines(result)[len(summary(result)) + 2 :] if line.split()[:1] == [mark]]


def test_what_is_left_to_do_stands_first(toml: str) -> None:
    """The output begins with the missing variables, and the number of groups that are not ready."""
    missing, unanswered = summary(run("--profile", toml, columns=1000))

    unset = "PAYASYNC_MERCHANT_ID, PAYASYNC_SECRET_KEY, PAYASYNC_SIGNING_KEY, PAYASYNC_BASE_URL"
    assert f"missing 4 set {unset}" == missing
    assert f"open 6 set in {toml} what your calls need: see below" == unanswered


def test_what_is_wrong_stands_before_what_is_missing() -> None:
    """Errors are listed before missing settings. Without a profile, the summary says how to give one."""
    environ = {"PAYASYNC_MERCHANT_ID": "M1"}
    wrong, missing, unanswered = summary(run("--base-url", "http://127.0.0.1:1", environ=environ))

    assert "wrong 1 correct Connection: see below" == wrong
    assert "missing 2 set PAYASYNC_SECRET_KEY, PAYASYNC_SIGNING_KEY" == missing
    assert " no profile is given. Give --profile FILE, or set PAYASYNC_PROFILE; for the sandbox, the word sandbox" in (
        unanswered
    )
    assert unanswered.endswith(". To write a file: payasync profile init")


def test_nothing_is_left_to_do() -> None:
    """If nothing is missing or wrong, the summary says so. The service gets a connection, and no request."""
    with ThreadedSandbox() as sandbox:
        result = run("--base-url", sandbox.url, environ={**KEYS, "PAYASYNC_PROFILE": "sandbox"})
        seen = list(sandbox.timeline())
    (fine,) = summary(result)

    assert (0, []) == (result.exit_code, seen)
    assert "accepted a connection in" in result.output
    assert f"ok {len(marks(result, 'ok'))} nothing is missing or wrong" == fine
    assert not [line for line in lines(result) if line.startswith("open")]


def test_counts_are_those_of_the_lines_below(tmp_path: Path) -> None:
    """The summary counts the lines below that begin with its words."""
    toml = tmp_path / "service.toml"
    toml.write_text(evolve(PROFILE, recovery=Recovery()).to_toml())
    with ThreadedSandbox() as sandbox:
        result = run("--profile", str(toml), "--base-url", sandbox.url, environ=KEYS)
    counts = [line.split()[:2] for line in summary(result)]

    assert ["ok", "open"] == [word for word, _ in counts]
    assert [] == [word for word, count in counts if int(count) != len(marks(result, word))]


def test_rows_hold_no_blanks_at_their_ends() -> None:
    """On 80 columns, no row ends with blanks, and the time of the connection stands on the line of its name."""
    with ThreadedSandbox() as sandbox:
        settings = {**KEYS, "PAYASYNC_PROFILE": "sandbox"}
        result = run("--base-url", sandbox.url, environ=settings, columns=80)
        every = run("--all", environ=settings, columns=80)
    shown = [*result.output.splitlines(), *every.output.splitlines()]

    assert [] == [line for line in shown if line != line.rstrip()]
    assert [1] == [len(re.findall(r"accepted a connection in \d+ ms:", line)) for line in shown if "accepted" in line]


def test_missing_profile_is_missing() -> None:
    """Without a profile, the summary does not say that nothing is missing."""
    with ThreadedSandbox() as sandbox:
        result = run("--base-url", sandbox.url, environ=KEYS)

    assert ["open"] == [line.split()[0] for line in summary(result)]


def test_word_for_the_profile_of_the_sandbox() -> None:
    """`--profile sandbox` names the sandbox's own profile, as `PAYASYNC_PROFILE=sandbox` does."""
    documents = [
        json.loads(run(*given, "--json", environ=environ).stdout)
        for given, environ in (
            (("--profile", "sandbox"), KEYS),
            ((), {**KEYS, "PAYASYNC_PROFILE": "sandbox"}),
        )
    ]

    assert documents[0] == documents[1]
    assert "the sandbox's own" == documents[0]["source"]


def test_profile_of_the_environment(toml: str) -> None:
    """Without `--profile`, `doctor` uses the profile that `Session.from_env` would use."""
    assert "my-gateway" in run(environ={"PAYASYNC_PROFILE": toml}).output
    assert PROFILE.name in run(environ={"PAYASYNC_PROFILE": "sandbox"}).output
    assert "unnamed" in run().output


def test_invalid_profile(tmp_path: Path) -> None:
    """A file with an unknown key ends with exit code 2, and one line that names the key and its line."""
    path = tmp_path / "wrong.toml"
    path.write_text('name = "x"\nsignatur = 1\n')

    result = run("--profile", str(path))

    assert (2, 1) == (result.exit_code, len(result.stderr.splitlines()))
    assert (True, True) == ("signatur" in result.stderr, "line 2" in result.stderr)


def test_no_key_is_shown() -> None:
    """The output says whether a key is set, and shows no part of it."""
    result = run(environ={**KEYS, "PAYASYNC_PROFILE": "sandbox"})

    assert {"ok PAYASYNC_SIGNING_KEY set", "ok PAYASYNC_NOTIFICATION_KEYS set"} <= set(lines(result))
    assert not [key for key in ("canary", "Y2FuYXJ5") if key in result.output]


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
    assert [
        (
            "wrong PAYASYNC_SIGNING_KEY credentials.signing_key is not a private key for rsa-sha256: it is a public "
            "key. Give the private key that belongs to it"
        ),
        (
            "wrong PAYASYNC_SERVICE_KEYS credentials.service_keys: key 2 is not a public key for rsa-sha256: it is a "
            "private key. Give the public key that the service shows; credentials.service_keys: key 3 is not a public "
            "key for rsa-sha256: it must be PEM, or base64 of SubjectPublicKeyInfo"
        ),
    ] == told
    assert "wrong 2 correct PAYASYNC_SIGNING_KEY, PAYASYNC_SERVICE_KEYS: see below" in summary(result)
    assert "canary" not in result.output


@pytest.mark.parametrize(
    ("more", "field", "mended"),
    [
        ({"answer.signature": "data.sign", "answer.data": "data"}, "answer.signature", True),
        ({"notification.verification": "body", "notification.signature": "sign"}, "notification.kind", True),
        ({"answer.signature": "data.sign", "answer.refund_status": "state"}, "answer.refund_status", False),
    ],
    ids=["response", "notification", "not covered"],
)
def test_what_anybody_could_write(tmp_path: Path, more: dict[str, str], field: str, *, mended: bool) -> None:
    """If a profile would believe an echoed request or an unsigned state, it is "wrong", and the exit code is 1."""
    toml = tmp_path / "service.toml"
    words = {"signature.algorithm": "hmac-sha256", "signature.encoding": "hex", **more}
    toml.write_text("\n".join(f'{key} = "{word}"' for key, word in words.items()))
    result, _ = with_keys(str(toml))
    others, _ = with_keys(str(toml), service_keys=f"{CANARY}-of-the-service", notification_keys=f"{CANARY}-of-events")

    assert any(line.startswith(f"wrong {field} ") for line in lines(result))
    assert (1, mended) == (result.exit_code, others.exit_code == 0)


def test_shorter_rsa_keys_are_a_warning(tmp_path: Path) -> None:
    """A profile that allows RSA keys of fewer than 2048 bits is a warning, and an answered point of the audit."""
    toml = tmp_path / "service.toml"
    toml.write_text('signature = {algorithm = "rsa-sha256", encoding = "hex", min_rsa_bits = 1024}')
    result, _ = with_keys(str(toml))
    points = {point.name: (point.status, point.value) for point in Profile.from_file(toml).audit()}

    words = "is 1024: keys of fewer than 2048 bits could be broken. Ask the service for longer ones"
    assert f"warning signature.min_rsa_bits {words}" in lines(result)
    assert ("answered", 1024) == points["signature.min_rsa_bits"]
    assert "signature.min_rsa_bits" not in {point.name for point in Profile().audit()}


def test_short_secret_is_a_warning(toml: str) -> None:
    """A shared secret of 8 to 15 characters is a warning; a shorter one is "wrong"."""
    warned, told = with_keys(toml, signing_key="canary-123")
    wrong, _ = with_keys(toml, signing_key="canary1")

    short = "credentials.signing_key has fewer than 16 characters, and could be guessed: ask for a longer one"
    assert [f"warning PAYASYNC_SIGNING_KEY {short}"] == told
    assert "warning 1 correct PAYASYNC_SIGNING_KEY: see below" in summary(warned)
    assert (0, 1) == (warned.exit_code, wrong.exit_code)


@pytest.mark.parametrize("name", ["merchant_id", "secret_key", "signing_key", "service_keys"])
def test_quotes_around_a_key_are_wrong(toml: str, name: str) -> None:
    """A value with a line end at its end is fine, because it is removed; one with quotes around it is "wrong"."""
    variable = f"PAYASYNC_{name.upper()}"
    ended, quoted = (
        run("--profile", toml, environ={**KEYS, variable: each}, columns=1000)
        for each in (f"{CANARY}\r\n", f'"{CANARY}"')
    )

    assert (0, [f"ok {variable}"]) == (
        ended.exit_code,
        [" ".join(each.split()[:2]) for each in marks(ended, "ok") if variable in each],
    )
    assert [
        f"wrong {variable} {variable} has quotes around it, which would be part of the value: remove them"
    ] == marks(quoted, "wrong")
    assert (1, False) == (quoted.exit_code, CANARY in quoted.output)


def test_secret_of_standard_webhooks_is_tried() -> None:
    """A notification key that a receiver would refuse is "wrong"."""
    environ = {**KEYS, "PAYASYNC_PROFILE": "sandbox", "PAYASYNC_NOTIFICATION_KEYS": "whsec_Y2FuYXJ5"}
    result = run(environ=environ, columns=1000)
    wrong = "wrong PAYASYNC_NOTIFICATION_KEYS credentials.notification_keys: key 1 must be whsec_"

    assert (1, True) == (result.exit_code, any(line.startswith(wrong) for line in lines(result)))


@pytest.mark.parametrize("verification", ["body", "header", "none"])
def test_secret_that_is_not_used(tmp_path: Path, verification: str) -> None:
    """A secret of Standard Webhooks is "not used" if notifications are verified otherwise."""
    toml = tmp_path / "service.toml"
    more = {"body": '\nsignature = "sign"', "header": '\nheader.signature = "X-Signature"'}
    toml.write_text(f'[notification]\nverification = "{verification}"{more.get(verification, "")}')
    reason = f'notification.verification is "{verification}"'

    assert f"ok PAYASYNC_NOTIFICATION_KEYS set, and not used: {reason}" in lines(
        run("--profile", str(toml), environ=KEYS)
    )


def test_each_variable_is_inspected() -> None:
    """Each variable is inspected, even if others are missing or wrong."""
    environ = {
        "PAYASYNC_SECRET_KEY": " ",
        "PAYASYNC_PUBLIC_KEY": CANARY,
        "PAYASYNC_PUBLIC_KEY_FILE": "/nowhere",
        "PAYASYNC_SERVICE_KEYS": CANARY,
        "PAYASYNC_NOTIFICATION_KEYS_FILE": "/nowhere",
    }
    found = [(each.name, each.verdict) for each in doctor.inspect_credentials(Profile(), environ)]
    merchants = [
        next(iter(doctor.inspect_credentials(Profile(), {**environ, doctor.MERCHANT_ID: each}))).verdict
        for each in ("", "M1")
    ]

    assert [
        ("PAYASYNC_MERCHANT_ID", "missing"),
        ("PAYASYNC_SECRET_KEY", "wrong"),
        ("PAYASYNC_PUBLIC_KEY", "wrong"),
        ("PAYASYNC_SIGNING_KEY", "missing"),
        ("PAYASYNC_SERVICE_KEYS", "fine"),
        ("PAYASYNC_NOTIFICATION_KEYS_FILE", "wrong"),
    ] == found
    assert ["wrong", "fine"] == merchants


@pytest.mark.parametrize(
    ("value", "missing"),
    [
        ("Basic {basic}", ["PAYASYNC_SECRET_KEY", "PAYASYNC_PUBLIC_KEY"]),
        ("{public_key}", ["PAYASYNC_PUBLIC_KEY"]),
        ("{merchant_id}", []),
    ],
)
def test_keys_of_headers_are_missing(value: str, missing: list[str]) -> None:
    """A key is missing only if a header of the profile holds it; the finding names the methods that need it."""
    profile = Profile(auth=Auth(value=value), signed=())
    found = list(doctor.inspect_credentials(profile, {"PAYASYNC_MERCHANT_ID": "M1"}))[1:]

    expected = [(name, "missing", "not set: needed by payments.create") for name in missing]
    assert expected == [(each.name, each.verdict, each.words) for each in found]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ((), {"SERVICE_KEYS": "not set: needed by notifications. PAYASYNC_SIGNING_KEY serves, too"}),
        (("SERVICE_KEYS",), {"SERVICE_KEYS": "set"}),
        (("SIGNING_KEY",), {"SIGNING_KEY": "set"}),
    ],
    ids=["neither", "the service's", "the merchant's"],
)
def test_either_key_verifies(keys: tuple[str, ...], expected: dict[str, str]) -> None:
    """A service that signs notifications alone, with a shared secret, needs one of two keys; either is enough."""
    signing = 'signature = {algorithm = "hmac-sha256", encoding = "hex"}\n'
    header = 'notification = {verification = "header", header = {signature = "X-Signature"}}\n'
    profile = Profile.from_toml(f"signed = []\nbearer = []\n{signing}{header}")
    environ = {"PAYASYNC_MERCHANT_ID": "M1", **{f"PAYASYNC_{name}": CANARY for name in keys}}
    found = list(doctor.inspect_credentials(profile, environ))[1:]

    assert {f"PAYASYNC_{name}": words for name, words in expected.items()} == {
        each.name: each.words for each in found if each.name.startswith("PAYASYNC_")
    }


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


@pytest.mark.parametrize(
    ("url", "why"),
    [("http://127.0.0.1:1", "http://127.0.0.1:1: connection refused"), ("http://pay.example.com", "must be https")],
)
def test_service_that_cannot_be_reached(url: str, why: str) -> None:
    """If the host refuses the connection, or a session would refuse its address, the exit code is 1."""
    result = run("--base-url", url)

    assert 1 == result.exit_code
    (found,) = (line for line in lines(result) if line.startswith("wrong Connection "))
    assert why in found
    assert ("refused" in why) == ("and that the service runs. To start the sandbox, run: payasync sandbox" in found)


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
    """An untrusted certificate is "wrong"; for a trusted one the protocol is shown."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    distrusted = await greeted(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    trusted = await greeted(context)

    assert "wrong" == distrusted.verdict
    assert "the certificate of the service cannot be trusted (" in distrusted.words
    assert distrusted.words.endswith("trust this CA by tls= or SSL_CERT_FILE")
    assert "fine" == trusted.verdict
    assert "TLSv1.3" in trusted.words


async def test_client_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the service hangs up after the handshake, as without a client certificate, the doctor says so as a warning."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    found = await greeted(context)

    assert "warning" == found.verdict
    assert found.words.startswith("accepted a connection, and closed it after the TLS handshake: https://127.0.0.1:")
    assert ". If the service demands a client certificate, load it into the tls= of your program's" in found.words


async def test_silent_host() -> None:
    """If a TLS handshake gets no response, it ends with the timeout."""
    found = await greeted(None)

    assert "wrong" == found.verdict
    assert "no connection within 0.05 s" in found.words


async def test_host_name_that_does_not_exist() -> None:
    """The doctor says in words that a host name does not resolve."""
    found = await doctor.inspect_connection("https://no-such-host.invalid")

    assert ("wrong", "https://no-such-host.invalid: the host name does not resolve") == (found.verdict, found.words)


async def test_proxy_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment is mentioned, because a session does not use it by default."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with Sandbox() as sandbox:
        found = await doctor.inspect_connection(sandbox.url)

    assert "fine" == found.verdict
    assert "the environment names a proxy" in found.words


@pytest.mark.parametrize("text", ['[signature]\nencoding = "hex"', TEMPLATE])
def test_open_algorithm_is_a_point_and_no_failure(tmp_path: Path, text: str) -> None:
    """While the algorithm is open, nobody knows whether the service has a key of its own."""
    path = tmp_path / "service.toml"
    path.write_text(text)
    result = run("--profile", str(path), environ=KEYS)

    assert 0 == result.exit_code
    assert "signature.algorithm" in result.output
