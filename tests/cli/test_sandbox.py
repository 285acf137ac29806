"""`payasync sandbox`: the command as a process, from its start-up lines to its end."""

import io
import json
import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
from attrs import evolve
from click.testing import CliRunner
from rich.console import Console

from payasync import SortedPairs
from payasync.cli.commands import payasync
from payasync.cli.sandbox import LogScreen, SandboxScreen, refund_setting
from payasync.sandbox import PROFILE
from payasync.sandbox.model import Entry
from payasync.sandbox.webhooks import Delivery
from tests.chaos.forked import Forked
from tests.cli.sandbox_process import Ended, ended, fact, free_address, lines, order_paid, post, running, serving

SECONDS: Final = 30
KEY_PAIRS: Final = SortedPairs(algorithm="ed25519", encoding="base64")


def test_start_says_what_it_is_and_where() -> None:
    """The first lines name the address, the URLs to open, the profile, the clock and the database.

    Without a terminal there are no colours, and no line is broken.
    """
    with running("--port", "0", "--clock", "frozen", "--profile", "sandbox") as process:
        shown = lines(process, "Ctrl-C")
    facts = dict(line.split(maxsplit=1) for line in shown if line.startswith("  "))
    url = facts["Listens"].split()[0]

    assert shown[0].startswith("payasync sandbox ")
    assert "no money moves" in shown[0]
    assert url.startswith("http://127.0.0.1:")
    assert facts["Dashboard"].startswith(f"{url}/?token=")
    assert (f"{url}/openapi.json", "payasync-sandbox, the sandbox's own") == (facts["OpenAPI"], facts["Profile"])
    assert ("frozen", "succeed immediately") == (facts["Clock"], facts["Refunds"])
    assert facts["Database"].startswith("in memory;")
    assert "\x1b" not in "".join(shown)
    assert [] == [line for line in shown if line.startswith("export ") and "=" not in line]
    assert not [line for line in shown if "PAYASYNC_SERVICE_KEYS" in line]


