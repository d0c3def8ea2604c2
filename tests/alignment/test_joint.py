import itertools

import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.linear_model import Ridge

import sheafed
from sheafed.alignment import fit_map
from sheafed.alignment.joint import JointMap, JointPilots, reliable_rank
from sheafed.alignment.shared_pilots import encoded
from sheafed.errors import (
    EmptyInputError,
    InputError,
    MissingPilotsError,
    MissingPilotsWarning,
    NonFiniteError,
)

pytestmark = pytest.mark.filterwarnings("ignore::sheafed.errors.UndeterminedMapWarning")


def views(pilots, sizes, noise=0.3, rank=5, seed=0):
    rng = np.random.default_rng(seed)
    source = rng.standard_normal((pilots, rank))
    return {
        name: source @ rng.standard_normal((rank, d)) + noise * rng.standard_normal((pilots, d)) + 2
        for name, d in sizes.items()
    }


def without(latents, **missing):
    """Copies in which some pilots are missing."""
    found = {name: z.copy() for name, z in latents.items()}
    for name, rows in missing.items():
        found[name][rows] = np.nan
    return found


def standard_error(read, own):
    return (((read - own) / own.std(0)) ** 2).mean()


SIZES = {"a": 8, "b": 12, "hub": 10}


def test_agents_without_common_pilots_are_mapped_through_others():
    latents = views(400, SIZES)
    apart = without(
        {name: z[:200] for name, z in latents.items()}, a=slice(100), b=slice(100, None)
    )
    alignment = sheafed.align(apart, joint=True)
    pair = next(p for p in alignment.pairs if (p.sender, p.receiver) == ("a", "b"))
    assert (pair.kind, pair.pilots, pair.fold_size) == ("joint", 0, 0)
    assert pair.residual is pair.top1 is pair.quality("read") is None
    found = standard_error(alignment.send(latents["a"][200:], "a", "b"), latents["b"][200:])
    together = fit_map(latents["a"][:200], latents["b"][:200]).map
    best = standard_error(together.transform(latents["a"][200:]), latents["b"][200:])
    assert found < best + 0.05 < 0.35
    edge = next(e for e in alignment.report().edges if {e.head, e.tail} == {"a", "b"})
    assert edge.misalignment is None
    unjudged = [p for p in alignment.pairs if p.residual is None]
    assert list(alignment.report().below(0.0)) == unjudged


def test_a_pair_is_fitted_to_the_pilots_that_both_have():
    latents = views(90, SIZES)
    partly = without(latents, a=slice(0, 20), b=slice(60, None))
    alignment = sheafed.align(partly, maps="ridge")
    alone = fit_map(latents["a"][20:60], latents["b"][20:60], "ridge").map
    np.testing.assert_allclose(alignment.maps["a", "b"].weight, alone.weight, atol=1e-9)
    counts = {(p.sender, p.receiver): p.pilots for p in alignment.pairs}
    assert counts["a", "b"] == 40
    assert counts["hub", "a"] == 70
    # A row that nobody has changes nothing.
    longer = {name: np.vstack([z, np.full((3, z.shape[1]), np.nan)]) for name, z in partly.items()}
    again = sheafed.align(longer, maps="ridge")
    np.testing.assert_array_equal(again.maps["a", "b"].weight, alignment.maps["a", "b"].weight)


def test_joint_candidates_never_lose_on_held_out_pilots():
    goal = "match"
    latents = views(40, SIZES, noise=1.0)
    pairwise, joint = (sheafed.align(latents, goal=goal, joint=j) for j in (False, True))
    for one, other in zip(pairwise.pairs, joint.pairs, strict=True):
        # An isometry is kept within a standard error of the best.
        assert other.quality(goal) >= one.quality(goal) - 0.02
    only = sheafed.align(latents, goal=goal, maps="joint")
    assert {pair.kind for pair in only.pairs} == {"joint"}


