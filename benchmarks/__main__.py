"""Measures the rows of the performance budgets: `nox -s bench`, `nox -s bench -- call uvloop`."""

import argparse
import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console

from benchmarks import bulk, calls, capacity, journal, notifications, report, sandbox, startup, statements
from benchmarks.counting import STEADY
from benchmarks.rows import Figure, Row, Run

ROWS: Final[dict[str, Row]] = {
    "call": calls.call,
    "uvloop": calls.uvloop,
    "clients": calls.clients,
    "tls": calls.tls,
    "memory": calls.memory,
    "lag": calls.lag,
    "rsa": calls.rsa_lag,
    "flood": calls.flood,
    "flood-10k": calls.flood_10k,
    "bulk": bulk.bulk,
    "import": startup.imports,
    "cli": startup.cli,
    "sqlite": journal.sqlite,
    "sqlite-cost": journal.sqlite_cost,
    "postgres": journal.postgres,
    "growth": journal.growth,
    "statements": statements.statements,
    "capacity": capacity.capacity,
    "notifications": notifications.notifications,
    "sandbox": sandbox.sandbox,
    "fixture": sandbox.fixture,
    "tests": sandbox.tests,
}
ON_REQUEST: Final = frozenset({"tests"})
"""Rows that run only if they are named, because `nox -s tests` measures them, too."""
PINNED: Final = frozenset({"lag", "flood-10k", "sqlite", "postgres", "sandbox"})
"""Rows of wall time that measure this process on a core of its own."""
RESULTS: Final = Path(__file__).with_name("results.json")


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    described = "\n".join(f"  {name:<16}{row.__doc__}" for name, row in ROWS.items())
    parser = argparse.ArgumentParser(
        "python -m benchmarks",
        description="Measure what payasync costs, and compare it with the budgets.",
        epilog=f"rows:\n{described}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help="measure only these rows")
    parser.add_argument("--quick", action="store_true", help="measure less; write no results")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="default: %(default)s")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="only draw FILE, as pictures")
    given = parser.parse_args(arguments)
    if unknown := set(given.rows) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}. The rows are {', '.join(ROWS)}")
    return given


def measure(names: list[str], run: Run) -> dict[str, list[Figure]]:
    """Return the figures of some rows; a row that fails has none."""
    progress, figures = Console(stderr=True, highlight=False), dict[str, list[Figure]]()
    for name in names:
        started = time.perf_counter()
        try:
            with _pinned() if name in PINNED else nullcontext():
                figures[name] = list(ROWS[name](run))
        except Exception:  # noqa: BLE001 - hours of other rows must not be lost
            figures[name] = []
            progress.print_exception(width=120)
        progress.print(f"{name}: {time.perf_counter() - started:.0f} s")
    return figures


@contextmanager
def _pinned() -> Generator[None]:
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


def main() -> None:
    """Measure, print a table, and save the figures. Exit with 1 if a row fails or a figure is over its budget."""
    given = parse(sys.argv[1:])
    if given.plots:
        from benchmarks import plot  # noqa: PLC0415 - only pictures need matplotlib

        plot.save_all(given.results, given.plots)
        return
    if any(os.environ.get(name) != value for name, value in STEADY.items()):
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks", *sys.argv[1:]], {**os.environ, **STEADY})  # noqa: S606 - itself
    names = given.rows or [name for name in ROWS if name not in ON_REQUEST]
    # Here, and not among temporary files: these may be in memory.
    with TemporaryDirectory(prefix=".benchmark-", dir=".") as folder:
        figures = measure(names, Run(quick=given.quick, folder=Path(folder).absolute()))
    report.show(figures)
    if not given.quick:
        report.save(given.results, figures)
    sys.exit(any(not each or any(figure.passed is False for figure in each) for each in figures.values()))


if __name__ == "__main__":
    main()
