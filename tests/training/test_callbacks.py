"""What happens beside the training."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from torch.optim import SGD

from sheafed.errors import InputError
from sheafed.methods import NonCooperative
from sheafed.training import (
    Callback,
    EarlyStopping,
    MetricsLog,
    Network,
    summarise,
    train,
)
from tests.helpers.federations import TWO, pilots, samples, simple_agent, start


class Diary(Callback):
    """A user's own: writes down what it is told."""

    def __init__(self, fail: str = "") -> None:
        self.entries: list[tuple[str, int]] = []
        self.fail = fail

    def _note(self, what: str, run: Network) -> None:
        self.entries.append((what, run.history.rounds))
        if what == self.fail:
            raise RuntimeError(f"failed in {what}")

    def on_start(self, run: Network) -> None:
        self._note("start", run)

    def on_round(self, run: Network, log: Mapping[str, float]) -> None:
        assert log["loss"] > 0
        self._note("round", run)

    def on_evaluation(self, run: Network, record: Mapping[str, Any]) -> bool:
        assert run.history.last is record
        assert record["round"] == run.history.rounds
        self._note("evaluation", run)
        return False

    def on_exception(self, run: Network, error: BaseException) -> None:
        self._note(repr(error), run)

    def on_end(self, run: Network) -> None:
        self._note("end", run)


def test_what_a_callback_is_told() -> None:
    diary = Diary()
    start("distillation", epochs=2, callbacks=[diary])
    epoch = [("round", k) for k in range(1, 6)]
    other = [("round", k) for k in range(6, 11)]
    assert diary.entries == [
        ("start", 0),
        *epoch,
        ("evaluation", 5),
        *other,
        ("evaluation", 10),
        ("end", 10),
    ]


def test_a_callback_may_override_nothing() -> None:
    run = start("alone", epochs=1, callbacks=[Callback()])
    assert run.history.rounds == 5
    assert not run.history.stopped


def test_a_callback_may_end_the_training() -> None:
    class Enough(Callback):
        def on_evaluation(self, run: Network, record: Mapping[str, Any]) -> bool:
            return run.history.epoch == 2

    diary = Diary()
    run = start("alone", epochs=9, callbacks=[Enough(), diary])
    assert (run.history.epoch, run.history.stopped) == (2, True)
    assert diary.entries[-2:] == [("evaluation", 10), ("end", 10)]


@pytest.mark.parametrize("fail", ["round", "evaluation"])
def test_the_end_comes_also_after_an_error(fail: str) -> None:
    quiet, failing = Diary(), Diary(fail)
    with pytest.raises(RuntimeError, match=f"failed in {fail}"):
        start("alone", epochs=1, callbacks=[quiet, failing])
    for diary in (quiet, failing):
        assert [what for what, _ in diary.entries[-2:]] == [
            f"RuntimeError('failed in {fail}')",
            "end",
        ]


def test_the_end_comes_also_after_an_error_of_the_training() -> None:
    inputs, targets = samples(20, 0)
    diary, agent = Diary(), simple_agent("a", data=(inputs, targets), batch_size=20)
    inputs[2:] = float("inf")  # after they were checked
    with pytest.raises(ValueError, match="agent 'a', round 0"):
        train([agent], [], NonCooperative(), pilots(), epochs=1, callbacks=[diary])
    assert [diary.entries[0], diary.entries[-1]] == [("start", 0), ("end", 0)]
    assert "agent 'a', round 0" in diary.entries[1][0]


def test_those_that_have_started_end_when_another_cannot_start() -> None:
    early, failing, late = Diary(), Diary("start"), Diary()
    with pytest.raises(RuntimeError, match="failed in start"):
        start("alone", epochs=1, callbacks=[early, failing, late])
    assert early.entries == [("start", 0), ("RuntimeError('failed in start')", 0), ("end", 0)]
    assert late.entries == []


def test_all_end_also_when_one_fails_to() -> None:
    diaries = [Diary(), Diary("end"), Diary()]
    with pytest.raises(RuntimeError, match="failed in end"):
        start("alone", epochs=1, callbacks=diaries)
    assert [diary.entries[-1] for diary in diaries] == [("end", 5)] * 3


# The metrics


@pytest.mark.parametrize("case", TWO)
def test_metrics_are_on_disk_as_they_happen(case: str, tmp_path: Path) -> None:
    lines: list[list[dict[str, Any]]] = []

    class Look(Callback):
        def on_round(self, run: Network, log: object) -> None:
            assert self._read() == run.history.records

        def on_evaluation(self, run: Network, record: object) -> bool:
            lines.append(self._read())
            assert lines[-1] == run.history.records
            return False

        def _read(self) -> list[dict[str, Any]]:
            content = (tmp_path / "metrics.jsonl").read_text()
            assert content == "" or content.endswith("\n")
            return [json.loads(line) for line in content.splitlines()]

    start(case, tmp_path, epochs=3, callbacks=[Look()])
    assert [len(found) for found in lines] == [1, 2, 3]


