"""The Procrustes step against SciPy, its optimality condition and brute force."""

import warnings

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sheafed.errors import (
    DtypeError,
    IllConditionedWarning,
    InputError,
    ManifoldError,
    NonFiniteError,
    ShapeError,
    UndeterminedMapWarning,
)
from sheafed.linalg import (
    check_isometry,
    cross_covariance,
    misalignment,
    polar_factor,
    procrustes,
)
from tests.helpers.matrices import (
    PROPERTY,
    TOLERANCE,
    deviation,
    normal,
    orthonormal,
    pilots_of,
    residual,
    rng,
    with_spectrum,
)
from tests.helpers.matrices import misalignment as oracle_misalignment

ROUTES = ["svd", "gram"]


def random_minimiser(m: Tensor, rank: int, seed: int) -> Tensor:
    """The leading part that `m` determines, completed by an isometry drawn at random."""
    u, _, wt = (torch.from_numpy(x) for x in np.linalg.svd(m.double().numpy()))
    free = orthonormal(seed, m.shape[0] - rank, m.shape[1] - rank)
    return u[:, :rank] @ wt[:rank] + u[:, rank:] @ free @ wt[rank:]


def retract(v: Tensor) -> Tensor:
    """The isometry near `v` that a QR decomposition gives."""
    q, r = torch.linalg.qr(v)
    return q * r.diagonal().sign()


# Against SciPy


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("d", [1, 2, 7, 20])
def test_squares_agree_with_scipy(d: int, route: str, dtype: torch.dtype) -> None:
    a, b = normal(1, 40, d, dtype=dtype), normal(2, 40, d, dtype=dtype)
    b = b + a @ orthonormal(3, d, d, dtype)
    # SciPy minimises |b R - a|, and rows are carried by V^T: a = b V^T.
    rotation, _ = scipy.linalg.orthogonal_procrustes(b.double().numpy(), a.double().numpy())
    v = procrustes(a, b, route=route)
    assert v.dtype == dtype
    assert deviation(v.mT, rotation) < 3 * TOLERANCE[dtype]
    if d > 2:  # a reflection of the plane is its own transpose
        assert deviation(v, rotation) > 0.1


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("shape", [(3, 3), (9, 4), (6, 1), (1, 1)])
def test_polar_factor_agrees_with_scipy(shape: tuple[int, int], route: str, dtype) -> None:
    m = normal(4, *shape, dtype=dtype)
    expected, _ = scipy.linalg.polar(m.double().numpy())
    assert deviation(polar_factor(m, route=route), expected) < 10 * TOLERANCE[dtype]


@pytest.mark.parametrize("route", ROUTES)
def test_batches_are_solved_one_by_one(route: str, dtype: torch.dtype) -> None:
    a, b = normal(5, 2, 3, 30, 6, dtype=dtype), normal(6, 2, 3, 30, 4, dtype=dtype)
    v = procrustes(a, b, route=route)
    assert v.shape == (2, 3, 6, 4)
    for i, j in np.ndindex(2, 3):
        expected, _ = scipy.linalg.polar((a[i, j].mT @ b[i, j]).double().numpy())
        assert deviation(v[i, j], expected) < 10 * TOLERANCE[dtype]


# Optimality


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("large", "small"), [(5, 5), (8, 3), (6, 1)])
def test_the_stiefel_optimality_condition_holds(large: int, small: int, route: str, dtype) -> None:
    a, b = normal(7, 50, large, dtype=dtype), normal(8, 50, small, dtype=dtype)
    v = procrustes(a, b, route=route)
    assert deviation(v.mT @ v, torch.eye(small)) < TOLERANCE[dtype]
    # V^T M is symmetric positive semidefinite, and its trace is the nuclear norm of M.
    s = v.mT.double() @ a.mT.double() @ b.double()
    assert deviation(s, s.mT) < 100 * TOLERANCE[dtype]
    assert float(torch.linalg.eigvalsh((s + s.mT) / 2).min()) > -100 * TOLERANCE[dtype]
    nuclear = np.linalg.svd((a.mT.double() @ b.double()).numpy(), compute_uv=False).sum()
    assert float(s.trace()) == pytest.approx(nuclear, rel=10 * TOLERANCE[dtype])
    # M is V (V^T M): nothing of M lies outside the range of V.
    assert deviation(v.double() @ s, a.mT.double() @ b.double()) < 100 * TOLERANCE[dtype]


