"""A training as a figure: its curves, and who understands whom at its end."""

from __future__ import annotations

import io
import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from sheafed.metrics.metric import ACCURACY, metrics_of
from sheafed.optional import require_extra
from sheafed.training.overview import KINDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sheafed.evaluation.result import Evaluation
    from sheafed.training.history import RunHistory

COLOURS = dict(zip(KINDS, ("#0072B2", "#E69F00", "#009E73"), strict=True))
STYLES = ("-", "--", ":", "-.")
NUMBERED_AGENTS = 12
"""Up to so many the cells of the heat map show their numbers."""


def plot_history(history: RunHistory) -> Figure:
    """Draw the values of all evaluations, and the last one by sender and receiver."""
    require_extra("report", "a figure", "matplotlib")
    from matplotlib.figure import Figure  # here, as it takes long to load

    class NotebookFigure(Figure):
        """Is shown below a cell also where `pyplot`, which keeps global state, is not in use."""

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=100)
            return buffer.getvalue()

    figure = NotebookFigure(figsize=(11, 4.2), layout="constrained")
    curves, heatmap = figure.subplots(1, 2)
    _draw_curves(curves, history)
    _draw_heatmap(heatmap, history.evaluation, history.errors)
    return figure


def _draw_curves(axes: Any, history: RunHistory) -> None:
    metrics = metrics_of(history.last or {})
    for k, metric in enumerate(metrics):
        for kind in KINDS:
            key = f"{kind}_{metric}"
            points = [(r["epoch"], r[key]) for r in history.records if r.get(key) is not None]
            if points:
                label = kind if len(metrics) == 1 else f"{kind} {metric}"
                look = {"color": COLOURS[kind], "linestyle": STYLES[k % len(STYLES)]}
                axes.plot(*zip(*points, strict=True), marker=".", label=label, **look)
    axes.set(xlabel="epoch", ylabel=" or ".join(metrics) or "no evaluation yet", title="Training")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    if axes.lines:
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.16), "ncols": len(KINDS)}
        axes.legend(**below)  # where it covers no curve


def _draw_heatmap(axes: Any, evaluation: Evaluation | None, errors: Collection[str]) -> None:
    """Draw communication by sender and receiver, with private values on the diagonal.

    A row is of its sender's metric. Each metric has a colour scale of its own, bright where the
    value is good.
    """
    if evaluation is None or not evaluation.private:
        axes.set_axis_off()
        return
    pairs = {(name, name): value for name, value in evaluation.private.items()}
    pairs |= evaluation.communication
    names = sorted({name for pair in pairs for name in pair})
    for metric in sorted({evaluation.metric_of(name) for name in names}):
        values = [
            [
                pairs.get((sender, receiver), math.nan)
                if evaluation.metric_of(sender) == metric
                else math.nan
                for receiver in names
            ]
            for sender in names
        ]
        limits = (0.0, 1.0) if metric == ACCURACY.name else (None, None)
        colours = "cividis_r" if metric in errors else "cividis"
        image = axes.imshow(values, cmap=colours, vmin=limits[0], vmax=limits[1])
        smaller = ", smaller is better" if metric in errors else ""
        axes.figure.colorbar(image, label=f"{metric}{smaller}")
        if len(names) <= NUMBERED_AGENTS:
            _number_cells(axes, values, image)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="receiver", ylabel="sender", title="Who understands whom")


def _number_cells(axes: Any, values: list[list[float]], image: Any) -> None:
    for i, row in enumerate(values):
        for j, value in enumerate(row):
            if not math.isnan(value):
                red, green, blue, _ = image.cmap(image.norm(value))
                pale = 0.3 * red + 0.6 * green + 0.1 * blue > 0.5
                colour = "black" if pale else "white"
                axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=colour)
