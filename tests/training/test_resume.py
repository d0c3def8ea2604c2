"""Interrupted anywhere and resumed, a training ends with the bytes of one that was not."""

import json
import shutil
import stat
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import CosineAnnealingLR, SequentialLR, StepLR

from sheafed.agents import paper_optimizer
from sheafed.agents.agent import Agent
from sheafed.agents.objectives import cross_entropy
from sheafed.agents.samples import Batch
from sheafed.checkpointing.checkpoint import load_checkpoint, save_checkpoint
from sheafed.errors import CheckpointError, RunExistsError
from sheafed.methods import NonCooperative, SheafFRL
from sheafed.methods.node import Node, NodeContext
from sheafed.pilots.pilot_set import PilotSet
from sheafed.training import Callback, EarlyStopping, Network, summarise, train
from tests.helpers import warm_processes
from tests.helpers.federations import (
    EDGES,
    FEATURES,
    METHODS,
    TWO,
    agents,
    pilots,
    results,
    same,
    samples,
    simple_agent,
    start,
    weights,
)
from tests.helpers.interrupted_run import kill_all

KILLS = 6


class InterruptionError(Exception):
    pass


class Interrupt(Callback):
    """Fails after some round, or at the evaluation of some round."""

    def __init__(self, rounds: int, at_evaluation: bool = False) -> None:
        self.rounds, self.at_evaluation = rounds, at_evaluation

    def on_round(self, run: Network, log: object) -> None:
        if run.history.rounds == self.rounds and not self.at_evaluation:
            raise InterruptionError

    def on_evaluation(self, run: Network, record: object) -> bool:
        if run.history.rounds == self.rounds and self.at_evaluation:
            raise InterruptionError
        return False


Whole = tuple[Network, Path]


@pytest.fixture
def case() -> str:
    """The method that has every kind of state, unless a test names others."""
    return "strict"


both = pytest.mark.parametrize("case", TWO)


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Whole]:
    @cache
    def run(case: str) -> Whole:
        out = tmp_path_factory.mktemp(case)
        return start(case, out), out

    return run


@pytest.fixture
def whole(case: str, wholes: Callable[[str], Whole]) -> Whole:
    """A run that was never interrupted, and its directory."""
    return wholes(case)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def figures(run: Network) -> dict[str, Any]:
    """Return the summary without what no two runs have in common."""
    summary = summarise(run)
    return {k: v for k, v in summary.items() if k not in ("seconds", "peak_memory_bytes")}


def check_equal(run: Network, out: Path, whole: Whole) -> None:
    expected, directory = whole
    assert results(out) == results(directory)
    assert run.history.records == expected.history.records
    assert figures(run) == figures(expected)
    assert same(weights(run), weights(expected))
    assert list(run.history.ledger.rows()) == list(expected.history.ledger.rows())
    assert run.history.ledger.bytes_sent() == expected.history.ledger.bytes_sent()
    for name, node in run.nodes.items():
        for neighbour, end in node.endpoints.items():
            assert torch.equal(end.map, expected.nodes[name].endpoints[neighbour].map)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """Directories of trainings that were killed, by case, and how often each was."""
    out = tmp_path_factory.mktemp("killed")
    return out, warm_processes.call(kill_all, out, KILLS, TWO)


@both
def test_killed_again_and_again(
    case: str, whole: Whole, killed: tuple[Path, dict[str, int]]
) -> None:
    out, times = killed
    assert times[case] >= 1
    check_equal(start(case, out / case, resume=True), out / case, whole)


@pytest.mark.parametrize("case", list(METHODS))
def test_interrupted_by_an_error_again_and_again(case: str, whole: Whole, tmp_path: Path) -> None:
    """Before the first checkpoint, in the midst of an epoch, at an evaluation, after a checkpoint,
    at the end.
    """
    for rounds, at_evaluation in ((1, False), (4, False), (10, True), (12, False), (20, False)):
        with pytest.raises(InterruptionError):
            start(case, tmp_path, resume=True, callbacks=[Interrupt(rounds, at_evaluation)])
    check_equal(start(case, tmp_path, resume=True), tmp_path, whole)


def test_the_cadence_of_checkpoints_changes_nothing(
    case: str, whole: Whole, tmp_path: Path
) -> None:
    for every in (1, None):
        out = tmp_path / str(every)
        check_equal(start(case, out, checkpoint_every=every), out, whole)


