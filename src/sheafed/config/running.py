"""Runs an experiment into a run directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from pydantic import ValidationError

from sheafed.atomic_io import check_output, make_directory, write_atomically
from sheafed.checkpointing.run_directory import CHECKPOINT, CONFIG
from sheafed.config.custom_method import AllowCode
from sheafed.config.experiment import Experiment
from sheafed.config.federation import Federation, build_federation
from sheafed.config.flops import step_flops
from sheafed.datasets import label_counts, plot_label_distribution
from sheafed.errors import ConfigError, RunExistsError
from sheafed.training import Callback, Cluster, Network, train
from sheafed.training.allocator import keep_freed_memory
from sheafed.training.process_group import SingleProcess
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
        _prepare_directory(experiment, federation, out, resume, cluster)
    options = experiment.training
    return train(
        federation.agents,
        federation.graph,
        federation.method,
        federation.pilots,
        epochs=options.epochs,
        out=out,
        seed=experiment.seed,
        resume=resume,
        callbacks=callbacks,
        progress=progress,
        rounds_per_epoch=options.rounds_per_epoch,
        evaluate_every=options.evaluate_every,
        checkpoint_every=options.checkpoint_every,
        oracle=options.oracle and cluster is None,
        group=cluster or SingleProcess(),
    )


def check_run_directory(experiment: Experiment, out: Path, resume: bool) -> None:
    """Raise if a run would overwrite another one, or resume one of another config."""
    if not (out / CONFIG).exists():
        return
    if not resume:
        raise RunExistsError(f"{out} already holds a run; give --resume, or another --out")
    before = read_config(out)
    # Training may be prolonged; what is trained must be the same.
    if before is None or before.model_copy(update={"training": experiment.training}) != experiment:
        raise ConfigError(
            f"{out} was run with another config; resume with the same, or choose another --out"
        )


def read_config(out: Path) -> Experiment | None:
    """Return the experiment of a run directory; None if it has none that this version can read."""
    try:
        return Experiment.model_validate_json((out / CONFIG).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValidationError):
        return None


def _prepare_directory(
    experiment: Experiment, federation: Federation, out: Path, resume: bool, cluster: Cluster | None
) -> None:
    check_run_directory(experiment, out, resume)
    make_directory(out)
    if cluster is not None:
        # First, so that a restart recognises an incomplete directory as its own.
        remember_cluster(out, cluster.placement)
    write_atomically(out / CONFIG, experiment.model_dump_json(indent=2).encode())
    if not (out / CHECKPOINT).exists():
        counts = label_counts(federation.labels, federation.partition)
        plot_label_distribution(counts, out / LABEL_DISTRIBUTION, agents=list(federation.partition))
