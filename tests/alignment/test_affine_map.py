import numpy as np
import pytest
import safetensors.torch
import torch

from sheafed.alignment import AffineMap, RidgeMap, affine_map
from sheafed.errors import (
    AlignmentFormatError,
    DtypeError,
    EmptyInputError,
    NonFiniteError,
    ShapeError,
)


def draw(d_sender, d_receiver, seed=0):
    rng = np.random.default_rng(seed)
    shapes = ((d_receiver, d_sender), (d_sender,), (d_receiver,))
    return AffineMap(*(torch.as_tensor(rng.standard_normal(shape)) for shape in shapes))


def test_the_layer_computes_the_map():
    found = draw(4, 3)
    z = torch.randn(9, 4, dtype=torch.float64)
    expected = (z.numpy() - found.centre.numpy()) @ found.weight.numpy().T + found.value.numpy()
    np.testing.assert_allclose(found.transform(z), expected)
    np.testing.assert_allclose(found.as_linear(torch.float64)(z).detach(), expected)
    layer = found.as_linear()
    torch.testing.assert_close(layer(z.float()), torch.as_tensor(expected).float())
    assert all(parameter.requires_grad for parameter in layer.parameters())


def test_a_composition_is_one_map_after_the_other():
    first, second = draw(4, 3), draw(3, 5, seed=1)
    z = np.random.default_rng(2).standard_normal((7, 4))
    expected = second.transform(first.transform(z))
    np.testing.assert_allclose(first.then(second).transform(z), expected)


@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor])
def test_in_parts_it_is_the_same(make, monkeypatch):
    found = draw(4, 3)
    z = make(np.random.default_rng(3).standard_normal((25, 4)))
    whole = found.transform(z)
    monkeypatch.setattr(affine_map, "CHUNK", 10)
    parts = list(found.chunks(z))
    assert [numbers for numbers, _ in parts] == [slice(0, 10), slice(10, 20), slice(20, 25)]
    for numbers, part in parts:
        np.testing.assert_allclose(part, whole[numbers])
    np.testing.assert_allclose(found.transform(z), whole)
    assert found.transform(z[0]).shape == (3,)
    assert found.transform(z.reshape(5, 5, 4)).shape == (5, 5, 3)


def test_read_only_memory_is_mapped_without_a_warning(tmp_path):
    found = draw(4, 3)
    z = np.random.default_rng(3).standard_normal((25, 4))
    np.save(tmp_path / "z.npy", z)
    mapped = np.load(tmp_path / "z.npy", mmap_mode="r")
    np.testing.assert_array_equal(found.transform(mapped), found.transform(z))


def test_a_map_is_saved_alone(tmp_path):
    fitted = RidgeMap().fit(*(np.random.default_rng(3).standard_normal((2, 30, 4))))
    path = fitted.save(tmp_path / "map.safetensors")
    z = np.random.default_rng(4).standard_normal((7, 4))
    np.testing.assert_array_equal(AffineMap.load(path).transform(z), fitted.transform(z))
    transposed = AffineMap(fitted.weight.mT, fitted.value, fitted.value)  # a view, and one twice
    again = AffineMap.load(transposed.save(path))
    assert torch.equal(again.weight, fitted.weight.mT)


def test_what_is_no_map_is_not_loaded(tmp_path):
    path = tmp_path / "map.safetensors"
    with pytest.raises(AlignmentFormatError, match=r"cannot read .*No such file"):
        AffineMap.load(path)
    path.write_bytes(b"12345678")
    with pytest.raises(AlignmentFormatError, match=r"no map that AffineMap.save wrote"):
        AffineMap.load(path)
    good = draw(4, 3)
    safetensors.torch.save_file({"weight": good.weight, "centre": good.centre}, path)
    with pytest.raises(AlignmentFormatError, match="value"):
        AffineMap.load(path)
    AffineMap(good.weight, good.centre, good.value * np.nan).save(path)
    with pytest.raises(AlignmentFormatError, match="value holds 3 non-finite"):
        AffineMap.load(path)


def test_bad_input():
    found = draw(4, 3)
    with pytest.raises(ShapeError, match=r"size 4.*\(7, 3\)"):
        found.transform(np.zeros((7, 3)))
    with pytest.raises(EmptyInputError, match=r"\(0, 4\)"):
        found.transform(np.zeros((0, 4)))
    with pytest.raises(ShapeError, match=r"\(\)"):
        found.transform(np.zeros(()))
    large = AffineMap(1e5 * found.weight, found.centre, found.value)
    with pytest.raises(DtypeError, match=r"float16 cannot hold; convert .* float32"):
        large.transform(np.full((2, 4), 9, dtype=np.float16))
    with pytest.raises(NonFiniteError):
        found.transform(np.full((1, 4), np.nan))
    with pytest.raises(DtypeError, match="int64"):
        found.transform(np.zeros((1, 4), dtype=int))
    with pytest.raises(ShapeError, match=r"\(3, 4\)"):
        AffineMap(found.weight, found.value, found.centre)
