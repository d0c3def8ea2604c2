"""Newcomers are understood by pilots alone, and nobody else notices; leavers are missed by few."""

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

import sheafed
from sheafed.agents.agent import Agent
from sheafed.checkpointing.checkpoint import load_checkpoint
from sheafed.checkpointing.state_tree import flatten
from sheafed.errors import (
    DisconnectedWarning,
    GraphError,
    HandshakeError,
    InputError,
    UnknownAgentError,
)
from sheafed.methods import (
    SWBN,
    ComFed,
    ConsensusDistillation,
    Distillation,
    IdentityMaps,
    MapPolicy,
    Method,
    NonCooperative,
    NoWhitening,
    SheafFRL,
)
from sheafed.methods.endpoints import PlainEndpoint, TransportEndpoint
from sheafed.metrics import Metric
from sheafed.pilots.pilot_set import PilotSet
from sheafed.training import Callback, Network, summarise, train
from tests.helpers import federations
from tests.helpers.federations import (
    FEATURES,
    PILOTS,
    agents,
    pilots,
    same,
    samples,
    seeded,
    simple_agent,
    splits,
    start,
    weights,
)

# Networks are compared with networks, not with how well heads could read.
pytestmark = pytest.mark.usefixtures("short_reading_heads")

LINE = [("a", "b"), ("b", "c")]
MIXED, EQUAL = (5, 4, 3), (4, 4, 4)

METHODS: dict[str, Method] = {
    "standard": SheafFRL(pilots_per_round=8, distillation=Distillation(confidence=0.3)),
    "strict": SheafFRL(
        pilots_per_round=8, privacy="strict", distillation=Distillation(confidence=0.3)
    ),
    "all pilots, bytes": SheafFRL(
        pilots_per_round=8, maps=MapPolicy(source="all"), quantisation="int8"
    ),
    "unwhitened": SheafFRL(pilots_per_round=8, whitening=NoWhitening(), penalty=0),
    "stochastic": SheafFRL(pilots_per_round=8, privacy="strict", whitening=SWBN()),
    "rarely": SheafFRL(pilots_per_round=8, exchange_every=3),
    "consensus": ConsensusDistillation(confidence=0.4),
    "alone": NonCooperative(),
    "alone, private": NonCooperative(whitening="private"),
    "alone, strict": NonCooperative(privacy="strict"),
}
SIZES = {"mixed": (MIXED, 6), "equal": (EQUAL, 4), "smaller": (EQUAL, 3), "larger": (EQUAL, 5)}
CASES = [
    *((case, "mixed") for case in METHODS),
    *((case, sizes) for case in ("standard", "strict") for sizes in ("equal", "smaller", "larger")),
]
KINDS = ["standard", "strict", "rarely", "consensus", "alone, private"]
"""One of each kind of messages and state, for what whitening and maps have no part in."""


def team(dimensions: tuple[int, ...] = MIXED) -> list[Agent]:
    return [
        simple_agent(n, d, 3 * k) for k, (n, d) in enumerate(zip("abc", dimensions, strict=True))
    ]


def trained(
    method: Method | None = None, dimensions: tuple[int, ...] = MIXED, **options: Any
) -> Network:
    options = {"epochs": 2, "seed": 5, **options}
    return train(team(dimensions), LINE, method or METHODS["standard"], pilots(), **options)


def newcomer(dimension: int = 6, name: str = "n", **options: Any) -> Agent:
    return simple_agent(name, dimension, 50, **options)


def inside(run: Network, names: str = "abc") -> dict[str, Any]:
    """Everything of some agents that may change, without their edges to others, by name."""
    found = {}
    for name in names:
        node = run.nodes[name]
        state = node.state()
        for edges in ("endpoints", "running", "weights"):
            state[edges] = {j: v for j, v in state.get(edges, {}).items() if j in names}
        endpoints = {j: (end.map, end.fitted) for j, end in node.endpoints.items() if j in names}
        whitening = dict(node.whitening.state_dict())
        tensors, rest = flatten([node.agent.state(), state, endpoints, whitening])
        found |= {f"{name} {path}": value.clone() for path, value in tensors.items()}
        found[f"{name} rest"] = str(rest)
    return found


