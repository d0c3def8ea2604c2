"""The weight of the gluing penalty: by hand, and edge by edge in real runs."""

import math
from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

from sheafed import Agent, MapPolicy, SheafFRL
from sheafed.errors import InputError
from sheafed.evaluation import evaluate_locally
from sheafed.methods import SWBN, ZCA, Constant, DualAscent, NoWhitening, WarmUp
from sheafed.methods.endpoints import PlainEndpoint
from sheafed.methods.sheaf_frl.penalty_weight import as_penalty
from sheafed.pilots.policies import AllPilots
from tests.helpers.matrices import misalignment
from tests.helpers.networks import (
    EDGES,
    EQUAL,
    MIXED,
    Network,
    curved_agent,
    curved_agents,
    network,
    normal,
    orthonormal,
    plain_sgd,
)

K = 16


# By hand


def test_constant_stays() -> None:
    weight = Constant(0.3)
    assert weight.start() == 0.3
    assert [weight.update(0.3, t, r) for t, r in [(0, 0.9), (5, 0.0), (99, 2.0)]] == [0.3] * 3
    assert weight.active
    assert not Constant(0.0).active


def test_warm_up_rises_in_a_line_and_stays() -> None:
    rule = WarmUp(0.8, rounds=4)
    weight, weights = rule.start(), []
    for t in range(7):
        weights.append(weight)
        weight = rule.update(weight, t, 0.5)
    assert weights == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 0.8, 0.8])
    assert rule.active
    assert not WarmUp(0.0, 4).active


def test_dual_ascent_by_hand() -> None:
    rule = DualAscent(tolerance=0.2, step=0.5, initial=0.1, largest=0.4)
    weight, weights = rule.start(), []
    for r in [0.4, 0.6, 0.9, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0, 0.3]:
        weights.append(weight)
        weight = rule.update(weight, 0, r)
    weights.append(weight)
    #   .1 +.1 -> .2 +.2 -> .4 (+.35, at most .4) -.1 -> .3 -.05 -> .25 -.1 ... 0 (never below) +.05
    assert weights == pytest.approx([0.1, 0.2, 0.4, 0.4, 0.3, 0.25, 0.15, 0.05, 0, 0, 0.05])
    assert rule.active
    assert not DualAscent(0.2, largest=0.0).active


def test_numbers_become_constant_weights() -> None:
    assert as_penalty(0.5) == Constant(0.5)
    assert as_penalty(2) == Constant(2.0)
    rule = DualAscent(0.1)
    assert as_penalty(rule) is rule


@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf])
def test_refusals(bad: float) -> None:
    with pytest.raises(InputError, match=f"value must be .*, got {bad}"):
        Constant(bad)
    with pytest.raises(InputError, match="value"):
        WarmUp(bad, 3)
    for name in ("tolerance", "step", "initial", "largest"):
        with pytest.raises(InputError, match=name):
            DualAscent(**{"tolerance": 0.1, name: bad})
    with pytest.raises(InputError, match="penalty"):
        SheafFRL(penalty=bad)


def test_refusals_of_counts_and_orders() -> None:
    for rounds in (0, -3):
        with pytest.raises(InputError, match=f"rounds must be at least 1, got {rounds}"):
            WarmUp(0.1, rounds)
    with pytest.raises(InputError, match="initial"):
        DualAscent(0.1, initial=0.5, largest=0.4)


# In runs


@dataclass
class Recorder:
    """A constant weight that remembers what it is told."""

    value: float
    calls: list[tuple[int, float]] = field(default_factory=list)

    @property
    def active(self) -> bool:
        return True

    def start(self) -> float:
        return self.value

    def update(self, weight: float, round: int, misalignment: float) -> float:
        self.calls.append((round, misalignment))
        return self.value


@pytest.mark.parametrize(
    ("whitening", "dims", "privacy"),
    [
        (ZCA(), MIXED, "standard"),
        (ZCA(), MIXED, "strict"),
        (ZCA(), EQUAL, "standard"),
        (ZCA(), EQUAL, "strict"),
        (NoWhitening(), MIXED, "strict"),
        (SWBN(), MIXED, "standard"),
    ],
)
def test_the_misalignment_that_decides_is_that_of_linalg(privacy, dims, whitening) -> None:
    """At one agent at a time: what the rule is told equals linalg.misalignment of the messages."""
    for name in dims:
        recorder = Recorder(0.0)
        method = SheafFRL(
            recorder, privacy, MapPolicy(every=5), pilots_per_round=K, whitening=whitening
        )  # round 1 has no fit
        net = network(curved_agents(dims), method)
        net.round(0)
        recorder.calls.clear()
        net.node_round(1, name)
        told = list(recorder.calls)
        node, expected = net.nodes[name], []
        white = {n: other.whitening.train()(latents(net, n, 1)) for n, other in again(net, 1)}
        for j in node.neighbours:
            edge = node.edge(j)
            endpoint = node.endpoints[j]
            v = endpoint.map
            if not isinstance(endpoint, PlainEndpoint):
                head, tail = (net.nodes[a].endpoints[b].map for a, b in (edge, edge[::-1]))
                v = head.mT @ tail
            expected.append(float(misalignment(white[edge.head], white[edge.tail], v)))
        assert [t for t, _ in told] == [1] * len(expected)
        assert [r for _, r in told] == pytest.approx(expected, abs=1e-12)
        assert max(expected) > 0.05


