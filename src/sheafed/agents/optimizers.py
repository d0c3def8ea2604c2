"""The optimiser and the learning-rate scheduler of an agent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from sheafed.errors import InputError, OptimizerError, SheafedError

MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]
MakeScheduler = Callable[[Optimizer], LRScheduler]
SchedulerPeriod = Literal["step", "epoch"]

SHOWN = 3
"""How many parameters an error names."""
IMPLEMENTATION = {"params", "param_names", "foreach", "fused", "capturable", "differentiable"}
"""Entries of a group of parameters that do not change what an optimiser computes."""


def default_optimizer(parameters: Iterable[nn.Parameter]) -> Optimizer:
    """Return AdamW with learning rate 0.003 and weight decay 0.01.

    It was chosen by validation accuracy over tasks of several kinds, see
    `benchmarks/default_optimizer.py`.

    >>> default_optimizer(nn.Linear(2, 2).parameters()).param_groups[0]["lr"]
    0.003
    """
    return AdamW(parameters, lr=3e-3, weight_decay=1e-2)


def paper_optimizer(parameters: Iterable[nn.Parameter]) -> Optimizer:
    """Return the optimiser of app:exp_details: SGD with momentum and weight decay."""
    return SGD(parameters, lr=1e-2, momentum=0.9, weight_decay=5e-4)


def build_optimizer(
    agent: str, given: Optimizer | MakeOptimizer, modules: Mapping[str, nn.Module]
) -> Optimizer:
    """Return the optimiser of an agent; raise unless it holds what the agent trains.

    Args:
        agent: its name, for errors.
        given: an optimiser, or a function from parameters to one. It is not called if there is
            nothing to train.
        modules: all that the agent has, by what they are.
    """
    names: dict[nn.Parameter, str] = {}
    for what, module in modules.items():
        for name, parameter in module.named_parameters():
            names.setdefault(parameter, f"{what}.{name}")  # encoder and head may share some
    trainable = [parameter for parameter in names if parameter.requires_grad]
    if isinstance(given, Optimizer):
        optimizer = given
    elif trainable:
        optimizer = _built(agent, "optimizer", given, list(names), "Adam(parameters, lr=0.003)")
    else:
        return SGD([torch.zeros(0)], lr=0.0)  # torch refuses an optimiser without parameters
    if not isinstance(optimizer, Optimizer):
        raise OptimizerError(
            f"agent {agent!r}: optimizer must be a torch optimiser or a function from parameters "
            f"to one, got {type(optimizer).__name__} from it; return the optimiser, e.g. "
            "optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.003)"
        )
    held = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    if missing := [names[parameter] for parameter in trainable if parameter not in held]:
        raise OptimizerError(
            f"agent {agent!r}: the optimiser misses {len(missing)} of {len(trainable)} trainable "
            f"parameters: {_listed(missing)}; give it all of them, or switch off the gradient of "
            "those that must not change by requires_grad_(False)"
        )
    if foreign := [tuple(parameter.shape) for parameter in held if parameter not in names]:
        raise OptimizerError(
            f"agent {agent!r}: the optimiser holds {len(foreign)} parameters that are not of this "
            f"agent's {', '.join(modules)}, of shape {_listed(map(str, foreign))}; give every "
            "agent an optimiser of its own, built after the modules are in place"
        )
    return optimizer


def build_scheduler(
    agent: str, given: LRScheduler | MakeScheduler | None, optimizer: Optimizer, learns: bool
) -> LRScheduler | None:
    """Return the scheduler of an agent, checked; None if it has none or nothing to train."""
    if given is None or not learns:
        return None
    scheduler = given
    if not isinstance(scheduler, LRScheduler):
        example = "CosineAnnealingLR(optimizer, T_max=500)"
        scheduler = _built(agent, "scheduler", given, optimizer, example)
    if not isinstance(scheduler, LRScheduler):
        raise OptimizerError(
            f"agent {agent!r}: scheduler must be a torch.optim.lr_scheduler or a function from an "
            f"optimiser to one, got {type(scheduler).__name__}"
        )
    if isinstance(scheduler, ReduceLROnPlateau):
        raise OptimizerError(
            f"agent {agent!r}: ReduceLROnPlateau needs a metric at every step and agents are "
            "evaluated together, not at every step; take a schedule that depends on the step "
            "alone, e.g. CosineAnnealingLR, and end early by sheafed.training.EarlyStopping"
        )
    if scheduler.optimizer is not optimizer:
        raise OptimizerError(
            f"agent {agent!r}: the scheduler belongs to another optimiser; give a function, e.g. "
            "scheduler=lambda optimizer: CosineAnnealingLR(optimizer, T_max=500), or give the "
            "optimiser that it was built with as optimizer"
        )
    return scheduler


def hyperparameters(optimizer: Optimizer, scheduler: LRScheduler | None) -> dict[str, Any]:
    """Return the settings of an optimiser and a scheduler as JSON has them, by whose they are.

    A setting that differs between groups of parameters is a list, with one value for each.

    >>> found = hyperparameters(default_optimizer(nn.Linear(2, 2).parameters()), None)
    >>> found["optimiser's lr"], found["optimiser's betas"]
    (0.003, [0.9, 0.999])
    """
    found: dict[str, Any] = {}
    groups = optimizer.param_groups
    for key in dict.fromkeys(key for group in groups for key in group):
        if key not in IMPLEMENTATION:
            values = [_plain(group.get(key)) for group in groups]
            same = all(value == values[0] for value in values)
            found[f"optimiser's {key}"] = values[0] if same else values
    if scheduler is not None:
        state = scheduler.state_dict().items()
        found |= {f"scheduler's {key}": _plain(value) for key, value in state}
    return found


def check_period(agent: str, period: str) -> None:
    if period not in get_args(SchedulerPeriod):
        raise InputError(
            f"agent {agent!r}: scheduler_every must be 'step' or 'epoch', got {period!r}"
        )


def _built(agent: str, what: str, make: Any, argument: Any, example: str) -> Any:
    """Return what a function of the user's own makes of an argument; name the agent if it fails."""
    try:
        return make(argument)
    except SheafedError:
        raise
    except Exception as problem:
        of = "parameters" if what == "optimizer" else "optimizer"
        raise OptimizerError(
            f"agent {agent!r}: its {what} cannot be built from the {of}: {problem}; give a "
            f"function of them alone, e.g. {what}=lambda {of}: {example}"
        ) from problem


def _plain(value: Any) -> Any:
    """Return a setting as JSON would give it back; of what JSON does not know, the kind."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | None) else type(value).__name__


def _listed(names: Iterable[str]) -> str:
    known: Sequence[str] = list(names)
    return ", ".join(known[:SHOWN]) + (", ..." if len(known) > SHOWN else "")
