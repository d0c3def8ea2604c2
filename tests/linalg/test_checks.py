"""Every refusal has a name and says what it received."""

import numpy as np
import pytest
import torch

from sheafed import errors
from sheafed.linalg.checks import (
    check_finite,
    check_fraction,
    check_int,
    check_matrix,
    check_pair,
    check_single_pair,
)
from tests.helpers.matrices import normal


@pytest.mark.parametrize("shape", [(1, 1), (4, 3), (2, 5, 3), (2, 1, 4, 3)])
def test_good_matrices_come_back_as_they_are(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.zeros(shape, dtype=dtype)
    assert check_matrix("x", x) is x


@pytest.mark.parametrize(
    ("x", "error", "fragments"),
    [
        (np.ones((2, 2)), errors.DtypeError, ["latents", "torch tensor", "ndarray"]),
        ([[1.0]], errors.DtypeError, ["latents", "list", "as_tensor"]),
        (torch.ones(2, 2, dtype=torch.int64), errors.DtypeError, ["latents", "torch.int64"]),
        (torch.ones(2, 2, dtype=torch.float16), errors.DtypeError, ["torch.float16"]),
        (torch.ones(2, 2, dtype=torch.complex64), errors.DtypeError, ["torch.complex64"]),
        (torch.ones(7), errors.ShapeError, ["latents", "(7,)", "x[None]"]),
        (torch.tensor(1.0), errors.ShapeError, ["latents", "()"]),
        (torch.ones(0, 3), errors.EmptyInputError, ["latents", "(0, 3)"]),
        (torch.ones(2, 3, 0), errors.EmptyInputError, ["latents", "(2, 3, 0)"]),
    ],
)
def test_bad_matrices_are_named(x: object, error: type, fragments: list[str]) -> None:
    with pytest.raises(error) as caught:
        check_matrix("latents", x)  # type: ignore[arg-type]
    assert all(fragment in str(caught.value) for fragment in fragments), str(caught.value)
    assert isinstance(caught.value, errors.SheafedError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("check", [check_matrix, check_finite])
def test_non_finite_values_are_counted_and_located(bad: float, check, dtype: torch.dtype) -> None:
    x = normal(0, 2, 4, 3, dtype=dtype)
    x[1, 0, 2] = bad
    x[1, 3, 0] = bad
    with pytest.raises(errors.NonFiniteError) as caught:
        check("pilots", x)
    for fragment in ("pilots", "2 non-finite of 24", "(1, 0, 2)", str(bad)):
        assert fragment in str(caught.value)


def test_a_scalar_may_be_checked_for_finiteness() -> None:
    assert check_finite("loss", torch.tensor(2.0)) == 2.0
    with pytest.raises(errors.NonFiniteError, match=r"loss holds 1 non-finite of 1 .* \(\): nan"):
        check_finite("loss", torch.tensor(float("nan")))


def test_pairs_share_batch_rows_and_type_but_not_columns(dtype: torch.dtype) -> None:
    a, b = normal(0, 2, 5, 3, dtype=dtype), normal(1, 2, 5, 7, dtype=dtype)
    assert check_pair("a", a, "b", b) == (a, b)


@pytest.mark.parametrize("check", [check_pair, check_single_pair])
@pytest.mark.parametrize(
    ("a", "b", "error", "fragments"),
    [
        (torch.ones(5, 3), torch.ones(6, 3), errors.ShapeError, ["(5, 3)", "(6, 3)", "here", "it"]),
        (torch.ones(2, 5, 3), torch.ones(5, 3), errors.ShapeError, ["(2, 5, 3)", "(5, 3)"]),
        (torch.ones(5, 3), torch.ones(5, 3).double(), errors.DtypeError, ["float32", "float64"]),
        (torch.ones(5, 3).int(), torch.ones(5, 3), errors.DtypeError, ["here", "int32"]),
        (torch.ones(5, 3), torch.ones(5), errors.ShapeError, ["it", "(5,)"]),
        (torch.ones(5, 3), torch.full((5, 3), torch.inf), errors.NonFiniteError, ["it", "15"]),
    ],
)
def test_bad_pairs_are_named(check, a, b, error: type, fragments: list[str]) -> None:
    with pytest.raises(error) as caught:
        check("here", a, "it", b)
    assert all(fragment in str(caught.value) for fragment in fragments), str(caught.value)


def test_a_function_of_one_problem_refuses_a_batch() -> None:
    a, b = normal(0, 5, 3), normal(1, 5, 2)
    assert check_single_pair("a", a, "b", b) == (a, b)
    with pytest.raises(errors.ShapeError, match=r"a and b .* batch .*\(4, 5, 3\).*\(4, 5, 2\)"):
        check_single_pair("a", a.expand(4, 5, 3), "b", b.expand(4, 5, 2))


@pytest.mark.parametrize("value", [0, 0.0, 0.3, 1, 1.0])
def test_fractions_come_back(value: float) -> None:
    assert check_fraction("share", value) == value


@pytest.mark.parametrize("value", [-1e-9, 1.0000001, -3, float("nan"), float("inf")])
def test_other_numbers_are_no_fractions(value: float) -> None:
    with pytest.raises(errors.InputError) as caught:
        check_fraction("share", value)
    assert "share" in str(caught.value)
    assert str(value) in str(caught.value)


def test_ints_come_back_and_others_are_named() -> None:
    assert check_int("count", 3, 1, 3) == 3
    assert check_int("count", 10**9, 0) == 10**9
    for value in (0, 4, 2.0, True, "2"):
        with pytest.raises(
            errors.InputError, match=f"count must be an int from 1 to 3, got {value!r}"
        ):
            check_int("count", value, 1, 3)  # type: ignore[arg-type]
