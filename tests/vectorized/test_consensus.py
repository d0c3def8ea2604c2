"""Consensus distillation: own batch, pilots and both heads of all agents at once."""

import pytest
import torch
from torch.optim.lr_scheduler import StepLR

from sheafed import ConsensusDistillation
from sheafed.errors import NonFiniteError
from sheafed.methods.consensus_head import ConsensusHead
from sheafed.training.single_round import group_agents, run_round
from tests.vectorized.test_cohort import NAMES, compare, images, make, prepare

ALL = ConsensusDistillation(confidence=0.0, weight=0.7, pilots_per_round=8)
METHODS = {
    "two heads": ALL,
    "one head": ConsensusDistillation(confidence=0.0, consensus_head=False),
    "pilots in the batch": ConsensusDistillation(confidence=0.0, pilots_in_batch=True),
    "exchanged rarely": ConsensusDistillation(confidence=0.0, exchange_every=2),
    "trained alone": ConsensusDistillation(confidence=1.0),
}


@pytest.mark.parametrize("method", METHODS)
def test_agents_learn_the_same_together_as_alone(method: str) -> None:
    logs = compare(METHODS[method], data=with_validation())
    learnt = "distillation_loss" in logs[0][NAMES[0]]
    assert learnt == (method != "trained alone")


@pytest.mark.parametrize("model", ["cnn", "layers"])
def test_models_learn_the_same_together_as_alone(model: str) -> None:
    compare(ALL, model=model)


@pytest.mark.parametrize("optimizer", ["adamw", "unknown"])
def test_second_heads_have_bounds_and_schedules_of_their_agents(optimizer: str) -> None:
    compare(
        ALL,
        optimizer=optimizer,
        max_grad_norm=0.1,
        scheduler=lambda optimizer: StepLR(optimizer, 2, gamma=0.1),
    )


@pytest.mark.parametrize("in_batch", [False, True])
def test_agents_may_learn_different_numbers_of_pilots(in_batch: bool) -> None:
    """Those that learn none take no step of their second head in that round."""
    method = ConsensusDistillation(
        confidence=0.42, pilots_per_round=12 - 8 * in_batch, pilots_in_batch=in_batch
    )
    logs = compare(method)
    learning = {name for log in logs for name in log if "distillation_loss" in log[name]}
    assert learning
    nodes, barrier, pilots = prepare([make(name) for name in NAMES], method)
    run_round(nodes, barrier, 0, group_agents(nodes, pilots))
    counts = {len(node.learnt_rows(0)) for node in nodes.values()}
    assert len(counts) > 2


@pytest.mark.parametrize("frozen", [True, False])
def test_encoders_that_are_not_trained_give_the_same_together_as_alone(frozen: bool) -> None:
    """A frozen encoder gives its pilots' latents once; one without gradients is still run."""
    compare(ALL, model="fixed", frozen=frozen)


def test_a_second_head_that_diverges_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    agents = [make(name) for name in NAMES]
    nodes, barrier, pilots = prepare(agents, ALL)
    head = nodes[NAMES[4]].consensus_head
    assert isinstance(head, ConsensusHead)

    def spoil() -> None:
        with torch.no_grad():
            next(head.module.parameters()).fill_(torch.inf)

    monkeypatch.setattr(head, "start", spoil)
    with pytest.raises(NonFiniteError, match=NAMES[4]):
        run_round(nodes, barrier, 0, group_agents(nodes, pilots))


def with_validation() -> dict[str, object]:
    labels = torch.arange(20) % 3
    return {"train": (images(3, 20), labels), "validation": (images(4, 9), labels[:9])}
