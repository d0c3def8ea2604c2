"""Which keys of a config had an effect."""

import pytest

from sheafed.config import parse_experiment
from sheafed.report.used_settings import ONLY_WITH, UNLESS, used_settings
from sheafed.training.run_identity import flatten


def dumped(*overrides):
    return parse_experiment({}, list(overrides)).model_dump(mode="json")


@pytest.mark.parametrize("key", ONLY_WITH)
def test_conditions_are_those_of_the_schema(key):
    """Every key exists, and so does the value of the other key with which it is used."""
    choice, value = ONLY_WITH[key]
    with_it = dumped(f"{choice}={value}")
    assert key in flatten(with_it)
    assert key in used_settings(with_it)
    others = {"data.partition": "iid", "graph.kind": "ring", "model.family": "five"}
    without = dumped(f"{choice}={others.get(choice, 'adam')}")
    assert key in flatten(without)
    assert key not in used_settings(without)


def test_agents_of_ones_own_replace_the_family():
    own = parse_experiment({"model": {"agents": [{"name": "a", "widths": [4]}]}}, [])
    found = used_settings(own.model_dump(mode="json"))
    assert "model.agents" in found
    assert set(UNLESS).isdisjoint(found)


def test_what_is_none_or_empty_was_not_used():
    found = used_settings(dumped())
    assert "method.channel" not in found
    assert "model.members" not in found
    assert found["method.maps.every"] == 1
    assert found["training.evaluate_every"] == 1
