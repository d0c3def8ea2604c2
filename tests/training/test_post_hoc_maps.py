"""Both whitenings of one training."""

import json
from pathlib import Path

import pytest

from sheafed.methods import NonCooperative
from sheafed.training import Network, train
from sheafed.training.post_hoc_maps import FIGURES
from tests.helpers.federations import EDGES, agents, pilots, start


def alone(whitening: str, out: Path | None = None) -> Network:
    return train(
        agents(), EDGES, NonCooperative(whitening=whitening), pilots(), epochs=2, out=out, seed=3
    )


def figures(run: Network) -> dict[str, float]:
    return {key: run.history.last[key] for key in FIGURES}


@pytest.mark.parametrize(("chosen", "other"), [("pilots", "private"), ("private", "pilots")])
def test_one_run_has_the_columns_of_two(tmp_path: Path, chosen: str, other: str) -> None:
    run = alone(chosen, tmp_path)
    columns = {
        "pilots": run.history.whitenings["fair"],
        "private": run.history.whitenings["as-in-paper"],
    }
    assert columns[chosen] == figures(run)
    assert columns[other] == figures(alone(other))
    assert columns[chosen]["misalignment"] != columns[other]["misalignment"]
    assert (
        json.loads((tmp_path / "summary.json").read_text())["whitenings"] == run.history.whitenings
    )


def test_measuring_both_sends_nothing_and_leaves_the_chosen_maps() -> None:
    run = alone("pilots")
    assert run.history.ledger.bytes_sent() == run.history.last["bytes_sent"]
    assert run.nodes["ada"].source == "pilots"
    sheaf = run.sheaf
    again = alone("pilots").sheaf
    assert all((sheaf.maps[edge] == again.maps[edge]).all() for edge in sheaf.maps)


def test_a_method_that_learns_its_maps_has_no_such_columns() -> None:
    assert start("distillation", epochs=1).history.whitenings == {}
