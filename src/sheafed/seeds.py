"""Random streams that are a function of (seed, purpose) and of nothing else.

A stream depends neither on the process, nor on the machine, nor on earlier draws, so agents that
share a seed draw the same numbers for the same purpose without a message.
"""

import json
from hashlib import blake2b

import numpy as np
import torch

from sheafed.errors import InputError


def derive(seed: int, *purpose: str | int) -> int:
    """Return the 63-bit seed of one purpose, e.g. `derive(7, "pilots", round)`.

    It is the upper 63 bits of the 8-byte BLAKE2b digest (big-endian) of the JSON list
    `[seed, *purpose]`, written in ASCII without spaces. JSON keeps the parts apart:
    `("ab", "c")` differs from `("a", "bc")`, and `1` from `"1"`.

    >>> derive(7, "pilots", 0) == derive(7, "pilots", 0)
    True
    >>> derive(7, "pilots", 0) == derive(7, "pilots", 1)
    False
    """
    for name, part, allowed in [
        ("seed", seed, (int,)),
        *((f"part {k} of the purpose", part, (int, str)) for k, part in enumerate(purpose)),
    ]:
        if isinstance(part, bool) or not isinstance(part, allowed):
            expected = " or ".join(kind.__name__ for kind in allowed)
            raise InputError(
                f"{name} must be {expected}, got {part!r} of type {type(part).__name__}; "
                f"convert it to {expected} first"
            )
    encoded = json.dumps([seed, *purpose], separators=(",", ":")).encode("ascii")
    return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "big") >> 1


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """Return a fresh CPU generator at the start of the stream of `derive(seed, *purpose)`.

    Torch's CPU engine keeps the low 32 bits of a seed: among n streams two coincide with
    probability about n²/2³³.

    >>> torch.equal(torch.rand(3, generator=generator(7, "data")),
    ...             torch.rand(3, generator=generator(7, "data")))
    True
    """
    return torch.Generator(device="cpu").manual_seed(derive(seed, *purpose))


def secret_stream(secret: int, *purpose: str | int) -> np.random.Generator:
    """Return a stream that can be repeated only with the secret.

    Torch's generator keeps 32 bits of a seed, which can be found by trying all; this one keeps all
    63. It is still not cryptographic.

    >>> bool(secret_stream(7, "noise").integers(10) == secret_stream(7, "noise").integers(10))
    True
    """
    return np.random.Generator(np.random.Philox(derive(secret, *purpose)))


def permutation(total: int, seed: int, *purpose: str | int) -> torch.Tensor:
    """Return a uniformly random order `(total,)` of 0..total-1, int64 on the CPU.

    >>> permutation(4, 7, "data").sort().values
    tensor([0, 1, 2, 3])
    """
    return torch.randperm(total, generator=generator(seed, *purpose), device="cpu")
