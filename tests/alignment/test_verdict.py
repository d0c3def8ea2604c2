from dataclasses import replace

import numpy as np
import pytest

import sheafed
from sheafed.alignment import PairFit
from sheafed.errors import InputError

FIT = PairFit(
    sender="paris",
    receiver="oslo",
    kind="ridge",
    strength={},
    pilots=100,
    residual=0.4,
    residual_spread=0.1,
    top1=0.5,
    reciprocal_rank=0.6,
    first_of_ten=0.9,
    neighbour_reciprocal_rank=0.3,
    fold_size=20,
)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [(0.97, "good"), (0.969, "usable"), (0.8, "usable"), (0.799, "poor"), (None, "undetermined")],
)
def test_the_verdict_is_a_word_for_how_often_the_right_of_ten_pilots_is_the_nearest(found, verdict):
    assert replace(FIT, first_of_ten=found).verdict == verdict


def test_fewer_than_ten_to_search_decide_nothing():
    assert replace(FIT, first_of_ten=1.0, fold_size=9).verdict == "undetermined"


def test_the_quality_is_that_of_the_goal():
    assert [FIT.quality(goal) for goal in ("read", "match", "search")] == [0.9, 0.6, 0.3]


def test_a_goal_that_there_is_not_has_no_quality():
    with pytest.raises(InputError, match="'serach'"):
        FIT.quality("serach")


@pytest.mark.parametrize(
    ("residual", "verdict"),
    [(0.1, "good"), (0.101, "usable"), (0.4, "usable"), (0.401, "poor")],
)
def test_for_receivers_of_few_dimensions_the_residual_decides(residual, verdict):
    assert replace(FIT, residual=residual, d_receiver=3).verdict == verdict
    assert replace(FIT, residual=residual, d_receiver=4).verdict == "usable"


@pytest.mark.parametrize("d", [1, 2, 3])
def test_small_receivers_that_are_predicted_well_are_good(d):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 20))
    y = 5 + x[:, :d] + 0.05 * rng.standard_normal((300, d))
    there, back = sheafed.align({"a": x, "b": y}).report().pairs
    assert (there.verdict, back.verdict) == ("good", "poor")
    assert there.first_of_ten > 0.8
    assert not there.at_chance
    unrelated = sheafed.align({"a": x, "b": rng.standard_normal((300, d))}).report()
    assert all(pair.at_chance and pair.verdict == "poor" for pair in unrelated.pairs)


@pytest.mark.parametrize("seed", range(3))
def test_unrelated_latents_are_at_chance_and_related_ones_are_not(seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((100, 10))
    weak = x @ rng.standard_normal((10, 10)) / 3 + 2 * rng.standard_normal((100, 10))
    assert not any(p.at_chance for p in sheafed.align({"a": x, "b": weak}).report().pairs)
    mixed = sheafed.align({"a": x, "b": rng.permutation(x)}).report()
    assert all(pair.at_chance for pair in mixed.pairs)
    assert mixed.doubt.startswith("a -> b, b -> a at chance: are the rows")
