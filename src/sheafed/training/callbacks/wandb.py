"""Runs in Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sheafed.errors import MissingDependencyError
from sheafed.training.callbacks.experiment_tracker import ExperimentTracker, Status
from sheafed.training.run_settings import run_settings

if TYPE_CHECKING:
    from sheafed.training.live_network import Network


class WandB(ExperimentTracker):
    """A run in Weights & Biases; see `ExperimentTracker` for what is logged.

    Args:
        project: its name.
        options: further arguments of `wandb.init`, e.g. `mode="offline"` or `entity`.
    """

    service = "wandb"

    def __init__(self, project: str = "sheafed", **options: Any) -> None:
        try:
            import wandb
        except ImportError as problem:
            raise MissingDependencyError(
                "Weights & Biases is not installed; get it with: pip install 'sheafed[wandb]'"
            ) from problem
        self._wandb: Any = wandb
        self._options = {"project": project, **options}

    def open_run(self, network: Network, run_id: str | None) -> str:
        options = {"name": network.method.label if network.out is None else network.out.name}
        if run_id is not None:
            options |= {"id": run_id, "resume": "allow"}
        options |= self._options
        self._run = self._wandb.init(config=run_settings(network), **options)
        return str(self._run.id)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def close_run(self, status: Status) -> None:
        self._run.finish(exit_code=0 if status == "finished" else 1)
