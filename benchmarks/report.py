"""What a run has measured: the table on the terminal, and `results.json`."""

import json
import os
import platform
import sqlite3
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from attrs import asdict
from rich.console import Console
from rich.table import Table

from benchmarks.counting import VALGRIND
from benchmarks.rows import Figure

PACKAGES: Final = ("aiohttp", "attrs", "cattrs", "httpx", "orjson", "psycopg", "stripe", "uvloop")
WIDTH: Final = 80
WORDS: Final = {True: "[green]pass[/]", False: "[bold red]FAIL[/]", None: ""}


def describe_machine() -> dict[str, Any]:
    """Return the machine and the versions, on which figures depend."""
    return {
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "valgrind": VALGRIND is not None,
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def show(figures: Mapping[str, Iterable[Figure]]) -> None:
    """Print a table of all figures, with budgets and how each was measured."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Figure")
    table.add_column("Value", justify="right", no_wrap=True)
    table.add_column("Budget", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for row, each in figures.items():
        found = tuple(each)
        table.add_row(f"[bold]{row}[/]", *([] if found else ["not measured", "", WORDS[False]]))
        for figure in found:
            value = f"{_number(figure.value)} {figure.unit}"
            table.add_row(f"  {figure.what}", value, _budget(figure), WORDS[figure.passed])
    # Off a terminal too, so that a table in a log has lines of the same length.
    Console(width=WIDTH if not sys.stdout.isatty() else None, highlight=False).print(table)


def _budget(figure: Figure) -> str:
    if figure.most is not None:
        return f"≤ {_number(figure.most)}"
    return "" if figure.least is None else f"≥ {_number(figure.least)}"


def _number(value: float) -> str:
    if value >= 100 or value == int(value):  # noqa: PLR2004 - a matter of looks
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"  # noqa: PLR2004 - as above


def save(path: Path, figures: Mapping[str, Iterable[Figure]]) -> None:
    """Save figures, and keep earlier ones of other rows if they are of the same machine and versions."""
    machine, today = describe_machine(), datetime.now(UTC).date().isoformat()
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    rows: dict[str, Any] = before["rows"] if before.get("machine") == machine else {}
    for row, each in figures.items():
        found = [
            {**asdict(figure, filter=lambda _, value: value is not None), "passed": figure.passed} for figure in each
        ]
        rows[row] = {"date": today, "figures": found}
    text = json.dumps({"machine": machine, "rows": dict(sorted(rows.items()))}, indent=2, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")
