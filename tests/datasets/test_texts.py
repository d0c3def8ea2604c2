from hashlib import sha256

import numpy as np
import pytest
import torch

from sheafed.datasets import TextDataset, cache, load, load_texts, subset, texts
from sheafed.datasets.sources import DataFile, DebianPackage
from sheafed.errors import DataFormatError, InputError, ShapeError

HEADER = "Category\tText\nd\tstring\nclass\t\n\n"


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Two files of texts under the name `tiny`."""
    share = tmp_path / "share"
    share.mkdir()
    files = []
    for name, rows in {"train": "b\tfirst \nb\tsecond\n", "test": "a\tthird\n"}.items():
        content = (HEADER + rows).encode()
        (share / f"{name}.tab").write_bytes(content)
        files.append(DataFile(f"{name}.tab", len(content), sha256(content).hexdigest()))
    remote = cache.RemoteFiles("tiny", tuple(files), (DebianPackage(share, "tiny"),))
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setitem(texts.TEXTS, "tiny", texts.TextInfo(3, ("a", "b"), "here", "none", remote))


@pytest.mark.usefixtures("tiny")
def test_training_texts_come_first():
    loaded = load_texts("tiny")
    assert loaded.texts == ("first", "second", "third")
    assert loaded.labels.dtype == torch.int64
    assert [loaded.classes[y] for y in loaded.labels.tolist()] == ["b", "b", "a"]
    assert len(loaded) == 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a\tno header\n", "must begin with Orange's header"),
        (HEADER + "c\tunknown class\n", "line 5 of f must be one of a, b"),
        (HEADER + "a\tfine\nno tab\n", "line 6 of f"),
    ],
)
def test_what_is_no_such_file_is_an_error(content, said):
    with pytest.raises(DataFormatError, match=said):
        texts.parse_tab(content.encode(), "f", ("a", "b"))


def test_wrong_names_and_shapes():
    with pytest.raises(InputError, match="choose one of 20newsgroups, reuters-r8"):
        load_texts("20news")
    with pytest.raises(InputError, match="load_texts"):
        load("20newsgroups")
    with pytest.raises(ShapeError, match=r"2 texts need labels of shape \(2,\)"):
        TextDataset("two", ("a", "b"), torch.zeros(3), ("x",))


def test_subsets_are_nested_and_stratified():
    labels = torch.cat([torch.full((m,), y) for y, m in enumerate((500, 120, 37, 3))])
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(3))]
    whole = subset(labels, len(labels))
    assert torch.equal(whole.sort().values, torch.arange(len(labels)))
    for n in (1, 10, 64, 333):
        torch.manual_seed(n)  # global state has no influence
        chosen = subset(labels, n)
        assert torch.equal(chosen, whole[:n])
        share = labels.bincount() * n / len(labels)
        assert (labels[chosen].bincount(minlength=4) - share).abs().max() < 2
    for n in (0, len(labels) + 1):
        with pytest.raises(InputError, match="from 1 to 660"):
            subset(labels, n)


def test_subsets_stay_as_they_are():
    """Cached latents and published figures belong to this order."""
    assert subset(torch.arange(40) % 4, 8).tolist() == [1, 27, 18, 0, 20, 29, 26, 39]
    assert subset(np.arange(40) % 4, 8).tolist() == [1, 27, 18, 0, 20, 29, 26, 39]
