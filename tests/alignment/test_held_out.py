from itertools import combinations

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score
from sklearn.metrics.pairwise import cosine_similarity

from sheafed.alignment.held_out import (
    deviation,
    first_of,
    folds,
    mean,
    nearest_others,
    neighbour_ranks,
    ranks,
    residual,
)
from sheafed.errors import EmptyInputError


@pytest.mark.parametrize(("pilots", "number"), [(4, 2), (7, 3), (10, 5), (103, 5)])
def test_every_pilot_is_held_out_once_and_never_alone(pilots, number):
    found = folds(pilots)
    assert len(found) == number
    assert min(map(len, found)) >= 2
    assert sorted(torch.cat(found).tolist()) == list(range(pilots))


def test_three_pilots_are_too_few():
    with pytest.raises(EmptyInputError, match=r"at least 4 pilots.*got 3"):
        folds(3)


def test_the_residual_is_the_unexplained_share_of_variance():
    rng = np.random.default_rng(0)
    own = rng.standard_normal((60, 5)) * [1, 10, 0.01, 3, 1] + 4
    read = own + rng.standard_normal((60, 5)) * [0.5, 1, 0.01, 3, 1]
    found = residual(*map(torch.as_tensor, (read, own, own.std(0))))
    assert found == pytest.approx(1 - r2_score(own, read, multioutput="uniform_average"))
    own[:, 2], read[:, 2] = 7.0, 8.0
    kept = [0, 1, 3, 4]
    found = residual(*map(torch.as_tensor, (read, own, own.std(0))))
    assert found == pytest.approx(1 - r2_score(own[:, kept], read[:, kept]))


def test_ranks_by_sorting_cosines():
    rng = np.random.default_rng(1)
    own = rng.standard_normal((40, 6))
    read = own + rng.standard_normal((40, 6))
    order = np.argsort(-cosine_similarity(read, own), axis=1)
    expected = 1 + np.array([list(row).index(k) for k, row in enumerate(order)])
    assert 0.2 < (expected == 1).mean() < 0.9
    assert ranks(*map(torch.as_tensor, (read, own))).tolist() == expected.tolist()


def test_neighbour_ranks_by_sorting_an_index_for_each_query():
    rng = np.random.default_rng(1)
    own = rng.standard_normal((40, 6)) + 1
    read = own + 0.3 * rng.standard_normal((40, 6))
    expected = []
    for k, query in enumerate(own):
        others = [j for j in range(40) if j != k]
        native = max(others, key=lambda j: cosine_similarity([query], own[[j]]).item())
        index = sorted(others, key=lambda j: -cosine_similarity([query], read[[j]]).item())
        expected.append(1 + index.index(native))
    assert 0.1 < np.mean(np.array(expected) == 1) < 0.9
    y, m = map(torch.as_tensor, (own, read))
    assert neighbour_ranks(m, y, nearest_others(y)).tolist() == expected
    assert neighbour_ranks(3 * y, y, nearest_others(y)).tolist() == [1] * 40


def test_an_index_of_equal_latents_finds_neighbours_by_chance():
    own = torch.as_tensor(np.random.default_rng(0).standard_normal((5, 3)))
    found = neighbour_ranks(torch.ones_like(own), own, nearest_others(own))
    assert found.tolist() == [2.5] * 5  # of four others


def test_a_constant_answer_finds_nothing():
    found = ranks(torch.zeros(3, 3, dtype=torch.float64), torch.eye(3, dtype=torch.float64))
    assert found.tolist() == [2, 2, 2]


@pytest.mark.parametrize("number", [2, 4, 9])
def test_the_first_of_a_few_by_all_choices_of_the_others(number):
    found = torch.tensor([1.0, 2.0, 3.0, 5.0, 6.0, 6.0])
    rows = len(found)
    wins = [
        not any(nearer)
        for rank in found.int().tolist()
        for nearer in combinations(
            [True] * (rank - 1) + [False] * (rows - rank), min(number, rows) - 1
        )
    ]
    assert first_of(number, found) == pytest.approx(np.mean(wins))


def test_mean_and_deviation_of_a_sample():
    values = (0.3, 0.1, 0.7)
    assert mean(values) == pytest.approx(np.mean(values))
    assert deviation(values) == pytest.approx(np.std(values, ddof=1))
