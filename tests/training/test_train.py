"""The round loop: what its results depend on, and what it refuses."""

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from sheafed.agents.agent import Agent
from sheafed.errors import (
    DisconnectedGraphError,
    EmptyInputError,
    GraphError,
    InputError,
    NonFiniteError,
    UnknownAgentError,
)
from sheafed.methods import NonCooperative, SheafFRL
from sheafed.metrics import Metric
from sheafed.pilots.pilot_set import PilotSet
from sheafed.training import Callback, Network, train
from sheafed.transport import LocalTransport
from tests.helpers.federations import (
    EDGES,
    FEATURES,
    METHODS,
    TWO,
    agents,
    pilots,
    results,
    same,
    samples,
    simple_agent,
    start,
    weights,
)

EPOCHS = 2


@pytest.fixture(params=list(METHODS))
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@cache
def trained(case: str) -> Network:
    return start(case, epochs=EPOCHS)


@pytest.fixture
def reference(case: str) -> Network:
    return trained(case)


def go(**changes: Any) -> Network:
    settings: dict[str, Any] = {
        "agents": [simple_agent("a"), simple_agent("b", 4)],
        "graph": [("a", "b")],
        "method": NonCooperative(),
        "pilots": pilots(),
        "epochs": 1,
    }
    return train(**{**settings, **changes})


# Determinism


def test_same_seed_same_results_whatever_the_global_random_state(
    case: str, reference: Network
) -> None:
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    run = start(case, epochs=EPOCHS)
    assert run.history.records == reference.history.records
    assert same(weights(run), weights(reference))


@pytest.mark.parametrize("case", TWO)
def test_training_leaves_the_global_random_state_alone(case: str) -> None:
    torch.manual_seed(5)
    team = agents()
    torch_state, numpy_state, python_state = (
        torch.get_rng_state(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002
        random.getstate(),
    )
    train(team, EDGES, METHODS[case](), pilots(), epochs=1)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.random.get_state()[1].tolist() == numpy_state  # noqa: NPY002
    assert random.getstate() == python_state


def shuffled_graph() -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(["cyd", "ada", "bob"])
    graph.add_edges_from([("cyd", "bob"), ("bob", "ada")])
    return graph


@pytest.mark.parametrize(
    ("order", "graph"),
    [((2, 0, 1), [("cyd", "bob"), ("bob", "ada")]), ((1, 2, 0), shuffled_graph())],
)
@pytest.mark.parametrize("case", TWO)
def test_the_order_of_agents_and_edges_does_not_matter(
    case: str, reference: Network, order: tuple[int, ...], graph: Any
) -> None:
    team = agents()
    listed = [team[k] for k in order]
    options = {"epochs": EPOCHS, "seed": 7, "rounds_per_epoch": "smallest"}
    run = train(iter(listed), graph, METHODS[case](), pilots(), **options)
    assert run.history.records == reference.history.records
    assert same(weights(run), weights(reference))
    assert list(run.history.ledger.rows()) == list(reference.history.ledger.rows())


def test_another_seed_gives_another_training(case: str, reference: Network) -> None:
    run = start(case, epochs=EPOCHS, seed=8)
    assert [r["loss"] for r in run.history.records] != [
        r["loss"] for r in reference.history.records
    ]
    assert not same(weights(run), weights(reference))


@pytest.mark.parametrize("case", ["rarely", "strict", "consensus", "alone", "projections"])
def test_evaluation_does_not_change_training(case: str) -> None:
    often, once = (
        start(case, epochs=4, evaluate_every=every, oracle=every == 1) for every in (1, 4)
    )
    assert [r["epoch"] for r in often.history.records] == [1, 2, 3, 4]
    assert [r["epoch"] for r in once.history.records] == [4]
    assert same(weights(often), weights(once))
    for name, node in often.nodes.items():
        for neighbour, end in node.endpoints.items():
            assert torch.equal(end.map, once.nodes[name].endpoints[neighbour].map)
    for key in ("private_accuracy", "communication_accuracy", "misalignment", "validation_score"):
        assert often.history.last[key] == once.history.last[key]
    if case not in ("consensus", "alone"):  # which send their pilots at every evaluation
        assert list(often.history.ledger.rows()) == list(once.history.ledger.rows())


@pytest.mark.parametrize("case", TWO)
def test_logs_are_averages_since_the_last_evaluation(case: str) -> None:
    class Losses(Callback):
        def __init__(self) -> None:
            self.losses: list[float] = []

        def on_round(self, run: Network, log: Any) -> None:
            self.losses.append(log["loss"])

    seen = Losses()
    run = start(case, epochs=4, evaluate_every=3, callbacks=[seen])
    assert [r["epoch"] for r in run.history.records] == [3, 4]
    expected = [np.mean(seen.losses[:15]), np.mean(seen.losses[15:])]
    assert [r["loss"] for r in run.history.records] == pytest.approx(expected, rel=1e-12)


def test_an_agent_trains_alone_as_it_does_among_others() -> None:
    """Non-cooperative: whoever else shares the process changes no bit of its weights."""
    among = start("alone", epochs=2)
    for agent in agents():
        run = train([agent], [], NonCooperative(), pilots(), epochs=2, seed=7, rounds_per_epoch=5)
        mine = weights(run)
        assert same(mine, {k: v for k, v in weights(among).items() if k in mine})
        assert run.history.last["communication_accuracy"] is None
        assert run.history.last["misalignment"] is None
        assert run.history.ledger.bytes_sent() == 0
        assert run.sheaf.edges == ()


@pytest.mark.parametrize("case", TWO)
def test_a_run_with_out_is_a_run_without(case: str, reference: Network, tmp_path: Path) -> None:
    run = start(case, tmp_path, epochs=EPOCHS)
    assert run.history.records == reference.history.records
    assert same(weights(run), weights(reference))
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        ".lock",
        "best.safetensors",
        "checkpoint.safetensors",
        "last.safetensors",
        "metrics.jsonl",
        "summary.json",
    ]
    assert all(results(tmp_path).values())


