"""One rule for names, whether they come from Python, a config, a certificate or a command line."""

from pathlib import Path

import pytest
from torch import nn

from sheafed import Agent
from sheafed.config.reading import read_experiment
from sheafed.errors import InputError, SheafedError
from sheafed.names import check_name
from sheafed.transport.zenoh.access_control import ANY, agent_access, key, relay_access
from sheafed.transport.zenoh.certificates import make_certificates

INVALID = {
    "*": r"not contain '\*'",
    "**": r"not contain '\*'",
    "a$*": r"not contain '\$', '\*'",
    "a/b": "not contain '/'",
    "a\\b": "not contain",
    "what?": "not contain",
    "#1": "not contain",
    "": "non-empty",
    "a\nb": "printable",
    "a\x00": "printable",
    "a\u202eb": "printable",
    "\ud800": "printable",
    " a": "space",
    "é" * 33: "at most 64 bytes",
    "..": "reserved",
    "NUL": "reserved",
    "com1.txt": "reserved",
    "Authority": "reserved",
    "certificates": "reserved",
}


@pytest.mark.parametrize(("name", "problem"), INVALID.items(), ids=map(repr, INVALID))
def test_what_is_a_wildcard_a_path_or_unprintable_is_no_name(name: str, problem: str) -> None:
    with pytest.raises(InputError, match=f"the name of an agent must .*{problem}"):
        check_name(name)


@pytest.mark.parametrize(
    "name", ["ada", "Zoë 2", "站点-3", "<b>&amp;", "a.b:c", "x" * 64, "console"]
)
def test_ordinary_names_are_kept(name: str) -> None:
    assert check_name(name) == name


def test_every_place_refuses_a_wildcard(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[data]\nname="digits"\n[[model.agents]]\nname="*"\nwidths=[4]\n')
    places = {
        "a run": lambda: Agent("*", nn.Linear(2, 2), nn.Linear(2, 2), data=[]),
        "a config": lambda: read_experiment(str(config), [], None),
        "certificates": lambda: make_certificates(tmp_path / "certs", ["*"]),
        "an agent": lambda: agent_access("default", "*", ["b"]),
        "a neighbour": lambda: agent_access("default", "a", ["*"]),
        "a relay's agent": lambda: relay_access("default", ["a", "*"]),
        "a trusted relay": lambda: agent_access("default", "a", ["b"], ["*"]),
        "a network": lambda: agent_access("*", "a", ["b"]),
    }
    for use in places.values():
        with pytest.raises(SheafedError, match=r"must not contain '\*'"):
            use()


def test_a_name_in_a_key_is_never_a_wildcard() -> None:
    assert key("default", "*", "**") == "sheafed/default/%2A/%2A%2A"
    assert key("default", ANY, "b") == "sheafed/default/*/b"


def test_an_agent_may_be_named_like_a_relay_s_rule() -> None:
    access = agent_access("default", "a", ["relay r"], ["r"])
    identifiers = [subject["id"] for subject in access["subjects"]]
    assert len(set(identifiers)) == 2
