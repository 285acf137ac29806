"""`payasync listen`: the command as a process that a sandbox notifies."""

import io
import json
import os
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from attrs import asdict, evolve
from click.testing import CliRunner
from rich.console import Console

from payasync import Credentials, InvalidArgumentError, InvalidSignatureError, NotificationShape
from payasync.cli.commands import payasync
from payasync.cli.listen import NO_KIND, Inspection, ListenScreen, inspect
from payasync.notifications import Added, Answer, parse
from payasync.notifications.ingest import OTHER_BODY, IngestResult, build_received
from payasync.sandbox import PROFILE
from payasync.testing import Signed, sign_notification
from tests.chaos.forked import Forked
from tests.cli.sandbox_process import ended, fact, free_address, lines, order_paid, post, serving

WHSEC: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
KEYS: Final = {"PAYASYNC_MERCHANT_ID": "M1", "PAYASYNC_NOTIFICATION_KEYS": WHSEC, "PAYASYNC_PROFILE": "sandbox"}
CREDENTIALS: Final = Credentials("M1", notification_keys=WHSEC)
PAID: Final = {"outTradeNo": "T1", "status": "SBX_PAID", "totalAmt": 450, "currency": "CAD"}
REFUNDED: Final = {"outTradeNo": "T1", "outRefundNo": "R1", "totalAmt": 450, "refundAmt": 100, "status": "SBX_X"}
AT: Final = datetime(2027, 1, 31, 12, tzinfo=UTC)


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process; of payasync's variables, it has only the given ones."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PAYASYNC_")} | dict(environ)


def following(notification: NotificationShape, folder: Path) -> dict[str, str]:
    """Return the environment of a service with this shape of notifications."""
    profile = folder / "service.toml"
    profile.write_text(evolve(PROFILE, notification=notification).to_toml(), encoding="utf-8")
    return {"PAYASYNC_MERCHANT_ID": "M1", "PAYASYNC_PROFILE": str(profile)}


def running(folder: Path, *arguments: str, environ: Mapping[str, str] = KEYS) -> Forked:
    """Run the command in a folder, on a free port unless one is given."""
    port = () if "--port" in arguments else ("--port", "0")
    return Forked("payasync", "listen", *port, *arguments, environment=environment(environ), folder=folder)


@contextmanager
def listening(folder: Path, *arguments: str, environ: Mapping[str, str] = KEYS) -> Generator[tuple[Forked, Any]]:
    """Start the command with `--json`, and yield it with its first line once it listens."""
    with running(folder, "--json", *arguments, environ=environ) as process:
        yield process, told(process)


def told(process: Forked) -> Any:
    """Return the command's next line of JSON."""
    return json.loads(lines(process, "{")[-1])


def signed(data: Mapping[str, Any] = PAID, **facts: Any) -> Signed:
    """Return a notification as the sandbox signs it."""
    given: dict[str, Any] = {"profile": PROFILE, "credentials": CREDENTIALS, "kind": "payment", **facts}
    return sign_notification(data, **given)


def test_start_says_where_and_what_it_believes(tmp_path: Path) -> None:
    """The first lines name profile, verification, responses, inbox, and an address for each kind."""
    with running(tmp_path) as process:
        text = "\n".join(lines(process, "Ctrl-C"))
    facts = dict(line.split(maxsplit=1) for line in text.splitlines() if line.startswith("  "))
    url = facts["payments"].split()[0].removesuffix("/notify/payment")

    assert text.startswith("payasync listen ")
    assert "payasync-sandbox, the sandbox's own" == facts["Profile"]
    assert facts["Verifies"].startswith("webhook-signature over the body, by 1 of your keys")
    assert '200 {"received":true}; 400 {"received":false} if it refuses' == facts["Responds"]
    assert str(tmp_path / "payasync-inbox.db") == facts["Inbox"]
    assert [f"{url}/notify/refund", f"{url}/notify/subscription"] == [
        facts[name].split()[0] for name in ("refunds", "subscriptions")
    ]
    assert text.splitlines()[-3].endswith(f"payasync sandbox --webhook-url {url}/notify")
    assert "\x1b" not in text
    assert WHSEC not in text


