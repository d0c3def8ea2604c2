"""A plan's accuracies as a figure: private on the left, communication on the right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sheafed.reproduction.accuracies import Point, columns
from sheafed.reproduction.plan import Curve, Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

THIN = 0.9


def draw(plan: Plan, found: Sequence[Point], note: str) -> Figure:
    """Draw the curves with the standard deviation over seeds as bars.

    Dashed is what goes beyond the paper; thin and dotted are baselines whose whitening is fitted
    as in the paper, on private data.
    """
    from matplotlib.figure import Figure  # here, as it takes long to load

    figure = Figure(figsize=(10, 5.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    private, fair, as_in_paper, _ = columns(plan).values()
    for curve in plan.curves:
        own = [point for point in found if point.curve == curve]
        style = "--" if curve.ours else "-"
        _line(left, curve, own, private, style, curve.label)
        _line(right, curve, own, fair, style, None)
        _line(right, curve, own, as_in_paper, ":", None)
    right.plot([], [], ":", color="#555555", lw=THIN, label="whitened as in the paper")
    kind = "degree-weighted" if plan.degree_weighted else "mean of agents"
    left.set(title="private accuracy", ylabel="accuracy on test data")
    right.set(title=f"communication accuracy ({kind})")
    for axes in (left, right):
        axes.set_xlabel(plan.axis_label)
        axes.grid(color="#dddddd", lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if plan.logarithmic:
            axes.set_xscale("log", base=2)
        axes.set_xticks([float(value) for value in plan.values], plan.values)
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(note, fontsize=10)
    return figure


def save(figure: Figure, out: Path, name: str) -> None:
    """Write a figure as PNG and PDF; equal figures have equal bytes."""
    figure.savefig(out / f"{name}.png", dpi=160)
    figure.savefig(out / f"{name}.pdf", metadata={"CreationDate": None})


def _line(
    axes: Axes, curve: Curve, own: Sequence[Point], key: str, style: str, label: str | None
) -> None:
    rows = [(float(p.value), p.row) for p in own if p.row and p.row.mean[key] is not None]
    if not rows:
        return
    thin = style == ":"
    axes.errorbar(
        [x for x, _ in rows],
        [row.mean[key] or 0.0 for _, row in rows],
        yerr=[row.deviation[key] or 0.0 for _, row in rows],
        color=curve.colour,
        marker=curve.marker,
        markersize=4 if thin else 7,
        markerfacecolor="white" if thin else curve.colour,
        linestyle=style,
        linewidth=THIN if thin else 1.8,
        elinewidth=THIN,
        capsize=2,
        label=label,
    )
