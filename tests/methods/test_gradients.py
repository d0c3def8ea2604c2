r"""The gradient that an agent's step really uses, against three oracles of the test's own.

Every agent takes one step of plain SGD with rate 1 on an objective that is 0, so the parameters
move by exactly minus the penalty's gradient. Oracles: finite differences of
eq. local_gluing_penalty, autograd of the potential, and the closed form for linear encoders.
The whitening's directions (outside autograd by design) are held fixed, its standardisation is not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from torch import Tensor, nn
from torch.func import functional_call

from sheafed import Agent, Distillation, MapPolicy, SheafFRL
from sheafed.graphs import Edge
from sheafed.methods import SWBN, ZCA, IdentityMaps, NoWhitening
from sheafed.methods.endpoints import PlainEndpoint
from sheafed.pilots.policies import AllPilots
from sheafed.transport.message import Message
from tests.helpers.networks import (
    EDGES,
    EQUAL,
    MIXED,
    Network,
    curved_agent,
    curved_agents,
    drawn,
    network,
    normal,
    orthonormal,
    parameters,
    pilots,
    plain_sgd,
)

LAMBDA = 0.3
K = 16
WHITENINGS = [NoWhitening(), ZCA(shrinkage=0.1), SWBN()]
PROTOCOLS = {
    "standard": (MIXED, "standard"),
    "homogeneous": (EQUAL, "standard"),
    "strict": (MIXED, "strict"),
    "strict-homogeneous": (EQUAL, "strict"),
}
whitenings = pytest.mark.parametrize("whitening", WHITENINGS, ids=["none", "zca", "swbn"])
protocols = pytest.mark.parametrize("protocol", PROTOCOLS)


def build(protocol: str, whitening, maps: MapPolicy | IdentityMaps, **more) -> Network:
    dims, privacy = PROTOCOLS[protocol]
    method = SheafFRL(
        penalty=LAMBDA, privacy=privacy, maps=maps, pilots_per_round=K, whitening=whitening, **more
    )
    return network(curved_agents(dims), method)


# The oracle


def white(z: Tensor, layer: nn.Module) -> Tensor:
    """Whiten by the directions that a layer holds now and the batch's own mean and variances."""
    if isinstance(layer, type(NoWhitening().layer(1))):
        return z
    centred = z - z.mean(0)
    if hasattr(layer, "decorrelation"):
        variances = centred.square().mean(0)
        scale = (variances + 1e-5 * variances.mean()).sqrt()
        return (centred / scale) @ layer.decorrelation.mT
    directions = torch.from_numpy(np.linalg.eigh(layer.running_covariance.numpy())[1])
    along = centred @ directions
    variances = along.square().mean(0)
    shrunk = (1 - layer.shrinkage) * variances + layer.shrinkage * variances.mean()
    return (along / shrunk.sqrt()) @ directions.mT


@dataclass
class Step:
    """One round as it really happened, and what an outsider needs to predict it."""

    net: Network
    number: int
    old: dict[str, list[Tensor]]
    """Encoder parameters before the round."""
    new: dict[str, list[Tensor]]
    maps: dict[tuple[str, str], Tensor]
    """Of each end (owner, neighbour), before the round."""
    readable: dict[tuple[str, str], bool]
    """Whether what the end sent had a frame that the other end knows."""

    def moved(self, name: str) -> list[Tensor]:
        return [o - n for o, n in zip(self.old[name], self.new[name], strict=True)]

    def latents(self, name: str, values: list[Tensor]) -> Tensor:
        """Return the white pilot latents of an agent with these encoder parameters."""
        node = self.net.nodes[name]
        names = [n for n, _ in node.agent.encoder.named_parameters()]
        inputs = self.net.pilots.of(name)[node.pilot_policy.select(self.number).indices]
        z = functional_call(node.agent.encoder, dict(zip(names, values, strict=True)), inputs)
        return white(z, node.whitening)

    def map_at(self, name: str, edge: Edge) -> Tensor | None:
        r"""Return $V$ or $O^\top V$, `(d_head, d_tail)`, as the agent `name` sees it."""
        other = edge.tail if name == edge.head else edge.head
        mine = self.net.nodes[name].endpoints[other].map  # refitted before the step
        if isinstance(self.net.nodes[name].endpoints[other], PlainEndpoint):
            return mine
        if not self.readable[other, name]:
            return None
        theirs = self.maps[other, name]  # what they sent was made before their fit
        return mine.mT @ theirs if name == edge.head else theirs.mT @ mine

    def penalty(self, name: str, values: list[Tensor]) -> Tensor:
        r"""Return eq. local_gluing_penalty with neighbours held fixed, over the latents' energy.

        In the larger space, as it is printed, but for what the tail cannot reach of the head's.
        """
        own = self.latents(name, values)
        total = torch.zeros((), dtype=torch.float64)
        for edge in self.net.edges:
            v = self.map_at(name, edge) if name in edge else None
            if v is not None:
                head, tail = (
                    own if endpoint == name else self.latents(endpoint, self.old[endpoint])
                    for endpoint in edge
                )
                if name == edge.tail:
                    head = head @ v @ torch.linalg.pinv(v)
                total = total + (head - tail @ v.mT).square().sum()
        return LAMBDA / 2 * total / self.energy(name, own)

    def energy(self, name: str, own: Tensor) -> Tensor | int:
        plain = isinstance(self.net.nodes[name].whitening, type(NoWhitening().layer(1)))
        return K * self.net.dimension(name) if plain else own.square().sum()


