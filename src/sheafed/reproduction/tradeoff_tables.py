"""The measurements of tab:tradeoff as a figure and as tables."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from sheafed.sweep.tables import csv_table, markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Privacy = Literal["standard", "strict"]
Measurements = Mapping[tuple[str, Privacy, int], Mapping[str, Mapping[str, float]]]
"""By latent sizes, privacy and seed, then by agent, then by quantity."""

SIZES = ("heterogeneous", "homogeneous")
PRIVACIES: tuple[Privacy, Privacy] = ("standard", "strict")


def _averages(found: Measurements, sizes: str, privacy: Privacy, key: str) -> list[float]:
    """Return the mean of a quantity over agents, for each seed."""
    return [
        statistics.fmean(agent[key] for agent in agents.values())
        for (s, p, _), agents in found.items()
        if (s, p) == (sizes, privacy)
    ]


_PANELS = {
    "bytes": ("KiB sent per agent and round", 1 / 1024),
    "operations": ("operations per map update, millions", 1e-6),
    "seconds": ("CPU ms per agent and map update", 1e3),
}


def draw(found: Measurements, subtitle: str) -> Figure:
    """Draw the measurements as grouped bars, and the formulas as strokes across them."""
    from matplotlib.figure import Figure  # lazily: slow to import

    figure = Figure(figsize=(10, 4), layout="constrained")
    colours = {"standard": "#56B4E9", "strict": "#D55E00"}
    for axes, (key, (label, unit)) in zip(figure.subplots(1, 3), _PANELS.items(), strict=True):
        for shift, privacy in ((-0.2, PRIVACIES[0]), (0.2, PRIVACIES[1])):
            values = [_averages(found, sizes, privacy, key) for sizes in SIZES]
            places = [place + shift for place in range(len(SIZES))]
            axes.bar(
                places,
                [unit * statistics.fmean(v) for v in values],
                width=0.36,
                yerr=[unit * statistics.stdev(v) if len(v) > 1 else 0.0 for v in values],
                capsize=3,
                color=colours[privacy],
                hatch="//" if privacy == "strict" else None,
                edgecolor="black",
                linewidth=0.6,
                label=f"{privacy} privacy" if key == "bytes" else None,
            )
            if key != "seconds":
                formula = [
                    unit * statistics.fmean(_averages(found, sizes, privacy, f"{key}_formula"))
                    for sizes in SIZES
                ]
                name = "formula of the paper" if (key, privacy) == ("bytes", "strict") else None
                axes.plot(places, formula, "_", color="black", ms=26, mew=2, label=name)
        axes.set_xticks(range(len(SIZES)), SIZES)
        axes.set_title(label, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(subtitle, fontsize=10)
    return figure


_COLUMNS = {
    "bytes": "bytes per agent and round",
    "decompositions": "decompositions per update",
    "operations": "operations per update",
}


def as_markdown(found: Measurements) -> str:
    """Return the means over agents."""
    headings = ["latent sizes", "privacy"]
    for title in _COLUMNS.values():
        headings += [title, "formula"]
    headings.append("CPU ms per update")
    rows = []
    for sizes in SIZES:
        for privacy in PRIVACIES:
            cells = [sizes, privacy]
            for key in _COLUMNS:
                for name in (key, f"{key}_formula"):
                    mean = statistics.fmean(_averages(found, sizes, privacy, name))
                    cells.append(f"{mean:,.1f}")
            times = [1e3 * value for value in _averages(found, sizes, privacy, "seconds")]
            spread = f" ± {statistics.stdev(times):.2f}" if len(times) > 1 else ""
            cells.append(f"{statistics.fmean(times):.2f}{spread}")
            rows.append(cells)
    return markdown_table(headings, rows)


def as_csv(found: Measurements) -> str:
    """Return all measurements, a line per agent."""
    keys = list(next(iter(next(iter(found.values())).values())))
    return csv_table(
        ["sizes", "privacy", "seed", "agent", *keys],
        (
            [sizes, privacy, seed, name, *(values[key] for key in keys)]
            for (sizes, privacy, seed), agents in found.items()
            for name, values in agents.items()
        ),
    )