@pytest.mark.parametrize("step", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize(("large", "small"), [(4, 4), (6, 3)])
def test_no_other_isometry_does_better(large: int, small: int, step: float) -> None:
    a, b = normal(9, 25, large), normal(10, 25, small)
    v = procrustes(a, b)
    best = float(residual(a, b, v))
    for seed in range(60):
        other = retract(v + step * normal(100 + seed, large, small))
        assert float(((a - b @ other.mT) ** 2).sum()) >= best - 1e-9
        drawn = orthonormal(500 + seed, large, small)
        assert float(((a - b @ drawn.mT) ** 2).sum()) > best


def test_no_other_angle_does_better_in_the_plane() -> None:
    """Brute force over both components of O(2)."""
    a, b = normal(11, 9, 2), normal(12, 9, 2)
    angles = np.linspace(0, 2 * np.pi, 20001)
    rotations = np.array([[np.cos(angles), -np.sin(angles)], [np.sin(angles), np.cos(angles)]])
    both = np.concatenate([rotations, rotations * np.array([1, -1])[None, :, None]], axis=2)
    maps = torch.from_numpy(both).permute(2, 0, 1)
    every = (a - b @ maps.mT).square().sum((-2, -1))
    best = residual(a, b, procrustes(a, b))
    assert float(best) <= float(every.min())
    assert float(best) == pytest.approx(float(every.min()), abs=1e-5)


def test_the_residual_is_measured_in_the_larger_space() -> None:
    """|A_i V - A_j| has another minimiser: it cannot be what is minimised here."""
    a = normal(13, 40, 5) * torch.tensor([10.0, 3.0, 1.0, 0.3, 0.1], dtype=torch.float64)
    b = normal(14, 40, 2) + a[:, 3:] @ torch.ones(2, 2, dtype=torch.float64)
    v = procrustes(a, b)

    def smaller_space(w: Tensor) -> float:
        return float((a @ w - b).square().sum())

    def larger_space(w: Tensor) -> float:
        return float((a - b @ w.mT).square().sum())

    other = v.clone()
    for _ in range(1500):  # Riemannian descent on the objective in the smaller space
        other = retract(other - 1e-4 * a.mT @ (a @ other - b))
    assert smaller_space(other) < 0.5 * smaller_space(v)
    assert larger_space(v) < larger_space(other) - 1
    assert larger_space(v) != pytest.approx(smaller_space(v), rel=0.01)


# Orientation


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("large", "small"), [(6, 6), (9, 4), (5, 1)])
def test_a_planted_isometry_is_recovered(large: int, small: int, route: str, dtype) -> None:
    planted = orthonormal(15, large, small, dtype)
    b = normal(16, 30, small, dtype=dtype)
    a = b @ planted.mT
    v = procrustes(a, b, route=route)
    assert deviation(v, planted) < 5 * TOLERANCE[dtype]
    assert deviation(b @ v.mT, a) < 20 * TOLERANCE[dtype]
    assert deviation(a @ v, b) < 20 * TOLERANCE[dtype]
    found = misalignment(a, b @ v.mT)
    assert found is not None
    assert found < TOLERANCE[dtype]


def test_the_map_stands_upright_whichever_side_is_smaller(dtype: torch.dtype) -> None:
    a, b = normal(17, 20, 3, dtype=dtype), normal(18, 20, 7, dtype=dtype)
    assert cross_covariance(a, b).shape == (7, 3)
    assert torch.equal(cross_covariance(a, b), b.mT @ a)
    assert torch.equal(cross_covariance(b, a), b.mT @ a)
    assert torch.equal(procrustes(a, b), procrustes(b, a))
    assert procrustes(a, b).shape == (7, 3)


