"""The whitening layers that a method can use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal, Protocol

from torch import Tensor, nn

from sheafed.linalg.running_zca import RunningZCA
from sheafed.linalg.stochastic_whitening import StochasticWhitening
from sheafed.options import Fraction, options


class WhiteningLayer(Protocol):
    """A module from latents to white latents, with running statistics, and its inverse."""

    def __call__(self, z: Tensor) -> Tensor:
        """Whiten latents `(n, d)`; in training mode also update the statistics."""

    def fit(self, z: Tensor) -> None:
        """Set the statistics to those of these latents."""

    def colour(self, u: Tensor) -> Tensor:
        """Undo inference-mode whitening."""

    def train(self, mode: bool = True) -> WhiteningLayer: ...

    def eval(self) -> WhiteningLayer: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any: ...


@options
class ZCA:
    """Whiten by the running covariance in closed form; see `RunningZCA`.

    Args:
        shrinkage: of all variances towards their mean. The more, the less small variances are
            amplified.
        momentum: the weight of one batch in the running moments.
    """

    kind: Literal["zca"] = field(default="zca", kw_only=True, repr=False)
    shrinkage: Fraction = 0.5
    momentum: Fraction = 0.05

    def layer(self, dimension: int) -> RunningZCA:
        return RunningZCA(dimension, self.momentum, self.shrinkage)


@options
class SWBN:
    """Whiten by a layer that is trained along; see `StochasticWhitening`.

    Args:
        shrinkage: of all variances towards their mean, when the layer is fitted in closed form.
        momentum: the weight of one batch in the running moments.
    """

    kind: Literal["swbn"] = field(default="swbn", kw_only=True, repr=False)
    shrinkage: Fraction = 0.1
    momentum: Fraction = 0.05

    def layer(self, dimension: int) -> StochasticWhitening:
        return StochasticWhitening(dimension, self.momentum, self.shrinkage)


@options
class NoWhitening:
    """No whitening: latents are compared as they are."""

    kind: Literal["none"] = field(default="none", kw_only=True, repr=False)

    def layer(self, dimension: int) -> Unwhitened:
        return Unwhitened()


class Unwhitened(nn.Module):
    """The identity, with the identity as its colouring."""

    def forward(self, z: Tensor) -> Tensor:
        return z

    def fit(self, z: Tensor) -> None:
        """Learn nothing."""

    def colour(self, u: Tensor) -> Tensor:
        return u
