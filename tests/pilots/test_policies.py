import random
from collections import Counter
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sheafed.errors import (
    DtypeError,
    EmptyInputError,
    InputError,
    NonFiniteError,
    ShapeError,
)
from sheafed.pilots import policies as pilots
from sheafed.pilots.policies import PilotPolicy, Selection
from sheafed.seeds import generator

quick = settings(derandomize=True, deadline=None, max_examples=30)
seeds = st.integers(0, 2**40)
rounds = st.integers(0, 10_000)

LABELS = torch.tensor([7, -2, 7, 3, 3, 7, -2, 7, 3, 3, 7, -2])  # 3 of -2, 4 of 3, 5 of 7


@st.composite
def labelled(draw: st.DrawFn) -> tuple[Tensor, int]:
    """Labels in any order with gaps between them, and the size of the smallest class."""
    sizes = draw(st.dictionaries(st.integers(-9, 9), st.integers(1, 7), min_size=1, max_size=5))
    flat = [label for label, size in sizes.items() for _ in range(size)]
    return torch.tensor(draw(st.permutations(flat))), min(sizes.values())


def policies() -> dict[str, Callable[[int], PilotPolicy]]:
    return {
        "every": lambda seed: pilots.EveryPilot(12),
        "uniform": lambda seed: pilots.Uniform(12, 5, seed),
        "per_class": lambda seed: pilots.PerClass(LABELS, 2, seed),
        "per_cluster": lambda seed: pilots.PerCluster(LABELS, 2, seed),
        "prototypes": lambda seed: pilots.Prototypes(LABELS, seed),
        "prototypes_subset": lambda seed: pilots.Prototypes(LABELS, seed, subset=2),
        "dynamic": lambda seed: pilots.Dynamic(12, 5, 2, seed),
    }


COUNTS = {
    "every": 12,
    "uniform": 5,
    "per_class": 6,
    "per_cluster": 6,
    "prototypes": 3,
    "prototypes_subset": 3,
    "dynamic": 5,
}
FIXED = {"every", "prototypes"}  # nothing is drawn: every round is the same


