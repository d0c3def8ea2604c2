"""Two whitenings of one training: fair, and as in the paper."""

import json
import logging
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sheafed import Agent
from sheafed.errors import (
    EmptyInputError,
    InputError,
    SingularCovarianceError,
    UndeterminedMapWarning,
)
from sheafed.methods import (
    ConsensusDistillation,
    FedMuscle,
    FedProto,
    Method,
    NonCooperative,
    SheafFMTL,
)
from sheafed.methods.post_hoc_node import least_shrinkage
from sheafed.training import Network, train
from sheafed.training.post_hoc_maps import SHRINKAGES, compare_whitenings
from sheafed.transport import Barrier
from tests.helpers.federations import (
    EDGES,
    agents,
    one_sample,
    pilots,
    samples,
    simple_agent,
    splits,
    start,
)


def alone(whitening: str, out: Path | None = None, shrinkage: float | str = 0.1) -> Network:
    method = NonCooperative(whitening=whitening, shrinkage=shrinkage)
    return train(agents(), EDGES, method, pilots(), epochs=2, out=out, seed=3)


def figures(run: Network) -> dict[str, float]:
    keys = ("communication_accuracy", "communication_accuracy_degree_weighted", "misalignment")
    return {key: run.history.last[key] for key in keys}


@pytest.mark.parametrize("whitening", ["pilots", "private"])
def test_one_run_has_the_columns_of_all(tmp_path: Path, whitening: str) -> None:
    run = alone(whitening, tmp_path, shrinkage=1.0)
    columns = run.history.whitenings
    candidates = {s: alone("pilots", shrinkage=s) for s in (*SHRINKAGES, 1.0)}
    scores = {
        s: other.history.last["validation_communication_accuracy"]
        for s, other in candidates.items()
    }
    best = max(scores, key=scores.get)
    chosen = {"shrinkage": best, "validation_communication_accuracy": scores[best]}
    assert columns["fair"] == figures(candidates[best]) | chosen
    assert columns["as-in-paper"] == figures(alone("private", shrinkage="least"))
    assert len({other.history.last["misalignment"] for other in candidates.values()}) == 4
    assert json.loads((tmp_path / "summary.json").read_text())["whitenings"] == columns


