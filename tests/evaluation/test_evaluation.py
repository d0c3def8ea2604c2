"""eq. monitored_metrics by hand: in NumPy, from weights, maps and moments."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from sheafed.agents.agent import Agent
from sheafed.errors import UnknownAgentError
from sheafed.evaluation import Evaluation, evaluate_locally
from sheafed.evaluation.peer_evaluator import evaluation_pilots
from sheafed.evaluation.result import mean
from sheafed.methods import SWBN, ZCA, Method, Node, NonCooperative, NoWhitening, SheafFRL
from sheafed.methods.endpoints import PlainEndpoint
from sheafed.pilots.pilot_set import PilotSet
from sheafed.training import Network, train
from tests.helpers.federations import (
    EDGES,
    FEATURES,
    agents,
    pilots,
    samples,
    simple_agent,
    start,
    weights,
)
from tests.helpers.matrices import misalignment
from tests.helpers.rounds import misalignments

Array = NDArray[np.float64]
STAR = [("hub", "a"), ("hub", "b"), ("hub", "c")]
DIMENSIONS = {"a": 3, "b": 4, "c": 3, "hub": 5}

PROTOCOLS: dict[str, tuple[Method, dict[str, int]]] = {
    "standard": (SheafFRL(pilots_per_round=12), DIMENSIONS),
    "homogeneous": (SheafFRL(pilots_per_round=12), dict.fromkeys(DIMENSIONS, 4)),
    "strict": (SheafFRL(pilots_per_round=12, privacy="strict"), DIMENSIONS),
    "strict, homogeneous": (
        SheafFRL(pilots_per_round=12, privacy="strict"),
        dict.fromkeys(DIMENSIONS, 4),
    ),
    "unwhitened": (SheafFRL(pilots_per_round=12, whitening=NoWhitening()), DIMENSIONS),
    "alone": (NonCooperative(), DIMENSIONS),
    "alone, private": (NonCooperative(whitening="private"), DIMENSIONS),
}


def star(method: Method, dimensions: dict[str, int], **options: Any) -> Network:
    team = [simple_agent(name, d, seed) for seed, (name, d) in enumerate(dimensions.items())]
    return train(team, STAR, method, pilots(), epochs=2, **options)


@pytest.fixture(scope="module", params=list(PROTOCOLS))
def run(request: pytest.FixtureRequest) -> Network:
    return star(*PROTOCOLS[request.param])


# By hand


def array(x: torch.Tensor) -> Array:
    return x.detach().double().numpy()


def linear(layer: nn.Module, x: Array) -> Array:
    return x @ array(layer.weight).T + array(layer.bias)


def roots(node: Node) -> tuple[Array, Array, Array]:
    """Return the mean, Σ^(-1/2) and Σ^(1/2) of an agent's whitening."""
    d = node.agent.dimension
    if not list(node.whitening.state_dict()):
        return np.zeros(d), np.eye(d), np.eye(d)
    covariance = array(node.whitening.running_covariance)
    s = node.whitening.shrinkage
    values, q = np.linalg.eigh((1 - s) * covariance + s * np.trace(covariance) / d * np.eye(d))
    return array(node.whitening.running_mean), q / np.sqrt(values) @ q.T, q * np.sqrt(values) @ q.T


def white(node: Node, inputs: Array) -> Array:
    centre, inverse_root, _ = roots(node)
    return (linear(node.agent.encoder, inputs) - centre) @ inverse_root


def transport(nodes: dict[str, Node], sender: str, receiver: str) -> Array:
    """Return the matrix that rows of the sender's white latents are multiplied by."""
    there, here = nodes[sender].endpoints[receiver], nodes[receiver].endpoints[sender]
    if isinstance(here, PlainEndpoint):
        v = array(here.map)
        assert np.array_equal(v, array(there.map))
        head = min(sender, receiver, key=lambda name: (-nodes[name].agent.dimension, name))
        return v.T if head == receiver else v
    return array(there.map).T @ array(here.map)


def accuracy(node: Node, latents: Array, targets: torch.Tensor) -> float:
    return float(np.mean(linear(node.agent.head, latents).argmax(1) == targets.numpy()))


def test_private_accuracy(run: Network) -> None:
    found = evaluate_locally(run.nodes).private
    assert list(found) == ["a", "b", "c", "hub"]
    for name, node in run.nodes.items():
        inputs, targets = node.agent.data.test.inputs, node.agent.data.test.targets
        latents = linear(node.agent.encoder, array(inputs))
        assert found[name] == pytest.approx(accuracy(node, latents, targets), abs=1e-12)


