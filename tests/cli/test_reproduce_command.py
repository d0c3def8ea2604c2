import pytest

from sheafed import reproduction
from sheafed.reproduction import tradeoff


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """tab:tradeoff for three small agents on digits."""
    config = tmp_path / "three.toml"
    config.write_text('[data]\npilot_fraction = 0.15\n[model]\nmembers = ["bo", "dee", "eli"]\n')

    def plan(seeds):
        return tradeoff.TradeoffPlan("quick", str(config), (), rounds=2, seeds=tuple(seeds))

    monkeypatch.setitem(reproduction.PLANS, ("tradeoff", "quick"), plan)


def test_a_table_with_one_command(run, tiny, tmp_path):
    code, printed, _ = run("reproduce", "tradeoff", "--out", "r", "--seeds", "3")
    assert code == 0
    for ending in ("png", "pdf", "csv", "md", "txt"):
        assert (tmp_path / "r" / f"tradeoff.{ending}").stat().st_size > 100
    description = (tmp_path / "r" / "tradeoff.txt").read_text().strip()
    assert "with seeds 3," in description
    assert description in printed
    assert "heterogeneous" in printed


def test_the_grid_of_chosen_models_and_seeds(run, monkeypatch):
    """The command passes on what it was given, and prints the verdict without the long table."""
    given = []

    def instead(plan, out, jobs, only):
        given.append((plan.scale, {m.seeds for m in plan.models}, out.name, jobs, only))
        return "a verdict\n"

    monkeypatch.setattr(reproduction.grid, "reproduce", instead)
    options = ("--seeds", "7,8", "--jobs", "1", "--only", "digits, pair-16")
    code, printed, _ = run("reproduce", "grid", "--out", "r", "--scale", "full", *options)
    assert code == 0
    assert given == [("full", {(7, 8)}, "r", 1, ["digits", "pair-16"])]
    assert printed == "a verdict\n\nwrote r/grid.png, .pdf, .md and .json\n"
    run("reproduce", "grid", "--out", "r")
    assert given[1][:2] == ("quick", {(0, 1, 2), (0, 1, 2, 3, 4)})


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["figure", "--out", "r"], "figure"),
        (["shift", "--out", "r", "--scale", "huge"], "huge"),
        (["shift", "--out", "r", "--seeds", "1,1"], "different numbers"),
        (["shift", "--out", "r", "--seeds", "one"], "'one'"),
        (["shift"], "--out"),
        (["shift", "--out", "r", "--scale", "full"], "scales of shift are quick and paper"),
        (["shift", "--out", "r", "--only", "digits"], "only the grid has models"),
        (["grid", "--out", "r", "--scale", "paper"], "scales of grid are quick and full"),
        (["grid", "--out", "r", "--only", "digits,two"], "unknown model two"),
    ],
)
def test_bad_arguments_write_nothing(run, tmp_path, arguments, complaint):
    code, _, error = run("reproduce", *arguments)
    assert code == 2
    assert complaint in error
    assert not (tmp_path / "r").exists()
