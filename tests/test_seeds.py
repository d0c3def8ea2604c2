from hashlib import blake2b

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sheafed import seeds
from sheafed.errors import InputError
from sheafed.seeds import derive, generator, permutation, secret_stream

parts = st.lists(st.one_of(st.integers(), st.text(max_size=4)), max_size=4).map(tuple)
quick = settings(derandomize=True, deadline=None, max_examples=30)


def test_pinned_values_never_change() -> None:
    """Neither with the release nor, as hashes of strings do, with the process."""
    assert derive(0) == 6197007067532723406
    assert derive(7, "pilots", 3) == 4590816747074108491


def test_is_the_documented_hash() -> None:
    digest = blake2b(b'[7,"pilots",3]', digest_size=8).digest()
    assert derive(7, "pilots", 3) == int.from_bytes(digest, "big") // 2


@quick
@given(st.integers(), parts)
def test_fits_in_63_bits(seed: int, purpose: tuple[str | int, ...]) -> None:
    assert 0 <= derive(seed, *purpose) < 2**63


@quick
@given(parts, parts)
def test_different_purposes_have_different_seeds(
    one: tuple[str | int, ...], other: tuple[str | int, ...]
) -> None:
    assert (derive(0, *one) == derive(0, *other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        ((1,), ("1",)),
        ((1, 2), (12,)),
        (("a", 1), ("a,1",)),
        (("a",), ("a", "")),
        ((), ("",)),
        (('a","b',), ("a", "b")),
        (("é",), ("\\u00e9",)),
    ],
)
def test_parts_are_kept_apart(one: tuple[str | int, ...], other: tuple[str | int, ...]) -> None:
    assert derive(5, *one) != derive(5, *other)


def test_seeds_differ_from_each_other_and_may_be_negative() -> None:
    assert len({derive(seed, "data") for seed in range(-500, 500)}) == 1000


@pytest.mark.parametrize("seed", [True, 1.0, "1", None])
def test_a_seed_that_is_no_int_is_an_error(seed: object) -> None:
    with pytest.raises(InputError, match=rf"seed must be int, got {seed!r}"):
        derive(seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("part", [False, 1.5, None, b"a"])
def test_a_purpose_that_is_neither_int_nor_str_is_an_error(part: object) -> None:
    with pytest.raises(InputError, match="part 1 of the purpose must be int or str"):
        derive(0, "data", part)  # type: ignore[arg-type]


def test_a_generator_is_fresh_and_on_the_cpu() -> None:
    stream = generator(3, "dropout", 1)
    assert stream.device.type == "cpu"
    first = torch.rand(5, generator=stream)
    assert not torch.equal(first, torch.rand(5, generator=stream))
    assert torch.equal(first, torch.rand(5, generator=generator(3, "dropout", 1)))
    assert not torch.equal(first, torch.rand(5, generator=generator(3, "dropout", 2)))


@quick
@given(st.integers(0, 50), st.integers())
def test_a_permutation_holds_every_index_once(total: int, seed: int) -> None:
    order = permutation(total, seed, "order")
    assert order.dtype == torch.int64
    assert sorted(order.tolist()) == list(range(total))
    assert torch.equal(order, permutation(total, seed, "order"))


def test_permutations_are_uniform() -> None:
    draws = [tuple(permutation(3, seed).tolist()) for seed in range(3000)]
    counts = {order: draws.count(order) for order in set(draws)}
    assert len(counts) == 6
    # 3000 draws: mean 500 and standard deviation 20.4 per order; five of them as tolerance
    assert all(abs(count - 500) < 102 for count in counts.values())


def test_global_random_state_is_neither_used_nor_touched() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = permutation(20, 0)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert torch.equal(first, permutation(20, 0))


def test_default_device_is_ignored() -> None:
    with torch.device("meta"):
        assert permutation(4, 0).device.type == "cpu"


def test_a_secret_stream_keeps_every_bit_of_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's keeps 32, so that four billion tries would find any secret."""
    drawn, by_torch = [], []
    for seed in (7, *(7 + 2**bit for bit in range(32, 63))):
        monkeypatch.setattr(seeds, "derive", lambda *_, seed=seed: seed)
        drawn.append(float(secret_stream(1).standard_normal()))
        by_torch.append(float(torch.randn((), generator=generator(1))))
    assert len(set(drawn)) == 32
    assert len(set(by_torch)) == 1


def test_a_secret_stream_follows_from_secret_and_purpose() -> None:
    draws = [
        secret_stream(*key).integers(2**60) for key in ((1, "a"), (1, "a"), (1, "b"), (2, "a"))
    ]
    assert draws[0] == draws[1]
    assert len(set(draws)) == 3
