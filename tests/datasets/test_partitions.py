from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sheafed.datasets import partitions
from sheafed.errors import EmptyInputError, InputError, UnusedSamplesWarning
from sheafed.seeds import generator

CASES = settings(derandomize=True, deadline=None, max_examples=25)
LABELS = torch.arange(1000) % 10
NAMES = ["a", "b", "c"]
TARGETS = {"a": [0, 1, 2], "b": [2, 3, 4, 5], "c": list(range(10))}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


EVERY = {
    "label_shift": lambda labels, g: partitions.label_shift(labels, TARGETS, 0.7, g),
    "iid": lambda labels, g: partitions.iid(labels, NAMES, g),
    "dirichlet": lambda labels, g: partitions.dirichlet(labels, NAMES, 0.5, g),
    "pathological": lambda labels, g: partitions.pathological(labels, NAMES, 4, g),
    "shards": lambda labels, g: partitions.shards(labels, NAMES, 2, g),
}


@pytest.mark.parametrize("divide", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("seed", range(3))
def test_every_sample_goes_to_exactly_one_agent(divide, seed):
    held = divide(LABELS, seeded(seed))
    assert list(held) == NAMES
    together = torch.cat(list(held.values()))
    assert sorted(together.tolist()) == list(range(1000))


@pytest.mark.parametrize("divide", EVERY.values(), ids=EVERY)
def test_the_generator_alone_decides(divide):
    torch.manual_seed(1)
    one = divide(LABELS, seeded(5))
    torch.manual_seed(2)
    same, other = divide(LABELS, seeded(5)), divide(LABELS, seeded(6))
    assert all(torch.equal(one[n], same[n]) for n in NAMES)
    assert any(one[n].tolist() != other[n].tolist() for n in NAMES)


EVERY_FUNCTION = EVERY | {
    "hold_out": lambda labels, g: dict(enumerate(partitions.hold_out(len(labels), 0.3, g))),
    "stratified_split": lambda labels, g: dict(
        enumerate(partitions.stratified_split(labels, (0.6, 0.4), g))
    ),
}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize("divide", EVERY_FUNCTION.values(), ids=EVERY_FUNCTION)
def test_labels_may_be_arrays_and_lists(divide):
    expected = divide(LABELS, seeded(5))
    for labels in (LABELS.numpy(), LABELS.numpy().astype(np.uint8), LABELS.tolist()):
        assert equal(divide(labels, seeded(5)), expected)


@pytest.mark.parametrize(("purpose", "divide"), EVERY_FUNCTION.items(), ids=EVERY_FUNCTION)
def test_an_int_seeds_a_generator(purpose, divide):
    assert equal(divide(LABELS, 7), divide(LABELS, generator(7, purpose)))
    for wrong in (np.random.default_rng(7), True, None):
        with pytest.raises(InputError, match="that seeds one, got"):
            divide(LABELS, wrong)


def test_classes_in_common_of_labels_in_an_array():
    held = {"ada": torch.tensor([0, 1]), "bo": torch.tensor([2, 3])}
    assert partitions.common_classes(np.array([0, 1, 1, 2]), held) == [1]


@CASES
@given(st.floats(0, 1), st.integers(0, 99))
def test_label_shift_divides_each_class_in_proportion(shift, seed):
    held = partitions.label_shift(LABELS, TARGETS, shift, seeded(seed))
    p = {
        name: [shift * (y in c) / len(c) + (1 - shift) / 10 for y in range(10)]
        for name, c in TARGETS.items()
    }
    for y in range(10):
        total = sum(p[name][y] for name in NAMES)
        for name in NAMES:
            count = int((LABELS[held[name]] == y).sum())
            assert abs(count - 100 * p[name][y] / total) <= 1


def test_full_shift_leaves_only_target_classes():
    held = partitions.label_shift(LABELS, TARGETS, 1.0, seeded())
    for name, classes in TARGETS.items():
        assert set(LABELS[held[name]].tolist()) <= set(classes)
    assert partitions.common_classes(LABELS, held) == [2]


def test_classes_of_no_agent_are_left_out():
    with pytest.warns(UnusedSamplesWarning, match=r"800 of 1000 .* classes \[2, 3, .*, 9\]"):
        held = partitions.label_shift(LABELS, {"a": [0], "b": [0, 1]}, 1.0, seeded())
    assert sorted(torch.cat(list(held.values())).tolist()) == [
        k for k in range(1000) if k % 10 in (0, 1)
    ]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.uint16, torch.uint32])
def test_labels_of_any_whole_type_may_belong_to_no_agent(dtype):
    labels = (LABELS % 2).to(dtype)
    with pytest.warns(UnusedSamplesWarning, match=r"500 of 1000 .* classes \[1\]"):
        held = partitions.label_shift(labels, {"a": [0], "b": [0]}, 1.0, seeded())
    assert sum(map(len, held.values())) == 500


def test_arrays_and_numbers_of_numpy_divide_like_those_of_torch():
    expected = partitions.iid(LABELS.flip(0), NAMES, 3)
    reversed_view = LABELS.numpy()[::-1]
    for labels in (reversed_view, reversed_view.astype(">i4")):
        held = partitions.iid(labels, NAMES, np.int64(3))
        assert all(torch.equal(held[name], expected[name]) for name in NAMES)


def test_iid_is_even_and_mixed():
    held = partitions.iid(LABELS, NAMES, seeded())
    assert sorted(len(i) for i in held.values()) == [333, 333, 334]
    for indices in held.values():
        assert torch.bincount(LABELS[indices], minlength=10).min() > 15


