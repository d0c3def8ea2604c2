"""What can be wrong with an agent, found before its first round and said by its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sheafed.agents.objectives.supervised import check_labels, cross_entropy
from sheafed.agents.samples import INTEGERS, Samples
from sheafed.errors import InputError, NonFiniteError, ShapeError, SheafedError
from sheafed.tensor_tree import TensorTree, describe, select_rows, tensors, tree_length

if TYPE_CHECKING:
    from sheafed.agents.agent import Agent

FEW = 2
"""Samples that modules are tried on."""
_FAILURES = (RuntimeError, TypeError, ValueError, IndexError, AttributeError)
"""What modules raise on inputs that do not fit them."""
_KEPT = (SheafedError, torch.OutOfMemoryError)
"""Those among them that say themselves what is wrong."""


def check_agent(agent: Agent, pilots: TensorTree) -> None:
    """Try encoder and head on a few samples of everything that they will be given.

    Labels that are in memory are all checked; of others, those of the first samples.
    """
    with agent.rng_context(), agent.inference(), torch.no_grad():
        latents = _encode(agent, "training inputs", _first(agent.data.train))
        _encode(agent, "pilots", select_rows(pilots, slice(FEW)))
        scores = None if agent.head is None else _apply_head(agent, latents)
        for split in ("train", "validation", "test"):
            samples: Samples | None = getattr(agent.data, split)
            if samples is None:
                continue
            if split != "train":
                _encode(agent, f"{split} inputs", _first(samples))
            judged = split != "train" and agent.metric.task == "classification"
            if scores is not None and (judged or agent.objective is cross_entropy):
                _check_split_labels(agent, split, samples, scores)


def _first(samples: Samples) -> TensorTree:
    return samples.batch(torch.arange(min(FEW, len(samples)))).inputs


def _encode(agent: Agent, what: str, inputs: TensorTree) -> Tensor:
    with naming_inputs(agent, f"its {what}", inputs):
        return agent.encode(inputs)


@contextmanager
def naming_inputs(agent: Agent, what: str, inputs: TensorTree) -> Iterator[None]:
    """Say what an encoder was given, and what it takes, when it fails."""
    try:
        yield
    except _KEPT:
        raise
    except _FAILURES as problem:
        first = _first(agent.data.train)
        raise InputError(
            f"agent {agent.name!r}: its encoder fails on {what}, {describe(inputs)}, and takes "
            f"inputs like those it was given first, {describe(first)}"
            f"{_other_precision(inputs, first)}: {problem}"
        ) from problem


def _other_precision(inputs: TensorTree, first: TensorTree) -> str:
    """Return what to do if inputs differ from the first ones in their types."""
    given, taken = ({x.dtype for _, x in tensors(tree)} for tree in (inputs, first))
    if given == taken or not (given | taken) <= {torch.float32, torch.float64}:
        return ""
    return "; convert them by .double()" if torch.float64 in taken else "; convert them by .float()"


def _apply_head(agent: Agent, latents: Tensor) -> Tensor:
    first = next((m for m in agent.head.modules() if isinstance(m, nn.Linear)), None)  # type: ignore[union-attr]
    if first is not None and first.weight.dtype != latents.dtype and latents.is_floating_point():
        told = (
            f"latents in {latents.dtype}, which its encoder gives, and its first linear layer "
            f"computes in {first.weight.dtype}; give both one precision, float32 by "
            "encoder.float() and head.float(), or float64 by .double(), inputs and pilots too"
        )
    else:
        takes = "" if first is None else f", and its first linear layer takes {first.in_features}"
        told = (
            f"latents of size d = {agent.dimension}, which its encoder gives{takes}; give both the "
            "same size"
        )
    with explained(f"agent {agent.name!r}: its head fails on {told}"):
        scores: Any = agent.apply_head(latents)
    if not isinstance(scores, Tensor) or len(scores) != tree_length(latents):
        found = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ShapeError(
            f"agent {agent.name!r}: its head must give one row per latent, for latents of shape "
            f"{tuple(latents.shape)} it gave {found}"
        )
    return scores


def _check_split_labels(agent: Agent, split: str, samples: Samples, scores: Tensor) -> None:
    """Raise on labels that no output of the head stands for."""
    targets = getattr(samples, "targets", None)
    if not isinstance(targets, Tensor):
        targets = samples.batch(torch.arange(min(FEW, len(samples)))).targets
    if targets is None or targets.dtype not in INTEGERS:
        return  # none, or class probabilities
    if scores.ndim < 2 or scores.shape[1] < 2:
        raise ShapeError(
            f"agent {agent.name!r}: its head gives {tuple(scores.shape)} for {len(scores)} "
            f"latents, expected ({len(scores)}, classes), a score for each of two or more classes"
        )
    one_hot = (
        targets.ndim == 2
        and targets.shape[1:] == scores.shape[1:]
        and bool((targets.sum(1) == 1).all())
    )
    if one_hot:
        raise ShapeError(
            f"agent {agent.name!r}: its {split} labels are one-hot, of shape "
            f"{tuple(targets.shape)}, expected one number per sample; give labels.argmax(1)"
        )
    try:
        check_labels(agent.name, targets, scores[:1].expand(len(targets), *scores.shape[1:]))
    except InputError as problem:
        raise type(problem)(f"{problem} (in its {split} data)") from None


@contextmanager
def explained(message: str) -> Iterator[None]:
    """Say what a module was given when it fails."""
    try:
        yield
    except _KEPT:
        raise
    except _FAILURES as problem:
        raise InputError(f"{message}: {problem}") from problem


def check_parts(name: str, encoder: Any, head: Any, objective: Any, optimizer: Any) -> None:
    """Raise unless the parts of an agent are of the kinds that they must be."""
    kinds = {
        "encoder": (encoder, isinstance(encoder, nn.Module), "a torch module"),
        "head": (head, head is None or isinstance(head, nn.Module), "a torch module or None"),
        "objective": (objective, callable(objective), "a function of agent and batch"),
        "optimizer": (
            optimizer,
            callable(optimizer) or isinstance(optimizer, torch.optim.Optimizer),
            "a torch optimiser, or a function from parameters to one, e.g. torch.optim.Adam",
        ),
    }
    for what, (given, valid, expected) in kinds.items():
        if not valid:
            raise InputError(f"agent {name!r}: {what} must be {expected}, got {given!r}")
    if str(getattr(objective, "__module__", "")).startswith("torch.nn."):
        called = getattr(objective, "__name__", type(objective).__name__)
        raise InputError(
            f"agent {name!r}: an objective is a function of (agent, batch), and torch's {called} "
            "is none; give objective=sheafed.agents.objectives.mean_squared_error or "
            "cross_entropy, or, for another loss, objective=lambda agent, batch: "
            "loss(agent.apply_head(agent.encode(batch.inputs)), batch.targets)"
        )


def check_numbers(name: str, batch_size: Any, num_workers: Any, max_grad_norm: Any) -> None:
    """Raise unless the numbers of an agent, where given, are in range."""
    if batch_size is not None and not (type(batch_size) is int and batch_size > 0):
        raise InputError(
            f"agent {name!r}: batch_size must be a whole number of at least 1, got {batch_size!r}"
        )
    if num_workers is not None and num_workers < 0:
        raise InputError(f"agent {name!r}: num_workers must not be negative, got {num_workers}")
    if max_grad_norm is not None and not max_grad_norm > 0:
        raise InputError(
            f"agent {name!r}: max_grad_norm must be positive or None, got {max_grad_norm}"
        )


def check_classes(name: str, classes: Any) -> None:
    """Raise unless classes, where given, are a list of names."""
    if classes is None:
        return
    named = () if isinstance(classes, str) else tuple(classes)
    if not (named and all(isinstance(c, str) for c in named)):
        raise InputError(
            f"agent {name!r}: classes must be a list of names, one per class, or None, got "
            f"{classes!r}"
        )


def check_finite_latents(name: str, latents: Tensor) -> None:
    """Raise if samples `(n, d)` to evaluate on were not encoded to numbers."""
    bad = int((~torch.isfinite(latents)).any(1).sum())
    if bad:
        raise NonFiniteError(
            f"agent {name!r}: its encoder gives non-finite latents for {bad} of {len(latents)} "
            "samples to evaluate on; clean these data if they hold NaN, else lower the learning "
            "rate or clip the gradient (max_grad_norm)"
        )