def test_one_line_for_each_notification(tmp_path: Path) -> None:
    """Genuine, repeated, contradicting, unsigned and late notifications have one line each."""
    with running(tmp_path) as process:
        shown = lines(process, "Ctrl-C")
        url = fact(shown, "payments")
        first, other = signed(), signed({**PAID, "totalAmt": 451})
        unsigned, odd, late = evolve(first, headers={}), signed(event="\x1b[2J", kind=None), signed(time=1_000_000_000)
        answers = [post(url, each.raw, each.headers) for each in (first, first, other, unsigned, odd, late)]
        lines(process, "")
        shown = [lines(process, "")[-1].partition("  ")[2] for _ in answers]
    key = 'payment:["T1","SBX_PAID"]'
    paid = "payment.paid            T1"

    assert [200, 200, 200, 400, 200, 400] == [status for status, _ in answers]
    assert {'{"received":true}', '{"received":false}'} == {body for _, body in answers}
    assert [
        f"verified  {paid}                 450 CAD  {key}",
        f"verified  {paid}                 450 CAD  again  {key}",
        f"held      {paid}                 451 CAD  an earlier notification with this key had another body  {key}",
        "refused   payment       webhook-id is missing",
    ] == shown[:4]
    assert "?[2J " in shown[4]
    assert shown[5].startswith(f"held      {paid}                 450 CAD  webhook-timestamp is ")
    assert [False, True] == ["It is not acknowledged, so the service sends it again" in shown[at] for at in (2, 5)]


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_signal_ends_it_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C and SIGTERM end `listen` with exit code 0. The port is free immediately, and nothing is left open.

    An idle connection, or a body that never ends, does not delay the end.
    """
    host = "127.77.0.1"  # no other test takes the port of this address meanwhile
    pipe, arguments = subprocess.PIPE, ("listen", "--host", host, "--port", "0")
    command = [sys.executable, "-W", "error", "-m", "payasync", *arguments]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(KEYS), stdout=pipe, stderr=pipe, text=True) as process:
        try:
            port = int(urlsplit(fact(lines(process, "Ctrl-C"), "payments")).port or 0)
            with socket.create_connection((host, port)) as idle:
                idle.sendall(b"POST /notify HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
                process.send_signal(number)
                end = ended(process)
        finally:
            process.kill()
    socket.create_server((host, port)).close()

    assert (0, "") == (end.code, end.err)
    assert "Stopped. The inbox has all notifications that were received." == end.out.strip()


def test_it_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If `listen` cannot start, it says why without a traceback, and the exit code is 2."""
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("other.db")) as other:
        other.execute("CREATE TABLE mine (a)")
    known = {"PAYASYNC_PROFILE": "sandbox", "PAYASYNC_MERCHANT_ID": "M1"}
    cases: list[tuple[str, dict[str, str | None], list[str]]] = [
        ("--host 0.0.0.0", {}, ["host", "0.0.0.0", "tunnel"]),  # noqa: S104 - it must be refused
        ("", {"PAYASYNC_PROFILE": None}, ["no profile is given, so nothing says how notifications are signed"]),
        ("", {"PAYASYNC_MERCHANT_ID": None}, ["PAYASYNC_MERCHANT_ID", "--webhook-url http://127.0.0.1:0/notify"]),
        ("", {"PAYASYNC_NOTIFICATION_KEYS": None, **known}, ["PAYASYNC_NOTIFICATION_KEYS"]),
        ("--profile missing.toml", {}, ["--profile: ", "missing.toml"]),
        ("--inbox other.db", {}, ["other.db"]),
        ("--inbox nowhere/inbox.db", {}, ["nowhere"]),
    ]
    for arguments, environ, words in cases:
        command = ["listen", "--port", "0", *arguments.split()]
        done = CliRunner().invoke(payasync, command, env={**KEYS, **environ})

        assert (2, "") == (done.exit_code, done.stdout)
        assert [] == [word for word in (*words, "payasync listen: ") if word not in done.stderr]
        assert "Traceback" not in done.stderr


