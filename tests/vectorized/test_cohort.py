"""Agents that step together end up where they would have alone, and with the same streams."""

from collections.abc import Callable, Sequence
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import StepLR

from sheafed import Agent, Distillation, NonCooperative, PilotSet, SheafFRL
from sheafed.agents.objectives import mean_squared_error
from sheafed.errors import InputError, NonFiniteError
from sheafed.methods.node import Node
from sheafed.models import cnn, head, mlp
from sheafed.seeds import derive
from sheafed.training.single_round import group_agents, handshake, run_round
from sheafed.transport import Barrier, LocalTransport
from sheafed.vectorized import Grouping
from tests.helpers.small_federations import nodes_of, normal

COUNT, ROUNDS, SIZE = 16, 3, (1, 6, 6)
NAMES = [f"agent-{k:02}" for k in range(COUNT)]


class Scale(nn.Module):
    """A layer that is not known."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


MODELS: dict[str, Callable[[], nn.Module]] = {
    "cnn": lambda: cnn((3, 4), inputs=SIZE, dropout=0.2),
    "mlp": lambda: mlp((8, 5), inputs=SIZE, dropout=0.3),
    "layers": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, bias=False),
        nn.GroupNorm(2, 4),
        nn.Sequential(nn.LeakyReLU(0.2, inplace=True), nn.Dropout2d(0.2)),
        nn.Conv2d(4, 6, 2, groups=2, padding=1),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.LayerNorm(6),
        nn.Linear(6, 6, bias=False),
        nn.Unflatten(1, (2, 3)),
        nn.Conv1d(2, 2, 2),
        nn.BatchNorm1d(2, affine=False),
        nn.MaxPool1d(2),
        nn.Flatten(),
    ),
}


SPECIAL: dict[str, Callable[[], nn.Module]] = {
    "unknown": lambda: nn.Sequential(Scale(), mlp((8, 5), inputs=SIZE)),
    "fixed": lambda: mlp((8, 5), inputs=SIZE, dropout=0.3).requires_grad_(False),
    "broad": lambda: nn.Sequential(
        nn.Conv2d(1, 110, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1760, 5)
    ),
}


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": partial(SGD, momentum=0.9, weight_decay=0.01),
    "nesterov": partial(SGD, momentum=0.9, nesterov=True),
    "plain sgd": SGD,
    "damped": partial(SGD, momentum=0.8, dampening=0.3),
    "adam": partial(Adam, eps=1e-3, weight_decay=0.01, betas=(0.8, 0.99)),
    "adamw": partial(AdamW, eps=1e-3),
    "unknown": partial(RMSprop, eps=1e-3),
}


def images(seed: int, count: int) -> Tensor:
    return normal(seed, count, *SIZE, dtype=torch.float64)


def make(name: str, model: str = "mlp", optimizer: str = "sgd", **options: object) -> Agent:
    """An agent with weights, data and learning rate of its own."""
    own = derive(0, name) % 2**31
    with torch.random.fork_rng():
        torch.manual_seed(own)
        encoder = (MODELS | SPECIAL)[model]().double()
        inner = head(encoder(images(0, 3)).shape[1], (4,), 3, dropout=0.1).double()
    rate = 0.01 * (1 + own % 7)
    given = {
        "data": {"train": (images(own, 20), torch.arange(20) % 3)},
        "batch_size": 6,
        "optimizer": lambda parameters: OPTIMIZERS[optimizer](parameters, lr=rate),
    }
    return Agent(**({"name": name, "encoder": encoder, "head": inner} | given | options))


def prepare(
    agents: list[Agent], method: object = None, extra: Sequence[tuple[str, str]] = ()
) -> tuple[dict[str, Node], Barrier, PilotSet]:
    """Put agents on a ring, perhaps with more edges, and let them shake hands."""
    pilots = PilotSet(images(1, 12))
    names = [agent.name for agent in agents]
    ring = list(zip(names, names[1:] + names[:1], strict=True))
    nodes = nodes_of(agents, [*ring, *extra], method or NonCooperative(), pilots)
    barrier = Barrier(LocalTransport(names))
    handshake(nodes, barrier)
    return nodes, barrier, pilots


def train(agents: list[Agent], *, together: bool, method: object = None) -> tuple[list, list]:
    """Train for some rounds; return what was logged, and the nodes' states."""
    nodes, barrier, pilots = prepare(agents, method)
    grouping = group_agents(nodes, pilots) if together else None
    if grouping is not None:
        assert grouping.summary() == {"together": COUNT, "alone": {}}
    logs = [run_round(nodes, barrier, k, grouping) for k in range(ROUNDS)]
    return logs, [node.state() for node in nodes.values()]


def grouped(agents: list[Agent]) -> Grouping:
    return Grouping({agent.name: agent for agent in agents}, PilotSet(images(1, 12)), {})


