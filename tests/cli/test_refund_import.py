"""`payasync refund import` against a real sandbox, whose ledger is the truth."""

import asyncio
import csv
import io
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from attrs import evolve
from click.testing import CliRunner, Result
from rich.console import Console

from payasync import (
    Auth,
    CreateRefund,
    Done,
    RefundResponse,
    Refused,
    RetryPolicy,
    Session,
    SortedPairs,
    errors,
)
from payasync.cli import refund_import
from payasync.cli.commands import payasync
from payasync.cli.options import Address, session_with
from payasync.cli.refund_file import ResultFile, Row, RowResult, Word, locked, read_rows
from payasync.cli.refund_import import (
    DENIED,
    NO_RESPONSE,
    PATIENCE,
    STOPPED_BY_SIGNAL,
    WRONG_KEYS,
    RefundImportScreen,
    RefundSending,
    StopConditions,
    read_file,
    run,
)
from payasync.clocks import Pace, use_clocks
from payasync.journal import Journal, SqliteJournal
from payasync.journal.intents import Draft
from payasync.journal.reconciler import LONGEST, SILENT
from payasync.profile.schema import Recovery
from payasync.sandbox import PROFILE, ThreadedSandbox
from payasync.session import Result as CallResult
from payasync.session import Unknown
from payasync.wire.call import Reply
from tests.cli.conftest import profile_option, variables
from tests.journal.building import LEASE, START, Clock, draft

pytestmark = pytest.mark.usefixtures("signals")

HEADER: Final = "out_trade_no,out_refund_no,total_amt,refund_amt"
SECONDS: Final = 30
DOUBTFUL: Final = 60
AT_ONCE: Final = 10
"""Questions of a reconciler."""
GOOD: Final = ("T1,R1,450,100", "T1,R2,450,50")


def written(folder: Path, *rows: str, header: str = HEADER) -> Path:
    """Write a file of refunds."""
    file = folder / "refunds.csv"
    file.write_text("\n".join([header, *rows, ""]))
    return file


def imported(sandbox: ThreadedSandbox, file: Path, *arguments: str, **changes: str | None) -> Result:
    """Run the command, with a journal and a result beside the file."""
    given = ["--journal", str(file.with_name("pay.db")), "--result", str(file.with_name("out.csv")), *arguments]
    return CliRunner().invoke(payasync, ["refund", "import", str(file), *given], env={**variables(sandbox), **changes})


def written_states(file: Path) -> dict[str, str]:
    """Return the state and the code of each row in the result file."""
    with file.with_name("out.csv").open(newline="") as result:
        return {row["out_refund_no"]: f"{row['state']} {row['code']}".strip() for row in csv.DictReader(result)}


def words(text: str) -> str:
    """Return the output with single spaces."""
    return " ".join(text.split())


def sent(sandbox: ThreadedSandbox) -> int:
    """Return how many refund requests the service has received."""
    return len(sandbox.ledger.calls("refunds.create"))