def test_communication_accuracy(run: Network) -> None:
    found = evaluate_locally(run.nodes).communication
    assert sorted(found) == sorted([*STAR, *(edge[::-1] for edge in STAR)])
    for (sender, receiver), value in found.items():
        data = run.agents[sender].data.test
        sent = white(run.nodes[sender], array(data.inputs))
        node = run.nodes[receiver]
        centre, _, root = roots(node)
        understood = sent @ transport(run.nodes, sender, receiver) @ root + centre
        assert value == pytest.approx(accuracy(node, understood, data.targets), abs=1e-12)


def test_communication_accuracy_from_the_two_sides_of_an_edge(run: Network) -> None:
    for (sender, receiver), value in evaluate_locally(run.nodes).communication.items():
        data, node = run.agents[sender].data.test, run.nodes[receiver]
        with torch.no_grad():
            sent = run.nodes[sender].transmit(run.agents[sender].encode(data.inputs), receiver)
            understood = node.agent.head(node.interpret(sent, sender))
        assert value == float((understood.argmax(-1) == data.targets).double().mean())


def test_ceiling(run: Network) -> None:
    found = evaluate_locally(run.nodes).oracle
    assert sorted(found) == sorted([*STAR, *(edge[::-1] for edge in STAR)])
    for (sender, receiver), value in found.items():
        data, node = run.agents[sender].data.test, run.nodes[receiver]
        latents = linear(node.agent.encoder, array(data.inputs))
        assert value == pytest.approx(accuracy(node, latents, data.targets), abs=1e-12)
    assert evaluate_locally(run.nodes, oracle=False).oracle == {}
    assert (
        evaluate_locally(run.nodes, oracle=False).communication
        == evaluate_locally(run.nodes).communication
    )


def test_misalignment(run: Network) -> None:
    found = evaluate_locally(run.nodes).misalignment
    assert found == misalignments(run.nodes)
    assert sorted(found) == sorted(tuple(edge) for edge in run.sheaf.edges)
    maps = run.sheaf.reparameterised().maps
    inputs = array(pilots().inputs)
    for (head, tail), value in found.items():
        a_head, a_tail = (white(run.nodes[name], inputs) for name in (head, tail))
        carried = a_tail @ transport(run.nodes, tail, head)
        energy = np.square(a_head).sum() + np.square(a_tail).sum()
        by_hand = np.square(a_head - carried).sum() / energy
        assert value == pytest.approx(by_hand, rel=1e-4)
        pair = (run.nodes[name].white_pilots() for name in (head, tail))
        expected = misalignment(*pair, maps[head, tail])
        assert value == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize(("total", "count"), [(1, 1), (24, 24), (256, 256), (257, 256), (999, 256)])
