"""Pilot policies: the contract of all, and the distribution that each draws from."""

from collections import Counter
from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sheafed.errors import DtypeError, EmptyInputError, InputError, ShapeError
from sheafed.pilots import (
    AllPilots,
    DynamicPilots,
    PilotPolicy,
    PrototypePilots,
    Selection,
    StratifiedPilots,
    UniformPilots,
)
from sheafed.pilots.policies import policy_digest
from sheafed.seeds import generator

quick = settings(derandomize=True, deadline=None, max_examples=30)
seeds = st.integers(0, 2**40)
rounds = st.integers(0, 10_000)

LABELS = torch.tensor([7, -2, 7, 3, 3, 7, -2, 7, 3, 3, 7, -2])  # 3 of -2, 4 of 3, 5 of 7
DRAWS = 1000


@st.composite
def labelled(draw: st.DrawFn) -> tuple[Tensor, int]:
    """Labels in any order with gaps between them, and the size of the smallest class."""
    sizes = draw(st.dictionaries(st.integers(-9, 9), st.integers(1, 7), min_size=1, max_size=5))
    flat = [label for label, size in sizes.items() for _ in range(size)]
    return torch.tensor(draw(st.permutations(flat))), min(sizes.values())


POLICIES: dict[str, tuple[int, Callable[[int], PilotPolicy]]] = {
    "all": (12, lambda seed: AllPilots(12)),
    "uniform": (5, lambda seed: UniformPilots(12, 5, seed)),
    "stratified": (6, lambda seed: StratifiedPilots(LABELS, 2, seed)),
    "prototypes": (3, lambda seed: PrototypePilots(LABELS, seed)),
    "prototypes_subset": (3, lambda seed: PrototypePilots(LABELS, seed, subset=2)),
    "dynamic": (5, lambda seed: DynamicPilots(12, 5, 2, seed)),
}
FIXED = {"all", "prototypes"}  # nothing is drawn: every round is the same


