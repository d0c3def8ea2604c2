"""The attacks against cases whose answer is known, and against brute force."""

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score
from torch import Tensor

from sheafed.errors import EmptyInputError, ShapeError
from sheafed.privacy import logistic_attack, relative_error, threshold_attack, train_decoder


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# Inversion


def test_a_decoder_undoes_an_encoder_that_keeps_everything() -> None:
    pilots, private = normal(1, 400, 1, 2, 3), normal(2, 100, 1, 2, 3)
    encode = torch.linalg.qr(normal(3, 6, 6))[0]
    decoder = train_decoder(pilots.flatten(1) @ encode, pilots, epochs=60, hidden=64)
    guess = decoder(private.flatten(1) @ encode)
    assert guess.shape == private.shape
    assert relative_error(guess, private, pilots.mean(0)) < 0.1
    elsewhere = torch.linalg.qr(normal(4, 6, 6))[0]
    assert relative_error(decoder(private.flatten(1) @ elsewhere), private, pilots.mean(0)) > 0.5


def test_latents_that_say_nothing_cannot_be_inverted() -> None:
    pilots, private = normal(1, 200, 6), normal(2, 100, 6)
    decoder = train_decoder(normal(3, 200, 4), pilots, epochs=30, hidden=32)
    assert relative_error(decoder(normal(4, 100, 4)), private, pilots.mean(0)) > 0.95


def test_a_decoder_is_repeatable_and_leaves_the_global_stream_alone() -> None:
    latents, inputs = normal(1, 30, 4), normal(2, 30, 5)
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    one, two = (train_decoder(latents, inputs, seed=3, epochs=2, hidden=8) for _ in range(2))
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(one(latents), two(latents))
    assert not torch.equal(
        one(latents), train_decoder(latents, inputs, epochs=2, hidden=8)(latents)
    )


def test_the_relative_error_is_one_minus_r_squared() -> None:
    truth = normal(1, 50, 3)
    guess = truth + 0.1 * normal(2, 50, 3)
    average = truth.mean(0)
    explained = r2_score(truth, guess, multioutput="variance_weighted")
    assert relative_error(guess, truth, average) == pytest.approx(1 - explained, rel=1e-4)
    assert relative_error(average.expand(50, 3), truth, average) == pytest.approx(1)


def test_what_cannot_be_decoded_is_named() -> None:
    with pytest.raises(ShapeError, match="at least 10"):
        train_decoder(normal(1, 9, 2), normal(2, 9, 2))
    with pytest.raises(ShapeError, match="40 latents and 30"):
        train_decoder(normal(1, 40, 2), normal(2, 30, 2))
    with pytest.raises(ShapeError, match="same shape"):
        relative_error(normal(1, 3, 2), normal(1, 3, 1), torch.zeros(2))


# Membership


@pytest.mark.parametrize("seed", range(5))
def test_the_threshold_attack_against_all_pairs_and_all_thresholds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    members = rng.integers(0, 12, size=40) + 2 * (seed % 2)  # with many ties
    others = rng.integers(0, 12, size=130)
    found = threshold_attack(torch.tensor(members), torch.tensor(others), fpr=0.05)
    above = (members[:, None] > others[None]).mean() + (members[:, None] == others[None]).mean() / 2
    assert found.auc == pytest.approx(above)
    fair = [t for t in range(-1, 30) if (others > t).mean() <= 0.05]
    assert found.tpr == pytest.approx(max((members > t).mean() for t in fair))
    assert (found.members, found.non_members, found.fpr) == (40, 130, 0.05)


def test_perfect_scores_and_no_scores() -> None:
    ones, zeros = torch.ones(10), torch.zeros(200)
    assert threshold_attack(ones, zeros).auc == threshold_attack(ones, zeros).tpr == 1
    assert threshold_attack(ones, torch.ones(200)).auc == 0.5
    assert threshold_attack(ones, torch.ones(200)).tpr == 0
    assert threshold_attack(zeros[:5], ones, fpr=1.0).tpr == 1
    with pytest.raises(EmptyInputError, match="got 0 and 200"):
        threshold_attack(ones[:0], zeros)


def test_the_logistic_attack_finds_what_is_there_and_not_what_is_not() -> None:
    others = normal(2, 300, 20)
    assert logistic_attack(normal(1, 300, 20) + 1, others).auc > 0.95
    assert logistic_attack(2 * normal(1, 300, 20), others).auc > 0.9  # by the squares
    # As many features as samples: only an attack that is tried on others' halves stays at chance.
    assert logistic_attack(normal(1, 60, 40), others[:60].repeat(1, 2)).auc == pytest.approx(
        0.5, abs=0.15
    )
    with pytest.raises(EmptyInputError, match="at least two"):
        logistic_attack(others[:1], others)
