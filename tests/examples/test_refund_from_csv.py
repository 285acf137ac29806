"""examples/refund_from_csv: a program that refunds the rows of a CSV file, as its README.md starts it."""

import asyncio
import os
import re
import shlex
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import pytest

from tests.integrations.worker_shop import SECONDS, Shop, open_shop

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "refund_from_csv"
ORDERS: Final = {"T1": 450, "T2": 1999, "T3": 29}


def commands() -> list[list[str]]:
    """Return the commands of README.md that start a program of the example."""
    text = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    return [shlex.split(line)[1:] for line in re.findall(r"^python (?!-m pip).*$", text, re.MULTILINE)]


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncGenerator[Shop]:
    """The example in a folder of its own, and a sandbox with its orders."""
    async with open_shop(tmp_path) as opened:
        opened.write({path.name: path.read_text(encoding="utf-8") for path in EXAMPLE.glob("*.*")})
        for order, paid in ORDERS.items():
            await opened.sandbox.given.paid_order(out_trade_no=order, total_amt=paid)
        yield opened


async def run(shop: Shop, command: list[str]) -> tuple[int | None, str]:
    """Run a command to its end, and return the exit code and what it says."""
    program = await shop.start(["python", *command])
    said, _ = await program.process.communicate()
    return program.process.returncode, said.decode()


def results(shop: Shop) -> list[str]:
    """Return the sorted lines of the results, without the columns."""
    return sorted((shop.folder / "results.csv").read_text(encoding="utf-8").splitlines()[1:])


def refunded(shop: Shop) -> list[int]:
    """Return the refunded amount of each order."""
    return [shop.sandbox.ledger.refunded(order) for order in ORDERS]


async def test_trial(shop: Shop) -> None:
    """The trial needs no settings: two runs of the file make three refunds."""
    trial, _ = commands()
    code, said = await run(shop, trial)

    assert (0, ["refunds at the service: 3"] * 2) == (code, re.findall("refunds at .*", said))


async def test_invalid_input(shop: Shop) -> None:
    """All invalid rows are reported by line, and a target that is the source or cannot be opened. Nothing is sent."""
    _, (script, source, target, journal) = commands()
    file = shop.folder / source
    before, rows = file.read_bytes(), ("T1,4.50,4.50,", "T2,19.99,19.9,", "T2,19.99,20,", "T3,0.29,0.29,x,y")
    same = await run(shop, [script, source, f"./{source}", journal])
    missing = await run(shop, [script, source, "missing/results.csv", journal])
    unchanged = before == file.read_bytes()
    file.write_text("\n".join(["order,paid,refund,reason", *rows, rows[0], "T9,1.00,0.00,"]), encoding="utf-8")
    invalid = await run(shop, [script, source, target, journal])

    assert ([2, 2, 2], True, []) == ([same[0], missing[0], invalid[0]], unchanged, shop.answers())
    assert "target must be another file than source" in same[1]
    assert re.fullmatch("missing/results.csv cannot be written: .*. Nothing was sent.\n", missing[1])
    assert ["3", "4", "5", "6", "7"] == re.findall(r"refunds.csv, line (\d+): ", invalid[1])


async def test_run_again_after_an_unknown_outcome(shop: Shop) -> None:
    """A run with an unknown outcome ends with 3; the next run asks, and each refund is made once."""
    _, refund = commands()
    faults = shop.sandbox.faults
    faults.reset_after_commit("refunds.create", order="T2")
    faults.server_error("refunds.status", status=500, times=None)
    first, said = await run(shop, refund)
    unknown = [line.split(",")[1] for line in results(shop)]
    faults.clear()
    (shop.folder / "results.csv").unlink()
    second = await run(shop, refund)

    assert (3, ["done", "unknown", "done"]) == (first, unknown)
    assert "Run the same command again" in said
    assert (0, "Traceback" in second[1]) == (second[0], False)
    assert [f"R-{order},done,succeeded" for order in ORDERS] == results(shop)
    assert [200, 1999, 29] == refunded(shop)


async def test_results_cannot_be_written(shop: Shop) -> None:
    """If the target breaks while refunds are sent, the program says that some may have been made."""
    _, (script, source, _, journal) = commands()
    pipe, latency = shop.folder / "pipe", shop.sandbox.faults.latency("refunds.create", order="T1", phase="after")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    broken = asyncio.create_task(run(shop, [script, source, pipe.name, journal]))
    async with asyncio.timeout(SECONDS):
        while not latency.fired:
            await shop.sandbox.settle()
    os.close(reader)
    code, said = await broken

    assert (3, False) == (code, "Traceback" in said)
    assert "Results cannot be written: [Errno 32] Broken pipe. Some refunds may have been made. Run again." in said


@pytest.mark.long
async def test_interrupted(shop: Shop) -> None:
    """After Ctrl-C, a later run asks about the refund whose response was lost, and makes each refund once."""
    _, refund = commands()
    shop.sandbox.webhook_url = shop.notified.url
    shop.sandbox.faults.hang("refunds.create", phase="after", order="T2")
    program = await shop.start(["python", *refund])
    for _ in ORDERS:
        await shop.notified.next(timeout=SECONDS)
    program.process.send_signal(signal.SIGINT)
    interrupted = await program.process.wait()
    program = await shop.start(["python", *refund], late=True)

    assert (130, 0) == (interrupted, await program.process.wait())
    assert ([200, 200, 200], [200, 1999, 29]) == (shop.answers(), refunded(shop))
