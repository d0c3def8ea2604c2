import numpy as np
import pytest
import torch

from sheafed.alignment import AffineMap
from sheafed.errors import DtypeError, NonFiniteError, ShapeError


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


def test_bad_input():
    found = draw(4, 3)
    with pytest.raises(ShapeError, match=r"size 4.*\(7, 3\)"):
        found.transform(np.zeros((7, 3)))
    with pytest.raises(NonFiniteError):
        found.transform(np.full((1, 4), np.nan))
    with pytest.raises(DtypeError, match="int64"):
        found.transform(np.zeros((1, 4), dtype=int))
    with pytest.raises(ShapeError, match=r"\(3, 4\)"):
        AffineMap(found.weight, found.value, found.centre)
