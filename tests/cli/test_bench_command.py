"""`sheafed bench` from its arguments to its table and file."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from sheafed.bench import running
from sheafed.bench.scaling import scaling
from sheafed.cli import bench
from sheafed.errors import BenchError


def test_one_benchmark(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(running, "fresh_processes", ThreadPoolExecutor)  # quicker
    short = {"scaling": lambda _, sizes: scaling(sizes, 1, least=40)}
    monkeypatch.setattr(running, "BENCHMARKS", short)
    path = tmp_path / "bench.json"
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
    assert f"{memory['measured']:.2f}" in shown


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
