"""Latents that cross the wire in fewer bytes: bounded errors, one map per edge."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sheafed import SheafFRL
from sheafed.errors import InputError, NonFiniteError
from sheafed.methods import Distillation, MapPolicy
from sheafed.methods.latent_codec import pack, packed_specs, unpack
from tests.helpers.small_federations import MessageRecorder, agent, nodes_of, run_rounds

QUANTISATIONS = ["none", "float16", "int8"]
TRIANGLE = [("a", "b"), ("a", "c"), ("b", "c")]


def rows(seed: int, n: int = 7, d: int = 5, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def there_and_back(values: Tensor, quantisation: str) -> Tensor:
    return unpack("x", pack("x", values, quantisation), quantisation, values.dtype)


@given(seed=st.integers(0, 10_000), exponent=st.floats(-3, 3))
def test_errors_are_bounded(seed: int, exponent: float) -> None:
    values = rows(seed, scale=10**exponent)
    assert torch.equal(there_and_back(values, "none"), values)
    half = there_and_back(values, "float16")
    assert bool(((half - values).abs() <= values.abs() * 2**-11 + 2**-25).all())
    byte = there_and_back(values, "int8")
    largest = values.abs().amax(1, keepdim=True)
    assert bool(((byte - values).abs() <= largest / 254 * 1.0001).all())


@pytest.mark.parametrize("quantisation", QUANTISATIONS)
def test_what_is_packed_is_what_is_expected_and_rounds_to_itself(quantisation: str) -> None:
    for values in (rows(1), rows(2).double(), torch.zeros(3, 4)):
        packed = pack("x", values, quantisation)
        specs = packed_specs("x", *values.shape, quantisation, values.dtype)
        assert {k: (t.dtype, tuple(t.shape)) for k, t in packed.items()} == {
            k: (s.dtype, s.shape) for k, s in specs.items()
        }
        once = there_and_back(values, quantisation)
        assert once.dtype == values.dtype
        torch.testing.assert_close(there_and_back(once, quantisation), once)


def test_a_row_of_zeros_stays_one() -> None:
    values = torch.tensor([[0.0, 0.0], [1.0, -2.0]])
    assert torch.equal(there_and_back(values, "int8")[0], values[0])


def test_what_half_precision_cannot_hold_is_refused() -> None:
    with pytest.raises(NonFiniteError, match=r"up to 1e\+05 are too large for float16"):
        pack("latents", torch.full((1, 2), 1e5), "float16")


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(
        InputError, match="quantisation must be 'none', 'float16' or 'int8', got 'bit'"
    ):
        SheafFRL(quantisation="bit")


@pytest.mark.parametrize("quantisation", QUANTISATIONS)
@pytest.mark.parametrize("source", ["round", "all", "running"])
def test_both_ends_of_an_edge_hold_the_same_map(quantisation: str, source: str) -> None:
    agents = [agent("a", 9), agent("b", 5), agent("c", 7)]
    method = SheafFRL(
        quantisation=quantisation, maps=MapPolicy(source=source), distillation=Distillation(0.2)
    )
    nodes = nodes_of(agents, TRIANGLE, method)
    recorder = run_rounds(nodes, 4)
    for one, other in TRIANGLE:
        assert torch.equal(nodes[one].endpoints[other].map, nodes[other].endpoints[one].map)
    assert not any(node.rejected for node in nodes.values())
    assert not recorder.transport.rejected


@pytest.mark.parametrize("privacy", ["standard", "strict"])
def test_bytes_fall_and_training_hardly_changes(privacy: str) -> None:
    payload, weights = {}, {}
    for quantisation in QUANTISATIONS:
        agents = [agent("a", 9), agent("b", 5), agent("c", 7)]
        nodes = nodes_of(agents, TRIANGLE, SheafFRL(quantisation=quantisation, privacy=privacy))
        recorder = run_rounds(nodes, 6, MessageRecorder(nodes))
        rows = [row for row in recorder.transport.ledger.rows() if row.kind == "round"]
        payload[quantisation] = sum(row.payload_bytes for row in rows)
        weights[quantisation] = torch.cat(
            [p.detach().flatten() for a in agents for p in a.parameters]
        )
    assert payload["float16"] * 2 == payload["none"]
    assert payload["int8"] < 0.5 * payload["none"]
    step = (weights["none"]).norm()
    assert 0 < (weights["float16"] - weights["none"]).norm() < 1e-4 * step
    assert 0 < (weights["int8"] - weights["none"]).norm() < 1e-2 * step
