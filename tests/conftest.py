import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Small matrices lose time to threads, and bitwise comparisons want one order of sums."""
    torch.set_num_threads(1)