def test_on_ties_the_first_is_the_head(dtype: torch.dtype) -> None:
    a, b = normal(19, 20, 4, dtype=dtype), normal(20, 20, 4, dtype=dtype)
    assert torch.equal(cross_covariance(a, b), a.mT @ b)
    assert deviation(procrustes(a, b), procrustes(b, a).mT) < 10 * TOLERANCE[dtype]
    carried = residual(a, b, procrustes(a, b))
    assert float(carried) < 0.95 * float(residual(a, b, procrustes(b, a)))


def test_the_pilots_and_their_cross_covariance_ask_for_the_same_map(dtype: torch.dtype) -> None:
    a, b = normal(21, 60, 6, dtype=dtype), normal(22, 60, 4, dtype=dtype)
    running = cross_covariance(a[:20], b[:20]) + cross_covariance(a[20:], b[20:])
    assert deviation(polar_factor(running), procrustes(a, b)) < 10 * TOLERANCE[dtype]
    assert deviation(polar_factor(running / 60), procrustes(a, b)) < 10 * TOLERANCE[dtype]


@PROPERTY
@given(
    seed=st.integers(0, 10**6),
    small=st.integers(1, 6),
    extra=st.integers(0, 5),
    decades=st.floats(0, 4),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
    route=st.sampled_from(ROUTES),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_columns_are_always_orthonormal(seed, small, extra, decades, scale, route, dtype) -> None:
    spectrum = scale * np.geomspace(1, 10**-decades, small)
    v = polar_factor(with_spectrum(seed, small + extra, spectrum, dtype), route=route)
    assert deviation(v.mT @ v, torch.eye(small)) < (1e-5 if dtype == torch.float32 else 1e-7)


@PROPERTY
@given(seed=st.integers(0, 10**6), small=st.integers(1, 5), extra=st.integers(0, 4))
def test_turning_the_latents_turns_the_map(seed: int, small: int, extra: int) -> None:
    large = small + extra
    a, b = normal(seed, 20, large), normal(seed + 1, 20, small)
    v = procrustes(a, b)
    p, q = orthonormal(seed + 2, large, large), orthonormal(seed + 3, small, small)
    if extra == 0 or float(torch.linalg.svdvals(a.mT @ b).min()) > 1e-2:
        assert deviation(procrustes(a @ p.mT, b @ q.mT), p @ v @ q.mT) < 1e-9


# Scales

SCALES = {torch.float32: [1e-38, 1e-23, 1e18, 1e36], torch.float64: [1e-300, 1e-160, 1e150, 1e300]}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("route", ROUTES)
def test_latents_of_any_scale_have_the_map_of_ordinary_ones(route: str, dtype) -> None:
    a, b = normal(80, 50, 6, dtype=dtype), normal(81, 50, 4, dtype=dtype)
    expected, _ = scipy.linalg.polar((a.mT.double() @ b.double()).numpy())
    for scale in SCALES[dtype]:
        for x, y in ((scale * a, scale * b), (scale * a, b), (torch.stack([scale * a, a]), None)):
            v = procrustes(x, torch.stack([b, scale * b]) if y is None else y, route=route)
            assert deviation(v, torch.from_numpy(expected).expand_as(v)) < 10 * TOLERANCE[dtype]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("route", ROUTES)
def test_cross_covariances_of_any_scale(route: str, dtype: torch.dtype) -> None:
    m = with_spectrum(82, 7, [3.0, 2.0, 1.0], dtype)
    for scale in SCALES[dtype]:
        assert deviation(polar_factor(scale * m, route=route), polar_factor(m)) < TOLERANCE[dtype]


@pytest.mark.parametrize("route", ROUTES)
def test_powers_of_two_do_not_change_a_bit(route: str, dtype: torch.dtype) -> None:
    """From ordinary scales, where nothing is divided, to those where both factors are."""
    a, b = normal(83, 50, 9, dtype=dtype), normal(84, 50, 7, dtype=dtype)
    expected = procrustes(a, b, route=route)
    limit = 100 if dtype == torch.float32 else 1000
    for i, j in [(3, -5), (20, 20), (-limit, 0), (0, limit), (-limit, -limit), (limit, limit)]:
        assert torch.equal(procrustes(2.0**i * a, 2.0**j * b, route=route), expected)


# The Gram route


@pytest.mark.parametrize("decades", [0, 1, 2, 3, 4, 4.9])
@pytest.mark.parametrize("shape", [(16, 16), (24, 10)])
def test_gram_keeps_five_digits_in_single_precision(shape: tuple[int, int], decades) -> None:
    m = with_spectrum(23, shape[0], np.geomspace(1, 10**-decades, shape[1]), torch.float32)
    exact, _ = scipy.linalg.polar(m.double().numpy())
    assert deviation(polar_factor(m, route="gram"), exact) < 1e-5


@pytest.mark.parametrize(("decades", "tolerance"), [(0, 1e-14), (1, 1e-12), (3, 1e-9), (4.9, 1e-5)])
@pytest.mark.parametrize("shape", [(16, 16), (24, 10)])
def test_gram_keeps_more_in_double_precision(shape, decades: float, tolerance: float) -> None:
    m = with_spectrum(24, shape[0], np.geomspace(1, 10**-decades, shape[1]))
    exact, _ = scipy.linalg.polar(m.numpy())
    assert deviation(polar_factor(m, route="gram"), exact) < tolerance
    assert deviation(polar_factor(m), exact) < 1e-10


@pytest.mark.parametrize("decades", [5.1, 7, 10])
def test_gram_falls_back_audibly_and_rightly(decades: float) -> None:
    m = with_spectrum(25, 12, np.geomspace(1, 10**-decades, 8))
    exact, _ = scipy.linalg.polar(m.numpy())
    with pytest.warns(IllConditionedWarning, match=r"\(12, 8\) .*ratio of .*e-.*needs 1e-10"):
        v = polar_factor(m, route="gram")
    assert deviation(v, exact) < 10 ** (decades - 15)
    healthy = with_spectrum(26, 12, np.geomspace(1, 0.1, 8))
    with pytest.warns(IllConditionedWarning):
        both = polar_factor(torch.stack([healthy, m]), route="gram")
    assert deviation(both[0], polar_factor(healthy)) < 1e-13
    assert torch.equal(both[1], v)


def test_gram_falls_back_in_single_precision_to_a_double_precision_svd() -> None:
    m = with_spectrum(25, 12, np.geomspace(1, 10**-5.2, 8), torch.float32)
    exact, _ = scipy.linalg.polar(m.double().numpy())
    with pytest.warns(IllConditionedWarning):
        v = polar_factor(m, route="gram")
    assert v.dtype == torch.float32
    assert deviation(v, exact) < 1e-6


@pytest.mark.parametrize("route", ROUTES)
def test_both_routes_draw_the_line_of_the_rank_alike(route: str) -> None:
    """256 rows in float32: singular values below 3e-5 of the largest count as zero."""
    weak = with_spectrum(27, 256, [1, 1, 1, 2e-5], torch.float32)
    strong = with_spectrum(27, 256, [1, 1, 1, 5e-5], torch.float32)
    polar_factor(strong, route=route)  # without a word
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        polar_factor(weak, route=route)
    assert UndeterminedMapWarning in [warning.category for warning in caught]


# Maps that are not determined


@pytest.mark.parametrize(
    ("large", "small", "rank"), [(6, 6, 2), (8, 5, 4), (5, 5, 4), (4, 3, 0), (7, 1, 0)]
)
def test_an_undetermined_map_is_announced(large: int, small: int, rank: int, dtype) -> None:
    m = with_spectrum(28, large, [2.0] * rank + [0.0] * (small - rank), dtype)
    text = rf"\({large}, {small}\) has rank {rank}: .* subspace of dimension {small - rank};"
    with pytest.warns(UndeterminedMapWarning, match=text):
        v = polar_factor(m)
    assert deviation(v.mT @ v, torch.eye(small)) < TOLERANCE[dtype]
    assert float((v * m).sum()) == pytest.approx(2 * rank, abs=1e-4)
    with pytest.warns(IllConditionedWarning), pytest.warns(UndeterminedMapWarning, match=text):
        w = polar_factor(m, route="gram")
    assert deviation(w.mT @ w, torch.eye(small)) < TOLERANCE[dtype]


def test_too_few_pilots_are_announced_whatever_their_size_and_position(dtype) -> None:
    for seed in range(40):
        d, extra = int(rng(seed).integers(3, 40)), int(rng(seed + 1).integers(0, 20))
        count = int(rng(seed + 2).integers(1, d))
        a = normal(seed, count, d + extra, dtype=dtype) + 5 * (seed % 2)
        b = 1e3 * normal(seed + 3, count, d, dtype=dtype)
        with pytest.warns(UndeterminedMapWarning, match=f"rank {count}: .*dimension {d - count};"):
            procrustes(a, b)


def test_a_batch_announces_its_lowest_rank() -> None:
    batch = torch.stack([with_spectrum(i, 5, [1.0] * (4 - i) + [0.0] * i) for i in range(3)])
    with pytest.warns(UndeterminedMapWarning, match="rank 2: .*dimension 2;"):
        polar_factor(batch)


def test_warnings_point_at_the_caller() -> None:
    a, b = normal(0, 2, 4), normal(1, 2, 4)
    with pytest.warns(UndeterminedMapWarning) as caught:
        procrustes(a, b)
    assert caught[0].filename == __file__
    with pytest.warns(UndeterminedMapWarning) as caught:
        polar_factor(cross_covariance(a, b))
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("large", "small", "rank"), [(6, 6, 2), (8, 5, 3), (5, 5, 4), (9, 4, 3), (5, 3, 0)]
)
def test_the_minimiser_nearest_to_the_previous_map(
    large: int, small: int, rank: int, dtype
) -> None:
    m = with_spectrum(29, large, [*np.linspace(3, 1, rank), *[0.0] * (small - rank)], dtype)
    previous = orthonormal(30, large, small, dtype)
    v = polar_factor(m, previous=previous)  # without a warning
    nuclear = np.linalg.svd(m.double().numpy(), compute_uv=False).sum()
    assert v.dtype == dtype
    assert deviation(v.mT @ v, torch.eye(small)) < TOLERANCE[dtype]
    assert float((v * m).sum()) == pytest.approx(nuclear, abs=1e-4)
    distance = float((v - previous).norm())
    for seed in range(50):
        other = random_minimiser(m, rank, 700 + seed)
        assert float((other * m).sum()) == pytest.approx(nuclear, abs=1e-4)
        assert float((other - previous).norm()) >= distance - 1e-5
    # Nor is there a nearer one close by: turn the free part a little.
    _, _, wt = np.linalg.svd(m.double().numpy())
    free = torch.from_numpy(wt[rank:])
    for seed in range(20):
        generator = 1e-2 * normal(800 + seed, len(free), len(free))
        turn = torch.linalg.matrix_exp(generator - generator.mT)
        other = v.double() + v.double() @ free.mT @ (turn - torch.eye(len(free))) @ free
        assert float((other - previous).norm()) >= distance - 1e-5