def play(net: Network, number: int) -> Step:
    old = net.parameters()
    endpoints = {
        (i, j): endpoint for i, node in net.nodes.items() for j, endpoint in node.endpoints.items()
    }
    maps = {key: endpoint.map.clone() for key, endpoint in endpoints.items()}
    readable = {key: endpoint.in_frame for key, endpoint in endpoints.items()}
    net.round(number)
    return Step(net, number, old, net.parameters(), maps, readable)


def slope(
    f: Callable[[list[Tensor]], Tensor], at: list[Tensor], along: list[Tensor], h: float = 1e-3
) -> float:
    """Return the directional derivative by finite differences of fourth order."""
    total = 0.0
    for weight, shift in [(8, h), (-8, -h), (-1, 2 * h), (1, -2 * h)]:
        total += weight * float(f([x + shift * d for x, d in zip(at, along, strict=True)]))
    return total / (12 * h)


# Tests


@protocols
@whitenings
def test_the_step_is_the_finite_difference_of_the_local_penalty(protocol, whitening) -> None:
    net = build(protocol, whitening, MapPolicy(decay=0.5))
    for number in range(3):  # strict ends fit in turn: 0 tail, 1 head, 2 tail
        step = play(net, number)
        seen = 0.0
        for name in net.nodes:
            at, moved = step.old[name], step.moved(name)
            units = [nn.functional.normalize(normal(k, x.numel()), dim=0) for k, x in enumerate(at)]
            along = [unit.view_as(x) for unit, x in zip(units, at, strict=True)]
            expected = slope(partial(step.penalty, name), at, along)
            found = sum(float((m * d).sum()) for m, d in zip(moved, along, strict=True))
            assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)
            seen = max(seen, abs(expected))
        assert seen > 1e-3  # there is something to be wrong about


