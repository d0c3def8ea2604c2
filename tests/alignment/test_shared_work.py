"""What directions, candidates and folds share must give what each would compute alone."""

import itertools
import weakref

import numpy as np
import pytest
import torch

import sheafed
from sheafed.alignment import fit_map, selection
from sheafed.alignment.held_out import folds

KINDS = ("procrustes", "ridge", "affine", "low-rank", "canonical")


def views(n=40, sizes=(12, 9, 50), seed=0):
    rng = np.random.default_rng(seed)
    source = rng.standard_normal((n, 6)) / np.arange(1, 7)
    return [source @ rng.standard_normal((6, d)) + 0.3 * rng.standard_normal((n, d)) for d in sizes]


@pytest.mark.parametrize("maps", KINDS)
@pytest.mark.parametrize("pair", [(0, 1), (2, 1)])
def test_held_out_figures_are_those_of_a_fit_to_each_fold_alone(maps, pair):
    x, y = (views()[number] for number in pair)
    choice = fit_map(x, y, maps)
    # A penalty is chosen anew in every fold; other options are those of the choice.
    options = {k: v for k, v in vars(choice.kind).items() if k != "penalty"}
    for held, found in zip(folds(len(x)), choice.held_out.residuals, strict=True):
        kept = np.setdiff1d(np.arange(len(x)), held)
        alone = type(choice.kind)(**options).fit(x[kept], y[kept])
        errors = (alone.transform(x[held]) - y[held]) / y.std(0)
        assert found == pytest.approx((errors**2).mean(), rel=1e-9)


def test_a_fold_is_forgotten_before_the_next_but_one(monkeypatch):
    """All at once they would take five times the memory."""
    made, alive = [], []
    encoded = selection.encoded

    def counted(latents):
        made.append(weakref.ref(found := encoded(latents)))
        alive.append(sum(known() is not None for known in made))
        return found

    monkeypatch.setattr(selection, "encoded", counted)
    fit_map(*views(sizes=(12, 9)))
    assert len(made) == 10
    assert max(alive) == 4


@pytest.mark.parametrize("goal", ["read", "match", "search"])
def test_both_directions_of_an_edge_are_those_of_each_alone(goal):
    latents = dict(zip("abc", views(), strict=True))
    alignment = sheafed.align(latents, goal=goal)
    found = {(pair.sender, pair.receiver): pair for pair in alignment.pairs}
    for sender, receiver in itertools.permutations(latents, 2):
        alone = fit_map(latents[sender], latents[receiver], goal=goal)
        pair = found[sender, receiver]
        assert pair.kind == alone.kind.name
        assert pair.strength == pytest.approx(alone.kind.strength())
        assert pair.residual == pytest.approx(np.mean(alone.held_out.residuals))
        assert pair.top1 == pytest.approx(np.mean(alone.held_out.top1))
        torch.testing.assert_close(
            alignment.maps[sender, receiver].weight, alone.map.weight, rtol=1e-7, atol=1e-9
        )


def test_isometries_that_whiten_elsewhere_are_those_of_each_alone():
    x, y, _ = views()
    u, _, vt = np.linalg.svd(x.T @ y, full_matrices=False)
    isometry = sheafed.align({"a": x, "b": y}, whitening=None, maps="procrustes")
    np.testing.assert_allclose(isometry.maps["a", "b"].weight, (u @ vt).T, atol=1e-9)
    np.testing.assert_allclose(isometry.maps["b", "a"].weight, u @ vt, atol=1e-9)
