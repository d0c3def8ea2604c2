"""TensorBoard, MLflow and Weights & Biases: what is logged, and that it is logged once."""

import json
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sheafed.errors import InputError, MissingDependencyError
from sheafed.training import (
    Callback,
    ExperimentTracker,
    MLflow,
    Network,
    TensorBoard,
    WandB,
)
from sheafed.training.callbacks.experiment_tracker import scalars
from tests.helpers.federations import start

SMALL = {"epochs": 2}


class Interrupt(Callback):
    """An error, or Ctrl-C, after an evaluation."""

    def __init__(self, epoch: int, error: BaseException) -> None:
        self.epoch, self.error = epoch, error

    def on_evaluation(self, run: Network, record: object) -> bool:
        if run.history.epoch == self.epoch:
            raise self.error
        return False


class Service(ExperimentTracker):
    """A tracker that keeps what it is told."""

    service = "memory"

    def __init__(self) -> None:
        self.opened: list[str | None] = []
        self.points: list[tuple[int, Mapping[str, float]]] = []
        self.statuses: list[str] = []

    def open_run(self, network: Network, run_id: str | None) -> str:
        self.opened.append(run_id)
        return run_id or "first"

    def log(self, values: Mapping[str, float], step: int) -> None:
        self.points.append((step, values))

    def close_run(self, status: str) -> None:
        self.statuses.append(status)

    @property
    def steps(self) -> list[int]:
        return [step for step, _ in self.points]


def test_the_numbers_of_a_record() -> None:
    run = start("distillation", epochs=1)
    assert run.history.last is not None
    found = scalars(run.history.last)
    private = run.history.last["agents"]["ada"]["private_accuracy"]
    assert found["agents/ada/private_accuracy"] == private
    assert found["communication_accuracy"] == run.history.last["communication_accuracy"]
    assert all(isinstance(value, int | float) for value in found.values())


@pytest.mark.parametrize(
    ("error", "status"), [(RuntimeError("broken"), "failed"), (KeyboardInterrupt(), "killed")]
)
def test_every_evaluation_is_logged_once(tmp_path: Path, error: BaseException, status: str) -> None:
    service = Service()
    with pytest.raises(type(error)):  # after the third evaluation; the checkpoint is of the second
        start("alone", tmp_path, callbacks=[service, Interrupt(3, error)], checkpoint_every=10)
    run = start("alone", tmp_path, callbacks=[service], checkpoint_every=10, resume=True)
    assert service.opened == [None, "first"]
    assert service.steps == [1, 2, 3, 4]
    assert [values for _, values in service.points] == list(map(scalars, run.history.records))
    assert service.statuses == [status, "finished"]
    remembered = json.loads((tmp_path / "tracking.json").read_text())
    assert remembered == {"memory": {"run_id": "first", "round": 20}}


def test_a_tracker_that_comes_later_gets_what_was_before(tmp_path: Path) -> None:
    start("alone", tmp_path, epochs=2)
    service = Service()
    start("alone", tmp_path, epochs=3, resume=True, callbacks=[service])
    assert service.steps == [1, 2, 3]


def test_without_a_run_directory_every_training_is_a_new_run() -> None:
    service = Service()
    for _ in range(2):
        start("alone", epochs=1, callbacks=[service])
    assert service.opened == [None, None]
    assert service.steps == [1, 1]


@pytest.mark.parametrize(
    ("module", "make", "extra"),
    [
        ("torch.utils.tensorboard", lambda: TensorBoard("runs"), "tensorboard"),
        ("mlflow", MLflow, "mlflow"),
        ("wandb", WandB, "wandb"),
    ],
)
def test_what_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, module: str, make: Any, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        MissingDependencyError, match=rf"pip install 'sheafed\[{extra}\]'"
    ) as caught:
        make()
    assert isinstance(caught.value, ImportError)


# TensorBoard


def test_tensorboard_shows_every_number_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out, events = tmp_path / "run", tmp_path / "events"
    with pytest.raises(RuntimeError, match="broken"):
        start(
            "distillation",
            out,
            epochs=3,
            checkpoint_every=5,
            callbacks=[TensorBoard(events), Interrupt(2, RuntimeError("broken"))],
        )
    run = start(
        "distillation",
        out,
        epochs=3,
        checkpoint_every=5,
        resume=True,
        callbacks=[TensorBoard(events)],
    )
    found = EventAccumulator(str(events)).Reload()
    expected = [scalars(record) for record in run.history.records]
    assert set(found.Tags()["scalars"]) == set(expected[0])
    for key in ("communication_accuracy", "agents/bob/private_accuracy"):
        points = [(event.step, event.value) for event in found.Scalars(key)]
        assert points == [(k + 1, pytest.approx(values[key])) for k, values in enumerate(expected)]


