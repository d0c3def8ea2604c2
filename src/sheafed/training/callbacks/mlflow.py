"""Runs in MLflow."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sheafed.errors import InputError, MissingDependencyError
from sheafed.training.callbacks.experiment_tracker import ExperimentTracker, Status
from sheafed.training.run_identity import flatten
from sheafed.training.run_settings import run_settings

if TYPE_CHECKING:
    from sheafed.training.live_network import Network

MOST_PARAMETERS, MOST_METRICS = 100, 1000
"""The limits of one request."""
T = TypeVar("T")


class MLflow(ExperimentTracker):
    """A run in MLflow, which must be installed; see `ExperimentTracker` for what is logged.

    Parameters of a run in MLflow cannot change: a training that is prolonged keeps the number of
    epochs that it began with.

    Args:
        experiment: its name; it is created if there is none.
        run_name: the name of the run directory by default, or of the method if there is none.
        tracking_uri: a server or a local store, by default that of `MLFLOW_TRACKING_URI`.
    """

    service = "mlflow"

    def __init__(
        self,
        experiment: str = "sheafed",
        *,
        run_name: str | None = None,
        tracking_uri: str | None = None,
    ) -> None:
        try:
            import mlflow
        except ImportError as problem:
            raise MissingDependencyError(
                "MLflow is not installed; get it with: pip install 'sheafed[mlflow]'"
            ) from problem
        self._mlflow: Any = mlflow
        self._client = mlflow.MlflowClient(tracking_uri=tracking_uri)
        self._experiment, self._run_name = experiment, run_name

    def open_run(self, network: Network, run_id: str | None) -> str:
        if run_id is not None:
            return self._reopen(run_id)
        known = self._client.get_experiment_by_name(self._experiment)
        experiment = (
            self._client.create_experiment(self._experiment)
            if known is None
            else known.experiment_id
        )
        fallback = network.method.label if network.out is None else network.out.name
        run = self._client.create_run(experiment, run_name=self._run_name or fallback)
        self._run = str(run.info.run_id)
        parameters = [
            self._mlflow.entities.Param(_key(key), str(value))
            for key, value in flatten(run_settings(network)).items()
        ]
        for part in _parts(parameters, MOST_PARAMETERS):
            self._client.log_batch(self._run, params=part)
        return self._run

    def log(self, values: Mapping[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        metrics = [
            self._mlflow.entities.Metric(_key(key), float(value), now, step)
            for key, value in values.items()
        ]
        for part in _parts(metrics, MOST_METRICS):
            self._client.log_batch(self._run, metrics=part)

    def close_run(self, status: Status) -> None:
        self._client.set_terminated(self._run, status.upper())

    def _reopen(self, run_id: str) -> str:
        try:
            self._client.update_run(run_id, status="RUNNING")
        except self._mlflow.exceptions.MlflowException as problem:
            raise InputError(
                f"MLflow at {self._client.tracking_uri} cannot go on with run {run_id!r} "
                f"({problem}); give the tracking_uri that the training began with, or leave the "
                "callback out"
            ) from problem
        self._run = run_id
        return run_id


def _key(path: str) -> str:
    """Return a name that MLflow accepts: other characters of an agent's name become their code."""
    return re.sub(r"[^\w\-. /]", lambda match: f"-{ord(match[0]):x}-", path)


def _parts(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