def test_checkpoints_come_when_they_are_asked_for(tmp_path: Path) -> None:
    seen = {}

    class Look(Callback):
        def on_round(self, run: Network, log: object) -> None:
            path = tmp_path / "checkpoint.safetensors"
            if path.exists():
                seen[run.history.rounds] = load_checkpoint(path)["rounds"]

    start("alone", tmp_path, epochs=2, checkpoint_every=3, callbacks=[Look()])
    assert seen == {4: 3, 5: 3, 6: 3, 7: 6, 8: 6, 9: 6, 10: 9}
    assert load_checkpoint(tmp_path / "checkpoint.safetensors")["rounds"] == 10


@both
def test_resuming_a_finished_run_changes_nothing(case: str, whole: Whole, tmp_path: Path) -> None:
    start(case, tmp_path)
    before = contents(tmp_path)
    run = start(case, tmp_path, resume=True)
    check_equal(run, tmp_path, whole)
    after = contents(tmp_path)
    summaries = [json.loads(files.pop("summary.json")) for files in (before, after)]
    for summary in summaries:
        assert summary.pop("seconds") >= 0
        assert summary.pop("peak_memory_bytes") > 0
    assert summaries[0] == summaries[1]
    assert before == after


@both
def test_what_was_lost_after_the_last_checkpoint_is_written_again(
    case: str, whole: Whole, tmp_path: Path
) -> None:
    start(case, tmp_path)
    for name in ("last.safetensors", "summary.json", "metrics.jsonl"):
        (tmp_path / name).unlink()
    check_equal(start(case, tmp_path, resume=True), tmp_path, whole)


def test_a_torn_line_of_metrics_is_repaired(case: str, whole: Whole, tmp_path: Path) -> None:
    with pytest.raises(InterruptionError):
        start(case, tmp_path, callbacks=[Interrupt(13)])
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"epoch": 3, "rou')
    check_equal(start(case, tmp_path, resume=True), tmp_path, whole)


def test_resuming_with_more_epochs_goes_on(case: str, whole: Whole, tmp_path: Path) -> None:
    start(case, tmp_path, epochs=2)
    check_equal(start(case, tmp_path, epochs=4, resume=True), tmp_path, whole)


@pytest.mark.parametrize("case", ["strict", "alone", "consensus"])
def test_the_evaluation_of_an_end_that_is_resumed_stays(
    case: str, wholes: Callable[[str], Whole], tmp_path: Path
) -> None:
    start(case, tmp_path, epochs=3, evaluate_every=2)
    run = start(case, tmp_path, epochs=4, evaluate_every=2, resume=True)
    assert [record["epoch"] for record in run.history.records] == [2, 3, 4]
    whole, _ = wholes(case)
    assert same(weights(run), weights(whole))
    for name, node in run.nodes.items():
        for neighbour, end in node.endpoints.items():
            assert torch.equal(end.map, whole.nodes[name].endpoints[neighbour].map)


def test_resuming_where_nothing_is_starts(case: str, whole: Whole, tmp_path: Path) -> None:
    out = tmp_path / "not" / "yet"
    check_equal(start(case, out, resume=True), out, whole)


def test_time_goes_on(tmp_path: Path) -> None:
    first = start("alone", tmp_path, epochs=1)
    path = tmp_path / "checkpoint.safetensors"
    save_checkpoint(path, load_checkpoint(path) | {"seconds": 1000.0})
    resumed = start("alone", tmp_path, epochs=2, resume=True)
    assert first.history.seconds < 100
    assert 1000 < resumed.history.seconds < 1100


def test_a_run_stopped_early_stays_stopped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def go(out: Path, *more: Callback, resume: bool = True) -> Network:
        stopping = EarlyStopping(patience=1, margin=0.06)
        return start("distillation", out, epochs=9, resume=resume, callbacks=[stopping, *more])

    whole = go(tmp_path / "whole")
    assert whole.history.stopped
    assert 1 < whole.history.epoch < 9
    for rounds in (7, whole.history.rounds):
        with pytest.raises(InterruptionError):
            go(tmp_path / "parts", Interrupt(rounds))
    resumed = go(tmp_path / "parts")
    assert (resumed.history.stopped, resumed.history.rounds) == (True, whole.history.rounds)
    check_equal(resumed, tmp_path / "parts", (whole, tmp_path / "whole"))
    assert not caplog.records
    again = go(tmp_path / "parts")
    check_equal(again, tmp_path / "parts", (whole, tmp_path / "whole"))
    assert f"has ended this run after {whole.history.epoch} of 9 epochs" in caplog.text
    again.train(epochs=1)  # as the message says
    assert again.history.epoch == whole.history.epoch + 1


