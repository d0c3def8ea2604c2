"""A grid as one picture: what the recommended method gains in every cell, and where it costs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sheafed.reproduction.grid.plan import ALONE, RECOMMENDED, share_name
from sheafed.reproduction.grid.summary import CellFigures, Grid
from sheafed.reproduction.grid.verdict import Judgement, as_points, judge

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOSS, NEUTRAL, GAIN = "#D55E00", "#FFFFFF", "#0072B2"
"""Of the Okabe-Ito palette, which colour-blind readers tell apart."""
NOT_RUN = "#CCCCCC"
LIMIT = 20
"""Points of gain at which the colour is full."""
OUTLINED: dict[str, Any] = {"edgecolor": "black", "linewidth": 1.2}
FELL: dict[str, Any] = {"marker": "v", "s": 130, "color": "#D55E00", **OUTLINED}
BETTER: dict[str, Any] = {"marker": "D", "s": 85, "color": "#F0E442", **OUTLINED}


def draw(grid: Grid) -> Figure:
    """Draw cells, models and shares down, shifts across, coloured by gain in communication."""
    from matplotlib.cm import ScalarMappable  # lazily: slow to import
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.figure import Figure

    columns = list(dict.fromkeys(cell.shift for cell in grid.cells))
    lines = list(dict.fromkeys((cell.model, cell.share) for cell in grid.cells))
    figure = Figure(
        figsize=(4.2 + 2.3 * len(columns), 2.6 + 0.8 * len(lines)), layout="constrained"
    )
    axes = figure.subplots()
    scale = Normalize(-LIMIT, LIMIT)
    palette = LinearSegmentedColormap.from_list("gain", [LOSS, NEUTRAL, GAIN])
    for cell in grid.cells:
        place = columns.index(cell.shift), lines.index((cell.model, cell.share))
        judgement = judge(cell)
        if judgement is None:
            _box(axes, place, NOT_RUN)
            axes.text(*place, "not run", ha="center", va="center", fontsize=9, color="#555555")
            continue
        gain = 100 * judgement.communication.mean
        _box(axes, place, palette(scale(gain)))
        _annotate(axes, place, cell, judgement, dark=abs(gain) > 0.7 * LIMIT)
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(lines) - 0.5, -0.5))
    axes.set_xticks(range(len(columns)), [f"s = {shift}" for shift in columns])
    axes.set_yticks(range(len(lines)), [f"{model}\n{share_name(share)}" for model, share in lines])
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(
        ScalarMappable(scale, palette), ax=axes, extend="both", shrink=0.7, aspect=30
    )
    bar.set_label("gain in communication accuracy, points")
    _legend(figure, axes)
    figure.suptitle(
        f"{RECOMMENDED} against training alone ({grid.scale} grid): gain in communication "
        "accuracy\nin points, with its 95 % interval, and both accuracies, alone → recommended",
        fontsize=10,
    )
    return figure


def _box(axes: Axes, place: tuple[int, int], colour: Any) -> None:
    from matplotlib.patches import Rectangle

    corner = place[0] - 0.48, place[1] - 0.47
    axes.add_patch(Rectangle(corner, 0.96, 0.94, facecolor=colour, edgecolor="#888888", lw=0.8))


def _annotate(
    axes: Axes, place: tuple[int, int], cell: CellFigures, judgement: Judgement, dark: bool
) -> None:
    """Write the figures of a cell, and mark it where the recommended method is not the best."""
    x, y = place
    alone, recommended = cell.rows[ALONE], cell.rows[RECOMMENDED]
    style: dict[str, Any] = {"ha": "center", "va": "center", "color": "white" if dark else "black"}
    gain = as_points(judgement.communication)
    axes.text(x, y - 0.24, gain, fontsize=11, fontweight="bold", **style)
    private = _change(alone.private, recommended.private)
    communication = _change(alone.communication, recommended.communication)
    both = f"private  {private}\ncommunication  {communication}"
    axes.text(x, y + 0.17, both, fontsize=9, **style)
    if judgement.private_fell:
        axes.scatter(x - 0.4, y - 0.28, **FELL)
    if judgement.better:
        axes.scatter(x + 0.4, y - 0.28, **BETTER)


def _legend(figure: Figure, axes: Axes) -> None:
    from matplotlib.patches import Patch

    axes.scatter([], [], label="private accuracy fell beyond noise", **FELL)
    axes.scatter([], [], label="another method communicates better beyond noise", **BETTER)
    marks, labels = axes.get_legend_handles_labels()
    figure.legend(
        [*marks, Patch(facecolor=NOT_RUN, edgecolor="#888888")],
        [*labels, "not run"],
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=9,
    )


def _change(before: Mapping[int, float], after: Mapping[int, float]) -> str:
    """Return two means over the seeds that both have.

    >>> _change({0: 0.5, 1: 0.75, 2: 0.9}, {0: 0.875, 1: 1.0})
    '.625 → .938'
    """
    seeds = before.keys() & after.keys()
    means = (statistics.fmean(values[seed] for seed in seeds) for values in (before, after))
    return " → ".join(f"{mean:.3f}".removeprefix("0") for mean in means)