def test_training_learns() -> None:
    run = start("distillation", epochs=12)
    assert run.history.last["loss"] < 0.7 * run.history.records[0]["loss"]
    assert run.history.last["private_accuracy"] > 0.8


# The length of an epoch


def test_an_epoch_is_the_batches_of_the_smallest_set_if_so_wanted() -> None:
    team = [
        simple_agent("a", data=samples(20, 0), batch_size=5),
        simple_agent("b", 4, data=samples(23, 0), batch_size=8),
    ]
    run = go(agents=team, epochs=3, rounds_per_epoch="smallest")
    assert (run.history.schedule.rounds_per_epoch, run.history.rounds, run.history.epoch) == (
        2,
        6,
        3,
    )
    assert [(r["epoch"], r["round"]) for r in run.history.records] == [(1, 2), (2, 4), (3, 6)]
    assert team[0].steps == 6


def test_a_batch_larger_than_the_data_is_one_round() -> None:
    run = go(agents=[simple_agent("a", batch_size=99), simple_agent("b", 4, batch_size=99)])
    assert (run.history.schedule.rounds_per_epoch, run.history.rounds) == (1, 1)


def test_rounds_per_epoch_can_be_given() -> None:
    run = go(rounds_per_epoch=3, epochs=2)
    assert (run.history.schedule.rounds_per_epoch, run.history.rounds) == (3, 6)


def test_the_exchange_can_be_given() -> None:
    wire: list[bytes] = []
    transport = LocalTransport(["a", "b"], tap=wire.append)
    run = go(transport=transport, method=SheafFRL(pilots_per_round=8))
    assert run.history.ledger is transport.ledger
    assert run.history.ledger.bytes_sent() == sum(map(len, wire)) == run.history.last["bytes_sent"]
    assert run.history.last["payload_bytes"] == 4 * 8 * (3 + 4) * run.history.rounds


def test_messages_may_get_lost() -> None:
    lost = LocalTransport(["a", "b"], drop=lambda m: m.kind == "round" and m.round % 2 == 1)
    run = go(transport=lost, method=SheafFRL(pilots_per_round=8), epochs=2)
    assert run.history.rounds == 8


# What is refused


def test_no_agents() -> None:
    with pytest.raises(InputError, match="no agents to train; give at least one"):
        go(agents=[])


def test_duplicate_names() -> None:
    with pytest.raises(InputError, match=r"different names, got \['a'\] more than once"):
        go(agents=[simple_agent("a"), simple_agent("a", 4)])


@pytest.mark.parametrize(
    ("graph", "kind", "message"),
    [
        ([("a", "b"), ("b", "z")], UnknownAgentError, "'z'"),
        (nx.Graph([("a", "z")]), UnknownAgentError, "'z'"),
        (nx.Graph([("a", "b")]), GraphError, "'c'"),
        ([("a", "b")], DisconnectedGraphError, r"\[\['a', 'b'\], \['c'\]\]"),
        ([], DisconnectedGraphError, "3 components"),
        ([("a", "b"), ("b", "a"), ("b", "c")], GraphError, "more than once"),
        ([("a", "a"), ("a", "b"), ("b", "c")], GraphError, "joined to themselves"),
        (nx.DiGraph([("a", "b"), ("b", "c")]), GraphError, "undirected"),
    ],
)
def test_bad_graphs(graph: Any, kind: type[Exception], message: str) -> None:
    team = [simple_agent("a"), simple_agent("b"), simple_agent("c")]
    with pytest.raises(kind, match=message):
        go(agents=team, graph=graph)


