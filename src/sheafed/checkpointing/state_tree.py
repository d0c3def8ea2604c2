"""Nested state as named tensors and a JSON skeleton, so that storing it needs no pickle.

The name of a tensor is the expression that reaches it, as in `tree['state'][0]['exp_avg']`. In the
skeleton, None, bool, str, finite floats and ints of 64 bits stand for themselves, a JSON array is
a list, and an object has one key, the kind of what it stands for.
"""

import struct
from collections import Counter, OrderedDict
from collections.abc import Mapping
from math import isfinite
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import Parameter

from sheafed.errors import TreeError

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

# What the state_dict() of a module, an optimiser or a scheduler is made of.
MAPPINGS: dict[str, type[dict[Any, Any]]] = {
    "dict": dict,
    "OrderedDict": OrderedDict,
    "Counter": Counter,
}
DTYPES = {
    *(torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16),
    *(torch.float16, torch.float32, torch.float64),
}
DEPTH = 100  # Python's json module gives up at about 300


def flatten(tree: object) -> tuple[dict[str, Tensor], Json]:
    """Take a nested state apart; `unflatten` restores its types, its order and its bits.

    A tree is a tensor, int, float, bool, str, None, or a dict with str and int keys, an
    OrderedDict, a Counter, a list or a tuple of trees. The tensors returned are detached,
    contiguous and on the CPU, not copied where they already are; a Parameter becomes a Tensor.
    Tensors that share memory stay equal, not shared.
    """
    tensors: dict[str, Tensor] = {}
    skeleton = _flatten(tree, "tree", 0, tensors)
    return tensors, skeleton


def unflatten(tensors: Mapping[str, Tensor], skeleton: Json) -> Any:
    """Put together what `flatten` took apart; raise `TreeError` unless it could have."""
    return _unflatten(tensors, skeleton, 0)


def moved(tree: Any, device: torch.device) -> Any:
    """Return a nested state with its tensors on a device."""
    if isinstance(tree, Tensor):
        return tree.to(device)
    if isinstance(tree, list | tuple):
        return type(tree)(moved(part, device) for part in tree)
    if isinstance(tree, dict):
        return type(tree)({key: moved(part, device) for key, part in tree.items()})
    return tree


def _flatten(value: object, path: str, depth: int, tensors: dict[str, Tensor]) -> Json:
    """Take one value apart. Types are compared exactly: a subclass would come back as its base."""
    if depth > DEPTH:
        raise TreeError(
            f"{path} is nested more than {DEPTH} levels deep; expected a flatter state, and none "
            "that contains itself"
        )
    kind = type(value)
    if value is None or type(value) is bool:
        return value
    if type(value) is int:  # Python converts no more than 4300 decimal digits
        return value if value.bit_length() <= 64 else {"int": hex(value)}
    if type(value) is float:  # JSON has no NaN and no infinity
        return value if isfinite(value) else {"float": struct.pack(">d", value).hex()}
    if type(value) is str:
        return _check_text(value, path)
    if type(value) is Tensor or type(value) is Parameter:
        return _flatten_tensor(value, path, tensors)
    if type(value) is list or type(value) is tuple:
        items = [_flatten(v, f"{path}[{i}]", depth + 1, tensors) for i, v in enumerate(value)]
        return items if kind is list else {"tuple": items}
    if isinstance(value, dict) and kind in MAPPINGS.values():
        pairs: list[Json] = [
            [_check_key(key, path), _flatten(v, f"{path}[{key!r}]", depth + 1, tensors)]
            for key, v in value.items()
        ]
        return {kind.__name__: pairs}
    raise TreeError(
        f"{path} is a {kind.__module__}.{kind.__qualname__}; expected a tensor, int, float, bool, "
        "str, None, or a dict, OrderedDict, Counter, list or tuple of them; convert it "
        "(torch.as_tensor, float, sorted, ...) or leave it out"
    )


def _flatten_tensor(value: Tensor, path: str, tensors: dict[str, Tensor]) -> Json:
    dense = value.layout is torch.strided and not value.is_meta
    if not dense or not (value.dtype in DTYPES or value.is_complex()):
        raise TreeError(
            f"{path} is a tensor of {value.dtype}, {value.layout}, on {value.device}; expected a "
            "dense one with data, of a plain dtype; convert it (to_dense, dequantize, float)"
        )
    plain = value.detach().cpu().resolve_neg()
    if plain.is_complex():  # safetensors has no complex128
        plain = torch.view_as_real(plain.resolve_conj())
    tensors[path] = plain.contiguous()
    return {"complex" if value.is_complex() else "tensor": path}


def _unflatten(tensors: Mapping[str, Tensor], skeleton: Json, depth: int) -> Any:
    if depth > DEPTH:
        raise TreeError(f"a skeleton is nested more than {DEPTH} levels deep; flatten writes none")
    match skeleton:
        case None | bool() | int() | float():
            return skeleton
        case str():
            return _check_text(skeleton, "a part of the skeleton")
        case list(items):
            return [_unflatten(tensors, item, depth + 1) for item in items]
        case {"tuple": list(items)}:
            return tuple(_unflatten(tensors, item, depth + 1) for item in items)
        case {"dict": list(items)} | {"OrderedDict": list(items)} | {"Counter": list(items)}:
            (kind,) = skeleton
            return MAPPINGS[kind](_unflatten_items(tensors, items, depth + 1))
        case {"tensor": str(name)} if name in tensors:
            return tensors[name]
        case {"complex": str(name)} if name in tensors:
            return torch.view_as_complex(tensors[name])
        case {"float": str(bits)} if len(bits) == 16:
            return struct.unpack(">d", bytes.fromhex(bits))[0]
        case {"int": str(digits)}:
            return int(digits, 16)
    raise TreeError(
        f"{skeleton!r:.200} is no part of a skeleton, or names none of the {len(tensors)} tensors; "
        "pass both results of flatten unchanged"
    )


def _unflatten_items(
    tensors: Mapping[str, Tensor], items: list[Json], depth: int
) -> dict[str | int, Any]:
    restored: dict[str | int, Any] = {}
    for item in items:
        match item:
            case [str() | int() as key, node]:
                restored[_check_key(key, "the skeleton")] = _unflatten(tensors, node, depth)
            case _:
                raise TreeError(
                    f"{item!r:.200} is no [key, value] of a skeleton, where the key is a str or an "
                    "int; pass both results of flatten unchanged"
                )
    return restored


def _check_key(key: object, path: str) -> str | int:
    if type(key) is str:
        return _check_text(key, f"a key of {path}")
    if type(key) is int and key.bit_length() <= 64:
        return key
    raise TreeError(
        f"{path} has a key {key!r:.200} of type {type(key).__name__}; expected str, or int of at "
        "most 64 bits; rename it"
    )


def _check_text(text: str, path: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise TreeError(
            f"{path} is {text!r:.200}, which UTF-8 cannot encode: {problem.reason}; expected text"
        ) from problem
    return text
