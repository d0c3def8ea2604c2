"""Networks whose agents have other metrics than accuracy, by hand with scikit-learn."""

import json
import re
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_squared_error, r2_score

from sheafed.agents import Agent
from sheafed.errors import CheckpointError, InputError
from sheafed.evaluation import PeerEvaluator, evaluate, evaluate_locally
from sheafed.evaluation.result import merge
from sheafed.methods import NonCooperative, SheafFRL
from sheafed.metrics import Metric
from sheafed.training import EarlyStopping, Network, train
from sheafed.transport import Barrier, LocalTransport, Message
from tests.helpers.federations import (
    CLASSES,
    EDGES,
    FEATURES,
    pilots,
    regression_samples,
    regressor,
    simple_agent,
)

METHOD = SheafFRL(pilots_per_round=12)


def team(metric: Any = None) -> list[Agent]:
    return [regressor(name, 3 + k, 10 * k, metric=metric) for k, name in enumerate("abc")]


def train_team(agents: list[Agent], epochs: int = 2, **options: Any) -> Network:
    edges = [("a", "b"), ("b", "c")]
    return train(agents, edges, options.pop("method", METHOD), pilots(), epochs=epochs, **options)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Network:
    return train_team(team(), out=tmp_path_factory.mktemp("r2"))


@torch.no_grad()
def test_values_are_those_of_direct_computation(run: Network) -> None:
    found = evaluate_locally(run.nodes)
    assert len(found.communication) == len(found.oracle) == 4
    for name, node in run.nodes.items():
        inputs = node.agent.data.test.inputs
        targets = node.agent.data.test.targets.double().numpy()
        latents = node.agent.encode(inputs)
        own = node.agent.head(latents)[:, 0].double().numpy()
        assert found.private[name] == pytest.approx(r2_score(targets, own), rel=1e-5)
        for reader in node.neighbours:
            other = run.nodes[reader]
            read = other.agent.head(other.interpret(node.transmit(latents, reader), name))
            value = r2_score(targets, read[:, 0].double().numpy())
            assert found.communication[name, reader] == pytest.approx(value, rel=1e-4)
            value = r2_score(targets, other.agent.head(other.agent.encode(inputs)).double().numpy())
            assert found.oracle[name, reader] == pytest.approx(value, rel=1e-4)


def test_keys_have_the_name_of_the_metric(run: Network) -> None:
    record, found = run.history.last, run.history.evaluation
    assert not [key for key in json.dumps(record).split('"') if "accuracy" in key]
    assert record["private_r2"] == pytest.approx(np.mean(list(found.private.values())))
    means = [found.communication_of(name) for name in "abc"]
    assert record["communication_r2"] == pytest.approx(np.mean(means))
    assert record["agents"]["b"]["communication_r2"] == means[1]
    expected = (record["validation_private_r2"] + record["validation_communication_r2"]) / 2
    assert record["validation_score"] == pytest.approx(expected)
    summary = json.loads((run.out / "summary.json").read_text())
    assert "accuracy" not in json.dumps(summary)
    assert summary["metrics"] == {"r2": {"greater_is_better": True}}
    assert summary["edges"][0]["communication_r2"] == found.communication["b", "a"]
    assert summary["edges"][0]["oracle_r2"] == found.oracle["b", "a"]


