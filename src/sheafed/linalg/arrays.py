"""Arrays of NumPy that torch does not take as they are."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray


def for_torch(x: NDArray[Any]) -> NDArray[Any]:
    """Return an array over which there can be a tensor: itself where possible, else a copy."""
    if not x.dtype.isnative:
        return x.astype(x.dtype.newbyteorder("="))
    # A tensor over read-only memory, such as a mapped file, could write there.
    return x.copy() if not x.flags.writeable or min(x.strides, default=0) < 0 else x
