"""The optimiser of an agent holds its parameters, and its scheduler is torch's, step by step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, lr_scheduler

from sheafed import NonCooperative, train
from sheafed.agents import Agent, default_optimizer, lr_schedules, objectives, paper_optimizer
from sheafed.checkpointing.checkpoint import load_checkpoint, save_checkpoint
from sheafed.checkpointing.run_directory import CHECKPOINT
from sheafed.errors import CheckpointError, InputError, OptimizerError
from tests.helpers.small_federations import agent, normal, pilots


def step(one: Agent) -> None:
    with one.rng_context():
        one.optimizer_step(one.objective(one, one.next_batch()))


def rate(one: Agent) -> float:
    (group,) = one.optimizer.param_groups
    return float(group["lr"])


def test_the_default_optimiser() -> None:
    one = agent("a", 3, optimizer=default_optimizer)
    assert type(one.optimizer) is type(Agent("b", nn.Linear(2, 2), data=normal(0, 4, 2)).optimizer)
    (group,) = one.optimizer.param_groups
    assert type(one.optimizer) is AdamW
    assert (group["lr"], group["weight_decay"]) == (3e-3, 1e-2)


def test_the_paper_s_optimiser() -> None:
    (group,) = agent("a", 3, optimizer=paper_optimizer).optimizer.param_groups
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (1e-2, 0.9, 5e-4)


# The parameters that it holds


@pytest.mark.parametrize("as_function", [False, True])
def test_an_optimiser_that_misses_parameters(as_function: bool) -> None:
    encoder, head = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), nn.Linear(2, 3)
    found = SGD(head.parameters(), lr=0.1)
    message = (
        r"agent 'ada': the optimiser misses 4 of 6 trainable parameters: encoder\.0\.weight, "
        r"encoder\.0\.bias, encoder\.1\.weight, \.\.\.; give it all of them, or switch off"
    )
    with pytest.raises(OptimizerError, match=message):
        Agent(
            "ada",
            encoder,
            head,
            data=normal(0, 4, 4),
            optimizer=(lambda parameters: found) if as_function else found,
        )


def test_an_optimiser_that_misses_the_objective_s_parameters() -> None:
    encoder = nn.Linear(4, 2)
    objective = objectives.Autoencoding(nn.Linear(2, 4))
    with pytest.raises(OptimizerError, match=r"misses 2 of 4 .*: objective\.decoder\.weight"):
        Agent(
            "ada",
            encoder,
            data=normal(0, 4, 4),
            objective=objective,
            optimizer=SGD(encoder.parameters(), lr=0.1),
        )


def test_an_optimiser_of_another_agent_s_parameters() -> None:
    encoder, other = nn.Linear(4, 2), nn.Linear(4, 7, bias=False)
    optimizer = SGD([*encoder.parameters(), *other.parameters()], lr=0.1)
    with pytest.raises(
        OptimizerError, match=r"agent 'ada': .* holds 1 parameters .*encoder, of shape \(7, 4\);"
    ):
        Agent("ada", encoder, data=normal(0, 4, 4), optimizer=optimizer)


def test_frozen_parameters_may_be_held_or_missed() -> None:
    encoder, head = nn.Linear(4, 2), nn.Linear(2, 3)
    for held in ([*head.parameters()], [*encoder.parameters(), *head.parameters()]):
        optimizer = SGD(held, lr=0.1)
        one = Agent("a", encoder, head, data=normal(0, 4, 4), optimizer=optimizer, frozen=True)
        assert one.optimizer is optimizer


# Schedulers


def warm_up_then_cosine(optimizer: Optimizer) -> lr_scheduler.LRScheduler:
    first = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3)
    return lr_scheduler.SequentialLR(
        optimizer, [first, lr_scheduler.CosineAnnealingLR(optimizer, 5)], milestones=[3]
    )


SCHEDULERS: dict[str, Callable[[Optimizer], lr_scheduler.LRScheduler]] = {
    "steps": lambda o: lr_scheduler.MultiStepLR(o, [2, 5], gamma=0.5),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda t: 1 / (1 + t)),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.5, total_steps=12),
    "sequential": warm_up_then_cosine,
    "chained": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ExponentialLR(o, 0.9), lr_scheduler.ConstantLR(o, 0.5, 4)]
    ),
    "follow": lr_schedules.follow(lr_schedules.robbins_monro(4.0)),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_rate_of_every_step_is_torch_s_and_resumes(name: str, tmp_path: Path) -> None:
    """The rates of a bare optimiser, and those of an agent that is stored and restored midway."""
    make = SCHEDULERS[name]
    bare = SGD([nn.Parameter(torch.zeros(1))], lr=0.2, momentum=0.9)
    alone, expected = make(bare), []
    for _ in range(9):
        expected.append(bare.param_groups[0]["lr"])
        bare.step()
        alone.step()

    def build() -> Agent:
        return agent("a", 3, optimizer=lambda p: SGD(p, lr=0.2, momentum=0.9), scheduler=make)

    whole, first, found = build(), build(), []
    for _ in range(9):
        found.append(rate(whole))
        step(whole)
    assert found == expected
    assert len(set(expected)) > 2
    for _ in range(4):
        step(first)
    save_checkpoint(tmp_path / "state", first.state())
    second = build()
    second.load_state(load_checkpoint(tmp_path / "state"))
    for rate_of_step in expected[4:]:
        assert rate(second) == rate_of_step
        step(second)
    for p, q in zip(whole.parameters, second.parameters, strict=True):
        assert torch.equal(p, q)


def test_records_have_the_mean_rate_of_agents_with_a_schedule() -> None:
    def halving(optimizer: Optimizer) -> lr_scheduler.LRScheduler:
        return lr_scheduler.ExponentialLR(optimizer, 0.5)

    team = [agent("a", 3, optimizer=lambda p: SGD(p, lr=0.4), scheduler=halving), agent("b", 2)]
    network = train(team, [("a", "b")], NonCooperative(), pilots(), epochs=1, rounds_per_epoch=2)
    assert network.history.records[-1]["learning_rate"] == pytest.approx(0.3)  # 0.4 and 0.2


def test_a_schedule_moves_parameters_by_its_rates() -> None:
    def ones(one: Agent, batch: Any) -> Tensor:
        return sum((p.sum() for p in one.parameters), torch.zeros(()))

    one = agent(
        "a",
        3,
        objective=ones,
        optimizer=lambda p: SGD(p, lr=99.0),
        scheduler=lr_schedules.follow(lambda t: 0.5 / (1 + t)),
    )
    before = [p.detach().clone() for p in one.parameters]
    for _ in range(3):
        step(one)
    for p, q in zip(one.parameters, before, strict=True):
        torch.testing.assert_close(p.detach(), q - (0.5 + 0.25 + 0.5 / 3))


def test_a_scheduler_may_step_every_epoch() -> None:
    halves = {"scheduler": lambda o: lr_scheduler.ExponentialLR(o, 0.5)}
    one = agent("a", 3, optimizer=paper_optimizer, scheduler_every="epoch", **halves)
    train([one], [], NonCooperative(), pilots(), epochs=3, rounds_per_epoch=4)
    assert (one.steps, rate(one)) == (12, 1e-2 / 8)
    one = agent("a", 3, optimizer=paper_optimizer, **halves)
    train([one], [], NonCooperative(), pilots(), epochs=1, rounds_per_epoch=4)
    assert rate(one) == 1e-2 / 16


def test_a_scheduler_instance() -> None:
    encoder = nn.Linear(4, 2)
    optimizer = Adam(encoder.parameters(), lr=0.1)
    options = {"data": normal(0, 4, 4), "optimizer": optimizer}
    scheduler = lr_scheduler.StepLR(optimizer, 1)
    assert Agent("a", encoder, scheduler=scheduler, **options).scheduler is scheduler
    other = Adam(encoder.parameters(), lr=0.1)
    with pytest.raises(OptimizerError, match="agent 'a': the scheduler belongs to another opt"):
        Agent("a", encoder, scheduler=lr_scheduler.StepLR(other, 1), **options)


def test_schedulers_that_cannot_be_used() -> None:
    with pytest.raises(
        OptimizerError, match=r"agent 'a': ReduceLROnPlateau needs a metric .*Early"
    ):
        agent("a", 3, scheduler=lr_scheduler.ReduceLROnPlateau)
    with pytest.raises(OptimizerError, match=r"agent 'a': scheduler must be a torch.*got float"):
        agent("a", 3, scheduler=lambda optimizer: 0.1)
    with pytest.raises(
        InputError, match=r"agent 'a': scheduler_every must be 'step' or .* 'round'"
    ):
        agent("a", 3, scheduler_every="round")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda p: None, "optimizer must be a torch optimiser .* got NoneType"),
        (lambda p: 1 / 0, "its optimizer cannot be built .* division by zero; .*lambda parameters"),
    ],
)
def test_optimisers_that_cannot_be_built(make: Any, problem: str) -> None:
    with pytest.raises(OptimizerError, match=f"agent 'a': {problem}"):
        agent("a", 3, optimizer=make)


def test_an_optimiser_that_needs_a_closure_is_refused_at_its_step() -> None:
    with pytest.raises(OptimizerError, match=r"agent 'a', step 0: .*closure.*needs no closure"):
        step(agent("a", 3, optimizer=torch.optim.LBFGS))


def test_a_scheduler_without_its_settings_is_named() -> None:
    expected = "agent 'a': its scheduler cannot be built .*'T_max'; .*lambda optimizer: Cosine"
    with pytest.raises(OptimizerError, match=expected):
        agent("a", 3, scheduler=lr_scheduler.CosineAnnealingLR)


def test_a_schedule_that_ends_before_the_training_is_named() -> None:
    one = agent("a", 3, scheduler=lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=2))
    step(one)
    step(one)
    with pytest.raises(OptimizerError, match="agent 'a', step 3: its scheduler fails: Tried to st"):
        step(one)


def test_an_agent_without_anything_to_train_has_no_scheduler() -> None:
    def refuse(optimizer: Optimizer) -> lr_scheduler.LRScheduler:
        raise AssertionError

    one = Agent("a", nn.Linear(4, 2), data=normal(0, 4, 4), frozen=True, scheduler=refuse)
    assert one.scheduler is None


def test_a_run_resumes_to_the_same_bytes_with_the_same_kind_of_scheduler(tmp_path: Path) -> None:
    def go(out: str, epochs: int, make: Any = SCHEDULERS["one cycle"], **options: Any) -> bytes:
        one = agent("a", 3, optimizer=paper_optimizer, scheduler=make)
        given = {"epochs": epochs, "rounds_per_epoch": 3, "out": tmp_path / out, **options}
        train([one], [], NonCooperative(), pilots(), **given)
        return (tmp_path / out / "last.safetensors").read_bytes()

    whole = go("whole", 3)
    go("parts", 1)
    assert (tmp_path / "parts" / CHECKPOINT).exists()
    with pytest.raises(CheckpointError, match=r"scheduler of agent 'a' is 'OneCycleLR', .* None"):
        go("parts", 3, make=None, resume=True)
    assert go("parts", 3, resume=True) == whole