def test_the_best_record_of_an_error_is_the_smallest() -> None:
    run = train_team(team("mse"), epochs=3)
    values = [
        (r["validation_private_mse"] + r["validation_communication_mse"]) / 2
        for r in run.history.records
    ]
    assert [r["validation_score"] for r in run.history.records] == pytest.approx(
        [-value for value in values]
    )
    assert run.history.best is run.history.records[int(np.argmin(values))]
    node = run.nodes["a"]
    outputs = node.agent.head(node.agent.encode(node.agent.data.test.inputs)).detach()
    expected = mean_squared_error(node.agent.data.test.targets, outputs)
    assert run.history.evaluation.private["a"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("key", "chosen", "sign"),
    [
        ("validation_private_mse", None, -1),
        ("communication_mse_degree_weighted", None, -1),
        ("validation_score", None, 1),
        ("misalignment", None, 1),
        ("misalignment", True, -1),
        ("private_mse", False, 1),
    ],
)
def test_early_stopping_follows_the_direction(key: str, chosen: bool | None, sign: int) -> None:
    run = train_team(team("mse"), epochs=1)
    values = [3.0, 2.0, 2.5, 2.5]
    run.history.records = [{key: sign * -value} for value in values]
    stopping = EarlyStopping(key, patience=2, smaller_is_better=chosen)
    assert stopping.on_evaluation(run, run.history.records[-1])
    run.history.records.pop()
    assert not stopping.on_evaluation(run, run.history.records[-1])


def test_what_is_sent() -> None:
    nodes = train_team(team(), epochs=1).nodes
    sent: list[Message] = []
    transport = LocalTransport(list(nodes), drop=lambda message: bool(sent.append(message)))
    evaluate(nodes, Barrier(transport), 0)
    names = {message.kind: set(message.tensors) | set(message.fields) for message in sent}
    assert names == {
        "question": {"latents", "wanted"},
        "answer": {"outputs"},
        "result": {"r2"},
        "pilots": {"latents", "energy"},
    }


def test_parts_of_several_processes_are_merged(run: Network) -> None:
    whole = evaluate_locally(run.nodes, oracle=False)
    rows = json.loads(json.dumps(whole.rows()))
    parts = [{key: rows[key][k::2] for key in rows} for k in (0, 1)]
    assert merge(parts) == whole


def test_bad_answers_and_results_are_counted_and_left_out() -> None:
    a, b = (train_team(team(), epochs=1).nodes[name] for name in "ab")
    answers = {
        "shape": torch.zeros(3, 1),
        "dtype": torch.zeros(11, 1).long(),
        "non-finite": torch.full((11, 1), float("nan")),
    }
    for outputs in answers.values():
        wrong = Message("answer", 3, "b", "a", {"outputs": outputs})
        assert list(PeerEvaluator(a, 3).grade({"b": wrong})) == []
    classes = Message("answer", 3, "b", "a", {"classes": torch.zeros(11).long()})
    assert list(PeerEvaluator(a, 3).grade({"b": classes})) == []
    assert a.rejected == dict.fromkeys(answers, 1) | {"names": 1}
    wide = Message("answer", 3, "b", "a", {"outputs": torch.zeros(11, 3)})
    (result,) = PeerEvaluator(a, 3).grade({"b": wide})
    assert result.fields == {"r2": None}
    assert a.rejected["metric"] == 1
    assert PeerEvaluator(b, 3).communication_values({"a": result}) == {}
    assert not b.rejected
    for fields in ({}, {"r2": 1}, {"r2": 0.5, "mse": 0.5}, {"a b": 0.5}):
        wrong = Message("result", 3, "a", "b", {}, fields)
        assert PeerEvaluator(b, 3).communication_values({"a": wrong}) == {}
    right = Message("result", 3, "a", "b", {}, {"r2": -7.5})
    assert PeerEvaluator(b, 3).communication_values({"a": right}) == {"a": ("r2", -7.5)}
    latents = {"latents": torch.zeros(2, 3)}
    asked = Message("question", 3, "a", "b", latents, {"wanted": "weights"})
    assert list(PeerEvaluator(b, 3).answer({"a": asked})) == []
    assert b.rejected == {"fields": 5}


