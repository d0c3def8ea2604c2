"""What arrives over a noisy link: how much noise, how many losses, how coarse."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sheafed.channels import Channel, add_noise, erase, quantise
from sheafed.errors import InputError


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(seed: int, n: int = 50, d: int = 400) -> Tensor:
    return torch.randn(n, d, generator=stream(seed))


@pytest.mark.parametrize("snr_db", [-10.0, 0, 7.5, 30])
def test_the_ratio_of_powers_is_the_one_asked_for_in_every_latent(snr_db: float) -> None:
    sent = rows(1) * torch.logspace(-3, 3, 50)[:, None]
    noise = (add_noise(sent, snr_db, stream()) - sent).double()
    ratios = 10 * np.log10((sent.double().square().sum(1) / noise.square().sum(1)).numpy())
    # Of 400 normal numbers the power has a deviation of 0.3 dB, of 20,000 one of 0.04 dB.
    assert np.abs(ratios - snr_db).max() < 1.5
    assert abs(ratios.mean() - snr_db) < 0.15


def test_noise_is_white_and_normal() -> None:
    sent = torch.ones(5_000, 4)
    noise = (add_noise(sent, 0, stream()) - sent).double()
    covariance = np.cov(noise.numpy().T)
    assert np.abs(covariance - np.eye(4)).max() < 0.1
    assert abs(float((noise**4).mean()) - 3) < 0.3


@pytest.mark.parametrize("probability", [0.05, 0.5, 1.0])
def test_so_many_symbols_are_lost_and_the_others_arrive_as_they_were(probability: float) -> None:
    sent = rows(2)
    arrived = erase(sent, probability, stream())
    lost = arrived == 0
    assert abs(float(lost.double().mean()) - probability) < 0.02
    assert torch.equal(arrived[~lost], sent[~lost])
    by_row = lost.double().mean(1)
    assert float((by_row - probability).abs().max()) < 0.12  # latents are not lost as a whole


@given(seed=st.integers(0, 10_000), bits=st.integers(1, 16), exponent=st.floats(-3, 3))
def test_a_coordinate_is_off_by_at_most_half_a_cell(seed: int, bits: int, exponent: float) -> None:
    sent = 10**exponent * rows(seed, 5, 30).double()
    arrived = quantise(sent, bits)
    largest = sent.abs().amax(1, keepdim=True)
    assert bool(((arrived - sent).abs() <= largest * 2.0**-bits * (1 + 1e-9)).all())
    assert max(len(row.unique()) for row in arrived) <= 2**bits


def test_one_bit_keeps_signs_and_many_keep_everything() -> None:
    sent = rows(3)
    one = quantise(sent, 1)
    torch.testing.assert_close(one, sent.sign() * sent.abs().amax(1, keepdim=True) / 2)
    large = sent.abs() > 2**-7 * sent.abs().amax(1, keepdim=True)
    assert torch.equal(quantise(sent, 32)[large], sent[large])
    torch.testing.assert_close(quantise(sent, 32), sent, rtol=0, atol=1e-8)


def test_a_latent_of_zeros_stays_one() -> None:
    nothing = Channel(snr_db=0, bits=3).carry(torch.zeros(2, 5), stream())
    assert torch.equal(nothing, torch.zeros(2, 5))


def test_a_perfect_channel_changes_nothing() -> None:
    sent = rows(4)
    assert Channel().carry(sent, stream()) is sent


def test_the_three_come_in_the_order_of_a_transmission() -> None:
    sent, random = rows(5), stream(9)
    expected = erase(add_noise(quantise(sent, 3), 5, random), 0.2, random)
    arrived = Channel(snr_db=5, erasure=0.2, bits=3).carry(sent, stream(9))
    assert torch.equal(arrived, expected)
    assert not torch.equal(arrived, Channel(snr_db=5, erasure=0.2, bits=3).carry(sent, stream(8)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"snr_db": float("inf")}, "snr_db must be a finite number, got inf"),
        ({"erasure": 1.5}, "erasure must be at most 1, got 1.5"),
        ({"bits": 0}, "bits must be at least 1, got 0"),
        ({"bits": 2.5}, "bits must be an integer, got 2.5"),
        ({"when": "never"}, "when must be 'always' or 'inference', got 'never'"),
    ],
)
def test_a_channel_that_cannot_be_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Channel(**options)
