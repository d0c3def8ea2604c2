"""A training as a figure: its curves, and who understands whom at its end."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

from sheafed.metrics.metric import ACCURACY, metrics_of
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
    _draw_heatmap(heatmap, history.evaluation)
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
        axes.legend()


def _draw_heatmap(axes: Any, evaluation: Evaluation | None) -> None:
    """Draw communication by sender and receiver, with private values on the diagonal."""
    if evaluation is None or not evaluation.private:
        axes.set_axis_off()
        return
    pairs = {(name, name): value for name, value in evaluation.private.items()}
    pairs |= evaluation.communication
    names = sorted({name for pair in pairs for name in pair})
    values = [[pairs.get((sender, receiver), math.nan) for receiver in names] for sender in names]
    metrics = sorted({evaluation.metric_of(name) for name in names})
    limits = (0.0, 1.0) if metrics == [ACCURACY.name] else (None, None)
    image = axes.imshow(values, cmap="cividis", vmin=limits[0], vmax=limits[1])
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="receiver", ylabel="sender", title="Who understands whom")
    axes.figure.colorbar(image, label=" or ".join(metrics))
    if len(names) <= NUMBERED_AGENTS:
        for i, row in enumerate(values):
            for j, value in enumerate(row):
                if not math.isnan(value):
                    pale = image.norm(value) > 0.5
                    colour = "black" if pale else "white"
                    axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=colour)
