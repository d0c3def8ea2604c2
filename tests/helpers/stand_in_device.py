"""A device for tests, `standin:0`: it computes on the CPU and refuses what lies elsewhere.

It is PyTorch's `PrivateUse1` backend, so its tensors are ordinary ones to autograd, optimisers and
modules. Their memory is the CPU's: DLPack makes a tensor of another device of the same memory, and
the fallback of the dispatcher runs every operation on such aliases with the kernels of the CPU.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
from torch.utils.dlpack import from_dlpack, to_dlpack

NAME = "standin"
ATEN = torch.ops.aten
COPIES = (ATEN._copy_from.default, ATEN.copy_.default)
MISSING = (
    "linalg_svd",
    "linalg_eigh",
    "linalg_qr",
    "linalg_solve",
    "linalg_pinv",
    "frexp",
    "aminmax",
)
"""Parts of the names of operations that a device without float64 lacks, as MPS does."""
RESIZING = ATEN.mse_loss.out
"""Its kernel resizes the output for a while, which memory that is not the CPU's own cannot be."""
DL_CPU, DL_EXTENSION = 1, 12


class StandIn:
    """What PyTorch asks of a device's module, `torch.standin`."""

    def __init__(self) -> None:
        self.rng_state = torch.Generator().manual_seed(0).get_state()
        self.has_float64 = True

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        self.rng_state = torch.Generator().manual_seed(seed).get_state()

    def get_rng_state(self, device: object = 0) -> Tensor:
        return self.rng_state.clone()

    def set_rng_state(self, state: Tensor, device: object = 0) -> None:
        self.rng_state = state.clone()

    @contextmanager
    def without_float64(self) -> Iterator[None]:
        self.has_float64 = False
        try:
            yield
        finally:
            self.has_float64 = True


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("index", ctypes.c_int32))


class _DLTensor(ctypes.Structure):
    """The first two fields of a DLManagedTensor."""

    _fields_ = (("data", ctypes.c_void_p), ("device", _Device))


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _alias(tensor: Tensor, device_type: int) -> Tensor:
    """The same memory as a tensor of another device."""
    capsule = to_dlpack(tensor)
    _DLTensor.from_address(_pointer(capsule, b"dltensor")).device.type = device_type
    return from_dlpack(capsule)


def _is_here(x: object) -> bool:
    return isinstance(x, Tensor) and x.device.type == NAME


def _fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operation, one of whose tensors or whose result is on this device."""
    if op in COPIES:
        source, target = args[:2] if op is COPIES[0] else (args[1], args[0])
        _cpu(target).copy_(_cpu(source))
        return target
    if not STAND_IN.has_float64 and any(part in str(op) for part in MISSING):
        raise NotImplementedError(f"{NAME} has no {op} now")
    given: list[tuple[Tensor, Tensor]] = []
    elsewhere: list[Tensor] = []

    def down(x: Any) -> Any:
        if isinstance(x, torch.device):
            return torch.device("cpu")
        if _is_here(x):
            given.append((x, _cpu(x)))
            return given[-1][1]
        # As on CUDA, a number that torch wrapped in a tensor may come from the CPU.
        if isinstance(x, Tensor) and x.ndim:
            elsewhere.append(x)
        return x

    def up(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        same = [mine for mine, alias in given if alias is x]
        return same[0] if same else _here(x)

    lowered_args, lowered = _each(down, args), {key: _each(down, x) for key, x in kwargs.items()}
    if given and elsewhere:
        raise RuntimeError(f"{op} got tensors on {NAME}:0 and on {elsewhere[0].device}")
    if op is RESIZING:
        given = [(kwargs["out"], torch.empty(0))]
        lowered["out"] = given[0][1]
    if torch.Tag.nondeterministic_seeded in op.tags:
        with _own_stream():
            result = op(*lowered_args, **lowered)
    else:
        result = op(*lowered_args, **lowered)
    for mine, alias in given:
        if op is RESIZING or mine.shape != alias.shape:
            mine.data = _here(alias)
    return _each(up, result)


def _each(function: Callable[[Any], Any], x: Any) -> Any:
    """Apply a function to a value, or to those of a list or tuple."""
    return type(x)(_each(function, part) for part in x) if type(x) in (list, tuple) else function(x)


def _cpu(x: Tensor) -> Tensor:
    if not _is_here(x):
        return x
    return _alias(x, DL_CPU) if x.numel() else torch.empty(x.shape, dtype=x.dtype)


def _here(x: Tensor) -> Tensor:
    if x.dtype == torch.float64 and not STAND_IN.has_float64:
        raise TypeError(f"{NAME} has no float64 now")
    return _alias(x, DL_EXTENSION)


@contextmanager
def _own_stream() -> Iterator[None]:
    """Draw from the device's stream, which is not the CPU's."""
    outside = torch.get_rng_state()
    torch.set_rng_state(STAND_IN.rng_state)
    try:
        yield
    finally:
        STAND_IN.rng_state = torch.get_rng_state()
        torch.set_rng_state(outside)


def _convolution(*args: Any) -> Any:
    return _fallback(ATEN.convolution.default, *args)


def _convolution_backward(gradient: Tensor, x: Tensor, weight: Tensor, *args: Any) -> Any:
    bias = [weight.shape[0]]
    return _fallback(ATEN.convolution_backward.default, gradient, x, weight, bias, *args)


STAND_IN = StandIn()
_setup_privateuseone_for_python_backend(NAME, backend_module=STAND_IN)
_LIBRARIES = (torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL"))  # kept
_LIBRARIES[0].fallback(_fallback, "PrivateUse1")
_LIBRARIES[1].impl("convolution_overrideable", _convolution, "PrivateUse1")
_LIBRARIES[1].impl("convolution_backward_overrideable", _convolution_backward, "PrivateUse1")


_deepcopy = Tensor.__deepcopy__


def _deepcopy_here(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """Copy a tensor of this device, which has no allocator for storages."""
    if not _is_here(self):
        return _deepcopy(self, memo)
    return memo.setdefault(id(self), self.detach().clone().requires_grad_(self.requires_grad))


Tensor.__deepcopy__ = _deepcopy_here  # type: ignore[method-assign]
_make_generator = torch.Generator


def generator(device: Any = "cpu") -> torch.Generator:
    """In place of `torch.Generator`: no hook makes one for a device that Python defines."""
    here = torch.device(device).type == NAME
    return _make_generator("cpu" if here else device)
