"""`sheafed run` and `sheafed new`: an experiment from a config or a preset, into a directory."""

from __future__ import annotations

import shlex
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from sheafed.cli.allow_code import AllowCode, allow_code_words
from sheafed.config.presets import PRESETS
from sheafed.config.starter import write_starter
from sheafed.errors import ConfigError, Interrupted
from sheafed.transport.cluster_timeouts import TIMEOUT

if TYPE_CHECKING:
    from sheafed.training import Network

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended."""


def run(
    config: Annotated[str, typer.Argument(help="a TOML file, or a preset: " + ", ".join(PRESETS))],
    out: Annotated[Path, typer.Option(help="directory for metrics, checkpoints and weights")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="table.key=value, repeatable")
    ] = None,
    resume: Annotated[
        bool, typer.Option(help="continue from the checkpoint in the directory")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="instead of the config's")] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="distribute the agents over this many processes")
    ] = None,
    max_restarts: Annotated[
        int, typer.Option(min=0, help="of the processes, if one of them is lost")
    ] = 0,
    timeout: Annotated[
        float, typer.Option(min=1, help="seconds after which a silent process counts as lost")
    ] = TIMEOUT,
    allow_code: AllowCode = None,
) -> None:
    """Train and evaluate the network that a config describes."""
    from sheafed.cli.print_placement import PrintPlacement
    from sheafed.config.reading import read_experiment
    from sheafed.config.running import LABEL_DISTRIBUTION, check_run_directory, run_experiment
    from sheafed.training import Cluster
    from sheafed.training.torchrun import in_cluster, launch

    if max_restarts and processes is None:
        raise ConfigError("--max-restarts is about the processes of --processes; give both")
    experiment = read_experiment(config, overrides or [], seed)
    command = ["run", config, "--out", str(out)]
    command += [word for override in overrides or [] for word in ("--set", override)]
    command += [] if seed is None else ["--seed", str(seed)]
    command += allow_code_words(allow_code)
    if processes is not None:
        if in_cluster():
            raise ConfigError("this process was started by torchrun; leave out --processes")
        check_run_directory(experiment, out, resume)
        command += ["--timeout", str(timeout), *(["--resume"] if resume else [])]
        launch(processes, max_restarts, experiment.training.threads, command, out)
        return
    with Cluster(timeout) if in_cluster() else nullcontext() as cluster:
        try:
            network = run_experiment(
                experiment,
                out,
                resume=resume,
                callbacks=[PrintPlacement()],
                cluster=cluster,
                allow_code=allow_code or [],
            )
        except Interrupted as stop:
            if stop.checkpoint is None:
                print(stop, file=sys.stderr)
            else:
                print(f"{stop}, by:", file=sys.stderr)
                print(f"  {shlex.join(['sheafed', *command, '--resume'])}", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
    if network.group.rank != 0:
        return
    _print_results(network, Console())
    if experiment.training.oracle and cluster is not None:
        print("oracle accuracy is not measured by several processes: it needs all inputs in one")
    written = f"wrote {out}: metrics.jsonl, summary.json, last.safetensors"
    if (out / LABEL_DISTRIBUTION).exists():
        print(f"{written}, {LABEL_DISTRIBUTION}")
    else:
        print(f"{written}; {LABEL_DISTRIBUTION} and the page need: pip install 'sheafed[report]'")


def _print_results(network: Network, console: Console) -> None:
    from sheafed.metrics.metric import ACCURACY, metrics_of

    records = {"last": network.history.last, "best on validation data": network.history.best}
    metrics = metrics_of(network.history.last or {})
    kinds = {"private": "private", "communication": "communication", "oracle": "oracle encoder"}
    columns = {
        f"{kind}_{metric}": heading if metric == ACCURACY.name else f"{heading} {metric}"
        for metric in metrics
        for kind, heading in kinds.items()
    } | {"misalignment": "misalignment"}
    table = Table(*("", "epoch", *columns.values()), title=network.method.label)
    for name, record in records.items():
        if record is not None:
            values = ["-" if record[key] is None else f"{record[key]:.3f}" for key in columns]
            table.add_row(name, str(record["epoch"]), *values)
    console.print(table, f"{network.history.ledger.bytes_sent() / 2**20:.1f} MiB sent", sep="\n")


def new(
    name: Annotated[str, typer.Argument(help="NAME.toml and NAME_method.py are written")],
) -> None:
    """Write a commented config and a method of your own to start from."""
    config, method = write_starter(name)
    command = shlex.join(["sheafed", "run", str(config), "--out", f"runs/{config.stem}"])
    print(f"wrote {config} and {method}; next: {command}")
