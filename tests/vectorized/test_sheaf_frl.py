"""Sheaf-FRL: whitening, maps and penalties of all agents at once are what each computes alone."""

import pytest
import torch
from torch import Tensor

from sheafed import Agent, Consensus, Distillation, MapPolicy, SheafFRL
from sheafed.channels import Channel
from sheafed.errors import NonFiniteError, SingularCovarianceError
from sheafed.linalg.procrustes import polar_factor
from sheafed.linalg.running_zca import RunningZCA, whiten_together
from sheafed.methods import IdentityMaps
from sheafed.methods.endpoints import PlainEndpoint, TransportEndpoint
from sheafed.methods.shared_solver import SharedSolver, solve
from sheafed.methods.sheaf_frl import together
from sheafed.methods.sheaf_frl.gluing_penalty import gluing_penalties, gluing_penalty
from sheafed.methods.sheaf_frl.map_updates import Fit, solve_together
from sheafed.methods.sheaf_frl.penalty_weight import DualAscent, WarmUp
from sheafed.methods.whitening import SWBN, ZCA, NoWhitening
from sheafed.training.single_round import group_agents, run_round
from sheafed.transport import Barrier, LocalTransport, Message
from tests.helpers.small_federations import normal
from tests.vectorized.test_cohort import NAMES, ROUNDS, assert_close, compare, make, prepare


def of(**options: object) -> SheafFRL:
    return SheafFRL(**({"penalty": 0.5, "pilots_per_round": 10} | options))


AT_ONCE = {
    "strict": of(privacy="strict"),
    "int8": of(quantisation="int8"),
    "float16, rarely": of(quantisation="float16", exchange_every=2),
    "dual ascent": of(penalty=DualAscent(tolerance=0.1, step=0.5, largest=1.0)),
    "warm-up": of(penalty=WarmUp(0.5, rounds=4)),
    "maps from all pilots": of(maps=MapPolicy(source="all", every=2)),
    "maps from a round": of(maps=MapPolicy(source="round")),
    "identity": of(maps=IdentityMaps()),
    "channel": of(channel=Channel(snr_db=10.0)),
    "less shrinkage": of(whitening=ZCA(shrinkage=0.05, momentum=0.5)),
    "consensus": of(distillation=Consensus(confidence=0.0)),
    "distillation": of(distillation=Distillation(confidence=0.1)),
    "no penalty": of(penalty=0.0),
}
NODE_BY_NODE = {
    "another whitening": of(whitening=SWBN()),
    "no whitening": of(whitening=NoWhitening()),
    "compressed": of(edge_dim=3),
}


@pytest.mark.parametrize("method", AT_ONCE | NODE_BY_NODE)
def test_options_give_the_same_together_as_alone(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    original = together.take_steps
    monkeypatch.setattr(together, "take_steps", lambda *a: steps.append(1) or original(*a))
    logs = compare((AT_ONCE | NODE_BY_NODE)[method], model="cnn")
    # After the first exchange some agents have nothing to compare with, if that was not in frame.
    expected = ROUNDS - (method == "float16, rarely")
    assert len(steps) == (expected if method in AT_ONCE else 0)
    if method not in ("no penalty", "warm-up"):
        assert all("penalty" in log for log in logs[-1].values())


def train_unevenly(together: bool) -> tuple[list, list]:
    """Agents with one to three neighbours, some of another size, and messages that are lost."""
    agents = [make(name) for name in NAMES] + [make(f"tall-{k}", model="cnn") for k in range(2)]
    nodes, _, pilots = prepare(
        agents, of(exchange_every=2), extra=[(NAMES[0], NAMES[7]), (NAMES[2], "tall-1")]
    )
    lost = LocalTransport([agent.name for agent in agents], drop=is_lost)
    barrier = Barrier(lost)
    grouping = group_agents(nodes, pilots) if together else None
    if grouping is not None:
        assert grouping.summary()["together"] == len(NAMES)
    logs = [run_round(nodes, barrier, k, grouping) for k in range(ROUNDS)]
    return logs, [node.state() | {"agent": node.agent.state()} for node in nodes.values()]


def is_lost(message: Message) -> bool:
    return (message.sender, message.round) in {(NAMES[4], 0), (NAMES[9], 2)}


def test_degrees_sizes_and_lost_messages_may_differ() -> None:
    assert_close(train_unevenly(False), train_unevenly(True))


def test_whitening_layers_do_the_same_together_as_alone() -> None:
    layers = [[RunningZCA(4, 0.3, s).double() for s in (0.0, 0.1, 0.5)] for _ in range(2)]
    for step in range(3):
        z = normal(step, 3, 9, 4, dtype=torch.float64) @ normal(7, 4, 4, dtype=torch.float64)
        given = [z.clone().requires_grad_() for _ in range(2)]
        alone = torch.stack([layer(x) for layer, x in zip(layers[0], given[0], strict=True)])
        at_once = whiten_together(layers[1], given[1])
        torch.testing.assert_close(at_once, alone, rtol=1e-10, atol=1e-12)
        upstream = normal(8, 3, 9, 4, dtype=torch.float64)
        grads = [
            torch.autograd.grad(out, x, upstream)[0]
            for out, x in zip((alone, at_once), given, strict=True)
        ]
        torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-11)
        for one, other in zip(*layers, strict=True):
            assert_close(dict(one.state_dict()), dict(other.state_dict()))
            # In evaluation mode both have noticed that their moments have changed.
            torch.testing.assert_close(one.eval()(z[0]), other.eval()(z[0]))
            one.train(), other.train()


