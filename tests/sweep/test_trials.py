import pytest

from sheafed.config.reading import read_experiment
from sheafed.errors import ConfigError
from sheafed.sweep.trials import (
    Trial,
    expand_variants,
    make_trials,
    split_outside_brackets,
    variants_without,
)

METHODS = [("method.name=sheaf-frl",), ("method.name=non-cooperative",)]


def read(overrides):
    return read_experiment("digits", overrides)


def test_the_grid():
    trials = make_trials(
        expand_variants(["data.shift=0.3,0.7"]), ["method.penalty=0.1,1"], [0, 1], read
    )
    assert len(trials) == 8
    assert len({t.directory for t in trials}) == 8
    assert trials[0].overrides == ("data.shift=0.3", "method.penalty=0.1", "seed=0")
    assert make_trials(expand_variants([]), [], [5], read) == [Trial((), (), 5)]


def test_whole_variants():
    assert expand_variants(
        [], ["method.name=comfed; method.penalty=2", "method.name=fedproto"]
    ) == [
        ("method.name=comfed", "method.penalty=2"),
        ("method.name=fedproto",),
    ]
    whole = ["graph.density=1", "graph.density=0.5"]
    assert len(expand_variants(["data.shift=0.3,0.7"], whole)) == 4


LISTS = ["[0.8, 0.1, 0.1]", "[0.6,0.2,0.2]"]


def test_lists_tables_and_strings_are_values():
    """Commas inside them do not separate values, in `--vary` and in `--choose` alike."""
    option = f"data.split={LISTS[0]},{LISTS[1]}"
    expected = [(f"data.split={value}",) for value in LISTS]
    assert expand_variants([option]) == expected
    assert [t.candidate for t in make_trials([()], [option], [0], read)] == expected
    assert read(expected[1]).data.split == (0.6, 0.2, 0.2)
    texts = ["{ a = [1, 2], b = 3 }", '"x,\\"y, z"', "'p, q'", "plain"]
    assert split_outside_brackets(",".join(texts), ",") == texts
    whole = 'model.members=["bo; x", "cy"]; method.penalty=2'
    assert expand_variants([], [whole]) == [('model.members=["bo; x", "cy"]', "method.penalty=2")]


@pytest.mark.parametrize("values", ["[0.8, 0.1", "0.1]", '"a, b', "o'neil", "{[}"])
def test_brackets_and_quotes_must_match(values):
    with pytest.raises(ConfigError, match="do not match"):
        expand_variants([f"data.split={values}"])


def test_a_row_without_the_chosen_key_runs_once():
    choice = ["method.penalty=0.1,1", "training.batch_size=16,32"]
    trials = make_trials(METHODS, choice, [0], read)
    by_row = {v: [t.candidate for t in trials if t.variant == v] for v in METHODS}
    assert len(by_row[METHODS[0]]) == 4
    assert by_row[METHODS[1]] == [("training.batch_size=16",), ("training.batch_size=32",)]
    assert len(make_trials(METHODS[1:], choice[:1], [0, 1], read)) == 2
    assert variants_without(["method.penalty"], METHODS, read) == {"method.penalty": METHODS[1:]}


@pytest.mark.parametrize("key", ["method.penalti", "method"])
def test_a_key_that_no_row_has_is_an_error(key):
    with pytest.raises(
        ConfigError, match=rf"{key} cannot be chosen: unknown option of non-cooperative"
    ):
        variants_without([key], METHODS, read)


@pytest.mark.parametrize(
    ("vary", "variants", "choose", "message"),
    [
        (["seed=1,2"], [], [], "by --seeds"),
        ([], [], ["seed=1,2"], "by --seeds"),
        (["data.shift=0.1", "data.shift=0.5"], [], [], "data.shift is given twice"),
        (["data.shift=0.1"], ["data.shift=0.5"], [], "data.shift is given twice"),
        (["method.penalty=1"], [], ["method.penalty=3"], "method.penalty is given twice"),
        ([], [], ["method.penalty=1", "method.penalty=3"], "method.penalty is given twice"),
    ],
)
def test_a_key_has_one_value_in_a_row(vary, variants, choose, message):
    with pytest.raises(ConfigError, match=message):
        make_trials(expand_variants(vary, variants), choose, [0], read)


def test_directories_are_readable_safe_and_differ():
    assert Trial(("data.shift=0.3",), ("method.penalty=0.1",), 2).directory.startswith(
        "shift=0.3_penalty=0.1-"
    )
    odd = [Trial((f"data.name=../../{c}",), (), 0).directory for c in "ab "]
    assert len(set(odd)) == 3
    for directory in odd:
        assert ".." not in directory.split("/")
        assert len(directory.split("/")) == 2


@pytest.mark.parametrize("option", ["data.shift", "=1", "data.shift=", "data.shift=1,,2"])
def test_bad_options(option):
    with pytest.raises(ConfigError, match="expected values like"):
        expand_variants([option])


@pytest.mark.parametrize("seeds", [[1, 1], []])
def test_bad_seeds(seeds):
    with pytest.raises(ConfigError, match="different numbers"):
        make_trials(expand_variants([]), [], seeds, read)
