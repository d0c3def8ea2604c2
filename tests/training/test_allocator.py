import ctypes
import subprocess
import sys

import pytest

from sheafed.training.allocator import keep_freed_memory

# A block that went back to the system costs page faults when it is taken again. The first few may
# be new ones although old ones were kept: where a block begins decides whether the next fits in it.
PROGRAM = """
import resource
import torch
from sheafed.training.allocator import keep_freed_memory

def faults():
    for _ in range(10):
        torch.ones(1 << 24)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(1 << 24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults())
assert keep_freed_memory()
print(faults())
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc"
)
def test_what_is_freed_is_taken_again_without_page_faults() -> None:
    printed = subprocess.check_output([sys.executable, "-c", PROGRAM], text=True)
    before, after = map(int, printed.split())
    assert after < 0.5 * before


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed_memory() is False
