"""What can be wrong with inputs of an agent, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sheafed.agents.encoder_call import hint
from sheafed.agents.samples import Batch, LocalData, Samples, TensorSamples
from sheafed.errors import InputError, NonFiniteError, SheafedError
from sheafed.tensor_tree import TensorTree, describe, first_non_finite, tensors

if TYPE_CHECKING:
    from sheafed.agents.agent import Agent

FEW = 2
"""Samples that modules are tried on."""
FAILURES = (RuntimeError, TypeError, ValueError, IndexError, AttributeError)
"""What modules raise on inputs that do not fit them."""
KEPT = (SheafedError, torch.OutOfMemoryError)
"""Those among them that say themselves what is wrong."""


def first_inputs(samples: Samples) -> TensorTree:
    """Return the inputs of a few samples."""
    return samples.batch(torch.arange(min(FEW, len(samples)))).inputs


@contextmanager
def naming_inputs(
    agent: Agent, what: str, inputs: TensorTree, rows: int | None = None
) -> Iterator[None]:
    """Say what an encoder was given, and what it takes, when it fails.

    Args:
        agent: whose encoder.
        what: a name of the inputs.
        inputs: all of them, or a few.
        rows: how many they are, if only a few are given.
    """
    try:
        yield
    except KEPT:
        raise
    except FAILURES as problem:
        train = agent.data.train
        first = describe(first_inputs(train), len(train))
        raise InputError(
            f"agent {agent.name!r}: its encoder fails on {what}, {describe(inputs, rows)}, and "
            f"takes inputs like its training inputs, {first}: {problem}{remedy(agent, inputs)}"
        ) from problem


def remedy(agent: Agent, inputs: TensorTree) -> str:
    """Return what to do about inputs that differ from training inputs; empty if unknown."""
    known = first_inputs(agent.data.train)
    expected, given = (
        dict(tensors(agent.prepare(Batch(tree, None)).inputs)) for tree in (known, inputs)
    )
    if given.keys() != expected.keys():
        return ""
    for path, tensor in given.items():
        like = expected[path]
        if tensor.ndim == like.ndim - 1:
            return (
                "; a dimension is missing, e.g. that of the batch: give a single input x as x[None]"
            )
        if tensor.dtype == torch.uint8 and like.is_floating_point():
            low, high = (float(value) for value in like.aminmax())
            return (
                f"{hint(tensor)}; give x{path} in the range of the training inputs, the first of "
                f"which lie between {low:.3g} and {high:.3g}"
            )
        if tensor.dtype != like.dtype:
            name = str(like.dtype).removeprefix("torch.")
            return f"; convert x{path}: x.astype({name!r}) in NumPy, x.to({like.dtype}) in torch"
    return ""


def check_finite_inputs(agent: Agent, data: LocalData) -> None:
    """Raise on NaN or infinity in data that are in memory, naming the first row.

    An encoder that gives numbers for that row knows what to do with it.
    """
    splits = {"training": data.train, "validation": data.validation, "test": data.test}
    for split, samples in splits.items():
        row = first_non_finite(samples.inputs) if isinstance(samples, TensorSamples) else None
        if samples is None or row is None:
            continue
        twice = torch.tensor([row, row])  # not all encoders take a single one
        inputs = samples.batch(twice).inputs
        named = naming_inputs(agent, f"row {row} of its {split} inputs", inputs)
        with agent.inference(), torch.no_grad(), named:
            latents = agent.encode(inputs)
        if not bool(torch.isfinite(latents).all()):
            raise NonFiniteError(
                f"agent {agent.name!r}: its {split} inputs hold NaN or infinity, first in row "
                f"{row}, for which its encoder gives no finite latents; clean these data"
            )


def check_pilots_differ(agent: Agent, pilots: TensorTree) -> None:
    """Raise if all pilots of an agent are the same input."""
    parts: list[Tensor] = [tensor for _, tensor in tensors(pilots)]
    if len(parts[0]) > 1 and all(torch.equal(part[1:], part[:-1]) for part in parts):
        raise InputError(
            f"agent {agent.name!r}: its {len(parts[0])} pilots are all alike, and so determine no "
            "map; give different inputs"
        )
