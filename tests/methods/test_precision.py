"""Latents that cross the wire in fewer bytes: bounded errors, one map per edge."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_worlds import Wire, agent, nodes_of, run_rounds
from torch import Tensor

from sheafed import SheafFRL
from sheafed.errors import InputError, NonFiniteError
from sheafed.methods import Beliefs, MapPolicy
from sheafed.methods.precision import pack, packed_specs, unpack

PRECISIONS = ["full", "half", "byte"]
TRIANGLE = [("a", "b"), ("a", "c"), ("b", "c")]


def rows(seed: int, n: int = 7, d: int = 5, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def there_and_back(values: Tensor, precision: str) -> Tensor:
    return unpack("x", pack("x", values, precision), precision, values.dtype)


@given(seed=st.integers(0, 10_000), exponent=st.floats(-3, 3))
def test_errors_are_bounded(seed: int, exponent: float) -> None:
    values = rows(seed, scale=10**exponent)
    assert torch.equal(there_and_back(values, "full"), values)
    half = there_and_back(values, "half")
    assert bool(((half - values).abs() <= values.abs() * 2**-11 + 2**-25).all())
    byte = there_and_back(values, "byte")
    largest = values.abs().amax(1, keepdim=True)
    assert bool(((byte - values).abs() <= largest / 254 * 1.0001).all())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_is_packed_is_what_is_expected_and_rounds_to_itself(precision: str) -> None:
    for values in (rows(1), rows(2).double(), torch.zeros(3, 4)):
        packed = pack("x", values, precision)
        specs = packed_specs("x", *values.shape, precision, values.dtype)
        assert {k: (t.dtype, tuple(t.shape)) for k, t in packed.items()} == {
            k: (s.dtype, s.shape) for k, s in specs.items()
        }
        once = there_and_back(values, precision)
        assert once.dtype == values.dtype
        torch.testing.assert_close(there_and_back(once, precision), once)


def test_a_row_of_zeros_stays_one() -> None:
    values = torch.tensor([[0.0, 0.0], [1.0, -2.0]])
    assert torch.equal(there_and_back(values, "byte")[0], values[0])


def test_what_half_precision_cannot_hold_is_refused() -> None:
    with pytest.raises(NonFiniteError, match=r"up to 1e\+05 are too large for half precision"):
        pack("latents", torch.full((1, 2), 1e5), "half")


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(InputError, match="precision must be one of full, half, byte, got 'bit'"):
        SheafFRL(precision="bit")


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("source", ["round", "all", "running"])
def test_both_ends_of_an_edge_hold_the_same_map(precision: str, source: str) -> None:
    agents = [agent("a", 9), agent("b", 5), agent("c", 7)]
    method = SheafFRL(precision=precision, maps=MapPolicy(source=source), beliefs=Beliefs(0.2))
    nodes = nodes_of(agents, TRIANGLE, method)
    wire = run_rounds(nodes, 4)
    for one, other in TRIANGLE:
        assert torch.equal(nodes[one].ends[other].map, nodes[other].ends[one].map)
    assert not any(node.rejected for node in nodes.values())
    assert not wire.exchange.rejected


@pytest.mark.parametrize("privacy", ["standard", "strict"])
def test_bytes_fall_and_training_hardly_changes(privacy: str) -> None:
    payload, weights = {}, {}
    for precision in PRECISIONS:
        agents = [agent("a", 9), agent("b", 5), agent("c", 7)]
        nodes = nodes_of(agents, TRIANGLE, SheafFRL(precision=precision, privacy=privacy))
        wire = run_rounds(nodes, 6, Wire(nodes))
        rows = [row for row in wire.exchange.ledger.rows() if row.kind == "round"]
        payload[precision] = sum(row.payload_bytes for row in rows)
        weights[precision] = torch.cat([p.detach().flatten() for a in agents for p in a.parameters])
    assert payload["half"] * 2 == payload["full"]
    assert payload["byte"] < 0.5 * payload["full"]
    step = (weights["full"]).norm()
    assert 0 < (weights["half"] - weights["full"]).norm() < 1e-4 * step
    assert 0 < (weights["byte"] - weights["full"]).norm() < 1e-2 * step