@pytest.mark.parametrize(
    "name", ["epochs", "evaluate_every", "checkpoint_every", "rounds_per_epoch"]
)
@pytest.mark.parametrize("value", [0, -1, 1.5, "2"])
def test_counts(name: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{name} must be a whole number of at least 1.*, got"):
        go(**{name: value, "out": tmp_path})
    assert not list(tmp_path.iterdir())


def test_bad_pilots() -> None:
    inputs = samples(24, 77)[0]
    with pytest.raises(UnknownAgentError, match="no pilots for agent 'b', only for"):
        go(pilots={"a": inputs, "c": inputs})
    with pytest.raises(EmptyInputError, match="no pilots"):
        go(pilots=inputs[:0])
    with pytest.raises(InputError, match="pilots must be an array"):
        go(pilots="some")


def test_bad_input_leaves_no_files(tmp_path: Path) -> None:
    for changes in ({"agents": []}, {"graph": []}, {"pilots": "some"}, {"seed": "one"}):
        with pytest.raises(InputError):
            go(out=tmp_path / "out", **changes)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("method", [NonCooperative(), SheafFRL(pilots_per_round=8)])
def test_nan_in_a_batch_is_named(method: Any) -> None:
    inputs, targets = samples(20, 0)
    inputs[13, 2] = float("nan")
    rows = TensorDataset(inputs, targets)  # which are not read beforehand
    team = [simple_agent("a", data=rows), simple_agent("b", 4)]
    with pytest.raises(NonFiniteError, match=r"agent 'a', round \d.*1 non-finite of 30.*clean the"):
        go(agents=team, method=method)


def test_nan_in_targets_is_named() -> None:
    inputs, targets = samples(20, 0)[0], torch.zeros(20)
    targets[13] = float("nan")

    def objective(agent: Agent, batch: Any) -> Any:
        outputs = agent.apply_head(agent.encode(batch.inputs)).mean(1)
        return nn.functional.mse_loss(outputs, batch.targets)

    metric = Metric("own", lambda y, t: 0.0, True)
    options = {"data": (inputs, targets), "objective": objective, "metric": metric}
    expected = r"agent 'a', round \d.* 0 non-finite of 30 inputs and 1 of 5 targets; clean the data"
    with pytest.raises(NonFiniteError, match=expected):
        go(agents=[simple_agent("a", **options), simple_agent("b", 4)])


@pytest.mark.filterwarnings("ignore:edge")
@pytest.mark.parametrize("method", [NonCooperative(), SheafFRL(), SheafFRL(pilots_per_round=1)])
def test_a_single_pilot_is_too_few(method: Any) -> None:
    given = pilots() if getattr(method, "pilots_per_round", None) == 1 else pilots().inputs[:1]
    with pytest.raises(EmptyInputError, match=r"agent 'a', round \d+: .*give at least 2 pilots"):
        go(method=method, pilots=given)


def test_a_transport_by_name_is_none() -> None:
    with pytest.raises(InputError, match=r"transport must be an object like .* got 'tcp'"):
        go(transport="tcp")


def test_pilots_as_array() -> None:
    run = go(pilots=samples(24, 77)[0].numpy())
    assert run.history.last == go().history.last


class Wide(nn.Module):
    """Reads inputs of another size than its neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2 * FEATURES, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def test_agents_of_different_modalities() -> None:
    def team() -> Iterator[Agent]:
        inputs, targets = samples(20, 0, 2 * FEATURES)
        data = {
            "train": (inputs, targets),
            "validation": (inputs, targets),
            "test": (inputs, targets),
        }
        yield simple_agent("a")
        torch.manual_seed(0)
        yield Agent("b", Wide(), nn.Linear(4, 3), data=data, batch_size=5)

    views = {"a": samples(24, 77)[0], "b": samples(24, 77, 2 * FEATURES)[0]}
    for method in (NonCooperative(), SheafFRL(pilots_per_round=8)):
        run = go(agents=team(), pilots=PilotSet(views), method=method)
        assert run.history.last["communication_accuracy"] is not None
        assert run.history.last["oracle_accuracy"] is None


def test_resuming_needs_a_place_and_no_fewer_epochs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="needs the directory of the run"):
        start("alone", resume=True)
    start("alone", tmp_path, epochs=2)
    before = results(tmp_path)
    with pytest.raises(InputError, match="2 epochs of this run are done, 1 were asked for"):
        start("alone", tmp_path, epochs=1, resume=True)
    assert results(tmp_path) == before
