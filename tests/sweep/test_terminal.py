"""What a terminal of 80 columns shows of a sweep."""

from dataclasses import replace

import pytest
from rich.console import Console

from sheafed.sweep.results import COLUMNS, Row
from sheafed.sweep.terminal import as_table, short_keys

ROW = Row((), ((),), 3, dict.fromkeys(COLUMNS, 0.857), dict.fromkeys(COLUMNS, 0.012))


def printed(*rows, width=80):
    console = Console(width=width)
    with console.capture() as captured:
        console.print(as_table(rows, width))
    return captured.get()


@pytest.mark.parametrize("width", [80, 120])
def test_the_values_tell_the_rows_apart(width):
    values = ("0.1", "1", "3")
    rows = [replace(ROW, variant=(f"method.options.penalty={x}",)) for x in values]
    lines = printed(*rows, width=width).splitlines()
    for value in values:
        assert sum(line.startswith(f"penalty={value} ") for line in lines) == 1
    assert max(map(len, lines)) <= width


def test_long_values_are_folded_and_brackets_kept():
    text = printed(replace(ROW, variant=('model.members=["[bold]", "agent-05", "agent-11"]',)))
    folded = "".join(line[:16].rstrip() for line in text.splitlines()).replace(" ", "")
    assert 'members=["[bold]","agent-05","agent-11"]' in folded


def test_what_was_chosen_is_shown_with_its_number_of_seeds():
    chosen = [("method.penalty=0.1",), ("method.penalty=1",), ("method.penalty=0.1",)]
    text = printed(replace(ROW, chosen=tuple(chosen)), width=200)
    assert "the config" in text
    assert "chosen: penalty=0.1 (2), penalty=1 (1)" in text
    assert "chosen" not in printed(ROW)


def test_a_column_without_any_figure_is_left_out():
    unknown = replace(ROW, mean=ROW.mean | {"as_in_paper": None})
    assert "paper" in printed(ROW, unknown)
    assert "paper" not in printed(unknown)


def test_keys_are_as_short_as_they_may_be():
    given = ("method.shrinkage=1", "method.whitening.shrinkage=2", "data.shift=0.7")
    assert list(short_keys(given).values()) == [
        "method.shrinkage",
        "whitening.shrinkage",
        "shift",
    ]
    assert list(short_keys(["seed=1", "method.options.seed=2"]).values()) == [
        "seed",
        "options.seed",
    ]