def test_the_least_shrinkage_is_none_where_the_covariance_is_regular() -> None:
    z = torch.randn(200, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    covariance = z.mT @ z / 200
    assert least_shrinkage(covariance) == 0.0
    dead = covariance.clone()
    dead[0] = dead[:, 0] = 0
    for dtype in (torch.float64, torch.float32):
        found = least_shrinkage(dead.to(dtype))
        # By NumPy: what it takes to exceed the rounding errors of the largest variance.
        values = np.linalg.eigvalsh(dead.numpy())
        needed = 4 * torch.finfo(dtype).eps * values[-1] / values.mean()
        assert found == pytest.approx(max(1e-6, 10 ** np.ceil(np.log10(needed))))
    with pytest.raises(SingularCovarianceError, match="no variance in any direction"):
        least_shrinkage(torch.zeros(4, 4))


FEW = [
    NonCooperative(),
    NonCooperative(privacy="strict"),
    ConsensusDistillation(),
    SheafFMTL(),
    FedProto(),
    FedMuscle(pilots_per_round=2),
]


@pytest.mark.parametrize("method", FEW)
def test_too_few_pilots_are_warned_of_once(method: Method) -> None:
    def go(count: int) -> None:
        team = [simple_agent(name, 4, seed=k) for k, name in enumerate(("ada", "bob", "cyd"))]
        train(team, EDGES, method, samples(count, 77)[0], epochs=2)

    with pytest.warns(UndeterminedMapWarning) as caught:
        go(3)
    assert sorted(str(w.message).partition(";")[0] for w in caught) == [
        f"edge {tail} -> {head}: 3 pilots leave the map undetermined on a subspace of dimension "
        "2 of 4"
        for tail, head in (("bob", "ada"), ("cyd", "bob"))
    ]
    go(5)  # any warning would be an error


@pytest.mark.parametrize(("whitening", "enough"), [("pilots", 4), ("private", 3)])
def test_the_warning_tells_the_truth_about_the_rank(whitening: str, enough: int) -> None:
    """Whitening by the pilots centres them: then as many as dimensions are one too few."""

    def rank(count: int) -> int:
        inputs = samples(count, 77)[0]
        method = NonCooperative(whitening=whitening)
        run = train(agents()[1:], [("bob", "cyd")], method, inputs, epochs=1)
        own = [run.nodes[name].white_pilots().double() for name in ("bob", "cyd")]
        return int(torch.linalg.matrix_rank(own[0].mT @ own[1], rtol=1e-5))

    with pytest.warns(UndeterminedMapWarning, match=f"cyd -> bob: {enough - 1} pilots .* 1 of 3"):
        assert rank(enough - 1) == 2
    assert rank(enough) == 3  # any warning would be an error


def test_measuring_both_sends_nothing_and_leaves_the_chosen_maps() -> None:
    run = alone("pilots")
    assert run.history.ledger.bytes_sent() == run.history.last["bytes_sent"]
    assert (run.nodes["ada"].source, run.nodes["ada"].shrinkage) == ("pilots", 0.1)
    sheaf = run.sheaf
    again = alone("pilots").sheaf
    assert all((sheaf.maps[edge] == again.maps[edge]).all() for edge in sheaf.maps)


def test_a_method_that_learns_its_maps_has_no_such_columns() -> None:
    assert start("distillation", epochs=1).history.whitenings == {}


def test_without_validation_data_a_fair_whitening_has_the_methods_shrinkage() -> None:
    def trained(whitening: str) -> Network:
        method = NonCooperative(whitening=whitening, shrinkage=0.3)
        shown = agents()
        shown[0].data = replace(shown[0].data, validation=None)
        return train(shown, EDGES, method, pilots(), epochs=1, seed=3)

    assert trained("private").history.whitenings["fair"] == figures(trained("pilots"))


def all_alike() -> list[Agent]:
    inputs, targets = samples(20, 1)
    data = {**splits(20, 1), "train": (inputs[:1].repeat(20, 1), targets)}
    return [*agents()[:2], simple_agent("cyd", data=data, frozen=True)]


@pytest.mark.parametrize("method", [NonCooperative(), NonCooperative(privacy="strict")])
@pytest.mark.parametrize(
    ("team", "reason"), [(one_sample, "at least two rows"), (all_alike, "no variance")]
)
def test_a_whitening_that_cannot_be_fitted_is_left_out(
    team, reason: str, method: Method, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "sheafed.training"):
        run = train(team(), EDGES, method, pilots(), epochs=2, out=tmp_path)
    assert run.history.whitenings.keys() == {"fair"}
    assert len(caplog.messages) == 1
    assert "'as-in-paper' is left out" in caplog.text
    assert "agent 'cyd'" in caplog.text
    assert reason in caplog.text
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["whitenings"] == run.history.whitenings
    assert (tmp_path / "last.safetensors").exists()
    assert run.history.ledger.bytes_sent() == run.history.last["bytes_sent"]
    found = run.evaluate()  # with the maps that the last record is of
    assert found.summary()["misalignment"] == run.history.last["misalignment"]
    assert {(n.source, n.shrinkage) for n in run.nodes.values()} == {("pilots", 0.5)}


def test_a_single_pilot_loses_no_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    method = NonCooperative(whitening="private", shrinkage="least")
    with pytest.warns(UndeterminedMapWarning):
        run = train(agents()[1:], [("bob", "cyd")], method, samples(1, 77)[0], epochs=1)
    assert run.history.whitenings.keys() == {"as-in-paper"}
    assert "'fair' is left out" in caplog.text


def test_a_runs_own_whitening_must_be_fitted() -> None:
    with pytest.raises(EmptyInputError, match="agent 'cyd'"):
        train(one_sample(), EDGES, NonCooperative(whitening="private"), pilots(), epochs=1)


def test_what_another_process_cannot_fit_is_left_out_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = alone("pilots")
    policy = Barrier(run.new_transport(), run.new_transport)

    def gather(value: object) -> list[object]:
        return [value, True if isinstance(value, bool) else "agent 'dan' has one sample"]

    def send(messages: object) -> None:
        raise AssertionError("another process would not answer")

    monkeypatch.setattr(run.group, "gather", gather, raising=False)
    monkeypatch.setattr(policy, "send", send)
    assert compare_whitenings(run, policy) == {}


def test_nodes_get_everything_back_whatever_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    run = alone("pilots")
    policy = Barrier(run.new_transport(), run.new_transport)
    before = {name: deepcopy(node.state()) for name, node in run.nodes.items()}

    def fail(*given: object, **options: object) -> None:
        assert run.nodes["ada"].shrinkage != 0.1 or run.nodes["ada"].source == "private"
        raise InputError("measuring fails")

    monkeypatch.setattr("sheafed.training.post_hoc_maps.SHRINKAGES", (0.05,))
    monkeypatch.setattr(run, "measure", fail)
    with pytest.raises(InputError, match="measuring fails"):
        compare_whitenings(run, policy)
    for name, node in run.nodes.items():
        assert (node.source, node.shrinkage) == ("pilots", 0.1)
        for j, state in before[name]["endpoints"].items():
            assert torch.equal(node.state()["endpoints"][j]["map"], state["map"])
        assert all(
            torch.equal(node.state()["whitening"][k], v)
            for k, v in before[name]["whitening"].items()
        )
    assert policy.transport.ledger.bytes_sent() == 0
