"""`load`: a trained network, in another script, from files alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sheafed.agents.agent import Agent
from sheafed.alignment.files import DOCUMENT
from sheafed.checkpointing.run_directory import CONFIG
from sheafed.config.custom_method import AllowCode
from sheafed.config.experiment import Experiment
from sheafed.config.federation import build_federation
from sheafed.config.running import read_config
from sheafed.errors import ConfigError, InputError
from sheafed.methods import Method
from sheafed.network.status import peer_directory
from sheafed.training import Network, load_network
from sheafed.training.loading import Which


def load(
    run: str | Path,
    agents: Iterable[Agent] | None = None,
    *,
    which: Which = "last",
    method: Method | None = None,
    pilots: Any = None,
    device: str | None = None,
    allow_code: AllowCode = (),
) -> Network:
    """Return a trained network from its run directory, to use it and to train it on.

    Weights, whitening, maps, graph and method are in the file; a contradiction to what is given is
    a `NetworkMismatchError`. The run directory is only read: `Network.train` writes to a new one,
    if any. The network's ledger counts from here on.

    >>> from tempfile import TemporaryDirectory
    >>> import torch
    >>> from torch import nn
    >>> import sheafed
    >>> data, pilots = (torch.randn(32, 4), torch.arange(32) % 3), torch.randn(20, 4)
    >>> def agents():
    ...     yield sheafed.Agent("oslo", nn.Linear(4, 3), nn.Linear(3, 3), data=data)
    ...     yield sheafed.Agent("paris", nn.Linear(4, 2), nn.Linear(2, 3), data=data)
    >>> with TemporaryDirectory() as out:
    ...     method = sheafed.SheafFRL(pilots_per_round=20)
    ...     edges = [("oslo", "paris")]
    ...     trained = sheafed.train(agents(), edges, method, pilots, epochs=1, out=out)
    ...     network = sheafed.load(out, agents())
    >>> z = network.encode(data[0], "paris")
    >>> torch.equal(network.send(z, "paris", "oslo"), trained.send(z, "paris", "oslo"))
    True
    >>> network.classify(z, "paris", "oslo").shape
    torch.Size([32])

    Args:
        run: the directory, `out` of `train` or of `sheafed run`.
        agents: as in the run, with any weights: those of the file replace them. A run from a
            config needs none; they are rebuilt from its `config.json`, data included.
        which: the network at the end of training, `"last"`, or at its best validation score,
            `"best"`, which needs validation data of all agents.
        method: needed only if a file cannot describe it: a method of your own, or one with an
            option that only code can give.
        pilots: those of the run, for training on, joining, misalignment and paths of several hops;
            sending to neighbours and classifying work without. A run from a config rebuilds them.
        device: where the agents of a config compute, if not where they were trained; agents that
            are given have theirs.
        allow_code: modules, or files `NAME.py`, from which a method of your own that the run's
            config names may be imported; not needed if `method` is given.
    """
    _check_kind(Path(run))
    if agents is None:
        config = run_config(Path(run), device)
        if method is not None:  # in place of one that the config names, which is not imported
            config = config.model_copy(update={"method": method})
        found = build_federation(config, allow_code=allow_code)
        agents, method = found.agents, found.method
        pilots = found.pilots if pilots is None else pilots
    elif device is not None:
        raise InputError("agents that are given have a device; give it to them, Agent(device=...)")
    return load_network(run, agents, which=which, method=method, pilots=pilots)


def run_config(run: Path, device: str | None = None) -> Experiment:
    """Return the experiment of a run directory, on another device if one is given.

    Raises if it has none.
    """
    if not run.is_dir():
        raise ConfigError(f"there is no run directory {run}")
    _check_kind(run)
    experiment = read_config(run)
    if experiment is None:
        raise ConfigError(
            f"{run} has no {CONFIG} to rebuild the agents from; load it in Python with "
            "sheafed.load(run, agents)"
        )
    if device is None:
        return experiment
    training = experiment.training.model_copy(update={"device": device})
    return experiment.model_copy(update={"training": training})


def _check_kind(directory: Path) -> None:
    """Raise if a directory is none of a run, with what can be done with it."""
    if (found := peer_directory(directory)) is not None:
        raise ConfigError(
            f"{found}: every agent has its own weights alone, which cannot be loaded together; "
            "Agent.load_weights takes those of one, see docs/how-to/one-process-per-agent.md"
        )
    if (directory / DOCUMENT).is_file():
        raise ConfigError(
            f"{directory} is an alignment, not a run: it holds maps between latents, no encoders "
            "and heads; use `sheafed send`, or sheafed.Alignment.load(directory) in Python"
        )
