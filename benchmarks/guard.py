"""Counts the bytecode instructions of warm operations, and compares them with `guard.json`: `nox -s guard`.

The counts do not depend on the machine or on its load. With a thread, such as that of a journal, they differ by up to
2 % from run to run. They depend on the minor version of Python, so that the guard runs with one of them only.
Two kinds are counted:

- what payasync executes, with the packages that it calls, but without aiohttp and asyncio;
- what aiohttp and asyncio execute for a call of payasync, as a ratio to what they execute for tuned aiohttp in the same
  run, so that another aiohttp changes both.

`nox -s guard -- --refresh` stores new counts, after a change that is worth its cost.
"""

import asyncio
import gc
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any, Final, TypeAlias

from benchmarks.clients import Service, payasync, refunding, tuned
from benchmarks.receiver import CREDENTIALS
from benchmarks.server import static_server
from payasync.journal import SqliteJournal
from payasync.notifications import Notification, Receiver, SqliteInbox
from payasync.profile.sandbox_profile import PROFILE
from payasync.testing import sign_notification

STORED: Final = Path(__file__).with_name("guard.json")
TOLERANCE: Final = 1.03
WARM: Final = 10
REPEATED: Final = 100
LIBRARY: Final = str(Path(os.__file__).parent)
FOREIGN: Final = (
    *(f"{os.sep}{name}{os.sep}" for name in ("aiohttp", "aiosignal", "asyncio", "benchmarks", "multidict", "yarl")),
    # How often a thread is woken depends on which thread is faster.
    f"{os.sep}concurrent{os.sep}",
    f"{os.sep}threading.py",
)
"""Code that is not payasync's, and that does not count as called by it."""

Operation: TypeAlias = Callable[[int], Awaitable[object]]
Tracer: TypeAlias = Callable[[FrameType, str, Any], Any]


class Counting:
    """Counts the bytecode instructions of each function.

    A function of the standard library counts for the package that called it.
    """

    def __init__(self) -> None:
        self.own: Counter[CodeType] = Counter()
        self.foreign: Counter[CodeType] = Counter()

    def start(self) -> None:
        """Trace this thread, and threads that begin later."""
        threading.settrace(self.trace)
        sys.settrace(self.trace)

    def trace(self, frame: FrameType, event: str, _: Any) -> Tracer:  # noqa: ARG002 - Python calls it so
        """Choose who counts the instructions of a frame that begins."""
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        path, caller = frame.f_code.co_filename, frame.f_back
        if any(each in path for each in FOREIGN):
            return self._count_foreign
        if path.startswith(LIBRARY) and caller and caller.f_trace == self._count_foreign:
            return self._count_foreign
        return self._count_own

    def _count_own(self, frame: FrameType, event: str, _: Any) -> Tracer:
        if event == "opcode":
            self.own[frame.f_code] += 1
        return self._count_own

    def _count_foreign(self, frame: FrameType, event: str, _: Any) -> Tracer:
        if event == "opcode":
            self.foreign[frame.f_code] += 1
        return self._count_foreign


async def count(operation: Operation) -> tuple[int, int]:
    """Return how many instructions a warm operation executes: payasync's, and those of aiohttp and asyncio.

    The operation is repeated, and the least count of each function counts: a timer that fires, or a thread that is
    faster, adds to some of the repetitions only.
    """
    counting, own, foreign = Counting(), list[Counter[CodeType]](), list[Counter[CodeType]]()
    counting.start()
    for number in range(WARM + REPEATED):
        counting.own, counting.foreign = Counter(), Counter()
        await operation(number)
        own.append(counting.own)
        foreign.append(counting.foreign)
    sys.settrace(None)
    return _least(own[WARM:]), _least(foreign[WARM:])


def _least(counts: list[Counter[CodeType]]) -> int:
    least = counts[0].copy()
    for each in counts:
        least &= each
    return least.total()


@asynccontextmanager
async def notified(folder: Path) -> AsyncGenerator[Operation]:
    """Give what receives a notification and has it handled."""

    async def paid(_: Notification) -> None:
        pass

    data = {"totalAmt": 450, "currency": "CAD", "status": "SBX_PAID"}
    signed = [
        sign_notification(
            {"outTradeNo": f"T{each:04}", **data}, profile=PROFILE, credentials=CREDENTIALS, kind="payment"
        )
        for each in range(WARM + REPEATED)
    ]
    inbox = SqliteInbox(folder / "inbox.db")
    async with Receiver(profile=PROFILE, credentials=CREDENTIALS, inbox=inbox) as receiver:
        receiver.on("payment")(paid)

        async def notify(number: int) -> None:
            await receiver.receive(signed[number].raw, signed[number].headers, "payment")
            await receiver.settle()

        yield notify


async def count_all(base: str, folder: Path) -> dict[str, float]:
    """Return the counts of all operations."""
    service = Service(base)
    async with tuned(service) as call:
        _, needed = await count(lambda _: call())
    async with payasync(service) as call:
        own, foreign = await count(lambda _: call())
    async with SqliteJournal(folder / "pay.db") as journal, refunding(base, journal) as refund:
        refunded, _ = await count(lambda number: refund(f"R{number:04}"))
    async with notified(folder) as notify:
        handled, _ = await count(notify)
    return {
        "signed call": own,
        "signed call, aiohttp and asyncio to tuned aiohttp": round(foreign / needed, 4),
        "journalled refund, SQLite": refunded,
        "notification, handled": handled,
    }


def risen(stored: Mapping[str, float], counted: Mapping[str, float]) -> list[str]:
    """Return what has risen by more than the tolerance."""
    return [name for name, value in counted.items() if value > stored.get(name, 0) * TOLERANCE]


def main() -> None:
    """Count, compare and print; exit with 1 if a count has risen too much."""
    stored: dict[str, Any] = json.loads(STORED.read_text(encoding="utf-8"))
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    if python != stored["python"]:
        sys.exit(f"{STORED.name} holds the counts of Python {stored['python']}, and this is {python}: use nox -s guard")
    gc.disable()
    with static_server() as base, TemporaryDirectory() as folder:
        counted = asyncio.run(count_all(base, Path(folder)))
    for name, value in counted.items():
        print(f"{name:50}{value:10,} {value / stored['counts'].get(name, value) - 1:+8.1%}")
    if "--refresh" in sys.argv[1:]:
        text = json.dumps({"python": python, "counts": counted}, indent=2)
        STORED.write_text(f"{text}\n", encoding="utf-8")
    elif found := risen(stored["counts"], counted):
        sys.exit(
            f"more than {TOLERANCE - 1:.0%} above {STORED.name}: {', '.join(found)}. Make the code do less, or, if the "
            "change is worth its cost, run `nox -s guard -- --refresh` and say why in the commit"
        )


if __name__ == "__main__":
    main()