def test_a_compatible_previous_map_is_kept(dtype: torch.dtype) -> None:
    m = with_spectrum(31, 7, [3.0, 2.0, 0.0, 0.0, 0.0], dtype)
    previous = random_minimiser(m, 2, 5).to(dtype)
    assert deviation(polar_factor(m, previous=previous), previous) < 20 * TOLERANCE[dtype]
    # Wrong where M speaks, compatible where it is silent: kept there, corrected here.
    _, _, wt = np.linalg.svd(m.double().numpy())
    silent = torch.from_numpy(wt[2:]).to(dtype)
    turned = previous @ (torch.eye(5, dtype=dtype) - 2 * (silent.mT @ silent))
    turned = -turned  # agrees with `previous` on the silent subspace and is its opposite elsewhere
    assert deviation(polar_factor(m, previous=turned), previous) < 20 * TOLERANCE[dtype]


def test_a_previous_map_into_the_determined_part_is_completed(dtype: torch.dtype) -> None:
    """It says nothing of the complement, where any isometry is as near."""
    m = torch.zeros(5, 3, dtype=dtype)
    m[0, 0], m[1, 1] = 2.0, 1.0
    previous = torch.eye(5, 3, dtype=dtype)[
        :, [1, 2, 0]
    ]  # the silent direction goes onto the first
    v = polar_factor(m, previous=previous)
    assert deviation(v.mT @ v, torch.eye(3, dtype=dtype)) < TOLERANCE[dtype]
    assert float((v * m).sum()) == pytest.approx(3.0)