def test_dirichlet_concentration():
    def skew(concentration):
        shares = []
        for seed in range(20):
            held = partitions.dirichlet(LABELS, NAMES, concentration, seeded(seed))
            counts = np.array([np.bincount(LABELS[held[n]], minlength=10) for n in NAMES])
            shares.append(counts.max(0).mean() / 100)
        return np.mean(shares)

    # The largest of three proportions: 11/18 for a uniform Dirichlet, 1/3 for a constant one.
    assert skew(1.0) == pytest.approx(11 / 18, abs=0.04)
    assert skew(1e4) == pytest.approx(1 / 3, abs=0.02)
    assert skew(0.01) > 0.95


def test_dirichlet_where_gamma_variables_underflow():
    labels = torch.arange(1000) % 100
    for concentration in (1e-3, 1e-4, 1e-9):
        held = partitions.dirichlet(labels, NAMES, concentration, seeded())
        largest = torch.stack([labels[i].bincount(minlength=100) for i in held.values()]).max(0)
        assert (largest.values == 10).sum() >= 95
        assert largest.indices.bincount(minlength=3).min() > 20  # classes go to all agents


@CASES
@given(st.integers(1, 10), st.integers(1, 7), st.integers(0, 99))
def test_pathological_gives_each_agent_its_number_of_classes(classes_per_agent, agents, seed):
    names = [f"agent {k}" for k in range(agents)]
    few = agents * classes_per_agent < 10
    with pytest.warns(UnusedSamplesWarning) if few else nullcontext():
        held = partitions.pathological(LABELS, names, classes_per_agent, seeded(seed))
    for indices in held.values():
        assert len(set(LABELS[indices].tolist())) == classes_per_agent
    if not few:
        assert sum(len(i) for i in held.values()) == 1000


def test_shards_are_runs_of_the_sorted_samples():
    held = partitions.shards(LABELS, NAMES, 2, seeded())
    for indices in held.values():
        assert len(set(LABELS[indices].tolist())) <= 2 * 3
        assert 332 <= len(indices) <= 335


@CASES
@given(st.floats(0.01, 0.99), st.integers(0, 99))
def test_hold_out(fraction, seed):
    held, rest = partitions.hold_out(1000, fraction, seeded(seed))
    assert len(held) == round(1000 * fraction)
    assert sorted([*held.tolist(), *rest.tolist()]) == list(range(1000))
    assert held.tolist() == sorted(held.tolist())


def test_stratified_split_keeps_the_skew():
    labels = torch.cat([torch.zeros(800), torch.ones(150), torch.full((50,), 2)]).long()
    parts = partitions.stratified_split(labels, (0.8, 0.1, 0.1), seeded())
    assert [np.bincount(labels[p]).tolist() for p in parts] == [
        [640, 120, 40],
        [80, 15, 5],
        [80, 15, 5],
    ]
    assert sorted(torch.cat(parts).tolist()) == list(range(1000))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: partitions.label_shift(LABELS, TARGETS, 1.5, seeded()), InputError, r"1\.5"),
        (lambda: partitions.label_shift(LABELS, {"a": [11]}, 1, seeded()), InputError, "11"),
        (lambda: partitions.label_shift(LABELS, {"a": []}, 1, seeded()), InputError, "'a'"),
        (lambda: partitions.iid(LABELS.float(), NAMES, seeded()), InputError, "float32"),
        (lambda: partitions.iid(LABELS[:0], NAMES, seeded()), EmptyInputError, "no labels"),
        (lambda: partitions.iid(LABELS, ["a", "a"], seeded()), InputError, "different names"),
        (lambda: partitions.dirichlet(LABELS, NAMES, 0.0, seeded()), InputError, r"0\.0"),
        (lambda: partitions.pathological(LABELS, NAMES, 11, seeded()), InputError, "11"),
        (lambda: partitions.shards(LABELS, NAMES, 0, seeded()), InputError, "0 for 3"),
        (lambda: partitions.shards(LABELS[:5], NAMES, 2, seeded()), InputError, "5 samples"),
        (lambda: partitions.hold_out(10, 1.0, seeded()), InputError, r"1\.0"),
        (lambda: partitions.stratified_split(LABELS, (0.5, 0.6), seeded()), InputError, r"0\.6"),
        (lambda: partitions.iid(["cat", "dog"], NAMES, seeded()), InputError, "return_inverse"),
        (lambda: partitions.iid([], NAMES, seeded()), EmptyInputError, "no labels"),
    ],
)
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: partitions.hold_out(10, 0.01, seeded()), "is 0, which leaves none to hold out"),
        (lambda: partitions.hold_out(10, 0.99, seeded()), "is 10, which leaves none for the rest"),
        (
            lambda: partitions.stratified_split([0, 1, 2], (0.6, 0.2, 0.2), seeded()),
            r"3 samples of 3 classes, .* parts of \[3, 0, 0\] samples; give more",
        ),
        (lambda: partitions.iid(LABELS[:2], NAMES, seeded()), "1 of 3 agents get no sample: c;"),
        (
            lambda: partitions.dirichlet(LABELS, "abcdefghijkl", 0.001, seeded()),
            "agents get no sample: .*draw again",
        ),
        (
            lambda: partitions.label_shift([0, 0, 1], {n: [1] for n in NAMES}, 1.0, seeded()),
            "2 of 3 agents get no sample: a, c;",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::sheafed.errors.UnusedSamplesWarning")
def test_nobody_goes_without_samples(call, text):
    with pytest.raises(EmptyInputError, match=text):
        call()
