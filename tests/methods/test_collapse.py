"""The gluing penalty is not reduced by a representation that collapses."""

import pytest
import torch
from torch import Tensor, nn

from sheafed import Agent, MapPolicy, SheafFRL
from sheafed.methods import SWBN, ZCA
from tests.helpers.networks import drawn, network, normal, nothing, plain_sgd

D, PILOTS = 8, 96


def effective_rank(latents: Tensor) -> float:
    """Return the exponential of the entropy of the spectrum."""
    shares = torch.linalg.eigvalsh(torch.cov(latents.mT)).clamp_min(1e-300)
    shares = shares / shares.sum()
    return float(torch.exp(-(shares * shares.log()).sum()))


def agent(name: str, seed: int) -> Agent:
    encoder = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, D))
    return Agent(
        name,
        drawn(encoder, seed),
        data=normal(seed, 8, 12),
        objective=nothing,
        optimizer=plain_sgd(0.5),
    )


@pytest.mark.parametrize("whitening", [ZCA(), ZCA(shrinkage=0.1), SWBN()], ids=repr)
def test_descending_it_on_unrelated_pilots_keeps_all_directions(whitening) -> None:
    """Undivided by the mean square, it takes ZCA from 5.6 and 6.1 to 3.4 and 3.2 directions."""
    shared = {"a": normal(1, PILOTS, 12), "b": normal(2, PILOTS, 12)}
    method = SheafFRL(
        penalty=1.0, maps=MapPolicy(source="round"), pilots_per_round=48, whitening=whitening
    )
    net = network([agent("a", 3), agent("b", 4)], method, shared, [("a", "b")])

    def ranks() -> list[float]:
        latents = {n: node.agent.encoder(shared[n]).detach() for n, node in net.nodes.items()}
        return [effective_rank(z) for z in latents.values()]

    before = ranks()
    logs = [net.round(number) for number in range(300)]
    assert min(a / b for a, b in zip(ranks(), before, strict=True)) > 0.7
    assert logs[-1]["penalty"] < 0.7 * logs[0]["penalty"]
