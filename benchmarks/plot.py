"""Pictures for the documentation, from `results.json`: calls, the journal and notifications."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

OURS: Final = "#2458c5"
LIGHTER: Final = "#8fb0ee"
OTHERS: Final = "#9aa5b5"
INK: Final = "#333333"
CLIENTS: Final = {
    "floor": "bare asyncio, no client",
    "tuned": "tuned aiohttp",
    "payasync": "payasync",
    "hand-written": "hand-written aiohttp",
    "stripe": "stripe-python on aiohttp",
}
"""Those of the picture: httpx would make the others too short to compare."""
SIZE: Final = (5.6, 2.8)
"""So narrow that the text can be read on a phone."""


def save_all(results: Path, folder: Path) -> None:
    """Draw a picture of each row that has one and that was measured.

    Args:
        results: The file of the figures.
        folder: For `benchmark.svg`, `benchmark-journal.svg` and `benchmark-notifications.svg`.
    """
    rows = json.loads(results.read_text(encoding="utf-8"))["rows"]
    values = {row: {each["what"]: each["value"] for each in found["figures"]} for row, found in rows.items()}
    # Text stays text, so that a reader can select it; the same figures give the same file.
    rcParams.update({"font.size": 12, "svg.fonttype": "none", "svg.hashsalt": "payasync"})
    drawn = {
        "benchmark.svg": ("clients", _draw_calls),
        "benchmark-journal.svg": ("sqlite", _draw_journal),
        "benchmark-notifications.svg": ("notifications", _draw_notifications),
    }
    for name, (row, draw) in drawn.items():
        if row in values:
            _save(draw(values), folder / name)


def _draw_calls(values: Mapping[str, Mapping[str, float]]) -> Figure:
    found = values["clients"]
    ratios = {shown: found[f"{name} to hand-written aiohttp"] for name, shown in CLIENTS.items()}
    figure = Figure(figsize=(4.8, 0.5 * len(ratios) + 0.9))
    axes = figure.subplots()
    for row, (name, ratio) in enumerate(ratios.items()):
        drawn = axes.barh(row, ratio, height=0.6, color=OURS if name == "payasync" else OTHERS)
        axes.bar_label(drawn, labels=[f"{ratio:.2f}"], padding=4, color=INK)
    axes.set_yticks(range(len(ratios)), list(ratios), color=INK)
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.set_xlabel("Cost of a signed call; less is better\n(hand-written aiohttp = 1.00)", color=INK)
    return _plain(figure, axes)


def _draw_journal(values: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw rates beside those of a bare program, which are 1.00."""
    bars = {
        name: [found.get(f"{name}, {at} at a time, to a bare program", 0.0) for at in (1, 16, 64)]
        for name, found in (("SQLite", values["sqlite"]), ("PostgreSQL", values.get("postgres", {})))
        if found
    }
    label = "Refunds a second; more is better\n(a bare program with the same commits = 1.00)"
    return _grouped(bars, dict(zip(bars, (OURS, LIGHTER), strict=False)), label, ".2f")


def _draw_notifications(values: Mapping[str, Mapping[str, float]]) -> Figure:
    found = values["notifications"]
    bars = {
        name: [found[f"{what}, {at} at a time"] for at in (1, 16, 64)]
        for name, what in (("received durably", "received"), ("received and handled", "handled"))
    }
    return _grouped(bars, dict(zip(bars, (LIGHTER, OURS), strict=True)), "Notifications a second on one core", ",.0f")


def _grouped(bars: Mapping[str, Sequence[float]], colors: Mapping[str, str], label: str, form: str) -> Figure:
    """Draw bars side by side for 1, 16 and 64 at a time."""
    figure = Figure(figsize=SIZE)
    axes = figure.subplots()
    width = 0.8 / len(bars)
    for index, (name, heights) in enumerate(bars.items()):
        places = [each + (index - (len(bars) - 1) / 2) * width for each in range(len(heights))]
        drawn = axes.bar(places, heights, width=width * 0.94, color=colors[name], label=name)
        axes.bar_label(drawn, labels=[f"{each:{form}}" for each in heights], padding=2, color=INK)
    axes.set_xticks(range(3), ["1 at a time", "16 at a time", "64 at a time"], color=INK)
    axes.set_yticks([])
    axes.set_xlabel(label, color=INK, labelpad=8)
    axes.legend(frameon=False, labelcolor=INK, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(bars))
    return _plain(figure, axes)


def _plain(figure: Figure, axes: Axes) -> Figure:
    axes.spines[:].set_visible(False)
    axes.tick_params(left=False, bottom=False)
    return figure


def _save(figure: Figure, path: Path) -> None:
    made: dict[str, Any] = {"Date": None}
    figure.savefig(path, format="svg", bbox_inches="tight", facecolor="white", metadata=made)
