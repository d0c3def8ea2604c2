r"""The convergence theorems (sec:Convergence_analysis) on problems with known constants.

What the update descends. With SGD at rate $\rho_i$ agent i moves by

$$-\rho_i \Big(\nabla L_i + \frac{\lambda}{d_i K} \sum_j P_i^\top (A_i - T_{ij} A_j)\Big)
  = -\frac{\rho_i}{d_i} \nabla_i \Phi, \qquad
  \Phi = \sum_i d_i L_i + \frac{\lambda}{2K} \sum_e \|A_i - V_{ij} A_j\|^2 ,$$

each edge once. So rates $\rho_i = \eta d_i$ are gradient descent on $\Phi$ with step $\eta$: the
setting "scaled" below. A common rate $\rho_i = \eta$, as the paper prints it, is gradient descent
with step $\eta$ too, in the variables $\sqrt{d_i}\,\theta_i$: the setting "common", with
$\|\nabla\Phi\|^2 = \sum_i \|\nabla_i \Phi\|^2 / d_i$ and its own L.

The problem. Linear encoders on pilots of the agent's own modality, $A_i = P_i W_i$, without
whitening; $L_i(W) = f_i + \frac12 \mathrm{tr}\,(W - C_i)^\top H_i (W - C_i)$. Everything else here
is NumPy: $\min_V \|A_i - V A_j\|^2 = \|A_i\|^2 + \|A_j\|^2 - 2 \|A_i^\top A_j\|_*$, and
$\Phi \ge \sum_i d_i f_i$.

L. For every V, in a direction D the curvature is
$\sum_i d_i \langle D_i, H_i D_i\rangle + \frac{\lambda}{K} \sum_e \|P_i D_i - P_j D_j V^\top\|^2$.
Since $\|x - y\|^2 \le 2\|x\|^2 + 2\|y\|^2$ and $\|y V^\top\| = \|y\|$, it is at most that of
$\max_i \mu(d_i H_i + \frac{2 \lambda \deg_i}{K} P_i^\top P_i)$, with $\mu$ the largest eigenvalue:
that is L. The block of agent i alone shows at least $\mu(d_i H_i + \frac{\lambda\deg_i}{K}
P_i^\top P_i)$, again for every V: a curvature that no choice of maps can avoid.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sheafed import Agent, MapPolicy, SheafFRL
from sheafed.agents import lr_schedules
from sheafed.agents.objectives import Objective
from sheafed.agents.samples import Batch
from sheafed.graphs import from_edges, orient
from sheafed.methods import NoWhitening
from sheafed.pilots.policies import AllPilots
from tests.helpers.networks import Network, drawn, network, normal, plain_sgd

K = 12
LAMBDA = 0.8
Weights = dict[str, np.ndarray]


def least_squares(agent: Agent, batch: Batch) -> Tensor:
    r"""$\frac{1}{2n} \|X W - Y\|^2$: curvature $X^\top X / n$."""
    return (agent.encode(batch.inputs) - batch.targets).square().sum() / (2 * len(batch.inputs))


@dataclass
class Problem:
    """Agents and edges, with everything the theorems ask for in NumPy."""

    dims: dict[str, int]
    edges: list[tuple[str, str]]
    metric: str = "scaled"
    inputs: int = 3
    steep: float = 1.0
    """Scales the first agent's data, so that its curvature decides L."""

    def __post_init__(self) -> None:
        self.oriented = orient(from_edges(self.edges), self.dims)
        self.degree = {n: sum(n in e for e in self.edges) for n in self.dims}
        self.samples, self.P, self.W0 = {}, {}, {}
        self.H, self.C, self.floor = {}, {}, {}
        for k, (name, d) in enumerate(self.dims.items()):
            p = self.inputs + k % 2
            x = normal(100 + k, 10, p) * (self.steep if k == 0 else 1.0)
            y = normal(200 + k, 10, d)
            self.samples[name] = (x, y)
            self.P[name] = normal(300 + k, K, p).numpy()
            self.W0[name] = drawn(nn.Linear(p, d, bias=False), 400 + k).weight.detach().T.numpy()
            self._add(name, x.numpy().T @ x.numpy() / 10, *_least_squares_minimum(x, y))

    def _add(self, name: str, H: np.ndarray, C: np.ndarray, floor: float) -> None:
        self.H[name], self.C[name], self.floor[name] = H, C, floor

    # The theory's quantities

    def potential(self, w: Weights) -> float:
        """With maps minimised exactly."""
        total = 0.0
        for n, d in self.dims.items():
            e = w[n] - self.C[n]
            total += d * (self.floor[n] + 0.5 * np.sum(e * (self.H[n] @ e)))
        for i, j in self.oriented:
            a, b = self.P[i] @ w[i], self.P[j] @ w[j]
            nuclear = np.linalg.svd(a.T @ b, compute_uv=False).sum()
            total += LAMBDA / (2 * K) * (np.sum(a**2) + np.sum(b**2) - 2 * nuclear)
        return total

    def gradient(self, w: Weights) -> Weights:
        return self.weighted_gradient(w, self.dims, lambda i, j: LAMBDA)

    def weighted_gradient(
        self, w: Weights, local: dict[str, float], edge: Callable[[str, str], float]
    ) -> Weights:
        """Of sum_i local_i L_i + sum_e edge_e/(2K) |A_i - V A_j|^2 with the optimal maps."""
        g = {n: local[n] * self.H[n] @ (w[n] - self.C[n]) for n in self.dims}
        for i, j in self.oriented:
            a, b = self.P[i] @ w[i], self.P[j] @ w[j]
            u, _, vt = np.linalg.svd(a.T @ b, full_matrices=False)
            difference = a - b @ (u @ vt).T
            g[i] = g[i] + edge(i, j) / K * self.P[i].T @ difference
            g[j] = g[j] - edge(i, j) / K * self.P[j].T @ difference @ (u @ vt)
        return g

    def square(self, g: Weights) -> float:
        return sum(np.sum(g[n] ** 2) / self.metric_of(n) for n in self.dims)

    def metric_of(self, name: str) -> float:
        return 1.0 if self.metric == "scaled" else float(self.dims[name])

    def rate(self, name: str, eta: float) -> float:
        """What an agent's optimiser is given for step eta of the theory."""
        return eta * self.dims[name] if self.metric == "scaled" else eta

    def curvature(self, of_penalty: float) -> float:
        return max(
            np.linalg.eigvalsh(
                (d * self.H[n] + of_penalty * LAMBDA * self.degree[n] / K * self.P[n].T @ self.P[n])
                / self.metric_of(n)
            )[-1]
            for n, d in self.dims.items()
        )

    @property
    def lipschitz(self) -> float:
        return self.curvature(2.0)

    @property
    def infimum(self) -> float:
        return sum(d * self.floor[n] for n, d in self.dims.items())

    @property
    def gap(self) -> float:
        return self.potential(self.W0) - self.infimum

    # The real thing

    def network(
        self,
        eta: Callable[[int], float],
        *,
        seed: int = 0,
        privacy: str = "standard",
        objective: Callable[[str], Objective] = lambda name: least_squares,
        batch_size: int = 10,
    ) -> Network:
        agents = []
        for name, d in self.dims.items():
            encoder = nn.Linear(len(self.W0[name]), d, bias=False).double()
            with torch.no_grad():
                encoder.weight.copy_(torch.from_numpy(self.W0[name].T))
            agents.append(
                Agent(
                    name,
                    encoder,
                    data=self.samples[name],
                    objective=objective(name),
                    optimizer=plain_sgd(1.0),
                    batch_size=batch_size,
                    scheduler=lr_schedules.follow(lambda t, n=name: self.rate(n, eta(t))),
                )
            )
        method = SheafFRL(
            penalty=LAMBDA,
            privacy=privacy,
            maps=MapPolicy(every=1, source="round"),
            pilots_per_round=AllPilots(K),
            whitening=NoWhitening(),
        )
        shared = {n: torch.from_numpy(p) for n, p in self.P.items()}
        return network(agents, method, shared, self.edges, seed=seed)