def assert_close(one: object, other: object) -> None:
    """Compare trees: numbers up to rounding, anything else exactly."""
    if isinstance(one, Tensor) and one.is_floating_point():
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)
    elif isinstance(one, Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_close(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_close(a, b)
    elif isinstance(one, float):
        assert one == pytest.approx(other, rel=1e-8)
    else:
        assert one == other


def compare(method: object = None, **options: object) -> list[dict]:
    """Compare logs, agents and nodes after training alone and together; return the logs."""
    apart, stacked = ([make(name, **options) for name in NAMES] for _ in range(2))
    ends = [train(agents, together=k, method=method) for k, agents in enumerate((apart, stacked))]
    assert_close(*ends)
    for one, other in zip(apart, stacked, strict=True):
        assert_close(one.state(), other.state())
    return ends[1][0]


METHODS = {
    "gluing": SheafFRL(penalty=0.5, pilots_per_round=10),
    "rarely": SheafFRL(penalty=0.5, pilots_per_round=10, exchange_every=2),
    "distillation": SheafFRL(
        penalty=0.0, pilots_per_round=10, distillation=Distillation(confidence=0.1)
    ),
}


@pytest.mark.parametrize("method", METHODS)
def test_methods_learn_the_same_together_as_alone(method: str) -> None:
    """Penalty and distillation go backward to what each agent was given, from batch norm too."""
    compare(METHODS[method])


@pytest.mark.parametrize("model", MODELS)
def test_models_learn_the_same_together_as_alone(model: str) -> None:
    compare(model=model)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimisers_take_the_same_steps_together_as_alone(optimizer: str) -> None:
    compare(optimizer=optimizer)


@pytest.mark.parametrize("optimizer", ["adamw", "unknown"])
def test_clipping_and_schedules_are_each_agents_own(optimizer: str) -> None:
    compare(
        optimizer=optimizer,
        max_grad_norm=0.1,
        scheduler=lambda optimizer: StepLR(optimizer, 2, gamma=0.1),
    )


def test_regression_learns_the_same_together_as_alone() -> None:
    compare(objective=mean_squared_error, data=(images(3, 20), images(4, 20)[:, 0, 0, :3]))


def test_agents_that_share_weights_step_alone() -> None:
    shared = mlp((8, 5), inputs=SIZE).double()
    agents = [make(name, encoder=shared) for name in NAMES]
    reason = "weights that another agent has too"
    assert grouped(agents).summary() == {"together": 0, "alone": {reason: COUNT}}


def test_a_layer_that_is_not_known_lets_its_agents_step_alone() -> None:
    agents = [make(name, model="unknown") for name in NAMES]
    assert grouped(agents).summary() == {"together": 0, "alone": {"a layer Scale": COUNT}}


def test_few_agents_of_a_structure_step_alone() -> None:
    """Another batch size is another structure."""
    agents = [make(name) for name in NAMES[:-1]] + [make(NAMES[-1], batch_size=5)]
    assert grouped(agents).summary()["together"] == 0
    assert grouped([make(name) for name in NAMES]).summary()["together"] == COUNT


def test_a_module_that_is_switched_between_rounds_is_followed() -> None:
    """One agent freezes its first layer, as a callback may: it steps alone from then on."""
    agents = [make(name) for name in [*NAMES, "one-more"]]
    nodes, barrier, pilots = prepare(agents)
    grouping = group_agents(nodes, pilots)
    run_round(nodes, barrier, 0, grouping)
    weight = next(agents[0].encoder.parameters())
    before = weight.detach().clone()
    weight.requires_grad_(False)
    run_round(nodes, barrier, 1, grouping)
    assert grouping.summary()["together"] == COUNT
    assert torch.equal(weight, before)


def test_errors_name_the_agent_that_they_are_about() -> None:
    agents = [make(name) for name in NAMES]
    agents[3].data.train.inputs[:] = torch.nan
    with pytest.raises(NonFiniteError, match=f"agent '{NAMES[3]}', round 0: the objective is nan"):
        train(agents, together=True)
    assert all(agent.cohort is None for agent in agents)
    agents = [make(name) for name in NAMES]
    agents[5].data.train.targets[:] = 7
    with pytest.raises(InputError, match=f"agent '{NAMES[5]}': labels must lie in 0 to 2"):
        train(agents, together=True)


def test_large_models_step_alone() -> None:
    """They are not faster together."""
    wide = [make(name, encoder=mlp((2000, 5), inputs=SIZE).double()) for name in NAMES]
    assert grouped(wide).summary() == {"together": 0, "alone": {"more than 65,536 weights": COUNT}}
    images_of_one = {"data": (torch.zeros(300, *SIZE).double(), torch.arange(300) % 3)}
    many = [make(name, model="broad", batch_size=300, **images_of_one) for name in NAMES]
    reason = "a layer with more than 524,288 activations"
    assert grouped(many).summary() == {"together": 0, "alone": {reason: COUNT}}