def unchanged(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return before.keys() == after.keys() and all(
        torch.equal(v, after[k]) if isinstance(v, torch.Tensor) else v == after[k]
        for k, v in before.items()
    )


def carried(run: Network, sender: str, receiver: str) -> np.ndarray:
    """The linear map from the sender's white space to the receiver's, as the agents do it."""
    basis = torch.eye(run.nodes[sender].agent.dimension)
    sent = run.nodes[sender].endpoints[receiver].outgoing(basis)
    return run.nodes[receiver].endpoints[sender].incoming(sent).numpy()


def procrustes(run: Network, sender: str, receiver: str) -> np.ndarray:
    """The least-squares isometry between the white latents of all pilots, by NumPy."""
    a, b = (run.nodes[n].white_pilots().double().numpy() for n in (sender, receiver))
    u, _, vt = np.linalg.svd(a.T @ b, full_matrices=False)
    return u @ vt


# Joining without training


@pytest.mark.parametrize(("case", "sizes"), CASES)
def test_a_newcomer_is_mapped_on_all_pilots_and_changes_no_other_agent(
    case: str, sizes: str
) -> None:
    dimensions, size = SIZES[sizes]
    run = trained(METHODS[case], dimensions)
    before, rounds, known = inside(run), run.history.rounds, run.history.evaluation
    sent = len(run.history.ledger)
    run.join(newcomer(size), ["c", "a"])
    assert unchanged(before, inside(run))
    for j in "ac":
        for pair in (("n", j), (j, "n")):
            np.testing.assert_allclose(carried(run, *pair), procrustes(run, *pair), atol=2e-4)
    messages = [(r.kind, r.round, r.sender, r.receiver) for r in run.history.ledger.rows(sent)]
    pairs = [("n", "a"), ("n", "c"), ("a", "n"), ("c", "n")]
    expected = [
        (kind, round, *p) for kind, round in (("hello", 0), ("alignment", rounds)) for p in pairs
    ]
    assert sorted(messages) == sorted(expected)
    width = {p: run.nodes[p[1]].endpoints[p[0]].width for p in pairs}
    for row in run.history.ledger.rows(sent):
        if row.kind == "alignment":
            assert row.payload_bytes == 4 * PILOTS * width[row.sender, row.receiver]
    assert list(run.nodes) == list(run.metadata) == ["a", "b", "c", "n"]
    assert run.history.rounds == rounds
    # What was measured of the others is what it was, and the newcomer is part of everything.
    assert {n: v for n, v in run.history.evaluation.private.items() if n != "n"} == known.private
    for pair, value in known.communication.items():
        assert run.history.evaluation.communication[pair] == value
    assert run.history.evaluation.without("n") == known
    assert set(run.history.evaluation.communication) - set(known.communication) == set(pairs)
    assert run.history.last["joined"] == "n"
    summary = summarise(run)
    assert summary["agents"]["n"]["neighbours"] == ["a", "c"]
    assert summary["agents"]["n"]["private_accuracy"] == run.history.evaluation.private["n"]
    assert len(summary["edges"]) == 8
    assert len(run.sheaf.edges) == 4
    z = torch.randn(5, size, generator=torch.Generator().manual_seed(1))
    np.testing.assert_allclose(
        run.sheaf.transport(z, "n", "a"), z.numpy() @ carried(run, "n", "a"), atol=1e-5
    )


def test_a_newcomer_is_understood() -> None:
    """Trained alone before, it is read about as well as a perfect map would have it."""
    run = train(
        team()[:2], LINE[:1], SheafFRL(pilots_per_round=16), pilots(), epochs=12, evaluate_every=12
    )
    agent = newcomer(5)
    train([agent], [], NonCooperative(), pilots(), epochs=12, evaluate_every=12)
    run.join(agent, ["b"])
    assert (
        run.history.evaluation.communication["n", "b"]
        > run.history.evaluation.oracle["n", "b"] - 0.15
    )
    assert run.history.evaluation.communication["n", "b"] > 0.6


@pytest.mark.parametrize(
    ("sizes", "kind"), [("equal", TransportEndpoint), ("larger", PlainEndpoint)]
)
def test_the_protocol_of_new_edges(sizes: str, kind: type) -> None:
    dimensions, size = SIZES[sizes]
    run = trained(METHODS["standard"], dimensions)
    run.join(newcomer(size), ["b"])
    assert type(run.nodes["a"].endpoints["b"]) is TransportEndpoint
    assert type(run.nodes["b"].endpoints["n"]) is type(run.nodes["n"].endpoints["b"]) is kind
    # From now on all say what the network is, so the next newcomer agrees with everybody.
    assert {node.context.homogeneous for node in run.nodes.values()} == {kind is TransportEndpoint}
    run.join(newcomer(4, "o"), ["a", "n"])
    assert type(run.nodes["o"].endpoints["a"]) is kind


@pytest.mark.parametrize("case", ["strict", "alone, strict"])
def test_strict_ends_stay_secret(case: str) -> None:
    run = trained(METHODS[case], EQUAL)
    run.join(newcomer(4), ["a", "c"])
    white = run.nodes["n"].white_pilots()
    left = [run.nodes["n"].endpoints[j].outgoing(white) for j in "ac"]
    assert not any(torch.allclose(one, white, atol=0.1) for one in left)
    assert not torch.allclose(*left, atol=0.1)


@pytest.mark.parametrize("case", ["standard", "strict"])
def test_running_cross_covariances_go_on_from_all_pilots(case: str) -> None:
    run = trained(METHODS[case])
    run.join(newcomer(), ["b"])
    for one, other in (("n", "b"), ("b", "n")):
        node, peer = run.nodes[one], run.nodes[other]
        sent = peer.endpoints[one].outgoing(peer.white_pilots())
        cross = node.endpoints[other].cross(node.white_pilots(), sent) / PILOTS
        assert torch.allclose(node.map_updates.running[other] * (1 - 0.9), cross, atol=1e-5)


def test_identity_maps_stay() -> None:
    run = trained(SheafFRL(maps=IdentityMaps()))
    run.join(newcomer(), ["b"])
    assert torch.equal(run.nodes["b"].endpoints["n"].map, torch.eye(6, 4))


# Training on


@pytest.mark.parametrize(
    ("case", "sizes"), [*((case, "mixed") for case in KINDS), ("strict", "equal")]
)
def test_the_newcomer_trains_and_the_others_do_not(case: str, sizes: str) -> None:
    dimensions, size = SIZES[sizes]
    run = trained(METHODS[case], dimensions)
    before, known, rounds = inside(run), run.history.evaluation, run.history.rounds
    agent = newcomer(size)
    born = {k: v.clone() for k, v in agent.encoder.state_dict().items()}
    run.join(agent, ["a", "c"], epochs=2)
    assert unchanged(before, inside(run))
    assert run.history.evaluation.without("n") == known
    assert not same(born, dict(agent.encoder.state_dict()))
    assert run.history.rounds - rounds == agent.steps == 2 * run.history.schedule.rounds_per_epoch
    assert run.history.schedule.epochs == run.history.epoch == 4
    assert [record["epoch"] for record in run.history.records[-2:]] == [2, 4]
    for j in "ac":
        np.testing.assert_allclose(carried(run, "n", j), procrustes(run, "n", j), atol=2e-4)
    assert run.history.last["loss"] > 0
    assert "loss" not in run.history.records[-2]


def test_the_newcomer_feels_its_neighbours() -> None:
    """With a penalty and distillation its weights become others than alone."""
    found = []
    for method in (METHODS["standard"], SheafFRL(pilots_per_round=8, penalty=0), METHODS["alone"]):
        run = trained(method)
        agent = newcomer()
        run.join(agent, ["b"], epochs=2)
        found.append(dict(agent.encoder.state_dict()))
    coupled, free, alone = found
    assert not same(coupled, alone)
    assert same(free, alone)


@pytest.mark.parametrize("case", ["standard", "strict", "consensus", "alone", "alone, strict"])
def test_all_train_on_as_a_resumed_run_does(case: str, tmp_path: Path) -> None:
    here = trained(METHODS[case])
    here.join(newcomer(), ["a", "b"], epochs=3, others="training")
    kept = trained(METHODS[case], out=tmp_path)
    kept.join(newcomer(), ["a", "b"])
    edges = [*LINE, ("n", "a"), ("n", "b")]
    options: dict[str, Any] = {"epochs": 5, "seed": 5, "out": tmp_path, "resume": True}
    options |= {"rounds_per_epoch": kept.history.schedule.rounds_per_epoch}
    gone_on = train([*team(), newcomer()], edges, METHODS[case], pilots(), **options)
    assert same(weights(here), weights(gone_on))
    assert unchanged(inside(here, "abcn"), inside(gone_on, "abcn"))
    assert (
        here.history.last["communication_accuracy"]
        == gone_on.history.last["communication_accuracy"]
    )
    assert [r.get("joined") for r in gone_on.history.records[:3]] == [None, None, "n"]


@pytest.mark.parametrize(
    "case", ["standard", "strict", "rarely", "consensus", "alone", "alone, strict"]
)
def test_the_others_train_on_undisturbed(case: str, tmp_path: Path) -> None:
    """Bit for bit as if nobody had come, while the newcomer learns to be read by them."""
    trained(METHODS[case], out=tmp_path)
    options: dict[str, Any] = {"epochs": 4, "seed": 5, "out": tmp_path, "resume": True}
    without = train(team(), LINE, METHODS[case], pilots(), **options)
    run = trained(METHODS[case])
    agent = newcomer()
    run.join(agent, ["a", "c"], epochs=2, others="undisturbed")
    assert run.history.rounds == without.history.rounds
    assert same({k: v for k, v in weights(run).items() if not k.startswith("n")}, weights(without))
    assert unchanged(inside(without), inside(run))
    assert agent.steps == 2 * run.history.schedule.rounds_per_epoch
    assert run.history.evaluation.without("n") == without.history.evaluation
    for j in "ac":  # both ends of the new edges have followed
        there, back = carried(run, "n", j), carried(run, j, "n")
        assert min(np.linalg.norm(there), np.linalg.norm(back)) > 1


def test_an_epoch_of_one_round_is_aligned_at_its_end() -> None:
    """Alignments at joining and after one round must not be taken for the same."""
    run = trained(METHODS["alone"], rounds_per_epoch=1)
    run.join(newcomer(), ["a", "c"], epochs=1, others="training")
    for j in "ac":
        np.testing.assert_allclose(carried(run, "n", j), procrustes(run, "n", j), atol=2e-4)


def test_mixed_protocols_train_on_together() -> None:
    run = trained(METHODS["standard"], EQUAL)
    before = weights(run)
    run.join(newcomer(6), ["a", "c"], epochs=1, others="training")
    assert not any(torch.equal(v, weights(run)[k]) for k, v in before.items())
    assert len(run.sheaf.edges) == 4


# Modalities


def test_a_newcomer_of_another_modality() -> None:
    seen = pilots().inputs
    ids = [str(k) for k in range(PILOTS)]
    views = PilotSet({"a": seen, "b": 2 * seen, "c": seen}, ids)
    run = train(team(), LINE, SheafFRL(pilots_per_round=8), views, epochs=1)

    def blind() -> Agent:
        encoder = seeded(9, lambda: torch.nn.Linear(2, 2))
        head = seeded(8, lambda: torch.nn.Linear(2, 3))
        data = {k: (x[:, :2], y) for k, (x, y) in splits(20, 4).items()}
        return Agent("n", encoder, head, data=data, batch_size=5)

    with pytest.raises(UnknownAgentError, match="no pilots for agent 'n'"):
        run.join(blind(), ["a"])
    with pytest.raises(InputError, match=r"have ids, those of agent 'n' have none"):
        run.join(blind(), ["a"], pilots=seen[:, :2].numpy())
    with pytest.raises(InputError, match=r"lacks 1 of the 24 pilots, '0' among them"):
        run.join(blind(), ["a"], pilots=PilotSet({"n": seen[1:, :2]}, ids[1:]))
    run.join(blind(), ["a"], pilots=PilotSet({"n": seen[:, :2].flip(0)}, ids[::-1]))
    assert torch.equal(run.pilots.of("n"), seen[:, :2])  # paired by id, not by row
    np.testing.assert_allclose(carried(run, "n", "a"), procrustes(run, "n", "a"), atol=2e-4)
    assert set(run.pilots.inputs) == set("abcn")
    assert not any("n" in pair for pair in run.history.evaluation.oracle)


# What cannot join


@pytest.mark.parametrize("dimensions", [MIXED, EQUAL])
def test_a_refused_newcomer_leaves_no_trace(dimensions: tuple[int, ...]) -> None:
    run = trained(METHODS["standard"], dimensions)
    run.agents["a"].classes = ("x", "y", "z")
    other = Metric("accuracy", lambda outputs, targets: 0.0, greater_is_better=False)
    before, records = inside(run), len(run.history.records)
    wide = seeded(1, lambda: torch.nn.Linear(6, 7))
    attempts: list[tuple[type[Exception], str, Agent, Any, dict[str, Any]]] = [
        (InputError, "'b' already", newcomer(name="b"), ["a"], {}),
        (UnknownAgentError, r"\['x'\].*'a', 'b', 'c'", newcomer(), ["a", "x"], {}),
        (UnknownAgentError, r"\['n'\]", newcomer(), ["n"], {}),
        (GraphError, "at least one neighbour", newcomer(), [], {}),
        (GraphError, "at least one neighbour", newcomer(), "ab", {}),
        (HandshakeError, "pilot set", newcomer(), ["a"], {"pilots": samples(PILOTS, 3)[0]}),
        (HandshakeError, "7 and 3 classes", newcomer(head=wide), ["a"], {}),
        (HandshakeError, "'z' against 'y'", newcomer(classes=("x", "z", "y")), ["a"], {}),
        (InputError, "a greater 'accuracy' is better", newcomer(metric=other), ["a"], {}),
        (InputError, "epochs.*-1", newcomer(), ["a"], {"epochs": -1}),
        (
            InputError,
            "resting, undisturbed, training, got 'asleep'",
            newcomer(),
            ["a"],
            {"others": "asleep"},
        ),
    ]
    for error, words, agent, neighbours, options in attempts:
        with pytest.raises(error, match=words):
            run.join(agent, neighbours, **options)
    assert unchanged(before, inside(run))
    assert len(run.history.records) == records
    assert sorted(run.graph) == sorted(run.nodes) == list("abc")
    assert all("n" not in node.neighbours for node in run.nodes.values())
    run.join(newcomer(), ["a"])
    assert run.nodes["a"].context.homogeneous is False


@pytest.mark.parametrize("others", ["undisturbed", "training"])
def test_agents_with_other_data_than_in_the_run_do_not_train_beside_a_newcomer(
    others: Any, tmp_path: Path
) -> None:
    trained(out=tmp_path)
    served = [Agent(a.name, a.encoder, a.head, data=torch.zeros(1, FEATURES)) for a in team()]
    run = sheafed.load(tmp_path, served, pilots=pilots())
    before = inside(run)
    with pytest.raises(InputError, match="cannot train on as the run would have"):
        run.join(newcomer(), ["a"], epochs=1, others=others)
    run.join(newcomer(), ["a"], epochs=1)
    assert unchanged(before, inside(run))


def test_a_newcomer_whose_training_fails_can_leave_and_the_others_train_on() -> None:
    run = trained()
    before, agent = inside(run), newcomer(objective=fails)
    with pytest.raises(ZeroDivisionError):
        run.join(agent, ["a"], epochs=1)
    assert unchanged(before, inside(run))
    assert run.leave("n") is agent
    run.join(newcomer(), ["a"])
    run.train(epochs=1)


def fails(agent: Agent, batch: Any) -> torch.Tensor:
    raise ZeroDivisionError


def test_when_agents_cannot_come_and_go() -> None:
    run = trained(ComFed(projection=3))
    with pytest.raises(InputError, match="cannot let agents join or leave"):
        run.join(newcomer(), ["a"])
    with pytest.raises(InputError, match="cannot let agents join or leave"):
        run.leave("a")
    run = trained()
    run.nodes.pop("b")
    with pytest.raises(InputError, match=r"\['b'\] are in other processes"):
        run.join(newcomer(), ["a"])
    with pytest.raises(InputError, match=r"\['b'\] are in other processes"):
        run.leave("a")

    class Impatient(Callback):
        def on_evaluation(self, run: Network, record: Any) -> bool:
            if run.history.epoch == 1:
                with pytest.raises(InputError, match="round 4 of 8"):
                    run.join(newcomer(), ["a"])
            return False

    trained(callbacks=[Impatient()])


# Leaving


@pytest.mark.parametrize("case", KINDS)
def test_joining_and_leaving_again_leaves_no_trace(case: str) -> None:
    run = trained(METHODS[case])
    before, known, summary = inside(run), run.history.evaluation, summarise(run)
    agent = newcomer()
    run.join(agent, ["a", "b"], epochs=1)
    assert run.leave("n") is agent
    assert unchanged(before, inside(run))
    assert run.history.evaluation == known
    assert {k: summarise(run)["agents"][k] for k in "abc"} == summary["agents"]
    assert list(run.nodes) == list(run.metadata) == list("abc")
    assert nx.utils.graphs_equal(run.graph, nx.Graph(LINE))
    assert {len(node.endpoints) for node in run.nodes.values()} == {1, 2}
    assert all(set(n.peers) == set(n.endpoints) == set(n.neighbours) for n in run.nodes.values())


def test_the_graph_that_was_given_stays() -> None:
    graph = nx.Graph(LINE)
    run = train(team(), graph, METHODS["alone"], pilots(), epochs=1)
    run.join(newcomer(), ["a"])
    run.leave("c")
    assert sorted(graph) == list("abc")


def test_agents_left_without_neighbours_are_named() -> None:
    run = trained()
    run.join(newcomer(), ["a"])
    with pytest.warns(
        DisconnectedWarning, match=r"\[\['c'\], \['a', 'n'\]\]; \['c'\] have no"
    ) as w:
        run.leave("b")
    assert w[0].filename == __file__
    assert run.nodes["c"].neighbours == ()
    assert sorted(run.history.evaluation.private) == ["a", "c", "n"]
    assert summarise(run)["agents"]["c"]["neighbours"] == []
    run.join(newcomer(4, "o"), ["c", "n"], epochs=1)
    assert len(run.sheaf.edges) == 3
    with pytest.raises(UnknownAgentError, match="unknown agent 'b'"):
        run.leave("b")
    run.leave("c")
    run.leave("o")
    run.leave("n")
    with pytest.raises(InputError, match="'a' is the last agent"):
        run.leave("a")


# Files


@pytest.mark.parametrize("case", ["distillation", "strict", "alone"])
def test_the_directory_of_a_run_follows(case: str, tmp_path: Path) -> None:
    run = start(case, tmp_path)
    run.join(newcomer(), ["ada"], epochs=1)
    saved = load_checkpoint(tmp_path / "last.safetensors")
    assert sorted(saved["agents"]) == ["ada", "bob", "cyd", "n"]
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == len(run.history.records) == 6
    run.leave("cyd")
    edges = [("ada", "bob"), ("ada", "n")]
    options: dict[str, Any] = {"epochs": 5, "seed": 7, "out": tmp_path, "resume": True}
    options |= {"rounds_per_epoch": run.history.schedule.rounds_per_epoch}
    again = train(
        [*agents()[:2], newcomer()], edges, federations.METHODS[case](), pilots(), **options
    )
    assert same(weights(again), weights(run))
    assert again.history.evaluation == run.history.evaluation
    assert again.history.ledger.bytes_sent() == run.history.ledger.bytes_sent()


def test_what_could_not_be_resumed_is_refused(tmp_path: Path) -> None:
    run = trained(METHODS["standard"], EQUAL, out=tmp_path / "one")
    with pytest.raises(InputError, match="one latent size, and would have several"):
        run.join(newcomer(5), ["a"])
    run.join(newcomer(4), ["a"])
    run = trained(METHODS["standard"], (5, 4, 4), out=tmp_path / "several")
    run.join(newcomer(4), ["b"])
    with pytest.raises(InputError, match="several latent sizes, and would have one"):
        run.leave("a")
    for case in ("strict", "alone", "alone, strict"):  # which have one protocol
        run = trained(METHODS[case], EQUAL, out=tmp_path / case)
        run.join(newcomer(5), ["a"])