def _least_squares_minimum(x: Tensor, y: Tensor) -> tuple[np.ndarray, float]:
    c = np.linalg.lstsq(x.numpy(), y.numpy(), rcond=None)[0]
    return c, float(np.sum((x.numpy() @ c - y.numpy()) ** 2) / (2 * len(x)))


def weights(net: Network) -> Weights:
    return {n: node.agent.encoder.weight.detach().T.numpy().copy() for n, node in net.nodes.items()}


def trajectory(net: Network, rounds: int) -> list[Weights]:
    found = [weights(net)]
    for t in range(rounds):
        net.round(t)
        found.append(weights(net))
    return found


MIXED = Problem({"a": 5, "b": 2, "c": 3, "d": 3}, [("a", "b"), ("a", "c"), ("c", "d"), ("b", "d")])
COMMON = Problem(MIXED.dims, MIXED.edges, metric="common")
STEEP = Problem(MIXED.dims, MIXED.edges, steep=6.0)
SETTINGS = pytest.mark.parametrize(
    "problem", [MIXED, COMMON, STEEP], ids=["scaled", "common", "steep"]
)


# The oracle itself


def test_the_oracles_gradient_is_the_slope_of_the_oracles_potential() -> None:
    """The maps are minimised, so by the envelope theorem they add nothing to the slope."""
    gradient = MIXED.gradient(MIXED.W0)
    for k, name in enumerate(MIXED.dims):
        along = normal(k, *MIXED.W0[name].shape).numpy()
        sides = [
            MIXED.potential({**MIXED.W0, name: MIXED.W0[name] + h * along}) for h in (1e-5, -1e-5)
        ]
        slope = (sides[0] - sides[1]) / 2e-5
        assert slope == pytest.approx(np.sum(gradient[name] * along), rel=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_the_lipschitz_constant_bounds_the_curvature_for_any_maps(seed: int) -> None:
    problem, other = (
        MIXED,
        {n: normal(seed + k, *w.shape).numpy() for k, (n, w) in enumerate(MIXED.W0.items())},
    )
    curvature = sum(
        d * np.sum(other[n] * (problem.H[n] @ other[n])) for n, d in problem.dims.items()
    )
    for k, (i, j) in enumerate(problem.oriented):
        v = np.linalg.qr(normal(seed + 50 + k, problem.dims[i], problem.dims[j]).numpy())[0]
        difference = problem.P[i] @ other[i] - problem.P[j] @ other[j] @ v.T
        curvature += LAMBDA / K * np.sum(difference**2)
    size = sum(np.sum(w**2) for w in other.values())
    assert curvature <= problem.lipschitz * size
    assert problem.curvature(1.0) <= problem.lipschitz


# thm:main_Q


@SETTINGS
def test_the_update_is_gradient_descent_on_the_potential(problem: Problem) -> None:
    eta = 1 / problem.lipschitz
    path = trajectory(problem.network(lambda t: eta), 10)
    for now, after in pairwise(path):
        gradient = problem.gradient(now)
        for name in problem.dims:
            step = problem.rate(name, eta) / problem.dims[name]
            expected = now[name] - step * gradient[name]
            np.testing.assert_allclose(after[name], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("problem", "fraction"),
    [(MIXED, 1.0), (MIXED, 0.3), (COMMON, 1.0), (STEEP, 1.0)],
    ids=["scaled", "scaled-small-step", "common", "steep"],
)
def test_descent_and_rate_for_every_horizon(problem: Problem, fraction: float) -> None:
    """Descent by eta/2 |grad|^2 in every step, and eq. rate_main_Q for T = 0, ..., 59."""
    eta = fraction / problem.lipschitz
    path = trajectory(problem.network(lambda t: eta), 60)
    values = np.array([problem.potential(w) for w in path])
    squares = np.array([problem.square(problem.gradient(w)) for w in path[:-1]])
    rounding = 1e-12 * values[0]
    assert np.all(values[1:] <= values[:-1] - eta / 2 * squares + rounding)
    best = np.minimum.accumulate(squares)
    bounds = 2 * problem.gap / (eta * np.arange(1, 61))
    assert np.all(best <= bounds)
    assert np.all(np.cumsum(squares) <= 2 * problem.gap / eta)
    assert squares[-1] < 1e-3 * squares[0]
    assert values[-1] >= problem.infimum


def test_the_step_may_reach_but_not_pass_twice_one_over_l() -> None:
    """Where one agent's curvature decides L, 2/L is the threshold: 1.9/L descends, 2.3/L grows."""
    assert STEEP.curvature(1.0) > 0.95 * STEEP.lipschitz
    values = {}
    for factor in (1.9, 2.3):
        net = STEEP.network(lambda t, f=factor: f / STEEP.lipschitz)
        values[factor] = np.array([STEEP.potential(w) for w in trajectory(net, 40)])
    assert np.all(np.diff(values[1.9]) <= 1e-12 * values[1.9][0])
    assert np.any(np.diff(values[2.3]) > 0)
    assert values[2.3][-1] > 1e3 * values[2.3][0]


@SETTINGS
def test_above_the_curvature_of_one_block_nothing_converges(problem: Problem) -> None:
    eta = 2.3 / problem.curvature(1.0)
    assert eta > 2 / problem.lipschitz
    values = [problem.potential(w) for w in trajectory(problem.network(lambda t: eta), 40)]
    assert values[-1] > 1e3 * values[0]


@pytest.mark.parametrize("dims", [MIXED.dims, dict.fromkeys("abcd", 3)], ids=["mixed", "equal"])
@pytest.mark.parametrize("privacy", ["standard", "strict"])
def test_all_protocols_reach_stationary_points_of_one_potential(dims, privacy) -> None:
    """Transporting ends see maps that are one fit old: no proof, but the same limit."""
    problem = Problem(dims, MIXED.edges)
    eta = 1 / problem.lipschitz
    last = trajectory(problem.network(lambda t: eta, privacy=privacy), 70)[-1]
    start = problem.square(problem.gradient(problem.W0))
    assert problem.square(problem.gradient(last)) < 1e-6 * start
    assert problem.infimum < problem.potential(last) < problem.potential(problem.W0)


# The printed objective


def printed_gradient(problem: Problem, w: Weights, weight: float = LAMBDA) -> Weights:
    """Of eq. loss_convergence: an edge stands in both ends' penalties, with lambda_i + lambda_j."""
    ones = dict.fromkeys(problem.dims, 1.0)
    d = problem.dims
    return problem.weighted_gradient(w, ones, lambda i, j: weight / d[i] + weight / d[j])


def test_with_equal_sizes_the_update_descends_the_printed_objective_at_half_the_weight() -> None:
    """A documented fact: both ends count the edge, but each differentiates its own term only."""
    problem = Problem(dict.fromkeys("abcd", 3), MIXED.edges, metric="common")
    w = problem.W0
    update = {n: g / problem.dims[n] for n, g in problem.gradient(w).items()}
    half, whole = printed_gradient(problem, w, LAMBDA / 2), printed_gradient(problem, w)
    for n in problem.dims:
        np.testing.assert_allclose(update[n], half[n], rtol=1e-10, atol=1e-12)
        assert np.abs(update[n] - whole[n]).max() > 0.01 * np.abs(update[n]).max()


def test_with_mixed_sizes_the_update_descends_no_rescaling_of_the_printed_objective() -> None:
    """A documented fact (DESIGN), seen on real nodes: an agent whose neighbours differ in
    size moves outside the span of its two gradients in the printed J, whatever lambda and step.
    """
    w = MIXED.W0
    net = MIXED.network(lambda t: 1e-3)
    after = trajectory(net, 1)[-1]
    none = dict.fromkeys(MIXED.dims, 0.0)
    ones = dict.fromkeys(MIXED.dims, 1.0)
    d = MIXED.dims
    local = MIXED.weighted_gradient(w, ones, lambda i, j: 0.0)
    for name in ("a", "d"):  # with neighbours of sizes 2 and 3
        moved = (w[name] - after[name]).ravel()
        outside = {}
        for kind, weight in [
            ("potential", lambda i, j: 1.0),
            ("printed", lambda i, j: 1 / d[i] + 1 / d[j]),
        ]:
            penalty = MIXED.weighted_gradient(w, none, weight)[name]
            basis = np.stack([local[name].ravel(), penalty.ravel()], 1)
            rest = moved - basis @ np.linalg.lstsq(basis, moved, rcond=None)[0]
            outside[kind] = np.linalg.norm(rest) / np.linalg.norm(moved)
        assert outside["potential"] < 1e-9
        assert outside["printed"] > 1e-3


def test_a_limit_of_the_run_is_stationary_for_the_potential_and_not_for_the_printed_j() -> None:
    eta = 1 / COMMON.lipschitz
    last = trajectory(COMMON.network(lambda t: eta), 120)[-1]
    start = COMMON.square(COMMON.gradient(COMMON.W0))
    assert COMMON.square(COMMON.gradient(last)) < 1e-12 * start
    for weight in (LAMBDA, LAMBDA / 2):
        printed = printed_gradient(COMMON, last, weight)
        ours = {n: COMMON.dims[n] * g for n, g in printed.items()}
        assert COMMON.square(ours) > 1e-5 * start


# The stochastic theorems

SEEDS = range(6)


class Noisy(Problem):
    """Zero-mean noise on the gradient, from each agent's own stream: the variance is exact."""

    spread = 0.6

    def network_of(self, eta: Callable[[int], float], seed: int) -> Network:
        def noisy(agent: Agent, batch: Batch) -> Tensor:
            weight = agent.encoder.weight
            noise = torch.randn(weight.shape, dtype=weight.dtype)
            return least_squares(agent, batch) + self.spread * (noise * weight).sum()

        return self.network(eta, seed=seed, objective=lambda name: noisy)

    @property
    def variance(self) -> float:
        """The gradient of the potential is d_i times that of L_i."""
        return sum(
            (d * self.spread) ** 2 * self.W0[n].size / self.metric_of(n)
            for n, d in self.dims.items()
        )


class Batches(Problem):
    r"""Mini-batches of 6 of 10: $L_i(W) = \frac{1}{2n} \sum_k \|W - Y_k\|^2$.

    A pass holds one batch only, so each is a fresh draw without replacement: unbiased, with
    variance $\frac{S^2}{b} (1 - \frac bn)$ whatever W is.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        for k, (name, d) in enumerate(self.dims.items()):
            x, p = self.samples[name][0], len(self.W0[name])
            y = 4 * normal(500 + k, 10, d, p) + normal(600 + k, d, p)
            self.samples[name] = (x, y)
            centre = y.mean(0)
            spread = float((y - centre).square().sum())
            self._add(name, np.eye(p), centre.T.numpy(), spread / 20)

    def network_of(self, eta: Callable[[int], float], seed: int) -> Network:
        def towards(agent: Agent, batch: Batch) -> Tensor:
            return (agent.encoder.weight - batch.targets).square().sum() / (2 * len(batch.targets))

        return self.network(eta, seed=seed, objective=lambda name: towards, batch_size=6)

    @property
    def variance(self) -> float:
        return sum(
            d**2 * (20 * self.floor[n] / 9) / 6 * (1 - 6 / 10) / self.metric_of(n)
            for n, d in self.dims.items()
        )


PAIR = ({"a": 4, "b": 2}, [("a", "b")])
STOCHASTIC = [Noisy(*PAIR), Batches(*PAIR, metric="common")]
stochastic = pytest.mark.parametrize("problem", STOCHASTIC, ids=["noise", "batches"])


def squares_of(problem: Problem, eta: Callable[[int], float], rounds: int, seed: int) -> np.ndarray:
    path = trajectory(problem.network_of(eta, seed), rounds)
    return np.array([problem.square(problem.gradient(w)) for w in path])


@stochastic
def test_the_noise_is_unbiased_and_has_the_variance_it_claims(problem) -> None:
    """From 80 first steps: the assumptions ass:unbiased and ass:var, before their consequence."""
    eta = 1e-2
    gradient = problem.gradient(problem.W0)
    errors = []
    for seed in range(80):
        net = problem.network_of(lambda t: eta, seed)
        net.round(0)
        after = weights(net)
        errors.append(
            np.concatenate(
                [
                    ((problem.W0[n] - after[n]) * d / problem.rate(n, eta) - gradient[n]).ravel()
                    / np.sqrt(problem.metric_of(n))
                    for n, d in problem.dims.items()
                ]
            )
        )
    noise = np.array(errors)
    size = np.sum(noise**2, 1)
    deviation = size.std() / np.sqrt(len(size))
    assert abs(size.mean() - problem.variance) < 5 * deviation
    assert np.sum(noise.mean(0) ** 2) < 2 * problem.variance / len(noise)


@stochastic
def test_the_stochastic_rate(problem) -> None:
    """thm:stochastic_rate_V for three horizons, the expectation a mean over 6 seeds."""
    L, variance, gap = problem.lipschitz, problem.variance, problem.gap
    start = problem.square(problem.gradient(problem.W0))
    branches = set()
    for horizon in (4, 12, 32):
        eta = lr_schedules.optimised(L, variance, gap, horizon)
        runs = np.array([squares_of(problem, eta, horizon, seed) for seed in SEEDS])
        bound = 2 * np.sqrt(2 * L * variance * gap / (horizon + 1)) + 2 * L * gap / (horizon + 1)
        mean = runs.mean(0)
        assert mean.min() <= bound
        # The proof bounds the average over t as well, at 2 gap / (eta (T+1)) + L eta sigma^2.
        assert mean.mean() <= 2 * gap / (eta(0) * (horizon + 1)) + L * eta(0) * variance
        assert runs[:, -1].std() > 0.1 * runs[:, -1].mean()  # there was noise
        branches.add(eta(0) < 1 / L)
    assert branches == {True, False}  # of the minimum in the step
    assert start > bound  # standing still would have failed


@stochastic
def test_robbins_monro_steps_sum_up(problem) -> None:
    """thm:stochastic_as_V: sum eta_t |grad|^2 flattens and the potential settles.

    A constant step on the same noise does neither.
    """
    rounds, L = 100, problem.lipschitz
    falling = lr_schedules.robbins_monro(L, power=0.9, offset=5)
    added, settled, sums = [], [], []
    for eta, seed in [(falling, 0), (falling, 1), (lr_schedules.constant(L), 0)]:
        path = trajectory(problem.network_of(eta, seed), rounds)
        squares = [problem.square(problem.gradient(w)) for w in path[:-1]]
        sums.append(np.cumsum([eta(t) * s for t, s in enumerate(squares)]))
        added.append(1 - sums[-1][rounds // 2] / sums[-1][-1])
        settled.append(np.std([problem.potential(w) for w in path[-30:]]))
    assert max(added[:2]) < 0.05
    assert added[2] > 0.3
    assert max(settled[:2]) < 0.25 * settled[2]
    # Robbins-Siegmund in expectation: sum_t eta_t E|grad|^2 <= 2 gap + L sigma^2 sum_t eta_t^2.
    allowed = 2 * problem.gap + L * problem.variance * sum(falling(t) ** 2 for t in range(rounds))
    assert np.mean([total[-1] for total in sums[:2]]) <= allowed
