"""examples/refund_from_csv: a program that refunds the rows of a CSV file, as its README.md starts it."""

import asyncio
import os
import re
import shlex
import shutil
import signal
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import pytest
from attrs import frozen

from payasync.cli.sandbox import environment_of
from payasync.sandbox import Sandbox
from tests.integrations.worker_shop import SECONDS, open_shop

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "refund_from_csv"
ORDERS: Final = {"T1": 450, "T2": 1999, "T3": 29}


def commands() -> list[list[str]]:
    """Return the commands of README.md that start a program of the example."""
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    return [shlex.split(line)[1:] for line in re.findall(r"^python (?!-m pip).*$", text, re.MULTILINE)]


@frozen
class Program:
    """The example in a folder of its own.

    Attributes:
        folder: The folder.
        sandbox: The service, in which the orders of refunds.csv are paid.
    """

    folder: Path
    sandbox: Sandbox

    async def run(self, command: list[str]) -> tuple[int, str, str]:
        """Run a command to its end, and return the exit code and what it printed."""
        process = await create_subprocess_exec(
            *(sys.executable, "-W", "error", *command),
            cwd=self.folder,
            env={**os.environ, **environment_of(self.sandbox), "PYTHONSAFEPATH": ""},
            stdout=PIPE,
            stderr=PIPE,
        )
        printed, errors = await process.communicate()
        return process.returncode or 0, printed.decode(), errors.decode()

    def results(self) -> list[str]:
        """Return the sorted lines of the results, without the columns."""
        return sorted((self.folder / "results.csv").read_text(encoding="utf-8").splitlines()[1:])


@pytest.fixture
async def program(tmp_path: Path) -> AsyncGenerator[Program]:
    """The example, and a sandbox with its orders."""
    async with Sandbox(clock="frozen") as sandbox:
        for order, paid in ORDERS.items():
            await sandbox.given.paid_order(out_trade_no=order, total_amt=paid)
        yield Program(shutil.copytree(EXAMPLE, tmp_path / "example"), sandbox)


async def test_trial(program: Program) -> None:
    """The trial needs no settings: two runs of the file make three refunds."""
    trial, _ = commands()

    code, printed, errors = await program.run(trial)

    assert (0, "") == (code, errors)
    assert ["refunds at the service: 3"] * 2 == re.findall("refunds at .*", printed)


async def test_invalid_input(program: Program) -> None:
    """All invalid rows are reported by line, and a target that is the source or cannot be opened. Nothing is sent."""
    _, (script, source, results, journal) = commands()
    file = program.folder / source
    before = file.read_bytes()
    same, missing = [
        await program.run([script, source, target, journal]) for target in (f"./{source}", "missing/results.csv")
    ]
    unchanged = before == file.read_bytes()
    rows = ("T1,4.50,4.50,", "T2,19.99,19.9,", "T2,19.99,20,", "T3,0.29,0.29,x,y", "T1,4.50,4.50,", "T9,1.00,0.00,")
    file.write_text("\n".join(["order,paid,refund,reason", *rows]), encoding="utf-8")
    invalid = await program.run([script, source, results, journal])

    assert ([2] * 3, True, 0) == (
        [code for code, *_ in (same, missing, invalid)],
        unchanged,
        len(program.sandbox.ledger.calls()),
    )
    assert "target must be another file than source" in same[2]
    assert re.fullmatch("missing/results.csv cannot be written: .*. Nothing was sent.\n", missing[2])
    assert ["3", "4", "5", "6", "7"] == re.findall(r"refunds.csv, line (\d+): ", invalid[2])


async def test_run_again_after_an_unknown_outcome(program: Program) -> None:
    """A run with an unknown outcome ends with 3; the next run asks, and each refund is made once."""
    _, refund = commands()
    faults = program.sandbox.faults
    faults.reset_after_commit("refunds.create", order="T2")
    faults.server_error("refunds.status", status=500, times=None)
    first, _, errors = await program.run(refund)
    unknown = [line.split(",")[1] for line in program.results()]
    for fault in faults.armed():
        fault.disarm()
    (program.folder / "results.csv").unlink()

    second, _, nothing = await program.run(refund)

    assert (3, ["done", "unknown", "done"]) == (first, unknown)
    assert "Run the same command again" in errors
    assert (0, "") == (second, nothing)
    assert [f"R-{order},done,succeeded" for order in ORDERS] == program.results()
    assert {order: program.sandbox.ledger.refunded(order) for order in ORDERS} == {"T1": 200, "T2": 1999, "T3": 29}


async def test_results_cannot_be_written(program: Program) -> None:
    """If the target breaks while refunds are sent, the program says that some may have been made."""
    _, (script, source, _, journal) = commands()
    pipe, latency = program.folder / "pipe", program.sandbox.faults.latency("refunds.create", order="T1", phase="after")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    broken = asyncio.create_task(program.run([script, source, pipe.name, journal]))
    async with asyncio.timeout(SECONDS):
        while not latency.fired:
            await program.sandbox.settle()
    os.close(reader)

    code, _, errors = await broken

    assert (3, False) == (code, "Traceback" in errors)
    assert "Results cannot be written: [Errno 32] Broken pipe. Some refunds may have been made. Run again." in errors


@pytest.mark.long
async def test_interrupted(tmp_path: Path) -> None:
    """After Ctrl-C, a later run asks about the refund whose response was lost, and makes each refund once."""
    _, refund = commands()
    async with open_shop(tmp_path) as shop:
        shop.write({path.name: path.read_text(encoding="utf-8") for path in EXAMPLE.glob("refund*")})
        for order, paid in ORDERS.items():
            await shop.sandbox.given.paid_order(out_trade_no=order, total_amt=paid)
        shop.sandbox.webhook_url = shop.told.url
        shop.sandbox.faults.hang("refunds.create", phase="after", order="T2")
        program = await shop.start(["python", *refund])
        for _ in ORDERS:
            await shop.told.next(timeout=SECONDS)
        program.process.send_signal(signal.SIGINT)
        interrupted = await program.process.wait()

        program = await shop.start(["python", *refund], late=True)

        assert (130, 0) == (interrupted, await program.process.wait())
        assert [200, 200, 200] == shop.answers()
        assert [200, 1999, 29] == [shop.sandbox.ledger.refunded(order) for order in ORDERS]
