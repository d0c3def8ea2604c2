"""`sheafed bench` from its arguments to its table and file."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from sheafed.bench import accuracy, running
from sheafed.bench.measurement import Measurement
from sheafed.bench.scaling import scaling
from sheafed.cli import bench
from sheafed.errors import BenchError


def test_one_benchmark(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(running, "fresh_processes", ThreadPoolExecutor)  # quicker
    short = {"scaling": lambda _, sizes: scaling(sizes, 1, least=40)}
    monkeypatch.setattr(running, "BENCHMARKS", short)
    path = tmp_path / "new" / "bench.json"
    bench.bench(["scaling"], quick=True, agents="15,20,25", json_file=path)
    content = json.loads(path.read_text())
    time, _, per_agent, memory = content["measurements"]
    assert (time["target"], time["unit"], memory["unit"]) == (6, "times", "GiB")
    assert time["verdict"] == ("met" if time["measured"] <= time["bound"] else "missed")
    assert len(time["raw"]["large"]) == len(time["raw"]["small"]) == 40 // 20
    assert len(per_agent["raw"]["bytes per agent"]) == 2
    assert 0 < memory["measured"] < 8
    assert content["machine"]["cores"] > 0
    shown = capsys.readouterr().out
    assert "verdict" in shown
    assert f"{memory['measured']:.3g}" in shown


def test_accuracy_is_drawn_and_tabulated(run, monkeypatch, tmp_path) -> None:
    def measured(plan, seeds, out):
        point = accuracy.Point(20, 1.5, 2**20, 0.9, 0.93)
        found = [{curve.label: [point, point] for curve in accuracy.CURVES} for _ in seeds]
        return accuracy.targets(plan, found), found

    monkeypatch.setattr(accuracy, "measure_accuracy", measured)
    assert run("bench", "accuracy", "--quick", "--full")[0] == 2
    code, shown, _ = run("bench", "accuracy", "--quick", "--seeds", "0,1", "--out", "a")
    assert (code, "five small agents on digits" in shown.replace("\n", " ")) == (0, True)
    assert (tmp_path / "a" / "quick" / "accuracy.png").stat().st_size > 5_000
    assert "| 1.5 | 1 |" in (tmp_path / "a" / "quick" / "accuracy.md").read_text()


def test_a_slower_state_ends_with_code_1(run, monkeypatch) -> None:
    found = [Measurement.of_turns(1, "a round", 1.1, [1.0, 1.01, 1.02])]
    monkeypatch.setattr(running, "run_benchmarks", lambda *_, **__: found)
    with monkeypatch.context() as unmeasured:  # it is known before anything is measured
        unmeasured.setattr(running, "run_benchmarks", lambda *_, **__: pytest.fail("measured"))
        code, _, complaint = run("bench", "--compare")
    assert (code, "no file benchmarks/ratios.json to compare with" in complaint) == (2, True)
    assert run("bench", "--keep")[:2][0] == 0
    code, shown, _ = run("bench", "--compare")
    assert (code, "as before" in shown) == (0, True)
    found[:] = [Measurement.of_turns(1, "a round", 1.1, [1.5, 1.51, 1.52])]
    code, shown, _ = run("bench", "--compare")
    assert (code, "worse" in shown) == (1, True)


@pytest.mark.parametrize(
    ("names", "agents", "message"),
    [
        (["speed"], None, "unknown benchmark speed; choose from processes, overhead"),
        (["scaling"], "many", "--agents must be numbers like 15,50,200, got 'many'"),
        (["scaling"], "15,3", "must be at least 5, got 3"),
    ],
)
def test_bad_arguments_are_named(names: list[str], agents: str | None, message: str) -> None:
    with pytest.raises(BenchError, match=message):
        bench.bench(names, quick=True, agents=agents)