def test_each_refund_is_made_once(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """All rows are refunded. The same command again sends nothing, and has the same results.

    With a new journal, the service is queried, and no refund is made again.
    """
    file, whole = written(tmp_path, *GOOD), {"R1": "succeeded SBX_OK", "R2": "succeeded SBX_OK"}
    first, again = imported(sandbox, file), imported(sandbox, file)

    assert [0, 0] == [first.exit_code, again.exit_code], first.output
    assert (2, 2, 150) == (sent(sandbox), sandbox.ledger.refunds(), sandbox.ledger.refunded("T1"))
    assert whole == written_states(file)
    assert (True, False) == ("which is empty" in first.output, "which is empty" in again.output)
    assert f"Service {sandbox.url} " in words(first.output)
    assert "Refunds 2 Amount 150 minor units in all" in words(first.output)
    assert "by an earlier run" not in first.output
    assert "2  of them done by an earlier run, not sent again" in again.output
    lost = imported(sandbox, file, "--journal", str(tmp_path / "other.db"))
    assert (0, whole, 150) == (lost.exit_code, written_states(file), sandbox.ledger.refunded("T1"))


def test_bad_row_stops_everything_unless_it_is_left_out(tmp_path: Path) -> None:
    """If a row is invalid, or cannot be signed, nothing is sent, and no file is written.

    With `--keep-going`, the valid rows are sent.
    """
    signature = SortedPairs(algorithm="hmac-sha256", encoding="hex", allow_delimiters=())
    strict = evolve(PROFILE, name="strict", signature=signature)
    rows = ("T1,R1,450,100,cold", "T1,R2,450,50,broken & cold", "T1,R3,450,50,", "T1,R4,450,1.5,")
    file = written(tmp_path, *rows, header=f"{HEADER},refund_desc")
    option = profile_option(tmp_path / "service.toml", strict)
    with ThreadedSandbox(strict) as sandbox:
        sandbox.given.paid_order(out_trade_no="T1", total_amt=450)
        ended = imported(sandbox, file, *option)
        before, files = sent(sandbox), {*tmp_path.iterdir()}
        going_on = imported(sandbox, file, *option, "--keep-going")

        assert (2, 0, {file, tmp_path / "service.toml"}) == (ended.exit_code, before, files)
        assert (1, 2, 150) == (going_on.exit_code, sent(sandbox), sandbox.ledger.refunded("T1"))
    assert "2 rows of 4 cannot be sent" in ended.output
    for each in (ended, going_on):
        lines = [line for line in each.output.splitlines() if line.split()[:2] in (["3", "R2"], ["5", "R4"])]

        assert 2 == len(lines)
        assert "'refundDesc' cannot be signed: it must be free of '&' and '='" in lines[0]
    done, bad = "succeeded SBX_OK", "left out"
    assert {"R1": done, "R2": bad, "R3": done, "R4": bad} == written_states(file)


def test_refused_is_tried_again_by_the_next_run(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """The next run tries refused rows again, and sends nothing else."""
    file = written(tmp_path, *GOOD, "T2,R3,300,1")
    first = imported(sandbox, file)
    refused = written_states(file)["R3"]
    sandbox.given.paid_order(out_trade_no="T2", total_amt=300)
    again = imported(sandbox, file)

    assert (1, 0) == (first.exit_code, again.exit_code)
    assert "refused SBX_NOT_FOUND" == refused
    assert "SBX_NOT_FOUND there is no such order" in first.output
    assert ("succeeded SBX_OK", 4) == (written_states(file)["R3"], sent(sandbox))


def test_number_that_was_used_for_another_amount(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """If a number was used for another amount, its row is "manual", and is not sent again.

    If the journal has it for another amount, it is not sent, and the row says so.
    """
    imported(sandbox, written(tmp_path, "T1,R1,450,90"), "--journal", str(tmp_path / "other.db"))
    file = written(tmp_path, *GOOD)
    first = imported(sandbox, file)
    found = written_states(file)["R1"]
    again = imported(sandbox, file)
    refused = imported(sandbox, written(tmp_path, "T1,R2,450,30"))
    why = "R2 was already refunded (succeeded): refund_amt was 50 and is 30 in this row. Only if both are owed"

    assert (3, "manual SBX_DUPLICATE") == (first.exit_code, found)
    assert "refundAmt is 90 in the response, and 100 in the request" in words(first.output)
    assert (3, 1, 3) == (again.exit_code, refused.exit_code, sent(sandbox))
    assert why in file.with_name("out.csv").read_text()
    assert why in words(refused.output)


def test_declined_refund_is_listed_before_it_is_sent_again(tmp_path: Path) -> None:
    """A refund that the service accepted and declined is refused. The next run lists it, and sends it again."""
    file = written(tmp_path, *GOOD)
    with ThreadedSandbox(refunds="fail") as sandbox:
        sandbox.given.paid_order(out_trade_no="T1", total_amt=450)
        first = imported(sandbox, file)
        result = file.with_name("out.csv").read_text()
        again = imported(sandbox, file)

        assert (1, 1, 4) == (first.exit_code, again.exit_code, sent(sandbox))
    assert 2 == result.count(",refused,,the refund's state is failed\n")
    assert "2  the refund's state is failed" in first.output
    assert "are sent again" not in first.output
    assert "2 rows are sent again: they were reported as not done" in again.output
    assert "Ctrl-C stops only rows that have not begun. Remove the rows that were refunded" in words(again.output)
    assert " 2 R1 100 the refund's state is failed " in words(again.output)


def test_wrong_keys_stop_it_early(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """If the service rejects the keys, the import stops after a few requests.

    Rows that an earlier run has refunded are never "unsent".
    """
    assert 0 == imported(sandbox, written(tmp_path, *GOOD)).exit_code
    file = written(tmp_path, *(f"T1,A{number},450,1" for number in range(50)), *GOOD)
    ended = imported(sandbox, file, "--limit", "2", PAYASYNC_SIGNING_KEY="another-signing-key")
    states = Counter(state.split()[0] for state in written_states(file).values())

    assert (1, 2) == (ended.exit_code, sandbox.ledger.refunds())
    assert "Stopping: the service rejects these keys.\n  Waiting for the calls in flight; Ctrl-C twice" in ended.output
    assert {"refused", "unsent", "succeeded"} == set(states)
    assert (True, 2) == (states["refused"] <= 4, states["succeeded"])
    assert "2  of them done by an earlier run, not sent again" in ended.output


def test_other_service_is_sent_nothing(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """A journal of one service is refused for another, and nothing is sent."""
    file = written(tmp_path, *GOOD)
    imported(sandbox, file)
    before = file.with_name("out.csv").read_text()
    other = evolve(PROFILE, name="real", recovery=Recovery(quarantine=9.0))
    with ThreadedSandbox(other) as real:
        ended, url = imported(real, file, *profile_option(tmp_path / "service.toml", other)), real.url

        assert (2, 0) == (ended.exit_code, sent(real))
    assert f"sent to the sandbox, and this session's service is {url}: nothing was sent" in ended.output
    assert 1 == len(ended.output.splitlines())
    assert before == file.with_name("out.csv").read_text()


def test_interrupted_while_it_reads(sandbox: ThreadedSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the file is read ends it immediately with exit code 130."""
    monkeypatch.setattr(refund_import, "read_rows", lambda *_: signal.raise_signal(signal.SIGINT))
    ended = imported(sandbox, written(tmp_path, *GOOD))

    assert (130, "payasync refund import: interrupted; nothing was sent\n") == (ended.exit_code, ended.stderr)
    assert 0 == sent(sandbox)


def test_missing_setting(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """What is missing is reported in one line that blames no row, and nothing is sent."""
    basic = profile_option(tmp_path / "basic.toml", evolve(PROFILE, auth=Auth(value="Basic {basic}")))
    unsigned = profile_option(tmp_path / "open.toml", evolve(PROFILE, name="open", signature=None))
    key, names = "PAYASYNC_PUBLIC_KEY", ("SIGNING_KEY", "SECRET_KEY", "PROFILE", "BASE_URL")
    cases: list[tuple[tuple[str, ...], dict[str, None], str]] = [
        *(((), {f"PAYASYNC_{name}": None}, f"PAYASYNC_{name}") for name in names),
        (basic, {key: None}, f"credentials.public_key is not set ({key} in the environment)"),
        ((*unsigned, "--keep-going"), {}, "payasync refund import: refunds.create: signature is "),
        (("--result", str(tmp_path / "none" / "file")), {}, "there is no folder"),
    ]
    for arguments, changes, why in cases:
        ended = imported(sandbox, written(tmp_path, *GOOD), *arguments, **changes)

        assert (2, 1, 0) == (ended.exit_code, len(ended.stderr.splitlines()), sent(sandbox))
        assert (True, False) == (why in ended.stderr, "R1" in ended.stderr)


def test_profile_without_refund_queries(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """If refunds cannot be queried, a warning says so once, and all rows are sent."""
    file, warning = written(tmp_path, *GOOD), "A lost response will need a person"
    mute = profile_option(tmp_path / "service.toml", evolve(PROFILE, refund_status=None))
    ended = imported(sandbox, file, *mute, PAYASYNC_SECRET_KEY=None)

    assert (0, 2, 1) == (ended.exit_code, sent(sandbox), ended.output.count(warning))
    assert warning not in imported(sandbox, file).output


def test_kinds_of_files(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """A file that is not CSV in UTF-8 is refused as a whole. A byte order mark, as of Excel, is skipped."""
    file, header = tmp_path / "refunds.csv", HEADER.encode()
    cases = {
        b"\xff\xfe": (2, "it must be UTF-8, and is not at byte 0"),
        b"a;b\n": (2, "payasync refund import: line 1: the columns must be "),
        b"\xef\xbb\xbf%b\r\nT1,R1,450,100\r\n" % header: (0, "Refunds 1 "),
        b"%b\n" % header: (0, "There was nothing to refund"),
    }
    for text, (code, shown) in cases.items():
        file.write_bytes(text)
        ended = imported(sandbox, file)

        assert (code, True) == (ended.exit_code, shown in words(ended.output)), ended.output


async def waited(
    sandbox: ThreadedSandbox, file: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str]:
    """Import with a clock that each wait advances; return the exit code and the output."""
    for name, value in variables(sandbox).items():
        monkeypatch.setenv(name, value)

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    kept, result = file.with_name("pay.db"), file.with_name("out.csv")
    terminal = Console(record=True, width=100, force_terminal=True, file=io.StringIO())
    screen = RefundImportScreen(file, Address(str(kept)), service=sandbox.url, result=result, console=terminal)
    use_clocks(clock.clocks())
    journal = SqliteJournal(kept)
    session = session_with(journal, profile=None, base_url=None)
    pace = Pace(clock=clock, sleep=sleep)
    code = await run(session, journal, read_file(file, session), screen, result=result, pace=pace)
    return code, terminal.export_text()


class Overtaken(Session):
    """A session whose bulk ends after another run has sent all refunds."""

    def __init__(self, *address: str, **settings: Any) -> None:
        super().__init__(*address, **settings)
        self.another = Session(*address, **settings)

    async def bulk(self, requests: Any, **options: Any) -> AsyncGenerator[Any]:
        """Yield the results, and then send the refunds by another session."""
        async for each in super().bulk(requests, **options):
            yield each
        async with self.another:
            for request in requests:
                await self.another.send(request)


async def test_row_that_another_run_makes_is_not_called_unsent(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """If another run makes a refund before the end, its row is neither "unsent" nor "refused"."""
    for stopped in (True, False):
        stop, folder = asyncio.Event(), tmp_path / str(stopped)
        folder.mkdir()
        if stopped:
            stop.set()
        else:
            sandbox.faults.rate_limited("refunds.create", times=3)
        async with sending_of(sandbox, folder, Clock(), kind=Overtaken) as (sending, _), asyncio.timeout(SECONDS):
            await sending.run(rows(3, "A" if stopped else "B"), stop)

        assert [("succeeded", True)] * 3 == [(each.state, each.earlier) for each in sending.row_results.values()]


def test_second_run_is_refused(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """While a run imports a file, a second one sends nothing, and says why.

    While one imports another file by the same journal, rows that this one does not send are unknown.
    """
    file, why = written(tmp_path, *GOOD), "is locked, because another run imports it. Nothing was sent. Wait until"
    with locked(file):
        second = imported(sandbox, file)
    refusing = sandbox.faults.refuse()
    with asyncio.Runner() as runner:
        other = AsyncExitStack()
        journal = runner.run(other.enter_async_context(SqliteJournal(tmp_path / "pay.db")))
        runner.run(other.enter_async_context(journal.present()))
        beside, states = imported(sandbox, file), set(written_states(file).values())
        runner.run(other.aclose())
    alone = imported(sandbox, file)

    assert (2, True) == (second.exit_code, why in words(second.stderr))
    assert refusing.fired
    assert (3, {"unknown"}) == (beside.exit_code, states)
    assert "another import may use this journal, and send it" in words(beside.output)
    assert (1, {"unsent"}) == (alone.exit_code, set(written_states(file).values()))


async def test_row_that_stays_in_doubt(
    sandbox: ThreadedSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a lost response the service is queried. If it does not say what happened, the row is listed.

    It is not sent again.
    """
    file = written(tmp_path, *GOOD)
    sandbox.faults.reset_after_commit("refunds.create")
    silent = sandbox.faults.rate_limited("refunds.status", retry_after=3600, times=None)
    clock = Clock()
    code, shown = await waited(sandbox, file, clock, monkeypatch)
    (number,) = [number for number, state in written_states(file).items() if state == "unknown"]
    again, _ = await waited(sandbox, file, clock, monkeypatch)
    silent.disarm()
    clock.advance(3600)
    sandbox.faults.redirect("refunds.status", times=2)
    last, _ = await waited(sandbox, file, clock, monkeypatch)

    assert (3, 3, 0) == (code, again, last)
    assert any(number in line and "unknown" in line for line in shown.splitlines())
    assert "Do not send them by other means" in shown
    assert "payasync reconcile --journal" in shown
    assert 2 == sandbox.ledger.refunds() == sent(sandbox)
    assert {"succeeded SBX_OK"} == set(written_states(file).values())


class Shown(RefundImportScreen):
    """A screen that records its output and the waits."""

    def __init__(self, *, journal: str = "pay.db", result: str | None = "out.csv", terminal: bool = False) -> None:
        self.out = io.StringIO()
        self.waits: list[tuple[int, float, bool]] = []
        console = Console(file=self.out, width=120, force_terminal=terminal, highlight=False)
        path = Path(result) if result else None
        super().__init__(Path("r.csv"), Address(journal), service="", result=path, console=console)

    def asking(self, count: int, seconds: float = 0, reason: str = "", *, silent: bool = False) -> None:
        """Record a wait."""
        super().asking(count, seconds, reason, silent=silent)
        self.waits += [(count, seconds, silent)] if seconds else []

    @property
    def text(self) -> str:
        """The whole output."""
        return self.out.getvalue()


async def lost(journal: Journal, draft: Draft) -> None:
    """Store a write whose outcome is unknown."""
    begun = await journal.begin(draft, LEASE)
    await journal.settle(begun.intent, "unknown")


@asynccontextmanager
async def sending_of(
    sandbox: ThreadedSandbox,
    folder: Path,
    clock: Clock,
    sleep: Callable[[float], Awaitable[None]] | None = None,
    kind: type[Session] = Session,
) -> AsyncGenerator[tuple[RefundSending, Shown]]:
    """Yield an import whose clock each wait advances."""

    async def moved(seconds: float) -> None:
        clock.advance(seconds)

    use_clocks(clock.clocks())
    settings: Any = {"credentials": sandbox.credentials, "profile": PROFILE, "retry": RetryPolicy(attempts=1, quota=0)}
    async with (
        SqliteJournal(folder / "pay.db") as journal,
        kind(sandbox.url, journal=journal, **settings) as pay,
        journal.present() as is_alone,
    ):
        pace, screen = Pace(clock=clock, sleep=sleep or moved, jitter=lambda bound: bound), Shown()
        yield RefundSending(pay, journal, screen, ResultFile(None), 50, pace, is_alone), screen


async def doubtful(sending: RefundSending) -> tuple[Row, ...]:
    """Return rows whose outcomes are all unknown from an earlier run."""
    found, merchant = rows(DOUBTFUL), sending.session.merchant_id
    for row in found:
        await lost(sending.journal, draft(row.request, merchant=merchant))
    return found


async def test_row_is_sent_again_once(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """A row that never arrives is sent again once in a run, not more often."""
    losing = sandbox.faults.reset_before("refunds.create", times=None)
    async with sending_of(sandbox, tmp_path, Clock()) as (sending, _), asyncio.timeout(SECONDS):
        await sending.run(rows(1), asyncio.Event())
        (kept,) = await sending.journal.find("refunds.create", "R0")

    assert ("refused", "rejected", 2) == (sending.row_results[2].state, kept.state, kept.attempts)
    assert losing.fired


async def test_service_that_does_not_respond(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """A service that does not respond gets a few queries in ten seconds, for three minutes at most."""
    failing = sandbox.faults.server_error("refunds.status", times=None)
    clock, counts = Clock(), [0]

    async def sleep(seconds: float) -> None:
        counts.append(failing.fired)
        clock.advance(seconds)

    async with sending_of(sandbox, tmp_path, clock, sleep) as (sending, screen), asyncio.timeout(SECONDS):
        await sending.run(await doubtful(sending), asyncio.Event())
    rounds = [after - before for before, after in pairwise([*counts, failing.fired])]

    assert [(DOUBTFUL, LONGEST, True)] * 3 == screen.waits[:3]
    assert "the next query is in 10 s. Reason: HTTP 503" in " ".join(screen.text.split())
    assert all(seconds >= LONGEST for _, seconds, silent in screen.waits if silent)
    assert SILENT <= max(rounds) < SILENT + AT_ONCE
    assert clock() - START.timestamp() <= PATIENCE
    assert ["unknown"] * DOUBTFUL == [each.state for each in sending.row_results.values()]
    assert 0 == sent(sandbox)


async def test_ctrl_c_ends_a_wait(sandbox: ThreadedSandbox, tmp_path: Path) -> None:
    """Ctrl-C ends a wait: nothing more is queried, and each row has a result."""
    failing = sandbox.faults.server_error("refunds.status", times=None)
    waits, stop = asyncio.Event(), asyncio.Event()

    async def sleep(_: float) -> None:
        waits.set()
        await asyncio.Event().wait()

    async with sending_of(sandbox, tmp_path, Clock(), sleep) as (sending, _), asyncio.timeout(SECONDS):
        running = asyncio.ensure_future(sending.run(await doubtful(sending), stop))
        await waits.wait()
        before = failing.fired
        stop.set()
        await running

    assert (STOPPED_BY_SIGNAL, before) == (sending.stopped, failing.fired)
    assert ["unknown"] * DOUBTFUL == [each.state for each in sending.row_results.values()]


def test_full_disk(sandbox: ThreadedSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the journal has no room, one line says that nothing was sent, and what to do next."""
    monkeypatch.setattr(SqliteJournal, "bind", failing("the disk is full"))
    ended = imported(sandbox, written(tmp_path, *GOOD))

    assert (2, 0) == (ended.exit_code, sent(sandbox))
    line = "nothing was sent: the disk is full. Remove the cause, and run the same command again\n"
    assert f"payasync refund import: {line}" == ended.stderr


def failing(why: str) -> Callable[..., Awaitable[Any]]:
    """Return a method of a journal that fails."""

    async def fail(*_: object, **__: object) -> None:
        raise errors.StorageError(why)

    return fail


async def test_unreadable_journal(sandbox: ThreadedSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the journal cannot be read, rows are "unknown" with the reason, and never "unsent"."""
    file = written(tmp_path, *GOOD)
    sandbox.faults.refuse()
    monkeypatch.setattr(SqliteJournal, "find", failing("the disk is gone"))
    code, shown = await waited(sandbox, file, Clock(), monkeypatch)

    assert (3, {"unknown"}) == (code, set(written_states(file).values()))
    assert "an earlier run may have sent it: the disk is gone" in words(shown)


def rows(count: int, prefix: str = "R") -> tuple[Row, ...]:
    """Return valid rows of 10 each."""
    return read_rows("\n".join([HEADER, *(f"T1,{prefix}{number},450,10" for number in range(count))]), lambda _: None)


def row_results(state: Word, count: int, message: str = "") -> list[RowResult]:
    """Return the same result of many rows."""
    return [RowResult(row=row, state=state, message=message) for row in rows(count)]


def closed(*row_results: RowResult, why: str = "", unwritten: str = "") -> str:
    """Return the output at the end."""
    screen = Shown(journal="postgresql://me:secret@db/pay")
    screen.closed(row_results, why=why, unwritten=unwritten)
    return screen.text


def test_summary_has_counts_and_amounts() -> None:
    """The summary has the count, the amount and the three most frequent reasons of each state."""
    reasons = [row_results("refused", 1, f"reason {number}")[0] for number in range(5)]
    shown = closed(*row_results("succeeded", 1200), *reasons, *row_results("refused", 2, "\x1b[31mno such order\x07"))
    lines = [" ".join(line.split()) for line in shown.splitlines()]

    assert ["succeeded 1,200 12,000", "refused 7 70 not done", "2 ?[31mno such order?"] == lines[:3]
    assert (2, True) == (shown.count("1  reason"), "and 3 other reasons" in lines)


def test_long_wait_is_announced_once() -> None:
    """A wait of some seconds is announced once for each cause, with its reason, also in a file."""
    silent, away = (2, 10.0, "", True), "The service does not respond: 2 rows in doubt; the next query is in 10 s."
    cases: list[tuple[list[tuple[int, float, str, bool]], list[str]]] = [
        ([(1, 0, "", False), (1, 1.0, "", False)], []),
        ([(3, 57.0, "", False), silent, silent], ["3 rows in doubt; the next query is in 57 s.", away]),
        ([(1, 7.0, "it\x07 fails", False)], ["1 row in doubt; the next query is in 7 s. Reason: it? fails"]),
    ]
    for waits, expected in cases:
        screen = Shown()
        with screen.progress(3):
            for count, seconds, why, is_silent in waits:
                screen.asking(count, seconds, why, silent=is_silent)

        assert expected == [line.strip() for line in screen.text.splitlines() if line]


def test_interrupted_calls() -> None:
    """After a second Ctrl-C, the last line says how many rows are in doubt, and where the results are.

    The terminal has its cursor again after the first.
    """
    cases = (
        (1, None, "up to 1 row may have been done. The results so far are in the journal. Run the same command"),
        (0, "out.csv", "nothing is in doubt. The results so far are in out.csv.partial. Run"),
    )
    for count, result, words in cases:
        screen = Shown(result=result, terminal=True)
        with screen.progress(3):
            screen.stopping()
            stopped = screen.text
            screen.cut_off(count)

        assert words in screen.text
        assert stopped.rfind("\x1b[?25h") > stopped.rfind("\x1b[?25l") >= 0


def test_rows_in_doubt_are_listed_with_what_to_do() -> None:
    """Twenty rows in doubt are listed, with the commands for the others; no password is shown.

    If the result file could not be written, the screen says so, and names no file.
    """
    shown = closed(*row_results("unknown", 24), *row_results("manual", 1))
    unwritten = closed(*row_results("succeeded", 1), unwritten="No space left on device")

    assert "and 5 more" in shown
    assert "--state manual" in shown
    assert "payasync reconcile --journal 'host=db dbname=pay user=me'" in shown
    assert "secret" not in shown
    assert "The result file could not be written: No space left on device" in unwritten
    assert "out.csv" not in unwritten


REFUND: Final = CreateRefund(out_trade_no="T1", out_refund_no="R1", total_amt=450, refund_amt=200)
MOST: Final = 3


def done(attempts: int = 1) -> CallResult[RefundResponse]:
    """Return a refund that was made; without attempts, the response comes from the journal."""
    reply = Reply(status=200, headers={}, body=b"{}", attempts=attempts)
    return Done(REFUND, RefundResponse(reply, PROFILE.answer, PROFILE.states))


def failed(error: errors.PayasyncError, attempts: int = 1) -> CallResult[RefundResponse]:
    """Return a refund that was not made, or may have been; without attempts, the journal has refused to send it."""
    error.add(attempts=attempts)
    return Unknown(REFUND, error) if isinstance(error, errors.OutcomeUnknownError) else Refused(REFUND, error)


LOST: Final = failed(errors.OutcomeUnknownError("no response"))
DENIED_ONE: Final = failed(errors.AuthenticationError("HTTP 403", http_status=403))
UNAUTHORISED: Final = failed(errors.AuthenticationError("HTTP 401", http_status=401))
BAD_REQUEST: Final = failed(errors.ServiceError("HTTP 400"))
STOPS: Final = [
    ([LOST] * (MOST - 1), ""),
    ([LOST] * MOST, NO_RESPONSE),
    ([failed(errors.NotSentError("no connection"))] * MOST, NO_RESPONSE),
    ([LOST, LOST, done(), LOST], ""),
    ([LOST, LOST, BAD_REQUEST, LOST], ""),
    ([failed(errors.OutcomeUnknownError("being sent"), attempts=0)] * MOST, ""),
    ([LOST, LOST, done(attempts=0), LOST], NO_RESPONSE),
    ([done(), UNAUTHORISED], WRONG_KEYS),
    ([DENIED_ONE] * (DENIED - 1), ""),
    ([DENIED_ONE] * DENIED, WRONG_KEYS),
    ([done(), *[DENIED_ONE] * DENIED], ""),
    ([BAD_REQUEST, *[DENIED_ONE] * DENIED], ""),
]


def test_when_the_import_stops() -> None:
    """The import stops after several rows in succession without a response, or if the service rejects the keys.

    HTTP 401 is about the keys. HTTP 403 may be about one order, unless the service says nothing else. Results that come
    from the journal do not count.
    """
    for results, reason in STOPS:
        stops = StopConditions(MOST)

        assert reason == [stops.reason(each) for each in results][-1]