def test_a_metrics_log_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "some" / "where.jsonl"
    run = start("alone", epochs=2, callbacks=[MetricsLog(path)])
    assert [json.loads(line) for line in path.read_text().splitlines()] == run.history.records


# Early stopping


def history(values: list[Any], metric: str = "validation_score") -> list[dict[str, Any]]:
    return [{"epoch": k, metric: value} for k, value in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "patience", "margin", "stops"),
    [
        ([0.1], 1, 0.0, False),
        ([0.1, 0.2, 0.3], 1, 0.0, False),
        ([0.1, 0.1], 1, 0.0, True),
        ([0.3, 0.2], 2, 0.0, False),
        ([0.3, 0.2, 0.3], 2, 0.0, True),
        ([0.3, 0.2, 0.4, 0.4], 2, 0.0, False),
        ([0.3, 0.32, 0.34], 2, 0.05, True),
        ([0.3, 0.34, 0.36], 2, 0.05, False),
        ([0.0, -1.0], 1, 0.0, True),
        ([None, 0.3, None, 0.2], 2, 0.0, False),
        ([None, 0.3, None, 0.2, 0.1], 2, 0.0, True),
    ],
)
def test_early_stopping(
    values: list[float | None], patience: int, margin: float, stops: bool
) -> None:
    run = start("alone", epochs=1)
    run.history.records = [{"joined": "ada"}, *history(values)]
    stopping = EarlyStopping(patience=patience, margin=margin)
    assert stopping.on_evaluation(run, run.history.records[-1]) is stops


def test_early_stopping_ends_a_training() -> None:
    agent = simple_agent("a", optimizer=lambda p: SGD(p, lr=0.0))
    run = train(
        [agent],
        [],
        NonCooperative(),
        pilots(),
        epochs=50,
        callbacks=[EarlyStopping("private_accuracy", patience=3)],
    )
    assert (run.history.epoch, run.history.stopped) == (4, True)
    assert summarise(run)["epochs"] == 4


def test_early_stopping_by_an_unknown_metric() -> None:
    with pytest.raises(
        InputError, match=r"by 'happiness': the records hold \['agents', 'bytes_sent'"
    ):
        start("alone", epochs=1, callbacks=[EarlyStopping("happiness")])


def test_early_stopping_without_validation_data() -> None:
    agent = simple_agent("a", data=samples(20, 0))
    with pytest.raises(InputError, match=r"by 'validation_score'.*give the agents validation data"):
        train([agent], [], NonCooperative(), pilots(), epochs=1, callbacks=[EarlyStopping()])


@pytest.mark.parametrize("key", ["validation_acc", "comunication_accuracy"])
def test_early_stopping_by_a_misspelt_metric_writes_no_run(key: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"by '{key}': the records hold .*'validation_score'"):
        start("alone", tmp_path, epochs=4, callbacks=[EarlyStopping(key)])
    assert start("alone", tmp_path, epochs=1, callbacks=[EarlyStopping()]).history.epoch == 1


@pytest.mark.parametrize("key", ["validation_loss", "loss", "payload_bytes", "round"])
def test_early_stopping_by_what_else_the_records_hold(key: str) -> None:
    stopping = EarlyStopping(key, smaller_is_better=True)
    run = start("alone", epochs=1)
    stopping.on_round(run, {"loss": 1.0, "validation_loss": 2.0})


def test_early_stopping_by_a_key_like_another_that_a_method_logs_later() -> None:
    stopping = EarlyStopping("head_losses_of_pilots", smaller_is_better=True)
    stopping.on_round(start("alone", epochs=1), {"head_loss_of_pilots": 1.0})


@pytest.mark.parametrize("patience", [0, -2])
def test_early_stopping_needs_patience(patience: int) -> None:
    with pytest.raises(InputError, match=f"patience must be at least 1, got {patience}"):
        EarlyStopping(patience=patience)


def test_early_stopping_by_what_should_fall() -> None:
    falling = EarlyStopping("loss", patience=1, smaller_is_better=True)
    rising = EarlyStopping("loss", patience=1)
    run = start("alone", epochs=4)
    for stopper, expected in ((falling, False), (rising, True)):
        run.history.records = [{"loss": 3.0}, {"loss": 2.0}]
        assert stopper.on_evaluation(run, run.history.records[-1]) is expected
