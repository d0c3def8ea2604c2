"""Every test that asks for `dtype` runs in single and in double precision."""

import pytest
import torch


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param