def latents(net: Network, name: str, number: int) -> torch.Tensor:
    indices = net.nodes[name].pilot_policy.select(number).indices
    with torch.no_grad():
        return net.nodes[name].agent.encode(net.pilots.of(name)[indices])


def again(net: Network, number: int):
    """Run a twin up to a round, so that its whitening layers have not yet seen that round."""
    method = next(iter(net.nodes.values())).method
    twin = network(
        curved_agents({n: net.dimension(n) for n in net.nodes}), method, net.pilots, EDGES
    )
    for t in range(number):
        twin.round(t)
    return twin.nodes.items()


@pytest.mark.parametrize("privacy", ["standard", "strict"])
@pytest.mark.parametrize("dims", [MIXED, EQUAL], ids=["mixed", "equal"])
def test_the_misalignment_that_is_reported_is_that_of_linalg(privacy, dims) -> None:
    net = network(curved_agents(dims, rate=0.01), SheafFRL(0.1, privacy, pilots_per_round=K))
    for t in range(3):
        net.round(t)
    reported = evaluate_locally(net.nodes).misalignment
    assert sorted(reported) == sorted((e.head, e.tail) for e in net.edges)
    for edge in net.edges:
        head, tail = net.nodes[edge.head], net.nodes[edge.tail]
        v = head.endpoints[edge.tail].map
        if not isinstance(head.endpoints[edge.tail], PlainEndpoint):
            v = v.mT @ tail.endpoints[edge.head].map
        with torch.no_grad():
            a, b = (n.whitening.eval()(n.agent.encode(net.pilots.of(n.name))) for n in (head, tail))
        expected = float(misalignment(a, b, v))
        assert reported[edge] == pytest.approx(expected, abs=1e-12)


def test_warm_up_in_a_run() -> None:
    """The penalty of round t has the weight t/rounds, at both ends of every edge."""
    net = network(
        curved_agents(MIXED, rate=1e-3), SheafFRL(WarmUp(0.8, rounds=4), pilots_per_round=K)
    )
    for t in range(6):
        for node in net.nodes.values():
            for weight in node.weights.values():
                assert weight == pytest.approx(0.8 * min(1, t / 4))
        before = net.parameters()
        log = net.round(t)
        assert ("penalty" in log) == (t > 0)
        after = net.parameters()
        still = all(
            torch.equal(x, y) for n in MIXED for x, y in zip(before[n], after[n], strict=True)
        )
        assert still == (t == 0)


def linear_agent(name: str, weight: torch.Tensor) -> Agent:
    encoder = nn.Linear(weight.shape[1], len(weight), bias=False).double()
    with torch.no_grad():
        encoder.weight.copy_(weight)
    return Agent(
        name,
        encoder,
        data=normal(3, 4, weight.shape[1]),
        objective=lambda agent, batch: 0 * agent.encoder.weight.sum(),
        optimizer=plain_sgd(1e-3),
    )


def test_dual_ascent_leaves_a_glued_edge_in_peace_and_presses_a_misaligned_one() -> None:
    """b is an isometric copy of a; c has nothing to do with either."""
    w = normal(5, 3, 6)
    agents = [
        linear_agent("a", w),
        linear_agent("b", orthonormal(6, 4, 3) @ w),
        linear_agent("c", normal(7, 4, 6)),
    ]
    rule = DualAscent(tolerance=0.05, step=0.1, largest=0.5)
    method = SheafFRL(
        rule, maps=MapPolicy(source="round"), pilots_per_round=AllPilots(K), whitening=NoWhitening()
    )
    net = network(agents, method, normal(8, K, 6), [("a", "b"), ("b", "c")])
    pressed = []
    for t in range(60):
        net.round(t)
        pressed.append(net.nodes["b"].weights["c"])
        if t < 3:  # before b, pulled by c, leaves a
            assert net.nodes["a"].weights["b"] == net.nodes["b"].weights["a"] == 0
    assert pressed[0] > 0
    assert pressed[:20] == sorted(pressed[:20])
    assert max(pressed) <= 0.5
    assert pressed[-1] == 0.5


