"""Accuracy over CPU seconds, and over bytes, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sheafed.bench.accuracy import CURVES, LEVELS, Traces

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXES = {"CPU seconds of training": "cpu_seconds", "MiB sent": "bytes_sent"}
SCALE = {"cpu_seconds": 1.0, "bytes_sent": 2.0**-20}


def draw(found: Sequence[Traces], title: str) -> Figure:
    """Draw communication accuracy of each method, a line per seed; dotted lines are the levels."""
    from matplotlib.figure import Figure  # lazily: slow to import

    figure = Figure(figsize=(10, 4.6), layout="constrained")
    for axes, (label, key) in zip(figure.subplots(1, 2, sharey=True), AXES.items(), strict=True):
        for curve in CURVES:
            style = "--" if curve.beyond_paper else "-"
            for number, traces in enumerate(found):
                points = traces[curve.label]
                axes.plot(
                    [SCALE[key] * getattr(point, key) for point in points],
                    [point.communication for point in points],
                    style,
                    color=curve.colour,
                    marker=curve.marker,
                    markersize=3,
                    linewidth=1.2,
                    label=curve.label if number == 0 and key == "cpu_seconds" else None,
                )
        for level in LEVELS:
            axes.axhline(level, color="#999999", linestyle=":", linewidth=0.8)
        axes.set(xlabel=label, xscale="log", ylim=(0, 1))
        axes.grid(color="#dddddd", lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylabel("communication accuracy" if key == "cpu_seconds" else "")
    figure.legend(loc="outside lower center", ncols=len(CURVES), frameon=False)
    figure.suptitle(title, fontsize=10)
    return figure
