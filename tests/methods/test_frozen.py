"""Agents whose encoder is not trained, and agents with nothing to train at all."""

import copy

import pytest
import torch
from sklearn.decomposition import PCA
from torch import nn
from torch.optim import Adam

from sheafed import Agent, ConsensusDistillation, Distillation, NonCooperative, SheafFRL
from sheafed.errors import InputError
from sheafed.methods import ComFed, FedMuscle, FedProto
from sheafed.models.adapters import ScikitEncoder
from tests.helpers.small_federations import (
    INPUTS,
    agent,
    linear_head,
    nodes_of,
    pilots,
    run_rounds,
    samples,
    weights_of,
)

EDGES = [("a", "b"), ("b", "c")]
LAYERS = (nn.BatchNorm1d(16), nn.Dropout(0.5))


def frozen(name: str, d: int, **options: object) -> Agent:
    layers = copy.deepcopy(LAYERS)
    return agent(name, d, 0, *layers, **({"frozen": True} | options))


def pca(name: str, d: int, head: bool = False) -> Agent:
    x, y = samples(31, 40)
    encoder = ScikitEncoder(PCA(d, random_state=0).fit(x.numpy()))
    return Agent(name, encoder, linear_head(d, 5) if head else None, data={"train": (x, y)})


def refuse(*_: object) -> None:
    raise AssertionError("must not be called")


def test_a_frozen_encoder_keeps_weights_statistics_and_mode() -> None:
    one = frozen("a", 4)
    assert one.frozen
    assert one.learns  # by its head
    assert not any(m.training for m in one.encoder.modules())
    assert not any(p.requires_grad for p in one.encoder.parameters())
    x = pilots()
    assert torch.equal(one.encode(x), one.encode(x))


@pytest.mark.parametrize("privacy", ["standard", "strict"])
def test_only_the_head_of_a_frozen_agent_learns(privacy: str) -> None:
    agents = [frozen("a", 4), agent("b", 5), frozen("c", 3)]
    before = weights_of(agents)
    nodes = nodes_of(
        agents, EDGES, SheafFRL(penalty=1.0, privacy=privacy, distillation=Distillation(0.4))
    )
    run_rounds(nodes, 12)
    after = weights_of(agents)
    for name in ("a", "c"):
        for key, value in before[name].items():
            assert torch.equal(value, after[name][key]) == key.startswith("encoder")
    assert all(p.grad is None for name in "ac" for p in nodes[name].agent.encoder.parameters())
    assert all(endpoint.fitted for node in nodes.values() for endpoint in node.endpoints.values())


def test_the_gradient_of_a_neighbour_is_the_same_as_if_they_moved() -> None:
    """What a frozen agent sends in the first round is what it would send if it were not."""

    def gradients(make) -> list[torch.Tensor]:
        agents = [make("a", 4), agent("b", 5), make("c", 3)]
        nodes = nodes_of(agents, EDGES, SheafFRL(penalty=1.0))
        run_rounds(nodes, 1)
        return [p.grad for p in agents[1].parameters]

    def moving(name: str, d: int) -> Agent:
        return frozen(name, d, frozen=False)

    for p, q in zip(gradients(frozen), gradients(moving), strict=True):
        torch.testing.assert_close(p, q)


def test_neighbours_are_pulled_towards_it() -> None:
    def misalignment(penalty: float) -> float:
        agents = [frozen("a", 4, head=None), agent("b", 4)]
        nodes = nodes_of(agents, [("a", "b")], SheafFRL(penalty=penalty, pilots_per_round=48))
        run_rounds(nodes, 150)
        one, other = (nodes[name].white_pilots() for name in "ab")
        carried = nodes["a"].endpoints["b"].incoming(nodes["b"].endpoints["a"].outgoing(other))
        return float((one - carried).square().sum() / (2 * one.square().sum()))

    assert misalignment(3.0) < 0.6 * misalignment(0.0)


@pytest.mark.parametrize(
    "method",
    [SheafFRL(), SheafFRL(privacy="strict"), NonCooperative(), ConsensusDistillation()],
)
def test_an_agent_with_nothing_to_train_takes_no_step(method) -> None:
    agents = [frozen("a", 4, head=None, objective=refuse, optimizer=refuse), agent("b", 5)]
    agents += [pca("c", 3)]
    assert [a.learns for a in agents] == [False, True, False]
    before, noise = weights_of(agents), agents[0].state()["rng_state"]
    nodes = nodes_of(agents, EDGES, method)
    run_rounds(nodes, 5)
    after = weights_of(agents)
    assert all(torch.equal(v, after["a"][k]) for k, v in before["a"].items())
    assert [a.steps for a in agents] == [0, 5, 0]
    assert torch.equal(agents[0].state()["rng_state"], noise)


def test_its_pilots_are_encoded_once() -> None:
    calls = []

    class Counted(nn.Linear):
        def forward(self, x):
            calls.append(len(x))
            return super().forward(x)

    one = Agent("a", Counted(INPUTS, 4), data=samples(1, 20), frozen=True)
    nodes = nodes_of([one, agent("b", 5)], [("a", "b")])
    calls.clear()
    run_rounds(nodes, 6)
    assert calls == [48]
    fresh = one.encode(pilots())
    torch.testing.assert_close(nodes["a"].pilot_latents(torch.tensor([3, 1])), fresh[[3, 1]])


def test_precision_without_weights() -> None:
    x, _ = samples(31, 40)
    encoder = ScikitEncoder(PCA(3).fit(x.numpy()))
    double = Agent("c", encoder, data=x.double())
    nodes = nodes_of([double], [], SheafFRL(), pilots().double())
    assert nodes["c"].dtype == torch.float64


def test_optimisers_of_one_s_own_and_states() -> None:
    one = frozen("a", 4, optimizer=lambda p: Adam(p, lr=1e-3))
    twin = frozen("a", 4, optimizer=lambda p: Adam(p, lr=1e-3))
    for a in (one, twin):
        a.reset_rng(1)
    one.optimizer_step(one.objective(one, one.next_batch()))
    twin.load_state(copy.deepcopy(one.state()))
    for a in (one, twin):
        a.optimizer_step(a.objective(a, a.next_batch()))
    assert all(torch.equal(p, q) for p, q in zip(one.parameters, twin.parameters, strict=True))
    idle = pca("c", 3)
    pca("c", 3).load_state(idle.state())


@pytest.mark.parametrize("method", [FedMuscle(local_epochs=1), FedProto(), ComFed()])
def test_methods_that_train_all_agents_refuse_frozen_ones(method) -> None:
    head = linear_head(4, 5).requires_grad_(False)
    agents = [frozen("a", 4, head=head), agent("b", 4)]
    with pytest.raises(InputError, match="agent 'a': its objective depends on nothing that is"):
        run_rounds(nodes_of(agents, [("a", "b")], method), 1)
