"""The grid of cells: its plan, statistics, verdict, table and picture, and the command's way."""

import json
import statistics
from dataclasses import replace

import pytest
from scipy import stats

from sheafed.config import read_experiment
from sheafed.config.agents import agent_specs
from sheafed.errors import ConfigError, DataFormatError
from sheafed.reproduction import grid
from sheafed.reproduction.grid.figure import BETTER, FELL, NOT_RUN, draw
from sheafed.reproduction.grid.paired import Difference, paired_difference
from sheafed.reproduction.grid.plan import (
    ALONE,
    CONTROLS,
    RECOMMENDED,
    REFITTED,
    SCALES,
    GridModel,
    GridPlan,
    Share,
    rows,
)
from sheafed.reproduction.grid.summary import CellFigures, Figures, Grid, read_grid
from sheafed.reproduction.grid.tables import as_markdown
from sheafed.reproduction.grid.verdict import judge, verdict
from tests.helpers.figures import assert_drawn

RIVAL = "Sheaf-FRL"


def figures(private, communication):
    return Figures(dict(enumerate(private)), dict(enumerate(communication)))


def cell(shift, recommended, rival=((0.8, 0.8, 0.8), (0.5, 0.5, 0.5)), **more):
    """A cell where training alone has .8 of private accuracy and .5 of communication."""
    found = {
        ALONE: figures((0.8, 0.8, 0.8), (0.5, 0.5, 0.5)),
        RIVAL: figures(*rival),
        RECOMMENDED: figures(*recommended),
        CONTROLS[0]: figures((0.99, 0.99, 0.99), (0.99, 0.99, 0.99)),
    }
    return CellFigures("Digits", 0.5, shift, 300, found, **more)


GOOD = cell("0.1", ((0.81, 0.8, 0.8), (0.7, 0.71, 0.69)))
FALLEN = cell("0.2", ((0.78, 0.781, 0.779), (0.7, 0.71, 0.69)))
NOISY = cell("0.3", ((0.7, 0.82, 0.81), (0.7, 0.71, 0.69)))  # the mean fell, within noise
BEATEN = cell("0.4", ((0.8, 0.8, 0.8), (0.6, 0.61, 0.59)), ((0.8,) * 3, (0.65, 0.66, 0.64)))
RIVAL_LUCKY = cell("0.5", ((0.8, 0.8, 0.8), (0.6, 0.6, 0.6)), ((0.8,) * 3, (0.59, 0.75, 0.6)))
MISSING = cell("0.6", ((), ()))
SINGLE = cell("0.7", ((0.7,), (0.9,)), failures=(f"{RECOMMENDED}, seed 1: not finite",))
CELLS = Grid("quick", (GOOD, FALLEN, NOISY, BEATEN, RIVAL_LUCKY, MISSING, SINGLE), {"x": "No x."})


def test_the_interval_is_that_of_the_paired_t_test():
    first, second = [0.71, 0.64, 0.69, 0.75, 0.7], [0.61, 0.66, 0.6, 0.7, 0.58]
    found = paired_difference(dict(enumerate(first)), dict(enumerate([*second, 0.1])))
    expected = stats.ttest_rel(first, second).confidence_interval(0.95)
    assert found.mean - found.margin == pytest.approx(expected.low)
    assert found.mean + found.margin == pytest.approx(expected.high)


def test_differences_are_paired_by_seed_and_not_by_order():
    assert paired_difference({3: 0.5, 1: 0.25}, {1: 0.25, 3: 0.5}) == Difference(0, 0)
    assert paired_difference({0: 0.5}, {1: 0.5}) is None
    assert paired_difference({0: 0.5}, {0: 0.75, 1: 1.0}) == Difference(-0.25, None)


@pytest.mark.parametrize(
    ("difference", "rose", "fell"),
    [
        (Difference(0.02, 0.01), True, False),
        (Difference(-0.02, 0.01), False, True),
        (Difference(0.02, 0.03), False, False),
        (Difference(-0.02, 0.03), False, False),
        (Difference(0.0, 0.0), False, False),
        (Difference(-0.5, None), False, False),
    ],
)
def test_beyond_noise_means_that_the_interval_excludes_0(difference, rose, fell):
    assert (difference.rose, difference.fell) == (rose, fell)


def test_cells_are_judged():
    found = {c.shift: judge(c) for c in CELLS.cells}
    assert found["0.6"] is None
    known = [shift for shift, j in found.items() if j]
    assert [s for s in known if found[s].private_fell] == ["0.2"]
    assert [s for s in known if found[s].private_fell_much] == ["0.2", "0.3", "0.7"]
    assert {s: list(found[s].better) for s in known if found[s].better} == {"0.4": [RIVAL]}
    assert {s: found[s].unjudged for s in known if found[s].unjudged} == {"0.7": (ALONE, RIVAL)}
    assert found["0.1"].communication.mean == pytest.approx(0.2)