def test_a_directory_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    start("alone", tmp_path, epochs=1)
    before = contents(tmp_path)
    with pytest.raises(RunExistsError, match="already holds a run; choose another"):
        start("alone", tmp_path, epochs=1)
    assert contents(tmp_path) == before
    (tmp_path / "checkpoint.safetensors").unlink()
    with pytest.raises(RunExistsError):
        start("distillation", tmp_path, epochs=1)
    del before["checkpoint.safetensors"]
    assert contents(tmp_path) == before


def test_a_run_without_a_record_can_be_begun_anew(tmp_path: Path) -> None:
    with pytest.raises(InterruptionError):
        start("alone", tmp_path, epochs=1, callbacks=[Interrupt(1)])
    assert sorted(contents(tmp_path)) == [".lock", "metrics.jsonl"]
    assert start("alone", tmp_path, epochs=1).history.rounds == 5


# Resuming something else


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("begun")
    go(out, resume=False)
    return out


@pytest.fixture
def begun(template: Path, tmp_path: Path) -> Path:
    """A run of one epoch, of its own to be spoilt."""
    return shutil.copytree(template, tmp_path, dirs_exist_ok=True)


def go(out: Path, **changes: Any) -> Network:
    settings: dict[str, Any] = {
        "agents": [simple_agent("a"), simple_agent("b", 4), simple_agent("c", 5)],
        "graph": [("a", "b"), ("b", "c")],
        "method": SheafFRL(pilots_per_round=6),
        "pilots": pilots(),
        "epochs": 1,
        "seed": 3,
        "resume": True,
        "out": out,
    }
    return train(**{**settings, **changes})


def labels_and_more(agent: Agent, batch: Batch) -> torch.Tensor:
    return cross_entropy(agent, batch) + agent.encode(batch.inputs).square().mean()


def with_b(**options: Any) -> dict[str, Any]:
    return {"agents": [simple_agent("a"), simple_agent("b", **options), simple_agent("c", 5)]}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"method": NonCooperative()}, "its method is 'sheaf-frl', this one's 'non-coop"),
        (
            {"method": SheafFRL(pilots_per_round=7)},
            "its option pilots_per_round of the method",
        ),
        (
            {"method": SheafFRL(penalty=0.2, pilots_per_round=6)},
            r"its option penalty of the method is 0\.1, this one's 0\.2; resume",
        ),
        ({"seed": 4}, "its seed is 3, this one's 4"),
        ({"graph": [("a", "b"), ("a", "c")]}, "its graph is"),
        ({"rounds_per_epoch": 3}, "its rounds per epoch is 4, this one's 3"),
        ({"pilots": PilotSet(samples(24, 78)[0])}, "its pilot set is"),
        (with_b(dimension=6), "its latent size of agent 'b' is 4, this one's 6"),
        (with_b(dimension=4, optimizer=lambda p: Adam(p)), "optimiser of agent 'b' is 'SGD'"),
        (
            with_b(dimension=4, optimizer=lambda p: SGD(p, 0.02, 0.9, weight_decay=5e-4)),
            r"its optimiser's lr of agent 'b' is 0\.01, this one's 0\.02",
        ),
        (
            with_b(dimension=4, optimizer=lambda p: SGD(p, 0.01, 0.8, weight_decay=5e-4)),
            r"its optimiser's momentum of agent 'b' is 0\.9, this one's 0\.8",
        ),
        (
            with_b(dimension=4, optimizer=lambda p: SGD(p, 0.01, 0.9)),
            r"its optimiser's weight_decay of agent 'b' is 0\.0005, this one's 0",
        ),
        (with_b(dimension=4, max_grad_norm=1.0), "its max_grad_norm of agent 'b' is None, .* 1.0"),
        (with_b(dimension=4, precision="bf16"), "its precision of agent 'b' is 'full'"),
        (with_b(dimension=4, scheduler=lambda o: StepLR(o, 2)), "its scheduler of agent 'b'"),
        (with_b(dimension=4, batch_size=4), "batch size of agent 'b'"),
        (with_b(dimension=4, data=samples(21, 0)), "training samples of agent 'b' is 20"),
        (with_b(dimension=4, data=samples(20, 99)), "digest of the training data of agent 'b' is"),
        (
            {
                **with_b(dimension=4, head=None, objective=lambda a, b: a.encode(b.inputs).sum()),
                "method": SheafFRL(pilots_per_round=6),
            },
            "head of agent 'b'",
        ),
        (
            with_b(dimension=4, objective=labels_and_more),
            "objective of agent 'b' is 'cross_entropy'",
        ),
        (with_b(dimension=4, frozen=True), "objective of agent 'b' .* 'cross_entropy, encoder fro"),
        (with_b(dimension=4, head=nn.Linear(4, 8)), "agent 'b' has other weights.*size mismatch"),
    ],
)
def test_another_training_is_named(begun: Path, changes: dict[str, Any], named: str) -> None:
    before = contents(begun)
    with pytest.raises(CheckpointError, match=f"(?s){named}"):
        go(begun, **changes)
    assert contents(begun) == before


