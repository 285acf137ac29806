"""`payasync profile`: it writes a file with each key of a profile, and says what a profile is ready for."""

import stat
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner, Result

from payasync import Profile
from payasync.cli.commands import payasync


def run(*arguments: str | Path) -> Result:
    """Run a subcommand without a terminal."""
    return CliRunner().invoke(payasync, ["profile", *map(str, arguments)], env={"COLUMNS": "200"})


def test_init_asks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal and any input, `init` writes a file that only its owner can read, and names the next step.

    With `--force`, it replaces a file; the content of a hard link to it stays.
    """
    monkeypatch.chdir(tmp_path)
    file, link = tmp_path / "service.toml", tmp_path / "link"
    result = run("init")
    made = Profile.from_file(file), stat.S_IMODE(file.stat().st_mode), list(tmp_path.iterdir())
    file.write_text('name = "old"\n')
    file.chmod(0o644)
    link.hardlink_to(file)
    again = run("init", file, "--force")

    assert [(0, ""), (0, "")] == [(each.exit_code, each.stderr) for each in (result, again)]
    assert result.stdout.endswith("   payasync profile check service.toml\n")
    assert (Profile(), 0o600, [file]) == made
    assert (Profile(), "old") == (Profile.from_file(file), Profile.from_file(link).name)
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)


def test_file_that_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`init` refuses a file that exists. Also with `--force` it refuses a link, a file of others, a missing folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("old.toml", "shared.toml"):
        (tmp_path / name).write_text("")
    (tmp_path / "shared.toml").chmod(0o666)
    (tmp_path / "link.toml").symlink_to("old.toml")
    (tmp_path / "nowhere.toml").symlink_to("none.toml")
    refused = {
        "old.toml": "'old.toml' exists. Name another file, or replace it with --force",
        "link.toml --force": "'link.toml' is a symbolic link, and links are not followed",
        "nowhere.toml": "'nowhere.toml' is a symbolic link, and links are not followed",
        "shared.toml --force": "other users can write 'shared.toml'",
        "none/my.toml --force": "there is no folder 'none': create it first",
    }
    for arguments, words in refused.items():
        result = run("init", *arguments.split())

        assert (2, "", True) == (result.exit_code, result.stdout, words in " ".join(result.stderr.split()))
    assert {""} == {(tmp_path / name).read_text() for name in ("old.toml", "shared.toml")}
    assert not (tmp_path / "none.toml").exists()


def check(folder: Path, toml: str) -> Result:
    """Run `check` on a file with this text."""
    file = folder / "my.toml"
    file.write_text(toml)
    return run("check", file)


def test_check(tmp_path: Path) -> None:
    """`check` shows each group. The exit code is 1 if a group that the file begins to describe is not ready.

    The word `sandbox` names the sandbox's own profile, as in `PAYASYNC_PROFILE`.
    """
    webhooks = 'notification = {verification = "standard-webhooks", ack_status = 200}'
    begun = 'answer.order_status = "s"\nstates.refund.failed = ["F"]'
    cases = {"": (0, "Ready for nothing yet."), 'name = "x"': (0, "Ready for nothing yet.")}
    cases |= {webhooks: (0, "Ready: notifications"), begun: (1, "Begun, and not ready: orders, refunds")}
    for toml, (code, words) in cases.items():
        result = check(tmp_path, toml)
        groups = [line.split()[1] for line in result.output.splitlines() if line.startswith(("ok ", "open "))]

        assert (code, True) == (result.exit_code, words in result.output), result.output
        assert ["payments", "orders", "refunds", "subscriptions", "recovery", "notifications"] == groups
    result = run("check", "sandbox")
    assert (0, 6) == (result.exit_code, result.output.count(" ready\n"))


def facts(tmp_path: Path, toml: str) -> dict[str, str]:
    """Return what `check` says of each kind of notification and of the two times."""
    _, _, shown = check(tmp_path, toml).output.partition("\nNotifications\n")
    lines, _, _ = shown.partition("\n\n")
    pairs = (line.split(maxsplit=1) for line in lines.splitlines())
    return {name: words for name, words in pairs}  # noqa: C416 - mypy knows no length of these lists


IN_HEADER: Final = 'notification.verification = "header"\nnotification.header.signature = "X-Sign"\n'
IN_BODY: Final = 'notification.verification = "body"\nnotification.signature = "sign"\n'
WEBHOOKS: Final = 'notification.verification = "standard-webhooks"\n'
UNSIGNED: Final = 'notification.verification = "none"\n'
RSA: Final = 'signature = {algorithm = "rsa-sha256", encoding = "base64"}\n'
SHARED: Final = RSA.replace("}", ', service_key = "shared"}')
NUMBERS: Final = 'notification.out_trade_no = "outTradeNo"\nnotification.out_refund_no = "outRefundNo"\n'
IN_DATA: Final = f'{NUMBERS}notification.data = "data"\n'
EXCLUDED: Final = RSA.replace("}", ', exclude = ["sign", "merchantId"]}')
ASSUMED: Final = RSA + IN_HEADER
SHARING: Final = "all merchants share its key (assumed)"
PARKED: Final = "it is parked, because no query confirms it"
BY_PATH: Final = "bound to this merchant by {}, if the event has it; else"
BY_NOTHING: Final = f"{SHARING}, and nothing signed names this merchant:"
BY_GIVEN_KEY: Final = "bound to this merchant by its key, which no other merchant has"
BY_KEY: Final = f'{BY_GIVEN_KEY} (assumed). If all merchants share the key, set signature.service_key = "shared"'
ALIKE: Final = {
    ASSUMED: f"{SHARING}: {BY_PATH.format('merchantId')} {PARKED}",
    ASSUMED + 'notification.header.text = "{merchant_id}{body}"': (
        "bound to this merchant by its number, which is in the signed text"
    ),
    RSA.replace("}", ', service_key = "merchant"}') + IN_HEADER: BY_GIVEN_KEY,
    ASSUMED + NUMBERS + 'endpoints."orders.query".number = "service"': (
        f"{SHARING}: {BY_PATH.format('merchantId')} {PARKED}"
    ),
    RSA.replace("rsa", "hmac") + IN_BODY: BY_KEY,
    RSA + WEBHOOKS: BY_KEY,
    SHARED + WEBHOOKS: f"all merchants share its key: {BY_PATH.format('merchantId')} {PARKED}",
}
"""By a profile, what `check` says of a payment and of a subscription."""
QUERIED: Final = {
    ASSUMED + NUMBERS: f"{SHARING}: {BY_PATH.format('merchantId')}",
    ASSUMED + NUMBERS + 'notification.merchant_id = ""': BY_NOTHING,
    EXCLUDED + IN_BODY + NUMBERS: BY_NOTHING,
    ASSUMED + IN_DATA: f"{SHARING}: {BY_PATH.format('data.merchantId or merchantId')}",
    ASSUMED + IN_DATA + 'notification.merchant_id = "id"': f"{SHARING}: {BY_PATH.format('data.id')}",
    UNSIGNED + NUMBERS: "not signed, so nothing binds it to this merchant:",
}
"""The same, if a query confirms a payment but no subscription."""


def test_check_says_what_binds_a_notification(tmp_path: Path) -> None:
    """`check` says for each kind what binds it to this merchant, or else whether a query decides or it is parked.

    As long as nobody knows how notifications are signed, it says nothing of it.
    """
    expected = {toml: (words, words) for toml, words in ALIKE.items()}
    expected |= {toml: (f"{words} payasync asks the service", f"{words} {PARKED}") for toml, words in QUERIED.items()}
    for toml, words in expected.items():
        found = facts(tmp_path, toml)

        assert words == (found["payment"], found["subscription"]), toml
        assert ["payment", "refund", "subscription", "time", "event_time"] == list(found)
    assert [{}] * 3 == [facts(tmp_path, toml) for toml in ("", IN_HEADER, 'notification.data = "data"')]


def test_check_lists_paths_that_begin_in_the_payload_twice(tmp_path: Path) -> None:
    """A path in the payload that begins with the payload's own place would most often lead nowhere."""
    toml = """
notification.data = "body.data"
notification.time = "body.data.at"
notification.merchant_id = "body.data.no"
notification.id.payment = ["body.data.id", "type"]
notification.tells.refund = "body.data.state"
notification.must."body.data.live" = true
"""
    found = facts(tmp_path, f"{WEBHOOKS}{toml}")
    paths = {f"body.data.{name}" for name in ("no", "id", "state", "live")}

    assert paths == {name for name in found if name.startswith("body")}
    for path in paths:
        assert f"means body.data.{path}. If there is no such value, leave out body.data and its dot" == found[path]