def test_probes_are_spread_over_the_pilots(total: int, count: int) -> None:
    found = evaluation_pilots(total).tolist()
    assert len(set(found)) == len(found) == count
    assert (found[0], found[-1]) == (0, total - 1)
    assert max((b - a for a, b in pairwise(found)), default=0) <= -(-total // count)


def test_post_hoc_maps_are_optimal() -> None:
    run = star(*PROTOCOLS["alone"])
    inputs = array(pilots().inputs)
    for (head, tail), v in run.sheaf.maps.items():
        a_head, a_tail = (white(run.nodes[name], inputs) for name in (head, tail))
        u, _, w = np.linalg.svd(a_head.T @ a_tail, full_matrices=False)
        assert np.allclose(array(v), u @ w, atol=1e-4)


@pytest.mark.parametrize("whitening", ["pilots", "private"])
def test_post_hoc_whitening_is_of_what_it_says(whitening: Any) -> None:
    run = star(NonCooperative(whitening=whitening), DIMENSIONS)
    for node in run.nodes.values():
        data = pilots().inputs if whitening == "pilots" else node.agent.data.train.inputs
        latents = linear(node.agent.encoder, array(data))
        assert np.allclose(array(node.whitening.running_mean), latents.mean(0), atol=1e-5)
        assert np.allclose(array(node.whitening.running_covariance), np.cov(latents.T), atol=1e-5)


def test_validation_data(run: Network) -> None:
    found = evaluate_locally(run.nodes, "validation", oracle=False)
    for name, node in run.nodes.items():
        data = node.agent.data.validation
        latents = linear(node.agent.encoder, array(data.inputs))
        expected = accuracy(node, latents, data.targets)
        assert found.private[name] == pytest.approx(expected, abs=1e-12)
    summary = found.summary()
    record = run.history.last
    assert record["validation_private_accuracy"] == summary["private_accuracy"]
    assert record["validation_communication_accuracy"] == summary["communication_accuracy"]
    parts = [summary["private_accuracy"], summary["communication_accuracy"]]
    assert record["validation_score"] == pytest.approx(np.mean(parts))


# Averages


def test_averages_of_agents_and_of_edges() -> None:
    incoming = {("a", "hub"): 0.9, ("b", "hub"): 0.6, ("c", "hub"): 0.3}
    outgoing = {("hub", "a"): 0.1, ("hub", "b"): 0.2, ("hub", "c"): 0.0}
    found = Evaluation(
        private={"a": 1.0, "b": 0.5},
        communication=incoming | outgoing,
        oracle={("a", "hub"): 1.0, ("b", "hub"): 0.5, ("hub", "a"): 0.25},
        misalignment={("hub", "a"): 0.5, ("hub", "b"): 0.25},
    )
    assert found.communication_of("hub") == pytest.approx(0.6)
    assert found.communication_of("c") == 0.0
    with pytest.raises(UnknownAgentError, match=r"\['nobody'\]; the network has \['a', 'b', 'c', "):
        found.communication_of("nobody")
    summary = found.summary()
    assert summary["private_accuracy"] == pytest.approx(0.75)
    assert summary["communication_accuracy"] == pytest.approx((0.6 + 0.1 + 0.2 + 0) / 4)
    assert summary["communication_accuracy_degree_weighted"] == pytest.approx(2.1 / 6)
    assert summary["oracle_accuracy"] == pytest.approx((0.75 + 0.25) / 2)
    assert summary["misalignment"] == pytest.approx(0.375)


def test_of_agents_that_are_known_what_was_not_measured_is_none() -> None:
    found = Evaluation(private={"a": 1.0}, metrics={"a": "accuracy", "b": "accuracy"})
    nothing = {"communication_accuracy": None, "oracle_accuracy": None}
    assert found.of_pair("a", "b") == found.of_edge("a", "absent") == nothing
    assert found.of_agent("b") == {"private_accuracy": None, "communication_accuracy": None}
    for use in (
        lambda: found.of_pair("aa", "b"),
        lambda: found.of_pair("b", "aa"),
        lambda: found.of_agent("aa"),
    ):
        with pytest.raises(UnknownAgentError, match=r"\['aa'\]; the network has \['a', 'b'\]"):
            use()


def test_of_nothing_the_averages_are_none() -> None:
    assert set(Evaluation().summary().values()) == {None}
    assert mean([]) is None
    assert mean(iter([1.0, 2.0])) == 1.5


def test_averages_on_a_star(run: Network) -> None:
    found = evaluate_locally(run.nodes)
    summary, by_edge = found.summary(), found.communication
    at_hub = np.mean([by_edge[leaf, "hub"] for leaf in "abc"])
    at_leaves = [by_edge["hub", leaf] for leaf in "abc"]
    plain = (at_hub + sum(at_leaves)) / 4
    assert summary["communication_accuracy"] == pytest.approx(plain)
    weighted = (3 * at_hub + sum(at_leaves)) / 6
    assert summary["communication_accuracy_degree_weighted"] == pytest.approx(weighted)
    assert run.history.evaluation == found
    assert {k: run.history.last[k] for k in summary} == summary


# Who takes part


def headless(name: str, dimension: int, **options: Any) -> Agent:
    return simple_agent(
        name,
        dimension,
        head=None,
        objective=lambda agent, batch: agent.encode(batch.inputs).square().mean(),
        **options,
    )


@pytest.mark.parametrize("method", [SheafFRL(pilots_per_round=12), NonCooperative()])
def test_an_agent_without_a_head_sends_and_does_not_read(method: Method) -> None:
    team = [simple_agent("a"), headless("b", 4), simple_agent("c", 5)]
    run = train(team, list(pairwise("abc")), method, pilots(), epochs=1)
    found = run.history.evaluation
    assert sorted(found.private) == ["a", "c"]
    assert sorted(found.communication) == sorted(found.oracle) == [("b", "a"), ("b", "c")]
    assert sorted(found.misalignment) == [("b", "a"), ("c", "b")]
    assert run.history.last["agents"]["b"] == {
        "passes": 1.0,
        "private_accuracy": None,
        "communication_accuracy": None,
    }


def test_an_agent_without_test_data_reads_and_does_not_send() -> None:
    team = [simple_agent("a"), simple_agent("b", 4, data=samples(20, 3)), simple_agent("c", 5)]
    run = train(team, list(pairwise("abc")), SheafFRL(pilots_per_round=12), pilots(), epochs=1)
    found = run.history.evaluation
    assert sorted(found.private) == ["a", "c"]
    assert sorted(found.communication) == [("a", "b"), ("c", "b")]
    assert "validation_score" not in run.history.last
    assert run.history.best is None


def test_no_test_data_at_all() -> None:
    team = [simple_agent("a", data=samples(20, 3)), headless("b", 4, data=samples(20, 3)[0])]
    run = train(team, [("a", "b")], SheafFRL(pilots_per_round=12), pilots(), epochs=1)
    assert run.history.last["private_accuracy"] is None
    assert run.history.last["communication_accuracy"] is None
    assert run.history.last["misalignment"] > 0


def test_of_data_without_labels_nothing_is_measured() -> None:
    data = {"train": samples(20, 3), "test": samples(20, 4)[0], "validation": samples(20, 4)[0]}
    team = [simple_agent("a", data=data), simple_agent("b", 4)]
    run = train(team, [("a", "b")], SheafFRL(pilots_per_round=12), pilots(), epochs=1)
    found = run.history.evaluation
    assert (list(found.private), list(found.communication)) == (["b"], [("b", "a")])
    assert list(found.oracle) == [("b", "a")]
    assert run.history.last["agents"]["a"]["private_accuracy"] is None
    assert run.history.last["agents"]["b"]["communication_accuracy"] is None


# No trace


@pytest.mark.parametrize("whitening", [ZCA(), SWBN(), NoWhitening()])
def test_evaluation_leaves_no_trace(whitening: Any) -> None:
    run = train(
        agents(), EDGES, SheafFRL(pilots_per_round=8, whitening=whitening), pilots(), epochs=1
    )
    ada = run.agents["ada"]
    ada.encoder[1].eval()  # a layer that its owner has frozen
    modules = [m for a in run.agents.values() for m in (*a.encoder.modules(), *a.head.modules())]
    modes = [m.training for m in modules]
    assert True in modes
    assert False in modes
    parameters = [p for agent in run.agents.values() for p in agent.parameters]
    gradients = [p.grad.clone() for p in parameters]
    before, streams = weights(run), [a.state()["rng_state"].clone() for a in run.agents.values()]
    whitenings = [
        {k: v.clone() for k, v in n.whitening.state_dict().items()} for n in run.nodes.values()
    ]
    positions = [a.order.position for a in run.agents.values()]
    state = torch.get_rng_state()
    first = evaluate_locally(run.nodes)
    assert evaluate_locally(run.nodes) == first
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.training for m in modules] == modes
    assert all(torch.equal(p.grad, g) for p, g in zip(parameters, gradients, strict=True))
    after = weights(run)
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert all(
        torch.equal(a.state()["rng_state"], s)
        for a, s in zip(run.agents.values(), streams, strict=True)
    )
    for node, kept in zip(run.nodes.values(), whitenings, strict=True):
        now = node.whitening.state_dict()
        assert all(torch.equal(now[key], kept[key]) for key in kept)
    assert positions == [a.order.position for a in run.agents.values()]