@protocols
@pytest.mark.parametrize(
    ("whitening", "source"),
    [
        (NoWhitening(), "round"),
        (ZCA(shrinkage=0.0), "running"),
        (ZCA(shrinkage=0.0), "all"),
    ],
    ids=["none-round", "zca-running", "zca-all"],
)
def test_the_step_is_autograd_of_the_potential(protocol, whitening, source) -> None:
    r"""The potential is $\lambda/(2K) \sum_e \|A_i - V A_j\|^2$, each edge once, all agents free.

    The step of agent i is $1/d_i$ of its gradient, since $\lambda_i = \lambda/d_i$: without
    whitening, or without shrinkage, where the energy of white latents is constant. Both ends see
    one map in every round of the standard protocol; where transported latents travel, in
    the rounds without a fit.
    """
    net = build(protocol, whitening, MapPolicy(every=3, source=source))
    shared = {"standard": [0, 1, 2, 3, 4]}.get(protocol, [1, 3, 4])
    for number in range(5):
        step = play(net, number)
        if number not in shared:
            continue
        free = {n: [p.clone().requires_grad_() for p in old] for n, old in step.old.items()}
        latents = {name: step.latents(name, values) for name, values in free.items()}
        potential = torch.zeros((), dtype=torch.float64)
        for edge in net.edges:
            one, other = step.map_at(edge.head, edge), step.map_at(edge.tail, edge)
            assert one is not None
            torch.testing.assert_close(one, other, rtol=0, atol=1e-13)
            residual = latents[edge.head] - latents[edge.tail] @ one.mT
            potential = potential + LAMBDA / (2 * K) * residual.square().sum()
        for name, values in free.items():
            gradients = torch.autograd.grad(potential, values, retain_graph=True)
            for moved, gradient in zip(step.moved(name), gradients, strict=True):
                expected = gradient / net.dimension(name)
                torch.testing.assert_close(moved, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("protocol", ["standard", "strict"])
def test_closed_form_for_linear_encoders(protocol) -> None:
    r"""$\frac{\lambda}{d_i K} P^\top \sum_j (A_i - T_{ij} A_j)$, by NumPy from the first fit."""
    x = pilots(K)
    agents = [
        Agent(
            name,
            drawn(nn.Linear(3, d, bias=False), d + 10 * k),
            data=normal(k, 4, 3),
            objective=lambda agent, batch: 0 * agent.encoder.weight.sum(),
            optimizer=plain_sgd(1.0),
        )
        for k, (name, d) in enumerate({"a": 3, "b": 2, "c": 3}.items())
    ]
    method = SheafFRL(
        penalty=LAMBDA,
        privacy=protocol,
        maps=MapPolicy(source="round"),
        pilots_per_round=AllPilots(K),
        whitening=NoWhitening(),
    )
    net = network(agents, method, x, [("a", "b"), ("c", "a"), ("b", "c")])
    assert net.edges == (Edge("a", "b"), Edge("a", "c"), Edge("c", "b"))
    step = play(net, 0)
    p, latents = x.numpy(), {n: (x @ w[0].mT).numpy() for n, w in step.old.items()}
    for name, a in latents.items():
        gradient = np.zeros((a.shape[1], 3))
        for edge in net.edges:
            # Under strict privacy heads cannot read a tail before its first fit.
            if name not in edge or (protocol == "strict" and name == edge.head):
                continue
            u, _, wt = np.linalg.svd(latents[edge.head].T @ latents[edge.tail], full_matrices=False)
            v = u @ wt
            other = latents[edge.tail] @ v.T if name == edge.head else latents[edge.head] @ v
            gradient += LAMBDA / (a.shape[1] * K) * (a - other).T @ p
        torch.testing.assert_close(
            step.moved(name)[0], torch.from_numpy(gradient), rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("dims", [MIXED, EQUAL], ids=["mixed", "equal"])
@whitenings
def test_strict_equals_standard_where_the_composed_maps_do(dims, whitening) -> None:
    """eq. gradient_gluing_penalty_privacy: O^T V takes the place of V, nothing else changes."""
    moved = {}
    for privacy in ("standard", "strict"):
        method = SheafFRL(
            penalty=LAMBDA,
            privacy=privacy,
            maps=MapPolicy(every=1000),  # round 1 has no fit
            pilots_per_round=K,
            whitening=whitening,
        )
        net = network(curved_agents(dims), method)
        for k, edge in enumerate(net.edges):
            head = net.nodes[edge.head].endpoints[edge.tail]
            tail = net.nodes[edge.tail].endpoints[edge.head]
            v = orthonormal(k, dims[edge.head], dims[edge.tail])
            head.fitted = tail.fitted = True
            if privacy == "strict":
                assert float((head.map - torch.eye(dims[edge.head])).abs().max()) > 0.1
                tail.map = head.map @ v
            else:  # also the homogeneous protocol: its head keeps the identity
                tail.map = v
                if isinstance(head, PlainEndpoint):
                    head.map = v
        step = play(net, 1)
        moved[privacy] = {name: step.moved(name) for name in net.nodes}
    for name, standard in moved["standard"].items():
        for one, other in zip(standard, moved["strict"][name], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-13)
        assert float(standard[0].abs().max()) > 1e-4


@whitenings
def test_after_its_first_fit_a_strict_tail_steps_as_a_standard_one(whitening) -> None:
    """Fitting to O A instead of A gives O V: the composed map is the Procrustes optimum."""
    steps = {
        protocol: play(build(protocol, whitening, MapPolicy(source="round")), 0)
        for protocol in ("standard", "strict")
    }
    assert [e.head for e in steps["strict"].net.edges if e.tail == "b"] == ["a", "d"]
    assert all(e.head != "b" for e in steps["strict"].net.edges)
    for one, other in zip(steps["standard"].moved("b"), steps["strict"].moved("b"), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-11)


def test_identity_maps_compare_the_latents_as_they_are() -> None:
    net = build("homogeneous", NoWhitening(), IdentityMaps())
    step = play(net, 0)
    for name, node in net.nodes.items():
        free = [p.clone().requires_grad_() for p in step.old[name]]
        own = step.latents(name, free)
        others = [step.latents(j, step.old[j]) for j in node.neighbours]
        penalty = sum((own - other).square().sum() for other in others) * LAMBDA / (2 * K * 4)
        for moved, gradient in zip(
            step.moved(name), torch.autograd.grad(penalty, free), strict=True
        ):
            torch.testing.assert_close(moved, gradient, rtol=1e-10, atol=1e-13)


@protocols
def test_the_penalty_reaches_neither_heads_nor_neighbours(protocol) -> None:
    dims, privacy = PROTOCOLS[protocol]
    method = SheafFRL(penalty=LAMBDA, privacy=privacy, pilots_per_round=K)
    net = network(curved_agents(dims, classes=3), method)
    net.round(0)
    net.round(1)
    for node in net.nodes.values():
        node.agent.optimizer.zero_grad()
    encoders, heads = net.parameters(), net.head_parameters()
    net.node_round(2, "d")
    for name, node in net.nodes.items():
        assert node.agent.head is not None
        assert all(p.grad is None for p in node.agent.head.parameters())
        for old, new in zip(heads[name], parameters(node.agent.head), strict=True):
            assert torch.equal(old, new)
        moved = [
            not torch.equal(old, new)
            for old, new in zip(encoders[name], parameters(node.agent.encoder), strict=True)
        ]
        # A shift of all latents is invisible behind the whitening's centring.
        assert any(moved) if name == "d" else not any(moved)
        if name != "d":
            assert all(p.grad is None for p in node.agent.encoder.parameters())


def test_a_lost_message_takes_its_edge_out_of_the_gradient() -> None:
    dims, method = MIXED, SheafFRL(penalty=LAMBDA, pilots_per_round=K, whitening=NoWhitening())

    def remove_neighbour(message: Message) -> bool:
        return message.kind == "round" and (message.sender, message.receiver) == ("b", "d")

    moved = {}
    for case, edges, drop in [
        ("lost", EDGES, remove_neighbour),
        ("without", [("a", "b"), ("a", "c"), ("c", "d")], None),
        ("whole", EDGES, None),
    ]:
        net = network(curved_agents(dims), method, edges=edges, drop=drop)
        moved[case] = play(net, 0)
    for one, other in zip(moved["lost"].moved("d"), moved["without"].moved("d"), strict=True):
        assert torch.equal(one, other)
    for one, other in zip(moved["lost"].moved("b"), moved["whole"].moved("b"), strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(moved["lost"].new["d"][0], moved["whole"].new["d"][0])


@pytest.mark.parametrize("factor", [0.5, 2.0, 10.0])
def test_the_gradient_is_linear_in_the_weight(factor: float) -> None:
    one, other = (
        play(network(curved_agents(MIXED), SheafFRL(penalty=weight, pilots_per_round=K)), 0)
        for weight in (LAMBDA, factor * LAMBDA)
    )
    for name in MIXED:
        for g, h in zip(one.moved(name), other.moved(name), strict=True):
            torch.testing.assert_close(factor * g, h, rtol=1e-10, atol=1e-13)


def test_the_penalty_adds_to_the_objective() -> None:
    """theta moves by the sum of both gradients, eq. theta_update_Q."""

    def quadratic(agent: Agent, batch) -> Tensor:
        return sum(0.5 * (p - 1).square().sum() for p in agent.parameters)

    method = SheafFRL(penalty=LAMBDA, pilots_per_round=K)
    alone = play(network(curved_agents(MIXED), method), 0)
    both = play(network(curved_agents(MIXED, objective=quadratic), method), 0)
    for name in MIXED:
        for old, g, h in zip(both.old[name], alone.moved(name), both.moved(name), strict=True):
            torch.testing.assert_close(h, old - 1 + g, rtol=1e-12, atol=1e-13)


def test_what_a_round_logs_is_the_penalty_in_the_own_space() -> None:
    net = build("standard", ZCA(shrinkage=0.1), MapPolicy(source="round"))
    old = net.parameters()
    log = net.node_round(0, "a")
    step = Step(net, 0, old, net.parameters(), {}, {})
    # At the head the own space is the larger one, so the two expressions agree.
    assert log["penalty"] == pytest.approx(float(step.penalty("a", old["a"])), rel=1e-10)
    assert log["loss"] == 0


# Distillation


@protocols
@pytest.mark.parametrize("whitening", [NoWhitening(), ZCA(shrinkage=0.1)], ids=["none", "zca"])
def test_probabilities_train_the_head_and_only_the_head(protocol, whitening) -> None:
    """The encoder's step is bit for bit that without distillation; the head's is the oracle's."""
    dims, privacy = PROTOCOLS[protocol]
    confidence, weight = 0.7, 0.25
    nets = {
        distillation: network(
            curved_agents(dims, classes=3),
            SheafFRL(
                penalty=LAMBDA,
                privacy=privacy,
                pilots_per_round=K,
                whitening=whitening,
                distillation=distillation,
            ),
        )
        for distillation in (None, Distillation(confidence, weight))
    }
    without, distilling = nets.values()
    chosen: list[bool] = []
    for number in range(3):
        heads = distilling.head_parameters()
        plain, step = play(without, number), play(distilling, number)
        for name in dims:
            for one, other in zip(plain.new[name], step.new[name], strict=True):
                assert torch.equal(one, other)
            expected = head_gradient(step, name, heads, confidence, weight, chosen)
            head = distilling.nodes[name].agent.head
            for old, new, gradient in zip(heads[name], parameters(head), expected, strict=True):
                torch.testing.assert_close(old - new, gradient, rtol=1e-8, atol=1e-12)
    assert 0.2 < sum(chosen) / len(chosen) < 0.9  # the threshold has something to choose


def head_gradient(
    step: Step,
    name: str,
    heads: dict[str, list[Tensor]],
    confidence: float,
    weight: float,
    chosen: list[bool],
) -> list[Tensor]:
    """Soft cross-entropy on coloured transported latents, where the sender is confident."""
    node = step.net.nodes[name]
    rows, sent_probabilities = [], []
    for edge in step.net.edges:
        v = step.map_at(name, edge) if name in edge else None
        if v is None:
            continue
        j = edge.tail if name == edge.head else edge.head
        sent = step.latents(j, step.old[j])
        rows.append(coloured(sent @ (v.mT if name == edge.head else v), node.whitening))
        names = [n for n, _ in node.agent.encoder.named_parameters()]
        inputs = step.net.pilots.of(j)[node.pilot_policy.select(step.number).indices]
        raw = functional_call(
            step.net.nodes[j].agent.encoder, dict(zip(names, step.old[j], strict=True)), inputs
        )
        w, b = heads[j]
        sent_probabilities.append(torch.softmax(raw @ w.mT + b, -1))
    free = [p.clone().requires_grad_() for p in heads[name]]
    if not rows:
        return [torch.zeros_like(p) for p in free]
    probabilities = torch.cat(sent_probabilities)
    sure = probabilities.max(-1).values > confidence
    assert int(sure.sum()) >= 2
    chosen.extend(sure.tolist())
    logits = torch.cat(rows)[sure] @ free[0].mT + free[1]
    loss = -(probabilities[sure] * (logits - logits.logsumexp(-1, keepdim=True))).sum() / sure.sum()
    return list(torch.autograd.grad(weight * loss, free))


def coloured(u: Tensor, layer: nn.Module) -> Tensor:
    if not hasattr(layer, "running_covariance"):
        return u
    covariance = layer.running_covariance.numpy()
    d = len(covariance)
    shrunk = 0.9 * covariance + 0.1 * np.trace(covariance) / d * np.eye(d)
    return u @ torch.from_numpy(sqrtm(shrunk).real) + layer.running_mean


def test_an_agent_without_a_head_takes_no_part_in_distillation() -> None:
    agents = [curved_agent(n, d, classes=None if n == "d" else 3) for n, d in MIXED.items()]
    method = SheafFRL(penalty=LAMBDA, pilots_per_round=K, distillation=Distillation(0.0))
    net = network(agents, method)
    heads = net.head_parameters()
    assert sorted(heads) == ["a", "b", "c"]
    net.round(0)
    for name, old in heads.items():
        new = parameters(net.nodes[name].agent.head)
        assert not all(torch.equal(o, n) for o, n in zip(old, new, strict=True))
    # c has one neighbour with a head, a: it learns the same as on the graph without d.
    alone = network([curved_agent(n, MIXED[n], classes=3) for n in "abc"], method, edges=EDGES[:2])
    alone.round(0)
    for one, other in zip(
        parameters(net.nodes["c"].agent.head), parameters(alone.nodes["c"].agent.head), strict=True
    ):
        assert torch.equal(one, other)


# Exchanges every few rounds


@protocols
@whitenings
def test_between_exchanges_own_latents_are_pulled_to_what_arrived_last(protocol, whitening) -> None:
    net = build(protocol, whitening, MapPolicy(decay=0.5), exchange_every=3)
    for first in (0, 3):
        play(net, first)
        targets_of = {
            name: [z.clone() for z in node._last_exchange.targets().values()]
            for name, node in net.nodes.items()
        }
        pulled = 0
        for number in (first + 1, first + 2):
            step = play(net, number)
            step.number = first  # whose pilots they are
            for name, targets in targets_of.items():
                values = [x.clone().requires_grad_() for x in step.old[name]]
                own = step.latents(name, values)
                total = sum((own - target).square().sum() for target in targets)
                penalty = LAMBDA / 2 * total / step.energy(name, own)
                moved = step.moved(name)
                if targets:
                    expected = torch.autograd.grad(penalty, values)
                    pulled += 1
                else:  # no neighbour is in a frame that can be read
                    expected = [torch.zeros_like(x) for x in moved]
                for found, right in zip(moved, expected, strict=True):
                    torch.testing.assert_close(found, right, rtol=1e-7, atol=1e-10)
        assert pulled >= len(net.nodes)
    sent = {row.round for row in net.transport.ledger.rows() if row.kind == "round"}
    assert sent == {0, 3}


@pytest.mark.parametrize("every", [1, 2, 5])
def test_without_a_penalty_rounds_between_exchanges_follow_the_objective_alone(every: int) -> None:
    """n steps on n batches per exchange."""
    rate, calls = 0.1, []

    def pull(agent: Agent, batch) -> Tensor:
        calls.append((agent.name, batch.inputs))
        return sum(0.5 * p.square().sum() for p in agent.parameters)

    method = SheafFRL(penalty=0.0, pilots_per_round=K, exchange_every=every)
    net = network(curved_agents(MIXED, objective=pull, rate=rate, batch_size=2), method)
    old = net.parameters()
    for round in range(every):
        net.round(round)
    for name, node in net.nodes.items():
        assert node.agent.steps == every
        batches = [inputs for agent, inputs in calls if agent == name]
        assert len(batches) == every
        # 8 samples in batches of 2: four different batches, then a new pass.
        rows = torch.cat(batches[:4])
        assert len(rows.unique(dim=0)) == min(2 * every, 8)
        for before, now in zip(old[name], parameters(node.agent.encoder), strict=True):
            expected = before * (1 - rate) ** every
            torch.testing.assert_close(now, expected, rtol=1e-10, atol=1e-13)
    net.round(every)
    sent = {row.round for row in net.transport.ledger.rows() if row.kind == "round"}
    assert sent == {0, every}


def test_an_agent_that_skips_rounds_compares_with_the_pilots_of_its_last_exchange() -> None:
    """After a crash an agent may continue after an exchange that it missed."""
    method = SheafFRL(penalty=LAMBDA, pilots_per_round=K, exchange_every=3)
    nets = [network(curved_agents(MIXED), method) for _ in range(2)]
    for net in nets:
        net.round(0)
    name, node = next(iter(nets[0].nodes.items()))
    node.receive(1, {})
    twin = nets[1].nodes[name]
    twin.receive(7, {})  # rounds 3 and 6 had exchanges
    for one, other in zip(
        parameters(node.agent.encoder), parameters(twin.agent.encoder), strict=True
    ):
        assert torch.equal(one, other)