def test_an_option_that_another_version_did_not_have_is_named(begun: Path) -> None:
    """What that version did instead is unknown, so such a training does not go on."""
    state = load_checkpoint(begun / "checkpoint.safetensors")
    del state["identity"]["option edge_dim of the method"]
    save_checkpoint(begun / "checkpoint.safetensors", state)
    with pytest.raises(CheckpointError, match=r"has no option edge_dim of the method, this one"):
        go(begun)
    state["identity"] |= {"option edge_dim of the method": None, "option gone": 1}
    save_checkpoint(begun / "checkpoint.safetensors", state)
    with pytest.raises(CheckpointError, match=r"its option gone is 1, this one has none; .*vers"):
        go(begun)


def test_other_names_are_named(begun: Path) -> None:
    with pytest.raises(CheckpointError, match=r"its agents is \['a', 'b', 'c'\].*\['a', 'b'\]"):
        go(begun, agents=[simple_agent("a"), simple_agent("b", 4)], graph=[("a", "b")])


def test_an_encoder_with_other_layers_is_named(begun: Path) -> None:
    other = simple_agent("b", 4)
    deeper = nn.Sequential(nn.Linear(FEATURES, 5), nn.Linear(5, 4))
    options = {"batch_size": 5, "optimizer": paper_optimizer}
    changed = type(other)("b", deeper, other.head, data=other.data, **options)
    with pytest.raises(CheckpointError, match="agent 'b' has other weights"):
        go(begun, agents=[simple_agent("a"), changed, simple_agent("c", 5)])


def test_another_schedule_is_named(tmp_path: Path) -> None:
    def schedule(steps: int, milestone: int) -> Callable[[Any], SequentialLR]:
        return lambda o: SequentialLR(o, [StepLR(o, 3), CosineAnnealingLR(o, steps)], [milestone])

    def with_schedule(steps: int, milestone: int = 2) -> dict[str, Any]:
        return with_b(dimension=4, scheduler=schedule(steps, milestone))

    go(tmp_path, **with_schedule(9))
    before = contents(tmp_path)
    for changed, named in ((with_schedule(8), "_schedulers"), (with_schedule(9, 3), "_milestones")):
        with pytest.raises(CheckpointError, match=f"its scheduler's {named} of agent 'b'"):
            go(tmp_path, epochs=2, **changed)
    assert contents(tmp_path) == before
    again = with_schedule(9)  # the same, and stepped since
    assert go(tmp_path, epochs=2, **again).history.rounds == 8
    assert go(tmp_path, epochs=3, **again).history.rounds == 12


def test_what_may_change_is_recorded_with_its_round(tmp_path: Path) -> None:
    go(tmp_path, epochs=1)
    resumed = go(tmp_path, epochs=3, evaluate_every=2, callbacks=[])
    change = {"round": 4, "setting": "evaluate_every", "before": 1, "after": 2}
    assert resumed.history.changes == [change]
    again = go(tmp_path, epochs=4, evaluate_every=2, oracle=False)
    without = {"round": 12, "setting": "oracle", "before": True, "after": False}
    assert again.history.changes == [change, without]
    assert json.loads((tmp_path / "summary.json").read_text())["changes"] == [change, without]
    again.train(epochs=1, evaluate_every=1, oracle=False)
    back = {"round": 16, "setting": "evaluate_every", "before": 2, "after": 1}
    assert again.history.changes == [change, without, back]


def test_a_change_survives_a_kill_before_the_next_checkpoint(begun: Path) -> None:
    for _ in range(2):
        with pytest.raises(InterruptionError):
            go(begun, epochs=2, evaluate_every=2, callbacks=[Interrupt(5)])
    changes = go(begun, epochs=2, evaluate_every=2).history.changes
    assert [change["round"] for change in changes] == [4]


