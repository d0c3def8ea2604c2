r"""Products $W (z - c) + v$ of many latents, in float32 where its rounding is harmless.

How much rounding matters depends on the latents as much as on the map: a map that magnifies
directions in which they hardly vary cancels large terms, of which float32 keeps too few digits.
So it is measured. Some rows of every part are computed in float64 as well; where float32 is off by
more than `LIMITS` of the spread of what is sent, this part and those after it are in float64.

Products are NumPy's: those of PyTorch are coarser than float32 under `torch.autocast` and, on some
processors, `torch.set_float32_matmul_precision`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sheafed.linalg.checks import check_finite

# In the rows that are measured; half of what docs/performance.md promises for all. The results of
# half precision are rounded by more than ten times as much.
LIMITS = {torch.float32: 5e-6, torch.float16: 5e-5, torch.bfloat16: 5e-5}
MEASURED_ROWS = 16
# With fewer rows the measurement would cost what float32 saves.
FEWEST_ROWS = 256


@dataclass(eq=False)
class Products:
    """A map, as `AffineMap` has it, for latents on the CPU that come part by part."""

    weight: Tensor
    centre: Tensor
    value: Tensor
    most_rows: int
    """Of a part."""
    too_coarse: bool = field(default=False, init=False)
    """Whether float32 was found to be."""

    def carry(self, name: str, given: Tensor, first_row: int = 0) -> Tensor:
        """Return what finite latents `(n, d_sender)` are mapped to, in float32 or wider.

        Args:
            name: of the part, for errors.
            given: the part.
            first_row: its number in the whole, for errors.
        """
        if given.dtype in LIMITS and len(given) >= FEWEST_ROWS and not self.too_coarse:
            product = self._single.product(self._single.centred(name, given, first_row))
            if self._is_harmless(given, product):
                return product.add_(self._single.value)
            self.too_coarse = True
        product = self._wide.product(self._wide.centred(name, given, first_row))
        return product.add_(self._wide.value)

    def _is_harmless(self, given: Tensor, product: Tensor) -> bool:
        """Whether the rounding of a product in float32 is small beside its spread."""
        rows = torch.linspace(0, len(given) - 1, MEASURED_ROWS).long()
        exact = (given[rows].to(self.weight) - self._single.centre) @ self.weight.mT
        errors = (product[rows] - exact).square().mean(0)
        found = product.numpy()
        means = product.sum(0).double() / len(product)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = torch.from_numpy(np.einsum("ij,ij->j", found, found)).double()
        variances = squares / len(product) - means.square()
        harmless = torch.isfinite(variances) & (errors <= LIMITS[given.dtype] ** 2 * variances)
        return bool(harmless.all())

    @cached_property
    def _wide(self) -> _Typed:
        return _Typed(self.weight, self.centre, self.value, self.most_rows)

    @cached_property
    def _single(self) -> _Typed:
        centre = self.centre.float()
        # What rounding did to the centre, the value takes back.
        value = self.value + self.weight @ (centre.to(self.centre) - self.centre)
        return _Typed(self.weight.float(), centre, value.float(), self.most_rows)


@dataclass(frozen=True, eq=False)
class _Typed:
    """A map in one dtype."""

    weight: Tensor
    centre: Tensor
    value: Tensor
    most_rows: int

    def centred(self, name: str, given: Tensor, first_row: int = 0) -> Tensor:
        """Return latents without the centre, until the next part, or raise if they are not finite.

        In float32 a mean that is large beside the deviation cancels here without any rounding.
        """
        room = self._room[: len(given)]
        if given.dtype == room.dtype:
            torch.sub(given, self.centre, out=room)
        else:
            room.copy_(given).sub_(self.centre)
        # The sum of numbers that are not all finite is not, at a fraction of the cost of a look
        # at each; a sum may overflow without them.
        if not bool(torch.isfinite(room.sum())):
            check_finite(name, given.to(torch.float64), first_row)
        return room

    def product(self, x: Tensor) -> Tensor:
        found = torch.empty(len(x), len(self.weight), dtype=x.dtype)
        with np.errstate(all="ignore"):  # what overflows is noticed by those who use it
            np.matmul(x.numpy(), self.weight.numpy().T, out=found.numpy())
        return found

    @cached_property
    def _room(self) -> Tensor:
        # New memory for every part would cost more than what is done there.
        return torch.empty(self.most_rows, len(self.centre), dtype=self.weight.dtype)
