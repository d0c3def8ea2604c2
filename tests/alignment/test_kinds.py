import numpy as np
import pytest
import torch
from sklearn.cross_decomposition import CCA
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge, RidgeCV

from sheafed.alignment import (
    CanonicalMap,
    HeldOut,
    LeastSquaresMap,
    LowRankMap,
    ProcrustesMap,
    RescaledRidgeMap,
    RidgeMap,
    fit_map,
)
from sheafed.alignment.kinds import kinds_of
from sheafed.alignment.selection import best_option, choose_each
from sheafed.alignment.shared_pilots import PENALTIES
from sheafed.errors import InputError, ShapeError, SingularCovarianceError

GOALS = ("read", "match", "search")
KINDS = ("procrustes", "ridge", "rescaled-ridge", "affine", "low-rank", "canonical")


def anisotropic(n, d_x, d_y, rank=10, noise=0.3, seed=0):
    """Two noisy views of a source whose directions differ in variance."""
    rng = np.random.default_rng(seed)
    source = rng.standard_normal((n, rank)) / np.arange(1, rank + 1)
    x, y = (
        source @ rng.standard_normal((rank, d)) + noise * rng.standard_normal((n, d)) + 2
        for d in (d_x, d_y)
    )
    return x, y


@pytest.mark.parametrize("shape", [(80, 12, 9), (30, 40, 50)])
def test_ridge_is_that_of_scikit_learn_by_leaving_one_out(shape):
    x, y = anisotropic(*shape)
    rank = min(len(x) - 1, x.shape[1])
    unit = ((x - x.mean(0)) ** 2).sum() / rank
    expected = RidgeCV(alphas=[unit * p for p in PENALTIES]).fit(x, y / y.std(0))
    found = fit_map(x, y, "ridge")
    assert found.kind.penalty == pytest.approx(expected.alpha_)
    np.testing.assert_allclose(
        found.map.transform(x), expected.predict(x) * y.std(0), rtol=1e-6, atol=1e-7
    )
    fixed = RidgeMap(penalty=2.0).fit(x, y)
    reference = Ridge(alpha=2.0, solver="svd").fit(x, y)
    np.testing.assert_allclose(fixed.transform(x), reference.predict(x), rtol=1e-7)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_rescaled_ridge_gives_principal_components_a_power_of_their_variance_back(power):
    x, y = anisotropic(80, 12, 9)
    components = PCA().fit(y)
    predicted = Ridge(alpha=2.0, solver="svd").fit(x, components.transform(y)).predict(x)
    expected = components.inverse_transform(
        predicted * (components.transform(y).std(0) / predicted.std(0)) ** power
    )
    found = RescaledRidgeMap(penalty=2.0, power=power).fit(x, y)
    np.testing.assert_allclose(found.transform(x), expected, atol=1e-9)


def test_rescaled_ridge_has_the_penalty_of_ridge():
    x, y = anisotropic(80, 12, 9)
    assert fit_map(x, y, "rescaled-ridge").kind.penalty == fit_map(x, y, "ridge").kind.penalty


def test_least_squares_is_that_of_numpy():
    for x, y in (anisotropic(80, 12, 9), anisotropic(20, 40, 9)):
        found = LeastSquaresMap().fit(x, y)
        expected = np.linalg.lstsq(x - x.mean(0), y - y.mean(0), rcond=1e-10)[0]
        np.testing.assert_allclose(found.weight, expected.T, atol=1e-8)


def test_the_low_rank_map_has_its_rank():
    x, y = anisotropic(80, 12, 9)
    found = LowRankMap(rank=3, penalty=1.0).fit(x, y)
    assert torch.linalg.matrix_rank(found.weight) == 3
    full = LowRankMap(rank=9, penalty=1.0).fit(x, y)
    torch.testing.assert_close(full.weight, RidgeMap(penalty=1.0).fit(x, y).weight)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_each_variate_of_scikit_learn_is_predicted_by_its_mate_and_weighted(power):
    x, y = anisotropic(80, 6, 4)
    a, b = CCA(4, max_iter=50_000, tol=1e-14).fit_transform(x, y)
    a, b = a / a.std(0), b / b.std(0)
    correlations = (a * b).mean(0)
    from_variates = np.linalg.lstsq(b, y - y.mean(0), rcond=None)[0]
    expected = (correlations**power * a) @ from_variates + y.mean(0)
    found = CanonicalMap(shrinkage=0.0, power=power).fit(x, y)
    np.testing.assert_allclose(found.transform(x), expected, atol=1e-5)


def test_shrunk_canonical_directions_are_scaled_ridge():
    x, y = anisotropic(80, 12, 9)
    s = 0.3
    penalty = s / (1 - s) * ((x - x.mean(0)) ** 2).sum() / 12
    expected = Ridge(alpha=penalty, solver="svd").fit(x, y).coef_ / (1 - s)
    np.testing.assert_allclose(CanonicalMap(s, 1.0).fit(x, y).weight, expected, atol=1e-9)


