from collections import UserDict
from typing import NamedTuple

import pytest
import torch

from sheafed.errors import InputError, ShapeError
from sheafed.tensor_tree import map_tensors, select_rows, tensors, to_device, tree_length


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


def test_a_lone_tensor_is_a_tree():
    assert [path for path, _ in tensors(torch.zeros(2))] == [""]
    assert to_device(torch.zeros(2), torch.device("meta")).device.type == "meta"