def test_every_set_is_encoded_once_per_encoder() -> None:
    run = start("distillation", epochs=1)
    calls: list[int] = []
    ada = run.agents["ada"]
    ada.encoder.register_forward_hook(lambda module, args, output: calls.append(len(output)))
    evaluate_locally(run.nodes, oracle=False)
    assert calls == [23, 24]  # the own test set, and the pilots
    calls.clear()
    evaluate_locally(run.nodes)
    assert calls == [23, 24, 23]  # also the test set of the only neighbour


def test_large_sets_are_encoded_in_pieces() -> None:
    inputs, targets = samples(2100, 3)
    data = {"train": samples(20, 3), "test": (inputs, targets)}
    agent = simple_agent("a", data=data)
    run = train([agent], [], NonCooperative(), pilots(), epochs=1)
    expected = linear(agent.encoder, array(inputs))
    assert run.history.last["private_accuracy"] == pytest.approx(
        accuracy(run.nodes["a"], expected, targets)
    )
    assert inputs.shape[1] == FEATURES


def test_only_agents_of_one_modality_have_a_ceiling() -> None:
    """Two see the pilots alike, by value; one sees them doubled and one in whole numbers."""

    class Rounded(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.float())

    seen = pilots().inputs
    inputs = {"a": seen, "b": seen.clone(), "c": 2 * seen, "d": (9 * seen).long()}
    team = [simple_agent(name, 3 + k, k) for k, name in enumerate("abc")]
    data = {"train": samples(20, 1), "test": samples(20, 2)}
    team.append(Agent("d", Rounded(FEATURES, 4), nn.Linear(4, 3), data=data, batch_size=5))
    edges = [("a", "b"), ("b", "c"), ("a", "c"), ("d", "a")]
    run = train(team, edges, SheafFRL(pilots_per_round=12), PilotSet(inputs), epochs=1)
    assert sorted(run.history.evaluation.oracle) == [("a", "b"), ("b", "a")]
    assert len(run.history.evaluation.communication) == 8
    shared = train(
        [simple_agent(n, 3 + k, k) for k, n in enumerate("ab")],
        [("a", "b")],
        SheafFRL(pilots_per_round=12),
        seen,
        epochs=1,
    )
    assert sorted(shared.history.evaluation.oracle) == [("a", "b"), ("b", "a")]
