"""Runs an experiment into a run directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from pydantic import ValidationError

from sheafed.atomic_io import check_output, naming_output, write_atomically
from sheafed.checkpointing.run_directory import CONFIG
from sheafed.config.custom_method import AllowCode
from sheafed.config.experiment import Experiment
from sheafed.config.federation import Federation, build_federation
from sheafed.config.flops import step_flops
from sheafed.datasets import label_counts, plot_label_distribution
from sheafed.errors import ConfigError, RunExistsError
from sheafed.optional import is_installed
from sheafed.training import Callback, Cluster, Network, train
from sheafed.training.allocator import keep_freed_memory
from sheafed.training.process_group import SingleProcess
from sheafed.training.run_identity import flatten
from sheafed.training.torchrun import remember_cluster, was_begun_here

LABEL_DISTRIBUTION = "label_distribution.png"


def run_experiment(
    experiment: Experiment,
    out: Path,
    *,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    cluster: Cluster | None = None,
    allow_code: AllowCode = (),
) -> Network:
    """Train the network of an experiment, and write its run directory.

    Args:
        experiment: for a resumed run the same, up to its training options.
        out: the run directory.
        resume: continue from the checkpoint in `out`.
        callbacks: see `sheafed.training.Callback`.
        progress: show a progress bar where standard error is a terminal, or in a notebook.
        cluster: the processes that share the agents; all call this function. Oracle accuracy is
            not measured then, as it needs the inputs of all agents in one process.
        allow_code: see `build_federation`.
    """
    torch.set_num_threads(experiment.training.threads)
    keep_freed_memory()
    here = None
    if cluster is not None:
        here = cluster.place(step_flops(experiment) if cluster.rank == 0 else None)
        resume = resume or was_begun_here(out)
    check_output(out)
    federation = build_federation(experiment, here, allow_code=allow_code)
    if cluster is None or cluster.rank == 0:
        check_run_directory(experiment, out, resume)
    options = experiment.training
    network = train(
        federation.agents,
        federation.graph,
        federation.method,
        federation.pilots,
        epochs=options.epochs,
        out=out,
        seed=experiment.seed,
        resume=resume,
        callbacks=[_DescribeRun(experiment, out), *callbacks],
        progress=progress,
        rounds_per_epoch=options.rounds_per_epoch,
        evaluate_every=options.evaluate_every,
        checkpoint_every=options.checkpoint_every,
        oracle=options.oracle and cluster is None,
        vectorize=options.vectorize,
        group=cluster or SingleProcess(),
    )
    if cluster is None or cluster.rank == 0:
        _draw_label_distribution(federation, out)
    return network


def check_run_directory(experiment: Experiment, out: Path, resume: bool) -> None:
    """Raise if a run would overwrite another one, or resume one of another config."""
    if not resume and (out / CONFIG).exists():
        raise RunExistsError(f"{out} already holds a run; give --resume, or another --out")
    before = read_config(out)
    if before is None:
        return
    # Of the training, some settings may change: the checkpoint tells which are others.
    was, now = (
        flatten(found.model_dump(mode="json", exclude={"training"}))
        for found in (before, experiment)
    )
    if other := [key for key in {**was, **now} if was.get(key) != now.get(key)]:
        raise ConfigError(
            f"{out} was run with another config, in {', '.join(other)}; resume with the same, "
            "or choose another --out"
        )


def read_config(out: Path) -> Experiment | None:
    """Return the experiment of a run directory; None if it has none."""
    path = out / CONFIG
    try:
        return Experiment.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as problem:
        raise ConfigError(
            f"{path} cannot be used, it is damaged or was written by another version; without it "
            "a run is resumed from its checkpoint alone, and loaded by sheafed.load(run, agents)"
        ) from problem


def _draw_label_distribution(federation: Federation, out: Path) -> None:
    """Draw it after the training, which shall not wait for Matplotlib."""
    path = out / LABEL_DISTRIBUTION
    if not path.exists() and is_installed("matplotlib"):
        counts = label_counts(federation.labels, federation.partition)
        with naming_output(path):
            plot_label_distribution(counts, path, agents=list(federation.partition))


class _DescribeRun(Callback):
    """Writes what is run, when nothing can refuse it any more."""

    def __init__(self, experiment: Experiment, out: Path) -> None:
        self._experiment, self._out = experiment, out

    def on_start(self, network: Network) -> None:
        out = self._out
        if isinstance(network.group, Cluster):
            # First, so that a restart recognises an incomplete directory as its own.
            remember_cluster(out, network.group.placement)
        write_atomically(out / CONFIG, self._experiment.model_dump_json(indent=2).encode())
