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


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["figure", "--out", "r"], "figure"),
        (["shift", "--out", "r", "--scale", "huge"], "huge"),
        (["shift", "--out", "r", "--seeds", "1,1"], "different numbers"),
        (["shift", "--out", "r", "--seeds", "one"], "'one'"),
        (["shift"], "--out"),
    ],
)
def test_bad_arguments_write_nothing(run, tmp_path, arguments, complaint):
    code, _, error = run("reproduce", *arguments)
    assert code == 2
    assert complaint in error
    assert not (tmp_path / "r").exists()