def test_dual_ascent_closes_an_edge_and_then_lets_go() -> None:
    """The multiplier rises while the constraint is broken and falls back once it holds."""
    agents = [linear_agent("a", normal(5, 3, 6)), linear_agent("b", normal(6, 2, 6))]
    for agent in agents:
        agent.optimizer.param_groups[0]["lr"] = 0.2
    method = SheafFRL(
        DualAscent(tolerance=0.3, step=0.5, largest=10.0),
        maps=MapPolicy(source="round"),
        pilots_per_round=AllPilots(K),
        whitening=NoWhitening(),
    )
    net = network(agents, method, normal(8, K, 6), [("a", "b")])
    weights, gaps = [], []
    for t in range(120):
        gaps.append(evaluate_locally(net.nodes).misalignment["a", "b"] if t else 1.0)
        net.round(t)
        weights.append(net.nodes["a"].weights["b"])
    peak = weights.index(max(weights))
    assert 0 < peak < 119
    assert weights[-1] < 0.5 * weights[peak]
    assert gaps[-1] < 0.3 < gaps[1]


@pytest.mark.parametrize("whitening", [NoWhitening(), ZCA(), SWBN()], ids=["none", "zca", "swbn"])
@pytest.mark.parametrize("source", ["round", "running", "all"])
def test_both_ends_of_an_edge_keep_one_weight(whitening, source) -> None:
    """Without a message about it: in the standard protocol both ends see the same residual."""
    method = SheafFRL(
        DualAscent(tolerance=0.1, step=0.05, largest=1.0),
        maps=MapPolicy(source=source),
        pilots_per_round=K,
        whitening=whitening,
    )
    net = network(curved_agents(MIXED, rate=0.05), method)
    for t in range(8):
        net.round(t)
        for edge in net.edges:
            one = net.nodes[edge.head].weights[edge.tail]
            other = net.nodes[edge.tail].weights[edge.head]
            assert one == pytest.approx(other, rel=1e-11, abs=1e-13)
    assert len({round(w, 9) for node in net.nodes.values() for w in node.weights.values()}) > 1


@pytest.mark.parametrize(
    ("dims", "privacy"),
    [(EQUAL, "standard"), (MIXED, "strict"), (EQUAL, "strict")],
    ids=["homogeneous", "strict", "strict-homogeneous"],
)
def test_transporting_ends_keep_weights_within_a_step_of_each_other(dims, privacy) -> None:
    """A documented limit: they see maps of different age, and heads nothing in the first round."""
    step = 0.05
    method = SheafFRL(DualAscent(0.1, step=step, largest=1.0), privacy, pilots_per_round=K)
    net = network(curved_agents(dims, rate=0.05), method)
    for t in range(40):
        net.round(t)
        for edge in net.edges:
            one = net.nodes[edge.head].weights[edge.tail]
            other = net.nodes[edge.tail].weights[edge.head]
            assert abs(one - other) < step
    assert min(w for node in net.nodes.values() for w in node.weights.values()) > 2 * step


def test_an_edge_whose_latents_are_all_zero_is_no_division_by_zero() -> None:
    """Nothing to glue: training goes on, and the weight of the edge does not rise."""
    zero = torch.zeros(3, 6, dtype=torch.float64)
    method = SheafFRL(
        DualAscent(tolerance=0.1), pilots_per_round=AllPilots(K), whitening=NoWhitening()
    )
    net = network(
        [linear_agent("a", zero), linear_agent("b", zero[:2])],
        method,
        normal(8, K, 6),
        [("a", "b")],
    )
    net.round(0)
    assert net.nodes["a"].weights == {"b": 0.0}


def test_an_inactive_penalty_costs_no_graph_and_moves_nothing() -> None:
    net = network([curved_agent(n, d) for n, d in MIXED.items()], SheafFRL(0.0, pilots_per_round=K))
    before = net.parameters()
    for node in net.nodes.values():
        list(node.send(0))
        assert not node._sent.own.requires_grad
    log = net.round(0)
    assert "penalty" not in log
    for name, old in before.items():
        for x, y in zip(old, net.parameters()[name], strict=True):
            assert torch.equal(x, y)


def test_a_round_without_a_message_counts_for_the_warm_up_but_not_for_dual_ascent() -> None:
    assert WarmUp(0.4, 4).update(0.0, 1, None) == pytest.approx(0.2)
    assert DualAscent(0.1).update(0.3, 1, None) == 0.3


def test_a_penalty_of_another_kind_is_refused() -> None:
    with pytest.raises(InputError, match="'much'"):
        SheafFRL(penalty="much")  # type: ignore[arg-type]
