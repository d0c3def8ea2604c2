"""Damaged inputs end in the documented error; `benchmarks/fuzz.py` tries a million of them."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzzing.targets import Target, WronglyAcceptedError, all_targets
from sheafed.transport import decode

EXAMPLES = {
    "messages": 80,
    "checkpoints": 40,
    "configs": 30,
    "alignments": 30,
    "command-lines": 12,
}


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    return all_targets(tmp_path_factory.mktemp("fuzzing"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_damaged_inputs_are_refused_or_read_as_what_they_say(
    targets: dict[str, Target], name: str
) -> None:
    target = targets[name]

    @settings(derandomize=True, deadline=None, max_examples=EXAMPLES[name], database=None)
    @given(st.randoms(use_true_random=False))
    def read(draw: random.Random) -> None:
        target.check(target.case(draw))

    read()


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "command-lines"])
def test_what_was_not_damaged_is_accepted(targets: dict[str, Target], name: str) -> None:
    target = targets[name]
    assert all(target.check(seed) for seed in target.seeds)
    assert all(target.check(target.repair(seed)) for seed in target.seeds)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"7ff8000000000000", b"7ff8"),
        (b'"shape":[0,3]', b'"shape":[0,9223372036854775808]'),
        (b'\\"rounds\\",7', b'\\"rounds\\",' + b"[" * 400 + b"]" * 400),
        (b"[1,[1.5", b"[true,[1.5"),
        (b'\\"a\\",2', b'\\"\\\\ud800\\",2'),
    ],
    ids=["short float", "vast shape", "deep list", "key true", "lone surrogate"],
)
def test_a_forged_checkpoint_with_a_right_digest_is_refused(
    targets: dict[str, Target], before: bytes, after: bytes
) -> None:
    """What fuzzing has found, and what it could have."""
    target = targets["checkpoints"]
    (seed,) = (seed for seed in target.seeds if before in seed)
    assert not target.check(target.repair(seed.replace(before, after)))


def test_a_reader_that_is_too_lenient_is_noticed(
    targets: dict[str, Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = targets["messages"]
    first, second = target.seeds[:2]
    monkeypatch.setattr("fuzzing.messages.decode", lambda *_: decode(second))
    assert target.check(second)
    with pytest.raises(WronglyAcceptedError, match="has other bytes"):
        target.check(first)
