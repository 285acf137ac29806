"""The cost of a call as a picture for the docs: each client's CPU time as a ratio to aiohttp written by hand."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from matplotlib import rcParams
from matplotlib.figure import Figure

OURS: Final = "#2458c5"
OTHERS: Final = "#9aa5b5"
INK: Final = "#333333"


def save(costs: Mapping[str, Sequence[float]], baseline: str, path: Path) -> None:
    """Save medians, and lines from the first to the last tenth of the slices.

    Args:
        costs: The slices of each client, in µs per call.
        baseline: The client whose median is 1.00.
        path: An SVG file.
    """
    one = statistics.median(costs[baseline])
    ratios = {name: [each / one for each in slices] for name, slices in costs.items()}
    # Text stays text, so that a reader can select it; the same figures give the same file.
    rcParams.update({"font.size": 11, "svg.fonttype": "none", "svg.hashsalt": "payasync"})
    figure = Figure(figsize=(7.2, 0.55 * len(ratios) + 0.9))
    axes = figure.subplots()
    for row, (name, slices) in enumerate(ratios.items()):
        low, *_, high = statistics.quantiles(slices, n=10)
        middle = statistics.median(slices)
        axes.barh(row, middle, height=0.6, color=OURS if name == "payasync" else OTHERS)
        axes.plot([low, high], [row, row], color=INK, linewidth=1)
        axes.text(0.02, row, f"{middle:.2f}", va="center", color="white" if name == "payasync" else INK)
    axes.set_yticks(range(len(ratios)), list(ratios), color=INK)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3)
    axes.set_xticks([])
    axes.set_xlabel(f"CPU time of a signed call, {baseline} = 1.00; less is better", color=INK)
    axes.spines[:].set_visible(False)
    axes.tick_params(left=False)
    figure.savefig(path, format="svg", bbox_inches="tight", facecolor="white", metadata={"Date": None})
