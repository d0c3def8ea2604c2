"""`sheafed run`: an experiment from a config or a preset, into a directory."""

from importlib import resources
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from sheafed.atomic_io import write_atomically
from sheafed.config.experiment import CONFIG, Experiment
from sheafed.config.federation import Federation, build
from sheafed.config.flops import costs
from sheafed.config.presets import PRESETS, read_experiment
from sheafed.datasets import label_counts, plot_label_distribution
from sheafed.errors import ConfigError, RunExistsError
from sheafed.training import Cluster, Network, ProgressBar, train
from sheafed.training.allocator import keep_freed_memory
from sheafed.training.cluster import TIMEOUT
from sheafed.training.process_group import ProcessGroup, SingleProcess
from sheafed.training.torchrun import in_cluster, launch, remember_cluster, was_begun_here

LABELS = "label_distribution.png"


def run(
    config: Annotated[str, typer.Argument(help="a TOML file, or a preset: " + ", ".join(PRESETS))],
    out: Annotated[Path, typer.Option(help="directory for metrics, checkpoints and weights")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="table.key=value, repeatable")
    ] = None,
    resume: Annotated[bool, typer.Option(help="go on where this directory stopped")] = False,
    seed: Annotated[int | None, typer.Option(help="instead of the config's")] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="share the agents among so many processes")
    ] = None,
    max_restarts: Annotated[
        int, typer.Option(min=0, help="of the processes, when one of them is lost")
    ] = 0,
    timeout: Annotated[
        float, typer.Option(min=1, help="seconds after which a silent process counts as lost")
    ] = TIMEOUT,
) -> None:
    """Train a network as a config says, and evaluate it."""
    experiment = read_experiment(config, overrides or [], seed)
    if processes is not None and in_cluster():
        raise ConfigError("torchrun has started this process already; leave out --processes")
    if processes is not None:
        _check_directory(experiment, out, resume)
        changes = [word for override in overrides or [] for word in ("--set", override)]
        changes += [] if seed is None else ["--seed", str(seed)]
        changes += ["--resume"] if resume else []
        command = ["run", config, "--out", str(out), *changes, "--timeout", str(timeout)]
        launch(processes, max_restarts, experiment.training.threads, command, out)
        return
    torch.set_num_threads(experiment.training.threads)
    keep_freed_memory()
    if not in_cluster():
        _train(experiment, out, resume, SingleProcess(), build(experiment))
        return
    with Cluster(timeout) as cluster:
        here = cluster.place(costs(experiment) if cluster.rank == 0 else None)
        federation = build(experiment, here)
        _train(experiment, out, resume or was_begun_here(out), cluster, federation)


def _train(
    experiment: Experiment, out: Path, resume: bool, group: ProcessGroup, federation: Federation
) -> None:
    if group.rank == 0:
        _check_directory(experiment, out, resume)
        out.mkdir(parents=True, exist_ok=True)
        if isinstance(group, Cluster):
            # First of all: a restart must know the rest, or what there is of it, for its own.
            remember_cluster(out, group.placement)
            print("\n".join(group.describe()))
        write_atomically(out / CONFIG, experiment.model_dump_json(indent=2).encode())
        counts = label_counts(federation.labels, federation.partition)
        plot_label_distribution(counts, out / LABELS, agents=list(federation.partition))
    table = experiment.training
    finished = train(
        federation.agents,
        federation.graph,
        federation.method,
        federation.pilots,
        epochs=table.epochs,
        out=out,
        seed=experiment.seed,
        resume=resume,
        callbacks=[ProgressBar()],
        evaluate_every=table.evaluate_every,
        checkpoint_every=table.checkpoint_every,
        oracle=table.oracle and group.single,
        group=group,
    )
    if group.rank != 0:
        return
    _print(finished, Console())
    if table.oracle and not group.single:
        print("no ceilings: they need a sender's inputs where the receiver lives")
    print(f"wrote {out}: metrics.jsonl, summary.json, last.safetensors; labels by agent: {LABELS}")


def _check_directory(experiment: Experiment, out: Path, resume: bool) -> None:
    """Refuse to overwrite a run, or to go on with another one."""
    path = out / CONFIG
    if path.exists():
        if not resume:
            raise RunExistsError(f"{out} already holds a run; give --resume, or another --out")
        before = Experiment.model_validate_json(path.read_text())
        # How long to train may change; what is trained may not.
        if before.model_copy(update={"training": experiment.training}) != experiment:
            raise ConfigError(
                f"{out} was run with another config; resume with the same, or choose another --out"
            )


def _print(finished: Network, console: Console) -> None:
    table = Table(title=finished.method.label)
    figures = ("private_accuracy", "communication_accuracy", "oracle_accuracy")
    for heading in (
        "",
        "epoch",
        "private",
        "after communication",
        "oracle",
        "misalignment",
    ):
        table.add_column(heading)
    records = {"last": finished.history.last, "best on validation data": finished.history.best}
    for name, record in records.items():
        if record is not None:
            cells = (record[key] for key in (*figures, "misalignment"))
            shown = ["-" if value is None else f"{value:.3f}" for value in cells]
            table.add_row(name, str(record["epoch"]), *shown)
    console.print(table, f"{finished.history.ledger.bytes_sent() / 2**20:.1f} MiB sent", sep="\n")


def new(
    name: Annotated[str, typer.Argument(help="NAME.toml and NAME_method.py are written")],
) -> None:
    """Write a commented config, and a method of your own, to start from."""
    package = resources.files("sheafed.config")
    config, own_method = Path(f"{name}.toml"), Path(f"{name}_method.py")
    for path in (config, own_method):
        if path.exists():
            raise ConfigError(f"{path} exists already; choose another name")
    starter = package.joinpath("toml", "starter.toml").read_text()
    stub = package.joinpath("starter_method.py").read_text()
    write_atomically(config, starter.replace("THIS", name).encode())
    write_atomically(own_method, stub.replace("THIS_MODULE", own_method.stem).encode())
    print(f"wrote {config} and {own_method}; next: sheafed run {config} --out runs/{name}")
