"""A cluster of real processes ends with the bytes of one process, whatever happens to it."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import pytest

from sheafed.checkpointing.checkpoint import load_checkpoint
from sheafed.errors import InputError
from sheafed.training.cluster import balance
from sheafed.transport import Ledger
from tests.helpers import warm_processes
from tests.helpers.cluster_rank import serve
from tests.helpers.federations import results, start

Ends = list[list[Any] | None]


@pytest.fixture(scope="module")
def ranks() -> Iterator[Connection]:
    here, there = warm_processes.CONTEXT.Pipe()
    process = warm_processes.start(serve, there)
    there.close()
    with here:
        yield here
    process.join()


@pytest.fixture
def cluster(ranks: Connection, tmp_path: Path) -> Callable[..., Ends]:
    def run(size: int, case: str = "distillation", **job: Any) -> Ends:
        whole = {"case": case, "out": str(tmp_path), "size": size, "timeout": 60.0}
        whole |= {"federation": "three", "fate": None, "hosts": None}
        ranks.send({"options": {}, **whole, **job})
        return ranks.recv()

    return run


def everything(out: Path) -> dict[str, Any]:
    """Return what a run leaves behind, but for times and memory."""
    summary = json.loads((out / "summary.json").read_text())
    checkpoint = load_checkpoint(out / "checkpoint.safetensors")
    timed = ("seconds", "peak_memory_bytes")
    return {
        **results(out),
        "ledger": list(Ledger.from_state(checkpoint["ledger"]).rows()),
        "summary": {key: value for key, value in summary.items() if key not in timed},
        "identity": checkpoint["identity"],
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """Return what one process leaves behind, by case and federation."""

    @cache
    def leave(case: str, **options: Any) -> dict[str, Any]:
        out = tmp_path_factory.mktemp(case)
        start(case, out, oracle=False, **options)
        return everything(out)

    return leave


def ended_well(size: int) -> Ends:
    return [[0, ""]] * size


@pytest.mark.parametrize(
    ("case", "size"),
    [("distillation", 1), ("distillation", 3)]
    + [(case, 2) for case in ("distillation", "strict", "consensus", "alone", "parameters")],
)
def test_any_number_of_processes_ends_with_the_bytes_of_one(
    cluster: Any, alone: Any, tmp_path: Path, case: str, size: int
) -> None:
    assert cluster(size, case) == ended_well(size)
    assert everything(tmp_path) == alone(case)
    assert len(alone(case)["ledger"]) > 4


def test_maps_that_take_two_exchanges(cluster: Any, alone: Any, tmp_path: Path) -> None:
    assert cluster(2, "strict consensus", options={"epochs": 1}) == ended_well(2)
    assert everything(tmp_path) == alone("strict consensus", epochs=1)
    kinds = {row.kind for row in alone("strict consensus", epochs=1)["ledger"]}
    assert kinds == {"hello", "round", "alignment from head", "alignment from tail"}


def test_a_whitening_that_agents_of_one_process_cannot_fit(
    cluster: Any, alone: Any, tmp_path: Path
) -> None:
    job = {"federation": "one sample", "options": {"epochs": 1}}
    ends = cluster(2, "strict maps", **job)
    assert [code for code, _ in ends] == [0, 0]
    assert everything(tmp_path) == alone("strict maps", federation="one sample", epochs=1)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["whitenings"].keys() == {"fair"}


def test_other_metrics_than_accuracy(cluster: Any, alone: Any, tmp_path: Path) -> None:
    assert cluster(2, federation="regressors", options={"epochs": 1}) == ended_well(2)
    assert everything(tmp_path) == alone("distillation", federation="regressors", epochs=1)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["metrics"].keys() == {"mse", "r2"}
    assert None not in [summary[f"communication_{metric}"] for metric in ("mse", "r2")]


def test_fifteen_agents_on_four_processes_end_with_the_bytes_of_one(
    cluster: Any, alone: Any, tmp_path: Path
) -> None:
    assert cluster(4, federation="fifteen", options={"epochs": 1}) == ended_well(4)
    assert everything(tmp_path) == alone("distillation", federation="fifteen", epochs=1)
    assert len(json.loads((tmp_path / "summary.json").read_text())["agents"]) == 15


@pytest.mark.parametrize(("size", "together"), [(2, 32), (4, 0)])
def test_agents_that_step_together_have_the_figures_of_one_process(
    cluster: Any, alone: Any, tmp_path: Path, size: int, together: int
) -> None:
    """Up to rounding: on four processes there are too few on each, and all step one by one."""
    options = {"epochs": 1, "rounds_per_epoch": 4}
    assert cluster(size, federation="alike", options=options) == ended_well(size)
    one = alone("distillation", federation="alike", **options)["summary"]
    found = json.loads((tmp_path / "summary.json").read_text())
    assert (one["vectorized"]["together"], found["vectorized"]["together"]) == (32, together)
    assert found["bytes_sent"] == one["bytes_sent"]
    assert found["misalignment"] == pytest.approx(one["misalignment"], rel=1e-3)
    for key in ("private_accuracy", "communication_accuracy", "validation_score"):
        assert found.get(key) == pytest.approx(one.get(key), abs=0.005)


def test_a_killed_rank_is_named_and_the_rest_goes_on_with_those_that_are_left(
    cluster: Any, alone: Any, tmp_path: Path
) -> None:
    zero, one, two = cluster(3, fate=[1, 7, signal.SIGKILL])
    assert one == [-signal.SIGKILL, ""]
    for code, message in (zero, two):
        assert code == 1
        assert message.startswith("LostRankError: rank ")
    assert "(agents ada) has lost rank 1 (agents bob)" in zero[1]
    assert load_checkpoint(tmp_path / "checkpoint.safetensors")["rounds"] == 6
    assert cluster(2, options={"resume": True}) == ended_well(2)
    assert everything(tmp_path) == alone("distillation")


def test_a_frozen_rank_is_named_when_the_time_is_up(cluster: Any, tmp_path: Path) -> None:
    zero, one, two = cluster(3, timeout=2.0, fate=[2, 4, signal.SIGSTOP])
    assert two is None
    # Whoever waits longest names it, and the others lose that one.
    named = "has waited 2 s for rank 2 (agents cyd): it is frozen"
    assert named in zero[1] or named in one[1]
    assert zero[1].startswith("LostRankError: ")
    assert one[1].startswith("LostRankError: ")
    assert load_checkpoint(tmp_path / "checkpoint.safetensors")["rounds"] == 3


@pytest.mark.parametrize("sizes", [(3, 0), (0, 3)])
def test_processes_come_and_go_between_interruptions(
    cluster: Any, alone: Any, tmp_path: Path, sizes: tuple[int, ...]
) -> None:
    """Size 0 is the run in one process without a cluster."""
    for epochs, size in zip((2, 3, 4)[-len(sizes) :], sizes, strict=True):
        options = {"resume": True, "epochs": epochs}
        if size:
            assert cluster(size, options=options) == ended_well(size)
        else:
            start("distillation", tmp_path, oracle=False, **options)
    assert everything(tmp_path) == alone("distillation")
    parts = [path.name for path in tmp_path.iterdir() if path.is_dir()]
    assert parts == (["checkpoint-20"] if sizes[-1] else [])


def test_a_cluster_measures_no_oracle_accuracy(cluster: Any, tmp_path: Path) -> None:
    ends = cluster(2, options={"oracle": True})
    assert all("InputError: oracle accuracy needs" in message for _, message in ends)
    assert not list(tmp_path.iterdir())


def test_a_run_is_not_overwritten(cluster: Any, tmp_path: Path) -> None:
    assert cluster(2, options={"epochs": 1}) == ended_well(2)
    before = results(tmp_path)
    assert all("RunExistsError" in message for _, message in cluster(2))
    assert results(tmp_path) == before


def test_a_part_of_another_round_is_refused(cluster: Any, tmp_path: Path) -> None:
    assert cluster(2, options={"epochs": 1}) == ended_well(2)
    old = (tmp_path / "checkpoint-5" / "bob.safetensors").read_bytes()
    assert cluster(2, options={"epochs": 2, "resume": True}) == ended_well(2)
    (tmp_path / "checkpoint-10" / "bob.safetensors").write_bytes(old)
    ends = cluster(2, options={"resume": True})
    assert any("bob.safetensors is of round 5" in message for _, message in ends)


@pytest.mark.parametrize(
    ("costs", "ranks", "loads"),
    [
        ({"a": 3.0, "b": 1.0, "c": 2.0, "d": 4.0}, 2, [5.0, 5.0]),
        ({"a": 1.0}, 3, [1.0, 0.0, 0.0]),
        ({"a": 9.0, "b": 1.0, "c": 1.0, "d": 1.0}, 2, [9.0, 3.0]),
    ],
)
def test_the_costs_are_balanced(costs: dict[str, float], ranks: int, loads: list[float]) -> None:
    placement = balance(costs, ranks)
    assert [
        sum(costs[n] for n, home in placement.items() if home == r) for r in range(ranks)
    ] == loads


def test_the_sheaf_of_a_cluster_is_in_no_single_process() -> None:
    run = start("distillation", epochs=1)
    run.nodes.pop("bob")
    with pytest.raises(InputError, match=r"\['bob'\] are in other processes"):
        _ = run.sheaf


def unless_in_ci(reason: str) -> NoReturn:
    """Skip a test that this machine cannot run; where all must run, that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def hosts() -> Iterator[list[list[str]]]:
    """Two network namespaces with addresses of their own, joined by a cable."""

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    names = [f"sheafed-{os.getpid()}-{k}" for k in range(2)]
    with ExitStack() as stack:
        try:
            for name in names:
                ip("netns", "add", name)
                stack.callback(ip, "netns", "del", name)
            ip("link", "add", "sheaf0", "netns", names[0], "type", "veth", "peer", "name", "sheaf1",
               "netns", names[1])  # fmt: skip
            for k, name in enumerate(names):
                ip("-n", name, "addr", "add", f"10.77.0.{k + 1}/24", "dev", f"sheaf{k}")
                for device in ("lo", f"sheaf{k}"):
                    ip("-n", name, "link", "set", device, "up")
        except FileNotFoundError:
            unless_in_ci("network namespaces need the program ip; on Debian: iproute2")
        except subprocess.CalledProcessError as problem:
            if b"not permitted" not in problem.stderr:
                raise
            unless_in_ci("network namespaces need root")
        yield [[name, f"10.77.0.{k + 1}", f"sheaf{k}"] for k, name in enumerate(names)]


def test_two_hosts_with_addresses_of_their_own(
    cluster: Any, alone: Any, hosts: list[list[str]], tmp_path: Path
) -> None:
    assert cluster(2, hosts=hosts) == ended_well(2)
    assert everything(tmp_path) == alone("distillation")