# MLflow, with a store of local files


@pytest.fixture(scope="module")
def mlflow() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        yield import_module("mlflow")


def test_mlflow_has_one_run_with_everything(mlflow: Any, tmp_path: Path) -> None:
    out, store = tmp_path / "first", (tmp_path / "store").as_uri()

    def tracker() -> MLflow:
        return MLflow("trials", tracking_uri=store)

    client = mlflow.MlflowClient(tracking_uri=store)
    callbacks = [tracker(), Interrupt(1, RuntimeError("broken"))]
    with pytest.raises(RuntimeError, match="broken"):
        start("distillation", out, epochs=2, callbacks=callbacks)
    experiment = client.get_experiment_by_name("trials").experiment_id
    (run,) = client.search_runs([experiment])
    assert run.info.status == "FAILED"
    network = start("distillation", out, epochs=3, resume=True, callbacks=[tracker()])
    (run,) = client.search_runs([experiment])
    assert (run.info.status, run.info.run_name) == ("FINISHED", "first")
    assert run.data.params["method.name"] == "sheaf-frl"
    assert run.data.params["method.distillation.confidence"] == "0.3"
    assert (run.data.params["seed"], run.data.params["training.epochs"]) == ("7", "2")
    assert run.data.params["agents.ada.latent_size"] == "5"
    assert run.data.params["agents.cyd.learning_rate"] == "0.05"
    for key in ("communication_accuracy", "agents/bob/private_accuracy"):
        points = [(p.step, p.value) for p in client.get_metric_history(run.info.run_id, key)]
        assert points == [(r["epoch"], scalars(r)[key]) for r in network.history.records]
    elsewhere = MLflow("trials", tracking_uri=(tmp_path / "elsewhere").as_uri())
    with pytest.raises(InputError, match="give the tracking_uri that the training began with"):
        start("distillation", out, epochs=3, resume=True, callbacks=[elsewhere])


def test_mlflow_takes_any_name_of_an_agent_and_many_values(mlflow: Any, tmp_path: Path) -> None:
    from sheafed.training.callbacks.mlflow import _key

    for name in ("ada & bob: <1>", "Übung"):
        mlflow.utils.validation._validate_metric_name(_key(f"agents/{name}/loss"))
    assert len({_key("a<"), _key("a>")}) == 2
    store = tmp_path.as_uri()
    start("alone", epochs=1, federation="fifteen", callbacks=[MLflow("x", tracking_uri=store)])
    client = mlflow.MlflowClient(tracking_uri=store)
    (run,) = client.search_runs([client.get_experiment_by_name("x").experiment_id])
    assert run.info.run_name == "Non-cooperative"
    assert len(run.data.params) > 100


# Weights & Biases, by a stand-in: there is no reader of the files that it writes offline


class WandBRun:
    """As `wandb.Run` where it is used; steps may not go back."""

    def __init__(self, id: str, config: Mapping[str, Any]) -> None:
        self.id, self.config = id, config
        self.points: list[tuple[int, dict[str, float]]] = []
        self.exit_code: int | None = None

    def log(self, data: dict[str, float], step: int) -> None:
        assert self.exit_code is None
        assert step >= max((before for before, _ in self.points), default=0)
        self.points.append((step, data))

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = ModuleType("wandb")
    module.calls = []

    def init(config: Mapping[str, Any], id: str = "new", **options: Any) -> WandBRun:
        json.dumps(config)
        module.calls.append((options, run := WandBRun(id, config)))
        return run

    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def test_wandb_goes_on_with_one_run(wandb: Any, tmp_path: Path) -> None:
    out = tmp_path / "first"

    def tracker() -> WandB:
        return WandB("trials", mode="offline")

    callbacks = [tracker(), Interrupt(1, RuntimeError("broken"))]
    with pytest.raises(RuntimeError, match="broken"):
        start("distillation", out, epochs=2, callbacks=callbacks)
    network = start("distillation", out, epochs=2, resume=True, callbacks=[tracker()])
    (options, one), (again, other) = wandb.calls
    assert options == {"project": "trials", "mode": "offline", "name": "first"}
    assert again == options | {"resume": "allow"}
    assert one.id == other.id == "new"
    expected = [(record["epoch"], scalars(record)) for record in network.history.records]
    assert one.points + other.points == expected
    assert (one.exit_code, other.exit_code) == (1, 0)
    assert one.config["method"]["name"] == "sheaf-frl"
    assert one.config["agents"]["ada"]["latent_size"] == 5


def test_wandb_takes_the_options_of_its_own(wandb: Any) -> None:
    start("alone", epochs=1, callbacks=[WandB(name="mine", entity="us")])
    ((options, _),) = wandb.calls
    assert options == {"project": "sheafed", "name": "mine", "entity": "us"}