@pytest.mark.parametrize(
    "signature", [pytest.param(PROFILE.signature, marks=pytest.mark.long), KEY_PAIRS], ids=["shared key", "key pairs"]
)
def test_lines_to_paste_work_in_a_shell(signature: SortedPairs, tmp_path: Path) -> None:
    """The `export` lines, pasted into a shell, give a command all settings, even keys of many lines."""
    file = tmp_path / "it's mine.toml"
    file.write_text(evolve(PROFILE, name="mine", signature=signature).to_toml())
    with running("--port", "0", "--profile", str(file)) as process:
        shown = lines(process, "Ctrl-C")
        first = next(place for place, line in enumerate(shown) if line.startswith("export "))
        place = 'exec "$0" -W error -m payasync order place --total-amt 450 --currency CAD --yes --json'
        command = ["/bin/sh", "-c", "\n".join([*shown[first:-1], place]), sys.executable]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)

    assert "pending" == json.loads(done.stdout)["state"]


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_signal_ends_it_cleanly(number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM end the sandbox with exit code 0 and no error, also while a client is connected.

    The port is free immediately. With `--quiet` no request is shown.
    """
    with running("--port", "0", "--quiet") as process:
        url = urlsplit(fact(lines(process, "Ctrl-C"), "Listens"))
        status = post(f"{url.geturl()}/nothing", b"{}")[0]
        with socket.create_connection((url.hostname, url.port)) as idle:
            idle.sendall(b"POST /v1/payments HTTP/1.1\r\n")
            process.send_signal(number)
            end = ended(process)
    socket.create_server(("127.0.0.1", int(url.port or 0))).close()

    assert (404, 0, "The sandbox has stopped.", "") == (status, end.code, end.out.strip(), end.err)


def test_fault_that_still_waits_is_no_failure() -> None:
    """A fault that was armed on the dashboard and never fired does not fail the command. `--json` prints one line."""
    with serving() as sandbox:
        form = {
            "Authorization": f"Bearer {sandbox.told['admin_token']}",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        assert 200 == post(f"{sandbox.url}/admin/faults/arm", b"kind=latency&on=orders.place", form)[0]
        assert 404 == post(f"{sandbox.url}/nothing", b"{}")[0]
        end = sandbox.end()

    assert Ended(0, "", "") == end


WRONG: Final = {
    "--host 0.0.0.0": ["host", "0.0.0.0", "127.0.0.1"],  # noqa: S104 - it must be refused
    "--host example.com": ["host", "example.com"],
    "--port 70000": ["port", "70000", "65535"],
    "--clock soon": ["clock", "soon", "frozen"],
    "--refunds later": ["refunds", "later", 'succeed, fail, "by hand"', "30s"],
    "--refunds 0s": ["refunds", "0s", "30s"],
    "--profile missing.toml": ["--profile: ", "missing.toml"],
    "--profile ./sandbox --port 70000": ["--profile: "],  # a file, not the word for the own profile
    "--profile wrong.toml": ["wrong.toml", "line 2", "colour"],
    "--db wrong.toml": ["db", "wrong.toml"],
    "--db nowhere/sbx.db": ["db", "nowhere"],
}


def test_wrong_option_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong option is reported by name in one line, and the exit code is 2."""
    (tmp_path / "wrong.toml").write_text('name = "mine"\ncolour = "red"\n')
    monkeypatch.chdir(tmp_path)
    for arguments, words in WRONG.items():
        end = CliRunner().invoke(payasync, ["sandbox", "--port", "0", *arguments.split()])

        assert (2, "", 1) == (end.exit_code, end.stdout, end.stderr.count("\n"))
        assert end.stderr.startswith("payasync sandbox: ")
        assert [] == [word for word in words if word not in end.stderr]


def test_each_request_and_notification_is_a_line() -> None:
    """Each request has a line with status, operation and time; each delivery attempt with its result and what follows.

    Control characters are replaced. `--refunds fail` lets each refund fail immediately.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = f"http://127.0.0.1:{free.getsockname()[1]}/notify"
    with running("--port", "0", "--refunds", "fail") as process:
        exports = [shlex.split(line)[1] for line in lines(process, "Ctrl-C") if line.startswith("export ")]
        environ = dict(each.split("=", 1) for each in exports)
        url = environ["PAYASYNC_BASE_URL"]
        post(f"{url}/%1b%5b2J", b"{}")
        unknown = lines(process, "/?[2J")[-1]
        order_paid(environ, "T1", f"{closed}?token=canary")
        *others, first = lines(process, "notify payment.paid T1")
        order_paid(environ, "T2", f"{url}/notify")
        second = lines(process, "notify payment.paid T2")[-1].partition("  ")[2]
        amounts = ("--total-amt", "450", "--refund-amt", "100")
        refund = CliRunner().invoke(
            payasync, ["refund", "create", "--out-trade-no", "T1", *amounts, "--yes", "--json"], env=environ
        )

    assert "failed" == json.loads(refund.stdout)["state"]
    assert ["404", "POST"] == unknown.split()[1:3]
    assert any(line.split()[1:3] == ["200", "orders.place"] and " ms " in line for line in others)
    assert first.partition("  ")[2].startswith("-   notify payment.paid T1: connection refused; again at ")
    assert first.endswith(f"  {closed}?…")
    assert second.startswith("404 notify payment.paid T2: answered 404, which does not acknowledge; again at ")


@pytest.mark.parametrize(
    "options", [(), *(pytest.param((each,), marks=pytest.mark.long) for each in ("--quiet", "--json"))]
)
def test_goes_on_where_nothing_can_be_written(tmp_path: Path, options: tuple[str, ...]) -> None:
    """If its output cannot be written, or nobody reads it, the sandbox continues, and ends without an error."""
    reader, closed = os.pipe()
    os.close(reader)
    for output in (os.open("/dev/full", os.O_WRONLY), closed):
        host, port = free_address()
        arguments = ("payasync", "sandbox", "--host", host, "--port", port, *options)
        with Forked(*arguments, streams={1: output}, folder=tmp_path) as process:
            os.close(output)
            while not (statuses := asked(host, int(port))):
                assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            end = ended(process)

        assert ([404] * 3, 0, "") == (statuses, end.code, end.err)


def asked(host: str, port: int) -> list[int]:
    """Return the statuses of three requests; none as long as nothing listens."""
    with socket.socket() as one:
        one.settimeout(SECONDS)
        listens = one.connect_ex((host, port)) == 0
    return [post(f"http://{host}:{port}/nothing", b"{}")[0] for _ in range(3) if listens]


def test_refund_setting() -> None:
    """`--refunds` takes a word of `Sandbox`, or a time with its unit."""
    times = {"30s": timedelta(seconds=30), "5min": timedelta(minutes=5), "2h": timedelta(hours=2), "3d": timedelta(3)}
    settings = {"succeed": "succeed", "fail": "fail", "by hand": "by hand", **times}

    assert settings == {text: refund_setting(text) for text in settings}


def screen() -> tuple[SandboxScreen, io.StringIO]:
    """Return a screen whose output is redirected, and its output."""
    written = io.StringIO()
    return SandboxScreen(console=Console(file=written, color_system=None, highlight=False)), written


WAITING: Final = Delivery(
    entry=Entry(kind="delivery", name="payment.paid", reference="\x1b[2J", reason="no \x07"),
    where="http://a/\x1b]0;",
    state="waiting",
    tries=7,
    wait=None,
)
SHOWN: Final = {
    "no ?; again when the clock is advanced  http://a/?]0;": WAITING,
    "no ?; given up after 7 attempts  http://a/?]0;": evolve(WAITING, state="dead"),
    "no ?  http://a/?]0;": evolve(WAITING, state="delivered"),
}


def test_line_of_a_delivery() -> None:
    """The line of a delivery says what went wrong, where, and what follows. Control characters are replaced."""
    for words, delivery in SHOWN.items():
        told, written = screen()
        told.notification(delivery)

        assert f"-   notify payment.paid ?[2J: {words}\n" == written.getvalue().partition("  ")[2]


def test_other_log_records(capsys: pytest.CaptureFixture[str]) -> None:
    """Other log records go to standard error, as Python would show them."""
    told, written = screen()
    LogScreen(told).handle(logging.makeLogRecord({"msg": "Error handling request", "levelno": logging.ERROR}))

    assert ("", "Error handling request\n") == (written.getvalue(), capsys.readouterr().err)
