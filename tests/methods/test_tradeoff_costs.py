"""tab:tradeoff, to the byte and to the decomposition."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from sheafed import Distillation, MapPolicy, SheafFRL, graphs
from sheafed.graphs import incoming, orient, outgoing
from sheafed.methods import IdentityMaps
from sheafed.transport.ledger import Ledger
from tests.helpers.rounds import handshake, one_round
from tests.helpers.small_federations import (
    CLASSES,
    CountingSolver,
    MessageRecorder,
    agent,
    nodes_of,
    pilots,
)

FLOAT = 4
ROUNDS = 4
K, M = 24, 40


class Network:
    """A random connected graph with random latent dimensions, trained for a few rounds."""

    def __init__(self, seed: int, *, equal: bool, method: SheafFRL, headless: bool = False) -> None:
        random = np.random.default_rng(seed)
        names = [f"n{k}" for k in range(int(random.integers(3, 7)))]
        self.graph = graphs.erdos_renyi(names, 0.4, seed)
        sizes = random.integers(2, 12, len(names)).tolist()
        if equal:
            sizes = [sizes[0]] * len(names)
        elif len(set(sizes)) == 1:
            sizes[0] += 1
        self.dims = dict(zip(names, sizes, strict=True))
        edges = orient(self.graph, self.dims)
        self.below = {name: incoming(edges, name) for name in names}  # N(i)^-
        self.above = {name: outgoing(edges, name) for name in names}  # N(i)^+
        self.solvers = {name: CountingSolver() for name in names}
        self.headless = {names[0]} if headless else set()
        options = {"head": None, "objective": lambda a, b: a.encode(b.inputs).square().mean()}
        nodes = nodes_of(
            [
                agent(name, d, seed, **(options if name in self.headless else {}))
                for name, d in self.dims.items()
            ],
            self.graph,
            {name: replace(method, solver=solver) for name, solver in self.solvers.items()},
            pilots(M),
            rounds_per_epoch=ROUNDS,
        )
        transport = MessageRecorder(nodes).transport
        handshake(nodes, transport)
        self.ledger: Ledger = transport.ledger
        self.solved: dict[str, list[list[tuple[int, int]]]] = {name: [] for name in names}
        for round in range(ROUNDS):
            before = {name: len(solver.shapes) for name, solver in self.solvers.items()}
            one_round(nodes, transport, round)
            for name, solver in self.solvers.items():
                self.solved[name].append(solver.shapes[before[name] :])

    def degree(self, name: str) -> int:
        return len(self.below[name]) + len(self.above[name])

    def payload(self, name: str, round: int) -> int:
        return sum(
            row.payload_bytes
            for row in self.ledger.rows()
            if (row.kind, row.sender, row.round) == ("round", name, round)
        )

    def standard_floats(self, name: str) -> int:
        """|N(i)| d_i K"""
        return self.degree(name) * self.dims[name] * K

    def strict_floats(self, name: str, rows: int = K) -> int:
        """|N(i)^-| d_i K + K sum over N(i)^+ of d_j"""
        above = sum(self.dims[j] for j in self.above[name])
        return len(self.below[name]) * self.dims[name] * rows + rows * above


def cost(shapes: list[tuple[int, int]]) -> int:
    return sum(rows * columns**2 for rows, columns in shapes)


@pytest.mark.parametrize("seed", range(6))
def test_heterogeneous_standard(seed: int) -> None:
    net = Network(seed, equal=False, method=SheafFRL(pilots_per_round=K))
    for i, d in net.dims.items():
        below, above = net.below[i], net.above[i]
        expected = d * sum(net.dims[j] ** 2 for j in below) + d**2 * sum(net.dims[j] for j in above)
        shapes = [(d, net.dims[j]) for j in below] + [(net.dims[j], d) for j in above]
        for round in range(ROUNDS):
            assert net.payload(i, round) == FLOAT * net.standard_floats(i)
            assert Counter(net.solved[i][round]) == Counter(shapes)
            assert cost(net.solved[i][round]) == expected


@pytest.mark.parametrize("seed", range(6))
def test_heterogeneous_strict(seed: int) -> None:
    net = Network(seed, equal=False, method=SheafFRL(pilots_per_round=K, privacy="strict"))
    for i, d in net.dims.items():
        below, above = net.below[i], net.above[i]
        expected = len(below) * d**3 + d**2 * sum(net.dims[j] for j in above)
        shapes = [(d, d)] * len(below) + [(net.dims[j], d) for j in above]
        for round in range(ROUNDS):
            assert net.payload(i, round) == FLOAT * net.strict_floats(i)
        # Strict ends update in turn, so each does so once in a sweep of two rounds.
        for sweep in range(0, ROUNDS, 2):
            solved = net.solved[i][sweep] + net.solved[i][sweep + 1]
            assert Counter(solved) == Counter(shapes)
            assert cost(solved) == expected


@pytest.mark.parametrize("seed", range(4))
def test_homogeneous_standard(seed: int) -> None:
    net = Network(seed, equal=True, method=SheafFRL(pilots_per_round=K))
    for i, d in net.dims.items():
        for round in range(ROUNDS):
            assert net.payload(i, round) == FLOAT * net.degree(i) * d * K
            assert net.solved[i][round] == [(d, d)] * len(net.above[i])
            assert cost(net.solved[i][round]) == len(net.above[i]) * d**3


@pytest.mark.parametrize("seed", range(4))
def test_homogeneous_strict(seed: int) -> None:
    net = Network(seed, equal=True, method=SheafFRL(pilots_per_round=K, privacy="strict"))
    for i, d in net.dims.items():
        for round in range(ROUNDS):
            assert net.payload(i, round) == FLOAT * net.degree(i) * d * K
        for sweep in range(0, ROUNDS, 2):
            solved = net.solved[i][sweep] + net.solved[i][sweep + 1]
            assert solved == [(d, d)] * net.degree(i)
            assert cost(solved) == net.degree(i) * d**3


def test_the_strict_price_is_the_one_in_red() -> None:
    """Strictly more bytes and flops wherever an agent has a strictly larger or smaller peer."""
    standard = Network(1, equal=False, method=SheafFRL(pilots_per_round=K))
    strict = Network(1, equal=False, method=SheafFRL(pilots_per_round=K, privacy="strict"))
    assert strict.ledger.payload_bytes() > standard.ledger.payload_bytes()
    for i, d in strict.dims.items():
        extra = sum(strict.dims[j] - d for j in strict.above[i])
        assert strict.payload(i, 0) - standard.payload(i, 0) == FLOAT * K * extra


@pytest.mark.parametrize("privacy", ["standard", "strict"])
@pytest.mark.parametrize("equal", [False, True])
def test_probabilities_cost_one_float_per_pilot_and_class(privacy: str, equal: bool) -> None:
    method = SheafFRL(pilots_per_round=K, privacy=privacy, distillation=Distillation())
    net = Network(2, equal=equal, method=method, headless=True)
    for i in net.dims:
        floats = net.standard_floats(i) if privacy == "standard" else net.strict_floats(i)
        if i not in net.headless:
            floats += net.degree(i) * K * CLASSES
        for round in range(ROUNDS):
            assert net.payload(i, round) == FLOAT * floats


@pytest.mark.parametrize("privacy", ["standard", "strict"])
@pytest.mark.parametrize("every", [1, 3, "epoch"])
def test_the_whole_pilot_set_is_paid_for_at_fits_only(privacy: str, every: int | str) -> None:
    policy = MapPolicy(every=every, source="all")
    net = Network(3, equal=False, method=SheafFRL(pilots_per_round=K, privacy=privacy, maps=policy))
    for i, d in net.dims.items():
        for round in range(ROUNDS):
            fits = policy.fit_number(round, ROUNDS) is not None
            if privacy == "standard":
                floats = net.degree(i) * d * (K + M * fits)
            else:
                floats = net.strict_floats(i) + fits * net.strict_floats(i, rows=M)
            assert net.payload(i, round) == FLOAT * floats
            assert fits or not net.solved[i][round]


def test_rare_fits_solve_rarely() -> None:
    net = Network(4, equal=False, method=SheafFRL(pilots_per_round=K, maps=MapPolicy(every=3)))
    for i in net.dims:
        assert [len(s) for s in net.solved[i]] == [net.degree(i), 0, net.degree(i), 0]


def test_identity_maps_cost_no_decomposition() -> None:
    net = Network(5, equal=True, method=SheafFRL(pilots_per_round=K, maps=IdentityMaps()))
    for i in net.dims:
        assert net.solved[i] == [[]] * ROUNDS
        assert net.payload(i, 0) == FLOAT * net.standard_floats(i)


def test_handshakes_have_no_payload_and_rounds_have_small_headers() -> None:
    net = Network(
        0,
        equal=False,
        method=SheafFRL(pilots_per_round=K, privacy="strict", distillation=Distillation()),
    )
    rows = list(net.ledger.rows())
    hellos = [row for row in rows if row.kind == "hello"]
    assert len(hellos) == 2 * net.graph.number_of_edges()
    assert {row.payload_bytes for row in hellos} == {0}
    assert {row.kind for row in rows} == {"hello", "round"}
    assert max(row.header_bytes for row in rows if row.kind == "round") < 400
    total = sum(row.payload_bytes for row in rows)
    assert net.ledger.payload_bytes() == total == net.ledger.payload_bytes("round")
