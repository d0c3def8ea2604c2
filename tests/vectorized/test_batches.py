"""Batches in one tensor hold what each agent would have read, in its own order."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from sheafed import Agent
from sheafed.agents.samples import ByteSamples, LocalData, TensorSamples
from sheafed.errors import InputError
from sheafed.methods.noncooperative import NonCooperative, NonCooperativeNode
from sheafed.training.single_round import group_agents, run_round
from sheafed.vectorized.batches import next_batches
from tests.vectorized.test_cohort import NAMES, images, make, prepare


class MySamples(TensorSamples):
    """Another type, e.g. with augmentation."""


def samples(kind: str, k: int) -> TensorSamples:
    labels = (torch.arange(10) + k) % 3
    if kind == "bytes":
        stream = torch.Generator().manual_seed(k)
        shape = (10, 1, 4, 4)
        pixels = torch.randint(256, shape, dtype=torch.uint8, generator=stream)
        return ByteSamples(pixels, labels.to(torch.uint8))
    inputs = torch.randn(10, 1, 4, 4, generator=torch.Generator().manual_seed(k))
    if kind == "doubles":
        inputs = inputs.double()  # cast to the precision of the encoder
    return (MySamples if kind == "mine" or (kind == "mixed" and k) else TensorSamples)(
        inputs, labels
    )


def agent(k: int, kind: str) -> Agent:
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, 4))
    data = LocalData(train=samples(kind, k))
    return Agent(f"agent-{k}", encoder, nn.Linear(4, 3), data=data, batch_size=4)


@pytest.mark.filterwarnings("ignore:.*float64")
@pytest.mark.parametrize("kind", ["floats", "bytes", "doubles", "mine", "mixed"])
def test_they_are_what_each_agent_would_have_read(kind: str) -> None:
    one, other = ([agent(k, kind) for k in range(3)] for _ in range(2))
    for _ in range(4):  # two passes over the data
        batch = next_batches(one)
        for k, alone in enumerate(other):
            expected, found = alone.next_batch(), batch.of(k)
            assert torch.equal(found.inputs, expected.inputs)
            assert found.inputs.dtype == expected.inputs.dtype
            assert torch.equal(found.targets, expected.targets)
            assert found.targets.dtype == expected.targets.dtype
    assert [a.order.position for a in one] == [a.order.position for a in other]


def test_missing_labels_are_named() -> None:
    agents = [make(name, data=images(1, 20)) for name in NAMES]
    nodes, barrier, pilots = prepare(agents)
    with pytest.raises(InputError, match=f"agent '{NAMES[0]}' has no labels"):
        run_round(nodes, barrier, 0, group_agents(nodes, pilots))


class Twice(NonCooperativeNode):
    """A method of one's own that says less than the one that it is made from."""

    def receive(self, round: int, inbox: object) -> dict[str, float]:
        with self.agent.rng_context():
            loss = 2 * self.local_loss(round)
            self.agent.optimizer_step(loss)
        return {"loss": float(loss.detach())}


class TwiceMethod(NonCooperative):
    def node(self, context: object) -> Twice:
        return Twice(self, context)


def test_a_receive_of_ones_own_is_what_agents_do_together() -> None:
    """What its base computes for all agents at once does not stand for it."""
    apart = [make(name) for name in NAMES]
    stacked = deepcopy(apart)
    logs = []
    for agents, at_once in ((apart, False), (stacked, True)):
        nodes, barrier, pilots = prepare(agents, TwiceMethod())
        grouping = group_agents(nodes, pilots) if at_once else None
        logs.append(run_round(nodes, barrier, 0, grouping))
    for name in NAMES:
        assert logs[0][name]["loss"] == pytest.approx(logs[1][name]["loss"], rel=1e-10)
    for one, other in zip(apart, stacked, strict=True):
        for weight, same in zip(one.parameters, other.parameters, strict=True):
            torch.testing.assert_close(weight, same, rtol=1e-9, atol=1e-11)