def test_white_batches_are_centred_with_unit_variance() -> None:
    """Without shrinkage, after one batch: the definition of whiteness."""
    layers = [RunningZCA(3, shrinkage=0.0).double() for _ in range(2)]
    white = whiten_together(layers, normal(1, 2, 20, 3, dtype=torch.float64))
    assert white.mean(1).abs().max() < 1e-12
    covariance = white.mT @ white / 20
    torch.testing.assert_close(covariance, torch.eye(3).double().expand(2, 3, 3))


def test_latents_without_variance_are_refused_with_the_name_of_the_agent() -> None:
    agents = [make(name) for name in NAMES]
    with torch.no_grad():
        for weight in agents[6].encoder.parameters():
            weight.zero_()
    nodes, barrier, pilots = prepare(agents, of(whitening=ZCA(shrinkage=0.0)))
    with pytest.raises(SingularCovarianceError, match=f"agent '{NAMES[6]}', round 0"):
        run_round(nodes, barrier, 0, group_agents(nodes, pilots))


def test_pilots_that_are_not_finite_are_refused_with_the_name_of_the_agent() -> None:
    agents = [make(name) for name in NAMES]
    nodes, barrier, pilots = prepare(agents, of())
    with torch.no_grad():
        next(agents[2].encoder.parameters()).fill_(torch.inf)
    with pytest.raises(NonFiniteError, match=f"agent '{NAMES[2]}', round 0: the encoder gives"):
        run_round(nodes, barrier, 0, group_agents(nodes, pilots))


def test_penalties_are_those_of_single_agents() -> None:
    own = normal(1, 3, 6, 4, dtype=torch.float64).requires_grad_()
    weights = [{"a": 0.3, "b": 0.7}, {}, {"c": 0.2}]
    targets = [
        {j: normal(10 * k + n, 6, 4, dtype=torch.float64) for n, j in enumerate(of_one)}
        for k, of_one in enumerate(weights)
    ]
    pairs = [
        [(targets[k][j], weight) for j, weight in of_one.items()]
        for k, of_one in enumerate(weights)
    ]
    at_once = gluing_penalties(own, pairs).detach()
    endpoint = PlainEndpoint(4, 4, is_head=True, solver=solve)
    for k in range(3):
        endpoints = dict.fromkeys(weights[k], endpoint)
        alone = gluing_penalty(own[k], targets[k], endpoints, weights[k], white=True)
        assert float(at_once[k]) == pytest.approx(0.0 if alone is None else float(alone.detach()))
    latents = own[0].detach()
    by_hand = sum(
        w * float((latents - targets[0][j]).square().sum()) / (2 * float(latents.square().sum()))
        for j, w in weights[0].items()
    )
    assert float(at_once[0]) == pytest.approx(by_hand)
    assert torch.autograd.gradcheck(lambda z: gluing_penalties(z, pairs), own)


def endpoints(solver: object) -> list[PlainEndpoint | TransportEndpoint]:
    """Some of two shapes, some that are not due."""
    plain = [PlainEndpoint(5, d, is_head=True, solver=solver) for d in (3, 5, 3)]
    turns = [
        TransportEndpoint(torch.eye(5, 3), turn=turn, fitted=False, solver=solver)
        for turn in ("even", "odd", "always", "never")
    ]
    for endpoint in (*plain, *turns):
        endpoint.map = endpoint.map.double()
    return [*plain, *turns]


def problem(k: int, shape: torch.Size) -> Tensor:
    m = normal(k, *shape, dtype=torch.float64)
    if k == 2:  # of rank 1: the map is undetermined, and stays near the one before
        m = m[:, :1] @ m[:1]
    return m


@pytest.mark.parametrize("shared", [False, True])
def test_maps_are_those_of_single_fits(shared: bool) -> None:
    found = []
    for at_once in (False, True):
        those = endpoints(SharedSolver() if shared else solve)
        fits = [Fit(e, problem(k, e.map.shape), 0) for k, e in enumerate(those)]
        if at_once:
            solve_together(fits)
        else:
            for fit in fits:
                fit.solve()
        found.append(those)
    for one, other in zip(*found, strict=True):
        assert one.fitted == other.fitted
        torch.testing.assert_close(one.map, other.map, rtol=1e-10, atol=1e-12)
    # A determined map is the orthogonal factor: V^T M is symmetric and positive.
    product = found[1][0].map.mT @ problem(0, found[1][0].map.shape)
    torch.testing.assert_close(product, product.mT)
    assert torch.linalg.eigvalsh(product).min() > 0


def test_both_ends_of_an_edge_have_one_solution() -> None:
    solver = SharedSolver()
    ends = [PlainEndpoint(4, 4, is_head=k == 0, solver=solver) for k in range(2)]
    m = normal(1, 4, 4)
    for end in ends:  # in different cohorts
        solve_together([Fit(end, m, 0)])
    assert ends[0].map is ends[1].map
    torch.testing.assert_close(ends[0].map, polar_factor(m))


def test_a_solver_of_ones_own_is_asked_for_every_map() -> None:
    asked = []

    def mine(m: Tensor, previous: Tensor) -> Tensor:
        asked.append(m)
        return previous

    solve_together([Fit(PlainEndpoint(2, 2, is_head=True, solver=mine), torch.eye(2), 0)])
    assert len(asked) == 1


def test_maps_that_diverge_are_refused_with_the_name_of_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agents: list[Agent] = [make(name) for name in NAMES]
    nodes, barrier, pilots = prepare(agents, of())
    node = nodes[NAMES[5]]
    original = node.fits

    def spoilt(round: int, exchange: object) -> list[Fit]:
        return [Fit(e, m * torch.inf, number) for e, m, number in original(round, exchange)]

    monkeypatch.setattr(node, "fits", spoilt)
    with pytest.raises(NonFiniteError, match=f"agent '{NAMES[5]}', round 0: latents"):
        run_round(nodes, barrier, 0, group_agents(nodes, pilots))
