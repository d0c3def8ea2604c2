"""What a node trains beside the model follows the agent's optimiser."""

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW
from torch.optim.lr_scheduler import ExponentialLR

from sheafed.errors import NonFiniteError
from sheafed.methods.tied_optimizer import TiedOptimizer
from tests.helpers.small_federations import agent


def settings(state: dict) -> dict:
    return {key: value for key, value in state["param_groups"][0].items() if key != "params"}


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.5),
        lambda p: Adam(p, lr=0.1, betas=(0.5, 0.6), weight_decay=0.5),
        lambda p: AdamW(p, lr=0.1, amsgrad=True, weight_decay=0.5),
    ],
)
@pytest.mark.parametrize("decays", [True, False])
def test_it_is_of_the_agents_kind_and_settings(optimizer, decays: bool) -> None:
    one = agent("a", 4, optimizer=optimizer)
    tied = TiedOptimizer(one, [nn.Parameter(torch.ones(3))], "weights", weight_decay=decays)
    expected = settings(one.optimizer.state_dict())
    assert settings(tied.state_dict()) == expected | ({} if decays else {"weight_decay": 0.0})


def test_a_copy_of_the_head_moves_as_the_head_does() -> None:
    """Its own group's rate applies, the scheduler's included, and the bound on the gradient."""
    one = agent("a", 4, max_grad_norm=1e-3)
    groups = [{"params": list(one.encoder.parameters())}]
    groups.append({"params": list(one.head.parameters()), "lr": 0.5})
    one.optimizer = SGD(groups, lr=0.1, momentum=0.9)
    one.scheduler = ExponentialLR(one.optimizer, 0.5)
    one.parameters = list(one.head.parameters())  # so that the bound is on the head alone
    twin = nn.Linear(4, one.head.out_features)
    twin.load_state_dict(one.head.state_dict())
    tied = TiedOptimizer(one, twin.parameters(), "copy", like=one.head.weight)
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    for _ in range(3):
        tied.optimizer_step(one.head(x).square().sum() + twin(x).square().sum())
    torch.testing.assert_close(twin.weight, one.head.weight, rtol=0, atol=0)
    assert not torch.equal(twin.weight, agent("a", 4).head.weight)


def test_a_gradient_that_is_not_finite_is_named() -> None:
    one, weights = agent("a", 4), nn.Parameter(torch.zeros(2))
    tied = TiedOptimizer(one, [weights], "projection")
    with pytest.raises(NonFiniteError, match=r"'a'.*gradient of the projection"):
        tied.optimizer_step(one.head.weight.sum() + weights.sqrt().sum())


def test_large_gradients_are_finite_even_if_their_norm_is_not() -> None:
    one, weights = agent("a", 4, optimizer=lambda p: SGD(p, lr=1e-38)), nn.Parameter(torch.zeros(2))
    tied = TiedOptimizer(one, [weights], "projection")
    tied.optimizer_step(one.head.weight.sum() + 3e38 * weights.sum())
    torch.testing.assert_close(weights.detach(), torch.full((2,), -3.0))
