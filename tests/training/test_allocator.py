import ctypes
import sys

import pytest

from sheafed.training.allocator import keep_freed_memory
from tests.helpers import warm_processes
from tests.helpers.page_faults import before_and_after


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="needs glibc"
)
def test_what_is_freed_is_taken_again_without_page_faults() -> None:
    """A block that went back to the system costs page faults when it is taken again."""
    before, after = warm_processes.call(before_and_after)
    assert after < 0.5 * before


def test_elsewhere_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert keep_freed_memory() is False
