"""What code costs: instructions where valgrind is there, which repeat to 0.01 %, else CPU time."""

import os
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

VALGRIND: Final = shutil.which("valgrind")
MEASURED: Final = "instructions" if VALGRIND else "CPU time"
ROUNDS: Final = 9
# glibc trims the heap and faults it in again, which costs one client 13 µs a call and another nothing.
STEADY: Final = {
    "MALLOC_TRIM_THRESHOLD_": "67108864",
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "PYTHONHASHSEED": "0",
}
COLLECTED: Final = re.compile(r"Collected : (\d+)")
TOTALS: Final = re.compile(r"^totals: (\d+)", re.MULTILINE)


def call_costs(
    clients: Sequence[str],
    concurrencies: Sequence[int],
    base: str,
    *,
    loop: str = "asyncio",
    calls: int = 300,
) -> dict[str, list[float]]:
    """Return the cost of a call of each client, for each number of concurrent calls."""
    given = [base, loop, "", *map(str, concurrencies)]
    if VALGRIND is None:
        return call_times(clients, given, calls * 10)
    # One after the other: callgrind makes them so slow that on a busy core idle connections would expire between calls.
    return {name: _count_calls(name, calls, given) for name in clients}


def _count_calls(name: str, calls: int, given: Sequence[str]) -> list[float]:
    with TemporaryDirectory() as folder:
        options = [f"--callgrind-out-file={folder}/out", "--dump-before=getpgid"]
        _callgrind([*options, sys.executable, "-m", "benchmarks.child", name, str(calls), *given])
        costs: list[float] = []
        # Each concurrency has four parts: what was before it, its warm-up, what is between, and the calls.
        for index, concurrent in enumerate(map(int, given[3:]), 1):
            found = TOTALS.search(Path(folder, f"out.{index * 4}").read_text(encoding="utf-8"))
            assert found is not None
            costs.append(int(found[1]) / max(calls, concurrent * 2))
        return costs


def call_times(clients: Sequence[str], given: Sequence[str], calls: int) -> dict[str, list[float]]:
    """Return the median CPU time of a call of each client in µs, measured in turns."""
    taken: dict[str, list[list[float]]] = {name: [] for name in clients}
    for _ in range(ROUNDS):
        for name in clients:
            out = _run([sys.executable, "-m", "benchmarks.child", name, str(calls), *given])
            taken[name].append([float(each) for each in out.stdout.split()])
    return {name: [statistics.median(each) for each in zip(*rounds, strict=True)] for name, rounds in taken.items()}


def program_cost(*arguments: str) -> float:
    """Return the instructions, or the CPU seconds, of a Python program from start to end."""
    command = [sys.executable, *arguments]
    _run(command)  # compiles
    if VALGRIND is None:
        return program_time(*arguments)
    found = COLLECTED.search(_callgrind(["--callgrind-out-file=/dev/null", *command]).stderr)
    assert found is not None
    return int(found[1])


def program_time(*arguments: str) -> float:
    """Return the median CPU seconds of a Python program from start to end."""
    times: list[float] = []
    for _ in range(ROUNDS):
        before = os.times()
        _run([sys.executable, *arguments])
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return statistics.median(times)


def _callgrind(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    assert VALGRIND is not None
    return _run([VALGRIND, "--tool=callgrind", *arguments])


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(  # noqa: S603 - our own programs
        command, env={**os.environ, **STEADY}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return done
