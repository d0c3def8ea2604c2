import json
import re
import struct
from collections import Counter, OrderedDict, namedtuple
from enum import IntEnum
from math import inf, nan

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sheafed.checkpointing.state_tree import DEPTH, DTYPES, Json, flatten, unflatten
from sheafed.errors import TreeError

quick = settings(derandomize=True, deadline=None, max_examples=150)
negative_nan = struct.unpack(">d", bytes.fromhex("fff8000000000123"))[0]

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)
) | st.sampled_from([2**64, -(2**200), negative_nan, -0.0])
tensors = st.builds(
    lambda dtype, shape: torch.arange(6).to(dtype).reshape(shape),
    st.sampled_from(sorted(DTYPES | {torch.complex64, torch.complex128}, key=str)),
    st.sampled_from([(6,), (2, 3), (1, 6, 1)]),
)
keys = st.text(max_size=4) | st.integers(-(2**64) + 1, 2**64 - 1)
trees = st.recursive(
    scalars | tensors,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(keys, inner, max_size=4).map(OrderedDict),
    ),
    max_leaves=12,
)


def through_json(tree: object) -> object:
    tensors, skeleton = flatten(tree)
    return unflatten(tensors, json.loads(json.dumps(skeleton, allow_nan=False)))


def same(a: object, b: object) -> bool:
    """Tell whether two trees agree in types, order and bits."""
    if type(a) is not type(b):
        return False
    match a, b:
        case Tensor(), Tensor():
            bits = [x.contiguous().flatten().view(torch.uint8) for x in (a, b)]
            return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*bits)
        case dict(), dict():
            pairs = zip(a.items(), b.items(), strict=True)
            return len(a) == len(b) and all(same(x, y) for x, y in pairs)
        case (list(), list()) | (tuple(), tuple()):
            return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
        case float(), float():
            return struct.pack("d", a) == struct.pack("d", b)
    return a == b


@quick
@given(trees)
def test_round_trip_is_exact(tree: object) -> None:
    assert same(through_json(tree), tree)


@pytest.mark.parametrize(
    "leaf",
    [inf, -inf, nan, negative_nan, -0.0, 5e-324, 1e22, 3.0, True, 1, -(2**64), [10**5000], ""],
)
def test_scalars_keep_type_and_bits(leaf: object) -> None:
    assert same(through_json([leaf]), [leaf])


def test_str_and_int_keys_stay_apart_and_in_order() -> None:
    x = torch.zeros(2)
    tree = {"1": x, 1: x + 1, "b": 0, "a": {"__metadata__": x + 2}, "a['__metadata__']": x + 3}
    assert same(through_json(tree), tree)


def test_names_say_where_a_tensor_is() -> None:
    first, second, third = torch.eye(3)
    tensors, _ = flatten({"state": {0: {"exp_avg": first}}, "pair": (second, [third])})
    names = ["tree['state'][0]['exp_avg']", "tree['pair'][0]", "tree['pair'][1][0]"]
    assert same(tensors, dict(zip(names, torch.eye(3), strict=True)))


def test_awkward_tensors() -> None:
    base = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    complex_ = torch.complex(base, -base)
    tree = {
        "scalar": torch.tensor(nan),
        "empty": torch.empty(0, 3, dtype=torch.bfloat16),
        "transposed": base.T,
        "strided": base[::2, 1::3],
        "expanded": base[:, :1].expand(4, 3),
        "tied": [base, base, base[1:]],
        "random": torch.Generator().get_state(),
        "conjugate": complex_.conj(),
        "negated": complex_.conj().imag,
        "empty complex": complex_[:0],
    }
    restored = through_json(tree)
    tree["conjugate"], tree["negated"] = complex_.conj_physical(), base.clone()
    assert same(restored, tree)


def test_nothing_is_copied_that_need_not_be() -> None:
    x = torch.ones(3, requires_grad=True)
    tensors, _ = flatten([x])
    assert tensors["tree[0]"].data_ptr() == x.data_ptr()
    assert not tensors["tree[0]"].requires_grad


def test_a_parameter_becomes_a_tensor() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    assert same(through_json([parameter]), [torch.ones(2)])


def test_a_counter_stays_one() -> None:
    assert same(through_json(Counter([30, 10, 30])), Counter([30, 10, 30]))


def endless() -> list[object]:
    tree: list[object] = []
    tree.append(tree)
    return tree


Point = namedtuple("Point", "x y")
Colour = IntEnum("Colour", "RED")


class MyTensor(Tensor):
    pass


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": [1, {2, 3}]}, "tree['a'][1] is a builtins.set"),
        ({"a": {3: b"x"}}, "tree['a'][3] is a builtins.bytes"),
        ((np.float64(1.0),), "tree[0] is a numpy.float64"),
        ([np.zeros(2)], "tree[0] is a numpy.ndarray"),
        ([Point(1, 2)], f"tree[0] is a {__name__}.Point"),
        ([Colour.RED], f"tree[0] is a {__name__}.Colour"),
        ([torch.Size([2])], "tree[0] is a torch.Size"),
        ([torch.ones(1).as_subclass(MyTensor)], f"tree[0] is a {__name__}.MyTensor"),
        ([print], "tree[0] is a builtins.builtin_function_or_method"),
        ({"a": {True: 1}}, "tree['a'] has a key True of type bool"),
        ({"a": {(1, 2): 1}}, "tree['a'] has a key (1, 2) of type tuple"),
        ({2**64: 1}, "tree has a key 18446744073709551616 of type int"),
        ({"a": "\ud83d"}, r"tree['a'] is '\ud83d', which UTF-8 cannot encode"),
        ({"\ud83d": 1}, r"a key of tree is '\ud83d', which UTF-8 cannot encode"),
        ([torch.ones(2).to_sparse()], "tree[0] is a tensor of torch.float32, torch.sparse_coo"),
        ([torch.ones(2, device="meta")], "torch.strided, on meta"),
        ([torch.ones(2).to(torch.float8_e4m3fnuz)], "tree[0] is a tensor of torch.float8_e4m3fnuz"),
        (endless(), f"tree{'[0]' * (DEPTH + 1)} is nested more than {DEPTH} levels deep"),
    ],
)
def test_what_cannot_be_stored_is_named(tree: object, message: str) -> None:
    with pytest.raises(TreeError, match=re.escape(message)):
        flatten(tree)


def test_the_deepest_tree_survives_json() -> None:
    tree: object = 1
    for _ in range(DEPTH):
        tree = {0: tree}
    assert same(through_json(tree), tree)


@pytest.mark.parametrize(
    "skeleton",
    [
        {"tensor": "tree"},
        {"complex": "tree"},
        {"set": []},
        {},
        {"dict": [["a"]]},
        {"OrderedDict": [[1.5, 2]]},
        [{"tuple": 3}],
        {"float": 1},
    ],
)
def test_what_is_no_skeleton_is_named(skeleton: Json) -> None:
    with pytest.raises(TreeError, match="is no"):
        unflatten({}, skeleton)