def test_a_silent_cross_covariance_keeps_the_previous_map(dtype: torch.dtype) -> None:
    previous = orthonormal(32, 6, 4, dtype)
    found = polar_factor(torch.zeros(6, 4, dtype=dtype), previous=previous)
    assert deviation(found, previous) < TOLERANCE[dtype]


@pytest.mark.parametrize("route", ROUTES)
def test_a_determined_map_does_not_look_back(route: str, dtype: torch.dtype) -> None:
    m = with_spectrum(33, 6, [3.0, 2.0, 1.0], dtype)
    previous = orthonormal(34, 6, 3, dtype)
    assert torch.equal(
        polar_factor(m, route=route, previous=previous), polar_factor(m, route=route)
    )


@pytest.mark.parametrize("square", [True, False])
def test_previous_maps_of_a_batch_with_mixed_ranks(square: bool, dtype: torch.dtype) -> None:
    rows = 4 if square else 6
    spectra = [[1.0] * rank + [0.0] * (4 - rank) for rank in (0, 1, 3, 4)]
    m = torch.stack([with_spectrum(i, rows, s, dtype) for i, s in enumerate(spectra)])
    previous = torch.stack([orthonormal(40 + i, rows, 4, dtype) for i in range(4)])
    m, previous = m.reshape(2, 2, rows, 4), previous.reshape(2, 2, rows, 4)
    found = polar_factor(m, previous=previous)
    assert found.shape == m.shape
    for i, j in np.ndindex(2, 2):
        alone = polar_factor(m[i, j], previous=previous[i, j])
        assert deviation(found[i, j], alone) < 10 * TOLERANCE[dtype]
    with pytest.warns(IllConditionedWarning):
        by_gram = polar_factor(m, route="gram", previous=previous)
    assert by_gram.dtype == dtype
    assert deviation(by_gram, found) < 10 * TOLERANCE[dtype]