TELLING: Final = 'notification.tells.refund = "refundStatus"\n'
OF_EVENT: Final = "the event's own time, which is shown and never judged"
RULE: Final = "the time of the delivery, new in each, and at most 300 seconds off"


def test_check_says_what_each_time_is(tmp_path: Path) -> None:
    """`check` says which time is judged, and names the event's own; it lists only kinds that the profile has."""
    paid_at, not_judged = 'notification.time = "paidAt"\n', f"not judged. notification.time is for {RULE}"
    cases = {
        ASSUMED + paid_at: (f"paidAt is {RULE}", "not given"),
        ASSUMED: (not_judged, "not given"),
        UNSIGNED + paid_at: (not_judged, "not given"),
        WEBHOOKS + 'notification.event_time = "paidAt"\n': (f"webhook-timestamp is {RULE}", "paidAt"),
    }
    for toml, (time, event_time) in cases.items():
        expected = {"time": time, "event_time": f"{event_time}: {OF_EVENT}"}
        found = facts(tmp_path, toml + TELLING)

        assert (expected, {"refund", "time", "event_time"}) == ({name: found[name] for name in expected}, {*found})


def test_check_names_what_the_sandbox_needs(tmp_path: Path) -> None:
    """If the sandbox could not play the service, `check` says in one line what it needs. The exit code stays."""
    toml = (
        'signed = []\nbearer = []\nmerchant = []\n[answer]\ncode = "c"\nok = ["0"]\n'
        '[codes]\nduplicate = ["1"]\nabsent = ["2"]\n[http]\nnot_executed = []\n[sandbox.codes]\ninvalid = "3"\n'
    )
    shown = " ".join(check(tmp_path, toml).output.split())

    keys = "sandbox.codes.wrong_state, sandbox.codes.already_paid, sandbox.codes.refund_mismatch"
    assert f"Optional: the sandbox needs {keys}, because it sends refusals inside HTTP 200" in shown
    assert "Optional: the sandbox" not in check(tmp_path, "").output


def test_check_of_an_invalid_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a file is invalid, one line names the key, the line of the file and the rule, and the exit code is 2.

    A path such as `./sandbox` is a file, and not the word for the sandbox's own profile.
    """
    monkeypatch.chdir(tmp_path)
    signed = '[answer]\nsignature = "data.sign"\norder_status = "state"\n[signature]\nalgorithm = "hmac-sha256"'
    cases = {
        "signatur = 1": "sandbox, line 1: signatur is unknown: did you mean signature?",
        '\n[answer]\ncode = "code"': "sandbox, line 2: answer.ok must list the codes that mean success",
        "name = x": "sandbox, line 1: not TOML",
        signed: "line 3: answer.order_status is 'state', which the signature at 'data.sign' does not cover",
    }
    missing = run("check", "./sandbox")
    for toml, words in cases.items():
        Path("sandbox").write_text(toml)
        result = run("check", "./sandbox")

        assert (2, "", 1) == (result.exit_code, result.stdout, len(result.stderr.splitlines()))
        assert words in result.stderr
    assert (2, 1, True) == (missing.exit_code, missing.stderr.count("\n"), "sandbox" in missing.stderr)
