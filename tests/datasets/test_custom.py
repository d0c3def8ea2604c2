import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from sheafed.datasets import from_arrays, from_dataset, from_folder
from sheafed.errors import DtypeError, EmptyInputError, InputError, ShapeError


class Pairs(Dataset):
    def __init__(self, pairs):
        self.pairs = pairs

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, k):
        return self.pairs[k % len(self.pairs)]  # never an IndexError


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(torch.zeros(3), 1), (torch.ones(3), 0)])


def grey(values, size=(3, 2)):
    return Image.fromarray(np.full(size, values, dtype=np.uint8))


@pytest.fixture
def folder(tmp_path):
    for label, name in enumerate(["cat", "dog"]):
        (tmp_path / name).mkdir()
        for k in range(2):
            grey(100 * label + k).save(tmp_path / name / f"{k}.png")
    (tmp_path / ".hidden").write_text("")
    (tmp_path / "cat" / ".DS_Store").write_text("")
    return tmp_path


def test_arrays_of_images_and_of_vectors():
    images = from_arrays(np.ones((4, 5, 6), np.uint8), [0, 2, 1, 2], name="mine")
    assert (images.name, images.shape, images.classes) == ("mine", (1, 5, 6), ("0", "1", "2"))
    vectors = from_arrays(torch.ones(2, 7), torch.tensor([0, 1], dtype=torch.uint8), classes="ab")
    assert (vectors.shape, vectors.classes, vectors.labels.dtype) == (
        (7,),
        ("a", "b"),
        torch.int64,
    )


@pytest.mark.parametrize(
    ("x", "y", "error", "said"),
    [
        (np.ones((2, 3)), np.array(["cat", "dog"]), DtypeError, r"numpy\.unique"),
        (np.ones((2, 3)), [0.0, 1.0], DtypeError, "whole numbers"),
        (np.ones((2, 3)), [0, 1, 1], ShapeError, r"\(2,\)"),
        (np.ones((0, 3)), np.zeros(0, int), EmptyInputError, "no samples"),
    ],
)
def test_arrays_that_do_not_fit(x, y, error, said):
    with pytest.raises(error, match=said):
        from_arrays(x, y)


def test_any_labelled_dataset():
    tensors = TensorDataset(torch.arange(12.0).reshape(2, 1, 2, 3), torch.tensor([1, 0]))
    assert from_dataset(tensors).inputs.shape == (2, 1, 2, 3)
    assert from_dataset(Stream()).labels.tolist() == [1, 0]
    pictures = Pairs([(Image.new("RGB", (4, 2), (1, 2, 3)), 0)] * 3)
    pictures.classes = ["only"]
    read = from_dataset(pictures, name="pictures")
    assert (len(read), read.shape, read.classes) == (3, (3, 2, 4), ("only",))
    assert read.inputs[0, :, 0, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("pairs", "error", "said"),
    [
        ([], EmptyInputError, "no samples"),
        ([torch.zeros(3)], InputError, r"sample 0 must be an \(input, label\) pair, got Tensor"),
        ([(torch.zeros(3), 0), (torch.zeros(4), 0)], ShapeError, "input 1"),
        ([("text", 0)], DtypeError, "input 0 must be an array"),
        ([(torch.zeros(3), 0), (torch.zeros(3), 1.7)], DtypeError, "label 1 must be a whole numb"),
        ([(torch.zeros(3), torch.tensor(1.0))], DtypeError, r"label 0 .*torch\.float32"),
        ([(torch.zeros(3), True)], DtypeError, r"label 0 .*torch\.bool"),
        ([(torch.zeros(3), [0, 1])], DtypeError, r"label 0 .*of shape \(2,\)"),
        ([(torch.zeros(3), "1")], DtypeError, "label 0 must be an array or tensor of numbers"),
    ],
)
def test_datasets_that_do_not_fit(pairs, error, said):
    with pytest.raises(error, match=said):
        from_dataset(Pairs(pairs))


def test_a_folder_of_images(folder):
    read = from_folder(folder)
    assert (read.name, read.shape, read.classes) == (folder.name, (1, 3, 2), ("cat", "dog"))
    assert read.labels.tolist() == [0, 0, 1, 1]
    assert read.inputs[:, 0, 0, 0].tolist() == [0, 1, 100, 101]
    assert read.inputs.dtype == torch.uint8


def test_images_are_converted_only_on_request(folder):
    grey(7, (8, 4)).save(folder / "dog" / "large.png")
    with pytest.raises(ShapeError, match=r"large\.png.*\(1, 8, 4\); .*size="):
        from_folder(folder)
    assert from_folder(folder, size=(6, 5)).shape == (1, 6, 5)
    Image.new("RGB", (2, 3), (9, 9, 9)).save(folder / "dog" / "large.png")
    with pytest.raises(ShapeError, match="channels="):
        from_folder(folder)
    assert from_folder(folder, channels=1).shape == (1, 3, 2)
    read = from_folder(folder, channels=3)
    assert read.inputs[-1].flatten().tolist() == [9] * 18
    Image.new("RGBA", (2, 3)).save(folder / "dog" / "large.png")
    with pytest.raises(InputError, match=r"large\.png has the colour mode RGBA"):
        from_folder(folder)
    with pytest.raises(InputError, match="channels must be 1 or 3, got 2"):
        from_folder(folder, channels=2)


def test_what_is_not_an_image_is_an_error(folder):
    Image.fromarray(np.zeros((3, 2), np.uint16)).save(folder / "cat" / "deep.png")
    with pytest.raises(InputError, match=r"deep\.png has more than 8 bits"):
        from_folder(folder, channels=1)
    (folder / "cat" / "deep.png").write_bytes(b"text")
    with pytest.raises(InputError, match=r"deep\.png cannot be read as an image"):
        from_folder(folder)
    content = (folder / "cat" / "0.png").read_bytes()
    (folder / "cat" / "deep.png").write_bytes(content[:45])
    with pytest.raises(InputError, match=r"deep\.png cannot be read as an image"):
        from_folder(folder)


def test_folders_that_do_not_fit(folder, tmp_path):
    (folder / "bird").mkdir()
    with pytest.raises(EmptyInputError, match="bird has no images"):
        from_folder(folder)
    (folder / "notes.txt").write_text("")
    with pytest.raises(InputError, match=r"notes\.txt is not a folder"):
        from_folder(folder)
    with pytest.raises(EmptyInputError, match="no subfolders"):
        from_folder(_made(tmp_path / "empty"))
    with pytest.raises(InputError, match="is not a folder; give one with"):
        from_folder(tmp_path / "absent")


def _made(path):
    path.mkdir()
    return path