def test_private_accuracy_is_judged_against_heads_that_are_fitted_again_too():
    known = cell("0.1", ((0.81, 0.8, 0.8), (0.7, 0.71, 0.69)))
    known.rows[REFITTED] = figures((0.85, 0.84, 0.84), (0.5, 0.5, 0.5))
    judgement = judge(known)
    assert set(judgement.private_fell) == set(judgement.private_fell_much) == {REFITTED}
    assert judgement.private_fell[REFITTED].mean == pytest.approx(-0.04)
    lines = verdict(Grid("quick", (known,)))
    assert lines[1].endswith(f"s = 0.1 (-4.0 ± 0.0 against {REFITTED}).")


def test_training_alone_can_be_the_better_method():
    judgement = judge(cell("0.1", ((0.8,) * 3, (0.4, 0.41, 0.39))))
    assert set(judgement.better) == {ALONE, RIVAL}
    assert judgement.better[ALONE].mean == pytest.approx(0.1)


def test_the_verdict_names_the_cells_that_it_counts():
    lines = verdict(CELLS)
    margin = 100 * stats.t.ppf(0.975, 2) * 0.001 / 3**0.5
    assert lines[0].endswith("6 of 7 cells have run.")
    assert lines[1] == (
        "Private accuracy fell beyond noise in 1 cell: "
        f"Digits, 50 % of the data, s = 0.2 (-2.0 ± {margin:.1f} against {ALONE})."
    )
    assert "fell by more than 0.5 points in the mean in 3 cells: Digits, 50 % of the" in lines[2]
    assert "in 1 cell: Digits, 50 % of the data, s = 0.4 (Sheaf-FRL +5.0 ± 0.0)." in lines[3]
    assert f"Too few common seeds to tell noise in 1 cell: {SINGLE.name} ({ALONE}" in lines[4]
    assert lines[5] == f"Runs that failed, 1: {SINGLE.name}: {RECOMMENDED}, seed 1: not finite."
    assert lines[6] == "No x."
    assert verdict(Grid("quick", (GOOD,)))[1:] == [
        "Private accuracy fell beyond noise in 0 cells.",
        "Private accuracy fell by more than 0.5 points in the mean in 0 cells.",
        "Another method communicates better beyond noise in 0 cells.",
    ]


def test_the_table_has_all_rows_with_their_intervals():
    text = as_markdown(CELLS, ["a verdict."])
    low, high = stats.ttest_rel([0.7, 0.71, 0.69], [0.5] * 3).confidence_interval(0.95)
    assert (
        "| Digits | 50 % of the data | 0.1 | Consensus distillation | 0.803 ± 0.006 | "
        f"+0.3 [-1.1, +1.8] | 0.700 ± 0.010 | **+20.0 [{100 * low:+.1f}, {100 * high:+.1f}]** | 3 |"
    ) in text
    assert "| 0.6 | Consensus distillation | - | - | - | - | 0 |" in text
    assert text.count("\n| Digits |") == 7 * 4
    assert text.endswith("\n- a verdict.\n")


def test_the_picture_shows_gains_marks_and_what_is_missing():
    axes = draw(CELLS).axes[0]
    assert len(axes.patches) == 7
    greys = [p for p in axes.patches if p.get_facecolor()[:3] == (0.8, 0.8, 0.8)]
    assert NOT_RUN == "#CCCCCC"
    assert [round(p.get_x() + 0.48) for p in greys] == [5]
    texts = [text.get_text() for text in axes.texts]
    assert "private  .800 → .780\ncommunication  .500 → .700" in texts
    assert "private  .800 → .700\ncommunication  .500 → .900" in texts  # of the seed they share
    assert texts.count("not run") == 1
    sizes = {"fell": FELL["s"], "better": BETTER["s"]}
    drawn = [
        (m.get_sizes()[0], m.get_offsets()[0][0]) for m in axes.collections if len(m.get_offsets())
    ]
    assert drawn == [(sizes["fell"], pytest.approx(0.6)), (sizes["better"], pytest.approx(3.4))]


def test_the_summary_survives_its_file(tmp_path):
    path = tmp_path / "grid.json"
    path.write_bytes(CELLS.to_json())
    assert read_grid(path) == CELLS
    path.write_text('{"scale": "quick"}')
    with pytest.raises(DataFormatError, match="not the summary of a grid"):
        read_grid(path)


@pytest.mark.parametrize(
    ("scale", "cells", "runs"), [("quick", 19, 9 * 34 + 2 * 3 * 34 + 4 * 28), ("full", 42, 1356)]
)
def test_the_size_of_the_grid(scale, cells, runs):
    plan = grid.grid_plan(scale)
    trials = [(c.model.name, t.directory) for c in plan.cells() for t in plan.trials(c)]
    assert len(list(plan.cells())) == cells
    assert len(set(trials)) == len(trials) == runs


