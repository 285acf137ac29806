"""`payasync refund import` when SIGKILL ends its process: the next run continues, and no refund is repeated or lost."""

import asyncio
import csv
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from payasync.sandbox import Sandbox
from tests.chaos.forked import Forked
from tests.cli.sandbox_process import environment
from tests.inside import until

PROGRAM: Final = Path(__file__).with_name("refund_import_process.py")
SECONDS: Final = 60
COUNT: Final = 40
LATER: Final = 1000.0
"""Seconds by which each process's clock is ahead of the one before: its leases have ended then."""


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A sandbox with paid orders, which refuses a repeated refund, so that a second send is noticed."""
    async with Sandbox(repeated_refunds="refused") as sandbox:
        for number in range(4):
            await sandbox.given.paid_order(out_trade_no=f"T{number}", total_amt=1000)
        yield sandbox


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The path of a file with refunds of 10 each."""
    rows = [f"T{number % 4},R{number},1000,10" for number in range(COUNT)]
    file = tmp_path / "refunds.csv"
    file.write_text("\n".join(["out_trade_no,out_refund_no,total_amt,refund_amt", *rows, ""]))
    return file


def arguments(file: Path, run: int, fatal: str = "never") -> list[str]:
    """Return the arguments of an import."""
    kept, result = file.with_name("pay.db"), file.with_name("out.csv")
    return [str(file), str(kept), str(result), str(run * LATER), fatal]


def begun(sandbox: Sandbox, file: Path, run: int, fatal: str = "never") -> Forked:
    """Begin an import."""
    return Forked(PROGRAM, *arguments(file, run, fatal), environment=environment(sandbox))


async def ended(process: Forked) -> int:
    """Return the exit code of an import, whose standard error must be empty."""
    with process:
        _, errors = await asyncio.to_thread(process.communicate)
    assert not errors, errors
    return process.wait()


def states(file: Path) -> list[tuple[str, str]]:
    """Return the numbers and the states in the result file."""
    with file.with_name("out.csv").open(newline="") as result:
        return [(row["out_refund_no"], row["state"]) for row in csv.DictReader(result)]


def check(sandbox: Sandbox, file: Path) -> None:
    """Check the ledger: each refund was made once, and the service refused no repeated one."""
    codes = {each.code for each in sandbox.ledger.calls("refunds.create")}

    assert COUNT == sandbox.ledger.refunds()
    assert [100] * 4 == [sandbox.ledger.refunded(f"T{number}") for number in range(4)]
    assert {"SBX_OK"} == codes
    assert [(f"R{number}", "succeeded") for number in range(COUNT)] == states(file)
    assert not file.with_name("out.csv.partial").exists()


@pytest.mark.parametrize(("fatal", "run"), [("kept R20", 1), ("judged R20", 1), ("settled R20", 1), ("judged R20", 0)])
async def test_killed_at_each_step(sandbox: Sandbox, file: Path, fatal: str, run: int) -> None:
    """If an import is killed at any step, the next run completes it, even if it starts immediately."""
    first = await ended(begun(sandbox, file, 0, fatal))
    last = await ended(begun(sandbox, file, run))

    assert (-signal.SIGKILL, 0) == (first, last)
    check(sandbox, file)


async def test_interrupted(sandbox: Sandbox, file: Path) -> None:
    """After Ctrl-C, requests in flight end, nothing is in doubt, and the next run sends only the others."""
    process = begun(sandbox, file, 0)
    await asyncio.wait_for(until(lambda: sandbox.ledger.refunds() >= 10), SECONDS)
    process.send_signal(signal.SIGINT)
    first = await ended(process)
    left = sorted(state for _, state in states(file))
    made = sandbox.ledger.refunds()
    last = await ended(begun(sandbox, file, 0))

    assert (130, 0) == (first, last)
    assert made == left.count("succeeded")
    assert {"succeeded", "unsent"} == set(left)
    assert COUNT == len(sandbox.ledger.calls("refunds.create"))
    check(sandbox, file)


async def test_cut_off_by_a_second_signal(sandbox: Sandbox, file: Path) -> None:
    """After a second signal, the last line says how many rows are in doubt. The next run completes the import."""
    hanging = sandbox.faults.hang("refunds.create", times=5)
    process = begun(sandbox, file, 0)
    await asyncio.wait_for(until(lambda: hanging.fired == 5), SECONDS)
    process.send_signal(signal.SIGINT)
    lines = [await asyncio.to_thread(process.stdout.readline)]
    while "Stopping" not in lines[-1]:
        lines.append(await asyncio.to_thread(process.stdout.readline))
    process.send_signal(signal.SIGTERM)
    with process:
        rest, errors = await asyncio.to_thread(process.communicate)
    last = await ended(begun(sandbox, file, 1))

    assert (-signal.SIGTERM, "") == (process.returncode, errors)
    assert "  Interrupted: up to 5 rows may have been done. The results so far are in " in rest
    assert "out.csv.partial. Run the same command to continue." in rest
    assert 0 == last
    check(sandbox, file)
