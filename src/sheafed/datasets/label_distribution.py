"""The label distribution: samples of each class at each agent, as numbers and as a heat map."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import torch
from torch import Tensor

from sheafed.datasets.labels import Labels, as_labels
from sheafed.errors import EmptyInputError, InputError, ShapeError
from sheafed.optional import require_extra

LABELLED_CELLS = 400  # up to so many cells the heat map also shows the numbers


def label_counts(
    labels: Labels, partition: Mapping[str, Tensor], classes: int | None = None
) -> Tensor:
    """Count the samples `(agents, classes)` of each class that each agent has.

    >>> labels = torch.tensor([0, 1, 1, 2])
    >>> label_counts(labels, {"ada": torch.tensor([0, 1]), "bo": torch.tensor([2, 3])})
    tensor([[1, 1, 0],
            [0, 1, 1]])

    Args:
        labels: `(n,)`, whole numbers from 0 on.
        partition: the indices of every agent's samples; its order is that of the rows.
        classes: their number; by default one more than the largest label.
    """
    if not partition:
        raise EmptyInputError("the partition has no agents; give at least one")
    labels = as_labels(labels)
    largest = int(labels.max()) + 1
    total = largest if classes is None else classes
    if total < largest:
        raise InputError(f"classes must be at least {largest} for these labels, got {classes}")
    return torch.stack([torch.bincount(labels[i], minlength=total) for i in partition.values()])


def plot_label_distribution(
    counts: Tensor,
    path: Path | str | IO[bytes],
    *,
    agents: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    title: str = "Label distribution",
) -> None:
    """Write a heat map of `counts` `(agents, classes)`; the suffix of `path` sets the format.

    One hue from light to dark can be read without colour vision and in print. Up to 400 cells also
    show their number.

    >>> from io import BytesIO
    >>> plot_label_distribution(torch.tensor([[3, 0], [1, 5]]), BytesIO(), agents=["ada", "bo"])
    """
    if counts.ndim != 2 or counts.numel() == 0:
        raise ShapeError(f"counts must have shape (agents, classes), got {tuple(counts.shape)}")
    rows, columns = counts.shape
    agents = [str(k) for k in range(rows)] if agents is None else agents
    classes = [str(k) for k in range(columns)] if classes is None else classes
    if (len(agents), len(classes)) != (rows, columns):
        raise ShapeError(
            f"counts of shape {(rows, columns)} need as many names, got {len(agents)} agents and "
            f"{len(classes)} classes"
        )
    size = (2.5 + min(0.62 * columns, 16), 1.6 + min(0.36 * rows, 16))
    require_extra("report", "a figure", "matplotlib")
    from matplotlib.figure import Figure  # here, as it takes long to load

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(counts.numpy(), cmap="Blues", aspect="auto", vmin=0)
    slanted = max(map(len, classes)) > 4
    axes.set_xticks(range(columns), classes, rotation=40 if slanted else 0)
    if slanted:
        for label in axes.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
    axes.set_yticks(range(rows), agents)
    axes.set(xlabel="class", ylabel="agent", title=title)
    axes.hlines([i - 0.5 for i in range(1, rows)], -0.5, columns - 0.5, color="white")
    axes.vlines([j - 0.5 for j in range(1, columns)], -0.5, rows - 0.5, color="white")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    figure.colorbar(image, label="samples")
    if counts.numel() <= LABELLED_CELLS:
        middle = 0.6 * counts.max()
        for i, row in enumerate(counts.tolist()):
            for j, count in enumerate(row):
                colour = "white" if count > middle else "black"
                axes.text(j, i, f"{count:,}", ha="center", va="center", color=colour, fontsize=8)
    figure.savefig(path, dpi=150)
