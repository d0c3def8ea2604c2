"""Tables of all methods: what they run, and how they choose."""

import importlib
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sheafed.config import build_federation, read_experiment
from sheafed.sweep import Trial
from tests.helpers.results import finish

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture
def table(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("method_table")


@pytest.fixture
def pretrained_table(table):
    return importlib.import_module("pretrained_table")


class Scores:
    """Stands in for the runner: trials end at once, with the validation score of a function."""

    def __init__(self, out, score):
        self.out, self.score, self.ran, self.checked = out, score, [], set()

    def check(self, trials):
        self.checked |= set(trials)

    def run(self, trials, title=""):
        assert self.checked >= set(trials)  # else runs of another config would be taken for these
        for trial in trials:
            options = dict(override.split("=", 1) for override in trial.candidate)
            score = self.score(options, trial.seed)
            if (self.out / trial.directory).exists():
                continue
            self.ran.append(trial)
            if score is not None:
                # What tests best validates worst.
                finish(trial, self.out, score, private_accuracy=1 - score)


@pytest.mark.parametrize("preset", ["digits", "newsgroups", "reuters", "cifar10"])
def test_rows_are_the_preset_and_its_alternatives(table, pretrained_table, preset):
    own = read_experiment(preset).method
    entries = table.ENTRIES if preset == "digits" else pretrained_table.PRETRAINED_ENTRIES
    methods = {
        name: read_experiment(preset, variant).method for name, (variant, _) in entries.items()
    }
    assert methods["Sheaf-FRL with distillation"] == own
    start = replace(own, distillation=None)
    assert replace(methods["Sheaf-FRL"], penalty=start.penalty, whitening=start.whitening) == start
    labels = {method.label for method in methods.values()}
    assert labels >= {"Non-cooperative", "Sheaf-FMTL", "ComFed", "FedMuscle"}
    assert any(label.startswith("FedProto") for label in labels)


@pytest.mark.parametrize("preset", ["digits", "newsgroups", "reuters", "cifar10"])
def test_the_table_says_whether_the_preset_has_what_it_chose(table, pretrained_table, preset):
    variant, options = table.ENTRIES["Sheaf-FRL with distillation"]
    method = read_experiment(preset).method
    chosen = {
        table.PENALTY: method.penalty,
        table.WHITENING: f"{{shrinkage={method.whitening.shrinkage}}}",
        table.CONFIDENCE: method.distillation.confidence,
        table.WEIGHT: method.distillation.weight,
    }
    assert list(options) == list(chosen)
    assert table.is_as_in_preset(preset, variant, table.as_overrides(chosen))
    other = table.as_overrides(chosen | {table.PENALTY: method.penalty / 2})
    assert not table.is_as_in_preset(preset, variant, other)
    assert table.is_as_in_preset(preset, (*variant, "data.shift=0.2"), other)  # not the preset's
    grid = table.GRID if preset == "digits" else pretrained_table.GRID
    for key, value in chosen.items():
        written = f"{value:g}" if key == table.PENALTY else str(value)
        assert written in grid.ladders.get(key, grid.candidates[key])


def test_equal_latents_change_only_the_latent_size(table):
    preset, equal = (
        build_federation(read_experiment("digits", overrides))
        for overrides in ((), table.equal_latents(read_experiment("digits"), 20))
    )
    assert {agent.dimension for agent in equal.agents} == {20}
    assert equal.homogeneous
    assert [a.name for a in equal.agents] == [a.name for a in preset.agents]
    assert set(equal.graph.edges) == set(preset.graph.edges)
    for one, other in zip(preset.agents, equal.agents, strict=True):
        assert (one.data.test.targets == other.data.test.targets).all()
        assert str(one.head).splitlines()[2:] == str(other.head).splitlines()[2:]


def test_equal_latents_keep_the_pretrained_encoders(table):
    preset = read_experiment("newsgroups")
    equal = read_experiment("newsgroups", table.equal_latents(preset, 64))
    assert {agent.widths for agent in equal.model.agents} == {(64,)}
    unequal = [a.model_copy(update={"widths": (64,)}) for a in preset.model.agents]
    assert list(equal.model.agents) == unequal


def test_a_choice_at_the_end_of_the_penalties_is_followed_further(table, tmp_path):
    def score(options, seed):
        return 1 - abs(math.log10(float(options[table.PENALTY])) - 1) / 10  # best at 10

    runner = Scores(tmp_path, score)
    assert table.choose(runner, (), (table.PENALTY,), (0, 1)) == ("method.penalty=10",)
    tried = {trial.candidate[0].partition("=")[2] for trial in runner.ran}
    assert tried == {"0.03", "0.1", "0.3", "1", "3", "10", "30"}


def test_penalties_where_training_diverges_are_not_chosen(table, tmp_path):
    def score(options, seed):
        penalty = float(options[table.PENALTY])
        return None if penalty > 0.05 and seed == 1 else penalty

    runner = Scores(tmp_path, score)
    assert table.choose(runner, (), (table.PENALTY,), (0, 1)) == ("method.penalty=0.03",)
    tried = {trial.candidate[0].partition("=")[2] for trial in runner.ran}
    assert tried == {"0.01", "0.03", "0.1", "0.3", "1"}


def test_options_are_chosen_one_after_the_other_by_the_mean_over_seeds(table, tmp_path):
    def score(options, seed):
        penalty, strong = float(options[table.PENALTY]), "0.9" in options[table.WHITENING]
        by_seed = 0.3 if seed else -0.3
        liked = {0.1: 0.5 + by_seed, 0.3: 0.6 - by_seed / 2}.get(penalty, 0.1)
        return liked + 0.1 * strong

    runner = Scores(tmp_path, score)
    options = (table.PENALTY, table.WHITENING)
    chosen = table.choose(runner, ("data.shift=0.5",), options, (0, 1))
    assert chosen == ("method.penalty=0.3", "method.whitening={shrinkage=0.9}")
    assert len(runner.ran) == 2 * (4 + 3)  # the start of the second option has run already
    trials = [Trial(("data.shift=0.5",), chosen, seed) for seed in (0, 1)]
    row = table.as_row("mine", trials, tmp_path)
    assert row[0] == "mine"
    assert row[1].startswith("0.300")
    assert row[-1] == "penalty 0.3, whitening {shrinkage=0.9}"


def test_seeds_that_choose_need_not_be_reported(table, tmp_path):
    runner = Scores(tmp_path, lambda options, seed: float(options[table.PENALTY] == "1"))
    given = SimpleNamespace(
        seeds=2, choice_seeds="5,6", only=["ComFed", "FedProto"], case="equal-latents"
    )
    rows = table.rows_of(runner, given)
    assert [row[0] for row in rows] == given.only
    assert {trial.seed for trial in runner.ran if "method.penalty=0.1" in trial.candidate} == {5, 6}
    assert {trial.seed for trial in runner.ran if "method.penalty=1" in trial.candidate} == {
        *(0, 1, 5, 6)
    }