def test_with_a_sandbox_whose_lines_are_pasted(tmp_path: Path) -> None:
    """With the settings that `payasync sandbox --webhook-url` prints, notifications are verified."""
    host, port = free_address()
    with (
        serving("--webhook-url", f"http://{host}:{port}/notify") as sandbox,
        listening(tmp_path, "--host", host, "--port", port, environ=sandbox.told["environment"]) as (listener, opening),
    ):
        placed = order_paid(sandbox.told["environment"])
        line = told(listener)

    assert (f"http://{host}:{port}/notify", 303) == (opening["webhook_url"], placed)
    assert ("verified", "payment", "T1", "450 CAD") == tuple(
        line[name] for name in ("verdict", "kind", "reference", "amount")
    )


def test_saved_files_are_for_verify_notification(tmp_path: Path) -> None:
    """Each saved file is private, has no secret headers, and can be checked. Refused ones are saved too.

    If a file cannot be saved, the line says so, and the notification is still acknowledged. A later run knows it again.
    """
    first, secret = signed(), {"Authorization": "Bearer proxy", "Cookie": "a=b"}
    (tmp_path / "taken").write_text("a file")
    with listening(tmp_path, "--save", "taken/below") as (listener, opening):
        status, _ = post(opening["webhook_url"], first.raw, first.headers)
        unsaved = told(listener)
    with listening(tmp_path, "--save", "kept/here") as (listener, opening):
        url, shown = opening["addresses"]["payment"], list[dict[str, Any]]()
        for raw, more in ((first.raw, secret), (first.raw + b" ", {})):
            post(url, raw, {**first.headers, **more})
            shown.append(told(listener))
    files = [Path(tmp_path, line["file"]) for line in shown]
    verdicts = [CliRunner().invoke(payasync, ["verify-notification", str(file)], env=KEYS) for file in files]

    assert (200, "", True) == (status, unsaved["file"], "not saved: Not a directory" in unsaved["why"])
    assert (False, True) == (unsaved["again"], shown[0]["again"])
    assert [0, 1] == [each.exit_code for each in verdicts]
    assert [0o600] * 2 == [stat.S_IMODE(file.stat().st_mode) for file in files]
    assert not any(each in files[0].read_bytes() for each in (b"Bearer", b"a=b"))
    assert files[0].read_bytes().startswith(b"POST /notify/payment HTTP/1.1\r\n")


def test_unsigned_notification_is_a_hint(tmp_path: Path) -> None:
    """If the service does not sign, the first lines say so, and each notification is a hint.

    If the payload does not say the kind, the address decides it; at any other address it is unknown.
    """
    shape = NotificationShape(verification="none", out_trade_no="no", ack_status=200)
    with running(tmp_path, environ=following(shape, tmp_path)) as process:
        shown = lines(process, "Ctrl-C")
        url = fact(shown, "payments")
        answers = [post(at, b'{"no":"T1"}') for at in (url, url.replace("/payment", "/anything"))]
        routed, unrouted = (lines(process, "T1")[-1] for _ in answers)
    telling = following(evolve(shape, tells={"payment": "state"}), tmp_path)
    with listening(tmp_path, environ=telling) as (listener, opening):
        post(opening["webhook_url"], b'{"no":"T3","state":"PAID"}')
        line = told(listener)

    assert any("is only a hint, because anybody could have sent it" in line for line in shown)
    assert [200, 200] == [status for status, _ in answers]
    assert ["hint", "payment", "T1"] == routed.split()[1:4]
    assert ("hint", True) == (unrouted.split()[1], "its kind is unknown" in unrouted)
    assert (f"{opening['url']}/notify", "payment") == (opening["webhook_url"], line["kind"])


YES: Final = Answer(200)
HEARD: Final = Inspection(
    at=AT,
    verdict="verified",
    status=200,
    kind="payment",
    event="payment.paid",
    reference="T1",
    amount="450 CAD",
    key='payment:["T1","SBX_PAID"]',
)
RENEWED: Final = {"subscriptionId": "S1", "amount": 900, "period": 2, "status": "SBX_ACTIVE"}


def arrival(data: Any, event: str = "payment.paid", added: Added | None = Added.NEW, **facts: Any) -> IngestResult:
    """Return the result of a verified notification."""
    raw = json.dumps({"type": event, "data": data}).encode()
    heard = evolve(parse(raw, {}, profile=PROFILE), **{"verified": True, **facts})
    return IngestResult(YES, build_received(heard, PROFILE, timed=True), added)