def test_other_groups_of_the_optimiser_are_named(begun: Path) -> None:
    def halves(parameters: Any, other_rate: float, **options: float) -> SGD:
        first, *rest = parameters
        return SGD([{"params": [first]}, {"params": rest, "lr": other_rate}], **options)

    with pytest.raises(CheckpointError, match=r"lr of agent 'b' is 0\.01, this one's \[0\.1, 0\.2"):
        go(begun, **with_b(dimension=4, optimizer=lambda p: halves(p, 0.2, lr=0.1)))
    same = {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4}  # but in two groups, not in one
    with pytest.raises(CheckpointError, match="agent 'b' has other weights there"):
        go(begun, **with_b(dimension=4, optimizer=lambda p: halves(p, 0.01, **same)))


def test_a_damaged_checkpoint(begun: Path) -> None:
    path = begun / "checkpoint.safetensors"
    content = path.read_bytes()
    for damaged in (
        b"",
        content[:-1],
        content[: len(content) // 2],
        content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
        b"nonsense",
    ):
        path.write_bytes(damaged)
        before = contents(begun)
        with pytest.raises(CheckpointError, match=r"checkpoint\.safetensors"):
            go(begun)
        assert contents(begun) == before
    path.write_bytes(content)
    assert go(begun).history.rounds == 4


@pytest.mark.parametrize("part", ["agents", "nodes"])
def test_a_checkpoint_without_an_agent(begun: Path, part: str) -> None:
    path = begun / "checkpoint.safetensors"
    state = load_checkpoint(path)
    for spoilt in ({}, {**state[part], "b": {}}):
        save_checkpoint(path, state | {part: spoilt})
        with pytest.raises(CheckpointError, match=r"damaged: agent '[ab]' has other weights there"):
            go(begun)


def test_a_network_is_no_checkpoint_of_a_training(begun: Path) -> None:
    (begun / "last.safetensors").replace(begun / "checkpoint.safetensors")
    with pytest.raises(CheckpointError, match=r"of no training: it holds \['agents', "):
        go(begun)


class Anonymous:
    """A user's own method, which Python would show by its address."""

    label = "my own"

    def node(self, context: NodeContext) -> Node:
        return NonCooperative().node(context)


def test_a_method_without_a_repr_can_be_resumed(tmp_path: Path) -> None:
    go(tmp_path, method=Anonymous())
    kept = Anonymous()  # at another address than the first one, which is gone
    assert go(tmp_path, method=kept, epochs=2).history.rounds == 8
    with pytest.raises(CheckpointError, match="'Anonymous'"):
        go(tmp_path, method=NonCooperative())


def test_a_run_is_closed_to_other_users(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir(mode=0o755)
    for out in (tmp_path / "new", open_to_all):
        start("strict", out, epochs=1)
        for name in ("checkpoint", "last", "best"):
            assert stat.S_IMODE((out / f"{name}.safetensors").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    assert stat.S_IMODE(open_to_all.stat().st_mode) == 0o755


def test_a_checkpoint_holds_everything(tmp_path: Path) -> None:
    run = start("distillation", tmp_path, epochs=1)
    state = load_checkpoint(tmp_path / "checkpoint.safetensors")
    assert state["rounds"] == 5
    assert state["metrics"] == run.history.records
    assert sorted(state["agents"]) == sorted(state["nodes"]) == ["ada", "bob", "cyd"]
    ada = state["agents"]["ada"]
    assert torch.equal(ada["encoder"]["1.running_mean"], run.agents["ada"].encoder[1].running_mean)
    assert "momentum_buffer" in ada["optimizer"]["state"][0]
    assert "exp_avg" in state["agents"]["bob"]["optimizer"]["state"][0]
    assert ada["position"] == run.agents["ada"].order.position
    assert sorted(state["nodes"]["bob"]["running"]) == ["ada", "cyd"]
    assert state["nodes"]["bob"]["weights"] == run.nodes["bob"].weights
    assert torch.equal(
        state["nodes"]["bob"]["endpoints"]["ada"]["map"], run.nodes["bob"].endpoints["ada"].map
    )
    assert len(state["ledger"]["rows"]) == len(run.history.ledger)


def test_agents_of_another_birth_are_overwritten_by_the_checkpoint(
    case: str, whole: Whole, tmp_path: Path
) -> None:
    """What new agents hold by chance, e.g. other initial weights, does not survive a resume."""
    with pytest.raises(InterruptionError):
        start(case, tmp_path, callbacks=[Interrupt(8)])
    spoilt = agents()
    for agent in spoilt:
        for parameter in agent.parameters:
            parameter.data.normal_()
    run = train(
        spoilt,
        EDGES,
        METHODS[case](),
        pilots(),
        epochs=4,
        rounds_per_epoch="smallest",
        out=tmp_path,
        resume=True,
        seed=7,
        checkpoint_every=3,
    )
    check_equal(run, tmp_path, whole)
