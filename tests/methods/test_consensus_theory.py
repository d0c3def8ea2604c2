r"""What consensus distillation descends, and where it rests (docs/explanation).

Between two exchanges the targets $q_m$ are constants, so with all its data and all pilots in every
step agent i takes plain gradient steps on

$$F_i = L_i + w \frac1{|S|} \sum_{m \in S} H(q_m, p_i(m)), \qquad S = \{m: \max q_m > t\} ,$$

and with a consensus head, by which it predicts the pilots, the cross-entropy of own labels by that
head is added.
"""

import copy

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, rel_entr, softmax
from torch import nn
from torch.optim import SGD

from sheafed import Agent, ConsensusDistillation
from sheafed.agents.objectives import cross_entropy
from sheafed.methods.consensus import consensus, fit_temperature
from sheafed.methods.predictions import as_bytes
from sheafed.transport.message import Message
from tests.helpers.baselines import PAIR, TRIANGLE, Training, nothing, quiet, receive_one
from tests.helpers.small_federations import (
    CLASSES,
    Turn,
    agent,
    encoder,
    linear_head,
    normal,
    orthonormal,
    pilots,
    samples,
)

SIZES = {"a": 5, "b": 4, "c": 3}
EVERY, WEIGHT, CONFIDENCE = 8, 0.7, 0.38
M = len(pilots())


def scores_of(one: Agent, inputs: torch.Tensor, head: nn.Module | None = None) -> np.ndarray:
    with torch.no_grad():
        return (head or one.head)(one.encoder(inputs)).numpy()


def local_potential(one: Agent, targets: np.ndarray, second: nn.Module | None = None) -> float:
    """F of an agent, by SciPy."""
    x, y = one.data.train.inputs, one.data.train.targets.numpy()
    heads = [one.head] if second is None else [one.head, second]
    own = sum(
        -log_softmax(scores_of(one, x, head), axis=-1)[np.arange(len(y)), y].mean()
        for head in heads
    )
    scores = scores_of(one, pilots().double(), heads[-1])
    taught = -(targets * log_softmax(scores, axis=-1)).sum(-1)
    return float(own + WEIGHT * taught[targets.max(-1) > CONFIDENCE].mean())


@pytest.mark.parametrize("two_heads", [True, False])
def test_between_exchanges_every_agent_descends_its_potential(two_heads: bool) -> None:
    agents = quiet(SIZES, 0.05, cross_entropy)
    for one in agents:
        one.batch_size = len(one.data.train)
    method = ConsensusDistillation(
        CONFIDENCE, WEIGHT, exchange_every=EVERY, pilots_per_round=M, consensus_head=two_heads
    )
    training = Training(agents, TRIANGLE, method, pilots().double())

    def potentials() -> dict[str, float]:
        found = {n: node.targets.double().numpy() for n, node in training.nodes.items()}
        second = {
            n: None if node.consensus_head is None else node.consensus_head.module
            for n, node in training.nodes.items()
        }
        return {a.name: local_potential(a, found[a.name], second[a.name]) for a in agents}

    for round in range(4 * EVERY):
        before = potentials() if round else None
        training.run(1)
        after, log = potentials(), training.logs[-1]
        parts = {"loss", "distillation_loss"} | ({"label_loss"} if two_heads else set())
        total = sum(log[part] for part in parts)  # before the step, of the targets now
        mean = np.mean(list(after.values()))
        assert mean < total
        if round % EVERY:
            assert all(after[name] < before[name] for name in SIZES)
            assert total == pytest.approx(np.mean(list(before.values())), rel=1e-6)


def test_at_an_exchange_it_may_rise() -> None:
    """A neighbour that changes its mind gives other targets, and so another potential."""
    agents = quiet({"a": 5, "b": 4}, 0.05, cross_entropy)
    method = ConsensusDistillation(CONFIDENCE, WEIGHT, exchange_every=4)
    training = Training(agents, PAIR, method, pilots().double()).run(1)
    node = training.nodes["a"]
    before = local_potential(agents[0], node.targets.numpy())
    least = torch.as_tensor(scores_of(agents[0], pilots().double()).argmin(-1))
    opposite = {"probabilities": as_bytes(nn.functional.one_hot(least, CLASSES).float())}
    list(node.send(4))
    node._agree(4, {"b": Message("round", 4, "b", "a", opposite, {"drawn": 4})})
    assert local_potential(agents[0], node.targets.numpy()) > before


def test_the_consensus_is_the_nearest_to_all_predictions() -> None:
    r"""$\bar p$ minimises $\sum_j c_j^s KL(p_j \| q)$ over all distributions q."""
    sharpness, stream = 3.0, np.random.default_rng(0)
    given = [torch.softmax(2 * normal(k, 1, 4, dtype=torch.float64), dim=-1) for k in range(3)]
    rows = np.concatenate([p.numpy() for p in given])
    weights = rows.max(-1) ** sharpness

    def distance(q: np.ndarray) -> float:
        return float(weights @ rel_entr(rows, q).sum(-1))

    found = consensus(given, sharpness)[0].numpy()
    others = softmax(np.log(found) + stream.normal(scale=0.3, size=(500, 4)), axis=-1)
    assert all(distance(found) < distance(q) for q in others)
    # It gives no class more than the agent that gives it most.
    assert np.all(found <= rows.max(0))


def twins(scale: float = 1.0) -> list[Agent]:
    """Two agents with the same predictions from different latents, and the same validation data."""
    data = {"train": samples(1, 64), "validation": samples(2, 60)}
    options = {"data": data, "objective": nothing, "optimizer": lambda p: SGD(p, lr=0.5)}
    body, head, turn = encoder(4, 5), linear_head(4, 6), orthonormal(7, 4, 4)
    for parameter in head.parameters():
        parameter.data *= scale
    turned_body = nn.Sequential(*copy.deepcopy(list(body)), Turn(turn))
    turned_head = nn.Sequential(Turn(turn.mT), copy.deepcopy(head))
    return [
        agent("a", 4, encoder=body, head=head, **options),
        agent("b", 4, encoder=turned_body, head=turned_head, **options),
    ]


def movement(agents: list[Agent], *, calibrate: bool) -> float:
    """By how much the first agent moves in a step on the pilots alone."""
    method = ConsensusDistillation(
        0.0, calibrate=calibrate, pilots_per_round=M, consensus_head=False
    )
    training = Training(agents, PAIR, method)
    before = [p.detach().clone() for p in agents[0].parameters]
    receive_one(training, "a")
    moved = (p - q for p, q in zip(agents[0].parameters, before, strict=True))
    return float(sum(step.square().sum() for step in moved).detach().sqrt())


def test_agents_that_agree_rest() -> None:
    """Up to how predictions are rounded in messages."""
    one, other = twins()[0], agent("b", 4)
    apart = movement([one, other], calibrate=False)
    assert movement(twins(), calibrate=False) < 0.01 * apart


def test_they_rest_only_if_they_are_calibrated() -> None:
    """Else they are moved towards their own prediction at the temperature that fits."""
    x, y = samples(2, 60)
    temperature = fit_temperature(torch.as_tensor(scores_of(twins()[0], x)), y)
    assert abs(temperature - 1) > 0.1
    moved = movement(twins(), calibrate=True)
    fitting = twins(1 / temperature)
    assert fit_temperature(torch.as_tensor(scores_of(fitting[0], x)), y) == pytest.approx(1, 1e-5)
    assert movement(fitting, calibrate=True) < 0.01 * moved
