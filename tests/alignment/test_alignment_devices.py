from collections.abc import Iterator

import pytest
import torch

import sheafed
from sheafed.alignment import AffineMap
from tests.helpers.devices import OTHERS, using, without_float64

KINDS = (torch.float32, torch.bfloat16, torch.float16)


def latents(dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    stream = torch.Generator().manual_seed(0)
    common = torch.randn(60, 5, generator=stream)
    views = {name: torch.randn(5, d, generator=stream) for name, d in (("ada", 5), ("bob", 4))}
    return {name: (common @ view).to(dtype) for name, view in views.items()}


@pytest.fixture(params=OTHERS)
def device(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[torch.device]:
    with using(request.param, monkeypatch) as found:
        yield found


@pytest.mark.parametrize("dtype", KINDS)
def test_latents_are_sent_where_they_are(dtype: torch.dtype, device: torch.device) -> None:
    here = latents(dtype)
    there = {name: z.to(device) for name, z in here.items()}
    aligned, expected = sheafed.align(there), sheafed.align(here)
    sent = aligned.send(there["ada"], "ada", "bob")
    assert (sent.device, sent.dtype) == (there["ada"].device, dtype)
    torch.testing.assert_close(sent.cpu(), expected.send(here["ada"], "ada", "bob"))
    assert aligned.link("ada", "bob").weight.device.type == "cpu"


def test_latents_of_a_device_without_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    here = latents()
    with without_float64(monkeypatch) as device:
        aligned = sheafed.align({"ada": here["ada"].to(device), "bob": here["bob"]})
        sent = aligned.send(here["ada"].to(device), "ada", "bob")
        assert sent.device.type == device.type
        found = sent.cpu()
    assert torch.equal(found, aligned.send(here["ada"], "ada", "bob"))


def test_a_map_follows_its_latents(device: torch.device) -> None:
    double = AffineMap(2 * torch.eye(2), centre=torch.ones(2), value=torch.zeros(2))
    found = double(torch.tensor([[1.0, 2.0]], device=device))
    assert found.device.type == device.type
    assert found.tolist() == [[0.0, 2.0]]
