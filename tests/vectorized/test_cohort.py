"""Agents that step together end up where they would have alone, and with the same streams."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Any

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
from sheafed.vectorized.layers import DROPOUT, FORMS
from sheafed.vectorized.structure import settings
from tests.helpers.small_federations import nodes_of, normal

COUNT, ROUNDS, SIZE = 16, 3, (1, 6, 6)
NAMES = [f"agent-{k:02}" for k in range(COUNT)]


class Scale(nn.Module):
    """A layer that is not known."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


def changed(layer: nn.Module, **attributes: object) -> nn.Module:
    for name, value in attributes.items():
        setattr(layer, name, value)
    return layer


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
    "in place": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.Dropout2d(0.2, inplace=True),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(64, 6),
        nn.Unflatten(1, (3, 2)),
        nn.Dropout1d(0.2, inplace=True),
        nn.Flatten(),
        nn.ELU(inplace=True),
        nn.Linear(6, 5),
        nn.Dropout(0.2, inplace=True),
    ),
    "batch norm that stops tracking": lambda: nn.Sequential(
        nn.Flatten(),
        nn.Linear(36, 5),
        changed(nn.BatchNorm1d(5), track_running_stats=False),
    ),
}


SPECIAL: dict[str, Callable[[], nn.Module]] = {
    "unknown": lambda: nn.Sequential(Scale(), mlp((8, 5), inputs=SIZE)),
    "fixed": lambda: mlp((8, 5), inputs=SIZE, dropout=0.3).requires_grad_(False),
    "broad": lambda: nn.Sequential(
        nn.Conv2d(1, 110, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1760, 5)
    ),
    "own forward": lambda: nn.Sequential(
        nn.Flatten(), changed(nn.Linear(36, 5), forward=lambda x: x[:, :5])
    ),
    "encode": lambda: nn.Sequential(
        OrderedDict(encode=mlp((8, 5), inputs=SIZE), more=nn.Linear(5, 5))
    ),
    "inputs in place": lambda: nn.Sequential(
        nn.Flatten(), nn.LeakyReLU(inplace=True), nn.Linear(36, 5)
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


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("unknown", "a layer Scale"),
        ("own forward", "a Linear with forward of its own"),
        ("encode", "an encoder with encode of its own"),
        ("inputs in place", "a LeakyReLU that changes inputs or latents in place"),
    ],
)
def test_models_that_are_not_known_let_their_agents_step_alone(model: str, reason: str) -> None:
    agents = [make(name, model=model) for name in NAMES]
    assert grouped(agents).summary() == {"together": 0, "alone": {reason: COUNT}}


def test_heads_that_change_latents_in_place_let_their_agents_step_alone() -> None:
    """A second head would learn from what the first has made of them."""
    heads = [nn.Sequential(nn.ELU(inplace=True), nn.Linear(5, 3)).double() for _ in NAMES]
    agents = [make(name, head=head) for name, head in zip(NAMES, heads, strict=True)]
    reason = "a ELU that changes inputs or latents in place"
    assert grouped(agents).summary() == {"together": 0, "alone": {reason: COUNT}}


@pytest.mark.parametrize(
    "options", [{"divisor_override": 3}, {"count_include_pad": False}, {"ceil_mode": True}]
)
def test_layers_of_one_text_and_other_settings_are_two_structures(options: dict[str, Any]) -> None:
    given = [{}, options]
    pools = [nn.AvgPool2d(2, padding=1, **given[k % 2]) for k in range(COUNT)]
    assert len(set(map(repr, pools))) == 1
    made = [nn.Sequential(pool, nn.Flatten(), nn.Linear(16, 5)).double() for pool in pools]
    agents = [make(name, encoder=model) for name, model in zip(NAMES, made, strict=True)]
    assert grouped(agents).summary()["together"] == 0


SIZES: dict[type[nn.Module], tuple[Any, ...]] = {
    nn.Linear: (2, 3),
    nn.Unflatten: (1, (2,)),
    nn.GroupNorm: (1, 2),
    **dict.fromkeys((nn.Conv1d, nn.Conv2d), (2, 3, 1)),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm), (2,)),
}


@pytest.mark.parametrize("kind", [*FORMS, *DROPOUT])
def test_every_option_of_a_known_layer_is_among_its_settings(kind: type[nn.Module]) -> None:
    sizes = SIZES.get(kind, (2,) if "Pool" in kind.__name__ else ())
    options = {p.name for p in signature(kind).parameters.values() if p.kind != p.VAR_KEYWORD}
    # Told by weights, of no meaning, or old names of others.
    elsewhere = {"args", "bias", "device", "dtype", "min_value", "max_value"}
    assert options - elsewhere <= set(settings(kind(*sizes)))


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


def clear(weight: Tensor) -> None:
    weight.grad = None


HOOKS: dict[str, Callable[[Agent], object]] = {
    "gradient": lambda agent: agent.parameters[0].register_hook(torch.zeros_like),
    "accumulated": lambda agent: agent.parameters[0].register_post_accumulate_grad_hook(clear),
    "output": lambda agent: agent.encoder.register_forward_hook(lambda *given: 0 * given[-1]),
    "layer": lambda agent: agent.encoder[-1].register_full_backward_pre_hook(
        lambda _, gradients: (torch.zeros_like(gradients[0]),)
    ),
    "objective": lambda agent: setattr(
        agent, "objective", lambda _, batch: 0 * agent.encode(batch.inputs).sum()
    ),
}


@pytest.mark.parametrize("what", HOOKS)
def test_hooks_and_objectives_of_ones_own_are_honoured(what: str) -> None:
    """One agent gets before training, another after a round, what keeps weights as they are."""
    agents = [make(name, optimizer="plain sgd") for name in [*NAMES, "one-more", "another"]]
    nodes, barrier, pilots = prepare(agents)
    HOOKS[what](agents[0])
    grouping = group_agents(nodes, pilots)
    weights = [agent.parameters[0] for agent in agents]
    for round in range(2):
        before = [weight.detach().clone() for weight in weights]
        run_round(nodes, barrier, round, grouping)
        kept = [torch.equal(*pair) for pair in zip(weights, before, strict=True)]
        assert kept == [k <= round for k in range(len(agents))]
        HOOKS[what](agents[1])
    assert grouping.summary()["together"] == COUNT


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
