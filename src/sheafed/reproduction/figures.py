"""Figures of accuracies, and the files of every reproduction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sheafed.atomic_io import naming_output, write_atomically
from sheafed.reproduction.plan import AccuracyPlan, Curve, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

THIN = 0.9


def draw_accuracies(plan: AccuracyPlan, points: Sequence[Point], subtitle: str) -> Figure:
    """Draw private accuracy on the left, communication accuracy on the right.

    Error bars are standard deviations over seeds. Dashed lines go beyond the paper; thin dotted
    ones are baselines whose whitening is fitted as in the paper, on private data.
    """
    from matplotlib.figure import Figure  # lazily: slow to import

    figure = Figure(figsize=(10, 5.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    private, fair, as_in_paper, _ = plan.columns.values()
    for curve in plan.curves:
        own = [point for point in points if point.curve == curve]
        style = "--" if curve.beyond_paper else "-"
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
    figure.suptitle(subtitle, fontsize=10)
    return figure


def write_files(out: Path, name: str, figure: Figure, csv: str, markdown: str, text: str) -> None:
    """Write NAME.png, .pdf, .csv, .md and .txt."""
    save_figure(figure, out, name)
    for ending, content in (("csv", csv), ("md", markdown), ("txt", text)):
        write_atomically(out / f"{name}.{ending}", content.encode())


def save_figure(figure: Figure, out: Path, name: str) -> None:
    """Write a figure as PNG and PDF; equal figures have equal bytes."""
    with naming_output(out / f"{name}.png"):
        figure.savefig(out / f"{name}.png", dpi=160)
    with naming_output(out / f"{name}.pdf"):
        figure.savefig(out / f"{name}.pdf", metadata={"CreationDate": None})


def _line(
    axes: Axes, curve: Curve, points: Sequence[Point], key: str, style: str, label: str | None
) -> None:
    rows = [(float(p.value), p.row) for p in points if p.row and p.row.mean[key] is not None]
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
