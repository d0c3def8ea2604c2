"""Page faults of blocks that are freed and taken again."""

import resource

import torch

from sheafed.training.allocator import keep_freed_memory

BLOCK = 10 << 20  # in float32 40 MiB, which glibc gives back to the system by itself


def page_faults() -> int:
    # The first few may be new ones although old ones were kept: where a block begins decides
    # whether the next fits in it.
    for _ in range(5):
        torch.ones(BLOCK)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.ones(BLOCK)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def before_and_after() -> tuple[int, int]:
    before = page_faults()
    assert keep_freed_memory()
    return before, page_faults()