def test_tasks_that_do_not_fit_have_no_value(caplog: pytest.LogCaptureFixture) -> None:
    """Ada classifies and Cyd predicts a number; each reads only Bob, of its own task or not."""
    ada, bob, cyd = simple_agent("ada"), simple_agent("bob", 4, metric="macro_f1"), regressor("cyd")
    run = train([ada, bob, cyd], EDGES, METHOD, pilots(), epochs=1)
    record, found = run.history.last, run.history.evaluation
    pairs = [("ada", "bob"), ("bob", "ada")]
    assert sorted(pair for pair in found.oracle if "cyd" not in pair) == pairs
    assert sorted(pair for pair in found.communication if "cyd" not in pair) == pairs
    assert ("cyd", "bob") not in found.communication.keys() | found.oracle.keys()
    outputs = f"agent cyd cannot judge what bob reads: .*gives \\(11, {CLASSES}\\) for targets"
    assert any(re.search(outputs, message) for message in caplog.messages)
    assert record["private_accuracy"] == found.private["ada"]
    assert record["private_macro_f1"] == found.private["bob"]
    assert record["private_r2"] == found.private["cyd"]
    assert record["communication_accuracy"] == found.communication["ada", "bob"]
    assert record["communication_r2"] is None
    assert record["agents"]["bob"] == {
        "passes": 1.0,
        "private_macro_f1": found.private["bob"],
        "communication_accuracy": found.communication["ada", "bob"],
        "communication_macro_f1": None,
    }


def test_a_head_of_numbers_has_no_accuracy() -> None:
    run = train([simple_agent("ada"), regressor("bob")], EDGES[:1], METHOD, pilots(), epochs=1)
    found = run.history.evaluation
    assert found.communication == found.oracle == {}
    assert run.history.last["communication_accuracy"] is None
    assert run.nodes["ada"].rejected == {}


def test_post_hoc_maps_are_chosen_by_the_metric() -> None:
    runs = {m: train_team(team(m), method=NonCooperative(), epochs=1) for m in ("r2", "mse")}
    for metric, run in runs.items():
        fair = run.history.whitenings["fair"]
        keys = {f"communication_{metric}", f"communication_{metric}_degree_weighted"}
        chosen = {"shrinkage", f"validation_communication_{metric}"}
        assert set(fair) == keys | chosen | {"misalignment"}
    # Of one training: the smallest error is not that of the largest r2 only by accident of scales.
    shrinkages = [run.history.whitenings["fair"]["shrinkage"] for run in runs.values()]
    assert shrinkages[0] == shrinkages[1]


def test_without_a_value_nothing_is_chosen() -> None:
    constant = (torch.randn(9, FEATURES), torch.ones(9))
    data = {"train": regression_samples(40, 0), "validation": constant, "test": constant}
    agents = [regressor(name, 3 + k, data=data) for k, name in enumerate("abc")]
    run = train_team(agents, method=NonCooperative(shrinkage=0.3), epochs=1)
    record = run.history.last
    assert record["private_r2"] is record["communication_r2"] is record["validation_score"] is None
    assert "shrinkage" not in run.history.whitenings["fair"]
    assert run.history.best is None


def test_one_name_has_one_direction() -> None:
    agents = [
        regressor(name, metric=Metric("own", lambda y, t: (y - t).abs().max(), name == "a"))
        for name in "ab"
    ]
    with pytest.raises(InputError, match="agent 'b' and another do not agree whether a greater"):
        train(agents, [("a", "b")], METHOD, pilots(), epochs=1)


def test_an_error_of_the_own_metric_names_the_agent() -> None:
    broken = Metric("broken", lambda outputs, targets: outputs @ targets[:3], True)
    with pytest.raises(InputError, match="agent 'a': the metric 'broken' fails on outputs"):
        train_team(team(broken), epochs=1)


def test_a_run_is_resumed_with_its_metric(tmp_path: Any) -> None:
    train_team(team("mse"), epochs=1, out=tmp_path)
    for other in ("r2", Metric("accuracy", lambda y, t: 0.5, True)):
        with pytest.raises(CheckpointError, match="metric of agent 'a' is 'mse'"):
            train_team(team(other), out=tmp_path, resume=True)
    assert train_team(team("mse"), out=tmp_path, resume=True).history.epoch == 2
