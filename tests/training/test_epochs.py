"""What an epoch is, whose passes are recorded, and when they are too unequal."""

import warnings
from itertools import pairwise
from pathlib import Path
from statistics import median_high, median_low

import pytest

from sheafed import NonCooperative, train
from sheafed.agents.samples import DataOrder
from sheafed.config import build_federation, read_experiment
from sheafed.errors import InputError, UnequalPassesWarning
from sheafed.training import summarise
from sheafed.training.epochs import count_rounds, steps_per_pass, warn_if_unequal
from tests.helpers.federations import pilots, samples, simple_agent


def team(*sizes: int, batch_size: int = 5):
    return [
        simple_agent(f"agent {size}", data=samples(size, 0), batch_size=batch_size)
        for size in sizes
    ]


def path(agents):
    return list(pairwise(agent.name for agent in agents))


@pytest.mark.parametrize("batches", [[3], [1, 62], [1, 1, 1, 62], [2, 5, 9], [7, 7, 8, 40, 900]])
def test_rules(batches: list[int]) -> None:
    assert count_rounds(batches, "smallest") == min(batches)
    assert count_rounds(batches, "largest") == max(batches)
    assert median_low(batches) <= count_rounds(batches, "median") <= median_high(batches)
    # An epoch of the mean has as many training steps in all as one pass over all data.
    assert abs(count_rounds(batches, "mean") * len(batches) - sum(batches)) <= len(batches) / 2
    assert count_rounds(batches, 17) == 17


def test_agents_that_do_not_learn_do_not_count() -> None:
    assert count_rounds([], "mean") == 1
    agents = [*team(20), simple_agent("still", data=samples(400, 0), head=None, frozen=True)]
    run = train(agents, path(agents), NonCooperative(), pilots(), epochs=1)
    assert run.history.rounds == 4
    assert run.history.last["agents"]["still"]["passes"] == 0


@pytest.mark.parametrize("given", [0, -1, 1.5, True, None, "2", "biggest"])
def test_what_is_refused(given: object) -> None:
    with pytest.raises(InputError, match=r"at least 1 or one of smallest, median, mean, largest, "):
        count_rounds([3], given)  # type: ignore[arg-type]


def test_an_epoch_is_a_pass_over_the_data_on_average(tmp_path: Path) -> None:
    agents = team(10, 31, 23)  # batches: 2, 6 and 4, and the rest of the samples waits
    run = train(agents, path(agents), NonCooperative(), pilots(), epochs=3, out=tmp_path)
    assert run.history.schedule.rounds_per_epoch == 4
    passes = {"agent 10": 6.0, "agent 31": 60 / 31, "agent 23": 60 / 23}  # 12 steps of 5
    assert {name: of["passes"] for name, of in run.history.last["agents"].items()} == passes
    assert {name: of["passes"] for name, of in summarise(run)["agents"].items()} == passes


@pytest.mark.parametrize(("samples", "batch_size"), [(23, 5), (60, 32), (4, 10)])
def test_passes_count_the_samples_that_were_seen(samples: int, batch_size: int) -> None:
    order = DataOrder(samples, batch_size, seed=0, name="a")
    seen = 0
    for _ in range(11):
        seen += len(order.next())
        assert order.passes == seen / samples


def test_passes_go_on_after_a_resume(tmp_path: Path) -> None:
    def go(epochs: int):
        options = {"epochs": epochs, "rounds_per_epoch": 3, "out": tmp_path, "resume": True}
        return train(team(20), [], NonCooperative(), pilots(), **options)

    go(1)
    passes = [record["agents"]["agent 20"]["passes"] for record in go(2).history.records]
    assert passes == [0.75, 1.5]


def test_very_unequal_agents_are_named_once() -> None:
    agents = team(10, 60, 20)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(agents, path(agents), NonCooperative(), pilots(), epochs=2)
    (warning,) = [w for w in caught if w.category is UnequalPassesWarning]
    assert warning.filename == __file__
    assert str(warning.message).startswith(
        "a pass over its data takes agent 'agent 10' 2 steps and 'agent 60' 12: 'agent 10' passes "
        "over its data 6 times as often; give 'agent 60' a larger batch_size"
    )


def test_four_times_is_no_reason_to_warn() -> None:
    warn_if_unequal({"a": steps_per_pass(10, 5), "b": steps_per_pass(40, 5)})
    with pytest.warns(UnequalPassesWarning, match=r"agent 'a' 2 steps and 'b' 8\.8: .* 4\.4 times"):
        warn_if_unequal({"a": steps_per_pass(10, 5), "b": steps_per_pass(44, 5)})


def test_batches_in_proportion_make_passes_equal() -> None:
    agents = [
        simple_agent("large", data=samples(80, 0), batch_size=20),
        simple_agent("small", data=samples(8, 1), batch_size=2),
    ]
    run = train(agents, path(agents), NonCooperative(), pilots(), epochs=2)
    assert {of["passes"] for of in run.history.last["agents"].values()} == {2.0}


@pytest.mark.parametrize("rule", ["smallest", "median", "mean", "largest", "9"])
def test_a_config_has_the_same_epoch_alone_and_in_a_network_of_peers(rule: str) -> None:
    overrides = ["data.partition=dirichlet", f"training.rounds_per_epoch={rule}"]
    experiment = read_experiment("digits", [*overrides, "training.batch_size=8"])
    federation = build_federation(experiment)
    counts = [len(a.data.train) // a.batch_size or 1 for a in federation.agents]
    assert len(set(counts)) > 1
    given = experiment.training.rounds_per_epoch
    assert federation.rounds_per_epoch == count_rounds(counts, given)
    peer = build_federation(experiment, only=["ada"])
    assert peer.rounds_per_epoch == federation.rounds_per_epoch
    assert peer.steps_per_pass == federation.steps_per_pass
    assert peer.build_node("ada").context.rounds_per_epoch == federation.rounds_per_epoch
