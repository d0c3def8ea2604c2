from collections import UserDict
from typing import NamedTuple

import numpy as np
import pytest
import torch

from sheafed.errors import DtypeError, EmptyInputError, InputError, ShapeError
from sheafed.tensor_tree import (
    as_tensor_tree,
    concatenate_rows,
    map_tensors,
    same_tensors,
    select_rows,
    tensors,
    to_device,
    to_tensor,
    tree_length,
)


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


def test_rows_of_nested_inputs_are_selected_together():
    tree = UserDict(tokens=torch.arange(6).reshape(3, 2), pair=Pair(torch.arange(3), torch.ones(3)))
    rows = select_rows(tree, torch.tensor([2, 0]))
    assert rows["tokens"].tolist() == [[4, 5], [0, 1]]
    assert isinstance(rows["pair"], Pair)
    assert rows["pair"].left.tolist() == [2, 0]
    assert tree_length(rows) == 2


def test_parts_of_different_length_are_named():
    with pytest.raises(ShapeError, match=r"3 in inputs\['a'\], 2 in inputs\['b'\]\[0\]"):
        tree_length({"a": torch.zeros(3), "b": [torch.zeros(2)]})


def test_what_is_no_tensor_is_refused_by_its_type():
    with pytest.raises(InputError, match="got str"):
        map_tensors(torch.neg, {"text": "hello"})


@pytest.mark.filterwarnings("error")
def test_arrays_that_torch_does_not_take_are_copied_and_others_are_not():
    plain = np.arange(6.0).reshape(3, 2)
    read_only = plain.copy()
    read_only.flags.writeable = False
    for array in (plain[::-1], plain[:, ::-1], plain.astype(">f8"), read_only):
        assert to_tensor(array).tolist() == array.tolist()
        assert as_tensor_tree({"a": (array,)})["a"][0].tolist() == array.tolist()
    to_tensor(read_only)[:] = 7
    to_tensor(plain)[0] = 7
    assert read_only[0, 0] == 0
    assert plain[0, 0] == 7


def test_a_lone_tensor_is_a_tree():
    assert [path for path, _ in tensors(torch.zeros(2))] == [""]
    assert to_device(torch.zeros(2), torch.device("meta")).device.type == "meta"


def test_trees_are_equal_in_paths_types_and_values():
    tree = {"a": torch.ones(2), "b": (torch.zeros(2),)}
    assert same_tensors(tree, {"b": [torch.zeros(2)], "a": torch.ones(2)})
    for other in (torch.ones(2).double(), -torch.ones(2), torch.ones(3)):
        assert not same_tensors(tree, tree | {"a": other})
    assert not same_tensors(tree, {"a": torch.ones(2)})


def test_rows_are_concatenated_in_the_structure_of_the_first():
    parts = [{"a": torch.full((n, 2), n), "b": [torch.arange(n)]} for n in (1, 2)]
    joined = concatenate_rows(parts)
    assert joined["a"][:, 0].tolist() == [1, 2, 2]
    assert joined["b"][0].tolist() == [0, 0, 1]


def test_arrays_become_tensors_and_what_is_no_number_is_named():
    tree = as_tensor_tree(UserDict(tokens=np.ones((2, 3)), pair=Pair([1, 2], np.zeros(2))))
    assert tree["tokens"].dtype == torch.float64
    assert isinstance(tree["pair"], Pair)
    assert tree["pair"].left.tolist() == [1, 2]
    for ragged in ([[1, 2], [3]], ["some", "texts"]):
        with pytest.raises(DtypeError, match=r"got list.*token ids, and pad rows"):
            as_tensor_tree({"x": ragged})


def test_a_number_and_nothing_have_no_rows():
    with pytest.raises(ShapeError, match=r"0 in inputs\['scale'\]"):
        tree_length({"x": torch.zeros(2), "scale": torch.tensor(1.0)})
    with pytest.raises(EmptyInputError, match="no tensor"):
        tree_length({})
