"""What the pilots of consensus distillation cost: the settings, and the figures of the table."""

import importlib
from pathlib import Path

import pytest

from sheafed import ConsensusDistillation

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture
def pilot_cost(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("pilot_cost")


def test_every_setting_changes_one_thing(pilot_cost) -> None:
    found = pilot_cost.settings(batch_size=32, rounds_per_epoch=5)
    assert found.pop(pilot_cost.ALONE).refit_head
    assert found.pop(pilot_cost.DEFAULT) == ConsensusDistillation()
    counts = {(m.pilots_per_round, m.pilots_in_batch) for m in found.values()}
    assert counts == {(None, False), (8, False), (16, False), (64, False), (8, True), (16, True)}
    assert ConsensusDistillation(pilots_in_batch=True).pilots_per_round is None, "half of the batch"
    exchanges = [m.exchange_every for m in found.values()]
    assert exchanges == [None] * 5 + [5, 16, 32]
    others = pilot_cost.settings(32, rounds_per_epoch=33), pilot_cost.settings(32, 34)
    assert list(others[0]) == list(others[1]), "whatever the rounds that an epoch has with a seed"
    assert "an exchange in every epoch" in found
    assert "an exchange in every epoch" not in others[0]
    with_changes = [
        (m.pilots_per_round is not None) + (m.exchange_every is not None) for m in found.values()
    ]
    assert with_changes == [1] * len(found)


def test_differences_are_paired_by_seed(pilot_cost) -> None:
    """Seeds differ by much more than settings do."""

    def figures(mean: float, seconds: float) -> object:
        return pilot_cost.Figures(mean + 0.1, mean - 0.1, seconds, 2**20)

    found = [
        {"training alone": figures(0.3, 1.0), "default": figures(0.5, 3.0), "x": figures(0.51, 2)},
        {"training alone": figures(0.6, 2.0), "default": figures(0.8, 6.0), "x": figures(0.83, 4)},
    ]
    rows = {row[1]: row[2:] for row in pilot_cost.as_rows("cell", found)}
    assert rows["x"] == ["0.770 ± 0.226", "0.570 ± 0.226", "+2.00 ± 1.00", "2.00", "1.00"]
    assert rows["default"][2:4] == ["", "3.00"]
    assert rows["training alone"][2:4] == ["-20.00 ± 0.00", "1.00"]


def test_kept_figures_are_of_the_same_plan(pilot_cost, tmp_path, monkeypatch) -> None:
    one = pilot_cost.Figures(0.5, 0.4, 1.0, 7)
    asked = []

    def measure(*plan: object) -> dict[str, object]:
        asked.append(plan)
        return {"default": one}

    monkeypatch.setattr(pilot_cost, "measure", measure)
    path = tmp_path / "cell" / "seed-10.json"
    for _ in range(2):
        assert pilot_cost.measured(path, ("digits",), 10, None) == {"default": one}
    assert asked == [(("digits",), 10, None)]
    with pytest.raises(SystemExit, match="another --out"):
        pilot_cost.measured(path, ("digits",), 10, 5)