def test_previous_reaches_the_solver_through_the_pilots() -> None:
    a, b = normal(50, 3, 6), normal(51, 3, 5)
    previous = orthonormal(52, 6, 5)
    v = procrustes(a, b, previous=previous)
    assert torch.equal(v, polar_factor(cross_covariance(a, b), previous=previous))


# Misalignment


def test_misalignment_follows_its_formula(dtype: torch.dtype) -> None:
    a, b = normal(53, 12, 5, dtype=dtype), normal(54, 12, 3, dtype=dtype)
    v = orthonormal(55, 5, 3, dtype)
    expected = oracle_misalignment(a, b, v)
    assert misalignment(a, b @ v.mT) == pytest.approx(expected, rel=1e-5)
    tail_energy = float(b.square().sum())
    assert misalignment(a, b @ v.mT, tail_energy) == pytest.approx(expected, rel=1e-5)


def test_misalignment_is_0_if_aligned_1_if_unrelated_and_2_if_opposed(dtype: torch.dtype) -> None:
    a, b = normal(59, 12, 5, dtype=dtype), normal(57, 12, 5, dtype=dtype)
    assert misalignment(b, b) == 0
    assert misalignment(-b, b) == pytest.approx(2, rel=1e-5)
    basis = orthonormal(58, 12, 10, dtype)
    assert misalignment(basis[:, :5], basis[:, 5:]) == pytest.approx(1, rel=1e-5)
    assert misalignment(10 * a, 10 * b) == pytest.approx(misalignment(a, b))
    assert misalignment(torch.zeros(5, 3), torch.zeros(5, 3)) is None


def test_misalignment_is_of_any_scale(dtype: torch.dtype) -> None:
    a, b = normal(69, 12, 5, dtype=dtype), normal(71, 12, 5, dtype=dtype)
    limit = 100 if dtype == torch.float32 else 1000
    for exponent in (-limit, -20, 20, limit):
        scale = 2.0**exponent
        assert misalignment(scale * a, scale * b) == misalignment(a, b)
    assert misalignment(2.0**-limit * a, b) == pytest.approx(1)
    assert misalignment(2.0**30 * a, 2.0**30 * b, 2.0**60 * 7) == misalignment(a, b, 7.0)