@pytest.fixture(params=sorted(COUNTS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def same(one: Selection, other: Selection) -> bool:
    groups = (one.groups is None) == (other.groups is None)
    if one.groups is not None and other.groups is not None:
        groups = torch.equal(one.groups, other.groups)
    return groups and torch.equal(one.indices, other.indices) and one.count == other.count


class TestEveryPolicy:
    """The contract of a `PilotPolicy`."""

    def test_indices_ascend_in_range_and_count_is_k(self, name: str) -> None:
        for seed in range(20):
            policy = policies()[name](seed)
            for round in range(20):
                selection = policy.select(round)
                indices = selection.indices.tolist()
                assert indices == sorted(set(indices))
                assert 0 <= indices[0] <= indices[-1] < 12
                assert selection.indices.dtype == torch.int64
                assert policy.count == selection.count == COUNTS[name]
                latents = torch.randn(len(indices), 3, generator=generator(0))
                assert selection.pool(latents).shape == (policy.count, 3)

    def test_two_agents_choose_alike(self, name: str) -> None:
        one, other = policies()[name](4), policies()[name](4)
        for round in (9, 0, 3):  # neither the order nor the number of calls matters
            assert same(one.select(round), other.select(round))
        assert same(other.select(9), one.select(9))

    def test_rounds_and_seeds_differ_where_something_is_drawn(self, name: str) -> None:
        make = policies()[name]
        by_round = {tuple(make(0).select(round).indices.tolist()) for round in range(30)}
        by_seed = {tuple(make(seed).select(0).indices.tolist()) for seed in range(30)}
        if name in FIXED:
            assert len(by_round) == len(by_seed) == 1
        else:
            assert len(by_round) > 10
            assert len(by_seed) > 10

    def test_global_random_state_is_neither_used_nor_touched(self, name: str) -> None:
        torch.manual_seed(1)
        before = torch.get_rng_state()
        first = policies()[name](0).select(1)
        assert torch.equal(before, torch.get_rng_state())
        torch.manual_seed(2)
        assert same(first, policies()[name](0).select(1))

    def test_default_device_has_no_say(self, name: str) -> None:
        with torch.device("meta"):
            assert policies()[name](0).select(1).indices.device.type == "cpu"

    @pytest.mark.parametrize("round", [-1, 1.0, True])
    def test_a_bad_round_is_an_error(self, name: str, round: int) -> None:
        with pytest.raises(InputError, match=f"round must be an int from 0 to inf, got {round}"):
            policies()[name](0).select(round)

    def test_is_frozen(self, name: str) -> None:
        with pytest.raises(AttributeError):
            policies()[name](0).count = 3  # type: ignore[misc]


class TestBadPolicyFailsWhereItIsMade:
    @pytest.mark.parametrize(
        "make",
        [
            lambda: pilots.EveryPilot(0),
            lambda: pilots.Uniform(4, 5, 0),
            lambda: pilots.PerClass(LABELS, 4, 0),
            lambda: pilots.PerCluster(LABELS, 4, 0),
            lambda: pilots.Prototypes(LABELS, 0, subset=0),
            lambda: pilots.Dynamic(9, 3, 4, 0),
            lambda: pilots.Dynamic(9, 3, 1, 0, every=0),
            lambda: pilots.Uniform(4, 2, 0.5),  # type: ignore[arg-type]
        ],
    )
    def test_raises(self, make: Callable[[], PilotPolicy]) -> None:
        with pytest.raises(InputError):
            make()


class TestSelection:
    def test_original_pilots_are_the_latents(self) -> None:
        latents = torch.randn(3, 2, generator=generator(0))
        assert Selection(torch.tensor([1, 4, 5]), None, 3).pool(latents) is latents

    def test_prototypes_by_hand(self) -> None:
        selection = Selection(torch.tensor([0, 1, 2, 5]), torch.tensor([1, 0, 1, 1]), 2)
        latents = torch.tensor([[0.0, 3.0], [5.0, 6.0], [3.0, 0.0], [6.0, -6.0]])
        assert torch.equal(selection.pool(latents), torch.tensor([[5.0, 6.0], [3.0, -1.0]]))

    @quick
    @given(labelled(), st.integers(1, 4), seeds, st.sampled_from([torch.float32, torch.float64]))
    def test_pool_against_numpy(
        self, case: tuple[Tensor, int], d: int, seed: int, dtype: torch.dtype
    ) -> None:
        labels, _ = case
        latents = torch.randn(len(labels), d, generator=generator(seed), dtype=dtype)
        pooled = pilots.prototypes(labels, seed).pool(latents)
        expected = np.stack(
            [latents.numpy()[labels.numpy() == c].mean(0) for c in np.unique(labels.numpy())]
        )
        assert pooled.dtype == dtype
        np.testing.assert_allclose(pooled.numpy(), expected, rtol=1e-5, atol=1e-6)

    def test_gradient_flows_through_pool(self) -> None:
        selection = pilots.prototypes(LABELS, seed=0, subset=2)
        latents = torch.randn(6, 3, dtype=torch.float64, generator=generator(0))
        assert torch.autograd.gradcheck(selection.pool, latents.requires_grad_())
        (gradient,) = torch.autograd.grad(selection.pool(latents).sum(), latents)
        assert torch.equal(gradient, torch.full((6, 3), 0.5, dtype=torch.float64))

    def test_gradient_flows_through_original_pilots(self) -> None:
        latents = torch.ones(5, 3, requires_grad=True)
        pooled = pilots.uniform(9, 5, seed=0).pool(latents)
        (gradient,) = torch.autograd.grad(pooled.sum(), latents)
        assert torch.equal(gradient, torch.ones(5, 3))

    @pytest.mark.parametrize("shape", [(2, 4), (4, 4), (1, 3, 4)])
    def test_pool_checks_the_rows(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ShapeError, match=r"latents must have shape \(3, d\)"):
            pilots.uniform(9, 3, seed=0).pool(torch.zeros(shape))

    def test_pool_checks_the_values(self) -> None:
        selection = pilots.uniform(9, 2, seed=0)
        with pytest.raises(DtypeError, match="latents must be float32 or float64"):
            selection.pool(torch.zeros(2, 3, dtype=torch.float16))
        with pytest.raises(NonFiniteError, match="latents"):
            selection.pool(torch.tensor([[1.0], [torch.nan]]))

    @pytest.mark.parametrize("indices", [[1, 1], [2, 1], [-1, 0]])
    def test_indices_ascend_strictly(self, indices: list[int]) -> None:
        with pytest.raises(InputError, match="strictly ascending"):
            Selection(torch.tensor(indices), None, 2)

    @pytest.mark.parametrize(
        ("groups", "count"),
        [(None, 2), ([0, 0], 1), ([0, 1, 1], 3), ([0, 2, 2], 2), ([0, 1, 2], 2), ([-1, 0, 1], 2)],
    )
    def test_groups_number_the_pilots(self, groups: list[int] | None, count: int) -> None:
        with pytest.raises(InputError, match="indices need one group each"):
            Selection(torch.arange(3), None if groups is None else torch.tensor(groups), count)

    def test_types_and_shapes(self) -> None:
        # uint8 indices would be read as a mask
        with pytest.raises(DtypeError, match="indices must be int64"):
            Selection(torch.arange(3, dtype=torch.uint8), None, 3)
        with pytest.raises(EmptyInputError, match="indices is empty"):
            Selection(torch.arange(0), None, 0)
        with pytest.raises(ShapeError, match="groups must have shape"):
            Selection(torch.arange(3), torch.zeros(3, 1, dtype=torch.int64), 1)


class TestUniform:
    @quick
    @given(st.data(), st.integers(1, 40), seeds, rounds)
    def test_draws_without_replacement(
        self, data: st.DataObject, total: int, seed: int, round: int
    ) -> None:
        count = data.draw(st.integers(1, total))
        selection = pilots.uniform(total, count, seed, round)
        chosen = selection.indices.tolist()
        assert selection.groups is None
        assert chosen == sorted(set(chosen))
        assert len(chosen) == selection.count == count
        assert set(chosen) <= set(range(total))
        assert same(selection, pilots.uniform(total, count, seed, round))

    def test_is_the_documented_stream(self) -> None:
        expected = torch.randperm(30, generator=generator(8, "pilots", 2))[:6].sort().values
        assert torch.equal(pilots.uniform(30, 6, seed=8, round=2).indices, expected)

    def test_round_defaults_to_the_first(self) -> None:
        assert same(pilots.uniform(30, 6, 1), pilots.uniform(30, 6, 1, 0))

    def test_every_subset_is_equally_likely(self) -> None:
        drawn = Counter(tuple(pilots.uniform(5, 2, 0, t).indices.tolist()) for t in range(4000))
        assert set(drawn) == set(combinations(range(5), 2))
        # mean 400 and standard deviation 19 per subset; five of them as tolerance
        assert all(abs(count - 400) < 95 for count in drawn.values())

    def test_monte_carlo_energy_is_unbiased(self) -> None:
        total, count, draws = 40, 8, 3000
        stream = generator(0)
        head = torch.randn(total, 5, generator=stream, dtype=torch.float64)
        tail = torch.randn(total, 3, generator=stream, dtype=torch.float64)
        V = torch.linalg.qr(torch.randn(5, 3, generator=stream, dtype=torch.float64)).Q
        energies = (head - tail @ V.T).square().sum(1)  # ||A_i - V A_j||_F^2, sample by sample
        chosen = (pilots.uniform(total, count, 0, t).indices for t in range(draws))
        estimates = torch.stack([energies[k].sum() * total / count for k in chosen])
        # variance of a total from a simple random sample without replacement
        deviation = total * (energies.var() / count * (1 - count / total) / draws).sqrt()
        assert abs(estimates.mean() - energies.sum()) < 4 * deviation

    @pytest.mark.parametrize(
        ("total", "count", "message"),
        [
            (0, 1, "total must be an int from 1 to inf, got 0"),
            (5, 0, "count must be an int from 1 to 5, got 0"),
            (5, 6, "count must be an int from 1 to 5, got 6"),
            (5, 2.0, "count must be an int from 1 to 5, got 2.0"),
            (5, True, "count must be an int from 1 to 5, got True"),
        ],
    )
    def test_bad_numbers(self, total: int, count: int, message: str) -> None:
        with pytest.raises(InputError, match=message):
            pilots.uniform(total, count, 0)


@pytest.mark.parametrize("draw", [pilots.per_class, pilots.per_cluster])
class TestStrata:
    @quick
    @given(st.data(), labelled(), seeds, rounds)
    def test_balance(
        self,
        draw: Callable[..., Selection],
        data: st.DataObject,
        case: tuple[Tensor, int],
        seed: int,
        round: int,
    ) -> None:
        labels, smallest = case
        size = data.draw(st.integers(1, smallest))
        selection = draw(labels, size, seed, round)
        chosen = selection.indices.tolist()
        assert chosen == sorted(set(chosen))
        assert Counter(labels[chosen].tolist()) == dict.fromkeys(labels.tolist(), size)
        assert selection.groups is None
        assert selection.count == len(chosen)
        assert same(selection, draw(labels, size, seed, round))

    def test_members_of_a_class_are_equally_likely(self, draw: Callable[..., Selection]) -> None:
        drawn = Counter(k for t in range(3000) for k in draw(LABELS, 2, 5, t).indices.tolist())
        for index, label in enumerate(LABELS.tolist()):
            chance = 2 / LABELS.tolist().count(label)
            tolerance = 5 * (3000 * chance * (1 - chance)) ** 0.5
            assert abs(drawn[index] - 3000 * chance) < tolerance

    def test_too_few_members_names_the_class(self, draw: Callable[..., Selection]) -> None:
        kind = draw.__name__.removeprefix("per_")
        message = rf"{kind} -2 has 3 of the 12 shared samples, expected at least per_{kind} = 4"
        with pytest.raises(InputError, match=message):
            draw(LABELS, 4, 0)

    def test_bad_input(self, draw: Callable[..., Selection]) -> None:
        with pytest.raises(InputError, match=f"{draw.__name__} must be an int from 1 to inf"):
            draw(LABELS, 0, 0)
        with pytest.raises(
            ShapeError, match=r"of each sample must have shape \(M,\), got \(2, 6\)"
        ):
            draw(LABELS.reshape(2, 6), 1, 0)
        with pytest.raises(EmptyInputError, match="is empty"):
            draw(LABELS[:0], 1, 0)
        with pytest.raises(DtypeError, match=r"must be int64, got torch\.float32"):
            draw(LABELS.float(), 1, 0)
        with pytest.raises(DtypeError, match="must be a tensor, got list"):
            draw(LABELS.tolist(), 1, 0)


class TestClusters:
    def blobs(self) -> tuple[Tensor, Tensor]:
        truth = torch.arange(60) % 4
        noise = torch.randn(60, 3, generator=generator(0))
        corners = torch.tensor([[0.0, 0, 0], [90, 0, 0], [0, 90, 0], [0, 0, 90]])
        return corners[truth] + noise, truth

    def test_recovers_separated_groups(self) -> None:
        features, truth = self.blobs()
        assignment = pilots.clusters(features, 4, seed=0)
        assert assignment.dtype == torch.int64
        assert assignment.shape == (60,)
        pairs = set(zip(assignment.tolist(), truth.tolist(), strict=True))
        assert len(pairs) == 4
        assert {c for c, _ in pairs} == {0, 1, 2, 3}

    def test_is_a_fixed_point_of_lloyds_iteration(self) -> None:
        features = torch.randn(200, 5, generator=generator(1), dtype=torch.float64)
        assignment = pilots.clusters(features, 6, seed=3)
        centroids = pilots.prototypes(assignment, seed=0).pool(features)
        assert torch.equal(torch.cdist(features, centroids).argmin(1), assignment)

    def test_is_deterministic_and_leaves_global_states_alone(self) -> None:
        features = torch.randn(900, 4, generator=generator(2))
        torch.manual_seed(1)
        np.random.seed(1)  # noqa: NPY002
        before = torch.get_rng_state(), str(np.random.get_state()), random.getstate()  # noqa: NPY002
        threads = torch.get_num_threads()
        first = pilots.clusters(features, 7, seed=5)
        assert torch.equal(before[0], torch.get_rng_state())
        assert before[1] == str(np.random.get_state())  # noqa: NPY002
        assert before[2] == random.getstate()
        assert torch.get_num_threads() == threads
        torch.manual_seed(2)
        np.random.seed(2)  # noqa: NPY002
        assert torch.equal(first, pilots.clusters(features, 7, seed=5))
        assert torch.equal(first, pilots.clusters(features.double().requires_grad_(), 7, seed=5))

    def test_feeds_the_other_strategies(self) -> None:
        features, truth = self.blobs()
        assignment = pilots.clusters(features, 4, seed=0)
        drawn = pilots.per_cluster(assignment, 3, seed=1, round=6)
        assert Counter(truth[drawn.indices].tolist()) == {0: 3, 1: 3, 2: 3, 3: 3}
        assert pilots.prototypes(assignment, seed=1).count == 4

    def test_one_cluster_and_one_per_sample(self) -> None:
        features, _ = self.blobs()
        assert pilots.clusters(features, 1, seed=0).tolist() == [0] * 60
        assert sorted(pilots.clusters(features, 60, seed=0).tolist()) == list(range(60))

    def test_bad_input(self) -> None:
        features, _ = self.blobs()
        with pytest.raises(InputError, match="count must be an int from 1 to 60, got 61"):
            pilots.clusters(features, 61, seed=0)
        with pytest.raises(InputError, match="too few distinct rows for count = 3"):
            pilots.clusters(torch.tensor([[0.0], [1.0], [0.0], [1.0]]), 3, seed=0)
        with pytest.raises(ShapeError, match=r"features must have shape \(M, p\)"):
            pilots.clusters(features[None], 2, seed=0)
        with pytest.raises(NonFiniteError, match="features"):
            pilots.clusters(features / 0, 2, seed=0)
        with pytest.raises(EmptyInputError, match="features"):
            pilots.clusters(features[:0], 2, seed=0)


class TestPrototypes:
    def test_all_members_without_subset(self) -> None:
        selection = pilots.prototypes(torch.tensor([9, 4, 9, -1]), seed=0)
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
        selection = pilots.prototypes(labels, seed, round, subset)
        chosen = selection.indices.tolist()
        assert chosen == sorted(set(chosen))
        sizes = Counter(labels.tolist())
        expected = {label: min(size, subset) for label, size in sizes.items()}
        assert Counter(labels[chosen].tolist()) == expected
        assert selection.groups is not None
        present = torch.tensor(sorted(sizes))
        assert torch.equal(present[selection.groups], labels[chosen])
        assert selection.count == len(sizes)
        assert same(selection, pilots.prototypes(labels, seed, round, subset))

    def test_subset_of_everything_is_the_full_centroid(self) -> None:
        assert same(pilots.prototypes(LABELS, 0, 3, subset=5), pilots.prototypes(LABELS, 0))

    def test_subset_estimates_the_centroid_without_bias(self) -> None:
        draws = 3000
        latents = torch.randn(12, 2, generator=generator(4), dtype=torch.float64)
        full = pilots.prototypes(LABELS, 0).pool(latents)
        selections = (pilots.prototypes(LABELS, 0, t, subset=2) for t in range(draws))
        estimates = torch.stack([each.pool(latents[each.indices]) for each in selections])
        deviation = estimates.std(0) / draws**0.5
        assert bool(((estimates.mean(0) - full).abs() < 4 * deviation).all())

    def test_bad_input(self) -> None:
        with pytest.raises(InputError, match="subset must be an int from 1 to inf, got 0"):
            pilots.prototypes(LABELS, 0, subset=0)
        with pytest.raises(ShapeError, match="assignment must have shape"):
            pilots.prototypes(LABELS[None], 0)
        with pytest.raises(EmptyInputError, match="assignment is empty"):
            pilots.prototypes(LABELS[:0], 0)


class TestLargestMismatch:
    def test_by_hand(self) -> None:
        mismatch = torch.tensor([0.1, 5.0, 0.3, 5.0, 0.2, 9.0])
        assert pilots.largest_mismatch(mismatch, 1).indices.tolist() == [5]
        assert pilots.largest_mismatch(mismatch, 2).indices.tolist() == [1, 5]  # 1 ties with 3
        assert pilots.largest_mismatch(mismatch, 4).indices.tolist() == [1, 2, 3, 5]

    @quick
    @given(st.data(), st.lists(st.integers(0, 3), min_size=1, max_size=40))
    def test_against_sorted_python(self, data: st.DataObject, values: list[int]) -> None:
        count = data.draw(st.integers(1, len(values)))
        selection = pilots.largest_mismatch(torch.tensor(values, dtype=torch.float32), count)
        expected = sorted(range(len(values)), key=lambda k: (-values[k], k))[:count]
        assert selection.indices.tolist() == sorted(expected)
        assert selection.groups is None
        assert selection.count == count

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
    def test_non_finite_is_an_error(self, bad: float) -> None:
        with pytest.raises(NonFiniteError, match=r"mismatch holds 1 non-finite of 3 values"):
            pilots.largest_mismatch(torch.tensor([1.0, bad, 2.0]), 1)

    def test_bad_input(self) -> None:
        with pytest.raises(InputError, match="count must be an int from 1 to 3, got 4"):
            pilots.largest_mismatch(torch.ones(3), 4)
        with pytest.raises(ShapeError, match="mismatch must have shape"):
            pilots.largest_mismatch(torch.ones(3, 1), 1)
        with pytest.raises(EmptyInputError, match="mismatch is empty"):
            pilots.largest_mismatch(torch.ones(0), 1)


class TestDynamic:
    @quick
    @given(st.data(), st.integers(1, 30), seeds, st.integers(1, 5))
    def test_persistent_part_is_constant(
        self, data: st.DataObject, total: int, seed: int, every: int
    ) -> None:
        count = data.draw(st.integers(1, total))
        persistent = data.draw(st.integers(0, count))
        # with nothing to renew, the persistent ones alone
        kept = set(pilots.dynamic(total, max(persistent, 1), persistent, seed, 0).indices.tolist())
        for round in range(8):
            chosen = pilots.dynamic(total, count, persistent, seed, round, every).indices.tolist()
            assert chosen == sorted(set(chosen))
            assert len(chosen) == count
            assert set(chosen) <= set(range(total))
            assert persistent == 0 or kept <= set(chosen)

    def test_the_rest_is_renewed_every_so_many_rounds(self) -> None:
        periods = [
            {
                tuple(pilots.dynamic(50, 10, 3, 1, 4 * p + t, every=4).indices.tolist())
                for t in range(4)
            }
            for p in range(20)
        ]
        assert all(len(period) == 1 for period in periods)
        assert len(set.union(*periods)) == 20

    def test_only_the_persistent_ones_stay_and_the_rest_covers_everything(self) -> None:
        chosen = [set(pilots.dynamic(30, 6, 2, 0, round).indices.tolist()) for round in range(300)]
        assert len(set.intersection(*chosen)) == 2
        assert set.union(*chosen) == set(range(30))

    def test_the_rest_is_uniform(self) -> None:
        drawn = Counter(
            k for t in range(3000) for k in pilots.dynamic(10, 4, 2, 7, t).indices.tolist()
        )
        renewed = [count for count in drawn.values() if count < 3000]
        assert len(renewed) == 8
        # each of the 8 others with chance 2/8: mean 750, standard deviation 23.7
        assert all(abs(count - 750) < 119 for count in renewed)

    def test_all_persistent_never_changes_and_depends_on_the_seed(self) -> None:
        fixed = {tuple(pilots.dynamic(30, 6, 6, 0, round).indices.tolist()) for round in range(20)}
        assert len(fixed) == 1
        by_seed = {tuple(pilots.dynamic(30, 6, 6, seed, 0).indices.tolist()) for seed in range(20)}
        assert len(by_seed) == 20

    @pytest.mark.parametrize(
        ("total", "count", "persistent", "every", "message"),
        [
            (0, 1, 0, 1, "total must be an int from 1 to inf, got 0"),
            (9, 10, 2, 1, "count must be an int from 1 to 9, got 10"),
            (9, 0, 0, 1, "count must be an int from 1 to 9, got 0"),
            (9, 4, 5, 1, "persistent must be an int from 0 to 4, got 5"),
            (9, 4, -1, 1, "persistent must be an int from 0 to 4, got -1"),
            (9, 4, 2, 0, "every must be an int from 1 to inf, got 0"),
        ],
    )
    def test_bad_numbers(
        self, total: int, count: int, persistent: int, every: int, message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            pilots.dynamic(total, count, persistent, 0, 0, every)
