import numpy as np
import pytest
import torch
from PIL import Image

from sheafed.datasets import label_counts, partitions, plot_label_distribution
from sheafed.errors import EmptyInputError, InputError, ShapeError

LABELS = torch.tensor([0, 1, 1, 3, 0])


def test_counts_by_hand():
    held = {"a": torch.tensor([0, 1, 2]), "b": torch.tensor([], dtype=torch.long)}
    assert label_counts(LABELS, held).tolist() == [[1, 2, 0, 0], [0, 0, 0, 0]]
    assert label_counts(LABELS, held, classes=6).shape == (2, 6)
    assert label_counts(LABELS.numpy(), held).tolist() == [[1, 2, 0, 0], [0, 0, 0, 0]]


def test_a_partition_is_counted_whole():
    labels = torch.arange(1000) % 10
    held = partitions.dirichlet(labels, ["a", "b", "c"], 0.3, torch.Generator().manual_seed(0))
    assert label_counts(labels, held).sum(0).tolist() == [100] * 10


def test_counts_that_do_not_fit(tmp_path):
    with pytest.raises(EmptyInputError, match="no agents"):
        label_counts(LABELS, {})
    with pytest.raises(InputError, match="at least 4"):
        label_counts(LABELS, {"a": torch.tensor([0])}, classes=2)
    with pytest.raises(ShapeError, match=r"\(3,\)"):
        plot_label_distribution(torch.ones(3), tmp_path / "x.png")
    with pytest.raises(ShapeError, match="1 agents and 3 classes"):
        plot_label_distribution(torch.ones(2, 3), tmp_path / "x.png", agents=["a"])


@pytest.mark.parametrize("shape", [(1, 1), (60, 12)])
def test_pictures_of_all_sizes(shape, tmp_path):
    counts = torch.arange(shape[0] * shape[1]).reshape(shape)
    plot_label_distribution(counts, tmp_path / "x.png", classes=["Ankle boot"] * shape[1])
    with Image.open(tmp_path / "x.png") as picture:
        pixels = np.asarray(picture.convert("L"))
    assert pixels.min() < 100 < 250 < pixels.max()


def test_pictures_for_print(tmp_path):
    plot_label_distribution(torch.zeros(2, 3, dtype=torch.long), tmp_path / "x.pdf")
    assert (tmp_path / "x.pdf").read_bytes().startswith(b"%PDF")
