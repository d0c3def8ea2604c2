"""The choices of whitening that a method offers; each gives every agent a layer of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal, Protocol

from torch import Tensor, nn

from sheafed.linalg.running_zca import RunningZCA
from sheafed.linalg.stochastic_whitening import StochasticWhitening
from sheafed.options import Fraction, options


class WhiteningLayer(Protocol):
    """A module from latents to white latents, learnt in training mode, and its inverse."""

    def __call__(self, z: Tensor) -> Tensor:
        """Whiten latents `(n, d)`."""

    def fit(self, z: Tensor) -> None:
        """Learn from these latents alone."""

    def colour(self, u: Tensor) -> Tensor:
        """Undo inference-mode whitening."""

    def train(self, mode: bool = True) -> WhiteningLayer:
        """Learn from what is whitened."""

    def eval(self) -> WhiteningLayer:
        """Whiten by what has been learnt."""

    def state_dict(self) -> dict[str, Any]:
        """Return the buffers."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Restore the buffers."""


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
        """Return the whitening of one agent."""
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
        """Return the whitening of one agent."""
        return StochasticWhitening(dimension, self.momentum, self.shrinkage)


@options
class NoWhitening:
    """Compare the latents as they are."""

    kind: Literal["none"] = field(default="none", kw_only=True, repr=False)

    def layer(self, dimension: int) -> Unwhitened:
        """Return the identity."""
        return Unwhitened()


class Unwhitened(nn.Module):
    """The identity, with the identity as its colouring."""

    def forward(self, z: Tensor) -> Tensor:
        """Return the latents."""
        return z

    def fit(self, z: Tensor) -> None:
        """Learn nothing."""

    def colour(self, u: Tensor) -> Tensor:
        """Return the latents."""
        return u
