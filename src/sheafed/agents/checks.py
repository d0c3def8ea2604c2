"""What can be wrong with an agent, found before its first round and said by its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sheafed.agents.input_checks import (
    FAILURES,
    FEW,
    KEPT,
    check_pilots_differ,
    first_inputs,
    naming_inputs,
)
from sheafed.agents.objectives.supervised import check_labels, cross_entropy
from sheafed.agents.samples import INTEGERS, Samples
from sheafed.agents.task import check_metric
from sheafed.errors import InputError, NonFiniteError, ShapeError
from sheafed.linalg.checks import as_int
from sheafed.tensor_tree import TensorTree, select_rows, tree_length

if TYPE_CHECKING:
    from sheafed.agents.agent import Agent


def check_agent(agent: Agent, pilots: TensorTree) -> None:
    """Try encoder and head on a few samples of everything that they will be given.

    Labels that are in memory are all checked; of others, those of the first samples.
    """
    check_pilots_differ(agent, pilots)
    with agent.rng_context(), agent.inference(), torch.no_grad():
        train = agent.data.train
        latents = _encode(agent, "training inputs", first_inputs(train), len(train))
        _encode(agent, "pilots", select_rows(pilots, slice(FEW)), tree_length(pilots))
        scores = None if agent.head is None else _apply_head(agent, latents)
        if scores is not None:
            _check_class_names(agent, scores)
        for split in ("train", "validation", "test"):
            samples: Samples | None = getattr(agent.data, split)
            if samples is None:
                continue
            if split != "train":
                _encode(agent, f"{split} inputs", first_inputs(samples), len(samples))
            judged = split != "train" and agent.metric.task == "classification"
            if scores is not None and (judged or agent.objective is cross_entropy):
                _check_split_labels(agent, split, samples, scores)


def check_judged(agent: Agent, samples: Samples) -> None:
    """Try encoder and head on a few samples that they are to be judged on; check the labels."""
    data = replace(agent.data, test=samples, seen_by=None)
    first = samples.batch(torch.arange(min(FEW, len(samples))))
    if first.targets is None:
        raise InputError(
            f"agent {agent.name!r}: the data to evaluate on have no labels; give (inputs, labels)"
            + ("" if agent.target is None else f", or rows with the column {agent.target!r}")
        )
    check_metric(agent.metric, data)
    with agent.inference(), torch.no_grad():
        latents = _encode(agent, "inputs to evaluate on", first.inputs, len(samples))
        if agent.head is not None and agent.metric.task == "classification":
            _check_split_labels(agent, "test", samples, _apply_head(agent, latents))


def _encode(agent: Agent, what: str, inputs: TensorTree, rows: int) -> Tensor:
    with naming_inputs(agent, f"its {what}", inputs, rows):
        return agent.encode(inputs)


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


def _check_class_names(agent: Agent, scores: Tensor) -> None:
    """Raise unless each score `(n, classes)` of the head has a name, if classes are named."""
    count = scores.shape[1] if scores.ndim == 2 else 1
    if agent.classes is not None and count > 1 and len(agent.classes) != count:
        raise ShapeError(
            f"agent {agent.name!r}: it names {len(agent.classes)} classes, "
            f"{short(list(agent.classes))}, and its head tells apart {count}; give a name for each"
        )


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
    except KEPT:
        raise
    except FAILURES as problem:
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
    if batch_size is not None and (as_int(batch_size) or 0) < 1:
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
