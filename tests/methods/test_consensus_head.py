"""The consensus head: what it learns, and that own labels alone train the agent's own."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from sheafed import Agent, ConsensusDistillation, NonCooperative
from sheafed.agents.objectives import (
    UNLABELLED,
    Augmentation,
    OnlineProbe,
    PseudoLabels,
    cross_entropy,
)
from sheafed.agents.samples import Batch
from sheafed.methods.consensus_distillation.node import ConsensusDistillationNode
from sheafed.methods.own_offset import fit_offset
from sheafed.methods.predictions import as_bytes
from sheafed.training.post_hoc_maps import fit_post_hoc_maps
from sheafed.transport import Barrier, LocalTransport
from tests.helpers.baselines import PAIR, Training, noisy, quiet, receive_one
from tests.helpers.small_federations import CLASSES, agent, pilots, same_weights, samples

SIZES = {"a": 5, "b": 4}
M = len(pilots())
STILL = Augmentation(shift=0, rotation=0, erasing=0, noise=0.1)


def node_of(training: Training, name: str = "a") -> ConsensusDistillationNode:
    node = training.nodes[name]
    assert isinstance(node, ConsensusDistillationNode)
    return node


def test_one_step_by_hand() -> None:
    """Own labels move the own head; both heads move the encoder; the second learns both."""
    rate, weight = 0.3, 0.7
    shared = pilots().double()
    method = ConsensusDistillation(0.0, weight, pilots_per_round=M)
    training = Training(quiet(SIZES, rate, cross_entropy), PAIR, method, shared)
    one = training.agents[0]
    twin = copy.deepcopy(one)
    batch = twin.next_batch()
    log = receive_one(training, "a")
    node = node_of(training)
    second = copy.deepcopy(twin.head)
    latents, y = twin.encode(batch.inputs), batch.targets
    own = nn.functional.cross_entropy(twin.head(latents), y)
    label_loss = nn.functional.cross_entropy(second(latents), y)
    said = second(twin.encode(shared)).log_softmax(-1)
    distillation = -weight * (node.targets * said).sum(-1).mean()
    (own + label_loss + distillation).backward()
    losses = {"loss": own, "label_loss": label_loss, "distillation_loss": distillation}
    assert log == pytest.approx({name: float(value.detach()) for name, value in losses.items()})
    found = [*one.parameters, *node.consensus_head.module.parameters()]
    for p, q in zip(found, [*twin.parameters, *second.parameters()], strict=True):
        torch.testing.assert_close(p.detach(), (q - rate * q.grad).detach())


def test_a_step_beside_an_objective_of_two_views_has_the_gradient_of_its_losses() -> None:
    """Labels are then learnt from latents in evaluation mode, after all that moves statistics."""

    def two_views(one: Agent, batch: Batch) -> Tensor:
        latents = one.encode(torch.cat([batch.inputs, 1.1 * batch.inputs]))
        scores = one.apply_head(latents[: len(batch.inputs)])
        return nn.functional.cross_entropy(scores, batch.targets)

    rate, shared = 0.3, 3 * pilots() + 4
    options = {"objective": two_views, "optimizer": lambda p: SGD(p, lr=rate)}
    agents = [agent(name, d, 0, nn.BatchNorm1d(16), **options) for name, d in SIZES.items()]
    training = Training(agents, PAIR, ConsensusDistillation(0.0, pilots_per_round=M), shared)
    one = training.agents[0]
    twin = copy.deepcopy(one)
    batch, second = twin.next_batch(), copy.deepcopy(twin.head)
    receive_one(training, "a")
    two_views(twin, batch).backward()
    said = second(twin.encode(shared)).log_softmax(-1)
    (-(node_of(training).targets * said).sum(-1).mean()).backward()
    with twin.inference():
        nn.functional.cross_entropy(second(twin.encode(batch.inputs)), batch.targets).backward()
    for p, q in zip(one.parameters, twin.parameters, strict=True):
        torch.testing.assert_close(p.detach(), (q - rate * q.grad).detach())


def test_under_a_probe_own_labels_move_heads_alone() -> None:
    probe = OnlineProbe(spread)
    training = Training(
        [agent("a", 5, objective=probe), agent("b", 4)], PAIR, ConsensusDistillation(0.0)
    )
    node, one = node_of(training), training.agents[0]
    receive_one(training, "a")
    batch = one.next_batch()
    one.zero_grad()
    label_loss = node._label_loss(one.encode(batch.inputs), batch)
    label_loss.backward()
    assert all(p.grad is None or not p.grad.any() for p in one.encoder.parameters())
    assert node.consensus_head.module.weight.grad.any()


def test_what_neighbours_hear_is_of_the_own_head() -> None:
    training = Training(noisy(SIZES), PAIR, ConsensusDistillation(0.0), rounds_per_epoch=2).run(2)
    node = node_of(training)
    with torch.no_grad(), node.agent.inference():
        latents = node.agent.encoder(pilots())
        own, second = node.agent.head(latents), node.consensus_head(latents)
    torch.testing.assert_close(node.predict_pilots(2), as_bytes(torch.softmax(own, dim=-1)))
    assert not torch.allclose(own, second, atol=1e-3)
    # When maps are fitted it is of the consensus head, for the classes of own data.
    train = node.agent.data.train
    with torch.no_grad(), node.agent.inference():
        scores = node.consensus_head(node.agent.encoder(train.inputs))
    offset = fit_offset(scores, nn.functional.one_hot(train.targets, CLASSES))
    expected = torch.softmax(second + offset.float(), dim=-1)
    beside = node.beside_latents(node.pilot_latents())
    torch.testing.assert_close(beside["b"]["probabilities"], as_bytes(expected), atol=1, rtol=0)
    assert not torch.allclose(expected, torch.softmax(second, dim=-1), atol=1e-3)


def test_without_a_consensus_there_is_no_use_for_it() -> None:
    """Nothing has been heard: weights and own head are those of training alone."""
    silent = {"drop": lambda message: message.kind == "round"}
    training = Training(noisy(SIZES), PAIR, ConsensusDistillation(), **silent).run(4)
    alone = Training(noisy(SIZES), PAIR, NonCooperative()).run(4)
    assert same_weights(training.agents, alone.agents)
    assert node_of(training).own_head is None


def test_it_starts_when_a_neighbour_is_heard() -> None:
    """Neighbours are silent for three rounds: until then it has no part, then it is the own."""
    late = {"drop": lambda message: message.kind == "round" and message.round < 3}
    method = ConsensusDistillation(0.0, exchange_every=1)
    training = Training(noisy(SIZES), PAIR, method, **late).run(3)
    node = node_of(training)
    first = copy.deepcopy(node.consensus_head.module)
    before = node.beside_latents(node.pilot_latents())["b"]["probabilities"]
    torch.testing.assert_close(before, node.predict_pilots(3))
    trained = copy.deepcopy(node.agent.head)
    for name in SIZES:
        list(training.nodes[name].send(3))
    node._agree(3, {"b": next(m for m in training.nodes["b"].send(3))})
    assert torch.equal(node.consensus_head.module.weight, trained.weight)
    assert node.consensus_head.optimizer.state_dict()["state"] == {}
    assert not torch.equal(first.weight, trained.weight)


def spread(one: Agent, batch: Batch) -> Tensor:
    return one.encode(batch.inputs).square().mean() + 0 * one.head.weight.sum()


@pytest.mark.parametrize(
    ("one", "has"),
    [
        (lambda: agent("a", 4), True),
        (lambda: agent("a", 4, frozen=True), True),
        (lambda: agent("a", 3, head=nn.Flatten()), False),
        (lambda: agent("a", 4, data=samples(5, 64)[0], objective=spread), False),
        (lambda: agent("a", 4, head=None, objective=lambda o, b: o.encode(b.inputs).mean()), False),
    ],
    ids=["usual", "frozen encoder", "no weights", "no labels", "no head"],
)
def test_which_agents_have_one(one, has: bool) -> None:
    training = Training([one(), agent("b", 5)], PAIR, ConsensusDistillation(0.0)).run(2)
    node = node_of(training)
    assert (node.consensus_head is not None) is has
    assert node.own_head is None, "maps are not fitted"
    fit_post_hoc_maps(training.nodes, Barrier(LocalTransport("ab")), 2)
    assert (node.own_head is not None) is has


def test_samples_without_a_label_are_left_to_the_objective() -> None:
    x, y = samples(3, 64)
    data = (x, torch.where(torch.arange(64) < 40, y, UNLABELLED))
    one = agent("a", 5, data=data, objective=PseudoLabels(augmentation=STILL, weak=STILL))
    training = Training([one, agent("b", 4)], PAIR, ConsensusDistillation(0.0)).run(3)
    head = node_of(training).consensus_head
    targets = torch.tensor([0, UNLABELLED, 2, 1])
    latents = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    expected = nn.functional.cross_entropy(head(latents[[0, 2, 3]]), targets[[0, 2, 3]])
    assert head.label_loss(latents, targets).item() == pytest.approx(expected.item())
    assert head.label_loss(latents, torch.full((4,), UNLABELLED)) is None
    assert head.label_loss(latents, None) is None