@pytest.fixture(params=POLICIES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make(name: str, seed: int) -> PilotPolicy:
    return POLICIES[name][1](seed)


def drawn(policy: PilotPolicy, round: int = 0) -> list[int]:
    return policy.select(round).indices.tolist()


def same(one: Selection, other: Selection) -> bool:
    return one.fingerprint() == other.fingerprint()


class TestEveryPolicy:
    """The contract of a `PilotPolicy`."""

    def test_indices_ascend_in_range_and_count_is_k(self, name: str) -> None:
        for seed in range(5):
            policy = make(name, seed)
            for round in range(20):
                selection = policy.select(round)
                indices = selection.indices.tolist()
                assert indices == sorted(set(indices))
                assert 0 <= indices[0] <= indices[-1] < 12
                assert selection.indices.dtype == torch.int64
                assert policy.count == selection.count == POLICIES[name][0]
                assert selection.pool(torch.ones(len(indices), 3)).shape == (policy.count, 3)

    def test_two_agents_choose_alike(self, name: str) -> None:
        one, other = make(name, 4), make(name, 4)
        for round in (9, 0, 3):  # neither the order nor the number of calls matters
            assert same(one.select(round), other.select(round))
        assert same(other.select(9), one.select(9))
        assert policy_digest(one) == policy_digest(other)

    def test_rounds_and_seeds_differ_where_something_is_drawn(self, name: str) -> None:
        by_round = {tuple(drawn(make(name, 0), round)) for round in range(30)}
        by_seed = {tuple(drawn(make(name, seed))) for seed in range(30)}
        if name in FIXED:
            assert len(by_round) == len(by_seed) == 1
        else:
            assert len(by_round) > 10
            assert len(by_seed) > 10
            assert policy_digest(make(name, 0)) != policy_digest(make(name, 1))

    def test_global_random_state_is_neither_used_nor_touched(self, name: str) -> None:
        torch.manual_seed(1)
        before = torch.get_rng_state()
        first = make(name, 0).select(1)
        assert torch.equal(before, torch.get_rng_state())
        torch.manual_seed(2)
        assert same(first, make(name, 0).select(1))

    def test_default_device_is_ignored(self, name: str) -> None:
        with torch.device("meta"):
            assert make(name, 0).select(1).indices.device.type == "cpu"

    @pytest.mark.parametrize("round", [-1, 1.0, True])
    def test_a_bad_round_is_an_error(self, name: str, round: int) -> None:
        with pytest.raises(InputError, match=f"round must be an int from 0 to inf, got {round}"):
            make(name, 0).select(round)

    def test_is_frozen(self, name: str) -> None:
        with pytest.raises(AttributeError):
            make(name, 0).count = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: AllPilots(0), "total must be an int from 1 to inf, got 0"),
        (lambda: UniformPilots(0, 1, 0), "total must be an int from 1 to inf, got 0"),
        (lambda: UniformPilots(5, 0, 0), "count must be an int from 1 to 5, got 0"),
        (lambda: UniformPilots(5, 6, 0), "count must be an int from 1 to 5, got 6"),
        (lambda: UniformPilots(5, 2.0, 0), r"count must be an int from 1 to 5, got 2\.0"),
        (lambda: UniformPilots(5, True, 0), "count must be an int from 1 to 5, got True"),
        (lambda: UniformPilots(4, 2, 0.5), "seed must be int"),
        (lambda: StratifiedPilots(LABELS, 0, 0), "per_stratum must be an int from 1 to inf"),
        (
            lambda: StratifiedPilots(LABELS, 4, 0),
            "stratum -2 has 3 of the 12 shared samples, expected at least per_stratum = 4",
        ),
        (lambda: PrototypePilots(LABELS, 0, subset=0), "subset must be an int from 1 to inf"),
        (lambda: DynamicPilots(0, 1, 0, 0), "total must be an int from 1 to inf, got 0"),
        (lambda: DynamicPilots(9, 10, 2, 0), "count must be an int from 1 to 9, got 10"),
        (lambda: DynamicPilots(9, 4, 5, 0), "persistent must be an int from 0 to 4, got 5"),
        (lambda: DynamicPilots(9, 4, -1, 0), "persistent must be an int from 0 to 4, got -1"),
        (lambda: DynamicPilots(9, 4, 2, 0, every=0), "every must be an int from 1 to inf, got 0"),
    ],
)
def test_a_bad_policy_fails_where_it_is_made(
    build: Callable[[], PilotPolicy], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        build()


@pytest.mark.parametrize(
    "policy", [lambda x: StratifiedPilots(x, 1, 0), lambda x: PrototypePilots(x, 0)]
)
def test_strata_are_checked(policy: Callable[[Tensor], PilotPolicy]) -> None:
    with pytest.raises(ShapeError, match=r"strata must have shape \(M,\), got \(2, 6\)"):
        policy(LABELS.reshape(2, 6))
    with pytest.raises(EmptyInputError, match="strata is empty"):
        policy(LABELS[:0])
    with pytest.raises(DtypeError, match=r"strata must be int64, got torch\.float32"):
        policy(LABELS.float())
    with pytest.raises(DtypeError, match="strata must be a tensor, got list"):
        policy(LABELS.tolist())  # type: ignore[arg-type]


class TestUniform:
    @quick
    @given(st.data(), st.integers(1, 40), seeds, rounds)
    def test_draws_without_replacement(
        self, data: st.DataObject, total: int, seed: int, round: int
    ) -> None:
        count = data.draw(st.integers(1, total))
        chosen = drawn(UniformPilots(total, count, seed), round)
        assert chosen == sorted(set(chosen))
        assert len(chosen) == count
        assert set(chosen) <= set(range(total))

    def test_is_the_documented_stream(self) -> None:
        expected = torch.randperm(30, generator=generator(8, "pilots", 2))[:6].sort().values
        assert torch.equal(UniformPilots(30, 6, seed=8).select(2).indices, expected)

    def test_every_subset_is_equally_likely(self) -> None:
        policy = UniformPilots(5, 2, 0)
        found = Counter(tuple(drawn(policy, t)) for t in range(DRAWS))
        assert set(found) == set(combinations(range(5), 2))
        # mean 100 and standard deviation 9.5 per subset; five of them as tolerance
        assert all(abs(count - DRAWS / 10) < 48 for count in found.values())

    def test_monte_carlo_energy_is_unbiased(self) -> None:
        total, count = 40, 8
        stream = generator(0)
        head = torch.randn(total, 5, generator=stream, dtype=torch.float64)
        tail = torch.randn(total, 3, generator=stream, dtype=torch.float64)
        V = torch.linalg.qr(torch.randn(5, 3, generator=stream, dtype=torch.float64)).Q
        energies = (head - tail @ V.T).square().sum(1)  # ||A_i - V A_j||_F^2, sample by sample
        policy = UniformPilots(total, count, 0)
        chosen = (policy.select(t).indices for t in range(DRAWS))
        estimates = torch.stack([energies[k].sum() * total / count for k in chosen])
        # variance of a total from a simple random sample without replacement
        deviation = total * (energies.var() / count * (1 - count / total) / DRAWS).sqrt()
        assert abs(estimates.mean() - energies.sum()) < 4 * deviation


class TestStratified:
    @quick
    @given(st.data(), labelled(), seeds, rounds)
    def test_balance(
        self, data: st.DataObject, case: tuple[Tensor, int], seed: int, round: int
    ) -> None:
        labels, smallest = case
        size = data.draw(st.integers(1, smallest))
        selection = StratifiedPilots(labels, size, seed).select(round)
        chosen = selection.indices.tolist()
        assert chosen == sorted(set(chosen))
        assert Counter(labels[chosen].tolist()) == dict.fromkeys(labels.tolist(), size)
        assert selection.groups is None

    def test_members_of_a_class_are_equally_likely(self) -> None:
        policy = StratifiedPilots(LABELS, 2, 5)
        found = Counter(k for t in range(DRAWS) for k in drawn(policy, t))
        for index, label in enumerate(LABELS.tolist()):
            chance = 2 / LABELS.tolist().count(label)
            tolerance = 5 * (DRAWS * chance * (1 - chance)) ** 0.5
            assert abs(found[index] - DRAWS * chance) < tolerance


class TestPrototypes:
    def test_all_members_without_subset(self) -> None:
        selection = PrototypePilots(torch.tensor([9, 4, 9, -1]), seed=0).select(0)
        assert selection.indices.tolist() == [0, 1, 2, 3]
        assert selection.groups is not None
        assert selection.groups.tolist() == [2, 1, 2, 0]  # -1, 4, 9 are pilots 0, 1, 2
        assert selection.count == 3

    @quick
    @given(labelled(), st.integers(1, 8), seeds, rounds)
    def test_subset_of_each_group(
        self, case: tuple[Tensor, int], subset: int, seed: int, round: int
    ) -> None:
        labels, _ = case
        selection = PrototypePilots(labels, seed, subset).select(round)
        chosen = selection.indices.tolist()
        assert chosen == sorted(set(chosen))
        sizes = Counter(labels.tolist())
        expected = {label: min(size, subset) for label, size in sizes.items()}
        assert Counter(labels[chosen].tolist()) == expected
        assert selection.groups is not None
        present = torch.tensor(sorted(sizes))
        assert torch.equal(present[selection.groups], labels[chosen])
        assert selection.count == len(sizes)

    def test_subset_of_everything_is_the_full_centroid(self) -> None:
        full = PrototypePilots(LABELS, 0).select(0)
        assert same(PrototypePilots(LABELS, 0, subset=5).select(3), full)

    def test_subset_estimates_the_centroid_without_bias(self) -> None:
        latents = torch.randn(12, 2, generator=generator(4), dtype=torch.float64)
        full = PrototypePilots(LABELS, 0).select(0).pool(latents)
        policy = PrototypePilots(LABELS, 0, subset=2)
        selections = map(policy.select, range(DRAWS))
        estimates = torch.stack([each.pool(latents[each.indices]) for each in selections])
        deviation = estimates.std(0) / DRAWS**0.5
        assert bool(((estimates.mean(0) - full).abs() < 4 * deviation).all())


class TestDynamic:
    @quick
    @given(st.data(), st.integers(1, 30), seeds, st.integers(1, 5))
    def test_persistent_part_is_constant(
        self, data: st.DataObject, total: int, seed: int, every: int
    ) -> None:
        count = data.draw(st.integers(1, total))
        persistent = data.draw(st.integers(0, count))
        # with nothing to renew, the persistent ones alone
        kept = set(drawn(DynamicPilots(total, max(persistent, 1), persistent, seed)))
        policy = DynamicPilots(total, count, persistent, seed, every)
        for round in range(8):
            chosen = drawn(policy, round)
            assert chosen == sorted(set(chosen))
            assert len(chosen) == count
            assert set(chosen) <= set(range(total))
            assert persistent == 0 or kept <= set(chosen)

    def test_the_rest_is_renewed_every_so_many_rounds(self) -> None:
        policy = DynamicPilots(50, 10, 3, 1, every=4)
        periods = [{tuple(drawn(policy, 4 * p + t)) for t in range(4)} for p in range(20)]
        assert all(len(period) == 1 for period in periods)
        assert len(set.union(*periods)) == 20

    def test_only_the_persistent_ones_stay_and_the_rest_covers_everything(self) -> None:
        policy = DynamicPilots(30, 6, 2, 0)
        chosen = [set(drawn(policy, round)) for round in range(300)]
        assert len(set.intersection(*chosen)) == 2
        assert set.union(*chosen) == set(range(30))

    def test_the_rest_is_uniform(self) -> None:
        policy = DynamicPilots(10, 4, 2, 7)
        found = Counter(k for t in range(DRAWS) for k in drawn(policy, t))
        renewed = [count for count in found.values() if count < DRAWS]
        assert len(renewed) == 8
        # each of the 8 others with chance 2/8: mean 250, standard deviation 13.7
        assert all(abs(count - DRAWS / 4) < 69 for count in renewed)

    def test_all_persistent_never_changes_and_depends_on_the_seed(self) -> None:
        policy = DynamicPilots(30, 6, 6, 0)
        assert len({tuple(drawn(policy, round)) for round in range(20)}) == 1
        by_seed = {tuple(drawn(DynamicPilots(30, 6, 6, seed))) for seed in range(20)}
        assert len(by_seed) == 20
