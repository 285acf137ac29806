"""A soak: a merchant's server runs for long under all faults, and its memory and descriptors must stay flat.

The sandbox lives in this process, the server in a child, whose memory is its own.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from types import MappingProxyType
from typing import Any, Final

from attrs import asdict, evolve
from rich.console import Console

from payasync.cli.sandbox import environment_of
from payasync.sandbox import Sandbox
from payasync.sandbox.faults.armed_faults import Fault
from payasync.sandbox.faults.catalogue import KINDS
from tests.chaos.errands import ERRANDS, ORDER, PAID
from tests.chaos.gauges import SHOWN_BY
from tests.chaos.growth import BOUNDS, Soak, Soaked
from tests.chaos.plan import arm

PROGRAM: Final = Path(__file__).with_name("shop.py")
LONGEST: Final = 1 << 20
"""Bytes of a line that the server prints."""
OPTIONS: Final[Mapping[str, Mapping[str, float]]] = MappingProxyType(
    {
        "latency": {"seconds": 0.1},
        "refuse": {"seconds": 0.01},
        "huge_body": {"size": 2 << 20},
        "gzip_bomb": {"size": 64 << 20},
        "notification.delay": {"seconds": 1},
        "notification.reorder": {"seconds": 1},
    }
)
"""What keeps a fault from taking longer than it must."""
WANTED: Final = (*ERRANDS, "OutcomeUnknownError", "handled", "resolved")
"""What must have happened in any run."""

SHORT: Final = Soak(operations=450, samples=10)
"""Long enough to show a leak, as the control proves."""


def arm_all(sandbox: Sandbox, soak: Soak) -> list[Fault]:
    """Arm all kinds of faults: those of calls, and those of notifications, each as often as any other."""
    armed: list[Fault] = []
    for of_notification in (False, True):
        kinds = [
            (name, OPTIONS.get(name, {})) for name, kind in KINDS.items() if kind.of_notification is of_notification
        ]
        armed += arm(sandbox, kinds, soak.faults, soak.seed * 100 + len(armed))
    return armed


async def run(soak: Soak) -> Soaked:
    """Return what a run comes to.

    Args:
        soak: What it does.

    Raises:
        TimeoutError: It takes too long.
        RuntimeError: The server failed, or complained.
    """
    with TemporaryDirectory() as folder:
        async with Sandbox() as sandbox, asyncio.timeout(soak.seconds):
            await sandbox.given.paid_order(out_trade_no=ORDER, total_amt=PAID)
            armed = arm_all(sandbox, soak)
            try:
                lines = await _served(soak, folder, sandbox)
            finally:
                sandbox.faults.clear()
            await sandbox.settle()
    *samples, end = lines
    return Soaked(
        samples=[each["sample"] for each in samples],
        done=dict.fromkeys(WANTED, 0) | end["done"],
        faults={each.kind: each.fired for each in armed},
    )


def overlooked(leaking: Soaked) -> list[str]:
    """Return what the control does not show: who overlooks that would overlook anything."""
    grown = leaking.growths()
    return [f"{gauge} of a server that leaks do not grow" for gauge in SHOWN_BY if grown[gauge] <= BOUNDS[gauge]]


async def _served(soak: Soak, folder: str, sandbox: Sandbox) -> list[dict[str, Any]]:
    """Let the server live, and return what it prints."""
    said: list[dict[str, Any]] = []
    with TemporaryFile() as complaints:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", str(PROGRAM), json.dumps(asdict(soak)), folder,
            env={**os.environ, **environment_of(sandbox)},
            limit=LONGEST, stdout=asyncio.subprocess.PIPE, stderr=complaints,
        )  # fmt: skip
        try:
            assert process.stdout
            said += [json.loads(line) async for line in process.stdout]
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        complaints.seek(0)
        errors = complaints.read().decode()
    if errors or process.returncode:
        raise RuntimeError(f"the server ended with {process.returncode}: {errors}")
    return said


def soaked(soak: Soak, console: Console) -> list[str]:
    """Run the control, and a soak; return what is wrong with them."""
    console.print(
        f"python -m tests.chaos soak --seed {soak.seed} --operations {soak.operations} --faults {soak.faults}"
    )
    try:
        leaking = asyncio.run(run(evolve(SHORT, seed=soak.seed, leaky=True)))
        end = asyncio.run(run(soak))
    except (TimeoutError, RuntimeError) as error:
        return [str(error) or f"it took more than {soak.seconds:.0f} s"]
    console.print({"growths": end.growths(), "done": dict(end.done), "faults": dict(end.faults)})
    return overlooked(leaking) + end.flaws()