def test_a_joint_map_is_two_ridge_regressions_through_the_sections():
    latents = views(50, {"a": 6, "b": 4, "c": 5})
    joint = JointPilots(
        {name: encoded(torch.as_tensor(z)) for name, z in latents.items()},
        {name: torch.ones(50, dtype=torch.bool) for name in latents},
    )
    found = joint.link("a", "b", 0.5, 3, isometric=False).affine()
    white = []
    for z in latents.values():
        covariance = np.cov(z.T, bias=True)
        shrunk = 0.5 * covariance + 0.5 * np.trace(covariance) / len(covariance) * np.eye(
            z.shape[1]
        )
        white.append((z - z.mean(0)) @ scipy.linalg.fractional_matrix_power(shrunk, -0.5))
    sections = np.linalg.svd(np.hstack(white))[0][:, :3] * 50**0.5
    penalty = 50 * latents["a"].var(0).mean()  # s / (1 - s) is 1
    estimate = Ridge(alpha=penalty, solver="svd").fit(latents["a"], sections)
    read = Ridge(alpha=0.01 * 50, solver="svd").fit(sections, latents["b"])
    np.testing.assert_allclose(
        found.transform(latents["a"]), read.predict(estimate.predict(latents["a"])), atol=1e-9
    )


def test_sections_that_agents_disagree_about_are_not_reliable():
    falling = torch.cat([torch.full((10,), 0.8), torch.zeros(20)])
    # The mean of 8 falls below 0.3 where 2 of them are left.
    assert reliable_rank([falling, falling[:25]]) == 8
    assert reliable_rank([torch.zeros(9)]) == 1
    assert reliable_rank([torch.ones(9), torch.ones(7)]) == 7


def test_a_saved_joint_alignment_sends_the_same(tmp_path):
    latents = views(60, SIZES)
    apart = without(latents, a=slice(30), b=slice(30, None))
    alignment = sheafed.align(apart, joint=True)
    loaded = sheafed.Alignment.load(alignment.save(tmp_path))
    assert loaded.pairs == alignment.pairs
    assert loaded.fits == alignment.fits
    for sender, receiver in itertools.permutations(latents, 2):
        np.testing.assert_array_equal(
            loaded.send(latents[sender], sender, receiver),
            alignment.send(latents[sender], sender, receiver),
        )


def test_too_few_common_pilots_are_named():
    latents = views(40, SIZES)
    apart = without(latents, a=slice(20), b=slice(20, None))
    with pytest.warns(MissingPilotsWarning, match=r"a and b \(0\); these edges are left out"):
        star = sheafed.align(apart, maps="ridge")
    assert star.path("a", "b") == ["a", "hub", "b"]
    asked = sheafed.align(apart, graph=[("a", "hub"), ("b", "hub")], maps="ridge")
    assert star.pairs == asked.pairs
    np.testing.assert_array_equal(
        star.send(latents["a"], "a", "b"), asked.send(latents["a"], "a", "b")
    )
    with pytest.raises(MissingPilotsError, match=r"a and b \(0\).*joint=True"):
        sheafed.align({name: apart[name] for name in "ab"})
    cut = without(apart, hub=slice(20, None))
    with pytest.raises(MissingPilotsError, match=r"\[\['a'\], \['b', 'hub'\]\]"):
        sheafed.align(cut, joint=True)


def test_bad_rows():
    latents = views(20, SIZES)
    with pytest.raises(EmptyInputError, match="'a' are missing: all of their 20 rows"):
        sheafed.align(without(latents, a=slice(None)))
    half = without(latents)
    half["a"][3, :2] = np.nan
    with pytest.raises(NonFiniteError, match=r"'a'.*\(3, 0\)"):
        sheafed.align(half)
    with pytest.raises(InputError, match="joint=True"):
        JointMap(0.5, 3, 0).fit(latents["a"], latents["b"])
    with pytest.raises(InputError, match="rotation"):
        JointMap(rotation=2)