def test_at_full_shrinkage_procrustes_is_a_rotation_with_a_scale():
    x, y = anisotropic(80, 12, 9)
    u, _, vt = np.linalg.svd((x - x.mean(0)).T @ (y - y.mean(0)), full_matrices=False)
    scale = np.sqrt(y.var(0).mean() / x.var(0).mean())
    found = ProcrustesMap(shrinkage=1.0).fit(x, y)
    np.testing.assert_allclose(found.weight, scale * (u @ vt).T, atol=1e-9)


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("maps", [*KINDS, "auto"])
def test_held_out_figures_predict_those_of_new_latents(maps, goal):
    x, y = anisotropic(1200, 24, 16)
    choice = fit_map(x[:200], y[:200], maps, goal)
    errors = (choice.map.transform(x[200:]) - y[200:]) / y[:200].std(0)
    assert np.mean(choice.held_out.residuals) == pytest.approx((errors**2).mean(), rel=0.15)


@pytest.mark.parametrize("goal", GOALS)
def test_auto_is_no_worse_than_any_kind_by_more_than_a_standard_error(goal):
    x, y = anisotropic(1200, 24, 16)

    def loss(maps):
        found = fit_map(x[:200], y[:200], maps, goal).held_out
        ranks = {
            "read": [found.reciprocal_ranks, found.standard_reciprocal_ranks],
            "match": [found.reciprocal_ranks],
            "search": [found.neighbour_reciprocal_ranks],
        }
        return 1 - np.mean(ranks[goal])

    best = min(map(loss, KINDS))
    assert best <= loss("auto") <= best + 0.03


def test_the_power_is_that_of_the_goal_where_both_do_as_well():
    x, y = anisotropic(200, 24, 16)
    powers = {goal: fit_map(x, y, "rescaled-ridge", goal).kind.power for goal in GOALS}
    assert powers == {"read": 1.0, "match": 1.0, "search": 0.5}


def test_maps_for_several_goals_are_those_for_each_alone():
    x, y = anisotropic(100, 24, 16)
    for goal, found in choose_each(kinds_of("auto"), x, y, GOALS).items():
        alone = fit_map(x, y, goal=goal)
        assert found.kind == alone.kind
        torch.testing.assert_close(found.map.weight, alone.map.weight)


@pytest.mark.parametrize(
    ("behind", "clearly"),
    # Means of 0.1; standard errors of 0.0316, and of 0.0632, which is less than the mean.
    [((0.0, 0.1, 0.2, 0.1, 0.1), True), ((-0.1, 0.1, 0.3, 0.1, 0.1), False)],
)
def test_another_kind_is_taken_if_it_is_better_by_two_standard_errors(behind, clearly):
    def held_out(ranks):
        return HeldOut(residuals, ranks, ranks, ranks, ranks, ranks)

    residuals = (0.5,) * 5
    judged = [held_out((0.8,) * 5), held_out(tuple(0.8 - b for b in behind))]
    options = [LeastSquaresMap(), RescaledRidgeMap(penalty=1.0, power=1.0)]
    assert best_option(options, judged, "match") == (0 if clearly else 1)
    assert best_option(options, judged, "search") == 0  # which prefers another power


def test_an_isometry_is_kept_where_it_is_as_good():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((100, 6)) @ rng.standard_normal((6, 6))
    choice = fit_map(x, x @ rng.standard_normal((6, 6)) - 3)
    assert choice.kind == ProcrustesMap(shrinkage=0.0)


def test_noise_that_an_isometry_would_carry_is_left_by_another_kind():
    x, y = anisotropic(300, 24, 16, noise=1.0)
    assert fit_map(x, y).kind.name != "procrustes"


def test_what_goes_in_comes_out():
    x, y = anisotropic(40, 6, 4)
    for make in (np.asarray, torch.as_tensor):
        for kind in ("float16", "float32", "float64"):
            read = (
                RidgeMap()
                .fit(make(x.astype(kind)), make(y.astype(kind)))
                .transform(make(x.astype(kind)))
            )
            assert type(read) is type(make(x))
            assert str(read.dtype).removeprefix("torch.") == kind


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RidgeMap(penalty=-1.0), "from 0, got -1.0"),
        (lambda: RidgeMap(penalty="little"), "'little'"),
        (lambda: ProcrustesMap(shrinkage=1.5), "1.5"),
        (lambda: CanonicalMap(shrinkage="much"), "'much'"),
        (lambda: CanonicalMap(power=2.0), "2.0"),
        (lambda: RescaledRidgeMap(power=1.5), "1.5"),
        (lambda: LowRankMap(rank=0), "rank"),
        (lambda: fit_map(np.eye(5), np.eye(5), "spline"), "'spline'"),
    ],
)
def test_bad_options(make, text):
    with pytest.raises(InputError, match=text):
        make()


def test_bad_latents():
    x = np.random.default_rng(0).standard_normal((9, 3))
    with pytest.raises(ShapeError, match="9 and 8 rows"):
        RidgeMap().fit(x, x[:8])
    with pytest.raises(SingularCovarianceError, match="'receiver'"):
        RidgeMap().fit(x, np.ones((9, 2)))