def test_every_run_of_the_grid_has_a_valid_config():
    for model in SCALES["full"](None).models:
        plan = GridPlan("full", (model,))
        sizes = set()
        for c in plan.cells():
            for row in model.rows:
                (first, *_) = plan.trials_of(c, row)
                read = read_experiment(model.config, (*model.settings, *first.overrides))
                sizes.add((c.share.fraction, read.training.epochs * read.training.rounds_per_epoch))
                assert read.data.shift == float(c.shift)
                assert read.data.control == {
                    CONTROLS[0]: "labelled-pilots",
                    CONTROLS[1]: "pooled",
                }.get(row, "none")
                if row == RECOMMENDED:
                    assert read.method == type(read.method)()
                if row == RIVAL:
                    assert read.method.distillation is None
                if row == "Sheaf-FRL with distillation":
                    assert read.method.distillation is not None
        assert len(sizes) == len(model.shares)  # all rows of a cell train for as many rounds
        latents = {spec.latent for spec in agent_specs(read, classes=10).values()}
        assert ("FedProto" in model.rows) == ("FedMuscle" in model.rows) == (len(latents) == 1)


def test_digits_with_all_data_are_the_preset():
    plan = grid.grid_plan("quick")
    (c,) = (
        c
        for c in plan.cells()
        if c.model.name == "digits" and c.share.fraction == 1
        if c.shift == "0.7"
    )
    (first, *_) = plan.trials_of(c, "Sheaf-FRL with distillation")
    read = read_experiment(c.model.config, (*c.model.settings, *first.overrides))
    own = read_experiment("digits")
    assert (read.data, read.model, read.method) == (own.data, own.model, own.method)


@pytest.fixture
def tiny(three, monkeypatch, short_reading_heads):
    """Two cells of three small agents, of which one is run in the tests."""
    model = GridModel(
        "three",
        "Three agents",
        three,
        (Share(0.5, 1, 2),),
        {row: o for row, o in rows((), (), "0.1").items() if row in (ALONE, RECOMMENDED)},
        shifts=("0.3",),
        seeds=(0, 1),
    )
    other = replace(model, name="other", label="Others", shares=(Share(0.25, 1, 2),))
    monkeypatch.setitem(
        SCALES,
        "quick",
        lambda seeds: GridPlan(
            "quick", (model if seeds is None else replace(model, seeds=tuple(seeds)), other)
        ),
    )
    return model


def test_from_nothing_to_all_files_and_again(tiny, tmp_path, in_process):
    out = tmp_path / "out"
    plan = grid.grid_plan("quick")
    text = grid.reproduce(plan, out, 1, only=["three"])
    assert len(in_process) == 4
    assert_drawn(out, "grid")
    assert text.startswith("Consensus distillation against training alone: 1 of 2 cells have run.")
    found, missing = json.loads((out / "grid.json").read_text())["cells"]
    assert missing["rows"][ALONE]["private"] == {}
    c = next(plan.cells())
    summaries = [
        json.loads((out / "runs" / "three" / t.directory / "summary.json").read_text())
        for t in plan.trials_of(c, ALONE)
    ]
    fair = [s["whitenings"]["fair"]["communication_accuracy"] for s in summaries]
    assert list(found["rows"][ALONE]["communication"].values()) == fair
    private = [s["private_accuracy"] for s in summaries]
    assert f"| {ALONE} | {statistics.fmean(private):.3f} ±" in (out / "grid.md").read_text()
    before = {path: path.read_bytes() for path in out.glob("grid.*")}
    in_process.clear()
    (out / "runs" / "three" / plan.trials_of(c, RECOMMENDED)[1].directory / "summary.json").unlink()
    grid.reproduce(plan, out, 1, only=["three"])
    assert [trial.seed for trial in in_process] == [1]
    assert {path: path.read_bytes() for path in out.glob("grid.*")} == before


def test_a_failed_run_is_told(tiny, tmp_path, in_process):
    model = replace(
        tiny,
        seeds=(0,),
        own_settings=("training.optimizer=sgd", "training.learning_rate=1e30"),
    )
    out = tmp_path / "out"
    text = grid.reproduce(GridPlan("quick", (model,)), out, 1)
    assert "0 of 1 cells have run" in text
    assert "Runs that failed, 2: Three agents, 50 % of the data, s = 0.3: Alone, seed 0:" in text


def test_models_that_must_be_encoded_first_are_left_out(tiny, tmp_path, monkeypatch, in_process):
    monkeypatch.setattr(grid, "missing_latents", lambda data, model: ["mpnet-base"])
    plan = replace(grid.grid_plan("quick"), may_encode=False)
    text = grid.reproduce(plan, tmp_path / "out", 1, only=["three"])
    assert in_process == []
    assert "Three agents is left out: the cache lacks latents of digits by mpnet-base" in text
    assert "0 of 2 cells have run" in text
    assert "Three agents is left out" in (tmp_path / "out" / "grid.md").read_text()
    assert (tmp_path / "out" / "grid.png").exists()


def test_unknown_models_and_scales(tmp_path):
    with pytest.raises(ConfigError, match="the scales of grid are quick and full, got 'paper'"):
        grid.grid_plan("paper")
    with pytest.raises(ConfigError, match="unknown model five at scale quick; models: digits, "):
        grid.reproduce(grid.grid_plan("quick"), tmp_path / "out", 1, only=["digits", "five"])
    assert not (tmp_path / "out").exists()
