"""Sheets of images, written by Pillow and read back."""

import io
import json
from hashlib import sha256

import numpy as np
import pytest
import torch
from PIL import Image

from sheafed.datasets import cache
from sheafed.datasets.cifar import parse_sheet, read_cifar
from sheafed.datasets.sources import DataFile
from sheafed.errors import DataFormatError


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def test_sheets_and_labels_are_joined_in_order(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    images = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    contents = {
        "a.png": png(images[:3].reshape(3, 1024, 3)),
        "b.png": png(images[3:].reshape(2, 1024, 3)),
        "a.json": json.dumps([1, 0, 1]).encode(),
        "b.json": json.dumps([2, 2]).encode(),
    }
    (tmp_path / "tiny").mkdir()
    files = []
    for name, content in contents.items():
        (tmp_path / "tiny" / name).write_bytes(content)
        files.append(DataFile(name, len(content), sha256(content).hexdigest()))
    found = read_cifar(cache.RemoteFiles("tiny", tuple(files), ()), ("x", "y", "z"))
    assert found.labels.tolist() == [1, 0, 1, 2, 2]
    for k, (row, column, channel) in enumerate([(0, 1, 2), (31, 0, 0), (5, 6, 1), (9, 31, 2)]):
        assert found.inputs[k, channel, row, column] == images[k, row, column, channel]
    assert found.inputs.dtype == torch.uint8


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no image", "sheet.png cannot be read"),
        (png(np.zeros((4, 100, 3), np.uint8)), r"1024 pixels a row, got \(4, 100, 3\)"),
        (png(np.zeros((4, 1024), np.uint8)), r"RGB sheet .*got \(4, 1024\)"),
    ],
)
def test_another_file_is_refused(content, message):
    with pytest.raises(DataFormatError, match=message):
        parse_sheet(content, "sheet.png")
