"""Selections: pooling and their checks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sheafed.errors import DtypeError, EmptyInputError, InputError, NonFiniteError, ShapeError
from sheafed.pilots import Selection
from sheafed.seeds import generator

quick = settings(derandomize=True, deadline=None, max_examples=30)


class TestPooling:
    def test_original_pilots_are_the_latents(self) -> None:
        latents = torch.randn(3, 2, generator=generator(0), requires_grad=True)
        assert Selection(torch.tensor([1, 4, 5])).pool(latents) is latents

    def test_prototypes_by_hand(self) -> None:
        selection = Selection(torch.tensor([0, 1, 2, 5]), torch.tensor([1, 0, 1, 1]))
        latents = torch.tensor([[0.0, 3.0], [5.0, 6.0], [3.0, 0.0], [6.0, -6.0]])
        assert torch.equal(selection.pool(latents), torch.tensor([[5.0, 6.0], [3.0, -1.0]]))

    @quick
    @given(
        st.lists(st.integers(0, 4), min_size=1, max_size=20),
        st.integers(1, 4),
        st.sampled_from([torch.float32, torch.float64]),
    )
    def test_against_numpy(self, labels: list[int], d: int, dtype: torch.dtype) -> None:
        present, groups = np.unique(labels, return_inverse=True)
        latents = torch.randn(len(labels), d, generator=generator(len(labels)), dtype=dtype)
        pooled = Selection(torch.arange(len(labels)), torch.from_numpy(groups)).pool(latents)
        expected = [latents.numpy()[np.array(labels) == label].mean(0) for label in present]
        assert pooled.dtype == dtype
        np.testing.assert_allclose(pooled.numpy(), expected, rtol=1e-5, atol=1e-6)

    def test_gradient(self) -> None:
        selection = Selection(torch.arange(6), torch.tensor([0, 1, 2, 0, 1, 2]))
        latents = torch.randn(6, 3, dtype=torch.float64, generator=generator(0))
        assert torch.autograd.gradcheck(selection.pool, latents.requires_grad_())
        (gradient,) = torch.autograd.grad(selection.pool(latents).sum(), latents)
        assert torch.equal(gradient, torch.full((6, 3), 0.5, dtype=torch.float64))

    @pytest.mark.parametrize("shape", [(2, 4), (4, 4), (1, 3, 4)])
    def test_rows_are_checked(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ShapeError, match=r"latents must have shape \(3, d\)"):
            Selection(torch.arange(3)).pool(torch.zeros(shape))

    def test_values_are_checked(self) -> None:
        selection = Selection(torch.arange(2))
        with pytest.raises(DtypeError, match="latents must be float32 or float64"):
            selection.pool(torch.zeros(2, 3, dtype=torch.float16))
        with pytest.raises(NonFiniteError, match="latents"):
            selection.pool(torch.tensor([[1.0], [torch.nan]]))


class TestChecks:
    @pytest.mark.parametrize("indices", [[1, 1], [2, 1], [-1, 0]])
    def test_indices_ascend_strictly(self, indices: list[int]) -> None:
        with pytest.raises(InputError, match="strictly ascending"):
            Selection(torch.tensor(indices))

    @pytest.mark.parametrize("groups", [[0, 2, 2], [1, 2, 1], [-1, 0, 1]])
    def test_groups_number_the_pilots(self, groups: list[int]) -> None:
        with pytest.raises(InputError, match="from 0 without gaps"):
            Selection(torch.arange(3), torch.tensor(groups))

    def test_types_and_shapes(self) -> None:
        # uint8 indices would be read as a mask
        with pytest.raises(DtypeError, match="indices must be int64"):
            Selection(torch.arange(3, dtype=torch.uint8))
        with pytest.raises(EmptyInputError, match="indices is empty"):
            Selection(torch.arange(0))
        with pytest.raises(ShapeError, match="groups must have shape"):
            Selection(torch.arange(3), torch.zeros(3, 1, dtype=torch.int64))
        with pytest.raises(InputError, match="3 indices need one group each, got 2"):
            Selection(torch.arange(3), torch.zeros(2, dtype=torch.int64))


def test_fingerprints_tell_pilots_apart() -> None:
    selections = [
        Selection(torch.tensor([0, 1])),
        Selection(torch.tensor([0, 2])),
        Selection(torch.tensor([0, 1]), torch.tensor([0, 0])),
        Selection(torch.tensor([0, 1]), torch.tensor([0, 1])),
        Selection(torch.tensor([0, 1]), torch.tensor([1, 0])),
    ]
    assert len({selection.fingerprint() for selection in selections}) == 5
    assert Selection(torch.tensor([0, 1])).fingerprint() == selections[0].fingerprint()
