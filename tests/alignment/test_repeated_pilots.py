"""Repeated pilots count once."""

import warnings

import numpy as np
import pytest
import torch

import sheafed
from sheafed.alignment import RidgeMap, fit_map
from sheafed.alignment.repeated_pilots import distinct
from sheafed.errors import EmptyInputError, RepeatedPilotsWarning


def noisy(n=60, d=12):
    rng = np.random.default_rng(0)
    a = rng.standard_normal((n, d))
    return {
        "a": a,
        "b": a @ rng.standard_normal((d, d)) / 3 + 2 * rng.standard_normal((n, d)),
        "c": a[:, :5] + rng.standard_normal((n, 5)),
    }


@pytest.mark.parametrize("copies", [2, 4])
def test_copies_change_neither_maps_nor_figures(copies):
    latents = noisy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = sheafed.align(latents)
    tiled = {name: np.tile(x, (copies, 1)) for name, x in latents.items()}
    message = rf"{60 * (copies - 1)} of {60 * copies} pilots repeat others.* by 60;"
    with pytest.warns(RepeatedPilotsWarning, match=message) as caught:
        found = sheafed.align(tiled)
    assert caught[0].filename == __file__
    assert found.pairs == expected.pairs
    z = latents["a"]
    np.testing.assert_array_equal(found.send(z, "a", "b"), expected.send(z, "a", "b"))


def test_so_it_is_for_a_single_map():
    x, y, _ = noisy().values()
    for fit in (lambda x, y: fit_map(x, y).map, RidgeMap().fit):
        with pytest.warns(RepeatedPilotsWarning, match="60 of 120") as caught:
            found = fit(np.tile(x, (2, 1)), np.tile(y, (2, 1)))
        assert caught[0].filename == __file__
        np.testing.assert_array_equal(found.transform(x), fit(x, y).transform(x))


def test_copies_do_not_make_pilots_enough():
    few = {name: np.tile(x[:20], (3, 1)) for name, x in noisy().items()}
    with pytest.warns(RepeatedPilotsWarning):
        alignment = sheafed.align(few)
    assert {pair.verdict for pair in alignment.report().pairs} == {"undetermined"}
    assert {pair.pilots for pair in alignment.report().pairs} == {20}
    with (
        pytest.warns(RepeatedPilotsWarning),
        pytest.raises(EmptyInputError, match=r"4 pilots, .* got 3"),
    ):
        sheafed.align({name: np.tile(x[:3], (9, 1)) for name, x in noisy().items()})


@pytest.mark.filterwarnings("error")
def test_what_one_agent_alone_cannot_tell_apart_is_no_repeat():
    latents = noisy()
    latents["c"] = np.sign(latents["c"][:, :2])
    alignment = sheafed.align(latents)
    assert {pair.pilots for pair in alignment.report().pairs} == {60}


def test_a_copy_that_another_agent_lacks_is_a_repeat():
    latents = noisy()
    doubled = {name: np.vstack([x, x[:10]]) for name, x in latents.items()}
    doubled["c"][60:] = np.nan
    doubled["c"][:5] = np.nan
    doubled["c"][60:65] = latents["c"][:5]
    expected = sheafed.align(latents)
    with pytest.warns(RepeatedPilotsWarning, match="10 of 70"):
        found = sheafed.align(doubled)
    assert found.pairs == expected.pairs


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_rows_are_compared_as_numbers(kind):
    x = torch.tensor([[0.0, 1.0], [-0.0, 1.0], [2.0, 1.0], [0.0, 1.0]], dtype=kind)
    everywhere = torch.ones(4, dtype=torch.bool)
    kept, repeated = distinct([x, x], [everywhere] * 2)
    assert repeated.tolist() == [0, 0, 2, 0]
    assert kept.tolist() == [True, False, True, False]
    # Only one agent has both of rows 0 and 1: they may be of different inputs.
    lacking = torch.tensor([True, False, True, True])
    assert distinct([x, x], [everywhere, lacking])[1].tolist() == [0, 1, 2, 0]
