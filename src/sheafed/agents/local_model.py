"""An agent's encoder and head where they compute: on a device, in a precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from sheafed.agents.casting import InputCast
from sheafed.agents.encoder_call import call_encoder, hint
from sheafed.agents.precision import Precision, autocast, half_dtype, widened
from sheafed.errors import DtypeError, InputError, LatentSizeError, NonFiniteError
from sheafed.linalg.checks import FLOATING
from sheafed.tensor_tree import (
    TensorTree,
    describe,
    first_non_finite,
    map_tensors,
    to_device,
    tree_length,
)


class LocalModel:
    """Inputs are cast and moved as they come; half precision ends where latents or outputs begin.

    Args:
        name: of the agent, for errors.
        encoder: on the device; its `encode` method is used if it has one, else the call itself.
        head: on the device.
        device: where both are.
        precision: of the forward passes.
    """

    def __init__(
        self,
        name: str,
        encoder: nn.Module,
        head: nn.Module | None,
        device: torch.device,
        precision: Precision,
    ) -> None:
        self.name, self.device, self.precision = name, device, precision
        self.encoder, self.head = encoder, head
        self._encode: Callable[..., Tensor] = getattr(encoder, "encode", encoder)
        self._cast = InputCast(name, encoder)
        self._encoder_half, self._head_half = half_dtype(encoder), half_dtype(head)
        layers = [] if head is None else list(head.modules())
        self._head_writes = any(getattr(layer, "inplace", False) for layer in layers)

    def prepare(self, inputs: TensorTree) -> TensorTree:
        """Return inputs on the device, those in float64 cast if the encoder is in float32."""
        return to_device(self._cast(inputs), self.device)

    def encode(self, inputs: TensorTree) -> Tensor:
        """Return the latents of inputs, in float32 if the encoder is in less."""
        given, half = self.prepare(inputs), self._encoder_half
        if half is not None:
            given = map_tensors(lambda x: x.to(half) if x.is_floating_point() else x, given)
        with autocast(self.device, self.precision):
            return widened(call_encoder(self._encode, given))

    def apply_head(self, latents: Tensor, head: nn.Module | None = None) -> Tensor:
        """Return what the head gives for latents `(n, d)`, in float32 if it is in less.

        Args:
            latents: on any device.
            head: another one of the same kind, in place of the agent's.
        """
        half = self._head_half if head is None else half_dtype(head)
        head = self.head if head is None else head
        if head is None:
            raise InputError(f"agent {self.name!r} has no head to evaluate; give it one")
        given = latents.to(device=self.device, dtype=half)
        if self._head_writes:  # perhaps into its input, which others read
            given = given.clone()
        with autocast(self.device, self.precision):
            return widened(head(given))

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Put encoder and head into evaluation mode, and back into each module's mode on exit."""
        modules = [m for top in (self.encoder, self.head) if top is not None for m in top.modules()]
        modes = [m.training for m in modules]
        try:
            for module in modules:
                module.training = False
            yield
        finally:
            for module, mode in zip(modules, modes, strict=True):
                module.training = mode

    def first_latents(self, inputs: TensorTree) -> Tensor:
        """Return the latents `(n, d)` of the first training inputs, or say why there are none."""
        given = self.prepare(inputs)
        try:
            with self.inference(), torch.no_grad():
                latents = self.encode(given)
        except (RuntimeError, TypeError, ValueError) as problem:
            raise InputError(
                f"agent {self.name!r}: the encoder fails on its training inputs, "
                f"{describe(given)}: {problem}{hint(given)}"
            ) from problem
        if (
            not isinstance(latents, Tensor)
            or latents.ndim != 2
            or len(latents) != tree_length(given)
        ):
            found = tuple(latents.shape) if isinstance(latents, Tensor) else type(latents).__name__
            raise LatentSizeError(
                f"agent {self.name!r}: the encoder must give latents (n, d); for inputs of "
                f"{describe(given)} it gave {found}; flatten or pool its output{hint(latents)}"
            )
        if not bool(torch.isfinite(latents).all()):
            row = first_non_finite(given)
            raise NonFiniteError(
                f"agent {self.name!r}: the encoder gives non-finite latents for its own training "
                + (
                    "data; check the data and the initial weights"
                    if row is None
                    else f"inputs, which hold NaN or infinity, first in row {row}; clean these data"
                )
            )
        if latents.dtype not in FLOATING:
            raise DtypeError(
                f"agent {self.name!r}: the encoder gives latents in {latents.dtype}, expected "
                "float32 or float64; convert it by encoder.float(), or let it return float32"
            )
        return latents