def test_misalignment_checks_its_latents() -> None:
    a, b = normal(67, 9, 4), normal(68, 9, 3)
    with pytest.raises(ShapeError, match=r"one space, got shapes \(9, 4\) and \(9, 3\)"):
        misalignment(a, b)
    with pytest.raises(ShapeError, match=r"own and carried .*\(9, 4\) and \(8, 4\)"):
        misalignment(a, a[:8])
    with pytest.raises(NonFiniteError, match="carried holds 36"):
        misalignment(a, a * torch.nan)
    with pytest.raises(DtypeError, match=r"one dtype, got .*float64 and .*float32"):
        misalignment(a, a.float())


# Isometries


@pytest.mark.parametrize("shape", [(4, 4), (200, 64), (3, 1)])
def test_isometries_pass(shape: tuple[int, int], dtype: torch.dtype) -> None:
    v = orthonormal(63, *shape, dtype)
    assert check_isometry("v", v) is v
    batch = v.expand(2, *shape)
    assert check_isometry("v", batch) is batch


def test_other_matrices_do_not(dtype: torch.dtype) -> None:
    v = orthonormal(64, 6, 3, dtype)
    with pytest.raises(ManifoldError, match=r"V_12 .* by 2.1\de-01, allowed is .*polar_factor"):
        check_isometry("V_12", 1.1 * v)
    with pytest.raises(ManifoldError, match=r"V_12 .*\(3, 6\); transpose"):
        check_isometry("V_12", v.mT)
    with pytest.raises(ManifoldError, match="off its manifold"):
        check_isometry("V_12", torch.stack([v, 1.01 * v]))
    with pytest.raises(ManifoldError, match="off its manifold"):
        check_isometry("V_12", v[:, [0, 1, 1]])
    with pytest.raises(NonFiniteError, match="V_12 holds 18"):
        check_isometry("V_12", v * torch.nan)


def test_the_tolerance_suits_the_precision_unless_given() -> None:
    v = orthonormal(65, 6, 3)
    slightly_off = (1 + 1e-6) * v
    check_isometry("v", slightly_off.float())
    with pytest.raises(ManifoldError, match=r"2.00e-06, allowed is 1.33e-13"):
        check_isometry("v", slightly_off)
    check_isometry("v", slightly_off, tolerance=1e-5)
    with pytest.raises(ManifoldError, match=r"allowed is 1.00e-06"):
        check_isometry("v", slightly_off, tolerance=1e-6)


# Refusals


def test_what_cannot_be_solved_is_refused() -> None:
    m = normal(66, 4, 3)
    with pytest.raises(ShapeError, match=r"\(3, 4\); transpose"):
        polar_factor(m.mT)
    with pytest.raises(ShapeError, match=r"\(4, 3\), got \(4, 4\)"):
        polar_factor(m, previous=torch.eye(4, dtype=torch.float64))
    with pytest.raises(NonFiniteError, match="previous holds 12"):
        polar_factor(m, previous=m * torch.inf)
    with pytest.raises(DtypeError, match="previous must be a torch tensor, got list"):
        polar_factor(m, previous=[[1.0]])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="route must be 'svd' or 'gram', got 'qr'"):
        polar_factor(m, route="qr")  # type: ignore[arg-type]
    with pytest.raises(NonFiniteError, match="m holds 12"):
        polar_factor(m * torch.nan)
    with pytest.raises(ShapeError, match=r"a and b .*\(5, 3\) and \(6, 3\)"):
        procrustes(torch.ones(5, 3), torch.ones(6, 3))


def test_exact_pilots_of_a_cross_covariance() -> None:
    """The helper of these tests is right."""
    m = with_spectrum(70, 5, [3.0, 2.0, 1.0])
    a, b = pilots_of(m, 8)
    assert deviation(cross_covariance(a, b), m) < 1e-14
    assert deviation(torch.linalg.svdvals(m), np.array([3.0, 2.0, 1.0])) < 1e-13
