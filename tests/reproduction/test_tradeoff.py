"""tab:tradeoff: what is measured equals the formulas, and both equal a count by hand."""

import csv
from dataclasses import replace

import pytest

from sheafed.config.federation import build_federation
from sheafed.errors import ConfigError
from sheafed.reproduction import figures, tradeoff
from sheafed.reproduction.tradeoff import (
    TradeoffPlan,
    decompositions,
    floats_sent,
    measure,
    svd_operations,
)
from tests.helpers.figures import assert_drawn

K = 24


@pytest.fixture
def plan(three):
    return TradeoffPlan("quick", three, (f"method.pilots_per_round={K}",), rounds=4, seeds=(0, 1))


def test_the_formulas_by_hand():
    # An agent of size 5 with neighbours of sizes 3 and 4 below and 7 above.
    assert floats_sent("standard", 5, [3, 4], [7], 10) == 3 * 5 * 10
    assert floats_sent("strict", 5, [3, 4], [7], 10) == 2 * 5 * 10 + 7 * 10
    standard = decompositions("standard", False, 5, [3, 4], [7])
    assert svd_operations(standard) == 5 * (3**2 + 4**2) + 5**2 * 7
    strict = decompositions("strict", False, 5, [3, 4], [7])
    assert svd_operations(strict) == 2 * 5**3 + 5**2 * 7
    assert svd_operations(decompositions("standard", True, 5, [5, 5], [5])) == 5**3
    assert svd_operations(decompositions("strict", True, 5, [5, 5], [5])) == 3 * 5**3


@pytest.mark.parametrize("sizes", tradeoff.SIZES)
@pytest.mark.parametrize("privacy", tradeoff.PRIVACIES)
def test_the_ledger_and_the_solvers_agree_with_the_formulas(plan, sizes, privacy):
    found = measure(plan.experiment(sizes, privacy, 0), rounds=4)
    assert len({a["dimension"] for a in found.values()}) == (3 if sizes == "heterogeneous" else 1)
    for agent in found.values():
        for key in ("bytes", "decompositions", "operations"):
            assert agent[key] == agent[f"{key}_formula"] > 0 or key != "bytes"
        assert agent["seconds"] > 0 or agent["decompositions"] == 0


def test_homogeneous_agents_keep_graph_and_targets(plan, three):
    one, other = (
        build_federation(plan.experiment(sizes, "standard", 0)) for sizes in tradeoff.SIZES
    )
    assert set(one.graph.edges) == set(other.graph.edges)
    assert {a.dimension for a in one.agents} == {24, 16, 28}
    assert {a.dimension for a in other.agents} == {24}  # the nearest to the mean, 22.7
    assert {n: len(p) for n, p in one.partition.items()} == {
        n: len(p) for n, p in other.partition.items()
    }


def test_files_and_resumption(plan, tmp_path, capsys, monkeypatch):
    text = tradeoff.reproduce(plan, tmp_path)
    assert capsys.readouterr().out.count("done:") == 2 * 2 * 2
    assert_drawn(tmp_path, "tradeoff")
    with (tmp_path / "tradeoff.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8 * 3
    mean = sum(
        float(r["bytes"])
        for r in rows
        if (r["sizes"], r["privacy"], r["seed"]) == ("heterogeneous", "strict", "0")
    )
    assert (
        f"| heterogeneous | strict | {mean / 3:,.1f} | {mean / 3:,.1f} |"
        in (tmp_path / "tradeoff.md").read_text()
    )
    assert "3 agents of" in text
    assert "Heterogeneous latent sizes: 16, 24, 28; homogeneous: 24," in text
    assert "for 4 rounds, with seeds 0, 1," in text
    (tmp_path / "runs" / "homogeneous-strict-seed-1.json").unlink()
    monkeypatch.setattr(figures, "save_figure", lambda *_: None)  # it has been drawn
    tradeoff.reproduce(plan, tmp_path)
    assert capsys.readouterr().out == "done: homogeneous-strict-seed-1\n"
    with pytest.raises(ConfigError, match="measured with another config"):
        tradeoff.reproduce(replace(plan, rounds=2), tmp_path)


@pytest.mark.parametrize(
    "option", ["method.distillation={}", "method.exchange_every=2", "method.edge_dim=4"]
)
def test_what_the_formulas_do_not_cover_is_refused(plan, option):
    plan = replace(plan, settings=(*plan.settings, option))
    with pytest.raises(ConfigError, match="formulas of tab:tradeoff"):
        measure(plan.experiment("heterogeneous", "standard", 0), rounds=2)


def test_turns_need_an_even_number_of_rounds(plan):
    with pytest.raises(ConfigError, match="must be even"):
        replace(plan, rounds=3)