def held(raw: bytes, why: str) -> IngestResult:
    """Return the result of a genuine notification that is held as it arrives."""
    found = arrival(PAID)
    assert found.received
    return evolve(found, received=evolve(found.received, raw=raw, held=why))


NOT_KEPT: Final = {"verdict": "not kept", "status": 503}
MISSING: Final = InvalidSignatureError("it is not verified", field="webhook-id", reason="is missing")


LATE: Final = evolve(arrival(PAID, added=None), answer=Answer(503))
NOTHING: Final[tuple[Any, ...]] = ({}, [])
SHOWN: Final[list[tuple[IngestResult, dict[str, Any]]]] = [
    (arrival(PAID), asdict(HEARD)),
    (arrival(REFUNDED, "refund.succeeded"), {"reference": "R1", "amount": "100"}),
    (arrival(RENEWED, "subscription.renewed"), {"reference": "S1", "amount": "900"}),
    (arrival(PAID, event_time=AT), {"event_time": AT}),
    (arrival({"outTradeNo": "T1"}), {"reference": "T1", "amount": ""}),
    (arrival({"outTradeNo": "T1", "amount": {"value": 1}}), {"reference": "T1", "amount": ""}),
    *((arrival(data), {"reference": "", "amount": ""}) for data in NOTHING),
    (arrival(PAID, verified=False), {"verdict": "hint", "kind": "payment"}),
    (arrival(PAID, added=Added.AGAIN), {"again": True, "why": ""}),
    (arrival(PAID, added=Added.CONFLICT), {"verdict": "held", "again": False, "why": OTHER_BODY}),
    (held(b"[]", "it is not an object"), {"verdict": "held", "reference": "", "why": "it is not an object"}),
    (arrival(PAID, "something.else"), {"why": NO_KIND}),
    (IngestResult(Answer(400), error=MISSING), {"verdict": "refused", "kind": "", "why": "webhook-id is missing"}),
    (IngestResult(Answer(400), error=InvalidArgumentError("raw must be JSON")), {"why": "raw must be JSON"}),
    (IngestResult(Answer(413)), {"verdict": "refused", "why": "it is too long"}),
    (LATE, {**NOT_KEPT, "why": "too many arrive at the same time"}),
    (evolve(LATE, error=OSError("full")), {**NOT_KEPT, "why": "full"}),
]


def test_what_is_shown_of_a_notification() -> None:
    """The narrowest number and amount are shown. An unknown field stays empty. A profile may name an amount's field."""
    for came, expected in SHOWN:
        found = asdict(inspect(came, PROFILE, AT))

        assert expected == {name: found[name] for name in expected}
    priced = evolve(PROFILE, fields={**PROFILE.fields, "subscription_amount": "price"})
    came = arrival({"subscriptionId": "S1", "price": 900, "currency": "CAD"}, "subscription.renewed")
    assert "900 CAD" == inspect(came, priced, AT).amount


def test_times_in_json() -> None:
    """`--json` has the times of the arrival and of the event in ISO 8601; `null` if the event has none."""
    for moment in (AT, None):
        written = io.StringIO()
        ListenScreen(json=True, console=Console(file=written, width=1000)).received(evolve(HEARD, event_time=moment))
        line = json.loads(written.getvalue())

        assert AT == datetime.fromisoformat(line["at"])
        assert moment == (line["event_time"] and datetime.fromisoformat(line["event_time"]))


def test_event_says_its_kind() -> None:
    """If an event's name does not begin with its kind, the kind is shown before it. A control character becomes `?`."""
    cases: dict[str, dict[str, Any]] = {
        "payment.paid": {},
        "payment ORDER_PAID": {"event": "ORDER_PAID"},
        "payment": {"event": ""},
        "something.else": {"kind": "", "event": "something.else"},
        "-": {"kind": "", "event": ""},
        "?[2J": {"kind": "", "event": "\x1b[2J"},
    }
    for what, changes in cases.items():
        written = io.StringIO()
        ListenScreen(console=Console(file=written, highlight=False)).received(evolve(HEARD, **changes))
        line = written.getvalue()

        assert what == line[20:44].rstrip()
