"""Pilots go through batch norm in inference mode, data in training mode, in one step."""

import copy

import torch
from torch import nn

from sheafed import Agent, MapPolicy, SheafFRL
from sheafed.methods import NoWhitening
from sheafed.methods.node import NodeContext
from sheafed.pilots.pilot_set import PilotSet
from sheafed.pilots.policies import AllPilots
from sheafed.transport import LocalTransport
from tests.helpers.rounds import handshake, one_round

K = 12


def nothing(agent, batch):
    """A training-mode pass, which moves the running statistics, and no gradient."""
    return 0.0 * agent.encode(batch.inputs).sum()


def agents():
    torch.manual_seed(0)
    made = []
    for name, d in (("a", 4), ("b", 3)):
        encoder = nn.Sequential(nn.Linear(5, d), nn.BatchNorm1d(d), nn.Tanh()).double()
        data = 5 + 3 * torch.randn(30, 5).double()  # far from the statistics at the start
        made.append(
            Agent(
                name,
                encoder,
                data=data,
                objective=nothing,
                optimizer=lambda p: torch.optim.SGD(p, lr=1.0),
                batch_size=30,
            )
        )
    return made


def test_the_penalty_has_the_gradient_of_the_statistics_it_was_encoded_with():
    torch.manual_seed(1)
    pilots = PilotSet(torch.randn(K, 5).double())
    method = SheafFRL(
        penalty=0.7,
        whitening=NoWhitening(),
        pilots_per_round=AllPilots(K),
        maps=MapPolicy(source="round"),
    )
    trained = agents()
    others = {"a": ("b",), "b": ("a",)}
    nodes = {
        x.name: method.node(NodeContext(x, others[x.name], pilots, 0, 0, 1, homogeneous=False))
        for x in trained
    }
    before = {x.name: copy.deepcopy(x.encoder).eval() for x in trained}
    transport = LocalTransport(["a", "b"])
    handshake(nodes, transport)
    one_round(nodes, transport, 0)
    v = nodes["a"].endpoints["b"].map
    latents = {n: encoder(pilots.inputs) for n, encoder in before.items()}
    potential = (latents["a"] - latents["b"] @ v.mT).square().sum() * 0.7 / (2 * K)
    for agent in trained:
        encoder = before[agent.name]
        gradients = torch.autograd.grad(potential, list(encoder.parameters()), retain_graph=True)
        assert not torch.equal(encoder[1].running_mean, agent.encoder[1].running_mean)
        for old, new, gradient in zip(
            encoder.parameters(), agent.encoder.parameters(), gradients, strict=True
        ):
            torch.testing.assert_close(old - new, gradient / agent.dimension, atol=1e-10, rtol=1e-8)
