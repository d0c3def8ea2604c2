"""The plans of the paper's two figures of accuracies, and their descriptions."""

import pytest

from sheafed.reproduction import bottleneck, shift
from sheafed.reproduction.captions import description, subtitle

SEEDS = (4, 5, 6)


@pytest.mark.parametrize(
    ("make", "searched", "rows"),
    [
        # rows = values x methods; searched first = values x (with a penalty x candidates + 1)
        (shift.quick, 3 * (4 * 2 + 1), 3 * 5),
        (shift.paper, 10 * (4 * 6 + 1), 10 * 5),
        (bottleneck.quick, 3 * (6 * 2 + 1), 3 * 7),
        (bottleneck.paper, 6 * (6 * 6 + 1), 6 * 7),
    ],
)
def test_the_number_of_runs(make, searched, rows):
    plan = make(SEEDS)
    candidates = plan.candidate_trials()
    assert len(candidates) == searched
    assert {t.seed for t in candidates} == {4}
    one_each = list({t.variant: t for t in candidates}.values())
    assert len(one_each) == rows
    again = plan.repetitions(one_each)
    assert len(again) == 2 * rows
    assert {t.seed for t in again} == {5, 6}
    assert len({t.directory for t in [*candidates, *again]}) == searched + 2 * rows


def test_the_paper_scale_follows_the_appendix():
    plan = shift.paper(SEEDS)
    experiment = plan.experiment(plan.candidate_trials()[-1].overrides)
    assert len(experiment.model.agent_names()) == 15
    assert (experiment.training.epochs, experiment.training.max_grad_norm) == (100, 1.0)
    assert (
        experiment.data.name,
        experiment.data.train_fraction,
        experiment.data.pilot_fraction,
    ) == ("mnist", 1, 0.1)
    assert experiment.data.shift == 0.9
    plan = bottleneck.paper(SEEDS)
    experiments = [plan.experiment(t.overrides) for t in plan.candidate_trials()]
    assert {e.training.epochs for e in experiments} == {20}
    assert {e.training.max_grad_norm for e in experiments} == {None}
    assert {e.data.shift for e in experiments} == {0.7}
    assert {e.model.bottleneck for e in experiments} == {16, 32, 64, 128, 256, 512}
    for e in experiments:
        if e.method.name == "comfed":
            assert e.method.projection == e.model.bottleneck
        if e.method.name == "sheaf-fmtl":
            assert (e.method.gamma, e.method.map_rate) == (1e-3, 1e-2)


def test_penalties_span_the_interval_of_the_paper():
    values = sorted(map(float, shift.paper(SEEDS).penalties))
    assert values == [1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0]


@pytest.mark.parametrize("make", [shift.quick, shift.paper, bottleneck.quick, bottleneck.paper])
def test_the_description_follows_from_the_plan(make):
    plan = make(SEEDS)
    text = description(plan, [100, 2300])
    experiment = plan.experiment(plan.candidate_trials()[0].overrides)
    expected = [
        f"at scale {plan.scale}.",
        f"{100 * experiment.data.train_fraction:g}% of each agent's training samples were used ",
        "(100 to 2,300 per agent)",
        f"{len(experiment.model.agent_names())} of the family",
        f"{plan.axis} = {', '.join(plan.values)}.",
        f"{experiment.training.epochs} epochs",
        "Seeds: 4, 5, 6;",
        f"one of {', '.join(plan.penalties)}, chosen for each method",
        "with seed 4 only",
        f"the next one by the ratio of the grid was tried too, up to {plan.extensions} of them",
        "1 torch thread(s)",
        "for every method that whitens: one of 0.1, 0.5, 0.9.",
        "lambda is chosen with a shrinkage of 0.5, then the shrinkage by further runs",
        "shrunk only where its covariance is singular",
        "Without a lambda: Non-cooperative.",
    ]
    for words in expected:
        assert words in text
    for curve in plan.curves:
        assert curve.label in text
    assert ("does not list its values of s" in text) == (make is shift.paper)


def test_the_subtitle_of_the_figure():
    assert subtitle(shift.quick((0, 1, 2))) == (
        "quick: 5 agents, 6.5% of the training data of mnist, 10 epochs, 3 seeds"
    )
