"""What counts as a metric: names, functions with a direction, objects like torchmetrics'."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sheafed.agents import Agent
from sheafed.agents.objectives import mean_squared_error
from sheafed.errors import DtypeError, InputError, NonFiniteError
from sheafed.metrics import METRICS, Metric, as_metric


class RootMeanSquare:
    """The protocol of torchmetrics: collects batches until it is reset."""

    higher_is_better: bool | None = False

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.errors: list[Tensor] = []

    def update(self, preds: Tensor, target: Tensor) -> None:
        assert preds.shape == target.shape
        self.errors.append(preds - target)

    def compute(self) -> Tensor:
        return torch.cat(self.errors).square().mean().sqrt()

    def __call__(self, preds: Tensor, target: Tensor) -> Tensor:
        raise AssertionError("calling it would add to what it has collected")


def test_names() -> None:
    assert as_metric("mae") is METRICS["mae"]
    assert {name: m.greater_is_better for name, m in METRICS.items()} == {
        **dict.fromkeys(("accuracy", "top_5_accuracy", "macro_f1", "r2"), True),
        **dict.fromkeys(("mse", "mae"), False),
    }
    with pytest.raises(InputError, match=r"unknown metric 'f1'; metrics with a name: accuracy, "):
        as_metric("f1")


@pytest.mark.parametrize("given", [RootMeanSquare(), Metric("rms", RootMeanSquare(), False)])
def test_objects_of_torchmetrics_are_reset_before_and_after(given: Any) -> None:
    metric = as_metric(given)
    assert metric.name in ("root_mean_square", "rms")
    assert not metric.greater_is_better
    for _ in range(2):
        assert metric(torch.tensor([[3.0], [0.0]]), torch.tensor([0.0, 4.0])) == pytest.approx(
            12.5**0.5
        )
    assert metric.function.errors == []


def test_a_direction_is_needed() -> None:
    undecided = RootMeanSquare()
    undecided.higher_is_better = None
    for given in (undecided, nn.functional.l1_loss, 3):
        with pytest.raises(InputError, match="cannot tell whether a greater value of"):
            as_metric(given)
    for arguments in (("", max, True), ("a b", max, True), ("a", 3, True), ("a", max, None)):
        with pytest.raises(InputError, match="metric"):
            Metric(*arguments)


@pytest.mark.parametrize("value", [None, float("nan"), torch.tensor(float("inf"))])
def test_what_is_not_defined_is_none(value: Any) -> None:
    assert Metric("own", lambda outputs, targets: value, True)(torch.ones(2), torch.ones(2)) is None


def test_an_error_in_a_metric_names_it_and_the_shapes() -> None:
    metric = Metric("own", lambda outputs, targets: {"a": 1}, True)
    expected = r"'own' fails on outputs \(2, 3\) and targets \(2,\) of torch.int64: "
    with pytest.raises(InputError, match=expected):
        metric(torch.ones(2, 3), torch.ones(2).long())
    by_zero = Metric("own", lambda outputs, targets: 1 / 0, True)
    with pytest.raises(InputError, match=r"'own' fails on outputs .*: division by zero"):
        by_zero(torch.ones(2, 3), torch.ones(2).long())


# Of an agent


def agent(targets: Tensor, **options: Any) -> Agent:
    data = {"train": (torch.ones(4, 2), targets), "test": (torch.ones(4, 2), targets)}
    return Agent("ada", nn.Linear(2, 3), nn.Linear(3, 1), **({"data": data} | options))


def test_the_metric_of_an_agent_and_its_task() -> None:
    labels, numbers = torch.zeros(4).long(), torch.zeros(4)
    own = Metric("own", lambda outputs, targets: 1.0, True)
    cases = [
        (agent(labels), "accuracy", False),
        (agent(labels, metric="macro_f1"), "macro_f1", False),
        (agent(labels, metric=own), "own", False),
        (agent(numbers, objective=mean_squared_error), "r2", True),
        (agent(numbers, metric="mse"), "mse", True),
        (agent(labels, metric="mse"), "mse", True),
        (agent(numbers, objective=lambda agent, batch: 0, metric=own), "own", True),
        (agent(torch.zeros(4, 1), metric=own), "own", False),  # probabilities for cross-entropy
    ]
    assert [(a.metric.name, a.regression) for a, _, _ in cases] == [c[1:] for c in cases]
    with pytest.raises(InputError, match="agent 'ada': unknown metric 'f2'"):
        agent(labels, metric="f2")
    with pytest.raises(DtypeError, match=r"agent 'ada': the metric 'accuracy' is of classes, and "):
        agent(numbers)


def test_one_error_tells_all_that_regression_needs() -> None:
    objective = r"objective=sheafed\.agents\.objectives\.mean_squared_error.*metric='r2'"
    with pytest.raises(DtypeError, match=objective):
        agent(torch.zeros(4))


def test_targets_that_are_not_finite_are_refused_where_ours_need_them() -> None:
    good, bad = torch.zeros(4), torch.tensor([0.0, float("nan"), 0.0, float("inf")])
    expected = "agent 'ada': its {} targets hold 2 non-finite of 4 values; clean"
    with pytest.raises(NonFiniteError, match=expected.format("train")):
        agent(bad, objective=mean_squared_error)
    data = {"train": (torch.ones(4, 2), good), "validation": (torch.ones(4, 2), bad)}
    with pytest.raises(NonFiniteError, match=expected.format("validation")):
        agent(good, objective=mean_squared_error, data=data)
    masking = Metric("known", lambda y, t: (y - t).nan_to_num().abs().mean(), False)
    assert agent(bad, objective=lambda a, b: a.encode(b.inputs).mean(), metric=masking).regression
